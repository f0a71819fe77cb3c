"""Relative positions of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from relpos._checks import as_integers
from relpos.plot.panel import Look, as_matrix, heat_map, reach

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def relative_position_map(relative: npt.ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Matrix of relative positions, key minus query, with its numbers where they fit.

    Parameters
    ----------
    relative : array_like of int, (Lq, Lk)
        For instance ``relpos.relative_positions(L)``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ValueError
        If `relative` is not of two axes, or empty.
    TypeError
        If `relative` is not of integers, or `ax` is not one Axes.

    See Also
    --------
    relpos.relative_positions : The matrix that it draws.
    attention_map : The weights of the same pairs.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> relative = relpos.relative_positions(3, max_relative_position=1)
    >>> ax = relpos.plot.relative_position_map(relative, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['0', '1', '1', '-1', '0', '1', '-1', '-1', '0']
    """
    numbers = as_integers("relative", relative)
    array = as_matrix("relative", numbers, "two axes, (Lq, Lk)")
    limit = reach(array) or 1.0
    ax = heat_map("relative", array, ax, Look((-limit, limit)), cmap="PuOr")
    if max(array.shape) <= 12:  # more numbers than this cannot be read
        for (i, j), r in np.ndenumerate(numbers):
            ink = "white" if abs(array[i, j]) > 0.6 * limit else "black"
            ax.text(j, i, str(r), ha="center", va="center", color=ink)
    ax.set(xlabel="key j", ylabel="query i")
    return ax
