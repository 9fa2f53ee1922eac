"""Released tables as text and as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence

# Stands for a number that is not there.
DASH = "–"


def as_text(lines: Sequence[Sequence[str]], n_left: int) -> list[str]:
    """Return lines of a table with the first `n_left` columns aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < n_left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def with_notes(lines: Sequence[str], *notes: str) -> str:
    """Return lines as one text, with the notes that say something below an empty line."""
    said = [note for note in notes if note]
    return "\n".join([*lines, *([""] if said else []), *said])


def as_html(title: str, lines: Sequence[Sequence[str]], n_left: int, *notes: str) -> str:
    """Return a table as HTML, with the first line as its head and `notes` below it."""

    def row(line: Sequence[str], tag: str) -> str:
        sides = ("left" if place < n_left else "right" for place in range(len(line)))
        cells = (
            f"<{tag} style='text-align:{side}'>{html.escape(cell)}</{tag}>"
            for cell, side in zip(line, sides, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    head, *body = lines
    rows = "".join(row(line, "td") for line in body)
    caption = f"<caption>{html.escape(title)}</caption>"
    below = "".join(f"<p>{html.escape(note)}</p>" for note in notes if note)
    return f"<table>{caption}<thead>{row(head, 'th')}</thead><tbody>{rows}</tbody></table>{below}"


# Numbers as papers print them -------------------------------------------------------------------


def as_estimate(value: float, low: float, high: float, *, ratio: bool = False) -> list[str]:
    """Return the text of a number and of its interval, with a dash for what is not there.

    Both have the same decimals, of which the interval shows one at least. A ratio has two or more.
    """
    if math.isnan(high) or (math.isinf(high) and (ratio or math.isinf(low))):
        return [DASH, DASH]
    write = _writer(high - low, max(abs(low), abs(high)), ratio)
    return [DASH if math.isnan(value) else write(value), f"{write(low)} to {write(high)}"]


def _writer(width: float, largest: float, ratio: bool) -> Callable[[float], str]:
    if not 0 < width < math.inf:
        return "{:.6g}".format
    # Two digits of the width of an interval of a coefficient, and one of that of a ratio.
    decimals = -math.floor(math.log10(width))
    decimals = max(decimals, 2) if ratio else max(decimals + 1, 0)
    if decimals > 8 or largest >= 1e8:  # too long for fixed decimals
        places = math.floor(math.log10(largest)) - math.floor(math.log10(width)) + 2
        return f"{{:.{min(places, 15)}g}}".format
    if not ratio:
        return f"{{:z.{decimals}f}}".format
    return lambda x: _of_ratio(x, decimals)


def _of_ratio(x: float, decimals: int) -> str:
    least = 10.0**-decimals
    if x < least / 2:  # a ratio is never 0
        return f"<{least:.{decimals}f}"
    return f"{x:,.0f}" if x >= 1000 and decimals == 2 else f"{x:.{decimals}f}"


def as_p_value(p: float) -> str:
    """Return the text of a p value, with a dash for NaN."""
    if math.isnan(p):
        return DASH
    if p < 0.001:
        return "<0.001"
    return ">0.999" if p >= 0.9995 else f"{p:.3f}"
