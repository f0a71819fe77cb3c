"""Attention with relative positions: the one formula of which each scheme is a case."""

from __future__ import annotations

import inspect
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from relpos.reference._typing import (
    ArrayLike,
    Bools,
    Floats,
    Ints,
    Rng,
    names_alone,
)
from relpos.reference._xp import as_float64, namespace
from relpos.reference.pairs import (
    Result,
    allowed,
    attend,
    default_scale,
    gather,
    masked,
    offset_of,
    relative,
    stay_finite,
    table_rows,
    visible,
)

__all__ = ["attention", "merge_attention", "scores"]


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

    Examples
    --------
    >>> q = k = v = np.eye(2)[None]
    >>> attention(q, k, v, is_causal=True, rel_bias=[0.0, 0.0, 1.0]).round(2)
    array([[[1.  , 0.  ],
            [0.33, 0.67]]])
    """
    x = terms(**locals())
    return attend(
        logits(x),
        moved_values(x),
        x.see,
        attn_mask,
        dropout_p=dropout_p,
        rng=rng,
        sinks=sinks,
        return_lse=return_lse,
        return_weights=return_weights,
    )


#: Keywords of attention that are nothing to its logits.
OTHERS = ("dropout_p", "num_threads", "rel_value", "rng", "sinks")


def scores(
    query: ArrayLike,
    key: ArrayLike,
    *,
    attn_mask: ArrayLike | None = None,
    is_causal: bool = False,
    **keywords: Any,
) -> Floats:
    """s_ij of `attention`: p_ij = exp(s_ij) / Σ_j exp(s_ij), -inf where it is hidden.

    Keywords are those of `attention`; what acts on weights and values alone is left
    out. Returns (..., H, Lq, Lk).

    Examples
    --------
    >>> x = np.eye(2)[None]
    >>> scores(x, x, scale=1.0, rel_bias=[-0.5, 0.0, 9.0], is_causal=True)
    array([[[ 1. , -inf],
            [-0.5,  1. ]]])
    """
    own = {name: x for name, x in keywords.items() if name not in OTHERS}
    x = terms(query, key, key, attn_mask=attn_mask, is_causal=is_causal, **own)
    s = masked(logits(x), attn_mask)
    return namespace(s).where(x.see, s, -np.inf)


class Terms(NamedTuple):
    """The arrays that the formula names; k and v are those of each query head.

    e: the vectors that A[l] is multiplied with, q unless there is a position query;
    e_scale: their factor. tables: A, C, W and b as (..., R, E) by argument name, b with
    E = 1. rows: of each table l(i, j) and where there is one, for each array of labels.
    r: j - (i + o).
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
    softcap: float | None

    def of_pairs(self, name: str) -> Floats:
        """T[l(i, j)] of visible pairs, (..., H or 1, Lq, Lk, E)."""
        parts = (gather(self.tables[name], *rows) for rows in self.rows[name])
        return namespace(self.q).where(self.see[..., None], reduce(add, parts), 0.0)


#: The arguments of attention with their defaults, and those taken to float64.
DEFAULTS = {n: p.default for n, p in inspect.signature(attention).parameters.items()}
FLOATING = (
    *("query", "key", "value", "rel_key", "rel_query", "rel_value", "rel_bias"),
    *("pos_bias_u", "pos_bias_v", "position_query", "log_decay"),
)


def terms(query: ArrayLike, key: ArrayLike, value: ArrayLike, **keywords: Any) -> Terms:
    """Return the arguments of `attention` as the terms of its formula."""
    for name in keywords.keys() - DEFAULTS.keys():
        raise TypeError(f"terms() got an unexpected keyword argument {name!r}")
    x = {**DEFAULTS, **keywords, "query": query, "key": key, "value": value}
    xp = namespace(*x.values())
    floats = (n for n in FLOATING if x[n] is not None)
    x |= {name: xp.asarray(x[name], dtype=xp.float64) for name in floats}
    q, k, v, g, o = x["query"], x["key"], x["value"], x["log_decay"], x["query_offset"]
    tables = {
        n: x[n] for n in ("rel_key", "rel_query", "rel_value") if x[n] is not None
    }
    if x["rel_bias"] is not None:
        tables["rel_bias"] = x["rel_bias"][..., None]
    if x["enable_gqa"]:
        group = q.shape[-3] // k.shape[-3]
        k, v = xp.repeat(k, group, -3), xp.repeat(v, group, -3)
    placed = (x["labels"] is None and tables) or g is not None
    if placed or x["is_causal"] or x["window"] is not None:
        o = offset_of(o, q, k)
    r = relative(q, k, 0 if o is None else o)
    see = allowed(r, x["is_causal"], x["window"], x["key_ranges"], x["key_lengths"])
    if g is not None and xp.any(see & (r > 0)):
        raise ValueError("log_decay: a later key is visible; there is no sum for it")
    placing = x["min_relative_position"], x["buckets"], x["beyond"], see
    rows = rows_of(tables, x["labels"], r, *placing)
    for row in rows.get("rel_bias", ()):
        see = see & (gather(tables["rel_bias"], *row)[..., 0] != -np.inf)
    see = visible(see, x["attn_mask"])
    q, k = visible_rows(q, see, -1), visible_rows(k, see, -2)
    scale = default_scale(x["scale"], q)
    e, e_scale = q, scale
    if x["position_query"] is not None:
        e, e_scale = visible_rows(x["position_query"], see, -1), 1.0
    vectors = x["pos_bias_u"], x["pos_bias_v"]
    u, w = (0.0 if vector is None else vector[..., None, :] for vector in vectors)
    cap = x["softcap"]
    return Terms(q, k, v, e, u, w, tables, rows, scale, e_scale, r, see, g, cap)


def rows_of(
    tables: dict[str, Floats],
    labels: Any,
    r: Ints,
    first: int | None,
    *placing: Any,
) -> dict[str, list[tuple[Ints, Bools]]]:
    """Return l(i, j) of each table and where there is one, for each array of labels.

    A bias of another length than the other tables is centred.
    """
    if labels is not None:
        xp, several = namespace(r), labels if isinstance(labels, tuple) else (labels,)
        each = [xp.asarray(label, dtype=xp.int64)[..., None, :, :] for label in several]
        return {name: [(label, label >= 0) for label in each] for name in tables}
    counts = {name: table.shape[-2] for name, table in tables.items()}
    centred = {"rel_bias"} if len({*counts.values()}) > 1 else set()
    return {
        name: [table_rows(r, count, None if name in centred else first, *placing)]
        for name, count in counts.items()
    }


def visible_rows(x: Floats, see: Bools, axis: int) -> Floats:
    """x (..., L, D), 0 in rows without a visible pair along `axis`: they may be NaN."""
    xp = namespace(x)
    return xp.where(xp.any(see, axis=axis)[..., None], x, 0.0)


def products(x: Terms) -> Floats:
    """The sum under the cap: scale·[(q_i + u)·k_j + (q_i + v)·A[l] + k_j·C[l]]."""
    xp = namespace(x.q)
    s = x.scale * xp.einsum("...id,...jd->...ij", x.q + x.u, x.k)
    if "rel_key" in x.tables:
        A = x.of_pairs("rel_key")
        s = s + x.e_scale * xp.einsum("...id,...ijd->...ij", x.e + x.w, A)
    if "rel_query" in x.tables:
        C = x.of_pairs("rel_query")
        s = s + x.scale * xp.einsum("...jd,...ijd->...ij", x.k, C)
    return s


def logits(x: Terms) -> Floats:
    """s_ij without the mask."""
    s = products(x)
    if x.softcap is not None:
        s = x.softcap * namespace(s).tanh(s / x.softcap)
    if "rel_bias" in x.tables:
        s = s + stay_finite(x.of_pairs("rel_bias")[..., 0])
    return s if x.g is None else s + decay(x.g, x.r)


def decay(g: Floats, r: Ints) -> Floats:
    """Σ_{j < t ≤ i + o} g_t, (..., H, Lk) -> (..., H, Lq, Lk).

    Summed from the query's position backwards, so that what is far away does not round
    what is near.
    """
    xp = namespace(g)
    passed = xp.where(r <= 0, g[..., None, :], 0.0)  # g_t, t ≤ i + o
    total = xp.flip(xp.cumsum(xp.flip(passed, (-1,)), axis=-1), (-1,))  # Σ_{t ≥ j}
    return xp.concatenate([total[..., 1:], xp.zeros_like(total[..., :1])], axis=-1)


def moved_values(x: Terms) -> Floats:
    """v_j + W[l], (..., H, Lq or 1, Lk, Dv)."""
    values = x.v[..., None, :, :]
    return values + x.of_pairs("rel_value") if "rel_value" in x.tables else values


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
    xp, out_a, lse_a, out_b, lse_b = as_float64(out_a, lse_a, out_b, lse_b)
    lse = xp.logaddexp(lse_a, lse_b)
    base = xp.where(lse == -np.inf, 0.0, lse)
    out = xp.zeros_like(lse)[..., None]
    for part, part_lse in ((out_a, lse_a), (out_b, lse_b)):
        share = xp.exp(part_lse - base)[..., None]
        out = out + share * xp.where(share == 0.0, 0.0, part)
    return out, lse
