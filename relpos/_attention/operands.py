"""The array arguments of `attention`, a row each, and what their shapes have to be.

Dimension letters: H query heads, Hk key heads, Lq and Lk lengths, D head_dim of query
and key, Dv of value, Dp columns of rel_key, R table rows. `...` are batch axes, which
broadcast as in NumPy; heads, lengths and columns never do.
"""

from collections.abc import Callable, Mapping
from functools import partial
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
    check_shape,
    is_floating,
    native,
    stored,
)
from relpos._core import broadcast_to

_MAX_AXES = 32  # the most that NumPy 1 allows


class Sizes(NamedTuple):
    """Dimension letters of one call."""

    H: int
    Hk: int
    Lq: int
    Lk: int
    D: int
    Dv: int
    Dp: int
    own: bool  # a position query's
    is_part: bool = False  # of a larger problem

    @property
    def left(self) -> str:
        """Name what rel_key is dotted with."""
        return "position_query" if self.own else "query"


#: Index in `Sizes` of the length of a letter; other letters are of one operand alone.
_PLACES = {letter: place for place, letter in enumerate("HKqkDVP")}


class Operand:
    """One array argument: its axes after the batch axes, in letters.

    The kernels take heads, rows and columns of every operand; a letter 1 is an axis
    that the argument does not have. csrc/python/operands.c has the same letters.
    """

    is_required = False
    has_gradient = True
    is_shared = False  # by heads or batch items: the kernel sums its gradient
    is_written = False  # its gradient, whatever was there; without pairs it is left
    promotes = True  # its dtype counts for that of the result
    kind: Callable[[str, object], Array] = staticmethod(as_floating)  # checks numbers

    def __init__(self, name: str, letters: str, shown: str) -> None:
        self.name = name
        self.letters = letters
        self.shown = shown  # its shape as messages print it
        self.axes = len(letters) - letters.count("1")
        added = letters[letters.find("1") :] if "1" in letters else ""
        self._view = tuple(None if letter == "1" else slice(None) for letter in added)
        self._heads = _PLACES.get(letters[:1], 0)
        self.row_axis = 1 - self.axes
        self.read = partial(self.kind, name)  # faster than a method

    def check(self, array: Array, sizes: Sizes) -> None:
        """Check the axes after the batch axes."""

    def dtype(self, array: Array) -> np.dtype[Any]:
        """Return the dtype in which the kernel takes what does not promote."""
        return array.dtype.newbyteorder("=")

    def aligned(self, array: Array) -> Array:
        """View `array` with the axes it lacks; none is repeated."""
        return array[(..., *self._view)] if self._view else array

    def core(self, array: Array, sizes: Sizes) -> tuple[int, ...]:
        """Return heads, rows and columns of an aligned array for the kernel."""
        return (sizes[self._heads], *array.shape[-2:])

    def as_kernel_takes(
        self,
        array: Array,
        batch: tuple[int, ...],
        sizes: Sizes,
        computed: np.dtype[Any],
    ) -> Array:
        """View `array` as (*batch, heads, rows, columns); copied only for its dtype."""
        array = native(array, computed if self.promotes else self.dtype(array))
        if self._view:
            array = self.aligned(array)
        shape = (*batch, *self.core(array, sizes))
        if array.shape == shape:
            return array
        check_bytes(self.name, shape, array.dtype)
        return broadcast_to(array, shape)


class Tokens(Operand):
    """Query, key or value: `read_sizes` reads the letters off them."""

    is_required = True
    is_written = True


class Shared(Operand):
    """Something of each head, or of all: axes of queries and keys it has none."""

    is_shared = True


class Table(Shared):
    """One row for each relative position, bucket or label."""

    def rows(self, array: Array) -> int:
        """Count its rows."""
        rows: int = array.shape[self.row_axis]
        return rows

    def check(self, array: Array, sizes: Sizes) -> None:
        own = self.axes - 1
        if array.ndim < own:
            at_least_ndim(self.name, array, own, self.shown)
        if own == 2 and array.shape[-1] != sizes[_PLACES[self.letters[-1]]]:
            columns = sizes[_PLACES[self.letters[-1]]]
            owners = {"D": ("query", "D"), "V": ("value", "Dv"), "P": (sizes.left, "D")}
            owner, ending = owners[self.letters[-1]]
            wanted = self.shown.replace(f"R, {ending})", f"R, {columns})")
            raise ValueError(
                f"{self.name}: shape {array.shape} does not match {owner}'s head_dim "
                f"{columns}; expected {wanted}"
            )
        if not array.shape[self.row_axis]:
            raise ValueError(
                f"{self.name}: shape {array.shape} has no rows; expected at least 1"
            )
        heads = array.shape[-own - 1] if array.ndim > own else 1
        if heads not in (1, sizes.H):
            is_dense = own == 1 and array.shape[-2:] == (sizes.Lq, sizes.Lk)
            hint = " (a dense bias, (..., H, Lq, Lk), goes to attn_mask)" * is_dense
            raise ValueError(
                f"{self.name}: shape {array.shape} has {heads} heads, but query has "
                f"{sizes.H}; expected {self.shown}{hint}"
            )


class Vector(Shared):
    """One row, of each head or of all."""

    def check(self, array: Array, sizes: Sizes) -> None:
        D, H = sizes[_PLACES[self.letters[-1]]], sizes.H
        owner = sizes.left if self.letters[-1] == "P" else "query"
        heads = array.shape[-2] if array.ndim > 1 else 1
        if array.shape[-1:] != (D,) or heads not in (1, H):
            raise ValueError(
                f"{self.name}: shape {array.shape} does not match {owner}'s head_dim "
                f"{D} and {H} heads; expected ({D},), ({H}, {D}) or (..., {H}, {D})"
            )


class Rows(Operand):
    """One row for each query, with columns of its own."""

    is_written = True

    def check(self, array: Array, sizes: Sizes) -> None:
        heads, rows = array.shape[-3:-1]
        if (heads, rows) != (sizes.H, sizes.Lq):
            raise ValueError(
                f"{self.name}: shape {array.shape} does not match query's {sizes.H} "
                f"heads and length {sizes.Lq}; expected (..., {sizes.H}, {sizes.Lq}, "
                f"{sizes.Dp})"
            )


class Heads(Shared):
    """A number of each head."""

    def check(self, array: Array, sizes: Sizes) -> None:
        if array.shape != (sizes.H,):
            raise ValueError(
                f"{self.name}: shape {array.shape} does not match query's {sizes.H} "
                f"heads; expected ({sizes.H},)"
            )


class Decay(Shared):
    """A number of each query head and key; of a part, of positions after it, too."""

    @staticmethod
    def kind(name: str, value: object) -> Array:
        array = as_floating(name, value)
        finite = np.isfinite(array)
        if not finite.all():
            at = tuple(map(int, np.unravel_index(int(finite.argmin()), array.shape)))
            raise ValueError(
                f"{name}: {name}{list(at)} is {array[at]}; expected finite numbers (to "
                "hide pairs, mask them)"
            )
        return array

    def check(self, array: Array, sizes: Sizes) -> None:
        at_least_ndim(self.name, array, 2, self.shown)
        heads, keys = array.shape[-2:]
        if heads == sizes.H and (
            keys == sizes.Lk or (sizes.is_part and keys > sizes.Lk)
        ):
            return
        raise ValueError(
            f"{self.name}: shape {array.shape} does not match {sizes.H} query heads "
            f"and {sizes.Lk} keys; expected (..., {sizes.H}, {sizes.Lk})"
        )


class Pairs(Operand):
    """Something for each pair of positions; axes of length 1 are repeated."""

    promotes = False

    def core(self, array: Array, sizes: Sizes) -> tuple[int, ...]:
        own = zip(self.letters, (1, 1, 1, *array.shape)[-3:], strict=True)
        return tuple(sizes[_PLACES[x]] if x in _PLACES else n for x, n in own)

    def check(self, array: Array, sizes: Sizes) -> None:
        core = tuple(sizes[_PLACES[letter]] for letter in self.letters if letter != "1")
        shape = array.shape[-len(core) :] if array.ndim else ()
        pairs = zip(reversed(shape), reversed(core), strict=False)
        if all(size in (1, full) for size, full in pairs):
            return
        wanted = f"(..., {', '.join(map(str, core))})"
        raise ValueError(
            f"{self.name}: shape {array.shape} does not broadcast to {wanted}; "
            f"expected that, or 1 on an axis{self.hint(array.shape, core)}"
        )

    def hint(self, shape: tuple[int, ...], core: tuple[int, ...]) -> str:
        """Say what was meant, perhaps."""
        return ""


class Mask(Pairs):
    """True where a query may attend, or numbers to add."""

    @staticmethod
    def kind(name: str, value: object) -> Array:
        mask = as_array(name, value)
        if mask.dtype.kind != "b" and not is_floating(mask.dtype):
            hint = " (True = may attend: convert with .astype(bool))"
            raise TypeError(
                f"{name}: got dtype {mask.dtype}; expected bool, float16, float32 "
                f"or float64{hint if mask.dtype.kind in 'iu' else ''}"
            )
        return mask

    def hint(self, shape: tuple[int, ...], core: tuple[int, ...]) -> str:
        if len(shape) == 3 and shape[1:] == core[1:]:
            return " (one mask per batch item and none per head is attn_mask[:, None])"
        if len(shape) == 2 and shape[1] == core[2]:
            return " (keys to hide per batch item are attn_mask[:, None, None])"
        return ""

    def dtype(self, array: Array) -> np.dtype[Any]:
        if array.dtype.kind == "b":
            return np.dtype(bool)
        return np.dtype(np.float64 if array.itemsize > 4 else np.float32)


class Labels(Pairs):
    """Table row of each pair."""

    has_gradient = False

    @staticmethod
    def kind(name: str, value: object) -> Array:
        array = as_array(name, value)
        if array.dtype.kind != "i":
            raise TypeError(
                f"{name}: got dtype {array.dtype}; expected int8, int16, int32 or int64"
            )
        check_shape(name, array, array.ndim > 1, "(..., Lq, Lk)")
        return array


class Ranges(Pairs):
    """First key that each query sees, and the one after the last."""

    has_gradient = False
    kind = staticmethod(as_integers)

    def check(self, array: Array, sizes: Sizes) -> None:
        shape = array.shape
        fits = len(shape) >= 2 and shape[-1] == 2 and shape[-2] in (1, sizes.Lq)
        ends = "begin and end of the keys that each query sees"
        check_shape(self.name, array, fits, f"(..., {sizes.Lq}, 2), {ends}")


class Items(Operand):
    """An integer for each batch item; a private copy, so that it stays checked."""

    has_gradient = False
    promotes = False
    kind = staticmethod(as_integers)

    def as_kernel_takes(
        self,
        array: Array,
        batch: tuple[int, ...],
        sizes: Sizes,
        computed: np.dtype[Any],
    ) -> Array:
        return np.ascontiguousarray(broadcast_to(array, batch)).reshape(-1)


_VECTOR = "(D,), (H, D) or (..., H, D)"
_ROWS = "(R, D), (H, R, D) or (..., H, R, D)"
_EACH_ITEM = "an integer or integers of the batch shape (...)"

#: All of them, in the order of `Call`. A, C, W and B are the rows of each table.
OPERANDS: Mapping[str, Operand] = {
    operand.name: operand
    for operand in (
        Tokens("query", "HqD", "(..., H, Lq, D)"),
        Tokens("key", "KkD", "(..., Hk, Lk, D)"),
        Tokens("value", "KkV", "(..., Hk, Lk, Dv)"),
        Mask("attn_mask", "Hqk", "something that broadcasts to (..., H, Lq, Lk)"),
        Table("rel_key", "HAP", _ROWS),
        Table("rel_query", "HCD", _ROWS),
        Table("rel_value", "HWV", _ROWS.replace("D", "Dv")),
        Table("rel_bias", "HB1", "(R,), (H, R) or (..., H, R)"),
        Vector("pos_bias_u", "H1D", _VECTOR),
        Vector("pos_bias_v", "H1P", _VECTOR),
        Rows("position_query", "HqP", "(..., H, Lq, Dp)"),
        Heads("sinks", "H11", "(H,)"),
        Decay("log_decay", "Ht1", "(..., H, Lk)"),
        Labels("labels", "1qk", "(..., Lq, Lk)"),
        Ranges("key_ranges", "1q2", "(..., Lq, 2)"),
        Items("query_offset", "", _EACH_ITEM),
        Items("key_lengths", "", _EACH_ITEM),
    )
}
#: A tuple of labels, an array of each name: the kernels' names but for the first.
MOST_LABELS = 8
LABELS = {
    name: Labels(name, "1qk", "(..., Lq, Lk)")
    for name in (f"labels[{n}]" for n in range(MOST_LABELS))
}
#: All arrays of a call.
ROWS: Mapping[str, Operand] = {**OPERANDS, **LABELS}
TABLES = {name: row for name, row in OPERANDS.items() if isinstance(row, Table)}


def read_sizes(
    arrays: Mapping[str, Array], enable_gqa: bool, is_part: bool = False
) -> Sizes:
    """Read the dimension letters off query, key, value and position_query."""
    own = "position_query" in arrays
    query, key, value = (
        arrays["query"].shape,
        arrays["key"].shape,
        arrays["value"].shape,
    )
    position = arrays["position_query" if own else "query"].shape
    if min(len(query), len(key), len(value), len(position)) < 3:
        for name in ("query", "key", "value", "position_query"):
            if name in arrays:
                at_least_ndim(name, arrays[name], 3, OPERANDS[name].shown)
    columns = query[-1], value[-1], position[-1]
    sizes = Sizes(query[-3], key[-3], query[-2], key[-2], *columns, own, is_part)
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
        came = f"key: {sizes.Hk} heads, but query has {sizes.H}"
        if not enable_gqa:
            raise ValueError(
                f"{came}; expected equal numbers (enable_gqa=True lets groups of query "
                "heads share a key head)"
            )
        if not sizes.Hk or sizes.H % sizes.Hk:
            raise ValueError(
                f"{came}; with enable_gqa=True query heads must be a multiple of key "
                "heads"
            )
    return sizes


def join_batches(arrays: Mapping[str, Array]) -> tuple[int, ...]:
    """Broadcast the batch axes of all arguments; a message names the one that fails."""
    batch = arrays["query"].shape[:-3]
    for name, array in arrays.items():
        axes = ROWS[name].axes
        own = array.shape[:-axes] if axes else array.shape
        if len(own) + 3 > _MAX_AXES:
            raise ValueError(
                f"{name}: shape {array.shape} has {len(own)} batch axes; expected at "
                f"most {_MAX_AXES - 3}"
            )
        if own in (batch, ()):  # the usual cases
            continue
        joined = broadcast_shapes(batch, own)
        if joined is None:
            raise ValueError(
                f"{name}: batch axes {own} of shape {array.shape} do not broadcast "
                f"with {batch} of the arguments before it; expected "
                f"{ROWS[name].shown}"
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
