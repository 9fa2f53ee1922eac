"""Messages that the page on tables quotes are those that a reader gets."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpsubspace import (
    Buy,
    Categories,
    DPLinearRegression,
    DPSGDFClassifier,
    Range,
    tabular_pipeline,
)

DOCS = Path(__file__).parents[2] / "docs"

STAYS = pd.DataFrame(
    {
        "age": np.arange(60) % 60 + 18,
        "sex": ["f", "m"] * 30,
        "ward": ["medicine", "surgery", "cardiology"] * 20,
        "platelets": np.linspace(90, 410, 60),
        "visits": np.arange(60) % 4,
    }
)
READMITTED = np.arange(60) % 2


def fit(schema, frame=STAYS, model=None, *, epsilon=1.0, **options):
    """Fit a pipeline to few rows of a hospital."""
    model = DPSGDFClassifier(random_state=0) if model is None else model
    return tabular_pipeline(model, schema, epsilon=epsilon, **options).fit(frame, READMITTED)


# What goes wrong, by what the page says is wrong.
MISTAKES = {
    "a column of the schema is absent": lambda: fit({"age": (18, 95), "crp": (0, 500)}),
    "a value is missing, and the schema does not say so": lambda: fit(
        {"age": (18, 95)}, STAYS.assign(age=STAYS["age"].where(STAYS["age"] > 20))
    ),
    "text in a column of numbers": lambda: fit(
        {"age": (18, 95)}, STAYS.assign(age=STAYS["age"].astype(str))
    ),
    "numbers in a column whose categories are text": lambda: fit(
        {"visits": Categories(["0", "1", "2"])}
    ),
    "dates": lambda: fit(
        {"age": (18, 95)}, STAYS.assign(age=pd.date_range("1950-01-01", periods=60))
    ),
    "two columns of one name": lambda: fit(
        {"age": (18, 95)}, pd.concat([STAYS[["age"]], STAYS], axis=1)
    ),
    "an empty schema": lambda: fit({}),
    "a list of two numbers": lambda: fit({"visits": [0, 1]}),
    "the wrong way round": lambda: Range(90, 17),
    "a bought range that noise would hide": lambda: fit({"platelets": Buy()}, epsilon=0.5),
    "a regression without a range of the target": lambda: fit(
        {"age": (18, 95)}, model=DPLinearRegression(random_state=0)
    ),
    "a classifier with a range of the target": lambda: fit({"age": (18, 95)}, target=Range(0, 1)),
}


def quoted():
    """Rows of the page's table of errors: what is wrong, and the message."""
    page = (DOCS / "tables.md").read_text(encoding="utf-8")
    table = page.partition("| what is wrong | the message |\n| --- | --- |\n")[2].partition("\n\n")[
        0
    ]
    rows = [re.fullmatch(r"\| (.+?) \| (.+) \|", line) for line in table.splitlines()]
    return {row.group(1): row.group(2) for row in rows if row}


def test_the_page_quotes_each_mistake():
    assert quoted().keys() == MISTAKES.keys()


@pytest.mark.filterwarnings("ignore:columns that the schema does not name")
@pytest.mark.parametrize("wrong", MISTAKES)
def test_a_reader_gets_the_message_that_the_page_quotes(wrong):
    with pytest.raises(Exception) as raised:  # of several types
        MISTAKES[wrong]()
    assert str(raised.value) == quoted()[wrong]


def test_the_page_on_missing_values_quotes_the_same_message():
    message = quoted()["a value is missing, and the schema does not say so"]
    assert f"> {message}\n" in (DOCS / "missing_values.md").read_text(encoding="utf-8")
