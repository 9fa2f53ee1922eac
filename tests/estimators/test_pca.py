"""DPPCA: what it releases and by how much a record moves it, and what users of PCA expect."""

import math

import numpy as np
import pandas as pd
import pytest
import sklearn
from helpers import RELATIONS, epsilon_of, formed, groups_of, releases, who
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from dpsubspace import DPPCA, BoundedScaler, DPSGDClassifier, PrivacyLedger, PrivacyWarning
from dpsubspace._core.accounting.events import composed, gaussian
from dpsubspace._core.plans import spectrum as spectral_module
from dpsubspace._core.release import releases as releases_module
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap, Shift
from dpsubspace._core.statistics.moments import (
    MECHANISMS,
    Rows,
    _without_noise,
    packed,
    product_with,
    projected_moment,
    second_moment,
    symmetric,
)
from dpsubspace.decomposition import _pca as pca_module
from dpsubspace.exceptions import PublicDataWarning

quiet = pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")
GAUSSIAN = [name for name, mechanism in MECHANISMS.items() if not mechanism.pure]
KINDS = {"dense": np.asarray, "sparse": sparse.csr_array}


def table(n=60, d=5, seed=0):
    """Rows about a common point, with a strong direction."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.linspace(1, 0.2, d) + np.arange(d)


def captured(X, components, centered):
    """Share of the energy of the best subspace of that dimension."""
    Z = X - X.mean(axis=0) if centered else X
    moment = Z.T @ Z
    best = np.linalg.eigvalsh(moment)[-len(components) :].sum()
    return np.trace(components @ moment @ components.T) / best


def move(one, other):
    return float(np.linalg.norm(one.value - other.value))


# How far one record moves what is released ------------------------------------------------------


def neighbour(X, relation, kind):
    """Second data set, and its present mask, that differs in the first record."""
    present, other = np.ones(len(X), dtype=bool), X.copy()
    if relation == "zero_out":
        present[0] = False
    else:
        other[0] = {
            "opposite": -X[0],
            "orthogonal": np.roll(np.eye(X.shape[1])[0], 1) * 1e6,
            "huge": np.full(X.shape[1], 1e25),
            "out of range": np.resize([3e38, -3e38], X.shape[1]),
            "zero": np.zeros(X.shape[1]),
            "mean": X.mean(axis=0),
        }[kind]
    return other, present


def rows_of(X, bound=1.0, microbatch_size=None, shift=None, present=None):
    records = who(present, X.shape[0])
    features = Features(X, RowMap(norm="clip", data_norm=bound), microbatch_size, records)
    if shift is not None:
        features = features.shifted(Shift(shift, None)).clipped(bound, dense=True)
    return Rows(features, bound)


def sums(rows, basis):
    return (
        second_moment(rows),
        product_with(rows, basis, rows.norms()),
        projected_moment(rows, basis, rows.norms()),
    )


@pytest.mark.parametrize("as_rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_of_second_moments_are_tight_and_hold_over_blocks(as_rows, dtype, rng):
    """A record as long as it can be, and one at right angles to it in its place."""
    X = (rng.normal(size=(1500, 4)) / 10).astype(dtype)
    basis = np.eye(4)[:, :2]
    X[0], other = np.array([50, 0, 0, 0]), X.copy()
    other[0] = np.array([0, 50, 0, 0])
    present = np.arange(1500) > 0
    here = sums(rows_of(as_rows(X), microbatch_size=256), basis)
    without = sums(rows_of(as_rows(X), microbatch_size=256, present=present), basis)
    replaced = sums(rows_of(as_rows(other), microbatch_size=256), basis)
    tight = 0.96 if dtype == np.float32 else 1 - 1e-6  # what is left is slack for rounding
    for total, null, there in zip(here, without, replaced, strict=True):
        assert tight * total.norm_bound < move(total, null) <= total.norm_bound
        assert tight * total.replace_bound < move(total, there) <= total.replace_bound


@pytest.mark.parametrize("as_rows", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_second_moments_are_what_they_stand_for(as_rows, shifted, dtype, rng):
    X = (rng.normal(size=(900, 7)) * 2).astype(dtype)
    shift = rng.normal(size=7) / 10 if shifted else None
    rows = rows_of(as_rows(X), 3.0, 256, shift=shift)
    Z = formed(rows.features)
    basis = np.linalg.qr(rng.normal(size=(7, 3)))[0]
    moment, product, small = (total.value for total in sums(rows, basis))
    tolerance = {"rtol": 0, "atol": 5e-3 if dtype == np.float32 else 1e-9}
    np.testing.assert_allclose(moment, Z.T @ Z, **tolerance)
    np.testing.assert_allclose(product, Z.T @ (Z @ basis), **tolerance)
    np.testing.assert_allclose(symmetric(small[:-1]), basis.T @ Z.T @ Z @ basis, **tolerance)
    left = (Z**2).sum() - ((Z @ basis) ** 2).sum()
    np.testing.assert_allclose(small[-1], left, rtol=1e-3 if shifted else 1e-4)


def test_packing_keeps_the_norm_and_noise_looks_alike_in_every_basis(rng):
    S = rng.normal(size=(9, 9))
    S = S + S.T
    assert np.linalg.norm(packed(S)) == pytest.approx(np.linalg.norm(S))
    np.testing.assert_allclose(symmetric(packed(S)), S, atol=1e-14)
    noise = np.array([symmetric(rng.normal(size=45)) for _ in range(4000)])
    turn = np.linalg.qr(rng.normal(size=(9, 9)))[0]
    for matrices in (noise, turn.T @ noise @ turn):
        assert matrices[:, 2, 2].std() == pytest.approx(1.0, abs=0.08)  # 7 deviations
        assert matrices[:, 1, 5].std() == pytest.approx(math.sqrt(0.5), abs=0.06)
    # Half of the noise of a full square matrix: the spectral norm is s sqrt(2 p).
    largest = np.linalg.norm(symmetric(rng.normal(size=400 * 401 // 2)), 2)
    assert largest == pytest.approx(math.sqrt(2 * 400), rel=0.05)


@quiet
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("data_norm", [None, 2.0])
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("mechanism", GAUSSIAN)
def test_the_event_is_what_ran(monkeypatch, mechanism, centered, data_norm, relation):
    model = DPPCA(
        2,
        mechanism=mechanism,
        centered=centered,
        data_norm=data_norm,
        neighboring_relation=relation,
        epsilon=0.7,
    )
    with releases(monkeypatch) as seen:
        model.fit(table())
    ran = composed(gaussian(multiplier) for _, _, multiplier in seen)
    options = {"neighboring_relation": relation}
    assert epsilon_of(ran, model.privacy_.delta, **options) == pytest.approx(0.7, rel=1e-9)
    assert epsilon_of(model.privacy_.event, model.privacy_.delta, **options) <= 0.7
    assert model.privacy_event(60, 5) == model.privacy_.event
    for total, out, multiplier in seen:  # the noise is there, and of the size that is charged
        z = (out - total.value) / (multiplier * total.unit(relation))
        assert 0 < np.abs(z).max() < 8


BINGHAM = {"mechanism": "bingham", "centered": False, "data_norm": 1.0}


def draws(monkeypatch, model, X, present=None, outputs=None):
    """Sums that a fit without delta releases, replayed from the `outputs` of another fit."""
    seen = []

    def recording(real):
        def called(total, *args, **options):
            out = real(total, *args, **options)
            if outputs is not None:
                out = outputs[len(seen)][1]
            seen.append((total, out, args[-2]))  # epsilon is before the noise
            return out

        return called

    with monkeypatch.context() as patch:
        for name in ("release_direction", "release_subspace", "release_laplace"):
            real = getattr(releases_module, name)
            patch.setattr(releases_module, name, recording(real))
        model.fit(X, groups=groups_of(present))
    return seen


@quiet
@pytest.mark.parametrize("kind", ["opposite", "orthogonal", "huge", "out of range", "zero", "mean"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_every_draw_has_the_range_that_is_charged(monkeypatch, relation, kind):
    """Log densities move by a constant and at most epsilon: so far apart are scores at most."""
    X = table()
    X[0] *= 30
    other, present = neighbour(X, relation, kind)
    for as_rows, dtype in ((np.asarray, float), (sparse.csr_array, float), (np.asarray, "f4")):
        model = DPPCA(2, epsilon=2.0, neighboring_relation=relation, random_state=0, **BINGHAM)
        here = draws(monkeypatch, model, as_rows(X.astype(dtype)))
        there = draws(monkeypatch, model, as_rows(other.astype(dtype)), present, here)
        assert len(here) == len(there) == 3
        for (one, _, epsilon), (two, _, _) in zip(here[:2], there[:2], strict=True):
            bounds = {"zero_out": one.norm_bound, "replace_one": math.sqrt(2) * one.replace_bound}
            spread = np.ptp(np.append(np.linalg.eigvalsh(one.value - two.value), 0.0))
            assert 0 < epsilon < 2 and spread <= bounds[relation] * (1 + 1e-12)
        (one, _, _), (two, _, _) = here[2], there[2]
        bound = one.norm_bound if relation == "zero_out" else one.replace_bound
        assert np.abs(one.value - two.value).sum() <= bound * (1 + 1e-12)


@quiet
@pytest.mark.parametrize("kind", ["opposite", "orthogonal", "huge", "zero", "mean"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_drawn_subspace_has_the_range_that_is_charged(monkeypatch, relation, kind):
    X = table()
    X[0] *= 30
    other, present = neighbour(X, relation, kind)
    options = {"epsilon": 2.0, "delta": 0, "neighboring_relation": relation}
    model = DPPCA(2, random_state=0, **options, **BINGHAM | {"mechanism": "matrix_bingham"})
    here = draws(monkeypatch, model, X)
    there = draws(monkeypatch, model, other, present, here)
    assert [epsilon for _, _, epsilon in here] == pytest.approx([1.8, 0.2])
    (one, _, _), (two, _, _) = here[0], there[0]
    bound = one.norm_bound if relation == "zero_out" else math.sqrt(2) * one.replace_bound
    values = np.linalg.eigvalsh(one.value - two.value)
    assert values[-2:].sum() - values[:2].sum() <= bound * (1 + 1e-12)
    (one, _, _), (two, _, _) = here[1], there[1]
    bound = one.norm_bound if relation == "zero_out" else one.replace_bound
    assert np.abs(one.value - two.value).sum() <= bound * (1 + 1e-12)
    assert model.privacy_event(len(X), 5) == model.privacy_.event
    assert epsilon_of(model.privacy_.event, 0, neighboring_relation=relation) <= 2.0


def test_a_drawn_subspace_costs_the_same_for_any_number_of_components():
    costs = [
        DPPCA(k, delta=0, **BINGHAM | {"mechanism": "matrix_bingham"}).privacy_event(500, 9)
        for k in (1, 4, 9)
    ]
    assert costs[0] == costs[1] == costs[2]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0, 1e-5])
def test_draws_cost_what_their_event_says(monkeypatch, delta, relation):
    options = {"epsilon": 1.5, "delta": delta, "neighboring_relation": relation}
    model = DPPCA(4, **options, **BINGHAM)
    seen = draws(monkeypatch, model, table(n=3000) / 9)
    event = model.privacy_.event
    assert model.privacy_event(3000, 5) == model.privacy_event(3000) == event
    cost = epsilon_of(event, delta, neighboring_relation=relation)
    assert 1.49 < cost <= 1.5
    total = sum(epsilon for _, _, epsilon in seen)
    # Epsilons add up where there is no delta; with one, bounded ranges compose to less.
    assert total == pytest.approx(1.5) if delta == 0 else total > 1.6
    assert ("delta" in str(model.privacy_).splitlines()[0]) == (delta > 0)


def test_drawn_directions_find_the_subspace():
    X = Normalizer().fit_transform(load_digits().data)
    options = {**BINGHAM, "random_state": 0}
    near = DPPCA(4, epsilon=20.0, **options).fit(X)
    assert captured(X, near.components_, False) > 0.97
    np.testing.assert_allclose(near.components_ @ near.components_.T, np.eye(4), atol=1e-10)
    exact = np.linalg.svd(X)[2][:4]
    infinite = DPPCA(4, epsilon=math.inf, **options).fit(X)
    np.testing.assert_allclose(np.abs((infinite.components_ * exact).sum(axis=1)), 1, atol=1e-8)
    energies = ((X @ near.components_.T) ** 2).mean(axis=0)
    np.testing.assert_allclose(near.explained_variance_, np.sort(energies)[::-1], atol=0.002)


@pytest.mark.parametrize("options", [{"centered": True}, {"data_norm": None}], ids=str)
def test_draws_without_delta_need_public_bounds(options):
    with pytest.raises(ValueError, match="spends no delta"):
        DPPCA(2, **{**BINGHAM, **options}).fit(table())


@pytest.mark.parametrize("mechanism", GAUSSIAN)
@pytest.mark.parametrize("unit", [1e-25, 1e20])
def test_any_bound_on_norms_will_do_in_single_precision(mechanism, unit):
    """Squares of these are out of the range of float32."""
    X, options = table(n=400), {"mechanism": mechanism, "random_state": 0, "epsilon": 20.0}
    here = DPPCA(2, data_norm=9.0, **options).fit(X.astype(np.float32))
    there = DPPCA(2, data_norm=9.0 * unit, **options).fit((X * unit).astype(np.float32))
    np.testing.assert_allclose(there.components_, here.components_, atol=1e-3)
    np.testing.assert_allclose(there.mean_, here.mean_ * unit, atol=1e-4 * unit)
    variances = there.explained_variance_ / unit**2
    np.testing.assert_allclose(variances, here.explained_variance_, rtol=1e-3)


@quiet
def test_hooks_cannot_change_what_is_charged(monkeypatch):
    """A hook that runs user code between calibration and noise changes nothing."""
    model = DPPCA(2, epsilon=0.05, random_state=0)
    hook = lambda *_: model.set_params(neighboring_relation="replace_one")  # noqa: E731
    monkeypatch.setattr(pca_module, "warn_of_spectrum", hook)
    with releases(monkeypatch) as seen:
        model.fit(table())
    ran = composed(gaussian(multiplier) for _, _, multiplier in seen)
    assert model.privacy_.neighboring_relation == "zero_out"
    cost = epsilon_of(ran, model.privacy_.delta, neighboring_relation="zero_out")
    assert cost == pytest.approx(0.05, rel=1e-9)
    (total, out, multiplier) = seen[-1]
    z = (out - total.value) / (multiplier * total.norm_bound)
    assert 0 < np.abs(z).max() < 8


# What it finds --------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", GAUSSIAN)
def test_without_privacy_it_is_the_pca_of_scikit_learn(mechanism):
    X = table(n=200)
    exact = PCA(3).fit(X)
    model = DPPCA(3, epsilon=math.inf, mechanism=mechanism).fit(X)
    tolerance = 1e-6 if mechanism != "power" else 1e-3
    cosines = np.abs((model.components_ * exact.components_).sum(axis=1))
    np.testing.assert_allclose(cosines, 1, atol=tolerance)
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), atol=1e-8)
    scaled = exact.explained_variance_ * 199 / 200  # scikit-learn divides by n - 1
    np.testing.assert_allclose(model.explained_variance_, scaled, rtol=tolerance)
    np.testing.assert_allclose(
        model.explained_variance_ratio_, exact.explained_variance_ratio_, rtol=tolerance
    )
    assert model.privacy_.epsilon == math.inf


@pytest.mark.parametrize("mechanism", GAUSSIAN)
def test_without_centring_it_is_that_of_the_rows_as_they_are(mechanism):
    X = table(n=200)
    exact = TruncatedSVD(2, algorithm="arpack", random_state=0).fit(X)
    model = DPPCA(2, epsilon=math.inf, mechanism=mechanism, centered=False).fit(X)
    cosines = np.abs((model.components_ * exact.components_).sum(axis=1))
    np.testing.assert_allclose(cosines, 1, atol=1e-3)
    np.testing.assert_allclose(
        model.explained_variance_, exact.singular_values_**2 / 200, rtol=1e-3
    )
    assert not model.mean_.any()


@pytest.mark.parametrize(
    ("mechanism", "centered", "least"),
    [
        ("adaptive", False, 0.985),
        ("adaptive", True, 0.955),
        ("gaussian", False, 0.945),
        ("power", False, 0.9),
    ],
)
def test_digits_at_epsilon_one(mechanism, centered, least):
    X = Normalizer().fit_transform(load_digits().data)
    options = {"delta": 1e-5, "mechanism": mechanism, "centered": centered, "data_norm": 1.0}
    shares = [
        captured(X, DPPCA(8, random_state=seed, **options).fit(X).components_, centered)
        for seed in range(5)
    ]
    assert np.mean(shares) > least


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("offset", [0.0, 20.0])
def test_an_offset_does_not_drown_the_subspace(scale, offset, rng):
    """Where rows lie in a small ball far from the origin, the noise is that of the ball."""
    basis = np.linalg.qr(rng.normal(size=(20, 2)))[0]
    X = rng.normal(size=(3000, 2)) @ basis.T * 3 + rng.normal(size=(3000, 20)) / 3 + offset
    model = DPPCA(2, data_norm=2 * scale * (offset + 3) * math.sqrt(20), random_state=0)
    model.fit(X * scale)
    assert captured(X, model.components_, True) > 0.9
    variance = PCA(2).fit(X * scale).explained_variance_
    np.testing.assert_allclose(model.explained_variance_, variance, rtol=0.5)


def test_the_bound_on_norms_can_be_bought(rng):
    X = table(n=5000)
    model = DPPCA(2, random_state=0).fit(X)
    norms = np.linalg.norm(X, axis=1)
    assert np.median(norms) < model.data_norm_ < 4 * norms.max()
    assert captured(X, model.components_, True) > 0.9


def test_eigenvalues_are_freed_of_noise(rng):
    """Of a value of 3, 3 - p s^2 / 6 lies along its noisy vector; what noise makes is 0."""
    p, scale = 200, 0.1
    found, along = [], []
    for _ in range(30):
        noisy = symmetric(scale * rng.normal(size=p * (p + 1) // 2))
        noisy[0, 0] = 3.0  # its noise has mean 0, and would be most of that of the value
        values, vectors = np.linalg.eigh(noisy)
        found.append(_without_noise(values[::-1][:2], scale, p))
        along.append(3.0 * vectors[0, -1] ** 2)
    top, second = np.mean(found, axis=0)
    assert top == pytest.approx(np.mean(along), abs=0.05)
    assert top == pytest.approx(3.0 - p * scale**2 / 6, abs=0.05)
    assert second < 0.4  # at the edge, noise passes now and then


def test_a_share_of_the_variance_picks_the_number_of_components():
    X = load_digits().data
    options = {"epsilon": 10.0, "data_norm": 80.0, "random_state": 0}
    few, more = (DPPCA(share, **options).fit(X) for share in (0.3, 0.6))
    assert 1 <= few.n_components_ < more.n_components_ < 40
    assert few.explained_variance_ratio_.sum() >= 0.3 > few.explained_variance_ratio_[:-1].sum()
    np.testing.assert_array_equal(few.components_, more.components_[: few.n_components_])
    assert few.privacy_.event == more.privacy_.event  # any number costs the same


def test_power_iteration_needs_no_square_matrix(rng):
    X = (rng.normal(size=(2000, 3)) @ rng.normal(size=(3, 5000))).astype(np.float32)
    X /= np.linalg.norm(X, axis=1).max()
    assert (
        MECHANISMS["power"].memory(50_000, 3, False)
        < MECHANISMS["gaussian"].memory(50_000, 3, False) / 50
    )
    model = DPPCA(3, epsilon=50.0, centered=False, data_norm=1.0, random_state=0).fit(X)
    assert model.privacy_.event != DPPCA(3, epsilon=50.0, data_norm=1.0).privacy_event(2000, 50)
    Z = X.astype(float)
    share = ((Z @ model.components_.T) ** 2).sum() / (Z**2).sum()
    assert share > 0.9


# Public rows ----------------------------------------------------------------------------------


def test_bad_public_rows_are_refused():
    X = table()
    for public, message in (
        (np.ones((5, 3)), "features"),
        (np.full((5, 5), np.nan), "NaN"),
        ((), "empty"),
        (np.ones(5), "2D"),
    ):
        model = DPPCA(2)
        with pytest.raises(ValueError, match=message):
            model.fit(X, X_public=public)
        assert not hasattr(model, "privacy_")


def shares_found(centered, n_fits, **options):
    """Means of what is found of digits by private rows, 50 public rows, and both."""
    X = Normalizer().fit_transform(load_digits().data)
    shares = []
    for seed in range(n_fits):
        order = np.random.default_rng(seed).permutation(len(X))
        shown, hidden = X[order[:50]], X[order[50:]]
        model = DPPCA(8, delta=1e-5, centered=centered, data_norm=1.0, random_state=seed, **options)
        alone = model.fit(hidden).components_
        both = model.fit(hidden, X_public=(shown,)).components_
        public = np.linalg.svd(shown - centered * shown.mean(axis=0), full_matrices=False)[2][:8]
        shares.append([captured(hidden, found, centered) for found in (alone, public, both)])
    return np.mean(shares, axis=0)


# At these, either alone finds about as much. In 16 fits or more, both together found more than the
# better one by at least 2.7 deviations of one fit: the mean of 6 has 6.6 of its own.
@pytest.mark.parametrize(("mechanism", "epsilon"), [("adaptive", 0.5), ("gaussian", 1.5)])
@pytest.mark.parametrize("centered", [True, False])
def test_public_rows_and_private_ones_find_more_than_either_alone(centered, mechanism, epsilon):
    private, public, both = shares_found(centered, 6, mechanism=mechanism, epsilon=epsilon)
    assert both > max(private, public)


@pytest.mark.parametrize("mechanism", ["adaptive", "gaussian"])
@pytest.mark.parametrize("centered", [True, False])
def test_private_rows_that_noise_hides_do_public_ones_little_harm(centered, mechanism):
    """Of 25 fits, one found 0.000 to 0.001 more than public rows, with a deviation of 0.009."""
    private, public, both = shares_found(centered, 2, mechanism=mechanism, epsilon=0.1)
    assert both > public - 0.045 and both > private + 0.06


def test_public_rows_from_elsewhere_do_little_harm(rng):
    X = Normalizer().fit_transform(load_digits().data)
    shown = X[:50][:, rng.permutation(64)]
    options = {"delta": 1e-5, "data_norm": 1.0, "random_state": 0}
    alone = DPPCA(8, **options).fit(X[50:])
    both = DPPCA(8, **options).fit(X[50:], X_public=(shown,))
    shares = [captured(X[50:], model.components_, True) for model in (alone, both)]
    assert shares[1] > shares[0] - 0.02


def test_public_rows_start_the_power_iteration(rng):
    basis = np.linalg.qr(rng.normal(size=(500, 2)))[0]
    X = rng.normal(size=(4000, 2)) @ basis.T
    options = {"mechanism": "power", "data_norm": 6.0, "epsilon": 0.15, "random_state": 0}
    shares = [
        captured(X, DPPCA(2, **options).fit(X, X_public=public).components_, True)
        for public in (None, rng.normal(size=(30, 2)) @ basis.T)
    ]
    assert shares[0] + 0.2 < shares[1] > 0.6


@quiet
def test_public_rows_as_many_as_private_ones_may_have_been_sliced():
    X = table()
    with pytest.warns(PublicDataWarning, match="tuple"):
        DPPCA(2, random_state=0).fit(X, X_public=X[::-1] + 0.1)
    DPPCA(2, random_state=0).fit(X, X_public=(X[::-1] + 0.1,))


# A guest of scikit-learn ------------------------------------------------------------------------


def test_transform_and_its_inverse(rng):
    X = table(n=400)
    model = DPPCA(epsilon=5.0, random_state=0).fit(X)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-10)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(5), atol=1e-10)
    assert (model.components_[np.arange(5), np.abs(model.components_).argmax(axis=1)] > 0).all()
    white = DPPCA(2, epsilon=5.0, whiten=True, random_state=0).fit(X)
    assert white.transform(X).std(axis=0) == pytest.approx(1.0, rel=0.5)
    np.testing.assert_allclose(
        white.inverse_transform(white.transform(X)),
        (X - white.mean_) @ white.components_.T @ white.components_ + white.mean_,
        atol=1e-10,
    )
    with pytest.raises(ValueError, match="coordinates"):
        model.inverse_transform(X[:, :2])
    small = X.astype(np.float32)
    assert model.transform(small).dtype == np.float32
    np.testing.assert_allclose(model.transform(sparse.csr_array(X)), model.transform(X))


def test_names_frames_and_clones():
    frame = pd.DataFrame(table(n=400), columns=list("abcde"))
    model = clone(DPPCA(2, epsilon=5.0, random_state=0)).set_output(transform="pandas").fit(frame)
    assert list(model.transform(frame).columns) == ["dppca0", "dppca1"]
    np.testing.assert_array_equal(model.feature_names_in_, list("abcde"))


def test_one_ledger_counts_a_whole_pipeline():
    X, y = load_digits(return_X_y=True)
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    pipeline = make_pipeline(
        Normalizer(), DPPCA(16, data_norm=1.0, epsilon=1.0), DPSGDClassifier(epsilon=1.0)
    )
    ledger.fit(pipeline, X, y)
    parts = [pipeline[1].privacy_.event, pipeline[2].privacy_.event]
    total = epsilon_of(composed(parts), 1e-5, neighboring_relation="zero_out")
    assert ledger.epsilon() == pytest.approx(total)
    assert 1.3 < total < 1.5


def test_a_whole_private_pipeline_with_public_rows_has_one_cost():
    """Bounds from public rows are free; the rest adds up in the ledger to the last digit."""
    X, y = load_digits(return_X_y=True)
    pipeline = make_pipeline(
        BoundedScaler(bounds="public"),
        DPPCA(16, data_norm=1.0, epsilon=1.0),
        DPSGDClassifier(epsilon=1.0),
        transform_input=["X_public"],
    )
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    with sklearn.config_context(enable_metadata_routing=True):
        ledger.fit(pipeline, X[97:], y[97:], X_public=(X[:97],))
    scaler, pca, classifier = (step for _, step in pipeline.steps)
    assert scaler.privacy_.epsilon == 0 and "X_public" in scaler.privacy_.public
    events = [pca.privacy_.event, classifier.privacy_.event]
    total = epsilon_of(composed(events), 1e-5, neighboring_relation="zero_out")
    assert ledger.epsilon() == pytest.approx(total, rel=1e-12)
    assert pipeline.score(X, y) > 0.75


def test_public_rows_travel_through_a_pipeline():
    X, y = load_digits(return_X_y=True)
    pipeline = make_pipeline(
        Normalizer(), DPPCA(4, random_state=0), DPSGDClassifier(), transform_input=["X_public"]
    )
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline.fit(X[100:], y[100:], X_public=X[:100])
    assert any("100 rows of X_public" in known for known in pipeline[1].privacy_.public)


# Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 6}, "`n_components`=6 is more than the 5"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": 1.5}, "n_components"),
        ({"n_components": True}, "n_components"),
        ({"n_components": 0.5, "mechanism": "power"}, "share of the variance"),
        ({"mechanism": "magic"}, "mechanism"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": None}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"data_norm": -1.0}, "data_norm"),
        ({"centered": "yes"}, "centered"),
        ({"whiten": 1}, "whiten"),
        ({"device": "tpu"}, "device"),
        ({"microbatch_size": 0}, "microbatch_size"),
        ({"random_state": -1}, "random_state"),
    ],
    ids=str,
)
def test_bad_parameters_are_named_before_anything_is_spent(options, message):
    model = DPPCA(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(table())
    assert not hasattr(model, "privacy_")


def test_fewer_rows_than_components():
    with pytest.raises(ValueError, match="3 rows of 5 columns"):
        DPPCA(4).fit(table(n=3))


@quiet
@pytest.mark.parametrize("mechanism", GAUSSIAN)
def test_odd_tables_are_taken(mechanism):
    options = {"mechanism": mechanism, "random_state": 0}
    one = DPPCA(1, **options).fit(table(d=1))
    np.testing.assert_array_equal(one.components_, [[1.0]])
    constant = DPPCA(2, **options).fit(np.full((50, 4), 3.0))
    assert np.isfinite(constant.components_).all()
    zero = DPPCA(2, whiten=True, **options).fit(np.zeros((50, 4)))
    assert np.isfinite(zero.transform(np.zeros((50, 4)))).all()
    tied = DPPCA(2, **options).fit(np.tile(np.eye(4), (30, 1)))
    np.testing.assert_allclose(tied.components_ @ tied.components_.T, np.eye(2), atol=1e-12)


def test_more_memory_than_there_is_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(spectral_module, "_machine_memory", lambda: 2.0**30)
    X = np.zeros((10, 20_000), np.float32)
    model = DPPCA(2, mechanism="gaussian")
    with pytest.raises(MemoryError, match=r"about 17\.9 GiB .* mechanism='power'"):
        model.fit(X)
    assert not hasattr(model, "privacy_")


def test_an_epsilon_that_finds_nothing_is_warned_of_from_public_quantities():
    X = table(n=100)
    with pytest.warns(PrivacyWarning, match="the noise of the second moment"):
        DPPCA(2, epsilon=0.1, random_state=0).fit(X)


def test_cost_names_the_size_that_it_lacks():
    with pytest.raises(ValueError, match="n_samples"):
        DPPCA(2).privacy_event(n_features=5)
    narrow, wide = (DPPCA(2).privacy_event(100, width) for width in (None, 5000))
    assert narrow == DPPCA(2, mechanism="adaptive").privacy_event(100) != wide
    costs = [epsilon_of(e, 1e-5, neighboring_relation="zero_out") for e in (narrow, wide)]
    assert costs == pytest.approx([1.0, 1.0])
