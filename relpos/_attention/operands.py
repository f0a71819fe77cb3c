"""Shapes of the arguments of `attention`: core axes checked, batch axes joined.

Dimension letters: H query heads, Hk key heads, Lq and Lk lengths, D head_dim of query
and key, Dv of value, R table rows. `...` are batch axes, which broadcast as in NumPy;
heads, lengths and columns never do.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from relpos._checks import Array, at_least_ndim, check_bytes

#: Shape of each argument as messages print it, and the number of its core axes.
LAYOUT = {
    "query": ("(..., H, Lq, D)", 3),
    "key": ("(..., Hk, Lk, D)", 3),
    "value": ("(..., Hk, Lk, Dv)", 3),
    "attn_mask": ("something that broadcasts to (..., H, Lq, Lk)", 3),
    "rel_key": ("(R, D), (H, R, D) or (..., H, R, D)", 3),
    "rel_query": ("(R, D), (H, R, D) or (..., H, R, D)", 3),
    "rel_value": ("(R, Dv), (H, R, Dv) or (..., H, R, Dv)", 3),
    "rel_bias": ("(R,), (H, R) or (..., H, R)", 2),
    "pos_bias_u": ("(D,) or (H, D)", 2),
    "pos_bias_v": ("(D,) or (H, D)", 2),
    "labels": ("(..., Lq, Lk)", 2),
    "query_offset": ("an integer or integers of the batch shape (...)", 0),
    "key_lengths": ("an integer or integers of the batch shape (...)", 0),
}
_TOKENS = {"query", "key", "value"}
_MAX_AXES = 32  # the most that NumPy 1 allows


class Sizes(NamedTuple):
    """Batch shape and dimension letters of one call."""

    batch: tuple[int, ...]
    H: int
    Hk: int
    Lq: int
    Lk: int
    D: int
    Dv: int


def read_sizes(inputs: dict[str, Array], enable_gqa: bool) -> Sizes:
    """Read the dimension letters off query, key and value; batch is still empty."""
    for name in ("query", "key", "value"):
        at_least_ndim(name, inputs[name], 3, LAYOUT[name][0])
    query, key, value = (inputs[name].shape for name in ("query", "key", "value"))
    sizes = Sizes((), query[-3], key[-3], query[-2], key[-2], query[-1], value[-1])
    if key[-1] != sizes.D:
        raise ValueError(
            f"key: shape {key} does not match query's head_dim {sizes.D}; expected "
            f"(..., Hk, Lk, {sizes.D})"
        )
    if value[-2] != sizes.Lk:
        raise ValueError(
            f"value: shape {value} does not match key's length {sizes.Lk}; expected "
            f"(..., {sizes.Hk}, {sizes.Lk}, Dv)"
        )
    if value[-3] != sizes.Hk:
        raise ValueError(
            f"value: shape {value} does not match key's {sizes.Hk} heads; expected "
            f"(..., {sizes.Hk}, {sizes.Lk}, Dv)"
        )
    _check_heads(sizes, enable_gqa)
    return sizes


def _check_heads(sizes: Sizes, enable_gqa: bool) -> None:
    if sizes.Hk == sizes.H:
        return
    came = f"key: {sizes.Hk} heads, but query has {sizes.H}"
    if not enable_gqa:
        raise ValueError(
            f"{came}; expected equal numbers (enable_gqa=True lets groups of query "
            "heads share a key head)"
        )
    if not sizes.Hk or sizes.H % sizes.Hk:
        raise ValueError(
            f"{came}; with enable_gqa=True query heads must be a multiple of key heads"
        )


def check_core_shapes(inputs: dict[str, Array], sizes: Sizes) -> None:
    """Check the core axes of everything but query, key and value."""
    for name, array in inputs.items():
        if name in ("rel_key", "rel_query", "rel_value"):
            _check_table(name, array, sizes)
        elif name == "rel_bias":
            at_least_ndim(name, array, 1, LAYOUT[name][0])
            _check_rows(name, array, array.shape[-1])
            _check_head_axis(name, array, array.shape[:-1], sizes.H)
        elif name in ("pos_bias_u", "pos_bias_v"):
            _check_vector(name, array, sizes)
        elif name == "attn_mask":
            _check_pairs(name, array, (sizes.H, sizes.Lq, sizes.Lk))
        elif name == "labels":
            _check_pairs(name, array, (sizes.Lq, sizes.Lk))


def _check_table(name: str, table: Array, sizes: Sizes) -> None:
    wanted = LAYOUT[name][0]
    at_least_ndim(name, table, 2, wanted)
    columns, owner = (sizes.D, "query's head_dim")
    if name == "rel_value":
        columns, owner = (sizes.Dv, "value's head_dim")
    if table.shape[-1] != columns:
        letter = "Dv" if name == "rel_value" else "D"
        wanted = wanted.replace(f"R, {letter})", f"R, {columns})")
        raise ValueError(
            f"{name}: shape {table.shape} does not match {owner} {columns}; expected "
            f"{wanted}"
        )
    _check_rows(name, table, table.shape[-2])
    _check_head_axis(name, table, table.shape[:-2], sizes.H)


def _check_rows(name: str, table: Array, rows: int) -> None:
    if not rows:
        raise ValueError(
            f"{name}: shape {table.shape} has no rows; expected at least 1"
        )


def _check_head_axis(name: str, table: Array, leading: tuple[int, ...], H: int) -> None:
    if leading and leading[-1] not in (1, H):
        raise ValueError(
            f"{name}: shape {table.shape} has {leading[-1]} heads, but query has {H}; "
            f"expected {LAYOUT[name][0]}"
        )


def _check_vector(name: str, vector: Array, sizes: Sizes) -> None:
    D, H = sizes.D, sizes.H
    if vector.shape not in ((D,), (1, D), (H, D)):
        raise ValueError(
            f"{name}: shape {vector.shape} does not match query's head_dim {D} and "
            f"{H} heads; expected ({D},) or ({H}, {D})"
        )


def _check_pairs(name: str, array: Array, core: tuple[int, ...]) -> None:
    shape = array.shape[-len(core) :] if array.ndim else ()
    pairs = zip(reversed(shape), reversed(core), strict=False)
    if all(size in (1, full) for size, full in pairs):
        return
    wanted = f"(..., {', '.join(map(str, core))})"
    hint = ""
    if name == "attn_mask" and array.ndim == 3 and array.shape[1:] == core[1:]:
        hint = " (one mask per batch item and none per head is attn_mask[:, None])"
    elif name == "attn_mask" and array.ndim == 2 and array.shape[1] == core[2]:
        hint = " (keys to hide per batch item are attn_mask[:, None, None])"
    raise ValueError(
        f"{name}: shape {array.shape} does not broadcast to {wanted}; expected that, "
        f"or 1 on an axis{hint}"
    )


def join_batches(inputs: dict[str, Array]) -> tuple[int, ...]:
    """Broadcast the batch axes of all arguments; a message names the one that fails."""
    if inputs.keys() == _TOKENS:  # the usual case, in a tenth of the time
        batch = inputs["query"].shape[:-3]
        same = inputs["key"].shape[:-3] == batch == inputs["value"].shape[:-3]
        if same and len(batch) <= _MAX_AXES - 3:
            return batch
    batch = ()
    for name, array in inputs.items():
        own = array.shape[: max(array.ndim - LAYOUT[name][1], 0)]
        if len(own) + 3 > _MAX_AXES:
            raise ValueError(
                f"{name}: shape {array.shape} has {len(own)} batch axes; expected at "
                f"most {_MAX_AXES - 3}"
            )
        joined = broadcast_shapes(batch, own)
        if joined is None:
            raise ValueError(
                f"{name}: batch axes {own} of shape {array.shape} do not broadcast "
                f"with {batch} of the arguments before it; expected {LAYOUT[name][0]}"
            )
        batch = joined
    return batch


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """NumPy's broadcast of two shapes, or None where there is none."""
    joined = []
    for x, y in zip_longest(reversed(a), reversed(b), fillvalue=1):
        if x != y and x != 1 and y != 1:
            return None
        joined.append(y if x == 1 else x)
    return tuple(reversed(joined))


def aligned(name: str, array: Array) -> Array:
    """View `array` with an axis for each of heads, rows and columns, none repeated."""
    if name == "rel_bias":
        return array[..., None]
    if name in ("pos_bias_u", "pos_bias_v"):
        return array[..., None, :]
    if name == "labels":
        return array[..., None, :, :]
    return array


def spread(name: str, array: Array, sizes: Sizes) -> Array:
    """View `array` as the kernel's (*batch, heads, rows, columns), nothing copied."""
    array = aligned(name, array)
    core: tuple[int, ...] = (sizes.H, *array.shape[-2:])
    if name in ("key", "value"):
        core = array.shape[-3:]
    elif name == "attn_mask":
        core = (sizes.H, sizes.Lq, sizes.Lk)
    elif name == "labels":
        core = (1, sizes.Lq, sizes.Lk)
    shape = (*sizes.batch, *core)
    if array.shape == shape:
        return array
    check_bytes(name, shape, array.dtype)
    return np.broadcast_to(array, shape)
