"""Scores and weights of attention, one cell for each pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy.typing as npt

from relpos.plot.panel import SIGNED, WEIGHTS, as_limits, as_matrix, finite, heat_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def attention_map(
    weights: npt.ArrayLike,
    *,
    vmin: float | None = None,
    vmax: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Attention weights or scores of one head, one row per query.

    Weights go from dark, which is 0, to bright. With a negative number among them they
    are scores: zero is white, negative numbers are blue and positive ones red. All
    weights in a figure have one scale, and so have all scores.

    Parameters
    ----------
    weights : array_like of real, (Lq, Lk)
        One head of ``relpos.attention(..., return_weights=True).weights``, or scores,
        as of ``relpos.shaw_scores``. What is not finite is grey: hidden keys.
    vmin, vmax : float, optional
        The numbers at the ends of the colours, for this map alone. A negative `vmin`
        asks for the colours of scores; `vmax` alone leaves their zero in the middle.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ValueError
        If `weights` is not of two axes, or empty, or `vmin` is not less than `vmax`.
    TypeError
        If `weights` is of anything but real numbers, or `ax` is not one Axes.

    See Also
    --------
    relpos.attention : Returns the weights with ``return_weights=True``.
    relpos.shaw_scores, relpos.skewed_scores, relpos.transformer_xl_scores : Scores to
        draw.
    relative_position_map : The positions of the same pairs.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> scores = [[0.5, -2.0], [1.0, 0.0]]
    >>> ax = relpos.plot.attention_map(scores, ax=Figure().subplots())
    >>> tuple(map(float, ax.images[0].get_clim()))
    (-2.0, 2.0)
    """
    wanted = "two axes, (Lq, Lk): one head, such as weights[0]"
    array = as_matrix("weights", weights, wanted)
    low, high = as_limits(vmin, vmax)
    if (finite(array) < 0).any() or (low or 0.0) < 0:
        ax = heat_map("scores", array, ax, (low, high), cmap=SIGNED)
    else:
        ax = heat_map("weights", array, ax, (low, high), cmap=WEIGHTS)
    ax.set(xlabel="key j", ylabel="query i")
    return ax
