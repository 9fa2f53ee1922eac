"""Released tables as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence


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


def as_html(title: str, lines: Sequence[Sequence[str]], n_left: int) -> str:
    """Return a table as HTML, with the first line as its head."""

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
    return f"<table>{caption}<thead>{row(head, 'th')}</thead><tbody>{rows}</tbody></table>"
