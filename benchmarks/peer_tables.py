"""DP-EBM of interpret on the tables of repro_tables.py, with public ranges.

repro_tables.py starts this script in an environment of its own, and writes it a job a line. Ranges
of numbers and of the target are given; which categories there are, DP-EBM finds with a part of its
budget. It takes no missing values: they are the middle of the range. All else is as it comes.

usage: pip install interpret                                          # an environment apart
       DPSUBSPACE_DATA=folder python benchmarks/repro_tables.py peer --peer-python ENV/bin/python
"""

import json
import sys
import warnings

import numpy as np
import pandas as pd
from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor


def frame(given, part):
    numbers, codes = given[f"{part}_numbers"], given[f"{part}_codes"]
    middle = (given["low"] + given["high"]) / 2
    columns = {f"x{i}": np.where(np.isnan(x), middle[i], x) for i, x in enumerate(numbers.T)}
    return pd.DataFrame(columns | {f"c{i}": code.astype(str) for i, code in enumerate(codes.T)})


def fit(job):
    given = np.load(job["given"])
    X, X_test = frame(given, "train"), frame(given, "test")
    ends = zip(given["low"], given["high"], strict=True)
    options = {
        "epsilon": job["epsilon"],
        "delta": job["delta"],
        "feature_types": ["continuous" if name[0] == "x" else "nominal" for name in X],
        "privacy_bounds": {f"x{i}": (float(a), float(b)) for i, (a, b) in enumerate(ends)},
        "random_state": None,
        "n_jobs": 1,
    }
    if job["task"] == "classes":
        model = DPExplainableBoostingClassifier(**options).fit(X, given["y"])
        return model.predict_proba(X_test)[:, 1]
    low, high = map(float, given["target"])
    model = DPExplainableBoostingRegressor(
        **options, privacy_target_min=low, privacy_target_max=high
    )
    return model.fit(X, given["y"]).predict(X_test)


def main():
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        job = json.loads(line)
        np.save(job["found"], fit(job))
        print("done", flush=True)


if __name__ == "__main__":
    main()
