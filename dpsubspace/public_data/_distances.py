"""The model whose gradients are compared between rows, and distances that are not private."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from dpsubspace._core.gradients.losses import CLASSIFIER_LOSSES, LogLoss
from dpsubspace._core.gradients.modules import ModuleGradients
from dpsubspace._core.gradients.reach import limits_of
from dpsubspace._core.gradients.torch_rows import torch_package
from dpsubspace._core.gradients.vectorised import checked_copy
from dpsubspace._core.ground.checks import check_integer
from dpsubspace._core.plans.modules import warn_of_limits
from dpsubspace._core.public.gradient_spaces import (
    FeatureSpace,
    GradientSpace,
    LabelledRows,
    ModuleSpace,
    fisher_distance,
    transport_cost,
)
from dpsubspace._core.release.noise import as_noise
from dpsubspace._core.rows.inputs import check_rows, check_rows_and_labels, named, renamed
from dpsubspace._core.rows.records import Records
from dpsubspace.exceptions import PrivacyWarning, warn

if TYPE_CHECKING:
    import torch


# A small network for images ---------------------------------------------------------------------
# A small network for images whose gradients distinguish sets of images.

# Channels of the two convolutions, and places along each side of the input of the linear layer.
_CHANNELS, _PLACES = (32, 64), 4


def probe_network(
    input_shape: tuple[int, int, int], n_classes: int, random_state: int
) -> torch.nn.Module:
    """Build a network of two convolutional layers and a linear one, after Gu, Kamath and Wu (2022).

    With ten classes it has 29,642 parameters for images of 3 channels and 29,066 for images of 1
    channel, whatever their height and width.

    Images have channels, height and width. Two classes share one output. `random_state` seeds the
    parameters; the generators of torch are left alone.
    """
    import torch
    from torch.nn.utils import skip_init

    if not isinstance(input_shape, tuple) or len(input_shape) != 3:
        raise ValueError(
            "`input_shape` must be the channels, height and width of an image for the built-in"
            f" network, got {input_shape!r}. Give a `module` for rows of another shape."
        )
    channels, *_ = (check_integer("input_shape[...]", side, low=1) for side in input_shape)
    n_outputs = LogLoss().n_outputs(check_integer("n_classes", n_classes, low=2))
    first, second = _CHANNELS
    nn: Any = torch.nn
    convolution = {"kernel_size": 3, "stride": 2, "padding": 1}
    network = nn.Sequential(
        skip_init(nn.Conv2d, channels, first, **convolution),
        nn.ReLU(),
        skip_init(nn.Conv2d, first, second, **convolution),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(_PLACES),
        nn.Flatten(),
        skip_init(nn.Linear, second * _PLACES**2, n_outputs),
    )
    rng = np.random.default_rng(random_state)
    with torch.no_grad():
        for layer in (network[0], network[2], network[6]):
            # Uniform between bounds that follow from the number of inputs, as in torch.
            bound = 1 / math.sqrt(math.prod(layer.weight.shape[1:]))
            for parameter in (layer.weight, layer.bias):
                drawn = rng.uniform(-bound, bound, size=tuple(parameter.shape))
                parameter.copy_(torch.as_tensor(drawn))
    return network


# Probes -----------------------------------------------------------------------------------------
# The model whose gradients are compared between public and private rows: linear, or a torch module.


def gradient_space(
    module: Any, shape: tuple[int, ...], n_classes: int, seed: int, device: Any = "cpu"
) -> GradientSpace:
    """Return the space of the gradients of a model: whole if it is linear, else without directions.

    `module` is None, "cnn" or a torch module, as users give it, and `shape` is the shape of one row
    as its input. The public `seed` draws the labels, and the weights of the built-in network.
    """
    if module is None:
        return FeatureSpace(int(np.prod(shape)))
    gradients = probe_gradients(module, shape, n_classes, seed, device=device)
    return ModuleSpace(gradients, n_classes, seed)


def refuse_groups(module: Any, records: Records) -> None:
    """Raise ValueError if a module would see rows of which several belong to a person.

    If a person has another number of rows, all later rows move to other places. There they get
    other labels, which are drawn by place, and modules round differently.
    """
    if module is not None and records.grouped:
        raise ValueError(
            "`groups` cannot be used with a `module`: gradients of other persons would depend on"
            " how many rows a person has. Leave out `module`, or pass one row of each person."
        )


def probe_gradients(
    module: Any,
    shape: tuple[int, ...],
    n_classes: int,
    seed: int,
    *,
    params: Any = None,
    device: Any = "cpu",
) -> ModuleGradients:
    """Return the gradients of a checked module, for no rows yet.

    ValueError if `module` is none, `params` are not its own, or it cannot be used row by row. Warns
    about a user's module that ends in an activation: its gradients are those of other scores
    than the loss needs.
    """
    torch = torch_package("A `module`")
    network: Any = module
    if isinstance(module, str) and module == "cnn":
        shape = _image_shape(shape)
        network = probe_network(shape, n_classes, seed)
    if params is not None:
        network = _with_params(network, params)
    gradients = ModuleGradients(
        network,
        CLASSIFIER_LOSSES["log_loss"],
        np.zeros((0, int(np.prod(shape)))),
        np.zeros(0, dtype=np.int64),
        n_targets=n_classes,
        input_shape=shape,
        device=None if isinstance(device, str) and device == "cpu" else device,
    )
    if not isinstance(module, str):  # a module of the user
        n_outputs = LogLoss().n_outputs(n_classes)
        where: Any = torch.device("cpu")
        checked = checked_copy(network, shape, n_outputs, where)
        warn_of_limits(limits_of(checked, shape, where).kind, n_outputs, labels=True)
    return gradients


def _image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) == 2:
        return (1, *shape)
    if len(shape) == 3 and not (shape[2] <= 4 < shape[0]):
        return shape
    raise ValueError(
        "module='cnn' is for images of shape (height, width) or (channels, height, width), got rows"
        f" of shape {shape}. Reshape the rows; channels that come last are moved by"
        " numpy.moveaxis(X, -1, 1)."
    )


def _with_params(module: Any, params: Any) -> Any:
    if not isinstance(params, Mapping):
        raise ValueError(
            "`params` must be the weights of the module by name, in the form of its state_dict(),"
            f" got {type(params).__name__}."
        )
    copied = copy.deepcopy(module)
    try:
        copied.load_state_dict(params)
    except (RuntimeError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"`params` are not weights of `module`: {error}") from error
    return copied


# Distances --------------------------------------------------------------------------------------


def task2vec_distance(
    X_private: Any,
    X_public: Any,
    *,
    y_private: Any = None,
    y_public: Any = None,
    max_samples: int = 5000,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """Distance between two data sets by the network features that matter for each; not private.

    A baseline (Achille et al., 2019): a set is described by the Fisher information of each
    feature, which says how much the weights of this feature matter to a linear classifier of
    the set, and sets are compared by the angle between their descriptions.

    Parameters
    ----------
    X_private : {array-like, sparse matrix} of shape (n_samples, n_features)
        Private rows. Nothing protects them here.
    X_public : {array-like, sparse matrix} of shape (n_public_samples, n_features)
        Public rows, with the same features.
    y_private : array-like of shape (n_samples,) or None, default=None
        Classes of the private rows. Both sets have labels or none has.
    y_public : array-like of shape (n_public_samples,) or None, default=None
        Classes of the public rows, which may be other ones.
    max_samples : int, default=5000
        Most rows of each set that are compared: a random sample of a set with more.
    random_state : int, RandomState instance or None, default=None
        Seed of the sample of rows. It hides nothing: no noise is added.

    Returns
    -------
    float
        From 0 for sets that need the same features to 1 for sets that have none in common.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used.

    Warns
    -----
    PrivacyWarning
        At each call, since the number is not private.

    See Also
    --------
    gradient_subspace_distance : By the directions of gradients.
    select_public : A private choice among public sets.
    optimal_transport_distance : How far the rows of one set lie from those of the other.

    Notes
    -----
    The paper's probe is a deep network; here the rows themselves are the features. With labels a
    softmax classifier is fitted to each set. The information of feature a is the mean of
    ``x_a^2 sum_l p_l (1 - p_l)`` over the rows, where p are its probabilities of the classes.
    Without labels all weights are zero, and it is the mean of ``x_a^2`` alone. The distance of
    F and G is the cosine distance of ``F / (F + G)`` and ``G / (F + G)``, entry by entry. So
    neither the unit of a feature matters, if both sets have it, nor a common factor of all rows
    of a set; and features that are zero throughout both sets are left out. All others count alike,
    however little they inform.

    References
    ----------
    Achille, Lam, Tewari, Ravichandran, Maji, Fowlkes, Soatto, Perona. "Task2Vec: Task
    embedding for meta-learning". ICCV 2019.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import PrivacyWarning
    >>> from dpsubspace.public_data import task2vec_distance
    >>> X, y = load_digits(return_X_y=True)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", PrivacyWarning)  # these digits are public
    ...     near = task2vec_distance(X[:900], X[900:])
    ...     far = task2vec_distance(X[:900], X[900:, ::-1])
    >>> near < far / 2
    True
    """
    check_integer("max_samples", max_samples, low=1)
    seed = _seed(random_state)
    sets = _checked_sets(X_private, X_public, y_private, y_public)
    sets = [rows.sample(max_samples, seed) for rows in sets]
    for name, rows in zip(("y_private", "y_public"), sets, strict=True):
        if rows.codes is not None and rows.codes.min() == rows.codes.max():
            raise ValueError(
                f"`{name}` has one class among the rows that are compared, and a classifier needs"
                " two: leave out the labels of both sets, or raise `max_samples`."
            )
    warn_not_private("task2vec_distance")
    return fisher_distance(*sets)


def optimal_transport_distance(
    X_private: Any,
    X_public: Any,
    *,
    y_private: Any = None,
    y_public: Any = None,
    max_samples: int = 1000,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """Cost of moving one set of rows onto another; this is not private.

    A baseline (Alvarez-Melis and Fusi, 2020, "OTDD"): each private row is paired with one public
    row such that the squared distances of all pairs are least in sum. With labels, a pair costs
    more the less the rows of its two classes are alike.

    Parameters
    ----------
    X_private : {array-like, sparse matrix} of shape (n_samples, n_features)
        Private rows. Nothing protects them here.
    X_public : {array-like, sparse matrix} of shape (n_public_samples, n_features)
        Public rows, with the same features.
    y_private : array-like of shape (n_samples,) or None, default=None
        Classes of the private rows. Both sets have labels or none has.
    y_public : array-like of shape (n_public_samples,) or None, default=None
        Classes of the public rows, which may be other ones.
    max_samples : int, default=1000
        Most rows of each set that are compared: a random sample of a set with more. Of both sets
        as many are taken as the smaller one has.
    random_state : int, RandomState instance or None, default=None
        Seed of the sample of rows. It hides nothing: no noise is added.

    Returns
    -------
    float
        Mean cost of a pair, in squared units of the features; 0 for equal sets.

    Raises
    ------
    ValueError
        If a parameter is out of its range or the data cannot be used.

    Warns
    -----
    PrivacyWarning
        At each call, since the number is not private.

    See Also
    --------
    gradient_subspace_distance : By the directions of gradients.
    select_public : A private choice among public sets.
    task2vec_distance : By the features that a linear model of each set needs.

    Notes
    -----
    The rows of a class are described by their mean m and covariance matrix S. A pair of rows x
    and x' costs ``|x - x'|^2``, and with labels
    ``|m - m'|^2 + tr(S + S' - 2 (S^1/2 S' S^1/2)^1/2)`` more: the squared 2-Wasserstein distance
    of the Gaussians of their classes. The result is not rooted, as in the paper. There the
    cheapest plan is approximated by entropic regularisation, by which a row is spread over
    several others. Here it is exact, for a sample of rows: the time grows with the third power of
    `max_samples`. Means and covariances are those of the sampled rows.

    Two samples of one distribution are apart as well, the further the fewer rows they
    have: compare sets at one number of rows. A shift or another unit of all rows counts in full.

    References
    ----------
    Alvarez-Melis, Fusi. "Geometric dataset distances via optimal transport". NeurIPS 2020.

    Examples
    --------
    >>> import warnings
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import PrivacyWarning
    >>> from dpsubspace.public_data import optimal_transport_distance
    >>> X, y = load_digits(return_X_y=True)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", PrivacyWarning)  # these digits are public
    ...     near = optimal_transport_distance(X[:300], X[300:600])
    ...     far = optimal_transport_distance(X[:300], 16 - X[300:600])
    >>> near < far / 2
    True
    """
    check_integer("max_samples", max_samples, low=1)
    seed = _seed(random_state)
    sets = _checked_sets(X_private, X_public, y_private, y_public)
    warn_not_private("optimal_transport_distance")
    size = min(max_samples, *(rows.X.shape[0] for rows in sets))
    return transport_cost(*(rows.sample(size, seed) for rows in sets))


# Shared by all distances --------------------------------------------------------------------


def _checked_sets(
    X_private: Any, X_public: Any, y_private: Any = None, y_public: Any = None
) -> tuple[LabelledRows, LabelledRows]:
    if (y_private is None) != (y_public is None):
        missing = "y_private" if y_private is None else "y_public"
        raise ValueError(
            f"`{missing}` is missing: give the labels of both sets, or leave out those of both."
        )
    private, names = _checked("private", X_private, y_private)
    public, public_names = _checked("public", X_public, y_public)
    widths = [rows.X.shape[1] for rows in (private, public)]
    if widths[0] != widths[1]:
        raise ValueError(
            f"`X_public` has {widths[1]} features and `X_private` has {widths[0]}: a distance"
            " needs the same features in both."
        )
    if names is not None and public_names is not None and list(names) != list(public_names):
        raise ValueError(
            "`X_public` has other column names than `X_private`, or the same in another order."
        )
    return private, public


def _checked(which: str, X: Any, y: Any) -> tuple[LabelledRows, Any]:
    if isinstance(X, (tuple, Mapping)):
        raise ValueError(
            f"`X_{which}` must be one set of rows, got {type(X).__name__}: compare one set after"
            " the other, or stack them."
        )
    checker, codes = named("A distance"), None
    try:
        if y is None:
            X = check_rows(checker, X, reset=True)
        else:
            X, y = check_rows_and_labels(checker, X, y)
    except (TypeError, ValueError) as error:
        message = renamed(str(error), X=f"X_{which}", y=f"y_{which}")
    else:
        if y is not None:
            codes = _codes(f"y_{which}", y)
        return LabelledRows(X, codes), getattr(checker, "feature_names_in_", None)
    # Raised out here, so that no chained exception carries an entry.
    raise ValueError(f"`X_{which}`: {message}" if y is None else f"the {which} set: {message}")


def _codes(name: str, y: np.ndarray) -> np.ndarray:
    try:
        check_classification_targets(y)
        return np.unique(y, return_inverse=True)[1]
    except (TypeError, ValueError):  # its message may hold labels
        pass
    raise ValueError(
        f"`{name}` must hold classes, one a row: numbers that are measured, missing labels and"
        " labels of several types are none."
    )


def _seed(random_state: Any) -> int:
    return int(as_noise(random_state).public().integers(2**32))


def warn_not_private(what: str) -> None:
    """Warn that the result of a function is not private."""
    warn(
        f"{what} is not private: it reveals something about every private row. Publish neither the"
        " number nor what is chosen by it; use GSDScorer or select_public for that.",
        PrivacyWarning,
        about=("not private", what),
    )
