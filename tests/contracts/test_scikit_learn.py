"""Habits of scikit-learn, and of this package, for every shipped estimator."""

from collections import Counter
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from cases import CASES, WITHOUT_RELEASES, small_module
from helpers import (
    CLASSIFIERS,
    ESTIMATORS,
    GEP,
    RELATIONS,
    blobs,
    multipliers,
    pairs_first,
    public_rows,
    releases,
    replaced,
)
from salted import plain_states
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
)
from dpsubspace._core.ground import compat
from dpsubspace._core.rows.public import PublicRows
from dpsubspace._names import PLACES, imported
from dpsubspace.exceptions import PublicDataWarning
from dpsubspace.linear_model import (
    GEPRegressor,
    GradientDirections,
    PersonalizedLinearRegression,
    PersonalizedLogisticRegression,
)
from dpsubspace.neural_network import DPModuleClassifier, DPModuleRegressor

NEW = parse_version(sklearn.__version__) >= parse_version("1.9")
MODULES = [DPModuleClassifier, DPModuleRegressor]
uninformed = pytest.mark.filterwarnings(
    "ignore:(GEP|PublicSubspace):dpsubspace.exceptions.PublicDataWarning"
)
quiet = pytest.mark.filterwarnings(
    "ignore:(the (noise|released mean)|class):dpsubspace.PrivacyWarning"
)


class _OfAnyShape:
    """Trains a module that fits the data: checks have data of many shapes."""

    def _fit_by(self, plan, X, y, **options):
        module = self.module
        try:
            rows, targets = np.asarray(X), np.asarray(y)
            n_outputs = targets.size // len(targets)
            if is_classifier(self):
                n_classes = len(np.unique(targets))
                n_outputs = 1 if n_classes == 2 else n_classes
            module = small_module(max(1, rows.shape[1]), n_outputs).double()
        except (IndexError, TypeError, ValueError, ZeroDivisionError):
            pass  # data that are refused
        return super()._fit_by(replace(plan, module=module), X, y, **options)


class ModuleClassifier(_OfAnyShape, DPModuleClassifier):
    """DPModuleClassifier for any number of features and classes."""


class ModuleRegressor(_OfAnyShape, DPModuleRegressor):
    """DPModuleRegressor for any number of features and targets."""


def checked():
    """Every estimator with its defaults, modules where torch is there."""
    plain = {case.build: 0 for case in CASES if not (case.is_function or case.module)}
    each_row = {"missing_groups": "each_row"}
    groups = {PersonalizedLinearRegression: each_row, PersonalizedLogisticRegression: each_row}
    yield from (Estimator(**groups.get(Estimator, {})) for Estimator in plain)
    if find_spec("torch"):
        yield ModuleClassifier(small_module(1, 1), epsilon=1e3, n_iter=30)
        yield ModuleRegressor(small_module(1, 1), n_iter=30)


def known_to_fail(estimator):
    """Checks that ask what cannot be."""
    if getattr(estimator, "module", None) is None:
        return {}
    return {"check_estimators_overwrite_params": "pickles of tensors have addresses in them"}


def checks_in_turns():
    """scikit-learn's checks, each of one estimator and of every eighth that it is for.

    Which these are differs from check to check. Those of others are exhaustive.
    """
    whole = parametrize_with_checks([*checked()], expected_failed_checks=known_to_fail)
    names, rows = whole.args
    places, rows_of = Counter(), []
    for row in rows:
        values, marks = getattr(row, "values", row), [*getattr(row, "marks", ())]
        name = values[1].func.__name__
        turn = places[name] + len(name)
        if places[name] and turn % 8:
            marks += [pytest.mark.exhaustive] + [pytest.mark.odd] * (turn % 2)
        places[name] += 1
        rows_of.append(pytest.param(*values, marks=marks))
    return pytest.mark.parametrize(names, rows_of, **whole.kwargs)


@quiet
@uninformed
@pytest.mark.filterwarnings("ignore:this copy of a Personalized:dpsubspace.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@checks_in_turns()
def test_scikit_learn_checks(estimator, check):
    """Scores of classifiers are to be above 0.83 on rows that are drawn by a literal seed.

    Of 30 seeds of the noise, they had means of 0.92 and deviations of 0.01.
    """
    with plain_states():
        check(estimator)


@quiet
@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@parametrize_with_checks([DPSGDFClassifier(preprocessing="practical")])
def test_scikit_learn_checks_of_versions(estimator, check):
    with plain_states():  # as above
        check(estimator)


def test_everything_public_that_fits_is_in_the_table():
    public = {name: imported(name) for name in PLACES}
    estimators = {
        name for name, e in public.items() if hasattr(e, "fit") and hasattr(e, "get_params")
    }
    functions = {name for name in public if name.startswith(("private_", "select_"))}
    rows = {case.name.split(",")[0] for case in CASES}
    assert estimators | functions == rows | set(WITHOUT_RELEASES)


@quiet
@uninformed
@pytest.mark.parametrize("Classifier", [*CLASSIFIERS, GEPClassifier])
def test_cost_is_known_before_the_fit(Classifier):
    X, y = blobs(n=400)
    for options in ({}, {"delta": 1e-6, "epsilon": 0.7}, {"epsilon": float("inf")}):
        model = Classifier(neighboring_relation="replace_one", **options)
        event = model.privacy_event(n_samples=len(X))
        assert model.fit(X, y).privacy_.event == event


@uninformed
@pytest.mark.parametrize("Classifier", [*CLASSIFIERS, GEPClassifier])
def test_cost_names_the_size_that_it_lacks(Classifier):
    with pytest.raises(ValueError, match="n_samples"):
        Classifier().privacy_event()
    if Classifier is DPSGDFClassifier:  # whose preprocessing follows from it
        Classifier = partial(Classifier, preprocessing="practical")
    assert Classifier(delta=1e-5).privacy_event() == Classifier().privacy_event(n_samples=100)


@uninformed
@pytest.mark.parametrize("Classifier", [*CLASSIFIERS, GEPClassifier])
def test_fit_leaves_parameters_alone_and_clones_are_unfitted(Classifier):
    X, y = blobs(n=400)
    model = Classifier(epsilon=5.0, random_state=0, class_weight={0: 2.0}, classes=[0, 1, 2])
    before = repr(model.get_params())
    model.fit(X, y)
    assert repr(model.get_params()) == before
    copy = clone(model)
    assert not hasattr(copy, "privacy_") and repr(copy.get_params()) == before


@uninformed
@pytest.mark.parametrize("Classifier", [*CLASSIFIERS, GEPClassifier])
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


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("Classifier", CLASSIFIERS)
def test_pipeline_grid_search_and_calibration(Classifier):
    X, y = blobs(n=400)
    pipeline = make_pipeline(Normalizer(), Classifier(epsilon=5.0, random_state=0))
    name = Classifier.__name__.lower()
    grid = GridSearchCV(pipeline, {f"{name}__alpha": [1e-4, 1e-2]}, cv=2, n_jobs=2).fit(X, y)
    assert grid.best_score_ > 0.6
    assert grid.best_estimator_[-1].privacy_.epsilon == 5.0
    CalibratedClassifierCV(Classifier(epsilon=5.0), cv=2).fit(X, y).predict_proba(X)


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("backend", ["threading", "multiprocessing"])
def test_guarantees_come_back_from_cross_validation(backend):
    X, y = blobs(n=400)
    with joblib.parallel_backend(backend, n_jobs=2):
        result = cross_validate(CLASSIFIERS[0](epsilon=5.0), X, y, cv=2, return_estimator=True)
    fitted = result["estimator"]
    assert all(model.privacy_.epsilon == 5.0 for model in fitted)
    assert not np.allclose(fitted[0].coef_, fitted[1].coef_)


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
def test_read_only_rows_are_left_alone():
    X, y = blobs(n=400)
    X.setflags(write=False)
    assert len(cross_val_predict(CLASSIFIERS[1](epsilon=5.0), X, y, cv=2)) == 400


@pytest.mark.skipif(not NEW, reason="scikit-learn has callbacks from 1.9")
@uninformed
@pytest.mark.parametrize("Classifier", [*CLASSIFIERS, GEPClassifier, DPModuleClassifier])
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
    options = {"module": small_module(5, 3)} if Classifier is DPModuleClassifier else {}
    Classifier(epsilon=5.0, n_iter=7, **options).set_callbacks(spy).fit(X, y)
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
    after_step, finish = compat.start_progress(object(), 3)
    assert after_step() is False
    finish()


@uninformed
@pytest.mark.parametrize("Classifier", [*CLASSIFIERS, GEPClassifier, DPModuleClassifier])
def test_a_callback_cannot_change_what_is_charged(monkeypatch, Classifier):
    """Parameters that are set after the budget is fixed do not reach the releases."""
    options = {"epsilon": 5.0, "n_iter": 7, "neighboring_relation": "replace_one"}
    if Classifier is DPModuleClassifier:
        options["module"] = small_module(5, 3)
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
    replaced(monkeypatch, compat.start_progress, meddle)
    model, seen = fitted()
    assert model.privacy_ == honest.privacy_
    np.testing.assert_equal(seen, expected)
    np.testing.assert_array_equal(model.predict_proba(X), honest.predict_proba(X))


# Public rows through scikit-learn ----------------------------------------------------------

# Over 25 draws of the rows accuracy is 0.87 with a deviation of 0.08, R2 0.76 with one of 0.18.
INFORMED = [(GEPClassifier(epsilon=9.0, n_components=3), 0.35), (GEPRegressor(epsilon=9.0), -0.4)]
P, Q = public_rows(5, m=50)


@pytest.fixture(params=[False, True], ids=["plain", "routed"])
def routing(request):
    with sklearn.config_context(enable_metadata_routing=request.param):
        yield request.param


@pytest.fixture
def public_fits(monkeypatch):
    """Shapes of the public sets that fits get, and of their labels."""
    seen = []

    def recording(sets, targets):
        seen.append(([rows.shape for rows in sets], None if targets is None else len(targets)))
        return original(sets, targets)

    original = PublicRows.of
    monkeypatch.setattr(PublicRows, "of", recording)
    return seen


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize(("model", "floor"), INFORMED, ids=str)
def test_public_rows_reach_every_fold_whole(routing, public_fits, model, floor):
    X, y = blobs(n=400)
    params = {"X_public": (P,), "y_public": (Q,)}
    options = {"cv": 3, "params": params, "return_estimator": True}
    result = cross_validate(model.set_params(random_state=0), X, y, **options)
    assert public_fits == [([(50, 5)], 50)] * 3
    assert np.mean(result["test_score"]) > floor
    assert all("50 rows of X_public" in e.privacy_.details() for e in result["estimator"])
    grid = GridSearchCV(model, {"n_components": [0, 2]}, cv=2).fit(X, y, **params)
    assert len(public_fits) == 3 + 2 * 2 + 1 and public_fits[-1] == ([(50, 5)], 50)
    assert grid.best_estimator_.privacy_.epsilon == 9.0


def test_several_public_sets_are_one(routing, public_fits):
    X, y = blobs(n=200)
    options = {"epsilon": 9.0, "random_state": 0}
    sets = {"X_public": (P[:20], P[20:]), "y_public": (Q[:20], Q[20:])}
    one = GEPClassifier(**options).fit(X, y, X_public=P, y_public=Q)
    other = GEPClassifier(**options).fit(X, y, **sets)
    assert public_fits[1] == ([(20, 5), (30, 5)], 50)
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_rows_in_a_pipeline_without_routing_go_by_the_name_of_the_step(public_fits):
    X, y = blobs(n=200)
    pipeline = make_pipeline(Normalizer(), GEPClassifier(epsilon=9.0))
    pipeline.fit(X, y, gepclassifier__X_public=(Normalizer().transform(P),))
    assert public_fits == [([(50, 5)], None)]


def test_a_pipeline_transforms_public_rows_with_routing(monkeypatch):
    """scikit-learn's `transform_input`: what private rows go through, public ones do."""
    X, y = blobs(n=250)
    X, y, public = X[50:], y[50:], X[:50]
    # Public rows like the private ones, so that the scaler centres these: no column is far from 0.
    scaler, model = StandardScaler().fit(public), GEPClassifier(epsilon=9.0, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(
            FrozenEstimator(scaler), clone(model), transform_input=["X_public"]
        ).fit(X, y, X_public=(public,))
    by_hand = clone(model).fit(scaler.transform(X), y, X_public=(scaler.transform(public),))
    np.testing.assert_allclose(pipeline[-1].coef_, by_hand.coef_, rtol=1e-12)
    frozen = make_pipeline(FrozenEstimator(scaler), clone(model))
    frozen.fit(X, y, gepclassifier__X_public=(scaler.transform(public),))
    np.testing.assert_array_equal(frozen[-1].coef_, by_hand.coef_)


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
@pytest.mark.filterwarnings("ignore:.*sets the `random_state`:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("Meta", [OneVsRestClassifier, BaggingClassifier])
def test_meta_estimators_hand_public_rows_on_with_routing(public_fits, Meta):
    X, y = blobs(n=200)
    meta = Meta(GEPClassifier(epsilon=9.0, delta=1e-5))
    with sklearn.config_context(enable_metadata_routing=True):
        meta.fit(X, y, X_public=(P,))
    assert len(public_fits) >= 3 and all(fit == ([(50, 5)], None) for fit in public_fits)


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
@pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")  # of 100 rows a fold
@pytest.mark.parametrize("Estimator", GEP)
def test_a_bare_array_as_long_as_the_private_rows_warns(routing, Estimator):
    X, y = blobs(n=200)
    rows = public_rows(5, m=200)[0]
    with pytest.warns(PublicDataWarning, match=r"as long as `X`.*X_public=\(X_public,\)") as caught:
        Estimator(epsilon=9.0).fit(X, y, X_public=rows)
    assert {w.filename for w in caught} == {__file__}
    Estimator(epsilon=9.0).fit(X, y, X_public=(rows,))  # never sliced: no warning
    with pytest.warns(PublicDataWarning, match="as long as"):
        cross_validate(Estimator(epsilon=9.0), X, y, cv=2, params={"X_public": rows})


@pytest.mark.parametrize("Estimator", GEP)
def test_a_fit_without_public_rows_warns_where_it_was_called(Estimator):
    with pytest.warns(PublicDataWarning, match=rf"{Estimator.__name__} got no public") as caught:
        Estimator(epsilon=9.0).fit(*blobs(n=200))
    assert {w.filename for w in caught} == {__file__}


@pytest.mark.parametrize("Estimator", GEP)
def test_public_data_frames_must_have_the_columns_of_the_private_one(Estimator):
    X, y = blobs(n=200)
    frame, public = (pd.DataFrame(rows, columns=list("abcde")) for rows in (X, P))
    model = Estimator(epsilon=9.0, random_state=0)
    framed = clone(model).fit(frame, y, X_public=(public,), y_public=(pd.Series(Q),))
    plain = clone(model).fit(X, y, X_public=(P,), y_public=(Q,))
    np.testing.assert_allclose(framed.coef_, plain.coef_, rtol=1e-9)
    with pytest.raises(ValueError, match=r"X_public\[0\].*feature names"):
        clone(model).fit(frame, y, X_public=(public[list("edcba")],))


WAYS = [
    {},
    {"directions": GradientDirections()},
    {"n_components": 2},
    {"n_components": 2, "init": "zero"},
    {"batch_size": 100},
]


@uninformed
@pytest.mark.parametrize(
    ("Estimator", "options", "relation", "informed"),
    pairs_first(GEP, WAYS, RELATIONS, [False, True], together=(1, 3)),
    ids=str,
)
def test_public_rows_change_no_cost(Estimator, options, relation, informed):
    X, y = blobs(n=400)
    options = {"n_iter": 9, "epsilon": 5.0, "neighboring_relation": relation, **options}
    model = Estimator(**options)
    n_outputs = 3 if is_classifier(model) else 1
    sizes = {"n_samples": 400, "n_features": 5, "n_outputs": n_outputs}
    event = model.privacy_event(**sizes, n_public=len(P) * informed, labelled=informed)
    model.fit(X, y, **({"X_public": (P,), "y_public": (Q,)} if informed else {}))
    assert model.privacy_.event == event
    if not model.batch_size:  # the same budget in any event
        costs = (sum(m**-2 for m in multipliers(e)) for e in (event, model.privacy_event(**sizes)))
        assert next(costs) == pytest.approx(next(costs))
    assert (f"{len(P)} rows of X_public and of y_public" in model.privacy_.public) == informed


# In notebooks -------------------------------------------------------------------------------


@pytest.mark.parametrize("Estimator", [DPSGDClassifier, DPSGDRegressor, BoundedScaler, DPPCA])
def test_the_guarantee_stands_below_the_diagram(Estimator):
    X, y = blobs(n=400)
    model = Estimator(epsilon=3.0, random_state=0)
    statement = "epsilon = 3"
    for html in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert Estimator.__name__ in html and statement not in html
    model.fit(X, y)
    for html in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        diagram, found, below = html.partition("<table><caption>")
        assert Estimator.__name__ in diagram and found
        assert statement in below and "this fit only" in below
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]


def test_nothing_of_the_guarantee_is_taken_for_html():
    X, y = blobs(n=400)
    model = DPSGDClassifier(epsilon=3.0, random_state=0).fit(X, y)
    model.privacy_ = replace(model.privacy_, public=("<script>alert(1)</script>",))
    below = model._repr_html_().partition("<table><caption>")[2]
    assert "<script>" not in below and "&lt;script&gt;" in below


@pytest.mark.parametrize("Estimator", [*ESTIMATORS, *GEP, *MODULES])
def test_errors_of_python_name_no_class_that_users_do_not_know(Estimator):
    X, y = blobs(n=30)
    for call in (lambda: Estimator(eps=1), lambda: Estimator().fit(X, y, group=y)):
        with pytest.raises(TypeError) as caught:
            call()
        assert "Linear" not in str(caught.value) and "Private" not in str(caught.value)
