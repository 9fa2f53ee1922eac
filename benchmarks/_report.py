"""The report of a benchmark: rows on the screen as they come, then one sorted JSON file."""

import json
import platform
from importlib.metadata import PackageNotFoundError, version

import dpsubspace


def one_line(row):
    return "  ".join(f"{key} {value}" for key, value in row.items() if value is not None)


def printed(rows, line=one_line):
    """List of `rows`, each printed by `line` as soon as it is there."""
    kept = []
    for row in rows:
        print(line(row), flush=True)
        kept.append(row)
    return kept


def save(args, results, *packages, **more):
    """Write the report of parsed `args` to ``args.out``, if that is set.

    `packages` are those whose versions matter beside NumPy and scikit-learn; `more` are
    further entries, such as the machine.
    """
    if args.out is None:
        return
    report = {
        "arguments": {key: value for key, value in vars(args).items() if key != "out"},
        "results": results,
        "versions": _versions("numpy", "scikit-learn", *packages),
        **more,
    }
    text = json.dumps(report, indent=1, sort_keys=True, default=str)
    args.out.write_text(text + "\n")


def _versions(*packages):
    found = {"dpsubspace": dpsubspace.__version__, "python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
