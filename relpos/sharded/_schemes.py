"""`relpos.attention` and the schemes by name, on dask arrays."""

from __future__ import annotations

from typing import Any

import dask.array as da

import relpos
from relpos._attention.call import as_call
from relpos._attention.schemes import (
    MUSIC,
    TRANSFORMER_XL,
    relative_global_settings,
    shows_keywords,
    transformer_xl_settings,
)
from relpos._checks import as_floating
from relpos._twins import twin
from relpos.sharded._forward import attend
from relpos.sharded._grid import refuse_unknown


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

    `relpos.attention` for arrays that one machine does not hold, or one process not in
    time: the same arguments and results, of which nothing is computed before they are
    asked to be (``compute()``). With l the table row of j - i - query_offset,

    .. math::

        s_{ij} &= scale \, [(q_i + u) k_j + (q_i + v) A_l + k_j C_l] + b_l
                  + mask_{ij} \\
        lse_i &= \log \left(e^{sink} + \sum_j e^{s_{ij}}\right), \quad
        out_i = \sum_j e^{s_{ij} - lse_i} (v_j + W_l)

    and the other terms of `relpos.attention`.

    One task is one chunk of batch, heads, queries and keys, cut as `query` is (the keys
    as `key`); the other arguments are cut alike. Chunks of queries and keys are blocks
    of one sequence: positions, masks, windows and ranges are those of the whole. Blocks
    that `window`, `is_causal` and, in memory, `key_lengths` and `key_ranges` hide have
    no task, and blocks of keys are joined by a tree of `relpos.merge_attention` whose
    order their number sets. A cut between heads that share a key head is moved to the
    end of their group.

    Parameters
    ----------
    query : dask array or array_like, (..., H, Lq, D)
        One row for each query. Its chunks are those of the result.
    key : dask array or array_like, (..., Hk, Lk, D)
        One row for each key.
    value : dask array or array_like, (..., Hk, Lk, Dv)
        What each key has to give.
    attn_mask : dask array or array_like, broadcasts to (..., H, Lq, Lk), optional
        Of bool: True = may attend. Floating: added after the scale.
    dropout_p : float, default 0
        Probability of dropping a weight; with the same `rng`, of the same pairs as in
        `relpos.attention`.
    is_causal : bool, default False
        Hide keys at positions after the query's.
    **keywords
        Those of `relpos.attention`: tables (`rel_key`, `rel_value`, `rel_bias`, ..),
        what hides keys (`window`, `key_lengths`, ..), what to return (`return_lse`,
        `return_context`, ..). Any array may be one of dask, numbers and flags may not.
        `num_threads` are those of each task, by default 1. `out` is refused.

    Returns
    -------
    dask array or AttentionOutput
        `out`, (..., H, Lq, Dv). With any `return_*` flag the named tuple ``(out, lse,
        weights, context)``: lse (..., H, Lq) and weights (..., H, Lq, Lk) as dask
        arrays, a `ShardedContext`; None where not asked for.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `relpos.attention`, by what is known before anything is computed: kinds,
        shapes and dtypes. What is wrong with numbers in dask arrays raises where they
        are computed; an index into labels or log_decay counts within a chunk there.
        ValueError for a dask array whose chunks have no known length.

    See Also
    --------
    ShardedContext.backward : The gradients.
    relpos.attention : The same on arrays in memory, with all that it says of its
        arguments.

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
    A sequence in two blocks of queries by two of keys, a bias by distance:

    >>> import dask
    >>> import dask.array as da
    >>> import numpy as np
    >>> import relpos.sharded
    >>> x = np.random.default_rng(0).standard_normal((2, 6, 4))
    >>> bias = relpos.alibi_bias(2, 6)
    >>> query, key = da.from_array(x, (1, 3, 4)), da.from_array(x, (2, 3, 4))
    >>> result = relpos.sharded.attention(
    ...     query, key, key, rel_bias=bias, is_causal=True, return_context=True
    ... )
    >>> result.out.chunks
    ((1, 1), (3, 3), (4,))
    >>> whole = relpos.attention(x, x, x, rel_bias=bias, is_causal=True)
    >>> bool(np.allclose(result.out.compute(), whole))
    True

    Output and gradients at once, in one run over the blocks:

    >>> gradients = result.context.backward(da.ones_like(query))
    >>> out, grad_key = dask.compute(result.out, gradients.key)
    >>> out.shape, grad_key.shape
    ((2, 6, 4), (2, 6, 4))
    """
    masks = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal}
    return attend(as_call(query, key, value, masks | keywords))


@shows_keywords()
@twin(relpos.shaw_attention)
def shaw_attention(
    query: Any,
    key: Any,
    value: Any,
    rel_key: Any = None,
    rel_value: Any = None,
    **keywords: Any,
) -> Any:
    """Attention with clipped relative positions (Shaw et al.), on dask arrays.

    Parameters
    ----------
    query : dask array or array_like, (..., H, Lq, D)
        One row for each query.
    key : dask array or array_like, (..., Hk, Lk, D)
        One row for each key.
    value : dask array or array_like, (..., Hk, Lk, Dv)
        What each key has to give.
    rel_key : dask array or array_like, (2k+1, D) or (..., H, 2k+1, D), optional
        The a^K; None leaves the term out. k = 0 is legal.
    rel_value : dask array or array_like, (2k+1, Dv) or (..., H, 2k+1, Dv), optional
        The a^V; None leaves the term out. Its k may differ.
    **keywords
        Keywords of `attention`.

    Returns
    -------
    dask array or AttentionOutput
        As `attention`.

    See Also
    --------
    attention : Has the common keywords, and says what a task is.

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
@twin(relpos.relative_global_attention)
def relative_global_attention(
    query: Any, key: Any, value: Any, rel_key: Any, **keywords: Any
) -> Any:
    """Relative attention of the Music Transformer, on dask arrays.

    Parameters
    ----------
    query : dask array or array_like, (..., H, Lq, D)
        One row for each query.
    key : dask array or array_like, (..., Hk, Lk, D)
        One row for each key.
    value : dask array or array_like, (..., Hk, Lk, Dv)
        What each key has to give.
    rel_key : dask array or array_like, (R, D), (H, R, D) or (..., H, R, D)
        E_r, rows ascending in relative position: -(R-1)..0 when causal (R = max_len),
        -(R-1)/2..(R-1)/2 otherwise (R = 2 max_len - 1).
    **keywords
        Keywords of `attention`; `is_causal` is True and `beyond` "raise" by default.

    Returns
    -------
    dask array or AttentionOutput
        As `attention`.

    See Also
    --------
    attention : Has the common keywords, and says what a task is.

    Examples
    --------
    A table of zeros adds nothing, and weights of equal values sum to 1:

    >>> import dask.array as da
    >>> import relpos.sharded
    >>> x, table = da.ones((1, 4, 1), chunks=(1, 2, 1)), [[0.0]] * 4
    >>> relpos.sharded.relative_global_attention(x, x, x, table).sum().compute()
    np.float64(4.0)
    """
    table = _with_shape("rel_key", rel_key)
    settings = relative_global_settings(table, keywords)
    return attention(query, key, value, rel_key=table, **settings)


@shows_keywords(**TRANSFORMER_XL)
@twin(relpos.transformer_xl_attention)
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

    Parameters
    ----------
    query : dask array or array_like, (..., H, Lq, D)
        One row for each query.
    key : dask array or array_like, (..., Hk, Lk, D)
        One row for each key, those of the memory first.
    value : dask array or array_like, (..., Hk, Lk, Dv)
        What each key has to give.
    rel_key : dask array or array_like, (R, D), (H, R, D) or (..., H, R, D)
        The projected sinusoids, rows ascending in relative position from -(Lk-1).
        R = Lk serves ``is_causal=True``, R = Lk + Lq - 1 or 2 Lk - 1 both directions
        (Conformer). A table of any other length needs `min_relative_position`.
    pos_bias_u, pos_bias_v : dask array or array_like, (D,) or (..., H, D), or None
        Biases u of the content term and v of the position term; None leaves one out.
    **keywords
        Keywords of `attention`; `query_offset` is Lk - Lq, `min_relative_position`
        -(Lk-1) and `beyond` "raise" by default.

    Returns
    -------
    dask array or AttentionOutput
        As `attention`.

    See Also
    --------
    attention : Has the common keywords, and says what a task is.

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
    query, key = _with_shape("query", query), _with_shape("key", key)
    table = _with_shape("rel_key", rel_key)
    biases = {"pos_bias_u": pos_bias_u, "pos_bias_v": pos_bias_v}
    settings = transformer_xl_settings(query, key, table, keywords)
    return attention(query, key, value, rel_key=table, **biases, **settings)


def _with_shape(name: str, value: Any) -> Any:
    if not isinstance(value, da.Array):
        return as_floating(name, value)
    refuse_unknown(name, value)
    return value
