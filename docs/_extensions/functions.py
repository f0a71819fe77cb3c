"""Lists of docs/functions.md, which `python docs/_extensions/functions.py` writes.

They are made of the catalogue. The file has them between two marks, so that a reader of
the repository sees them too.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import relpos
from relpos._schemes import GENERAL, SCHEMES

DOCS = Path(__file__).resolve().parents[1]
PAGE = DOCS / "functions.md"
BEGIN = "<!-- written by python docs/_extensions/functions.py -->"
END = "<!-- end -->"


def heading(name: str) -> tuple[str, str]:
    """Return the title of a scheme's page, and its first sentence."""
    text = (DOCS / "schemes" / f"{name}.md").read_text("utf-8")
    title, first = text.split("\n\n")[:2]
    return title.lstrip("# "), " ".join(first.split()).partition(". ")[0].rstrip(".")


def lists() -> str:
    """Return a row for each scheme, and one for each function that serves any."""
    lines = ["| scheme | what it is | models | functions |", "|---|---|---|---|"]
    for scheme in SCHEMES:
        title, first = heading(scheme.name)
        names = [name for name in scheme.functions if name[:3] != "nn."]
        functions = ", ".join(f"`{name}`" for name in names)
        models = ", ".join(scheme.models)
        cells = f"[{title}](schemes/{scheme.name}.md)", first, models, functions
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| for | function | what it does |", "|---|---|---|"]
    for head, names in GENERAL.items():
        for name in names:
            said = (inspect.getdoc(getattr(relpos, name)) or "").partition("\n")[0]
            lines.append(
                f"| {head} | `{name}` | {said.replace('``', '`').rstrip('.')} |"
            )
            head = ""
    return "\n".join(lines)


def written(text: str) -> str:
    """Return the page with the lists between its marks."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{lists()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
