"""Labels are read alike from every container, and their classes have one type everywhere."""

import numpy as np
import pandas as pd
import pytest
from helpers import blobs

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, Range, private_score, tabular_pipeline
from dpsubspace._core.rows.columns import read_labels

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:columns that the schema does not name"),
]

MODEL = DPSGDClassifier(epsilon=50.0, n_iter=3, delta=1e-5, random_state=0)
X, CODES = blobs(n=300, n_classes=2)
FRAME = pd.DataFrame(X, columns=list("abcde"))
TABLE = tabular_pipeline(MODEL, {name: Range(-5, 5) for name in FRAME})

# What labels are, as pandas calls it, and the classes that are made of them.
NUMBERS, TRUTH, TEXT = [0, 1], [False, True], ["no", "yes"]
TYPES = {
    "int64": NUMBERS,
    "Int64": NUMBERS,
    "int64[pyarrow]": NUMBERS,
    "object, of numbers": NUMBERS,
    "float64": [0.0, 1.0],
    "bool": TRUTH,
    "boolean": TRUTH,
    "bool[pyarrow]": TRUTH,
    "object, of truth values": TRUTH,
    "category, of truth values": TRUTH,
    "object": TEXT,
    "category": TEXT,
}


def labels_of(kind):
    values = [TYPES[kind][code] for code in CODES]
    return pd.Series(values, name="label").astype(kind.partition(",")[0])


def arrow_of(y):
    pa = pytest.importorskip("pyarrow")
    return pa.table({**{name: FRAME[name] for name in FRAME}, "label": pa.array(y)})


def polars_of(y):
    pl = pytest.importorskip("polars")
    return pl.DataFrame({"label": y.to_list()})["label"]


CONTAINERS = {
    "Series": lambda y: y,
    "list": lambda y: y.to_list(),
    "Arrow": lambda y: arrow_of(y)["label"],
    "Polars": polars_of,
}


def assert_same_classes(model, kind):
    assert model.classes_.tolist() == TYPES[kind]
    assert {*map(type, model.classes_.tolist())} == {*map(type, TYPES[kind])}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("container", CONTAINERS)
def test_labels_in_memory(container, kind):
    """Of a fit, of its exact score, and of a private one."""
    y = CONTAINERS[container](labels_of(kind))
    model = MODEL.fit(X, y)
    assert_same_classes(model, kind)
    right = (model.predict(X) == np.array(TYPES[kind])[CODES]).mean()
    assert model.score(X, y) == pytest.approx(right)
    score = private_score(model, X, y, epsilon=1e6, random_state=0)
    assert score.value == pytest.approx(right, abs=1e-4)


@pytest.mark.parametrize("kind", TYPES)
def test_labels_of_datasets(kind):
    ds = pytest.importorskip("pyarrow.dataset")
    assert_same_classes(TABLE.fit(ds.dataset(arrow_of(labels_of(kind))), "label"), kind)


@pytest.mark.parametrize("kind", TYPES)
def test_labels_of_dask(monkeypatch, kind):
    pytest.importorskip("distributed")
    import dask.dataframe as dd
    from dask import config
    from in_parts import cluster_here

    y = labels_of(kind)
    with config.set({"dataframe.convert-string": False}):
        rows = dd.from_pandas(FRAME.assign(label=y), npartitions=2)
    with cluster_here(monkeypatch, 2):
        assert_same_classes(TABLE.fit(rows, rows["label"]), kind)
        score = private_score(TABLE, rows, rows["label"], epsilon=1e6, random_state=0)
    assert score.value == pytest.approx(TABLE.score(FRAME, y), abs=1e-4)


@pytest.mark.parametrize("kind", TYPES)
def test_labels_in_memory_beside_an_array_of_dask(monkeypatch, kind):
    pytest.importorskip("distributed")
    from in_parts import blocks, cluster_here

    with cluster_here(monkeypatch, 2):
        for y in (labels_of(kind), labels_of(kind).to_list()):
            assert_same_classes(MODEL.fit(blocks(X), y), kind)


# Entry by entry -------------------------------------------------------------------------------

BIG = 2**53


def test_one_label_changes_no_other():
    """NumPy would take 2^53 and 2^53 + 1 for one class beside a float, and make text of numbers."""
    some = [BIG, BIG + 1] * 150
    model = DPSGDFClassifier(classes=[BIG, BIG + 1], epsilon=50.0, random_state=0)
    here = model.fit(X, some).coef_
    there = model.fit(X, [float(BIG), *some[1:]]).coef_
    np.testing.assert_array_equal(here, there)
    for mixed in ([float(BIG), *some[1:]], ["1", *[0, 1] * 149, 0]):
        for y in (mixed, np.array(mixed, dtype=object)):
            with pytest.raises(ValueError, match="labels of types that cannot be ordered"):
                DPSGDClassifier().fit(X, y)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 1], "i"),
        ([True, False], "b"),
        ([True, 0, 2], "i"),
        ([0, 1.5], "f"),
        ([np.int8(3), 2], "i"),
        ([np.True_, False], "b"),
        ([0, None], "O"),
        ([0, "a"], "O"),
        ([2**63, 1], "O"),
    ],
)
def test_types_of_entries(values, kind):
    for given in (values, np.array(values, dtype=object), pd.Series(values, dtype=object)):
        found = read_labels(given)
        assert found.dtype.kind == kind and found.tolist() == values
