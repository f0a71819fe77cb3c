"""Encodings that are added to tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from relpos._checks import as_choice, as_flag, as_int
from relpos.plot.panel import (
    Array,
    Look,
    Tokens,
    as_mapping,
    as_matrix,
    as_tokens,
    between,
    heat_map,
    look_of,
    name_places,
    panels_of,
    reach,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure


def encoding_map(
    encoding: npt.ArrayLike,
    *,
    tokens: Tokens | None = None,
    positions_on: str = "y",
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
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
    tokens : sequence of str, optional
        At the positions, one for each.
    positions_on : {"y", "x"}, default "y"
        The axis of the positions; "x" turns the map.
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
        If `encoding` is not of two axes, or empty, `vmin` is not less than `vmax`, or
        an argument has another length or value than it says.
    TypeError
        If `encoding` is of anything but real numbers, or an argument of another kind
        than it says.

    See Also
    --------
    encoding_maps : Several side by side.
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
    places = as_tokens("tokens", tokens, len(array))
    look = look_of(vmin, vmax, cmap, title)
    upright = as_choice("positions_on", positions_on, ("y", "x")) == "y"
    return _draw(array, places, upright, ax, look)


def _draw(
    array: Array,
    places: list[str] | None,
    upright: bool,
    ax: Axes | None,
    look: Look,
    bar: bool = True,
) -> Axes:
    """One map; its title comes with its bar."""
    shown = array if upright else array.T
    ax = heat_map("encoding", shown, ax, look, bar=bar, aspect="auto")
    names = ("dimension", "position") if upright else ("position", "dimension")
    ax.set(xlabel=names[0], ylabel=names[1])
    name_places(ax.yaxis if upright else ax.xaxis, places)
    return ax


def encoding_maps(
    encodings: Mapping[str, npt.ArrayLike],
    *,
    share_scale: bool = True,
    tokens: Tokens | Mapping[str, Tokens] | None = None,
    positions_on: str = "y",
    columns: int = 4,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    figure: Figure | None = None,
) -> npt.NDArray[np.object_]:
    """Heat map of each of several encodings, on one scale or each on its own.

    What has one scale has one colour bar.

    Parameters
    ----------
    encodings : mapping of str to array_like of real, (L, dim)
        Each as of `encoding_map`, by the title of its map.
    share_scale : bool, default True
        Whether a colour is the same number in all maps.
    tokens : sequence of str or mapping of str to such, optional
        At the positions of every map, or of each by its title.
    positions_on : {"y", "x"}, default "y"
        The axis of the positions.
    columns : int, default 4
        Maps in a row.
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
    ndarray of matplotlib.axes.Axes, (n,)
        The axes drawn into, in the order of `encodings`.

    Raises
    ------
    ValueError
        If there is nothing to draw, or an argument has another shape, length or value
        than it says.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    encoding_map : One of them.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> panels = relpos.plot.encoding_maps(
    ...     {"index": [[0.0], [9.0]], "to 1": [[0.0], [1.0]]}, figure=Figure()
    ... )
    >>> [tuple(map(float, ax.images[0].get_clim())) for ax in panels]
    [(-9.0, 9.0), (-9.0, 9.0)]
    """
    given = as_mapping("encodings", encodings, "of titles to encodings")
    wanted = "two axes, (L, dim)"
    arrays = {n: as_matrix(f"encodings[{n!r}]", x, wanted) for n, x in given.items()}
    places = _places_by_title(tokens, arrays)
    upright = as_choice("positions_on", positions_on, ("y", "x")) == "y"
    look, across = look_of(vmin, vmax, cmap, title), as_int("columns", columns, 1)
    shared = as_flag("share_scale", share_scale) or None not in look.limits
    farthest = {name: reach(array) for name, array in arrays.items()}
    most = max(farthest.values())
    panels = panels_of(figure, len(arrays), across, look)
    for ax, (name, array) in zip(panels, arrays.items(), strict=True):
        limits = between(look.limits, most if shared else farthest[name], 0.0)
        own = look._replace(limits=limits, title=None)
        _draw(array, places[name], upright, ax, own, bar=not shared)
        ax.set_title(str(name))
    if shared:
        panels[0].figure.colorbar(panels[0].images[-1], ax=[*panels])
    return panels


def _places_by_title(
    tokens: Tokens | Mapping[str, Tokens] | None, arrays: Mapping[str, Array]
) -> dict[str, list[str] | None]:
    """Labels of the positions of each map; a mapping need not have all of them."""
    if not isinstance(tokens, Mapping):
        return {n: as_tokens("tokens", tokens, len(x)) for n, x in arrays.items()}
    unknown = [name for name in tokens if name not in arrays]
    if unknown:
        raise ValueError(f"tokens: got {unknown[0]!r}; expected titles of encodings")
    return {
        n: as_tokens(f"tokens[{n!r}]", tokens.get(n), len(x)) for n, x in arrays.items()
    }
