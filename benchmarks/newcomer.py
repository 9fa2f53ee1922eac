"""Fits by the recipes of a newcomer: how good they are, what was warned, and was it right.

Each recipe is the first thing that somebody would write who knows scikit-learn and no privacy.
Beside it is its counterpart without privacy (standardised columns, logistic or ridge
regression), on the same rows. A model is poor where it keeps less than half of what the
counterpart gains over a constant (accuracy over the most frequent class, R2 over 0). A warning
is right where the model is poor (that of units also where the same model gains 0.02 on columns
scaled to their ranges), and silence where it is not. That no public rows were given is no
warning of that kind. Figures are medians over seeds, warnings those of most seeds.

The section "situations" has mistakes that make a result wrong: each has to be refused, warned of or
shown in what is printed. It ends with the names of those that are not, which are silent failures.

usage: python benchmarks/newcomer.py [recipes] [situations] [--seeds 5]
                                     [--out benchmarks/results/newcomer.json]
"""

import contextlib
import io
import re
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import _data
import numpy as np
import pandas as pd
from _run import run
from sklearn import datasets
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpsubspace import (
    DPPCA,
    BoundedScaler,
    Categories,
    DPLinearRegression,
    DPSGDClassifier,
    DPSGDFClassifier,
    DPSGDRegressor,
    GEPClassifier,
    PrivacyError,
    PrivacyLedger,
    Range,
    Schema,
    private_counts,
    private_score,
    private_summary,
)
from dpsubspace.exceptions import PublicDataWarning
from dpsubspace.linear_model import GEPRegressor
from dpsubspace.neural_network import DPModuleClassifier


@dataclass(frozen=True)
class Recipe:
    """Name, rows (with a fixed split) and a model for a seed; `n_samples` draws fewer rows."""

    name: str
    data: tuple[np.ndarray, ...]
    model: Any
    n_samples: int | None = None


def _split(X, y, most=None):
    return _data.split(X[:most], y[:most], len(X[:most]) // 4)


def _beside(name, n_columns=400):
    """A table with columns beside it that tell nothing."""
    X, y = _data.raw(name)
    useless = np.random.default_rng(0).normal(size=(len(X), n_columns))
    return _split(np.hstack([X, useless]), y)


def _moved(name, deviations):
    """A table with its target so many deviations from where it was."""
    X, y = _data.raw(name)
    return _split(X, y + deviations * np.std(y))


def recipes():
    adult = _split(*_data.raw("adult"), 12_000)
    houses, wines = _split(*_data.raw("california")), _split(*_data.raw("wine_quality"))
    cancer = _split(*datasets.load_breast_cancer(return_X_y=True))
    digits = _split(*datasets.load_digits(return_X_y=True))
    sick = _split(*datasets.load_diabetes(return_X_y=True, scaled=False))
    dear = tuple(part > 180_000 if i % 2 else part for i, part in enumerate(houses))
    census = _data.load("adult")
    ages = ([17, 0, 0, 0, 0, 0], [90, 1.5e6, 16, 1e5, 4500, 99])
    map_ = ([-125, 32, 0, 0, 0, 0, 0, 0], [-114, 42, 52, 4e4, 7e3, 4e4, 7e3, 15])
    clinic = ([18, 1, 15, 60, 90, 40, 20, 1, 3, 50], [80, 2, 45, 140, 310, 250, 100, 10, 6.5, 130])

    def one(model, **options):
        return lambda seed: model(random_state=seed, **options)

    def scaled(model, bounds=None, own=0.5, **options):
        def of(seed):
            how = {"epsilon": own} if bounds is None else {"bounds": bounds}
            scaler = BoundedScaler(random_state=seed, **how)
            return make_pipeline(scaler, model(random_state=seed, **options))

        return of

    def reduced(seed):
        scaler = BoundedScaler(bounds=(0, 16))
        pca = DPPCA(10, data_norm=1.0, epsilon=0.5, random_state=seed)
        return make_pipeline(scaler, pca, DPSGDClassifier(epsilon=0.5, random_state=seed))

    F, C, R = DPSGDFClassifier, DPSGDClassifier, DPSGDRegressor
    yield Recipe("adult, raw numbers, F", adult, one(F))
    yield Recipe("adult, raw numbers, plain", adult, one(C))
    yield Recipe("adult, public ranges, F", adult, scaled(F, ages))
    yield Recipe("adult, estimated ranges, F", adult, scaled(F))
    yield Recipe("adult, one-hot, F", census, one(F))
    yield Recipe("adult, one-hot, 300 rows, eps 0.1", census, one(F, epsilon=0.1), 300)
    yield Recipe("houses, raw, F", dear, one(F))
    yield Recipe("houses, public ranges, F", dear, scaled(F, map_))
    yield Recipe("cancer, raw, F", cancer, one(F))
    yield Recipe("cancer, estimated ranges, F", cancer, scaled(F))
    yield Recipe("digits, F", digits, one(F))
    yield Recipe("digits, eps 0.1, F", digits, one(F, epsilon=0.1))
    yield Recipe("digits, GEP without public rows", digits, one(GEPClassifier))
    yield Recipe("digits, scaler, PCA, plain", digits, reduced)
    yield Recipe("diabetes, raw, regressor", sick, one(R))
    yield Recipe("diabetes, estimated ranges, regressor", sick, scaled(R))
    yield Recipe(
        "diabetes, public ranges and target", sick, scaled(R, clinic, target_bounds=(25, 346))
    )
    yield Recipe("houses, raw, regressor", houses, one(R))
    yield Recipe("houses, public ranges, regressor", houses, scaled(R, map_))
    yield Recipe("wine, raw, centred regressor, 500 rows", wines, one(GEPRegressor), 500)
    L = DPLinearRegression
    yield Recipe("bike, 400 useless columns, linear", _beside("bike"), one(L), 5_000)
    yield Recipe("protein, 400 useless columns, linear", _beside("protein"), one(L), 5_000)
    yield Recipe("elevators, 400 useless columns, linear", _beside("elevators"), one(L), 5_000)
    yield Recipe("digits as numbers, 784 raw columns, linear", _data.load("mnist"), one(L), 5_000)
    yield Recipe("diabetes, 30 rows, linear", sick, one(L), 30)
    far = _moved("bike", 1e3)
    yield Recipe("bike, target 1,000 deviations from 0, linear", far, one(L), 5_000)
    yield Recipe("bike, target 1,000 deviations from 0, regressor", far, one(R), 5_000)


SHORT = {
    "most of what can be": "noise",
    "will probably hide": "bounds may be hidden",
    "hidden the range": "no target range",
    "hidden how large the norms": "no row norm",
    "different units": "units",
    "as long as the rows": "offset",
    "never predicted": "class",
    "times as wide": "wide ranges",
    "has hidden how column": "no ranges",
    "has hidden how the targets": "no target range",
    "bounds are read from": "scaler's bounds",
    "second moment": "PCA noise",
    "no public rows": "no public rows",
}


def short(text):
    return next((name for part, name in SHORT.items() if part in text), text[:30])


def on_ranges(recipe, seeds):
    """Median score of the same model on columns scaled to the ranges of the file."""
    X, y, X_test, y_test = recipe.data
    low, high = X.min(axis=0), X.max(axis=0)
    half = np.where(high > low, high - low, 1) / 2
    models = [recipe.model(seed).fit((X - low) / half - 1, y) for seed in seeds]
    return float(np.median([model.score((X_test - low) / half - 1, y_test) for model in models]))


def row(recipe, seeds):
    X, y, X_test, y_test = recipe.data
    regression = len(np.unique(y)) > 10 or recipe.name.startswith("wine") or "linear" in recipe.name
    open_scores, scores, told = [], [], Counter()
    for seed in seeds:
        kept = np.random.default_rng(seed).permutation(len(X))[: recipe.n_samples]
        counterpart = Ridge(1.0) if regression else LogisticRegression(C=0.1, max_iter=200)
        whole = make_pipeline(StandardScaler(), counterpart).fit(X[kept], y[kept])
        open_scores.append(whole.score(X_test, y_test))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = recipe.model(seed).fit(X[kept], y[kept])
        scores.append(model.score(X_test, y_test))
        told.update({short(str(each.message)) for each in caught})
    constant = 0.0
    if not regression:
        constant = np.unique(y_test, return_counts=True)[1].max() / len(y_test)
    score, without = np.median(scores), np.median(open_scores)
    warned = [name for name, count in told.items() if 2 * count > len(seeds)]
    poor = score - constant < (without - constant) / 2
    told = [name for name in warned if name != "no public rows"]
    bad = poor or ("units" in told and on_ranges(recipe, seeds) > score + 0.02)
    return {
        "recipe": recipe.name,
        "rows": len(kept),
        "score": round(float(score), 3),
        "lowest": round(float(min(scores)), 3),
        "highest": round(float(max(scores)), 3),
        "constant": round(float(constant), 3),
        "without privacy": round(float(without), 3),
        "warned": ", ".join(warned) or "-",
        "verdict": "right" if bool(told) == bool(bad) else "wrong",
    }


def rows(args):
    yield from (row(recipe, args.seeds) for recipe in recipes())


# Situations -------------------------------------------------------------------------------------
# Each is a mistake that would make a result wrong without a word. What is said of it, in an error,
# a warning or what is printed, has a text that the situation names.


def _people(n=900):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    return X, (X[:, 0] > 0.5).astype(int)


def _patients(n=900):
    rng = np.random.default_rng(0)
    arm = pd.Series(rng.choice(["old", "new"], n)).mask(rng.random(n) < 0.4)
    age, sex = rng.uniform(18, 90, n), rng.choice(["f", "m"], n)
    return pd.DataFrame({"age": age, "arm": arm, "sex": sex})


ARMS = Categories(["old", "new"], missing=True)
TABLE = {"age": Range(18, 90), "arm": ARMS, "sex": ["f", "m"]}


def _in_wrong_unit():
    X, _ = _people(3000)
    DPLinearRegression(target_bounds=(-3000, 3000), random_state=0).fit(X, X[:, 0])


def _ends_in_sigmoid():
    import torch

    X, y = _people()
    module = torch.nn.Sequential(torch.nn.Linear(6, 1), torch.nn.Sigmoid())
    DPModuleClassifier(module, epsilon=5.0, random_state=0).fit(X, y)


def _looks_up():
    import torch

    X = np.random.default_rng(0).integers(0, 10, (300, 2))
    module = torch.nn.Sequential(torch.nn.Embedding(10, 1), torch.nn.Flatten())
    DPModuleClassifier(module, random_state=0).fit(X, X[:, 0] > 4)


def _copies_as_public():
    X, y = _people()
    GEPClassifier(random_state=0).fit(X, y, X_public=(X.copy(),))


def _groups_in_another_order():
    X, y = _people()
    frame, whose = pd.DataFrame(X), pd.Series(np.arange(len(y)) // 3)
    DPSGDFClassifier(random_state=0).fit(frame, y, groups=whose[::-1])


def _loses_rows():
    print(private_summary(_patients(), TABLE, by="arm", epsilon=5.0))


def _crosses():
    for seed in range(10):
        found = private_summary(_patients(90), TABLE, by="sex", epsilon=0.5, random_state=seed)
        for group in found.groups:
            names = ("lower quartile", "median", "upper quartile")
            values = [found.entry("age", name, group=group).value for name in names]
            if values != sorted(values):
                return
    print("quartiles rise")


def _score_of_noise(metric="accuracy"):
    X, y = _people()
    model = LogisticRegression().fit(X[:800], y[:800])
    private_score(model, X[800:], y[800:], metric=metric, epsilon=0.02)


def _leading_blank():
    private_counts(_patients().assign(sex=lambda t: " " + t["sex"]), TABLE, "sex", epsilon=1.0)


def _code_of_missing():
    table = _patients()
    Schema(TABLE).check(table.assign(age=table["age"].where(table["age"] < 70, 999)))


def _labels_on_a_cluster():
    import dask.dataframe as dd
    from dask.distributed import Client

    X, y = _people()
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(label=pd.array(y, dtype="Int64"))
    parts = dd.from_pandas(frame, npartitions=2)
    with Client(processes=False, n_workers=1, dashboard_address=None):
        model = DPSGDFClassifier(random_state=0).fit(parts[list("abcdef")], parts["label"])
    if np.asarray(model.classes_).dtype.kind in "iu":
        print("labels are whole numbers")


def _nobody_wrote_epsilon():
    X, y = _people()
    model = LogisticRegression().fit(X[:500], y[:500])
    with PrivacyLedger(3.0, 1e-5):
        private_score(model, X[500:], y[500:])


def _copied_outcome():
    X, y = _people(3000)
    DPSGDFClassifier(epsilon=3.0, random_state=0).fit(np.column_stack([X, y]), y)


SITUATIONS = [
    ("a target's range in a wrong unit", _in_wrong_unit, "target_bounds"),
    ("a network that ends in Sigmoid", _ends_in_sigmoid, "between 0 and 1"),
    ("a network that looks up codes", _looks_up, "no indices"),
    (
        "copies of private rows as public ones",
        _copies_as_public,
        "(?i)public.*private|private.*row",
    ),
    ("groups in another order", _groups_in_another_order, "order|index|label"),
    ("Table 1 that loses rows", _loses_rows, "no group"),
    ("quartiles that cross", _crosses, "quartiles rise"),
    ("a score that noise hides", _score_of_noise, "mostly noise"),
    ("a score that is NaN by sizes", lambda: _score_of_noise("recall"), "Nothing was released"),
    ("a category with a leading blank", _leading_blank, "are not listed"),
    ("a code of missing values", _code_of_missing, "all of them are 999"),
    ("labels of a nullable type on a cluster", _labels_on_a_cluster, "whole numbers"),
    ("an epsilon that nobody wrote", _nobody_wrote_epsilon, "epsilon"),
    ("a column that copies the outcome", _copied_outcome, "outcome|label"),
]


def said(situation):
    """All texts of an error, of warnings, and what is printed."""
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as told, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            situation()
        except (ValueError, PrivacyError) as error:
            print(error)
    kinds = [each for each in told if not issubclass(each.category, PublicDataWarning)]
    texts = [str(each.message) for each in kinds]
    if len(kinds) < len(told) and not texts:  # of public rows, which one situation is about
        texts = [str(each.message) for each in told if "private" in str(each.message)]
    return "\n".join([*texts, printed.getvalue()])


def situations(_):
    silent = []
    for name, situation, match in SITUATIONS:
        text = said(situation)
        found = re.search(match, text)
        silent += [] if found else [name]
        words = " ".join(text[max(found.start() - 40, 0) :].split())[:90] if found else "-"
        yield {"situation": name, "said": words, "verdict": "told" if found else "silent"}
    left = ", ".join(silent) or "none"
    yield {"situation": "silent failures left", "said": left, "verdict": "-"}


if __name__ == "__main__":
    run(__doc__, {"recipes": rows, "situations": situations}, {"seeds": 5})
