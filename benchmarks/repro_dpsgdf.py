"""Default settings on MNIST and Fashion-MNIST, beside the tuned figures of the paper.

Sun, Suresh, Menon (2024), Table 1, chose step size, batch size, epochs, norm and the share of
the mean by a grid search that was not charged; nothing is chosen here. Raw pixels over 255,
60,000 rows to train, the whole test set.

usage: python benchmarks/repro_dpsgdf.py [--seeds 3] [--out benchmarks/results/dpsgdf.json]
"""

import time

import _data
from _run import run, spread

from dpsubspace import DPSGDClassifier, DPSGDFClassifier

# (data, class, epsilon): accuracy in the paper.
PAPER = {
    ("mnist", "DPSGDClassifier", 1.0): 0.874,
    ("mnist", "DPSGDFClassifier", 1.0): 0.920,
    ("mnist", "DPSGDFClassifier", 2.0): 0.923,
    ("fashion", "DPSGDFClassifier", 1.0): 0.840,
    ("fashion", "DPSGDFClassifier", 2.0): 0.845,
}


def rows(args):
    for name in ("mnist", "fashion"):
        X, y, X_test, y_test = _data.load(name)
        for Classifier in (DPSGDFClassifier, DPSGDClassifier):
            for epsilon in (1.0, 2.0):
                start = time.perf_counter()
                models = [
                    Classifier(epsilon=epsilon, delta=1e-5, random_state=seed).fit(X, y)
                    for seed in args.seeds
                ]
                seconds = (time.perf_counter() - start) / len(models)
                yield {
                    "data": name,
                    "model": Classifier.__name__,
                    "epsilon": epsilon,
                    **spread("accuracy", [model.score(X_test, y_test) for model in models]),
                    "paper": PAPER.get((name, Classifier.__name__, epsilon)),
                    "n_iter": models[0].n_iter_,
                    "seconds": round(seconds, 1),
                }


if __name__ == "__main__":
    run(__doc__, rows, {"seeds": 3})
