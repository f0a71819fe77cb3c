"""The JSON file: facts of the machine, and a line for each row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import relpos
from benchmarks.timing import BEST_ISA, CORES, cpu_name

#: A file for each model of CPU, and cpus.toml, which has their titles.
MEASURED = Path(__file__).parent / "measured"
PACKAGES = ("numpy", "torch", "jax")
#: Lists of the file, and attributes of `Results`.
KINDS = ("rows", "memory", "prices")

#: What was measured where: CPU, kernels and versions, by name.
Facts = dict[str, Any]


class Figures(TypedDict, total=False):
    """Figures that are measured of an entrant."""

    error: float
    seconds: float
    share: float  # of what the yardstick does in the same time
    kept: int  # repeats in which the clock did not move
    tried: int
    bytes: int | None


class Entrant(Figures):
    """relpos or a peer in a row: its figures, or the reason why it has none."""

    name: str
    ready_made: bool
    skipped: NotRequired[str]


class Record(TypedDict):
    """A row: fields of `Spec`, and the entrants, of which relpos is the first."""

    scheme: str
    is_causal: bool
    mode: str
    shape: list[int]
    threads: int
    peers: list[str]
    label: str
    entrants: list[Entrant]
    useful: NotRequired[float]
    date: NotRequired[str]


class PriceRecord(TypedDict):
    """The time of a scheme over that of plain attention; None if none was kept."""

    label: str
    name: str
    over: str
    way: str
    direction: str
    length: int
    heads: int
    figure: float | None
    lowest: float | None
    highest: float | None
    kept: int
    tried: int
    seconds: float | None
    error: float | None
    target: float | None
    date: str


def stored_path() -> Path:
    """Return the file of the results of this model of CPU."""
    return MEASURED / (re.sub(r"\W+", "-", cpu_name().lower()).strip("-") + ".json")


def facts() -> Facts:
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "cpu": cpu_name(),
        "isa": BEST_ISA,
        "cores": CORES,
        "relpos": relpos.__version__,
        **versions,
    }


class Results:
    """Rows of each kind by label; a row that is measured again replaces the old one."""

    def __init__(self, about: Facts | None = None) -> None:
        self.facts = facts() if about is None else about
        self.rows: dict[str, Record] = {}
        self.memory: dict[str, Record] = {}
        self.prices: dict[str, PriceRecord] = {}

    @classmethod
    def read(cls, path: Path) -> Results:
        stored = json.loads(path.read_text(encoding="utf-8"))
        results = cls(stored["facts"])
        for kind in KINDS:
            rows = stored.get(kind, [])  # earlier files have no prices
            setattr(results, kind, {row["label"]: row for row in rows})
        return results

    def write(self, path: Path) -> None:
        """Replace the file as a whole, so that a reader never sees a half."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        parts = [f'"facts": {json.dumps(self.facts)}']
        parts += [f'"{kind}": {lines(getattr(self, kind).values())}' for kind in KINDS]
        text = "{\n" + ",\n".join(parts) + "\n}\n"
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)


def lines(rows: Iterable[Record | PriceRecord]) -> str:
    """Return a JSON list, a row in each line."""
    return "[\n" + ",\n".join(json.dumps(rounded(row)) for row in rows) + "\n]"


def rounded(value: Any) -> Any:
    """Return numbers of JSON with four digits, which is more than repeats agree in."""
    if isinstance(value, dict):
        return {name: rounded(x) for name, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(x) for x in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
