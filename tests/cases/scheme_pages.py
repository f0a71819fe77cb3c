"""The calls on the pages of docs/schemes, and what computes them by the definitions."""

from types import SimpleNamespace

from relpos import recipes, reference

#: This page has the lines that the calls of all pages need before them.
SETUP = "docs/schemes/index.md"
#: It has the names of relpos, but computes in plain NumPy.
DEFINITIONS = SimpleNamespace(**vars(reference), recipes=recipes)


def page_of(scheme):
    return f"docs/schemes/{scheme}.md"
