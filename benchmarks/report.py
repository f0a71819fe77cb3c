"""README.md of this folder, from the results in a file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks import pictures
from benchmarks.goals import (
    GOALS,
    Goal,
    Record,
    fastest,
    is_long,
    ratio,
    share_of_ours,
)
from benchmarks.results import Results

__all__ = ["write"]

HERE = Path(__file__).parent
NAMES = {
    "plain": "plain attention",
    "music": "Music Transformer",
    "xl": "Transformer-XL",
    "shaw": "Shaw, keys and values",
}
MODES = {
    "fwd": "Forward",
    "fwdbwd": "Forward and backward",
    "decode": "Decoding: one query against a cache",
}
#: What prices are of.
WAYS = {"forward": "forward", "forward+backward": "and backward"}
#: What the README says, by schemes.
SAID = {
    ("music", "xl"): "Music Transformer and Transformer-XL",
    ("shaw",): "Shaw's relative keys and values",
    ("plain",): "attention without positions",
}
BEGIN = "<!-- written by python -m benchmarks --report -->"
END = "<!-- end -->"
TIMES = "\N{MULTIPLICATION SIGN}"
ALL_SHOWN = [1, 8, 1024, 64]


def write(results: Results, folder: Path = HERE) -> list[Path]:
    """Draw the pictures, write the page and its lines in the README above it."""
    drawn = pictures.draw(results, folder / "pictures")
    path, readme = folder / "README.md", folder.parent / "README.md"
    path.write_text(page(results, drawn), encoding="utf-8")
    text = readme.read_text(encoding="utf-8")
    readme.write_text(with_lines(text, results), encoding="utf-8")
    return [path, readme]


def with_lines(text: str, results: Results) -> str:
    """The text with what is between the two marks written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise ValueError(f"README.md: no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{in_short(results)}\n{END}{after}"


def in_short(results: Results) -> str:
    """Three lines and a picture, for the README of the repository."""
    rows = [row for row in results.rows.values() if is_long(row, *NAMES)]
    lines = []
    for schemes, said in SAID.items():
        some = [row for row in rows if row["scheme"] in schemes]
        every, ready = (
            [best.ratio for row in some if (best := fastest(row, kind))]
            for kind in (False, True)
        )
        if every and ready:
            lines.append(
                f"- {said}: {min(every):.1f} to {max(every):.1f} times as fast as the "
                f"fastest peer,\n  at least {min(ready):.1f} times as fast as any "
                "call that a library has ready."
            )
    picture = "![time of the fastest peer over that of relpos, against the length]"
    return "\n".join([*lines, "", f"{picture}(benchmarks/pictures/ratios.svg)"])


def page(results: Results, drawn: dict[str, str]) -> str:
    """The whole text; `drawn` has the file of each picture and what it shows."""
    rows = list(results.rows.values())
    parts = [
        "# relpos beside what one could use instead",
        about(results),
        "## In short",
        goals_table(rows),
        *(f"![{text}](pictures/{name})" for name, text in drawn.items()),
    ]
    if results.prices:
        parts += ["## The price of positions", PRICE]
        parts += [prices_table(results.prices.values())]
    for mode, title in MODES.items():
        found = [row for row in rows if row["mode"] == mode and row["threads"] == 1]
        parts += [f"## {title}", times_table(found)] if found else []
    if several := [row for row in rows if row["threads"] > 1]:
        parts += ["## Two threads", THREADS, threads_table(several, results.rows)]
    if results.memory:
        parts += ["## Extra memory", MEMORY, memory_table(results.memory.values())]
    parts += ["## All entrants at L = 1024", *everybody(rows)]
    parts += ["## Who was left out", left_out(rows), "## Again", AGAIN]
    return "\n\n".join(parts) + "\n"


PRICE = """\
Time of relpos over its time for what comes after the slash, in one run, one thread: 8
heads of 64 up to length 2048, 2 at 4096. `plain` is attention without positions in the
same direction, `apart` are 16 documents as calls of their own."""

THREADS = """\
Of eight heads of 64, by the clock on the wall; *of one thread* is the rate of each
thread over that of one alone, at equal clocks."""

MEMORY = """\
Music Transformer, causal, eight heads of 64: the peak of a process of its own, beyond
inputs and results, in MB."""

AGAIN = """\
```sh
python -m pip install -e ".[plot]" torch jax
python -m benchmarks --grid --memory
python -m benchmarks --prices --report
```

It writes `benchmarks/measured/`, a file for each model of CPU, row by row (`--missing`
goes on where a run was cut), then this page. `--report FILE` writes the page of another
file. `--quick` measures a few rows again and says which fell behind the file."""


def about(results: Results) -> str:
    """The machine, the day, and how it was measured."""
    facts = results.facts
    dates = sorted(row["date"] for row in results.rows.values())
    when = dates[0] if dates[0][:10] == dates[-1][:10] else f"{dates[0]} to {dates[-1]}"
    versions = ", ".join(
        f"{name} {facts[name]}" for name in ("numpy", "torch", "jax") if facts.get(name)
    )
    return f"""\
Generated by `python -m benchmarks --report`; not to be edited. Measured {when} on
{facts["cpu"]}, {facts["isa"]}, one thread; relpos {facts["relpos"]}, {versions}.

Each entrant does the same work: output, and gradients of all inputs, tables included.
Its results are held against float64 before it is timed. The entrants of a row take
turns, between readings of the core's multiply-add peak; ratios are of times at equal
clocks (their medians), and *of peak* counts useful operations only. What a library
compiles or prepares for a shape is not timed, and its allocator is tuned to keep what
it frees. A *ready-made* peer is one call of a library's function; the others are loops
over blocks, as one can write them in some lines around a library."""


def table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table of markdown."""
    cells = [*head]
    rows = [cells, ["---"] * len(cells), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def goals_table(rows: list[Record]) -> str:
    """Each goal with the lowest and the middle figure of its rows."""
    head = (
        "",
        "time over relpos's, of",
        "goal",
        "lowest",
        "median",
        "rows",
        "lowest at",
    )
    return table(head, [line for goal in GOALS for line in goal_line(goal, rows)])


def goal_line(goal: Goal, rows: list[Record]) -> list[list[str]]:
    """None or one."""
    found = goal.ratios(rows)
    if not found:
        return []
    (lowest, where), (middle, _) = found[0], found[len(found) // 2]
    reached = sum(figure >= goal.least for figure, _ in found)
    return [
        [
            goal.text,
            "the fastest ready-made" if goal.ready_made else "the fastest peer",
            f"≥ {goal.least:.1f}",
            f"**{lowest:.2f}**",
            f"{middle:.2f}",
            f"{reached} of {len(found)}",
            where,
        ]
    ]


def order(row: Record) -> tuple[int, bool, int, int]:
    """By scheme, direction and size."""
    names = [*NAMES]
    scheme = names.index(row["scheme"]) if row["scheme"] in names else len(names)
    return scheme, row["is_causal"], row["shape"][2], row["shape"][0]


def times_table(rows: list[Record]) -> str:
    """A line for each row of a mode."""
    unit = "of read rate" if rows[0]["mode"] == "decode" else "of peak"
    head = (
        "",
        "B, H, L, D",
        "relpos",
        unit,
        "fastest peer",
        TIMES,
        "ready-made",
        TIMES,
    )
    return table(head, [times_line(row) for row in sorted(rows, key=order)])


def times_line(row: Record) -> list[str]:
    """Times in ms."""
    direction = ", causal" if row["is_causal"] and row["mode"] != "decode" else ""
    share = share_of_ours(row)
    ours = row["entrants"][0]
    cells = [
        NAMES.get(row["scheme"], str(row["scheme"])) + direction,
        ", ".join(map(str, row["shape"])),
        milliseconds(ours["seconds"]) if share else ours["skipped"],
        f"{share:.2f}" if share else "",
    ]
    for ready_made in (False, True):
        best = fastest(row, ready_made)
        cells.append(f"{best.name} {milliseconds(best.seconds)}" if best else "")
        cells.append(f"{best.ratio:.2f}" if best else "")
    return cells


def threads_table(several: list[Record], rows: dict[str, Record]) -> str:
    """A line for each row of more than one thread."""
    lines = []
    for row in sorted(several, key=order):
        alone = rows.get(str(row["label"]).split(", ")[0])
        both, one = share_of_ours(row), share_of_ours(alone) if alone else None
        name, _, time, share, *others = times_line(row)
        of_one = f"{both / one:.2f}" if both and one else ""
        lines.append([name, MODES[row["mode"]].lower(), time, share, of_one, *others])
    head = ("", "", "relpos", "of peak", "of one thread", "fastest peer", TIMES)
    return table((*head, "ready-made", TIMES), lines)


def prices_table(rows: Iterable[Record]) -> str:
    """A line for each scheme and direction, a column for each length and way."""
    cells: dict[tuple[str, str], dict[tuple[int, str], str]] = {}
    for row in rows:
        if row["figure"] is not None:
            name = f"{row['name']} / {row['over']}"
            line = cells.setdefault((name, row["direction"]), {})
            aim = f" (≤ {row['target']:.2f})" if row["target"] else ""
            line[row["length"], row["way"]] = f"{row['figure']:.2f}{aim}"
    columns = sorted({column for line in cells.values() for column in line})
    head = [f"L = {length}, {WAYS[way]}" for length, way in columns]
    lines = [
        [*what, *(line.get(n, "") for n in columns)] for what, line in cells.items()
    ]
    return table(["", "", *head], lines)


def milliseconds(seconds: float) -> str:
    """Three digits."""
    number = seconds * 1e3
    return (f"{number:.0f}" if number >= 100 else f"{number:#.3g}") + " ms"


def memory_table(rows: Iterable[Record]) -> str:
    """A column for each row of memory, a line for each entrant."""
    columns = sorted(rows, key=lambda row: (row["mode"], row["shape"][2]))
    names = dict.fromkeys(x["name"] for row in columns for x in row["entrants"])
    head = [
        "",
        *(f"{MODES[row['mode']].lower()}, L = {row['shape'][2]}" for row in columns),
    ]
    lines = []
    for name in names:
        found = [
            next((x.get("bytes") for x in row["entrants"] if x["name"] == name), None)
            for row in columns
        ]
        if any(size is not None for size in found):
            cells = ["" if size is None else f"{size / 1e6:.1f}" for size in found]
            lines.append([name, *cells])
    return table(head, lines)


def everybody(rows: list[Record]) -> list[str]:
    """A folded table for each row of the length that all entrants share."""
    parts = []
    for row in sorted(rows, key=order):
        ours = row["entrants"][0]
        timed = [x for x in row["entrants"] if "share" in x and "share" in ours]
        if row["shape"] != ALL_SHOWN or len(timed) < 2:
            continue
        timed.sort(key=lambda x: float(-x["share"]))
        head = ("", "time", f"{TIMES} relpos", "error", "")
        lines = [
            [x["name"], milliseconds(x["seconds"]), f"{ratio(x, ours):.2f}",
             f"{x['error']:.0e}", "ready-made" * x["ready_made"]]
            for x in timed
        ]  # fmt: skip
        summary = f"<details><summary>{row['label']}</summary>"
        parts.append(f"{summary}\n\n{table(head, lines)}\n\n</details>")
    return parts


def left_out(rows: list[Record]) -> str:
    """Each peer with its reasons, and how many rows they cost."""
    reasons: dict[tuple[str, str], int] = {}
    for row in rows:
        for x in row["entrants"]:
            if "skipped" in x:
                key = x["name"], x["skipped"]
                reasons[key] = reasons.get(key, 0) + 1
    if not reasons:
        return "Nobody."
    lines = [[*key, str(n)] for key, n in sorted(reasons.items())]
    return table(("", "because", "rows"), lines)
