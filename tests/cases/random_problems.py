"""Random small attention problems for hypothesis: every argument, freely combined."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gradient_problems import TABLES, Problem
from hypothesis import HealthCheck, given, settings, strategies as st
from layouts import LAYOUTS
from problems import DTYPES, normal

from relpos import _core

LENGTHS = st.one_of(st.integers(1, 9), st.integers(0, 40), st.integers(60, 75))
COLUMNS = st.one_of(st.integers(1, 8), st.integers(9, 40), st.integers(0, 1))
POSITIONS = st.integers(-30, 30)
#: Sides of a window, and ends of a range, that are no position.
FAR_SIDES = [2**31, 2**60, 2**62]
FAR_ENDS = [2**63 - 1, 2**63 - 15, 2**63 - 31, 2**32, -1, -(2**32), -(2**63)]


class Run(NamedTuple):
    """A problem and how it is run."""

    problem: Problem
    dtype: str
    isa: str
    num_threads: int
    layout: str  # of every array, in memory
    wrt: list[str]


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
    """A shape that broadcasts to the batch."""
    kept = batch[draw(st.integers(0, len(batch))) :]
    return tuple(1 if draw(st.booleans()) else size for size in kept)


@st.composite
def shared_axes(draw, sizes):
    """Axes of what heads and batch items may share."""
    axes = draw(st.sampled_from([(), (sizes.heads,), None]))
    return (*draw(batch_axes(sizes.batch)), sizes.heads) if axes is None else axes


@st.composite
def tables(draw, sizes, rng):
    """Any set of tables, and the rule that gives a pair its row."""
    names = [name for name in TABLES if draw(st.booleans())]
    if not names:
        return {}, {"beyond": draw(st.sampled_from(["clip", "zero"]))}
    rule = draw(st.sampled_from(["centred", "origin", "buckets", "labels"]))
    rows = draw(st.integers(0, 6)) * 2 + 1 if rule == "centred" else draw(ROWS)
    settings: dict[str, Any] = {}
    if rule != "labels":
        settings["beyond"] = draw(st.sampled_from(["clip", "zero"]))
    if rule in ("origin", "buckets"):
        settings["min_relative_position"] = draw(POSITIONS)
    if rule == "buckets":
        settings["buckets"] = rng.integers(0, rows, draw(st.integers(1, 20)))
    if rule == "labels":
        shape = (draw(st.sampled_from([1, sizes.lq])), sizes.lk)
        whole = draw(batch_axes(sizes.batch)) + shape
        kind = draw(st.sampled_from(["int8", "int16", "int32", "int64"]))
        settings["labels"] = rng.integers(-1, rows, whole).astype(kind)
        if draw(st.booleans()):
            other = rng.integers(-1, rows, (sizes.lq, sizes.lk)).astype("int16")
            settings["labels"] = settings["labels"], other
    inputs = {}
    for name in names:
        own = rows
        if name == "rel_bias" and rule == "centred" and draw(st.booleans()):
            own = rows + 2
        columns = {"rel_key": (sizes.dp,), "rel_value": (sizes.dv,), "rel_bias": ()}
        own_columns = columns.get(name, (sizes.d,))
        inputs[name] = normal(rng, *draw(shared_axes(sizes)), own, *own_columns)
    return inputs, settings


ROWS = st.integers(1, 12)


@st.composite
def hiding(draw, sizes, rng):
    """A mask, window, causal rule and lengths, or none of them."""
    inputs, settings = {}, {"is_causal": draw(st.booleans())}
    if draw(st.booleans()):
        sides = st.one_of(st.none(), st.integers(0, 30), st.sampled_from(FAR_SIDES))
        settings["window"] = (draw(sides), draw(sides))
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(), sizes.batch]))
        settings["key_lengths"] = rng.integers(0, sizes.lk + 1, shape)
    if draw(st.booleans()):
        shape = (
            *draw(batch_axes(sizes.batch)),
            draw(st.sampled_from([1, sizes.lq])),
            2,
        )
        ranges = rng.integers(-3, sizes.lk + 4, shape)
        far = rng.random(shape) < draw(st.sampled_from([0.0, 0.3]))
        settings["key_ranges"] = np.where(far, rng.choice(FAR_ENDS, shape), ranges)
    kind = draw(st.sampled_from(["none", "bool", "float"]))
    axes = (sizes.heads, sizes.lq, sizes.lk)
    shape = tuple(1 if draw(st.booleans()) else size for size in axes)
    shape = draw(batch_axes(sizes.batch)) + shape
    seen = rng.random(shape) < draw(st.sampled_from([0.3, 0.8, 1.0]))
    if kind == "bool":
        settings["attn_mask"] = seen
    if kind == "float":
        inputs["attn_mask"] = np.where(seen, normal(rng, *shape), -np.inf)
    return inputs, settings


@st.composite
def offsets(draw, sizes, rng):
    if draw(st.booleans()):
        return draw(POSITIONS)
    return rng.integers(-30, 31, draw(batch_axes(sizes.batch)))


@st.composite
def runs(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch = draw(st.sampled_from([(), (2,), (1,), (3,), (2, 1, 2)]))
    group, key_heads = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    lengths = [draw(s) for s in [LENGTHS] * 2 + [COLUMNS] * 2]
    positioned = draw(st.booleans())
    columns = draw(COLUMNS) if positioned else lengths[2]
    sizes = Sizes(batch, group * key_heads, *lengths, columns)
    lead = [draw(batch_axes(batch)) for _ in range(3)]
    inputs = {
        "query": normal(rng, *lead[0], sizes.heads, sizes.lq, sizes.d),
        "key": normal(rng, *lead[1], key_heads, sizes.lk, sizes.d),
        "value": normal(rng, *lead[2], key_heads, sizes.lk, sizes.dv),
    }
    settings = {"enable_gqa": group > 1, "query_offset": draw(offsets(sizes, rng))}
    for more, others in (draw(tables(sizes, rng)), draw(hiding(sizes, rng))):
        inputs |= more
        settings |= others
    for name, needs in (("pos_bias_u", "query"), ("pos_bias_v", "rel_key")):
        if needs in inputs and draw(st.booleans()):
            own = sizes.d if needs == "query" else columns
            inputs[name] = normal(rng, *draw(shared_axes(sizes)), own)
    if positioned and "rel_key" in inputs:
        rows = (*draw(batch_axes(batch)), sizes.heads, sizes.lq, columns)
        inputs["position_query"] = normal(rng, *rows, scale=max(columns, 1) ** -0.5)
        if "pos_bias_v" in inputs:  # nothing scales their products: logits of order 1
            inputs["pos_bias_v"] *= max(columns, 1) ** -0.5
    if settings["is_causal"] and draw(st.booleans()):
        steps = normal(rng, *draw(batch_axes(batch)), sizes.heads, sizes.lk, scale=0.5)
        inputs["log_decay"] = steps
    if draw(st.booleans()):
        sinks = normal(rng, sizes.heads)
        inputs["sinks"] = np.where(rng.random(sinks.shape) < 0.2, -np.inf, sinks)
    if draw(st.booleans()):
        settings |= {"dropout_p": 0.25, "rng": draw(st.integers(0, 2**32))}
    if draw(st.booleans()):
        settings["softcap"] = draw(st.sampled_from([0.3, 2.0, 50.0]))
    if draw(st.booleans()) or sizes.d == 0:  # which gives no scale by default
        settings["scale"] = draw(st.sampled_from([0.0, -0.1, 0.2]))
    rows = (*joined_batch(inputs, settings), sizes.heads, sizes.lq)
    problem = Problem(
        inputs, settings, normal(rng, *rows, sizes.dv), normal(rng, *rows)
    )
    return Run(
        problem,
        draw(st.sampled_from(DTYPES)),
        draw(st.sampled_from(list(_core.by_isa))),
        draw(st.integers(1, 3)),
        draw(st.sampled_from(["contiguous", *LAYOUTS])),
        [name for name in inputs if draw(st.integers(0, 3))] or ["query"],
    )


def joined_batch(inputs, settings):
    """Batch axes of the call: those of its operands together."""
    tails = dict.fromkeys(("pos_bias_u", "pos_bias_v", "rel_bias", "labels"), 2)
    tails |= {"log_decay": 2, "key_ranges": 2, "query_offset": 0, "key_lengths": 0}
    arguments = inputs | settings
    if isinstance(arguments.get("labels"), tuple):  # the others have no batch axes
        arguments["labels"] = arguments["labels"][0]
    operands = {n: x for n, x in arguments.items() if isinstance(x, np.ndarray)}
    for name in ("sinks", "buckets"):
        operands.pop(name, None)
    shapes = [
        x.shape[: max(x.ndim - tails.get(name, 3), 0)] for name, x in operands.items()
    ]
    return np.broadcast_shapes(*shapes)


def check_examples(strategy, check, count):
    """Call check with so many examples of a strategy, the same ones every time."""
    settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )(given(strategy)(check))()
