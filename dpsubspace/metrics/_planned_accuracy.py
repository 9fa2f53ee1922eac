"""Widths of intervals and losses of scores, by epsilon and rows, before anything is released.

Design note. What a call will give is asked of the call itself, on public rows, so that no formula
of a noise or of an interval is written twice. Where intervals follow from released numbers and a
known noise alone, one call without any draws of noise is enough: 0 is the median of the noise, and
so the width is the median of all widths. Everything else is repeated with fixed seeds.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import train_test_split
from sklearn.utils import resample

from dpsubspace._core.accounting.enough import least, two_digits
from dpsubspace._core.accounting.guarantee import Released
from dpsubspace._core.accounting.payer import nothing_charged
from dpsubspace._core.fits.call import private_functions
from dpsubspace._core.ground.checks import (
    HiddenByNoise,
    check_integer,
    check_real,
    did_you_mean,
    refuse_collection,
    shown,
    shown_first,
)
from dpsubspace._core.ground.plotting import Display, drawn_band, styled
from dpsubspace._core.plans.score_request import PrivateScore
from dpsubspace._core.release.noise import ZeroNoise
from dpsubspace._core.tables.schema import as_schema
from dpsubspace._names import public
from dpsubspace.budget._planner import plan_of
from dpsubspace.exceptions import PrivacyError, PrivacyWarning, PublicDataWarning
from dpsubspace.metrics._evaluation import _model, _parts, _score_name
from dpsubspace.statistics._coefficients import PrivateCoefficients
from dpsubspace.statistics._printed_tables import as_text, with_notes
from dpsubspace.statistics._table_counts import PrivateCounts
from dpsubspace.statistics._table_summary import PrivateSummary

# Functions that can be planned.
_FUNCTIONS = (
    *("private_counts", "private_summary", "private_mean", "private_quantile"),
    *("private_covariance", "private_coefficients", "private_score"),
)

# Statistics of a summary whose intervals follow from the released numbers and a known noise.
_EXACT = ("count", "share", "mean")

# Metrics that are curves or matrices.
_NO_NUMBERS = ("roc_curve", "calibration_curve", "confusion_matrix")

# Arguments of functions that have an entry for each row.
_ROWS = ("frame", "X", "y", "target")

# Least and largest numbers that `epsilon_for` and `rows_for` look at, with two digits each.
_EPSILONS, _SIZES = (-3, 3), (1, 6)

# Least number of rows that is simulated, and share of the public rows that models are scored on.
_LEAST, _HELD_OUT = 100, 1 / 3

# Ends of the range in which 8 of 10 simulations lie.
_MOST = (0.1, 0.5, 0.9)


class PlannedWidth(NamedTuple):
    """Planned width of one number, at one epsilon and one number of rows."""

    epsilon: float
    n_samples: int
    of: str  # Number that the width is of
    value: float  # The number on the public rows: the median, where it is simulated
    width: float  # Length of its interval, or score that is lost; inf where noise hides it
    low: float  # Ends of the range in which 8 of 10 simulated widths lie
    high: float
    exact: bool  # Whether it is computed and not simulated


# Results ----------------------------------------------------------------------------------------


class _Number(NamedTuple):
    """A number of one call, with the width of its interval."""

    of: str
    value: float
    width: float
    exact: bool = False


def _numbers_of(found: Any) -> Iterator[_Number]:
    """Yield the numbers of a result that have an interval."""
    if isinstance(found, PrivateCounts):
        width = 2 * found._noise.half_width(found.level)
        mean = float(found.counts.mean())
        yield _Number("count", mean, width, True)
        yield _Number("share", mean / found.n, width / found.n, True)
    elif isinstance(found, PrivateSummary):
        for each in found.entries:
            if not each.column and found.by is None:
                continue  # the number of rows, which is public
            exact = each.statistic in _EXACT
            yield _Number(_line_of(each, found), each.value, each.high - each.low, exact)
    elif isinstance(found, PrivateCoefficients):
        ends = zip(found.terms, found.estimate, found.low, found.high, strict=True)
        for term, value, low, high in ends:
            yield _Number(term, float(value), float(high - low) if value == value else math.inf)
    elif isinstance(found, PrivateScore):
        yield from _scores_of(found)
    else:
        for score in found.values():
            yield from _scores_of(score)


def _line_of(entry: Any, found: PrivateSummary) -> str:
    """Name of a number of a summary, as it is printed there."""
    words = [entry.column, entry.statistic] if entry.column else [f"{found.unit}s"]
    words[-1] += "" if entry.category is None else f" of {entry.category}"
    return ", ".join([*words, *([] if found.by is None else [str(entry.group)])])


def _scores_of(score: PrivateScore) -> Iterator[_Number]:
    groups = {"": score, **{f", {group}": each for group, each in (score.by or {}).items()}}
    for group, each in groups.items():
        if each.metric not in _NO_NUMBERS:
            yield _Number(f"{each.metric}{group}", each.value, each.high - each.low)


def _names_of(value: np.ndarray, name: str) -> list[str]:
    """Names of the entries of an array, such as "value[0, 1]"."""
    return [f"{name}{list(at) if at else ''}" for at in np.ndindex(value.shape)]


# Public rows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PublicRows:
    """Public rows, or a schema from which rows are made."""

    arrays: Mapping[str, Any]  # by the arguments that they are given as
    n: int | None  # None if they are made of the schema
    schema: Any = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> _PublicRows:
        """Return the rows among the arguments of a function."""
        arrays = {
            name: value
            for name, value in arguments.items()
            if name in _ROWS and value is not None and not isinstance(value, str)
        }
        if arrays:
            for name, value in arrays.items():
                refuse_collection(name, value)
            return cls(arrays, _length(next(iter(arrays.values()))))
        if (schema := arguments.get("schema")) is None:
            raise ValueError(
                "there are neither public rows nor a `schema` to make some from: give public rows"
                " in the place of the private ones, such as those of an earlier study."
            )
        name = next(name for name in arguments if name in _ROWS)
        return cls({name: None}, None, as_schema(schema))

    def drawn(self, n: int, seed: int, *, whole: bool = False) -> dict[str, Any]:
        """Return `n` of the rows, with replacement if there are no more; all if `whole` and n."""
        if self.n is None:
            frame = self.schema.example(n, random_state=seed)
            return dict.fromkeys(self.arrays, frame)
        if whole and n == self.n:
            return dict(self.arrays)
        names, again = [*self.arrays], n >= self.n
        given = self.arrays.values()
        found: Any = resample(*given, replace=again, n_samples=n, random_state=seed)
        return dict(zip(names, [found] if len(names) == 1 else found, strict=True))

    def __str__(self) -> str:
        return "Schema.example" if self.n is None else f"{self.n:,} public rows"


def _length(rows: Any) -> int:
    return rows.shape[0] if hasattr(rows, "shape") else len(rows)


# Calls ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """A call that is planned. Its rows are public, so that nothing is released."""

    rows: _PublicRows
    n_repeats: int
    seed: int
    refusals: list[Exception] = field(default_factory=list, kw_only=True)

    def exact(self, epsilon: float, n: int) -> list[_Number]:
        """Return the numbers whose widths need no simulation."""
        return []

    def simulated(self, epsilon: float, n: int, seed: int) -> list[_Number]:
        """Return the numbers of one call; none where it is refused because noise hides them."""
        return []

    def widths(self, epsilon: float, n: int, of: str | None = None) -> list[PlannedWidth]:
        """Return widths: all, or the width `of` one number alone if it needs no simulation."""
        with nothing_charged(), warnings.catch_warnings():
            for category in (PrivacyWarning, PublicDataWarning, ConvergenceWarning):
                warnings.simplefilter("ignore", category)
            found = {each.of: _exact(each, epsilon, n) for each in self.exact(epsilon, n)}
            if of in found:
                return [found[of]]
            seeds = range(self.seed, self.seed + self.n_repeats)
            calls = [self._one(epsilon, n, seed) for seed in seeds]
        by_name = {each.of: [] for call in calls for each in call}
        for call in calls:
            numbers = {each.of: each for each in call}
            for name, all_ in by_name.items():
                all_.append(numbers.get(name, _Number(name, math.nan, math.inf)))
        for name, numbers in by_name.items():
            found.setdefault(name, _median(numbers, epsilon, n))
        order = {**by_name, **found}
        return [found[name] for name in order]

    def _one(self, epsilon: float, n: int, seed: int) -> list[_Number]:
        try:
            return self.simulated(epsilon, n, seed)
        except (HiddenByNoise, PrivacyError) as error:
            self.refusals.append(error)
            return []


def _exact(number: _Number, epsilon: float, n: int) -> PlannedWidth:
    width = number.width
    return PlannedWidth(epsilon, n, number.of, number.value, width, width, width, True)


def _median(numbers: list[_Number], epsilon: float, n: int) -> PlannedWidth:
    # Those that noise hides count as infinitely wide: no average of two may be taken.
    widths = np.array([math.inf if each.width != each.width else each.width for each in numbers])
    low, width, high = np.quantile(widths, _MOST, method="inverted_cdf").tolist()
    values = [each.value for each in numbers if each.value == each.value]
    value = float(np.median(values)) if values else math.nan
    return PlannedWidth(epsilon, n, numbers[0].of, value, width, low, high, False)


@dataclass(frozen=True)
class _FunctionCall(_Call):
    function: Callable[..., Any]
    arguments: inspect.BoundArguments

    @classmethod
    def of(cls, function: Any, args: Any, params: Any, n_repeats: int, seed: int) -> _FunctionCall:
        name = function.__name__
        try:
            bound = inspect.signature(function).bind(*args, **params)
        except TypeError as error:
            raise TypeError(f"{name}() {error}: give what the call would be given.") from None
        if bound.arguments.get("groups") is not None or isinstance(
            bound.arguments.get("by"), tuple
        ):
            raise ValueError(
                "rows are drawn one by one, which `groups`, and `by` with an entry for each row,"
                " would not follow. With persons, give one public row of each, and take"
                " `n_samples` for the number of persons; as `by` give the name of a column."
            )
        return cls(_PublicRows.of(bound.arguments), n_repeats, seed, function, bound)

    def _call(self, epsilon: float, rows: Mapping[str, Any], noise: Any) -> Any:
        given = {**self.arguments.arguments, **rows, "epsilon": epsilon, "random_state": noise}
        return self.function(**given)

    def exact(self, epsilon: float, n: int) -> list[_Number]:
        if self.function.__name__ not in ("private_counts", "private_summary"):
            return []
        rows = self.rows.drawn(n, self.seed, whole=True)
        found = self._call(epsilon, rows, ZeroNoise())
        return [each for each in _numbers_of(found) if each.exact]

    def simulated(self, epsilon: float, n: int, seed: int) -> list[_Number]:
        if self.function.__name__ == "private_counts":
            return []
        rows = self.rows.drawn(n, seed)
        found = self._call(epsilon, rows, seed)
        if not isinstance(found, Released):
            return [*_numbers_of(found)]
        exact = np.asarray(self._call(math.inf, rows, seed).value)
        errors = np.abs(np.asarray(found.value) - exact) * 2 * _NORMAL
        given = zip(_names_of(exact, "value"), exact.ravel(), errors.ravel(), strict=True)
        return [_Number(name, float(value), float(width)) for name, value, width in given]


# Half of the length of a 95 % interval of a normal variable, over its median size.
_NORMAL = float(ndtri(0.975) / ndtri(0.75))


@dataclass(frozen=True)
class _FitCall(_Call):
    """Fits of an estimator, scored on public rows that are held out."""

    estimator: Any
    held_out: Any  # Rows and targets to score on
    scorer: Any
    of: str
    fit_params: dict[str, Any]
    known: dict[tuple[int, int], float] = field(default_factory=dict)  # scores without privacy

    @classmethod
    def of_estimator(
        cls, estimator: Any, args: Any, params: Any, n_repeats: int, seed: int
    ) -> _FitCall:
        """Return fits of an estimator to public rows, a third of which are held out."""
        params = dict(params)
        scoring = params.pop("scoring", None)
        given = {**dict(zip(("X", "y"), args, strict=False)), **params}
        X, y = given.pop("X", None), given.pop("y", None)
        if X is None or y is None:
            raise ValueError(
                "a model is planned on public rows with targets, plan_accuracy(model, X, y): rows"
                " made of a schema have nothing to learn, as no column tells anything about"
                " another."
            )
        if given.get("groups") is not None:
            raise ValueError(
                "rows are drawn one by one, which `groups` would not follow: give one public row"
                " of each person, and take `n_samples` for the number of persons."
            )
        _parts(estimator)
        scorer: Any = check_scoring(estimator, scoring)
        refuse_collection("X", X)
        X, X_test, y, y_test = train_test_split(X, y, test_size=_HELD_OUT, random_state=seed)
        rows, held_out = _PublicRows.of({"X": X, "y": y}), (X_test, y_test)
        name = _score_name(estimator, scoring).removeprefix("Test ") + " lost"
        return cls(rows, n_repeats, seed, estimator, held_out, scorer, name, given)

    def simulated(self, epsilon: float, n: int, seed: int) -> list[_Number]:
        rows = self.rows.drawn(n, seed)
        if (n, seed) not in self.known:
            self.known[n, seed] = self._score(math.inf, rows, n, seed)
        score = self._score(epsilon, rows, n, seed)
        return [_Number(self.of, score, self.known[n, seed] - score)]

    def _score(self, epsilon: float, rows: Mapping[str, Any], n: int, seed: int) -> float:
        X, y = rows["X"], rows["y"]
        model = _model(
            self.estimator, epsilon, lambda part: plan_of(part, X, y, self.fit_params), n
        )
        parts = _parts(model)
        for part, own in zip(
            parts, np.random.SeedSequence(seed).generate_state(len(parts)), strict=True
        ):
            part._set_whole(random_state=int(own))
        return float(self.scorer(model.fit(X, y, **self.fit_params), *self.held_out))


# The plan ---------------------------------------------------------------------------------------


@public
@dataclass(kw_only=True, eq=False, repr=False)
class AccuracyPlan(Display):
    """Widths of intervals by epsilon and number of rows, before anything is released.

    Made by :func:`plan_accuracy` of public rows. Printing shows a table, and :meth:`plot` draws it.

    Parameters
    ----------
    name : str
        Function or class of the estimator that was planned.
    widths : sequence of PlannedWidth
        A line for each epsilon, number of rows and number `of` which it is: with the `value` on the
        public rows, the `width` of its interval, the range from `low` to `high` in which 8 of 10
        simulated widths lie, and whether it is `exact` and not simulated.
    rows : str
        Rows that it was planned on.
    width_at : callable
        Takes an epsilon, a number of rows and a name, and returns a PlannedWidth.

    Attributes
    ----------
    name, widths, rows, width_at
        As given.
    ax_ : matplotlib Axes or ndarray of them
        Axes with the widths against epsilon, and against the number of rows if there are several.
    figure_ : matplotlib Figure
        Figure with the axes.

    See Also
    --------
    plan_accuracy : Makes one.

    Examples
    --------
    >>> from dpsubspace import private_counts
    >>> from dpsubspace.budget import plan_accuracy
    >>> schema = {"ward": ["A", "B", "C"]}
    >>> plan = plan_accuracy(private_counts, None, schema, "ward", n_samples=1000)
    >>> plan.names
    ('count', 'share')
    >>> plan.epsilon_for(width=4, of="count")
    1.5
    >>> plan.rows_for(width=0.02, of="share", epsilon=0.3)
    1000
    """

    name: str
    widths: Any
    rows: str
    width_at: Callable[[float, int, str], PlannedWidth]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers whose widths are planned."""
        return tuple(dict.fromkeys(each.of for each in self.widths))

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Planned values of epsilon."""
        return tuple(dict.fromkeys(each.epsilon for each in self.widths))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Planned numbers of rows."""
        return tuple(dict.fromkeys(each.n_samples for each in self.widths))

    def to_frame(self) -> Any:
        """Give all widths as a data frame of pandas.

        Returns
        -------
        DataFrame
            Columns "epsilon", "n_samples", "of", "value", "width", "low", "high" and "exact".
        """
        import pandas as pd

        return pd.DataFrame(list(self.widths), columns=list(PlannedWidth._fields))

    def width(
        self, of: str | None = None, *, epsilon: float | None = None, n_samples: int | None = None
    ) -> PlannedWidth:
        """Give the width of one number, also between and beyond the planned values.

        Parameters
        ----------
        of : str or None, default=None
            One of `names`; None where there is one.
        epsilon : float or None, default=None
            Privacy budget of the call; None where one was planned.
        n_samples : int or None, default=None
            Number of rows; None where one was planned.

        Returns
        -------
        PlannedWidth
            The `width`, with the range from `low` to `high` of simulated widths.

        Raises
        ------
        ValueError
            If a parameter is out of its range, or is None where there are several.
        """
        of = self._one("of", of, self.names)
        epsilon = self._one("epsilon", epsilon, self.epsilons)
        n = self._one("n_samples", n_samples, self.sizes)
        check_real("epsilon", epsilon, low=0)
        check_integer("n_samples", n, low=1)
        return self._at(epsilon, n, of)

    def epsilon_for(
        self, width: float, of: str | None = None, *, n_samples: int | None = None
    ) -> float:
        """Give the least epsilon at which the interval of a number is as short as wanted.

        Parameters
        ----------
        width : float
            Length of the interval from its low to its high end; of a model, score that may be
            lost to privacy.
        of : str or None, default=None
            One of `names`; None where there is one.
        n_samples : int or None, default=None
            Number of rows; None where one was planned.

        Returns
        -------
        float
            Epsilon of two digits, from 0.001 to 1,000.

        Raises
        ------
        ValueError
            If a parameter is out of its range, or no epsilon is enough.
        """
        check_real("width", width, low=0)
        of = self._one("of", of, self.names)
        n = self._one("n_samples", n_samples, self.sizes)
        check_integer("n_samples", n, low=1)
        found = least(two_digits(*_EPSILONS), lambda each: self._at(each, n, of).width <= width)
        if found is None:
            best = self._at(10.0 ** _EPSILONS[1], n, of).width
            raise ValueError(
                f"no epsilon makes the width of {of!r} {width:g} with {n:,} rows: without noise it"
                f" would still be about {best:.3g}. Plan more rows (see `rows_for`), or accept a"
                " larger `width`."
            )
        return found

    def rows_for(self, width: float, of: str | None = None, *, epsilon: float | None = None) -> int:
        """Give the least number of rows at which the interval of a number is as short as wanted.

        Parameters
        ----------
        width : float
            Length of the interval from its low to its high end; of a model, score that may be
            lost to privacy.
        of : str or None, default=None
            One of `names`; None where there is one.
        epsilon : float or None, default=None
            Privacy budget of the call; None where one was planned.

        Returns
        -------
        int
            Number of rows of two digits, from 10 (100 if it is simulated) to 1,000,000.

        Raises
        ------
        ValueError
            If a parameter is out of its range, or no such number of rows is enough.
        """
        check_real("width", width, low=0)
        of = self._one("of", of, self.names)
        epsilon = check_real("epsilon", self._one("epsilon", epsilon, self.epsilons), low=0)
        simulated = not next(each.exact for each in self.widths if each.of == of)
        sizes = [int(n) for n in two_digits(*_SIZES) if n >= _LEAST or not simulated]
        found = least(sizes, lambda each: self._at(epsilon, each, of).width <= width)
        if found is None:
            best = self._at(epsilon, sizes[-1], of).width
            raise ValueError(
                f"{sizes[-1]:,} rows do not make the width of {of!r} {width:g} at"
                f" epsilon={epsilon:g}: it is {best:.3g} then. Plan a larger epsilon (see"
                " `epsilon_for`), or accept a larger `width`."
            )
        return found

    def plot(self, ax: Any = None, *, of: str | None = None, **line_kw: Any) -> Self:
        """Draw the width of one number against epsilon, and against the number of rows.

        Parameters
        ----------
        ax : matplotlib Axes, array of two of them, or None, default=None
            Axes to draw in: one if one number of rows was planned, else two. None makes new ones.
        of : str or None, default=None
            One of `names`; None is the first.
        **line_kw : dict
            Passed to ``ax.plot``.

        Returns
        -------
        AccuracyPlan
            This object, with the axes. Bands hold 8 of 10 simulations.

        Raises
        ------
        ValueError
            If there is no such number, or `ax` has another number of axes.
        ImportError
            If matplotlib is not installed.
        """
        of = self.names[0] if of is None else self._one("of", of, self.names)
        count = 1 if len(self.sizes) == 1 else 2
        plt = self._pyplot()
        if ax is None:
            size = {"figsize": (4.5 * count, 3.5), "layout": "constrained"}
            _, ax = plt.subplots(1, count, sharey=True, **size)
        axes = np.ravel(np.array(ax, dtype=object))
        if len(axes) != count:
            raise ValueError(f"`ax` must hold {count} axes for this plan, got {len(axes)}.")
        self.ax_, self.figure_ = axes if count > 1 else axes[0], axes[0].figure
        self._draw_against("epsilon", self.epsilons, "n_samples", "{:,} rows", axes[0], of, line_kw)
        name = f"width of {of}" if self.name in _FUNCTIONS else of
        axes[0].set(ylabel=name, xlabel="epsilon (smaller is more private)")
        if count > 1:
            self._draw_against(
                "n_samples", self.sizes, "epsilon", "epsilon {:g}", axes[1], of, line_kw
            )
            axes[1].set(xlabel="number of rows")
        return self

    def _draw_against(
        self, x: str, at: Any, by: str, name: str, ax: Any, of: Any, given: dict[str, Any]
    ) -> None:
        """Draw widths against the field `x`, with a line for each value of the field `by`."""
        lines = [each for each in self.widths if each.of == of]
        for value in dict.fromkeys(getattr(each, by) for each in lines):
            own = [each for each in lines if getattr(each, by) == value]
            options = styled(given, marker="o", label=name.format(value))
            line = ax.plot(at, [each.width for each in own], **options)[0]
            if not own[0].exact:
                ends = [each.low for each in own], [each.high for each in own]
                drawn_band(ax, at, *ends, line.get_color(), None)
        ax.set(xscale="log", yscale="log" if all(each.low > 0 for each in lines) else "linear")
        ax.set_xticks(at, [f"{each:,.10g}" for each in at])
        ax.yaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.legend()

    def _at(self, epsilon: Any, n: int, of: Any) -> PlannedWidth:
        for each in self.widths:
            if each[:3] == (epsilon, n, of):
                return each
        return self.width_at(epsilon, n, of)

    def _one(self, name: str, value: Any, known: tuple[Any, ...]) -> Any:
        if value is None and len(known) > 1:
            raise ValueError(
                f"`{name}` must be given, as {len(known)} were planned: {shown_first(known)}."
            )
        value = next(iter(known)) if value is None else value
        if name == "of" and value not in known:
            raise ValueError(
                f"`of` must be one of {shown_first(known)}, got {shown(value)}."
                f"{did_you_mean(value, known)}"
            )
        return value

    def __repr__(self) -> str:
        simulated = not all(each.exact for each in self.widths)
        lines = [["", "rows", *(f"epsilon {epsilon:g}" for epsilon in self.epsilons)]]
        by_place = {each[:3]: each for each in self.widths}
        for of in self.names:
            for n in self.sizes:
                found = (by_place[epsilon, n, of] for epsilon in self.epsilons)
                lines.append([of, f"{n:,}", *map(_printed, found)])
        title = f"Widths of what {self.name} would release, planned on {self.rows}"
        note = "~ is the median of simulations: see to_frame() for how far they are apart."
        return with_notes([title, *as_text(lines, 1)], note if simulated else "")


def _printed(width: PlannedWidth) -> str:
    return f"{'' if width.exact else '~'}{width.width:.3g}"


# The function -----------------------------------------------------------------------------------


def plan_accuracy(
    what: Any,
    *args: Any,
    epsilon: float | Iterable[float] = (0.1, 0.3, 1.0, 3.0),
    n_samples: int | Iterable[int] | None = None,
    n_repeats: int = 20,
    random_state: int = 0,
    **params: Any,
) -> AccuracyPlan:
    """Say how accurate a private call will be, by epsilon and rows, before anything is spent.

    It takes the call as it will be made, with public rows in the place of the private ones.
    **Never give the private rows here**: the widths would be a release that nobody pays for, and
    no guarantee would cover them.

    Parameters
    ----------
    what : function or estimator
        :func:`private_counts`, :func:`private_summary`, :func:`private_mean`,
        :func:`private_quantile`, :func:`private_covariance`, :func:`private_coefficients` or
        :func:`private_score`; or an estimator, Pipeline or :func:`tabular_pipeline` of which each
        private step has an `epsilon`.
    *args : positional arguments
        Those of the call: public rows first, or None to make rows up by :meth:`Schema.example`, and
        all that follows them. For an estimator, public rows and their targets, of which a third is
        held out to score the fits.
    epsilon : float or iterable of float, default=(0.1, 0.3, 1, 3)
        Privacy budgets of the whole call, or of the whole fit.
    n_samples : int, iterable of int or None, default=None
        Numbers of private rows, or of persons. Public rows are drawn to be as many, with
        replacement where there are no more of them. None is the number of public rows (of a model,
        of those that are not held out).
    n_repeats : int, default=20
        Simulations, each with its own noise and its own draw of rows. Numbers that are computed
        need none.
    random_state : int, default=0
        Seed of all simulations. Nothing here needs to be secret.
    **params : dict
        Arguments of the call by name, such as `by`, `level` and `delta`. For an estimator they are
        those of ``fit``, and `scoring`, a scorer of scikit-learn.

    Returns
    -------
    AccuracyPlan
        Widths of all numbers, which prints as a table. Its methods `epsilon_for` and `rows_for`
        say what a wanted width costs.

    Raises
    ------
    TypeError
        If an argument of the call is missing, or it has no such argument.
    ValueError
        If a parameter is out of its range, or the call cannot be planned.

    See Also
    --------
    privacy_cost : The epsilon of several fits together.
    PrivacyUtilityDisplay : Draws scores of a model against epsilon.

    Notes
    -----
    Nothing is released, and no ledger is told of it. Inside of a ledger, ``delta="auto"`` is the
    ledger's, as it will be for the call.

    Counts, shares and means of :func:`private_counts` and :func:`private_summary` are computed by
    one call whose noise is 0, the median of all noise. What makes the intervals there is the code
    of the call itself. Widths of shares and means depend a little on the share or mean, and on the
    size of its group: these are those of the public rows. By :meth:`Schema.example` all categories
    have the same chance, and numbers are spread evenly over their range. A count that is smaller
    than its noise has an interval that is cut at 0, so that its width varies.

    Everything else is simulated. The width is the median over `n_repeats` calls with fixed seeds,
    and `low` and `high` hold 8 of 10 of them. It is that of private rows as far as these are like
    the public ones: other rows of the same table may give intervals of a coefficient that are half
    or twice as long. In rows of :meth:`Schema.example` no column tells anything about another, so
    that all slopes are 0. The results of :func:`private_mean`, :func:`private_quantile` and
    :func:`private_covariance` have no interval. Their width is that of an interval that holds 95 %
    of the errors, if these are normal with the median size of simulated ones.

    The width of a model is the score that privacy costs: that of the same fit without noise, to the
    same rows, less that with it. ``value`` is the score with privacy.

    Examples
    --------
    >>> from dpsubspace import Range, private_summary
    >>> from dpsubspace.budget import plan_accuracy
    >>> schema = {"age": Range(18, 100), "smoker": ["no", "yes"]}
    >>> plan = plan_accuracy(
    ...     private_summary, None, schema, epsilon=[0.3, 1], n_samples=2000, n_repeats=2
    ... )
    >>> plan.width("age, mean", epsilon=1).exact
    True
    >>> plan.epsilon_for(width=4, of="age, mean")  # plus or minus 2 years
    0.18
    >>> plan.rows_for(width=4, of="age, mean", epsilon=0.3)
    1200
    """
    epsilons = _each("epsilon", epsilon, lambda name, value: check_real(name, value, low=0))
    check_integer("n_repeats", n_repeats, low=1)
    check_integer("random_state", random_state, low=0)
    call, name = _call_of(what, args, params, n_repeats, random_state)
    if n_samples is None and call.rows.n is None:
        raise ValueError("`n_samples` must be given where there are no public rows.")
    given = call.rows.n if n_samples is None else n_samples
    sizes = _each("n_samples", given, lambda name, value: check_integer(name, value, low=1))
    places = [(each, n) for each in epsilons for n in sizes]
    found = [each for place in places for each in call.widths(*place)]
    if not found:
        raise call.refusals[-1]
    by_place, names = {each[:3]: each for each in found}, dict.fromkeys(each.of for each in found)
    exact = {each.of for each in found if each.exact}
    widths = tuple(
        by_place.get((*place, of), _hidden(*place, of, exact)) for place in places for of in names
    )

    @lru_cache
    def width_at(epsilon: float, n: int, of: str) -> PlannedWidth:
        found = {each.of: each for each in call.widths(epsilon, n, of)}
        return found.get(of, _hidden(epsilon, n, of, exact))

    return AccuracyPlan(name=name, widths=widths, rows=str(call.rows), width_at=width_at)


def _hidden(epsilon: float, n: int, of: str, exact: set[str]) -> PlannedWidth:
    return PlannedWidth(epsilon, n, of, math.nan, math.inf, math.inf, math.inf, of in exact)


def _call_of(
    what: Any, args: Any, params: Mapping[str, Any], n_repeats: int, seed: int
) -> tuple[_Call, str]:
    if hasattr(what, "fit") and not isinstance(what, type):
        of_model = _FitCall.of_estimator(what, args, params, n_repeats, seed)
        return of_model, type(_parts(what)[-1]).__name__
    name = getattr(what, "__name__", "")
    if name not in _FUNCTIONS or private_functions().get(name) is not what:
        raise ValueError(
            f"`what` must be one of the functions {', '.join(_FUNCTIONS)}, or an estimator, got"
            f" {shown(what)}.{did_you_mean(what, _FUNCTIONS)}"
        )
    return _FunctionCall.of(what, args, params, n_repeats, seed), name


def _each(name: str, given: Any, check: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    """Return checked values, rising: one, or those of an iterable."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    values = [check(f"{name}[...]", each) for each in given] if several else [check(name, given)]
    if not values:
        raise ValueError(f"`{name}` must be a number or several, and is empty.")
    return tuple(sorted(set(values)))
