"""Coefficients of linear and logistic regression in the units of a table, with intervals.

Where to check the privacy claim: a call runs :func:`~dpsubspace._core.fits.estimator.run_privately`
and in it ``CoefficientsPlan`` of ``_core/plans/coefficients.py``, whose ``run`` is all of it.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, PrivateResult
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
)
from dpsubspace._core.plans.coefficients import Coding, CoefficientsPlan, Term
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.inputs import check_rows_and_targets, named
from dpsubspace._core.rows.records import check_groups, check_order
from dpsubspace._core.statistics.inverted_tests import Equations, intervals_along
from dpsubspace._core.tables.kinds import Categories, Range
from dpsubspace._core.tables.schema import Schema, as_schema, read_anywhere
from dpsubspace._names import imported, public
from dpsubspace.exceptions import PrivacyWarning, warn
from dpsubspace.statistics._printed_tables import as_html, as_text

# A term is affected by separate classes if more than this part of its direction lies along
# directions in which classes are separate.
_TOUCHES = 1e-6

# Share of coefficients without a finite interval from which on the user is warned.
_MANY = 0.25


@public
@dataclass(frozen=True, eq=False, repr=False)
class PrivateCoefficients(PrivateResult):
    """Coefficients that were released, with intervals.

    Made by :func:`private_coefficients`.

    Parameters
    ----------
    terms : tuple of str
        Names of the coefficients: "Intercept", then the columns in the order of the schema.
        Categories are named by the value, as "ward[B]", and missing values as "age[missing]".
    estimate : ndarray of shape (n_terms,)
        Coefficients: units of the target, or log-odds, for one more unit of the column, or
        against the reference category.
    low, high : ndarray of shape (n_terms,)
        Ends of the intervals. Infinite where noise leaves a coefficient undetermined, or, without
        noise, where classes are separate or columns are sums of others: `estimate` is NaN then.
    level : float
        Chance with which an interval covers the coefficient, over noise and samples.
    simultaneous : bool
        Whether all intervals hold together with that chance.
    family : {"linear", "logistic"}
        Which regression it is.
    target : str
        Name of the target, for "logistic" with its value that odds are about.
    privacy_ : PrivacyGuarantee
        What the call cost.
    released : object
        What was released, of which :meth:`at_level` makes other intervals.
    references : dict of str to object, default={}
        Value that the others are compared with, by column of categories.

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

    @property
    def odds_ratio(self) -> np.ndarray:
        """Factors by which the odds change for one more unit, of a logistic regression.

        Raises
        ------
        AttributeError
            If the regression is linear.
        """
        if self.family != "logistic":
            raise AttributeError("a linear regression has no odds ratios: see `estimate`.")
        return _exp(self.estimate)

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
        return replace(self, **_intervals(*self.released, level=level, simultaneous=simultaneous))

    def to_frame(self) -> Any:
        """Return the coefficients as a pandas data frame.

        Returns
        -------
        DataFrame
            One row a coefficient, with the columns "term", "estimate", "low", "high" and, for a
            logistic regression, "odds_ratio", "odds_ratio_low" and "odds_ratio_high".

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        import pandas as pd

        return pd.DataFrame(self._columns())

    def summary(self) -> str:
        """Return the coefficients as a table in text, as papers print them.

        Returns
        -------
        str
            A title, a line for each coefficient, and what protects the rows.
        """
        return "\n".join([self._title, "", *as_text(self._printed(), 1), "", self._footnote])

    def plot(self, ax: Any = None, **plot_params: Any) -> Any:
        """Draw the coefficients with their intervals, odds as ratios; this costs nothing more.

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
        page = as_html(self._title, self._printed(), 1)
        return f"{page}<p>{html.escape(self._footnote)}</p>"

    # Printing -------------------------------------------------------------------------------

    @property
    def _title(self) -> str:
        kind = "Logistic" if self.family == "logistic" else "Linear"
        return f"{kind} regression of {self.target}"

    @property
    def _footnote(self) -> str:
        said, together = self.privacy_, " for all together" if self.simultaneous else ""
        pairs = [f"{name}[{value}]" for name, value in self.references.items()]
        against = f" References, also for values not listed: {', '.join(pairs)}." if pairs else ""
        return (
            f"{said.n_samples} {said.unit}s, epsilon={said.epsilon:g}, delta={said.delta:.2g}."
            f" Intervals cover with {100 * self.level:g}%{together}, over noise and samples."
            f"{against}"
        )

    def _columns(self) -> dict[str, Any]:
        columns = {
            "term": list(self.terms),
            "estimate": self.estimate,
            "low": self.low,
            "high": self.high,
        }
        if self.family == "logistic":
            columns |= {
                "odds_ratio": self.odds_ratio,
                "odds_ratio_low": _exp(self.low),
                "odds_ratio_high": _exp(self.high),
            }
        return columns

    def _printed(self) -> list[list[str]]:
        """Return the cells of the printed table, its head first."""
        interval = f"{100 * self.level:g}% interval"
        columns = self._columns()
        head = ["", "coefficient", interval]
        parts = [("estimate", "low", "high")]
        if self.family == "logistic":
            head += ["odds ratio", interval]
            parts.append(("odds_ratio", "odds_ratio_low", "odds_ratio_high"))
        rows = []
        for i, term in enumerate(self.terms):
            cells = [term]
            for value, low, high in parts:
                cells.append(f"{columns[value][i]:.3g}")
                cells.append(f"{columns[low][i]:.3g} to {columns[high][i]:.3g}")
            rows.append(cells)
        return [head, *rows]


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
    reference: Mapping[str, Any] | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> PrivateCoefficients:
    """Release coefficients of a linear or logistic regression, with intervals.

    Coefficients are in the units of the table: how much the target changes, or its log-odds,
    for one more unit of a column, and against the reference for a category. Intervals count the
    noise that protects the rows as well as chance in which rows there are. A coefficient that
    noise hides gets a wide interval, or one without ends. That intervals cover is seen in
    simulations, and rests on a prior for the other coefficients (see the notes).

    Parameters
    ----------
    X : data frame, dataset, or array-like of shape (n_samples, n_features)
        Private rows, with the target if there is a `schema`. A data frame is of pandas, Polars,
        Arrow or Dask, and a dataset of PyArrow, whose files are read about ten times.
    schema : Schema or dict, optional
        What is public about the columns and the target: a :class:`Range` for numbers and
        :class:`Categories` for values. All its columns but the target explain the target.
        A private range is refused: without a public one there is no saying what a
        coefficient is about. Leave it out for an array, and give `bounds`.
    target : str, or array-like of shape (n_samples,)
        Name of the target in the schema; or, for an array, the targets themselves.
    bounds : tuple (low, high), optional
        Public ranges of the columns of an array: two numbers, or two arrays of shape
        (n_features,). Values outside are clipped.
    target_bounds : tuple (low, high), optional
        Public range of the targets of an array. None takes them to be 0 or 1.
    family : {"auto", "linear", "logistic"}, default="auto"
        "linear" is least squares for a target with a range, "logistic" the odds of a target with
        two categories. "auto" takes what the target is for.
    reference : dict of str to object, optional
        For columns of categories, the value that the others are compared with; of a target
        the value whose odds the others' are over. It is the first in the schema for columns that
        are not named.
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
        as one row: each of ten rows counts for a tenth. None protects single rows.

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
    clipped to the schema: the best linear predictor, or the logistic model nearest to the truth. No
    model has to be true for the intervals. Intervals are of the kind of a sandwich covariance (of
    Huber and White), clustered by person with `groups`, where a person's rows count as one.
    Residuals are cut at a size that noisy counts choose, the less the shorter a row is. How much
    is cut is released, and intervals are longer by it.

    A value that is none of the categories of a column counts as the reference, and a missing
    number, where the schema declares them, as the middle of its range with an indicator of its own.
    Values of the target have to be in the schema.

    The noise follows the ranges, and not the spread of the values: with ranges three standard
    deviations wide on either side, 10,000 rows, 10 columns and epsilon 1 give intervals about two
    (logistic) to three times (linear) as long as without privacy. Where ranges are ten deviations
    wide, coefficients are lost.

    Released, as Gaussian mechanisms that are calibrated together: the second moment of rows on
    their ranges; the mean score at weights of zero, and at weights that follow from what was
    released, twice, or for "logistic" thirteen times where that adds little noise, each time with
    the mass of what is cut from residuals; counts of residuals by
    size; for "logistic" the curvature; and with the last score the second moment of what records
    bring to it, and for "linear" the sum of squared residuals. With d columns, and one
    more for the constant, the norm of a row is at most ``sqrt(d + 1)``; so the sensitivity
    of the moment is d + 1 (``"zero_out"``) or sqrt(2) (d + 1) (``"replace_one"``), and that of
    a score the root times the size at which residuals of such a row are cut, or twice that; what
    is cut from a residual counts as no more than a public number. The unit is one row. Assumed
    public: the numbers of rows and columns, the schema and all parameters.

    Intervals have all values that a test does not reject (Fieller, 1954; Anderson, Rubin, 1949),
    with noise in the moments as in regressions with weak instruments (Kleibergen, 2002).
    How far the other coefficients are from where they were last estimated has a normal prior with
    a wide scale: half of the range of the target for half of the range of a column or a category,
    and 2 in log-odds; for a number at least 0.4 of that half of the range of the target, and 0.8
    in log-odds, for one standard deviation of the column, as far as noise shows it. It counts only
    where noise hides them. Where log-odds of rows are known less well than to about 1, intervals of
    a logistic regression have no ends. For ``epsilon=float("inf")`` estimates are
    those of least squares or maximum likelihood, with intervals by the sandwich covariance.

    References
    ----------
    Anderson, Rubin. "Estimation of the parameters of a single equation in a complete system of
    stochastic equations". Annals of Mathematical Statistics 20, 1949.

    Kleibergen. "Pivotal statistics for testing structural parameters in instrumental variables
    regression". Econometrica 70, 2002.

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
    check_choice("family", family, ("auto", "linear", "logistic"))
    check_real("level", level, low=0, high=1)
    check_bool("simultaneous", simultaneous)
    frame, schema, name = _as_table(X, schema, target, bounds, target_bounds, groups)
    coding = Coding.of(schema, name, family, reference)
    table = read_anywhere(frame, schema, name="X", groups=groups)
    coding.check(table)
    records = check_groups(groups, table.numbers)
    plan, noise = CoefficientsPlan(goal, coding), as_noise(random_state)
    equations, guarantee = run_privately(plan, table, records, len(schema) - 1, noise)
    terms = coding.terms()
    found = PrivateCoefficients(
        terms=tuple(term.name for term in terms),
        **_intervals(equations, terms, level, simultaneous),
        family=coding.family,
        target=coding.target_name,
        privacy_=guarantee,
        released=(equations, terms),
        references={name: v for name, v in coding.references.items() if name != coding.target},
    )
    _warn_of_no_ends(found)
    return found


def _intervals(
    equations: Equations, terms: tuple[Term, ...], level: float, simultaneous: bool
) -> dict[str, Any]:
    each = 1 - (1 - level) / len(terms) if simultaneous else level
    along = intervals_along(equations, np.array([term.direction for term in terms]), each)
    found = [term.at(one) for term, one in zip(terms, along, strict=True)]
    value, low, high = (np.array(part) for part in zip(*found, strict=True))
    return {
        "estimate": value,
        "low": low,
        "high": high,
        "level": level,
        "simultaneous": simultaneous,
    }


def _warn_of_no_ends(found: PrivateCoefficients) -> None:
    open_ended = np.isinf(found.low) | np.isinf(found.high)
    equations, terms = found.released
    if equations.exact:
        _warn_of_no_estimate(equations, [terms[i] for i in np.flatnonzero(open_ended)])
    elif open_ended.mean() >= _MANY:
        warn(
            f"noise hides {int(open_ended.sum())} of {len(found.terms)} coefficients, whose"
            " intervals have no ends. More rows, fewer columns, narrower ranges or a larger epsilon"
            " help.",
            PrivacyWarning,
            about=("coefficients", found.privacy_.epsilon),
        )


def _warn_of_no_estimate(equations: Equations, without: list[Term]) -> None:
    """Warn why terms have no estimate, if equations are exact and noise hides nothing.

    If columns are sums of others, rows do not vary along the direction of the term. Classes are
    separate along a direction that distinguishes them without an error.
    """
    separate, sums, apart_along = [], [], np.asarray(equations.separate)
    for term in without:
        way = term.direction / np.linalg.norm(term.direction)
        apart = np.abs(way @ apart_along).max(initial=0.0) > _TOUCHES
        (separate if apart else sums).append(term.name)
    if separate:
        warn(
            f"the classes are separate: columns tell them apart without an error, or some have rows"
            f" of one class alone, so that {', '.join(separate)} cannot be estimated. Leave such"
            " columns out, merge categories, or fit a model that shrinks coefficients.",
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
