"""The report's pictures: lines against the length and bars, as wide as a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.goals import fastest, share_of_ours
from benchmarks.results import Entrant, Record, Results

#: Colours that people of any eye can tell apart (Okabe and Ito), and a mark for each.
STYLES = {
    "plain": ("#666666", "s"),
    "music": ("#0072b2", "o"),
    "xl": ("#d55e00", "^"),
    "shaw": ("#009e73", "D"),
}
NAMES = {"plain": "plain", "music": "Music", "xl": "Transformer-XL", "shaw": "Shaw"}
MODES = {"fwd": "forward", "fwdbwd": "forward and backward"}
#: Label and colour of a bar, by the way that is priced.
BARS = {
    "forward": ("forward", "#56b4e9"),
    "forward+backward": ("forward and backward", "#0072b2"),
}
#: Lines of relpos and of its peers: those that one writes, and those of a library.
KINDS = {
    "relpos": {"color": "#0072b2", "marker": "o", "ms": 4},
    "loops over blocks": {"color": "#e69f00", "marker": "s", "ms": 4},
    "ready-made peers": {"color": "#cc79a7", "marker": "^", "ms": 4},
}
PAPER: dict[Any, Any] = {
    "figure.figsize": (8.4, 3.4),
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "relpos",
}

Figure = Callable[[Record], float | None]


def draw(results: Results, folder: Path) -> dict[str, str]:
    """Write all pictures; returns what each file shows."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Sheet

    folder.mkdir(parents=True, exist_ok=True)
    painters: dict[str, tuple[Callable[..., None], str]] = {
        "ratios.svg": (ratios, "Time of the fastest peer over that of relpos"),
        "ready_made.svg": (
            partial(ratios, ready_made=True),
            "Time of the fastest ready-made peer over that of relpos",
        ),
        "times.svg": (times, "Time and extra memory against the length"),
        "peak.svg": (shares, "Fraction of the core's multiply-add peak"),
        "price.svg": (price_of_positions, "The price of positions"),
    }
    if not results.prices:
        del painters["price.svg"]
    drawn = {}
    for name, (paint, text) in painters.items():
        with mpl.rc_context(PAPER):
            sheet: Any = Sheet(layout="constrained")
            paint(sheet, results)
            sheet.savefig(folder / name, metadata={"Date": None})
        drawn[name] = text
    return drawn


def series(
    results: Results, scheme: str, is_causal: bool, mode: str, figure: Figure
) -> tuple[list[int], list[float]]:
    """Lengths and figures of eight heads of one item."""
    found = {}
    for row in results.rows.values():
        same = (row["scheme"], row["is_causal"], row["mode"], row["threads"])
        if same == (scheme, is_causal, mode, 1) and row["shape"][:2] == [1, 8]:
            value = figure(row)
            if value is not None:
                found[row["shape"][2]] = value
    return sorted(found), [found[length] for length in sorted(found)]


def lengths_below(axes: Any) -> None:
    """A logarithmic axis of lengths with their own numbers."""
    lengths = [256, 512, 1024, 2048, 4096]
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.set_xlabel("length")


def lines_of_schemes(sheet: Any, results: Results, figure: Figure, label: str) -> Any:
    """A panel for each mode: full lines both directions, dashed ones causal."""
    panels = sheet.subplots(1, len(MODES), sharey=True)
    for axes, (mode, title) in zip(panels, MODES.items(), strict=True):
        for scheme, (colour, mark) in STYLES.items():
            for is_causal in (False, True):
                xs, ys = series(results, scheme, is_causal, mode, figure)
                style = "--" if is_causal else "-"
                what = f"{NAMES[scheme]}{', causal' * is_causal}"
                axes.plot(xs, ys, style, color=colour, marker=mark, ms=4, label=what)
        lengths_below(axes)
        axes.set_title(title)
    panels[0].set_ylabel(label)
    sheet.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside right center",
        fontsize=8,
        handlelength=3,
    )
    return panels


def ratios(sheet: Any, results: Results, ready_made: bool = False) -> None:
    """The fastest peer, of all or of the ready-made ones; a line where it is level."""

    def figure(row: Record) -> float | None:
        best = fastest(row, ready_made)
        return best.ratio if best else None

    whose = "fastest ready-made" if ready_made else "fastest peer"
    label = f"time of the {whose} / relpos"
    panels = lines_of_schemes(sheet, results, figure, label)
    for axes in panels:
        axes.axhline(1, color="black", lw=1)
        if ready_made:
            axes.set_yscale("log")
            axes.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
        else:
            axes.set_ylim(bottom=0)


def shares(sheet: Any, results: Results) -> None:
    """Useful operations over the peak."""
    label = "fraction of FMA peak"
    panels = lines_of_schemes(sheet, results, share_of_ours, label)
    panels[0].set_ylim(0, 1)


def price_of_positions(sheet: Any, results: Results) -> None:
    """Bars: time of each scheme over what it costs more than, at the longest length."""
    rows = results.prices.values()
    longest = max(row["length"] for row in rows if row["figure"] is not None)
    bars: dict[str, dict[str, float]] = {}
    # Where both directions were measured, the causal one comes later, and stays.
    for row in rows:
        figure = row["figure"]
        if figure is not None and row["length"] == longest:
            of_scheme = bars.setdefault(f"{row['name']} / {row['over']}", {})
            of_scheme[row["way"]] = figure
    names = sorted(bars, key=lambda name: max(bars[name].values()), reverse=True)
    sheet.set_size_inches(8.4, 1.2 + 0.3 * len(names))
    axes = sheet.subplots()
    for turn, (way, (label, colour)) in enumerate(BARS.items()):
        at = [n + 0.2 - 0.4 * turn for n, name in enumerate(names) if way in bars[name]]
        widths = [bars[name][way] for name in names if way in bars[name]]
        drawn = axes.barh(at, widths, 0.38, color=colour, label=label)
        axes.bar_label(drawn, fmt="%.2f", padding=2, fontsize=7)
    axes.axvline(1, color="black", lw=1)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel(f"time / what comes after the slash, L = {longest}")
    axes.legend(fontsize=8)


def times(sheet: Any, results: Results) -> None:
    """The Music Transformer's: relpos, the fastest loop and the fastest ready-made."""
    left, right = sheet.subplots(1, 2)
    figures: dict[str, Figure] = {
        "relpos": seconds_of_relpos,
        "fastest peer": partial(seconds, ready_made=False),
        "fastest ready-made peer": partial(seconds, ready_made=True),
    }
    for (what, figure), style in zip(figures.items(), KINDS.values(), strict=True):
        xs, ys = series(results, "music", True, "fwdbwd", figure)
        left.plot(xs, [1e3 * y for y in ys], **style, label=what)
    finish(left, "ms", "Music, causal, forward and backward")
    memory_lines(right, results)


def finish(axes: Any, unit: str, title: str) -> None:
    """Make an axis of lines against the length logarithmic, and name them."""
    axes.set_yscale("log")
    axes.set_ylabel(unit)
    axes.set_title(title)
    if axes.lines:
        axes.legend(fontsize=8)
    lengths_below(axes)


def seconds_of_relpos(row: Record) -> float | None:
    return row["entrants"][0].get("seconds")


def seconds(row: Record, ready_made: bool) -> float | None:
    """Return the time of the fastest peer."""
    best = fastest(row, ready_made)
    return best.seconds if best else None


def kind_of(entrant: Entrant) -> str:
    """Return the key of KINDS."""
    if entrant["name"] == "relpos":
        return "relpos"
    return "ready-made peers" if entrant["ready_made"] else "loops over blocks"


def memory_lines(axes: Any, results: Results) -> None:
    """Extra memory of relpos, and of the leanest peer of each kind."""
    lines: dict[str, dict[int, float]] = {}
    for row in results.memory.values():
        if row["mode"] != "fwdbwd" or row["shape"][:2] != [1, 8]:
            continue
        length = row["shape"][2]
        for entrant in row["entrants"]:
            size = entrant.get("bytes")
            if size:
                least = lines.setdefault(kind_of(entrant), {})
                least[length] = min(size / 1e6, least.get(length, float("inf")))
    for kind, points in lines.items():
        xs = sorted(points)
        ys = [points[n] for n in xs]
        label = kind if kind == "relpos" else f"leanest of {kind}"
        axes.plot(xs, ys, **KINDS[kind], label=label)
    finish(axes, "MB beyond inputs and results", "extra memory of the same")
