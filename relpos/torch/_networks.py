"""Attention with FIRE's bias, and along the edges of a graph, on tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from relpos._attention.schemes import keywords_of, shows_keywords
from relpos._foreign import module_of
from relpos.torch._attention import AttentionOutput, attention, compute

_KEYWORDS = keywords_of(attention)


@shows_keywords((), _KEYWORDS)
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
    r"""Attention with the bias of `fire_bias`, of which nothing Lq x Lk is stored.

    .. math:: s_{ij} = scale \; q_i k_j + b_{hij}

    and what other terms of `attention` are given.

    Parameters
    ----------
    query, key, value : Tensor, (..., H, L, D)
        As in `attention`.
    w1, b1, w2, b2 : Tensor
        FIRE's network, as in `fire_bias`; w2 has a row for each query head.
    c, threshold : Tensor of one number, or float
        A float has no gradient, and takes no part in the promotion of dtypes.
    signed, eps : optional
        As in `fire_bias`.
    **keywords
        Keywords of `attention`.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of FIRE's parameters too.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As `relpos.fire_attention`.

    See Also
    --------
    attention : Has the common keywords.
    fire_bias : The bias written out.
    relpos.fire_attention : The same on arrays, with all that it says of its arguments.

    References
    ----------
    .. [1] Li et al., "Functional Interpolation for Relative Positions Improves Long
       Context Transformers", 2023, arXiv:2310.04418.

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
    r"""Attention along the labelled edges of a directed graph.

    .. math::

        s_e = scale \; q_i (k_j + A_l), \quad
        out_i = \sum_{e \text{ of } i} softmax_e(s) (v_j + W_l)

    with j the key and l the label of edge e, A `rel_key` and W `rel_value`, in time and
    memory that grow with the edges.

    Parameters
    ----------
    query, key, value : Tensor, (..., H, L, D)
        As in `attention`.
    indptr : Tensor of int, (Lq + 1,), optional
        Where each query's edges begin.
    indices : Tensor of int, (edges,), optional
        Key of each edge, from 0 to Lk - 1.
    labels : Tensor of int, (edges,), optional
        Table row of each edge; negative: no position term.
    rel_key, rel_value : Tensor, (R, D), (H, R, D) or (..., H, R, D), optional
        Tables added to the key and to the value.
    edges : Tensor of int, (2, edges), or scipy.sparse CSR matrix, optional
        In place of `indptr` and `indices`: keys above queries in any order, as PyTorch
        Geometric's `edge_index`, or a matrix whose rows are queries.
    position_query, softcap, sinks, scale : optional
        As in `attention`.
    return_lse : bool, default False
        Also return lse (..., H, Lq), which has gradients.
    num_threads : int, optional
        Default `torch.get_num_threads()`.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As `relpos.graph_attention`.

    See Also
    --------
    attention : With ``labels=`` the same for a label on every pair.
    relpos.graph_attention : The same on arrays, with all that it says of its arguments.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, section 3.1.

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
