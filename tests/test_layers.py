"""The structure that makes privacy claims checkable by reading one file."""

import ast
from pathlib import Path

import pytest

import dpsubspace

ROOT = Path(dpsubspace.__file__).parent
MODULES = sorted(ROOT.glob("*.py"))

# Lower layers first; a module imports from layers below its own only.
LAYERS = [
    {"exceptions", "_array", "_auto", "_compat"},
    {"_inputs", "_noise", "_losses", "_scaling"},
    {"_torch", "_features"},
    {"_privacy", "_gradients"},
    {"_training", "_moments", "_private"},
    {"_linear_model"},
    {"_linear", "_regression", "_scaler", "_statistics", "_audit", "_display"},
    {"__init__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported(path):
    """Dotted names that a module imports anywhere in its code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_imports_point_down(path):
    for name in imported(path):
        if name.startswith("dpsubspace."):
            module = name.split(".")[1]
            assert LEVEL[module] < LEVEL[path.stem], f"{path.stem} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_each_question_is_answered_in_one_file(path):
    names = set(imported(path))
    accounting = {name for name in names if name.startswith("dp_accounting")}
    if path.stem != "_privacy":
        assert accounting <= {"dp_accounting.DpEvent"}, "only _privacy interprets events"
    text = path.read_text()
    if path.stem != "_noise":
        assert ".gaussian(" not in text and "urandom" not in text, "only _noise draws noise"
    private = {name for name in names if name.startswith("sklearn.") and "._" in name}
    assert not private, "only public names of scikit-learn"
    if path.stem != "_compat":
        assert "sklearn.callback" not in text, "version differences live in _compat"
