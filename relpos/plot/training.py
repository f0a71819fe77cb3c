"""What training and testing gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from relpos._checks import kind_of, reject_foreign
from relpos.plot.panel import as_reals, axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    curves = {name: as_reals(f"losses[{name!r}]", losses[name]) for name in losses}
    for name, values in curves.items():
        if values.ndim != 1:
            raise ValueError(
                f"losses[{name!r}]: got shape {values.shape}; expected one axis, "
                "(steps,)"
            )
    ax = axes_of(ax)
    for name, values in curves.items():
        ax.plot(np.arange(1, len(values) + 1), values, label=name)
    ax.set(xlabel="step", ylabel="loss")
    if not any((values < 0).any() for values in curves.values()):
        ax.set_ylim(0, None)
    ax.legend()
    return ax
