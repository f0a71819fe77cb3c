"""The skew of the Music Transformer, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from relpos._checks import as_int
from relpos.plot.panel import (
    SIGNED,
    WEIGHTS,
    Array,
    Look,
    as_matrix,
    between,
    frame,
    heat_map,
    look_of,
    panels_of,
    reach,
    write_numbers,
)

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

_MOST = 1024  # queries: beyond, a cell is less than a dot
_READABLE = 8  # queries whose cells have room for two lines


def skew_steps(
    scores: npt.ArrayLike | int,
    *,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    figure: Figure | None = None,
) -> npt.NDArray[np.object_]:
    """Pad, reshape and slice: how scores per distance become scores per key.

    Four panels: the scores, a column of zeros before them, the same numbers in rows one
    shorter, and these without the first row, which is ``relpos.skew``. Each cell says
    its query and its distance where there are at most 8 queries. What is hatched has
    wrapped around from another query: a causal mask hides it.

    Parameters
    ----------
    scores : int or array_like of real, (L, L)
        The number of queries, for cells in the colour of their distance; or the scores
        themselves, column t for distance t - (L - 1).
    vmin, vmax : float, optional
        The numbers at the ends of the colours.
    cmap : str or Colormap, optional
        Other colours.
    title : str, optional
        Above the figure.
    figure : matplotlib.figure.Figure, optional
        Where new axes are made; a new figure by default.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, (4,)
        The axes drawn into, from left to right.

    Raises
    ------
    ValueError
        If `scores` are not square, or empty, or an argument has no meaning.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    relpos.skew : Does it, without these steps.
    relative_position_map : The distances of all pairs.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> panels = relpos.plot.skew_steps(3, figure=Figure())
    >>> [text.get_text().split() for text in panels[3].texts][:3]
    [['q0', '0'], ['0'], ['q1', '-2']]
    """
    look = look_of(vmin, vmax, cmap, title)
    array, usual = _start(scores)
    limits = between(look.limits, reach(array), 0.0)
    if usual == WEIGHTS and look.limits == (None, None):
        limits = (min(array[0, 0], -1.0), 0.0)
    one = Look(limits, look.cmap)
    steps = _steps(array)
    panels = panels_of(figure, len(steps), len(steps), look)
    for ax, (name, cells, texts) in zip(panels, steps, strict=True):
        heat_map("skew", cells, ax, one, cmap=usual, bar=False)
        ax.set(title=name, xticks=[], yticks=[])
        if len(array) <= _READABLE:
            write_numbers(ax, texts)
    for i, j in np.argwhere(np.triu(np.ones(array.shape), 1)).tolist():
        frame(panels[3], i, j, hatch="///", facecolor=(1, 1, 1, 0.7), edgecolor="grey")
    for text in panels[3].texts:
        column, row = text.get_position()
        if column > row:
            text.set(color="black", zorder=4)
    return panels


def _start(scores: npt.ArrayLike | int) -> tuple[Array, str]:
    """The first panel, and its usual colours."""
    if isinstance(scores, int | np.integer):
        count = as_int("scores", scores, 1, _MOST)
        return np.tile(np.arange(1.0 - count, 1.0), (count, 1)), WEIGHTS
    array = as_matrix("scores", scores, "a number of queries or two axes, (L, L)")
    if array.shape[0] != array.shape[1]:
        raise ValueError(f"scores: got shape {array.shape}; expected (L, L)")
    return array, SIGNED


def _steps(array: Array) -> list[tuple[str, Array, Array]]:
    """What each panel is called, shows and says."""
    count = len(array)
    texts = [[f"q{i}\n{t - count + 1}" for t in range(count)] for i in range(count)]
    named = np.array(texts, object)
    found = [("1. column = distance", array, named)]
    # a column of zeros is no scores: grey as what is hidden
    array = np.pad(array, ((0, 0), (1, 0)), constant_values=np.nan)
    named = np.pad(named, ((0, 0), (1, 0)), constant_values="0")
    found.append(("2. a column of zeros in front", array, named))
    array, named = (x.reshape(count + 1, count) for x in (array, named))
    found.append((f"3. same memory, {count + 1} rows of {count}", array, named))
    return [*found, ("4. first row cut off: relpos.skew", array[1:], named[1:])]
