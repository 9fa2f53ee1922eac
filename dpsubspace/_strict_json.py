"""JSON that is read as it was written: no NaN, and no field that is given twice."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["finite", "read_json"]


def read_json(text: str | bytes) -> Any:
    """Value of a text; ValueError or RecursionError where it is no such JSON."""
    return json.loads(text, parse_constant=_refused, object_pairs_hook=_without_repeats)


def finite(value: float) -> float | str:
    """`value` as JSON can have it: inf as a text."""
    return "inf" if value == float("inf") else value


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is given twice")
    return found
