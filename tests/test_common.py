"""Habits of scikit-learn, and of this package, for every shipped estimator."""

import inspect

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from helpers import CLASSIFIERS, ESTIMATORS, blobs, releases
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

import dpsubspace
from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPSGDFClassifier,
    TorchFeatures,
    _compat,
    _linear_model,
)

NEW = parse_version(sklearn.__version__) >= parse_version("1.9")
quiet = pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")


@quiet
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@parametrize_with_checks(
    [
        *(Estimator() for Estimator in ESTIMATORS),
        DPSGDFClassifier(preprocessing="auto"),
        BoundedScaler(),
        DPPCA(),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_every_estimator_is_tested():
    public = [getattr(dpsubspace, name) for name in dpsubspace.__all__]
    estimators = [e for e in public if inspect.isclass(e) and hasattr(e, "fit")]
    assert {e for e in estimators if hasattr(e, "get_params")} == {
        *ESTIMATORS,
        BoundedScaler,
        DPPCA,
        TorchFeatures,
    }


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_cost_is_known_before_the_fit(Classifier):
    X, y = blobs(n=400)
    for options in ({}, {"delta": 1e-6, "epsilon": 0.7}, {"epsilon": float("inf")}):
        model = Classifier(neighboring_relation="replace_one", **options)
        event = model.privacy_event(n_samples=len(X))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Classifier, "_warn", lambda *a: None)
            assert model.fit(X, y).privacy_.event == event


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_cost_names_the_size_that_it_lacks(Classifier):
    with pytest.raises(ValueError, match="n_samples"):
        Classifier().privacy_event()
    assert Classifier(delta=1e-5).privacy_event() == Classifier().privacy_event(n_samples=100)


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_fit_leaves_parameters_alone_and_clones_are_unfitted(Classifier):
    X, y = blobs(n=400)
    model = Classifier(epsilon=5.0, random_state=0, class_weight={0: 2.0}, classes=[0, 1, 2])
    before = repr(model.get_params())
    model.fit(X, y)
    assert repr(model.get_params()) == before
    copy = clone(model)
    assert not hasattr(copy, "privacy_") and repr(copy.get_params()) == before


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_data_frames_and_feature_names(Classifier):
    X, y = blobs(n=400)
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = Classifier(epsilon=5.0, random_state=0).fit(
        frame, pd.Series(y).map({0: "x", 1: "y", 2: "z"})
    )
    np.testing.assert_array_equal(model.feature_names_in_, list("abcde"))
    assert set(model.predict(frame)) <= {"x", "y", "z"}
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("edcba")])


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_pipeline_grid_search_and_calibration(Classifier):
    X, y = blobs(n=400)
    pipeline = make_pipeline(Normalizer(), Classifier(epsilon=5.0, random_state=0))
    name = Classifier.__name__.lower()
    grid = GridSearchCV(pipeline, {f"{name}__alpha": [1e-4, 1e-2]}, cv=2, n_jobs=2).fit(X, y)
    assert grid.best_score_ > 0.6
    assert grid.best_estimator_[-1].privacy_.epsilon == 5.0
    CalibratedClassifierCV(Classifier(epsilon=5.0), cv=2).fit(X, y).predict_proba(X)


@pytest.mark.parametrize("backend", ["threading", "multiprocessing"])
def test_guarantees_come_back_from_cross_validation(backend):
    X, y = blobs(n=400)
    with joblib.parallel_backend(backend, n_jobs=2):
        result = cross_validate(CLASSIFIERS[0](epsilon=5.0), X, y, cv=2, return_estimator=True)
    fitted = result["estimator"]
    assert all(model.privacy_.epsilon == 5.0 for model in fitted)
    assert not np.allclose(fitted[0].coef_, fitted[1].coef_)


def test_read_only_rows_are_left_alone():
    X, y = blobs(n=400)
    X.setflags(write=False)
    assert len(cross_val_predict(CLASSIFIERS[1](epsilon=5.0), X, y, cv=2)) == 400


@pytest.mark.skipif(not NEW, reason="scikit-learn has callbacks from 1.9")
@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_callbacks_see_every_step_and_no_data(Classifier):
    class Spy:
        def __init__(self):
            self.begins, self.seen = 0, []

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context, *, X, y, metadata):
            self.begins += 1
            self.seen += [X, y, metadata]

        def on_fit_task_end(self, estimator, context, *, X, y, metadata, fitted_estimator):
            self.seen += [X, y, metadata, fitted_estimator]

    X, y = blobs(n=400)
    spy = Spy()
    Classifier(epsilon=5.0, n_iter=7).set_callbacks(spy).fit(X, y)
    assert spy.begins == 8  # the fit and its steps
    assert all(value is None for value in spy.seen)


@pytest.mark.skipif(not NEW, reason="scikit-learn has callbacks from 1.9")
def test_a_stopped_fit_costs_what_was_planned():
    class Stopper:
        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context):
            pass

        def on_fit_task_end(self, estimator, context):
            return context.task_name == "step"

    X, y = blobs(n=400)
    model = CLASSIFIERS[0](epsilon=5.0, delta=1e-5).set_callbacks(Stopper()).fit(X, y)
    assert model.privacy_.event == model.privacy_event()


@pytest.mark.skipif(not NEW, reason="scikit-learn has callbacks from 1.9")
def test_progress_bar(capsys):
    from sklearn.callback import ProgressBar

    X, y = blobs(n=400)
    CLASSIFIERS[0](epsilon=5.0).set_callbacks(ProgressBar()).fit(X, y)
    assert "DPSGDClassifier" in capsys.readouterr().out


def test_fits_run_without_callback_support(monkeypatch):
    """What scikit-learn before 1.9 gives is a fit without callbacks."""
    after_step, finish = _compat.start_progress(object(), 3)
    assert after_step() is False
    finish()


@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_a_callback_cannot_change_what_is_charged(monkeypatch, Classifier):
    """Parameters that are set after the budget is fixed do not reach the releases."""
    options = {"epsilon": 5.0, "n_iter": 7, "neighboring_relation": "replace_one"}
    X, y = blobs(n=400)

    def fitted():
        model = Classifier(random_state=0, **options)
        with releases(monkeypatch) as seen:
            model.fit(X, y)
        return model, [(multiplier, out) for _, out, multiplier in seen]

    def meddle(estimator, n_iter):
        estimator.set_params(n_iter=5000, epsilon=float("inf"), neighboring_relation="zero_out")
        return (lambda: False), (lambda: None)

    honest, expected = fitted()
    monkeypatch.setattr(_linear_model, "start_progress", meddle)
    model, seen = fitted()
    assert model.privacy_ == honest.privacy_
    np.testing.assert_equal(seen, expected)
    np.testing.assert_array_equal(model.coef_, honest.coef_)
