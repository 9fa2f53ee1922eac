"""What private linear regressors share: ranges of targets, predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dpsubspace import _auto
from dpsubspace._accounting.budget import Sizes
from dpsubspace._accounting.guarantee import PrivacyGuarantee
from dpsubspace._accounting.legacy import LinearBudget
from dpsubspace._array import Array, as_like, row_norms, to_numpy
from dpsubspace._checks import check_auto, check_bounds, check_real
from dpsubspace._compat import nameless
from dpsubspace._estimators.linear_model import Bounded, LinearModel, Releases, Trained
from dpsubspace._gradients.losses import REGRESSOR_LOSSES
from dpsubspace._rows.inputs import check_rows, check_rows_and_targets
from dpsubspace._rows.maps import RowMap
from dpsubspace._rows.public import PublicRows, check_public_rows, check_public_values
from dpsubspace._statistics.counts import SMALLEST, noisy_range
from dpsubspace.exceptions import PrivacyWarning, warn

__all__ = ["LinearRegressor"]


class LinearRegressor(MultiOutputMixin, RegressorMixin, LinearModel):
    """What the private linear regressors share."""

    _losses = REGRESSOR_LOSSES

    @nameless
    def __init__(
        self,
        *,
        epsilon: float | None = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        loss: str = "squared_error",
        alpha: float = 1e-6,
        data_norm: float | None = None,
        target_bounds: tuple[Any, Any] | None = None,
        bounds_share: float | str = "auto",
        n_iter: int | str = "auto",
        learning_rate: float | str = "auto",
        momentum: float | str = "auto",
        average: bool = True,
        clip_norm: float | str = "auto",
        batch_size: int | None = None,
        fit_intercept: bool = True,
        intercept_scaling: float = 0.5,
        microbatch_size: int | None = None,
        device: Any = "cpu",
        noise_multiplier: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.loss = loss
        self.alpha = alpha
        self.data_norm = data_norm
        self.target_bounds = target_bounds
        self.bounds_share = bounds_share
        self.n_iter = n_iter
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.average = average
        self.clip_norm = clip_norm
        self.batch_size = batch_size
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.microbatch_size = microbatch_size
        self.device = device
        self.noise_multiplier = noise_multiplier
        self.random_state = random_state

    # Public surface -------------------------------------------------------------------------

    @nameless
    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets of rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions, which may lie outside ``target_bounds_``.
        """
        check_is_fitted(self, "coef_")
        X = check_rows(self, X, reset=False)
        scores = X @ self.coef_.T
        if not self.bounds_found_["data_norm"]:
            # Weights were learned from rows of this norm: on longer ones they are good for nothing.
            shrink = self.data_norm_ / np.maximum(to_numpy(row_norms(X)), self.data_norm_)
            scores = scores * (shrink if scores.ndim == 1 else shrink[:, None])
        return scores + self.intercept_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.regressor_tags.poor_score = True  # 200 rows and epsilon 1 in scikit-learn's checks
        return tags

    # The fit --------------------------------------------------------------------------------

    def _fit(
        self,
        X: Any,
        y: Any,
        present: np.ndarray | None = None,
        *,
        X_public: Any = None,
        y_public: Any = None,
    ):
        """Fit with the records where `present` is False as null records.

        Only tests and audits pass `present`: it makes neighbours under ``"zero_out"``.
        """
        self._check_parameters()
        X, y = check_rows_and_targets(self, X, y)
        targets = y[:, None] if y.ndim == 1 else y
        if self.target_bounds is not None:
            check_bounds("target_bounds", self.target_bounds, targets.shape[1])
        sets = check_public_rows(self, X, X_public)
        values = check_public_values(y_public, X_public, sets, targets.shape[1])
        public = self._public(sets, values)
        assumed = [f"number of targets ({targets.shape[1]})"]
        assumed += [] if self.data_norm is None else [f"bound on row norms ({self.data_norm:g})"]
        assumed += [] if self.target_bounds is None else ["range of the targets"]
        assumed += [] if public is None else [public.statement]
        trained = self._train(X, targets, targets.shape[1], tuple(assumed), present, public)
        self.target_bounds_ = trained.bounded.target_bounds
        self.n_iter_ = trained.n_iter
        self.learning_rate_ = trained.learning_rate
        self.clip_norm_ = trained.clip_norm
        self.bounds_found_ = dict(trained.bounded.found)
        self._keep(trained, single=y.ndim == 1)  # last: now it can predict
        self._tell(trained)
        return self

    def _keep(self, trained: Trained, *, single: bool) -> None:
        """Store what predictions need."""
        row_map, (low, high) = trained.bounded.row_map, trained.bounded.target_bounds
        data_norm = float(row_map.data_norm or 0.0)  # never 0: given or released
        half, middle = (high - low) / 2, (high + low) / 2
        weights, constant = trained.weights, np.zeros(len(half))
        if trained.shift is not None:
            weights, constant = trained.shift.undo(weights)
            self.mean_ = trained.shift.mean
        coef = (weights[: self.n_features_in_] * (half / data_norm)).T
        if row_map.bias is not None:
            constant = constant + row_map.bias / data_norm * weights[-1]
        intercept = middle + half * constant
        self.data_norm_ = data_norm
        self.intercept_ = float(intercept[0]) if single else intercept
        self.coef_ = coef[0].copy() if single else np.ascontiguousarray(coef)

    def _row_bound(self) -> float:
        return math.hypot(1.0, self.intercept_scaling if self.fit_intercept else 0.0)

    def _bound(
        self, X: Array, targets: Array, releases: Releases, public: PublicRows | None
    ) -> Bounded:
        """Bounds from public knowledge or noisy counts, and what is scaled by them."""
        values = to_numpy(targets)
        data_norm, bounds = self.data_norm, self.target_bounds
        norm_found, targets_found = True, np.ones(values.shape[1], bool)
        if data_norm is None:
            *_, largest, norm_found = self._range(to_numpy(row_norms(X)), "norms", releases)
            # At least one cell above 0, where nearly all rows are zero.
            data_norm = max(largest, SMALLEST)
        if bounds is None:
            names = (f"target {i}" for i in range(values.shape[1]))
            columns = zip(values.T, names, strict=True)
            *bounds, targets_found = zip(
                *(self._range(*column, releases) for column in columns), strict=True
            )
        found = {"data_norm": norm_found, "target_bounds": np.array(targets_found)}
        low, high = (np.broadcast_to(np.asarray(b, float), values.shape[1:]) for b in bounds)
        scaled = _scaled(values, low, high)
        bias = self.intercept_scaling * data_norm if self.fit_intercept else None
        row_map = RowMap(norm="ball", data_norm=float(data_norm), bias=bias)
        like = X.data if sparse.issparse(X) else X
        return Bounded(row_map, as_like(scaled, like), (low.copy(), high.copy()), found)

    def _public_targets(self, targets: np.ndarray, bounded: Bounded) -> np.ndarray:
        return _scaled(targets, *bounded.target_bounds)

    def _range(
        self, values: np.ndarray, name: str, releases: Releases
    ) -> tuple[float, float, bool]:
        return noisy_range(values, releases, "bounds", stream=name)

    # Parameters -----------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.data_norm is not None:
            check_real("data_norm", self.data_norm, low=1e-50, high=1e50)
        check_auto("bounds_share", self.bounds_share, low=0, high=1)
        if self.target_bounds is not None:
            check_bounds("target_bounds", self.target_bounds)

    def _bearable(self) -> float:
        return _auto.HIDING_TARGETS

    def _warn(self, guarantee: PrivacyGuarantee, budget: LinearBudget, sizes: Sizes) -> None:
        n_samples = sizes.known("n_samples", "the warning")
        noise = budget.before.get("bounds", 0.0)
        noise *= math.sqrt(0.5) if guarantee.neighboring_relation == "replace_one" else 1.0
        if n_samples >= _auto.ROWS_FOR_BOUNDS * noise:
            super()._warn(guarantee, budget, sizes)
            return
        price = f"epsilon={guarantee.epsilon:.3g}"
        lacking = {}
        if self.target_bounds is None and not sizes.labelled:
            lacking["`target_bounds`"] = "the range of the targets"
        if self.data_norm is None and not sizes.n_public:
            lacking["`data_norm`"] = "the length of the rows"
        warn(
            f"the noise of a fit with {price} and {n_samples} rows will probably hide"
            f" {' and '.join(lacking.values())}: expect a model that is no better than a constant,"
            f" or far worse. Give {' and '.join(lacking)} from public knowledge, or use more rows"
            " or a larger epsilon.",
            PrivacyWarning,
            about=("bounds", type(self).__name__, price),
        )

    def _tell(self, trained: Trained) -> None:
        super()._tell(trained)
        # Whether a bound was found is read off the noisy counts: a released number.
        found = trained.bounded.found
        missing = np.flatnonzero(~found["target_bounds"])
        if len(missing):
            which = "the targets"
            if len(found["target_bounds"]) > 1:
                which = f"target{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            warn(
                f"the noise of the counts has hidden the range of {which}, and -1 to 1 was taken:"
                " predictions are of no use unless the targets happen to lie there. Give"
                " `target_bounds` from public knowledge, or use more rows or a larger epsilon.",
                PrivacyWarning,
                about=("target_bounds", type(self).__name__, self.epsilon),
            )
        if not found["data_norm"]:
            warn(
                "the noise of the counts has hidden how long the rows are, and 1 was taken: longer"
                " rows are shrunk to that, and the model may be no better than a constant. Give"
                " `data_norm` from public knowledge (1 behind a BoundedScaler), or use more rows"
                " or a larger epsilon.",
                PrivacyWarning,
                about=("data_norm", type(self).__name__, self.epsilon),
            )

    def _before(self, sizes: Sizes) -> Mapping[str, tuple[float, int]]:
        if self.data_norm is not None and self.target_bounds is not None:
            return {}
        n_targets = 0
        if self.target_bounds is None:
            n_targets = sizes.known("n_outputs", "the number of target ranges to release")
        share = 0.1 if self.bounds_share == "auto" else float(self.bounds_share)
        return {"bounds": (share, n_targets + (self.data_norm is None))}


def _scaled(targets: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Targets clipped to a range, on [-1, 1]."""
    return 2 * (np.clip(targets, low, high) - low) / (high - low) - 1
