"""Tables and data that the tests share."""

import copy
import itertools
import math
import random
import sys
import warnings
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import joblib
import numpy as np
import pytest
from hypothesis import settings
from scipy import sparse, stats

from dpsubspace import DPSGDClassifier, DPSGDFClassifier, DPSGDRegressor, GEPClassifier
from dpsubspace._core.accounting import budget as budgets
from dpsubspace._core.accounting.budget import Budget, Part, Target
from dpsubspace._core.accounting.cost import Cost
from dpsubspace._core.accounting.events import NEIGHBORING_RELATIONS as RELATIONS  # noqa: F401
from dpsubspace._core.accounting.events import non_private
from dpsubspace._core.gradients.clipping import clipped_sum
from dpsubspace._core.gradients.losses import CLASSIFIER_LOSSES
from dpsubspace._core.ground.arrays import as_like, to_numpy
from dpsubspace._core.release.mechanisms import DisjointTotal, release, release_choice
from dpsubspace._core.release.noise import SeededNoise, as_noise
from dpsubspace._core.release.releases import Releases
from dpsubspace._core.rows.features import Features
from dpsubspace._core.rows.records import NullRecords, Records, RowMap
from dpsubspace._core.solvers.descent import _EMBEDDING_FLOOR as EMBEDDING_FLOOR
from dpsubspace.linear_model import GEPRegressor

CLASSIFIERS = [DPSGDClassifier, DPSGDFClassifier]
ESTIMATORS = [*CLASSIFIERS, DPSGDRegressor]
PracticalClassifier = partial(DPSGDFClassifier, preprocessing="practical")
AdaptiveClassifier = partial(DPSGDFClassifier, preprocessing="adaptive")
VERSIONS = [DPSGDClassifier, PracticalClassifier, AdaptiveClassifier]
GEP = [GEPClassifier, GEPRegressor]
PLAIN = RowMap(norm=None)

# A p-value of what holds is below this once in 1e10 draws, so that a test of a few of them fails at
# most once in 1e9. That a wrong law is found has no more luck in it where its p-value is mostly
# below 1e-39: like that of a normal variable at 13 deviations, of which noise takes 6.1 away once
# in 1e9, and 6.5 are enough. For a Kolmogorov-Smirnov test this is (6.7 / D)^2 draws, for laws
# at a distance of D, by the inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant.
RARE = 1e-10


def epsilon_of(event, delta, neighboring_relation):
    """Epsilon of an event."""
    return Cost.of(event, neighboring_relation).epsilon(delta)


def price_of(event, slack, neighboring_relation):
    """What an event may be charged as."""
    return Cost.of(event, neighboring_relation).price(slack)


def calibrate(make_event, epsilon, delta, neighboring_relation):
    """Least multiplier at which an event costs at most `epsilon`."""
    return budgets.calibrate(lambda m: Cost.of(make_event(m), neighboring_relation), epsilon, delta)


def calibrate_range(make_event, epsilon, delta, neighboring_relation):
    """Largest x at which an event, of epsilons in proportion to x, costs at most `epsilon`."""

    def cost_at(x):
        return Cost.of(make_event(x), neighboring_relation)

    return budgets.calibrate_range(cost_at, epsilon, delta)


def pairwise(*factors, apart=()):
    """Rows of values, one of each factor, in which any two values of two factors meet.

    But for pairs of factors that are `apart`. A greedy choice, the same in each process.
    """
    places = list(itertools.product(*(range(len(factor)) for factor in factors)))
    random.Random(0).shuffle(places)
    meeting = [p for p in itertools.combinations(range(len(factors)), 2) if p not in apart]
    # The pairs that are left are the bits of one number, and so are those of a row.
    bits = defaultdict(lambda: 1 << len(bits))
    rows = [(row, sum(bits[i, row[i], j, row[j]] for i, j in meeting)) for row in places]
    left, chosen = (1 << len(bits)) - 1, []
    for wanted in range(len(meeting), 0, -1):
        for row, pairs in rows:
            if (left & pairs).bit_count() >= wanted:
                chosen.append(row)
                left &= ~pairs
        if not left:
            break
    values = [list(factor) for factor in factors]
    return [tuple(values[i][place] for i, place in enumerate(row)) for row in sorted(chosen)]


def in_turns(*factors, together=(0,), turn=None):
    """Few rows: all values of the factors that are `together`, and each value of the others.

    Several tables can share `turn`, a counter: the others then go through their values over all
    of these tables. A factor that has run out of values starts again, one value on, so that
    factors of one length do not keep step.
    """
    first = list(itertools.product(*(factors[i] for i in together)))
    length = len(first) if turn else max(len(first), *map(len, factors))
    for place in range(length):
        number = next(turn) if turn else place
        row = [factor[(number + number // len(factor)) % len(factor)] for factor in factors]
        for i, value in zip(together, first[place % len(first)], strict=True):
            row[i] = value
        yield tuple(row)


def pairs_first(*factors, prefix=(), apart=(), together=(0,), turn=None):
    """Rows `in_turns` for `parametrize`, and those of `pairwise`, which are exhaustive.

    Every second one of these is odd, so that two environments can share them.
    """
    factors = [list(factor) for factor in factors]
    plain = list(in_turns(*factors, together=together, turn=turn))
    yield from (pytest.param(*prefix, *row) for row in plain)
    others = [row for row in pairwise(*factors, apart=apart) if row not in plain]
    for number, row in enumerate(others):
        marks = [pytest.mark.exhaustive] + [pytest.mark.odd] * (number % 2)
        yield pytest.param(*prefix, *row, marks=marks)


EVERY_EXAMPLE = True  # conftest.py says whether `-m` leaves out what is exhaustive


def examples(most, **options):
    """Settings of Hypothesis: `most` examples, and a fifth of them without what is exhaustive."""
    return settings(max_examples=most if EVERY_EXAMPLE else most // 5, deadline=None, **options)


def thinned(values, every=4):
    """Values or rows for `parametrize`, of which all but some are exhaustive."""
    for i, value in enumerate(values):
        row = value if isinstance(value, tuple) else (value,)
        yield pytest.param(*row, marks=() if i % every == 0 else pytest.mark.exhaustive)


def blobs(n=120, d=5, n_classes=3, seed=0):
    """Separable rows around class means, shifted off the origin."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    means = rng.normal(size=(n_classes, d)) * 2
    return means[y] + rng.normal(size=(n, d)) + 1.0, y


def public_rows(d, m=60):
    """Rows near those of `blobs`, which say nothing of the last column, and their labels."""
    X, y = blobs(n=m, d=d)
    X = X + np.random.default_rng(9).normal(size=X.shape) / 2
    X[:, 1:][:, -1:] = 0.0  # where there are others
    return X, y


class _Informed:
    """Fits with public rows where it is given none: for tables of estimators without."""

    def _fit_by(self, plan, X, y, *, X_public=None, y_public=None, **options):
        if X_public is None:
            X_public, y_public = public_rows(X.shape[1])
            labelled = self.init == "public" or self.mirror
            y_public = y_public if labelled else None
        return super()._fit_by(plan, X, y, X_public=X_public, y_public=y_public, **options)


class InformedClassifier(_Informed, GEPClassifier):
    """GEPClassifier with public rows."""


class InformedRegressor(_Informed, GEPRegressor):
    """GEPRegressor with public rows."""


INFORMED = [InformedClassifier, InformedRegressor]


def with_plan(model, descent=None, **changes):
    """`fit` of `model` by its plan with `changes` to it and to how it descends.

    For what no parameter says: ``with_plan(model, descent={"momentum": 0.0})(X, y)``.
    """
    plan = model._plan()
    if descent:
        changes["descent"] = replace(plan.descent, **descent)
    plan = replace(plan, **changes)
    return partial(model._fit_by, plan)


def formed(features):
    """Features as a matrix in float64, term by term as the module's docstring defines them."""
    X = features.X.toarray() if sparse.issparse(features.X) else to_numpy(features.X)
    rows = X.astype(np.float64) * to_numpy(features.factors)[:, None]
    if features.bias is not None:
        rows = np.column_stack([rows, features.bias * to_numpy(features.factors)])
    if features.shift is not None:
        rows = rows - features.shift.mean
        if features.shift.constant is not None:
            rows = np.column_stack([rows, np.full(len(rows), features.shift.constant)])
    if features.columns is not None:
        rows[:, : X.shape[1]] *= to_numpy(features.columns)
    if features.shrink is not None:
        rows = rows * to_numpy(features.shrink)[:, None]
    return rows


def mapped(X, **options):
    """Rows after a RowMap, formed."""
    return formed(Features(X, RowMap(**options)))


class _OneStream(SeededNoise):
    """Seeded noise that is the same whatever a release is called."""

    def child(self, name):
        return self


def who(present, n):
    """Records of `n` rows, each its own, of which some may be null."""
    return Records.of_rows(n, present)


def groups_of(present, groups=None):
    """`groups` of a fit in which the records of rows where `present` is False are null ones."""
    return groups if present is None else NullRecords(groups, present)


def some_releases(
    multiplier, count=1, *, name="it", rate=1.0, relation="zero_out", seed=0, present=None
):
    """Releases of one name and a given noise; exact ones where the multiplier is 0."""
    target = Target(None if multiplier else math.inf, 1e-5, relation)
    parts, scales = {name: Part(1.0, count, rate)}, {name: multiplier}
    budget = Budget(target, parts, scales, non_private(), target.private)
    records = None if present is None else Records.of_rows(len(present), present)
    return Releases(budget, _OneStream(seed), records)


@contextmanager
def releases(monkeypatch, outputs=None):
    """Record every sum that is released and what came out; replay `outputs` if given.

    Replaying the outputs of another run makes an adaptive algorithm take the same path
    on a neighbouring data set, so that its sums can be compared one by one.
    """
    seen = []

    def recording(total, noise_multiplier, noise, **options):
        if not noise_multiplier:  # exact sums, of public rows
            return release(total, noise_multiplier, noise, **options)
        if outputs is None:
            out = release(total, noise_multiplier, noise, **options)
        else:
            out = as_like(outputs[len(seen)][1], total.value)
        value = np.asarray(to_numpy(total.value))
        seen.append((replace(total, value=value), to_numpy(out), noise_multiplier))
        return out

    with monkeypatch.context() as patch:
        replaced(patch, release, recording)
        yield seen


def multipliers(event):
    """Noise multiplier of every release that an event describes, in order."""
    if hasattr(event, "events"):
        return [m for part in event.events for m in multipliers(part)]
    if hasattr(event, "count"):
        return multipliers(event.event) * event.count
    if hasattr(event, "sampling_probability"):
        return multipliers(event.event)
    return [event.noise_multiplier]


def noise_p_value(seen, event, relation):
    """P-value that recorded releases, none on a batch, have the noise that their event says."""
    described = multipliers(event)
    assert len(seen) == len(described)
    squares = [
        # The accountant takes multipliers against half of the sensitivity under replace_one.
        (out - t.value).ravel()
        / (multiplier * (t.norm_bound if relation == "zero_out" else t.replace_bound / 2))
        for (t, out, _), multiplier in zip(seen, described, strict=True)
    ]
    total, chi2 = np.sum(np.concatenate(squares) ** 2), stats.chi2(sum(map(len, squares)))
    return 2 * min(chi2.cdf(total), chi2.sf(total))


def p_value_of_mean(values, expected):
    """Of the mean of independent values in [0, 1], by the empirical Bernstein inequality.

    Maurer and Pontil (2009), theorem 4: it holds for any number of values and any law.
    """
    n, error = len(values), abs(np.mean(values) - expected)
    wide, far = math.sqrt(2 * np.var(values, ddof=1) / n), 7 / (3 * (n - 1))
    root = 2 * error / (wide + math.sqrt(wide**2 + 4 * far * error)) if error else 0.0
    return min(1.0, 4 * math.exp(-(root**2)))


def replaced(patch, function, substitute):
    """Every module of the package that imported `function` has `substitute` in its place."""
    name = function.__name__
    places = [
        module
        for key, module in sorted(sys.modules.items())
        if key.startswith("dpsubspace.") and key != function.__module__
    ]
    places = [module for module in places if getattr(module, name, None) is function]
    assert places, "a substitute stands already, or nothing imports it"
    for module in places:
        patch.setattr(module, name, substitute)


def choice_of(monkeypatch, call, *args, **options):
    """The scores by which the one choice is made that a call makes."""
    seen = []

    def recording(scores, *rest, **kwargs):
        seen.append(scores)
        return release_choice(scores, *rest, **kwargs)

    with monkeypatch.context() as patch:
        replaced(patch, release_choice, recording)
        call(*args, **options)
    (one,) = seen
    return one


def scale_noise(patch, factor):
    """Every fit draws noise that is `factor` times what it should be."""
    replaced(patch, as_noise, lambda state: ScaledNoise(SeededNoise(state), factor))


def left_behind(fit):
    """A hash of all that a fit or a function leaves behind, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit()
    state = dict(vars(result)) if hasattr(result, "__dict__") else tuple(result)
    if isinstance(state, dict):
        state.pop("_callback_fit_ctx", None)  # of scikit-learn, with the time; `fit` deletes it
        state = {name: _without_addresses(value) for name, value in state.items()}
    return joblib.hash(state), [str(warning.message) for warning in caught]


def _without_addresses(value):
    """A torch module as what it holds: as a pickle it has addresses in it."""
    if hasattr(value, "gradients"):  # the space of those of a module
        rows = value.gradients
        return value.weights, value.seed, rows.X, rows.y, _without_addresses(rows._rows.module)
    if not hasattr(value, "state_dict"):
        return value
    held = {name: tensor.numpy().copy() for name, tensor in value.state_dict().items()}
    grads = [None if p.grad is None else p.grad.numpy().copy() for p in value.parameters()]
    attributes = [[*vars(part)] for part in value.modules()]
    return repr(value), held, grads, attributes


class ScaledNoise:
    """Source whose noise is `factor` times what it should be: a bug to be caught."""

    secure = False

    def __init__(self, source, factor):
        self.source, self.factor = source, factor

    def gaussian(self, shape, scale):
        return self.source.gaussian(shape, scale * self.factor)

    def laplace(self, shape, scale):
        return self.source.laplace(shape, scale * self.factor)

    def normals(self, shape):
        return self.source.normals(shape) * self.factor

    def uniform(self, shape):
        return self.source.uniform(shape)

    def exponentials(self, shape):
        # A choice adds logarithms of these to its scores.
        return self.source.exponentials(shape) ** self.factor

    def poisson_sample(self, n, rate):
        return self.source.poisson_sample(n, rate)

    def child(self, name):
        return ScaledNoise(self.source.child(name), self.factor)

    def public(self):
        return self.source.public()


def targets(name, n, n_targets, rng):
    """Targets as a loss takes them."""
    if name in CLASSIFIER_LOSSES:
        return rng.integers(n_targets, size=n)
    return rng.uniform(-1, 1, size=(n, n_targets))


def total(source, weights, clip_norm, batch=None):
    """Clipped sum over all blocks of a source."""
    sums = DisjointTotal()
    for rows in source.chunks(batch):
        sums.add(clipped_sum(source.at(weights, rows), clip_norm))
    return sums.bounded_sum()


def oracle(G, B, clip, residual_clip):
    """What the step releases, from formed gradients and directions (k, p)."""
    E = G @ B.T
    R = G - E @ B
    g, e, r = (np.linalg.norm(part, axis=1) for part in (G, E, R))
    e, r = np.maximum(e, EMBEDDING_FLOOR * g), np.maximum(r, 0.01 * g)  # of shorter ones, less
    return np.minimum(1, clip / e) @ E, np.minimum(1, residual_clip / r) @ R


def assert_refused(Estimator, options, public, match, data=None):
    """Nothing is spent, and nothing that is public is touched."""
    X, y = blobs(n=400) if data is None else data
    before = copy.deepcopy(public)
    model = Estimator(epsilon=5.0, **options)
    with pytest.raises(ValueError, match=match):
        model.fit(X, y, **public)
    assert not hasattr(model, "privacy_") and not hasattr(model, "coef_")
    np.testing.assert_equal(public, before)


def move(one, other):
    return float(np.linalg.norm(np.asarray(one.value - other.value, dtype=np.float64)))


def assert_within_bounds(here, there, relation):
    for (one, _, multiplier), (other, _, _) in zip(here, there, strict=True):
        bound = one.norm_bound if relation == "zero_out" else one.replace_bound
        assert (one.norm_bound, one.replace_bound) == (other.norm_bound, other.replace_bound)
        assert move(one, other) <= bound * (1 + 1e-12)
        assert multiplier > 0


def assert_all_charged(first, second, event):
    """A fit and one with its outputs release as often, and as much as the event says."""
    assert len(first) == len(second) > 0
    # The sums of a step are one Gaussian of what is charged for it.
    total = sum(multiplier**-2.0 for multiplier in multipliers(event))
    assert sum(multiplier**-2.0 for *_, multiplier in first) == pytest.approx(total, rel=1e-9)


def charged(ledger):
    """Labels and events of what a ledger was charged."""
    return tuple((entry.label, entry.event) for entry in ledger.entries)
