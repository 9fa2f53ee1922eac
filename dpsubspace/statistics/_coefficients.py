"""Coefficients of linear, logistic and Poisson regression in the units of a table, with intervals.

Where to check the privacy claim: a call runs :func:`~dpsubspace._core.fits.estimator.run_privately`
and in it ``CoefficientsPlan`` of ``_core/plans/coefficients.py``, whose ``run`` is all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2, norm

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, PrivateResult, footnote
from dpsubspace._core.fits.call import private_function
from dpsubspace._core.fits.estimator import run_privately
from dpsubspace._core.ground.checks import (
    check_bool,
    check_bounds,
    check_choice,
    check_real,
    nearest,
    refuse_collection,
    shown,
    shown_first,
)
from dpsubspace._core.plans.coefficients import INTERCEPT, Coding, CoefficientsPlan, Term
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.inputs import check_rows_and_targets, named
from dpsubspace._core.rows.records import check_groups, check_order
from dpsubspace._core.solvers.families import FAMILIES
from dpsubspace._core.statistics.inverted_tests import (
    Equations,
    Interval,
    accepted_along,
    intervals_along,
    joint_statistic,
)
from dpsubspace._core.tables.kinds import Categories, Range
from dpsubspace._core.tables.schema import Schema, as_schema, read_anywhere, warn_of_persons
from dpsubspace._names import imported, public
from dpsubspace.exceptions import PrivacyWarning, warn
from dpsubspace.statistics._printed_tables import (
    DASH,
    as_estimate,
    as_html,
    as_p_value,
    as_text,
    with_notes,
)

# A term is affected by separate classes if more than this part of its direction lies along
# directions in which classes are separate.
_TOUCHES = 1e-6

# Largest share of rows of a category that has few, and largest mean square of a number, in halves
# of its range, that hardly varies beside other columns. Both are upper ends, with this many
# deviations of the noise, which is less itself: what noise alone hides is not blamed on columns.
_FEW, _STILL, _DEVIATIONS = 0.05, 0.02, 3.0

# The name of a unit, the least variance, in halves of the range, that rounding does not hide, and
# how many deviations of its noise a variance is at least. With three of them, standard deviations
# that were just not hidden were up to 57 % too large.
_DEVIATION, _ROUNDING, _CLEAR = "deviation", 1e-12, 6.0

# A weight that tests accept only if they accept all: log-odds are then not known.
_ANY = 1e9

# Why that may be; and what may be the case where categories seem to have few rows.
_SCORES = {
    "logistic": "log-odds of rows are not known to about 1, from which no interval follows: columns"
    " tell the classes apart nearly always, nearly all rows have one outcome",
    "poisson": "logarithms of the rates of rows are not known to about 1, from which no interval"
    " follows: columns tell nearly always which counts are 0, nearly all counts are 0",
}
_ONE_OUTCOME = {
    "linear": "",
    "logistic": ", or nearly all of these have one outcome",
    "poisson": ", or nearly all of these have a count of 0",
}

# Terms that no finite weight is best for, without privacy.
_SEPARATE = (
    "the classes are separate: columns tell them apart without an error, or some have rows of one"
    " class alone"
)
_SEPARATE_COUNTS = (
    "columns tell without an error which counts are 0, or some categories have counts of 0 alone"
)


class RawCoefficients(NamedTuple):
    """Released equations, and how coefficients follow from them."""

    equations: Equations
    terms: tuple[Term, ...]

    @property
    def estimate(self) -> np.ndarray:
        """Estimates of all coefficients for one unit of their columns, hidden ones too."""
        return np.array([one.value for one in _along(self.equations, self.terms, 0.95)])


@public
@dataclass(frozen=True, eq=False, repr=False)
class PrivateCoefficients(PrivateResult):
    """Coefficients that were released, with intervals.

    Made by :func:`private_coefficients`.

    Parameters
    ----------
    terms : tuple of str
        Names of the coefficients: "Intercept", then the columns in the order of the schema.
        Categories are named by the value, as "ward[B]", missing values as "age[missing]", and
        numbers with their unit where that is not 1, as "age, per 10" or "age, per 12.3 (1 SD)".
    estimate : ndarray of shape (n_terms,)
        Coefficients: units of the target, log-odds, or logarithms of rates, for one more unit of
        the column, or against the reference category. NaN where `hidden`.
    low, high : ndarray of shape (n_terms,)
        Ends of the intervals. Infinite where noise leaves a coefficient undetermined, or, without
        noise, where classes are separate or columns are sums of others.
    level : float
        Chance with which an interval covers the coefficient, over noise and samples.
    simultaneous : bool
        Whether all intervals hold together with that chance.
    family : {"linear", "logistic", "poisson"}
        Which regression it is.
    target : str
        Name of the target, for "logistic" with its value that odds are about.
    privacy_ : PrivacyGuarantee
        What the call cost.
    released : object
        What was released, of which :meth:`at_level` makes other intervals. Its attribute
        `estimate` has the numbers of shape (n_terms,) for one unit of each column, also those
        that are hidden here.
    references : dict of str to object, default={}
        Value that the others are compared with, by column of categories.
    units : dict of str to float, default={}
        How many units of a column a coefficient is for, where that is not one. NaN for a standard
        deviation that noise hides: its coefficient is hidden.

    See Also
    --------
    private_coefficients : Makes these.
    CoefficientDisplay : Draws them.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace import private_coefficients
    >>> X = np.random.default_rng(0).uniform(0, 10, size=(50_000, 1))
    >>> found = private_coefficients(
    ...     X, target=3 * X[:, 0], bounds=(0, 10), target_bounds=(0, 30), random_state=0
    ... )
    >>> found.terms
    ('Intercept', 'x0')
    >>> found.at_level(0.5).level
    0.5
    >>> found.in_units({"x0": 10}).terms
    ('Intercept', 'x0, per 10')
    >>> bool(found.hidden.any())
    False
    >>> found.joint_p_value("x0") < 0.001
    True
    """

    terms: tuple[str, ...]
    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float
    simultaneous: bool
    family: str
    target: str
    privacy_: PrivacyGuarantee  # pyright: ignore[reportIncompatibleVariableOverride]
    released: Any
    references: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)

    @property
    def hidden(self) -> npt.NDArray[np.bool_]:
        """Whether each coefficient has no interval with two ends, of shape (n_terms,).

        The estimates of those that have none are NaN, and a dash in print: such a number says
        nothing, and would be taken for an estimate.
        """
        return ~(np.isfinite(self.estimate) & np.isfinite(self.low) & np.isfinite(self.high))

    @property
    def odds_ratio(self) -> np.ndarray:
        """Factors by which odds change, of a logistic regression, of shape (n_terms,).

        Raises
        ------
        AttributeError
            If the regression is not logistic.
        """
        return self._ratio("odds ratio")

    @property
    def rate_ratio(self) -> np.ndarray:
        """Factors by which rates change, of a Poisson regression, of shape (n_terms,).

        That of the intercept is the rate itself, of a row in which numbers are 0, for one unit of
        the exposure if there is one.

        Raises
        ------
        AttributeError
            If the regression is not one of Poisson.
        """
        return self._ratio("rate ratio")

    def _ratio(self, name: str) -> np.ndarray:
        if name != self._ratio_name:
            kind = "Poisson" if self.family == "poisson" else self.family
            raise AttributeError(f"a {kind} regression has no {name}s: see `estimate`.")
        return _exp(self.estimate)

    @property
    def _ratio_name(self) -> str:
        """Name of the exponentials of coefficients; "" if they have none."""
        return FAMILIES[self.family].ratio

    @property
    def p_value(self) -> np.ndarray:
        """Two-sided p values from 0 to 1 that coefficients are 0, of shape (n_terms,).

        They are those of the tests that the intervals come from, so that a value below
        ``1 - level`` and an interval without 0 say the same. Each is by itself, also where the
        intervals are simultaneous. NaN where a coefficient is hidden.
        """
        equations, terms = self.released
        if equations.exact:
            with np.errstate(divide="ignore", invalid="ignore"):
                z = np.abs(self.estimate) / self._std_error
        else:
            zeros = (-term.shift / term.factor for term in terms)
            tests = zip(terms, zeros, strict=True)
            z = [accepted_along(equations, term.direction, zero) for term, zero in tests]
        return np.where(self.hidden, math.nan, 2 * norm.sf(z))

    @property
    def _std_error(self) -> np.ndarray:
        """Half of the intervals over the normal quantile; NaN where a coefficient is hidden."""
        each = _level_of_each(self.level, self.simultaneous, len(self.terms))
        with np.errstate(invalid="ignore"):
            half = (self.high - self.low) / 2
        return np.where(self.hidden, math.nan, half / norm.ppf(0.5 + each / 2))

    def joint_p_value(self, variable: str) -> float:
        """Return the p value that all coefficients of a column are 0, at no cost.

        For a column of categories this asks whether it has to do with the target at all: all levels
        are tested together, with as many degrees of freedom, by the test that intervals come from.
        Without privacy it is Wald's test with the sandwich covariance, which does not depend on the
        reference. For a number whose missing values have a coefficient of their own it tests both.

        Parameters
        ----------
        variable : str
            Column of the schema that explains the target.

        Returns
        -------
        float
            From 0 to 1; NaN if all coefficients of the column are hidden. With noise the test may
            reject since no coefficients fit, which happens to one true hypothesis in 1,000. A
            value below 0.001 says no more than that, as it is printed.

        Raises
        ------
        ValueError
            If the schema has no such column, or it is the target.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> from dpsubspace import private_coefficients
        >>> rng = np.random.default_rng(0)
        >>> frame = pd.DataFrame({"ward": rng.choice(["A", "B", "C"], 50_000)})
        >>> frame["stay"] = (frame["ward"] == "C") + rng.uniform(size=50_000)
        >>> schema = {"ward": ["A", "B", "C"], "stay": (0, 2)}
        >>> found = private_coefficients(frame, schema, "stay", epsilon=1.0, random_state=0)
        >>> found.joint_p_value("ward") < 0.001
        True
        """
        equations, terms = self.released
        columns = list(dict.fromkeys(term.variable for term in terms[1:]))
        _check_column("variable", "one of the columns", variable, columns)
        own = [i for i, term in enumerate(terms) if i and term.variable == variable]
        if self.hidden[own].all():
            return math.nan
        directions = np.array([terms[i].direction for i in own])
        statistic, freedom = joint_statistic(equations, directions)
        return float(chi2.sf(statistic, freedom))

    def at_level(self, level: float, *, simultaneous: bool = False) -> PrivateCoefficients:
        """Return the same coefficients with intervals of another level, at no cost.

        Parameters
        ----------
        level : float
            Chance with which an interval covers the coefficient, over noise and samples.
        simultaneous : bool, default=False
            Whether all intervals hold together with that chance, by the inequality of Bonferroni.

        Returns
        -------
        PrivateCoefficients
            Coefficients of the same release.

        Raises
        ------
        ValueError
            If a parameter is out of its range.
        """
        check_real("level", level, low=0, high=1)
        check_bool("simultaneous", simultaneous)
        return self._with(self.units, level, simultaneous)

    def in_units(self, units: Mapping[str, float | str] | str) -> PrivateCoefficients:
        """Return the same coefficients for other numbers of units, at no cost.

        Parameters
        ----------
        units : dict of str to float or "deviation", or "deviation"
            For columns of numbers, how many units a coefficient, its interval and its ratio are
            for, as in ``{"age": 10, "balance": "deviation"}``. Positive and finite. "deviation" is
            the standard deviation of the column, as it was released, and by itself stands for all
            columns of numbers. A column that is not named has a unit of 1, also where it had
            another one before.

        Returns
        -------
        PrivateCoefficients
            Coefficients of the same release.

        Raises
        ------
        ValueError
            If a name is not that of a column of numbers, or a number of units is out of its range.
        """
        units = _in_numbers(_checked_units(units, self.released[1]), self._deviations)
        _warn_of_no_deviation(units, self.released.equations.exact)
        return self._with(units, self.level, self.simultaneous)

    @property
    def _deviations(self) -> dict[str, float]:
        return _deviations(*self.released)

    def _with(
        self, units: Mapping[str, float], level: float, simultaneous: bool
    ) -> PrivateCoefficients:
        equations, terms = self.released
        scaled = _in_units(terms, units, self._deviations)
        intervals = _intervals(equations, scaled, level, simultaneous)
        return replace(self, terms=_names(scaled), units=units, **intervals)

    def to_frame(self) -> Any:
        """Return the coefficients as a pandas data frame.

        Returns
        -------
        DataFrame
            A row for each coefficient and for each reference category, with the columns "term",
            "variable" (the column of the table, or "Intercept"), "level" (the category, "missing",
            or None for a number), "is_reference", "n", "n_std", "estimate", "low", "high",
            "std_error", "p_value" and "p_value_joint". A logistic regression also has "events" and
            "events_std" after these of n, and "odds_ratio", "odds_ratio_low" and "odds_ratio_high",
            and one of Poisson the same with "rate_ratio". A reference has the estimate 0 and the
            ratio 1, and NaN for intervals and p values. "n" is how many rows have the category, or
            persons with `groups`, where each of a person's rows counts as a part; "events" is how
            many of these have the outcome, or the sum of their counts. They are released numbers,
            rounded and within their range, with noise of the standard deviations "n_std" and
            "events_std". References, and numbers with missing values, have what the other levels
            leave of all records, whose number is public. "std_error" is half of the interval over
            the normal quantile of its level, which is about the usual one where the interval is
            about symmetric. "p_value_joint" is :meth:`joint_p_value`, on references of columns with
            more than two levels.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        import pandas as pd

        rows = self._rows()
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        columns["level"] = pd.Series(columns["level"], dtype=object)  # keeps None, and numbers
        return pd.DataFrame(columns)

    def summary(self) -> str:
        """Return the coefficients as a table in text, as papers print them.

        Returns
        -------
        str
            A title, a line for each coefficient and each reference, and notes: what intervals
            and references are, and the guarantee with the number of records.
        """
        return with_notes([self._title, "", *as_text(self._printed(), 1)], *self._notes)

    def plot(self, ax: Any = None, **plot_params: Any) -> Any:
        """Draw the coefficients with their intervals, or ratios; this costs nothing more.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in. None makes new ones.
        **plot_params : dict
            Passed to :meth:`CoefficientDisplay.plot`.

        Returns
        -------
        CoefficientDisplay
            The picture and its data.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        return imported("CoefficientDisplay").from_coefficients(self, ax=ax, **plot_params)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return as_html(self._title, self._printed(), 1, *self._notes)

    # Printing -------------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        return f"{self.family.capitalize()} regression of {self.target}"

    @property
    def _notes(self) -> list[str]:
        """Lines below the table: the intervals, the references, the guarantee."""
        together = "for all together, p values for each by itself" if self.simultaneous else "each"
        unit = self.privacy_.unit
        told = (
            f"Intervals cover with {100 * self.level:g}% {together}, over noise and samples of"
            f" independent {unit}s, and n counts {unit}s. P values are two-sided, of the tests that"
            " intervals come from."
        )
        if len({term.variable for term in self.released[1]}) > 2:
            told += " Each column is adjusted for the others."
        if self.hidden.any():
            told += f" A dash ({DASH}): without an interval there is no estimate."
        pairs = [f"{name}[{value}]" for name, value in self.references.items()]
        if pairs:
            told += f" References, also for values not listed: {', '.join(pairs)}."
        if any(map(self._has_joint, self.references)):
            told += " p of a reference is for all levels of its column together."
        deviations = self._deviations
        if any(unit == deviations[x] or math.isnan(unit) for x, unit in self.units.items()):
            told += " SD: the standard deviation of a column, as it was released."
        told += self._told_of_noise
        first = self.released[1][0]
        if self.family == "linear" and (first.shift, first.factor) == (0.5, 0.5):
            # The range of the target is 0 to 1, which is all that is public about it.
            told += (
                f" If {self.target} is 0 or 1, this is a linear probability model:"
                " Categories([0, 1]) gives odds ratios."
            )
        return [told, footnote(self.privacy_)]

    @property
    def _told_of_noise(self) -> str:
        """Sentence about the noise of counts, for those that have any."""
        equations, terms = self.released
        tally, levels = equations.tally, any(term.level is not None for term in terms)
        names = ["n"] * levels + ["events"] * FAMILIES[self.family].counted
        if not (tally.noise and names):
            return ""
        noises = {"n": tally.noise, "events": tally.noise * tally.largest}
        sizes = [f"{x:,.0f}" if x >= 10 else f"{x:.2g}" for x in (noises[name] for name in names)]
        more = "; more for references" if self.references else ""
        verb = "have" if names[-1] == "events" else "has"
        unit = "" if self.privacy_.unit == "row" else f", in {self.privacy_.unit}s,"
        counts, size = f"{' and '.join(names)}{unit}", " and ".join(dict.fromkeys(sizes))
        return f" {counts} {verb} noise of about {size} (one standard deviation{more})."

    def _has_joint(self, variable: str) -> bool:
        """Whether a column has more levels than its reference and one."""
        return sum(term.variable == variable for term in self.released[1][1:]) > 1

    def _columns(self) -> dict[str, Any]:
        """Columns of numbers and names, with an entry for each coefficient."""
        terms = self.released[1]
        columns = {
            "term": self.terms,
            "variable": [term.variable for term in terms],
            "level": [term.level for term in terms],
            "is_reference": [False] * len(terms),
            **_counts_of(*self.released)[0],
            "estimate": self.estimate,
            "low": self.low,
            "high": self.high,
            "std_error": self._std_error,
            "p_value": self.p_value,
            "p_value_joint": [math.nan] * len(terms),
        }
        ratios = (_exp(self.estimate), _exp(self.low), _exp(self.high))
        return columns | dict(zip(self._ratio_columns, ratios, strict=False))

    @property
    def _ratio_columns(self) -> list[str]:
        """Names of the columns with ratios and their ends; none where there are no ratios."""
        name = self._ratio_name.replace(" ", "_")
        return [name, f"{name}_low", f"{name}_high"] if name else []

    def _rows(self) -> list[dict[str, Any]]:
        """Coefficients, and before those of each column of categories its reference."""
        columns, rows, named = self._columns(), [], set()
        of_references = _counts_of(*self.released)[1]
        for i, values in enumerate(zip(*columns.values(), strict=True)):
            row = dict(zip(columns, values, strict=True))
            name = row["variable"]
            if name in self.references and name not in named:
                named.add(name)
                value = self.references[name]
                reference = {"term": f"{name}[{value}]", "variable": name, "level": value}
                reference |= {"is_reference": True, "estimate": 0.0}
                reference |= dict.fromkeys(self._ratio_columns[:1], 1.0)
                reference |= {key: left[i] for key, left in of_references.items()}
                if self._has_joint(name):
                    reference["p_value_joint"] = self.joint_p_value(name)
                rows.append({key: reference.get(key, math.nan) for key in columns})
            rows.append(row)
        return rows

    def _printed(self) -> list[list[str]]:
        """Return the cells of the printed table, its head first."""
        interval, ratios = f"{100 * self.level:g}% interval", self._ratio_columns
        counted = ["n", *["events"] * FAMILIES[self.family].counted]
        ratio = [self._ratio_name, interval] * bool(ratios)
        head = ["", *counted, "coefficient", interval, *ratio, "p"]
        lines = [head]
        for row in self._rows():
            start = [row["term"], *(f"{row[name]:,}" for name in counted)]
            if row["is_reference"]:
                numbers = ["0", "", "1", "(reference)"] if ratios else ["0", "(reference)"]
                joint = self._has_joint(row["variable"])
                p = as_p_value(row["p_value_joint"]) if joint else ""
                lines.append([*start, *numbers, p])
                continue
            cells = as_estimate(row["estimate"], row["low"], row["high"])
            if ratios:
                cells += as_estimate(*(row[name] for name in ratios), ratio=True)
            lines.append([*start, *cells, as_p_value(row["p_value"])])
        return lines


def _counts_of(
    equations: Equations, terms: tuple[Term, ...]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return whole numbers of records and events of terms, and of what their columns leave.

    A level has its own. What the levels of a column leave of all is that of its reference, or of a
    number that is not missing.
    """
    tally = equations.tally
    assert tally is not None  # as in all that are released
    levels = np.array([term.level is not None for term in terms])
    same = levels & np.array([[one.variable == term.variable for one in terms] for term in terms])
    same[0] = False  # the intercept is of all records
    n_others = same.sum(axis=1)

    def counted(name: str, found: np.ndarray, noise: float, most: Any, rest: Any, more: int) -> Any:
        own = np.clip(np.rint(np.where(levels, found, 0.0)), 0, most)
        left = np.clip(np.rint(found[0]) - same @ own, 0, rest)
        own = np.where(levels, own, left)
        of_rest = noise * np.sqrt(n_others + more)
        of_own = np.where(levels, noise, of_rest)
        return (
            {name: own.astype(int), f"{name}_std": of_own},
            {name: left.astype(int), f"{name}_std": of_rest},
        )

    own, left = counted("n", tally.records, tally.noise, equations.n, equations.n, 0)
    if tally.events is not None:
        most, rest = (np.rint(tally.largest * found["n"]) for found in (own, left))
        more = counted("events", tally.events, tally.noise * tally.largest, most, rest, 1)
        own, left = own | more[0], left | more[1]
    return own, left


def _exp(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.exp(values)


@private_function
def private_coefficients(
    X: Any,
    schema: Any = None,
    target: Any = None,
    *,
    bounds: Any = None,
    target_bounds: Any = None,
    family: str = "auto",
    exposure: str | None = None,
    reference: Mapping[str, Any] | None = None,
    units: Mapping[str, float | str] | str | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> PrivateCoefficients:
    """Release coefficients of a linear, logistic or Poisson regression, with intervals.

    Coefficients are in the units of the table: how much the target changes, or its log-odds, or the
    logarithm of its rate, for one more unit of a column, and against the reference for a category.
    Intervals count the noise that protects the rows as well as chance in which rows there are. A
    coefficient that noise hides gets a wide interval, or none at all, and then no estimate. That
    intervals cover is seen in simulations, and rests on a prior for the other coefficients (see the
    notes).

    Parameters
    ----------
    X : data frame, dataset, or array-like of shape (n_samples, n_features)
        Private rows, with the target if there is a `schema`. A data frame is of pandas, Polars,
        Arrow or Dask, and a dataset of PyArrow, whose files are read about fifteen times.
    schema : Schema or dict, optional
        What is public about the columns and the target: a :class:`Range` for numbers and
        :class:`Categories` for values. All its columns but the target explain the target,
        and formulas are not read: make interactions and squares as columns. A private range is
        refused: without a public one there is no saying what a coefficient is about. Leave it
        out for an array, and give `bounds`.
    target : str, or array-like of shape (n_samples,)
        Name of the target in the schema; or, for an array, the targets themselves.
    bounds : tuple (low, high), optional
        Public ranges of the columns of an array: two numbers, or two arrays of shape
        (n_features,). Values outside are clipped.
    target_bounds : tuple (low, high), optional
        Public range of the targets of an array. None takes them to be 0 or 1.
    family : {"auto", "linear", "logistic", "poisson"}, default="auto"
        "linear" is least squares for a target with a range, "logistic" the odds of a target with
        two categories, and "poisson" the logarithm of the rate of a target of counts, with a range
        that does not begin below 0. "auto" takes what the target is for, and never "poisson": an
        outcome of 0 and 1 needs ``Categories([0, 1])`` for odds ratios, and with ``Range(0, 1)`` it
        has a linear probability model.
    exposure : str, optional
        For "poisson", the name of a column of numbers that counts are in proportion to, such as
        days under risk: rates are then for one of its units, and it has no coefficient. Its range
        is public and begins above 0. None takes all rows to have the same exposure.
    reference : dict of str to object, optional
        For columns of categories, the value that the others are compared with; of a target
        the value whose odds the others' are over. It is the first in the schema for columns that
        are not named.
    units : dict of str to float or "deviation", or "deviation", optional
        For columns of numbers, how many units a coefficient is for, as in ``{"age": 10, "balance":
        "deviation"}``. Positive and finite, and 1 for columns that are not named. "deviation" is
        the standard deviation of the column, of the sums that the fit releases anyway, and by
        itself stands for all columns of numbers. It is that of values that are not missing, clipped
        to their range. Where noise hides it, so it does the coefficient: with 20,000 rows and
        epsilon 1 it is there, to about 10 %, for ranges of up to 12 standard deviations. Units
        change what is shown, not what is released: :meth:`PrivateCoefficients.in_units` takes
        others.
    level : float, default=0.95
        Chance with which an interval covers the coefficient, over noise and samples.
    simultaneous : bool, default=False
        Whether all intervals hold together with that chance, by the inequality of Bonferroni.
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
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.
    groups : array-like of shape (n_samples,), optional
        Who each row belongs to, in numbers or text. All rows of one person are then protected
        together: the unit of the guarantee is the person, and the number of persons takes the
        place of the number of rows in everything that follows from it. A person's rows count
        as one row: each of ten rows counts for a tenth. None protects single rows, and takes each
        for another person: where persons have several rows, n counts them several times, and
        intervals are too short. A column or an index that is not in the schema and is named like
        one of persons, as "patient_id", draws a warning before anything is charged; no value of
        it is looked at.

    Returns
    -------
    PrivateCoefficients
        Coefficients with intervals, of which `summary` is the table, `to_frame` a data frame and
        ``privacy_`` the :class:`PrivacyGuarantee` of this call.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used; nothing has been
        released then and no privacy spent.

    See Also
    --------
    CoefficientDisplay : Draws coefficients with their intervals.
    DPLinearRegression : Predicts better, and has no valid intervals.
    private_mean : The mean of private rows.

    Notes
    -----
    What is estimated is the fit to the population that the rows are a sample of, with values
    clipped to the schema: the best linear predictor, or the logistic or Poisson model nearest to
    the truth. No model has to be true for the intervals: counts may vary more than those of
    Poisson do. Intervals are of the kind of a sandwich covariance (of
    Huber and White), clustered by person with `groups`, where a person's rows count as one.
    What a row contributes to the last score is cut at a length that noisy counts choose. How much
    is cut is released, and intervals are longer by it.

    A value that is none of the categories of a column counts as the reference, and a missing
    number, where the schema declares them, as the middle of its range with an indicator of its own.
    Values of the target have to be in the schema.

    Noise hardly depends on the ranges: with 10,000 rows, ranges of a hundred standard deviations on
    either side are about as good as ranges of three. With 20,000 rows and epsilon 3, intervals of
    odds ratios are 1.05 to 1.3 times as long as without privacy on most tables.

    Released, as Gaussian mechanisms that are calibrated together: sums of the columns, of squares
    of numbers and of the target, for "logistic" and "poisson" also within each category, where
    counts are divided by the end of their range, and of exposures; the second moment of rows that
    are centred and scaled by these; the mean score at a constant; for "logistic" and "poisson" the
    curvature at the weights that follow; a second score; how many rows have scores and curvatures
    of each size; for these families one to six more scores, as many as add little noise; and a last
    score together with the mass of what is cut from it, the curvature, and the second moment of
    what records contribute to it. From the third on, rows are taken in a basis in which released
    moments are about the identity. How many rows and events each category has follows from the
    first. With d columns, the sums have a
    sensitivity of at most ``sqrt(2 d + 2)``. Every other contribution of a row is cut to a length c
    that is public or released by then. That is the sensitivity for ``"zero_out"``; for
    ``"replace_one"`` it is 2 c for a score, sqrt(2) c for a moment and a curvature, and 2 for the
    counts, which have sqrt(2) for ``"zero_out"``. The unit is one row. Assumed public: the numbers
    of rows and columns, the schema and all parameters.

    Intervals have all values that a test does not reject (Fieller, 1954; Anderson, Rubin, 1949),
    with noise in the moments as in regressions with weak instruments (Kleibergen, 2002).
    How far the other coefficients are from where they were last estimated has a normal prior with a
    wide scale: half of the range of the target for half of the range of a column or a category, and
    2 in log-odds and logarithms of rates; for a number at least 0.4 of that half of the range of
    the target, and 0.8 in log-odds and logarithms of rates, for one standard deviation of the
    column, as far as noise shows it. It counts only where noise hides them. An interval that would
    rest on the prior for the most part, as that of a column that another one repeats, or be ten
    times as long as its deviation, has no ends. It has none either where log-odds of rows, or
    logarithms of rates, are known less well than to about 1. For
    ``epsilon=float("inf")`` estimates are those of least squares or maximum likelihood, with
    intervals by the sandwich covariance.

    References
    ----------
    Anderson, Rubin. "Estimation of the parameters of a single equation in a complete system of
    stochastic equations". Annals of Mathematical Statistics 20, 1949.

    Kleibergen. "Pivotal statistics for testing structural parameters in instrumental variables
    regression". Econometrica 70, 2002.

    Stein. "Estimation of the mean of a multivariate normal distribution". Annals of Statistics 9,
    1981.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dpsubspace import private_coefficients
    >>> rng = np.random.default_rng(0)
    >>> frame = pd.DataFrame(
    ...     {"age": rng.uniform(18, 90, 50_000), "ward": rng.choice(["A", "B"], 50_000)}
    ... )
    >>> frame["stay"] = 2 + 0.1 * frame["age"] + (frame["ward"] == "B") + rng.normal(size=50_000)
    >>> schema = {"age": (18, 90), "ward": ["A", "B"], "stay": (0, 16)}
    >>> found = private_coefficients(frame, schema, target="stay", epsilon=1.0, random_state=0)
    >>> found.terms
    ('Intercept', 'age', 'ward[B]')
    >>> bool(abs(found.estimate[1] - 0.1) < 0.01)
    True
    >>> found.privacy_.epsilon
    1.0
    """
    goal = Target(epsilon, delta, neighboring_relation).checked()
    check_choice("family", family, ("auto", *FAMILIES))
    check_real("level", level, low=0, high=1)
    check_bool("simultaneous", simultaneous)
    frame, schema, name = _as_table(X, schema, target, bounds, target_bounds, groups)
    coding = Coding.of(schema, name, family, reference, exposure)
    terms = coding.terms()
    units = {} if units is None else _checked_units(units, terms)
    table = read_anywhere(frame, schema, name="X", groups=groups)
    coding.check(table)
    warn_of_persons(frame, schema, groups)
    records = check_groups(groups, table.numbers)
    plan, noise = CoefficientsPlan(goal, coding), as_noise(random_state)
    equations, guarantee = run_privately(plan, table, records, len(schema) - 1, noise)
    deviations = _deviations(equations, terms)
    units = _in_numbers(units, deviations)
    scaled = _in_units(terms, units, deviations)
    found = PrivateCoefficients(
        terms=_names(scaled),
        **_intervals(equations, scaled, level, simultaneous),
        family=coding.family,
        target=coding.target_name,
        privacy_=guarantee,
        released=RawCoefficients(equations, terms),
        references={name: v for name, v in coding.references.items() if name != coding.target},
        units=units,
    )
    _warn_of_no_ends(found)
    _warn_of_no_deviation(units, equations.exact)
    return found


def _checked_units(units: Any, terms: tuple[Term, ...]) -> dict[str, float | str]:
    """Return units as numbers, or "deviation"; ValueError unless they are of columns of numbers."""
    numbers = [term.variable for term in terms[1:] if term.level is None]
    if isinstance(units, str) and units == _DEVIATION:
        units = dict.fromkeys(numbers, _DEVIATION)
    if not isinstance(units, Mapping):
        raise ValueError(
            "`units` must be 'deviation', or a dict from columns of numbers to how many units a"
            f" coefficient is for, such as {{'age': 10}}, got {shown(units)}."
        )
    for name in units:
        _check_column("units", "columns of numbers", name, numbers)
    hint = "It is how many units of the column a coefficient is for, or 'deviation'."
    return {
        name: _DEVIATION
        if isinstance(value, str) and value == _DEVIATION
        else check_real(f"units[{name!r}]", value, low=0, hint=hint)
        for name, value in units.items()
    }


def _in_numbers(
    units: Mapping[str, float | str], deviations: Mapping[str, float]
) -> dict[str, float]:
    """Return units with numbers in place of "deviation", NaN where it is hidden."""
    return {
        name: deviations[name] if isinstance(unit, str) else unit for name, unit in units.items()
    }


def _deviations(equations: Equations, terms: tuple[Term, ...]) -> dict[str, float]:
    """Return standard deviations of columns of numbers by released sums; NaN where noise hides one.

    The noise of a variance is by its derivatives: of the mean square, of the mean, and of the
    number of values if some are missing.
    """
    tally, found = equations.tally, {}
    assert tally is not None  # as in all that are released
    for i, term in [(i, term) for i, term in enumerate(terms) if i and term.level is None]:
        gaps = [j for j, one in enumerate(terms) if j != i and one.variable == term.variable]
        n = equations.n - float(tally.records[gaps].sum())
        found[term.variable] = math.nan
        if n <= _CLEAR * tally.noise:
            continue
        mean, square = float(tally.sums[i]) / n, float(tally.squares[i]) / n
        slopes = (1.0, 2 * mean, 2 * mean**2 - square if gaps else 0.0)
        variance, noise = square - mean**2, tally.noise / n * math.hypot(*slopes)
        if variance > max(_CLEAR * noise, _ROUNDING):
            half = terms[0].factor / term.factor  # of the range
            found[term.variable] = half * math.sqrt(min(variance, 1.0))
    return found


def _check_column(parameter: str, kind: str, name: Any, columns: list[str]) -> None:
    """ValueError unless a name is among columns."""
    if not isinstance(name, str) or name not in columns:
        close = nearest(name, columns) if isinstance(name, str) else None
        hint = f"Did you mean {shown(close)}?" if close else f"They are {shown_first(columns)}."
        raise ValueError(
            f"`{parameter}` must name {kind} that explain the target, got {shown(name)}. {hint}"
        )


def _in_units(
    terms: tuple[Term, ...], units: Mapping[str, float], deviations: Mapping[str, float]
) -> tuple[Term, ...]:
    """Return the terms with coefficients for some units of their columns, which names tell."""

    def told(unit: float, deviation: float) -> str:
        if math.isnan(unit):
            return ", per SD"
        if unit == deviation:  # of three digits
            return f", per {float(f'{unit:.3g}'):.15g} (1 SD)"
        return "" if unit == 1 else f", per {unit:.15g}"

    def scaled(term: Term) -> Term:
        if term.level is not None or term.variable not in units:
            return term
        unit = units[term.variable]
        name = term.name + told(unit, deviations[term.variable])
        return replace(term, name=name, factor=term.factor * unit)

    return (terms[0], *map(scaled, terms[1:]))


def _names(terms: tuple[Term, ...]) -> tuple[str, ...]:
    return tuple(term.name for term in terms)


def _level_of_each(level: float, simultaneous: bool, n_terms: int) -> float:
    return 1 - (1 - level) / n_terms if simultaneous else level


def _along(equations: Equations, terms: tuple[Term, ...], level: float) -> list[Interval]:
    directions = np.array([term.direction for term in terms])
    found = intervals_along(equations, directions, level)
    return [term.at(one) for term, one in zip(terms, found, strict=True)]


def _intervals(
    equations: Equations, terms: tuple[Term, ...], level: float, simultaneous: bool
) -> dict[str, Any]:
    found = _along(equations, terms, _level_of_each(level, simultaneous, len(terms)))
    value, low, high = (np.array(part) for part in zip(*found, strict=True))
    return {
        "estimate": np.where(np.isfinite(low) & np.isfinite(high), value, math.nan),
        "low": low,
        "high": high,
        "level": level,
        "simultaneous": simultaneous,
    }


# Coefficients without an interval -----------------------------------------------------------------


def _warn_of_no_deviation(units: Mapping[str, float], exact: bool) -> None:
    hidden = [name for name, unit in units.items() if math.isnan(unit)]
    if hidden:
        cause = "values hardly vary within the declared range" if exact else "noise hides it"
        help = "" if exact else ", and narrower ranges, more rows or a larger epsilon help"
        warn(
            f"the standard deviation of {', '.join(hidden)} is not known, as {cause}, and there are"
            f" no coefficients for one. Numbers of units, as in in_units({{{hidden[0]!r}: 10}}),"
            f" cost nothing{help}.",
            UserWarning if exact else PrivacyWarning,
            about=("deviation", *hidden),
        )


def _warn_of_no_ends(found: PrivateCoefficients) -> None:
    equations, terms = found.released
    if any(map(math.isnan, found.units.values())):  # these are hidden for another reason
        found = found.in_units({})
    hidden = [terms[i] for i in np.flatnonzero(found.hidden)]
    if equations.exact:
        told = _SEPARATE_COUNTS if found.family == "poisson" else _SEPARATE
        _warn_of_no_estimate(equations, hidden, told)
    elif hidden:
        causes = " ".join(_causes(equations, hidden, found.family))
        warn(
            "these coefficients have no interval, and no estimate:"
            f" {', '.join(term.name for term in hidden)}. {causes}",
            PrivacyWarning,
            about=("coefficients", found.privacy_.epsilon),
        )


def _causes(equations: Equations, hidden: list[Term], family: str) -> list[str]:
    """Return why terms are hidden as far as released numbers tell, with what helps."""
    # Also where it cannot be computed, which is NaN.
    if family in _SCORES and not accepted_along(equations, hidden[0].direction, _ANY) > 0:
        return [
            f"The {_SCORES[family]}, or noise is large. Leave such columns out, or take more rows,"
            " fewer columns, narrower ranges or a larger epsilon."
        ]
    by_cause: dict[str, list[str]] = {"few": [], "still": [], "noise": []}
    for term in [term for term in hidden if term.variable != INTERCEPT] or hidden:
        by_cause[_cause(equations, term)].append(term.name)
    few, still, noise = (", ".join(names) for names in by_cause.values())
    one_class = _ONE_OUTCOME[family]
    told = {
        f"Few rows have {few}{one_class}: merge such categories with others.": few,
        f"Rows hardly vary in {still} within the declared ranges, beside the other columns: leave"
        " out columns that are constant or sums of others, or write narrower ranges.": still,
        f"Noise hides {noise}: more rows, fewer columns, narrower ranges or a larger epsilon"
        " help.": noise,
    }
    return [sentence for sentence, names in told.items() if names]


def _cause(equations: Equations, term: Term) -> str:
    """Return "few", "still" or "noise" by the released curvature.

    In the basis of the equations its noise is the same in all directions. A curvature that is small
    with all that noise may hide means that few rows have a category, or that rows hardly vary along
    the coefficient beside all others, whatever the target does: there is nothing to learn from.
    """
    if term.variable == INTERCEPT:  # follows from those of the columns
        return "noise"
    basis, p = equations.basis, len(equations.about)
    assert basis is not None  # as in all equations with noise
    noise = _DEVIATIONS * math.sqrt(2 * equations.slope_noise)
    most = equations.slope + noise * np.eye(p)
    beside = basis.T @ term.direction
    try:
        inverse, far = np.linalg.inv(basis), float(beside @ np.linalg.solve(most, beside))
    except np.linalg.LinAlgError:  # noise many times as wide as is likely
        return "noise"
    along = inverse @ term.direction
    # Mean of the weights of rows, which are at most 1.
    whole = min(max(float(inverse[:, 0] @ equations.slope @ inverse[:, 0]), noise), 1.0)
    hidden, seen = noise * float(along @ along), float(along @ equations.slope @ along)
    if term.level is not None and max(seen, 0.0) + hidden < _FEW * whole:
        return "few"
    return "still" if _STILL * whole * far > 1 else "noise"


def _warn_of_no_estimate(equations: Equations, without: list[Term], told: str) -> None:
    """Warn why terms have no estimate, if equations are exact and noise hides nothing.

    If columns are sums of others, rows do not vary along the direction of the term. Classes are
    separate along a direction that distinguishes them without an error. A category that no row has
    is along no direction at all.
    """
    separate, sums, empty, apart_along = [], [], [], np.asarray(equations.separate)
    for term in without:
        way = term.direction / np.linalg.norm(term.direction)
        apart = np.abs(way @ apart_along).max(initial=0.0) > _TOUCHES
        none = term.level is not None and not (equations.slope @ way).any()
        (empty if none else separate if apart else sums).append(term.name)
    if empty:
        warn(
            f"no row has {', '.join(empty)}, so that there is nothing to estimate: leave such"
            " categories out of the schema.",
            UserWarning,
            about=("empty", *empty),
        )
    if separate:
        warn(
            f"{told}, so that {', '.join(separate)} cannot be estimated. Leave such columns out,"
            " merge categories, or fit a model that shrinks coefficients.",
            UserWarning,
            about=("separate", *separate),
        )
    if sums:
        warn(
            f"columns are sums of others, so that {', '.join(sums)} cannot be told apart: leave"
            " some of them out.",
            UserWarning,
            about=("sums", *sums),
        )


# The table ----------------------------------------------------------------------------------


def _as_table(
    X: Any, schema: Any, target: Any, bounds: Any, target_bounds: Any, groups: Any
) -> tuple[Any, Schema, str]:
    """Return rows, their schema, and the name of the target in the schema."""
    _refuse_formula(X=X, schema=schema, target=target)
    if schema is not None:
        if bounds is not None or target_bounds is not None:
            raise ValueError("give a `schema`, or `bounds` and `target_bounds`, not both.")
        schema = as_schema(schema)
        if not isinstance(target, str) or target not in schema:
            close = nearest(target, list(schema)) if isinstance(target, str) else None
            hint = f"Did you mean {shown(close)}?" if close else "The schema needs the target too."
            raise ValueError(
                f"`target` must be the name of a column of the schema, got {shown(target)}. {hint}"
            )
        return X, schema, target
    if bounds is None or target is None or isinstance(target, str):
        raise ValueError(
            "an array needs `bounds` and an array of targets as `target`, and a data frame needs a"
            " `schema` and the name of its target, as in private_coefficients(frame, {'age': (18,"
            " 90), 'stay': (0, 30)}, target='stay')."
        )
    refuse_collection("X", X)
    refuse_collection("target", target)
    check_order(X, target=target, groups=groups)
    rows, targets = _rows_and_targets(X, target)
    check_bounds("bounds", bounds, rows.shape[1], column="feature")
    low, high = (np.broadcast_to(np.asarray(b, float), rows.shape[1]).tolist() for b in bounds)
    columns: dict[str, Any] = {
        f"x{i}": Range(*ends) for i, ends in enumerate(zip(low, high, strict=True))
    }
    if target_bounds is None:
        columns["y"] = Categories((0, 1))
    else:
        check_bounds("target_bounds", target_bounds, 1)
        ends = [float(np.ravel(np.asarray(end, dtype=float))[0]) for end in target_bounds]
        columns["y"] = Range(*ends)
    return np.column_stack([rows, targets]), Schema(columns), "y"


def _refuse_formula(**given: Any) -> None:
    for name, value in given.items():
        if isinstance(value, str) and "~" in value:
            raise ValueError(
                f"`{name}` is the formula {shown(value)}, and formulas are not read: name the"
                " target, as target='y', leave columns that explain nothing out of the schema, and"
                " make interactions and squares as columns of the table."
            )


def _rows_and_targets(X: Any, target: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and targets as numbers; error messages have no values and no number of rows."""
    message = "`target` must have one entry for each row of `X`, and has several."
    try:
        who = named("private_coefficients")
        rows, targets = check_rows_and_targets(who, X, target, accept_sparse=False)
        if targets.size == len(rows):
            return rows, targets.reshape(-1)
    except ValueError as error:
        message = str(error).replace("`y`", "`target`").replace("Input y ", "Input `target` ")
    raise ValueError(message)
