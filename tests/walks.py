"""A walk over parameters: each is set to another value, and what is released must tell."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from dpsubspace import PrivacyError

INF = float("inf")

# Of these the docstrings of all objects say that they decide where and how fast, and not what.
NOT_OF_WHAT = {"device", "microbatch_size", "n_jobs"}

BUDGET = {"epsilon": 3.0, "delta": 1e-7, "neighboring_relation": "replace_one", "random_state": 1}

NO_NOISE = '``float("inf")`` is not private: no noise is added.'
EXACT = dict.fromkeys(("delta", "neighboring_relation", "random_state"), NO_NOISE)


@dataclass(frozen=True)
class Walk:
    """An object, values of its parameters that are not its defaults, and modes to try them in.

    What is set in a part of the object has the name of the part before it, as in "fit__groups".
    """

    what: Any
    release: Callable  # of a mode and a parameter: what others may see
    others: Mapping[str, Any]
    modes: Mapping[str, Mapping[str, Any]]
    unused: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by mode, in words
    cheap: tuple[str, ...] = ()  # modes of the default suite
    # What changes last digits alone: a solver that starts elsewhere ends beside the same minimum.
    rounding: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()  # parameters that tests with more rows look at
    method: str = ""  # of the object, if it is one that is called
    needs: str = ""  # package that it does not run without

    @property
    def called(self):
        return getattr(self.what, self.method) if self.method else self.what

    @property
    def name(self):
        return f"{self.what.__name__}.{self.method}".rstrip(".")

    @property
    def docs(self):
        """Docstrings of what is called and of what it belongs to, in one line."""
        doors = [self.what, self.called, getattr(self.what, "fit", None)]
        return " ".join(" ".join(inspect.getdoc(door) or "" for door in doors if door).split())


def settable(door):
    """Parameters of a class or function that have a default, but for those of where and how."""
    given = inspect.signature(door).parameters.values()
    return {each.name for each in given if each.default is not each.empty} - NOT_OF_WHAT


def split(options, part):
    """Options of the object, and those of one part of it by their own names."""
    of_part = {key: value for key, value in options.items() if key.startswith(f"{part}__")}
    own = {key: value for key, value in options.items() if key not in of_part}
    return own, {key.removeprefix(f"{part}__"): value for key, value in of_part.items()}


def of_privacy(said):
    """What is said of a release; without privacy that is nothing."""
    words = (repr(said.event), said.unit)
    private = 0 < said.epsilon < INF
    return (*words, said.epsilon, said.delta, said.neighboring_relation) if private else words


def seen(walk, options):
    """What is released and what is warned of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        return walk.release(options), {str(each.message) for each in told}


def set_here(walk, mode):
    """Values of parameters that a mode has not set already."""
    options, own = walk.modes[mode], inspect.signature(walk.called).parameters
    for name, value in walk.others.items():
        known = "__" in name or (name in own and name not in walk.elsewhere)
        if known and repr(options.get(name, ...)) != repr(value):
            yield name, value


def silent(walk, mode):
    """Parameters that can be set in a mode and change nothing, without an error or a warning."""
    options, found = walk.modes[mode], set()
    start, told = seen(walk, options)
    assert seen(walk, options)[0] == start
    for name, value in set_here(walk, mode):
        try:
            other, more = seen(walk, {**options, name: value})
        except (ValueError, TypeError, AttributeError, ImportError, PrivacyError):
            continue
        word = name.rpartition("__")[2]
        if other == start and not any(word in each for each in more - told):
            found.add(name)
    return found


def rows(walks):
    """Each mode of each walk, for `parametrize`.

    One example shows that a value has an effect, whatever other seeds would have shown.
    """
    for walk in walks:
        for mode in walk.modes:
            marks = [pytest.mark.literal_seeds]
            marks += [] if mode in walk.cheap else [pytest.mark.exhaustive]
            yield pytest.param(walk, mode, id=f"{walk.name}, {mode}", marks=marks)


def check(walk, mode):
    """What can be set in a mode has an effect, or the docstring has words that say it has none."""
    if walk.needs:
        pytest.importorskip(walk.needs)
    unused = walk.unused.get(mode, {})
    expected = {name: unused[name] for name, _ in set_here(walk, mode) if name in unused}
    found = silent(walk, mode)
    assert found <= {*expected} and {*expected} - found <= {*walk.rounding}
    text = walk.docs
    assert [words for words in expected.values() if words not in text] == []
