"""Events, calibration, the guarantee and the ledger."""

import json
import math
from dataclasses import replace

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from helpers import CLASSIFIERS, RELATIONS, blobs, calibrate, epsilon_of
from scipy.special import ndtr

from dpsubspace import DPSGDClassifier, PrivacyError, PrivacyLedger
from dpsubspace._core.accounting.budget import Sizes
from dpsubspace._core.accounting.cost import gaussian_epsilon, searched_sq_mu
from dpsubspace._core.accounting.events import (
    composed,
    describe,
    gaussian,
    mechanisms_of,
    non_private,
    sampled_gaussian,
)
from dpsubspace._core.fits.bounds import OneMean
from dpsubspace.budget import PrivacyGuarantee
from dpsubspace.exceptions import PrivacyBudgetError

EPSILONS = [0.01, 0.1, 1.0, 3.0, 10.0, 100.0]


# Calibration --------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_calibration_is_tight_and_never_above_the_target(epsilon, delta, relation):
    def event(m):
        return composed([gaussian(4 * m), gaussian(5 * m, 30)])

    kwargs = {"delta": delta, "neighboring_relation": relation}
    multiplier = calibrate(event, epsilon=epsilon, **kwargs)
    reached = epsilon_of(event(multiplier), **kwargs)
    assert epsilon * (1 - 1e-6) < reached <= epsilon


def test_more_epsilon_needs_less_noise():
    kwargs = {"delta": 1e-5, "neighboring_relation": "zero_out"}
    multipliers = [calibrate(gaussian, epsilon=e, **kwargs) for e in np.geomspace(0.01, 100, 60)]
    assert (np.diff(multipliers) < 0).all()


def test_calibration_matches_published_multipliers():
    for n_iter, sigma in ((1, 3.7306), (10, 11.797), (100, 37.306), (10000, 373.06)):
        for relation, factor in (("zero_out", 1), ("replace_one", 2)):
            multiplier = calibrate(
                lambda m, n_iter=n_iter: gaussian(m, n_iter),
                epsilon=1.0,
                delta=1e-5,
                neighboring_relation=relation,
            )
            assert multiplier == pytest.approx(factor * sigma, rel=1e-4)


@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 0.3, 0.999])
def test_the_gaussian_mechanism_costs_what_dp_accounting_says(delta):
    close = {"rel": 1e-11, "abs": 2e-12}
    with np.errstate(divide="ignore"):
        for sq_mu in np.geomspace(1e-12, 1e6, 37).tolist():
            expected = dpa.get_epsilon_gaussian(sq_mu**-0.5, delta)
            assert gaussian_epsilon(sq_mu, delta) == pytest.approx(expected, **close)
        for epsilon in (0.0, *np.geomspace(1e-6, 1e4, 21).tolist()):
            expected = dpa.get_sigma_gaussian(epsilon, delta)
            assert searched_sq_mu(epsilon, delta) ** -0.5 == pytest.approx(expected, **close)


@pytest.mark.parametrize("delta", [-0.1, 1.1, math.nan])
def test_a_delta_that_is_none_has_no_epsilon(delta):
    with pytest.raises(ValueError, match="delta"):
        gaussian_epsilon(1.0, delta)


@pytest.mark.parametrize("relation", RELATIONS)
def test_closed_form_agrees_with_the_pld_accountant(relation):
    event = composed([gaussian(20.0), gaussian(40.0, 50)])
    enum = {
        "zero_out": dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace_one": dpa.NeighboringRelation.REPLACE_ONE,
    }[relation]
    pld = PLDAccountant(enum).compose(event).get_epsilon(1e-5)
    assert epsilon_of(event, 1e-5, neighboring_relation=relation) == pytest.approx(pld, rel=1e-3)


def test_a_replaced_row_is_charged_for_both_of_its_ends():
    """Accountants differ here: one takes the multiplier for the distance of two replaced rows.

    It would say 4.729. Two sums that are 2 apart, under noise of 1, have a mu of 2.
    """
    charged = epsilon_of(gaussian(1.0), 1e-5, neighboring_relation="replace_one")
    assert charged == pytest.approx(9.997, abs=5e-4)
    delta = ndtr(1 - charged / 2) - math.exp(charged) * ndtr(-1 - charged / 2)
    assert delta == pytest.approx(1e-5, rel=1e-9)


@pytest.mark.parametrize("scale", [0.05, 1.0, 3.0, 1e4])
def test_laplace_noise_without_a_delta_costs_its_epsilon(scale):
    """Not an infinite one, nor what a grid of losses rounds it up to."""
    for relation, distance in (("zero_out", 1), ("replace_one", 2)):
        for count in (1, 7):
            event = dpa.SelfComposedDpEvent(dpa.LaplaceDpEvent(scale), count)
            charged = epsilon_of(event, 0.0, neighboring_relation=relation)
            assert charged == pytest.approx(count * distance / scale, rel=1e-12)


def test_other_events_go_to_the_pld_accountant():
    event = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.0)), 10)
    epsilon = epsilon_of(event, 1e-5, neighboring_relation="zero_out")
    pld = PLDAccountant(dpa.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event)
    assert epsilon == pytest.approx(pld.get_epsilon(1e-5), rel=1e-3)


def test_an_event_that_no_accountant_takes_is_refused():
    with pytest.raises(PrivacyError, match="cannot be counted"):
        epsilon_of(
            dpa.SampledWithoutReplacementDpEvent(100, 10, dpa.GaussianDpEvent(1.0)),
            1e-5,
            neighboring_relation="zero_out",
        )
    with pytest.raises(PrivacyError, match="Gaussian"):
        calibrate(
            lambda m: dpa.LaplaceDpEvent(m),
            epsilon=1.0,
            delta=1e-5,
            neighboring_relation="zero_out",
        )


def test_several_gaussians_on_one_batch_are_one_of_their_mu():
    four = dpa.PoissonSampledDpEvent(0.1, gaussian(4.0, 4))
    two_kinds = dpa.PoissonSampledDpEvent(0.1, composed([gaussian(4.0, 3), gaussian(4.0)]))
    assert (
        mechanisms_of(four)
        == mechanisms_of(two_kinds)
        == mechanisms_of(sampled_gaussian(2.0, 0.1, 1))
    )


def test_degenerate_events():
    assert epsilon_of(composed([]), 1e-5, neighboring_relation="zero_out") == 0
    assert epsilon_of(non_private(), 1e-5, neighboring_relation="zero_out") == math.inf
    assert epsilon_of(gaussian(1e9), 1e-5, neighboring_relation="zero_out") == 0


# Events of estimators -----------------------------------------------------------------------


def test_event_of_dpsgd_is_the_hand_written_one():
    event = DPSGDClassifier(epsilon=1.0, delta=1e-5, n_iter=25).privacy_event()
    three, steps = (
        "3 x (Gaussian noise, multiplier 58.98)",
        "25 x (Gaussian noise, multiplier 18.76)",
    )
    assert describe(event) == f"{three} + {steps}"  # of what corrects scores and of the steps


def test_event_of_dpsgdf_adds_the_mean():
    model = CLASSIFIERS[1](preprocessing="practical", epsilon=1.0, delta=1e-5, n_iter=25)
    sizes = Sizes(None)
    event = replace(model._plan(), centre=OneMean(0.19)).resolved(sizes).budget(sizes).event
    mean, intercept, steps = event.events
    assert mean.noise_multiplier == pytest.approx(3.73063 / math.sqrt(0.19), rel=1e-5)
    each = intercept.event.noise_multiplier
    assert each == pytest.approx(3.73063 * math.sqrt(3 / 0.012), rel=1e-5) and intercept.count == 3
    assert steps.event.noise_multiplier == pytest.approx(3.73063 * 5 / math.sqrt(0.798), rel=1e-5)
    assert steps.count == 25


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_expert_noise_multiplier_is_that_of_a_step(Classifier):
    model = Classifier(epsilon=None, noise_multiplier=15.0, n_iter=9, delta=1e-6)
    event = model.privacy_event(n_samples=300)
    steps = event.events[-1] if hasattr(event, "events") else event
    assert steps.event.noise_multiplier == pytest.approx(15.0)
    X, y = blobs(n=300)
    guarantee = model.fit(X, y).privacy_
    assert guarantee.event == event
    assert guarantee.epsilon == epsilon_of(event, 1e-6, neighboring_relation="zero_out")


# Guarantee ----------------------------------------------------------------------------------

GUARANTEE = PrivacyGuarantee(
    event=gaussian(37.3, 100),
    epsilon=1.00004,
    delta=1e-5,
    neighboring_relation="zero_out",
    unit="row",
    secure=False,
    public=("a < b",),
)


def test_statement_names_all_that_it_rests_on():
    text = GUARANTEE.details()
    for part in ("delta = 1e-05", "per row", "zero_out", "100 x", "37.3", "seed", "a < b"):
        assert part in text


@pytest.mark.parametrize("weaker", ["", "secure", "joint", "epsilon", "infinite"])
def test_the_short_form_has_three_lines_and_says_what_makes_it_weaker(weaker):
    said = replace(GUARANTEE, secure=True)
    changed = {"secure": False, "joint": True, "epsilon": 30.0, "infinite": math.inf}
    name = "epsilon" if weaker == "infinite" else weaker
    said = replace(said, **({name: changed[weaker]} if weaker else {}))
    first, *others = str(said).splitlines()
    assert first == said.details().splitlines()[0] == json.loads(said.to_json())["statement"]
    assert len(others) == (1 if weaker == "infinite" else 2) and ".details()" in others[-1]
    assert "multiplier" not in str(said) and "100 x" in said.details()
    words = {
        "secure": ("unless the seed is known", "not to be published"),
        "joint": ("jointly", "publish public_part() alone"),
        "epsilon": ("no meaningful protection",),
        "infinite": ("NOT private",),
    }
    for key, parts in words.items():
        assert all((part in str(said)) == (key == weaker) for part in parts)


def test_statement_never_rounds_epsilon_down():
    assert "epsilon = 1.001," in str(GUARANTEE)


def test_html_statement_is_escaped():
    html = GUARANTEE._repr_html_()
    assert "a &lt; b" in html and "epsilon = 1.001" in html


def test_a_fit_that_is_not_private_says_so():
    X, y = blobs()
    model = DPSGDClassifier(epsilon=math.inf).fit(X, y)
    assert "NOT private" in str(model.privacy_)
    with pytest.raises(PrivacyBudgetError):
        PrivacyLedger(epsilon=1e6, delta=1e-5).charge(model.privacy_)
