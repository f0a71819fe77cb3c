"""Arguments of `attention`, checked, as operands of its kernel.

The kernel walks strides, which are zero where an array is broadcast, so that nothing is
copied but what has the wrong dtype, byte order or alignment.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from relpos._attention import fire_network
from relpos._attention.edges import as_edges
from relpos._attention.operands import (
    LABELLED,
    ROWS,
    TABLES,
    Call,
    Sizes,
    check_labels,
    read,
)
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_choice,
    as_flag,
    as_int,
    as_integers,
    as_real,
    check_shape,
    kind_of,
)
from relpos._settings import kernels, threads
from relpos._text import amount
from relpos._warn import warn

#: A side of the window that hides nothing.
UNBOUNDED = 2**63 - 1
_LOG2E = math.log2(math.e)
#: Numbers up to the first are 0 in the dtype, those from the second on infinite.
_ROUNDED_AWAY = {
    np.dtype(np.float32): (2.0**-150, (2 - 2.0**-24) * 2.0**127),
    np.dtype(np.float64): (0.0, math.inf),
}
_NO_OFFSET = np.array(0)
_BEYOND = {"clip": 0, "zero": 1, "raise": 0}  # "raise" has been checked before the call


class Placement(NamedTuple):
    """Positions of tables on the line of relative positions.

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


class Part(NamedTuple):
    """Position of a problem in a larger one, the whole."""

    seed: int  # of the whole's dropout
    query: int  # the place of its first there
    key: int
    head: int
    items: Array  # (B,): of the whole's batch, flattened
    key_heads: int  # of the whole; 0: as many
    has_more_keys: bool  # the whole's rows sum over others, too

    def operands(self) -> dict[str, Any]:
        named = self._asdict() | {"has_more_keys": int(self.has_more_keys)}
        del named["seed"]
        return {f"part_{name}": value for name, value in named.items()}


class Problem(NamedTuple):
    """A checked call of `attention`, ready for the kernel.

    `inputs` are the arrays as given, by argument name: the shapes of an operand and of
    its input tell over which axes it was broadcast, and `placement.rows` which rows of
    a table were gathered.
    """

    inputs: dict[str, Array]
    sizes: Sizes
    batch: tuple[int, ...]
    dtype: np.dtype[Any]  # of the computation
    out_dtype: np.dtype[Any]  # of the result
    placement: Placement
    operands: dict[str, Any]  # of _core.attention_forward, all but the outputs
    fire: fire_network.Fire | None  # FIRE's bias, whose parameters are inputs too


def prepare(call: Call, part: Part | None = None) -> Problem:
    """Check the arguments of a call and build the operands of the kernel."""
    # FIRE's parameters first: their errors come before those of query, key and value.
    fire = fire_network.fire_of_call(call) if "w1" in call else None
    is_part = part is not None
    inputs, sizes, batch, dtype, out_dtype, copied = read(call, is_part)
    rule = as_choice("beyond", call["beyond"], _BEYOND)
    # The row of each pair is that of the edge of a graph, or of a label, or of its
    # relative position on the line on which tables are placed.
    graph: dict[str, Array] = {}
    tables = {name: inputs[name] for name in TABLES if name in inputs}
    if "edges" in call:
        graph, placement = as_edges(call, tables, sizes), UNPLACED
    elif "labels" in inputs or "labels[0]" in inputs:
        placement = _check_all_labels(call, inputs, tables)
    else:
        line = call["min_relative_position"], call["buckets"]
        placement = place_tables(tables, *line, rule)
    if not tables:
        _check_no_rows(call)
    window = _window(call["window"], as_flag("is_causal", call["is_causal"]))
    # A part has some of the heads. The network of the whole was checked before.
    if fire is not None and part is not None:
        heads = slice(part.head, part.head + sizes.H)
        fire = fire_network.part_of_fire(fire, heads, part.key)
    if fire is not None and len(fire.w2) != sizes.H:
        raise ValueError(
            f"w2: shape {fire.w2.shape} has {amount(len(fire.w2), 'head')}, but query "
            f"has {sizes.H}; expected ({sizes.H}, W)"
        )
    # What depends on positions needs a query_offset where the lengths differ: these are
    # its names, for the error.
    positional: list[str] = []
    if sizes.Lq != sizes.Lk and "query_offset" not in inputs:
        depending = {
            **dict.fromkeys(placement.spans, True),
            "log_decay": "log_decay" in inputs,
            "is_causal": call["is_causal"],
            "window": window != (UNBOUNDED, UNBOUNDED),
            "FIRE's bias": fire is not None,
        }
        positional = [name for name in depending if depending[name]]
    check_items(inputs, positional, sizes)
    if rule == "raise" or "log_decay" in inputs:
        spans = placement.spans if rule == "raise" else {}
        _check_visible(inputs, spans, _visible(inputs, batch, sizes, window))
    # Buckets may list far more relative positions than this call has.
    if placement.rows and call["buckets"] is not None:
        placement = _used_rows(placement, offsets_of(inputs), sizes)
    # FIRE's parameters are not among the operands, but their dtype promotes as well.
    if fire is not None and any(x.dtype.char == "d" for x in fire.typed.values()):
        dtype = out_dtype = np.dtype(np.float64)
        copied = [*inputs]
    left, right = window
    operands: dict[str, Any] = {
        **inputs,
        **graph,
        "scale": as_scale(call["scale"], sizes.D, dtype),
        "dropout_p": _dropout(call["dropout_p"]),
        "beyond": _BEYOND[rule],
        "min_relative_position": placement.vectors.start,
        "min_bias_position": placement.bias.start,
        "window_left": left,
        "window_right": right,
    }
    # What was gathered, and not its table, is converted below.
    for name, rows in placement.rows.items():
        operands[name] = gather_rows(inputs[name], rows, TABLES[name].row_axis)
    for name in copied:
        operands[name] = ROWS[name].native(operands[name], dtype)
    if call["softcap"] is not None:
        operands["softcap"] = as_softcap(call["softcap"], dtype)
    if part is not None:
        operands |= part.operands()
    if fire is not None:
        operands.update(fire_network.operands(fire, offsets_of(inputs), sizes))
        inputs |= fire.inputs  # which have gradients
    return Problem(inputs, sizes, batch, dtype, out_dtype, placement, operands, fire)


def look_at_mask(problem: Problem) -> None:
    """Warn of a mask of zeros and ones, which may have been meant to hide."""
    mask = problem.operands.get("attn_mask")
    if mask is None or mask.dtype.kind == "b":
        return
    if kernels().has_zeros_and_ones(mask):
        warn(
            "attn_mask: got a floating mask of zeros and ones, which is added to the "
            "scores and hides nothing; expected a boolean mask, or a mask of 0 and "
            "-inf, to hide keys"
        )


def offsets_of(inputs: Mapping[str, Array]) -> Array:
    """`query_offset` as given, or 0."""
    return inputs.get("query_offset", _NO_OFFSET)


def _check_no_rows(call: Call) -> None:
    """Raise where a call without a table says which of its rows to read."""
    for name in ("labels", "buckets", "min_relative_position"):
        if call.get(name) is not None:
            raise ValueError(
                f"{name}: given without a table, whose rows it says; pass rel_key, "
                f"rel_query, rel_value or rel_bias, or leave {name} out"
            )


def _check_all_labels(
    call: Call, inputs: dict[str, Array], tables: dict[str, Array]
) -> Placement:
    """Check the labels; tables then lie nowhere on the line of relative positions."""
    for name in ("min_relative_position", "buckets"):
        if call[name] is not None:
            raise ValueError(
                f"labels: given together with {name}; labels are table rows already, "
                "expected one of the two"
            )
    for name in LABELLED:
        if name in inputs:
            check_labels(name, inputs[name], tables)
    return UNPLACED


def _window(window: object, is_causal: bool) -> tuple[int, int]:
    """Largest visible distances to the left and right."""
    left = right = UNBOUNDED
    if window is not None:
        if not isinstance(window, (tuple, list)):
            raise TypeError(f"window: got {kind_of(window)}; expected (left, right)")
        if len(window) != 2:
            items = amount(len(window), "item")
            raise ValueError(f"window: got {items}; expected (left, right)")
        left, right = _reach(window[0]), _reach(window[1])
    if is_causal:
        right = min(right, 0)
    return left, right


def _reach(side: object) -> int:
    """Return the largest visible distance on a side of the window."""
    if side is None:
        return UNBOUNDED
    distance = as_int("window", side, 0)
    # One past every relative position is no bound at all.
    return distance if distance < 2 * POSITION_LIMIT else UNBOUNDED


def check_items(
    inputs: Mapping[str, Array], positional: list[str], sizes: Sizes
) -> None:
    """Check the integers given per batch item; `positional` depends on the offset."""
    offsets, lengths = inputs.get("query_offset"), inputs.get("key_lengths")
    if offsets is not None:
        for offset in _extremes(offsets):
            if abs(offset) >= POSITION_LIMIT:
                raise ValueError(
                    f"query_offset: got {offset}; expected values between -2**60 and "
                    "2**60"
                )
    elif positional and sizes.Lq != sizes.Lk:
        raise ValueError(
            f"query_offset: None with {amount(sizes.Lq, 'query')} and "
            f"{amount(sizes.Lk, 'key')} is ambiguous, and {positional[0]} depends on "
            f"it; pass 0 (query 0 at key 0) or Lk - Lq = {sizes.Lk - sizes.Lq} (last "
            "query at the last key)"
        )
    if lengths is not None:
        for length in _extremes(lengths):
            if not 0 <= length <= sizes.Lk:
                raise ValueError(
                    f"key_lengths: got {length}; expected 0 to Lk = {sizes.Lk}"
                )


def _extremes(items: Array) -> tuple[int, ...]:
    """Lowest and highest of the integers; one for all items comes alone."""
    if not items.ndim:  # in a tenth of the time
        return (int(items),)
    return (int(items.min()), int(items.max())) if items.size else ()


def _visible(
    inputs: Mapping[str, Array],
    batch: tuple[int, ...],
    sizes: Sizes,
    window: tuple[int, int],
) -> tuple[int, int] | None:
    """Lowest and highest relative position that any query sees; None: none sees any.

    The Lq x Lk pairs need not be looked at: each query sees one run of keys.
    """
    if not sizes.Lq or 0 in batch:
        return None
    offset: Any = offsets_of(inputs)
    length: Any = inputs.get("key_lengths", np.array(sizes.Lk))
    if "key_ranges" not in inputs and offset.ndim == length.ndim == 0:
        offset, length = int(offset), int(length)  # take a tenth of the time
        low = max(1 - sizes.Lq - offset, -window[0])
        high = min(length - 1 - offset, window[1])
        return (low, high) if low <= high and length else None
    # The run of keys of each query, by its ends relative to the query.
    ranges = inputs.get("key_ranges", np.array([0, sizes.Lk])).clip(0, sizes.Lk)
    begin, end = np.moveaxis(ranges, -1, 0)
    at = np.arange(sizes.Lq) + offset[..., None]
    low = np.maximum(begin - at, -window[0])
    high = np.minimum(np.minimum(end, length[..., None]) - 1 - at, window[1])
    low, high = np.broadcast_arrays(low, high)
    seen = low <= high
    return (int(low[seen].min()), int(high[seen].max())) if seen.any() else None


def as_scale(scale: object, head_dim: int, dtype: np.dtype[Any]) -> float:
    """Check the scale; None is 1 / sqrt(head_dim)."""
    if scale is None:
        if head_dim == 0:
            raise ValueError("scale: None with head_dim 0; expected a number")
        return 1 / math.sqrt(head_dim)
    number = as_real("scale", scale)
    if number:
        _check_range("scale", number, dtype, "0 or a number", "")
    return number


def as_softcap(softcap: object, dtype: np.dtype[Any]) -> float:
    number = as_real("softcap", softcap)
    if number <= 0:
        raise ValueError(
            f"softcap: got {number}; expected a number above 0 (None: no cap)"
        )
    _check_range("softcap", number, dtype, "a number", " (None: no cap)")
    return number


def _check_range(
    name: str, number: float, dtype: np.dtype[Any], expected: str, hint: str
) -> None:
    """Raise where a number, times log2(e), is 0 or infinite in the kernel."""
    zero, infinite = _ROUNDED_AWAY[dtype]
    if abs(number) <= zero:
        raise ValueError(
            f"{name}: got {number}, too small for {dtype}, where it is 0; expected "
            f"{expected} that is not"
        )
    if abs(number) * _LOG2E >= infinite:
        raise ValueError(
            f"{name}: got {number}, too large for {dtype}; expected less than "
            f"{float(np.finfo(dtype).max) / _LOG2E:.3g}{hint}"
        )


def _dropout(dropout_p: object) -> float:
    if type(dropout_p) is float and dropout_p == 0.0:  # the usual case
        return 0.0
    number = as_real("dropout_p", dropout_p)
    if not 0 <= number < 1:
        raise ValueError(f"dropout_p: got {number}; expected 0 <= dropout_p < 1")
    return number


# ---- rows of tables ----------------------------------------------------------------


def place_tables(
    tables: Mapping[str, Array], minimum: object, buckets: object, beyond: str
) -> Placement:
    """Find the relative positions that each table serves, and the rows to gather."""
    # A table has a row for each of a range of relative positions. The kernel has one
    # range for all tables of vectors: a table with another is gathered into it.
    first = index = None
    if not tables and minimum is None and buckets is None:
        return UNPLACED
    if minimum is not None:
        limit = POSITION_LIMIT - 1
        first = as_int("min_relative_position", minimum, -limit, limit)
    if buckets is not None:
        index = _check_buckets(buckets, tables)
    spans: dict[str, range] = {}
    for name, table in tables.items():
        if index is not None:  # which lists a row for each relative position
            spans[name] = _span(name, index.size, first, spans, "buckets")
        else:
            count = TABLES[name].rows(table)
            spans[name] = _span(name, count, first, spans, None)
    rows = {} if index is None else dict.fromkeys(spans, index)
    of_vectors = {name: span for name, span in spans.items() if name != "rel_bias"}
    vectors = max(of_vectors.values(), key=len, default=range(1))
    for name, span in of_vectors.items():
        if name not in rows and span != vectors:
            rows[name] = _rows_of(span, vectors, beyond)
    return Placement(spans, rows, vectors, spans.get("rel_bias", range(1)))


def _used_rows(placement: Placement, offset: Array, sizes: Sizes) -> Placement:
    """Keep as many rows as queries and keys can use, as csrc/python/buckets.c does."""
    span = next(iter(placement.spans.values()))
    count = min(len(span), sizes.Lq + sizes.Lk - 1)
    if offset.ndim or not sizes.Lq or not sizes.Lk:
        return placement
    first = min(max(1 - sizes.Lq - int(offset), span.start), span.stop - count)
    used, at = range(first, first + count), first - span.start
    rows = {name: x[at : at + count] for name, x in placement.rows.items()}
    return placement._replace(rows=rows, vectors=used, bias=used)


def transformer_xl_origin(counted: str, count: int, lq: int, lk: int) -> int:
    """Relative position of row 0 of Transformer-XL's table, if its length tells it.

    Without keys there is no pair, and any table will do.
    """
    if lk and count not in (lk, lk + lq - 1, 2 * lk - 1):
        raise ValueError(
            f"{counted}: {amount(count, 'row')} for {amount(lq, 'query')} and "
            f"{amount(lk, 'key')}, which does not tell where the table begins; "
            f"expected Lk = {lk} (the past), Lk + Lq - 1 = {lk + lq - 1} or 2 Lk - 1 = "
            f"{2 * lk - 1} (both directions), which begin at -(Lk - 1) = {1 - lk}, or "
            "min_relative_position, the relative position of row 0"
        )
    return 1 - lk


def _check_buckets(buckets: object, tables: Mapping[str, Array]) -> Array:
    counts = {name: TABLES[name].rows(table) for name, table in tables.items()}
    index = as_integers("buckets", buckets)
    expected = "(n,), one table row for each relative position"
    check_shape("buckets", index, index.ndim == 1 and index.size > 0, expected)
    for name, count in counts.items():
        other, rows = next(iter(counts.items()))
        if count != rows:
            raise ValueError(
                f"{name}: {amount(count, 'row')}, but {other} has {rows}; with buckets "
                "all tables need the same number of rows"
            )
        outside = np.flatnonzero((index < 0) | (index >= count))
        if outside.size:
            at = outside[0]
            raise IndexError(
                f"buckets: buckets[{at}] is {index[at]}, outside {name} of "
                f"{amount(count, 'row')}; expected 0 to {count - 1}"
            )
    return index


def _span(
    name: str,
    count: int,
    first: int | None,
    spans: dict[str, range],
    counted: str | None,
) -> range:
    """Return a table's range of relative positions, from `first` or centred.

    `spans` are those of the tables before it.
    """
    # Without a first position the middle row is of position 0. A bias of another length
    # than the tables before it is centred too: `first` is theirs.
    centred = first is None
    if first is not None and spans:
        other, span = next(iter(spans.items()))
        centred = count != len(span) and name == "rel_bias"
        if count != len(span) and not centred:
            raise ValueError(
                f"{name}: {amount(count, 'row')}, but {other} has {len(span)}; tables "
                "placed by min_relative_position need the same number of rows"
            )
    if centred and count % 2 == 0:
        raise ValueError(
            f"{counted or name}: {count} {'entries' if counted else 'rows'}; to be "
            "centred on relative position 0 it needs an odd number (or pass "
            "min_relative_position, the relative position of row 0)"
        )
    low = -(count // 2) if centred or first is None else first
    return range(low, low + count)


def _rows_of(span: range, common: range, beyond: str) -> Array:
    """Rows of a table over `span` that serve the wider `common`."""
    positions = np.arange(common.start, common.stop)
    nearest = np.clip(positions, span.start, span.stop - 1)
    rows = nearest - span.start
    if beyond == "zero":
        return np.where(nearest == positions, rows, -1)
    return rows


def gather_rows(table: Array, rows: Array, axis: int) -> Array:
    """Copy `table` row by row; rows of -1 come out as zeros."""
    gathered = np.take(table, np.maximum(rows, 0), axis=axis)
    if (rows < 0).any():
        np.moveaxis(gathered, axis, 0)[rows < 0] = 0
    return gathered


def fold_rows(gradient: Array, rows: Array, count: int) -> Array:
    """Add up what `gather_rows` took along axis -2, in float64 and in its order."""
    if (rows < 0).any():
        gradient, rows = gradient[..., rows >= 0, :], rows[rows >= 0]
    with threads(1):
        return kernels().learned_sums(np.asarray(gradient, np.float64), rows, count)


def _check_visible(
    inputs: Mapping[str, Array], spans: dict[str, range], seen: tuple[int, int] | None
) -> None:
    """Raise where a query sees a pair outside a table, or without a sum of decay.

    `seen` are the lowest and the highest relative position of the pairs; `spans` are
    those of the tables that have to serve all of them.
    """
    if seen is None:
        return
    low, high = seen
    for name, span in spans.items():
        if low < span.start or high >= span.stop:
            raise IndexError(
                f"{name}: visible relative positions run from {low} to {high}, but the "
                f"table has those from {span.start} to {span.stop - 1}; expected a "
                "longer table, fewer visible pairs (is_causal, window, key_ranges, "
                'key_lengths, query_offset), or beyond="clip" or "zero"'
            )
    if "log_decay" in inputs and high > 0:
        raise ValueError(
            f"log_decay: visible relative positions run up to {high}, but sums run "
            "from a key to a later query; expected every key after its query to be "
            "hidden by is_causal, window, key_ranges or key_lengths"
        )
