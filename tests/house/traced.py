"""Which functions of the package a call enters, and from where: the shape of one fit.

``python tests/house/traced.py`` prints it for ten fits. It reads whatever layout the package
that Python finds has: files in one folder have no wings. Its words:

- *files*: modules that are entered, but for those of the ground, which everything uses;
- *functions*: all that are entered, also of the ground; *lines* are their lines of code, without
  docstrings, comments and blank lines;
- a *move* leads to a function that is entered from another file (each counts once, whoever calls
  it and however often; none to or from the ground), and is a *return* if that file has been
  entered before: there is one for each move beyond the first into a file;
- a *climb* is a call from a lower wing to a higher one.
"""

import ast
import inspect
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import dpsubspace

ROOT = Path(dpsubspace.__file__).parent
PARTS = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}  # of the function around them

# Wings, the lowest first: those of the core, and subjects. What stands in no folder, or in the
# ground of the core, is the ground of all.
WINGS = (
    "ground",
    "_core.accounting",
    "_core.rows",
    "_core.tables",
    "_core.release",
    "_core.gradients",
    "_core.public",
    "_core.statistics",
    "_core.solvers",
    "_core.fits",
    "_core.plans",
    "linear_model",
    "neural_network",
    "decomposition",
    "preprocessing",
    "tables",
    "calibration",
    "statistics",
    "public_data",
    "inspection",
    "budget",
    "metrics",
    "model_selection",
    "audit",
    "reports",
)


def folder_of(module):
    """Folder of a module that is named by its path: "_core.rows" of "_core.rows.records"."""
    return module.rpartition(".")[0]


def wing_of(module):
    """Place in WINGS of a module."""
    folder = folder_of(module)
    return WINGS.index(folder if folder in WINGS else "ground")


class Function(NamedTuple):
    """A function by its module within the package and its name there."""

    module: str
    name: str

    def __str__(self):
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class Trace:
    """What ran: functions, and how often one called another.

    A call that goes through foreign code (a decorator of scikit-learn, a context manager) is
    from the function of the package that is nearest on the stack.
    """

    functions: frozenset
    calls: Counter
    depth: int  # functions of the package on the stack at the first release

    @property
    def files(self):
        """Modules that were entered."""
        return {function.module for function in self.functions}

    @property
    def files_above_ground(self):
        """Modules that were entered, but for those of the ground."""
        return {module for module in self.files if wing_of(module)}

    @property
    def moves(self):
        """Functions that were entered from another file, but for those of the ground."""
        return {
            called
            for caller, called in self.calls
            if caller.module != called.module and wing_of(caller.module) and wing_of(called.module)
        }

    @property
    def returns(self):
        """Number of moves into files that had been entered before."""
        return len(self.moves) - len(self.files_above_ground) + 1

    @property
    def lines(self):
        """Lines of code of the functions that were entered."""
        return len(lines_of(self.functions))

    def calls_between(self, place=lambda module: module):
        """Pairs of functions of which one calls the other, in another file (or other `place`)."""
        return {
            (caller, called)
            for caller, called in self.calls
            if place(caller.module) != place(called.module)
        }

    def climbs(self, level=wing_of):
        """Of those, the ones from a lower level to a higher one."""
        return {
            (caller, called)
            for caller, called in self.calls_between(level)
            if level(caller.module) < level(called.module)
        }


def function_at(code):
    """Function of a code object, or None if it is not of the package or no function."""
    path = Path(code.co_filename)
    if not code.co_flags & inspect.CO_OPTIMIZED or not path.is_relative_to(ROOT):
        return None
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = code.co_qualname.replace("<locals>.", "")
    return Function(".".join(parts).removesuffix(".__init__"), name)


def lines_of(functions):
    """Lines of code of functions, each a module and a number."""
    found = {}
    for module in {function.module for function in functions}:
        path = ROOT.joinpath(*module.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        found |= _lines_of_code(path, module)
    return set().union(*(found.get(function, set()) for function in functions))


def _lines_of_code(path, module):
    """Lines of each function of a file that have code of its own, by function."""
    text, found = path.read_text(encoding="utf-8"), {}
    lines = text.splitlines()

    def walk(node, name):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                walk(child, name)
                continue
            inner = f"{name}.{child.name}".lstrip(".")
            if not isinstance(child, ast.ClassDef):
                own = set(range(child.lineno, child.end_lineno + 1))
                first = child.body[0]
                if ast.get_docstring(child) is not None:
                    own -= set(range(first.lineno, first.end_lineno + 1))
                own = {n for n in own if lines[n - 1].split("#")[0].strip()}
                found[Function(module, inner)] = {(module, n) for n in own}
            walk(child, inner)

    walk(ast.parse(text), "")
    return found


def traced(call):
    """Trace of ``call()``, in this thread."""
    known, calls, depths = {}, Counter(), []

    def function_of(code):
        if code not in known:
            known[code] = None if code.co_name in PARTS else function_at(code)
        return known[code]

    def profile(frame, event, arg):
        if event != "call":
            return
        called = function_of(frame.f_code)
        if called is None or _is_resumed(frame):
            return
        depth, above = 1, frame.f_back
        caller = None
        while above is not None:
            if found := function_of(above.f_code):
                depth, caller = depth + 1, caller or found
            above = above.f_back
        calls[caller, called] += 1
        if called.name in (
            "release",
            "release_laplace",
            "release_direction",
            "release_subspace",
            "release_choice",
        ):
            depths.append(depth)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    inside = Counter({(a, b): n for (a, b), n in calls.items() if a is not None})
    functions = frozenset(called for _, called in calls)
    return Trace(functions, inside, depths[0] if depths else 0)


def _is_resumed(frame):
    """Whether this goes on with a generator, which whoever asks for its next value called."""
    return bool(frame.f_code.co_flags & inspect.CO_GENERATOR) and frame.f_lasti > 0


def fits():
    """Fits of three estimators that together enter most of the package, by name."""
    import numpy as np

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 5)) + 1.0, np.arange(400) % 3
    X += 3 * np.eye(5)[y]
    public = {"X_public": (X[:60] + 0.1,), "y_public": (y[:60].copy(),)}
    options = {"epsilon": 5.0, "random_state": 0}
    steps = {"n_iter": 5}  # enough to see what each of them calls
    return {
        "DPSGDClassifier": lambda: dpsubspace.DPSGDClassifier(**options, **steps).fit(X, y),
        "GEPClassifier": lambda: dpsubspace.GEPClassifier(**options, **steps).fit(X, y, **public),
        "DPPCA": lambda: dpsubspace.DPPCA(2, **options).fit(X),
    }


def other_fits():
    """Fits that a user may also run, by name."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 5)) + 1.0, np.arange(400) % 2
    X[:, 0] += y
    options = {"epsilon": 5.0, "random_state": 0}
    table = pd.DataFrame(X[:, :3], columns=list("abc")).assign(g=np.where(X[:, 3] > 0, "u", "v"))
    schema = {"a": (-4, 4), "b": dpsubspace.PrivateRange(), "c": (-4, 4), "g": ["u", "v"]}
    model = dpsubspace.DPSGDClassifier(**options)
    pipe = dpsubspace.tabular_pipeline(model, schema, epsilon=5.0)
    scored = dpsubspace.DPSGDClassifier(**options)
    people = np.repeat(np.arange(100), 4)

    def score():
        fitted = scored.fit(X, y)
        options = {"metric": "accuracy", "epsilon": 1.0, "random_state": 0}
        dpsubspace.private_score(fitted, X + 1e-9, y, **options)

    return {
        "DPSGDFClassifier": lambda: dpsubspace.DPSGDFClassifier(**options).fit(X, y),
        "DPLinearRegression": lambda: dpsubspace.DPLinearRegression(**options).fit(X, X[:, 0]),
        "tabular_pipeline(DPSGDClassifier)": lambda: pipe.fit(table, y),
        "PersonalizedLinearRegression": lambda: (
            dpsubspace.linear_model.PersonalizedLinearRegression(**options).fit(
                X, X[:, 0], groups=people
            )
        ),
        "private_score (and its fit)": score,
        "GSDScorer": lambda: dpsubspace.public_data.GSDScorer(**options).fit(X),
        "private_mean": lambda: dpsubspace.private_mean(X, **options),
    }


def main():
    """Print one line for each fit."""
    warnings.simplefilter("ignore")
    print("fit | files | functions | lines | moves | returns | climbs | stack at first release")
    for name, fit in (fits() | other_fits()).items():
        trace = traced(fit)
        files, functions, moves = trace.files_above_ground, trace.functions, trace.moves
        counts = [len(files), len(functions), trace.lines, len(moves), trace.returns]
        print(name, *counts, len(trace.climbs()), trace.depth, sep=" | ")
        if "-v" in sys.argv:
            for caller, called in sorted(trace.climbs()):
                print(f"    {caller} -> {called}")


if __name__ == "__main__":
    main()
