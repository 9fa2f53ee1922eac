"""Rows that lie elsewhere, in parts, and what is made and added up of them there.

No fit asks where its rows lie. What it makes of them (features, gradients) goes through
:func:`rowwise` where it takes rows that may lie elsewhere, and what it adds up over them through
:func:`~dpsubspace._core.rows.chunks.over_chunks`. Where rows lie in parts on the workers of a
cluster, the same functions run on each part, and sums come back. Noise is added to their total,
which is known here alone.

Arithmetic of arrays works as with NumPy where it is made of one row at a time: operators, ufuncs
and the functions of :data:`_OF_ROWS`. All else raises TypeError. What is taken of several rows
(a sum, a mean, an order) would be that of the rows of a part, which is no sum over all rows and may
not be used as if it were a number of one row.

Design note. A :class:`RemoteRows` stands for a recipe: a function and what it takes, some of which
are other recipes. Nothing runs when it is made. A call of :meth:`RowParts.call` carries the recipes
that it needs, and a part keeps what it has made by them as long as something here stands for it.
What lies between, as within a formula, is forgotten as soon as the last of what is made of it is
there. So each call is a function of the rows of a part and of public or released numbers, and
nothing else. It gives the same when it runs twice, and on a worker that has taken the place of a
lost one. What is public about an object of rows (the number of its columns, how rounding bounds its
sums) is asked of ``template``: the same object, made of no rows.

A part is read as blocks, one after another, of which one array is made (:func:`joined`). Whatever
reads rows in parts makes each of them here: the workers of a cluster, of partitions of a
collection, and this process, of batches of a dataset.
"""

from __future__ import annotations

import io
import operator
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import cache, partial
from importlib import import_module
from threading import RLock
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import WeakValueDictionary

import numpy as np

from dpsubspace._core.rows.together import HELD, NAMES, joined_names


class _Recipe(NamedTuple):
    """How a part makes something: by its key, a pickled call, and recipes of what that takes."""

    key: str
    body: bytes
    needs: tuple[_Recipe, ...]


class RemoteRows(np.lib.mixins.NDArrayOperatorsMixin):
    """Something that is made of rows, in parts where these lie.

    Its recipe says how it is made where the rows are, `needs` are what it is still to be made of,
    and `template` is the same made of no rows.

    An attribute that the class of `template` names in ``PUBLIC`` is that of `template`. Any other
    attribute and any method gives a Remote: it is made where the rows are. So does arithmetic of
    single rows; of an array, any other is refused.
    """

    __iter__ = None
    __hash__: Any = object.__hash__

    def __init__(self, parts: RowParts, recipe: _Recipe, needs: Sequence[RemoteRows], here: Any):
        self.parts, self.recipe, self.needs, self.template = parts, recipe, needs, here
        parts.alive[recipe.key] = self

    @property
    def shape(self) -> tuple[int, ...]:
        """That of an array with an entry, or a row, for each of the rows."""
        return (self.parts.n, *self.template.shape[1:])

    @property
    def ndim(self) -> int:
        return self.template.ndim

    @property
    def dtype(self) -> Any:
        return self.template.dtype

    def __len__(self) -> int:
        return self.parts.n

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        kind = type(self.template)
        if name in getattr(kind, "PUBLIC", ()):
            return getattr(self.template, name)
        found = getattr(kind, name, None)
        if issubclass(kind, np.ndarray) and found is not None and name != "astype":
            raise _not_of_rows(f"ndarray.{name}")
        return partial(rowwise, found, self) if callable(found) else rowwise(getattr, self, name)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("rows that lie on the workers of a cluster are not brought here.")

    def __reduce__(self) -> Any:
        raise TypeError("rows that lie on the workers of a cluster cannot be pickled.")

    def __repr__(self) -> str:
        return "<rows elsewhere>"

    def __bool__(self) -> bool:
        raise TypeError("of rows elsewhere it is not known here whether something is true.")

    def __getitem__(self, index: Any) -> RemoteRows:
        if not (isinstance(index, tuple) and index[0] == slice(None)) or any(map(is_remote, index)):
            raise TypeError(_COLUMNS_ALONE)
        found = rowwise(operator.getitem, self, index)
        if found.template.shape[:1] != (0,):  # indices apart from each other put theirs first
            raise TypeError(_COLUMNS_ALONE)
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **options: Any) -> RemoteRows:
        of_each = method == "__call__" and not options and not ufunc.signature and ufunc.nout == 1
        if not of_each or not _aligned(*args):
            raise _not_of_rows(f"{ufunc.__name__} ({method})")
        # The operator of powers takes squares of arrays in a way of its own.
        return rowwise(operator.pow if ufunc is np.power else ufunc, *args)

    def __array_function__(self, function: Any, _: Any, args: Any, options: Any) -> RemoteRows:
        if function not in _OF_ROWS or not _OF_ROWS[function](*args, **options):
            raise _not_of_rows(function.__name__)
        return _made(function, args, options)


_COLUMNS_ALONE = "of rows elsewhere, columns can be chosen and not rows."


def _aligned(*operands: Any) -> bool:
    """Whether entries of operands go together by rows alone, wherever NumPy broadcasts them.

    An array that lies here has no rows of theirs: its first axis must not meet them. One of another
    class may make something else of rows.
    """
    if any(isinstance(each, np.ndarray) and type(each) is not np.ndarray for each in operands):
        return False
    rows = [each for each in operands if isinstance(each, RemoteRows)]
    ndims = {each.ndim if isinstance(each.template, np.ndarray) else -1 for each in rows}
    here = [np.ndim(each) for each in operands if not isinstance(each, RemoteRows)]
    return len(ndims) == 1 and max([-1, *here]) < min(ndims)


# Functions of NumPy that can be of single rows, and whether they are, by their arguments.
_OF_ROWS: dict[Any, Callable[..., bool]] = {
    np.where: lambda *args: len(args) == 3 and _aligned(*args),
    np.clip: lambda *args: len(args) == 3 and _aligned(*args),
    np.linalg.norm: lambda x, ord=None, axis=None, keepdims=0: (ord, axis, x.ndim) == (None, 1, 2),
    np.column_stack: lambda columns: all(isinstance(each, RemoteRows) for each in columns),
    np.searchsorted: lambda a, _, side="left", sorter=None: sorter is None and not is_remote(a),
}


def _not_of_rows(name: str) -> TypeError:
    return TypeError(
        f"`{name}` is not taken of rows that lie elsewhere as it is called here, since it is not"
        " known to be made of one row at a time. Sums over rows are those of `sum_over_parts`, and"
        " a function of single rows may be given to `rowwise`."
    )


def _remotes(value: Any) -> list[RemoteRows]:
    """Yield the objects made of remote rows: `value`, or fields of it."""
    if isinstance(value, RemoteRows):
        return [value]
    if not is_dataclass(value) or isinstance(value, type):
        return []
    held = (getattr(value, field.name) for field in fields(value))
    return [one for one in held if isinstance(one, RemoteRows)]


def is_remote(value: Any) -> bool:
    """Return whether `value` is made of remote rows, or holds such objects."""
    return bool(_remotes(value))


def rowwise(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """``function(*args, **options)``, made where the rows are that its arguments are made of."""
    if not any(map(is_remote, (*args, *options.values()))):
        return function(*args, **options)
    return _made(function, args, options)


def _made(function: Callable[..., Any], args: Any, options: Mapping[str, Any]) -> RemoteRows:
    body, needs = _packed((function, args, options))
    recipe = _Recipe(uuid4().hex, body, tuple(need.recipe for need in needs))
    template = _called(body, [need.template for need in needs])
    return RemoteRows(_parts_of(needs), recipe, needs, template)


def sum_over_parts(function: Callable[..., Any], *args: Any) -> Any:
    """Return ``function(*args)``, a sum over rows or a total of them, over all parts."""
    found = iter(for_each_part(function, *args))
    total = next(found)
    for other in found:
        if hasattr(total, "merge"):
            total.merge(other)
        else:
            total = total + other
    return total


def for_each_part(function: Callable[..., Any], *args: Any) -> Iterable[Any]:
    """Return ``function(*args)`` of each part; of the only one, if rows are local.

    If rows are read again, the results are made on request, and all of them must be requested.
    """
    needs = [need for arg in args for need in _remotes(arg)]
    return needs[0].parts.call(function, *args) if needs else [function(*args)]


def _parts_of(needs: Sequence[RemoteRows]) -> RowParts:
    """Return the parts with the rows that all of `needs` are made of."""
    first = needs[0].parts
    if any(need.parts is not first for need in needs):
        raise RuntimeError("objects that are made of different rows do not go together.")
    return first


# Serialisation --------------------------------------------------------------------------------


def _packed(value: Any) -> tuple[bytes, list[RemoteRows]]:
    """Pickle `value` without objects made of remote rows; return these in a list."""
    stream = io.BytesIO()
    pickler = _pickler()(stream, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.needs = []
    pickler.dump(value)
    return stream.getvalue(), pickler.needs


@cache
def _pickler() -> type:
    """Return the class that pickles everything but objects made of remote rows.

    There is one class for all calls: a class is part of a cycle, and would keep alive what a call
    needed.
    """
    try:
        cloudpickle: Any = import_module("cloudpickle")
    except ImportError:  # rows of datasets, without Dask: joblib includes its own
        cloudpickle = import_module("joblib.externals.cloudpickle")

    class Pickler(cloudpickle.Pickler):
        needs: list[RemoteRows]

        def persistent_id(self, obj: Any) -> int | None:
            if not isinstance(obj, RemoteRows):
                return None
            known = [i for i, need in enumerate(self.needs) if need is obj]
            if not known:
                self.needs.append(obj)
            return known[0] if known else len(self.needs) - 1

    return Pickler


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, needs: Sequence[Any]):
        super().__init__(stream)
        self._needs = needs

    def persistent_load(self, pid: Any) -> Any:
        return self._needs[pid]


def _unpacked(body: bytes, needs: Sequence[Any]) -> Any:
    """Unpickle, with `needs` in place of the objects made of remote rows."""
    return _Unpickler(io.BytesIO(body), needs).load()


def _called(body: bytes, needs: Sequence[Any]) -> Any:
    function, args, options = _unpacked(body, needs)
    return function(*args, **options)


class RowParts(ABC):
    """Rows in parts, of a public number, and calls of functions on each of them.

    If each part holds all rows of its persons, the number of persons is public, and the number of
    rows is not.
    """

    n_persons: int | None = None
    keeps = True  # Whether parts keep what they have made for the next call
    template: dict[str, np.ndarray]  # Arrays of no rows, by the names of leaves

    def __init__(self, n: int):
        self.n = n
        self.alive: WeakValueDictionary[str, RemoteRows] = WeakValueDictionary()  # by their keys
        self._kept: set[str] = set()  # keys of what parts have made and keep, if none was lost

    @abstractmethod
    def run(self, task: bytes, own: Sequence[Any] | None) -> Iterable[Any]:
        """Return the results of :meth:`RowPart.run` for all parts, in their order.

        They may be computed one after another, on request. A caller must request all of them.
        """

    @abstractmethod
    def split(self, batch: np.ndarray) -> list[np.ndarray]:
        """Return for each part its positions of the rows of a batch, in their order."""

    def leaf(self, name: str, here: np.ndarray) -> RemoteRows:
        """Return the proxy of an array `name` that parts have from the beginning."""
        return RemoteRows(self, _Recipe(name, b"", ()), (), here)

    @abstractmethod
    def scattered(self, values: np.ndarray) -> RemoteRows:
        """Distribute a local array with an entry for each row to the parts."""

    def call(self, function: Callable[..., Any], *args: Any, own: Any = None) -> Iterable[Any]:
        """``function(*args)`` on each part; `own` has a last argument for each part."""
        body, needs = _packed((function, args))
        _parts_of(needs)  # all of them are made of the same rows
        keys = tuple(need.recipe.key for need in needs)
        for kept in (self._kept, frozenset()):
            # What a part has made it has kept, unless it took the place of a lost one.
            known: dict[str, _Recipe] = {}
            for need in needs:
                _collect(need.recipe, known, kept)
            dropped = self._dropped(known)
            steps = [(key, of.body, tuple(n.key for n in of.needs)) for key, of in known.items()]
            task = (steps, body, keys, dropped, own is not None)
            # Of a call that fails, parts have made some of them.
            self._kept |= known.keys() if self.keeps else set()
            found = self.run(pickle.dumps(task, pickle.HIGHEST_PROTOCOL), own)
            if not self.keeps:
                return found  # none of them can be missing, since all recipes were sent
            if not any(isinstance(result, _Missing) for result in found):
                break
        self._kept -= dropped
        return found

    def _dropped(self, known: Mapping[str, _Recipe]) -> set[str]:
        """Keys of what parts need not keep once all that is `known` has been made.

        Nothing here stands for it then, as for what lies between within a formula.
        """
        for made in map(self.alive.get, known):
            if made is not None:
                made.needs = ()
        return {key for key in self._kept | known.keys() if not self.keeps or key not in self.alive}


def _collect(recipe: _Recipe, known: dict[str, _Recipe], kept: Set[str]) -> None:
    """Add a recipe to those that are known, after those that it needs, but for what is there."""
    if recipe.body and recipe.key not in known and recipe.key not in kept:
        for other in recipe.needs:
            _collect(other, known, kept)
        known[recipe.key] = recipe


class _Missing:
    """A part has not made what a call needs: it took the place of a lost one."""


class RowPart:
    """Rows of one part where they lie, and what has been made of them.

    Leaves are arrays with an entry for each row, by name, and `lengths` the rows of each block that
    they were made of.
    """

    def __init__(self, leaves: dict[str, np.ndarray], lengths: Sequence[int] = ()):
        self._leaves, self._made, self._turn = leaves, dict(leaves), RLock()
        self.lengths = list(lengths)

    @property
    def leaves(self) -> dict[str, np.ndarray]:
        """What the part has had from the beginning."""
        return self._leaves

    def kinds(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """Type of each array, and its shape beyond the first axis."""
        return {name: (leaf.dtype, leaf.shape[1:]) for name, leaf in self._leaves.items()}

    def run(self, task: bytes, own: Any) -> Any:
        """Carry out one call of :meth:`RowParts.call`."""
        steps, body, needs, dropped, owned = pickle.loads(task)
        with self._turn:
            steps = self._to_make(steps, needs, dropped)
            if steps is None:
                return _Missing()
            for key, recipe, takes, done in steps:
                self._made[key] = _called(recipe, self._of(takes))
                for other in done:
                    del self._made[other]
            function, args = _unpacked(body, self._of(needs))
            for key in dropped:
                self._made.pop(key, None)
        return function(*args, own) if owned else function(*args)

    def _to_make(self, steps: list[Any], needs: Sequence[str], dropped: set[str]) -> Any:
        """Steps to what is not there yet, and what each is the last to take of what is `dropped`.

        None where something that they take is neither there nor made by one of them.
        """
        wanted = {*needs, *(key for key, *_ in steps if key not in dropped)}
        found = []
        for key, recipe, takes in reversed(steps):
            if key in wanted and key not in self._made:
                found.append((key, recipe, takes, dropped.difference(wanted).intersection(takes)))
                wanted.update(takes)
        there = self._made.keys() | {key for key, *_ in found}
        return found[::-1] if wanted <= there else None

    def _of(self, keys: Iterable[str]) -> list[Any]:
        return [self._made[key] for key in keys]

    def __reduce__(self) -> Any:
        return RowPart, (self._leaves, self.lengths)  # what was made of them can be made again

    def __sizeof__(self) -> int:
        return sum(leaf.nbytes for leaf in self._leaves.values())

    def __repr__(self) -> str:
        return "<rows>"  # ends up in the logs of workers


# Blocks -----------------------------------------------------------------------------------------

# Arrays that parts have from the beginning. Tables have codes of categories beside their numbers.
ROWS, CODES, TARGETS = "rows", "codes", "targets"

# The number of the first block of a part.
FIRST = "first"


def joined(
    blocks: Iterable[tuple[str, Sequence[Any]]], check: Callable[..., dict[str, np.ndarray]]
) -> tuple[dict[str, np.ndarray], list[int]]:
    """Return arrays of all blocks, which `check` makes of each, and the rows of each block.

    A block comes with its name in messages. Raise ValueError if one cannot be used.
    """
    found, lengths, names = {}, [], []
    for called, block in blocks:
        try:
            arrays = check(*block)
            if len({len(array) for array in arrays.values()}) > 1:
                of = " and ".join(str(len(array)) for array in arrays.values())
                of = "other numbers of" if NAMES in arrays else of  # these are private
                raise ValueError(f"a block of `X` and its block of `y` have {of} rows.")
            if NAMES in arrays:
                names.append(arrays.pop(NAMES))
            for name, array in arrays.items():
                _append(found, name, array)
        except ValueError as error:
            raise ValueError(f"{error} This is about {called}.") from None
        lengths.append(len(arrays[ROWS]))
    return found | ({NAMES: joined_names(names)} if names else {}), lengths


def _append(found: dict[str, np.ndarray], name: str, array: np.ndarray) -> None:
    """Append a block to an array, in place: that moves pages of memory and copies no row."""
    if name not in found:
        found[name] = np.array(array, order="C")  # a copy, since it grows
        return
    known = found[name]
    _check_alike(name, (known.dtype, known.shape[1:]), (array.dtype, array.shape[1:]))
    before = len(known)
    known.resize((before + len(array), *known.shape[1:]), refcheck=False)
    known[before:] = array


def of_no_rows(kinds: list[dict[str, tuple[Any, tuple[int, ...]]]]) -> dict[str, np.ndarray]:
    """Return arrays of no rows like those of the parts; raise ValueError if these differ."""
    for other in kinds[1:]:
        for name, kind in kinds[0].items():
            _check_alike(name, kind, other[name])
    shapes = {name: kind for name, kind in kinds[0].items() if name not in (FIRST, HELD)}
    return {name: np.empty((0, *shape), dtype) for name, (dtype, shape) in shapes.items()}


def _check_alike(name: str, one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    """Raise ValueError if blocks of a collection have different types or widths."""
    if one != other:
        called = {ROWS: "X", CODES: "X", TARGETS: "y"}.get(name, name)
        of = [f"{dtype} with {shape[0] if shape else 1} columns" for dtype, shape in (one, other)]
        raise ValueError(
            f"`{called}` has blocks of different types or widths: {of[0]}, and {of[1]}. Give all"
            " blocks the same columns and one type, by astype or map_partitions for example."
        )


# Local entries --------------------------------------------------------------------------------


def dealt_out(parts: RowParts, values: np.ndarray, starts: np.ndarray) -> RemoteRows:
    """Return each part's entries of a local array: see :meth:`RowParts.scattered`.

    `starts` has the number of the first row of each block, by the number of the block.
    """
    rows, first = parts.leaf(ROWS, parts.template[ROWS]), parts.leaf(FIRST, np.zeros(1, dtype=int))
    return rowwise(_taken, np.asarray(values, dtype=np.float64), starts, first, rows)


def _taken(values: np.ndarray, starts: np.ndarray, first: np.ndarray, rows: Any) -> np.ndarray:
    """Return the entries of the rows of a part, by the number of its first block."""
    start = starts[first[0]]
    return values[start : start + len(rows)]
