"""Speed of the fused attention, one core unless a row says otherwise.

    python benchmarks/attention.py [--quick] [--isa NAME] [--rows REGEX] [--json FILE]

Rows, all with 8 heads of size 64, one batch item and float32 unless they say otherwise,
through the Python functions, tables and packing included:

- forward and backward of plain, music (`relative_global_attention`), xl
  (`transformer_xl_attention`) and shaw (keys and values, k = 16), both directions and
  causal, as a fraction of the multiply-add peak of the instruction set;
- two threads: rate of each over the rate of one thread alone, at equal clocks;
- decode, one query against a cache of keys and values: time of a NumPy loop over items
  and heads over the time of relpos;
- for comparison, without a target: float64; shaw, alibi, whose bias stands for every
  bias by offset, and fire, width 32, over the time of plain attention; two threads that
  share one head; decode as a fraction of the rate at which this core only reads the
  same bytes; large matrix products of NumPy's BLAS.

`--rows backward` runs only rows of that name. Useful operations of N visible pairs:
4·N·D plain, 6·N·D with a long table; backward, which computes the scores again, 10·N·D
and 16·N·D. Shaw's are plain's, with a pair more for each query and row of its tables.
How a row is measured and when it is dropped: harness.py.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter, thread_time
from typing import Any

import decoding
import harness
import numpy as np
from problems import DIRECTIONS, HEADS, SCHEMES, Problem

import relpos
from relpos import _core
from relpos._settings import use_isa

#: What this project set itself: fractions of the peak of an instruction set by length.
#: With None a row is measured without a target.
FRACTIONS: dict[str, dict[tuple[str, str, str], dict[int, float | None]]] = {
    "avx512": {
        ("forward", "music", "both"): {512: 0.74, 1024: 0.81, 2048: 0.85},
        ("forward", "music", "causal"): {1024: 0.74, 2048: 0.81},
        ("forward", "xl", "both"): {512: 0.73, 1024: 0.80, 2048: 0.83},
        ("forward", "xl", "causal"): {1024: 0.73, 2048: 0.80},
        ("forward", "plain", "both"): {512: 0.75, 1024: 0.81, 2048: 0.83},
        ("forward", "plain", "causal"): {1024: 0.72, 2048: 0.78},
        ("forward", "shaw", "both"): {1024: 0.76},
        ("backward", "music", "both"): {512: 0.74, 1024: 0.80, 2048: 0.82},
        ("backward", "music", "causal"): {1024: 0.73, 2048: 0.79},
        ("backward", "xl", "both"): {512: 0.70, 1024: 0.77, 2048: 0.80},
        ("backward", "xl", "causal"): {1024: 0.69, 2048: None},
        ("backward", "plain", "both"): {512: 0.74, 1024: 0.82, 2048: 0.85},
        ("backward", "plain", "causal"): {1024: 0.74, 2048: None},
        ("backward", "shaw", "both"): {1024: 0.73},
    },
    "avx2": {
        ("forward", "music", "both"): {1024: 0.82},
        ("backward", "music", "both"): {1024: 0.83},
    },
}
#: Each of two threads over one alone, by way and heads.
TWO_THREADS = {
    ("forward", HEADS): 0.93,
    ("backward", HEADS): 0.93,
    ("backward", 1): None,
}
#: Time of the NumPy loop over that of relpos, by batch and keys.
DECODE = {(1, 1024): 0.65, (8, 8192): 1.2, (1, 65536): 1.15}

# The one length of rows that have no table of lengths.
LENGTH = 1024
OVER_PLAIN = {"forward": ("shaw", "alibi", "fire"), "backward": ("shaw", "alibi")}
READ_LENGTHS = (8192, 32768)
BLAS_SIZE = 1024


def measure_shares(
    problem: Problem,
    way: str,
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
        call, error = problem.prepared(way, threads, label)
        yardstick = harness.fma_yardstick(isa, dtype, threads, clock)
        timing = harness.interleave([call], yardstick, repeats, clock)
    return timing.shares(flops), timing, error


def fraction_row(
    label: str,
    key: tuple[str, str, str],
    length: int,
    isa: str,
    dtype: str,
    target: float | None,
    repeats: int,
) -> harness.Row:
    way, name, direction = key
    scheme = SCHEMES[name]
    problem = scheme.build(length, dtype, DIRECTIONS[direction])
    flops = scheme.flops(problem, way)
    shares, timing, error = measure_shares(
        problem, way, isa, 1, thread_time, repeats, flops, label
    )
    return harness.Row(
        label,
        "of FMA peak",
        shares,
        timing.tried,
        target,
        seconds=timing.seconds(),
        flops=flops,
        error=error,
    )


def two_threads_row(
    label: str,
    key: tuple[str, str, str],
    heads: int,
    isa: str,
    target: float | None,
    repeats: int,
) -> harness.Row:
    """Rate of each of two threads over that of one alone."""
    way, name, direction = key
    scheme = SCHEMES[name]
    problem = scheme.build(LENGTH, "float32", DIRECTIONS[direction], heads)
    flops = scheme.flops(problem, way)
    (alone, _, _), (both, timing, error) = (
        measure_shares(problem, way, isa, threads, perf_counter, repeats, flops, label)
        for threads in (1, 2)
    )
    return harness.Row(
        label,
        "of one thread",
        [share / np.median(alone) for share in both] if alone else [],
        timing.tried,
        target,
        seconds=timing.seconds(),
        flops=flops,
        error=error,
    )


def over_plain_row(
    label: str, key: tuple[str, str, str], isa: str, repeats: int
) -> harness.Row:
    """Time over that of plain attention of the same size."""
    way, name, direction = key
    scheme, is_causal = SCHEMES[name], DIRECTIONS[direction]
    problem = scheme.build(LENGTH, "float32", is_causal)
    with use_isa(isa):
        call, error = problem.prepared(way, 1, label)
        alone = SCHEMES["plain"].build(LENGTH, "float32", is_causal)
        beside, _ = alone.prepared(way, 1, label)
        yardstick = harness.fma_yardstick(isa, "float32")
        timing = harness.interleave([call, beside], yardstick, repeats)
    return harness.Row(
        label,
        "x plain",
        timing.ratios(),
        timing.tried,
        at_most=True,
        seconds=timing.seconds(),
        flops=scheme.flops(problem, way),
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


class Rows:
    """A plan in the making."""

    def __init__(self, quick: bool) -> None:
        self.plan: harness.Plan = []
        self.quick = quick

    def add(
        self, label: str, measure: Callable[..., harness.Row], *arguments: Any
    ) -> None:
        repeats = 5 if self.quick else 15
        self.plan.append((label, partial(measure, label, *arguments, repeats=repeats)))

    def fractions(self, isa: str, grid: str) -> None:
        """The rows of one instruction set's grid, with the targets of `isa`."""
        targets = FRACTIONS.get(isa, {})
        for key, lengths in FRACTIONS[grid].items():
            for length in lengths:
                if length <= LENGTH or not self.quick:
                    target = targets.get(key, {}).get(length)
                    label = f"{' '.join(key)} L={length} {isa}"
                    self.add(label, fraction_row, key, length, isa, "float32", target)

    def two_threads(self, isa: str) -> None:
        for (way, heads), target in TWO_THREADS.items():
            for name in ("music", "xl", "plain"):
                for direction in DIRECTIONS:
                    key = way, name, direction
                    label = f"two threads {' '.join(key)} H={heads} {isa}"
                    self.add(label, two_threads_row, key, heads, isa, target)

    def decode(self, isa: str) -> None:
        for batch, length in list(DECODE)[: 1 if self.quick else None]:
            label = f"decode B={batch} Lk={length} {isa}"
            target = DECODE[batch, length]
            self.add(label, decoding.over_numpy_row, batch, length, target, isa)

    def comparisons(self, isa: str) -> None:
        """Rows without a target."""
        for way, names in OVER_PLAIN.items():
            for key in ((way, name, each) for name in names for each in DIRECTIONS):
                label = f"{way} {key[1]} / plain {key[2]} L={LENGTH} {isa}"
                self.add(label, over_plain_row, key, isa)
        for name in ("music", "xl", "plain"):
            key = "forward", name, "both"
            label = f"{' '.join(key)} L={LENGTH} float64 {isa}"
            self.add(label, fraction_row, key, LENGTH, isa, "float64", None)
        for length in READ_LENGTHS[: 1 if self.quick else None]:
            for name, with_table in {"plain": False, "music": True}.items():
                label = f"decode {name} Lk={length} {isa}"
                self.add(label, decoding.read_row, length, with_table, isa)
        for dtype in ("float32", "float64"):
            self.add(f"NumPy matmul {BLAS_SIZE}^3 {dtype}", blas_row, isa, dtype)


def make_plan(isas: list[str], quick: bool) -> harness.Plan:
    """Every row as (label, function that measures it), best instruction set first."""
    best, *others = isas
    rows = Rows(quick)
    rows.fractions(best, "avx512")
    for isa in others:
        rows.fractions(isa, isa if isa in FRACTIONS else "avx512")
    if relpos.get_num_threads() > 1:
        rows.two_threads(best)
    rows.decode(best)
    rows.comparisons(best)
    return rows.plan


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
    harness.run(make_plan(isas, options.quick), about, options.rows, options.json)


if __name__ == "__main__":
    main()
