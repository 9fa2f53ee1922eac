"""What a ledger writes into its journal, checked field by field before anything is believed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from dpsubspace._strict_json import finite
from dpsubspace._workflow.plan import Charge, Plan
from dpsubspace._workflow.seen import KINDS
from dpsubspace.exceptions import PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "LedgerEntry",
    "checked_record",
    "entry_from",
    "entry_record",
    "fresh",
    "header",
    "plan_fields",
]

_FORMAT, _VERSION = "dpsubspace.PrivacyLedger", 2


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One charge of a ledger.

    A ledger holds one for every fit and every function that was charged to it, in order.

    Parameters
    ----------
    id : str
        Names one attempt of one fit: a fit that runs again has another.
    date : str
        When it was charged: ISO 8601, in UTC.
    label : str
        Name that it was given, or that of the estimator.
    event : dp_accounting.DpEvent
        What was charged.
    epsilon : float
        Cost of this by itself at the ledger's delta; inf for what is not private.
    estimator : str
        Name of the class or function that released it, "" where that is not known.
    n_samples, n_features : int or None
        Number of records, and of columns, where they are known.
    neighboring_relation : {"zero_out", "replace_one"}
        Relation that the ledger counts.
    unit : str
        What a record is.
    charge : Charge
        What it takes of the ledger's plan: squares of mu, slack and epsilon.

    See Also
    --------
    PrivacyLedger : Holds them.

    Examples
    --------
    >>> from dpsubspace import PrivacyLedger, private_quantile
    >>> ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    >>> with ledger:
    ...     median = private_quantile([18 + i % 70 for i in range(5000)], epsilon=0.3)
    >>> entry = ledger.entries[0]
    >>> print(entry.estimator, entry.n_samples, f"{entry.epsilon:.2f}")
    private_quantile 5000 0.30
    """

    id: str
    date: str
    label: str
    event: DpEvent
    epsilon: float
    estimator: str
    n_samples: int | None
    n_features: int | None
    neighboring_relation: str
    unit: str
    charge: Charge


# Fields of records with their types: bool is no int here, and numbers are finite and not negative.
_HEADER = {
    "format": str,
    "version": int,
    "created": str,
    "epsilon": float,
    "delta": float,
    "neighboring_relation": str,
    "unit": str,
    "allow_seeded": bool,
    "slack": float,
    "pure_epsilon": float,
    "max_failures": int,
    "failures": int,
    "aside": float,
}
_PLAN = {"epsilon": float, "closed": bool, "first": float, "before": float}
_ENTRY = {
    "entry": str,
    "date": str,
    "label": str,
    "event": dict,
    "own_epsilon": float,
    "estimator": str,
    "n_samples": int,
    "n_features": int,
    "neighboring_relation": str,
    "unit": str,
    "charge": dict,
    "plan": dict,
}
_CHARGE = {name: float for name in ("sq_mu", "slack", "epsilon", "sum_sq_mu", "sum_epsilon")}
# What files lack that were written when a plan had no sums beside it.
_NO_SUMS = {"aside", "first", "before", "sum_sq_mu", "sum_epsilon"}
_RECORDS: dict[str, dict[str, type]] = {
    "ledger": _HEADER,
    "charge": _ENTRY,
    "change": _ENTRY,  # what an entry is charged for, nothing of which was released, or less
    "drop": {"entry": str, "plan": dict},  # a fit that failed before it released anything
    "failure": {},  # the same, of which nothing was charged
    "open": {"session": str},  # a `with` block
    "close": {"session": str},
    "seen": {"kind": str, "of": str, "count": int},  # that no sum counts; see `seen`
}
_NULLABLE = {"n_samples", "n_features", "plan"}
_ALWAYS = {"id": str, "type": str}


def header(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of the first record."""
    return {"type": "ledger", "format": _FORMAT, "version": _VERSION, **fields}


def plan_fields(plan: Plan | None) -> dict[str, Any] | None:
    return plan and {name: getattr(plan, name) for name in _PLAN}


def entry_record(kind: str, entry: LedgerEntry, plan: Plan | None) -> dict[str, Any]:
    """Fields of a record that charges `entry`, under what is the plan from there on."""
    from dpsubspace._accounting.leaves import plain

    names = ("date", "label", "estimator", "n_samples", "n_features", "neighboring_relation")
    return {
        "type": kind,
        "entry": entry.id,
        **{name: getattr(entry, name) for name in names},
        "unit": entry.unit,
        "event": plain(entry.event),
        "own_epsilon": finite(entry.epsilon),
        "charge": {name: finite(value) for name, value in asdict(entry.charge).items()},
        "plan": plan_fields(plan),
    }


def checked_record(record: dict[str, Any]) -> dict[str, Any]:
    """`record` without what the journal added; PrivacyError where a field is not as it must be."""
    own = {key: value for key, value in record.items() if key not in ("n", "previous", "hash")}
    kind = own.get("type")
    if not isinstance(kind, str) or kind not in _RECORDS:
        raise PrivacyError(f"there is no record of type {kind!r}")
    if kind == "ledger" and (own.get("format"), own.get("version")) != (_FORMAT, _VERSION):
        raise PrivacyError(f"no PrivacyLedger of version {_VERSION} wrote it")
    fields = _checked(own, {**_ALWAYS, **_RECORDS[kind]}, f"a record {kind!r}")
    if kind == "seen" and not (fields["kind"] in KINDS and fields["count"]):
        raise PrivacyError(f"nothing of kind {fields['kind']!r} can have been seen")
    if fields.get("plan"):
        fields["plan"] = _checked(fields["plan"], _PLAN, "the plan")
    if "charge" in fields:
        fields["charge"] = Charge(**_checked(fields["charge"], _CHARGE, "a charge"))
    return fields


def entry_from(fields: dict[str, Any]) -> LedgerEntry:
    """Entry of a record that was checked."""
    from dpsubspace._accounting.leaves import event_from

    names = ("date", "label", "estimator", "n_samples", "n_features", "neighboring_relation")
    return LedgerEntry(
        id=fields["entry"],
        event=event_from(fields["event"]),
        epsilon=fields["own_epsilon"],
        unit=fields["unit"],
        charge=fields["charge"],
        **{name: fields[name] for name in names},
    )


def fresh(entry: LedgerEntry) -> LedgerEntry:
    """Equal entry with an event of its own: a composition holds a list, which could change."""
    from dpsubspace._accounting.leaves import event_from, plain

    return replace(entry, event=event_from(plain(entry.event)))


def _checked(values: Any, types: dict[str, type], what: str) -> dict[str, Any]:
    """`values` with floats for numbers; PrivacyError for another set of fields or other types."""
    if isinstance(values, dict):
        values = {name: 0.0 for name in _NO_SUMS & types.keys()} | values
    if not isinstance(values, dict) or values.keys() != types.keys():
        raise PrivacyError(f"{what} must have the fields {sorted(types)}")
    return {name: _typed(values[name], name, kind, what) for name, kind in types.items()}


def _typed(value: Any, name: str, kind: type, what: str) -> Any:
    """`value` as a `kind`, or PrivacyError."""
    if value is None and name in _NULLABLE:
        return None
    if kind is float and value == "inf":
        value = math.inf
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if isinstance(value, (int, float)) and kind in (int, float) and not value >= 0:
        raise PrivacyError(f"`{name}` of {what} must not be {value!r}")
    good = number if kind is float else type(value) is kind
    if not good:
        raise PrivacyError(f"`{name}` of {what} must be of type {kind.__name__}")
    return float(value) if kind is float and value is not None else value
