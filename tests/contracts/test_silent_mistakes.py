"""Mistakes that cost privacy or budget and end in no error are told of, once."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from dpsubspace import (
    Categories,
    PrivacyWarning,
    Range,
    Schema,
    tabular_pipeline,
)

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
