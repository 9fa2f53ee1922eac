"""Warnings about a fit: before it from public sizes, after it from released numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.bounds import ScaledRows, warn_of_largest
from dpsubspace._core.fits.copies import copying_column, warn_of_copy
from dpsubspace._core.fits.estimator import CheckedFit
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.checks import shown
from dpsubspace._core.plans.linear import Fitted
from dpsubspace._core.rows.records import RowMap, Shift
from dpsubspace._core.solvers.descent import STEPS
from dpsubspace._core.statistics.means import ColumnShares, Focus
from dpsubspace._core.statistics.quantiles import visible
from dpsubspace.exceptions import PrivacyWarning, warn


def warn_of_noise(
    estimator: Any,
    budget: Budget,
    guarantee: PrivacyGuarantee,
    n_samples: int,
    n_weights: float,
    bearable: float,
    name: str = STEPS,
) -> None:
    """Warn if noise in `n_weights` weights probably hides most of what can be learned."""
    if not _noise_hides(budget, n_samples, n_weights, bearable, name):
        return
    price, unit = f"epsilon={guarantee.epsilon:.3g}", guarantee.unit
    warn(
        f"the noise of a fit with {price} will probably hide most of what can be learned"
        f" from {n_samples} {unit}{'s' * (n_samples != 1)}: expect a poor model. Use more {unit}s,"
        " a larger epsilon or fewer columns.",
        PrivacyWarning,
        about=("noise", type(estimator).__name__, price),
    )


def _noise_hides(
    budget: Budget, n_samples: int, n_weights: float, bearable: float, name: str = STEPS
) -> bool:
    """Return whether noise in `n_weights` weights probably hides most of what can be learned."""
    return budget.per_record_multiplier(name) * math.sqrt(n_weights) > bearable * n_samples


def warn_of_bounds(
    estimator: Any, bounds: ScaledRows, budget: Budget, guarantee: PrivacyGuarantee, sizes: Sizes
) -> bool:
    """Warn if noise probably hides bounds that are estimated privately; return whether it does."""
    noise, missing = bounds.noise(budget, sizes), bounds.missing(sizes)
    noise *= math.sqrt(0.5) if guarantee.neighboring_relation == "replace_one" else 1.0
    n_samples = sizes.known("n_samples", "the warning")
    if n_samples >= auto.ROWS_FOR_BOUNDS * noise:
        return False
    price, unit, lacking = f"epsilon={guarantee.epsilon:.3g}", guarantee.unit, {}
    if missing[1]:
        lacking["`target_bounds`"] = "the range of the targets"
    if missing[0]:
        lacking["`data_norm`"] = "the length of the rows"
    warn(
        f"the noise of a fit with {price} and {n_samples} {unit}s will probably hide"
        f" {' and '.join(lacking.values())}: expect a model that is no better than a constant,"
        f" or far worse. Give {' and '.join(lacking)} from public knowledge, or use more"
        f" {unit}s or a larger epsilon.",
        PrivacyWarning,
        about=("bounds", type(estimator).__name__, price),
    )
    return True


def warn_of_regressor(estimator: Any, found: Fitted, budget: Budget, checked: CheckedFit) -> None:
    """Warn if the released numbers of a linear regressor show that the fit is poor."""
    if (shares := found.limits.shares) is not None:
        _warn_of_lengths(estimator, shares)
    if checked.plan.decides_weights(checked.data.sizes(1)):
        _warn_of_noise(estimator, found, budget, auto.HIDING_TARGETS)
    warn_of_found_bounds(estimator, estimator.bounds_found_, budget, checked.data.records.n)
    warn_of_wrong_range(estimator, found.limits.focus)


def warn_of_classifier(estimator: Any, found: Fitted, budget: Budget, checked: CheckedFit) -> None:
    """Warn if the released numbers of a linear classifier show that the fit is poor."""
    data, n_weights = checked.data, estimator.n_features_in_ + 1
    told = _warn_of_units(estimator, found, budget)
    if checked.plan.decides_weights(data.sizes(1)):
        _warn_of_noise(estimator, found, budget, auto.HIDING)
    if budget.private and not _noise_hides(budget, data.records.n, n_weights, auto.HIDING):
        # Not for a fit that is mostly noise: the user has been warned about it before.
        if not told and data.public is None:
            _warn_of_offset(estimator, found, budget)
        warn_of_classes(estimator)
        if not checked.plan.encoded:
            warn_of_copy(estimator, copying_column(estimator))


def warn_of_found_bounds(
    estimator: Any, found: Mapping[str, Any], budget: Budget, n_samples: int
) -> None:
    """Warn about bounds that the noise of the counts has hidden, or that are the largest possible.

    Both follow from released numbers.
    """
    name, unit = type(estimator).__name__, estimator.privacy_.unit
    _warn_of_far_targets(estimator, found["target_bounds"], budget, n_samples)
    missing = np.flatnonzero(~found["target_bounds"])
    if len(missing):
        which = "the targets"
        if len(found["target_bounds"]) > 1:
            which = f"target{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
        warn(
            f"the noise of the counts has hidden the range of {which}, so -1 to 1 was used:"
            " predictions are useless unless the targets lie in that range. Give"
            f" `target_bounds` from public knowledge, or use more {unit}s or a larger epsilon.",
            PrivacyWarning,
            about=("target_bounds", name, estimator.epsilon),
        )
    if not found.get("data_norm", True):  # rows of a module need no bound
        warn(
            "the noise of the counts has hidden how large the norms of rows are, so 1 was used:"
            " rows of a larger norm are shrunk to it, and the model may be no better than a"
            " constant. Give `data_norm` from public knowledge (1 if a BoundedScaler comes"
            f" before), or use more {unit}s or a larger epsilon.",
            PrivacyWarning,
            about=("data_norm", name, estimator.epsilon),
        )
    if "bounds" in budget.parts:
        warn_of_largest(estimator.data_norm_, "the lengths of rows", "`data_norm`")


def _warn_of_far_targets(estimator: Any, found: np.ndarray, budget: Budget, n_samples: int) -> None:
    """Warn about targets far from 0 if noise may have hidden how narrow their ranges are.

    The found range of such targets is narrower than its distance from 0, as for any targets within
    an octave.
    """
    if "targets" not in budget.parts or visible(budget, "targets", n_samples, len(found)):
        return
    low, high = estimator.target_bounds_
    far = np.flatnonzero(found & (high - low < np.abs(low / 2 + high / 2)))
    if len(far):
        warn(
            "the noise of the counts may have hidden that the targets, which are far from 0, are"
            f" in a much narrower range than {low[far[0]]:.6g} to {high[far[0]]:.6g}: the model is"
            " then far worse than a constant. Give `target_bounds` from public knowledge, or use"
            f" more {estimator.privacy_.unit}s or a larger epsilon.",
            PrivacyWarning,
            about=("far targets", type(estimator).__name__, estimator.epsilon),
        )


def warn_of_ranges(
    estimator: Any, found: Mapping[str, np.ndarray], model: str = "the model"
) -> None:
    """Warn about columns and targets whose range noise has hidden, as released numbers show."""
    name, unit = type(estimator).__name__, estimator.privacy_.unit
    columns, targets = (np.flatnonzero(~found[key]) for key in ("bounds", "target_bounds"))
    if len(targets):
        warn(
            f"the noise of the fit has hidden how the targets vary, so {model} predicts about 0."
            f" Give `target_bounds` from public knowledge, or use more {unit}s or a larger"
            " epsilon.",
            PrivacyWarning,
            about=("target_bounds", name, estimator.epsilon),
        )
    if len(columns):
        names = getattr(estimator, "feature_names_in_", range(estimator.n_features_in_))
        which = ", ".join(repr(names[i]) for i in columns[:5])
        which += f" and {len(columns) - 5} more" if len(columns) > 5 else ""
        several = len(columns) > 1
        warn(
            f"the noise of the counts has hidden how column{'s' * several} {which}"
            f" var{'y' if several else 'ies'}, or nearly all entries are alike: {model} leaves"
            f" {'them' if several else 'it'} out. Give `bounds` from public knowledge, or use more"
            f" {unit}s or a larger epsilon.",
            PrivacyWarning,
            about=("bounds", name, *columns[:5]),
        )


def warn_of_wide_ranges(estimator: Any, fills: float) -> None:
    """Warn about public ranges much wider than the columns, as their released squares show."""
    if fills > auto.FILLED:
        return
    warn(
        f"`bounds` are about {1 / (3 * fills):.0f} times as wide as the columns, or more, as their"
        " released squares show. Noise is in proportion to the ranges: give narrower ones from"
        " public knowledge, or bounds=None, which finds them.",
        PrivacyWarning,
        about=("wide ranges", type(estimator).__name__),
    )


def warn_of_wrong_range(estimator: Any, focus: Focus | None) -> None:
    """Warn about a public range of targets that misses them, or is far wider than they are.

    `focus` has the released numbers on where the targets lie in the range; None without any.
    """
    if focus is None:
        return
    several = len(focus.end) > 1
    unseen = ~focus.seen & (focus.deviation <= auto.RANGE_UNSEEN)
    wide = unseen | (focus.deviation <= auto.RANGE_FILLED)
    for i in np.flatnonzero((focus.end != 0) | wide)[:5]:
        which = f"target {i}" if several else "the targets"
        if focus.end[i]:
            side = "upper" if focus.end[i] > 0 else "lower"
            found = f"the mean of {which}, each cut to the public range, is at most"
            found += f" {50 * focus.away[i]:.2g} % of this range away from its {side} end, as"
            found += " released numbers show: most targets are near that end, or beyond it. What is"
            found += " beyond it counts as that end, so that the model cannot tell it apart"
        else:
            found = f"the public range of {which} is at least {0.25 / focus.deviation[i]:.2g} times"
            found += " as wide as needed, as released numbers show"
            if focus.seen[i]:
                found += ". The fit has looked for the part of it that they are in, and found it"
                found += " coarsely: with a range that fits, noise would be less"
            else:
                found += ", and noise hides how much wider: if far wider, then the model is no"
                found += " better than a constant, or far worse"
        warn(
            f"{found}. Give `target_bounds` (of a tabular pipeline, `target`) in the unit of the"
            " targets, from public knowledge, or leave them to be estimated (by None, of a tabular"
            " pipeline by PrivateRange()).",
            PrivacyWarning,
            about=("wrong range", type(estimator).__name__, int(i)),
        )


def _warn_of_noise(estimator: Any, found: Fitted, budget: Budget, bearable: float) -> None:
    """Warn about noise if released numbers have decided how many weights are trained from zero."""
    if not budget.private or found.init != "zero":
        return
    guarantee = estimator.privacy_
    warn_of_noise(estimator, budget, guarantee, found.n_samples, found.n_weights, bearable)


def _warn_of_units(estimator: Any, fitted: Fitted, budget: Budget) -> bool:
    """Warn if the released mean shows that a column makes up most of the length of the rows.

    Returns whether it warned.
    """
    if fitted.shift is None or not budget.private:
        return False
    noise = fitted.shift.error / math.sqrt(len(fitted.shift.mean))
    n_features = estimator.n_features_in_
    names = getattr(estimator, "feature_names_in_", range(n_features))
    found = _dominant(fitted.shift.mean, noise, n_features, fitted.limits.row_map)
    _warn_of_long(estimator, [f"{names[i]!r}" for i in found], "the released mean shows")
    return len(found) > 0


def _warn_of_lengths(estimator: Any, shares: ColumnShares) -> None:
    """Warn if released numbers show that one or two columns make up the length of the rows."""
    columns = [f"{name!r}" for name in _longest(estimator, shares)]
    _warn_of_long(estimator, columns, "released numbers show")


def _longest(estimator: Any, shares: ColumnShares) -> list[Any]:
    """Return the one or two columns that make up most of the length of rows, or none.

    The others must be short in comparison.
    """
    d, largest = len(shares.values), np.argsort(-shares.values)[:2]
    if d < 2 or shares.noise > auto.LENGTHS_SEEN:
        return []
    first, few = shares.values[largest[0]] - 2 * shares.noise, min(2, d - 1)
    both = shares.values[largest[:few]].sum() - 2 * math.sqrt(few) * shares.noise
    others = (1 - both) / (d - few)
    if others > auto.SHORT_COLUMNS * first:
        return []
    two = d >= auto.MANY_COLUMNS and both >= auto.TWO_COLUMNS
    found = largest[: 1 if first >= auto.ONE_COLUMN else 2 if two else 0]
    names = getattr(estimator, "feature_names_in_", range(d))
    return [names[i] for i in found]


def _warn_of_long(estimator: Any, columns: list[str], show: str) -> None:
    if not columns:
        return
    several = len(columns) > 1
    warn(
        f"{show} that column{'s' * several} {' and '.join(columns)}"
        f" make{'s' * (not several)} up most of the length of the rows. Columns are in"
        " different units or far from 0, and the model may hardly see the others. Scale the"
        " columns before the fit, for example with a BoundedScaler.",
        PrivacyWarning,
        about=("units", type(estimator).__name__, *columns),
    )


def _warn_of_offset(estimator: Any, fitted: Fitted, budget: Budget) -> None:
    """Warn if released numbers show that rows differ little compared to their distance from 0.

    Either the released mean is as long as rows can be, or rows are clipped to a radius about it and
    noise has moved the mean by about as much as the rows are away from it.
    """
    if fitted.shift is None or not budget.private:
        return
    if fitted.radius < fitted.limits.row_map.bound:
        # The median of the distances from the mean is about half the radius.
        found = 2 * fitted.shift.error >= auto.OFF_CENTRE * fitted.radius
        why = "noise has moved the released mean by about as much as the rows are away from it"
    else:
        found = _alike(fitted.shift, fitted.limits.row_map.bound)
        why = "the released mean is as long as the rows can be"
    if not found:
        return
    one_mean = getattr(estimator, "preprocessing", None) == "practical"
    way_out = "Use preprocessing='auto', or scale" if one_mean else "Scale"
    warn(
        f"{why}: the rows are far from 0, and their differences are small in comparison, so that"
        f" noise may hide them. {way_out} the columns before the fit, for example with a"
        " BoundedScaler.",
        PrivacyWarning,
        about=("offset", type(estimator).__name__),
    )


def _alike(shift: Shift, bound: float) -> bool:
    """Return whether a released mean shows that rows of norm at most `bound` are close to it.

    Rows of norm at most b have a mean square distance of at most ``b^2 - |mean|^2`` from their
    mean, whatever the rows are. Noise of standard deviation s makes the square of the released mean
    larger by s^2 per entry, with a standard deviation of about ``2 s |mean|``.
    """
    mean, error = shift.mean / bound, shift.error / bound
    square = float(mean @ mean)
    deviation = 2 * error * math.sqrt(square / len(mean))
    spread = 1 - square + error**2
    return spread <= 2 * deviation and spread + 2 * deviation <= auto.ALIKE


def warn_of_classes(estimator: Any) -> None:
    """Warn about classes that are predicted for no possible row, as the released weights prove."""
    classes, offset = estimator.classes_, np.broadcast_to(estimator.offset_, len(estimator.coef_))
    weights = np.column_stack([estimator.coef_, estimator.intercept_])
    more, row_map = estimator._interaction_weights.T, estimator._fitted_row_map
    if len(classes) == 2:
        weights, more = (np.vstack([0 * own, own]) for own in (weights, more))
        offset = np.concatenate([[0.0], offset])
    length = 0.0
    if estimator._interactions is not None:
        length = estimator._interactions.longest * row_map.largest_factor
    found = np.flatnonzero(_out_of_reach(weights, offset, row_map, more, length))
    their = "their scores" if len(found) > 1 else "its score"
    why = f"the released weights put {their} below that of another class for every row there can be"
    _tell_never(estimator, found, why)


_CURE = "More rows, a larger epsilon or `class_weight` may help"


def _tell_never(estimator: Any, found: np.ndarray, why: str, cure: str = _CURE) -> None:
    if not len(found):
        return
    several, classes = len(found) > 1, estimator.classes_
    which = ", ".join(shown(label) for label in classes[found[:5]].tolist())
    which += f" and {len(found) - 5} more" if len(found) > 5 else ""
    warn(
        f"class{'es' * several} {which} {'are' if several else 'is'} never predicted: {why}."
        f" Probabilities may still rank rows. {cure}.",
        PrivacyWarning,
        about=("classes", type(estimator).__name__, *map(str, found[:5])),
    )


def warn_of_unreached(
    estimator: Any,
    budget: Budget,
    n_samples: int,
    n_weights: int,
    find: Callable[[], np.ndarray],
    *,
    limited: bool,
) -> None:
    """Warn about classes that a trained module predicts for no row found by a search."""
    if not budget.private or _noise_hides(budget, n_samples, n_weights, auto.HIDING_MODULES):
        return
    found = find()
    why = "of random rows, and of all that gradients of the released module lead to, none is"
    why += " of one of them" if len(found) > 1 else " of it"
    cure = "Its outputs are the cause: see the warning before the fit" if limited else _CURE
    _tell_never(estimator, found, why, cure)


def _out_of_reach(
    weights: np.ndarray, offset: np.ndarray, row_map: RowMap, more: np.ndarray, length: float
) -> np.ndarray:
    """Return whether the score of each class is below that of one other class for all mapped rows.

    A row (x, t) has ``|(x, t)| <= b``, and also ``|x| <= c`` and ``0 <= t <= s``, so that its score
    ``w_a @ x + v_a t + o_a`` is above another class's by at most ``o_a - o_b`` and the smaller of
    ``b |(w_a - w_b, v_a - v_b)|`` and ``c |w_a - w_b| + s max(0, v_a - v_b)``. The further entries
    with weights `more` (c, k), if there are any, have at most the norm `length` together.
    """
    found = np.zeros(len(weights), dtype=bool)
    if row_map.bound == math.inf:
        return found  # rows may have any score
    for label, (own, start) in enumerate(zip(weights, offset, strict=True)):
        apart = own - weights  # one class at a time: all pairs would fill the memory
        reach = _largest_scores(apart, row_map)
        if more.size:
            reach = reach + length * np.linalg.norm(more[label] - more, axis=1)
        found[label] = np.any(start - offset + reach * (1 + 1e-9) < 0)
    return found


def _largest_scores(weights: np.ndarray, row_map: RowMap) -> np.ndarray:
    """Return bounds on ``w @ x + v t`` for weights (c, p + 1) and all rows that a map can give."""
    reach = row_map.bound * np.linalg.norm(weights, axis=1)
    if row_map.norm not in ("clip", "ball"):
        return reach
    longest = float(row_map.data_norm or 0.0) if row_map.norm == "clip" else 1.0
    entry = (row_map.bias or 0.0) * longest / float(row_map.data_norm or 1.0)
    own = longest * np.linalg.norm(weights[:, :-1], axis=1)
    return np.minimum(reach, own + entry * np.maximum(weights[:, -1], 0.0))


def _dominant(mean: np.ndarray, noise: float, n_features: int, row_map: RowMap) -> np.ndarray:
    """Return the columns that make up most of the squared length of rows by their released mean.

    These are at most two. The mean square of an entry is at least the square of its mean, so that a
    large mean proves it; small means prove nothing. `noise` is the standard deviation of the noise
    of an entry.
    """
    size = float(row_map.data_norm or 1.0) if row_map.norm == "clip" else 1.0
    held = (np.maximum(np.abs(mean[:n_features]) - 2 * noise, 0.0) / size) ** 2
    largest = np.argsort(-held)[:2]
    if n_features > 1 and held[largest[0]] >= auto.DOMINANT:
        return largest[:1]
    long = len(mean) > n_features and abs(mean[n_features]) <= auto.LONG_ROWS * size
    both = n_features >= auto.MANY_COLUMNS and held[largest].sum() >= auto.DOMINANT
    return largest if long and both else largest[:0]
