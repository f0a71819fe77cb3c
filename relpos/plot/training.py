"""What training and testing gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from relpos._checks import as_flag, as_int, kind_of, reject_foreign
from relpos.plot.lines import check_limits, draw_lines
from relpos.plot.panel import Array, as_mapping, as_reals, as_shaped, look_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

_MOST = 2**16  # steps of a mean


def loss_curves(
    losses: Mapping[str, npt.ArrayLike],
    *,
    smooth: int = 1,
    log: bool = False,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Losses of several trainings, one line each, by the step.

    Parameters
    ----------
    losses : mapping of str to array_like of real, (steps,) or (runs, steps)
        By the name in the legend; of several runs the mean, and a band from the least
        to the largest. What is not finite is left out.
    smooth : int, default 1
        Steps that a line is the mean of, those up to its own; with more than 1 the
        losses of a single run stand pale behind.
    log : bool, default False
        Whether the axis of the losses is logarithmic; then losses from 0 down are left
        out.
    vmin, vmax : float, optional
        The ends of the axis of the losses; by default it begins at 0, if it is not
        logarithmic and no loss is negative.
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
        If losses are not of one axis or two, or an argument has no meaning.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    relpos.nn.cross_entropy : A loss.
    relpos.nn.SGD, relpos.nn.Adam : What makes it fall.
    length_generalisation : What came of it.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.loss_curves({"k = 4": [2.0, 1.0]}, ax=Figure().subplots())
    >>> ax.lines[0].get_xydata().tolist()
    [[1.0, 2.0], [2.0, 1.0]]
    """
    given = as_mapping("losses", losses, "of names to losses")
    curves = {name: as_reals(f"losses[{name!r}]", given[name]) for name in given}
    for name, values in curves.items():
        if values.ndim not in (1, 2) or not len(np.atleast_2d(values)):
            raise ValueError(
                f"losses[{name!r}]: got shape {values.shape}; expected (steps,) or "
                "(runs, steps)"
            )
    steps, logarithmic = as_int("smooth", smooth, 1, _MOST), as_flag("log", log)
    look = look_of(vmin, vmax, cmap, title)
    check_limits(look.limits, above=0.0 if logarithmic else None)
    negative = any((values < 0).any() for values in curves.values())
    if look.limits[0] is None and not logarithmic and not negative:
        look = look._replace(limits=(0.0, look.limits[1]))
    if logarithmic:
        curves = {n: np.where(x > 0, x, np.nan) for n, x in curves.items()}
    runs = {name: np.atleast_2d(values) for name, values in curves.items()}
    smoothed = {
        name: np.array([_smoothed(run, steps) for run in each])
        for name, each in runs.items()
    }
    lines = {
        name: (np.arange(1, each.shape[1] + 1), each.mean(axis=0))
        for name, each in smoothed.items()
    }
    ax = draw_lines(lines, look, ax)
    for line, name in zip(ax.lines[-len(runs) :], runs, strict=True):
        x, colour = line.get_xdata(), line.get_color()
        if len(runs[name]) > 1:
            low, high = smoothed[name].min(axis=0), smoothed[name].max(axis=0)
            ax.fill_between(x, low, high, color=colour, alpha=0.2)
        elif steps > 1:
            seen = np.where(np.isfinite(runs[name][0]), runs[name][0], np.nan)
            ax.plot(x, seen, color=colour, alpha=0.25)
    if logarithmic:
        ax.set_yscale("log")
    ax.set(xlabel="step", ylabel="loss")
    return ax


def _smoothed(values: Array, steps: int) -> Array:
    """The mean at each step of the losses that are there of so many up to it."""
    there = np.isfinite(values)
    window = np.ones(min(steps, len(values)))
    if not len(window):
        return values
    sums = np.convolve(np.where(there, values, 0.0), window)[: len(values)]
    counts = np.convolve(there, window)[: len(values)]
    means = np.full(len(values), np.nan)
    np.divide(sums, counts, where=there, out=means)
    return means


def length_generalisation(
    results: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    trained_at: int | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Outcome by the length of the test, a line each: train short, test long.

    Parameters
    ----------
    results : mapping of str to (array_like of int, array_like of real)
        By the name in the legend, the lengths (n,) and the results (n,), or (runs, n)
        of several runs: then their mean, and a band from the least to the largest.
    trained_at : int, optional
        The length of the training, dashed.
    vmin, vmax : float, optional
        The ends of the axis of the results.
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
        If results are not as many as lengths, or an argument has no meaning.
    TypeError
        If an argument is of another kind than it says.

    See Also
    --------
    loss_curves : What the training gave.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> runs = {"Shaw": ([16, 32], [[1.0, 0.5], [1.0, 0.75]])}
    >>> ax = relpos.plot.length_generalisation(
    ...     runs, trained_at=16, ax=Figure().subplots()
    ... )
    >>> ax.lines[0].get_ydata().tolist()
    [1.0, 0.625]
    """
    given = as_mapping("results", results, "of names to lengths and results")
    found = {name: _runs(f"results[{name!r}]", pair) for name, pair in given.items()}
    look = look_of(vmin, vmax, cmap, title)
    length = None if trained_at is None else as_int("trained_at", trained_at, 1, 2**60)
    lines = {name: (x, runs.mean(axis=0)) for name, (x, runs) in found.items()}
    ax = draw_lines(lines, look, ax)
    for (x, runs), line in zip(found.values(), ax.lines[-len(found) :], strict=True):
        line.set_marker("o")
        if len(runs) > 1:
            low, high = runs.min(axis=0), runs.max(axis=0)
            ax.fill_between(x, low, high, color=line.get_color(), alpha=0.2)
    if length is not None:
        ax.axvline(length, color="black", linestyle="--", label="trained")
        ax.legend()
    ax.set(xlabel="length of the test", ylabel="result")
    return ax


def _runs(name: str, pair: object) -> tuple[Array, Array]:
    """Lengths (n,) and results (runs, n)."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        reject_foreign(name, pair)
        raise TypeError(
            f"{name}: got {kind_of(pair)}; expected a tuple, (lengths, results)"
        )
    lengths = as_shaped(f"{name}[0]", pair[0], 1, "one axis, (n,)")
    runs = np.atleast_2d(as_reals(f"{name}[1]", pair[1]))
    if runs.ndim != 2 or runs.shape[1] != len(lengths) or not len(runs):
        raise ValueError(
            f"{name}[1]: got shape {np.shape(pair[1])}; expected ({len(lengths)},) or "
            f"(runs, {len(lengths)})"
        )
    return lengths, runs
