"""Pairs as arcs and arrows: tokens in a row, and nodes of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from relpos._attention.edges import Edges, as_edges
from relpos._attention.operands import Sizes
from relpos._attention.positions import relative_positions
from relpos._checks import as_int, as_integers, integers_of
from relpos._foreign import module_of
from relpos.plot.panel import (
    SIGNED,
    Array,
    Look,
    Options,
    Tokens,
    as_pairs,
    as_reals,
    as_shaped,
    as_tokens,
    axes_of,
    between,
    colormap_of,
    look_of,
    name_places,
    picture,
    reach,
)

if TYPE_CHECKING:
    from typing import Unpack

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    from relpos._attention.edges import SparseRows

_MOST, _MOST_EDGES = 256, 4096  # tokens or nodes, and edges
_DIVERGING = "PuOr"
_DARK = "viridis_r"  # thick lines are the dark ones: pale ones are invisible on white
_BEND = 0.15  # of an arrow, so that those of the two directions do not overlap
_LOOP = 3.0  # the bend of one from a node to itself
_SMALL: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small"}


@picture()
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

    Arcs to later keys are above the tokens, arcs to earlier ones below. Equal labels
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
        chosen = as_pairs("pairs", pairs, numbers.shape)
    look, named = look_of(None, None, cmap, title), as_tokens("tokens", tokens, count)
    ax = axes_of(ax, look.title)
    colours = look.cmap or colormap_of(_DIVERGING)
    farthest = reach(numbers.astype(float)) or 1.0
    ax.plot(np.arange(count), np.zeros(count), "o", color="black", zorder=3)
    for i, j in chosen:
        share = numbers[i, j] / farthest
        ink = colours(0.5 + 0.2 * np.sign(share) + 0.3 * share)  # no pale arcs
        _draw_arc(ax, i, j, ink if share else "grey", numbers[i, j])
    name_places(ax.xaxis, named or [str(n) for n in range(count)])
    ax.set(yticks=[], xlabel="key j > i above, j < i below")
    ax.margins(y=0.15)
    return ax


def _labels(given: npt.ArrayLike | int) -> Array:
    """Return (L, L) labels of a number of tokens, or as they are."""
    if isinstance(given, int | np.integer):
        return relative_positions(as_int("labels", given, 1, _MOST))
    numbers = as_integers("labels", given)
    as_shaped("labels", numbers, 2, "a number of tokens or two axes, (L, L)")
    if numbers.shape[0] != numbers.shape[1] or len(numbers) > _MOST:
        raise ValueError(
            f"labels: got shape {numbers.shape}; expected (L, L), L up to {_MOST}"
        )
    return numbers


def _draw_arc(ax: Axes, i: int, j: int, colour: Any, label: int) -> None:
    """Draw half an ellipse from token i to token j, its label at the top."""
    turn = np.linspace(0.0, np.pi, 50)
    height = (j - i) / 2  # negative, below the line, for an earlier key
    x = (i + j) / 2 - (j - i) / 2 * np.cos(turn)
    ax.plot(x, height * np.sin(turn), color=colour, linewidth=2)
    box = {"facecolor": "white", "edgecolor": colour, "boxstyle": "round,pad=0.2"}
    ax.text((i + j) / 2, height, str(label), bbox=box, **_SMALL)


@picture()
def attention_graph(
    indptr: npt.ArrayLike | None = None,
    indices: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    layout: npt.ArrayLike | None = None,
    *,
    edges: npt.ArrayLike | SparseRows | None = None,
    tokens: Tokens | None = None,
    ax: Axes | None = None,
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
    sizes = None if weights is None else as_reals("weights", weights)
    marks = None if labels is None else as_integers("labels", labels)
    for name, given in (("weights", sizes), ("labels", marks)):
        if given is not None and given.shape != keys.shape:
            raise ValueError(
                f"{name}: got shape {given.shape}; expected {keys.shape}, one per edge"
            )
    nodes = _layout(layout, tokens, count)
    for ends in (queries, keys):
        if ends.max(initial=-1) >= len(nodes):
            raise IndexError(
                f"edges: got one at node {ends.max()}; expected nodes up to "
                f"{len(nodes) - 1}"
            )
    names = as_tokens("tokens", tokens, len(nodes)) or [*map(str, range(len(nodes)))]
    look = look_of(**options)
    chosen = np.arange(len(keys))
    if sizes is not None:
        chosen = chosen[np.isfinite(sizes)]
        sizes = sizes[chosen]
    arrows = _arrows(nodes, queries[chosen], keys[chosen])
    ax, colours, widths = _draw_bar(ax, arrows, sizes, look)
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
    rows = columns = _MOST
    if module_of(edges, "scipy.sparse") and len(edges.shape) == 2:
        rows, columns = edges.shape
    elif edges is None and indptr is not None:
        rows = max(integers_of("indptr", indptr).size - 1, 0)
    sizes = Sizes(1, 1, rows, columns, 1, 1, 1, own=False)
    graph = as_edges(Edges(indptr, indices, None, edges), {}, sizes)
    starts, keys = graph["indptr"], graph["indices"]
    if keys.size > _MOST_EDGES or rows > _MOST:
        raise ValueError(
            f"edges: got {keys.size} of {rows} queries; expected at most {_MOST_EDGES} "
            f"of {_MOST}"
        )
    if (np.diff(starts) < 0).any():
        raise ValueError("indptr: falls; expected it to rise")
    if keys.min(initial=0) < 0 or keys.max(initial=0) >= _MOST:
        raise IndexError(f"indices: got some outside 0 to {_MOST - 1}")
    queries = np.repeat(np.arange(rows), np.diff(starts))
    listed = edges is not None and not module_of(edges, "scipy.sparse")
    if listed:
        keys, queries = as_integers("edges", edges)
    found = max(keys.max(initial=-1), queries.max(initial=-1)) + 1
    return queries, keys, int(found if listed else max(rows, found))


def _layout(layout: object, tokens: object, count: int) -> Array:
    """Return (n, 2) coordinates of the nodes: of a circle, if none are given."""
    if layout is not None:
        places = as_shaped("layout", layout, 2, "two axes, (n, 2)")
        if places.shape[1] != 2 or not np.isfinite(places).all():
            raise ValueError(
                f"layout: got shape {places.shape}; expected (n, 2), finite numbers"
            )
        return places
    if isinstance(tokens, Sequence | np.ndarray) and 0 < len(tokens) <= _MOST:
        count = max(count, len(tokens))
    if not count:
        raise ValueError("edges: got a graph of no nodes; expected something to draw")
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
    unit = float(np.ptp(nodes, axis=0).max()) / 2 or 1.0
    center, seen, found = nodes.mean(axis=0), Counter[tuple[int, int]](), []
    for i, j in zip(queries.tolist(), keys.tolist(), strict=True):
        seen[i, j] += 1
        start, end, bend = nodes[i], nodes[j], _BEND * seen[i, j]
        if i == j:
            away = nodes[i] - center
            away = away / np.hypot(*away) if away.any() else np.array([0.0, 1.0])
            aside = 0.12 * unit * np.array([-away[1], away[0]])
            start, end, bend = nodes[i] - aside, nodes[i] + aside, _LOOP + 5 * bend
        dx, dy = end - start
        middle = (start + end) / 2 + bend / 2 * np.array([dy, -dx])
        found.append(_Arrow(start, end, bend, middle))
    return found


def _draw_bar(
    ax: Axes | None, arrows: list[_Arrow], sizes: Array | None, look: Look
) -> tuple[Axes, Sequence[Any], Array]:
    """Draw a colour bar of the weights; return colours and widths of the arrows."""
    ax = axes_of(ax, look.title)
    x, y = np.array([arrow.middle for arrow in arrows]).reshape(-1, 2).T
    if sizes is None:
        ax.plot(x, y, linestyle="")  # so that the axes reach all arrows
        return ax, ["dimgrey"] * len(arrows), np.full(len(arrows), 1.5)
    signed = bool((sizes < 0).any())
    low, high = between(look.limits, reach(sizes), 0.0 if signed else None)
    colours = look.cmap or (SIGNED if signed else _DARK)
    dots = ax.scatter(x, y, s=0, c=sizes, cmap=colours, vmin=low, vmax=high)
    ax.figure.colorbar(dots, ax=ax, label="weight")
    widths = 1 + 4 * np.abs(sizes) / (reach(sizes) or 1.0)
    return ax, [*dots.to_rgba(sizes)], widths


def _draw_arrow(ax: Axes, arrow: _Arrow, mark: str, **style: Any) -> None:
    """Draw the arrow and, on it, its label."""
    bent = {"arrowstyle": "-|>", "connectionstyle": f"arc3,rad={arrow.bend}"}
    shrink = {"shrinkA": 4, "shrinkB": 14 if arrow.bend < _LOOP else 4}
    start, end = tuple(arrow.start), tuple(arrow.end)
    ax.annotate("", end, start, arrowprops=bent | shrink | style)
    if mark:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        x, y = arrow.middle
        ax.text(x, y, mark, bbox=box, zorder=3, **_SMALL)
