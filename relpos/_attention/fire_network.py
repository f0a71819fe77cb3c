"""FIRE's parameters checked, its scalar x, and its network as straight lines in x.

For a query at position p and a key at r = key minus query from it,

    x     = U(r) g(p),  U = s log(|c r| + 1),  g = 1 / (log(|c| m + 1) + eps)
    b_h   = w2_h relu(w1 x + b1) + b2_h

with m = max(p, |threshold|) and s = 1, or -sign(r) where `signed`. The network has one
scalar input, so b_h is a line between neighbouring knots -b1_k / w1_k, which all heads,
queries and keys share.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict

import numpy as np

from relpos._attention.operands import Sizes
from relpos._checks import (
    Array,
    as_flag,
    as_floating,
    as_real,
    check_match,
    check_shape,
    quiet,
    rounded_twice,
)

#: FIRE's parameters, in the order of the arguments.
NAMES = ("w1", "b1", "w2", "b2", "c", "threshold")

_TINY = np.finfo(np.float64).tiny


class Fire(NamedTuple):
    """FIRE's parameters: `inputs` as given, by name, and the network in float64."""

    inputs: dict[str, Array]
    weak: frozenset[str]  # Python numbers: they take part in no promotion of dtypes
    w1: Array  # (W,)
    b1: Array  # (W,)
    w2: Array  # (H, W)
    b2: Array  # (H,)
    c: Array  # ()
    threshold: Array  # ()
    signed: bool
    eps: float
    first_key: int = 0  # where the keys begin, if they are a block of a sequence
    lines: "Lines | None" = None  # as they are among more heads, if there are
    begins: Array | None = None  # (Lq,): of each query's document; None: all 0

    @property
    def typed(self) -> dict[str, Array]:
        """The parameters whose dtypes count."""
        return {n: x for n, x in self.inputs.items() if n not in self.weak}


def fire_of_call(call: Mapping[str, Any]) -> Fire:
    """Check FIRE's arguments among those of a call of `fire_attention`."""
    parameters = {name: call[name] for name in NAMES}
    return as_fire(**parameters, signed=call["signed"], eps=call["eps"])


def as_fire(
    w1: object,
    b1: object,
    w2: object,
    b2: object,
    c: object,
    threshold: object,
    *,
    signed: object,
    eps: object,
) -> Fire:
    """Check FIRE's arguments; w2 has the number of heads."""
    inputs = {
        "w1": as_floating("w1", w1),
        "b1": as_floating("b1", b1),
        "w2": as_floating("w2", w2),
        "b2": as_floating("b2", b2),
        "c": _number("c", c),
        "threshold": _number("threshold", threshold),
    }
    _check_shapes(inputs)
    added = as_real("eps", eps)
    if added < 0:
        raise ValueError(f"eps: got {added}; expected 0 or more")
    numbers = {"c": c, "threshold": threshold}
    weak = frozenset(n for n, x in numbers.items() if type(x) in (int, float))
    exact = {name: np.array(x, np.float64) for name, x in inputs.items()}
    return Fire(
        inputs,
        weak,
        w1=exact["w1"].reshape(-1),  # a column (W, 1) is taken as (W,)
        b1=exact["b1"],
        w2=exact["w2"],
        b2=exact["b2"],
        c=exact["c"],
        threshold=exact["threshold"],
        signed=as_flag("signed", signed),
        eps=added,
    )


@quiet
def part_of_fire(fire: Fire, heads: slice, first_key: int) -> Fire:
    """Some of the heads, for keys from `first_key`; their lines have the same bits."""
    lines = lines_of(fire)
    return fire._replace(
        inputs=fire.inputs | {name: fire.inputs[name][heads] for name in ("w2", "b2")},
        w2=fire.w2[heads],
        b2=fire.b2[heads],
        first_key=first_key,
        lines=lines._replace(
            slopes=lines.slopes[heads], intercepts=lines.intercepts[heads]
        ),
    )


def _number(name: str, value: object) -> Array:
    if type(value) in (int, float):
        return np.array(as_real(name, value))
    array = as_floating(name, value)
    check_shape(name, array, not array.ndim, "a number")
    return array


def _check_shapes(inputs: dict[str, Array]) -> None:
    w1, w2 = inputs["w1"].shape, inputs["w2"].shape
    fits = w1 and w1[1:] in ((), (1,))
    check_shape("w1", inputs["w1"], fits, "(W,) or (W, 1)")
    check_match("b1", inputs["b1"], "w1", w1[:1])
    if len(w2) != 2 or w2[1] != w1[0]:
        raise ValueError(f"w2: shape {w2} does not match w1's; expected (H, {w1[0]})")
    check_match("b2", inputs["b2"], "w2", w2[:1])


# ---- the scalar x: a factor of the offset and one of the query ----------------------


def offset_factor(fire: Fire, relative: Array) -> Array:
    """U of each relative position (key minus query)."""
    sign = -np.sign(relative) if fire.signed else 1.0
    factor: Array = sign * np.log1p(np.abs(fire.c * relative))
    return factor


def offset_slope(fire: Fire, relative: Array) -> Array:
    """dU/dc."""
    sign = -np.sign(relative) if fire.signed else 1.0
    far = np.abs(relative)
    slope: Array = sign * np.sign(fire.c) * far / (1.0 + abs(fire.c) * far)
    return slope


def query_factor(fire: Fire, positions: Array) -> Array:
    """g of each query position."""
    reach = np.maximum(positions, abs(fire.threshold))
    factor: Array = 1.0 / (np.log1p(abs(fire.c) * reach) + fire.eps)
    return factor


def query_slopes(fire: Fire, positions: Array) -> Array:
    """dg/dc and dg/dthreshold, (..., 2); at a tie the maximum's slope is shared."""
    limit = abs(fire.threshold)
    reach = np.maximum(positions, limit)
    chosen = (np.sign(limit - positions) + 1.0) / 2 * np.sign(fire.threshold)
    shrink = -(query_factor(fire, positions) ** 2) / (1.0 + abs(fire.c) * reach)
    by_c = np.where(reach > 0, shrink * np.sign(fire.c) * reach, 0.0)
    return np.stack([by_c, shrink * abs(fire.c) * chosen], axis=-1)


# ---- operands of the kernels -------------------------------------------------------


def _places(fire: Fire, offsets: Array, sizes: Sizes) -> tuple[Array, Array]:
    """Relative positions of the entries j - i + Lq, and the queries' positions.

    One row for all batch items where they have one offset, which counts from the keys
    at hand; positions count from the first key of the whole, or of the query's own
    document.
    """
    if not offsets.size:  # of no batch items
        offsets = np.zeros((), np.int64)
    elif offsets.ndim and (offsets == offsets.flat[0]).all():
        offsets = offsets.reshape(-1)[0]
    relative = np.arange(sizes.Lq + sizes.Lk) - sizes.Lq - offsets[..., None]
    positions = np.arange(sizes.Lq) + offsets[..., None] + fire.first_key
    return relative, positions if fire.begins is None else positions - fire.begins


class Operands(TypedDict):
    """Operands of the kernel for the bias."""

    fire_offsets: Array  # U of each offset j - i + Lq, of all items or of each
    fire_queries: Array  # g of each query
    fire_lines: Array  # (H, S, 3): start, slope and intercept of each range
    fire_signed: int


class SlopeOperands(TypedDict):
    """Further operands of the kernel for the gradients."""

    grad_fire: Array  # (H, S + 1, 2): the sums that it adds to
    fire_offset_slopes: Array  # dU/dc
    fire_query_slopes: Array  # dg/dc and dg/dthreshold


@quiet  # parameters that are NaN or too large show in the result
def operands(fire: Fire, offsets: Array, sizes: Sizes) -> Operands:
    """Return the operands for the bias; offsets (...) broadcast to the batch."""
    relative, positions = _places(fire, offsets, sizes)
    lines = lines_of(fire)
    # The three numbers of a range lie together, as the kernel reads them together.
    ranges = np.empty((*lines.slopes.shape, 3))
    ranges[..., 0] = lines.starts
    ranges[..., 1] = lines.slopes
    ranges[..., 2] = lines.intercepts
    return {
        "fire_offsets": offset_factor(fire, relative),
        "fire_queries": query_factor(fire, positions),
        "fire_lines": ranges,
        "fire_signed": int(fire.signed),
    }


@quiet
def slope_operands(fire: Fire, offsets: Array, sizes: Sizes) -> SlopeOperands:
    """Return the further operands of the backward, with zeros for its sums."""
    relative, positions = _places(fire, offsets, sizes)
    heads, ranges = lines_of(fire).slopes.shape
    return {
        "grad_fire": np.zeros((heads, ranges + 1, 2)),
        "fire_offset_slopes": offset_slope(fire, relative),
        "fire_query_slopes": query_slopes(fire, positions),
    }


@quiet
def gradients(fire: Fire, sums: Array) -> dict[str, Array]:
    """Gradients of the parameters from the kernel's grad_fire (H, S + 1, 2)."""
    # Sums of dS and of dS x by range; the last row is of c and of the threshold.
    plain, by_x = sums[:, :-1, 0], sums[:, :-1, 1]
    active = lines_of(fire).active
    of_unit, of_unit_x = plain @ active, by_x @ active  # (H, W)
    c, threshold = sums[:, -1].sum(axis=0)
    exact = {
        "w1": (fire.w2 * of_unit_x).sum(0),
        "b1": (fire.w2 * of_unit).sum(0),
        "w2": fire.w1 * of_unit_x + fire.b1 * of_unit,
        "b2": plain.sum(1),
        "c": c,
        "threshold": threshold,
    }
    return like_inputs(fire, exact)


# ---- the network: lines between knots -----------------------------------------------


class Lines(NamedTuple):
    """S ranges of x; in range n, x >= starts[n], heads have slopes and intercepts."""

    starts: Array  # (S,), ascending from -inf
    active: Array  # (S, W): the units that are not cut off
    slopes: Array  # (H, S)
    intercepts: Array  # (H, S)


def lines_of(fire: Fire) -> Lines:
    """Ranges of x on which no unit switches, and the line of each head there.

    A knot at 0 gets a range of its own: all pairs of distance 0 sit on it, and a unit
    has no gradient where its input is 0.
    """
    if fire.lines is not None:
        return fire.lines
    w1, b1 = fire.w1, fire.b1
    # A unit w1 x + b1 switches at its knot. With w1 = 0 it is on for all x or for none.
    knots = np.where(w1 == 0, np.where(b1 > 0, -np.inf, np.inf), -b1 / w1)
    # A unit is off where it is 0: one that rises is on from the next number after its
    # knot, and one that falls, whose range ends before the knot, needs no change.
    rises = (w1 > 0) & (knots != 0) & np.isfinite(knots)
    knots = np.where(rises, np.nextafter(knots, np.inf), knots)
    cuts = {*knots[np.isfinite(knots)].tolist()}  # np.unique would load numpy.ma
    if 0.0 in cuts:  # the range of 0 alone ends at the least number above it
        cuts.add(_TINY)
    least = -np.inf if fire.signed else 0.0  # of x
    starts = np.array([least, *sorted(cut for cut in cuts if cut > least)])
    start = starts[:, None]
    is_reached = start >= knots
    is_on = is_reached & ((start > knots) | (knots != 0))
    active = np.where(w1 < 0, ~is_reached, is_on)
    # Units of NaN stay on in every range, so that NaN shows in the result.
    active |= np.isnan(b1) | np.isnan(knots) | (np.isinf(w1) & (start == 0))
    starts[0] = -np.inf
    slopes = fire.w2 @ np.where(active, w1, 0.0).T
    intercepts = fire.w2 @ np.where(active, b1, 0.0).T + fire.b2[:, None]
    return Lines(starts, active, slopes, intercepts)


def like_inputs(fire: Fire, gradients: dict[str, Array]) -> dict[str, Array]:
    """Give each gradient the shape and dtype of its parameter."""
    rounded = {}
    for name, gradient in gradients.items():
        parameter = fire.inputs[name]
        dtype = parameter.dtype.newbyteorder("=")
        array = rounded_twice(np.asarray(gradient), dtype)
        rounded[name] = array.reshape(parameter.shape)
    return rounded
