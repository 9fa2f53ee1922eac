"""Results and ledgers draw themselves, as their displays do."""

import numpy as np
import pandas as pd
import pytest
from helpers import blobs

from dpsubspace import (
    Categories,
    DPSGDFClassifier,
    PrivacyLedger,
    private_coefficients,
    private_counts,
    private_score,
)
from dpsubspace.budget import BudgetDisplay
from dpsubspace.metrics import PrivateCalibrationDisplay, PrivateRocCurveDisplay
from dpsubspace.statistics import CoefficientDisplay, PrivateCountsDisplay

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def scored():
    X, y = blobs(n=2000)
    y = np.minimum(y, 1)
    return DPSGDFClassifier(epsilon=5.0).fit(X[:1000], y[:1000]), X[1000:], y[1000:]


@pytest.mark.parametrize(
    ("metric", "display"),
    [
        ("roc_auc", PrivateRocCurveDisplay),
        ("roc_curve", PrivateRocCurveDisplay),
        ("calibration_curve", PrivateCalibrationDisplay),
    ],
)
def test_a_score_draws_its_curve(scored, metric, display):
    score = private_score(*scored, metric=metric, epsilon=1e4)
    found = score.plot()
    assert type(found) is display and found.level == score.level


def test_a_number_has_no_curve(scored):
    score = private_score(*scored, metric="accuracy", epsilon=100.0)
    with pytest.raises(ValueError, match=r"'accuracy' has no curve to draw: ask private_score"):
        score.plot()


def test_counts_and_coefficients_draw_themselves():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"ward": rng.choice(["A", "B"], 500), "ill": rng.integers(0, 2, 500)})
    schema = {"ward": ["A", "B"], "ill": Categories([0, 1])}
    counts = private_counts(table, schema, "ward", epsilon=10.0).plot()
    assert type(counts) is PrivateCountsDisplay and counts.ax_.get_xlabel() == "ward"
    found = private_coefficients(table, schema, target="ill", epsilon=1e4)
    assert type(found.plot()) is CoefficientDisplay and found.plot().odds
    with pytest.raises(ValueError, match="one column or two"):
        three = {**schema, "sex": ["f", "m"]}
        table = table.assign(sex=rng.choice(["f", "m"], 500))
        private_counts(table, three, list(three), epsilon=10.0).plot()


def test_a_ledger_draws_what_is_left(scored):
    _, X, y = scored
    with PrivacyLedger(3.0, delta=1e-6) as ledger:
        DPSGDFClassifier(epsilon=1.0).fit(X, y)
    drawn, again = ledger.plot(), BudgetDisplay.from_ledger(ledger)
    assert type(drawn) is BudgetDisplay and drawn.left == again.left and len(drawn.names) == 1


def test_axes_are_those_that_were_given(scored):
    import matplotlib.pyplot as plt

    ax = plt.figure().subplots()
    score = private_score(*scored, metric="roc_auc", epsilon=1e4)
    assert score.plot(ax, name="mine").ax_ is ax
