"""What the site has once `project_urls` are filled in, and that it has nothing of it before."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

from dpsubspace import __version__

ROOT = Path(__file__).parents[2]
SITE = runpy.run_path(str(ROOT / "docs" / "_ext" / "site_address.py"))
FOUND = {"Source": "https://forge.invalid/some/repo/", "Documentation": "https://site.invalid/p/"}


def test_without_addresses_a_site_names_none():
    own, theme = SITE["settings"]({}, "1.0")
    assert own == {"notfound_urls_prefix": "/", "html_context": {}, "extensions": []}
    assert theme == {"navbar_start": ["navbar-logo"]}


def test_addresses_become_links():
    own, theme = SITE["settings"](FOUND, "1.0")
    template = own["html_context"]["edit_page_url_template"]
    assert template == "https://forge.invalid/some/repo/edit/main/docs/{{ file_name }}"
    assert theme["switcher"]["json_url"] == "https://site.invalid/p/switcher.json"
    assert own["html_baseurl"] == own["ogp_site_url"] == "https://site.invalid/p/1.0/"
    assert own["notfound_urls_prefix"] == "/p/1.0/"
    own, _ = SITE["settings"]({"Source": "https://gitlab.invalid/some/repo"}, "1.0")
    assert "/-/edit/main/docs/" in own["html_context"]["edit_page_url_template"]


def test_pages_that_are_made_have_no_link_to_be_edited():
    assert [
        name for name in ("api/index", "auto_examples/x", "404") if not SITE["MADE"].match(name)
    ] == []
    assert not any(map(SITE["MADE"].match, ("index", "tables", "search_for_settings", "apis")))


def test_feed_and_switcher_have_every_released_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"(?m)^## (\d\S*) \(", text)
    assert __version__ in versions
    assert [row["version"] for row in SITE["switcher"]("https://site.invalid")] == versions
    root = ElementTree.fromstring(SITE["feed"]("https://site.invalid"))
    atom = "{http://www.w3.org/2005/Atom}"
    entries = root.findall(f"{atom}entry")
    titles = [entry.findtext(f"{atom}title") for entry in entries]
    assert titles == [f"Version {version}" for version in versions]
    assert all(len(entry.findtext(f"{atom}content")) > 100 for entry in entries)
    assert root.findtext(f"{atom}updated") >= max(e.findtext(f"{atom}updated") for e in entries)
