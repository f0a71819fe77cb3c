"""Attention over two sets of keys, joined, on tensors."""

from __future__ import annotations

import torch
from torch import Tensor

import relpos
from relpos._attention.merge import check_parts
from relpos._checks import kind_of
from relpos._twins import twin
from relpos.torch._tensors import result_dtype


@twin(relpos.merge_attention)
def merge_attention(
    out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Join attention results over two disjoint sets of keys.

    .. math::

        lse = \log(e^{lse_a} + e^{lse_b}), \quad
        out = e^{lse_a - lse} out_a + e^{lse_b - lse} out_b

    A part that saw no key (lse = -inf) joins as nothing. Sinks belong to exactly one of
    the parts, or they would count twice. PyTorch itself differentiates the result, as
    often as one likes.

    Parameters
    ----------
    out_a : Tensor, (..., Dv)
        Result of `attention` over one set; leading axes broadcast with `out_b`.
    lse_a : Tensor, (...)
        Its log-sum-exps, of its shape without the last axis.
    out_b, lse_b : Tensor
        The same over the other set.

    Returns
    -------
    out : Tensor, (..., Dv)
        What one call over both sets returns, to rounding, in the common dtype of
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
    for name, part in parts.items():
        if not isinstance(part, Tensor) or not part.is_floating_point():
            kind = part.dtype if isinstance(part, Tensor) else kind_of(part)
            raise TypeError(f"{name}: got {kind}; expected a floating tensor")
    check_parts(parts)
    common = torch.float32
    for part in parts.values():
        common = torch.promote_types(common, part.dtype)
    log_a, log_b = lse_a.to(common), lse_b.to(common)
    top = torch.maximum(log_a, log_b).detach()
    top = top.masked_fill(top == -torch.inf, 0.0)  # no key in either part
    share_a, share_b = torch.exp(log_a - top), torch.exp(log_b - top)
    total = share_a + share_b
    none = total == 0
    total = total.masked_fill(none, 1.0)  # log has no gradient at 0
    lse = (torch.log(total) + top).masked_fill(none, -torch.inf)
    share_a, share_b = share_a / total, share_b / total
    out = share_a[..., None] * out_a + share_b[..., None] * out_b
    wide = torch.promote_types(lse_a.dtype, lse_b.dtype)
    return out.to(result_dtype([out_a, out_b])), lse.to(wide)
