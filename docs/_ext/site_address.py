"""What a site can have once it has an address: links to its files, versions, cards and a feed.

Addresses stand in ``project_urls`` of setup.cfg alone. As long as there are none, a site has
nothing of all this. ``Source`` is where the repository is, and ``Documentation`` is the folder
that has a folder for each version of the site.
"""

import configparser
import json
import re
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
# Pages that are no files in docs/, so that no link can lead to where one edits them.
MADE = re.compile(r"(api|auto_examples|proofs)/|(genindex|search|404|py-modindex)$")
FEED = "changelog.xml"


def addresses():
    """Addresses by name, of setup.cfg."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config.get("metadata", "project_urls", fallback="").strip().splitlines()
    return dict(re.split(r"\s*=\s*", line.strip(), maxsplit=1) for line in lines)


def settings(found, version):
    """Names and values of what Sphinx, the theme and other extensions want of addresses."""
    own = {"notfound_urls_prefix": "/", "html_context": {}, "extensions": []}
    theme = {"navbar_start": ["navbar-logo"]}
    if source := found.get("Source", "").rstrip("/"):
        edit = "/-/edit/main/" if "gitlab" in urlsplit(source).netloc else "/edit/main/"
        own["html_context"] = {
            "edit_page_url_template": f"{source}{edit}docs/{{{{ file_name }}}}",
            "edit_page_provider_name": "the repository",
        }
        theme["use_edit_page_button"] = True
        theme["secondary_sidebar_items"] = ["page-toc", "edit-this-page"]
        theme["icon_links"] = [{"name": "Repository", "url": source, "icon": "fa-solid fa-code"}]
    if site := found.get("Documentation", "").rstrip("/"):
        here = f"{site}/{version}/"
        own |= {"notfound_urls_prefix": urlsplit(here).path, "html_baseurl": here}
        own |= {"extensions": ["sphinxext.opengraph"], "ogp_site_url": here}
        theme["navbar_start"] = ["navbar-logo", "version-switcher"]
        # The newest version says which there are: its files are at the top of the site.
        theme["switcher"] = {"json_url": f"{site}/switcher.json", "version_match": version}
        theme["check_switcher"] = False
    return own, theme


def released():
    """Version, date and text of each part of the changelog that has a date."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.findall(r"(?ms)^## (\S+) \((\d{4}-\d\d-\d\d)\)\n(.*?)(?=^## |\Z)", text)


def switcher(site):
    """The list of versions that the theme reads."""
    names = [version for version, *_ in released()]
    return [{"version": each, "url": f"{site}/{each}/"} for each in names]


def feed(site):
    """An Atom feed (RFC 4287) of what changed in each version."""
    root = ElementTree.Element("feed", xmlns="http://www.w3.org/2005/Atom")

    def add(parent, name, text="", **attributes):
        ElementTree.SubElement(parent, name, attributes).text = text or None

    add(root, "title", "dpsubspace: what is new")
    add(root, "id", f"{site}/{FEED}")
    add(root, "link", rel="self", href=f"{site}/{FEED}")
    add(root, "updated", f"{max(date for _, date, _ in released())}T00:00:00Z")
    for version, date, text in released():
        entry = ElementTree.SubElement(root, "entry")
        add(entry, "title", f"Version {version}")
        add(entry, "id", f"{site}/{version}/changelog.html")
        add(entry, "link", href=f"{site}/{version}/changelog.html")
        add(entry, "updated", f"{date}T00:00:00Z")
        add(ElementTree.SubElement(entry, "author"), "name", "The dpsubspace developers")
        add(entry, "content", text.strip())
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def adapt(app, page, template, context, doctree):
    """Name the feed in the head of a page, and leave the link to edit it out where it has none."""
    if MADE.match(page):
        context["theme_use_edit_page_button"] = False
    if site := app.config.site_root:
        link = f'<link rel="alternate" type="application/atom+xml" href="{site}/{FEED}">'
        context["metatags"] = context.get("metatags", "") + link


def write(app, exception):
    """Write the list of versions and the feed."""
    if (site := app.config.site_root) and not exception:
        folder = Path(app.outdir)
        (folder / "switcher.json").write_text(json.dumps(switcher(site)), encoding="utf-8")
        (folder / FEED).write_text(feed(site), encoding="utf-8")


def setup(app):
    """Connect both."""
    root = addresses().get("Documentation", "").rstrip("/")
    app.add_config_value("site_root", root, "html")
    app.connect("html-page-context", adapt)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
