"""The library ``dp_accounting``, imported where it is needed: the import is not free."""

from __future__ import annotations

from typing import Any

# The library declares attrs below 24 and dm-tree, and runs without dm-tree and with newer ones.
WITHOUT_LIBRARY = (
    "dp-accounting, which every private fit and release is counted with, cannot be imported ({})."
    " Install it with `python -m pip install 'dp-accounting>=0.6,<0.7'`, or, where what it asks for"
    " cannot be installed, with `--no-deps`, and attrs, absl-py and mpmath by themselves. Saved"
    " models predict and print their guarantee without it."
)


def library() -> Any:
    """Import ``dp_accounting``; ImportError with instructions where that is not possible."""
    try:
        import dp_accounting
    except ImportError as error:
        raise ImportError(WITHOUT_LIBRARY.format(error)) from error
    return dp_accounting
