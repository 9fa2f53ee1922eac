"""The structure that makes privacy claims checkable by reading one file."""

import ast
import graphlib

import pytest
from traced import ROOT, WINGS, wing_of


def name_of(path):
    """Dotted name within the package: "_rows.maps"."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


PATHS = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imported(module):
    """Dotted names that a module imports anywhere in its code."""
    for node in ast.walk(ast.parse(PATHS[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(module):
    """Modules of this package that a module imports."""
    for name in imported(module):
        parts = name.split(".")
        if parts[0] == "dpsubspace":
            known = (".".join(parts[1:end]) for end in (3, 2))
            yield next(name for name in known if name in PATHS)


@pytest.mark.parametrize("module", PATHS)
def test_imports_point_down(module):
    for other in ours(module):
        assert wing_of(other) <= wing_of(module), f"{module} imports {other}"


def test_imports_go_in_no_circle():
    graph = {module: set(ours(module)) for module in PATHS}
    list(graphlib.TopologicalSorter(graph).static_order())


def test_every_folder_is_a_wing():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert not folders - {"__pycache__"}
    assert {name.split(".")[0] for name in PATHS if "." in name} == set(WINGS[1:-1])


@pytest.mark.parametrize("module", PATHS)
def test_each_question_is_answered_in_one_place(module):
    names, wing = set(imported(module)), module.split(".")[0]
    accounting = {name for name in names if name.startswith("dp_accounting")}
    if wing != "_accounting":
        asked = {"dp_accounting", "dp_accounting.DpEvent"}
        assert accounting <= (asked if module == "_workflow.ledger" else {"dp_accounting.DpEvent"})
    text = PATHS[module].read_text()
    text = text.replace("releases.gaussian(", "")  # which draws noise in _release
    if wing != "_release":
        for draws in (".gaussian(", "noise.uniform", "urandom", "_release.bingham"):
            assert draws not in text, "only _release draws noise"
    if module == "_release.bingham":
        assert not set(ours(module)) and "np.random" not in text, "what it draws from is handed in"
    private = {name for name in names if name.startswith("sklearn.") and "._" in name}
    assert not private, "only public names of scikit-learn"
    if module != "_compat":
        assert "sklearn.callback" not in text, "version differences live in _compat"
