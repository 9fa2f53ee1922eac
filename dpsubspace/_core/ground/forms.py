"""Forms of the values of fitted models in files: they write values, and check what they read.

A form converts a value to *plain* data: None, booleans, numbers, text, lists, dictionaries and
arrays. It also converts plain data back to the value. Pickles hold plain data directly. In JSON an
array is an object with its type, shape and entries (:func:`as_json`), and forms read that as well.
Reading calls nothing but the constructors that forms name. If a part is wrong, a ValueError names
the part and its valid values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from dpsubspace._core.ground.checks import shown

INTEGERS = tuple(f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64))
_FLOATS = ("float32", "float64")
_TYPES = ("bool", *INTEGERS, *_FLOATS)

# Numbers that JSON does not have.
_TEXTS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@dataclass(frozen=True)
class Reading:
    """State of a reader: its position, and what it has read before."""

    where: str = "the file"  # Path of the part
    sizes: dict[str, int] = field(default_factory=dict)  # Lengths of axes by their names
    params: Mapping[str, Any] = field(default_factory=dict)  # Parameters of the model
    bounded: bool = True  # Whether to check the ranges of numbers; those of pickles are trusted

    def at(self, name: str | int) -> Reading:
        place = f"[{name}]" if isinstance(name, int) else f".{name}"
        return replace(self, where=(self.where + place).removeprefix("the file."))

    def wrong(self, must: str, found: Any) -> NoReturn:
        raise ValueError(f"`{self.where}` must be {must}, not {shown(found)}.")

    def size(self, name: str, found: int) -> bool:
        """Check that an axis has the same length as before; True for the first axis of a name."""
        return self.sizes.setdefault(name, found) == found


class Form:
    """Base of forms: a kind of values."""

    in_pickles = True  # Whether pickles hold plain data, and not the value itself

    def plain(self, value: Any) -> Any:
        return value

    def pickled(self, value: Any) -> Any:
        """Content of pickles in place of plain data."""
        return self.plain(value)

    def read(self, plain: Any, here: Reading) -> Any:
        raise NotImplementedError


# Single values ------------------------------------------------------------------------------------


class Flag(Form):
    """True or False."""

    def plain(self, value: Any) -> bool:
        return bool(value)

    def read(self, plain: Any, here: Reading) -> bool:
        return plain if isinstance(plain, bool) else here.wrong("true or false", plain)


@dataclass(frozen=True)
class Whole(Form):
    """A whole number; the length of an axis if it has the name of one."""

    low: int = 0
    high: int = 2**53
    axis: str = ""

    def plain(self, value: Any) -> int:
        return int(value)

    def read(self, plain: Any, here: Reading) -> int:
        if type(plain) is not int or not self.low <= plain <= self.high:
            here.wrong(f"a whole number from {self.low} to {self.high}", plain)
        if self.axis and not here.size(self.axis, plain):
            here.wrong(f"{here.sizes[self.axis]}, as elsewhere in the file", plain)
        return plain


@dataclass(frozen=True)
class Number(Form):
    """A number in float64; `high` of inf allows inf."""

    low: float = -1e300
    high: float = 1e300

    def plain(self, value: Any) -> float:
        return float(value)

    def read(self, plain: Any, here: Reading) -> float:
        value: Any = _TEXTS.get(plain, plain) if isinstance(plain, str) else plain
        known = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not known or (here.bounded and not self.low <= value <= self.high):
            here.wrong(f"a number from {self.low:g} to {self.high:g}", plain)
        return float(value)


@dataclass(frozen=True)
class Text(Form):
    """A text, one of the given texts if there are any."""

    choices: tuple[str, ...] = ()

    def plain(self, value: Any) -> str:
        return str(value)

    def read(self, plain: Any, here: Reading) -> str:
        if not isinstance(plain, str) or (self.choices and plain not in self.choices):
            here.wrong(f"one of {self.choices}" if self.choices else "a text", plain)
        return plain


# Arrays -------------------------------------------------------------------------------------------


def _entries(values: Any, kinds: tuple[type, ...], here: Reading) -> Any:
    """Nested lists of entries of some types; texts in place of numbers that JSON lacks."""
    if isinstance(values, list):
        return [_entries(value, kinds, here) for value in values]
    if str not in kinds and isinstance(values, str) and values in _TEXTS:
        return _TEXTS[values]
    return values if isinstance(values, kinds) else here.wrong("such entries in lists", values)


def _array_of(plain: Any, types: tuple[str, ...], here: Reading) -> np.ndarray:
    """Build the array of an object with its type, shape and entries."""
    keys = {"type", "shape", "values"}
    if not isinstance(plain, dict) or not keys <= plain.keys() <= {*keys, "order"}:
        here.wrong("an array: an object of `type`, `shape` and `values`", plain)
    kind, shape, order = plain["type"], plain["shape"], plain.get("order", "C")
    if kind not in types or not _is_list_of(shape, int) or order not in ("C", "F"):
        here.wrong(f"an array of a `type` in {types} and a `shape` that is a list of sizes", plain)
    kinds = {"text": (str,), "bool": (bool,), "object": (bool, int, float, str)}
    values = _entries(plain["values"], kinds.get(kind, (bool, int, float)), here)
    try:
        if kind == "object":  # NumPy would read a list of texts of one length as a list of letters
            found = np.empty(len(values), dtype=object)
            found[:] = values
        else:
            found = np.array(values, dtype="str" if kind == "text" else kind, order=order)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"`{here.where}` is no array of {kind}: {error}.") from None
    if found.size == math.prod(shape) == 0:  # empty lists do not show their number of columns
        found = found.reshape(shape)
    if list(found.shape) != shape:
        here.wrong(f"an array of `shape` {shape}", list(found.shape))
    return found


def _is_list_of(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


class AnyArray(Form):
    """An array of truth values, numbers or text; with one axis, of a mixture of these."""

    def plain(self, value: Any) -> np.ndarray:
        mixed = value.dtype.kind == "O" and value.ndim == 1
        plain = all(isinstance(each, (bool, int, float, str)) for each in value.tolist())
        if value.dtype.kind != "U" and value.dtype.name not in _TYPES and not (mixed and plain):
            raise ValueError(f"entries of type {value.dtype.name} have no form there.")
        return value

    def read(self, plain: Any, here: Reading) -> np.ndarray:
        if isinstance(plain, np.ndarray):
            return plain
        return _array_of(plain, (*_TYPES, "text", "object"), here)


@dataclass(frozen=True)
class LabelArray(AnyArray):
    """An array of distinct labels."""

    axis: str

    def read(self, plain: Any, here: Reading) -> np.ndarray:
        found = super().read(plain, here)
        if found.ndim != 1 or not here.size(self.axis, len(found)):
            here.wrong("labels, as many as elsewhere in the file", found.tolist())
        if len({*map(repr, found.tolist())}) < len(found):
            here.wrong("labels that are different", found.tolist())
        return found


class NumberArray(Form):
    """An array of numbers that has one of some shapes; ``()`` is a single number.

    Axes have names, and each name has the same length in all of a model. None is an axis of any
    length.
    """

    def __init__(
        self,
        *shapes: tuple[str | None, ...],
        types: tuple[str, ...] = _FLOATS,
        low: float = -1e300,
        high: float = 1e300,
        below: str = "",
        missing: bool = False,
    ):
        self.shapes, self.types = shapes, types
        self.low, self.high, self.below, self.missing = low, high, below, missing

    def plain(self, value: Any) -> Any:
        return float(value) if np.ndim(value) == 0 else np.asarray(value)

    def read(self, plain: Any, here: Reading) -> Any:
        if () in self.shapes and not isinstance(plain, (dict, np.ndarray)):
            return Number(self.low, self.high).read(plain, here)
        found = plain if isinstance(plain, np.ndarray) else _array_of(plain, self.types, here)
        if not any(self._fits(shape, found.shape, here) for shape in self.shapes):
            known = [[here.sizes.get(axis or "", axis) for axis in shape] for shape in self.shapes]
            here.wrong(f"an array of `shape` {' or '.join(map(str, known))}", [*found.shape])
        if not here.bounded or found.dtype == bool:
            return found
        high = here.sizes[self.below] - 1 if self.below else self.high
        wide = found.astype(np.float64)
        inside = (wide >= self.low) & (wide <= high)
        if not np.all(inside | np.isnan(wide) if self.missing else inside):
            raise ValueError(f"`{here.where}` has numbers beyond {self.low:g} and {high:g}.")
        return found

    @staticmethod
    def _fits(shape: tuple[str | None, ...], found: tuple[int, ...], here: Reading) -> bool:
        """Whether a shape matches; if it does, the lengths of its axes are stored."""
        known = dict(here.sizes)
        if len(shape) != len(found):
            return False
        for axis, size in zip(shape, found, strict=True):
            if axis is not None and known.setdefault(axis, size) != size:
                return False
        here.sizes.update(known)
        return True


class FlagArray(NumberArray):
    """True or False, or an array of these, that has one of some shapes."""

    def __init__(self, *shapes: tuple[str | None, ...]):
        super().__init__(*shapes, types=("bool",))

    def plain(self, value: Any) -> Any:
        return bool(value) if np.ndim(value) == 0 else np.asarray(value)

    def read(self, plain: Any, here: Reading) -> Any:
        return plain if () in self.shapes and isinstance(plain, bool) else super().read(plain, here)


class Names(Form):
    """Names of columns, as in scikit-learn: an object array of text."""

    def plain(self, value: Any) -> list[str]:
        return [str(name) for name in value]

    def read(self, plain: Any, here: Reading) -> np.ndarray:
        if not _is_list_of(plain, str) or not here.size("features", len(plain)):
            here.wrong("a list of the names of all features", plain)
        return np.array(plain, dtype=object)


# Several values -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Maybe(Form):
    """A value or None."""

    form: Form

    def plain(self, value: Any) -> Any:
        return None if value is None else self.form.plain(value)

    def read(self, plain: Any, here: Reading) -> Any:
        return None if plain is None else self.form.read(plain, here)


@dataclass(frozen=True)
class Several(Form):
    """A sequence of values of one form."""

    form: Form
    made: Callable[[list[Any]], Any] = tuple

    def plain(self, value: Any) -> list[Any]:
        return [self.form.plain(each) for each in value]

    def read(self, plain: Any, here: Reading) -> Any:
        if not isinstance(plain, list):
            here.wrong("a list", plain)
        return self.made([self.form.read(each, here.at(i)) for i, each in enumerate(plain)])


class Fixed(Form):
    """A sequence with a form for each of its values, passed to `made`, which makes a tuple."""

    def __init__(self, *forms: Form, made: Callable[..., Any] = lambda *values: values):
        self.forms, self.made = forms, made

    def plain(self, value: Any) -> list[Any]:
        return [form.plain(each) for form, each in zip(self.forms, value, strict=True)]

    def read(self, plain: Any, here: Reading) -> Any:
        if not isinstance(plain, list) or len(plain) != len(self.forms):
            here.wrong(f"a list of {len(self.forms)} values", plain)
        pairs = enumerate(zip(self.forms, plain, strict=True))
        return self.made(*(form.read(each, here.at(i)) for i, (form, each) in pairs))


class Pair(Fixed):
    """A tuple of two values of one form."""

    def __init__(self, form: Form):
        super().__init__(form, form)


@dataclass(frozen=True)
class ByName(Form):
    """A dictionary of values of one form by names that are text."""

    form: Form
    made: Callable[[dict[str, Any]], Any] = dict

    def plain(self, value: Any) -> dict[str, Any]:
        return {str(name): self.form.plain(each) for name, each in dict(value).items()}

    def read(self, plain: Any, here: Reading) -> Any:
        if not isinstance(plain, dict):
            here.wrong("an object", plain)
        return self.made({k: self.form.read(each, here.at(k)) for k, each in plain.items()})


class Record(Form):
    """An object or a dictionary of values by name, which are keyword arguments of `made`."""

    def __init__(self, made: Callable[..., Any], /, **fields: Form):
        self.made, self.fields = made, fields

    def plain(self, value: Any) -> dict[str, Any]:
        values = value if isinstance(value, dict) else {n: getattr(value, n) for n in self.fields}
        return {name: form.plain(values[name]) for name, form in self.fields.items()}

    def read(self, plain: Any, here: Reading) -> Any:
        return self.made(**self.values(plain, here))

    def values(self, plain: Any, here: Reading) -> dict[str, Any]:
        """Read the values of all fields; ValueError for a missing or an unknown field."""
        names = {name for name, form in self.fields.items() if not isinstance(form, Sometimes)}
        if not isinstance(plain, dict):
            here.wrong("an object", plain)
        if missing := sorted(names - plain.keys()):
            raise ValueError(f"`{here.where}` has no {shown(missing[0])}.")
        if unknown := sorted(plain.keys() - self.fields.keys()):
            raise ValueError(f"`{here.where}` has {shown(unknown[0])}, which is not known.")
        there = [(name, form) for name, form in self.fields.items() if name in plain]
        return {name: form.read(plain[name], here.at(name)) for name, form in there}


@dataclass(frozen=True)
class Sometimes(Form):
    """A field that only some records have."""

    form: Form

    def plain(self, value: Any) -> Any:
        return self.form.plain(value)

    def read(self, plain: Any, here: Reading) -> Any:
        return self.form.read(plain, here)


class OneOf(Form):
    """An object of one of several kinds, stored with the name of its kind."""

    def __init__(self, **kinds: Record):
        self.kinds = kinds

    def plain(self, value: Any) -> dict[str, Any]:
        name = next(name for name, form in self.kinds.items() if type(value) is form.made)
        return {"kind": name, **self.kinds[name].plain(value)}

    def read(self, plain: Any, here: Reading) -> Any:
        kind = plain.get("kind") if isinstance(plain, dict) else None
        if not isinstance(kind, str) or kind not in self.kinds:
            here.wrong(f"an object of a `kind` in {list(self.kinds)}", plain)
        rest = {name: value for name, value in plain.items() if name != "kind"}
        return self.kinds[kind].read(rest, here)


# JSON ---------------------------------------------------------------------------------------------


def as_json(plain: Any) -> Any:
    """Convert plain data to JSON types: arrays to objects, and numbers that it lacks to text."""
    if isinstance(plain, np.ndarray):
        values = as_json(plain.tolist())
        kind = "text" if plain.dtype.kind == "U" else plain.dtype.name
        found = {"type": kind, "shape": [*plain.shape], "values": values}
        if plain.ndim > 1 and plain.flags.f_contiguous and not plain.flags.c_contiguous:
            found["order"] = "F"  # another memory order changes the rounding of products
        return found
    if isinstance(plain, dict):
        return {name: as_json(value) for name, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [as_json(value) for value in plain]
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)
    return plain


def written(value: Any, indent: str = "") -> str:
    """Format JSON for people: an object with a line for each field, and lists in one line."""
    if not isinstance(value, dict) or not value:
        if isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value):
            inside = [written(each, indent + " ") for each in value]
            return "[\n" + ",\n".join(f"{indent} {each}" for each in inside) + f"\n{indent}]"
        return json.dumps(value, allow_nan=False, ensure_ascii=False)
    lines = [
        f"{indent} {json.dumps(name, ensure_ascii=False)}: {written(each, indent + ' ')}"
        for name, each in value.items()
    ]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
