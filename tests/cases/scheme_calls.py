"""A small call of every scheme that is a function, with its inputs in the catalogue."""

from __future__ import annotations

import numpy as np

import relpos
from relpos._catalogue.rows import ROWS

#: Scheme -> the first row of it, where that calls the function of the scheme's name.
ROW_OF = {
    row.scheme: row
    for row in reversed(ROWS)
    if row.relpos is getattr(relpos, row.scheme, None)
}
ATTENTIONS = sorted(name for name in ROW_OF if name.endswith("attention"))


def inputs_of(name, dtype=np.float64):
    """Keywords of a good call."""
    return ROW_OF[name].inputs(dtype, heads=2, length=4, dim=3)
