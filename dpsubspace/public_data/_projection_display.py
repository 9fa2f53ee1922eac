"""The plot of projection errors: the part of gradients that leading public directions miss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils import check_array

from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, Released
from dpsubspace._core.ground.arrays import native, plain_arithmetic
from dpsubspace._core.ground.checks import check_bool, check_integer, unwrapped
from dpsubspace._core.ground.plotting import Display, drawn_band, styled
from dpsubspace._core.release.noise import as_noise
from dpsubspace._names import public
from dpsubspace.public_data._diagnostics import ProjectionError, exact_errors


@public
@dataclass(kw_only=True, eq=False, repr=False)
class ProjectionErrorDisplay(Display):
    """Plot of the projection error: how much of gradients is lost, by the number of directions.

    If a curve falls quickly, few directions of public rows are enough for training. If it is near
    the dashed line, which stands for random directions, the public rows are of no use.

    Made by :meth:`from_public`, which takes public rows alone and costs nothing, or
    :meth:`from_released`, which draws what :func:`private_projection_error` has released.

    Parameters
    ----------
    n_components : array-like of shape (n_errors,)
        Numbers of directions.
    error : array-like of shape (n_errors,)
        Mean share of the squared norm of a gradient outside of as many directions, from 0 to 1.
    random : array-like of shape (n_errors,) or None, default=None
        The same for random directions.
    noise : array-like of shape (n_errors,) or None, default=None
        Standard deviation of the noise in `error`, for a band of two on either side.
    stable_rank : float or None, default=None
        Upper bound on the stable rank of the gradients, for the legend.
    name : str or None, default=None
        Name of the curve in the legend.
    privacy : PrivacyGuarantee or None, default=None
        What the curve cost.

    Attributes
    ----------
    n_components, error, random, noise, stable_rank, name, privacy
        As given.
    ax_ : matplotlib Axes
        Axes with the curve.
    figure_ : matplotlib Figure
        Figure with the axes.
    line_ : matplotlib Artist
        The curve.
    band_ : matplotlib Artist or None
        The band; None without noise.
    random_line_ : matplotlib Artist or None
        The line for random directions.

    See Also
    --------
    private_projection_error : Releases the errors of private gradients.
    GSDRankingDisplay : Distances of several public sets.

    Notes
    -----
    From public rows, directions are those of one half, and errors are those of the other half. They
    are what rows of the same source have, and private rows of another source have more.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace.public_data import ProjectionErrorDisplay, private_projection_error
    >>> X, _ = load_digits(return_X_y=True)
    >>> public, private = X[:300], X[300:]
    >>> display = ProjectionErrorDisplay.from_public(public, random_state=0)
    >>> released = private_projection_error(private, public, epsilon=0.5)
    >>> options = {"ax": display.ax_, "plot_random": False}
    >>> beside = ProjectionErrorDisplay.from_released(released, name="private", **options)
    >>> len(display.ax_.lines)
    3
    """

    n_components: Any
    error: Any
    random: Any = None
    noise: Any = None
    stable_rank: float | None = None
    name: str | None = None
    privacy: PrivacyGuarantee | None = None

    @classmethod
    def from_public(
        cls,
        X_public: Any,
        *,
        n_components: Any = "auto",
        module: Any = None,
        input_shape: tuple[int, ...] | None = None,
        n_classes: int = 10,
        random_state: int | np.random.RandomState | None = None,
        name: str | None = "public rows",
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Compute errors of one half of public rows on directions of the other half, and draw them.

        Parameters
        ----------
        X_public : array-like of shape (n_public, n_features) or tuple of them
            Public rows, at least two; several sets stand for their union. Nothing protects them.
        n_components, module, input_shape, n_classes
            As :func:`private_projection_error` takes them. Neither of the last two is used without
            a `module`.
        random_state : int, RandomState instance or None, default=None
            What the halves and labels are drawn from. No noise is added.
        name : str or None, default="public rows"
            Name of the curve.
        ax : matplotlib Axes or None, default=None
            Axes to draw in, which may hold other curves; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : ProjectionErrorDisplay
            The picture and its data.

        Raises
        ------
        ValueError
            If a parameter is out of its range, or rows cannot be used.
        ImportError
            If matplotlib is not installed; nothing was computed then.
        """
        cls._pyplot()
        given = X_public if isinstance(X_public, tuple) else (X_public,)
        given = [unwrapped("X_public", rows) for rows in given]
        dtypes: Any = [np.float64, np.float32]
        sets = [native(check_array(rows, dtype=dtypes, input_name="X_public")) for rows in given]
        rows = np.concatenate(sets)
        if len(rows) < 2:
            raise ValueError("`X_public` has one row, and directions need others than errors.")
        rng = as_noise(random_state).public()
        rows = rows[rng.permutation(len(rows))]
        half, seed = len(rows) // 2, int(rng.integers(2**31))
        c = check_integer("n_classes", n_classes, low=2)
        with plain_arithmetic(None):
            found = exact_errors(
                rows[half:],
                rows[:half],
                n_components,
                module=module,
                input_shape=input_shape,
                n_classes=c,
                seed=seed,
            )
        return cls._made(found, name=name).plot(ax=ax, **plot_params)

    @classmethod
    def from_released(
        cls, released: Released, *, name: str | None = None, ax: Any = None, **plot_params: Any
    ) -> Self:
        """Draw errors that were released before; this costs nothing.

        Parameters
        ----------
        released : Released
            What :func:`private_projection_error` gave.
        name : str or None, default=None
            Name of the curve.
        ax : matplotlib Axes or None, default=None
            Axes to draw in, which may hold other curves; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : ProjectionErrorDisplay
            The picture and its data, with what it cost in ``privacy``.

        Raises
        ------
        ValueError
            If `released` is anything else.
        ImportError
            If matplotlib is not installed.
        """
        if not (isinstance(released, Released) and isinstance(released.value, ProjectionError)):
            raise ValueError(
                "`released` must be what private_projection_error returned, with `value` and"
                f" `privacy`, got {type(released).__name__}."
            )
        display = cls._made(released.value, name=name, privacy=released.privacy)
        return display.plot(ax=ax, **plot_params)

    @classmethod
    def _made(cls, found: ProjectionError, **about: Any) -> Self:
        noise = found.noise if np.any(found.noise) else None
        return cls(**(found._asdict() | {"noise": noise}), **about)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        plot_random: bool = True,
        line_kw: dict[str, Any] | None = None,
        band_kw: dict[str, Any] | None = None,
        random_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in, which may hold other curves; None makes new ones.
        name : str or None, default=None
            Name of the curve; None is that of the display.
        plot_random : bool, default=True
            Whether to draw the line for random directions.
        line_kw : dict or None, default=None
            Passed to ``ax.plot`` for the curve.
        band_kw : dict or None, default=None
            Passed to ``ax.fill_between``.
        random_kw : dict or None, default=None
            Passed to ``ax.plot`` for the line for random directions.

        Returns
        -------
        display : ProjectionErrorDisplay
            This object, with the artists.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        check_bool("plot_random", plot_random)
        ax = self._draw_in(ax)
        x, error = np.asarray(self.n_components), np.asarray(self.error)
        words = [self.name if name is None else name, _rank(self.stable_rank)]
        label = ", ".join(word for word in words if word) or None
        self.line_: Any = ax.plot(x, error, **styled(line_kw, marker="o", label=label))[0]
        self.band_: Any = None
        self.random_line_: Any = None
        if self.noise is not None:
            away = 2 * np.asarray(self.noise)
            ends = np.maximum(error - away, 0.0), np.minimum(error + away, 1.0)
            self.band_ = drawn_band(ax, x, *ends, self.line_.get_color(), band_kw)
        if plot_random and self.random is not None:
            options = styled(random_kw, color="grey", linestyle="--", label="random directions")
            self.random_line_ = ax.plot(x, self.random, **options)[0]
        ax.set_xscale("log", base=2)
        ax.set(ylim=(-0.02, 1.02))
        ax.set(xlabel="Number of directions", ylabel="Share of gradients that is missed")
        ax.xaxis.set_major_formatter("{x:g}")
        self._write_legend()
        return self


def _rank(bound: float | None) -> str:
    known = bound is not None and math.isfinite(bound)
    return f"stable rank at most {bound:.3g}" if known else ""
