"""Private principal component analysis.

Where to check the privacy claim: ``fit`` runs
:func:`~dpsubspace._core.fits.estimator.fit_privately` and in it
:class:`~dpsubspace._core.plans.spectrum.SpectralPlan`, whose ``run`` is the whole fit.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.accounting.budget import Budget, Sizes
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.estimator import CheckedFit, FitData, PrivateEstimator, checked_target
from dpsubspace._core.fits.outputs import by_blocks
from dpsubspace._core.fits.saved import FEATURES
from dpsubspace._core.ground.arrays import plain_arithmetic, products_by_row
from dpsubspace._core.ground.checks import (
    check_bool,
    check_choice,
    check_integer,
    check_real,
    shown,
)
from dpsubspace._core.ground.forms import Number, NumberArray, Whole
from dpsubspace._core.plans.spectrum import FittedSpectrum, SpectralPlan, warn_of_spectrum
from dpsubspace._core.rows.inputs import check_rows
from dpsubspace._core.rows.public import Data, PublicRows, check_public_rows
from dpsubspace._core.rows.records import check_groups, check_order
from dpsubspace._core.statistics.moments import MECHANISMS
from dpsubspace._names import public


@public
class DPPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):
    """Differentially private principal component analysis.

    Finds the directions in which private rows vary most. By default a noisy mean is subtracted, and
    rows far from it are shortened to a noisy radius, so that outliers need no extra noise.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of components. A number in (0, 1) keeps as few as explain that share of the released
        variance; if those that stand out of the noise explain less, these are kept, with a
        warning. None keeps ``min(n_samples, n_features)``. With "adaptive" and "gaussian", which
        release all directions at once, any number costs the same.
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
        "adaptive" shifts rows by a private mean, clips them to a private radius and takes the
        eigenvectors of their noisy second moment (to which the mean is added back where
        ``centered=False``). "gaussian" takes those of the noisy second moment of rows clipped to
        `data_norm` (Analyze Gauss). "power" finds few components of many columns by power
        iteration, without a square matrix. "bingham" draws one direction after another, each paid
        for, so that few should be asked for, and "matrix_bingham" all of them at the cost of one,
        as a subspace whose basis has no meaning of its own. Both take ``delta=0`` too, pure
        differential privacy, and need ``centered=False`` and a public `data_norm`. "auto" is
        "adaptive" up to 4,096 columns and "power" beyond. With ``epsilon=float("inf")`` "adaptive"
        and "gaussian" are one: nothing is clipped.
    centered : bool, default=True
        Whether second moments are those of rows less their private mean, as in scikit-learn, or of
        rows as they are, which is the mean of ``x x^T``.
    data_norm : float or None, default=None
        Public bound on the L2 norm of rows; longer private rows are shrunk to it. None finds a
        coarse bound from noisy counts, which cost a part of the budget; public rows do not tell it.
    whiten : bool, default=False
        Whether ``transform`` divides by the released standard deviations.
    microbatch_size : int or None, default=None
        Number of rows to have in memory at once; only memory and time depend on it. None leaves it
        to the device. Lower it where memory runs out.
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
        Orthonormal directions, that of the largest variance first, the largest entry of
        each positive.
    explained_variance_ : ndarray of shape (n_components_,)
        Variance along each, less what noise adds to it; 0 where noise hides it. It is about right
        for normally distributed rows, and too low for heavy tails.
    explained_variance_ratio_ : ndarray of shape (n_components_,)
        Share of the released total variance.
    mean_ : ndarray of shape (n_features,)
        Released mean of the rows, those above `data_norm` clipped, shrunk towards zero by the
        estimator of James and Stein; zeros where ``centered=False``.
    n_components_ : int
        Number of components.
    noise_variance_ : float
        Mean of the variance in all other directions.
    data_norm_ : float
        Bound on row norms, given or released.
    n_samples_ : int
        Number of rows.
    privacy_ : PrivacyGuarantee
        What the fit cost, and what its guarantee assumes. Set just before the first release: a
        fit that fails later leaves it, since the budget is gone.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where `X` has names that are strings.

    See Also
    --------
    PrivacyLedger : Adds up the cost of a Pipeline.

    Notes
    -----
    What is released, in the order in which ``privacy_`` lists it, for rows shortened to the bound c
    (`data_norm`, or released) and, about their mean, to the radius r:

    - where ``data_norm=None``, twenty times the counts of row norms in some cells; one row moves
      them by 1 in L2 norm (``"zero_out"``) or by sqrt(2) (``"replace_one"``);
    - with "gaussian", the sum of the rows for their mean, which one row moves by c or 2c (not with
      ``centered=False``);
    - with "adaptive" and "power", the sum of the rows near a first mean (by at most twice a
      released radius, or double that), the sum of all rows for that first mean (by c or 2c), three
      times six counts of distances from a mean (by 1), and the sum of squared distances, cut off
      at a released bound B (by B^2);
    - the second moment (by ``r^2`` or ``sqrt(2) r^2`` in Frobenius norm, whatever the number of
      components; r is c with "gaussian"). "power" releases two to six products of it with a basis
      instead, which move by no more, and the moment within the subspace. "bingham" draws directions
      at random, at a price for each, and releases what lies along them with Laplace noise.

    "matrix_bingham" draws their subspace at once, at the price of one direction. The draw takes
    long, with no limit, where more directions than are asked for are about as strong as each other
    and far above the rest: to give up would tell something of the rows. All but what these two do
    are Gaussian mechanisms, calibrated together and exactly; together they never cost more than
    `epsilon`. The unit is one row. Public are the numbers of rows and
    features, `data_norm`, `X_public` and all parameters but `random_state`.

    Clipping to a radius near the shortest rows keeps directions and forgets lengths, as
    spherical principal components do: for rows that are spread alike in all directions from
    their mean but for scale, the components are the same. Variances are computed back from
    those of directions as if rows were normal, and scaled to the released mean square
    distance, in which rows beyond twice the ninth decile of distances count as at it.

    ``X_public`` rows are mapped alike. Their second moment is public, and is combined
    with the released one. They do not tell `data_norm`. ``epsilon=float("inf")`` clips nothing
    but rows above `data_norm`. ``transform`` releases nothing: coordinates of private
    rows are as private as the rows.

    References
    ----------
    Dwork, Talwar, Thakurta, Zhang. "Analyze Gauss: optimal bounds for privacy-preserving
    principal component analysis". STOC 2014.

    Chaudhuri, Sarwate, Sinha. "A near-optimal algorithm for differentially-private
    principal components". JMLR 14, 2013.

    Hardt, Price. "The noisy power method". NeurIPS 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import DPPCA
    >>> X, _ = load_digits(return_X_y=True)
    >>> pca = DPPCA(n_components=8, epsilon=3.0, random_state=0).fit(X)
    >>> pca.transform(X).shape
    (1797, 8)
    >>> bool(pca.explained_variance_ratio_.sum() > 0.5)
    True
    """

    _canary = "components"
    _takes_collections = True

    # Public data are requested once, here, so that no user has to route them.
    __metadata_request__fit: ClassVar = {"X_public": True}

    # Set by `fit`.
    mean_: np.ndarray
    explained_variance_: np.ndarray
    explained_variance_ratio_: np.ndarray
    noise_variance_: float
    components_: np.ndarray

    _saved: ClassVar = {
        **FEATURES,
        "n_components_": Whole(axis="components"),
        "n_samples_": Whole(),
        "data_norm_": Number(0),
        "mean_": NumberArray(("features",)),
        "explained_variance_": NumberArray(("components",), low=0),
        "explained_variance_ratio_": NumberArray(("components",), low=0),
        "noise_variance_": Number(0),
        "_hidden_variance": Number(0),
        "components_": NumberArray(("components", "features")),
    }

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        mechanism: str = "auto",
        centered: bool = True,
        data_norm: float | None = None,
        whiten: bool = False,
        microbatch_size: int | None = None,
        device: Any = "cpu",
        random_state: int | np.random.RandomState | None = None,
    ):
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.neighboring_relation = neighboring_relation
        self.mechanism = mechanism
        self.centered = centered
        self.data_norm = data_norm
        self.whiten = whiten
        self.microbatch_size = microbatch_size
        self.device = device
        self.random_state = random_state

    # Public surface -------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, X_public: Any = None) -> Self:
        """Find the principal components of private rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Private rows; a memory map of float32 or float64 is read chunk by chunk and not
            copied. Sparse matrices are used in CSR form.
            Rows of Dask arrays and data frames stay on the workers of a cluster. Those of a dataset
            of PyArrow are read from its files in each pass.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,), optional
            Who each row belongs to, in numbers or text. All rows of one person are then protected
            together: the unit of the guarantee is the person, and the number of persons takes the
            place of the number of rows in everything that follows from it. A person's rows count
            as one row: each of ten rows counts for a tenth. None protects single rows.
        X_public : array-like of shape (n_public, n_features) or tuple of them, optional
            Public rows.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has
            been released then and no privacy spent.
        MemoryError
            If the mechanism needs more memory than the machine has; the message says how much,
            and which mechanism does not. Nothing has been released then.
        """
        check_order(X, y=y)  # which a Pipeline passes to its next step
        return self._fit_by(self._plan(), X, groups=groups, X_public=X_public)

    @by_blocks
    def transform(self, X: Any) -> np.ndarray:
        """Return the coordinates of rows along the components.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Of private rows they are private: nothing is released but the components.
        """
        check_is_fitted(self, "components_")
        X = check_rows(self, X, reset=False)
        axes = self._axes(X.dtype)
        with plain_arithmetic(None):  # warnings would reveal something about rows
            # A private step after this may count rows: no result may depend on the row's place.
            coordinates = np.ascontiguousarray(products_by_row(X, axes))
            return coordinates - self.mean_.astype(X.dtype) @ axes

    @by_blocks
    def inverse_transform(self, X: Any) -> np.ndarray:
        """Return the rows that have given coordinates.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Coordinates, as ``transform`` returns them.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows in the space of the components, through ``mean_``.
        """
        check_is_fitted(self, "components_")
        X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.n_components_:
            raise ValueError(
                f"`X` must have a row of {self.n_components_} coordinates for each record, got"
                f" {X.shape[1] if X.ndim == 2 else f'an array with {X.ndim} dimensions'}."
            )
        scale = self._scale()[:, None] if self.whiten else 1.0
        return X @ (scale * self.components_) + self.mean_

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # The fit --------------------------------------------------------------------------------

    def _check(self, plan: SpectralPlan, given: FitData) -> CheckedFit:
        X = check_rows(self, given.X, reset=True, groups=given.groups)
        records = check_groups(given.groups, X)
        public = PublicRows.of(check_public_rows(self, X, given.X_public, records), None)
        known = [] if plan.data_norm is None else [f"bound on row norms ({plan.data_norm:g})"]
        known += [] if public is None else [public.assumption]
        data = Data(X, None, 1, records, public)
        plan.check_size(data)
        return CheckedFit(plan, data, tuple(known), plan)

    def _warn_before_fit(
        self, plan: SpectralPlan, guarantee: PrivacyGuarantee, budget: Budget, sizes: Sizes
    ) -> None:
        warn_of_spectrum(plan, budget, sizes, guarantee.unit)

    def _store(self, found: FittedSpectrum, plan: SpectralPlan) -> None:
        spectrum, unit, mean = found.spectrum, found.unit, found.mean
        k = plan.n_kept(spectrum)
        d = spectrum.components.shape[1]
        components, energies = spectrum.components[:k], spectrum.energies[:k]
        largest = np.abs(components).argmax(axis=1)
        signs = np.sign(components[np.arange(k), largest])
        self.n_components_ = k
        self.n_samples_ = found.n_samples
        self.data_norm_ = unit
        self.mean_ = np.zeros(d) if mean is None else unit * mean
        self.explained_variance_ = unit**2 * energies
        total = spectrum.total if spectrum.total > 0 else 1.0
        self.explained_variance_ratio_ = energies / total
        left = max(0.0, spectrum.total - float(energies.sum()))
        self.noise_variance_ = unit**2 * left / (d - k) if k < d else 0.0
        hidden = d - int(np.count_nonzero(energies))  # also among kept components
        self._hidden_variance = unit**2 * left / hidden if hidden else 0.0
        self.components_ = components * np.where(signs == 0, 1.0, signs)[:, None]  # last

    def _axes(self, dtype: np.dtype) -> np.ndarray:
        axes = self.components_.T / self._scale() if self.whiten else self.components_.T
        return axes.astype(dtype)

    def _scale(self) -> np.ndarray:
        """Return the standard deviation along each component; where noise hides it, of the rest."""
        variances, hidden = self.explained_variance_, self._hidden_variance
        return np.sqrt(np.where(variances > 0, variances, hidden if hidden > 0 else 1.0))

    # Parameters -----------------------------------------------------------------------------

    def _plan(self) -> SpectralPlan:
        choices = ["auto", *MECHANISMS]
        check_choice("mechanism", self.mechanism, choices)
        chosen = MECHANISMS.get(self.mechanism)
        pure = chosen is not None and chosen.pure
        if self.delta == 0 and not pure:
            raise ValueError(
                "`delta`=0 needs mechanism='bingham' or 'matrix_bingham', centered=False and a"
                f" public `data_norm`, got mechanism={self.mechanism!r}. Or use delta='auto'."
            )
        target = checked_target(self, pure=pure)
        check_bool("centered", self.centered)
        check_bool("whiten", self.whiten)
        if chosen is not None and chosen.pure and (self.centered or self.data_norm is None):
            raise ValueError(
                f"mechanism={self.mechanism!r} spends no delta, which a private mean and private"
                f" bounds would: it needs centered=False, got {shown(self.centered)}, and a public"
                f" `data_norm`, got {shown(self.data_norm)}. Or use mechanism='adaptive'."
            )
        if self.data_norm is not None:
            check_real("data_norm", self.data_norm, low=1e-50, high=1e50)
        if self.microbatch_size is not None:
            check_integer("microbatch_size", self.microbatch_size, low=1)
        k = self.n_components
        if isinstance(k, (Integral, bool)):
            check_integer("n_components", k, low=1)
        elif k is not None:
            hint = "Or use a number of components, or None for all."
            check_real("n_components", k, low=0, high=1, hint=hint)
        return SpectralPlan(
            target=target,
            name=self.mechanism,
            n_components=self.n_components,
            centered=self.centered,
            data_norm=self.data_norm,
            microbatch_size=self.microbatch_size,
        )
