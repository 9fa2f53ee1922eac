"""Fitted models as JSON and in pickles: to the last bit, and nothing that is wrong gets in."""

import copy
import json
import pickle
import pickletools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cases import CASES
from helpers import blobs
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import dpsubspace
from dpsubspace import DPSGDClassifier, Range, Schema, load, tabular_pipeline
from dpsubspace._core.fits.saved import FORMAT

pytestmark = pytest.mark.filterwarnings(
    "ignore::dpsubspace.PrivacyWarning", "ignore::dpsubspace.exceptions.PublicDataWarning"
)
ANSWERS = ("predict", "predict_proba", "decision_function", "transform", "predict_set")


def fits():
    """The first setting of each estimator that has no module, and the others as exhaustive."""
    for case in CASES:
        if not case.is_function and not case.module and isinstance(case.build, type):
            for i, setting in enumerate(case.settings):
                marks = () if i == 0 else pytest.mark.exhaustive
                yield pytest.param(case, setting, id=f"{case}-{setting}", marks=marks)


def fitted_case(case, setting):
    X, y, *_ = blobs(60, 5, 4)
    y = y if case.task == "classes" else np.asarray(X)[:, 0] * 1.5
    persons = np.arange(60) // 2 if "Personal" in case.name else None
    options = {} if "noise_multiplier" in case.settings[setting] else {"epsilon": 1.0}
    return case.fit(X, y, setting, groups=persons, **options), X


def answers(model, X):
    found = [getattr(model, name)(X) for name in ANSWERS if hasattr(model, name)]
    return [np.asarray(each) for each in found]


def assert_answers_alike(model, other, X):
    assert type(model) is type(other)
    found = answers(model, X)
    assert found
    for one, two in zip(found, answers(other, X), strict=True):
        assert one.dtype == two.dtype and np.array_equal(one, two)


def private_names(data):
    """Private modules of the package that a pickle names."""
    texts = {text for _, text, _ in pickletools.genops(data) if isinstance(text, str)}
    return sorted(text for text in texts if text.startswith("dpsubspace._"))


@pytest.mark.parametrize(("case", "setting"), fits())
def test_json_of_every_estimator_predicts_to_the_last_bit(case, setting):
    model, X = fitted_case(case, setting)
    written = model.to_json()
    if "Personal" in case.name:
        model = model.public_part()
    read = load(written)
    assert_answers_alike(model, read, X)
    assert read.to_json() == written
    assert (read.privacy_, read.privacy_.details()) == (model.privacy_, model.privacy_.details())


@pytest.mark.parametrize(("case", "setting"), fits())
def test_pickles_name_public_classes_alone(case, setting):
    model, X = fitted_case(case, setting)
    model = model.public_part() if "Personal" in case.name else model
    data = pickle.dumps(model)
    assert private_names(data) == []
    assert_answers_alike(model, pickle.loads(data), X)
    assert_answers_alike(model, copy.deepcopy(model), X)


@pytest.mark.parametrize(("case", "setting"), fits())
def test_arrays_lie_in_one_piece_as_files_have_them(case, setting):
    """Products with arrays of another layout may round otherwise."""
    model, _ = fitted_case(case, setting)
    for name, form in model._saved.items():
        if name in vars(model) and form.in_pickles:
            for array in arrays_in(form.plain(vars(model)[name])):
                assert array.flags.c_contiguous or array.flags.f_contiguous, name


def arrays_in(plain):
    """All arrays of plain data."""
    if isinstance(plain, np.ndarray):
        yield plain
    elif isinstance(plain, (dict, list)):
        for each in plain.values() if isinstance(plain, dict) else plain:
            yield from arrays_in(each)


# Models of several parts ------------------------------------------------------------------------


def table(n=600):
    """Rows with gaps, a logarithmic column, and categories of text and numbers."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(size=n),
            "dose": rng.exponential(size=n),
            "ward": rng.choice(["u", "v", "w"], size=n),
            "grade": rng.choice([1, 2], size=n),
            "visit": np.datetime64("2019-12-01") + rng.integers(0, 700, size=n),
        }
    )
    frame.loc[::7, "dose"] = np.nan
    frame.loc[::9, "visit"] = np.datetime64("NaT")
    return frame


SCHEMA = Schema(
    {
        "age": (-3, 3),
        "dose": Range(0, 50, log=True, missing=True),
        "ward": ["u", "v", "w"],
        "grade": dpsubspace.Categories([1, 2]),
        "visit": dpsubspace.tables.Date("2020-01-01", "2021-06-30", missing=True),
    }
)
PRIVATE = {**SCHEMA, "dose": dpsubspace.PrivateRange(missing=True)}


def classes(frame):
    return np.where(frame.age + (frame.ward == "u") > 0.3, "yes", "no")


def classifier(*, epsilon=5.0, **options):
    frame = table()
    return tabular_pipeline("classification", SCHEMA, epsilon, **options).fit(frame, classes(frame))


def regressor(estimator="regression", schema=SCHEMA, target=(-5, 20)):
    frame = table()
    made = tabular_pipeline(estimator, schema, 50.0, target=target)
    return made.fit(frame, 2 * frame.age)


def search():
    X, y = blobs(200, 3, 2)[:2]
    grid = {"alpha": [1e-4, 1e-2], "class_weight": [{0: 1.0, 1: 2.0}, None]}
    return dpsubspace.PrivateSearch(DPSGDClassifier(), grid, epsilon=2.0).fit(X, y)


def held_out(Estimator, model, values):
    frame = table()
    return Estimator(model, epsilon=1.0).fit(frame, values(frame))


def with_labels(y, **options):
    X = np.asarray(blobs(200, 3, 2)[0])
    return DPSGDClassifier(epsilon=2.0, n_iter=3, **options).fit(X, np.resize(y, len(X)))


COMPOSITES = {
    "classification": classifier,
    "learned interactions": lambda: classifier(epsilon=90.0, interactions="learned"),
    "not private": lambda: classifier(epsilon=float("inf")),
    "regression": regressor,
    "private ranges": lambda: regressor(schema=PRIVATE, target=dpsubspace.PrivateRange()),
    "regression by steps": lambda: regressor(dpsubspace.DPSGDRegressor()),
    "calibrated": lambda: held_out(
        dpsubspace.calibration.DPCalibratedClassifier, classifier(), classes
    ),
    "frozen": lambda: held_out(
        dpsubspace.calibration.DPCalibratedClassifier, FrozenEstimator(classifier()), classes
    ),
    "sets": lambda: held_out(dpsubspace.calibration.DPConformalClassifier, classifier(), classes),
    "intervals": lambda: held_out(
        dpsubspace.calibration.DPConformalRegressor, regressor(), lambda frame: frame.age
    ),
    "search": search,
    "truth values": lambda: with_labels([True, False]),
    "mixed labels": lambda: with_labels(np.array(["a", "b"], dtype=object)),
    "given labels": lambda: with_labels([0, 1], classes=np.array([0, 1, 7]), random_state=3),
}


def rows_for(model):
    return table() if getattr(model, "n_features_in_", 5) == 5 else blobs(200, 3, 2)[0]


@pytest.mark.parametrize("name", COMPOSITES)
def test_json_and_pickles_of_models_of_several_parts(name):
    model = COMPOSITES[name]()
    X, written, data = rows_for(model), model.to_json(), pickle.dumps(model)
    assert private_names(data) == []
    for read in (load(written), pickle.loads(data), copy.deepcopy(model)):
        assert_answers_alike(model, read, X)
        assert read.to_json() == written


@pytest.mark.parametrize("name", ["classification", "private ranges", "sets", "search"])
def test_skops_names_public_classes_alone(name):
    skops = pytest.importorskip("skops.io")
    model = COMPOSITES[name]()
    data = skops.dumps(model)
    types = skops.get_untrusted_types(data=data)
    assert [name for name in types if name.startswith("dpsubspace._")] == []
    assert_answers_alike(model, skops.loads(data, trusted=types), rows_for(model))


def test_what_was_fitted_is_read_and_not_what_was_set_afterwards():
    """A parameter that is changed after the fit is written as it is, with what was fitted."""
    model = with_labels([0, 1])
    before = model.coef_.copy()
    model.set_params(alpha=1e-3)
    read = load(model.to_json())
    assert read.alpha == 1e-3 and np.array_equal(read.coef_, before)


def test_a_file_is_written_and_read(tmp_path):
    model, path = with_labels(["ä", "b"]), tmp_path / "model.json"
    written = model.to_json(path)
    assert path.read_text(encoding="utf-8") == written and "ä" in written
    assert DPSGDClassifier.from_json(path).to_json() == written
    with pytest.raises(ValueError, match=r"holds a DPSGDClassifier and not a GEPClassifier"):
        dpsubspace.GEPClassifier.from_json(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "other.json")


# What is not written ------------------------------------------------------------------------------


class Own(DPSGDClassifier):
    """A class of a user."""


def own_attribute():
    model = with_labels([0, 1])
    model.notes_ = "mine"
    return model


def of_module():
    torch = pytest.importorskip("torch")
    X = np.asarray(blobs(60, 5, 2)[0], dtype=np.float32)
    made = dpsubspace.neural_network.DPModuleClassifier(
        torch.nn.Linear(5, 1), n_iter=2, epsilon=5.0
    )
    return made.fit(X, np.arange(60) % 2)


def foreign():
    frame = table()
    numbers = frame[["age"]]
    model = LogisticRegression().fit(numbers, classes(frame))
    return dpsubspace.calibration.DPCalibratedClassifier(model, epsilon=1.0).fit(
        numbers, classes(frame)
    )


NOT_WRITTEN = {
    "not fitted": (DPSGDClassifier, NotFittedError, "this DPSGDClassifier is not fitted"),
    "own class": (lambda: Own(n_iter=2).fit(*blobs(60, 5, 2)[:2]), ValueError, "a Own of "),
    "own attribute": (own_attribute, ValueError, r"has \['notes_'\], which no file has a place"),
    "module": (of_module, ValueError, "the parameter `module` .* a module of torch is code"),
    "foreign": (foreign, ValueError, "a LogisticRegression of sklearn.* has no form in files"),
    "dates": (
        lambda: with_labels(np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]")),
        ValueError,
        r"`classes_` of a DPSGDClassifier cannot be written as JSON",
    ),
}


@pytest.mark.parametrize("name", NOT_WRITTEN)
def test_what_has_no_form_is_refused_with_the_reason(name):
    build, error, match = NOT_WRITTEN[name]
    with pytest.raises(error, match=match):
        build().to_json()


def test_a_fit_that_failed_is_not_written():
    model = with_labels([0, 1])
    del model.coef_
    with pytest.raises(NotFittedError, match="was not fitted to the end: it has no coef_"):
        model.to_json()


# Damaged and hostile files ------------------------------------------------------------------------


def changed(whole, path, value):
    """A copy with another value at a path; DELETE deletes, and a function changes what is there."""
    copied = copy.deepcopy(whole)
    *parents, last = path
    inside = copied
    for name in parents:
        inside = inside[name]
    if value is DELETE:
        del inside[last]
    else:
        inside[last] = value(inside[last]) if callable(value) else value
    return copied


DELETE = object()
COEF, EVENT = ("fitted", "coef"), ("privacy", "event")
STEP = ("parameters", "steps", 0, "tuple", 1, "model")
DAMAGED = {
    "another format": (("format",), "urn:other:1", "its `format` is 'urn:other:1'"),
    "newer format": (("format",), FORMAT[:-1] + "2", "has format 2, and dpsubspace .* install"),
    "no format": (("format",), DELETE, "its `format` is None"),
    "another class": (("model",), "PrivacyLedger", "`model` must be the name of a class of models"),
    "a function": (("model",), "private_mean", "`model` must be the name of a class of models"),
    "a path": (("model",), "os.system", "`model` must be the name of a class of models"),
    "no class": (("model",), ["DPSGDClassifier"], "`model` must be the name of a class of models"),
    "unknown part": (("run",), "import os", "has 'run', which is not known"),
    "unknown fitted": (("fitted", "run"), 1, "`fitted` has 'run', which is not known"),
    "no weights": (COEF, DELETE, "`fitted` has no 'coef'"),
    "no fit": (("fitted",), DELETE, "`fitted` must be an object"),
    "no guarantee": (("privacy",), DELETE, "has no 'privacy', the guarantee of the model"),
    "cheaper": (("privacy", "epsilon"), 0.01, "claims epsilon=0.01, and its event costs"),
    "another event": ((*EVENT, "type"), "Popen", "Popen"),
    "parameters of others": (("parameters", "shell"), 1, r"must have the parameters .*\['shell'\]"),
    "parameter missing": (
        ("parameters", "alpha"),
        DELETE,
        r"must have the parameters .*\['alpha'\]",
    ),
    "parameter out of range": (("parameters", "alpha"), -1.0, "`alpha` must be"),
    "object as a parameter": (("parameters", "alpha"), {"call": "os"}, "one field out of"),
    "other shape": (
        (*COEF, "shape"),
        [1, 4],
        r"`fitted.coef` must be an array of `shape` \[1, 4\]",
    ),
    "other features": (("fitted", "n_features_in"), 4, r"`fitted.coef` must .* `shape` \[1, 4\]"),
    "huge shape": ((*COEF, "shape"), [10**9, 10**9], "`fitted.coef` must be an array of `shape`"),
    "ragged": ((*COEF, "values"), [[1.0, 2.0], [3.0]], "`fitted.coef` is no array of float64"),
    "text in numbers": ((*COEF, "values", 0, 0), "1", "`fitted.coef` must be such entries"),
    "not finite": ((*COEF, "values", 0, 0), "nan", "`fitted.coef` has numbers beyond"),
    "object type": ((*COEF, "type"), "object", "`fitted.coef` must be an array of a `type`"),
    "type of records": ((*COEF, "type"), "float64,int64", "`fitted.coef` must be an array of a"),
    "same labels": (("fitted", "classes", "values"), [1, 1], "must be labels that are different"),
    "more labels": (("fitted", "classes"), lambda c: {**c, "shape": [3]}, r"of `shape` \[3\]"),
    "negative norm": (("fitted", "fitted_row_map", "bias"), -1.0, "`fitted.fitted_row_map.bias`"),
    "other map": (("fitted", "fitted_row_map", "norm"), "l3", "`fitted.fitted_row_map.norm` must"),
    "version": (("version",), 2, "`version` must be a text"),
}


@pytest.fixture(scope="module")
def linear():
    return json.loads(with_labels([0, 1]).to_json())


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_and_hostile_files_are_refused(name, linear):
    path, value, match = DAMAGED[name]
    text = json.dumps(changed(linear, path, value))
    assert load(json.dumps(linear))
    with pytest.raises(ValueError, match=f"the JSON cannot be read as a fitted model: .*{match}"):
        load(text)


OF_TABLES = {
    "encoder of other columns": (
        (*STEP, "fitted", "encoding", "ranges"),
        lambda ranges: {"age": ranges["age"]},
        "`ranges` must have all columns of numbers",
    ),
    "range turned round": (
        (*STEP, "fitted", "encoding", "ranges", "age"),
        [3.0, -3.0],
        "the lower one first",
    ),
    "as many curves as memory": ((*STEP, "fitted", "encoding", "n_curves"), 10**9, "from 1 to 16"),
    "fewer curves": ((*STEP, "fitted", "encoding", "n_curves"), 2, "features, and its model takes"),
    "schema": ((*STEP, "fitted", "schema", "columns", 0, "kind"), "eval", "must be of a `kind` in"),
    "two schemas": (
        (*STEP, "fitted", "schema", "columns"),
        lambda columns: columns[:-1],
        "its schemas differ",
    ),
    "a step of its own": (("parameters", "steps"), [], "has two steps"),
}


@pytest.fixture(scope="module")
def tabular():
    return json.loads(classifier().to_json())


@pytest.mark.parametrize("name", OF_TABLES)
def test_parts_of_tables_that_do_not_fit_are_refused(name, tabular):
    path, value, match = OF_TABLES[name]
    with pytest.raises(ValueError, match=f"cannot be read as a fitted model: .*{match}"):
        load(json.dumps(changed(tabular, path, value)))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "Expecting property name"),
        ('{"format": NaN}', "NaN is no number"),
        ('{"format": 1, "format": 2}', "a field is given twice"),
        ('{"format": ' + "[" * 100_000 + "]" * 100_000 + "}", "recursion"),
    ],
)
def test_what_is_no_json_is_refused(text, match):
    with pytest.raises(ValueError, match=match):
        load(text)


def leaves(plain, path=()):
    """Paths of all single values."""
    if isinstance(plain, (dict, list)) and plain:
        pairs = plain.items() if isinstance(plain, dict) else enumerate(plain)
        for name, value in pairs:
            yield from leaves(value, (*path, name))
    else:
        yield path


@pytest.mark.parametrize("value", [None, -1, 0.5, True, "x", [], {}, 2**70], ids=repr)
def test_any_other_value_is_read_or_refused(value, tabular, linear):
    """Whatever stands anywhere, a file gives a model that answers, or a ValueError."""
    X = np.asarray(blobs(200, 3, 2)[0])[:5]
    for whole, rows in ((linear, X), (tabular, table(5))):
        paths = [path for path in leaves(whole) if "event" not in path and "public" not in path]
        for path in paths[:: 1 if whole is linear else 5]:
            try:
                model = load(json.dumps(changed(whole, path, value)))
            except ValueError:
                continue
            assert len(model.predict(rows)) == 5, path


def test_settings_are_no_fitted_model(linear):
    settings = {name: True for name in dpsubspace.linear_model.GradientDirections().get_params()}
    whole = {**linear, "model": "GradientDirections", "parameters": settings}
    with pytest.raises(ValueError, match="`model` must be the name of a class that is fitted"):
        load(json.dumps(whole))


def test_files_say_what_they_are(linear):
    assert [*linear] == ["format", "model", "version", "parameters", "fitted", "privacy"]
    assert linear["format"] == FORMAT and linear["version"] == dpsubspace.__version__
    with_text = DPSGDClassifier(n_iter=2).fit(*blobs(60, 5, 2)[:2]).to_json()
    assert not re.search("[A-Za-z]_[\"']|object at 0x", with_text)


def test_the_example_reads_tables_with_numpy_alone():
    """Its functions, without the part that makes a model: pairs, gaps, dates, and logarithms."""
    path = Path(__file__).parents[2] / "examples" / "models" / "plain_numpy_reader.py"
    code = path.read_text(encoding="utf-8").partition("# %%")[0]
    assert not re.search("import (?!json|numpy)", code)
    names = {}
    exec(compile(code, str(path), "exec"), names)
    frame = table()
    frame.loc[::5, "ward"] = "other"
    three = tabular_pipeline("classification", SCHEMA, 9.0).fit(
        frame, frame.grade + (frame.age > 1)
    )
    for model in (classifier(), classifier(epsilon=float("inf")), three):
        found = names["probabilities"](json.loads(model.to_json()), {k: frame[k] for k in frame})
        assert np.allclose(found, model.predict_proba(frame), rtol=0, atol=1e-4)
