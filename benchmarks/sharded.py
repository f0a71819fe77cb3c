"""relpos.sharded in one process, beside relpos.attention; the memory of one task.

python -m benchmarks.sharded prints both. A row is one problem, forward alone or with
all gradients: relpos.attention on arrays in memory, and relpos.sharded by dask's
scheduler of threads, as many tasks at a time as the other has threads. Their results
are held against each other before they take turns. The ratio says what graph, chunks
and joins cost; what several machines gain is in docs/scaling.md, and so is the memory.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter, process_time
from typing import Any, TypedDict

import dask
import dask.array as da
import numpy as np

import relpos
import relpos.sharded
from benchmarks.rows import ERROR_LIMIT, ROOT
from benchmarks.timing import BEST_ISA, alternate, fma_yardstick, in_child
from benchmarks.transformers import memory_of

DIM = 64
WRT = ("query", "key", "value", "rel_key")
#: Rows of the table, and the window that it covers, of the memory of a task.
REACH = 4096
SIZES = (6_250, 12_500, 25_000)
WAYS = {"forward": False, "and backward": True}
#: Arrays by the names of arguments, or of results.
Arrays = dict[str, Any]


class Settings(TypedDict):
    """Keywords of attention over a window of the past."""

    window: tuple[int, int]
    min_relative_position: int


@dataclass(frozen=True)
class Problem:
    """Heads and length, the window's reach, and how many heads and rows a chunk has."""

    heads: int
    length: int
    reach: int
    chunk: tuple[int, int]

    def __str__(self) -> str:
        heads, rows = self.chunk
        cut = f"chunks of {heads} heads" if rows == self.length else f"blocks of {rows}"
        return f"H = {self.heads}, L = {self.length}, window {self.reach}, {cut}"


PROBLEMS = (
    Problem(8, 512, 512, (1, 512)),
    Problem(8, 2048, 2048, (1, 2048)),
    Problem(8, 2048, 2048, (8, 512)),
    Problem(2, 25_000, 4096, (1, 6_250)),
)
QUICK = (Problem(8, 512, 512, (1, 512)), Problem(8, 512, 512, (8, 256)))


def arrays(heads: int, length: int, reach: int) -> Arrays:
    """The rows, a table for all distances, and the gradient of out."""
    rng = np.random.default_rng(0)
    draw = partial(rng.standard_normal, dtype=np.float32)
    names = ("query", "key", "value", "grad_out")
    rows = {name: draw((heads, length, DIM)) for name in names}
    return rows | {"rel_key": draw((reach, DIM))}


def settings(reach: int) -> Settings:
    return {"window": (reach - 1, 0), "min_relative_position": 1 - reach}


def results(
    function: Callable[..., Any], inputs: Arrays, reach: int, backward: bool
) -> Arrays:
    """The output, and with `backward` the gradients of WRT."""
    operands = {name: x for name, x in inputs.items() if name != "grad_out"}
    result = function(**operands, **settings(reach), return_context=True)
    arrays = {"out": result.out}
    if backward:
        gradients = result.context.backward(inputs["grad_out"], wrt=WRT)
        for name in WRT:
            arrays[name] = getattr(gradients, name)
    return arrays


def works_of(
    problem: Problem, threads: int, backward: bool
) -> dict[str, Callable[[], Arrays]]:
    """Both calls by name, on the same inputs."""
    inputs = arrays(problem.heads, problem.length, problem.reach)
    chunks = (*problem.chunk, DIM)
    in_chunks = {
        name: x if name == "rel_key" else da.from_array(x, chunks=chunks)
        for name, x in inputs.items()
    }

    def in_memory() -> Arrays:
        with relpos.threads(threads):
            return results(relpos.attention, inputs, problem.reach, backward)

    def sharded() -> Arrays:
        lazy = results(relpos.sharded.attention, in_chunks, problem.reach, backward)
        (computed,) = dask.compute(lazy, scheduler="threads", num_workers=threads)
        return {**computed}

    return {"memory": in_memory, "sharded": sharded}


def check(problem: Problem, mine: Arrays, other: Arrays) -> None:
    for name, array in other.items():
        error = np.linalg.norm(mine[name] - array) / np.linalg.norm(array)
        if not error <= ERROR_LIMIT:
            raise ValueError(f"{problem}: {name} is {error:.0e} off")


def ratio(problem: Problem, threads: int, backward: bool, seconds: float) -> float:
    """Time of relpos.sharded over that of relpos.attention; CPU time of one thread."""
    works = works_of(problem, threads, backward)
    check(problem, works["sharded"](), works["memory"]())
    clock = process_time if threads == 1 else perf_counter
    yardstick = fma_yardstick(BEST_ISA, "float32", 1, clock)
    samples = alternate(works, yardstick, clock, seconds, threads)
    return samples["sharded"].cost / samples["memory"].cost


def task(rows: int, backward: bool) -> tuple[Callable[[], Any], int]:
    """One block of so many queries and keys, and the bytes of its arguments."""
    operands = arrays(1, rows, REACH)
    grad_out = operands.pop("grad_out")
    held = sum(x.nbytes for x in operands.values())
    lazy = {name: da.from_array(x, chunks=-1) for name, x in operands.items()}
    result = relpos.sharded.attention(**lazy, **settings(REACH), return_context=True)
    if not backward:
        return partial(run, result.context.persist), held
    with dask.config.set(scheduler="synchronous"):
        context = result.context.persist()
    gradients = context.backward(da.from_array(grad_out, chunks=-1))
    chosen = [getattr(gradients, name) for name in WRT]
    # grad_out, and what the context keeps: out, and three numbers of each row
    kept = 2 * grad_out.nbytes + 3 * rows * grad_out.itemsize
    return partial(run, partial(dask.compute, *chosen)), held + kept


def run(work: Callable[[], Any]) -> Any:
    with dask.config.set(scheduler="synchronous"):
        return work()


def measured(rows: int, backward: bool) -> int | None:
    """Bytes at the peak of a task, its arguments among them."""
    task(64, backward)[0]()  # what is loaded with a first call
    work, held = task(rows, backward)
    more = memory_of(work)
    return None if more is None else held + more


def peak(rows: int, backward: bool) -> int | None:
    """The same, in a process of its own."""
    arguments = "--task", json.dumps([rows, backward])
    found: int | None
    (found,) = in_child("benchmarks.sharded", *arguments, folder=ROOT)
    return found


def memory_line(rows: int) -> str:
    """A row of the table in docs/scaling.md."""
    cells = [f"{rows:,}"]
    for backward in WAYS.values():
        found = peak(rows, backward)
        cells.append("?" if found is None else f"{found / 1e6:.0f} MB")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharded")
    add = parser.add_argument
    add("--threads", type=int, default=1, metavar="N", help="of both")
    add("--seconds", type=float, default=5.0, metavar="S", help="a row, about")
    add("--quick", action="store_true", help="short problems, and no memory")
    add("--task", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(measured(*options.task)))
        return
    if not options.quick:
        print("| n | forward | backward |\n|--:|--:|--:|")
        for rows in SIZES:
            print(memory_line(rows), flush=True)
    seconds = 0.2 if options.quick else options.seconds
    problems = QUICK if options.quick else PROBLEMS
    for problem in problems:
        for way, backward in WAYS.items():
            found = ratio(problem, options.threads, backward, seconds)
            print(f"{problem}, {way}: {found:.2f} times relpos.attention", flush=True)


if __name__ == "__main__":
    main()
