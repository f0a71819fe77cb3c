"""What formulations of schemes cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from relpos._attention.plan import Plan, plan as plan_of
from relpos._checks import (
    POSITION_LIMIT,
    as_choice,
    as_int,
    as_integers,
    kind_of,
    reject_foreign,
)
from relpos.plot.lines import check_limits, colours_of, draw_lines
from relpos.plot.panel import Array, axes_of, look_of, with_prefix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

_QUANTITIES = {"bytes": "bytes beyond inputs and output", "flops": "flops"}
_UNITS = {"bytes": "B", "flops": ""}
#: relpos is what all others are compared with.
_STYLES = {"L x L x d": ":", "L x L": "--", "L x R": "-.", "relpos": "-"}


def plan_bars(
    plan: Plan,
    *,
    quantity: str = "bytes",
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Cost of each formulation of a plan, as bars on a logarithmic scale.

    Parameters
    ----------
    plan : Plan
        What ``relpos.plan`` returned.
    quantity : {"bytes", "flops"}, default "bytes"
        Bytes beyond inputs and output, or flops of the matrix products.
    vmin, vmax : float, optional
        The ends of the axis of the costs, above 0: those of several plans are compared
        by the same.
    cmap : str or Colormap, optional
        Its first colour is that of the other formulations, its last that of relpos.
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
    TypeError
        If `plan` is something else, or an argument of another kind than it says.
    ValueError
        If `quantity` or `cmap` is none that there is, or the limits are not above 0 and
        in order.

    See Also
    --------
    relpos.plan : Makes it.
    costs_over_length : Of several schemes and lengths.

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
    look = look_of(vmin, vmax, cmap, title)
    check_limits(look.limits, above=0.0)
    names = [form.name for form in plan.formulations]
    sizes = [getattr(form, chosen) for form in plan.formulations]
    other, own = colours_of(2, look)
    ax = axes_of(ax)
    colours = [*[other] * (len(names) - 1), own]
    # an edge of 0 bytes has no place on the scale
    bars = ax.barh(names, [max(size, 1) for size in sizes], color=colours, log=True)
    written = with_prefix(_UNITS[chosen])
    ax.bar_label(bars, [written(float(f"{size:.3g}")) for size in sizes], padding=3)
    ax.margins(x=0.25)
    ax.xaxis.set_major_formatter(written)
    ax.invert_yaxis()
    ax.set(xlabel=_QUANTITIES[chosen])
    if look.limits != (None, None):
        ax.set_xlim(*look.limits)
    if look.title is not None:
        ax.set_title(look.title)
    return ax


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
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str | Colormap | None = None,
    title: str | None = None,
    ax: Axes | None = None,
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
    TypeError
        If an argument is of another kind than it says.
    ValueError
        If an argument has another shape or value than it says, or no scheme has any of
        the formulations.
    MemoryError
        If what the kernels hold at a length is more than memory can address.

    See Also
    --------
    relpos.plan : Tells the costs.
    plan_bars : All formulations at one length.

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
    places, look = _lengths(lengths), look_of(vmin, vmax, cmap, title)
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
    lines = {", ".join(key): line for key, line in found.items()}
    ax = draw_lines(lines, look, ax)
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
    """One name or several, each once."""
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
    """(n,) lengths, each at least 1."""
    array = as_integers("lengths", given)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"lengths: got shape {array.shape}; expected (n,)")
    for n, length in enumerate(array.tolist()):
        as_int(f"lengths[{n}]", length, 1, POSITION_LIMIT)
    return array


def _costs(plans: list[Plan], form: str, quantity: str) -> Array:
    """Costs of one formulation, NaN for 0: it has no place on the scale."""
    costs = [
        getattr(one, quantity)
        for plan in plans
        for one in plan.formulations
        if one.name == form
    ]
    return np.array([cost or np.nan for cost in costs], float)
