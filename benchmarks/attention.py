"""Speed of the fused attention, one core unless a row says otherwise.

    python benchmarks/attention.py [--quick] [--isa NAME] [--rows REGEX] [--json FILE]

Rows, all with 4 heads of size 64 and one batch item, tables and packing included:

- plain, music (`relative_global_attention`), xl (`transformer_xl_attention`): both
  directions and causal, as a fraction of the multiply-add peak of the instruction set;
- shaw keys + values, k = 16, alibi, whose bias stands for every bias by offset, and
  fire, width 32: time over that of plain attention of the same size;
- two threads: rate of each over the rate of one thread alone, at equal clocks;
- decode: one query against a key cache too large for L2, as a fraction of the rate at
  which this core only reads the same bytes;
- large matrix products of NumPy's BLAS, for comparison;
- backward of all these but decode (backward.py); `--rows backward` runs no others.

Useful operations of N visible pairs: 4·N·D plain, 6·N·D with a long table;
backward, which computes the scores again, 10·N·D and 16·N·D.
How a row is measured and when it is dropped: harness.py.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter, thread_time
from typing import Any

import backward
import harness
import numpy as np
from problems import (
    DIRECTIONS,
    HEAD_DIM,
    HEADS,
    LENGTHS,
    OVER_PLAIN,
    SCHEMES,
    Problem,
    decode,
    fire,
    plain,
)

import relpos
from relpos import _core
from relpos._config import use_isa

DECODE_LENGTHS = (8192, 32768)
BLAS_SIZE = 1024


def fraction_target(
    scheme: str, is_causal: bool, length: int, isa: str, dtype: str
) -> float | None:
    """What this project set itself; short causal calls and the base table have none."""
    if isa == "base" or (is_causal and length < 1024):
        return None
    if dtype == "float64":
        return 0.75
    if isa == "avx2":
        return 0.75 if is_causal else 0.80
    if scheme == "plain":
        return 0.74 if is_causal else 0.79
    return 0.77 if is_causal else 0.80


def measure_shares(
    problem: Problem,
    isa: str,
    threads: int,
    clock: harness.Clock,
    repeats: int,
    flops: float,
    label: str,
) -> tuple[list[float], harness.Timing, float]:
    """Fractions of the peak of `threads` cores, with the timing and the error."""
    dtype = problem.arrays["query"].dtype.name
    with use_isa(isa):
        call, out = problem.bind(threads)
        call()
        error = problem.check(out, label)
        yardstick = harness.fma_yardstick(isa, dtype, threads, clock)
        timing = harness.interleave([call], yardstick, repeats, clock)
    return timing.shares(flops), timing, error


def fraction_row(
    label: str,
    scheme: str,
    is_causal: bool,
    length: int,
    isa: str,
    dtype: str,
    repeats: int,
) -> harness.Row:
    build, products, _ = SCHEMES[scheme]
    problem = build(length, dtype, is_causal)
    flops = products * problem.pairs * HEAD_DIM
    shares, timing, error = measure_shares(
        problem, isa, 1, thread_time, repeats, flops, label
    )
    return harness.Row(
        label,
        "of FMA peak",
        shares,
        timing.tried,
        fraction_target(scheme, is_causal, length, isa, dtype),
        seconds=timing.seconds(),
        flops=flops,
        error=error,
    )


def two_threads_row(
    label: str, scheme: str, is_causal: bool, length: int, isa: str, repeats: int
) -> harness.Row:
    build, products, _ = SCHEMES[scheme]
    problem = build(length, "float32", is_causal)
    flops = products * problem.pairs * HEAD_DIM

    def shares(threads: int) -> tuple[list[float], harness.Timing, float]:
        return measure_shares(
            problem, isa, threads, perf_counter, repeats, flops, label
        )

    return harness.two_threads_row(label, shares, 0.95, flops)


#: Forward only: `Problem.check_backward` knows the inputs of attention alone.
FORWARD_OVER_PLAIN = {**OVER_PLAIN, "fire": (fire, 0)}

#: Targets of the rows over plain attention, both ways and causal.
OVER_PLAIN_TARGETS = {
    "shaw k=16": (1.12, 1.22),
    "alibi": (None, None),
    "fire": (1.5, 1.5),
}


def over_plain_row(
    label: str, scheme: str, is_causal: bool, length: int, isa: str, repeats: int
) -> harness.Row:
    build, rows = FORWARD_OVER_PLAIN[scheme]
    problem = build(length, "float32", is_causal)
    table_products = 4 * HEADS * length * rows * HEAD_DIM
    with use_isa(isa):
        call, out = problem.bind(1)
        call()
        error = problem.check(out, label)
        plain_call, _ = plain(length, "float32", is_causal).bind(1)
        timing = harness.interleave(
            [call, plain_call], harness.fma_yardstick(isa, "float32"), repeats
        )
    return harness.over_plain_row(
        label,
        timing,
        OVER_PLAIN_TARGETS[scheme][is_causal],
        flops=4 * problem.pairs * HEAD_DIM + table_products,
        error=error,
    )


def decode_row(
    label: str, length: int, with_table: bool, isa: str, repeats: int
) -> harness.Row:
    problem = decode(length, "float32", with_table)
    read = [x for name, x in problem.arrays.items() if name != "query"]
    with use_isa(isa):
        call, out = problem.bind(1)
        call()
        error = problem.check(out, label)
        timing = harness.interleave([call], harness.read_yardstick(read), repeats)
    return harness.Row(
        label,
        "of read rate",
        timing.shares(sum(array.nbytes for array in read)),
        timing.tried,
        0.85,
        seconds=timing.seconds(),
        error=error,
    )


def blas_row(label: str, isa: str, dtype: str, repeats: int) -> harness.Row:
    a, b = np.random.default_rng(0).random((2, BLAS_SIZE, BLAS_SIZE)).astype(dtype)
    work = partial(np.matmul, a, b, out=np.empty_like(a))
    timing = harness.interleave([work], harness.fma_yardstick(isa, dtype), repeats)
    flops = 2 * BLAS_SIZE**3
    return harness.Row(
        label,
        "of FMA peak",
        timing.shares(flops),
        timing.tried,
        seconds=timing.seconds(),
        flops=flops,
    )


def make_plan(isas: list[str], quick: bool) -> harness.Plan:
    """Every row as (label, function that measures it), best instruction set first."""
    best, repeats = isas[0], 5 if quick else 15
    lengths = (512, 1024) if quick else LENGTHS
    plan: harness.Plan = []

    def add(label: str, measure: Callable[..., harness.Row], *arguments: Any) -> None:
        plan.append((label, partial(measure, label, *arguments, repeats=repeats)))

    for isa, dtype in [*((isa, "float32") for isa in isas), (best, "float64")]:
        for scheme in SCHEMES:
            for name, is_causal in DIRECTIONS.items():
                for length in lengths:
                    label = f"{scheme} {name} L={length} {dtype} {isa}"
                    add(label, fraction_row, scheme, is_causal, length, isa, dtype)
    for scheme in FORWARD_OVER_PLAIN:
        for name, is_causal in DIRECTIONS.items():
            for length in lengths[1:]:
                label = f"{scheme} {name} L={length} {best}"
                add(label, over_plain_row, scheme, is_causal, length, best)
    if relpos.get_num_threads() > 1:
        for scheme in SCHEMES:
            for name, is_causal in DIRECTIONS.items():
                label = f"two threads {scheme} {name} L=1024 {best}"
                add(label, two_threads_row, scheme, is_causal, 1024, best)
    for length in DECODE_LENGTHS[: 1 if quick else None]:
        for name, with_table in {"plain": False, "music": True}.items():
            label = f"decode {name} Lk={length} {best}"
            add(label, decode_row, length, with_table, best)
    for dtype in ("float32", "float64"):
        add(f"NumPy matmul {BLAS_SIZE}^3 {dtype}", blas_row, best, dtype)
    return plan


def main() -> None:
    harness.use_single_threaded_blas()
    parser = harness.parser("Speed of relpos's fused attention, forward and backward.")
    parser.add_argument(
        "--isa",
        action="append",
        choices=sorted(_core.by_isa),
        help="instruction set(s) to run; default: the best and AVX2",
    )
    options = parser.parse_args()
    default = [_core.isa, *(["avx2"] if _core.isa == "avx512" else [])]
    isas = options.isa or default
    cores = min(2, relpos.get_num_threads())
    about = harness.facts(isas, ("float32", "float64"), cores)
    plan = make_plan(isas, options.quick) + backward.make_plan(isas, options.quick)
    harness.run(plan, about, options.rows, options.json)


if __name__ == "__main__":
    main()
