"""The schemes of attention by name, on tensors."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from relpos._attention.schemes import (
    MUSIC,
    TRANSFORMER_XL,
    keywords_of,
    relative_global_settings,
    shows_keywords,
    transformer_xl_settings,
)
from relpos._checks import kind_of
from relpos.torch._attention import AttentionOutput, attention

_KEYWORDS = keywords_of(attention)


@shows_keywords((), _KEYWORDS)
def shaw_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_key: Tensor | None = None,
    rel_value: Tensor | None = None,
    **keywords: Any,
) -> Tensor | AttentionOutput:
    r"""Attention with clipped relative positions in keys and values (Shaw et al.).

    .. math::

        s_{ij} = scale \; q_i (k_j + a^K_r), \quad
        out_i = \sum_j softmax_j(s_i)_j \, (v_j + a^V_r), \quad
        r = clip(j - i - query\_offset, -k, k)

    Parameters
    ----------
    query, key, value : Tensor, (..., H, L, D)
        As in `attention`.
    rel_key, rel_value : Tensor, (2k+1, D), (H, 2k+1, D) or (..., H, 2k+1, D), optional
        The a^K and a^V; None leaves a term out.
    **keywords
        Keywords of `attention`.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of the tables too.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As `relpos.shaw_attention`.

    See Also
    --------
    attention : Has the common keywords.
    relpos.shaw_attention : The same on arrays, with all that it says of its arguments.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, equations 3 and 4.

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
def relative_global_attention(
    query: Tensor, key: Tensor, value: Tensor, rel_key: Tensor, **keywords: Any
) -> Tensor | AttentionOutput:
    r"""Relative attention of the Music Transformer, causal unless told otherwise.

    .. math::

        s_{ij} = scale \; q_i (k_j + E_r), \quad r = j - i - query\_offset

    Parameters
    ----------
    query, key, value : Tensor, (..., H, L, D)
        As in `attention`.
    rel_key : Tensor, (R, D), (H, R, D) or (..., H, R, D)
        E_r, rows ascending in relative position: -(R-1)..0 when causal,
        -(R-1)/2..(R-1)/2 otherwise.
    **keywords
        Keywords of `attention`; `is_causal` is True and `beyond` "raise" by default.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of the table too.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As `relpos.relative_global_attention`.

    See Also
    --------
    attention : Has the common keywords.
    relpos.relative_global_attention : The same on arrays, with all that it says of its
        arguments.

    References
    ----------
    .. [1] Huang et al., "Music Transformer: Generating Music with Long-Term Structure",
       2018, arXiv:1809.04281, section 3.4.

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
def transformer_xl_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rel_key: Tensor,
    pos_bias_u: Tensor | None,
    pos_bias_v: Tensor | None,
    **keywords: Any,
) -> Tensor | AttentionOutput:
    r"""Relative attention of Transformer-XL, with memory; also of Conformer and XLNet.

    .. math::

        s_{ij} = scale \; [(q_i + u) k_j + (q_i + v) R_r], \quad
        r = j - i - query\_offset

    Parameters
    ----------
    query, key, value : Tensor, (..., H, L, D)
        As in `attention`; keys begin with the memory.
    rel_key : Tensor, (R, D), (H, R, D) or (..., H, R, D)
        The projected sinusoids, rows ascending in relative position from -(Lk-1).
    pos_bias_u, pos_bias_v : Tensor, (D,), (H, D) or (..., H, D), or None
        Biases u of the content term and v of the position term.
    **keywords
        Keywords of `attention`; `query_offset` is Lk - Lq, `min_relative_position`
        -(Lk-1) and `beyond` "raise" by default.

    Returns
    -------
    Tensor or AttentionOutput
        As `attention`, with gradients of the table and the biases too.

    Raises
    ------
    TypeError, ValueError, IndexError, MemoryError
        As `relpos.transformer_xl_attention`.

    See Also
    --------
    attention : Has the common keywords.
    relpos.transformer_xl_attention : The same on arrays, with all that it says of its
        arguments.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860, section 3.3.

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
