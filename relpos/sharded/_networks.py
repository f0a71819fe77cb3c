"""Attention with FIRE's bias, and along the edges of a graph, on dask arrays."""

from __future__ import annotations

from typing import Any

import dask.array as da

from relpos._attention.call import Call
from relpos._attention.edges import Edges
from relpos._attention.schemes import shows_keywords
from relpos._checks import as_floating
from relpos.sharded._forward import attend


@shows_keywords()
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
    heads, those of a call for each key head.

    Parameters
    ----------
    query, key, value : dask array or array_like
        As in `attention`.
    w1, b1, w2, b2, c, threshold, signed, eps : as in `relpos.fire_bias`
        FIRE's network; arrays may be dask arrays, which each task has whole.
    **keywords
        Keywords of `attention`.

    Returns
    -------
    dask array or AttentionOutput
        As `attention`; the context gives `relpos.FireAttentionGradients`.

    Raises
    ------
    TypeError, ValueError
        As `relpos.fire_attention`.

    See Also
    --------
    relpos.fire_attention : The same on arrays in memory.

    References
    ----------
    .. [1] Li et al., "Functional Interpolation for Relative Positions Improves Long
       Context Transformers", 2023, arXiv:2310.04418.

    Examples
    --------
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
    return attend(Call(query, key, value, **keywords), fire=fire)


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
    **keywords: Any,
) -> Any:
    r"""Attention along the labelled edges of a directed graph, on dask arrays.

    .. math:: s_e = scale \; q_i (k_j + A_l), \quad out_i = \sum_e p_e (v_j + W_l)

    Chunks are of batch and heads; queries and keys have to be whole, as the edges count
    them.

    Parameters
    ----------
    query, key, value : dask array or array_like
        As in `attention`.
    indptr, indices, labels, edges : as in `relpos.graph_attention`
        The graph; arrays may be dask arrays, which each task has whole.
    rel_key, rel_value : dask array or array_like, optional
        As in `relpos.graph_attention`.
    **keywords
        Those of `relpos.graph_attention`.

    Returns
    -------
    dask array or AttentionOutput
        As `attention`.

    Raises
    ------
    TypeError, ValueError
        As `relpos.graph_attention`; ValueError for queries or keys in several chunks.

    See Also
    --------
    relpos.graph_attention : The same on arrays in memory.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, section 3.1.

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
    tables = {"rel_key": rel_key, "rel_value": rel_value}
    graph = Edges(indptr, indices, labels, edges)
    return attend(Call(query, key, value, **tables, **keywords), edges=graph)
