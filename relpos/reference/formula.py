"""Attention with relative positions: the one formula that every scheme is a case of.

With l(i, j) the row of a table that the pair (i, j) uses,

    s_ij  = cap(scale · [ (q_i + u)·k_j + (q_i + v)·A[l] + k_j·C[l] ]) + b[l]
            + Σ_{j < t ≤ i + o} g_t + mask_ij
    p_ij  = exp(s_ij - lse_i),    lse_i = log(exp(sink) + Σ_j exp(s_ij))
    out_i = Σ_j p_ij · z_ij · (v_j + W[l])

A = rel_key, C = rel_query, W = rel_value, b = rel_bias, g = log_decay, u and v =
pos_bias_u and pos_bias_v, o = query_offset, sink = sinks[h], -inf without them,
cap(x) = softcap·tanh(x / softcap), or x without it; z_ij is 1 without dropout, else
keep_ij / (1 - dropout_p). With e = position_query, (e_i + v)·A[l] takes the place of
scale·(q_i + v)·A[l].
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np

from relpos.reference._typing import (
    ArrayLike,
    Bools,
    Floats,
    Ints,
    Rng,
    names_alone,
)
from relpos.reference.pairs import (
    Result,
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

__all__ = [
    "Terms",
    "attention",
    "decay",
    "merge_attention",
    "moved_values",
    "scores",
    "terms",
]


@names_alone
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
    position_query: ArrayLike | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    log_decay: ArrayLike | None = None,
    key_ranges: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    window: tuple[int | None, int | None] | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
    rng: Rng = None,
) -> Result:
    """out_i = Σ_j p_ij·z_ij·(v_j + W[l]), every array in it built in full.

    p_ij = exp(s_ij - lse_i), lse_i = log(exp(sink) + Σ_j exp(s_ij)),
    s_ij = cap(scale·[(q_i + u)·k_j + (q_i + v)·A[l] + k_j·C[l]]) + b[l] + mask_ij
    + Σ_{j < t ≤ i + query_offset} g_t, with A = rel_key, C = rel_query, W = rel_value,
    b = rel_bias, g = log_decay, u and v = pos_bias_u and pos_bias_v, sink = sinks[h],
    cap(x) = softcap·tanh(x / softcap) or x, l the row of the pair (i, j), and z the
    factor of dropout. With e = position_query, (e_i + v)·A[l] takes the place of
    scale·(q_i + v)·A[l].

    Arguments and shapes are those of `relpos.attention`: query (..., H, Lq, D), key
    (..., Hk, Lk, D), value (..., Hk, Lk, Dv), tables (R, E), (H, R, E) or
    (..., H, R, E), rel_bias the same without E, pos_bias (D,) or (..., H, D), sinks
    (H,), log_decay (..., H, Lk); of a tuple of labels T[l] is the sum of the rows.
    Returns out (..., H, Lq, Dv), or AttentionOutput(out, lse, weights) if asked for
    more.

    See Also
    --------
    relpos.attention : By the kernels; describes the arguments.
    attention_backward : Its gradients.

    Examples
    --------
    >>> q = k = v = np.eye(2)[None]
    >>> attention(q, k, v, is_causal=True, rel_bias=[0.0, 0.0, 1.0]).round(2)
    array([[[1.  , 0.  ],
            [0.33, 0.67]]])
    """
    x = terms(
        query,
        key,
        value,
        is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
        query_offset=query_offset,
        rel_key=rel_key,
        rel_query=rel_query,
        rel_value=rel_value,
        rel_bias=rel_bias,
        pos_bias_u=pos_bias_u,
        pos_bias_v=pos_bias_v,
        min_relative_position=min_relative_position,
        buckets=buckets,
        beyond=beyond,
        labels=labels,
        position_query=position_query,
        softcap=softcap,
        log_decay=log_decay,
        key_ranges=key_ranges,
        key_lengths=key_lengths,
        window=window,
    )
    return attend(
        scores(x),
        moved_values(x),
        x.see,
        attn_mask,
        dropout_p=dropout_p,
        rng=rng,
        sinks=sinks,
        return_lse=return_lse,
        return_weights=return_weights,
    )


class Terms(NamedTuple):
    """What the formula names; k and v are those of each query head.

    e: what A[l] is dotted with, q unless there is a position query, and `e_scale` its
    factor. tables: A, C, W and b as (..., R, E) by argument name, b with E = 1. rows:
    for each, l(i, j), and where there is one, of each array of labels. r: j - (i + o).
    """

    q: Floats
    k: Floats
    v: Floats
    e: Floats
    u: Floats | float
    w: Floats | float
    tables: dict[str, Floats]
    rows: dict[str, list[tuple[Ints, Bools]]]
    scale: float
    e_scale: float
    r: Ints
    see: Bools
    g: Floats | None
    softcap: float | None = None

    def of_pairs(self, name: str) -> Floats:
        """T[l(i, j)], (..., H or 1, Lq, Lk, E)."""
        parts = (gather(self.tables[name], *rows) for rows in self.rows[name])
        return reduce(np.add, parts)


def terms(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
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
    position_query: ArrayLike | None = None,
    softcap: float | None = None,
    log_decay: ArrayLike | None = None,
    key_ranges: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    window: tuple[int | None, int | None] | None = None,
) -> Terms:
    """The arguments of `attention` as the terms of its formula."""
    q, k, v = float64(query, key, value)
    given = {"rel_key": rel_key, "rel_query": rel_query, "rel_value": rel_value}
    tables = {name: float64(T)[0] for name, T in given.items() if T is not None}
    first: dict[str, int | None] = dict.fromkeys(tables, min_relative_position)
    if rel_bias is not None:
        b = float64(rel_bias)[0][..., None]
        centred = any(T.shape[-2] != b.shape[-2] for T in tables.values())
        first["rel_bias"] = None if centred else min_relative_position
        tables["rel_bias"] = b
    if enable_gqa:
        group = q.shape[-3] // k.shape[-3]
        k, v = np.repeat(k, group, axis=-3), np.repeat(v, group, axis=-3)
    g = table_or_none(log_decay)
    placed = (labels is None and tables) or g is not None
    if placed or is_causal or window is not None:
        query_offset = offset_of(query_offset, q, k)
    o = 0 if query_offset is None else query_offset
    r = relative(q.shape[-2], k.shape[-2], o)
    see = allowed(r, is_causal, window, key_ranges, key_lengths)
    if g is not None and np.any(see & (r > 0)):
        raise ValueError("log_decay: a later key is visible; there is no sum for it")
    rows = {}
    for name, T in tables.items():
        if labels is None:
            of_table = (T.shape[-2], first[name], buckets, beyond, see)
            rows[name] = [table_rows(r, *of_table)]
        else:
            several = labels if isinstance(labels, tuple) else (labels,)
            each = [np.asarray(label)[..., None, :, :] for label in several]
            rows[name] = [(label, label >= 0) for label in each]
    if rel_bias is not None:
        for row in rows["rel_bias"]:
            see = see & (gather(b, *row)[..., 0] != -np.inf)
    if scale is None:
        scale = 1.0 / np.sqrt(q.shape[-1])
    e = q if position_query is None else float64(position_query)[0]
    e_scale = scale if position_query is None else 1.0
    u, w = bias_row(pos_bias_u), bias_row(pos_bias_v)
    return Terms(q, k, v, e, u, w, tables, rows, scale, e_scale, r, see, g, softcap)


def products(x: Terms) -> Floats:
    """What the cap is on: scale·[(q_i + u)·k_j + (q_i + v)·A[l] + k_j·C[l]]."""
    s: Floats = x.scale * np.einsum("...id,...jd->...ij", x.q + x.u, x.k)
    if "rel_key" in x.tables:
        A = x.of_pairs("rel_key")
        s = s + x.e_scale * np.einsum("...id,...ijd->...ij", x.e + x.w, A)
    if "rel_query" in x.tables:
        C = x.of_pairs("rel_query")
        s = s + x.scale * np.einsum("...jd,...ijd->...ij", x.k, C)
    return s


def scores(x: Terms) -> Floats:
    """s_ij without the mask."""
    s = products(x)
    if x.softcap is not None:
        s = x.softcap * np.tanh(s / x.softcap)
    if "rel_bias" in x.tables:
        s = s + stay_finite(x.of_pairs("rel_bias")[..., 0])
    return s if x.g is None else s + decay(x.g, x.r)


def decay(g: Floats, r: Ints) -> Floats:
    """Σ_{j < t ≤ i + o} g_t, (..., H, Lk) -> (..., H, Lq, Lk).

    Summed from the query's position backwards, so that what is far away does not round
    what is near.
    """
    passed = np.where(r <= 0, g[..., None, :], 0.0)  # g_t, t ≤ i + o
    total = np.cumsum(passed[..., ::-1], axis=-1)[..., ::-1]  # Σ_{t ≥ j}
    return np.concatenate([total[..., 1:], np.zeros_like(total[..., :1])], axis=-1)


def moved_values(x: Terms) -> Floats:
    """v_j + W[l], (..., H, Lq or 1, Lk, Dv)."""
    values = x.v[..., None, :, :]
    return values + x.of_pairs("rel_value") if "rel_value" in x.tables else values


def bias_row(bias: ArrayLike | None) -> Floats | float:
    """u or v (D,) or (..., H, D), to be added to the query (..., H, Lq, D)."""
    return 0.0 if bias is None else np.asarray(bias, dtype=np.float64)[..., None, :]


def merge_attention(
    out_a: ArrayLike, lse_a: ArrayLike, out_b: ArrayLike, lse_b: ArrayLike
) -> tuple[Floats, Floats]:
    """Join attention over two disjoint sets of keys into attention over their union.

    lse = log(exp(lse_a) + exp(lse_b)),
    out = exp(lse_a - lse)·out_a + exp(lse_b - lse)·out_b. out (..., Dv), lse (...).
    A side with lse = -inf saw no key and adds nothing. Returns (out, lse).

    See Also
    --------
    relpos.merge_attention : By the kernels; describes the arguments.
    attention : Returns `lse` with ``return_lse=True``.

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
