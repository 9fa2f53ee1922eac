"""Sums over parts under attack: what is merged, what has changed, and what goes to workers.

All of it on a cluster in this process: see in_parts.py.
"""

import warnings

import numpy as np
import pytest

pytest.importorskip("distributed")

import cloudpickle
import dask
import dask.array as da
from helpers import RELATIONS, blobs, releases
from in_parts import TAKEN_FITS, blocks, cluster_here

from dpsubspace import DPSGDClassifier, DPSGDRegressor, PrivacyLedger, private_mean
from dpsubspace._core.ground.arrays import Total
from dpsubspace._core.release.mechanisms import BoundedSum, DisjointTotal, DisjointTotals
from dpsubspace._core.rows.dask_parts import load_collections
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.remote import RemoteRows, RowPart, RowParts, rowwise
from dpsubspace._core.statistics.moments import _InSpans
from dpsubspace.exceptions import ClusterError, PrivacyWarning

pytestmark = pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")


def added_up(kind, *values):
    """A total of numbers, one after another."""
    total = kind()
    for value in values:
        total.add(np.array([value]))
    return total


# Totals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Total, lambda: _InSpans(1), lambda: _InSpans(10)])
def test_totals_of_parts_are_carried_and_not_just_added(kind):
    """What an addition of parts loses is kept, however many chunks may be added up plainly."""
    first, *others = (added_up(kind, value) for value in (2.0**60, 1.0, 1.0, -(2.0**60)))
    for other in others:
        first.merge(other)
    assert first.value == 2.0


@pytest.mark.parametrize("kind", [Total, lambda: _InSpans(1)])
def test_what_a_part_has_lost_comes_with_its_total(kind):
    first, other = added_up(kind, 0.0), added_up(kind, 2.0**60, 1.0, 1.0)
    first.merge(other)
    first.add(np.array([-(2.0**60)]))
    assert first.value == 2.0


def test_a_span_that_is_not_full_does_not_swallow_the_next_part():
    """The chunks of ours that are left are a span of their own."""
    first, other = added_up(lambda: _InSpans(3), 2.0**60), added_up(lambda: _InSpans(3), 1.0)
    first.merge(other)
    first.add(np.array([-(2.0**60)]))
    assert first.value == 1.0


def test_the_bounds_of_all_parts_hold_for_their_total():
    """Those of the largest, whichever part it is in."""

    def total(*bounds):
        found = DisjointTotal()
        found.add(BoundedSum(np.ones(1), *bounds))
        return found

    for order in [((1.0, 4.0), (3.0, 3.0)), ((3.0, 3.0), (1.0, 4.0))]:
        first, other = (total(*bounds) for bounds in order)
        first.merge(other)
        found = first.bounded_sum()
        assert (found.norm_bound, found.replace_bound) == (3.0, 4.0)
    side_by_side = DisjointTotals()
    side_by_side.add((BoundedSum(np.ones(1), 1.0, 1.0),) * 2)
    other = DisjointTotals()
    other.add((BoundedSum(np.ones(1), 1.0, 1.0), BoundedSum(np.ones(1), 5.0, 6.0)))
    side_by_side.merge(other)
    assert [total.norm_bound for total in side_by_side.bounded_sums()] == [1.0, 5.0]


# Noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "relation"), [*zip([np.float64, np.float32], RELATIONS, strict=True)], ids=str
)
@pytest.mark.parametrize(("case", "setting"), TAKEN_FITS, ids=str)
def test_bounds_and_multipliers_are_those_of_arrays(monkeypatch, case, setting, form, relation):
    """To the last bit: none is that of one part, or of what stands for no rows."""
    X, y = blobs(n=case.n)
    X = X.astype(form)
    with releases(monkeypatch) as here:
        case.fit(X, y, setting, relation)
    with cluster_here(monkeypatch), releases(monkeypatch, outputs=here) as there:
        case.fit(blocks(X), blocks(y), setting, relation)
    assert len(here) == len(there)
    for (one, _, multiplier), (other, _, again) in zip(here, there, strict=True):
        assert (one.norm_bound, one.replace_bound) == (other.norm_bound, other.replace_bound)
        assert multiplier == again


@pytest.mark.parametrize(("case", "setting"), TAKEN_FITS, ids=str)
def test_what_is_public_of_no_rows_is_public_of_a_part(monkeypatch, case, setting):
    """A `PUBLIC` attribute is the same where rows are."""
    asked, found = RemoteRows.__getattr__, set()

    def checked(self, name):
        value = asked(self, name)
        if not name.startswith("__") and name in getattr(type(self.template), "PUBLIC", ()):
            with monkeypatch.context() as patch:
                patch.setattr(RemoteRows, "__getattr__", asked)
                seen = self.parts.call(getattr, self, name)
            if not callable(value):
                found.add(name)
                assert all(_same(one, value) for one in seen), name
        return value

    X, y = blobs(n=case.n)
    with cluster_here(monkeypatch), monkeypatch.context() as patch:
        patch.setattr(RemoteRows, "__getattr__", checked)
        case.fit(blocks(X), y, setting)
    if not case.is_function and hasattr(case.build, "loss"):
        assert "n_samples" in found


def _same(one, other):
    """Whether two public values are equal; of records, what is public."""
    if isinstance(one, Records):
        return (one.n, one.grouped) == (other.n, other.grouped)
    if hasattr(one, "__dict__") and not isinstance(one, type):
        return all(_same(value, vars(other)[name]) for name, value in vars(one).items())
    return np.array_equal(one, other)


# Parts that have changed ----------------------------------------------------------------------


def replaced(change):
    """Before the fourth call a part is read again, and is another one."""

    def before(cluster):
        if cluster.calls == 4:
            cluster.parts[1].value = change(cluster.parts[1].value)

    return before


def fewer(part):
    return RowPart({name: leaf[:5] for name, leaf in part._leaves.items()}, [5])


def single(part):
    return RowPart(part._leaves | {"rows": part._leaves["rows"].astype(np.float32)}, part.lengths)


def refused(part):
    return "Input X contains NaN."


@pytest.mark.parametrize("change", [fewer, single, refused])
@pytest.mark.parametrize("batch_size", [None, 60])
def test_a_part_that_is_another_when_it_is_read_again_ends_the_fit(monkeypatch, change, batch_size):
    """Its sums would not have the bounds that the noise was made for; the charge stays."""
    X, y = blobs(n=300)
    model = DPSGDClassifier(n_iter=9, batch_size=batch_size, random_state=0)
    ledger = PrivacyLedger(100.0, 1e-5, allow_seeded=True)
    refusal = pytest.raises(ClusterError, match="same each time")
    with cluster_here(monkeypatch, before=replaced(change)), ledger, refusal as caught:
        model.fit(blocks(X), y)
    assert "stays charged" in str(caught.value) and len(ledger.entries) == 1
    assert hasattr(model, "privacy_") and not hasattr(model, "coef_")


def test_what_was_made_is_made_again_for_a_part_that_lags_behind():
    """And everything that a call needs is sent along with it then, not just the last of it."""

    class Here(RowParts):
        rounds = 0

        def __init__(self):
            super().__init__(4)
            self.parts = [RowPart({"rows": np.arange(2.0)}), RowPart({"rows": np.arange(2.0, 4.0)})]

        def run(self, task, own):
            self.rounds += 1
            own = [None] * 2 if own is None else own
            return [part.run(task, one) for part, one in zip(self.parts, own, strict=True)]

        def split(self, batch):
            raise NotImplementedError

        def scattered(self, values):
            raise NotImplementedError

    parts = Here()
    rows = parts.leaf("rows", np.empty(0))
    squares = rowwise(np.square, rows)
    more = rowwise(np.add, squares, 1.0)
    assert parts.call(np.sum, more) == [3.0, 15.0] and parts.rounds == 1
    assert parts.call(np.sum, more) == [3.0, 15.0] and parts.rounds == 2
    parts.parts[1] = RowPart(parts.parts[1]._leaves)
    picked = [np.array([0]), np.array([1])]
    assert parts.call(np.take, more, own=picked) == [1.0, 10.0] and parts.rounds == 4


# Refusals, and what is not said ---------------------------------------------------------------


def test_no_rows_at_all_are_refused(monkeypatch):
    nothing = da.from_array(np.empty((0, 4)), chunks=(1, 4))
    with cluster_here(monkeypatch), pytest.raises(ValueError, match="`X` has no rows"):
        private_mean(nothing, epsilon=1.0)


def test_many_classes_bring_no_warning_that_arrays_do_not(monkeypatch):
    """Each class once is what is known of labels here, which are not numbers for that."""
    X, _ = blobs(n=400)
    y = np.arange(400) % 30
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", PrivacyWarning)
        with cluster_here(monkeypatch):
            model = DPSGDClassifier(n_iter=2, random_state=0).fit(blocks(X), blocks(y))
    assert len(model.classes_) == 30


@pytest.mark.parametrize(
    "use",
    [
        bool,
        lambda rows: bool(rows == 0),
        lambda rows: 0 in [rows],
        lambda rows: [] != [rows] != [0],
    ],
)
def test_rows_elsewhere_are_neither_true_nor_equal(monkeypatch, use):
    """Python would take that they are some for an answer, and that they are another object."""
    X, _ = blobs(n=40)
    with cluster_here(monkeypatch):
        found = load_collections(blocks(X), None, lambda block: {"rows": np.asarray(block)})
        rows = found["rows"]
        with pytest.raises(TypeError, match="elsewhere"):
            use(rows)


def test_labels_of_every_part_are_classes(monkeypatch):
    """One that occurs in the last part alone among them."""
    X, y = blobs(n=90, n_classes=2)
    y[-1] = 7
    with cluster_here(monkeypatch):
        model = DPSGDRegressor(n_iter=2, random_state=0)  # numbers need no classes
        model.fit(blocks(X), y.astype(float))
        model = DPSGDClassifier(n_iter=2, random_state=0).fit(blocks(X), blocks(y))
    assert model.classes_.tolist() == [0, 1, 7]


@pytest.mark.parametrize("form", [np.float64, np.float32])
@pytest.mark.parametrize("batch_size", [None, 30])
def test_sums_over_parts_are_those_of_arrays(monkeypatch, form, batch_size):
    """Each record of a batch is counted once, wherever it lies; blocks of one row too."""
    X, y = blobs(n=90)
    X = X.astype(form)
    model = DPSGDClassifier(n_iter=6, batch_size=batch_size, random_state=0)
    with releases(monkeypatch) as here:
        model.fit(X, y)
    for shares in [(0.3, 0.0, 0.4), (1 / 90,) * 89]:
        with cluster_here(monkeypatch, n_workers=90), releases(monkeypatch, outputs=here) as there:
            model.fit(blocks(X, shares), blocks(y, shares))
        assert len(here) == len(there) == 9  # six steps, and three that correct scores
        for (one, *_), (other, *_) in zip(here, there, strict=True):
            np.testing.assert_allclose(other.value, one.value, atol=1e-5 * one.norm_bound)


@pytest.mark.parametrize("seed", [987654321, np.random.RandomState(5)])
def test_lazy_predictions_do_not_carry_the_seed_of_the_noise(seed):
    """Who has it can draw the noise again, and take it off."""
    X, y = blobs(n=60)
    model = DPSGDClassifier(n_iter=2, random_state=seed).fit(X, y)
    sent = cloudpickle.dumps(dict(model.predict(blocks(X)).__dask_graph__()))
    assert (987654321).to_bytes(4, "little") not in sent and b"MT19937" not in sent
    assert model.random_state is seed
    with dask.config.set(scheduler="synchronous"):
        lazy = model.predict(blocks(X)).compute()
    np.testing.assert_array_equal(lazy, model.predict(X))
