"""Biases and buckets by distance, and the bias of a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from relpos._attention.labels import grid_labels
from relpos._checks import as_int, as_integers, kind_of
from relpos.plot.lines import draw_lines
from relpos.plot.panel import (
    Array,
    as_reals,
    as_shaped,
    frame,
    heat_map,
    look_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

_MOST = 2**20  # positions in one picture


def bias_by_distance(
    bias: npt.ArrayLike,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    buckets: npt.ArrayLike | None = None,
    min_relative_position: int | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Bias by relative position, a line for each head or for several queries.

    Parameters
    ----------
    bias : array_like of real, (H, R) or (H, Lq, Lk)
        A row for each head, as ``relpos.t5_bias`` makes it; or the bias of every pair,
        as ``relpos.fire_bias``. What is not finite is left out.
    heads : sequence of int, optional
        Those to draw; all by default, of the bias of pairs the first alone.
    queries : sequence of int, optional
        Of the bias of pairs, the queries to draw; by default the first, middle, last.
    buckets : array_like of int, (N,), optional
        The column of `bias` for each relative position, as in ``relpos.attention``.
    min_relative_position : int, optional
        Relative position of the first column, or of the first of `buckets`; by default
        0 is in the middle.
    vmin, vmax : float, optional
        The ends of the axis of the bias.
    cmap : str or Colormap, optional
        Colours of the lines, from the first to the last.
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
        If an argument has another shape or value than it says, or `bias` is empty.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    relpos.t5_bias, relpos.alibi_bias, relpos.kerple_bias, relpos.fire_bias : Biases.
    buckets : Which distances share one.
    grid_bias : The bias of a grid.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> bias = relpos.alibi_bias(2, 3)
    >>> ax = relpos.plot.bias_by_distance(bias, ax=Figure().subplots())
    >>> ax.lines[0].get_xdata().tolist()
    [-2, -1, 0, 1, 2]
    """
    array = as_reals("bias", bias)
    look = look_of(vmin, vmax, cmap, title)
    if array.ndim not in (2, 3) or not array.size:
        raise ValueError(
            f"bias: got shape {array.shape}; expected (H, R) or (H, Lq, Lk)"
        )
    chosen = _chosen("heads", heads, len(array))
    if array.ndim == 3:
        lines = _of_queries(array, [0] if heads is None else chosen, queries)
    else:
        if buckets is not None:
            rows = as_integers("buckets", buckets)
            if rows.ndim != 1 or not rows.size or not _within(rows, array.shape[1]):
                raise ValueError(
                    f"buckets: got shape {rows.shape}; expected (N,), each below "
                    f"{array.shape[1]}"
                )
            array = array[:, rows]
        count = array.shape[1]
        low = -(count // 2)
        if min_relative_position is not None:
            name, given = "min_relative_position", min_relative_position
            low = as_int(name, given, -_MOST, _MOST)
        places = np.arange(low, low + count)
        lines = {f"head {h}": (places, array[h]) for h in chosen}
    ax = draw_lines(lines, look, ax, "steps-mid" if buckets is not None else "default")
    ax.set(xlabel="relative position j - i", ylabel="bias")
    return ax


def buckets(
    bucket: Callable[[Array], npt.ArrayLike],
    reach: int,
    *,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Bucket of each relative position, as steps.

    Parameters
    ----------
    bucket : callable
        ``bucket(relative_positions)`` returns integers, as ``relpos.t5_bucket`` does.
    reach : int
        Distances go from -reach to reach.
    cmap : str or Colormap, optional
        Its first colour is that of the line.
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
        If `reach` is not from 1 on, or `bucket` returns another shape.
    TypeError
        If `bucket` cannot be called or returns no integers, or an argument is of
        another kind than it says.

    See Also
    --------
    relpos.t5_bucket, relpos.deberta_bucket : Buckets to draw.
    bias_by_distance : The bias that each bucket has.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.buckets(relpos.t5_bucket, 200, ax=Figure().subplots())
    >>> ax.get_title()
    '31 buckets'
    """
    if not callable(bucket):
        raise TypeError(f"bucket: got {kind_of(bucket)}; expected a callable")
    farthest, look = as_int("reach", reach, 1, _MOST), look_of(None, None, cmap, title)
    places = np.arange(-farthest, farthest + 1)
    found = as_integers("bucket's result", bucket(places))
    if found.shape != places.shape:
        raise ValueError(
            f"bucket's result: got shape {found.shape}; expected {places.shape}"
        )
    if title is None:
        look = look._replace(title=f"{len(np.unique(found))} buckets")
    ax = draw_lines({"": (places, found)}, look, ax, "steps-mid")
    ax.set(xlabel="relative position j - i", ylabel="bucket")
    return ax


def grid_bias(
    bias: npt.ArrayLike,
    shape: tuple[int, int],
    *,
    query: tuple[int, int] | None = None,
    labels: npt.ArrayLike | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Bias of one head between a cell of a grid and all cells, as Swin has it.

    Parameters
    ----------
    bias : array_like of real, ((2 rows - 1) * (2 columns - 1),)
        One head of `rel_bias`, a number for each label, as
        ``relpos.recipes.swin(..)["rel_bias"][0]`` with the recipe's labels.
    shape : (int, int)
        Rows and columns of the grid.
    query : (int, int), optional
        Row and column of the query, which is framed; the middle by default.
    labels : array_like of int, (rows * columns, rows * columns), optional
        Which number each pair of cells has; ``relpos.grid_labels(shape)`` by default.
        Swin Transformer's tables count query minus key: give the recipe's labels.
    vmin, vmax : float, optional
        The numbers at the ends of the colours, for this map alone; one of them alone
        leaves zero in the middle.
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
        If `bias` has not as many numbers as the grid has labels, or an argument another
        shape or value than it says.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    relpos.grid_labels : Which number each pair of cells has.
    bias_by_distance : A bias along one axis.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> bias = np.arange(15.0)  # of 3 times 5 offsets
    >>> ax = relpos.plot.grid_bias(bias, (2, 3), query=(0, 0), ax=Figure().subplots())
    >>> ax.images[0].get_array().astype(int).tolist()
    [[7, 8, 9], [12, 13, 14]]
    """
    rows, columns = _two("shape", shape)
    count = (2 * rows - 1) * (2 * columns - 1)
    array = as_shaped("bias", bias, 1, f"one axis, ({count},): one head")
    if len(array) != count:
        raise ValueError(f"bias: got shape {array.shape}; expected ({count},)")
    i, j = (rows // 2, columns // 2) if query is None else _two("query", query, 0)
    if i >= rows or j >= columns:
        raise ValueError(f"query: got {(i, j)}; expected a cell of {(rows, columns)}")
    look = look_of(vmin, vmax, cmap, title)
    pairs = grid_labels((rows, columns))
    if labels is not None:
        pairs = _labels_of(labels, pairs.shape, count)
    of_query = array[pairs[i * columns + j]]
    ax = heat_map("grid", of_query.reshape(rows, columns), ax, look)
    frame(ax, i, j, fill=False, edgecolor="black", linewidth=2.5)
    ax.set(xlabel="column", ylabel="row")
    return ax


def _two(name: str, value: object, low: int = 1) -> tuple[int, int]:
    """Two integers, such as the sides of a grid of at most 256 by 256."""
    array = as_integers(name, value)
    if array.shape != (2,):
        raise ValueError(f"{name}: got shape {array.shape}; expected two integers")
    first, second = (as_int(name, int(x), low, 256) for x in array)
    return first, second


def _labels_of(labels: npt.ArrayLike, shape: tuple[int, ...], count: int) -> Array:
    """Labels of all pairs of cells, below `count`."""
    array = as_integers("labels", labels)
    if array.shape != shape:
        raise ValueError(f"labels: got shape {array.shape}; expected {shape}")
    if array.min() < 0 or array.max() >= count:
        raise ValueError(
            f"labels: got {array.min()} to {array.max()}; expected 0 to {count - 1}"
        )
    return array


def _within(rows: Array, count: int) -> bool:
    return bool(((rows >= 0) & (rows < count)).all())


def _chosen(name: str, given: Sequence[int] | None, count: int) -> list[int]:
    """The heads or queries to draw, of `count`."""
    if given is None:
        return [*range(count)]
    array = as_integers(name, given)
    if array.ndim != 1 or not array.size or not _within(array, count):
        raise ValueError(
            f"{name}: got {array.tolist()}; expected some from 0 to {count - 1}"
        )
    return [int(n) for n in array]


def _of_queries(
    array: Array, heads: list[int], queries: Sequence[int] | None
) -> dict[str, tuple[Array, Array]]:
    """A line for each of the heads and queries of the bias of pairs."""
    _, rows, columns = array.shape
    usual = sorted({0, rows // 2, rows - 1})
    chosen = usual if queries is None else _chosen("queries", queries, rows)
    found: dict[str, tuple[Any, Array]] = {}
    for h in heads:
        for i in chosen:
            name = f"query {i}" if len(heads) == 1 else f"head {h}, query {i}"
            found[name] = (np.arange(columns) - i, array[h, i])
    return found
