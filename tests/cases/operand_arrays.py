"""Arrays for any operand of `attention`, whose shapes the letters of its row say.

Tests that walk all operands draw those here that they say nothing else of, so that a
new operand is in them without a line of its own.
"""

from __future__ import annotations

from problems import normal

from relpos._attention.operands import OPERANDS

#: Operands of floating-point numbers, in the order of `AttentionGradients`.
FLOATING = [name for name, row in OPERANDS.items() if row.has_gradient]


def has_items(name):
    """Return whether each batch item may have an array of its own, as a query has."""
    return OPERANDS[name].fit in ("tokens", "pairs")


def shape_of(name, lengths, rows, batch=()):
    """Return the shape of an operand; its table has so many rows.

    `lengths` are those of letters; `batch` are the axes of what each item has.
    """
    core = OPERANDS[name].shape(lengths, rows)
    return (*batch, *core) if has_items(name) else core


def others(given, rng, lengths, rows, batch=()):
    """Draw each floating operand that is not among those that are given."""
    names = [name for name in FLOATING if name not in given]
    return {name: normal(rng, *shape_of(name, lengths, rows, batch)) for name in names}
