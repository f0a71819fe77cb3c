"""Pairs (i, j), the rows of tables that they use, and the softmax over them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from relpos.reference._typing import ArrayLike, Bools, Floats, Ints, Rng
from relpos.reference._xp import as_float64, constant, namespace
from relpos.reference.dropout import dropout_keep, random_seed

__all__ = ["AttentionOutput"]


class AttentionOutput(NamedTuple):
    """Results of an attention that is asked for more than `out`."""

    out: Floats
    lse: Floats | None = None
    weights: Floats | None = None


#: The latter where more than `out` was asked for.
Result = Floats | AttentionOutput


def default_scale(scale: float | None, query: Floats) -> float:
    """1/√D unless given."""
    return float(1.0 / np.sqrt(query.shape[-1])) if scale is None else scale


def stay_finite(x: Floats) -> Floats:
    """Two finite masks or biases added to a score must not make -inf: ±MAX/4."""
    xp, largest = namespace(x), np.finfo(np.float64).max / 4
    return xp.where(xp.isfinite(x), xp.clip(x, -largest, largest), x)


def offset_of(query_offset: ArrayLike | None, query: Floats, key: Floats) -> ArrayLike:
    """o as given; by default 0, where query and key have the same length."""
    if query_offset is None and query.shape[-2] != key.shape[-2]:
        raise ValueError(
            f"query_offset: lengths {query.shape[-2]} and {key.shape[-2]} differ, so "
            "the position of query 0 beside key 0 must be given"
        )
    return 0 if query_offset is None else query_offset


def relative(query: Floats, key: Floats, query_offset: ArrayLike = 0) -> Ints:
    """r(i, j) = j - (i + o), (..., 1, Lq, Lk); o is one number or one per item."""
    xp = namespace(query)
    i, j = xp.arange(query.shape[-2])[:, None], xp.arange(key.shape[-2])[None, :]
    o = xp.asarray(query_offset, dtype=xp.int64)[..., None, None, None]
    return j - (i + o)


def allowed(
    r: Ints,
    is_causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    key_ranges: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
) -> Bools:
    """True where positions alone make key j visible to query i, (..., 1, Lq, Lk)."""
    xp = namespace(r)
    left, right = (None, None) if window is None else window
    see = xp.ones(r.shape, dtype=xp.bool_)
    j = xp.arange(r.shape[-1])
    if is_causal:
        see = see & (r <= 0)
    if left is not None:
        see = see & (r >= -left)
    if right is not None:
        see = see & (r <= right)
    if key_ranges is not None:
        begin, end = xp.moveaxis(xp.asarray(key_ranges)[..., None, :, :], -1, 0)
        see = see & (j >= begin[..., None]) & (j < end[..., None])
    if key_lengths is not None:
        see = see & (j < xp.asarray(key_lengths)[..., None, None, None])
    return see


def table_rows(
    r: Ints,
    rows: int,
    first: int | None = None,
    buckets: Any = None,
    beyond: str = "clip",
    see: Bools | bool = True,
) -> tuple[Ints, Bools]:
    """l(i, j), and where there is one.

    Row t belongs to relative position first + t; by default the middle row belongs to
    0. With buckets, relative position first + t uses row buckets[t] instead. beyond:
    "clip" takes the end rows, "zero" gives the pair no position term, "raise" is an
    IndexError if such a pair is visible.
    """
    xp = namespace(r)
    count = rows if buckets is None else len(buckets)
    if first is None:
        if count % 2 == 0:
            raise ValueError(f"{count} rows have no middle: give min_relative_position")
        first = -((count - 1) // 2)
    t = r - first
    inside = (t >= 0) & (t < count)
    if beyond == "raise" and xp.any(~inside & see):
        raise IndexError(f"a visible pair lies outside the {count} rows of a table")
    if beyond == "clip":
        inside = xp.ones_like(inside)
    t = xp.clip(t, 0, count - 1)
    return (t if buckets is None else xp.asarray(buckets, dtype=xp.int64)[t]), inside


def gather(table: Floats, row: Ints, inside: Bools) -> Floats:
    """T[l(i, j)], 0 where there is no row: (..., H, R, E) -> (..., H, Lq, Lk, E).

    This is the L x L x d array that the kernels never build.
    """
    xp = namespace(table)
    ndim = max(table.ndim, row.ndim)
    table = table.reshape((1,) * (ndim - table.ndim) + table.shape)
    row = row.reshape((1,) * (ndim - row.ndim) + row.shape)
    flat = xp.where(inside, row, 0).reshape(*row.shape[:-2], -1, 1)
    found = xp.take_along_axis(table, flat, -2)
    found = found.reshape(*found.shape[:-2], *row.shape[-2:], table.shape[-1])
    return xp.where(inside[..., None], found, 0.0)


def softmax(s: Floats, sinks: ArrayLike | None = None) -> tuple[Floats, Floats]:
    """p_ij = exp(s_ij - lse_i), lse_i = log Σ_j exp(s_ij); 0 and -inf if no key.

    With sinks (H,), lse_i = log(exp(sinks[h]) + Σ_j exp(s_ij)). p is exp(s - max) / Σ
    exp(s - max): where logits are as large as -1e18, lse is too coarse to subtract.
    Neither result depends on the maximum, which therefore has no gradient.
    """
    xp, s, sinks = as_float64(s, sinks)
    sink = -np.inf if sinks is None else sinks[:, None, None]
    top = xp.maximum(xp.max(s, axis=-1, keepdims=True, initial=-np.inf), sink)
    top = constant(xp.where(top == -np.inf, 0.0, top))
    p = xp.exp(s - top)
    total = xp.sum(p, axis=-1, keepdims=True) + xp.exp(sink - top)
    nothing = total == 0
    total = xp.where(nothing, 1.0, total)
    lse = xp.where(nothing, -np.inf, top + xp.log(total))
    return p / total, lse[..., 0]


def visible(see: Bools, attn_mask: ArrayLike | None) -> Bools:
    """True where a pair is visible and its mask is True, or more than -inf."""
    if attn_mask is None:
        return see
    xp = namespace(see)
    mask = xp.asarray(attn_mask)
    return see & (mask if mask.dtype == xp.bool_ else mask != -np.inf)


def masked(s: Floats, attn_mask: ArrayLike | None) -> Floats:
    """s_ij + mask_ij, s_ij if the mask is not of numbers."""
    if attn_mask is None:
        return s
    xp = namespace(s)
    mask = xp.asarray(attn_mask)
    if mask.dtype == xp.bool_:
        return s
    return s + stay_finite(xp.asarray(mask, dtype=xp.float64))


def weigh(
    s: Floats,
    values: Floats,
    see: Bools,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    rng: Rng = None,
    sinks: ArrayLike | None = None,
) -> tuple[Floats, Floats, Floats, Bools]:
    """p, lse, z and the visible pairs; values (..., H, Lq or 1, Lk, Dv).

    The mask is applied here; z is 1 without dropout, else keep / (1 - dropout_p).
    """
    xp = namespace(s)
    s = xp.where(visible(see, attn_mask), masked(s, attn_mask), -np.inf)
    batch = np.broadcast_shapes(s.shape[:-2], values.shape[:-3])
    s = xp.broadcast_to(s, (*batch, *s.shape[-2:]))
    see = s != -np.inf
    p, lse = softmax(s, sinks)
    p = xp.where(see, p, 0.0)
    z = xp.ones_like(p)
    if dropout_p > 0:
        keep = dropout_keep(p.shape, dropout_p, random_seed(rng))
        z = xp.asarray(keep, dtype=xp.float64) / (1.0 - dropout_p)
    return p, lse, z, see


def attend(
    s: Floats,
    values: Floats,
    see: Bools,
    attn_mask: ArrayLike | None = None,
    *,
    dropout_p: float = 0.0,
    rng: Rng = None,
    sinks: ArrayLike | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Result:
    """out_i = Σ_j p_ij·z_ij·x_ij from scores s and values x (..., H, Lq or 1, Lk, Dv).

    A hidden x_ij is dropped, not multiplied by 0: it may be NaN.
    """
    xp = namespace(s)
    p, lse, z, see = weigh(s, values, see, attn_mask, dropout_p, rng, sinks)
    out = xp.einsum("...ij,...ijd->...id", p * z, xp.where(see[..., None], values, 0.0))
    if not (return_lse or return_weights):
        return out
    return AttentionOutput(
        out, lse if return_lse else None, p if return_weights else None
    )
