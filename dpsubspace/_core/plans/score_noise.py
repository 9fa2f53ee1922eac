"""Effects of public sizes on scores: which are NaN for any rows, and which are mostly noise.

All of this is settled before anything is charged, and at no cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Target
from dpsubspace._core.accounting.enough import least_epsilon, least_records
from dpsubspace._core.ground.checks import HiddenByNoise
from dpsubspace._core.plans.score_release import parts_of
from dpsubspace._core.plans.score_request import ScoreRequest
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.score_cells import n_cells
from dpsubspace._core.statistics.score_metrics import (
    CLEAR,
    CLEAR_VARIANCE,
    METRICS,
    Metric,
    Summed,
    clear_of_noise,
)
from dpsubspace.exceptions import PrivacyWarning, warn

# Share of the records that a small class may well have, and usual targets: their mean is a third of
# the way from the middle of the bounds to an end, and six standard deviations lie between the
# bounds. Targets that are spread evenly between the bounds have the largest deviation, as a share
# of the width of the bounds, that targets have unless they lie at both ends.
_SMALL_CLASS, _USUAL_MEAN, _USUAL_SPREAD = 0.05, 1 / 3, 1 / 6
_EVEN_SPREAD = 12**-0.5

# Deviations of noise by which a size or a variance exceeds its bar at an epsilon that is advised:
# one of two Laplace variables together is beyond five of its deviations once in 2,000 draws.
_SURE = 5.0

# Noise above which a score shows next to nothing, 95 of 100 times, as a share of the difference
# between a perfect model and a guess.
_NOISY = 0.5


@dataclass(frozen=True)
class ScoreSizes:
    """Public sizes of a call, and their consequences for any epsilon."""

    target: Target
    records: Records
    n_classes: int
    by: int  # Number of groups, including that of rows in no group; 1 without groups
    units: Mapping[str, float]  # Units of numbers, by their names

    def budget(self, asked: ScoreRequest, epsilon: float | None = None) -> Budget:
        target = self.target if epsilon is None else replace(self.target, epsilon=epsilon)
        return Budget.split(target, parts_of(asked), self.records.n)

    @property
    def moved(self) -> float:
        return 1.0 if self.target.neighboring_relation == "zero_out" else 2.0

    def needed(self, asked: ScoreRequest, budget: Budget, *, in_a_group: bool = False) -> float:
        """Records of each class that metrics need, of all records or in one group."""
        found, by = 0.0, 1 if in_a_group else self.by
        if asked.ranked:
            lists = self.n_classes if self.n_classes > 2 else 1
            epsilon = budget.scales["cells"] / lists
            n = self.records.n // max(self.by - 1, 1)
            found = clear_of_noise(math.sqrt(by) * self.moved / epsilon, n_cells(n, epsilon))
        if asked.confusion:
            scale = math.sqrt(by) * self.moved / budget.scales["confusion"]
            found = max(found, clear_of_noise(scale, self.n_classes))
        return found

    def sums(self, asked: ScoreRequest, budget: Budget) -> Summed:
        """Placeholder means of all records, with the scales of their noise."""
        moved = 1.0 if self.by == 1 else self.moved
        scale = moved * math.sqrt(self.by) / budget.scales["sums"] / self.records.n
        return Summed.of(asked.sums, np.zeros(len(asked.sums)), scale, 1, {})

    def hidden(self, asked: ScoreRequest, budget: Budget) -> set[str]:
        """Metrics that are NaN for any rows, by their names in METRICS."""
        found = {p for p in asked.plain if needs_classes(p)}
        needed = self.needed(asked, budget)
        if needed < max(self.records.n / max(self.n_classes, 1), 1):
            found = set()
        if "r2" in asked.plain:
            least = math.sqrt(self.sums(asked, budget).clear_variance(0.0)) / 2
            found |= {"r2"} if least > _EVEN_SPREAD else set()
        return found

    def enough(self, asked: ScoreRequest, hidden: set[str]) -> str:
        """Epsilon of two digits from which metrics are released, with the chance that is stated."""
        return self._least(lambda epsilon: self._clear(asked, hidden, self.budget(asked, epsilon)))

    def enough_records(self, asked: ScoreRequest, hidden: set[str]) -> str:
        """Return the number of records from which metrics are released, with the same chance."""

        def clear(n: int) -> bool:
            more = replace(self, records=replace(self.records, n=n))
            return more._clear(asked, hidden, more.budget(asked))

        return least_records(self.records.n, clear)

    def enough_for(self, asked: ScoreRequest, smallest: float) -> str:
        """Epsilon of two digits from which a class of this many records is clear of noise."""

        def clear(epsilon: float) -> bool:
            return self._told(self.needed(asked, self.budget(asked, epsilon)), smallest)

        return self._least(clear)

    def enough_for_groups(self, asked: ScoreRequest) -> str:
        """Epsilon of two digits from which groups of the mean size are clear of noise."""
        each = self.records.n / (self.by - 1)

        def clear(epsilon: float) -> bool:
            return self._told(_needed_of_groups(asked, self.budget(asked, epsilon), self), each)

        return self._least(clear)

    @staticmethod
    def _told(needed: float, size: float) -> bool:
        """Return whether a size is as far above what is needed as advice requires."""
        return needed * (1 + _SURE / CLEAR) <= size

    def _clear(self, asked: ScoreRequest, hidden: set[str], budget: Budget) -> bool:
        clear = True
        if hidden - {"r2"}:
            clear = self._told(self.needed(asked, budget), self.records.n / self.n_classes)
        if "r2" in hidden:
            bar = self.sums(asked, budget).clear_variance(_USUAL_MEAN)
            clear &= bar * (1 + _SURE / CLEAR_VARIANCE) <= (2 * _USUAL_SPREAD) ** 2
        return clear

    def _least(self, clear: Callable[[float], bool]) -> str:
        """Return the least epsilon of two digits that is `clear`; "" if there is none."""
        return least_epsilon(self.target, clear)


def needs_classes(plain: str) -> bool:
    """Return whether a metric needs a certain number of records of each class."""
    metric = METRICS[plain]
    return (metric.cells or metric.formula is not None) and not metric.of_all_rows


def settled(asked: ScoreRequest, sizes: ScoreSizes) -> tuple[ScoreRequest, dict[str, str]]:
    """Return metrics that are released, and why others are left out, by their names in METRICS.

    ValueError if public sizes show that none would be released. A metric that is left out has no
    share of the budget, so that the others are checked again.
    """
    if not sizes.target.private:
        return asked, {}
    left: dict[str, str] = {}
    kept = asked
    while hidden := sizes.hidden(kept, sizes.budget(kept)):
        words = _why(kept, sizes, hidden)
        left |= dict.fromkeys(hidden, words)
        rest = kept.without(hidden)
        if rest is None:
            raise HiddenByNoise(f"noise would hide {words} Nothing was released.")
        names = [
            name for name, plain in zip(kept.names, kept.plain, strict=True) if plain in hidden
        ]
        warn(
            f"noise would hide {words} {', '.join(map(repr, names))} will be NaN, and take no"
            " share of the budget.",
            PrivacyWarning,
            about=("left out", *names),
        )
        kept = rest
    return kept, left


def _why(asked: ScoreRequest, sizes: ScoreSizes, hidden: set[str]) -> str:
    """Sentences that state which metrics noise hides, why, and what helps."""
    names = [name for name, plain in zip(asked.names, asked.plain, strict=True) if plain in hidden]
    n, epsilon, unit = sizes.records.n, sizes.target.epsilon or 0.0, sizes.records.unit
    words = f"{', '.join(map(repr, names))} of {n} {unit}s at epsilon={epsilon:g}"
    if hidden == {"r2"}:
        words += ", unless targets lie at both ends of `target_bounds`. Use"
        instead = "'root_mean_squared_error'"
        case = _USUAL_TARGETS
    else:
        needed = sizes.needed(asked, sizes.budget(asked))
        each = f"each of {sizes.n_classes} classes needs about {needed:.0f} {unit}s"
        words += f", whatever they say: {each}. Use"
        instead = f"metrics that need no {unit}s of each class, such as 'accuracy' and 'log_loss'"
        case = "if classes are about as frequent, and predicted as often, as each other"
    records, least = sizes.enough_records(asked, hidden), sizes.enough(asked, hidden)
    found = [f"at least {records} {unit}s"] * bool(records)
    found += [f"an epsilon of {least} or more"] * bool(least)
    chance = f"{'either is ' * (len(found) == 2)}{_CHANCE}"
    more = f" {', or '.join(found)} ({chance} {case}), or" if found else ""
    return f"{words}{more} {instead}."


_CHANCE = "enough 99 of 100 times"
_USUAL_TARGETS = (
    "if the standard deviation of targets is a sixth of the width of `target_bounds` and their mean"
    " at most that far from the middle"
)


def _advised(epsilon: str, case: str) -> str:
    """Advice of an epsilon that is enough, if there is one."""
    return f" An epsilon of {epsilon} or more is {_CHANCE} {case}." if epsilon else ""


def warn_if_hidden(asked: ScoreRequest, budget: Budget, sizes: ScoreSizes) -> None:
    """Warn if public sizes show that noise may hide a metric that is released, at no cost."""
    if not budget.private:
        return
    if asked.ranked or asked.confusion:
        _warn_of_classes(asked, sizes, sizes.needed(asked, budget))
    if "r2" in asked.plain:
        _warn_of_variance(asked, sizes.sums(asked, budget), sizes)
    _warn_of_noise(asked, budget, sizes)
    if sizes.by > 1:
        _warn_of_groups(asked, budget, sizes)


def _warn_of_classes(asked: ScoreRequest, sizes: ScoreSizes, needed: float) -> None:
    """Warn about metrics that need this many records of each class."""
    names = [n for n, p in zip(asked.names, asked.plain, strict=True) if needs_classes(p)]
    n, epsilon, unit = sizes.records.n, sizes.target.epsilon or 0.0, sizes.records.unit
    if not names or needed <= max(1.0, _SMALL_CLASS * n):
        return
    words = f"{', '.join(map(repr, names))} of {n} {unit}s at epsilon={epsilon:g}"
    small, case = _SMALL_CLASS * n, f"for a class of {100 * _SMALL_CLASS:.0f} %"
    warn(
        f"noise will hide {words} if a class has fewer than about {needed:.0f} {unit}s"
        f" ({100 * needed / n:.0f} %), or if fewer are predicted to be of it. The cost is the"
        " same then. 'accuracy' and 'log_loss' do not depend on that."
        f"{_advised(sizes.enough_for(asked, small), case)}",
        PrivacyWarning,
        about=("small classes", epsilon),
    )


def _warn_of_variance(asked: ScoreRequest, sums: Summed, sizes: ScoreSizes) -> None:
    """Warn about R2 if targets must vary much to be distinguished from noise."""
    n, unit = sizes.records.n, sizes.records.unit
    # Shares of the width of the bounds, half of which is 1 here.
    middle, beside = (math.sqrt(sums.clear_variance(mean)) / 2 for mean in (0.0, _USUAL_MEAN))
    if beside > _USUAL_SPREAD:
        warn(
            f"'r2' of {n} {unit}s at this epsilon is released only if the standard deviation of the"
            f" targets is at least {100 * middle:.0f} % of the width of `target_bounds`, or"
            f" {100 * beside:.0f} % if their mean is a sixth of this width away from the middle."
            " Otherwise it is NaN or refused, at the same cost. 'root_mean_squared_error' does not"
            f" depend on that.{_advised(sizes.enough(asked, {'r2'}), _USUAL_TARGETS)}",
            PrivacyWarning,
            about=("variance of targets", n),
        )


def _warn_of_noise(asked: ScoreRequest, budget: Budget, sizes: ScoreSizes) -> None:
    """Warn about scores that are released and are mostly noise."""
    pairs = zip(asked.names, asked.plain, strict=True)
    shares = {name: _noise_of(plain, asked, budget, sizes) for name, plain in pairs}
    names = [name for name, share in shares.items() if share > _NOISY]
    if not names:
        return
    n, epsilon, unit = sizes.records.n, sizes.target.epsilon or 0.0, sizes.records.unit

    def clear(larger: float) -> bool:
        more = sizes.budget(asked, larger)
        return all(_noise_of(p, asked, more, sizes) <= _NOISY for p in asked.plain)

    least = sizes._least(clear)
    warn(
        f"{', '.join(map(repr, names))} of {n} {unit}s at epsilon={epsilon:g} will be mostly noise,"
        " which is as large as what tells a perfect model from a guess. Use more"
        f" {unit}s{f', an epsilon of {least} or more,' if least else ''} or fewer metrics in one"
        " call.",
        PrivacyWarning,
        about=("score of noise", epsilon, *names),
    )


def _noise_of(plain: str, asked: ScoreRequest, budget: Budget, sizes: ScoreSizes) -> float:
    """Noise that 19 of 20 draws are below, over the difference of a perfect model and a guess."""
    metric, n = METRICS[plain], sizes.records.n
    if metric.formula is not None and (asked.confusion or asked.ranked):
        return _noise_of_counts(plain, asked, budget, sizes)
    if plain == "calibration_curve":
        return _noise_of_counts(plain, asked, budget, sizes)
    if not metric.sums or plain == "r2":
        return 0.0
    if metric.error:
        range_scale = sizes.moved / budget.scales["range"]
        if CLEAR * range_scale * math.sqrt(2) < n / 5:
            return 0.0  # a bound on errors may be found, and noise is less then
    main = metric.mean[0]
    noise = math.log(20) * sizes.sums(asked, budget).scales[main]
    return noise / _guess(metric, main, sizes)


def _guess(metric: Metric, main: str, sizes: ScoreSizes) -> float:
    """Loss of a guess relative to a perfect model, in units of the mean that is released."""
    if metric.error:
        return _USUAL_SPREAD ** (2 if main.endswith("^2") else 1)
    unit = sizes.units.get(main, 1.0)
    c = max(sizes.n_classes, 2)
    brier = 0.25 if c == 2 else 1 - 1 / c
    return {"loss": math.log(c), "brier": brier}.get(main, 1 - 1 / c) / unit


def _noise_of_counts(plain: str, asked: ScoreRequest, budget: Budget, sizes: ScoreSizes) -> float:
    n, c, root = sizes.records.n, sizes.n_classes, math.sqrt(sizes.by)
    if asked.confusion:
        scale, cells = root * sizes.moved / budget.scales["confusion"], c
    else:
        epsilon = budget.scales["cells"]
        scale, cells = root * sizes.moved / epsilon, n_cells(n, epsilon)
    one = math.sqrt(2) * scale
    if plain == "confusion_matrix":  # noise of an entry, over its average
        return 2 * one * (1 if asked.confusion else math.sqrt(cells / 2)) / (n / c**2) / 2
    if plain == "calibration_curve":  # noise of a share of a cell
        return 2 * one / (n / cells)
    if METRICS[plain].of_all_rows:
        return 2 * one * math.sqrt(cells) / n / (1 - 1 / c)
    return 0.0


def _needed_of_groups(asked: ScoreRequest, budget: Budget, sizes: ScoreSizes) -> float:
    """Records that a group must have for its scores."""
    needed = 0.0
    if asked.ranked or asked.confusion:
        many = any(needs_classes(plain) for plain in asked.plain)
        needed = sizes.needed(asked, budget, in_a_group=True) * (sizes.n_classes if many else 1)
    if asked.sums:
        scale = sizes.moved / budget.scales["sums"]
        needed = max(needed, clear_of_noise(scale, 2 * len(asked.sums)))
    return needed


def _warn_of_groups(asked: ScoreRequest, budget: Budget, sizes: ScoreSizes) -> None:
    """Warn about groups if noise hides as many records as each group has on average, or more."""
    each, needed = sizes.records.n / (sizes.by - 1), _needed_of_groups(asked, budget, sizes)
    if needed <= max(each, 1.0):
        return
    unit = sizes.records.unit
    case = "if groups are about as large as each other"
    if any(needs_classes(plain) for plain in asked.plain):
        case += ", and classes as frequent, and predicted as often, in each"
    warn(
        f"noise will hide scores of groups of fewer than about {needed:.0f} {unit}s, which are NaN"
        f" then at the same cost, and a group has {each:.0f} on average. Use more {unit}s, fewer"
        " groups or a larger epsilon, or leave `by` out."
        f"{_advised(sizes.enough_for_groups(asked), case)}",
        PrivacyWarning,
        about=("small groups", sizes.by, round(each)),
    )
