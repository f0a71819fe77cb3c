"""Graphs: nodes, and an arrow for each labelled, weighted edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from relpos._attention.edges import Edges, as_edges
from relpos._attention.operands import Sizes
from relpos._checks import as_integers, integers_of
from relpos._foreign import module_of
from relpos.plot.panel import (
    SIGNED,
    Array,
    Look,
    Tokens,
    as_matrix,
    as_reals,
    as_tokens,
    axes_of,
    between,
    look_of,
    reach,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    from relpos._attention.edges import SparseRows

_MOST, _MOST_EDGES = 256, 4096
_DARK = "viridis_r"  # thick lines are the dark ones: pale ones would be lost on white
_BEND = 0.15  # of an arrow, so that those of the two directions lie side by side
_LOOP = 3.0  # the bend of one from a node to itself


def attention_graph(
    indptr: npt.ArrayLike | None = None,
    indices: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    layout: npt.ArrayLike | None = None,
    *,
    edges: npt.ArrayLike | SparseRows | None = None,
    tokens: Tokens | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Graph along which queries attend: an arrow from each query to each of its keys.

    Queries and keys are the same nodes. A large weight is a thick and dark arrow. An
    edge that stands twice has two arrows.

    Parameters
    ----------
    indptr : array_like of int, (Lq + 1,), optional
        Where each query's edges begin, as in ``relpos.graph_attention``.
    indices : array_like of int, (edges,), optional
        Key of each edge. `indptr` and `indices` come together, or `edges` in their
        place.
    weights : array_like of real, (edges,), optional
        Of one head; an edge whose weight is not finite is left out.
    labels : array_like of int, (edges,), optional
        Beside the arrows; negative ones are none.
    layout : array_like of real, (n, 2), optional
        Where each node lies, x and y; a circle by default, clockwise from the top.
    edges : array_like of int, (2, edges), or CSR matrix of scipy.sparse, optional
        Key of each edge in row 0 and its query in row 1; or a matrix, whose rows are
        queries.
    tokens : sequence of str, optional
        In the nodes; their numbers by default.
    vmin, vmax : float, optional
        The weights at the ends of the colours.
    cmap : str or Colormap, optional
        Other colours.
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
        If an argument has another shape, length or value than it says, or there are
        more than 256 nodes or 4096 edges.
    TypeError
        If an argument is of another kind than it says.
    IndexError
        If an edge has an end that is no node.

    See Also
    --------
    relpos.graph_attention : Attends along the edges.
    edges : The tokens of a sequence in a row.

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
    nodes = _places(layout, tokens, count)
    for ends in (queries, keys):
        if ends.max(initial=-1) >= len(nodes):
            raise IndexError(
                f"edges: got one at node {ends.max()}; expected nodes up to "
                f"{len(nodes) - 1}"
            )
    names = as_tokens("tokens", tokens, len(nodes)) or [*map(str, range(len(nodes)))]
    look = look_of(vmin, vmax, cmap, title)
    chosen = np.arange(len(keys))
    if sizes is not None:
        chosen = chosen[np.isfinite(sizes)]
        sizes = sizes[chosen]
    arrows = _arrows(nodes, queries[chosen], keys[chosen])
    colours, widths = ["dimgrey"] * len(arrows), np.full(len(arrows), 1.5)
    ax = _colour(axes_of(ax), arrows, sizes, look)
    if sizes is not None:
        colours = [*ax.collections[-1].to_rgba(sizes)]
        widths = 1 + 4 * np.abs(sizes) / (reach(sizes) or 1.0)
    for e, arrow, colour, width in zip(chosen, arrows, colours, widths, strict=True):
        mark = "" if marks is None or marks[e] < 0 else str(marks[e])
        _draw(ax, arrow, mark, color=colour, linewidth=width)
    box = {"facecolor": "white", "boxstyle": "round,pad=0.4"}
    for (x, y), name in zip(nodes, names, strict=True):
        ax.text(x, y, name, ha="center", va="center", bbox=box, zorder=4)
    ax.plot(*nodes.T, linestyle="")  # so that the axes reach all nodes
    ax.margins(0.25)
    ax.set(aspect="equal", xticks=[], yticks=[], xlabel="from queries to their keys")
    if look.title is not None:
        ax.set_title(look.title)
    return ax


def _ends(indptr: object, indices: object, edges: Any) -> tuple[Array, Array, int]:
    """Query and key of each edge, in the order given, and how many nodes there are."""
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


def _places(layout: object, tokens: object, count: int) -> Array:
    """(n, 2) places of the nodes: of a circle, if none are given."""
    if layout is not None:
        places = as_matrix("layout", layout, "two axes, (n, 2)")
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
    """From where to where, how much it is bent, and the middle of it."""

    start: Array
    end: Array
    bend: float
    middle: Array


def _arrows(nodes: Array, queries: Array, keys: Array) -> list[_Arrow]:
    """Arrows that keep clear of each other; one from a node to itself is a loop."""
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


def _colour(ax: Axes, arrows: list[_Arrow], sizes: Array | None, look: Look) -> Axes:
    """A colour bar of the weights, whose colours those of the arrows are."""
    middles = np.array([arrow.middle for arrow in arrows]).reshape(-1, 2)
    if sizes is None:
        ax.plot(*middles.T, linestyle="")
        return ax
    signed = bool((sizes < 0).any())
    low, high = between(look.limits, reach(sizes), 0.0 if signed else None)
    colours = look.cmap or (SIGNED if signed else _DARK)
    x, y = middles.T
    dots = ax.scatter(x, y, s=0, c=sizes, cmap=colours, vmin=low, vmax=high)
    ax.figure.colorbar(dots, ax=ax, label="weight")
    return ax


def _draw(ax: Axes, arrow: _Arrow, mark: str, **style: Any) -> None:
    """The arrow and, on it, its label."""
    bent = {"arrowstyle": "-|>", "connectionstyle": f"arc3,rad={arrow.bend}"}
    shrink = {"shrinkA": 4, "shrinkB": 14 if arrow.bend < _LOOP else 4}
    start, end = tuple(arrow.start), tuple(arrow.end)
    ax.annotate("", end, start, arrowprops=bent | shrink | style)
    if mark:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        at: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small"}
        x, y = arrow.middle
        ax.text(x, y, mark, bbox=box, zorder=3, **at)
