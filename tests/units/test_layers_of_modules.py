"""Inner products of gradients of torch modules, layer by layer, against gradients written out."""

import subprocess
import sys

import numpy as np
import pytest
import zoo
from helpers import thinned, who
from zoo import nn, torch

from dpsubspace._core.gradients import factors, modules
from dpsubspace._core.gradients.clipping import clipped_sum
from dpsubspace._core.gradients.factors import Outer
from dpsubspace._core.gradients.losses import CLASSIFIER_LOSSES, LogLoss, Squared
from dpsubspace._core.gradients.modules import LayeredSource, ModuleGradients, ModuleSource
from dpsubspace._core.ground.arrays import EPS
from dpsubspace.public_data._distances import probe_network

WIDTH = 48


@pytest.fixture(autouse=True)
def one_thread():
    """Nets this small gain nothing from threads, which wait for each other where cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Modules --------------------------------------------------------------------------------------


def images(*middle):
    """Layers between rows as images of 3 x 4 x 4 and three scores."""
    return nn.Sequential(nn.Unflatten(1, (3, 4, 4)), *middle, nn.Flatten(), nn.LazyLinear(3))


def lines(*middle):
    return nn.Sequential(nn.Unflatten(1, (3, 16)), *middle, nn.Flatten(), nn.LazyLinear(3))


class Twice(nn.Module):
    """A layer that is used twice, the second time on one position instead of four."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, rows):
        several = torch.tanh(self.layer(input=rows.reshape(-1, 4, 12)))
        return self.head(torch.tanh(self.layer(several.sum(1))))


class Tied(nn.Module):
    """Two layers of one weight, each with its own bias."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.second.weight = self.first.weight
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, rows):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(rows)))))


class Transposed(nn.Module):
    """A weight that is used by its layer and once more, transposed."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(WIDTH, 5), nn.Linear(WIDTH, 3)

    def forward(self, rows):
        return self.head(torch.tanh(self.layer(rows)) @ self.layer.weight)


class Attention(nn.Module):
    """One head of attention over four tokens, of linear layers."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(12, 12) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 3)

    def forward(self, rows):
        tokens = rows.reshape(-1, 4, 12)
        weights = torch.softmax(self.query(tokens) @ self.key(tokens).mT / 12**0.5, -1)
        return self.head(self.norm(tokens + weights @ self.value(tokens)).mean(1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(12, 2, 8, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, rows):
        return self.head(self.layer(rows.reshape(-1, 4, 12)).mean(1))


class Folded(nn.Module):
    """A convolution of every channel as an image of its own, and of images without a batch."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 2, 3), nn.Linear(8, 3)

    def forward(self, rows):
        each = self.conv(rows.reshape(-1, 1, 4, 4)).reshape(len(rows), 3, 8)
        alone = torch.stack([self.conv(row.reshape(3, 4, 4)[:1]).reshape(8) for row in rows])
        return self.head(torch.tanh(each.sum(1)) + alone)


class Own(nn.Module):
    """Parameters of its own, one of them never used, and a weight that no layer is called with."""

    def __init__(self):
        super().__init__()
        self.scale, self.unused = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(3))
        self.hidden, self.head = nn.Linear(WIDTH, 7), nn.Linear(7, 3)

    def forward(self, rows):
        weight = nn.functional.normalize(self.hidden.weight, dim=1)
        return self.head(torch.tanh((rows * self.scale) @ weight.T + self.hidden.bias))


class Table(nn.Module):
    """Rows that are looked up."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(5, 4), nn.Linear(4, 3)

    def forward(self, rows):
        return self.head(self.table((rows.abs() * 2).long().clip(max=4)).mean(1))


def half_frozen():
    """A frozen layer, a frozen weight and a frozen bias."""
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3)), nn.Linear(WIDTH, 3))
    net[0].requires_grad_(False)
    net[1].weight.requires_grad_(False)
    net[2].bias.requires_grad_(False)
    return net


MODULES = {
    "linear": lambda: nn.Linear(WIDTH, 3),
    "perceptron": lambda: nn.Sequential(
        nn.Linear(WIDTH, 9), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(9, 3, bias=False)
    ),
    "wide": lambda: nn.Sequential(nn.Linear(WIDTH, 200), nn.Tanh(), nn.Linear(200, 3)),
    "sequence": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 24)), nn.Linear(24, 40), nn.Tanh(), nn.Flatten(), nn.Linear(80, 3)
    ),
    "long sequence": lambda: nn.Sequential(
        nn.Unflatten(1, (12, 4)), nn.Linear(4, 30), nn.Tanh(), nn.Flatten(), nn.Linear(360, 3)
    ),
    "stride": lambda: images(nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.GroupNorm(1, 5)),
    "dilation": lambda: images(nn.Conv2d(3, 4, 2, dilation=(1, 2), padding=(2, 1)), nn.Tanh()),
    "same": lambda: images(nn.Conv2d(3, 4, (1, 3), padding="same", dilation=(1, 2)), nn.Tanh()),
    "circular": lambda: images(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.Tanh()),
    "deep": lambda: images(nn.Conv2d(3, 50, 2, 2), nn.Tanh(), nn.Conv2d(50, 60, 2), nn.Tanh()),
    "grouped": lambda: images(nn.Conv2d(3, 6, 3, groups=3), nn.Tanh()),
    "one side": lambda: lines(nn.Conv1d(3, 4, 5, stride=3, padding=2), nn.LayerNorm(6)),
    "three sides": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 3, 4, 4)), nn.Conv3d(1, 4, 2), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3)
    ),
    "folded": Folded,
    "twice": Twice,
    "tied": Tied,
    "transposed": Transposed,
    "attention": Attention,
    "encoder": Encoder,
    "own": Own,
    "table": Table,
    "frozen": half_frozen,
}


def made(name, dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = MODULES[name]()
        module(torch.zeros(1, WIDTH))  # for lazy layers
        return module.to(dtype)


def rows(n, seed=0, n_classes=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, WIDTH)), rng.integers(n_classes, size=n)


def gradients(module, n=11, loss=None, **options):
    return ModuleGradients(module, loss or LogLoss(), *rows(n), n_targets=3, **options)


def written_out(module, X, y, loss=None):
    source = ModuleSource(module, loss or LogLoss(), X, y, n_targets=3)
    return source.at(source.start(), slice(0, len(X))).dense().numpy()


# Products -------------------------------------------------------------------------------------


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_products_are_those_of_gradients_written_out(name, small, monkeypatch):
    module = made(name)
    if small:  # blocks of few rows, products in pieces
        monkeypatch.setattr(modules, "_HELD_BYTES", 1 << 14)
        monkeypatch.setattr(factors, "_WIDE", 1 << 9)
        monkeypatch.setattr(factors, "_CACHED", 1 << 9)
    loss = CLASSIFIER_LOSSES["hinge" if small else "log_loss"]
    found = gradients(module, loss=loss, microbatch_size=4)
    other = found.of_rows(*rows(7, seed=1))
    G, H = written_out(module, *rows(11), loss), written_out(module, *rows(7, seed=1), loss)
    atol = 1e-10 * np.abs(G @ G.T).max()
    np.testing.assert_allclose(found.gram(), G @ G.T, rtol=1e-8, atol=atol)
    np.testing.assert_allclose(found.inner(other), G @ H.T, rtol=1e-8, atol=atol)
    np.testing.assert_allclose(other.inner(found), H @ G.T, rtol=1e-8, atol=atol)
    np.testing.assert_allclose(found.squares(), (G**2).sum(1), rtol=1e-8, atol=atol)
    np.testing.assert_array_equal(found.gram(), found.gram().T)
    np.testing.assert_array_equal(found.inner(found), found.gram())


@pytest.mark.parametrize("name", ["wide", "sequence", "deep", "tied", "twice"])
def test_wide_layers_are_not_formed(name):
    found, module = gradients(made(name)), made(name)
    formed = sum(part.stop - part.start for part in found._rows._columns.values())
    assert formed < sum(p.numel() for p in module.parameters()) / 2


def test_parameters_that_layers_do_not_tell_of_are_taken_apart():
    assert gradients(made("transposed"))._rows._apart == {"layer.weight"}
    assert gradients(made("own"))._rows._apart == {
        "scale",
        "unused",
        "hidden.weight",
        "hidden.bias",
    }
    assert gradients(made("tied"))._rows._apart == set()


@pytest.mark.parametrize("sizes", [(1, 5, 7), (2, 30, 40), (9, 3, 4), (9, 30, 1)], ids=str)
def test_every_way_to_multiply_gives_the_same(sizes, rng):
    t, d_in, d_out = sizes
    layer = nn.Linear(d_in, d_out).double()
    one, other = (
        Outer(
            (layer,),
            (torch.as_tensor(rng.normal(size=(n, t, d_in))),),
            (torch.as_tensor(rng.normal(size=(n, t, d_out))),),
        )
        for n in (6, 5)
    )
    assert one.sizes == sizes
    G, H = one.dense().flatten(1), other.dense().flatten(1)
    for product in (one.inner, one._inner_by_pairs, one._inner_dense):
        torch.testing.assert_close(product(other), G @ H.T, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(one.squares(), (G * G).sum(1), rtol=1e-12, atol=1e-12)


def test_two_classes_have_one_output():
    module = nn.Linear(WIDTH, 1).double()
    X, y = rows(9, n_classes=2)
    found = ModuleGradients(module, LogLoss(), X, y).gram()
    source = ModuleSource(module, LogLoss(), X, y)
    G = source.at(source.start(), slice(0, 9)).dense().numpy()
    np.testing.assert_allclose(found, G @ G.T, rtol=1e-10)


@pytest.mark.parametrize("name", ["perceptron", "stride", "attention"])
def test_modules_in_float32_are_as_exact_as_their_factors(name):
    single, double = (
        gradients(made(name, dtype)).gram() for dtype in (torch.float32, torch.float64)
    )
    scale = np.sqrt(np.outer(np.diag(double), np.diag(double)))
    assert (single != double).any() and (np.abs(single - double) < 1e-5 * scale).all()
    assert single.dtype == np.float64


def test_rows_have_the_shape_that_the_module_takes():
    flat = made("stride")
    X, y = rows(6)
    shaped = ModuleGradients(flat[1:], LogLoss(), X, y, n_targets=3, input_shape=(3, 4, 4))
    whole = ModuleGradients(flat, LogLoss(), X, y, n_targets=3)
    np.testing.assert_array_equal(shaped.gram(), whole.gram())
    with pytest.raises(ValueError, match="rows have 47"):
        shaped.of_rows(X[:, 1:], y)


def test_other_labels_and_no_rows():
    found, (X, _) = gradients(made("twice")), rows(11)
    y = np.arange(11) % 3
    expected = ModuleGradients(made("twice"), LogLoss(), X, y, n_targets=3).gram()
    np.testing.assert_array_equal(found.relabelled(y).gram(), expected)
    assert not np.allclose(found.gram(), expected)
    none = found.of_rows(X[:0], y[:0])
    assert none.n_samples == 0 and none.gram().shape == (0, 0) and none.squares().shape == (0,)
    assert found.inner(none).shape == (11, 0)


def test_other_modules_have_no_products_with_these():
    with pytest.raises(ValueError, match="other modules"):
        gradients(made("wide")).inner(gradients(made("linear")))


CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("sides", CONVOLUTIONS)
def test_rows_that_are_padded_in_any_way_have_gradients_of_autograd(sides, mode, rng):
    """Windows of inputs have the same padding: none has to be taken apart to be right."""
    shape, before = (2, *[3] * sides), torch.get_rng_state()
    torch.manual_seed(0)
    layer = CONVOLUTIONS[sides](2, 3, 3, padding=1, padding_mode=mode)
    width = 3 * 3**sides
    module = nn.Sequential(nn.Unflatten(1, shape), layer, nn.Tanh(), nn.Flatten())
    module = module.append(nn.Linear(width, 3)).double()
    torch.set_rng_state(before)
    X, y = rng.normal(size=(5, int(np.prod(shape)))), np.arange(5) % 3
    expected = []
    for row, label in zip(torch.tensor(X), torch.tensor(y), strict=True):
        loss = nn.functional.cross_entropy(module(row[None]), label[None])
        found = torch.autograd.grad(loss, list(module.parameters()))
        expected.append(torch.cat([part.ravel() for part in found]))
    expected = torch.stack(expected)
    for gradients in both(module, X, y):
        torch.testing.assert_close(gradients.dense(), expected, rtol=1e-9, atol=1e-12)
    found = ModuleGradients(module, LogLoss(), X, y, n_targets=3)
    np.testing.assert_allclose(found.gram(), expected @ expected.T, rtol=1e-9)
    assert not found._rows._apart


# Sums -----------------------------------------------------------------------------------------


def both(module, X, y, loss=None, **options):
    """Gradients at the start of a module, kept as factors and written out."""
    sources = (
        kind(module, loss or LogLoss(), X, y, n_targets=3, **options)
        for kind in (LayeredSource, ModuleSource)
    )
    return [source.at(source.start(), slice(0, len(X))) for source in sources]


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_sums_are_those_of_gradients_written_out(name, small, monkeypatch, rng):
    if small:
        monkeypatch.setattr(factors, "_WIDE", 1 << 9)
        monkeypatch.setattr(modules, "_CHUNK_BYTES", 1 << 9)
    loss = CLASSIFIER_LOSSES["hinge" if small else "log_loss"]
    found, formed = both(made(name), *rows(11), loss, microbatch_size=4 if small else None)
    G = formed.dense()
    close = {"rtol": 1e-8, "atol": 1e-10 * float(G.abs().max())}
    torch.testing.assert_close(found.dense(), G, **close)
    assert found.shape == formed.shape == (11, G.shape[1]) and found.norms().dtype == torch.float64
    long = torch.linalg.norm(G, dim=1)
    assert (found.norms() >= long * (1 - 1e-10)).all()
    torch.testing.assert_close(found.norms(), long, rtol=1e-6, atol=float(long.max()) / 256)
    weights = torch.tensor(rng.uniform(size=11))
    torch.testing.assert_close(found.weighted_sum(weights), weights @ G, **close)
    torch.testing.assert_close(
        clipped_sum(found, 0.1).value, clipped_sum(formed, 0.1).value, **close
    )


def test_what_needs_rows_forms_them(rng):
    found, formed = both(made("sequence"), *rows(11))
    weights, counts = torch.tensor(rng.uniform(size=11)), np.array([3, 8])
    one = formed.dense()[2]
    for ask in (
        lambda grads: grads.sums(weights, counts),
        lambda grads: grads.inner(formed)[0],
        lambda grads: grads.dot(one),
        lambda grads: grads.part(slice(3, 9)).dense(),
        lambda grads: grads.part([4, 1]).norms(),
    ):
        torch.testing.assert_close(ask(found), ask(formed), rtol=1e-8, atol=1e-9)
    assert found.wide_slack() == found.slack() and found.shares is None


class Opposed(nn.Module):
    """What two halves of a row have in common is taken out, so that its gradients cancel."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(WIDTH // 2, 40), nn.Linear(40, 3)

    def forward(self, rows):
        halves = self.layer(rows.reshape(-1, 2, WIDTH // 2))
        return self.head(halves[:, 0] - halves[:, 1])


def test_gradients_that_cancel_are_taken_to_be_longer(rng):
    """Rounding of a sum is in proportion to its terms, of which a record may have long ones."""
    X, y = rows(40)
    X[7] = 1e8 * np.tile(X[7, : WIDTH // 2], 2)
    X[7, 0] += 1
    module = Opposed().double()
    found, formed = both(module, X, y)
    long = torch.linalg.norm(formed.dense(), dim=1)
    assert found.norms()[7] > 1e3 * long[7]
    rest = np.delete(np.arange(40), 7)
    torch.testing.assert_close(found.norms()[rest], long[rest], rtol=1e-10, atol=0)
    without, _ = both(module, np.delete(X, 7, axis=0), np.delete(y, 7))
    for clip_norm in (1e-6, 0.1):
        whole, other = (clipped_sum(grads, clip_norm) for grads in (found, without))
        assert torch.linalg.norm(whole.value - other.value) <= whole.norm_bound
    assert found.slack() < 1e-6
    outer = found.held.outer[0]
    squares, longer = (np.sqrt(part.numpy()) for part in outer.lengths())
    A, D = (factor.numpy() for factor in outer._wide(slice(None)))
    expected = (np.linalg.norm(A, axis=2) * np.linalg.norm(D, axis=2)).sum(1)
    assert (longer >= expected).all()
    np.testing.assert_allclose(longer, expected, rtol=1e-12)
    exact = np.linalg.norm(np.einsum("nto,nti->noi", D, A), axis=(1, 2))
    assert (squares >= exact).all()
    assert squares[7] - exact[7] < 1e-6 * longer[7]


@pytest.mark.parametrize("name", ["perceptron", "stride", "encoder"])
@pytest.mark.parametrize("bad", [None, np.inf, np.nan, 1e200])
def test_a_changed_row_moves_a_sum_by_no_more_than_the_bounds(name, bad):
    module, (X, y) = made(name, torch.float32), rows(30)
    other = X.copy()
    other[5] = X[5] + 1 if bad is None else bad
    present = np.arange(30) != 5
    options = {"n_targets": 3, "microbatch_size": 8}
    null = who(present, 30)
    sources = (
        LayeredSource(module, LogLoss(), X, y, **options),
        LayeredSource(module, LogLoss(), other, y, **options),
        LayeredSource(module, LogLoss(), X, y, records=null, **options),
    )
    for batch in (None, np.arange(1, 30, 2)):
        whole, replaced, nulled = (
            [clipped_sum(source.at(source.start(), part), 0.3) for part in source.chunks(batch)]
            for source in sources
        )
        sums = [sum(part.value for part in parts) for parts in (whole, replaced, nulled)]
        assert all(torch.isfinite(total).all() for total in sums)
        assert 0 < torch.linalg.norm(sums[0] - sums[2]) <= whole[0].norm_bound
        assert torch.linalg.norm(sums[0] - sums[1]) <= whole[0].replace_bound
        if bad is not None:
            assert torch.equal(sums[1], sums[2])


@pytest.mark.parametrize("name", ["linear", "wide"])
def test_a_row_with_one_entry_out_of_range_counts_as_none(name):
    """Scores, or what comes out of the first layer, may be finite although its input is not."""
    module, (X, y) = made(name, torch.float32), rows(20)
    records = who(np.arange(20) != 5, 20)
    options = {"n_targets": 3, "microbatch_size": 8}
    sources = [LayeredSource(module, LogLoss(), X, y, records=records, **options)]
    for bad in (np.inf, -np.inf, 1e39):
        other = X.copy()
        other[5, 7] = bad
        sources.append(LayeredSource(module, LogLoss(), other, y, **options))
    nulled, *totals = (
        sum(clipped_sum(source.at(source.start(), part), 0.3).value for part in source.chunks())
        for source in sources
    )
    for total in totals:
        assert torch.isfinite(total).all() and torch.equal(total, nulled)
    products = ModuleGradients(module, LogLoss(), other, y, n_targets=3).squares()
    assert np.isfinite(products).all() and products[5] == 0


def test_sums_of_layers_without_positions_are_zero():
    class Empty(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(WIDTH, 40), nn.Linear(WIDTH, 3)

        def forward(self, rows):
            none = self.layer(rows[:, None][:, :0])
            return self.head(rows) + none.sum((1, 2))[:, None]

    found, formed = both(Empty().double(), *rows(11))
    close = {"rtol": 1e-8, "atol": 1e-12}
    torch.testing.assert_close(
        clipped_sum(found, 0.1).value, clipped_sum(formed, 0.1).value, **close
    )


def test_chunks_of_factors_are_larger_and_no_rows_are_none():
    X, y = rows(5000)
    source = LayeredSource(made("linear", torch.float32), LogLoss(), X, y, n_targets=3)
    assert source.chunk == 4096 and len(source.chunks()) == 2
    wide = LayeredSource(made("wide", torch.float32), LogLoss(), X, y, n_targets=3)
    assert wide.chunk == 2**23 // wide._rows.held_bytes() // 128 * 128
    images = LayeredSource(made("deep", torch.float32), LogLoss(), X[:9], y[:9], n_targets=3)
    for each in (source, images):
        (empty,) = each.chunks(np.array([], dtype=int))
        grads = each.at(each.start(), empty)
        assert grads.dense().shape == (0, each.n_params) and grads.norms().shape == (0,)
        assert not clipped_sum(grads, 1.0).value.any()


def test_slack_counts_positions_and_what_moves(monkeypatch):
    X, y = rows(400)

    def slacks(name, again=0.0):
        monkeypatch.setattr(factors.LayerByLayer, "spread", lambda self, size: again)
        source = LayeredSource(made(name), LogLoss(), X, y, n_targets=3, microbatch_size=128)
        parts = (slice(0, 5), np.arange(5))
        return [source.at(source.start(), part).slack() for part in parts], source._rows.n_positions

    (flat, batch), positions = slacks("wide")
    assert positions == 1 and flat < batch < 1e-8
    (several, _), positions = slacks("deep")
    assert positions == 4 and several == pytest.approx(128**2 * EPS * 4 * 256, rel=0.1)
    assert slacks("wide", again=1e-6)[0] == pytest.approx([400e-6, 400e-6], rel=1e-3)


def test_a_spread_is_that_of_the_gradients_behind_factors():
    source = LayeredSource(made("sequence"), LogLoss(), *rows(11), n_targets=3)
    taken = source._rows
    with torch.no_grad():
        batch = taken.batch(rows(300)[0], 300)
        first = taken._parts(taken._starts, batch, lambda scores: scores)
    moved = [first[0], first[1] * (1 + 1e-4), *first[2:]]
    assert taken._spread(first, [part.clone() for part in first]) == 0
    assert 2**-20 < taken._spread(first, moved) < 16e-4
    assert taken._formed(first).shape == (150, source.n_params)


# Single rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["perceptron", "stride", "twice", "encoder"])
@pytest.mark.parametrize("bad", [None, np.inf, np.nan, 1e200])
def test_a_changed_row_changes_no_other_product(name, bad):
    module, (X, y) = made(name), rows(11)
    before = ModuleGradients(module, LogLoss(), X, y, n_targets=3, microbatch_size=4)
    X = X.copy()
    X[5] = X[5] + 1 if bad is None else bad
    after = before.of_rows(X, y)
    rest = np.delete(np.arange(11), 5)
    np.testing.assert_array_equal(
        after.gram()[np.ix_(rest, rest)], before.gram()[np.ix_(rest, rest)]
    )
    np.testing.assert_array_equal(after.squares()[rest], before.squares()[rest])
    if bad is None:
        assert after.squares()[5] != before.squares()[5]
    else:
        assert np.isfinite(after.gram()).all() and np.isfinite(after.squares()).all()
    if bad is not None and not np.isfinite(bad):
        assert not after.gram()[5].any() and not after.squares()[5]


def test_a_row_has_the_same_products_wherever_it_stands():
    found, (X, y) = gradients(made("deep"), microbatch_size=4), rows(11)
    order = np.random.default_rng(1).permutation(11)
    moved = found.of_rows(X[order], y[order])
    np.testing.assert_allclose(moved.gram(), found.gram()[np.ix_(order, order)], rtol=1e-10)


# Memory ---------------------------------------------------------------------------------------


@pytest.mark.wide
def test_memory_does_not_grow_with_rows_times_parameters():
    code = """
import resource
import numpy as np
import torch
from dpsubspace._core.gradients.modules import ModuleGradients
from dpsubspace._core.gradients.losses import LogLoss

torch.set_num_threads(1)
nn = torch.nn
net = nn.Sequential(nn.Linear(64, 2000), nn.ReLU(), nn.Linear(2000, 1000), nn.Linear(1000, 3))
X, y = np.random.default_rng(0).normal(size=(600, 64)), np.arange(600) % 3
found = ModuleGradients(net, LogLoss(), X[:128], y[:128], n_targets=3)
found.gram()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found.of_rows(X, y).inner(found.of_rows(X[:300], y[:300]))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(sum(p.numel() for p in net.parameters()), (after - before) * 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    n_params, grown = map(int, done.stdout.split())
    # 772 more rows than before; one row in twenty of gradients would be more than this.
    assert n_params > 2e6 and grown < 772 * 4 * n_params / 20


def test_two_blocks_are_no_more_than_may_be_held(monkeypatch):
    monkeypatch.setattr(modules, "_HELD_BYTES", 1 << 16)
    found = gradients(made("deep"), n=40, microbatch_size=2)
    blocks = found._blocks(found._n_held // 2)
    assert sum(len(range(40)[rows]) for rows in blocks) == 40 and len(blocks) > 1
    for rows in blocks:
        held = found._held(rows)
        parts = [held.dense, *(t for outer in held.outer for t in (*outer.inputs, *outer.outputs))]
        assert 2 * sum(part.nbytes for part in parts) <= 1 << 16


# Refusals and privacy -------------------------------------------------------------------------


def test_the_module_handed_in_is_never_changed():
    module = made("perceptron").train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    module[0].register_forward_hook(lambda *called: None)
    random_state = torch.get_rng_state()
    gradients(module.train()).gram()
    assert module.training and all(p.grad is None for p in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)
    assert len(module[0]._forward_hooks) == 1


def test_dropout_is_off():
    np.testing.assert_array_equal(
        gradients(made("perceptron").train()).gram(), gradients(made("perceptron").eval()).gram()
    )


def lstm():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(WIDTH, 3, batch_first=True)

        def forward(self, rows):
            return self.layer(rows[:, None])[0][:, 0]

    return Recurrent()


class Behind(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, 3)
        self.aside = [self.layer.weight]

    def forward(self, rows):
        return self.layer(rows) * self.aside[0].sum()


REFUSED = {
    "batch norm": (lambda: lines(nn.Conv1d(3, 3, 3), nn.BatchNorm1d(3)), "GroupNorm"),
    "width": (lambda: nn.Linear(WIDTH, 2), r"\(3, 2\) for 3 rows, but \(3, 3\)"),
    "no vmap": (lstm, "vmap cannot run it"),
    "other names": (Behind, "other gradients for a random row by itself"),
    "all frozen": (lambda: nn.Linear(WIDTH, 3).requires_grad_(False), "no parameter to train"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_modules_without_gradients_by_row_are_refused(name):
    build, message = REFUSED[name]
    module = build()
    if name == "batch norm":
        module(torch.zeros(2, WIDTH))
    with pytest.raises(ValueError, match=message):
        gradients(module)


@pytest.mark.parametrize("name", ["microbatch_size", "device"])
def test_parameters_are_checked(name):
    with pytest.raises(ValueError, match=name):
        gradients(made("linear"), **{name: 0})


@pytest.mark.parametrize("error", [ValueError, MemoryError])
def test_errors_at_private_rows_quote_none_of_them(error):
    class Fails(nn.Linear):
        now = False

        def forward(self, rows):
            if Fails.now:
                raise error("12345.678")
            return super().forward(rows)

    found = gradients(Fails(WIDTH, 3))
    Fails.now = True
    expected = MemoryError if error is MemoryError else RuntimeError
    with pytest.raises(expected) as raised:
        found.gram()
    assert "12345" not in str(raised.value)
    assert raised.value.__cause__ is None and raised.value.__context__ is None


def test_rows_that_were_written_to_parameters_end_it():
    found = gradients(made("linear"))
    with torch.no_grad():
        next(found._rows._used.parameters()).zero_()
    with pytest.raises(RuntimeError, match=r"changed its parameters"):
        found.gram()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize("case", thinned(zoo.CASES, 6), ids=str)
def test_nothing_of_the_rows_is_kept(case):
    zoo.cleared()
    X, y = np.random.default_rng(5).normal(size=(20, 16)), np.arange(20) % 2
    try:
        if case.module:
            with pytest.raises(ValueError, match=case.module):
                ModuleGradients(case.build(16, 1), LogLoss(), X, y)
        else:
            ModuleGradients(case.build(16, 1), LogLoss(), X, y, microbatch_size=9).gram()
        assert not zoo.holds(zoo.outside(), X)
    finally:
        zoo.cleared()


class Codes(nn.Module):
    """An embedding of the first entry of a row, which is taken for a code."""

    def __init__(self):
        super().__init__()
        self.codes, self.layer = nn.Embedding(1000, 4), nn.Linear(4, 3)

    def forward(self, rows):
        return self.layer(self.codes(rows[:, 0].abs().long()))


@pytest.mark.parametrize("code", [1500.0, 3020.0])
def test_a_code_that_is_out_of_range_moves_no_other_row(code):
    """Where rows have copies of the table, torch takes it from the copy of a later one."""
    X, y = np.random.default_rng(0).uniform(0, 999, size=(20, 2)), np.arange(20) % 3
    found = ModuleGradients(Codes(), LogLoss(), X, y, n_targets=3)
    assert (found.squares() > 0).all()
    X[10, 0] = code
    with pytest.raises(RuntimeError, match="failed with IndexError"):
        found.of_rows(X, y).squares()


# The probe ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "n_params"), [((3, 32, 32), 29_642), ((1, 28, 28), 29_066)])
def test_the_probe_is_that_of_the_papers(shape, n_params):
    before = torch.get_rng_state()
    one, same, other = (probe_network(shape, 10, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert sum(p.numel() for p in one.parameters()) == n_params
    for a, b, c in zip(one.parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b) and not torch.equal(a, c) and a.requires_grad
        assert 0 < float(a.detach().abs().max()) < 0.4
    X = np.random.default_rng(0).normal(size=(4, np.prod(shape)))
    found = ModuleGradients(one, LogLoss(), X, np.arange(4), n_targets=10, input_shape=shape)
    assert (found.squares() > 0).all()


def test_the_probe_takes_images():
    assert probe_network((1, 2, 2), 2, 0)(torch.zeros(5, 1, 2, 2)).shape == (5, 1)
    with pytest.raises(ValueError, match=r"input_shape.*module"):
        probe_network((784,), 10, 0)
    with pytest.raises(ValueError, match="n_classes"):
        probe_network((1, 28, 28), 1, 0)


WINDOWS = {
    "3 x 3": (lambda nn: nn.Conv2d(8, 9, 3, padding=1), (4, 4), True),
    "dilated": (lambda nn: nn.Conv2d(8, 9, (3, 2), padding=(2, 1), dilation=(2, 1)), (5, 4), True),
    "same": (lambda nn: nn.Conv2d(8, 9, 3, padding="same"), (3, 3), True),
    "line": (lambda nn: nn.Conv1d(8, 9, 3, padding=1), (6,), True),
    "strides": (lambda nn: nn.Conv1d(8, 9, 3, stride=2), (9,), False),
    "circular": (lambda nn: nn.Conv1d(8, 9, 3, padding=1, padding_mode="circular"), (6,), False),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_products_of_windows_are_sums_of_products_of_pixels(name):
    """Where they are fewer, they are used; either way they are those of gradients."""
    make, sizes, used = WINDOWS[name]
    layer = make(nn).double()
    sides = []
    for n in (5, 3):
        images = torch.randn(n, 1, 8, *sizes, dtype=torch.float64)
        outputs = torch.randn_like(layer(images[:, 0]))[:, None]
        sides.append(Outer((layer,), (images,), (outputs,)))
    one, other = sides
    windows = one._windows()
    assert (windows is not None) == used
    expected = one.dense().flatten(1) @ other.dense().flatten(1).T
    found = one._inner_by_windows(other, windows) if used else one.inner(other)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


class TiedTable(nn.Module):
    """The scale of a norm is also a table, from which hostile rows read beyond its end."""

    def __init__(self, width=16):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), nn.Linear(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        places = (x.abs() / 1e6).floor().long()
        read = nn.functional.embedding(places, self.norm.weight[:, None]).sum((1, 2))[:, None]
        return self.out(self.norm(self.inner(x))) * 0.001 + read


def test_a_row_that_reads_beyond_a_table_moves_no_other_row(rng):
    """With copies of parameters for each row it would read from the copies of others."""
    n = width = 16
    X, y = rng.uniform(-0.9, 0.9, (n, width)) * 1e6, np.full((n, 1), float(width))
    other, bounded = X.copy(), []
    other[0] = (np.minimum(np.arange(1, width + 1), n - 1) * width + 5.5) * 1e6
    try:
        for rows in (X, other):
            source = LayeredSource(TiedTable(), Squared(), rows, y, n_targets=1)
            bounded.append(clipped_sum(source.at(source.start(), slice(0, n)), 1.0))
    except (IndexError, RuntimeError):
        return  # refused, as torch does outside of its transforms
    one, two = bounded
    assert torch.linalg.vector_norm(one.value - two.value) <= one.replace_bound
