#!/usr/bin/env bash
# pandas reads a zero of SAS transport files, in which NHANES is published, as 5.4e-79.
#
# Expected: read_sas gives 0.0, as pyreadstat does, so that == 0 finds those who never smoked.
# Seen: zeros come out as 5.397605346934028e-79, and a value that is that small and the zero are the same
#   number. Means are right, while a count of zeros is 0, and a logarithm of a column is -180 and no
#   infinity that somebody would see. Other values are right. (pandas 3.1.1, pyreadstat 1.3.7, Python 3.11)
# Why: numbers of these files have the form of IBM mainframes, whose zero has no exponent. The exponent is
#   converted as that of any other number.
# Way out: pyreadstat.read_xport, or round what read_sas gives.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pandas==3.1.1 pyreadstat==1.3.7 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'END'
import pandas as pd
import pyreadstat

written = pd.DataFrame({"SMOKED": [0.0, 1.0, 0.1, 20.0]})
pyreadstat.write_xport(written, "smoking.xpt", file_format_version=5)
by_pandas = pd.read_sas("smoking.xpt")["SMOKED"]
by_pyreadstat = pyreadstat.read_xport("smoking.xpt")[0]["SMOKED"]
print("pandas:", by_pandas.tolist())  # [5.397605346934028e-79, 1.0, 0.1, 20.0]
print("pyreadstat:", by_pyreadstat.tolist())  # [0.0, 1.0, 0.1, 20.0]
print("zeros:", (by_pandas == 0).sum(), "and", (by_pyreadstat == 0).sum())  # 0 and 1
assert by_pandas.tolist() == [5.397605346934028e-79, 1.0, 0.1, 20.0]
assert by_pyreadstat.tolist() == [0.0, 1.0, 0.1, 20.0]
END
