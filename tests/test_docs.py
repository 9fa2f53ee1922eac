"""The code in README.md and docs/ runs, and gives the figures that stand beside it."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpsubspace import DPSGDClassifier

ROOT = Path(__file__).parents[1]


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


def test_privacy_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it saves a ledger
    rng = np.random.default_rng(0)
    patients = pd.DataFrame(
        {
            "age": rng.uniform(18, 95, 2000),
            "platelets": rng.normal(250_000, 60_000, 2000),
            "ward": rng.choice(["A", "B", "C"], 2000),
        }
    )
    readmitted = patients["age"] + 20 * (patients["ward"] == "C") > 65
    X, y = rng.normal(size=(500, 3)), np.arange(500) % 2
    fitted = DPSGDClassifier(epsilon=1.0, delta=1e-5).fit(X, y)
    names = {"patients": patients, "readmitted": readmitted, "X": X, "y": y}
    page = names | {"model": fitted, "other_model": fitted}
    exec(code("docs/privacy.md"), page)
    assert f"{page['whole'].epsilon():.2f}" == "1.15"  # the Pipeline with public rows
    # The recipe for mixed columns beats normalised rows of raw columns by far.
    recipe = re.search(r"(import pandas.*?readmitted\))", code("docs/privacy.md"), re.S)
    exec(recipe.group(1), names)
    raw = patients[["age", "platelets"]]
    assert names["model"].score(patients, readmitted) > 0.85
    assert f"{names['ledger'].epsilon():.2f}" == "0.92"
    assert DPSGDClassifier(epsilon=1.0).fit(raw, readmitted).score(raw, readmitted) < 0.7
