"""The formulas of all other functions in operators of PyTorch, for programs of ONNX.

Results have the dtypes of the operators. Angles are computed in float64, and taken
modulo 2 pi before they are rounded to the dtype of a result. In float32 an angle of
100,000 radians would be off by 0.004.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from relpos.torch._onnx import decomposed
from relpos.torch._tensors import result_dtype

#: Steps of buckets that are this near to an integer are that integer. The operators
#: find edges by comparing integers.
_NEAR = 2.0**-30
#: The largest exponent of the powers of two that numbers are products of.
_MOST = 100


def _computed(*tensors: Tensor | None) -> torch.dtype:
    """Return the dtype in which a function computes: float32 at least."""
    return torch.promote_types(result_dtype(tensors), torch.float32)


def number(value: float, like: Tensor) -> Tensor:
    """Return a number as a tensor of float64, which an exported program has exactly.

    The exporter keeps most numbers in float32. It is exact for integers, and for the
    powers of two that float32 has.
    """
    mantissa, exponent = math.frexp(value)
    whole = torch.full((), int(mantissa * 2**53), dtype=torch.int64, device=like.device)
    result, exponent = whole.double(), exponent - 53
    while exponent:
        step = min(max(exponent, -_MOST), _MOST)
        result, exponent = result * 2.0**step, exponent - step
    return result


def scalar(value: float, like: Tensor) -> Any:
    """Return a number for products with a tensor, exact in the tensor's dtype."""
    return number(value, like) if like.dtype is torch.float64 else value


def _distances(length: int, like: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the distance of each relative position, (2 length - 1,)."""
    return torch.arange(1 - length, length, device=like.device).abs().to(dtype)


# ---- biases ------------------------------------------------------------------------


@decomposed("alibi_bias")
def alibi_bias(slopes: Tensor, length: int) -> Tensor:
    dtype = _computed(slopes)
    bias = -slopes.to(dtype).unsqueeze(-1) * _distances(length, slopes, dtype)
    return bias.to(slopes.dtype)


@decomposed("kerple_bias")
def kerple_bias(r1: Tensor, r2: Tensor, length: int, kind: str) -> Tensor:
    dtype = _computed(r1, r2)
    distance = _distances(length, r1, dtype)
    a, b = r1.to(dtype).unsqueeze(-1), r2.to(dtype).unsqueeze(-1)
    shape = (b * distance).log1p() if kind == "log" else distance**b
    return (-a * shape).to(result_dtype([r1, r2]))


@decomposed("fire_bias")
def fire_bias(
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    c: Tensor,
    threshold: Tensor,
    query_length: int,
    key_length: int | None,
    query_offset: int,
    signed: bool,
    eps: float,
) -> Tensor:
    network = {"w1": w1, "b1": b1, "w2": w2, "b2": b2, "c": c, "threshold": threshold}
    dtype = _computed(*network.values())
    keys = query_length if key_length is None else key_length
    position = torch.arange(query_length, device=w1.device)[:, None] + query_offset
    relative = torch.arange(keys, device=w1.device) - position
    wide = {name: tensor.to(dtype) for name, tensor in network.items()}
    bias = fire_network(relative, position, signed=signed, eps=eps, **wide)
    return bias.to(result_dtype(network.values()))


def fire_network(
    relative: Tensor,
    position: Tensor,
    *,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    c: Tensor | float,
    threshold: Tensor | float,
    signed: bool,
    eps: float,
) -> Tensor:
    """Return FIRE's bias (..., H, Lq, Lk) of relative positions (..., Lq, Lk).

    `position` has those of the queries, (..., Lq, 1).
    """
    far = relative.to(w1.dtype)
    if not isinstance(c, Tensor):
        c = w1.new_ones(()) * scalar(c, w1)
    if not isinstance(threshold, Tensor):
        threshold = w1.new_ones(()) * scalar(threshold, w1)
    nearest = position.to(w1.dtype).maximum(threshold.abs())
    normaliser = (c.abs() * nearest).log1p() + scalar(eps, w1)
    x = (c * far).abs().log1p() / normaliser
    if signed:
        x = -far.sign() * x
    hidden = (x.unsqueeze(-1) * w1.flatten() + b1).relu()
    return (hidden @ w2.mT + b2).movedim(-1, -3)


@decomposed("t5_bias")
def t5_bias(
    weight: Tensor,
    length: int,
    num_buckets: int | None,
    bidirectional: bool,
    max_distance: int,
) -> Tensor:
    relative = torch.arange(1 - length, length, device=weight.device)
    rows = t5_bucket(relative, bidirectional, int(weight.shape[0]), max_distance)
    return weight.mT.index_select(1, rows)


@decomposed("t5_bucket")
def t5_bucket(
    relative_position: Tensor, bidirectional: bool, num_buckets: int, max_distance: int
) -> Tensor:
    side = num_buckets // 2 if bidirectional else num_buckets
    exact = side // 2
    relative = relative_position.long()
    distance = relative.abs() if bidirectional else (-relative).clamp(min=0)
    steps = (side - exact) * _logarithms(distance, exact, int(max_distance))
    far = exact + (steps + _NEAR).floor().long()
    bucket = torch.where(distance < exact, distance, far.clamp(max=side - 1))
    return bucket + side * (relative > 0).long() if bidirectional else bucket


@decomposed("deberta_bucket")
def deberta_bucket(
    relative_position: Tensor, bucket_size: int, max_position: int
) -> Tensor:
    relative = relative_position.long()
    middle = bucket_size // 2
    distance = relative.abs()
    steps = (middle - 1) * _logarithms(distance, middle, int(max_position) - 1)
    far = middle + (steps - _NEAR).ceil().long()
    return relative.sign() * torch.where(distance <= middle, distance, far)


def _logarithms(distance: Tensor, first: int, last: int) -> Tensor:
    """Return where distances lie from first (0) to last (1) in logarithms."""
    far = distance.clamp(min=first).double() / first
    return far.log() / number(math.log(last / first), far)


@decomposed("segment_ranges")
def segment_ranges(query_segments: Tensor, key_segments: Tensor | None) -> Tensor:
    query = query_segments.unsqueeze(-1)
    key = (query_segments if key_segments is None else key_segments).unsqueeze(-2)
    return torch.stack([(key < query).sum(-1), (key <= query).sum(-1)], -1)


# ---- encodings ---------------------------------------------------------------------


def _reduced(angles: Tensor, dtype: torch.dtype) -> Tensor:
    """Return angles of float64 modulo 2 pi, in a dtype."""
    period = number(2 * math.pi, angles)
    return (angles - period * (angles / period).floor()).to(dtype)


def _frequencies(count: int, dim: int, base: float, like: Tensor) -> Tensor:
    exponents = -2.0 * torch.arange(count, device=like.device).double() / dim
    return number(base, like) ** exponents


@decomposed("sinusoidal")
def sinusoidal(
    positions: Tensor,
    inv_freq: Tensor | None,
    dim: int,
    base: float,
    layout: str,
    dtype: torch.dtype,
) -> Tensor:
    is_interleaved = layout == "interleaved"
    if inv_freq is None:
        count = (dim + 1) // 2 if is_interleaved else dim // 2
        inv_freq = _frequencies(count, dim, base, positions)
    angles = positions.double().unsqueeze(-1) * inv_freq.double()
    wide = torch.promote_types(dtype, torch.float32)
    angles = _reduced(angles, wide)
    waves = [angles.sin(), angles.cos()]
    if is_interleaved:
        return torch.stack(waves, -1).flatten(-2)[..., :dim].to(dtype)
    encoding = torch.cat(waves, -1)
    # an odd number of columns ends in one of zeros
    missing = dim - encoding.shape[-1]
    return functional.pad(encoding, (0, missing)).to(dtype)


@decomposed("learned")
def learned(table: Tensor, positions: Tensor) -> Tensor:
    rows = positions.long().flatten()
    # a negative row would be read from the end: it becomes one that is not there
    rows = rows.masked_fill(rows < 0, table.shape[-2])
    shape = *table.shape[:-2], *positions.shape, table.shape[-1]
    return table.index_select(-2, rows).reshape(shape)


@decomposed("conv_encoding")
def conv_encoding(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    grid: Sequence[int] | None,
    is_causal: bool,
) -> Tensor:
    dtype = _computed(x, weight, bias)
    tokens = x.to(dtype)
    seen = None if mask is None else mask.unsqueeze(-1) != 0
    if seen is not None:  # padding is not read by its neighbours
        tokens = tokens.masked_fill(~seen, 0.0)
    length, width = x.shape[-2:]
    cells = [length] if grid is None else [*grid]
    # a kernel of torch.nn has an axis of length 1 behind the channels
    sizes = weight.shape[-len(cells) :]
    padding = []
    for size in reversed(sizes):  # the last axis first
        before = size - 1 if is_causal else size // 2
        padding += [before, size - 1 - before]
    image = tokens.reshape(-1, length, width).mT.reshape(-1, width, *cells)
    convolve = [functional.conv1d, functional.conv2d, functional.conv3d]
    added = convolve[len(sizes) - 1](
        functional.pad(image, padding),
        weight.to(dtype).reshape(width, 1, *sizes),
        None if bias is None else bias.to(dtype),
        groups=width,
    )
    added = added.flatten(2).mT.reshape(x.shape)
    if seen is not None:
        added = added.masked_fill(~seen, 0.0)
    return (x.to(dtype) + added).to(result_dtype([x, weight, bias]))


@decomposed("apply_rotary")
def apply_rotary(
    x: Tensor,
    positions: Tensor | None,
    inv_freq: Tensor | None,
    angles: Tensor | None,
    magnitude: Tensor | None,
    base: float,
    interleaved: bool,
    rotary_dim: int | None,
    offset: float,
    inverse: bool,
) -> Tensor:
    columns = x.shape[-1] if rotary_dim is None else rotary_dim
    if angles is None:
        if positions is None:
            positions = torch.arange(x.shape[-2], device=x.device)
        if inv_freq is None:
            inv_freq = _frequencies(columns // 2, columns, base, x)
        if isinstance(offset, float):
            where = positions.double() + number(offset, x)
        else:
            where = (positions + offset).double()
        angles = where.unsqueeze(-1) * inv_freq.double()
    dtype = _computed(x)
    reduced = _reduced(angles.double(), dtype)
    cos, sin = reduced.cos(), reduced.sin()
    if inverse:
        sin = -sin
    if magnitude is not None:
        cos, sin = cos * magnitude.to(dtype), sin * magnitude.to(dtype)
    wide = x.to(dtype)
    pairs = wide[..., :columns]
    if interleaved:
        a, b = pairs.unflatten(-1, (-1, 2)).unbind(-1)
    else:
        a, b = pairs.chunk(2, -1)
    rotated = [a * cos - b * sin, b * cos + a * sin]
    both = (
        torch.stack(rotated, -1).flatten(-2) if interleaved else torch.cat(rotated, -1)
    )
    return torch.cat([both, wide[..., columns:]], -1).to(x.dtype)


@decomposed("xpos_magnitude")
def xpos_magnitude(
    positions: Tensor, dim: int, scale_base: float, inverse: bool
) -> Tensor:
    # (2 c + 0.4 dim) / (1.4 dim) in integers
    columns = 10 * torch.arange(dim // 2, device=positions.device) + 2 * dim
    logarithms = (columns.double() / (7 * dim)).log() / number(scale_base, positions)
    exponents = positions.double().unsqueeze(-1) * logarithms
    return (-exponents if inverse else exponents).exp()


@decomposed("mrope_angles")
def mrope_angles(
    positions: Tensor, inv_freq: Tensor, sections: Sequence[int], interleaved: bool
) -> Tensor:
    pairs = inv_freq.shape[0]
    if interleaved:
        axes = [c % 3 if c < 3 * sections[c % 3] else 0 for c in range(pairs)]
    else:
        axes = [run % 3 for run, count in enumerate(sections) for _ in range(count)]
    of_axes = positions.double().unbind()
    return torch.stack([of_axes[axis] for axis in axes], -1) * inv_freq.double()


@decomposed("axial_angles")
def axial_angles(coordinates: Tensor, inv_freq: Tensor) -> Tensor:
    return (coordinates.double().unsqueeze(-1) * inv_freq.double()).flatten(-2)


# ---- scores by relative position ---------------------------------------------------


@decomposed("rel_shift")
def rel_shift(x: Tensor) -> Tensor:
    queries = x.shape[-2]
    # rows of one number more are read as rows of the old length
    flat = functional.pad(x, (1, 0)).flatten(-2)
    return flat[..., queries:].reshape(x.shape)


@decomposed("skew")
def skew(x: Tensor, is_causal: bool) -> Tensor:
    if is_causal:
        return rel_shift(x)
    queries, positions = x.shape[-2:]
    i = torch.arange(queries, device=x.device)[:, None]
    j = torch.arange(positions - queries + 1, device=x.device)
    columns = queries - 1 - i + j
    return x.gather(-1, columns.expand(*x.shape[:-1], columns.shape[-1]))
