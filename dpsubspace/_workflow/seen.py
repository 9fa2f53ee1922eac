"""What was seen inside of a ledger that no sum of it counts, and what its report says of that.

An observation is a kind, the name of a class and how often: never a value, an error's text, a
score, or anything else that depends on the rows. A ledger takes it into its journal before
anything is raised, so that the report knows it whatever becomes of the fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["KINDS", "MOST", "Kind", "in_words", "named"]

# Up to which an observation is counted, so that scores in a loop do not fill a file.
MOST = 1000


@dataclass(frozen=True)
class Kind:
    """One kind of observation.

    Parameters
    ----------
    short : str
        In the printed form of a ledger.
    words : str
        In a report; `{name}` is the class, and `{times}` how often it was seen.
    breaks : bool
        Whether what was computed in the ledger has no guarantee as a whole.
    """

    short: str
    words: str
    breaks: bool = False


KINDS = {
    "step": Kind(
        "step without noise",
        "a {name} learned from the private rows without any noise, beside private fits ({times}),"
        " and what it learned is stored in the model. No charge of this ledger covers it. Fit it on"
        " public rows, or use a BoundedScaler or a DPPCA",
        breaks=True,
    ),
    "unknown": Kind(
        "fit of unknown parts",
        "private fits ran inside of {name} ({times}), which may have learned from the private rows"
        " by itself without any noise, or changed them. No charge of this ledger covers that",
        breaks=True,
    ),
    "choice": Kind(
        "choice by exact scores",
        "a {name} chose parameters by exact scores on held-out rows, and fitted a model with"
        " them ({times}). Which parameters it chose may tell of a single row. PrivateSearch chooses"
        " with privacy",
        breaks=True,
    ),
    "validation": Kind(
        "fit with exact scores",
        "{name} was fitted in a search or cross-validation ({times}) whose scores on held-out rows"
        " are exact. Unless all of those rows are public, the scores are not private, and no"
        " epsilon covers them. PrivateSearch chooses with privacy",
    ),
    "score": Kind(
        "exact score",
        "exact scores of {name} were computed ({times}). Unless all of those rows are public, the"
        " scores are not private, and no epsilon covers them. private_score gives scores that"
        " may be published",
    ),
    "look": Kind(
        "exact look",
        "{name} showed exact facts about the rows ({times}). What was changed because of them tells"
        " of private rows, and no epsilon covers it",
    ),
    "seed": Kind(
        "seeded fit",
        "the noise of {name} was made from a seed ({times}). Whoever knows the seed, or sees it"
        " used twice, can remove the noise",
    ),
    "failure": Kind(
        "failed fit",
        "{name} ended in an error ({times}). That it failed may tell something of the rows, and is"
        " not counted",
    ),
}


def named(seen: Iterable[tuple[str, str, int]], *, breaks: bool) -> tuple[str, ...]:
    """Sentences on what was seen, of the kinds that break the guarantee or of the others."""
    return tuple(
        KINDS[kind].words.format(name=name, times=_times(count))
        for kind, name, count in seen
        if KINDS[kind].breaks is breaks
    )


def in_words(seen: Iterable[tuple[str, str, int]]) -> str:
    """All of it in a line."""
    return ", ".join(f"{KINDS[kind].short} {name} ({_times(count)})" for kind, name, count in seen)


def _times(count: int) -> str:
    if count >= MOST:
        return f"{MOST:,} times or more"
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
