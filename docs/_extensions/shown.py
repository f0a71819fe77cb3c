"""On the page of a public name: its schemes, their functions, notebooks that use it."""

from __future__ import annotations

from api import summary
from docutils import nodes
from functions import heading
from notebooks import FOLDER, notebooks
from schemes import own_functions
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from relpos._schemes import SCHEMES


class ShownIn(SphinxDirective):
    """The argument is a public name in full."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        for path in FOLDER.glob("*.ipynb"):
            self.env.note_dependency(str(path))
        using = [n for n in notebooks() if name in n.uses]
        schemes = [s for s in SCHEMES if name in own_functions(s)]
        related = {n: None for s in schemes for n in sorted(own_functions(s) - {name})}
        others = [n for n in related if is_on_tensors(n) == is_on_tensors(name)]
        lists = {
            "Schemes": [
                f"* :doc:`{heading(scheme.name)[0]} </schemes/{scheme.name}>`"
                for scheme in schemes
            ],
            "See also": [f"* :py:obj:`{n}`: {summary(n)}" for n in others],
            "Notebooks": [f"* :doc:`{n.title} </notebooks/{n.name}>`" for n in using],
        }
        lines = []
        for title, entries in lists.items():
            if entries:
                lines += [f".. rubric:: {title}", "", *entries, ""]
        return self.parse_text_to_nodes("\n".join(lines)) if lines else []


def is_on_tensors(name: str) -> bool:
    return name.startswith("relpos.torch.")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("shown-in", ShownIn)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
