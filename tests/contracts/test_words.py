"""Words of scikit-learn that nothing here takes: the TypeError says what takes their place."""

import inspect

import pytest
from helpers import blobs

from dpsubspace import (
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    PrivateSearch,
    private_score,
    tabular_pipeline,
)
from dpsubspace._core.fits.call import explain_unknown_parameters
from dpsubspace.statistics import private_quantile


@pytest.mark.parametrize(
    ("call", "way_out"),
    [
        (lambda X, y: DPSGDFClassifier(early_stopping=True), "`n_iter`"),
        (lambda X, y: DPSGDClassifier(C=1.0), "`alpha`"),
        (lambda X, y: DPSGDFClassifier(sample_weight=y), "`class_weight`"),
        (lambda X, y: DPSGDRegressor(max_iter=5), "`n_iter`"),
        (lambda X, y: DPLinearRegression(max_iter=5), "steps .* cannot be set"),
        (lambda X, y: DPLinearRegression(C=5), "no penalty"),
        (lambda X, y: DPLinearRegression(alpha=5), "no penalty"),
        (lambda X, y: private_quantile(X, quantiles=[0.5]), "`level`"),
        (lambda X, y: private_score(DPSGDFClassifier(), X, y, scoring="f1"), "`metric`"),
        (lambda X, y: PrivateSearch(DPSGDFClassifier(), {}, cv=3), "`validation_fraction`"),
        (lambda X, y: DPLinearRegression().fit(X, y, y_public=y), "PublicSubspaceLinear"),
        (lambda X, y: DPSGDFClassifier().fit(X, y, sample_weight=y), "`class_weight`"),
        (
            lambda X, y: tabular_pipeline("regression", {"a": (0, 1)}).fit(X, y, sample_weight=y),
            "`class_weight`",
        ),
    ],
)
def test_the_way_out_is_said(call, way_out):
    with pytest.raises(TypeError, match=f"unexpected keyword argument .*: .*{way_out}"):
        call(*blobs(n=60))


def test_another_error_stays_as_it_is():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'colour'$"):
        DPSGDClassifier(colour=1.0)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        private_quantile(epsilon=1.0)


def test_what_is_refused_inside_of_a_fit_is_told_as_it_was_refused():
    """With its traceback, by which a ledger knows that a fit has failed."""

    def fit(*, y_public=None):
        return inner(y_public=y_public)

    def inner():
        pass

    with pytest.raises(TypeError, match=r"inner\(\) got an unexpected .* 'y_public'$") as caught:
        explain_unknown_parameters(fit)(y_public=1)
    assert [entry.name for entry in caught.traceback][-2:] == ["called", "fit"]


def test_parameters_that_are_named_as_the_way_out_exist():
    for estimator in (DPSGDClassifier, DPSGDFClassifier):
        assert {"n_iter", "alpha", "class_weight"} <= set(inspect.signature(estimator).parameters)
    assert "level" in inspect.signature(private_quantile).parameters
    assert "metric" in inspect.signature(private_score).parameters
    assert "validation_fraction" in inspect.signature(PrivateSearch).parameters
