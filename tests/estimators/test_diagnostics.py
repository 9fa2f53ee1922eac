"""Diagnostics: what public directions miss of gradients, and how far rows are spread."""

import math

import numpy as np
import pytest
from cases import project, small_module
from helpers import RELATIONS, blobs, groups_of, move, releases
from scipy import sparse

from dpsubspace import PrivacyError, PrivacyLedger, PrivacyWarning
from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.public.gradient_spaces import random_labels
from dpsubspace.public_data import private_projection_error
from dpsubspace.public_data._diagnostics import exact_errors
from dpsubspace.statistics import private_spread

INF = math.inf
rng = np.random.default_rng(0)
SCALES = np.linspace(2, 0.2, 12)
X, PUBLIC = SCALES * rng.normal(size=(300, 12)), SCALES * rng.normal(size=(80, 12))
COUNTS = [1, 3, 7, 12]


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def shares(gradients, anchors, count):
    """Share of the squared norm of each gradient on leading directions of others, (n, count)."""
    directions = np.linalg.svd(anchors, full_matrices=False)[2][:count]
    return (unit(gradients) @ directions.T) ** 2


def exact(rows, public=PUBLIC, **options):
    return private_projection_error(rows, public, epsilon=INF, **options).value


# Projection errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
def test_errors_are_those_of_rows_on_principal_directions(as_rows):
    found = exact(as_rows(X), n_components=COUNTS[::-1])
    held = shares(X, unit(PUBLIC), 12).mean(axis=0)
    np.testing.assert_allclose(found.error, 1 - np.cumsum(held)[np.array(COUNTS) - 1], atol=1e-12)
    np.testing.assert_allclose(found.random, 1 - np.array(COUNTS) / 12)
    assert found.stable_rank == pytest.approx(1 / held[0]) and not found.noise.any()
    np.testing.assert_array_equal(found.n_components, COUNTS)


def test_errors_of_a_module_are_those_of_its_gradients():
    torch = pytest.importorskip("torch")
    module = small_module(12, 4).double()

    def gradients(rows):
        found = []
        for row, label in zip(torch.tensor(rows), random_labels(5, 4, len(rows)), strict=True):
            loss = torch.nn.functional.cross_entropy(module(row), torch.tensor(label))
            parts = torch.autograd.grad(loss, list(module.parameters()))
            found.append(torch.cat([part.reshape(-1) for part in parts]).numpy())
        return np.array(found)

    options = {"module": module, "input_shape": None, "n_classes": 4, "seed": 5}
    found = exact_errors(X[:40], PUBLIC[:30], [2, 9], **options)
    held = shares(gradients(X[:40]), gradients(PUBLIC[:30]), 9).mean(axis=0)
    np.testing.assert_allclose(found.error, 1 - np.cumsum(held)[[1, 8]], atol=1e-9)
    n_params = sum(part.numel() for part in module.parameters())
    np.testing.assert_allclose(found.random, 1 - np.array([2, 9]) / n_params)
    assert found.stable_rank == pytest.approx(2 / held[:2].sum())


def test_the_stable_rank_is_bounded_from_above_and_by_its_own_directions_exactly():
    for rows in (X, X[:, ::-1], X + 5):
        spectrum = np.linalg.svd(unit(rows), compute_uv=False) ** 2
        rank = spectrum.sum() / spectrum[0]
        assert exact(rows).stable_rank >= rank * (1 - 1e-12)
        same = rows * (1 + 1e-6)  # the same to 6 digits, and no private rows
        assert exact(rows, same, n_components=[1, 5]).stable_rank == pytest.approx(rank)


def test_numbers_of_directions_are_doubled_to_as_many_as_there_are():
    np.testing.assert_array_equal(exact(X).n_components, [1, 2, 4, 8, 12])
    np.testing.assert_array_equal(exact(X, PUBLIC[:4]).n_components, [1, 2, 4])
    wide = rng.normal(size=(400, 300))
    np.testing.assert_array_equal(exact(wide[:50], wide[50:]).n_components, 2 ** np.arange(8))


def test_rows_on_the_directions_and_off_them_are_told():
    on = rng.normal(size=(50, 3)) @ np.linalg.svd(unit(PUBLIC))[2][:3]
    off = np.linalg.svd(unit(PUBLIC))[2][-1:] * np.arange(1, 31)[:, None]
    np.testing.assert_allclose(exact(on, n_components=[3]).error, 0, atol=1e-12)
    found = exact(off, n_components=[3])
    np.testing.assert_allclose(found.error, 1, atol=1e-12)
    assert found.stable_rank > 1e9
    zeros = exact(0 * off, n_components=[3])
    assert zeros.error == [1.0] and zeros.stable_rank == INF


@pytest.mark.parametrize("relation", RELATIONS)
def test_noise_is_said_and_errors_stay_in_order(relation):
    options = {"neighboring_relation": relation, "n_components": COUNTS, "delta": 1e-5}
    found, guarantee = private_projection_error(X, PUBLIC, **options)
    unit_noise = Target(1.0, 1e-5, relation).multiplier(300) / 300
    unit_noise *= 1.0 if relation == "zero_out" else math.sqrt(0.5)
    np.testing.assert_allclose(found.noise, unit_noise * np.sqrt([1, 2, 3, 4]), rtol=1e-6)
    assert guarantee.epsilon == 1.0 and "80 rows of X_public" in guarantee.details()
    with pytest.warns(PrivacyWarning, match="the noise of the last error"):
        found, _ = private_projection_error(X, PUBLIC, epsilon=0.001, n_components=[*range(1, 13)])
    assert (found.error >= 0).all() and (found.error <= 1).all()
    assert (np.diff(found.error) <= 0).all() and found.stable_rank >= 1


@pytest.mark.parametrize("relation", RELATIONS)
def test_bounds_of_errors_are_tight(monkeypatch, relation):
    """A row on the first direction becomes null, or one on the second: another number rises."""
    directions = np.linalg.svd(unit(PUBLIC))[2]
    rows, others, groups = X.copy(), X.copy(), None
    rows[0], others[0] = directions[:2]
    if relation == "zero_out":
        groups = groups_of(np.arange(300) > 0)
    totals = []
    for each, whose in ((rows, None), (others, groups)):
        with releases(monkeypatch) as seen:
            private_projection_error(
                each, PUBLIC, n_components=[1, 2], neighboring_relation=relation, groups=whose
            )
        totals.append(seen[0][0])
    bound = totals[0].norm_bound if relation == "zero_out" else totals[0].replace_bound
    assert 0.999 * bound < move(*totals) <= bound


def test_persons_count_once(monkeypatch):
    copies, groups = np.repeat(X[:50], 7, axis=0), np.repeat(np.arange(50), 7)
    found, alone = exact(copies, groups=groups), exact(X[:50])
    np.testing.assert_allclose(found.error, alone.error, atol=1e-6)
    with releases(monkeypatch) as seen:
        private_projection_error(copies, PUBLIC, groups=groups_of(np.arange(350) < 0, groups))
    assert not seen[0][0].value.any()
    with pytest.raises(ValueError, match="`groups` cannot be used with a `module`"):
        exact(copies, groups=groups, module=object())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_components": "many"}, "n_components"),
        ({"n_components": []}, "n_components"),
        ({"n_components": [0, 2]}, "n_components"),
        ({"n_components": [2.5]}, "n_components"),
        ({"n_components": [13]}, "span 12 directions"),
        ({"n_classes": 1}, "n_classes"),
        ({"module": "cnn"}, "images"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"X_public": None}, "X_public"),
        ({"X_public": 0 * PUBLIC}, "all zero"),
        ({"X_public": PUBLIC[:, :3]}, "X_public"),
    ],
    ids=str,
)
def test_what_cannot_be_projected_is_refused(options, match):
    if "module" in options:
        pytest.importorskip("torch")
    with pytest.raises(ValueError, match=match):
        private_projection_error(X, **{"X_public": PUBLIC, **options})


def test_a_ledger_pays_for_both():
    book = PrivacyLedger(epsilon=1.0, delta=1e-5)
    book.run(private_projection_error, X, PUBLIC, epsilon=0.5)
    assert 0.49 < book.epsilon() <= 0.5
    with pytest.warns(PrivacyWarning, match="the noise of counts"):
        book.run(private_spread, X, epsilon=0.5)
    assert 0.5 < book.epsilon() <= 1.0
    with pytest.raises(PrivacyError):
        book.run(private_spread, X, epsilon=INF)


def test_the_case_of_the_claims_is_this_function():
    """Its options are those of the function, and its public rows are others than its rows."""
    found = project(blobs(n=40)[0], Target(1.0, 1e-5), 0)
    assert found.privacy.of == "private_projection_error" and len(found.value.error) == 4


# Spreads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("row_norm", ["l2", 2.5])
def test_without_privacy_spreads_are_exact(as_rows, row_norm):
    rows = X + 1
    found, guarantee = private_spread(as_rows(rows), row_norm=row_norm, epsilon=INF)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    bounded = rows / (norms if row_norm == "l2" else np.maximum(1, norms / row_norm))
    distances = np.linalg.norm(bounded - bounded.mean(axis=0), axis=1)
    expected = [1.0 if row_norm == "l2" else 2.5, np.linalg.norm(bounded.mean(axis=0))]
    expected += [np.median(distances), distances.max(), 0.0]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert guarantee.epsilon == INF


def test_released_spreads_are_those_of_the_rows():
    """Noise of each count has a deviation of 1, and of the mean one in 3,000."""
    rows = 30 + rng.normal(size=(4000, 5))
    truth = private_spread(rows, epsilon=INF).value
    found = private_spread(rows, epsilon=100.0).value
    assert abs(found.mean_norm - truth.mean_norm) < 0.01
    inner = np.linalg.norm(unit(rows) - unit(rows).mean(axis=0), axis=1)
    assert 0.95 * truth.half_radius < found.half_radius < 1.3 * truth.half_radius
    assert 0.95 * np.quantile(inner, 0.94) < found.radius < 1.3 * np.quantile(inner, 0.97)
    assert found.mean_error < 0.01 * found.half_radius


def test_noise_errs_to_the_larger_side_and_warns():
    with pytest.warns(PrivacyWarning, match="the noise of counts has .* with 300 rows"):
        found = private_spread(X, epsilon=0.001).value
    assert found.half_radius <= found.radius <= 2.0 == 2 * found.bound


def test_spreads_of_persons_count_once():
    copies, groups = np.repeat(X[:64], 8, axis=0), np.repeat(np.arange(64), 8)
    found = private_spread(copies, groups=groups, epsilon=INF)
    alone = private_spread(X[:64], epsilon=INF)
    np.testing.assert_allclose(found.value[:4], alone.value[:4], rtol=0.02)
    assert found.privacy.unit == "person"


@pytest.mark.parametrize("row_norm", [None, "max", 0, -1.0, INF, True])
def test_bounds_of_rows_out_of_range(row_norm):
    with pytest.raises(ValueError, match="row_norm"):
        private_spread(X, row_norm=row_norm)
