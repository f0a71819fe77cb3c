"""The bits of 500 problems: did moving code change a result?

    python tests/bits.py > before
    python tests/bits.py | diff before -

One line for each instruction set, dtype and kind of problem: the sha256 of all outputs
and gradients of its problems, which are the same in every run. Results are compared to
the last bit, so both runs must be made on one machine with one compiler. This tells
that something changed, never that it is right: the tests do that.
"""

from __future__ import annotations

import hashlib
import sys
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(path) for path in HERE.iterdir() if path.is_dir())]

import fire_problems  # noqa: E402
import gradient_problems  # noqa: E402
import graph_problems  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from problems import DTYPES  # noqa: E402
from random_problems import runs  # noqa: E402

from relpos import _core  # noqa: E402
from relpos._settings import kernels, use_isa  # noqa: E402

RANDOM = 180
# Lq, Lk, D, Dv: few queries, one tile, ragged tiles, many tiles and chunks of keys
SHAPES = [
    (3, 700, 20, 9),
    (1, 40, 8, 8),
    (37, 70, 16, 24),
    (130, 300, 64, 64),
    (300, 1100, 33, 16),
    (600, 600, 8, 40),
    (100, 20, 65, 7),
]
WANTED = {"return_lse": True, "return_weights": True, "return_context": True}


def scheme_problems():
    """Every scheme and variant, at shapes in turn: a function of the dtype each."""
    shapes = cycle(SHAPES)
    for scheme in gradient_problems.SCHEMES:
        for variant in gradient_problems.VARIANTS:
            for _ in range(2):
                shape = (*next(shapes), 2, (2,))
                problem = gradient_problems.make(scheme, variant, shape)
                yield lambda dtype, p=problem: results(
                    p.cast(dtype), {"num_threads": 2}
                )


def results(problem, keywords, wrt=None):
    out = problem.forward(**WANTED, **keywords)
    found = out.context.backward(
        problem.grad_out, grad_lse=problem.grad_lse, wrt=wrt or list(problem.inputs)
    )
    return [out.out, out.lse, out.weights, *found]


def random_problems():
    drawn = []

    @settings(
        max_examples=RANDOM,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(runs())
    def draw(run):
        drawn.append(run)

    draw()
    for run in drawn[:RANDOM]:
        yield lambda dtype, run=run: results(
            run.problem.cast(dtype), {"num_threads": run.num_threads}, run.wrt
        )


def fire_calls():
    def call(problem, dtype):
        out = problem.run(dtype, return_lse=True)
        return [out.out, out.lse, *problem.backward(dtype).values()]

    for case in fire_problems.CASES:
        yield partial(call, fire_problems.Problem(*case))


def graph_calls():
    def call(inputs, edges, dtype):
        cast = {name: x.astype(dtype) for name, x in inputs.items()}
        out = graph_problems.run(cast, edges, **graph_problems.BOTH)
        found, _ = graph_problems.with_gradients(out)
        return [out.out, out.lse, *found.values()]

    for tables in graph_problems.TABLES:
        for lq, lk, d in ((9, 11, 7), (60, 40, 16), (200, 300, 33), (1, 90, 64)):
            yield partial(call, *graph_problems.problem(tables, lq, lk, d))


def ufunc_calls():
    """The gufuncs that fill a problem, or do without one."""

    def call(lq, lk, d, dtype):
        rng = np.random.default_rng([lq, lk, d])

        def normal(*shape):
            return rng.standard_normal((2, *shape)).astype(dtype)

        q, k, v, w = normal(lq, d), normal(lk, d), normal(lk, 9), normal(7, 9)
        few, all_rows, u = normal(7, d), normal(lq + lk - 1, d), normal(d)
        x, angles = normal(lq, 2 * d), rng.random((2, lq, d))
        of = kernels()
        return [
            of.shaw_attention(q, k, v, few, w),
            of.relative_global_attention(q, k, v, normal(lq + 3, d)),
            of.transformer_xl_attention(q, k, v, all_rows, u, -u),
            of.shaw_scores(q, k, few, 0.3, 2),
            of.skewed_scores(q, k, few, 0.3, 2, -5),
            of.transformer_xl_scores(q, k, all_rows, u, -u, 0.3, lk - lq),
            of.rel_shift(q),
            of.rotary(x, rng.random((2, lq)), angles, angles / 1e9, angles, 0),
            *of.sinusoidal(angles * 1e4, angles[0, 0], angles[0, 0] / 1e9, dtype=dtype),
            of.learned(k, rng.integers(0, lk, (2, 5)), dtype=dtype),
            *of.gelu(x),
        ]

    for size in ((1, 40, 8), (37, 70, 16), (130, 300, 33), (300, 600, 64)):
        yield partial(call, *size)


def main():
    kinds = {
        "schemes": list(scheme_problems()),
        "random": list(random_problems()),
        "fire": list(fire_calls()),
        "graph": list(graph_calls()),
        "ufuncs": list(ufunc_calls()),
    }
    total = sum(map(len, kinds.values()))
    assert total >= 500, total
    print(f"{total} problems of each instruction set and dtype")
    for isa in _core.by_isa:
        for dtype in DTYPES:
            for kind, calls in kinds.items():
                bits = hashlib.sha256()
                for call in calls:
                    with use_isa(isa):
                        arrays = call(dtype)
                    for array in arrays:
                        if array is not None:
                            bits.update(np.ascontiguousarray(array).tobytes())
                print(f"{isa} {dtype} {kind} {bits.hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
