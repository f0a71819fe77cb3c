"""Attention with FIRE's bias, and along the edges of a graph, on tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

import relpos
from relpos._attention.schemes import keywords_of, shows_keywords
from relpos._foreign import module_of
from relpos._twins import twin
from relpos.torch._attention import AttentionOutput, attention, compute

_KEYWORDS = keywords_of(attention)


@shows_keywords((), _KEYWORDS)
@twin(relpos.fire_attention)
def fire_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    c: Tensor | float,
    threshold: Tensor | float,
    *,
    signed: bool = False,
    eps: float = 1e-6,
    **keywords: Any,
) -> Tensor | AttentionOutput:
    """Attention with the bias of `fire_bias`, of which nothing Lq x Lk is stored.

    Parameters
    ----------
    query : Tensor, (..., H, Lq, D)
        One row for each query.
    key : Tensor, (..., Hk, Lk, D)
        One row for each key.
    value : Tensor, (..., Hk, Lk, Dv)
        What each key has to give.
    w1, b1, w2, b2 : Tensor
        FIRE's network, as in `fire_bias`; w2 has a row for each query head.
    c, threshold : Tensor of one number, or float
        As in `fire_bias`. A float has no gradient, and takes no part in the promotion
        of dtypes.
    signed, eps : as in `fire_bias`
        Whether the direction counts, and what is added to the normaliser.
    **keywords
        Keywords of `attention`.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of FIRE's parameters too.

    See Also
    --------
    attention : Has the common keywords.

    Examples
    --------
    One unit, one head: the farther a key, the less it weighs.

    >>> import torch
    >>> import relpos.torch
    >>> x, value = torch.zeros(1, 3, 1), torch.tensor([[[1.0], [2.0], [3.0]]])
    >>> one, zero = torch.ones(1), torch.zeros(1)
    >>> network = one, zero, -5 * one[:, None], zero, 1.0, 1.0
    >>> relpos.torch.fire_attention(x, x, value, *network, is_causal=True)[0, :, 0]
    tensor([1.0000, 1.9933, 2.9465])
    """
    for name in keywords:
        if name not in _KEYWORDS:
            raise TypeError(f"fire_attention() got an unexpected keyword {name!r}")
    rng, return_lse = keywords.pop("rng", None), keywords.pop("return_lse", False)
    given = {"query": query, "key": key, "value": value, **keywords}
    given |= {"w1": w1, "b1": b1, "w2": w2, "b2": b2}
    fire: dict[str, Any] = {"signed": signed, "eps": eps}
    for name, number in (("c", c), ("threshold", threshold)):
        (given if isinstance(number, Tensor) else fire)[name] = number
    return compute(given, return_lse, rng, fire=fire)


@twin(relpos.graph_attention)
def graph_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    indptr: Tensor | None = None,
    indices: Tensor | None = None,
    labels: Tensor | None = None,
    rel_key: Tensor | None = None,
    rel_value: Tensor | None = None,
    *,
    edges: Any = None,
    position_query: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    num_threads: int | None = None,
) -> Tensor | AttentionOutput:
    """Attention along the labelled edges of a directed graph.

    Parameters
    ----------
    query : Tensor, (..., H, Lq, D)
        One row for each query.
    key : Tensor, (..., H, Lk, D)
        One row for each key.
    value : Tensor, (..., H, Lk, Dv)
        What each key has to give.
    indptr : Tensor of int, (Lq + 1,), optional
        Where each query's edges begin; rises from 0 to the number of edges. The graph
        is shared by batch items and heads.
    indices : Tensor of int, (edges,), optional
        Key of each edge, from 0 to Lk - 1. `indptr` and `indices` come together, or
        `edges` in their place.
    labels : Tensor of int, (edges,), optional
        Table row of each edge; negative: no position term. Needed by the tables. In the
        order of `indices`, or of `edges` as they were given.
    rel_key : Tensor, (R, D), (H, R, D) or (..., H, R, D), optional
        Table added to the key.
    rel_value : Tensor, (R, Dv), (H, R, Dv) or (..., H, R, Dv), optional
        Table added to the value; it may have its own R.
    edges : Tensor of int, (2, edges), or CSR matrix of scipy.sparse, optional
        Key of each edge in row 0 and its query in row 1, in any order: source and
        target, as `edge_index` of PyTorch Geometric. Or a matrix (Lq, Lk), whose rows
        are queries: each entry that it stores is an edge, zeros too; its numbers are
        not read.
    position_query : Tensor, (..., H, Lq, Dp), optional
        Takes the query's place beside `rel_key`, of Dp columns; not scaled.
    softcap : float, optional
        A number c > 0: each score x becomes c tanh(x / c).
    sinks : Tensor, (H,), optional
        A logit of each head that has no key and no value: exp(sinks) is part of the sum
        of every query's edges, and of lse. -inf: none.
    scale : float, optional
        Default 1 / sqrt(D).
    return_lse : bool, default False
        Also return lse (..., H, Lq), which has gradients.
    num_threads : int, optional
        Default `torch.get_num_threads()`. Neither the result nor its gradients depend
        on it, bit for bit.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`.

    Notes
    -----
    `edges` are sorted by query, those of one query staying in their order: 7 to 45 ns
    an edge, and the same bits as the sorted `indptr` and `indices`. The backward takes
    8 to 16 bytes per edge for as many heads at a time as fit 512 kB, and 16 to 24 bytes
    per edge once.

    Examples
    --------
    Query 0 sees keys 0 and 2, query 1 nothing, query 2 itself, under label 1:

    >>> import torch
    >>> import relpos.torch
    >>> x, value = torch.zeros(1, 3, 2), torch.tensor([[[1.0], [2.0], [3.0]]])
    >>> edges = torch.tensor([[0, 2, 2], [0, 0, 2]])
    >>> rel_value = torch.tensor([[0.0], [10.0]])
    >>> labels = torch.tensor([0, 0, 1])
    >>> relpos.torch.graph_attention(
    ...     x, x, value, edges=edges, labels=labels, rel_value=rel_value)[0, :, 0]
    tensor([ 2.,  0., 13.])
    """
    given = {
        "query": query,
        "key": key,
        "value": value,
        "indptr": indptr,
        "indices": indices,
        "edge_labels": labels,
        "rel_key": rel_key,
        "rel_value": rel_value,
        "position_query": position_query,
        "softcap": softcap,
        "sinks": sinks,
        "scale": scale,
        "num_threads": num_threads,
    }
    graph = {}
    if module_of(edges, "scipy.sparse"):
        graph["edges"] = edges
    else:
        given["edges"] = edges
    return compute(given, return_lse, graph=graph)
