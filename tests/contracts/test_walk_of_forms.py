"""Rows in any container and of any type: a fit, or an error that comes before anything is paid."""

import forms
import numpy as np
import pandas as pd
import pytest
from forms import CONTAINERS, DOORS, ROLES, VALUES, Cell
from helpers import in_turns, pairwise, thinned
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import dpsubspace
from dpsubspace import PrivacyLedger

in_parts = pytest.importorskip("in_parts")
pytest.importorskip("polars")
pytest.importorskip("torch")

REFUSALS = {"fitted", "hidden", "ValueError", "TypeError"}


def _pairs(role):
    """Cells in which every two of a door, a container, a type and a unit meet.

    Who rows belong to is read in one place, and so are public rows: there each door, container and
    type comes up, and a container meets each type in the exhaustive suite.
    """
    doors = [name for name, door in DOORS.items() if forms.takes(door, role)]
    if role in ("X", "y"):
        rows = pairwise(doors, list(CONTAINERS), list(VALUES), [False, True])
    else:
        rows = [(*row, False) for row in in_turns(list(CONTAINERS), list(VALUES), doors)]
        rows = [(door, *others, persons) for *others, door, persons in rows]
    return [Cell(*row[:3], role, row[3]) for row in rows]


CELLS = {role: _pairs(role) for role in ROLES}
ROWS = [(door, role) for role in ("X", "y") for door in DOORS if forms.takes(DOORS[door], role)]
# Targets are read in few places, so that a third of what takes them is enough by default.
WALKS = [row for row in ROWS if row[1] == "X"]
WALKS += thinned([row for row in ROWS if row[1] == "y"], 3)


def _faults(cells, monkeypatch):
    with in_parts.cluster_here(monkeypatch):
        for cell, outcome in forms.walk(cells):
            odd = outcome.end not in REFUSALS and cell.role != "X_public"
            if outcome.faults or odd:
                yield str(cell), outcome.end, *outcome.faults


@pytest.mark.parametrize(("door", "role"), WALKS)
def test_every_form_is_taken_or_refused_before_it_is_paid_for(door, role, monkeypatch):
    cells = [cell for cell in CELLS[role] if cell.door == door]
    assert [*_faults(cells, monkeypatch)] == []


@pytest.mark.parametrize("role", ["groups", "X_public"])
def test_so_is_every_form_of_what_lies_beside_rows(role, monkeypatch):
    assert [*_faults(CELLS[role], monkeypatch)] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("role", ["groups", "X_public"])
def test_and_every_type_in_every_container(role, container, monkeypatch):
    doors = [name for name, door in DOORS.items() if forms.takes(door, role)]
    cells = [
        Cell(doors[i % len(doors)], container, values, role) for i, values in enumerate(VALUES)
    ]
    assert [*_faults(cells, monkeypatch)] == []


def test_the_walk_has_all_that_takes_private_rows():
    """Each public class with a fit of its own and each function of private rows is a door."""
    known = {name.partition(",")[0] for name in DOORS}
    others = {"PrivacyLedger", "TorchFeatures"}  # fits what it is given; a public map of rows
    public = {
        name
        for name in dpsubspace.__all__
        if name.startswith(("private_", "select_")) or hasattr(getattr(dpsubspace, name), "fit")
    }
    assert public - others == known


# One of each kind, in words ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "bool"])
@pytest.mark.parametrize("Estimator", [dpsubspace.DPSGDFClassifier, dpsubspace.DPPCA])
def test_a_sparse_frame_of_truth_values_is_one_of_zeros_and_ones(Estimator, dtype):
    ward = pd.Series(np.resize(list("abcd"), 100))
    X = pd.get_dummies(ward, sparse=True, dtype=dtype)
    first, other = (
        Estimator(random_state=0).fit(rows, ward.isin(["a", "b"]))
        for rows in (X, sparse.csr_array(X.to_numpy(dtype=float)))
    )
    names = [name for name in ("coef_", "components_") if hasattr(first, name)]
    assert names
    for name in names:
        np.testing.assert_allclose(getattr(first, name), getattr(other, name), atol=1e-6)


@pytest.mark.parametrize(("door", "role"), [*ROWS, ("DPPCA", "groups")])
def test_entries_under_a_mask_are_no_values(door, role):
    """NumPy takes the mask away without a word, so that what lies under it would be used."""
    given = forms.arguments(Cell(door, "masked", "float64", role))
    with pytest.raises(ValueError, match=r"masked|missing"):
        DOORS[door].call(*(given[each] for each in ROLES))


def test_what_a_foreign_model_says_of_rows_is_not_quoted():
    """Its messages may have entries of them, as NumPy's have where a text is no number."""
    X = np.random.default_rng(0).normal(size=(50, 2))
    model = LogisticRegression().fit(X, np.arange(50) % 2)
    rows = X.astype(object)
    rows[3, 1] = forms.TEXT
    ledger = PrivacyLedger(9.0, 1e-5)
    with ledger, pytest.raises(ValueError, match=r"`predict` of the model, a LogisticR") as caught:
        dpsubspace.private_score(model, rows, np.arange(50) % 2, metric="accuracy", epsilon=1.0)
    assert forms.TEXT not in forms.said_by(caught.value) and not ledger.entries
