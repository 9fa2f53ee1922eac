"""What a release says of itself in several places is the same in all of them."""

import configparser
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import dpsubspace

ROOT = Path(__file__).parents[2]

# Not in the run with the oldest versions. Torch and Dask are tested with their newest versions,
# diffprivlib needs a newer numpy than the oldest, and nothing imports the tools of the other two.
NOT_OLDEST = {"torch", "dask", "diffprivlib", "docs", "lint"}


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def setup():
    """Sections of setup.cfg."""
    parser = configparser.ConfigParser()
    parser.read_string(text_of("setup.cfg"))
    return parser


def requirements(lines):
    """Names of requirements, and the versions from which on they do."""
    found = (re.match(r"([\w.-]+)(?:>=([\d.]+))?", line.strip()) for line in lines.splitlines())
    return {each[1].lower(): each[2] for each in found if each}


def release_of(version):
    """Parts of a version, where 2 is 2.0.0."""
    parts = [int(part) for part in version.split(".")]
    return (*parts, 0, 0, 0)[:4]


def test_version_and_date_are_the_same_everywhere():
    version, date = re.search(r"## (\S+) \((.*)\)", text_of("CHANGELOG.md")).groups()
    assert version == dpsubspace.__version__
    assert f"\nversion: {version}\n" in text_of("CITATION.cff")
    assert f'\ndate-released: "{date}"\n' in text_of("CITATION.cff")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)


def test_oldest_versions_are_those_that_the_package_asks_for():
    config = setup()
    asked = requirements(config["options"]["install_requires"])
    for extra, lines in config["options.extras_require"].items():
        if extra not in NOT_OLDEST:
            asked |= requirements(lines)
    pinned = dict(re.findall(r"(?m)^([\w.-]+)==([\d.]+)$", text_of("tests/oldest.txt")))
    assert set(asked) <= set(pinned)
    for name, version in asked.items():
        assert version is not None, f"{name} has no lowest version"
        assert release_of(version) == release_of(pinned[name]), name


def test_extras_that_pages_name_exist():
    pages = ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
    named = {"torch"}  # by the errors of what needs it
    for text in map(text_of, pages):
        for names in re.findall(r'"(?:\.|dpsubspace)\[([\w,]+)\]"', text):
            named |= set(names.split(","))
        for sentence in re.findall(r"Extras: (.*?)\n\n", text, re.S):  # the list in README
            named |= set(re.findall(r"`([a-z]+)`", sentence))
    assert {"plot", "test"} <= named <= set(setup()["options.extras_require"])


def test_description_on_a_package_index_links_to_nothing_that_is_not_there(monkeypatch):
    found = {}
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=found.update))
    runpy.run_path(str(ROOT / "setup.py"))
    description = found["long_description"]
    assert len(description) > 3000 and description.startswith("# dpsubspace")
    assert re.findall(r"\]\((?!https?://)", description) == []
