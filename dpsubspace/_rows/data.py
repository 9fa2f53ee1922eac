"""What a fit is given, checked: private rows and targets, public rows, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dpsubspace._accounting.budget import Sizes
from dpsubspace._array import Array, on_device
from dpsubspace._rows.public import PublicRows
from dpsubspace._rows.records import Records

__all__ = ["Data"]


@dataclass(frozen=True)
class Data:
    """Checked rows and targets of a fit.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_rows, d)
        Private rows.
    targets : ndarray of shape (n_rows,) or (n_rows, c)
        Private targets: indices of classes, or columns of values.
    n_targets : int
        Number of classes, or of columns of values.
    records : Records
        Whose the rows are.
    public : PublicRows or None
        Public rows.
    """

    X: Any
    targets: Array
    n_targets: int
    records: Records
    public: PublicRows | None = None

    def sizes(self, n_outputs: int) -> Sizes:
        """Public sizes, where scores have so many columns."""
        n_public, labelled = 0, False
        if self.public is not None:
            n_public, labelled = len(self.public.X), self.public.targets is not None
        n, persons = self.records.n, self.records.grouped
        return Sizes(n, self.X.shape[1], n_outputs, n_public, labelled, persons)

    def on_device(self, where: Any) -> Data:
        """The same with private arrays on a device; public rows follow where they are used."""
        X, targets = (on_device(x, where) for x in (self.X, self.targets))
        return replace(self, X=X, targets=targets, records=self.records.on_device(where))
