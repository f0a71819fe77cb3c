"""Calls of every scheme that `relpos.plan` knows, and the memory that one takes."""

from __future__ import annotations

import ctypes
import json
import sys
from functools import partial
from typing import NamedTuple

import numpy as np

import relpos
from relpos._attention.plan import shapes_of
from relpos._catalogue.measure import with_memory
from relpos._schemes import SCHEMES, scheme_called
from relpos._settings import use_isa


class Case(NamedTuple):
    """Arguments of `relpos.plan`."""

    batch: int
    heads: int
    query_length: int
    key_length: int
    head_dim: int
    is_causal: bool
    dtype: str
    max_relative_position: int
    num_threads: int

    def plan(self, scheme):
        """Return the expected plan."""
        return relpos.plan(**self._asdict(), scheme=scheme)


def same_call(scheme):
    """Return the properties that are equal for two schemes of the same call."""
    rows = scheme.rows(5, 7, 1, True)
    return scheme.call, scheme.operands, scheme.settings, rows, scheme.listed


#: One name for each kind of call.
KINDS = sorted({same_call(s): s.name for s in reversed(SCHEMES)}.values())


def fire(arguments, rng):
    """Units that switch between x = 0 and 1, each somewhere else."""
    b1 = -arguments["w1"] * rng.random(len(arguments["w1"]))
    positive = {name: abs(arguments[name]) for name in ("c", "threshold")}
    return arguments | positive | {"b1": b1.astype(arguments["w1"].dtype)}


def graph(arguments, rows, case):
    """Each query has an edge for each row, to keys that follow each other."""
    edges = np.arange(case.query_length * rows)
    keys = edges // rows + edges % rows
    starts = np.arange(case.query_length + 1) * rows
    return arguments | {
        "indptr": starts,
        "indices": keys % case.key_length,
        "labels": edges % rows,
    }


def call_of(name, case):
    """A scheme's function with all that it takes but flags of what to return."""
    rng, scheme = np.random.default_rng(0), scheme_called(name)
    b, h, lq, lk, d, causal, dtype, k, threads = case
    causal = causal or scheme.hides_future
    single = "float32" if dtype == "float16" else dtype
    numbers = partial(rng.standard_normal, dtype=single)
    shapes = shapes_of(scheme, h, lq, lk, d, k, causal)
    if "position_query" in shapes:  # as query: each sequence has its own
        shapes["position_query"] = (b, *shapes["position_query"])
    operands = {name: numbers(shape) for name, shape in shapes.items()}
    operands = {name: np.asarray(x, dtype) for name, x in operands.items()}
    if "indptr" in operands:
        operands = graph(operands, scheme.rows(lq, lk, k, causal), case)
    else:
        operands |= {"is_causal": causal, "query_offset": lk - lq}
    if "w1" in operands:
        operands = fire(operands, rng)
    if scheme.listed:
        tables = operands.pop("rel_key"), operands.pop("rel_query")
        operands |= relpos.recipes.deberta(*tables)
    tokens = (numbers((b, h, length, d)).astype(dtype) for length in (lq, lk, lk))
    run = partial(getattr(relpos, scheme.call), **dict(scheme.settings))
    return partial(run, *tokens, **operands, num_threads=threads)


def measure(name, case):
    """Bytes of a forward and of a backward beyond what they return."""
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages: they round up by 2 MB each
    small = call_of(name, case._replace(query_length=20, key_length=64))
    made = small(return_context=True)  # loads what is loaded once, starts the threads
    made.context.backward(np.ones_like(made.out), num_threads=case.num_threads)
    run = call_of(name, case)
    made = None
    out, forward = with_memory(run)
    size, made = out.nbytes, run(return_context=True)
    grad_out, threads = np.ones_like(made.out), case.num_threads
    gradients, backward = with_memory(
        lambda: made.context.backward(grad_out, num_threads=threads)
    )
    if forward is None or backward is None:
        return None
    sizes = sum(x.nbytes for x in gradients if x is not None)
    return forward - size, backward - sizes


if __name__ == "__main__":
    isa, name, *case = json.loads(sys.argv[1])
    with use_isa(isa):
        print(json.dumps(measure(name, Case(*case))))
