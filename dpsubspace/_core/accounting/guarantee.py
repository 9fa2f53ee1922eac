"""Privacy guarantee of a fit, in words and as JSON."""

from __future__ import annotations

import hashlib
import html
import json
import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsubspace._core.accounting.cost import Cost
from dpsubspace._core.accounting.events import (
    NEIGHBORING_RELATIONS,
    RELATION_IN_WORDS,
    RELATION_OF_PERSONS,
    describe,
    rounded,
)
from dpsubspace._core.ground.checks import finite, read_file, read_json, write_file
from dpsubspace._names import public
from dpsubspace.exceptions import PrivacyError

if TYPE_CHECKING:
    from dp_accounting import DpEvent


# The guarantee as JSON --------------------------------------------------------------------------
# The guarantee of a fit as JSON that anybody can read, with this package or without it.
#
# Design note. An output checker has to learn the privacy cost of a model file, and must not
# unpickle it: a pickle runs arbitrary code of its author. So the guarantee is stored beside the
# model, in a plain JSON file of its own that contains the digest of the model file.
# ``docs/privacy_schema.json`` describes its fields.

SCHEMA = "urn:dpsubspace:privacy-guarantee:1"

# For events that are not Gaussian, results of accountants may differ a little between versions.
_TOLERANCE = 1e-3


def package_version() -> str:
    return sys.modules[__name__.partition(".")[0]].__version__


def as_fields(guarantee: Any, model_file: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    entries: dict[str, Any] = {
        "schema": SCHEMA,
        "statement": guarantee._headline(),
        "of": guarantee.of,
        "epsilon": finite(guarantee.epsilon),
        "delta": guarantee.delta,
        "neighboring_relation": guarantee.neighboring_relation,
        "unit": guarantee.unit,
        "secure": guarantee.secure,
        "joint": guarantee.joint,
        "public": list(guarantee.public),
        "n_samples": guarantee.n_samples,
        "n_features": guarantee.n_features,
        "event": guarantee._written_event()[0],
        "version": guarantee.version or package_version(),
    }
    if model_file is not None:
        entries["file"] = digest_of(model_file)
    return entries


def digest_of(model_file: str | os.PathLike[str]) -> dict[str, str]:
    """Name and digest of a file; the file is read as bytes and never unpickled."""
    path = Path(model_file)
    return {"name": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def dumped(fields: dict[str, Any], path: str | os.PathLike[str] | None) -> str:
    text = json.dumps(fields, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    if path is not None:
        write_file(path, text)
    return text


def fields_from(source: str | os.PathLike[str]) -> dict[str, Any]:
    """Parameters of the guarantee in `source`, which is JSON or the path of a JSON file."""
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    name = "the JSON" if is_text else repr(os.fspath(source))
    try:
        text = source if is_text else read_file(source)
        whole = read_json(str(text))
    except (ValueError, RecursionError) as error:
        raise _unreadable(name, f"it is no JSON ({error})") from error
    try:
        return checked_fields(whole)
    except (PrivacyError, RecursionError, OverflowError) as error:
        raise _unreadable(name, str(error)) from error


def checked_fields(whole: Any) -> dict[str, Any]:
    """Parameters of a guarantee from parsed JSON; PrivacyError if it is not valid."""
    from dpsubspace._core.accounting.accountants import event_from

    if not isinstance(whole, dict) or whole.get("schema") != SCHEMA:
        found = whole.get("schema") if isinstance(whole, dict) else None
        raise PrivacyError(f"its `schema` is {found!r}, not {SCHEMA!r}")
    missing = {name for name in _TYPES if name not in whole}
    unknown = whole.keys() - _TYPES.keys() - {"file"}
    if missing or unknown:
        raise PrivacyError(f"the fields {sorted(missing)} are missing, {sorted(unknown)} unknown")
    for name, (valid, what) in _TYPES.items():
        if not valid(whole[name]):
            raise PrivacyError(f"`{name}` must be {what}, not {whole[name]!r}")
    event = event_from(whole["event"])
    epsilon = math.inf if whole["epsilon"] == "inf" else float(whole["epsilon"])
    delta, relation = float(whole["delta"]), whole["neighboring_relation"]
    cost = Cost.of(event, relation).epsilon(delta)
    if not epsilon >= cost * (1 - _TOLERANCE):
        raise PrivacyError(f"it claims epsilon={epsilon:g}, and its event costs {cost:.4g}")
    kept = (
        "neighboring_relation",
        "unit",
        "secure",
        "joint",
        "n_samples",
        "n_features",
        "of",
        "version",
    )
    return {
        **{name: whole[name] for name in kept},
        "event": event,
        "epsilon": epsilon,
        "delta": delta,
        "public": tuple(whole["public"]),
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return value is None or (type(value) is int and value >= 0)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


# Fields: a check of each, and its meaning in words.
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "schema": (_is_text, "a text"),
    "statement": (_is_text, "a text"),
    "of": (_is_text, "a text"),
    "epsilon": (
        lambda value: value == "inf" or (_is_number(value) and value >= 0),
        "a number of at least 0, or 'inf'",
    ),
    "delta": (lambda value: _is_number(value) and 0 <= value < 1, "a number in [0, 1)"),
    "neighboring_relation": (
        lambda value: value in NEIGHBORING_RELATIONS,
        f"one of {NEIGHBORING_RELATIONS}",
    ),
    "unit": (_is_text, "a text"),
    "secure": (_is_bool, "true or false"),
    "joint": (_is_bool, "true or false"),
    "public": (
        lambda value: isinstance(value, list) and all(map(_is_text, value)),
        "a list of texts",
    ),
    "n_samples": (_is_size, "a whole number or null"),
    "n_features": (_is_size, "a whole number or null"),
    "event": (lambda value: isinstance(value, dict), "an object"),
    "version": (_is_text, "a text"),
}


def _unreadable(name: str, why: str) -> PrivacyError:
    return PrivacyError(
        f"{name} cannot be read as the guarantee of a fit: {why}. Ask whoever fitted the model for"
        " a new one: model.privacy_.to_json(path)."
    )


# Guarantees -------------------------------------------------------------------------------------

# Above _WEAK, protection is weak to none by Ponomareva et al. (2023), whose tiers of epsilon end at
# 1 and 10. Above NO_PROTECTION, the odds of one guess in 485 million, e^20, may become even.
_WEAK, NO_PROTECTION = 10.0, 20.0


def weakness(epsilon: float) -> str:
    """Words for an epsilon that protects little; "" up to 10.

    Notes
    -----
    A belief of probability p becomes at most ``p e^epsilon / (1 - p + p e^epsilon)`` (but for
    delta), so that at an epsilon of ``log(1 / p)`` a guess of that probability may become as
    likely as not. At 10 that is one of 22,000, about all who live in a town, and at 20 one of 485
    million.

    References
    ----------
    Ponomareva, Hazimeh, Kurakin, Xu, Denison, McMahan, Vassilvitskii, Chien, Thakurta. "How to
    DP-fy ML: a practical guide to machine learning with differential privacy". Journal of
    Artificial Intelligence Research 77, 2023, section 5.2: strong up to 1, reasonable up to 10,
    weak to no formal guarantee above.
    """
    if epsilon <= _WEAK * (1 + 1e-9):  # rounding in sums
        return ""
    return "weak protection at best" if epsilon <= NO_PROTECTION else "no meaningful protection"


# The guarantee on a fitted model ------------------------------------------------------------

_JOINT = "publish public_part() alone: the rest has models of single persons"
_LOADED = "_loaded"  # attribute of an unpickled guarantee: its event as JSON, and in words


def _event_from(written: tuple[dict[str, Any], str]) -> DpEvent:
    from dpsubspace._core.accounting.accountants import event_from

    return event_from(written[0])


@public
@dataclass(frozen=True, kw_only=True)
class PrivacyGuarantee:
    """Differential privacy of a fitted model, with everything that it rests on.

    Found on every fitted estimator as ``privacy_``. It holds public values only.

    Parameters
    ----------
    event : dp_accounting.DpEvent
        What ran (what was planned, where a callback ended the fit early); compose it
        with other events, or charge it to a ledger.
    epsilon : float
        Privacy loss bound at `delta`; inf for a fit that is not private.
    delta : float
        Additive slack of the bound (not the probability that it fails, which is larger);
        0 for pure differential privacy.
    neighboring_relation : {"zero_out", "replace_one"}
        Which data sets the guarantee cannot tell apart.
    unit : str
        What a record is: ``"row"``, or ``"person"`` for all rows of one person together.
    secure : bool
        Whether the noise came from a cryptographic source. The noise of a seeded fit can
        be removed by anyone who knows the seed, or who sees another fit with that seed.
    public : tuple of str
        What the guarantee assumes to be public knowledge.
    joint : bool, default=False
        Whether the fitted model has parts that belong to single persons. The guarantee is then
        about what all others are given, and about the part that may be published.
    of : str, default=""
        Name of the class or function that made the release, where it is known.
    n_samples : int or None, default=None
        Number of records (rows, or persons where these are the unit).
    n_features : int or None, default=None
        Number of columns.
    version : str, default=""
        Version of dpsubspace that made the release, where it is known.

    See Also
    --------
    PrivacyLedger : Adds up the guarantees of many fits on the same records.
    privacy_report : The same for a data protection officer, with what it means and leaves out.

    Notes
    -----
    ``print(model.privacy_)`` is the statement and what it covers, in three lines.
    ``print(model.privacy_.details())`` says also what it assumes and what was released; notebooks
    show that as a table, and ``model.privacy_.to_json(path)`` writes it to be read without this
    package. An epsilon above 10
    is called weak there, and one above 20 no meaningful protection: at 20, one guess of 485
    million may become as likely as not (and Ponomareva et al., "How to DP-fy ML", JAIR 77, 2023,
    call all above 10 "weak to no").

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import DPSGDClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DPSGDClassifier(epsilon=1.0, random_state=0).fit(X, y)
    >>> print(model.privacy_)  # doctest: +NORMALIZE_WHITESPACE
    (epsilon = 1, delta = 1e-05)-differentially private per row, unless the seed is known or
    used again
      covers this fit only: no other step, score or fit on the same records; seeded, so not to be
      published
      neighbours zero_out; what is public and was released: .details()
    >>> print(model.privacy_.details())  # doctest: +NORMALIZE_WHITESPACE
    (epsilon = 1, delta = 1e-05)-differentially private per row, unless the seed is known or
    used again
      meaning     for those who do not know the seed, leaving out any one row changes the
                  probability of any result by at most a factor of 2.72, plus delta
      covers      this fit only: no other step, score or fit on the same records
      public      number of records (1797), number and names of features (64),
                  set of labels (10, read from y), all parameters but random_state,
                  that the data pass the checks
      randomness  seeded, so not to be published: whoever knows the seed, or sees it used
                  twice, can remove the noise
      neighbours  zero_out: one record is used or not; the number of records is public
      released    3 x (Gaussian noise, multiplier 58.98) + 100 x (Gaussian noise, multiplier 37.53)
    """

    event: DpEvent
    epsilon: float
    delta: float
    neighboring_relation: str
    unit: str
    secure: bool
    public: tuple[str, ...] = ()
    joint: bool = False
    of: str = field(default="", compare=False)  # the name is no property of the release
    n_samples: int | None = None
    n_features: int | None = None
    version: str = field(default="", compare=False)

    def to_json(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        model_file: str | os.PathLike[str] | None = None,
    ) -> str:
        """Write the guarantee as JSON, which can be read without this package.

        A saved model must not be opened to learn what it costs: to load a pickle is to run
        whatever it says. Put this file beside it, and whoever checks it reads the file.

        Parameters
        ----------
        path : path-like, optional
            File to write; an existing one is replaced. Without it nothing is written.
        model_file : path-like, optional
            File of the saved model, of any format. Its name and its SHA-256 digest are
            written too, so that it can be seen that the statement belongs to that file.

        Returns
        -------
        str
            What was written. ``docs/privacy_schema.json`` describes it, in JSON Schema.

        Examples
        --------
        >>> import json
        >>> from sklearn.datasets import load_digits
        >>> from dpsubspace import DPSGDClassifier
        >>> X, y = load_digits(return_X_y=True)
        >>> model = DPSGDClassifier(epsilon=1.0).fit(X, y)
        >>> json.loads(model.privacy_.to_json())["epsilon"]
        1.0
        """
        return dumped(as_fields(self, model_file), path)

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> PrivacyGuarantee:
        """Read a guarantee that `to_json` wrote.

        Every field is checked, and what the event costs is computed again.

        Parameters
        ----------
        source : str or path-like
            What `to_json` returned, or the path of the file.

        Returns
        -------
        PrivacyGuarantee
            The statement. That it is true of some model is for its author to answer for.

        Raises
        ------
        PrivacyError
            If it is anything else, or claims less epsilon than its event costs.
        """
        return cls(**fields_from(source))

    # Pickles store the event as JSON and in words: a loaded model predicts, and states its
    # guarantee, where dp-accounting cannot be imported. The event itself is built on first access.
    # An event that JSON would not restore exactly is pickled as it is.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        if _LOADED not in state:
            with suppress(AttributeError, KeyError, TypeError, ValueError, PrivacyError):
                written = self._written_event()
                if _event_from(written) == self.event:
                    state[_LOADED] = written
        if _LOADED in state:
            state.pop("event", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __getattr__(self, name: str) -> Any:
        if name != "event" or _LOADED not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return vars(self).setdefault("event", _event_from(vars(self)[_LOADED]))

    def _written_event(self) -> tuple[dict[str, Any], str]:
        """Return the event as JSON, and in words."""
        if _LOADED in vars(self):
            return vars(self)[_LOADED]
        from dpsubspace._core.accounting.accountants import plain

        return plain(self.event), describe(self.event)

    def __repr__(self) -> str:
        def shown(name: str) -> str:
            try:
                return f"{name}={getattr(self, name)!r}"
            except ImportError:  # raised by the event
                return f"{name}={self._written_event()[1]!r}"

        return f"{type(self).__name__}({', '.join(shown(each.name) for each in fields(self))})"

    def _rows(self) -> list[tuple[str, str]]:
        relation = self.neighboring_relation
        randomness = (
            "secure: drawn from the operating system"
            if self.secure
            else "seeded, so not to be published: whoever knows the seed, or sees it used twice,"
            " can remove the noise"
        )
        words = RELATION_IN_WORDS[relation]
        if self.unit != "row":
            words = RELATION_OF_PERSONS[relation].format(unit=self.unit)
        released = ("released", self._written_event()[1])
        if self.epsilon == math.inf:
            return [released]
        return [
            ("meaning", self._meaning()),
            *([("joint", _JOINT)] if self.joint else []),
            ("covers", self._covers()),
            ("public", ", ".join(self.public)),
            ("randomness", randomness),
            ("neighbours", f"{relation}: {words}"),
            released,
        ]

    def _covers(self) -> str:
        what = "call" if self.of.startswith(("private_", "select_")) else "fit"
        return f"this {what} only: no other step, score or fit on the same records"

    def _meaning(self) -> str:
        """Summary of the guarantee in one line; bounds are rounded up."""
        if self.epsilon == 0:
            return f"nothing that was released depends on any {self.unit}"
        who = "any one row" if self.unit == "row" else f"all rows of any one {self.unit}"
        change = f"leaving out {who}"
        if self.neighboring_relation == "replace_one":
            change = f"replacing {who} by {'another' if self.unit == 'row' else 'others'}"
        factor = f"e^{rounded(self.epsilon, math.ceil)}"
        if self.epsilon <= 10:
            factor = f"{float(rounded(math.exp(self.epsilon), math.ceil, 3)):,g}"
        result = "what all others are given" if self.joint else "any result"
        slack = ", plus delta" if self.delta else ""
        limit = f"at most a factor of {factor}{slack}"
        seed = "" if self.secure else "for those who do not know the seed, "
        return f"{seed}{change} changes the probability of {result} by {limit}"

    def _headline(self) -> str:
        if self.epsilon == math.inf:
            return "NOT private (epsilon = inf)"
        # Rounded up, and multipliers down: a printed guarantee never claims more than is true.
        epsilon, delta = (rounded(value, math.ceil) for value in (self.epsilon, self.delta))
        slack = f", delta = {delta}" if self.delta else ""  # 0: differential privacy as such
        jointly = "jointly " if self.joint else ""
        said = f"(epsilon = {epsilon}{slack})-{jointly}differentially private per {self.unit}"
        said += "" if self.secure else ", unless the seed is known or used again"
        weak = weakness(self.epsilon)
        return f"{said}: {weak}" if weak else said

    def __str__(self) -> str:
        if self.epsilon == math.inf:
            return f"{self._headline()}\n  what was released: .details()"
        # What makes it weaker is said here, too: the short form is never better than the long one.
        covers = [f"covers {self._covers()}"]
        covers += [_JOINT] if self.joint else []
        covers += [] if self.secure else ["seeded, so not to be published"]
        more = (
            f"neighbours {self.neighboring_relation}; what is public and was released: .details()"
        )
        return f"{self._headline()}\n  {'; '.join(covers)}\n  {more}"

    def details(self) -> str:
        """Return the whole guarantee in words, a line for each thing that it rests on.

        Returns
        -------
        str
            The statement, what it means and covers, what it assumes to be public, where the
            randomness comes from, which tables it compares, and what was released with how much
            noise.

        Examples
        --------
        >>> from dpsubspace.statistics import private_mean
        >>> mean = private_mean([18 + i % 70 for i in range(5000)], bounds=(0, 110), epsilon=1.0)
        >>> print(mean.privacy_.details().splitlines()[1])  # doctest: +ELLIPSIS
          meaning     leaving out any one row changes the probability of any result by at most ...
        """
        return "\n".join([self._headline(), *(f"  {k:<11} {v}" for k, v in self._rows())])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(k)}</th>"
            f"<td style='text-align:left'>{html.escape(v)}</td></tr>"
            for k, v in self._rows()
        )
        return f"<table><caption><b>{html.escape(self._headline())}</b></caption>{rows}</table>"


def footnote(said: PrivacyGuarantee | None) -> str:
    """Return the line below what is printed of a result: its guarantee, and how many records."""
    if said is None:  # a result that was made by hand, or a part of one
        return ""
    size = "" if said.n_samples is None else f"; {said.n_samples:,} {said.unit}s"
    return f"{said._headline()}{size}."


class PrivateResult:
    """Result of a private function, with its guarantee as ``privacy_``."""

    __slots__ = ()

    # Guarantee of the call; None for a part of a result whose guarantee covers the part.
    privacy_: PrivacyGuarantee | None


def guarantee_in(released: Any) -> PrivacyGuarantee | None:
    """Guarantee of the result of a private function; None for anything else."""
    return released.privacy_ if isinstance(released, PrivateResult) else None


class _Pair(NamedTuple):
    value: Any
    privacy: PrivacyGuarantee


@public
class Released(_Pair, PrivateResult):
    """Result of a private function: the released value and its guarantee.

    A pair, to be unpacked as ``value, guarantee = private_mean(...)``. The value is safe to
    publish with the statement beside it.

    Parameters
    ----------
    value : object
        What was released: a number or an array.
    privacy : PrivacyGuarantee
        What the call cost, and what its guarantee assumes; :meth:`PrivacyLedger.charge` takes it.

    See Also
    --------
    private_mean : Returns one.
    private_quantile : Returns one.

    Examples
    --------
    >>> from dpsubspace import PrivacyLedger
    >>> from dpsubspace.statistics import private_quantile
    >>> ages = [18 + i % 70 for i in range(5000)]
    >>> released = private_quantile(ages, 0.5, bounds=(0, 110), epsilon=0.3)
    >>> ledger = PrivacyLedger(epsilon=1.0, delta=1e-5)
    >>> ledger.charge(released.privacy, "median age")
    >>> 45 < released.value < 60
    True
    """

    __slots__ = ()  # a pair, with nothing beside it

    @property
    def privacy_(self) -> PrivacyGuarantee:  # type: ignore[override]
        """The guarantee, by the name that estimators and other results have for it."""
        return self.privacy

    def __str__(self) -> str:
        several = isinstance(self.value, dict)
        values = map(str, self.value.values()) if several else [str(self.value)]
        return "\n".join([*values, str(self.privacy)])
