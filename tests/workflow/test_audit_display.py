"""The picture of audits: its artists, and what it says."""

import sys

import numpy as np
import pytest
from helpers import blobs

from dpsubspace import BoundedScaler, DPSGDClassifier, PrivacyError, private_mean
from dpsubspace.audit import AuditDisplay, AuditResult

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


def result(bound, **options):
    counts = {"n_canaries": 200, "n_guesses": 100, "n_correct": 60}
    claim = {"epsilon_claimed": 1.0, "delta": 1e-5, "confidence": 0.95}
    return AuditResult(epsilon_lower_bound=bound, **counts, **claim, **options)


def test_bounds_claims_and_what_could_be_shown_are_drawn():
    results = [result(0.3, name="sound"), result(1.7, name="broken")]
    display = AuditDisplay.from_results(results)
    assert [bar.get_width() for bar in display.bars_] == [0.3, 1.7]
    np.testing.assert_array_equal(display.claims_.get_xdata(), [1.0, 1.0])
    np.testing.assert_allclose(display.reachable_.get_xdata(), [3.487, 3.487], atol=1e-3)
    sound, broken = (bar.get_facecolor() for bar in display.bars_)
    assert broken[0] > broken[2] and sound[0] < sound[2]  # one is red
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["sound", "broken"]
    words = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert any("95%" in text for text in words) and "claimed" in words
    assert display.ax_.yaxis_inverted() and display.figure_ is display.ax_.figure


def test_axes_names_and_options_can_be_given():
    _, ax = plt.subplots()
    options = {"bar_kw": {"color": "black"}, "claim_kw": {"marker": "x"}}
    options["reachable_kw"] = {"color": "blue"}
    display = AuditDisplay.from_results([result(0.3)], names=["ours"], ax=ax, **options)
    assert display.ax_ is ax and display.claims_.get_marker() == "x"
    assert display.reachable_.get_color() == "blue"
    assert display.plot() is display and display.ax_ is not ax


def test_estimators_are_audited():
    X, y = blobs(n=60)
    audited = {"classes": DPSGDClassifier(delta=1e-5), "mean": private_mean}
    display = AuditDisplay.from_estimators(
        audited, X, y, audit_params={"n_canaries": 40}, random_state=0
    )
    assert display.names == ["classes", "mean"]
    assert [each.n_canaries for each in display.results] == [40, 40]
    assert [each.name for each in display.results] == ["DPSGDClassifier", "private_mean"]
    with pytest.raises(PrivacyError, match="one_run"):
        AuditDisplay.from_estimators({"it": BoundedScaler()}, X, audit_params={"method": "one_run"})
    with pytest.raises(ValueError, match="a parameter of its own here"):
        AuditDisplay.from_estimators(audited, X, y, audit_params={"random_state": 0})


@pytest.mark.parametrize("options", [{"results": []}, {"results": [result(1.0)], "names": []}])
def test_names_and_results_must_match(options):
    with pytest.raises(ValueError, match="`results` must hold"):
        AuditDisplay.from_results(**options)


def test_without_matplotlib_nothing_is_fitted(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"AuditDisplay needs matplotlib.*dpsubspace\[plot\]"):
        AuditDisplay.from_estimators({"none": None}, [[0.0]])
