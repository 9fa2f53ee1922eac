"""Tables of the forms that rows come in, and a walk over them.

A *cell* is a door (an estimator or a function), the argument that is walked (rows, targets, groups
or public rows), the container that it comes in, what its entries are, and whether rows are of
persons. Whatever becomes of a cell, an error comes before anything is charged, and no message has
an entry of the rows, or, of persons, the number of rows.
"""

import datetime
import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from itertools import product
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pandas as pd
import rare_forms
from cases import small_module
from helpers import public_rows
from scipy import sparse
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline

import dpsubspace
from dpsubspace import Categories, PrivacyLedger, PrivateRange, Range
from dpsubspace.linear_model import GradientDirections

N, PERSONS, NAMES = 103, 13, ["a", "b", "c"]

# Entries that no message may have: those of one row.
TEXT, NUMBER = "HIV positive", 7341.25
SECRETS = re.compile(r"HIV|734[01]|1844674407370")
ROWS = re.compile(rf"\b{N}\b")


# What entries are: of an array of whole numbers from 0 to 9, of which one is to be found again ----


def _cast(dtype, secret=NUMBER):
    def make(base):
        found = base.astype(dtype)
        found[_place(found)] = secret
        return found

    return make


def _place(array):
    return (min(7, len(array) - 1), *(0,) * (array.ndim - 1))


def _objects(make, secret):
    def made(base):
        found = np.empty(base.shape, dtype=object)
        found[...] = np.vectorize(make, otypes=[object])(base) if base.size else found
        found[_place(found)] = secret
        return found

    return made


def _dates(base):
    return np.datetime64("2001-01-01", "ns") + base.astype("timedelta64[D]")


VALUES: dict[str, Callable] = {
    "float64": _cast(np.float64),
    "float32": _cast(np.float32),
    "float16": _cast(np.float16),
    "longdouble": _cast(np.longdouble),
    "big-endian": _cast(">f8"),
    "int64": _cast(np.int64, 7341),
    "int32": _cast(np.int32, 7341),
    "int16": _cast(np.int16, 7341),
    "int8": _cast(np.int8, 9),
    "uint64": _cast(np.uint64, 2**64 - 7341),
    "uint32": _cast(np.uint32, 7341),
    "uint16": _cast(np.uint16, 7341),
    "uint8": _cast(np.uint8, 9),
    "bool": lambda base: base > 0,
    "complex": _cast(np.complex128, 7341j),
    "text": lambda base: _objects(lambda v: f"HIV {v:.0f}", TEXT)(base).astype(str),
    "text of numbers": lambda base: _objects(lambda v: f"{v:.0f}", "7341.25")(base).astype(str),
    "bytes": lambda base: _objects(lambda v: b"%d" % v, TEXT.encode())(base).astype(bytes),
    "dates": _dates,
    "durations": lambda base: _dates(base) - np.datetime64("2001-01-01", "ns"),
    "NaN": _cast(np.float64, np.nan),
    "infinity": _cast(np.float64, np.inf),
    "huge": _cast(np.float64, 7341e300),
    "beyond float64": _cast(np.longdouble, np.longdouble(7341) * np.longdouble(10) ** 400),
    "zeros": lambda base: np.zeros(base.shape),
    "objects, ints": _objects(int, 7341),
    "objects, floats": _objects(float, NUMBER),
    "objects, bools": _objects(bool, True),
    "objects, decimals": _objects(lambda v: Decimal(f"{v:.2f}"), Decimal("7341.25")),
    "objects, text": _objects(lambda v: f"HIV {v:.0f}", TEXT),
    "objects, a text": _objects(float, TEXT),
    "objects, None": _objects(float, None),
    "objects, dates": _objects(
        lambda v: datetime.date(2001, 1, 1 + int(v)), datetime.date(1973, 4, 1)
    ),
    "objects, beyond": _objects(int, 7341 * 10**400),
    "objects, beyond 64 bits": _objects(int, 7341 * 2**64),
    "objects, lists": _objects(float, [7341.25, 2.0]),
    "no rows": lambda base: base[:0].astype(float),
    "one row": lambda base: base[:1].astype(float),
    "no columns": lambda base: base[:, :0].astype(float) if base.ndim == 2 else None,
}


# Containers: of an array of one dimension, or of two ---------------------------------------------


class Subclass(np.ndarray):
    """An array of another class."""


def _frame(array, **options):
    """A frame or a Series of pandas."""
    if array.ndim == 1:
        return pd.Series(array, **options)
    return pd.DataFrame({name: array[:, i] for i, name in enumerate(NAMES[: array.shape[1]])})


def _strided(array):
    wide = np.repeat(array, 2, axis=0)
    return wide[::2]


def _read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def _mapped(array):
    with TemporaryFile() as file:
        found = np.memmap(file, dtype=array.dtype, mode="w+", shape=array.shape)
    found[...] = array
    return found


def _structured(array):
    names = NAMES[: array.shape[1]] if array.ndim == 2 else ["a"]
    found = np.zeros(len(array), dtype=[(name, array.dtype) for name in names])
    for i, name in enumerate(names):
        found[name] = array[:, i] if array.ndim == 2 else array
    return found


def _masked(array):
    mask = np.zeros(array.shape, dtype=bool)
    mask[_place(array)] = True
    return np.ma.array(array, mask=mask)


def _categorical(array):
    return _frame(array).astype("category")


def _sparse_frame(array):
    found = _frame(array)
    if found.ndim == 1:
        return found.astype(pd.SparseDtype(found.dtype))
    return found.astype({name: pd.SparseDtype(dtype) for name, dtype in found.dtypes.items()})


def _polars(array):
    import polars as pl

    frame = _frame(array)
    return pl.from_pandas(frame) if len(frame.shape) == 2 else pl.Series("v", frame.to_numpy())


def _polars_list(array):
    """Of lists, as Polars infers types."""
    import polars as pl

    if array.ndim == 1:
        return pl.Series("v", array.tolist())
    return pl.DataFrame({name: array[:, i].tolist() for i, name in enumerate(_names(array))})


def _names(array):
    return NAMES[: array.shape[1]]


def _arrow(array):
    import pyarrow as pa

    if array.ndim == 1:
        half = len(array) // 2
        return pa.chunked_array([pa.array(array[:half]), pa.array(array[half:])])
    return pa.table({name: pa.array(array[:, i]) for i, name in enumerate(_names(array))})


def _arrow_batch(array):
    import pyarrow as pa

    return _arrow(array).to_batches()[0] if array.ndim == 2 else pa.array(array)


def _ragged(array):
    """A list of rows, of which one has another length."""
    found = array.tolist()
    found[_place(array)[0]] = [TEXT, TEXT]
    return found


def _dataset(array, **columns):
    import pyarrow as pa
    import pyarrow.dataset

    table = _arrow(array)
    for name, column in columns.items():
        table = table.append_column(name, pa.array(column))
    return pyarrow.dataset.dataset(table)


def _dask_array(array):
    import in_parts

    return in_parts.blocks(array)


def _dask_frame(array):
    import in_parts

    frame = in_parts.partitions(pd.DataFrame(_frame(array)))
    return frame if array.ndim == 2 else frame[frame.columns[0]]


def _dask_pyarrow(array):
    import in_parts

    frame = pd.DataFrame(_frame(array)).convert_dtypes(dtype_backend="pyarrow")
    frame = in_parts.partitions(frame)
    return frame if array.ndim == 2 else frame[frame.columns[0]]


def _tensor(array):
    import torch

    return torch.from_numpy(array)


CONTAINERS: dict[str, Callable] = {
    "array": np.array,
    "Fortran": np.asfortranarray,
    "strided": _strided,
    "read-only": _read_only,
    "memory map": _mapped,
    "subclass": lambda array: array.view(Subclass),
    "matrix": lambda array: np.matrix(array) if array.ndim == 2 else None,
    "masked": _masked,
    "structured": _structured,
    "list": lambda array: array.tolist(),
    "ragged list": _ragged,
    "tuple of arrays": tuple,
    "dict": lambda array: _frame(array).to_dict("list") if array.ndim == 2 else None,
    "frame": _frame,
    "frame, objects": lambda array: _frame(array).astype(object),
    "frame, nullable": lambda array: _frame(array).convert_dtypes(),
    "frame, pyarrow": lambda array: _frame(array).convert_dtypes(dtype_backend="pyarrow"),
    "frame, sparse": _sparse_frame,
    "frame, categorical": _categorical,
    "Polars": _polars,
    "Polars, of lists": _polars_list,
    "Arrow": _arrow,
    "Arrow, batch": _arrow_batch,
    "dataset": _dataset,
    "Dask array": _dask_array,
    "Dask frame": _dask_frame,
    "Dask frame, pyarrow": _dask_pyarrow,
    "csr_array": lambda array: sparse.csr_array(array),
    "csc_matrix": lambda array: sparse.csc_matrix(array),
    "coo_array": lambda array: sparse.coo_array(array),
    "tensor": _tensor,
}
_DASK = {"Dask array": _dask_array, "Dask frame": _dask_frame, "Dask frame, pyarrow": _dask_frame}
_DASK |= {"Dask frame, categories": _dask_frame, "Dask array, unknown": _dask_frame}

# With those that are met less often.
ALL_VALUES = VALUES | rare_forms.values_of(_cast, _objects, VALUES["text"])
ALL_CONTAINERS = CONTAINERS | rare_forms.CONTAINERS


def made(container, values, base):
    """What comes in; None where there is no such thing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            array = ALL_VALUES[values](base)
            return None if array is None else ALL_CONTAINERS[container](array)
        except Exception:
            return None


def beside(container, vector):
    """A column beside rows in a container: in the blocks of a Dask collection."""
    return _DASK.get(container, np.asarray)(vector) if vector is not None else None


# Doors --------------------------------------------------------------------------------------------

_rng = np.random.default_rng(0)
X = _rng.integers(0, 10, (N, 3)).astype(float)
OF_PERSON = _rng.permutation(np.arange(N) % PERSONS)
LABELS = (X[:, 0] > 4).astype(float)
TARGETS = X[:, 1].copy()
PUBLIC = _rng.integers(0, 10, (60, 3)).astype(float)  # few of them are rows of X as well


@cache
def _public():
    return public_rows(3)[0], np.arange(60) % 2, public_rows(3)[0][:, 0]


@dataclass(frozen=True)
class Door:
    """How an estimator or a function takes rows, and its other arguments."""

    call: Callable  # of X, y, groups and public rows
    task: str = ""  # "classes" or "numbers" where there are targets
    public: bool = False  # whether public rows are taken
    table: bool = False  # whether a schema reads the rows
    groups: bool = True  # whether rows may be of persons
    words: bool = False  # whether they are text where something else is walked


def _fit(build, **options):
    """A door of an estimator."""

    def call(X, y, groups, X_public, y_public=None):
        given = {"groups": groups} if groups is not None else {}
        if X_public is not None:
            given["X_public"] = X_public
        if y_public is not None:
            given["y_public"] = y_public
        return build().set_params(random_state=0, **options).fit(X, y, **given)

    return call


def _function(called, **options):
    def call(X, y, groups, X_public):
        return called(X, groups=groups, random_state=0, epsilon=30.0, **options)

    return call


def _personal(build):
    def call(X, y, groups, X_public):
        groups = beside("array", OF_PERSON[: len(y)]) if groups is None else groups
        return build(epsilon=30.0, n_iter=1, random_state=0).fit(X, y, groups=groups)

    return call


def _subspace(X, y, groups, X_public):
    rows, _, targets = _public()
    sets = (rows if X_public is None else X_public,)
    model = dpsubspace.linear_model.PublicSubspaceLinearRegression(epsilon=30.0, random_state=0)
    known = targets[:60] if X_public is None else TARGETS[: _length(X_public)]
    return model.fit(X, y, groups=groups, X_public=sets, y_public=(known,))


def _length(rows):
    shape = getattr(rows, "shape", None)
    return shape[0] if shape else len(rows) if hasattr(rows, "__len__") else N


def _module(build):
    def call(X, y, groups, X_public):
        model = build(small_module(3, 1), epsilon=30.0, n_iter=2, random_state=0)
        given = {} if X_public is None else {"X_public": X_public}
        return model.fit(X, y, groups=groups, **given)

    return call


def _held_out(build, regressor=False):
    def call(X, y, groups, X_public):
        rows, labels, targets = _public()
        model = LinearRegression().fit(rows, targets) if regressor else None
        model = model or LogisticRegression().fit(rows, labels)
        return build(model, epsilon=30.0, random_state=0).fit(X, y, groups=groups)

    return call


def _score(*metrics, by=False):
    def call(X, y, groups, X_public):
        rows, labels, targets = _public()
        regression = "r2" in metrics
        model = LinearRegression() if regression else LogisticRegression()
        model = model.fit(rows, targets if regression else labels)
        given = {"target_bounds": (0, 10)} if regression else {}
        if by:
            given["by"] = (y, [0, 1])
        given |= {"metric": list(metrics), "groups": groups, "random_state": 0, "epsilon": 30.0}
        return dpsubspace.private_score(model, X, y, **given)

    return call


def _difference(metric, **options):
    def call(X, y, groups, X_public):
        rows, labels, targets = _public()
        if "target_bounds" in options:
            models = LinearRegression(), DummyRegressor()
            labels = targets
        else:
            models = LogisticRegression(), DummyClassifier(strategy="uniform", random_state=0)
        models = [model.fit(rows, labels) for model in models]
        given = {"metric": metric, "groups": groups, "random_state": 0, "epsilon": 30.0, **options}
        return dpsubspace.metrics.private_score_difference(*models, X, y, **given)

    return call


def _coefficients(X, y, groups, X_public):
    return dpsubspace.private_coefficients(
        X,
        target=y,
        bounds=(0, 10),
        target_bounds=(0, 10),
        groups=groups,
        epsilon=30.0,
        random_state=0,
    )


def _schema(kind):
    return dict.fromkeys(NAMES, kind)


def _tables(called, kind, **options):
    def call(X, y, groups, X_public):
        given = {"groups": groups, "random_state": 0, "epsilon": 30.0, **options}
        return called(X, _schema(kind), **given)

    return call


def _coefficients_of_table(X, y, groups, X_public):
    return dpsubspace.private_coefficients(
        X, _schema((0, 10)), target="c", groups=groups, epsilon=30.0, random_state=0
    )


def _pipeline(model, kind, **options):
    def call(X, y, groups, X_public):
        made = dpsubspace.tabular_pipeline(
            model().set_params(epsilon=30.0, random_state=0), _schema(kind), **options
        )
        given = {} if X_public is None else {"X_public": X_public}
        return made.fit(X, y, groups=groups, **given)

    return call


def _encoder(X, y, groups, X_public):
    encoder = dpsubspace.tables.TableEncoder(_schema(PrivateRange()), epsilon=300.0, random_state=0)
    return encoder.fit(X, groups=groups)


def _search(X, y, groups, X_public):
    model = dpsubspace.DPSGDClassifier(n_iter=2, classes=[0, 1])
    search = dpsubspace.PrivateSearch(model, {"alpha": [1e-3, 1e-2]}, n_trials=2.0, random_state=0)
    return search.set_params(epsilon=10.0).fit(X, y, groups=groups)


def _choose(X, y, groups, X_public, **module):
    rows, labels, _ = _public()
    candidates = {"like": rows, "few": rows[:20] if X_public is None else X_public}
    if y is None:
        options = _built(module) or {"n_components": 1}
    else:
        given = _length(candidates["few"])
        options = {"y": y, "method": "validation"}
        options["y_public"] = {"like": labels, "few": (np.arange(given) % 2)}
    return dpsubspace.select_public(
        candidates, X, epsilon=10.0, groups=groups, random_state=0, **options
    )


def _projection(**module):
    def call(X, y, groups, X_public):
        rows = _public()[0] if X_public is None else X_public
        given = {"groups": groups, "random_state": 0, "epsilon": 30.0, **_built(module)}
        return dpsubspace.public_data.private_projection_error(X, rows, **given)

    return call


def _built(module):
    """Options of a module, which is made where it is used: not everybody has torch."""
    return {"module": small_module(3, 1), "n_classes": 2} if module else {}


def _features(X, y, groups, X_public):
    """A fit behind features of a network: public, so that they have no charge of their own."""
    features = dpsubspace.neural_network.TorchFeatures(small_module(3, 2))
    model = dpsubspace.DPPCA(epsilon=30.0, n_components=1, data_norm=9.0, random_state=0)
    return make_pipeline(features, model).fit(X, dppca__groups=groups)


def _scorer(X, y, groups, X_public):
    model = dpsubspace.public_data.GSDScorer(epsilon=30.0, n_components=1, random_state=0)
    sets = _public()[0] if X_public is None else X_public
    return model.set_params(**_built({"module": True})).fit(X, groups=groups, X_public=sets)


FEW = {"n_iter": 2, "epsilon": 30.0}
SEVEN = Categories([0, 1, 2, 3, 4, 5, 6])
WORDS = Categories([f"HIV {i}" for i in range(7)], missing=True)
DOORS = {
    "DPSGDClassifier": Door(_fit(dpsubspace.DPSGDClassifier, **FEW), "classes"),
    "DPSGDClassifier, classes": Door(
        _fit(dpsubspace.DPSGDClassifier, **FEW, classes=[0, 1]), "classes"
    ),
    "DPSGDFClassifier": Door(
        _fit(dpsubspace.DPSGDFClassifier, **FEW, preprocessing="adaptive"), "classes"
    ),
    "DPSGDRegressor": Door(_fit(dpsubspace.DPSGDRegressor, **FEW), "numbers"),
    "DPLinearRegression": Door(
        _fit(dpsubspace.DPLinearRegression, epsilon=30.0, solver="moments"), "numbers", True
    ),
    "DPLinearRegression, descent": Door(
        _fit(dpsubspace.DPLinearRegression, epsilon=30.0, solver="descent"), "numbers"
    ),
    "PublicSubspaceLinearRegression": Door(_subspace, "numbers", True),
    "PersonalizedLinearRegression": Door(
        _personal(dpsubspace.linear_model.PersonalizedLinearRegression), "numbers"
    ),
    "PersonalizedLogisticRegression": Door(
        _personal(dpsubspace.linear_model.PersonalizedLogisticRegression), "classes"
    ),
    "GEPClassifier": Door(_fit(dpsubspace.GEPClassifier, **FEW), "classes", True),
    "GEPClassifier, gradients": Door(
        _fit(dpsubspace.GEPClassifier, **FEW, directions=GradientDirections(n_components=2)),
        "classes",
        True,
    ),
    "GEPRegressor": Door(_fit(dpsubspace.linear_model.GEPRegressor, **FEW), "numbers", True),
    "DPModuleClassifier": Door(
        _module(dpsubspace.neural_network.DPModuleClassifier), "classes", True
    ),
    "DPModuleRegressor": Door(
        _module(dpsubspace.neural_network.DPModuleRegressor), "numbers", True
    ),
    "BoundedScaler": Door(_fit(dpsubspace.BoundedScaler, epsilon=30.0)),
    "DPPCA": Door(_fit(dpsubspace.DPPCA, epsilon=30.0, n_components=2)),
    "DPPCA, power": Door(
        _fit(dpsubspace.DPPCA, epsilon=30.0, n_components=2, mechanism="power", data_norm=9.0)
    ),
    "GSDScorer": Door(
        _fit(dpsubspace.public_data.GSDScorer, epsilon=30.0, n_components=1), "", True
    ),
    "GSDScorer, module": Door(_scorer, "", True, groups=False),
    "TorchFeatures": Door(_features),
    "DPCalibratedClassifier": Door(
        _held_out(dpsubspace.calibration.DPCalibratedClassifier), "classes"
    ),
    "DPConformalClassifier": Door(
        _held_out(dpsubspace.calibration.DPConformalClassifier), "classes"
    ),
    "DPConformalRegressor": Door(
        _held_out(dpsubspace.calibration.DPConformalRegressor, True), "numbers"
    ),
    "PrivateSearch": Door(_search, "classes"),
    "private_mean": Door(_function(dpsubspace.private_mean)),
    "private_quantile": Door(_function(dpsubspace.statistics.private_quantile, level=0.5)),
    "private_covariance": Door(_function(dpsubspace.statistics.private_covariance)),
    "private_spread": Door(_function(dpsubspace.statistics.private_spread)),
    "private_projection_error": Door(_projection(), "", True),
    "private_projection_error, module": Door(_projection(module=True), "", True, groups=False),
    "select_public": Door(_choose, "", True),
    "select_public, module": Door(partial(_choose, module=True), "", True, groups=False),
    "select_public, validation": Door(_choose, "classes"),
    "private_score": Door(_score("accuracy", "roc_auc"), "classes"),
    "private_score, by": Door(_score("accuracy", by=True), "classes"),
    "private_score, numbers": Door(_score("r2"), "numbers"),
    "private_score_difference": Door(_difference("balanced_accuracy"), "classes"),
    "private_score_difference, numbers": Door(
        _difference("mean_absolute_error", target_bounds=(0, 10)), "numbers"
    ),
    "private_coefficients": Door(_coefficients, "numbers"),
    "private_coefficients, table": Door(_coefficients_of_table, table=True),
    "private_counts": Door(
        _tables(dpsubspace.private_counts, SEVEN, columns=["a", "b"]), table=True
    ),
    "private_counts, words": Door(
        _tables(dpsubspace.private_counts, WORDS, columns="a"), table=True, words=True
    ),
    "private_summary": Door(
        _tables(dpsubspace.private_summary, Range(0, 10, missing=True)), table=True
    ),
    "TableEncoder": Door(_encoder, table=True),
    "TabularPipeline": Door(
        _pipeline(lambda: dpsubspace.DPSGDClassifier(n_iter=2), (0, 10)), "classes", table=True
    ),
    "TabularPipeline, numbers": Door(
        _pipeline(dpsubspace.DPLinearRegression, SEVEN, target=(0, 10)), "numbers", table=True
    ),
    "TabularPipeline, GEP": Door(
        _pipeline(lambda: dpsubspace.GEPClassifier(n_iter=2), (0, 10)), "classes", True, True
    ),
}
ROLES = ("X", "y", "groups", "X_public")
_TOGETHER = 40  # cells of one ledger


# The walk -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One thing to try."""

    door: str
    container: str
    values: str
    role: str = "X"
    persons: bool = False

    def __str__(self):
        return f"{self.door}, {self.role}: {self.container} of {self.values}" + (
            ", persons" * self.persons
        )


@dataclass(frozen=True)
class Outcome:
    """What became of a cell."""

    end: str  # "fitted", "hidden" by noise, or the name of an error
    faults: tuple[str, ...] = ()
    said: str = ""
    result: Any = None


def takes(door, role):
    """Whether a door has an argument to walk."""
    asked = {"X": True, "y": bool(door.task), "groups": door.groups, "X_public": door.public}
    return asked[role]


def arguments(cell):
    """Rows, targets, groups and public rows of a cell; None where there is no such thing."""
    door = DOORS[cell.door]
    truth = {"X": X, "y": LABELS if door.task == "classes" else TARGETS, "groups": OF_PERSON}
    truth["X_public"] = PUBLIC
    walked = made(cell.container, cell.values, truth[cell.role])
    if walked is None or (cell.role != "X" and cell.container == "dataset"):
        return None
    others = cell.container if cell.container in _DASK and cell.role != "X_public" else "array"
    n = {"no rows": 0, "one row": 1}.get(cell.values, N) if cell.role == "X" else N
    y = truth["y"][:n].astype(int if door.task == "classes" else float) if door.task else None
    rows = VALUES["text"](X) if door.words else X
    found = {"X": beside(others, rows), "y": None if y is None else beside(others, y)}
    found["groups"] = beside(others, OF_PERSON[:n]) if cell.persons else None
    found["X_public"] = _public()[0] if door.public and cell.role == "X_public" else None
    found[cell.role] = walked
    if cell.container == "dataset" and door.task and cell.values == "no columns":
        return None
    if cell.container == "dataset" and door.task:
        found["X"] = _dataset(ALL_VALUES[cell.values](X), y=y)
        found["y"] = "y"
    return found


def said_by(error):
    """All that a printed traceback says in words."""
    told, shown = [], traceback.TracebackException.from_exception(error)
    while shown is not None:
        told += shown.format_exception_only()
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    return " ".join(told)


def of_persons(cell):
    """Whether the rows of a cell are of persons, so that their number is private."""
    return cell.persons or cell.role == "groups" or cell.door.startswith("Personalized")


def walk(cells):
    """Cells that can be made, and what becomes of each inside of a ledger.

    Those of persons come last: a ledger counts either rows or persons. A new one is opened after
    some cells, since a charge takes the longer, the more there are before it.
    """
    for persons, unit in ((False, "row"), (True, "person")):
        some = [cell for cell in cells if of_persons(cell) == persons]
        for first in range(0, len(some), _TOGETHER):
            ledger = PrivacyLedger(1e6, 1e-3, unit=unit, allow_seeded=True)
            with ledger:
                for cell in some[first : first + _TOGETHER]:
                    given = arguments(cell)
                    if given is not None:
                        yield cell, _walked(cell, given, ledger)


def _walked(cell, given, ledger):
    end, said, result, before = "fitted", "", None, len(ledger.entries)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            result = DOORS[cell.door].call(*(given[role] for role in ROLES))
        except Exception as error:
            end, said = type(error).__name__, said_by(error)
            if isinstance(error, dpsubspace.PrivacyError) and "noise" in said:
                end = "hidden"  # by noise, in what was released
    faults = []
    if end not in ("fitted", "hidden") and len(ledger.entries) > before:
        faults.append("spent")
    said = " ".join([said, *(str(each.message) for each in told)])
    told_of = said.replace(str(list(WORDS.values)), "")  # the schema is public
    if cell.role != "X_public" and SECRETS.search(told_of):
        faults.append("value")
    if of_persons(cell) and ROWS.search(said):
        faults.append("rows")
    return Outcome(end, tuple(faults), said, result)


def all_cells(*, rare=False):
    """Every cell that there is; with `rare` those of forms that are met less often instead."""
    for name, door in DOORS.items():
        for role in ROLES:
            for persons in (False, True):
                if not takes(door, role) or (persons and (role == "groups" or not door.groups)):
                    continue
                for container, values in product(ALL_CONTAINERS, ALL_VALUES):
                    if (container in CONTAINERS and values in VALUES) != rare:
                        yield Cell(name, container, values, role, persons)
