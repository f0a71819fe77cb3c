"""Rows that show themselves as a table."""

from __future__ import annotations

from typing import Any, TypeVar

from relpos._text import html_table, table_lines

Row = TypeVar("Row", bound=tuple[Any, ...])


class Table(list[Row]):
    """A list of named tuples that shows itself as a table, long texts cut."""

    def _parts(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows."""
        header: list[str] = [*getattr(self[0], "_fields", ())] if self else []
        texts = (
            [", ".join(x) if isinstance(x, tuple) else str(x) for x in row]
            for row in self
        )
        return header, [*texts]

    def __repr__(self) -> str:
        if not self:
            return "[]"
        header, rows = self._parts()
        width = 80 // len(header)
        short = [
            [x if len(x) <= width else f"{x[: width - 2]}.." for x in row]
            for row in rows
        ]
        return "\n".join(table_lines(header, short, left=range(len(header))))

    def _repr_html_(self) -> str:
        return html_table(*self._parts())
