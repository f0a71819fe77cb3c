"""Pairs of tokens as arcs, as Shaw et al. draw them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from relpos._attention.labels import relative_positions
from relpos._checks import Array, as_int, as_integers
from relpos.plot.panel import (
    Tokens,
    as_matrix,
    as_pairs,
    as_tokens,
    axes_of,
    colormap_of,
    look_of,
    name_places,
    reach,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

_MOST = 256  # tokens
_DIVERGING = "PuOr"


def edges(
    labels: npt.ArrayLike | int,
    *,
    k: int | None = None,
    pairs: Sequence[tuple[int, int]] | None = None,
    tokens: Tokens | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Labelled arcs from queries to keys: figure 1 of Shaw et al.

    Arcs to later keys lie above the tokens, arcs to earlier ones below. Equal labels
    have one colour.

    Parameters
    ----------
    labels : int or array_like of int, (L, L)
        The number of tokens, for labels that are relative positions; or the label of
        each pair.
    k : int, optional
        Clip the labels to -k and k.
    pairs : sequence of (int, int), optional
        The arcs, each from a query to a key; by default those of the query in the
        middle to all others.
    tokens : sequence of str, optional
        Below their places.
    cmap : str or Colormap, optional
        Other colours of the labels.
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
    ValueError
        If `labels` are not square, or empty, or an argument has another shape, length
        or value than it says.
    TypeError
        If an argument is of another kind than it says.
    IndexError
        If `pairs` has one that is not there.

    See Also
    --------
    relpos.relative_positions : The labels of sequences.
    relative_position_map : The same as a matrix.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.edges(
    ...     9, k=4, pairs=[(6, 1), (6, 8)], ax=Figure().subplots()
    ... )
    >>> [text.get_text() for text in ax.texts]
    ['-4', '2']
    """
    numbers = _labels(labels)
    if k is not None:
        limit = as_int("k", k, 0)
        numbers = np.clip(numbers, -limit, limit)
    count = len(numbers)
    if pairs is None:
        chosen = [(count // 2, j) for j in range(count) if j != count // 2]
    else:
        chosen = as_pairs("pairs", pairs, numbers.shape)
    look, named = look_of(None, None, cmap, title), as_tokens("tokens", tokens, count)
    ax = axes_of(ax)
    colours = look.cmap or colormap_of(_DIVERGING)
    farthest = reach(numbers.astype(float)) or 1.0
    ax.plot(np.arange(count), np.zeros(count), "o", color="black", zorder=3)
    for i, j in chosen:
        share = numbers[i, j] / farthest
        ink = colours(0.5 + 0.2 * np.sign(share) + 0.3 * share)  # no pale arcs
        _arc(ax, i, j, ink if share else "grey", numbers[i, j])
    name_places(ax.xaxis, named or [str(n) for n in range(count)])
    ax.set(yticks=[], xlabel="key j > i above, j < i below")
    ax.margins(y=0.15)
    if look.title is not None:
        ax.set_title(look.title)
    return ax


def _labels(given: npt.ArrayLike | int) -> Array:
    """(L, L) labels of a number of tokens, or as they are."""
    if isinstance(given, int | np.integer):
        return relative_positions(as_int("labels", given, 1, _MOST))
    numbers = as_integers("labels", given)
    as_matrix("labels", numbers, "a number of tokens or two axes, (L, L)")
    if numbers.shape[0] != numbers.shape[1] or len(numbers) > _MOST:
        raise ValueError(
            f"labels: got shape {numbers.shape}; expected (L, L), L up to {_MOST}"
        )
    return numbers


def _arc(ax: Axes, i: int, j: int, colour: Any, label: int) -> None:
    """Half an ellipse from place i to place j, its label on the top."""
    turn = np.linspace(0.0, np.pi, 50)
    height = (j - i) / 2  # negative, below the line, for an earlier key
    x = (i + j) / 2 - (j - i) / 2 * np.cos(turn)
    ax.plot(x, height * np.sin(turn), color=colour, linewidth=2)
    box = {"facecolor": "white", "edgecolor": colour, "boxstyle": "round,pad=0.2"}
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small"}
    ax.text((i + j) / 2, height, str(label), bbox=box, **style)
