"""A private summary of a table, by group, like the first table of many papers.

Where to check the privacy claim: a call runs :func:`~dpsubspace._core.fits.estimator.run_privately`
and in it ``SummaryPlan`` of ``_core/plans/summary.py``, whose ``run`` is all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, PrivateResult, footnote
from dpsubspace._core.fits.call import private_function
from dpsubspace._core.fits.estimator import run_privately
from dpsubspace._core.ground.checks import check_bool, check_real, shown, shown_first
from dpsubspace._core.plans.summary import SummaryEntry, SummaryPlan
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.records import check_groups
from dpsubspace._core.statistics.quantiles import refuse_exact_quantiles
from dpsubspace._core.tables.cells import NO_GROUP, NO_VALUE, UNLISTED, warn_of_unlisted
from dpsubspace._core.tables.dates import text_of
from dpsubspace._core.tables.schema import as_schema, read_anywhere, warn_of_persons
from dpsubspace._names import public
from dpsubspace.statistics._printed_tables import as_html, as_text, with_notes


@dataclass(frozen=True, eq=False, repr=False)
class PrivateComparison:
    """Difference of one number between two groups, with its interval; printing shows both."""

    name: str
    groups: tuple[Any, Any]  # The first minus the second
    value: float
    low: float
    high: float
    level: float
    population: bool  # Whether it is about the population of the rows, not about these rows

    def __repr__(self) -> str:
        about = "noise and sampling" if self.population else "noise alone"
        value, low, high = (f"{each:.3g}" for each in (self.value, self.low, self.high))
        first, second = self.groups
        return (
            f"{self.name}, {first} minus {second}: {value} ({100 * self.level:g}% interval {low} to"
            f" {high}, for {about})"
        )


@public
@dataclass(frozen=True, eq=False, repr=False)
class PrivateSummary(PrivateResult):
    """Released counts, shares, means, deviations and quantiles of a table, with intervals.

    Printing shows a table as papers have it, with its guarantee below.

    Parameters
    ----------
    entries : tuple of SummaryEntry
        All numbers: each has `column`, `statistic`, `category`, `group`, `value`, `low`, `high`.
        Where the table is split, the group ``"no group"`` has a size alone: that of rows whose
        value is missing or not listed.
    groups : tuple
        Groups, in order; ``("all",)`` where the table is not split.
    by : str or None
        Column that the groups are categories of.
    n : int
        Number of records, which is public.
    unit : str
        What is counted: ``"row"`` or ``"person"``.
    level : float
        How often an interval covers the exact number of these rows.
    noise : dict of str to float
        Standard deviations of the noise: of "counts", of sums in units of half a range ("moments")
        and of the counts of each stage of a search ("quantiles").
    privacy_ : PrivacyGuarantee or None
        What the call cost, and what its guarantee assumes.
    dates : tuple of str
        Columns of dates, whose means and quantiles in `entries` are days since 1970-01-01, and are
        printed as dates. Their standard deviations are numbers of days.

    See Also
    --------
    private_summary : Returns one.

    Examples
    --------
    >>> from dpsubspace.statistics import PrivateSummary
    >>> entries = [("age", "mean", None, "all", 41.5, 41.2, 41.8)]
    >>> print(PrivateSummary(entries, ("all",), None, 900, "row", 0.95))
    Summary of 900 rows (95% intervals, for noise alone)
               all
    age, mean  41.50 (41.20 to 41.80)
    """

    entries: Sequence[SummaryEntry]
    groups: tuple[Any, ...]
    by: str | None
    n: int
    unit: str
    level: float
    noise: dict[str, float] = field(default_factory=dict)
    privacy_: PrivacyGuarantee | None = None
    dates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", tuple(SummaryEntry(*each) for each in self.entries))

    def to_frame(self) -> Any:
        """Give all numbers as a data frame of pandas, a row for each.

        Returns
        -------
        DataFrame
            Columns "column", "statistic", "category", "group", "value", "low" and "high".
        """
        import pandas as pd

        return pd.DataFrame(list(self.entries), columns=list(SummaryEntry._fields))

    def entry(
        self, column: str, statistic: str, *, category: Any = None, group: Any = None
    ) -> SummaryEntry:
        """Give one number with its interval.

        Parameters
        ----------
        column : str
            Its column; "" for the sizes of groups.
        statistic : str
            "count", "share", "mean", "standard deviation", "lower quartile", "median" or "upper
            quartile".
        category : object or None, default=None
            Category that a count or a share is about; "missing" for missing values.
        group : object or None, default=None
            Its group, or "no group" for how many rows are in none. None where there is one.

        Returns
        -------
        SummaryEntry
            The number.

        Raises
        ------
        ValueError
            If there is no such number.
        """
        group = self.groups[0] if group is None and len(self.groups) == 1 else group
        wanted = (column, statistic, category, group)
        for each in self.entries:
            if each[:4] == wanted:
                return each
        known = list(dict.fromkeys(each[1:3] for each in self.entries if each.column == column))
        raise ValueError(
            f"the summary has no entry with column={shown(column)}, statistic={shown(statistic)},"
            f" category={shown(category)} and group={shown(group)}. Its groups are"
            f" {shown_first(self.groups)}, and the pairs of statistic and category of this column"
            f" are {known}."
        )

    def compare(
        self,
        column: str,
        group: Any,
        other: Any,
        *,
        category: Any = None,
        statistic: str | None = None,
        population: bool = False,
    ) -> PrivateComparison:
        """Compare two groups: the difference of a mean or of a share, with an interval.

        Nothing more is released, so that this costs nothing.

        Parameters
        ----------
        column : str
            Column to compare.
        group : object
            First group.
        other : object
            Second group, which is subtracted.
        category : object or None, default=None
            Category of which shares are compared, which a column of categories needs. None for
            a column of numbers.
        statistic : str or None, default=None
            What is compared, as in :meth:`entry`. None compares means of a column of numbers, and
            shares of a category.
        population : bool, default=False
            Whether the rows are a sample, as those of a study are. The interval is then for the
            difference in the population that they were drawn from, and is wider. False gives an
            interval for the difference of these rows. Only means and shares can be compared for a
            population.

        Returns
        -------
        PrivateComparison
            The difference, as `value`, `low` and `high`.

        Raises
        ------
        ValueError
            If the summary has no such numbers.

        Notes
        -----
        From the interval of each group and its distance to the value, the interval of the
        difference follows as for two independent numbers (Zou and Donner, 2008). For a population,
        variances of sampling are added, with deviations, shares and sizes as released: then the
        level is about right where each group has many more records than the noise of a count. With
        persons that have several rows it is too wide.
        """
        statistic = statistic or ("mean" if category is None else "share")
        if check_bool("population", population) and statistic not in ("mean", "share"):
            raise ValueError("`population` is for means and shares: leave it False.")
        first, second = (
            self.entry(column, statistic, category=category, group=each) for each in (group, other)
        )
        z = float(ndtri((1 + self.level) / 2))
        of = "" if category is None else f" of {category}"
        name, pair = f"{column}, {statistic}{of}", (group, other)
        value = first.value - second.value
        if math.isnan(value):  # a share of no rows
            ends = (first.low - second.high, first.high - second.low)
            return PrivateComparison(name, pair, value, *ends, self.level, bool(population))
        drawn = sum(self._sampling(each) for each in (first, second)) if population else 0.0
        down = math.hypot(first.value - first.low, second.high - second.value, z * drawn**0.5)
        up = math.hypot(first.high - first.value, second.value - second.low, z * drawn**0.5)
        low, high = value - down, value + up
        if statistic == "share":
            low, high = max(low, -1.0), min(high, 1.0)
        return PrivateComparison(name, pair, value, low, high, self.level, bool(population))

    def _sampling(self, entry: SummaryEntry) -> float:
        """Return the variance of a mean or of a share over samples of a population."""
        where: dict[str, Any] = {"group": entry.group}
        size = self.entry("", "count", **where).value
        gaps = [
            e.value for e in self.entries if e[:4] == (entry.column, "count", NO_VALUE, entry.group)
        ]
        size = max(size - sum(gaps), 1.0)
        if entry.statistic == "mean":
            return self.entry(entry.column, "standard deviation", **where).value ** 2 / size
        return entry.value * (1 - entry.value) / size

    # Printing -------------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        split = "" if self.by is None else f" by {self.by}"
        return (
            f"Summary of {self.n:,} {self.unit}s{split} ({100 * self.level:g}% intervals, for noise"
            " alone)"
        )

    def _lines(self) -> list[list[str]]:
        cells: dict[tuple, dict[Any, str]] = {}
        shares = {
            (e.column, e.category, e.group): e for e in self.entries if e.statistic == "share"
        }
        counted = [e for e in self.entries if e.statistic == "count"]
        # Unlisted values that noise hides have a count of 0 in all groups.
        empty = {(e.column, e.category) for e in counted if e.category == UNLISTED}
        empty -= {(e.column, e.category) for e in counted if e.value > 0}
        outside = any(e.group == NO_GROUP and e.value > 0 for e in counted)
        groups = (*self.groups, NO_GROUP) if outside else self.groups
        for each in self.entries:
            if each.statistic == "share" or (each.column, each.category) in empty:
                continue
            share = shares.get((each.column, each.category, each.group))
            told = _of_date if self._is_date(each) else _of_number
            text = told(each) if share is None else _of_count(each, share)
            cells.setdefault(each[:3], {})[each.group] = text
        lines = [["", *map(str, groups)]]
        for (column, statistic, category), by_group in cells.items():
            name = statistic if category is None else str(category)
            name = f"{column}, {name}" if column else f"{self.unit}s"
            lines.append([name, *(by_group.get(group, "") for group in groups)])
        return lines

    def _is_date(self, entry: SummaryEntry) -> bool:
        return entry.column in self.dates and entry.statistic != "standard deviation"

    def __repr__(self) -> str:
        lines = self._lines()
        printed = [self._title, *as_text(lines, len(lines[0]))]
        return with_notes(printed, footnote(self.privacy_))

    def _repr_html_(self) -> str:
        return as_html(self._title, self._lines(), 1, footnote(self.privacy_))


def _of_number(entry: SummaryEntry) -> str:
    width = entry.high - entry.low
    if math.isnan(width):  # without noise, if there are no values
        return "none"
    width = 0.0 if width <= 1e-9 * abs(entry.high) else width
    digits = 2 if width == 0 else min(max(1 - math.floor(math.log10(width)), 0), 6)
    largest = max(abs(entry.low), abs(entry.high))
    if width and largest:  # four digits are enough, however short the interval is
        digits = min(digits, max(3 - math.floor(math.log10(largest)), 0))
    digits = 0 if entry.statistic == "count" else digits
    value, low, high = (f"{each:,.{digits}f}" for each in entry[4:])
    return f"{value} ({low} to {high})" if width > 0 else value


def _of_date(entry: SummaryEntry) -> str:
    if math.isnan(entry.value):
        return "none"
    value, low, high = map(text_of, (entry.value + 0.5, entry.low, math.ceil(entry.high)))
    return f"{value} ({low} to {high})" if entry.high > entry.low else value


def _of_count(entry: SummaryEntry, share: SummaryEntry) -> str:
    if math.isnan(share.value):  # a share of no rows
        return f"{entry.value:,.0f} (share unknown)"
    value, low, high = (f"{100 * each:.1f}" for each in share[4:])
    interval = f", {low} to {high}" if share.high > share.low else ""
    return f"{entry.value:,.0f} ({value}%{interval})"


# The function -----------------------------------------------------------------------------------


@private_function
def private_summary(
    frame: Any,
    schema: Any,
    *,
    by: str | None = None,
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    level: float = 0.95,
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> PrivateSummary:
    """Release a summary of a table, by group: the first table of most papers.

    For each column of categories: how many rows have each of them, and what share that is. For each
    column of numbers or dates: mean, standard deviation, median and quartiles. For all: how many
    values are missing. Each number has an interval, and no cell is suppressed.

    Parameters
    ----------
    frame : data frame of n_samples rows, of pandas, Polars, Arrow or Dask
        Private rows. An array must have the columns of the schema, in its order.
    schema : Schema or dict
        What is public about the columns: see :class:`Schema`. All of its columns are summarised,
        and columns of numbers need a public :class:`Range`. Numbers of a :class:`Date` are days,
        and are printed as dates.
    by : str or None, default=None
        Column of categories in the schema. Each of its categories has numbers of its own.
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
        Inside of a :class:`PrivacyLedger` it must be given.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`, in (0, 1) and far below
        ``1 / n_samples``. "auto" is ``min(1e-5, 1 / (10 n_samples))``, and inside a
        :class:`PrivacyLedger` it is the ledger's delta.
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
    PrivateSummary
        All numbers with intervals, and what the call cost as ``privacy_``.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used; nothing has been
        released then and no privacy spent.

    See Also
    --------
    private_counts : Histograms and cross tables.
    private_mean : The mean of private rows, also without public ranges.

    Notes
    -----
    Released, each with Gaussian noise: (1) counts of the categories of each column, with those that
    are not listed or missing, in each group; (2) of each column of numbers and each group, the sums
    of u and of ``2 u^2 - 1``, where u is the number in units of half its range, from -1 to 1; (3)
    at each of 12 stages of a search, counts of the numbers between the midpoints of three searches,
    for each column and group. A row is in one group. It is in one cell of each of the c tables of
    counts, so that they have the L2 sensitivity sqrt(c) (``"zero_out"``) or sqrt(2 c)
    (``"replace_one"``). To the sums of d columns it contributes 2 d numbers from -1 to 1: sqrt(2
    d), or twice that. It is in one cell of each of d columns at each stage: sqrt(d) or sqrt(2 d).
    Rows of a person count for parts that add up to at most 1, for the same bounds. Event: Gaussian
    mechanisms, calibrated together. Assumed public: the number of rows (with `groups`, of persons),
    the schema, all parameters, and that the data pass the checks.

    How the budget is split: of mu^2, which adds up over Gaussian mechanisms, each table of counts
    has one part, the two sums of a column have two, and the search in a column has four. Every
    count, every sum (in units of half a range) and, within a factor of 1.7, every rank then has
    noise of the same size, counted in rows, whatever the schema. With more columns all get noisier
    together, in proportion to the square root of their number. Leave out of the schema what the
    paper does not need.

    Intervals are about noise alone, which is known exactly, and cover the number that these rows
    give. They are not about a population. Counts, shares and means have exact levels: the latter
    are quotients of released numbers (Fieller, 1954). Those of standard deviations are about right
    (Zou and Donner, 2008), and those of quantiles cover more often than they say. Standard
    deviations divide by the number of values. Numbers outside of their range count as its nearer
    end, and the intervals are about the numbers after that. Quantiles are looked for among 4,096
    numbers of a range, evenly on its scale.

    All that is printed agrees: the sizes of groups are estimated from all tables together and add
    up to n with rows of no listed group, and the counts of each column add up to the size of the
    group and are not negative. Printing leaves out "not listed" where it may be 0 in all groups;
    :meth:`PrivateSummary.to_frame` has it.

    With `groups`, counts are numbers of persons, as in :func:`private_counts`, means are those of a
    row drawn from a person drawn at random, and quantiles likewise.

    References
    ----------
    Fieller. "Some problems in interval estimation". Journal of the Royal Statistical Society B 16,
    1954.

    Zou, Donner. "Construction of confidence limits about effect measures: a general approach".
    Statistics in Medicine 27, 2008.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dpsubspace import private_summary
    >>> rng = np.random.default_rng(0)
    >>> table = pd.DataFrame(
    ...     {"age": rng.normal(60, 10, 8000), "ward": rng.choice(["A", "B"], 8000)}
    ... )
    >>> schema = {"age": (18, 100), "ward": ["A", "B"]}
    >>> summary = private_summary(table, schema, by="ward", epsilon=1.0)
    >>> median = summary.entry("age", "median", group="A")
    >>> bool(median.low <= median.value <= median.high and abs(median.value - 60) < 2)
    True
    >>> difference = summary.compare("age", "A", "B")
    >>> bool(difference.low < difference.value < difference.high)
    True
    """
    target = Target(epsilon, delta, neighboring_relation).checked()
    check_real("level", level, low=0, high=1)
    schema = as_schema(schema)
    plan = SummaryPlan.of(target, schema, by, float(level))
    table = read_anywhere(frame, schema, name="frame", groups=groups)
    warn_of_persons(frame, schema, groups)
    records = check_groups(groups, table.numbers)
    if schema.numbers:
        refuse_exact_quantiles(target, table.numbers)
    noise = as_noise(random_state)
    found, guarantee = run_privately(plan, table, records, len(schema), noise)
    entries = tuple(found.entries(float(level)))
    warn_of_unlisted(plan.unlisted(entries, records.n), schema)
    return PrivateSummary(
        entries,
        plan.groups,
        by,
        records.n,
        records.unit,
        float(level),
        found.noise,
        guarantee,
        tuple(name for name, kind in schema.items() if kind._parts),
    )
