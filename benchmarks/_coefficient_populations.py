"""Populations that coefficients are estimated in: simulated ones, and Adult.

Makers of frames return columns by name and a schema, of which the last column is the target.

``simulated_frame``, ``attacking_frame`` and ``unseen_frame`` have targets that a regression does
not always describe; what it estimates is the fit to very many rows. ``known_frame`` draws outcomes
from a logistic regression, whose weights ``known_weights`` gives: these are the truth without an
error. "medical" has columns as a ward records them, of which a category has 2 % of rows;
"correlated" has eight columns, neighbours of which have a correlation of 0.8, and two rare marks.
"1 %" to "50 %" have age, sex and an outcome of that many, and "two by two" a mark alone, with which
the risk is 10 % instead of 1 %. In "halves" it is 50 % instead of 2 %, so that one half of the rows
has nearly all events; "places" has one column of forty categories, whose shares fall as 1 / rank.
"""

import math
from functools import cache

import _data
import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit, logit

from dpsubspace import Range

KINDS = ("gauss", "heavy", "mixed", "dummies", "rare", "corr", "wide")
SHARES = {"dummies": [0.6, 0.2, 0.1, 0.07, 0.03], "rare": [0.6, 0.2, 0.1, 0.09, 0.01]}
WEIGHTS = np.array([0.1, 0.3, -0.3, 0.2, -0.2, 0.1, -0.1, 0.1, 0, 0, 0.15])


# What a fit to very many rows is the truth of -------------------------------------------------


def simulated_frame(kind, family, n, rng):
    """Rows of a population, as columns by name, with the schema."""
    weights = WEIGHTS
    if kind in SHARES:
        x = rng.normal(size=(n, 5)) / 3
        two, five = rng.random(n) < 0.5, rng.choice(5, size=n, p=SHARES[kind])
        weights = np.append(WEIGHTS[:-1], 0.8 if kind == "rare" else WEIGHTS[-1])
    elif kind == "corr":
        x = (0.8 * rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=(n, 10))) / 3
    else:
        x = rng.normal(size=(n, 10)) / 3
        x = x * 0.3 - 0.5 if kind == "wide" else x
    x = np.clip(x, -1, 1)
    frame = {f"x{i}": column for i, column in enumerate(x.T)}
    schema = dict.fromkeys(frame, (-1, 1))
    if kind in SHARES:
        frame |= {"two": two.astype(str), "five": five.astype(str)}
        schema |= {"two": ["False", "True"], "five": [str(i) for i in range(5)]}
        x = np.column_stack([x, two, *(five == i for i in range(1, 5))])
    signal = weights[0] + x @ weights[1:]
    if family == "linear":
        signal = signal + 0.8 * x[:, 0] ** 2 * (kind == "mixed")
        noise = rng.standard_t(3, size=n) * 0.13 if kind == "heavy" else rng.normal(size=n) * 0.22
        spread = 0.3 + 3.6 * np.abs(x[:, 0]) if kind == "mixed" else 1.0
        spread = 0.3 if kind == "wide" else spread
        return frame | {"y": np.clip(signal + noise * spread, -1, 1)}, schema | {"y": (-1, 1)}
    signal = 4 * signal + 4 * x[:, 0] ** 2 * (kind == "mixed")
    happened = rng.random(n) < expit(signal)
    return frame | {"y": np.where(happened, "yes", "no")}, schema | {"y": ["no", "yes"]}


def attacking_frame(kind, family, n, rng):
    frame, schema = simulated_frame("gauss", family, n, rng)
    if kind == "odd":
        odd, end = rng.random(n) < 0.003, -1.0 if family == "linear" else "no"
        frame |= {"x1": np.where(odd, 1.0, frame["x1"]), "y": np.where(odd, end, frame["y"])}
        return frame, schema
    x = np.where(rng.random((n, 10)) < 0.85, -1, rng.uniform(-1, 1, size=(n, 10)))
    signal = 0.5 + x @ WEIGHTS[1:] / 2
    frame = {f"x{i}": column for i, column in enumerate(x.T)}
    if family == "linear":
        shifted = rng.exponential(0.15, size=n) - 0.15
        return frame | {"y": np.clip(signal + shifted, -1, 1)}, schema
    return frame | {"y": np.where(rng.random(n) < expit(3 * signal), "yes", "no")}, schema


def unseen_frame(_, family, n, rng):
    """Skewed, discrete and dependent columns, an interaction, residuals of Laplace, few far off."""
    age, count = rng.beta(2, 4, size=n) * 2 - 1, np.minimum(rng.poisson(1.5, size=n), 8)
    site = rng.choice(4, size=n, p=[0.45, 0.3, 0.19, 0.06])
    dose = np.clip(0.5 * age + rng.laplace(size=n) * 0.25 - 0.2 * (site == 2), -1, 1)
    treated = rng.random(n) < expit(2 * age)
    signal = 0.25 * age - 0.3 * dose + 0.05 * count + 0.15 * treated + 0.3 * treated * dose
    signal += np.array([0, 0.1, -0.1, 0.25])[site] - 0.1
    columns = {
        "age": age,
        "count": count,
        "dose": dose,
        "treated": treated,
        "site": site.astype(str),
    }
    schema = {"age": (-1, 1), "count": (0, 8), "dose": (-1, 1), "treated": [False, True]}
    schema["site"] = [str(i) for i in range(4)]
    if family == "linear":
        y = signal + rng.laplace(size=n) * (0.08 + 0.1 * treated)
        y += (rng.random(n) < 0.01) * rng.choice([-0.8, 1.2], size=n)
        return columns | {"y": np.clip(y, -1, 1)}, schema | {"y": (-1, 1)}
    happened = rng.random(n) < expit(4 * signal - 1)
    return columns | {"y": np.where(happened, "yes", "no")}, schema | {"y": ["no", "yes"]}


EXPLAINED = {
    "age": Range(17, 90),
    "education-num": Range(1, 16),
    "sex": ["Female", "Male"],
    "marital-status": ["Never-married", "Married-civ-spouse", "Other"],
    "race": ["White", "Black", "Other"],
}
HOURS = Range(1, 99)


def adult_frame():
    """Adult with fewer values of two columns, from all of its rows."""
    numbers, places = _data.needed("adult", ("num_names", "cat_names"))
    parts = [
        _data.needed("adult", (f"{part}_num", f"{part}_cat", f"{part}_y"))
        for part in ("train", "test")
    ]
    X, codes, y = (np.concatenate(two) for two in zip(*parts, strict=True))
    frame = pd.DataFrame(X, columns=list(numbers))
    for name, own in zip(places, codes.T, strict=True):
        frame[name] = _data.needed("adult", (f"levels_{name}",))[0][own]
    married = frame["marital-status"].where(
        frame["marital-status"].isin(["Married-civ-spouse", "Never-married"]), "Other"
    )
    race = frame["race"].where(frame["race"].isin(["White", "Black"]), "Other")
    return frame.assign(**{"marital-status": married, "race": race, "income": y > 0.5})


# Truth that is known ----------------------------------------------------------------------------

NO_YES = ["no", "yes"]
WARDS = {"medicine": 0.45, "surgery": 0.3, "cardiology": 0.15, "neurology": 0.08, "burns": 0.02}
PREVALENCES = {"1 %": 0.01, "3 %": 0.03, "6 %": 0.06, "15 %": 0.15, "50 %": 0.5}
AGES = (50, 90)

# Log-odds by the name of the coefficient, as private_coefficients has it; others are 0.
_MEDICAL = {"Intercept": -4.8, "age": 0.05, "bmi": 0.02, "pressure": -0.012, "creatinine": 0.35}
_MEDICAL |= {"sex[male]": 0.1, "diabetes[yes]": 0.4, "transplant[yes]": 1.0}
_MEDICAL |= {"ward[surgery]": -0.3, "ward[cardiology]": 0.2, "ward[neurology]": 0.5}
_MEDICAL |= {"ward[burns]": 1.2}
_CORRELATED = {"Intercept": -1.0, "x0": 0.5, "x1": -0.3, "x2": 0.4, "x5": 0.3, "x6": -0.5}
_CORRELATED |= {"x7": 0.2, "few[yes]": 0.8, "fewer[yes]": 1.5}
_TWO_BY_TWO = {"Intercept": logit(0.01), "exposed[yes]": logit(0.1) - logit(0.01)}
_HALVES = {"Intercept": logit(0.02), "exposed[yes]": logit(0.5) - logit(0.02)}
_PLACES = dict(enumerate(np.random.default_rng(40).normal(scale=0.5, size=40)))
_PLACES = {f"place[{i}]": effect - _PLACES[0] for i, effect in _PLACES.items() if i}
_PLACES |= {"Intercept": -1.0}
_AGED = {"age": 0.04, "sex[male]": 0.5}
# Logarithms of rates for a year.
_VISITS = {"age": 0.02, "bmi": 0.03, "sex[male]": 0.15, "diabetes[yes]": 0.5}
_VISITS |= {"ward[surgery]": -0.3, "ward[cardiology]": 0.2, "ward[burns]": 0.7}

KNOWN = ("medical", "correlated", "places")
# Mean counts a year, and how much rates of rows with the same columns vary.
COUNTED = {"visits": (0.5, 0.0), "many visits": (5.0, 0.0), "uneven visits": (5.0, 0.7)}
PREVALENT = (*PREVALENCES, "two by two", "halves")


def known_weights(kind):
    """Log-odds by the name of the coefficient; those that are not named are 0."""
    if kind in PREVALENCES:
        return _AGED | {"Intercept": _intercept(PREVALENCES[kind])}
    if kind in COUNTED:  # at 66 years, a bmi of 27, and other means
        return _VISITS | {"Intercept": math.log(COUNTED[kind][0]) - 66 * 0.02 - 27 * 0.03 - 0.17}
    known = {"medical": _MEDICAL, "correlated": _CORRELATED, "places": _PLACES}
    return (known | {"two by two": _TWO_BY_TWO, "halves": _HALVES})[kind]


def known_frame(kind, n, rng):
    """Rows whose outcome is drawn from a logistic or Poisson regression."""
    makers = {"medical": _ward, "correlated": _chain, "places": _placed}
    makers |= dict.fromkeys(COUNTED, _ward) | dict.fromkeys(("two by two", "halves"), _exposed)
    columns, schema = makers.get(kind, _aged)(n, rng)
    log_odds = sum(
        weight * _of_term(term, columns, n) for term, weight in known_weights(kind).items()
    )
    if kind in COUNTED:
        return _counted(kind, columns, schema, log_odds, rng)
    happened = rng.random(n) < expit(log_odds)
    return columns | {"y": np.where(happened, "yes", "no")}, schema | {"y": NO_YES}


def _counted(kind, columns, schema, log_rate, rng):
    """Counts of half a year to two years, which no end of the range cuts but for chance."""
    mean, spread = COUNTED[kind]
    years = rng.uniform(0.5, 2.0, size=len(log_rate))
    rate = years * np.exp(log_rate)
    if spread:
        rate *= rng.gamma(1 / spread**2, spread**2, size=len(log_rate))
    columns, schema = columns | {"years": years}, schema | {"years": (0.5, 2)}
    return columns | {"y": rng.poisson(rate)}, schema | {"y": (0, 20 + 20 * mean)}


def _of_term(term, columns, n):
    """The column of the design that a coefficient multiplies."""
    name, _, value = term.rstrip("]").partition("[")
    if name == "Intercept":
        return np.ones(n)
    return columns[name] == value if value else columns[name]


def _marks(share, n, rng):
    return np.where(rng.random(n) < share, "yes", "no")


def _ward(n, rng):
    age = np.clip(rng.normal(66, 13, size=n), 18, 100)
    columns = {
        "age": age,
        "bmi": np.clip(rng.gamma(30, 0.9, size=n), 12, 60),
        "pressure": np.clip(rng.normal(118 + 0.25 * (age - 66), 20), 50, 230),
        "creatinine": np.clip(rng.lognormal(0.1, 0.5, size=n), 0.2, 12),
        "sex": rng.choice(["female", "male"], size=n),
        "diabetes": _marks(0.2, n, rng),
        "transplant": _marks(0.03, n, rng),
        "ward": rng.choice(list(WARDS), size=n, p=list(WARDS.values())),
    }
    schema = {"age": (18, 100), "bmi": (12, 60), "pressure": (50, 230), "creatinine": (0, 12)}
    schema |= {"sex": ["female", "male"], "diabetes": NO_YES, "transplant": NO_YES}
    return columns, schema | {"ward": list(WARDS)}


def _chain(n, rng):
    x = rng.normal(size=(n, 8))
    for j in range(1, 8):
        x[:, j] = 0.8 * x[:, j - 1] + 0.6 * x[:, j]
    columns = {f"x{j}": np.clip(column, -4, 4) for j, column in enumerate(x.T)}
    schema = dict.fromkeys(columns, (-4, 4)) | {"few": NO_YES, "fewer": NO_YES}
    return columns | {"few": _marks(0.03, n, rng), "fewer": _marks(0.01, n, rng)}, schema


def _exposed(n, rng):
    return {"exposed": _marks(0.5, n, rng)}, {"exposed": NO_YES}


def _placed(n, rng):
    shares, places = 1 / np.arange(1, 41), [str(i) for i in range(40)]
    return {"place": rng.choice(places, size=n, p=shares / shares.sum())}, {"place": places}


def _aged(n, rng):
    sexes = ["female", "male"]
    columns = {"age": rng.uniform(*AGES, size=n), "sex": rng.choice(sexes, size=n)}
    return columns, {"age": AGES, "sex": sexes}


@cache
def _intercept(prevalence):
    """The intercept with which so many have the outcome, over ages and both sexes."""
    rest = _AGED["age"] * np.linspace(*AGES, 1_001)[:, None] + [0, _AGED["sex[male]"]]
    return brentq(lambda intercept: expit(intercept + rest).mean() - prevalence, -20, 20)
