"""Tensors of 16 bits on one core: time, and how many numbers are rounded correctly.

Time of relpos in bfloat16 and float16 over its time in float32, and over that of
PyTorch's attention of the same dtype; the result is, to the last bit, that of float32,
rounded. And the share of a result's numbers that are those of float64, rounded.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import relpos
from benchmarks import timing
from benchmarks.problems import SCHEMES, Problem
from benchmarks.timing import Plan, Row, Rows

DTYPES = ["bfloat16", "float16"]
#: Time over float32's of so many queries, by batch and keys.
DECODE = {
    (1, 1024): {1: 0.85, 2: 0.92, 4: 1.05, 8: 1.05},
    (1, 8192): {1: 0.55, 2: 0.65, 4: 0.72, 8: 0.92},
    (8, 8192): {1: 0.55, 2: 0.65, 4: 0.72, 8: 0.92},
    (1, 65536): {1: 0.55, 2: 0.65, 4: 0.72, 8: 0.92},
}
#: Time over torch's of the same dtype, from 8192 keys on.
OVER_TORCH = {1: 0.4, 2: 0.4, 4: 0.65, 8: 0.95}
LENGTHS = 512, 1024
FORWARD, CACHE, CACHED = 1.02, 0.6, 8192
#: Numbers that are those of float64, rounded.
ROUNDED = {"bfloat16": 0.999, "float16": 0.995}
#: Distance of torch's result, as it is timed, and the other arguments of a network.
FAR, KEPT = 0.1, ("w1", "b1", "w2", "b2", "c", "threshold")


def tensors_of(problem: Problem, dtype: str) -> dict[str, Any]:
    """Return the arrays as tensors, those of 16 bits but for a network's."""
    import torch

    tensors = {name: torch.from_numpy(x) for name, x in problem.arrays.items()}
    short = getattr(torch, dtype)
    return {n: x if n in KEPT else x.to(short) for n, x in tensors.items()}


def call_of(problem: Problem, tensors: dict[str, Any]) -> Any:
    """Return the call on tensors."""
    import relpos.torch as on_tensors

    function = getattr(on_tensors, problem.function)
    return partial(function, **tensors, **problem.options, num_threads=1)


def compared(problem: Problem, dtype: str, label: str) -> tuple[Any, Any, Any, float]:
    """Return the calls of relpos in `dtype` and in float32, torch's, and the error."""
    import torch

    torch.set_num_threads(1)
    short = tensors_of(problem, dtype)
    wide = {name: x.float() for name, x in short.items()}
    call, single = call_of(problem, short), call_of(problem, wide)
    result, whole = call(), single()
    if not torch.equal(result, whole.to(result.dtype)):
        raise SystemExit(f"{label}: not the result of float32, rounded")
    attend = torch.nn.functional.scaled_dot_product_attention
    peer = partial(attend, *(short[name] for name in ("query", "key", "value")))
    exact = replace(problem, arrays={n: x.numpy() for n, x in wide.items()})
    return call, single, peer, exact.check(whole.numpy(), label)


def time_row(
    label: str,
    sizes: tuple[int, int, int | None],
    dtype: str,
    of_torch: bool,
    target: float | None,
    isa: str,
    repeats: int,
) -> Row:
    """Measure the time of a call over that of float32, or of torch."""
    batch, length, queries = sizes
    problem = SCHEMES["plain"].build(
        length, "float32", False, batch=batch, queries=queries
    )
    with timing.use_isa(isa):
        call, single, peer, error = compared(problem, dtype, label)
        if of_torch and float((peer() - call()).abs().max()) > FAR:
            raise SystemExit(f"{label}: torch's result is another one")
        yardstick = timing.read_yardstick(problem.read)
        beside = peer if of_torch else single
        timed = timing.interleave([call, beside], yardstick, repeats)
    unit = f"x torch {dtype}" if of_torch else "x float32"
    return Row.of_ratios(label, unit, timed, error, target=target, at_most=True)


def cache_row(label: str, batch: int, dtype: str, isa: str, repeats: int) -> Row:
    """Measure a step of decoding with a cache over the same in float32."""
    import torch

    problem = SCHEMES["plain"].build(CACHED, "float32", False, batch=batch, queries=1)
    with timing.use_isa(isa):
        _, _, _, error = compared(problem, dtype, label)
        short = tensors_of(problem, dtype)
        steps = [
            stepping({name: x.to(kind) for name, x in short.items()})
            for kind in (short["key"].dtype, torch.float32)
        ]
        yardstick = timing.read_yardstick([problem.arrays["key"]])
        timed = timing.interleave(steps, yardstick, repeats)
    return Row.of_ratios(label, "x float32", timed, error, target=CACHE, at_most=True)


def stepping(tensors: dict[str, Any]) -> Any:
    """Return a step: a token more in the cache, which the last query meets."""
    import relpos.torch as on_tensors

    cache = relpos.KVCache(CACHED + 64)
    cache.append(tensors["key"], tensors["value"])
    query, one = tensors["query"], {n: tensors[n][..., :1, :] for n in ("key", "value")}

    def step() -> Any:
        cache.append(**one)
        options = cache.arguments(query)
        out = on_tensors.attention(query, **options, is_causal=True, num_threads=1)
        cache.crop(CACHED)
        return out

    return step


def rounded_row(
    label: str, name: str, dtype: str, of_torch: bool, target: float | None, isa: str
) -> Row:
    """Count the numbers of each head that are those of float64, rounded."""
    import torch

    problem = SCHEMES[name].build(LENGTHS[-1], "float32", False)
    short = tensors_of(problem, dtype)
    exact = {n: x.double().numpy() for n, x in short.items()}
    wide = replace(problem, arrays=exact)
    want = wide.call(1)()
    error = wide.check(want, label)
    with timing.use_isa(isa):
        call, _, peer, _ = compared(problem, dtype, label)
        got = peer() if of_torch else call()
    right = (got == torch.from_numpy(want).to(got.dtype)).double()
    figures = right.mean(dim=(0, 2, 3)).tolist()
    unit = f"rounded by {'torch' if of_torch else 'relpos'}"
    return Row(label, unit, figures, len(figures), target, error=error)


def make_plan(isas: list[str], full: bool) -> Plan:
    """Return every row as (label, function that measures it)."""
    isa, rows = isas[0], Rows(full)
    dtypes, decode, batches = DTYPES, [*DECODE.items()], [1, 8]
    if not full:
        dtypes, decode, batches = dtypes[:1], decode[:2], batches[:1]
    for dtype in dtypes:
        for (batch, length), limits in decode:
            for queries, most in limits.items():
                sizes = batch, length, queries
                far = OVER_TORCH[queries] if length >= CACHED else None
                for of_torch, limit in ((False, most), (True, far)):
                    label = f"{dtype} B={batch} Lq={queries} Lk={length}"
                    label += f" over {'torch' if of_torch else 'float32'}"
                    rows.add(label, time_row, sizes, dtype, of_torch, limit, isa)
        for length in LENGTHS:
            for of_torch, limit in ((False, FORWARD), (True, None)):
                label = f"{dtype} L={length} over {'torch' if of_torch else 'float32'}"
                sizes = 1, length, None
                rows.add(label, time_row, sizes, dtype, of_torch, limit, isa)
        for batch in batches:
            label = f"{dtype} B={batch} KVCache of {CACHED} tokens"
            rows.add(label, cache_row, batch, dtype, isa)
        for name in SCHEMES:
            # torch's attention has no positions
            entrants = [False, True] if name == "plain" else [False]
            for of_torch in entrants:
                label = f"{dtype} {name} by {'torch' if of_torch else 'relpos'}"
                goal = None if of_torch else ROUNDED[dtype]
                row = partial(rounded_row, label, name, dtype, of_torch, goal, isa)
                rows.append((label, row))
    return rows
