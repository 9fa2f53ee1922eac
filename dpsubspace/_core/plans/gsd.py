"""The plan of a private gradient subspace: the plan of a spectrum whose rows are gradients.

Where to check the privacy claim: everything is released by
:class:`~dpsubspace._core.plans.spectrum.SpectralPlan`, which says where its bounds, noise and event
are. Rows become gradients in ``_core/public/gradient_spaces.py``. What is added here is how many
dimensions the budget is made for: with public rows, at most the number that these can span.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.plans.spectrum import SpectralPlan
from dpsubspace._core.public.gradient_spaces import WIDEST


@dataclass(frozen=True, kw_only=True)
class GradientPlan(SpectralPlan):
    """Parameters of a fit; its rows are gradients where there is a space."""

    def budget(self, sizes: Sizes) -> Budget:
        n_features = sizes.n_features
        if sizes.n_public or self.space is not None:
            n_features = WIDEST if n_features is None else min(n_features, WIDEST)
        return super().budget(replace(sizes, n_features=n_features))
