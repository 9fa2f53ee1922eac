"""What is computed of a row is the same to the last bit wherever the rows of others put it."""

import sys

import numpy as np
import pytest
from helpers import charged, pairwise, releases, replaced, who
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    StandardScaler,
)

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivateSearch,
    private_mean,
)
from dpsubspace._core.fits.composites import moved_by_others
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import Hinge, LogLoss
from dpsubspace._core.ground.arrays import as_like, products_by_row, row_norms, to_numpy
from dpsubspace._core.rows.chunks import FormedRows, Layout
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import Records, RowMap, Shift
from dpsubspace._core.statistics.counts import cell_counts, noisy_radius, noisy_shares
from dpsubspace._core.statistics.quantiles import noisy_quantiles
from dpsubspace.linear_model import PersonalizedLinearRegression, PublicSubspaceLinearRegression
from dpsubspace.neural_network import DPModuleClassifier
from dpsubspace.public_data import GSDScorer
from dpsubspace.statistics import private_covariance, private_quantile, private_spread

WIDTH, N = 13, 31
NORMAL = np.random.default_rng(7).normal(size=10_000)


def rows(n=N, dtype=np.float32, width=WIDTH):
    return np.random.default_rng(0).normal(size=(n, width)).astype(dtype)


def persons(n_first=0, n=N):
    """Records of `n` rows, each of a person, behind those of a person with `n_first` more."""
    index = np.concatenate([np.zeros(n_first, dtype=int), np.arange(n)])
    return Records.of_groups(index, n)


@pytest.fixture(autouse=True)
def one_thread():
    """Nets this small gain nothing from threads, which wait for each other where cores are busy."""
    torch = sys.modules.get("torch")
    before = torch and torch.get_num_threads()
    if torch:
        torch.set_num_threads(1)
    yield
    if torch:
        torch.set_num_threads(before)


# Modules ----------------------------------------------------------------------------------------


def network(kind):
    """A small network, its parameters drawn from a fixed seed."""
    nn = pytest.importorskip("torch").nn
    pytest.importorskip("torch").manual_seed(0)
    if kind == "convolution":
        return nn.Sequential(
            nn.Unflatten(1, (1, WIDTH)),
            nn.Conv1d(1, 3, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(33, 3),
        )
    width = 64 if kind == "wide" else 1
    return nn.Sequential(nn.Linear(WIDTH, width), nn.ReLU(), nn.Linear(width, 3))


def bits(grads):
    """All that a clipped sum is made of, one line of bytes a row."""
    held = getattr(grads, "held", None)
    parts = [grads.rows] if held is None else [held.dense]
    parts += [p for outer in (held.outer if held else ()) for p in (*outer.inputs, *outer.outputs)]
    parts = [part.reshape(len(part), -1) for part in parts]
    return [b"".join(part[i].numpy().tobytes() for part in parts) for i in range(len(parts[0]))]


@pytest.mark.parametrize(
    ("form", "microbatch_size", "kind"),
    pairwise(
        ["batch", "batch and public rows", "persons"],
        [2, 5, 7, None],
        ["kink", "wide", "convolution"],
    ),
)
def test_gradients_of_a_row_do_not_depend_on_its_place(form, microbatch_size, kind):
    from dpsubspace._core.gradients.modules import LayeredSource, ModuleSource

    module, X, y = network(kind), rows(), np.arange(N) % 3
    kind = LayeredSource if form == "batch" else ModuleSource
    options = {"microbatch_size": microbatch_size, "n_targets": 3}
    if form == "persons":
        options["records"] = persons(0)
    else:
        options["sample_rate"] = 0.5
    source, found = kind(module, LogLoss(), X, y, **options), []
    for first in range(6):  # the same rows, one place further
        batch = np.arange(first, N)
        chunks = source.chunks(batch)
        found.append([line for chunk in chunks for line in bits(source.at(source.start(), chunk))])
    assert all(found[0][i:] == each for i, each in enumerate(found))


@pytest.mark.parametrize("unit", ["Sigmoid", "ELU", "SiLU", "Softplus"])
@pytest.mark.parametrize(("width", "microbatch_size"), [(13, 48), (200, 48), (600, 37), (3, 16)])
def test_smooth_units_of_a_row_do_not_depend_on_its_place(unit, width, microbatch_size):
    """A few last numbers of a batch are computed one by one, and one of 40 has another last bit."""
    from dpsubspace._core.gradients.modules import ModuleSource

    nn = pytest.importorskip("torch").nn
    pytest.importorskip("torch").manual_seed(1)
    module = nn.Sequential(nn.Linear(width, 1), getattr(nn, unit)(), nn.Linear(1, 1))
    X, options = rows(200, width=width), {"n_targets": 2, "microbatch_size": microbatch_size}
    source = ModuleSource(module, LogLoss(), X, np.arange(200) % 2, sample_rate=0.99, **options)
    found = []
    for first in range(0, 48, 7):
        chunks = source.chunks(np.arange(first, 200))
        found.append([line for chunk in chunks for line in bits(source.at(source.start(), chunk))])
    assert all(found[0][7 * i :] == each for i, each in enumerate(found))


@pytest.mark.parametrize("share", [0.5, 1 / 40])
@pytest.mark.parametrize("size", [4, 8, 64])
def test_places_that_give_few_rows_other_bits_are_found(share, size):
    """The last half of a batch, where so many rows have other bits there."""
    from dpsubspace._core.gradients.torch_rows import even_bits

    def mapped(given):
        out = given[:, :1].copy()
        some = (np.arange(size) >= size / 2) & (given[:, 1] < np.quantile(NORMAL, share))
        out[some] = np.nextafter(out[some], 9)
        return [out]

    assert even_bits(mapped, WIDTH, size) is None


@pytest.mark.parametrize("microbatch_size", [5, 128])
def test_scores_of_a_row_do_not_depend_on_its_place(microbatch_size):
    from dpsubspace._core.gradients.modules import ModuleSource

    options = {"records": persons(0), "microbatch_size": microbatch_size, "n_targets": 3}
    source = ModuleSource(network("wide"), Hinge(), rows(), np.arange(N) % 3, **options)
    scores = [source.scores_at(source.start(), np.arange(i, N)).numpy() for i in range(6)]
    assert all((scores[0][i:] == each).all() for i, each in enumerate(scores))


@pytest.mark.parametrize("form", ["batch", "persons"])
def test_a_fit_has_as_many_threads_as_its_sizes_were_found_with(form, monkeypatch):
    """What a callback sets is for others: which places are alike depends on it."""
    torch = pytest.importorskip("torch")
    from dpsubspace._core.gradients import vectorised
    from dpsubspace._core.gradients.modules import LayeredSource, ModuleSource

    kind = LayeredSource if form == "batch" else ModuleSource
    options = {"sample_rate": 0.5} if form == "batch" else {"records": persons(0)}
    source = kind(network("kink"), LogLoss(), rows(), np.arange(N) % 3, n_targets=3, **options)
    seen, batch = [], vectorised.RowByRow.batch

    def watched(*given):
        seen.append(torch.get_num_threads())
        return batch(*given)

    monkeypatch.setattr(vectorised.RowByRow, "batch", watched)
    start, chunk = source.start(), source.chunks(np.arange(9))[0]
    first = bits(source.at(start, chunk))
    torch.set_num_threads(2)  # the fixture has set one
    assert bits(source.at(start, chunk)) == first
    source.scores_at(start, np.arange(4))
    source.mean_loss(start, np.arange(4))
    assert len(seen) >= 4 and set(seen) == {1} and torch.get_num_threads() == 2


@pytest.mark.parametrize("place", [None, 0, 3, 6])
@pytest.mark.parametrize("entry", [0, 2])
def test_a_place_that_rounds_otherwise_is_found(place, entry):
    torch = pytest.importorskip("torch")
    from dpsubspace._core.gradients.torch_rows import even_bits

    def mapped(given):
        out = torch.tensor(given, dtype=torch.float32)
        if place is not None:
            out[place, entry] = torch.nextafter(out[place, entry], torch.tensor(9.0))
        return [out[:, :1], out]

    assert (even_bits(mapped, WIDTH, 7) is None) == (place is not None)
    assert even_bits(lambda given: [mapped(np.tile(given, (7, 1)))[1][1:2]], WIDTH, 1) is not None


def test_residuals_are_those_of_whole_batches():
    """Also those of the last rows, how many of which there are depends on other records."""
    from dpsubspace._core.gradients.modules import ModuleSource

    seen = []

    class Watched(LogLoss):
        def residual(self, y, scores):
            seen.append((len(y), len(scores)))
            return super().residual(y, scores)

    options = {"microbatch_size": 8, "n_targets": 3, "sample_rate": 0.5}
    source = ModuleSource(network("kink"), Watched(), rows(), np.arange(N) % 3, **options)
    seen.clear()
    whole = source.at(source.start(), np.arange(8))
    for k in (3, 1):
        assert bits(source.at(source.start(), np.arange(k))) == bits(whole)[:k]
    assert len(source.at(source.start(), np.arange(0)).rows) == 0
    assert set(seen) == {(8, 8)}


def test_as_many_rows_go_through_a_module_as_give_the_same_bits_everywhere(monkeypatch):
    from dpsubspace._core.gradients import vectorised
    from dpsubspace._core.gradients.modules import ModuleSource

    even = lambda mapped, width, size: None if size % 4 else b""  # noqa: E731
    monkeypatch.setattr(vectorised, "even_bits", even)

    def chunk(most, **options):
        options |= {"microbatch_size": most, "n_targets": 3}
        return ModuleSource(network("kink"), LogLoss(), rows(), np.arange(N) % 3, **options).chunk

    assert [chunk(most, sample_rate=0.5) for most in (1, 3, 5, 7, 12)] == [1, 1, 4, 4, 8]
    assert chunk(7, records=persons(0)) == 4
    # Without persons the places of a full batch are public, and chunks are as they were asked for.
    assert [chunk(most) for most in (3, 5, 7)] == [3, 5, 7]
    assert chunk(5, records=who(np.arange(N) > 0, N)) == 5


@pytest.mark.parametrize("kind", ["kink", "wide", "convolution"])
@pytest.mark.parametrize("batch_size", [1, 5, 7, 256])
def test_features_of_a_row_do_not_depend_on_its_place(batch_size, kind):
    from dpsubspace.neural_network import TorchFeatures

    step = TorchFeatures(network(kind), batch_size=batch_size).fit(rows(3))
    found = [step.transform(rows(90)[i:]) for i in (*range(7), 70, 85, 89)]
    assert all((found[0][90 - len(each) :] == each).all() for each in found)


def test_rows_are_mapped_in_numbers_that_give_the_same_bits(monkeypatch):
    """Those that differ are left out, and the last rows are padded to the smallest."""
    pytest.importorskip("torch")
    from dpsubspace._core.gradients import torch_rows
    from dpsubspace.neural_network import TorchFeatures
    from dpsubspace.neural_network import _torch_features as torch_features

    monkeypatch.setattr(
        torch_rows,
        "even_bits",
        lambda mapped, width, size: None if size == 20 else b"%d" % (size == 4),
    )
    seen, real = [], torch_features.mapped_batch
    monkeypatch.setattr(
        torch_features, "mapped_batch", lambda *given: seen.append(len(given[1])) or real(*given)
    )
    step = TorchFeatures(network("wide"), batch_size=20).fit(rows(3))
    assert step.transform(rows(45)).shape == (45, 3) and seen == [16, 16, *[2] * 7]
    assert len(step.transform(rows(1))) == 1 and seen[9:] == [2]


def test_numbers_of_rows_are_found_anew_where_the_number_of_threads_is_another(monkeypatch):
    """Some numbers are alike for two threads and not for one."""
    torch = pytest.importorskip("torch")
    from dpsubspace.neural_network import TorchFeatures
    from dpsubspace.neural_network import _torch_features as torch_features

    looked = []
    monkeypatch.setattr(
        torch_features, "alike_sizes", lambda *_: looked.append(torch.get_num_threads()) or (4,)
    )
    step = TorchFeatures(network("kink")).fit(rows(3))
    for threads in (1, 2, 2, 1):
        torch.set_num_threads(threads)
        step.transform(rows(5))
    assert looked == [1, 2]


# Linear models ----------------------------------------------------------------------------------

FORMS = {
    "dense": np.asarray,
    "columns": np.asfortranarray,
    "sparse": sparse.csr_array,
    "tensor": lambda X: pytest.importorskip("torch").tensor(X),
}


def linear(X, records, loss, n_outputs, row_map=None):
    """Gradients of a linear model, of which all labels are 0."""
    if records is not None:
        records = records.on_device(getattr(X, "device", None) if hasattr(X, "cpu") else None)
    features = Features(X, row_map or RowMap(norm="l2", bias=1.0), records=records)
    y = np.zeros(X.shape[0], dtype=int)
    return LinearSource(loss, features, as_like(y, features.lengths), n_outputs=n_outputs)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("width", "n_outputs"), [(13, 1), (40, 3)])
def test_winners_of_persons_do_not_depend_on_their_place(form, width, n_outputs):
    rng = np.random.default_rng(0)
    X, found = rng.normal(size=(61, width)), []
    weights = rng.normal(size=(width + 1, n_outputs))
    for first in range(8):
        table = FORMS[form](np.concatenate([np.tile(X[:1], (first, 1)), X]))
        source = linear(table, persons(first, 61), Hinge(), n_outputs)
        params = as_like(weights, source.features.lengths)
        scores = [to_numpy(source.scores_at(params, rows)) for rows in source.chunks()]
        found.append(np.concatenate(scores)[first:])
    assert all((found[0] == each).all() for each in found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [13, 40])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_row_is_on_one_side_of_a_hinge_wherever_it_lies(grouped, width, form):
    """Rows at the kink, which rounding puts on either side."""
    rng, n = np.random.default_rng(0), 203
    X, weights = rng.normal(size=(n, width)), rng.normal(size=(width, 1))
    X = FORMS[form](X / (X @ weights))
    source = linear(X, persons(0, n) if grouped else None, Hinge(), 1, RowMap(norm=None))
    source = source.relabelled(as_like(np.ones(n), source.features.lengths))
    params, found = as_like(weights, source.features.lengths), []
    for first in range(8):
        chunks = source.chunks(np.arange(first, n))
        residuals = [to_numpy(source.at(params, rows).residuals) for rows in chunks]
        found.append(np.concatenate(residuals))
    assert 0 < np.count_nonzero(found[0]) < n
    assert all((found[0][i:] == one).all() for i, one in enumerate(found))


@pytest.mark.parametrize("width", [1, 2, 13, 513, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_wide_row_of_torch_is_added_up_alone_as_it_is_among_others(dtype, width):
    """torch takes other sums where there is one row of more than 512 columns."""
    X = FORMS["tensor"](rows(5, dtype, width))
    large = X * 1e200 if dtype is np.float64 else X
    weights = as_like(rows(width, dtype, 3), X)
    for of in (row_norms, lambda X: products_by_row(X, weights)):
        for given in (X, large):
            alone = [to_numpy(of(given[i : i + 1, :])) for i in range(5)]
            assert (to_numpy(of(given)) == np.concatenate(alone)).all()
    assert np.allclose(to_numpy(row_norms(X)), np.linalg.norm(to_numpy(X), axis=1), 1e-5, 1e-9)
    exact = to_numpy(X).astype(float) @ to_numpy(weights)
    assert np.allclose(to_numpy(products_by_row(X, weights)), exact, 1e-3, 1e-3)
    assert not to_numpy(products_by_row(X[:, :0], weights[:0, :])).any()


def formed(X):
    layout = Layout(np.arange(X.shape[1])[::-1].copy(), np.linspace(0.3, 2, X.shape[1]))
    return FormedRows([np.ascontiguousarray(X.T)], lambda held: held[0].astype(np.float32), layout)


@pytest.mark.parametrize("form", [*FORMS, "formed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [2, 13, 40])
def test_lengths_of_a_row_do_not_depend_on_how_many_others_there_are(width, dtype, form):
    """The last chunk may have a single row, of which a copy may forget how columns lie."""
    X = (formed if form == "formed" else FORMS[form])(rows(90, dtype, width))
    row_map, shift = RowMap(norm="l2", bias=1.0), Shift(np.full(width + 1, 0.05), None)
    features = Features(
        X,
        row_map,
        records=persons(0, 90).on_device(getattr(X, "device", None) if form == "tensor" else None),
    ).shifted(shift)

    def found(some):
        norms = X.norms(some) if form == "formed" else row_norms(X[some, :])
        return np.stack([norms, features.at(some).norms(features.lengths[some])])

    alone = np.concatenate([found(slice(i, i + 1)) for i in range(90)], axis=1)
    assert (found(slice(0, 90)) == alone).all()


# Whole fits -------------------------------------------------------------------------------------

# What is given to these is compared with edges, or was by a model with scores that have a winner.
LOOKS = (cell_counts, noisy_radius, noisy_quantiles, noisy_shares)

TARGETS = np.arange(1.0, WIDTH + 1)
PUBLIC = np.random.default_rng(5).normal(size=(40, WIDTH))
OF_LABELS = {"X_public": (PUBLIC,), "y_public": ((PUBLIC[:, 0] > 0).astype(int),)}
BUDGET = {"epsilon": 50.0, "delta": 1e-5, "neighboring_relation": "replace_one", "random_state": 0}


def numbers(X):
    """Targets, of each row by itself: a product of matrices rounds by the place."""
    return (X * TARGETS).sum(axis=1)


FITS = {
    "scaler": lambda X, y, g: BoundedScaler(**BUDGET).fit(X, groups=g),
    "components": lambda X, y, g: DPPCA(2, mechanism="adaptive", **BUDGET).fit(X, groups=g),
    "quantile": lambda X, y, g: private_quantile(X, [0.5], bounds=(-9, 9), groups=g, **BUDGET),
    "spread": lambda X, y, g: private_spread(X, groups=g, **BUDGET),
    "covariance": lambda X, y, g: private_covariance(X, groups=g, **BUDGET),
    "mean": lambda X, y, g: private_mean(X, groups=g, **BUDGET),
    "two means": lambda X, y, g: DPSGDFClassifier(n_iter=2, **BUDGET).fit(X, y, groups=g),
    "directions": lambda X, y, g: GEPClassifier(n_iter=2, **BUDGET).fit(
        X, y, groups=g, **OF_LABELS
    ),
    "targets": lambda X, y, g: DPSGDRegressor(n_iter=2, **BUDGET).fit(X, numbers(X), groups=g),
    "columns": lambda X, y, g: DPLinearRegression(**BUDGET).fit(X, numbers(X), groups=g),
    "projected": lambda X, y, g: PublicSubspaceLinearRegression(
        n_components=2, subspace="features", **BUDGET
    ).fit(X, numbers(X), groups=g, X_public=(PUBLIC,)),
    "heads": lambda X, y, g: PersonalizedLinearRegression(**BUDGET).fit(X, numbers(X), groups=g),
    "gradients": lambda X, y, g: GSDScorer(n_components=2, **BUDGET).fit(
        X, y, groups=g, X_public=(PUBLIC,)
    ),
    "mirror": lambda X, y, g: DPModuleClassifier(
        network("kink"), classes=[0, 1, 2], mirror=True, n_iter=1, microbatch_size=5, **BUDGET
    ).fit(X, y, groups=g, **OF_LABELS),
}
MADE_OF = {"rows": np.asarray, "columns": np.asfortranarray, "sparse": sparse.csr_array}


@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::dpsubspace.exceptions.PublicDataWarning")
@pytest.mark.parametrize(
    ("name", "form"),
    [
        # What the count of "mirror" is made of has a test above, which is much faster.
        pytest.param(name, form, marks=[pytest.mark.exhaustive] * (name == "mirror"))
        for i, name in enumerate(FITS)
        for form in [["rows", "columns"][i % 2], *(["sparse"] if name in ("two means",) else [])]
    ],
)
def test_what_is_compared_with_edges_does_not_move_with_the_rows_of_others(name, form, monkeypatch):
    """The first person has one row, or some more; looks at all others are the same bits."""
    n, outputs, found = 203, None, []
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(n, WIDTH)) + 2).astype(np.float32 if name == "mirror" else float)
    for first in (1, 2, 3, 4):
        table = np.concatenate([np.tile(X[:1], (first, 1)), X[1:]])
        groups = np.concatenate([np.zeros(first, dtype=int), np.arange(1, n)])
        seen = []
        with monkeypatch.context() as patch, releases(patch, outputs) as released:
            for look in LOOKS:
                replaced(patch, look, _watched(look, seen, len(table)))
            FITS[name](MADE_OF[form](table), (table[:, 0] > 2).astype(int), groups)
        outputs = outputs or released
        found.append([values[first:] for values in seen])
    assert len(found[0]) > 0 and {len(one) for one in found} == {len(found[0])}
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            assert one.tobytes() == other.tobytes()


def _watched(look, seen, n_rows):
    def watched(values, *given, **options):
        if isinstance(values, np.ndarray) and len(values) == n_rows:
            seen.append(np.array(values))
        elif hasattr(values, "cpu"):
            seen.append(values.cpu().numpy().copy())
        return look(values, *given, **options)

    return watched


def test_coordinates_of_a_row_do_not_depend_on_its_place():
    X = rows(61, float)
    step = DPPCA(3, **BUDGET).fit(X)
    found = [step.transform(X[i:]) for i in range(8)]
    assert all((found[0][i:] == one).all() for i, one in enumerate(found))


# Steps of others --------------------------------------------------------------------------------

PLAIN = np.random.default_rng(1).normal(size=(40, WIDTH))
EXACT = {
    "scaler": StandardScaler(),
    "range": MinMaxScaler(),
    "quantiles": QuantileTransformer(n_quantiles=20),
    "power": PowerTransformer(),
    "normalizer": Normalizer(),
    "polynomials": PolynomialFeatures(2),
    "bins": KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf")
    if "quantile_method" in KBinsDiscretizer().get_params()
    else KBinsDiscretizer(4, encode="onehot-dense"),
    "imputer": SimpleImputer(),
    "function": FunctionTransformer(np.abs),
}


@pytest.mark.parametrize("name", EXACT)
def test_steps_that_are_taken_to_be_exact_give_a_row_the_same_bits_everywhere(name):
    step, X = EXACT[name].fit(PLAIN), rows(61, float)
    assert moved_by_others(make_pipeline(FrozenEstimator(step), BoundedScaler())) is None
    found = [np.asarray(step.transform(X[i:])) for i in range(8)]
    assert all((found[0][i:] == one).all() for i, one in enumerate(found))


@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize(
    "step",
    [
        FrozenEstimator(PCA(2).fit(PLAIN)),
        FrozenEstimator(make_pipeline(StandardScaler(), PCA(2)).fit(PLAIN)),
        FrozenEstimator(ColumnTransformer([("some", PCA(2), [0, 1, 2])]).fit(PLAIN)),
        FrozenEstimator(RBFSampler(random_state=0).fit(PLAIN)),
    ],
)
def test_a_step_that_rounds_by_the_place_is_refused_with_persons(step, relation):
    X, y, groups = rows(60, float), np.arange(60) % 2, np.arange(60) // 2
    options = {"epsilon": 1.0, "neighboring_relation": relation, "random_state": None}
    model = make_pipeline(step, BoundedScaler(**options))
    with (
        PrivacyLedger(epsilon=3.0, delta=1e-5, unit="person", neighboring_relation=relation) as led,
        pytest.raises(PrivacyError, match="may round the features of a row by where"),
    ):
        model.fit(X, y, boundedscaler__groups=groups)
    assert charged(led) == ()
    model.fit(X, y)  # rows are records, and their places are public
    search = PrivateSearch(
        make_pipeline(step, DPSGDClassifier()), {"dpsgdclassifier__alpha": [0.1]}, epsilon=3.0
    )
    with pytest.raises(PrivacyError, match="may round the features of a row by where"):
        search.fit(X, y, groups=groups)
    assert not hasattr(search, "privacy_")
