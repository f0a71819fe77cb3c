"""Tables and results as lines of text and, in notebooks, as HTML."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, TypeVar

import numpy as np

#: A class of named tuples.
Kind = TypeVar("Kind", bound="type[tuple[Any, ...]]")

_WIDTH = 88
#: Plurals that do not end with another "s".
_PLURALS = {"axis": "axes", "batch axis": "batch axes", "query": "queries"}
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def table_lines(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Container[int] = (0,),
) -> list[str]:
    """Return lines of a table; columns in `left` are aligned left, others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def html_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[str] = ()
) -> str:
    """Return a table in HTML, and lines below it, with all texts escaped."""

    def line(tag: str, cells: Sequence[str]) -> str:
        texts = (cell.translate(_ESCAPES) for cell in cells)
        return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"

    lines = [line("th", header), *(line("td", row) for row in rows)]
    notes = [f"<p>{note.translate(_ESCAPES)}</p>" for note in below]
    return "\n".join(["<table>", *lines, "</table>", *notes])


def amount(count: object, noun: str) -> str:
    """Return a number and what is counted, in the plural unless it is 1: 1 axis."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {_PLURALS.get(noun, f'{noun}s')}"


def brief(value: object) -> str:
    """Describe an array by its dtype and shape, and any other value by its repr."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return repr(value)


def _brief_fields(result: Any) -> str:
    """Describe a named tuple in one line if it is short, else a line per field."""
    fields = [f"{n}={brief(x)}" for n, x in zip(result._fields, result, strict=True)]
    name = type(result).__name__
    line = f"{name}({', '.join(fields)})"
    if len(line) <= _WIDTH:
        return line
    lines = [f"    {field}," for field in fields]
    return "\n".join([f"{name}(", *lines, ")"])


def _html_fields(result: Any) -> str:
    rows = [(n, brief(x)) for n, x in zip(result._fields, result, strict=True)]
    return html_table([type(result).__name__, ""], rows)


def in_short(kind: Kind) -> Kind:
    """Make named tuples of arrays show shapes and dtypes, not numbers."""
    methods = {"__repr__": _brief_fields, "_repr_html_": _html_fields}
    for name, method in methods.items():
        setattr(kind, name, method)
    return kind
