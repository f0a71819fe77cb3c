"""Gallery of notebooks, and the notebooks that use a function, on its page."""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from api import public
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
MADE = "_made"
STORY = 240  # letters


class Notebook(NamedTuple):
    name: str
    title: str
    story: str
    picture: bytes | None
    uses: frozenset[str]  # public names in full
    words: frozenset[str]  # strings, and names of arguments


@cache
def notebooks() -> tuple[Notebook, ...]:
    return tuple(read(path) for path in sorted(FOLDER.glob("*.ipynb")))


def read(path: Path) -> Notebook:
    """Title and story are those of the first cell, the picture the first one shown.

    A cell with the tag "thumbnail" comes before the others.
    """
    cells = json.loads(path.read_text("utf-8"))["cells"]
    first = "".join(cells[0]["source"])
    title, _, rest = first.partition("\n")
    told = rest.strip().partition("\n\n")[0].replace("\n", " ")
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", told)  # the card itself is a link
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    plain = re.sub(r"^[ \t]*[%!].*$", "", "\n".join(code), flags=re.MULTILINE)
    tree = ast.parse(plain)
    return Notebook(
        path.stem,
        title.lstrip("# "),
        beginning(words),
        first_picture(cells),
        frozenset(names_in(tree)),
        frozenset(words_in(tree)),
    )


def first_picture(cells: list[dict[str, Any]]) -> bytes | None:
    """Return the first picture that is shown, by a tagged cell if there is one."""
    for cell in sorted(cells, key=tagged, reverse=True):  # stable: in order otherwise
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                return base64.b64decode("".join(output["data"]["image/png"]))
    return None


def beginning(text: str) -> str:
    """Its first sentences, as many as a card holds."""
    story = ""
    for sentence in re.split(r"(?<=[.?!]) (?=[A-Z`*])", text):
        if story and len(story) + len(sentence) > STORY:
            break
        story += f" {sentence}"
    return story.strip()


def tagged(cell: dict[str, Any]) -> bool:
    """Return True if the gallery shows the picture of this cell first."""
    return "thumbnail" in cell["metadata"].get("tags", ())


def words_in(tree: ast.AST) -> Iterator[str]:
    """Strings of code, in small letters, and the names of keyword arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.lower()


def names_in(tree: ast.AST) -> Iterator[str]:
    """Public names that code uses, in full, by whatever name it imports them."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                first = item.name.partition(".")[0]
                known[item.asname or first] = item.name if item.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module:
            for item in node.names:
                known[item.asname or item.name] = f"{node.module}.{item.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            first, _, rest = ast.unparse(node).partition(".")
            name = f"{known.get(first, '')}.{rest}".rstrip(".")
            if name in public():
                yield name


class Gallery(SphinxDirective):
    """A card for each notebook: its picture, its title, its story."""

    def run(self) -> list[nodes.Node]:
        folder = Path(self.env.srcdir) / MADE
        folder.mkdir(exist_ok=True)
        cards = []
        for notebook in notebooks():
            self.env.note_dependency(str(FOLDER / f"{notebook.name}.ipynb"))
            image = (
                f":img-top: /{MADE}/{notebook.name}.png\n:img-alt: {notebook.title}\n"
            )
            if notebook.picture:
                (folder / f"{notebook.name}.png").write_bytes(notebook.picture)
            cards.append(
                f":::{{grid-item-card}} {notebook.title}\n"
                f":link: /notebooks/{notebook.name}\n:link-type: doc\n"
                f"{image if notebook.picture else ''}\n{notebook.story}\n:::\n"
            )
        options = ":gutter: 3\n:class-container: gallery\n"
        grid = f"::::{{grid}} 1 2 2 3\n{options}\n{''.join(cards)}::::\n"
        return self.parse_text_to_nodes(grid) if cards else []


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("notebook-gallery", Gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
