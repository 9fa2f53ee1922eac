"""The code in README.md and docs/ runs, and gives the figures that stand beside it."""

import importlib
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.utils.fixes import parse_version

from dpsubspace import DPSGDClassifier

ROOT = Path(__file__).parents[2]


def code(name):
    """All Python blocks of a page, one after the other."""
    return "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.S))


def test_readme_runs_and_its_figures_hold(capsys):
    names = {}
    exec(code("README.md"), names)
    assert names["model"].score(names["X_test"], names["y_test"]) == pytest.approx(0.91, abs=0.06)
    assert f"{names['ledger'].epsilon():.3f}" == "1.465"
    assert f"{names['ledger'].remaining():.3f}" == "1.249"
    printed = capsys.readouterr().out
    for line in ("multiplier 11.79 + 100 x (Gaussian noise, multiplier 39.32)", "does not refute"):
        assert line in printed
    assert "PrivacyLedger: epsilon 1.9 of 2 spent" in printed  # what was spent honestly
    assert names["score"].value == pytest.approx(0.92, abs=0.07)
    assert "Of this epsilon = 1.9 has been spent" in names["report"].verdict


def admissions(n=2000):
    """The table that the recipe for mixed columns is about, as columns."""
    rng = np.random.default_rng(0)
    return {
        "age": rng.uniform(18, 95, n),
        "platelets": rng.normal(250_000, 60_000, n),
        "ward": rng.choice(["A", "B", "C"], n),
    }


def recipe():
    """Its code."""
    found = re.search(r"(import pandas.*?readmitted\))", code("docs/privacy.md"), re.S)
    assert found
    return found.group(1)


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_recipe_for_mixed_columns_takes_and_gives_data_frames(library, output):
    if "polars" in (library, output):
        known = hasattr(pytest.importorskip("polars").DataFrame, "__dataframe__")
        if not known and parse_version(sklearn.__version__) < parse_version("1.9"):
            pytest.skip("the protocol by which this scikit-learn reads Polars is gone from it")
    frames = importlib.import_module(library)
    columns = admissions()
    patients = frames.DataFrame(columns)
    readmitted = frames.Series(columns["age"] + 20 * (columns["ward"] == "C") > 65)
    names = {"patients": patients, "readmitted": readmitted}
    with sklearn.config_context(transform_output=output):
        exec(recipe(), names)
        to_rows, last = names["model"]
        rows = to_rows.transform(patients)
        assert names["model"].score(patients, readmitted) > 0.85
    expected = ["boundedscaler-1__age", "boundedscaler-2__platelets"]
    expected += [f"frozenestimator__ward_{ward}" for ward in "ABC"]
    assert list(to_rows.get_feature_names_out()) == expected
    if output == "default":
        assert isinstance(rows, np.ndarray)
    else:
        assert isinstance(rows, importlib.import_module(output).DataFrame)
        assert list(rows.columns) == expected == list(last.feature_names_in_)


@pytest.fixture
def closed_figures():
    """Figures of a page do not stay open."""
    pytest.importorskip("matplotlib").use("Agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    yield
    plt.close("all")


@pytest.mark.usefixtures("closed_figures")
@pytest.mark.filterwarnings("ignore:.*`disp` and `iprint`:DeprecationWarning")  # scikit-learn 1.6
def test_page_on_public_data_runs(capsys):
    page = {}
    exec(code("docs/choosing_public_data.md"), page)
    assert f"{page['ledger'].epsilon():.2f}" == "0.60"
    assert next(iter(page["distances"])) == "digits"
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if " " not in line][:2] == ["digits", "none"]


def test_page_on_linear_regression_runs():
    page = {}
    exec(code("docs/linear_regression.md"), page)
    X, y = page["X_test"], page["y_test"]
    for name in ("model", "informed"):  # with public rows, and with public ranges
        assert page[name].score(X, y) == pytest.approx(0.89, abs=0.03)
    assert page["ledger"].epsilon() == pytest.approx(1.0, abs=1e-3)
    assert page["few"].n_components_ == 2
    assert page["few"].score(page["pupils"], page["marks"]) > 0.9
    assert page["subspace_distance"](page["first"], page["second"]) < 0.3


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
def test_page_on_personal_models_runs():
    page = {}
    exec(code("docs/personal_models.md"), page)
    X, y, names = page["X_test"], page["y_test"], page["patients_test"]
    assert page["model"].score(X, y, groups=names) == pytest.approx(0.80, abs=0.05)
    assert np.mean((y - page["shared"].predict(X)) ** 2) == pytest.approx(7.2, abs=0.5)
    assert page["ledger"].epsilon() == pytest.approx(1.0, abs=1e-3)
    assert min(page["scores"]) > 0.65
    assert 1 < page["intercept"] < 3


@pytest.mark.filterwarnings("ignore:.*is fitting copies:dpsubspace.PrivacyWarning")
def test_privacy_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it saves a ledger
    rng = np.random.default_rng(0)
    patients = pd.DataFrame(admissions())
    readmitted = patients["age"] + 20 * (patients["ward"] == "C") > 65
    X, y = rng.normal(size=(500, 3)), np.arange(500) % 2
    fitted = DPSGDClassifier(epsilon=1.0, delta=1e-5).fit(X, y)
    names = {"patients": patients, "readmitted": readmitted, "X": X, "y": y}
    page = names | {"model": fitted, "other_model": fitted}
    exec(code("docs/privacy.md"), page)
    assert f"{page['whole'].epsilon():.2f}" == "1.15"  # the Pipeline with public rows
    assert [entry.estimator for entry in page["ledger"].entries[:3]] == [
        "DPSGDClassifier",
        "private_mean",
        "private_score",
    ]
    assert len(page["same"]) == 4
    assert page["regression"].privacy_.unit == "person"
    assert page["folds"]["estimator"][0].privacy_.unit == "person"
    # The recipe for mixed columns beats normalised rows of raw columns by far.
    exec(recipe(), names)
    raw = patients[["age", "platelets"]]
    assert names["model"].score(patients, readmitted) > 0.85
    assert f"{names['ledger'].epsilon():.2f}" == "0.92"
    assert DPSGDClassifier(epsilon=1.0).fit(raw, readmitted).score(raw, readmitted) < 0.7


def test_page_on_reports_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # it saves a model, its statement and a report
    page = {}
    exec(code("docs/reports.md"), page)
    assert page["report"].holds and page["report"].open_fields[0] == "product"
    printed = capsys.readouterr().out
    assert "Differentially private: epsilon = 1, delta = 1e-05, per row." in printed
    assert "(epsilon = 1, delta = 1e-05)-differentially private per row" in printed
    assert (tmp_path / "digits.html").read_text().startswith("<!DOCTYPE html>")


# Noise is not seeded: once in many runs it hides a class that the model hardly ever predicts.
@pytest.mark.filterwarnings("ignore:f1_macro is NaN:dpsubspace.PrivacyWarning")
@pytest.mark.usefixtures("closed_figures")
def test_page_on_one_budget_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # it saves a report
    page = {}
    exec(code("docs/one_budget.md"), page)
    printed = capsys.readouterr().out
    for line in ("PrivacyLedger: epsilon 1.9 of 2 spent", "0.96\n1.41\n[0.4, 1.32]\n"):
        assert line in printed
    assert page["score"].value == pytest.approx(0.9, abs=0.07)
    assert page["held_out"].epsilon() == pytest.approx(1.0)
    assert "Of this epsilon = 1.9 has been spent" in page["report"].verdict
