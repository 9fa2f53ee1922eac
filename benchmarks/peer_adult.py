"""Census incomes (Adult): accuracy of private classifiers with their defaults, ours and a peer's.

10,000 random training rows, 107 columns, bounded by the census codebook; the 16,281 test rows are
taken to be public. Everything is as it comes, but that the peer gets rows divided by their own
norm, which is what our classifiers do with rows, with ``data_norm=1`` and steps enough to converge.
diffprivlib splits nothing here (there are two classes), claims pure epsilon (delta 0) and names no
neighbours; ours have delta 1e-5 and hide whether a row was used. By its open report 104, its noise
may be too small for its epsilon. The commonest class is 0.764 of the test rows.

Each library runs in its own environment.

usage: DPSUBSPACE_DATA=folder python benchmarks/peer_adult.py [--seeds 5]
       pip install diffprivlib==0.6.6 scikit-learn==1.7.2            # an environment apart
       DPSUBSPACE_DATA=folder ENV/bin/python benchmarks/peer_adult.py --peer [--seeds 5]
"""

import _data
from _run import run, spread
from sklearn.preprocessing import normalize


def ours():
    """Classifiers of this package and scikit-learn's without privacy, as they come."""
    from sklearn.linear_model import LogisticRegression

    from dpsubspace import DPSGDClassifier, DPSGDFClassifier

    return {
        "DPSGDClassifier": lambda epsilon, seed: DPSGDClassifier(
            epsilon=epsilon, delta=1e-5, random_state=seed
        ),
        "DPSGDFClassifier": lambda epsilon, seed: DPSGDFClassifier(
            epsilon=epsilon, delta=1e-5, random_state=seed
        ),
        "LogisticRegression (not private)": lambda epsilon, seed: LogisticRegression(max_iter=5000),
    }


def peer():
    """Logistic regression of diffprivlib, with three strengths of penalty; 1 is its default."""
    from diffprivlib.models import LogisticRegression

    def model(C):
        return lambda epsilon, seed: LogisticRegression(
            epsilon=epsilon, data_norm=1.0, C=C, max_iter=5000, random_state=seed
        )

    return {f"diffprivlib LogisticRegression, C={C:g}": model(C) for C in (0.1, 1.0, 10.0)}


def rows(args):
    X, y, X_test, y_test = _data.load("adult")
    if args.peer:
        X, X_test = normalize(X), normalize(X_test)
    for name, make in (peer() if args.peer else ours()).items():
        for epsilon in args.epsilon:
            scores = [make(epsilon, seed).fit(X, y).score(X_test, y_test) for seed in args.seeds]
            yield {"model": name, "epsilon": epsilon, **spread("accuracy", scores)}


if __name__ == "__main__":
    options = {"peer": False, "epsilon": [0.3, 1.0, 3.0], "seeds": 5}
    run(__doc__, rows, options, ignored=(Warning,))
