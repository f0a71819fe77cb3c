"""The schemes of attention by name, on tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

import relpos
from relpos._attention.schemes import (
    MUSIC,
    TRANSFORMER_XL,
    keywords_of,
    relative_global_settings,
    shows_keywords,
    transformer_xl_settings,
)
from relpos._checks import kind_of
from relpos._twins import TENSORS, twin
from relpos.torch._attention import AttentionOutput, attention

_KEYWORDS = keywords_of(attention)


@shows_keywords((), _KEYWORDS)
@twin(relpos.shaw_attention, TENSORS)
def shaw_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_key: Tensor | None = None,
    rel_value: Tensor | None = None,
    **keywords: Any,
) -> Tensor | AttentionOutput:
    """Attention with clipped relative positions in keys and values (Shaw et al.).

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


@shows_keywords((), _KEYWORDS, **MUSIC)
@twin(relpos.relative_global_attention, TENSORS)
def relative_global_attention(
    query: Tensor, key: Tensor, value: Tensor, rel_key: Tensor, **keywords: Any
) -> Tensor | AttentionOutput:
    """Relative attention of the Music Transformer, causal unless told otherwise.

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
    _check_tensors(rel_key=rel_key)
    settings = relative_global_settings(rel_key, keywords)
    return attention(query, key, value, rel_key=rel_key, **settings)


@shows_keywords((), _KEYWORDS, **TRANSFORMER_XL)
@twin(relpos.transformer_xl_attention, TENSORS)
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
    _check_tensors(query=query, key=key, rel_key=rel_key)
    settings = transformer_xl_settings(query, key, rel_key, keywords)
    settings |= {"pos_bias_u": pos_bias_u, "pos_bias_v": pos_bias_v}
    return attention(query, key, value, rel_key=rel_key, **settings)


def _check_tensors(**values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: got {kind_of(value)}; expected a tensor")
