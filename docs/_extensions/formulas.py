"""Words in formulas are upright: docstrings have them plain, to be read in help()."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

#: Arguments of these commands stay as they are, and so do names of commands.
WORDS = re.compile(
    r"\\(?:operatorname\*?|mathrm|mathbf|mathbb|text|texttt|begin|end)\s*\{[^{}]*\}"
    r"|\\[A-Za-z]+"
    r"|(?P<word>[A-Za-z]{3,}(?:\\_[A-Za-z]+)*)(?P<call>\s*(?:_(?:\{\w+\}|\w))?\()?"
)
#: Of a formula that may be wider than its page, without commands.
COLUMNS = 45
#: Letters of several indices, one after the other.
INDICES = re.compile(r"[bhijklt]{3}")


def upright(formula: str) -> str:
    """Return the formula of TeX with its words, of three letters or more, upright."""

    def one(match: re.Match[str]) -> str:
        word, call = match["word"], match["call"]
        if not word or INDICES.fullmatch(word):
            return match[0]
        command = "operatorname" if call else "mathrm"
        return f"\\{command}{{{word}}}{call or ''}"

    return WORDS.sub(one, formula)


def broken(formula: str) -> str:
    """Return a long formula of one line with its parts one below the other."""
    seen = re.sub(r"\\[A-Za-z]+|[{}^_\s]", "", formula)
    if len(seen) < COLUMNS or "\\\\" in formula or "\\begin" in formula:
        return formula
    whole = formula.strip()
    lines = re.sub(r",\s*\\q?quad\b", r", \\\\", whole)
    lines = re.sub(r"\n\s*\n", "\\\\\\\\\n", lines)  # where Sphinx would make two of it
    return f"\\begin{{gathered}}{lines}\\end{{gathered}}" if lines != whole else formula


class Upright(SphinxPostTransform):
    """Sets the words of each formula of a page upright."""

    default_priority = 410

    def run(self, **options: Any) -> None:
        for node in self.document.findall(
            lambda node: isinstance(node, nodes.math | nodes.math_block)
        ):
            text = upright(node.astext())
            if isinstance(node, nodes.math_block):
                text = broken(text)
            node.children = []
            node += nodes.Text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(Upright)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
