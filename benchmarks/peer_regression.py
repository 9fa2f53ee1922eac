"""diffprivlib's linear regression on the tables of repro_regression.py, with public ranges.

It claims pure epsilon (delta 0). It adds Laplace noise to the coefficients of a quadratic
objective, gets columns and targets on [-1, 1] by their public ranges, and is as it comes besides.
By its open reports 104 and 105, its noise may be too small for its epsilon.
repro_regression.py starts this script with a job, and reads a line of JSON for every cell.

usage: pip install diffprivlib==0.6.6 scikit-learn==1.7.2            # an environment apart
       DPSUBSPACE_DATA=folder ENV/bin/python benchmarks/peer_regression.py '{"tables": ["wine"]}'
"""

import json
import sys
import warnings

import _tables
import diffprivlib
from diffprivlib.models import LinearRegression

JOB = {"tables": ["wine"], "epsilons": [1.0], "seeds": [0], "n_train": _tables.MOST_TRAIN}


def cell(name, epsilon, seeds, n_train):
    table, found = _tables.load(name), []
    for seed in seeds:
        split = _tables.split(table, seed, n_train)
        bounds = {"bounds_X": (-1, 1), "bounds_y": (-1, 1)}
        model = LinearRegression(epsilon=epsilon, random_state=seed, **bounds)
        X, X_test = (_tables.on_range(rows, *table.bounds) for rows in (split.X, split.X_test))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, _tables.on_range(split.y, *table.target_bounds))
        predictions = _tables.off_range(model.predict(X_test), *table.target_bounds)
        found.append(_tables.scores(predictions, split.y_test))
    return {
        "data": name,
        "method": "diffprivlib",
        "epsilon": epsilon,
        **_tables.shape(table, n_train),
        **_tables.summary(found),
        "version": diffprivlib.__version__,
    }


def main():
    job = JOB | json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}")
    for name in job["tables"]:
        for epsilon in job["epsilons"]:
            print(json.dumps(cell(name, epsilon, job["seeds"], job["n_train"])), flush=True)


if __name__ == "__main__":
    main()
