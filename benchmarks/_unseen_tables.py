"""Seven tables with two classes and ten with values that nothing in this package was chosen on.

Rows of classes are of people, signals, visits and letters, but those of "magic", which were
simulated, and of "telco", which IBM made up. Rows of values are of shellfish, wings, computers,
concrete, diamonds, houses, air, turbines and wind, and those of "grid" were simulated. Nearly all
columns of these are numbers.

``load(name)`` gives a ``RawTable`` as `_raw_tables` does: at most 15,000 rows to train with and
3,000 (a quarter, if that is less) to test with, which are the same for all seeds.
``_raw_tables.few`` draws fewer rows.

Schemas were written from what the columns mean, before any model was fitted, and are not to be
changed for a score. Ranges are round numbers that stand for documented ones. ``log=True`` is for
amounts and counts, which have long tails by what they measure. Codes are categories, and grades are
numbers.

Files are looked for as ``unseen/NAME.csv`` in the folder that DPSUBSPACE_DATA names, as the source
that the table names gives them out, with or without a head and a number of the row. A table without
a file is fetched from OpenML where a counterpart is known. Columns are read by their place from the
end, or by name. Rows of "pollution" without a value are left out.

usage: DPSUBSPACE_DATA=folder python benchmarks/_unseen_tables.py [name ...]
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import _data
import numpy as np
import pandas as pd
from _raw_tables import MOST_TEST, MOST_TRAIN, RawTable

from dpsubspace import Categories, Range

FOLDER = "unseen"


@dataclass(frozen=True)
class Table:
    """What is known of a table without its rows."""

    kind: tuple[str, str] | Range  # two classes in words, or the range of a value
    target: str  # column of the classes or values
    second: tuple[str, ...]  # how the second class is written
    schema: dict
    openml: tuple[str, int] | None  # name and version
    source: str  # where else the file is found
    headed: bool = True  # whether the file has names of columns
    by_name: bool = False  # whether columns are found by name
    read: Callable = lambda frame: frame  # of columns, before numbers are read
    scale: Callable = lambda values: values  # that values are predicted on


TABLES: dict[str, Table] = {}


def names(task: str) -> list[str]:
    """Names of the tables with "classes" or "values"."""
    return sorted(name for name in TABLES if task_of(name) == task)


def task_of(name: str) -> str:
    """What a table is for: "classes" or "values"."""
    return "values" if isinstance(TABLES[name].kind, Range) else "classes"


@cache
def load(name: str) -> RawTable:
    """Return the table called `name`."""
    if name not in TABLES:
        raise KeyError(f"no table {name!r}; there are {', '.join(sorted(TABLES))}")
    X, y = _columns(TABLES[name], _raw(name))
    order = np.random.default_rng(7).permutation(len(y))
    test, train = np.split(order, [min(MOST_TEST, len(y) // 4)])
    train = train[:MOST_TRAIN]
    frames = [X.iloc[rows].reset_index(drop=True) for rows in (train, test)]
    target = TABLES[name].kind if task_of(name) == "values" else None
    return RawTable(frames[0], y[train], frames[1], y[test], TABLES[name].schema, target)


def _raw(name: str) -> pd.DataFrame:
    """The columns of a file, or of OpenML, as they come."""
    table, folder = TABLES[name], os.environ.get(_data.FOLDER)
    if folder and (path := Path(folder) / FOLDER / f"{name}.csv").exists():
        return pd.read_csv(path, header="infer" if table.headed else None, encoding="utf-8-sig")
    where = f"{FOLDER}/{name}.csv ({table.source})"
    if table.openml is None:
        raise _data.DataNotFoundError(
            f"{where} is not there: let {_data.FOLDER} name the folder that {FOLDER} is in."
        )
    try:
        return _data.openml(*table.openml, as_frame=True).frame
    except _data.DataNotFoundError as error:
        raise _data.DataNotFoundError(f"{where} is not there, and {error}") from error


def _columns(table: Table, raw: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Columns of the schema, and values, or whether a row is of the second class."""
    columns = [*table.schema, table.target]
    if not table.by_name:  # a number of the row comes first, and is left out
        raw = raw.iloc[:, -len(columns) :].set_axis(columns, axis=1)
    if isinstance(table.kind, Range):
        raw = raw[raw[table.target].notna()]
    frame = {}
    for name, kind in table.schema.items():
        numbers = isinstance(kind, Range)
        frame[name] = pd.to_numeric(raw[name], errors="coerce") if numbers else _texts(raw[name])
    X = table.read(pd.DataFrame(frame))
    if isinstance(table.kind, Range):
        return X, table.scale(raw[table.target].to_numpy(dtype=float))
    return X, _texts(raw[table.target]).isin(table.second).to_numpy().astype(int)


def _texts(column: pd.Series) -> pd.Series:
    """Categories as text: 2 and 2.0 are "2", and truths are "true" and "false"."""
    texts = column.astype(str).str.strip().str.removesuffix(".0")
    return texts.replace({"True": "true", "False": "false", "TRUE": "true", "FALSE": "false"})


# The tables -------------------------------------------------------------------------------------


def _codes(first: int, last: int) -> Categories:
    return Categories([str(code) for code in range(first, last + 1)])


def _amount(low, high, missing=False) -> Range:
    return Range(low, high, log=True, missing=missing)


_UCI = "UCI's {}"
_YES_NO = Categories(["no", "yes"])
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_JOBS = ("admin.", "blue-collar", "entrepreneur", "housemaid", "management", "retired")
_JOBS += ("self-employed", "services", "student", "technician", "unemployed", "unknown")


def _never(frame: pd.DataFrame) -> pd.DataFrame:
    """Days since an earlier call are missing where there was none, for which the file has -1."""
    return frame.assign(pdays=frame["pdays"].where(frame["pdays"] >= 0))


# Calls of a Portuguese bank. The length of the call, which is known only after it, is a column, as
# in most comparisons on this table.
TABLES["bank"] = Table(
    ("buys no deposit", "buys a deposit"),
    "y",
    ("yes", "2"),
    {
        "age": Range(18, 100),
        "job": Categories(list(_JOBS)),
        "marital": Categories(["divorced", "married", "single"]),
        "education": Categories(["primary", "secondary", "tertiary", "unknown"]),
        "default": _YES_NO,
        "balance": _amount(-10_000, 100_000),
        "housing": _YES_NO,
        "loan": _YES_NO,
        "contact": Categories(["cellular", "telephone", "unknown"]),
        "day": Range(1, 31),
        "month": Categories(list(_MONTHS)),
        "duration": _amount(0, 5_000),
        "campaign": _amount(1, 100),
        "pdays": _amount(0, 1_000, missing=True),
        "previous": _amount(0, 300),
        "poutcome": Categories(["failure", "other", "success", "unknown"]),
    },
    ("bank-marketing", 1),
    _UCI.format("Bank Marketing, bank-full.csv, between commas"),
    read=_never,
)


# Credit cards in Taiwan, in dollars of there. Delays of payment are in months; -2 to 0 are three
# kinds of none.
TABLES["credit"] = Table(
    ("pays", "defaults next month"),
    "default",
    ("1",),
    {"limit": _amount(10_000, 1_000_000), "sex": _codes(1, 2)}
    | {"education": _codes(0, 6), "marriage": _codes(0, 3), "age": Range(20, 80)}
    | {f"delay{i}": Range(-2, 9) for i in range(1, 7)}
    | {f"bill{i}": _amount(-100_000, 1_000_000) for i in range(1, 7)}
    | {f"paid{i}": _amount(0, 1_000_000) for i in range(1, 7)},
    ("default-of-credit-card-clients", 1),
    _UCI.format("Default of Credit Card Clients"),
)


# Showers of particles in a simulated telescope: axes of an ellipse and distances in millimetres,
# the size as a logarithm to base 10, two shares, and an angle.
TABLES["magic"] = Table(
    ("gamma", "hadron"),
    "class",
    ("h",),
    {
        "length": _amount(0, 400),
        "width": _amount(0, 300),
        "size": Range(1.5, 6),
        "conc": Range(0, 1),
        "conc1": Range(0, 1),
        "asym": Range(-500, 500),
        "m3long": Range(-400, 400),
        "m3trans": Range(-200, 200),
        "alpha": Range(0, 90),
        "dist": Range(0, 500),
    },
    ("MagicTelescope", 1),
    _UCI.format("MAGIC Gamma Telescope, magic04.data"),
    headed=False,
)


# Signals of a radio telescope: mean, standard deviation, excess kurtosis and skewness of the
# profile, and of the curve over dispersion. Profiles are in bytes. Skewness has long tails.
TABLES["pulsars"] = Table(
    ("noise", "pulsar"),
    "class",
    ("1",),
    {
        "mean": Range(0, 255),
        "std": Range(0, 100),
        "kurtosis": Range(-2, 10),
        "skewness": _amount(-2, 100),
        "dm_mean": _amount(0, 255),
        "dm_std": Range(0, 120),
        "dm_kurtosis": Range(-5, 40),
        "dm_skewness": _amount(-2, 1_500),
    },
    None,
    _UCI.format("HTRU2, HTRU_2.csv, with a line of names"),
)


# Visits of a shop: pages of three kinds and seconds on them. The file's means of the two rates end
# at 0.2. The months that it has not are declared as well.
_PAGES = ("administrative", "informational", "product")
_PAGES_MOST = (100, 100, 1_000)
_SECONDS_MOST = (10_000, 10_000, 100_000)
_SPELLED = ("Jan", "Feb", "Mar", "Apr", "May", "June", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

TABLES["shoppers"] = Table(
    ("leaves", "buys"),
    "revenue",
    ("true", "1"),
    {
        key: _amount(0, most, missing=True)
        for page, n, seconds in zip(_PAGES, _PAGES_MOST, _SECONDS_MOST, strict=True)
        for key, most in ((page, n), (f"{page}_s", seconds))
    }
    | {
        "bounces": Range(0, 0.2, missing=True),
        "exits": Range(0, 0.2, missing=True),
        "page_value": _amount(0, 1_000),
        "special_day": Range(0, 1),
        "month": Categories(list(_SPELLED)),
        "system": _codes(1, 8),
        "browser": _codes(1, 13),
        "region": _codes(1, 9),
        "traffic": _codes(1, 20),
        "visitor": Categories(["New_Visitor", "Other", "Returning_Visitor"]),
        "weekend": Categories(["false", "true"]),
    },
    ("online_shoppers_intention", 1),
    _UCI.format("Online Shoppers Purchasing Intention, online_shoppers_intention.csv"),
)


# Letters: percentages of 48 words and 6 characters, and the mean, longest and total length of runs
# of capitals.
TABLES["spam"] = Table(
    ("mail", "spam"),
    "class",
    ("1",),
    {f"word{i}": _amount(0, 100) for i in range(1, 49)}
    | {f"character{i}": _amount(0, 100) for i in range(1, 7)}
    | {"run_mean": _amount(1, 1_000), "run_longest": _amount(1, 10_000)}
    | {"run_total": _amount(1, 20_000)},
    ("spambase", 1),
    _UCI.format("Spambase, spambase.data, with a line of numbers"),
)


_ANSWERS = Categories(["No", "Yes"])
_OF_INTERNET = Categories(["No", "No internet service", "Yes"])
_PAYMENTS = ("Bank transfer (automatic)", "Credit card (automatic)", "Electronic check")
_SERVICES = ("OnlineSecurity", "OnlineBackup", "DeviceProtection", "TechSupport")
_SERVICES += ("StreamingTV", "StreamingMovies")

# Customers of a telephone company, made up by IBM. New ones have no total of charges yet.
TABLES["telco"] = Table(
    ("stays", "leaves"),
    "Churn",
    ("Yes",),
    {
        "gender": Categories(["Female", "Male"]),
        "SeniorCitizen": _codes(0, 1),
        "Partner": _ANSWERS,
        "Dependents": _ANSWERS,
        "tenure": Range(0, 72),
        "PhoneService": _ANSWERS,
        "MultipleLines": Categories(["No", "No phone service", "Yes"]),
        "InternetService": Categories(["DSL", "Fiber optic", "No"]),
    }
    | dict.fromkeys(_SERVICES, _OF_INTERNET)
    | {
        "Contract": Categories(["Month-to-month", "One year", "Two year"]),
        "PaperlessBilling": _ANSWERS,
        "PaymentMethod": Categories([*_PAYMENTS, "Mailed check"]),
        "MonthlyCharges": Range(0, 150),
        "TotalCharges": _amount(0, 10_000, missing=True),
    },
    ("telco-customer-churn", 1),
    "IBM's WA_Fn-UseC_-Telco-Customer-Churn.csv",
    by_name=True,
)


# Tables of values -------------------------------------------------------------------------------


# Shellfish, of which the rings tell the age. A unit of length is 200 millimetres, and one of weight
# 200 grams.
TABLES["abalone"] = Table(
    Range(0, 30),
    "rings",
    (),
    {
        "sex": Categories(["F", "I", "M"]),
        "length": Range(0, 1),
        "diameter": Range(0, 1),
        "height": Range(0, 0.5),
        "whole": Range(0, 3),
        "shucked": Range(0, 1.5),
        "viscera": Range(0, 1),
        "shell": Range(0, 1.2),
    },
    None,
    _UCI.format("Abalone, abalone.data"),
    headed=False,
)


# Sections of wings in a tunnel: hertz, degrees, metres, metres a second and metres; noise in
# decibels.
TABLES["airfoil"] = Table(
    Range(100, 145),
    "level",
    (),
    {
        "frequency": _amount(200, 20_000),
        "angle": Range(0, 25),
        "chord": Range(0, 0.35),
        "velocity": Range(30, 75),
        "thickness": _amount(0.0004, 0.06),
    },
    None,
    _UCI.format("Airfoil Self-Noise, airfoil_self_noise.dat, between commas and with a head"),
)


# Activity of a computer with many users: events a second, sizes of queues and memory; the value is
# the percentage of the time that its processors run for users.
TABLES["computer"] = Table(
    Range(0, 100),
    "usr",
    (),
    {"lread": _amount(0, 2_000), "lwrite": _amount(0, 1_000), "scall": _amount(0, 20_000)}
    | {"sread": _amount(0, 10_000), "swrite": _amount(0, 10_000), "fork": _amount(0, 50)}
    | {"exec": _amount(0, 100), "rchar": _amount(0, 3e6), "wchar": _amount(0, 3e6)}
    | {"pgout": _amount(0, 100), "ppgout": _amount(0, 200), "pgfree": _amount(0, 1_000)}
    | {"pgscan": _amount(0, 2_000), "atch": _amount(0, 500), "pgin": _amount(0, 200)}
    | {"ppgin": _amount(0, 500), "pflt": _amount(0, 1_000), "vflt": _amount(0, 2_000)}
    | {"runqsz": _amount(0, 3_000), "freemem": _amount(0, 20_000), "freeswap": Range(0, 3e6)},
    None,
    "Delve's comp-activ, with a head",
    by_name=True,
)


# Mixtures, in kilogrammes a cubic metre, and their age in days; strength in megapascals.
TABLES["concrete"] = Table(
    Range(0, 90),
    "strength",
    (),
    {
        "cement": Range(100, 550),
        "slag": Range(0, 400),
        "ash": Range(0, 250),
        "water": Range(120, 250),
        "plasticizer": Range(0, 40),
        "coarse": Range(800, 1_200),
        "fine": Range(550, 1_000),
        "age": _amount(1, 365),
    },
    None,
    _UCI.format("Concrete Compressive Strength, as comma-separated values"),
)


# Diamonds: carats, grades in words, percentages and millimetres; the logarithm of the price in
# dollars to base 10.
TABLES["diamonds"] = Table(
    Range(2, 4.5),
    "price",
    (),
    {
        "carat": _amount(0.2, 5),
        "cut": Categories(["Fair", "Good", "Very Good", "Premium", "Ideal"]),
        "color": Categories(list("DEFGHIJ")),
        "clarity": Categories(["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"]),
        "depth": Range(50, 75),
        "table": Range(50, 80),
        "x": Range(0, 12),
        "y": Range(0, 12),
        "z": Range(0, 8),
    },
    None,
    "diamonds.csv of ggplot2",
    by_name=True,
    scale=np.log10,
)


# A simulated grid of one producer and three consumers: reaction times, powers, and how much prices
# move them; the value is how fast a disturbance grows.
TABLES["grid"] = Table(
    Range(-0.1, 0.15),
    "stab",
    (),
    {f"tau{i}": Range(0.5, 10) for i in range(1, 5)}
    | {"p1": Range(1.5, 6)}
    | {f"p{i}": Range(-2, -0.5) for i in range(2, 5)}
    | {f"g{i}": Range(0.05, 1) for i in range(1, 5)},
    None,
    _UCI.format("Electrical Grid Stability Simulated Data, between commas"),
    by_name=True,
)


def _renovated(frame: pd.DataFrame) -> pd.DataFrame:
    """The year of a renovation is missing where there was none, for which the file has 0."""
    return frame.assign(yr_renovated=frame["yr_renovated"].where(frame["yr_renovated"] > 0))


# Houses of King County: areas in square feet, grades, years and places; the logarithm of the price
# in dollars to base 10. The place stands for the postal code.
TABLES["houses"] = Table(
    Range(4.5, 7),
    "price",
    (),
    {"bedrooms": Range(0, 12), "bathrooms": Range(0, 8), "sqft_living": _amount(200, 15_000)}
    | {"sqft_lot": _amount(400, 2_000_000), "floors": Range(1, 4), "waterfront": _codes(0, 1)}
    | {"view": Range(0, 4), "condition": Range(1, 5), "grade": Range(1, 13)}
    | {"sqft_above": _amount(200, 15_000), "sqft_basement": _amount(0, 5_000)}
    | {"yr_built": Range(1900, 2015), "yr_renovated": Range(1900, 2015, missing=True)}
    | {"lat": Range(47.1, 47.8), "long": Range(-122.6, -121.2)}
    | {"sqft_living15": _amount(200, 10_000), "sqft_lot15": _amount(400, 1_000_000)},
    None,
    "Kaggle's House Sales in King County, kc_house_data.csv",
    by_name=True,
    read=_renovated,
    scale=np.log10,
)


# Hours in Beijing: dew point and temperature in degrees, pressure in hectopascals, wind, and hours
# of snow and rain; fine dust in microgrammes a cubic metre. Rows of neighbouring hours are on both
# sides of the split, and do not say so.
TABLES["pollution"] = Table(
    Range(0, 1_000),
    "pm2.5",
    (),
    {
        "year": Range(2010, 2014),
        "month": Range(1, 12),
        "day": Range(1, 31),
        "hour": Range(0, 23),
        "DEWP": Range(-40, 30),
        "TEMP": Range(-20, 45),
        "PRES": Range(980, 1_050),
        "cbwd": Categories(["NE", "NW", "SE", "cv"]),
        "Iws": _amount(0, 600),
        "Is": _amount(0, 30),
        "Ir": _amount(0, 40),
    },
    None,
    _UCI.format("Beijing PM2.5, PRSA_data_2010.1.1-2014.12.31.csv"),
    by_name=True,
)


# A gas turbine, hour by hour: weather, pressures in millibars, temperatures in degrees, the yield
# in megawatt hours, and carbon monoxide; the value is nitrogen oxides in milligrammes a cubic
# metre. Ranges are those of its description, outwards.
TABLES["turbine"] = Table(
    Range(20, 120),
    "NOX",
    (),
    {
        "AT": Range(-10, 40),
        "AP": Range(980, 1_040),
        "AH": Range(20, 105),
        "AFDP": Range(2, 8),
        "GTEP": Range(15, 45),
        "TIT": Range(1_000, 1_105),
        "TAT": Range(510, 555),
        "TEY": Range(95, 180),
        "CDP": Range(9, 16),
        "CO": _amount(0, 50),
    },
    None,
    _UCI.format("Gas Turbine CO and NOx Emission, the five years one after the other"),
    by_name=True,
)


# Days in Ireland: the mean wind at eleven stations, in knots; the value is that of Malin Head.
TABLES["wind"] = Table(
    Range(0, 50),
    "MAL",
    (),
    {"year": Range(61, 78), "month": Range(1, 12), "day": Range(1, 31)}
    | dict.fromkeys(
        ("RPT", "VAL", "ROS", "KIL", "SHA", "BIR", "DUB", "CLA", "MUL", "CLO", "BEL"), Range(0, 50)
    ),
    None,
    "StatLib's wind",
    by_name=True,
)


def main() -> None:
    for name in sys.argv[1:] or sorted(TABLES):
        table, X = TABLES[name], load(name)
        kinds = [isinstance(kind, Range) for kind in table.schema.values()]
        columns = f"{sum(kinds)} numbers, {len(kinds) - sum(kinds)} categories"
        print(f"{name:<9} {len(X.y)} rows, {len(X.y_test)} to test, {columns}")
        if isinstance(table.kind, Range):
            low, high = table.kind.low, table.kind.high
            beyond = np.mean((X.y < low) | (X.y > high))
            print(f"          values {low:g} to {high:g}: {beyond:.2%} beyond")
        else:
            print(f"          {np.mean(X.y):.1%} {table.kind[1]!r}, others {table.kind[0]!r}")
        for column, kind in table.schema.items():
            found = pd.concat([X.X[column], X.X_test[column]])
            if isinstance(kind, Categories):
                unknown = sorted(set(found) - set(kind.values))
                told = f"not declared: {unknown}" if unknown else ""
            else:
                beyond, gaps = (
                    ((found < kind.low) | (found > kind.high)).mean(),
                    found.isna().mean(),
                )
                told = f"{beyond:.2%} beyond" if beyond > 0.001 else ""
                told += f" {gaps:.2%} missing" if gaps else ""
            if told:
                print(f"          {column}: {told}")


if __name__ == "__main__":
    main()
