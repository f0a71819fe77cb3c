"""Step 9: pictures, where matplotlib is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import relpos
from relpos._demo.recorded import load
from relpos._demo.report import Report

__all__ = ["FOLDER", "pictures"]

FOLDER = "relpos-demo"


def pictures(report: Report) -> None:
    """Three files in FOLDER, and a fourth of the curves that were trained before."""
    report.begin("Pictures")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        report.say('matplotlib is not installed (pip install "relpos[plot]"): none.')
        return

    def figure(columns: int = 1, height: float = 4.5) -> tuple[Figure, Any]:
        """A figure that no window system knows of, and its axes."""
        made = Figure(figsize=(6 * columns, height), layout="constrained")
        FigureCanvasAgg(made)
        return made, made.subplots(1, columns)

    folder = Path(FOLDER)
    folder.mkdir(exist_ok=True)
    encoding, ax = figure()
    relpos.plot.encoding_map(relpos.sinusoidal(128, 64), ax=ax)
    ax.set_title("relpos.sinusoidal(128, 64)")

    matrix, ax = figure()
    relpos.plot.relative_position_map(relpos.relative_positions(10), ax=ax)
    ax.set_title("relpos.relative_positions(10)")

    attention, axes = figure(columns=2, height=2.8)
    for ax, title, weights in zip(axes, *with_and_without(), strict=True):
        relpos.plot.attention_map(weights, ax=ax)
        ax.set_title(title)

    made = {"encoding": encoding, "relative-positions": matrix, "attention": attention}
    if curves := trained(report):
        training, axes = figure(columns=len(curves), height=3.5)
        for ax, (title, losses) in zip(
            np.atleast_1d(axes), curves.items(), strict=True
        ):
            relpos.plot.loss_curves(losses, ax=ax)
            ax.set_title(title)
        made["training"] = training
    for name, one in made.items():
        path = folder / f"{name}.png"
        one.savefig(path, dpi=120)
        report.say(f"{path}")
    report.check("pictures missing", sum(not is_png(folder, n) for n in made), 0)


def trained(report: Report) -> dict[str, dict[str, list[float]]]:
    """All curves of the report, by their titles."""
    found: dict[str, dict[str, list[float]]] = {}
    for step in report.steps:
        found |= step.get("curves", {})
    return found


def is_png(folder: Path, name: str) -> bool:
    """Whether the file is there and starts like a PNG."""
    return (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


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
