"""Frames of narwhals are those that they wrap, and lazy frames are told to be collected."""

import numpy as np
import pandas as pd
import pytest
from helpers import blobs
from sklearn.frozen import FrozenEstimator

from dpsubspace import (
    DPLinearRegression,
    DPSGDFClassifier,
    PrivateSearch,
    Range,
    Schema,
    private_coefficients,
    private_counts,
    private_mean,
    private_score,
    private_summary,
    tabular_pipeline,
)
from dpsubspace.calibration import DPCalibratedClassifier

X, CODES = blobs(n=200, n_classes=2)
FRAME = pd.DataFrame(X, columns=list("abcde"))
LABELS = pd.Series(CODES, name="label")
GROUPS = pd.Series(np.arange(200) // 2, name="person")
SCHEMA = Schema({name: Range(-5, 5) for name in FRAME})
OPTIONS = {"epsilon": 5.0, "delta": 1e-6, "random_state": 0}
MODEL = DPSGDFClassifier(n_iter=3, **OPTIONS).fit(FRAME, LABELS)
COUNTS = {"epsilon": 5.0, "random_state": 0}
TABLE = tabular_pipeline(DPSGDFClassifier(n_iter=3, **OPTIONS), SCHEMA)

# Whatever takes rows, and most of it labels and persons beside them.
DOORS = {
    "fit": lambda X, y, g: DPSGDFClassifier(n_iter=3, **OPTIONS).fit(X, y, groups=g).coef_,
    "regression": lambda X, y, g: DPLinearRegression(**OPTIONS).fit(X, y, groups=g).coef_,
    "pipeline": lambda X, y, g: TABLE.fit(X, y, groups=g)[-1].coef_,
    "predict": lambda X, y, g: TABLE.fit(FRAME, LABELS).predict_proba(X),
    "mean": lambda X, y, g: private_mean(X, bounds=(-5, 5), groups=g, **COUNTS).value,
    "counts": lambda X, y, g: private_counts(X, SCHEMA, "a", groups=g, **COUNTS).counts,
    "summary": lambda X, y, g: str(private_summary(X, SCHEMA, groups=g, **COUNTS)),
    "coefficients": lambda X, y, g: str(
        private_coefficients(X, SCHEMA, target="a", groups=g, **COUNTS)
    ),
    "score": lambda X, y, g: private_score(MODEL, X, y, groups=g, **COUNTS).value,
    "search": lambda X, y, g: (
        PrivateSearch(TABLE, {"dpsgdfclassifier__alpha": [0.1, 0.2]}, n_trials=2.0, **OPTIONS)
        .fit(X, y)
        .score(FRAME, LABELS)
    ),
    "calibration": lambda X, y, g: (
        DPCalibratedClassifier(FrozenEstimator(MODEL), **COUNTS)
        .fit(X, y, groups=g)
        .predict_proba(FRAME)
    ),
    "draft": lambda X, y, g: str(Schema.from_public(X)),
}
quiet = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
pytestmark = quiet


def polars():
    return pytest.importorskip("polars")


WRAPPED = {
    "pandas": (lambda: FRAME, lambda: LABELS, lambda: GROUPS),
    "Polars": (
        lambda: polars().DataFrame(FRAME.to_dict("list")),
        lambda: polars().Series(CODES.tolist()),
        lambda: polars().Series(GROUPS.tolist()),
    ),
}


@pytest.mark.parametrize("library", WRAPPED)
@pytest.mark.parametrize("door", DOORS)
def test_a_frame_of_narwhals_is_read_as_what_it_wraps(door, library):
    nw = pytest.importorskip("narwhals")
    given = [make() for make in WRAPPED[library]]
    expected = DOORS[door](*given)
    found = DOORS[door](
        nw.from_native(given[0]), *(nw.from_native(some, series_only=True) for some in given[1:])
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("door", DOORS)
def test_a_lazy_frame_is_to_be_collected(door):
    lazy = polars().DataFrame(FRAME.to_dict("list")).lazy()
    with pytest.raises(ValueError, match=r"`(X|frame)` is a lazy frame.*\.collect\(\)"):
        DOORS[door](lazy, LABELS, None)
    if door in ("fit", "regression", "pipeline", "score", "search", "calibration"):
        with pytest.raises(ValueError, match=r"`y` is a lazy frame.*y\.collect\(\)"):
            DOORS[door](FRAME, lazy.select("a"), None)


@pytest.mark.parametrize("fill", [1.0, np.nan, np.inf])
def test_sparse_frames_may_leave_out_other_entries_than_zeros(fill):
    rows = FRAME.round().clip(0, 1)
    found = MODEL.fit(rows.astype(pd.SparseDtype("float64", fill)), LABELS).coef_
    np.testing.assert_array_equal(found, MODEL.fit(rows, LABELS).coef_)
