"""Known changes of the labels of an image's cells: which row of a table pairs take."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt
from relpos._opinion.tables import TABLES, axis_of


def _labels_of(y: Array, x: Array, h: int, w: int) -> dict[str, Array]:
    """Return labels of distances in a grid (h, w), in words; the first is right."""
    # y and x are distances from -(h - 1) and -(w - 1) on. Counted from 0, a vertical
    # one has 2 w - 1 horizontal ones.
    down, right, row = y + h - 1, x + w - 1, 2 * w - 1
    up, left = h - 1 - y, w - 1 - x
    return {
        "": down * row + right,
        "rows of the grid times 2 h - 1, not 2 w - 1": down * (2 * h - 1) + right,
        "the axes of the grid exchanged": right * (2 * h - 1) + down,
        "vertical distances of the other sign": up * row + right,
        "horizontal distances of the other sign": down * row + left,
        "distances of the other sign": up * row + left,
        "distances without their sign": (abs(y) + h - 1) * row + abs(x) + w - 1,
        "distances that begin below 0, as negative indices": y * row + x,
        "rows of the grid without a factor": down + right,
    }


def _apart(at: Array) -> Array:
    """Return the distances of pairs of cells along an axis: key minus query."""
    return np.asarray(at - at[:, None])


def _grid_of(cells: Array) -> tuple[int, int, int, int] | None:
    """Return the sides of a grid, the sign of its distances, and its first label."""
    count = len(cells)
    # The call does not have the sides of the grid: each pair of sides is compared with
    # its labels.
    for h in range(1, count + 1):
        w, rest = divmod(count, h)
        if rest != 0:
            continue
        y, x = divmod(np.arange(count), w)
        differences = _apart(y) * (2 * w - 1) + _apart(x)
        for sign in (1, -1):
            if np.array_equal(cells - cells[0, 0], sign * differences):
                return h, w, sign, int(cells[0, 0]) - (h - 1) * (2 * w - 1) - w + 1
    return None


def other_labels(attempt: Attempt) -> Iterator[Attempt]:
    labels = attempt.get("labels")
    if not isinstance(labels, np.ndarray) or labels.ndim != 2 or len(labels) < 4:
        return
    tables = attempt.arguments(TABLES)
    rows = min((x.shape[axis_of(name)] for name, x in tables.items()), default=1)
    # A class token comes before the cells, and its labels, in the first row and column,
    # stay.
    for tokens in (0, 1):
        grid = _grid_of(labels[tokens:, tokens:])
        if grid is None:
            continue
        h, w, sign, first = grid
        at = np.arange(h * w)
        orders = {"": divmod(at, w), ", counted by columns": divmod(at, h)[::-1]}
        for more, places in orders.items():
            y, x = (sign * _apart(place) for place in places)
            for words, of_cells in _labels_of(y, x, h, w).items():
                new = labels.copy()
                # A label outside of the table is counted from its other end, as a
                # negative index is.
                new[tokens:, tokens:] = (first + of_cells) % rows
                if not np.array_equal(new, labels):
                    by = f", by {words}" if words else ""
                    yield attempt.told(f"labels of cells{more}{by}", labels=new)
        if tokens:
            new = labels.copy()
            new[0, 1:], new[1:, 0] = labels[1:, 0], labels[0, 1:]
            words = "the labels of the class token to cells and back exchanged"
            yield attempt.told(words, labels=new)
