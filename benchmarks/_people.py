"""Tables of people with rows of their own: pupils of schools, viewers of films, patients.

``load(name)`` gives ``People``: rows, targets, whose they are, public ranges, and the tasks of
those people who are public. ``<name>_public`` has public people, and all others are private.
Files are found as in ``_data.py``, in the folder that ``DPSUBSPACE_DATA`` names; OpenML has no
counterpart with the same groups, which the error says.

usage: DPSUBSPACE_DATA=folder python benchmarks/_people.py [name ...]
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import _data
import _tables
import numpy as np

FIRST_YEAR, LAST_YEAR = 1900, 2016


@dataclass(frozen=True)
class People:
    """Rows and targets of private people 0 .. `count` - 1, and public people as tasks."""

    X: np.ndarray
    y: np.ndarray
    people: np.ndarray
    bounds: _tables.Range
    target_bounds: tuple[float, float]
    public: tuple[tuple[np.ndarray, np.ndarray], ...] = ()

    @property
    def count(self) -> int:
        """Number of private people."""
        return int(self.people.max()) + 1


PEOPLE: dict[str, Callable[[], People]] = {}


def _people(function: Callable[[], People]) -> Callable[[], People]:
    PEOPLE[function.__name__] = function
    return function


@cache
def load(name: str) -> People:
    """Return the table called `name`."""
    if name not in PEOPLE:
        raise KeyError(f"no table {name!r}; there are {', '.join(PEOPLE)}")
    return PEOPLE[name]()


def _apart(whole: People, number: int) -> People:
    """The first `number` people are public."""
    private = whole.people >= number
    tasks = tuple((whole.X[whole.people == j], whole.y[whole.people == j]) for j in range(number))
    left = {"X": whole.X[private], "y": whole.y[private], "people": whole.people[private] - number}
    return replace(whole, **left, public=tasks)


@_people
def school() -> People:
    """Examination scores of pupils: a school is a person here."""
    table = _tables.load("school")
    (schools,) = _data.needed("school", ("task",))
    return People(table.X, table.y, schools.astype(int), table.bounds, table.target_bounds)


@_people
def school_public() -> People:
    """The first 40 schools are public."""
    return _apart(load("school"), 40)


@_people
def movielens() -> People:
    """Ratings of films by their genres and year."""
    names = ("user", "movie", "rating", "movie_genres", "movie_year")
    user, movie, rating, genres, year = _data.needed("movielens_small", names)
    year = np.where(year == 0, (FIRST_YEAR + LAST_YEAR) // 2, year)
    X = np.column_stack([genres, year])[movie].astype(float)
    low = np.append(np.zeros(genres.shape[1]), FIRST_YEAR)
    high = np.append(np.ones(genres.shape[1]), LAST_YEAR)
    return People(X, rating.astype(float), user.astype(int) - 1, (low, high), (0.5, 5.0))


@_people
def movielens_public() -> People:
    """The first 200 viewers are public."""
    return _apart(load("movielens"), 200)


@_people
def parkinsons() -> People:
    """Recordings of the voices of 42 patients; scores between visits are interpolated."""
    table = _tables.load("parkinsons")
    (patient,) = _data.needed("parkinsons_telemonitoring", ("subject",))
    return People(table.X, table.y, patient.astype(int) - 1, table.bounds, table.target_bounds)


def main() -> None:
    for name in sys.argv[1:] or PEOPLE:
        table = load(name)
        sizes = np.bincount(table.people)
        print(
            f"{name:<17} {table.X.shape}, {table.count} people with {sizes.min()} to {sizes.max()}"
            f" rows (median {np.median(sizes):g}), {len(table.public)} public"
        )


if __name__ == "__main__":
    main()
