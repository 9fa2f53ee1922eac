"""Baseline distances against closed forms, what leaves them alone, and what they refuse."""

import warnings

import numpy as np
import pandas as pd
import pytest
from helpers import blobs
from scipy import sparse
from scipy.linalg import sqrtm
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from dpsubspace import PrivacyError, PrivacyLedger, PrivacyWarning
from dpsubspace._core.public.gradient_spaces import LabelledRows, fisher_information, label_costs
from dpsubspace.public_data import optimal_transport_distance, task2vec_distance

BOTH = [task2vec_distance, optimal_transport_distance]
both = pytest.mark.parametrize("distance", BOTH)
quiet = pytest.mark.filterwarnings("ignore:.*is not private:dpsubspace.PrivacyWarning")


def two_sets(n=90, d=5):
    """Rows and classes of two sets that differ."""
    X, y = blobs(n=n, d=d)
    Z, z = blobs(n=n, d=d, n_classes=2, seed=1)
    return X, Z, y, z


def with_labels(distance, X, Z, y, z, **options):
    return distance(X, Z, y_private=y, y_public=z, **options)


def with_moments(mean, covariance, n, rng):
    """Rows of which mean and covariance (divided by n) are exactly these."""
    rows = rng.normal(size=(n, len(mean)))
    rows = rows - rows.mean(axis=0)
    white = rows @ np.linalg.inv(np.linalg.cholesky(rows.T @ rows / n)).T
    return white @ np.linalg.cholesky(covariance).T + mean


def covariance(d, rng):
    root = rng.normal(size=(d, d + 2))
    return root @ root.T / d


# Closed forms ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_label_costs_are_the_closed_form_between_gaussians(rng, form):
    d, sizes, others = 4, (7, 30), (12, 9, 40)
    means, covariances, rows, codes = [], [], [[], []], [[], []]
    for side, counts in enumerate((sizes, others)):
        for code, count in enumerate(counts):
            means.append(rng.normal(size=d))
            covariances.append(covariance(d, rng))
            rows[side].append(with_moments(means[-1], covariances[-1], count, rng))
            codes[side] += [code] * count
    first, second = (
        LabelledRows(form(np.concatenate(r)), np.array(c)) for r, c in zip(rows, codes, strict=True)
    )
    inner = first.X @ second.X.T
    found = label_costs(first, second, inner.toarray() if sparse.issparse(inner) else inner)
    for i in range(len(sizes)):
        for j in range(len(others)):
            k = len(sizes) + j
            S, T = covariances[i], covariances[k]
            cross = sqrtm(sqrtm(S) @ T @ sqrtm(S)).real
            expected = np.sum((means[i] - means[k]) ** 2) + np.trace(S + T - 2 * cross)
            assert found[i, j] == pytest.approx(expected, rel=1e-9)


def test_label_costs_of_single_rows_and_of_classes_with_more_features_than_rows(rng):
    X, Z = rng.normal(size=(5, 20)), rng.normal(size=(4, 20))
    first = LabelledRows(X, np.array([0, 1, 1, 1, 1]))
    second = LabelledRows(Z, np.array([0, 1, 1, 1]))
    found = label_costs(first, second, X @ Z.T)
    assert found[0, 0] == pytest.approx(np.sum((X[0] - Z[0]) ** 2))
    S, T = np.cov(X[1:].T, bias=True), np.cov(Z[1:].T, bias=True)
    # Of a product of positive matrices the eigenvalues are not negative, but for rounding.
    cross = np.sqrt(np.maximum(np.linalg.eigvals(S @ T).real, 0)).sum()
    mean = np.sum((X[1:].mean(axis=0) - Z[1:].mean(axis=0)) ** 2)
    assert found[1, 1] == pytest.approx(mean + np.trace(S + T) - 2 * cross, rel=1e-6)


@quiet
def test_transport_of_numbers_pairs_them_in_order(rng):
    x, z = rng.normal(size=200), rng.gamma(2.0, size=200)
    expected = np.mean((np.sort(x) - np.sort(z)) ** 2)
    assert optimal_transport_distance(x[:, None], z[:, None]) == pytest.approx(expected)


@quiet
@pytest.mark.parametrize("labelled", [False, True])
def test_transport_by_a_shift_or_a_factor_has_a_closed_form(labelled):
    X, _, y, _ = two_sets()
    X = X - X.mean(axis=0)
    labels = {"y_private": y, "y_public": y} if labelled else {}
    times = 2 if labelled else 1  # rows move, and the Gaussians of their classes as they do
    shift = np.arange(5.0)
    moved = optimal_transport_distance(X, X + shift, **labels)
    assert moved == pytest.approx(times * shift @ shift)
    shrunk = optimal_transport_distance(X, 0.6 * X, **labels)
    assert shrunk == pytest.approx(times * 0.16 * np.mean(np.sum(X**2, axis=1)))


@quiet
def test_transport_nears_the_closed_form_of_gaussians(rng):
    means = np.array([[0.0, 0.0], [2.0, -1.0]])
    covariances = [np.array([[1.0, 0.6], [0.6, 2.0]]), np.diag([0.5, 3.0])]
    X, Z = (with_moments(m, S, 600, rng) for m, S in zip(means, covariances, strict=True))
    root = sqrtm(covariances[0])
    cross = sqrtm(root @ covariances[1] @ root).real
    expected = np.sum((means[0] - means[1]) ** 2) + np.trace(sum(covariances) - 2 * cross)
    found = optimal_transport_distance(X, Z, max_samples=600)
    assert found == pytest.approx(expected, rel=0.05)


@quiet
def test_labels_move_rows_to_their_own_class():
    """Two classes in the same places of both sets, named the other way round: nothing moves."""
    X, _, y, _ = two_sets()
    named = np.array(["b", "c", "a"])[y]
    assert with_labels(optimal_transport_distance, X, X, y, named) == pytest.approx(0, abs=1e-9)
    mixed = np.random.default_rng(0).permutation(y)
    assert with_labels(optimal_transport_distance, X, X, y, mixed) > 1.0


def test_information_is_the_mean_square_of_gradients_for_labels_of_the_probe():
    """By an average over all labels that the fitted probe could draw, at each row."""
    X, _, y, _ = two_sets(n=60)
    centred = X - X.mean(axis=0)
    scale = np.sqrt(np.mean(np.sum(centred**2, axis=1)))
    head = LogisticRegression(C=1 / (1e-3 * 60), solver="newton-cg", tol=1e-8)
    head.fit(centred / scale, y)
    p = softmax(head.decision_function(centred / scale), axis=1)
    expected = np.zeros(5)
    for row, probabilities in zip(X, p, strict=True):
        for label, probability in enumerate(probabilities):
            gradient = np.outer(row, np.eye(3)[label] - probabilities)
            expected += probability * np.sum(gradient**2, axis=1) / len(X)
    found = fisher_information(LabelledRows(X, y))
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    plain = fisher_information(LabelledRows(X))
    np.testing.assert_allclose(plain, np.mean(X**2, axis=0))
    # Labels tell more than their number: the five ratios differ by factors of about 2, and are all
    # within a thousandth of each other once in 1e10 or less.
    assert np.ptp(np.log(found / plain)) > 1e-3


@quiet
def test_task2vec_of_two_features_has_a_closed_form():
    X, Z = np.array([[1.0, 1.0]]), np.array([[1.0, 3.0]])
    a, b = np.array([1 / 2, 1 / 10]), np.array([1 / 2, 9 / 10])
    expected = 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    assert task2vec_distance(X, Z) == pytest.approx(expected)


@quiet
def test_task2vec_of_features_that_only_one_set_has():
    X, Z = np.zeros((5, 4)), np.zeros((5, 4))
    X[:, 0], Z[:, 1] = 1.0, 2.0
    assert task2vec_distance(X, Z) == pytest.approx(1)
    assert task2vec_distance(X, np.zeros((3, 4))) == 1
    assert task2vec_distance(np.zeros((5, 4)), np.zeros((3, 4))) == 0


@quiet
def test_task2vec_knows_neither_units_of_features_nor_the_size_of_rows():
    X, Z, *_ = two_sets()
    expected = task2vec_distance(X, Z)
    units = np.array([1.0, 1e3, 1e-3, 7.0, 0.1])
    assert task2vec_distance(X * units, Z * units) == pytest.approx(expected)
    assert task2vec_distance(X, X * 9) == pytest.approx(0, abs=1e-15)


# What changes nothing ----------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("n", [90, 1200])
@both
def test_distances_are_symmetric_and_zero_for_equal_sets(distance, n, labelled):
    X, Z, y, z = two_sets(n=n)
    options = {"max_samples": 100, "random_state": 3}
    there, back = {"y_private": y, "y_public": z}, {"y_private": z, "y_public": y}
    same = {"y_private": y, "y_public": y}
    there, back, same = (each if labelled else {} for each in (there, back, same))
    found = distance(X, Z, **there, **options)
    assert found > 1e-6  # far above rounding: equal sets are at most 1e-10 apart
    assert found == pytest.approx(distance(Z, X, **back, **options), rel=1e-12)
    assert distance(X, X.copy(), **same, **options) == pytest.approx(0, abs=1e-10)
    assert isinstance(found, float)


@quiet
@pytest.mark.parametrize("labelled", [False, True])
@both
def test_order_of_rows_does_not_matter(distance, labelled, rng):
    X, Z, y, z = two_sets()
    order = rng.permutation(len(X))
    expected = distance(X, Z, **({"y_private": y, "y_public": z} if labelled else {}))
    labels = {"y_private": y[order], "y_public": z} if labelled else {}
    assert distance(X[order], Z, **labels) == pytest.approx(expected, rel=1e-5)


FORMS = {
    "list": lambda X: X.tolist(),
    "sparse": sparse.csr_array,
    "sparse columns": sparse.csc_matrix,
    "data frame": pd.DataFrame,
    "float32": lambda X: X.astype(np.float32),
    "integers": lambda X: (100 * X).astype(int),
}


@quiet
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("form", FORMS)
@both
def test_forms_of_rows(distance, form, labelled):
    X, Z, y, z = two_sets()
    labels = {"y_private": y, "y_public": z} if labelled else {}
    factor = 100 if form == "integers" else 1
    expected = distance(factor * X, factor * Z, **labels)
    found = distance(FORMS[form](X), FORMS[form](Z), **labels)
    # Probes are fitted to a tolerance, and integers are rounded.
    assert found == pytest.approx(expected, rel=0.02 if factor > 1 else 1e-3 if labelled else 1e-5)
    if form != "integers":
        found = distance(FORMS[form](X), Z, **labels)
        assert found == pytest.approx(expected, rel=1e-3 if labelled else 1e-5)


@quiet
@both
def test_memory_maps_and_tensors(distance, tmp_path):
    X, Z, *_ = two_sets()
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert distance(mapped, Z) == distance(X, Z)
    torch = pytest.importorskip("torch")
    assert distance(torch.as_tensor(X), torch.as_tensor(Z)) == distance(X, Z)


@quiet
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("size", [1e300, 1e-300, 1e-308])
@both
def test_sizes_of_rows_do_not_overflow(distance, size, form):
    X, Z, y, z = two_sets()
    expected = with_labels(distance, X, Z, y, z)
    found = with_labels(distance, form(X * size / 50), form(Z * size / 50), y, z)
    if distance is task2vec_distance:
        assert found == pytest.approx(expected, rel=1e-3)
    else:
        assert found == (np.inf if size > 1 else 0.0)  # the square is no number, and no warning


@quiet
@both
def test_samples_are_drawn_by_the_seed(distance):
    X, Z, *_ = two_sets(n=400)

    def found(seed, size=50):
        return distance(X, Z, max_samples=size, random_state=seed)

    assert found(0) == found(0) != found(1)
    assert found(None) != found(None)
    assert found(np.random.RandomState(0)) == found(np.random.RandomState(0))
    assert found(0, size=400) == found(1, size=400)  # nothing is left out


@quiet
def test_of_sets_of_two_sizes_transport_takes_as_many_rows():
    X, Z, *_ = two_sets(n=300)
    options = {"random_state": 0}
    few = optimal_transport_distance(X[:40], Z, **options)
    assert few == optimal_transport_distance(X[:40], Z, max_samples=40, **options)
    classes = {"y_private": np.arange(40) // 2, "y_public": np.zeros(300)}
    assert optimal_transport_distance(X[:40], Z, **classes, **options) > few
    assert optimal_transport_distance(X[:1], Z[:1]) == pytest.approx(np.sum((X[0] - Z[0]) ** 2))


# Privacy -----------------------------------------------------------------------------------------


@both
def test_each_call_says_that_it_is_not_private(distance):
    assert "not private" in distance.__doc__.splitlines()[0]
    X, Z, *_ = two_sets()
    with pytest.warns(
        PrivacyWarning, match="is not private: it reveals something about every private row"
    ) as told:
        distance(X, Z)
    assert len(told) == 1 and told[0].filename == __file__
    assert distance.__name__ in str(told[0].message)


@quiet
@both
def test_a_ledger_withholds_it(distance):
    X, Z, *_ = two_sets()
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with pytest.raises(PrivacyError, match="withheld"):
        ledger.run(distance, X, Z)
    assert ledger.epsilon() == 0


# Bad input ---------------------------------------------------------------------------------------

SECRET = 741.25


def with_entry(X, value):
    X = X.copy()
    X[3, 2] = value
    return X


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda X, Z: (X, Z[:, :4]), "`X_public` has 4 features and `X_private` has 5"),
        (lambda X, Z: (X[:0], Z), "`X_private`: Found array with 0 sample"),
        (lambda X, Z: (X, Z[:0]), "`X_public`: Found array with 0 sample"),
        (lambda X, Z: (X, with_entry(Z, np.nan)), "`X_public`: Input X_public contains NaN"),
        (lambda X, Z: (with_entry(X, np.inf), Z), "`X_private`: Input X_private contains infinity"),
        (lambda X, Z: (X, Z.reshape(-1, 5, 1)), "`X_public`: .*dim"),
        (lambda X, Z: (X[0], Z), "`X_private`: Expected 2D array"),
        (lambda X, Z: (X, Z * 1j), "`X_public`: Complex data"),
        (lambda X, Z: (X, {"one": Z}), "`X_public` must be one set of rows, got dict"),
        (lambda X, Z: ((X, X), Z), "`X_private` must be one set of rows, got tuple"),
        (
            lambda X, Z: (pd.DataFrame(X, columns=[*"abcde"]), pd.DataFrame(Z, columns=[*"abced"])),
            "`X_public` has other column names",
        ),
    ],
)
@both
def test_rows_that_cannot_be_used(distance, change, match):
    X, Z, *_ = two_sets()
    X, Z = change(with_entry(X, SECRET), Z)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # and nothing is said of a number that was not computed
        with pytest.raises(ValueError, match=match) as error:
            distance(X, Z)
    assert "741" not in str(error.value) and error.value.__cause__ is None


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ({"y_private": "y"}, "`y_public` is missing: give the labels of both sets"),
        ({"y_public": "z"}, "`y_private` is missing"),
        ({"y_private": "short", "y_public": "z"}, "the private set: .*inconsistent numbers"),
        ({"y_private": "y", "y_public": "measured"}, "`y_public` must hold classes"),
        (
            {"y_private": "missing", "y_public": "z"},
            "the private set: Input y_private contains NaN",
        ),
        ({"y_private": "mixed", "y_public": "z"}, "`y_private` must hold classes"),
    ],
)
@both
def test_labels_that_cannot_be_used(distance, labels, match):
    X, Z, y, z = two_sets()
    kinds = {
        "y": y,
        "z": z,
        "short": y[:-1],
        "measured": np.linspace(0, 1, 90),
        "missing": np.where(y == 0, np.nan, y),
        "mixed": np.array([1, "one", None] * 30, dtype=object),
    }
    with pytest.raises(ValueError, match=match):
        distance(X, Z, **{name: kinds[kind] for name, kind in labels.items()})


def test_a_probe_needs_two_classes():
    X, Z, y, _ = two_sets()
    with pytest.raises(ValueError, match="`y_public` has one class among the rows"):
        with_labels(task2vec_distance, X, Z, y, np.ones(90))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_samples": 0}, "`max_samples` must be an integer"),
        ({"max_samples": 1.5}, "`max_samples`"),
        ({"random_state": -1}, "`random_state`"),
        ({"random_state": "seed"}, "`random_state`"),
    ],
)
@both
def test_parameters_out_of_range(distance, options, match):
    X, Z, *_ = two_sets()
    with pytest.raises(ValueError, match=match):
        distance(X, Z, **options)
