"""A picture drawn when the site is built, by the lines that the page shows below it."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path
from typing import Any, ClassVar

import matplotlib
import numpy as np
from docutils import nodes
from docutils.parsers.rst import directives
from matplotlib import pyplot
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import relpos
from relpos import plot

MADE = "_made"
RESOLUTION = 160
SHOWN = 75  # pixels of the page for an inch of the figure


def examples_of(text: str) -> str:
    """The code of the examples in a part of a page, without what they print."""
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    found = doctest.DocTestParser().get_examples("\n".join(blocks))
    return "".join(example.source for example in found if not example.exc_msg)


def draw(code: str, path: Path, where: str, before: str = "") -> None:
    """Runs the lines, and writes the figure that is then the current one."""
    matplotlib.use("agg")
    pyplot.close("all")
    names = {"np": np, "plt": pyplot, "plot": plot, "relpos": relpos}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(before, where, "exec"), names)
    exec(compile(code, where, "exec"), names)
    path.parent.mkdir(exist_ok=True)
    pyplot.gcf().savefig(path, dpi=RESOLUTION, bbox_inches="tight")
    pyplot.close("all")


class Picture(SphinxDirective):
    """The lines have np, plt, plot and relpos; the argument is the alternative text."""

    required_arguments = 1
    option_spec: ClassVar = {
        "caption": directives.unchanged,
        "continued": directives.flag,  # the lines have the names of the page's examples
        "open": directives.flag,  # the lines are seen at once
    }
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        number = self.env.new_serialno("picture")
        file = f"{self.env.docname.replace('/', '-')}-{number}.png"
        path = Path(self.env.srcdir) / MADE / file
        alt = self.arguments[0]
        before = ""
        if "continued" in self.options:
            page = Path(self.env.doc2path(self.env.docname)).read_text("utf-8")
            before = examples_of(page.partition(f"```{{picture}} {alt}\n")[0])
        try:
            draw(code, path, self.env.docname, before)
        except Exception as exc:
            raise self.error(f"the picture cannot be drawn: {exc!r}") from exc
        width = int.from_bytes(path.read_bytes()[16:20], "big") * SHOWN // RESOLUTION
        image = nodes.image(uri=f"/{MADE}/{file}", alt=alt, width=f"{width}px")
        lines = nodes.literal_block(code, code, language="python")
        state = " open" if "open" in self.options else ""
        opened = (
            f'<details class="drawn-by"{state}><summary>code of the picture</summary>'
        )
        shown = nodes.raw("", opened, format="html")
        self.set_source_info(image)
        figure = nodes.figure("", image)
        if "caption" in self.options:
            words, _ = self.parse_inline(self.options["caption"])
            figure += nodes.caption("", "", *words)
        return [figure, shown, lines, nodes.raw("", "</details>", format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
