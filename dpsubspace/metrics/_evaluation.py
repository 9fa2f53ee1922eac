"""Displays of scores: scores against epsilon, and released curves of a classifier."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import check_scoring

from dpsubspace._core.accounting.budget import Target, share_of_parts
from dpsubspace._core.accounting.events import composed, is_free, non_private
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee
from dpsubspace._core.fits.call import private_function
from dpsubspace._core.fits.composites import private_parts
from dpsubspace._core.ground.checks import check_integer, check_real, shown
from dpsubspace._core.ground.plotting import Display, drawn_band, styled
from dpsubspace._core.plans.score_request import PrivateScore
from dpsubspace._names import public
from dpsubspace.budget._planner import plan_of, records_of
from dpsubspace.exceptions import PrivacyError
from dpsubspace.metrics._private_scores import private_score

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# Score against epsilon --------------------------------------------------------------------------


@public
@dataclass(kw_only=True, eq=False, repr=False)
class PrivacyUtilityDisplay(Display):
    """Score against epsilon: what privacy costs, and how much of that is luck.

    Draws the mean over repeated fits and a band of one standard deviation, on a
    logarithmic axis of epsilon. Made by :meth:`from_estimator`, which fits the models, or
    :meth:`from_scores`, which takes their scores.

    For public or synthetic rows, and for research: the picture is itself a release. On
    private rows it costs what all the fits behind it cost together, and the test scores
    besides, which nothing here protects. Choosing epsilon, or a model, by such a picture of
    private rows is not private at the epsilon that was chosen.

    Parameters
    ----------
    epsilons : array-like of shape (n_epsilons,)
        Privacy budgets; inf stands for no privacy and is drawn as a dashed line.
    scores : array-like of shape (n_epsilons, n_repeats)
        Score of each fit.
    name : str or None, default=None
        Name of the curve in the legend.
    score_name : str, default="Test score"
        What the scores are, at the vertical axis.
    chance_level : float or None, default=None
        Score of a guess, drawn as a dotted line.
    privacy_event : dp_accounting.DpEvent or None, default=None
        What all the fits cost together.

    Attributes
    ----------
    epsilons, scores, name, score_name, chance_level, privacy_event
        As given.
    ax_ : matplotlib Axes
        Axes with the curve.
    figure_ : matplotlib Figure
        Figure with the axes.
    line_ : matplotlib Artist
        Mean scores.
    band_ : matplotlib Artist or None
        One standard deviation around them; None for single fits.
    non_private_line_ : matplotlib Artist or None
        Mean score without privacy.
    chance_line_ : matplotlib Artist or None
        Chance level.

    See Also
    --------
    PrivacyLedger : Counts what the fits cost where the rows are private.

    Notes
    -----
    The band is the standard deviation (of a sample) over the noise of repeated fits to the
    same rows: it says how far one fit can be from the mean, and nothing about other rows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from dpsubspace import DPSGDFClassifier
    >>> from dpsubspace.metrics import PrivacyUtilityDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X, y, test_size=360, random_state=0)
    >>> display = PrivacyUtilityDisplay.from_estimator(
    ...     DPSGDFClassifier(), X, y, X_test=X_test, y_test=y_test, epsilons=[1, 10], n_repeats=2
    ... )
    >>> display.scores.shape
    (2, 2)
    >>> display.ax_.get_xscale()
    'log'
    """

    epsilons: Any
    scores: Any
    name: str | None = None
    score_name: str = "Test score"
    chance_level: float | None = None
    privacy_event: DpEvent | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        X_test: Any,
        y_test: Any,
        epsilons: Iterable[float] = (0.3, 1.0, 3.0, 10.0, math.inf),
        n_repeats: int = 5,
        scoring: str | Callable[..., float] | None = None,
        fit_params: dict[str, Any] | None = None,
        random_state: int | None = None,
        chance_level: float | None = None,
        name: str | None = None,
        score_name: str | None = None,
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Fit an estimator at many budgets, score the fits and draw them.

        Parameters
        ----------
        estimator : estimator or Pipeline
            One with ``epsilon`` and ``privacy_event``, or a Pipeline that ends in one and whose
            other steps have them too, work row by row, are frozen, or are a ColumnTransformer
            of such. It is cloned. Its own ``epsilon`` and ``random_state`` are not used, but
            for the ratio of the epsilons of several private steps.
        X : array-like of shape (n_samples, n_features)
            Rows to fit, public ones: see the class.
        y : array-like of shape (n_samples,)
            Their targets.
        X_test : array-like of shape (n_test_samples, n_features)
            Rows to score.
        y_test : array-like of shape (n_test_samples,)
            Their targets.
        epsilons : iterable of float, default=(0.3, 1, 3, 10, inf)
            Budgets of a whole fit. Where several steps are private, they share it as
            :func:`share_budget` does, in the ratio that their own epsilons say, and at the
            largest delta of theirs. At inf, without noise, there is one fit.
        n_repeats : int, default=5
            Fits of each budget, with independent noise.
        scoring : str, callable or None, default=None
            A scorer of scikit-learn; None is the estimator's own ``score``.
        fit_params : dict or None, default=None
            Passed to ``fit``.
        random_state : int or None, default=None
            Seed that the seeds of all fits are made of. None draws secure noise.
        chance_level : float or None, default=None
            Score of a guess, drawn as a dotted line.
        name : str or None, default=None
            Name of the curve; None is the class of the last private step.
        score_name : str or None, default=None
            What the scores are; None names the scorer.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : PrivacyUtilityDisplay
            The picture and its data, with the composed ``privacy_event`` of all fits; it is
            "not private" where one was seeded or had epsilon inf.

        Raises
        ------
        ValueError
            If `estimator` does not end in a private step, if another step may learn from the
            rows without privacy, or if a parameter is out of its range.
        ImportError
            If matplotlib is not installed; nothing was fitted then.
        """
        cls._pyplot()
        epsilons = _checked_epsilons(epsilons)
        check_integer("n_repeats", n_repeats, low=1)
        if random_state is not None:
            check_integer("random_state", random_state, low=0)
        name = type(_parts(estimator)[-1]).__name__ if name is None else name
        # Untyped: scikit-learn's own annotations do not know the type of the result.
        scorer: Any = check_scoring(estimator, scoring)
        fit_params = fit_params or {}
        n_samples = records_of(X, fit_params)[0]

        def plan(part: Any) -> DpEvent:
            return plan_of(part, X, y, fit_params)

        scores = np.empty((len(epsilons), n_repeats))
        # Each step of each fit has its own seed: noise that is used twice cancels in differences.
        source, events = np.random.SeedSequence(random_state), []
        for i, epsilon in enumerate(epsilons):
            planned = _model(estimator, float(epsilon), plan, n_samples)
            for j in range(n_repeats if epsilon < math.inf else 1):
                model: Any = clone(planned)
                parts = _parts(model)
                seeds = source.spawn(1)[0].generate_state(len(parts))
                for part, seed in zip(parts, seeds, strict=True):
                    part._set_whole(random_state=None if random_state is None else int(seed))
                model.fit(X, y, **fit_params)
                scores[i, j:] = scorer(model, X_test, y_test)
                events.append(_spent(model))
        display = cls(
            epsilons=epsilons,
            scores=scores,
            name=name,
            score_name=_score_name(estimator, scoring) if score_name is None else score_name,
            chance_level=chance_level,
            privacy_event=composed(events),
        )
        return display.plot(ax=ax, **plot_params)

    @classmethod
    def from_scores(
        cls,
        epsilons: Any,
        scores: Any,
        *,
        chance_level: float | None = None,
        name: str | None = None,
        score_name: str = "Test score",
        ax: Any = None,
        **plot_params: Any,
    ) -> Self:
        """Draw scores that were computed elsewhere.

        Parameters
        ----------
        epsilons : array-like of shape (n_epsilons,)
            Privacy budgets; inf stands for no privacy.
        scores : array-like of shape (n_epsilons,) or (n_epsilons, n_repeats)
            Score of each fit.
        chance_level : float or None, default=None
            Score of a guess, drawn as a dotted line.
        name : str or None, default=None
            Name of the curve.
        score_name : str, default="Test score"
            What the scores are.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : PrivacyUtilityDisplay
            The picture and its data; what the fits cost is not known to it.

        Raises
        ------
        ValueError
            If the shapes do not fit, or a budget is not a positive number.
        """
        epsilons = _checked_epsilons(epsilons)
        scores = np.asarray(scores, dtype=np.float64)
        scores = scores[:, None] if scores.ndim == 1 else scores
        if scores.ndim != 2 or len(scores) != len(epsilons) or not scores.shape[1]:
            raise ValueError(
                f"`scores` must have one row for each of the {len(epsilons)} entries of `epsilons`"
                f" and one column a repeat, got shape {scores.shape}."
            )
        display = cls(
            epsilons=epsilons,
            scores=scores,
            name=name,
            score_name=score_name,
            chance_level=chance_level,
        )
        return display.plot(ax=ax, **plot_params)

    def plot(
        self,
        ax: Any = None,
        *,
        name: str | None = None,
        line_kw: dict[str, Any] | None = None,
        band_kw: dict[str, Any] | None = None,
        non_private_kw: dict[str, Any] | None = None,
        chance_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Draw the curve.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw in, which may hold other curves; None makes new ones.
        name : str or None, default=None
            Name of the curve; None is that of the display.
        line_kw : dict or None, default=None
            Passed to ``ax.plot`` for the means.
        band_kw : dict or None, default=None
            Passed to ``ax.fill_between``.
        non_private_kw : dict or None, default=None
            Passed to ``ax.axhline`` for the score without privacy.
        chance_kw : dict or None, default=None
            Passed to ``ax.axhline`` for the chance level.

        Returns
        -------
        display : PrivacyUtilityDisplay
            This object, with the artists.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        ax = self._draw_in(ax)
        name = self.name if name is None else name
        epsilons, scores = np.asarray(self.epsilons, dtype=np.float64), np.asarray(self.scores)
        order = np.argsort(epsilons)
        order = order[np.isfinite(epsilons[order])]
        x, mean = epsilons[order], scores[order].mean(axis=1)
        self.line_: Any = ax.plot(x, mean, **styled(line_kw, marker="o", label=name))[0]
        color = self.line_.get_color()
        self.band_: Any = None
        self.non_private_line_: Any = None
        self.chance_line_: Any = None
        if scores.shape[1] > 1:
            spread = scores[order].std(axis=1, ddof=1)
            self.band_ = drawn_band(ax, x, mean - spread, mean + spread, color, band_kw)
        if np.isinf(epsilons).any():
            label = "not private" if name is None else f"{name}, not private"
            options = styled(non_private_kw, color=color, linestyle="--", label=label)
            self.non_private_line_ = ax.axhline(scores[np.isinf(epsilons)].mean(), **options)
        if self.chance_level is not None:
            options = styled(chance_kw, color="grey", linestyle=":", label="chance")
            self.chance_line_ = ax.axhline(self.chance_level, **options)
        ax.set(xscale="log", xlabel="epsilon (smaller is more private)", ylabel=self.score_name)
        ax.xaxis.set_major_formatter("{x:g}")
        self._write_legend()
        return self


def _checked_epsilons(epsilons: Any) -> np.ndarray:
    values = [
        check_real("epsilons[...]", epsilon, low=0, include_high=True) for epsilon in epsilons
    ]
    if all(value == math.inf for value in values) or len(set(values)) < len(values):
        raise ValueError(
            f"`epsilons` must hold different budgets, at least one of them finite, got {values!r}."
        )
    return np.array(values)


def _parts(estimator: Any) -> list[Any]:
    try:
        parts = [part for _, part in private_parts(estimator)]
    except PrivacyError as error:
        raise ValueError(
            f"`estimator` cannot be drawn: {error} For anything else compute the scores yourself"
            " and use from_scores."
        ) from error
    if any(getattr(part._whole, "epsilon", None) is None for part in parts):
        raise ValueError(
            "every private step of `estimator` needs an `epsilon`, which is then scaled: give one"
            " in the place of a noise multiplier."
        )
    if len({part._whole.neighboring_relation for part in parts}) > 1:
        raise ValueError("all private steps of `estimator` need the same `neighboring_relation`.")
    return parts


def _spent(model: Any) -> DpEvent:
    found = [getattr(part, "privacy_", None) for _, part in private_parts(model, fitted=True)]
    return composed(cost.event if cost.secure else non_private() for cost in found if cost)


def _score_name(estimator: Any, scoring: Any) -> str:
    if scoring is None:
        words = "accuracy" if is_classifier(estimator) else "R²" if is_regressor(estimator) else ""
    elif isinstance(scoring, str):
        words = scoring
    else:  # a function, or a scorer of make_scorer, whose metric only its repr names
        made = re.match(r"make_scorer\((\w+)", repr(scoring))
        words = made.group(1) if made else getattr(scoring, "__name__", "").strip("<>")
    return f"Test {words.replace('_', ' ') or 'score'}"


def _model(estimator: Any, epsilon: float, plan: Callable[..., DpEvent], n_samples: int) -> Any:
    """Return a clone of `estimator` whose whole fit costs `epsilon`.

    Private steps share it in the ratio of their own epsilons.
    """
    model: Any = clone(estimator)
    parts = _parts(model)
    if epsilon == math.inf:
        for part in parts:
            part._set_whole(epsilon=epsilon)
        return model
    delta = max(Target(1.0, part._whole.delta).delta_at(n_samples) for part in parts)
    share_of_parts(
        [part for part in parts if not is_free(plan(part))], plan, epsilon=epsilon, delta=delta
    )
    return model


# Released curves --------------------------------------------------------------------------------


class _ReleasedCurve(Display):
    # Metric to request, and the metric that has the curve.
    _metric: str
    _curve: str
    low: Any
    high: Any

    @classmethod
    def _made(cls, curve: PrivateScore, scores: Mapping[str, Any], **common: Any) -> Any:
        raise NotImplementedError

    @classmethod
    @private_function
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
        display : Self
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
        cls._pyplot()
        released = private_score(
            estimator,
            X,
            y,
            metric=cls._metric,
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
            What :func:`private_score` gave for "roc_auc", "roc_curve" or "calibration_curve",
            whichever is drawn, or for a list of metrics with it.
        name : str or None, default=None
            Name of the curve.
        ax : matplotlib Axes or None, default=None
            Axes to draw in; None makes new ones.
        **plot_params : dict
            Passed to :meth:`plot`.

        Returns
        -------
        display : Self
            The picture and its data.

        Raises
        ------
        ValueError
            If there is no such curve in it, or noise hid it.
        """
        curve, scores = _released_curve(released, cls._curve)
        common = {"low": curve.low, "high": curve.high, "level": curve.level}
        display = cls._made(curve, scores, name=name, privacy=curve.privacy_, **common)
        return display.plot(ax=ax, **plot_params)

    def _draw(self, x: Any, y: Any, line: Any, band_kw: Any, diagonal: Any) -> Any:
        if (self.low is None) != (self.high is None):
            missing, given = ("low", "high") if self.low is None else ("high", "low")
            raise ValueError(
                f"`{given}` is one end of the band, and `{missing}` is None: give both, or neither."
            )
        ax = self.ax_
        self.band_: Any = None
        self.line_: Any = ax.plot(x, y, **line)[0]
        if self.low is not None:
            color = self.line_.get_color()
            self.band_ = drawn_band(ax, x, self.low, self.high, color, band_kw)
        ax.set(aspect="equal", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        return None if diagonal is None else ax.plot([0, 1], [0, 1], **diagonal)[0]


@public
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRocCurveDisplay(_ReleasedCurve):
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
    >>> from dpsubspace import DPSGDFClassifier
    >>> from dpsubspace.metrics import PrivateRocCurveDisplay
    >>> X, y = make_classification(4000, random_state=0)
    >>> model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X[:2000], y[:2000])
    >>> display = PrivateRocCurveDisplay.from_estimator(model, X[2000:], y[2000:], epsilon=0.5)
    >>> display.ax_.get_xlabel(), display.privacy.epsilon
    ('False positive rate', 0.5)
    """

    fpr: Any
    tpr: Any
    low: Any = None
    high: Any = None
    roc_auc: Any = None
    name: str | None = None
    level: float | None = None
    privacy: PrivacyGuarantee | None = None

    _metric, _curve = "roc_auc", "roc_curve"

    @classmethod
    def _made(cls, curve: PrivateScore, scores: Mapping[str, Any], **common: Any) -> Any:
        return cls(fpr=curve.at, tpr=curve.value, roc_auc=scores.get("roc_auc"), **common)

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
        ax = self._draw_in(ax)
        words = [self.name if name is None else name, _area(self.roc_auc)]
        line = styled(line_kw, label=", ".join(word for word in words if word) or None)
        chance = styled(chance_kw, color="grey", linestyle=":", label="chance")
        chance = chance if plot_chance_level else None
        self.chance_line_: Any = self._draw(self.fpr, self.tpr, line, band_kw, chance)
        ax.set(xlabel="False positive rate", ylabel="True positive rate")
        self._write_legend(loc="lower right")
        return self


@public
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateCalibrationDisplay(_ReleasedCurve):
    """Calibration plot of private rows, with a band for noise and sampling.

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
    >>> from dpsubspace import DPSGDFClassifier, private_score
    >>> from dpsubspace.metrics import PrivateCalibrationDisplay
    >>> X, y = make_classification(4000, random_state=0)
    >>> model = DPSGDFClassifier(epsilon=1.0, random_state=0).fit(X[:2000], y[:2000])
    >>> metrics = ["accuracy", "calibration_curve"]  # for one price
    >>> scores = private_score(model, X[2000:], y[2000:], metric=metrics, random_state=0)
    >>> display = PrivateCalibrationDisplay.from_released(scores, name="private")
    >>> display.ax_.get_xlabel()
    'Predicted probability'
    """

    prob_pred: Any
    prob_true: Any
    low: Any = None
    high: Any = None
    name: str | None = None
    level: float | None = None
    privacy: PrivacyGuarantee | None = None

    _metric = _curve = "calibration_curve"

    @classmethod
    def _made(cls, curve: PrivateScore, scores: Mapping[str, Any], **common: Any) -> Any:
        return cls(prob_pred=curve.at, prob_true=curve.value, **common)

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
        ax = self._draw_in(ax)
        line = styled(line_kw, marker="o", label=self.name if name is None else name)
        right = styled(ref_kw, color="grey", linestyle=":", label="right on average")
        right = right if ref_line else None
        self.reference_line_: Any = self._draw(self.prob_pred, self.prob_true, line, band_kw, right)
        ax.set(xlabel="Predicted probability", ylabel="How often it happens")
        self._write_legend(loc="upper left")
        return self


def _released_curve(released: Any, metric: str) -> tuple[PrivateScore, Mapping[str, Any]]:
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
    return curve, scores


def _usual(estimator: Any, pos_label: Any) -> Any:
    classes = np.ravel(getattr(estimator, "classes_", []))
    return classes.tolist()[1] if pos_label is None and len(classes) == 2 else pos_label


def _area(found: Any) -> str:
    if found is None:
        return ""
    if isinstance(found, PrivateScore):
        return f"AUC {found.value:.3f} ({found.low:.3f} to {found.high:.3f})"
    return f"AUC {float(found):.3f}"
