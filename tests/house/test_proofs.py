"""Every released quantity has a page with its proof, and a fit that replays it."""

import ast
import functools
import itertools
import runpy
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from cases import CASES
from helpers import blobs

from dpsubspace import DPSGDClassifier, PrivateSearch
from dpsubspace._core.release import mechanisms
from dpsubspace._core.release import releases as doors

ROOT = Path(__file__).parents[2]
PROOFS = runpy.run_path(str(ROOT / "docs" / "_ext" / "site_proofs.py"))
QUANTITIES, DOORS = PROOFS["QUANTITIES"], PROOFS["DOORS"]
NAMED = {case.name: case for case in CASES}


# What is on the pages --------------------------------------------------------------------------


def test_every_release_has_a_section():
    taken = {function for function, _ in PROOFS["releases"]()}
    assert len(taken) > 35 and taken == {each.released_by for each in QUANTITIES}


def test_every_bound_has_a_section():
    listed = {name for each in QUANTITIES for name in each.proof} | PROOFS["NEVER_RELEASED"]
    # A helper without a docstring is part of the function that calls it, whose docstring proves it.
    helpers = {"_core.statistics.shapes._moments"}
    made = set(PROOFS["bounds"]())
    missing = {name for name in made if not {name, name.rpartition(".")[0]} & listed}
    assert len(made) > 30 and missing == helpers


def test_noise_is_added_in_one_file_alone():
    """What is called there has a section; nothing else in the package could add noise."""
    names = {name.split(".")[-1] for name in DOORS.values()}
    files = {
        function.split(".")[2]
        for function, call in PROOFS["calls_in_functions"]()
        if isinstance(call.func, ast.Name) and call.func.id in names
    }
    assert files == {"releases"}


@pytest.mark.parametrize("quantity", QUANTITIES, ids=lambda each: each.released_by)
def test_a_section_has_a_proof_and_says_what_is_assumed(quantity):
    texts = [PROOFS["docstring"](name) for name in quantity.proof]
    assert all(texts)
    assert any(
        word in text for text in texts for word in ("Proof", "Privacy:", "record contributes")
    )
    assert PROOFS["assumed"](quantity)
    assert PROOFS["statement"](quantity).endswith(".")


@pytest.mark.parametrize("replay", sorted({each.replay for each in QUANTITIES}))
def test_a_replay_is_a_test(replay):
    file, name = replay.split("::")
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_pages_are_restructured_text():
    """As far as docutils can tell, which knows none of the roles of Sphinx."""
    core = pytest.importorskip("docutils.core")
    for name, text in PROOFS["pages"]().items():
        text = text.replace(":doc:", "").split(".. toctree::")[0]
        tree = core.publish_doctree(text, settings_overrides={"report_level": 5})
        notes = [node for node in tree.findall() if node.tagname == "system_message"]
        found = [node.astext() for node in notes if node["level"] > 1]
        assert found == [], name


# What is replayed ------------------------------------------------------------------------------


def caller():
    """The function of the package that asks, outside of the files of releases themselves."""
    frame = sys._getframe(2)
    inside = ("releases.py", "mechanisms.py", "dataclasses.py", "test_proofs.py")
    while frame.f_code.co_filename.endswith(inside) or frame.f_code.co_filename == "<string>":
        frame = frame.f_back
    name = f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"
    return name.removeprefix("dpsubspace.").split(".<locals>")[0]


@pytest.fixture
def asked(monkeypatch):
    """Functions that took a release, and that made a bounded sum."""
    releases, bounds = set(), set()

    def noting(method, seen):
        @functools.wraps(method)
        def noted(self, *args, **kwargs):
            seen.add(caller())
            return method(self, *args, **kwargs)

        return noted

    for door in DOORS:
        method = getattr(doors.Releases, door)
        monkeypatch.setattr(doors.Releases, door, noting(method, releases))
    made = mechanisms.BoundedSum.__post_init__
    monkeypatch.setattr(mechanisms.BoundedSum, "__post_init__", noting(made, bounds))
    return releases, bounds


def search():
    X, y = blobs(n=60)
    grid = {"clip_norm": [0.5, 1.0, 2.0]}
    model = DPSGDClassifier(n_iter=2, classes=[0, 1, 2])
    PrivateSearch(model, grid, epsilon=5.0, random_state=0).fit(X, y)


def blocks():
    least_squares = pytest.importorskip("test_least_squares")
    least_squares.solved("ambssgd", *least_squares.table())


WITHOUT_CASE = {
    "_core.solvers.least_squares._Block.residual_size": blocks,
    "_core.solvers.least_squares._Block.gradient": blocks,
    "_core.plans.search.TrialScorePlan.run": search,
}


def replays():
    """Fits, and all the quantities that each of them is to release."""
    key = lambda each: (each.case is None, each.case or (each.released_by, ""))  # noqa: E731
    for (_, case), several in itertools.groupby(sorted(QUANTITIES, key=key), key):
        yield pytest.param(list(several), id=" - ".join(case).strip(" -"))


@pytest.mark.parametrize("quantities", replays())
def test_the_fit_that_is_named_releases_the_quantity(asked, monkeypatch, quantities):
    releases, bounds = asked
    case = quantities[0].case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case is None:
            monkeypatch.syspath_prepend(str(ROOT / "tests" / "claims"))
            WITHOUT_CASE[quantities[0].released_by]()
        else:
            NAMED[case[0]].fit(*blobs(n=NAMED[case[0]].n), case[1])
    stated = {name: {name, name.rpartition(".")[0]} for name in PROOFS["bounds"]()}
    for each in quantities:
        assert each.released_by in releases
        proved = [name for name, names in stated.items() if names & {*each.proof}]
        assert not proved or bounds.intersection(proved)


def test_a_release_that_is_not_taken_would_be_noticed(asked):
    releases, _ = asked
    NAMED["private_mean"].fit(*blobs(n=100), "gaussian")
    assert releases == {"_core.statistics.means.searched_mean"}
    assert not np.isin("_core.statistics.means.noisy_mean", [*releases])
