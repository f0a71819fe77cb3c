"""Rows as text for a terminal, and tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.goals import ranked, ratio
from benchmarks.results import PriceRecord, Record


def of_row(row: Record) -> str:
    """A heading, and a line for each entrant, the fastest first."""
    ours = row["entrants"][0]
    unit = "of the read rate" if row["mode"] == "decode" else "of FMA peak"
    lines = [row["label"]]
    for x in ranked(row):
        times = f"{ratio(x, ours):6.2f} x relpos" if "share" in ours else f"{'':15}"
        ready_made = ", ready-made" if x["ready_made"] else ""
        lines.append(
            f"  {x['name']:<28}{x['seconds'] * 1e3:10.3f} ms {times} "
            f"{x['share']:6.3f} {unit}, error {x['error']:.0e}, "
            f"{x['kept']} of {x['tried']} kept{ready_made}"
        )
    skipped = [x for x in row["entrants"] if "skipped" in x]
    lines += [f"  {x['name']:<28}{x['skipped']}" for x in skipped]
    return "\n".join(lines)


def of_memory(row: Record) -> str:
    """The same of extra memory."""
    lines = [f"{row['label']}: memory beyond inputs and results"]
    for x in row["entrants"]:
        size = x.get("bytes")
        if size is None:
            text = x.get("skipped", "unknown")
        else:
            text = f"{size / 1e6:10.1f} MB"
        lines.append(f"  {x['name']:<28}{text}")
    return "\n".join(lines)


def of_price(row: PriceRecord) -> str:
    """One line: the ratio and how far its repeats lie apart."""
    if row["figure"] is None:
        return f"{row['label']}: no repeat was kept"
    target = f", at most {row['target']:.2f}" if row["target"] else ""
    return (
        f"{row['label']:<58}{row['figure']:7.3f} ({row['lowest']:.3f} to "
        f"{row['highest']:.3f}, {row['kept']} of {row['tried']} kept{target})"
    )


def table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    cells = [*head]
    rows = [cells, ["---"] * len(cells), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
