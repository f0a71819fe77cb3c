"""Attention along the labelled edges of a directed graph, one edge after the other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from relpos.reference._typing import ArrayLike, Floats
from relpos.reference.pairs import AttentionOutput, Result, float64, table_or_none

__all__ = ["graph_attention"]


def graph_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    indptr: ArrayLike,
    indices: ArrayLike,
    labels: ArrayLike | None = None,
    rel_key: ArrayLike | None = None,
    rel_value: ArrayLike | None = None,
    *,
    position_query: ArrayLike | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    scale: float | None = None,
    return_lse: bool = False,
) -> Result:
    """Shaw's equations 3 and 4 over the edges (i, j, l) of each query i.

    s_e = scale·q_i·(k_j + a_l), under softcap·tanh(s_e / softcap) if there is one,
    p = softmax of a query's s_e,
    out_i = Σ_e p_e·(v_j + w_l); a_l and w_l are rows l of rel_key and rel_value
    (..., R, D | Dv), zeros where l < 0. With e = position_query (..., H, Lq, Dp),
    e_i·a_l takes the place of scale·q_i·a_l. The edges of query i are indptr[i] to
    indptr[i + 1] of indices (their keys) and labels. The softmax has one more logit,
    sinks (H,), -inf without them. Without edges: out 0, lse = sinks.

    See Also
    --------
    relpos.graph_attention : By the kernels; describes the arguments.
    attention : Every pair instead of edges, by `labels`.

    References
    ----------
    Shaw, Uszkoreit, Vaswani (2018), section 3.1, arXiv:1803.02155.

    Examples
    --------
    >>> x = np.zeros((1, 2, 1))
    >>> v = np.array([[[1.0], [3.0]]])
    >>> graph_attention(x, x, v, [0, 2, 3], [0, 1, 1], [0, 0, -1], rel_value=[[10.0]])
    array([[[12.],
            [ 3.]]])
    """
    q, k, v = float64(query, key, value)
    a, w = table_or_none(rel_key), table_or_none(rel_value)
    starts, keys = np.asarray(indptr), np.asarray(indices)
    label = np.full(keys.shape, -1) if labels is None else np.asarray(labels)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    e, e_factor = q, factor  # what a_l is dotted with
    if position_query is not None:
        e, e_factor = float64(position_query)[0], 1.0
    k_e = k[..., keys, :]  # (..., H, edges, D)
    a_e = with_rows(np.zeros((keys.size, e.shape[-1])), a, label)
    v_e = with_rows(v[..., keys, :], w, label)
    batch = np.broadcast_shapes(*(x.shape[:-2] for x in (q, e, k_e, a_e, v_e)))
    out = np.zeros((*batch, q.shape[-2], v.shape[-1]))
    sink = np.asarray(-np.inf if sinks is None else sinks, dtype=np.float64)
    lse = np.full(out.shape[:-1], sink[..., None])
    for i, (first, end) in enumerate(pairwise(starts)):
        if first == end:
            continue
        s = factor * np.einsum("...d,...ed->...e", q[..., i, :], k_e[..., first:end, :])
        s = s + e_factor * np.einsum(
            "...d,...ed->...e", e[..., i, :], a_e[..., first:end, :]
        )
        if softcap is not None:
            s = softcap * np.tanh(s / softcap)
        lse[..., i] = np.logaddexp(sink, np.logaddexp.reduce(s, axis=-1))
        p = np.exp(s - lse[..., i, None])
        out[..., i, :] = np.einsum("...e,...ed->...d", p, v_e[..., first:end, :])
    return AttentionOutput(out, lse) if return_lse else out


def with_rows(x: Floats, table: Floats | None, label: ArrayLike) -> Floats:
    """Add row label[e] of the table to x[..., e, :], nothing where it is negative."""
    label = np.asarray(label)
    if table is None or not label.size:
        return x
    rows: Floats = table[..., np.maximum(label, 0), :]
    return x + np.where(label[:, None] >= 0, rows, 0.0)
