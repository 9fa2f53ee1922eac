"""Links that a site can have, and a page on a forge cannot."""

import re

from docutils import nodes
from sphinx.addnodes import pending_xref

from dpsubspace._names import PLACES


def point_into_the_site(app, docname, source):
    """Point links to files outside of docs/ to the pages that show them."""
    text = source[0].replace("](../benchmarks/README.md", "](benchmarks/index.md")
    text = text.replace("](../benchmarks/pages/", "](benchmarks/")
    text = text.replace("](../CHANGELOG.md", "](changelog.md")
    text = text.replace("](_ext/site_proofs.py)", "](proofs/index.rst)")
    text = re.sub(r"\]\(\.\./examples/([\w/]+)\.py\)", r"](auto_examples/\1.rst)", text)
    # Files that the site has under the same names: to be opened, and not to be downloaded.
    shown = "|".join(re.escape(name) for name in app.config.html_extra_path)
    source[0] = re.sub(rf"\[([^\]]+)\]\(({shown})\)", r'<a href="\2">\1</a>', text)


def target_of(text):
    """Give what a piece of code names: a public name, an example, or nothing."""
    if (found := re.match(r"(\w+)(\(|\.\w|$)", text)) and found[1] in PLACES:
        return {"refdomain": "py", "reftype": "obj", "reftarget": f"{PLACES[found[1]]}.{found[1]}"}
    if found := re.fullmatch(r"(?:python )?examples/([\w/]+)\.py", text):
        return {"refdomain": "std", "reftype": "doc", "reftarget": f"/auto_examples/{found[1]}"}
    return None


def ancestors(node):
    """Give all nodes around a node."""
    while node.parent is not None:
        node = node.parent
        yield node


def no_place_for_links(node):
    """Say whether a node is a link itself, or goes into a table of contents."""
    return isinstance(node, nodes.reference | pending_xref | nodes.title)


def link_names(app, doctree):
    """Link public names, and examples, that a page mentions as code."""
    for code in list(doctree.findall(nodes.literal)):
        if any(map(no_place_for_links, ancestors(code))):
            continue
        if where := target_of(code.astext()):
            link = pending_xref("", refdoc=app.env.docname, refexplicit=True, refwarn=True, **where)
            code.replace_self(link)
            link += code


def setup(app):
    """Connect both."""
    app.connect("source-read", point_into_the_site)
    app.connect("doctree-read", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
