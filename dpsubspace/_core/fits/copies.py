"""Columns that alone decide an outcome, as those do that were filled in after it was known.

Design note. Such a column makes a model look as good as can be, and useless where the outcome is
not yet known. Two released things tell of it together. After training, a private classifier
releases sums of ``p (1 - p)`` of the probabilities p of its rows, to correct their length
(:func:`~dpsubspace._core.solvers.intercepts.noisy_map`): they are next to nothing, beside what the
shares of the classes would give, where the outcome is decided. And the weights say whether one
column alone takes scores from one class to each other one. Many columns together may decide an
outcome, and one column may be all that a poor model has: neither is told.

Privacy: everything in here is postprocessing of what was released.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsubspace._core.ground.checks import shown
from dpsubspace.exceptions import PrivacyWarning, warn

# Where the numbers come from: thirteen tables with and without a copy of the outcome, at epsilon
# from 0.3 to 1e5. tests/estimators/test_copies.py has made ones.

# Largest mean of p (1 - p) of a decided outcome, beside that of a constant probability.
DECIDED = 0.07

# Least share of the squares of weights, or of the variance of scores, that is one column's.
_MOST_OF_WEIGHTS, MOST_OF_SCORES = 0.7, 0.5

# Largest such share that any other column may have: of two that decide together, the lesser one has
# more. A copy in a range that is far too wide may leave others as much, and is not told of then.
OTHERS = 0.15

# A column takes a row to a class where it makes that as likely as this, and does so alone where it
# does in so many of the rows that others can be like.
SURE, USUALLY = 0.9, 0.75

# By how much a column can move scores beside how far the mean row is from both classes.
_SWING = 2.5


def warn_of_copy(estimator: Any, column: Any) -> None:
    """Warn of a column that alone decides the outcome, if there is one."""
    if column is None:
        return
    warn(
        f"column {shown(column)} alone decides the outcome of nearly every row, as released numbers"
        " show. That is so where it copies the outcome, or was filled in after the outcome was"
        " known. Unless it is known before the outcome, drop it and fit again: the model is useless"
        " for rows whose outcome is not known yet.",
        PrivacyWarning,
        about=("copy", type(estimator).__name__, str(column)),
    )


def copying_column(classifier: Any) -> Any:
    """Name or number of a column that alone decides which of two classes a row has; or None.

    Weights count as if columns varied alike: where one is much larger than all others together,
    scores follow that column. Without a released mean nothing tells a decided outcome from one that
    is rare.
    """
    doubt, coef, mean = classifier._doubt, classifier.coef_, getattr(classifier, "mean_", None)
    if doubt is None or mean is None or len(coef) > 1 or not doubt.is_below(DECIDED / 4):
        return None
    squares = coef[0] ** 2
    found, bias = int(np.argmax(squares)), classifier._fitted_row_map.bias
    if squares[found] < _MOST_OF_WEIGHTS * squares.sum():
        return None
    weights = np.append(coef[0], classifier.intercept_) if bias else coef[0]
    from_both = abs(float(mean @ weights + classifier.offset_[0])) + np.log(SURE / (1 - SURE))
    if np.sqrt(squares[found]) / 2 < _SWING * from_both:  # an entry of a row is at most 1
        return None
    names = getattr(classifier, "feature_names_in_", None)
    return found if names is None else names[found]
