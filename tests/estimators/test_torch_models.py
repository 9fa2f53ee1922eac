"""Estimators that train a torch module: what they take, keep, give back and refuse."""

import math
import pickle
import warnings

import numpy as np
import pytest
import zoo
from cases import adapted_module
from helpers import (
    RELATIONS,
    assert_refused,
    assert_within_bounds,
    blobs,
    groups_of,
    multipliers,
    public_rows,
    releases,
    thinned,
)
from scipy import sparse

from dpsubspace import PrivacyLedger, PrivacyWarning, select_public
from dpsubspace._core.accounting.budget import Sizes
from dpsubspace._core.gradients.losses import LogLoss
from dpsubspace._core.gradients.modules import ModuleSource
from dpsubspace._core.gradients.reach import OutputLimits, limits_of, unreached
from dpsubspace._core.plans import modules as module_plans
from dpsubspace._core.plans.modules import warn_of_limits
from dpsubspace._core.public.anchors import LABELS, Labelled, LabelledModule, held_out
from dpsubspace._core.solvers.descent import FlatStep
from dpsubspace.exceptions import PublicDataWarning
from dpsubspace.linear_model import GradientDirections
from dpsubspace.neural_network import DPModuleClassifier, DPModuleRegressor
from dpsubspace.public_data import GSDScorer, gradient_subspace_distance, private_projection_error

torch = pytest.importorskip("torch")
nn = torch.nn
P, Q = public_rows(5)
MODULES = [DPModuleClassifier, DPModuleRegressor]
OPTIONS = {"epsilon": 9.0, "n_iter": 15, "random_state": 0}
EIGHT = GradientDirections(n_components=8)


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
    options = {"directions": GradientDirections(n_components=8, groups=groups), **OPTIONS}
    model = DPModuleClassifier(module, **options).fit(X, y, X_public=P)
    assert_same_state(module, before)
    assert 6 <= model.n_components_ <= 8
    assert not hasattr(model, "coef_") and model.score(X, y) > 0.8
    with torch.no_grad():
        scores = model.module_(torch.tensor(X, dtype=torch.float32)).double().numpy()
    expected = scores[:, 0] if n_classes == 2 else scores
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-5)
    assert model.predict_proba(X).shape == (200, n_classes)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    repeated = DPModuleClassifier(module, **options).fit(X, y, X_public=P)
    assert_same_state(repeated.module_, state(model.module_))


def test_walks_of_modules_depend_on_their_weights_and_not_on_classes():
    plan = DPModuleClassifier(net(3))._plan()
    few, many = (
        plan.scale(Sizes(1000, 5, n_classes)).travel(1000, 3.0, math.sqrt) for n_classes in (3, 100)
    )
    assert many == pytest.approx(few)


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("bounds", [{}, {"target_bounds": (-1, 3)}], ids=str)
def test_regressors_predict_on_the_scale_of_the_targets(bounds, n_targets):
    X, y = blobs(n=400)
    y = y.astype(float) if n_targets == 1 else np.column_stack([y, -y])
    if n_targets == 2 and bounds:
        bounds = {"target_bounds": ([-1, -3], [3, 1])}
    model = DPModuleRegressor(net(n_targets), directions=EIGHT, **OPTIONS, **bounds)
    model.fit(X, y, X_public=P)
    assert model.bounds_found_.keys() == {"target_bounds"}
    assert model.bounds_found_["target_bounds"].all()
    low, high = model.target_bounds_
    with torch.no_grad():
        scores = model.module_(torch.tensor(X, dtype=torch.float32)).double().numpy()
    expected = (low + high) / 2 + (high - low) / 2 * scores
    np.testing.assert_allclose(model.predict(X), expected.reshape(y.shape), atol=1e-5)
    assert model.predict(X).shape == y.shape
    # Counts find a range that is not given, and one that is given is looked at.
    assert len(model.privacy_.event.events) == 2


def test_frozen_layers_stay_bit_for_bit():
    X, y = blobs(n=200)
    module = net(3)
    module[0].requires_grad_(False)
    model = DPModuleClassifier(module, directions=EIGHT, **OPTIONS).fit(X, y, X_public=P)
    for name in ("weight", "bias"):
        assert torch.equal(getattr(model.module_[0], name), getattr(module[0], name))
        assert not torch.equal(getattr(model.module_[2], name), getattr(module[2], name))


@pytest.mark.parametrize("public", [{}, {"X_public": P}], ids=["DP-SGD", "GEP"])
def test_only_adapters_of_a_public_network_are_trained_and_its_buffers_stay(monkeypatch, public):
    """Weights and statistics are public, and must not become functions of private rows."""
    X, y = blobs(n=200)
    module = adapted_module(5, 3).train()
    before = state(module)
    trained = {name for name, weights in module.named_parameters() if weights.requires_grad}
    with releases(monkeypatch) as found:
        model = DPModuleClassifier(module, directions=EIGHT, **OPTIONS).fit(X, y, **public)
    after = state(model.module_)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == trained == {"0.down", "0.up", "2.weight", "2.bias"}
    assert_same_state(module, before)
    # Nothing but gradients of the trained weights is released, and their coordinates.
    n_trained = sum(before[name].numel() for name in trained)
    sizes = {np.size(out) for _, out, _ in found}
    assert sizes == ({n_trained, 8} if public else {n_trained})


def test_the_warning_of_noise_counts_the_parameters_of_the_module():
    """A layer of 20,000 parameters is lost in noise that a layer of 75 is not."""
    X, y = blobs(n=200)
    wide = nn.Sequential(nn.Linear(5, 2000), nn.Tanh(), nn.Linear(2000, 3))
    with pytest.warns(PrivacyWarning, match="the noise of a fit"):
        DPModuleClassifier(wide, **{**OPTIONS, "n_iter": 1}).fit(X, y, X_public=P)
    DPModuleClassifier(net(3), **OPTIONS).fit(X, y, X_public=P)


NEEDING = [
    ({"mirror": True}, "mirror=True"),
    ({"directions": GradientDirections(labels="public")}, "labels='public' of GradientDirections"),
]


@pytest.mark.parametrize(("options", "name"), NEEDING, ids=str)
@pytest.mark.parametrize("Estimator", MODULES)
def test_options_that_need_labels_say_so(Estimator, options, name):
    options = {"module": net(3 if Estimator is DPModuleClassifier else 1), **options}
    match = f"{name} needs the labels.*`y_public`"
    assert_refused(Estimator, options, {"X_public": P}, match)


def test_more_components_than_public_rows_warn():
    X, y = blobs(n=200)
    with pytest.warns(PublicDataWarning, match="`n_components`=8 .* 3 public rows") as caught:
        model = DPModuleClassifier(net(3), directions=EIGHT, **OPTIONS).fit(X, y, X_public=P[:3])
    assert model.n_components_ == 3 and {w.filename for w in caught} == {__file__}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("Estimator", MODULES)
def test_without_public_rows_it_is_plain_dpsgd(monkeypatch, Estimator):
    """Sums are those of clipped gradients, one a step, and nothing is warned of.

    A regressor looks first where in their range targets lie, with two releases.
    """
    X, y = blobs(n=200)
    module = net(3 if Estimator is DPModuleClassifier else 1)
    bounds = {} if Estimator is DPModuleClassifier else {"target_bounds": (-1, 3)}
    with releases(monkeypatch) as seen:
        model = Estimator(module, **OPTIONS, **bounds).fit(X, y)
    seen = seen[2:] if bounds else seen
    assert len(seen) == OPTIONS["n_iter"] and model.n_components_ is None
    targets = y if Estimator is DPModuleClassifier else ((y - 1) / 2)[:, None]
    plan = model._plan()
    n_targets = 3 if Estimator is DPModuleClassifier else 1
    source = ModuleSource(module, plan.loss, X, targets, n_targets=n_targets)
    start, step = source.start(), FlatStep(clip_norm=model.clip_norm_)
    parts = [step.sums(None, source.at(start, rows))[0] for rows in source.chunks()]
    expected = sum(part.value for part in parts)
    np.testing.assert_allclose(seen[0][0].value, expected, atol=1e-5)
    none = GradientDirections(n_components=0)
    other = Estimator(module, directions=none, **OPTIONS, **bounds).fit(X, y, X_public=P)
    for name, value in other.module_.state_dict().items():  # of sums in another order
        torch.testing.assert_close(value, model.module_.state_dict()[name], rtol=1e-4, atol=1e-4)


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, rows):
        return self.layer(rows - rows.mean(0))


BAD = [
    ({"directions": "features"}, "`directions` must be 'auto' or an instance.*'features'"),
    ({"directions": GradientDirections}, r"an instance such as GradientDirections\("),
    ({"directions": GradientDirections(groups="outputs")}, "`groups` must be"),
    ({"directions": GradientDirections(groups=[["0"]])}, "`groups` must name every"),
    ({"directions": GradientDirections(n_components=-1)}, "`n_components of Grad.*'auto'"),
    ({"microbatch_size": 0}, "`microbatch_size` must be an integer of at least 1"),
    ({"mirror": 1}, "`mirror` must be True or False"),
    ({"module": None}, "`module` must be a torch.nn.Module .*, got NoneType"),
    ({"module": nn.Linear}, "`module` must be a torch.nn.Module .*not its class.*, got Linear"),
    ({"module": 3}, "`module` must be a torch.nn.Module .*, got int"),
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
    model = DPModuleClassifier(**{"epsilon": 9.0, "module": net(3), **options})
    with pytest.raises(ValueError, match=match):
        model.fit(X, y, X_public=P.copy(), y_public=Q)
    assert not hasattr(model, "privacy_") and not hasattr(model, "module_")


@pytest.mark.parametrize("Estimator", MODULES)
def test_sparse_rows_are_refused(Estimator):
    X, y = blobs(n=200)
    options = {"module": net(3 if Estimator is DPModuleClassifier else 1)}
    assert_refused(
        Estimator, options, {"X_public": P}, "dense rows: pass X.toarray", (sparse.csr_array(X), y)
    )


@pytest.mark.filterwarnings("ignore:the noise of:dpsubspace.PrivacyWarning")
@pytest.mark.parametrize(
    "options",
    [{}, {"groups": "layers"}, {"residual": False}, {"n_components": 0}, {"batch_size": 10}],
    ids=str,
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_every_release_of_a_module_moves_within_its_bound(monkeypatch, relation, options):
    X, y = blobs(n=40)
    settings = {"n_components": 8, **options}
    options = {**OPTIONS, "n_iter": 3, "epsilon": 2.0, "neighboring_relation": relation}
    options["batch_size"] = settings.pop("batch_size", None)
    options["directions"] = GradientDirections(**settings)
    other_X, other_y, present = X.copy(), y.copy(), None
    if relation == "zero_out":
        present = np.arange(40) > 0
    else:
        other_X[0], other_y[0] = -X[0], (y[0] + 1) % 3
    model = DPModuleClassifier(net(3), classes=[0, 1, 2], **options)
    with releases(monkeypatch) as here:
        model.fit(X, y, X_public=P)
    with releases(monkeypatch, outputs=here) as there:
        model.fit(other_X, other_y, groups=groups_of(present), X_public=P)
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
    options = {"directions": EIGHT, **OPTIONS, "n_iter": 2}
    model = DPModuleClassifier(build(5, 3), **options).fit(X, y, X_public=P)
    if build is zoo.spectral:  # torch saves no parametrised layers
        return
    before = pickle.dumps(model)
    assert not zoo.holds(before, X)
    model.predict_proba(X)
    assert pickle.dumps(model) == before and not zoo.holds(zoo.outside(), X)


@pytest.mark.parametrize("build", [zoo.ClassAttribute, zoo.GlobalNumbers, zoo.hook, zoo.Count])
@pytest.mark.parametrize("Estimator", MODULES)
def test_modules_that_keep_rows_are_refused_before_anything_is_spent(Estimator, build, clean):
    X, y = blobs(n=70)
    model = Estimator(build(5, 3 if Estimator is DPModuleClassifier else 1), epsilon=9.0)
    with pytest.raises(ValueError, match=r"keeps something of the rows|vmap cannot run it"):
        model.fit(X, y, X_public=P)
    assert not hasattr(model, "privacy_") and not hasattr(model, "module_")
    assert not zoo.holds(zoo.outside(), X)


# Labels that mirror descent believes ----------------------------------------------------------


def test_mirror_descent_does_not_mix_in_labels_that_are_found_out(monkeypatch):
    """Private rows bear out the right labels, and neither wrong ones nor those of one class."""
    believed, borne_out = [], module_plans.borne_out

    def noted(*given):
        believed.append(borne_out(*given))
        return believed[-1]

    monkeypatch.setattr(module_plans, "borne_out", noted)
    X, y = blobs(n=400)
    model = DPModuleClassifier(net(3), directions=EIGHT, mirror=True, **OPTIONS)
    scores = []
    for labels in (Q, (Q + 1) % 3, np.zeros_like(Q)):
        scores.append(model.fit(X, y, X_public=P, y_public=labels).score(X, y))
    # The fit is right about nearly all rows or hardly one. Limits are 100 rows or more away, and
    # the noise of their number has a deviation of 3 at this epsilon.
    assert believed == [True, False, False]
    # Believed, the wrong labels leave hardly a row right: mirror descent ends on them.
    monkeypatch.setattr(module_plans, "borne_out", lambda *given: True)
    ruined = model.fit(X, y, X_public=P, y_public=(Q + 1) % 3).score(X, y)
    assert min(scores) > 0.8 and ruined < 0.4


@pytest.mark.parametrize("Estimator", MODULES)
def test_the_check_of_mirror_descent_is_charged(Estimator):
    X, y = blobs(n=200)
    bounds = {} if Estimator is DPModuleClassifier else {"target_bounds": (-1, 3)}
    events = {}
    for mirror in (False, True):
        options = OPTIONS | bounds | {"mirror": mirror, "n_iter": 3}
        model = Estimator(net(1 if bounds else 3), directions=EIGHT, **options)
        model.fit(X, y, X_public=P, y_public=Q)
        assert model.privacy_.epsilon <= OPTIONS["epsilon"]
        events[mirror] = multipliers(model.privacy_.event)
        known = {"n_public": len(P), "labelled": True}
        expected = model.privacy_event(200, 5, 1 if bounds else 3, **known)
        assert multipliers(expected) == events[mirror]
    assert len(events[True]) == len(events[False]) + 1
    # A twentieth of mu^2, which is the sum of 1 / z^2.
    *looks, check, third, second, first = [1 / z**2 for z in events[True]]
    assert len(looks) == (2 if bounds else 0)
    whole = sum(looks) + check + first + second + third
    assert check / whole == pytest.approx(0.05)


@pytest.mark.parametrize("chunk", [None, 7])
def test_a_linear_module_is_fitted_to_public_rows_as_a_linear_model_is(chunk):
    """Two ways to the same minimum, and to the same rows that are held out."""
    X, y = blobs(n=60)
    module = nn.Linear(5, 3, bias=False).double()
    nn.init.zeros_(module.weight)
    source = ModuleSource(module, LogLoss(), X, y, microbatch_size=chunk)
    module, linear = LabelledModule(source), Labelled(LogLoss(), X, y, 3)
    weights = source.scores_at(module.fitted(), slice(None)).numpy()
    # Both end near the minimum, by L-BFGS in other coordinates.
    np.testing.assert_allclose(weights, X @ linear.fitted(), atol=0.3)
    right = LABELS.right(y)
    assert held_out(module, right) == pytest.approx(held_out(linear, right), abs=0.06)


@pytest.mark.parametrize("chunk", [None, 7])
def test_the_mean_loss_of_public_rows_has_the_gradient_of_all_rows(chunk, rng):
    X, y = blobs(n=60)
    source = ModuleSource(net(3).double(), LogLoss(), X, y, microbatch_size=chunk)
    rows, at = np.arange(0, 60, 2), source.start() + 0.1
    value, gradient = source.mean_loss(at, rows)
    formed = source.at(at, rows).dense().numpy()
    np.testing.assert_allclose(gradient, formed.mean(axis=0), atol=1e-12)
    scores = source.scores_at(at, slice(None)).numpy()
    assert value == pytest.approx(float(np.mean(LogLoss().value(y, scores)[rows])))
    # At another place of a chunk a row may round otherwise.
    np.testing.assert_allclose(scores[rows], source.scores_at(at, rows).numpy(), atol=1e-12)


# What a module can say at all -------------------------------------------------------------------

# An end, what outputs behind it have in common, whether it loses a class, and whether it is told.
ENDS = [
    ([], "", False, False),
    ([nn.Tanh()], "", False, False),
    ([nn.Sigmoid()], "lie between 0 and 1", True, True),
    ([nn.Softmax(dim=1)], "the same outputs for all rows", True, True),
    ([nn.ReLU()], "below 0", False, True),
    ([nn.Softplus()], "below 0", True, True),
    ([nn.LogSigmoid()], "above 0", True, True),
]
END_NAMES = [str(end) for end, *_ in ENDS]


def told_by(model, X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("body", ["linear", "network"])
@pytest.mark.parametrize(("end", "match", "never", "told"), ENDS, ids=END_NAMES)
def test_a_module_that_cannot_say_what_it_learns_is_told_of(end, match, never, told, body):
    """Before the charge by random rows and weights, and after it by the released weights."""
    X, y = blobs(n=300, n_classes=2)
    torch.manual_seed(0)
    layers = (
        [nn.Linear(5, 1)] if body == "linear" else [nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1)]
    )
    model = DPModuleClassifier(nn.Sequential(*layers, *end), **OPTIONS)
    texts = told_by(model, X, y)
    assert [match in texts[0] and "linear layer" in texts[0]] == [True] if told else not texts
    assert ("never predicted: " in texts[-1] if never else len(texts) == told) or not texts
    if never:
        assert len(set(model.predict(X / 10))) == 1  # scores of large rows may be 0 by rounding
    regressor = DPModuleRegressor(nn.Sequential(*layers, *end), target_bounds=(-9, 9), **OPTIONS)
    texts = told_by(regressor, X, X[:, 0])
    assert [match in text for text in texts] == [True] * told


@pytest.mark.parametrize("end", [nn.Softmax(dim=1), nn.Sigmoid()], ids=str)
def test_probabilities_of_many_classes_are_no_scores(end):
    X, y = blobs(n=300, n_classes=3)
    body = nn.Linear(5, 3)
    for fine in ([], [nn.LogSoftmax(dim=1)], [nn.ReLU()]):
        limits = limits_of(nn.Sequential(body, *fine), (5,), torch.device("cpu"))
        assert limits.kind in ("", "positive", "negative")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_limits(limits.kind, 3, labels=True)
    text, *_ = told_by(DPModuleClassifier(nn.Sequential(body, end), **OPTIONS), X, y)
    assert "comes near to 1" in text
    for parameter in body.parameters():  # as heads are often begun
        nn.init.zeros_(parameter)
    assert not limits_of(nn.Sequential(nn.Linear(5, 5), body), (5,), torch.device("cpu")).kind


def test_a_module_is_told_of_before_anything_is_charged():
    X, y = blobs(n=300, n_classes=2)
    module = nn.Sequential(nn.Linear(5, 1), nn.Sigmoid())
    with PrivacyLedger(10.0, 1e-5, allow_seeded=True) as ledger, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyWarning, match="between 0 and 1"):
            DPModuleClassifier(module, **OPTIONS).fit(X, y)
    assert len(ledger.entries) == 0


# All else that takes a module: of private and public rows, it compares gradients.
COMPARES = {
    "GSDScorer": lambda X, P, **o: GSDScorer(n_components=1, random_state=0, **o).fit(
        X, X_public=P
    ),
    "select_public": lambda X, P, **o: select_public(
        {"near": P, "far": 1 - P}, X, n_components=1, epsilon=1.0, random_state=0, **o
    ),
    "private_projection_error": lambda X, P, **o: private_projection_error(
        X, P, n_components=1, epsilon=1.0, random_state=0, **o
    ),
    "gradient_subspace_distance": lambda X, P, **o: gradient_subspace_distance(
        X, P, n_components=1, **o
    ),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", COMPARES)
def test_gradients_of_a_module_that_ends_in_an_activation_are_told_of(kind, n_classes, rng):
    """Before anything is charged, and of no module that ends in a linear layer."""
    X, rows, n_outputs = rng.normal(size=(60, 5)), rng.normal(size=(40, 5)), n_classes
    n_outputs -= n_classes == 2
    linear, calls = nn.Linear(5, n_outputs), COMPARES[kind]
    with PrivacyLedger(10.0, 1e-5, allow_seeded=True) as ledger:
        with pytest.raises(PrivacyWarning, match="between 0 and 1"), warnings.catch_warnings():
            warnings.filterwarnings("error", ".*of `module`")
            calls(X, rows, module=nn.Sequential(linear, nn.Sigmoid()), n_classes=n_classes)
        assert len(ledger.entries) == 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calls(X, rows, module=nn.Sequential(linear), n_classes=n_classes)
    assert not [each for each in caught if "`module`" in str(each.message)]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_class_is_told_of_where_the_released_module_has_no_row_of_it(n_classes, rng):
    """Of random weights: hardly any row of all sizes is of it, and what the last layer proves."""
    for _ in range(10):
        module = net(1 if n_classes == 2 else n_classes)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(torch.tensor(rng.normal(size=parameter.shape)))
            module[2].bias.mul_(5)
        offset = rng.normal(size=1 if n_classes == 2 else n_classes)
        told = set(unreached(module, (5,), offset, OutputLimits()).tolist())
        rows = np.vstack([rng.normal(size=(2000, 5)) * s for s in (0.1, 1.0, 10.0, 1e4)])
        with torch.no_grad():
            scores = module(torch.tensor(rows, dtype=torch.float32)).numpy() + offset
        if n_classes == 2:
            scores = np.column_stack([np.zeros(len(scores)), scores])
        assert np.isin(scores.argmax(axis=1), [*told]).mean() < 0.01
        # Behind Tanh, scores of the last layer are within the sum of its weights.
        weights, bias = (p.detach().numpy() for p in (module[2].weight, module[2].bias))
        if n_classes == 2:
            least, most = (bias + offset + s * np.abs(weights).sum() for s in (-1, 1))
            assert (0 in told) >= bool(least > 0) and (1 in told) >= bool(most < 0)


class Lookup(nn.Module):
    def __init__(self, clamp, layer=nn.Embedding):
        super().__init__()
        self.codes, self.out, self.clamp = layer(10, 4), nn.Linear(8, 1), clamp

    def forward(self, x):
        index = x.long().clamp(0, 9) if self.clamp else x.long()
        return self.out(self.codes(index).flatten(1))


@pytest.mark.parametrize("Estimator", MODULES)
def test_layers_that_look_up_entries_are_told_what_random_rows_need(Estimator):
    X = np.random.default_rng(0).integers(0, 10, (200, 2))
    y = X[:, 0] > 4 if Estimator is DPModuleClassifier else X[:, 0] / 10
    options = {} if Estimator is DPModuleClassifier else {"target_bounds": (0, 1)}
    with pytest.raises(ValueError, match=r"'codes'.*no indices.*x\.long\(\)\.clamp\(0, 9\)"):
        Estimator(Lookup(clamp=False), **OPTIONS, **options).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Estimator(Lookup(clamp=True), **OPTIONS, **options).fit(X, y)
