"""Step 9: pictures, where matplotlib is installed."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import relpos
from relpos._demo.recorded import load
from relpos._demo.report import Report
from relpos._demo.sentences import LONG

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FOLDER", "pictures"]

FOLDER = "relpos-demo"
Drawing = Callable[["Figure"], None]


def pictures(report: Report) -> None:
    """Every one of PICTURES, and the curves that were trained before, if any were.

    They are kept in the report, and shown in the notebook or written into FOLDER.
    """
    report.begin("Pictures")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        report.say('matplotlib is not installed (pip install "relpos[plot]"): none.')
        return
    curves = trained(report)
    drawings = PICTURES | ({"training": losses(curves)} if curves else {})
    for name, (size, draw) in drawings.items():
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)  # no window system knows of it
        draw(figure)
        stream = io.BytesIO()
        figure.savefig(stream, dpi=100, format="png")
        report.pictures[name] = stream.getvalue()
        put(report, name)
    missing = sum(x[:4] != b"\x89PNG" for x in report.pictures.values())
    report.check("pictures missing", missing, 0)


def put(report: Report, name: str) -> None:
    """Into the notebook, where one is open, else into a file."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        import IPython.display as notebook

        shown: Any = notebook  # it has no types of its own
        shown.display(shown.Image(data=report.pictures[name]))
        return
    folder = Path(FOLDER)
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.png"
    path.write_bytes(report.pictures[name])
    report.say(f"{path}")


def encoding(figure: Figure) -> None:
    """The sinusoids."""
    title = "relpos.sinusoidal(128, 64)"
    ax = figure.subplots()
    relpos.plot.encoding_map(relpos.sinusoidal(128, 64), title=title, ax=ax)


def matrix(figure: Figure) -> None:
    """The relative positions of ten tokens."""
    title = "relpos.relative_positions(10)"
    positions = relpos.relative_positions(10)
    relpos.plot.relative_position_map(positions, title=title, ax=figure.subplots())


def fingerprints(figure: Figure) -> None:
    """Draw the scores of each scheme for equal words."""
    relpos.plot.fingerprints(figure=figure)


def skew(figure: Figure) -> None:
    """Pad, reshape, slice."""
    relpos.plot.skew_steps(5, figure=figure)


def terms(figure: Figure) -> None:
    """The four terms of Transformer-XL between seven words, drawn at random."""
    count, dim = len(LONG), 8
    draw = np.random.default_rng(0).standard_normal
    relpos.plot.score_terms(
        *draw((2, 1, count, dim)),
        rel_key=relpos.sinusoidal(np.arange(1 - count, count), dim),
        pos_bias_u=draw((1, dim)),
        pos_bias_v=draw((1, dim)),
        tokens=LONG,
        figure=figure,
    )


def attention(figure: Figure) -> None:
    """One head of the recorded Transformer-XL, with and without R."""
    axes = figure.subplots(1, 2)
    for ax, title, weights in zip(axes, *with_and_without(), strict=True):
        relpos.plot.attention_map(weights, title=title, ax=ax)


def edges(figure: Figure) -> None:
    """Draw the row of Shaw's tables that each pair of words reads."""
    pairs = [(3, at) for at in range(len(LONG))]
    relpos.plot.edges(len(LONG), k=2, pairs=pairs, tokens=LONG, ax=figure.subplots())


def losses(curves: dict[str, Any]) -> tuple[tuple[float, float], Drawing]:
    """The trained curves, a panel for each title."""

    def draw(figure: Figure) -> None:
        axes = np.atleast_1d(figure.subplots(1, len(curves)))
        for ax, (title, of) in zip(axes, curves.items(), strict=True):
            relpos.plot.loss_curves(of, title=title, ax=ax)

    return (6.0 * len(curves), 3.5), draw


def trained(report: Report) -> dict[str, dict[str, list[float]]]:
    """All curves of the report, by their titles."""
    found: dict[str, dict[str, list[float]]] = {}
    for step in report.steps:
        found |= step.get("curves", {})
    return found


def with_and_without() -> tuple[list[str], list[Any]]:
    """Attention of one head of the recorded Transformer-XL, with and without R."""
    case = load("transformer_xl_memory")
    common: dict[str, Any] = {name: case[name] for name in ("query", "key", "value")}
    common.update(is_causal=True, query_offset=16, return_weights=True)
    terms = {name: case[name] for name in ("rel_key", "pos_bias_u", "pos_bias_v")}
    with_r: Any = relpos.transformer_xl_attention(**common, **terms)
    without: Any = relpos.attention(**common)
    titles = ["Transformer-XL, with the relative term", "without it"]
    return titles, [with_r.weights[0, 0], without.weights[0, 0]]


#: Each by its name: inches, and what draws it.
PICTURES: dict[str, tuple[tuple[float, float], Drawing]] = {
    "encoding": ((6.0, 4.5), encoding),
    "relative-positions": ((6.0, 4.5), matrix),
    "edges": ((7.0, 3.0), edges),
    "skew": ((11.0, 3.0), skew),
    "fingerprints": ((13.0, 4.8), fingerprints),
    "terms": ((13.0, 3.8), terms),
    "attention": ((12.0, 2.8), attention),
}
