"""Rotary encodings: how far each pair of columns turns, and what that does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from relpos._checks import as_int
from relpos._encodings.rotary_scaling import rotary_frequencies
from relpos.plot.lines import draw_lines
from relpos.plot.panel import (
    Array,
    as_mapping,
    as_matrix,
    as_shaped,
    axes_of,
    look_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

    Encoding = npt.ArrayLike | Callable[[int, int], npt.ArrayLike]

_MOST = 2**16  # distances in one picture
_WIDTH = 64  # columns of encodings that are made
_FREQUENCIES = "one axis, (dim / 2,)"


def rotary_wheel(
    dim: int,
    positions: npt.ArrayLike,
    *,
    base: float = 10000.0,
    inv_freq: npt.ArrayLike | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Angles to which positions turn the pairs of columns, a ring for each pair.

    The first pair, which turns fastest, is the innermost ring.

    Parameters
    ----------
    dim : int
        Columns that are rotated, even.
    positions : array_like of real, (L,)
        The positions, a dot on each ring.
    base : float, default 10000.0
        As of ``relpos.apply_rotary``.
    inv_freq : array_like of real, (dim / 2,), optional
        Frequencies in place of those of `base`.
    cmap : str or Colormap, optional
        Colours of the positions; viridis by default.
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
        If an argument has another shape or value than it says, or there is no position.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    relpos.apply_rotary : Turns the pairs.
    wavelengths : How many positions a whole turn takes.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.rotary_wheel(4, [0, 1, 2], ax=Figure().subplots())
    >>> ax.collections[1].get_offsets()[0].tolist()  # position 0 in the second ring
    [2.0, 0.0]
    """
    places = as_shaped("positions", positions, 1, "one axis, (L,)")
    look = look_of(None, None, cmap, title)
    turned = rotary_frequencies(dim, base=base)
    if inv_freq is not None:
        given = as_shaped("inv_freq", inv_freq, 1, _FREQUENCIES)
        if given.shape != turned.shape:
            raise ValueError(
                f"inv_freq: got shape {given.shape}; expected {turned.shape}"
            )
        turned = given
    ax = axes_of(ax)
    circle = np.linspace(0.0, 2 * np.pi, 200)
    for radius, frequency in enumerate(turned, 1):
        ax.plot(radius * np.cos(circle), radius * np.sin(circle), color="lightgrey")
        angles = places * frequency
        x, y = radius * np.cos(angles), radius * np.sin(angles)
        dots = ax.scatter(x, y, c=places, cmap=look.cmap or "viridis", zorder=3)
    ax.figure.colorbar(dots, ax=ax, label="position")
    ax.set(
        aspect="equal", xticks=[], yticks=[], xlabel="a ring for each pair of columns"
    )
    if look.title is not None:
        ax.set_title(look.title)
    return ax


def wavelengths(
    inv_freq: Mapping[str, npt.ArrayLike],
    *,
    context: int | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Length of a whole turn of each pair of columns, in positions, by name.

    Parameters
    ----------
    inv_freq : mapping of str to array_like of real, (dim / 2,)
        Frequencies, as of ``relpos.rotary_frequencies``, by the name in the legend. One
        that is not positive never turns and is left out.
    context : int, optional
        The length of the context, dashed: pairs above it do not turn once.
    vmin, vmax : float, optional
        The ends of the axis of the wavelengths.
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
        If frequencies are not of one axis or empty, or an argument has no meaning.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    relpos.rotary_frequencies : Frequencies, also stretched ones.
    rotary_wheel : The same as angles.
    decay : What they make of distances.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.wavelengths(
    ...     {"RoPE": relpos.rotary_frequencies(4)}, ax=Figure().subplots()
    ... )
    >>> [round(x, 2) for x in ax.lines[0].get_ydata().tolist()]
    [6.28, 628.32]
    """
    look, given = (
        look_of(vmin, vmax, cmap, title),
        as_mapping("inv_freq", inv_freq, "of names to frequencies"),
    )
    found = {
        name: as_shaped(f"inv_freq[{name!r}]", values, 1, _FREQUENCIES)
        for name, values in given.items()
    }
    length = None if context is None else as_int("context", context, 1, 2**60)
    lines = {}
    for name, frequencies in found.items():
        turns = np.where(frequencies > 0, frequencies, np.nan)
        lines[name] = np.arange(len(turns)), 2 * np.pi / turns
    ax = draw_lines(lines, look, ax)
    if length is not None:
        ax.axhline(length, color="black", linestyle="--", label="context")
        ax.legend()
    ax.set(xlabel="pair of columns", ylabel="positions in a turn", yscale="log")
    return ax


def decay(
    encodings: Mapping[str, Encoding],
    reach: int,
    *,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Score of two positions of equal tokens by their distance, 1 at 0.

    Parameters
    ----------
    encodings : mapping of str to array_like of real, (dim / 2,), or callable
        By the name in the legend. Frequencies, as of ``relpos.rotary_frequencies``,
        turn tokens whose pairs of columns are all of one length: the score is the mean
        over the pairs of the cosine of the angle between two tokens. Or
        ``encode(length, dim)`` returns an encoding (length, dim), as
        ``relpos.sinusoidal`` does, of 64 columns: the score is the product of the last
        row and an earlier one, beside that of the last row with itself.
    reach : int
        The largest distance.
    vmin, vmax : float, optional
        The ends of the axis of the scores.
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
        If frequencies are not of one axis or empty, an encoding has another shape or a
        last row of 0, or `reach` is less than 1.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    relpos.apply_rotary : Turns the tokens.
    relpos.sinusoidal : An encoding that is added to them.
    wavelengths : The frequencies themselves.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.decay({"half turns": [np.pi]}, 2, ax=Figure().subplots())
    >>> ax.lines[0].get_ydata().tolist()
    [1.0, -1.0, 1.0]
    """
    look, given = (
        look_of(vmin, vmax, cmap, title),
        as_mapping("encodings", encodings, "of names to encodings"),
    )
    farthest = as_int("reach", reach, 1, _MOST)
    lines = {
        name: (np.arange(farthest + 1), _score(f"encodings[{name!r}]", one, farthest))
        for name, one in given.items()
    }
    ax = draw_lines(lines, look, ax)
    ax.set(xlabel="distance", ylabel="score of equal tokens")
    return ax


def _score(name: str, encoding: Encoding, reach: int) -> Array:
    """(reach + 1,) scores by the distance."""
    if not callable(encoding):
        frequencies = as_shaped(name, encoding, 1, _FREQUENCIES)
        turned = np.cos(np.outer(np.arange(reach + 1), frequencies))
        return np.asarray(turned.mean(axis=1))
    wanted = f"an encoding, ({reach + 1}, {_WIDTH})"
    rows = as_matrix(f"{name}'s result", encoding(reach + 1, _WIDTH), wanted)
    if rows.shape != (reach + 1, _WIDTH):
        raise ValueError(f"{name}'s result: got shape {rows.shape}; expected {wanted}")
    products = rows[::-1] @ rows[-1]
    if not products[0]:
        raise ValueError(f"{name}'s result: got a last row of 0; expected any other")
    return np.asarray(products / products[0])
