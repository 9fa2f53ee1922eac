#!/usr/bin/env bash
# Dask's groupby("key").mean() has a row for missing keys, which its sums and counts, and pandas, leave out.
#
# Expected: without `dropna`, rows whose key is missing are left out, as in pandas, by each method alike.
# Seen: mean() has a group of the missing keys, for text, numbers, nullable and categorical keys and any
#   number of partitions, with sum(), count(), size() and max() of the same groupby beside it that do not,
#   nor agg("mean"). So a table of means has one row more than its counts.
#   (dask 2026.8.0, pandas 3.1.1, Python 3.11)
# Why: a mean is made of sums and counts, to which `dropna` is handed as None and not as its default.
# Way out: write dropna=True, or dropna=False where the group of the missing is wanted.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q dask==2026.8.0 pandas==3.1.1 pyarrow==26.0.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'END'
import dask.dataframe as dd
import pandas as pd

rows = pd.DataFrame({"arm": ["a", "b", None, "a"], "dose": [3.0, 1.0, 4.0, 5.0]})
lazy = dd.from_pandas(rows, npartitions=2)


def keys(found):
    return [str(key) for key in found.compute().index]


mean = keys(lazy.groupby("arm").dose.mean())
others = [keys(getattr(lazy.groupby("arm").dose, name)()) for name in ("sum", "count", "size", "max")]
said = keys(lazy.groupby("arm", dropna=True).dose.mean())
print("pandas:", list(rows.groupby("arm").dose.mean().index))  # ['a', 'b']
print("mean:", mean)  # ['a', 'b', '<NA>']
print("sum, count, size, max:", others)  # ['a', 'b'] each
print("agg:", keys(lazy.groupby("arm").agg({"dose": "mean"})))  # ['a', 'b']
print("mean with dropna=True:", said)  # ['a', 'b']
assert mean == ["a", "b", "<NA>"] and others == [["a", "b"]] * 4 and said == ["a", "b"]
END
