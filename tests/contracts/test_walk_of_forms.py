"""Rows in any container and of any type: a fit, or an error that comes before anything is paid."""

import itertools
import re
from contextlib import suppress

import forms
import numpy as np
import pandas as pd
import pytest
import rare_forms
from cases import small_module
from forms import CONTAINERS, DOORS, ROLES, VALUES, Cell
from helpers import in_turns, pairwise, thinned
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import dpsubspace
from dpsubspace import PrivacyLedger
from dpsubspace._core.rows.inputs import check_rows
from dpsubspace._core.rows.remote import RemoteRows
from dpsubspace._names import PLACES, imported

in_parts = pytest.importorskip("in_parts")
pytest.importorskip("polars")
pytest.importorskip("torch")

REFUSALS = {"fitted", "hidden", "ValueError", "HiddenByNoise", "TypeError"}


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
    return [Cell(*row[:3], role, row[3] and DOORS[row[0]].groups) for row in rows]


CELLS = {role: _pairs(role) for role in ROLES}
ROWS = [(door, role) for role in ("X", "y") for door in DOORS if forms.takes(DOORS[door], role)]
# Targets are read in few places, so that a third of what takes them is enough by default.
WALKS = [row for row in ROWS if row[1] == "X"]
WALKS += thinned([row for row in ROWS if row[1] == "y"], 3)


def _faults(cells, monkeypatch):
    with in_parts.cluster_here(monkeypatch):
        for cell, outcome in forms.walk(cells):
            if outcome.faults or outcome.end not in REFUSALS:
                yield str(cell), outcome.end, *outcome.faults


def _plain(name, role):
    """A cell of rows that nothing speaks against."""
    door = DOORS[name]
    values = {"groups": "int64", "y": "bool" if door.task == "classes" else "float64"}
    values["X"] = "text" if door.words else "float64"
    return Cell(name, "array", values.get(role, "float64"), role)


@pytest.mark.parametrize("role", ROLES)
def test_every_door_is_open_to_plain_rows(role):
    """A door that refuses all that comes would pass the walk, and nothing would have been tried."""
    cells = [_plain(name, role) for name in DOORS if forms.takes(DOORS[name], role)]
    ends = [(str(cell), found.end, found.said) for cell, found in forms.walk(cells)]
    assert [end for end in ends if end[1] != "fitted"] == []


@pytest.mark.parametrize(("door", "role"), WALKS)
def test_every_form_is_taken_or_refused_before_it_is_paid_for(door, role, monkeypatch):
    cells = [cell for cell in CELLS[role] if cell.door == door]
    assert [*_faults(cells, monkeypatch)] == []


@pytest.mark.parametrize("role", ["groups", "X_public"])
def test_so_is_every_form_of_what_lies_beside_rows(role, monkeypatch):
    assert [*_faults(CELLS[role], monkeypatch)] == []


def _in_turns(role, containers, values):
    """Each container and type, at doors in turns, every second time with persons."""
    doors = [name for name, door in DOORS.items() if forms.takes(door, role)]
    for i, row in enumerate(in_turns(containers, values, doors)):
        persons = role != "groups" and DOORS[row[2]].groups and i % 2 == 1
        yield Cell(row[2], *row[:2], role, persons)


@pytest.mark.parametrize("role", ROLES)
def test_so_are_forms_that_are_met_less_often(role, monkeypatch):
    cells = _in_turns(role, list(rare_forms.CONTAINERS), list(forms.ALL_VALUES))
    assert [*_faults([*cells], monkeypatch)] == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("container", forms.ALL_CONTAINERS)
@pytest.mark.parametrize("role", ROLES)
def test_and_every_type_in_every_container(role, container, monkeypatch):
    cells = _in_turns(role, [container], list(forms.ALL_VALUES))
    assert [*_faults([*cells], monkeypatch)] == []


def _read(container, values):
    """What the reader of all estimators makes of rows; None where it refuses them."""
    given = forms.made(container, values, forms.X)
    with suppress(ValueError, TypeError):
        return None if given is None else check_rows(dpsubspace.DPPCA(), given, reset=True)
    return None


@pytest.mark.filterwarnings("ignore")
def test_rows_that_are_read_have_one_of_two_types(monkeypatch):
    """So no fit meets a container and a type together: pairs with an estimator are enough.

    Walked by pairs alone, a frame in the byte order of another machine met all estimators but
    the one that fails on it.
    """
    found, known = {}, {np.dtype("float64"), np.dtype("float32")}
    with in_parts.cluster_here(monkeypatch):
        for cell in itertools.product(CONTAINERS, VALUES):
            read = None if cell[0] == "dataset" else _read(*cell)
            if read is not None:
                found[cell] = read.dtype, type(read)
    assert len(found) > 400
    assert [cell for cell, (dtype, _) in found.items() if dtype not in known] == []
    assert {each for _, each in found.values()} == {np.ndarray, sparse.csr_array, RemoteRows}


def _weights(build, X):
    y = forms.LABELS if build is dpsubspace.neural_network.DPModuleClassifier else forms.TARGETS
    model = build(small_module(3, 1), epsilon=30.0, n_iter=2, random_state=0).fit(X, y)
    model.predict(X)
    return model.module_.state_dict()["0.weight"].numpy()


# What shows rows of a frame to a network.
NETWORKS = {
    "DPModuleClassifier": lambda X: _weights(dpsubspace.neural_network.DPModuleClassifier, X),
    "DPModuleRegressor": lambda X: _weights(dpsubspace.neural_network.DPModuleRegressor, X),
    "TorchFeatures": lambda X: dpsubspace.neural_network.TorchFeatures(
        small_module(3, 2)
    ).fit_transform(X),
    "gradient_subspace_distance": lambda X: dpsubspace.public_data.gradient_subspace_distance(
        X, X[::-1], module=small_module(3, 1), n_classes=2, n_components=1, random_state=0
    ),
    "GSDScorer": lambda X: DOORS["GSDScorer, module"].call(X, None, None, None).span_energy_,
    "private_projection_error": lambda X: (
        DOORS["private_projection_error, module"].call(X, None, None, None).value.error
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_sees_a_frame_of_another_byte_order(name):
    """PyTorch has no numbers in another byte order than that of the machine."""
    for size in (4, 8):
        here, there = (
            NETWORKS[name](pd.DataFrame(forms.X.astype(f"{order}f{size}"))) for order in "<>"
        )
        np.testing.assert_array_equal(here, there)


def test_the_walk_has_all_that_takes_private_rows():
    """Each public class with a fit of its own and each function of private rows is a door."""
    known = {name.partition(",")[0] for name in DOORS}
    others = {"PrivacyLedger"}  # fits what it is given
    public = {
        name
        for name in PLACES
        if name.startswith(("private_", "select_")) or hasattr(imported(name), "fit")
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


@pytest.mark.parametrize(
    ("container", "way"),
    [("gradient", "detach()"), ("sparse", "to_dense()"), ("bfloat16", "float()")],
)
@pytest.mark.parametrize("role", ROLES)
def test_a_tensor_that_numpy_does_not_read_is_refused_with_the_way_out(role, container, way):
    """RuntimeError of torch, with its advice for code of one's own, was all that was said."""
    given = forms.arguments(Cell("GEPRegressor", f"tensor, {container}", "float64", role))
    with pytest.raises(ValueError, match=rf"does not read: pass {role}.{re.escape(way)}\."):
        DOORS["GEPRegressor"].call(*(given[each] for each in ROLES))


@pytest.mark.parametrize(
    ("container", "way"),
    [
        ("Arrow, stream", "pyarrow.table"),
        ("Arrow, relation", "pyarrow.table"),
        ("Arrow, reader", "pyarrow.table"),
        ("records", "pandas.DataFrame"),
    ],
)
@pytest.mark.parametrize("door", DOORS)
def test_rows_of_a_database_are_refused_with_the_way_out(door, container, way):
    """Errors spoke of `dtype`, of an index or of `float()`, of what nobody had asked for."""
    if DOORS[door].public:
        _refuses_rows(Cell(door, container, "float64", "X_public"), way)
    _refuses_rows(Cell(door, container, "float64"), way)


def _refuses_rows(cell, way):
    given = forms.arguments(cell)
    with pytest.raises(ValueError, match=rf"`[^`]*` (is a stream|has dict).*: pass {way}\("):
        DOORS[cell.door].call(*(given[each] for each in ROLES))


class _Whole:
    """Rows that can be had together only, as those of columns of run ends of Arrow."""

    shape = forms.X.shape

    def __len__(self):
        return len(forms.X)

    def __getitem__(self, key):
        raise NotImplementedError(f"{forms.TEXT} in {len(forms.X)} rows")


@pytest.mark.parametrize(
    "door", ["DPConformalClassifier", "DPCalibratedClassifier", "private_score"]
)
def test_rows_of_which_none_can_be_picked_are_refused(door):
    """By persons, or one by one; what a library says of that may have their number."""
    ledger = PrivacyLedger(1e6, 1e-3, unit="person", allow_seeded=True)
    with ledger, pytest.raises(ValueError, match="no rows can be picked out of `X`") as caught:
        DOORS[door].call(_Whole(), forms.LABELS.astype(int), forms.OF_PERSON, None)
    told = forms.said_by(caught.value)
    assert not ledger.entries and not forms.ROWS.search(told) and forms.TEXT not in told


def test_a_mask_is_seen_by_what_is_not_private():
    rows = np.ma.array(forms.X, mask=forms.X > 8)
    with pytest.raises(ValueError, match="`X_private` has masked entries"):
        dpsubspace.public_data.gradient_subspace_distance(rows, forms.PUBLIC)
    with pytest.raises(ValueError, match="`X_public` has masked entries"):
        dpsubspace.public_data.ProjectionErrorDisplay.from_public(rows)


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
