"""Features of rows from a frozen torch module."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.gradients.throwaway import emptied, public_copy, throwaway, versions
from dpsubspace._core.gradients.torch_rows import (
    alike_sizes,
    check_layers,
    floating_tensors,
    mapped_batch,
    row_shape,
    torch_package,
    try_out,
)
from dpsubspace._core.ground.arrays import check_device
from dpsubspace._core.ground.checks import check_integer
from dpsubspace._core.rows.inputs import check_rows
from dpsubspace._names import public

if TYPE_CHECKING:
    import torch


# Largest number of rows that go through a module together on a CPU: more are hardly faster.
_MOST_ROWS = 64

# Results of `alike_sizes` for modules, which are not saved with them.
_SIZES: WeakKeyDictionary[Any, dict[tuple[int, str, int], tuple[int, ...]]] = WeakKeyDictionary()


@public
class TorchFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Map each row through a frozen torch module.

    Put before a private linear classifier, it gives deep features to learn from: the
    module, trained on public data, stays as it is, and only the classifier is fitted to the
    private rows. It takes nothing from the rows in ``fit``, so that it costs no privacy.

    Parameters
    ----------
    module : torch.nn.Module
        Public module from a batch of rows to a tensor with one entry a row. ``fit`` copies
        it and puts the copy into evaluation mode; the module itself is never changed.
    input_shape : tuple of int or None, default=None
        Shape of one row as the module sees it, for example ``(1, 28, 28)``. None leaves rows flat.
    batch_size : int, default=256
        Most rows that go through the module together, 64 on a CPU. It bounds memory and does not
        change the result, up to rounding.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to compute. "cpu" uses NumPy, and torch where there is a module; everything else uses
        torch, with the same arithmetic and noise. "auto" takes a GPU if there is one. Arrays that
        come out are NumPy arrays in all cases.

    Attributes
    ----------
    module_ : torch.nn.Module
        Copy of `module` in evaluation mode and without gradients. ``transform`` leaves it as it is.
    n_features_in_ : int
        Number of features of a row.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    DPSGDFClassifier : Private classifier for rows with a large common part.
    PrivacyLedger : Takes Pipelines of this and a private estimator.

    Notes
    -----
    Nothing is released and nothing learned: ``fit`` checks that the rows are finite numbers
    and takes their width and names. That holds where the module maps each row by itself
    and is public: weights that were trained on the private rows without privacy say
    what those rows are, whatever the classifier behind them costs.

    ``fit`` tries the module on random rows and refuses it if a row alone and in a batch, or
    beside other rows, or twice, has different features. This finds batch statistics,
    dropout that stays on and dynamic quantisation; it is a test and not a proof, and cannot
    find a module that was made to pass it. The random entries lie in [0, 1] or around zero,
    up to a few hundred: a module that takes less (indices of an embedding) must clamp them.

    Nothing of the rows is kept. Many modules store something of each call in their
    attributes or buffers. So each call of ``transform`` runs a new copy of the module, which
    shares the memory of the parameters and is thrown away. Where a copy does not help,
    ``fit`` refuses the module and names the place: what it stores in a global, an attribute
    of a class, a cache of a function, a variable of a hook or a parameter. This is looked
    for on the random rows. It does not find what a module stores on some rows only (at the
    first batch of another size, say), numbers (also as a tensor that is made of them) in places
    that no name in its code leads to or inside of other libraries, what it prints, logs or
    writes to a file, and what compiled extensions keep. A ``transform`` that writes
    to a parameter after all overwrites that parameter with NaN and raises an error.

    What comes out for a row is the same to the last bit wherever it lies and however many rows
    there are: a private step behind this may count on which side of an edge it is, and how many
    rows a person has must not move the rows of others. So rows are mapped in a few numbers at a
    time, the last ones padded, in which random rows have the same bits at all places. They are
    found in the first call of ``transform``, which maps some 400 random rows for that, and up to
    some 5,000 where a row has few outputs.

    Layers in training mode need no attention: the copy leaves it, with dropout off and
    batch normalisation by its running statistics. Rows enter in the dtype of the module's
    weights and leave as float32. Outputs that are not finite are left to the next step.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from dpsubspace import DPSGDFClassifier
    >>> from dpsubspace.neural_network import TorchFeatures
    >>> X, y = load_digits(return_X_y=True)
    >>> backbone = torch.nn.Sequential(
    ...     torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.AvgPool2d(2)
    ... )
    >>> features = TorchFeatures(backbone, input_shape=(1, 8, 8))
    >>> features.fit_transform(X).shape
    (1797, 144)
    >>> model = make_pipeline(features, DPSGDFClassifier(epsilon=1.0)).fit(X, y)
    >>> model.predict(X).shape
    (1797,)
    """

    _row_by_row = True  # the features of a row follow from that row alone

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        input_shape: tuple[int, ...] | None = None,
        batch_size: int = 256,
        device: str = "cpu",
    ):
        self.module = module
        self.input_shape = input_shape
        self.batch_size = batch_size
        self.device = device

    def fit(self, X: Any, y: Any = None) -> Self:
        """Copy the module and try it on random rows as wide as those of `X`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, of which the width and the names are taken.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted transformer.

        Raises
        ------
        ImportError
            If torch is not installed.
        ValueError
            If a parameter is out of its range, or the module mixes rows, is random, keeps
            something of them where it would outlive a call, cannot be copied or cannot map
            rows of this width.
        """
        torch = torch_package()
        check_integer("batch_size", self.batch_size, low=1)
        if not isinstance(self.module, torch.nn.Module):
            raise ValueError(
                f"`module` must be a torch.nn.Module, got {type(self.module).__name__}."
            )
        device = str(check_device(self.device, exact=False) or "cpu")
        width = self._rows(X, reset=True).shape[1]
        shape = row_shape(self.input_shape, width)
        module = public_copy(self.module)
        module.eval()
        check_layers(module)
        for parameter in module.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None  # from an earlier training: not for a saved model
        self._n_features_out = try_out(module.to(device), shape, device)
        self.module_ = module
        self._fitted_shape = shape
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the features of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            Flattened outputs of the module, in float32.

        Raises
        ------
        ValueError
            If the rows cannot be used.
        RuntimeError
            If the module fails on them. The message does not quote its own, which may
            hold entries of the rows. Or if it changes its parameters.
        """
        check_is_fitted(self, "module_")
        X = self._rows(X, reset=False)
        # Checked again, since a model that was fitted on a GPU may be loaded elsewhere.
        device = str(check_device(self.device, exact=False) or "cpu")
        out = np.empty((len(X), self._n_features_out), dtype=np.float32)
        failure = self._fill(out, X, device)
        if failure:  # out here, so that neither a chained exception nor a frame has an entry
            del X, out
            raise RuntimeError(failure)
        return out

    def _fill(self, out: np.ndarray, X: np.ndarray, device: str) -> str:
        failure, before = "", versions(self.module_.to(device))
        try:
            # The stored module itself is never called.
            module = throwaway(self.module_)
            for some, size in _blocks(len(X), self._sizes(device)):
                index = np.minimum(np.arange(some.start, some.start + size), some.stop - 1)
                rows = X[index].reshape(-1, *self._fitted_shape)
                out[some] = mapped_batch(module, rows, device)[: some.stop - some.start]
        except Exception as error:
            failure = (
                f"`module` failed with {type(error).__name__} on some of the rows. Its message may"
                " quote them and is withheld: try the module on public rows, or a smaller"
                " `batch_size` where memory ran out."
            )
        return emptied(self.module_, before) or failure

    def _sizes(self, device: str) -> tuple[int, ...]:
        """Return the numbers of rows to map at once: see :func:`alike_sizes`.

        They differ between machines and between numbers of threads.
        """
        most = min(self.batch_size, _MOST_ROWS) if device == "cpu" else self.batch_size
        threads = torch_package().get_num_threads()
        known, key = _SIZES.setdefault(self.module_, {}), (most, device, threads)
        if key not in known:
            known[key] = alike_sizes(self.module_, self._fitted_shape, most, device)
        return known[key]

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        if getattr(X, "ndim", 2) > 2:
            raise ValueError(
                f"`X` must have two axes, got {X.ndim}: one flat row a record, since scikit-learn"
                " passes no others. Use X.reshape(len(X), -1) and input_shape=X.shape[1:]."
            )
        return check_rows(self, X, reset=reset, accept_sparse=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return a state whose fitted module is on the CPU: it loads on machines without a GPU."""
        state: dict[str, Any] = {**super().__getstate__()}  # type: ignore[dict-item]
        module = state.get("module_")
        if module is None or all(part.device.type == "cpu" for part in floating_tensors(module)):
            return state
        return {**state, "module_": copy.deepcopy(module).cpu()}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags


def _blocks(n: int, sizes: tuple[int, ...]) -> Iterator[tuple[slice, int]]:
    """Yield slices of rows, and the number of rows to map for each: the last slice is padded."""
    start = 0
    for size in sizes:
        while n - start >= size or (start < n and size == sizes[-1]):
            yield slice(start, min(start + size, n)), size
            start = min(start + size, n)
