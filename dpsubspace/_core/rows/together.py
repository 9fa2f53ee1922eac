"""Rows of persons in parts: all rows of a person are brought to one part, by a public hash.

Each part distributes its rows to all parts, and each part gathers what it receives: rows go from
worker to worker, and none comes to the client. The part for a person's rows follows from the name
of the person and from nothing else, for rows of numbers, rows of a table as its schema has read
them, and outputs of a model for rows. Parts have consecutive ranges of hashes, and persons of a
part are in the order of their hashes, so that persons have the same numbers whatever the number of
workers. Rows of a person keep their order.

Privacy: a part then holds all rows of each of its persons, and a sum over the part is the sum of a
fit in memory over these persons. Each person is in exactly one part, so that the total over all
parts is a sum over persons with the bounds that it has in memory: a person who becomes null, or is
replaced, contributes other numbers to one term of it, and the contributions of all other persons
are the same (who the persons are, by name, is the same in both of two neighbours). Their position
in a chunk may change, as in memory: :meth:`~dpsubspace._core.rows.records.Records.slack` counts the
whole rounding of both sums for records of several rows, in whatever order and chunks they are
added. The number of persons is public. The number of their rows is private, in all parts together
as in each of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# The person of each row, by name, until the rows of each person are together.
NAMES = "names"

# In a part: the number of the person of each row, from 0, and how many persons there are.
PERSONS, HELD = "persons", "held"

# Whether the person of each row is no null record: for tests and audits alone.
PRESENT = "present"


def dealt(arrays: dict[str, np.ndarray], n_parts: int) -> list[dict[str, np.ndarray]]:
    """Split the rows of a part into rows for each of all parts, in their order."""
    hashes = hashes_of(arrays[NAMES])
    # Ranges of hashes of the same length; the product with their upper halves cannot overflow.
    place = (hashes >> np.uint64(32)) * np.uint64(n_parts) >> np.uint64(32)
    order = np.argsort(place, kind="stable")
    ends = np.searchsorted(place[order], np.arange(1, n_parts))
    pieces = [{} for _ in range(n_parts)]
    for name, array in arrays.items():
        for piece, some in zip(pieces, np.split(array[order], ends), strict=True):
            piece[name] = some
    return pieces


def gathered(pieces: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Join the rows that a part receives, person by person; raise ValueError for mixed names."""
    joined = joined_names([piece[NAMES] for piece in pieces])
    names, index = np.unique(joined, return_inverse=True)
    arrays = {
        name: np.concatenate([piece[name] for piece in pieces])
        for name in pieces[0]
        if name != NAMES
    }
    by_hash = np.argsort(hashes_of(names), kind="stable")
    number = np.empty(len(names), dtype=np.int64)
    number[by_hash] = np.arange(len(names))
    persons = number[index.reshape(-1)]
    order = np.argsort(persons, kind="stable")
    found = {name: array[order] for name, array in arrays.items()}
    return found | {PERSONS: persons[order], HELD: np.array([len(names)])}


def joined_names(names: list[np.ndarray]) -> np.ndarray:
    """Return the names of several blocks; raise ValueError if they are of different types.

    1 and "1" would be two persons. Text is as wide as the longest name of a block, and for a block
    without rows the type of its names would not be known. Numbers of a block are integers if all of
    them are whole, so that those of one column can be of two types: 5 and 5.0 are one person.
    """
    some = [each for each in names if len(each)] or names[:1]
    if {each.dtype for each in some} == {np.dtype(np.int64), np.dtype(np.float64)}:
        integers = [each for each in some if each.dtype == np.int64]
        if max(int(np.abs(each).max()) for each in integers) < _WHOLE:
            some = [each.astype(np.float64) for each in some]
    types = {"text" if each.dtype.kind == "U" else str(each.dtype) for each in some}
    if len(types) > 1:
        found = " and ".join(sorted(types))
        raise ValueError(f"`groups` has blocks of {found}: give all blocks one type, by astype.")
    return np.concatenate(some)


def hashes_of(names: np.ndarray) -> np.ndarray:
    """Return a public hash of each name, 64 bits, which is the same for equal names in any block.

    A number that is whole has the hash of the integer, whatever other numbers lie beside it.
    """
    if not len(names):
        return np.empty(0, dtype=np.uint64)
    if names.dtype.kind == "U":
        width = names.dtype.itemsize // 4
        letters = np.ascontiguousarray(names).view(np.uint32).reshape(len(names), width)
        words, factor = np.zeros(len(names), dtype=np.uint64), 1
        for column in letters.T:  # characters behind the end of a shorter name are 0
            words += column * np.uint64(factor)
            factor = factor * _FACTOR % 2**64
    elif names.dtype.kind == "f":
        integers = np.where(whole(names), names, 0.0).astype(np.int64)
        words = np.where(whole(names), integers.view(np.uint64), names.view(np.uint64))
    else:
        words = names.view(np.uint64).copy()
    return _mixed(words)


def whole(values: np.ndarray) -> np.ndarray:
    """Return whether floats are integers that are the same in either type."""
    return (np.abs(values) < _WHOLE) & (values == np.rint(values))


_WHOLE, _FACTOR = 2.0**53, 0x9E3779B97F4A7C15


def _mixed(words: np.ndarray) -> np.ndarray:
    """Mix words: each bit depends on all bits (the finaliser of Steele, Lea, Flood, 2014)."""
    words = words + np.uint64(_FACTOR)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def parts_of_persons(persons: np.ndarray, held: np.ndarray, steps: float) -> np.ndarray:
    """Return each row's part of its person: see ``Records.of_groups``."""
    counts = np.bincount(persons, minlength=int(held[0]))
    return (np.floor(steps / np.maximum(counts, 1)) / steps)[persons]


def name_array(values: Any) -> np.ndarray:
    """Return the names of a block in one of a few types: 64 bits, or text."""
    kind = values.dtype.kind
    if kind in "biu":
        if kind == "u" and len(values) and values.max() >= 2**63:
            raise ValueError("`groups` has whole numbers of 2^63 or more: pass them as text.")
        return values.astype(np.int64)
    if kind == "f":
        return values.astype(np.float64) + 0.0  # -0 is 0
    return values
