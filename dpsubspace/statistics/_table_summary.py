"""A private summary of a table, by group: what papers print as their first table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, PrivateResult
from dpsubspace._core.fits.call import private_function
from dpsubspace._core.fits.estimator import PrivateCall
from dpsubspace._core.ground.arrays import plain_arithmetic
from dpsubspace._core.ground.checks import check_bool, check_real, shown, shown_first
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records, check_groups
from dpsubspace._core.rows.remote import rowwise, sum_over_parts
from dpsubspace._core.statistics.quantiles import refuse_exact_quantiles
from dpsubspace._core.statistics.table_cells import (
    STAGES,
    GroupedCounts,
    GroupSizes,
    Quantiles,
    Ratio,
    agreeing,
    around,
    cell_total,
    counts_sum,
    exact_quantiles,
    holding,
    onto_total_of_seen,
    searched_quantiles,
    unit_sums,
    unit_total,
)
from dpsubspace._core.tables.cells import (
    NO_GROUP,
    NO_VALUE,
    UNLISTED,
    cells_of_codes,
    in_unit,
    middle_of,
    scale_points,
    values_of,
    warn_of_unlisted,
)
from dpsubspace._core.tables.schema import Schema, Table, as_schema, read_anywhere
from dpsubspace._names import public
from dpsubspace.exceptions import PrivacyWarning, warn
from dpsubspace.statistics._printed_tables import as_html, as_text

# What each release has of the budget (of mu^2), for each of its columns. Counts, sums in units of
# half a range, and ranks then have about the same noise, in records: twelve stages share the four
# parts of a search, which looks at a rank through about one count at each.
_SHARES = {"counts": 1.0, "moments": 2.0, "quantiles": 4.0}

# Quantiles of numbers, and what they are called.
_LEVELS = {"lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75}

# The one group of a table that is not split.
_ALL = "all"

# Standard deviations of a count that the average group should have, for its numbers to tell much.
_SEEN = 10.0


class SummaryEntry(NamedTuple):
    """One released number of a summary, with its interval."""

    column: str
    statistic: str
    category: Any  # None where the number is not about one
    group: Any
    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, repr=False)
class PrivateComparison:
    """Difference of one number between two groups, with its interval; printing shows both."""

    name: str
    groups: tuple[Any, Any]  # The first less the second
    value: float
    low: float
    high: float
    level: float
    population: bool  # Whether it is about what the rows are drawn from, and not these rows

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

    Printing shows a table as papers have it.

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
        What the call cost and what that rests on.

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
        """Variance of a mean or of a share over samples of a population."""
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
        # What noise hides is 0 in all groups.
        empty = {(e.column, e.category) for e in counted if e.category == UNLISTED}
        empty -= {(e.column, e.category) for e in counted if e.value > 0}
        outside = any(e.group == NO_GROUP and e.value > 0 for e in counted)
        groups = (*self.groups, NO_GROUP) if outside else self.groups
        for each in self.entries:
            if each.statistic == "share" or (each.column, each.category) in empty:
                continue
            share = shares.get((each.column, each.category, each.group))
            text = _of_number(each) if share is None else _of_count(each, share)
            cells.setdefault(each[:3], {})[each.group] = text
        lines = [["", *map(str, groups)]]
        for (column, statistic, category), by_group in cells.items():
            name = statistic if category is None else str(category)
            name = f"{column}, {name}" if column else f"{self.unit}s"
            lines.append([name, *(by_group.get(group, "") for group in groups)])
        return lines

    def __repr__(self) -> str:
        lines = self._lines()
        return "\n".join([self._title, *as_text(lines, len(lines[0]))])

    def _repr_html_(self) -> str:
        return as_html(self._title, self._lines(), 1)


def _of_number(entry: SummaryEntry) -> str:
    width = entry.high - entry.low
    if math.isnan(width):  # without noise, of no values
        return "none"
    width = 0.0 if width <= 1e-9 * abs(entry.high) else width
    digits = 2 if width == 0 else min(max(1 - math.floor(math.log10(width)), 0), 6)
    largest = max(abs(entry.low), abs(entry.high))
    if width and largest:  # four digits are enough, however short the interval is
        digits = min(digits, max(3 - math.floor(math.log10(largest)), 0))
    digits = 0 if entry.statistic == "count" else digits
    value, low, high = (f"{each:,.{digits}f}" for each in entry[4:])
    return f"{value} ({low} to {high})" if width > 0 else value


def _of_count(entry: SummaryEntry, share: SummaryEntry) -> str:
    if math.isnan(share.value):  # of no rows
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
    column of numbers: mean, standard deviation, median and quartiles. For both: how many values are
    missing. Each number has an interval, and no cell is suppressed.

    Parameters
    ----------
    frame : data frame of n_samples rows, of pandas, Polars, Arrow or Dask
        Private rows. An array must have the columns of the schema, in its order.
    schema : Schema or dict
        What is public about the columns: see :class:`Schema`. All of its columns are summarised,
        and columns of numbers need a public :class:`Range`.
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
        as one together: each of ten rows counts for a tenth. None protects single rows.

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
    plan = _Summary.of(schema, by)
    table = read_anywhere(frame, schema, name="frame", groups=groups)
    records = check_groups(groups, table.numbers)
    if schema.numbers:
        refuse_exact_quantiles(target, table.numbers)
    budget = Budget.split(target, plan.parts(), records.n)
    noise = as_noise(random_state)
    public = ("schema of the table",)
    call = PrivateCall("private_summary", budget, noise, records, len(schema), public)
    _warn_of_noise(budget, plan, records)
    releases = call.open()
    with plain_arithmetic(None):
        found = plan.released(table, records, releases, float(level))
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
        call.guarantee,
    )


def _warn_of_noise(budget: Budget, plan: _Summary, records: Records) -> None:
    if not budget.private:
        return
    relation = budget.target.neighboring_relation
    name, total = "moments", unit_total(np.zeros(1), max(1, len(plan.schema.numbers)))
    if plan.tables:
        name, total = "counts", counts_sum(np.zeros(1), len(plan.tables))
    deviation, size = budget.scales[name] * total.unit(relation), records.n / len(plan.groups)
    if size < _SEEN * deviation:
        warn(
            f"the noise of each count has a standard deviation of {deviation:.3g}, and a group has"
            f" {size:.0f} {records.unit}s on average: expect wide intervals. More {records.unit}s,"
            " fewer columns or groups, or a larger epsilon help.",
            PrivacyWarning,
            about=("summary", deviation),
        )


# What is released -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Summary:
    """What is public about a summary, and how it is released."""

    schema: Schema
    by: str | None
    groups: tuple[Any, ...]
    tables: dict[str, int]  # columns that are counted, and their numbers of cells

    @classmethod
    def of(cls, schema: Schema, by: str | None) -> _Summary:
        if schema.private_ranges:
            raise ValueError(
                f"the columns {shown_first(schema.private_ranges)} have no public range, and means"
                " need one: write Range(low, high) from public knowledge, such as the limits of a"
                " device. private_quantile and private_mean do without."
            )
        tables: dict[str, int] = {}
        groups: tuple[Any, ...] = (_ALL,)
        if by is not None:
            if not isinstance(by, str) or by not in schema.categories:
                raise ValueError(
                    f"`by` must be a column of categories in the schema, one of"
                    f" {shown_first(schema.categories)}, got {shown(by)}."
                )
            groups = schema[by].values  # type: ignore[attr-defined]
            tables[by] = 1
        for name, kind in schema.items():
            if name == by:
                continue
            if kind._categorical:
                tables[name] = len(kind.values) + 1 + kind.missing  # type: ignore[attr-defined]
            elif kind.missing:
                tables[name] = 2
        return cls(schema, by, groups, tables)

    @property
    def n_groups(self) -> int:
        """Number of groups, with that of rows that are in none."""
        return len(self.groups) + (self.by is not None)

    def unlisted(self, entries: Sequence[SummaryEntry], n: int) -> dict[str, float]:
        """Least share of values that are not listed, of each column, by released counts."""
        found = dict.fromkeys(self.schema.categories, 0.0)
        for each in entries:
            if each.statistic == "count" and each.category == UNLISTED:
                found[each.column] += each.low / n
            elif each.group == NO_GROUP and not self.schema[str(self.by)].missing:
                found[str(self.by)] += each.low / n
        return found

    def parts(self) -> dict[str, Part]:
        numbers = len(self.schema.numbers)
        sizes = {"counts": len(self.tables), "moments": numbers, "quantiles": numbers}
        whole = sum(_SHARES[name] * size for name, size in sizes.items())
        return {
            name: Part(_SHARES[name] * size / whole, STAGES if name == "quantiles" else 1)
            for name, size in sizes.items()
            if size
        }

    def released(
        self, table: Table, records: Records, releases: Releases, confidence: float
    ) -> _Found:
        group = rowwise(self._group, table)
        noise: dict[str, float] = {}
        counts, deviation = self._counts(table, group, records, releases)
        n = float(records.n)
        if not releases.budget.private and counts:  # parts of persons add up to a little less
            n = float(next(iter(counts.values())).sum())
        sizes, agreed = GroupSizes(np.full(1, n), 0.0), []
        if counts:
            noise["counts"] = deviation
            sizes, agreed = agreeing([*counts.values()], deviation, n)
        sums, deviation = self._sums(table, group, records, releases)
        quantiles = None
        if sums is not None:
            noise["moments"] = deviation
            quantiles = self._quantiles(table, group, records, releases, confidence)
            empty = counts_sum(np.zeros(1), len(self.schema.numbers))
            noise["quantiles"] = releases.noise_of("quantiles", empty)
        cells = dict(zip(counts, agreed, strict=True))
        return _Found(self, n, sizes, cells, sums, quantiles, noise)

    # What is added up of rows, where these are --------------------------------------------------

    def _group(self, table: Table) -> np.ndarray:
        """Group of each row; the number of groups for rows that are in none."""
        if self.by is None:
            return np.zeros(len(table), dtype=np.intp)
        group = values_of(table, self.schema, self.by)
        return np.where(group < 0, len(self.groups), group).astype(np.intp)

    def _raw_counts(self, table: Table, group: np.ndarray, records: Records) -> np.ndarray:
        """Counts of all tables, one after another."""
        raw = []
        for name, width in self.tables.items():
            cells = group * width + self._cells(table, name)
            raw.append(cell_total(cells, self.n_groups * width, records))
        return np.concatenate(raw)

    def _raw_sums(self, table: Table, group: np.ndarray, records: Records) -> np.ndarray:
        """Sums (columns, 2, groups) of numbers in units of half their range."""
        names = self.schema.numbers
        raw = np.empty((len(names), 2, self.n_groups))
        for place, name in enumerate(names):
            units = in_unit(table.numbers[:, place], self.schema[name])
            raw[place] = unit_sums(units, group, self.n_groups, records)
        return raw

    # What is released of it ---------------------------------------------------------------------

    def _counts(
        self, table: Table, group: np.ndarray, records: Records, releases: Releases
    ) -> tuple[dict[str, np.ndarray], float]:
        if not self.tables:
            return {}, 0.0
        raw = sum_over_parts(self._raw_counts, table, group, records)
        total = counts_sum(raw, len(self.tables))
        noisy = releases.gaussian("counts", total)
        widths = [self.n_groups * width for width in self.tables.values()]
        parts = np.split(noisy, np.cumsum(widths)[:-1])
        named = zip(self.tables, parts, strict=True)
        counts = {name: part.reshape(self.n_groups, -1) for name, part in named}
        return counts, releases.noise_of("counts", total)

    def _cells(self, table: Table, name: str) -> np.ndarray:
        kind = self.schema[name]
        if name == self.by:
            return np.zeros(len(table), dtype=np.intp)
        values = values_of(table, self.schema, name)
        if not kind._categorical:
            return np.isnan(values).astype(np.intp)
        return cells_of_codes(values, len(kind.values))  # type: ignore[attr-defined]

    def _sums(
        self, table: Table, group: np.ndarray, records: Records, releases: Releases
    ) -> tuple[np.ndarray | None, float]:
        names = self.schema.numbers
        if not names:
            return None, 0.0
        raw = sum_over_parts(self._raw_sums, table, group, records)
        total = unit_total(raw, len(names))
        noisy = releases.gaussian("moments", total)
        return noisy.reshape(raw.shape), releases.noise_of("moments", total)

    def _quantiles(
        self,
        table: Table,
        group: np.ndarray,
        records: Records,
        releases: Releases,
        confidence: float,
    ) -> Quantiles:
        levels = np.array([*_LEVELS.values()])
        if not releases.budget.private:
            return exact_quantiles(table.numbers, group, len(self.groups), levels, records)
        grid = [scale_points(self.schema[name], 2**STAGES) for name in self.schema.numbers]
        return searched_quantiles(
            table.numbers,
            group,
            len(self.groups),
            np.stack(grid),
            levels,
            releases,
            "quantiles",
            confidence=confidence,
        )


# What follows from it ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """Released numbers, and all that is printed of them."""

    plan: _Summary
    n: float
    sizes: GroupSizes
    cells: dict[str, GroupedCounts]
    sums: np.ndarray | None
    quantiles: Quantiles | None
    noise: dict[str, float]

    def entries(self, level: float) -> Iterator[SummaryEntry]:
        """All numbers, which add up and have an order, within intervals that hold them."""
        for each in self._all(level):
            if math.isnan(each.value):
                yield each
                continue
            low, high = holding(each.value, each.low, each.high)
            yield each._replace(low=float(low), high=float(high))

    def _all(self, level: float) -> Iterator[SummaryEntry]:
        plan, sizes = self.plan, self.sizes.counts
        ends = [self._around(size, self.sizes.variance, level) for size in sizes]
        names = plan.groups if plan.by is None else (*plan.groups, NO_GROUP)
        unseen = None if plan.by is None or ends[-1][0] > 0 else len(plan.groups)
        totals = onto_total_of_seen(sizes, self.n, unseen)
        for group, total, (low, high) in zip(names, totals, ends, strict=True):
            yield SummaryEntry("", "count", None, group, float(total), low, high)
        for name in plan.schema:
            if name == plan.by:
                continue
            for place, group in enumerate(plan.groups):
                made = self._of_column(name, place, float(totals[place]), level)
                for statistic, category, value, low, high in made:
                    yield SummaryEntry(name, statistic, category, group, value, low, high)

    def _of_column(
        self, name: str, place: int, total: float, level: float
    ) -> Iterator[tuple[str, Any, float, float, float]]:
        kind = self.plan.schema[name]
        if not kind._categorical:
            yield from self._of_numbers(name, place, level)
        if name not in self.cells:
            return
        labels = [*kind.values, UNLISTED] if kind._categorical else [None]  # type: ignore[attr-defined]
        labels += [NO_VALUE] if kind.missing else []
        table = self.cells[name]
        counts = onto_total_of_seen(table.counts[place], total, self._unseen(name, level))
        there = counts.sum() - (counts[-1] if kind.missing else 0.0)
        for cell, label in enumerate(labels):
            if label is None:  # numbers that are there, which are all others
                continue
            ends = self._around(table.counts[place, cell], table.variance, level)
            yield ("count", label, float(counts[cell]), *ends)
            of = total if label == NO_VALUE and cell == len(labels) - 1 else there
            share = self._share(name, place, cell, missing=of is total and kind.missing)
            value = float(counts[cell] / of) if of > 0 else math.nan
            yield ("share", label, value, *share.interval(level, 0.0, 1.0))

    def _unseen(self, name: str, level: float) -> int | None:
        """Cell of values that are not listed, where noise hides all of them in every group."""
        kind, table = self.plan.schema[name], self.cells[name]
        if not kind._categorical:
            return None
        cell = len(kind.values)  # type: ignore[attr-defined]
        groups = table.counts[: len(self.plan.groups), cell]
        lowest = [self._around(count, table.variance, level)[0] for count in groups]
        return None if max(lowest) > 0 else cell

    def _around(self, count: float, variance: float, level: float) -> tuple[float, float]:
        half = float(ndtri((1 + level) / 2)) * math.sqrt(variance)
        low, high = around(np.asarray(count), half, self.n)
        return float(low), float(high)

    def _share(self, name: str, place: int, cell: int, *, missing: bool) -> Ratio:
        """A cell of a group as a share of its values that are there, or of all for missing ones."""
        table, width = self.cells[name], self.plan.tables[name]
        above, size, of_size = (
            table.counts[place, cell],
            self.sizes.counts[place],
            self.sizes.variance,
        )
        shared = of_size / width  # covariance of a count with the size of its group
        if missing or not self.plan.schema[name].missing:
            return Ratio(float(above), float(size), table.variance, of_size, shared)
        there, variance = self._there(name, place)
        return Ratio(float(above), there, table.variance, variance, shared - table.common)

    def _there(self, name: str, place: int) -> tuple[float, float]:
        """How many values of a column are there in a group, and the variance of that."""
        size, of_size = float(self.sizes.counts[place]), self.sizes.variance
        if not self.plan.schema[name].missing:
            return size, of_size
        table, width = self.cells[name], self.plan.tables[name]
        variance = max(of_size + table.variance - 2 * of_size / width, 0.0)
        return size - float(table.counts[place, -1]), variance

    def _of_numbers(
        self, name: str, place: int, level: float
    ) -> Iterator[tuple[str, None, float, float, float]]:
        assert self.sums is not None and self.quantiles is not None
        column = self.plan.schema.numbers.index(name)
        middle, half = middle_of(self.plan.schema[name])
        first, second = self.sums[column, :, place]
        there, of_there = self._there(name, place)
        square = self.noise["moments"] ** 2
        mean, fold = (Ratio(float(s), there, square, of_there) for s in (first, second))
        value, ends = mean.value(-1, 1), mean.interval(level, -1, 1)
        low, high = (middle + half * end for end in ends)
        yield "mean", None, middle + half * value, low, high
        value, low, high = (half * each for each in _deviation(mean, fold, level))
        yield "standard deviation", None, value, low, high
        for at, statistic in enumerate(_LEVELS):
            cells = (self.quantiles.values, self.quantiles.low, self.quantiles.high)
            value, low, high = (float(part[column, place, at]) for part in cells)
            yield statistic, None, value, low, high


def _deviation(mean: Ratio, fold: Ratio, level: float) -> tuple[float, float, float]:
    """Standard deviation of numbers in [-1, 1] and its interval, from those of two means.

    `fold` is the mean of ``2 u^2 - 1``. The variance is the mean square less the square of the
    mean, two numbers with noise of their own, whose intervals are joined as Zou and Donner (2008)
    join those of a difference. Noise may make it negative: the ends are about 0 then, since
    about an impossible number the upper one would lie below most of what is possible.
    """
    mean_value, square = mean.value(-1, 1), (1 + fold.value(-1, 1)) / 2
    low, high = mean.interval(level, -1, 1)
    least = 0.0 if low <= 0 <= high else min(low**2, high**2)
    most = max(low**2, high**2)
    lower, upper = ((1 + end) / 2 for end in fold.interval(level, -1, 1))
    variance = max(square - mean_value**2, 0.0)
    down = math.hypot(square - lower, most - mean_value**2)
    up = math.hypot(upper - square, mean_value**2 - least)
    ends = (variance, variance - down, variance + up)
    value, low, high = (math.sqrt(min(max(each, 0.0), 1.0)) for each in ends)
    return value, low, high
