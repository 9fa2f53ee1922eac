"""Columns that alone decide an outcome, such as those filled in after it was known.

Design note. Such a column makes a model look as good as possible, but useless where the outcome is
not yet known. Two released quantities reveal it together. After training, a private classifier
releases sums of ``p (1 - p)`` of the probabilities p of its rows, to correct their scale
(:func:`~dpsubspace._core.solvers.intercepts.noisy_map`): where the outcome is decided, they are
tiny compared with the value for constant probabilities at the shares of the classes. And the
weights show whether one column alone moves scores from one class to each other class. Many columns
together may decide an outcome, and one column may be all that a poor model has: neither gives a
warning.

Privacy: everything in this module is postprocessing of released quantities.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsubspace._core.ground.checks import shown
from dpsubspace.exceptions import PrivacyWarning, warn

# Origin of the numbers: thirteen tables with and without a copy of the outcome, at epsilon from 0.3
# to 1e5. tests/estimators/test_copies.py has synthetic tables.

# Largest mean of p (1 - p) for a decided outcome, over that of a constant probability.
DECIDED = 0.07

# Least share of one column in the squares of weights, or in the variance of scores.
_MOST_OF_WEIGHTS, MOST_OF_SCORES = 0.7, 0.5

# Largest such share of any other column: where two columns decide together, the lesser one has
# more. A copy in a range that is far too wide may leave others as much, and then gives no warning.
OTHERS = 0.15

# A column moves a row to a class where it makes the class as likely as SURE, and does so alone
# where this holds for a share USUALLY of the possible rows of other columns.
SURE, USUALLY = 0.9, 0.75

# Least ratio of how far a column can move scores to the distance of the mean row from both classes.
_SWING = 2.5


def warn_of_copy(estimator: Any, column: Any) -> None:
    """Warn about a column that alone decides the outcome, if there is one."""
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

    Weights are compared as if all columns varied equally: where one weight is much larger than all
    others together, scores follow that column. Without a released mean, a decided outcome cannot be
    distinguished from a rare one.
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
