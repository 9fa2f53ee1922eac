"""GEPClassifier and GEPRegressor: what public rows are used for, and what they never change."""

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from helpers import (
    GEP,
    INFORMED,
    PLAIN,
    RELATIONS,
    assert_refused,
    assert_within_bounds,
    blobs,
    epsilon_of,
    examples,
    formed,
    mapped,
    move,
    multipliers,
    oracle,
    pairs_first,
    public_rows,
    releases,
    some_releases,
    with_plan,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, Ridge

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, DPSGDRegressor, GEPClassifier
from dpsubspace._core.accounting.budget import Sizes
from dpsubspace._core.accounting.events import sampled_gaussian
from dpsubspace._core.fits.bounds import OneMean
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.ground import auto
from dpsubspace._core.plans import guide
from dpsubspace._core.plans.guide import PublicGuide, trusts
from dpsubspace._core.plans.linear import LinearFit
from dpsubspace._core.public.anchors import LABELS, Labelled, held_out, mean_gradient, share_inside
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import NullRecords, RowMap, Shift
from dpsubspace._core.solvers.descent import MirrorStep
from dpsubspace._core.statistics.counts import noisy_shares
from dpsubspace.exceptions import PublicDataWarning
from dpsubspace.linear_model import GEPRegressor, GradientDirections

uninformed = pytest.mark.filterwarnings("ignore:GEP:dpsubspace.exceptions.PublicDataWarning")
noisy = pytest.mark.filterwarnings("ignore:the (noise of|released):dpsubspace.PrivacyWarning")
P, Q = public_rows(5)


def gradients(**settings):
    """Parameter that asks for directions of gradients."""
    return {"directions": GradientDirections(**settings)}


GRADIENTS = gradients()


def apart(n, noise=1.0):
    """Rows of three classes around 4 times the unit vectors: 1 in 200 is nearer to another one."""
    y = np.arange(n) % 3
    return 4 * np.eye(5)[y] + noise * np.random.default_rng((n, 1)).normal(size=(n, 5)), y


def far_apart(n):
    """The same with next to no noise."""
    return apart(n, noise=0.01)


def wide(n, d=200):
    """Rows of three classes that vary along few of many columns."""
    y = np.arange(n) % 3
    scale = 1 / np.arange(1, d + 1)
    return (np.random.default_rng((n, 2)).normal(size=(n, d)) + 2 * np.eye(d)[y]) * scale, y


# Without public rows ------------------------------------------------------------------------

TWINS = [
    (GEPClassifier, partial(DPSGDFClassifier, preprocessing="practical"), {}),
    (GEPClassifier, DPSGDClassifier, {"centre": None}),
    (GEPRegressor, DPSGDRegressor, {"centre": None}),
]
SETTINGS = [
    {},
    {"batch_size": 100, "neighboring_relation": "replace_one"},
    {"fit_intercept": False, "n_iter": 30},
    {"epsilon": math.inf, "alpha": 1e-2},
]


def assert_same_model(one, other):
    for name in ("coef_", "intercept_", "privacy_", "learning_rate_", "n_iter_", "clip_norm_"):
        np.testing.assert_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert hasattr(one, "mean_") == hasattr(other, "mean_")
    if hasattr(one, "mean_"):
        np.testing.assert_array_equal(one.mean_, other.mean_)


@uninformed
@pytest.mark.parametrize(
    ("twins", "settings", "ours"),
    pairs_first(TWINS, SETTINGS, [{}, GRADIENTS, {"n_components": 3}]),
    ids=str,
)
def test_without_public_rows_it_is_dpsgd_bit_for_bit(twins, settings, ours):
    Estimator, Twin, changes = twins
    X, y = blobs(n=400)
    settings = {"epsilon": 5.0, "random_state": 0, **settings}
    model = with_plan(Estimator(**settings, **ours), **changes)(X, y)
    assert_same_model(model, Twin(**settings).fit(X, y))


@pytest.mark.parametrize("none", [{"n_components": 0}, gradients(n_components=0)], ids=str)
@pytest.mark.parametrize(("Estimator", "Twin", "changes"), TWINS[1:])
def test_no_components_are_dpsgd_bit_for_bit(monkeypatch, Estimator, Twin, changes, none):
    """But for the intercept, of which nothing is released where there are public rows."""
    monkeypatch.setattr(LinearFit, "_shifts", lambda fit, sizes: False)
    X, y = blobs(n=400)
    settings = {"epsilon": 5.0, "random_state": 0}
    if Twin is DPSGDRegressor:  # bounds would be those of public rows
        settings |= {"data_norm": 8.0, "target_bounds": (0, 2)}
    model = with_plan(Estimator(**none, **settings), **changes)(X, y, X_public=P)
    twin = Twin(**settings).fit(X, y)
    np.testing.assert_array_equal(model.coef_, twin.coef_)
    assert model.privacy_.event == twin.privacy_.event


# Without noise ------------------------------------------------------------------------------

WHOLE = [{}, GRADIENTS, gradients(n_components=4)]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("options", WHOLE, ids=str)
def test_infinite_epsilon_is_logistic_regression(options, n_classes):
    X, y = blobs(n=300, n_classes=n_classes)
    model = GEPClassifier(epsilon=math.inf, alpha=1e-2, random_state=0, **options)
    model.fit(X, y, X_public=P)
    rows = mapped(X, norm="l2", bias=0.5)
    rows = rows - rows.mean(axis=0)
    # The objective is convex: where its slope is 0, it is least. Probabilities say less of that,
    # since it hardly depends on the weight of the bias entry, which varies little and is free.
    residuals = (model.predict_proba(X) - np.eye(n_classes)[y])[:, -len(model.coef_) :]
    slope = rows.T @ residuals / len(rows)
    slope[:-1] += 1e-2 * model.coef_.T
    # L-BFGS ends at a largest entry of 1e-6 for rows of mean square 1, and these have less. One
    # entry is a constant of 0.15.
    np.testing.assert_allclose(slope, 0, atol=1.01e-6)
    np.testing.assert_allclose(residuals.mean(axis=0), 0, atol=1e-5)


@pytest.mark.parametrize("options", WHOLE, ids=str)
def test_infinite_epsilon_is_ridge_regression(options):
    X, y = blobs(n=300)
    norm = float(np.linalg.norm(X, axis=1).max())
    options = {"alpha": 1e-2, "data_norm": norm, "target_bounds": (0, 2), **options}
    model = GEPRegressor(epsilon=math.inf, random_state=0, **options).fit(X, y, X_public=P)
    # Centred rows without their bias entry, which is not penalised, and targets on [-1, 1].
    reference = Ridge(alpha=300 * 1e-2).fit(X / norm, y - 1.0)
    np.testing.assert_allclose(model.predict(X), 1 + reference.predict(X / norm), atol=2e-4)


@pytest.mark.parametrize("Estimator", GEP)
def test_without_residuals_weights_stay_in_the_span_of_public_directions(Estimator):
    X, y = blobs(n=300)
    options = {"fit_intercept": False, "n_iter": 40, "epsilon": math.inf, "random_state": 0}
    if Estimator is GEPRegressor:
        options |= {"data_norm": 8.0, "target_bounds": (0, 2)}
    model = Estimator(n_components=2, **options)
    features = with_plan(model, centre=None)(X, y, X_public=P)
    rows = (
        mapped(P, norm="l2") if is_classifier(features) else mapped(P, norm="ball", data_norm=8.0)
    )
    V = np.linalg.svd(rows)[2][:2]
    coef = np.atleast_2d(features.coef_)
    # Of a size of about 0.1 in two directions: both are below 1e-6 in 1 of 1e10 tables.
    assert np.abs(coef).max() > 1e-6
    np.testing.assert_allclose(coef @ V.T @ V, coef, atol=1e-9)
    model = Estimator(**gradients(n_components=2, residual=False), **options)
    coef = np.atleast_2d(with_plan(model, centre=None)(X, y, X_public=P).coef_)
    assert np.abs(coef).max() > 1e-6
    np.testing.assert_allclose(coef[:, -1], 0, atol=1e-9)  # of which public rows say nothing


# What is released ---------------------------------------------------------------------------


@noisy
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("rows", [{}, {"row_norm": 4.0}, {"fit_intercept": False}], ids=str)
@pytest.mark.parametrize("directions", ["features", "gradients"])
def test_public_rows_are_mapped_and_shifted_as_private_ones(
    monkeypatch, directions, rows, centred, dtype
):
    """The first step's sums, against gradients and directions that are formed by hand."""
    X, y = blobs(n=90)
    X, k = X.astype(dtype), 2
    options = {"n_iter": 1, "clip_norm": 0.05, "init": "zero", "random_state": 0, **rows}
    ours = {"n_components": k}
    if directions == "gradients":
        ours = gradients(n_components=k, power_iterations=None, residual_norm=0.02, labels="public")
    model = GEPClassifier(**options, **ours)
    fit = with_plan(model) if centred else with_plan(model, centre=None)
    with releases(monkeypatch) as seen:
        fit(X, y, X_public=P.astype(dtype), y_public=Q)
    shift = None
    if centred:
        bias = auto.CENTRED_BIAS * 0.05 if model.fit_intercept else None
        shift = Shift(model.mean_, bias)
    private, public = (
        formed(Features(part, model._fitted_row_map).shifted(shift))
        for part in (X, P.astype(dtype))
    )
    residuals, labelled = (1 / 3 - np.eye(3)[labels] for labels in (y, Q))
    outer = lambda A, B: np.einsum("ij,ik->ijk", A, B).reshape(len(A), -1)  # noqa: E731
    if directions == "features":
        # Directions are those of public rows about their own mean.
        own = public - public.mean(axis=0) if centred else public
        if shift is not None and shift.constant is not None:
            own[:, -1] = shift.constant
        B = np.kron(np.linalg.svd(own)[2][:k], np.eye(3))
    else:
        B = np.linalg.svd(outer(public, labelled))[2][:k]
    expected = oracle(outer(private, residuals), B, 0.05, 0.02)
    sums = [total.value.reshape(-1) for total, *_ in seen[int(centred) :]]
    scale = max(np.abs(part).max() for part in expected)
    # In float32 what a shift leaves is taken to be longer, and clipped more.
    tolerance = scale * (1e-9 if dtype == np.float64 else 1e-1 if centred else 1e-3)
    # Directions have any sign; sums that they are lifted to have one.
    assert np.linalg.norm(sums[0]) == pytest.approx(np.linalg.norm(expected[0]), abs=9 * tolerance)
    assert len(sums) == (1 if directions == "features" else 2)
    if directions == "gradients":
        np.testing.assert_allclose(sums[1], expected[1], atol=tolerance)


@noisy
def test_the_mean_of_public_rows_costs_nothing(monkeypatch):
    X, y = blobs(n=400)
    for Estimator, row_map in (
        (GEPClassifier, RowMap(norm="l2", bias=0.5)),
        (GEPRegressor, RowMap(norm="ball", data_norm=8.0, bias=4.0)),
    ):
        options = {"data_norm": 8.0, "target_bounds": (0, 2)} if Estimator is GEPRegressor else {}
        with releases(monkeypatch) as seen:
            model = Estimator(n_iter=5, n_components=2, epsilon=0.1, random_state=0, **options)
            with_plan(model, centre=OneMean(public_share=1e-9))(X, y, X_public=P)
        # One release is that of a mean, so noisy that nothing of it is left. Two look at where in
        # their range targets lie, and one at columns.
        looks = 3 * (Estimator is GEPRegressor)
        assert len(seen) == len(multipliers(model.privacy_.event)) == looks + 1 + 5
        expected = formed(Features(P, row_map)).mean(axis=0)
        np.testing.assert_allclose(model.mean_, expected, atol=1e-5)


# What it costs ------------------------------------------------------------------------------

# Table of the data sets of Yu et al. (2021) with batches of 1000: rows, epochs, delta, epsilon,
# sigma by the rule of their code, the epsilon that it has, and the sigma that has `epsilon`.
PUBLISHED = [
    ("MNIST", 60_000, 50, 1e-5, 2, 2.886, 1.92, 2.795),
    ("MNIST", 60_000, 100, 1e-5, 5, 1.887, 5.11, 1.913),
    ("MNIST", 60_000, 200, 1e-5, 8, 1.794, 8.28, 1.833),
    ("SVHN", 604_388, 5, 1e-6, 2, 0.798, 4.19, 0.969),
    ("SVHN", 604_388, 10, 1e-6, 5, 0.620, 12.6, 0.794),
    ("SVHN", 604_388, 20, 1e-6, 8, 0.578, 21.4, 0.740),
    ("CIFAR-10", 50_000, 50, 1e-5, 2, 3.146, 1.91, 3.031),
    ("CIFAR-10", 50_000, 100, 1e-5, 5, 2.044, 5.03, 2.054),
    ("CIFAR-10", 50_000, 200, 1e-5, 8, 1.942, 8.15, 1.965),
]


COLUMNS = ("data", "n", "epochs", "delta", "epsilon", "used", "true", "right")


@pytest.mark.parametrize(COLUMNS, PUBLISHED)
def test_the_two_parts_of_a_step_cost_what_one_gaussian_does(
    data, n, epochs, delta, epsilon, used, true, right
):
    """Of sigma for each part, that of both is sigma / sqrt(2), inside of the sampling."""
    steps = round(epochs * n / 1000)

    def cost(sigma):
        event = sampled_gaussian(sigma / math.sqrt(2), 1000 / n, steps)
        return epsilon_of(event, delta, neighboring_relation="zero_out")

    assert cost(used) == pytest.approx(true, rel=0.01)
    assert cost(right) == pytest.approx(epsilon, rel=0.01)


@pytest.mark.parametrize("row", PUBLISHED[::3], ids=lambda row: row[0])
def test_a_model_with_these_settings_is_calibrated_to_the_right_sigma(row):
    """One row for each data set: each takes a second."""
    _, n, epochs, delta, epsilon, _, _, right = row
    options = {"n_iter": round(epochs * n / 1000), "batch_size": 1000}
    plan = GEPClassifier(epsilon=epsilon, delta=delta, **options)._plan()
    event = replace(plan, centre=None, constant=False).budget(Sizes(n)).event
    sigma = math.sqrt(2) * event.event.event.noise_multiplier
    assert right * 0.999 < sigma < right * 1.01


@noisy
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("share", [0.3, 0.5])
def test_releases_have_the_multipliers_of_the_event(monkeypatch, share, residual, relation):
    X, y = blobs(n=400)
    options = gradients(embedding_share=share, residual=residual)
    model = GEPClassifier(n_iter=4, random_state=0, neighboring_relation=relation, **options)
    with releases(monkeypatch) as seen:
        model.fit(X, y, X_public=P)
    mean, *steps = multipliers(model.privacy_.event)
    used = [multiplier for *_, multiplier in seen]
    shares = [share, 1 - share] if residual else [1.0]
    assert used == pytest.approx([mean, *(m / math.sqrt(s) for m in steps for s in shares)])


# Warm starts and mirror descent -------------------------------------------------------------


@noisy
@pytest.mark.parametrize("options", [{}, GRADIENTS, {"mirror": True}], ids=str)
def test_a_public_start_survives_noise_that_hides_everything(options):
    (X, y), (rows, labels) = apart(300), apart(60)
    public = {"X_public": rows, "y_public": labels}
    options = {"epsilon": 0.01, "init": "public", **options}
    start = GEPClassifier(epsilon=0.01, init="public", n_iter=1, learning_rate=1e-9, random_state=0)
    near = start.fit(X, y, **public).score(X, y)
    scores = [
        GEPClassifier(random_state=seed, **options).fit(X, y, **public).score(X, y)
        for seed in range(5)
    ]
    assert near > 0.7 and np.mean(scores) > near - 0.15


@noisy
def test_a_start_from_labelled_rows_is_their_fit_and_can_be_refused():
    """Without a step to go, weights are those of a regression on the public rows."""
    X, y = blobs(n=300)
    options = {"n_iter": 1, "learning_rate": 1e-12, "random_state": 0}
    models = {
        init: with_plan(GEPClassifier(init=init, **options), centre=None)(
            X, y, X_public=P, y_public=Q
        )
        for init in ("auto", "public", "zero")
    }
    rows = mapped(P, norm="l2", bias=0.5)
    reference = LogisticRegression(
        C=auto.PUBLIC_FIT, fit_intercept=False, solver="newton-cholesky"
    ).fit(rows, Q)
    expected = reference.predict_proba(rows)
    np.testing.assert_array_equal(models["auto"].coef_, models["public"].coef_)
    np.testing.assert_allclose(models["public"].predict_proba(P), expected, atol=2e-3)
    np.testing.assert_allclose(models["zero"].coef_, 0, atol=1e-6)


@pytest.mark.parametrize("n_public", [1, 60, 10_000])
def test_what_remains_from_a_public_start_is_a_share(n_public):
    energies = np.geomspace(1, 1e-9, 20)
    ways = [
        auto.remaining(
            energies, 1e-3, n_public=n_public, n_outputs=3, n_samples=1000, multiplier=multiplier
        )
        for multiplier in (0.0, 1e-3, 1.0, 1e3, 1e9)
    ]
    assert ways[0] == 1 and all(0 < way <= 1 for way in ways)
    assert ways == sorted(ways, reverse=True)


@noisy
@pytest.mark.parametrize("Estimator", GEP)
def test_a_start_from_wrong_labels_is_found_out(Estimator):
    """A fit that private rows do not bear out is not used, and one that they do is."""
    (X, y), (rows, right) = apart(3000), apart(60)
    wrong, options = (right + 1) % 3, {}
    if Estimator is GEPRegressor:
        y, right = ((part[:, 0] - part[:, 1]) / 5 + 1 for part in (X, rows))
        wrong, options = 2 - right, {"data_norm": 8.0, "target_bounds": (-1, 3)}
    for labels, used in ((right, True), (wrong, False)):
        model = Estimator(random_state=0, n_iter=1, learning_rate=1e-12, **options)
        model.fit(X, y, X_public=rows, y_public=labels)
        # Of 3000 rows, the start gets nearly all right or hardly one. The limit is at two thirds or
        # three quarters, 700 rows from either, and the noise of their number has a deviation of 30.
        assert (np.abs(model.coef_).max() > 1e-3) == used


def test_the_more_noise_a_check_has_the_less_it_says_against_public_labels():
    X, y = apart(90)
    labelled = Labelled(LogLoss(), X, y, 3)
    expected = held_out(labelled, LABELS.right(y))
    middle = (expected + LABELS.chance(y)) / 2
    assert expected > 0.9 and trusts(LABELS, labelled, middle + 1e-9, 0.0)
    assert not trusts(LABELS, labelled, middle - 0.1, 0.01)
    assert trusts(LABELS, labelled, middle - 0.1, 0.3)
    assert not trusts(LABELS, Labelled(LogLoss(), X, np.roll(y, 1), 3), 0.0, 0.1)
    guessed = np.random.default_rng(0).permutation(y)
    assert not trusts(LABELS, Labelled(LogLoss(), X, guessed, 3), 1.0, 10.0)


@dataclass(frozen=True)
class KnownFit:
    """A fit to labels of public rows that gets a known share of those held out right."""

    targets: np.ndarray
    share: float

    def minimum(self, rows):
        return None

    def right(self, found, rows, is_right):
        return self.share * len(rows)


@pytest.mark.parametrize(
    ("ones", "expected", "right", "noise", "used"),
    [
        (48, 0.79, 0.80, 0.20, True),  # one deviation beyond a constant, and borne out
        (48, 0.79, 0.80, 0.02, True),
        (48, 0.79, 0.20, 0.20, False),  # labels the other way round
        (48, 0.79, 0.70, 0.02, False),  # a constant is better
        (100, 0.50, 0.60, 0.20, False),  # labels by chance, whatever little is said
        (0, 1.00, 0.80, 0.20, False),  # one class
        (48, 0.79, 9.00, 1e-3, True),  # noise can bring answers that are no shares
        (48, 0.79, -9.0, 1e-3, False),
    ],
)
def test_public_rows_tell_how_likely_their_labels_are_of_use(ones, expected, right, noise, used):
    known = KnownFit(np.repeat([0, 1], [200 - ones, ones]), expected)
    assert trusts(LABELS, known, right, noise) == used


@noisy
@pytest.mark.parametrize("seed", range(3))
def test_labels_that_public_rows_do_not_tell_are_no_start(seed):
    """A fit to them is right as often as chance, which private rows bear out."""
    X, y = blobs(n=300)
    # Each row with each label: a fit to most of them is less often right about the others than
    # chance is, since it has seen more of the labels that these do not have.
    rows, labels = np.repeat(apart(200)[0], 3, axis=0), np.tile(np.arange(3), 200)
    model = GEPClassifier(epsilon=0.5, random_state=seed).fit(X, y, X_public=rows, y_public=labels)
    assert model.init_ == "zero"


@noisy
def test_public_rows_that_miss_the_private_ones_are_found_out(rng):
    """Public rows in a plane, private ones in all directions: the whole space is trained."""
    flat = np.zeros((200, 12))
    flat[:, :2] = rng.normal(size=(200, 2)) + 2
    wide = rng.normal(size=(4000, 12))
    y = (wide[:, 5] > 0).astype(int)
    options = {"epsilon": 0.5, "random_state": 0}
    checked, trusted = (
        with_plan(GEPClassifier(n_components=count, **options), centre=None)(wide, y, X_public=flat)
        for count in ("auto", 2)
    )
    assert checked.score(wide, y) > 0.8 > 0.65 > trusted.score(wide, y)


@noisy
@pytest.mark.parametrize("unrelated", ["shuffled", "noise"])
def test_columns_in_another_order_and_noise_are_found_out(unrelated, rng):
    (X, y), (rows, _) = wide(4000), wide(300)
    bad = {"shuffled": rows[:, ::-1], "noise": rng.normal(size=rows.shape)}[unrelated]
    counts = [
        GEPClassifier(epsilon=0.5, n_iter=1, random_state=0).fit(X, y, X_public=part).n_components_
        for part in (rows, bad)
    ]
    # Directions need 0.84 of the squares of rows, and have 0.98 of them or less than 0.3. What is
    # released has a deviation of 0.008.
    assert 40 < counts[0] < 50 and counts[1] is None


@pytest.mark.parametrize("n_outputs", [1, 20, 100])
def test_more_rows_and_fewer_classes_have_more_directions(n_outputs):
    reach = [0.0, 1.0, 1e2, 1e4, 1e6, 1e300, math.inf]
    options = {"n_public": 10**6, "width": 10**7}
    counts = [auto.n_directions(each, n_outputs, **options) for each in reach]
    assert counts[:2] == [5, 5] and counts[-2:] == [0, 0]
    assert counts[:-2] == sorted(counts[:-2]) and counts[3] == (200 if n_outputs <= 20 else 68)
    # Few public rows, and few columns, have none.
    found = {
        sizes: auto.n_directions(100.0, 1, n_public=sizes[0], width=sizes[1])
        for sizes in ((20, 80), (14, 80), (13, 80), (20, 79))
    }
    assert list(found.values()) == [20, 20, 0, 0]


@pytest.mark.parametrize("shifted", [False, True])
def test_a_share_on_directions_is_what_it_is_by_hand(rng, shifted):
    X, y = blobs(n=40)
    X[3] = 0.0
    features = Features(X, RowMap(norm="l2"))
    if shifted:
        features = features.shifted(Shift(rng.normal(size=5) / 9, None))
    V, rows = np.linalg.qr(rng.normal(size=(5, 2)))[0].T, formed(features)
    whole = np.maximum((rows**2).sum(axis=1), 1e-300)
    source = LinearSource(LogLoss(), features, y).with_public(V)
    found = share_inside(source, 0.5)
    np.testing.assert_allclose(found, ((rows @ V.T) ** 2).sum(axis=1) / whole / 0.5, atol=1e-9)
    assert (found[3] > 0) == shifted  # a row of zeros has no square


@noisy
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("n", "rows_each"), [(1600, 1), (1600, 4), (200, 1)])
def test_the_share_on_directions_moves_within_its_bound(monkeypatch, relation, n, rows_each):
    """All rows of one person, from all on the directions to null or to nothing on them.

    Few persons need less than half of the squares: shares are cut to the range that is charged.
    """
    (X, y), (rows, _) = wide(n), wide(300)
    person = np.arange(len(X)) // rows_each
    X[person == 0] = 1e3 * np.eye(200)[0]  # as strong as it gets on the directions
    other, present = X.copy(), None
    if relation == "zero_out":
        present = person > 0
    else:
        other[person == 0] = 1e3 * np.eye(200)[-1]
    model, tops = GEPClassifier(n_iter=2, random_state=0, neighboring_relation=relation), []

    def share(source, most):
        tops.append(most)
        return share_inside(source, most)

    monkeypatch.setattr(guide, "share_inside", share)
    with releases(monkeypatch) as first:
        model.fit(X, y, groups=person, X_public=rows)
    kept = model.n_components_
    assert 5 <= kept < 50 and (n > 200 or tops[0] < 0.8)
    with releases(monkeypatch, outputs=first) as second:
        groups = person if present is None else NullRecords(person, present)
        model.fit(other, y, groups=groups, X_public=rows)
    assert [len(one.value.reshape(-1)) for one, *_ in first[:2]] == [201, 1]
    assert_within_bounds(first, second, relation)
    assert model.n_components_ == kept and tops[0] == tops[1]
    assert move(first[1][0], second[1][0]) > 0.5
    assert len(first) == len(multipliers(model.privacy_.event))


def test_checks_tell_what_is_released_and_nothing_else(monkeypatch, rng):
    with releases(monkeypatch) as seen:
        found = noisy_shares(rng.random((5, 2)), some_releases(3.0, name="checks"))
    np.testing.assert_array_equal(found, seen[0][1] / 5)


@given(
    values=hnp.arrays(np.float64, (5, 2), elements=st.floats(allow_nan=True, allow_infinity=True)),
    other=hnp.arrays(np.float64, 2, elements=st.floats(allow_nan=True, allow_infinity=True)),
)
@examples(60)
def test_checks_move_within_their_bound(values, other):
    changed = values.copy()
    changed[0] = other
    here, there, without = (
        noisy_shares(rows, some_releases(0.0, present=present), "it") * 5
        for rows, present in ((values, None), (changed, None), (values, np.arange(5) > 0))
    )
    for neighbour in (there, without):
        assert np.linalg.norm(here - neighbour) <= math.sqrt(2) * (1 + 1e-12)


@noisy
def test_bounds_of_a_regressor_come_from_public_rows():
    X, y = blobs(n=400)
    model = GEPRegressor(random_state=0).fit(X, y, X_public=P, y_public=Q)
    assert model.data_norm_ == pytest.approx(np.linalg.norm(P, axis=1).max())
    np.testing.assert_allclose(model.target_bounds_, [[-0.2], [2.2]], atol=1e-6)
    assert len(multipliers(model.privacy_.event)) == 2 + 100  # a mean and the checks
    unlabelled = GEPRegressor(random_state=0).fit(X, y, X_public=P)
    assert len(multipliers(unlabelled.privacy_.event)) == 10 + 100  # and the targets' range


@noisy
def test_what_auto_stood_for_is_said():
    # Two directions tell classes apart, and all others are empty. Of 4000 rows the start gets all
    # right, 1300 more than the limit: the noise has a deviation of 180.
    (X, y), (rows, labels) = (
        (np.pad(rows, ((0, 0), (0, 115))), y) for rows, y in map(far_apart, (4000, 60))
    )
    public = {"X_public": rows, "y_public": labels}
    model = GEPClassifier(epsilon=0.1, n_iter=5, random_state=0).fit(X, y, **public)
    # All of a row is on directions of public rows, and half of it is too little. Noise has a
    # deviation of 0.06, and is that much with a chance of 1e-15.
    assert model.init_ == "public" and 5 <= model.n_components_ <= 7
    model = GEPClassifier(epsilon=50.0, random_state=0).fit(X, y, X_public=rows)
    assert model.init_ == "zero" and model.n_components_ is None


class Constant:
    """A step of which the outcome is known."""

    budget_shares = (1.0,)

    def begin(self, params, t):
        return t

    def sums(self, state, grads):
        return (state, grads)

    def combine(self, state, noisy):
        return np.full(3, 8.0)


def test_a_mirror_step_turns_from_private_to_public_gradients():
    options = {"public_gradient": lambda params: params, "batch_size": 50.0, "n_iter": 90}
    step, params = MirrorStep(step=Constant(), **options), np.array([1.0, 2.0, 3.0])
    for t in (0, 30, 60, 89):
        state, weight = step.begin(params, t), math.cos(math.pi * t / 180)
        assert step.sums(state, "grads") == (t, "grads")  # public gradients reach no release
        out = step.combine(state, None)
        np.testing.assert_allclose(out, weight * 8.0 + (1 - weight) * 50 * params)


def test_the_public_gradient_is_the_mean_over_all_chunks(rng):
    X, y = blobs(n=300)
    weights = rng.normal(size=(5, 3))
    source = LinearSource(LogLoss(), Features(X, PLAIN, 128), y)
    assert len(source.chunks(None)) == 3
    expected = X.T @ LogLoss().residual(y, X @ weights) / 300
    np.testing.assert_allclose(mean_gradient(source, weights), expected)


@noisy
def test_mirror_descent_ends_on_public_gradients(monkeypatch):
    """Where private labels are wrong, and those of public rows are believed: it unlearns them."""
    monkeypatch.setattr(guide, "trusts", lambda *given: True)
    (X, y), (rows, labels) = apart(300), apart(60)
    scores = {
        mirror: GEPClassifier(epsilon=1e3, init="zero", mirror=mirror, n_iter=50, random_state=0)
        .fit(X, (y + 1) % 3, X_public=rows, y_public=labels)
        .score(X, y)
        for mirror in (False, True)
    }
    # Of 16 tables, all had 0.00, and 0.95 with a deviation of 0.05.
    assert scores[False] < 0.1 and scores[True] > 0.6


@noisy
@pytest.mark.parametrize("init", ["auto", "zero", "public"])
def test_mirror_descent_does_not_mix_in_labels_that_are_found_out(init, monkeypatch):
    """Private rows bear out the right labels, and neither wrong ones nor those of one class."""
    mixed = []
    step = PublicGuide.step

    def noted(guide, problem, *given):
        mixed.append((problem.mirrored, problem.init))
        return step(guide, problem, *given)

    monkeypatch.setattr(PublicGuide, "step", noted)
    (X, y), (rows, right) = apart(3000), apart(60)
    model = GEPClassifier(init=init, mirror=True, n_iter=2, random_state=0)
    for labels in (right, (right + 1) % 3, np.zeros_like(right)):
        model.fit(X, y, X_public=rows, y_public=labels)
    # As in the test of starts, limits are more than 20 deviations of the noise away.
    assert [used for used, _ in mixed] == [True, False, False]
    asked = {"auto": ["public", "zero", "zero"]}.get(init, [init] * 3)
    assert [start for _, start in mixed] == asked


def test_the_check_of_mirror_descent_is_charged():
    X, y = blobs(n=300)
    models = {
        mirror: GEPClassifier(n_components=2, init="zero", mirror=mirror, n_iter=3, random_state=0)
        for mirror in (False, True)
    }
    for mirror, model in models.items():
        model.fit(X, y, X_public=P, y_public=Q)
        # A mean and three steps, and the check.
        assert len(multipliers(model.privacy_.event)) == 4 + mirror
        assert model.privacy_.epsilon <= 1.0


# Bad input ----------------------------------------------------------------------------------

BAD_PUBLIC = [
    ({"X_public": (P[:, :3],)}, r"`X_public\[0\]`.*3 features.*5"),
    ({"X_public": P[:, :3]}, r"`X_public`: X has 3 features"),
    ({"X_public": (P, P[:0])}, r"`X_public\[1\]`.*0 sample"),
    ({"X_public": ()}, "`X_public` is an empty tuple: pass None"),
    ({"X_public": (np.where(P > 1, np.nan, P),)}, r"`X_public\[0\]`.*NaN"),
    ({"X_public": (np.where(P > 1, np.inf, P),)}, r"`X_public\[0\]`.*infinity"),
    ({"X_public": P[0]}, "`X_public`: Expected 2D"),
    ({"X_public": [["a"] * 5]}, "`X_public`: "),
    ({"y_public": Q}, "`y_public` was given without `X_public`: pass the rows"),
    ({"X_public": (P,), "y_public": Q}, "`y_public` must be a tuple of 1 arrays"),
    ({"X_public": P, "y_public": (Q,)}, "`y_public` is a tuple and `X_public` is not"),
    ({"X_public": (P, P), "y_public": (Q,)}, "`y_public` must be a tuple of 2 arrays"),
    ({"X_public": P, "y_public": Q[:9]}, "`y_public` has 9 targets for 60 public rows"),
    ({"X_public": (P, P), "y_public": (Q, Q[:9])}, r"`y_public\[1\]` has 9 targets for 60"),
]
BAD_LABELS = [
    (GEPClassifier, {"X_public": P, "y_public": Q + 1}, r"`y_public`.*\[.*3.*\].*`classes`"),
    (GEPClassifier, {"X_public": P, "y_public": Q.astype(str)}, "`y_public` has labels that"),
    (
        GEPClassifier,
        {"X_public": P, "y_public": Q.astype(str).astype(object)},
        "`y_public` has labels that",
    ),
    (
        GEPRegressor,
        {"X_public": P, "y_public": np.eye(60)[:, :2]},
        "2 targets a row, but `y` has 1",
    ),
    (GEPRegressor, {"X_public": P, "y_public": Q * np.nan}, "`y_public`.*NaN"),
    (GEPRegressor, {"X_public": P, "y_public": ["a"] * 60}, "`y_public`: "),
]
LABELLED = {"X_public": P, "y_public": Q}
BAD_OPTIONS = [
    ({"directions": "rows"}, "`directions` must be 'auto', 'features' or an instance .*got 'rows'"),
    ({"directions": GradientDirections}, r"an instance such as GradientDirections\("),
    (GRADIENTS | {"n_components": 3}, "`n_components`=3 counts directions of features.*where they"),
    (gradients(n_components=-1), "`n_components of GradientDirections` must be an .*got -1"),
    ({"n_components": -1}, "`n_components` must be an integer of at least 0, got -1"),
    ({"n_components": 2.5}, "`n_components` must be an integer"),
    ({"n_components": "all"}, "`n_components` must be an integer"),
    (gradients(residual=1), "`residual` must be True or False, got 1"),
    (gradients(residual="yes"), "`residual` must be True or False"),
    (gradients(residual_norm=0.0), r"`residual_norm` must be a number in .*got 0\.0.*'auto'"),
    (gradients(residual_norm=math.inf), "`residual_norm` must be a number in .*inf"),
    (gradients(residual_norm=None), "`residual_norm` must be a number"),
    (
        gradients(embedding_share=0.0),
        r"`embedding_share` must be a number in \[0.001, 0.999\].*'auto'",
    ),
    (gradients(embedding_share=1.0), r"`embedding_share` must be a number in \[0.001, 0.999\]"),
    (
        gradients(embedding_share=math.nan),
        r"`embedding_share` must be a number in \[0.001, 0.999\]",
    ),
    (gradients(labels="true"), "`labels` must be one of .*'true'"),
    (gradients(power_iterations=0), "`power_iterations` must be an integer of at least 1, got 0"),
    (gradients(power_iterations="auto"), "`power_iterations` must be an integer"),
    (gradients(groups="layers"), "`groups` of GradientDirections.*torch module.*'layers'"),
    ({"init": "warm"}, "`init` must be one of .*'warm'"),
    ({"mirror": 0}, "`mirror` must be True or False"),
]


@pytest.mark.parametrize("Estimator", GEP)
@pytest.mark.parametrize(("public", "match"), BAD_PUBLIC)
def test_public_rows_that_cannot_be_used_are_refused(Estimator, public, match):
    assert_refused(Estimator, {}, public, match)


@pytest.mark.parametrize(("Estimator", "public", "match"), BAD_LABELS)
def test_public_labels_that_cannot_be_used_are_refused(Estimator, public, match):
    assert_refused(Estimator, {}, public, match)


@pytest.mark.parametrize("Estimator", GEP)
@pytest.mark.parametrize(("options", "match"), BAD_OPTIONS, ids=str)
def test_options_out_of_range_are_refused(Estimator, options, match):
    assert_refused(Estimator, options, LABELLED, match)
    with pytest.raises(ValueError, match=match):
        Estimator(**options).privacy_event(n_samples=400, n_features=5, n_outputs=1)


@uninformed
@pytest.mark.parametrize("public", [{}, {"X_public": P}], ids=["none", "unlabelled"])
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"init": "public"}, "init='public'"),
        ({"mirror": True}, "mirror=True"),
        (gradients(labels="public"), "labels='public' of GradientDirections"),
    ],
    ids=str,
)
@pytest.mark.parametrize("Estimator", GEP)
def test_options_that_need_labels_say_so(Estimator, options, name, public):
    assert_refused(Estimator, options, public, f"{name} needs the labels.*`y_public`")


def test_rows_that_nothing_bounds_are_refused():
    match = "`row_norm`=None leaves rows unbounded, and the mean.*Use row_norm='l2', or a number"
    assert_refused(GEPClassifier, {"row_norm": None}, LABELLED, match)


@pytest.mark.parametrize(
    "ours", [lambda k: {"n_components": k}, lambda k: gradients(n_components=k)]
)
@pytest.mark.parametrize("Estimator", GEP)
def test_more_components_than_public_rows_warn_and_all_are_used(Estimator, ours):
    X, y = blobs(n=400)
    options = {"epsilon": 9.0, "random_state": 0}
    model = Estimator(**ours(4), **options)
    with pytest.warns(
        PublicDataWarning, match="`n_components`=4 .* 3 public rows.*fewer"
    ) as caught:
        more = model.fit(X, y, X_public=(P[:3],)).coef_
    assert {w.filename for w in caught} == {__file__}
    np.testing.assert_array_equal(
        Estimator(**ours(3), **options).fit(X, y, X_public=(P[:3],)).coef_, more
    )


DEGENERATE = {
    "one row": P[:1],
    "one row again and again": np.repeat(P[:1], 60, axis=0),
    "two directions": P @ np.diag([1.0, 1.0, 0.0, 0.0, 0.0]),
    "zeros": np.zeros((60, 5)),
    "huge": P * 1e300,
    "tiny": P * 1e-300,
    "wide range": P * 10.0 ** np.arange(-60, 0, 12),
}


@noisy
@uninformed
@pytest.mark.filterwarnings("ignore:`n_components`:dpsubspace.exceptions.PublicDataWarning")
@pytest.mark.parametrize(
    ("Estimator", "options", "changes", "rows"),
    pairs_first(
        GEP,
        [
            {},
            {"n_components": 3},
            GRADIENTS,
            gradients(n_components=3),
            gradients(power_iterations=None) | {"fit_intercept": False},
            {"n_components": 3, "fit_intercept": False},
            {"init": "public", "mirror": True},
        ],
        [{}, {"centre": None}],
        DEGENERATE,
    ),
    ids=str,
)
def test_degenerate_public_rows_give_a_finite_model(Estimator, options, changes, rows):
    rows = DEGENERATE[rows]
    X, y = blobs(n=200)
    labels = Q[: len(rows)]
    model = Estimator(epsilon=5.0, n_iter=5, random_state=0, **options)
    with_plan(model, **changes)(X, y, X_public=(rows,), y_public=(labels,))
    assert np.isfinite(model.coef_).all() and np.isfinite(model.predict(X)).all()


@noisy
@pytest.mark.parametrize("n_components", [3, "auto"])
def test_public_rows_that_span_nothing_leave_the_whole_space(n_components):
    X, y = blobs(n=200)
    options = {"epsilon": 5.0, "fit_intercept": False, "random_state": 0}
    model = GEPClassifier(n_components=n_components, **options).fit(X, y, X_public=np.ones((9, 5)))
    assert model.n_components_ is None and model.score(X, y) > 0.5


@noisy
@pytest.mark.parametrize("ours", [{"n_components": 2}, gradients(n_components=2)], ids=str)
def test_gradients_that_are_all_zero_give_a_finite_model(ours):
    """Targets in the middle of their range: from zero weights there is nothing to learn."""
    X, y = np.zeros((200, 5)), np.full(200, 1.0)
    options = {"data_norm": 1.0, "target_bounds": (0, 2), **ours}
    model = GEPRegressor(epsilon=5.0, n_iter=5, random_state=0, **options)
    model.fit(X, y, X_public=(np.zeros((9, 5)),), y_public=(np.ones(9),))
    assert np.isfinite(model.coef_).all()


# Kinds of rows ------------------------------------------------------------------------------

WAYS = [{"n_components": 3}, gradients(n_components=3), gradients(power_iterations=None)]


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("Estimator", INFORMED)
def test_float32_rows_give_nearly_the_same_model(Estimator, options):
    X, y = blobs(n=700)
    options = {"epsilon": 9.0, "random_state": 0, "n_iter": 20, **options}
    double, single = (Estimator(**options).fit(X.astype(t), y) for t in (np.float64, np.float32))
    # Not the same: bounds in float32 allow for its rounding, which is a little more noise.
    difference = np.abs(single.coef_ - double.coef_).max()
    assert 0 < difference < 0.1 * np.abs(double.coef_).max()


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("Estimator", INFORMED)
def test_public_rows_may_be_sparse_read_only_or_another_dtype(Estimator, options):
    X, y = blobs(n=200)
    rows = P.copy()
    rows.setflags(write=False)
    exact = rows.astype(np.float32).astype(np.float64)
    model = Estimator(epsilon=9.0, random_state=0, n_iter=10, **options)
    for expected, forms in (
        (P, (rows, sparse.csr_array(rows), rows.tolist())),
        (exact, (rows.astype(np.float32),)),
    ):
        coef = model.fit(X, y, X_public=(expected,)).coef_
        for some in forms:
            found = model.fit(X, y, X_public=(some,)).coef_
            np.testing.assert_allclose(found, coef, rtol=1e-9)


@pytest.mark.parametrize("options", [{"n_components": 3}, GRADIENTS, {"mirror": True}], ids=str)
@pytest.mark.parametrize("Estimator", INFORMED)
def test_chunks_change_nothing_but_rounding(Estimator, options):
    X, y = blobs(n=700)
    options = {"epsilon": 9.0, "random_state": 0, "n_iter": 20, **options}
    whole, parts = (with_plan(Estimator(**options), chunk=m)(X, y) for m in (None, 128))
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("Estimator", INFORMED)
def test_only_released_and_public_values_are_stored(monkeypatch, Estimator, options):
    """Everything learned is the same whatever the data, once the releases are the same."""
    X, y = blobs(n=200)
    rng = np.random.default_rng(1)
    models = [Estimator(epsilon=5.0, n_iter=9, random_state=0, **options) for _ in range(2)]
    with releases(monkeypatch) as outputs:
        models[0].fit(X, y)
    with releases(monkeypatch, outputs=outputs):
        models[1].fit(rng.normal(size=X.shape) * 9, rng.permutation(y))
    states = [vars(model) for model in models]
    for state in states:
        state.pop("_callback_fit_ctx", None)
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        np.testing.assert_equal(states[1][name], value, err_msg=name)


@pytest.mark.parametrize("Estimator", GEP)
def test_seeds_repeat_and_secure_noise_does_not(Estimator):
    X, y = blobs(n=400)
    for options in ({}, GRADIENTS):
        seeded, again, one, other = (
            Estimator(epsilon=9.0, n_iter=9, random_state=seed, **options).fit(X, y, X_public=P)
            for seed in (3, 3, None, None)
        )
        np.testing.assert_array_equal(seeded.coef_, again.coef_)
        assert not seeded.privacy_.secure and one.privacy_.secure
        assert not np.allclose(one.coef_, other.coef_)


@noisy
def test_public_rows_help_where_noise_is_large():
    """Digits at epsilon 0.2: unlabelled rows tell where the noise may be left out."""
    X, y = load_digits(return_X_y=True)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    rows, labels, X, y = X[:300], y[:300], X[300:], y[300:]
    scores = [
        np.mean(
            [
                Estimator(epsilon=0.2, random_state=seed).fit(X, y, **public).score(X, y)
                for seed in range(3)
            ]
        )
        for Estimator, public in (
            (DPSGDFClassifier, {}),
            (GEPClassifier, {"X_public": (rows,)}),
            (GEPClassifier, {"X_public": (rows,), "y_public": (labels,)}),
        )
    ]
    assert scores[0] + 0.03 < scores[1] and scores[1] + 0.03 < scores[2]
