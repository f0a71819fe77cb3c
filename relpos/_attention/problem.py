"""The one place that turns the arguments of `attention` into operands of its kernel.

Every array operand becomes a view of shape (*batch, heads, rows, columns) with zero
strides where it is broadcast, so the kernel only walks strides, and nothing is copied
but what has the wrong dtype, byte order or alignment.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from relpos._attention import fire_network as _fire
from relpos._attention.operands import (
    Sizes,
    check_core_shapes,
    join_batches,
    read_sizes,
    spread,
)
from relpos._attention.placement import (
    ROW_AXIS,
    Placement,
    as_labels,
    check_labels,
    check_reach,
    expand_tables,
    place_tables,
)
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_array,
    as_choice,
    as_flag,
    as_floating,
    as_int,
    as_integers,
    as_real,
    kind_of,
    native,
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
_BEYOND = {"clip": 0, "zero": 1, "raise": 0}  # "raise" has been checked before the call


class Problem(NamedTuple):
    """A checked call of `attention`, ready for the kernel.

    `inputs` are the arrays as given, by argument name: an operand's shape beside its
    input's tells over which axes it was broadcast, and `placement.rows` which rows of a
    table were gathered.
    """

    inputs: dict[str, Array]
    sizes: Sizes
    dtype: np.dtype[Any]  # of the computation
    out_dtype: np.dtype[Any]  # of the result
    placement: Placement
    operands: dict[str, Any]  # of _core.attention_forward, all but the outputs
    fire: _fire.Fire | None = None  # FIRE's bias, whose parameters are inputs too


def prepare(
    arrays: dict[str, Any],
    fire: _fire.Fire | None = None,
    *,
    dropout_p: object = 0.0,
    is_causal: object = False,
    scale: object = None,
    enable_gqa: object = False,
    query_offset: object = None,
    min_relative_position: object = None,
    buckets: object = None,
    beyond: object = "clip",
    labels: object = None,
    key_lengths: object = None,
    window: object = None,
) -> Problem:
    """Check the arguments of `attention` and build the operands of the kernel.

    `arrays` holds query, key, value, attn_mask, the tables, pos_bias_u and pos_bias_v
    in the order of `attention`; None stands for absent.
    """
    inputs = _floating_inputs(arrays)
    sizes = read_sizes(inputs, as_flag("enable_gqa", enable_gqa))
    check_core_shapes(inputs, sizes)
    tables = {name: inputs[name] for name in ROW_AXIS if name in inputs}
    rule = as_choice("beyond", beyond, tuple(_BEYOND))
    if labels is None:
        placement = place_tables(tables, min_relative_position, buckets, rule)
    else:
        _reject_origin(min_relative_position, buckets)
        placement = Placement.of_labels()
        inputs["labels"] = as_labels(labels)
        check_core_shapes({"labels": inputs["labels"]}, sizes)
        check_labels(inputs["labels"], tables)
    left, right = _window(window, as_flag("is_causal", is_causal))
    positional = _positional(placement, bool(is_causal), (left, right))
    if fire is not None:
        _fire.check_heads(fire, sizes.H)
        positional.append("FIRE's bias")
    inputs.update(item_integers(query_offset, key_lengths, positional, sizes))
    sizes = sizes._replace(batch=join_batches(inputs))
    if rule == "raise":
        check_reach(placement.spans, _visible(inputs, sizes, left, right))
    dtype, out_dtype = common_dtypes(inputs | (fire.typed if fire else {}))
    operands = {
        **_array_operands({**inputs, **expand_tables(tables, placement)}, sizes, dtype),
        "scale": as_scale(scale, sizes.D, dtype),
        "dropout_p": _dropout(dropout_p),
        "beyond": _BEYOND[rule],
        "min_relative_position": placement.vectors.start,
        "min_bias_position": placement.bias.start,
        "window_left": left,
        "window_right": right,
    }
    if fire is not None:
        operands |= _fire.operands(fire, offsets_of(inputs), sizes)
        inputs |= fire.inputs
    return Problem(inputs, sizes, dtype, out_dtype, placement, operands, fire)


def offsets_of(inputs: dict[str, Array]) -> Array:
    """`query_offset` as given, or 0."""
    return inputs.get("query_offset", np.array(0))


def _floating_inputs(arrays: dict[str, Any]) -> dict[str, Array]:
    """Check the kinds of the floating arguments; absent ones drop out."""
    optional = set(arrays) - {"query", "key", "value"}
    inputs = {}
    for name, value in arrays.items():
        if value is None and name in optional:
            continue
        inputs[name] = (
            _as_mask(value) if name == "attn_mask" else as_floating(name, value)
        )
    if "pos_bias_v" in inputs and "rel_key" not in inputs:
        raise ValueError(
            "pos_bias_v: given without rel_key; it only acts in the rel_key term, so "
            "pass rel_key or leave pos_bias_v out"
        )
    return inputs


def _as_mask(value: object) -> Array:
    mask = as_array("attn_mask", value)
    if mask.dtype.kind not in "bf" or mask.dtype.itemsize > 8:
        hint = " (True = may attend: convert with .astype(bool))"
        raise TypeError(
            f"attn_mask: got dtype {mask.dtype}; expected bool, float16, float32 or "
            f"float64{hint if mask.dtype.kind in 'iu' else ''}"
        )
    return mask


def _reject_origin(minimum: object, buckets: object) -> None:
    for name, value in (("min_relative_position", minimum), ("buckets", buckets)):
        if value is not None:
            raise ValueError(
                f"labels: given together with {name}; labels are table rows already, "
                "expected one of the two"
            )


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
    placement: Placement, is_causal: bool, window: tuple[int, int]
) -> list[str]:
    """Names of the arguments given that depend on relative positions."""
    names = list(placement.spans)
    if is_causal:
        names.append("is_causal")
    elif window != (UNBOUNDED, UNBOUNDED):
        names.append("window")
    return names


def item_integers(
    query_offset: object, key_lengths: object, positional: list[str], sizes: Sizes
) -> dict[str, Array]:
    """Check the integers given per batch item; private copies, so they stay checked."""
    found = {}
    if query_offset is not None:
        offsets = as_integers("query_offset", query_offset)
        far = offsets[(offsets <= -POSITION_LIMIT) | (offsets >= POSITION_LIMIT)]
        if far.size:
            raise ValueError(
                f"query_offset: got {far[0]}; expected values between -2**60 and 2**60"
            )
        found["query_offset"] = offsets
    elif positional and sizes.Lq != sizes.Lk:
        raise ValueError(
            f"query_offset: None with {sizes.Lq} queries and {sizes.Lk} keys is "
            f"ambiguous, and {positional[0]} depends on it; pass 0 (query 0 at key 0) "
            f"or Lk - Lq = {sizes.Lk - sizes.Lq} (last query at the last key)"
        )
    if key_lengths is not None:
        lengths = as_integers("key_lengths", key_lengths)
        if lengths.size and (lengths.min() < 0 or lengths.max() > sizes.Lk):
            wrong = lengths.min() if lengths.min() < 0 else lengths.max()
            raise ValueError(f"key_lengths: got {wrong}; expected 0 to Lk = {sizes.Lk}")
        found["key_lengths"] = lengths
    return found


def _visible(
    inputs: dict[str, Array], sizes: Sizes, left: int, right: int
) -> tuple[Array, Array]:
    """Lowest and highest visible relative position of each batch item."""
    offset = inputs.get("query_offset", np.int64(0))
    length = inputs.get("key_lengths", np.int64(sizes.Lk))
    nothing = (length == 0) | (sizes.Lq == 0) | (0 in sizes.batch)
    low = np.maximum(1 - sizes.Lq - offset, -left)
    high = np.minimum(length - 1 - offset, right)
    low, high = np.broadcast_arrays(low, np.where(nothing, low - 1, high))
    return low, high


def common_dtypes(inputs: dict[str, Array]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Of computation and result: the mask never promotes, float16 widens."""
    floating = {
        array.dtype
        for name, array in inputs.items()
        if array.dtype.kind == "f" and name != "attn_mask"
    }
    if len(floating) == 1 and floating <= _COMPUTED:
        (out_dtype,) = floating
        return out_dtype, out_dtype
    out_dtype = np.result_type(*floating)
    return np.result_type(out_dtype, np.float32), out_dtype


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


def _dropout(dropout_p: object) -> float:
    if type(dropout_p) is float and dropout_p == 0.0:  # the usual case
        return 0.0
    number = as_real("dropout_p", dropout_p)
    if not 0 <= number < 1:
        raise ValueError(f"dropout_p: got {number}; expected 0 <= dropout_p < 1")
    return number


def _array_operands(
    inputs: dict[str, Array], sizes: Sizes, dtype: np.dtype[Any]
) -> dict[str, Array]:
    operands = {}
    for name, array in inputs.items():
        if name in ("query_offset", "key_lengths"):
            items = np.broadcast_to(array, sizes.batch)
            operands[name] = np.ascontiguousarray(items).reshape(-1)
        elif name == "attn_mask":
            operands[name] = spread(name, _native_mask(array), sizes)
        else:
            own = array.dtype.newbyteorder("=") if name == "labels" else dtype
            operands[name] = spread(name, native(array, own), sizes)
    return operands


def _native_mask(mask: Array) -> Array:
    """Bool, float32 or float64; float16 widens."""
    if mask.dtype.kind == "b":
        return native(mask, np.dtype(bool))
    return native(mask, np.dtype(np.float64 if mask.itemsize > 4 else np.float32))
