"""The plot of how much each column of a table counts in a private model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpsubspace._core.ground.checks import check_integer, check_real
from dpsubspace._core.ground.plotting import Display, styled
from dpsubspace._core.rows.seen_rows import has_seen
from dpsubspace._core.tables.schema import read_table
from dpsubspace._names import public
from dpsubspace.inspection._shape_display import (
    outputs_of,
    refuse_texts_alone,
    score_name_of,
    shortened,
    table_steps,
)
from dpsubspace.tables._column_importances import importances_of


@public
@dataclass(kw_only=True, eq=False, repr=False)
class ImportanceDisplay(Display):
    """How much each column of a table counts in a private model, with bands for the noise.

    A bar shows the total Sobol index of a column: the share of the variance of the score that goes
    with the column, alone and together with others. The score is the log-odds for a classifier with
    the log loss, and the prediction for a regressor. A column that the model does not use has 0,
    and if the model uses a single column, that one has 1. Columns of text are left out: the shares
    are those of the other columns among each other.

    The plot is made of the fitted model alone. Its weights are released and the schema is
    public, so that it costs no privacy and can be published with the model. Importances by
    permuting private rows, as :func:`sklearn.inspection.permutation_importance` has them, would
    cost some.

    Made by :meth:`from_estimator`.

    Parameters
    ----------
    importances : array-like of shape (n_columns,)
        Total Sobol indices, from 0 to 1.
    names : sequence of str
        Names of the columns.
    low, high : array-like of shape (n_columns,) or None, default=None
        Ends of the bands. None draws no whiskers.
    score_name : str, default="score"
        Of what the bars are shares of the variance, at the axis.
    level : float, default=0.9
        Share of the columns, over many fits, whose importance in the same fit without noise should
        lie in its band.

    Attributes
    ----------
    importances, names, low, high, score_name, level
        As given.
    ax_ : matplotlib Axes
        Axes with the bars.
    figure_ : matplotlib Figure
        Their figure.
    bars_ : matplotlib Container
        Bars of the columns that are drawn, the most important first.

    See Also
    --------
    ShapeDisplay : What the model has learned of each column.
    TabularPipeline : Has the same numbers in its attribute `feature_importances_`.
    sklearn.inspection.permutation_importance : Importances of any model, from rows, which must be
        public then.

    Notes
    -----
    Nothing is released, and no private row is used. Columns are taken to be independent of each
    other. Without `X_public`, each number of a range is as likely as any other on the scale that it
    is read on, each category is as likely as any other, and one value in ten is missing in columns
    that are declared with ``missing=True``. So a column counts by what the model makes of its whole
    range, also where the range is wider than the values are. With `X_public`, each column has the
    values of the public rows.

    Importances tell what the model uses, and not what the world is like. Columns that go together,
    such as height and weight, share or hide importance: the model can use either of them, and one
    of them may look useless only because the other is there. None of this is causal.

    Importances add up to 1 where no columns act together, and to more where some do. For several
    classes the mean over the classes is subtracted from the scores, since only differences count.
    Variances of several classes or targets are added.

    Noise in the weights makes all importances alike. What it adds to the variance on average is
    known, and is taken out. A column in which there is not more than that has importance 0. The
    band says where the importance may be in the same fit without noise. How far noise moves weights
    is not known exactly, as the Notes of :class:`ShapeDisplay` say, and bands are cautious: a long
    band means that noise hides how important a column is. On twelve tables, bands of 90 % covered
    at least 95 % of the importances; of single columns of two of them 72 and 84 %. Bands of the
    solver "moments" are too narrow where rows are so few that it should not be used.

    There are no bands, and nothing is taken out, for ``epsilon=float("inf")`` and where the noise
    is not known: for :class:`GradientDirections`, for ``mirror=True``, and for the solvers "adassp"
    and "ambssgd".

    References
    ----------
    Homma, Saltelli. "Importance measures in global sensitivity analysis of nonlinear models".
    Reliability Engineering and System Safety 52, 1996.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dpsubspace import DPSGDFClassifier, tabular_pipeline
    >>> from dpsubspace.inspection import ImportanceDisplay
    >>> rng = np.random.default_rng(0)
    >>> age, ward = rng.uniform(18, 95, 3000), rng.choice(["A", "B"], 3000)
    >>> frame = pd.DataFrame({"age": age, "ward": ward})
    >>> model = tabular_pipeline(DPSGDFClassifier(), {"age": (18, 100), "ward": ["A", "B"]})
    >>> display = ImportanceDisplay.from_estimator(model.fit(frame, age > 65))
    >>> dict(zip(display.names, (display.importances > 0.5).tolist()))
    {'age': True, 'ward': False}
    """

    importances: Any
    names: Sequence[str]
    low: Any = None
    high: Any = None
    score_name: str = "score"
    level: float = 0.9

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        X_public: Any = None,
        target: Any = None,
        level: float = 0.9,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Compute the importances of a fitted pipeline, and draw them.

        Parameters
        ----------
        estimator : TabularPipeline or Pipeline
            A fitted pipeline of a :class:`TableEncoder` and a linear model of this package, such as
            :func:`tabular_pipeline` makes.
        X_public : data frame or None, default=None
            Public rows that tell which values each column has, and how often. Private rows must not
            be passed: what is drawn would not be private. None takes the values from the schema.
        target : object or None, default=None
            Which class is meant where there are more than two, or which target (its place, from 0)
            where there are several. None takes all of them together.
        level : float, default=0.9
            Share of the columns, over many fits, whose importance in the same fit without noise
            should lie in its band.
        ax : matplotlib Axes or None, default=None
            Axes to draw in. None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : ImportanceDisplay
            The picture and its data.

        Raises
        ------
        ValueError
            If `estimator` is no such pipeline, the public rows are not those of its schema, or a
            parameter is out of its range.
        NotFittedError
            If it is not fitted.
        ImportError
            If matplotlib is not installed.
        """
        cls._pyplot()
        check_real("level", level, low=0, high=1)
        encoder, model = table_steps(cls.__name__, estimator)
        schema, public = encoder.schema_, None
        if X_public is not None:
            if has_seen(estimator, X_public):
                raise ValueError(
                    "`X_public` has rows that this pipeline was fitted to: nothing protects public"
                    " rows, and importances would tell of them. Pass rows that are really public,"
                    " or None."
                )
            public = read_table(X_public, schema, name="X_public", named=encoder._reordered)
            if not len(public.numbers):
                raise ValueError("`X_public` has no rows: pass some, or None.")
        outputs, output = outputs_of(model, target)
        refuse_texts_alone(cls.__name__, schema)
        found = importances_of(encoder.encoding_, model, level=level, public=public, output=output)
        drawn = [name not in schema.texts for name in schema]
        display = cls(
            importances=found.values[drawn],
            names=[name for name in schema if name not in schema.texts],
            low=None if found.low is None else found.low[drawn],
            high=None if found.high is None else found.high[drawn],
            score_name=score_name_of(estimator, outputs),
            level=level,
        )
        return display.plot(ax=ax, **plot_params)

    def plot(
        self, ax: Any = None, *, max_columns: int = 20, bar_kw: dict[str, Any] | None = None
    ) -> Self:
        """Draw the importances.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in. None makes new ones.
        max_columns : int, default=20
            Most columns that are drawn: the most important ones.
        bar_kw : dict or None, default=None
            Passed to ``ax.barh``.

        Returns
        -------
        display : ImportanceDisplay
            This object, with the artists.

        Raises
        ------
        ValueError
            If a parameter is out of its range.
        ImportError
            If matplotlib is not installed.
        """
        check_integer("max_columns", max_columns, low=1)
        values = np.asarray(self.importances, dtype=float)
        kept = np.argsort(-values, kind="stable")[:max_columns]
        ax = self._draw_in(ax, (6.4, 1.0 + 0.3 * len(kept)))
        whiskers, label = None, f"share of the variance of the {self.score_name}"
        if self.low is not None and self.high is not None:
            whiskers = [values[kept] - np.asarray(self.low)[kept]]
            whiskers.append(np.asarray(self.high)[kept] - values[kept])
            label += f"\n(whiskers: where it may be without noise, {self.level:.0%})"
        usual = {"color": "#0072b2", "alpha": 0.75, "error_kw": {"elinewidth": 1.0}}
        places = np.arange(len(kept))
        self.bars_ = ax.barh(places, values[kept], 0.7, **styled(bar_kw, xerr=whiskers, **usual))
        ax.set_yticks(places, [shortened(str(self.names[i])) for i in kept])
        ax.invert_yaxis()
        ax.set_xlim(0, 1)
        ax.set_xlabel(label)
        few = "" if len(kept) == len(values) else f" ({len(kept)} of {len(values)} columns)"
        ax.set_title(f"Importance{few}")
        return self
