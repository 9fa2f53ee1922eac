"""The plot of the effect of each column that a private model of a table has learned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.stats import norm
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dpsubspace._core.fits.composites import told_of_transformed
from dpsubspace._core.gradients.losses import CLASSIFIER_LOSSES, REGRESSOR_LOSSES
from dpsubspace._core.ground.checks import (
    check_integer,
    check_real,
    did_you_mean,
    shown,
    shown_first,
)
from dpsubspace._core.ground.plotting import Display, drawn_band, styled
from dpsubspace._core.tables.schema import Schema
from dpsubspace._names import public
from dpsubspace.tables._column_shapes import ColumnShape, shapes_of
from dpsubspace.tables._table_encoder import TableEncoder

# Hues that differ with any colour vision; a single curve has the first one.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_GREY = "#666666"

# Inches of a panel, letters shown of a category, and points along each side of a map.
_WIDTH, _HEIGHT, _LETTERS, _SIDE = 3.3, 2.5, 20, 40

# Position of a missing value, in widths of the axes from the left; least distance between ticks.
_BESIDE, _APART = 1.08, 0.15


@public
@dataclass(kw_only=True, eq=False, repr=False)
class ShapeDisplay(Display):
    """What a private model of a table has learned of each column, with a band for the noise.

    One panel for each column. A curve shows what the numbers of a column add to the score of a
    row, and bars show what its categories add: to the log-odds for a classifier with the log loss,
    to the prediction for a regressor. All is relative to the average over the range, or over the
    categories, of the column. The band around a curve, and the whiskers of a bar, say how far the
    noise that protects the rows may have moved it.

    The picture is made of the fitted model alone. Its weights are released and the schema is
    public, so that it costs no privacy and can be published with the model.

    Made by :meth:`from_estimator`.

    Parameters
    ----------
    shapes : dict of str or tuple to ColumnShape
        What is drawn, by the name of a column or by the two names of a pair. Each has `at`
        (numbers or categories), `values`, `std`, `missing` and `missing_std`, all but the first
        with a last axis for the outputs.
    outputs : sequence of str
        Names of the outputs, of which each has a curve.
    score_name : str, default="score"
        What the values add to, at the axes.
    level : float, default=0.9
        Share of the points at which bands should cover the curve of the same fit without noise.

    Attributes
    ----------
    shapes, outputs, score_name, level
        As given.
    figure_ : matplotlib Figure
        Figure with the panels.
    axes_ : ndarray of matplotlib Axes
        Panels, in the order of `shapes`.
    lines_ : dict of str to list of matplotlib Artist
        Curve of each output, by the name of the column.
    bands_ : dict of str or tuple to list of matplotlib Artist
        Bands around these, and of pairs the hatches; empty where there are none.
    bars_ : dict of str to list of matplotlib Container
        Bars of the categories.
    missing_ : dict of str to list of matplotlib Container
        Points for missing values of columns of numbers.
    maps_ : dict of tuple to matplotlib Artist
        Maps of the pairs.

    See Also
    --------
    tabular_pipeline : Makes what is drawn here.
    PrivacyUtilityDisplay : Score against epsilon.
    sklearn.inspection.PartialDependenceDisplay : Shapes of any model, from rows, which must be
        public then.

    Notes
    -----
    Nothing is released, and no row is used. Instead of averaging over rows, as partial dependence
    does, a column is drawn with all others at their average over the schema: each number of a
    range is as likely as any other on the scale that it is read on, and each category as any
    other. There, pairs of numbers add nothing to the shape of either number. A pair is drawn as a
    map, with what both numbers add alone. It is hatched where the band includes 0. Texts are not
    drawn, and add nothing to the shapes of other columns.

    A classifier with ``row_norm="l2"`` divides each row by its length, which depends on all
    columns a little. The length is taken from the value that is drawn and from the average of the
    squares of all other entries. For several classes the mean over the classes is subtracted,
    since only differences count. Predictions of a regressor are cut to the range of the target,
    and curves are not.

    The band is about noise alone. It says nothing on other rows that could have been drawn, on
    the bias that clipping brings, or on whether the column causes anything. How far noise moves
    weights depends on how strongly the loss pulls them back, which only the private rows could
    tell. The band rather assumes too little of that and is too wide. Where a mean of the rows was
    released, by :class:`DPSGDFClassifier` and :class:`GEPClassifier`, it tells how each column is
    distributed, and the band counts a small part of the pull that follows. For
    :class:`DPSGDClassifier` and :class:`DPSGDRegressor` it counts none: such bands are nearly exact
    for many columns and few rows, and can be several times too wide for few columns and many rows.
    :class:`DPLinearRegression` shrinks its weights where there is much noise, so that its curves
    are too flat then, which the band counts for the solver "moments" alone.

    The band of the solver "moments" counts what shrinking may have taken, and is three to eight
    times as wide as noise alone would have it.

    There is no band for ``epsilon=float("inf")``, and none where the noise is not known in this
    form: for :class:`GradientDirections`, for ``mirror=True``, and for the solvers "adassp" and
    "ambssgd".

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dpsubspace import DPSGDFClassifier, tabular_pipeline
    >>> from dpsubspace.inspection import ShapeDisplay
    >>> rng = np.random.default_rng(0)
    >>> age, ward = rng.uniform(18, 95, 3000), rng.choice(["A", "B"], 3000)
    >>> frame = pd.DataFrame({"age": age, "ward": ward})
    >>> readmitted = frame["age"] + 20 * (frame["ward"] == "B") > 65
    >>> model = tabular_pipeline(DPSGDFClassifier(), {"age": (18, 100), "ward": ["A", "B"]})
    >>> display = ShapeDisplay.from_estimator(model.fit(frame, readmitted))
    >>> [ax.get_title() for ax in display.axes_]
    ['age', 'ward']
    >>> display.shapes["age"].values[-1] > display.shapes["age"].values[0]
    array([ True])
    """

    shapes: Mapping[Any, ColumnShape]
    outputs: Sequence[str]
    score_name: str = "score"
    level: float = 0.9

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        features: Any = None,
        *,
        target: Any = None,
        level: float = 0.9,
        grid_resolution: int = 100,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Read the shapes off a fitted pipeline, and draw them.

        Parameters
        ----------
        estimator : TabularPipeline or Pipeline
            A fitted pipeline of a :class:`TableEncoder` and a linear model of this package, such as
            :func:`tabular_pipeline` makes.
        features : list of {str, pair of str} or None, default=None
            Columns to draw, by their names. A pair of names draws what two columns of numbers do
            together. None draws every column of the schema but those of text.
        target : object or None, default=None
            Which class to draw where there are more than two, or which target (its place, from 0)
            where there are several. None draws a curve for each.
        level : float, default=0.9
            Share of the points at which bands should cover the curve of the same fit without noise.
        grid_resolution : int, default=100
            Number of points of a curve.
        ax : matplotlib Axes, array of them or None, default=None
            Axes to draw in: one for each panel, or one in whose place all panels are drawn. None
            makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : ShapeDisplay
            The picture and its data.

        Raises
        ------
        ValueError
            If `estimator` is no such pipeline, a name is not in its schema, or a parameter is out
            of its range.
        NotFittedError
            If it is not fitted.
        ImportError
            If matplotlib is not installed.
        """
        cls._pyplot()
        check_real("level", level, low=0, high=1)
        check_integer("grid_resolution", grid_resolution, low=2)
        encoder, model = table_steps(cls.__name__, estimator)
        refuse_texts_alone(cls.__name__, encoder.schema_)
        found = shapes_of(encoder.encoding_, model)
        names = _checked_features(features, encoder.schema_)
        outputs, chosen = outputs_of(model, target)
        shapes = {}
        for name in names:
            if isinstance(name, str):
                shapes[name] = found.of(name, grid_resolution)
            else:
                shapes[name] = found.of_pair(name, min(grid_resolution, _SIDE))
            if chosen is not None:
                shapes[name] = shapes[name].of_output(chosen)
        display = cls(
            shapes=shapes,
            outputs=outputs,
            score_name=score_name_of(estimator, outputs),
            level=level,
        )
        return display.plot(ax=ax, **plot_params)

    def plot(
        self,
        ax: Any = None,
        *,
        n_cols: int = 3,
        max_categories: int = 12,
        line_kw: dict[str, Any] | None = None,
        band_kw: dict[str, Any] | None = None,
        bar_kw: dict[str, Any] | None = None,
        map_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the shapes.

        Parameters
        ----------
        ax : matplotlib Axes, array of them or None, default=None
            Axes to draw in: one for each panel, or one in whose place all panels are drawn. None
            makes new ones.
        n_cols : int, default=3
            Most panels side by side.
        max_categories : int, default=12
            Most categories of a column that are drawn: those that add or take most.
        line_kw : dict or None, default=None
            Passed to ``ax.plot`` for the curves.
        band_kw : dict or None, default=None
            Passed to ``ax.fill_between`` for the bands.
        bar_kw : dict or None, default=None
            Passed to ``ax.barh`` for the categories.
        map_kw : dict or None, default=None
            Passed to ``ax.pcolormesh`` for the pairs.

        Returns
        -------
        display : ShapeDisplay
            This object, with the artists.

        Raises
        ------
        ValueError
            If there are not as many axes as panels, or a pair is to be drawn for several outputs.
        ImportError
            If matplotlib is not installed.
        """
        plt = self._pyplot()
        check_integer("n_cols", n_cols, low=1)
        check_integer("max_categories", max_categories, low=1)
        pairs = [name for name in self.shapes if not isinstance(name, str)]
        if pairs and len(self.outputs) > 1:
            raise ValueError(
                f"the map of the pair {pairs[0]!r} has room for one output, and there are"
                f" {len(self.outputs)}: choose one with `target`."
            )
        own = ax is None
        self.axes_, self.figure_ = _panels(plt, ax, len(self.shapes), n_cols)
        self.lines_: dict[str, Any] = {}
        self.bands_: dict[Any, Any] = {}
        self.bars_: dict[str, Any] = {}
        self.missing_: dict[str, Any] = {}
        self.maps_: dict[tuple[str, str], Any] = {}
        reach, before = self._reach(), None
        for i, (panel, (name, shape)) in enumerate(
            zip(self.axes_, self.shapes.items(), strict=True)
        ):
            before = None if i % n_cols == 0 else before
            if isinstance(name, tuple):
                self._draw_pair(panel, name, shape, reach, map_kw)
            elif shape.categorical:
                self._draw_categories(panel, name, shape, max_categories, bar_kw)
                panel.set_xlim(-reach, reach)
            else:
                self._draw_number(panel, name, shape, line_kw, band_kw)
                panel.set_ylim(-reach, reach)
                if before is not None and not before.categorical:
                    panel.set_ylabel("")
                    panel.tick_params(labelleft=False)
            before = None if isinstance(name, tuple) else shape
        if own:
            self._write_notes()
        return self

    # Panels ---------------------------------------------------------------------------------

    @property
    def _quantile(self) -> float:
        """Half width of a band in standard deviations."""
        return float(norm.ppf((1 + self.level) / 2))

    def _reach(self) -> float:
        """Return half the length of the axes of values, which all panels share."""
        ends = [1e-12]
        for shape in self.shapes.values():
            for values, std in ((shape.values, shape.std), (shape.missing, shape.missing_std)):
                if values is not None:
                    wide = 0.0 if std is None else self._quantile * std
                    ends.append(float(np.max(np.abs(values) + wide)))
        return 1.05 * max(ends)

    def _half(self, std: np.ndarray | None, k: int) -> np.ndarray | None:
        return None if std is None else self._quantile * std[..., k]

    def _draw_number(
        self, ax: Any, name: str, shape: ColumnShape, line_kw: Any, band_kw: Any
    ) -> None:
        lines, bands, missing = [], [], []
        ax.axhline(0.0, color=_GREY, linewidth=0.8, zorder=0)
        for k, output in enumerate(self.outputs):
            color = _COLORS[k % len(_COLORS)]
            options = styled(line_kw, color=color, linewidth=1.8, label=output)
            lines += ax.plot(shape.at, shape.values[:, k], **options)
            half = self._half(shape.std, k)
            if half is not None:
                low, high = shape.values[:, k] - half, shape.values[:, k] + half
                bands.append(drawn_band(ax, shape.at, low, high, color, band_kw))
            if shape.missing is not None:
                at = [_BESIDE + 0.03 * k], [shape.missing[k]]
                half = self._half(shape.missing_std, k)
                options = {"fmt": "o", "color": color, "markersize": 4, "clip_on": False}
                options |= {"transform": ax.get_yaxis_transform()}
                missing.append(ax.errorbar(*at, yerr=None if half is None else [half], **options))
        if missing:
            options = {"ha": "left", "va": "top", "fontsize": "small", "color": _GREY}
            ax.text(_BESIDE - 0.04, -0.03, "missing", transform=ax.transAxes, **options)
        _scale_axis(ax.xaxis, ax.set_xscale, shape.at, shape.log[0])
        ax.set_xlim(shape.at[0], shape.at[-1])
        ax.set_ylabel(self.score_name)
        ax.set_title(name)
        self.lines_[name], self.bands_[name], self.missing_[name] = lines, bands, missing

    def _draw_categories(
        self, ax: Any, name: str, shape: ColumnShape, most: int, bar_kw: Any
    ) -> None:
        values, std, labels = shape.values, shape.std, [str(value) for value in shape.at]
        if shape.missing is not None:
            values, labels = np.concatenate([values, shape.missing[None]]), [*labels, "missing"]
            if std is not None and shape.missing_std is not None:
                std = np.concatenate([std, shape.missing_std[None]])
        count = len(labels)
        kept = np.sort(np.argsort(-np.abs(values).max(axis=1), kind="stable")[:most])
        labels = [shortened(labels[i]) for i in kept]
        values, std = values[kept], None if std is None else std[kept]
        places, height = np.arange(len(labels)), 0.7 / len(self.outputs)
        bars = []
        for k, output in enumerate(self.outputs):
            middle = places + height * (k - (len(self.outputs) - 1) / 2)
            usual = {"color": _COLORS[k % len(_COLORS)], "alpha": 0.75, "label": output}
            usual |= {"error_kw": {"elinewidth": 1.0, "ecolor": "#333333"}}
            options = styled(bar_kw, xerr=self._half(std, k), **usual)
            bars.append(ax.barh(middle, values[:, k], height, **options))
        ax.axvline(0.0, color=_GREY, linewidth=0.8)
        ax.set_yticks(places, labels, fontsize="small" if len(labels) <= 8 else "x-small")
        ax.invert_yaxis()
        ax.set_xlabel(self.score_name)
        ax.set_title(name if len(labels) == count else f"{name} ({len(labels)} of {count})")
        self.bars_[name] = bars

    def _draw_pair(
        self, ax: Any, name: tuple[str, str], shape: ColumnShape, reach: float, map_kw: Any
    ) -> None:
        first, second = shape.at
        values, half = shape.values[:, :, 0], self._half(shape.std, 0)
        usual = {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach, "shading": "gouraud"}
        found = ax.pcolormesh(first, second, values.T, **styled(map_kw, **usual))
        self.bands_[name] = []
        if half is not None and (hidden := np.abs(values) < half).any():
            options = {"levels": [0.5, 1.5], "colors": "none", "hatches": ["////"]}
            self.bands_[name].append(ax.contourf(first, second, hidden.T.astype(float), **options))
        _scale_axis(ax.xaxis, ax.set_xscale, first, shape.log[0])
        _scale_axis(ax.yaxis, ax.set_yscale, second, shape.log[1])
        ax.set(xlabel=name[0], ylabel=name[1], title=f"{name[0]} and {name[1]}")
        ax.figure.colorbar(found, ax=ax, label=self.score_name)
        self.maps_[name] = found

    def _write_notes(self) -> None:
        """Explain the bands below the panels, and add a legend of the curves."""
        if any(shape.std is not None for shape in self.shapes.values()):
            words = f"Bands and whiskers: how far the noise may have moved it ({self.level:.0%})"
            if any(isinstance(name, tuple) and bands for name, bands in self.bands_.items()):
                words += "; hatched: hidden by noise"
            self.figure_.supxlabel(words, fontsize="small", color=_GREY)
        if len(self.outputs) > 1:
            drawn = [*self.lines_.values(), *self.bars_.values()][0]
            self.figure_.legend(drawn, self.outputs, loc="outside right upper")


# Contents of the plot -----------------------------------------------------------------------

# Alternatives that do the same from public rows.
_INSTEAD = {
    "ShapeDisplay": "Use scikit-learn's PartialDependenceDisplay on public rows",
    "ImportanceDisplay": "Use scikit-learn's permutation_importance on public rows",
}


def table_steps(name: str, estimator: Any) -> tuple[TableEncoder, Any]:
    """Return the fitted encoder and linear model of a pipeline; ValueError if it has no others.

    `name` is the display that draws it.
    """
    steps = estimator.steps if isinstance(estimator, Pipeline) else []
    if len(steps) != 2 or not isinstance(steps[0][1], TableEncoder):
        raise ValueError(
            f"{name} draws a fitted pipeline of a TableEncoder and a linear model, such as"
            f" tabular_pipeline(DPSGDFClassifier(), schema) makes, not {type(estimator).__name__}."
            f" {_INSTEAD[name]} for any other model.{told_of_transformed(estimator)}"
        )
    check_is_fitted(estimator)
    encoder, model = (step for _, step in steps)
    for step in (encoder, model):
        check_is_fitted(step)
    if not hasattr(model, "_linear_scores"):
        raise ValueError(
            f"{name} draws linear models, not {type(model).__name__}. {_INSTEAD[name]} for it."
        )
    return encoder, model


def refuse_texts_alone(name: str, schema: Schema) -> None:
    """Raise ValueError if there is no column that a plot could show."""
    if len(schema.texts) == len(schema):
        raise ValueError(
            f"{name} draws columns of numbers, dates and categories, and `schema` has text alone:"
            " model[-1].coef_ has the weights of hashed words."
        )


def _checked_features(features: Any, schema: Schema) -> list[str | tuple[str, str]]:
    if features is None:
        return [name for name in schema if name not in schema.texts]
    if isinstance(features, str) or not isinstance(features, Iterable):
        raise ValueError(
            f"`features` must be a list of names of columns and of pairs of names, got"
            f" {shown(features)}. Write features=['age'] for one column."
        )
    found: list[Any] = []
    for feature in features:
        names = (feature,) if isinstance(feature, str) else tuple(feature)
        for name in names:
            if name not in schema:
                raise ValueError(
                    f"`features` names the column {shown(name)}, which is not in the schema. It has"
                    f" {shown_first(schema)}."
                )
            if name in schema.texts:
                raise ValueError(
                    f"`features` names the column {shown(name)} of text, which has no shape: leave"
                    " it out."
                )
        numbers = all(name in schema.numbers for name in names)
        if len(names) > 2 or (len(names) == 2 and (not numbers or names[0] == names[1])):
            raise ValueError(
                f"`features` has {shown(feature)}: a pair must be two different columns of numbers."
            )
        found.append(names[0] if len(names) == 1 else names)
    if not found or len(set(found)) < len(found):
        raise ValueError(
            f"`features` must name each column or pair once, and one at least, got {shown(found)}."
        )
    return found


def outputs_of(model: Any, target: Any) -> tuple[list[str], int | None]:
    """Return names of the outputs to draw, and the index of the only one; None for all of them."""
    count = len(np.atleast_2d(model.coef_))
    names = [f"target {k}" for k in range(count)] if count > 1 else ["target"]
    known: list[Any] = list(range(count))
    if is_classifier(model):
        known = model.classes_.tolist() if count > 1 else model.classes_[1:].tolist()
        names = [str(label) for label in known]
    if target is None:
        return names, None
    if target not in known:
        raise ValueError(
            f"`target` must be one of {shown(known)}, or None for all of them, got {shown(target)}."
            f"{did_you_mean(target, known)}"
        )
    chosen = known.index(target)
    return [names[chosen]], chosen


def score_name_of(pipeline: Any, outputs: Sequence[str]) -> str:
    """Return the name of the score that the values add to."""
    model, losses = pipeline.steps[-1][1], CLASSIFIER_LOSSES | REGRESSOR_LOSSES
    what = losses[getattr(model, "loss", "squared_error")].adds_to
    if getattr(pipeline, "_of_logarithms", False):
        what = f"{what} of the logarithm"
    if len(outputs) == 1:
        return f"{what} of {outputs[0]}"
    return what if is_classifier(model) else f"{what} of the prediction"


# Drawing ------------------------------------------------------------------------------------


def _panels(plt: Any, ax: Any, count: int, n_cols: int) -> tuple[np.ndarray, Any]:
    n_cols = min(n_cols, count)
    n_rows = math.ceil(count / n_cols)
    if ax is None:
        size = (_WIDTH * n_cols, _HEIGHT * n_rows + 0.4)
        figure = plt.figure(figsize=size, layout="constrained")
        grid = figure.add_gridspec(n_rows, n_cols)
    elif isinstance(ax, plt.Axes) and count > 1:
        figure = ax.figure
        grid = ax.get_subplotspec().subgridspec(n_rows, n_cols, wspace=0.4, hspace=0.6)
        ax.set_axis_off()
    else:
        axes = np.ravel(np.array(ax, dtype=object))
        if len(axes) != count:
            raise ValueError(
                f"`ax` must hold one Axes for each of the {count} panels, or be a single Axes, got"
                f" {len(axes)}."
            )
        return axes, axes[0].figure
    places = [divmod(i, n_cols) for i in range(count)]
    return np.array([figure.add_subplot(grid[place]) for place in places], dtype=object), figure


def _scale_axis(axis: Any, set_scale: Any, at: np.ndarray, log: bool) -> None:
    """Set an axis on which the numbers `at` are evenly spaced, with ticks at round numbers."""
    axis.set_tick_params(labelsize="small")
    if at.dtype.kind == "M":
        from matplotlib import dates

        locator = dates.AutoDateLocator(minticks=3, maxticks=6)
        axis.set_major_locator(locator)
        axis.set_major_formatter(dates.ConciseDateFormatter(locator))
        return
    if not log:
        axis.set_major_formatter(lambda x, _: _written(x))
        axis.get_major_locator().set_params(nbins=6)
        return
    even = np.linspace(0.0, 1.0, len(at))

    def place(x: Any) -> Any:
        return np.interp(x, at, even)

    steps = np.diff(np.log(at)) if at[0] > 0 else np.array([0.0, 1.0])
    if np.allclose(steps, steps[0]):
        set_scale("log")
    else:
        set_scale("function", functions=(place, lambda y: np.interp(y, even, at)))
    ticks = _round_numbers(at[0], at[-1], place)
    axis.set_ticks(ticks, [_written(tick) for tick in ticks])
    axis.set_ticks([], minor=True)


def _round_numbers(low: float, high: float, place: Any) -> list[float]:
    """Return round numbers in a range that are far enough apart on an axis from 0 to 1."""
    largest = math.floor(math.log10(max(abs(low), abs(high))))
    powers = 10.0 ** np.arange(largest, largest - 9, -1)
    found: list[float] = []
    for candidates in ([0.0], powers, -powers, 5 * powers, 2 * powers):
        for x in candidates:
            apart = all(abs(place(x) - place(y)) > _APART for y in found)
            if low <= x <= high and apart:
                found.append(float(x))
    return sorted(found)


def _written(x: float) -> str:
    """Format a tick: 25k and 3M in place of 25000 and 3000000."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if abs(x) >= unit and (abs(x) >= 1e4 or x % 1e3 == 0):
            return f"{x / unit:g}{letter}"
    return f"{x:g}"


def shortened(label: str) -> str:
    return label if len(label) <= _LETTERS else f"{label[: _LETTERS - 1]}…"
