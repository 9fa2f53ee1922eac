"""Private diagnostics: the part of gradients that public directions miss, and spreads of rows."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpsubspace._core.accounting.budget import Target
from dpsubspace._core.accounting.guarantee import Released
from dpsubspace._core.fits.call import private_function
from dpsubspace._core.fits.estimator import FitData, run_privately
from dpsubspace._core.gradients.torch_rows import row_shape
from dpsubspace._core.ground.checks import check_integer, check_real, shown
from dpsubspace._core.plans.projection import ProjectionPlan, shares_along
from dpsubspace._core.plans.spread import SpreadPlan
from dpsubspace._core.public.gradient_spaces import GradientSpace
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.inputs import check_rows, named
from dpsubspace._core.rows.public import check_public_rows
from dpsubspace._core.rows.records import RowMap, check_groups
from dpsubspace._core.rows.same_rows import refuse_private
from dpsubspace._names import public
from dpsubspace.public_data._distances import gradient_space, refuse_groups

# Projection errors ------------------------------------------------------------------------------

# Largest number of directions if none is requested.
_MOST = 128

# Distance of the bound on the stable rank from its estimate, in standard deviations of the noise.
_MARGIN = 2.0


@public
class ProjectionError(NamedTuple):
    """Share of gradients that is lost in a projection on leading directions of public ones.

    All numbers are released or public, so that they can be published with what they cost.

    Parameters
    ----------
    n_components : ndarray of shape (n_errors,)
        Numbers of directions, in increasing order.
    error : ndarray of shape (n_errors,)
        Mean share of the squared norm of a gradient that lies outside of as many directions, from
        0 to 1.
    random : ndarray of shape (n_errors,)
        The same for random directions, in expectation: one minus their number over that of the
        dimensions.
    noise : ndarray of shape (n_errors,)
        Standard deviation of the noise in `error`; 0 without privacy.
    stable_rank : float
        Upper bound on the stable rank of the gradients, each divided by its norm. Noise makes it
        too small in one of 44 releases; inf where noise hides what it is read from.

    See Also
    --------
    private_projection_error : Returns one as the value of a release.
    ProjectionErrorDisplay : Draws one.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.public_data import private_projection_error
    >>> rng = np.random.default_rng(0)
    >>> rows = np.linspace(3, 0.1, 30) ** 2 * rng.normal(size=(2300, 30))
    >>> found = private_projection_error(rows[300:], rows[:300], random_state=0).value
    >>> found.n_components
    array([ 1,  2,  4,  8, 16, 30])
    """

    n_components: np.ndarray
    error: np.ndarray
    random: np.ndarray
    noise: np.ndarray
    stable_rank: float


@private_function
def private_projection_error(
    X: Any,
    X_public: Any,
    *,
    n_components: Any = "auto",
    module: Any = None,
    input_shape: tuple[int, ...] | None = None,
    n_classes: int = 10,
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> Released:
    """Release the share of private gradients that a projection on public directions loses.

    Methods that train on a few directions of public gradients, such as gradient embedding
    perturbation, lose what gradients have outside of these. Here that share is released for
    several numbers of directions, with the share that random directions would miss beside it.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Private rows; dense ones for a module.
    X_public : array-like of shape (n_public, n_features) or tuple of them
        Public rows, whose gradients give the directions. Several sets stand for their union.
    n_components : "auto" or array-like of int, default="auto"
        Numbers of directions. "auto" doubles them from 1 to 128, or to as many as there are.
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
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
        Inside of a :class:`PrivacyLedger` it must be given.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`, in (0, 1) and far below
        ``1 / n_samples``. "auto" is ``min(1e-5, 1 / (10 n_samples))``, and inside a
        :class:`PrivacyLedger` it is the ledger's delta.
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
    Released
        ``(value, privacy)``: a :class:`ProjectionError`, and the :class:`PrivacyGuarantee` of this
        call.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used; nothing has been
        released then and no privacy spent.

    See Also
    --------
    ProjectionErrorDisplay : Draws the errors; of public rows alone at no cost.
    GSDScorer : Directions of the private rows themselves.
    select_public : A private choice among public sets.

    Notes
    -----
    Released: for each number of directions, the sum over rows of the share of the squared norm of
    its gradient that lies along the directions which this number has beyond the one before. A row
    brings a vector of numbers from 0 on that add up to at most 1. The L2 norm of such a vector is
    at most 1, by which a row moves the sum when it becomes null (``"zero_out"``); two of
    them are at most sqrt(2) apart (``"replace_one"``), however many numbers of directions there
    are. Event: one Gaussian mechanism. Errors follow from the released numbers: they are cut to
    0 to 1, and none is larger than the one before. The unit is one row. Assumed public: the
    numbers of rows and features, `X_public`, the module and all parameters but `random_state`.

    For a linear model the share of a gradient is that of its row, at any weights and for any label,
    and directions of gradients are those of rows. What rows have in common counts as well: if a
    model subtracts a mean, as :class:`GEPClassifier` does, subtract that of the public rows from
    both before. The gradients of a module are taken at labels that are drawn at random, and the
    directions are those of at most 256 public rows.

    The stable rank of a matrix G of gradients, ``|G|_F^2 / |G|_2^2``, says how many directions
    they need at least. With gradients of norm 1 it is one over the largest eigenvalue of their
    mean second moment M, and that is at least ``u' M u`` for every unit vector u. For the public
    direction u this is the first released share; from it two standard deviations of the noise are
    subtracted. Where the first number of directions is k, it is their share over k.

    Public rows need no protection: with some of them as `X`, others as `X_public` and
    ``epsilon=float("inf")`` the same is computed exactly.

    References
    ----------
    Yu, Zhang, Chen, Liu. "Do not let privacy overbill utility: gradient embedding
    perturbation for private learning". ICLR 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace.public_data import private_projection_error
    >>> X, _ = load_digits(return_X_y=True)
    >>> found, guarantee = private_projection_error(
    ...     X[200:], X[:200], n_components=[1, 8, 32], random_state=0)
    >>> bool(abs(found.error[1] - 0.124) < 0.04), round(float(found.random[1]), 3)
    (True, 0.875)
    >>> guarantee.epsilon
    1.0
    """
    target = Target(epsilon, delta, neighboring_relation).checked()
    c = check_integer("n_classes", n_classes, low=2)
    model, rows = named("private_projection_error"), X
    X = check_rows(model, X, reset=True, accept_sparse=module is None, groups=groups)
    records = check_groups(groups, X)
    refuse_groups(module, records)
    if X_public is None:
        raise ValueError("`X_public` is None: pass the public rows that give the directions.")
    # A tuple, since nothing slices arguments of a function: as many rows as in `X` are fine.
    given = X_public if isinstance(X_public, tuple) else (X_public,)
    sets = check_public_rows(model, X, given, records)
    refuse_private(FitData(rows, X_public=X_public), X, sets)
    noise = as_noise(random_state)
    seed = int(noise.public().integers(2**31))
    space = gradient_space(module, row_shape(input_shape, X.shape[1]), c, seed)
    space, counts = spanned_by(np.concatenate(sets), space, n_components)
    plan = ProjectionPlan(target, space, counts, sum(map(len, sets)))
    (shares, scale), guarantee = run_privately(plan, X, records, X.shape[1], noise)
    return Released(errors_of(shares, scale, counts, space.dimension), guarantee)


def exact_errors(
    X: np.ndarray,
    X_public: np.ndarray,
    n_components: Any,
    *,
    module: Any,
    input_shape: tuple[int, ...] | None,
    n_classes: int,
    seed: int,
) -> ProjectionError:
    """Return errors of public rows `X` on directions of other public rows, without noise."""
    shape = row_shape(input_shape, X.shape[1])
    space = gradient_space(module, shape, n_classes, seed)
    space, counts = spanned_by(X_public, space, n_components)
    return errors_of(shares_along(X, space, counts).mean(axis=0), 0.0, counts, space.dimension)


def spanned_by(
    rows: np.ndarray, space: GradientSpace, n_components: Any
) -> tuple[GradientSpace, np.ndarray]:
    """Return the space of leading directions of public rows, and the requested numbers of them."""
    counts = _wanted(n_components)
    most = min(_MOST, space.dimension) if counts is None else int(counts[-1])
    spanned, (count,) = space.spanned([rows], most)
    if not count:
        raise ValueError("gradients of `X_public` are all zero, and give no directions.")
    if counts is None:
        counts = np.unique(np.append(2 ** np.arange(count.bit_length()), count))
        counts = counts[counts <= count]
    elif count < most:
        raise ValueError(
            f"gradients of `X_public` span {count} directions, and `n_components` asks for {most}:"
            " use fewer, or pass more public rows."
        )
    return spanned, counts


def _wanted(n_components: Any) -> np.ndarray | None:
    """Return numbers of directions in increasing order; None for "auto"."""
    if isinstance(n_components, str) and n_components == "auto":
        return None
    if isinstance(n_components, str) or not np.size(n_components):
        raise ValueError(
            f"`n_components` must be 'auto' or numbers of directions, got {shown(n_components)}."
        )
    given = np.ravel(np.asarray(n_components)).tolist()
    return np.unique([check_integer("n_components[...]", k, low=1) for k in given])


def errors_of(
    shares: np.ndarray, scale: float, counts: np.ndarray, dimension: int
) -> ProjectionError:
    """Return errors from the mean shares (q,) along the directions that each count adds."""
    held = np.maximum.accumulate(np.clip(np.cumsum(shares), 0.0, 1.0))
    largest = (float(shares[0]) - _MARGIN * scale) / int(counts[0])
    return ProjectionError(
        n_components=counts,
        error=1 - held,
        random=1 - counts / dimension,
        noise=scale * np.sqrt(np.arange(1, len(counts) + 1)),
        stable_rank=max(1.0, 1 / largest) if largest > 0 else math.inf,
    )


# Spreads ----------------------------------------------------------------------------------------


@public
class Spread(NamedTuple):
    """How far rows are from the origin, and how far from their mean.

    The noise of training is in proportion to the first without centring, and to the second with it.

    Parameters
    ----------
    bound : float
        Bound on the length of rows, which is public: 1 for rows that are divided by their length.
    mean_norm : float
        Distance of the mean from the origin.
    half_radius : float
        Distance from the mean that half of the rows are within.
    radius : float
        Distance from the mean that 95 % of the rows are within, and all of them without privacy.
        These rows are at most twice as far from each other.
    mean_error : float
        About how far noise has moved the mean from which `half_radius` and `radius` are measured.

    See Also
    --------
    private_spread : Returns one as the value of a release.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace.statistics import private_spread
    >>> X, _ = load_digits(return_X_y=True)
    >>> public = private_spread(X, epsilon=float("inf")).value
    >>> round(public.mean_norm, 2), round(public.half_radius, 2), round(public.radius, 2)
    (0.83, 0.56, 0.76)
    """

    bound: float
    mean_norm: float
    half_radius: float
    radius: float
    mean_error: float


@private_function
def private_spread(
    X: Any,
    *,
    row_norm: str | float = "l2",
    epsilon: float = 1.0,
    delta: float | str = "auto",
    neighboring_relation: str = "zero_out",
    random_state: int | np.random.RandomState | None = None,
    groups: Any = None,
) -> Released:
    """Release how far private rows are from the origin and from their mean.

    This tells whether a fit would gain by centring. The noise of :class:`DPSGDClassifier` is in
    proportion to the length of rows, and that of :class:`DPSGDFClassifier` to their distance from
    the mean. Centring helps if most rows are much nearer to their mean than to the origin.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Private rows. Sparse matrices stay sparse.
    row_norm : "l2" or float, default="l2"
        How the length of rows is bounded before. "l2" divides each row by its L2 norm. A number is
        a public bound on the L2 norm, to which longer rows are shrunk.
    epsilon : float, default=1.0
        Privacy budget for everything that is released, from 1e-4 to 1e6. Smaller is more private
        and less accurate. ``float("inf")`` is not private: no noise is added.
        Inside of a :class:`PrivacyLedger` it must be given.
    delta : float or "auto", default="auto"
        Small additive allowance of the guarantee beside `epsilon`, in (0, 1) and far below
        ``1 / n_samples``. "auto" is ``min(1e-5, 1 / (10 n_samples))``, and inside a
        :class:`PrivacyLedger` it is the ledger's delta.
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
    Released
        ``(value, privacy)``: a :class:`Spread`, and the :class:`PrivacyGuarantee` of this call.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used; nothing has been
        released then and no privacy spent.

    See Also
    --------
    private_mean : The mean itself, with less noise.
    DPSGDFClassifier : Has ``mean_``, ``mean_error_`` and ``radius_`` after a fit, which tell the
        same.

    Notes
    -----
    Released, with R the bound on the length of rows: their sum, of sensitivity R
    (``"zero_out"``) or 2 R (``"replace_one"``); six counts of rows that are farther from the noisy
    mean than some radii, of sensitivity 1; the sum of the differences from it, shortened to twice
    the radius r that the counts find, of sensitivity 2 r or 4 r and never of more than R or 2 R;
    and twice six counts of rows that are farther from the second mean. Event: Gaussian
    mechanisms, calibrated together. The unit is one row. Assumed public: the numbers of rows and
    features and all parameters but `random_state`.

    Radii are 2 R over powers of ``2^(1/4)``, the first that is large enough, so that they are up to
    19 % too large. They err to the larger side by noise as well, and are 2 R where it hides the
    rows. The error of the mean is part of them: where `mean_error` is about `half_radius`, the
    rows are nearer to their mean than can be told.

    These are the numbers of a table of Sun, Suresh and Menon (2024): without privacy, distances
    are exact. Public rows need no protection: ``epsilon=float("inf")`` costs them nothing.

    References
    ----------
    Sun, Suresh, Menon. "The importance of feature preprocessing for differentially private
    linear optimization". ICLR 2024, Table 2.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsubspace.statistics import private_spread
    >>> rows = 100 + np.random.default_rng(0).normal(size=(20000, 10))
    >>> spread, guarantee = private_spread(rows, random_state=0)
    >>> bool(spread.mean_norm > 0.99), bool(spread.half_radius < 0.02)
    (True, True)
    >>> guarantee.epsilon
    1.0
    """
    target = Target(epsilon, delta, neighboring_relation).checked()
    row_map = RowMap(norm="l2")
    if not (isinstance(row_norm, str) and row_norm == "l2"):
        data_norm = check_real("row_norm", row_norm, low=1e-50, high=1e50)
        row_map = RowMap(norm="clip", data_norm=data_norm)
    X = check_rows(named("private_spread"), X, reset=True, groups=groups)
    records = check_groups(groups, X)
    plan = SpreadPlan(target, row_map)
    found, guarantee = run_privately(plan, X, records, X.shape[1], as_noise(random_state))
    return Released(Spread(*found), guarantee)
