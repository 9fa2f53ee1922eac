"""What runs around a fit: it may spend more than the model says, or learn from the same rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Binarizer, Normalizer, PolynomialFeatures
from sklearn.utils import get_tags

from dpsubspace._accounting.guarantee import PrivacyGuarantee
from dpsubspace._estimators.torch_features import TorchFeatures
from dpsubspace.exceptions import PrivacyWarning, warn

__all__ = ["warn_of_surroundings", "works_row_by_row"]

_ROW_BY_ROW = (Binarizer, FrozenEstimator, Normalizer, PolynomialFeatures, TorchFeatures)
# Those of modules that take long to import: where there is such a step, its module is there.
_OF_TEXT = {
    "sklearn.feature_extraction": "FeatureHasher",
    "sklearn.feature_extraction.text": "HashingVectorizer",
}
# Functions of a user's own, which may keep what they are given.
_FUNCTIONS = ("preprocessor", "tokenizer", "analyzer")

# Modules of scikit-learn that fit clones, by what they do.
_SEVERAL_FITS = {
    "sklearn.model_selection": "a search or a cross-validation",
    "sklearn.ensemble": "an ensemble",
    "sklearn.calibration": "a calibration",
    "sklearn.multiclass": "a classifier with a model for each class",
    "sklearn.multioutput": "an estimator with a model for each target",
    "sklearn.feature_selection": "a selection of features",
    "sklearn.semi_supervised": "a self-training classifier",
    "sklearn.inspection": "an inspection",
}


def works_row_by_row(step: Any) -> bool:
    """Whether `step` maps each row by itself and takes nothing else from the rows.

    scikit-learn's tag `requires_fit` does not tell: a FunctionTransformer may scale by
    the columns that it is given.
    """
    if isinstance(step, str):
        return step in ("passthrough", "drop")
    if any(callable(getattr(step, name, None)) for name in _FUNCTIONS):
        return False
    of_text = [getattr(sys.modules.get(module), name, None) for module, name in _OF_TEXT.items()]
    return step is None or type(step) in (*_ROW_BY_ROW, *of_text)


def warn_of_surroundings(estimator: Any, guarantee: PrivacyGuarantee, *, paid: bool) -> None:
    """Warn where a fit follows a step that learns, or is one of several that no ledger counts.

    `paid` says that one does; what it does not count then are scores. Told from the code that is
    running, so that it is found in workers as well.
    """
    name, learned = type(estimator).__name__, False
    for frame in _frames():
        module = frame.f_globals.get("__name__", "")
        where = next((s for m, s in _SEVERAL_FITS.items() if module.startswith(m)), None)
        if where is not None and paid:
            _warn_of_scores(name, module)
            return
        if where is not None:
            warn(
                f"{where} is fitting copies of {name}, and each fit costs"
                f" epsilon={guarantee.epsilon:.3g}: all of them together cost more than the"
                " statement on any one of them says, and scores on private rows are not covered"
                " at all. Run it inside of `with PrivacyLedger(...)`, which counts every fit, or"
                " use PrivateSearch, or public rows.",
                PrivacyWarning,
                about=("several fits", name),
            )
            return
        step = None if learned else _learning_step(frame)
        if step is not None:
            learned = True
            warn(
                f"step {step[0]!r} ({type(step[1]).__name__}) before {name} learns from the rows"
                " without any privacy, and what it has learned is part of the Pipeline: the"
                f" guarantee covers {name} alone. Use a BoundedScaler or a DPPCA, or fit the step"
                " on public rows and wrap it in sklearn.frozen.FrozenEstimator.",
                PrivacyWarning,
                about=("learning step", name, step[0]),
            )


def _warn_of_scores(name: str, module: str) -> None:
    """Warn where what is counted is chosen by what is not."""
    if module.startswith("sklearn.model_selection"):
        warn(
            f"the ledger counts each fit of {name} in this search or cross-validation, but its"
            " scores, and what it chooses by them, are computed from the private rows without any"
            " privacy. Use PrivateSearch to choose and private_score to publish, or public rows.",
            PrivacyWarning,
            about=("scores", name),
        )


def _frames() -> Iterator[FrameType]:
    """Frames of what is running, the innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _learning_step(frame: FrameType) -> tuple[str, Any] | None:
    """First step that learns from the rows without privacy, of a Pipeline whose fit `frame` is."""
    if frame.f_code.co_name not in ("fit", "fit_transform", "fit_predict"):
        return None
    pipeline = frame.f_locals.get("self")
    if type(pipeline) is not Pipeline:
        return None
    return next(((name, step) for name, step in pipeline.steps if _learns(step)), None)


def _learns(step: Any) -> bool:
    """Whether a step learns from its rows without privacy, as far as can be told."""
    for name in ("steps", "transformers", "transformer_list"):  # of what holds other steps
        inner = getattr(step, name, None)
        if isinstance(inner, list):
            return any(_learns(part[1]) for part in inner)
    ours = type(step).__module__.partition(".")[0] == __name__.partition(".")[0]
    if ours or works_row_by_row(step) or not get_tags(step).requires_fit:
        return False
    # Encoders that are told all categories learn nothing.
    return isinstance(getattr(step, "categories", "auto"), str)
