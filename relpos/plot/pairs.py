"""Pairs of queries and keys: as cells of a matrix, and as arcs and arrows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from relpos._attention.edges import as_edges
from relpos._attention.operands import Sizes
from relpos._attention.positions import relative_positions
from relpos._attention.schemes import KEYWORDS, shows_keywords
from relpos._attention.scores import scores as scores_of
from relpos._checks import (
    as_array,
    as_flag,
    as_int,
    as_integers,
    as_real,
    check_shape,
    integers_of,
    kind_of,
)
from relpos._foreign import module_of
from relpos._text import amount
from relpos.plot import panel
from relpos.plot.panel import (
    Array,
    GridOptions,
    Look,
    Options,
    PairGridOptions,
    PairOptions,
    Panel,
    Tokens,
)

__all__ = ["attention_graph", "attention_heads", "attention_map", "edges"]
__all__ += ["relative_position_map", "score_map", "score_terms", "skew_steps"]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from relpos._attention.edges import SparseRows

_HEADS = "three axes, (H, Lq, Lk)"
_MOST = 1024  # queries of skew steps: beyond, a cell is less than a dot
_READABLE = 8  # queries whose cells have room for two lines
_MOST_NODES, _MOST_EDGES = 256, 4096  # tokens or nodes, and edges
_DIVERGING = "PuOr"
_DARK = "viridis_r"  # thick lines are the dark ones: pale ones are invisible on white
_BEND = 0.15  # of an arrow, so that those of the two directions do not overlap
_LOOP = 3.0  # the bend of one from a node to itself
#: Parameters of `attention` that `scores` does not take.
_OTHERS = (*(KEYWORDS.keys() - signature(scores_of).parameters.keys()),)
#: Titles of the terms, with the letters of `attention`; of others their names.
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


@panel.picture(PairOptions)
def score_map(
    scores: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    center: float = 0.0,
    annotate: str | bool = "auto",
    **options: Unpack[PairOptions],
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
    expected = "two axes, (Lq, Lk): one head, such as scores[0]"
    array = panel.as_shaped("scores", scores, 2, expected)
    if mask is not None:
        # A pair that is hidden has the number nan, which the map draws in grey.
        array = np.where(_as_mask(mask, array.shape), array, np.nan)
    look = panel.look_of(**options)
    middle = as_real("center", center)
    places = panel.places_of(array.shape, look)
    # A figure of few cells has room for a number in each.
    numbers = annotate == "auto" and max(array.shape) <= panel.MOST_NUMBERS
    if not isinstance(annotate, str):
        numbers = as_flag("annotate", annotate)
    elif annotate != "auto":
        raise ValueError(f"annotate: got {annotate!r}; expected 'auto' or a bool")
    kind = f"scores about {middle}" if middle else "scores"
    ax = panel.heat_map(array, look, kind, center=middle)
    if numbers:
        digits = 1 if panel.reach(array) >= 1 else 2
        near = np.round(array, digits) + 0.0  # no -0.0
        texts = [f"{x:.{digits}f}" if np.isfinite(x) else "" for x in near.flat]
        panel.write_numbers(ax, np.array(texts).reshape(array.shape))
    return panel.name_pairs(ax, places)


def _as_mask(mask: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    array = as_array("mask", mask)
    if array.dtype != np.bool_:
        raise TypeError(f"mask: got {kind_of(array)}; expected an array of bool")
    check_shape("mask", array, array.shape == shape, shape)
    return array


@panel.picture(PairOptions)
def attention_map(
    weights: npt.ArrayLike, *, head: int | None = None, **options: Unpack[PairOptions]
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
        expected = "two axes, (Lq, Lk): one head, such as weights[0]"
        array = panel.as_shaped("weights", weights, 2, expected)
    else:
        heads = panel.as_shaped("weights", weights, 3, _HEADS)
        array = heads[as_int("head", head, 0, len(heads) - 1)]
    look = panel.look_of(**options)
    places = panel.places_of(array.shape, look)
    # Weights begin at 0; scores have 0 in the middle of their colours.
    kind, center = ("scores", 0.0) if _signed(array, look) else ("weights", None)
    return panel.name_pairs(panel.heat_map(array, look, kind, center=center), places)


def _signed(array: Array, look: Look) -> bool:
    """Return True for scores: weights are not negative."""
    # A negative lower limit is a choice of scores, whatever numbers there are.
    return bool((array[np.isfinite(array)] < 0).any()) or (look.limits[0] or 0.0) < 0


@panel.picture(PairGridOptions)
def attention_heads(
    weights: npt.ArrayLike, *, columns: int = 4, **options: Unpack[PairGridOptions]
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
    array = panel.as_shaped("weights", weights, 3, _HEADS)
    look = panel.look_of(**options)
    maps = {f"head {n}": head for n, head in enumerate(array)}
    center = 0.0 if _signed(array, look) else None
    return _draw_maps(maps, look, as_int("columns", columns, 1), center=center)


def _draw_maps(
    maps: Mapping[str, Array],
    look: Look,
    columns: int,
    side: float = 3.0,
    center: float | None = 0.0,
) -> npt.NDArray[np.object_]:
    """Draw maps of the same pairs by title, on one scale."""
    # One scale for all maps: the largest number of any of them.
    farthest = max(map(panel.reach, maps.values()))
    limits = panel.between(look.limits, farthest, center)
    places = panel.places_of(next(iter(maps.values())).shape, look)
    panels = panel.panels_of(look, len(maps), columns, side, places[1])
    for ax, (title, array) in zip(panels, maps.items(), strict=True):
        own = Look(limits, look.cmap, title, ax)
        panel.heat_map(array, own, center=center, bar=False)
        # Only the outer maps name the axes, as inner labels would overlap.
        panel.name_pairs(ax, places).label_outer()
    return panel.share_bar(panels)


@panel.picture()
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
    query, key : array_like, (H, Lq, D) and (Hk, Lk, D)
        As of `relpos.scores`; axes of one batch item may come first.
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
    # The terms come by name in the order of the sum.
    terms = _of_one_head(scores_of(query, key, terms=True, **keywords), head)
    total: Array = np.sum([*terms.values()], axis=0)
    look = panel.look_of(
        tokens, query_tokens, key_tokens, vmin, vmax, cmap, title, figure=figure
    )
    maps = {_TITLES.get(name, name): term for name, term in terms.items()}
    return _draw_maps(maps | {"sum": total}, look, 5, side=2.6)


def _of_one_head(terms: dict[str, Array], head: int) -> dict[str, Array]:
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
    # One batch item, whose axes of length 1 go.
    return {n: t.reshape(heads, rows, columns)[chosen] for n, t in terms.items()}


@panel.picture(PairOptions)
def relative_position_map(
    relative: npt.ArrayLike | int = 6,
    *,
    highlight: Sequence[tuple[int, int]] = (),
    clip_marks: bool = True,
    **options: Unpack[PairOptions],
) -> Axes:
    """Matrix of relative positions, key minus query, with its numbers where they fit.

    Parameters
    ----------
    relative : int or array_like of int, (Lq, Lk), default 6
        The number L of tokens, which stands for ``relpos.relative_positions(L)``; or
        the relative position of each pair.
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
    if isinstance(relative, int | np.integer):
        relative = relative_positions(as_int("relative", relative, 1, _MOST))
    numbers = as_integers("relative", relative)
    expected = "two axes, (Lq, Lk), or a number of tokens"
    array = panel.as_shaped("relative", numbers, 2, expected)
    framed = panel.as_pairs("highlight", highlight, array.shape)
    look, marked = panel.look_of(**options), as_flag("clip_marks", clip_marks)
    places = panel.places_of(array.shape, look)
    own = look._replace(limits=panel.between(look.limits, panel.reach(array), 0.0))
    ax = panel.heat_map(array, own, cmap="PuOr")
    if marked:
        grey = (0.5, 0.5, 0.5, 0.6)
        for i, j in np.argwhere(_clipped(numbers)).tolist():
            panel.frame(ax, i, j, hatch="..", fill=False, edgecolor=grey)
    shown = np.full(array.shape, max(array.shape) <= panel.MOST_NUMBERS)
    # Numbers are written where all of them can be read, and at framed pairs in any
    # case.
    for i, j in framed:
        shown[i, j] = True  # of more than MOST_NUMBERS, these alone can be read
        panel.frame(ax, i, j, fill=False, edgecolor="black", linewidth=2.5)
    panel.write_numbers(ax, np.where(shown, numbers.astype(str), ""))
    return panel.name_pairs(ax, places)


def _clipped(numbers: Array) -> Array:
    """Return True where a position was clipped, as far as its neighbours tell.

    Two neighbours that differ by 1 are not clipped, and tell what all others would be.
    If all numbers are the same, the one that is nearest to 0 is not. Where queries are
    not 1 apart, only keys tell. Other matrices have no clipped positions.
    """
    clipped = np.zeros(numbers.shape, bool)
    low, high = numbers.min(), numbers.max()
    steps, falls = np.diff(numbers, axis=1), -np.diff(numbers, axis=0)
    if not np.isin(steps, (0, 1)).all() or low == high == 0:
        return clipped
    # A known cell is one of two neighbours that differ by 1, in a row or in a column.
    known = [*np.argwhere(steps == 1)[:1], *np.argwhere(falls == 1)[:1]]
    if known:
        i, j = known[0]
    elif high < 0:  # the nearest to 0 is at the top right
        i, j = 0, -1
    else:
        i, j = -1, 0
    rows, columns = (np.arange(size) for size in numbers.shape)
    # The matrix without a clip, as the known cell tells it.
    whole = numbers[i, j] + (columns - columns[j]) - (rows - rows[i])[:, None]
    if np.array_equal(np.clip(whole, low, high), numbers):
        return np.asarray(whole != numbers)
    # Otherwise a number at an end that repeats its neighbour was clipped.
    stays = (steps == 0) & steps.any()
    clipped[:, 1:] |= stays & (numbers[:, 1:] == high)
    clipped[:, :-1] |= stays & (numbers[:, :-1] == low)
    return clipped


@panel.picture(GridOptions)
def skew_steps(
    scores: npt.ArrayLike | int = 5, **options: Unpack[GridOptions]
) -> npt.NDArray[np.object_]:
    """Pad, reshape and slice: how scores per distance become scores per key.

    Four panels: the scores, a column of zeros before them, the same numbers in rows one
    shorter, and these without the first row, which is ``relpos.skew``. Each cell has
    its query and its distance where there are at most 8 queries. Hatched numbers are
    those of another query: a causal mask hides them.

    Parameters
    ----------
    scores : int or array_like of real, (L, L), default 5
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
    look = panel.look_of(**options)
    if isinstance(scores, int | np.integer):
        count, usual = as_int("scores", scores, 1, _MOST), panel.WEIGHTS
        array: Array = np.tile(np.arange(1.0 - count, 1.0), (count, 1))
    else:
        expected, usual = "a number of queries or two axes, (L, L)", panel.SIGNED
        array = panel.as_shaped("scores", scores, 2, expected)
        is_square = array.shape[0] == array.shape[1]
        check_shape("scores", array, is_square, "(L, L)")
    limits = panel.between(look.limits, panel.reach(array), 0.0)
    # A number of queries has no scores: the distances themselves are at most 0.
    if usual == panel.WEIGHTS and look.limits == (None, None):
        limits = (min(array[0, 0], -1.0), 0.0)
    steps = _steps(array)
    panels = panel.panels_of(look, len(steps), len(steps))
    for ax, (name, cells, texts) in zip(panels, steps, strict=True):
        panel.heat_map(cells, Look(limits, look.cmap, name, ax), cmap=usual, bar=False)
        ax.set(xticks=[], yticks=[])
        if len(array) <= _READABLE:
            panel.write_numbers(ax, texts)
    # Above the diagonal are numbers of the next query, which a causal mask hides.
    for i, j in np.argwhere(np.triu(np.ones(array.shape), 1)).tolist():
        panel.frame(
            panels[3], i, j, hatch="///", facecolor=(1, 1, 1, 0.7), edgecolor="grey"
        )
    for text in panels[3].texts:
        column, row = text.get_position()
        if column > row:
            # Above the hatches, which would hide the number.
            text.set(color="black", zorder=4)
    return panels


def _steps(array: Array) -> list[tuple[str, Array, Array]]:
    """Return the title, the numbers and the texts of each panel."""
    count = len(array)
    texts = [[f"q{i}\n{t - count + 1}" for t in range(count)] for i in range(count)]
    named = np.array(texts, object)
    steps = [("1. column = distance", array, named)]
    # A column of zeros is no scores: nan is grey, as a hidden pair is.
    array = np.pad(array, ((0, 0), (1, 0)), constant_values=np.nan)
    named = np.pad(named, ((0, 0), (1, 0)), constant_values="0")
    # Texts follow the same steps as the numbers, so that each cell names its origin.
    steps.append(("2. a column of zeros in front", array, named))
    array, named = (x.reshape(count + 1, count) for x in (array, named))
    rows = amount(count + 1, "row")
    steps.append((f"3. same memory, {rows} of {count}", array, named))
    return [*steps, ("4. first row cut off: relpos.skew", array[1:], named[1:])]


# ---- arcs and arrows -----------------------------------------------------------------


@panel.picture(Panel)
def edges(
    labels: npt.ArrayLike | int = 9,
    *,
    k: int | None = None,
    pairs: Sequence[tuple[int, int]] | None = None,
    tokens: Tokens | None = None,
    **options: Unpack[Panel],
) -> Axes:
    """Labelled arcs from queries to keys: figure 1 of Shaw et al.

    Arcs to later keys are above the tokens, arcs to earlier ones below. Equal labels
    have one colour.

    Parameters
    ----------
    labels : int or array_like of int, (L, L), default 9
        The number of tokens, for labels that are relative positions; or the label of
        each pair.
    k : int, optional
        Clip the labels to -k and k.
    pairs : sequence of (int, int), optional
        The arcs, each from a query to a key; by default those of the query in the
        middle to all others.
    tokens : sequence of str, optional
        Names of the tokens, in a row.

    Raises
    ------
    IndexError
        If `pairs` has one outside the matrix.

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
        chosen = panel.as_pairs("pairs", pairs, numbers.shape)
    look, named = panel.look_of(**options), panel.as_tokens("tokens", tokens, count)
    ax = panel.axes_of(look)
    colours = look.cmap or panel.colormap_of(_DIVERGING)
    # Labels may all be 0, and a share of them needs a number to divide by.
    farthest = panel.reach(numbers.astype(float)) or 1.0
    ax.plot(np.arange(count), np.zeros(count), "o", color="black", zorder=3)
    for i, j in chosen:
        share = numbers[i, j] / farthest
        ink = colours(0.5 + 0.2 * np.sign(share) + 0.3 * share)  # no pale arcs
        _draw_arc(ax, i, j, ink if share else "grey", numbers[i, j])
    panel.name_places(ax.xaxis, named or [str(n) for n in range(count)])
    ax.set(yticks=[], xlabel="key j > i above, j < i below")
    ax.margins(y=0.15)
    return ax


def _labels(labels: npt.ArrayLike | int) -> Array:
    if isinstance(labels, int | np.integer):
        return relative_positions(as_int("labels", labels, 1, _MOST_NODES))
    numbers = as_integers("labels", labels)
    panel.as_shaped("labels", numbers, 2, "a number of tokens or two axes, (L, L)")
    fits = numbers.shape[0] == numbers.shape[1] <= _MOST_NODES
    check_shape("labels", numbers, fits, f"(L, L), L up to {_MOST_NODES}")
    return numbers


def _draw_arc(ax: Axes, i: int, j: int, colour: Any, label: int) -> None:
    """Draw half an ellipse from token i to token j, its label at the top."""
    turn = np.linspace(0.0, np.pi, 50)
    height = (j - i) / 2  # negative, below the line, for an earlier key
    x = (i + j) / 2 - (j - i) / 2 * np.cos(turn)
    ax.plot(x, height * np.sin(turn), color=colour, linewidth=2)
    box = {"facecolor": "white", "edgecolor": colour, "boxstyle": "round,pad=0.2"}
    # The label is at the top of the arc, half as high as the arc is wide.
    ax.text((i + j) / 2, height, str(label), bbox=box, **panel.SMALL)


@panel.picture()
def attention_graph(
    indptr: npt.ArrayLike | None = None,
    indices: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    layout: npt.ArrayLike | None = None,
    *,
    edges: npt.ArrayLike | SparseRows | None = None,
    tokens: Tokens | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Graph along which queries attend: an arrow from each query to each of its keys.

    Queries and keys are the same nodes. A large weight is a thick and dark arrow. An
    edge that is given twice has two arrows.

    Parameters
    ----------
    indptr : array_like of int, (Lq + 1,), optional
        Start of each query's edges, as in ``relpos.graph_attention``.
    indices : array_like of int, (edges,), optional
        Key of each edge. `indptr` and `indices` come together, or `edges` in their
        place.
    weights : array_like of real, (edges,), optional
        Of one head; an edge whose weight is not finite is left out.
    labels : array_like of int, (edges,), optional
        Written on the arrows; negative ones are left out.
    layout : array_like of real, (n, 2), optional
        Coordinates of each node, x and y; a circle by default, clockwise from the top.
    edges : array_like of int, (2, edges), or CSR matrix of scipy.sparse, optional
        Key of each edge in row 0 and its query in row 1; or a matrix, whose rows are
        queries. At most 256 nodes and 4096 edges.
    tokens : sequence of str, optional
        In the nodes; their numbers by default.
    vmin, vmax : float, optional
        The weights at the ends of the colours.

    Raises
    ------
    IndexError
        If an edge has an end that is no node.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.attention_graph(
    ...     [0, 2, 2, 3], [0, 2, 1], labels=[5, 6, 7], ax=Figure().subplots()
    ... )
    >>> [text.get_text() for text in ax.texts if text.get_text()]
    ['5', '6', '7', '0', '1', '2']
    """
    queries, keys, count = _ends(indptr, indices, edges)
    sizes = None if weights is None else panel.as_reals("weights", weights)
    marks = None if labels is None else as_integers("labels", labels)
    for name, array in (("weights", sizes), ("labels", marks)):
        if array is not None:
            fits, expected = array.shape == keys.shape, f"{keys.shape}, one per edge"
            check_shape(name, array, fits, expected)
    nodes = _layout(layout, tokens, count)
    for ends in (queries, keys):
        if ends.max(initial=-1) >= len(nodes):
            raise IndexError(
                f"edges: got one at node {ends.max()}; expected nodes up to "
                f"{len(nodes) - 1}"
            )
    names = panel.as_tokens("tokens", tokens, len(nodes))
    names = names or [str(n) for n in range(len(nodes))]
    look = panel.look_of(**options)
    chosen = np.arange(len(keys))
    if sizes is not None:
        chosen = chosen[np.isfinite(sizes)]
        sizes = sizes[chosen]
    arrows = _arrows(nodes, queries[chosen], keys[chosen])
    ax = panel.axes_of(look)
    colours, widths = _draw_bar(ax, arrows, sizes, look)
    for e, arrow, colour, width in zip(chosen, arrows, colours, widths, strict=True):
        mark = "" if marks is None or marks[e] < 0 else str(marks[e])
        _draw_arrow(ax, arrow, mark, color=colour, linewidth=width)
    box = {"facecolor": "white", "boxstyle": "round,pad=0.4"}
    for (x, y), name in zip(nodes, names, strict=True):
        ax.text(x, y, name, ha="center", va="center", bbox=box, zorder=4)
    ax.plot(*nodes.T, linestyle="")  # so that the axes reach all nodes
    ax.margins(0.25)
    ax.set(aspect="equal", xticks=[], yticks=[], xlabel="from queries to their keys")
    return ax


def _ends(indptr: object, indices: object, edges: Any) -> tuple[Array, Array, int]:
    """Return query and key of each edge, in the order given, and the count of nodes."""
    # An array of edges does not say how many nodes there are.
    rows = columns = _MOST_NODES
    if module_of(edges, "scipy.sparse") and len(edges.shape) == 2:
        rows, columns = edges.shape
    elif edges is None and indptr is not None:
        rows = max(integers_of("indptr", indptr).size - 1, 0)
    sizes = Sizes(1, 1, rows, columns, 1, 1, 1, has_position_query=False)
    # The checks are those of graph attention, which reads all three forms of a graph.
    arguments = {
        "indptr": indptr,
        "indices": indices,
        "edges": edges,
        "edge_labels": None,
    }
    graph = as_edges(arguments, {}, sizes)
    starts, keys = graph["indptr"], graph["indices"]
    if keys.size > _MOST_EDGES or rows > _MOST_NODES:
        raise ValueError(
            f"edges: got {keys.size} of {amount(rows, 'query')}; expected at most "
            f"{_MOST_EDGES} of {_MOST_NODES}"
        )
    if (np.diff(starts) < 0).any():
        raise ValueError("indptr: falls; expected it to rise")
    if keys.min(initial=0) < 0 or keys.max(initial=0) >= _MOST_NODES:
        raise IndexError(f"indices: got some outside 0 to {_MOST_NODES - 1}")
    queries = np.repeat(np.arange(rows), np.diff(starts))
    # An array of edges is drawn in its own order, and the CSR form is sorted by query.
    listed = edges is not None and not module_of(edges, "scipy.sparse")
    if listed:
        keys, queries = as_integers("edges", edges)
    # Nodes without an edge count only where the form says how many there are.
    nodes = max(keys.max(initial=-1), queries.max(initial=-1)) + 1
    return queries, keys, int(nodes if listed else max(rows, nodes))


def _layout(layout: object, tokens: object, count: int) -> Array:
    """Return (n, 2) coordinates of the nodes: of a circle, if none are given."""
    if layout is not None:
        places = panel.as_shaped("layout", layout, 2, "two axes, (n, 2)")
        fits = places.shape[1] == 2 and np.isfinite(places).all()
        check_shape("layout", places, fits, "(n, 2), finite numbers")
        return places
    if isinstance(tokens, Sequence | np.ndarray) and 0 < len(tokens) <= _MOST_NODES:
        count = max(count, len(tokens))
    if not count:
        raise ValueError("edges: got a graph of no nodes; expected something to draw")
    # Clockwise from the top: the angle falls from a right angle on.
    angles = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


class _Arrow(NamedTuple):
    """Both ends of an arrow, its bend, and its middle."""

    start: Array
    end: Array
    bend: float
    middle: Array


def _arrows(nodes: Array, queries: Array, keys: Array) -> list[_Arrow]:
    """Return arrows that do not overlap; one from a node to itself is a loop."""
    # Half the size of the drawing, as lengths below are shares of it.
    unit = float(np.ptp(nodes, axis=0).max()) / 2 or 1.0
    center = nodes.mean(axis=0)
    seen = Counter[tuple[int, int]]()
    arrows = []
    for i, j in zip(queries.tolist(), keys.tolist(), strict=True):
        seen[i, j] += 1
        start, end = nodes[i], nodes[j]
        bend = _BEND * seen[i, j]  # a second arrow bends more than the first
        if i == j:  # a loop on the side away from the centre
            away = nodes[i] - center
            away = away / np.hypot(*away) if away.any() else np.array([0.0, 1.0])
            aside = 0.12 * unit * np.array([-away[1], away[0]])
            start, end = nodes[i] - aside, nodes[i] + aside
            bend = _LOOP + 5 * bend
        dx, dy = end - start
        # A quadratic arc passes halfway between its chord and its bend.
        middle = (start + end) / 2 + bend / 2 * np.array([dy, -dx])
        arrows.append(_Arrow(start, end, bend, middle))
    return arrows


def _draw_bar(
    ax: Axes, arrows: list[_Arrow], sizes: Array | None, look: Look
) -> tuple[Sequence[Any], Array]:
    """Draw a colour bar of the weights; return colours and widths of the arrows."""
    x, y = np.array([arrow.middle for arrow in arrows]).reshape(-1, 2).T
    if sizes is None:
        ax.plot(x, y, linestyle="")  # so that the axes reach all arrows
        return ["dimgrey"] * len(arrows), np.full(len(arrows), 1.5)
    signed = bool((sizes < 0).any())
    low, high = panel.between(look.limits, panel.reach(sizes), 0.0 if signed else None)
    # Weights have the colours of a scale from 0, scores those with 0 in the middle.
    colours = look.cmap or (panel.SIGNED if signed else _DARK)
    dots = ax.scatter(x, y, s=0, c=sizes, cmap=colours, vmin=low, vmax=high)
    ax.figure.colorbar(dots, ax=ax, label="weight")
    # The thickest line is of the largest weight, and none is thinner than 1.
    widths = 1 + 4 * np.abs(sizes) / (panel.reach(sizes) or 1.0)
    return [*dots.to_rgba(sizes)], widths


def _draw_arrow(ax: Axes, arrow: _Arrow, mark: str, **style: Any) -> None:
    bent = {"arrowstyle": "-|>", "connectionstyle": f"arc3,rad={arrow.bend}"}
    # An arrow ends before the box of its node. A loop begins and ends next to it.
    shrink = {"shrinkA": 4, "shrinkB": 14 if arrow.bend < _LOOP else 4}
    start, end = tuple(arrow.start), tuple(arrow.end)
    ax.annotate("", end, start, arrowprops=bent | shrink | style)
    if mark:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        x, y = arrow.middle
        ax.text(x, y, mark, bbox=box, zorder=3, **panel.SMALL)
