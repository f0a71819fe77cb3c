"""Lines and bars: biases and scores by distance, costs, errors, trainings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from relpos._attention.plan import Plan, plan as plan_of
from relpos._biases import t5_bucket
from relpos._checks import (
    POSITION_LIMIT,
    as_choice,
    as_flag,
    as_int,
    as_integers,
    check_shape,
    kind_of,
    reject_foreign,
)
from relpos._encodings.rotary_scaling import rotary_frequencies
from relpos._text import amount
from relpos.plot import panel
from relpos.plot.panel import Array, Look, Options, Panel

__all__ = ["bias_by_distance", "buckets", "compare", "costs_over_length", "decay"]
__all__ += ["length_generalisation", "loss_curves", "plan_bars", "wavelengths"]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import Formatter

    from relpos._opinion.compare import Comparison
    from relpos._schemes import SchemeName

    Encoding = npt.ArrayLike | Callable[[int, int], npt.ArrayLike]

#: A legend of more names would hide the lines.
_MOST_NAMES = 16
_QUANTITIES = {"bytes": "bytes beyond inputs and output", "flops": "flops"}
_UNITS = {"bytes": "B", "flops": ""}
#: Lines of the formulations; that of relpos is solid.
_STYLES = {"L x L x d": ":", "L x L": "--", "L x R": "-.", "relpos": "-"}
_MOST = 2**16  # distances in one picture, and steps of a mean
_FARTHEST = 2**20  # positions on one axis
_WIDTH = 64  # columns of encodings that are made


def draw_lines(
    lines: Mapping[str, tuple[Array, Array]], look: Look, drawstyle: str = "default"
) -> Axes:
    """Draw lines (x, y), with gaps where y is not finite; limits are those of y."""
    low, high = look.limits
    panel.check_limits(look.limits)
    ax = panel.axes_of(look)
    inks = panel.colours_of(len(lines), look)
    for (name, (x, y)), ink in zip(lines.items(), inks, strict=True):
        # matplotlib leaves a gap at nan and draws a line to infinity.
        seen = np.where(np.isfinite(y), y, np.nan)
        ax.plot(x, seen, label=name, color=ink, drawstyle=drawstyle)
    if low is not None or high is not None:
        ax.set_ylim(low, high)
    # An empty name has no entry, and a legend of no entries is a warning.
    if 0 < len(lines) <= _MOST_NAMES and any(lines):
        ax.legend()
    return ax


def draw_runs(runs_of: Mapping[str, tuple[Array, Array]], look: Look) -> Axes:
    """Draw lines (x, runs): the mean of the runs (runs, n), and a band of several.

    At each x they are those of the runs that are finite there.
    """
    # Masked numbers count neither in the mean nor in the band.
    seen = {n: (x, np.ma.masked_invalid(runs)) for n, (x, runs) in runs_of.items()}
    means = {n: (x, runs.mean(axis=0).filled(np.nan)) for n, (x, runs) in seen.items()}
    ax = draw_lines(means, look)
    # The axes may have lines of an earlier picture before these.
    for (x, runs), line in zip(seen.values(), ax.lines[-len(runs_of) :], strict=True):
        if len(runs) > 1:
            ends = (end(axis=0).filled(np.nan) for end in (runs.min, runs.max))
            ax.fill_between(x, *ends, color=line.get_color(), alpha=0.2)
    return ax


@panel.picture(Options, panel.OF_LINES)
def wavelengths(
    inv_freq: Mapping[str, npt.ArrayLike] | int = _WIDTH,
    *,
    context: int | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Length of a full rotation of each pair of columns, in positions, by name.

    Parameters
    ----------
    inv_freq : int or mapping of str to array_like of real, (dim / 2,), default 64
        Frequencies, as of ``relpos.rotary_frequencies``, by the name in the legend. One
        that is not positive has no wavelength and is left out. A number of columns
        stands for its frequencies at base 10000.
    context : int, optional
        The length of the context, dashed: pairs above it do not rotate once.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.wavelengths(
    ...     {"RoPE": relpos.rotary_frequencies(4)}, ax=Figure().subplots()
    ... )
    >>> [round(x, 2) for x in ax.lines[0].get_ydata().tolist()]
    [6.28, 628.32]
    """
    look = panel.look_of(**options)
    if isinstance(inv_freq, int | np.integer):
        columns = as_int("inv_freq", inv_freq, 2, _FARTHEST)
        if columns % 2:
            raise ValueError(
                f"inv_freq: got {columns}; expected an even number of columns"
            )
        inv_freq = {f"{columns} columns": rotary_frequencies(columns)}
    expected = "of names to frequencies, or a number of columns"
    inv_freq = panel.as_mapping("inv_freq", inv_freq, expected)
    lines = {}
    for name, values in inv_freq.items():
        rates = panel.as_shaped(f"inv_freq[{name!r}]", values, 1, panel.FREQUENCIES)
        # A pair that does not rotate has no wavelength.
        turning = np.where(rates > 0, rates, np.nan)
        lines[name] = np.arange(len(turning)), 2 * np.pi / turning
    length = None if context is None else as_int("context", context, 1, 2**60)
    ax = draw_lines(lines, look)
    if length is not None:
        ax.axhline(length, color="black", linestyle="--", label="context")
        ax.legend()
    ax.set(xlabel="pair of columns", ylabel="positions in a turn", yscale="log")
    return ax


@panel.picture(Options, panel.OF_LINES)
def decay(
    encodings: Mapping[str, Encoding] | None = None,
    reach: int = 256,
    **options: Unpack[Options],
) -> Axes:
    """Draw how the score of two equal tokens falls with their distance, from 1 at 0.

    Parameters
    ----------
    encodings : mapping of str to array_like of real, (dim / 2,), or callable, optional
        The encodings, by their names in the legend. Frequencies, as
        ``relpos.rotary_frequencies`` returns them, rotate tokens whose pairs of columns
        all have one length. The score is then the mean, over the pairs, of the cosine
        of the angle between two tokens. A function ``encode(length, dim)`` returns an
        encoding (length, dim), as ``relpos.sinusoidal`` does, and is called with
        dim = 64. The score is then the product of the last row and an earlier one,
        divided by the product of the last row with itself. Default: the frequencies of
        64 columns at base 10000.
    reach : int, default 256
        The largest distance.

    Raises
    ------
    ValueError
        If the last row of an encoding is 0.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.decay({"half turns": [np.pi]}, 2, ax=Figure().subplots())
    >>> ax.lines[0].get_ydata().tolist()
    [1.0, -1.0, 1.0]
    """
    look = panel.look_of(**options)
    if encodings is None:
        encodings = {f"rotary, {_WIDTH} columns": rotary_frequencies(_WIDTH)}
    encodings = panel.as_mapping("encodings", encodings, "of names to encodings")
    farthest = as_int("reach", reach, 1, _MOST)
    distances = np.arange(farthest + 1)
    lines = {
        name: (distances, _score(f"encodings[{name!r}]", one, distances))
        for name, one in encodings.items()
    }
    ax = draw_lines(lines, look)
    ax.set(xlabel="distance", ylabel="score of equal tokens")
    return ax


def _score(name: str, encoding: Encoding, distances: Array) -> Array:
    if not callable(encoding):
        frequencies = panel.as_shaped(name, encoding, 1, panel.FREQUENCIES)
        # Tokens of one length in each pair: their product is the mean of the cosines.
        return np.asarray(np.cos(np.outer(distances, frequencies)).mean(axis=1))
    shape = len(distances), _WIDTH
    expected = f"an encoding, {shape}"
    rows = panel.as_shaped(f"{name}'s result", encoding(*shape), 2, expected)
    check_shape(f"{name}'s result", rows, rows.shape == shape, expected)
    # From the last row backwards, so that entry n is at a distance of n.
    products = rows[::-1] @ rows[-1]
    if not products[0]:
        raise ValueError(f"{name}'s result: got a last row of 0; expected any other")
    return np.asarray(products / products[0])


@panel.picture(Options, panel.OF_LINES)
def bias_by_distance(
    bias: npt.ArrayLike,
    *,
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
    buckets: npt.ArrayLike | None = None,
    min_relative_position: int | None = None,
    **options: Unpack[Options],
) -> Axes:
    """Bias by relative position, a line for each head or for several queries.

    Parameters
    ----------
    bias : array_like of real, (H, R) or (H, Lq, Lk)
        A row for each head, as ``relpos.t5_bias`` makes it; or the bias of every pair,
        as ``relpos.fire_bias``. Numbers that are not finite are left out.
    heads : sequence of int, optional
        The heads to draw. Default: all heads; for a bias of pairs, the first.
    queries : sequence of int, optional
        The queries to draw of a bias of pairs. Default: the first, the middle and the
        last.
    buckets : array_like of int, (N,), optional
        The column of `bias` for each relative position, as in ``relpos.attention``.
    min_relative_position : int, optional
        Relative position of the first column, or of the first of `buckets`; by default
        0 is in the middle.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> bias = relpos.alibi_bias(2, 3)
    >>> ax = relpos.plot.bias_by_distance(bias, ax=Figure().subplots())
    >>> ax.lines[0].get_xdata().tolist()
    [-2, -1, 0, 1, 2]
    """
    array = panel.as_reals("bias", bias)
    look = panel.look_of(**options)
    fits = array.ndim in (2, 3) and array.size
    check_shape("bias", array, fits, "(H, R) or (H, Lq, Lk)")
    others: dict[str, object] = {"queries": queries}
    # Arguments of one kind of bias are refused with the other.
    if array.ndim == 3:
        others = {"buckets": buckets, "min_relative_position": min_relative_position}
    for name, value in others.items():
        if value is not None:
            raise ValueError(
                f"{name}: given with a bias of shape {array.shape}; expected it with "
                f"{'(H, R)' if array.ndim == 3 else '(H, Lq, Lk)'} alone"
            )
    chosen = _chosen("heads", heads, len(array))
    if array.ndim == 3:
        lines = _of_queries(array, [0] if heads is None else chosen, queries)
    else:
        if buckets is not None:
            rows = as_integers("buckets", buckets)
            expected = f"(N,), each below {array.shape[1]}"
            check_shape("buckets", rows, _within(rows, array.shape[1]), expected)
            array = array[:, rows]
        count = array.shape[1]
        # Without a first position the middle column is 0.
        low = -(count // 2)
        if min_relative_position is not None:
            name, given = "min_relative_position", min_relative_position
            low = as_int(name, given, -_FARTHEST, _FARTHEST)
        elif count % 2 == 0:
            raise ValueError(
                f"{'bias' if buckets is None else 'buckets'}: got {count} relative "
                "positions; to be centred on 0 it needs an odd number (or pass "
                "min_relative_position, that of the first)"
            )
        places = np.arange(low, low + count)
        lines = {f"head {h}": (places, array[h]) for h in chosen}
    ax = draw_lines(lines, look, "steps-mid" if buckets is not None else "default")
    ax.set(xlabel="relative position j - i", ylabel="bias")
    return ax


def _within(numbers: Array, count: int) -> bool:
    some = numbers.ndim == 1 and numbers.size
    return bool(some and numbers.min() >= 0 and numbers.max() < count)


def _chosen(name: str, numbers: Sequence[int] | None, count: int) -> list[int]:
    if numbers is None:
        return [*range(count)]
    array = as_integers(name, numbers)
    if not _within(array, count):
        raise ValueError(
            f"{name}: got {array.tolist()}; expected some from 0 to {count - 1}"
        )
    return [int(n) for n in array]


def _of_queries(
    array: Array, heads: list[int], queries: Sequence[int] | None
) -> dict[str, tuple[Array, Array]]:
    """Return a line for each of the heads and queries of the bias of pairs."""
    _, rows, columns = array.shape
    usual = sorted({0, rows // 2, rows - 1})
    chosen = usual if queries is None else _chosen("queries", queries, rows)
    lines: dict[str, tuple[Any, Array]] = {}
    for h in heads:
        for i in chosen:
            name = f"query {i}" if len(heads) == 1 else f"head {h}, query {i}"
            # Key minus query, as in the bias by distance.
            lines[name] = (np.arange(columns) - i, array[h, i])
    return lines


@panel.picture(Panel, panel.OF_LINES)
def buckets(
    bucket: Callable[[Array], npt.ArrayLike] = t5_bucket,
    reach: int = 140,
    **options: Unpack[Panel],
) -> Axes:
    """Bucket of each relative position, as steps.

    Parameters
    ----------
    bucket : callable, optional
        ``bucket(relative_positions)`` returns integers; ``relpos.t5_bucket`` by
        default.
    reach : int, default 140
        Distances go from -reach to reach.
    cmap : str or Colormap, optional
        Its first colour is that of the line.

    Examples
    --------
    >>> import relpos
    >>> from matplotlib.figure import Figure
    >>> ax = relpos.plot.buckets(relpos.t5_bucket, 200, ax=Figure().subplots())
    >>> ax.get_title()
    '31 buckets'
    """
    if not callable(bucket):
        raise TypeError(f"bucket: got {kind_of(bucket)}; expected a callable")
    farthest = as_int("reach", reach, 1, _FARTHEST)
    look = panel.look_of(**options)
    places = np.arange(-farthest, farthest + 1)
    buckets = as_integers("bucket's result", bucket(places))
    expected = places.shape
    check_shape("bucket's result", buckets, buckets.shape == expected, expected)
    # The title says how many buckets the distances use, if the caller has none.
    if look.title is None:
        look = look._replace(title=amount(len(np.unique(buckets)), "bucket"))
    ax = draw_lines({"": (places, buckets)}, look, "steps-mid")
    ax.set(xlabel="relative position j - i", ylabel="bucket")
    return ax


def with_prefix(unit: str) -> Formatter:
    """Return a formatter of numbers as 3.2 k, 3.2 M, with the unit after it."""
    from matplotlib.ticker import EngFormatter

    return EngFormatter(unit, sep=" ")


@panel.picture()
def compare(comparison: Comparison, **options: Unpack[Options]) -> Axes:
    """Relative errors of a comparison: red ones differ, dashed is the rounding limit.

    Noise, nan, padding, and errors that its dtype cannot show are grey. The bar of an
    infinite error is longer than all others.

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
    look = panel.look_of(**options)
    # A logarithmic axis has no end at or below 0.
    panel.check_limits(look.limits, above=0.0)
    inks = dict(zip(("same", "differs"), panel.colours_of(2, look), strict=True))
    colors = [inks.get(row.verdict, "lightgrey") for row in rows]
    ax = panel.axes_of(look)
    sizes = [max(least, row.relative) for row in rows]  # an exact result has a bar too
    # An infinite error gets a bar that ends beyond all others.
    beyond = 10 * max([1.0, *(size for size in sizes if size < np.inf)])
    sizes = [min(size, beyond) for size in sizes]
    ax.barh([row.name for row in rows], sizes, color=colors, log=True)
    ax.axvline(comparison.limit, color="black", linestyle="--")
    ax.set(xlabel="error relative to the largest entry")
    ax.set_xlim(*look.limits)
    ax.invert_yaxis()
    return ax


@panel.picture()
def plan_bars(
    plan: Plan, *, quantity: str = "bytes", **options: Unpack[Options]
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
    forms = panel.as_result("plan", plan, Plan, "plan").formulations
    chosen = as_choice("quantity", quantity, _QUANTITIES)
    look = panel.look_of(**options)
    panel.check_limits(look.limits, above=0.0)
    names = [form.name for form in forms]
    sizes = [getattr(form, chosen) for form in forms]
    other, own = panel.colours_of(2, look)
    ax = panel.axes_of(look)
    # relpos is the last formulation of a plan.
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


@panel.picture(Options, panel.OF_LINES)
def costs_over_length(
    schemes: SchemeName | Sequence[SchemeName],
    lengths: npt.ArrayLike | None = None,
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
    **options: Unpack[Options],
) -> Axes:
    """Cost of schemes by the length of the sequence, both axes logarithmic.

    A colour is a scheme, and a style of line a formulation: solid that of relpos,
    dashed "L x L", dash-dotted "L x R", dotted "L x L x d".

    Parameters
    ----------
    schemes : str or sequence of str
        The names of schemes that ``relpos.plan`` takes.
    lengths : array_like of int, (n,), optional
        Queries, and as many keys. Default: the powers of two from 128 to 8192.
    quantity : {"bytes", "flops"}, default "bytes"
        Bytes beyond inputs and output, or flops of the matrix products.
    formulations : sequence of str, default ("L x L", "relpos")
        The formulations of ``relpos.plan`` to draw. A scheme that lacks one has no line
        for it.
    batch, heads, head_dim : int, default 1, 8, 64
        The other sizes.
    is_causal, dtype, max_relative_position, num_threads : optional
        The arguments of ``relpos.plan`` with these names.
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
    if lengths is None:
        lengths = 2 ** np.arange(7, 14)
    places, look = _lengths(lengths), panel.look_of(**options)
    panel.check_limits(look.limits, above=0.0)
    settings: dict[str, Any] = {
        "is_causal": is_causal,
        "dtype": dtype,
        "max_relative_position": max_relative_position,
        "num_threads": num_threads,
    }
    costs_of: dict[tuple[str, str], tuple[Array, Array]] = {}
    for name in names:
        # A plan computes the costs and runs no attention.
        plans = [
            plan_of(batch, heads, n, n, head_dim, scheme=name, **settings)
            for n in places.tolist()
        ]
        costs = [{x.name: getattr(x, chosen) for x in p.formulations} for p in plans]
        for form in forms:
            # A scheme that lacks a formulation lacks it at every length.
            if form in costs[0]:
                # A cost of 0 has no place on a logarithmic axis.
                sizes = [each[form] or np.nan for each in costs]
                costs_of[name, form] = places, np.array(sizes, float)
    if not costs_of:
        raise ValueError(f"formulations: got {forms}; expected some that {names} have")
    ax = draw_lines({", ".join(key): line for key, line in costs_of.items()}, look)
    # The colours say the scheme, and the styles of lines the formulation.
    inks = dict(zip(names, panel.colours_of(len(names), look), strict=True))
    widths = {n: 1.5 + min(left, 4) for left, n in enumerate(reversed(names))}
    for (name, form), line in zip(costs_of, ax.lines[-len(costs_of) :], strict=True):
        line.set(color=inks[name], linestyle=_STYLES[form], marker=".")
        line.set_linewidth(widths[name])  # costs are often equal: none hides another
    if ax.get_legend() is not None:
        ax.legend()  # in the styles that the lines have now
    ax.set(xscale="log", yscale="log", xlabel="length", ylabel=_QUANTITIES[chosen])
    ax.yaxis.set_major_formatter(with_prefix(_UNITS[chosen]))
    return ax


def _names(name: str, names: object) -> list[Any]:
    reject_foreign(name, names)
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list | tuple) or not all(
        isinstance(one, str) for one in listed
    ):
        raise TypeError(f"{name}: got {kind_of(names)}; expected names")
    if not listed:
        raise ValueError(f"{name}: got no names; expected some")
    # Names that repeat are one line.
    return [*dict.fromkeys(listed)]


def _lengths(lengths: npt.ArrayLike) -> Array:
    array = as_integers("lengths", lengths)
    check_shape("lengths", array, array.ndim == 1 and array.size, "(n,)")
    for n, length in enumerate(array.tolist()):
        as_int(f"lengths[{n}]", length, 1, POSITION_LIMIT)
    return array


@panel.picture(Options, panel.OF_LINES)
def loss_curves(
    losses: Mapping[str, npt.ArrayLike],
    *,
    smooth: int = 1,
    log: bool = False,
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
    losses = panel.as_mapping("losses", losses, "of names to losses")
    curves = {n: panel.as_reals(f"losses[{n!r}]", x) for n, x in losses.items()}
    for name, values in curves.items():
        fits = values.ndim in (1, 2) and len(np.atleast_2d(values))
        check_shape(f"losses[{name!r}]", values, fits, "(steps,) or (runs, steps)")
    steps, logarithmic = as_int("smooth", smooth, 1, _MOST), as_flag("log", log)
    look = panel.look_of(**options)
    panel.check_limits(look.limits, above=0.0 if logarithmic else None)
    negative = any((values < 0).any() for values in curves.values())
    if look.limits[0] is None and not logarithmic and not negative:
        look = look._replace(limits=(0.0, look.limits[1]))
    # A logarithmic axis has no number up to 0.
    if logarithmic:
        curves = {n: np.where(x > 0, x, np.nan) for n, x in curves.items()}
    runs = {name: np.atleast_2d(values) for name, values in curves.items()}
    lines = {}
    for name, each in runs.items():
        smoothed = np.array([_smoothed(run, steps) for run in each])
        lines[name] = 1 + np.arange(smoothed.shape[1]), smoothed
    ax = draw_runs(lines, look)
    # The losses themselves, pale behind their mean.
    for line, each in zip(ax.lines[-len(runs) :], runs.values(), strict=True):
        if len(each) == 1 and steps > 1:
            seen = np.where(np.isfinite(each[0]), each[0], np.nan)
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
    # Sums of the finite losses and their counts, over the steps up to each one.
    sums = np.convolve(np.where(there, values, 0.0), window)[: len(values)]
    counts = np.convolve(there, window)[: len(values)]
    means = np.full(len(values), np.nan)
    np.divide(sums, counts, where=there, out=means)
    return means


@panel.picture(Options, panel.OF_LINES)
def length_generalisation(
    results: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    trained_at: int | None = None,
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
    results = panel.as_mapping("results", results, "of names to lengths and results")
    runs_of = {n: _runs(f"results[{n!r}]", pair) for n, pair in results.items()}
    look = panel.look_of(**options)
    length = None if trained_at is None else as_int("trained_at", trained_at, 1, 2**60)
    ax = draw_runs(runs_of, look)
    for line in ax.lines[-len(runs_of) :]:
        line.set_marker("o")
    if length is not None:
        ax.axvline(length, color="black", linestyle="--", label="trained")
        ax.legend()
    ax.set(xlabel="length of the test", ylabel="result")
    return ax


def _runs(name: str, pair: object) -> tuple[Array, Array]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        reject_foreign(name, pair)
        raise TypeError(
            f"{name}: got {kind_of(pair)}; expected a tuple, (lengths, results)"
        )
    lengths = panel.as_shaped(f"{name}[0]", pair[0], 1, "one axis, (n,)")
    # One run is a list of one, so that both forms have a mean.
    runs = np.atleast_2d(panel.as_reals(f"{name}[1]", pair[1]))
    if runs.ndim != 2 or runs.shape[1] != len(lengths) or not len(runs):
        raise ValueError(
            f"{name}[1]: got shape {np.shape(pair[1])}; expected ({len(lengths)},) or "
            f"(runs, {len(lengths)})"
        )
    return lengths, runs
