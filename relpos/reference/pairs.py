"""What the formulas are made of: pairs (i, j), table rows for them, the softmax."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relpos.reference._typing import ArrayLike, Bools, Floats, Ints, Rng
from relpos.reference.dropout import draw_seed, dropout_keep

__all__ = [
    "AttentionOutput",
    "Result",
    "allowed",
    "attend",
    "float64",
    "gather",
    "masked",
    "offset_of",
    "relative",
    "softmax",
    "stay_finite",
    "table_or_none",
    "table_rows",
    "weigh",
]


class AttentionOutput(NamedTuple):
    """What an attention returns when asked for more than `out`.

    See Also
    --------
    attention : Returns it.
    relpos.AttentionOutput : The same, by the kernels.
    """

    out: Floats
    lse: Floats | None = None
    weights: Floats | None = None


#: The latter where more than `out` was asked for.
Result = Floats | AttentionOutput


def float64(*arrays: ArrayLike) -> list[Floats]:
    """Each array as float64."""
    return [np.asarray(x, dtype=np.float64) for x in arrays]


def table_or_none(x: ArrayLike | None) -> Floats | None:
    """An optional array as float64."""
    return None if x is None else np.asarray(x, dtype=np.float64)


def stay_finite(x: Floats) -> Floats:
    """Two finite masks or biases added to a score must not make -inf: ±MAX/4."""
    largest = np.finfo(np.float64).max / 4
    return np.where(np.isfinite(x), np.clip(x, -largest, largest), x)


def offset_of(query_offset: ArrayLike | None, query: Floats, key: Floats) -> ArrayLike:
    """o as given; by default 0, where query and key have the same length."""
    if query_offset is None and query.shape[-2] != key.shape[-2]:
        raise ValueError(
            f"query_offset: lengths {query.shape[-2]} and {key.shape[-2]} differ, so "
            "the position of query 0 beside key 0 must be given"
        )
    return 0 if query_offset is None else query_offset


def relative(query_length: int, key_length: int, query_offset: ArrayLike = 0) -> Ints:
    """r(i, j) = j - (i + o), (..., 1, Lq, Lk); o is one number or one per item."""
    i = np.arange(query_length, dtype=np.int64)[:, None]
    j = np.arange(key_length, dtype=np.int64)[None, :]
    return j - (i + np.asarray(query_offset, dtype=np.int64)[..., None, None, None])


def allowed(
    r: Ints,
    is_causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    key_ranges: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
) -> Bools:
    """True where position alone lets query i see key j, (..., 1, Lq, Lk)."""
    left, right = (None, None) if window is None else window
    see = np.ones(r.shape, dtype=bool)
    if is_causal:
        see = see & (r <= 0)
    if left is not None:
        see = see & (r >= -left)
    if right is not None:
        see = see & (r <= right)
    if key_ranges is not None:
        begin, end = np.moveaxis(np.asarray(key_ranges)[..., None, :, :], -1, 0)
        j = np.arange(r.shape[-1])
        see = see & (j >= begin[..., None]) & (j < end[..., None])
    if key_lengths is not None:
        lengths = np.asarray(key_lengths)[..., None, None, None]
        see = see & (np.arange(r.shape[-1]) < lengths)
    return see


def table_rows(
    r: Ints,
    rows: int,
    first: int | None = None,
    buckets: ArrayLike | None = None,
    beyond: str = "clip",
    see: Bools | bool = True,
) -> tuple[Ints, Bools]:
    """l(i, j), and where there is one.

    Row t belongs to relative position first + t; by default the middle row belongs to
    0. With buckets, relative position first + t uses row buckets[t] instead. beyond:
    "clip" takes the end rows, "zero" gives the pair no position term, "raise" is an
    IndexError if such a pair is seen.
    """
    count = rows if buckets is None else np.size(buckets)
    if first is None:
        if count % 2 == 0:
            raise ValueError(f"{count} rows have no middle: give min_relative_position")
        first = -((count - 1) // 2)
    t = r - first
    inside = (t >= 0) & (t < count)
    if beyond == "raise" and np.any(~inside & see):
        raise IndexError(f"a visible pair lies outside the {count} rows of a table")
    if beyond == "clip":
        inside = np.ones_like(inside)
    t = np.clip(t, 0, count - 1)
    return (t if buckets is None else np.asarray(buckets)[t]), inside


def gather(table: Floats, row: Ints, inside: Bools) -> Floats:
    """T[l(i, j)], 0 where there is no row: (..., H, R, E) -> (..., H, Lq, Lk, E).

    This is the L x L x d array that the kernels never build.
    """
    ndim = max(table.ndim, row.ndim)
    table = table.reshape((1,) * (ndim - table.ndim) + table.shape)
    row = row.reshape((1,) * (ndim - row.ndim) + row.shape)
    flat = np.where(inside, row, 0).reshape(*row.shape[:-2], -1, 1)
    found = np.take_along_axis(table, flat, axis=-2)
    found = found.reshape(*found.shape[:-2], *row.shape[-2:], table.shape[-1])
    return np.where(inside[..., None], found, 0.0)


def softmax(s: Floats, sinks: ArrayLike | None = None) -> tuple[Floats, Floats]:
    """p_ij = exp(s_ij - lse_i), lse_i = log Σ_j exp(s_ij); 0 and -inf if no key.

    With sinks (H,), lse_i = log(exp(sinks[h]) + Σ_j exp(s_ij)). p is exp(s - max) / Σ
    exp(s - max): where logits are as large as -1e18, lse is too coarse to subtract.
    """
    sink = -np.inf if sinks is None else float64(sinks)[0][:, None, None]
    top = np.maximum(np.max(s, axis=-1, keepdims=True, initial=-np.inf), sink)
    top = np.where(top == -np.inf, 0.0, top)
    p = np.exp(s - top)
    total = np.sum(p, axis=-1, keepdims=True) + np.exp(sink - top)
    with np.errstate(divide="ignore"):
        lse = top + np.log(total)
    return p / np.where(total == 0, 1.0, total), lse[..., 0]


def masked(s: Floats, see: Bools, attn_mask: ArrayLike | None) -> tuple[Floats, Bools]:
    """s_ij + mask_ij, and what is seen of it: True, or more than -inf."""
    if attn_mask is None:
        return s, see
    if np.asarray(attn_mask).dtype == bool:
        return s, see & np.asarray(attn_mask)
    mask = stay_finite(np.asarray(attn_mask, dtype=np.float64))
    return s + mask, see & (mask != -np.inf)


def weigh(
    s: Floats,
    values: Floats,
    see: Bools,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    rng: Rng = None,
    sinks: ArrayLike | None = None,
) -> tuple[Floats, Floats, Floats, Bools]:
    """p, lse, z and the pairs that are seen; values (..., H, Lq or 1, Lk, Dv).

    The mask is applied here; z is 1 without dropout, else keep / (1 - dropout_p).
    """
    s, see = masked(s, see, attn_mask)
    s = np.where(see, s, -np.inf)
    batch = np.broadcast_shapes(s.shape[:-2], values.shape[:-3])
    s = np.broadcast_to(s, (*batch, *s.shape[-2:]))
    see = s != -np.inf
    p, lse = softmax(s, sinks)
    p = np.where(see, p, 0.0)
    z = np.ones_like(p)
    if dropout_p > 0:
        z = dropout_keep(p.shape, dropout_p, draw_seed(rng)) / (1.0 - dropout_p)
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
    p, lse, z, see = weigh(s, values, see, attn_mask, dropout_p, rng, sinks)
    out: Floats
    out = np.einsum("...ij,...ijd->...id", p * z, np.where(see[..., None], values, 0.0))
    if not (return_lse or return_weights):
        return out
    return AttentionOutput(
        out, lse if return_lse else None, p if return_weights else None
    )
