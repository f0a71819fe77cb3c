"""What relpos found out about encodings and implementations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relpos._checks import kind_of
from relpos.plot.panel import axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from relpos._compare.compare import Comparison


def compare(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Relative errors of a comparison: red what differs, dashed the limit of rounding.

    Parameters
    ----------
    comparison : Comparison
        What `relpos.compare` returned.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    TypeError
        If `comparison` is something else, or `ax` is not one Axes.

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
    ax, rows, least = axes_of(ax), comparison.rows, comparison.limit * 1e-4
    inks = {"same": "tab:blue", "differs": "tab:red"}
    colors = [inks.get(row.verdict, "lightgrey") for row in rows]
    sizes = [max(least, row.relative) for row in rows]  # an exact result has a bar too
    ax.barh([row.name for row in rows], sizes, color=colors, log=True)
    ax.axvline(comparison.limit, color="black", linestyle="--")
    ax.set(xlabel="error relative to the largest entry")
    ax.invert_yaxis()
    return ax
