"""What a fit is given, checked: private rows and targets, public rows, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsubspace._accounting.budget import Sizes
from dpsubspace._array import Array, on_device
from dpsubspace._rows.public import PublicRows

__all__ = ["Data"]


@dataclass(frozen=True)
class Data:
    """Checked rows and targets of a fit.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
        Private rows.
    targets : ndarray of shape (n,) or (n, c)
        Private targets: indices of classes, or columns of values.
    n_targets : int
        Number of classes, or of columns of values.
    public : PublicRows or None
        Public rows.
    present : boolean array of shape (n,) or None
        False makes a record a null record. Only tests and audits have any.
    """

    X: Any
    targets: Array
    n_targets: int
    public: PublicRows | None = None
    present: np.ndarray | None = None

    def sizes(self, n_outputs: int) -> Sizes:
        """Public sizes, where scores have so many columns."""
        n_public, labelled = 0, False
        if self.public is not None:
            n_public, labelled = len(self.public.X), self.public.targets is not None
        n_samples, n_features = self.X.shape
        return Sizes(n_samples, n_features, n_outputs, n_public, labelled)

    def on_device(self, where: Any) -> Data:
        """The same with private arrays on a device; public rows follow where they are used."""
        moved = (on_device(x, where) for x in (self.X, self.targets, self.present))
        X, targets, present = moved
        return replace(self, X=X, targets=targets, present=present)
