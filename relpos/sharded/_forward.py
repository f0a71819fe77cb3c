"""The forward of a call on dask arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._attention.call import Call
from relpos._attention.edges import Edges
from relpos._attention.results import AttentionOutput
from relpos._checks import as_flag
from relpos.sharded._blocks import solve
from relpos.sharded._context import ShardedContext
from relpos.sharded._graph import Key, Layer, Tasks, chunk_keys, fold, tasks_of
from relpos.sharded._plan import Plan, make_plan
from relpos.sharded._tasks import KEPT, deliver, join, pick


def attend(
    call: Call, fire: dict[str, Any] | None = None, edges: Edges | None = None
) -> Any:
    """Check a call, build its graph, hand back what was asked for."""
    flags = [
        as_flag(name, getattr(call, name))
        for name in ("return_lse", "return_weights", "return_context")
    ]
    plan = make_plan(call, fire, edges)
    blocks = _blocks(plan)
    kept = {name: _result(plan, blocks, name) for name in KEPT}
    out = _rounded(plan, kept["out"])
    if not any(flags):
        return out
    lse = kept["lse"] if flags[0] else None
    weights = _result(plan, blocks, "weights") if flags[1] else None
    context = ShardedContext(plan, kept) if flags[2] else None
    return AttentionOutput(out, lse, weights, context)


def _blocks(plan: Plan) -> Tasks:
    """One task a block, and the trees that join the blocks of keys."""
    name, grid = f"relpos-attention-{plan.token}", plan.grid
    layer: Layer = {}
    shared = plan.shared
    keys = range(len(grid.chunks["k"]))
    for index in grid.blocks(*grid.rows):
        parts: list[Key | None] = []
        for k in keys:
            block = {**index, "k": k}
            if not plan.sees(block):
                parts.append(None)
                continue
            chunks = chunk_keys(plan.arrays, plan.axes, block)
            part = (f"{name}-part", *block.values())
            layer[part] = (solve, shared.key, plan.place(block), chunks)
            parts.append(part)
        fold(layer, parts, (name, *index.values()), join)
    return tasks_of(name, layer, [shared, *plan.arrays])


def _result(plan: Plan, blocks: Tasks, what: str) -> Any:
    """One of the results as an array."""
    name, grid, sizes = f"relpos-{what}-{plan.token}", plan.grid, plan.problem.sizes
    last = {"out": sizes.Dv, "weights": sizes.Lk}
    columns = ((last[what],),) if what in last else ()
    layer: Layer = {}
    for index in grid.blocks(*grid.rows):
        block = tuple(index.values())
        key = (f"relpos-attention-{plan.token}", *block)
        layer[(name, *block, *(0 for _ in columns))] = (pick, key, what)
    chunks = (*(grid.chunks[axis] for axis in grid.rows), *columns)
    return blocks.array(name, layer, chunks, plan.problem.dtype)


def _rounded(plan: Plan, out: Any) -> Any:
    dtype = plan.problem.out_dtype
    if dtype == plan.problem.dtype:
        return out
    return out.map_blocks(deliver, dtype, dtype=dtype, meta=np.empty((), dtype))
