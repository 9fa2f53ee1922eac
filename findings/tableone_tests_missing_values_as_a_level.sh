#!/usr/bin/env bash
# P-values of tableone compare the share of missing values as well, unless include_null=False.
#
# Expected: the row "None" shows how many values are missing, and the test of a categorical column is of the
#   values that are known, as that of a column of numbers is.
# Seen: the missing values are a level of the test. With equal shares of men and women in both arms, and sex
#   missing for 40 persons of one arm alone, p is "<0.001", and 1.000 with include_null=False. The shares in
#   the table are of all rows with the default, and of the known ones without it.
#   (tableone 0.9.6, pandas 3.1.1, Python 3.11)
# Why: missing values are filled with the text "None" before the table and the tests are made.
# Way out: include_null=False. How many are missing stands in a column of its own either way.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q tableone==0.9.6 pandas==3.1.1 scipy==1.17.1 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'END'
import pandas as pd
from tableone import TableOne

sex = ["f", "m"] * 100
sex[:40] = [None] * 40
rows = pd.DataFrame({"arm": ["a"] * 100 + ["b"] * 100, "sex": sex})


def p_value(**options):
    made = TableOne(rows, columns=["sex"], categorical=["sex"], groupby="arm", pval=True, **options)
    print(made.tableone.to_string())
    return [value for value in made.tableone.iloc[:, -1] if value][0]


default, known = p_value(), p_value(include_null=False)
print("p:", default, "of known values:", known)  # p: <0.001 of known values: 1.000
assert default == "<0.001" and known == "1.000"
END
