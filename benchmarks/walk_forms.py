"""Rows in every container, of every type, to every estimator and function: what becomes of them.

The full product of the tables in ``tests/forms.py``, of which the default suite tries the pairs. A
cell is a fit inside of a ledger. It has a *fault* where an error came after something was charged,
where a message has an entry of the rows, and where, of persons, it has the number of rows. A cell
whose error is neither a ValueError nor a TypeError is shown as well. With ``--persons`` rows are of
persons, with ``--rare`` a container or a type is one of ``tests/rare_forms.py``, and ``--share
2/4`` walks the second of four parts.

usage: python benchmarks/walk_forms.py [--role X] [--persons] [--rare] [--door DPPCA] [--share 1/1]
"""

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import forms  # noqa: E402
import in_parts  # noqa: E402
import pytest  # noqa: E402

EXPECTED = ("fitted", "hidden", "ValueError", "TypeError")


def main():
    """Walk, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--role", choices=forms.ROLES, default="X")
    parser.add_argument("--door", choices=forms.DOORS, action="append")
    parser.add_argument("--persons", action="store_true")
    parser.add_argument("--rare", action="store_true")
    parser.add_argument("--share", default="1/1")
    asked = parser.parse_args()
    number, of = map(int, asked.share.split("/"))
    cells = [
        cell
        for cell in forms.all_cells(rare=asked.rare)
        if (cell.role, cell.persons) == (asked.role, asked.persons)
        and (not asked.door or cell.door in asked.door)
    ][number - 1 :: of]
    ends, faults, began = Counter(), Counter(), time.process_time()
    with in_parts.cluster_here(pytest.MonkeyPatch()):
        for door in forms.DOORS:
            for cell, found in forms.walk([cell for cell in cells if cell.door == door]):
                ends[found.end] += 1
                faults.update(found.faults)
                if found.faults or found.end not in EXPECTED:
                    said = " ".join(found.said.split())[:160]
                    print(*found.faults, f"{cell}: {found.end}: {said}", flush=True)
    made, took = sum(ends.values()), time.process_time() - began
    print(f"{len(cells)} cells, {made} of which can be made, in {took:.0f} s of processor time")
    print("ends:", dict(ends.most_common()), "faults:", dict(faults))


if __name__ == "__main__":
    main()
