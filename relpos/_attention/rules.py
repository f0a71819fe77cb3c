"""The rules of a call, which csrc/python/rules.c applies, and the words of errors.

C has the rules: where tables lie, which pairs are seen, which numbers are in range and
which options go together. Here are the numbers that it gets and what it returns.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from relpos._attention.operands import Sizes
from relpos._checks import Array
from relpos._core import apply_rules
from relpos._text import amount

#: A side of the window that hides nothing.
UNBOUNDED = 2**63 - 1
#: How a call treats positions outside a table, by the number that C knows it by.
BEYOND = {"clip": 0, "zero": 1, "raise": 2}
_LOG2E = math.log2(math.e)


class Numbers(NamedTuple):
    """Numbers and flags of a call, in the order of `_core.apply_rules`."""

    beyond: int = BEYOND["clip"]
    is_causal: bool = False
    left: int = UNBOUNDED  # side of the window, as given
    right: int = UNBOUNDED
    first: int | None = None  # min_relative_position
    buckets: Array | None = None  # a private copy, int64
    scale: float | None = None
    softcap: float | None = None
    #: Of FIRE's bias the heads, the units, and whether a parameter is of float64.
    fire: tuple[int, int, bool] | None = None
    is_graph: bool = False  # an edge, and no position, says the row of a pair
    block_size: tuple[int, int] | None = None  # queries and keys of a block


class Facts(NamedTuple):
    """Consequences of the arrays and the numbers of a call.

    `rows` lists, for each table that has to be gathered before the call, the row that
    serves each relative position of its operand (-1: none). `buckets` are those of the
    positions that queries and keys can use, from that of row 0 on.
    """

    dtype: np.dtype[Any]  # of the computation
    out_dtype: np.dtype[Any]  # of the result
    copied: list[str]  # names of arrays that the kernels cannot read in place
    rows: dict[str, Array]
    buckets: Array | None
    #: Scale, sides of the window and relative positions of row 0 of tables, by the
    #: names that they have for the kernels.
    numbers: dict[str, Any]


def facts_of(inputs: dict[str, Array], sizes: Sizes, numbers: Numbers) -> Facts:
    """Apply the rules to a call whose shapes fit; raise for the first broken one."""
    result = apply_rules(inputs, numbers)
    if isinstance(result[0], str):
        rule, name, other, broken_by, dtype = result
        raise _error(Broken(rule, name, other, broken_by, dtype, sizes, numbers))
    return Facts(*result)


# ---- words -------------------------------------------------------------------------


class Broken(NamedTuple):
    """A rule that a call breaks, with its facts."""

    rule: str
    name: str  # of an argument, or of what depends on one
    other: str | None
    numbers: tuple[int, int, int, int]
    dtype: np.dtype[Any]  # of the computation
    sizes: Sizes
    given: Numbers

    @property
    def number(self) -> float | None:
        """The scale or the softcap, whichever it is about."""
        return self.given.scale if self.name == "scale" else self.given.softcap


_Error: TypeAlias = ValueError | IndexError


def _error(broken: Broken) -> _Error:
    return _WORDS[broken.rule](broken)


def _needs_rel_key(broken: Broken) -> _Error:
    return ValueError(
        f"{broken.name}: given without rel_key; it only acts in the rel_key term, so "
        f"pass rel_key or leave {broken.name} out"
    )


def _labels_and(broken: Broken) -> _Error:
    return ValueError(
        f"labels: given together with {broken.other}; labels are table rows already, "
        "expected one of the two"
    )


def _needs_table(broken: Broken) -> _Error:
    name = broken.name
    return ValueError(
        f"{name}: given without a table, whose rows it says; pass rel_key, rel_query, "
        f"rel_value or rel_bias, or leave {name} out"
    )


def _unequal_rows(broken: Broken) -> _Error:
    count, rows, *_ = broken.numbers
    return ValueError(
        f"{broken.name}: {amount(count, 'row')}, but {broken.other} has {rows}; with "
        "buckets all tables need the same number of rows"
    )


def _outside_rows(broken: Broken) -> _Error:
    at, row, count, _ = broken.numbers
    return IndexError(
        f"buckets: buckets[{at}] is {row}, outside {broken.name} of "
        f"{amount(count, 'row')}; expected 0 to {count - 1}"
    )


def _unplaced_rows(broken: Broken) -> _Error:
    count, rows, *_ = broken.numbers
    return ValueError(
        f"{broken.name}: {amount(count, 'row')}, but {broken.other} has {rows}; tables "
        "placed by min_relative_position need the same number of rows"
    )


def _even_rows(broken: Broken) -> _Error:
    items = "entries" if broken.name == "buckets" else "rows"
    return ValueError(
        f"{broken.name}: {broken.numbers[0]} {items}; to be centred on relative "
        "position 0 it needs an odd number (or pass min_relative_position, the "
        "relative position of row 0)"
    )


def _needs_another(broken: Broken) -> _Error:
    return ValueError(
        f"{broken.name}: given without {broken.other}; pass both, or leave both out"
    )


def _heads_of_blocks(broken: Broken) -> _Error:
    heads, Hk, H, _ = broken.numbers
    return ValueError(
        f"{broken.name}: has {amount(heads, 'head')}, but query has {H} and key {Hk}; "
        f"expected {' or '.join(map(str, sorted({1, Hk, H})))}"
    )


def _number_of_blocks(broken: Broken) -> _Error:
    rows, columns, queries, keys = broken.numbers
    assert broken.given.block_size is not None
    bq, bk = broken.given.block_size
    sizes = broken.sizes
    return ValueError(
        f"{broken.name}: has ({rows}, {columns}) blocks; expected (..., G, "
        f"{queries}, {keys}), for {amount(sizes.Lq, 'query')} and "
        f"{amount(sizes.Lk, 'key')} in blocks of {bq} and {bk}"
    )


def _heads_of_fire(broken: Broken) -> _Error:
    (heads, units, *_), H = broken.numbers, broken.sizes.H
    return ValueError(
        f"w2: shape ({heads}, {units}) has {amount(heads, 'head')}, but query has {H}; "
        f"expected ({H}, W)"
    )


def _needs_an_offset(broken: Broken) -> _Error:
    Lq, Lk = broken.sizes.Lq, broken.sizes.Lk
    return ValueError(
        f"query_offset: None with {amount(Lq, 'query')} and {amount(Lk, 'key')} is "
        f"ambiguous, and {broken.name} depends on it; pass 0 (query 0 at key 0) or "
        f"Lk - Lq = {Lk - Lq} (last query at the last key)"
    )


def _far_offset(broken: Broken) -> _Error:
    return ValueError(
        f"query_offset: got {broken.numbers[0]}; expected values between -2**60 and "
        "2**60"
    )


def _long_length(broken: Broken) -> _Error:
    return ValueError(
        f"key_lengths: got {broken.numbers[0]}; expected 0 to Lk = {broken.sizes.Lk}"
    )


def _unseen_rows(broken: Broken) -> _Error:
    low, high, first, last = broken.numbers
    return IndexError(
        f"{broken.name}: visible relative positions run from {low} to {high}, but the "
        f"table has those from {first} to {last}; expected a longer table, fewer "
        "visible pairs (is_causal, window, key_ranges, key_lengths, query_offset), or "
        'beyond="clip" or "zero"'
    )


def _sees_ahead(broken: Broken) -> _Error:
    return ValueError(
        f"log_decay: visible relative positions run up to {broken.numbers[0]}, but "
        "sums run from a key to a later query; expected every key after its query to "
        "be hidden by is_causal, window, key_ranges or key_lengths"
    )


def _needs_a_scale(broken: Broken) -> _Error:
    return ValueError("scale: None with head_dim 0; expected a number")


def _needs_a_cap(broken: Broken) -> _Error:
    return ValueError(
        f"softcap: got {broken.number}; expected a number above 0 (None: no cap)"
    )


def _too_small(broken: Broken) -> _Error:
    expected = "0 or a number" if broken.name == "scale" else "a number"
    return ValueError(
        f"{broken.name}: got {broken.number}, too small for {broken.dtype}, "
        f"where it is 0; expected {expected} that is not"
    )


def _too_large(broken: Broken) -> _Error:
    hint = " (None: no cap)" if broken.name == "softcap" else ""
    return ValueError(
        f"{broken.name}: got {broken.number}, too large for {broken.dtype}; expected "
        f"less than {float(np.finfo(broken.dtype).max) / _LOG2E:.3g}{hint}"
    )


#: The error of each rule, by its name in C.
_WORDS: Mapping[str, Callable[[Broken], _Error]] = {
    "needs rel_key": _needs_rel_key,
    "labels and": _labels_and,
    "needs a table": _needs_table,
    "unequal rows": _unequal_rows,
    "outside rows": _outside_rows,
    "unplaced rows": _unplaced_rows,
    "even rows": _even_rows,
    "heads of FIRE": _heads_of_fire,
    "needs another": _needs_another,
    "heads of blocks": _heads_of_blocks,
    "number of blocks": _number_of_blocks,
    "needs an offset": _needs_an_offset,
    "far offset": _far_offset,
    "long length": _long_length,
    "unseen rows": _unseen_rows,
    "sees ahead": _sees_ahead,
    "needs a scale": _needs_a_scale,
    "needs a cap": _needs_a_cap,
    "too small": _too_small,
    "too large": _too_large,
}
