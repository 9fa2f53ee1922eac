"""Where in their public range most targets lie: a noisy mean and a noisy mean deviation."""

from __future__ import annotations

import math

import numpy as np

from dpsubspace._array import to_numpy
from dpsubspace._release.mechanisms import BoundedSum, vector_sum
from dpsubspace._release.releases import Releases
from dpsubspace._rows.remote import made
from dpsubspace._statistics.counts import record_sums

__all__ = ["FOCUS_RELEASES", "noisy_focus"]

# A mean, and a mean deviation from it.
FOCUS_RELEASES = 2

# Deviations on either side of the mean, and rows over the noise of the fit from which on there are
# more: with more rows, cutting tails costs more than the noise of a wider range does.
_DEVIATIONS, _FROM = 2.5, 300.0


def noisy_focus(
    values: np.ndarray, releases: Releases, name: str, ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """Release for each column an interval within [-1, 1] that holds nearly all of its values.

    Parameters
    ----------
    values : ndarray of shape (n, c)
        Private columns, on their public ranges: in [-1, 1].
    releases : Releases
        With :data:`FOCUS_RELEASES` called `name`.
    name : str
        Their name.
    ratio : float
        Number of records over the noise multiplier of the whole fit, public.

    Returns
    -------
    low, high : ndarray of shape (c,)
        Ends of the intervals.

    Notes
    -----
    Privacy: the first release is the sum of the values, of which a record brings one in [-1, 1]
    a column. It moves the vector by sqrt(c) when it becomes null and by 2 sqrt(c) when it is
    replaced. The mean m that follows is cut to [-1, 1]. The second is the sum of ``|z - m|``,
    which is in [0, 1 + |m|]; a record moves it by the norm of the vector ``1 + |m|``, whether it
    becomes null or is replaced. What follows is postprocessing. Event: two Gaussian mechanisms.
    """
    records, c = releases.records_of(values), values.shape[1]
    n, (total, slack) = records.n, record_sums(values, records)
    first = vector_sum(total, math.sqrt(c), slack)
    mean = np.clip(to_numpy(releases.gaussian(name, first)) / n, -1.0, 1.0)
    most = 1 + np.abs(mean)
    bound = float(np.linalg.norm(most)) * (1 + slack)
    second = BoundedSum(record_sums(made(np.abs, values - mean), records)[0], bound, bound)
    noise = (releases.noise_of(name, first) + releases.noise_of(name, second)) / n
    deviation = np.clip(to_numpy(releases.gaussian(name, second)) / n, 0.0, most)
    wide = _DEVIATIONS * max(1.0, (ratio / _FROM) ** (1 / 3))
    half = wide * (deviation + noise)  # by which the mean and the deviation may be off
    return np.clip(mean - half, -1.0, 1.0), np.clip(mean + half, -1.0, 1.0)
