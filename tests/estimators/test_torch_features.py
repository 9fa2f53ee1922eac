"""Frozen torch modules: what they give, and that they map rows one by one or are refused."""

import copy
import gc
import os
import pickle
import traceback

import numpy as np
import pandas as pd
import pytest
import zoo
from helpers import thinned
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpsubspace
from dpsubspace import DPSGDClassifier, DPSGDFClassifier, PrivacyError, PrivacyLedger
from dpsubspace._core.gradients import torch_rows
from dpsubspace._core.gradients.throwaway import throwaway
from dpsubspace.neural_network import TorchFeatures

torch = pytest.importorskip("torch")
nn = torch.nn
ROWS = np.random.default_rng(0).normal(size=(23, 16))


def convolutions(seed=0, channels=16):
    """A small random network for 8 x 8 images."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, channels, 3), nn.BatchNorm2d(channels), nn.ReLU(), nn.AvgPool2d(2)
        )


class Calls(nn.Module):
    """A function of a batch as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, rows):
        return self.function(rows)


@parametrize_with_checks([TorchFeatures(nn.Identity()), TorchFeatures(nn.ReLU(), batch_size=7)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# What it gives --------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 4, 22, 23, 1000])
def test_batches_give_what_the_whole_gives(batch_size):
    net = convolutions().eval()
    with torch.no_grad():
        expected = net(torch.tensor(ROWS, dtype=torch.float32).reshape(23, 1, 4, 4)).flatten(1)
    model = TorchFeatures(net, input_shape=(1, 4, 4), batch_size=batch_size)
    out = model.fit_transform(ROWS)
    assert out.dtype == np.float32 and model.n_features_in_ == 16
    np.testing.assert_allclose(out, expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_rows_take_the_dtype_of_the_weights(dtype):
    net = nn.Linear(16, 3).to(dtype)
    out = TorchFeatures(net).fit_transform(ROWS.astype(np.float32))
    expected = ROWS @ net.weight.detach().double().numpy().T + net.bias.detach().double().numpy()
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, expected, atol=1e-6 if dtype == torch.float64 else 0.05)


@pytest.mark.parametrize("function", [lambda x: x[:, 0], lambda x: x[:, :1] > 0])
def test_one_number_a_row_is_one_feature(function):
    assert TorchFeatures(Calls(function)).fit_transform(ROWS).shape == (23, 1)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_scripted_and_reparametrised_modules_are_taken():
    net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(16, 3)), nn.ReLU())
    expected = TorchFeatures(net).fit_transform(ROWS)
    plain = nn.Sequential(nn.Linear(16, 3), nn.ReLU())
    with torch.no_grad():
        plain[0].weight.copy_(net[0].weight)
        plain[0].bias.copy_(net[0].bias)
    out = TorchFeatures(torch.jit.script(plain)).fit_transform(ROWS)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_data_frames_names_and_set_output():
    frame = pd.DataFrame(ROWS, columns=[f"pixel {i}" for i in range(16)])
    model = TorchFeatures(nn.Linear(16, 2)).set_output(transform="pandas")
    out = model.fit_transform(frame)
    assert list(out.columns) == ["torchfeatures0", "torchfeatures1"]
    assert list(model.get_feature_names_out()) == list(out.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame[frame.columns[::-1]])


def test_odd_arrays_are_taken_as_they_are():
    model = TorchFeatures(nn.Identity()).fit(ROWS)
    frozen = ROWS.copy()
    frozen.setflags(write=False)
    expected = ROWS.astype(np.float32)
    np.testing.assert_array_equal(model.transform(frozen), expected)
    np.testing.assert_array_equal(model.transform(ROWS[::-1]), expected[::-1])
    np.testing.assert_array_equal(model.transform(np.asfortranarray(ROWS)), expected)


def test_what_is_not_finite_is_left_to_the_next_step():
    huge = np.full((30, 16), 1e300)  # beyond float32
    model = TorchFeatures(nn.Identity()).fit(ROWS)
    assert np.isinf(model.transform(huge)).all()
    with pytest.raises(ValueError, match="infinity") as caught:
        make_pipeline(model, DPSGDClassifier(epsilon=5.0)).fit(huge, np.arange(30) % 2)
    assert "1e+300" not in str(caught.value)


# The module is left alone -----------------------------------------------------------------------


def test_the_users_module_is_never_changed():
    net = convolutions()
    net(torch.randn(4, 1, 8, 8)).sum().backward()
    before = copy.deepcopy(net.state_dict())
    gradients = [parameter.grad.clone() for parameter in net.parameters()]
    X = load_digits().data[:50]
    model = TorchFeatures(net, input_shape=(1, 8, 8))
    model.fit(X).transform(X)
    assert model.module is net and model.module_ is not net
    assert all(layer.training for layer in net.modules())
    assert all(parameter.requires_grad for parameter in net.parameters())
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    for parameter, gradient in zip(net.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)
    kept = list(model.module_.parameters())
    assert all(p.grad is None and not p.requires_grad for p in kept)
    with torch.no_grad():  # and the fitted copy does not follow the module
        expected = model.transform(X)
        net[0].weight.zero_()
    np.testing.assert_array_equal(model.transform(X), expected)


def test_training_mode_is_left_in_the_copy():
    net = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(16), nn.Linear(16, 4)).train()
    training = TorchFeatures(net).fit_transform(ROWS)
    np.testing.assert_array_equal(training, TorchFeatures(net.eval()).fit_transform(ROWS))


def test_clones_and_pickles():
    model = TorchFeatures(nn.Linear(16, 4), batch_size=5).fit(ROWS)
    twin = clone(model)
    assert not hasattr(twin, "module_") and twin.module is not model.module
    expected = model.transform(ROWS)
    np.testing.assert_array_equal(twin.fit_transform(ROWS), expected)
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(copied.transform(ROWS), expected)


def test_fit_takes_nothing_from_the_rows_but_their_width(monkeypatch):
    seen, mapped = [], torch_rows.mapped_batch

    def spy(module, rows, *options):
        seen.append(rows.copy())
        return mapped(module, rows, *options)

    monkeypatch.setattr(torch_rows, "mapped_batch", spy)
    for rows in (ROWS, -1e6 * ROWS[:3]):
        TorchFeatures(nn.Linear(16, 2)).fit(rows)
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert first and all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


# Nothing is kept ------------------------------------------------------------------------------


@pytest.fixture
def clean():
    zoo.cleared()
    yield
    zoo.cleared()


quiet = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


@quiet
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize("case", thinned(zoo.HARMLESS), ids=str)
def test_nothing_of_the_rows_is_kept(case, clean):
    model = TorchFeatures(case.build(16, 3), batch_size=9).fit(ROWS)
    expected = model.transform(ROWS)  # which compiles what is to be compiled
    before = described(model)
    np.testing.assert_array_equal(model.transform(ROWS), expected)
    after = described(model)
    assert before == after and not zoo.holds(after, ROWS)
    assert not zoo.holds(zoo.outside(), ROWS)


def described(model):
    """Bytes of a saved model, or of what can be saved of it."""
    try:
        return pickle.dumps(model)
    except (TypeError, RuntimeError, pickle.PicklingError):
        if isinstance(model.module_, torch.jit.ScriptModule):
            return np.asarray(model.module_.kept).tobytes()
        return pickle.dumps(model.module_.state_dict())


@pytest.mark.parametrize("case", thinned(zoo.REFUSED), ids=str)
def test_modules_that_keep_rows_where_copies_share_them_are_refused(case, clean):
    model = TorchFeatures(case.build(16, 3))
    with pytest.raises(ValueError, match=case.features):
        model.fit(ROWS)
    assert not hasattr(model, "module_") and not zoo.holds(zoo.outside(), ROWS)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize(
    "build", [zoo.Graph, zoo.Attribute, lambda *sides: nn.utils.weight_norm(nn.Linear(*sides))]
)
def test_what_a_training_left_in_a_module_does_not_hinder_its_copy(build):
    module = build(16, 3)
    rows = torch.ones(3, 16, requires_grad=True) * 2
    module(rows).sum().backward()
    layer = getattr(module, "layer", module)
    expected = ROWS @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    np.testing.assert_allclose(TorchFeatures(module).fit_transform(ROWS), expected, atol=1e-5)


def test_no_tensor_with_entries_of_the_rows_is_left_in_memory(clean):
    def tensors():
        return [o for o in gc.get_objects() if type(o) in (torch.Tensor, nn.Parameter)]

    # Large tensors that other tests left may hold any number by accident.
    others = tensors()
    builds = [c.build for c in zoo.HARMLESS if c.build not in (zoo.compiled, zoo.scripted)]
    models = [TorchFeatures(build(16, 3), batch_size=9).fit(ROWS) for build in builds]
    for model in models:
        model.transform(ROWS)
    gc.collect()
    known = {id(tensor) for tensor in others}
    new = [tensor for tensor in tensors() if id(tensor) not in known]
    assert len(new) >= 2 * len(models)
    assert not any(zoo.holds(tensor, ROWS) for tensor in new)


def test_parameters_that_rows_were_written_to_are_emptied(clean):
    class Rarely(zoo.Spare):
        def keep(self, rows):
            if rows.abs().max() > 1e6:
                super().keep(rows)

    model = TorchFeatures(Rarely(16, 3)).fit(ROWS)
    model.transform(ROWS)
    for rows in (1e9 * ROWS, np.full((3, 16), 1e9)):
        with pytest.raises(RuntimeError, match=r"changed its parameters \['spare'\].*fit again"):
            model.transform(rows)
        assert torch.isnan(model.module_.spare).all()
    assert torch.isfinite(model.fit(ROWS).module_.spare).all()


def test_parameters_share_memory_with_the_copies_that_are_called():
    module = nn.Sequential(nn.Linear(16, 3), nn.BatchNorm1d(3))
    twin = throwaway(module)
    for name, parameter in twin.named_parameters():
        assert parameter.data_ptr() == module.get_parameter(name).data_ptr()
    assert not {id(b) for b in twin.buffers()} & {id(b) for b in module.buffers()}
    assert twin[1].running_mean.data_ptr() != module[1].running_mean.data_ptr()


# Row by row -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm1d(16, track_running_stats=False),
        nn.Sequential(nn.Linear(16, 3), nn.BatchNorm1d(3, track_running_stats=False)),
    ],
)
def test_batch_norm_without_running_statistics_is_refused(norm):
    with pytest.raises(ValueError, match=r"BatchNorm1d\) normalises.*track_running_stats=True"):
        TorchFeatures(norm).fit(ROWS)


def test_batch_norm_that_stays_in_training_mode_is_refused():
    class Stubborn(nn.BatchNorm1d):
        def train(self, mode=True):
            return super().train(True)

    with pytest.raises(ValueError, match="statistics of the batch"):
        TorchFeatures(nn.Sequential(nn.Linear(16, 3), Stubborn(3))).fit(ROWS)


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm1d(16), nn.LayerNorm(16), nn.GroupNorm(4, 16), nn.Softmax(dim=1)]
)
def test_what_normalises_rows_one_by_one_is_taken(norm):
    assert TorchFeatures(norm).fit_transform(ROWS).shape == ROWS.shape


MIXING = {
    "batch statistics": lambda x: nn.functional.batch_norm(x, None, None, training=True),
    "centring": lambda x: x - x.mean(0),
    "a little": lambda x: x + 1e-3 * x.mean(0),
    "scale of the batch": lambda x: x / x.abs().max(),
    "softmax over rows": lambda x: torch.softmax(x, 0),
    "order": lambda x: x.argsort(0).float(),
    "the row before": lambda x: x + torch.roll(x, 1, 0),
    "all before": lambda x: x.cumsum(0),
    "all after": lambda x: x.flip(0).cumsum(0).flip(0),
    "the first row": lambda x: x + x[:1],
    "size of the batch": lambda x: x / len(x),
    "place in the batch": lambda x: x + torch.arange(len(x))[:, None],
    "precision of the batch": lambda x: torch.round(x / x.abs().max() * 127) * x.abs().max() / 127,
}


@pytest.mark.parametrize("function", MIXING.values(), ids=MIXING)
def test_modules_that_mix_rows_are_refused(function):
    with pytest.raises(ValueError, match="when other rows of the batch change"):
        TorchFeatures(Calls(function)).fit(ROWS)


def test_recurrent_and_attention_layers_need_the_batch_first():
    class Encoder(nn.Module):
        def __init__(self, batch_first):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)

        def forward(self, rows):
            return self.layer(rows)

    assert TorchFeatures(Encoder(True), input_shape=(2, 8)).fit_transform(ROWS).shape == (23, 16)
    with pytest.raises(ValueError, match="batch_first"):
        TorchFeatures(Encoder(False), input_shape=(2, 8)).fit(ROWS)


class Counter(nn.Module):
    """Remembers how many batches it has seen."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, rows):
        self.seen += 1
        return rows + self.seen


@pytest.mark.parametrize(
    "module",
    [
        Calls(lambda x: nn.functional.dropout(x, 0.1)),
        Calls(lambda x: torch.bernoulli(torch.sigmoid(x))),
        Counter(),
    ],
    ids=["dropout", "random", "state"],
)
def test_modules_that_change_between_calls_are_refused(module):
    with pytest.raises(ValueError, match="in two calls"):
        TorchFeatures(module).fit(ROWS)


# Errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"module": 3}, r"`module` must be a torch.nn.Module, got int"),
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1, got 0"),
        ({"input_shape": [4, 4]}, r"`input_shape` must be None or a tuple of int, got \[4, 4\]"),
        ({"input_shape": (4, -1)}, r"`input_shape\[...\]` must be an integer of at least 1"),
        ({"input_shape": (3, 3)}, r"`input_shape`=\(3, 3\) holds 9 numbers, but rows have 16"),
        (
            {"device": "gpu"},
            "`device` must be 'cpu', 'cuda', 'cuda:<index>', 'auto' or .*got 'gpu'",
        ),
        ({"device": "cuda:99"}, "`device`='cuda:99' is not there: .*'cpu' or 'auto'"),
        ({"device": None}, "got None"),
        ({"module": nn.Linear(5, 2)}, r"cannot map 5 random rows of shape \(16,\).*`input_shape`"),
        ({"module": nn.LSTM(16, 2)}, "one real tensor, got tuple"),
        ({"module": Calls(torch.fft.fft)}, "one real tensor, got torch.complex64"),
        ({"module": Calls(lambda x: x[:2])}, r"one entry a row, got shape \(2, 16\)"),
        ({"module": Calls(lambda x: x.sum())}, r"one entry a row, got shape \(\)"),
        ({"module": nn.LazyLinear(3)}, "lazy layers"),
        ({"module": Calls(lambda x: x / 0 * 0)}, "nothing but NaN and infinity"),
    ],
)
def test_errors_name_the_way_out(options, match):
    with pytest.raises(ValueError, match=match):
        TorchFeatures(**{"module": nn.Identity()} | options).fit(ROWS)


def test_images_must_come_flat_and_of_one_size():
    model = TorchFeatures(nn.Flatten(), input_shape=(1, 4, 4))
    images = ROWS.reshape(-1, 1, 4, 4)
    for pictures in (images, torch.tensor(images)):
        with pytest.raises(ValueError, match=r"two axes, got 4.*input_shape=X.shape\[1:\]"):
            model.fit(pictures)
    with pytest.raises(ValueError, match="16 features"):
        model.fit(ROWS).transform(ROWS[:, :9])
    with pytest.raises(ValueError, match="NaN"):
        model.transform(np.where(ROWS > 2, np.nan, ROWS))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_auto_is_the_cpu_and_cuda_an_error():
    model = TorchFeatures(nn.Linear(16, 3), device="auto").fit(ROWS)
    assert model.transform(ROWS).shape == (23, 3)
    with pytest.raises(ValueError, match=r"`device`='cuda' is not there: torch sees 0.*'cpu'"):
        TorchFeatures(nn.Linear(16, 3), device="cuda").fit(ROWS)
    with pytest.raises(
        ValueError, match="`device`='cuda' is not there"
    ):  # fitted on another machine
        model.set_params(device="cuda").transform(ROWS)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:0"])
def test_a_gpu_gives_what_the_cpu_gives(device):
    X = load_digits().data[:300]
    model = TorchFeatures(convolutions(), input_shape=(1, 8, 8), device=device).fit(X)
    expected = clone(model).set_params(device="cpu").fit_transform(X)
    np.testing.assert_allclose(model.transform(X), expected, rtol=1e-2, atol=1e-2)
    assert next(model.module_.parameters()).is_cuda
    loaded = pickle.loads(pickle.dumps(model))
    assert not next(loaded.module_.parameters()).is_cuda
    np.testing.assert_allclose(loaded.transform(X), expected, rtol=1e-2, atol=1e-2)


def test_failures_on_private_rows_do_not_quote_them():
    def picky(rows):
        if rows.max() > 1e6:
            raise ValueError(f"cannot map {rows.max()}")
        return rows

    X = ROWS.copy()
    X[3, 3] = 12345678.0
    with pytest.raises(RuntimeError, match="failed with ValueError") as caught:
        TorchFeatures(Calls(picky)).fit_transform(X)
    frames = (frame for frame, _ in traceback.walk_tb(caught.value.__traceback__))
    package = dpsubspace.__path__[0] + os.sep  # the test may stand in a folder of that name
    ours = [frame.f_locals for frame in frames if frame.f_code.co_filename.startswith(package)]
    assert ours and not any(isinstance(v, np.ndarray) for local in ours for v in local.values())
    assert "12345678" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


# In front of private estimators -----------------------------------------------------------------


def test_a_pipeline_learns_digits_and_a_ledger_counts_it():
    X, y = load_digits(return_X_y=True)
    pipeline = make_pipeline(
        TorchFeatures(convolutions(), input_shape=(1, 8, 8)), DPSGDFClassifier(epsilon=3.0)
    )
    ledger = PrivacyLedger(epsilon=4.0, delta=1e-5)
    model = ledger.fit(pipeline, X[:1400], y[:1400])
    assert model.score(X[1400:], y[1400:]) > 0.8
    assert len(ledger.entries) == 1 and ledger.epsilon() == pytest.approx(3.0, abs=1e-3)
    assert model[-1].privacy_.event == ledger.entries[0].event


def test_a_ledger_takes_no_subclass_unless_it_is_frozen():
    class Scaled(TorchFeatures):
        def transform(self, X):
            out = super().transform(X)
            return out - out.mean(axis=0)

    X, y = ROWS, np.arange(23) % 2
    ledger = PrivacyLedger(epsilon=9.0, delta=1e-5)
    with pytest.raises(PrivacyError, match="Scaled"):
        ledger.fit(make_pipeline(Scaled(nn.Identity()), DPSGDClassifier()), X, y)
    frozen = FrozenEstimator(TorchFeatures(nn.Identity()).fit(X))
    with pytest.warns(UserWarning, match="noise"):
        ledger.fit(make_pipeline(frozen, DPSGDClassifier()), X, y)


def test_a_large_column_does_not_hide_mixing_in_the_others():
    class Hidden(torch.nn.Module):
        def forward(self, x):
            return torch.cat([torch.full((len(x), 1), 1e9), x - x.mean(0)], dim=1)

    with pytest.raises(ValueError, match="random row to other features"):
        TorchFeatures(Hidden()).fit(np.zeros((10, 4)))
