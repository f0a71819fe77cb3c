"""The schemes' pages: what the catalogue knows is added to what is written there."""

from __future__ import annotations

import re
from pathlib import Path

from api import public, summary
from functions import heading
from notebooks import notebooks
from sphinx.application import Sphinx
from sphinx.util import logging

from relpos import data
from relpos._schemes import SCHEMES, Scheme, scheme_called

LOG = logging.getLogger(__name__)
FOLDER = Path(__file__).resolve().parents[1] / "schemes"
#: Names of schemes and of operands that are words of any notebook.
PLAIN_WORDS = {
    "attention",
    "plain",
    "bias",
    "learned",
    "naive",
    "graph",
    "is_causal",
    "labels",
    "indices",
    "threshold",
    "c",
    "w1",
    "w2",
    "b1",
    "b2",
}
#: What a page says itself; the rest is the catalogue's.
WRITTEN = ["Formula", "Picture", "Traps"]


def faults() -> list[str]:
    """Pages without a scheme, schemes without a page, pages with other headings."""
    names = {scheme.name for scheme in SCHEMES}
    pages = {path.stem: path for path in FOLDER.glob("*.md") if path.stem != "index"}
    found = [f"no page docs/schemes/{name}.md" for name in sorted(names - {*pages})]
    for name, path in sorted(pages.items()):
        headings = re.findall(r"^## (.*)$", path.read_text("utf-8"), re.MULTILINE)
        if name not in names:
            found.append(f"{path.name}: the catalogue has no such scheme")
        elif headings != WRITTEN:
            found.append(f"{path.name}: headings {headings}; wanted {WRITTEN}")
    return found


def found_by(scheme: Scheme) -> str:
    """Return index entries: a search for a name of a scheme finds its page first."""
    names = (scheme.name, *scheme.synonyms)
    entries = dict.fromkeys(name.replace("_", " ") for name in names)
    return "".join(f"```{{index}} ! {entry}\n```\n\n" for entry in entries)


def known_of(scheme: Scheme) -> str:
    """Models, functions and notebooks of a scheme, and what else it is called."""
    family = next(f for f in data.families() if f.name == scheme.family)
    models = ", ".join(scheme.models) or "None that relpos names"
    lines = ["\n## Models that use it\n"]
    lines.append(f"{models}. [All models](/models.md), with their calls.\n")
    lines.append(f"Family: {family.name} ({family.paper}).")
    if scheme.synonyms:
        called = ", ".join(f"`{name}`" for name in scheme.synonyms)
        lines.append(f"In code the scheme is called {called}, too.")
    lines += ["\n## Functions\n"]
    for function in scheme.functions:
        name = f"relpos.{function}"
        said = re.sub(r":math:`([^`]*)`", r"$\1$", summary(name))
        lines.append(f"- `{name}`: {said}")
    named = own_functions(scheme), own_words(scheme)
    shown = [n for n in notebooks() if n.uses & named[0] or n.words & named[1]]
    lines += ["\n## Notebooks\n"]
    lines += [f"- [{n.title}](/notebooks/{n.name}.ipynb)" for n in shown]
    if not shown:
        lines.append("None is about it; [all of them](/notebooks/index.md).")
    return "\n".join(lines) + "\n"


def own_functions(scheme: Scheme) -> frozenset[str]:
    """Return the functions of a scheme, without `attention`, which serves all."""
    names = {f"relpos.{function}" for function in scheme.functions}
    return frozenset(names - {"relpos.attention"}) & public().keys()


def own_words(scheme: Scheme) -> set[str]:
    """Its names, and arguments of attention that no other scheme has."""
    others = [s for s in SCHEMES if s is not scheme]
    shared = {name for s in others for name in (*s.operands, *dict(s.settings))}
    words = {scheme.name, *scheme.synonyms, *scheme.operands, *dict(scheme.settings)}
    return words - shared - PLAIN_WORDS


def table() -> str:
    lines = ["\n| family | acts on | scheme | models |", "|---|---|---|---|"]
    for family in data.families():
        for scheme in (s for s in SCHEMES if s.family == family.name):
            title, _ = heading(scheme.name)
            link = f"[{title}]({scheme.name}.md)"
            models = ", ".join(scheme.models)
            lines.append(f"| {family.name} | {family.acts_on} | {link} | {models} |")
    pages = "\n".join(scheme.name for scheme in SCHEMES)
    return "\n".join(lines) + f"\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def add_known(app: Sphinx, docname: str, content: list[str]) -> None:
    """Insert the catalogue's facts below the text of the page."""
    folder, _, name = docname.rpartition("/")
    if folder != "schemes":
        return
    if name == "index":
        content[0] += table()
        for fault in faults():
            LOG.warning(fault)
    else:
        scheme = scheme_called(name)
        title, _, rest = content[0].partition("\n")
        content[0] = f"{title}\n\n{found_by(scheme)}{rest}{known_of(scheme)}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_known, priority=400)  # before links are looked at
    return {"parallel_read_safe": True, "parallel_write_safe": True}
