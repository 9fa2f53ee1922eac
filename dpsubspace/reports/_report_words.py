"""The text of a report: sections in plain English, with the numbers behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dpsubspace._core.accounting.attacker import Attacker
from dpsubspace._core.accounting.cost import gaussian_sq_mu
from dpsubspace._core.accounting.events import describe, mechanisms_of, rounded
from dpsubspace._core.accounting.guarantee import PrivacyGuarantee, weakness
from dpsubspace.budget._filter import in_words
from dpsubspace.budget._journal import readable
from dpsubspace.reports._report_page import (
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
from dpsubspace.reports._report_subject import Account

if TYPE_CHECKING:
    from dp_accounting import DpEvent


PRIORS = (0.01, 0.1, 0.5)
FALSE_POSITIVES = (0.001, 0.01, 0.1)

# Largest number of rows of a table; further rows are shown as one.
_MOST_ROWS = 40

# Fields that only the curator can fill in, by the name of the parameter.
CURATED = {
    "curator": "Curator",
    "use": "Intended use",
    "product": "Data product",
    "publication_date": "Date of publication",
    "data_source": "Data source",
    "data_domain": "Data domain (which tables the method could have been applied to)",
    "access": "Who sees the rows, and who sees the result",
    "preprocessing": "What was done to the rows beforehand",
    "justification": "Why this epsilon and this unit",
    "review": "Who reviewed this",
}

UNITS = {"row": "one row of the table", "person": "all rows of one person together"}


def described(event: DpEvent) -> str:
    from dpsubspace._core.accounting.accountants import event_of

    return describe(event_of(mechanisms_of(event)))


# The whole ----------------------------------------------------------------------------------------


def verdict_of(account: Account) -> str:
    """Return the first sentences, for a reader who reads nothing else."""
    weak, said = weakness_of(account), _verdict_of(account)
    if weak:
        said = f"{weak.upper()}: an epsilon of {up(account.promised)}. {said}"
    if account.seen:
        said += f" NOT COUNTED: {in_words(account.seen)}."
    if not (is_seeded(account) and account.bounded):
        return said
    seed = _SEEDED_LEDGER if account.budget else _SEEDED
    return f"{seed} {said[:1].lower()}{said[1:]}" if said.startswith("Diff") else f"{seed} {said}"


_SEEDED = (
    "NO PRIVACY GUARANTEE against anybody who knows, guesses or finds the seed of the noise"
    " (random_state). Against all others:"
)
_SEEDED_LEDGER = (
    "NO PRIVACY GUARANTEE for seeded fits, which this ledger allows, against anybody who knows,"
    " guesses or finds a seed. Against all others:"
)


def is_seeded(account: Account) -> bool:
    """Return whether noise came, or may have come, from a seed."""
    return not account.total.secure and (account.total.epsilon > 0 or account.budget is not None)


def weakness_of(account: Account) -> str:
    return "" if account.reasons else weakness(account.promised)


def _verdict_of(account: Account) -> str:
    total, budget = account.total, account.budget
    said = promise(total.epsilon, total.delta, total.unit)
    if account.reasons:
        finite = total.epsilon < math.inf
        rest = f" Its noisy releases alone cost {said}; this does not cover the rest."
        if budget is not None:
            rest += f" Their budget is epsilon = {up(budget.epsilon)}"
            rest += " and has been exceeded." if account.overspent else "."
        return f"NO PRIVACY GUARANTEE for this {account.kind} as a whole.{rest if finite else ''}"
    if total.epsilon == math.inf:
        return "NO PRIVACY GUARANTEE: no noise was added (epsilon is infinite)."
    if account.planned:
        return f"A plan: nothing has been fitted. A fit would be differentially private: {said}."
    if account.overspent and budget is not None:
        return (
            f"THE BUDGET HAS BEEN EXCEEDED and does not hold: {said}, has been spent of a budget of"
            f" epsilon = {up(budget.epsilon)}."
        )
    if budget is not None:
        return (
            f"Budget: {promise(budget.epsilon, budget.delta, total.unit)}. Of this"
            f" epsilon = {up(total.epsilon)} has been spent so far, by {len(account.items)}"
            f" charge{'s' * (len(account.items) != 1)}."
        )
    if total.epsilon == 0:
        return "Nothing was released that depends on private records."
    jointly = "Jointly differentially private" if total.joint else "Differentially private"
    return f"{jointly}{',' if is_seeded(account) else ':'} {said}."


def first_page(account: Account, said: dict[str, str], date: str) -> list[Section]:
    """Return what a board reads: who is protected, how strongly, and what was released."""
    return [
        Section("Summary", [*_summary(account, said, date)]),
        Section("What was released", [*_released(account)]),
    ]


def annexes(account: Account) -> list[Section]:
    return [
        Section("How noise protects", [*_about_noise(account)]),
        Section("Whom does it protect, and against what?", [*_protected(account)]),
        Section("What can an attacker learn?", [*_attack(account)]),
        Section("What the guarantee assumes", [*_rests_on(account)]),
    ]


def _summary(account: Account, said: dict[str, str], date: str) -> Iterator[Any]:
    total = account.total
    loud = not account.holds or not total.secure or bool(weakness_of(account))
    yield Text(verdict_of(account), loud=loud)
    for reason in account.reasons:
        yield Text(f"Reason: {reason}.", loud=True)
    for alarm in account.alarms:
        yield Text(f"Not counted: {alarm}.", loud=True)
    cautions = [*account.cautions, *([_LABELS_READ] if _labels_read(account) else [])]
    if cautions:
        yield Bullets([sentence(caution) for caution in cautions])
    if total.n_samples and total.delta * total.n_samples > 1:
        yield Text(
            f"Delta is above one over the number of records (1/{total.n_samples:,}). With a delta"
            " this large, even publishing one whole record, picked at random, would satisfy the"
            " promise.",
            loud=True,
        )
    if account.attackers:
        yield Text(_in_words(account))
    if account.budget is not None:
        yield from _about_the_budget(account)
    if account.attackers and (weak := weakness_of(account)):
        yield _warning_of(account, weak)
    yield Table("In short", _in_short(account, said, date))


def _about_the_budget(account: Account) -> Iterator[Any]:
    if account.overspent:
        return
    if account.reasons:
        yield Text("The budget is a promise about the noisy releases, and about nothing else.")
        return
    yield Text(
        "The figure to publish is the budget. It remains valid whatever is computed later within"
        " this ledger. The epsilon that has been spent so far is not a guarantee, because the"
        " analyst was free to decide when to stop."
    )


def _in_short(account: Account, said: dict[str, str], date: str) -> list[list[str]]:
    total, budget = account.total, account.budget
    hidden = hidden_of(total) if account.bounded else "nothing is guaranteed to be hidden"
    rows = [
        ["Subject", f"{account.subject} ({_KINDS[account.kind]})"],
        ["Curator (who is responsible for the data)", said["curator"]],
        ["Intended use", said["use"]],
        ["Unit of protection", unit_of(total)],
        ["What is hidden", hidden],
    ]
    if budget is not None:
        exceeded = " (exceeded: it does not hold)" if account.overspent else ""
        rows.append(["Epsilon of the budget", up(budget.epsilon) + exceeded])
    spent = "no bound" if not account.bounded else up(total.epsilon)
    rows.append(["Epsilon spent so far" if budget else "Epsilon", spent])
    delta = budget.delta if budget else total.delta
    rows.append(["Delta", f"{up(delta)} ({one_in(delta)})" if delta else "0"])
    if budget is not None and account.holds:
        rows.append(["Remaining for one further fit", f"epsilon = {_down(budget.left)}"])
    if total.n_samples:
        name = "rows" if total.unit == "row" else f"{total.unit}s"
        rows.append([f"Number of {name} (public)", f"{total.n_samples:,}"])
    rows += [["Independent review of the software", "none yet"], ["Date of this report", date]]
    left_open = [CURATED[name] for name, words in said.items() if words == FILL_IN]
    return [*rows, *([["Not filled in yet", "; ".join(left_open)]] if left_open else [])]


def _down(value: float) -> str:
    return rounded(value, math.floor)


def _about_epsilon(account: Account) -> Iterator[Any]:
    yield Text(
        f"Epsilon limits how much one record (here: {unit_of(account.total)}) can change the"
        f" probability of any result: by a factor of up to {_factor(account.promised)}. Delta is a"
        f" small allowance on top of that{_of_delta(account)}. Smaller is more private. No number"
        " is right for everybody. Ponomareva and others (How to DP-fy ML, 2023) call an epsilon of"
        " at most 1 strong, of at most 10 reasonable, and of more than 10 weak."
    )


def _warning_of(account: Account, weak: str) -> Text:
    return Text(
        f"An epsilon of {up(account.promised)} is {weak}: a suspicion with a probability of"
        f" {_guess(account.promised)} can become as likely as not. Look at what an attacker"
        " can learn, in the annex, before you rely on it.",
        loud=True,
    )


def _guess(epsilon: float) -> str:
    if epsilon > 20:
        return "one in 485 million, or even less likely,"
    return f"about one in {_large(math.exp(epsilon), math.floor)}"


def _factor(epsilon: float) -> str:
    value = math.exp(min(epsilon, 700.0))
    return _large(value, math.ceil) if value < 1e12 else f"e^{up(epsilon)}"


def _large(value: float, towards: Callable[[float], int]) -> str:
    """Format a large number with a few digits, as it is spoken."""
    for size, name in ((1e9, " billion"), (1e6, " million")):
        if value >= size:
            return f"{float(rounded(value / size, towards, 2)):g}{name}"
    digits = 4 if value < 1000 else 3
    return f"{float(rounded(value, towards, digits)):,g}"


def _of_delta(account: Account) -> str:
    if not (account.total.n_samples and account.total.delta):
        return ""
    limit = f"1 in {account.total.n_samples:,}"
    return f", which should be far below one divided by the number of records ({limit})"


def unit_of(total: PrivacyGuarantee) -> str:
    return UNITS.get(total.unit, f"everything that belongs to one {total.unit}")


def hidden_of(total: PrivacyGuarantee) -> str:
    """Return what is kept secret, within the limits of epsilon and delta."""
    if total.neighboring_relation == "zero_out":
        return f"whether a {total.unit} was used"
    return f"what {_contents(total.unit)}"


def _contents(unit: str, which: str = "a") -> str:
    return f"{which} row contains" if unit == "row" else f"the rows of {which} {unit} contain"


def _in_words(account: Account) -> str:
    """Explain the guarantee to a reader who does not know the field, with one number."""
    unit, prior, attacker = account.total.unit, PRIORS[0], account.attackers[-1].attacker
    about, believed = f"whether any particular {unit} was used", f"this {unit} was used"
    if account.total.neighboring_relation == "replace_one":
        about = f"what {_contents(unit, 'any particular')}"
        believed = f"{_contents(unit, 'this')} a certain thing"
    seen = "the result"
    if account.budget is not None:
        seen = (
            "all results that were charged"
            if account.overspent
            else "all results that this budget can pay for"
        )
    after = attacker.posterior(prior)
    certain = f"believe it with a probability of at most {percent(after)}"
    words = (
        f"In words: random noise limits how much anybody can learn about {about}. For example,"
        f" suppose that somebody believes with a probability of {percent(prior)} that {believed},"
        f" before they see any result. After they have seen {seen}, they may"
        f" {'be nearly certain of it' if after > 0.999 else certain}."
    )
    if attacker.surprise:
        words += f" {_except(unit, attacker)}"
    return f"{words} The method is not meant to hide facts that are true of people in general."


def _except(unit: str, attacker: Attacker, of: str = "") -> str:
    """Return a sentence on how often an attacker's belief may exceed its bound."""
    return (
        f"For each {unit}, the random noise leaves a probability of at most"
        f" {one_in(attacker.surprise)} that such an attacker becomes more certain than this{of}."
    )


def _than_one_fit(account: Account, attacker: Attacker) -> str:
    """Explain why the bound is larger than for a single fit, whose whole privacy curve is known."""
    epsilon, delta = attacker.epsilon, attacker.delta
    mu = math.sqrt(gaussian_sq_mu(epsilon, delta))
    fit = Attacker(epsilon, delta, mu, 0.0, exact=True)
    why = "because it is not known in advance which noise a budget will be spent on"
    if account.overspent:
        why = "like that of a budget that is kept, so that the two can be compared"
    return (
        f"The limit in the summary is computed from epsilon and delta alone, {why}. Therefore it is"
        " larger than in the report of a single fit with Gaussian noise at the same epsilon and"
        f" delta, where all that the noise does is known: there it would be"
        f" {percent(fit.posterior(PRIORS[0]))}, and would be exceeded with a probability of at most"
        f" {one_in(fit.surprise)}. So do not compare the two percentages."
    )


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
        what = account.items[0].what or account.items[0].name
        yield Table("Everything that epsilon counts", [["What it is", what]])
        return
    yield _items(account)
    each = sum(item.count * item.guarantee.epsilon for item in account.items)
    if sum(item.count for item in account.items) > 1 and total.epsilon < math.inf:
        less = (
            ": less than the sum of the parts, because of how the effects of independent noise"
            " combine"
        )
        words = f"Everything together costs epsilon = {up(total.epsilon)}"
        yield Text(f"{words}{less if total.epsilon < each * (1 - 1e-9) else ''}.")


def _about_noise(account: Account) -> Iterator[Any]:
    total = account.total
    if account.attackers:
        yield from _about_epsilon(account)
    if account.kind in ("fit", "release"):
        yield Table("What ran", [[account.items[0].name, described(total.event)]])
    else:
        yield _limited(account, "What ran", [("Noise", _ran(account))])
    parts = mechanisms_of(total.event)
    kinds = {part.kind for part in parts}
    words = [text for kind, text in _MECHANISMS.items() if kind in kinds]
    if words and account.bounded:
        these = "sums and choices" if kinds & {"range", "search"} else "sums"
        where = "what public_part() returns" if total.joint else "the result"
        words.append(f"Apart from public information, only these noisy {these} go into {where}.")
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


def _ran(account: Account) -> list[str]:
    return [described(item.guarantee.event) for item in account.items]


def _items(account: Account) -> Table:
    columns: list[tuple[str, list[str]]] = [
        ("What it is", [item.what for item in account.items]),
        ("Date", [readable(item.date) for item in account.items]),
        ("Fits", ["" if item.count == 1 else str(item.count) for item in account.items]),
        ("Epsilon of each", [_cost(item.guarantee.epsilon) for item in account.items]),
    ]
    return _limited(account, "Everything that epsilon counts", columns)


def _limited(account: Account, caption: str, columns: list[tuple[str, list[str]]]) -> Table:
    """Return a table of the parts without empty columns, and not more rows than can be read."""
    columns = [("Part", [item.name for item in account.items]), *columns]
    columns = [column for column in columns if any(column[1]) or column[0] == "Part"]
    rows = [[cell or "-" for cell in row] for row in zip(*(c for _, c in columns), strict=True)]
    if len(rows) > _MOST_ROWS:
        rest = len(rows) - _MOST_ROWS + 1
        more = [f"{rest} more, listed in the JSON version of this report"]
        rows[-rest:] = [more + ["-"] * (len(columns) - 1)]
    return Table(caption, rows, [name for name, _ in columns])


def _cost(epsilon: float) -> str:
    return up(epsilon) if epsilon < math.inf else "no bound"


_MECHANISMS = {
    "gaussian": "The program adds up one limited contribution of each record. Before it uses the"
    " sum for anything else, it adds random noise with a Gaussian (bell-shaped) distribution. The"
    " multiplier is the size of the noise (its standard deviation) divided by the largest"
    " contribution that one record can make.",
    "laplace": "To some sums, noise of another kind (Laplace noise) is added, which does not need"
    " the allowance delta.",
    "range": "Some choices are made at random, such that better options are more likely (the"
    " exponential mechanism).",
    "search": "The best of a random number of runs was released. The number of runs must stay"
    " hidden, and so must the time that they took.",
}
_BATCHES = (
    "In each step on a Poisson batch, it is decided at random and independently for each record"
    " whether it takes part, which hides it further. Who was in which batch is not released."
)


def _protected(account: Account) -> Iterator[Any]:
    total = account.total
    if not account.bounded:
        yield Text(
            f"This report states no guarantee for the {account.kind} as a whole. What was released"
            " does not limit what can be learnt about anybody whose records were used.",
            loud=True,
        )
        return
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
    about = "what a record contains. That the record is in the data is not hidden"
    if total.neighboring_relation == "zero_out":
        about = "whether a record was used"
    yield Text(f"What is hidden, within the limits of epsilon and delta, is {about}.")
    if account.attackers:
        yield from _other_secrets(account)
    if total.joint:
        yield Text(
            "The model contains parts that were computed from one person's own rows. Publish only"
            " what public_part() returns. The guarantee is joint: it is about what all others are"
            " given together, and a person's own model may be given to that person and nobody"
            " else.",
            loud=True,
        )


def _other_secrets(account: Account) -> Iterator[Any]:
    unit, bounds = account.total.unit, account.attackers
    rows = [[f"what {_contents(unit)}", *(up(bound.epsilon) for bound in bounds)]]
    if account.total.neighboring_relation == "zero_out":
        were = "it was" if unit == "row" else "they were"
        known = f"what {_contents(unit, 'a certain')}, if it is known that {were} used"
        replaced = (_or_unknown(bound.attacker.replaced) for bound in bounds)
        rows = [
            [f"whether a certain {unit} was used", *(up(bound.epsilon) for bound in bounds)],
            [known, *replaced],
        ]
    if unit == "row":
        for k in (3, 10):
            several = (_or_unknown(bound.attacker.of_several(k)) for bound in bounds)
            rows.append([f"a person with {k} rows", *several])
    yield Table(
        "Epsilon for each thing to be kept secret, at the same delta",
        rows,
        ["What should be kept secret", *_headed(account, "Epsilon")],
    )
    if unit == "row" and account.budget is not None:
        yield Text(
            'To get a number for a person with several rows, open the ledger with unit="person".'
        )


def _or_unknown(epsilon: float | None) -> str:
    return "larger than that of the first line; not computed" if epsilon is None else up(epsilon)


def _headed(account: Account, words: str) -> list[str]:
    """Return headings of the columns of bounds: a ledger may have one more for its whole budget."""
    if account.budget is None:
        return [words]
    return [f"{words} ({bound.of})" for bound in account.attackers]


def _attack(account: Account) -> Iterator[Any]:
    total, bounds = account.total, account.attackers
    if not account.bounded:
        yield Text(
            "There is no limit to what can be learnt about a single record. Parts that were"
            " computed without noise may contain numbers from which rows can be reconstructed.",
            loud=True,
        )
        return
    if not bounds:
        yield Text("Nothing: nothing that was released depends on private records.")
        return
    yield Text(
        "These are bounds for the worst case: an attacker who knows all other records, knows"
        " exactly what the record in question would contain, and sees everything that was"
        f" released. They hold for each {total.unit}, whatever is done with the result afterwards."
        f"{_of_a_ledger(account)}"
    )
    yield from _beliefs(account)
    known = bounds[-1].attacker
    if account.budget is not None and known.surprise and known.posterior(PRIORS[0]) <= 0.999:
        yield Text(_than_one_fit(account, known))
    yield from _memberships(account)
    if not total.secure:
        yield Text(
            "None of this holds against somebody who knows the seed, because they can remove the"
            " noise.",
            loud=True,
        )


def _of_a_ledger(account: Account) -> str:
    if account.budget is None:
        return ""
    if account.overspent:
        return (
            " They are about what was spent, are computed from its epsilon and delta alone (like"
            " the bounds for a budget that is kept), and hold only if everything had been decided"
            " before the first result was seen."
        )
    return (
        " The bounds for the whole budget hold whatever is computed later, as long as the budget is"
        " kept, and are computed from its epsilon and delta alone. The bounds for what was spent so"
        " far use all that is known of the noise, and hold only if it was decided beforehand to"
        " stop at this point. So the two do not differ by epsilon alone."
    )


def _beliefs(account: Account) -> Iterator[Any]:
    unit, bounds = account.total.unit, account.attackers
    secret = f"that a certain {unit} was used"
    if account.total.neighboring_relation == "replace_one":
        secret = f"that {_contents(unit, 'a certain')} one thing and not another"
    rows = [[percent(p), *(percent(b.attacker.posterior(p)) for b in bounds)] for p in PRIORS]
    headings = ["Before the release", *_headed(account, "After, at most")]
    yield Table(f"How sure an attacker can become {secret}", rows, headings)
    for bound in bounds:
        of = f" ({bound.of})" if account.budget is not None else ""
        rarely = _except(unit, bound.attacker, of) if bound.attacker.surprise else ""
        yield Text(rarely or f"This holds without exception{of}.")
    if any(bound.attacker.surprise for bound in bounds):
        yield Text("(Delta is another number, and smaller than this probability.)")


def _memberships(account: Account) -> Iterator[Any]:
    unit, bounds = account.total.unit, account.attackers
    named = f"If an attacker tries to name the {unit}s that were used"
    wrong = f"of the {unit}s that were not used, the share that the attacker names wrongly"
    right = f"of the {unit}s that were used, the share that the attacker names rightly"
    if account.total.neighboring_relation == "replace_one":
        named = f"If an attacker tries to tell {unit}s of one content from {unit}s of another"
        wrong, right = "share of the second named as the first", "share of the first named"
    rates = [
        [percent(a), *(percent(b.attacker.true_positive_rate(a)) for b in bounds)]
        for a in FALSE_POSITIVES
    ]
    headings = [f"False alarms: {wrong}", *_headed(account, f"Hits: {right}, at most")]
    yield Table(named, rates, headings)
    how = "These rates are upper bounds."
    if all(bound.attacker.exact for bound in bounds):
        how = (
            "These are upper limits that follow from the noise: at the same rate of false alarms,"
            " no attack can have a higher rate of hits."
        )
    largest = " and ".join(
        percent(bound.attacker.advantage) + (f" ({bound.of})" if account.budget is not None else "")
        for bound in bounds
    )
    yield Text(
        f"{how} By pure guessing, both shares are equal. The largest possible difference between"
        f" the two shares (called the advantage of a membership attack) is {largest}: 0 % means no"
        " better than tossing a coin, and 100 % means certainty."
    )


def _rests_on(account: Account) -> Iterator[Any]:
    total = account.total
    if total.epsilon < math.inf:
        yield _randomness(total)
    if total.public:
        yield Text("Taken to be public knowledge, and not protected by this guarantee:")
        yield Bullets([sentence(_plainer(words)) for words in total.public])
    if labels := _labels_read(account):
        yield Text(
            f"Note the {labels}. The list of labels that occur was taken from the private rows and"
            " is stored in the model without noise. If it must stay secret whether anybody at all"
            " has a certain label, fit again and list all possible labels with classes=."
        )
    yield Text("The curator is responsible for the following, which no program can check:")
    alone = "that each person has only one row, or that protecting single rows is enough"
    if total.unit != "row":
        alone = f"that each {total.unit} has the same identifier in all rows"
    yield Bullets(
        [
            sentence(words)
            for words in (
                *account.vouched,
                "that public rows, bounds and other parameters were chosen without looking at the"
                " private rows",
                alone,
                "that the people who run the computations are allowed to see the rows (this is"
                " called a central deployment model)",
            )
        ]
    )


def _randomness(total: PrivacyGuarantee) -> Text:
    if total.secure:
        return Text(
            "Randomness: the noise was drawn from the operating system's cryptographic generator."
        )
    return Text(
        "Randomness: the noise was made from a seed (random_state). The seed is stored in the"
        " model. The noise of two fits with the same seed cancels out when they are compared, even"
        " for somebody who does not know the seed. Do not publish such a model; fit again with"
        " random_state=None.",
        loud=True,
    )


def _labels_read(account: Account) -> str:
    return next((words for words in account.total.public if "read from y" in words), "")


_LABELS_READ = (
    "the set of labels was read from the private rows, and the guarantee does not protect it: see"
    ' "What the guarantee assumes"'
)


def _plainer(words: str) -> str:
    for short, plain in _PLAINER.items():
        words = words.replace(short, plain)
    return words


_PLAINER = {
    "set of labels": "the set of labels that a model distinguishes",
    "names of features": "names of the columns",
    "all parameters but random_state": "all settings of the fits, but not the seed of the noise",
    "bound on row norms": "the limit on the length (Euclidean norm) of a row",
    "that the data pass the checks": "the fact that the table passed the program's format checks",
}
