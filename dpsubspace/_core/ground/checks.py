"""Checks of single parameters, with errors that name the value and a remedy, and strict JSON."""

from __future__ import annotations

import json
import math
import os
import re
import reprlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from numbers import Integral, Real
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np

# Strict JSON ------------------------------------------------------------------------------------
# JSON that is read exactly as it was written: no NaN, and no duplicate field.


def read_json(text: str | bytes) -> Any:
    """Parse a text; ValueError or RecursionError where it is not strict JSON."""
    return json.loads(text, parse_constant=_refused, object_pairs_hook=_without_repeats)


def finite(value: float) -> float | str:
    """Return `value` in a form that JSON supports: inf becomes a text."""
    return "inf" if value == float("inf") else value


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is given twice")
    return found


# Parameters -------------------------------------------------------------------------------------

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 10
_SHORT.maxstring, _SHORT.maxother = 100, 200
# Parameters that are lists have fewer entries, and tables mostly more rows.
_LONG = 50
_NOTHING: Mapping[str, Any] = {}


class HiddenByNoise(ValueError):
    """Refusal of a call whose result noise would hide, before anything is charged."""


def shown(value: Any) -> str:
    """Format `value` as a person would write it: 7 for ``np.uint8(7)``, and never many entries.

    Values that may hold private rows are named without their entries: columns, frames, long arrays.
    """
    if _may_hold_rows(value):
        return "an array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    return _SHORT.repr(_plain_value(value))


def shown_first(values: Iterable[Any]) -> str:
    """Format the first of `values`, which are public: columns or categories of a schema."""
    return shown(list(islice(values, _LONG)))


def _may_hold_rows(value: Any) -> bool:
    if isinstance(value, (list, tuple, np.ndarray)):
        return getattr(value, "ndim", 1) > 0 and len(value) > _LONG
    return hasattr(value, "to_list") or hasattr(value, "columns")


def nearest(text: str, known: Iterable[Any]) -> str | None:
    plain = {_folded(each): each for each in known if isinstance(each, str)}
    close = get_close_matches(_folded(text), plain, n=1)
    return plain[close[0]] if close else None


def did_you_mean(value: Any, known: Iterable[Any], meant: Mapping[str, Any] = _NOTHING) -> str:
    """Return a sentence with the name in `known` that `value` may stand for, or "".

    `meant` has words that are used elsewhere, in lower case with underscores, and our names.
    """
    if not isinstance(value, str):
        return ""
    word = re.sub(r"[\s-]+", "_", _folded(value))
    near = meant.get(word) or nearest(word, known)
    return f" Did you mean {near!r}?" if near else ""


def _folded(text: str) -> str:
    return normalize("NFKC", text).strip().casefold()


def form_of_both(text: str, other: str) -> str | None:
    """Form of Unicode in which two texts of different characters are equal; None for none.

    An accent may be a part of its letter, or follow it, as in file names of macOS.
    """
    forms = ("NFC", "NFKC")
    return next((form for form in forms if normalize(form, text) == normalize(form, other)), None)


def _plain_value(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    elif hasattr(value, "to_list"):  # a Series
        value = value.to_list()
    if type(value) in (list, tuple):
        return type(value)(map(_plain_value, value))
    if type(value) is dict:
        return {_plain_value(key): _plain_value(each) for key, each in value.items()}
    return value


def check_real(
    name: str,
    value: Any,
    *,
    low: float,
    high: float = math.inf,
    include_low: bool = False,
    include_high: bool = False,
    hint: str = "",
) -> float:
    if isinstance(value, (Real, np.floating)) and not isinstance(value, (bool, np.bool_)):
        value = float(value)
        above = value >= low if include_low else value > low
        below = value <= high if include_high else value < high
        if above and below:  # never true for NaN
            return value
    interval = f"{'[' if include_low else '('}{low:g}, {high:g}{']' if include_high else ')'}"
    raise ValueError(
        f"`{name}` must be a number in {interval}, got {shown(value)}.{hint and ' '}{hint}"
    )


def check_bool(name: str, value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ValueError(f"`{name}` must be True or False, got {shown(value)}.")


def check_auto(name: str, value: Any, **interval: Any) -> None:
    if not (isinstance(value, str) and value == "auto"):
        check_real(name, value, hint="Or use 'auto'.", **interval)


def check_integer(name: str, value: Any, *, low: int, high: int | None = None) -> int:
    if isinstance(value, Integral) and not isinstance(value, bool):
        value = int(value)
        if value >= low and (high is None or value <= high):
            return value
    limits = f"of at least {low}" if high is None else f"from {low} to {high}"
    raise ValueError(f"`{name}` must be an integer {limits}, got {shown(value)}.")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> Any:
    if isinstance(value, (str, type(None))) and value in choices:
        return value
    hint = did_you_mean(value, choices)
    raise ValueError(f"`{name}` must be one of {list(choices)}, got {shown(value)}.{hint}")


def check_bounds(
    name: str, value: Any, n_columns: int | None = None, *, column: str = "target"
) -> None:
    try:
        ends = [np.asarray(bound) for bound in value]
        low, high = (end.astype(np.float64) for end in ends if end.dtype != np.bool_)
    except (TypeError, ValueError):
        low = high = np.asarray(np.nan)
    sizes = {end.size for end in (low, high) if end.ndim}
    fits = max(low.ndim, high.ndim) <= 1 and len(sizes) <= 1
    if n_columns is not None:
        fits = fits and sizes <= {n_columns}
    if isinstance(value, list) and value and all(np.shape(pair) == (2,) for pair in value):
        fits = False  # one pair for each column; two columns would be mistaken for lows and highs
    bounded = bool((np.abs(np.append(low, high)) <= 1e50).all())  # never true for NaN
    if not (fits and bounded and (low < high).all()):
        count = "" if n_columns is None else f" ({n_columns} in all)"
        raise ValueError(
            f"`{name}` must be a tuple (low, high) with low < high: two finite numbers, or two"
            f" arrays of one number a {column}{count}, not a pair for each, got {shown(value)}."
            f"{_pair_in(name, value)}"
        )


def _pair_in(name: str, value: Any) -> str:
    """Return the pair to pass for a range of a schema, or ""."""
    ends = getattr(value, "_ends", None)
    return f" Ranges are for tables: write {name}={shown(ends)}." if ends else ""


def copied_bounds(bounds: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Copy checked bounds to arrays that nobody else holds."""
    if bounds is None:
        return None
    low, high = (np.array(bound, dtype=np.float64) for bound in bounds)
    return low, high


# Files ------------------------------------------------------------------------------------------


def write_file(path: str | os.PathLike[str], text: str) -> None:
    """Write a text to a file; an OSError that names `path` and the way out if that fails."""
    try:
        Path(path).write_bytes(text.encode())
    except OSError as error:
        raise not_written(path, error) from None


def not_written(path: str | os.PathLike[str], error: OSError) -> OSError:
    """Return the error for a file that cannot be written, with the type of `error`."""
    name, folder = os.fspath(path), Path(path).absolute().parent
    if Path(path).is_dir():
        way_out = f"it is a folder. Add the name of a file, as in {os.path.join(name, 'name.json')}"
    elif not folder.is_dir():
        way_out = f"the folder {shown(str(folder))} does not exist. Make it, or pass another `path`"
    else:
        why = (error.strerror or str(error)).lower()
        way_out = f"{why}. Pass a `path` in a folder that you may write to"
    return type(error)(f"`path` {shown(name)} cannot be written: {way_out}.")


def read_file(path: str | os.PathLike[str]) -> str:
    """Read a text from a file; an OSError that names the way out if that fails."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        is_folder = Path(path).is_dir()
        why = "it is a folder, and a file is needed" if is_folder else error.strerror or str(error)
        message = f"{shown(os.fspath(path))} cannot be read: {why[0].lower() + why[1:]}."
        raised = type(error)(message)
    raise raised


# Classes ---------------------------------------------------------------------------------------

# Attributes of a class that never handle rows: those that Python and scikit-learn write into each
# class, and those that make and print an instance.
_NO_ROWS = frozenset(
    [
        "__abstractmethods__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__conditional_annotations__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__init__",
        "__module__",
        "__orig_bases__",
        "__parameters__",
        "__qualname__",
        "__repr__",
        "__slots__",
        "__static_attributes__",
        "__str__",
        "__type_params__",
        "__weakref__",
        "_abc_impl",
        "_doc_link_module",
        "_doc_link_template",
        "_sklearn_auto_wrap_output_keys",
    ]
)
# Methods that are called on fitted models, and never during a fit.
_ANSWERS = frozenset(
    [
        "decision_function",
        "predict",
        "predict_interval",
        "predict_log_proba",
        "predict_proba",
        "predict_set",
        "score",
        "score_samples",
    ]
)
# Prefixes of the methods that scikit-learn looks up in a step, whether or not our class has them.
_IN_FITS = ("fit", "partial_fit", "transform", "inverse_transform", "__")


def is_ours(thing: object) -> bool:
    """Whether `thing` is an instance of a class of this package, and not of a subclass."""
    return _of_this_package(type(thing))


def learns_as_ours(thing: object) -> bool:
    """Whether `thing` is ours, or of a subclass that overrides nothing that sees rows in fits."""
    return is_ours(thing) or (ours_in(thing) is not None and not changed_in(thing))


def ours_in(thing: object) -> type | None:
    """The class of this package that `thing` is an instance of, directly or by a subclass."""
    return next(filter(_of_this_package, type(thing).__mro__), None)


def changed_in(thing: object, *, answers: bool = False) -> tuple[str, ...]:
    """Names of what a subclass of our class overrides that handles rows in a fit.

    Such a method may learn from the rows before or after it calls ours, and nothing counts that.
    Methods with a new name are never called by this package. Methods that are only called on fitted
    models are left out unless `answers` is true.
    """
    ours = ours_in(thing)
    if ours is None or ours is type(thing):
        return ()
    others = [kind for kind in type(thing).__mro__ if kind not in ours.__mro__]
    return tuple(name for kind in others for name in vars(kind) if _gets_rows(name, ours, answers))


def told_of_changes(thing: object) -> str:
    """Reason why a subclass of our class does not count as ours, "" for anything else."""
    changed, ours = changed_in(thing), ours_in(thing)
    if ours is None or not changed:
        return ""
    return (
        f" {type(thing).__name__} is made from {ours.__name__}, and its own {changed[0]!r} may do"
        f" more with the rows: leave that to {ours.__name__}."
    )


def _gets_rows(name: str, ours: type, answers: bool) -> bool:
    if name in _NO_ROWS or (name.startswith("set_") and name.endswith("_request")):
        return False
    if name in _ANSWERS:
        return answers
    return name.startswith(_IN_FITS) or hasattr(ours, name)


def _of_this_package(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


# Dask collections ------------------------------------------------------------------------------


def is_collection(value: Any) -> bool:
    """Whether `value` is a Dask array, data frame or series."""
    return "dask" in sys.modules and sys.modules["dask"].is_dask_collection(value)


def is_dataset(value: Any) -> bool:
    """Whether `value` is a dataset of PyArrow."""
    arrow = sys.modules.get("pyarrow.dataset")
    return arrow is not None and isinstance(value, arrow.Dataset)


def is_elsewhere(value: Any) -> bool:
    """Whether `value` represents rows that are not in memory here."""
    return is_collection(value) or is_dataset(value)


def refuse_collection(name: str, value: Any, taker: str = "") -> None:
    """Raise ValueError if `value`, called `name` in messages, is a Dask collection or a dataset.

    `taker` is the name of an estimator that supports neither.
    """
    refused = f"which {taker} does not take" if taker else "which is not taken here"
    if is_dataset(value):
        in_turns = "" if taker else f", or one batch of {name}.to_batches() after another"
        raise ValueError(
            f"`{name}` is a dataset of PyArrow, {refused}: pass {name}.to_table() if it fits into"
            f" memory{in_turns}. (pandas would make floats of whole numbers in a column with"
            " missing values.)"
        )
    if is_collection(value):
        raise ValueError(
            f"`{name}` is a Dask collection, {refused}: pass {name}.compute() if it fits into"
            " memory."
        )


# Frames of others -------------------------------------------------------------------------------


def unwrapped(name: str, value: Any, *, read: bool = True) -> Any:
    """Unwrap a frame of narwhals; ValueError where `value`, called `name`, has no rows yet.

    NumPy silently drops the mask of a masked array, and the entries under the mask are no values.
    If `read` is false, a foreign model reads the rows, and not NumPy.
    """
    if isinstance(value, (str, os.PathLike)):
        raise ValueError(_in_place_of(name, value))
    masked: Any = np.ma.MaskedArray
    if isinstance(value, masked) and np.ma.is_masked(value):
        raise ValueError(
            f"`{name}` has masked entries, which are missing: fill them with a constant that is"
            f" known in advance, as {name}.filled(0.0) does, or drop these rows."
        )
    if type(value).__module__.partition(".")[0] == "narwhals" and hasattr(value, "to_native"):
        value = value.to_native()
    if hasattr(value, "collect_schema") and not hasattr(value, "shape"):
        raise ValueError(f"`{name}` is a lazy frame, which has no rows yet: pass {name}.collect().")
    _refuse_unread(name, value)
    if read:
        _refuse_unreadable(name, value)
    return value


# Libraries and their functions that read files, by the last part of a path.
_READERS = {
    ".csv": "pandas.read_csv",
    ".xlsx": "pandas.read_excel",
    ".json": "pandas.read_json",
    ".feather": "pandas.read_feather",
    ".parquet": "pandas.read_parquet",
    ".npy": "numpy.load",
}


def _in_place_of(name: str, value: str | os.PathLike[str]) -> str:
    """Return an error message for a path, or a name of a column, where rows or columns belong."""
    text = shown(os.fspath(value))
    if name in ("y", "groups") and isinstance(value, str):
        return (
            f"`{name}` is the text {text}. Names of columns are for datasets of PyArrow: pass the"
            f" column itself, {name}=frame[{text}], and leave it out of the rows,"
            f" frame.drop(columns={text})."
        )
    reader = _READERS.get(os.path.splitext(value)[1].lower())
    way_out = f"pass {reader}({text})"
    if reader is None:
        way_out = (
            f"for a folder of Parquet files pass pyarrow.dataset.dataset({text}), and for a single"
            " file what pandas.read_csv or read_parquet makes of it"
        )
    return f"`{name}` is the path {text}, and rows are needed: {way_out}."


def _refuse_unread(name: str, value: Any) -> None:
    """Raise ValueError for rows of other libraries that are neither an array nor columns."""
    kind = type(value)
    if hasattr(kind, "__arrow_c_stream__") and not (
        hasattr(kind, "__array__") or hasattr(kind, "num_rows")
    ):
        raise ValueError(
            f"`{name}` is a stream of Arrow ({kind.__name__}), whose rows can come in another order"
            f" each time they are asked for, or once only: pass pyarrow.table({name})."
        )
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
        raise ValueError(
            f"`{name}` has dictionaries as its rows, and columns are needed: pass"
            f" pandas.DataFrame({name})."
        )


def _refuse_unreadable(name: str, value: Any) -> None:
    """Raise ValueError for a tensor that NumPy cannot read, with calls that convert it."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return
    ways = {
        "detach()": value.requires_grad,
        "to_dense()": value.layout != torch.strided,
        "cpu()": value.device.type != "cpu",
        "float()": value.dtype == torch.bfloat16,
    }
    needed = "".join(f".{way}" for way, is_needed in ways.items() if is_needed)
    if needed:
        raise ValueError(f"`{name}` is a tensor that NumPy does not read: pass {name}{needed}.")
