"""What formulations of a scheme cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relpos._attention.plan import Plan
from relpos._checks import as_choice, kind_of, reject_foreign
from relpos.plot.lines import colours_of
from relpos.plot.panel import axes_of, look_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap


def plan_bars(
    plan: Plan,
    *,
    quantity: str = "bytes",
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
        If `quantity` or `cmap` is none that there is.

    See Also
    --------
    relpos.plan : Makes it.

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
    chosen = as_choice("quantity", quantity, ("bytes", "flops"))
    look = look_of(None, None, cmap, title)
    names = [form.name for form in plan.formulations]
    sizes = [getattr(form, chosen) for form in plan.formulations]
    other, own = colours_of(2, look)
    ax = axes_of(ax)
    colours = [*[other] * (len(names) - 1), own]
    # an edge of 0 bytes has no place on the scale
    bars = ax.barh(names, [max(size, 1) for size in sizes], color=colours, log=True)
    ax.bar_label(bars, [f"{size:.3g}" for size in sizes], padding=3)
    ax.margins(x=0.15)
    ax.invert_yaxis()
    wanted = "bytes beyond inputs and output" if chosen == "bytes" else chosen
    ax.set(xlabel=wanted)
    if look.title is not None:
        ax.set_title(look.title)
    return ax
