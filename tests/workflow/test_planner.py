"""What is planned is what is spent, and shares of a budget add up to it."""

import math

import numpy as np
import pytest
from helpers import epsilon_of
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    PrivacyError,
    PrivacyLedger,
    privacy_cost,
    private_mean,
)
from dpsubspace._core.accounting.cost import gaussian_epsilon, gaussian_sq_mu
from dpsubspace._core.accounting.events import gaussian, mechanisms_of
from dpsubspace.budget import privacy_event, share_budget
from dpsubspace.statistics import private_quantile

N, DELTA = 2000, 1e-5
EXACT = DPPCA(mechanism="bingham", n_components=1, centered=False, data_norm=1.0, epsilon=0.3)
ROWS = np.random.default_rng(0).normal(size=(N, 4))
LABELS = (ROWS[:, 0] > 0).astype(int)


def pipeline(**options):
    return make_pipeline(BoundedScaler(epsilon=0.4), Normalizer(), DPSGDClassifier(**options))


def table():
    columns = ColumnTransformer(
        [
            ("estimated", BoundedScaler(epsilon=0.4), [0, 1]),
            ("public", BoundedScaler((-9, 9)), [2]),
            ("rest", "passthrough", [3]),
        ],
        sparse_threshold=0,
    )
    return columns


def test_what_a_pipeline_will_spend_is_what_it_spends():
    model = pipeline(n_iter=5)
    planned = privacy_event(model, n_samples=N, n_features=4)
    model.fit(ROWS, LABELS)
    spent = [step.privacy_.event for step in (model[0], model[-1])]
    assert mechanisms_of(planned) == tuple(part for event in spent for part in mechanisms_of(event))
    ledger = PrivacyLedger(epsilon=10, delta=DELTA)
    ledger.fit(pipeline(n_iter=5), ROWS, LABELS)
    assert ledger.epsilon() == pytest.approx(privacy_cost(model, n_samples=N), rel=1e-9)


def test_gaussian_fits_add_up_exactly():
    models = [DPSGDClassifier(epsilon=e) for e in (0.3, 1.0, 2.0)]
    expected = gaussian_epsilon(sum(gaussian_sq_mu(e, DELTA) for e in (0.3, 1, 2)), DELTA)
    assert privacy_cost(models, n_samples=N) == pytest.approx(expected, rel=1e-9)
    assert privacy_cost([models[0], models[1:]], n_samples=N, delta=1e-7) > expected


def test_steps_names_releases_and_events_are_taken_from_a_list():
    mean = private_mean(ROWS, data_norm=9.0, epsilon=0.5, random_state=0)
    what = [mean, mean.privacy, ("model", DPSGDClassifier(epsilon=0.5)), privacy_event(mean)]
    expected = gaussian_epsilon(4 * gaussian_sq_mu(0.5, DELTA), DELTA)
    assert privacy_cost(what, n_samples=N) == pytest.approx(expected, rel=1e-6)


def test_columns_and_what_is_free():
    free = ColumnTransformer([("public", BoundedScaler((-9, 9)), [2])], sparse_threshold=0)
    assert privacy_cost(free.transformers[0][1], n_samples=N) == 0
    assert privacy_cost(free.set_params(remainder="drop"), n_samples=N) == 0
    assert privacy_cost(table(), n_samples=N) == pytest.approx(0.4, rel=1e-9)
    both = make_pipeline(table(), DPSGDClassifier(epsilon=0.8))
    assert privacy_cost(both, n_samples=N) == pytest.approx(
        privacy_cost([BoundedScaler(epsilon=0.4), DPSGDClassifier(epsilon=0.8)], n_samples=N)
    )


def test_sizes_reach_the_steps_that_need_them():
    model = make_pipeline(BoundedScaler(), DPSGDFClassifier())
    given = privacy_event(model, n_samples=N, n_features=4)
    assert mechanisms_of(given)[-1] == mechanisms_of(model[-1].privacy_event(N, 4))[-1]
    public = {"boundedscaler": 50, "dpsgdfclassifier": 0}
    assert privacy_cost(model, n_samples=N, n_public=public) == privacy_cost(model, n_samples=N)
    regression = DPLinearRegression()
    assert privacy_cost(regression, n_samples=N, n_outputs=2) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-5), (1.0, 1e-6), (8.0, 1e-9)])
@pytest.mark.parametrize("shares", [None, (1, 9), (0.5, 1e-3)])
def test_shares_cost_exactly_the_budget(relation, epsilon, delta, shares):
    model = pipeline()
    for step in (model[0], model[-1]):
        step.set_params(neighboring_relation=relation)
    names = ("boundedscaler", "dpsgdclassifier")
    by_name = None if shares is None else dict(zip(names, shares, strict=True))
    assert share_budget(model, epsilon, delta, shares=by_name, n_samples=N) is model
    cost = epsilon_of(privacy_event(model, n_samples=N), delta, relation)
    assert epsilon * (1 - 1e-6) <= cost <= epsilon
    assert model[0].delta == model[-1].delta == delta
    sq_mu = [gaussian_sq_mu(step.epsilon, delta) for step in (model[0], model[-1])]
    own = shares or (gaussian_sq_mu(0.4, delta), gaussian_sq_mu(1.0, delta))
    assert sq_mu[0] / sq_mu[1] == pytest.approx(own[0] / own[1], rel=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        pipeline(batch_size=50, n_iter=20),
        [EXACT, DPSGDClassifier()],
        pytest.param(
            make_pipeline(table(), DPSGDClassifier(batch_size=50, n_iter=20)),
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["batches", "exponential", "columns"],
)
def test_what_is_not_gaussian_costs_the_budget_from_below(model):
    share_budget(model, 2.0, DELTA, n_samples=N)
    cost = privacy_cost(model, n_samples=N, delta=DELTA)
    assert 2.0 * (1 - 1e-3) <= cost <= 2.0


def test_one_step_gets_all_and_free_steps_nothing():
    model = make_pipeline(BoundedScaler((-9, 9), epsilon=0.7), DPSGDClassifier())
    share_budget(model, 3.0, n_samples=N)
    assert (model[0].epsilon, model[1].epsilon) == (0.7, 3.0)
    assert model[1].delta == DELTA
    share_budget(pipeline(), math.inf, n_samples=N)


def test_a_budget_that_cannot_be_shared_changes_nothing():
    model = pipeline(epsilon=0.9)
    with pytest.raises(ValueError, match="2 private steps: each of them needs"):
        share_budget(model, 1e-4, shares={"boundedscaler": 1, "dpsgdclassifier": 1}, n_samples=N)
    assert (model[0].epsilon, model[-1].epsilon, model[-1].delta) == (0.4, 0.9, "auto")


TWO = [DPSGDClassifier(), DPSGDClassifier(neighboring_relation="replace_one")]
MANY = make_pipeline(BoundedScaler(), DPSGDFClassifier())
ERRORS = [
    (privacy_cost, make_pipeline(StandardScaler(), DPSGDClassifier()), {}, "may learn from the"),
    (privacy_cost, Pipeline([("a", StandardScaler())]), {}, "may learn from the"),
    (privacy_cost, ColumnTransformer([("a", StandardScaler(), [0])]), {}, "sparse_threshold=0"),
    (privacy_cost, StandardScaler(), {}, "cannot say what its fit will spend"),
    (privacy_cost, [private_mean], {}, "private_mean is a function.*in its place a full-batch"),
    (privacy_cost, [], {}, "the list is empty"),
    (privacy_cost, TWO, {}, "'replace_one' and 'zero_out' cannot be added up"),
    (privacy_cost, gaussian(3.0), {}, "give `neighboring_relation`"),
    (privacy_cost, MANY, {"n_public": 5}, "does not say which of several private steps"),
    (privacy_cost, MANY, {"n_public": {"nobody": 5}}, "but the private steps are"),
    (privacy_cost, DPSGDClassifier(), {"n_samples": None}, "depends on `n_samples`: pass it"),
    (share_budget, TWO[:1] * 2, {"epsilon": 1.0}, "lists one estimator twice"),
    (share_budget, [gaussian(3.0)], {"epsilon": 1.0}, "was released before"),
    (share_budget, pipeline(), {"epsilon": -1.0}, "`epsilon` must be"),
    (share_budget, pipeline(), {"epsilon": 1.0, "shares": {"a": 1}}, "one number for each"),
    (share_budget, pipeline(epsilon=math.inf), {"epsilon": 1.0}, "of which there is no fraction"),
    (
        share_budget,
        pipeline(epsilon=None, noise_multiplier=3.0),
        {"epsilon": 1.0},
        "has no `epsilon` that could be set",
    ),
]


@pytest.mark.parametrize(("function", "what", "options", "match"), ERRORS)
def test_errors_say_what_to_do(function, what, options, match):
    with pytest.raises((ValueError, PrivacyError), match=match):
        function(what, **{"n_samples": N, **options})


def test_units_are_not_added_up():
    ages, people = ROWS[:, 0], np.arange(N) // 4
    rows = private_quantile(ages, 0.5, bounds=(-9, 9), random_state=0)
    persons = private_quantile(ages, 0.5, bounds=(-9, 9), random_state=0, groups=people)
    with pytest.raises(PrivacyError, match="'person' and 'row' cannot be added up"):
        privacy_cost([rows, persons], n_samples=N)


def test_a_budget_that_is_too_small_to_be_shared_names_the_least_that_is_enough():
    shares = {"boundedscaler": 1, "dpsgdclassifier": 4}
    with pytest.raises(
        ValueError, match=r"^`epsilon`=0\.0002 is too small .* 2 private steps"
    ) as no:
        share_budget(pipeline(), 2e-4, shares=shares, n_samples=N)
    least = float(str(no.value).split("epsilon of ")[1].split(" or")[0])
    share_budget(pipeline(), least, shares=shares, n_samples=N)
    with pytest.raises(ValueError, match="is too small"):
        share_budget(pipeline(), 0.9 * least, shares=shares, n_samples=N)
