"""Encodings that are added to tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy.typing as npt

from relpos.plot.panel import as_matrix, heat_map, look_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def encoding_map(
    encoding: npt.ArrayLike,
    *,
    vmin: float | None = None,
    vmax: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Heat map of an encoding: one row per position, one column per dimension.

    Zero is white, negative numbers are blue and positive ones red. All encodings in a
    figure have one scale, that of the largest number, so that indices up to 9 do not
    look like the same indices normalised to 1.

    Parameters
    ----------
    encoding : array_like of real, (L, dim)
        For instance ``relpos.sinusoidal(L, dim)``. What is not finite is grey.
    vmin, vmax : float, optional
        The numbers at the ends of the colours, for this map alone; one of them alone
        leaves zero in the middle.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ValueError
        If `encoding` is not of two axes, or empty, or `vmin` is not less than `vmax`.
    TypeError
        If `encoding` is of anything but real numbers, or `ax` is not one Axes.

    See Also
    --------
    relpos.sinusoidal, relpos.learned : Encodings to draw.
    relpos.audit_encoding : What is good and bad about an encoding, in numbers.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> left, right = Figure().subplots(1, 2)
    >>> _ = relpos.plot.encoding_map(relpos.index_encoding(10, 4), ax=left)
    >>> _ = relpos.plot.encoding_map(relpos.normalized_index_encoding(10, 4), ax=right)
    >>> [tuple(map(float, ax.images[0].get_clim())) for ax in (left, right)]
    [(-9.0, 9.0), (-9.0, 9.0)]
    """
    array = as_matrix("encoding", encoding, "two axes, (L, dim)")
    look = look_of(vmin, vmax)
    ax = heat_map("encoding", array, ax, look, aspect="auto")
    ax.set(xlabel="dimension", ylabel="position")
    return ax
