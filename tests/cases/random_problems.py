"""Random small attention problems for hypothesis: every argument, freely combined.

The strategies draw sizes and choices from hypothesis, and arrays from a generator whose
seed hypothesis draws. The order of the draws decides which problems there are: to keep
the problems, keep the order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import hypothesis
import numpy as np
from gradient_problems import TABLES, Problem
from hypothesis import HealthCheck, strategies as st
from layouts import LAYOUTS
from operand_arrays import FLOATING, shape_of
from problems import DTYPES, normal

from relpos import _core
from relpos._attention.operands import OPERANDS

# One of several ranges is taken first, so that rare sizes come often: lengths of few
# queries, of none and of more than a query tile; columns of one vector and of several,
# and none or one column.
LENGTHS = st.one_of(st.integers(1, 9), st.integers(0, 40), st.integers(60, 75))
COLUMNS = st.one_of(st.integers(1, 8), st.integers(9, 40), st.integers(0, 1))
ROWS = st.integers(1, 12)
POSITIONS = st.integers(-30, 30)
BEYOND = st.sampled_from(["clip", "zero"])
#: Sides of a window, and ends of a key range, that are no positions. Sums with some of
#: them do not fit in 32 or 64 bits.
FAR_SIDES = [2**31, 2**60, 2**62]
FAR_ENDS = [2**63 - 1, 2**63 - 15, 2**63 - 31, 2**32, -1, -(2**32), -(2**63)]


class Run(NamedTuple):
    """A problem and how it is run."""

    problem: Problem
    dtype: str
    isa: str  # the kernel table
    num_threads: int
    layout: str  # of every array, in memory
    wrt: list[str]  # inputs whose gradients are asked for


class Sizes(NamedTuple):
    batch: tuple[int, ...]
    heads: int
    lq: int
    lk: int
    d: int
    dv: int
    dp: int  # columns of rel_key


@st.composite
def batch_axes(draw, batch):
    """A shape that broadcasts to the batch: its last axes, some with length 1."""
    last_axes = batch[draw(st.integers(0, len(batch))) :]
    return shortened(draw, last_axes)


def shortened(draw, axes):
    """Return the axes with length 1 in place of some lengths."""
    return tuple(1 if draw(st.booleans()) else size for size in axes)


@st.composite
def shared_axes(draw, sizes):
    """The leading axes of a parameter: none, heads, or batch axes and heads."""
    axes = draw(st.sampled_from([(), (sizes.heads,), None]))
    if axes is not None:
        return axes
    return (*draw(batch_axes(sizes.batch)), sizes.heads)


# ---- arguments of attention ----------------------------------------------------------
#
# A strategy or function gives `inputs`, arguments that have a gradient, and `keywords`,
# the others.


@st.composite
def tables(draw, sizes, rng):
    """Any set of tables, and the rule that gives a pair its row."""
    names = [name for name in TABLES if draw(st.booleans())]
    if not names:
        return {}, {"beyond": draw(BEYOND)}
    rule = draw(st.sampled_from(["centred", "origin", "buckets", "labels"]))
    rows = draw_row_count(draw, rule)
    keywords: dict[str, Any] = {}
    if rule != "labels":
        keywords["beyond"] = draw(BEYOND)
    if rule in ("origin", "buckets"):
        keywords["min_relative_position"] = draw(POSITIONS)
    if rule == "buckets":
        keywords["buckets"] = rng.integers(0, rows, draw(st.integers(1, 20)))
    if rule == "labels":
        keywords["labels"] = draw_labels(draw, sizes, rng, rows)
    inputs = {}
    for name in names:
        table_rows = rows
        # A centred bias may have another length than the other tables.
        if OPERANDS[name].axes == 2 and rule == "centred" and draw(st.booleans()):
            table_rows = rows + 2
        axes = draw(shared_axes(sizes))
        _, *shape = shape_of(name, lengths_of(sizes), table_rows)
        inputs[name] = normal(rng, *axes, *shape)
    return inputs, keywords


def draw_row_count(draw, rule):
    """Return the number of rows of the tables; in a centred table it is odd."""
    if rule == "centred":
        return 2 * draw(st.integers(0, 6)) + 1
    return draw(ROWS)


def draw_labels(draw, sizes, rng, rows):
    """Return an array of labels, or two; -1 names no row."""
    shape = (draw(st.sampled_from([1, sizes.lq])), sizes.lk)
    shape = draw(batch_axes(sizes.batch)) + shape
    dtype = draw(st.sampled_from(["int8", "int16", "int32", "int64"]))
    labels = rng.integers(-1, rows, shape).astype(dtype)
    if not draw(st.booleans()):
        return labels
    second = rng.integers(-1, rows, (sizes.lq, sizes.lk)).astype("int16")
    return labels, second


@st.composite
def hiding(draw, sizes, rng):
    """Options that hide pairs: a mask, window, causal rule, lengths or ranges."""
    inputs, keywords = {}, {"is_causal": draw(st.booleans())}
    if draw(st.booleans()):
        sides = st.one_of(st.none(), st.integers(0, 30), st.sampled_from(FAR_SIDES))
        keywords["window"] = (draw(sides), draw(sides))
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(), sizes.batch]))
        keywords["key_lengths"] = rng.integers(0, sizes.lk + 1, shape)
    if draw(st.booleans()):
        keywords["key_ranges"] = draw_key_ranges(draw, sizes, rng)
    if draw(st.booleans()):
        keywords |= draw_key_blocks(draw, sizes, rng)
    kind = draw(st.sampled_from(["none", "bool", "float"]))
    shape = shortened(draw, (sizes.heads, sizes.lq, sizes.lk))
    shape = draw(batch_axes(sizes.batch)) + shape
    visible = rng.random(shape) < draw(st.sampled_from([0.3, 0.8, 1.0]))
    if kind == "bool":
        keywords["attn_mask"] = visible
    if kind == "float":  # alone of the masks, it has a gradient
        inputs["attn_mask"] = np.where(visible, normal(rng, *shape), -np.inf)
    return inputs, keywords


def draw_key_ranges(draw, sizes, rng):
    """Return a range for each query, whose ends are near the keys or in FAR_ENDS."""
    batch = draw(batch_axes(sizes.batch))
    queries = draw(st.sampled_from([1, sizes.lq]))
    shape = (*batch, queries, 2)
    near_ends = rng.integers(-3, sizes.lk + 4, shape)
    is_far = rng.random(shape) < draw(st.sampled_from([0.0, 0.3]))
    return np.where(is_far, rng.choice(FAR_ENDS, shape), near_ends)


def draw_key_blocks(draw, sizes, rng):
    """Return blocks of any size, of each head or of all, and their size."""
    size = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    counts = -(-sizes.lq // size[0]), -(-sizes.lk // size[1])
    heads = draw(st.sampled_from([1, sizes.heads]))
    shape = (*draw(batch_axes(sizes.batch)), heads, *counts)
    return {"key_blocks": rng.random(shape) < 0.6, "block_size": size}


@st.composite
def offsets(draw, sizes, rng):
    """A query_offset, or one for each batch item."""
    if draw(st.booleans()):
        return draw(POSITIONS)
    return rng.integers(-30, 31, draw(batch_axes(sizes.batch)))


def draw_position_inputs(draw, sizes, rng, inputs, has_position_query):
    """Return the vectors u and v, and the position query, of the inputs so far."""
    drawn = {}
    if draw(st.booleans()):
        drawn["pos_bias_u"] = normal(rng, *draw(shared_axes(sizes)), sizes.d)
    if "rel_key" not in inputs:
        return drawn
    if draw(st.booleans()):
        drawn["pos_bias_v"] = normal(rng, *draw(shared_axes(sizes)), sizes.dp)
    if has_position_query:
        # `scale` does not apply to (e + v).A: scaled here, the logits are of order 1.
        scale = max(sizes.dp, 1) ** -0.5
        axes = (*draw(batch_axes(sizes.batch)), sizes.heads, sizes.lq)
        drawn["position_query"] = normal(rng, *axes, sizes.dp, scale=scale)
        if "pos_bias_v" in drawn:
            drawn["pos_bias_v"] *= scale
    return drawn


def draw_softmax_arguments(draw, sizes, rng, is_causal):
    """Return inputs and keywords of decay, sinks, dropout, softcap and scale."""
    inputs, keywords = {}, {}
    if is_causal and draw(st.booleans()):
        axes = (*draw(batch_axes(sizes.batch)), sizes.heads, sizes.lk)
        inputs["log_decay"] = normal(rng, *axes, scale=0.5)
    if draw(st.booleans()):
        axes = (sizes.heads,)
        if draw(st.booleans()):  # of each query
            queries = draw(st.sampled_from([1, sizes.lq]))
            axes = (*draw(batch_axes(sizes.batch)), sizes.heads, queries)
        sinks = normal(rng, *axes)
        inputs["sinks"] = np.where(rng.random(sinks.shape) < 0.2, -np.inf, sinks)
    if draw(st.booleans()):
        keywords |= {"dropout_p": 0.25, "rng": draw(st.integers(0, 2**32))}
    if draw(st.booleans()):
        keywords["softcap"] = draw(st.sampled_from([0.3, 2.0, 50.0]))
    if draw(st.booleans()) or sizes.d == 0:  # the default is 1 / sqrt(d)
        keywords["scale"] = draw(st.sampled_from([0.0, -0.1, 0.2]))
    return inputs, keywords


#: Floating operands that the functions above draw.
DRAWN = {"query", "key", "value", "attn_mask", *TABLES, "pos_bias_u", "pos_bias_v"}
DRAWN |= {"position_query", "log_decay", "sinks"}


def draw_others(draw, sizes, rng):
    """Return some of the operands of any finite numbers, by their letters."""
    some = [name for name in FLOATING if name not in DRAWN and draw(st.booleans())]
    batch = draw(batch_axes(sizes.batch)) if some else ()
    return {
        name: normal(rng, *shape_of(name, lengths_of(sizes), 0, batch)) for name in some
    }


def lengths_of(sizes):
    """Return the length of each letter of an operand."""
    lengths = {"H": sizes.heads, "q": sizes.lq, "k": sizes.lk, "t": sizes.lk}
    return lengths | {"D": sizes.d, "V": sizes.dv, "P": sizes.dp}


# ---- calls ---------------------------------------------------------------------------


@st.composite
def runs(draw):
    """Runs of problems with any arguments."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch = draw(st.sampled_from([(), (2,), (1,), (3,), (2, 1, 2)]))
    queries_per_key_head, key_heads = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    lq, lk, d, dv = draw(LENGTHS), draw(LENGTHS), draw(COLUMNS), draw(COLUMNS)
    has_position_query = draw(st.booleans())
    # rel_key has the columns of the query that it is multiplied by.
    dp = draw(COLUMNS) if has_position_query else d
    sizes = Sizes(batch, queries_per_key_head * key_heads, lq, lk, d, dv, dp)
    query_batch = draw(batch_axes(batch))
    key_batch = draw(batch_axes(batch))
    value_batch = draw(batch_axes(batch))
    inputs = {
        "query": normal(rng, *query_batch, sizes.heads, lq, d),
        "key": normal(rng, *key_batch, key_heads, lk, d),
        "value": normal(rng, *value_batch, key_heads, lk, dv),
    }
    keywords = {
        "enable_gqa": queries_per_key_head > 1,
        "query_offset": draw(offsets(sizes, rng)),
    }
    table_inputs, table_keywords = draw(tables(sizes, rng))
    hiding_inputs, hiding_keywords = draw(hiding(sizes, rng))
    inputs |= table_inputs | hiding_inputs
    keywords |= table_keywords | hiding_keywords
    inputs |= draw_position_inputs(draw, sizes, rng, inputs, has_position_query)
    softmax_inputs, softmax_keywords = draw_softmax_arguments(
        draw, sizes, rng, keywords["is_causal"]
    )
    inputs |= softmax_inputs
    keywords |= softmax_keywords
    inputs |= draw_others(draw, sizes, rng)
    rows = (*joined_batch(inputs, keywords), sizes.heads, lq)
    grad_out, grad_lse = normal(rng, *rows, dv), normal(rng, *rows)
    return Run(
        problem=Problem(inputs, keywords, grad_out, grad_lse),
        dtype=draw(st.sampled_from(DTYPES)),
        isa=draw(st.sampled_from(list(_core.by_isa))),
        num_threads=draw(st.integers(1, 3)),
        layout=draw(st.sampled_from(["contiguous", *LAYOUTS])),
        wrt=draw_wrt(draw, inputs),
    )


def draw_wrt(draw, inputs):
    """Return three in four of the inputs, at least one."""
    names = [name for name in inputs if draw(st.integers(0, 3)) != 0]
    return names or ["query"]


def joined_batch(inputs, keywords):
    """Return the batch axes of the call: those of its operands broadcast together."""
    arguments = inputs | keywords
    if isinstance(arguments.get("labels"), tuple):  # the second has no batch axes
        arguments["labels"] = arguments["labels"][0]
    shapes = []
    for name, array in arguments.items():
        if not isinstance(array, np.ndarray) or name not in OPERANDS:
            continue
        if OPERANDS[name].fit == "alone":  # it has no batch axes
            continue
        # What the batch shares may have no heads either, and so fewer axes than these.
        axes = max(array.ndim - OPERANDS[name].axes, 0)
        shapes.append(array.shape[:axes])
    return np.broadcast_shapes(*shapes)


def check_examples(strategy, check, count):
    """Call check with so many examples of a strategy, the same ones every time."""
    repeatable = hypothesis.settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    check_all = repeatable(hypothesis.given(strategy)(check))
    check_all()
