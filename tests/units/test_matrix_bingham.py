"""Subspaces drawn by the exponential mechanism.

Planes in four dimensions are pairs of unit vectors (a, b) in space, and scores of them are bilinear
in a and b: their density has a second, simpler form here.
"""

import math

import numpy as np
import pytest
from helpers import RARE, RELATIONS, p_value_of_mean
from scipy import integrate, special, stats

from dpsubspace._core.release import bingham
from dpsubspace._core.release.bingham import sample_matrix_bingham
from dpsubspace._core.release.mechanisms import BoundedSum, gram_sum, release_subspace, trace_sum
from dpsubspace._core.release.noise import SecureNoise, SeededNoise

ZERO_OUT = {"neighboring_relation": "zero_out"}


def subspaces(values, k, n, seed=0):
    """Squared lengths (n, p) of the axes on subspaces from the density with these eigenvalues."""
    noise, values = SeededNoise(seed), np.asarray(values, dtype=float)
    order = np.argsort(-values)
    ordered, found = values[order], np.empty((n, len(values)))
    columns = bingham._fitted(ordered[:k, None] - ordered[None, k:])
    made = 0
    while made < n:
        rows = bingham._proposal(columns, noise.normals, noise.uniform)
        if rows is not None:
            basis = bingham._basis(rows)
            found[made, order] = (basis**2).sum(axis=1)
            made += 1
    return found


# Planes in four dimensions, a second time -------------------------------------------------------

NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)
ANGLES = np.arange(160) * (2 * np.pi / 160)
SPHERE = np.stack(
    [
        np.outer(np.sqrt(1 - NODES**2), np.cos(ANGLES)),
        np.outer(np.sqrt(1 - NODES**2), np.sin(ANGLES)),
        np.outer(NODES, np.ones(160)),
    ],
    axis=-1,
)


def pairs(values):
    """T of ``tr(X' A X) = tr(A) / 2 + a' T b``, for A diagonal: T is diagonal too."""
    m1, m2, m3, m4 = values
    return np.array([m1 + m2 - m3 - m4, m1 + m3 - m2 - m4, m1 + m4 - m2 - m3]) / 2


def log_normaliser(values):
    """Of planes: the integral of exp(a' T b) over b is ``sinh |T a| / |T a|``."""
    lengths = np.linalg.norm(SPHERE * pairs(values), axis=-1)
    top = lengths.max()
    inner = np.exp(lengths - top) * -np.expm1(-2 * lengths) / (2 * np.maximum(lengths, 1e-300))
    inner = np.where(lengths < 1e-8, math.exp(-top), inner)
    return sum(values) / 2 + top + math.log(float(WEIGHTS @ inner.mean(axis=1)) / 2)


def mean_shares(values):
    """Means of squared lengths of the axes on the plane: derivatives of the log normaliser."""
    step = 1e-4 * np.eye(4)
    return np.array(
        [(log_normaliser(values + h) - log_normaliser(values - h)) / 2e-4 for h in step]
    )


PLANES = [
    (9.0, 4.0, 3.0, 0.0),
    (8.0, 8.0, 8.0, 0.0),
    (40.0, 20.0, 19.0, 0.0),
    (300.0, 200.0, 100.0, 0.0),
]


@pytest.mark.parametrize("values", PLANES, ids=str)
def test_planes_in_four_dimensions_have_the_moments_of_pairs(values):
    values = np.array(values)
    drawn, exact = subspaces(values, 2, 400), mean_shares(values)
    assert exact.sum() == pytest.approx(2, abs=1e-6)
    for share, expected in zip(drawn.T, exact, strict=True):
        assert p_value_of_mean(share, expected) > RARE


def test_another_density_would_be_noticed():
    """By draws enough: their means are 29 standard errors or more from those of another."""
    values = np.array([9.0, 4.0, 3.0, 0.0])
    drawn = subspaces(values, 2, 1500)
    for factor in (0.25, 4.0):
        exact = mean_shares(factor * values)
        assert min(map(p_value_of_mean, drawn.T, exact)) < RARE


def test_a_plane_in_space_is_a_direction_drawn_from_the_negative():
    spectrum = np.array([4.0, 2.5, 0.0])
    normal = np.sqrt(np.clip(1 - subspaces(spectrum, 2, 600)[:, 2], 0.0, 1.0))
    # On a circle of latitude the rest is a planar density, integrated by Bessel's function.
    z = np.linspace(0, 1, 4001)
    sums, half = -(spectrum[0] + spectrum[1]) / 2, (spectrum[0] - spectrum[1]) / 2
    across = 1 - z**2
    density = np.exp(-spectrum[2] * z**2 + sums * across) * special.i0(half * across)
    law = integrate.cumulative_trapezoid(density, z, initial=0)
    assert stats.kstest(normal, lambda t: np.interp(t, z, law / law[-1])).pvalue > RARE


@pytest.mark.parametrize(("p", "k"), [(5, 2), (9, 3)])
def test_axes_with_one_eigenvalue_have_the_beta_law_of_a_uniform_subspace(p, k):
    """The first axis has a squared length of law Beta(k / 2, (p - k) / 2)."""
    drawn = subspaces(np.full(p, 3.0), k, 200)[:, 0]
    assert stats.kstest(drawn, stats.beta(k / 2, (p - k) / 2).cdf).pvalue > RARE


@pytest.mark.parametrize("k", [3])
def test_subspaces_and_their_complements_have_the_same_law(k):
    values = np.array([9.0, 7.0, 5.0, 4.0, 1.0, 0.5, 0.0, -2.0])
    inside, outside = subspaces(values, k, 100), 1 - subspaces(-values, 8 - k, 100, seed=1)
    for one, other in zip(inside.T, outside.T, strict=True):
        assert stats.ks_2samp(one, other).pvalue > RARE


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(5)], ids=["secure", "seeded"])
@pytest.mark.parametrize(
    "values",
    [
        [2.0, 1.0],
        [0.0] * 5,
        [1e12, 0.0, 1.0],
        [1e12, 1e12, 0.0, -1e12, 3.0],
        [1e300, 0.0, 0.0],
        [3e-170, 2e-170, 0.0, 0.0],
        [3e-320, 1e-320, 0.0],
    ],
    ids=str,
)
def test_any_eigenvalues_give_orthonormal_bases(values, noise):
    turn = stats.ortho_group.rvs(len(values), random_state=1)
    for k in range(1, len(values) + 1):
        basis = sample_matrix_bingham((turn * values) @ turn.T, k, noise.normals, noise.uniform)
        np.testing.assert_allclose(basis.T @ basis, np.eye(k), atol=1e-7)


@pytest.mark.parametrize(
    ("matrix", "k"),
    [
        (np.ones(3), 1),
        (np.ones((2, 3)), 1),
        (np.diag([1, np.inf]), 1),
        (np.eye(2), 3),
        (np.eye(2), 0),
    ],
    ids=str,
)
def test_senseless_matrices_and_sizes_are_refused(matrix, k):
    with pytest.raises(ValueError, match=r"Bingham matrix|dimensions"):
        sample_matrix_bingham(matrix, k, SeededNoise(0).normals, SeededNoise(0).uniform)


# Integrals and bounds ---------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 6.25])
@pytest.mark.parametrize("n", [1, 5, 60, 400])
def test_integrals_agree_with_closed_forms(n, power):
    volume = special.gammaln((power + 1) / 2) - special.gammaln((n + power + 1) / 2)
    volume += n / 2 * math.log(math.pi)
    for b in (0.0, 1e-3, 1.0, 30.0, 300.0):
        log_c, squares = bingham._log_integral_and_squares(np.full(n, b), power)
        ratio = special.hyp1f1((power + 1) / 2, (n + power + 1) / 2, b)
        assert log_c == pytest.approx(volume - b + math.log(ratio), abs=1e-9)
        above = special.hyp1f1((power + 1) / 2, (n + power + 3) / 2, b)
        assert squares == pytest.approx(np.full(n, above / ratio / (n + power + 1)), rel=1e-8)


@pytest.mark.parametrize("power", [0.0, 0.4, 1.0, 3.5])
@pytest.mark.parametrize(
    "gaps",
    [np.full(6, 8.0), np.geomspace(0.1, 300, 6), np.r_[np.zeros(3), 50.0, 60, 70], np.zeros(4)],
    ids=["equal", "spread", "ties", "zero"],
)
def test_bounds_hold_for_any_columns_before(gaps, power, rng):
    """And are all but reached, where the density is log-concave: by columns along the axes."""
    n = len(gaps)
    for j, log_det in ((1, -0.1), (2, -3.0), (3, -20.0)):
        exponent, bound = bingham._bounded(gaps, j, power, log_det)
        assert 0 <= exponent <= 1
        best = -math.inf
        for trial in range(60):
            axes = np.linalg.qr(rng.normal(size=(n, j)))[0]
            if trial % 3 == 0:
                axes = np.eye(n)[:, np.argsort(-gaps)[:j]]
            left = rng.uniform(size=j) ** rng.choice([0.1, 1.0, 10.0])
            inside = np.eye(n) - (axes * (1 - left)) @ axes.T
            roots, turn = np.linalg.eigh(inside)
            root = (turn * np.sqrt(np.maximum(roots, 0))) @ turn.T
            values = np.linalg.eigvalsh((root * gaps) @ root).clip(0)
            factor = bingham._log_integral(values, power)
            best = max(best, factor + exponent / 2 * np.log(left).sum())
        assert best <= bound + 1e-12
        if power >= 1 and gaps[0] == gaps[-1]:
            assert best > bound - 0.2


# Releases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("relation", "factor"), [("zero_out", 1.0), ("replace_one", 0.5)])
def test_temperature_of_a_subspace(relation, factor):
    c, epsilon, values = 3.0, 2.0, np.array([2.0, 1.2, 0.5, 0.0])
    total = trace_sum(gram_sum(c**2 * np.diag(values), c), c, 2)
    noise = SeededNoise(8)
    drawn = [
        release_subspace(total, epsilon, noise, n_components=2, neighboring_relation=relation)[:2]
        for _ in range(80)
    ]
    shares = np.square(drawn).sum(axis=(1, 2)) / 2
    exact = mean_shares(factor * epsilon * values)[:2].sum() / 2
    assert p_value_of_mean(shares, exact) > RARE


@pytest.mark.parametrize(("relation", "factor"), [("zero_out", 1.0), ("replace_one", 0.5)])
def test_a_sum_is_multiplied_by_what_its_bounds_allow(relation, factor, monkeypatch):
    """Exactly, where draws would tell a large factor only."""
    asked = []

    def sampler(matrix, *_):
        asked.append(matrix)
        return np.eye(4)[:, :2]

    monkeypatch.setattr("dpsubspace._core.release.mechanisms.sample_matrix_bingham", sampler)
    total = trace_sum(gram_sum(9.0 * np.eye(4), 3.0), 3.0, 2)
    release_subspace(total, 2.0, SeededNoise(0), n_components=2, neighboring_relation=relation)
    assert (asked[0] <= factor * 2.0 * np.eye(4)).all()
    np.testing.assert_allclose(asked[0], factor * 2.0 * np.eye(4), rtol=1e-5)


def test_what_leaves_depends_on_the_subspace_alone(monkeypatch):
    """The sampler's basis knows the eigenvectors of the private sum."""
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 3)))[0]
    out = []
    for seed in range(5):
        turned = basis @ stats.ortho_group.rvs(3, random_state=seed)
        monkeypatch.setattr(
            "dpsubspace._core.release.mechanisms.sample_matrix_bingham",
            lambda *_, turned=turned: turned,
        )
        total = trace_sum(gram_sum(np.eye(6), 1.0), 1.0, 3)
        out.append(release_subspace(total, 1.0, SeededNoise(0), n_components=3, **ZERO_OUT))
    for one in out:
        np.testing.assert_allclose(one @ one.T, basis @ basis.T, atol=1e-7)
        np.testing.assert_allclose(one, out[0], atol=1e-6)


def test_without_privacy_the_subspace_is_that_of_the_top():
    total = trace_sum(gram_sum(np.diag([1.0, 9.0, 2.0]), 1.0), 1.0, 2)
    basis = release_subspace(total, math.inf, SeededNoise(0), n_components=2, **ZERO_OUT)
    np.testing.assert_allclose((basis**2).sum(axis=1), [0, 1, 1], atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_a_senseless_epsilon_and_a_sum_without_bounds_are_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        release_subspace(
            BoundedSum(np.eye(3), 1.0, 2.0), epsilon, SeededNoise(0), n_components=2, **ZERO_OUT
        )
    total = BoundedSum(np.eye(3), math.inf, math.inf)
    with pytest.raises(ValueError, match="bounds"):
        release_subspace(total, 1.0, SeededNoise(0), n_components=2, **ZERO_OUT)


def trace_spread(matrix, k):
    values = np.linalg.eigvalsh(matrix)
    return values[-k:].sum() - values[:k].sum()


@pytest.mark.parametrize("k", [1, 2, 4])
def test_bounds_of_a_trace_cover_every_move_and_are_reached(k, rng):
    c, slack, p = 1.5, 0.2, 9
    plain = trace_sum(gram_sum(np.eye(p), c), c, k)
    slacked = trace_sum(gram_sum(np.eye(p), c, slack), c, k)
    spreads = []
    for trial in range(200):
        g, h = (c * v / np.linalg.norm(v) for v in rng.normal(size=(2, p)))
        if trial == 0:
            g, h = c * np.eye(p)[:2]
        error = rng.normal(size=(p, p))
        if trial < 50:
            error = np.diag(np.r_[np.ones(k), np.zeros(p - 2 * k), -np.ones(k)])
        error = (error + error.T) * (slack * c**2 / np.linalg.norm(error + error.T))
        one, two = np.outer(g, g), np.outer(g, g) - np.outer(h, h)
        spreads.append((trace_spread(one, k), trace_spread(two, k)))
        assert trace_spread(one + error, k) <= slacked.norm_bound * (1 + 1e-12)
        assert trace_spread(two + error, k) <= math.sqrt(2) * slacked.replace_bound * (1 + 1e-12)
    exact = [plain.norm_bound, math.sqrt(2) * plain.replace_bound]
    assert np.max(spreads, axis=0) == pytest.approx(exact)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_neighbours_differ_by_at_most_epsilon_and_come_near_it(relation, epsilon):
    """From the density of planes itself, and sums that a record along an axis is added to."""
    rate = epsilon if relation == "zero_out" else epsilon / 2
    losses = []
    for height in (0.0, 1.0, 10.0, 300.0):
        for shape in ([1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [4, 3, 2, 1]):
            S = height * np.array(shape, dtype=float)
            for axis in range(4):
                added, other = np.eye(4)[axis], np.eye(4)[(axis + 1) % 4]
                T = S + (0 if relation == "zero_out" else other)
                move = rate * (S + added - T)
                shift = log_normaliser(rate * (S + added)) - log_normaliser(rate * T)
                losses.append(np.sort(move)[:2].sum() - shift)
                losses.append(np.sort(move)[2:].sum() - shift)
    assert np.abs(losses).max() <= epsilon + 1e-6
    assert np.abs(losses).max() > 0.97 * epsilon
