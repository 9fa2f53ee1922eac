"""Which columns matter: what a descent has released so far says how its rows are weighed next.

Design note. Rows of a table have a norm of at most 1, of which each column of the table has a
share. The noise of a score does not depend on how many columns there are, but a column can only be
learned by the share that it has: columns that say nothing take it from those that do. The weights
that were released after some steps tell which are which. So the descent goes on with other shares,
in one run: weights are rewritten so that scores stay what they are, and steps, noise and their
number are those of a descent that changes nothing. If all columns turn out alike, so does what is
learned. This is automatic relevance determination (MacKay, 1994) inside of a descent.

Privacy: everything here is made of released weights and public numbers. Rows that are weighed by
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

# When shares change, as parts of the steps; how much of its first share a group keeps whatever is
# found. Chosen while looking at ten tables with and without columns that tell nothing
# (benchmarks/pages/table_columns.md), a few seeds each.
_TURNS, _KEPT = (0.15, 0.25, 0.4, 0.55), 0.15
_ADDING = 0.25  # The turn at which columns are added
# When penalties follow from weights again, and weights from penalties, where little is clipped.
_LATER = (0.25, 0.4, 0.55, 0.65, 0.75, 0.85)
_CURVATURES = 8  # between which what noise leaves in weights is interpolated
_STABLE = 0.5  # most that a penalty times the learning rate can be


@dataclass(frozen=True, eq=False)
class Groups:
    """Columns of rows that belong together, such as all features of one column of a table."""

    of: np.ndarray  # (p,): number of the group of each column, from 0 on
    shares: np.ndarray  # (g,): share of the largest squared norm of a row, adding up to 1


class Added(Protocol):
    """Columns that are made of the first p of a row, and the share that they have of its norm."""

    @property
    def width(self) -> int: ...

    @property
    def share(self) -> float: ...

    def __call__(self, rows: Array) -> Array: ...


class Relevance:
    """Shares of groups during one descent of weights (width, c), the first p of which are grouped.

    `each` is the standard deviation of the noise of an entry of a mean gradient. `interactions`
    makes more columns of the shares that were found, (g,), or none: the descent goes on with these
    as well, from weights of 0. `n_samples` is the number of records, for losses of probabilities
    that may be penalised by what was found; None leaves the penalty of the plan. `opened` is how
    far clipping is given up, from 0 to 1.
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
        self._penalties = np.zeros(len(groups.shares) + 1)  # and that of columns that were added
        self._more, self._adding = interactions, max(1, round(_ADDING * plan.n_iter))
        self.added: Added | None = None  # columns behind the first p
        self._beside = np.zeros(plan.n_iter)  # as `_carried`, of these columns
        self._sizes = np.bincount(groups.of, minlength=len(groups.shares))
        self._shares = groups.shares
        # (n_iter, g): what the noise of each step is multiplied by in the weights that stand for it
        # on rows that are not weighed.
        self._carried = np.ones((plan.n_iter, len(groups.shares)))

    @property
    def columns(self) -> np.ndarray:
        """What columns are multiplied by now, (p,), and those that were added, if any."""
        own = self._of_groups[self._groups.of]
        if self.added is None:
            return own
        return np.append(own, np.full(self.added.width, np.sqrt(self.added.share)))

    @property
    def _of_groups(self) -> np.ndarray:
        """What columns of groups are multiplied by now, (g,)."""
        left = 1.0 if self.added is None else 1.0 - self.added.share
        return np.sqrt(left * self._shares / self._groups.shares)

    def turn(self, t: int, *params: Array) -> tuple[Array, ...] | None:
        """Weights and their velocity for new shares, where these change before step `t`."""
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
        """Find penalties by what was released before step `t`."""
        groups, carried, columns = self._groups, self._carried[:t], self.columns
        if self._opened and self.added is not None:
            # All that were added are one more group.
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
        """Squares of noise in groups of weights before step `t`, on average, (g,).

        Curvature pulls weights back from where noise takes them: that of the penalty, and where
        little is clipped, that of the loss too.
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
        """Entries (width, c) of columns, with one value for those that were added."""
        if self.added is None:
            return entries
        xp, p = namespace(entries), len(self._groups.of)
        more = as_like(np.full((self.added.width, entries.shape[1]), value), entries)
        return xp.concat([entries[:p, :], more, entries[p:, :]], axis=0)

    def penalty(self, like: Array) -> Array:
        """Penalty on the square of each weight as it is now, halved, (width, 1).

        That of the plan at least, which bounds the noise that is left in weights
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
        """Weights of the columns as they are, with the same scores."""
        return self._times(self.columns, weights)

    def noise(self, weights: np.ndarray) -> np.ndarray:
        """Noise in these weights, (width,), beside that of a descent that changes no shares.

        There, the noise of each step has these `weights`, (n_iter,).
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
    """What groups are multiplied by, and their next shares, (g,) each.

    `energies` are squared norms of the groups of weights, of which `noise` is what noise adds on
    average. `first` are the shares that groups began with.

    A penalty on weights counts the square of one over the share of its group, so that shares in
    proportion to the norms of weights make it least. The norms are those without noise. Shares move
    as far as groups that stand out are clear of noise: where it hides all, nothing tells which to
    choose. Groups in which there is little beside noise are shrunk (James and Stein, 1961), and
    that the more, the fewer of all groups stand out: among a few that all matter, one that is faint
    after some steps will not be so at the end.
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
    """Penalty on the squares of the weights of each group, halved, by the mean loss; (g,).

    `energies` are squared norms of the groups of weights, of which `noise` is what noise of privacy
    adds on average. `least` is what penalties are at least; if it is 0, there are none.

    Weights of a group are taken to be normal, with a variance that makes the weights that were
    found most likely (the evidence of MacKay, 1992): the penalty is ``d / (n |w|^2)``, where d
    counts the weights that the rows, and not the penalty, decide. The curvature of the loss that d
    follows from is that of equally frequent classes, and of columns that fill their ranges. Noise
    of privacy holds weights back from the chance of single rows, as a penalty would: a penalty
    counts as far as that chance is not hidden by noise.
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
    """Curvature of the log loss by weights of each group, for equally frequent classes, (g,)."""
    sizes, classes = np.bincount(groups.of, minlength=len(groups.shares)), max(n_outputs, 2)
    return groups.shares / np.maximum(sizes, 1.0) * (classes - 1) / classes**2 / 2


# Until the number of decided weights settles; what leaves next to nothing of a weight.
_ROUNDS, _MOST = 3, 100.0
