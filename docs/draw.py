"""
Draw the pictures of the documentation that no example draws.

usage: python docs/draw.py      # landing, planning, shapes and ranges (.svg), beside this file

The first two are of the code of ``docs/index.md`` and ``docs/planning.md``. The others are about
the made-up hospital of ``docs/tables.md``, whose first two blocks are run for it.
"""

import os
import re
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

from dpsubspace import DPSGDFClassifier, PrivacyWarning, Range, tabular_pipeline
from dpsubspace.inspection import ShapeDisplay

HERE = Path(__file__).parent


def page(name, n_blocks):
    """Names of a page after its first blocks."""
    blocks = re.findall(r"```python\n(.*?)```", (HERE / name).read_text(), re.S)
    names = {}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        exec("\n".join(blocks[:n_blocks]), names)
        os.chdir(before)
    return names


def save(figure, name):
    """A picture on white, which can be read on a dark page as well; the same bytes every time."""
    with plt.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(HERE / name, metadata={"Date": None})


def draw_landing(model, X, y):
    """What the model of the first page learned, one column below the other."""
    figure, axes = plt.subplots(3, 1, figsize=(4.5, 4.2), layout="constrained")
    ShapeDisplay.from_estimator(model.set_params(random_state=0).fit(X, y), ax=axes)
    figure.supylabel(axes[0].get_ylabel(), fontsize="medium")  # too long for one of the axes
    axes[0].set_ylabel("")
    for each in axes:  # the display takes them for one row
        each.tick_params(labelleft=True)
    save(figure, "landing.svg")


def draw_planning(plan):
    """Width of the interval of a mean against epsilon and rows."""
    save(plan.plot(of="age, mean").figure_, "planning.svg")


def draw_shapes(schema, X, y):
    """What the model learned of each column."""
    model = tabular_pipeline(DPSGDFClassifier(), schema).set_params(random_state=0)
    figure, axes = plt.subplots(2, 3, figsize=(9, 5), layout="constrained")
    ShapeDisplay.from_estimator(model.fit(X, y), ax=axes.ravel())
    save(figure, "shapes.svg")


def draw_ranges(schema, X, y, X_new, y_new):
    """The area under the ROC curve where ranges are wider than the values."""
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    factors = [1, 2, 4, 10, 20]
    for n, epsilon in ((5000, 1.0), (1000, 1.0), (1000, 0.3)):
        areas = []
        for factor in factors:
            wide = {
                name: Range(kind.low, kind.low + factor * (kind.high - kind.low), log=kind.log,
                            missing=kind.missing) if isinstance(kind, Range) else kind
                for name, kind in schema.items()
            }  # fmt: skip
            fits = []
            for seed in range(5):
                model = tabular_pipeline(DPSGDFClassifier(), wide, epsilon=epsilon)
                model.set_params(random_state=seed).fit(X[:n], y[:n])
                fits.append(roc_auc_score(y_new, model.predict_proba(X_new)[:, 1]))
            areas.append(np.mean(fits))
        print(n, epsilon, np.round(areas, 3))
        axes.plot(factors, areas, marker="o", label=f"{n:,} rows, epsilon {epsilon:g}")
    axes.set(xscale="log", xlabel="ranges are wider by a factor of", ylabel="area under ROC curve")
    axes.set_xticks(factors, map(str, factors))
    axes.minorticks_off()
    axes.legend(frameon=False)
    save(figure, "ranges.svg")


if __name__ == "__main__":
    plt.switch_backend("agg")
    warnings.simplefilter("ignore", PrivacyWarning)  # small budgets, and seeds
    names = page("index.md", 1)
    draw_landing(names["model"], names["X"], names["y"])
    draw_planning(page("planning.md", 1)["plan"])
    names = page("tables.md", 2)
    schema, stays, new = names["schema"], names["stays"], names["hospital"](2000, 1)
    columns = list(schema)
    draw_shapes(schema, stays[columns], stays["readmitted"])
    draw_ranges(schema, stays[columns], stays["readmitted"], new[columns], new["readmitted"])
