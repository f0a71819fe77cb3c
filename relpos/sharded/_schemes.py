"""`relpos.attention` and the schemes by name, on dask arrays."""

from __future__ import annotations

from typing import Any

import dask.array as da

import relpos
from relpos._attention.attention import DEFAULTS, as_call
from relpos._attention.schemes import (
    MUSIC,
    TRANSFORMER_XL,
    relative_global_settings,
    shows_keywords,
    transformer_xl_settings,
)
from relpos._checks import as_floating
from relpos._twins import twin
from relpos.sharded._context import LAZY, attend
from relpos.sharded._plan import with_shape

__all__ = [
    "attention",
    "fire_attention",
    "graph_attention",
    "relative_global_attention",
    "shaw_attention",
    "transformer_xl_attention",
]


@shows_keywords()
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **keywords: Any,
) -> Any:
    r"""Attention with every relative-position term, on dask arrays, lazily.

    The arguments and results are those of `relpos.attention`, and nothing is computed
    before ``compute()``. With l the table row of j - i - query_offset,

    .. math::

        s_{ij} &= scale \, [(q_i + u) k_j + (q_i + v) A_l + k_j C_l] + b_l
                  + mask_{ij} \\
        lse_i &= \log \left(e^{sink} + \sum_j e^{s_{ij}}\right), \quad
        out_i = \sum_j e^{s_{ij} - lse_i} (v_j + W_l)

    and the other terms of `relpos.attention`.

    One task computes one chunk of batch, heads, queries and keys, cut as `query` is
    (the keys as `key`); the other arguments are cut alike. Chunks of queries and keys
    are blocks of one sequence: positions, masks, windows and ranges are those of the
    whole. A block that `window`, `is_causal` and, in memory, `key_lengths` and
    `key_ranges` hide has no task. A tree of `relpos.merge_attention`, whose order
    depends on the number of blocks alone, joins the blocks of keys. A cut between heads
    that share a key head is moved to the end of their group.

    Parameters
    ----------
    query, key, value : dask array or array_like
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv): rows of each head. The
        chunks of the query are those of the result.
    attn_mask : dask array or array_like, broadcasts to (..., H, Lq, Lk), optional
        A boolean mask is True where a query may attend. A floating mask is added after
        the scale.
    dropout_p : float, default 0
        Probability of dropping a weight; with the same `rng`, of the same pairs as in
        `relpos.attention`.
    is_causal : bool, default False
        Hide keys at positions after the query's.
    **keywords
        Keywords of `relpos.attention`. Any array may be a dask array; numbers and flags
        may not. `num_threads` are those of each task, by default 1. `out` is refused.

    Returns
    -------
    dask array or AttentionOutput
        `out`, (..., H, Lq, Dv). With any `return_*` flag the named tuple ``(out, lse,
        weights, context)``: lse (..., H, Lq) and weights (..., H, Lq, Lk) as dask
        arrays, a `ShardedContext`; None where not asked for.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `relpos.attention`, for kinds, shapes and dtypes; wrong numbers in dask
        arrays raise where they are computed. ValueError for a dask array whose chunks
        have no known length.

    Notes
    -----
    `out`, `lse` and the gradients of query, key and value have the same bits for any
    number of workers and any chunks of batch and heads. Where queries and keys are
    whole, they are the bits of `relpos.attention`. Tables' gradients have the same bits
    for any number of workers, and differ by rounding between chunks. A task holds its
    chunks of the arguments and results; in the backward those of their gradients, too.

    References
    ----------
    .. [1] Liu, Zaharia, Abbeel, "Ring Attention with Blockwise Transformers for
       Near-Infinite Context", 2023, arXiv:2310.01889.

    Examples
    --------
    A sequence in two blocks of queries by two of keys, with a bias by distance, and
    output and gradient in one run over the blocks:

    >>> import dask
    >>> import dask.array as da
    >>> import numpy as np
    >>> import relpos.sharded
    >>> x = np.random.default_rng(0).standard_normal((2, 6, 4))
    >>> given = {"rel_bias": relpos.alibi_bias(2, 6), "is_causal": True}
    >>> query, key = da.from_array(x, (1, 3, 4)), da.from_array(x, (2, 3, 4))
    >>> result = relpos.sharded.attention(query, key, key, **given, return_context=True)
    >>> result.out.chunks
    ((1, 1), (3, 3), (4,))
    >>> gradients = result.context.backward(da.ones_like(query))
    >>> out, grad_key = dask.compute(result.out, gradients.key)
    >>> bool(np.allclose(out, relpos.attention(x, x, x, **given))), grad_key.shape
    (True, (2, 6, 4))
    """
    masks = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal}
    return attend(as_call(query, key, value, masks | keywords))


@shows_keywords()
@twin(relpos.shaw_attention, LAZY)
def shaw_attention(
    query: Any,
    key: Any,
    value: Any,
    rel_key: Any = None,
    rel_value: Any = None,
    **keywords: Any,
) -> Any:
    """Attention with clipped relative positions (Shaw et al.), on dask arrays.

    Examples
    --------
    Each of three positions reports whether the average key lies before or after it:

    >>> import dask.array as da
    >>> import relpos.sharded
    >>> x, table = da.zeros((1, 3, 1), chunks=(1, 2, 1)), [[-1.0], [0.0], [1.0]]
    >>> relpos.sharded.shaw_attention(x, x, x, rel_value=table).compute().round(2)
    array([[[ 0.67],
            [ 0.  ],
            [-0.67]]])
    """
    return attention(
        query, key, value, rel_key=rel_key, rel_value=rel_value, **keywords
    )


@shows_keywords(**MUSIC)
@twin(relpos.relative_global_attention, LAZY)
def relative_global_attention(
    query: Any, key: Any, value: Any, rel_key: Any, **keywords: Any
) -> Any:
    """Relative attention of the Music Transformer, on dask arrays.

    Examples
    --------
    A table of zeros adds nothing, and weights of equal values sum to 1:

    >>> import dask.array as da
    >>> import relpos.sharded
    >>> x, table = da.ones((1, 4, 1), chunks=(1, 2, 1)), [[0.0]] * 4
    >>> out = relpos.sharded.relative_global_attention(x, x, x, table)
    >>> float(out.sum().compute())
    4.0
    """
    table = with_shape("rel_key", rel_key)
    settings = relative_global_settings(table, keywords)
    return attention(query, key, value, rel_key=table, **settings)


@shows_keywords(**TRANSFORMER_XL)
@twin(relpos.transformer_xl_attention, LAZY)
def transformer_xl_attention(
    query: Any,
    key: Any,
    value: Any,
    rel_key: Any,
    pos_bias_u: Any,
    pos_bias_v: Any,
    **keywords: Any,
) -> Any:
    """Relative attention of Transformer-XL, with memory, on dask arrays.

    Examples
    --------
    Two queries, whose keys begin with two of the memory:

    >>> import dask.array as da
    >>> import relpos.sharded
    >>> query, key = da.ones((1, 2, 1), chunks=1), da.ones((1, 4, 1), chunks=(1, 2, 1))
    >>> rows = key, key, [[0.0]] * 4, [0.0], [0.0]
    >>> relpos.sharded.transformer_xl_attention(query, *rows, is_causal=True).compute()
    array([[[1.],
            [1.]]])
    """
    query, key = with_shape("query", query), with_shape("key", key)
    table = with_shape("rel_key", rel_key)
    settings = transformer_xl_settings(query, key, table, keywords)
    settings |= {"pos_bias_u": pos_bias_u, "pos_bias_v": pos_bias_v}
    return attention(query, key, value, rel_key=table, **settings)


@shows_keywords()
@twin(relpos.fire_attention, LAZY)
def fire_attention(
    query: Any,
    key: Any,
    value: Any,
    w1: Any,
    b1: Any,
    w2: Any,
    b2: Any,
    c: Any,
    threshold: Any,
    *,
    signed: bool = False,
    eps: float = 1e-6,
    **keywords: Any,
) -> Any:
    """Attention with the bias of `relpos.fire_bias`, on dask arrays.

    Parameters
    ----------
    w1, b1, w2, b2, c, threshold, signed, eps : as in `relpos.fire_attention`
        FIRE's network, of dask arrays or array_like.

    Returns
    -------
    dask array or AttentionOutput
        As `attention`; the context gives `relpos.FireAttentionGradients`.

    Notes
    -----
    Each task has the network whole. Positions count from the first key of the whole, in
    every block. Results have the same bits for any chunks of batch and heads, those of
    `relpos.fire_attention`.

    Examples
    --------
    One unit, one head: the farther a key, the less it weighs.

    >>> import dask.array as da
    >>> import relpos.sharded
    >>> x, value = da.zeros((1, 3, 1)), da.from_array([[[1.0], [2.0], [3.0]]])
    >>> rows = x, x, value, [1.0], [0.0], [[-5.0]], [0.0], 1.0, 1.0
    >>> relpos.sharded.fire_attention(*rows, is_causal=True).compute().round(2)
    array([[[1.  ],
            [1.99],
            [2.95]]])
    """
    fire = {"w1": w1, "b1": b1, "w2": w2, "b2": b2, "c": c, "threshold": threshold}
    for name, x in fire.items():
        if type(x) not in (int, float) and not isinstance(x, da.Array):
            fire[name] = as_floating(name, x)
    call = as_call(query, key, value, keywords)
    return attend(call | fire | {"signed": signed, "eps": eps})


@twin(relpos.graph_attention, LAZY)
def graph_attention(
    query: Any,
    key: Any,
    value: Any,
    indptr: Any = None,
    indices: Any = None,
    labels: Any = None,
    rel_key: Any = None,
    rel_value: Any = None,
    *,
    edges: Any = None,
    key_indices: Any = None,
    enable_gqa: bool = False,
    position_query: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    scale: float | None = None,
    return_lse: bool = False,
    return_context: bool = False,
    num_threads: int | None = None,
) -> Any:
    """Attention along the labelled edges of a directed graph, on dask arrays.

    Parameters
    ----------
    return_context : bool, default False
        Also return a `ShardedContext`.
    num_threads : int, optional
        The threads of each task, by default 1.

    Raises
    ------
    ValueError
        Queries or keys come in several chunks.

    Notes
    -----
    Chunks are of batch and heads; queries and keys have to be whole, as the edges count
    them. Each task has the graph whole. A graph that is not a dask array is read by
    each task when it runs, in the backward again: do not change it before. Of
    `key_indices` each task has its batch items, and its heads where each has a group of
    its own.

    Examples
    --------
    Query 0 sees key 1, query 1 both:

    >>> import dask.array as da
    >>> import relpos.sharded
    >>> x, value = da.zeros((1, 2, 1)), da.from_array([[[1.0], [2.0]]])
    >>> relpos.sharded.graph_attention(x, x, value, [0, 1, 3], [1, 0, 1]).compute()
    array([[[2. ],
            [1.5]]])
    """
    has_picks = key_indices is not None
    call = {
        "query": query,
        "key": key,
        "value": value,
        "indptr": indptr,
        "indices": indices,
        # one for each edge; `labels` are of pairs
        "edge_labels": None if has_picks else labels,
        "key_labels": labels if has_picks else None,
        "rel_key": rel_key,
        "rel_value": rel_value,
        "edges": edges,
        "key_indices": key_indices,
        "enable_gqa": enable_gqa,
        "position_query": position_query,
        "softcap": softcap,
        "sinks": sinks,
        "scale": scale,
        "return_lse": return_lse,
        "return_context": return_context,
        "num_threads": num_threads,
    }
    return attend(DEFAULTS | call)
