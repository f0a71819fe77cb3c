"""Pictures: drawn when the site is built, by lines below them; all with captions."""

from __future__ import annotations

import contextlib
import doctest
import io
from pathlib import Path
from typing import Any, ClassVar

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from standin import HAS_TORCH

import relpos
from relpos import plot

MADE = "_made"
RESOLUTION = 160
SHOWN = 75  # pixels of the page for an inch of the figure


def draw(code: str, path: Path, where: str, names: dict[str, Any]) -> None:
    """Runs the lines, and writes the figure that is then the current one."""
    mpl.use("agg")
    plt.close("all")
    exec(compile(code, where, "exec"), names)
    path.parent.mkdir(exist_ok=True)
    plt.gcf().savefig(path, dpi=RESOLUTION, bbox_inches="tight")
    plt.close("all")


def lines_of(block: str) -> str:
    """The code of a block; of examples, without what they print and what they raise."""
    if not block.startswith(">>>"):
        return block
    examples = doctest.DocTestParser().get_examples(f"{block}\n")
    return "".join(example.source for example in examples if not example.exc_msg)


class Picture(SphinxDirective):
    """The lines have np, plt, plot and relpos; the argument is the alt text.

    With ``:open:`` the lines are seen at once; with ``:page:`` they also have the names
    of the page's blocks of Python above them. ``:caption:`` is below the picture.
    """

    required_arguments = 1
    option_spec: ClassVar = {
        "caption": directives.unchanged,
        "open": directives.flag,
        "page": directives.flag,
    }
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        number = self.env.new_serialno("picture")
        file = f"{self.env.docname.replace('/', '-')}-{number}.png"
        path = Path(self.env.srcdir) / MADE / file
        names = {"np": np, "plt": plt, "plot": plot, "relpos": relpos}
        try:
            if "page" in self.options:
                names = self.names_above(names)
            draw(code, path, self.env.docname, names)
        except Exception as exc:
            raise self.error(f"the picture cannot be drawn: {exc!r}") from exc
        width = int.from_bytes(path.read_bytes()[16:20], "big") * SHOWN // RESOLUTION
        alt = self.arguments[0]
        image = nodes.image(uri=f"/{MADE}/{file}", alt=alt, width=f"{width}px")
        lines = nodes.literal_block(code, code, language="python")
        state = " open" if "open" in self.options else ""
        opened = f'<details class="drawn-by"{state}><summary>Show code</summary>'
        shown = nodes.raw("", opened, format="html")
        self.set_source_info(image)
        picture: nodes.Element = image
        if "caption" in self.options:
            words, _ = self.parse_inline(self.options["caption"])
            picture = nodes.figure("", image, nodes.caption("", "", *words))
        return [picture, shown, lines, nodes.raw("", "</details>", format="html")]

    def names_above(self, names: dict[str, Any]) -> dict[str, Any]:
        """Run the blocks above that have not run, and return the names of the page."""
        names, done = self.env.temp_data.setdefault("picture names", (names, []))
        for block in [*self.state.document.findall(nodes.literal_block)]:
            code = block.astext()
            if block.get("language") == "python" and code not in done:
                done.append(code)
                if "torch" not in code or HAS_TORCH:
                    with contextlib.redirect_stdout(io.StringIO()):
                        exec(compile(lines_of(code), self.env.docname, "exec"), names)
        return names


class Captions(SphinxPostTransform):
    """Makes each picture that is alone a figure: its alt text is the caption.

    The pictures of a notebook have the title of their section.
    """

    default_priority = 420

    def run(self, **options: Any) -> None:
        for number, image in enumerate([*self.document.findall(nodes.image)], 1):
            block = image.parent
            if isinstance(block, nodes.figure) and not block["ids"]:
                block["ids"] = [f"picture-{number}"]
            alone = isinstance(block, nodes.paragraph) and len(block.children) == 1
            if isinstance(block, nodes.figure) or not (alone or is_block(block)):
                continue
            if self.env.docname.startswith("notebooks/"):
                image["alt"] = title_above(image)
            figure = nodes.figure("", ids=[f"picture-{number}"])
            if alone:  # the figure takes the place of the paragraph
                block.replace_self(figure)
            else:
                image.replace_self(figure)
            words = image.get("alt", "").strip().rstrip(".")
            stop = "" if words.endswith(("?", "!")) else "."
            caption = f"{words[:1].upper()}{words[1:]}{stop}"
            figure += [image, nodes.caption("", caption)]


def is_block(parent: nodes.Node) -> bool:
    """Return True for what has paragraphs and pictures side by side."""
    kinds = nodes.section | nodes.document | nodes.container
    plain = not any("card" in name for name in parent.get("classes", ()))
    return isinstance(parent, kinds) and plain


def title_above(node: nodes.Node) -> str:
    """Return the title of the section that a node is in."""
    while node.parent is not None:
        node = node.parent
        if isinstance(node, nodes.section) and node.children:
            return node.next_node(nodes.title).astext()
    return ""


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("picture", Picture)
    app.add_post_transform(Captions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
