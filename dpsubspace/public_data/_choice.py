"""A private choice among public data sets: pure differential privacy at the price of one index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from dpsubspace._core.accounting.budget import Sizes, Target
from dpsubspace._core.accounting.guarantee import Released
from dpsubspace._core.fits.call import private_function
from dpsubspace._core.fits.estimator import PrivateEstimator, run_privately
from dpsubspace._core.gradients.torch_rows import row_shape
from dpsubspace._core.ground import auto
from dpsubspace._core.ground.checks import check_choice, check_integer, check_real
from dpsubspace._core.plans.choice import (
    ChoicePlan,
    centered_energy_scorer,
    energy_scorer,
    validation_scorer,
)
from dpsubspace._core.public.gradient_spaces import few
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.inputs import check_rows, check_rows_and_labels, named
from dpsubspace._core.rows.public import check_candidates, check_order_of_sets
from dpsubspace._core.rows.records import check_groups
from dpsubspace._core.rows.same_rows import by_name, named_sets, refuse_private_rows, refuse_shared
from dpsubspace._core.solvers.descent import STEPS
from dpsubspace._names import public
from dpsubspace.public_data._distances import gradient_space, refuse_groups

# The choice -------------------------------------------------------------------------------------

# Name of the candidate without public data.
NONE = "none"

_METHODS = ("energy", "centered_energy", "validation")

# Number of leading directions of each set: with more, nearly everything lies along those of any
# set. Of 8, 16 and 64, the ranking with 8 agrees best with accuracies (benchmarks/repro_gsd.py),
# though not by much.
_COMPONENTS = 8


@public
class PublicChoice(Released):
    """Name of a public data set that was chosen by private rows, and what that cost.

    A pair, to be unpacked as ``name, guarantee = select_public(...)``. The name is safe to
    publish with the statement beside it.

    Parameters
    ----------
    value : object
        Name of the chosen set, also called ``name``.
    privacy : PrivacyGuarantee
        What the call cost, and what its guarantee assumes; :meth:`PrivacyLedger.charge` takes it.

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


@private_function
def select_public(
    candidates: Mapping[Any, Any],
    X: Any,
    y: Any = None,
    *,
    epsilon: float = 0.1,
    method: str = "energy",
    n_components: int | str = "auto",
    y_public: Mapping[Any, Any] | None = None,
    none: Any = None,
    module: Any = None,
    input_shape: tuple[int, ...] | None = None,
    n_classes: int = 10,
    neighboring_relation: str = "zero_out",
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> PublicChoice:
    """Choose one of several public data sets with the help of private rows, and a guarantee.

    Every private row says how well each set serves it, by a number from 0 to 1, and the name of a
    set with a large total is released. Two sets are told apart if their totals differ by more than
    a few times ``1 / epsilon``, however many columns or parameters there are: with 2,000 rows and
    ``epsilon=0.1``, if the means of their numbers differ by about 0.015.

    Parameters
    ----------
    candidates : dict of array-like of shape (n_public, n_features)
        Public rows by name. A tuple of sets is one candidate, their union.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Private rows.
    y : array-like of shape (n_samples,), optional
        Their labels, which only "validation" looks at.
    epsilon : float, default=0.1
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
        Inside of a :class:`PrivacyLedger` it must be given.
    method : {"energy", "centered_energy", "validation"}, default="energy"
        What a private row says of a set. "energy" is the share of its gradient that lies on the
        leading directions of the gradients of the set, which is what is left of it when
        training keeps to these directions. "centered_energy" is the same share of the difference
        of two private rows, so that what all rows have in common counts for nothing; it is meant
        for a choice that has `none` in it. "validation" is whether a logistic regression that was
        trained on the set alone predicts the label of the row; labels of the sets must mean the
        same as `y`.
    n_components : int or "auto", default="auto"
        Number of leading directions of each set. "auto" is 8, and for linear models at most half as
        many as there are features. "validation" has no use for it.
    y_public : dict of array-like of shape (n_public,), optional
        Labels of the candidates by name, for "validation"; a tuple of them for a tuple of sets.
    none : float, estimator or None, default=None
        Adds a candidate called "none": no public data at all. A number in (0, 1] is what every
        private row says of it, so that sets of which they say more on average are better. An
        estimator that is not fitted, such as ``GEPClassifier(epsilon=0.5)``, stands for the share
        from which on it is better to train it on `n_components` directions than on all features.
        It follows from the budget of the estimator and from public sizes by a rule of thumb,
        and needs ``method="centered_energy"``. None always chooses a set.
    module : None, "cnn" or torch.nn.Module, default=None
        Model that has the gradients. None is a linear model at zero weights. "cnn" is the small
        network of the paper for images, two convolutions and a linear layer with random
        weights; `input_shape` must be that of an image. A module has its gradients at its own
        weights, in evaluation mode, row by row.
    input_shape : tuple of int or None, default=None
        Shape of one row as the module sees it, for example ``(1, 28, 28)``. None leaves rows flat.
    n_classes : int, default=10
        Number of labels to draw from, which is also the number of scores of a module (one score
        for two classes). Neither this nor `input_shape` is used without a `module`.
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
    PublicChoice
        ``(name, privacy)``: name of the chosen set, and the :class:`PrivacyGuarantee` of this
        call, for a :class:`PrivacyLedger` to charge beside the fit that uses the set.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used; nothing has been
        released then and no privacy spent.

    See Also
    --------
    GSDScorer : Distances of any number of sets, and of single public rows.
    GEPClassifier : Trains with the set that was chosen.

    Notes
    -----
    What is released is one name, by the exponential mechanism (McSherry, Talwar, 2007): set j has a
    probability in proportion to ``exp(epsilon u_j)`` with ``"zero_out"``, and to
    ``exp(epsilon u_j / 2)`` with ``"replace_one"``, where ``u_j`` is the sum over rows of
    what each says of the set, a number in [0, 1]. A row that becomes null takes away a
    number in [0, 1] from every total; so two totals move apart by at most 1, and by at most 2
    where it is replaced. The guarantee is pure: there is no delta. Its event is a bounded
    range of epsilon. A ledger whose first charge it is counts all of epsilon. After a fit with
    Gaussian noise, and in ``epsilon_if_planned()``, it counts for less: 0.1 beside a fit of 0.5
    at delta 1e-5 for 0.05 and 0.04. Permute-and-flip would choose worse at such a charge, and
    better where all of epsilon is counted.

    The unit is one row. Public are the numbers of rows and features, the candidates, `none`, the
    module and all parameters but `random_state`. For "centered_energy" rows are paired at
    random without looking at them. A row is in one pair, and a pair with a null row says nothing,
    so that a row moves totals as little as above; there are half as many numbers to add up.

    The share for an estimator with q = `n_components` directions, c columns of scores, d
    features and n rows is ``(1 + z_q) / (1 + z_d)`` with ``z_q = 20 s sqrt(q c) / n`` and s the
    noise multiplier of all its steps together. It follows from the rate at which private training
    errs, with one constant that was found by experiment; measured crossings lie within 0.21 of it.
    It is about directions. A set whose mean is far from that of the private rows can do harm
    although it captures more.

    Columns in different units must be scaled first, private and public rows alike: otherwise the
    one with the largest numbers decides alone. What the methods found, and where they failed, is in
    ``benchmarks/pages/choosing_public_rows.md``.

    For a linear model the share of a gradient is ``|U x|^2 / |x|^2`` with U the leading directions
    of the unit rows of a set: weights, labels and loss have no part in it. The gradients of a
    module are taken at labels that are drawn at random, of at most 256 rows of each set.

    References
    ----------
    McSherry, Talwar. "Mechanism design via differential privacy". FOCS 2007.

    Dong, Durfee, Rogers. "Optimal differential privacy composition for exponential
    mechanisms". ICML 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import GEPClassifier, PrivacyLedger, select_public
    >>> X, y = load_digits(return_X_y=True)
    >>> candidates = {"digits": X[:200], "negatives": 16 - X[:200], "stripes": X[:200, ::-1] ** 2}
    >>> X, y = X[200:], y[200:]
    >>> ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    >>> name, _ = ledger.run(select_public, candidates, X, epsilon=0.2)
    >>> name
    'digits'
    >>> model = GEPClassifier(epsilon=0.5)
    >>> _ = ledger.fit(model, X, y, X_public=(candidates[name],))
    """
    target = Target(epsilon, 0.0, neighboring_relation).checked(pure=True)
    check_choice("method", method, _METHODS)
    c = check_integer("n_classes", n_classes, low=2)
    model, labelled = named("select_public"), method == "validation"
    if labelled and module is not None:
        raise ValueError(
            "method='validation' trains a logistic regression on each set, and no `module`: leave"
            " `module` out, or use method='energy'."
        )
    if isinstance(X, Mapping):
        raise ValueError("`X` is a dict: the candidates come first, select_public(candidates, X).")
    if labelled and y is None:
        raise ValueError("method='validation' needs the labels of the private rows: pass `y`.")
    refuse_shared(X, named_sets("candidates", candidates))
    if labelled:
        refuse_shared(y, named_sets("y_public", y_public), "y")
        X, y = check_rows_and_labels(model, X, y, groups=groups)
    else:
        X = check_rows(model, X, reset=True, accept_sparse=module is None, groups=groups)
    n_features, records = X.shape[1], check_groups(groups, X)
    refuse_groups(module, records)
    n_samples = records.n
    sets = check_candidates(model, X, candidates, "candidates")
    refuse_private_rows(X, by_name("candidates", candidates, sets.values()))
    k = _n_components(n_components, n_features, linear=module is None)
    names, constants = [*sets], []
    if none is not None:
        names.append(NONE)
        constants.append(_worth_it(none, method, Sizes(n_samples, n_features), k, c))
    _check_names(names)
    noise = as_noise(random_state)
    rng, shape = noise.public(), row_shape(input_shape, n_features)
    if labelled:
        labels: Any = y_public if isinstance(y_public, Mapping) else {}
        for name in sets if labels else ():
            check_order_of_sets(candidates[name], labels.get(name))
        scorer = validation_scorer(sets, X, y, records, y_public)
    elif method == "energy":
        space = gradient_space(module, shape, c, int(rng.integers(2**31)))
        scorer = energy_scorer(sets, X, records, space, k)
    else:
        scorer = centered_energy_scorer(sets, X, records, module, k, rng)
    n_public, of_labels = sum(map(len, sets.values())), " and labels" if labelled else ""
    public = f"{n_public} rows{of_labels} of {len(sets)} public set{'s' * (len(sets) > 1)}"
    plan = ChoicePlan(target, scorer, len(sets), tuple(constants), public)
    chosen, guarantee = run_privately(plan, None, records, n_features, noise)
    return PublicChoice(names[chosen], guarantee)


def _n_components(value: Any, n_features: int, *, linear: bool) -> int:
    if isinstance(value, str) and value == "auto":
        return few(_COMPONENTS, n_features) if linear else _COMPONENTS
    try:
        return check_integer("n_components", value, low=1)
    except ValueError as error:
        raise ValueError(f"{error} Or use 'auto'.") from None


def _check_names(names: list[Any]) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"`candidates` has a set called {NONE!r}: rename it, or leave out `none`.")
    if len(names) < 2:
        raise ValueError(
            "`candidates` has one set, and there is nothing to choose from: give another, or `none`"
            " to choose between the set and no public data."
        )


def _worth_it(none: Any, method: str, sizes: Sizes, k: int, n_classes: int) -> float:
    """Return the share from which on a set beats no public data: given, or from an estimator."""
    if not hasattr(none, "get_params"):
        return check_real("none", none, low=0, high=1, include_high=True)
    if method != "centered_energy":
        raise ValueError(
            f"`none`={type(none).__name__}() stands for a share of centred energy: use"
            f" method='centered_energy', or give a number for method={method!r}."
        )
    if not (isinstance(none, PrivateEstimator) and hasattr(none, "n_iter")):
        raise ValueError(
            "`none` must be a number, or an estimator of this package that trains, such as"
            f" GEPClassifier(epsilon=0.5), got {type(none).__name__}."
        )
    plan = none._plan()
    n_outputs = plan.loss.n_outputs(n_classes if is_classifier(none) else 1)
    budget = none._budget(replace(sizes, n_outputs=n_outputs))
    return auto.break_even(
        n_outputs * sizes.known("n_features", "the number of weights"),
        n_outputs * k,
        n_samples=sizes.known("n_samples", "the noise of a fit"),
        multiplier=budget.per_record_multiplier(STEPS),
    )
