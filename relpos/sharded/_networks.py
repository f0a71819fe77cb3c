"""Attention with FIRE's bias, and along the edges of a graph, on dask arrays."""

from __future__ import annotations

from typing import Any

import dask.array as da

import relpos
from relpos._attention.call import Call, as_call
from relpos._attention.edges import Edges
from relpos._attention.schemes import shows_keywords
from relpos._checks import as_floating
from relpos._twins import DASK, twin
from relpos.sharded._forward import attend


@shows_keywords()
@twin(relpos.fire_attention, DASK)
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


@twin(relpos.graph_attention, DASK)
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
    """Attention along the labelled edges of a directed graph, on dask arrays.

    Raises
    ------
    TypeError, ValueError, IndexError
        As `relpos.graph_attention`; ValueError for queries or keys in several chunks.

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
