"""Table of model types of docs/models.md.

`python docs/_extensions/model_types.py` writes it of the rows of `python -m relpos
models`, with the transformers that every change is tested with.
"""

from __future__ import annotations

from pathlib import Path

from relpos.torch._transformers.served import (
    DENSE_FIRST,
    NO,
    NONE,
    PART,
    YES,
    ModelType,
    counts,
    served,
)

PAGE = Path(__file__).resolve().parents[1] / "models.md"
BEGIN = "<!-- written by python docs/_extensions/model_types.py -->"
END = "<!-- end -->"
#: The cells of a row, without the types: register, replace_attention, a dense bias.
WAYS = {
    (YES, NO, False): "`register()`",
    (YES, NO, True): "`register()`; the model makes a dense bias first",
    (PART, NO, False): "`register()`, some models or configurations of the type",
    (PART, NO, True): "`register()`, some models or configurations of the type; the "
    "model makes a dense bias first",
    (
        YES,
        YES,
        True,
    ): "`replace_attention(model)`; `register()` too, but the model makes "
    "a dense bias first",
    (NO, YES, False): "`replace_attention(model)`",
}


def table(rows: list[ModelType]) -> str:
    """Return a line for each way and for each reason, with its model types."""
    types: dict[str, list[str]] = {way: [] for way in WAYS.values()}
    for row in rows:
        if row.register != NONE:
            types.setdefault(title(row), []).append(f"`{row.name}`")
    lines = ["| served by | model types |", "|---|---|"]
    for name, members in types.items():
        lines.append(f"| {name} | {', '.join(members)} |")
    return "\n".join(lines)


def title(row: ModelType) -> str:
    """Return what serves a model type, or the reasons why nothing does."""
    way = row.register, row.replace, DENSE_FIRST in row.notes
    if way in WAYS:
        return WAYS[way]
    return f"neither: {'; '.join(x for x in row.notes if not x.startswith('parts: '))}"


def written(text: str) -> str:
    """Return the page with the table between its marks."""
    rows = served()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{counts(rows)}\n\n{table(rows)}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
