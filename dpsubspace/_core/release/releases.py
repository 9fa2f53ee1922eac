"""Releases of one fit: each has a name that is charged, and nothing else leaves the records.

The releases that run are those that were charged, because :class:`Releases` refuses anything else:
a name that is not in the budget, one release more than the budget counts, a release of another
kind, and a release on a batch or block of records that was not drawn here. That a sum is really
over its batch or block is the responsibility of the callers that use any
(:func:`~dpsubspace._core.solvers.descent.train`, and ``_core/solvers/least_squares.py``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Part
from dpsubspace._core.accounting.cost import logarithmic_rate
from dpsubspace._core.ground.arrays import Array
from dpsubspace._core.release.mechanisms import (
    BoundedL1Sum,
    BoundedScores,
    BoundedSum,
    release,
    release_choice,
    release_direction,
    release_laplace,
    release_subspace,
)
from dpsubspace._core.release.noise import NoiseSource
from dpsubspace._core.rows.records import Records

# Draws of a search ------------------------------------------------------------------------------
# Number and candidates of the trials of a private search: draws that must stay hidden.


def draw_trials(noise: NoiseSource, mean: float, n_candidates: int) -> np.ndarray:
    """Draw the candidate of each trial: a random number of trials, drawn with replacement.

    `mean` is the mean number of trials; it is at least 1, and so is the number. Knowing the number
    of trials would reveal more than was paid for, hence the `noise`.

    The number is k with probability ``(1 - g)^k / (k log(1 / g))`` (a logarithmic distribution with
    the parameter g for this mean), by inversion: the least k whose distribution function is above a
    uniform number. The uniform has 52 bits, so the error of probabilities is at most 2^-52.
    """
    uniform = float(noise.uniform((1,))[0])
    trials = _inverse(uniform, logarithmic_rate(mean))
    drawn = np.floor(noise.uniform((trials,)) * n_candidates).astype(np.intp)
    return np.minimum(drawn, n_candidates - 1)


def _inverse(uniform: float, rate: float) -> int:
    """Least k at which the distribution function is at least `uniform`."""
    if rate == 1:
        return 1
    k, term = 1, (1 - rate) / -math.log(rate)
    total = term
    while total < uniform and term > 1e-18:
        term *= (1 - rate) * k / (k + 1)
        k, total = k + 1, total + term
    return k


# Releases of a fit ------------------------------------------------------------------------------


class Releases:
    """Releases of one fit, each made once: its budget, its noise, and the units of its rows.

    There is one stream of noise for each name. `records` holds the privacy units of the rows that
    are counted, if there are any.

    Privacy: a release of the part called `name` is the mechanism of that part with the scale of
    ``budget.event``, on a sum with a bound on how far one record moves it. There are at most as
    many releases as the event counts. So the event describes what ran, or more.
    """

    def __init__(
        self,
        budget: Budget,
        noise: NoiseSource,
        records: Records | None = None,
        end_with: Callable[[Budget], None] | None = None,
    ):
        self.budget = budget
        self._end_with = end_with  # called where a fit ends with less than all of its releases
        self._only: tuple[str, ...] | None = None  # names that may be released now; None for all
        self._records = records
        self._noise = noise
        self._streams: dict[str, NoiseSource] = {}
        self._made: Counter[str] = Counter()
        self._drawn: set[str] = set()  # names with a batch that waits for its release
        self._blocks: dict[str, list[np.ndarray]] = {}  # unused blocks of a name
        self._turn = RLock()  # keeps the counts right when several threads release

    def __contains__(self, name: str) -> bool:
        return name in self.budget.parts

    @contextmanager
    def at_first(self, *names: str) -> Iterator[None]:
        """Let nothing but `names` be released: a fit that fails here costs no more than these."""
        if self._made:
            raise RuntimeError(f"{[*self._made]} were released before {[*names]}.")
        self._only = names
        try:
            yield
        except BaseException:
            if self._end_with is not None:
                self._end_with(self.budget.only(*names))
            raise
        self._only = None

    def records_of(self, values: Array) -> Records:
        """Records of an array with one entry for each of their rows."""
        return Records.of_rows(values.shape[0]) if self._records is None else self._records

    def noise_of(self, name: str, total: BoundedSum, share: float = 1.0) -> float:
        """Standard deviation of the noise of every entry of `total`, released as `name`."""
        part = self.budget.parts[name]
        unit = total.unit(self.budget.target.neighboring_relation, sampled=part.rate < 1)
        return self.budget.scales[name] / math.sqrt(share) * unit

    def batch(self, name: str, n: int, *, blocks: int | None = None) -> np.ndarray | None:
        """Draw the records for the next release of `name`, out of `n`; None for all of them.

        A Poisson batch, or the next of disjoint blocks. The batch that was drawn must be the one
        that is released: choosing among several batches, or releasing another sum, is not what was
        charged.

        `blocks` is their number, if it is to be less than in the budget: fewer blocks are larger,
        and cost the same. Its value for the first block holds for all.
        """
        part = self.budget.parts[name]
        if part.rate == 1 and not part.disjoint:
            return None
        with self._turn:
            if name in self._drawn:
                raise RuntimeError(f"the batch of {name!r} drawn before is not released yet.")
            block = self._next_block(name, n, blocks) if part.disjoint else None
            self._drawn.add(name)
        return self._stream("batches").poisson_sample(n, part.rate) if block is None else block

    def _next_block(self, name: str, n: int, blocks: int | None) -> np.ndarray:
        """Block of records that no earlier release of `name` used, by public coins."""
        if name not in self._blocks:
            most = self.budget.parts[name].count
            order = np.random.default_rng(0).permutation(n)
            split = np.array_split(order, most if blocks is None else min(blocks, most))
            self._blocks[name] = [np.sort(block) for block in split]
        left = self._blocks[name]
        if not left:
            raise RuntimeError(f"all blocks of {name!r} are released.")
        return left.pop(0)

    def gaussian(self, name: str, total: BoundedSum, *, stream: str | None = None) -> Array:
        return self.jointly(name, [total], [1.0], stream=stream)[0]

    def jointly(
        self,
        name: str,
        totals: Sequence[BoundedSum],
        shares: Sequence[float],
        *,
        stream: str | None = None,
    ) -> tuple[Array, ...]:
        """Release sums over the same records at once: together one Gaussian mechanism.

        Sum i has the multiplier of the part over the square root of its share. Squares of mu add
        up, and shares add up to at most 1, so that jointly the sums cost as much as the part, also
        inside the sampling of the batch that they share.
        """
        valid = len(shares) == len(totals) and all(share > 0 for share in shares)
        if not (valid and math.fsum(shares) <= 1 + 1e-12):
            raise RuntimeError(
                f"{len(totals)} sums need as many shares above 0, at most 1 in all, got {shares}."
            )
        part, scale = self._next(name, "gaussian")
        noise = self._stream(stream or name)
        relation, sampled = self.budget.target.neighboring_relation, part.rate < 1
        return tuple(
            release(
                total,
                scale / math.sqrt(share),
                noise,
                neighboring_relation=relation,
                sampled=sampled,
            )
            for total, share in zip(totals, shares, strict=True)
        )

    def laplace(self, name: str, total: BoundedL1Sum) -> Array:
        epsilon = self._next(name, "laplace")[1]
        relation = self.budget.target.neighboring_relation
        return release_laplace(total, epsilon, self._stream(name), neighboring_relation=relation)

    def direction(self, name: str, total: BoundedSum, *, stream: str | None = None) -> np.ndarray:
        epsilon = self._next(name, "range")[1]
        relation, noise = self.budget.target.neighboring_relation, self._stream(stream or name)
        return release_direction(total, epsilon, noise, neighboring_relation=relation)

    def subspace(self, name: str, total: BoundedSum, n_components: int) -> np.ndarray:
        epsilon = self._next(name, "range")[1]
        how = {"neighboring_relation": self.budget.target.neighboring_relation}
        noise = self._stream(name)
        return release_subspace(total, epsilon, noise, n_components=n_components, **how)

    def choice(self, name: str, scores: BoundedScores) -> int:
        epsilon = self._next(name, "range")[1]
        relation = self.budget.target.neighboring_relation
        return release_choice(scores, epsilon, self._stream(name), neighboring_relation=relation)

    def _next(self, name: str, kind: str) -> tuple[Part, float]:
        """Part and scale of one more release; RuntimeError if it was not charged."""
        part = self.budget.parts.get(name)
        if part is None:
            raise RuntimeError(f"a release called {name!r} is not in the budget: nothing was added")
        if part.kind != kind:
            raise RuntimeError(f"the release {name!r} was charged as {part.kind}, not as {kind}.")
        with self._turn:
            if self._only is not None and name not in self._only:
                raise RuntimeError(f"the release {name!r} has to wait for {[*self._only]}.")
            if self._made[name] >= part.count:
                raise RuntimeError(f"the budget has {part.count} releases {name!r}, not more.")
            if (part.rate < 1 or part.disjoint) and name not in self._drawn:
                raise RuntimeError(f"the release {name!r} was charged on a batch: draw one first.")
            self._drawn.discard(name)
            self._made[name] += 1
        return part, self.budget.scales[name]

    def noise_within(self, name: str) -> NoiseSource:
        """Noise of something inside of this fit that has an account of its own."""
        return self._noise.child(name)

    def _stream(self, name: str) -> NoiseSource:
        with self._turn:
            if name not in self._streams:
                self._streams[name] = self._noise.child(name)
            return self._streams[name]
