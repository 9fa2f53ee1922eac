"""Gradient subspace distance: how far public rows are from private ones, as gradients see them.

Where to check the privacy claim: ``GSDScorer.fit`` runs
:func:`~dpsubspace._core.fits.estimator.fit_privately` and in it
:class:`~dpsubspace._core.plans.gsd.GradientPlan`, whose ``run`` is the whole fit.
:func:`gradient_subspace_distance` is not private, and says so in a warning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.call import estimator
from dpsubspace._core.fits.estimator import CheckedFit, FitData, PrivateEstimator, checked_target
from dpsubspace._core.fits.saved import FEATURES
from dpsubspace._core.gradients.torch_rows import row_shape
from dpsubspace._core.ground.arrays import native, plain_arithmetic, sampled
from dpsubspace._core.ground.checks import (
    check_choice,
    check_integer,
    refuse_collection,
    shown,
    unwrapped,
)
from dpsubspace._core.ground.forms import Flag, Number, NumberArray, Whole
from dpsubspace._core.plans.gsd import GradientPlan
from dpsubspace._core.plans.spectrum import FittedSpectrum, warn_of_spectrum
from dpsubspace._core.public.gradient_spaces import (
    COMPONENTS,
    SPACE_FORM,
    GradientSpace,
    few,
    random_labels,
)
from dpsubspace._core.public.subspace import cosines, leading_weights, share_apart
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.inputs import check_rows, named, renamed, without_values
from dpsubspace._core.rows.public import Data, check_candidates, check_public_rows
from dpsubspace._core.rows.records import Records, check_groups, check_order
from dpsubspace._core.rows.same_rows import refuse_private
from dpsubspace._core.statistics.moments import MECHANISMS
from dpsubspace._names import public
from dpsubspace.exceptions import PrivacyWarning, warn
from dpsubspace.public_data._distances import (
    gradient_space,
    probe_gradients,
    refuse_groups,
    warn_not_private,
)

# If noise leaves at most this many directions, a distance means little: the first direction is
# what most rows have in common.
_FEW = 2


@public
class SubspaceDistance(NamedTuple):
    """Result of :func:`gradient_subspace_distance`, with its details.

    None of it is private.

    Parameters
    ----------
    distance : float
        Mean over repeats, in [0, 1].
    unnormalised : float
        The distance times ``sqrt(n_components)``: the root of the sum of squared sines, which is
        what the theory of the paper is about. Its tables have `distance`.
    angles : ndarray of shape (n_repeats, n_components)
        Principal angles in radians, the smallest first.
    distances : ndarray of shape (n_repeats,)
        Distance of each repeat.
    spread : float
        Standard deviation of these; 0 for one repeat.
    seeds : ndarray of shape (n_repeats,)
        Seed of the labels of each repeat, and of the weights of a network that is built in.

    See Also
    --------
    gradient_subspace_distance : Returns one with ``return_details=True``.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from dpsubspace import PrivacyWarning
    >>> from dpsubspace.public_data import gradient_subspace_distance
    >>> warnings.simplefilter("ignore", PrivacyWarning)  # which says that this is not private
    >>> rng = np.random.default_rng(0)
    >>> private, public = rng.normal(size=(2, 200, 30))
    >>> _, details = gradient_subspace_distance(
    ...     private, public, n_components=4, random_state=0, return_details=True)
    >>> details.angles.shape
    (3, 4)
    """

    distance: float
    unnormalised: float
    angles: np.ndarray
    distances: np.ndarray
    spread: float
    seeds: np.ndarray


def gradient_subspace_distance(
    X_private: Any,
    X_public: Any,
    *,
    n_components: int = COMPONENTS,
    n_classes: int = 10,
    n_repeats: int = 3,
    max_samples: int = 2000,
    module: Any = None,
    params: Any = None,
    random_state: int | np.random.RandomState | None = None,
    return_details: bool = False,
) -> Any:
    """Distance between the gradients of two sets of rows; this is not private.

    Rows of both sets get random labels, and a model that was not trained on them has a gradient
    for each row. The leading directions of these gradients span a subspace for each set. The
    distance is the root mean square of the sines of the angles between the two: 0 where they are
    the same, 1 where they have nothing in common. Public rows at a small distance help private
    training the most, says the paper.

    The number depends on every private row, and nothing hides how. Publish it, or choose by
    it, and the rows are no longer protected: use :class:`GSDScorer` or :func:`select_public`.

    Parameters
    ----------
    X_private : array-like of shape (n_samples, n_features), or of images for a module
        Private rows. Nothing protects them here.
    X_public : array-like of shape (n_public, n_features), or of images for a module
        Public rows.
    n_components : int, default=16
        Number of directions of gradients that are compared.
    n_classes : int, default=10
        Number of labels to draw from, which is also the number of scores of a module (one score
        for two classes).
    n_repeats : int, default=3
        Number of times that labels are drawn; the mean distance is returned.
    max_samples : int, default=2000
        Most rows of each set that are compared: a random sample of a set with more.
    module : None, "cnn" or torch.nn.Module, default=None
        Model that has the gradients. None is a linear model at zero weights. "cnn" is the small
        network of the paper for images, two convolutions and a linear layer with new random
        weights for each repeat; images are of shape (height, width) or (channels, height, width).
        A module has its gradients at its own weights, in evaluation mode, row by row.
    params : dict of str to torch.Tensor or None, default=None
        Weights at which a `module` of your own has its gradients, in the form of its
        ``state_dict``. None leaves it at its own.
    random_state : int, RandomState instance or None, default=None
        What labels are drawn from. None draws others each time.
    return_details : bool, default=False
        Whether to return angles, the spread over repeats and the seeds as well.

    Returns
    -------
    distance : float
        In [0, 1].
    details : SubspaceDistance
        Only with ``return_details=True``.

    Raises
    ------
    ValueError
        If a parameter is out of its range, or rows are too few or do not fit each other.

    See Also
    --------
    GSDScorer : The distance with a guarantee, at one price for any number of public sets.
    select_public : A private choice among public sets.

    Notes
    -----
    Nothing here is private: there is no noise, and so there is no epsilon to state.

    Gradients are never formed: angles follow from their inner products, which for a linear
    model are ``<x, x'> <r, r'>`` with residuals ``r = 1 / c - onehot(y)`` of c classes, and for a
    module sums of such terms over its layers. All inner products are kept, 8 bytes for each
    pair of rows that are compared.

    Two random subspaces of many dimensions are at a distance near 1, and two samples of the same
    rows are not at 0: compare distances with that of held-out rows, and with their spread. The
    distance says which directions gradients have, and not whether public data help at
    all. It was wrong on MNIST for :class:`GEPClassifier`, and mostly right elsewhere:
    ``benchmarks/pages/choosing_public_rows.md`` has the accuracies.

    References
    ----------
    Gu, Kamath, Wu. "Choosing public datasets for private machine learning via gradient
    subspace distance". 2023, Algorithm 1.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from dpsubspace import PrivacyWarning
    >>> from dpsubspace.public_data import gradient_subspace_distance
    >>> warnings.simplefilter("ignore", PrivacyWarning)  # which says that this is not private
    >>> rng = np.random.default_rng(0)
    >>> scales = np.linspace(3, 0.1, 30) ** 2
    >>> private, near, far = scales * rng.normal(size=(3, 500, 30))
    >>> options = {"n_components": 4, "n_classes": 2, "random_state": 0}
    >>> close = gradient_subspace_distance(private, near, **options)
    >>> close < gradient_subspace_distance(private, far[:, ::-1], **options)
    True
    """
    k = check_integer("n_components", n_components, low=1)
    c = check_integer("n_classes", n_classes, low=2)
    n_repeats = check_integer("n_repeats", n_repeats, low=1)
    most = check_integer("max_samples", max_samples, low=1)
    if params is not None and (module is None or isinstance(module, str)):
        raise ValueError(
            f"`params` are weights of a module of your own, and module={module!r} has none: pass"
            " that module, or leave `params` out."
        )
    rng = as_noise(random_state).public()
    both = _both(X_private, X_public, images=module is not None)
    sets = [X[sampled(len(X), most, rng)] for X in both]
    if module is None:
        inner = _linear_products(sets, c)
    else:
        inner = _module_products(sets, c, module, params)
    warn_not_private("a gradient subspace distance")
    seeds = rng.integers(2**31, size=n_repeats)
    found = np.array([_cosines(inner(int(seed)), k, len(sets[0])) for seed in seeds])
    distances = np.array([share_apart(each, k) for each in found])
    mean = float(distances.mean())
    spread = float(distances.std())
    details = SubspaceDistance(
        mean, mean * math.sqrt(k), np.arccos(found), distances, spread, seeds
    )
    return (mean, details) if return_details else mean


def _both(X_private: Any, X_public: Any, *, images: bool) -> tuple[np.ndarray, np.ndarray]:
    sets = []
    for name, rows in (("X_private", X_private), ("X_public", X_public)):
        options: dict[str, Any] = {"allow_nd": images, "accept_sparse": "csr"}
        rows = unwrapped(name, rows)
        refuse_collection(name, rows)
        try:
            dtypes: Any = [np.float64, np.float32]
            sets.append(check_array(rows, dtype=dtypes, input_name=name, **options))
        except (TypeError, ValueError, OverflowError) as error:
            failure = f"`{name}`: {renamed(without_values(rows, str(error)), X=name)}"
        else:
            continue
        raise ValueError(failure)  # out here, so that no chained exception carries an entry
    private, public = (native(np.asarray(x.toarray() if sparse.issparse(x) else x)) for x in sets)
    if private.shape[1:] != public.shape[1:]:
        raise ValueError(
            f"a row of `X_private` has the shape {private.shape[1:]} and one of `X_public`"
            f" {public.shape[1:]}: bring public rows to the shape of the private ones."
        )
    if not images:  # data frames must agree in the names of their columns
        model = named("gradient_subspace_distance")
        validate_data(model, X_private, skip_check_array=True)
        validate_data(model, X_public, skip_check_array=True, reset=False)
    return private, public


def _linear_products(sets: Sequence[np.ndarray], c: int) -> Callable[[int], np.ndarray]:
    """Return a function from the seed of labels to inner products of gradients.

    The gradients are those of a linear model at zero weights, in units of the largest entry of a
    set, which does not change directions.
    """
    wide = [X.astype(np.float64) for X in sets]
    rows = np.concatenate([X / (np.abs(X).max(initial=0.0) or 1.0) for X in wide])
    products = rows @ rows.T

    def of(seed: int) -> np.ndarray:
        labels = random_labels(seed, c, len(rows))
        return products * ((labels[:, None] == labels[None, :]) - 1 / c)

    return of


def _module_products(
    sets: Sequence[np.ndarray], c: int, module: Any, params: Any
) -> Callable[[int], np.ndarray]:
    rows, shape = np.concatenate([X.reshape(len(X), -1) for X in sets]), sets[0].shape[1:]
    built_in = isinstance(module, str)
    fixed = None if built_in else probe_gradients(module, shape, c, 0, params=params)

    def of(seed: int) -> np.ndarray:
        found = fixed or probe_gradients(module, shape, c, seed, params=params)
        return found.of_rows(rows, random_labels(seed, c, len(rows))).gram()

    return of


def _cosines(products: np.ndarray, k: int, n_private: int) -> np.ndarray:
    private, public = slice(0, n_private), slice(n_private, None)
    weights = []
    for name, own in (("X_private", private), ("X_public", public)):
        weights.append(leading_weights(products[own, own], k))
        if len(weights[-1]) < k:
            raise ValueError(
                f"gradients of `{name}` span {len(weights[-1])} directions, and"
                f" `n_components`={k} are compared: pass more rows, or use fewer components."
            )
    return cosines(weights[0] @ products[private, public] @ weights[1].T)


@public
@estimator
class GSDScorer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):
    """Rank public data sets by their likeness to private rows, by a subspace of gradients.

    ``fit`` releases the directions in which gradients of private rows mostly lie, with a
    guarantee. What is asked afterwards costs nothing: ``distance`` is the gradient subspace
    distance of a public set, ``rank`` compares many, and ``transform`` says of each public row
    how much of its gradient lies along each private direction, to pick rows.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Number of directions. "auto" takes those of the first 16, or of half as many as there are
        columns, that stand out of the noise.
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`, in (0, 1) and far below
        ``1 / n_samples``. "auto" is ``min(1e-5, 1 / (10 n_samples))``, and inside a
        :class:`PrivacyLedger` it is the ledger's delta.
    neighboring_relation : {"zero_out", "replace_one"}, default="zero_out"
        What the guarantee hides. "zero_out" hides whether a row was used; "replace_one" hides what
        a row says, and needs up to twice the noise. The number of rows is public in both.
    mechanism : {"auto", "adaptive", "gaussian", "power", "bingham", "matrix_bingham"}, \
            default="auto"
        How directions are released, as in :class:`DPPCA`.
    module : None, "cnn" or torch.nn.Module, default=None
        Model that has the gradients. None is a linear model at zero weights. "cnn" is the small
        network of the paper for images, two convolutions and a linear layer with random
        weights; `input_shape` must be that of an image. A module has its gradients at its own
        weights, in evaluation mode, row by row, and needs `X_public` in ``fit``.
    input_shape : tuple of int or None, default=None
        Shape of one row as the module sees it, for example ``(1, 28, 28)``. None leaves rows flat.
    n_classes : int, default=10
        Number of labels to draw from, which is also the number of scores of a module (one score
        for two classes). Neither this nor `input_shape` is used without a `module`.
    device : {"cpu", "cuda", "auto"}, "cuda:<index>" or torch.device, default="cpu"
        Where to compute. "cpu" uses NumPy, and torch where there is a module; everything else uses
        torch, with the same arithmetic and noise. "auto" takes a GPU if there is one. Arrays that
        come out are NumPy arrays in all cases.
    random_state : int, RandomState instance or None, default=None
        None draws the noise from the operating system's cryptographic generator. Anything else is
        reproducible, and whoever knows it can remove the noise: leave it None for everything that
        others will see.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features)
        Orthonormal directions of features, that of the largest energy first. Each stands for one
        direction of gradients for every contrast of labels.
    energies_ : ndarray of shape (n_components_,)
        Released share of the energy of gradients along each.
    span_energy_ : float
        Released share of the energy of gradients in the space that was searched: about 1 without
        public rows, and with them what lies within their span.
    n_components_ : int
        Number of directions. If "auto" finds only one or two, noise hides the others, and
        distances say little; no warning tells.
    within_public_span_ : bool
        Whether directions were searched for in the span of public rows only.
    privacy_ : PrivacyGuarantee
        What the fit cost, and what its guarantee assumes. Set just before the first release: a
        fit that fails later leaves it, since the budget is gone.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    select_public : Chooses among public sets, at a tenth of the price.
    gradient_subspace_distance : The same distance without any privacy.
    private_projection_error : What directions of a public set miss of private gradients.
    DPPCA : Has the mechanisms, for rows in place of gradients.

    Notes
    -----
    What is released is the second moment of unit gradients, by the releases of :class:`DPPCA` with
    ``centered=False`` and 1 as the bound on norms; see there for the sums, and how far one row
    moves them. With "auto" and "adaptive" all of them are Gaussian mechanisms: sums of
    gradients for their mean (moved by at most 1, or 2 with ``"replace_one"``, and then by at most
    twice a released radius), counts of distances from it (by 1), and the second moment about it
    (by ``r^2`` or ``sqrt(2) r^2`` in Frobenius norm). The unit is one row. Public are the
    numbers of rows and features, `X_public`, the module and all parameters but `random_state`.

    Every gradient is divided by its norm, so that each row counts the same and a long one no more
    than others. For a linear model ``module=None`` the gradient of a row x is ``x r^T`` with the
    residual r of its scores. Averaged over random labels at zero weights, leading directions of
    such gradients are leading directions of unit rows about zero, one for each contrast of
    labels, so that `y` is not needed. Gradients of a module are taken at its own weights, at
    labels that are drawn at random once, and from inner products layer by layer.

    With `X_public`, directions are looked for in the span of the leading directions of all public
    sets, of at most 200 dimensions. There is less noise in so few, and a module needs it;
    what gradients have outside is lost, of which ``span_energy_`` tells. Distances are those
    *within the public span*, also to sets that were not there in ``fit``.

    The rows that are given to ``transform`` and ``distance`` are taken to be public. ``transform``
    of private rows is as private as they are. So is ``score`` on the validation folds of a
    :class:`~sklearn.model_selection.GridSearchCV` over private rows: what it chooses leaks,
    and no ``privacy_`` counts it.

    Noise makes distances larger than they are, all of them: compare candidates with each other,
    and do not read the number itself. If columns are in different units, the one with the largest
    numbers decides alone: scale first. Behind a scaler in a ``pipe``, scale candidates too:
    ``pipe[-1].distance(pipe[:-1].transform(X_public))``.

    References
    ----------
    Gu, Kamath, Wu. "Choosing public datasets for private machine learning via gradient
    subspace distance". 2023, Algorithm 3.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.public_data import GSDScorer
    >>> rng = np.random.default_rng(0)
    >>> scales = np.linspace(3, 0.1, 30) ** 2
    >>> private, near, far = scales * rng.normal(size=(3, 2000, 30))
    >>> candidates = {"far": far[:, ::-1], "near": near}
    >>> scorer = GSDScorer(n_components=4, random_state=0).fit(private, X_public=candidates)
    >>> list(scorer.rank(candidates))
    ['near', 'far']
    """

    _canary = "directions"

    n_components: int | str = "auto"
    epsilon: float | None = 1.0
    delta: float | str = "auto"
    neighboring_relation: str = "zero_out"
    mechanism: str = "auto"
    module: Any = None
    input_shape: tuple[int, ...] | None = None
    n_classes: int = 10
    device: Any = "cpu"
    random_state: int | np.random.RandomState | None = None

    # Public data are requested once, here, so that no user has to route them.
    __metadata_request__fit: ClassVar = {"X_public": True}

    _saved: ClassVar = {
        **FEATURES,
        "within_public_span_": Flag(),
        "_space": SPACE_FORM,
        "_directions": NumberArray(("components", "width")),
        "energies_": NumberArray(("components",), low=0),
        "span_energy_": Number(0),
        "n_components_": Whole(axis="components"),
        "components_": NumberArray(("components", "columns")),
    }

    # Public surface -------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, X_public: Any = None) -> Self:
        """Release the directions in which gradients of private rows mostly lie.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows; dense ones for a module.
        y : None
            Ignored: gradients are taken at random labels, or averaged over them.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.
        X_public : array-like of shape (n_public, n_features), tuple or dict of them, optional
            Public sets whose gradients span the space to look in; a dict has them by name, as
            ``rank`` takes them.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has
            been released then and no privacy spent.
        """
        check_order(X, y=y)  # which a Pipeline passes to its next step
        return self._fit_by(self._plan(), X, groups=groups, X_public=X_public)

    def transform(self, X: Any) -> np.ndarray:
        """Return how much of the gradient of each row lies along each private direction.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows: public ones, to pick those that are like the private.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
            Shares of the energy of a gradient, averaged over all labels, from 0 to 1. The sum of a
            row tells how much of it private directions hold.
        """
        check_is_fitted(self, "components_")
        X = check_rows(self, X, reset=False)
        with plain_arithmetic(None):  # warnings would reveal something about rows
            return self._space.shares(X, self._directions)

    def distance(self, X_public: Any, y_public: Any = None) -> float:
        """Return the gradient subspace distance of a public set; it costs nothing.

        Parameters
        ----------
        X_public : array-like of shape (n_public, n_features) or tuple of them
            Public rows; a tuple of sets stands for their union.
        y_public : None
            Ignored: gradients are taken at random labels, or averaged over them.

        Returns
        -------
        float
            From 0, where the leading directions of both are the same, to 1, where they have
            nothing in common. Noise makes it larger.
        """
        check_is_fitted(self, "components_")
        sets = X_public if isinstance(X_public, tuple) else (X_public,)
        if not sets:
            raise ValueError("`X_public` is an empty tuple: pass public rows.")
        checked = [check_rows(self, each, reset=False) for each in sets]
        rows = np.concatenate([x.toarray() if sparse.issparse(x) else x for x in checked])
        found = self._space.leading(rows, self.n_components_)
        if len(found) < self.n_components_:
            raise ValueError(
                f"`X_public` spans {len(found)} directions, and {self.n_components_} are"
                " compared: pass more rows, or fit with a smaller `n_components`."
            )
        return share_apart(cosines(self._directions @ found.T), self.n_components_)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the distance of a public set, as a search of scikit-learn takes it.

        On private rows it is not private, and nobody counts it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public rows.
        y : None
            Ignored.

        Returns
        -------
        float
            In [-1, 0]; larger is nearer.
        """
        return -self.distance(X)

    def rank(self, candidates: Mapping[Any, Any]) -> dict[Any, float]:
        """Return the distances of many public sets, the nearest first; they cost nothing.

        Parameters
        ----------
        candidates : dict of array-like of shape (n_public, n_features)
            Public rows by name. Stack the sets of a union with ``numpy.concatenate``.

        Returns
        -------
        dict of float
            Distance by name. :class:`GSDRankingDisplay` draws it.
        """
        check_is_fitted(self, "components_")
        if not isinstance(candidates, Mapping):
            raise ValueError(
                "`candidates` must be a dict of public rows by name, such as {'hospital': rows_1,"
                f" 'survey': rows_2}}, got {type(candidates).__name__}."
            )
        distances = {name: self.distance(rows) for name, rows in candidates.items()}
        return dict(sorted(distances.items(), key=lambda item: item[1]))

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    # The fit --------------------------------------------------------------------------------

    def _check(self, plan: GradientPlan, given: FitData) -> CheckedFit:
        form = self.module is None
        X = check_rows(self, given.X, reset=True, accept_sparse=form, groups=given.groups)
        records = check_groups(given.groups, X)
        refuse_groups(self.module, records)
        sets = self._sets(X, given.X_public, records)
        refuse_private(given, X, sets)
        usual = COMPONENTS if self.module is not None else few(COMPONENTS, X.shape[1])
        wanted = int(plan.n_components or usual)
        space = self._space_of(X.shape[1], sets, wanted)
        most = min(records.n, space.width)
        if plan.n_components is not None and wanted > most:
            raise ValueError(
                f"`n_components`={wanted} is more than the {most} directions that {records.n}"
                f" {records.unit}s have in a space of {space.width} dimensions: use at most as"
                " many."
            )
        if not plan.target.private:
            _warn_of_none()
        found_in, k = space if sets else None, None if plan.n_components is None else wanted
        plan = replace(plan, n_components=min(wanted, most), unit=not sets, space=found_in)
        known = (f"{sum(map(len, sets))} rows of X_public",) if sets else ()
        data = Data(X, None, 1, records)
        plan.check_size(data)
        return CheckedFit(plan, data, known, (space, k, bool(sets)))

    def _warn_before_fit(
        self, plan: GradientPlan, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        warn_of_spectrum(plan, budget, sizes, guarantee.unit)

    def _sets(self, X: Any, X_public: Any, records: Records) -> tuple[np.ndarray, ...]:
        if isinstance(X_public, Mapping):
            return tuple(check_candidates(self, X, X_public, "X_public").values())
        return check_public_rows(self, X, X_public, records)

    def _store(self, found: FittedSpectrum, about: tuple[GradientSpace, int | None, bool]) -> None:
        (space, k, self.within_public_span_), spectrum = about, found.spectrum
        # To compare directions that do not stand out of the noise would be to compare noise.
        k = max(1, int(np.count_nonzero(spectrum.energies))) if k is None else k
        # Contiguous, as in saved files: products with other memory layouts round differently.
        self._space, self._directions = space, np.ascontiguousarray(spectrum.components[:k])
        self.energies_: np.ndarray = spectrum.energies[:k]
        self.span_energy_: float = min(1.0, spectrum.total)
        self.n_components_: int = len(self._directions)
        self.components_: np.ndarray = space.in_features(self._directions)  # last

    def _warn_after_fit(self, found: FittedSpectrum, budget: Budget, checked: CheckedFit) -> None:
        if self.n_components_ <= _FEW and self.n_components_ < checked.plan.n_components:
            _warn_of_few(self.n_components_, checked.plan.n_components, self.privacy_.epsilon)

    def _space_of(self, n_features: int, sets: tuple[np.ndarray, ...], k: int) -> GradientSpace:
        n_classes = check_integer("n_classes", self.n_classes, low=2)
        if self.module is not None and not sets:
            raise ValueError(
                "a module has too many gradients to be searched without public rows: pass the"
                " candidates as `X_public`, or leave out `module`."
            )
        shape = row_shape(self.input_shape, n_features)
        seed = int(as_noise(self.random_state).public().integers(2**31))
        space = gradient_space(self.module, shape, n_classes, seed, self.device)
        if not sets:
            return space
        spanned, counts = space.spanned(sets, k)
        if not any(counts):
            raise ValueError("gradients of `X_public` are all zero: they span nothing to look in.")
        return spanned.joined()

    # Parameters -----------------------------------------------------------------------------

    def _plan(self) -> GradientPlan:
        check_choice("mechanism", self.mechanism, ["auto", *MECHANISMS])
        pure = self.mechanism != "auto" and MECHANISMS[self.mechanism].pure
        k = None
        if not (isinstance(self.n_components, str) and self.n_components == "auto"):
            k = check_integer("n_components", self.n_components, low=1)
        if pure and not k:
            raise ValueError(
                f"mechanism={self.mechanism!r} draws a given number: give `n_components`, got"
                f" {shown(self.n_components)}."
            )
        return GradientPlan(
            target=checked_target(self, pure=pure),
            name=self.mechanism,
            n_components=k,
            centered=False,
            data_norm=1.0,
        )


def _warn_of_none() -> None:
    warn(
        "epsilon=inf: the gradient subspace of this fit is not private. Publish neither it nor what"
        " is chosen by it.",
        PrivacyWarning,
        about="GSDScorer without privacy",
    )


def _warn_of_few(n_left: int, n_wanted: int, epsilon: float) -> None:
    warn(
        f"the noise of a fit with epsilon={epsilon:g} has hidden all but {n_left} of {n_wanted}"
        " directions: most sets will be at about the same distance. More rows, fewer columns,"
        " public rows in the fit or a larger epsilon help.",
        PrivacyWarning,
        about=("directions", epsilon),
    )
