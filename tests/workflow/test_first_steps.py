"""What somebody meets who uses a ledger, scores and reports for the first time."""

import numpy as np
import pytest

from dpsubspace import DPSGDClassifier, PrivacyLedger, PrivateSearch, privacy_report, private_score
from dpsubspace.exceptions import PrivacyBudgetError
from dpsubspace.statistics import private_quantile

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
Y = np.where(X[:, 0] + RNG.normal(size=600) > 0, "ill", "well")


@pytest.fixture(scope="module")
def model():
    return DPSGDClassifier(epsilon=1.0).fit(X[:300], Y[:300])


def test_scores_before_and_after_a_fit_add_up_where_epsilon_was_set_apart(model):
    with PrivacyLedger(epsilon=2.0, delta=1e-5, pure_epsilon=0.5) as ledger:
        DPSGDClassifier(epsilon=1.0).fit(X, Y)
        private_score(model, X[300:], Y[300:], epsilon=0.3)
        private_score(model, X[300:], Y[300:], epsilon=0.2)
    assert ledger.epsilon() == pytest.approx(1.5, abs=1e-6)
    assert [entry.label for entry in ledger.entries[1:]] == ["private_score"] * 2


def test_refused_release_without_delta_names_what_should_have_been_set_apart(model):
    with PrivacyLedger(epsilon=1.0, delta=1e-5) as ledger:
        DPSGDClassifier(epsilon=0.8).fit(X, Y)
        with pytest.raises(PrivacyBudgetError, match=r"^private_score .*pure_epsilon=0\.19\)"):
            private_score(model, X[300:], Y[300:], epsilon=0.19)
        for epsilon in (0.9, 0.3):  # it would not help there
            with pytest.raises(PrivacyBudgetError) as refused:
                if epsilon > 0.5:
                    DPSGDClassifier(epsilon=epsilon).fit(X, Y)
                else:
                    private_score(model, X[300:], Y[300:], epsilon=epsilon)
            assert "pure_epsilon" not in str(refused.value)
    assert len(ledger) == 1
    with PrivacyLedger(epsilon=1.0, delta=1e-5, pure_epsilon=0.19) as ledger:
        DPSGDClassifier(epsilon=0.8).fit(X, Y)
        private_score(model, X[300:], Y[300:], epsilon=0.19)
    assert len(ledger) == 2


@pytest.mark.parametrize("epsilon", [0.7, 0.9])
def test_what_to_set_apart_is_named_where_a_fit_and_a_score_are_the_budget(model, epsilon):
    score = {"metric": "accuracy", "epsilon": round(1 - epsilon, 3)}
    with PrivacyLedger(epsilon=1.0, delta=1e-5):
        DPSGDClassifier(epsilon=epsilon).fit(X, Y)
        with pytest.raises(PrivacyBudgetError, match=rf"pure_epsilon={score['epsilon']}\)"):
            private_score(model, X[300:], Y[300:], **score)
    with PrivacyLedger(epsilon=1.0, delta=1e-5, pure_epsilon=score["epsilon"]) as ledger:
        DPSGDClassifier(epsilon=epsilon).fit(X, Y)
        private_score(model, X[300:], Y[300:], **score)
    assert len(ledger) == 2


@pytest.mark.parametrize(("epsilon", "left"), [(1.0, "Nothing is left"), (0.99, "What is left is")])
def test_a_score_after_a_fit_of_nearly_all_is_told_what_is_left_and_what_to_do(
    model, epsilon, left
):
    with PrivacyLedger(epsilon=1.0, delta=1e-5):
        DPSGDClassifier(epsilon=epsilon).fit(X, Y)
        with pytest.raises(PrivacyBudgetError, match="a smaller one for the first fit") as refused:
            private_score(model, X[300:], Y[300:], metric="accuracy", epsilon=0.1)
    assert left in str(refused.value)
    assert "such as scores." not in str(refused.value)


def test_a_fit_and_a_score_add_up_with_no_setting_beforehand(model):
    with PrivacyLedger(epsilon=1.5, delta=1e-5) as ledger:
        DPSGDClassifier(epsilon=1.0).fit(X, Y)
        private_score(model, X[300:], Y[300:], epsilon=0.45)
        with pytest.raises(
            PrivacyBudgetError, match=r"budget\. What is left .* epsilon=0\.0\d+ at"
        ):
            DPSGDClassifier(epsilon=0.5).fit(X, Y)
    assert ledger.epsilon() == pytest.approx(1.45, abs=1e-6)


def test_refused_search_names_what_should_have_been_set_apart():
    candidates = {"loss": ["log_loss", "hinge"], "row_norm": ["l2", 1.0, 2.0]}
    first = DPSGDClassifier(epsilon=1.0, n_iter=2)
    search = PrivateSearch(DPSGDClassifier(n_iter=2), candidates, epsilon=1.0)
    with PrivacyLedger(epsilon=3.0, delta=1e-5, pure_epsilon=0.5):
        first.fit(X, Y)
        with pytest.raises(
            PrivacyBudgetError, match=r"epsilon=0\.5 was set aside for such"
        ) as refused:
            search.fit(X, Y)
    named = str(refused.value).split("pure_epsilon=")[1].split(")")[0]
    with PrivacyLedger(epsilon=3.0, delta=1e-5, pure_epsilon=float(named)) as ledger:
        first.fit(X, Y)
        search.fit(X, Y)
    assert len(ledger) == 2


def test_ledger_of_a_block_is_reported():
    with PrivacyLedger(epsilon=1.0, delta=1e-5) as ledger:
        DPSGDClassifier(epsilon=0.5).fit(X, Y)
    report = privacy_report(ledger)
    assert report.holds
    assert "DPSGDClassifier" in str(report)


def test_what_was_released_prints_as_text(model):
    scores = private_score(model, X[300:], Y[300:], metric=["accuracy", "roc_auc"], epsilon=1.0)
    first, second, below = str(scores).splitlines()
    assert first.startswith("accuracy = ")
    assert second.startswith("roc_auc = ")
    assert below.startswith("(epsilon = 1)-differentially private per row")
    assert str(scores.privacy_).startswith("(epsilon = 1)-differentially private per row")
    median = private_quantile(X[:, 0], 0.5, bounds=(-4, 4), epsilon=1.0)
    assert str(median).startswith(f"{median.value}\n(epsilon = 1, delta = 1e-05)-")


def test_metrics_of_the_other_kind_of_model_name_the_way_out(model):
    with pytest.raises(ValueError, match="Of a classifier ask for another `metric`"):
        private_score(model, X, Y, metric="r2")
    with pytest.raises(ValueError, match="'accuracy' is one of classifiers: pass another"):
        private_score(model, X, X[:, 0], target_bounds=(-4, 4))


def test_ledger_in_a_folder_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        PrivacyLedger(1.0, 1e-5, path=tmp_path)
