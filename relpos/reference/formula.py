"""Attention with relative positions: the one formula that every scheme is a case of.

With l(i, j) the row of a table that the pair (i, j) uses,

    s_ij  = scale · [ (q_i + u)·k_j + (q_i + v)·A[l] + k_j·C[l] ] + b[l] + mask_ij
    p_ij  = exp(s_ij - lse_i),    lse_i = log Σ_j exp(s_ij)
    out_i = Σ_j p_ij · z_ij · (v_j + W[l])

A = rel_key, C = rel_query, W = rel_value, b = rel_bias, u and v = pos_bias_u and
pos_bias_v; z_ij is 1 without dropout, else keep_ij / (1 - dropout_p).
"""

import numpy as np

from relpos.reference._typing import ArrayLike, Floats, Rng
from relpos.reference.pairs import (
    AttentionOutput,
    allowed,
    attend,
    float64,
    gather,
    offset_of,
    relative,
    stay_finite,
    table_or_none,
    table_rows,
)

__all__ = ["attention", "merge_attention"]


def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    query_offset: ArrayLike | None = None,
    rel_key: ArrayLike | None = None,
    rel_query: ArrayLike | None = None,
    rel_value: ArrayLike | None = None,
    rel_bias: ArrayLike | None = None,
    pos_bias_u: ArrayLike | None = None,
    pos_bias_v: ArrayLike | None = None,
    min_relative_position: int | None = None,
    buckets: ArrayLike | None = None,
    beyond: str = "clip",
    labels: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    window: tuple[int | None, int | None] | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
    rng: Rng = None,
) -> Floats | AttentionOutput:
    """The formula on top of this module, every array in it built in full.

    Arguments and shapes are those of `relpos.attention`: query (..., H, Lq, D), key
    (..., Hk, Lk, D), value (..., Hk, Lk, Dv), tables (R, E), (H, R, E) or
    (..., H, R, E), rel_bias the same without E, pos_bias (D,) or (H, D). Returns out
    (..., H, Lq, Dv), or AttentionOutput(out, lse, weights) if asked for more.

    Examples
    --------
    >>> q = k = v = np.eye(2)[None]
    >>> attention(q, k, v, is_causal=True, rel_bias=[0.0, 0.0, 1.0]).round(2)
    array([[[1.  , 0.  ],
            [0.33, 0.67]]])
    """
    q, k, v = float64(query, key, value)
    A, C = table_or_none(rel_key), table_or_none(rel_query)
    W, b = table_or_none(rel_value), table_or_none(rel_bias)
    if enable_gqa:
        group = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, group, axis=-3), np.repeat(v, group, axis=-3)
    if scale is None:
        scale = 1.0 / np.sqrt(q.shape[-1])
    looks_up = labels is None and any(T is not None for T in (A, C, W, b))
    if looks_up or is_causal or window is not None:
        query_offset = offset_of(query_offset, q, k)
    o = 0 if query_offset is None else query_offset
    r = relative(q.shape[-2], k.shape[-2], o)
    see = allowed(r, is_causal, window, key_lengths)

    def of_pairs(table: Floats, first: int | None = min_relative_position) -> Floats:
        """T[l(i, j)]."""
        if labels is not None:
            label = np.asarray(labels)[..., None, :, :]
            return gather(table, label, label >= 0)
        rows = table_rows(r, table.shape[-2], first, buckets, beyond, see)
        return gather(table, *rows)

    s = np.einsum("...id,...jd->...ij", q + bias_row(pos_bias_u), k)
    if A is not None:
        q_v = q + bias_row(pos_bias_v)
        s = s + np.einsum("...id,...ijd->...ij", q_v, of_pairs(A))
    if C is not None:
        s = s + np.einsum("...jd,...ijd->...ij", k, of_pairs(C))
    s = scale * s
    if b is not None:
        centred = any(T is not None and T.shape[-2] != b.shape[-1] for T in (A, C, W))
        first = None if centred else min_relative_position
        s = s + stay_finite(of_pairs(b[..., None], first)[..., 0])
    values = v[..., None, :, :]
    if W is not None:
        values = values + of_pairs(W)
    return attend(
        s,
        values,
        see,
        attn_mask,
        dropout_p=dropout_p,
        rng=rng,
        return_lse=return_lse,
        return_weights=return_weights,
    )


def bias_row(bias: ArrayLike | None) -> Floats | float:
    """u or v (D,) or (H, D), to be added to the query (..., H, Lq, D)."""
    return 0.0 if bias is None else np.asarray(bias, dtype=np.float64)[..., None, :]


def merge_attention(
    out_a: ArrayLike, lse_a: ArrayLike, out_b: ArrayLike, lse_b: ArrayLike
) -> tuple[Floats, Floats]:
    """Join attention over two disjoint sets of keys into attention over their union.

    lse = log(exp(lse_a) + exp(lse_b)),
    out = exp(lse_a - lse)·out_a + exp(lse_b - lse)·out_b. out (..., Dv), lse (...).
    A side with lse = -inf saw no key and adds nothing. Returns (out, lse).

    Examples
    --------
    >>> merge_attention(np.array([1.0]), 0.0, np.array([3.0]), 0.0)[0]
    array([2.])
    """
    out_a, lse_a, out_b, lse_b = float64(out_a, lse_a, out_b, lse_b)
    lse = np.logaddexp(lse_a, lse_b)
    base = np.where(lse == -np.inf, 0.0, lse)
    out = np.zeros_like(lse)[..., None]
    for part, part_lse in ((out_a, lse_a), (out_b, lse_b)):
        share = np.exp(part_lse - base)[..., None]
        out = out + np.where(share == 0.0, 0.0, share * part)
    return out, lse
