"""Pictures of encodings, positions, attention weights and losses (matplotlib).

Each function draws into the axes given as `ax`, or into new ones, and returns them.
None of them shows a window or writes a file: that is the caller's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["attention_map", "encoding_map", "loss_curves", "relative_position_map"]


def _axes(ax: Axes | None) -> Axes:
    """`ax`, or the axes of a new figure."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def _heat_map(ax: Axes | None, array: npt.ArrayLike, **options: Any) -> Axes:
    """`array` as an image with a colour bar."""
    ax = _axes(ax)
    image = ax.imshow(np.asarray(array), interpolation="nearest", **options)
    ax.figure.colorbar(image, ax=ax)
    ax.locator_params(integer=True)  # rows and columns are counted
    return ax


def encoding_map(encoding: npt.ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Heat map of an encoding: one row per position, one column per dimension.

    Parameters
    ----------
    encoding : array_like, (L, dim)
        For instance ``relpos.sinusoidal(L, dim)``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
    """
    limit = float(np.max(np.abs(encoding), initial=0.0)) or 1.0
    ax = _heat_map(ax, encoding, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
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
    """
    relative = np.asarray(relative)
    limit = float(np.max(np.abs(relative), initial=0)) or 1.0
    ax = _heat_map(ax, relative, cmap="PuOr", vmin=-limit, vmax=limit)
    if max(relative.shape) <= 12:  # more numbers than this cannot be read
        for (i, j), r in np.ndenumerate(relative):
            ink = "white" if abs(r) > 0.6 * limit else "black"
            ax.text(j, i, str(r), ha="center", va="center", color=ink)
    ax.set(xlabel="key j", ylabel="query i")
    return ax


def attention_map(weights: npt.ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Attention weights of one head, one row per query.

    Parameters
    ----------
    weights : array_like, (Lq, Lk)
        One head of ``relpos.attention(..., return_weights=True).weights``.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
    """
    ax = _heat_map(ax, weights, cmap="viridis", vmin=0.0)
    ax.set(xlabel="key j", ylabel="query i")
    return ax


def loss_curves(losses: Mapping[str, npt.ArrayLike], *, ax: Axes | None = None) -> Axes:
    """Losses of several trainings, one line each, by the step.

    Parameters
    ----------
    losses : mapping of str to array_like, (steps,)
        By the name in the legend.
    ax : matplotlib.axes.Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes
    """
    ax = _axes(ax)
    for name, values in losses.items():
        values = np.asarray(values)
        ax.plot(np.arange(1, len(values) + 1), values, label=name)
    ax.set(xlabel="step", ylabel="loss", ylim=(0, None))
    ax.legend()
    return ax
