"""Differentially private learning for scikit-learn."""

import importlib
import warnings
from typing import Any

from dpsubspace._names import MODULES, SUBJECTS, found
from dpsubspace.exceptions import (
    ClusterError,
    PrivacyBudgetError,
    PrivacyError,
    PrivacyWarning,
    PublicDataWarning,
)

__version__ = "0.1.0"

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "ClusterError",
    "PrivacyBudgetError",
    "PrivacyError",
    "PrivacyWarning",
    "PublicDataWarning",
    *MODULES,
]


def __getattr__(name: str) -> Any:
    """Import what is asked for; give what has another name now, with a warning."""
    if name in MODULES:
        return found(name)
    if name in SUBJECTS:
        return importlib.import_module(f"dpsubspace.{name}")
    if name == "Buy":
        warnings.warn(
            "`dpsubspace.Buy` is called `PrivateRange` now; the old name goes in version 0.3.",
            FutureWarning,
            stacklevel=2,
        )
        return __getattr__("PrivateRange")
    if name == "principal_angles":
        warnings.warn(
            "`dpsubspace.principal_angles` goes in version 0.3: `scipy.linalg.subspace_angles` of"
            " transposed components gives the same angles, to about 1e-8.",
            FutureWarning,
            stacklevel=2,
        )
        return importlib.import_module("dpsubspace._public.subspace").principal_angles
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *SUBJECTS})
