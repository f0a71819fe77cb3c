"""Table of docs/supported.md, which `python docs/_extensions/supported.py` writes.

It is made of the record. The file has it between two marks, so that a reader of the
repository sees it too.
"""

from __future__ import annotations

from pathlib import Path

from relpos._catalogue.supported import SUPPORTED, TITLES, gradients_of

PAGE = Path(__file__).resolve().parents[1] / "supported.md"
BEGIN = "<!-- written by python docs/_extensions/supported.py -->"
END = "<!-- end -->"


def table() -> str:
    """Return a row for each function, with its cells and its gradients on arrays."""
    titles = ["function", *TITLES, "gradients on arrays"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, support in SUPPORTED.items():
        gradients = gradients_of(name)
        cells = [f"`{name}`", *support, f"`{gradients}`" if gradients else "no"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def written(text: str) -> str:
    """Return the page with the table between its marks."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
