"""A private fit of linear regression, from its parameters to its weights, in one place.

Design note. A :class:`RegressionFit` holds parameters and nothing else. ``resolved`` ends all
"auto" that public sizes decide, ``budget`` says what is released and what that costs, and ``run``
does it: see the rows as public rows say, standardise rows and targets, solve, and go back to the
units of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dpsubspace import _auto
from dpsubspace._accounting.budget import Budget, Part, Sizes, Target
from dpsubspace._accounting.events import gaussian
from dpsubspace._array import as_like, namespace
from dpsubspace._estimators.public_view import PublicView, View
from dpsubspace._estimators.regressor import copied_bounds
from dpsubspace._estimators.standardise import Standards
from dpsubspace._gradients.losses import Loss, Squared
from dpsubspace._release.releases import Releases
from dpsubspace._rows.affine import Affine, AffineRows
from dpsubspace._rows.data import Data
from dpsubspace._rows.public import PublicRows
from dpsubspace._rows.remote import is_remote, made
from dpsubspace._solvers.least_squares import SOLVERS
from dpsubspace._solvers.regression import Regression, exact_solution
from dpsubspace._solvers.weight_noise import WeightNoise
from dpsubspace._statistics.standards import Standard

__all__ = ["FittedRegression", "Prepared", "RegressionFit"]

# Stands for ranges that public rows will tell.
_OPEN = (-1.0, 1.0)

# Rows over the noise of a fit that are taken where it is not known: any number of steps costs
# the same.
_USUAL_REACH = 100.0


@dataclass(frozen=True)
class Prepared:
    """Standardised rows and targets, and how they became that.

    Parameters
    ----------
    problem : Regression
        Rows and targets.
    affine : Affine
        What rows are mapped by.
    targets : Standard
        What targets are standardised by.
    limit : float
        What mapped entries are cut to, on either side of 0.
    found : dict
        Whether noise left the place of each column and each target to be seen.
    view : View
        How rows were seen.
    fills : float
        How much of their ranges columns fill at most, as
        :class:`~dpsubspace._statistics.standards.Standard` has it.
    """

    problem: Regression
    affine: Affine
    targets: Standard
    limit: float
    found: Mapping[str, np.ndarray]
    view: View
    fills: float


@dataclass(frozen=True)
class FittedRegression:
    """Result of a fit, released or public, in the units of the data.

    Parameters
    ----------
    affine : Affine
        What rows are mapped by.
    limit : float
        What mapped entries are cut to, on either side of 0.
    weights : ndarray of shape (q, c)
        Weights of mapped rows.
    constant : ndarray of shape (c,)
        Constants.
    coef_std : ndarray of shape (c, d)
        Standard deviation of the noise of the weights of rows as they are, about.
    noise : WeightNoise or None
        Noise that these weights have at most, where it is known.
    found : dict
        Whether noise left the place of each column and each target to be seen.
    view : View
        How rows were seen.
    n_iter : int
        Number of steps.
    fills : float
        How much of their ranges columns fill at most, as
        :class:`~dpsubspace._statistics.standards.Standard` has it.
    """

    affine: Affine
    limit: float
    weights: np.ndarray
    constant: np.ndarray
    coef_std: np.ndarray
    noise: WeightNoise | None
    found: Mapping[str, np.ndarray]
    view: View
    n_iter: int
    fills: float

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Ranges (low, high) that entries of columns are cut to; None where columns are turned."""
        if not self.affine.diagonal:
            return None
        with np.errstate(divide="ignore"):
            half = self.limit / self.affine.weights  # inf for what has no weight
        return self.affine.mean - half, self.affine.mean + half

    @property
    def coef(self) -> np.ndarray:
        """Weights (c, d) of rows as they are, of which no entry is cut."""
        return self.affine.lifted(self.weights).T

    @property
    def intercept(self) -> np.ndarray:
        """Constants (c,) beside them."""
        return self.constant + self.affine.constant(self.weights)


@dataclass(frozen=True, kw_only=True)
class RegressionFit:
    """Parameters of a fit of linear regression.

    Parameters
    ----------
    target : Target
        Privacy that is asked for.
    bounds, target_bounds : tuple (low, high) or None
        Public ranges of the columns and of the targets.
    public : PublicView
        What public rows are used for.
    solver : str
        How weights are found: a name of ``SOLVERS``, or "auto".
    constant : bool
        Whether there is an intercept.
    view : View or None
        How public rows say to see the rows, once they are there.
    as_seen : bool
        Whether public rows tell location and scale of columns, and not their ranges alone.
    reach : float
        Number of rows over the noise multiplier of the whole fit.
    loss : Loss
        Of the predictions.
    """

    target: Target
    bounds: Any
    target_bounds: Any
    public: PublicView
    solver: str
    constant: bool
    view: View | None = None
    as_seen: bool = False
    reach: float = _USUAL_REACH
    loss: Loss = field(default_factory=Squared)

    # Before the data are seen ---------------------------------------------------------------

    def seeing(self, data: Data) -> RegressionFit:
        """The same with how public rows say to see the rows; ValueError where they cannot."""
        view = self.public(data)
        if not self.constant and data.public is not None:
            view = view.about_zero(data.public.X)
        return replace(self, view=view)

    def resolved(self, sizes: Sizes) -> RegressionFit:
        """The same with the solver and the number of steps that it runs with."""
        if not self.target.private or sizes.n_samples is None:
            return replace(self, solver="descent" if self.solver == "auto" else self.solver)
        n_samples = sizes.known("n_samples", "the number of steps")
        reach = n_samples / self.target.calibrated(gaussian, n_samples)
        solver = self.solver
        if solver == "auto":
            width = self.public.width(sizes)
            small = width is not None and _auto.moments_suffice(n_samples, reach, width + 1)
            solver = "moments" if small else "descent"
        return replace(self, reach=reach, solver=solver)

    def for_table(self, bound: float, extent: Any, limits: Any) -> RegressionFit:
        """The same on encoded tables, of columns that lie in `extent`, with targets in `limits`."""
        bounds = extent if self.bounds is None else self.bounds
        return replace(self, bounds=bounds, target_bounds=copied_bounds(limits))

    def standards(self, sizes: Sizes, public: PublicRows | None = None) -> Standards:
        """How columns and targets are standardised; `public` are rows that tell ranges."""
        columns, targets, known = self.bounds, self.target_bounds, self.public.tells_ranges(sizes)
        if known:
            columns = _OPEN if self.view is None else self.view.ranges
        if targets is None and sizes.labelled:
            targets = _OPEN if public is None else public.target_range
        # Public rows say it well enough for a solver that looks at the rows once.
        as_seen = known and (self.solver == "moments" or self.as_seen)
        return Standards(columns, targets, self.reach, as_seen)

    def budget(self, sizes: Sizes) -> Budget:
        """What is released, with which noise, and what it costs."""
        before = self.standards(sizes).parts(sizes.n_features)
        rest = 1 - sum(part.share for part in before.values())
        own = SOLVERS[self.solver].parts(self.reach)
        parts: dict[str, Part] = {
            **before,
            **{name: replace(part, share=rest * part.share) for name, part in own.items()},
        }
        return Budget.split(self.target, parts, sizes.n_samples)

    def prepared(self, data: Data, where: Any, budget: Budget) -> Data:
        """Data on the device; ValueError where the solver does not know what to do with them."""
        if self.solver == "ambssgd" and is_remote(data.X):
            raise ValueError(
                "`solver`='ambssgd' takes the rows apart by chance, which Dask collections do not"
                " support: use 'auto', which is more accurate."
            )
        return data.on_device(where)

    # The fit --------------------------------------------------------------------------------

    def run(
        self, ready: Data, releases: Releases, rng: Any, after_step: Callable[[], bool]
    ) -> FittedRegression:
        """See, standardise, solve: on rows that lie where they are used."""
        prepared = self.standardised(ready, releases)
        problem, affine, targets = prepared.problem, prepared.affine, prepared.targets
        if releases.budget.private:
            solution = SOLVERS[self.solver](problem, releases, after_step)
        else:
            solution = exact_solution(problem, releases)
        weights, constant = solution.weights * targets.scale, targets.location
        if self.constant:
            weights, constant = weights[:-1], constant + weights[-1]
        lifted, noise = affine.lifted(solution.noise[: affine.width]), None
        if solution.most is not None:
            noise = WeightNoise(solution.most * targets.scale, lifted)
        return FittedRegression(
            affine=affine,
            limit=prepared.limit,
            weights=weights,
            constant=constant,
            coef_std=np.linalg.norm(lifted, axis=1) * (solution.sizes * targets.scale)[:, None],
            noise=noise,
            found=prepared.found,
            view=prepared.view,
            n_iter=solution.n_iter,
            fills=prepared.fills,
        )

    def standardised(self, data: Data, releases: Releases) -> Prepared:
        """See rows as public ones say, and standardise rows and targets."""
        view = self.view or self.public(data)
        of_both = self.standards(data.sizes(data.n_targets), data.public)
        seen = made(AffineRows, data.X, view.affine, constant=False, records=data.records)
        values = data.targets
        if self.target_bounds is not None and releases.budget.private:
            low, high = (as_like(end, values) for end in self.target_bounds)
            values = made(namespace(values).clip, values, low, high)
        standard = of_both(seen, values, releases)
        columns, targets = standard.columns, standard.targets
        if self.constant:
            # What noise has hidden is left out: weights would be far too large or too small.
            columns = columns.without(~standard.found["bounds"])
        else:
            columns, targets = columns.about_zero(), targets.about_zero()
        affine = view.affine.scaled(columns.location, columns.scale)
        rows = made(
            AffineRows,
            data.X,
            affine,
            constant=self.constant,
            limit=standard.limit,
            records=data.records,
        )
        location, scale = (as_like(x, values) for x in (targets.location, targets.scale))
        problem = Regression(rows, (values - location) / scale)
        limit, fills = standard.limit, standard.columns.fills
        return Prepared(problem, affine, targets, limit, standard.found, view, fills)
