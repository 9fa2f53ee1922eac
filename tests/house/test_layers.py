"""The structure that makes privacy claims checkable by reading one file."""

import ast
import functools
import graphlib
import re

from traced import ROOT, WINGS, folder_of, wing_of

from dpsubspace._names import SUBJECTS


def name_of(path):
    """Dotted name within the package: "_core.rows.records"."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


PATHS = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


@functools.cache
def imported(module):
    """Dotted names that a module imports anywhere in its code."""
    found = []
    for node in ast.walk(ast.parse(PATHS[module].read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def ours(module):
    """Modules of this package that a module imports."""
    for name in imported(module):
        parts = name.split(".")
        if parts[0] == "dpsubspace":
            known = (".".join(parts[1:end]) for end in (4, 3, 2))
            yield next(name for name in known if name in PATHS)


def test_imports_point_down():
    pairs = [(module, other) for module in PATHS for other in ours(module)]
    climbs = [(low, high) for low, high in pairs if wing_of(low) < wing_of(high)]
    assert len(pairs) > 500 and climbs == []


def test_imports_go_in_no_circle():
    graph = {module: set(ours(module)) for module in PATHS}
    list(graphlib.TopologicalSorter(graph).static_order())


def test_every_folder_is_a_wing_or_a_subject():
    folders = {".".join(path.relative_to(ROOT).parent.parts) for path in PATHS.values()}
    assert folders == {"", "_core", "_core.ground", *WINGS[1:]} and {*SUBJECTS} < {*WINGS}


def test_subjects_hand_rows_on_and_release_nothing():
    """What is released, and what sums of rows are bounded by, stands in plans of the core."""
    found = set()
    for module in PATHS:
        names = {name.removeprefix("dpsubspace.") for name in imported(module)}
        releases = names & {
            "_core.fits.estimator.PrivateCall",
            "_core.release.releases.Releases",
            "_core.release.releases.draw_trials",
        }
        if any(name.startswith("_core.release.mechanisms") for name in names) or releases:
            found.add(module)
    assert all(name.startswith("_core.") for name in found) and len(found) > 20
    opened = {name for name in PATHS if re.search(r"\bPrivateCall\(", PATHS[name].read_text())}
    assert opened == {"_core.fits.estimator"}


def answered_elsewhere(module):
    """Questions that a module answers and another one should, as text."""
    names, wing = set(imported(module)), folder_of(module)
    if wing != "_core.accounting":
        accounting = {name for name in names if name.startswith("dp_accounting")}
        asked = {"dp_accounting", "dp_accounting.DpEvent"}
        if not accounting <= (asked if module == "budget._ledger" else {"dp_accounting.DpEvent"}):
            yield "only _core.accounting computes costs"
    text = PATHS[module].read_text()
    text = text.replace("releases.gaussian(", "")  # which draws noise in _core.release
    draws = (".gaussian(", "noise.uniform", "urandom", "_core.release.bingham")
    if wing != "_core.release" and any(name in text for name in draws):
        yield "only _core.release draws noise"
    if module != "_core.fits.estimator" and re.search(
        r"\bReleases\(", text.replace("class Releases", "")
    ):
        yield "only a PrivateCall, which has paid, makes Releases"
    if module not in ("_core.rows.records", "audit._canaries") and (
        "NullRecords" in text or re.search(r"\bpresent: (np\.ndarray|Any)", text)
    ):
        yield "records alone know which of them are null, and audits alone make such"
    if module == "_core.release.bingham" and (set(ours(module)) or "np.random" in text):
        yield "what it draws from is handed in"
    if any(name.startswith("sklearn.") and "._" in name for name in names):
        yield "only public names of scikit-learn"
    if module != "_core.ground.compat" and "sklearn.callback" in text:
        yield "version differences live in _core.ground.compat"


def test_each_question_is_answered_in_one_place():
    assert [(module, what) for module in PATHS for what in answered_elsewhere(module)] == []
