"""The site: `python -m sphinx -W docs build/site`.

`python -m http.server -d build/site` shows it. The build needs no network, but what
``pip install -e ".[docs]"`` installs. Without torch, the pages of `relpos.torch` are
made with a stand-in for it. Generated files (pages of the API, pictures) go into
docs/api and docs/_made, which git ignores.
"""

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

import relpos

project = "relpos"
author = "relpos developers"
copyright = "relpos developers, MIT licence"
version = release = relpos.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",  # MathJax 3 as a part of the site
    "numpydoc",
    "myst_parser",
    "nbsphinx",
    "sphinx_design",
    # files of _extensions/
    "standin",
    "api",
    "differences",
    "formulas",
    "links",
    "notebooks",
    "pictures",
    "schemes",
    "shown",
    "source",
]
exclude_patterns = ["_extensions", "experiments", "_made"]  # no pages

# ---- docstrings ----------------------------------------------------------------------

default_role = "py:obj"  # a name in backquotes; what is no public name stays plain
autodoc_typehints = "none"  # numpydoc says the types
autosummary_generate = False  # api.py writes a page for each name
add_module_names = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# ---- pages in Markdown, and notebooks ------------------------------------------------

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
myst_update_mathjax = False  # nbsphinx says where formulas are
mathjax3_config = {"options": {"enableMenu": False}}  # it would load from other hosts

nbsphinx_execute = "never"  # docs/notebooks/run.py does
nbsphinx_requirejs_path = ""
nbsphinx_widgets_path = ""
if shutil.which("pandoc") is None:
    import pypandoc

    os.environ["PATH"] += os.pathsep + str(Path(pypandoc.get_pandoc_path()).parent)

# ---- HTML ----------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "relpos"
html_static_path = ["_static"]
html_css_files = ["relpos.css"]
html_copy_source = False
html_show_sphinx = False
html_sidebars = {name: [] for name in ("index", "install", "changelog")}
html_theme_options = {
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 8,
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
