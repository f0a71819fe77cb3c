"""Links of code spans that are public names in full, and of the repository's texts."""

from __future__ import annotations

import posixpath
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

LOG = logging.getLogger(__name__)
NAME = re.compile(r"(relpos(?:\.[A-Za-z]\w*)+)(\(\))?")
#: Names inside an expression: after a module's name, or bare; no keyword.
DOTTED = re.compile(
    r"(?<![\w.])(?:relpos\.(?=\w)|(?=(?:plot|nn|recipes|data)\.))([a-z][\w.]*\w)"
)
BARE = re.compile(r"(?<![\w.])(?:relpos\.)?([A-Za-z_][\w.]*)(?![\w.]*=)")
#: Pages whose code has no `relpos.` before its names.
WITHOUT_PREFIX = {"from-transformers", "functions", "models"}
#: Spans that look like names: a file.
NO_NAMES = {"relpos.h"}
#: Texts of the repository that are pages of the site.
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "csrc/README.md": "csrc.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/transformers.md": "benchmarks-transformers.md",
}


class LinkNames(SphinxPostTransform):
    """`relpos.attention` in a code span, alone or in a call, links to its page."""

    default_priority = 400

    def run(self, **options: Any) -> None:
        short = self.env.docname in WITHOUT_PREFIX
        for literal in [*self.document.findall(nodes.literal)]:
            if isinstance(literal.parent, nodes.reference):
                continue
            name = NAME.fullmatch(literal.astext())
            if name:
                self.link(literal, name.group(1))
                continue
            parts = self.parts(literal.astext(), BARE if short else DOTTED)
            if parts:
                literal.children = []
                literal.extend(parts)
        if self.env.docname == "api/relpos":  # the docstring's table of names
            for row in self.document.findall(nodes.row):
                for text in [*row[-1].findall(nodes.Text)]:
                    text.parent.replace(text, self.parts(text, BARE) or [text])

    def parts(self, text: str, pattern: re.Pattern[str]) -> list[nodes.Node]:
        """The text with links where it names something; nothing if it does not."""
        parts: list[nodes.Node] = []
        done = 0
        objects = self.env.domains.python_domain.objects
        for match in pattern.finditer(text):
            target = objects.get(f"relpos.{match.group(1)}")
            if target is None:
                continue
            place = self.env.docname, target.docname, target.node_id
            name = nodes.Text(match.group())
            parts.append(nodes.Text(text[done : match.start()]))
            parts.append(make_refnode(self.app.builder, *place, name))
            done = match.end()
        return [*parts, nodes.Text(text[done:])] if parts else []

    def link(self, literal: nodes.literal, name: str) -> None:
        """Link a span that is nothing but a name."""
        objects = self.env.domains.python_domain.objects
        if name in objects:
            target = objects[name]
            place = self.env.docname, target.docname, target.node_id
            link = make_refnode(self.app.builder, *place, literal.deepcopy(), name)
            literal.replace_self(link)
        elif not known_otherwise(name):
            LOG.warning("no public name %s", name, location=literal)


def known_otherwise(name: str) -> bool:
    """True of a private module, and of what is no name at all."""
    if name in NO_NAMES:
        return True
    try:
        return find_spec(name) is not None
    except ImportError:
        return False


def missing(app: Sphinx, env: Any, node: Any, contnode: Any) -> None:
    """A reference to a name of relpos that is not there is a warning."""
    name = node.get("reftarget", "")
    ours = node.get("refdomain") == "py" and NAME.fullmatch(name)
    if ours and not known_otherwise(name):
        LOG.warning("no public name %s", name, location=node)


def between_pages(root: Path, file: str, text: str) -> str:
    """Links of a file of the repository, as between pages; what is no page is words."""
    folder = posixpath.dirname(file)

    def to_page(match: re.Match[str]) -> str:
        words, target, anchor = match.groups()
        inside = posixpath.normpath(posixpath.join(folder, target))
        if inside in PAGES:
            return f"[{words}](/{PAGES[inside]}{anchor})"
        if inside.startswith("docs/") and file.startswith("docs/"):
            return match.group(0)
        if inside.startswith("docs/"):
            return f"[{words}](/{inside.removeprefix('docs/')}{anchor})"
        return words if (root / inside).exists() else match.group(0)

    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!\w+:)([\w./-]+)(#[\w-]+|)\)", to_page, text)


def of_included(app: Sphinx, path: Path, docname: str, content: list[str]) -> None:
    """A text of the repository that a page includes."""
    root = Path(app.srcdir).parent
    file = (Path(app.srcdir) / path).resolve().relative_to(root.resolve())
    content[0] = between_pages(root, file.as_posix(), content[0])


def of_page(app: Sphinx, docname: str, content: list[str]) -> None:
    """A page in Markdown that lies here."""
    if app.env.doc2path(docname).suffix == ".md":
        file = f"docs/{docname}.md"
        content[0] = between_pages(Path(app.srcdir).parent, file, content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(LinkNames)
    app.connect("missing-reference", missing)
    app.connect("include-read", of_included)
    app.connect("source-read", of_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
