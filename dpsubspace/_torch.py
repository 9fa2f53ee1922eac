"""Features from a frozen torch module, one row at a time.

Design note. In front of a private estimator a step costs no privacy if it takes nothing
from the rows but what it does to each of them alone. A network in evaluation mode mostly
works like that, and not always: batch normalisation without running statistics mixes the
rows of a batch. So ``fit`` looks at the module and tries it on random rows, never on the
rows that it is given, and refuses what mixes. Nor may anything of the rows stay in a model
that is saved: the module that is kept is never called, its copies are (see
:mod:`dpsubspace._throwaway`). Torch is imported inside functions: the package works without it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dpsubspace._inputs import check_integer, check_rows
from dpsubspace._throwaway import Trial, emptied, public_copy, throwaway, versions

if TYPE_CHECKING:
    import torch

__all__ = ["TorchFeatures"]

# Differences between two mappings of a row, as shares of the largest output. In batches of
# one shape a row goes through the same arithmetic whatever stands beside it; in batches of
# different shapes sums may be taken in another order, at half precision in the worst case.
_SAME_SHAPE, _OTHER_SHAPE = 1e-4, 5e-2


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
        Shape to give to each row before the module sees it, ``(1, 28, 28)`` for a grey
        image, since scikit-learn's Pipelines pass flat rows. None leaves them flat.
    batch_size : int, default=256
        Most rows that go through the module together. It bounds memory and does not
        change the result, up to rounding.
    device : {"cpu", "cuda", "auto"} or str, default="cpu"
        Where the module runs; ``"cuda:1"`` is the second GPU, "auto" a GPU if there is one.

    Attributes
    ----------
    module_ : torch.nn.Module
        Copy of `module` in evaluation mode and without gradients. ``transform`` leaves it as
        it is.
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

    Layers in training mode need no attention: the copy leaves it, with dropout off and
    batch normalisation by its running statistics. Rows enter in the dtype of the module's
    weights and leave as float32. Outputs that are not finite are left to the next step.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from dpsubspace import DPSGDFClassifier, TorchFeatures
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

    def fit(self, X: Any, y: Any = None):
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
        torch = _torch()
        check_integer("batch_size", self.batch_size, low=1)
        if not isinstance(self.module, torch.nn.Module):
            raise ValueError(
                f"`module` must be a torch.nn.Module, got {type(self.module).__name__}."
            )
        device = _device(self.device)
        width = self._rows(X, reset=True).shape[1]
        shape = _row_shape(self.input_shape, width)
        module = public_copy(self.module)
        module.eval()
        _check_layers(module)
        for parameter in module.parameters():
            parameter.requires_grad_(False)
            parameter.grad = None  # of an earlier training: it has no place in a saved model
        self._n_features_out = _try_out(module.to(device), shape, device)
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
        # Asked again, since a model that was fitted on a GPU may be loaded elsewhere.
        device = _device(self.device)
        out = np.empty((len(X), self._n_features_out), dtype=np.float32)
        failure = self._fill(out, X, device)
        if failure:  # out here, so that neither a chained exception nor a frame has an entry
            del X, out
            raise RuntimeError(failure)
        return out

    def _fill(self, out: np.ndarray, X: np.ndarray, device: str) -> str:
        """Write the features of rows into `out`, and return what went wrong, or ""."""
        failure, before = "", versions(self.module_.to(device))
        try:
            # The module that is kept is never called.
            module = throwaway(self.module_)
            for start in range(0, len(X), self.batch_size):
                rows = X[start : start + self.batch_size].reshape(-1, *self._fitted_shape)
                out[start : start + self.batch_size] = _mapped(module, rows, device)
        except Exception as error:
            failure = (
                f"`module` failed with {type(error).__name__} on some of the rows. Its message may"
                " quote them and is withheld: try the module on public rows, or a smaller"
                " `batch_size` where memory ran out."
            )
        return emptied(self.module_, before) or failure

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:
        if getattr(X, "ndim", 2) > 2:
            raise ValueError(
                f"`X` must have two axes, got {X.ndim}: one flat row a record, since scikit-learn"
                " passes no others. Use X.reshape(len(X), -1) and input_shape=X.shape[1:]."
            )
        return check_rows(self, X, reset=reset, accept_sparse=False)

    def __getstate__(self) -> dict[str, Any]:
        """State whose fitted module lies on the CPU: it loads where there is no GPU."""
        state: dict[str, Any] = {**super().__getstate__()}  # type: ignore[dict-item]
        module = state.get("module_")
        if module is not None and any(tensor.device.type != "cpu" for tensor in _weights(module)):
            state["module_"] = copy.deepcopy(module).cpu()
        return state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags


def _torch() -> Any:
    """The torch package, or ImportError that tells how to get it."""
    try:
        import torch
    except ImportError as error:
        raise ImportError('TorchFeatures needs torch: pip install "dpsubspace[torch]".') from error
    return torch


def _device(device: Any) -> str:
    """Name of a device of this machine, or ValueError that lists them."""
    if device == "cpu":
        return device
    count = _torch().cuda.device_count()
    if device == "auto":
        return "cuda" if count else "cpu"
    there = ["cpu", *(["cuda"] if count else []), *(f"cuda:{i}" for i in range(count))]
    if device not in there:
        raise ValueError(
            f"`device` must be 'auto' or one that this machine has, {there}, got {device!r}."
        )
    return device


def _row_shape(input_shape: Any, width: int) -> tuple[int, ...]:
    """Shape of one row as the module sees it."""
    if input_shape is None:
        return (width,)
    if not isinstance(input_shape, tuple):
        raise ValueError(f"`input_shape` must be None or a tuple of int, got {input_shape!r}.")
    sides = tuple(check_integer("input_shape[...]", side, low=1) for side in input_shape)
    if math.prod(sides) != width:
        raise ValueError(
            f"`input_shape`={sides} holds {math.prod(sides)} numbers, but rows have {width}"
            " features. Give the shape of one row, without the number of rows."
        )
    return sides


def _mapped(
    module: torch.nn.Module,
    rows: np.ndarray,
    device: str,
    watch: Callable[[torch.Tensor], None] | None = None,
) -> np.ndarray:
    """Output of `module` for one batch, flattened to one float32 row a row."""
    torch = _torch()
    with torch.inference_mode():
        # `tensor` copies: from_numpy warns of arrays that are read-only.
        batch = torch.tensor(np.ascontiguousarray(rows), dtype=_dtype(module), device=device)
        if watch is not None:
            watch(batch)
        out = module(batch)
        if not isinstance(out, torch.Tensor) or out.is_complex():
            kind = str(out.dtype) if isinstance(out, torch.Tensor) else type(out).__name__
            raise ValueError(
                f"it must return one real tensor, got {kind}. Wrap it in a module that picks the"
                " features."
            )
        if out.ndim == 0 or len(out) != len(rows):
            raise ValueError(
                f"it must return one entry a row, got shape {tuple(out.shape)} for"
                f" {len(rows)} rows."
            )
        return out.reshape(len(rows), -1).to("cpu", torch.float32).numpy()


def _dtype(module: torch.nn.Module) -> torch.dtype:
    """Floating dtype of the module's weights; float32 where it has none."""
    dtypes = (tensor.dtype for tensor in _weights(module) if tensor.is_floating_point())
    return next(dtypes, _torch().float32)


def _weights(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


# Whether a module works row by row ------------------------------------------------------------


def _check_layers(module: torch.nn.Module) -> None:
    """ValueError for layers that are known to mix rows or to be unfinished."""
    nn = _torch().nn
    lazy = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
    if any(isinstance(tensor, lazy) for tensor in _weights(module)):
        raise ValueError(
            "`module` has lazy layers without weights, and every fit would draw others. Call it"
            " once on public rows, before training it."
        )
    batch_norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    for name, layer in module.named_modules():
        if isinstance(layer, batch_norms) and (layer.training or layer.running_mean is None):
            raise ValueError(
                f"the layer {name!r} of `module` ({type(layer).__name__}) normalises by the"
                " statistics of the batch, so that rows are not mapped one by one. Train it on"
                " public data with track_running_stats=True and let eval() take effect, or use"
                " GroupNorm or LayerNorm."
            )


def _try_out(module: torch.nn.Module, shape: tuple[int, ...], device: str) -> int:
    """Number of features that `module` gives, found on random rows by copies of it.

    Raises
    ------
    ValueError
        If the module cannot map rows of `shape`, what it gives for a row depends on
        anything but that row, or a call leaves something behind.
    """
    rng, trial = np.random.default_rng(0), Trial(module)
    pixels = rng.uniform(size=(5, *shape))
    for rows in (pixels, rng.normal(size=pixels.shape)):
        # The row in the middle has neighbours on both sides; theirs change, in size too.
        others = rng.normal(size=rows.shape) * 100
        others[2] = rows[2]
        with trial.round() as watch:
            n_features = _row_by_row(module, rows, others, device, watch)
    return n_features


def _row_by_row(
    module: torch.nn.Module, rows: np.ndarray, others: np.ndarray, device: str, watch: Any
) -> int:
    """Number of features; ValueError unless those of a row depend on that row alone."""

    def mapped(rows: np.ndarray, module: torch.nn.Module) -> np.ndarray:
        """As `_mapped`, for rows that an error may speak of."""
        try:
            return _mapped(module, rows, device, watch)
        except Exception as error:
            raise ValueError(
                f"`module` cannot map {len(rows)} random rows of shape {rows.shape[1:]}: {error}"
                " If it takes rows of another shape, set `input_shape`."
            ) from error

    used = throwaway(module)
    first = mapped(rows, used)
    if not np.isfinite(first).any():  # nothing could be compared
        raise ValueError(
            "`module` maps random rows to nothing but NaN and infinity. Are its weights finite?"
        )
    # By a new copy too: a module may set itself up by the first rows that it sees.
    beside_others = [mapped(others, copied) for copied in (used, throwaway(module))]
    if not _close(mapped(rows, used), first, _SAME_SHAPE):
        raise ValueError(
            "`module` maps the same random rows to different features in two calls, though"
            " it is in evaluation mode. Take out what draws random numbers (dropout called"
            " with training=True, say) or keeps state between calls."
        )
    if not (
        all(_close(out[2:3], first[2:3], _SAME_SHAPE) for out in beside_others)
        and _close(mapped(rows[2:3], throwaway(module)), first[2:3], _OTHER_SHAPE)
    ):
        raise ValueError(
            "`module` maps a random row to other features when the rows beside it change, so"
            " a private estimator behind it would not be private. Take out what computes"
            " across the batch (its first axis): statistics, softmax(dim=0), attention"
            " without batch_first, dynamic quantisation, scales set by the first rows seen."
        )
    return first.shape[1]


def _close(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    """Whether columns differ by at most a share of their largest entry; equal where not finite.

    Column by column, so that a large one does not hide what happens to the others; columns
    that are tiny beside most are measured against those, since they may be rounding alone.
    """
    if a.shape != b.shape:
        return False
    largest = np.abs(np.where(np.isfinite(b), b, 0.0)).max(axis=0)
    scale = np.maximum(largest, 1e-3 * np.median(largest))
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= tolerance * scale
    return bool((near | (a == b) | (np.isnan(a) & np.isnan(b))).all())
