"""The report as HTML: a page (``python -m relpos demo --open``), a cell's output."""

from __future__ import annotations

import sys
import webbrowser
from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from relpos._demo.pictures import FOLDER, PICTURES
from relpos._demo.report import TEXTS, Report, verdict

__all__ = ["PageReport", "page", "show", "write"]

FOLDED = 12  # a table of more rows is folded
WIDE = 2.2  # a picture of a larger ratio of width to height is below its paragraph
STYLE = files("relpos._demo").joinpath("page.css").read_text("utf-8")
BODY = """body { margin: 0; background: #fff; }
@media (prefers-color-scheme: dark) { body { background: #14171a; } }
"""


def page(report: Report) -> str:
    """Return the report as a file in HTML that needs no other file."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>relpos demo: {report.summary()}</title>
<style>{BODY}{STYLE}</style>
</head>
<body>
<main>
{content(report)}
</main>
</body>
</html>
"""


class PageReport(Report):
    """A report that a notebook shows as the page."""

    def _repr_html_(self) -> str:
        return f"<style>{STYLE}</style>\n{content(self)}"


def content(report: Report) -> str:
    """Return the summary, the failures if there are any, and a section a part."""
    parts = [*summary(report), *failures(report)]
    for step, blocks in zip(report.steps, report.blocks, strict=True):
        if blocks:
            parts += section(report, step, blocks)
    return "\n".join(['<div class="relpos-demo">', *parts, "</div>"])


def summary(report: Report) -> Iterator[str]:
    """Yield what was checked, how many checks passed, the time and the CPU."""
    yield "<h1>relpos demo</h1>"
    kind, seconds = "bad" if report.failed else "good", sum(report.seconds)
    yield f'<p class="result {kind}">{report.summary()}, in {seconds:.0f} s</p>'
    if report.facts:
        yield f"<p>{escape(report.setting())}. CPU: {escape(report.cpu)}.</p>"
    if report.scope:
        lines = "".join(f"<li>{escape(line)}</li>" for line in report.scope)
        yield f"<p>The demo checked:</p>\n<ul>{lines}</ul>"
    rows = [
        [step["title"], verdict(step["checks"]) or "-", f"{seconds:.1f} s"]
        for step, seconds in zip(report.steps, report.seconds, strict=False)
    ]
    yield table("The parts of the demo.", ["part", "checks", "time"], rows)


def failures(report: Report) -> Iterator[str]:
    """Yield a table of the checks that failed."""
    rows = [
        [f"{step['title']}: {check['name']}", *limits(check)]
        for step in report.steps
        for check in step["checks"]
        if not check["passed"]
    ]
    if rows:
        yield '<h2 class="bad">Checks that failed</h2>'
        yield table("", ["check", "value", "limit"], rows)


def section(
    report: Report, step: dict[str, Any], blocks: Sequence[tuple[Any, ...]]
) -> Iterator[str]:
    """Yield a part: paragraphs next to pictures, tables, and the list of checks."""
    yield f"<section>\n<h2>{escape(step['title'])}</h2>"
    texts: list[str] = []
    for kind, *block in blocks:
        if kind == "text":
            texts.append(f"<p>{escape(block[0])}</p>")
        elif kind == "table":
            yield from [*texts, table(*block)]
            texts = []
        elif block[0] in report.pictures:
            yield from figure(report, block[0], texts)
            texts = []
    yield from texts
    if step["checks"]:
        rows = [[check["name"], *limits(check)] for check in step["checks"]]
        name = f"{verdict(step['checks'])}: values and limits"
        yield folded(name, boxed("", ["check", "value", "limit"], rows))
    yield "</section>"


def limits(check: dict[str, Any]) -> list[str]:
    """Return the value and the limit of a check."""
    return [f"{check['value']:.3g}", f"{check['relation']} {check['limit']:.3g}"]


def figure(report: Report, name: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield paragraphs and a picture, next to each other if the picture is narrow."""
    described, source = TEXTS["picture"][name], b64encode(report.pictures[name])
    width, height = PICTURES[name][0]
    alt, caption = (escape(described[key].strip()) for key in ("alt", "caption"))
    image = f'<img alt="{alt}" src="data:image/png;base64,{source.decode()}">'
    kind = "wide" if width > WIDE * height else "narrow"
    yield f'<div class="part {kind}">'
    yield from ["<div>", *texts, "</div>", "<figure>"]
    yield f'<div class="box" tabindex="0">{image}</div>'
    yield f"<figcaption>{caption}</figcaption>\n</figure>\n</div>"


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; one of many rows is folded."""
    if len(rows) <= FOLDED:
        return boxed(caption, header, rows)
    return folded(f"{caption} ({len(rows)} rows)", boxed("", header, rows))


def folded(title: str, content: str) -> str:
    """Return content that is shown after a click on its title."""
    return f"<details>\n<summary>{escape(title)}</summary>\n{content}\n</details>"


def boxed(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in a box that scrolls where it is wider than the page."""

    def line(cells: Sequence[str], first: str, other: str) -> str:
        tags = [first, *[other] * (len(cells) - 1)]
        pairs = zip(tags, cells, strict=True)
        return "".join(f"<{tag}>{escape(text)}</{tag[:2]}>" for tag, text in pairs)

    lines = [f"<figcaption>{escape(caption)}</figcaption>"] if caption else []
    lines = ["<figure>", *lines, '<div class="box" tabindex="0">', "<table>"]
    column, row = ('th scope="col"', 'th scope="row"')
    lines.append(f"<thead><tr>{line(header, column, column)}</tr></thead>\n<tbody>")
    lines += [f"<tr>{line(cells, row, 'td')}</tr>" for cells in rows]
    return "\n".join([*lines, "</tbody>", "</table>", "</div>", "</figure>"])


def write(report: Report) -> Path:
    """Write the page into FOLDER and return its path."""
    folder = Path(FOLDER)
    folder.mkdir(exist_ok=True)
    path = folder / "report.html"
    path.write_text(page(report), encoding="utf-8")
    return path


def show(report: Report) -> None:
    """Write the page and open it in a browser, if there is one."""
    path = write(report)
    opened = webbrowser.open(path.resolve().as_uri())
    said = path if opened else f"No browser was found: open {path} in one."
    print(said, file=sys.stderr)  # standard output may be JSON
