"""Attention with FIRE's bias, and along the edges of a graph, on tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

import relpos
from relpos._attention.schemes import keywords_of, shows_keywords
from relpos._foreign import module_of
from relpos._twins import TENSORS, twin
from relpos.torch._attention import AttentionOutput, attention, compute

_KEYWORDS = keywords_of(attention)


@shows_keywords((), _KEYWORDS)
@twin(relpos.fire_attention, TENSORS)
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

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of FIRE's parameters too.

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


@twin(relpos.graph_attention, TENSORS)
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
