"""Attention with relative positions: the one formula of which each scheme is a case.

Pairs (i, j), the rows of tables that they use, and the softmax over them; then the
formula; then dropout, which keeps a weight by (seed, batch, head, i, j).
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import as_generator, check_keywords
from relpos._tensors import check_kind
from relpos._text import amount
from relpos.reference._xp import (
    ArrayLike,
    Bools,
    Floats,
    Ints,
    Rng,
    Words,
    as_float64,
    constant,
    names_alone,
    namespace,
)

__all__ = [
    "AttentionOutput",
    "attention",
    "dropout_keep",
    "merge_attention",
    "philox4x32",
    "scores",
]


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
    # A quarter of the largest number leaves room for the sum of a score, a bias and a
    # mask. -inf itself is kept, because it hides a pair.
    xp, largest = namespace(x), np.finfo(np.float64).max / 4
    return xp.where(xp.isfinite(x), xp.clip(x, -largest, largest), x)


def offset_of(query_offset: ArrayLike | None, query: Floats, key: Floats) -> ArrayLike:
    """o as given; by default 0, where query and key have the same length."""
    # Zero is right only where query and key begin at the same token, and different
    # lengths show that they may not.
    if query_offset is None and query.shape[-2] != key.shape[-2]:
        raise ValueError(
            f"query_offset: lengths {query.shape[-2]} and {key.shape[-2]} differ, so "
            "the position of query 0 must be given"
        )
    return 0 if query_offset is None else query_offset


def relative(query: Floats, key: Floats, query_offset: ArrayLike = 0) -> Ints:
    """r(i, j) = j - (i + o), (..., 1, Lq, Lk); o is one number or one per item."""
    xp = namespace(query)
    i, j = xp.arange(query.shape[-2])[:, None], xp.arange(key.shape[-2])[None, :]
    # The three new axes are those of heads, queries and keys, so that one offset for
    # each batch item broadcasts over all of its pairs.
    o = xp.asarray(query_offset, dtype=xp.int64)[..., None, None, None]
    return j - (i + o)


def allowed(
    r: Ints,
    is_causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    key_ranges: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    key_blocks: ArrayLike | None = None,
    block_size: int | tuple[int, int] | None = None,
    heads: int = 1,
) -> Bools:
    """True where query i may see key j, whatever the mask, (..., H or 1, Lq, Lk)."""
    xp = namespace(r)
    left, right = (None, None) if window is None else window
    see = xp.ones(r.shape, dtype=xp.bool_)
    # key_ranges and key_lengths count keys from the first one, whatever the offset of
    # the queries is.
    j = xp.arange(r.shape[-1])
    if is_causal:
        see = see & (r <= 0)
    if left is not None:
        see = see & (r >= -left)
    if right is not None:
        see = see & (r <= right)
    if key_ranges is not None:
        # The last axis, of begin and end, goes first to be unpacked; the new axis is
        # that of heads.
        begin, end = xp.moveaxis(xp.asarray(key_ranges)[..., None, :, :], -1, 0)
        see = see & (j >= begin[..., None]) & (j < end[..., None])
    if key_lengths is not None:
        see = see & (j < xp.asarray(key_lengths)[..., None, None, None])
    if key_blocks is not None:
        sides = block_size if isinstance(block_size, tuple | list) else [block_size] * 2
        blocks = xp.asarray(key_blocks)
        # Head h reads row h // (H / G): the heads of a group are neighbours.
        blocks = xp.repeat(blocks, heads // blocks.shape[-3], -3)
        of_queries = xp.arange(r.shape[-2]) // sides[0]
        of_keys = j // sides[1]
        see = see & blocks[..., of_queries[:, None], of_keys]
    return see


def same_document(r: Ints, cu_seqlens: ArrayLike) -> Bools:
    """True where token i and token j are of one document, (L, L).

    The number of the document of a token is how many of them have ended before it.
    """
    xp = namespace(r)
    ends = xp.asarray(cu_seqlens)[1:]
    number = xp.sum(xp.arange(r.shape[-1])[:, None] >= ends, axis=-1)
    return number[:, None] == number


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
    # Hidden pairs may lie anywhere: only a pair that counts is an error.
    if beyond == "raise" and xp.any(~inside & see):
        rows_of_table = amount(count, "row")
        raise IndexError(f"a visible pair lies outside a table of {rows_of_table}")
    if beyond == "clip":
        inside = xp.ones_like(inside)
    # The clip also keeps the rows outside of the table readable; `inside` tells the
    # caller not to use them.
    t = xp.clip(t, 0, count - 1)
    return (t if buckets is None else xp.asarray(buckets, dtype=xp.int64)[t]), inside


def gather(table: Floats, row: Ints, inside: Bools) -> Floats:
    """T[l(i, j)], 0 where there is no row: (..., H, R, E) -> (..., H, Lq, Lk, E).

    This is the L x L x d array that the kernels never build.
    """
    xp = namespace(table)
    ndim = max(table.ndim, row.ndim)
    # take_along_axis wants the same number of axes on both sides, and broadcasts axes
    # of length 1.
    table = table.reshape((1,) * (ndim - table.ndim) + table.shape)
    row = row.reshape((1,) * (ndim - row.ndim) + row.shape)
    pairs = row.shape[-2] * row.shape[-1]
    # A label below 0 names no row. It reads row 0, whose numbers the last line
    # replaces.
    flat = xp.where(inside, row, 0).reshape(*row.shape[:-2], pairs, 1)
    # Rows of all pairs in one axis, since take_along_axis takes one, and then in two.
    vectors = xp.take_along_axis(table, flat, -2)
    vectors = vectors.reshape(*vectors.shape[:-2], *row.shape[-2:], table.shape[-1])
    # A choice and not a product with 0, so that NaN in row 0 does not get through.
    return xp.where(inside[..., None], vectors, 0.0)


def softmax(s: Floats, sinks: ArrayLike | None = None) -> tuple[Floats, Floats]:
    """p_ij = exp(s_ij - lse_i), lse_i = log Σ_j exp(s_ij); 0 and -inf if no key.

    With sinks (H,) or (..., H, Lq), lse_i = log(exp(sink_i) + Σ_j exp(s_ij)). p is
    exp(s - max) / Σ exp(s - max): where logits are as large as -1e18, lse is too coarse
    to subtract.
    Neither result depends on the maximum, which therefore has no gradient.
    """
    xp, s, sinks = as_float64(s, sinks)
    # Without sinks the extra logit is -inf and adds nothing below.
    sink = -np.inf if sinks is None else of_queries(sinks)[..., None]
    top = xp.maximum(xp.max(s, axis=-1, keepdims=True, initial=-np.inf), sink)
    # A row without a key has the maximum -inf, and -inf - (-inf) would be NaN.
    top = constant(xp.where(top == -np.inf, 0.0, top))
    p = xp.exp(s - top)
    total = xp.sum(p, axis=-1, keepdims=True) + xp.exp(sink - top)
    # Such a row divides by 1 instead of 0. The replacement comes before the division
    # and the logarithm, so that their derivatives are finite too.
    nothing = total == 0
    total = xp.where(nothing, 1.0, total)
    lse = xp.where(nothing, -np.inf, top + xp.log(total))
    return p / total, lse[..., 0]


def of_queries(sinks: Floats) -> Floats:
    """Return sinks (H,) or (..., H, Lq) so that they broadcast to (..., H, Lq)."""
    return sinks[:, None] if sinks.ndim == 1 else sinks


def visible(see: Bools, attn_mask: ArrayLike | None) -> Bools:
    """True where a pair is visible and its mask is True, or more than -inf."""
    if attn_mask is None:
        return see
    check_kind(attn_mask, "attn_mask")
    xp = namespace(see)
    mask = xp.asarray(attn_mask)
    # A float mask of -inf hides a pair as False does; every other number is a bias.
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
    # The mask, the values and sinks may have batch axes that query and key lack.
    of_sinks = () if sinks is None else np.shape(sinks)[:-1]  # (H,) has no axes to join
    batch = np.broadcast_shapes(s.shape[:-2], values.shape[:-3], of_sinks)
    s = xp.broadcast_to(s, (*batch, *s.shape[-2:]))
    # Computed again, since the mask may have hidden more pairs than positions do.
    see = s != -np.inf
    p, lse = softmax(s, sinks)
    p = xp.where(see, p, 0.0)
    # One random number for each (batch, head, query, key), so the keep array has the
    # shape of the weights after broadcasting.
    z = xp.ones_like(p)
    if dropout_p > 0:
        keep = dropout_keep(p.shape, dropout_p, random_seed(rng))
        # Kept weights grow by 1 / (1 - p), so that the expected output is that without
        # dropout.
        z = xp.asarray(keep, dtype=xp.float64) / (1.0 - dropout_p)
    return p, lse, z, see


def attend(
    s: Floats,
    values: Floats,
    see: Bools,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    rng: Rng = None,
    sinks: ArrayLike | None = None,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Result:
    """out_i = Σ_j p_ij·z_ij·x_ij from scores s and values x (..., H, Lq or 1, Lk, Dv).

    A hidden x_ij is dropped, not multiplied by 0: it may be NaN.
    """
    xp = namespace(s)
    p, lse, z, see = weigh(s, values, see, attn_mask, dropout_p, rng, sinks)
    # The weights that are returned are those before dropout; the output takes both
    # factors.
    out = xp.einsum("...ij,...ijd->...id", p * z, xp.where(see[..., None], values, 0.0))
    if not (return_lse or return_weights):
        return out
    return AttentionOutput(
        out,
        lse if return_lse else None,
        p if return_weights else None,
    )


# ---- the formula -------------------------------------------------------------------


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
    key_blocks: ArrayLike | None = None,
    block_size: int | tuple[int, int] | None = None,
    window: tuple[int | None, int | None] | None = None,
    cu_seqlens: ArrayLike | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
    rng: Rng = None,
) -> Result:
    """out_i = Σ_j p_ij·z_ij·(v_j + W[l]), every array in it built in full.

    p_ij = exp(s_ij - lse_i), lse_i = log(exp(sink) + Σ_j exp(s_ij)),
    s_ij = cap(scale·[(q_i + u)·k_j + (q_i + v)·A[l] + k_j·C[l]]) + b[l] + mask_ij
    + Σ_{j < t ≤ i + query_offset} g_t, with A = rel_key, C = rel_query, W = rel_value,
    b = rel_bias, g = log_decay, u and v = pos_bias_u and pos_bias_v, sink = sinks[h]
    or sinks[h, i],
    cap(x) = softcap·tanh(x / softcap) or x, l the row of the pair (i, j), and z the
    factor of dropout. With e = position_query, (e_i + v)·A[l] takes the place of
    scale·(q_i + v)·A[l].

    Arguments and shapes are those of `relpos.attention`: query (..., H, Lq, D), key
    (..., Hk, Lk, D), value (..., Hk, Lk, Dv), tables (R, E), (H, R, E) or
    (..., H, R, E), rel_bias the same without E, pos_bias (D,) or (..., H, D), sinks
    (H,) or (..., H, Lq), log_decay (..., H, Lk); of a tuple of labels T[l] is the sum
    of the rows.
    Returns out (..., H, Lq, Dv), or AttentionOutput(out, lse, weights) if asked for
    more.
    """
    # All arguments, as `terms` checks the kind of each.
    x = terms(
        query,
        key,
        value,
        attn_mask=attn_mask,
        dropout_p=dropout_p,
        is_causal=is_causal,
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
        key_blocks=key_blocks,
        block_size=block_size,
        window=window,
        cu_seqlens=cu_seqlens,
        sinks=sinks,
        return_lse=return_lse,
        return_weights=return_weights,
        rng=rng,
    )
    return attend(
        logits(x),
        moved_values(x),
        x.see,
        attn_mask,
        dropout_p,
        rng,
        sinks,
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
    """
    # The value is not read by the logits, so the key takes its place as an array of a
    # right shape.
    of_logits = {name: x for name, x in keywords.items() if name not in OTHERS}
    x = terms(query, key, key, attn_mask=attn_mask, is_causal=is_causal, **of_logits)
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
        # One row, or with several arrays of labels the sum of one for each.
        parts = (gather(self.tables[name], *rows) for rows in self.rows[name])
        return namespace(self.q).where(self.see[..., None], reduce(add, parts), 0.0)


#: The arguments of attention with their defaults, and those taken to float64.
DEFAULTS = {n: p.default for n, p in inspect.signature(attention).parameters.items()}
FLOATING = (
    "query",
    "key",
    "value",
    "rel_key",
    "rel_query",
    "rel_value",
    "rel_bias",
    "pos_bias_u",
    "pos_bias_v",
    "position_query",
    "log_decay",
)


def terms(query: ArrayLike, key: ArrayLike, value: ArrayLike, **keywords: Any) -> Terms:
    """Return the arguments of `attention` as the terms of its formula."""
    # All names are checked before any array is read, so that a wrong name is the first
    # error.
    check_keywords("terms", keywords, DEFAULTS)
    x = {**DEFAULTS, **keywords, "query": query, "key": key, "value": value}
    for name, array in x.items():
        check_kind(array, name)
    xp = namespace(*x.values())
    for name in FLOATING:
        if x[name] is not None:
            x[name] = xp.asarray(x[name], dtype=xp.float64)
    q, k, v, g, o = x["query"], x["key"], x["value"], x["log_decay"], x["query_offset"]
    tables = {
        n: x[n] for n in ("rel_key", "rel_query", "rel_value") if x[n] is not None
    }
    if x["rel_bias"] is not None:
        # A bias is a table of one column, so that `gather` serves biases and vectors
        # alike.
        tables["rel_bias"] = x["rel_bias"][..., None]
    if x["enable_gqa"]:
        # Query head h reads key head h // group: the query heads of a group are
        # neighbours.
        group = q.shape[-3] // k.shape[-3]
        k, v = xp.repeat(k, group, -3), xp.repeat(v, group, -3)
    # Only what depends on positions needs to know where the queries are.
    has_places = (x["labels"] is None and tables) or g is not None
    if has_places or x["is_causal"] or x["window"] is not None:
        o = offset_of(o, q, k)
    r = relative(q, k, 0 if o is None else o)
    of_keys = x["key_ranges"], x["key_lengths"], x["key_blocks"], x["block_size"]
    see = allowed(r, x["is_causal"], x["window"], *of_keys, heads=q.shape[-3])
    if x["cu_seqlens"] is not None:
        see = see & same_document(r, x["cu_seqlens"])
    # The sum over (j, i] is empty for a later key, and its sign would be a guess.
    if g is not None and xp.any(see & (r > 0)):
        raise ValueError("log_decay: a later key is visible; there is no sum for it")
    placing = x["min_relative_position"], x["buckets"], x["beyond"], see
    rows = rows_of(tables, x["labels"], r, *placing)
    # A bias of -inf hides its pairs.
    for row in rows.get("rel_bias", ()):
        see = see & (gather(tables["rel_bias"], *row)[..., 0] != -np.inf)
    see = visible(see, x["attn_mask"])
    # Rows without a visible pair may be nan, and have no part in any product.
    q, k = visible_rows(q, see, -1), visible_rows(k, see, -2)
    scale = default_scale(x["scale"], q)
    e, e_scale = q, scale
    # A position query replaces the query of one term alone, and the scale is not
    # applied to it.
    if x["position_query"] is not None:
        e, e_scale = visible_rows(x["position_query"], see, -1), 1.0
    vectors = x["pos_bias_u"], x["pos_bias_v"]
    # The new axis is that of the queries: one vector for all rows of a head.
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
        xp = namespace(r)
        several = labels if isinstance(labels, tuple) else (labels,)
        # A label has no axis of heads; a row below 0 means that the pair has no
        # position term.
        pairs = []
        for label in several:
            row = xp.asarray(label, dtype=xp.int64)[..., None, :, :]
            pairs.append((row, row >= 0))
        return dict.fromkeys(tables, pairs)
    counts = {name: table.shape[-2] for name, table in tables.items()}
    has_other_lengths = len({*counts.values()}) > 1
    rows = {}
    for name, count in counts.items():
        # min_relative_position belongs to the tables of vectors. A bias of their length
        # shares it.
        is_centred = name == "rel_bias" and has_other_lengths
        row_0 = None if is_centred else first
        rows[name] = [table_rows(r, count, row_0, *placing)]
    return rows


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
        # Row l(i, j) differs for each pair, so that this product has one vector for
        # each pair.
        s = s + x.e_scale * xp.einsum("...id,...ijd->...ij", x.e + x.w, A)
    if "rel_query" in x.tables:
        C = x.of_pairs("rel_query")
        s = s + x.scale * xp.einsum("...jd,...ijd->...ij", x.k, C)
    return s


def logits(x: Terms) -> Floats:
    """s_ij without the mask."""
    s = products(x)
    # The cap is on the products alone: the bias, the mask and the decay come after it.
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
    # The sum for key j begins at t = j + 1, hence the shift by one key.
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
    """
    xp, out_a, lse_a, out_b, lse_b = as_float64(out_a, lse_a, out_b, lse_b)
    lse = xp.logaddexp(lse_a, lse_b)
    # Where neither side saw a key both shares are exp(-inf), which is 0.
    base = xp.where(lse == -np.inf, 0.0, lse)
    out = xp.zeros_like(lse)[..., None]
    for part, part_lse in ((out_a, lse_a), (out_b, lse_b)):
        share = xp.exp(part_lse - base)[..., None]
        # A side without a key may hold anything, NaN included, and 0 * NaN would be
        # NaN.
        out = out + share * xp.where(share == 0.0, 0.0, part)
    return out, lse


# ---- dropout -----------------------------------------------------------------------

# Constants of Philox 4x32: Salmon et al. (2011), "Parallel random numbers: as easy as
# 1, 2, 3", SC'11. The two multipliers, the two Weyl increments of the key, the rounds.
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
INCREMENTS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
ROUNDS = 10
LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def philox4x32(
    counter: Sequence[ArrayLike], key: Sequence[ArrayLike]
) -> tuple[Words, Words, Words, Words]:
    """Ten rounds of Philox 4x32.

    counter: four arrays and key: two arrays of 32-bit words, held in uint64. Returns
    the four output words, uint64 below 2^32. One round, with (hi, lo) the halves of a
    64-bit product: x0, x1, x2, x3 ->
    hi(M1·x2) ^ x1 ^ k0,  lo(M1·x2),  hi(M0·x0) ^ x3 ^ k1,  lo(M0·x0).

    Examples
    --------
    >>> [hex(int(word)) for word in philox4x32((0, 0, 0, 0), (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    # Products of two 32-bit words fit in uint64 exactly.
    x0, x1, x2, x3 = (np.asarray(word, dtype=np.uint64) for word in counter)
    k0, k1 = (np.asarray(word, dtype=np.uint64) for word in key)
    for _ in range(ROUNDS):
        # The two 64-bit products are those of x0 and x2; their high halves change
        # places.
        product0, product1 = MULTIPLIERS[0] * x0, MULTIPLIERS[1] * x2
        x0, x1, x2, x3 = (
            (product1 >> SHIFT) ^ x1 ^ k0,
            product1 & LOW,
            (product0 >> SHIFT) ^ x3 ^ k1,
            product0 & LOW,
        )
        k0, k1 = (k0 + INCREMENTS[0]) & LOW, (k1 + INCREMENTS[1]) & LOW
    return x0, x1, x2, x3


def random_seed(rng: Rng) -> np.uint64:
    """One 64-bit seed from an int seed, a Generator or None."""
    # The seed is drawn from the generator once for each call, however many weights
    # there are.
    return as_generator(rng).integers(2**64, dtype=np.uint64)


def dropout_keep(shape: tuple[int, ...], dropout_p: float, seed: np.uint64) -> Bools:
    """keep[..., h, i, j]: True where a weight of `shape` (..., H, Lq, Lk) is kept.

    Word j & 3 of philox4x32(counter = (i, j >> 2, h, b), key = seed) is kept if it is
    at least floor(dropout_p · 2^32); b is the flat index of the batch item.

    Examples
    --------
    >>> kept = dropout_keep((1, 1, 1000, 1000), 0.25, np.uint64(7))
    >>> float(kept.mean().round(2))
    0.75
    """
    *batch, heads, query_length, key_length = shape
    count = int(np.prod(batch, dtype=np.int64))
    # Open grids: each word of the counter has one axis, and Philox broadcasts them.
    b, h, i, j = np.ogrid[:count, :heads, :query_length, :key_length]
    seed = np.uint64(seed)
    # A counter gives four words, which serve four neighbouring keys.
    words = philox4x32((i, j >> 2, h, b), (seed & LOW, seed >> SHIFT))
    full = np.broadcast_arrays(*words)
    word = np.choose(np.broadcast_to(j & 3, full[0].shape), full)
    # The comparison is of integers, so that the result is the same on every machine.
    return (word >= np.uint64(int(dropout_p * 2**32))).reshape(shape)
