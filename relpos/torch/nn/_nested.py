"""Nested tensors, which PyTorch's encoders make of padded ones, padded and back."""

from __future__ import annotations

import torch
from torch import Tensor


def is_one_nested(*inputs: Tensor) -> bool:
    """Tell whether all inputs are one nested tensor, of the layout of encoders."""
    first = inputs[0]
    return (
        isinstance(first, Tensor)
        and first.is_nested
        and first.layout == torch.strided
        and all(each is first for each in inputs)
    )


def padded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return (N, L, E) of a nested tensor, and a mask (N, L): True = padding."""
    lengths = torch.tensor([len(item) for item in x.unbind()], device=x.device)
    dense = x.to_padded_tensor(0.0)
    return dense, torch.arange(dense.shape[1], device=x.device) >= lengths[:, None]


def nested(x: Tensor, padding: Tensor) -> Tensor:
    """Return the nested tensor that `padded` was given, with the numbers of `x`."""
    lengths = (~padding).sum(dim=1).tolist()
    items = zip(x.unbind(), lengths, strict=True)
    return torch.nested.as_nested_tensor([item[:length] for item, length in items])
