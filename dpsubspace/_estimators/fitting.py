"""One private fit, from checked parameters to its result: every estimator that trains runs here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dpsubspace._accounting.budget import Budget, Sizes, Target
from dpsubspace._accounting.guarantee import PrivacyGuarantee
from dpsubspace._array import check_device, plain_arithmetic
from dpsubspace._checks import check_auto, check_integer, check_real
from dpsubspace._compat import start_progress
from dpsubspace._estimators.base import guarantee_of
from dpsubspace._gradients.losses import Loss
from dpsubspace._release.noise import NoiseSource, as_noise
from dpsubspace._release.releases import Releases
from dpsubspace._rows.data import Data
from dpsubspace._solvers.descent import STEPS, Descent

__all__ = ["Plan", "checked_descent", "fit_privately"]


class Plan(Protocol):
    """Parameters of a fit, which nothing can change any more."""

    @property
    def target(self) -> Target:
        """Privacy that is asked for."""
        ...

    @property
    def loss(self) -> Loss:
        """Loss of the scores."""
        ...

    def resolved(self, sizes: Sizes) -> Any:
        """The same without any "auto" that public sizes decide."""
        ...

    def budget(self, sizes: Sizes) -> Budget:
        """What is released, with which noise, and what it costs."""
        ...

    def prepared(self, data: Data, where: Any, budget: Budget) -> Any:
        """What `run` takes: data where they are used. Raises what training would have to."""
        ...

    def run(self, ready: Any, releases: Releases, rng: Any, after_step: Callable) -> Any:
        """Fit."""
        ...


def fit_privately(
    estimator: Any,
    plan: Plan,
    data: Data,
    public: tuple[str, ...],
    advise: Callable[[PrivacyGuarantee, Budget, Sizes], None],
    *,
    joint: bool = False,
    noise: NoiseSource | None = None,
) -> tuple[Any, Budget]:
    """Carry out `plan` on checked data, after setting ``privacy_``; the result and its budget.

    Parameters
    ----------
    estimator : PrivateEstimator
        Whose fit it is.
    plan : Plan
        What to do.
    data : Data
        What to do it on.
    public : tuple of str
        What the guarantee assumes to be public.
    advise : callable
        Warns of what public quantities already tell to be a bad idea.
    joint : bool, default=False
        Whether the result has parts that belong to the persons whose rows they are made of.
    noise : NoiseSource or None, default=None
        Where noise comes from; None is what the estimator's `random_state` says.

    Notes
    -----
    Privacy: `plan` was read from the parameters before anything else runs, and all that is
    released is in the budget that is charged. Whatever may be refused is refused before
    ``_start_spending``; from there on, failing costs what succeeding costs.
    """
    where = check_device(estimator.device)
    noise = as_noise(estimator.random_state) if noise is None else noise
    sizes = data.sizes(plan.loss.n_outputs(data.n_targets))
    plan = plan.resolved(sizes)
    budget = plan.budget(sizes)
    guarantee = guarantee_of(
        budget,
        secure=noise.secure,
        n_samples=data.records.n,
        n_features=data.X.shape[1],
        public=public,
        unit=data.records.unit,
        joint=joint,
    )
    if budget.private:
        advise(guarantee, budget, sizes)
    with plain_arithmetic(where):
        ready = plan.prepared(data, where, budget)
        steps = budget.parts.get(STEPS)
        after_step, finish = start_progress(estimator, 1 if steps is None else steps.count)
        estimator._start_spending(guarantee)
        releases = Releases(budget, noise, data.records)
        result = plan.run(ready, releases, noise.public(), after_step)
    finish()
    return result, budget


def checked_descent(estimator: Any) -> Descent:
    """How the parameters of `estimator` say to train; ValueError where one is out of range."""
    check_real("alpha", estimator.alpha, low=0, high=1e50, include_low=True)
    if estimator.n_iter != "auto":
        check_integer("n_iter", estimator.n_iter, low=1, high=10**9)
    check_auto("learning_rate", estimator.learning_rate, low=0, high=1e50)
    check_auto("clip_norm", estimator.clip_norm, low=1e-10, high=1e50)
    if estimator.batch_size is not None:
        check_integer("batch_size", estimator.batch_size, low=1)
    batch_size = estimator.batch_size
    return Descent(
        alpha=float(estimator.alpha),
        n_iter=_plain(estimator.n_iter, int),
        learning_rate=_plain(estimator.learning_rate, float),
        clip_norm=_plain(estimator.clip_norm, float),
        batch_size=None if batch_size is None else int(batch_size),
    )


def _plain(value: Any, number: Callable[[Any], float]) -> Any:
    """Number of a plain type, which stays what it is, or "auto"."""
    return "auto" if isinstance(value, str) else number(value)
