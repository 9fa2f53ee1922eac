"""The file of a ledger: JSON that is checked field by field before anything of it is believed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsubspace._workflow.plan import Charge
from dpsubspace.exceptions import PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["Entry", "broken", "read", "write"]

_FORMAT, _VERSION = "dpsubspace.PrivacyLedger", 1
Entry = tuple[str, "DpEvent", Charge]

# Fields of a file with their types: bool is no int here, and numbers are finite and not negative.
_FIELDS = {
    "format": str,
    "version": int,
    "epsilon": float,
    "delta": float,
    "neighboring_relation": str,
    "unit": str,
    "allow_seeded": bool,
    "slack": float,
    "pure_epsilon": float,
    "max_failures": int,
    "failures": int,
    "plan": dict,
    "entries": list,
}
_PLAN = {"epsilon": float, "closed": bool}
_ENTRY = {"label": str, "event": dict, "charge": dict}
_CHARGE = {"sq_mu": float, "slack": float, "epsilon": float}


def write(path: str | os.PathLike[str], fields: dict[str, Any], entries: Sequence[Entry]) -> None:
    """Write beside `path` and move into place: a full disk must not cost the old record."""
    from dpsubspace._accounting.leaves import plain

    rows = [
        {
            "label": label,
            "event": plain(event),
            "charge": {name: _finite(getattr(charge, name)) for name in _CHARGE},
        }
        for label, event, charge in entries
    ]
    whole = {"format": _FORMAT, "version": _VERSION, **fields, "entries": rows}
    target = Path(path)
    beside = target.with_name(target.name + ".new")
    beside.write_bytes((json.dumps(whole, indent=1, allow_nan=False) + "\n").encode())
    os.replace(beside, target)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Entry]]:
    """What :func:`write` wrote; PrivacyError for any other file."""
    from dpsubspace._accounting.leaves import event_from

    try:
        text = Path(path).read_text(encoding="utf-8")
        whole = json.loads(text, parse_constant=_refused, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise broken(path, f"it is no JSON ({error})") from error
    if not isinstance(whole, dict) or whole.get("format") != _FORMAT:
        raise broken(path, "save() did not write it")
    if whole.get("version") != _VERSION:
        raise broken(path, f"its version is {whole.get('version')!r}, not {_VERSION}")
    if whole.get("plan") is None:
        whole["plan"] = {}
    try:
        fields = _checked(whole, _FIELDS, "the ledger")
        if fields["plan"]:
            fields["plan"] = _checked(fields["plan"], _PLAN, "the plan")
        entries = []
        for row in fields.pop("entries"):
            row = _checked(row, _ENTRY, "an entry")
            charge = Charge(**_checked(row["charge"], _CHARGE, "a charge"))
            entries.append((row["label"], event_from(row["event"]), charge))
    except (PrivacyError, RecursionError, OverflowError) as error:
        raise broken(path, str(error)) from error
    return {k: v for k, v in fields.items() if k not in ("format", "version")}, entries


def _checked(values: Any, types: dict[str, type], what: str) -> dict[str, Any]:
    """`values` with floats for numbers; PrivacyError for another set of fields or other types."""
    if not isinstance(values, dict) or values.keys() != types.keys():
        raise PrivacyError(f"{what} must have the fields {sorted(types)}")
    found = {}
    for name, kind in types.items():
        value = values[name]
        if kind is float and value == "inf":
            value = math.inf
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if number and kind in (int, float) and not value >= 0:
            raise PrivacyError(f"`{name}` of {what} must not be {value!r}")
        good = number if kind is float else type(value) is kind
        if not good:
            raise PrivacyError(f"`{name}` of {what} must be of type {kind.__name__}")
        found[name] = float(value) if kind is float else value
    return found


def _finite(value: float) -> float | str:
    return "inf" if value == math.inf else value


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is given twice")
    return found


def broken(path: Any, why: str) -> PrivacyError:
    return PrivacyError(
        f"{os.fspath(path)!r} cannot be read as a PrivacyLedger: {why}. Nothing was loaded. Open"
        " the last copy that you saved; without one, charge what was released to a new ledger."
    )
