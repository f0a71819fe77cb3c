"""The schemes' pages: what the catalogue knows is added to what is written there."""

from __future__ import annotations

import re
from pathlib import Path

from api import public
from functions import functions_of, heading
from notebooks import notebooks
from papers import linked, papers
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
WRITTEN = ["Formula", "Call", "Picture", "Traps"]
#: The page of all schemes has the lines before the calls, from one heading to the next.
BEFORE_CALLS = re.compile(r"^## The calls\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)


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
    """Papers, models, functions and notebooks of a scheme, and its other names."""
    models = ", ".join(scheme.models) or "None that relpos names"
    lines = ["\n## References\n"]
    lines += [f"- {linked(paper)}" for paper in papers(scheme)]
    lines += ["\n## Models that use it\n"]
    lines.append(f"{models}. [All models](/models.md), with their calls.\n")
    lines.append(f"Family: {scheme.family}.")
    if scheme.synonyms:
        called = ", ".join(f"`{name}`" for name in scheme.synonyms)
        lines.append(f"In code the scheme is called {called}, too.")
    lines += ["\n## Functions\n", *functions_of(scheme)]
    named = own_functions(scheme), own_words(scheme)
    shown = [n for n in notebooks() if n.uses & named[0] or n.words & named[1]]
    lines += ["\n## Notebooks\n"]
    lines += [f"- [{n.title}](/notebooks/{n.name}.ipynb)" for n in shown]
    if not shown:
        lines.append("None is about it; [all of them](/notebooks/index.md).")
    return "\n".join(lines) + "\n"


def before_calls(page: str) -> str:
    """Return, folded, the lines that the calls of a page need before them."""
    index = (FOLDER / "index.md").read_text("utf-8")
    (lines,) = BEFORE_CALLS.findall(index)
    if "```pycon" not in page:
        lines = lines.partition("With PyTorch:")[0]
    title = "Set-up: q, k and v are (H, L, D), and x is (L, d)"
    opened = f'<details class="drawn-by"><summary>{title}</summary>'
    return f"{opened}\n{lines}\n</details>\n\n"


def own_functions(scheme: Scheme) -> frozenset[str]:
    """Return the functions of a scheme, without `attention`, which serves all."""
    names = {name for name in scheme.functions if name != "attention"}
    full = {f"relpos.{name}" for name in names}
    on_tensors = {f"relpos.torch.{name}" for name in names}
    return frozenset(full | on_tensors) & public().keys()


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
        text = rest.replace("## Picture\n", f"{before_calls(rest)}## Picture\n")
        content[0] = f"{title}\n\n{found_by(scheme)}{text}{known_of(scheme)}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_known, priority=400)  # before links are looked at
    return {"parallel_read_safe": True, "parallel_write_safe": True}
