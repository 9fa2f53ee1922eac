"""The package does not grow unseen: every ceiling holds, and a new subject has a line."""

import json

import ceilings
import pytest
import sklearn
from sklearn.utils.fixes import parse_version

HOW = (
    "Make it smaller, or raise the ceiling with `python tests/house/ceilings.py --raise` and say in"
    " CHANGELOG.md what that buys."
)
CEILINGS = json.loads(ceilings.SNAPSHOT.read_text())


def risen(found):
    return {name: n for name, n in found.items() if n > CEILINGS.get(name, -1)}


def test_neither_code_nor_names_nor_parameters_have_risen():
    assert risen({**ceilings.sizes(), **ceilings.names()}) == {}, HOW


def test_docstrings_say_what_a_thing_is_or_does():
    assert risen(ceilings.indirect_docstrings()) == {}, HOW


def test_walks_have_not_become_longer():
    if parse_version(sklearn.__version__) < parse_version("1.9"):
        pytest.skip("older versions walk through what stands in for callbacks")
    pytest.importorskip("pandas")
    assert risen(ceilings.walks_in_a_fresh_process()) == {}, HOW


def test_what_rises_is_seen():
    assert CEILINGS["names at the top"] == 25 and CEILINGS["subjects"] == 14
    assert risen({"names at the top": 26, "subjects": 14, "code lines of new": 1}) == {
        "names at the top": 26,
        "code lines of new": 1,
    }
