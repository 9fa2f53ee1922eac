"""The public interface is the one that was written down."""

import ast
import difflib
import importlib
from inspect import isclass
from pathlib import Path

import api
import pytest

import dpsubspace
from dpsubspace._core.public import subspace
from dpsubspace._names import PLACES, SUBJECTS, TOP


def test_the_interface_is_the_one_that_was_written_down():
    """A change is wanted: ``python tests/house/api.py --write``, and a line in CHANGELOG.md.

    What goes, or changes its name, its place or its default, follows GOVERNANCE.md.
    """
    written = api.SNAPSHOT.read_text(encoding="utf-8").splitlines()
    assert "\n".join(difflib.unified_diff(written, [*api.lines()], lineterm="", n=0)) == ""


def test_every_name_is_written_down():
    names = {line.split("(")[0].split(":")[0] for line in api.lines()}
    assert {*PLACES} <= names
    for name in ("PrivateSearch.predict", "PrivacyGuarantee.to_json", "DPSGDClassifier.fit"):
        assert name in names


def test_a_change_of_a_default_is_seen(monkeypatch):
    before = [*api.lines()]
    monkeypatch.setattr(subspace, "subspace_distance", lambda A, B, scale=2.0: 0.0)
    changed = [line for line in api.lines() if line not in before]
    assert changed == ["subspace_distance(A, B, scale=2.0): function"]


@pytest.mark.parametrize("door", ["dpsubspace", *(f"dpsubspace.{name}" for name in SUBJECTS)])
def test_type_checkers_are_told_where_each_name_is(door):
    """What ``__init__.pyi`` imports, ``__init__.py`` gives when it is asked for."""
    door = importlib.import_module(door)
    stub = ast.parse(Path(door.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    told = {alias.name: node.module for node in imports for alias in node.names}
    assert told.keys() == set(door.__all__) == set(dir(door))
    for name, module in told.items():
        there = importlib.import_module(module)
        assert getattr(there, name) is getattr(door, name)


def test_every_public_name_is_of_one_subject():
    names = [name for subject in SUBJECTS for name in getattr(dpsubspace, subject).__all__]
    names += [*dpsubspace.exceptions.__all__, "load"]
    assert len(names) == len(set(names)) and {*names} == {*PLACES}
    assert len(SUBJECTS) == 14 and {*TOP} < {*PLACES} and len(TOP) == 25
    assert {*dpsubspace.__all__} == {*TOP, *SUBJECTS, "exceptions"}
    for subject in SUBJECTS:
        door = getattr(dpsubspace, subject)
        classes = [thing for thing in (getattr(door, n) for n in door.__all__) if isclass(thing)]
        assert all(thing.__module__ == door.__name__ for thing in classes)


@pytest.mark.parametrize("name", sorted({*PLACES} - {*TOP}))
def test_names_that_have_left_the_top_say_where_they_are(name):
    with pytest.warns(FutureWarning, match=rf"write `from {PLACES[name]} import {name}`"):
        found = getattr(dpsubspace, name)
    assert found is getattr(importlib.import_module(PLACES[name]), name)
