"""Lines by a name each: colours that all eyes tell apart, a legend, checked limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from relpos.plot.panel import Array, Limits, Look, axes_of, colormap_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours that the colour-blind tell apart too: Okabe and Ito's but yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
#: More names than this are no legend.
_MOST_NAMES = 16


def colours_of(count: int, look: Look) -> list[Any]:
    """A colour for each of so many lines: of a colormap, if given or needed."""
    if look.cmap is None and count <= len(_COLOURS):
        return [*_COLOURS[:count]]
    cmap = look.cmap or colormap_of("viridis")
    return [cmap(n / max(count - 1, 1) * 0.9) for n in range(count)]


def check_limits(limits: Limits, above: float | None = None) -> None:
    """Refuses ends of an axis that are not in order, or not above a number."""
    low, high = limits
    if low is not None and high is not None and low >= high:
        raise ValueError(f"vmin: got {low}; expected less than vmax, {high}")
    for name, end in (("vmin", low), ("vmax", high)):
        if above is not None and end is not None and end <= above:
            raise ValueError(f"{name}: got {end}; expected more than {above:g}")


def draw_lines(
    lines: Mapping[str, tuple[Array, Array]],
    look: Look,
    ax: Axes | None,
    drawstyle: str = "default",
) -> Axes:
    """The lines (x, y), with gaps where y is not finite; limits are those of y."""
    low, high = look.limits
    check_limits(look.limits)
    ax = axes_of(ax)
    for (name, (x, y)), colour in zip(
        lines.items(), colours_of(len(lines), look), strict=True
    ):
        seen = np.where(np.isfinite(y), y, np.nan)
        ax.plot(x, seen, label=name, color=colour, drawstyle=drawstyle)
    if low is not None or high is not None:
        ax.set_ylim(low, high)
    if 0 < len(lines) <= _MOST_NAMES and any(lines):
        ax.legend()
    if look.title is not None:
        ax.set_title(look.title)
    return ax
