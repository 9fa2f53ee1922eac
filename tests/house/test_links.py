"""Links between pages lead somewhere, and the reference has every public name once.

Links to other sites are looked at by ``python -m sphinx -b linkcheck docs docs/_build/links``,
which needs a network and is no part of the tests.
"""

import re
import runpy
from collections import Counter
from pathlib import Path

from dpsubspace._names import PLACES

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "benchmarks/README.md",
    *sorted(ROOT.glob("benchmarks/pages/*.md")),
    ROOT / "findings/README.md",
    *sorted(ROOT.glob("docs/*.md")),
]


def prose(path):
    """Text of a page without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```", "", path.read_text(), flags=re.M | re.S)


def anchors(path):
    """What a forge, and the site, call the headings of a page in links."""
    found = Counter()
    for title in re.findall(r"^#{1,6} +(.+?) *$", prose(path), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found[slug] += 1
        yield slug if found[slug] == 1 else f"{slug}-{found[slug] - 1}"


def broken_links(path):
    """Links of a page that lead nowhere."""
    text = re.sub(r"(`+).*?\1", "", prose(path))
    links = re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", prose(path))
    cards = re.findall(r"^:link: *(\w+)$", text, re.M)  # what is generated, Sphinx looks for
    links += [f"{card}.md" for card in cards]
    links += re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    for link in links:
        if re.match(r"https?:|mailto:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name) if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def test_links_lead_somewhere():
    assert [(path.name, link) for path in PAGES for link in broken_links(path)] == []


def test_reference_has_every_public_name_once():
    subjects = runpy.run_path(str(ROOT / "docs" / "_ext" / "site_reference.py"))["SUBJECTS"]
    named = Counter(name for *_, names in subjects.values() for name in names)
    assert named == Counter([*PLACES])
