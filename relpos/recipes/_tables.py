"""What the recipes ask of a table before they pass it on."""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._checks import as_floating, at_least_ndim, reject_foreign

Keywords = dict[str, Any]


def as_table(name: str, value: Any, wanted: str) -> Any:
    """Return floating `value` with two axes or more; `attention` looks at the rest.

    An array of another tool stays what it is, so that gradients of tools that record
    transpositions and sums go through.
    """
    reject_foreign(name, value)
    other = hasattr(value, "ndim") and not isinstance(value, np.ndarray)
    table = value if other else as_floating(name, value)
    at_least_ndim(name, table, 2, wanted)
    return table
