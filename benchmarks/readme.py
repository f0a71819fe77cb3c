"""The lines of speed in the README of the repository: a column for each CPU."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.goals import Record, fastest, is_long
from benchmarks.results import MEASURED, Results
from benchmarks.text import table

BEGIN = "<!-- written by python -m benchmarks --report -->"
END = "<!-- end -->"
#: The rows of the table, by their schemes.
SAID = {
    "Music Transformer and Transformer-XL": ("music", "xl"),
    "Shaw's relative keys and values": ("shaw",),
    "attention without positions": ("plain",),
}
SCHEMES = [scheme for schemes in SAID.values() for scheme in schemes]
PEERS = {"numpy": "NumPy", "torch": "PyTorch", "jax": "JAX"}
PICTURE = "time of the fastest peer over that of relpos, against the length"


class Column(NamedTuple):
    """A CPU, and the time of the fastest peer over that of relpos in each row."""

    title: str
    measured: str
    lengths: Sequence[int]
    peers: str
    ratios: Mapping[str, Sequence[float]]  # by scheme

    def cell(self, schemes: Sequence[str]) -> str:
        """The lowest and the highest ratio of some schemes."""
        some = [ratio for scheme in schemes for ratio in self.ratios[scheme]]
        return f"{min(some):.2f} to {max(some):.2f}" if some else "not measured"

    def reach(self) -> str:
        """The lengths from the shortest to the longest."""
        shortest, longest = min(self.lengths), max(self.lengths)
        return f"{shortest} to {longest}" if shortest < longest else str(longest)


def with_lines(text: str, results: Results, folder: Path = MEASURED) -> str:
    """The text with what is between the two marks written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise ValueError(f"README.md: no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{in_short(results, folder)}\n{END}{after}"


def in_short(results: Results, folder: Path) -> str:
    """A table of all CPUs, and the picture of the results."""
    found = columns(results, folder)
    lines = [
        *([said, *(x.cell(schemes) for x in found)] for said, schemes in SAID.items()),
        ["lengths", *(x.reach() for x in found)],
        ["rows", *(str(sum(map(len, x.ratios.values()))) for x in found)],
        ["peers", *(x.peers for x in found)],
        ["measured", *(x.measured for x in found)],
    ]
    cpu = results.facts["cpu"]
    titles = [each["title"] for each in listed(folder) if each["name"] == cpu]
    picture = f"![{PICTURE}, on {titles[0] if titles else cpu}]"
    written = table(["", *(x.title for x in found)], lines)
    return f"{written}\n\n{picture}(benchmarks/pictures/ratios.svg)"


def listed(folder: Path) -> list[Record]:
    """The tables of cpus.toml."""
    text = (folder / "cpus.toml").read_text(encoding="utf-8")
    found: list[Record] = tomllib.loads(text)["cpu"]
    return found


def columns(results: Results, folder: Path) -> list[Column]:
    """The CPUs that are listed, in their order, and those with rows alone."""
    stored = [Results.read(path) for path in sorted(folder.glob("*.json"))]
    full = {each.facts["cpu"]: each for each in [*stored, results]}
    found = []
    for each in listed(folder):
        if rows := full.pop(each["name"], None):
            found.append(of_rows(each["title"], rows))
        else:
            ratios = {scheme: each.get(scheme, []) for scheme in SCHEMES}
            of_all = each["measured"], each["lengths"], each["peers"], ratios
            found.append(Column(each["title"], *of_all))
    found += [of_rows(name, rows) for name, rows in full.items()]
    return [column for column in found if any(column.ratios.values())]


def of_rows(title: str, results: Results) -> Column:
    """The column of a CPU with a file of rows."""
    ratios: dict[str, list[float]] = {scheme: [] for scheme in SCHEMES}
    lengths, dates = set(), set()
    for row in results.rows.values():
        if is_long(row, *SCHEMES) and (best := fastest(row)):
            ratios[row["scheme"]].append(best.ratio)
            lengths.add(row["shape"][2])
            dates.add(row["date"])
    measured = datetime.fromisoformat(max(dates)).strftime("%B %Y") if dates else ""
    peers = ", ".join(said for name, said in PEERS.items() if results.facts.get(name))
    return Column(title, measured, sorted(lengths), peers, ratios)
