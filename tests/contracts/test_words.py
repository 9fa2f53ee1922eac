"""Words of scikit-learn that nothing here takes: the TypeError says what takes their place."""

import inspect

import pytest
from helpers import blobs

from dpsubspace import DPLinearRegression, DPSGDClassifier, DPSGDFClassifier, private_quantile


@pytest.mark.parametrize(
    ("call", "way_out"),
    [
        (lambda X, y: DPSGDFClassifier(early_stopping=True), "`n_iter`"),
        (lambda X, y: DPSGDClassifier(C=1.0), "`alpha`"),
        (lambda X, y: DPSGDFClassifier(sample_weight=y), "`class_weight`"),
        (lambda X, y: DPLinearRegression(max_iter=5), "`n_iter`"),
        (lambda X, y: private_quantile(X, quantiles=[0.5]), "`level`"),
    ],
)
def test_the_way_out_is_said(call, way_out):
    with pytest.raises(TypeError, match=f"unexpected keyword argument .*: .*{way_out}"):
        call(*blobs(n=60))


def test_another_error_stays_as_it_is():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'epsilom'$"):
        DPSGDClassifier(epsilom=1.0)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        private_quantile(epsilon=1.0)


def test_parameters_that_are_named_as_the_way_out_exist():
    for estimator in (DPSGDClassifier, DPSGDFClassifier):
        assert {"n_iter", "alpha", "class_weight"} <= set(inspect.signature(estimator).parameters)
    assert "level" in inspect.signature(private_quantile).parameters
