"""Tasks of workers: one block forward and backward, and joins and sums of blocks."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

import numpy as np

from relpos._attention.attention import DEFAULTS
from relpos._attention.fire_network import NAMES
from relpos._attention.functional import backward, forward, merge_attention
from relpos._attention.operands import READ_SHORT, ROWS, Call
from relpos._attention.problem import Part
from relpos._checks import Array, is_floating, native, quiet, rounded_twice

#: Integers that count positions of the whole.
PLACED = ("query_offset", "key_lengths", "key_ranges")
#: Operands that have an entry for each query or key: their gradient is written, so
#: that of a batch axis they lack is summed afterwards, in one order.
WRITTEN = tuple(name for name, row in ROWS.items() if row.is_written)


class Recipe(NamedTuple):
    """Everything that all blocks of a call share."""

    names: tuple[str, ...]  # of the arrays that a block gets
    values: dict[str, Any]  # the other arguments
    dtype: np.dtype[Any]  # of the computation


class Kept(NamedTuple):
    """Results by row from which the backward starts: arrays, or lazy ones of dask."""

    out: Any
    lse: Any
    row_max: Any
    row_sum: Any


class Place(NamedTuple):
    """Position of a block in the whole."""

    part: Part
    batch: tuple[int, ...]  # its batch shape
    with_sinks: bool  # the sinks belong to one block of keys
    shapes: tuple[tuple[int, ...], ...]  # of its chunks, as dask knows them
    begins: tuple[tuple[int, ...], ...]  # theirs


class BlockResults(TypedDict):
    """Results of the rows of a block, over the keys that the block or a join has."""

    out: Array
    lse: Array
    row_max: Array
    row_sum: Array  # of exponentials below the maximum
    weights: NotRequired[Array]  # where the call asks for them


def solve(recipe: Recipe, place: Place, arrays: list[Array]) -> BlockResults:
    """Compute the results of a block, as if its keys were all there are."""
    call, part = _call_of(recipe, place, arrays, READ_SHORT)
    try:
        return cast("BlockResults", forward(call, part))
    except (IndexError, ValueError) as error:
        # An index in its text counts from the begin of the chunk: say where that is.
        name = str(error).partition(":")[0]
        begin = dict(zip(recipe.names, place.begins, strict=True)).get(name, ())
        if name == "log_decay":  # which `_move_positions` has cut
            begin = (*begin[:-1], place.part.key)
        if any(begin):
            error.args = (f"{error} (in a chunk that begins at {list(begin)})",)
        raise


def differentiate(
    recipe: Recipe,
    place: Place,
    arrays: list[Array],
    wrt: list[str],
    grad_out: Array | None,
    grad_lse: Array | None,
    kept: list[Array],
) -> dict[str, Array]:
    """Compute the part of a block in the gradients, from results of whole rows."""
    names = [name for name in wrt if name != "sinks" or place.with_sinks]
    results = Kept(*kept)
    rows = (results.out, results.row_max, results.row_sum)
    call, part = _call_of(recipe, place, arrays)
    for name in WRITTEN:
        if call[name] is not None:
            shape = (*place.batch, *call[name].shape[-3:])
            call[name] = np.broadcast_to(call[name], shape)
    gradients = backward(call, grad_out, grad_lse, rows, names, part)
    by_name: dict[str, Array] = {name: getattr(gradients, name) for name in names}
    if "log_decay" in by_name:
        # The block had the numbers from its first key on: of those before it is 0.
        before = [(0, 0)] * (by_name["log_decay"].ndim - 1) + [(place.part.key, 0)]
        by_name["log_decay"] = np.pad(by_name["log_decay"], before)
    return by_name


def _call_of(
    recipe: Recipe, place: Place, arrays: list[Array], short: Container[str] = ()
) -> tuple[Call, Part | None]:
    """Return a block as a call of its own, at its position in the whole."""
    for name, array, shape in zip(recipe.names, arrays, place.shapes, strict=True):
        if array.shape != shape:
            raise ValueError(
                f"{name}: a chunk has shape {array.shape}, where its dask array says "
                f"{shape}; expected what it says (map_blocks takes chunks=)"
            )
    call: Call = recipe.values | dict(zip(recipe.names, arrays, strict=True))
    for name, value in call.items():
        if isinstance(value, np.ndarray) and name in (*recipe.names, *NAMES):
            call[name] = _computed(name, value, recipe.dtype, name in short)
    if not place.with_sinks:
        call.pop("sinks", None)
    part = None
    if "edges" not in call:
        # A copy: what distributed sends to a worker may lie unaligned in memory.
        items = np.array(place.part.items)
        part = place.part._replace(items=items)
        _move_positions(call, part)
    return DEFAULTS | call, part


def _move_positions(call: Call, part: Part) -> None:
    """Count positions of the whole from the first query and key of a block."""
    for name in PLACED:
        if name in call:
            call[name] = ROWS[name].read(call[name])
    offset = call.get("query_offset", np.array(0))
    call["query_offset"] = offset + (part.query - part.key)
    count = call["key"].shape[-2]
    if "log_decay" in call:
        call["log_decay"] = call["log_decay"][..., part.key :]
    if "key_lengths" in call:
        call["key_lengths"] = np.clip(call["key_lengths"] - part.key, 0, count)
    if "key_ranges" in call:
        ranges = np.clip(call["key_ranges"], part.key, part.key + count)
        call["key_ranges"] = ranges - part.key


def _computed(name: str, array: Array, dtype: np.dtype[Any], short: bool) -> Array:
    """Return an array in the dtype of the whole's computation, unknown to a block.

    Gradients then come in it, too, and are rounded once, when they are summed. `short`
    ones, which have none, may stay in the 16 bits that kernels read.
    """
    if not is_floating(array.dtype) or (short and array.itemsize < dtype.itemsize == 4):
        return array
    wider = np.result_type(array.dtype, dtype)  # a mask does not count for `dtype`
    return native(array, wider if name == "attn_mask" else dtype)


@quiet
def join(a: BlockResults, b: BlockResults) -> BlockResults:
    """Join the results of the same rows over two runs of keys, a's before b's."""
    out, lse = merge_attention(a["out"], a["lse"], b["out"], b["lse"])
    row_max = np.maximum(_maxima(a), _maxima(b)).astype(lse.dtype)
    row_max[np.isneginf(row_max)] = 0
    row_sum = _at(a, row_max) + _at(b, row_max)
    joined: BlockResults = {
        "out": out,
        "lse": lse,
        "row_max": row_max,
        "row_sum": row_sum,
    }
    if "weights" in a:
        weights = [_scaled(a, lse), _scaled(b, lse)]
        joined["weights"] = np.concatenate(weights, axis=-1)
    return joined


def _maxima(part: BlockResults) -> Array:
    """Return the row maxima, -inf where the kernel writes 0: in a row without a key."""
    maxima: Array = np.where(part["row_sum"] == 0, -np.inf, part["row_max"])
    return maxima


def _at(part: BlockResults, row_max: Array) -> Array:
    """Rescale sums of exponentials to a larger maximum; rows without a key have 0."""
    absent = part["row_sum"] == 0
    down = np.where(absent, 0, part["row_max"] - row_max)
    return np.where(absent, 0, part["row_sum"] * np.exp2(down))


def _scaled(part: BlockResults, lse: Array) -> Array:
    """Rescale the weights of a part to all keys."""
    absent = np.isneginf(part["lse"])
    share = np.exp(np.where(absent, -np.inf, part["lse"] - np.where(absent, 0, lse)))
    weights = part["weights"]
    return np.where(weights == 0, 0, weights * share[..., None])  # a share may be nan


@quiet
def add(a: Array, b: Array) -> Array:
    """Add parts of a gradient; the sum is rounded when it is complete."""
    return np.add(a, b, dtype=np.float64)


@quiet
def sum_repeated(
    array: Array,
    axes: tuple[int, ...],
    full_shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Array:
    """Sum a gradient over the batch axes on which its input was repeated.

    NumPy adds in another order where an axis has one item. A chunk of one item of the
    whole's several gets it twice, so that the order is that of the whole.
    """
    shape = list(array.shape)
    for axis, size in enumerate(full_shape):
        if shape[axis] == 1 and size > 1:
            shape[axis] = 2
    several = np.ascontiguousarray(np.broadcast_to(array, shape))
    total = several.sum(axis=axes, dtype=np.float64, keepdims=True)
    # Without the second items; an axis of no items was summed to one.
    first = tuple(slice(max(size, 1)) for size in array.shape)
    return rounded_twice(total[first], dtype)
