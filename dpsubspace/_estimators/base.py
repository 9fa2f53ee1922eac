"""What every private estimator does about its cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.base import BaseEstimator

from dpsubspace._accounting.budget import Budget, Target
from dpsubspace._accounting.guarantee import PrivacyGuarantee, warn_about_delta
from dpsubspace._accounting.permission import about_to_release
from dpsubspace._release.mechanisms import check_lattice

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PrivateEstimator", "guarantee_of"]


def guarantee_of(
    budget: Budget,
    *,
    secure: bool,
    n_samples: int,
    n_features: int,
    public: tuple[str, ...],
    unit: str = "row",
) -> PrivacyGuarantee:
    """Statement about what `budget` will release, with a warning where its delta is too large.

    The last thing before releases is to spend it; ValueError where there are too many records
    for so little noise, before that.
    """
    if budget.multipliers and budget.private:
        check_lattice(n_samples, *budget.multipliers)
    guarantee = budget.target.guarantee(
        budget.event,
        secure=secure,
        n_samples=n_samples,
        n_features=n_features,
        public=public,
        unit=unit,
    )
    if budget.private:
        warn_about_delta(guarantee.delta, n_samples)
    return guarantee


class PrivateEstimator(BaseEstimator):
    """Estimators whose fit has a cost, stored in ``privacy_`` just before it is spent."""

    privacy_unit = "row"

    # Parameters that every subclass has; they store them in their own __init__.
    epsilon: float | None
    delta: float | str
    neighboring_relation: str

    @property
    def _repr_html_(self) -> Callable[[], str]:
        """HTML of scikit-learn, with the guarantee of a fitted estimator below."""
        diagram = super()._repr_html_  # AttributeError where text is asked for
        return lambda: diagram() + self._guarantee_html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] += self._guarantee_html()
        return bundle

    def _guarantee_html(self) -> str:
        return self.privacy_._repr_html_() if hasattr(self, "privacy_") else ""

    def _target(self) -> Target:
        return Target(self.epsilon, self.delta, self.neighboring_relation)

    def _start_spending(self, guarantee: PrivacyGuarantee) -> None:
        """Record the cost and forget an earlier fit, just before the first release."""
        about_to_release(guarantee)
        kept = {"n_features_in_", "feature_names_in_", *self.get_params(deep=False)}
        for name in [*vars(self)]:
            if name.endswith("_") and name not in kept:
                del self.__dict__[name]
        self.privacy_ = guarantee
