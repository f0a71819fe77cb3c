"""Attention with FIRE's bias, and along the edges of a graph, on dask arrays."""

from __future__ import annotations

from typing import Any

import dask.array as da

import relpos
from relpos._attention.call import Call, as_call
from relpos._attention.edges import Edges
from relpos._attention.schemes import shows_keywords
from relpos._checks import as_floating
from relpos._twins import twin
from relpos.sharded._forward import attend


@shows_keywords()
@twin(relpos.fire_attention)
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
    r"""Attention with the bias of `relpos.fire_bias`, on dask arrays.

    .. math:: s_{ij} = scale \; q_i k_j + b_{hij}

    and what other terms of `attention` are given. Positions count from the first key of
    the whole, in every block. Results have the same bits for any chunks of batch and
    heads, those of `relpos.fire_attention`.

    Parameters
    ----------
    query : dask array or array_like, (..., H, Lq, D)
        One row for each query.
    key : dask array or array_like, (..., Hk, Lk, D)
        One row for each key.
    value : dask array or array_like, (..., Hk, Lk, Dv)
        What each key has to give.
    w1 : dask array or array_like, (W,) or (W, 1)
        Weights of the hidden layer. Each task has the network whole.
    b1 : dask array or array_like, (W,)
        Its biases.
    w2 : dask array or array_like, (H, W)
        Weights of the output layer, a row for each query head.
    b2 : dask array or array_like, (H,)
        Its biases.
    c : dask array or array_like, ()
        Factor of the distance under the logarithm; a Python number takes no part in the
        promotion of dtypes.
    threshold : dask array or array_like, ()
        Positions below it are normalised as it is; likewise.
    signed : bool, default False
        As in `relpos.fire_bias`.
    eps : float, default 1e-6
        Added to the normaliser.
    **keywords
        Keywords of `attention`.

    Returns
    -------
    dask array or AttentionOutput
        As `attention`; the context gives `relpos.FireAttentionGradients`.

    See Also
    --------
    attention : Has the common keywords, and says what a task is.

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
    given = {"w1": w1, "b1": b1, "w2": w2, "b2": b2, "c": c, "threshold": threshold}
    fire = {
        name: x
        if type(x) in (int, float) or isinstance(x, da.Array)
        else as_floating(name, x)
        for name, x in given.items()
    }
    fire |= {"signed": signed, "eps": eps}
    return attend(as_call(query, key, value, keywords), fire=fire)


@twin(relpos.graph_attention)
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
    position_query: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    scale: float | None = None,
    return_lse: bool = False,
    return_context: bool = False,
    num_threads: int | None = None,
) -> Any:
    r"""Attention along the labelled edges of a directed graph, on dask arrays.

    .. math:: s_e = scale \; q_i (k_j + A_l), \quad out_i = \sum_e p_e (v_j + W_l)

    Chunks are of batch and heads; queries and keys have to be whole, as the edges count
    them. `relpos.graph_attention` has the formula with all its terms.

    Parameters
    ----------
    query : dask array or array_like, (..., H, Lq, D)
        One row for each query.
    key : dask array or array_like, (..., H, Lk, D)
        One row for each key.
    value : dask array or array_like, (..., H, Lk, Dv)
        What each key has to give.
    indptr : dask array or array_like of int, (Lq + 1,), optional
        Where each query's edges begin. Each task has the graph whole, which is shared
        by batch items and heads.
    indices : dask array or array_like of int, (edges,), optional
        Key of each edge. `indptr` and `indices` come together, or `edges` in their
        place.
    labels : dask array or array_like of int, (edges,), optional
        Table row of each edge; negative: no position term. In the order of `indices`,
        or of `edges` as they were given.
    rel_key : dask array or array_like, (R, D), (H, R, D) or (..., H, R, D), optional
        Table A, added to the key.
    rel_value : dask array or array_like, (R, Dv) or (..., H, R, Dv), optional
        Table W, added to the value.
    edges : dask array or array_like of int, (2, edges), or a CSR matrix, optional
        As in `relpos.graph_attention`.
    position_query : dask array or array_like, (..., H, Lq, Dp), optional
        Takes the query's place in the `rel_key` term.
    softcap : float, optional
        As in `attention`.
    sinks : dask array or array_like, (H,), optional
        As in `attention`.
    scale : float, optional
        Default 1 / sqrt(D).
    return_lse, return_context : bool, default False
        As in `attention`.
    num_threads : int, optional
        Of each task, by default 1.

    Returns
    -------
    dask array or AttentionOutput
        As `attention`.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `relpos.graph_attention`; ValueError for queries or keys in several chunks.

    Notes
    -----
    A graph that is not a dask array is read by each task when it runs, in the backward
    again: do not change it before.

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
    call = Call(
        query,
        key,
        value,
        rel_key=rel_key,
        rel_value=rel_value,
        position_query=position_query,
        sinks=sinks,
        scale=scale,
        softcap=softcap,
        return_lse=return_lse,
        return_context=return_context,
        num_threads=num_threads,
    )
    return attend(call, edges=Edges(indptr, indices, labels, edges))
