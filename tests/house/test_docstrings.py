"""Public docstrings: complete by numpydoc's rules, and their examples run."""

import doctest
import importlib
import inspect

import pytest
from numpydoc.validate import validate
from test_layers import PATHS

import dpsubspace

# scikit-learn's own exemptions; methods need neither examples nor cross-references.
SKIP = {"RT02", "GL01", "GL02"}
# Modules whose examples need an extra.
EXTRAS = {"_estimators.torch_features": "torch", "_workflow.display": "matplotlib"}
METHOD_SKIP = SKIP | {"EX01", "SA01", "ES01"}


def names():
    """Every public name with the rules it is excused from."""
    found = []
    for name in dpsubspace.__all__:
        member = getattr(dpsubspace, name)
        if inspect.isclass(member) and issubclass(member, (Exception, Warning)):
            found.append((f"dpsubspace.{name}", METHOD_SKIP))
            continue
        found.append((f"dpsubspace.{name}", SKIP))
        for method, value in inspect.getmembers(member, inspect.isfunction):
            if value.__module__.startswith("dpsubspace") and not method.startswith("_"):
                found.append((f"dpsubspace.{name}.{method}", METHOD_SKIP))
    return found


@pytest.mark.parametrize(("name", "skip"), names(), ids=[name for name, _ in names()])
def test_public_docstring(name, skip):
    assert [error for error in validate(name)["errors"] if error[0] not in skip] == []


@pytest.mark.parametrize("module", PATHS)
def test_examples_in_docstrings_run(module):
    if module in EXTRAS:
        pytest.importorskip(EXTRAS[module])
    name = "dpsubspace" if module == "__init__" else f"dpsubspace.{module}"
    assert doctest.testmod(importlib.import_module(name)).failed == 0
