"""A few rows again, beside those stored for this model of CPU."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import grid, text, worker
from benchmarks.goals import ratio, share_of_ours
from benchmarks.results import Record, Results, stored_path

#: What is measured twice differs by less.
NOISE = 0.07


def fallen(now: Record, before: Record) -> Iterator[str]:
    """Return the figures of a row that became worse: share of the peak, or a ratio."""
    new, old = share_of_ours(now), share_of_ours(before)
    if new is None or old is None:
        yield "relpos was not timed"
        return
    if new < (1 - NOISE) * old:
        yield f"{new:.3f} of the peak, {old:.3f} before"
    peers = {x["name"]: x for x in before["entrants"][1:] if "share" in x}
    for x in now["entrants"][1:]:
        if "share" in x and x["name"] in peers:
            here = ratio(x, now["entrants"][0])
            there = ratio(peers[x["name"]], before["entrants"][0])
            if here < (1 - NOISE) * there:
                yield f"{here:.2f} times as fast as {x['name']}, {there:.2f} before"


def run(seconds: float) -> None:
    """Measure, print every row, and at the end what fell."""
    path = stored_path()
    if not path.exists():
        print(f"nothing is stored for this model of CPU ({path.name})")
        return
    stored = Results.read(path).rows
    specs = [spec for spec in grid.quick() if spec.label in stored]
    worse: list[str] = []
    for row in worker.records(specs, seconds):
        print(text.of_row(row), flush=True)
        for reason in fallen(row, stored[row["label"]]):
            worse.append(f"{row['label']}: {reason}")
    print()
    print("\n".join(worse) if worse else "nothing fell behind what is stored")
