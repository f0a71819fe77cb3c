"""List of all differences that `relpos.diagnose` names, on the page that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relpos._opinion.diagnose import LAYOUTS
from relpos._opinion.differences import DIFFERENCES

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PAGE = "check-your-implementation"
MARK = "<!-- docs/_extensions/differences.py writes the differences here -->"
KINDS = {"convention": "Conventions", "mistake": "Mistakes"}


def tables() -> str:
    """Return a table for each kind, with a name and its words in a row."""
    lines = []
    for kind, title in KINDS.items():
        rows = {row.name: row.words for row in DIFFERENCES if row.kind == kind}
        rows |= LAYOUTS if kind == "convention" else {}
        lines += ["", f"### {title}", "", "| name | relpos with |", "|---|---|"]
        for name, words in rows.items():
            cell = words.rstrip("; ").replace("|", r"\|")
            lines.append(f"| `{name}` | {cell} |")
    return "\n".join(lines) + "\n"


def add_tables(app: Sphinx, docname: str, content: list[str]) -> None:
    """Replace the mark by the tables."""
    if docname == PAGE:
        content[0] = content[0].replace(MARK, tables())


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_tables, priority=400)  # before links are looked at
    return {"parallel_read_safe": True, "parallel_write_safe": True}
