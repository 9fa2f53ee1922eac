"""What a report says: sections in plain English, with the numbers that stand behind them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpsubspace._accounting.attacker import Attacker
from dpsubspace._accounting.events import describe, mechanisms_of, rounded
from dpsubspace._accounting.guarantee import weakness
from dpsubspace._workflow.report_page import (
    FILL_IN,
    Bullets,
    Section,
    Table,
    Text,
    one_in,
    percent,
    promise,
    sentence,
    up,
)
from dpsubspace._workflow.report_subject import Account

if TYPE_CHECKING:
    from dp_accounting import DpEvent


PRIORS = (0.01, 0.1, 0.5)
FALSE_POSITIVES = (0.001, 0.01, 0.1)

# At most so many rows of a table; the rest is one row.
_MOST_ROWS = 40

# What only the curator can say, by the name of the parameter.
CURATED = {
    "curator": "Curator",
    "use": "Intended use",
    "product": "Data product",
    "publication_date": "Date of publication",
    "data_source": "Data source",
    "data_domain": "Data domain (which data sets could have been there)",
    "access": "Who sees the rows, and who sees the result",
    "preprocessing": "What was done with the rows before",
    "justification": "Why this epsilon and this unit",
    "review": "Who reviewed this",
}

UNITS = {"row": "one row of the table", "person": "all rows of one person together"}


def described(event: DpEvent) -> str:
    from dpsubspace._accounting.accountants import event_of

    return describe(event_of(mechanisms_of(event)))


# The whole ----------------------------------------------------------------------------------------


def verdict_of(account: Account) -> str:
    """The first sentences, for somebody who reads no other."""
    weak, said = weakness_of(account), _verdict_of(account)
    return f"{weak.upper()}: an epsilon of {up(account.promised)}. {said}" if weak else said


def weakness_of(account: Account) -> str:
    return "" if account.reasons else weakness(account.promised)


def _verdict_of(account: Account) -> str:
    total = account.total
    said = promise(total.epsilon, total.delta, total.unit)
    if account.reasons:
        finite = total.epsilon < math.inf
        rest = f" Its noisy releases alone cost {said}; that does not cover the rest."
        if account.budget is not None:
            rest += f" Their budget is epsilon = {up(account.budget[0])}."
        return f"NO PRIVACY GUARANTEE for this {account.kind} as a whole.{rest if finite else ''}"
    if total.epsilon == math.inf:
        return "NO PRIVACY GUARANTEE: no noise was added (epsilon is infinite)."
    if account.planned:
        return f"A plan: nothing has been fitted. A fit would be differentially private: {said}."
    if account.budget is not None:
        return (
            f"Budget: {promise(account.budget[0], total.delta, total.unit)}. Of this"
            f" epsilon = {up(total.epsilon)} has been spent so far, by {len(account.items)}"
            f" charge{'s' * (len(account.items) != 1)}."
        )
    if total.epsilon == 0:
        return "Nothing was released that depends on private records."
    if not total.secure:
        return (
            f"Differentially private ({said}) ONLY against those who do not know the seed of the"
            " noise. Against anybody who knows, guesses or finds it, there is no protection."
        )
    jointly = "Jointly differentially private" if total.joint else "Differentially private"
    return f"{jointly}: {said}."


def sections_of(account: Account, said: dict[str, str], date: str) -> list[Section]:
    return [
        Section("Summary", [*_summary(account, said, date)]),
        Section("What was released", [*_released(account)]),
        Section("Whom does it protect, and against what?", [*_protected(account)]),
        Section("What can an attacker learn?", [*_attack(account)]),
        Section("What the guarantee rests on", [*_rests_on(account)]),
    ]


def _summary(account: Account, said: dict[str, str], date: str) -> Iterator[Any]:
    total, attacker, weak = account.total, account.attacker, weakness_of(account)
    loud = attacker is None or not total.secure or bool(weak)
    yield Text(verdict_of(account), loud=loud)
    for reason in account.reasons:
        yield Text(f"Reason: {reason}.", loud=True)
    for alarm in account.alarms:
        yield Text(f"Not counted: {alarm}.", loud=True)
    if account.cautions:
        yield Bullets([sentence(caution) for caution in account.cautions])
    if total.n_samples and total.delta * total.n_samples > 1:
        yield Text(
            f"Delta is above one over the number of records (1/{total.n_samples:,}). Such a promise"
            " would be kept even by publishing one whole record.",
            loud=True,
        )
    if attacker is not None and total.epsilon > 0:
        yield Text(_in_words(account, attacker))
    if account.budget is not None and account.reasons:
        yield Text("The budget is a promise about the noisy releases, and about nothing else.")
    elif account.budget is not None:
        yield Text(
            "Publish the budget: it holds whatever is fitted next. What has been spent so far would"
            " be the promise only if it had been planned from the start to stop here."
        )
    rows = [
        ["Subject", f"{account.subject} ({_KINDS[account.kind]})"],
        ["Curator (who answers for the data)", said["curator"]],
        ["Intended use", said["use"]],
        ["Unit of protection", UNITS.get(total.unit, f"all that is of one {total.unit}")],
        ["What is hidden", _HIDDEN[total.neighboring_relation].format(unit=total.unit)],
        *([["Epsilon of the budget", up(account.promised)]] if account.budget else []),
        [
            "Epsilon spent so far" if account.budget else "Epsilon",
            "no bound" if attacker is None else up(total.epsilon),
        ],
        ["Delta", up(total.delta) if total.delta else "0"],
    ]
    if account.budget is not None:
        rows.append(
            ["Left for one more fit", f"epsilon = {rounded(account.budget[1], math.floor)}"]
        )
    if total.n_samples:
        name = "rows" if total.unit == "row" else f"{total.unit}s"
        rows.append([f"Number of {name} (public)", f"{total.n_samples:,}"])
    rows.append(["Date of this report", date])
    left_open = [CURATED[name] for name, words in said.items() if words == FILL_IN]
    if left_open:
        rows.append(["Left open", "; ".join(left_open)])
    yield Table("In short", rows)
    if attacker is None or not total.epsilon:
        return
    if weak:
        yield Text(
            f"An epsilon of {up(account.promised)} is {weak}: with it a guess of"
            f" {_guess(account.promised)} may become as likely as not. Look at what an attacker can"
            " learn, below, before you rely on it.",
            loud=True,
        )
    yield Text(
        f"Epsilon limits how much one record (here: {UNITS.get(total.unit, total.unit)}) can"
        f" change the probability of any result: by the factor {_factor(total.epsilon)}. Delta is a"
        f" small allowance on top of that{_of_delta(total)}. Smaller is more private. No number is"
        " right for everybody: an epsilon of at most 1 is commonly held to be strong, and one far"
        " above 10 is weak (Ponomareva and others, How to DP-fy ML, 2023, draw these lines)."
    )


def _guess(epsilon: float) -> str:
    if epsilon > 20:
        return "one in 485 million, or one that is less likely,"
    return f"one in {math.exp(epsilon):,.0f}"


def _factor(epsilon: float) -> str:
    return up(math.exp(epsilon)) if epsilon <= 700 else f"e^{up(epsilon)}"


def _of_delta(total: Any) -> str:
    if not (total.n_samples and total.delta):
        return ""
    limit = f"1/{total.n_samples:,} = {1 / total.n_samples:.2g}"
    return f", which should be far below one over the number of records ({limit})"


_HIDDEN = {"zero_out": "whether a {unit} was used", "replace_one": "what a {unit} says"}


def _in_words(account: Account, attacker: Attacker) -> str:
    """The promise for somebody who has not heard of it, with one number."""
    unit, prior = account.total.unit, PRIORS[0]
    was, used = f"whether one certain {unit} was used", "was used"
    if account.total.neighboring_relation == "replace_one":
        was, used = f"what one certain {unit} says", "says a certain thing"
    seen = "everything that has been released so far" if account.budget else "the result"
    words = (
        f"In words: random noise limits how much anybody can learn from the result about {was}. For"
        f" example, suppose that somebody thinks that there is a {percent(prior)} chance that it"
        f" {used}. Seeing {seen} can raise this to {percent(attacker.posterior(prior))} at most."
    )
    if attacker.surprise:
        words += (
            " There is a small risk that the noise hides less than that: its probability is at most"
            f" {one_in(attacker.surprise)}."
        )
    return f"{words} What is true of people in general is not hidden, and does not have to be."


_KINDS = {
    "fit": "one fit",
    "release": "one release",
    "pipeline": "all steps of one Pipeline",
    "model": "a model, and one that it was made from",
    "search": "a search over parameters, with everything that it fitted",
    "cross-validation": "the fits of a cross-validation",
    "ledger": "everything that was charged to one ledger",
}


def _released(account: Account) -> Iterator[Any]:
    total = account.total
    if account.kind in ("fit", "release"):
        what = account.items[0].what
        rows = [["What it is", what]] if what else []
        yield Table("Mechanism", [*rows, ["What ran", described(total.event)]])
    else:
        yield _items(account)
        each = sum(item.count * item.guarantee.epsilon for item in account.items)
        if sum(item.count for item in account.items) > 1 and total.epsilon < math.inf:
            less = (
                ": less than the sum, because the noise of several releases adds up by its square"
            )
            words = f"All of it together costs epsilon = {up(total.epsilon)}"
            yield Text(f"{words}{less if total.epsilon < each * (1 - 1e-9) else ''}.")
    parts = mechanisms_of(total.event)
    words = [text for kind, text in _MECHANISMS.items() if kind in {x.kind for x in parts}]
    if any(part.count > 1 for part in parts):
        words.append(
            'A number in front, as in "100 x", says how many of them there were: one for each step'
            " of training, for example."
        )
    if any("DP-SGD" in item.what for item in account.items):
        words.append("DP-SGD is training in many small steps, each of which uses one such sum.")
    if any(part.sampled for part in parts):
        words.append(_BATCHES)
    if total.epsilon < math.inf and words:
        yield Text(" ".join(words))


def _items(account: Account) -> Table:
    columns: list[tuple[str, list[str]]] = [
        ("Part", [item.name for item in account.items]),
        ("What it is", [item.what for item in account.items]),
        ("Date", [item.date for item in account.items]),
        ("Fits", ["" if item.count == 1 else str(item.count) for item in account.items]),
        ("What ran", [described(item.guarantee.event) for item in account.items]),
        ("Epsilon of each", [_cost(item.guarantee.epsilon) for item in account.items]),
    ]
    columns = [column for column in columns if any(column[1]) or column[0] == "Part"]
    rows = [[cell or "-" for cell in row] for row in zip(*(c for _, c in columns), strict=True)]
    if len(rows) > _MOST_ROWS:
        rest = len(rows) - _MOST_ROWS + 1
        more = [f"{rest} more, which the JSON of this report has"]
        rows[-rest:] = [more + ["-"] * (len(columns) - 1)]
    return Table("Everything that epsilon counts", rows, [name for name, _ in columns])


def _cost(epsilon: float) -> str:
    return up(epsilon) if epsilon < math.inf else "no bound"


_MECHANISMS = {
    "gaussian": "A sum over all records is computed, to which each record adds a limited amount,"
    " and random noise with a Gaussian (bell-shaped) distribution is added before anything else"
    " sees it. The multiplier says how large the noise is, over the most that one record can add."
    " Only the noisy sums go into the result.",
    "laplace": "Some sums carry Laplace noise, which needs no delta.",
    "range": "Some choices are drawn at random, better ones with larger probability (the"
    " exponential mechanism).",
    "search": "The best of a random number of runs was released. How many runs there were must"
    " stay hidden, and so must the time that they took.",
}
_BATCHES = (
    "On a Poisson batch each record takes part by a coin of its own, which hides it further. Who"
    " was in which batch is not released."
)


def _protected(account: Account) -> Iterator[Any]:
    total = account.total
    if total.unit == "row":
        yield Text(
            "One record is one row of the table. If a person has several rows, that person is"
            " protected less than stated here (see the table below)."
        )
    else:
        yield Text(
            f"One record is all rows of one {total.unit} together, however many they are. The"
            f" number of {total.unit}s is public, and the number of their rows is not."
        )
    if total.neighboring_relation == "zero_out":
        yield Text(
            "Hidden is whether a record was used: with it, and with a null record in its place,"
            " which adds nothing, any result is about equally likely, within what epsilon and"
            " delta allow."
        )
    else:
        yield Text(
            "Hidden is what a record says: with it, and with any other record in its place, any"
            " result is about equally likely, within what epsilon and delta allow. That the record"
            " is in the data is not hidden."
        )
    attacker, unit = account.attacker, total.unit
    if attacker is None or not total.epsilon:
        return
    rows = [[f"what a {unit} says", up(total.epsilon)]]
    if total.neighboring_relation == "zero_out":
        known = f"what a certain {unit} says, if it is known to be used"
        rows = [
            [f"whether a certain {unit} was used", up(total.epsilon)],
            [known, _or_unknown(attacker.replaced)],
        ]
    if total.unit == "row":
        rows += [[f"a person with {k} rows", _or_unknown(attacker.of_several(k))] for k in (3, 10)]
    yield Table(
        "Epsilon for other questions, at the same delta",
        rows,
        ["What is to stay secret", "Epsilon"],
    )
    if total.joint:
        yield Text(
            "The model has parts for single persons, made of their own rows. Publish only what"
            " public_part() returns. The guarantee is joint: it is about what all others are given"
            " together, and a person's own model may be given to that person and nobody else.",
            loud=True,
        )


def _or_unknown(epsilon: float | None) -> str:
    return "more; it was not computed" if epsilon is None else up(epsilon)


def _attack(account: Account) -> Iterator[Any]:
    attacker, total = account.attacker, account.total
    if attacker is None:
        yield Text(
            "There is no bound on what can be learnt of a single record. What was fitted without"
            " noise may show numbers from which rows can be told.",
            loud=True,
        )
        return
    if not total.epsilon:
        yield Text("Nothing: nothing that was released depends on private records.")
        return
    unit = total.unit
    secret = f"that a certain {unit} was used"
    if total.neighboring_relation == "replace_one":
        secret = f"that a certain {unit} says one thing and not another"
    yield Text(
        "These are bounds for the worst case: an attacker who knows all other records, knows"
        " exactly what the record in question would say, and sees everything that was released."
        f" They hold for each {unit}, whatever is done with the result afterwards."
        + (" They are about what has been spent so far." if account.budget else "")
    )
    rows = [[percent(p), percent(attacker.posterior(p))] for p in PRIORS]
    yield Table(
        f"How sure an attacker can become {secret}", rows, ["Before the release", "After, at most"]
    )
    surprise = attacker.surprise
    yield Text(
        "That holds whatever was released."
        if surprise == 0
        else "There is a small risk that more than this can be learnt: its probability is at most"
        f" {one_in(surprise)}. (Delta is not this probability: it is smaller.)"
    )
    rates = [[percent(a), percent(attacker.true_positive_rate(a))] for a in FALSE_POSITIVES]
    yield Table(
        f"If an attacker names the {unit}s that they hold to be used",
        rates,
        ["Share of unused records named wrongly", "Share of used records found, at most"],
    )
    how = "These rates are upper bounds."
    if attacker.exact:
        how = "These rates follow from the noise itself: no attack on the result can do better."
    yield Text(
        f"{how} By guessing, an attacker finds as large a share of the used records as they name"
        " wrongly of the unused ones. The largest difference of both rates (the advantage of a"
        f" membership attack) is {percent(attacker.advantage)}: 0 % would be a coin, and 100 %"
        " certainty."
    )
    if not total.secure:
        yield Text(
            "None of this holds against somebody who knows the seed: they can remove the noise.",
            loud=True,
        )


def _rests_on(account: Account) -> Iterator[Any]:
    total = account.total
    yield Text(
        "Randomness: the noise was drawn from the operating system's cryptographic generator."
        if total.secure
        else "Randomness: the noise was made from a seed (random_state). The seed is stored in the"
        " model. Two fits with one seed cancel their noise, even for those who do not know it. Do"
        " not publish such a model; fit again with random_state=None.",
        loud=not total.secure,
    )
    if total.public:
        yield Text("Taken to be public knowledge, and protected by nothing:")
        yield Bullets([sentence(_plainer(words)) for words in total.public])
    labels = next((words for words in total.public if "read from y" in words), None)
    if labels is not None:
        yield Text(
            f"Mind the {labels}. Which labels occur was read from the private rows and stands in"
            " the model as it is. Where it is a secret that anybody has a certain label at all, fit"
            " again with classes= and all labels that could occur."
        )
    yield Text("The curator answers for the following, which no program can see:")
    yield Bullets(
        [
            sentence(words)
            for words in (
                *account.vouched,
                "that rows given as public, and bounds and other parameters, were not chosen by a"
                " look at the private rows",
                *(
                    ("that each person has one row, or that a row is what is to be protected",)
                    if total.unit == "row"
                    else (f"that each {total.unit} has one name, in all rows",)
                ),
                "that those who run the fits may see the rows: the deployment model is central",
            )
        ]
    )


def _plainer(words: str) -> str:
    for short, plain in _PLAINER.items():
        words = words.replace(short, plain)
    return words


_PLAINER = {
    "set of labels": "the set of labels that a model tells apart",
    "names of features": "names of the columns",
    "all parameters but random_state": "all settings of the fits, but not the seed of the noise",
    "that the data pass the checks": "that the table passed the checks of its form (no missing"
    " entries, for example)",
}
