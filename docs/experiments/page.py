"""Results of experiments: their files, and the tables of docs that show them."""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict

import numpy as np

import relpos
from relpos import data
from relpos._bench import cpu_name

FOLDER = Path(data.__file__).with_name("experiments")
_DIGITS = 4

PAGES = [
    Path(__file__).parents[1] / name for name in ("experiments.md", "real-data.md")
]
#: Tables of more rows are folded.
ROWS = 12
_BLOCK = r"<!-- results of {} -->\n(.*?)<!-- end -->\n"


def spread(seeds: Sequence[float], digits: int = 2) -> str:
    """The mean over the seeds, and the least and the largest where they differ."""
    mean, least, largest = (
        f"{number:.{digits}f}" for number in (np.mean(seeds), min(seeds), max(seeds))
    )
    return mean if least == largest else f"{mean} [{least}, {largest}]"


def alignment(column: Sequence[str]) -> str:
    """Return the mark of Markdown for a column: numbers to the right, words left."""
    return "---:" if all(re.match(r"-?\d|$", cell) for cell in column) else "---"


def names(text: str) -> set[str]:
    """The experiments whose results are on the page."""
    return {*re.findall(r"<!-- results of (\S+) -->", text)}


def module_of(name: str) -> ModuleType:
    return import_module(f"docs.experiments.{name.replace('-', '_')}")


def filled(text: str, name: str) -> str:
    """The page with the results of an experiment between its two comments."""
    found = data.experiment(name)
    header, *rows = module_of(name).table(found.results)
    cells = [header, [alignment(column) for column in zip(*rows, strict=True)], *rows]
    lines = "".join(f"| {' | '.join(row)} |\n" for row in cells)
    if len(rows) > ROWS:
        fold = f"<details><summary>All numbers, {len(rows)} rows</summary>"
        lines = f"{fold}\n\n{lines}\n</details>\n"
    command = f"python -m docs.experiments {name}"
    where = f"{found.cpu}, threads: {found.threads}"
    seeds = "1 seed" if len(found.seeds) == 1 else f"{len(found.seeds)} seeds"
    source = f"`{command}`: {found.seconds:.0f} s, {seeds}; {where}.\n"
    block = f"<!-- results of {name} -->\n\n{lines}\n{source}\n<!-- end -->\n"
    return re.sub(_BLOCK.format(name), lambda _: block, text, flags=re.DOTALL)


def write(name: str) -> None:
    """Puts the stored results of an experiment onto its page."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(filled(text, name), encoding="utf-8")


# ---- files ---------------------------------------------------------------------------


class Source(TypedDict):
    """Source of results, as the files have it."""

    versions: dict[str, str]
    cpu: str
    threads: int
    seconds: float


def source(seconds: float) -> Source:
    """Versions, processor, threads and time of a run that ends now."""
    versions = {
        "relpos": relpos.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    if "torch" in sys.modules:
        versions["torch"] = version("torch")
    return {
        "versions": versions,
        "cpu": cpu_name(),
        "threads": relpos.get_num_threads(),
        "seconds": round(seconds, 1),
    }


def plain(value: Any) -> Any:
    """Arrays as lists, floats of so many digits as errors of a few percent need."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def as_json(record: Mapping[str, Any]) -> str:
    """As JSON, a list of numbers on one line."""
    text = json.dumps(plain(record), indent=1, allow_nan=False)
    flat = re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m[0].split()), text)
    return flat.replace("[ ", "[").replace(" ]", "]") + "\n"
