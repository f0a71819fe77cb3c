"""The one place that turns the arguments of `attention` into operands of its kernel.

Every array operand becomes a view of shape (*batch, heads, rows, columns) with zero
strides where it is broadcast, so the kernel only walks strides, and nothing is copied
but what has the wrong dtype, byte order or alignment.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from relpos._attention import fire_network
from relpos._attention.call import Call
from relpos._attention.edges import Edges, as_edges
from relpos._attention.operands import LABELS, OPERANDS, ROWS, TABLES, Sizes
from relpos._attention.placement import (
    UNPLACED,
    Placement,
    check_decay,
    check_labels,
    check_reach,
    expand_tables,
    place_tables,
)
from relpos._attention.shapes import check_shapes, join_batches, read_sizes
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_choice,
    as_flag,
    as_int,
    as_real,
    common_dtype,
    kind_of,
)

#: A side of the window that hides nothing.
UNBOUNDED = 2**63 - 1
_COMPUTED = {np.dtype(np.float32), np.dtype(np.float64)}
_LOG2E = math.log2(math.e)
#: Numbers up to the first are 0 in the dtype, those from the second on infinite.
_ROUNDED_AWAY = {
    np.dtype(np.float32): (2.0**-150, (2 - 2.0**-24) * 2.0**127),
    np.dtype(np.float64): (0.0, math.inf),
}
_NO_OFFSET = np.array(0)
_BEYOND = {"clip": 0, "zero": 1, "raise": 0}  # "raise" has been checked before the call


class Part(NamedTuple):
    """Where a problem lies in a larger one, the whole."""

    seed: int  # of the whole's dropout
    query: int  # the place of its first there
    key: int
    head: int
    items: Array  # (B,): of the whole's batch, flattened
    key_heads: int  # of the whole; 0: as many
    has_more_keys: bool  # the whole's rows sum over others, too

    def operands(self) -> dict[str, Any]:
        """What the kernel takes."""
        named = self._asdict() | {"has_more_keys": int(self.has_more_keys)}
        del named["seed"]
        return {f"part_{name}": value for name, value in named.items()}


class Problem(NamedTuple):
    """A checked call of `attention`, ready for the kernel.

    `inputs` are the arrays as given, by argument name: an operand's shape beside its
    input's tells over which axes it was broadcast, and `placement.rows` which rows of a
    table were gathered.
    """

    inputs: dict[str, Array]
    sizes: Sizes
    batch: tuple[int, ...]
    dtype: np.dtype[Any]  # of the computation
    out_dtype: np.dtype[Any]  # of the result
    placement: Placement
    operands: dict[str, Any]  # of _core.attention_forward, all but the outputs
    fire: fire_network.Fire | None  # FIRE's bias, whose parameters are inputs too


def prepare(
    call: Call,
    fire: fire_network.Fire | None,
    edges: Edges | None,
    part: Part | None = None,
) -> Problem:
    """Check the arguments of a call and build the operands of the kernel."""
    inputs = _read(call)
    sizes = read_sizes(inputs, as_flag("enable_gqa", call.enable_gqa))
    sizes = sizes._replace(is_part=part is not None)
    check_shapes(inputs, sizes)
    tables = {name: inputs[name] for name in TABLES if name in inputs}
    rule = as_choice("beyond", call.beyond, _BEYOND)
    graph = {} if edges is None else as_edges(edges, tables, sizes)
    placement = _place(call, inputs, {} if graph else tables, rule)
    window = _window(call.window, as_flag("is_causal", call.is_causal))
    positional = _positional(inputs, placement, bool(call.is_causal), window)
    if fire is not None:
        fire_network.check_heads(fire, sizes.H)
        positional.append("FIRE's bias")
    check_items(inputs, positional, sizes)
    batch = join_batches(inputs)
    if rule == "raise":
        check_reach(placement.spans, _visible(inputs, batch, sizes, window))
    if "log_decay" in inputs:
        check_decay(_visible(inputs, batch, sizes, window))
    dtype, out_dtype = common_dtypes(inputs if fire is None else inputs | fire.typed)
    operands: dict[str, Any] = {
        name.removesuffix("[0]"): ROWS[name].as_kernel_takes(array, batch, sizes, dtype)
        for name, array in expand_tables(inputs, placement).items()
    }
    operands |= graph
    operands["scale"] = as_scale(call.scale, sizes.D, dtype)
    if call.softcap is not None:
        operands["softcap"] = as_softcap(call.softcap, dtype)
    operands["dropout_p"] = _dropout(call.dropout_p)
    operands["beyond"] = _BEYOND[rule]
    operands["min_relative_position"] = placement.vectors.start
    operands["min_bias_position"] = placement.bias.start
    operands["window_left"], operands["window_right"] = window
    if part is not None:
        operands |= part.operands()
    if fire is not None:
        operands |= fire_network.operands(fire, offsets_of(inputs), batch, sizes)
        inputs |= fire.inputs
    return Problem(inputs, sizes, batch, dtype, out_dtype, placement, operands, fire)


def offsets_of(inputs: Mapping[str, Array]) -> Array:
    """`query_offset` as given, or 0."""
    return inputs.get("query_offset", _NO_OFFSET)


def _read(call: Call) -> dict[str, Array]:
    """Check the kinds of the arrays; absent ones drop out."""
    inputs: dict[str, Array] = {}
    for operand, value in zip(OPERANDS.values(), call, strict=False):
        if operand.name == "labels" and isinstance(value, tuple):
            inputs |= _read_labels(value)
        elif value is not None or operand.is_required:
            inputs[operand.name] = operand.read(value)
    for name in ("pos_bias_v", "position_query"):
        if name in inputs and "rel_key" not in inputs:
            raise ValueError(
                f"{name}: given without rel_key; it only acts in the rel_key term, so "
                f"pass rel_key or leave {name} out"
            )
    return inputs


def _read_labels(labels: tuple[object, ...]) -> dict[str, Array]:
    """Check the kinds of several arrays of labels."""
    if not 1 <= len(labels) <= len(LABELS):
        raise ValueError(
            f"labels: got a tuple of {len(labels)}; expected an array, or a tuple of 1 "
            f"to {len(LABELS)} arrays"
        )
    rows = zip(LABELS.items(), labels, strict=False)
    return {name: row.read(array) for (name, row), array in rows}


def _place(
    call: Call, inputs: dict[str, Array], tables: dict[str, Array], rule: str
) -> Placement:
    """Say where tables lie on the line of relative positions, or check the labels."""
    if call.labels is None:
        return place_tables(tables, call.min_relative_position, call.buckets, rule)
    for name in ("min_relative_position", "buckets"):
        if getattr(call, name) is not None:
            raise ValueError(
                f"labels: given together with {name}; labels are table rows already, "
                "expected one of the two"
            )
    for name in ("labels", *LABELS):
        if name in inputs:
            check_labels(name, inputs[name], tables)
    return UNPLACED


def _side(reach: int) -> int:
    """A side of the window; one past every relative position is no bound at all."""
    return reach if reach < 4 * POSITION_LIMIT else UNBOUNDED


def _window(window: object, is_causal: bool) -> tuple[int, int]:
    """Largest visible distances to the left and right."""
    left = right = UNBOUNDED
    if window is not None:
        if not isinstance(window, (tuple, list)):
            raise TypeError(f"window: got {kind_of(window)}; expected (left, right)")
        if len(window) != 2:
            raise ValueError(f"window: got {len(window)} items; expected (left, right)")
        left, right = (
            UNBOUNDED if side is None else _side(as_int("window", side, 0))
            for side in window
        )
    return left, min(right, 0) if is_causal else right


def _positional(
    inputs: dict[str, Array],
    placement: Placement,
    is_causal: bool,
    window: tuple[int, int],
) -> list[str]:
    """Names of the arguments given that depend on relative positions."""
    names = list(placement.spans)
    if "log_decay" in inputs:
        names.append("log_decay")
    if is_causal:
        names.append("is_causal")
    elif window != (UNBOUNDED, UNBOUNDED):
        names.append("window")
    return names


def check_items(
    inputs: Mapping[str, Array], positional: list[str], sizes: Sizes
) -> None:
    """Check the integers given per batch item."""
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
            f"query_offset: None with {sizes.Lq} queries and {sizes.Lk} keys is "
            f"ambiguous, and {positional[0]} depends on it; pass 0 (query 0 at key 0) "
            f"or Lk - Lq = {sizes.Lk - sizes.Lq} (last query at the last key)"
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

    The Lq x Lk pairs need not be looked at: each query sees all those between.
    """
    if not sizes.Lq or 0 in batch:
        return None
    if "key_ranges" in inputs:
        return _visible_in_ranges(inputs, sizes, window)
    offset: Any = inputs.get("query_offset", _NO_OFFSET)
    length: Any = inputs.get("key_lengths", np.array(sizes.Lk))
    one = offset.ndim == length.ndim == 0
    if one:  # for all items: integers of Python take a tenth of the time
        offset, length = int(offset), int(length)
    larger, smaller = (max, min) if one else (np.maximum, np.minimum)
    low = larger(1 - sizes.Lq - offset, -window[0])
    high = smaller(length - 1 - offset, window[1])
    if one:
        return (low, high) if low <= high and length else None
    low, high, seen = np.broadcast_arrays(low, high, (low <= high) & (length > 0))
    return (int(low[seen].min()), int(high[seen].max())) if seen.any() else None


def _visible_in_ranges(
    inputs: Mapping[str, Array], sizes: Sizes, window: tuple[int, int]
) -> tuple[int, int] | None:
    """`_visible` of the queries one by one, as each has a range of its own."""
    begin, end = np.moveaxis(inputs["key_ranges"], -1, 0)
    lengths = inputs.get("key_lengths", np.array(sizes.Lk))[..., None]
    at = np.arange(sizes.Lq) + offsets_of(inputs)[..., None]
    low = np.maximum(np.maximum(begin, 0) - at, -window[0])
    high = np.minimum(np.minimum(end, lengths) - 1 - at, window[1])
    low, high = np.broadcast_arrays(low, high)
    seen = low <= high
    return (int(low[seen].min()), int(high[seen].max())) if seen.any() else None


def common_dtypes(inputs: Mapping[str, Array]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Of computation and result: the mask never promotes, float16 widens."""
    found = [array.dtype for name, array in inputs.items() if _promotes(name)]
    first = found[0]
    if first in _COMPUTED and found.count(first) == len(found):  # the usual case
        return first, first
    out_dtype = common_dtype(*found)
    return np.result_type(out_dtype, np.float32), out_dtype


def _promotes(name: str) -> bool:
    """Whether an input counts for the dtype of the result: FIRE's parameters do."""
    return name not in ROWS or ROWS[name].promotes


def as_scale(scale: object, head_dim: int, dtype: np.dtype[Any]) -> float:
    if scale is None:
        if head_dim == 0:
            raise ValueError("scale: None with head_dim 0; expected a number")
        return 1 / math.sqrt(head_dim)
    number = as_real("scale", scale)
    none, infinite = _ROUNDED_AWAY[dtype]
    if number and abs(number) <= none:
        raise ValueError(
            f"scale: got {number}, too small for {dtype}, where it is 0; expected 0 or "
            "a number that is not"
        )
    if abs(number) * _LOG2E >= infinite:  # as the kernels fold it in
        raise ValueError(
            f"scale: got {number}, too large for {dtype}; expected less than "
            f"{float(np.finfo(dtype).max) / _LOG2E:.3g}"
        )
    return number


def as_softcap(softcap: object, dtype: np.dtype[Any]) -> float:
    number = as_real("softcap", softcap)
    none, infinite = _ROUNDED_AWAY[dtype]
    if number <= 0:
        raise ValueError(
            f"softcap: got {number}; expected a number above 0 (None: no cap)"
        )
    if number <= none:
        raise ValueError(
            f"softcap: got {number}, too small for {dtype}, where it is 0; expected a "
            "number that is not"
        )
    if number * _LOG2E >= infinite:  # as the kernels take it
        raise ValueError(
            f"softcap: got {number}, too large for {dtype}; expected less than "
            f"{float(np.finfo(dtype).max) / _LOG2E:.3g} (None: no cap)"
        )
    return number


def _dropout(dropout_p: object) -> float:
    if type(dropout_p) is float and dropout_p == 0.0:  # the usual case
        return 0.0
    number = as_real("dropout_p", dropout_p)
    if not 0 <= number < 1:
        raise ValueError(f"dropout_p: got {number}; expected 0 <= dropout_p < 1")
    return number
