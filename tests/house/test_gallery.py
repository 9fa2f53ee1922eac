"""The gallery: each example keeps its form, and each estimator and display has one."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

from dpsubspace._names import PLACES, imported

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("plot_*.py"))
SHOWN = sorted(
    name
    for name in PLACES
    if inspect.isclass(item := imported(name))
    and (issubclass(item, BaseEstimator) or name.endswith("Display"))
    and name
    not in ("SharedLinearModel", "SharedLogisticModel", "TabularPipeline")  # made by others
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_keeps_the_form_of_the_gallery(path):
    code = path.read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(code)) or ""
    title, underline = text.splitlines()[:2]
    assert set(underline) == {"="} and len(underline) == len(title)
    assert len(code.splitlines()) <= 100
    # Whoever copies an example must know what may be shown of it.
    assert re.search(r"honest|shortcut|(not|None|Nothing)\b.{0,12} private", text)
    # A picture belongs to one cell, or the site shows it before it is finished.
    for cell in code.split("\n# %%\n"):
        figures = len(re.findall(r"plt\.subplots\(|Display\.from_\w+\((?!.*ax=)", cell))
        assert "plt.show()" in cell or not figures
    assert code.endswith("plt.show()\n")
    assert "__file__" not in code  # nothing is left in the source tree
    assert not re.search(r"fetch_\w+|urlopen|requests", code)  # no downloads


def test_each_estimator_and_display_has_an_example():
    code = "\n".join(path.read_text(encoding="utf-8") for path in EXAMPLES)
    assert [name for name in SHOWN if not re.search(rf"\b{name}\b", code)] == []
