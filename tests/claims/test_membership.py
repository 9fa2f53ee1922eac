"""An outlier shows in a distance without privacy, and not in a release beyond its guarantee."""

import math

import numpy as np
import pytest
from helpers import RARE, RELATIONS, groups_of, pairs_first, scale_noise
from scipy import stats

from dpsubspace import select_public
from dpsubspace.audit import audit_epsilon
from dpsubspace.public_data import GSDScorer, gradient_subspace_distance

pytestmark = pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")

N_SAMPLES, N_FEATURES = 60, 12
DELTA = 1e-5

# Two rows a thousand times as long as the others, each along a column of its own.
OUTLIER, ANOTHER = 1e3 * math.sqrt(N_FEATURES) * np.eye(N_FEATURES)[-2:]


def batch(rng, first):
    X = rng.normal(size=(N_SAMPLES, N_FEATURES))
    X[:, -2:] = 0.0
    X[0] = first
    return X


def guessed(n_trials, told):
    """Number of trials in which ``told(coin, rng)`` is the coin that put the outlier in."""
    rng = np.random.default_rng(0)
    coins = rng.random(n_trials) < 0.5
    return sum(told(coin, rng) == coin for coin in coins)


def test_an_outlier_is_seen_in_the_distance_that_is_not_private():
    # All 40 copies have one random label, and a direction is missing, with a chance of 1e-18.
    public = np.repeat([OUTLIER, ANOTHER], 40, axis=0) / 1e3

    def told(coin, rng):
        X = batch(rng, OUTLIER if coin else rng.normal(size=N_FEATURES))
        options = {"n_components": 4, "n_classes": 3, "random_state": int(rng.integers(2**31))}
        return gradient_subspace_distance(X, public, **options) < 0.9

    # With the outlier it is sqrt(3) / 2, one of four directions being shared, and without it 0.9996
    # with a deviation of 0.0007 (1,500 batches, the least 0.9875).
    assert guessed(60, told) >= 58


def from_scorer(relation):
    """A set that points at the outlier asks how much energy lies there."""
    model = GSDScorer(
        n_components=1, epsilon=1.0, delta=DELTA, mechanism="gaussian",
        neighboring_relation=relation,
    )  # fmt: skip

    def told(coin, rng):
        model.set_params(random_state=int(rng.integers(2**31)))
        X, present = neighbours(coin, rng, relation)
        model.fit(X, groups=groups_of(present), X_public=OUTLIER[None])
        return model.span_energy_ > 0.5 / N_SAMPLES

    return told


def from_choice(relation):
    """One candidate points at the outlier, and one at where no row is, or the one in its place."""
    candidates = {"at it": OUTLIER[None], "elsewhere": ANOTHER[None]}

    def told(coin, rng):
        options = {"random_state": int(rng.integers(2**31)), "neighboring_relation": relation}
        X, present = neighbours(coin, rng, relation)
        options |= {"n_components": 1, "groups": groups_of(present)}
        return select_public(candidates, X, epsilon=0.3, **options).name == "at it"

    return told


def neighbours(coin, rng, relation):
    if relation == "zero_out":
        return batch(rng, OUTLIER), np.arange(N_SAMPLES) > (-1 if coin else 0)
    return batch(rng, OUTLIER if coin else ANOTHER), None


def best_by_mu(epsilon):
    """Best accuracy against a Gaussian mechanism of this epsilon and DELTA."""
    mus = np.linspace(1e-3, 1, 10_000)
    far = stats.norm.cdf(-mus / 2 - epsilon / mus)
    deltas = stats.norm.cdf(mus / 2 - epsilon / mus) - math.exp(epsilon) * far
    return stats.norm.cdf(mus[np.searchsorted(deltas, DELTA)] / 2)


# Name: attack, epsilon, delta, best accuracy that the event permits, trials.
ATTACKS = {
    "GSDScorer": (from_scorer, 1.0, DELTA, best_by_mu(1.0), 200),
    "select_public": (from_choice, 0.3, 0.0, 1 / (1 + math.exp(-0.3 / 2)), 300),
}


@pytest.mark.parametrize(("name", "relation"), pairs_first(ATTACKS, RELATIONS))
def test_what_is_private_tells_no_more_than_its_guarantee_and_less_noise_is_caught(
    monkeypatch, name, relation
):
    attack, epsilon, delta, best, n_trials = ATTACKS[name]
    most = stats.binom.isf(RARE, n_trials, best)
    right = guessed(n_trials, attack(relation))
    assert right <= most
    # An audit counts with failures of probability delta, so it is not sure to 1e-10 beside one.
    sure = {"delta": delta, "confidence": 0.95 if delta else 1 - RARE}
    assert delta or audit_epsilon(n_trials, n_trials, right, **sure) <= epsilon

    scale_noise(monkeypatch, 0.03)
    right = guessed(n_trials, attack(relation))
    assert right > most
    assert audit_epsilon(n_trials, n_trials, right, **sure) > epsilon
