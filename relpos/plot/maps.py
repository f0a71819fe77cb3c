"""Scores and weights of attention, one cell for each pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from relpos._checks import as_array, as_flag, as_int, as_real, kind_of
from relpos.plot.panel import (
    MOST_NUMBERS,
    Array,
    Look,
    Tokens,
    as_matrix,
    as_shaped,
    between,
    finite,
    heat_map,
    look_of,
    name_pairs,
    panels_of,
    places_of,
    reach,
    write_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

_HEADS = "three axes, (H, Lq, Lk)"


def score_map(
    scores: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    tokens: Tokens | None = None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
    center: float = 0.0,
    annotate: str | bool = "auto",
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Scores of one head, one row per query, with what is hidden apart.

    The center is white, smaller scores are blue and larger ones red. Scores in a figure
    have one scale; hidden pairs are grey, which no score is.

    Parameters
    ----------
    scores : array_like of real, (Lq, Lk)
        For instance ``relpos.scores(query, key)[0]``. What is not finite is hidden.
    mask : array_like of bool, (Lq, Lk), optional
        True where a query may attend; other pairs are drawn as hidden.
    tokens : sequence of str, optional
        At both axes, one for each row and column.
    query_tokens, key_tokens : sequence of str, optional
        At one axis alone, in place of `tokens`.
    center : float, default 0
        The score that is white.
    annotate : bool or "auto", default "auto"
        Write each score into its cell; "auto" where there are few enough to be read.
    vmin, vmax : float, optional
        The numbers at the ends of the colours, for this map alone; one of them alone
        leaves the center in the middle.
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
        If an argument has another shape, length or value than it says, or `scores` are
        empty.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    relpos.scores : The scores of any scheme.
    score_terms : What they are the sum of.
    attention_map : Weights.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.score_map(
    ...     [[1.0, 9.0], [-2.0, 0.5]], mask=[[True, False], [True, True]],
    ...     tokens=["smoking", "kills"], ax=Figure().subplots()
    ... )
    >>> tuple(map(float, ax.images[0].get_clim()))
    (-2.0, 2.0)
    >>> [text.get_text() for text in ax.texts]
    ['1.0', '-2.0', '0.5']
    """
    array = as_matrix(
        "scores", scores, "two axes, (Lq, Lk): one head, such as scores[0]"
    )
    if mask is not None:
        array = np.where(_as_mask(mask, array.shape), array, np.nan)
    places = places_of(array.shape, tokens, query_tokens, key_tokens)
    middle, look = as_real("center", center), look_of(vmin, vmax, cmap, title)
    numbers = _annotated(annotate, array)
    kind = f"scores about {middle}" if middle else "scores"
    ax = heat_map(kind, array, ax, look, center=middle)
    if numbers:
        write_numbers(ax, _texts(array))
    return name_pairs(ax, places)


def attention_map(
    weights: npt.ArrayLike,
    *,
    head: int | None = None,
    tokens: Tokens | None = None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Attention weights or scores of one head, one row per query.

    Weights go from dark, which is 0, to bright. With a negative number among them they
    are scores: zero is white, negative numbers are blue and positive ones red. All
    weights in a figure have one scale, and so have all scores.

    Parameters
    ----------
    weights : array_like of real, (Lq, Lk) or, with `head`, (H, Lq, Lk)
        One head of ``relpos.attention(..., return_weights=True).weights``, or scores,
        as of ``relpos.shaw_scores``. What is not finite is grey: hidden keys.
    head : int, optional
        The head to draw, of those that `weights` has.
    tokens : sequence of str, optional
        At both axes, one for each row and column.
    query_tokens, key_tokens : sequence of str, optional
        At one axis alone, in place of `tokens`.
    vmin, vmax : float, optional
        The numbers at the ends of the colours, for this map alone. A negative `vmin`
        asks for the colours of scores; `vmax` alone leaves their zero in the middle.
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
        If an argument has another shape, length or value than it says, or `weights` are
        empty.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    relpos.attention : Returns the weights with ``return_weights=True``.
    relpos.shaw_scores, relpos.skewed_scores, relpos.transformer_xl_scores : Scores to
        draw.
    attention_heads : All heads side by side.
    score_map : Scores with a mask, with numbers in the cells.
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
    if head is None:
        wanted = "two axes, (Lq, Lk): one head, such as weights[0]"
        array = as_matrix("weights", weights, wanted)
    else:
        heads = as_shaped("weights", weights, 3, _HEADS)
        array = heads[as_int("head", head, 0, len(heads) - 1)]
    places = places_of(array.shape, tokens, query_tokens, key_tokens)
    look = look_of(vmin, vmax, cmap, title)
    if _signed(array, look):
        ax = heat_map("scores", array, ax, look)
    else:
        ax = heat_map("weights", array, ax, look, center=None)
    return name_pairs(ax, places)


def attention_heads(
    weights: npt.ArrayLike,
    *,
    columns: int = 4,
    tokens: Tokens | None = None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    figure: Figure | None = None,
) -> npt.NDArray[np.object_]:
    """Attention weights or scores of all heads as a grid, on one scale.

    Parameters
    ----------
    weights : array_like of real, (H, Lq, Lk)
        As of `attention_map`, of all heads.
    columns : int, default 4
        Heads in a row.
    tokens : sequence of str, optional
        At both axes, one for each row and column.
    query_tokens, key_tokens : sequence of str, optional
        At one axis alone, in place of `tokens`.
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
    ndarray of matplotlib.axes.Axes, (H,)
        The axes drawn into, one for each head.

    Raises
    ------
    ValueError
        If an argument has another shape, length or value than it says, or `weights` are
        empty.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    attention_map : One head.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> panels = relpos.plot.attention_heads(np.eye(3)[None] * [[[1]], [[0.5]]],
    ...                                      figure=Figure())
    >>> [ax.get_title() for ax in panels]
    ['head 0', 'head 1']
    """
    array = as_shaped("weights", weights, 3, _HEADS)
    places = places_of(array.shape[1:], tokens, query_tokens, key_tokens)
    look, across = look_of(vmin, vmax, cmap, title), as_int("columns", columns, 1)
    center = 0.0 if _signed(array, look) else None
    one = Look(between(look.limits, reach(array), center), look.cmap)
    panels = panels_of(figure, len(array), across, look, below=places[1])
    for n, ax in enumerate(panels):
        heat_map("heads", array[n], ax, one, center=center, bar=False)
        ax.set_title(f"head {n}")
        name_pairs(ax, places).label_outer()
    panels[0].figure.colorbar(panels[0].images[-1], ax=[*panels])
    return panels


def _signed(array: Array, look: Look) -> bool:
    """Whether these are scores: weights are not negative."""
    return bool((finite(array) < 0).any()) or (look.limits[0] or 0.0) < 0


def _as_mask(mask: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    """True where a query may attend."""
    array = as_array("mask", mask)
    if array.dtype != np.bool_:
        raise TypeError(f"mask: got {kind_of(array)}; expected an array of bool")
    if array.shape != shape:
        raise ValueError(f"mask: got shape {array.shape}; expected {shape}")
    return array


def _annotated(annotate: str | bool, array: Array) -> bool:
    """Whether cells have their numbers."""
    if isinstance(annotate, str):
        if annotate != "auto":
            raise ValueError(f"annotate: got {annotate!r}; expected 'auto' or a bool")
        few: bool = max(array.shape) <= MOST_NUMBERS
        return few
    return as_flag("annotate", annotate)


def _texts(array: Array) -> Array:
    """Numbers as short as they can be read; nothing for what is hidden."""
    digits = 1 if reach(array) >= 1 else 2
    near = np.round(array, digits) + 0.0  # no -0.0
    texts = [f"{x:.{digits}f}" if np.isfinite(x) else "" for x in near.flat]
    return np.array(texts).reshape(array.shape)
