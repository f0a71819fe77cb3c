"""The report of the demo: its texts, tables and checks, and its lines in a terminal."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from time import perf_counter
from types import MappingProxyType
from typing import IO, Any, NamedTuple, NotRequired, TypedDict

import numpy as np

from relpos._bench import cpu_name

TEXTS = tomllib.loads(files("relpos._demo").joinpath("texts.toml").read_text("utf-8"))

CHARACTERS = " .:-=+*#%@"
BARS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 40
WIDTH = 80


class Check(TypedDict):
    """A number that a step compares with its limit."""

    name: str
    value: float
    relation: str  # "<=" or ">="
    limit: float
    passed: bool


class Table(TypedDict):
    """A table of texts."""

    header: list[str]
    rows: list[list[str]]


class Step(TypedDict):
    """The part of a step in the output of ``--json``."""

    title: str
    text: list[str]
    tables: list[Table]
    checks: list[Check]
    missing: NotRequired[str]  # the package without which the step does nothing
    curves: NotRequired[dict[str, dict[str, list[float]]]]


class Document(TypedDict):
    """The output of ``--json``."""

    facts: dict[str, Any]  # of relpos.show_config
    steps: list[Step]
    seconds: float
    passed: int
    failed: int


class TextBlock(NamedTuple):
    """A paragraph of the page."""

    text: str


class TableBlock(NamedTuple):
    """A table of the page."""

    caption: str
    header: list[str]
    rows: list[list[str]]


class PictureBlock(NamedTuple):
    """A picture that relpos._demo.page draws, and the data that it shows."""

    name: str
    data: dict[str, Any]


Block = TextBlock | TableBlock | PictureBlock


def in_words(check: Check) -> str:
    """Return a check as a line."""
    return "{name}: {value:.3g} {relation} {limit:.3g}".format(**check)


def verdict(step: Step) -> str:
    """Return the number of checks that passed, or that failed if any did."""
    if "missing" in step:
        return f"{step['missing']} is missing"
    checks = step["checks"]
    failed = sum(not check["passed"] for check in checks)
    if failed:
        return f"{failed} of {len(checks)} checks FAILED"
    if not checks:
        return ""
    return "1 check passed" if len(checks) == 1 else f"{len(checks)} checks passed"


class Report:
    """A collector of what the steps show. It prints a line for each, unless `quiet`.

    `steps` is what ``--json`` prints, and `blocks` what the page shows of each step.
    relpos._demo.page draws the pictures among them into `pictures`.
    """

    def __init__(self, *, quiet: bool = False, stream: IO[str] | None = None) -> None:
        self.quiet = quiet
        self.stream = sys.stdout if stream is None else stream
        # Colours are for a terminal that shows them; NO_COLOR refuses them.
        self.colour = self.stream.isatty() and not os.environ.get("NO_COLOR")
        encoding = getattr(self.stream, "encoding", None) or "ascii"
        # A stream that is not UTF-8 cannot show the blocks.
        self.bars = BARS if encoding.lower().startswith("utf") else CHARACTERS
        self.showing = ""
        self.cpu = cpu_name()
        self.facts: dict[str, Any] = {}
        self.steps: list[Step] = []
        self.blocks: list[list[Block]] = []
        self.pictures: dict[str, bytes] = {}  # PNG
        self.scope: list[str] = []  # a line for each kind of thing that was checked
        self.closing: list[str] = []  # lines of the summary in a terminal
        self.began = perf_counter()
        self.ends: list[float] = []

    def __repr__(self) -> str:
        return f"<relpos demo: {self.summary()}>"

    @property
    def checks(self) -> list[Check]:
        """The checks of all steps."""
        checks: list[Check] = []
        for step in self.steps:
            checks += step["checks"]
        return checks

    @property
    def passed(self) -> int:
        return sum(check["passed"] for check in self.checks)

    @property
    def failed(self) -> int:
        return len(self.checks) - self.passed

    @property
    def seconds(self) -> list[float]:
        # The time of a step is from the end of the one before.
        return [float(x) for x in np.diff([self.began, *self.ends])]

    def summary(self) -> str:
        return f"{self.passed} checks passed, {self.failed} failed"

    def setting(self) -> str:
        """Return the version, the kernels, the threads, NumPy and BLAS as a text."""
        facts = {"blas": "none"} | self.facts
        blas = " ".join(facts["blas"].split()[:3])  # without its options
        return (
            "relpos {version}, kernels {isa}, threads: {threads}, NumPy {numpy}, "
            "BLAS: {0}".format(blas, **facts)
        )

    def as_dict(self, seconds: float) -> Document:
        """Return everything that ``--json`` prints."""
        return {
            "facts": self.facts,
            "steps": self.steps,
            "seconds": round(seconds, 2),
            "passed": self.passed,
            "failed": self.failed,
        }

    # ---- what steps call -------------------------------------------------------------

    def begin(self, name: str) -> None:
        """Start the step whose texts are under `name`."""
        self.texts = TEXTS.get(name, {})
        title = self.texts.get("title", name)
        self.steps.append({"title": title, "text": [], "tables": [], "checks": []})
        self.blocks.append([])
        self.progress(title)

    def end(self) -> None:
        self.ends.append(perf_counter())
        step, number = self.steps[-1], len(self.steps)
        result = verdict(step)
        colour = 32  # green; a step that was left out is yellow, and a failure is red
        if "missing" in step:
            colour = 33
        elif "FAILED" in result:
            colour = 31
        line = f"{number:>2}. {step['title']:<46}"
        self.write(f"{line} {self._paint(f'{result:<21}', colour)}", end="")
        self.write(f" {self.seconds[-1]:5.1f} s")

    def progress(self, text: str = "") -> None:
        """Show on a terminal what is being computed; the next line replaces it."""
        # Progress is on standard error, so that standard output has results alone.
        if sys.stderr.isatty() and (text or self.showing):
            print(f"\r\033[K{text[: WIDTH - 1]}", end="", file=sys.stderr, flush=True)
            self.showing = text

    def text(self, key: str, **values: Any) -> str:
        """Return a text of this step with its values; `key` itself if it is no key."""
        # Line ends of the texts are not those of the page or the terminal.
        return " ".join(self.texts.get(key, key).format(**values).split())

    def note(self, text: str) -> None:
        self.steps[-1]["text"].append(text)

    def say(self, key: str, **values: Any) -> None:
        self.note(self.text(key, **values))
        self.blocks[-1].append(TextBlock(self.text(key, **values)))

    def lacks(self, package: str, key: str) -> None:
        """End a step that needs a package which is not installed, and say so."""
        self.steps[-1]["missing"] = package
        self.say(key)

    def covers(self, **values: Any) -> None:
        """Add a line about what this step checks to the summary."""
        self.scope.append(self.text("scope", **values))

    def picture(self, name: str, **data: Any) -> None:
        """Ask for a picture of relpos._demo.page, with the data that it shows."""
        self.blocks[-1].append(PictureBlock(name, data))

    def check(
        self, name: str, value: float, limit: float, *, at_least: bool = False
    ) -> bool:
        """Count a check: value <= limit, or value >= limit if `at_least`.

        NaN fails both. A failure is printed at once.
        """
        value, limit = float(value), float(limit)
        # A comparison with NaN is false, so that NaN fails both.
        passed = value >= limit if at_least else value <= limit
        check = Check(
            name=name,
            value=value,
            relation=">=" if at_least else "<=",
            limit=limit,
            passed=passed,
        )
        self.steps[-1]["checks"].append(check)
        if not passed:
            self.write(f"    {self._paint('FAILED', 31)}: {in_words(check)}")
        return passed

    def table(
        self,
        key: str,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        values: Mapping[str, object] = MappingProxyType({}),
        hidden: int = 0,
    ) -> None:
        """Add a table; `hidden` columns after the first are not on the page."""
        table = Table(header=list(header), rows=[list(row) for row in rows])
        self.steps[-1]["tables"].append(table)
        # The page leaves out what only a reader of the JSON needs.
        shown = [[row[0], *row[1 + hidden :]] for row in table["rows"]]
        shown_header = [header[0], *header[1 + hidden :]]
        caption = self.text(key, **values)
        self.blocks[-1].append(TableBlock(caption, shown_header, shown))

    def curves(
        self,
        title: str,
        curves: Mapping[str, Sequence[float]],
        top: float,
        at: Sequence[int],
    ) -> None:
        """Add curves, and a table of their values `at` some steps, counted from 1.

        The table of ``--json`` also has the course of each from 0 to `top`, in
        characters: each is the mean of its share of the steps.
        """
        self.steps[-1].setdefault("curves", {})[title] = {
            name: [round(x, 4) for x in values] for name, values in curves.items()
        }
        rows = []
        for name, values in curves.items():
            # As many characters as there are steps, if these are fewer than the width.
            parts = np.array_split(np.asarray(values), min(CURVE_WIDTH, len(values)))
            course = "".join(self._bar(float(np.mean(x)) / top) for x in parts)
            numbers = [f"{values[step - 1]:.3f}" for step in at]
            rows.append([name, course, *numbers])
        header = [title, ""]
        header += [f"step {step}" for step in at]
        self.table("table", header, rows, hidden=1)

    # ---- the terminal ----------------------------------------------------------------

    def _bar(self, share: float) -> str:
        """Return a share of 1 as the height of a character; NaN as the full height."""
        share = 1.0 if np.isnan(share) else float(np.clip(share, 0.0, 1.0))
        return self.bars[round(share * (len(self.bars) - 1))]

    def _paint(self, text: str, code: int) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colour else text

    def write(self, line: str = "", end: str = "\n") -> None:
        if not self.quiet:
            self.progress()
            print(line, file=self.stream, end=end)
