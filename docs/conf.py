"""How the documentation site is built.

The command is in ``docs/contributing.md``. Nothing is downloaded, and warnings are errors. The
pages in ``docs/*.md`` can also be read on a forge: ``_ext/`` adds what only a site can have.
"""

import os
import sys
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when numpy is first imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_ext"))

import site_address  # noqa: E402
import site_gallery  # noqa: E402
import site_reference  # noqa: E402

import dpsubspace  # noqa: E402

# The gallery names what an example uses by the shortest path, which may be one of before.
warnings.filterwarnings("ignore", "`from dpsubspace import", FutureWarning)

project = "dpsubspace"
author = copyright = "The dpsubspace developers"
version = release = dpsubspace.__version__
by_address, theme_by_address = site_address.settings(site_address.addresses(), version)

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "notfound.extension",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "site_address",
    "site_benchmarks",
    "site_links",
    "site_proofs",
    "site_reference",
    *by_address.pop("extensions"),
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
smartquotes = False  # quotes are code in types such as {"zero_out", "replace_one"}
default_role = "py:obj"  # single backticks of docstrings: a link where it is a name of ours

# Pages.
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4

# Reference: one parameter on a line of a signature, without annotations, which the docstring
# says in words.
autosummary_generate = [f"api/{subject}.rst" for subject in site_reference.SUBJECTS]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 60
python_trailing_comma_in_multi_line_signatures = False
add_module_names = False
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Gallery.
sphinx_gallery_conf = {
    "examples_dirs": str(site_gallery.EXAMPLES),
    "gallery_dirs": "auto_examples",
    "filename_pattern": site_gallery.pattern_of_those_that_run(),
    "subsection_order": [f"../examples/{name}" for name in site_gallery.SECTIONS],
    "within_subsection_order": "site_gallery.Order",
    "abort_on_example_error": True,
    "min_reported_time": 1,
    "reset_modules": ("matplotlib", "site_gallery.own_warnings"),
    "reset_modules_order": "both",
    "backreferences_dir": "api/examples",
    "doc_module": ("dpsubspace",),
    "show_signature": False,
    "download_all_examples": False,
    "default_thumb_file": str(DOCS / "_static" / "page.svg"),
}

# Look.
html_theme = "pydata_sphinx_theme"
html_title = "dpsubspace"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "_static" / "search_scorer.js")
html_favicon = "_static/mark.svg"
html_extra_path = ["example_report.html", "privacy_schema.json"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {page: [] for page in ("index", "getting_started", "404")}
html_theme_options = {
    "logo": {
        "text": f"dpsubspace {version}",
        "image_light": "_static/mark.svg",
        "image_dark": "_static/mark.svg",
    },
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    **theme_by_address,
}
globals().update(by_address)
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
