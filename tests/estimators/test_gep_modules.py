"""GEP estimators of torch modules: what they take, keep, give back and refuse."""

import math
import pickle

import numpy as np
import pytest
import zoo
from helpers import (
    GEP,
    RELATIONS,
    assert_refused,
    assert_within_bounds,
    blobs,
    public_rows,
    releases,
    thinned,
)
from scipy import sparse

from dpsubspace import GEPClassifier, GEPRegressor, PrivacyWarning
from dpsubspace._accounting.budget import Sizes

torch = pytest.importorskip("torch")
nn = torch.nn
P, Q = public_rows(5)
OPTIONS = {"epsilon": 9.0, "n_iter": 15, "n_components": 8, "random_state": 0}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def net(outputs, first=None):
    torch.manual_seed(0)
    return nn.Sequential(first or nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, outputs))


def state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_same_state(module, before):
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("groups", [None, "layers", 3, [["0"], ["2"]]], ids=str)
@pytest.mark.parametrize("n_classes", thinned([3, 2]))
def test_classifiers_train_a_copy_and_predict_by_it(n_classes, groups):
    X, y = blobs(n=200, n_classes=n_classes)
    module = net(1 if n_classes == 2 else 3)
    before = state(module)
    model = GEPClassifier(module=module, groups=groups, **OPTIONS).fit(X, y, X_public=P)
    assert_same_state(module, before)
    assert not hasattr(model, "coef_") and model.score(X, y) > 0.8
    with torch.no_grad():
        scores = model.module_(torch.tensor(X, dtype=torch.float32)).double().numpy()
    expected = scores[:, 0] if n_classes == 2 else scores
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-5)
    assert model.predict_proba(X).shape == (200, n_classes)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    repeated = GEPClassifier(module=module, groups=groups, **OPTIONS).fit(X, y, X_public=P)
    assert_same_state(repeated.module_, state(model.module_))


def test_walks_of_modules_depend_on_their_weights_and_not_on_classes():
    model = GEPClassifier(module=net(3))
    few, many = (model._travel(Sizes(1000, 5, n_classes), 3.0) for n_classes in (3, 100))
    assert many == pytest.approx(few)


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("bounds", [{}, {"target_bounds": (-1, 3)}], ids=str)
def test_regressors_predict_on_the_scale_of_the_targets(bounds, n_targets):
    X, y = blobs(n=400)
    y = y.astype(float) if n_targets == 1 else np.column_stack([y, -y])
    if n_targets == 2 and bounds:
        bounds = {"target_bounds": ([-1, -3], [3, 1])}
    model = GEPRegressor(module=net(n_targets), **OPTIONS, **bounds).fit(X, y, X_public=P)
    low, high = model.target_bounds_
    with torch.no_grad():
        scores = model.module_(torch.tensor(X, dtype=torch.float32)).double().numpy()
    expected = (low + high) / 2 + (high - low) / 2 * scores
    np.testing.assert_allclose(model.predict(X), expected.reshape(y.shape), atol=1e-5)
    assert model.predict(X).shape == y.shape
    n_bounds = 0 if bounds else 1
    assert len(getattr(model.privacy_.event, "events", [None])) == 1 + n_bounds


def test_frozen_layers_stay_bit_for_bit():
    X, y = blobs(n=200)
    module = net(3)
    module[0].requires_grad_(False)
    model = GEPClassifier(module=module, **OPTIONS).fit(X, y, X_public=P)
    for name in ("weight", "bias"):
        assert torch.equal(getattr(model.module_[0], name), getattr(module[0], name))
        assert not torch.equal(getattr(model.module_[2], name), getattr(module[2], name))


def test_the_warning_of_noise_counts_the_parameters_of_the_module():
    """A layer of 20,000 parameters is lost in noise that a layer of 75 is not."""
    X, y = blobs(n=200)
    wide = nn.Sequential(nn.Linear(5, 2000), nn.Tanh(), nn.Linear(2000, 3))
    with pytest.warns(PrivacyWarning, match="the noise of a fit"):
        GEPClassifier(module=wide, **{**OPTIONS, "n_iter": 1}).fit(X, y, X_public=P)
    GEPClassifier(module=net(3), **OPTIONS).fit(X, y, X_public=P)


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, rows):
        return self.layer(rows - rows.mean(0))


BAD = [
    ({"directions": "features"}, "directions='features' is for linear models: use 'gradients'"),
    ({"init": "public"}, "init='public' is for linear models.*first, then pass it"),
    ({"groups": "outputs"}, "`groups` must be"),
    ({"groups": [["0"]]}, "`groups` must name every"),
    ({"input_shape": (2, 2)}, "`input_shape`=.*holds 4 numbers.*5 features"),
    ({"epsilon": math.inf}, "learning_rate='auto' of a `module`.*give `learning_rate`"),
    ({"module": net(7)}, "`module` gives outputs of shape"),
    ({"module": net(3).requires_grad_(False)}, "no parameter to train"),
    ({"module": nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))}, "BatchNorm1d.*GroupNorm"),
    ({"module": Mixing()}, "`module`"),
]


@pytest.mark.parametrize(("options", "match"), BAD, ids=str)
def test_modules_that_cannot_be_trained_are_refused(options, match):
    X, y = blobs(n=200)
    model = GEPClassifier(**{"epsilon": 9.0, "module": net(3), **options})
    with pytest.raises(ValueError, match=match):
        model.fit(X, y, X_public=P.copy(), y_public=Q)
    assert not hasattr(model, "privacy_") and not hasattr(model, "module_")


@pytest.mark.parametrize("Estimator", GEP)
def test_sparse_rows_are_refused(Estimator):
    X, y = blobs(n=200)
    options = {"module": net(3 if Estimator is GEPClassifier else 1)}
    assert_refused(
        Estimator, options, {"X_public": P}, "dense rows: pass X.toarray", (sparse.csr_array(X), y)
    )


@pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize(
    "options",
    [{}, {"clipping": "joint"}, {"groups": "layers"}, {"residual": False}, {"batch_size": 10}],
    ids=str,
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_every_release_of_a_module_moves_within_its_bound(monkeypatch, relation, options):
    X, y = blobs(n=40)
    options = {**OPTIONS, "n_iter": 3, "epsilon": 2.0, "neighboring_relation": relation, **options}
    other_X, other_y, present = X.copy(), y.copy(), None
    if relation == "zero_out":
        present = np.arange(40) > 0
    else:
        other_X[0], other_y[0] = -X[0], (y[0] + 1) % 3
    model = GEPClassifier(module=net(3), classes=[0, 1, 2], **options)
    with releases(monkeypatch) as here:
        model._fit(X, y, X_public=P)
    with releases(monkeypatch, outputs=here) as there:
        model._fit(other_X, other_y, present=present, X_public=P)
    assert_within_bounds(here, there, relation)


# Nothing is kept ------------------------------------------------------------------------------


@pytest.fixture
def clean():
    zoo.cleared()
    yield
    zoo.cleared()


@pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("build", thinned(c.build for c in zoo.HARMLESS if not c.module))
def test_a_saved_model_holds_nothing_of_the_rows(build, clean):
    X, y = blobs(n=70)
    model = GEPClassifier(module=build(5, 3), **{**OPTIONS, "n_iter": 2}).fit(X, y, X_public=P)
    if build is zoo.spectral:  # torch saves no parametrised layers
        return
    before = pickle.dumps(model)
    assert not zoo.holds(before, X)
    model.predict_proba(X)
    assert pickle.dumps(model) == before and not zoo.holds(zoo.outside(), X)


@pytest.mark.parametrize("build", [zoo.ClassAttribute, zoo.GlobalNumbers, zoo.hook, zoo.Count])
@pytest.mark.parametrize("Estimator", GEP)
def test_modules_that_keep_rows_are_refused_before_anything_is_spent(Estimator, build, clean):
    X, y = blobs(n=70)
    model = Estimator(module=build(5, 3 if Estimator is GEPClassifier else 1), epsilon=9.0)
    with pytest.raises(ValueError, match=r"keeps something of the rows|vmap cannot run it"):
        model.fit(X, y, X_public=P)
    assert not hasattr(model, "privacy_") and not hasattr(model, "module_")
    assert not zoo.holds(zoo.outside(), X)
