"""Private choice among public data sets: pure differential privacy at the price of one index.

Where to check the privacy claim: :meth:`ChoicePlan.run` is all of it. What a record contributes to
the score of a set is bounded by ``ScoreTotal`` in ``_core/statistics/score_cells.py``, the choice
is drawn in ``_core/release/mechanisms.py``, and the event is made by ``Budget.split`` in
``_core/accounting/budget.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import column_or_1d

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import FunctionPlan
from dpsubspace._core.ground.arrays import slices
from dpsubspace._core.public.gradient_spaces import FeatureSpace, GradientSpace
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.statistics.score_cells import ScoreTotal
from dpsubspace.exceptions import PrivacyWarning, warn

# Scores of sets ---------------------------------------------------------------------------------
# Scores that private records give to public sets: numbers in [0, 1], by method.

# Entries of pairs of rows that are compared at once (64 MiB).
_ENTRIES = 1 << 23

# Scaled entries are cut to this, so that products with weights stay in the range of float64.
_FARTHEST = 1e100


@dataclass(frozen=True)
class Scorer:
    """Numbers in [0, 1] that records, or pairs of them, contribute to each candidate."""

    # Records or pairs of records, with the share of each of `rows`. Each record is in at most one.
    units: Records
    # (n,): indices of the rows to score: one array for records, two for pairs.
    rows: tuple[np.ndarray, ...]
    # Function of indices of rows, one array or two, that returns numbers (k, n_candidates).
    score: Callable[..., np.ndarray]
    step: int = 4096  # Rows to score at once

    def total(self, n_candidates: int) -> ScoreTotal:
        """Sum over records or pairs; a null record removes its pair as well.

        Privacy: pairs share no record and are drawn without looking at any record. So one record
        can change only the number of its own pair, for each candidate.
        """
        units, weights = self.units, self.units.weights_numpy
        if units.index is None or weights is None:
            total = ScoreTotal(n_candidates, units)
            for some in slices(len(self.rows[0]), self.step):
                total.add(some, self._scores(some))
            return total
        brought = np.zeros((units.n, n_candidates))
        for some in slices(len(self.rows[0]), self.step):
            parts = np.nan_to_num(np.clip(self._scores(some), 0.0, 1.0))
            np.add.at(brought, units.index[some], parts * weights[some, None])
        total = ScoreTotal(n_candidates, n_moving=units.n)
        total.add(slice(None), brought)
        return total

    def _scores(self, some: slice) -> np.ndarray:
        return self.score(*(members[some] for members in self.rows))


def energy_scorer(
    sets: Mapping[Any, np.ndarray], X: Any, records: Records, space: GradientSpace, k: int
) -> Scorer:
    """Share of the energy of a record's gradient on the leading directions of each set."""
    spanned, counts = space.spanned([*sets.values()], k)
    _check_counts(sets, counts, k)

    def score(rows: np.ndarray) -> np.ndarray:
        return (spanned.embedded(X[rows]) ** 2).reshape(-1, len(sets), k).sum(axis=2)

    return Scorer(records, (np.arange(X.shape[0]),), score)


def centered_energy_scorer(
    sets: Mapping[Any, np.ndarray],
    X: Any,
    records: Records,
    module: Any,
    k: int,
    rng: np.random.Generator,
) -> Scorer:
    """Scorer like :func:`energy_scorer`, for differences of two records: a common mean cancels."""
    if module is not None:
        raise ValueError(
            "method='centered_energy' is for linear models: use method='energy' with a `module`."
        )
    if records.n < 2:
        raise ValueError(
            f"method='centered_energy' takes pairs of {records.unit}s, and there is one."
        )
    n_features = X.shape[1]
    spanned, counts = FeatureSpace(n_features).spanned([*sets.values()], k, centered=True)
    _check_counts(sets, counts, k)
    pairs, first, second = records.pairs(rng.permutation(records.n))

    def score(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return (spanned.apart(X[first], X[second]) ** 2).reshape(-1, len(sets), k).sum(axis=2)

    step = max(1, _ENTRIES // n_features)
    return Scorer(pairs, (first, second), score, step)


def _check_counts(sets: Mapping[Any, np.ndarray], counts: list[int], k: int) -> None:
    """Raise ValueError if gradients of a set span fewer directions than are used from each set."""
    for name, count in zip(sets, counts, strict=True):
        if count < k:
            raise ValueError(
                f"gradients of `candidates[{name!r}]` span {count} directions, and"
                f" `n_components`={k} are taken from each set: use fewer components, or pass more"
                " rows if there are more features than that."
            )


def validation_scorer(
    sets: Mapping[Any, np.ndarray], X: Any, y: np.ndarray, records: Records, y_public: Any
) -> Scorer:
    """Scorer by whether a model that was fitted to each set predicts the label of a record."""
    if not isinstance(y_public, Mapping) or y_public.keys() != sets.keys():
        raise ValueError(
            "method='validation' needs the labels of all candidates: pass `y_public` as a dict with"
            f" the names {list(sets)}."
        )
    models = {}
    for name, rows in sets.items():
        given = y_public[name] if isinstance(y_public[name], tuple) else (y_public[name],)
        labels = np.concatenate([column_or_1d(each) for each in given])
        if len(labels) != len(rows):
            raise ValueError(f"`y_public[{name!r}]` has {len(labels)} labels for {len(rows)} rows.")
        if "O" not in (labels.dtype.kind, y.dtype.kind) and _is_text(labels) != _is_text(y):
            raise ValueError(
                f"`y_public[{name!r}]` has labels of another kind than `y`, so that none could be"
                " equal: give both as text, or both as numbers."
            )
        # A solver that runs without warnings in every version of scipy.
        regression = LogisticRegression(solver="newton-cg", max_iter=1000)
        models[name] = make_pipeline(StandardScaler(), regression).fit(
            rows.astype(np.float64), labels
        )

    def score(rows: np.ndarray) -> np.ndarray:
        some = X[rows].toarray() if sparse.issparse(X) else X[rows]
        right = [_predicted(model, some) == y[rows] for model in models.values()]
        return np.stack(right, axis=1).astype(np.float64)

    return Scorer(records, (np.arange(len(y)),), score)


def _is_text(labels: np.ndarray) -> bool:
    return labels.dtype.kind in "US"


def _predicted(model: Pipeline, rows: np.ndarray) -> np.ndarray:
    """Labels by a scaler and a classifier, with entries clipped that scaling moves out of range.

    The classifier would refuse such entries, and whether one record is refused must not show. Each
    row has a product of its own, so that a label does not depend on how many rows are beside it.
    """
    scaled = np.clip(model[0].transform(rows.astype(np.float64)), -_FARTHEST, _FARTHEST)
    linear: Any = model[1]
    scores = np.matmul(scaled[:, None, :], linear.coef_.T)[:, 0, :] + linear.intercept_
    best = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
    return linear.classes_[best.astype(np.intp)]


# The choice -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChoicePlan(FunctionPlan):
    name: ClassVar[str] = "select_public"

    target: Target
    scorer: Scorer  # Scores of the sets by private records
    n_sets: int
    constants: tuple[float, ...]  # Public scores of the constants, as shares of the largest score
    of_sets: str  # Description of the sets, in words

    def assumed(self) -> tuple[str, ...]:
        return (self.of_sets,)

    def budget(self, n_samples: int) -> Budget:
        return Budget.split(self.target, {"choice": Part(1.0, kind="range")}, n_samples)

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        if not budget.private:
            warn(
                "epsilon=inf: this choice is not private. Publish neither it nor what is made with"
                " it.",
                PrivacyWarning,
                about="select_public without privacy",
            )

    def run(self, ready: Any, records: Records, releases: Releases) -> int:
        """Return the index of the choice: first the sets are numbered, then the constants."""
        scores = self.scorer.total(self.n_sets).bounded_sum(
            *(share * self.scorer.units.n for share in self.constants)
        )
        return releases.choice("choice", scores)
