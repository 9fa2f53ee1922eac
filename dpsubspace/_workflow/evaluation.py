"""Pictures of what was released of a classifier on private rows: ROC and calibration curves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from dpsubspace._accounting.guarantee import PrivacyGuarantee
from dpsubspace._checks import shown
from dpsubspace._estimators.private_scores import private_score
from dpsubspace._estimators.score_request import PrivateScore
from dpsubspace._workflow.display import pyplot


class PrivateRocCurveDisplay:
    """ROC curve on private rows, with a band for noise and sampling.

    Made by :meth:`from_estimator`, which releases the curve and charges for it, or
    :meth:`from_released`, which draws what :func:`private_score` has released already and
    costs nothing. The picture is safe to publish with ``privacy`` beside it.

    Parameters
    ----------
    fpr : array-like of shape (n_points,)
        False positive rates, from 0 to 1.
    tpr : array-like of shape (n_points,)
        True positive rates.
    low, high : array-like of shape (n_points,) or None, default=None
        Ends of the band: both, or neither.
    roc_auc : PrivateScore, float or None, default=None
        Area under the curve, for the legend.
    name : str or None, default=None
        Name of the curve in the legend.
    level : float or None, default=None
        How often the band covers a point of it, which is not drawn.
    privacy : PrivacyGuarantee or None, default=None
        What the curve cost.

    Attributes
    ----------
    fpr, tpr, low, high, roc_auc, name, level, privacy
        As given.
    ax_ : matplotlib Axes
        Axes with the curve.
    figure_ : matplotlib Figure
        Figure with the axes.
    line_ : matplotlib Artist
        The curve.
    band_ : matplotlib Artist or None
        The band.
    chance_line_ : matplotlib Artist or None
        The diagonal.

    See Also
    --------
    private_score : Releases the curve, and other metrics at the same price.
    PrivateCalibrationDisplay : Whether probabilities are right.

    Notes
    -----
    The band is made of an interval at each point, for noise and for the rows being a sample. The
    whole curve is inside less often than a single point of it.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from dpsubspace import DPSGDFClassifier, PrivateRocCurveDisplay
    >>> X, y = make_classification(4000, random_state=0)
    >>> model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X[:2000], y[:2000])
    >>> display = PrivateRocCurveDisplay.from_estimator(model, X[2000:], y[2000:], epsilon=0.5)
    >>> display.ax_.get_xlabel(), display.privacy.epsilon
    ('False positive rate', 0.5)
    """

    # Set by `plot`.
    line_: Any
    band_: Any
    chance_line_: Any
    ax_: Any
    figure_: Any

    def __init__(
        self,
        *,
        fpr: Any,
        tpr: Any,
        low: Any = None,
        high: Any = None,
        roc_auc: Any = None,
        name: str | None = None,
        level: float | None = None,
        privacy: PrivacyGuarantee | None = None,
    ):
        self.fpr = fpr
        self.tpr = tpr
        self.low = low
        self.high = high
        self.roc_auc = roc_auc
        self.name = name
        self.level = level
        self.privacy = privacy

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        pos_label: Any = None,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        level: float = 0.95,
        random_state: Any = None,
        groups: Any = None,
        name: str | None = None,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Release the curve of a fitted classifier, and draw it.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier or Pipeline of two classes.
        X : array-like of shape (n_samples, n_features)
            Private rows that it was not fitted on.
        y : array-like of shape (n_samples,)
            Their labels.
        pos_label : int, float, bool or str, default=None
            Class that the curve is about; None is the second one of the estimator.
        epsilon, delta, neighboring_relation, level, random_state, groups
            As :func:`private_score` takes them.
        name : str or None, default=None
            Name of the curve; None is the class of the estimator.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : PrivateRocCurveDisplay
            The picture and its data, with what it cost in ``privacy``.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has been
            released then and no privacy spent.
        PrivacyError
            If noise hides one of the classes. The release has happened and stays charged.
        ImportError
            If matplotlib is not installed; nothing was released then.
        """
        pyplot(cls.__name__)
        released = private_score(
            estimator,
            X,
            y,
            metric="roc_auc",
            pos_label=_usual(estimator, pos_label),
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=neighboring_relation,
            level=level,
            random_state=random_state,
            groups=groups,
        )
        name = type(estimator).__name__ if name is None else name
        return cls.from_released(released, name=name, ax=ax, **plot_params)

    @classmethod
    def from_released(
        cls, released: Any, *, name: str | None = None, ax: Any = None, **plot_params: Any
    ) -> Self:
        """Draw a curve that was released before; this costs nothing.

        Parameters
        ----------
        released : PrivateScore or dict of str to PrivateScore
            What :func:`private_score` gave for "roc_auc" or "roc_curve", or for a list of metrics
            with one of them.
        name : str or None, default=None
            Name of the curve.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : PrivateRocCurveDisplay
            The picture and its data.

        Raises
        ------
        ValueError
            If there is no such curve in it, or noise hid it.
        """
        curve, others, privacy = _curve(released, "roc_curve")
        display = cls(
            fpr=curve.at,
            tpr=curve.value,
            low=curve.low,
            high=curve.high,
            roc_auc=others.get("roc_auc"),
            name=name,
            level=curve.level,
            privacy=privacy,
        )
        return display.plot(ax=ax, **plot_params)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        plot_chance_level: bool = True,
        line_kw: dict[str, Any] | None = None,
        band_kw: dict[str, Any] | None = None,
        chance_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in, which may hold other curves; None makes new ones.
        name : str or None, default=None
            Name of the curve; None is that of the display.
        plot_chance_level : bool, default=True
            Whether to draw the diagonal, where a guess would be.
        line_kw : dict or None, default=None
            Passed to ``ax.plot`` for the curve.
        band_kw : dict or None, default=None
            Passed to ``ax.fill_between``.
        chance_kw : dict or None, default=None
            Passed to ``ax.plot`` for the diagonal.

        Returns
        -------
        display : PrivateRocCurveDisplay
            This object, with the artists.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = _axes(type(self).__name__, ax)
        words = [self.name if name is None else name, _area(self.roc_auc)]
        label = ", ".join(word for word in words if word) or None
        (self.line_,) = ax.plot(self.fpr, self.tpr, **{"label": label} | (line_kw or {}))
        self.band_ = _band(ax, self.line_, self.fpr, self.low, self.high, band_kw)
        self.chance_line_ = None
        if plot_chance_level:
            options = {"color": "grey", "linestyle": ":", "label": "chance"} | (chance_kw or {})
            (self.chance_line_,) = ax.plot([0, 1], [0, 1], **options)
        ax.set(xlabel="False positive rate", ylabel="True positive rate", aspect="equal")
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        if ax.get_legend_handles_labels()[1]:
            ax.legend(loc="lower right")
        self.ax_, self.figure_ = ax, ax.figure
        return self


class PrivateCalibrationDisplay:
    """How often what is predicted happens, on private rows, with a band for noise and sampling.

    Made by :meth:`from_estimator`, which releases the curve and charges for it, or
    :meth:`from_released`, which draws what :func:`private_score` has released already and
    costs nothing. The picture is safe to publish with ``privacy`` beside it.

    Parameters
    ----------
    prob_pred : array-like of shape (n_points,)
        Mean predicted probability of the second class, of each cell of rows.
    prob_true : array-like of shape (n_points,)
        Share of the second class among the rows of the cell.
    low, high : array-like of shape (n_points,) or None, default=None
        Ends of the band: both, or neither.
    name : str or None, default=None
        Name of the curve in the legend.
    level : float or None, default=None
        How often the band covers a point of it, which is not drawn.
    privacy : PrivacyGuarantee or None, default=None
        What the curve cost.

    Attributes
    ----------
    prob_pred, prob_true, low, high, name, level, privacy
        As given.
    ax_ : matplotlib Axes
        Axes with the curve.
    figure_ : matplotlib Figure
        Figure with the axes.
    line_ : matplotlib Artist
        The curve.
    band_ : matplotlib Artist or None
        The band.
    reference_line_ : matplotlib Artist or None
        The diagonal, on which probabilities are right.

    See Also
    --------
    private_score : Releases the curve, and other metrics at the same price.
    DPCalibratedClassifier : Makes probabilities right by private rows.

    Notes
    -----
    The band is made of an interval at each point, for noise and for the rows being a sample. Points
    far from the diagonal with the band off it are probabilities that are wrong; below it they are
    too high. Where few rows have such a probability, the band is wide.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from dpsubspace import DPSGDFClassifier, PrivateCalibrationDisplay, private_score
    >>> X, y = make_classification(4000, random_state=0)
    >>> model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X[:2000], y[:2000])
    >>> metrics = ["accuracy", "calibration_curve"]  # for one price
    >>> scores = private_score(model, X[2000:], y[2000:], metric=metrics, random_state=0)
    >>> display = PrivateCalibrationDisplay.from_released(scores, name="private")
    >>> display.ax_.get_xlabel()
    'Predicted probability'
    """

    # Set by `plot`.
    line_: Any
    band_: Any
    reference_line_: Any
    ax_: Any
    figure_: Any

    def __init__(
        self,
        *,
        prob_pred: Any,
        prob_true: Any,
        low: Any = None,
        high: Any = None,
        name: str | None = None,
        level: float | None = None,
        privacy: PrivacyGuarantee | None = None,
    ):
        self.prob_pred = prob_pred
        self.prob_true = prob_true
        self.low = low
        self.high = high
        self.name = name
        self.level = level
        self.privacy = privacy

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        pos_label: Any = None,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        neighboring_relation: str = "zero_out",
        level: float = 0.95,
        random_state: Any = None,
        groups: Any = None,
        name: str | None = None,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Release the curve of a fitted classifier, and draw it.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier or Pipeline of two classes.
        X : array-like of shape (n_samples, n_features)
            Private rows that it was not fitted on.
        y : array-like of shape (n_samples,)
            Their labels.
        pos_label : int, float, bool or str, default=None
            Class that the curve is about; None is the second one of the estimator.
        epsilon, delta, neighboring_relation, level, random_state, groups
            As :func:`private_score` takes them.
        name : str or None, default=None
            Name of the curve; None is the class of the estimator.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : PrivateCalibrationDisplay
            The picture and its data, with what it cost in ``privacy``.

        Raises
        ------
        ValueError
            If a parameter is out of its range or the data cannot be used; nothing has been
            released then and no privacy spent.
        PrivacyError
            If noise hides one of the classes. The release has happened and stays charged.
        ImportError
            If matplotlib is not installed; nothing was released then.
        """
        pyplot(cls.__name__)
        released = private_score(
            estimator,
            X,
            y,
            metric="calibration_curve",
            pos_label=_usual(estimator, pos_label),
            epsilon=epsilon,
            delta=delta,
            neighboring_relation=neighboring_relation,
            level=level,
            random_state=random_state,
            groups=groups,
        )
        name = type(estimator).__name__ if name is None else name
        return cls.from_released(released, name=name, ax=ax, **plot_params)

    @classmethod
    def from_released(
        cls, released: Any, *, name: str | None = None, ax: Any = None, **plot_params: Any
    ) -> Self:
        """Draw a curve that was released before; this costs nothing.

        Parameters
        ----------
        released : PrivateScore or dict of str to PrivateScore
            What :func:`private_score` gave for "calibration_curve", or for a list of metrics with
            it.
        name : str or None, default=None
            Name of the curve.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : PrivateCalibrationDisplay
            The picture and its data.

        Raises
        ------
        ValueError
            If there is no such curve in it, or noise hid it.
        """
        curve, _, privacy = _curve(released, "calibration_curve")
        display = cls(
            prob_pred=curve.at,
            prob_true=curve.value,
            low=curve.low,
            high=curve.high,
            name=name,
            level=curve.level,
            privacy=privacy,
        )
        return display.plot(ax=ax, **plot_params)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        ref_line: bool = True,
        line_kw: dict[str, Any] | None = None,
        band_kw: dict[str, Any] | None = None,
        ref_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in, which may hold other curves; None makes new ones.
        name : str or None, default=None
            Name of the curve; None is that of the display.
        ref_line : bool, default=True
            Whether to draw the diagonal, on which probabilities are right.
        line_kw : dict or None, default=None
            Passed to ``ax.plot`` for the curve.
        band_kw : dict or None, default=None
            Passed to ``ax.fill_between``.
        ref_kw : dict or None, default=None
            Passed to ``ax.plot`` for the diagonal.

        Returns
        -------
        display : PrivateCalibrationDisplay
            This object, with the artists.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = _axes(type(self).__name__, ax)
        name = self.name if name is None else name
        options = {"marker": "o", "label": name} | (line_kw or {})
        (self.line_,) = ax.plot(self.prob_pred, self.prob_true, **options)
        self.band_ = _band(ax, self.line_, self.prob_pred, self.low, self.high, band_kw)
        self.reference_line_ = None
        if ref_line:
            options = {"color": "grey", "linestyle": ":", "label": "right on average"}
            (self.reference_line_,) = ax.plot([0, 1], [0, 1], **options | (ref_kw or {}))
        ax.set(xlabel="Predicted probability", ylabel="How often it happens", aspect="equal")
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        if ax.get_legend_handles_labels()[1]:
            ax.legend(loc="upper left")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _curve(
    released: Any, metric: str
) -> tuple[PrivateScore, Mapping[str, Any], PrivacyGuarantee | None]:
    """Curve called `metric`, all that was released with it, and what it cost where that is told."""
    if isinstance(released, PrivateScore):
        released = {released.metric: released}
    scores = released if isinstance(released, Mapping) else {}
    area, curve = scores.get("roc_auc"), scores.get(metric)
    if curve is None and metric == "roc_curve" and isinstance(area, PrivateScore):
        nothing = PrivateScore(metric, math.nan, math.nan, math.nan, area.level, area.n)
        curve = area.curve or nothing
    if not isinstance(curve, PrivateScore) or curve.metric != metric:
        raise ValueError(
            f"`released` must have the metric {metric!r}: private_score(model, X, y,"
            f" metric={metric!r}), alone or in a list, got {shown(released)}."
        )
    if curve.at is None:
        raise ValueError(f"noise hid {metric!r}: it is NaN, and there is nothing to draw.")
    return curve, scores, curve.privacy_


def _usual(estimator: Any, pos_label: Any) -> Any:
    """The class that a curve is about, the second one where none is said, as in scikit-learn."""
    classes = np.ravel(getattr(estimator, "classes_", []))
    return classes.tolist()[1] if pos_label is None and len(classes) == 2 else pos_label


def _axes(name: str, ax: Any) -> Any:
    """Axes to draw in."""
    plt = pyplot(name)
    return plt.subplots()[1] if ax is None else ax


def _band(ax: Any, line: Any, x: Any, low: Any, high: Any, band_kw: dict[str, Any] | None) -> Any:
    """Band of the color of a line; None where it has no ends."""
    if (low is None) != (high is None):
        missing, given = ("low", "high") if low is None else ("high", "low")
        raise ValueError(
            f"`{given}` is one end of the band, and `{missing}` is None: give both, or neither."
        )
    if low is None:
        return None
    options = {"color": line.get_color(), "alpha": 0.2, "linewidth": 0} | (band_kw or {})
    return ax.fill_between(np.asarray(x), np.asarray(low), np.asarray(high), **options)


def _area(found: Any) -> str:
    """Words for an area under the curve."""
    if found is None:
        return ""
    if isinstance(found, PrivateScore):
        return f"AUC {found.value:.3f} ({found.low:.3f} to {found.high:.3f})"
    return f"AUC {float(found):.3f}"
