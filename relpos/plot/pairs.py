"""Matrices of pairs: scores, their terms, weights, relative positions, the skew."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from relpos._attention.schemes import KEYWORDS, shows_keywords
from relpos._attention.scores import scores as scores_of
from relpos._checks import as_array, as_flag, as_int, as_integers, as_real, kind_of
from relpos.plot.panel import (
    MOST_NUMBERS,
    SIGNED,
    WEIGHTS,
    Array,
    Look,
    Options,
    Tokens,
    as_pairs,
    as_shaped,
    between,
    frame,
    heat_map,
    look_of,
    name_pairs,
    panels_of,
    picture,
    places_of,
    reach,
    write_numbers,
)

if TYPE_CHECKING:
    from typing import Unpack

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

_HEADS = "three axes, (H, Lq, Lk)"
_MOST = 1024  # queries of skew steps: beyond, a cell is less than a dot
_READABLE = 8  # queries whose cells have room for two lines
#: Parameters of `attention` that `scores` does not take.
_OTHERS = (*(KEYWORDS.keys() - signature(scores_of).parameters.keys()),)
#: Titles of the terms, with the letters of `attention`.
_TITLES = {
    "content": "content\n$q_i k_j$",
    "pos_bias_u": "content bias\n$u\\,k_j$",
    "rel_key": "position\n$q_i A_l$",
    "pos_bias_v": "position bias\n$v A_l$",
    "position_query": "position query\n$p_i A_l$",
    "rel_query": "key's position\n$k_j C_l$",
    "softcap": "what the cap\nadds",
    "rel_bias": "bias\n$b_l$",
    "log_decay": "decay\n$\\sum g_t$",
    "mask": "mask",
}


@picture()
def score_map(
    scores: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    tokens: Tokens | None = None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
    center: float = 0.0,
    annotate: str | bool = "auto",
    ax: Axes | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Scores of one head, one row per query; hidden pairs are grey.

    The center is white, smaller scores are blue and larger ones red. Scores in a figure
    have one scale.

    Parameters
    ----------
    scores : array_like of real, (Lq, Lk)
        For instance ``relpos.scores(query, key)[0]``. A score that is not finite is
        hidden.
    mask : array_like of bool, (Lq, Lk), optional
        True where a query may attend; other pairs are drawn as hidden.
    center : float, default 0
        The score that is white.
    annotate : bool or "auto", default "auto"
        Write each score into its cell; "auto" where there are few enough to be read.
    vmin, vmax : float, optional
        The numbers at the ends of the colours, for this map alone; one of them alone
        leaves the center in the middle.

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
    wanted = "two axes, (Lq, Lk): one head, such as scores[0]"
    array = as_shaped("scores", scores, 2, wanted)
    if mask is not None:
        array = np.where(_as_mask(mask, array.shape), array, np.nan)
    places = places_of(array.shape, tokens, query_tokens, key_tokens)
    middle, look = as_real("center", center), look_of(**options)
    numbers = _annotated(annotate, array)
    kind = f"scores about {middle}" if middle else "scores"
    ax = heat_map(kind, array, ax, look, center=middle)
    if numbers:
        digits = 1 if reach(array) >= 1 else 2
        near = np.round(array, digits) + 0.0  # no -0.0
        texts = [f"{x:.{digits}f}" if np.isfinite(x) else "" for x in near.flat]
        write_numbers(ax, np.array(texts).reshape(array.shape))
    return name_pairs(ax, places)


def _as_mask(mask: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    """Return True where a query may attend."""
    array = as_array("mask", mask)
    if array.dtype != np.bool_:
        raise TypeError(f"mask: got {kind_of(array)}; expected an array of bool")
    if array.shape != shape:
        raise ValueError(f"mask: got shape {array.shape}; expected {shape}")
    return array


def _annotated(annotate: str | bool, array: Array) -> bool:
    """Return True where cells have their numbers."""
    if not isinstance(annotate, str):
        return as_flag("annotate", annotate)
    if annotate != "auto":
        raise ValueError(f"annotate: got {annotate!r}; expected 'auto' or a bool")
    return bool(max(array.shape) <= MOST_NUMBERS)


@picture()
def attention_map(
    weights: npt.ArrayLike,
    *,
    head: int | None = None,
    tokens: Tokens | None = None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
    ax: Axes | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Attention weights or scores of one head, one row per query.

    Weights go from dark, which is 0, to bright. With a negative number among them they
    are scores: zero is white, negative numbers are blue and positive ones red. All
    weights in a figure have one scale, and so have all scores.

    Parameters
    ----------
    weights : array_like of real, (Lq, Lk) or, with `head`, (H, Lq, Lk)
        One head of ``relpos.attention(..., return_weights=True).weights``, or scores,
        as of ``relpos.shaw_scores``. Hidden keys, whose numbers are not finite, are
        grey.
    head : int, optional
        The head to draw, of those that `weights` has.
    vmin, vmax : float, optional
        The numbers at the ends of the colours, for this map alone. A negative `vmin`
        asks for the colours of scores; `vmax` alone leaves their zero in the middle.

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
        array = as_shaped("weights", weights, 2, wanted)
    else:
        heads = as_shaped("weights", weights, 3, _HEADS)
        array = heads[as_int("head", head, 0, len(heads) - 1)]
    places = places_of(array.shape, tokens, query_tokens, key_tokens)
    look = look_of(**options)
    kind, center = ("scores", 0.0) if _signed(array, look) else ("weights", None)
    return name_pairs(heat_map(kind, array, ax, look, center=center), places)


def _signed(array: Array, look: Look) -> bool:
    """Return True for scores: weights are not negative."""
    return bool((array[np.isfinite(array)] < 0).any()) or (look.limits[0] or 0.0) < 0


@picture()
def attention_heads(
    weights: npt.ArrayLike,
    *,
    columns: int = 4,
    tokens: Tokens | None = None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
    figure: Figure | None = None,
    **options: Unpack[Options],
) -> npt.NDArray[np.object_]:
    """Attention weights or scores of all heads as a grid, on one scale.

    Parameters
    ----------
    weights : array_like of real, (H, Lq, Lk)
        As of `attention_map`, of all heads.
    columns : int, default 4
        Heads in a row.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, (H,)
        The axes drawn into, one for each head.

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
    look, across = look_of(**options), as_int("columns", columns, 1)
    center = 0.0 if _signed(array, look) else None
    one = Look(between(look.limits, reach(array), center), look.cmap)
    panels = panels_of(figure, len(array), across, look, below=places[1])
    for n, ax in enumerate(panels):
        heat_map("heads", array[n], ax, one, center=center, bar=False)
        ax.set_title(f"head {n}")
        name_pairs(ax, places).label_outer()
    panels[0].figure.colorbar(panels[0].images[-1], ax=[*panels])
    return panels


@picture()
@shows_keywords(_OTHERS)
def score_terms(
    query: npt.ArrayLike,
    key: npt.ArrayLike,
    *,
    head: int = 0,
    tokens: Tokens | None = None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    figure: Figure | None = None,
    **keywords: Any,
) -> npt.NDArray[np.object_]:
    """Each term of the scores of one head, and their sum, on one scale.

    Each term is a map as that of `score_map`: zero is white, hidden pairs are grey.

    Parameters
    ----------
    query : array_like, (H, Lq, D)
        One row for each query; axes of one batch item may come first.
    key : array_like, (Hk, Lk, D)
        One row for each key.
    head : int, default 0
        The head to draw.
    **keywords
        As of `relpos.scores`: tables, biases and masks.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, (terms + 1,)
        The axes drawn into, in the order of `relpos.scores`, that of the sum last.

    Raises
    ------
    ValueError, TypeError, IndexError
        As `relpos.scores`; or if there is more than one batch item.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> x = np.eye(3)[None]
    >>> panels = relpos.plot.score_terms(
    ...     x, x, rel_key=np.ones((5, 3)), pos_bias_u=np.ones(3), figure=Figure()
    ... )
    >>> [ax.get_title().split()[0] for ax in panels]
    ['content', 'content', 'position', 'sum']
    """
    terms = _of_one_head(scores_of(query, key, terms=True, **keywords), head)
    total: Array = np.sum([*terms.values()], axis=0)
    places = places_of(total.shape, tokens, query_tokens, key_tokens)
    look = look_of(vmin, vmax, cmap, title)
    shown = {_TITLES[name]: term for name, term in terms.items()} | {"sum": total}
    farthest = max(map(reach, shown.values()))
    one = Look(between(look.limits, farthest, 0.0), look.cmap)
    panels = panels_of(figure, len(shown), 5, look, 2.6, places[1])
    for ax, (name, term) in zip(panels, shown.items(), strict=True):
        heat_map("terms", term, ax, one, bar=False)
        ax.set_title(name)
        name_pairs(ax, places).label_outer()
    panels[0].figure.colorbar(panels[0].images[-1], ax=[*panels])
    return panels


def _of_one_head(terms: dict[str, Array], head: int) -> dict[str, Array]:
    """Return each term of one head, (Lq, Lk)."""
    *batch, heads, rows, columns = terms["content"].shape
    if batch and set(batch) != {1}:
        raise ValueError(
            f"query: got {tuple(batch)} batch items; expected one, such as query[0]"
        )
    if not rows * columns:
        raise ValueError(
            f"query: got {rows} by {columns} scores; expected some to draw"
        )
    chosen = as_int("head", head, 0, heads - 1)
    return {n: t.reshape(heads, rows, columns)[chosen] for n, t in terms.items()}


@picture()
def relative_position_map(
    relative: npt.ArrayLike,
    *,
    highlight: Sequence[tuple[int, int]] = (),
    clip_marks: bool = True,
    tokens: Tokens | None = None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
    ax: Axes | None = None,
    **options: Unpack[Options],
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

    Raises
    ------
    IndexError
        If `highlight` has a pair outside the matrix.

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
    array = as_shaped("relative", numbers, 2, "two axes, (Lq, Lk)")
    framed = as_pairs("highlight", highlight, array.shape)
    places = places_of(array.shape, tokens, query_tokens, key_tokens)
    look, marked = look_of(**options), as_flag("clip_marks", clip_marks)
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
    """Return True where a position does not change from one key to the next.

    Matrices that change by another step than 0 or 1 have no clipped positions.
    """
    found = np.zeros(numbers.shape, bool)
    steps = np.diff(numbers, axis=1)
    if not np.isin(steps, (0, 1)).all() or not steps.any():
        return found
    stays = steps == 0
    found[:, 1:] |= stays & (numbers[:, 1:] == numbers.max())
    found[:, :-1] |= stays & (numbers[:, :-1] == numbers.min())
    return found


@picture()
def skew_steps(
    scores: npt.ArrayLike | int,
    *,
    figure: Figure | None = None,
    **options: Unpack[Options],
) -> npt.NDArray[np.object_]:
    """Pad, reshape and slice: how scores per distance become scores per key.

    Four panels: the scores, a column of zeros before them, the same numbers in rows one
    shorter, and these without the first row, which is ``relpos.skew``. Each cell has
    its query and its distance where there are at most 8 queries. Hatched numbers are
    those of another query: a causal mask hides them.

    Parameters
    ----------
    scores : int or array_like of real, (L, L)
        The number of queries, for cells in the colour of their distance; or the scores
        themselves, column t for distance t - (L - 1).

    Returns
    -------
    ndarray of matplotlib.axes.Axes, (4,)
        The axes drawn into, from left to right.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> panels = relpos.plot.skew_steps(3, figure=Figure())
    >>> [text.get_text().split() for text in panels[3].texts][:3]
    [['q0', '0'], ['0'], ['q1', '-2']]
    """
    look = look_of(**options)
    if isinstance(scores, int | np.integer):
        count, usual = as_int("scores", scores, 1, _MOST), WEIGHTS
        array: Array = np.tile(np.arange(1.0 - count, 1.0), (count, 1))
    else:
        wanted, usual = "a number of queries or two axes, (L, L)", SIGNED
        array = as_shaped("scores", scores, 2, wanted)
        if array.shape[0] != array.shape[1]:
            raise ValueError(f"scores: got shape {array.shape}; expected (L, L)")
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


def _steps(array: Array) -> list[tuple[str, Array, Array]]:
    """Return the title, the numbers and the texts of each panel."""
    count = len(array)
    texts = [[f"q{i}\n{t - count + 1}" for t in range(count)] for i in range(count)]
    named = np.array(texts, object)
    found = [("1. column = distance", array, named)]
    # A column of zeros is no scores: nan is grey, as a hidden pair is.
    array = np.pad(array, ((0, 0), (1, 0)), constant_values=np.nan)
    named = np.pad(named, ((0, 0), (1, 0)), constant_values="0")
    found.append(("2. a column of zeros in front", array, named))
    array, named = (x.reshape(count + 1, count) for x in (array, named))
    found.append((f"3. same memory, {count + 1} rows of {count}", array, named))
    return [*found, ("4. first row cut off: relpos.skew", array[1:], named[1:])]
