"""Features and clipped sums in closed form, against what they stand for, written out."""

import numpy as np
import pytest
from helpers import PLAIN, formed, pairs_first, targets, total
from scipy import sparse

from dpsubspace._core.gradients.clipping import shrink_factors
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import CLASSIFIER_LOSSES, REGRESSOR_LOSSES, LogLoss
from dpsubspace._core.ground.arrays import Total, chunk_rows, row_norms, row_product, slices
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import RowMap, Shift

LOSSES = {**CLASSIFIER_LOSSES, **REGRESSOR_LOSSES}
ROW_MAPS = [
    PLAIN,
    RowMap(norm="l2", bias=0.5),
    RowMap(norm="clip", data_norm=2.0, bias=0.5),
    RowMap(norm="ball", data_norm=2.0),
]


# What columns are weighed by.
COLUMNS = np.array([0.5, 3.0, 1.0, 0.1, 40.0, 1e-3])


def naive_clipped_sum(loss, rows, y, weights, clip_norm):
    """Per-example gradients in full, each clipped, then added up."""
    result = np.zeros_like(weights)
    for i, x in enumerate(rows):
        residual = loss.residual(y[i : i + 1], x[None] @ weights)[0]
        gradient = np.outer(x, residual)
        norm = np.linalg.norm(gradient)
        result += gradient * min(1.0, clip_norm / norm) if norm > 0 else 0.0
    return result


def shift_for(features, rng):
    mean = rng.normal(size=features.width) / 3
    return features.shifted(Shift(mean, 0.3))


@pytest.mark.parametrize(
    ("name", "n_targets", "clip_norm"), pairs_first(LOSSES, [2, 5], [0.01, 0.5, 100.0])
)
def test_closed_form_clipping_equals_the_naive_loop(name, n_targets, clip_norm, rng):
    X = rng.normal(size=(300, 6)) * rng.uniform(0, 3, size=(300, 1))
    X[3] = 0.0
    loss, y = LOSSES[name], targets(name, 300, n_targets, rng)
    for row_map in ROW_MAPS:
        plain = Features(X, row_map, microbatch_size=128)
        some = [plain, shift_for(plain, rng), shift_for(plain, rng).clipped(0.8)]
        for features in [*some, *(each.weighed(COLUMNS) for each in some)]:
            weights = rng.normal(size=(features.width, loss.n_outputs(n_targets)))
            closed = total(LinearSource(loss, features, y), weights, clip_norm)
            naive = naive_clipped_sum(loss, formed(features), y, weights, clip_norm)
            scale = 1e-11 * np.abs(naive).max()
            np.testing.assert_allclose(closed.value, naive, rtol=0, atol=scale)
            if features.columns is None:
                afterwards = total(
                    LinearSource(loss, features, y).weighed(COLUMNS), weights, clip_norm
                )
                weighed = LinearSource(loss, features.weighed(COLUMNS), y)
                at_once = total(weighed, weights, clip_norm)
                np.testing.assert_array_equal(afterwards.value, at_once.value)


@pytest.mark.parametrize("row_map", ROW_MAPS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows_are_the_dense_ones(row_map, dtype, rng):
    X = sparse.random(500, 40, density=0.1, random_state=0, dtype=dtype, format="csr")
    X.data[::7] = 0  # explicit zeros
    loss, y = LOSSES["log_loss"], rng.integers(3, size=500)
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    features = [Features(X, row_map), Features(X.toarray(), row_map)]
    for form in ("plain", "shifted", "clipped", "weighed"):
        if form == "shifted":
            shift = shift_for(features[0], rng).shift
            features = [part.shifted(shift) for part in features]
        elif form == "clipped":
            features = [part.clipped(0.8) for part in features]
        elif form == "weighed":
            columns = 10.0 ** rng.uniform(-2, 2, size=40)
            features = [part.weighed(columns) for part in features]
            tolerance *= 10
        weights = rng.normal(size=(features[0].width, 3))
        sums = [total(LinearSource(loss, part, y), weights, 0.2).value for part in features]
        np.testing.assert_allclose(*sums, rtol=0, atol=tolerance * 500)


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clipped_features_are_shrunk_to_the_radius_and_no_further(as_rows, dtype, rng):
    X = (rng.normal(size=(600, 9)) * 10.0 ** rng.uniform(-8, 8, size=(600, 1))).astype(dtype)
    X[3] = 0.0
    for row_map in ROW_MAPS:
        shifted = shift_for(Features(as_rows(X), row_map, 128), rng)
        features = shifted.clipped(0.8)
        tolerance = 1e-4 if dtype == np.float32 else 1e-9
        rows = np.concatenate([features.at(chunk).dense() for chunk in features.chunks()])
        norms = np.linalg.norm(rows.astype(np.float64), axis=1)
        assert norms.max() <= 0.8
        assert (norms <= features.norms()).all()
        assert norms.max() > 0.8 * (1 - tolerance)
        short = shifted.norms() < 0.8
        exact = formed(shifted)[short]
        np.testing.assert_allclose(rows[short], exact, atol=tolerance)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_mean_and_no_radius_make_clipped_rows_longer(as_rows, dtype, dense, rng):
    """Where rounding is larger than the radius, a careless margin turns negative and large."""
    X = rng.normal(size=(300, 5)).astype(dtype)
    for far in (1.0, 1e3, 1e6, 1e12):
        for radius in (1.0, 1e-5, 1e-12, 1e-18):
            features = Features(as_rows(X), RowMap(norm="ball", data_norm=1.0))
            features = features.shifted(Shift(np.full(5, far), None))
            features = features.clipped(radius, dense=dense)
            assert (features.shrink >= 0).all()
            rows = np.concatenate([features.at(chunk).dense() for chunk in features.chunks()])
            norms = np.linalg.norm(rows.astype(np.float64) / radius, axis=1)
            assert norms.max() <= 1


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_out_of_range_have_no_scores(as_rows, dtype, rng):
    X = rng.normal(size=(5, 3)).astype(dtype)
    X[0] = np.finfo(dtype).max / 2
    features = Features(as_rows(X), RowMap(norm="ball", data_norm=1.0, bias=0.5))
    with np.errstate(all="ignore"):
        scores = features.at(slice(0, 5)).scores(rng.normal(size=(4, 6)))
    assert not scores[0].any() and np.isfinite(scores).all()


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norms_are_never_underestimated(as_rows, dtype, rng):
    """Rows that nearly cancel against the mean are where a difference of squares fails."""
    base = rng.normal(size=30)
    X = (base + 10.0 ** -rng.uniform(0, 16, size=(400, 1)) * rng.normal(size=(400, 30))) * 1e3
    features = Features(as_rows(X.astype(dtype)), RowMap(norm="clip", data_norm=1e5, bias=0.5))
    mean = formed(features)[0] * (1 + 1e-7)
    features = features.shifted(Shift(mean, None))
    weighed = features.weighed(10.0 ** rng.uniform(-3, 3, size=30))
    for some in (features, weighed):
        exact = np.linalg.norm(formed(some).astype(np.longdouble), axis=1)
        assert (some.norms() >= exact).all()
    exact = np.linalg.norm(formed(features).astype(np.longdouble), axis=1)
    far = exact > 0.3 * np.linalg.norm(X, axis=1)  # where they are long, they are not too long
    np.testing.assert_allclose(features.norms()[far], exact[far].astype(float), rtol=1e-6)


@pytest.mark.parametrize("microbatch_size", [1, 128, 200, 10_000])
def test_any_microbatch_size_gives_the_same_sum(microbatch_size, rng):
    X, y = rng.normal(size=(700, 5)), rng.integers(3, size=700)
    loss, weights = LOSSES["log_loss"], rng.normal(size=(6, 3))
    row_map = RowMap(norm="l2", bias=0.5)
    whole = total(LinearSource(loss, Features(X, row_map), y), weights, 0.2)
    parts = Features(X, row_map, microbatch_size)
    assert parts.chunk % 128 == 0
    np.testing.assert_allclose(
        total(LinearSource(loss, parts, y), weights, 0.2).value, whole.value, atol=1e-12
    )


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
def test_a_batch_is_the_sum_over_its_records(as_rows, rng):
    X, y = rng.normal(size=(700, 5)), rng.integers(3, size=700)
    loss, weights = LOSSES["log_loss"], rng.normal(size=(6, 3))
    row_map = RowMap(norm="l2", bias=0.5)
    source = LinearSource(loss, Features(as_rows(X), row_map, 128), y)
    for batch in (np.arange(0, 700, 2), np.array([5]), np.array([], dtype=int)):
        of_batch = Features(X[batch], row_map) if len(batch) else None
        expected = 0.0
        if of_batch is not None:
            expected = total(LinearSource(loss, of_batch, y[batch]), weights, 0.2).value
        found = total(source, weights, 0.2, batch)
        np.testing.assert_allclose(found.value, np.zeros((6, 3)) + expected, atol=1e-12)
        # The slack of a batch does not depend on what is in it.
        assert found.norm_bound == total(source, weights, 0.2, np.arange(700)).norm_bound


@pytest.mark.parametrize("n_targets", [2, 4])
@pytest.mark.parametrize("name", LOSSES)
def test_residual_is_the_derivative_of_the_value(name, n_targets, rng):
    loss, y = LOSSES[name], targets(name, 10, n_targets, rng)
    scores = rng.normal(size=(10, loss.n_outputs(n_targets))) * 3
    residual = loss.residual(y, scores)
    for column in range(scores.shape[1]):
        step = np.zeros_like(scores)
        step[:, column] = 1e-6
        numeric = (loss.value(y, scores + step) - loss.value(y, scores - step)) / 2e-6
        np.testing.assert_allclose(residual[:, column], numeric, atol=1e-8)


@pytest.mark.parametrize("n_targets", [2, 4])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_survive_extreme_scores(name, n_targets, rng):
    loss, y = LOSSES[name], targets(name, 3, n_targets, rng)
    scores = np.array([[-1e4], [1e4], [0.0]]) * np.ones((3, loss.n_outputs(n_targets)))
    scores[:, 0] *= 2
    for result in (loss.value(y, scores), loss.residual(y, scores), loss.predict(scores)):
        assert np.isfinite(result).all()
    if loss.probabilistic:
        np.testing.assert_allclose(loss.predict(scores).sum(axis=1), 1.0)


@pytest.mark.parametrize("as_rows", [np.asarray, sparse.csr_array])
def test_row_norms_neither_overflow_nor_vanish(as_rows, rng):
    X = rng.normal(size=(4, 3))
    scale = np.array([1e300, 1e-300, 1.0, 0.0])[:, None]
    expected = np.linalg.norm(X, axis=1) * scale[:, 0]
    np.testing.assert_allclose(row_norms(as_rows(X * scale)), expected, rtol=1e-14)
    assert row_norms(as_rows(X.astype(np.float32))).dtype == np.float64


def test_chunks_are_whole_blocks_and_cover_rows_once():
    X = np.zeros((1000, 3))
    assert [chunk_rows(X, size) for size in (1, 128, 129, 10**9)] == [128, 128, 256, 65536]
    assert [i for c in slices(1000, 128) for i in range(c.start, c.stop)] == list(range(1000))


@pytest.mark.parametrize("n", [0, 1, 127, 128, 300])
def test_row_product_is_the_product(n, rng):
    X, R = rng.normal(size=(n, 4)), rng.normal(size=(n, 2))
    for rows in (X, sparse.csr_array(X)):
        np.testing.assert_allclose(row_product(rows, R), X.T @ R, atol=1e-12)


def test_a_total_loses_nothing():
    """1 and then 1e6 terms of 1e-17, each of which a plain sum in float64 would lose."""
    total = Total()
    for part in [1.0, *[1e-17] * 1000]:
        total.add(np.array([part]))
    assert total.value[0] == 1 + 1000 * 1e-17 or abs(total.value[0] - 1 - 1e-14) < 1e-16
    for part in (1e16, 3.14, -1e16):
        total.add(np.array([part]))
    np.testing.assert_allclose(total.value[0], 4.14 + 1e-14, rtol=1e-15)


@pytest.mark.parametrize("norm", [None, "clip"])
@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 1e25), (np.float64, 1e286)])
def test_whether_a_record_counts_does_not_depend_on_others(norm, dtype, most):
    """Rows about the longest that fit, alone and in chunks with and without longer ones."""
    X = (most * np.linspace(0.2, 3.0, 300)[:, None]).astype(dtype)
    X[7], X[8] = 0, np.nextafter(dtype(0), dtype(1))
    y = np.random.default_rng(0).integers(2, size=300)

    def weights(some):
        features = Features(X[some], RowMap(norm=norm, data_norm=10 * most))
        source = LinearSource(LogLoss(), features, y[some], n_outputs=1)
        return shrink_factors(source.at(np.zeros((1, 1)), slice(0, len(X[some]))).norms(), most / 4)

    together = weights(slice(None))
    assert (together == 0).any() and (together > 0).any()
    for some in [slice(i, i + 1) for i in range(300)] + [slice(0, i) for i in (40, 80, 120)]:
        np.testing.assert_array_equal(weights(some), together[some])
