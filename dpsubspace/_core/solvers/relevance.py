"""Relevance of columns: earlier releases of a descent determine the later weights of its rows.

Design note. Rows of a table have a norm of at most 1, of which each column of the table has a
share. The noise of a score does not depend on how many columns there are, but a column can only be
learned by its share: irrelevant columns take share from relevant ones. The weights that were
released after some steps show which columns are relevant. So the descent continues with other
shares, in one run: weights are rewritten so that scores stay unchanged, and steps, noise and the
number of steps are those of a descent that changes nothing. If all columns turn out equally
relevant, the learned model stays the same. This is automatic relevance determination (MacKay, 1994)
inside of a descent.

Privacy: everything here is made of released weights and public numbers. Rows that are weighted by
released numbers are still functions of their own record, and each gradient is clipped to the same
norm, whatever the numbers are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpsubspace._core.ground.arrays import Array, as_like, namespace, to_numpy
from dpsubspace._core.solvers.descent import TrainingPlan

# When shares change, as parts of the steps; and the part of its first share that a group always
# keeps. Chosen while looking at ten tables with and without irrelevant columns
# (benchmarks/pages/table_columns.md), a few seeds each.
_TURNS, _KEPT = (0.15, 0.25, 0.4, 0.55), 0.15
_ADDING = 0.25  # The turn at which columns are added
# When penalties follow from weights again, and weights from penalties, if little is clipped.
_LATER = (0.25, 0.4, 0.55, 0.65, 0.75, 0.85)
_CURVATURES = 8  # between which noise in weights is interpolated
_STABLE = 0.5  # largest product of a penalty and the learning rate


@dataclass(frozen=True, eq=False)
class Groups:
    """Columns of rows that belong together, such as all features of one column of a table."""

    of: np.ndarray  # (p,): number of the group of each column, from 0 on
    shares: np.ndarray  # (g,): share of the largest squared norm of a row, adding up to 1


class Added(Protocol):
    """Columns that are made of the first p columns of a row, and their share of the row's norm."""

    @property
    def width(self) -> int: ...

    @property
    def share(self) -> float: ...

    def __call__(self, rows: Array) -> Array: ...


class Relevance:
    """Shares of groups during one descent of weights (width, c), the first p of which are grouped.

    `each` is the standard deviation of the noise of an entry of a mean gradient. `interactions`
    makes more columns from the current shares, (g,), or none: the descent continues with these as
    well, from weights of 0. `n_samples` is the number of records, for losses of probabilities with
    penalties that follow from released weights; None leaves the penalty of the plan. `opened` is
    how far clipping is given up, from 0 to 1.
    """

    def __init__(
        self,
        groups: Groups,
        plan: TrainingPlan,
        each: float,
        width: int,
        interactions: Callable[[np.ndarray], Added | None] | None = None,
        n_samples: int | None = None,
        opened: float = 0.0,
    ):
        self._groups, self._plan, self._each = groups, plan, each
        self._others = np.ones(width - len(groups.of))
        self._turns = {round(turn * plan.n_iter) for turn in _TURNS} - {0}
        self._later = {round(turn * plan.n_iter) for turn in _LATER if opened}
        self._opened, self._n_samples = opened, n_samples
        self._penalties = np.zeros(len(groups.shares) + 1)  # and that of added columns
        self._more, self._adding = interactions, max(1, round(_ADDING * plan.n_iter))
        self.added: Added | None = None  # columns behind the first p
        self._beside = np.zeros(plan.n_iter)  # as `_carried`, for these columns
        self._sizes = np.bincount(groups.of, minlength=len(groups.shares))
        self._shares = groups.shares
        # (n_iter, g): factor of each step's noise in the equivalent weights of rows without
        # weighting.
        self._carried = np.ones((plan.n_iter, len(groups.shares)))

    @property
    def columns(self) -> np.ndarray:
        """The current factors of the columns, (p,), and the added columns, if any."""
        own = self._of_groups[self._groups.of]
        if self.added is None:
            return own
        return np.append(own, np.full(self.added.width, np.sqrt(self.added.share)))

    @property
    def _of_groups(self) -> np.ndarray:
        """Return the current factors of the columns of groups, (g,)."""
        left = 1.0 if self.added is None else 1.0 - self.added.share
        return np.sqrt(left * self._shares / self._groups.shares)

    def turn(self, t: int, *params: Array) -> tuple[Array, ...] | None:
        """Return weights and their velocity for new shares, if shares change before step `t`."""
        if t in self._later - self._turns and self._n_samples is not None:
            self._penalise(t, params[0])
            return params
        if t not in self._turns:
            return None
        of, before = self._groups.of, self.columns
        found = before[: len(of), None] * to_numpy(params[0])[: len(of)]
        energies = np.bincount(of, np.sum(found**2, axis=1))
        noise = self._plan.noise_before(t) ** 2 @ self._carried[:t] ** 2
        noise = noise * self._each**2 * self._sizes * found.shape[1]
        if self._n_samples is not None and (t == max(self._turns) or t in self._later):
            self._penalise(t, params[0])
        left, self._shares = shrunk(energies, noise, self._groups.shares)
        if self._more is not None and t == self._adding:
            self.added = self._more(self._shares)
            self._beside[t:] = 0.0 if self.added is None else np.sqrt(self.added.share)
            params = tuple(self.widened(each, 0.0) for each in params)
        self._carried[:t] *= left
        self._carried[t:] = self._of_groups
        kept = np.append(left[of] * before[: len(of)], self.columns[len(of) :])
        return tuple(self._times(kept / self.columns, each) for each in params)

    def _penalise(self, t: int, params: Array) -> None:
        """Compute penalties from the weights that were released before step `t`."""
        groups, carried, columns = self._groups, self._carried[:t], self.columns
        if self._opened and self.added is not None:
            # All added columns are one more group.
            more, number = self.added, len(groups.shares)
            of = np.append(groups.of, np.full(more.width, number))
            groups = Groups(of, np.append(groups.shares, more.share))
            carried = np.column_stack([carried, self._beside[:t]])
        found = columns[: len(groups.of), None] * to_numpy(params)[: len(groups.of)]
        energies = np.bincount(groups.of, np.sum(found**2, axis=1))
        noise = self._noise_before(t, groups, carried, found.shape[1])
        assert self._n_samples is not None
        each = penalties(energies, noise, groups, found.shape[1], self._n_samples, self._plan.alpha)
        self._penalties[: len(each)] = each

    def _noise_before(
        self, t: int, groups: Groups, carried: np.ndarray, n_outputs: int
    ) -> np.ndarray:
        """Return mean squares of the noise in groups of weights before step `t`, (g,).

        Curvature pulls weights back from where noise moves them: the curvature of the penalty, and
        if little is clipped, that of the loss too.
        """
        sizes = np.bincount(groups.of, minlength=len(groups.shares))
        if not self._opened:
            found = self._plan.noise_before(t) ** 2 @ carried**2
        else:
            pull = self._opened * curvatures(groups, n_outputs) + self._plan.alpha
            pull = np.clip(pull, 1e-12, 1 / max(self._plan.learning_rate, 1e-300))
            grid = np.geomspace(pull.min(), pull.max(), _CURVATURES)
            at = [self._plan.noise_before(t, h) ** 2 @ carried**2 for h in grid.tolist()]
            columns = zip(pull, np.transpose(at), strict=True)
            found = np.array([np.interp(h, grid, own) for h, own in columns])
        return found * self._each**2 * sizes * n_outputs

    def widened(self, entries: Array, value: float) -> Array:
        """Return entries (width, c) of columns, with one value for added columns."""
        if self.added is None:
            return entries
        xp, p = namespace(entries), len(self._groups.of)
        more = as_like(np.full((self.added.width, entries.shape[1]), value), entries)
        return xp.concat([entries[:p, :], more, entries[p:, :]], axis=0)

    def penalty(self, like: Array) -> Array:
        """Return the current penalty on the square of each weight, halved, (width, 1).

        It is at least that of the plan, which bounds the noise that is left in weights
        (:func:`~dpsubspace._core.solvers.descent.noise_of_descent`).
        """
        of, least = self._groups.of, self._plan.alpha
        if self.added is not None:
            of = np.append(of, np.full(self.added.width, len(self._groups.shares)))
        own = self._penalties[of] * self.columns**2
        most = max(least, _STABLE / max(self._plan.learning_rate, 1e-300))
        found = np.concatenate([np.clip(own, least, most), np.zeros_like(self._others)])
        return as_like(found, like)[:, None]

    def unweighed(self, weights: Array) -> Array:
        """Return weights of the original columns that give the same scores."""
        return self._times(self.columns, weights)

    def noise(self, weights: np.ndarray) -> np.ndarray:
        """Return the noise in these weights, (width,), over that of a descent with fixed shares.

        In that descent, the noise of each step has these `weights`, (n_iter,).
        """
        size = max(float(np.linalg.norm(weights)), 1e-300)
        found = np.sqrt(weights**2 @ self._carried**2) / size
        beside = np.linalg.norm(weights * self._beside) / size
        more = 0 if self.added is None else self.added.width
        return np.concatenate([found[self._groups.of], np.full(more, beside), self._others])

    def _times(self, factors: np.ndarray, weights: Array) -> Array:
        factors = np.append(factors, self._others)
        return weights * as_like(factors, weights)[:, None]


def shrunk(
    energies: np.ndarray, noise: np.ndarray, first: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of the groups, and their next shares, (g,) each.

    `energies` are squared norms of the groups of weights, to which noise adds `noise` on average.
    `first` are the initial shares of the groups.

    A penalty on weights counts the square of a weight over the share of its group, so that the
    penalty is least for shares in proportion to the norms of weights. The norms are those without
    noise. Shares move as far as groups that stand out are clear of noise: if noise hides all
    groups, nothing shows which to choose. Groups with little beside noise are shrunk (James and
    Stein, 1961), the more the fewer of all groups stand out: among a few groups that all matter, a
    group that is faint after some steps will not be so at the end.
    """
    clear = np.maximum(energies - noise, 0.0)
    if not 1e-200 < clear.max() < 1e200:  # nothing stands out, or squares leave the range
        return np.ones_like(first), first
    factors = clear / np.maximum(energies, 1e-300)
    sure = float(factors @ clear / clear.sum())
    norms = np.sqrt(first * clear)
    standing_out = norms.sum() ** 2 / float(norms @ norms)  # number of groups
    shrinking = sure * (1 - standing_out / len(norms)) ** 2
    moved = np.sqrt(sure) * (1 - _KEPT)
    shares = (1 - moved) * first + moved * norms / norms.sum()
    return 1 - shrinking * (1 - factors), shares


def penalties(
    energies: np.ndarray,
    noise: np.ndarray,
    groups: Groups,
    n_outputs: int,
    n_samples: int,
    least: float,
) -> np.ndarray:
    """Return half the penalty on squared weights of each group, for the mean loss, (g,).

    `energies` are squared norms of the groups of weights, to which privacy noise adds `noise` on
    average. `least` is the lower bound of the penalties; if it is 0, there are none.

    Weights of a group are assumed to be normal, with the variance that makes the estimated weights
    most likely (the evidence of MacKay, 1992): the penalty is ``d / (n |w|^2)``, where d counts the
    weights that the rows decide, and not the penalty. The curvature of the loss, from which d
    follows, is that of equally frequent classes, and of columns that fill their ranges. Privacy
    noise keeps weights from following the chance of single rows, as a penalty would: a penalty
    counts as far as noise does not hide that chance.
    """
    bent, classes = curvatures(groups, n_outputs), max(n_outputs, 2)
    sizes = np.bincount(groups.of, minlength=len(groups.shares)).astype(np.float64)
    free, found = (classes - 1) * sizes, np.full(len(sizes), least)
    if least == 0.0:
        return found
    for _ in range(_ROUNDS):
        decided = free * bent / (bent + found)
        found = np.minimum(decided / (n_samples * np.maximum(energies, 1e-300)), _MOST * bent)
    chance = free / (n_samples * (bent + found))
    return np.maximum(found * chance / (chance + noise), least)


def curvatures(groups: Groups, n_outputs: int) -> np.ndarray:
    """Return the curvature of the log loss by weights of each group, for balanced classes, (g,)."""
    sizes, classes = np.bincount(groups.of, minlength=len(groups.shares)), max(n_outputs, 2)
    return groups.shares / np.maximum(sizes, 1.0) * (classes - 1) / classes**2 / 2


# Rounds until the number of decided weights settles; limit that leaves almost nothing of a weight.
_ROUNDS, _MOST = 3, 100.0
