"""Metrics as they are asked for: which there are, what they are about, and what they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsubspace._checks import shown
from dpsubspace._statistics.score_metrics import FROM_CELLS, FROM_LABELS, SUMS, needed_sums

__all__ = ["Asked", "classes_of"]

# Scorers of scikit-learn that are something else with another sign or name.
_SAME = {
    "neg_log_loss": ("log_loss", -1),
    "neg_brier_score": ("brier_score_loss", -1),
    "neg_mean_absolute_error": ("mean_absolute_error", -1),
    "neg_mean_squared_error": ("mean_squared_error", -1),
    "neg_root_mean_squared_error": ("root_mean_squared_error", -1),
    "brier": ("brier_score_loss", 1),
}
_REGRESSION = (
    "mean_absolute_error",
    "mean_squared_error",
    "root_mean_squared_error",
    "r2",
)

# What there is in place of metrics that are for two classes.
_FOR_MANY = {
    "precision": "precision_macro",
    "recall": "recall_macro",
    "f1": "f1_macro",
    "specificity": "recall_macro",
    "roc_auc": "roc_auc_ovr",
    "roc_curve": "roc_auc_ovr",
    "calibration_curve": "log_loss",
}

# Metrics that are about one of two classes. The area under the ROC curve is not, but its curve is.
_OF_A_CLASS = ("precision", "recall", "f1", "specificity", "roc_curve", "calibration_curve")
_WITH_CURVE = "roc_auc"

_KNOWN = tuple(dict.fromkeys([*FROM_LABELS, *FROM_CELLS, *SUMS, "roc_auc_ovr", *_SAME]))


@dataclass(frozen=True)
class Asked:
    """Metrics as they were asked for, and what has to be released for them.

    Parameters
    ----------
    names : tuple of str
        As they were asked for.
    plain : tuple of str
        Names of what they are made of.
    one : bool
        Whether a single one was asked for.
    pos : int or None
        Which of two classes metrics are about; None where there are not two, or none is needed.
    """

    names: tuple[str, ...]
    plain: tuple[str, ...]
    one: bool
    pos: int | None = None

    @classmethod
    def of(cls, metric: Any) -> Asked:
        """ValueError unless all are known and of one kind of model."""
        one = isinstance(metric, str)
        names = (metric,) if one else tuple(metric) if isinstance(metric, Sequence) else ()
        unknown = [name for name in names if not (isinstance(name, str) and name in _KNOWN)]
        if not names or unknown or len(set(names)) < len(names):
            raise ValueError(
                f"`metric` must be one of {sorted(_KNOWN)}, or a list of different ones, got"
                f" {shown(metric)}."
            )
        plain = tuple(_SAME.get(name, (name, 1))[0] for name in names)
        numbers = [name for name in plain if name in _REGRESSION]
        if numbers and len(numbers) < len(plain):
            raise ValueError(
                f"`metric` has metrics of classifiers and of regressors, got {shown(metric)}: ask"
                " for them one by one."
            )
        return cls(names, plain, one)

    def about(self, classes: np.ndarray, pos_label: Any) -> Asked:
        """The same for a model of such classes; ValueError where they do not fit."""
        if len(classes) == 2:
            plain = tuple("roc_auc" if name == "roc_auc_ovr" else name for name in self.plain)
            asked = replace(self, plain=plain)
            return replace(asked, pos=asked._positive(classes.tolist(), pos_label))
        few = next((name for name in self.plain if name in _FOR_MANY), None)
        if few is not None and len(classes):
            raise ValueError(
                f"metric={few!r} is for two classes, and the model has {len(classes)}: ask for"
                f" {_FOR_MANY[few]!r}. There are also 'balanced_accuracy', 'precision_macro',"
                " 'recall_macro', 'f1_macro', 'roc_auc_ovr', 'log_loss' and 'confusion_matrix'."
            )
        self._check_needs_no(pos_label)
        return self

    def _positive(self, classes: list[Any], pos_label: Any) -> int | None:
        """Index of the class that metrics are about, by the rules of scikit-learn."""
        needed = next((name for name in self.plain if name in _OF_A_CLASS), None)
        if needed is None and _WITH_CURVE not in self.plain:
            self._check_needs_no(pos_label)
            return None
        if pos_label is None:
            usual = sorted(classes) in ([0, 1], [-1, 1]) if _are_numbers(classes) else False
            if needed is not None and not usual:
                raise ValueError(
                    f"`pos_label` is not specified, and the classes are {classes}: metric="
                    f"{needed!r} is about one of them. Pass it, such as pos_label={classes[1]!r},"
                    " or fit the model on labels 0 and 1, or -1 and 1, of which it is 1."
                )
            return classes.index(1) if usual else 1
        if np.ndim(pos_label) or pos_label not in classes:
            raise ValueError(
                f"pos_label={shown(pos_label)} is not a valid label: It should be one of {classes}."
            )
        return classes.index(pos_label)

    def _check_needs_no(self, pos_label: Any) -> None:
        if pos_label is not None:
            raise ValueError(
                f"pos_label={shown(pos_label)} has no effect on metric={shown(self.names)}, which"
                f" are about no class of two: leave it out. Metrics that are: {[*_OF_A_CLASS]}."
            )

    def sign(self, name: str) -> int:
        """-1 for scorers that turn an error into a score."""
        return _SAME.get(name, (name, 1))[1]

    @property
    def regression(self) -> bool:
        """Whether targets are numbers."""
        return self.plain[0] in _REGRESSION

    @property
    def flipped(self) -> bool:
        """Whether metrics are about the first of two classes."""
        return self.pos == 0

    @property
    def labels(self) -> bool:
        """Whether predicted labels are needed."""
        return any(name in FROM_LABELS for name in self.plain)

    @property
    def ranked(self) -> bool:
        """Whether scores are counted in cells: of the second class, or of each one of many."""
        return any(name in (*FROM_CELLS, "roc_auc_ovr") for name in self.plain)

    @property
    def confusion(self) -> bool:
        """Whether predicted labels are counted by themselves."""
        if any(name in FROM_CELLS for name in self.plain):
            return False
        return any(name in FROM_LABELS and name != "accuracy" for name in self.plain)

    @property
    def sums(self) -> dict[str, float]:
        """Sums over rows, with shares of their noise."""
        counted = self.confusion or any(name in FROM_CELLS for name in self.plain)
        summed = [name for name in self.plain if name in SUMS]
        summed = [name for name in summed if not (counted and name == "accuracy")]
        return needed_sums(summed) if summed else {}

    def is_of_a_class(self, plain: str) -> bool:
        """Whether a metric is about one class."""
        return self.pos is not None and plain in _OF_A_CLASS


def classes_of(model: Any) -> np.ndarray:
    """Classes of a model, in its order."""
    if not hasattr(model, "classes_"):
        raise ValueError(
            f"{type(model).__name__} has no `classes_`: fit a classifier first, or ask for a metric"
            " of regressors, such as 'root_mean_squared_error'."
        )
    classes = np.asarray(model.classes_)
    if classes.ndim != 1 or len(classes) < 2:
        raise ValueError("the model must know one list of at least two classes.")
    return classes


def _are_numbers(classes: list[Any]) -> bool:
    return all(isinstance(each, (bool, int, float)) for each in classes)
