"""Rows of attention.py whose time is that of reading."""

from functools import partial
from typing import Any

import harness
import numpy as np
from problems import decode

import relpos
from relpos._settings import use_isa


def loop_over_heads(
    query: np.ndarray, key: np.ndarray, value: np.ndarray
) -> np.ndarray:
    """What a short program does: two products with a vector for each item and head.

    It leaves out the subtraction of the largest score, which these need not.
    """
    out = np.empty_like(query)
    scaled = query / np.sqrt(np.float32(query.shape[-1]))
    for item in np.ndindex(query.shape[:-2]):
        weights = np.exp(key[item] @ scaled[item][0])
        out[item] = weights @ value[item] / weights.sum()
    return out


def over_numpy_row(
    label: str, batch: int, length: int, target: float, isa: str, repeats: int
) -> harness.Row:
    """Time of the loop over the time of relpos."""
    problem = decode(length, batch=batch)
    loop = partial(loop_over_heads, **problem.arrays)
    call: Any = partial(getattr(relpos, problem.function), **problem.arrays)
    with use_isa(isa), relpos.threads(1):
        error = problem.check(call(), label)
        harness.check_error(loop(), call(), f"{label}, the loop")
        read = [problem.arrays["key"], problem.arrays["value"]]
        timing = harness.interleave([loop, call], harness.read_yardstick(read), repeats)
    return harness.Row(
        label,
        "NumPy / relpos",
        timing.ratios(),
        timing.tried,
        target,
        seconds=timing.seconds(),
        error=error,
    )


def read_row(
    label: str, length: int, with_table: bool, isa: str, repeats: int
) -> harness.Row:
    """Share of the rate at which this core only reads the same bytes."""
    problem = decode(length, with_table=with_table)
    read = [x for name, x in problem.arrays.items() if name != "query"]
    with use_isa(isa):
        call, error = problem.prepared("forward", 1, label)
        timing = harness.interleave([call], harness.read_yardstick(read), repeats)
    return harness.Row(
        label,
        "of read rate",
        timing.shares(sum(array.nbytes for array in read)),
        timing.tried,
        seconds=timing.seconds(),
        error=error,
    )
