"""The pictures of the demo, where matplotlib is installed."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import relpos
from relpos._demo.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FOLDER", "PICTURES", "draw_missing", "in_notebook", "pictures"]

FOLDER = "relpos-demo"


Drawing = Callable[..., Any]


def pictures(report: Report) -> None:
    """Draw the pictures of all steps before this one."""
    report.begin("pictures")
    try:
        missing = draw_missing(report)
    except ImportError:
        report.say("missing")
        return
    report.check("pictures missing", missing, 0)


def draw_missing(report: Report) -> int:
    """Draw each picture that a step asked for; return how many are not PNG files.

    In a notebook they are part of the report; elsewhere they are files in FOLDER, too.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    asked = [block for step in report.blocks for block in step if block[0] == "picture"]
    for _, name, data in asked:
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
            folder = Path(FOLDER)
            folder.mkdir(exist_ok=True)
            path = folder / f"{name}.png"
            path.write_bytes(report.pictures[name])
            report.note(f"{path}")
    return sum(x[:4] != b"\x89PNG" for x in report.pictures.values())


def in_notebook() -> bool:
    """Return True in a kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def sentences(figure: Figure, words: Any, ways: Mapping[str, Any]) -> None:
    """Draw the vectors of both sentences, A above B, a panel for each encoding."""
    labels = [*words[0], "", *words[1]]
    for ax, (way, pair) in zip(figure.subplots(1, 3), ways.items(), strict=True):
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
    ax.set(xscale="log", xlabel=unit, ylim=(len(rows) - 0.5, -0.5))
    ax.set_yticks(range(len(rows)), rows)
    ax.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)


def attention(figure: Figure, maps: Mapping[str, Any]) -> None:
    """Draw weights with and without the relative term, one above the other."""
    for ax, (title, weights) in zip(figure.subplots(2, 1), maps.items(), strict=True):
        relpos.plot.attention_map(weights, title=title, ax=ax)


def losses(figure: Figure, curves: Mapping[str, Any]) -> None:
    """Draw the trained curves, a panel for each title."""
    axes = np.atleast_1d(figure.subplots(1, len(curves), sharey=True))
    for ax, (title, of) in zip(axes, curves.items(), strict=True):
        relpos.plot.loss_curves(of, title=title, ax=ax)


def rotary(figure: Figure, same: Any, octaves: Sequence[Any], means: Any) -> None:
    """Draw the product of a vector and its rotation by the distance."""
    ax = figure.subplots()
    ax.plot(np.arange(1, len(same)), same[1:], label="each distance", linewidth=0.8)
    centres = [float(np.sqrt(low * (high - 1))) for low, high in octaves]
    ax.plot(centres, means, "o-", label="mean of an octave")
    ax.set(xscale="log", xlabel="distance r", ylabel="q · R(r) q / q · q")
    ax.legend(frameon=False)


#: The size of each in inches, and what draws it. Its texts are in texts.toml.
PICTURES: dict[str, tuple[tuple[float, float], Drawing]] = {
    "sentences": ((8.4, 4.2), sentences),
    "skew": ((11.0, 3.0), lambda figure: relpos.plot.skew_steps(5, figure=figure)),
    "attention": ((7.0, 4.6), attention),
    "layers": ((7.0, 3.4), dots),
    "fingerprints": (
        (13.0, 4.8),
        lambda figure: relpos.plot.fingerprints(figure=figure),
    ),
    "times": ((7.4, 6.4), dots),
    "training": ((9.6, 3.6), losses),
    "rotary": ((6.4, 3.8), rotary),
    "pytorch": ((7.4, 6.4), dots),
}
