"""Attention problems whose slices (batch item, key head) take several waves.

Kernels pack and use as many slices at a time as fit into half a megabyte per thread,
as they lie in memory; or, with tables too large to be kept side by side, head by head,
the batch within: a wave holds whole heads, or some items of one head.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from gradient_problems import Problem
from problems import normal, tokens


class Sizes(NamedTuple):
    batch: int
    key_heads: int
    group: int  # query heads to a key head
    lq: int
    lk: int
    d: int
    dv: int


#: Where the tables differ; `offsets`: per head, and the query offset by item, so that a
#: band begins elsewhere for each.
LEADS = ("none", "shared", "head", "item", "item and head", "offsets")
PATHS = ("band", "rows", "labels")
FEW = 8  # queries, up to which each item has its own number of keys


def table_shape(lead, batch, heads):
    shapes = {"head": (heads,), "item": (batch, 1), "item and head": (batch, heads)}
    return (heads,) if lead == "offsets" else shapes.get(lead, ())


@cache
def make(sizes, lead="none", path="band", *, every_table=False):
    """A problem in float64, with rel_key or, if asked for, with every table."""
    batch, key_heads, group, lq, lk, d, dv = sizes
    heads = key_heads * group
    rng = np.random.default_rng([*sizes, LEADS.index(lead), PATHS.index(path)])
    inputs = tokens(rng, (batch,), heads, lq, lk, d, dv, key_heads=key_heads)
    settings = {"enable_gqa": True} if group > 1 else {}
    offsets = rng.integers(-9, lk, batch) if lead == "offsets" else 0
    if lead != "none":
        leading = table_shape(lead, batch, heads)
        rows = lq + lk - 1 if path == "band" else 5
        inputs["rel_key"] = normal(rng, *leading, rows, d)
        if every_table:
            inputs["rel_query"] = normal(rng, *leading, rows, d)
            inputs["rel_value"] = normal(rng, *leading, rows, dv)
            inputs["rel_bias"] = normal(rng, *leading, rows)
        first = -(lq - 1) if path == "band" else -2
        settings |= {"query_offset": offsets, "min_relative_position": first}
    if path == "labels":
        del settings["query_offset"], settings["min_relative_position"]
        settings["labels"] = rng.integers(-1, 5, (batch, lq, lk)).astype(np.int16)
    if lq <= FEW:
        settings["key_lengths"] = rng.integers(lk // 2, lk, batch)
    return Problem.drawn(rng, inputs, settings)


#: Axes of an array that has one for the batch.
AXES = {"rel_bias": 3, "query_offset": 1, "labels": 3, "key_lengths": 1}


def items_of(problem, first, end):
    """The same problem for some of the batch items."""

    def pick(arrays):
        return {
            name: x[first:end] if np.ndim(x) == AXES.get(name, 4) else x
            for name, x in arrays.items()
        }

    return Problem(
        pick(problem.inputs),
        pick(problem.settings),
        problem.grad_out[first:end],
        problem.grad_lse[first:end],
    )
