"""The privacy report for the person responsible for the data: the guarantee and its limits."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from dpsubspace._core.accounting.attacker import Attacker
from dpsubspace._core.accounting.events import RELATION_IN_WORDS, RELATION_OF_PERSONS, mechanisms_of
from dpsubspace._core.accounting.guarantee import as_fields, digest_of, dumped
from dpsubspace._core.ground.checks import finite, write_file
from dpsubspace._names import public
from dpsubspace.budget._filter import UNWATCHED
from dpsubspace.budget._planner import PublicSizes
from dpsubspace.reports._report_page import (
    FILL_IN,
    Bullets,
    Section,
    Table,
    Text,
    document,
    fragment,
    plain_text,
    promise,
    sentence,
)
from dpsubspace.reports._report_subject import Account, account_of
from dpsubspace.reports._report_words import (
    CURATED,
    FALSE_POSITIVES,
    PRIORS,
    UNITS,
    annexes,
    described,
    first_page,
    verdict_of,
)

SCHEMA = "urn:dpsubspace:privacy-report:1"


@public
class PrivacyReport:
    """What was promised about private records, in words and numbers that can be filed.

    Made by :func:`privacy_report`. ``print(report)`` is the text, notebooks show it as a page,
    and :meth:`to_html` writes that page, which needs nothing from anywhere.

    Parameters
    ----------
    account : object
        What was released and what it costs; of this package's making.
    said : dict of str to str
        What the curator said.
    date : str
        Date of the report.
    file : dict or None, default=None
        Name and digest of the file that it is about.

    Attributes
    ----------
    title : str
        What the report is about.
    verdict : str
        Its first sentence.
    holds : bool
        Whether there is a guarantee for the subject as a whole, against those who do not know a
        seed. False for a ledger whose budget was exceeded.
    epsilon : float
        Privacy loss of everything together; inf where nothing bounds it.
    delta : float
        Delta that it is stated at.
    open_fields : tuple of str
        Parameters of :func:`privacy_report` that the curator has not given yet.

    See Also
    --------
    privacy_report : Makes one.
    PrivacyGuarantee : The statement on a single fit.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from dpsubspace import DPSGDClassifier, privacy_report
    >>> X, y = load_digits(return_X_y=True)
    >>> report = privacy_report(DPSGDClassifier(epsilon=1.0).fit(X, y), curator="A hospital")
    >>> report.verdict
    'Differentially private: epsilon = 1, delta = 1e-05, per row.'
    >>> report.holds, report.open_fields[:2]
    (True, ('use', 'product'))
    """

    # Set at the start.
    title: str
    verdict: str
    epsilon: float
    delta: float
    open_fields: tuple[str, ...]

    def __init__(
        self,
        account: Any,
        said: Mapping[str, str],
        date: str,
        file: dict[str, str] | None = None,
    ):
        self._account: Account = account
        self._said, self._date, self._file = dict(said), date, file
        self.title, self.verdict = _title(account, self._said), verdict_of(account)
        total = account.total
        self.holds: bool = account.holds
        self.epsilon = total.epsilon if account.bounded else math.inf
        self.delta = total.delta
        self.open_fields = tuple(name for name, value in said.items() if value == FILL_IN)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as a page of HTML.

        Parameters
        ----------
        path : path-like, optional
            File to write; an existing one is replaced. Without it nothing is written.

        Returns
        -------
        str
            The page. It can be printed, and loads nothing from anywhere.
        """
        page = document(self.title, self._sections())
        if path is not None:
            write_file(path, page)
        return page

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the report as JSON.

        Parameters
        ----------
        path : path-like, optional
            File to write; an existing one is replaced. Without it nothing is written.

        Returns
        -------
        str
            Epsilon, delta and what they rest on; ``parts`` are statements in the form of
            :meth:`PrivacyGuarantee.to_json`. What is not known is null.
        """
        account, total = self._account, self._account.total
        fields = {
            "schema": SCHEMA,
            "title": self.title,
            "verdict": self.verdict,
            "date": self._date,
            "file": self._file,
            "holds": self.holds,
            "planned": account.planned,
            "epsilon": finite(self.epsilon),
            "epsilon_of_noisy_releases": finite(total.epsilon),
            "delta": self.delta,
            "neighboring_relation": total.neighboring_relation,
            "unit": total.unit,
            "secure": total.secure,
            "joint": total.joint,
            "budget": None if account.budget is None else account.budget.epsilon,
            "overspent": account.overspent,
            "reasons": account.reasons,
            "alarms": account.alarms,
            "seen": [{"kind": k, "of": name, "count": count} for k, name, count in account.seen],
            "cautions": account.cautions,
            "not_charged": account.uncharged,
            "not_watched": UNWATCHED,
            "vouched_for": account.vouched,
            "public": list(total.public),
            "attacker": _learnt(account.attacker),
            "attacker_at_budget": _learnt(account.at_budget),
            "parts": [
                {
                    "name": item.name,
                    "count": item.count,
                    "date": item.date or None,
                    "guarantee": as_fields(item.guarantee),
                }
                for item in account.items
            ],
            "curator": _known(self._said),
            "registry": {
                tier: _known(entry) for tier, entry in _registry(account, self._said).items()
            },
            "versions": _versions(),
        }
        return dumped(fields, path)

    def _sections(self) -> list[Any]:
        """One page for a board, and the annexes behind it."""
        account, said = self._account, self._said
        behind = [
            *annexes(account),
            Section("Entry for a registry of deployments", [*_told_to_a_registry(account, said)]),
            Section("Software, and how to check this report", [*_software(account, self._file)]),
        ]
        return [
            *first_page(account, said, self._date),
            Section("What must not be shown, and what is not covered", [*_not_covered(account)]),
            *(
                Section(f"Annex {i + 1}: {each.heading}", each.blocks, first_annex=i == 0)
                for i, each in enumerate(behind)
            ),
        ]

    def __str__(self) -> str:
        return plain_text(self.title, self._sections())

    def __repr__(self) -> str:
        return f"<PrivacyReport: {self.verdict}>"

    def _repr_html_(self) -> str:
        return fragment(self.title, self._sections())


def privacy_report(
    subject: Any,
    *,
    curator: str | None = None,
    use: str | None = None,
    product: str | None = None,
    publication_date: str | None = None,
    data_source: str | None = None,
    data_domain: str | None = None,
    access: str | None = None,
    preprocessing: str | None = None,
    justification: str | None = None,
    review: str | None = None,
    date: str | None = None,
    model_file: str | os.PathLike[str] | None = None,
    n_samples: int | None = None,
    n_features: int | None = None,
    n_outputs: int | None = None,
    n_train: int | None = None,
) -> PrivacyReport:
    """Report what was promised about private records, for whoever answers for them.

    It says in words what ran, whom it protects, what an attacker can learn at most, what it rests
    on, what was not charged, and which versions were used; and it fills in the entry for a
    registry of deployments as far as the program knows it. What it does not know is left "to be
    filled in by the curator".

    Parameters
    ----------
    subject : object
        An estimator of this package; a Pipeline, also with steps of other packages; a fitted
        ``GridSearchCV`` or ``RandomizedSearchCV``, or what ``cross_validate`` returned with
        ``return_estimator=True``: all their fits count; what a private function returned; or a
        :class:`PrivacyLedger`. An estimator or Pipeline that is not fitted is reported as a plan.
    curator : str, optional
        Who answers for the data and publishes the result.
    use : str, optional
        What the result is for.
    product : str, optional
        Name of what is published.
    publication_date : str, optional
        When it was or will be published.
    data_source : str, optional
        Where the rows come from.
    data_domain : str, optional
        Which data sets could have been there: whose records, of what period, with which columns.
    access : str, optional
        Who sees the rows and who sees the result, and why they are trusted.
    preprocessing : str, optional
        What was done to the rows before the fit, and how parameters were chosen.
    justification : str, optional
        Why this epsilon and this unit.
    review : str, optional
        Who reviewed this use of the software.
    date : str, optional
        Date of the report; today by default.
    model_file : path-like, optional
        File of the saved model, of any format. Its name and its SHA-256 digest are reported, so
        that it can be seen which file the report is about.
    n_samples : int, optional
        Number of records, for a plan and for a search without a refit.
    n_features : int, optional
        Number of columns, for the same, where the cost depends on it.
    n_outputs : int, optional
        Number of columns of scores or targets, likewise.
    n_train : int, optional
        Least number of records that a search fitted in one split, where its splitter does not tell.

    Returns
    -------
    PrivacyReport
        To be printed, shown in a notebook, or written by ``to_html`` and ``to_json``.

    Raises
    ------
    PrivacyError
        If nothing states what `subject` costs, or a size is needed that was not given.
    ValueError
        If another parameter is no text.

    See Also
    --------
    PrivacyGuarantee : The statement on a single fit.
    PrivacyLedger : Keeps accounts of all fits on the same records.

    Notes
    -----
    Nothing is released: the report is made of parameters and guarantees, which are public.

    *What an attacker can learn.* The bounds are for an attacker who knows everything but whether
    (under "replace_one": what) one record was. Where all that was released is Gaussian, the true
    positive rate at a false positive rate a is at most ``Phi(Phi^-1(a) + mu)`` (Dong, Roth, Su,
    2022), and no bound could be smaller; otherwise the least of the bounds by (epsilon, delta)
    and by the Gaussian mechanism that a ledger charges. A belief of probability p becomes
    at most ``p e^epsilon / (1 - p + p e^epsilon)``, but for releases that come with the
    probability that is stated beside it, which is larger than delta.

    *Searches.* Every candidate counts in every split, with the noise that its parameters ask for,
    and so does the refit. Fits whose score is missing count too. No account is taken of
    records being left out of some splits.

    References
    ----------
    Near, Darais, Lefkovitz, Howarth. "Guidelines for evaluating differential privacy
    guarantees". NIST SP 800-226, 2025.

    Dong, Roth, Su. "Gaussian differential privacy". JRSS B, 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from dpsubspace import DPSGDClassifier, privacy_report
    >>> X, y = load_digits(return_X_y=True)
    >>> model = make_pipeline(StandardScaler(), DPSGDClassifier(epsilon=1.0))
    >>> report = privacy_report(model, n_samples=1797)
    >>> report.holds
    False
    >>> print(report.verdict)  # doctest: +NORMALIZE_WHITESPACE
    NO PRIVACY GUARANTEE for this pipeline as a whole. Its noisy releases alone cost
    epsilon = 1, delta = 1e-05, per row; this does not cover the rest.
    """
    given: dict[str, Any] = {
        "curator": curator,
        "use": use,
        "product": product,
        "publication_date": publication_date,
        "data_source": data_source,
        "data_domain": data_domain,
        "access": access,
        "preprocessing": preprocessing,
        "justification": justification,
        "review": review,
        "date": date,
    }
    for name, value in given.items():
        if not (value is None or isinstance(value, str)):
            raise ValueError(f"`{name}` must be a str or None, got {value!r}.")
    account = account_of(subject, PublicSizes(n_samples, n_features, n_outputs, n_train))
    today = datetime.now(UTC).date().isoformat() if date is None else date
    file = None if model_file is None else digest_of(model_file)
    said = {name: FILL_IN if given[name] is None else given[name] for name in CURATED}
    return PrivacyReport(account, said, today, file)


# Notes beside the guarantee ---------------------------------------------------------------------


def _learnt(attacker: Attacker | None) -> dict[str, Any] | None:
    return attacker and {
        "advantage": attacker.advantage,
        "posteriors": [{"prior": p, "at_most": attacker.posterior(p)} for p in PRIORS],
        "posteriors_fail_with_probability": attacker.surprise,
        "true_positive_rates": [
            {"false_positive_rate": a, "at_most": attacker.true_positive_rate(a)}
            for a in FALSE_POSITIVES
        ],
        "exact": attacker.exact,
    }


def _title(account: Account, said: Mapping[str, str]) -> str:
    what = "Planned privacy" if account.planned else "Privacy"
    name = account.subject if said["product"] == FILL_IN else said["product"]
    return f"{what} report: {name}"


def _not_covered(account: Account) -> Iterator[Any]:
    if account.uncharged and account.budget is not None:
        yield Text("Not counted here, if it took place:")
    elif account.uncharged:
        yield Text("Not counted here, although it used private rows:", loud=True)
    if account.uncharged:
        yield Bullets([sentence(words) for words in account.uncharged])
    yield Text("Nobody who may not see the rows may see the following:")
    yield Bullets(
        [
            "The rows themselves, how long a fit took, and error messages of programs that read"
            " the rows.",
            "Scores, plots and tables that were computed from the rows without noise, and any fit"
            " that is not listed here. Charge all that is computed from the records of the same"
            " people to one PrivacyLedger.",
        ]
    )
    yield Text("The guarantee does not cover the following:")
    yield Bullets(
        [
            "What was done to the rows beforehand, such as filling gaps with values computed from"
            " the rows.",
            "Whether the result is correct. Noise makes it least accurate for small groups.",
            "What is true of groups, such as that smokers fall ill more often.",
        ]
    )
    yield Text(UNWATCHED)


def _known(fields: Mapping[str, str]) -> dict[str, str | None]:
    return {name: None if words == FILL_IN else words for name, words in fields.items()}


def _registry(account: Account, said: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return fields of the registry's three tiers; unknown ones are left to the curator."""
    total, attacker = account.total, account.attacker
    product = said["product"]
    kind = {"release": "Statistic", "ledger": "Models and statistics"}.get(
        account.kind, "Machine learning model"
    )
    flavour = "Pure DP (that is, with a delta of 0)"
    if attacker is None:
        flavour = "none"
    elif total.delta:
        flavour = "Approximate DP (that is, with a delta above 0)"
    if attacker is not None and total.joint:
        flavour += ", joint"
    covered = "what is computed from the result without looking at the rows again is covered"
    unprotected = [*total.public, *account.uncharged, *account.reasons, *account.alarms]
    return {
        "Tier 1": {
            "Curator": said["curator"],
            "Intended use": said["use"],
            "Data product": product if product != FILL_IN else f"{kind}; name {FILL_IN}",
            "Date of publication": said["publication_date"],
        },
        "Tier 2": {
            "Flavour of privacy": flavour,
            "Unit of privacy": UNITS.get(total.unit, total.unit),
            "Privacy loss": _loss(account),
            "Deployment model": "Central: the curator holds the rows in the clear, and noise is"
            " added before a private result is released",
            "Release": "This report describes "
            + _RELEASE.get(account.kind, "one release")
            + ", and no interactive queries. Whether anything else was published about the same"
            " people, the program cannot know",
            "Data source": said["data_source"],
        },
        "Tier 3": {
            "Data domain": said["data_domain"],
            "Neighbouring data sets": f"{total.neighboring_relation}: {_relation(account)}",
            "Unprotected quantities": "; ".join(unprotected) or "none",
            "Actors and trust": said["access"],
            "Accounting, composition": _composition(account),
            "Accounting, post-processing": covered
            if account.bounded
            else "not covered: there is no guarantee for the whole",
            "Preprocessing and tuning": said["preprocessing"],
            "Mechanisms": described(total.event) if total.epsilon < math.inf else "not private",
            "Implementation": f"dpsubspace {_versions()['dpsubspace']}; noise and values are"
            " rounded in a fixed way, to prevent attacks that exploit how computers round numbers;"
            " there is no protection against attacks that measure running times",
            "Review of the implementation": "by its authors only (proofs and tests are in its"
            " repository); independent review of this deployment: " + said["review"],
            "Justification": said["justification"],
        },
    }


_RELEASE = {
    "ledger": "everything that was charged to the ledger",
    "search": "the best model of the search",
}


def _loss(account: Account) -> str:
    total, budget = account.total, account.budget
    spent = promise(total.epsilon, total.delta, total.unit) if account.bounded else "no bound"
    if budget is None:
        return spent
    exceeded = " (exceeded: it does not hold)" if account.overspent else ""
    return f"budget: {promise(*budget[:2], total.unit)}{exceeded}; spent: {spent}"


def _composition(account: Account) -> str:
    parts = sum(item.count for item in account.items)
    if not account.bounded:
        return "the parts do not add up to a guarantee"
    if account.overspent:
        return "the sum of what was spent, as if it had been planned; the budget does not hold"
    if account.budget is not None:
        return (
            "fully adaptive: the budget holds even if each fit is chosen after seeing the results"
            " of earlier ones (by the authors' own proof, which nobody else has reviewed)"
        )
    kinds = {part.kind for part in mechanisms_of(account.total.event)}
    sampled = any(part.sampled for part in mechanisms_of(account.total.event))
    if kinds <= {"gaussian"} and not sampled:
        how = "exact for Gaussian mechanisms (Gaussian differential privacy)"
    elif "search" in kinds:
        how = "by Renyi divergences (dp-accounting)"
    else:
        how = "by privacy loss distributions (dp-accounting), as an upper bound"
    return f"{parts} fits or releases, {how}" if parts > 1 else f"one fit or release, {how}"


def _relation(account: Account) -> str:
    total = account.total
    if total.unit == "row":
        return RELATION_IN_WORDS[total.neighboring_relation]
    return RELATION_OF_PERSONS[total.neighboring_relation].format(unit=total.unit)


def _told_to_a_registry(account: Account, said: dict[str, str]) -> Iterator[Any]:
    yield Text(
        "This section follows the form of the Differential Privacy Deployments Registry, a public"
        " collection of descriptions of such uses, which has three tiers of detail. Nothing is sent"
        " there. Fields that the program cannot fill in are left open."
    )
    for tier, fields in _registry(account, said).items():
        yield Table(tier, [[name, value] for name, value in fields.items()])


def _versions() -> dict[str, str]:
    found = {"dpsubspace": sys.modules[__name__.partition(".")[0]].__version__}
    for name in ("scikit-learn", "numpy", "scipy", "dp-accounting"):
        found[name] = metadata.version(name)
    return {**found, "python": platform.python_version()}


def _made_with(account: Account) -> str:
    """Return a sentence on the versions that made the releases, as far as they are recorded."""
    found = {item.guarantee.version for item in account.items}
    if not found or "" in found:
        return "The versions with which the releases were made are not all recorded."
    made = ", ".join(sorted(found))
    return f"The releases were made with dpsubspace {made}; other versions are not recorded."


def _software(account: Account, file: dict[str, str] | None) -> Iterator[Any]:
    if file is not None:
        rows = [["Name", file["name"]], ["SHA-256 digest", file["sha256"]]]
        yield Table(
            "File to which this report refers (as stated by the person who wrote the report)", rows
        )
        yield Text(
            "To check that you have the same file, compare this checksum (the digest) with that of"
            " your file, for example with the program sha256sum."
        )
    rows = [[name, version] for name, version in _versions().items()]
    yield Table("Software versions used to write this report", rows)
    if not account.planned:
        yield Text(
            f"{_made_with(account)} These versions may differ from those above. The analyst should"
            " state what is not recorded, so that it can be found out which models are affected if"
            " a version turns out to have a flaw."
        )
    yield Text(
        "This report was computed from what the program recorded, and not from the rows. It can"
        " be trusted only as far as the person who ran the program. The questions follow NIST SP"
        " 800-226 (Guidelines for Evaluating Differential Privacy Guarantees, 2025); this report is"
        " neither a certificate nor a legal opinion."
    )
