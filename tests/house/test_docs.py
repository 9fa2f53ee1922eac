"""The code in README.md and docs/ runs, and gives the figures that stand beside it.

Every page is found by itself. Its Python blocks run one after the other in one namespace and in a
folder that is thrown away. A block that needs what is not here is marked ``python no-run``, and
`NOT_RUN` says why.
"""

import importlib
import itertools
import re
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn

from dpsubspace import DPSGDClassifier

ROOT = Path(__file__).parents[2]
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
}
BLOCK = re.compile(r"^([ ]*)```python\n(.*?)^\1```", re.M | re.S)
PAGES = [name for name, text in TEXTS.items() if BLOCK.search(text)]
# Pages with blocks that are only shown, and what these would need.
NOT_RUN = {
    "docs/coming_from_other_libraries.md": "diffprivlib and Opacus, which need other versions",
    "docs/images_and_text.md": "weights of networks, which would be downloaded",
}
OPTIONAL = ["torch", "matplotlib", "polars", "pyarrow", "dask"]


def run_page(name, names, blocks=None):
    """Run the blocks of a page in `names`; a traceback names the page and the line."""
    for found in itertools.islice(BLOCK.finditer(TEXTS[name]), blocks):
        first = TEXTS[name].count("\n", 0, found.start(2))
        exec(compile("\n" * first + textwrap.dedent(found[2]), name, "exec"), names)


def admissions(n=2000):
    """The table that the recipe for mixed columns is about, as columns."""
    rng = np.random.default_rng(0)
    return {
        "age": rng.uniform(18, 95, n),
        "platelets": rng.normal(250_000, 60_000, n),
        "ward": rng.choice(["A", "B", "C"], n),
    }


def admission_names():
    """What pages on privacy take to be there."""
    rng = np.random.default_rng(0)
    patients = pd.DataFrame(admissions())
    readmitted = patients["age"] + 20 * (patients["ward"] == "C") > 65
    X, y = rng.normal(size=(500, 3)), np.arange(500) % 2
    fitted = DPSGDClassifier(epsilon=1.0, delta=1e-5).fit(X, y)
    names = {"patients": patients, "readmitted": readmitted, "X": X, "y": y}
    return names | {"model": fitted, "other_model": fitted}


def hospital_names():
    """What the first page on tables makes, for the pages that go on from it."""
    names = {}
    run_page("docs/tables.md", names, blocks=2)
    return names


def check_readme(page, printed, folder):
    assert page["score"].value == pytest.approx(0.93, abs=0.3)  # Laplace noise of scale 0.011
    assert "PrivacyLedger: epsilon 1.45 of 1.5 spent" in printed
    assert "(epsilon = 1, delta = 1e-05)-differentially private per row" in printed
    assert page["model"].score(page["X_test"], page["y_test"]) > 0.75
    assert (folder / "ledger.json").is_file()


def check_choosing(page, printed, folder):
    assert f"{page['ledger'].epsilon():.2f}" == "0.60"
    assert [line for line in printed.splitlines() if " " not in line][:2] == ["digits", "none"]
    assert next(iter(page["distances"])) == "digits"


def check_datasets(page, printed, folder):
    stays = pd.concat([pd.read_parquet(file) for file in sorted((folder / "stays").iterdir())])
    X, days, y = stays[["age", "creatinine"]], stays["days"], stays["readmitted"]
    assert len(stays) == 36_000 and len(np.concatenate(page["risks"])) == 36_000
    assert page["model"].score(stays, y) == pytest.approx(0.85, abs=0.03)
    assert page["length"].score(stays, days) == pytest.approx(0.60, abs=0.03)
    assert page["ledger"].epsilon() < 1.3
    risk = pd.read_parquet(folder / "with_risk")["risk"]
    assert np.allclose(np.sort(risk), np.sort(page["numeric"].predict_proba(X)[:, 1]))
    assert page["numeric"].score(X, y) == pytest.approx(0.85, abs=0.03)
    assert page["table"].score(stays, y) == pytest.approx(0.85, abs=0.03)
    assert page["median"] == pytest.approx(8.7, abs=0.3)
    assert page["by_person"].privacy_.unit == "person"


def check_dask(page, printed, folder):
    assert len(page["folds"]) == 3


def check_linear_regression(page, printed, folder):
    X, y = page["X_test"], page["y_test"]
    for name in ("model", "informed"):  # with public rows, and with public ranges
        assert page[name].score(X, y) == pytest.approx(0.88, abs=0.06)
    assert page["ledger"].epsilon() == pytest.approx(1.0, abs=1e-3)


def check_public_data(page, printed, folder):
    assert page["few"].n_components_ == 2
    assert page["few"].score(page["pupils"], page["marks"]) > 0.9


def check_personal_models(page, printed, folder):
    X, y, names = page["X_test"], page["y_test"], page["patients_test"]
    assert page["model"].score(X, y, groups=names) == pytest.approx(0.81, abs=0.015)
    assert np.mean((y - page["shared"].predict(X)) ** 2) == pytest.approx(7.2, abs=0.15)
    assert np.mean((y - page["model"].predict(X, groups=names)) ** 2) == pytest.approx(1.5, abs=0.1)
    assert page["ledger"].epsilon() == pytest.approx(1.0, abs=1e-3)
    assert 1 < page["intercept"] < 3


def check_columns(page, printed, folder):
    assert f"{page['whole'].epsilon():.2f}" == "1.15"  # the Pipeline with public rows


def check_ledgers(page, printed, folder):
    first = [entry.estimator for entry in page["ledger"].entries[:3]]
    assert first == ["DPSGDClassifier", "private_mean", "private_score"]
    assert len(page["same"]) == 4


def check_several_rows(page, printed, folder):
    assert page["model"].privacy_.unit == "person"
    assert page["folds"]["estimator"][0].privacy_.unit == "person"


def check_guarantees(page, printed, folder):
    assert "does not refute the claim of 8" in printed


def check_reports(page, printed, folder):
    assert page["report"].holds and page["report"].open_fields[0] == "product"
    assert "Differentially private: epsilon = 1, delta = 1e-05, per row." in printed
    assert "(epsilon = 1, delta = 1e-05)-differentially private per row" in printed
    assert (folder / "digits.html").read_text().startswith("<!DOCTYPE html>")


def check_monitoring(page, printed, folder):
    before, now = (page[name].margin("age").to_frame()["share"] for name in ("before", "now"))
    assert before.iloc[2] < 0.4 < 0.6 < now.iloc[2]  # of those from 70 to 95
    assert page["score"].value > 0.7 and (folder / "2026-02.ledger").is_file()


def check_one_budget(page, printed, folder):
    for line in ("PrivacyLedger: epsilon 1.9 of 2 spent", "0.96\n1.41\n[0.4, 1.32]\n"):
        assert line in printed
    assert page["score"].value == pytest.approx(0.9, abs=0.07)
    assert page["held_out"].epsilon() == pytest.approx(0.9)
    assert "\n1.465\n1.176\n" in printed
    assert "Of this epsilon = 1.9 has been spent" in page["report"].verdict


def check_class_imbalance(page, printed, folder):
    assert page["ledger"].epsilon() == pytest.approx(1.9)
    assert page["sets"].expected_coverage_ >= 0.99


def check_schema(page, printed, folder):
    assert page["estimated"].privacy_.epsilon == pytest.approx(1.0, abs=1e-3)
    assert page["same"] == page["Schema"](page["schema"])
    assert "datetime64[s]" in printed


BEFORE = dict.fromkeys(
    ("docs/columns.md", "docs/guarantees.md", "docs/ledgers.md"),
    admission_names,
) | dict.fromkeys(
    ("docs/schema.md", "docs/shapes_and_importances.md"),
    hospital_names,
)
FIGURES = {
    "README.md": check_readme,
    "docs/choosing_public_data.md": check_choosing,
    "docs/class_imbalance.md": check_class_imbalance,
    "docs/columns.md": check_columns,
    "docs/dask.md": check_dask,
    "docs/datasets.md": check_datasets,
    "docs/guarantees.md": check_guarantees,
    "docs/index.md": check_readme,
    "docs/ledgers.md": check_ledgers,
    "docs/linear_regression.md": check_linear_regression,
    "docs/monitoring.md": check_monitoring,
    "docs/one_budget.md": check_one_budget,
    "docs/personal_models.md": check_personal_models,
    "docs/public_data.md": check_public_data,
    "docs/reports.md": check_reports,
    "docs/schema.md": check_schema,
    "docs/several_rows.md": check_several_rows,
}
# Warnings that a page speaks of; any other is an error.
WARNS = {
    "docs/choosing_public_data.md": "ignore:.*`disp` and `iprint`:DeprecationWarning",  # 1.6
    "docs/dask.md": "ignore:the ledger counts each fit:dpsubspace.PrivacyWarning",
    # Noise is not seeded: once in many runs it hides a class that is hardly ever predicted.
    "docs/one_budget.md": "ignore:f1_macro is NaN:dpsubspace.PrivacyWarning",
    "docs/several_rows.md": "ignore:.*is fitting copies:dpsubspace.PrivacyWarning",
}


def test_readme_and_the_first_page_of_the_site_have_the_same_code():
    found = [BLOCK.search(TEXTS[name])[2] for name in ("README.md", "docs/index.md")]
    assert found[0] == found[1]
    example = (ROOT / "examples/plot_quickstart.py").read_text()
    missing = [line for line in found[0].splitlines() if line not in example]
    assert missing == ['with PrivacyLedger(epsilon=1.5, delta=1e-5, path="ledger.json") as ledger:']


def test_readme_is_short():
    assert len(TEXTS["README.md"].split()) <= 650


def with_warnings(name):
    """Give a page, and the warnings that it speaks of."""
    marks = pytest.mark.filterwarnings(WARNS[name]) if name in WARNS else ()
    return pytest.param(name, marks=marks)


@pytest.fixture
def no_figures_left():
    """Figures of a page need no screen, and do not stay open."""
    pytest.importorskip("matplotlib").use("Agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    yield
    plt.close("all")


@pytest.mark.literal_seeds
@pytest.mark.usefixtures("no_figures_left")
@pytest.mark.parametrize("name", [with_warnings(name) for name in PAGES])
def test_page_runs(name, tmp_path, monkeypatch, capsys):
    for module in OPTIONAL:
        if re.search(rf"^ *(import|from) {module}\b", TEXTS[name], re.M):
            pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)  # pages save models, ledgers and reports
    page = BEFORE.get(name, dict)()
    try:
        run_page(name, page)
    finally:  # a page that fails has not closed its client, which other tests would find
        if hasattr(page.get("client"), "close"):
            page["client"].close()
    FIGURES.get(name, lambda *_: None)(page, capsys.readouterr().out, tmp_path)


def test_pages_are_short():
    texts = dict(TEXTS)
    for path in ROOT.glob("benchmarks/**/*.md"):  # whose tables of figures do not count
        texts[path.name] = re.sub(r"(?m)^\|.*$", "", path.read_text())
    lengths = {name: len(text.split()) for name, text in texts.items()}
    assert {name: n for name, n in lengths.items() if n > 1800} == {}


def test_pages_are_in_one_table_of_contents():
    tables = re.findall(r"^```{toctree}\n(.*?)^```", "".join(TEXTS.values()), re.M | re.S)
    listed = re.findall(r"^(?:.*<)?(\w+)>?$", "".join(tables), re.M)
    pages = {Path(name).stem for name in TEXTS if name.startswith("docs/")} - {"index", "404"}
    assert sorted(pages - set(listed)) == []
    assert len(set(listed)) == len(listed)


# What people search for, and the page that answers it.
LOOK_UPS = {
    "class imbalance": "class_imbalance",
    "combine two fits": "one_budget",
    "confidence interval": "coefficients",
    "GDPR": "gdpr_and_hipaa",
    "how many rows": "planning",
    "missing values": "missing_values",
    "private histogram": "counts_and_summaries",
    "save model": "saving_models",
    "several rows per patient": "several_rows",
    "which epsilon": "which_epsilon",
}


def words_of(text):
    return {word.rstrip("s") for word in re.findall(r"[a-z]+", text.lower())}


@pytest.mark.parametrize("asked", LOOK_UPS)
def test_words_that_people_search_for_are_at_the_top_of_the_right_page(asked):
    text = TEXTS[f"docs/{LOOK_UPS[asked]}.md"]
    title, _, rest = text.partition("\n")
    first, headings = rest.strip().partition("\n\n")[0], re.findall("^## .*", text, re.M)
    assert words_of(asked) & words_of(title)
    assert words_of(asked) <= words_of(" ".join([title, first, *headings]))


def test_tables_here_speak_of_pages_with_code():
    assert {*BEFORE, *FIGURES, *WARNS} <= set(PAGES)
    shown = [name for name, text in TEXTS.items() if re.search("```python +no-run", text)]
    assert shown == sorted(NOT_RUN)
    assert [name for name, text in TEXTS.items() if re.search("```(py|pycon)\\b", text)] == []


def recipe():
    """The code for mixed columns on the page on columns."""
    code = "\n".join(found[2] for found in BLOCK.finditer(TEXTS["docs/columns.md"]))
    found = re.search(r"(from dpsubspace import \(\n    Categories.*?readmitted\)\n)", code, re.S)
    assert found
    return found.group(1)


def test_recipe_beats_normalised_rows_of_raw_columns():
    names = admission_names()
    patients, readmitted = names["patients"], names["readmitted"]
    exec(recipe(), names)
    raw = patients[["age", "platelets"]]
    assert names["model"].score(patients, readmitted) > 0.85
    assert f"{names['ledger'].epsilon():.2f}" == "0.90"
    assert DPSGDClassifier(epsilon=1.0).fit(raw, readmitted).score(raw, readmitted) < 0.7


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_recipe_for_mixed_columns_takes_and_gives_data_frames(library, output):
    for name in {library, output} - {"default"}:
        pytest.importorskip(name)
    frames = importlib.import_module(library)
    columns = admissions()
    patients = frames.DataFrame(columns)
    readmitted = frames.Series(columns["age"] + 20 * (columns["ward"] == "C") > 65)
    names = {"patients": patients, "readmitted": readmitted}
    with sklearn.config_context(transform_output=output):
        exec(recipe(), names)
        encoder, last = names["model"]
        rows = encoder.transform(patients)
        assert names["model"].score(patients, readmitted) > 0.85
    expected = list(encoder.get_feature_names_out())
    assert expected[0] == "age:cos1" and expected[-1] == "ward=C"
    if output == "default":
        assert isinstance(rows, np.ndarray)
    else:
        assert isinstance(rows, importlib.import_module(output).DataFrame)
        assert list(rows.columns) == expected == list(last.feature_names_in_)
