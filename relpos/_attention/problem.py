"""Arguments of `attention`, checked, as operands of its kernel.

The kernel walks strides, which are zero where an array is broadcast, so that nothing is
copied but what has the wrong dtype, byte order or alignment.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from relpos._attention import fire_network
from relpos._attention.documents import documents_of
from relpos._attention.edges import as_edges, check_picks
from relpos._attention.operands import (
    LABELLED,
    ROWS,
    TABLES,
    Call,
    Sizes,
    check_labels,
    read,
)
from relpos._attention.rules import BEYOND, UNBOUNDED, Numbers, facts_of
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

_NO_OFFSET = np.array(0)


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
    its input tell over which axes it was broadcast, and `rows` which rows of a table
    were gathered.
    """

    inputs: dict[str, Array]
    sizes: Sizes
    batch: tuple[int, ...]
    dtype: np.dtype[Any]  # of the computation
    out_dtype: np.dtype[Any]  # of the result
    rows: dict[str, Array]
    operands: dict[str, Any]  # of _core.attention_forward, all but the outputs
    fire: fire_network.Fire | None  # FIRE's bias, whose parameters are inputs too


def prepare(call: Call, part: Part | None = None) -> Problem:
    """Check the arguments of a call and build the operands of the kernel."""
    # FIRE's parameters first: their errors come before those of query, key and value.
    fire = fire_network.fire_of_call(call) if "w1" in call else None
    inputs, sizes, batch = read(call, part is not None)
    # A part has some of the heads. The network of the whole was checked before.
    if fire is not None and part is not None:
        heads = slice(part.head, part.head + sizes.H)
        fire = fire_network.part_of_fire(fire, heads, part.key)
    if call.get("cu_seqlens") is not None:
        documents = documents_of(call, sizes.Lq, sizes.Lk)
        inputs["key_ranges"] = documents
        if fire is not None:
            fire = fire._replace(begins=documents[:, 0])
    numbers = _numbers_of(call, fire)
    facts = facts_of(inputs, sizes, numbers)
    graph: dict[str, Array] = {}
    if "key_indices" in inputs:
        check_picks(call, inputs, _tables_of(inputs))
    elif "edges" in call:
        graph = as_edges(call, _tables_of(inputs), sizes)
    elif "labels" in inputs or "labels[0]" in inputs:
        tables = _tables_of(inputs)
        for name in LABELLED:
            if name in inputs:
                check_labels(name, inputs[name], tables)
    operands: dict[str, Any] = {
        **inputs,
        **graph,
        **facts.numbers,
        "dropout_p": _dropout(call["dropout_p"]),
        "beyond": int(numbers.beyond == BEYOND["zero"]),  # "raise" has been checked
    }
    # What was gathered, and not its table, is converted below.
    for name, rows in facts.rows.items():
        operands[name] = gather_rows(inputs[name], rows, TABLES[name].row_axis)
    for name in facts.copied:
        operands[name] = ROWS[name].native(operands[name], facts.dtype)
    if facts.buckets is not None:
        operands["buckets"] = facts.buckets
    if numbers.softcap is not None:
        operands["softcap"] = numbers.softcap
    if part is not None:
        operands |= part.operands()
    if fire is not None:
        operands.update(fire_network.operands(fire, offsets_of(inputs), sizes))
        inputs |= fire.inputs  # which have gradients
    return Problem(
        inputs,
        sizes,
        batch,
        facts.dtype,
        facts.out_dtype,
        facts.rows,
        operands,
        fire,
    )


def _tables_of(inputs: dict[str, Array]) -> dict[str, Array]:
    return {name: inputs[name] for name in TABLES if name in inputs}


def look_at_mask(problem: Problem) -> None:
    """Warn of a mask of zeros and ones, which may have been meant to hide."""
    mask = problem.operands.get("attn_mask")
    if mask is not None and mask.dtype.kind != "b":
        warn_of_flags(mask)


def warn_of_flags(mask: Array) -> None:
    """Warn of a floating mask of zeros and ones."""
    if kernels().has_zeros_and_ones(mask):
        warn(
            "attn_mask: got a floating mask of zeros and ones, which is added to the "
            "scores and hides nothing; expected a boolean mask, or a mask of 0 and "
            "-inf, to hide keys"
        )


def offsets_of(inputs: Mapping[str, Array]) -> Array:
    """`query_offset` as given, or 0."""
    return inputs.get("query_offset", _NO_OFFSET)


# ---- numbers of any objects --------------------------------------------------------


def _numbers_of(call: Call, fire: fire_network.Fire | None) -> Numbers:
    """Return the numbers and flags of a call; the rules say which are in range."""
    beyond = BEYOND[as_choice("beyond", call["beyond"], BEYOND)]
    is_causal = as_flag("is_causal", call["is_causal"])
    left, right = _window(call["window"])
    first = as_first(call["min_relative_position"])
    buckets, scale, softcap = call["buckets"], call["scale"], call["softcap"]
    if buckets is not None:
        buckets = as_integers("buckets", buckets)
        expected = "(n,), one table row for each relative position"
        check_shape("buckets", buckets, buckets.ndim == 1 and buckets.size, expected)
    if scale is not None:
        scale = as_real("scale", scale)
    if softcap is not None:
        softcap = as_real("softcap", softcap)
    network = None
    if fire is not None:
        is_wide = any(x.dtype.char == "d" for x in fire.typed.values())
        network = (*fire.w2.shape, is_wide)
    is_graph = "edges" in call
    # by position: keywords would take twice the time in every call
    return Numbers(
        beyond,
        is_causal,
        left,
        right,
        first,
        buckets,
        scale,
        softcap,
        network,
        is_graph,
        as_block_size(call.get("block_size")),
    )


def as_first(minimum: object) -> int | None:
    """Check the relative position of row 0; None: tables are centred."""
    limit = POSITION_LIMIT - 1
    if minimum is None:
        return None
    return as_int("min_relative_position", minimum, -limit, limit)


def _window(window: object) -> tuple[int, int]:
    """Largest visible distances to the left and right."""
    if window is None:
        return UNBOUNDED, UNBOUNDED
    if not isinstance(window, (tuple, list)):
        raise TypeError(f"window: got {kind_of(window)}; expected (left, right)")
    if len(window) != 2:
        items = amount(len(window), "item")
        raise ValueError(f"window: got {items}; expected (left, right)")
    return _reach(window[0]), _reach(window[1])


def _reach(side: object) -> int:
    """Return the largest visible distance on a side of the window."""
    if side is None:
        return UNBOUNDED
    distance = as_int("window", side, 0)
    # One past every relative position is no bound at all.
    return distance if distance < 2 * POSITION_LIMIT else UNBOUNDED


def as_block_size(size: object) -> tuple[int, int] | None:
    """Return the queries and keys of a block, each cut to the longest of arrays."""
    if size is None:
        return None
    sides = size if isinstance(size, (tuple, list)) else (size, size)
    if len(sides) != 2:
        items = amount(len(sides), "item")
        raise ValueError(
            f"block_size: got {items}; expected an integer, or (queries, keys)"
        )
    queries, keys = (min(as_int("block_size", side, 1), 2**40) for side in sides)
    return queries, keys


def _dropout(dropout_p: object) -> float:
    if type(dropout_p) is float and dropout_p == 0.0:  # the usual case
        return 0.0
    number = as_real("dropout_p", dropout_p)
    if not 0 <= number < 1:
        raise ValueError(f"dropout_p: got {number}; expected 0 <= dropout_p < 1")
    return number


# ---- rows of tables ----------------------------------------------------------------


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
