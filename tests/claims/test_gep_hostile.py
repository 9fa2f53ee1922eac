"""Public rows chosen to break the privacy of gradient embedding: none may."""

import numpy as np
import pytest
from helpers import epsilon_of, groups_of, releases, with_plan

from dpsubspace import GEPClassifier, PrivacyLedger
from dpsubspace._core.fits.bounds import MappedRows, ScaledRows
from dpsubspace._core.rows.records import RowMap, Shift
from dpsubspace.exceptions import PrivacyBudgetError
from dpsubspace.linear_model import GEPRegressor, GradientDirections
from dpsubspace.neural_network import DPModuleClassifier, DPModuleRegressor


class PublicMean:
    """Centres rows by the mean of the public ones: nothing is released."""

    def parts(self, sizes):
        return {}

    def __call__(self, features, releases, public, constant):
        return features.shifted(Shift(public.mean(axis=0), constant))


UNBOUNDED = {"centre": None, "bounds": MappedRows(RowMap(norm=None))}


def largest_move(monkeypatch, model, X, y, P, gone=0, **changes):
    """Most that a sum moves, over its bound, when one record becomes a null record."""
    null, fit = groups_of(np.arange(len(y)) != gone), with_plan(model, **changes)
    with releases(monkeypatch) as seen:
        fit(X, y, X_public=(P,))
    with releases(monkeypatch, outputs=seen) as without:
        fit(X, y, groups=null, X_public=(P,))
    moves = [
        np.linalg.norm(ours.value - theirs.value) / ours.norm_bound
        for (ours, *_), (theirs, *_) in zip(seen, without, strict=True)
    ]
    return float(np.max(moves))  # NaN where there is one


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("power_iterations", [1, None])
@pytest.mark.parametrize("place", [0, 1, 4])
def test_a_public_row_out_of_range_takes_no_part(monkeypatch, place, power_iterations):
    rng = np.random.default_rng(0)
    X, y, P = rng.normal(size=(50, 40)), np.arange(50) % 2, rng.normal(size=(6, 40))
    P[place] *= 1e120
    directions = GradientDirections(n_components=6, power_iterations=power_iterations)
    options = {"fit_intercept": False, "n_iter": 3, "random_state": 0}
    model = GEPClassifier(directions=directions, **options)
    assert largest_move(monkeypatch, model, X, y, P, **UNBOUNDED) <= 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", [0, 1, 5])
def test_a_public_row_out_of_range_takes_no_part_in_a_module(monkeypatch, place):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    X, y, P = rng.normal(size=(40, 6)), np.arange(40) % 2, rng.normal(size=(10, 6))
    P[place] *= 1e120
    nn = torch.nn
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 1)).double()
    directions = GradientDirections(n_components=4)
    model = DPModuleClassifier(module, directions=directions, n_iter=3, random_state=0)
    assert largest_move(monkeypatch, model, X, y, P) <= 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("spread", [1e-11, 1e-13, 1e-15, 1e-16])
def test_public_rows_may_be_almost_the_same(monkeypatch, spread):
    # Less their mean they are rounding: what a subspace takes them for must be what they are.
    rng = np.random.default_rng(0)
    middle, along = rng.normal(size=(2, 40))
    middle -= along * (along @ middle) / (along @ along)
    X, y = middle + rng.normal(size=(50, 1)) * along, np.arange(50) % 2
    for times in (1, 1.7):
        P = np.stack([middle + times * spread * along, middle - times * spread * along])
        directions = GradientDirections(n_components=6)
        options = {"fit_intercept": False, "row_norm": 100.0, "n_iter": 5, "random_state": 0}
        model = GEPClassifier(directions=directions, **options)
        for gone in range(3):
            how = {"gone": gone, "centre": PublicMean()}
            assert largest_move(monkeypatch, model, X, y, P, **how) <= 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n_components", [1, 8])
def test_a_bias_entry_out_of_the_range_of_float32(monkeypatch, n_components):
    # Weights of its rows are below the least number of float32: the gradient vanishes from
    # its sum, and without it what is on the directions stays in the residual.
    rng = np.random.default_rng(0)
    X, P = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=(8, 3)).astype(np.float32)
    directions = GradientDirections(n_components=n_components, residual_norm=1.1e-10)
    model = GEPRegressor(directions=directions, init="zero", n_iter=1, random_state=0)
    huge = {"centre": None, "bounds": ScaledRows(1e20, (-1, 3), 1e20)}
    assert largest_move(monkeypatch, model, X, rng.normal(size=60), P, **huge) <= 1


@pytest.mark.filterwarnings("ignore")
def test_an_empty_batch_is_a_batch_like_any(monkeypatch):
    # With few parameters directions are formed: a batch of no rows must not fail there.
    rng = np.random.default_rng(0)
    X, y, P = rng.normal(size=(7, 2)), np.arange(7) % 2, rng.normal(size=(30, 2))
    options = {"directions": GradientDirections(), "batch_size": 1, "n_iter": 20}
    model = GEPClassifier(random_state=0, **options)
    assert largest_move(monkeypatch, model, X, y, P) <= 1


@pytest.mark.filterwarnings("ignore")
def test_a_ledger_plans_for_what_public_rows_tell():
    # A range of targets that public ones do not tell comes on top of a given `noise_multiplier`.
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X, y, P, Q = rng.normal(size=(500, 5)), rng.random(500), rng.normal(size=(20, 5)), np.eye(20)[0]
    options = {"epsilon": None, "noise_multiplier": 30.0, "delta": 1e-5, "n_iter": 5}
    model = DPModuleRegressor(torch.nn.Linear(5, 1), **options)
    sizes = {"n_samples": 500, "n_features": 5, "n_outputs": 1, "n_public": 20}
    events = (model.privacy_event(**sizes, labelled=labelled) for labelled in (True, False))
    less, more = (epsilon_of(event, 1e-5, neighboring_relation="zero_out") for event in events)
    ledger = PrivacyLedger(epsilon=(less + more) / 2, delta=1e-5)
    with pytest.raises(PrivacyBudgetError):
        ledger.fit(model, X, y, X_public=(P,))
    assert ledger.epsilon() == 0 and not hasattr(model, "privacy_")
    ledger.fit(model, X, y, X_public=(P,), y_public=(Q,))
    assert ledger.epsilon() == pytest.approx(less, rel=1e-3)
