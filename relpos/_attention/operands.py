"""The array arguments of `attention`, a row each, and what their shapes have to be.

The table of csrc/python/rows.h has them all: here are the words for what is wrong.
Dimension letters: H query heads, Hk key heads, Lq and Lk lengths, D head_dim of query
and key, Dv of value, Dp columns of rel_key, R table rows. `...` are batch axes, which
broadcast as in NumPy; heads, lengths and columns do not, but for tables with one head.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from relpos._checks import (
    Array,
    as_array,
    as_flag,
    as_floating,
    as_integers,
    check_shape,
    is_floating,
    native,
    stored,
    wrong_dtype,
)
from relpos._core import operands as _CORE, read_operands
from relpos._text import amount

#: All arguments of one call of `attention`, as given, by name. With those of FIRE's
#: network, or of a graph, it is a call of `fire_attention`, or of `graph_attention`.
Call: TypeAlias = dict[str, Any]

Function = TypeVar("Function", bound=Callable[..., Any])

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
    has_position_query: bool
    is_part: bool = False  # of a larger problem

    @property
    def left(self) -> str:
        """Name what rel_key is dotted with."""
        return "position_query" if self.has_position_query else "query"

    def length(self, letter: str, other: int = 0) -> int:
        """Return the length of a letter, or `other` for one of an operand alone."""
        return self[_PLACES[letter]] if letter in _PLACES else other


#: Index in `Sizes` of the length of a letter of csrc/python/rows.h.
_PLACES = {"H": 0, "K": 1, "q": 2, "k": 3, "D": 4, "V": 5, "P": 6}


#: Name of the length of a letter; of others, R.
_LENGTHS = {"H": "H", "K": "Hk", "q": "Lq", "k": "Lk", "D": "D", "V": "Dv", "P": "Dp"}
_LENGTHS |= {"t": "Lk", "2": "2", "g": "G", "n": "n"}
_LENGTHS |= {"h": "G", "x": "ceil(Lq / bq)", "y": "ceil(Lk / bk)"}
#: What a caller of `graph_attention` calls `labels`; those of `attention` are of pairs.
_CALLED = {"edge_labels": "labels", "key_labels": "labels"}


def called(name: str) -> str:
    """Return the name of an argument as its caller knows it."""
    return _CALLED.get(name, name)


class Operand:
    """One array argument: its axes after the batch axes, in letters.

    The kernels take heads, rows and columns of every operand; a letter 1 is an axis
    that the argument does not have.
    """

    kind: Callable[[str, object], Array] = staticmethod(as_floating)  # checks numbers

    def __init__(self, name: str, letters: str, numbers: str, fit: str) -> None:
        self.name = name
        self.letters = letters
        self.fit = fit  # which axes it may lack
        self.promotes = numbers in ("computed", "short")  # to the dtype of the result
        self.is_short = numbers in ("short", "mask")  # where it is of 16 bits
        *_, of_gradient, fit_of_gradient = _CORE.get(f"grad_{name}", ("", ""))
        self.has_gradient = bool(of_gradient)
        # by heads or batch items: the kernel sums its gradient
        self.is_shared = fit_of_gradient in ("shared", "tokens", "heads")
        # its gradient, whatever was there; without pairs it is left
        self.is_written = of_gradient == "short"
        self.axes = len(letters) - letters.count("1")
        self.row_axis = 1 - self.axes
        self.shown = self.show()  # its shape as messages print it
        self.read = partial(self.kind, name)  # faster than a method

    def show(self) -> str:
        """Return the shapes that it may have."""
        core = [_LENGTHS.get(letter, "R") for letter in self.letters if letter != "1"]
        whole = f"(..., {', '.join(core)})"
        if self.fit == "heads":
            return f"({core[0]},) or {whole}"
        if self.fit != "shared":
            return whole
        # without a position query the columns of rel_key are those of the query
        heads, *rest = (name.replace("Dp", "D") for name in core)
        one = f"({', '.join(rest)})" if rest[1:] else f"({rest[0]},)"
        each = f"{heads}, {', '.join(rest)}"
        return f"{one}, ({each}) or (..., {each})"

    def shape(self, lengths: Mapping[str, int], rows: int) -> tuple[int, ...]:
        """Return its shape behind the batch axes; `rows` are those of a table."""
        letters = self.letters.replace("1", "")
        return tuple(lengths.get(letter, rows) for letter in letters)

    def letters_of(self, ndim: int) -> str:
        """Return the letters of the last axes of an array of so many."""
        letters = self.letters.replace("1", "")
        return letters[max(0, len(letters) - ndim) :]

    def whole(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return a shape with 1 for each axis that the array lacks at its end."""
        return shape

    def wrong(self, array: Array, sizes: Sizes, letter: str) -> str:
        """Say what is wrong with a shape: its axes, or the length of a letter."""
        misfit = self.misfit(array.shape, sizes, letter)
        if not misfit:
            misfit = f"has {amount(array.ndim, 'axis')}; expected {self.shown}"
        return f"shape {array.shape} {misfit}"

    def misfit(self, shape: tuple[int, ...], sizes: Sizes, letter: str) -> str:
        """Say what a shape does not match; "" if the number of its axes is wrong."""
        return ""

    def dtype(self, array: Array) -> np.dtype[Any]:
        """Return the dtype in which the kernel takes what does not promote."""
        return array.dtype.newbyteorder("=")

    def native(self, array: Array, computed: np.dtype[Any]) -> Array:
        """Return `array` as the kernels take it, copied only for its dtype."""
        return native(array, computed if self.promotes else self.dtype(array))


class Tokens(Operand):
    """Query, key or value, whose shapes give the letters their lengths."""

    def misfit(self, shape: tuple[int, ...], sizes: Sizes, letter: str) -> str:
        Hk, Lk, D = sizes.Hk, sizes.Lk, sizes.D
        heads = amount(Hk, "head")
        words = {
            "D": f"does not match query's head_dim {D}; expected (..., Hk, Lk, {D})",
            "k": f"does not match key's length {Lk}; expected (..., {Hk}, {Lk}, Dv)",
            "K": f"does not match key's {heads}; expected (..., {Hk}, {Lk}, Dv)",
        }
        return words.get(letter, "")


class Table(Operand):
    """One row for each relative position, bucket or label."""

    def rows(self, array: Array) -> int:
        rows: int = array.shape[self.row_axis]
        return rows

    def misfit(self, shape: tuple[int, ...], sizes: Sizes, letter: str) -> str:
        columns = self.letters[-1]
        if letter == columns:
            # What the columns have to be as many as, and their name in `shown`.
            owners = {"D": ("query", "D"), "V": ("value", "Dv"), "P": (sizes.left, "D")}
            owner, shown = owners[columns]
            count = sizes.length(columns)
            expected = self.shown.replace(f"R, {shown})", f"R, {count})")
            return f"does not match {owner}'s head_dim {count}; expected {expected}"
        if letter == self.letters[1]:
            return "has no rows; expected at least 1"
        if letter == "H":
            hint = ""
            if self.axes == 2 and shape[-2:] == (sizes.Lq, sizes.Lk):
                hint = " (a dense bias, (..., H, Lq, Lk), goes to attn_mask)"
            return (
                f"has {amount(shape[-self.axes], 'head')}, but query has {sizes.H}; "
                f"expected {self.shown}{hint}"
            )
        return ""


class Vector(Operand):
    """One row, of each head or of all."""

    def misfit(self, shape: tuple[int, ...], sizes: Sizes, letter: str) -> str:
        D, H = sizes.length(self.letters[-1]), sizes.H
        owner = sizes.left if self.letters[-1] == "P" else "query"
        return (
            f"does not match {owner}'s head_dim {D} and {amount(H, 'head')}; expected "
            f"({D},), ({H}, {D}) or (..., {H}, {D})"
        )


class Rows(Operand):
    """One row for each query, or one number."""

    def misfit(self, shape: tuple[int, ...], sizes: Sizes, letter: str) -> str:
        if not letter:
            return ""
        lengths = [str(sizes.length(name)) for name in self.letters if name != "1"]
        return (
            f"does not match query's {amount(sizes.H, 'head')} and length {sizes.Lq}; "
            f"expected (..., {', '.join(lengths)})"
        )


class Heads(Operand):
    """A number of each head, (H,), or of each head and query."""

    def letters_of(self, ndim: int) -> str:
        return "H" if ndim == 1 else super().letters_of(ndim)

    def whole(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape, 1) if len(shape) == 1 else shape

    def misfit(self, shape: tuple[int, ...], sizes: Sizes, letter: str) -> str:
        H, Lq = sizes.H, sizes.Lq
        what, expected = f"{amount(H, 'head')}", f"({H},) or (..., {H}, {Lq})"
        if len(shape) > 1:
            what += f" and length {Lq}"
        return f"does not match query's {what}; expected {expected}"


class Decay(Operand):
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

    def misfit(self, shape: tuple[int, ...], sizes: Sizes, letter: str) -> str:
        if not letter:
            return ""
        H, Lk = sizes.H, sizes.Lk
        heads, keys = amount(H, "query head"), amount(Lk, "key")
        return f"does not match {heads} and {keys}; expected (..., {H}, {Lk})"


class Pairs(Operand):
    """Something for each pair of positions; axes of length 1 are repeated."""

    def misfit(self, shape: tuple[int, ...], sizes: Sizes, letter: str) -> str:
        core = tuple(sizes.length(name) for name in self.letters if name != "1")
        lengths = ", ".join(map(str, core))
        hint = self.hint(shape, core)
        return (
            f"does not broadcast to (..., {lengths}); expected that, or 1 on an "
            f"axis{hint}"
        )

    def hint(self, shape: tuple[int, ...], core: tuple[int, ...]) -> str:
        return ""


class Mask(Pairs):
    """True where a query may attend, or numbers to add."""

    def show(self) -> str:
        return f"something that broadcasts to {super().show()}"

    @staticmethod
    def kind(name: str, value: object) -> Array:
        mask = as_array(name, value)
        if mask.dtype.kind != "b" and not is_floating(mask.dtype):
            is_integer = mask.dtype.kind in "iu"
            hint = " (True = may attend: convert with {})" if is_integer else ""
            expected = "bool", "float16", "float32", "float64"
            raise wrong_dtype(name, mask, expected, hint, "bool")
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

    @staticmethod
    def kind(name: str, value: object) -> Array:
        array = as_array(name, value)
        if array.dtype.kind != "i":
            raise wrong_dtype(name, array, ("int8", "int16", "int32", "int64"))
        check_shape(name, array, array.ndim > 1, "(..., Lq, Lk)")
        return array


class Ranges(Pairs):
    """First key that each query sees, and the one after the last."""

    kind = staticmethod(as_integers)

    def wrong(self, array: Array, sizes: Sizes, letter: str) -> str:
        ends = "begin and end of the keys that each query sees"
        return f"got shape {array.shape}; expected (..., {sizes.Lq}, 2), {ends}"


class Blocks(Operand):
    """True where the queries of a block may see the keys of a block."""

    @staticmethod
    def kind(name: str, value: object) -> Array:
        array = as_array(name, value)
        if array.dtype.kind != "b":
            hint = " (True = may attend: convert with {})"
            hint = hint if array.dtype.kind in "iu" else ""
            raise wrong_dtype(name, array, "bool", hint, "bool")
        return array

    def dtype(self, array: Array) -> np.dtype[Any]:
        return np.dtype(bool)


class KeyLists(Operand):
    """Integers of each query and group of heads: its keys, or their labels."""

    kind = staticmethod(as_integers)

    def misfit(self, shape: tuple[int, ...], sizes: Sizes, letter: str) -> str:
        if letter == "q":
            expected = f"(..., G, {sizes.Lq}, n)"
            return f"does not match query's length {sizes.Lq}; expected {expected}"
        return "does not match key_indices; expected its shape" if letter else ""

    def wrong_groups(self, shape: tuple[int, ...], sizes: Sizes) -> str:
        """Say that query heads do not form so many groups."""
        return (
            f"shape {shape} has {amount(shape[-3], 'group')} of heads, but query has "
            f"{amount(sizes.H, 'head')}; expected (..., G, {sizes.Lq}, n), where G "
            f"divides {sizes.H}"
        )


class Items(Operand):
    """An integer for each batch item; a private copy, so that it stays checked."""

    kind = staticmethod(as_integers)

    def show(self) -> str:
        return "an integer or integers of the batch shape (...)"


def _row(name: str) -> Operand:
    """Return the row of an operand, of the class that has the words for its kind."""
    letters, role, _, numbers, fit = _CORE[name]
    of_numbers = {"mask": Mask, "labels": Labels, "int64": Ranges, "bool": Blocks}
    kind: type[Operand] = Tokens if role == "required" else Rows
    if numbers == "int64" and fit == "tokens":
        kind = KeyLists
    elif numbers in of_numbers:
        kind = of_numbers[numbers]
    elif fit == "shared":
        kind = Vector if letters[1] == "1" else Table
    elif fit == "heads":
        kind = Heads
    elif letters[1] == "t":
        kind = Decay
    return kind(name, letters, numbers, fit)


#: All arrays of a call that C reads, in the order of `Call`: FIRE's are made here.
ROWS: Mapping[str, Operand] = {
    name: _row(name)
    for name, (_, role, _, numbers, _) in _CORE.items()
    if role in ("required", "optional") and numbers != "float64"
} | {
    name: Items(name, "", "int64", "tokens") for name in ("query_offset", "key_lengths")
}
#: A tuple of labels, an array of each name: the kernels' names but for the first.
LABELS = {name: row for name, row in ROWS.items() if name.startswith("labels[")}
MOST_LABELS = len(LABELS)
#: Labels that are one array, and those of a tuple.
LABELLED = ("labels", *LABELS)
#: Keys of each query, and their labels, in place of edges.
PICKS = {name: row for name, row in ROWS.items() if isinstance(row, KeyLists)}
#: All arguments of `attention` that are arrays.
OPERANDS = {n: row for n, row in ROWS.items() if n not in LABELS and n not in PICKS}
TABLES = {name: row for name, row in ROWS.items() if isinstance(row, Table)}
#: Arrays whose numbers the kernels take in 16 bits where they lie.
READ_SHORT = {name for name, row in ROWS.items() if row.is_short} | {"grad_out"}


def shows_shapes(function: Function) -> Function:
    """Add to the docstring the shapes of the operands that it lists without one."""
    if function.__doc__ is None:  # python -OO
        return function
    lines = function.__doc__.split("\n")
    for n, line in enumerate(lines):
        names, listed, kind = line.strip().partition(" : array_like")
        if not listed or "(" in kind:
            continue
        shapes = {OPERANDS[x].shown for x in names.split(", ") if x in OPERANDS}
        if len(shapes) == 1:
            shape = shapes.pop().removeprefix("something that ")
            numbers, comma, rest = kind.partition(",")
            indent = line[: len(line) - len(line.lstrip())]
            lines[n] = f"{indent}{names}{listed}{numbers}, {shape}{comma}{rest}"
    function.__doc__ = "\n".join(lines)
    return function


class Arguments(NamedTuple):
    """The arrays of a call, and what their shapes say."""

    inputs: dict[str, Array]  # as given, by name
    sizes: Sizes
    batch: tuple[int, ...]  # batch axes of the result


def read(call: Call, is_part: bool = False) -> Arguments:
    """Check the kinds and the shapes of all arrays; absent ones drop out."""
    groups = as_flag("enable_gqa", call.get("enable_gqa", False))
    if isinstance(call.get("labels"), tuple):
        call = call | {"labels": None} | _several(call["labels"])
    # C reads the shapes. Where one does not fit, `wrong` is the name of the array, the
    # rule, and the number of the letter: the words of the error are here.
    inputs, lengths, batch, wrong = read_operands(call, _read_one, groups, is_part)
    sizes = Sizes._make((*lengths, "position_query" in inputs, is_part))
    if wrong is not None:
        message = _misfit(*wrong, inputs, sizes, batch, groups)
        if "enable_gqa" not in call:
            # A function without this argument does not advise it.
            message = message.partition(" (enable_gqa")[0]
        raise ValueError(message)
    return Arguments(inputs, sizes, batch)


def _read_one(name: str, value: object) -> Array:
    """Read what is no plain array of a usual dtype."""
    return ROWS[name].read(value)


def _several(labels: tuple[object, ...]) -> dict[str, Array]:
    """Check the kinds of several arrays of labels."""
    if not 1 <= len(labels) <= len(LABELS):
        raise ValueError(
            f"labels: got a tuple of {len(labels)}; expected an array, or a tuple of 1 "
            f"to {len(LABELS)} arrays"
        )
    rows = zip(LABELS.items(), labels, strict=False)
    return {name: row.read(array) for (name, row), array in rows}


def _misfit(
    name: str,
    rule: str,
    letter: int,
    inputs: Mapping[str, Array],
    sizes: Sizes,
    batch: tuple[int, ...],
    groups: bool,
) -> str:
    """Say what does not fit; `rule` is one of those of csrc/python/read.c."""
    row, array, name = ROWS[name], inputs[name], called(name)
    batch_axes = array.shape[: array.ndim - row.axes]
    if rule == "groups" and isinstance(row, KeyLists):
        return f"{name}: {row.wrong_groups(array.shape, sizes)}"
    if rule == "groups" and groups:
        return (
            f"key: {amount(sizes.Hk, 'head')}, but query has {sizes.H}; with "
            "enable_gqa=True query heads must be a multiple of key heads"
        )
    if rule == "groups":
        return (
            f"key: {amount(sizes.Hk, 'head')}, but query has {sizes.H}; expected equal "
            "numbers (enable_gqa=True lets groups of query heads share a key head)"
        )
    if rule == "most axes":
        return (
            f"{name}: shape {array.shape} has {len(batch_axes)} batch axes; expected "
            f"at most {_MAX_AXES - 3}"
        )
    if rule == "batch":
        return (
            f"{name}: batch axes {batch_axes} of shape {array.shape} do not broadcast "
            f"with {batch} of the arguments before it; expected {row.shown}"
        )
    wrong_letter = "" if rule == "axes" else row.letters[letter]
    return f"{name}: {row.wrong(array, sizes, wrong_letter)}"


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """NumPy's broadcast of two shapes, or None where there is none."""
    lengths = []  # from the last axis to the first
    for x, y in zip_longest(reversed(a), reversed(b), fillvalue=1):
        if x != y and 1 not in (x, y):
            return None
        lengths.append(y if x == 1 else x)
    return tuple(reversed(lengths))


def check_labels(called: str, labels: Array, tables: dict[str, Array]) -> None:
    """Raise if a label is outside a table; a caller changing it later does no harm."""
    array = stored(labels)
    largest = int(array.max()) if array.size else -1
    for name, table in tables.items():
        count = TABLES[name].rows(table)
        if largest >= count:
            at = tuple(map(int, np.unravel_index(int(array.argmax()), array.shape)))
            raise IndexError(
                f"{called}: {called}{list(at)} is {largest}, outside {name} of "
                f"{amount(count, 'row')}; expected at most {count - 1} (negative: no "
                "position term)"
            )
