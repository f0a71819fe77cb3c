"""Lists of functions, made of the catalogue: of docs/functions.md, and of each scheme.

`python docs/_extensions/functions.py` writes those of docs/functions.md. The file has
them between two marks, so that a reader of the repository sees them too.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path

from api import public, summary

import relpos
from relpos._schemes import GENERAL, SCHEMES, Scheme
from relpos.nn import multihead

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
    lines = ["| scheme | what it is, and its functions | models |", "|---|---|---|"]
    for scheme in SCHEMES:
        title, first = heading(scheme.name)
        names = [name for name in scheme.functions if name[:3] != "nn."]
        # The names are in the column of the sentence, which is the wide one.
        functions = ", ".join(f"`{name}`" for name in names)
        link = f"[{title}](schemes/{scheme.name}.md)"
        models = ", ".join(scheme.models)
        lines.append(f"| {link} | {first}.<br>{functions} | {models} |")
    lines += ["", "| for | function | what it does |", "|---|---|---|"]
    for head, names in GENERAL.items():
        for name in names:
            summary = (inspect.getdoc(getattr(relpos, name)) or "").partition("\n")[0]
            summary = summary.replace("``", "`").rstrip(".")
            lines.append(f"| {head} | `{name}` | {summary} |")
            head = ""
    return "\n".join(lines)


def written(text: str) -> str:
    """Return the page with the lists between its marks."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{lists()}\n{END}{after}"


def functions_of(scheme: Scheme) -> list[str]:
    """Return a line for each function of a scheme, and for each layer that takes it."""
    arguments = [*scheme.operands, *dict(scheme.settings)]
    names = [*scheme.functions]
    if arguments and scheme.call not in names:
        names.append(scheme.call)
    lines = []
    for name in names:
        needed = arguments if name == "attention" else []
        lines.append(line_of([name, f"torch.{name}"], needed))
    for position in (*multihead.SCHEMES, *multihead.TORCH_ONLY):
        if position in scheme.names:
            layers = ["torch.nn.RelativeMultiheadAttention"]
            if position in multihead.SCHEMES:
                layers.insert(0, "nn.MultiheadAttention")
            lines.append(line_of(layers, [f'position="{position}"']))
    return lines


def line_of(names: list[str], arguments: Iterable[str] = ()) -> str:
    """Return the names that are public, arguments that they need, and their summary."""
    full = [f"relpos.{name}" for name in names if f"relpos.{name}" in public()]
    line = ", ".join(f"`{name}`" for name in full)
    if arguments:
        line += f" with {', '.join(f'`{name}`' for name in arguments)}"
    said = re.sub(r":math:`([^`]*)`", r"$\1$", summary(full[0]))
    return f"- {line}: {said}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
