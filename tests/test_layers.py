"""The structure that makes privacy claims checkable by reading one file."""

import ast
from pathlib import Path

import pytest

import dpsubspace

ROOT = Path(dpsubspace.__file__).parent
MODULES = sorted(ROOT.glob("*.py"))

# Lower layers first; a module imports from layers below its own only.
LAYERS = [
    {"exceptions", "_array", "_auto", "_bingham", "_compat", "_throwaway"},
    {"_events", "_inputs", "_noise", "_losses", "_scaling"},
    {"_torch", "_features"},
    {"_privacy", "_gradients"},
    {
        "_modules",
        "_subspace",
        "_training",
        "_moments",
        "_private",
        "_solver",
        "_curves",
        "_pipelines",
        "_watch",
    },
    {"_steps", "_plan"},
    {"_linear_model", "_public", "_spectral", "_ledger_file"},
    {"_classifier", "_embedding", "_regressor", "_ledger"},
    {"_gep", "_linear", "_regression", "_pca", "_scaler", "_statistics", "_audit", "_display"},
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
    ours = {name.split(".")[1] for name in names if name.startswith("dpsubspace.")}
    if path.stem not in ("_privacy", "_curves", "_ledger_file", "_watch"):
        assert "_events" not in ours, "only accounting reads what events are made of"
    if path.stem not in ("_privacy", "_events"):
        asked = {"dp_accounting", "dp_accounting.DpEvent"} if path.stem == "_ledger" else set()
        assert accounting <= asked | {"dp_accounting.DpEvent"}, "only _privacy asks accountants"
    text = path.read_text()
    if path.stem != "_noise":
        for draws in (".gaussian(", "noise.uniform", "urandom"):
            assert draws not in text, "only _noise draws noise"
        assert "_bingham" not in ours, "only _noise draws directions"
    if path.stem == "_bingham":
        assert not ours and "np.random" not in text, "what it draws from is handed in"
    private = {name for name in names if name.startswith("sklearn.") and "._" in name}
    assert not private, "only public names of scikit-learn"
    if path.stem != "_compat":
        assert "sklearn.callback" not in text, "version differences live in _compat"
