"""The schemes of attention by name, and results over two sets of keys, on tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from torch import Tensor

import relpos
from relpos._attention.functional import check_parts
from relpos._attention.schemes import (
    MUSIC,
    TRANSFORMER_XL,
    keywords_of,
    relative_global_settings,
    shows_keywords,
    transformer_xl_settings,
)
from relpos._checks import check_keywords
from relpos._foreign import module_of
from relpos._twins import TENSORS, twin
from relpos.torch._attention import AttentionOutput, attention, compute
from relpos.torch._causal import without_causal_bias
from relpos.torch._functions import check_tensors, copied_setting
from relpos.torch._jagged import takes_jagged
from relpos.torch._tensors import (
    array_of,
    check_dense,
    check_devices,
    check_float_dtype,
    result_dtype,
    under_autocast,
)

if TYPE_CHECKING:
    from typing import Unpack

    from relpos._attention.keywords import Off
    from relpos.torch._keywords import (
        FireKeywords,
        GraphKeywords,
        RelativeGlobalKeywords,
        SchemeValues,
        ShawKeywords,
        TransformerXLKeywords,
    )

__all__ = ["fire_attention", "graph_attention", "merge_attention"]
__all__ += ["relative_global_attention", "shaw_attention", "transformer_xl_attention"]

#: Parameters of `attention` on tensors, but for functions of pairs, with which tables
#: do not go. ``shows_keywords((), _KEYWORDS)`` shows them all in the signature of a
#: scheme; () is the list of those that are left out.
_KEYWORDS = keywords_of(attention)
for _name in ("score_mod", "block_mask"):
    del _KEYWORDS[_name]


@overload
def shaw_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_key: Tensor | None = None,
    rel_value: Tensor | None = None,
    **keywords: Unpack[ShawKeywords[Off]],
) -> Tensor: ...
@overload
def shaw_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_key: Tensor | None = None,
    rel_value: Tensor | None = None,
    **keywords: Unpack[ShawKeywords[bool]],
) -> AttentionOutput: ...
@shows_keywords((), _KEYWORDS)
@twin(relpos.shaw_attention, TENSORS)
@takes_jagged
def shaw_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_key: Tensor | None = None,
    rel_value: Tensor | None = None,
    **keywords: Any,
) -> Tensor | AttentionOutput:
    """Attention with clipped relative positions in keys and values (Shaw et al.).

    Parameters
    ----------
    query, key, value : Tensor
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in `attention`.
    rel_key, rel_value : as in `relpos.shaw_attention`
        Tables (2k+1, D) and (2k+1, Dv), of all heads or of each.
    **keywords
        Keywords of `attention`.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of the tables too.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> x = torch.zeros(1, 3, 1)
    >>> table = torch.tensor([[-1.0], [0.0], [1.0]])
    >>> relpos.torch.shaw_attention(x, x, x, rel_value=table)[0, :, 0]
    tensor([ 0.6667,  0.0000, -0.6667])
    """
    return attention(
        query, key, value, rel_key=rel_key, rel_value=rel_value, **keywords
    )


@overload
def relative_global_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_key: Tensor,
    **keywords: Unpack[RelativeGlobalKeywords[Off]],
) -> Tensor: ...
@overload
def relative_global_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_key: Tensor,
    **keywords: Unpack[RelativeGlobalKeywords[bool]],
) -> AttentionOutput: ...
@shows_keywords((), _KEYWORDS, **MUSIC)
@twin(relpos.relative_global_attention, TENSORS)
@takes_jagged
def relative_global_attention(
    query: Tensor, key: Tensor, value: Tensor, rel_key: Tensor, **keywords: Any
) -> Tensor | AttentionOutput:
    """Relative attention of the Music Transformer, causal unless told otherwise.

    Parameters
    ----------
    query, key, value : Tensor
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in `attention`.
    rel_key : as in `relpos.relative_global_attention`
        E_r, rows ascending in relative position.
    **keywords
        Keywords of `attention`; `is_causal` is True and `beyond` "raise" by default.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of the table too.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> query, key = torch.ones(1, 3, 1), torch.zeros(1, 3, 1)
    >>> value = torch.tensor([[[1.0], [2.0], [3.0]]])
    >>> rel_key = torch.tensor([[0.0], [100.0], [0.0]])  # relative positions -2, -1, 0
    >>> relpos.torch.relative_global_attention(query, key, value, rel_key)[0, :, 0]
    tensor([1., 1., 2.])
    """
    check_tensors({"rel_key": rel_key})
    # A CausalBias of torch is a mask that stands for `is_causal` and an offset. It has
    # to go before the scheme adds its own `is_causal`, or both would be an error.
    if "attn_mask" in keywords:
        keywords = without_causal_bias(query, key, keywords)
    settings = relative_global_settings(rel_key, keywords)
    return attention(query, key, value, rel_key=rel_key, **settings)


@overload
def transformer_xl_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_key: Tensor,
    pos_bias_u: Tensor | None,
    pos_bias_v: Tensor | None,
    **keywords: Unpack[TransformerXLKeywords[Off]],
) -> Tensor: ...
@overload
def transformer_xl_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_key: Tensor,
    pos_bias_u: Tensor | None,
    pos_bias_v: Tensor | None,
    **keywords: Unpack[TransformerXLKeywords[bool]],
) -> AttentionOutput: ...
@shows_keywords((), _KEYWORDS, **TRANSFORMER_XL)
@twin(relpos.transformer_xl_attention, TENSORS)
@takes_jagged
def transformer_xl_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_key: Tensor,
    pos_bias_u: Tensor | None,
    pos_bias_v: Tensor | None,
    **keywords: Any,
) -> Tensor | AttentionOutput:
    """Relative attention of Transformer-XL, with memory; also of Conformer and XLNet.

    Parameters
    ----------
    query, key, value : Tensor
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in `attention`; keys
        and values of the memory come first.
    rel_key, pos_bias_u, pos_bias_v : as in `relpos.transformer_xl_attention`
        Projected sinusoids (R, D) from -(Lk-1) on, and the biases u and v.
    **keywords
        Keywords of `attention`; `query_offset` is Lk - Lq, `min_relative_position`
        -(Lk-1) and `beyond` "raise" by default.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of the table and the biases too.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> query, key = torch.zeros(1, 2, 1), torch.zeros(1, 3, 1)
    >>> value = torch.tensor([[[1.0], [2.0], [3.0]]])
    >>> rel_key = torch.tensor([[100.0], [0.0], [0.0]])  # relative positions -2, -1, 0
    >>> relpos.torch.transformer_xl_attention(
    ...     query, key, value, rel_key, None, torch.ones(1), is_causal=True
    ... )[0, :, 0]
    tensor([1.5000, 1.0000])
    """
    # The settings are computed from the shapes of these three.
    check_tensors({"query": query, "key": key, "rel_key": rel_key})
    cu_seqlens = keywords.get("cu_seqlens")
    if isinstance(cu_seqlens, Tensor):  # the settings read its numbers
        keywords = {**keywords, "cu_seqlens": array_of("cu_seqlens", cu_seqlens)}
    settings = transformer_xl_settings(query, key, rel_key, keywords)
    return attention(
        query,
        key,
        value,
        rel_key=rel_key,
        pos_bias_u=pos_bias_u,
        pos_bias_v=pos_bias_v,
        **settings,
    )


def _on_tensors(settings: Callable[..., Mapping[str, Any]]) -> Callable[..., Any]:
    """Return a scheme on tensors, made of the function that returns its settings.

    Parameters
    ----------
    settings : callable
        Called with the scheme's arguments; returns the keywords of `attention`. It
        reads shapes alone, so that it serves tensors, but may return arrays of its own.
    """

    @takes_jagged
    @wraps(settings)
    def scheme(
        query: Any, key: Any, value: Any, *parameters: Any, **keywords: Any
    ) -> Tensor | AttentionOutput:
        arguments = dict(settings(query, key, value, *parameters, **keywords))
        for name, argument in arguments.items():
            if isinstance(argument, np.ndarray):
                arguments[name] = torch.from_numpy(argument)
        return attention(query, key, value, **arguments)

    return shows_keywords((), _KEYWORDS)(scheme)


def _schemes_by_settings() -> dict[str, Callable[..., Any]]:
    """Return schemes on tensors for those of relpos that have `settings`, by name."""
    schemes = {}
    for name, function in vars(relpos).items():
        if name in relpos.__all__ and hasattr(function, "settings"):
            schemes[name] = _on_tensors(function.settings)
    return schemes


#: Schemes of relpos that are only settings of `attention`, on tensors, by name. The
#: package adds them to its names, so that they need no function in this file.
SCHEMES = _schemes_by_settings()


@overload
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
    **keywords: Unpack[FireKeywords[Off]],
) -> Tensor: ...
@overload
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
    **keywords: Unpack[FireKeywords[bool]],
) -> AttentionOutput: ...
@shows_keywords((), _KEYWORDS)
@twin(relpos.fire_attention, TENSORS)
@takes_jagged
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
    """Attention with the bias of `fire_bias`, without an array of Lq x Lk.

    Parameters
    ----------
    query, key, value : Tensor
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in `attention`.
    w1, b1, w2, b2 : Tensor
        FIRE's network, as in `fire_bias`; w2 has a row for each query head.
    c, threshold : Tensor of one number, or float
        As in `fire_bias`. A float has no gradient, and takes no part in the promotion
        of dtypes.
    signed, eps : as in `fire_bias`
        Sign of the direction, and a number added to the normaliser.
    **keywords
        Keywords of `attention`.

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
    # `compute` takes every name, so that a misspelt keyword has to be found here.
    check_keywords("fire_attention", keywords, _KEYWORDS)
    rng = keywords.pop("rng", None)
    return_lse = keywords.pop("return_lse", False)
    arguments = {
        "query": query,
        "key": key,
        "value": value,
        **keywords,
        "w1": w1,
        "b1": b1,
        "w2": w2,
        "b2": b2,
    }
    # The names tell `compute` which scheme it is. None stands for a tensor, which is in
    # `arguments`. Settings are copied, since the backward reads them again.
    values: SchemeValues = {
        "w1": None,
        "b1": None,
        "w2": None,
        "b2": None,
        "c": None,
        "threshold": None,
        "signed": copied_setting("signed", signed),
        "eps": copied_setting("eps", eps),
    }
    # These two may be a tensor, which has a gradient, or a number, which has none.
    if isinstance(c, Tensor):
        arguments["c"] = c
    else:
        values["c"] = copied_setting("c", c)
    if isinstance(threshold, Tensor):
        arguments["threshold"] = threshold
    else:
        values["threshold"] = copied_setting("threshold", threshold)
    return compute(arguments, return_lse, rng, values)


@overload
def graph_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    indptr: Tensor | None = None,
    indices: Tensor | None = None,
    labels: Tensor | None = None,
    rel_key: Tensor | None = None,
    rel_value: Tensor | None = None,
    **keywords: Unpack[GraphKeywords[Off]],
) -> Tensor: ...
@overload
def graph_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    indptr: Tensor | None = None,
    indices: Tensor | None = None,
    labels: Tensor | None = None,
    rel_key: Tensor | None = None,
    rel_value: Tensor | None = None,
    **keywords: Unpack[GraphKeywords[bool]],
) -> AttentionOutput: ...
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
    key_indices: Tensor | None = None,
    enable_gqa: bool = False,
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
    query, key, value : Tensor
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in `attention`.
    indptr, indices, edges : as in `relpos.graph_attention`
        The graph: rows of keys by query, or pairs of a key and a query (2, edges).
    key_indices, enable_gqa : as in `relpos.graph_attention`
        Keys of each query, (..., G, Lq, n), in place of a graph; groups of heads.
    labels, rel_key, rel_value : as in `relpos.graph_attention`
        Table row of each edge, and the tables added to key and value.
    position_query, softcap, sinks, scale : as in `relpos.graph_attention`
        What else the scores depend on.
    return_lse : bool, default False
        Also return lse (..., H, Lq), which has gradients.
    num_threads : int, optional
        Default `torch.get_num_threads()`. Neither the result nor its gradients depend
        on it, bit for bit.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`.

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
    has_picks = key_indices is not None
    arguments = {
        "query": query,
        "key": key,
        "value": value,
        "indptr": indptr,
        "indices": indices,
        "rel_key": rel_key,
        "rel_value": rel_value,
        "edges": edges,
        "key_indices": key_indices,
        "enable_gqa": enable_gqa,
        "position_query": position_query,
        "softcap": softcap,
        "sinks": sinks,
        "scale": scale,
        "num_threads": num_threads,
        # The keyword `labels` of attention has another meaning, a label for each pair
        # of a query and a key.
        "edge_labels": None if has_picks else labels,
        "key_labels": labels if has_picks else None,
    }
    # As in `fire_attention`, the names tell which scheme it is.
    graph: SchemeValues = {
        "indptr": None,
        "indices": None,
        "edge_labels": None,
        "edges": None,
        "key_indices": None,
        "key_labels": None,
    }
    if module_of(edges, "scipy.sparse"):
        # A sparse matrix is a value, not a tensor; the backward reads it again.
        del arguments["edges"]
        graph["edges"] = edges.copy()
    return compute(arguments, return_lse, scheme_values=graph)


@twin(relpos.merge_attention, TENSORS)
def merge_attention(
    out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Join attention results over two disjoint sets of keys.

    .. math::

        lse = \log(e^{lse_a} + e^{lse_b}), \quad
        out = e^{lse_a - lse} out_a + e^{lse_b - lse} out_b

    A part that saw no key (lse = -inf) adds nothing. Sinks belong to exactly one of
    the parts, or they would count twice. PyTorch differentiates the result, as often as
    needed.

    Parameters
    ----------
    out_a, lse_a, out_b, lse_b : as in `relpos.merge_attention`
        Results (..., Dv) of `attention` over each set, and their log-sum-exps (...).

    Returns
    -------
    out : Tensor, (..., Dv)
        The result of one call over both sets, to rounding, in the common dtype of
        `out_a` and `out_b`.
    lse : Tensor, (...)
        Its log-sum-exps, in the common dtype of `lse_a` and `lse_b`.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> query, key, value = torch.randn(3, 1, 6, 4)
    >>> whole = relpos.torch.attention(query, key, value)
    >>> left = relpos.torch.attention(query, key[:, :2], value[:, :2], return_lse=True)
    >>> right = relpos.torch.attention(query, key[:, 2:], value[:, 2:], return_lse=True)
    >>> out, lse = relpos.torch.merge_attention(*left[:2], *right[:2])
    >>> torch.allclose(out, whole, atol=1e-6)
    True
    """
    parts = {"out_a": out_a, "lse_a": lse_a, "out_b": out_b, "lse_b": lse_b}
    # All checks of one part come before those of the next.
    for name, part in parts.items():
        check_tensors({name: part})
        check_dense(name, part)
        check_float_dtype(name, part.dtype, "a tensor of dtype ")
    check_devices(parts)
    check_parts(parts)
    # The sums are in float32 at least; both results are rounded once, at the end.
    dtypes = [part.dtype for part in parts.values()]
    common = reduce(torch.promote_types, dtypes, torch.float32)
    log_a, log_b = lse_a.to(common), lse_b.to(common)
    # Both parts are divided by e^top, so that no exponential overflows. The result does
    # not depend on `top`, which therefore needs no gradient.
    top = torch.maximum(log_a, log_b).detach()
    top = top.masked_fill(top == -torch.inf, 0.0)  # -inf - -inf would be nan
    weight_a = _weight(log_a, log_b, top)
    weight_b = _weight(log_b, log_a, top)
    total = weight_a + weight_b
    # Rows without a key in either part: out is 0 and lse -inf. Their total of 0 becomes
    # 1 before the division and the logarithm, whose gradients are not finite at 0.
    has_no_key = total == 0
    total = total.masked_fill(has_no_key, 1.0)
    lse = (torch.log(total) + top).masked_fill(has_no_key, -torch.inf)
    share_a = (weight_a / total)[..., None]
    share_b = (weight_b / total)[..., None]
    out = share_a * _without_empty(out_a, lse_a) + share_b * _without_empty(
        out_b, lse_b
    )
    out_dtype = under_autocast(result_dtype([out_a, out_b]))
    lse_dtype = torch.promote_types(lse_a.dtype, lse_b.dtype)
    return out.to(out_dtype), lse.to(lse_dtype)


def _weight(log: Tensor, other: Tensor, top: Tensor) -> Tensor:
    """Return e^(log - top) of one part, where `top` is the larger of both logs.

    If `log` alone is inf, the weight is 1, where inf - inf would give nan. If both are
    inf, it is nan.
    """
    has_all_weight = (log == torch.inf) & (other < log)
    return torch.exp((log - top).masked_fill(has_all_weight, 0.0))


def _without_empty(out: Tensor, lse: Tensor) -> Tensor:
    """Return a part with zeros in the rows that saw no key.

    Their share is 0, but 0 times a nan in `out` would be nan.
    """
    return out.masked_fill((lse == -torch.inf)[..., None], 0.0)
