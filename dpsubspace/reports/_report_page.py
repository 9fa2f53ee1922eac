"""The layout of a report: numbers in words, and sections as text and as HTML."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from dpsubspace._core.accounting.events import rounded

FILL_IN = "to be filled in by the curator"


@dataclass(frozen=True)
class Text:
    words: str
    loud: bool = False


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    caption: str
    rows: Sequence[Sequence[str]]
    header: Sequence[str] = ()


@dataclass(frozen=True)
class Section:
    heading: str
    blocks: Sequence[Text | Bullets | Table]
    first_annex: bool = False  # A new page begins here if the report is printed


# Words ------------------------------------------------------------------------------------------


def up(value: float) -> str:
    """Format an upper bound, rounded up."""
    return rounded(value, math.ceil)


def percent(value: float) -> str:
    """Format a share in percent, rounded up; "100 %" only if it is exactly that."""
    if value <= 0 or value >= 1:
        return f"{100 * value:g} %"
    text = f"{float(rounded(100 * value, math.ceil, 3)):g}"
    return "nearly 100 %" if text == "100" else f"{text} %"


def one_in(value: float) -> str:
    """Format a small probability as "1 in N", rounded up."""
    if value > 0.1:
        return percent(value)
    return f"1 in {float(f'{rounded(1 / value, math.floor, 2)}'):,.0f}"


def promise(epsilon: float, delta: float, unit: str) -> str:
    slack = f", delta = {up(delta)}" if delta else ""
    return f"epsilon = {up(epsilon)}{slack}, per {unit}"


def sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


# Text -------------------------------------------------------------------------------------------

_WIDTH = 96


def plain_text(title: str, sections: Sequence[Section]) -> str:
    lines = [title, "=" * min(len(title), _WIDTH)]
    for section in sections:
        lines += ["", section.heading, "-" * len(section.heading)]
        for block in section.blocks:
            if isinstance(block, Text):
                lines += _wrapped(block.words, "! " if block.loud else "")
            elif isinstance(block, Bullets):
                for item in block.items:
                    lines += _wrapped(item, "* ", "  ")
            else:
                lines += _table_lines(block)
    return "\n".join(lines)


def _wrapped(words: str, first: str = "", later: str | None = None) -> list[str]:
    later = first if later is None else later
    return textwrap.wrap(
        words,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table_lines(table: Table) -> list[str]:
    lines = [f"[{table.caption}]"] if table.caption else []
    rows = [*([table.header] if table.header else []), *table.rows]
    if len(rows[0]) == 2:
        width = min(56, max(len(row[0]) for row in rows))
        for name, value in rows:
            lines += _wrapped(value, f"  {name:<{width}}  ", " " * (width + 4)) or [f"  {name}"]
        return lines
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    if sum(widths) + 2 * len(widths) <= _WIDTH:
        cells = [[f"{c:<{w}}" for c, w in zip(row, widths, strict=True)] for row in rows]
        return lines + ["  " + "  ".join(row).rstrip() for row in cells]
    for row in table.rows:  # too wide: one line for each cell
        lines += _wrapped(row[0], "  ")
        for name, cell in zip(table.header[1:], row[1:], strict=True):
            lines += _wrapped(f"{name}: {cell}", "      ", "        ")
    return lines


# HTML -------------------------------------------------------------------------------------------

# Dark text on white, also in dark mode: a report is filed and printed.
_STYLE = """
.dpsubspace-report {max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: break-word;
 background: #fff; color: #1a1a1a; font: 1rem/1.5 system-ui, "Segoe UI", Helvetica, sans-serif}
.dpsubspace-report h1 {font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem}
.dpsubspace-report h2 {font-size: 1.2rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #767676}
.dpsubspace-report p, .dpsubspace-report ul {margin: .5rem 0; max-width: 46rem}
.dpsubspace-report .loud {border: 2px solid #8a1c1c; border-left-width: .6rem; font-weight: 600;
 padding: .6rem .8rem; background: #fdf1f0; color: #8a1c1c}
.dpsubspace-report table {border-collapse: collapse; width: 100%; margin: .8rem 0}
.dpsubspace-report caption {text-align: left; font-weight: 600; padding: .3rem 0; color: #1a1a1a}
.dpsubspace-report th, .dpsubspace-report td {text-align: left; vertical-align: top;
 padding: .35rem .8rem .35rem .4rem; border-bottom: 1px solid #b5b5b5; background: #fff;
 color: #1a1a1a; white-space: normal}
.dpsubspace-report tbody th {font-weight: 600; width: 30%}
.dpsubspace-report thead th {border-bottom: 2px solid #767676}
.dpsubspace-report .fill {border-bottom: 2px dotted #8a1c1c; font-style: italic; color: #5c1212}
@media (max-width: 40rem) {
 .dpsubspace-report th, .dpsubspace-report td {overflow-wrap: anywhere; padding-right: .4rem}
}
@media print {
 .dpsubspace-report {max-width: none; padding: 0; font-size: 10pt}
 .dpsubspace-report h2 {break-after: avoid}
 .dpsubspace-report .annex {break-before: page}
 .dpsubspace-report tr, .dpsubspace-report .loud {break-inside: avoid}
}
"""


def fragment(title: str, sections: Sequence[Section]) -> str:
    """Return all sections as HTML to put into a page; it needs no other files."""
    parts = [f"<style>{_STYLE}</style>", '<main class="dpsubspace-report">', _tag("h1", title)]
    for i, section in enumerate(sections):
        annex = ' class="annex"' if section.first_annex else ""
        parts.append(f'<section aria-labelledby="dpsubspace-section-{i}"{annex}>')
        parts.append(f'<h2 id="dpsubspace-section-{i}">{html.escape(section.heading)}</h2>')
        parts += [_block(block) for block in section.blocks]
        parts.append("</section>")
    return "\n".join([*parts, "</main>"])


def document(title: str, sections: Sequence[Section]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f"{_tag('title', title)}\n</head>\n<body>\n{fragment(title, sections)}\n</body>\n</html>\n"
    )


def _block(block: Text | Bullets | Table) -> str:
    if isinstance(block, Text):
        if block.loud:
            return f'<p class="loud" role="note">{_marked(block.words)}</p>'
        return f"<p>{_marked(block.words)}</p>"
    if isinstance(block, Bullets):
        items = "\n".join(f"<li>{_marked(item)}</li>" for item in block.items)
        return f"<ul>\n{items}\n</ul>"
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in block.header)
    rows = [
        f'<tr><th scope="row">{_marked(row[0])}</th>'
        + "".join(f"<td>{_marked(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in block.rows
    ]
    return "\n".join(
        [
            "<table>",
            _tag("caption", block.caption),
            *([f"<thead><tr>{head}</tr></thead>"] if head else []),
            "<tbody>",
            *rows,
            "</tbody>",
            "</table>",
        ]
    )


def _tag(name: str, words: str) -> str:
    return f"<{name}>{html.escape(words)}</{name}>"


def _marked(words: str) -> str:
    """Return escaped text in which blanks to fill in are highlighted."""
    filled = f'<span class="fill">{FILL_IN}</span>'
    return html.escape(words).replace(FILL_IN, filled)
