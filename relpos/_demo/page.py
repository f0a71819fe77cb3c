"""The pictures of the demo, if matplotlib is installed, and the report as HTML.

The report is a page (``python -m relpos demo --open``), and the output of a cell.
"""

from __future__ import annotations

import io
import sys
import webbrowser
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import relpos
from relpos._demo.report import (
    TEXTS,
    Block,
    Check,
    PictureBlock,
    Report,
    Step,
    TableBlock,
    TextBlock,
    verdict,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "relpos-demo"
FOLDED = 12  # a table of more rows is folded
WIDE = 2.2  # a picture of a larger ratio of width to height is below its paragraph
STYLE = files("relpos._demo").joinpath("page.css").read_text("utf-8")
BODY = """body { margin: 0; background: #fff; }
@media (prefers-color-scheme: dark) { body { background: #14171a; } }
"""


# ---- pictures ------------------------------------------------------------------------


def pictures(report: Report) -> None:
    report.begin("pictures")
    try:
        missing = draw_missing(report)
    except ImportError:
        report.lacks("matplotlib", "missing")
        return
    report.check("pictures missing", missing, 0)


def draw_missing(report: Report) -> int:
    """Draw each picture that a step asked for; return how many are not PNG files.

    In a notebook they are part of the report; elsewhere they are files in FOLDER, too.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    requests = []
    for blocks in report.blocks:
        requests += [block for block in blocks if isinstance(block, PictureBlock)]
    for name, data in requests:
        # A picture is drawn once, though this function is called twice.
        if name in report.pictures:
            continue
        report.progress(f"drawing {name}")
        size, draw = PICTURES[name]
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)  # no window system knows of it
        draw(figure, **data)
        stream = io.BytesIO()
        figure.savefig(stream, dpi=120, format="png")
        report.pictures[name] = stream.getvalue()
        if not in_notebook():
            path = path_of(f"{name}.png")
            path.write_bytes(report.pictures[name])
            report.note(f"{path}")
    # The first bytes of a PNG file.
    return sum(x[:4] != b"\x89PNG" for x in report.pictures.values())


def path_of(name: str) -> Path:
    folder = Path(FOLDER)
    folder.mkdir(exist_ok=True)
    return folder / name


def in_notebook() -> bool:
    # IPython has no shell outside of a session, and a shell has a kernel in a notebook.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def sentences(figure: Figure, words: Any, ways: Mapping[str, Any]) -> None:
    """Draw the vectors of both sentences, A above B, a panel for each encoding."""
    labels = [*words[0], "", *words[1]]
    for ax, (way, pair) in zip(figure.subplots(1, 3), ways.items(), strict=True):
        # A row of nan is a gap between the two sentences.
        gap = np.full((1, pair[0].shape[1]), np.nan)
        ax.imshow(np.concatenate([pair[0], gap, pair[1]]), "RdBu_r", vmin=-2, vmax=2)
        ax.set_title(way, fontsize=10)
        ax.set_xticks([])
        ax.set_yticks([n for n, label in enumerate(labels) if label])
        ax.set_yticklabels([label for label in labels if label])


def dots(
    figure: Figure, rows: Sequence[str], series: Mapping[str, Any], unit: str
) -> None:
    """Draw numbers of each row on a logarithmic axis."""
    ax = figure.subplots()
    for (name, numbers), marker in zip(series.items(), "osD^", strict=False):
        ax.plot(numbers, range(len(rows)), marker, label=name, alpha=0.8)
    # The first row is at the top, so that the limits are in reverse order.
    ax.set(xscale="log", xlabel=unit, ylim=(len(rows) - 0.5, -0.5))
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)


def attention(figure: Figure, maps: Mapping[str, Any]) -> None:
    """Draw weights with and without the relative term, one above the other."""
    for ax, (title, weights) in zip(figure.subplots(2, 1), maps.items(), strict=True):
        relpos.plot.attention_map(weights, title=title, ax=ax)


def losses(figure: Figure, curves: Mapping[str, Any]) -> None:
    axes = np.atleast_1d(figure.subplots(1, len(curves), sharey=True))
    for ax, (title, of) in zip(axes, curves.items(), strict=True):
        relpos.plot.loss_curves(of, title=title, ax=ax)


def rotary(figure: Figure, same: Any, octaves: Sequence[Any], means: Any) -> None:
    """Draw the product of a vector and its rotation by the distance."""
    ax = figure.subplots()
    ax.plot(np.arange(1, len(same)), same[1:], label="each distance", linewidth=0.8)
    # The geometric mean, which is the middle on a logarithmic axis.
    centres = [float(np.sqrt(low * (high - 1))) for low, high in octaves]
    ax.plot(centres, means, "o-", label="mean of an octave")
    ax.set(xscale="log", xlabel="distance r", ylabel="q · R(r) q / q · q")
    ax.legend(frameon=False)


def skew(figure: Figure) -> None:
    """Draw the steps of the skew at a length of 5."""
    relpos.plot.skew_steps(5, figure=figure)


def fingerprints(figure: Figure) -> None:
    """Draw the scores of each scheme alone."""
    relpos.plot.fingerprints(figure=figure)


#: The size of each in inches, and what draws it. Its texts are in texts.toml.
PICTURES: dict[str, tuple[tuple[float, float], Callable[..., Any]]] = {
    "sentences": ((8.4, 4.2), sentences),
    "skew": ((11.0, 3.0), skew),
    "attention": ((4.4, 4.6), attention),
    "layers": ((7.0, 3.4), dots),
    "fingerprints": ((13.0, 4.8), fingerprints),
    "times": ((7.4, 6.4), dots),
    "training": ((9.6, 3.6), losses),
    "rotary": ((6.4, 3.8), rotary),
    "pytorch": ((7.4, 6.4), dots),
}


# ---- the page ------------------------------------------------------------------------


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
    parts = [*summary(report), *failures(report)]
    for step, blocks in zip(report.steps, report.blocks, strict=True):
        if blocks:
            parts += section(report, step, blocks)
    return "\n".join(['<div class="relpos-demo">', *parts, "</div>"])


def summary(report: Report) -> Iterator[str]:
    yield "<h1>relpos demo</h1>"
    kind, seconds = "bad" if report.failed else "good", sum(report.seconds)
    yield f'<p class="result {kind}">{report.summary()}, in {seconds:.0f} s</p>'
    if report.facts:
        yield f"<p>{escape(report.setting())}. CPU: {escape(report.cpu)}.</p>"
    if report.scope:
        lines = "".join(f"<li>{escape(line)}</li>" for line in report.scope)
        yield f"<p>The demo checked:</p>\n<ul>{lines}</ul>"
    # A step that still runs has no end yet, and so no seconds.
    rows = [
        [step["title"], verdict(step) or "-", f"{seconds:.1f} s"]
        for step, seconds in zip(report.steps, report.seconds, strict=False)
    ]
    yield table("The parts of the demo.", ["part", "checks", "time"], rows)


def failures(report: Report) -> Iterator[str]:
    rows = []
    for step in report.steps:
        for check in step["checks"]:
            if not check["passed"]:
                name = f"{step['title']}: {check['name']}"
                rows.append([name, *limits(check)])
    if rows:
        yield '<h2 class="bad">Checks that failed</h2>'
        yield table("", ["check", "value", "limit"], rows)


def section(report: Report, step: Step, blocks: Sequence[Block]) -> Iterator[str]:
    """Yield a part: paragraphs next to pictures, tables, and the list of checks."""
    yield f"<section>\n<h2>{escape(step['title'])}</h2>"
    # Paragraphs wait, because those before a picture go next to it.
    texts: list[str] = []
    for block in blocks:
        if isinstance(block, TextBlock):
            texts.append(f"<p>{escape(block.text)}</p>")
        elif isinstance(block, TableBlock):
            yield from [*texts, table(*block)]
            texts = []
        elif block.name in report.pictures:
            # A picture that was not drawn leaves its paragraphs to the next part.
            yield from figure(report, block.name, texts)
            texts = []
    yield from texts
    if step["checks"]:
        rows = [[check["name"], *limits(check)] for check in step["checks"]]
        name = f"{verdict(step)}: values and limits"
        yield folded(name, boxed("", ["check", "value", "limit"], rows))
    yield "</section>"


def limits(check: Check) -> list[str]:
    """Return the value of a check and its limit, as two cells."""
    return [f"{check['value']:.3g}", f"{check['relation']} {check['limit']:.3g}"]


def figure(report: Report, name: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield paragraphs and a picture, next to each other if the picture is narrow."""
    described, source = TEXTS["picture"][name], b64encode(report.pictures[name])
    width, height = PICTURES[name][0]
    alt, caption = (escape(described[key].strip()) for key in ("alt", "caption"))
    # The page needs no other file, so that it holds the pictures themselves.
    image = f'<img alt="{alt}" src="data:image/png;base64,{source.decode()}">'
    kind = "wide" if width > WIDE * height else "narrow"
    yield f'<div class="part {kind}">'
    yield from ["<div>", *texts, "</div>", "<figure>"]
    yield f'<div class="box" tabindex="0">{image}</div>'
    yield f"<figcaption>{caption}</figcaption>\n</figure>\n</div>"


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
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
    path = path_of("report.html")
    path.write_text(page(report), encoding="utf-8")
    return path


def show(report: Report) -> None:
    """Write the page and open it in a browser, if there is one."""
    path = write(report)
    opened = webbrowser.open(path.resolve().as_uri())
    line = path if opened else f"No browser was found: open {path} in one."
    print(line, file=sys.stderr)  # standard output may be JSON
