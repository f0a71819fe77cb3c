"""FlexAttention's function, with gradients on the CPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relpos._checks import as_flag, kind_of
from relpos.torch._attention import compute, compute_flex
from relpos.torch._functions import check_tensors
from relpos.torch._pair_functions import ScoreFunction
from relpos.torch._pair_masks import FLEX, check_block_mask

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

__all__ = ["flex_attention"]


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreFunction | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    r"""Compute attention with a function of each score, as PyTorch's FlexAttention.

    It has the signature of ``torch.nn.attention.flex_attention.flex_attention``, which
    on the CPU refuses tensors that require a gradient; a program changes one import.
    With f the function `score_mod` and V the pairs that `block_mask` shows,

    .. math::

        s_{ij} &= f(scale \; q_i k_j, \; b, h, i, j) \\
        out_i &= \sum_{j: ij \in V} e^{s_{ij} - lse_i} v_j, \quad
        lse_i = \log \sum_{j: ij \in V} e^{s_{ij}}

    Gradients reach query, key, value, and every tensor that requires one and that
    `score_mod` captures: from a closure, a global, or a module. The call works in
    blocks of queries, so that no array has all pairs, in the backward neither.

    A scheme that `attention` has an operand for is at least twice as fast by that
    operand: "Translate your score_mod" in the documentation has both for ten functions.

    Parameters
    ----------
    query, key, value : Tensor
        (B, H, Lq, D), (B, Hk, Lk, D) and (B, Hk, Lk, Dv), of one dtype. 16 bits are
        computed in float32.
    score_mod : callable, optional
        A function ``score_mod(score, b, h, q_idx, kv_idx)`` of the scaled score of a
        pair, in the dtype of `query`, and of the indices of its batch item, head, query
        and key, int32. All are scalars, under four `torch.vmap`. It returns a scalar,
        floating or bool, which is cast to the dtype of the score. It is called for each
        shape of a block, in the forward alone, and recorded by ``make_fx``.
    block_mask : BlockMask, optional
        Of `torch.nn.attention.flex_attention`, for these lengths. A pair is visible
        where its block is listed, and is full or ``mask_mod`` is true: the meaning of
        compiled FlexAttention. Hidden blocks take no time.
    scale : float, optional
        Default 1 / sqrt(D).
    enable_gqa : bool, default False
        Let query head h read key head ``h // (H // Hk)``.
    return_lse : bool, default False
        Return ``(out, lse)``.
    kernel_options : optional
        Has no effect.
    return_aux : AuxRequest, optional
        Of `torch.nn.attention.flex_attention`, in a PyTorch that has it: return
        ``(out, AuxOutput)``, with lse if asked for.

    Returns
    -------
    Tensor, or tuple
        `out`, (B, H, Lq, Dv), in the dtype of query; lse, (B, H, Lq), is float32, or
        float64 if query is. A query that sees no key gets 0, and lse -inf.

    Raises
    ------
    TypeError
        An argument is of another kind, or a function returns no tensor.
    ValueError
        A shape does not fit, the mask is for other lengths, or a function draws random
        numbers, decides by numbers (``if``), changes what it captures, or returns no
        scalar; or `return_aux` asks for max_scores.
    RuntimeError
        A captured tensor was changed between the forward and the backward.
    NotImplementedError
        For second derivatives, and inside of `torch.func` and `torch.vmap`.

    See Also
    --------
    attention : Takes `score_mod` and `block_mask` with its other arguments.

    Notes
    -----
    A weight below e^-80 of the largest of its row is 0, in float64 one below e^-700.
    Under `torch.compile` a call is a graph break.

    References
    ----------
    .. [1] Dong, Feng, Guessous, Liang, He, "Flex Attention: A Programming Model for
       Generating Optimized Attention Kernels", 2024, arXiv:2412.05496.

    Examples
    --------
    >>> import torch
    >>> from relpos.torch import flex_attention
    >>> query = torch.zeros(1, 1, 2, 4)
    >>> value = torch.tensor([[[[1.0], [2.0]]]])
    >>> bias = torch.zeros(3, requires_grad=True)  # relative positions -1, 0, 1
    >>> def score_mod(score, b, h, q_idx, kv_idx):
    ...     return score + bias[kv_idx - q_idx + 1]
    >>> out = flex_attention(query, query, value, score_mod)
    >>> out.detach()
    tensor([[[[1.5000],
              [1.5000]]]])
    >>> out[0, 0, 0].backward()
    >>> bias.grad
    tensor([ 0.0000, -0.2500,  0.2500])
    """
    with_lse = as_flag("return_lse", return_lse)
    _check_aux(return_aux, with_lse)
    if block_mask is not None:
        check_block_mask(block_mask)
    _check_tensors(query, key, value)
    arguments = {
        "query": query,
        "key": key,
        "value": value,
        "scale": scale,
        "enable_gqa": enable_gqa,
    }
    if score_mod is None and block_mask is None:
        result = compute(arguments, return_lse=True)
    else:
        result = compute_flex(arguments, True, score_mod, block_mask)
    if return_aux is not None:
        return result.out, _aux_output(result.lse if return_aux.lse else None)
    return (result.out, result.lse) if with_lse else result.out


def _check_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Refuse tensors of other axes, or of several dtypes, as PyTorch does."""
    tensors = {"query": query, "key": key, "value": value}
    check_tensors(tensors)
    for name, tensor in tensors.items():
        if tensor.dim() != 4:
            raise ValueError(
                f"{name}: got shape {tuple(tensor.shape)}; expected four axes, (batch, "
                "heads, length, dimension)"
            )
        if tensor.dtype != query.dtype:
            raise ValueError(
                f"{name}: got {tensor.dtype}; expected the dtype of query, "
                f"{query.dtype}"
            )


def _check_aux(request: Any, with_lse: bool) -> None:
    """Refuse other results than those that there are."""
    if request is None:
        return
    # whoever has a request has loaded the module
    kind = getattr(sys.modules.get(FLEX), "AuxRequest", None)
    if kind is None or not isinstance(request, kind):
        raise TypeError(
            f"return_aux: got {kind_of(request)}; expected an AuxRequest of "
            f"torch.nn.attention.flex_attention, or None (PyTorch {torch.__version__})"
        )
    if with_lse:
        raise ValueError(
            "return_lse: got True together with return_aux; expected one of the two"
        )
    if request.max_scores:
        raise ValueError(
            "return_aux: got max_scores=True, which there is not on the CPU; expected "
            "AuxRequest(lse=True)"
        )


def _aux_output(lse: Tensor | None) -> Any:
    kind: Any = sys.modules[FLEX].AuxOutput
    return kind(lse=lse, max_scores=None)
