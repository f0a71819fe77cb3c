"""The price of positions: relpos over itself, in this process and on one thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import strftime

import relpos
from benchmarks.goals import Record
from relpos import _core
from relpos._bench.price import Price

__all__ = ["records"]

REPEATS = 15


def records(prices: Iterable[Price]) -> Iterator[Record]:
    """What the JSON file says of each, as it is measured."""
    for price in prices:
        with relpos.threads(1):
            row = price.measure(_core.isa, REPEATS)
        place = price.place
        yield {
            "label": price.label,
            "name": price.name,
            "over": price.over,
            "way": place.way,
            "direction": place.direction,
            "length": place.length,
            "heads": place.heads,
            "figure": row.figure,
            "lowest": min(row.figures, default=None),
            "highest": max(row.figures, default=None),
            "kept": len(row.figures),
            "tried": row.tried,
            "seconds": row.seconds,
            "error": row.error,
            "target": row.target,
            "date": strftime("%Y-%m-%d %H:%M"),
        }
