"""Pictures of encodings, positions, attention weights and losses (matplotlib).

Each function draws into the axes given as `ax`, or into new ones, and returns them.
None of them shows a window or writes a file: that is the caller's business. Maps of one
kind in one figure have one colour scale: a colour is the same number in all of them.
matplotlib comes with ``pip install "relpos[plot]"``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from relpos._checks import as_array, as_integers, as_real, kind_of, reject_foreign

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

    from relpos._compare.compare import Comparison

__all__ = [
    *("attention_map", "compare", "encoding_map", "loss_curves"),
    "relative_position_map",
]

Array = npt.NDArray[Any]
Limits = tuple[float | None, float | None]

#: Colours from 0 on, and colours with zero in the middle.
WEIGHTS, SIGNED = "viridis", "RdBu_r"


def encoding_map(
    encoding: npt.ArrayLike,
    *,
    vmin: float | None = None,
    vmax: float | None = None,
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
    vmin, vmax : float, optional
        The numbers at the ends of the colours, for this map alone; one of them alone
        leaves zero in the middle.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ValueError
        If `encoding` is not of two axes, or empty, or `vmin` is not less than `vmax`.
    TypeError
        If `encoding` is of anything but real numbers, or `ax` is not one Axes.

    See Also
    --------
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
    array = _as_matrix("encoding", encoding, "two axes, (L, dim)")
    limits = _as_limits(vmin, vmax)
    ax = _heat_map("encoding", array, ax, limits, cmap=SIGNED, aspect="auto")
    ax.set(xlabel="dimension", ylabel="position")
    return ax


def relative_position_map(relative: npt.ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Matrix of relative positions, key minus query, with its numbers where they fit.

    Parameters
    ----------
    relative : array_like of int, (Lq, Lk)
        For instance ``relpos.relative_positions(L)``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ValueError
        If `relative` is not of two axes, or empty.
    TypeError
        If `relative` is not of integers, or `ax` is not one Axes.

    See Also
    --------
    relpos.relative_positions : The matrix that it draws.
    attention_map : The weights of the same pairs.

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
    array = _as_matrix("relative", numbers, "two axes, (Lq, Lk)")
    limit = _reach(array) or 1.0
    ax = _heat_map("relative", array, ax, (-limit, limit), cmap="PuOr")
    if max(array.shape) <= 12:  # more numbers than this cannot be read
        for (i, j), r in np.ndenumerate(numbers):
            ink = "white" if abs(array[i, j]) > 0.6 * limit else "black"
            ax.text(j, i, str(r), ha="center", va="center", color=ink)
    ax.set(xlabel="key j", ylabel="query i")
    return ax


def attention_map(
    weights: npt.ArrayLike,
    *,
    vmin: float | None = None,
    vmax: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Attention weights or scores of one head, one row per query.

    Weights go from dark, which is 0, to bright. With a negative number among them they
    are scores: zero is white, negative numbers are blue and positive ones red. All
    weights in a figure have one scale, and so have all scores.

    Parameters
    ----------
    weights : array_like of real, (Lq, Lk)
        One head of ``relpos.attention(..., return_weights=True).weights``, or scores,
        as of ``relpos.shaw_scores``. What is not finite is grey: hidden keys.
    vmin, vmax : float, optional
        The numbers at the ends of the colours, for this map alone. A negative `vmin`
        asks for the colours of scores; `vmax` alone leaves their zero in the middle.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ValueError
        If `weights` is not of two axes, or empty, or `vmin` is not less than `vmax`.
    TypeError
        If `weights` is of anything but real numbers, or `ax` is not one Axes.

    See Also
    --------
    relpos.attention : Returns the weights with ``return_weights=True``.
    relpos.shaw_scores, relpos.skewed_scores, relpos.transformer_xl_scores : Scores to
        draw.
    relative_position_map : The positions of the same pairs.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> scores = [[0.5, -2.0], [1.0, 0.0]]
    >>> ax = relpos.plot.attention_map(scores, ax=Figure().subplots())
    >>> tuple(map(float, ax.images[0].get_clim()))
    (-2.0, 2.0)
    """
    wanted = "two axes, (Lq, Lk): one head, such as weights[0]"
    array = _as_matrix("weights", weights, wanted)
    low, high = _as_limits(vmin, vmax)
    if (_finite(array) < 0).any() or (low or 0.0) < 0:
        ax = _heat_map("scores", array, ax, (low, high), cmap=SIGNED)
    else:
        ax = _heat_map("weights", array, ax, (low, high), cmap=WEIGHTS)
    ax.set(xlabel="key j", ylabel="query i")
    return ax


def loss_curves(losses: Mapping[str, npt.ArrayLike], *, ax: Axes | None = None) -> Axes:
    """Losses of several trainings, one line each, by the step.

    Parameters
    ----------
    losses : mapping of str to array_like of real, (steps,)
        By the name in the legend.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    ValueError
        If losses are not of one axis.
    TypeError
        If `losses` is not a mapping, or has anything but real numbers, or `ax` is not
        one Axes.

    See Also
    --------
    relpos.nn.cross_entropy : A loss.
    relpos.nn.SGD, relpos.nn.Adam : What makes it fall.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.loss_curves({"k = 4": [2.0, 1.0]}, ax=Figure().subplots())
    >>> ax.lines[0].get_xydata().tolist()
    [[1.0, 2.0], [2.0, 1.0]]
    """
    if not isinstance(losses, Mapping):
        reject_foreign("losses", losses)
        raise TypeError(
            f"losses: got {kind_of(losses)}; expected a mapping of names to losses"
        )
    curves = {name: _as_reals(f"losses[{name!r}]", losses[name]) for name in losses}
    for name, values in curves.items():
        if values.ndim != 1:
            raise ValueError(
                f"losses[{name!r}]: got shape {values.shape}; expected one axis, "
                "(steps,)"
            )
    ax = _axes(ax)
    for name, values in curves.items():
        ax.plot(np.arange(1, len(values) + 1), values, label=name)
    ax.set(xlabel="step", ylabel="loss")
    if not any((values < 0).any() for values in curves.values()):
        ax.set_ylim(0, None)
    ax.legend()
    return ax


def compare(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Relative errors of a comparison: red what differs, dashed the limit of rounding.

    Parameters
    ----------
    comparison : Comparison
        What `relpos.compare` returned.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn into.

    Raises
    ------
    TypeError
        If `comparison` is something else, or `ax` is not one Axes.

    See Also
    --------
    relpos.compare : Makes it.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> found = relpos.compare(np.sin, np.sin, np.ones(3))
    >>> ax = relpos.plot.compare(found, ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['output']
    """
    if not hasattr(comparison, "rows"):
        got = kind_of(comparison)
        raise TypeError(f"comparison: got {got}; expected what relpos.compare returns")
    ax, rows, least = _axes(ax), comparison.rows, comparison.limit * 1e-4
    inks = {"same": "tab:blue", "differs": "tab:red"}
    colors = [inks.get(row.verdict, "lightgrey") for row in rows]
    sizes = [max(least, row.relative) for row in rows]  # an exact result has a bar too
    ax.barh([row.name for row in rows], sizes, color=colors, log=True)
    ax.axvline(comparison.limit, color="black", linestyle="--")
    ax.set(xlabel="error relative to the largest entry")
    ax.invert_yaxis()
    return ax


def _axes(ax: Axes | None) -> Axes:
    """`ax`, or the axes of a new figure."""
    if ax is None:
        from matplotlib import pyplot

        return pyplot.subplots(layout="constrained")[1]
    if not hasattr(ax, "imshow"):  # such as the array that subplots(1, 2) gives
        raise TypeError(f"ax: got {kind_of(ax)}; expected one matplotlib Axes")
    return ax


def _as_reals(name: str, value: object) -> Array:
    """`value` in float64: no picture needs more."""
    array = as_array(name, value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: got {kind_of(array)}; expected real numbers")
    with np.errstate(over="ignore"):  # of longdouble
        return array.astype(np.float64)


def _as_matrix(name: str, value: object, wanted: str) -> Array:
    array = _as_reals(name, value)
    if array.ndim != 2:
        raise ValueError(f"{name}: got shape {array.shape}; expected {wanted}")
    if not array.size:
        raise ValueError(f"{name}: got shape {array.shape}; expected something to draw")
    return array


def _finite(array: Array) -> Array:
    return array[np.isfinite(array)]


def _reach(array: Array) -> float:
    """The largest absolute value that is drawn."""
    return float(np.abs(_finite(array)).max(initial=0.0))


def _as_limits(vmin: float | None, vmax: float | None) -> Limits:
    """Both checked; None where not given."""
    low = None if vmin is None else as_real("vmin", vmin)
    high = None if vmax is None else as_real("vmax", vmax)
    return low, high


def _between(limits: Limits, reach: float, signed: bool) -> tuple[float, float]:
    """The limits given; others as far as `reach`, or where signed as far as the one."""
    low, high = limits
    if high is None:
        high = -low if signed and low is not None else reach or 1.0
    if low is None:
        low = -high if signed else 0.0
    if low >= high:
        raise ValueError(f"vmin: got {low}; expected less than vmax, {high}")
    return low, high


def _alike(kind: str, ax: Axes | None) -> list[AxesImage]:
    """The images of this kind in the figure that share its scale."""
    if ax is None:
        return []
    images = [image for other in _axes(ax).figure.axes for image in other.images]
    return [image for image in images if image.get_label() == kind]


def _heat_map(
    kind: str, array: Array, ax: Axes | None, limits: Limits, **options: Any
) -> Axes:
    """`array` as an image with a colour bar; without limits, in the scale of its kind.

    Those that are drawn already get the new scale, too.
    """
    shared = limits == (None, None)
    alike = _alike(kind, ax) if shared else []
    drawn: list[Any] = [image.get_array() for image in alike]
    reach = max(map(_reach, [array, *(one.compressed() for one in drawn)]))
    low, high = _between(limits, reach, signed=options["cmap"] != WEIGHTS)
    ax = _axes(ax)
    image = ax.imshow(array, interpolation="nearest", **options)
    if shared:
        image.set_label(kind)
    for one in (image, *alike):
        one.set_clim(low, high)
    ax.set_facecolor("lightgrey")  # seen where nothing is drawn: white would be zero
    ax.figure.colorbar(image, ax=ax)
    ax.locator_params(integer=True)  # rows and columns are counted
    return ax
