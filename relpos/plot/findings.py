"""What relpos found out about encodings and implementations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relpos._checks import kind_of
from relpos.plot.lines import check_limits, colours_of
from relpos.plot.panel import axes_of, look_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    from relpos._compare.compare import Comparison


def compare(
    comparison: Comparison,
    *,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Relative errors of a comparison: red what differs, dashed the limit of rounding.

    What is 0 but for noise is grey.

    Parameters
    ----------
    comparison : Comparison
        What `relpos.compare` returned.
    vmin, vmax : float, optional
        The ends of the axis of the errors, above 0: it is logarithmic.
    cmap : str or Colormap, optional
        Its first colour is that of what is the same, its last that of what differs.
    title : str, optional
        Above the axes.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    TypeError
        If `comparison` is something else, or an argument of another kind than it says.
    ValueError
        If the limits are not above 0 and in order, or there is no such `cmap`.

    See Also
    --------
    relpos.compare : Makes it.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> found = relpos.compare(np.sin, np.sin, np.ones(3))
    >>> ax = relpos.plot.compare(found, ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['output']
    """
    if not hasattr(comparison, "rows"):
        got = kind_of(comparison)
        raise TypeError(f"comparison: got {got}; expected what relpos.compare returns")
    rows, least = comparison.rows, comparison.limit * 1e-4
    look = look_of(vmin, vmax, cmap, title)
    check_limits(look.limits, above=0.0)
    inks = dict(zip(("same", "differs"), colours_of(2, look), strict=True))
    colors = [inks.get(row.verdict, "lightgrey") for row in rows]
    ax = axes_of(ax)
    sizes = [max(least, row.relative) for row in rows]  # an exact result has a bar too
    ax.barh([row.name for row in rows], sizes, color=colors, log=True)
    ax.axvline(comparison.limit, color="black", linestyle="--")
    ax.set(xlabel="error relative to the largest entry")
    ax.set_xlim(*look.limits)
    ax.invert_yaxis()
    if look.title is not None:
        ax.set_title(look.title)
    return ax
