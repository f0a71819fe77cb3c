"""A picture drawn when the site is built, by the lines that the page shows below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from docutils import nodes
from matplotlib import pyplot
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import relpos
from relpos import plot

MADE = "_made"
RESOLUTION = 120


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
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        number = self.env.new_serialno("picture")
        file = f"{self.env.docname.replace('/', '-')}-{number}.png"
        try:
            draw(code, Path(self.env.srcdir) / MADE / file, self.env.docname)
        except Exception as exc:
            raise self.error(f"the picture cannot be drawn: {exc!r}") from exc
        image = nodes.image(uri=f"/{MADE}/{file}", alt=self.arguments[0])
        lines = nodes.literal_block(code, code, language="python")
        shown = nodes.raw(
            "", '<details class="drawn-by"><summary>drawn by</summary>', format="html"
        )
        self.set_source_info(image)
        return [image, shown, lines, nodes.raw("", "</details>", format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
