"""Comparison of a table with a schema, and a draft of a schema from public rows.

Nothing here is private, and no fit uses any of it: :meth:`Schema.check` prints the findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

import numpy as np

from dpsubspace._core.ground.checks import (
    check_integer,
    form_of_both,
    nearest,
    refuse_collection,
    shown,
    unwrapped,
)
from dpsubspace._core.tables.dates import read_dates, text_of
from dpsubspace._core.tables.frames import (
    Coded,
    Numeric,
    checked_frame,
    column_of,
    n_rows,
    names_of,
    read_column,
    times_of,
    what_is,
)
from dpsubspace._core.tables.kinds import Categories, Date, Kind, Range, plain

# Drafts from public rows ------------------------------------------------------------------------
# A draft of a schema from public rows.

# A column is drafted with log=True if its median is in this part of the range: a rule of thumb,
# which was not tuned.
_LOWEST_DRAFTED = 0.1

# Whole numbers up to this are exact in float64.
_WHOLE = 2**53


def drafted(frame: Any, columns: Any, max_categories: int) -> dict[str, Kind]:
    """Draft the kinds of the columns of a public frame."""
    limit, frame = check_integer("max_categories", max_categories, low=2), unwrapped("frame", frame)
    found, wrong = {}, []
    for name in _wanted(frame, columns):
        try:
            found[name] = _kind_of(column_of(frame, name), limit)
        except _NoKindError as error:
            wrong.append(f"{shown(name)} {error}")
    if wrong:
        raise ValueError(
            f"`frame` has columns that no schema can be drafted for: {'; '.join(wrong)}. Leave them"
            " out with `columns`, or add what is known about them to the draft of the others, as in"
            " Schema({**draft, 'age': Range(17, 90)})."
        )
    return found


class _NoKindError(ValueError):
    """A column whose rows show neither a range nor categories; the message describes it."""


def _wanted(frame: Any, columns: Any) -> list[Any]:
    names = names_of(frame)
    if names is None:
        raise ValueError(
            "`frame` must be a data frame of pandas, Polars or Arrow, whose columns have names, as"
            " pandas.DataFrame(rows, columns=[...]) is."
        )
    wanted = names if columns is None else columns
    absent = [name for name in wanted if name not in names] or isinstance(wanted, str)
    if absent:
        raise ValueError(
            f"`columns` must be a list of columns that `frame` has, which are {shown(names)}, got"
            f" {shown(columns)}."
        )
    if twice := [name for name, times in Counter(names).items() if times > 1 and name in wanted]:
        raise ValueError(
            f"`frame` has more than one column with the names {shown(twice)}: rename or drop all"
            " but one of each."
        )
    return list(wanted)


def _kind_of(column: Any, limit: int) -> Kind:
    """Range or categories of a column, by its rows."""
    try:
        times, zoned = times_of(column)
        dates = zoned or times is not None
        found = read_dates(column, "") if dates else read_column(column, "")
        if isinstance(found, Coded) and found.values:
            dates = {what_is(type(value)) for value in found.values} == {"dates or times"}
            found = read_dates(column, "") if dates else found
    except ValueError as error:  # with advice
        raise _NoKindError(str(error).partition(", or leave")[0].strip(" .")) from None
    if dates:
        return _date(found)
    if isinstance(found, Coded):
        missing = bool((found.codes < 0).any())
        kinds = {what_is(type(value)) for value in found.values}
        bools = set(map(type, found.values)) <= {bool, np.bool_}
        if kinds and (kinds == {"text"} or bools or (kinds == {"numbers"} and found.declared)):
            return _categories({plain(value) for value in found.values}, missing, limit)
        if kinds - {"numbers"}:
            raise _NoKindError(f"holds {' and '.join(sorted(kinds))}")
        return _range(np.array(found.values, dtype=np.float64), missing)
    missing = bool(found.missing.any())
    values = found.values[~found.missing]
    if values.dtype.kind == "b" and len(values):
        return _categories({False, True}, missing, limit)
    return _range(values.astype(np.float64), missing)


def _categories(values: set[Any], missing: bool, limit: int) -> Categories:
    if len(values) > limit:
        texts = " (text that is not repeated is Text(), of dpsubspace.tables)"
        texts = texts if all(isinstance(value, str) for value in values) else ""
        raise _NoKindError(f"has {len(values)} different values, and max_categories={limit}{texts}")
    if len(values) < 2:
        raise _NoKindError("has one value in all rows")
    return Categories(tuple(sorted(values)), missing=missing)


def _range(values: np.ndarray, missing: bool) -> Range:
    values = values[np.isfinite(values)]
    if not len(values):
        raise _NoKindError("has no value in any row")
    if values.min() == values.max():
        raise _NoKindError("has one value in all rows")
    low, high = outward(float(values.min()), float(values.max()))
    try:
        return Range(low, high, log=_is_skewed(values, low, high), missing=missing)
    except ValueError as error:
        raise _NoKindError(f"has no range: {error}") from None


def _date(found: Any) -> Date:
    range_of_days = _range(found.values[~found.missing].astype(float), bool(found.missing.any()))
    first, last = map(text_of, range_of_days._ends)
    return Date(first, last, missing=range_of_days.missing)


def outward(low: float, high: float) -> tuple[float, float]:
    """Ends of a range rounded outward to two digits of its width, as int where they are whole."""
    with localcontext() as context:
        context.prec = 700  # all digits of any two float64 and of their difference
        ends = Decimal(repr(low)), Decimal(repr(high))
        step = Decimal(1).scaleb((ends[1] - ends[0]).adjusted() - 1)
        ways = (ROUND_FLOOR, ROUND_CEILING)
        found = [
            (end / step).to_integral_value(way) * step for end, way in zip(ends, ways, strict=True)
        ]
        whole = [end == int(end) and abs(end) <= _WHOLE for end in found]
        low, high = (
            int(e) if is_whole else float(e) for e, is_whole in zip(found, whole, strict=True)
        )
    return low, high


def _is_skewed(values: np.ndarray, low: float, high: float) -> bool:
    """Whether the median lies in the lowest part of the range.

    Many equal values at the low end, such as zeros in a column of gains, are left out.
    """
    middle = float(np.median(values[values > values.min()]))
    return middle < low + _LOWEST_DRAFTED * (high - low)


# Agreement with a schema ------------------------------------------------------------------------

NOT_PRIVATE = (
    "These figures are exact, and not private: show them to nobody who may not see the rows. A"
    " schema that is changed because of them has looked at these rows, and no guarantee covers"
    " that. Check a schema on public or made-up rows wherever you can."
)

# Thresholds of advice about a range that is wider than its values: the values, without the
# outermost hundredth at either end, fill less than _NARROW of it, or half of them lie in its lowest
# tenth.
_NARROW, _OUTER, _LOWEST = 0.2, 0.01, 0.1
# Most values of a column that a message names, and fewest rows for guesses about ids and labels.
_MOST, _FEWEST = 5, 20
# Most different texts that may be categories.
_FEW_TEXTS = 20
# Most distinct values beyond an end of a range that may be codes of missing values.
_CODES = 2


def findings(frame: Any, schema: Mapping[str, Kind], y: Any) -> Iterator[tuple[str, str]]:
    """Yield findings as pairs of a column ("" for the whole table) and a sentence."""
    refuse_collection("X", frame)
    frame, y = checked_frame(frame, "X"), unwrapped("y", y)
    columns = _columns(frame, schema)
    targets = None if y is None else read_column(_as_column(y), "`y`")
    if targets is not None and len(_ids(targets)) != n_rows(frame):
        raise ValueError(f"`y` has {len(_ids(targets))} values, and `X` has {n_rows(frame)} rows.")
    for name, kind in schema.items():
        if name not in columns:
            close = nearest(name, names_of(frame) or [])
            form = form_of_both(name, close) if close else None
            hint = f" Did you mean {shown(close)}?" if close else ""
            hint = f" {looks_alike(close, name, form)}" if close and form else hint
            yield name, f"is no column of the table.{hint}"
            continue
        try:
            found = kind._read(columns[name], "the column")
        except ValueError as error:
            yield name, f"cannot be read: {error}"
            continue
        for finding in _of_column(found, kind, targets):
            yield name, finding
    left_out = [name for name in names_of(frame) or () if name not in schema]
    if left_out:
        yield "", f"The schema does not name {shown(left_out)}, and models do not use them."


def _columns(frame: Any, schema: Mapping[str, Kind]) -> dict[str, Any]:
    """Columns by name; for an array, which has no names, in the order of the schema."""
    names = names_of(frame)
    if names is not None:
        return {name: column_of(frame, name) for name in schema if names.count(name) == 1}
    if frame.shape[1] != len(schema):
        raise ValueError(
            f"`X` has no column names and {frame.shape[1]} columns, and the schema has"
            f" {len(schema)}: pass a data frame, or the columns of the schema in its order."
        )
    return {name: frame[:, place] for place, name in enumerate(schema)}


def _as_column(y: Any) -> Any:
    """Labels or targets as a column of a library or of NumPy."""
    if hasattr(y, "dtype") and len(getattr(y, "shape", (0,))) == 1:
        return y
    if hasattr(y, "dictionary_encode"):
        return y
    array = np.asarray(y)
    if array.ndim != 1:
        raise ValueError(f"`y` must have one dimension here, got {array.ndim}.")
    return array


def _of_column(
    found: Numeric | Coded, kind: Kind, targets: Numeric | Coded | None
) -> Iterator[str]:
    missing = found.missing if isinstance(found, Numeric) else found.codes < 0
    if missing.all():
        yield "is missing in all rows: leave it out of the schema."
        return
    if missing.any() and not kind.missing and not kind._textual:
        yield f"{_share(missing)} missing, and the schema declares none: write missing=True."
    if kind.missing and not missing.any():
        yield "is declared with missing=True, and no row misses it."
    if kind._textual:
        yield from _of_texts(found)
        return
    if kind._categorical:
        yield from _of_categories(found, kind)
    else:
        yield from _of_numbers(found, kind)
    yield from _that_tell_who(found, kind, targets)


# One kind of column -----------------------------------------------------------------------------


def _of_numbers(found: Numeric | Coded, kind: Kind) -> Iterator[str]:
    values = _numbers(found)
    if values is None:
        yield "holds values that are no numbers, and the schema says that it has numbers."
        return
    values = values[~np.isnan(values)]
    if values.min() == values.max():
        yield "has the same value in all rows: leave it out of the schema."
        return
    if kind._ends is None:
        return
    low, high = kind._ends
    below, above = values < low, values > high
    if below.any():
        end = kind._said(low)
        yield f"{_share(below)} below {end}, and counted as {end}{_alike(values[below], kind)}."
    if above.any():
        end = kind._said(high)
        yield f"{_share(above)} above {end}, and counted as {end}{_alike(values[above], kind)}."
    if kind.log:
        return
    cut, width = np.clip(values, low, high), float(high) - float(low)
    used = np.ptp(np.quantile(cut, [_OUTER, 1 - _OUTER])) / width
    # Values that are all at the low end look alike on any scale.
    skewed = low < np.median(cut) < low + _LOWEST * width and not kind._parts
    if skewed and used > _NARROW:
        yield "has half of its values in the lowest tenth of the range: log=True may suit it."
    elif used < _NARROW:
        yield f"has nearly all of its values in {used:.1%} of the range: it is wider than needed."


def _alike(outside: np.ndarray, kind: Kind) -> str:
    """Advice where values outside of a range are the same few again and again."""
    values, counts = np.unique(outside, return_counts=True)
    if counts.min() < 2 or len(values) > _CODES:
        return ""
    each = " or ".join(map(kind._said, values))
    return (
        f": all of them are {each}. If that stands for missing values, make them missing in the"
        " table, and write missing=True"
    )


def _of_categories(found: Numeric | Coded, kind: Any) -> Iterator[str]:
    counts = _counts(found)
    known = {value: counts.get(value, 0) for value in kind.values}
    unknown = {value: count for value, count in counts.items() if value not in known}
    if unknown:
        most = sorted(unknown, key=lambda value: -unknown[value])
        told = [f"{shown(v)} ({unknown[v]:,}{_close(v, kind)})" for v in most[:_MOST]]
        more = f" and {len(most) - _MOST:,} more" if len(most) > _MOST else ""
        total, n = sum(unknown.values()), sum(counts.values())
        yield (
            f"{total:,} of {n:,} values ({total / n:.1%}) are not among the categories, and"
            f" are treated as unknown: {', '.join(told)}{more}."
        )
    if never := [value for value, count in known.items() if not count]:
        yield f"no row has one of the categories {shown(never)}."


def _of_texts(found: Numeric | Coded) -> Iterator[str]:
    counts = _counts(found)
    if {what_is(type(value)) for value in counts} - {"text"}:
        yield "holds values that are no text, and the schema says that it has text."
    elif len(counts) <= _FEW_TEXTS < len(_ids(found)):
        few = sorted(counts)[:_MOST]
        yield f"has {len(counts)} different values, such as {shown(few)}: Categories suit it."


def _close(value: Any, kind: Any) -> str:
    """Advice with the category that a text may be meant for, if there is one."""
    if isinstance(value, str) and value.strip() != value and value.strip() in kind.values:
        return f", which is {shown(value.strip())} with a blank before or after it"
    close = nearest(value, kind.values) if isinstance(value, str) else None
    form = form_of_both(value, close) if close else None
    other = f", with other characters: write both in Unicode's form {form}" if form else ""
    return f", probably {shown(close)}{other}" if close else ""


def looks_alike(name: str, of_schema: str, form: str) -> str:
    """Advice about a column name that looks like one of the schema and is another text.

    Both are shown as they look, with the numbers of the characters that differ.
    """
    return (
        f"The name {shown(name)} of a column looks like {shown(of_schema)} in the schema and is"
        f" written with other characters of Unicode, {name!a} and {of_schema!a}: apply"
        f" unicodedata.normalize({form!r}, name) to both."
    )


def _that_tell_who(
    found: Numeric | Coded, kind: Kind, targets: Numeric | Coded | None
) -> Iterator[str]:
    """Guesses about columns that do not belong into a model: ids, and the label itself."""
    ids, numbers = _ids(found), _numbers(found)
    n, distinct = len(ids), len(np.unique(ids[ids >= 0]))
    if n < _FEWEST or distinct < 2:
        return
    whole = numbers is None or bool((numbers == np.round(numbers)).all())
    if distinct == n and whole and not kind._parts:
        yield "has another value in every row: is it an id? Then leave it out of the schema."
    if targets is not None and (_same(numbers, _numbers(targets)) or _tells(ids, _ids(targets))):
        yield "determines `y` in all rows: is it the label, or known only after it?"


def _same(numbers: np.ndarray | None, targets: np.ndarray | None) -> bool:
    """Whether a column of numbers is the target itself, possibly in another unit."""
    if numbers is None or targets is None or np.ptp(numbers) == 0 or np.ptp(targets) == 0:
        return False
    return bool(abs(np.corrcoef(numbers, targets)[0, 1]) > 1 - 1e-9)  # False if a value is missing


def _tells(ids: np.ndarray, labels: np.ndarray) -> bool:
    """Whether each value of a column that many rows share occurs with only one label."""
    distinct = len(np.unique(ids))
    pairs = len(np.unique(np.column_stack([ids, labels]), axis=0))
    return pairs == distinct <= len(ids) / 2 and len(np.unique(labels)) > 1


# Values -----------------------------------------------------------------------------------------


def _share(rows: np.ndarray) -> str:
    return f"{int(rows.sum()):,} of {len(rows):,} values ({rows.mean():.1%}) are"


def _numbers(found: Numeric | Coded) -> np.ndarray | None:
    """A column as float64 with NaN; None where a value is not a number."""
    if isinstance(found, Numeric):
        return np.where(found.missing, np.nan, found.values.astype(np.float64))
    if {what_is(type(value)) for value in found.values} - {"numbers"}:
        return None
    return np.append(np.array(found.values, dtype=np.float64), np.nan)[found.codes]


def _counts(found: Numeric | Coded) -> dict[Any, int]:
    if isinstance(found, Coded):
        counts = np.bincount(found.codes[found.codes >= 0], minlength=len(found.values))
        return {v: int(c) for v, c in zip(found.values, counts, strict=True) if c}
    values, counts = np.unique(found.values[~found.missing], return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _ids(found: Numeric | Coded) -> np.ndarray:
    """One whole number for each value, -1 where it is missing."""
    if isinstance(found, Coded):
        return found.codes
    codes = np.unique(found.values, return_inverse=True)[1].reshape(-1)
    return np.where(found.missing, -1, codes)
