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
from relpos._twins import twin
from relpos.torch._attention import AttentionOutput, attention
from relpos.torch._tensors import check_padded

_KEYWORDS = keywords_of(attention)


@shows_keywords((), _KEYWORDS)
@twin(relpos.shaw_attention)
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
    query : Tensor, (..., H, Lq, D)
        One row for each query.
    key : Tensor, (..., Hk, Lk, D)
        One row for each key.
    value : Tensor, (..., Hk, Lk, Dv)
        What each key has to give.
    rel_key : Tensor, (2k+1, D), (H, 2k+1, D) or (..., H, 2k+1, D), optional
        The a^K; None leaves the term out. k = 0 is legal.
    rel_value : Tensor, (2k+1, Dv), (H, 2k+1, Dv) or (..., H, 2k+1, Dv), optional
        The a^V; None leaves the term out. Its k may differ.
    **keywords
        Keywords of `attention`.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of the tables too.

    See Also
    --------
    attention : Has the common keywords.

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
@twin(relpos.relative_global_attention)
def relative_global_attention(
    query: Tensor, key: Tensor, value: Tensor, rel_key: Tensor, **keywords: Any
) -> Tensor | AttentionOutput:
    """Relative attention of the Music Transformer, causal unless told otherwise.

    Parameters
    ----------
    query : Tensor, (..., H, Lq, D)
        One row for each query.
    key : Tensor, (..., Hk, Lk, D)
        One row for each key.
    value : Tensor, (..., Hk, Lk, Dv)
        What each key has to give.
    rel_key : Tensor, (R, D), (H, R, D) or (..., H, R, D)
        E_r, rows ascending in relative position: -(R-1)..0 when causal (R = max_len),
        -(R-1)/2..(R-1)/2 otherwise (R = 2 max_len - 1).
    **keywords
        Keywords of `attention`; `is_causal` is True and `beyond` "raise" by default.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of the table too.

    See Also
    --------
    attention : Has the common keywords.

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
@twin(relpos.transformer_xl_attention)
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
    query : Tensor, (..., H, Lq, D)
        One row for each query.
    key : Tensor, (..., Hk, Lk, D)
        One row for each key, those of the memory first.
    value : Tensor, (..., Hk, Lk, Dv)
        What each key has to give.
    rel_key : Tensor, (R, D), (H, R, D) or (..., H, R, D)
        The projected sinusoids, rows ascending in relative position from -(Lk-1).
        R = Lk serves ``is_causal=True``, R = Lk + Lq - 1 or 2 Lk - 1 both directions
        (Conformer). A table of any other length needs `min_relative_position`.
    pos_bias_u, pos_bias_v : Tensor, (D,), (H, D) or (..., H, D), or None
        Biases u of the content term and v of the position term; None leaves one out.
    **keywords
        Keywords of `attention`; `query_offset` is Lk - Lq, `min_relative_position`
        -(Lk-1) and `beyond` "raise" by default.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of the table and the biases too.

    See Also
    --------
    attention : Has the common keywords.

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
    check_padded(values)
