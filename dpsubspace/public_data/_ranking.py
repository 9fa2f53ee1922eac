"""Plots of distances between sets of rows: bars for candidates, a heat map for many sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from dpsubspace._core.ground.checks import check_bool, check_choice, check_real, shown
from dpsubspace._core.ground.plotting import Display, styled
from dpsubspace._names import public
from dpsubspace.public_data._distances import optimal_transport_distance, task2vec_distance
from dpsubspace.public_data._gsd import gradient_subspace_distance

# Distances by name.
_DISTANCES = {
    "gradient_subspace": gradient_subspace_distance,
    "optimal_transport": optimal_transport_distance,
    "task2vec": task2vec_distance,
}

# Inches of a figure around its names, for each bar or cell, and for each letter of a name.
_MARGIN, _BAR, _CELL, _LETTER = 3.0, 0.35, 0.7, 0.1


@public
@dataclass(kw_only=True, eq=False, repr=False)
class GSDRankingDisplay(Display):
    """Plot of distances between data sets: one bar for each candidate, or a heat map of many.

    Made by :meth:`from_distances`, which takes numbers that were computed before, or
    :meth:`from_sets`, which compares each set with each other one.

    A picture of numbers that are not private is not private either: it tells of the private
    rows as they do. A private ranking can be drawn and shown.

    Parameters
    ----------
    distances : array-like of shape (n_sets,) or (n_rows, n_sets)
        Distance of each set, or of each set from several others.
    names : sequence of str
        Names of the sets.
    row_names : sequence of str or None, default=None
        Names of the rows of `distances` where it has two dimensions.
    spread : array-like of shape (n_sets,) or None, default=None
        Half the length of the error bars: the standard deviation over repeats, say. A heat map has
        none.
    reference : float or None, default=None
        A distance that others are held against, drawn as a dashed line across the bars. A heat map
        has none.
    reference_name : str, default="no public data"
        What the line at `reference` is, in the legend.
    distance_name : str, default="Distance"
        What the distances are, at their axis.

    Attributes
    ----------
    distances, names, row_names, spread, reference, reference_name, distance_name
        As given.
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.
    bars_ : matplotlib BarContainer or None
        Bars, the nearest set first; None for a heat map.
    image_ : matplotlib AxesImage or None
        Heat map; None for bars.
    text_ : ndarray of matplotlib Text or None
        Numbers at the bars or in the cells; None without.
    reference_line_ : matplotlib Artist or None
        Line at `reference`.

    See Also
    --------
    GSDScorer : A private ranking.
    PrivacyUtilityDisplay : Score against epsilon.

    Examples
    --------
    >>> from dpsubspace.public_data import GSDRankingDisplay
    >>> distances = {"natural images": 0.55, "other x-rays": 0.32, "held-out x-rays": 0.15}
    >>> display = GSDRankingDisplay.from_distances(distances, reference=0.5)
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['held-out x-rays', 'other x-rays', 'natural images']
    """

    distances: Any
    names: Any
    row_names: Any = None
    spread: Any = None
    reference: float | None = None
    reference_name: str = "no public data"
    distance_name: str = "Distance"

    @classmethod
    def from_distances(
        cls,
        distances: Mapping[str, Any],
        *,
        spread: Mapping[str, float] | None = None,
        reference: float | None = None,
        reference_name: str = "no public data",
        distance_name: str = "Distance",
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Draw distances that were computed before.

        Parameters
        ----------
        distances : dict of str to float, or of str to dict
            Distance of each set by its name. ``{name: {other name: distance}}`` is drawn as a
            heat map, with a row for each `name`.
        spread : dict of str to float or None, default=None
            Half the length of the error bars, by the same names.
        reference : float or None, default=None
            A distance that others are held against, drawn as a dashed line across the bars.
        reference_name : str, default="no public data"
            What the line at `reference` is, in the legend.
        distance_name : str, default="Distance"
            What the distances are, at their axis.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : GSDRankingDisplay
            The picture and its data.

        Raises
        ------
        ValueError
            If a distance is not a finite number, or names do not fit.
        ImportError
            If matplotlib is not installed.
        """
        row_names = None
        if _is_nested(distances):
            row_names = [str(name) for name in distances]
            names, values = _table(distances)
            if spread is not None or reference is not None:
                raise ValueError("`spread` and `reference` are for bars, and this is a heat map.")
        else:
            names, values = _numbers("distances", distances)
        bars = None
        if spread is not None:
            by_name = dict(zip(*_numbers("spread", spread, low=0.0), strict=True))
            _check_names("spread", by_name, "distances", names)
            bars = np.array([by_name[name] for name in names])
        if reference is not None:
            reference = check_real("reference", reference, low=-np.inf)
        display = cls(
            distances=values,
            names=names,
            row_names=row_names,
            spread=bars,
            reference=reference,
            reference_name=reference_name,
            distance_name=distance_name,
        )
        return display.plot(ax=ax, **plot_params)

    @classmethod
    def from_sets(
        cls,
        sets: Mapping[str, Any],
        distance: str | Callable[..., float] = "gradient_subspace",
        *,
        labels: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = None,
        distance_name: str | None = None,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Compare each set of rows with each other one, and draw the distances.

        Parameters
        ----------
        sets : dict of str to {array-like, sparse matrix}
            Rows of each set by its name, at least two sets, with the same features.
        distance : {"gradient_subspace", "task2vec", "optimal_transport"} or callable, \
                default="gradient_subspace"
            A distance that is the same in both directions, for one call for each two sets. A
            callable takes two sets of rows, as :func:`gradient_subspace_distance` does, and
            ``y_private`` and ``y_public`` where there are `labels`.
        labels : dict of str to array-like or None, default=None
            Classes of the rows of each set, by the same names, for a distance that takes them.
        random_state : int, RandomState instance or None, default=None
            Passed to a distance that is given by its name.
        distance_name : str or None, default=None
            What the distances are, in the picture; None names the function.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : GSDRankingDisplay
            The picture and its data, a symmetric matrix.

        Raises
        ------
        ValueError
            If a parameter is out of its range, or two sets cannot be compared.
        ImportError
            If matplotlib is not installed; nothing was compared then.
        """
        cls._pyplot()
        rows = _named(_checked_mapping("sets", sets))
        if len(rows) < 2:
            raise ValueError(f"`sets` must hold at least two sets, got {len(rows)}.")
        classes = {name: None for name in rows}
        if labels is not None:
            classes = _named(_checked_mapping("labels", labels))
            _check_names("labels", classes, "sets", rows)
            if distance == "gradient_subspace":
                raise ValueError(
                    f"`distance`={distance!r} draws labels of its own: leave out `labels`."
                )
        if distance_name is None:
            distance_name = _title(distance)
        measure: Any = distance
        if not callable(distance):
            known = _DISTANCES[check_choice("distance", distance, list(_DISTANCES))]
            measure = partial(known, random_state=random_state)
        names, values = list(rows), np.zeros((len(rows), len(rows)))
        for i, name in enumerate(names):
            for j, other in enumerate(names[: i + 1]):
                y = {"y_private": classes[other], "y_public": classes[name]}
                try:
                    found = measure(rows[other], rows[name], **(y if labels is not None else {}))
                except ValueError as error:
                    raise ValueError(f"{other!r} and {name!r}: {error}") from error
                values[i, j] = values[j, i] = check_real("distance(...)", found, low=-np.inf)
        display = cls(distances=values, names=names, row_names=names, distance_name=distance_name)
        return display.plot(ax=ax, **plot_params)

    def plot(
        self,
        ax: Any = None,
        *,
        kind: str | None = None,
        include_values: bool = True,
        values_format: str = ".3g",
        bar_kw: dict[str, Any] | None = None,
        image_kw: dict[str, Any] | None = None,
        text_kw: dict[str, Any] | None = None,
        reference_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw bars, the nearest set on top, or a heat map.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in, of which the figure leaves the names what room it does; None makes
            new ones in a figure that has room for all names.
        kind : {"bars", "heatmap"} or None, default=None
            What to draw. None draws bars for one distance a set, and a heat map for several.
        include_values : bool, default=True
            Whether to write the numbers at the bars or in the cells.
        values_format : str, default=".3g"
            How to write them.
        bar_kw : dict or None, default=None
            Passed to ``ax.barh``, for bars.
        image_kw : dict or None, default=None
            Passed to ``ax.imshow``, for a heat map.
        text_kw : dict or None, default=None
            Passed to ``ax.text`` or ``ax.bar_label`` for the numbers.
        reference_kw : dict or None, default=None
            Passed to ``ax.axvline`` for `reference`, across bars.

        Returns
        -------
        display : GSDRankingDisplay
            This object, with the artists.

        Raises
        ------
        ValueError
            If `kind` does not fit the distances.
        ImportError
            If matplotlib is not installed.
        """
        check_choice("kind", kind, (None, "bars", "heatmap"))
        check_bool("include_values", include_values)
        values = np.asarray(self.distances, dtype=np.float64)
        kind = ("bars" if values.ndim == 1 else "heatmap") if kind is None else kind
        if kind == "bars" and values.ndim > 1:
            raise ValueError("`kind`='bars' is for one distance a set: use 'heatmap'.")
        size = np.array(_figure_size(kind, self.names, self.row_names))
        self._draw_in(ax, size * self._pyplot().rcParams["font.size"] / 10)
        self.bars_: Any = None
        self.image_: Any = None
        self.text_: Any = None
        self.reference_line_: Any = None
        form = f"{{:{values_format}}}" if include_values else None
        if kind == "bars":
            self._draw_bars(values, form, bar_kw, text_kw, reference_kw)
        else:
            self._draw_image(np.atleast_2d(values), form, image_kw, text_kw)
        return self

    def _draw_bars(
        self, values: np.ndarray, form: str | None, bar_kw: Any, text_kw: Any, reference_kw: Any
    ) -> None:
        ax, order, places = self.ax_, np.argsort(values, kind="stable"), np.arange(len(values))
        spread = None if self.spread is None else np.asarray(self.spread)[order]
        self.bars_ = ax.barh(places, values[order], **styled(bar_kw, xerr=spread))
        ax.set_yticks(places, [self.names[i] for i in order])
        ax.invert_yaxis()
        if form is not None:
            texts = ax.bar_label(self.bars_, fmt=form.format, **styled(text_kw, padding=3))
            self.text_ = np.array(texts, dtype=object)
            ax.margins(x=0.15)  # room for the number of the longest bar
        if self.reference is not None:
            usual = {"color": "grey", "linestyle": "--", "label": self.reference_name}
            self.reference_line_ = ax.axvline(self.reference, **styled(reference_kw, **usual))
            ax.legend()
        ax.set(xlabel=self.distance_name)

    def _draw_image(
        self, values: np.ndarray, form: str | None, image_kw: Any, text_kw: Any
    ) -> None:
        ax = self.ax_
        self.image_ = ax.imshow(values, **styled(image_kw))
        self.figure_.colorbar(self.image_, ax=ax, label=self.distance_name)
        options = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        ax.set_xticks(np.arange(values.shape[1]), list(self.names), **options)
        ax.set_yticks(np.arange(len(values)), [""] if self.row_names is None else self.row_names)
        if form is None:
            return
        self.text_ = np.empty(values.shape, dtype=object)
        ends = self.image_.cmap(0.0), self.image_.cmap(1.0)
        for (i, j), value in np.ndenumerate(values):
            color = ends[int(self.image_.norm(value) < 0.5)]
            options = styled(text_kw, ha="center", va="center", color=color)
            self.text_[i, j] = ax.text(j, i, form.format(value), **options)


def _figure_size(kind: str, names: Any, row_names: Any) -> tuple[float, float]:
    letters = _LETTER * max(map(len, names))
    if kind == "bars":
        return 2 * _MARGIN + letters, _MARGIN / 2 + _BAR * len(names)
    rows = [""] if row_names is None else row_names
    width = _MARGIN + _CELL * len(names) + max(letters, _LETTER * max(map(len, rows)))
    return width, _MARGIN / 2 + _CELL * len(rows) + letters


def _checked_mapping(name: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            f"`{name}` must be a dict with one entry a set, {{name: ...}}, got"
            f" {shown(value) if isinstance(value, Mapping) else type(value).__name__}."
        )
    return value


def _named(given: Mapping[Any, Any]) -> dict[str, Any]:
    named = {str(name): value for name, value in given.items()}
    if len(named) < len(given):
        raise ValueError(f"names must be different as text, got {shown([*given])}.")
    return named


def _numbers(name: str, given: Any, low: float = -np.inf) -> tuple[list[str], np.ndarray]:
    named = _named(_checked_mapping(name, given))
    values = [
        check_real(f"{name}[{shown(key)}]", value, low=low, include_low=low == 0)
        for key, value in named.items()
    ]
    return list(named), np.array(values)


def _check_names(name: str, given: Any, other: str, names: Any) -> None:
    if set(given) != set(names):
        raise ValueError(
            f"`{name}` must have the names of `{other}`, {shown([*names])}, got {shown([*given])}."
        )


def _is_nested(distances: Any) -> bool:
    given = _checked_mapping("distances", distances)
    return any(isinstance(value, Mapping) for value in given.values())


def _table(distances: Mapping[Any, Any]) -> tuple[list[str], np.ndarray]:
    rows = {key: _numbers(f"distances[{shown(key)}]", row) for key, row in distances.items()}
    first = next(iter(rows))
    names = rows[first][0]
    for key, (found, _) in rows.items():
        _check_names(f"distances[{shown(key)}]", found, f"distances[{shown(first)}]", names)
    by_name = [dict(zip(*row, strict=True)) for row in rows.values()]
    return names, np.array([[row[name] for name in names] for row in by_name])


def _title(distance: Any) -> str:
    if isinstance(distance, partial):
        distance = distance.func
    name = distance if isinstance(distance, str) else getattr(distance, "__name__", "")
    words = name.strip("<>").removesuffix("_distance").replace("_", " ")
    return f"Distance ({words})" if words else "Distance"
