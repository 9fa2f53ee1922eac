"""What a reviewer must read: the functions that can break the promise of a fit.

``python tests/house/reviewed.py`` counts them for fits of many kinds, ``-v`` names them and the
lines that no fit ran, and ``--write`` puts the table and the files into ``docs/reviewing.md``.

Every fit runs twice: on some data, and on a neighbour that is given the outputs of the releases of
the first. Noise is drawn from the same bits. What depends on released and public values alone
is then equal in both. The words:

- a function *handles private numbers* if an argument, a local variable or a result of it differs
  between the two fits of any pair;
- it *sets* bounds, noise, events or charges if it sees the same in both, and is of a wing that is
  `TRUSTED`, runs below a function from there, calls one that is no method of an object it was
  given, makes or returns an object of a class from there, or returns a fraction to what handles
  private numbers, itself or by way of other fractions;
- *lines* are lines of code, without docstrings, comments and blank lines, and *not run* are those
  of them that no fit reached.

Objects are compared by what they hold, `DEPTH` levels deep. What only a foreign object holds, such
as an iterator, is seen where it comes out.
"""

import contextlib
import datetime
import functools
import itertools
import os
import shutil
import sys
import tempfile
import threading
import types
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

sys.path.append(str(Path(__file__).parents[1]))  # where this is run as a script

from cases import CASES, RECORDS
from helpers import blobs, groups_of
from traced import PARTS, Function, folder_of, function_at, lines_of

import dpsubspace
from dpsubspace._core.release import mechanisms, noise

TRUSTED = ("_core.accounting", "_core.release")
DEPTH = 8
# Not relative to the package, which may be installed apart.
REVIEWING = Path(__file__).parents[2] / "docs" / "reviewing.md"

# What a value holds ---------------------------------------------------------------------------

# Objects of these packages are looked into; of others only the type is known.
_OPEN = {"dpsubspace", "dp_accounting", "torch", "cases", "helpers"}


def digest(value, depth=DEPTH, inside=()):
    """A number that two values share if they hold the same."""
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes, complex):
        return hash((kind, value))
    if kind is float:
        return hash(value.hex())  # of NaN as well
    if depth == 0 or id(value) in inside:
        return hash(kind)
    depth, inside = depth - 1, (*inside, id(value))
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.hasobject:
            return hash((array.shape, *[digest(each, depth, inside) for each in array.ravel()]))
        whole = array.nbytes > 2**14 and array.dtype.itemsize == 8
        # A sum of bits is quick, and one entry that differs moves it.
        held = np.ascontiguousarray(array).view(np.uint64).sum() if whole else array.tobytes()
        return hash((array.dtype.str, array.shape, held))
    return hash((kind, *[digest(each, depth, inside) for each in held_by(value)]))


def held_by(value):
    """Parts of an object, in an order that is the same in another one like it."""
    if isinstance(value, dict):  # of warnings that were shown, Python keeps a count of filters
        return [each for pair in value.items() if pair[0] != "version" for each in pair]
    if isinstance(value, os.stat_result):
        return ()  # times
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)):
        return [value.__name__]
    if isinstance(value, (slice, range, np.dtype)):
        return [repr(value)]
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType):
        return [value.__func__.__qualname__, value.__self__]
    if isinstance(value, types.FunctionType):
        cells = value.__closure__ or ()
        return [value.__qualname__, value.__defaults__, *map(_content, cells)]
    if sparse.issparse(value):
        return [value.shape, *sparse.find(value)]
    if hasattr(value, "requires_grad"):
        return [_entries(value)]
    if hasattr(value, "to_numpy"):  # a table, or a column of one
        return [value.to_numpy(), getattr(value, "columns", None)]
    return _attributes(value)


def _entries(tensor):
    """A tensor as an array; its shape where torch.func is only trying a module out."""
    try:
        return sys.modules["torch"].func.debug_unwrap(tensor).detach().cpu().numpy()
    except RuntimeError:
        return tuple(tensor.shape)


def _content(cell):
    """What a closure holds, which may be nothing yet."""
    with contextlib.suppress(ValueError):
        return cell.cell_contents


def _attributes(value):
    kind = type(value)
    if kind.__module__.partition(".")[0] not in _OPEN and not isinstance(value, BaseEstimator):
        return ()
    slots = [name for cls in kind.__mro__ for name in getattr(cls, "__slots__", ())]
    held = {name: getattr(value, name, None) for name in slots} | getattr(value, "__dict__", {})
    held = {name: each for name, each in held.items() if not name.startswith("_callback")}
    return [" ".join(held), *held.values()]


# What one fit shows ---------------------------------------------------------------------------


@dataclass
class Watch:
    """What the functions of the package see, call and return while this lasts."""

    known: Mapping  # names that need no look, by function
    values: dict = field(default_factory=lambda: defaultdict(set))  # of a function and a name
    ran: dict = field(default_factory=lambda: defaultdict(set))  # lines of each function
    codes: dict = field(default_factory=lambda: defaultdict(set))
    setters: set = field(default_factory=set)  # make, return or call what is trusted
    told: dict = field(default_factory=lambda: defaultdict(set))  # who got a number of a function

    def __enter__(self):
        self._before = sys.gettrace()
        self._owners = {}
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)
        threading.settrace(self._before)

    def _owner(self, code):
        if code not in self._owners:
            self._owners[code] = owner(code)
        return self._owners[code]

    def _callers(self, frame):
        """Functions of the package that a frame was called from, the nearest first."""
        while (frame := frame.f_back) is not None:
            if found := self._owner(frame.f_code):
                yield found

    def _on_call(self, frame, event, arg):
        code, function = frame.f_code, self._owner(frame.f_code)
        if function is None:
            made = code.co_name == "__init__" and code.co_filename.startswith("<")
            if made and is_trusted(frame.f_locals.get("self")):  # of a data class
                self.setters.update([*self._callers(frame)][:1])
            return None
        self.codes[function].add(code)
        callers = [*self._callers(frame)]
        if function.wing in TRUSTED and of_no_object(code):
            self.setters.update(callers[:1])
        if any(caller.wing in TRUSTED for caller in callers):
            self.setters.add(function)
        self._look(function, frame.f_locals, "")
        return self._inside

    def _inside(self, frame, event, arg):
        function = self._owner(frame.f_code)
        if event == "line":
            self.ran[function].add(frame.f_lineno)
        elif event == "return":
            self._look(function, frame.f_locals, " at return")
            self._look(function, {"result": arg}, "")
            if any(map(is_trusted, [arg, *_parts(arg)])):
                self.setters.add(function)
            if isinstance(arg, float):
                self.told[function].update([*self._callers(frame)][:1])
        return self._inside

    def _look(self, function, values, when):
        for name, value in values.items():
            if name + when not in self.known.get(function, ()):
                self.values[function, name + when].add(digest(value))

    def telling(self, private):
        """Functions that return a number to one of `private`, itself or by way of others."""
        found, more = set(), set(private)
        while more:
            more = {function for function, to in self.told.items() if to & more} - found
            found |= more
        return found


def owner(code):
    """Function of the package that a piece of code is in: that around an inner expression."""
    found = function_at(code)
    if found is None:
        return None
    name = found.name.split("<")[0].rstrip(".")
    if not name and code.co_name in PARTS:
        return None  # runs when a module is imported
    return Place(found.module, name or "<lambda>")


class Place(Function):
    """A function, by its module and its name."""

    @property
    def wing(self):
        """Folder of the module."""
        return folder_of(self.module)


def is_trusted(value):
    """Whether this is an object of a trusted wing, or describes a cost."""
    return type(value).__module__.startswith(
        ("dp_accounting", *(f"dpsubspace.{wing}." for wing in TRUSTED))
    )


def _parts(value):
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (tuple, list)) else ()


def of_no_object(code):
    """Whether a function belongs to no object that was there before: it may make one."""
    if code.co_name in ("__init__", "__post_init__", "__new__"):
        return True
    return "." not in code.co_qualname or code.co_varnames[:1] == ("cls",)


# Pairs of fits --------------------------------------------------------------------------------


class Pair(NamedTuple):
    """How two data sets differ."""

    record: str  # of RECORDS
    relation: str
    persons: bool

    def data(self, n):
        """Rows, targets, who is there and whose the rows are, of `n` records, twice."""
        tables = self._of_persons(n) if self.persons else self._of_rows(n)
        for place, (X, y, groups) in enumerate(tables):
            changed = np.arange(n) == 0 if groups is None else groups == n - 1
            present = ~changed | (place == 0) if self.relation == "zero_out" else None
            yield X, y, present, groups

    def _of_rows(self, n):
        (X, y), other = blobs(n=n), blobs(n=n)
        X[0], other[0][0] = RECORDS[self.record](X)
        other[1][0] = 3  # a label that no other record has
        return (X, y, None), (*other, None)

    def _of_persons(self, n):
        """One person has 37 rows all over the table here, and one row there."""
        groups = np.repeat(np.arange(n - 1), np.arange(n - 1) % 3 + 1)
        X, y = blobs(n=len(groups))
        for row, times in zip(RECORDS[self.record](X), (37, 1), strict=True):
            at = np.random.default_rng(1).integers(0, len(y) + 1, size=times)
            rows, whose = np.insert(X, at, row, axis=0), np.insert(groups, at, n - 1)
            yield rows, np.insert(y, at, times % 3), whose


PAIRS = [
    Pair("opposite", "zero_out", False),
    Pair("duplicate", "replace_one", False),
    Pair("largest", "replace_one", False),
    Pair("opposite", "zero_out", True),
    Pair("largest", "replace_one", True),
]


class _Frozen(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 2, 3, 4, 5, tzinfo=tz)


@contextlib.contextmanager
def frozen(outputs):
    """All random bits are the same each time; releases give `outputs`, or these are recorded."""
    bits, recorded, turn = np.random.default_rng(0), not outputs, itertools.count()

    def freezing(real):
        @functools.wraps(real)
        def release(*args, **options):
            out = real(*args, **options)
            if recorded:
                outputs.append(out)
            return outputs[next(turn)]

        return release

    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def put(place, name, stand_in):
            stack.enter_context(mock.patch.object(place, name, stand_in))

        put(os, "urandom", bits.bytes)
        put(np, "empty", np.zeros)  # what lies in memory by chance is no number of anybody
        put(np, "empty_like", np.zeros_like)
        put(noise.SecureNoise, "public", lambda self: np.random.default_rng(0))
        for module in _modules():
            if getattr(module, "datetime", None) is datetime.datetime:
                put(module, "datetime", _Frozen)
        for name in (
            "release",
            "release_laplace",
            "release_direction",
            "release_subspace",
            "release_choice",
        ):
            real = getattr(mechanisms, name)
            for module in _modules():
                if getattr(module, name, None) is real:
                    put(module, name, freezing(real))
        yield


def _modules():
    return [module for key, module in [*sys.modules.items()] if key.startswith("dpsubspace.")]


def watched(fit, outputs, known):
    """What a fit shows; it finds no cost and no warning that was remembered."""
    for module in _modules():
        for value in vars(module).values():
            trusted = folder_of(module.__name__.removeprefix("dpsubspace.")) in TRUSTED
            if trusted and hasattr(value, "cache_clear"):
                value.cache_clear()
    for module in [*sys.modules.values()]:
        vars(module).get("__warningregistry__", {}).clear()
    with frozen(outputs), Watch(known) as watch:
        fit()
    return watch


@dataclass
class Review:
    """What pairs of fits have shown."""

    differing: dict = field(default_factory=lambda: defaultdict(set))  # names by function
    setters: set = field(default_factory=set)
    ran: dict = field(default_factory=lambda: defaultdict(set))
    codes: dict = field(default_factory=lambda: defaultdict(set))

    def add(self, here, there):
        """Run two fits of neighbours and compare what their functions see."""
        outputs = []
        with frozen(outputs):  # which also fills caches of what follows from public numbers
            here()
        one, other = (watched(fit, outputs, self.differing) for fit in (here, there))
        for function, name in one.values.keys() | other.values.keys():
            if one.values.get((function, name)) != other.values.get((function, name)):
                self.differing[function].add(name)
        for watch in (one, other):
            trusted = {function for function in watch.codes if function.wing in TRUSTED}
            self.setters |= watch.setters | watch.telling(self.private) | trusted
            for function, codes in watch.codes.items():
                self.codes[function] |= codes
                self.ran[function] |= watch.ran[function]
        return self

    def merge(self, other):
        """Add what other pairs have shown."""
        self.setters |= other.setters
        for mine, others in (
            (self.differing, other.differing),
            (self.ran, other.ran),
            (self.codes, other.codes),
        ):
            for function, found in others.items():
                mine[function] |= found
        return self

    @property
    def private(self):
        """Functions that handle private numbers."""
        return set(self.differing)

    @property
    def setting(self):
        """Functions that set bounds, noise, events or charges and see no private number."""
        return self.setters - self.private

    def not_run(self, function):
        """Lines of a function that no fit reached."""
        lines = {line for code in self.codes[function] for *_, line in code.co_lines() if line}
        first = min(code.co_firstlineno for code in self.codes[function])
        return sorted(lines - self.ran[function] - {first})


# Fits -----------------------------------------------------------------------------------------

_CASES = {case.name: case for case in CASES}


def of_case(name, setting, **options):
    """Fit of a row of ``tests/cases.py``, on data of a pair."""
    case = _CASES[name]

    def fit(pair, X, y, present, groups):
        rows = X.copy(), y.copy(), setting, pair.relation, present, groups
        return case.fit(*rows, **{"random_state": None, **options})

    return fit, case.n


def search(pair, X, y, present, groups):
    """A search among parameters; the labels that there are count as public."""
    y = np.minimum(y, 2)
    model = dpsubspace.DPSGDClassifier(n_iter=3, neighboring_relation=pair.relation)
    wide = {"clip_norm": [0.5, 1.0, 2.0], "row_norm": ["l2", 3.0]}
    options = {"epsilon": 4.0, "neighboring_relation": pair.relation}
    given = {}
    if groups is not None:  # these are scored on public rows
        given = dict(zip(("X_public_val", "y_public_val"), blobs(n=20, seed=1), strict=True))
        options["validation_fraction"] = None
    search = dpsubspace.PrivateSearch(model, wide, **options)
    return search.fit(X, y, groups=groups_of(present, groups), **given)


def in_ledger(pair, X, y, present, groups):
    """A fit that a ledger with a file pays."""
    folder = Path(tempfile.gettempdir()) / f"reviewed by {os.getpid()}"  # the same each time
    folder.mkdir()
    unit = "row" if groups is None else "person"
    options = {"neighboring_relation": pair.relation, "unit": unit, "path": folder / "ledger"}
    try:
        with dpsubspace.PrivacyLedger(epsilon=20.0, delta=1e-5, **options):
            FITS["DPSGDClassifier"][0](pair, X, y, present, groups)
    finally:
        shutil.rmtree(folder)


FITS = {
    "DPSGDClassifier": of_case("DPSGDClassifier", "plain"),
    "DPSGDFClassifier": of_case("DPSGDFClassifier", "plain"),
    "GEPClassifier": of_case("GEPClassifier", "plain"),
    "DPLinearRegression": of_case("DPLinearRegression", "moments", solver="auto"),
    "PersonalizedLinearRegression": of_case("PersonalizedLinearRegression", "plain"),
    "PersonalizedLogisticRegression": of_case("PersonalizedLogisticRegression", "plain"),
    "DPPCA": of_case("DPPCA", "plain"),
    "GSDScorer": of_case("GSDScorer", "plain"),
    "BoundedScaler": of_case("BoundedScaler", "plain"),
    "tabular_pipeline": of_case("TabularPipeline", "estimated"),
    "DPCalibratedClassifier": of_case("DPCalibratedClassifier", "plain"),
    "DPConformalClassifier": of_case("DPConformalClassifier", "plain"),
    "private_score": of_case("private_score", "plain"),
    "private_score_difference": of_case("private_score_difference", "plain"),
    "private_mean": of_case("private_mean", "plain"),
    "private_quantile": of_case("private_quantile", "plain"),
    "PrivateSearch": (search, 60),
    "DPModuleClassifier": of_case("DPModuleClassifier", "plain"),
    "DPSGDClassifier in a ledger": (in_ledger, 40),
}


OF_ROWS = "GSDScorer, a module"  # which refuses `groups`


def settings():
    """Fits of all rows of ``tests/cases.py`` in each of their settings, by name."""
    return {f"{case}, {name}": of_case(case.name, name) for case in CASES for name in case.settings}


def reviewed(fit, pairs=PAIRS, known=()):
    """What a fit shows on pairs of data sets, beside what is known to differ."""
    (fit, n), review = fit, Review()
    review.differing.update({function: set(names) for function, names in dict(known).items()})
    for pair in pairs:
        review.add(*(functools.partial(fit, pair, *data) for data in pair.data(n)))
    return review


# What is written of it ------------------------------------------------------------------------

BEGIN, END = "<!-- python tests/house/reviewed.py --write -->\n", "<!-- end -->\n"


KINDS = ("private", "setting", "both")


def row(name, review):
    """Line of the table."""
    both = review.private | review.setting
    cells = [name]
    for functions in (review.private, review.setting, both):
        files = {function.module for function in functions}
        cells += [f"{n:,}" for n in (len(functions), len(files), len(lines_of(functions)))]
    not_run = sum(len(review.not_run(function)) for function in both)
    return f"| {' | '.join(cells)} | {not_run:,} |\n"


def by_wing(functions):
    """Files of functions, a line for each wing."""
    wings = defaultdict(set)
    for function in functions:
        wing, _, name = function.module.rpartition(".")
        wings[wing].add(name)
    for wing, names in sorted(wings.items()):
        where = f"`{wing.replace('.', '/')}/`" if wing else "no folder"
        yield f"- {where}: {', '.join(f'`{name}`' for name in sorted(names))}\n"


def text(reviews):
    """The table and the lists of files, of the reviews of fits by name."""
    *_, everything = reviews.values()
    private = {function.module for function in everything.private}
    setting = {f for f in everything.setting if f.module not in private}
    head = (
        "fit | private | files | lines | setting | files | lines | both | files | lines | not run"
    )
    return "".join(
        [
            f"| {head} |\n| {' | '.join(['---'] + 10 * ['---:'])} |\n",
            *(row(name, review) for name, review in reviews.items()),
            "\nPrivate numbers are handled in these files:\n\n",
            *by_wing(everything.private),
            "\nBounds, noise, events and charges are also set in these:\n\n",
            *by_wing(setting),
        ]
    )


def listed():
    """Files in which private numbers are handled, as the page lists them."""
    page = REVIEWING.read_text(encoding="utf-8").partition("Private numbers are handled in")[2]
    lines = page.partition("Bounds, noise")[0].splitlines()
    found = [line[2:].split(": ") for line in lines if line.startswith("- ")]
    return {
        f"{where.strip('`/').replace('/', '.')}.{name.strip('` ')}".removeprefix("no folder.")
        for where, names in found
        for name in names.split(",")
    }


def write(reviews):
    """Put the table and the files into the page."""
    page = REVIEWING.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    REVIEWING.write_text(f"{before}{BEGIN}\n{text(reviews)}\n{END}{after}", encoding="utf-8")


def told(review):
    """Lines that name the functions of both lists, and what no fit ran of them."""
    for function in sorted(review.private | review.setting):
        names = review.differing.get(function, ())
        held = sorted(n for n in names if n.removesuffix(" at return") == n or n[:-10] not in names)
        not_run = " ".join(map(str, review.not_run(function)))
        kind = f"private: {', '.join(held)}" if names else "sets"
        yield f"{function}; {kind}; not run: {not_run or 'none'}"


def main():
    """Print the table, or what is said of one fit, or write the page."""
    names = [name for name in sys.argv[1:] if name in FITS]
    reviews = {name: reviewed(FITS[name]) for name in names or FITS}
    if not names:
        reviews["all of these"] = functools.reduce(Review.merge, reviews.values(), Review())
        everything = Review().merge(reviews["all of these"])
        turn = itertools.cycle(PAIRS)
        for name, fit in settings().items():
            pair = next(pair for pair in turn if not (pair.persons and name.startswith(OF_ROWS)))
            everything.merge(reviewed(fit, [pair], everything.differing))
        reviews["all settings of the tests"] = everything
    if "--write" in sys.argv:
        write(reviews)
    else:
        print(text(reviews))
    if "-v" in sys.argv:
        print(*told([*reviews.values()][-1]), sep="\n")


if __name__ == "__main__":
    main()
