"""Decoding on one core: one query, or a few, against a cache of keys and values.

Time of a short NumPy loop over items and heads over the time of relpos; time of relpos
over that of two plain products in C, and of reading alone, of the same keys and values;
a few queries over one, and over a plain loop in C that computes the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import relpos
from benchmarks import timing
from benchmarks.plain_loops import attend_few, gemv_pairs, read_bits
from benchmarks.problems import decode
from benchmarks.timing import Array, Plan, Row, Rows

#: Time of the NumPy loop over that of relpos, by batch and keys.
NUMPY = {(1, 1024): 1.0, (8, 8192): 1.2, (1, 65536): 1.15}
#: Time of relpos over that of two plain products with the same bytes, by keys.
PLAIN_LOOPS = {256: None, 1024: 1.3, 4096: 1.3, 8192: 1.3, 65536: 1.15}
#: Time of so many queries over that of one.
QUERIES = {2: 1.3, 4: 1.3, 8: 1.3}
QUERIES_LENGTH = 8192
#: Few queries over the plain loop of as many, and the length of their keys.
FEW_QUERIES, FEW_LENGTH = range(4, 11), 1024


def loop_over_heads(query: Array, key: Array, value: Array) -> Array:
    """Attend by two products with a vector for each item and head.

    The largest score is not subtracted, which these numbers do not need.
    """
    out = np.empty_like(query)
    scaled = query / np.sqrt(np.float32(query.shape[-1]))
    for item in np.ndindex(query.shape[:-2]):
        weights = np.exp(key[item] @ scaled[item][0])
        out[item] = weights @ value[item] / weights.sum()
    return out


def over_numpy_row(
    label: str, batch: int, length: int, target: float, isa: str, repeats: int
) -> Row:
    """Measure the time of the loop over the time of relpos."""
    problem = decode(length, batch=batch)
    loop = partial(loop_over_heads, **problem.arrays)
    call: Any = partial(getattr(relpos, problem.function), **problem.arrays)
    with timing.use_isa(isa), relpos.threads(1):
        error = problem.check(call(), label)
        timing.check_error(loop(), call(), f"{label}, the loop")
        yardstick = timing.read_yardstick(problem.read)
        timed = timing.interleave([loop, call], yardstick, repeats)
    return Row.of_ratios(label, "NumPy / relpos", timed, error, target=target)


def plain_loop_row(
    label: str, length: int, of_read: bool, target: float | None, isa: str, repeats: int
) -> Row:
    """Measure the time of relpos over that of a plain loop over the same bytes."""
    problem = decode(length)
    loop = read_bits(*problem.read) if of_read else gemv_pairs(**problem.arrays)
    with timing.use_isa(isa):
        call, error = problem.prepared("forward", 1, label)
        yardstick = timing.read_yardstick(problem.read)
        timed = timing.interleave([call, loop], yardstick, repeats)
    unit = "x reading" if of_read else "x two plain products"
    return Row.of_ratios(label, unit, timed, error, target=target, at_most=True)


def queries_row(
    label: str, queries: int, with_table: bool, target: float, isa: str, repeats: int
) -> Row:
    """Measure the time of a few queries over that of one."""
    several, one = (
        decode(QUERIES_LENGTH, queries=n, with_table=with_table) for n in (queries, 1)
    )
    with timing.use_isa(isa):
        call, error = several.prepared("forward", 1, label)
        beside, _ = one.prepared("forward", 1, label)
        yardstick = timing.fma_yardstick(isa, "float32")
        timed = timing.interleave([call, beside], yardstick, repeats)
    return Row.of_ratios(
        label, "x one query", timed, error, target=target, at_most=True
    )


def few_row(label: str, queries: int, isa: str, repeats: int) -> Row:
    """Measure the time of relpos over that of a plain loop with the same result."""
    problem = decode(FEW_LENGTH, queries=queries)
    problem.options["is_causal"] = False  # as the loop, which hides nothing
    loop = attend_few(*problem.arrays.values())
    with timing.use_isa(isa):
        call, error = problem.prepared("forward", 1, label)
        yardstick = timing.fma_yardstick(isa, "float32")
        timed = timing.interleave([call, loop], yardstick, repeats)
    return Row.of_ratios(label, "x a plain loop", timed, error, at_most=True)


def make_plan(isas: list[str], full: bool) -> Plan:
    isa, rows = isas[0], Rows(full)
    over_numpy, plain_loops = list(NUMPY.items()), list(PLAIN_LOOPS.items())
    few_queries = FEW_QUERIES
    if not full:
        over_numpy, plain_loops = over_numpy[:1], plain_loops[:2]
        few_queries = few_queries[1:2]
    for (batch, length), target in over_numpy:
        label = f"B={batch} Lk={length}"
        rows.add(label, over_numpy_row, batch, length, target, isa)
    for length, most in plain_loops:
        for loop, limit in {"products": most, "reading": None}.items():
            label = f"plain Lk={length} over {loop}"
            rows.add(label, plain_loop_row, length, loop == "reading", limit, isa)
    for name, with_table in {"plain": False, "music": True}.items():
        for queries, target in QUERIES.items():
            label = f"{name} Lq={queries} Lk={QUERIES_LENGTH}"
            rows.add(label, queries_row, queries, with_table, target, isa)
    for queries in few_queries:
        label = f"plain Lq={queries} Lk={FEW_LENGTH} over a plain loop"
        rows.add(label, few_row, queries, isa)
    return rows
