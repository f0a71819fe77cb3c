"""What the recipes ask of a table before they pass it on."""

from __future__ import annotations

from typing import Any

from relpos._checks import as_array, at_least_ndim, reject_foreign

Keywords = dict[str, Any]


def as_table(name: str, value: Any, wanted: str) -> Any:
    """Return `value` with two axes or more; `attention` looks at the rest.

    What has axes already stays what it is, so that gradients of other tools that record
    transpositions and sums go through.
    """
    reject_foreign(name, value)
    table = value if hasattr(value, "ndim") else as_array(name, value)
    at_least_ndim(name, table, 2, wanted)
    return table
