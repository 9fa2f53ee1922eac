"""Canaries: records to plant in the data of an audit, and numbers that show if they took part.

Design note. An audit guesses whether a record took part from the releases of a fit. How well it
can guess depends on the record, on the other rows, and on the released numbers that it uses. A
:class:`Canary` defines all three. :data:`DESIGNS` has canaries by name, and an estimator names its
design in ``_canary``: an estimator similar to another one needs no line here.

A guarantee holds for every table. So a design may replace the given rows by others: a canary that
tips the balance between two heaps of equal size is detected far better than
one in the middle of a crowd.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_regressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.accounting.events import mechanisms_of
from dpsubspace._core.fits.call import private_functions
from dpsubspace._core.fits.composites import PRIVATE, opened
from dpsubspace._core.fits.estimator import PrivateEstimator
from dpsubspace._core.ground.checks import unwrapped
from dpsubspace._core.plans.quantile import BETWEEN_BOUNDS, WITHOUT_BOUNDS
from dpsubspace._core.rows.inputs import checked_by
from dpsubspace._core.rows.records import NullRecords
from dpsubspace._core.statistics.intervals import LEAST
from dpsubspace._core.statistics.quantiles import SEARCH, rank_noise, turns_up
from dpsubspace._names import PLACES, imported
from dpsubspace.exceptions import PrivacyError

# Default values of heaps of rows: far apart, and in range of every release.
_FAR = 2.0**39

# Length of a canary that is divided by its own norm, whatever the rows' units: next to it the bias
# entry is almost nothing.
_LONG = 5e5


# Subjects of audits ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    what: Any  # The estimator or function that is audited
    parameters: Mapping[str, Any]  # Parameters by name
    # Further arguments of ``fit`` beside rows and targets; empty for a function.
    fit_params: Mapping[str, Any]
    design: Canary  # Design of its canaries

    @property
    def name(self) -> str:
        return self.what.__name__ if _is_function(self.what) else type(self.what).__name__

    @property
    def relation(self) -> str:
        return self.parameters["neighboring_relation"]

    def widened(self, n_features: int) -> Subject:
        given, public = dict(self.fit_params), self.fit_params.get("X_public")
        if public is not None:
            sets = public if isinstance(public, tuple) else (public,)
            wide = tuple(np.pad(_dense(rows), ((0, 0), (0, n_features))) for rows in sets)
            given["X_public"] = wide if isinstance(public, tuple) else wide[0]
        return replace(self, fit_params=given)

    def fitted(self, planted: Planted, seed: Any) -> Any:
        given = {"X": planted.X, "groups": planted.groups}
        if self.design.targets is not None and planted.y is not None:
            given["y"] = planted.y
        if _is_function(self.what):
            if "frame" in inspect.signature(self.what).parameters:
                given["frame"] = given.pop("X")
            return self.what(**given, **self.parameters, random_state=seed)
        model: Any = clone(self.what)
        model._set_whole(random_state=seed)
        return model.fit(**given, **self.fit_params)


def _is_function(what: Any) -> bool:
    return inspect.isfunction(what)


def subject_of(estimator: Any, y: Any, fit_params: Mapping[str, Any] | None) -> Subject:
    given = dict(fit_params or {})
    if "groups" in given:
        raise ValueError("`fit_params` has 'groups': pass them as `groups`.")
    design = design_of(estimator)
    if design is not None and _is_function(estimator):
        allowed = inspect.signature(estimator).parameters
        if unknown := [name for name in given if name not in allowed]:
            raise ValueError(f"`fit_params` has {unknown[0]!r}, which no parameter is called.")
        parameters = {name: p.default for name, p in allowed.items()} | given
        left_out = ["X", "frame", "random_state", "groups"]
        left_out += [] if design.targets is None else ["y"]
        parameters = {name: value for name, value in parameters.items() if name not in left_out}
        missing = [name for name, value in parameters.items() if value is inspect.Parameter.empty]
        if missing:
            raise ValueError(f"`fit_params` lacks {missing[0]!r}, which the function needs.")
        subject = Subject(estimator, parameters, {}, design)
    else:
        if isinstance(estimator, type):
            raise PrivacyError(
                f"{estimator.__name__} is a class: pass an instance, {estimator.__name__}()."
            )
        if design is None:
            raise PrivacyError(_refusal(estimator))
        subject = Subject(estimator, estimator.get_params(deep=False), given, design)
    if subject.design.targets is not None and np.ndim(y) != 1:
        raise ValueError(
            f"{subject.name} is audited with one column of targets: pass `y` of shape (n_samples,)."
        )
    if subject.parameters["epsilon"] == math.inf:
        raise PrivacyError("a fit with epsilon=inf claims nothing that an audit could refute.")
    return subject


def _refusal(estimator: Any) -> str:
    name = getattr(estimator, "__name__", type(estimator).__name__)
    below = (each for part in opened(estimator).inside for each in part.walk())
    inside = {type(each.model).__name__ for each in below if each.kind == PRIVATE}
    if hasattr(estimator, "steps"):
        return (
            f"{name} cannot be audited as a whole: pass one private step of it, and as `X` rows as"
            " the steps before it give them. What several steps cost together follows from their"
            " events, which a PrivacyLedger adds up."
        )
    if inside:
        return (
            f"{name} cannot be audited: pass the private estimator inside of it,"
            f" {' or '.join(sorted(inside))}."
        )
    known = sorted({*_auditable(), *private_functions()})
    return (
        f"{name} cannot be audited, since nothing is known of its canaries. These can:"
        f" {', '.join(known)}."
    )


def _auditable() -> Iterator[str]:
    """Yield names of public estimators that can be audited; this imports all estimators."""
    for name in PLACES:
        kind = imported(name)
        if isinstance(kind, type) and issubclass(kind, PrivateEstimator) and kind._canary:
            yield name


# Planted canaries -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    X: np.ndarray  # (n_rows, n_features): rows; the rows of canaries come last
    y: Any  # (n_rows,): targets
    groups: Any  # (n_rows,): the person of each row
    # (n_rows,): number of the canary that a row belongs to, -1 for the other rows.
    index: np.ndarray
    # (n_canaries,): class of a canary as a number, or the sign of its target.
    carried: Any = None
    other: Planted | None = None  # The same rows with another record in place of each canary

    @property
    def row(self) -> np.ndarray:
        return self.X[np.flatnonzero(self.index == 0)[:1]]

    def world(self, coins: np.ndarray) -> Planted:
        heads = np.append(coins, True)[self.index]
        if self.other is None:
            return replace(self, groups=NullRecords(self.groups, heads))
        X = np.where(heads[:, None], self.X, self.other.X)
        y = None if self.y is None else np.where(heads, self.y, self.other.y)
        return replace(self, X=X, y=y)


@dataclass(frozen=True)
class Canary:
    # From the fitted model, the planted rows and the subject: released numbers that show whether
    # the only canary took part. The attack learns which of them show it, and how.
    seen: Callable[[Any, Planted, Subject], np.ndarray]
    # Kind of the targets, "classes" or "numbers", if there are any.
    targets: str | None = None
    # From the rows and the subject: rows to use instead, the row of a canary, and the row that
    # replaces it under ``"replace_one"``. None keeps the rows, and a canary lies along the
    # direction in which they vary least.
    rows: Callable[[np.ndarray, Subject], tuple[np.ndarray, np.ndarray, np.ndarray]] | None = None
    # From the fitted model and the planted rows: one number for each of many canaries that have a
    # feature of their own, larger if the canary took part. None if that shows nothing.
    own: Callable[[Any, Planted], np.ndarray] | None = None
    # The same for canaries that are rows of the table themselves.
    traced: Callable[[Any, Planted], np.ndarray] | None = None
    instead: float = -1.0  # The row that replaces a canary is this times it, unless `rows` is given

    def planted(self, X: Any, y: Any, groups: Any, subject: Subject) -> Planted:
        X, row, instead = (self._near if self.rows is None else self.rows)(_dense(X), subject)
        n_own = 1 if groups is None else 3
        targets = None
        if self.targets is not None and y is not None:
            targets = np.append(y, np.repeat(self._ends(y, subject)[-1], n_own))
        if groups is not None:
            groups = np.append(groups, np.repeat(_new_name(groups), n_own))
        index = np.append(np.full(len(X), -1), np.zeros(n_own, dtype=int))
        one, other = (
            Planted(np.vstack([X, np.tile(end, (n_own, 1))]), targets, groups, index)
            for end in (row, instead)
        )
        return replace(one, other=None if subject.relation == "zero_out" else other)

    def many(self, X: Any, y: Any, subject: Subject, n_canaries: int) -> Planted:
        """Return many canaries below the rows, each along a feature of its own.

        They take turns in their classes or in the ends of the range of targets, so that no class
        becomes easier to predict and every canary keeps its pull to the end.
        """
        X = _dense(X)
        length = _LONG if subject.parameters.get("row_norm") == "l2" else _longest(X)
        for name in ("row_norm", "data_norm"):
            if isinstance(subject.parameters.get(name), Real):
                length = float(subject.parameters[name])
        canaries = np.hstack([np.zeros((n_canaries, X.shape[1])), length * np.eye(n_canaries)])
        rows = np.vstack([np.pad(X, ((0, 0), (0, n_canaries))), canaries])
        index = np.append(np.full(len(X), -1), np.arange(n_canaries))
        planted = Planted(rows, None, None, index)
        if self.targets is not None:
            ends = self._ends(y, subject)
            carried = np.arange(n_canaries) % len(ends)
            planted = replace(planted, y=np.append(y, ends[carried]), carried=carried)
        if subject.relation == "zero_out":
            return planted
        instead = np.where(index[:, None] >= 0, self.instead * rows, rows)
        return replace(planted, other=replace(planted, X=instead))

    def themselves(self, X: Any, y: Any, subject: Subject, n_canaries: int) -> Planted:
        """Return the rows, the last of which are the canaries.

        A canary is replaced by the same row with its target mirrored in the range.
        """
        X, y = _dense(X), np.asarray(y, dtype=float)
        index = np.maximum(np.arange(len(X)) - (len(X) - n_canaries), -1)
        planted = Planted(X, y, None, index)
        if subject.relation == "zero_out":
            return planted
        mirrored = self._ends(y, subject).sum() - y
        return replace(planted, other=replace(planted, y=np.where(index >= 0, mirrored, y)))

    def _near(self, X: np.ndarray, _: Subject) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows, a canary, and its replacement.

        The canary is as long as the longest row, in the direction in which rows vary least.
        """
        across = X.shape[1] > len(X)
        row = np.linalg.svd(X, full_matrices=across)[2][-1] * _longest(X)
        return X, row, self.instead * row

    def _ends(self, y: Any, subject: Subject) -> np.ndarray:
        if self.targets == "classes":
            classes = subject.parameters.get("classes")
            return np.unique(y if classes is None else classes)
        bounds = subject.parameters.get("target_bounds")
        low, high = (y, y) if bounds is None else bounds
        return np.array([np.min(low), np.max(high)])


def _dense(X: Any) -> np.ndarray:
    options: dict[str, Any] = {"accept_sparse": True, "ensure_2d": False, "dtype": np.float64}
    rows: Any = checked_by(check_array, unwrapped("X", X), input_name="X", **options)
    rows = rows.toarray() if sparse.issparse(rows) else rows
    return rows.reshape(len(rows), -1)


def _new_name(groups: Any) -> Any:
    names = np.asarray(groups)
    return names.max() + 1 if names.dtype.kind in "iuf" else "the canary"


def _longest(X: np.ndarray) -> float:
    return float(np.linalg.norm(X, axis=1).max()) or 1.0


# Rows whose balance a canary tips ----------------------------------------------------------------

_Rows = tuple[np.ndarray, np.ndarray, np.ndarray]


def _two_lines(X: np.ndarray, subject: Subject) -> _Rows:
    """Return rows half along one direction and half along another, which the canary extends.

    The released spread of all rows together cancels in the comparison of the two directions.
    """
    norm = subject.parameters.get("data_norm")
    row, other = (
        _longest(X) * np.eye(2, X.shape[1]) if norm is None else norm * np.eye(2, X.shape[1])
    )
    place = np.arange(len(X))
    signs = np.where(place // 2 % 2, -1.0, 1.0)[:, None]
    return signs * np.where(place[:, None] % 2, row, other) / 2, row, other


def _at_an_end(X: np.ndarray, subject: Subject) -> _Rows:
    """Return the rows themselves; the only entry of a canary is at the end of the public range."""
    bounds = subject.parameters.get("bounds")
    row = np.zeros(X.shape[1])
    row[0] = _longest(X) if bounds is None else np.ravel(bounds[1])[0]
    return X, row, -row


def _heaps(n: int, counts: np.ndarray, low: Any, high: Any) -> np.ndarray:
    """Return rows in heaps from `low` to `high`; `counts` are the cumulative sizes of the heaps."""
    place = np.searchsorted(counts, np.arange(n), side="right")[:, None]
    return low + (np.asarray(high) - low) * place / len(counts)


def _around_quantiles(X: np.ndarray, subject: Subject) -> _Rows:
    """Return rows with exactly as many below each quantile as its level needs.

    The canary is one more.
    """
    given, n, d = subject.parameters, len(X) + 1, X.shape[1]
    levels = np.unique(given["level"])
    target = Target(given["epsilon"], given["delta"], given["neighboring_relation"])
    multiplier = target.multiplier(n)
    stages = WITHOUT_BOUNDS if given["bounds"] is None else BETWEEN_BOUNDS
    # In place of a rank that noise hides, the search uses the nearest rank that it does not hide.
    noise = rank_noise(multiplier * math.sqrt(stages), d, len(levels), subject.relation)
    margin = min(n / 2, 2 * noise)
    ends = (-_FAR, _FAR) if given["bounds"] is None else given["bounds"]
    low, high = (np.broadcast_to(np.asarray(end, dtype=float), d) for end in ends)
    counts = np.unique(np.floor(np.clip(levels * n, margin, n - margin) - 0.25))
    return _heaps(len(X), counts, low, high), low.copy(), high.copy()


def _around_ranges(X: np.ndarray, subject: Subject) -> _Rows:
    """Return rows with a far heap as large as noise can just hide; the canary is one row more."""
    (n, d), level = X.shape, subject.parameters.get("level", "auto")
    (ranges, *_) = mechanisms_of(subject.what.privacy_event(n + 1, d))
    halved = 1.0 if subject.relation == "zero_out" else math.sqrt(0.5)
    if ranges.count != SEARCH:
        # All cells of a column are counted, and distributions that agree with the counts are kept.
        near = 1.0
        size = LEAST * ranges.value * math.sqrt(d) * halved
    else:  # a search, which goes on between two heaps
        near, spread = -_FAR, rank_noise(ranges.value, d, 2, subject.relation)
        size = max((0.01 if level == "auto" else level) * n, 2 * spread)
    far = np.arange(n)[:, None] < min(round(size), n // 2)
    return np.where(far, _FAR, near) * np.ones(d), np.full(d, _FAR), np.full(d, near)


def _around_estimated(X: np.ndarray, subject: Subject) -> _Rows:
    """Return rows as `_around_ranges`, with two near heaps: a range of one value is refused."""
    rows, row, instead = _around_ranges(X, subject)
    return (
        np.where((np.arange(len(rows)) % 2 == 0)[:, None] & (rows < 0), rows / 2, rows),
        row,
        instead,
    )


def _between_sets(X: np.ndarray, subject: Subject) -> _Rows:
    """Return rows that favour no public set; the canary is the leading direction of the first."""
    sets = subject.parameters["candidates"].values()
    sets = [each[0] if isinstance(each, tuple) else each for each in sets]
    first, last = (np.linalg.svd(_dense(each))[2][0] for each in (sets[0], sets[-1]))
    return np.zeros_like(X), first, last


def _off_directions(X: np.ndarray, subject: Subject) -> _Rows:
    """Return rows that lie off all public directions; the canary is the first direction."""
    public = subject.parameters["X_public"]
    public = (
        np.concatenate([_dense(rows) for rows in public]) if isinstance(public, tuple) else public
    )
    row = np.linalg.svd(_dense(public))[2][0]
    return np.zeros_like(X), row, np.zeros_like(row)


def _one_heap(X: np.ndarray, _: Subject) -> _Rows:
    """Return rows that are all equal; the canary is opposite, and as far from the origin."""
    row = np.eye(1, X.shape[1])[0] * _longest(X)
    return np.tile(row, (len(X), 1)), -row, row


# Released numbers of a fit --------------------------------------------------------------------


def _numbers(fitted: Any, *names: str) -> list[np.ndarray]:
    found = (getattr(fitted, name) for name in names if hasattr(fitted, name))
    return [np.ravel(np.asarray(each, dtype=float)) for each in found]


def _of_linear(fitted: Any, planted: Planted, _: Subject) -> np.ndarray:
    says = fitted.decision_function if hasattr(fitted, "decision_function") else fitted.predict
    weights = _numbers(fitted, "coef_", "intercept_", "mean_")
    return np.concatenate([np.ravel(says(planted.row)), *weights])


def _of_tabular(fitted: Any, planted: Planted, _: Subject) -> np.ndarray:
    says = fitted.predict if is_regressor(fitted) else fitted.decision_function
    weights = _numbers(fitted[-1], "coef_", "intercept_", "mean_")
    return np.concatenate([np.ravel(says(planted.row)), *weights])


def _of_module(fitted: Any, planted: Planted, _: Subject) -> np.ndarray:
    says = fitted.decision_function if hasattr(fitted, "decision_function") else fitted.predict
    return np.ravel(says(np.vstack([planted.row, -planted.row, 0 * planted.row, planted.X[:8]])))


def _of_shared(fitted: Any, planted: Planted, _: Subject) -> np.ndarray:
    shared = fitted.public_part()
    along = np.sum((shared.components_ @ planted.row.T) ** 2)  # how many there are may vary
    weights = _numbers(shared, "coef_", "intercept_")
    ask = getattr(shared, "decision_function", shared.predict)
    return np.concatenate([ask(planted.row), [along], *weights])


def _of_components(fitted: Any, planted: Planted, _: Subject) -> np.ndarray:
    along = fitted.components_[:, :2]
    of_both = fitted.explained_variance_ @ along**2
    released = _numbers(fitted, "explained_variance_", "noise_variance_", "mean_", "data_norm_")
    rest = [some[:2] for some in released]
    return np.concatenate([of_both, np.log(of_both + 1e-300), *rest])


def _of_directions(fitted: Any, planted: Planted, _: Subject) -> np.ndarray:
    both = fitted.transform(np.eye(2, planted.X.shape[1])) @ fitted.energies_
    return np.concatenate([both, np.log(both + 1e-300), [fitted.span_energy_]])


def _of_ranges(fitted: Any, *_: Any) -> np.ndarray:
    """Return how often searches went up, and sizes, by end; and how many ends reach the heap."""
    if hasattr(fitted, "ranges_"):
        ends = np.array([*fitted.ranges_.values()]).T
    else:
        ends = np.stack([fitted.data_min_, fitted.data_max_])
    far = np.sum(ends >= _FAR / 2)
    sizes = np.sum(np.sign(ends) * np.log2(1 + np.abs(ends)), axis=1)
    return np.concatenate([turns_up(ends, SEARCH).sum(axis=1), sizes, [far]]).astype(float)


def _of_quantiles(fitted: Any, planted: Planted, subject: Subject) -> np.ndarray:
    """Return how often searches went up, by level."""
    d = planted.X.shape[1]
    found, bounds = np.reshape(fitted.value, (-1, d)), subject.parameters["bounds"]
    if bounds is None:
        return turns_up(found, WITHOUT_BOUNDS).sum(axis=1).astype(float)
    low, high = (np.broadcast_to(np.asarray(end, dtype=float), d) for end in bounds)
    ups = turns_up(found, BETWEEN_BOUNDS, bounds=(low, high))
    return ups.sum(axis=1).astype(float)


def _of_mean(fitted: Any, planted: Planted, _: Subject) -> np.ndarray:
    value = np.ravel(fitted.value)
    return np.append(value, planted.row[0] @ value)


def _of_errors(fitted: Any, *_: Any) -> np.ndarray:
    return fitted.value.error


def _of_spread(fitted: Any, *_: Any) -> np.ndarray:
    return np.array(fitted.value)


def _of_covariance(fitted: Any, planted: Planted, _: Subject) -> np.ndarray:
    row = planted.row[0]
    return np.append(np.diag(fitted.value), row @ fitted.value @ row)


def _of_held_out(fitted: Any, *_: Any) -> np.ndarray:
    names = ("slope_", "intercept_", "threshold_", "half_width_")
    return np.concatenate(_numbers(fitted, *names))


def _of_score(fitted: Any, *_: Any) -> np.ndarray:
    return np.ravel(np.asarray(fitted.value, dtype=float))


def _of_counts(fitted: Any, *_: Any) -> np.ndarray:
    return np.ravel(fitted.noisy)


def _of_summary(fitted: Any, *_: Any) -> np.ndarray:
    return np.array([entry.value for entry in fitted.entries])


def _of_coefficients(fitted: Any, *_: Any) -> np.ndarray:
    """Return estimates and the equations behind them, which show more if there is little noise."""
    equations = fitted.released[0]
    slopes = equations.slope[np.triu_indices(len(equations.score))]
    return np.concatenate([fitted.released.estimate, equations.score, slopes])


def _of_choice(fitted: Any, _: Planted, subject: Subject) -> np.ndarray:
    return np.array([fitted.value == next(iter(subject.parameters["candidates"]))], dtype=float)


# Released numbers of canaries with features of their own ------------------------------------------


def _own_weights(fitted: Any, planted: Planted) -> np.ndarray:
    """Return the weight of each canary's feature, in the direction that the canary pulls it."""
    n_canaries, carried = len(planted.carried), planted.carried
    weights = np.atleast_2d(fitted.coef_)[:, -n_canaries:]
    if hasattr(fitted, "mean_"):
        # The noise of the mean shifts every row, and so changes each weight in proportion to the
        # noise. The mean is released, so an attacker can remove this change.
        means = fitted.mean_[fitted.n_features_in_ - n_canaries : fitted.n_features_in_]
        design = np.column_stack([np.ones(n_canaries), means])
        weights = weights - (design @ np.linalg.lstsq(design, weights.T, rcond=None)[0]).T
    if len(weights) == 1:
        return weights[0] * (2 * carried - 1)
    return weights[carried, np.arange(n_canaries)]


def _own_entries(fitted: Any, planted: Planted) -> np.ndarray:
    return np.ravel(fitted.value)[-(planted.index.max() + 1) :]


def _own_variances(fitted: Any, planted: Planted) -> np.ndarray:
    return np.diag(fitted.value)[-(planted.index.max() + 1) :]


# Released numbers of the rows themselves ---------------------------------------------------------

# Penalties of the model without privacy that replaces the true weights, for columns in units of
# their deviations: from almost no penalty to one that leaves only the mean.
_PENALTIES = np.logspace(-2, 5, 15)


def _traces(fitted: Any, planted: Planted) -> np.ndarray:
    """Tracing statistic of linear regression, ``(y - b'x) (w - b)'x`` (Cai, Wang, Zhang, 2021).

    It is the product of the gradient of a row at the true weights b with what was learned beyond
    them, w - b: 0 in the mean over rows that took no part, and above 0 over those that took part.
    The lower bound of Thaker, Setlur, Wu and Smith (2024, section 4) rests on it.

    In place of ``b'x`` this uses the prediction of ridge regression on the other rows. Noise makes
    fits shrink, so that ``w'x`` is compared with the nearest multiple of this prediction. Half of
    the mean of a row that took part is subtracted, since it is larger for longer gradients.
    """
    X, y = StandardScaler().fit_transform(planted.X), planted.y
    expected = np.asarray(cross_val_predict(RidgeCV(_PENALTIES), X, y), dtype=float)
    pulls = y - (expected if planted.other is None else planted.other.y)
    found, known = fitted.predict(planted.X), np.column_stack([np.ones(len(y)), expected])
    beyond = found - known @ np.linalg.lstsq(known, found, rcond=None)[0]
    canaries = planted.index >= 0
    shown = (pulls * beyond)[canaries]
    usual = (pulls**2 * np.sum(X**2, axis=1))[canaries]
    return shown - usual * (usual @ shown) / max(float(usual @ usual), 1e-300)


# The canaries of everything that can be audited: by `_canary` for estimators, and by name for
# functions.
DESIGNS = {
    "linear labels": Canary(_of_linear, "classes", own=_own_weights),
    "linear numbers": Canary(_of_linear, "numbers", own=_own_weights, traced=_traces),
    "regression": Canary(_of_linear, "numbers", rows=_at_an_end, traced=_traces),
    "shared model": Canary(_of_shared, "numbers", rows=_at_an_end),
    "shared logistic model": Canary(_of_shared, "classes", rows=_at_an_end),
    "module labels": Canary(_of_module, "classes"),
    "module numbers": Canary(_of_module, "numbers"),
    "ranges": Canary(_of_ranges, rows=_around_ranges),
    "estimated ranges": Canary(_of_ranges, rows=_around_estimated),
    "table": Canary(_of_tabular, "classes"),
    "components": Canary(_of_components, rows=_two_lines),
    "directions": Canary(_of_directions, rows=_two_lines),
    "held-out labels": Canary(_of_held_out, "classes"),
    "held-out numbers": Canary(_of_held_out, "numbers"),
    "private_mean": Canary(_of_mean, own=_own_entries),
    "private_quantile": Canary(_of_quantiles, rows=_around_quantiles),
    "private_covariance": Canary(_of_covariance, own=_own_variances, instead=0.0),
    "private_projection_error": Canary(_of_errors, rows=_off_directions),
    "private_spread": Canary(_of_spread, rows=_one_heap),
    "private_score": Canary(_of_score, "classes"),
    "private_score_difference": Canary(_of_score, "classes"),
    "private_coefficients": Canary(_of_coefficients),
    "private_counts": Canary(_of_counts),
    "private_summary": Canary(_of_summary),
    "select_public": Canary(_of_choice, rows=_between_sets),
}


def design_of(what: Any) -> Canary | None:
    """Return the canaries of an estimator or a function; None if none are known."""
    if _is_function(what):
        known = private_functions().get(what.__name__)
        return DESIGNS[what.__name__] if what is known else None
    name = what._canary if isinstance(what, PrivateEstimator) else None
    return None if name is None else DESIGNS[name]
