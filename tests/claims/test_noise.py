"""Whole fits: the noise that was added is the noise that the event describes."""

import itertools

import numpy as np
import pytest
from cases import GAUSSIAN, gradients, privacy_of
from helpers import (
    ESTIMATORS,
    RARE,
    RELATIONS,
    AdaptiveClassifier,
    InformedClassifier,
    blobs,
    multipliers,
    pairs_first,
    releases,
    scale_noise,
)
from scipy import stats

from dpsubspace import DPLinearRegression, DPSGDClassifier
from dpsubspace.linear_model import PersonalizedLinearRegression, PersonalizedLogisticRegression

# What is told of released numbers depends on noise, which is another one here.
noisy = pytest.mark.filterwarnings(
    "ignore:(the (noise|released)|class|at least .* are not listed):dpsubspace.PrivacyWarning"
)


def p_values(monkeypatch, Estimator, relation, factor, **options):
    """P-values that the releases of a fit have the noise that its event says.

    Of its law and its size, for each kind of release, against the guarantee's event and the sums'
    own bounds.
    """
    X, y = blobs(n=400, d=1500)
    model = Estimator(
        epsilon=5.0, n_iter=3, neighboring_relation=relation, random_state=0, **options
    )
    with monkeypatch.context() as patch, releases(patch) as seen:
        scale_noise(patch, factor)
        model.fit(X, y)
    described = multipliers(model.privacy_.event)
    assert len(seen) == len(described)
    if seen[-1][0].value.shape == (9,):  # three that correct scores, which the event has before
        seen[-6:] = [*seen[-3:], *seen[-6:-3]]
    draws = {}
    for (total, out, _), multiplier in zip(seen, described, strict=True):
        unit = total.norm_bound if relation == "zero_out" else total.replace_bound / 2
        if "batch_size" in options and total.value.ndim == 2 < total.value.size / 500:  # sampled
            unit = max(unit, total.norm_bound)
        noise = (out - total.value).ravel() / (multiplier * unit)
        if len(noise) > 9:  # so few would not tell a wrong factor
            draws.setdefault(total.value.ndim, []).append(noise)
    assert len(draws) == 1 + (Estimator is not DPSGDClassifier)
    return p_values_of_parts(map(np.concatenate, draws.values()))


def p_values_of_parts(parts):
    """The smaller one of those of the law and of the size of each."""
    return [min(stats.kstest(part, "norm").pvalue, p_value(part)) for part in parts]


@noisy
@pytest.mark.parametrize(
    ("Estimator", "relation"), pairs_first([*ESTIMATORS, AdaptiveClassifier], RELATIONS)
)
def test_noise_of_a_fit_on_batches_is_that_of_its_event(monkeypatch, Estimator, relation):
    options = {"batch_size": 100}
    assert min(p_values(monkeypatch, Estimator, relation, 1, **options)) > RARE
    for factor in (2 / 3, 3 / 2):
        assert max(p_values(monkeypatch, Estimator, relation, factor, **options)) < RARE


PERSONAL = (PersonalizedLinearRegression, PersonalizedLogisticRegression)


def draws(monkeypatch, case, setting, relation, factor=1.0):
    """Noise of the releases of each size, in units of what is charged for it."""
    drawn = {}
    # Draws enough to reject a wrong factor: of each column, or of a matrix of columns by columns.
    d = 48 if case.build in (DPLinearRegression, *PERSONAL) else 120
    # Six times the noise hides the ranges of a table in fewer rows, which is an error.
    n = 2000 if case.name == "TabularPipeline" else 300
    with monkeypatch.context() as patch, releases(patch) as seen:
        scale_noise(patch, factor)
        fitted = case.fit(*blobs(n=n, d=d), setting, relation)
    # What a release uses adds up to what the event describes.
    charged = sum(multiplier**-2.0 for multiplier in multipliers(privacy_of(fitted).event))
    assert sum(multiplier**-2.0 for *_, multiplier in seen) == pytest.approx(charged, rel=1e-9)
    for total, out, multiplier in seen:
        unit = total.norm_bound if relation == "zero_out" else total.replace_bound / 2
        noise = (out - total.value).ravel() / (multiplier * unit)
        drawn.setdefault(total.value.shape, []).append(noise)
    return [np.concatenate(part) for part in drawn.values()]


def p_value(noise):
    """Of its size, both ways: a factor of 6 or 1/6 is certain to be found in 40 draws.

    Right noise is RARE with that chance. Of 40 draws of a wrong scale it is not RARE if their
    chi-square is at most 127 / 36, or at least 36 * 5.8: with a chance of less than 1e-14.
    """
    law, square = stats.chi2(len(noise)), np.sum(noise**2)
    return 2 * min(law.cdf(square), law.sf(square))


def cases_and_relations():
    """The plain setting of each case in one relation, in turns, and all others as exhaustive."""
    for i, case in enumerate(GAUSSIAN):
        for setting, relation in itertools.product(case.settings, RELATIONS):
            plain = setting == "plain" and relation == RELATIONS[i % 2]
            plain = plain and case.build not in PERSONAL  # a minute each
            if setting != "batches":
                marks = () if plain else pytest.mark.exhaustive
                yield pytest.param(case, setting, relation, marks=marks)


@noisy
@pytest.mark.filterwarnings(
    "ignore:(the released mean|released numbers) shows?:dpsubspace.PrivacyWarning"
)
@pytest.mark.parametrize(("case", "setting", "relation"), cases_and_relations(), ids=str)
def test_noise_of_every_case_is_that_of_its_event(monkeypatch, case, setting, relation):
    parts = draws(monkeypatch, case, setting, relation)
    assert min(map(p_value, parts)) > RARE
    for factor in (1 / 6, 6):
        parts = draws(monkeypatch, case, setting, relation, factor)
        assert p_value(np.concatenate(parts)) < RARE


VARIANTS = [
    (2, gradients(30) | {"n_iter": 25}),
    (2, gradients(30, embedding_share=0.3) | {"n_iter": 25}),
    (1, gradients(30, residual=False) | {"n_iter": 25}),
    (1, {"n_components": 30}),
]


def noise_of_parts(monkeypatch, relation, factor, **options):
    """Noise of the mean and of each sum of a step, over all steps, in units of what is charged."""
    X, y = blobs(n=150, d=30)
    options = {"epsilon": 8.0, "n_iter": 12, **options}
    model = InformedClassifier(neighboring_relation=relation, random_state=0, **options)
    with monkeypatch.context() as patch, releases(patch) as seen:
        scale_noise(patch, factor)
        model.fit(X, y)
    mean, *seen = seen
    charged = multipliers(model.privacy_.event)
    n_sums = len(seen) // options["n_iter"]
    steps = [[mean], *(seen[i : i + n_sums] for i in range(0, len(seen), n_sums))]
    noise = [[] for _ in range(1 + n_sums)]
    for step, multiplier in zip(steps, charged, strict=True):
        # The sums of a step are one Gaussian of what is charged for it.
        assert sum(used**-2 for *_, used in step) == pytest.approx(multiplier**-2)
        for i, (total, out, used) in enumerate(step):
            bound = total.norm_bound if relation == "zero_out" else total.replace_bound / 2
            if "batch_size" in options and step[0] is not mean:
                bound = max(bound, total.norm_bound)
            noise[i if step[0] is mean else 1 + i].append(
                (out - total.value).ravel() / bound / used
            )
    return [np.concatenate(part) for part in noise]


@noisy
@pytest.mark.parametrize(
    ("variant", "relation", "batch"),
    pairs_first(VARIANTS, RELATIONS, [{}, {"batch_size": 40}]),
    ids=str,
)
def test_noise_of_each_part_of_a_gradient_is_that_of_its_event(
    monkeypatch, variant, relation, batch
):
    """Embeddings and residuals, of which neither may have less than its share."""
    n_sums, options = variant[0], variant[1] | batch
    mean, *parts = noise_of_parts(monkeypatch, relation, 1, **options)
    assert len(parts) == n_sums
    assert min(p_values_of_parts([mean, *parts])) > RARE
    for factor in (2 / 3, 3 / 2):
        _, *parts = noise_of_parts(monkeypatch, relation, factor, **options)
        assert max(p_values_of_parts(parts)) < RARE
