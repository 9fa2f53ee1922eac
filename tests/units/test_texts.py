"""Texts of a table are rows of norm 1 from every library; what has no place for them says so."""

import importlib.util
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer

import dpsubspace
from dpsubspace import (
    DPSGDClassifier,
    DPSGDFClassifier,
    GEPClassifier,
    PrivacyLedger,
    PrivateRange,
    Range,
    Schema,
    private_coefficients,
    private_counts,
    private_summary,
    tabular_pipeline,
)
from dpsubspace._core.tables.encoding import encoding_for
from dpsubspace._core.tables.forming import is_formed
from dpsubspace._core.tables.schema import read_table
from dpsubspace.inspection import ImportanceDisplay, ShapeDisplay
from dpsubspace.linear_model import DPSGDRegressor
from dpsubspace.model_selection import PrivateSearch
from dpsubspace.tables import Text

NOTES = ["Fell at home, no fracture", "", None, "good GOOD night"]
NOTE = Schema({"note": Text(64)})


def of_pandas(values, kind):
    return pd.DataFrame({"note": pd.Series(values, dtype=kind)})


FORMS = {
    **{
        f"pandas, {kind}": lambda kind=kind: of_pandas(NOTES, kind)
        for kind in (object, "str", "string[python]", "string[pyarrow]", "category")
    },
    "NaN": lambda: of_pandas([*NOTES[:2], np.nan, NOTES[3]], object),
    "NA": lambda: of_pandas([*NOTES[:2], pd.NA, NOTES[3]], object),
    "NumPy's": lambda: of_pandas([note and np.str_(note) for note in NOTES], object),
    "Polars": lambda: pl.DataFrame({"note": NOTES}),
    "Polars, categories": lambda: pl.DataFrame({"note": pl.Series(NOTES, dtype=pl.Categorical)}),
    "Arrow": lambda: pa.table({"note": NOTES}),
    "Arrow, dictionary": lambda: pa.table({"note": pa.array(NOTES).dictionary_encode()}),
    "Arrow, chunks": lambda: pa.table({"note": pa.chunked_array([NOTES[:1], NOTES[1:]])}),
    "array": lambda: np.array([[note] for note in NOTES], dtype=object),
    "list": lambda: [[note] for note in NOTES],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_text_is_the_same_row_in_every_form(form):
    table = read_table(FORMS[form](), NOTE)
    expected = HashingVectorizer(n_features=64).transform([note or "" for note in NOTES])
    np.testing.assert_array_equal(table.texts[0].toarray(), expected.toarray())
    assert table.shape == (4, 1) and table.numbers.shape == (4, 0) == table.codes.shape


@settings(deadline=None)
@given(
    st.lists(st.none() | st.text(st.characters(codec=None), max_size=60), min_size=1, max_size=8),
    st.sampled_from(["word", "char", "char_wb"]),
    st.integers(1, 3),
)
def test_any_text_has_a_norm_of_at_most_1_that_no_other_row_changes(texts, analyzer, most):
    schema = Schema({"note": Text(32, ngram_range=(1, most), analyzer=analyzer), "age": (0, 9)})
    encoding = encoding_for(schema, 100.0)
    frame = pd.DataFrame({"note": pd.Series(texts, dtype=object), "age": 9.0})
    rows = encoding(read_table(frame, schema))
    assert rows.dtype == np.float32 and rows.has_canonical_format
    norms = np.sqrt(rows.astype(np.float64).power(2).sum(axis=1))
    assert norms.max() <= 1
    alone = [encoding(read_table(frame[i : i + 1], schema)).toarray()[0] for i in range(len(texts))]
    np.testing.assert_array_equal(rows.toarray(), alone)


def test_longest_rows_reach_the_bound():
    schema = Schema({"a": (0, 1), "b": (0, 1), "note": Text(64), "more": Text(8)})
    rows = pd.DataFrame({"a": 1.0, "b": 0.0, "note": "x y zz", "more": ["abc"]})
    table = read_table(rows, schema)
    for ratio in (30.0, 1e4):
        found = encoding_for(schema, ratio)(table).astype(np.float64)
        assert 1 - 1e-6 < np.sqrt(found.power(2).sum()) <= 1


def test_halves_of_pairs_and_long_texts_are_texts():
    texts = ["\ud800 a\udfff", "x" * 3_000_000, "two words " * 100_000, "\x00", "\U0010ffff ab"]
    rows = read_table(of_pandas(texts, object), NOTE).texts[0]
    np.testing.assert_allclose(rows.power(2).sum(axis=1), [0, 1, 1, 0, 1], atol=1e-12)


@pytest.mark.parametrize("kind", [object, pd.StringDtype("python")])
def test_half_of_a_pair_changes_no_row_that_has_it_written_out(kind):
    half, written = "\ud800 hello", repr("\ud800 hello")  # pandas hashes both alike
    for values in ([half, written], [written, half]):
        rows = read_table(of_pandas(values, kind), NOTE).texts[0].toarray()
        alone = [
            read_table(of_pandas([value], kind), NOTE).texts[0].toarray()[0] for value in values
        ]
        np.testing.assert_array_equal(rows, alone)


def test_columns_without_any_text_are_empty_texts():
    for values, kind in (([None] * 3, object), ([np.nan] * 3, float), ([], "str")):
        (found,) = read_table(of_pandas(values, kind), NOTE, empty=True).texts
        assert found.shape == (len(values), 64) and found.nnz == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2], "holds numbers, and the schema says"),
        (["a", 2.5], "holds numbers, and the schema says"),
        ([True, False], "holds numbers"),
        ([b"a", b"b"], "holds bytes: decode them"),
        ([["a"], ["b"]], "holds lists or other objects"),
        (pd.to_datetime(["2020-01-01"] * 2), "holds dates or times"),
    ],
)
def test_what_is_no_text_is_refused_by_name_and_without_a_value(values, message):
    with pytest.raises(ValueError) as raised:
        read_table(pd.DataFrame({"note": values}), NOTE)
    assert f"Column 'note' of `X` {message}" in str(raised.value) and "2.5" not in str(raised.value)


def test_one_error_names_all_columns_of_a_wrong_type_and_no_right_one():
    frame = pd.DataFrame({"note": ["a"], "code": [1], "age": ["x"]})
    with pytest.raises(ValueError) as raised:
        read_table(frame, Schema({"note": Text(), "code": Text(), "age": (0, 9)}))
    assert [line.split("'")[1] for line in str(raised.value).splitlines()] == ["code", "age"]


# What a schema says -----------------------------------------------------------------------------


def test_a_schema_with_texts_comes_back_from_json():
    kinds = {"a": Text(), "b": Text(9, ngram_range=[1, np.int64(3)], analyzer="char"), "c": (0, 1)}
    schema = Schema(kinds)
    assert schema.texts == ("a", "b") and schema.numbers == ("c",) and schema.categories == ()
    assert repr(schema["b"]) == "Text(n_features=9, ngram_range=(1, 3), analyzer='char')"
    assert repr(schema["a"]) == "Text()"
    read = Schema.from_json(schema.to_json())
    assert read == schema and read["b"].ngram_range == (1, 3) and hash(read) == hash(schema)
    wrong = json.loads(schema.to_json())
    wrong["columns"][1]["ngram_range"] = "12"
    with pytest.raises(ValueError, match=r"column 'b'.*`ngram_range` takes two whole numbers"):
        Schema.from_json(json.dumps(wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_features": 1},
        {"n_features": 2**21},
        {"n_features": 2.5},
        {"analyzer": "words"},
        {"ngram_range": 2},
        {"ngram_range": (0, 1)},
        {"ngram_range": (2, 1)},
        {"ngram_range": (1, 11)},
        {"ngram_range": (1, True)},
        {"ngram_range": (1.0, 2)},
    ],
)
def test_parameters_that_are_out_of_range_are_refused_by_name(wrong):
    with pytest.raises((ValueError, TypeError), match=f"`{next(iter(wrong))}`"):
        Text(**wrong)


def test_a_check_and_a_draft_know_texts(capsys):
    rows = pd.DataFrame({"note": [f"note {i}" for i in range(50)], "kind": ["a", "b"] * 25})
    Schema({"note": Text(), "kind": Text()}).check(rows)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "kind: has 2 different values, such as ['a', 'b']: Categories suit it."
    Schema({"note": Text()}).check(pd.DataFrame({"note": [1, 2]}))
    assert "note: holds values that are no text" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"text that is not repeated is Text\(\)"):
        Schema.from_public(rows, max_categories=20)


# What is fitted ---------------------------------------------------------------------------------

SCHEMA = Schema({"age": Range(18, 95), "ward": ["A", "B"], "note": Text(256), "more": Text(32)})


def patients(n=3000, seed=0):
    """Made-up rows, with an outcome that one word of the notes tells."""
    rows = SCHEMA.example(n, random_state=seed)
    ill = rows["note"].str.contains("red|blue").rename("ill")
    return rows, ill


@pytest.fixture(scope="module")
def fitted():
    rows, ill = patients()
    model = tabular_pipeline("classification", SCHEMA, epsilon=20.0).set_params(random_state=0)
    return model.fit(rows, ill), rows, ill


def test_made_up_rows_are_texts_and_repeat_by_seed():
    rows = SCHEMA.example(20, random_state=0)
    assert rows["note"].map(type).eq(str).all() and rows.equals(SCHEMA.example(20, random_state=0))


def test_models_learn_from_words(fitted):
    model, rows, ill = fitted
    assert model.score(rows, ill) > 0.8 > ill.mean() + 0.2
    encoded = model[:-1].transform(rows)
    assert sparse.issparse(encoded) and encoded.shape == (3000, model[-1].n_features_in_)
    names = [*model[:-1].get_feature_names_out()]
    assert names[-288:] == [f"note:hash{i}" for i in range(256)] + [
        f"more:hash{i}" for i in range(32)
    ]
    assert [*model[0].encoding_.blocks["more"]] == [*range(len(names) - 32, len(names))]
    groups, shares = model[0].encoding_.groups
    assert len(groups) == len(names) and set(groups[-288:]) == {2, 3}
    np.testing.assert_allclose(shares, np.array([4, 1, 16, 16]) / 37)


def test_predictions_are_the_same_from_files_and_frames(fitted):
    model, rows, _ = fitted
    expected = model.predict_proba(rows)
    read = dpsubspace.load(model.to_json())
    np.testing.assert_allclose(read.predict_proba(pl.from_pandas(rows)), expected, atol=1e-12)
    np.testing.assert_array_equal(model.predict_proba(rows.to_numpy(dtype=object)), expected)


def test_importances_leave_texts_out(fitted):
    pytest.importorskip("matplotlib")
    model, rows, _ = fitted
    found = model.feature_importances_
    np.testing.assert_array_equal(np.isnan(found), [False, False, True, True])
    assert ImportanceDisplay.from_estimator(model).names == ["age", "ward"]
    assert ImportanceDisplay.from_estimator(model, X_public=SCHEMA.example(30)).names
    assert [*ShapeDisplay.from_estimator(model).shapes] == ["age", "ward"]
    with pytest.raises(ValueError, match="the column 'note' of text, which has no shape"):
        ShapeDisplay.from_estimator(model, features=["note"])
    alone = tabular_pipeline("classification", {"note": Text(16)}, epsilon=5.0)
    alone.set_params(random_state=0).fit(rows[["note"]], rows["ward"] == "A")
    assert np.isnan(alone.feature_importances_).all()
    for display in (ImportanceDisplay, ShapeDisplay):
        with pytest.raises(ValueError, match=f"{display.__name__} draws columns of numbers"):
            display.from_estimator(alone)


def test_shapes_are_those_of_the_other_columns(fitted):
    """Scores of rows whose texts have words, and of which the words count nothing."""
    model, _, _ = fitted
    plain = Schema({name: SCHEMA[name] for name in ("age", "ward")}).example(500, random_state=0)
    shapes = ShapeDisplay.from_estimator(model).shapes["age"]
    words = [f"{w} {v}" for w in ("alpha", "beta") for v in ("gamma", "delta")]
    notes, more = np.random.default_rng(0).choice(words, (2, 500))
    found = []
    for age in (20, 90):
        rows = plain.assign(age=age, note=notes, more=more)
        found.append(np.log(1 / model.predict_proba(rows)[:, 0] - 1).mean())
    ends = np.interp([20, 90], shapes.at, shapes.values[:, 0])
    assert abs((found[1] - found[0]) - (ends[1] - ends[0])) < 0.02


@pytest.mark.parametrize("searched", [False, True])
def test_public_texts_give_directions(searched):
    rows, ill = patients(2000)
    public, of_public = patients(300, seed=1)
    schema = {**SCHEMA, "age": PrivateRange() if searched else SCHEMA["age"]}
    model = tabular_pipeline(GEPClassifier(n_components=40), schema, epsilon=20.0)
    model.set_params(random_state=0)
    model.fit(rows, ill, X_public=(public,), y_public=(of_public,))
    assert model.score(rows, ill) > ill.mean() + 0.05
    with pytest.raises(ValueError, match="holds private rows"):
        model.fit(rows, ill, X_public=(rows[:200].copy(),))


def test_notes_that_are_published_as_public_rows_are_refused_by_their_texts_alone():
    notes, labels = [f"note number {i} of {i % 7}" for i in range(400)], np.arange(400) % 2 == 1
    frame = pd.DataFrame({"note": notes})
    model = tabular_pipeline(GEPClassifier(), {"note": Text()})
    with pytest.raises(ValueError, match="holds private rows"):
        model.fit(frame, labels, X_public=(frame[:100].copy(),))


def test_regressors_batches_and_persons_take_texts():
    rows, ill = patients(1500)
    model = tabular_pipeline(DPSGDRegressor(), SCHEMA, epsilon=20.0, target=(0, 1))
    model.set_params(random_state=0)
    assert model.fit(rows, ill.astype(float), groups=np.arange(1500) // 2).score(rows, ill) > 0.2
    batches = tabular_pipeline(DPSGDClassifier(batch_size=200, n_iter=50), SCHEMA, epsilon=20.0)
    assert batches.set_params(random_state=0).fit(rows, ill).score(rows, ill) > ill.mean()


def test_candidates_with_texts_can_be_searched():
    rows, ill = patients(1500)
    search = PrivateSearch(
        tabular_pipeline(DPSGDFClassifier(), SCHEMA, epsilon=3.0),
        {"dpsgdfclassifier__alpha": [0.0, 0.1]},
        random_state=0,
    )
    search.fit(rows, ill)
    assert len(search.predict(rows)) == 1500


# What has no place for them ---------------------------------------------------------------------


def refused(message, call):
    """The call ends with a message that names the column, and a ledger is not charged."""
    ledger = PrivacyLedger(epsilon=100.0, delta=1e-4)
    with pytest.raises(ValueError, match=message) as raised, ledger:
        call(ledger)
    assert "note" in str(raised.value) and not ledger.entries
    assert ledger.remaining() == 100


def test_printed_tables_refuse_texts_before_any_charge():
    rows, _ = patients(100)
    refused("a summary has numbers", lambda x: x.run(private_summary, rows, SCHEMA, epsilon=1.0))
    refused(
        "texts have no cells",
        lambda x: x.run(private_counts, rows, SCHEMA, ["ward", "note"], epsilon=1.0),
    )
    refused(
        "a coefficient belongs",
        lambda x: x.run(private_coefficients, rows, SCHEMA, "age", epsilon=1.0),
    )
    counts = private_counts(rows, SCHEMA, "ward", epsilon=float("inf")).counts
    assert counts.sum() == 100
    left = {name: kind for name, kind in SCHEMA.items() if name not in SCHEMA.texts}
    assert private_summary(rows, left, epsilon=float("inf")).entry("age", "mean")


def test_fits_that_need_dense_rows_refuse_texts_before_any_charge():
    rows, ill = patients(100)
    with pytest.raises(ValueError, match="'note' of Text, and DPLinearRegression takes no sparse"):
        tabular_pipeline("regression", SCHEMA, target=(0, 1))
    learned = tabular_pipeline(DPSGDClassifier(), {"age": (18, 95)}, interactions="learned")
    learned.set_params(tableencoder__schema=SCHEMA)
    refused("`interactions`='learned'", lambda x: x.fit(learned, rows, ill))
    framed = tabular_pipeline("classification", SCHEMA).set_output(transform="pandas")
    refused("set_output", lambda x: x.fit(framed, rows, ill))


def test_a_gpu_is_refused_before_any_charge(monkeypatch):
    torch = pytest.importorskip("torch")
    found = "dpsubspace._core.fits.estimator.check_device"
    monkeypatch.setattr(found, lambda value: torch.device("cpu"))
    rows, ill = patients(100)
    ledger = PrivacyLedger(epsilon=100.0, delta=1e-4)
    with pytest.raises(ValueError, match="sparse rows run on the CPU only: set device='cpu'"):
        ledger.fit(tabular_pipeline("classification", SCHEMA), rows, ill)
    assert ledger.remaining() == 100


@pytest.mark.skipif(not importlib.util.find_spec("dask"), reason="needs Dask")
def test_rows_of_dask_and_datasets_are_refused_before_any_charge(fitted, tmp_path):
    import dask.dataframe as dd
    from pyarrow import dataset

    rows, ill = patients(100)
    whole = rows.assign(ill=ill)
    parts, model = dd.from_pandas(whole, npartitions=2), tabular_pipeline("classification", SCHEMA)
    refused("read in memory alone", lambda _: model.fit(parts[[*SCHEMA]], parts["ill"]))
    whole.to_parquet(tmp_path / "rows.parquet")
    files = dataset.dataset(tmp_path / "rows.parquet")
    refused("read in memory alone", lambda _: model.fit(files, "ill"))
    with pytest.raises(ValueError, match="read in memory alone"):
        fitted[0].predict(parts)
    by_parts = parts[[*SCHEMA]].map_partitions(fitted[0].predict, meta=np.array([True]))
    np.testing.assert_array_equal(by_parts.compute(), fitted[0].predict(rows))


def test_rows_with_texts_are_stored_however_many_they_are():
    assert not is_formed(encoding_for(SCHEMA, 1e4), 10**9)
    assert is_formed(encoding_for(Schema({"age": (0, 9)}), 1e4), 10**9)
