"""The picture of a budget: its bars are what was charged, and add up to the budget."""

import math

import numpy as np
import pytest
from helpers import blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpsubspace import (
    BoundedScaler,
    DPSGDClassifier,
    DPSGDFClassifier,
    PrivacyError,
    PrivacyLedger,
    private_score,
    select_public,
)
from dpsubspace._core.accounting.cost import gaussian_epsilon, gaussian_sq_mu
from dpsubspace._core.accounting.events import non_private
from dpsubspace.budget import BudgetDisplay
from dpsubspace.statistics import private_quantile

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

pytestmark = pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")

X, Y = blobs(n=300)
QUICK = {"n_iter": 3, "delta": 1e-5}


@pytest.fixture
def ledger():
    found = PrivacyLedger(epsilon=2.0, delta=1e-5, pure_epsilon=0)
    found.fit(DPSGDClassifier(n_iter=3), X, Y, label="readmission")
    found.run(private_quantile, X[:, 0], 0.5, epsilon=0.3, bounds=(-9, 9), label="median")
    return found


def names_of(display):
    return [label.get_text() for label in display.ax_.get_yticklabels()]


def test_bars_of_a_ledger_add_up_to_its_budget(ledger):
    display = BudgetDisplay.from_ledger(ledger)
    assert names_of(display) == ["readmission", "median", "left"]
    np.testing.assert_allclose(display.epsilons, [1.0, 0.3], rtol=1e-6)
    whole = gaussian_sq_mu(2.0, 1e-5 - ledger.slack)
    expected = [gaussian_sq_mu(epsilon, 1e-5) / whole for epsilon in (1.0, 0.3)]
    np.testing.assert_allclose(display.shares, expected, rtol=1e-3)
    left, width = np.array([(bar.get_x(), bar.get_width()) for bar in display.bars_]).T
    np.testing.assert_allclose(left[1:], np.cumsum(width)[:-1])  # each begins where one ended
    assert np.sum(width) == pytest.approx(1.0)
    assert display.bars_[-1].get_hatch() and not display.bars_[0].get_hatch()
    assert "1.06 of 2 spent" in display.ax_.get_title(loc="left")
    assert display.figure_ is display.ax_.figure


def test_epsilon_grows_from_bar_to_bar_to_the_budget(ledger):
    display = BudgetDisplay.from_ledger(ledger, kind="epsilon")
    ends = [bar.get_x() + bar.get_width() for bar in display.bars_]
    np.testing.assert_allclose(ends, [1.0, ledger.epsilon(), 2.0], rtol=1e-3)
    assert display.text_[1].get_text().endswith("(epsilon 0.3 alone)")
    assert "delta = 1e-05" in display.ax_.get_xlabel()


def test_a_spent_and_an_empty_ledger_are_drawn():
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    assert names_of(BudgetDisplay.from_ledger(ledger)) == ["left"]
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5, slack=0.0)
    ledger.fit(DPSGDClassifier(epsilon=1.0, n_iter=3), X, Y)
    display = BudgetDisplay.from_ledger(ledger)
    assert display.shares.sum() == pytest.approx(1.0, abs=1e-6)


def test_what_has_no_delta_and_what_runs_on_batches_is_drawn():
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-5)
    model = DPSGDClassifier(epsilon=1.0, n_iter=20, batch_size=50)
    ledger.fit(model, X, Y, label="batches")
    candidates = {name: blobs(n=50, seed=seed)[0] for seed, name in enumerate("ab", start=1)}
    ledger.run(select_public, candidates, X, n_components=2, epsilon=0.2, label="choice")
    display = BudgetDisplay.from_ledger(ledger)
    assert display.epsilons[0] == pytest.approx(1.0, rel=0.1)
    assert 0 < display.shares[1] < display.shares[0] < 1


def test_what_is_charged_by_its_epsilon_is_drawn_so():
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5, pure_epsilon=0.5)
    with ledger:
        model = DPSGDClassifier(epsilon=1.0, n_iter=3).fit(X, Y)
    half = BudgetDisplay.from_ledger(ledger)
    with ledger:
        private_score(model, X, Y, epsilon=0.4)
    display = BudgetDisplay.from_ledger(ledger)
    np.testing.assert_allclose(display.epsilons, [1.0, 0.4], rtol=1e-3)
    whole, beside = gaussian_sq_mu(2.0, 1e-5), gaussian_sq_mu(1.6, 1e-5)
    assert display.shares[1] == pytest.approx(1 - beside / whole, rel=2e-2)
    assert half.shares[0] == pytest.approx(display.shares[0], rel=1e-2)  # bars keep their size


def test_releases_of_one_fit_have_their_names():
    display = BudgetDisplay.from_estimator(DPSGDFClassifier(**QUICK).fit(X, Y))
    assert names_of(display) == ["mean", "intercept", "steps"]
    assert display.left == 0 and display.shares.sum() == pytest.approx(1.0)
    total = gaussian_epsilon(float(np.sum(display.sq_mus)), 1e-5)
    assert total == pytest.approx(1.0, rel=1e-6)


def test_steps_fits_and_plans_are_drawn():
    model = make_pipeline(BoundedScaler(epsilon=0.5, delta=1e-5), DPSGDClassifier(**QUICK))
    plan = BudgetDisplay.from_estimator(model, n_samples=300)
    fitted = BudgetDisplay.from_estimator(model.fit(X, Y))
    assert names_of(plan) == names_of(fitted) == ["boundedscaler", "dpsgdclassifier"]
    np.testing.assert_allclose(fitted.epsilons, [0.5, 1.0], rtol=1e-6)
    search = GridSearchCV(DPSGDClassifier(**QUICK), {"epsilon": [0.5, 1.0]}, cv=3).fit(X, Y)
    display = BudgetDisplay.from_estimator(search)
    assert len(display.names) == 3 and "(3 fits)" in display.names[0]
    assert "no guarantee for the whole" in display.ax_.get_title(loc="left")


def test_a_scaler_nobody_paid_for_is_in_the_title():
    model = make_pipeline(StandardScaler(), DPSGDClassifier(**QUICK)).fit(X, Y)
    assert "no guarantee" in BudgetDisplay.from_estimator(model).ax_.get_title(loc="left")


def test_many_bars_end_in_one():
    display = BudgetDisplay(names=[f"fit {i}" for i in range(60)], sq_mus=np.ones(60), left=40.0)
    assert display.plot() is display
    assert len(display.bars_) == 25 and names_of(display)[-2:] == ["37 more", "left"]
    assert display.bars_[-2].get_width() == pytest.approx(0.37)


def test_it_draws_in_given_axes_as_told(ledger):
    _, ax = plt.subplots()
    display = BudgetDisplay.from_ledger(
        ledger, ax=ax, bar_kw={"color": "red"}, left_kw={"hatch": "x"}, text_kw={"color": "blue"}
    )
    assert display.ax_ is ax and display.text_[0].get_color() == "blue"
    assert display.bars_[0].get_facecolor()[:3] == (1, 0, 0)
    assert display.bars_[-1].get_hatch() == "x"
    display.figure_.savefig("/dev/null", format="png")


def test_what_is_not_private_is_refused():
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    ledger.charge(non_private(), neighboring_relation="zero_out", already_released=True)
    with pytest.raises(PrivacyError, match="there is nothing to draw"):
        BudgetDisplay.from_ledger(ledger)
    with pytest.raises(PrivacyError, match="from_ledger draws a PrivacyLedger, not int"):
        BudgetDisplay.from_ledger(3)
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"kind": "bars"}, "`kind` must be one of"),
        ({"sq_mus": [1.0, 2.0]}, "one finite number of at least 0 for each of the 1 names"),
        ({"sq_mus": [math.inf]}, "one finite number"),
        ({"left": -1.0}, "`left` must be a number"),
        ({"delta": 0.0}, "`delta` must be a number"),
    ],
)
def test_errors_of_plot(options, match):
    given = {"names": ["a"], "sq_mus": [1.0]} | options
    kind = given.pop("kind", "share")
    with pytest.raises(ValueError, match=match):
        BudgetDisplay(**given).plot(kind=kind)
    assert plt.get_fignums() == []


def test_without_matplotlib_the_error_names_the_extra(monkeypatch, ledger):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "dpsubspace\[plot\]"'):
        BudgetDisplay.from_ledger(ledger)
