"""Speed of the fused attention forward, one core unless a row says otherwise.

    python benchmarks/attention.py [--quick] [--isa NAME] [--rows REGEX] [--json FILE]

Rows, all with 4 heads of size 64 and one batch item, tables and packing included:

- plain, music (`relative_global_attention`), xl (`transformer_xl_attention`): both
  directions and causal, as a fraction of the multiply-add peak of the instruction set;
- shaw keys + values, k = 16: time over that of plain attention of the same size;
- two threads: rate of each over the rate of one thread alone, at equal clocks;
- decode: one query against a key cache too large for L2, as a fraction of the rate at
  which this core only reads the same bytes;
- large matrix products of NumPy's BLAS, for comparison.

Useful operations of N visible pairs: 4·N·D plain, 6·N·D with a long table.
How a row is measured and when it is dropped: harness.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, thread_time
from typing import Any

import harness
import numpy as np

import relpos
from relpos import _core, reference
from relpos._config import use_isa

HEADS, HEAD_DIM = 4, 64
LENGTHS = (512, 1024, 2048)
SHAW_K = 16
DECODE_LENGTHS = (8192, 32768)
CHECKED_ROWS = 6
BLAS_SIZE = 1024


@dataclass(frozen=True)
class Problem:
    """One call: a function of relpos and relpos.reference, its arrays and options."""

    function: str
    arrays: tuple[np.ndarray, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def pairs(self) -> int:
        """Pairs of query and key, over all heads, that are not hidden."""
        queries, keys = (int(array.shape[-2]) for array in self.arrays[:2])
        if not self.options["is_causal"]:
            return HEADS * queries * keys
        first = 1 + int(self.options.get("query_offset", 0))
        return HEADS * sum(min(first + i, keys) for i in range(queries))

    def bind(self, threads: int) -> tuple[Callable[[], object], np.ndarray]:
        """The call, and the array it writes."""
        query, _, value = self.arrays[:3]
        out = np.full((*query.shape[:-1], value.shape[-1]), np.nan, query.dtype)
        function = getattr(relpos, self.function)
        return partial(
            function, *self.arrays, **self.options, num_threads=threads, out=out
        ), out

    def check(self, out: np.ndarray, what: str) -> float:
        """Error of some rows of `out`, with the first and the last, by reference."""
        expect = getattr(reference, self.function)
        query, *others = (array.astype(np.float64) for array in self.arrays)
        length = query.shape[-2]
        start = self.options.get("query_offset", 0)
        rows = np.unique(np.linspace(0, length - 1, CHECKED_ROWS, dtype=int))
        expected = [
            expect(
                query[..., row : row + 1, :],
                *others,
                **(self.options | {"query_offset": start + int(row)}),
            )
            for row in rows
        ]
        return harness.check_error(
            out[..., rows, :], np.concatenate(expected, axis=-2), what
        )


def tokens(length: int, dtype: str, *, queries: int | None = None) -> list[np.ndarray]:
    """Random query, key and value."""
    rng = np.random.default_rng(length)
    lengths = (queries or length, length, length)
    shapes = [(1, HEADS, rows, HEAD_DIM) for rows in lengths]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def table(rows: int, dtype: str, *, per_head: bool = False) -> np.ndarray:
    """A random table of relative positions."""
    shape = (HEADS, rows, HEAD_DIM) if per_head else (rows, HEAD_DIM)
    return np.random.default_rng(rows).standard_normal(shape).astype(dtype)


def plain(length: int, dtype: str, is_causal: bool) -> Problem:
    return Problem("attention", (*tokens(length, dtype),), {"is_causal": is_causal})


def music(length: int, dtype: str, is_causal: bool) -> Problem:
    rel_key = table(length if is_causal else 2 * length - 1, dtype)
    return Problem(
        "relative_global_attention",
        (*tokens(length, dtype), rel_key),
        {"is_causal": is_causal},
    )


def xl(length: int, dtype: str, is_causal: bool) -> Problem:
    rows = length if is_causal else 2 * length - 1
    rel_key = table(rows, dtype, per_head=True)
    u, v = np.random.default_rng(1).standard_normal((2, HEADS, HEAD_DIM)).astype(dtype)
    return Problem(
        "transformer_xl_attention",
        (*tokens(length, dtype), rel_key, u, v),
        {"is_causal": is_causal},
    )


def shaw(length: int, dtype: str, is_causal: bool) -> Problem:
    rel_key = table(2 * SHAW_K + 1, dtype)
    rel_value = rel_key[::-1].copy()
    return Problem(
        "shaw_attention",
        (*tokens(length, dtype), rel_key, rel_value),
        {"is_causal": is_causal},
    )


def decode(length: int, dtype: str, with_table: bool) -> Problem:
    """The last query of a causal sequence; the table is per head, so read once."""
    options = {"is_causal": True, "query_offset": length - 1}
    arrays = tokens(length, dtype, queries=1)
    if not with_table:
        return Problem("attention", (*arrays,), options)
    rel_key = table(length, dtype, per_head=True)
    return Problem("relative_global_attention", (*arrays, rel_key), options)


SCHEMES = {"plain": (plain, 4), "music": (music, 6), "xl": (xl, 6)}  # products of N·D


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
    dtype = problem.arrays[0].dtype.name
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
    build, products = SCHEMES[scheme]
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
    build, products = SCHEMES[scheme]
    problem = build(length, "float32", is_causal)
    flops = products * problem.pairs * HEAD_DIM
    (alone, _, _), (shares, timing, error) = (
        measure_shares(problem, isa, threads, perf_counter, repeats, flops, label)
        for threads in (1, 2)
    )
    return harness.Row(
        label,
        "of one thread",
        [share / float(np.median(alone)) for share in shares] if alone else [],
        timing.tried,
        0.95,
        seconds=timing.seconds(),
        flops=flops,
        error=error,
    )


def shaw_row(
    label: str, is_causal: bool, length: int, isa: str, repeats: int
) -> harness.Row:
    problem = shaw(length, "float32", is_causal)
    table_products = 4 * HEADS * length * (2 * SHAW_K + 1) * HEAD_DIM
    with use_isa(isa):
        call, out = problem.bind(1)
        call()
        error = problem.check(out, label)
        plain_call, _ = plain(length, "float32", is_causal).bind(1)
        timing = harness.interleave(
            [call, plain_call], harness.fma_yardstick(isa, "float32"), repeats
        )
    return harness.Row(
        label,
        "x plain",
        timing.ratios(),
        timing.tried,
        1.22 if is_causal else 1.12,
        at_most=True,
        seconds=timing.seconds(),
        flops=4 * problem.pairs * HEAD_DIM + table_products,
        error=error,
    )


def decode_row(
    label: str, length: int, with_table: bool, isa: str, repeats: int
) -> harness.Row:
    problem = decode(length, "float32", with_table)
    read = problem.arrays[1:]
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
    directions = {"both": False, "causal": True}
    plan: harness.Plan = []

    def add(label: str, measure: Callable[..., harness.Row], *arguments: Any) -> None:
        plan.append((label, partial(measure, label, *arguments, repeats=repeats)))

    for isa, dtype in [*((isa, "float32") for isa in isas), (best, "float64")]:
        for scheme in SCHEMES:
            for name, is_causal in directions.items():
                for length in lengths:
                    label = f"{scheme} {name} L={length} {dtype} {isa}"
                    add(label, fraction_row, scheme, is_causal, length, isa, dtype)
    for name, is_causal in directions.items():
        for length in lengths[1:]:
            label = f"shaw k=16 {name} L={length} {best}"
            add(label, shaw_row, is_causal, length, best)
    if relpos.get_num_threads() > 1:
        for scheme in SCHEMES:
            for name, is_causal in directions.items():
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
    parser = harness.parser("Speed of relpos's fused attention, forward.")
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
