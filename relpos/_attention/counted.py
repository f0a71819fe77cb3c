"""Bytes that a call holds, counted before there is one.

The kernels' planning is asked what it would take, with arrays of the call's shapes that
have no memory behind them; what Python makes for the kernel is added.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from relpos import _core
from relpos._attention.operands import OPERANDS
from relpos._checks import Array, check_bytes
from relpos._schemes import FIRE_WIDTH, Scheme
from relpos._settings import kernels

#: Arguments that are integers: the edges of a graph.
EDGES = ("indptr", "indices", "labels")


class Sizes(NamedTuple):
    """Letters of one call, and what it is a call of."""

    B: int
    H: int
    Lq: int
    Lk: int
    D: int
    k: int
    scheme: Scheme
    is_causal: bool
    dtype: np.dtype[Any]
    threads: int

    @property
    def arguments(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what the call has beside query, key and value."""
        shapes = self.scheme.shapes(
            self.H, self.Lq, self.Lk, self.D, self.k, self.is_causal
        )
        tokens = [name for name in shapes if name == "position_query"]
        return shapes | {name: (self.B, *shapes[name]) for name in tokens}

    @property
    def tables(self) -> dict[str, int]:
        """Tables of vectors, and how many tokens of a head meet each of them."""
        lengths = {"rel_key": self.Lq, "rel_query": self.Lk, "rel_value": self.Lq}
        return {name: lengths[name] for name in self.scheme.operands if name in lengths}

    @property
    def columns(self) -> int:
        """Columns of those tables."""
        return self.scheme.own_width or self.D

    @property
    def R(self) -> int:
        """Rows of a table."""
        return self.scheme.rows(self.Lq, self.Lk, self.k, self.is_causal)

    @property
    def rows(self) -> int:
        """Rows of a table as the kernel takes it: where buckets list them, more."""
        rows = self.scheme.listed or self.scheme.rows
        return rows(self.Lq, self.Lk, self.k, self.is_causal)

    @property
    def pairs(self) -> int:
        """Pairs of one head that may attend."""
        if "indices" in self.arguments:
            return math.prod(self.arguments["indices"])
        if not self.is_causal:
            return self.Lq * self.Lk
        hidden = max(self.Lk - self.Lq, 0)  # keys that come before query 0's own
        return (self.Lk * (self.Lk + 1) - hidden * (hidden + 1)) // 2

    def met(self, name: str, most_rows: int) -> int:
        """Products of a head's tokens with rows of a table (choose_path of table.h)."""
        few = self.rows <= min(most_rows, self.Lk // 2 + 32)
        by_row = few and name != "rel_query" and "indices" not in self.arguments
        return self.Lq * self.rows if by_row else self.pairs


def edges(s: Sizes) -> dict[str, tuple[int, ...]]:
    """Shapes of the edges of a graph."""
    return {name: shape for name, shape in s.arguments.items() if name in EDGES}


def held(s: Sizes, backward: bool) -> int:
    """Bytes that a call holds at a time, by the kernel's own planning and in Python."""
    operands = _operands(s, backward)
    try:
        counted: int = kernels().attention_bytes(operands, backward)
    except MemoryError:
        raise MemoryError(
            f"{s.scheme.name}: {s.B} x {s.H} heads of {s.Lq} queries and {s.Lk} keys "
            f"with head_dim {s.D} would take more memory than there can be"
        ) from None
    return counted + _made(s, operands, backward)


def _made(s: Sizes, operands: dict[str, Any], backward: bool) -> int:
    """What Python makes for the kernel: FIRE's tables, rows listed by buckets, edges.

    What the forward makes the context keeps, so the backward adds what is its own.
    """
    made: int = sum(
        array[0].nbytes
        for name, array in operands.items()
        if "fire" in name and (not _core.operands[name][1]) == backward
    )
    if s.scheme.listed:
        made += len(s.tables) * s.rows * s.D * s.dtype.itemsize
    if not backward:  # copies: each edge, and the offset of each batch item
        made += sum(math.prod(shape) * 8 for shape in edges(s).values())
        made += s.B * 8 * (s.Lq != s.Lk)
    return made


def _operands(s: Sizes, backward: bool) -> dict[str, Any]:
    """Operands of the kernel by its own table of shapes: nothing of them is read.

    The queries have no offset, whose place the window takes.
    """
    wanted = _names(s)
    arguments = s.arguments
    operands: dict[str, Any] = {"scale": 1.0, "num_threads": s.threads}
    for name, (letters, *roles) in _core.operands.items():
        role = roles[backward]
        if role.startswith("required") or (role and name in wanted):
            shape = (s.B, *(_length(s, letter) for letter in letters))
            of = name.removeprefix("grad_")
            number = np.dtype(np.float64) if "fire" in name else s.dtype
            operands[name] = _unread(name, shape, number, _shared(of, arguments))
    for name, shape in edges(s).items():
        key = "edge_labels" if name == "labels" else name
        operands[key] = _unread(name, shape, np.dtype(np.int64), 0)
    operands |= {n: x for n, x in s.scheme.settings if n != "is_causal"}
    if s.is_causal and not edges(s):
        operands["window_right"] = s.Lk - s.Lq
    return operands


def _names(s: Sizes) -> set[str]:
    """Names of optional operands that the call has, and of the gradients of all."""
    given = {*s.scheme.operands} - {*EDGES}
    if "w1" in given:
        given = {name for name in _core.operands if "fire" in name}
    gradients = {f"grad_{name}" for name in given | {"out", "query", "key", "value"}}
    return given | gradients


def _length(s: Sizes, letter: str) -> int:
    """What a letter of csrc/python/operands.c stands for."""
    if letter.isdigit():
        return int(letter)
    lengths = {"H": s.H, "K": s.H, "q": s.Lq, "k": s.Lk, "D": s.D, "V": s.D}
    lengths |= {"P": s.columns, "t": s.Lk}
    lengths |= dict.fromkeys("ACWB", s.rows)
    ranges = FIRE_WIDTH + 1  # a knot for each unit
    return (lengths | {"o": s.Lq + s.Lk, "F": ranges, "G": ranges + 1})[letter]


def _shared(name: str, arguments: dict[str, tuple[int, ...]]) -> int:
    """Leading axes on which an operand repeats: batch, and heads if they share it."""
    if name in arguments:
        return 1 + OPERANDS[name].axes - len(arguments[name])
    return int("fire" in name)


def _unread(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], shared: int
) -> Array:
    """An array without memory behind it: not to be read. `shared` axes repeat."""
    check_bytes(name, shape, dtype)
    strides = [
        dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))
    ]
    return as_strided(np.empty(1, dtype), shape, [0] * shared + strides[shared:])
