"""Directions drawn by the exponential mechanism, Laplace noise, and what they cost.

What the densities are is computed here a second time: the normaliser of the Bingham density
as an inverse Laplace transform, privacy costs by brute force.
"""

import copy
import math
import pickle

import dp_accounting as dpa
import numpy as np
import pytest
from helpers import (
    RARE,
    RELATIONS,
    ScaledNoise,
    calibrate,
    calibrate_range,
    epsilon_of,
    p_value_of_mean,
    pairs_first,
    thinned,
)
from scipy import integrate, special, stats

from dpsubspace import PrivacyError, PrivacyLedger
from dpsubspace._core.accounting.accountants import BoundedRangeDpEvent, bounded_range_curve
from dpsubspace._core.accounting.events import (
    bounded_range,
    composed,
    describe,
    gaussian,
    laplace,
    sampled_gaussian,
)
from dpsubspace._core.release.bingham import _best_b, sample_bingham
from dpsubspace._core.release.mechanisms import (
    BoundedL1Sum,
    BoundedSum,
    energy_sum,
    gram_sum,
    release_direction,
    release_laplace,
)
from dpsubspace._core.release.noise import SecureNoise, SeededNoise
from dpsubspace.budget import PrivacyGuarantee

ZERO_OUT, REPLACE_ONE = (
    {"neighboring_relation": relation} for relation in ("zero_out", "replace_one")
)
AT_5 = {"delta": 1e-5, **ZERO_OUT}


# The Bingham density, a second time ---------------------------------------------------------


def log_normaliser(eigenvalues):
    """log E exp(x' A x) for x uniform on the sphere.

    It is Gamma(p/2) / (2 pi i) times the integral of exp(s) prod (s - l_j)^(-1/2) over a
    contour around the cut that ends at the largest l_j: here a parabola through the saddle
    point with its focus at the least l_j, along which every factor falls from the saddle on.
    """
    gaps = np.max(eigenvalues) - np.asarray(eigenvalues, float)
    low, high = 0.25, len(gaps) / 2
    for _ in range(100):  # saddle point: sum 1 / (m + gaps) = 2
        m = (low + high) / 2
        low, high = (m, high) if (1 / (m + gaps)).sum() > 2 else (low, m)
    focus = math.sqrt(m + gaps.max())
    width = 1 / (math.sqrt(2) * focus * math.sqrt((1 / (m + gaps) ** 2).sum()))  # of the saddle
    u = np.linspace(0, math.asinh(9 / width), 800)
    v, dv = width * np.sinh(u), width * np.cosh(u) * u[1]
    dv[0] /= 2  # the other half is the mirror image
    s = (focus + 1j * v) ** 2 - focus**2  # from the saddle point
    exponent = s - 0.5 * np.log1p(s[:, None] / (m + gaps)).sum(axis=1)
    integral = (np.exp(exponent) * (focus + 1j * v)).real @ dv * 2 / math.pi
    at_saddle = m - 0.5 * np.log(m + gaps).sum()
    return np.max(eigenvalues) + special.gammaln(len(gaps) / 2) + at_saddle + math.log(integral)


def second_moments(eigenvalues):
    """E x_j^2 under the density: derivatives of the log normaliser."""
    step = 1e-4 * np.eye(len(eigenvalues))
    return np.array(
        [(log_normaliser(eigenvalues + h) - log_normaliser(eigenvalues - h)) / 2e-4 for h in step]
    )


def test_normaliser_agrees_with_closed_forms():
    for a, b in ((3.0, 1.0), (10.0, 0.0), (700.0, -3.0)):
        exact = a + math.log(special.i0e((a - b) / 2))
        assert log_normaliser([a, b]) == pytest.approx(exact, rel=1e-11)
    for p in (3, 10, 50, 200):
        for top in (0.0, 0.5, 30.0, 120.0, 600.0):
            exact = math.log(special.hyp1f1(0.5, p / 2, top))
            found = log_normaliser(np.r_[top, np.zeros(p - 1)])
            assert found == pytest.approx(exact, rel=1e-9, abs=1e-11)


# Draws --------------------------------------------------------------------------------------


def draws(matrix, n, seed=0, sample=sample_bingham):
    noise = SeededNoise(seed)
    return np.array(
        [sample(matrix, noise.normals, noise.uniform)
         for _ in range(n)]
    )  # fmt: skip


def divides(matrix, normals, uniforms):
    """The mistake to be caught: an acceptance probability that divides by w^(p/2)."""
    values, vectors = np.linalg.eigh(matrix)
    gaps, p = values[-1] - values, len(values)
    b = _best_b(gaps)
    while True:
        z = normals((64, p)) / np.sqrt(1 + 2 * gaps / b)
        x = z / np.linalg.norm(z, axis=1, keepdims=True)
        t = x**2 @ gaps
        accepted = np.log(uniforms((64,))) <= -t - p / 2 * np.log1p(2 * t / b)
        if accepted.any():
            return vectors @ x[accepted.argmax()]


def doubled(matrix, normals, uniforms):
    return sample_bingham(2 * matrix, normals, uniforms)


def p_value_of_angle(sample=sample_bingham, n=3000):
    """KS p-value of the angle to the top axis in the plane, for S = diag(3, 1)."""
    x = draws(np.diag([3.0, 1.0]), n, sample=sample)
    density = lambda t: math.exp(math.cos(2 * t)) / (2 * math.pi * special.i0(1.0))  # noqa: E731
    grid = np.linspace(-math.pi, math.pi, 2001)
    cdf = integrate.cumulative_trapezoid([density(t) for t in grid], grid, initial=0)
    law = lambda t: np.interp(t, grid, cdf)  # noqa: E731
    quarters = np.arctan2(*np.abs(x.T[::-1]))  # which are alike, and tell more together
    together = stats.kstest(quarters, lambda t: 4 * law(t) - 2).pvalue
    return min(together, stats.kstest(np.arctan2(x[:, 1], x[:, 0]), law).pvalue)


def p_value_of_top(sample=sample_bingham, n=2000):
    """KS p-value of the first coordinate in space, for a matrix that is not diagonal."""
    spectrum = np.array([4.0, 2.5, 0.0])
    rotation = stats.ortho_group.rvs(3, random_state=1)
    x = draws((rotation * spectrum) @ rotation.T, n, seed=1, sample=sample) @ rotation
    # On a circle of latitude the rest is a planar density, integrated by Bessel's function.
    z = np.linspace(-1, 1, 4001)
    half = (1 - z**2) * (spectrum[1] - spectrum[2]) / 2
    density = np.exp(spectrum[0] * z**2 + half) * special.i0(half)
    cdf = integrate.cumulative_trapezoid(density, z, initial=0)
    law = lambda t: np.interp(t, z, cdf / cdf[-1])  # noqa: E731
    halves = stats.kstest(np.abs(x[:, 0]), lambda t: 2 * law(t) - 1).pvalue  # which are alike
    return min(stats.kstest(x[:, 0], law).pvalue, halves)


def p_value_of_moments(sample=sample_bingham, n=1000):
    """p-value of the mean of the top square in 30 dimensions, two of which stand out."""
    spectrum = np.r_[40.0, 30.0, np.linspace(0, 8, 28)]
    squares = draws(np.diag(spectrum), n, seed=2, sample=sample) ** 2
    return p_value_of_mean(squares[:, 0], second_moments(spectrum)[0])


LAWS = [p_value_of_angle, p_value_of_top, p_value_of_moments]


@pytest.mark.parametrize("law", LAWS)
def test_draws_follow_the_bingham_density(law):
    assert law() > RARE


@pytest.mark.wide
@pytest.mark.parametrize("law", thinned(LAWS))
def test_a_wrong_temperature_would_be_noticed(law):
    assert law(doubled) < RARE


@pytest.mark.parametrize("law", [p_value_of_angle, p_value_of_top])
def test_a_wrong_acceptance_would_be_noticed(law):
    assert law(divides, n=1000) < RARE


@pytest.mark.parametrize(("spectrum", "expected"), [((3, 1), 0.7232), ((10, 0), 0.9467)])
def test_published_moments_in_the_plane(spectrum, expected):
    squares = draws(np.diag(np.array(spectrum, float)), 1000, seed=3)[:, 0] ** 2
    assert p_value_of_mean(squares, expected) > RARE


def test_moments_in_many_dimensions():
    spectrum = np.r_[120.0, np.zeros(199)]
    squares = draws(np.diag(spectrum), 200, seed=4)[:, 0] ** 2
    exact = (log_normaliser(spectrum + 1e-3 * np.eye(200)[0]) - log_normaliser(spectrum)) / 1e-3
    assert p_value_of_mean(squares, exact) > RARE


@pytest.mark.parametrize(
    "spectrum",
    [
        [2.0],
        [5.0, 5.0, 5.0],
        [0.0] * 7,
        [1e12, 0.0, 1.0],
        [1e12, 1e12, 0.0, -1e12],
        [1e300, 0.0],
        np.geomspace(1e-12, 1e12, 40),
    ],
    ids=str,
)
@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(5)], ids=["secure", "seeded"])
def test_any_spectrum_gives_unit_vectors(spectrum, noise):
    for _ in range(20):
        x = sample_bingham(np.diag(spectrum), noise.normals, noise.uniform)
        assert np.linalg.norm(x) == pytest.approx(1, abs=1e-12)
        # What is lost against the top is about one half for every other axis.
        assert (np.max(spectrum) - np.array(spectrum)) @ x**2 <= 40 + 5 * len(spectrum)


def test_equal_eigenvalues_give_a_uniform_direction():
    x = draws(7.0 * np.eye(3), 1000, seed=6)
    for column in x.T:  # Archimedes: a coordinate is uniform
        assert stats.kstest(column, "uniform", (-1, 2)).pvalue > RARE


def test_a_broken_source_is_an_error_and_not_a_loop(monkeypatch):
    monkeypatch.setattr("dpsubspace._core.release.bingham._MOST_BATCHES", 3)
    with pytest.raises(RuntimeError, match="source of randomness"):
        sample_bingham(np.diag([1.0, 0.0]), lambda s: np.full(s, np.nan), lambda s: np.full(s, 0.5))


@pytest.mark.parametrize(
    "matrix", [np.ones(3), np.ones((2, 3)), np.empty((0, 0)), np.diag([1, np.inf])], ids=str
)
def test_senseless_matrices_are_refused(matrix):
    with pytest.raises(ValueError, match="Bingham matrix"):
        draws(matrix, 1)


# Sources of uniforms ------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(7)], ids=["secure", "seeded"])
def test_uniforms_are_uniform(noise):
    u = noise.uniform((4000, 2))
    assert u.shape == (4000, 2)
    assert stats.kstest(u.ravel(), "uniform").pvalue > RARE
    assert stats.kstest(u.ravel() ** 1.3, "uniform").pvalue < RARE


@pytest.mark.system_bits
def test_uniforms_are_never_0_or_1(monkeypatch):
    for byte, expected in ((b"\x00", 2.0**-53), (b"\xff", 1 - 2.0**-53)):
        monkeypatch.setattr("os.urandom", lambda n, byte=byte: byte * n)
        assert (SecureNoise().uniform((3,)) == expected).all()


# Releases -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "c"), pairs_first([("zero_out", 0.932), ("replace_one", 0.849)], [1.0, 3.0]), ids=str
)
def test_temperature_of_a_direction(at, c):
    relation, expected = at
    noise, total = SeededNoise(8), gram_sum(c**2 * np.diag([3.0, 1.0]), c)
    top = [release_direction(total, 4.0, noise, neighboring_relation=relation)[0]
           for _ in range(800)]  # fmt: skip
    squares = np.square(top)
    assert p_value_of_mean(squares, expected) > RARE
    assert p_value_of_mean(np.array(top) > 0, 0.5) > RARE


def test_only_the_symmetric_part_counts():
    symmetric = np.array([[3.0, 1.0], [1.0, 2.0]])
    skew = np.array([[0.0, 5.0], [-5.0, 0.0]])
    first, second = (
        release_direction(gram_sum(m, 1.0), 2.0, SeededNoise(9), **ZERO_OUT)
        for m in (symmetric, symmetric + skew)
    )
    np.testing.assert_allclose(first, second)


def test_without_privacy_the_direction_is_the_top_eigenvector():
    x = release_direction(
        gram_sum(np.diag([1.0, 9.0, 2.0]), 1.0), math.inf, SeededNoise(0), **ZERO_OUT
    )
    np.testing.assert_allclose(np.abs(x), [0, 1, 0], atol=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_a_senseless_epsilon_is_refused(epsilon):
    for release in (release_direction, release_laplace):
        with pytest.raises(ValueError, match="epsilon"):
            release(BoundedL1Sum(np.eye(2), 1.0, 2.0), epsilon, SeededNoise(0), **ZERO_OUT)


def test_an_unbounded_sum_has_no_private_direction():
    for release in (release_direction, release_laplace):
        with pytest.raises(ValueError, match=r"bounds|noise scale"):
            total = BoundedL1Sum(np.eye(2), math.inf, math.inf)
            release(total, 1.0, SeededNoise(0), **ZERO_OUT)


def p_value_of_laplace(noise, relation):
    bound = {"zero_out": 2.5, "replace_one": 4.0}[relation]
    total = BoundedL1Sum(np.zeros(9000), 2.5, 4.0)
    out = release_laplace(total, 0.8, noise, neighboring_relation=relation)
    return stats.kstest(out / (bound / 0.8), "laplace").pvalue


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(10)], ids=["secure", "seeded"])
def test_laplace_noise_has_the_stated_scale(noise, relation):
    assert p_value_of_laplace(noise, relation) > RARE
    for factor in (2 / 3, 3 / 2):
        assert p_value_of_laplace(ScaledNoise(noise, factor), relation) < RARE


# Bounds of the sums -------------------------------------------------------------------------


def spread(matrix):
    eigenvalues = np.linalg.eigvalsh(matrix)
    return eigenvalues[-1] - eigenvalues[0]


def test_bounds_of_a_gram_sum_cover_every_move_and_are_reached(rng):
    c, slack = 1.5, 0.2
    plain, slacked = gram_sum(np.eye(4), c), gram_sum(np.eye(4), c, slack)
    frobenius, spreads = [], []
    for trial in range(300):
        g, h = rng.normal(size=(2, 4))
        g, h = (c * v / np.linalg.norm(v) for v in (g, h))
        if trial == 0:
            g, h = c * np.eye(4)[:2]
        error = rng.normal(size=(4, 4))
        if trial < 50:  # the error that hurts most: it stretches both ends
            error = np.outer(g, g) - np.outer(h, h) if trial else np.diag([1.0, 0, 0, -1.0])
        error = (error + error.T) * (slack * c**2 / np.linalg.norm(error + error.T))
        one, two = np.outer(g, g), np.outer(g, g) - np.outer(h, h)
        frobenius.append(np.linalg.norm(two))
        spreads.append((spread(one), spread(two)))
        assert np.linalg.norm(one) <= plain.norm_bound * (1 + 1e-12)
        assert spread(one + error) <= slacked.norm_bound * (1 + 1e-12)
        assert spread(two + error) <= math.sqrt(2) * slacked.replace_bound * (1 + 1e-12)
        assert np.linalg.norm(two + error) <= slacked.replace_bound * (1 + 1e-12)
    assert max(frobenius) == pytest.approx(plain.replace_bound)
    assert np.max(spreads, axis=0) == pytest.approx([plain.norm_bound, 2 * plain.norm_bound])


def test_bounds_of_energies_cover_every_move_and_are_reached(rng):
    total = energy_sum(np.zeros(3), 2.0)
    assert (total.norm_bound, total.replace_bound) == (4.0, 8.0)
    moves = []
    for trial in range(200):
        basis = np.linalg.qr(rng.normal(size=(6, 2)))[0]
        g, h = (2 * v / np.linalg.norm(v) for v in rng.normal(size=(2, 6)))
        if trial == 0:
            g, h = 2 * basis.T
        one, other = (np.r_[(basis.T @ v) ** 2, v @ v - ((basis.T @ v) ** 2).sum()] for v in (g, h))
        assert np.abs(one).sum() <= total.norm_bound * (1 + 1e-12)
        moves.append(np.abs(one - other).sum())
    assert max(moves) == pytest.approx(total.replace_bound)
    assert isinstance(total, BoundedSum)


# The privacy of a direction, from the density itself ----------------------------------------


def loss_range(S, T, rate):
    """Least and largest log density ratio over the sphere, of sums S and T."""
    difference = np.linalg.eigvalsh(S - T)
    shift = log_normaliser(rate * np.linalg.eigvalsh(S)) - log_normaliser(
        rate * np.linalg.eigvalsh(T)
    )
    return rate * difference[0] - shift, rate * difference[-1] - shift


def matrices(p, rng):
    """Sums before a record comes: nothing, flat, one dominant eigenvalue, and two."""
    yield np.zeros((p, p))
    yield 10.0 * np.eye(p)
    for height in (5.0, p / 2, 2.0 * p, 1e4):
        yield np.diag(np.r_[height, np.zeros(p - 1)])
    yield np.diag(np.r_[1e3, 990.0, np.linspace(0, 50, p - 2)])
    rows = rng.normal(size=(3 * p, p))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    yield rows.T @ rows


@pytest.mark.parametrize(("p", "epsilon"), pairs_first([2, 50, 200], [0.5, 4.0]))
def test_neighbours_differ_by_at_most_epsilon_and_come_near_it(p, epsilon, rng):
    zero_out, replace_one = [], []
    axes, tilted = np.eye(p), np.r_[0.8, 0.6, np.zeros(p - 2)]
    for S in matrices(p, rng):
        for g in (axes[0], axes[-1], tilted):
            zero_out.append(loss_range(S + np.outer(g, g), S, epsilon))
        for g, h in ((axes[0], axes[-1]), (axes[-1], tilted)):
            replace_one.append(loss_range(S + np.outer(g, g), S + np.outer(h, h), epsilon / 2))
    for found in (np.array(zero_out), np.array(replace_one)):
        assert (np.abs(found) <= epsilon + 1e-7).all()
        assert (found[:, 1] - found[:, 0] <= epsilon + 1e-9).all()
        assert (found[:, 0] <= 1e-7).all() and (found[:, 1] >= -1e-7).all()
        assert np.abs(found).max() > 0.97 * epsilon
    found = np.array(zero_out)  # with the record is likelier, and without it, both to the full
    assert found[:, 1].max() > 0.97 * epsilon and found[:, 0].min() < -0.97 * epsilon


@pytest.mark.wide
def test_the_mistaken_density_costs_more_than_it_says():
    """The density of `divides` at half the rate of replace-one, which is meant to be generous."""

    def log_density(height, cosine2):
        # Of exp(-t) w^(-p), with t = rate height sin^2, against the uniform density.
        gaps = np.r_[0.0, np.full(p - 1, rate * height)]
        b = _best_b(gaps)
        t = rate * height * (1 - cosine2)
        return -t - p * np.log1p(2 * t / b)

    rate = 1 / 4  # epsilon = 1
    worst = []
    for p in (50, 200):
        u = np.linspace(0, 1, 200_001)  # the cosine, whose density is (1 - u^2)^((p - 3) / 2)
        base = (p - 3) / 2 * np.log1p(-(np.minimum(u, 1 - 1e-12) ** 2))
        losses = []
        for height in np.geomspace(10, 100 * p, 40):
            logs = [log_density(h, u**2) for h in (height, height + 1)]
            logs = [x - special.logsumexp(x + base) for x in logs]
            losses.append(np.abs(logs[1] - logs[0]).max())
        worst.append(max(losses))
    assert worst == pytest.approx([1.11, 2.00], abs=0.02)


# Accounting ---------------------------------------------------------------------------------


def randomised_response(epsilon, t):
    """Losses t and t - epsilon, and their probabilities under the first distribution."""
    likely = np.expm1(t - epsilon) / math.expm1(-epsilon)
    return np.array([t, t - epsilon]), np.array([likely, 1 - likely])


def divergence(losses, probabilities, order):
    return (probabilities * np.maximum(0, -np.expm1(order - losses))).sum()


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 6.0])
def test_curve_of_one_draw_is_the_closed_form(epsilon):
    step, curve = bounded_range_curve(epsilon, 1)
    orders = (np.arange(len(curve)) - len(curve) // 2) * step
    exact = np.expm1((orders - epsilon) / 2) ** 2 / -math.expm1(-epsilon)
    np.testing.assert_allclose(curve, exact, rtol=1e-8, atol=2e-15 / epsilon + 1e-13)
    assert (curve >= exact * (1 - 1e-14) - 1e-16).all()
    # ... which is the largest over randomised responses
    for order, value in zip(orders[::7], exact[::7], strict=True):
        responses = [
            divergence(*randomised_response(epsilon, t), order)
            for t in np.linspace(0, epsilon, 801)
        ]
        assert value * (1 - 1e-2) - 1e-12 <= max(responses) <= value * (1 + 1e-9) + 1e-15


def test_no_mechanism_of_bounded_range_is_above_the_curve(rng):
    epsilon = 1.3
    for _ in range(200):
        loss = rng.uniform(0, epsilon) + rng.uniform(-epsilon, 0, size=6)
        below = rng.dirichlet(np.full(6, 0.3))
        loss -= math.log((below * np.exp(loss)).sum())  # so that both have mass 1
        assert np.ptp(loss) <= epsilon
        above = below * np.exp(loss)
        for order in np.linspace(-epsilon, epsilon, 9):
            exact = np.expm1((order - epsilon) / 2) ** 2 / -math.expm1(-epsilon)
            assert divergence(loss, above, order) <= exact + 1e-12


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_curve_of_two_draws_is_the_worst_adaptive_one(epsilon):
    def one(order):
        inside = np.expm1((np.minimum(order, epsilon) - epsilon) / 2) ** 2 / -math.expm1(-epsilon)
        return np.where(order < -epsilon, -np.expm1(order), inside)

    def two(order):
        # The second draw is worst by the closed form, for either outcome of the first.
        losses, probabilities = randomised_response(epsilon, np.linspace(0, epsilon, 1001))
        return (probabilities * one(order - losses)).sum(axis=0).max()

    step, curve = bounded_range_curve(epsilon, 2)
    n = len(curve) // 2
    for place in range(-n, n + 1):
        order = place * step
        assert curve[n + place] >= two(order) * (1 - 1e-9)
        # Chords cost next to nothing, but where the curve is all but 0 part of a cell.
        assert curve[n + place] <= max(1.01 * two(order), two(order - step / 4)) + 1e-12


@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 2), (0.5, 3), (2.0, 4)])
def test_cost_is_above_every_composition_that_does_not_adapt(epsilon, count):
    delta = 1e-4
    cost = epsilon_of(bounded_range(epsilon, count), delta, **ZERO_OUT)
    for t in np.linspace(0, epsilon, 41):
        losses, probabilities = np.zeros(1), np.ones(1)
        one, of_one = randomised_response(epsilon, t)
        for _ in range(count):
            losses = np.add.outer(losses, one).ravel()
            probabilities = np.multiply.outer(probabilities, of_one).ravel()
        assert divergence(losses, probabilities, cost) <= delta


@pytest.mark.parametrize("relation", RELATIONS)
def test_without_a_delta_epsilons_add_up(relation):
    event = composed([bounded_range(0.3, 4), laplace(0.7, neighboring_relation=relation)])
    assert epsilon_of(event, 0.0, neighboring_relation=relation) == pytest.approx(1.9, rel=1e-12)
    assert epsilon_of(event, 1e-300, neighboring_relation=relation) == pytest.approx(1.9)
    assert epsilon_of(composed([event, gaussian(1.0)]), 0.0, neighboring_relation=relation) == (
        math.inf
    )


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("count", [1, 2, 8, 40, 1000])
def test_many_draws_cost_less_than_their_sum_and_than_concentrated_privacy(epsilon, count):
    cost = epsilon_of(bounded_range(epsilon, count), 1e-5, **ZERO_OUT)
    accountant = dpa.rdp.RdpAccountant()
    accountant.compose(dpa.ZCDpEvent(count * epsilon**2 / 8))
    assert cost <= epsilon * count * (1 + 1e-12)
    if (concentrated := accountant.get_epsilon(1e-5)) < 100:  # more protects nobody
        assert cost <= concentrated
    # It cannot be below the largest response to the sum of all: the central limit.
    if count == 1000 and epsilon < 1:
        limit = dpa.get_epsilon_gaussian(2 / (epsilon * math.sqrt(count)), 1e-5)
        assert 0.98 * limit < cost < 1.05 * limit


def test_figures_of_eight_draws():
    assert epsilon_of(bounded_range(1.0, 8), 1e-5, **ZERO_OUT) == pytest.approx(6.16, abs=0.02)
    found = calibrate_range(lambda x: bounded_range(x, 8), epsilon=1.0, **AT_5)
    assert 8 * found == pytest.approx(1.539, abs=0.003)


def test_more_range_more_draws_and_less_delta_cost_more():
    costs = [epsilon_of(bounded_range(e, 6), 1e-5, **ZERO_OUT) for e in np.geomspace(1e-3, 8, 25)]
    assert (np.diff(costs) > 0).all()
    costs = [epsilon_of(bounded_range(0.2, k), 1e-5, **ZERO_OUT) for k in (1, 2, 3, 5, 31, 33, 70)]
    assert (np.diff(costs) > 0).all()
    costs = [epsilon_of(bounded_range(0.2, 20), d, **ZERO_OUT) for d in (1e-2, 1e-5, 1e-9, 1e-13)]
    assert (np.diff(costs) > 0).all()


def test_entries_one_by_one_cost_what_they_cost_together():
    together = epsilon_of(bounded_range(0.1, 12), 1e-5, **ZERO_OUT)
    apart = [bounded_range(0.1, 5), bounded_range(0.1, 6), bounded_range(0.1)]
    assert epsilon_of(composed(apart), 1e-5, **ZERO_OUT) == together
    mixed = [bounded_range(0.1 * (1 + i / 1e4)) for i in range(12)]
    assert together <= epsilon_of(composed(mixed), 1e-5, **ZERO_OUT) < 1.2 * together


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5, 0.1, 1.0])
@pytest.mark.parametrize("multiplier", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_beside_gaussians_a_draw_costs_something_and_at_most_its_epsilon(
    epsilon, multiplier, relation
):
    at = {"delta": 1e-6, "neighboring_relation": relation}
    alone = epsilon_of(gaussian(multiplier), **at)
    both = epsilon_of(composed([gaussian(multiplier), bounded_range(epsilon)]), **at)
    assert alone <= both <= alone + epsilon
    if epsilon >= 0.1:
        assert both > alone


def test_gaussians_and_a_draw_against_brute_force():
    """Gaussian loss against each response, integrated; the cost is above all, and near one."""
    mu, epsilon, delta = 0.7, 0.8, 1e-3
    cost = epsilon_of(composed([gaussian(1 / mu), bounded_range(epsilon)]), delta, **ZERO_OUT)
    z = np.linspace(-9, 9, 20001)
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    gaussian_losses = mu * z + mu**2 / 2

    def exceeds(order):
        by_response = []
        for t in np.linspace(0, epsilon, 81):
            losses, probabilities = randomised_response(epsilon, t)
            by_response.append(
                sum(
                    p * (weights * np.maximum(0, -np.expm1(order - gaussian_losses - loss))).sum()
                    for loss, p in zip(losses, probabilities, strict=True)
                )
            )
        return max(by_response)

    assert exceeds(cost) <= delta < exceeds(cost * 0.93)


def test_sampled_gaussians_and_draws():
    sampled = sampled_gaussian(1.5, 0.02, 100)
    alone = epsilon_of(sampled, **AT_5)
    both = epsilon_of(composed([bounded_range(0.2, 4), sampled]), **AT_5)
    assert alone < both < alone + 0.8


@pytest.mark.parametrize("relation", RELATIONS)
def test_laplace_cost_is_that_of_one_number(relation):
    """Two draws under each relation against the hockey-stick divergence, integrated."""
    epsilon, delta = 0.8, 1e-3
    event = laplace(epsilon, neighboring_relation=relation)
    cost = epsilon_of(composed([event, event]), delta, neighboring_relation=relation)
    # Loss: epsilon with probability 1/2, -epsilon with e^-epsilon / 2, between 2 e - epsilon.
    inner = np.linspace(-epsilon, epsilon, 2001)
    middle = (inner[1:] + inner[:-1]) / 2
    mass = np.exp(-(epsilon - middle) / 2) / 4 * (inner[1] - inner[0])
    losses = np.r_[epsilon, -epsilon, middle]
    probabilities = np.r_[0.5, math.exp(-epsilon) / 2, mass]
    assert probabilities.sum() == pytest.approx(1, abs=1e-6)
    both = (np.add.outer(losses, losses), np.multiply.outer(probabilities, probabilities))
    assert divergence(*both, cost) <= delta * 1.001 and divergence(*both, cost * 0.99) > delta


def test_laplace_in_many_entries_costs_no_more_than_in_one():
    """The claim of `release_laplace`: divergences fall as a move spreads over two entries."""
    x = np.linspace(-25, 25, 2001)
    area = (x[1] - x[0]) ** 2
    base = np.exp(-np.abs(x))[:, None] * np.exp(-np.abs(x)) / 4
    for order in (-0.5, 0.0, 0.4, 0.9):
        found = []
        for share in (0.0, 0.1, 0.3, 0.5):
            moved = np.exp(-np.abs(x - 1.2 * share))[:, None] * np.exp(
                -np.abs(x - 1.2 + 1.2 * share)
            )
            found.append(np.maximum(0, base - math.exp(order) * moved / 4).sum() * area)
        assert (np.diff(found) < 1e-9).all() and found[-1] < 0.95 * found[0]


# Calibration --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delta", "epsilon", "relation"),
    pairs_first([0.0, 1e-16, 1e-9, 1e-3], [0.01, 1.0, 20.0], RELATIONS),
)
def test_calibrated_range_is_tight_and_never_above_the_target(epsilon, delta, relation):
    at = {"delta": delta, "neighboring_relation": relation}

    def event(x):
        share = laplace(x / 4, neighboring_relation=relation)
        return composed([bounded_range(x / 8, 6), share])

    found = calibrate_range(event, epsilon=epsilon, **at)
    assert epsilon * (1 - 2e-3) < epsilon_of(event(found), **at) <= epsilon
    assert found >= epsilon * (1 - 1e-12)  # never below the plain split
    if delta == 0:
        assert found == pytest.approx(epsilon, rel=1e-12)


def test_range_beside_what_is_spent():
    at = {"epsilon": 1.0, **AT_5}
    found = calibrate_range(lambda x: composed([bounded_range(x, 8), gaussian(6.0)]), **at)
    assert 0.99 < epsilon_of(composed([bounded_range(found, 8), gaussian(6.0)]), **AT_5) <= 1.0
    for spent in (gaussian(1.0), bounded_range(1.1)):
        with pytest.raises(PrivacyError, match="nothing of"):
            calibrate_range(lambda x, spent=spent: composed([bounded_range(x), spent]), **at)
    with pytest.raises(PrivacyError, match="nothing in the event is scaled"):
        calibrate_range(lambda x: bounded_range(0.1), **at)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (200.0, 1e-5), (1.0, 1e-15)])
def test_noise_beside_draws_is_calibrated(epsilon, delta):
    at = {"delta": delta, **ZERO_OUT}
    event = lambda m: composed([bounded_range(0.05, 8), gaussian(m, 3)])  # noqa: E731
    reached = epsilon_of(event(calibrate(event, epsilon=epsilon, **at)), **at)
    assert epsilon * (1 - 5e-3) < reached <= epsilon


# Events, the guarantee and the ledger -------------------------------------------------------


def test_event_is_a_value():
    event = bounded_range(0.5)
    assert event == BoundedRangeDpEvent(0.5) != BoundedRangeDpEvent(0.6)
    assert pickle.loads(pickle.dumps(event)) == copy.deepcopy(event) == event
    assert dpa.DpEvent.from_named_tuple(event.to_named_tuple()) == event
    with pytest.raises(AttributeError):
        event.epsilon = 0.1
    assert describe(bounded_range(0.5, 3)) == "3 x (exponential mechanism, epsilon 0.5)"
    assert describe(laplace(0.5, **REPLACE_ONE)) == "Laplace noise, multiplier 4"


@pytest.mark.parametrize("accountant", [dpa.rdp.RdpAccountant, dpa.pld.PLDAccountant])
def test_accountants_that_do_not_know_the_event_refuse_it(accountant):
    with pytest.raises(dpa.UnsupportedEventError):
        accountant().compose(bounded_range(0.5, 2))


@pytest.mark.parametrize(
    "event",
    [
        bounded_range(-1.0),
        bounded_range(math.nan),
        bounded_range(math.inf),
        dpa.LaplaceDpEvent(math.nan),
        dpa.LaplaceDpEvent(0.0),
        dpa.PoissonSampledDpEvent(0.1, bounded_range(0.1)),
        composed([bounded_range(0.1), dpa.NonPrivateDpEvent()]),
    ],
    ids=str,
)
def test_ledger_refuses_draws_that_make_no_sense(event):
    book = PrivacyLedger(epsilon=1e6, delta=1e-5)
    with pytest.raises(PrivacyError):
        book.charge(event, **ZERO_OUT)
    assert book.entries == ()


@pytest.mark.parametrize("relation", RELATIONS)
def test_ledger_counts_draws_beside_fits(relation):
    book = PrivacyLedger(epsilon=1.0, delta=1e-5, neighboring_relation=relation)
    book.charge(bounded_range(0.05, 8), "directions", neighboring_relation=relation)
    book.charge(gaussian(12.0), "fit", neighboring_relation=relation)
    alone = epsilon_of(gaussian(12.0), 1e-5, neighboring_relation=relation)
    assert alone < book.epsilon() < alone + 0.4
    left = book.remaining()
    assert 0.2 < left < 1.0
    at = {"delta": 1e-5, "neighboring_relation": relation}
    last = gaussian(calibrate(gaussian, epsilon=left * (1 - 1e-9), **at))
    book.charge(last, neighboring_relation=relation)
    assert 0.95 < book.epsilon() <= 1.0
    assert "directions: 8 x (exponential mechanism, epsilon 0.05)" in book.details()


def test_a_guarantee_without_a_delta_says_so():
    guarantee = PrivacyGuarantee(
        event=bounded_range(0.125, 8),
        epsilon=1.0,
        delta=0.0,
        neighboring_relation="zero_out",
        unit="row",
        secure=True,
    )
    assert "(epsilon = 1)-differentially private per row" in str(guarantee)
    assert "delta" not in guarantee.details()
    book = PrivacyLedger(epsilon=1.0, delta=1e-5)
    book.charge(guarantee)
    assert book.epsilon() < 0.7  # eight draws, at the ledger's delta
