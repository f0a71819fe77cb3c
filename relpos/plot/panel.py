"""What all pictures are made of: axes, checked arguments, heat maps on one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from relpos._checks import as_array, as_integers, as_real, kind_of, reject_foreign

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
    from matplotlib.ticker import Formatter

Array = npt.NDArray[Any]
Limits = tuple[float | None, float | None]
Places = tuple[list[str] | None, list[str] | None]
Tokens = Sequence[str] | npt.NDArray[np.str_]

#: Colours from 0 on, and colours with zero in the middle.
WEIGHTS, SIGNED = "viridis", "RdBu_r"
#: Maps of more rows or columns than this have no numbers: they could not be read.
MOST_NUMBERS = 12
#: What marks a formula and is not drawn.
_MARKS = str.maketrans("", "", "$_^{}")


class Look(NamedTuple):
    """How a picture is to look, checked: None is what it chooses by itself."""

    limits: Limits = (None, None)
    cmap: Colormap | None = None
    title: str | None = None


def look_of(
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
) -> Look:
    """The arguments that pictures share, each of them checked."""
    low = None if vmin is None else as_real("vmin", vmin)
    high = None if vmax is None else as_real("vmax", vmax)
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title: got {kind_of(title)}; expected a string")
    return Look((low, high), None if cmap is None else colormap_of(cmap), title)


def colormap_of(cmap: str | Colormap) -> Colormap:
    """A colormap of matplotlib, by name or as it is."""
    from matplotlib import colormaps
    from matplotlib.colors import Colormap

    if isinstance(cmap, Colormap):
        return cmap
    if not isinstance(cmap, str):
        raise TypeError(
            f"cmap: got {kind_of(cmap)}; expected a Colormap or the name of one"
        )
    if cmap not in colormaps:
        raise ValueError(f"cmap: got {cmap!r}; expected a name of matplotlib.colormaps")
    return colormaps[cmap]


def colormap_from(colours: Sequence[Any]) -> Colormap:
    """These colours alone, from the first to the last."""
    from matplotlib.colors import ListedColormap

    return ListedColormap([*colours])


def axes_of(ax: Axes | None) -> Axes:
    """`ax`, or the axes of a new figure."""
    if ax is None:
        from matplotlib import pyplot

        return pyplot.subplots(layout="constrained")[1]
    if not hasattr(ax, "imshow"):  # such as the array that subplots(1, 2) gives
        raise TypeError(f"ax: got {kind_of(ax)}; expected one matplotlib Axes")
    return ax


def figure_of(figure: Figure | None, width: float, height: float) -> Figure:
    """`figure`, or a new one of so many inches."""
    if figure is None:
        from matplotlib import pyplot

        return pyplot.figure(figsize=(width, height), layout="constrained")
    if not hasattr(figure, "add_subplot"):
        got = kind_of(figure)
        raise TypeError(f"figure: got {got}; expected a matplotlib Figure")
    return figure


def panels_of(
    figure: Figure | None,
    count: int,
    columns: int,
    look: Look,
    side: float = 3.0,
    below: list[str] | None = None,
) -> Array:
    """New axes of a figure, `columns` in a row, with its title above them.

    A new figure has room for the tokens below the last row, which are slanted.
    """
    columns = min(columns, count)
    rows = -(-count // columns)
    room = 0.3 + 0.06 * max(map(len, below)) if below else 0.0
    figure = figure_of(figure, side * columns + 0.8, side * rows + room)
    if look.title is not None:
        figure.suptitle(look.title)
    made = [figure.add_subplot(rows, columns, n + 1) for n in range(count)]
    panels = np.empty(count, object)
    panels[:] = made
    return panels


def as_reals(name: str, value: object) -> Array:
    """`value` in float64: no picture needs more."""
    array = as_array(name, value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: got {kind_of(array)}; expected real numbers")
    with np.errstate(over="ignore"):  # of longdouble
        return array.astype(np.float64)


def as_shaped(name: str, value: object, ndim: int, wanted: str) -> Array:
    """`value` in float64, of `ndim` axes that are not empty."""
    array = as_reals(name, value)
    if array.ndim != ndim:
        raise ValueError(f"{name}: got shape {array.shape}; expected {wanted}")
    if not array.size:
        raise ValueError(f"{name}: got shape {array.shape}; expected something to draw")
    return array


def as_matrix(name: str, value: object, wanted: str) -> Array:
    """`value` in float64, of two axes that are not empty."""
    return as_shaped(name, value, 2, wanted)


def as_mapping(name: str, given: object, wanted: str) -> Mapping[str, Any]:
    """A mapping that is not empty, of names or titles to what is wanted."""
    if not isinstance(given, Mapping):
        reject_foreign(name, given)
        raise TypeError(f"{name}: got {kind_of(given)}; expected a mapping {wanted}")
    if not given:
        raise ValueError(f"{name}: got an empty mapping; expected something to draw")
    return given


def as_tokens(name: str, tokens: Tokens | None, count: int) -> list[str] | None:
    """Labels for `count` places of an axis, None where none are given."""
    if tokens is None:
        return None
    reject_foreign(name, tokens)
    if isinstance(tokens, np.ndarray):
        tokens = tokens.tolist()
    listed = isinstance(tokens, Sequence) and not isinstance(tokens, str | bytes)
    if not listed or not all(isinstance(token, str) for token in tokens):
        raise TypeError(
            f"{name}: got {kind_of(tokens)}; expected a sequence of strings"
        )
    if len(tokens) != count:
        raise ValueError(f"{name}: got {len(tokens)}; expected {count}, one for each")
    return [*tokens]


def as_pairs(
    name: str, pairs: Sequence[tuple[int, int]], shape: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Pairs (query, key) that are there."""
    if not as_array(name, pairs).size:
        return []
    array = as_integers(name, pairs)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(
            f"{name}: got shape {array.shape}; expected (n, 2), pairs of a query and a "
            "key"
        )
    found = [(int(i), int(j)) for i, j in array]
    for i, j in found:
        if not (0 <= i < shape[0] and 0 <= j < shape[1]):
            raise IndexError(f"{name}: got {(i, j)}; expected a pair of {shape}")
    return found


def with_prefix(unit: str) -> Formatter:
    """Writes numbers as 3.2 k, 3.2 M, with the unit after it."""
    from matplotlib.ticker import EngFormatter

    return EngFormatter(unit, sep=" ")


def name_places(axis: Any, tokens: list[str] | None) -> None:
    """Tokens at the ticks of an axis, slanted where they lie side by side."""
    if tokens is None:
        return
    slant: dict[str, Any] = {}
    if axis.axis_name == "x" and max(map(_width, tokens), default=0) > 2:
        slant = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axis.set_ticks(range(len(tokens)), tokens, **slant)


def _width(token: str) -> int:
    """Characters that are seen: two of "$w_3$"."""
    return len(token.translate(_MARKS) if token.startswith("$") else token)


def places_of(
    shape: tuple[int, ...],
    tokens: Tokens | None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
) -> Places:
    """Labels of the queries and of the keys of a (Lq, Lk) map."""
    found = []
    own = (("query_tokens", query_tokens), ("key_tokens", key_tokens))
    for (name, given), count in zip(own, shape, strict=True):
        chosen = (name, given) if given is not None else ("tokens", tokens)
        found.append(as_tokens(*chosen, count))
    return found[0], found[1]


def name_pairs(ax: Axes, places: Places) -> Axes:
    """Labels of the axes of a map of pairs."""
    ax.set(xlabel="key j", ylabel="query i")
    name_places(ax.yaxis, places[0])
    name_places(ax.xaxis, places[1])
    return ax


def finite(array: Array) -> Array:
    """Its finite numbers, in one row."""
    return array[np.isfinite(array)]


def reach(array: Array, center: float = 0.0) -> float:
    """The largest distance from the center that is drawn."""
    return float(np.abs(finite(array) - center).max(initial=0.0))


def between(limits: Limits, reach: float, center: float | None) -> tuple[float, float]:
    """The limits given; others as far as `reach`, both from a center or from 0 on."""
    low, high = limits
    middle = center or 0.0
    if high is None:
        mirrored = center is not None and low is not None
        high = 2 * middle - (low or 0.0) if mirrored else middle + (reach or 1.0)
    if low is None:
        low = 0.0 if center is None else 2 * middle - high
    if low >= high:
        raise ValueError(f"vmin: got {low}; expected less than vmax, {high}")
    return low, high


def _alike(kind: str, ax: Axes | None) -> list[AxesImage]:
    """The images of this kind in the figure that share its scale."""
    if ax is None:
        return []
    images = [image for other in axes_of(ax).figure.axes for image in other.images]
    return [image for image in images if image.get_label() == kind]


def heat_map(
    kind: str,
    array: Array,
    ax: Axes | None,
    look: Look,
    *,
    cmap: str | None = None,
    center: float | None = 0.0,
    bar: bool = True,
    aspect: Literal["equal", "auto"] = "equal",
) -> Axes:
    """`array` as an image with a colour bar; without limits, in the scale of its kind.

    Those that are drawn already get the new scale, too. Without a center the colours
    begin at 0.
    """
    shared = look.limits == (None, None)
    alike = _alike(kind, ax) if shared else []
    drawn: list[Any] = [image.get_array() for image in alike]
    seen = [array, *(one.compressed() for one in drawn)]
    farthest = max(reach(one, center or 0.0) for one in seen)
    low, high = between(look.limits, farthest, center)
    ax = axes_of(ax)
    colours = look.cmap or cmap or (WEIGHTS if center is None else SIGNED)
    image = ax.imshow(array, interpolation="nearest", cmap=colours, aspect=aspect)
    if shared:
        image.set_label(kind)
    for one in (image, *alike):
        one.set_clim(low, high)
    ax.set_facecolor("lightgrey")  # seen where nothing is drawn: white would be zero
    if bar:
        ax.figure.colorbar(image, ax=ax)
        if look.title is not None:
            ax.set_title(look.title)
    ax.locator_params(integer=True)  # rows and columns are counted
    return ax


def write_numbers(ax: Axes, texts: Array) -> None:
    """Texts in cells of the image, each in an ink that the colour leaves legible."""
    image: Any = ax.images[-1]
    colours = image.to_rgba(image.get_array())
    for i, j in zip(*np.nonzero(texts != ""), strict=True):
        red, green, blue, alpha = colours[i, j]
        light = 0.3 * red + 0.59 * green + 0.11 * blue
        ink = "black" if light > 0.5 or not alpha else "white"
        ax.text(
            j, i, texts[i, j], ha="center", va="center", color=ink, fontsize="small"
        )


def frame(ax: Axes, row: int, column: int, **style: Any) -> None:
    """A frame around a cell of the image."""
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **style))
