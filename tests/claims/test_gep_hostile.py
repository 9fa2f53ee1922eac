"""Public rows chosen to break the privacy of gradient embedding: none may."""

import numpy as np
import pytest
from helpers import releases

from dpsubspace import GEPClassifier, GEPRegressor, PrivacyLedger
from dpsubspace._accounting.cost import epsilon_of
from dpsubspace._array import to_numpy
from dpsubspace.exceptions import PrivacyBudgetError


def largest_move(monkeypatch, model, X, y, P, gone=0):
    """Most that a sum moves, over its bound, when one record becomes a null record."""
    present = np.arange(len(y)) != gone
    with releases(monkeypatch) as seen:
        model._fit(X, y, X_public=(P,))
    with releases(monkeypatch, outputs=seen) as without:
        model._fit(X, y, present=present, X_public=(P,))
    moves = [
        np.linalg.norm(to_numpy(ours.value - theirs.value)) / ours.norm_bound
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
    options = {"center": False, "row_norm": None, "fit_intercept": False, "random_state": 0}
    model = GEPClassifier(
        directions="gradients",
        n_components=6,
        power_iterations=power_iterations,
        n_iter=3,
        **options,
    )
    assert largest_move(monkeypatch, model, X, y, P) <= 1


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
    model = GEPClassifier(module=module, n_components=4, n_iter=3, random_state=0)
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
        model = GEPClassifier(
            directions="gradients",
            n_components=6,
            fit_intercept=False,
            mean_share=0,
            row_norm="clip",
            data_norm=100.0,
            n_iter=5,
            random_state=0,
        )
        for gone in range(3):
            assert largest_move(monkeypatch, model, X, y, P, gone) <= 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("clipping", ["joint", "separate"])
def test_a_bias_entry_out_of_the_range_of_float32(monkeypatch, clipping):
    # Weights of its rows are below the least number of float32: the gradient vanishes from
    # its sum, and without it what is on the directions stays in the residual.
    rng = np.random.default_rng(0)
    X, P = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=(8, 3)).astype(np.float32)
    model = GEPRegressor(
        directions="features",
        n_components=1,
        residual=True,
        residual_norm=1.1e-10,
        clipping=clipping,
        center=False,
        init="zero",
        intercept_scaling=1e20,
        data_norm=1e20,
        target_bounds=(-1, 3),
        n_iter=1,
        random_state=0,
    )
    assert largest_move(monkeypatch, model, X, rng.normal(size=60), P) <= 1


@pytest.mark.filterwarnings("ignore")
def test_an_empty_batch_is_a_batch_like_any(monkeypatch):
    # With few parameters directions are formed: a batch of no rows must not fail there.
    rng = np.random.default_rng(0)
    X, y, P = rng.normal(size=(7, 2)), np.arange(7) % 2, rng.normal(size=(30, 2))
    model = GEPClassifier(directions="gradients", batch_size=1, n_iter=20, random_state=0)
    assert largest_move(monkeypatch, model, X, y, P) <= 1


@pytest.mark.filterwarnings("ignore")
def test_a_ledger_plans_for_what_public_rows_are_asked(monkeypatch):
    # Checks of public rows come on top where `noise_multiplier` is given.
    rng = np.random.default_rng(0)
    X, y, P = rng.normal(size=(500, 5)), np.arange(500) % 2, rng.normal(size=(20, 5))
    options = {"epsilon": None, "noise_multiplier": 30.0, "center": False, "delta": 1e-5}
    model = GEPClassifier(n_iter=50, **options)
    events = model.privacy_event(500), model.privacy_event(500, n_public=20, labelled=True)
    less, more = (epsilon_of(each, 1e-5, neighboring_relation="zero_out") for each in events)
    ledger = PrivacyLedger(epsilon=(less + more) / 2, delta=1e-5)
    with pytest.raises(PrivacyBudgetError):
        ledger.fit(model, X, y, X_public=(P,), y_public=(np.arange(20) % 2,))
    assert ledger.epsilon() == 0 and not hasattr(model, "privacy_")
