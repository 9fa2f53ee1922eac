"""A private choice among public data sets: pure differential privacy at the price of one index."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import column_or_1d

from dpsubspace._accounting.budget import Budget, Part, Target
from dpsubspace._accounting.guarantee import Released
from dpsubspace._accounting.permission import about_to_release
from dpsubspace._array import plain_arithmetic, slices
from dpsubspace._checks import check_choice, check_integer, check_real
from dpsubspace._estimators.base import guarantee_of
from dpsubspace._estimators.probes import gradient_space
from dpsubspace._gradients.torch_rows import row_shape
from dpsubspace._public.gradient_spaces import GradientSpace
from dpsubspace._release.noise import as_noise
from dpsubspace._release.releases import Releases
from dpsubspace._rows.inputs import check_rows, check_rows_and_labels
from dpsubspace._rows.public import check_candidates
from dpsubspace._statistics.scores import ScoreTotal
from dpsubspace.exceptions import PrivacyWarning, warn

__all__ = ["PublicChoice", "select_public"]

# Name of the candidate that uses no public data.
NONE = "none"

# Rows that are scored at once.
_CHUNK = 4096

# What a record brings to the score of each candidate: a function of rows to numbers in [0, 1].
_Scorer = Callable[[slice], np.ndarray]


class PublicChoice(Released):
    """Name of a public data set that was chosen by private rows, and what that cost.

    A pair, to be unpacked as ``name, guarantee = select_public(...)``. The name is safe to
    publish with the statement beside it.

    Parameters
    ----------
    value : object
        Name of the chosen set, also called ``name``.
    privacy : PrivacyGuarantee
        What the call cost and what that rests on; :meth:`PrivacyLedger.charge` takes it.

    See Also
    --------
    select_public : Returns one.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace import select_public
    >>> rng = np.random.default_rng(0)
    >>> scales = np.linspace(3, 0.1, 20)
    >>> private, near, far = scales * rng.normal(size=(3, 500, 20))
    >>> choice = select_public({"near": near, "far": far[:, ::-1]}, private, n_components=4)
    >>> choice.name, choice.privacy.epsilon, choice.privacy.delta
    ('near', 0.1, 0.0)
    """

    @property
    def name(self) -> Any:
        """Name of the chosen set."""
        return self.value


def select_public(
    candidates: Mapping[Any, Any],
    X: Any,
    y: Any = None,
    *,
    epsilon: float = 0.1,
    method: str = "energy",
    n_components: int = 16,
    y_public: Mapping[Any, Any] | None = None,
    none: float | None = None,
    module: Any = None,
    input_shape: tuple[int, ...] | None = None,
    n_classes: int = 10,
    neighboring_relation: str = "zero_out",
    random_state: int | np.random.RandomState | None = None,
) -> PublicChoice:
    """Choose one of several public data sets by private rows.

    Every private row says how well each set serves it, by a number from 0 to 1, and the name
    of a set with a large total is released. Sets whose totals differ by more than a few times
    ``1 / epsilon`` are told apart, however many sets, columns or parameters there are.
    """
    target = Target(epsilon, 0.0, neighboring_relation)
    return _select(
        X,
        target,
        random_state,
        candidates=candidates,
        y=y,
        method=method,
        n_components=n_components,
        y_public=y_public,
        none=none,
        module=module,
        input_shape=input_shape,
        n_classes=n_classes,
    )


def _select(
    X: Any,
    target: Target,
    random_state: Any,
    *,
    candidates: Mapping[Any, Any],
    y: Any = None,
    method: str = "energy",
    n_components: int = 16,
    y_public: Mapping[Any, Any] | None = None,
    none: float | None = None,
    module: Any = None,
    input_shape: tuple[int, ...] | None = None,
    n_classes: int = 10,
    present: np.ndarray | None = None,
) -> PublicChoice:
    """Choose a set, with the records where `present` is False as null records."""
    target = target.checked(pure=True)
    check_choice("method", method, ("energy", "validation"))
    k = check_integer("n_components", n_components, low=1)
    c = check_integer("n_classes", n_classes, low=2)
    if none is not None:
        check_real("none", none, low=-math.inf, high=1, include_high=True)
    model = BaseEstimator()
    if method == "validation":
        if y is None:
            raise ValueError("method='validation' needs the labels of the private rows: pass `y`.")
        X, y = check_rows_and_labels(model, X, y)
    else:
        X = check_rows(model, X, reset=True, accept_sparse=module is None)
    sets = check_candidates(model, X, candidates, "candidates")
    names = [*sets, *([] if none is None else [NONE])]
    if len(names) < 2:
        raise ValueError(
            "`candidates` has one set, and there is nothing to choose from: give another, or the"
            " share of energy from which on it is worth using as `none`."
        )
    if none is not None and NONE in sets:
        raise ValueError(f"`candidates` has a set called {NONE!r}: rename it, or leave out `none`.")
    noise = as_noise(random_state)
    n_samples, n_features = X.shape
    if method == "validation":
        score = _validation(sets, X, y, y_public)
    else:
        seed = int(noise.public().integers(2**31))
        score = _energy(
            sets, X, gradient_space(module, row_shape(input_shape, n_features), c, seed), k
        )
    budget = Budget.split(target, {"choice": Part(1.0, kind="range")}, n_samples)
    guarantee = guarantee_of(
        budget,
        secure=noise.secure,
        n_samples=n_samples,
        n_features=n_features,
        public=(f"{len(sets)} candidates and their {sum(map(len, sets.values()))} rows",),
    )
    if not target.private:
        warn(
            "epsilon=inf: this choice is not private. Publish neither it nor what is made with it.",
            PrivacyWarning,
            about="select_public without privacy",
        )
    about_to_release(guarantee)
    with plain_arithmetic(None):
        total = ScoreTotal(len(sets), present)
        for rows in slices(n_samples, _CHUNK):
            total.add(rows, score(rows))
        constants = () if none is None else (none * n_samples,)
        chosen = Releases(budget, noise, present).choice("choice", total.bounded_sum(*constants))
    return PublicChoice(names[chosen], guarantee)


# What a record brings to each candidate ---------------------------------------------------------


def _energy(sets: Mapping[Any, np.ndarray], X: Any, space: GradientSpace, k: int) -> _Scorer:
    """Share of the energy of a record's gradient on the leading directions of each set."""
    spanned, counts = space.spanned([*sets.values()], k)
    for name, count in zip(sets, counts, strict=True):
        if count < k:
            raise ValueError(
                f"gradients of `candidates[{name!r}]` span {count} directions, and"
                f" `n_components`={k} are taken from each set: pass more rows, or use fewer"
                " components."
            )

    def score(rows: slice) -> np.ndarray:
        return (spanned.embedded(X[rows]) ** 2).reshape(-1, len(sets), k).sum(axis=2)

    return score


def _validation(sets: Mapping[Any, np.ndarray], X: Any, y: np.ndarray, y_public: Any) -> _Scorer:
    """Whether a model that was fitted to each set predicts the label of a record."""
    if not isinstance(y_public, Mapping) or y_public.keys() != sets.keys():
        raise ValueError(
            "method='validation' needs the labels of all candidates: pass `y_public` as a dict with"
            f" the names {list(sets)}."
        )
    models = {}
    for name, rows in sets.items():
        given = y_public[name] if isinstance(y_public[name], tuple) else (y_public[name],)
        labels = np.concatenate([column_or_1d(each) for each in given])
        if len(labels) != len(rows):
            raise ValueError(f"`y_public[{name!r}]` has {len(labels)} labels for {len(rows)} rows.")
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        models[name] = model.fit(rows, labels)

    def score(rows: slice) -> np.ndarray:
        some = X[rows].toarray() if sparse.issparse(X) else X[rows]
        right = [model.predict(some) == y[rows] for model in models.values()]
        return np.stack(right, axis=1).astype(np.float64)

    return score
