"""Mistakes that cost privacy or budget and end in no error are told of, once."""

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from dpsubspace import (
    Categories,
    DPSGDClassifier,
    PrivacyError,
    PrivacyLedger,
    PrivacyWarning,
    Range,
    Schema,
    load,
    private_mean,
    tabular_pipeline,
)
from dpsubspace.tables._column_importances import importances_of

pytestmark = pytest.mark.filterwarnings("error")

RNG = np.random.default_rng(0)
STAYS = pd.DataFrame({"age": RNG.uniform(18, 95, 400), "ward": RNG.choice(["a", "b"], 400)})
ILL = (STAYS["age"] > 50).to_numpy()
SCHEMA = {"age": Range(18, 95), "ward": Categories(["a", "b"])}


# Schemas that were read from rows -----------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda X: Range(X["age"].min(), X["age"].max()),
        lambda X: Range(0, X["age"].to_numpy().max()),
        lambda X: Categories(X["ward"].unique()),
        lambda X: Categories(list(np.unique(X["ward"].to_numpy(str)))),
        lambda X: Schema({"age": (X["age"].min(), X["age"].max())}),
        lambda X: tabular_pipeline("regression", SCHEMA, target=(0, X["age"].max())),
    ],
)
def test_a_schema_from_rows_is_told_of(make):
    with pytest.warns(PrivacyWarning, match="take them from a code book"):
        make(STAYS)


def test_a_schema_from_a_code_book_is_not():
    Schema({"age": (18, 95.0), "ward": ["a", "b"], "x": Categories((1, 2)), "y": [True, False]})
    Schema.from_public(STAYS)
    Schema.from_json(Schema(SCHEMA).to_json())


def test_a_schema_from_rows_is_told_of_once():
    code = (
        "import numpy as np\n"
        "from dpsubspace import Categories, Range\n"
        "a = Range(np.float64(0), 1)\n"
        "b = Range(np.float64(0), 2)\n"
        "c = Categories(np.array(['a', 'b']))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr.count("PrivacyWarning") == 1


# Ledgers ------------------------------------------------------------------------------------------


def test_a_ledger_without_a_block_is_told_of_once():
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    with pytest.warns(PrivacyWarning, match=r"write `with PrivacyLedger\(...\) as ledger:`"):
        DPSGDClassifier().fit(STAYS[["age"]], ILL)
    DPSGDClassifier().fit(STAYS[["age"]], ILL)
    assert not ledger.entries


def test_a_ledger_without_a_block_is_told_of_by_functions():
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5)
    with pytest.warns(PrivacyWarning, match="private_mean is not charged"):
        private_mean(STAYS[["age"]], bounds=(0, 100), epsilon=1.0)
    assert not ledger.entries


@pytest.mark.parametrize("how", ["block", "fit", "run", "charge", "none"])
def test_a_ledger_that_is_used_is_not_told_of(how):
    ledger = PrivacyLedger(epsilon=9.0, delta=1e-5)
    X = STAYS[["age"]]
    if how == "block":
        with ledger:
            pass
    elif how == "fit":
        ledger.fit(DPSGDClassifier(), X, ILL)
    elif how == "run":
        ledger.run(private_mean, X, bounds=(0, 100), epsilon=1.0)
    elif how == "charge":
        ledger.charge(DPSGDClassifier().privacy_event(400, 1, 2), neighboring_relation="zero_out")
    else:
        del ledger
    DPSGDClassifier().fit(X, ILL)


def fit_in(ledger, X=STAYS, y=ILL, model=None):
    """Fit a table inside of a ledger."""
    with ledger:
        return (model or tabular_pipeline("classification", SCHEMA)).fit(X, y)


def test_a_new_ledger_for_each_fit_is_told_of_once():
    X = STAYS.copy()
    fit_in(PrivacyLedger(epsilon=1.0, delta=1e-5), X)
    second = PrivacyLedger(epsilon=9.0, delta=1e-5)
    with pytest.warns(PrivacyWarning, match="fitted before in another PrivacyLedger"):
        fit_in(second, X)
    fit_in(second, X)
    assert len(second) == 2


@pytest.mark.parametrize("form", ["array", "ledger.fit"])
def test_other_forms_of_rows_in_two_ledgers(form):
    X = STAYS[["age"]].to_numpy().copy()
    first, second = (PrivacyLedger(epsilon=9.0, delta=1e-5) for _ in range(2))
    fit_in(first, X, model=DPSGDClassifier())
    with pytest.warns(PrivacyWarning, match="another PrivacyLedger"):
        if form == "array":
            fit_in(second, X, model=DPSGDClassifier())
        else:
            second.fit(DPSGDClassifier(), X, ILL)


def test_a_warning_of_two_ledgers_that_is_an_error_is_not_charged():
    X = STAYS.copy()
    fit_in(PrivacyLedger(epsilon=1.0, delta=1e-5), X)
    second = PrivacyLedger(epsilon=1.0, delta=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrivacyWarning):
            fit_in(second, X)
    assert not second.entries


def test_rows_of_a_fit_that_was_refused_are_of_no_ledger():
    X = STAYS.copy()
    with pytest.raises(PrivacyError):
        fit_in(PrivacyLedger(epsilon=0.001, delta=1e-5), X)
    fit_in(PrivacyLedger(epsilon=9.0, delta=1e-5), X)


def test_one_ledger_and_other_rows_are_not_told_of(tmp_path):
    X, path = STAYS.copy(), tmp_path / "ledger.json"
    for _ in range(2):  # the same ledger, opened twice
        fit_in(PrivacyLedger(epsilon=9.0, delta=1e-5, path=path), X)
    fit_in(PrivacyLedger.load(path), X)
    fit_in(PrivacyLedger(epsilon=9.0, delta=1e-5), STAYS.copy())
    fit_in(PrivacyLedger(epsilon=9.0, delta=1e-5), STAYS.copy())


# Epsilon ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [21.0, 1000.0])
def test_an_epsilon_that_protects_nobody_is_told_of_when_the_fit_ends(epsilon):
    model = tabular_pipeline("classification", SCHEMA, epsilon=epsilon)
    y = (STAYS["age"] + RNG.normal(0, 30, len(STAYS)) > 50).to_numpy()
    with pytest.warns(PrivacyWarning, match="no meaningful protection"):
        model.fit(STAYS, y)
    assert model.predict(STAYS).shape == ILL.shape
    with pytest.warns(PrivacyWarning, match="private_mean has epsilon="):
        private_mean(STAYS[["age"]], bounds=(0, 100), epsilon=epsilon)


@pytest.mark.parametrize("epsilon", [1.0, 20.0, float("inf")])
def test_other_epsilons_are_not(epsilon):
    tabular_pipeline("classification", SCHEMA, epsilon=epsilon).fit(STAYS, ILL)


# Errors after a fit -------------------------------------------------------------------------------


def test_a_mistake_of_the_user_after_a_fit_says_how_to_keep_it():
    with pytest.raises(NameError) as caught, PrivacyLedger(epsilon=2.0, delta=1e-5) as ledger:
        model = tabular_pipeline("classification", SCHEMA, epsilon=1.0).fit(STAYS.copy(), ILL)
        print(modle)  # noqa: F821
    assert len(ledger) == 1
    assert "save each model inside of the block" in caught.value.__notes__[0]
    assert model.privacy_.epsilon == 1.0


def test_models_of_a_block_that_an_error_ended_are_saved_beside_the_ledger(tmp_path):
    path = tmp_path / "ledger.json"
    (tmp_path / "ledger.model.json").write_text("of an earlier run")
    X = STAYS[["age"]].to_numpy()
    before = DPSGDClassifier(epsilon=0.5).fit(X.copy(), ILL)
    seeded = DPSGDClassifier(epsilon=0.5, random_state=7).fit(X.copy(), ILL)
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5, path=path)
    with pytest.raises(NameError) as caught, ledger:
        model = tabular_pipeline("classification", SCHEMA, epsilon=0.5).fit(STAYS.copy(), ILL)
        nothing = tabular_pipeline("classification", SCHEMA, epsilon=0.5)
        plain = DPSGDClassifier(epsilon=0.5, delta=1e-5).fit(X, ILL)
        print(modle)  # noqa: F821
    found = load(tmp_path / "ledger.model1.json")
    assert (found.predict(STAYS) == model.predict(STAYS)).all()
    assert "ledger.model1.json" in caught.value.__notes__[0]
    assert (load(tmp_path / "ledger.plain.json").coef_ == plain.coef_).all()
    # Models of before the block, of which one has the same event, and what is not fitted, are not.
    names = {file.name for file in tmp_path.iterdir()} - {"ledger.json.lock"}
    models = {"ledger.model.json", "ledger.model1.json", "ledger.plain.json"}
    assert names == {"ledger.json", *models}
    assert before.privacy_.event == seeded.privacy_.event == plain.privacy_.event
    assert not hasattr(nothing, "privacy_")
    assert (tmp_path / "ledger.model.json").read_text() == "of an earlier run"


def test_what_cannot_be_saved_does_not_hide_the_error(tmp_path, monkeypatch):
    ledger = PrivacyLedger(epsilon=2.0, delta=1e-5, path=tmp_path / "ledger.json")
    with pytest.raises(NameError) as caught, ledger:
        model = tabular_pipeline("classification", SCHEMA, epsilon=1.0).fit(STAYS.copy(), ILL)
        monkeypatch.setattr(model, "to_json", _full)
        print(modle)  # noqa: F821
    assert "save each model inside of the block" in caught.value.__notes__[0]


def _full(path):
    raise OSError("no space left on device")


def test_a_mistake_before_any_fit_has_no_note():
    with pytest.raises(NameError) as caught, PrivacyLedger(epsilon=2.0, delta=1e-5):
        print(modle)  # noqa: F821
    assert not hasattr(caught.value, "__notes__")


# Importances --------------------------------------------------------------------------------------


def test_bands_of_importances_say_something():
    """Of README's table, whiskers ran from 0 to 1 in 6 of 10 fits."""
    rng, n = np.random.default_rng(0), 5000
    age, crp = rng.integers(18, 96, n), rng.lognormal(2.5, 1.2, n).round(1)
    ward = rng.choice(["medicine", "surgery", "geriatrics"], n)
    risk = abs(age - 50) / 15 + 0.8 * np.log(crp) + (ward == "geriatrics")
    schema = {
        "age": Range(18, 95),
        "crp": Range(0.1, 500, log=True),
        "ward": Categories(["medicine", "surgery", "geriatrics"]),
    }
    X, y = pd.DataFrame({"age": age, "crp": crp, "ward": ward}), risk + rng.logistic(0, 0.6, n) > 5
    widths = []
    for _ in range(10):
        model = tabular_pipeline("classification", schema, epsilon=1.0).fit(X, y)
        found = importances_of(model[0].encoding_, model[-1], level=0.9)
        widths.append(found.high - found.low)
    # The mean of ten fits is about 0.5, with a standard deviation of 0.04; it was 0.9.
    assert np.mean(widths) < 0.75
