"""Pictures of released curves: what is drawn, and what it costs."""

import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dpsubspace import PrivacyLedger, private_score
from dpsubspace.metrics import PrivateCalibrationDisplay, PrivateRocCurveDisplay, PrivateScore

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

rng = np.random.default_rng(0)
Y = np.arange(2000) % 2
X = rng.normal(size=(2000, 3)) + Y[:, None]
MODEL = LogisticRegression(solver="newton-cg").fit(X[:500], Y[:500])
DISPLAYS = [PrivateRocCurveDisplay, PrivateCalibrationDisplay]
METRIC = dict(zip(DISPLAYS, ["roc_curve", "calibration_curve"], strict=True))


@pytest.fixture(scope="module")
def released():
    metrics = ["accuracy", "roc_auc", "roc_curve", "calibration_curve"]
    return private_score(MODEL, X[500:], Y[500:], metric=metrics, random_state=0)


def legend(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


@pytest.mark.parametrize("Display", DISPLAYS)
def test_the_released_curve_is_drawn_with_its_band(released, Display):
    display = Display.from_released(released, name="model")
    score = released[METRIC[Display]]
    np.testing.assert_array_equal(display.line_.get_xdata(), score.at)
    np.testing.assert_array_equal(display.line_.get_ydata(), score.value)
    band = display.band_.get_paths()[0].vertices
    assert set(np.round(score.low, 9)) | set(np.round(score.high, 9)) <= set(
        np.round(band[:, 1], 9)
    )
    assert display.privacy == released.privacy_ and display.level == 0.95
    assert display.figure_ is display.ax_.figure


def test_the_legend_has_the_area_with_its_interval(released):
    area = released["roc_auc"]
    words = f"model, AUC {area.value:.3f} ({area.low:.3f} to {area.high:.3f})"
    assert legend(PrivateRocCurveDisplay.from_released(released, name="model")) == [words, "chance"]
    alone = PrivateRocCurveDisplay(fpr=[0, 1], tpr=[0, 1], roc_auc=0.5).plot()
    assert legend(alone) == ["AUC 0.500", "chance"] and alone.band_ is None


def test_lines_beside_the_curve_can_be_left_out(released):
    roc = PrivateRocCurveDisplay.from_released(released, plot_chance_level=False)
    assert roc.chance_line_ is None
    display = PrivateCalibrationDisplay.from_released(released, ref_line=False)
    assert display.reference_line_ is None and display.ax_.get_legend() is None
    display.plot(roc.ax_, name="other", line_kw={"color": "red"}, ref_kw={"color": "black"})
    assert display.ax_ is roc.ax_ and display.line_.get_color() == "red"
    assert display.reference_line_.get_color() == "black"


@pytest.mark.parametrize("Display", DISPLAYS)
def test_drawing_a_fitted_model_is_charged(Display):
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    options = {"epsilon": 0.5, "level": 0.8}
    display = Display.from_estimator(MODEL, X[500:], Y[500:], **options)
    ledger.charge(display.privacy)
    assert 0.49 < ledger.epsilon() < 0.51 and display.level == 0.8
    assert display.name == "LogisticRegression" in legend(display)[0]


@pytest.mark.parametrize("Display", DISPLAYS)
def test_the_same_curve_as_by_private_score(Display):
    options = {"epsilon": 0.5, "random_state": 3, "groups": np.arange(1500) // 2}
    metric = "roc_auc" if Display is PrivateRocCurveDisplay else METRIC[Display]
    score = private_score(MODEL, X[500:], Y[500:], metric=metric, **options)
    guarantee = score.privacy_
    display = Display.from_estimator(MODEL, X[500:], Y[500:], **options)
    score = score.curve if metric == "roc_auc" else score
    np.testing.assert_array_equal(display.line_.get_ydata(), score.value)
    assert display.privacy == guarantee and guarantee.unit == "person"


@pytest.mark.parametrize("Display", DISPLAYS)
def test_what_has_no_curve_is_refused(Display, released):
    match = f"must have the metric '{METRIC[Display]}'"
    for wrong in (0.5, released["accuracy"], {"accuracy": released["accuracy"]}):
        with pytest.raises(ValueError, match=match):
            Display.from_released(wrong)
    hidden = PrivateScore(METRIC[Display], np.nan, np.nan, np.nan, 0.95, 100)
    with pytest.raises(ValueError, match="noise hid"):
        Display.from_released(hidden)


@pytest.mark.parametrize("Display", DISPLAYS)
def test_without_matplotlib_nothing_is_released(monkeypatch, Display):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setattr("dpsubspace.metrics._evaluation.private_score", pytest.fail)
    with pytest.raises(ImportError, match=rf"{Display.__name__} needs matplotlib"):
        Display.from_estimator(MODEL, X[500:], Y[500:])


def test_a_band_has_two_ends():
    display = PrivateRocCurveDisplay(fpr=[0, 1], tpr=[0, 1], low=[0, 1])
    with pytest.raises(ValueError, match="`low` is one end of the band, and `high` is None"):
        display.plot()
