"""The statement of a fit as JSON that anybody can read, with this package or without it.

Design note. An output checker has to learn what a model file costs, and must not unpickle it: a
pickle runs whatever its author wrote. So the statement lies beside the model, in a file of its own
that is plain JSON, with the digest of the model file inside. ``docs/privacy_schema.json`` says
what it holds.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpsubspace._accounting.cost import epsilon_of
from dpsubspace._accounting.events import NEIGHBORING_RELATIONS
from dpsubspace._strict_json import finite, read_json
from dpsubspace.exceptions import PrivacyError

__all__ = ["SCHEMA", "as_fields", "digest_of", "dumped", "fields_from"]

SCHEMA = "urn:dpsubspace:privacy-guarantee:1"

# Accountants of another version may differ a little in what is not Gaussian.
_TOLERANCE = 1e-3


def package_version() -> str:
    """Version of this package, which is loaded where this runs."""
    return sys.modules[__name__.partition(".")[0]].__version__


def as_fields(guarantee: Any, model_file: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """What the JSON of a guarantee holds."""
    from dpsubspace._accounting.leaves import plain

    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "statement": str(guarantee).partition("\n")[0],
        "of": guarantee.of,
        "epsilon": finite(guarantee.epsilon),
        "delta": guarantee.delta,
        "neighboring_relation": guarantee.neighboring_relation,
        "unit": guarantee.unit,
        "secure": guarantee.secure,
        "joint": guarantee.joint,
        "public": list(guarantee.public),
        "n_samples": guarantee.n_samples,
        "n_features": guarantee.n_features,
        "event": plain(guarantee.event),
        "version": package_version(),
    }
    if model_file is not None:
        fields["file"] = digest_of(model_file)
    return fields


def digest_of(model_file: str | os.PathLike[str]) -> dict[str, str]:
    """Name and digest of a file, which is read and not opened."""
    path = Path(model_file)
    return {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def dumped(fields: dict[str, Any], path: str | os.PathLike[str] | None) -> str:
    """`fields` as JSON, also written to `path` if there is one."""
    text = json.dumps(fields, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    if path is not None:
        Path(path).write_bytes(text.encode())
    return text


def fields_from(source: str | os.PathLike[str]) -> dict[str, Any]:
    """Parameters of the guarantee that `source` holds, JSON or the path of a file with it."""
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    name = "the JSON" if is_text else repr(os.fspath(source))
    try:
        text = source if is_text else Path(source).read_text(encoding="utf-8")
        whole = read_json(str(text))
    except (ValueError, RecursionError) as error:
        raise _unreadable(name, f"it is no JSON ({error})") from error
    try:
        return _checked(whole)
    except (PrivacyError, RecursionError, OverflowError) as error:
        raise _unreadable(name, str(error)) from error


def _checked(whole: Any) -> dict[str, Any]:
    from dpsubspace._accounting.leaves import event_from

    if not isinstance(whole, dict) or whole.get("schema") != SCHEMA:
        found = whole.get("schema") if isinstance(whole, dict) else None
        raise PrivacyError(f"its `schema` is {found!r}, not {SCHEMA!r}")
    missing = {name for name in _TYPES if name not in whole}
    unknown = whole.keys() - _TYPES.keys() - {"file"}
    if missing or unknown:
        raise PrivacyError(f"the fields {sorted(missing)} are missing, {sorted(unknown)} unknown")
    for name, (valid, what) in _TYPES.items():
        if not valid(whole[name]):
            raise PrivacyError(f"`{name}` must be {what}, not {whole[name]!r}")
    event = event_from(whole["event"])
    epsilon = math.inf if whole["epsilon"] == "inf" else float(whole["epsilon"])
    delta, relation = float(whole["delta"]), whole["neighboring_relation"]
    cost = epsilon_of(event, delta, relation)
    if not epsilon >= cost * (1 - _TOLERANCE):
        raise PrivacyError(f"it claims epsilon={epsilon:g}, and its event costs {cost:.4g}")
    kept = ("neighboring_relation", "unit", "secure", "joint", "n_samples", "n_features", "of")
    return {
        **{name: whole[name] for name in kept},
        "event": event,
        "epsilon": epsilon,
        "delta": delta,
        "public": tuple(whole["public"]),
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 0)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


# Fields, what each of them must be, and that in words.
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "schema": (_is_text, "a text"),
    "statement": (_is_text, "a text"),
    "of": (_is_text, "a text"),
    "epsilon": (
        lambda value: value == "inf" or (_is_number(value) and value >= 0),
        "a number of at least 0, or 'inf'",
    ),
    "delta": (lambda value: _is_number(value) and 0 <= value < 1, "a number in [0, 1)"),
    "neighboring_relation": (
        lambda value: value in NEIGHBORING_RELATIONS,
        f"one of {NEIGHBORING_RELATIONS}",
    ),
    "unit": (_is_text, "a text"),
    "secure": (_is_bool, "true or false"),
    "joint": (_is_bool, "true or false"),
    "public": (
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
        "a list of texts",
    ),
    "n_samples": (_is_size, "a whole number or null"),
    "n_features": (_is_size, "a whole number or null"),
    "event": (lambda value: isinstance(value, dict), "an object"),
    "version": (_is_text, "a text"),
}


def _unreadable(name: str, why: str) -> PrivacyError:
    return PrivacyError(
        f"{name} cannot be read as the statement of a fit: {why}. Ask whoever fitted the model for"
        " a new one: model.privacy_.to_json(path)."
    )
