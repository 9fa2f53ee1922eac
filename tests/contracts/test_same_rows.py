"""Private rows are refused as public ones, whatever they come in, and chance does not look so."""

import math

import numpy as np
import pandas as pd
import pytest
from cases import CASES
from scipy import sparse, stats

from dpsubspace import (
    Categories,
    DPSGDClassifier,
    GEPClassifier,
    PrivacyLedger,
    PrivateSearch,
    Range,
    select_public,
    tabular_pipeline,
)
from dpsubspace._core.rows.same_rows import _Sought, refuse_private_rows
from dpsubspace.inspection import ImportanceDisplay
from dpsubspace.linear_model import GEPRegressor
from dpsubspace.public_data import GSDScorer, private_projection_error

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsubspace.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::dpsubspace.exceptions.PublicDataWarning"),
]

HOLDS, PART = "holds private rows: at least half", "is a part of `{}` itself"
N = 200


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    ward = rng.choice(["surgery", "maternity"], n)
    return pd.DataFrame({"age": rng.uniform(0, 90, n), "crp": rng.random(n), "ward": ward})


SCHEMA = {"age": Range(0, 90), "crp": Range(0, 1), "ward": Categories(["surgery", "maternity"])}
NUMBERS = {name: SCHEMA[name] for name in ("age", "crp")}
TABLE, OTHER = table(), table(seed=1)
X, LABELS = TABLE[["age", "crp"]].to_numpy(), np.arange(N) % 2
Z = OTHER[["age", "crp"]].to_numpy()


# How private rows may come as public ones.
COPIES = {
    "a copy": lambda rows: rows[:],
    "a part": lambda rows: rows[10:40],
    "in another order": lambda rows: rows[::-1],
    "some rows": lambda rows: rows[np.arange(0, N, 5)],
    "most rows": lambda rows: np.concatenate([rows[:60], Z[:30]]),
}


def copies(rows, name):
    return np.array(COPIES[name](rows))


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("of", ["array", "float32", "frame", "sparse"])
def test_copies_and_parts_are_found_by_their_rows(of, copy):
    public = copies(X, copy)
    private = {
        "array": X,
        "float32": X.astype(np.float32),
        "frame": pd.DataFrame(X),
        "sparse": sparse.csr_array(X),
    }[of]
    public = pd.DataFrame(public) if of == "frame" else public
    with PrivacyLedger(epsilon=99.0, delta=1e-5) as ledger:
        several = [(public,), (Z, public), (public[::2], public[1::2])]
        for given in several[:1] if of == "frame" or len(public) < 60 else several:
            with pytest.raises(ValueError, match=HOLDS):
                GEPClassifier(epsilon=1.0, n_iter=1).fit(private, LABELS, X_public=given)
    assert not ledger.entries


def to_digits(rows):
    return np.array([[float(f"{entry:.3g}") for entry in row] for row in rows])


# How copies may have been rounded, and what the refusal says of that.
ROUNDED = {
    "float32": (np.float32, ""),
    "float32 and back": (lambda rows: rows.astype(np.float32).astype(float), ""),
    "half": (np.float16, ", in half precision"),
    "decimals": (lambda rows: np.round(rows, 2), ", rounded to decimals"),
    "each column": (
        lambda rows: np.column_stack([rows[:, 0].round(1), rows[:, 1].round(3)]),
        ", rounded to decimals",
    ),
    "digits": (to_digits, ", rounded to significant digits"),
    "one column": (lambda rows: np.column_stack([rows[:, 0], rows[:, 1].round(2)]), ", rounded"),
}


@pytest.mark.parametrize("how", ROUNDED)
def test_rounded_copies_are_found(how):
    """However the private rows come, and of tables before they are encoded."""
    rounded, said = ROUNDED[how]
    public = rounded(X)[::2]
    for private in (X, sparse.csr_array(X), X.astype(np.float32)):
        with pytest.raises(ValueError, match=f"{HOLDS}.* of `X` too{said}"):
            refuse_private_rows(private, {"public": public})
    table = pd.DataFrame(public.astype(float), columns=[*NUMBERS])
    pipeline = tabular_pipeline(GEPClassifier(n_iter=1), NUMBERS, epsilon=1.0)
    with pytest.raises(ValueError, match=HOLDS):
        pipeline.fit(TABLE, LABELS, X_public=(table,))
    refuse_private_rows(X, {"public": rounded(Z)[::2]})
    refuse_private_rows(X, {"public": public[:15]})  # too few to tell anything


def test_copies_with_noise_are_not_found():
    """The documented limit: nobody knows how near to each other rows are by chance."""
    noise = np.random.default_rng(0).normal(size=X.shape)
    refuse_private_rows(X, {"public": X + 1e-6 * noise})


ENGINES = {
    "pandas": lambda frame: frame,
    "polars": lambda frame: pytest.importorskip("polars").from_pandas(frame),
    "arrow": lambda frame: pytest.importorskip("pyarrow").Table.from_pandas(frame),
    "dataset": lambda frame: pytest.importorskip("pyarrow.dataset").dataset(
        pytest.importorskip("pyarrow").Table.from_pandas(frame.assign(y=LABELS))
    ),
}


@pytest.mark.parametrize("public", [name for name in ENGINES if name != "dataset"])
@pytest.mark.parametrize("private", ENGINES)
def test_tables_are_looked_at_before_they_are_encoded(private, public):
    y = "y" if private == "dataset" else LABELS
    frame, model = ENGINES[private](TABLE), GEPClassifier(n_iter=1)
    pipeline = tabular_pipeline(model, SCHEMA, epsilon=1.0)
    parts = [TABLE, TABLE.iloc[20:70], TABLE.sample(frac=0.5, random_state=0)]
    with PrivacyLedger(epsilon=99.0, delta=1e-5) as ledger:
        for part in parts:
            with pytest.raises(ValueError, match=f"{HOLDS}|{PART.format('X')}"):
                pipeline.fit(frame, y, X_public=(ENGINES[public](part),))
    assert not ledger.entries


def test_few_rows_of_a_frame_and_targets_are_found_by_their_memory():
    model, frame = GEPClassifier(n_iter=1), TABLE[["age", "crp"]]
    y = pd.Series(LABELS)
    for one in (model, tabular_pipeline(model, NUMBERS, epsilon=1.0)):
        for public in (frame, frame.iloc[:3], frame.iloc[4:9]):
            with pytest.raises(ValueError, match=PART.format("X")):
                one.fit(frame, y, X_public=(public,))
        for targets in (y, y.to_numpy(), y.iloc[:N]):
            with pytest.raises(ValueError, match=PART.format("y")):
                one.fit(frame, y, X_public=(OTHER[["age", "crp"]],), y_public=(targets,))


PUBLIC = [case for case in CASES if case.public and not case.module]


@pytest.mark.parametrize("case", PUBLIC, ids=str)
def test_every_estimator_that_takes_public_rows_looks_at_them(case, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(case.n, 5))
    monkeypatch.setattr("cases.public_rows", lambda width: (rows.copy(), np.arange(case.n) % 4))
    with pytest.raises(ValueError, match="hold"):
        case.fit(rows, np.arange(case.n) % 4)


def test_functions_displays_and_searches_look_at_them():
    with PrivacyLedger(epsilon=99.0, delta=1e-5) as ledger:
        with pytest.raises(ValueError, match=HOLDS):
            private_projection_error(X, X[:50].copy(), epsilon=1.0)
        with pytest.raises(ValueError, match=HOLDS):
            select_public({"a": X[:50].copy(), "b": Z}, X, epsilon=1.0)
        with pytest.raises(ValueError, match=HOLDS):
            GSDScorer(n_components=1, epsilon=1.0).fit(X, X_public={"a": X[:50].copy(), "b": Z})
        search = PrivateSearch(DPSGDClassifier(), {"alpha": [0, 1]}, validation_fraction=None)
        with pytest.raises(ValueError, match=HOLDS):
            search.fit(X, LABELS, X_public_val=X[:50].copy(), y_public_val=LABELS[:50].copy())
        search = PrivateSearch(
            tabular_pipeline(DPSGDClassifier(), SCHEMA),
            {"dpsgdclassifier__alpha": [0, 1]},
            validation_fraction=None,
        )
        with pytest.raises(ValueError, match=HOLDS):
            part = TABLE.sample(50, random_state=0)
            search.fit(TABLE, LABELS, X_public_val=part, y_public_val=LABELS[:50].copy())
    assert not ledger.entries
    model = tabular_pipeline(DPSGDClassifier(n_iter=1), SCHEMA, epsilon=1.0).fit(TABLE, LABELS)
    with pytest.raises(ValueError, match="rows that this pipeline was fitted to"):
        ImportanceDisplay.from_estimator(model, X_public=TABLE)


# Chance -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_values", [2, 8, 300, 1000, 30000])
def test_rows_that_are_equal_by_chance_are_taken(n_values):
    """The chance that any of these is refused is below 4e-6, by the lemma."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, n_values, (1000 + 100, 1)).astype(float)
        refuse_private_rows(rows[:1000], {"public": rows[1000:]})
        fine = rows[:1000] + rng.uniform(-0.4, 0.4, (1000, 1))  # of which these are rounded ones
        refuse_private_rows(fine, {"public": rows[1000:]})


def test_the_chance_of_a_refusal_is_that_of_the_lemma():
    for n, u in [(10, 5), (100, 18), (1000, 30), (10**6, 28), (500, 400)]:
        sought = _Sought(*(np.arange(u), np.ones(u, int)), np.zeros(1, int), np.arange(u))
        for t in range(u + 1):
            counts = np.where(np.arange(u) < t, 1, 3)
            chance = math.e * n**0.5 * stats.binom.sf(t - 1, u, 1 / math.e)
            assert sought.are_private(counts, n) == (2 * t >= u and chance <= 1e-6)


def test_multiplicities_have_the_most_probable_value_that_the_lemma_says():
    c = np.arange(1, 200)
    at_mean = np.exp(c * np.log(c) - c - np.array([math.lgamma(k + 1) for k in c]))
    assert at_mean.max() <= 1 / math.e + 1e-15
    with np.errstate(all="ignore"):
        for mean in (0.5, 1.0, 2.5, 7.0):
            assert (stats.poisson.pmf(c, mean) <= 1 / math.e + 1e-12).all()


def test_what_honest_fits_pass_is_taken():
    model = GEPClassifier(epsilon=1.0, n_iter=1, random_state=0)
    whole = np.concatenate([X, Z])
    model.fit(whole[:N], LABELS, X_public=(whole[N:],), y_public=(LABELS.copy(),))
    # Half as many private rows as others, and yes or no in three columns.
    model.fit(X, LABELS, X_public=(np.concatenate([X[:30], Z[:60]]),))
    bits = np.random.default_rng(0).integers(0, 2, (2 * N, 3)).astype(float)
    model.fit(bits[:N], LABELS, X_public=(bits[N:],))
    missing = {"age": Range(0, 90, missing=True)}
    holes = pd.DataFrame({"age": np.where(np.arange(N) % 3, np.nan, TABLE["age"])})
    other = pd.DataFrame({"age": np.where(np.arange(N) % 3, np.nan, OTHER["age"])})
    tabular_pipeline(model, missing).fit(holes, LABELS, X_public=(other,))


def test_persons_and_regressors():
    groups = np.arange(N) // 4
    with pytest.raises(ValueError, match=HOLDS):
        GEPRegressor(epsilon=1.0, n_iter=1, target_bounds=(0, 1)).fit(
            X, LABELS / 2, groups=groups, X_public=(X[:50].copy(),)
        )


def test_zero_and_minus_zero_are_equal_and_huge_numbers_are_taken():
    rows = np.arange(40.0)[:, None] * [1.0, 0.0]
    with pytest.raises(ValueError, match=HOLDS):
        refuse_private_rows(rows, {"public": rows * [1, -1]})
    refuse_private_rows(rows * 1e300, {"public": -rows * 1e300 - 1e299})
