"""Private peers on the tables of repro_tables.py, with public ranges.

repro_tables.py starts this script in the environment of a peer, and writes it a job a line. The
first line that comes back is the version of the peer, and then one comes after each job. Ranges of
numbers are given. The peers take no missing values: these are the middle of the range. All else is
as it comes.

DP-EBM       of interpret. The range of the target is given. Which categories there are, it finds
             with a part of its budget. Its noise has no seed. After 0.7.8 its classes are called
             DPEBMClassifier and DPEBMRegressor; its sources of August 2026 take the old names, too.
the forest   RandomForestClassifier of diffprivlib, for classes only, with pure epsilon (delta 0).
             Classes are given. It takes numbers: a category is its place in the schema, and a value
             that is unknown or missing is 0. It has 10 trees by default, and 100 in the example of
             its documentation.

usage: pip install interpret-core==0.7.8 pandas                      # environments apart
       pip install diffprivlib==0.6.6 scikit-learn==1.7.2
       DPSUBSPACE_DATA=folder python benchmarks/repro_tables.py peer --peer-python EBM/bin/python
       --forest-python FOREST/bin/python
       FOREST/bin/python benchmarks/peer_tables.py diffprivlib flaws  # no data; interpret-core too
"""

import json
import sys
import warnings
from importlib import metadata

import numpy as np


def numbers(given, part):
    """Columns of numbers, with the middle of the range for what is missing."""
    middle = (given["low"] + given["high"]) / 2
    rows = given[f"{part}_numbers"]
    return np.where(np.isnan(rows), middle, rows)


def frame(given, part):
    import pandas as pd

    columns = {f"x{i}": x for i, x in enumerate(numbers(given, part).T)}
    codes = given[f"{part}_codes"].T
    return pd.DataFrame(columns | {f"c{i}": code.astype(str) for i, code in enumerate(codes)})


def ebm(job, given):
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

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


def forest(job, given):
    from diffprivlib.models import RandomForestClassifier

    X, X_test = (
        np.hstack([numbers(given, part), np.maximum(given[f"{part}_codes"], 0)])
        for part in ("train", "test")
    )
    values = given["values"]
    low, high = np.r_[given["low"], 0 * values], np.r_[given["high"], values - 1]
    trees = {} if job["trees"] is None else {"n_estimators": job["trees"]}
    model = RandomForestClassifier(
        epsilon=job["epsilon"],
        bounds=(low, high),
        classes=[0, 1],
        random_state=job["seed"],
        **trees,
    )
    return model.fit(X, given["y"]).predict_proba(X_test)[:, 1]


# What its claim does not cover ------------------------------------------------------------------


def flaws_of_ebm():
    """How often a model names a category that one row alone has."""
    import pandas as pd
    from interpret.privacy import DPExplainableBoostingClassifier

    rng, fits = np.random.default_rng(0), 200
    X = pd.DataFrame({f"c{i}": rng.integers(5, size=1000).astype(str) for i in range(8)})
    X.loc[0, "c0"] = "of one row"
    y = np.arange(1000) % 2
    options = {"epsilon": 0.3, "delta": 1e-5, "max_rounds": 5, "n_jobs": 1}
    options |= {"feature_types": ["nominal"] * 8}
    models = (DPExplainableBoostingClassifier(**options).fit(X, y) for _ in range(fits))
    named = sum("of one row" in model.bins_[0][0] for model in models)
    print(f"1,000 rows, epsilon 0.3, delta 1e-5: {named} of {fits} models name it.")


def flaws_of_forest():
    """Rows that change their tree where another leaves, and classes that are not 0 and 1."""
    from diffprivlib.models import RandomForestClassifier

    n, trees = 1000, 10
    before, after = ((np.arange(k) // (k / trees)).astype(int) for k in (n, n - 1))
    print("The first of 1,000 rows leaves: other rows that change their tree:", end=" ")
    print(int((before[1:] != after).sum()))
    X = np.random.default_rng(0).random((4000, 2))
    for classes in ([0, 1], [1, 2], [-1, 1], ["a", "b"]):
        y = np.array(classes)[(X[:, 0] > 0.5).astype(int)]
        model = RandomForestClassifier(
            epsilon=10, bounds=(0, 1), classes=classes, random_state=0
        ).fit(X, y)
        print(f"classes {classes}: {model.score(X, y):.2f} of rows are right at epsilon 10")


PEERS = {"interpret-core": ebm, "diffprivlib": forest}
FLAWS = {"interpret-core": flaws_of_ebm, "diffprivlib": flaws_of_forest}


def main():
    """Answer jobs for the peer whose package is named, or show its flaws."""
    warnings.simplefilter("ignore")
    package = sys.argv[1]
    if sys.argv[2:] == ["flaws"]:
        FLAWS[package]()
        return
    print(metadata.version(package), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        np.save(job["found"], PEERS[package](job, np.load(job["given"])))
        print("done", flush=True)


if __name__ == "__main__":
    main()
