"""The plan of private linear regression: from its parameters to its weights, in one place.

Where to check the privacy claim: :meth:`RegressionFit.run` is the whole fit. Location and scale are
released in ``_core/statistics/scales.py`` and ``_core/statistics/shapes.py``, and what weights are
made of by the solvers of ``_core/solvers/regression.py`` and ``_core/solvers/least_squares.py``.
Second moments are bounded in ``_core/statistics/moments.py``, and the place of targets in
``_core/statistics/means.py`` (``noisy_focus``). Rows are cut and shortened in
``_core/rows/affine.py``, and gradients in ``_core/gradients/clipping.py``. Noise is added in
``_core/release/mechanisms.py``. The event is made by ``Budget.split`` in
``_core/accounting/budget.py``, and ``_core/release/releases.py`` takes the noise from the same
budget.

Design note. A :class:`RegressionFit` holds parameters and nothing else. ``resolved`` replaces each
"auto" that public sizes decide, ``budget`` states what is released and what that costs, and ``run``
does it: see the rows as public rows suggest, standardise rows and targets, solve, and return to the
units of the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpsubspace._core.accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._core.fits.bounds import focused
from dpsubspace._core.fits.estimator import Plan
from dpsubspace._core.gradients.losses import Loss, Squared
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.arrays import as_like, namespace, to_numpy
from dpsubspace._core.ground.checks import copied_bounds
from dpsubspace._core.plans.public_view import PublicView, Standards, View
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.affine import Affine, AffineRows
from dpsubspace._core.rows.public import Data, PublicRows
from dpsubspace._core.rows.remote import RemoteRows, rowwise
from dpsubspace._core.solvers.descent import WeightNoise
from dpsubspace._core.solvers.least_squares import SOLVERS, descent_by_level
from dpsubspace._core.solvers.regression import Regression, exact_solution
from dpsubspace._core.statistics.means import FOCUS, FOCUS_RELEASES, Focus
from dpsubspace._core.statistics.shapes import Standard
from dpsubspace._core.tables.encoding import Encoding

# Stands for ranges that public rows will show.
_OPEN = (-1.0, 1.0)

# Rows over the noise of a fit that are assumed where this is not known: any number of steps costs
# the same.
_USUAL_REACH = 100.0


@dataclass(frozen=True)
class StandardisedProblem:
    """Standardised rows and targets, and the maps that standardised them."""

    problem: Regression  # Rows and targets
    affine: Affine  # Map of the rows
    targets: Standard  # Location and scale of the targets
    limit: float  # Mapped entries are clipped to this, on either side of 0
    # Whether noise left the place of each column and each target visible.
    found: Mapping[str, np.ndarray]
    view: View  # How rows were seen
    # Largest part of their ranges that columns fill: see
    # :class:`~dpsubspace._core.statistics.shapes.Standard`.
    fills: float
    focus: Focus | None  # Part of a public range where targets were seen to lie


@dataclass(frozen=True)
class FittedRegression:
    """Result of a fit, released or public, in the units of the data."""

    affine: Affine  # Map of the rows
    limit: float  # Mapped entries are clipped to this, on either side of 0
    weights: np.ndarray  # (q, c): weights of mapped rows
    constant: np.ndarray  # (c,): constants
    # (c, d): about the standard deviation of the noise of the weights of rows before the map.
    coef_std: np.ndarray
    noise: WeightNoise | None  # Upper bound on the noise of these weights, where it is known
    hidden: WeightNoise | None  # That bound with what shrinking has removed, where that is more
    # Whether noise left the place of each column and each target visible.
    found: Mapping[str, np.ndarray]
    view: View  # How rows were seen
    n_iter: int  # Number of steps
    # Largest part of their ranges that columns fill: see
    # :class:`~dpsubspace._core.statistics.shapes.Standard`.
    fills: float
    focus: Focus | None  # Part of a public range where targets were seen to lie

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Ranges (low, high) that entries of columns are clipped to; None if columns are mixed."""
        if not self.affine.diagonal:
            return None
        with np.errstate(divide="ignore"):
            half = self.limit / self.affine.weights  # inf for columns without weight
        return self.affine.mean - half, self.affine.mean + half

    @property
    def coef(self) -> np.ndarray:
        """Weights (c, d) of rows before the map, of which no entry is clipped."""
        return self.affine.to_input_units(self.weights).T

    @property
    def intercept(self) -> np.ndarray:
        return self.constant + self.affine.constant(self.weights)


@dataclass(frozen=True, kw_only=True)
class RegressionFit(Plan):
    target: Target  # Requested privacy
    bounds: Any  # Public ranges of the columns and of the targets
    target_bounds: Any
    public: PublicView  # What public rows are used for
    solver: str  # Name of the solver in ``SOLVERS``, or "auto"
    constant: bool  # Whether there is an intercept
    view: View | None = None  # View of the rows that public rows suggest, once these are there
    # Share of the budget for finding where in a public range most targets lie; 0 uses the range.
    focus: float = 0.0
    # Whether public rows show location and scale of columns, and not only their ranges.
    trust_public_scale: bool = False
    reach: float = _USUAL_REACH  # Number of rows over the noise multiplier of the whole fit
    # (d,): public factors, at most 1, by which standardised columns count; None where all count
    # alike.
    importance: np.ndarray | None = None
    # (d,): number of the group of each column. Columns of a group are expected to count alike.
    # With None nothing is known of groups, and weights are those of least squares as far as noise
    # allows.
    alike: np.ndarray | None = None
    loss: Loss = field(default_factory=Squared)  # Loss of the predictions

    # Before the data are seen ---------------------------------------------------------------

    def with_public_view(self, data: Data) -> RegressionFit:
        reach = math.inf
        if self.target.private:
            reach = data.records.n / self.target.multiplier(data.records.n)
        view = self.public(data, reach)
        if not self.constant and data.public is not None:
            view = view.about_zero(data.public.X)
        return replace(self, view=view)

    def resolved(self, sizes: Sizes) -> RegressionFit:
        if not self.target.private or sizes.n_samples is None:
            return replace(self, solver="descent" if self.solver == "auto" else self.solver)
        n_samples = sizes.known("n_samples", "the number of steps")
        reach = n_samples / self.target.multiplier(n_samples)
        solver = self.solver if self.solver != "auto" else self._usual_solver(sizes, reach)
        return replace(self, reach=reach, solver=solver)

    def _usual_solver(self, sizes: Sizes, reach: float) -> str:
        """Return the solver that "auto" stands for, by public sizes."""
        width, n_samples = self.public.width(sizes), sizes.known("n_samples", "the solver")
        if width is not None and auto.moments_suffice(n_samples, reach, self.counting(width) + 1):
            return "moments"
        as_they_are = self.importance is None and not sizes.n_public
        return "plain" if as_they_are and reach < auto.WHITENING_FROM else "descent"

    @property
    def factors(self) -> np.ndarray | None:
        """Factors by which mapped columns count: public factors of columns, or those of a view."""
        return (
            self.importance if self.view is None or not self.view.levels else self.view.importance
        )

    def counting(self, width: int) -> float:
        """Number of columns, where each counts by the square of its factor."""
        return width if self.importance is None else float(self.importance @ self.importance)

    def looking(self) -> RegressionFit:
        """Return this fit with a search for where targets lie in a given range."""
        return self if self.target_bounds is None else replace(self, focus=auto.RANGE_SHARE)

    def for_table(
        self, encoding: Encoding, limits: Any, *, estimated: bool = False
    ) -> RegressionFit:
        bounds = encoding.extent if self.bounds is None else self.bounds
        found = replace(
            self,
            bounds=bounds,
            target_bounds=copied_bounds(limits),
            importance=encoding.importance,
            alike=encoding.levels,
        )
        return found if estimated else found.looking()

    def standards(self, sizes: Sizes, public: PublicRows | None = None) -> Standards:
        columns, targets, known = self.bounds, self.target_bounds, self.public.tells_ranges(sizes)
        if known:
            columns = _OPEN if self.view is None else self.view.ranges
        if targets is None and sizes.labelled:
            targets = _OPEN if public is None else public.target_range
        # Public rows show the scale well enough for a solver that looks at the rows once.
        trust_public_scale = known and (self.solver == "moments" or self.trust_public_scale)
        return Standards(columns, targets, self.reach, trust_public_scale, self.factors)

    def beside_solver(self, sizes: Sizes) -> dict[str, Part]:
        """Releases before the search for weights, in their order."""
        parts = {FOCUS: Part(self.focus, FOCUS_RELEASES)} if self.focus else {}
        return {**parts, **self.standards(sizes).parts(sizes.n_features)}

    def budget(self, sizes: Sizes) -> Budget:
        before = self.beside_solver(sizes)
        rest = 1 - sum(part.share for part in before.values())
        own = SOLVERS[self.solver].parts(self.reach)
        parts: dict[str, Part] = {
            **before,
            **{name: replace(part, share=rest * part.share) for name, part in own.items()},
        }
        return Budget.split(self.target, parts, sizes.n_samples)

    def prepared(self, data: Data, where: Any, budget: Budget) -> Data:
        if self.solver == "ambssgd" and isinstance(data.X, RemoteRows):
            raise ValueError(
                "`solver`='ambssgd' takes the rows apart by chance, which Dask collections and"
                " datasets do not support: use 'auto', which is more accurate."
            )
        return data.on_device(where)

    # The fit --------------------------------------------------------------------------------

    def run(
        self, ready: Data, releases: Releases, rng: Any, after_step: Callable[[], bool]
    ) -> FittedRegression:
        prepared = self.standardised(ready, releases)
        problem, affine, targets = prepared.problem, prepared.affine, prepared.targets
        if not releases.budget.private:
            solution = exact_solution(problem, releases)
        elif problem.levels and self.solver == "descent":
            solution = descent_by_level(problem, releases, after_step)
        else:
            solution = SOLVERS[self.solver](problem, releases, after_step)
        weights, constant = solution.weights * targets.scale, targets.location
        if self.constant:
            weights, constant = weights[:-1], constant + weights[-1]
        lifted = affine.to_input_units(solution.noise[: affine.width])
        noise, hidden = (
            None if most is None else WeightNoise(most * targets.scale, lifted)
            for most in (solution.most, solution.hidden)
        )
        spread = 1.0 if solution.spread is None else solution.spread
        return FittedRegression(
            affine=affine,
            limit=prepared.limit,
            weights=weights,
            constant=constant,
            coef_std=np.linalg.norm(lifted * spread, axis=1)
            * (solution.sizes * targets.scale)[:, None],
            noise=noise,
            hidden=hidden,
            found=prepared.found,
            view=prepared.view,
            n_iter=solution.n_iter,
            fills=prepared.fills,
            focus=prepared.focus,
        )

    def standardised(self, data: Data, releases: Releases) -> StandardisedProblem:
        view = self.view or self.public(data, self.reach)
        of_both = self.standards(data.sizes(data.n_targets), data.public)
        seen = rowwise(AffineRows, data.X, view.affine, constant=False, records=data.records)
        values, focus = data.targets, None
        if self.target_bounds is not None and releases.budget.private:
            ends = self.target_bounds
            if FOCUS in releases:
                low, high = (np.broadcast_to(end, values.shape[1:]) for end in ends)
                *ends, focus = focused(to_numpy(values), low, high, releases, auto.RANGE_FOCUS)
                of_both = replace(of_both, targets=tuple(ends))
            low, high = (as_like(end, values) for end in ends)
            values = rowwise(namespace(values).clip, values, low, high)
        standard = of_both(seen, values, releases)
        columns, targets = standard.columns, standard.targets
        if self.constant:
            # Columns that noise has hidden are left out: weights would be far too large or small.
            columns = columns.without(~standard.found["bounds"])
        else:
            columns, targets = columns.about_zero(), targets.about_zero()
        if self.factors is not None:
            columns = replace(columns, scale=columns.scale / self.factors)
        affine = view.affine.scaled(columns.location, columns.scale)
        rows = rowwise(
            AffineRows,
            data.X,
            affine,
            constant=self.constant,
            limit=standard.limit,
            records=data.records,
        )
        location, scale = (as_like(x, values) for x in (targets.location, targets.scale))
        importance = None
        if self.factors is not None:
            importance = np.append(self.factors, np.ones(int(self.constant)))
        groups = None
        if self.alike is not None and affine.diagonal:  # columns that public rows mix are no lines
            named = np.append(self.alike, np.full(int(self.constant), self.alike.max() + 1))
            groups = np.unique(named, return_inverse=True)[1]
        problem = Regression(rows, (values - location) / scale, importance, view.levels, groups)
        limit, fills = standard.limit, standard.columns.fills
        return StandardisedProblem(
            problem, affine, targets, limit, standard.found, view, fills, focus
        )
