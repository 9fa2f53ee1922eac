"""Coefficients of linear, logistic and Poisson regression of a table.

Where to check the privacy claim: :meth:`CoefficientsPlan.run` is all of it. Its releases are those
of ``released_equations`` in ``_core/solvers/equations.py``, which bounds what a record contributes
to each. Noise is added in ``_core/release/mechanisms.py``, and the event is made by
``Budget.split`` in ``_core/accounting/budget.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Target
from dpsubspace._core.accounting.enough import plan_takes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import FunctionPlan
from dpsubspace._core.ground.checks import shown, shown_first
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.records import Records
from dpsubspace._core.rows.remote import rowwise, sum_over_parts
from dpsubspace._core.solvers.design import Design
from dpsubspace._core.solvers.equations import PARTS, parts_of, released_equations
from dpsubspace._core.statistics.inverted_tests import Equations, Interval
from dpsubspace._core.tables.cells import in_unit, middle_of, values_of
from dpsubspace._core.tables.kinds import MISSING, UNKNOWN
from dpsubspace._core.tables.schema import Schema, Table, with_texts
from dpsubspace.exceptions import PrivacyWarning, warn

INTERCEPT = "Intercept"

# Least half of the width of a range, which values are divided by.
_NARROWEST = 1e-300


@dataclass(frozen=True)
class Term:
    """A coefficient: ``shift + factor * (direction @ weights)``."""

    name: str
    direction: np.ndarray = field(repr=False)
    factor: float
    shift: float = 0.0
    variable: str = ""  # Column that it is about
    level: Any = None  # Category, or "missing"; None for a number

    def at(self, found: Interval) -> Interval:
        return Interval(*(self.shift + self.factor * x for x in found))


@dataclass(frozen=True)
class Coding:
    """Public map of a table to a regression."""

    schema: Schema
    target: str
    family: str
    references: Mapping[str, Any]  # reference category by column
    exposure: str | None = None  # Column of which the logarithm is added to scores

    @classmethod
    def of(
        cls, schema: Schema, target: str, family: str, reference: Any, exposure: Any = None
    ) -> Coding:
        """Return the coding of a schema; ValueError if the schema has none."""
        if schema.texts:
            why = "a coefficient belongs to a number, a date or a category"
            raise with_texts(schema.texts, why)
        if exposure is not None:
            _check_exposure(schema, target, family, exposure)
        if len(schema) - (exposure is not None) < 2:
            raise ValueError("`schema` has the target alone: name a column that explains it.")
        if estimated := list(schema.private_ranges):
            raise ValueError(
                f"the ranges of {estimated} are private, and a coefficient needs a public one:"
                " write Range(low, high) from public knowledge."
            )
        narrow = [name for name in schema.numbers if middle_of(schema[name])[1] < _NARROWEST]
        if narrow:
            raise ValueError(
                f"the ranges of {narrow} are too narrow to divide by: write ranges that are wider,"
                " or values in a smaller unit."
            )
        natural = "logistic" if target in schema.categories else "linear"
        family = natural if family == "auto" else family
        kind: Any = schema[target]
        if kind.missing:
            raise ValueError(
                f"the target {shown(target)} must not have missing values: leave such rows out by a"
                " public rule, and missing=True out of the schema."
            )
        fits = family == natural or (natural, family) == ("linear", "poisson")
        if not fits or (natural == "logistic" and len(kind.values) != 2):
            raise ValueError(
                f"the target {shown(target)} must be Categories of two values, such as"
                " Categories([0, 1]), for a logistic regression or a Range for a linear one or one"
                f" of Poisson; the family is {family!r} and the schema says {shown(kind)}."
            )
        if family == "poisson" and kind._ends[0] < 0:
            raise ValueError(
                f"the target {shown(target)} of a Poisson regression has counts, and its range"
                f" must not begin below 0, got {shown(kind)}: write Range(0, high), or take"
                " family='linear'."
            )
        chosen = {} if reference is None else dict(reference)
        kinds: dict[str, Any] = dict(schema)
        for name, value in chosen.items():
            if name not in schema.categories or value not in kinds[name].values:
                raise ValueError(
                    "`reference` must give a column of categories one of its values"
                    + (f" {shown_first(kinds[name].values)}" if name in schema.categories else "")
                    + f", got {shown(value)} for {shown(name)}."
                )
        references = {name: chosen.get(name, kinds[name].values[0]) for name in schema.categories}
        return cls(schema, target, family, references, exposure)

    def check(self, table: Table) -> None:
        """ValueError where rows have an outcome that is none of the two."""
        logistic, kind = self.family == "logistic", self.schema[self.target]
        codes = values_of(table, self.schema, self.target)
        if logistic and sum_over_parts(np.count_nonzero, codes == UNKNOWN):
            values: Any = kind.values  # type: ignore[attr-defined]
            raise ValueError(
                f"rows have values of the target {shown(self.target)} that are not among"
                f" {shown(list(values))}, which the schema says. Correct the schema, or leave such"
                " rows out by a public rule."
            )

    @property
    def target_name(self) -> str:
        if self.family != "logistic":
            return self.target
        return f"{self.target} = {self._others(self.target)[0]}"

    def _others(self, name: str) -> list[Any]:
        kind: Any = self.schema[name]
        return [value for value in kind.values if value != self.references[name]]

    def design(self, table: Table, records: Records) -> Design:
        """The regression, with rows and targets where those of the table lie."""
        rows, targets = rowwise(Coding.rows, self, table), self.targets(table)
        size, numbers, levels = len(self.schema) - (self.exposure is not None), [False], []
        for name, kind in self._features():
            of_number = name in self.schema.numbers
            others = 0 if of_number else len(self._others(name))
            if not of_number:
                levels.append(len(numbers) + np.arange(others + kind.missing))
            numbers += [of_number] * of_number + [False] * (others + kind.missing)
        return Design(
            rows,
            targets,
            size,
            self.family,
            records,
            np.array(numbers),
            tuple(levels),
            unit=1 / math.sqrt(self._largest),
            offsets=self.offsets(table),
        )

    def rows(self, table: Table) -> np.ndarray:
        """Rows with a constant, numbers from -1 to 1 and indicators, each 0 or 1."""
        columns = [np.ones(len(table))]
        for name, kind in self._features():
            if name in self.schema.numbers:
                values = values_of(table, self.schema, name)
                columns.append(np.nan_to_num(in_unit(values, kind)))
                columns += [np.isnan(values)] if kind.missing else []
            else:
                codes = values_of(table, self.schema, name)
                columns += [codes == kind.values.index(value) for value in self._others(name)]
                columns += [codes == MISSING] if kind.missing else []
        rows = np.empty((len(table), len(columns)))
        for i, column in enumerate(columns):
            rows[:, i] = column
        return rows

    def targets(self, table: Table) -> np.ndarray:
        """Targets from -1 to 1, or 0 and 1, or counts from 0 to 1."""
        kind: Any = self.schema[self.target]
        targets = values_of(table, self.schema, self.target)
        if self.family == "linear":
            return in_unit(targets, kind)
        if self.family == "poisson":
            return np.clip(targets, *kind._ends) / self._largest
        event = kind.values.index(self._others(self.target)[0])
        return (targets == event).astype(np.float64)

    def offsets(self, table: Table) -> Any:
        """Logarithms of exposures over the end of their range, at most 0; None without them."""
        if self.exposure is None:
            return None
        low, high = self._of_exposure
        values = values_of(table, self.schema, self.exposure)
        return rowwise(np.log, np.clip(values, low, high) / high)

    @property
    def _largest(self) -> float:
        """End of the range of counts; 1 for other targets."""
        kind: Any = self.schema[self.target]
        return float(kind._ends[1]) if self.family == "poisson" else 1.0

    @property
    def _of_exposure(self) -> tuple[float, float]:
        kind: Any = self.schema[self.exposure] if self.exposure else None
        return (1.0, 1.0) if kind is None else (float(kind._ends[0]), float(kind._ends[1]))

    def _features(self) -> list[tuple[str, Any]]:
        others = (self.target, self.exposure)
        return [(name, kind) for name, kind in self.schema.items() if name not in others]

    def terms(self) -> tuple[Term, ...]:
        """Coefficients in the order of the columns of the design."""
        linear = self.family == "linear"
        middle, unit = middle_of(self.schema[self.target]) if linear else (0.0, 1.0)
        if self.family == "poisson":  # scores are of counts and of exposures over their largest
            middle = math.log(self._largest) - math.log(self._of_exposure[1])
        whose: list[tuple[str, Any]] = [(INTERCEPT, None)]
        factors, places = [unit], [0.0]
        for name, kind in self._features():
            if name in self.schema.numbers:
                of_name, half = middle_of(kind)
                whose, factors = [*whose, (name, None)], [*factors, unit / half]
                places.append(of_name / half)
            else:
                others = self._others(name)
                whose += [(name, value) for value in others]
                factors, places = factors + [unit] * len(others), places + [0.0] * len(others)
            if kind.missing:
                whose, factors, places = (
                    [*whose, (name, "missing")],
                    [*factors, unit],
                    [*places, 0.0],
                )
        directions = np.eye(len(whose))
        # The intercept refers to a row of zeros in the units of the table.
        directions[0] -= places
        return tuple(
            Term(
                name if level is None else f"{name}[{level}]",
                direction,
                factor,
                middle if i == 0 else 0.0,
                name,
                level,
            )
            for i, ((name, level), direction, factor) in enumerate(
                zip(whose, directions, factors, strict=True)
            )
        )


def _check_exposure(schema: Schema, target: str, family: str, exposure: Any) -> None:
    """ValueError unless `exposure` names a column that rates can be for."""
    if family != "poisson":
        raise ValueError(
            f"`exposure` is for family='poisson', got {shown(exposure)} for the family {family!r}:"
            " leave it out, or write family='poisson'."
        )
    numbers = [name for name in schema.numbers if name != target]
    if exposure not in numbers:
        names = shown_first(numbers) if numbers else "none here"
        raise ValueError(
            "`exposure` must name a column of numbers of the schema that is not the target, got"
            f" {shown(exposure)}. Such columns: {names}."
        )
    kind: Any = schema[exposure]
    if kind.missing:
        raise ValueError(
            f"the `exposure` {shown(exposure)} must not have missing values: leave such rows out by"
            " a public rule, and missing=True out of the schema."
        )
    if kind._ends is None or kind._ends[0] <= 0:
        raise ValueError(
            f"the `exposure` {shown(exposure)} needs a public range that begins above 0, as its"
            f" logarithm is taken, got {shown(kind)}: write the least that counts, such as"
            " Range(1, 365) for days."
        )


@dataclass(frozen=True)
class CoefficientsPlan(FunctionPlan):
    name: ClassVar[str] = "private_coefficients"

    target: Target
    coding: Coding  # How the table becomes a regression

    def assumed(self) -> tuple[str, ...]:
        return ("the schema of the table",)

    def budget(self, n_samples: int) -> Budget:
        family = self.coding.family
        budget = Budget.split(self.target, PARTS[family], n_samples)
        if not budget.private or "middle score" not in PARTS[family]:
            return budget
        multiplier = budget.scales["middle score"]
        parts = parts_of(family, multiplier, len(self.coding.terms()), n_samples)
        return Budget.split(self.target, parts, n_samples)

    def warn_before(self, budget: Budget, guarantee: PrivacyGuarantee, records: Records) -> None:
        _warn_of_noise(self, budget, records)

    def run(self, ready: Table, records: Records, releases: Releases) -> Equations:
        return released_equations(self.coding.design(ready, records), releases)


def _warn_of_noise(plan: CoefficientsPlan, budget: Budget, records: Records) -> None:
    """Warn if public sizes show that noise hides all coefficients.

    The noise of the second moment of standardised rows is compared with that moment, which is about
    the identity. The mean square of such rows, and so the bound on one of them, is about their
    number of columns.
    """
    n_terms = len(plan.coding.terms())

    def ratio_of(budget: Budget, n: int) -> float:
        return budget.scales["moment"] * n_terms * math.sqrt(2 * n_terms) / n

    def enough(budget: Budget, n: int) -> bool:
        return ratio_of(budget, n) <= 1

    if budget.private and not enough(budget, records.n):
        ratio = ratio_of(budget, records.n)
        warn(
            f"the noise of the moments is {ratio:.2g} times as large as what {records.n}"
            f" {records.unit}s could show: expect intervals without ends. More"
            f" {records.unit}s, fewer columns or a larger epsilon help."
            f"{plan_takes(plan, enough, records.n, records.unit)}",
            PrivacyWarning,
            about=("moments of coefficients", ratio),
        )
