"""Times small calls and `import relpos`, of this tree beside another checkout's.

Run with a Python that has NumPy (and torch, for the rows of relpos.torch)::

    python tests/tools/times.py ../other --rounds 15

Both trees need a compiled core. Each round starts a process for each tree, in turn, so
that both meet the same machine; a process gives the least CPU time of a call, and a row
shows the least and the median of all rounds, and the ratio of this tree to the other.
The exit status is 1 where the ratio of the least times of a row is above `--limit`.
`--calls` says how many functions and files of relpos one warm `shaw_attention` runs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time_ns, thread_time_ns
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SHAPE = (1, 1, 4, 16)
CALLS = 50  # of a batch
Call = Callable[[], object]


def made() -> dict[str, Any]:
    """Return the arrays of all calls."""
    import numpy as np

    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    length, dim = SHAPE[-2:]
    tokens = {name: draw(*SHAPE) for name in ("query", "key", "value")}
    return {
        "tokens": tokens,
        "rel_key": draw(2 * length - 1, dim),
        "rel_bias": draw(1, 2 * length - 1),
        "grad_out": draw(*SHAPE),
    }


def warm_shaw() -> Call:
    """Return a call of `shaw_attention` that has run before."""
    import relpos

    arrays = made()
    tokens, table = arrays["tokens"], arrays["rel_key"]

    def call() -> object:
        return relpos.shaw_attention(**tokens, rel_key=table)

    call()
    return call


def functions_of(call: Call) -> set[tuple[str, str, int]]:
    """Return file, name and first line of each function of relpos that a call runs."""
    import relpos

    home, reached = str(Path(relpos.__file__).parent), set()

    def profile(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(home):
            reached.add((code.co_filename, code.co_name, code.co_firstlineno))

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return reached


def forward_calls(room: Any, arrays: dict[str, Any]) -> dict[str, Call]:
    """Return calls of a package's functions, which are named as those of relpos."""
    tokens, one = arrays["tokens"], {"num_threads": 1}
    table, bias = {"rel_key": arrays["rel_key"]}, {"rel_bias": arrays["rel_bias"]}
    return {
        "attention": lambda: room.attention(**tokens, **one),
        "attention, a table": lambda: room.attention(**tokens, **table, **one),
        "attention, a bias": lambda: room.attention(**tokens, **bias, **one),
        "shaw_attention": lambda: room.shaw_attention(**tokens, **table, **one),
    }


def backward_calls(arrays: dict[str, Any]) -> dict[str, Call]:
    """Return calls of relpos, each with the backward of its context."""
    import relpos

    grad_out = arrays["grad_out"]

    def both(function: Any, **operands: Any) -> Call:
        keywords = arrays["tokens"] | operands | {"num_threads": 1}

        def call() -> object:
            result = function(**keywords, return_context=True)
            return result.context.backward(grad_out)

        return call

    table = {"rel_key": arrays["rel_key"]}
    return {
        "attention and backward": both(relpos.attention),
        "attention, a table, and backward": both(relpos.attention, **table),
        "attention, a bias, and backward": both(
            relpos.attention, rel_bias=arrays["rel_bias"]
        ),
        "shaw_attention and backward": both(relpos.shaw_attention, **table),
    }


def torch_calls(arrays: dict[str, Any]) -> dict[str, Call]:
    """Return the calls of relpos.torch, forward and with autograd's backward."""
    import torch

    import relpos.torch

    def as_tensor(array: Any, grad: bool) -> Any:
        return torch.from_numpy(array).requires_grad_(grad)

    def tensors(grad: bool) -> dict[str, Any]:
        tokens = {n: as_tensor(x, grad) for n, x in arrays["tokens"].items()}
        tables = {n: as_tensor(arrays[n], grad) for n in ("rel_key", "rel_bias")}
        return {"tokens": tokens, **tables}

    def both(call: Any, grad_out: Any) -> Call:
        return lambda: call().backward(grad_out)

    grad_out = torch.from_numpy(arrays["grad_out"])
    plain = forward_calls(relpos.torch, tensors(False))
    learned = forward_calls(relpos.torch, tensors(True))
    rows = {f"torch: {name}": call for name, call in plain.items()}
    for name, call in learned.items():
        rows[f"torch: {name}, and backward"] = both(call, grad_out)
    return rows


def least(call: Call, batches: int) -> float:
    """Return the least microseconds of a call, on the thread's CPU clock."""
    best = float("inf")
    for _ in range(CALLS):
        call()
    for _ in range(batches):
        start = thread_time_ns()
        for _ in range(CALLS):
            call()
        best = min(best, (thread_time_ns() - start) / CALLS / 1e3)
    return best


def measure(batches: int) -> dict[str, float]:
    """Return microseconds by row: one tree's, in this process."""
    import numpy as np  # noqa: F401, whose import is not relpos's

    start = process_time_ns()
    import relpos

    rows = {"import relpos": (process_time_ns() - start) / 1e3}
    arrays = made()
    calls = forward_calls(relpos, arrays) | backward_calls(arrays)
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        calls |= torch_calls(arrays)
    return rows | {name: least(call, batches) for name, call in calls.items()}


def ask(tree: Path, *options: str) -> Any:
    """Return what this script prints as JSON of another tree."""
    done = subprocess.run(
        [sys.executable, "-P", __file__, str(tree), *options],
        check=False,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr}")
    return json.loads(done.stdout)


def compare(other: Path, rounds: int, batches: int, limit: float) -> int:
    """Print a row for each call; return 1 where this tree is slower than the limit."""
    trees, found = (ROOT, other), ([], [])
    for turn in range(rounds):
        # In turn each is first: the other one runs with warm caches.
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        for which in order:
            found[which].append(ask(trees[which], "--measure", str(batches)))
    print(f"{'us, least (median)':<38} {'this':>17} {'other':>17}  ratio")
    worst = 0.0
    shared = [name for name in found[0][0] if name in found[1][0]]
    for name in shared:
        series = [[row[name] for row in rows] for rows in found]
        low = [min(times) for times in series]
        cells = [f"{min(s):8.1f} ({statistics.median(s):6.1f})" for s in series]
        worst = max(worst, low[0] / low[1])
        print(f"{name:<38} {cells[0]} {cells[1]}  {low[0] / low[1]:.3f}")
    return int(worst > limit)


def main() -> int:
    """Measure as asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, nargs="?", default=ROOT, help="a checkout")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batches", type=int, default=40, help="of a process")
    parser.add_argument("--limit", type=float, default=1.02, help="ratio, at most")
    parser.add_argument("--calls", action="store_true", help="count functions, files")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(asked.measure)))
        return 0
    if asked.calls:
        reached = functions_of(warm_shaw())
        print(f"{len(reached)} functions in {len({row[0] for row in reached})} files")
        for file, name, line in sorted(reached):
            print(f"{Path(file).name}:{line} {name}")
        return 0
    return compare(asked.other.resolve(), asked.rounds, asked.batches, asked.limit)


if __name__ == "__main__":
    sys.exit(main())
