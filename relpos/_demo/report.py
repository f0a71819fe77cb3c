"""Output of a step of the demo: text, tables, maps, and checks that are counted."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from relpos._text import html_table, table_lines

__all__ = ["Report"]

# From low to high: 256-colour codes of a terminal, and plain characters.
COLOURS = (20, 27, 33, 75, 153, 255, 224, 216, 209, 202, 160)
CHARACTERS = " .:-=+*#%@"
BARS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 40


def verdict(checks: Sequence[Mapping[str, Any]]) -> str:
    """The results of the checks of a step."""
    bad = sum(not check["passed"] for check in checks)
    if bad:
        return f"{bad} of {len(checks)} checks FAILED"
    return f"passed, {len(checks)} checks" if checks else ""


class Report:
    """Collects what the steps say and prints it, unless `quiet` (for ``--json``)."""

    def __init__(self, *, quiet: bool = False, stream: IO[str] | None = None) -> None:
        self.quiet = quiet
        self.stream = sys.stdout if stream is None else stream
        self.colour = self.stream.isatty() and not os.environ.get("NO_COLOR")
        encoding = getattr(self.stream, "encoding", None) or "ascii"
        self.blocks = encoding.lower().startswith("utf")
        self.showing = ""
        self.facts: dict[str, Any] = {}
        self.steps: list[dict[str, Any]] = []
        self.lines: list[list[str]] = []  # of each step, as they were printed
        self.pictures: dict[str, bytes] = {}  # PNG

    def __repr__(self) -> str:
        return f"<relpos demo: {self.summary()}>"

    def _repr_html_(self) -> str:
        rows = [
            [str(at), step["title"], verdict(step["checks"])]
            for at, step in enumerate(self.steps, 1)
        ]
        return html_table(["step", "", "checks"], rows, [self.summary()])

    @property
    def checks(self) -> list[dict[str, Any]]:
        """All checks so far."""
        return [check for step in self.steps for check in step["checks"]]

    @property
    def passed(self) -> int:
        """Return the number of checks that passed."""
        return sum(check["passed"] for check in self.checks)

    @property
    def failed(self) -> int:
        """Return the number of checks that failed."""
        return len(self.checks) - self.passed

    def summary(self) -> str:
        """The last line."""
        return f"{self.passed} checks passed, {self.failed} failed"

    def as_dict(self, seconds: float) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {
            "facts": self.facts,
            "steps": self.steps,
            "seconds": round(seconds, 2),
            "passed": self.passed,
            "failed": self.failed,
        }

    def progress(self, text: str = "") -> None:
        """Shows what is being worked on, on a terminal only; the next line wipes it."""
        if sys.stderr.isatty() and (text or self.showing):
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
            self.showing = text

    def begin(self, title: str) -> None:
        """Starts a step."""
        number = len(self.steps) + 1
        self.steps.append({"title": title, "text": [], "tables": [], "checks": []})
        self.lines.append([])
        self._write(f"{'' if number == 1 else chr(10)}{number}. {title}")

    def end(self) -> None:
        """Ends a step: how its checks went, if it has any."""
        checks = self.steps[-1]["checks"]
        if checks:
            colour = 32 if all(check["passed"] for check in checks) else 31
            self._write(f"   -- {self._paint(verdict(checks), colour)}")

    def say(self, text: str) -> None:
        """One line of explanation."""
        self.steps[-1]["text"].append(text)
        self._write(f"   {text}")

    def check(
        self,
        name: str,
        value: float,
        limit: float,
        *,
        at_least: bool = False,
        in_table: bool = False,
    ) -> bool:
        """Counts a check: value <= limit, or value >= limit if `at_least`.

        NaN fails both ways. `in_table`: a table shows value and limit, so that only
        a failure gets a line of its own.
        """
        value, limit = float(value), float(limit)
        passed = value >= limit if at_least else value <= limit
        self.steps[-1]["checks"].append(
            {
                "name": name,
                "value": value,
                "relation": ">=" if at_least else "<=",
                "limit": limit,
                "passed": passed,
            }
        )
        if in_table and passed:
            return True
        relation = ">=" if at_least else "<="
        word = self._paint("passed", 32) if passed else self._paint("FAILED", 31)
        self._write(f"   {word}: {name}: {value:.3g} {relation} {limit:.3g}")
        return passed

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows of text under a header; the first column to the left, others right."""
        rows = [list(row) for row in rows]
        self.steps[-1]["tables"].append({"header": list(header), "rows": rows})
        for line in table_lines(header, rows):
            self._write("   " + line)

    def curves(
        self,
        title: str,
        curves: Mapping[str, Sequence[float]],
        top: float,
        at: Sequence[int],
    ) -> None:
        """A line per curve: its course, from 0 to `top`, and its values `at` steps.

        A bar of the course is the mean over its share of the steps, counted from 1.
        """
        self.steps[-1].setdefault("curves", {})[title] = {
            name: [round(x, 4) for x in values] for name, values in curves.items()
        }
        rows = []
        for name, values in curves.items():
            parts = np.array_split(np.asarray(values), min(CURVE_WIDTH, len(values)))
            course = "".join(self._bar(float(np.mean(x)) / top) for x in parts)
            rows.append([name, course, *(f"{values[step - 1]:.3f}" for step in at)])
        self.table([title, "", *(f"step {step}" for step in at)], rows)

    def words(self, words: Sequence[str], vectors: npt.ArrayLike, limit: float) -> None:
        """A text map: one line per word, one cell per dimension.

        Colours (or characters, where the output is no terminal) run from -limit to
        limit.
        """
        width = max(map(len, words))
        for word, vector in zip(words, np.asarray(vectors), strict=True):
            cells = "".join(self._cell(x / limit) for x in vector)
            numbers = " ".join(f"{x:6.2f}" for x in vector)
            self._write(f"   {word:>{width}} {cells}  {numbers}")

    def matrix(
        self,
        array: npt.ArrayLike,
        *,
        form: str = "6.2f",
        mark: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """The numbers of a matrix; entries that `mark` names are put in brackets."""
        array = np.asarray(array)
        mark = np.zeros(array.shape, dtype=bool) if mark is None else mark
        for row, marks in zip(array, mark, strict=True):
            cells = [
                self._paint(f"[{x:{form}}]", 33) if marked else f" {x:{form}} "
                for x, marked in zip(row, marks, strict=True)
            ]
            self._write("   " + "".join(cells))

    def _cell(self, x: float) -> str:
        """x in [-1, 1] as a coloured or plain cell two columns wide."""
        share = (np.clip(x, -1.0, 1.0) + 1.0) / 2.0
        if self.colour:
            code = COLOURS[round(share * (len(COLOURS) - 1))]
            return f"\033[48;5;{code}m  \033[0m"
        return CHARACTERS[round(share * (len(CHARACTERS) - 1))] * 2

    def _bar(self, share: float) -> str:
        """A share of 1 as the height of a character; NaN as all of it."""
        bars = BARS if self.blocks else CHARACTERS
        share = 1.0 if np.isnan(share) else float(np.clip(share, 0.0, 1.0))
        return bars[round(share * (len(bars) - 1))]

    def _paint(self, text: str, code: int) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colour else text

    def _write(self, line: str) -> None:
        self.lines[-1].append(line)
        if not self.quiet:
            self.progress()
            print(line, file=self.stream)
