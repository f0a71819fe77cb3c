"""Parts of all pictures: shared arguments, axes, heat maps on one scale."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from relpos._checks import (
    as_array,
    as_integers,
    as_real,
    check_shape,
    kind_of,
    reject_foreign,
)
from relpos._twins import sections

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]
Limits = tuple[float | None, float | None]
Places = tuple[list[str] | None, list[str] | None]
Tokens = Sequence[str] | npt.NDArray[np.str_]
Drawing = TypeVar("Drawing", bound=Callable[..., Any])

#: Colours from 0 on, and colours with zero in the middle.
WEIGHTS, SIGNED = "viridis", "RdBu_r"
#: Texts in cells and on arcs.
SMALL: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small"}
FREQUENCIES = "one axis, (dim / 2,)"
#: Names of the tokens of one axis.
_OF_ONE = ("query_tokens", "key_tokens")
#: Maps of more rows or columns than this have no numbers: they could not be read.
MOST_NUMBERS = 12
#: Marks of a formula, which take no space.
_MARKS = str.maketrans("", "", "$_^{}")
#: Colours that the colour-blind distinguish too: Okabe and Ito's but yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")


class Colours(TypedDict, total=False):
    """Keywords of all pictures."""

    cmap: str | Colormap | None
    title: str | None


class Panel(Colours, total=False):
    """Keywords of pictures in axes."""

    ax: Axes | None


class Options(Panel, total=False):
    """Keywords of pictures in axes whose numbers have a scale."""

    vmin: float | None
    vmax: float | None


class Named(TypedDict, total=False):
    """Keywords of maps of pairs alone."""

    tokens: Tokens | None
    query_tokens: Tokens | None
    key_tokens: Tokens | None


class PairOptions(Options, Named, total=False):
    """Keywords of maps of pairs."""


class FigureOptions(Colours, total=False):
    """Keywords of several panels in a figure."""

    figure: Figure | None


class GridOptions(FigureOptions, total=False):
    """Keywords of several maps in a figure."""

    vmin: float | None
    vmax: float | None


class PairGridOptions(GridOptions, Named, total=False):
    """Keywords of several maps of pairs in a figure."""


class Look(NamedTuple):
    """Checked options, of which None is the choice of the picture."""

    limits: Limits = (None, None)
    cmap: Colormap | None = None
    title: str | None = None
    ax: Axes | None = None
    figure: Figure | None = None
    tokens: tuple[Tokens | None, ...] = (None, None, None)  # of both, queries, keys


def look_of(
    tokens: Tokens | None = None,
    query_tokens: Tokens | None = None,
    key_tokens: Tokens | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
    figure: Figure | None = None,
) -> Look:
    """Check the options that pictures share."""
    low = None if vmin is None else as_real("vmin", vmin)
    high = None if vmax is None else as_real("vmax", vmax)
    if title is not None and not isinstance(title, str):
        raise TypeError(f"title: got {kind_of(title)}; expected a string")
    colours = None if cmap is None else colormap_of(cmap)
    every = tokens, query_tokens, key_tokens
    return Look((low, high), colours, title, ax, figure, every)


#: Parameters that pictures share, as a docstring has them.
_SHARED = {
    "tokens": "sequence of str, optional\n"
    "    At both axes, one for each row and column.",
    "query_tokens, key_tokens": "sequence of str, optional\n"
    "    At one axis alone, in place of `tokens`.",
    "vmin, vmax": "float, optional\n"
    "    The numbers at the ends of the colours, for this picture alone; one of them\n"
    "    alone leaves zero in the middle.",
    "cmap": "str or Colormap, optional\n    Other colours.",
    "title": "str, optional\n    Above the axes.",
    "ax": "matplotlib.axes.Axes, optional\n"
    "    The axes to draw into; new axes by default.",
    "figure": "matplotlib.figure.Figure, optional\n"
    "    The figure where new axes are made; a new figure by default.",
}
#: The same of lines.
OF_LINES = _SHARED | {
    "vmin, vmax": "float, optional\n    The ends of the vertical axis.",
    "cmap": "str or Colormap, optional\n"
    "    Colours of the lines, from the first to the last.",
}
_RETURNS = "matplotlib.axes.Axes\n    The axes drawn into."
_RAISES = (
    "ValueError, TypeError\n"
    "    If an argument has another shape, length, value or kind than it says."
)


def picture(
    kind: type[Any] = Options, texts: Mapping[str, str] = _SHARED
) -> Callable[[Drawing], Drawing]:
    """Complete a picture's signature and docstring by what all pictures share.

    The last parameter, `options` of a kind, becomes one parameter for each. A
    parameter, result or error that the docstring describes itself is left as it is;
    `texts` go before those that all pictures share.
    """

    def complete(function: Drawing) -> Drawing:
        declared = signature(function)
        # The parameter `options` gives way to those that its kind names.
        parameters = [p for name, p in declared.parameters.items() if name != "options"]
        has_options = "options" in declared.parameters
        # The signature of `look_of` is the one list of shared parameters.
        for name, parameter in signature(look_of).parameters.items():
            if has_options and name in kind.__annotations__:
                parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
        names = [parameter.name for parameter in parameters]

        @wraps(function)
        def draw(*args: Any, **keywords: Any) -> Any:
            try:
                # matplotlib is imported by the picture, so that `import relpos` does
                # not need it.
                return function(*args, **keywords)
            except ModuleNotFoundError as exc:
                if exc.name != "matplotlib":
                    raise
                raise ModuleNotFoundError(
                    "relpos.plot needs matplotlib, which is not installed; run `pip "
                    "install matplotlib`, or in a checkout `pip install '.[plot]'`",
                    name="matplotlib",
                ) from exc

        draw.__signature__ = declared.replace(parameters=parameters)  # type: ignore[attr-defined]
        if function.__doc__ is not None:  # python -OO
            draw.__doc__ = _completed(function.__doc__, names, texts)
        return draw  # type: ignore[return-value]

    return complete


def _completed(docstring: str, names: list[str], shared: Mapping[str, str]) -> str:
    """Return a docstring with the sections that it lacks, and with all parameters."""
    parts = sections(docstring)
    # An entry begins in the first column, and its lines are indented.
    entries = re.findall(r"^(\S.*(?:\n(?: .*)?)*)$", parts["Parameters"], re.MULTILINE)
    # One entry may describe several parameters, such as "vmin, vmax".
    described = {
        name for entry in entries for name in entry.split(" : ")[0].split(", ")
    }
    for name, text in shared.items():
        first = name.split(", ")[0]
        if first in names and first not in described:
            entries.append(f"{name} : {text}")
    order_of_names = [*names, "**keywords"]

    def place(entry: str) -> int:
        first_name = re.split("[, ]|\n", entry)[0]
        return order_of_names.index(first_name)

    entries.sort(key=place)
    parts["Parameters"] = "\n".join(entry.rstrip() for entry in entries)
    parts.setdefault("Returns", _RETURNS)
    # Errors of a picture come before those that all pictures share.
    parts["Raises"] = "\n".join([*filter(None, [parts.get("Raises")]), _RAISES])
    order = ("Parameters", "Returns", "Raises", "See Also", "Examples")
    blocks = [parts[""]]
    for title in order:
        if title in parts:
            underline = "-" * len(title)
            blocks.append(f"{title}\n{underline}\n{parts[title]}")
    return "\n\n".join(blocks) + "\n"


def colormap_of(cmap: str | Colormap) -> Colormap:
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


def axes_of(look: Look) -> Axes:
    """Return the axes of a look, or those of a new figure, with the title."""
    ax = look.ax
    if ax is None:
        # pyplot keeps the figure, and is imported only where a new one is needed.
        from matplotlib import pyplot as plt

        ax = plt.subplots(layout="constrained")[1]
    if not hasattr(ax, "imshow"):  # such as the array that subplots(1, 2) gives
        raise TypeError(f"ax: got {kind_of(ax)}; expected one matplotlib Axes")
    if look.title is not None:
        ax.set_title(look.title)
    return ax


def panels_of(
    look: Look,
    count: int,
    columns: int,
    side: float = 3.0,
    below: list[str] | None = None,
) -> Array:
    """Return new axes of a figure, `columns` in a row, with its title above them.

    A new figure has room for the tokens below the last row, which are slanted.
    """
    columns, figure = min(columns, count), look.figure
    # Rounded up: the last row may have fewer panels.
    rows = -(-count // columns)
    if figure is None:
        from matplotlib import pyplot as plt

        # Slanted labels need room by their longest text.
        room = 0.3 + 0.06 * max(map(len, below)) if below else 0.0
        size = side * columns + 0.8, side * rows + room
        figure = plt.figure(figsize=size, layout="constrained")
    if not hasattr(figure, "add_subplot"):
        got = kind_of(figure)
        raise TypeError(f"figure: got {got}; expected a matplotlib Figure")
    if look.title is not None:
        figure.suptitle(look.title)
    # An array of objects, since NumPy would look for numbers in axes.
    panels = np.empty(count, object)
    panels[:] = [figure.add_subplot(rows, columns, n + 1) for n in range(count)]
    return panels


def share_bar(panels: Array) -> Array:
    panels[0].figure.colorbar(panels[0].images[-1], ax=[*panels])
    return panels


def as_reals(name: str, value: object) -> Array:
    """Return `value` in float64: no picture needs more."""
    array = as_array(name, value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: got {kind_of(array)}; expected real numbers")
    with np.errstate(over="ignore"):  # of longdouble
        return array.astype(np.float64)


def as_shaped(name: str, value: object, ndim: int, expected: str) -> Array:
    """Return `value` in float64, of `ndim` axes that are not empty."""
    array = as_reals(name, value)
    check_shape(name, array, array.ndim == ndim, expected)
    check_shape(name, array, array.size, "something to draw")
    return array


def as_mapping(name: str, value: object, expected: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        reject_foreign(name, value)
        raise TypeError(f"{name}: got {kind_of(value)}; expected a mapping {expected}")
    if not value:
        raise ValueError(f"{name}: got an empty mapping; expected something to draw")
    return value


def as_result(name: str, value: object, kind: type[Any], maker: str) -> Any:
    if not isinstance(value, kind):
        reject_foreign(name, value)
        expected = f"what relpos.{maker} returns"
        raise TypeError(f"{name}: got {kind_of(value)}; expected {expected}")
    return value


def as_tokens(name: str, tokens: Tokens | None, count: int) -> list[str] | None:
    """Return labels for `count` ticks of an axis, None where none are given."""
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
    """Return pairs (query, key) of a matrix of that shape."""
    # An empty list has no second axis to check.
    if not as_array(name, pairs).size:
        return []
    array = as_integers(name, pairs)
    is_list = array.ndim == 2 and array.shape[1] == 2
    check_shape(name, array, is_list, "(n, 2), pairs of a query and a key")
    pairs = [(int(i), int(j)) for i, j in array]
    for i, j in pairs:
        if not (0 <= i < shape[0] and 0 <= j < shape[1]):
            raise IndexError(f"{name}: got {(i, j)}; expected a pair of {shape}")
    return pairs


def name_places(axis: Any, tokens: list[str] | None) -> None:
    """Write tokens at the ticks of an axis, slanted where they would overlap."""
    if tokens is None:
        return
    # Signs of a formula are not drawn, so that they do not count in a width.
    widths = [
        len(token.translate(_MARKS) if token.startswith("$") else token)
        for token in tokens
    ]
    slant: dict[str, Any] = {}
    # Labels of more than two characters would overlap below the axis.
    if axis.axis_name == "x" and max(widths, default=0) > 2:
        slant = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    axis.set_ticks(range(len(tokens)), tokens, **slant)


def places_of(shape: tuple[int, ...], look: Look) -> Places:
    """Return labels of the queries and of the keys of a (Lq, Lk) map."""
    shared, *apart = look.tokens
    # An error names the parameter that the labels came from.
    names = ["tokens" if x is None else n for n, x in zip(_OF_ONE, apart, strict=True)]
    labels = (shared if x is None else x for x in apart)
    rows, columns = map(as_tokens, names, labels, shape)
    return rows, columns


def name_pairs(ax: Axes, places: Places = (None, None)) -> Axes:
    ax.set(xlabel="key j", ylabel="query i")
    name_places(ax.yaxis, places[0])
    name_places(ax.xaxis, places[1])
    return ax


def reach(array: Array, center: float = 0.0) -> float:
    # A map without a finite number has the reach 0.
    return float(np.abs(array[np.isfinite(array)] - center).max(initial=0.0))


def check_limits(limits: Limits, above: float | None = None) -> None:
    """Refuse ends of an axis that are not in order, or not above a number."""
    low, high = limits
    if low is not None and high is not None and low >= high:
        raise ValueError(f"vmin: got {low}; expected less than vmax, {high}")
    for name, end in (("vmin", low), ("vmax", high)):
        if above is not None and end is not None and end <= above:
            raise ValueError(f"{name}: got {end}; expected more than {above:g}")


def between(limits: Limits, reach: float, center: float | None) -> tuple[float, float]:
    """Return given limits; others are at `reach`, on both sides of a center or from 0.

    Where one of two is given, the center is in the middle.
    """
    low, high = limits
    # Without a center the scale begins at 0.
    middle = center or 0.0
    if high is None:
        mirrored = center is not None and low is not None
        # A map of zeros has the scale to 1, because both ends must differ.
        high = 2 * middle - (low or 0.0) if mirrored else middle + (reach or 1.0)
    if low is None:
        low = 0.0 if center is None else 2 * middle - high
    check_limits((low, high))
    return low, high


def heat_map(
    array: Array,
    look: Look,
    kind: str = "",
    *,
    cmap: str | None = None,
    center: float | None = 0.0,
    bar: bool = True,
    aspect: Literal["equal", "auto"] = "equal",
) -> Axes:
    """Draw `array` as an image with a colour bar.

    Without limits, it shares a scale with the images of its kind in the figure, which
    get the new scale, too. Without a center the colours begin at 0.
    """
    # Given limits are for one map, and others keep their scale.
    shared, alike = look.limits == (None, None), list[Any]()
    if look.ax is not None and shared:
        others = axes_of(look).figure.axes
        # The label of an image says its kind, so that weights and scores do not share
        # one.
        images = [image for other in others for image in other.images]
        alike = [image for image in images if image.get_label() == kind]
    seen = [array, *(image.get_array().compressed() for image in alike)]
    farthest = max(reach(one, center or 0.0) for one in seen)
    low, high = between(look.limits, farthest, center)
    ax = axes_of(look)
    colours = look.cmap or cmap or (WEIGHTS if center is None else SIGNED)
    image = ax.imshow(array, interpolation="nearest", cmap=colours, aspect=aspect)
    if shared:
        image.set_label(kind)
    # Images that were drawn before get the larger scale, and their numbers new colours.
    for one in (image, *alike):
        one.set_clim(low, high)
        choose_inks(one)
    ax.set_facecolor("lightgrey")  # of cells that are nan: white would be zero
    if bar:
        ax.figure.colorbar(image, ax=ax)
    ax.locator_params(integer=True)  # rows and columns are counted
    return ax


def write_numbers(ax: Axes, texts: Array) -> None:
    """Write texts into cells of the image, black or white by the colour below."""
    image: Any = ax.images[-1]
    # Texts stay at the image, since a later map may change its colours.
    image.relpos_numbers = [
        ax.text(j, i, texts[i, j], **SMALL)
        for i, j in zip(*np.nonzero(texts != ""), strict=True)
    ]
    choose_inks(image)


def choose_inks(image: Any) -> None:
    """Make the numbers of an image black or white by the colours that it has now."""
    numbers = getattr(image, "relpos_numbers", [])
    colours: Any = image.to_rgba(image.get_array()) if numbers else None
    for text in numbers:
        j, i = map(int, text.get_position())
        red, green, blue, alpha = colours[i, j]
        # The brightness as the eye weighs red, green and blue.
        light = 0.3 * red + 0.59 * green + 0.11 * blue
        text.set_color("black" if light > 0.5 or not alpha else "white")


def frame(ax: Axes, row: int, column: int, **style: Any) -> None:
    from matplotlib.patches import Rectangle

    # The center of a cell is at whole numbers, so that its edges are half a cell away.
    ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, **style))


def colours_of(count: int, look: Look) -> list[Any]:
    """Return a colour for each of so many lines: of a colormap, if given or needed."""
    if look.cmap is None and count <= len(_COLOURS):
        return [*_COLOURS[:count]]
    cmap = look.cmap or colormap_of("viridis")
    # viridis ends in a yellow that is too pale for a line.
    return [cmap(n / max(count - 1, 1) * 0.9) for n in range(count)]
