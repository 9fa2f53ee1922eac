#!/usr/bin/env bash
# SimpleImputer of scikit-learn leaves missing texts of Polars frames as they are, without a word.
#
# Expected: SimpleImputer(strategy="most_frequent") fills a missing text, whatever frame it stands in.
# Seen: the gap of a text column of Polars comes out as None, while that of a column of numbers of Polars,
#   and the same texts in a frame of pandas, are filled. OneHotEncoder behind it then has a category None.
#   (scikit-learn 1.9.1, polars 2.1.0, pandas 3.1.1, Python 3.11)
# Why: what counts as missing is NaN by default. Polars gives None for texts, and NaN for numbers.
# Way out: SimpleImputer(missing_values=None, strategy="most_frequent") for texts of Polars.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q scikit-learn==1.9.1 polars==2.1.0 pandas==3.1.1 numpy==2.4.6 \
    pyarrow==26.0.1
"$folder/venv/bin/python" - <<'END'
import pandas as pd
import polars as pl
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

words, numbers = ["b", "a", None, "b"], [2, 1, None, 2]
most = SimpleImputer(strategy="most_frequent")


def filled(frame, imputer=most):
    return imputer.fit_transform(frame)[:, 0].tolist()


polars, pandas = filled(pl.DataFrame({"c": words})), filled(pd.DataFrame({"c": words}))
told = filled(pl.DataFrame({"c": words}), SimpleImputer(missing_values=None, strategy="most_frequent"))
print("texts of Polars:", polars)  # ['b', 'a', None, 'b']
print("texts of pandas:", pandas)  # ['b', 'a', 'b', 'b']
print("numbers of Polars:", filled(pl.DataFrame({"c": numbers})))  # [2.0, 1.0, 2.0, 2.0]
print("with missing_values=None:", told)  # ['b', 'a', 'b', 'b']
steps = make_pipeline(most, OneHotEncoder()).fit(pl.DataFrame({"c": words}))
print("categories behind it:", steps[-1].categories_)  # ['a', 'b', None]
assert polars == words and pandas == told == ["b", "a", "b", "b"]
assert filled(pl.DataFrame({"c": numbers})) == [2.0, 1.0, 2.0, 2.0]
END
