"""What all pictures are made of: axes, checked numbers, heat maps on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from relpos._checks import as_array, as_real, kind_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

Array = npt.NDArray[Any]
Limits = tuple[float | None, float | None]

#: Colours from 0 on, and colours with zero in the middle.
WEIGHTS, SIGNED = "viridis", "RdBu_r"


def axes_of(ax: Axes | None) -> Axes:
    """`ax`, or the axes of a new figure."""
    if ax is None:
        from matplotlib import pyplot

        return pyplot.subplots(layout="constrained")[1]
    if not hasattr(ax, "imshow"):  # such as the array that subplots(1, 2) gives
        raise TypeError(f"ax: got {kind_of(ax)}; expected one matplotlib Axes")
    return ax


def as_reals(name: str, value: object) -> Array:
    """`value` in float64: no picture needs more."""
    array = as_array(name, value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: got {kind_of(array)}; expected real numbers")
    with np.errstate(over="ignore"):  # of longdouble
        return array.astype(np.float64)


def as_matrix(name: str, value: object, wanted: str) -> Array:
    array = as_reals(name, value)
    if array.ndim != 2:
        raise ValueError(f"{name}: got shape {array.shape}; expected {wanted}")
    if not array.size:
        raise ValueError(f"{name}: got shape {array.shape}; expected something to draw")
    return array


def finite(array: Array) -> Array:
    return array[np.isfinite(array)]


def reach(array: Array) -> float:
    """The largest absolute value that is drawn."""
    return float(np.abs(finite(array)).max(initial=0.0))


def as_limits(vmin: float | None, vmax: float | None) -> Limits:
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
    images = [image for other in axes_of(ax).figure.axes for image in other.images]
    return [image for image in images if image.get_label() == kind]


def heat_map(
    kind: str, array: Array, ax: Axes | None, limits: Limits, **options: Any
) -> Axes:
    """`array` as an image with a colour bar; without limits, in the scale of its kind.

    Those that are drawn already get the new scale, too.
    """
    shared = limits == (None, None)
    alike = _alike(kind, ax) if shared else []
    drawn: list[Any] = [image.get_array() for image in alike]
    farthest = max(map(reach, [array, *(one.compressed() for one in drawn)]))
    low, high = _between(limits, farthest, signed=options["cmap"] != WEIGHTS)
    ax = axes_of(ax)
    image = ax.imshow(array, interpolation="nearest", **options)
    if shared:
        image.set_label(kind)
    for one in (image, *alike):
        one.set_clim(low, high)
    ax.set_facecolor("lightgrey")  # seen where nothing is drawn: white would be zero
    ax.figure.colorbar(image, ax=ax)
    ax.locator_params(integer=True)  # rows and columns are counted
    return ax
