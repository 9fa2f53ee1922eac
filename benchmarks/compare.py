"""What two reports of one benchmark say differently, beyond what their seeds explain.

Rows are of one thing where all that is in SETTINGS is equal (in order, where several are). A mean
over seeds differs where it is more than three standard errors off (of the difference), every
other number where it is off by more than ``--within``, and a text where it is another. Spreads,
loads and versions of rows are not compared. Times are those of two runs: look at ratios.

usage: python benchmarks/compare.py old.json new.json [--within 0.03] [--only ratio_median]
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

_NAMES = """
alpha attack batch bounds by calibration case centered classes columns d data decay delta directions
dtype epsilon estimator exact explicit family fits form implicit k kind m mechanism memory method
model n n_classes noise of offset origin outputs peer planted population public public_rows rate
recipe record relation rows sampled scale section seed sets shape step steps sum table threads
trained way where
"""
SETTINGS = frozenset(_NAMES.split())
NOT_COMPARED = ("std", "_se", "_error", "_min", "_max", "_norm", "load", "seeds", "version")
OF_STD = ("accuracy", "captured")  # what "std" is of, in reports in which it has no other name
ERRORS = 3.0  # standard errors that seeds explain
ROUNDING = 1.01e-4  # means have four digits


def flat(row, start=""):
    """A row with the entries of a dict in it as `name.entry`."""
    found = {}
    for key, value in row.items():
        inner = isinstance(value, dict)
        found |= flat(value, f"{start}{key}.") if inner else {start + key: value}
    return found


def sections(report):
    """Rows of each section, by what they are of."""
    results = report["results"] if isinstance(report, dict) else report
    for name, rows in (results if isinstance(results, dict) else {"": results}).items():
        by_setting = defaultdict(list)
        for row in rows if isinstance(rows, list) else [rows]:
            of = {key: str(value) for key, value in row.items() if key in SETTINGS}
            by_setting[tuple(sorted(of.items()))].append(flat(row))
        yield name, by_setting


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def standard_error(row, key):
    """Of a mean over seeds; None where the row has none."""
    start, _, name = key.rpartition(".")
    start += "." if start else ""
    std = row.get(f"{key}_std", row.get(f"{start}std") if name in OF_STD else None)
    if std is None:
        return row.get(f"{key}_se", row.get(f"{key}_error"))
    return std / np.sqrt(row.get(f"{start}seeds", 1))


def differs(old, new, key, within):
    one, other = old[key], new[key]
    if not (is_number(one) and is_number(other)):
        return one != other
    errors = standard_error(old, key), standard_error(new, key)
    if None not in errors:
        return abs(other - one) > ERRORS * np.hypot(*errors) + ROUNDING
    return not np.isclose(one, other, rtol=within, atol=1e-12, equal_nan=True)


def compared(old, new, within, only):
    """Keys of two rows that differ, with both values."""
    for key in old.keys() & new.keys() - SETTINGS:
        wanted = only in key and not key.endswith(NOT_COMPARED)
        if wanted and differs(old, new, key, within):
            yield key, old[key], new[key]


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--within", type=float, default=0.03, help="relative, without seeds")
    parser.add_argument("--only", default="", help="what has this in its name")
    args = parser.parse_args()
    reports = [json.loads(path.read_text()) for path in (args.old, args.new)]
    versions = [report.get("versions") for report in reports if isinstance(report, dict)]
    print(*versions, sep="\n")
    old, new = (dict(sections(report)) for report in reports)
    for name in [name for name in old if name in new]:
        both = old[name].keys() & new[name].keys()
        found = 0
        for setting in sorted(both):
            for rows in zip(old[name][setting], new[name][setting], strict=False):
                for key, before, after in compared(*rows, args.within, args.only):
                    of = ", ".join(f"{key} {value}" for key, value in setting)
                    change = f" ({after / before - 1:+.1%})" if is_number(before) and before else ""
                    print(f"{name} {of}: {key} {before} -> {after}{change}")
                    found += 1
        apart = len(old[name].keys() ^ new[name].keys())
        print(f"{name or 'results'}: {len(both)} settings in both, {apart} in one, {found} differ")


if __name__ == "__main__":
    main()
