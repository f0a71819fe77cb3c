"""The array arguments of `attention`, a row each, and what their shapes have to be.

Dimension letters: H query heads, Hk key heads, Lq and Lk lengths, D head_dim of query
and key, Dv of value, R table rows. `...` are batch axes, which broadcast as in NumPy;
heads, lengths and columns never do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import (
    Array,
    as_array,
    as_floating,
    as_integers,
    at_least_ndim,
    check_bytes,
    native,
)

_MAX_AXES = 32  # the most that NumPy 1 allows


class Sizes(NamedTuple):
    """Dimension letters of one call."""

    H: int
    Hk: int
    Lq: int
    Lk: int
    D: int
    Dv: int


#: Where `Sizes` has what the letters of an `Operand` stand for; others are its own.
_PLACES = {letter: place for place, letter in enumerate("HKqkDV")}


class Kind(NamedTuple):
    """What is common to operands of one kind."""

    read: Callable[[str, object], Array]  # (name, value): numbers of the right kind
    check: Callable[[Operand, Array, Sizes], None]  # its axes after the batch axes
    dtype: Callable[[Array, np.dtype[Any]], np.dtype[Any]]  # for the kernel
    promotes: bool = False  # whether the result's dtype depends on it


class Operand:
    """One array argument: its axes after the batch axes, in letters, and its kind.

    The kernels take heads, rows and columns of every operand; a letter 1 is an axis
    that the argument does not have. csrc/python/operands.c has the same letters.
    """

    __slots__ = (
        "axes",
        "has_gradient",
        "is_required",
        "kind",
        "letters",
        "name",
        "shared",
        "shown",
        "view",
    )

    def __init__(
        self, name: str, letters: str, shown: str, kind: Kind, shared: bool = False
    ) -> None:
        self.name = name
        self.letters = letters
        self.shown = shown  # its shape as messages print it
        self.kind = kind
        self.shared = shared  # by heads or batch items: the kernel sums its gradient
        self.axes = len(letters) - letters.count("1")
        added = letters[letters.find("1") :] if "1" in letters else ""
        axes = (None if letter == "1" else slice(None) for letter in added)
        self.view = (..., *axes)  # an array indexed so has the axes it lacks

        self.is_required = kind is _TOKENS
        self.has_gradient = kind in (_TOKENS, _MASK, _TABLE, _VECTOR)

    @property
    def row_axis(self) -> int:
        """The axis of a table that counts its rows."""
        return 1 - self.axes

    def core(self, sizes: Sizes) -> tuple[int, ...]:
        """Lengths of the axes it has, where all are letters of `Sizes`."""
        return tuple(sizes[_PLACES[x]] for x in self.letters if x != "1")


# ---- kinds ---------------------------------------------------------------------------


def _as_mask(name: str, value: object) -> Array:
    mask = as_array(name, value)
    if mask.dtype.kind not in "bf" or mask.dtype.itemsize > 8:
        hint = " (True = may attend: convert with .astype(bool))"
        raise TypeError(
            f"{name}: got dtype {mask.dtype}; expected bool, float16, float32 or "
            f"float64{hint if mask.dtype.kind in 'iu' else ''}"
        )
    return mask


def _as_labels(name: str, value: object) -> Array:
    """Return labels as signed integers with the axes Lq and Lk."""
    array = as_array(name, value)
    if array.dtype.kind != "i":
        raise TypeError(
            f"{name}: got dtype {array.dtype}; expected int8, int16, int32 or int64"
        )
    if array.ndim < 2:
        raise ValueError(f"{name}: got shape {array.shape}; expected (..., Lq, Lk)")
    return array


def _check_nothing(operand: Operand, array: Array, sizes: Sizes) -> None:
    """`read_sizes` has read the sizes off it, or it has no axes of its own."""


def _check_table(operand: Operand, table: Array, sizes: Sizes) -> None:
    name, wanted, own = operand.name, operand.shown, operand.axes - 1
    at_least_ndim(name, table, own, wanted)
    if own == 2:
        letter = operand.letters[-1]
        columns = sizes[_PLACES[letter]]
        if table.shape[-1] != columns:
            owner, ending = {"D": ("query", "D"), "V": ("value", "Dv")}[letter]
            wanted = wanted.replace(f"R, {ending})", f"R, {columns})")
            raise ValueError(
                f"{name}: shape {table.shape} does not match {owner}'s head_dim "
                f"{columns}; expected {wanted}"
            )
    if not table.shape[-own]:
        raise ValueError(
            f"{name}: shape {table.shape} has no rows; expected at least 1"
        )
    heads = table.shape[-own - 1] if table.ndim > own else 1
    if heads not in (1, sizes.H):
        raise ValueError(
            f"{name}: shape {table.shape} has {heads} heads, but query has "
            f"{sizes.H}; expected {wanted}"
        )


def _check_vector(operand: Operand, vector: Array, sizes: Sizes) -> None:
    D, H = sizes.D, sizes.H
    if vector.shape not in ((D,), (1, D), (H, D)):
        raise ValueError(
            f"{operand.name}: shape {vector.shape} does not match query's head_dim {D} "
            f"and {H} heads; expected ({D},) or ({H}, {D})"
        )


def _check_pairs(operand: Operand, array: Array, sizes: Sizes) -> None:
    core = operand.core(sizes)
    shape = array.shape[-len(core) :] if array.ndim else ()
    pairs = zip(reversed(shape), reversed(core), strict=False)
    if all(size in (1, full) for size, full in pairs):
        return
    wanted = f"(..., {', '.join(map(str, core))})"
    hint = ""
    if operand.kind is _MASK and array.ndim == 3 and array.shape[1:] == core[1:]:
        hint = " (one mask per batch item and none per head is attn_mask[:, None])"
    elif operand.kind is _MASK and array.ndim == 2 and array.shape[1] == core[2]:
        hint = " (keys to hide per batch item are attn_mask[:, None, None])"
    raise ValueError(
        f"{operand.name}: shape {array.shape} does not broadcast to {wanted}; expected "
        f"that, or 1 on an axis{hint}"
    )


def _computed(array: Array, dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype


def _own(array: Array, dtype: np.dtype[Any]) -> np.dtype[Any]:
    return array.dtype.newbyteorder("=")


def _of_mask(array: Array, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Bool, float32 or float64; float16 widens."""
    if array.dtype.kind == "b":
        return np.dtype(bool)
    return np.dtype(np.float64 if array.itemsize > 4 else np.float32)


_TOKENS = Kind(as_floating, _check_nothing, _computed, promotes=True)
_MASK = Kind(_as_mask, _check_pairs, _of_mask)
_TABLE = Kind(as_floating, _check_table, _computed, promotes=True)
_VECTOR = Kind(as_floating, _check_vector, _computed, promotes=True)
_LABELS = Kind(_as_labels, _check_pairs, _own)
_ITEMS = Kind(as_integers, _check_nothing, _own)  # private copies: they stay checked

_ROWS = "(R, D), (H, R, D) or (..., H, R, D)"
_EACH_ITEM = "an integer or integers of the batch shape (...)"

#: All of them, in the order of `Call`. A, C, W and B are the rows of each table.
OPERANDS: Mapping[str, Operand] = {
    operand.name: operand
    for operand in (
        Operand("query", "HqD", "(..., H, Lq, D)", _TOKENS),
        Operand("key", "KkD", "(..., Hk, Lk, D)", _TOKENS),
        Operand("value", "KkV", "(..., Hk, Lk, Dv)", _TOKENS),
        Operand(
            "attn_mask", "Hqk", "something that broadcasts to (..., H, Lq, Lk)", _MASK
        ),
        Operand("rel_key", "HAD", _ROWS, _TABLE, shared=True),
        Operand("rel_query", "HCD", _ROWS, _TABLE, shared=True),
        Operand("rel_value", "HWV", _ROWS.replace("D", "Dv"), _TABLE, shared=True),
        Operand("rel_bias", "HB1", "(R,), (H, R) or (..., H, R)", _TABLE, shared=True),
        Operand("pos_bias_u", "H1D", "(D,) or (H, D)", _VECTOR, shared=True),
        Operand("pos_bias_v", "H1D", "(D,) or (H, D)", _VECTOR, shared=True),
        Operand("labels", "1qk", "(..., Lq, Lk)", _LABELS),
        Operand("query_offset", "", _EACH_ITEM, _ITEMS),
        Operand("key_lengths", "", _EACH_ITEM, _ITEMS),
    )
}
TABLES = tuple(name for name, operand in OPERANDS.items() if operand.kind is _TABLE)


# ---- what all of a call's are checked for --------------------------------------------


def read_sizes(arrays: Mapping[str, Array], enable_gqa: bool) -> Sizes:
    """Read the dimension letters off query, key and value."""
    query, key, value = (
        arrays["query"].shape,
        arrays["key"].shape,
        arrays["value"].shape,
    )
    if min(len(query), len(key), len(value)) < 3:
        for name in ("query", "key", "value"):
            at_least_ndim(name, arrays[name], 3, OPERANDS[name].shown)
    sizes = Sizes(query[-3], key[-3], query[-2], key[-2], query[-1], value[-1])
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
    if sizes.Hk != sizes.H:
        _check_heads(sizes, enable_gqa)
    return sizes


def _check_heads(sizes: Sizes, enable_gqa: bool) -> None:
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


def check_shapes(arrays: Mapping[str, Array], sizes: Sizes) -> None:
    """Check the axes after the batch axes."""
    for name, array in arrays.items():
        operand = OPERANDS[name]
        operand.kind.check(operand, array, sizes)


def join_batches(arrays: Mapping[str, Array]) -> tuple[int, ...]:
    """Broadcast the batch axes of all arguments; a message names the one that fails."""
    batch = arrays["query"].shape[:-3]
    for name, array in arrays.items():
        axes = OPERANDS[name].axes
        own = array.shape[:-axes] if axes else array.shape
        if len(own) + 3 > _MAX_AXES:
            raise ValueError(
                f"{name}: shape {array.shape} has {len(own)} batch axes; expected at "
                f"most {_MAX_AXES - 3}"
            )
        if own == batch:  # the usual case
            continue
        joined = broadcast_shapes(batch, own)
        if joined is None:
            raise ValueError(
                f"{name}: batch axes {own} of shape {array.shape} do not broadcast "
                f"with {batch} of the arguments before it; expected "
                f"{OPERANDS[name].shown}"
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


# ---- views for the kernel ------------------------------------------------------------


def aligned(operand: Operand, array: Array) -> Array:
    """View `array` with an axis for each of heads, rows and columns, none repeated."""
    return array[operand.view]


def as_kernel_takes(
    operand: Operand,
    array: Array,
    batch: tuple[int, ...],
    sizes: Sizes,
    dtype: np.dtype[Any],
) -> Array:
    """View `array` as (*batch, heads, rows, columns); copied only for its dtype."""
    array = native(array, operand.kind.dtype(array, dtype))
    if operand.kind is _ITEMS:
        return np.ascontiguousarray(np.broadcast_to(array, batch)).reshape(-1)
    if operand.kind is _TOKENS:
        core = array.shape[-3:]
    else:
        array = aligned(operand, array)
        own = zip(operand.letters, (1, 1, 1, *array.shape)[-3:], strict=True)
        core = tuple(sizes[_PLACES[x]] if x in _PLACES else n for x, n in own)
    shape = (*batch, *core)
    if array.shape == shape:
        return array
    check_bytes(operand.name, shape, array.dtype)
    return np.broadcast_to(array, shape)
