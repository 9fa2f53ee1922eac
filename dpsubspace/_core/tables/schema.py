"""Public facts about the columns of a table, as an object or a file, and rows read by them.

Rows may be stored elsewhere (:func:`table_in_parts`): tables of Dask collections are read by a
schema partition by partition, on the workers. This module also computes the distribution of the
values of a column from a released mean of features (:func:`frequencies`).

Privacy, of tables in parts: the result for a row depends on that row and on the schema, which is
public (:func:`read_table`): the value of a row after reading depends on that row and on the types
of the columns alone. So it does not matter in which partition a row lies, and a record that changes
affects the results for its own rows only. Dask itself converts whole numbers to floats in a
partition where one is missing. This changes no number below 2^53, and for a range it gives the same
as the conversion to float that follows anyway. Categories beyond that are refused by type
(:func:`check_types`). Where rows belong to persons, a record is all rows of one person. They are
moved to one part by the name of the person (``_core/rows/together.py``), as read by the schema, and
further results are the same as in memory: estimated ranges, counts and the model have the bounds
for persons that they have in memory (``_core/rows/records.py``).

Design note. Rows in parts are moved together before they are encoded. The resolution of the
encoding depends on the number of persons, which is known only then, and on ranges, which are
estimated from persons. And the numbers and codes of a row take a few times less memory than its
features.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, cast

import numpy as np
from scipy.optimize import nnls

from dpsubspace._core.accounting.payer import observe
from dpsubspace._core.ground.checks import (
    check_integer,
    form_of_both,
    is_dataset,
    is_elsewhere,
    nearest,
    read_file,
    read_json,
    refuse_collection,
    shown,
    shown_first,
    write_file,
)
from dpsubspace._core.ground.forms import Form, Reading
from dpsubspace._core.rows.dataset_parts import DatasetColumns
from dpsubspace._core.rows.elsewhere import load
from dpsubspace._core.rows.records import check_order, split_groups
from dpsubspace._core.rows.remote import CODES, ROWS, TARGETS, rowwise
from dpsubspace._core.tables.check import NOT_PRIVATE, drafted, findings, looks_alike
from dpsubspace._core.tables.frames import (
    checked_frame,
    column_of,
    holds_floats,
    n_rows,
    names_of,
    typical_of,
)
from dpsubspace._core.tables.kinds import (
    KINDS,
    Categories,
    Kind,
    Range,
    about_dates,
    check_told_apart,
    family,
    plain,
    type_of_codes,
)
from dpsubspace._names import public
from dpsubspace.exceptions import PrivacyWarning, warn

_FORMAT = "urn:dpsubspace:table-schema:1"

# Share of missing values in made-up columns that declare them; and a part of the seed of such rows,
# so that what a user draws with the same seed beside them does not follow from them.
_GONE, _OWN = 0.1, 55

# A schema of more than one line is printed with a line for each column.
_LINE = 88

# Names of columns, in small letters and digits, that say who a row belongs to. Some of these words
# are also columns of yes and no, such as "student", and need "id" or the like. The last ones are of
# medical standards and of UK Biobank.
_OF_PERSONS = re.compile(
    "(patient|person|subject|participant|respondent)(id|no|nr|num|number|key|code)?"
    "|(individual|customer|client|user|member|employee|student|pupil)(id|no|nr|num|number|key|code)"
    "|mrn|pid|patid|u?subjid|eid"
)


@public
class Schema(Mapping[str, Kind]):
    """What is public about the columns of a table.

    A schema names the columns that a model may use, and says of each what is known without
    looking at the private rows: the range of its numbers, or its categories. Columns of a table
    that the schema does not name are not used.

    Parameters
    ----------
    columns : dict of str to Range, PrivateRange, Date, Categories or Text
        The columns by name, in the order in which they are encoded. A tuple of two numbers is
        short for :class:`Range`, and a list is short for :class:`Categories`.

    Attributes
    ----------
    numbers : tuple of str
        Names of the columns with a range, public or private, and of those with dates, in order.
    categories : tuple of str
        Names of the columns with categories, in order.
    texts : tuple of str
        Names of the columns of text, in order.
    private_ranges : tuple of str
        Names of the columns whose range is estimated privately, in order.

    See Also
    --------
    Range : A column of numbers whose range is public.
    PrivateRange : A column of numbers whose range is estimated privately.
    Date : A column of dates whose first and last day are public.
    Categories : A column with a few values that are known.
    Text : A column of text, such as notes.

    Notes
    -----
    Never write a schema from the private rows. The smallest and the largest value of a column are
    each the value of one person, and a list of the values that occur says that somebody has each
    of them. Nothing protects what a schema tells: the guarantee of a model counts it as public.

    A table that does not fit its schema is refused with an error, for example one that misses
    values where the schema declares none. The guarantee counts as public that the private rows
    pass these checks.

    A schema is a mapping that cannot be changed. Two of them are equal if they have the same
    columns in the same order.

    Examples
    --------
    >>> from dpsubspace import PrivateRange, Range, Schema
    >>> schema = Schema(
    ...     {"age": Range(17, 90), "hours": (0, 99), "dose": PrivateRange(), "sex": ["f", "m"]}
    ... )
    >>> schema["sex"]
    Categories(['f', 'm'])
    >>> schema.numbers
    ('age', 'hours', 'dose')
    >>> Schema.from_json(schema.to_json()) == schema
    True
    """

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, Any]):
        if not isinstance(columns, Mapping):
            raise TypeError(
                "`schema` must be a Schema, or a dict from the names of columns to Range,"
                f" PrivateRange or Categories such as {{'age': Range(17, 90)}}, got"
                f" {shown(columns)}. Schema.from_json(path) reads one from a file."
            )
        if not columns:
            raise ValueError(
                "`schema` is empty: name at least one column, such as {'age': Range(17, 90)}."
            )
        object.__setattr__(self, "_columns", _kinds(columns))

    # An immutable mapping -------------------------------------------------------------------

    def __getitem__(self, name: str) -> Kind:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("A Schema cannot be changed: make a new one, Schema({**schema, ...}).")

    def __reduce__(self) -> tuple[type, tuple[dict[str, Kind]]]:
        return type(self), (dict(self._columns),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return list(self.items()) == list(other.items())

    def __hash__(self) -> int:
        return hash(tuple(self.items()))

    def __repr__(self) -> str:
        columns = [f"{name!r}: {kind!r}" for name, kind in self.items()]
        line = f"Schema({{{', '.join(columns)}}})"
        if len(line) <= _LINE:
            return line
        return "Schema({\n" + "".join(f"    {column},\n" for column in columns) + "})"

    # Contents -------------------------------------------------------------------------------

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the columns with a range, public or private, and with dates, in order."""
        of_kinds = self.items()
        return tuple(a for a, kind in of_kinds if not (kind._categorical or kind._textual))

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of the columns with categories, in order."""
        return tuple(name for name, kind in self.items() if kind._categorical)

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of the columns of text, in order."""
        return tuple(name for name, kind in self.items() if kind._textual)

    @property
    def private_ranges(self) -> tuple[str, ...]:
        """Names of the columns whose range is estimated privately, in order."""
        kinds = self._columns
        return tuple(name for name in self.numbers if kinds[name]._ends is None)

    @property
    def bought(self) -> tuple[str, ...]:
        """Deprecated name of `private_ranges`."""
        warnings.warn(
            "`Schema.bought` is called `private_ranges` now; the old name goes in version 0.3.",
            FutureWarning,
            stacklevel=2,
        )
        return self.private_ranges

    # Comparison with a table ----------------------------------------------------------------

    def check(self, X: Any, y: Any = None) -> None:
        """Print where a table does not agree with the schema. Exact, and not private.

        It finds misspelled categories, values outside of ranges, ranges that are much too wide,
        columns that are missing in all rows, and columns that look like an id or like the label.
        Run it on public rows, or on rows that you have made up as you expect the private ones to
        be.

        Parameters
        ----------
        X : data frame of n_samples rows, of pandas, Polars or Arrow
            Rows to check. On private rows, the findings are for those alone who may see the rows.
        y : array-like of shape (n_samples,), optional
            Labels or targets, to find a column that tells them exactly.

        Raises
        ------
        ValueError
            If `X` is no table, or `y` has another length.

        Notes
        -----
        What is printed is exact. No guarantee covers it, or a schema that was changed because of
        it. A fit reads such values without a word: saying how many there are would cost privacy.
        Inside of a :class:`PrivacyLedger`, the ledger and its report say that this was run.

        Examples
        --------
        >>> import pandas as pd
        >>> from dpsubspace import Range, Schema
        >>> rows = pd.DataFrame({"age": [30, 45, 130], "ward": ["A", "B", "b"]})
        >>> schema = Schema({"age": Range(18, 95), "ward": ["A", "B"]})
        >>> schema.check(rows)  # doctest: +ELLIPSIS
        age: 1 of 3 values (33.3%) are above 95, and counted as 95.
        ward: 1 of 3 values (33.3%) are not among the categories, and are treated as unknown: 'b' (1, probably 'B').
        These figures are exact, and not private: ...
        """  # noqa: E501 - what is printed
        found = list(findings(X, self, y))
        observe("look", "Schema.check")
        for name, finding in found:
            print(f"{name}: {finding}" if name else finding)
        if not found:
            print("The table agrees with the schema.")
        print(NOT_PRIVATE)

    # Made-up rows ---------------------------------------------------------------------------

    def example(self, n: int, *, random_state: int | None = None) -> Any:
        """Make up rows from the schema alone: public, and free.

        With them, code can be written and tried before access to the private rows is granted.

        Parameters
        ----------
        n : int
            Number of rows.
        random_state : int or None, default=None
            Seed of the rows. None makes others in each call. Nothing here needs to be secret.

        Returns
        -------
        DataFrame of n rows
            A data frame of pandas with the columns of the schema, in its order. Numbers and dates
            are spread evenly over their range, on a logarithmic scale where the schema has
            ``log=True``, and are whole numbers where both ends are written as such. Where a range
            is to be estimated privately, nothing is known of it, and numbers lie between 0 and 100.
            Categories all have the same chance, and texts are words of a public list. A tenth of
            the values is missing in columns that declare missing values.

        Notes
        -----
        Columns are drawn independently: no column tells anything about another, and the score of
        a model of such rows tells nothing about the real ones.

        Examples
        --------
        >>> from dpsubspace import Range, Schema
        >>> schema = Schema({"age": Range(17, 90), "ward": ["A", "B"], "readmitted": ["no", "yes"]})
        >>> rows = schema.example(1000, random_state=0)
        >>> X, y = rows[["age", "ward"]], rows["readmitted"]
        >>> bool(X["age"].between(17, 90).all()), sorted(set(y))
        (True, ['no', 'yes'])
        """
        import pandas as pd

        check_integer("n", n, low=1)
        if random_state is not None:
            check_integer("random_state", random_state, low=0)
        seed = None if random_state is None else [random_state, _OWN]
        rng, columns = np.random.default_rng(seed), {}
        for name, kind in self.items():
            column = pd.Series(kind._drawn(n, rng), name=name)
            gone = rng.random(n) < _GONE * kind.missing
            # Types of pandas with missing values keep whole numbers, and True and False.
            columns[name] = column.convert_dtypes().mask(gone) if kind.missing else column
        return pd.DataFrame(columns)

    # Files ----------------------------------------------------------------------------------

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write the schema as JSON.

        Parameters
        ----------
        path : str or path, optional
            File to write as well.

        Returns
        -------
        str
            The JSON, which :meth:`from_json` reads.
        """
        text = json.dumps(schema_fields(self), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        if path is not None:
            write_file(path, text)
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> Schema:
        """Read a schema from JSON.

        Parameters
        ----------
        source : str or path
            The JSON, or the path of a file with it, as :meth:`to_json` writes it.

        Returns
        -------
        Schema
            The schema, with the values of categories of the types that they had.

        Raises
        ------
        ValueError
            If it is not the JSON of a schema. The message says what is wrong.
        """
        is_text = isinstance(source, str) and source.lstrip().startswith("{")
        name = "the JSON" if is_text else repr(os.fspath(source))
        try:
            text = source if is_text else read_file(source)
            return schema_of(read_json(str(text)))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{name} cannot be read as a schema: {error} Write it with Schema.to_json(path)."
            ) from error

    @classmethod
    def from_public(cls, frame: Any, *, columns: Any = None, max_categories: int = 100) -> Schema:
        """Draft a schema from public rows, never from private ones.

        Print the draft and correct it by hand. A range from a code book is better than what some
        rows show, and numbers that stand for categories are drafted as a range.

        Parameters
        ----------
        frame : data frame of pandas, Polars or Arrow
            Public rows. Never pass the private rows here. The smallest and the largest value of a
            column are each the value of one person, and a category that occurs says that somebody
            has it. No guarantee would cover what the schema then tells.
        columns : list of str, optional
            Columns to draft. None drafts all.
        max_categories : int, default=100
            Most values that a column of categories can have.

        Returns
        -------
        Schema
            For a column of numbers a :class:`Range` around its values, rounded outward to two
            digits of its width, with ``log=True`` where the middle value lies in its lowest tenth.
            For dates, :class:`Date` around them, likewise. For text, True and False, and types of
            the library for categories, :class:`Categories` with the values that occur. All have
            ``missing=True`` where values are missing.

        Raises
        ------
        ValueError
            If a column cannot be drafted. The message names the columns, and what to do.
        """
        return cls(drafted(frame, columns, max_categories))


def as_schema(schema: Any) -> Schema:
    return schema if isinstance(schema, Schema) else Schema(schema)


def with_texts(texts: tuple[str, ...], why: str) -> ValueError:
    """Error for columns of text where a schema may have none."""
    return ValueError(
        f"`schema` has the columns {shown(list(texts))} of Text, and {why}: leave them out, as in"
        " {name: kind for name, kind in schema.items() if name not in schema.texts}."
    )


# Short forms ------------------------------------------------------------------------------------


def _kinds(columns: Mapping[str, Any]) -> dict[str, Kind]:
    """Parse the kinds of all columns; one error lists all columns whose kind is unclear."""
    found, wrong = {}, []
    for name, kind in columns.items():
        try:
            found[_name(name)] = _kind(name, kind)
        except (TypeError, ValueError) as error:
            wrong.append(error)
    if wrong:
        raise _together(wrong)
    return found


def _together(errors: list[Any]) -> Exception:
    """Join several errors into one, with a line for each message."""
    return errors[0] if len(errors) == 1 else type(errors[0])("\n".join(map(str, errors)))


def _name(name: Any) -> str:
    if isinstance(name, str) and name:
        return str(name)
    raise ValueError(
        f"`schema` has the column name {shown(name)}, and names must be text: rename the columns of"
        " the table first, for example frame.columns = ['age', ...]."
    )


def _kind(name: str, kind: Any) -> Kind:
    """Parse the kind of a column, which may be in a short form."""
    if isinstance(kind, Kind):
        return kind
    about = f"`schema` says {shown(kind)} about the column {shown(name)}"
    if isinstance(kind, type) and issubclass(kind, Kind):
        raise TypeError(
            f"`schema` gives the class {kind.__name__} for the column {shown(name)}: write"
            f" {kind.__name__}(...) with brackets."
        )
    if not isinstance(kind, (tuple, list)):
        raise TypeError(
            f"{about}: write Range(low, high), PrivateRange() or Categories([...]). A tuple"
            " (low, high) is short for a range, and a list is short for categories."
        )
    numbers = [family(plain(value)) == "number" for value in kind]
    if isinstance(kind, tuple) and (len(kind) != 2 or not all(numbers)):
        raise ValueError(
            f"{about}: a tuple is short for a range and must be two numbers, (low, high). A list is"
            f" short for categories.{about_dates(*kind)}"
        )
    if isinstance(kind, list) and len(kind) == 2 and all(numbers):
        ends, pair = shown(sorted(kind))[1:-1], shown(kind)[1:-1]
        raise ValueError(
            f"{about}, which could be a range or two categories: write Range({ends}) or"
            f" Categories([{pair}])."
        )
    try:
        return Range(*kind) if isinstance(kind, tuple) else Categories(tuple(kind))
    except ValueError as error:
        raise ValueError(f"{about}: {error}") from None


# JSON -------------------------------------------------------------------------------------------

_KINDS: dict[str, Any] = {kind._in_files: kind for kind in KINDS}
_RENAMED = {"buy": "private_range"}  # files of version 0.1.0


def schema_fields(schema: Schema) -> dict[str, Any]:
    """Fields of the JSON of a schema, for :func:`schema_of`."""
    return {"schema": _FORMAT, "columns": [_fields(*item) for item in schema.items()]}


def schema_of(whole: Any) -> Schema:
    """Build a schema from parsed JSON; ValueError or TypeError where it is not valid."""
    return Schema(_columns_written(whole))


class _SchemaForm(Form):
    def plain(self, value: Schema) -> dict[str, Any]:
        return schema_fields(value)

    def read(self, plain: Any, here: Reading) -> Schema:
        try:
            return schema_of(plain)
        except (ValueError, TypeError) as error:
            raise ValueError(f"`{here.where}` is no schema: {error}") from None


SCHEMA_FORM = _SchemaForm()


def _fields(name: str, kind: Any) -> dict[str, Any]:
    values = {field.name: getattr(kind, field.name) for field in fields(kind)}
    plain = {key: [*value] if isinstance(value, tuple) else value for key, value in values.items()}
    return {"name": name, "kind": kind._in_files, **plain}


def _columns_written(whole: Any) -> dict[str, Kind]:
    """Columns of parsed JSON; ValueError where it has another form."""
    if not isinstance(whole, dict) or whole.get("schema") != _FORMAT:
        found = whole.get("schema") if isinstance(whole, dict) else None
        raise ValueError(f"its `schema` is {shown(found)}, not {_FORMAT!r}.")
    if whole.keys() != {"schema", "columns"} or not isinstance(whole["columns"], list):
        raise ValueError("it must have `schema` and a list of `columns`, and nothing else.")
    columns = {}
    for entry in whole["columns"]:
        name, kind = _column_of(entry)
        if name in columns:
            raise ValueError(f"it names the column {shown(name)} twice.")
        columns[name] = kind
    return columns


def _column_of(entry: Any) -> tuple[str, Kind]:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(name, str):
        raise ValueError(
            f"each of its `columns` must be an object with a `name`, not {shown(entry)}."
        )
    known = entry.get("kind")
    known = _RENAMED.get(known, known) if isinstance(known, str) else known
    if not isinstance(known, str) or known not in _KINDS:
        raise ValueError(
            f"the column {shown(name)} must be of a `kind` in {list(_KINDS)}, not {shown(known)}."
        )
    values = {field: value for field, value in entry.items() if field not in ("name", "kind")}
    needed = [field.name for field in fields(_KINDS[known])]
    if set(values) != set(needed):
        raise ValueError(
            f"the column {shown(name)} must have the fields {needed}, and has {list(values)}."
        )
    if not isinstance(values.get("values", []), list):
        raise ValueError(f"the `values` of the column {shown(name)} must be a list.")
    try:
        return name, _KINDS[known](**values)
    except ValueError as error:
        raise ValueError(f"the column {shown(name)}: {error}") from None


# Tables -----------------------------------------------------------------------------------------
# Rows of a table as numbers and codes: from pandas, Polars or Arrow, or an array without names.
#
# Design note. Columns are read by name and one by one, so that a table is never copied as a whole,
# and columns that the schema does not name are never read. The result for a row depends on that row
# alone, with one exception: an error reveals that some row has a missing value, or a text, where
# the schema has none. So the guarantee assumes that the rows pass these checks. The message
# contains no value and no number of rows, to keep this assumption as small as possible.


@dataclass(frozen=True, eq=False)
class Table:
    # (n, d), float64: columns of numbers in the order of the schema. Values outside of a public
    # range are moved to its nearer end, also infinity, which becomes the largest number where the
    # range is estimated. NaN where a value is missing, only in columns that declare missing values.
    numbers: np.ndarray
    # (n, c), integers: the position of each value among the categories, UNKNOWN where it is none of
    # them, and MISSING where it is missing, only in columns that declare missing values.
    codes: np.ndarray
    # Features of each column of text, as CSR arrays (n, n_features) in float64: rows of norm 1, or
    # zeros where a text has no words or is missing.
    texts: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of columns of the schema."""
        return len(self.numbers), self.numbers.shape[1] + self.codes.shape[1] + len(self.texts)

    def compared(self, some: Any = slice(None)) -> np.ndarray:
        """Numbers that distinguish some rows: one for each column, and the same for equal texts."""
        texts = [each[some] @ _direction(each.shape[1]) for each in self.texts]
        return np.column_stack([self.numbers[some], self.codes[some], *texts])


@lru_cache(maxsize=8)
def _direction(n_features: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=n_features)


def no_rows(schema: Schema) -> Table:
    """A table without rows."""
    numbers, categories = len(schema.numbers), len(schema.categories)
    texts = np.empty((0, len(schema.texts)), dtype=object)
    codes = np.empty((0, categories), dtype=np.intp)
    return Table(np.empty((0, numbers)), codes, _hashed(texts, schema))


def _hashed(texts: np.ndarray, schema: Schema) -> tuple[Any, ...]:
    """Features of texts (n, t), column by column."""
    kinds: dict[str, Any] = dict(schema)
    return tuple(kinds[name]._hashed(texts[:, i]) for i, name in enumerate(schema.texts))


def read_table(
    frame: Any,
    schema: Schema,
    *,
    name: str = "X",
    empty: bool = False,
    kept: bool = False,
    named: bool = False,
) -> Table:
    """Read the rows of `frame` by `schema`.

    Columns are selected by name. An array, which has no names, must have as many columns as the
    schema, in its order; if it must be `named`, since other tables of the same fit are reordered by
    name, it is refused. Messages call the table `name`. With `empty` there may be no rows. A table
    that is `kept` for the whole fit has codes of the smallest type.

    ValueError if a column is absent, occurs twice, has another type than in the schema, or misses
    values that the schema does not declare. Messages name columns, and no value.
    """
    refuse_collection(name, frame)
    frame = checked_frame(frame, name)
    columns = _columns(frame, schema, name, named=named)
    n = n_rows(frame)
    if not (n or empty):
        raise ValueError(
            f"Found array with 0 sample(s) (shape=(0, {len(schema)})) while a minimum of 1 is"
            f" required: `{name}` has no rows."
        )
    # Columns are written one by one, and each of them is contiguous.
    numbers = np.empty((n, len(schema.numbers)), order="F")
    integers = type_of_codes(schema.values()) if kept else np.dtype(np.intp)
    codes = np.empty((n, len(schema.categories)), dtype=integers, order="F")
    names = schema.texts
    texts = np.empty((n, len(names)), dtype=object, order="F")
    written = {column: numbers[:, place] for place, column in enumerate(schema.numbers)}
    written |= {column: codes[:, place] for place, column in enumerate(schema.categories)}
    written |= {column: texts[:, place] for place, column in enumerate(names)}
    try:
        for column, kind in schema.items():
            kind._write(*_read(columns, column, kind, name), written[column])
    except ValueError:
        _check_all_types(columns, schema, name)
        raise
    return Table(numbers, codes, _hashed(texts, schema) if names else ())


def _read(columns: Mapping[str, Any], column: str, kind: Kind, name: str) -> tuple[Any, str]:
    """Return a column, and its name in messages."""
    label = f"Column {shown(column)} of `{name}`"
    return kind._read(columns[column], label), label


def _check_all_types(columns: Mapping[str, Any], schema: Schema, name: str) -> None:
    """Raise ValueError that lists all columns of another type than in the schema.

    Types are public, unlike values. So an error about types lists all columns, and an error about
    values names only the first, so that it reveals nothing about the others.
    """
    wrong, typical = [], {column: typical_of(values) for column, values in columns.items()}
    for column, kind in schema.items():
        try:
            found, label = _read(typical, column, kind, name)
            out = np.empty(len(typical[column]), dtype=object if kind._textual else float)
            kind._write(found, label, out)
        except ValueError as error:
            wrong.append(error)
    if wrong:
        raise _together(wrong) from None


def warn_of_persons(frame: Any, schema: Schema, groups: Any) -> None:
    """Warn if a column or an index that is not in the schema is named like one of persons.

    Names are public. Whether a person has several rows is not, and no value is looked at.
    """
    names = list(frame.schema.names) if is_dataset(frame) else names_of(frame) or []
    index = getattr(getattr(frame, "_meta", frame), "index", None)  # of pandas, or of Dask
    names = [name for name in [*names, *getattr(index, "names", ())] if isinstance(name, str)]
    plain = {name: re.sub(r"[\W_]", "", name.lower()) for name in names if name not in schema}
    found = next((name for name in plain if _OF_PERSONS.fullmatch(plain[name])), None)
    if groups is None and found is not None:
        warn(
            f"the table has {found!r}, which is not in the schema, and there are no `groups`: each"
            " row counts as another person, in n, in intervals and in the guarantee. If somebody"
            f" may have several rows, pass {found!r} as `groups`, and all rows of a person are"
            " protected and counted together. If nobody has, leave it out of the table.",
            PrivacyWarning,
            about=("persons", found),
        )


def unnamed_columns(frame: Any, schema: Schema) -> list[str]:
    """Columns of `frame` that are not in `schema`, and that are therefore not read."""
    names = dict.fromkeys(names_of(frame) or ())
    return [str(name) for name in names if name not in schema]


def is_reordered(frame: Any, schema: Schema) -> bool:
    """Whether the columns of `frame` have names, in another order than in the schema."""
    names = names_of(frame)
    return names is not None and [name for name in names if name in schema] != [*schema]


def _columns(frame: Any, schema: Schema, name: str, *, named: bool) -> dict[str, Any]:
    if names_of(frame) is None:
        if named:
            raise ValueError(
                f"`{name}` has no column names, and its columns would be taken in the order of the"
                " schema. The rows of the fit had names, and another order. Pass a data frame with"
                f" the columns {shown_first(schema)}."
            )
        return _columns_in_order(frame, schema, name)
    check_columns(frame, schema, name)
    return {column: column_of(frame, column) for column in schema}


def check_columns(frame: Any, schema: Schema, name: str) -> None:
    """Raise ValueError unless a frame has each column of a schema exactly once."""
    names = names_of(frame) or []
    times = Counter(names)
    if absent := [column for column in schema if column not in times]:
        raise ValueError(
            f"`{name}` lacks the columns {shown(absent)}, which the schema names. It has"
            f" {shown(names)}: spell the names in the schema exactly as in `{name}`, or leave these"
            f" columns out of the schema.{_alike(absent, names)}"
        )
    if twice := [column for column in schema if times[column] > 1]:
        raise ValueError(
            f"`{name}` has more than one column with the names {shown(twice)}: rename or drop all"
            " but one of each."
        )


def _alike(absent: list[str], names: list[Any]) -> str:
    """Advice with names of a table that may be meant by those that it lacks."""
    close = {a: near for a in absent[:10] if (near := nearest(a, names))}
    forms = {a: form for a, near in close.items() if (form := form_of_both(a, near))}
    alike = "".join(f" {looks_alike(close[a], a, form)}" for a, form in forms.items())
    pairs = [f"{shown(near)} for {shown(a)}" for a, near in close.items() if a not in forms]
    return alike + (f" Did you mean {' and '.join(pairs)}?" if pairs else "")


def _columns_in_order(array: np.ndarray, schema: Schema, name: str) -> dict[str, Any]:
    width = array.shape[1]
    if width == len(schema):
        return {column: array[:, place] for place, column in enumerate(schema)}
    # The first words are those that scikit-learn's estimator checks look for.
    start = f"X has {width} features, but Schema is expecting {len(schema)} features as input"
    if not width:
        # Without the number of rows, which may be private.
        start = "Found array with 0 feature(s) (shape=(, 0)) while a minimum of 1 is required"
    raise ValueError(
        f"{start}: `{name}` has no column names, and must then have the columns of the schema, in"
        " its order. Or pass a data frame, whose columns are found by name."
    )


# Tables in parts --------------------------------------------------------------------------------


def table_in_parts(
    frame: Any,
    schema: Schema,
    y: Any = None,
    targets: Callable[[Any], np.ndarray] | None = None,
    groups: Any = None,
) -> tuple[Any, Any]:
    """Read a collection of rows by `schema`, in parts on the workers, with targets beside it.

    The result represents a :class:`Table` on each worker. `targets` checks a block of `y`; without
    it there are no targets. With `groups`, all rows of a person are in one part. Columns that the
    schema does not name are not read.

    ValueError as for :func:`read_table`, with the partition in the message, and no value.
    """
    rows, whose = columns_of(frame, schema), map(_alone, split_groups(groups))
    found = load(rows, _alone(y), _BlockOfTable(schema, targets), *whose)
    return rowwise(Table, found[ROWS], found[CODES]), found.get(TARGETS)


def read_anywhere(frame: Any, schema: Schema, *, name: str, groups: Any = None) -> Table:
    """Rows as :func:`~dpsubspace._core.tables.schema.read_table` returns them, in memory or not.

    The columns of a Dask data frame stay in parts on the workers: with `groups`, all rows of a
    person are in one part.
    """
    if not is_elsewhere(frame):
        check_order(frame, name, groups=groups)
        return read_table(frame, schema, name=name)
    if not is_dataset(frame) and (not hasattr(frame, "columns") or frame.ndim != 2):
        raise ValueError(
            f"`{name}` is a Dask array or series, and columns are found by name: pass a Dask data"
            " frame."
        )
    rows, whose = columns_of(frame, schema, name), map(_alone, split_groups(groups))
    found = load(rows, None, _BlockOfTable(schema, None, name), *whose)
    return Table(cast(np.ndarray, found[ROWS]), cast(np.ndarray, found[CODES]))


def _alone(column: Any) -> Any:
    """A single column that is not read together with the rows, since it may be stored elsewhere."""
    return column.simplify() if hasattr(column, "simplify") else column


def columns_of(frame: Any, schema: Schema, name: str = "X", *, named: bool = False) -> Any:
    """Select the columns of a schema; ValueError where names or types show that one is wrong.

    Dask then reads only these columns from files that can be read by columns.
    """
    if schema.texts:
        raise ValueError(
            f"`{name}` has the column {shown(schema.texts[0])} of Text, and its rows are those of a"
            " dataset or of Dask: texts are read in memory alone. Fit to X.compute() or to"
            " dataset.to_table(), predict partition by partition with"
            " X.map_partitions(model.predict), or leave the column out of the schema."
        )
    frame = DatasetColumns.of(frame) if is_dataset(frame) else frame
    if hasattr(frame, "columns"):
        read_table(frame._meta, schema, name=name, empty=True)
        check_types(frame._meta, schema, name)
        chosen = frame[list(schema)]
        return chosen.simplify() if hasattr(chosen, "simplify") else chosen
    if np.isnan(frame.shape[1:]).any():
        raise ValueError("`X` must have a known number of columns: call compute_chunk_sizes().")
    read_table(np.empty((0, *frame.shape[1:]), dtype=object), schema, empty=True, named=named)
    return frame


def check_types(meta: Any, schema: Schema, name: str) -> None:
    """Raise ValueError where categories are numbers that a column's type may not distinguish.

    NumPy's whole numbers cannot be missing: Dask converts them to floats in a partition where one
    is, before this package sees the partition.
    """
    for column, kind in schema.items():
        values, label = column_of(meta, column), f"Column {shown(column)} of `{name}`"
        dtype = getattr(values, "dtype", None)
        if holds_floats(values):
            check_told_apart(kind, label)
        elif kind.missing and isinstance(dtype, np.dtype) and dtype.kind in "iu":
            check_told_apart(kind, label, whole=True)


@dataclass(frozen=True)
class _BlockOfTable:
    """Function on the workers that reads a partition of a table, and the `targets` beside it."""

    schema: Schema
    targets: Callable[[Any], np.ndarray] | None
    name: str = "X"

    def __call__(self, X: Any, y: Any = None) -> dict[str, np.ndarray]:
        """Arrays of a partition; ValueError where it cannot be used."""
        check_order(X, self.name, y=y)
        table = read_table(X, self.schema, name=self.name, empty=True, kept=True)
        found = {ROWS: table.numbers, CODES: table.codes}
        return found if self.targets is None else found | {TARGETS: self.targets(y)}


# Distribution of a column from a released mean --------------------------------------------------

# Strength with which the distribution over places is drawn towards the uniform one.
_EVEN = 0.01


def middles(number: int) -> np.ndarray:
    """Midpoints of `number` equal parts of the interval from 0 to 1."""
    return (np.arange(number) + 0.5) / number


def frequencies(entries: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Frequencies (m,) of rows of entries (m, k) that nearly have this mean, near uniform ones."""
    m, size = len(entries), float(np.abs(entries).max())
    even = _EVEN * np.sqrt(m)
    rows = np.concatenate([entries.T / size, even * np.eye(m), 10 * np.ones((1, m))])
    shares = nnls(rows, np.concatenate([mean / size, np.full(m, even / m), [10.0]]))[0]
    return shares / shares.sum()
