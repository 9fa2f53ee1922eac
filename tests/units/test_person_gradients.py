"""Gradients of persons, which are not kept as they are formed, against means written out."""

import itertools

import numpy as np
import pytest
from helpers import PLAIN, formed, pairs_first, targets
from scipy import sparse

from dpsubspace._core.gradients import clipping, linear
from dpsubspace._core.gradients.clipping import MeanGradients, PersonSource, clipped_sum
from dpsubspace._core.gradients.linear import LinearSource
from dpsubspace._core.gradients.losses import CLASSIFIER_LOSSES
from dpsubspace._core.rows.affine import Affine, AffineRows, Mixing
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import Records, RowMap, Shift

D, C, N = 12, 3, 150


def dense(X, records, chunk):
    return Features(X, RowMap(norm="l2", bias=0.5), chunk, records)


def shifted(X, records, chunk):
    features = Features(X, PLAIN, chunk, records)
    return features.shifted(Shift(np.linspace(-0.2, 0.2, features.width), 0.3)).clipped(3.0)


def weighed(X, records, chunk):
    return shifted(X, records, chunk).weighed(np.geomspace(0.1, 10, D))


def few_columns(X, records, chunk):
    """So that most persons have more rows than columns, and their means are formed."""
    return Features(X[:, :2], RowMap(norm="clip", data_norm=1.0), chunk, records)


def sparse_rows(X, records, chunk):
    return dense(sparse.csr_array(np.where(X > 0, X, 0.0)), records, chunk)


def mapped(X, records, chunk):
    affine = Affine(np.full(D, 0.1), np.full(D, 2.0))
    rows = AffineRows(X, affine, constant=True, limit=3.0, records=records)
    return rows.mixed(Mixing(np.diag(np.geomspace(0.3, 3, D + 1)), 40.0))


FORMS = {f.__name__: f for f in (dense, shifted, weighed, few_columns, sparse_rows, mapped)}


def of_persons(form, rng, chunk=None, dtype=np.float64):
    """Persons with no row, one, a few, and far more than are used at once; one of them is null."""
    counts = rng.integers(1, 9, size=N)
    counts[:6] = [0, 1, 40, 70, 130, 700]
    index = rng.permutation(np.repeat(np.arange(N), counts))
    X = rng.normal(size=(len(index), D)) * rng.uniform(0, 3, size=(len(index), 1))
    X[::17] = 0.0
    records = Records.of_groups(index, N, index != 7)
    y = targets("log_loss", len(index), C, rng)
    features = FORMS[form](X.astype(dtype), records, chunk)
    return LinearSource(CLASSIFIER_LOSSES["log_loss"], features, y, n_outputs=C)


def terms(source, weights):
    """Gradient of each row, flat."""
    features = source.features
    if isinstance(features, Features):
        rows = formed(features)
    else:
        rows = features.at(slice(0, features.n_rows)).dense()
    gradients = rows[:, :, None] * source.loss.residual(source.y, rows @ weights)[:, None, :]
    return gradients.reshape(len(rows), -1)


def means(gradients, records, clip_norm):
    """Mean gradient of each person, one row of which is shrunk to eight clip norms."""
    norms = np.maximum(np.linalg.norm(gradients, axis=1), 1e-300)
    parts = records.weights * np.minimum(1, 8 * clip_norm / norms)
    found = np.zeros((N, gradients.shape[1]))
    np.add.at(found, records.index, parts[:, None] * gradients)
    return found


def clipped(rows, clip_norm):
    norms = np.maximum(np.linalg.norm(rows, axis=1), 1e-300)
    return rows * np.minimum(1, clip_norm / norms)[:, None]


SETTINGS = pairs_first(FORMS, [np.float32, np.float64], [None, 128], [0.02, 0.3, np.inf])


@pytest.mark.parametrize(("form", "dtype", "chunk", "clip_norm"), SETTINGS)
def test_the_clipped_sum_is_that_of_means_written_out(form, dtype, chunk, clip_norm, rng):
    source = of_persons(form, rng, chunk, dtype)
    weights = 3 * rng.normal(size=(source.width, C))
    persons = PersonSource(source, clip_norm)
    whole = means(terms(source, weights), source.records, clip_norm)
    batch = np.sort(rng.permutation(N)[:60])
    for some, rows in ((None, whole), (batch, whole[batch]), (None, whole)):  # the last as known
        each = [clipped_sum(persons.at(weights, c), clip_norm) for c in persons.chunks(some)]
        assert len({one.norm_bound for one in each}) == 1  # whose rows these are is private
        slack = persons.at(weights, slice(0, 1)).slack()
        expected = clipped(rows, clip_norm).sum(axis=0).reshape(weights.shape)
        moved = np.linalg.norm(sum(one.value for one in each) - expected)
        assert moved <= slack * min(clip_norm, np.linalg.norm(rows, axis=1).max())


@pytest.mark.parametrize(("form", "clip_norm"), pairs_first(FORMS, [0.02, 0.3]))
def test_no_norm_is_too_small_and_none_is_longer_by_more_than_is_counted(form, clip_norm, rng):
    """Also of persons whose rows nearly cancel."""
    source = of_persons(form, rng)
    weights = 3 * rng.normal(size=(source.width, C))
    source.y[:] = source.y[0]  # all residuals are alike, and rows are what they are less others
    persons = PersonSource(source, clip_norm)
    (gradients,) = [persons.at(weights, chunk) for chunk in persons.chunks()]
    assert isinstance(gradients, MeanGradients)
    rows = gradients.weights[:, None] * terms(source, weights)[gradients.runs.rows]
    found = np.zeros((N, rows.shape[1]))
    np.add.at(found, gradients.runs.person, rows)
    norms, exact = gradients.norms(), np.linalg.norm(found, axis=1)
    longest = np.bincount(gradients.runs.person, np.linalg.norm(rows, axis=1), minlength=N)
    by_sum, by_products = source.norm_slack
    most = np.sqrt(exact**2 + 3 * by_products * longest**2)
    most = np.maximum(most, exact + 3 * by_sum * longest)
    assert (norms >= exact * (1 - 1e-14)).all()
    assert (norms <= most * (1 + 1e-12)).all()


def cancelling(most_kept, monkeypatch):
    """Norms of two rows that cancel to a millionth, and of one hundred such pairs."""
    monkeypatch.setattr(linear, "_MOST_KEPT", most_kept)
    X = np.array([[1.0, 0.0, 0.0], [1.0, 1e-6, 0.0], *([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]] * 100)])
    records = Records.of_groups(np.r_[0, 0, np.repeat(np.arange(1, 101), 2)], 101)
    y = np.tile([0, 1], 101)
    source = LinearSource(
        CLASSIFIER_LOSSES["log_loss"], Features(X, PLAIN, None, records), y, n_outputs=1
    )
    gradients = PersonSource(source, 1.0).at(np.zeros((3, 1)), slice(0, 101))
    return gradients.norms(), source.norm_slack


def test_rows_of_a_person_that_cancel_have_the_norm_of_what_is_left(monkeypatch):
    for most_kept, place in ((64, 1), (1, 0)):  # by products of rows, and formed
        norms, slack = cancelling(most_kept, monkeypatch)
        assert norms[0] >= 0.25e-6 * (1 - 1e-6)
        hidden = slack[place] ** (0.5 if place else 1.0)
        assert norms[0] <= 0.25e-6 + 2 * hidden and (norms[1:] <= 2 * hidden).all()


@pytest.mark.parametrize("form", FORMS)
def test_what_is_kept_changes_norms_by_rounding_alone(form, rng, monkeypatch):
    source = of_persons(form, rng)
    weights, found = 3 * rng.normal(size=(source.width, C)), []
    for most in (64, 3, 1):
        monkeypatch.setattr(linear, "_MOST_KEPT", most)
        source.runs.clear()
        persons = PersonSource(source, 0.1)
        found.append(np.concatenate([persons.at(weights, c).norms() for c in persons.chunks()]))
    for one, other in itertools.pairwise(found):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-8)


def test_what_is_kept_may_be_asked_for_again(rng):
    """As two threads may that see at once that nothing is kept yet."""
    source = of_persons("dense", rng)
    persons = PersonSource(source, 0.1)
    weights = rng.normal(size=(source.width, C))
    gradients = persons.at(weights, persons.chunks()[0])
    before = gradients.norms()
    assert gradients.runs.cached[2]
    gradients.runs.cache_products(gradients.rows, source.longest_kept)
    np.testing.assert_array_equal(gradients.norms(), before)


def test_no_products_are_kept_of_features_that_cannot_be_divided_by_their_norm(rng):
    X = rng.normal(size=(40, 5))
    X[3] *= 1e-300
    records = Records.of_groups(np.arange(40) // 2, 20)
    features = Features(X, PLAIN, None, records)
    source = LinearSource(CLASSIFIER_LOSSES["log_loss"], features, np.tile([0, 1], 20), n_outputs=1)
    persons = PersonSource(source, 0.1)
    gradients = persons.at(np.ones((5, 1)), slice(0, 20))
    assert gradients.runs.tried and not gradients.runs.cached[2]
    exact = np.linalg.norm(gradients.dense(), axis=1)
    np.testing.assert_allclose(gradients.norms(), exact, rtol=1e-12)


def test_a_chunk_of_persons_without_rows_brings_nothing():
    records = Records.of_groups(np.zeros(0, dtype=int), 3)
    features = Features(np.zeros((0, 2)), PLAIN, None, records)
    source = LinearSource(CLASSIFIER_LOSSES["log_loss"], features, np.zeros(0, int), n_outputs=1)
    persons = PersonSource(source, 0.1)
    for chunk in (
        *persons.chunks(),
        *persons.chunks(np.array([1])),
        *persons.chunks(np.zeros(0, int)),
    ):
        gradients = persons.at(np.ones((2, 1)), chunk)
        assert not gradients.norms().any()
        assert not clipped_sum(gradients, 0.1).value.any()


def test_weights_of_columns_change_what_is_kept(rng):
    source = of_persons("shifted", rng)
    weights = rng.normal(size=(source.width, C))
    persons = PersonSource(source, 0.1)
    persons.at(weights, slice(0, N))
    other = persons.weighed(np.geomspace(0.1, 10, D))
    gradients = other.at(weights, slice(0, N))
    exact = np.linalg.norm(gradients.dense(), axis=1)
    np.testing.assert_allclose(gradients.norms(), exact, rtol=1e-7, atol=1e-9)


def test_what_needs_rows_forms_them(rng):
    source = of_persons("dense", rng)
    weights = rng.normal(size=(source.width, C))
    gradients = PersonSource(source, 0.1).at(weights, slice(0, N))
    rows, one = gradients.dense(), rng.normal(size=weights.shape)
    shape = (N, source.width, C)
    assert gradients.shape == shape and gradients.wide_slack() == gradients.slack()
    np.testing.assert_allclose(gradients.dot(one), rows @ one.ravel())
    anchors = clipping.DenseGradients(rows[:3], shape[1:])
    np.testing.assert_allclose(gradients.inner(anchors)[0], rows @ rows[:3].T)
    np.testing.assert_array_equal(gradients.part(slice(2, 9)).dense(), rows[:, 2:9])
    sums = gradients.sums(np.ones(N), np.array([3, N - 3]))
    np.testing.assert_allclose(sums.sum(axis=0), rows.sum(axis=0))
