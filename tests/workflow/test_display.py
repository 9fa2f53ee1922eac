"""The picture of score against epsilon: its data, its artists and what it says about cost."""

import math
import sys

import numpy as np
import pytest
from helpers import blobs, epsilon_of
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, make_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from dpsubspace import (
    BoundedScaler,
    DPSGDClassifier,
    DPSGDRegressor,
    PrivacyError,
    PrivacyLedger,
    PrivacyWarning,
)
from dpsubspace._core.accounting.cost import gaussian_epsilon, gaussian_sq_mu
from dpsubspace._core.accounting.events import composed
from dpsubspace.metrics import PrivacyUtilityDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

X, Y = blobs(n=400)
TEST = {"X_test": X[300:], "y_test": Y[300:]}
# The 20 steps of these private fits are few iterations for the one without privacy.
hasty = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def picture(estimator=None, epsilons=(2.0, 8.0), n_repeats=3, **options):
    estimator = DPSGDClassifier(n_iter=20) if estimator is None else estimator
    return PrivacyUtilityDisplay.from_estimator(
        estimator, X[:300], Y[:300], **TEST, epsilons=epsilons, n_repeats=n_repeats, **options
    )


# From scores ------------------------------------------------------------------------------------


def test_scores_are_drawn_as_mean_spread_and_lines():
    scores = [[0.9, 0.8, 1.0], [0.5, 0.5, 0.5], [0.97, 0.97, 0.97]]
    display = PrivacyUtilityDisplay.from_scores(
        [10, 1, math.inf], scores, name="ours", score_name="Accuracy", chance_level=0.1
    )
    np.testing.assert_array_equal(display.line_.get_xdata(), [1, 10])  # in order
    np.testing.assert_allclose(display.line_.get_ydata(), [0.5, 0.9])
    corners = display.band_.get_paths()[0].vertices
    at_ten = corners[corners[:, 0] == 10, 1]
    np.testing.assert_allclose([at_ten.min(), at_ten.max()], [0.8, 1.0])
    np.testing.assert_allclose(display.non_private_line_.get_ydata(), 0.97)
    np.testing.assert_allclose(display.chance_line_.get_ydata(), 0.1)
    ax = display.ax_
    assert ax.figure is display.figure_ and ax.get_xscale() == "log"
    assert ax.get_ylabel() == "Accuracy" and "epsilon" in ax.get_xlabel()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["ours", "ours, not private", "chance"]
    assert display.privacy_event is None


def test_single_fits_have_no_band_and_no_lines_that_were_not_asked_for():
    display = PrivacyUtilityDisplay.from_scores([1, 3], [0.5, 0.7])
    assert display.scores.shape == (2, 1)
    assert display.band_ is display.non_private_line_ is display.chance_line_ is None
    assert display.ax_.get_legend() is None


def test_plot_draws_again_beside_other_curves_as_told():
    first = PrivacyUtilityDisplay.from_scores([1, 3], [[0.5, 0.6], [0.7, 0.7]], name="one")
    second = PrivacyUtilityDisplay.from_scores(
        [1, 3, math.inf],
        [[0.4, 0.5], [0.6, 0.6], [1, 1]],
        ax=first.ax_,
        line_kw={"color": "red", "marker": "x"},
        band_kw={"alpha": 0.5},
        non_private_kw={"linestyle": "-."},
        chance_level=0.3,
        chance_kw={"color": "blue"},
    )
    assert second.ax_ is first.ax_
    assert second.line_.get_color() == second.non_private_line_.get_color() == "red"
    assert second.band_.get_alpha() == 0.5 and second.non_private_line_.get_linestyle() == "-."
    assert second.chance_line_.get_color() == "blue"
    again = second.plot(name="two")
    assert again is second and second.ax_ is not first.ax_
    assert second.line_.get_label() == "two"


@pytest.mark.parametrize(
    ("epsilons", "scores", "match"),
    [
        ([1, 3], [0.5], r"one row for each of the 2 entries of `epsilons`.*shape \(1, 1\)"),
        ([1, 3], np.zeros((2, 0)), r"shape \(2, 0\)"),
        ([1, 3], np.zeros((2, 1, 1)), r"shape \(2, 1, 1\)"),
        ([1, 0], [0.5, 0.5], r"`epsilons\[...\]` must be a number in \(0, inf\], got 0"),
        ([1, math.nan], [0.5, 0.5], "got nan"),
        ([math.inf], [0.5], "at least one of them finite"),
        ([1, 1], [0.5, 0.5], "different budgets"),
        ([], [], "at least one of them finite"),
    ],
)
def test_errors_of_from_scores(epsilons, scores, match):
    with pytest.raises(ValueError, match=match):
        PrivacyUtilityDisplay.from_scores(epsilons, scores)
    assert plt.get_fignums() == []


# From an estimator ------------------------------------------------------------------------------


def test_fits_are_repeated_with_noise_of_their_own():
    display = picture(DPSGDClassifier(n_iter=20, random_state=0), scoring="neg_log_loss")
    assert display.scores.shape == (2, 3)
    assert len(np.unique(display.scores)) == 6  # the seed of the estimator is not used
    assert display.name == "DPSGDClassifier" and display.score_name == "Test neg log loss"


def test_a_seed_makes_it_repeatable_and_none_does_not():
    seeded = [picture(random_state=5, scoring="neg_log_loss").scores for _ in range(2)]
    np.testing.assert_array_equal(*seeded)
    assert len(np.unique(seeded[0])) == 6
    secure = [picture(scoring="neg_log_loss").scores for _ in range(2)]
    assert not np.isin(secure[0], secure[1]).any()


def test_the_estimator_is_left_alone():
    model = DPSGDClassifier(epsilon=0.5, n_iter=20, random_state=3)
    before = repr(model.get_params())
    picture(model)
    assert repr(model.get_params()) == before and not hasattr(model, "coef_")


@hasty
def test_budgets_reach_the_private_step_of_a_pipeline(monkeypatch):
    seen = []
    honest = DPSGDClassifier.fit

    def spy(self, X, y):
        seen.append((self.epsilon, self.random_state))
        return honest(self, X, y)

    monkeypatch.setattr(DPSGDClassifier, "fit", spy)
    pipeline = make_pipeline(Normalizer(), DPSGDClassifier(n_iter=20, random_state=1))
    display = picture(pipeline, epsilons=[8.0, 2.0, math.inf], n_repeats=2)
    assert seen == [(8.0, None)] * 2 + [(2.0, None)] * 2 + [(math.inf, None)]
    assert display.name == "DPSGDClassifier"
    assert display.scores[2, 0] == display.scores[2, 1]  # one fit without noise
    assert display.non_private_line_ is not None


few = pytest.mark.filterwarnings("ignore:the noise of the counts:dpsubspace.PrivacyWarning")


def table():
    """Columns to scale by estimated, by public and by no bounds, and the model behind them."""
    to_rows = make_column_transformer(
        (BoundedScaler(epsilon=0.4), [0, 1]),
        (BoundedScaler((-9, 9), epsilon=0.1), [2]),
        ("passthrough", [3, 4]),
        sparse_threshold=0,
    )
    return make_pipeline(to_rows, Normalizer(), DPSGDClassifier(n_iter=20, epsilon=0.8))


@few
def test_the_epsilon_of_a_pipeline_is_that_of_all_its_steps(monkeypatch):
    """Private steps keep the ratio that their epsilons say, in a ColumnTransformer as well."""
    seen = []
    honest = DPSGDClassifier.fit

    def spy(self, X, y):
        seen.append(self.epsilon)
        return honest(self, X, y)

    monkeypatch.setattr(DPSGDClassifier, "fit", spy)
    for epsilon in (2.0, 8.0):
        display = picture(table(), epsilons=[epsilon], n_repeats=1)
        cost = epsilon_of(display.privacy_event, 1e-5, neighboring_relation="zero_out")
        assert cost == pytest.approx(epsilon, rel=1e-3) and cost <= epsilon
        assert seen[-1] < epsilon * 0.99
        ratio = gaussian_sq_mu(0.4, 1e-5) / gaussian_sq_mu(0.8, 1e-5)
        share = gaussian_epsilon(ratio * gaussian_sq_mu(seen[-1], 1e-5), 1e-5)
        scaler = BoundedScaler(epsilon=share, delta=1e-5).privacy_event(300)
        model = DPSGDClassifier(epsilon=seen[-1], delta=1e-5, n_iter=20).privacy_event(300)
        expected = epsilon_of(composed([scaler, model]), 1e-5, neighboring_relation="zero_out")
        assert cost == pytest.approx(expected, rel=1e-6)
    assert display.name == "DPSGDClassifier"


@hasty
@few
def test_without_privacy_no_step_of_a_pipeline_has_any():
    options = {"n_repeats": 2, "random_state": 0, "scoring": "neg_log_loss"}
    display = picture(table(), epsilons=[8.0, math.inf], **options)
    assert display.scores[1, 0] == display.scores[1, 1] > -0.6
    assert len(np.unique(display.scores[0])) == 2


@few
def test_steps_of_a_seeded_fit_draw_noise_of_their_own():
    seeds = set()

    def scorer(model, X, y):
        seeds.update(step.random_state for step in (model[0], model[-1]))
        return 0.5

    pipeline = make_pipeline(BoundedScaler(), DPSGDClassifier(n_iter=20))
    picture(pipeline, scoring=scorer, n_repeats=2, random_state=0)
    assert len(seeds) == 8


@pytest.mark.parametrize(
    ("scoring", "expected"),
    [
        (None, "Test accuracy"),
        ("neg_log_loss", "Test neg log loss"),
        (make_scorer(f1_score, average="macro"), "Test f1 score"),
        (lambda model, X, y: 0.5, "Test lambda"),
    ],
)
def test_the_axis_names_the_scorer(scoring, expected):
    display = picture(scoring=scoring, epsilons=[8.0], n_repeats=1)
    assert display.score_name == display.ax_.get_ylabel() == expected


def test_the_score_of_a_regressor_is_named():
    model = DPSGDRegressor(n_iter=20, data_norm=9.0, target_bounds=(0, 2))
    assert picture(model, epsilons=[8.0], n_repeats=1).score_name == "Test R²"


def test_scorers_and_fit_params(monkeypatch):
    def scorer(model, X, y):
        assert len(X) == 100
        return 0.25

    display = picture(scoring=scorer, score_name="Quarter")
    assert (display.scores == 0.25).all() and display.ax_.get_ylabel() == "Quarter"
    assert picture(scoring="accuracy").score_name == "Test accuracy"
    assert picture().score_name == "Test accuracy"
    with pytest.raises(TypeError, match="sample_weight"):
        picture(fit_params={"sample_weight": None})


def test_the_total_cost_is_that_of_all_fits():
    display = picture(DPSGDClassifier(n_iter=20, delta=1e-5), epsilons=[2.0, 4.0], n_repeats=2)
    ledger = PrivacyLedger(epsilon=100.0, delta=1e-5)
    for epsilon in (2.0, 2.0, 4.0, 4.0):
        event = DPSGDClassifier(n_iter=20, epsilon=epsilon, delta=1e-5).privacy_event()
        ledger.charge(event, neighboring_relation="zero_out")
    picture_ledger = PrivacyLedger(epsilon=100.0, delta=1e-5)
    picture_ledger.charge(display.privacy_event, neighboring_relation="zero_out")
    assert picture_ledger.epsilon() == pytest.approx(ledger.epsilon())
    assert ledger.epsilon() > 4.0  # more than any single fit


@hasty
@pytest.mark.parametrize("options", [{"random_state": 0}, {"epsilons": (2.0, math.inf)}])
def test_a_picture_with_a_seed_or_without_privacy_cannot_be_charged(options):
    display = picture(n_repeats=1, **options)
    with pytest.raises(PrivacyError):
        ledger = PrivacyLedger(epsilon=100.0, delta=1e-5)
        ledger.charge(display.privacy_event, neighboring_relation="zero_out")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"estimator": LogisticRegression()}, "LogisticRegression cannot say.*from_scores"),
        ({"estimator": make_pipeline(Normalizer(), LogisticRegression())}, "from_scores"),
        ({"estimator": make_pipeline(StandardScaler(), DPSGDClassifier())}, "StandardScaler"),
        ({"estimator": make_pipeline(BoundedScaler(epsilon=math.inf), DPSGDClassifier())}, "ratio"),
        (
            {"estimator": DPSGDClassifier(epsilon=None, noise_multiplier=9.0)},
            "every private step of `estimator` needs an `epsilon`",
        ),
        (
            {
                "estimator": make_pipeline(
                    BoundedScaler(), DPSGDClassifier(neighboring_relation="replace_one")
                )
            },
            "same `neighboring_relation`",
        ),
        ({"n_repeats": 0}, "`n_repeats` must be an integer"),
        ({"random_state": np.random.RandomState(0)}, "`random_state` must be an integer"),
        ({"epsilons": [-1]}, r"`epsilons\[...\]`"),
    ],
)
def test_errors_of_from_estimator(options, match):
    with pytest.raises(ValueError, match=match):
        picture(**options)


def test_warnings_of_the_fits_are_heard():
    with pytest.warns(PrivacyWarning, match="noise"):
        picture(epsilons=[0.05], n_repeats=1)


def test_without_matplotlib_nothing_is_fitted_and_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setattr(DPSGDClassifier, "fit", lambda *a: pytest.fail("fitted"))
    for draw in (picture, lambda: PrivacyUtilityDisplay.from_scores([1.0], [0.5])):
        with pytest.raises(ImportError, match=r'pip install "dpsubspace\[plot\]"'):
            draw()
