"""Differentially private learning for scikit-learn."""

import importlib
import warnings
from typing import Any

from dpsubspace._names import PLACES, SUBJECTS, TOP, imported

__version__ = "0.1.0"

__all__ = [*sorted(TOP), *SUBJECTS, "exceptions"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a public name on first access; warn if it has moved or has another name now."""
    if name in TOP:
        return imported(name)
    if name in (*SUBJECTS, "exceptions"):
        return importlib.import_module(f"dpsubspace.{name}")
    if name in PLACES:
        warnings.warn(
            f"`from dpsubspace import {name}` goes in version 0.3: write `from {PLACES[name]}"
            f" import {name}`.",
            FutureWarning,
            stacklevel=2,
        )
        return imported(name)
    if name == "Buy":
        warnings.warn(
            "`dpsubspace.Buy` is called `PrivateRange` now; the old name goes in version 0.3.",
            FutureWarning,
            stacklevel=2,
        )
        return imported("PrivateRange")
    if name == "principal_angles":
        warnings.warn(
            "`dpsubspace.principal_angles` goes in version 0.3: `scipy.linalg.subspace_angles` of"
            " transposed components gives the same angles, to about 1e-8.",
            FutureWarning,
            stacklevel=2,
        )
        return importlib.import_module("dpsubspace._core.public.subspace").principal_angles
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
