r"""Attention along the labelled edges of a directed graph, in O(edges) time and memory.

With e = (i, j, l) the edges of query i, A `rel_key` and W `rel_value` (R, D | Dv),

    s_e = scale * q_i.(k_j + A[l]),   out_i = sum_e softmax_e(s) * (v_j + W[l])

and with a position query e, s_e = scale * q_i.k_j + e_i.A[l].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relpos._attention.attention import attend
from relpos._attention.call import Call
from relpos._attention.edges import Edges
from relpos._attention.results import AttentionOutput
from relpos._checks import Array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from relpos._attention.edges import SparseRows


def graph_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    indptr: ArrayLike | None = None,
    indices: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    rel_key: ArrayLike | None = None,
    rel_value: ArrayLike | None = None,
    *,
    edges: ArrayLike | SparseRows | None = None,
    position_query: ArrayLike | None = None,
    softcap: float | None = None,
    sinks: ArrayLike | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    return_context: bool = False,
    num_threads: int | None = None,
) -> Array | AttentionOutput:
    r"""Attention along the labelled edges of a directed graph.

    Query i attends to the keys ``indices[e]`` with ``indptr[i] <= e < indptr[i + 1]``
    and to no other (compressed sparse rows, as in `scipy.sparse`); or the graph comes
    as a list of `edges`. With j the key and l the label of edge e,

    .. math::

        s_e &= scale \; q_i (k_j + A_l) \\
        lse_i &= \log \left(e^{sink} + \sum_{e \text{ of } i} e^{s_e}\right), \quad
            p_e = e^{s_e - lse_i} \\
        out_i &= \sum_{e \text{ of } i} p_e (v_j + W_l)

    where A is `rel_key`, W `rel_value` and sink the head's entry of `sinks`, -inf by
    default; with a `position_query` e, :math:`e_i A_l` takes the place of
    :math:`scale \, q_i A_l`. This is `attention` with ``labels`` and all absent edges
    masked, in time and memory that grow with the edges instead of Lq Lk. Edges may come
    in any order. One that stands twice counts twice: as if the key were there twice,
    with the label of each. A query without edges gets out 0 and lse = sink.

    Parameters
    ----------
    query : array_like, (..., H, Lq, D)
        One row for each query.
    key : array_like, (..., H, Lk, D)
        One row for each key.
    value : array_like, (..., H, Lk, Dv)
        What each key has to give.
    indptr : array_like of int, (Lq + 1,), optional
        Where each query's edges begin; rises from 0 to the number of edges. The graph
        is shared by batch items and heads.
    indices : array_like of int, (edges,), optional
        Key of each edge, from 0 to Lk - 1. `indptr` and `indices` come together, or
        `edges` in their place.
    labels : array_like of int, (edges,), optional
        Table row of each edge; negative: no position term. Needed by the tables. In the
        order of `indices`, or of `edges` as they were given.
    rel_key : array_like, (R, D), (H, R, D) or (..., H, R, D), optional
        Table added to the key.
    rel_value : array_like, (R, Dv), (H, R, Dv) or (..., H, R, Dv), optional
        Table added to the value; it may have its own R.
    edges : array_like of int, (2, edges), or CSR matrix of scipy.sparse, optional
        Key of each edge in row 0 and its query in row 1, in any order: source and
        target, as `edge_index` of PyTorch Geometric. Or a matrix (Lq, Lk), whose rows
        are queries: each entry that it stores is an edge, zeros too; its numbers are
        not read (``labels=matrix.data`` makes them labels, if they are integers).
    position_query : array_like, (..., H, Lq, Dp), optional
        Takes the query's place beside `rel_key`, of Dp columns; not scaled.
    softcap : float, optional
        A number c > 0: each score x becomes c tanh(x / c).
    sinks : array_like, (H,), optional
        A logit of each head that has no key and no value: exp(sinks) is part of the sum
        of every query's edges, and of lse. -inf: none.
    scale : float, optional
        Default 1 / sqrt(D).
    return_lse : bool, default False
        Also return lse (..., H, Lq).
    return_context : bool, default False
        Also return an `AttentionContext`, whose `~AttentionContext.backward` gives the
        gradients of query, key, value, rel_key, rel_value, position_query and sinks.
    num_threads : int, optional
        Default `get_num_threads()`. Neither the result nor its gradients depend on it,
        bit for bit.

    Returns
    -------
    ndarray or AttentionOutput
        `out`, (..., H, Lq, Dv). With any `return_*` flag the named tuple
        ``(out, lse, weights, context)``; weights is always None.

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        A shape does not fit, `indptr` does not rise from 0 to the number of edges,
        `edges` came beside `indptr` or `indices`, or a table without `labels`.
    IndexError
        An index is outside the keys or the queries, or a label outside a table.
    MemoryError
        Out of memory.

    See Also
    --------
    attention : With ``labels=`` the same for a label on every pair.
    shaw_attention : The labels of a sequence.
    relpos.plot.attention_graph : Draws the graph.
    AttentionContext.backward : The gradients.

    Notes
    -----
    `indptr`, `indices`, `labels` and `edges` are copied; changing them later does no
    harm. `edges` are sorted by query, those of one query staying in their order: 7 to
    45 ns an edge, and the same bits as the sorted `indptr` and `indices`.
    The backward takes 8 to 16 bytes per edge for as many heads at a time as fit 512 kB,
    and 16 to 24 bytes per edge once.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, section 3.1.

    Examples
    --------
    Query 0 sees keys 0 and 2, query 1 nothing, query 2 itself, under label 1:

    >>> import numpy as np
    >>> import relpos
    >>> x = np.zeros((1, 3, 2))
    >>> value = np.array([[[1.0], [2.0], [3.0]]])
    >>> indptr, indices, labels = [0, 2, 2, 3], [0, 2, 2], [0, 0, 1]
    >>> rel_value = [[0.0], [10.0]]
    >>> relpos.graph_attention(
    ...     x, x, value, indptr, indices, labels, rel_value=rel_value)
    array([[[ 2.],
            [ 0.],
            [13.]]])

    The same as a list of edges, keys above queries:

    >>> edges = [[2, 0, 2], [2, 0, 0]]
    >>> relpos.graph_attention(
    ...     x, x, value, edges=edges, labels=[1, 0, 0], rel_value=rel_value)
    array([[[ 2.],
            [ 0.],
            [13.]]])
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
