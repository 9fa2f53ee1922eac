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
        rest = f" Its noisy releases alone cost {said}; this does not cover the rest."
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
        Section("What the guarantee assumes", [*_rests_on(account)]),
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
            "Delta is larger than one divided by the number of records"
            f" (1/{total.n_samples:,}). Publishing one whole record would keep such a guarantee.",
            loud=True,
        )
    if attacker is not None and total.epsilon > 0:
        yield Text(_in_words(account, attacker))
    if account.budget is not None and account.reasons:
        yield Text("The budget limits what the noisy releases reveal, and nothing else.")
    elif account.budget is not None:
        yield Text(
            "Publish the budget as the guarantee, because it holds whatever is fitted next. The"
            " epsilon that has been spent so far would be the guarantee only if it had been planned"
            " from the start to stop here."
        )
    rows = [
        ["Subject", f"{account.subject} ({_KINDS[account.kind]})"],
        ["Curator (who answers for the data)", said["curator"]],
        ["Intended use", said["use"]],
        ["Unit of protection", UNITS.get(total.unit, f"all rows of one {total.unit}")],
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
        rows.append(["Not filled in yet", "; ".join(left_open)])
    yield Table("In short", rows)
    if attacker is None or not total.epsilon:
        return
    if weak:
        yield Text(
            f"An epsilon of {up(account.promised)} is {weak}: a guess with a chance of"
            f" {_guess(account.promised)} may become as likely as not. Before you rely on it, read"
            " below what an attacker can learn.",
            loud=True,
        )
    yield Text(
        f"Epsilon limits how much one record (here: {UNITS.get(total.unit, total.unit)}) can"
        f" change the probability of any result: at most by the factor {_factor(total.epsilon)}."
        f" Delta is a small allowance on top of that{_of_delta(total)}. Smaller numbers mean more"
        " privacy. No number is right for everybody. An epsilon of at most 1 is commonly called"
        " strong, and one above 10 is called weak (Ponomareva and others, How to DP-fy ML, 2023)."
    )


def _guess(epsilon: float) -> str:
    if epsilon > 20:
        return "one in 485 million, or less,"
    return f"one in {math.exp(epsilon):,.0f}"


def _factor(epsilon: float) -> str:
    return up(math.exp(epsilon)) if epsilon <= 700 else f"e^{up(epsilon)}"


def _of_delta(total: Any) -> str:
    if not (total.n_samples and total.delta):
        return ""
    limit = f"1/{total.n_samples:,} = {1 / total.n_samples:.2g}"
    return f", which should be far below one divided by the number of records ({limit})"


_HIDDEN = {"zero_out": "whether a {unit} was used", "replace_one": "what a {unit} says"}


def _in_words(account: Account, attacker: Attacker) -> str:
    """The promise for somebody who has not heard of it, with one number."""
    unit, prior = account.total.unit, PRIORS[0]
    was, used, change = f"whether a certain {unit} was used", "was used", "had been left out"
    if account.total.neighboring_relation == "replace_one":
        was, used = f"what a certain {unit} says", "says a certain thing"
        change = "had said something else"
    seen = "everything that has been released so far" if account.budget else "the result"
    words = (
        "In words: random noise was added, so that every result would have been nearly as likely"
        f" if any one {unit} {change}. This limits what the result can reveal about {was}. For"
        f" example, suppose that, before seeing {seen}, somebody thinks that there is a chance of"
        f" {percent(prior)} that this {unit} {used}. After seeing it, they can think that the"
        f" chance is {percent(attacker.posterior(prior))} at most."
    )
    if attacker.surprise:
        words += (
            " There is a small risk that the noise hides less than this: it happens with a"
            f" probability of at most {one_in(attacker.surprise)}."
        )
    return f"{words} The result still shows what is true of people in general, as it is meant to."


_KINDS = {
    "fit": "one fit",
    "release": "one release",
    "pipeline": "all steps of one Pipeline",
    "model": "a model, and another one that it was made from",
    "search": "a search over parameters, with all of its fits",
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
                ". This is less than the sum of their epsilons, because the costs of independent"
                " noise add up by their squares"
            )
            words = f"Everything together costs epsilon = {up(total.epsilon)}"
            yield Text(f"{words}{less if total.epsilon < each * (1 - 1e-9) else ''}.")
    parts = mechanisms_of(total.event)
    words = [text for kind, text in _MECHANISMS.items() if kind in {x.kind for x in parts}]
    if any(part.count > 1 for part in parts):
        words.append(
            'A number in front, as in "100 x", says how many such sums were released, for example'
            " one for each step of training."
        )
    if any("DP-SGD" in item.what for item in account.items):
        words.append("DP-SGD is training in many small steps. Each step uses one such sum.")
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
    "gaussian": "Gaussian noise is used as follows. The program computes a sum over all records, to"
    " which each record contributes a limited amount, and adds random noise with a Gaussian"
    " (bell-shaped) distribution. Only the noisy sum is used for the result. The multiplier says"
    " how large the noise is: its standard deviation, divided by the most that one record can"
    " contribute.",
    "laplace": "Some sums carry Laplace noise, which needs no delta.",
    "range": "Some choices are drawn at random, so that better ones are more likely (the"
    " exponential mechanism).",
    "search": "The best of a random number of runs was released. The number of runs must stay"
    " hidden, and so must the time that they took.",
}
_BATCHES = (
    "In a Poisson batch, each record takes part at random and independently of the others, which"
    " hides it further. It is not released which records were in which batch."
)


def _protected(account: Account) -> Iterator[Any]:
    total = account.total
    if total.unit == "row":
        yield Text(
            "One record is one row of the table. A person with several rows is protected less than"
            " stated here (see the table below)."
        )
    else:
        yield Text(
            f"One record is all rows of one {total.unit} together, however many there are. The"
            f" number of {total.unit}s is public. The number of rows of each {total.unit} is not."
        )
    if total.neighboring_relation == "zero_out":
        yield Text(
            "The noise hides whether a record was used. Any result is about equally likely with the"
            " record and without it, and epsilon and delta limit the difference. (In place of the"
            " record there is then a null record, which contributes nothing, so that the number of"
            " records stays the same.)"
        )
    else:
        yield Text(
            "The noise hides what a record says. Any result is about equally likely with the record"
            " and with any other record in its place, and epsilon and delta limit the difference."
            " The noise does not hide that the record is in the data."
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
        ["What should stay secret", "Epsilon"],
    )
    if total.joint:
        yield Text(
            "The model has parts for single persons, which were made from their own"
            " rows. Publish only what public_part() returns. The guarantee is joint: for each"
            " person, it limits what"
            " all others together are given. The own model of a person may be given to this person"
            " only.",
            loud=True,
        )


def _or_unknown(epsilon: float | None) -> str:
    return "more; it was not computed" if epsilon is None else up(epsilon)


def _attack(account: Account) -> Iterator[Any]:
    attacker, total = account.attacker, account.total
    if attacker is None:
        yield Text(
            "There is no limit to what can be learned about a single record. Whatever was fitted"
            " without noise may contain numbers that reveal rows.",
            loud=True,
        )
        return
    if not total.epsilon:
        yield Text("Nothing, because nothing that was released depends on private records.")
        return
    unit = total.unit
    secret = f"that a certain {unit} was used"
    if total.neighboring_relation == "replace_one":
        secret = f"that a certain {unit} says one thing and not another"
    yield Text(
        "These are limits for the worst case: an attacker who knows all other records, knows"
        " exactly what the record in question would say, and sees everything that was released."
        f" They hold for every {unit}, whatever is done with the result afterwards."
        + (" They are about what has been spent so far." if account.budget else "")
    )
    rows = [[percent(p), percent(attacker.posterior(p))] for p in PRIORS]
    yield Table(
        f"How sure an attacker can become {secret}", rows, ["Before the release", "After, at most"]
    )
    surprise = attacker.surprise
    yield Text(
        "This holds whatever was released."
        if surprise == 0
        else "There is a small risk that more than this can be learned: it happens with a"
        f" probability of at most {one_in(surprise)}. (This is not delta, which is smaller.)"
    )
    rates = [[percent(a), percent(attacker.true_positive_rate(a))] for a in FALSE_POSITIVES]
    yield Table(
        f"If an attacker names those {unit}s that they believe were used",
        rates,
        ["Share of unused records that they name", "Share of used records that they name, at most"],
    )
    how = "These shares are upper limits."
    if attacker.exact:
        how = "These shares follow from the noise itself: no attack on the result can do better."
    yield Text(
        f"{how} An attacker who only guesses has the same share in both columns. The largest"
        " possible difference of the two shares (the advantage of a membership attack) is"
        f" {percent(attacker.advantage)}. A value of 0 % means pure guessing, and 100 % means"
        " certainty."
    )
    if not total.secure:
        yield Text(
            "None of this holds against somebody who knows the seed, because they can remove the"
            " noise.",
            loud=True,
        )


def _rests_on(account: Account) -> Iterator[Any]:
    total = account.total
    yield Text(
        "Randomness: the noise was drawn from the operating system's cryptographic generator."
        if total.secure
        else "Randomness: the noise was made from a seed (random_state), which is stored in the"
        " model. The noise of two fits with the same seed cancels out, even for those who do not"
        " know the seed. Do not publish such a model. Fit again with random_state=None.",
        loud=not total.secure,
    )
    if total.public:
        yield Text("The guarantee assumes that the following is public, and does not protect it:")
        yield Bullets([sentence(_plainer(words)) for words in total.public])
    labels = next((words for words in total.public if "read from y" in words), None)
    if labels is not None:
        yield Text(
            f"Mind the {labels}. The list of labels was read from the private rows, and the model"
            " contains it without noise. If it is a secret that anybody has a certain label, fit"
            " again, and pass all labels that could occur as classes=."
        )
    yield Text("The curator is responsible for the following, which no program can check:")
    yield Bullets(
        [
            sentence(words)
            for words in (
                *account.vouched,
                "that public rows, bounds and other parameters were not chosen by looking at the"
                " private rows",
                *(
                    ("that each person has one row, or that it is enough to protect single rows",)
                    if total.unit == "row"
                    else (f"that each {total.unit} has the same name in all of their rows",)
                ),
                "that those who run the fits may see the rows (a central deployment)",
            )
        ]
    )


def _plainer(words: str) -> str:
    for short, plain in _PLAINER.items():
        words = words.replace(short, plain)
    return words


_PLAINER = {
    "set of labels": "the set of labels that a model can predict",
    "names of features": "names of the columns",
    "all parameters but random_state": "all settings of the fits, but not the seed of the noise",
    "that the data pass the checks": "that the table passed the checks of its form (no missing"
    " entries, for example)",
}
