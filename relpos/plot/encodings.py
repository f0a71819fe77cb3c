"""Encodings that are added to tokens or rotate them, and audits of encodings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from relpos._checks import as_choice, as_flag, as_int, kind_of, reject_foreign
from relpos._encodings.audit import EncodingAudit, Finding
from relpos._encodings.rotary_scaling import rotary_frequencies
from relpos.plot.panel import (
    Array,
    Look,
    Options,
    Tokens,
    as_mapping,
    as_shaped,
    as_tokens,
    axes_of,
    between,
    colormap_from,
    colours_of,
    draw_lines,
    heat_map,
    look_of,
    name_places,
    panels_of,
    picture,
    reach as reach_of,
    write_numbers,
)

if TYPE_CHECKING:
    from typing import Unpack

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    Encoding = npt.ArrayLike | Callable[[int, int], npt.ArrayLike]

_MOST = 2**16  # distances in one picture
_WIDTH = 64  # columns of encodings that are made
_TABLE = "two axes, (L, dim)"
_FREQUENCIES = "one axis, (dim / 2,)"


@picture()
def encoding_map(
    encoding: npt.ArrayLike,
    *,
    tokens: Tokens | None = None,
    positions_on: str = "y",
    ax: Axes | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Heat map of an encoding: one row per position, one column per dimension.

    Zero is white, negative numbers are blue and positive ones red. All encodings in a
    figure have one scale, that of the largest number, so that indices up to 9 do not
    look like the same indices normalised to 1.

    Parameters
    ----------
    encoding : array_like of real, (L, dim)
        For instance ``relpos.sinusoidal(L, dim)``. Numbers that are not finite are
        grey.
    tokens : sequence of str, optional
        At the positions, one for each.
    positions_on : {"y", "x"}, default "y"
        The axis of the positions; "x" transposes the map.

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
    array = as_shaped("encoding", encoding, 2, _TABLE)
    places = as_tokens("tokens", tokens, len(array))
    look = look_of(**options)
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
    """Draw one encoding."""
    shown = array if upright else array.T
    ax = heat_map("encoding", shown, ax, look, bar=bar, aspect="auto")
    names = ("dimension", "position") if upright else ("position", "dimension")
    ax.set(xlabel=names[0], ylabel=names[1])
    name_places(ax.yaxis if upright else ax.xaxis, places)
    return ax


@picture()
def encoding_maps(
    encodings: Mapping[str, npt.ArrayLike],
    *,
    share_scale: bool = True,
    tokens: Tokens | Mapping[str, Tokens] | None = None,
    positions_on: str = "y",
    columns: int = 4,
    figure: Figure | None = None,
    **options: Unpack[Options],
) -> npt.NDArray[np.object_]:
    """Heat map of each of several encodings, on one scale or each on its own.

    Maps with one scale have one colour bar.

    Parameters
    ----------
    encodings : mapping of str to array_like of real, (L, dim)
        Each as of `encoding_map`, by the title of its map.
    share_scale : bool, default True
        Let a colour be the same number in all maps.
    tokens : sequence of str or mapping of str to such, optional
        At the positions of every map, or of each by its title.
    positions_on : {"y", "x"}, default "y"
        The axis of the positions.
    columns : int, default 4
        Maps in a row.

    Returns
    -------
    ndarray of matplotlib.axes.Axes, (n,)
        The axes drawn into, in the order of `encodings`.

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
    arrays = {n: as_shaped(f"encodings[{n!r}]", x, 2, _TABLE) for n, x in given.items()}
    places = _places_by_title(tokens, arrays)
    upright = as_choice("positions_on", positions_on, ("y", "x")) == "y"
    look, across = look_of(**options), as_int("columns", columns, 1)
    shared = as_flag("share_scale", share_scale) or None not in look.limits
    farthest = {name: reach_of(array) for name, array in arrays.items()}
    most = max(farthest.values())
    panels = panels_of(figure, len(arrays), across, look)
    for ax, (name, array) in zip(panels, arrays.items(), strict=True):
        limits = between(look.limits, most if shared else farthest[name], 0.0)
        own = look._replace(limits=limits, title=str(name))
        _draw(array, places[name], upright, ax, own, bar=not shared)
    if shared:
        panels[0].figure.colorbar(panels[0].images[-1], ax=[*panels])
    return panels


def _places_by_title(
    tokens: Tokens | Mapping[str, Tokens] | None, arrays: Mapping[str, Array]
) -> dict[str, list[str] | None]:
    """Return labels of the positions of each map; a mapping may leave some out."""
    if not isinstance(tokens, Mapping):
        return {n: as_tokens("tokens", tokens, len(x)) for n, x in arrays.items()}
    unknown = [name for name in tokens if name not in arrays]
    if unknown:
        raise ValueError(f"tokens: got {unknown[0]!r}; expected titles of encodings")
    return {
        n: as_tokens(f"tokens[{n!r}]", tokens.get(n), len(x)) for n, x in arrays.items()
    }


@picture()
def audit(
    audits: EncodingAudit | Mapping[str, EncodingAudit],
    *,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Table of the requirements that encodings meet (blue) and do not meet (red).

    Each cell has the verdict, the number measured and its limit. A requirement that
    could not be measured is grey.

    Parameters
    ----------
    audits : EncodingAudit or mapping of str to EncodingAudit
        Results of ``relpos.audit_encoding``, of one encoding or of several by name.
    cmap : str or Colormap, optional
        Its first colour is that of requirements not met, its last that of others.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> found = relpos.audit_encoding(relpos.index_encoding, lengths=(8, 16), dim=4)
    >>> ax = relpos.plot.audit({"indices": found}, ax=Figure().subplots())
    >>> ax.texts[4].get_text().splitlines()  # are its numbers small?
    ['no', '15 <= 1']
    """
    rows = _audits(audits)
    look = look_of(cmap=cmap, title=title)
    verdicts = np.array(
        [
            [np.nan if np.isnan(finding.value) else finding.met for finding in row]
            for row in rows.values()
        ],
        float,
    )
    if look.cmap is None:
        look = look._replace(cmap=colormap_from(colours_of(2, look)[::-1]))
    own = look._replace(limits=(0.0, 1.0))
    ax = heat_map("audit", verdicts, ax, own, bar=False, aspect="auto")
    write_numbers(ax, np.array([[_cell(f) for f in row] for row in rows.values()]))
    ax.set_xticks(range(len(EncodingAudit._fields)), EncodingAudit._fields)
    ax.set_yticks(range(len(rows)), [*rows])
    ax.tick_params(length=0, labeltop=True, labelbottom=False)
    for edge in np.arange(0.5, len(rows) - 1):
        ax.axhline(edge, color="white", linewidth=2)
    for edge in np.arange(0.5, len(EncodingAudit._fields) - 1):
        ax.axvline(edge, color="white", linewidth=2)
    return ax


def _audits(given: object) -> dict[str, EncodingAudit]:
    """Return one audit without a name, or several by their names."""
    if isinstance(given, EncodingAudit):
        return {"": given}
    found = as_mapping("audits", given, "of names to audits, or one")
    for name, one in found.items():
        if not isinstance(one, EncodingAudit):
            reject_foreign(f"audits[{name!r}]", one)
            raise TypeError(
                f"audits[{name!r}]: got {kind_of(one)}; expected what "
                "relpos.audit_encoding returns"
            )
    return {str(name): one for name, one in found.items()}


def _cell(finding: Finding) -> str:
    """Return the verdict and the numbers that it depends on."""
    if np.isnan(finding.value):
        return "not\nmeasured"
    verdict = "yes" if finding.met else "no"
    return f"{verdict}\n{finding.value:.3g} {finding.relation} {finding.limit:.2g}"


@picture()
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
    """Angles by which positions rotate the pairs of columns, a ring for each pair.

    The first pair, which rotates fastest, is the innermost ring.

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

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.rotary_wheel(4, [0, 1, 2], ax=Figure().subplots())
    >>> ax.collections[1].get_offsets()[0].tolist()  # position 0 in the second ring
    [2.0, 0.0]
    """
    places = as_shaped("positions", positions, 1, "one axis, (L,)")
    look = look_of(cmap=cmap, title=title)
    frequencies = rotary_frequencies(dim, base=base)
    if inv_freq is not None:
        given = as_shaped("inv_freq", inv_freq, 1, _FREQUENCIES)
        if given.shape != frequencies.shape:
            wanted = frequencies.shape
            raise ValueError(f"inv_freq: got shape {given.shape}; expected {wanted}")
        frequencies = given
    ax = axes_of(ax, look.title)
    circle = np.linspace(0.0, 2 * np.pi, 200)
    for radius, frequency in enumerate(frequencies, 1):
        ax.plot(radius * np.cos(circle), radius * np.sin(circle), color="lightgrey")
        angles = places * frequency
        x, y = radius * np.cos(angles), radius * np.sin(angles)
        dots = ax.scatter(x, y, c=places, cmap=look.cmap or "viridis", zorder=3)
    ax.figure.colorbar(dots, ax=ax, label="position")
    ring = "a ring for each pair of columns"
    ax.set(aspect="equal", xticks=[], yticks=[], xlabel=ring)
    return ax


@picture("lines")
def wavelengths(
    inv_freq: Mapping[str, npt.ArrayLike],
    *,
    context: int | None = None,
    ax: Axes | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Length of a full rotation of each pair of columns, in positions, by name.

    Parameters
    ----------
    inv_freq : mapping of str to array_like of real, (dim / 2,)
        Frequencies, as of ``relpos.rotary_frequencies``, by the name in the legend. One
        that is not positive has no wavelength and is left out.
    context : int, optional
        The length of the context, dashed: pairs above it do not rotate once.

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
    look = look_of(**options)
    given = as_mapping("inv_freq", inv_freq, "of names to frequencies")
    lines = {}
    for name, values in given.items():
        frequencies = as_shaped(f"inv_freq[{name!r}]", values, 1, _FREQUENCIES)
        turning = np.where(frequencies > 0, frequencies, np.nan)
        lines[name] = np.arange(len(turning)), 2 * np.pi / turning
    length = None if context is None else as_int("context", context, 1, 2**60)
    ax = draw_lines(lines, look, ax)
    if length is not None:
        ax.axhline(length, color="black", linestyle="--", label="context")
        ax.legend()
    ax.set(xlabel="pair of columns", ylabel="positions in a turn", yscale="log")
    return ax


@picture("lines")
def decay(
    encodings: Mapping[str, Encoding],
    reach: int,
    *,
    ax: Axes | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Score of two positions of equal tokens by their distance, 1 at 0.

    Parameters
    ----------
    encodings : mapping of str to array_like of real, (dim / 2,), or callable
        By the name in the legend. Frequencies, as of ``relpos.rotary_frequencies``,
        rotate tokens whose pairs of columns are all of one length: the score is the
        mean over the pairs of the cosine of the angle between two tokens. Or
        ``encode(length, dim)`` returns an encoding (length, dim), as
        ``relpos.sinusoidal`` does, of 64 columns: the score is the product of the last
        row and an earlier one, over that of the last row with itself.
    reach : int
        The largest distance.

    Raises
    ------
    ValueError
        If the last row of an encoding is 0.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.decay({"half turns": [np.pi]}, 2, ax=Figure().subplots())
    >>> ax.lines[0].get_ydata().tolist()
    [1.0, -1.0, 1.0]
    """
    look = look_of(**options)
    given = as_mapping("encodings", encodings, "of names to encodings")
    farthest = as_int("reach", reach, 1, _MOST)
    distances = np.arange(farthest + 1)
    lines = {
        name: (distances, _score(f"encodings[{name!r}]", one, distances))
        for name, one in given.items()
    }
    ax = draw_lines(lines, look, ax)
    ax.set(xlabel="distance", ylabel="score of equal tokens")
    return ax


def _score(name: str, encoding: Encoding, distances: Array) -> Array:
    """Return the score at each of the distances."""
    if not callable(encoding):
        frequencies = as_shaped(name, encoding, 1, _FREQUENCIES)
        return np.asarray(np.cos(np.outer(distances, frequencies)).mean(axis=1))
    shape = len(distances), _WIDTH
    wanted = f"an encoding, {shape}"
    rows = as_shaped(f"{name}'s result", encoding(*shape), 2, wanted)
    if rows.shape != shape:
        raise ValueError(f"{name}'s result: got shape {rows.shape}; expected {wanted}")
    products = rows[::-1] @ rows[-1]
    if not products[0]:
        raise ValueError(f"{name}'s result: got a last row of 0; expected any other")
    return np.asarray(products / products[0])
