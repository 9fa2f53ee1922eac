"""Heads of persons whose targets are two classes, against optimisers and integrals."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from scipy.optimize import minimize

from dpsubspace._core.gradients.losses import BesideScores, StandardLogLoss
from dpsubspace._core.public.tasks import label_task_prior
from dpsubspace._core.rows.affine import Affine, AffineRows
from dpsubspace._core.rows.records import Records
from dpsubspace._core.solvers import logistic_heads
from dpsubspace._core.solvers.heads import Candidate, HeadPrior, ridge
from dpsubspace._core.solvers.logistic_heads import TwoClasses
from dpsubspace._core.statistics.persons import PersonRows

D = 3
LOSS = StandardLogLoss(0.3)
OUTCOME = TwoClasses(LOSS)


def persons_of(X, labels, index, loss=LOSS, weights=None):
    rows = AffineRows(X, Affine.identity(X.shape[1]), constant=False)
    targets = (np.asarray(labels, float) - loss.share) / loss.scale
    weights = np.linspace(-0.3, 0.4, X.shape[1]) if weights is None else weights
    records = Records.of_groups(np.asarray(index), int(np.max(index)) + 1, None)
    given = {"weights": weights, "constant": 0.1, "whitening": np.eye(X.shape[1])}
    return PersonRows(rows, targets, records, loss=loss, **given)


def some_persons(seed=0, sizes=(1, 2, 5, 9, 30)):
    rng = np.random.default_rng(seed)
    index = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(index), D))
    return X, (X[:, 0] + rng.logistic(size=len(index)) > 0).astype(float), index


ALONG = np.concatenate([[[0.5, 0.0]], [[0.0, 1.0], [0.0, 0.4], [0.0, -0.3]]])
PRIORS = {
    "none": Candidate("none", np.zeros((D + 1, 0))),
    "directions": Candidate("directions", ALONG),
    "local": Candidate("local", ALONG[:, :1], own=0.8),
}


def covariance_of(prior, chunk):
    """Covariance of intercept and weights; that of own weights is of rows of mean square 1."""
    found = prior.root @ prior.root.T
    if prior.own:
        square = float(chunk.about_own_mean[2][0]) if chunk.sizes[0] > 1 else 1.0
        found = found + np.diag([0.0, *[prior.own / square] * D])
    return found


def test_the_loss_is_that_of_labels_in_other_units():
    rng = np.random.default_rng(0)
    labels, scores = (rng.uniform(size=20) < 0.5).astype(float)[:, None], rng.normal(size=(20, 1))
    y = (labels - LOSS.share) / LOSS.scale
    odds = np.log(0.3 / 0.7) + scores / np.sqrt(0.3 * 0.7)
    chances = np.where(labels > 0, 1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(odds)))
    np.testing.assert_allclose(LOSS.value(y, scores), -np.log(chances[:, 0]))
    step = 1e-5
    slopes = (LOSS.value(y, scores + step) - LOSS.value(y, scores - step)) / (2 * step)
    np.testing.assert_allclose(LOSS.residual(y, scores)[:, 0], slopes, atol=1e-8)
    curves = (LOSS.residual(y, scores + step) - LOSS.residual(y, scores - step)) / (2 * step)
    np.testing.assert_allclose(LOSS.curvatures(scores), curves, atol=1e-8)
    assert (LOSS.curvatures(scores) <= LOSS.curvature).all()
    np.testing.assert_allclose(LOSS.residual(y, 0 * scores), -y)
    assert LOSS.curvatures(np.zeros(1))[0] == pytest.approx(1.0)
    known = np.concatenate([y, scores], axis=1)
    for name in ("value", "residual"):
        beside = getattr(BesideScores(LOSS), name)(known, 0.5 + 0 * scores)
        np.testing.assert_array_equal(beside, getattr(LOSS, name)(y, scores + 0.5))


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_a_head_is_the_mode_of_a_logistic_model(prior, monkeypatch):
    """Without shrinking, and with enough steps; so are density and volume."""
    monkeypatch.setattr(logistic_heads, "_STEPS", 500)
    monkeypatch.setattr(logistic_heads, "_UNSURE", 0.0)
    X, labels, index = some_persons()
    for chunk in persons_of(X, labels, index).chunks():
        root = np.linalg.cholesky(covariance_of(prior, chunk) + 1e-12 * np.eye(D + 1))
        rows = np.column_stack([np.ones(int(chunk.sizes[0])), chunk.rows[0, : int(chunk.sizes[0])]])
        y, shared = (part[0, : len(rows)] for part in (chunk.targets, chunk.shared))

        def objective(c, rows=rows, y=y, shared=shared, root=root):
            scores = shared + rows @ root @ c
            slope = (rows @ root).T @ LOSS.residual(y, scores)
            return LOSS.values(y, scores).sum() + c @ c / 2, slope + c

        best = minimize(objective, np.zeros(D + 1), jac=True, tol=1e-12)
        found = ridge(chunk, prior, OUTCOME)
        np.testing.assert_allclose(found.coef[0], root @ best.x, atol=2e-4)
        assert found.fit[0] == pytest.approx(2 * best.fun, abs=1e-6)
        least = logistic_heads._LEAST_CURVATURE / LOSS.scale**2
        curved = np.maximum(LOSS.curvatures(shared + rows @ root @ best.x), least)
        inside = np.eye(D + 1) + (rows @ root).T @ (curved[:, None] * (rows @ root))
        assert found.volume[0] == pytest.approx(np.linalg.slogdet(inside)[1], abs=1e-3)
        np.testing.assert_array_equal(found.stretch, 1.0)


def test_no_step_makes_the_loss_larger(monkeypatch):
    X, labels, index = some_persons(1)
    X, before = 20 * X, np.inf
    for steps in range(1, 8):
        monkeypatch.setattr(logistic_heads, "_STEPS", steps)
        chunks = persons_of(X, labels, index).chunks()
        found = [ridge(chunk, PRIORS["directions"], OUTCOME).fit for chunk in chunks]
        now = np.concatenate(found)
        assert (now <= before + 1e-9).all()
        before = now


def test_what_is_left_out_is_the_loss_without_the_row(monkeypatch):
    """Of exact refits, to first order: a fifth of the distance between a fit with and without.

    Second orders are about as large, beside first ones, as what a row moves its own log-odds by.
    Under a prior as narrow as this that is below 0.15 for rows of squared length 60, of which
    there is one with a chance of less than 1e-11.
    """
    monkeypatch.setattr(logistic_heads, "_STEPS", 500)
    monkeypatch.setattr(logistic_heads, "_SURE", 0.0)
    X, labels, index = some_persons(2, sizes=(12,))
    prior, persons = Candidate("narrow", 0.02 * ALONG), persons_of(X, labels, index)
    (chunk,) = persons.chunks()
    left = ridge(chunk, prior, OUTCOME).left_out[0]
    scores = chunk.shared[0] + chunk.scores(ridge(chunk, prior, OUTCOME).coef[0][:, None])[0, :, 0]
    inside = 2 * LOSS.values(chunk.targets[0], scores)
    exact = []
    for i in range(12):
        other = np.delete(np.arange(12), i)
        (some,) = persons_of(X[other], labels[other], index[other]).chunks()
        coef = ridge(some, prior, OUTCOME).coef[0]
        score = chunk.shared[0, i] + np.r_[1.0, X[i]] @ coef
        exact.append(2 * LOSS.values(chunk.targets[0, i], score))
    exact = np.array(exact)
    assert (np.sign(left) == np.sign(labels - 0.5)).all()
    assert (exact > inside).all()
    assert (np.abs(left**2 - exact) <= 0.2 * (exact - inside) + 1e-9).all()


def test_densities_are_near_integrals():
    """Laplace's approximation, of an intercept whose variance is not large."""
    prior = Candidate("intercept", np.r_[0.6, np.zeros(D)][:, None])
    X, labels, index = some_persons(3)
    for chunk in persons_of(X, labels, index).chunks():
        found = ridge(chunk, prior, OUTCOME)
        y, shared = (part[0, : int(chunk.sizes[0])] for part in (chunk.targets, chunk.shared))

        def density(c, y=y, shared=shared):
            return np.exp(-LOSS.values(y, shared + 0.6 * c).sum() - c * c / 2) / np.sqrt(2 * np.pi)

        exact = np.log(integrate.quad(density, -9, 9)[0])
        beside = np.ones(1)
        assert OUTCOME.log_density(found, chunk.sizes, beside)[0] == pytest.approx(exact, abs=0.03)


def test_a_row_alone_is_predicted_by_the_prior_alone():
    X, labels, index = some_persons(4, sizes=(1,))
    (chunk,) = persons_of(X, labels, index).chunks()
    left = ridge(chunk, PRIORS["directions"], OUTCOME).left_out[0, 0]
    variance = np.sum((np.r_[1.0, X[0]] @ ALONG) ** 2) / LOSS.scale**2
    odds = LOSS.log_odds(chunk.shared[0, 0]) / np.sqrt(1 + np.pi / 8 * variance)
    loss = np.log1p(np.exp(-odds if labels[0] else odds))
    assert left**2 == pytest.approx(2 * loss, rel=0.05)  # steps end before the mode


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e4, 1e300])
@pytest.mark.parametrize("labels", [np.zeros(9), np.ones(9), np.arange(9) % 2])
def test_no_rows_make_a_head_infinite(size, labels):
    rng = np.random.default_rng(0)
    X = np.sign(rng.normal(size=(9, D))) * size
    X[4:6] = 0.0
    persons = persons_of(X, labels, np.zeros(9, int), weights=np.zeros(D))
    prior = HeadPrior.of(np.eye(D)[:, :2], np.eye(3), 1.0, np.eye(D)[:, :1], outcome=OUTCOME)
    with np.errstate(all="ignore"):
        heads = prior.heads(persons)
        assert all(np.isfinite(part).all() for part in heads)
        assert all(np.isfinite(prior.losses(chunk)).all() for chunk in persons.chunks())


def test_what_a_person_gets_is_of_the_own_rows_bit_by_bit():
    X, labels, index = some_persons(5, sizes=(3, 3, 9, 9, 30))
    prior = HeadPrior.of(np.eye(D)[:, :2], np.eye(3), 1.0, outcome=OUTCOME)
    every = prior.heads(persons_of(X, labels, index))
    for j in range(5):
        mine = index == j
        alone = prior.heads(persons_of(X[mine], labels[mine], 0 * index[mine]))
        for part, own in zip(every, alone, strict=True):
            np.testing.assert_array_equal(part[j], own[0])


def test_who_does_alone_has_a_logistic_regression_of_the_own_rows():
    """Labels that the own rows tell, in units and at places that hide them from all shared ones."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, D))
    labels = (X @ [2.0, -1.0, 0.0] > 0).astype(float)
    persons = persons_of(1e-6 * X + 5, labels, np.zeros(200, int), weights=np.zeros(D))
    prior = HeadPrior.of(np.eye(D)[:, :0], 1e-3 * np.eye(1), 1.0, outcome=OUTCOME)
    heads = prior.heads(persons)
    assert heads.uses_own.all()
    scores = (1e-6 * X + 5) @ heads.own_coef[0] + heads.own_constant[0] + OUTCOME.origin
    assert ((scores > 0) == labels).mean() > 0.95


def test_the_spread_behind_residuals_undoes_what_probabilities_take(monkeypatch):
    """Normal scores of variance v show ``v / (1 + c v)``, in the approximation of MacKay."""
    c = np.pi / 8 / LOSS.scale**2
    for spread, shared in ((0.1, 0.0), (0.5, 0.2), (1.0, 1.0)):
        seen = spread / (1 + c * (spread + shared))
        noise, factor = OUTCOME.behind(seen, shared, 0.3)
        assert noise == 1.0 and factor * seen == pytest.approx(spread)
    assert OUTCOME.behind(1e9, 0.0, 1.0)[1] == pytest.approx(1 / logistic_heads._LEAST_MOVED)


def test_public_tasks_tell_what_logistic_models_are_like():
    """A hundred tasks of 400 rows, one of one class: mean and covariance near the true ones."""
    rng = np.random.default_rng(0)
    mean, sets, labels = np.array([0.5, 1.0, 0.0]), [], []
    for _ in range(100):
        X = rng.normal(size=(400, 2))
        own = mean + np.array([0.0, 0.0, 1.0]) * rng.normal()
        sets.append(X)
        labels.append((own[0] + X @ own[1:] + rng.logistic(size=400) > 0).astype(float))
    labels[0][:] = 1.0
    found = label_task_prior(sets, labels, Affine.identity(2), intercept=True)
    # Errors of a mean and of a variance of 100 are about 0.1 and 0.14: these are 6 of them.
    np.testing.assert_allclose(found.mean, mean, atol=0.6)
    assert 0.2 < found.covariance[2, 2] < 2.0 and found.covariance[1, 1] < 0.5
    flat = label_task_prior(sets, labels, Affine.identity(2), intercept=False)
    assert flat.mean[0] == 0.0 and not flat.covariance[0].any()


def test_a_prior_is_moved_by_its_mean():
    X, labels, index = some_persons(6)
    centre = np.array([0.2, 0.1, 0.0, -0.1])
    persons = persons_of(X, labels, index)
    shared = persons.sharing(persons.weights + centre[1:], persons.constant + centre[0])
    prior = PRIORS["directions"]
    for one, other in zip(persons.chunks(), shared.chunks(), strict=True):
        moved, about = (
            ridge(one, replace(prior, centre=centre), OUTCOME),
            ridge(other, prior, OUTCOME),
        )
        np.testing.assert_allclose(moved.left_out, about.left_out, atol=1e-9)
        stretch = np.asarray(moved.stretch)[:, None]
        np.testing.assert_allclose(moved.coef - about.coef, stretch * centre, atol=1e-9)
