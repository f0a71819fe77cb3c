"""Encoding of positions by a convolution of the tokens, as a module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import relpos.nn
from relpos._twins import twin
from relpos.nn._inputs import as_size
from relpos.nn.conv import OTHER_NAMES
from relpos.torch.nn._layer import Layer, as_zero_one, check_shape


class _Convolution(nn.Module):
    """Parameters by the names of PyTorch's first weight normalisation."""

    def __init__(self, shape: tuple[int, ...], device: Any, dtype: Any) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        start = torch.empty(shape, **options)
        start.normal_(std=(4 / (shape[0] * shape[-1])) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(shape[0], **options))
        self.weight_g = nn.Parameter(_lengths(start))
        self.weight_v = nn.Parameter(start)


@twin(relpos.nn.ConvPositionEmbedding)
class ConvPositionEmbedding(Layer):
    """Embedding of positions by a grouped convolution, as in wav2vec 2.0.

    Parameters
    ----------
    embed_dim : int
        Channels.
    kernel_size : int, default 128
        Taps k. Where it is even, a token sees one more before it than behind it.
    groups : int, default 16
        Divides embed_dim.
    device, dtype : optional
        As those of any module.

    Attributes
    ----------
    conv : torch.nn.Module
        In `state_dict`: ``conv.bias``, ``conv.weight_g`` and ``conv.weight_v``.
        `load_state_dict` takes fairseq's names (``0.weight_g``) and those of PyTorch's
        parametrizations (``conv.parametrizations.weight.original0``) as well.

    Examples
    --------
    >>> import torch
    >>> from relpos.torch import nn
    >>> layer = nn.ConvPositionEmbedding(8, kernel_size=4, groups=2)
    >>> layer(torch.ones(1, 6, 8)).shape
    torch.Size([1, 6, 8])
    """

    def __init__(
        self,
        embed_dim: int,
        kernel_size: int = 128,
        groups: int = 16,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        width = as_size("embed_dim", embed_dim)
        taps = as_size("kernel_size", kernel_size)
        self.groups = as_size("groups", groups)
        if width % self.groups:
            raise ValueError(
                f"groups: got {self.groups}, which does not divide embed_dim = {width}"
            )
        self.conv = _Convolution((width, width // self.groups, taps), device, dtype)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the embeddings of x.

        Parameters
        ----------
        x : Tensor, (batch, seq, embed_dim)
            The tokens.
        mask : Tensor of bool, or 0 and 1, (batch, seq), optional
            True = a token; others count as zeros.

        Returns
        -------
        Tensor, (batch, seq, embed_dim)
            To be added to x.

        Raises
        ------
        ValueError
            `mask` holds something else than 0 and 1.
        """
        conv = self.conv
        check_shape("x", x, ("batch", "seq", conv.bias.shape[0]))
        if mask is not None:
            check_shape("mask", mask, tuple(x.shape[:2]))
            x = x.masked_fill(~as_zero_one("mask", mask)[..., None], 0)
        weight = conv.weight_v * (conv.weight_g / _lengths(conv.weight_v))
        taps = weight.shape[-1]
        length = x.shape[1]
        after = taps - 1 - taps // 2 + (not length)  # conv1d refuses no tokens
        around = nn.functional.pad(x.mT, (taps // 2, after))
        y = nn.functional.conv1d(around, weight, conv.bias, groups=self.groups)
        return nn.functional.gelu(y.mT[:, :length])

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        for other, name in OTHER_NAMES.items():
            if prefix + other in state_dict and prefix + name not in state_dict:
                state_dict[prefix + name] = state_dict.pop(prefix + other)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _lengths(v: Tensor) -> Tensor:
    """Norm of each tap, (1, 1, k)."""
    return torch.linalg.vector_norm(v, dim=(0, 1), keepdim=True)
