"""Which row of a table belongs to a pair of positions: origins, buckets, labels."""

from typing import NamedTuple

import numpy as np

from relpos._attention.operands import TABLES
from relpos._checks import POSITION_LIMIT, Array, as_int, as_integers, stored


class Placement(NamedTuple):
    """Where tables lie on the line of relative positions.

    `spans[name]` is the range of relative positions that a table serves. `rows[name]`
    lists, for each table that has to be gathered before the call, the row that serves
    each relative position of its operand (-1: none).
    """

    spans: dict[str, range]
    rows: dict[str, Array]
    vectors: range  # served by the operands rel_key, rel_query and rel_value
    bias: range  # served by the operand rel_bias


#: No table has a place on that line: there is none, or each pair has a label.
UNPLACED = Placement({}, {}, range(1), range(1))


def place_tables(
    tables: dict[str, Array], minimum: object, buckets: object, beyond: str
) -> Placement:
    """Find the relative positions that each table serves, and the rows to gather."""
    first = None
    if not tables and minimum is None and buckets is None:
        return UNPLACED
    if minimum is not None:
        limit = POSITION_LIMIT - 1
        first = as_int("min_relative_position", minimum, -limit, limit)
    counts = {name: TABLES[name].rows(table) for name, table in tables.items()}
    index = None
    if buckets is not None:
        index = _check_buckets(buckets, counts)
        counts = {name: index.size for name in counts}
    spans = _spans(counts, first, "buckets" if index is not None else None)
    vectors = _widest(spans)
    rows = {}
    for name, span in spans.items():
        if index is not None:
            rows[name] = index
        elif name != "rel_bias" and span != vectors:
            rows[name] = _rows_of(span, vectors, beyond)
    return Placement(spans, rows, vectors, spans.get("rel_bias", range(1)))


def transformer_xl_origin(counted: str, count: int, lq: int, lk: int) -> int:
    """Relative position of row 0 of Transformer-XL's table, if its length tells it.

    Without keys there is no pair, and any table will do.
    """
    if lk and count not in (lk, lk + lq - 1, 2 * lk - 1):
        raise ValueError(
            f"{counted}: {count} rows for {lq} queries and {lk} keys do not tell where "
            f"the table begins; expected Lk = {lk} (the past), Lk + Lq - 1 = "
            f"{lk + lq - 1} or 2 Lk - 1 = {2 * lk - 1} (both directions), which begin "
            f"at -(Lk - 1) = {1 - lk}, or min_relative_position, the relative position "
            "of row 0"
        )
    return 1 - lk


def _check_buckets(buckets: object, counts: dict[str, int]) -> Array:
    index = as_integers("buckets", buckets)
    if index.ndim != 1 or not index.size:
        raise ValueError(
            f"buckets: got shape {index.shape}; expected (n,), one table row for each "
            "relative position"
        )
    for name, count in counts.items():
        other, rows = next(iter(counts.items()))
        if count != rows:
            raise ValueError(
                f"{name}: {count} rows, but {other} has {rows}; with buckets all "
                "tables need the same number of rows"
            )
        outside = np.flatnonzero((index < 0) | (index >= count))
        if outside.size:
            at = outside[0]
            raise IndexError(
                f"buckets: buckets[{at}] is {index[at]}, outside {name} of {count} "
                f"rows; expected 0 to {count - 1}"
            )
    return index


def _spans(
    counts: dict[str, int], first: int | None, counted: str | None
) -> dict[str, range]:
    """Give each table its range of relative positions, from `first` or centred."""
    spans: dict[str, range] = {}
    for name, count in counts.items():
        centred = first is None
        if first is not None and spans:
            other, span = next(iter(spans.items()))
            centred = count != len(span) and name == "rel_bias"
            if count != len(span) and not centred:
                raise ValueError(
                    f"{name}: {count} rows, but {other} has {len(span)}; tables placed "
                    "by min_relative_position need the same number of rows"
                )
        if centred and count % 2 == 0:
            raise ValueError(
                f"{counted or name}: {count} {'entries' if counted else 'rows'}; to be "
                "centred on relative position 0 it needs an odd number (or pass "
                "min_relative_position, the relative position of row 0)"
            )
        low = -(count // 2) if centred or first is None else first
        spans[name] = range(low, low + count)
    return spans


def _widest(spans: dict[str, range]) -> range:
    vectors = [span for name, span in spans.items() if name != "rel_bias"]
    return max(vectors, key=len, default=range(1))


def _rows_of(span: range, common: range, beyond: str) -> Array:
    """Rows of a table over `span` that serve the wider `common`."""
    wanted = np.arange(common.start, common.stop)
    served = np.clip(wanted, span.start, span.stop - 1)
    rows = served - span.start
    return np.where(served == wanted, rows, -1) if beyond == "zero" else rows


def gather_rows(table: Array, rows: Array, axis: int) -> Array:
    """Copy `table` row by row; rows of -1 come out as zeros."""
    gathered = np.take(table, np.maximum(rows, 0), axis=axis)
    if (rows < 0).any():
        np.moveaxis(gathered, axis, 0)[rows < 0] = 0
    return gathered


def fold_rows(gradient: Array, rows: Array, count: int) -> Array:
    """Adjoint of `gather_rows` along axis -2: what `rows` gathered is added up again.

    In float64 and in the order of the positions, so that the result is always the same.
    """
    order = np.argsort(rows, kind="stable")
    order = order[rows[order] >= 0]
    used, starts = np.unique(rows[order], return_index=True)
    table = np.zeros((*gradient.shape[:-2], count, gradient.shape[-1]))
    table[..., used, :] = np.add.reduceat(
        gradient[..., order, :], starts, axis=-2, dtype=np.float64
    )
    return table


def check_labels(called: str, labels: Array, tables: dict[str, Array]) -> None:
    """Raise if a label is outside a table; a caller changing it later does no harm."""
    array = stored(labels)
    largest = int(array.max()) if array.size else -1
    for name, table in tables.items():
        count = TABLES[name].rows(table)
        if largest >= count:
            at = tuple(map(int, np.unravel_index(int(array.argmax()), array.shape)))
            raise IndexError(
                f"{called}: {called}{list(at)} is {largest}, outside {name} of {count} "
                f"rows; expected at most {count - 1} (negative: no position term)"
            )


def check_reach(spans: dict[str, range], visible: tuple[int, int] | None) -> None:
    """Raise where a pair that some query sees falls outside a table (beyond="raise").

    `visible` are the lowest and the highest relative position of such pairs.
    """
    if visible is None:
        return
    low, high = visible
    for name, span in spans.items():
        if low < span.start or high >= span.stop:
            raise IndexError(
                f"{name}: visible relative positions run from {low} to {high}, but its "
                f"{len(span)} rows cover {span.start} to {span.stop - 1}; expected a "
                "longer table, fewer visible pairs (is_causal, window, key_ranges, "
                'key_lengths, query_offset), or beyond="clip" or "zero"'
            )


def check_decay(visible: tuple[int, int] | None) -> None:
    """Raise where a query sees a later key: log_decay has no sum for such a pair."""
    if visible is None or visible[1] <= 0:
        return
    raise ValueError(
        f"log_decay: visible relative positions run up to {visible[1]}, but sums run "
        "from a key to a later query; expected every key after its query to be hidden "
        "by is_causal, window, key_ranges or key_lengths"
    )


def expand_tables(inputs: dict[str, Array], placement: Placement) -> dict[str, Array]:
    """Gather the rows of the tables that cannot be used as they are."""
    if not placement.rows:
        return inputs
    return inputs | {
        name: gather_rows(inputs[name], rows, TABLES[name].row_axis)
        for name, rows in placement.rows.items()
    }
