"""A picture drawn when the site is built, by the lines that the page shows below it."""

from __future__ import annotations

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


def draw(code: str, path: Path, where: str) -> None:
    """Runs the lines, and writes the figure that is then the current one."""
    matplotlib.use("agg")
    pyplot.close("all")
    names = {"np": np, "plt": pyplot, "plot": plot, "relpos": relpos}
    exec(compile(code, where, "exec"), names)
    path.parent.mkdir(exist_ok=True)
    pyplot.gcf().savefig(path, dpi=RESOLUTION, bbox_inches="tight")
    pyplot.close("all")


class Picture(SphinxDirective):
    """The lines have np, plt, plot and relpos; the argument is read where it fails."""

    required_arguments = 1
    option_spec: ClassVar = {"open": directives.flag}  # the lines are seen at once
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        number = self.env.new_serialno("picture")
        file = f"{self.env.docname.replace('/', '-')}-{number}.png"
        path = Path(self.env.srcdir) / MADE / file
        try:
            draw(code, path, self.env.docname)
        except Exception as exc:
            raise self.error(f"the picture cannot be drawn: {exc!r}") from exc
        width = int.from_bytes(path.read_bytes()[16:20], "big") * SHOWN // RESOLUTION
        alt = self.arguments[0]
        image = nodes.image(uri=f"/{MADE}/{file}", alt=alt, width=f"{width}px")
        lines = nodes.literal_block(code, code, language="python")
        state = " open" if "open" in self.options else ""
        opened = f'<details class="drawn-by"{state}><summary>drawn by</summary>'
        shown = nodes.raw("", opened, format="html")
        self.set_source_info(image)
        return [image, shown, lines, nodes.raw("", "</details>", format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
