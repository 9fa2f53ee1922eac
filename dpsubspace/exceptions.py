"""Errors and warnings, each with what to do about it."""

__all__ = ["PrivacyBudgetError", "PrivacyError", "PrivacyWarning", "PublicDataWarning"]


class PrivacyError(RuntimeError):
    """A privacy guarantee was asked for that cannot be given.

    The message says which rule stands in the way and what can be done instead.
    """


class PrivacyBudgetError(PrivacyError):
    """A charge would overspend a :class:`~dpsubspace.PrivacyLedger`.

    Unless the message says otherwise, nothing has been recorded and nothing released:
    ask for a smaller epsilon, or open a ledger with a larger budget.
    """


class PrivacyWarning(UserWarning):
    """A fit is private as stated, but probably not what was wanted.

    Raised from public quantities only: sizes, the budget, parameters.
    """


class PublicDataWarning(UserWarning):
    """Public rows may not be what was meant.

    A meta-estimator may have sliced them together with the private rows. Pass a tuple,
    ``X_public=(rows,)``, which is never sliced.
    """
