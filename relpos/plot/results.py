"""Results: comparisons, costs of formulations, trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from relpos._attention.plan import Plan, plan as plan_of
from relpos._checks import (
    POSITION_LIMIT,
    as_choice,
    as_flag,
    as_int,
    as_integers,
    kind_of,
    reject_foreign,
)
from relpos.plot.panel import (
    Array,
    Options,
    as_mapping,
    as_reals,
    as_shaped,
    axes_of,
    check_limits,
    colours_of,
    draw_band,
    draw_lines,
    look_of,
    picture,
    with_prefix,
)

if TYPE_CHECKING:
    from typing import Unpack

    from matplotlib.axes import Axes

    from relpos._opinion.compare import Comparison

_QUANTITIES = {"bytes": "bytes beyond inputs and output", "flops": "flops"}
_UNITS = {"bytes": "B", "flops": ""}
#: Lines of the formulations; that of relpos is solid.
_STYLES = {"L x L x d": ":", "L x L": "--", "L x R": "-.", "relpos": "-"}
_MOST = 2**16  # steps of a mean


@picture()
def compare(
    comparison: Comparison, *, ax: Axes | None = None, **options: Unpack[Options]
) -> Axes:
    """Relative errors of a comparison: red ones differ, dashed is the rounding limit.

    Noise, nan, and errors that its dtype cannot show are grey.

    Parameters
    ----------
    comparison : Comparison
        The result of `relpos.compare`.
    vmin, vmax : float, optional
        The ends of the axis of the errors, above 0: it is logarithmic.
    cmap : str or Colormap, optional
        Its first colour is that of equal outputs, its last that of others.

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
    rows, least = comparison.rows, comparison.limit * 1e-4
    look = look_of(**options)
    check_limits(look.limits, above=0.0)
    inks = dict(zip(("same", "differs"), colours_of(2, look), strict=True))
    colors = [inks.get(row.verdict, "lightgrey") for row in rows]
    ax = axes_of(ax, look.title)
    sizes = [max(least, row.relative) for row in rows]  # an exact result has a bar too
    ax.barh([row.name for row in rows], sizes, color=colors, log=True)
    ax.axvline(comparison.limit, color="black", linestyle="--")
    ax.set(xlabel="error relative to the largest entry")
    ax.set_xlim(*look.limits)
    ax.invert_yaxis()
    return ax


@picture()
def plan_bars(
    plan: Plan,
    *,
    quantity: str = "bytes",
    ax: Axes | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Cost of each formulation of a plan, as bars on a logarithmic scale.

    Parameters
    ----------
    plan : Plan
        The result of ``relpos.plan``.
    quantity : {"bytes", "flops"}, default "bytes"
        Bytes beyond inputs and output, or flops of the matrix products.
    vmin, vmax : float, optional
        The ends of the axis of the costs, above 0: those of several plans are compared
        by the same.
    cmap : str or Colormap, optional
        Its first colour is that of the other formulations, its last that of relpos.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> plan = relpos.plan(1, 8, 512, 512, 64, scheme="shaw")
    >>> ax = relpos.plot.plan_bars(plan, quantity="flops", ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['L x L x d', 'L x L', 'L x R', 'relpos']
    """
    if not isinstance(plan, Plan):
        reject_foreign("plan", plan)
        raise TypeError(f"plan: got {kind_of(plan)}; expected what relpos.plan returns")
    chosen = as_choice("quantity", quantity, _QUANTITIES)
    look = look_of(**options)
    check_limits(look.limits, above=0.0)
    names = [form.name for form in plan.formulations]
    sizes = [getattr(form, chosen) for form in plan.formulations]
    other, own = colours_of(2, look)
    ax = axes_of(ax, look.title)
    colours = [*[other] * (len(names) - 1), own]
    # A logarithmic scale has no 0.
    bars = ax.barh(names, [max(size, 1) for size in sizes], color=colours, log=True)
    written = with_prefix(_UNITS[chosen])
    ax.bar_label(bars, [written(float(f"{size:.3g}")) for size in sizes], padding=3)
    ax.margins(x=0.25)
    ax.xaxis.set_major_formatter(written)
    ax.invert_yaxis()
    ax.set(xlabel=_QUANTITIES[chosen])
    if look.limits != (None, None):
        ax.set_xlim(*look.limits)
    return ax


@picture("lines")
def costs_over_length(
    schemes: str | Sequence[str],
    lengths: npt.ArrayLike,
    *,
    quantity: str = "bytes",
    formulations: Sequence[str] = ("L x L", "relpos"),
    batch: int = 1,
    heads: int = 8,
    head_dim: int = 64,
    is_causal: bool = False,
    dtype: npt.DTypeLike = np.float32,
    max_relative_position: int = 16,
    num_threads: int | None = None,
    ax: Axes | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Cost of schemes by the length of the sequence, both axes logarithmic.

    A colour is a scheme, and a style of line a formulation: solid that of relpos,
    dashed "L x L", dash-dotted "L x R", dotted "L x L x d".

    Parameters
    ----------
    schemes : str or sequence of str
        Names as of ``relpos.plan``.
    lengths : array_like of int, (n,)
        Queries, and as many keys.
    quantity : {"bytes", "flops"}, default "bytes"
        Bytes beyond inputs and output, or flops of the matrix products.
    formulations : sequence of str, default ("L x L", "relpos")
        Those of ``relpos.plan`` to draw; a scheme that lacks one has no line for it.
    batch, heads, head_dim : int, default 1, 8, 64
        The other sizes.
    is_causal, dtype, max_relative_position, num_threads : optional
        As of ``relpos.plan``.
    vmin, vmax : float, optional
        The ends of the axis of the costs, above 0.
    cmap : str or Colormap, optional
        Colours of the schemes, from the first to the last.

    Raises
    ------
    MemoryError
        If the kernels hold more at a length than memory can address.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.costs_over_length("alibi", [512, 1024], ax=Figure().subplots())
    >>> [line.get_label() for line in ax.lines]
    ['alibi, L x L', 'alibi, relpos']
    >>> high, low = ax.lines[0].get_ydata()[::-1]
    >>> float(high / low)
    4.0
    """
    chosen = as_choice("quantity", quantity, _QUANTITIES)
    names, forms = _names("schemes", schemes), _names("formulations", formulations)
    for n, form in enumerate(forms):
        as_choice(f"formulations[{n}]", form, _STYLES)
    places, look = _lengths(lengths), look_of(**options)
    check_limits(look.limits, above=0.0)
    settings: dict[str, Any] = {
        "is_causal": is_causal,
        "dtype": dtype,
        "max_relative_position": max_relative_position,
        "num_threads": num_threads,
    }
    found: dict[tuple[str, str], tuple[Array, Array]] = {}
    for name in names:
        plans = [
            plan_of(batch, heads, n, n, head_dim, scheme=name, **settings)
            for n in places.tolist()
        ]
        found |= {
            (name, form): (places, _costs(plans, form, chosen))
            for form in forms
            if form in {one.name for one in plans[0].formulations}
        }
    if not found:
        raise ValueError(f"formulations: got {forms}; expected some that {names} have")
    ax = draw_lines({", ".join(key): line for key, line in found.items()}, look, ax)
    inks = dict(zip(names, colours_of(len(names), look), strict=True))
    widths = {n: 1.5 + min(left, 4) for left, n in enumerate(reversed(names))}
    for (name, form), line in zip(found, ax.lines[-len(found) :], strict=True):
        line.set(color=inks[name], linestyle=_STYLES[form], marker=".")
        line.set_linewidth(widths[name])  # costs are often equal: none hides another
    if ax.get_legend() is not None:
        ax.legend()  # in the styles that the lines have now
    ax.set(xscale="log", yscale="log", xlabel="length", ylabel=_QUANTITIES[chosen])
    ax.yaxis.set_major_formatter(with_prefix(_UNITS[chosen]))
    return ax


def _names(name: str, given: object) -> list[str]:
    """Return one name or several, each once."""
    reject_foreign(name, given)
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not all(
        isinstance(one, str) for one in listed
    ):
        raise TypeError(f"{name}: got {kind_of(given)}; expected names")
    if not listed:
        raise ValueError(f"{name}: got no names; expected some")
    return [*dict.fromkeys(listed)]


def _lengths(given: npt.ArrayLike) -> Array:
    """Return (n,) lengths, each at least 1."""
    array = as_integers("lengths", given)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"lengths: got shape {array.shape}; expected (n,)")
    for n, length in enumerate(array.tolist()):
        as_int(f"lengths[{n}]", length, 1, POSITION_LIMIT)
    return array


def _costs(plans: list[Plan], form: str, quantity: str) -> Array:
    """Return costs of one formulation, NaN for 0, which a logarithm has not."""
    costs = [
        getattr(one, quantity)
        for plan in plans
        for one in plan.formulations
        if one.name == form
    ]
    return np.array([cost or np.nan for cost in costs], float)


@picture("lines")
def loss_curves(
    losses: Mapping[str, npt.ArrayLike],
    *,
    smooth: int = 1,
    log: bool = False,
    ax: Axes | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Losses of several trainings, one line each, by the step.

    Parameters
    ----------
    losses : mapping of str to array_like of real, (steps,) or (runs, steps)
        By the name in the legend; of several runs the mean, and a band from the least
        to the largest. Losses that are not finite are left out.
    smooth : int, default 1
        Draw the mean of so many steps, up to each; with more than 1 the losses of a
        single run are pale in the background.
    log : bool, default False
        Make the axis of the losses logarithmic; losses up to 0 are then left out.
    vmin, vmax : float, optional
        The ends of the axis of the losses; by default it begins at 0, if it is not
        logarithmic and no loss is negative.

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
    look = look_of(**options)
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
        draw_band(ax, line, smoothed[name])
        if len(runs[name]) == 1 and steps > 1:
            seen = np.where(np.isfinite(runs[name][0]), runs[name][0], np.nan)
            ax.plot(line.get_xdata(), seen, color=line.get_color(), alpha=0.25)
    if logarithmic:
        ax.set_yscale("log")
    ax.set(xlabel="step", ylabel="loss")
    return ax


def _smoothed(values: Array, steps: int) -> Array:
    """Return at each step the mean of the finite losses of so many steps up to it."""
    there = np.isfinite(values)
    window = np.ones(min(steps, len(values)))
    if not len(window):
        return values
    sums = np.convolve(np.where(there, values, 0.0), window)[: len(values)]
    counts = np.convolve(there, window)[: len(values)]
    means = np.full(len(values), np.nan)
    np.divide(sums, counts, where=there, out=means)
    return means


@picture("lines")
def length_generalisation(
    results: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    trained_at: int | None = None,
    ax: Axes | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Outcome by the length of the test, a line each: train short, test long.

    Parameters
    ----------
    results : mapping of str to (array_like of int, array_like of real)
        By the name in the legend, the lengths (n,) and the results (n,), or (runs, n)
        of several runs: then their mean, and a band from the least to the largest.
    trained_at : int, optional
        The length of the training, dashed.

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
    look = look_of(**options)
    length = None if trained_at is None else as_int("trained_at", trained_at, 1, 2**60)
    lines = {name: (x, runs.mean(axis=0)) for name, (x, runs) in found.items()}
    ax = draw_lines(lines, look, ax)
    for (_, runs), line in zip(found.values(), ax.lines[-len(found) :], strict=True):
        line.set_marker("o")
        draw_band(ax, line, runs)
    if length is not None:
        ax.axvline(length, color="black", linestyle="--", label="trained")
        ax.legend()
    ax.set(xlabel="length of the test", ylabel="result")
    return ax


def _runs(name: str, pair: object) -> tuple[Array, Array]:
    """Return lengths (n,) and results (runs, n)."""
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
