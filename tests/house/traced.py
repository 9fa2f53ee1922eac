"""Which functions of the package a call enters, and from where: the shape of one fit.

``python tests/house/traced.py`` prints it for three fits. It reads whatever layout the package
that Python finds has: files in one folder have no wings.
"""

import inspect
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import dpsubspace

ROOT = Path(dpsubspace.__file__).parent
PARTS = {"<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"}  # of the function around them

# Wings, the lowest first. What stands in no folder is the ground of all.
WINGS = (
    "ground",
    "_accounting",
    "_rows",
    "_tables",
    "_release",
    "_gradients",
    "_public",
    "_statistics",
    "_solvers",
    "_estimators",
    "_workflow",
    "__init__",
)


def wing_of(module):
    """Place in WINGS of a module that is named by its path: "_rows.maps"."""
    wing = module.split(".")[0]
    return WINGS.index(wing if wing in WINGS else "ground")


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

    def moves(self, place=lambda module: module):
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
            for caller, called in self.moves(level)
            if level(caller.module) < level(called.module)
        }


def _function_of(code):
    """Function of a code object, or None if it is not of the package or no function."""
    path = Path(code.co_filename)
    if not code.co_flags & inspect.CO_OPTIMIZED or not path.is_relative_to(ROOT):
        return None
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = code.co_qualname.replace("<locals>.", "")
    return Function(".".join(parts).removesuffix(".__init__"), name)


def traced(call):
    """Trace of ``call()``, in this thread."""
    known, calls, depths = {}, Counter(), []

    def function_of(code):
        if code not in known:
            known[code] = None if code.co_name in PARTS else _function_of(code)
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
        if called.name in ("release", "release_laplace", "release_direction", "release_choice"):
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
    public = {"X_public": (X[:60] + 0.1,), "y_public": (y[:60],)}
    options = {"epsilon": 5.0, "random_state": 0}
    steps = {"n_iter": 5}  # enough to see what each of them calls
    return {
        "DPSGDClassifier": lambda: dpsubspace.DPSGDClassifier(**options, **steps).fit(X, y),
        "GEPClassifier": lambda: dpsubspace.GEPClassifier(**options, **steps).fit(X, y, **public),
        "DPPCA": lambda: dpsubspace.DPPCA(2, **options).fit(X),
    }


def main():
    """Print one line for each fit."""
    print("fit | files | functions | moves between files | wings | climbs | stack at first release")
    for name, fit in fits().items():
        trace = traced(fit)
        counts = [trace.files, trace.functions, trace.moves(), trace.moves(wing_of), trace.climbs()]
        print(name, *map(len, counts), trace.depth, sep=" | ")
        if "-v" in sys.argv:
            for caller, called in sorted(trace.climbs()):
                print(f"    {caller} -> {called}")


if __name__ == "__main__":
    main()
