"""What scoring gives back: metrics with intervals, each with what the call cost."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsubspace._accounting.guarantee import PrivacyGuarantee, Released
from dpsubspace._statistics.score_cells import ScoreCells
from dpsubspace.exceptions import warn

__all__ = ["PrivateScore", "PrivateScores", "guarantee_in"]


def _tell_of_pairs() -> None:
    """Warn that what is asked for is of the pair that `private_score` gave before."""
    warn(
        "private_score gives the score itself, or a dict of scores for a list of metrics, and no"
        " pair (value, privacy) any more: write score = private_score(...), and take its cost"
        " from score.privacy_. Unpacking it, and the `value` and `privacy` of the pair, will go"
        " in the next release.",
        FutureWarning,
    )


@dataclass(frozen=True, eq=False)
class PrivateScore:
    """A metric of a model on private rows, with an interval for noise and sampling.

    ``float(score)`` is its value, and printing shows the interval.

    Parameters
    ----------
    metric : str
        Name of the metric.
    value : float or ndarray
        The metric as released: a curve by its values, a confusion matrix by its entries.
    low, high : float or ndarray
        Ends of the interval, of each value by itself.
    level : float
        How often such intervals cover the metric on all rows of the kind, at least about.
    n : int or None
        Number of records; None for a group, of which it is private.
    unit : str
        What a record is: ``"row"`` or ``"person"``.
    at : ndarray or None
        Where the values of a curve lie: false positive rates of "roc_curve" and mean predicted
        probabilities of "calibration_curve".
    cells : ScoreCells or None
        Released counts that it was read from, where these are of scores.
    pos_label : object or None
        Class that the metric is about, of those metrics that are about one.
    curve : PrivateScore or None
        The ROC curve of which "roc_auc" is the area: it is read from the same counts.
    by : dict of object to PrivateScore, or None
        The same metric of each public group, by its level.
    privacy_ : PrivacyGuarantee or None
        What the call cost and what that rests on. Scores of one call have it in common.

    See Also
    --------
    private_score : Returns one.

    Examples
    --------
    >>> from dpsubspace import PrivateScore
    >>> score = PrivateScore("recall", 0.91, 0.89, 0.93, 0.95, 2000, pos_label="ill")
    >>> print(score)
    recall of class 'ill' = 0.91 (95% interval 0.89 to 0.93)
    >>> float(score)
    0.91
    """

    metric: str
    value: Any
    low: Any
    high: Any
    level: float
    n: int | None
    unit: str = "row"
    at: np.ndarray | None = None
    cells: ScoreCells | None = field(default=None, repr=False)
    pos_label: Any = None
    curve: PrivateScore | None = field(default=None, repr=False)
    by: Mapping[Any, PrivateScore] | None = field(default=None, repr=False)
    privacy_: PrivacyGuarantee | None = field(default=None, repr=False)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        about = "" if self.pos_label is None else f" of class {self.pos_label!r}"
        groups = (f"  {level!r}: {score._words}" for level, score in (self.by or {}).items())
        between = " of " if np.ndim(self.value) else " = "
        return "\n".join([f"{self.metric}{about}{between}{self._words}", *groups])

    @property
    def _words(self) -> str:
        """The value, with its interval."""
        if np.ndim(self.value):
            return f"{np.size(self.value)} values: see `value`, with intervals in `low` and `high`"
        value, low, high = (f"{float(x):.4g}" for x in (self.value, self.low, self.high))
        return f"{value} ({100 * self.level:g}% interval {low} to {high})"

    # The pair that it was before ------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        _tell_of_pairs()
        return iter((self, self.privacy_))

    def __getitem__(self, place: int) -> Any:
        _tell_of_pairs()
        return (self, self.privacy_)[place]

    @property
    def privacy(self) -> PrivacyGuarantee | None:
        """What the call cost, as the pair had it."""
        _tell_of_pairs()
        return self.privacy_


class PrivateScores(dict[str, PrivateScore]):
    """Scores of one call by metric, with what it cost as ``privacy_``."""

    def __init__(self, scores: Mapping[str, PrivateScore], privacy: PrivacyGuarantee):
        super().__init__(scores)
        self.privacy_ = privacy

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (dict(self.items()), self.privacy_)

    def __str__(self) -> str:
        return "\n".join(map(str, self.values()))

    # The pair that it was before ------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        if _unpacks_two(sys._getframe(1)):
            _tell_of_pairs()
            return iter((self, self.privacy_))
        return super().__iter__()

    def __missing__(self, place: Any) -> Any:
        if place in (0, 1):
            _tell_of_pairs()
            return (self, self.privacy_)[place]
        raise KeyError(place)

    @property
    def value(self) -> PrivateScores:
        """The scores, as the pair had them."""
        _tell_of_pairs()
        return self

    @property
    def privacy(self) -> PrivacyGuarantee:
        """What the call cost, as the pair had it."""
        _tell_of_pairs()
        return self.privacy_


def guarantee_in(released: Any) -> Any:
    """Guarantee of what a private function returned; None of anything else."""
    if isinstance(released, (PrivateScore, PrivateScores)):
        return released.privacy_
    return released.privacy if isinstance(released, Released) else None


def _unpacks_two(frame: Any) -> bool:
    """Whether code is at ``one, other = ...``, which a dict would answer with two of its names."""
    code, place = frame.f_code.co_code, frame.f_lasti
    return code[place] == dis.opmap["UNPACK_SEQUENCE"] and code[place + 1] == 2
