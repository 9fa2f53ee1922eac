"""Private counts of the rows of a table: histograms and cross tables.

Where to check the privacy claim: a call runs :func:`~dpsubspace._core.fits.estimator.run_privately`
and in it ``CountsPlan`` of ``_core/plans/counts.py``, whose ``run`` is all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, PrivateResult, footnote
from dpsubspace._core.fits.call import private_function
from dpsubspace._core.fits.estimator import run_privately
from dpsubspace._core.ground.checks import check_real, shown, shown_first
from dpsubspace._core.plans.counts import CountsPlan, interval_around, least_noise
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.records import check_groups
from dpsubspace._core.statistics.table_cells import CountNoise, holding
from dpsubspace._core.tables.cells import (
    CellColumn,
    cells_of_columns,
    read_columns,
    warn_of_unlisted,
)
from dpsubspace._core.tables.schema import as_schema, warn_of_persons
from dpsubspace._names import imported, public
from dpsubspace.statistics._printed_tables import as_html, as_text, with_notes

# Largest number of cells of a table, and of rows that are printed.
_MOST, _PRINTED = 10_000_000, 40


@public
@dataclass(frozen=True, eq=False, repr=False)
class PrivateCounts(PrivateResult):
    """Released counts of a histogram or of a cross table, with intervals.

    Printing shows the table, with its guarantee below.

    Parameters
    ----------
    columns : tuple of str
        Names of the columns, one for each axis of the arrays.
    labels : tuple of tuple
        What the cells along each axis are called: categories, or ranges of numbers as text. The
        last ones may be "not listed", for values that the schema does not have, and "missing".
    counts : ndarray
        Counts that are not negative and add up to `n`, also within the counts of each column.
    low, high : ndarray
        Ends of the interval of each count, by itself. It holds the count.
    noisy : ndarray
        Counts as they were released, with their noise.
    n : int
        Number of records, which is public.
    unit : str
        What is counted: ``"row"`` or ``"person"``.
    level : float
        How often an interval covers the exact count of these rows.
    mechanism : str
        What noise was added: ``"laplace"`` or ``"gaussian"``; ``"none"`` for an epsilon of inf.
    scale : float
        Scale of the Laplace noise of each count, or standard deviation of Gaussian noise.
    edges : dict of str to ndarray
        Edges of the cells of columns of numbers and dates.
    privacy_ : PrivacyGuarantee or None
        What the call cost, and what its guarantee assumes.

    See Also
    --------
    private_counts : Returns one.
    PrivateCountsDisplay : Draws one.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.statistics import PrivateCounts
    >>> counts = np.array([70.0, 30.0])
    >>> table = PrivateCounts(
    ...     ("ward",), (("A", "B"),), counts, counts - 3, counts + 3, counts, 100, "row", 0.95
    ... )
    >>> print(table)
    Rows by ward (n = 100; 95% intervals, for noise alone)
    ward  count   low  high
    A      70.0  67.0  73.0
    B      30.0  27.0  33.0
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[Any, ...], ...]
    counts: np.ndarray
    low: np.ndarray
    high: np.ndarray
    noisy: np.ndarray
    n: int
    unit: str
    level: float
    mechanism: str = "none"
    scale: float = 0.0
    edges: dict[str, np.ndarray] = field(default_factory=dict)
    privacy_: PrivacyGuarantee | None = None

    def margin(self, columns: str | Sequence[str]) -> PrivateCounts:
        """Give counts of some of the columns, added up over the others.

        Nothing more is released. The noise of a sum of k cells is about sqrt(k) times that of one,
        and the interval is that of the sum.

        Parameters
        ----------
        columns : str or list of str
            Columns to keep, in any order.

        Returns
        -------
        PrivateCounts
            Their counts, which add up as those of this table do.
        """
        kept = _names(columns, self.columns)
        gone = tuple(axis for axis, name in enumerate(self.columns) if name not in kept)
        left = [name for name in self.columns if name in kept]
        order = [left.index(name) for name in kept]
        k = math.prod(self.counts.shape[axis] for axis in gone)
        counts, noisy = (each.sum(axis=gone).transpose(order) for each in (self.counts, self.noisy))
        low, high = holding(counts, *interval_around(noisy, self._noise, self.level, k, self.n))
        return replace(
            self,
            columns=tuple(kept),
            labels=tuple(self.labels[self.columns.index(name)] for name in kept),
            counts=counts,
            low=low,
            high=high,
            noisy=noisy,
            scale=self.scale if k == 1 else math.nan,
            edges={name: edge for name, edge in self.edges.items() if name in kept},
        )

    def to_frame(self) -> Any:
        """Give the counts as a data frame of pandas, a row for each cell.

        Returns
        -------
        DataFrame
            The columns of the table, and "count", "low", "high", "share" (of all `n`) and "noisy".
        """
        import pandas as pd

        cells = zip(*product(*self.labels), strict=True)
        frame = pd.DataFrame(dict(zip(self.columns, map(list, cells), strict=True)))
        for name, values in (("count", self.counts), ("low", self.low), ("high", self.high)):
            frame[name] = values.ravel()
        frame["share"] = self.counts.ravel() / self.n
        frame["noisy"] = self.noisy.ravel()
        return frame

    def plot(self, ax: Any = None, **plot_params: Any) -> Any:
        """Draw the counts of one or two columns with their intervals; this costs nothing more.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in. None makes new ones.
        **plot_params : dict
            Passed to :meth:`PrivateCountsDisplay.plot`.

        Returns
        -------
        PrivateCountsDisplay
            The picture and its data.

        Raises
        ------
        ValueError
            If there are more than two columns.
        ImportError
            If matplotlib is not installed.
        """
        return imported("PrivateCountsDisplay").from_counts(self, ax=ax, **plot_params)

    @property
    def _noise(self) -> CountNoise:
        if math.isnan(self.scale):
            raise ValueError(
                "take margins of the whole table: this one has noise of several cells."
            )
        return CountNoise(self.mechanism, self.scale)

    @property
    def _title(self) -> str:
        return (
            f"{self.unit.capitalize()}s by {' and '.join(self.columns)} (n = {self.n:,};"
            f" {100 * self.level:g}% intervals, for noise alone)"
        )

    def _lines(self) -> tuple[list[list[str]], int]:
        """Return the cells of a printed table, its head first, and the number of rows left out."""
        n_cells, lines = self.counts.size, [[*self.columns, "count", "low", "high"]]
        for place in range(min(n_cells, _PRINTED)):
            at = np.unravel_index(place, self.counts.shape)
            names = [str(names[i]) for names, i in zip(self.labels, at, strict=True)]
            numbers = (values[at] for values in (self.counts, self.low, self.high))
            lines.append([*names, *(f"{number:,.1f}" for number in numbers)])
        return lines, n_cells - (len(lines) - 1)

    def __repr__(self) -> str:
        lines, more = self._lines()
        rest = [f"... and {more:,} more cells: see to_frame()"] if more else []
        printed = [self._title, *as_text(lines, len(self.columns)), *rest]
        return with_notes(printed, footnote(self.privacy_))

    def _repr_html_(self) -> str:
        lines, more = self._lines()
        rest = f"and {more:,} more cells: see to_frame()" if more else ""
        return as_html(self._title, lines, len(self.columns), rest, footnote(self.privacy_))


@private_function
def private_counts(
    frame: Any,
    schema: Any,
    columns: Any,
    *,
    bins: Any = 10,
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    level: float = 0.95,
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> PrivateCounts:
    """Release how many rows of a table are in each cell: a histogram, or a cross table.

    The cells are public: categories of the schema, and ranges between public edges for numbers.
    Every cell is counted, also where nobody is, and none is suppressed. Each count has an interval.

    Parameters
    ----------
    frame : data frame of n_samples rows, of pandas, Polars, Arrow or Dask
        Private rows. An array must have the columns of the schema, in its order.
    schema : Schema or dict
        What is public about the columns: see :class:`Schema`.
    columns : str or list of str
        One column of the schema for a histogram, or several for a cross table of all of them.
    bins : int, list of float, or dict of str to either, default=10
        Cells of columns of numbers: how many between the ends of the range in the schema (equal
        ones, on the logarithmic scale of a column with ``log=True``), or their public edges. A cell
        holds its lower edge and not its upper one. The first and the last also hold all numbers
        beyond them, and are called ``"(-inf, 40)"`` and ``"[80, inf)"`` where the range of the
        schema goes on there. Those of dates are dates, and cells begin on whole days. A dict is by
        column. It has no effect on columns of categories.
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
        Inside of a :class:`PrivacyLedger` it must be given.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`. "auto" is 0, for which Laplace
        noise is best, and inside a :class:`PrivacyLedger` it is the ledger's delta.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides. "zero_out" hides whether a row was used; "replace_one" hides what
        a row says, and needs up to twice the noise. The number of rows is public in both.
    level : float, default=0.95
        How often intervals are to cover the exact number of these rows. They are about noise alone,
        and each is for one number by itself.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.
    groups : array-like of shape (n_samples,), optional
        Who each row belongs to, in numbers or text. All rows of one person are then protected
        together: the unit of the guarantee is the person, and the number of persons takes the
        place of the number of rows in everything that follows from it. A person's rows count
        as one row: each of ten rows counts for a tenth. None protects single rows, and a column
        outside the schema with a name such as "patient_id" then draws a warning.

    Returns
    -------
    PrivateCounts
        Counts with intervals, and what the call cost as ``privacy_``.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used; nothing has been
        released then and no privacy spent.

    See Also
    --------
    private_summary : Counts, shares, means and quantiles of all columns of a table.
    private_quantile : Quantiles without cells.

    Notes
    -----
    Released: the counts of all cells, once. A row is in one cell. Where it becomes null, one count
    moves by 1 (L1 and L2 norm 1); where it is replaced, one falls by 1 and another rises by 1 (L1
    norm 2, L2 norm sqrt(2)). Rows of a person count for parts that add up to at most 1, and what
    they bring is a weighted mean of what single rows would bring: the same bounds hold. The noise
    of a count therefore does not depend on how many cells there are. Event: one Laplace mechanism
    of `epsilon`, or one Gaussian mechanism. Assumed public: the number of rows (with `groups`, of
    persons), the schema, the edges of cells, all parameters, and that the data pass the checks.

    Outside of a ledger Laplace noise is taken, which has no delta, unless another `delta` is given
    with which Gaussian noise makes shorter intervals. Inside of a :class:`PrivacyLedger` with a
    delta noise is Gaussian, since it adds up with everything else there at the least cost.
    At epsilon 1 intervals of 95 % are 3.0 counts to either side with Laplace noise and, at a delta
    of 1e-5, 7.3 with Gaussian noise. `mechanism` and `scale` of the result say what was taken.

    With `groups`, a count is a number of persons: someone whose rows are all in one cell counts
    there as 1, and someone with half of the rows in each of two cells as a half in both. The counts
    add up to the number of persons. To count persons who ever had a value, make one row of each
    person first, which is a step inside of a person and costs nothing. The number of rows that are
    in a cell has no bound for one person, and is not released.

    An interval goes as far to either side of the released count as noise goes with the chance
    `level`, and is cut to 0 and n. A released count below 0 or above n is brought to that number
    first. This brings it nearer to any count that is possible, so that the interval covers
    whenever it would have covered otherwise, and an interval from 0 to 0 never says that a cell is
    surely empty. Intervals cover the exact count of these rows, and not that of a population
    from which they may have been drawn. `counts` is
    postprocessing: the margins of each column are brought to the nearest numbers that are not
    negative and add up to n, and the cells to the nearest that have these margins. An interval
    that such a count would lie outside of is widened to it.

    In a table of many cells, noise makes counts where nobody is. Of K empty cells, about
    ``K / (2 e^epsilon)`` are released as 1 or more with Laplace noise, and each has the noise that
    a single cell would have. A warning says how many to expect, before anything is charged, where
    the average count is below the noise.

    SQL, joins of tables, cells whose names are private as well, and survey weights are beyond this
    function: see OpenDP and Tumult Analytics.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dpsubspace import private_counts
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame(
    ...     {"age": rng.integers(18, 90, 5000), "ward": rng.choice(["A", "B"], 5000)}
    ... )
    >>> schema = {"age": (18, 90), "ward": ["A", "B"]}
    >>> found = private_counts(
    ...     table, schema, ["age", "ward"], bins={"age": [18, 40, 65, 90]}, epsilon=1.0
    ... )
    >>> found.counts.shape  # 3 ranges of ages; wards A, B and any other
    (3, 3)
    >>> round(found.counts.sum())
    5000
    >>> ages = found.margin("age")
    >>> bool(abs(ages.counts[0] - (table["age"] < 40).sum()) < 50)
    True
    """
    target = Target(epsilon, delta, neighboring_relation).checked(pure=True)
    check_real("level", level, low=0, high=1)
    schema = as_schema(schema)
    names = _names(columns, tuple(schema))
    axes = cells_of_columns(schema, names, bins)
    shape = tuple(len(axis.labels) for axis in axes)
    if math.prod(shape) > _MOST:
        raise ValueError(
            f"these columns have {math.prod(shape):,} cells together, and at most {_MOST:,} are"
            " counted: take fewer columns, or fewer `bins`."
        )
    table, part = read_columns(frame, schema, names, groups)
    warn_of_persons(frame, schema, groups)
    records = check_groups(groups, table.numbers)
    target, kind = least_noise(target, records.n, float(level))
    plan, noise = CountsPlan(target, kind, part, axes, float(level)), as_noise(random_state)
    (counts, low, high, noisy, added), guarantee = run_privately(
        plan, table, records, len(names), noise
    )
    found = PrivateCounts(
        tuple(names),
        tuple(axis.labels for axis in axes),
        counts,
        low,
        high,
        noisy,
        records.n,
        records.unit,
        float(level),
        added.mechanism,
        added.scale,
        {a.name: schema[a.name]._shown(a.edges) for a in axes if a.edges is not None},
        guarantee,
    )
    warn_of_unlisted(_unlisted(found, axes), schema)
    return found


def _unlisted(found: PrivateCounts, axes: Sequence[CellColumn]) -> dict[str, float]:
    """Return the least share of unlisted values of columns of categories, by released counts."""
    codes = {axis.name: axis.n_values for axis in axes if axis.edges is None}
    return {name: float(found.margin(name).low[cell]) / found.n for name, cell in codes.items()}


def _names(columns: Any, known: tuple[str, ...]) -> list[str]:
    names = [columns] if isinstance(columns, str) else list(columns)
    if absent := [name for name in names if name not in known]:
        raise ValueError(
            f"`columns` names {shown(absent)}, which are none of {shown_first(known)}."
        )
    if not names or len(set(names)) < len(names):
        raise ValueError(f"`columns` must name one or more columns, each once, got {shown(names)}.")
    return names
