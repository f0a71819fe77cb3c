"""The named schemes as their papers write them, and their dense scores."""

from __future__ import annotations

import numpy as np

from relpos.reference._typing import ArrayLike, Floats
from relpos.reference.pairs import (
    Result,
    allowed,
    attend,
    float64,
    gather,
    offset_of,
    relative,
    softmax,
    table_or_none,
    table_rows,
)

__all__ = [
    "relative_global_attention",
    "shaw_attention",
    "shaw_attention_split",
    "shaw_scores",
    "skewed_scores",
    "transformer_xl_attention",
    "transformer_xl_scores",
]


def default_scale(scale: float | None, query: Floats) -> float:
    """1/√D unless given."""
    return float(1.0 / np.sqrt(query.shape[-1])) if scale is None else scale


def shaw_scores(
    query: ArrayLike,
    key: ArrayLike,
    rel_key: ArrayLike,
    *,
    scale: float | None = None,
    query_offset: ArrayLike | None = None,
) -> Floats:
    """e_ij = scale · q_i·(k_j + a^K_ij), a_ij = row clip(r(i, j), -k, k) + k.

    Shaw et al., equation 4. rel_key (2k+1, D), (H, 2k+1, D) or with batch axes.
    Returns (..., H, Lq, Lk).

    See Also
    --------
    relpos.shaw_scores : By the kernels; describes the arguments.
    shaw_attention : The attention of these scores.

    Examples
    --------
    >>> q = np.ones((1, 2, 1))
    >>> shaw_scores(q, 0 * q, np.array([[-1.0], [0.0], [1.0]]))
    array([[[ 0.,  1.],
            [-1.,  0.]]])
    """
    q, k, a = float64(query, key, rel_key)
    r = relative(q.shape[-2], k.shape[-2], offset_of(query_offset, q, k))
    keys = k[..., None, :, :] + gather(a, *table_rows(r, a.shape[-2]))
    e: Floats = np.einsum("...id,...ijd->...ij", q, keys)
    return default_scale(scale, q) * e


def shaw_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike | None = None,
    rel_value: ArrayLike | None = None,
    attn_mask: ArrayLike | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    query_offset: ArrayLike | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Result:
    """Shaw et al., equations 3 and 4, as printed.

    e_ij = q_i·(k_j + a^K_ij) / √d (4),  p = softmax(e),
    z_i = Σ_j p_ij·(v_j + a^V_ij) (3). A table that is None is a table of zeros.

    See Also
    --------
    relpos.shaw_attention : By the kernels; describes the arguments.
    shaw_attention_split : Equation 5 instead.

    References
    ----------
    Shaw, Uszkoreit, Vaswani (2018), arXiv:1803.02155.

    Examples
    --------
    >>> x = np.zeros((1, 2, 1))
    >>> shaw_attention(x, x, x, rel_value=np.array([[-1.0], [0.0], [1.0]]))
    array([[[ 0.5],
            [-0.5]]])
    """
    q, k, v = float64(query, key, value)
    a_value = table_or_none(rel_value)
    if rel_key is None:
        rel_key = np.zeros((1, q.shape[-1]))
    e = shaw_scores(q, k, rel_key, scale=scale, query_offset=query_offset)
    r = relative(q.shape[-2], k.shape[-2], offset_of(query_offset, q, k))
    values = v[..., None, :, :]
    if a_value is not None:
        values = values + gather(a_value, *table_rows(r, a_value.shape[-2]))
    return attend(
        e,
        values,
        allowed(r, is_causal),
        attn_mask,
        return_lse=return_lse,
        return_weights=return_weights,
    )


def shaw_attention_split(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike,
    rel_value: ArrayLike,
    *,
    is_causal: bool = False,
) -> Floats:
    """The same attention by Shaw et al., equation 5: two products instead of one.

    e_ij = (q_i·k_j + q_i·a^K_ij) / √d, and the second product is done for one query
    position at a time over all batch items and heads at once: for each i, a matrix
    (b·h, d) times (d, n). The values split the same way. Self-attention, Lq = Lk.

    See Also
    --------
    shaw_attention : Equations 3 and 4.

    References
    ----------
    Shaw, Uszkoreit, Vaswani (2018), section 3.3, arXiv:1803.02155.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q, k, v = rng.normal(size=(3, 2, 4, 8))
    >>> a, w = rng.normal(size=(2, 5, 8))
    >>> split = shaw_attention_split(q, k, v, a, w)
    >>> bool(np.abs(split - shaw_attention(q, k, v, a, w)).max() < 1e-14)
    True
    """
    q, k, v, a_key, a_value = float64(query, key, value, rel_key, rel_value)
    r = relative(q.shape[-2], k.shape[-2])[0]
    a_key = a_key[table_rows(r, a_key.shape[-2])[0]]
    a_value = a_value[table_rows(r, a_value.shape[-2])[0]]
    n, d = q.shape[-2:]
    e = q @ np.swapaxes(k, -1, -2)
    for i in range(n):
        e[..., i, :] += (q[..., i, :].reshape(-1, d) @ a_key[i].T).reshape(
            *q.shape[:-2], n
        )
    e = e / np.sqrt(d)
    p, _ = softmax(np.where(allowed(r, is_causal), e, -np.inf))
    z = p @ v
    for i in range(n):
        z[..., i, :] += p[..., i, :] @ a_value[i]
    return z


def skewed_scores(
    query: ArrayLike,
    key: ArrayLike,
    rel_key: ArrayLike,
    *,
    is_causal: bool,
    scale: float | None = None,
    query_offset: ArrayLike | None = None,
    min_relative_position: int | None = None,
) -> Floats:
    """scale · (q_i·k_j + q_i·e_r): Music Transformer, S_rel gathered and not skewed.

    Row t of rel_key belongs to relative position t - (R - 1) if is_causal, else to
    t - (R - 1)/2 (R odd), or to t + min_relative_position where that is given. A pair
    outside the table gets no position term. Returns (..., H, Lq, Lk), not masked.

    See Also
    --------
    relpos.skewed_scores : By the kernels; describes the arguments.
    relative_global_attention : The attention of these scores.

    References
    ----------
    Huang et al. (2018), equation 3, arXiv:1809.04281.

    Examples
    --------
    >>> q = np.ones((1, 2, 1))
    >>> skewed_scores(q, 0 * q, np.array([[-1.0], [5.0]]), is_causal=True)
    array([[[ 5.,  0.],
            [-1.,  5.]]])
    """
    q, k, e = float64(query, key, rel_key)
    r = relative(q.shape[-2], k.shape[-2], offset_of(query_offset, q, k))
    first = music_origin(e, is_causal, min_relative_position)
    rows = table_rows(r, e.shape[-2], first, beyond="zero")
    s_rel: Floats = np.einsum("...id,...ijd->...ij", q, gather(e, *rows))
    return default_scale(scale, q) * (q @ np.swapaxes(k, -1, -2) + s_rel)


def music_origin(table: Floats, is_causal: bool, given: int | None) -> int | None:
    """Relative position of row 0; None: the table is centred."""
    return 1 - table.shape[-2] if given is None and is_causal else given


def relative_global_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike,
    attn_mask: ArrayLike | None = None,
    *,
    is_causal: bool = True,
    scale: float | None = None,
    query_offset: ArrayLike | None = None,
    min_relative_position: int | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Result:
    """softmax((Q·Kᵀ + S_rel)/√D)·V, S_rel[i, j] = q_i·e_r(i,j). Music Transformer.

    rel_key: rows -(max_len - 1)..0 if is_causal, else -(max_len - 1)..max_len - 1, or
    from min_relative_position on. A visible pair outside the table is an IndexError.

    See Also
    --------
    relpos.relative_global_attention : By the kernels; describes the arguments.

    References
    ----------
    Huang et al. (2018), equation 3, arXiv:1809.04281.

    Examples
    --------
    >>> x = np.eye(2)[None]
    >>> relative_global_attention(x, x, x, np.zeros((2, 2))).round(2)
    array([[[1.  , 0.  ],
            [0.33, 0.67]]])
    """
    q, k, v, e = float64(query, key, value, rel_key)
    r = relative(q.shape[-2], k.shape[-2], offset_of(query_offset, q, k))
    see = allowed(r, is_causal)
    first = music_origin(e, is_causal, min_relative_position)
    table_rows(r, e.shape[-2], first, beyond="raise", see=see)
    s = skewed_scores(
        q,
        k,
        e,
        is_causal=is_causal,
        scale=scale,
        query_offset=query_offset,
        min_relative_position=first,
    )
    return attend(
        s,
        v[..., None, :, :],
        see,
        attn_mask,
        return_lse=return_lse,
        return_weights=return_weights,
    )


def transformer_xl_scores(
    query: ArrayLike,
    key: ArrayLike,
    rel_key: ArrayLike,
    pos_bias_u: ArrayLike,
    pos_bias_v: ArrayLike,
    *,
    scale: float | None = None,
    query_offset: ArrayLike | None = None,
    min_relative_position: int | None = None,
) -> Floats:
    """scale · (q_i·k_j + q_i·R_r + u·k_j + v·R_r): terms (a), (b), (c), (d).

    rel_key: the projected R of Lk, Lk + Lq - 1 or 2 Lk - 1 rows, row t belongs to
    relative position t - (Lk - 1); or of any length, from min_relative_position on. A
    pair outside it gets no position term. query_offset: Lk - Lq unless given, the
    queries are the last of the keys. Returns (..., H, Lq, Lk), not masked.

    See Also
    --------
    relpos.transformer_xl_scores : By the kernels; describes the arguments.
    transformer_xl_attention : The attention of these scores.

    References
    ----------
    Dai et al. (2019), section 3.3, arXiv:1901.02860.

    Examples
    --------
    >>> q = np.zeros((1, 1, 1))
    >>> transformer_xl_scores(q, q[:, [0, 0]], [[2.0], [3.0]], [0.0], [1.0])
    array([[[2., 3.]]])
    """
    q, k, rel, u, v = float64(query, key, rel_key, pos_bias_u, pos_bias_v)
    query_length, key_length = q.shape[-2], k.shape[-2]
    offset = key_length - query_length if query_offset is None else query_offset
    r = relative(query_length, key_length, offset)
    first = xl_origin(rel, query_length, key_length, min_relative_position)
    rows = table_rows(r, rel.shape[-2], first, beyond="zero")
    rel = gather(rel, *rows)
    content: Floats = np.einsum("...id,...jd->...ij", q, k)
    position = np.einsum("...id,...ijd->...ij", q, rel)
    content_bias = np.einsum("...d,...jd->...j", u, k)[..., None, :]
    position_bias = np.einsum("...d,...ijd->...ij", v, rel)
    total: Floats = content + position + content_bias + position_bias
    return default_scale(scale, q) * total


def xl_origin(table: Floats, lq: int, lk: int, given: int | None) -> int:
    """Relative position of row 0, which the number of rows tells if nobody does."""
    if given is not None:
        return given
    rows = table.shape[-2]
    if lk and rows not in (lk, lk + lq - 1, 2 * lk - 1):
        raise ValueError(
            f"rel_key: {rows} rows for {lq} queries and {lk} keys do not tell where "
            "the table begins, so min_relative_position must be given"
        )
    return 1 - lk


def transformer_xl_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    rel_key: ArrayLike,
    pos_bias_u: ArrayLike,
    pos_bias_v: ArrayLike,
    attn_mask: ArrayLike | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    query_offset: ArrayLike | None = None,
    min_relative_position: int | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Result:
    """softmax of `transformer_xl_scores`, times V: Transformer-XL and Conformer.

    rel_key has Lk rows for is_causal=True, Lk + Lq - 1 or 2 Lk - 1 for both directions,
    or any number from min_relative_position on. A visible pair outside the table is an
    IndexError.

    See Also
    --------
    relpos.transformer_xl_attention : By the kernels; describes the arguments.

    References
    ----------
    Dai et al. (2019), section 3.3, arXiv:1901.02860.

    Examples
    --------
    >>> x, zero = np.eye(2)[None], np.zeros(2)
    >>> args = np.zeros((2, 2)), zero, zero
    >>> transformer_xl_attention(x, x, x, *args, is_causal=True).round(2)
    array([[[1.  , 0.  ],
            [0.33, 0.67]]])
    """
    q, k, v, rel = float64(query, key, value, rel_key)
    query_length, key_length = q.shape[-2], k.shape[-2]
    offset = key_length - query_length if query_offset is None else query_offset
    r = relative(query_length, key_length, offset)
    see = allowed(r, is_causal)
    first = xl_origin(rel, query_length, key_length, min_relative_position)
    table_rows(r, rel.shape[-2], first, beyond="raise", see=see)
    s = transformer_xl_scores(
        q,
        k,
        rel,
        pos_bias_u,
        pos_bias_v,
        scale=scale,
        query_offset=offset,
        min_relative_position=first,
    )
    return attend(
        s,
        v[..., None, :, :],
        see,
        attn_mask,
        return_lse=return_lse,
        return_weights=return_weights,
    )
