"""Relative positions of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from relpos._checks import as_flag, as_integers
from relpos.plot.panel import (
    MOST_NUMBERS,
    Array,
    Tokens,
    as_matrix,
    as_pairs,
    between,
    frame,
    heat_map,
    look_of,
    name_pairs,
    places_of,
    reach,
    write_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


def relative_position_map(
    relative: npt.ArrayLike,
    *,
    highlight: Sequence[tuple[int, int]] = (),
    clip_marks: bool = True,
    tokens: Tokens | None = None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Matrix of relative positions, key minus query, with its numbers where they fit.

    Parameters
    ----------
    relative : array_like of int, (Lq, Lk)
        For instance ``relpos.relative_positions(L)``.
    highlight : sequence of (int, int), optional
        Pairs (query, key) to frame, with their numbers in any case.
    clip_marks : bool, default True
        Hatch the pairs whose position was clipped.
    tokens : sequence of str, optional
        At both axes, one for each row and column.
    query_tokens, key_tokens : sequence of str, optional
        At one axis alone, in place of `tokens`.
    vmin, vmax : float, optional
        The numbers at the ends of the colours; one of them alone leaves zero in the
        middle.
    cmap : str or Colormap, optional
        Other colours.
    title : str, optional
        Above the map.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ValueError
        If an argument has another shape, length or value than it says, or `relative` is
        empty.
    TypeError
        If `relative` is not of integers, or an argument is of another kind than it
        says.
    IndexError
        If `highlight` has a pair that is not there.

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
    framed = as_pairs("highlight", highlight, array.shape)
    places = places_of(array.shape, tokens, query_tokens, key_tokens)
    look, marked = look_of(vmin, vmax, cmap, title), as_flag("clip_marks", clip_marks)
    own = look._replace(limits=between(look.limits, reach(array), 0.0))
    ax = heat_map("relative", array, ax, own, cmap="PuOr")
    for i, j in np.argwhere(_clipped(numbers)).tolist() if marked else ():
        frame(ax, i, j, hatch="..", fill=False, edgecolor=(0.5, 0.5, 0.5, 0.6))
    texts = numbers.astype(str).astype(object)
    if max(array.shape) > MOST_NUMBERS:  # more of them cannot be read
        kept = np.full(array.shape, "", object)
        for i, j in framed:
            kept[i, j] = texts[i, j]
        texts = kept
    write_numbers(ax, texts)
    for i, j in framed:
        frame(ax, i, j, fill=False, edgecolor="black", linewidth=2.5)
    return name_pairs(ax, places)


def _clipped(numbers: Array) -> Array:
    """True where a position went no further from one key to the next.

    Matrices that do anything else from key to key are no clipped positions.
    """
    found = np.zeros(numbers.shape, bool)
    steps = np.diff(numbers, axis=1)
    if not np.isin(steps, (0, 1)).all() or not steps.any():
        return found
    stays = steps == 0
    found[:, 1:] |= stays & (numbers[:, 1:] == numbers.max())
    found[:, :-1] |= stays & (numbers[:, :-1] == numbers.min())
    return found
