"""Whatever is to be held out is told to be the rows of the fit, in any container."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from dpsubspace import (
    BoundedScaler,
    DPLinearRegression,
    DPSGDClassifier,
    PrivacyWarning,
    PrivateSearch,
    private_score,
    tabular_pipeline,
)
from dpsubspace._core.rows.seen_rows import has_seen
from dpsubspace.calibration import (
    DPCalibratedClassifier,
    DPConformalClassifier,
    DPConformalRegressor,
)
from dpsubspace.inspection import ImportanceDisplay

rng = np.random.default_rng(0)
X = rng.uniform(0.1, 1, size=(300, 3))
NEW = rng.uniform(0.1, 1, size=(300, 3))
Y, T = (X[:, 0] > 0.5).astype(int), X[:, 1]
NAMES = ["a", "b", "c"]
LABELS = {"a": (0, 1), "b": (0, 1), "c": (0, 1)}


def frame(rows):
    return pd.DataFrame(rows, columns=NAMES)


def of(module, make):
    return lambda rows: make(pytest.importorskip(module), rows)


# Containers of the same rows, made anew each time.
CONTAINERS = {
    "array": np.array,
    "float32": np.float32,
    "fortran": np.asfortranarray,
    "list": lambda rows: rows.tolist(),
    "sparse": sparse.csr_matrix,
    "pandas": frame,
    "polars": of("polars", lambda polars, rows: polars.DataFrame(rows, schema=NAMES)),
    "arrow": of("pyarrow", lambda arrow, rows: arrow.table(dict(zip(NAMES, rows.T, strict=True)))),
    "narwhals": of("narwhals", lambda narwhals, rows: narwhals.from_native(frame(rows))),
}
TABLES = ["pandas", "polars", "arrow", "narwhals"]


def classifier():
    return DPSGDClassifier(epsilon=50.0, n_iter=2)


def regressor():
    return DPLinearRegression(epsilon=50.0, bounds=(0, 1), target_bounds=(0, 1))


# What takes rows that were held out, with the model that it is given.
TAKERS = {
    "score": (classifier, lambda model, X: private_score(model, X, Y)),
    "score of a regressor": (
        regressor,
        lambda model, X: private_score(
            model, X, T, metric="mean_absolute_error", target_bounds=(0, 1)
        ),
    ),
    "calibration": (classifier, lambda model, X: DPCalibratedClassifier(model).fit(X, Y)),
    "sets": (classifier, lambda model, X: DPConformalClassifier(model).fit(X, Y)),
    "intervals": (regressor, lambda model, X: DPConformalRegressor(model).fit(X, T)),
}


def told(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    found = [each for each in caught if "was fitted to" in str(each.message)]
    assert all(issubclass(each.category, PrivacyWarning) for each in found)
    return len(found)


def fitted(model, rows=X, y=None):
    y = y if y is not None else T if isinstance(model, DPLinearRegression) else Y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows, y)


@pytest.mark.parametrize("taker", TAKERS)
def test_rows_of_the_fit_are_told_of_wherever_new_ones_are_asked_for(taker):
    make, take = TAKERS[taker]
    model = fitted(make())
    assert told(lambda: take(model, X)) == told(lambda: take(model, X.copy())) == 1
    assert told(lambda: take(model, NEW)) == 0
    frozen = make_pipeline(FrozenEstimator(model))
    assert told(lambda: take(frozen, X[::-1].copy())) == 1
    warned = pytest.raises(
        PrivacyWarning, match=r"was fitted to: .*Hold out some rows before the fit"
    )
    with warnings.catch_warnings(), warned:
        warnings.filterwarnings("error", ".* was fitted to", PrivacyWarning)
        take(model, X)


@pytest.mark.parametrize("container", ["array", *TABLES])
def test_rows_of_a_calibration_are_told_of_to_another_one(container):
    """Though not to a score, which one or two numbers do not make too good."""
    same = CONTAINERS[container]
    table = container != "array"
    model = tabular_pipeline(classifier(), LABELS) if table else classifier()
    model = fitted(model, frame(NEW) if table else NEW)
    calibrated = DPCalibratedClassifier(model)
    assert told(lambda: calibrated.fit(frame(X) if table else X, Y)) == 0
    assert told(lambda: private_score(calibrated, same(X), Y)) == 0
    assert told(lambda: DPConformalClassifier(calibrated).fit(same(X), Y)) == 1


@pytest.mark.parametrize("container", CONTAINERS)
def test_rows_are_told_by_what_is_in_them(container):
    """All of them, half of them or others besides, in any order; not without a fit that pays."""
    same = CONTAINERS[container]
    model, other = fitted(classifier()), fitted(classifier(), same(X))
    for rows in (X, X[::-1], X[:150], np.concatenate([X, NEW[:200]])):
        assert has_seen(model, same(rows)) and has_seen(other, np.array(rows))
    for rows in (NEW, X[:5], np.concatenate([X[:100], NEW]), X + 1):
        assert not has_seen(model, same(rows))
    free = BoundedScaler((0, 1)).fit(X)
    assert not has_seen(free, same(X))


@pytest.mark.parametrize("container", TABLES)
def test_rows_of_a_table_are_told_by_what_is_in_them(container):
    same = CONTAINERS[container]
    model = fitted(tabular_pipeline(classifier(), LABELS), frame(X))
    assert has_seen(model, same(X)) and has_seen(model, same(X[::2]))
    assert not has_seen(model, same(NEW))
    assert told(lambda: private_score(model, same(X), Y)) == 1
    with pytest.raises(ValueError, match="rows that this pipeline was fitted to"):
        ImportanceDisplay.from_estimator(model, X_public=same(X))


def test_a_search_tells_rows_of_its_best_trial():
    search = PrivateSearch(classifier(), {"alpha": [0.0, 0.1]}, epsilon=50.0, delta=1e-5)
    model = fitted(make_pipeline(search))
    assert told(lambda: private_score(model, X.copy(), Y)) == 1
    assert told(lambda: private_score(model, NEW, Y)) == 0


def test_many_rows_are_told_by_some_of_them():
    rows = np.random.default_rng(1).uniform(size=(20_000, 2))
    model = fitted(classifier(), rows, (rows[:, 0] > 0.5).astype(int))
    assert has_seen(model, pd.DataFrame(rows)[::-1])
    assert not has_seen(model, np.random.default_rng(2).uniform(size=(20_000, 2)))


def test_few_different_rows_tell_nothing():
    """Rows of the fit that others are equal to by chance: no alarm, as for public rows."""
    yes = (rng.random((300, 3)) < 0.5).astype(float)
    model = fitted(classifier(), yes)
    assert not has_seen(model, (rng.random((300, 3)) < 0.5).astype(float))


def test_what_is_known_of_rows_stays_in_the_process_and_goes_with_the_model():
    model = fitted(classifier())
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), object(), 3):
        assert not has_seen(other, X)
    fitted(model, NEW)
    assert not has_seen(model, X) and has_seen(model, NEW.copy())
    piped = fitted(make_pipeline(Normalizer(), classifier()))  # other rows get to the last step
    assert not has_seen(piped[-1], X)


@pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning")
@pytest.mark.parametrize(
    "make",
    [classifier, lambda: tabular_pipeline(classifier(), LABELS)],
    ids=["estimator", "pipeline"],
)
def test_a_fit_that_is_refused_leaves_the_rows_of_the_last_one_known(make):
    model = make().fit(frame(X), Y)
    with pytest.raises(ValueError, match="classes"):
        model.fit(frame(NEW), np.zeros(len(NEW)))
    assert has_seen(model, frame(X)) and not has_seen(model, frame(NEW))
    model.fit(frame(NEW), Y)
    assert has_seen(model, frame(NEW)) and not has_seen(model, frame(X))
