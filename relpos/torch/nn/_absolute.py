"""Encodings of absolute positions, and a bias from a network, as modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import relpos.nn
import relpos.torch
from relpos._checks import as_choice
from relpos._encodings.absolute import MAX_DIM
from relpos._twins import twin
from relpos.nn._inputs import as_size, check_length
from relpos.nn.absolute import OTHER_NAMES
from relpos.torch._functions import check_tensors
from relpos.torch._tensors import check_float_dtype, under_autocast
from relpos.torch.nn._layer import Layer, as_int, as_zero_one, check_shape

__all__ = ["ConvPositionEmbedding", "DynamicPositionBias"]
__all__ += ["LearnedAPE", "SinusoidalEncoding"]


@twin(relpos.nn.LearnedAPE)
class LearnedAPE(Layer):
    """Learned vector for each absolute position.

    Parameters
    ----------
    max_seq_len, embed_size : as in `relpos.nn.LearnedAPE`
        Number of positions, and width of the vectors.
    device, dtype : optional
        As those of any module.

    Attributes
    ----------
    embedding : torch.nn.Embedding
        Its `weight` is (max_seq_len, embed_size).

    Examples
    --------
    >>> import torch
    >>> from relpos.torch import nn
    >>> nn.LearnedAPE(10, 4)(torch.zeros(2, 7)).shape
    torch.Size([7, 4])
    """

    def __init__(
        self,
        max_seq_len: int,
        embed_size: int,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        _, options = self._set_up(
            device, dtype, max_seq_len=max_seq_len, embed_size=embed_size
        )
        self.embedding = nn.Embedding(max_seq_len, embed_size, **options)

    @twin(relpos.nn.LearnedAPE.__call__, titles=("Raises",))
    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors of the positions of a sequence.

        Parameters
        ----------
        x : Tensor, (batch, seq, ...)
            What is to have positions; only its length counts.

        Returns
        -------
        Tensor, (seq, embed_size)
            The first rows of the weight.
        """
        check_tensors({"x": x})
        if x.dim() < 2:
            raise ValueError(
                f"x: got shape {(*x.shape,)}; expected (batch, seq[, ...])"
            )
        rows = self.embedding.num_embeddings
        check_length(x.shape[1], rows, "max_seq_len", IndexError)
        return relpos.torch.learned(self.embedding.weight, x.shape[1])


@twin(relpos.nn.SinusoidalEncoding)
class SinusoidalEncoding(Layer):
    """Add the sinusoidal encoding of the positions.

    Parameters
    ----------
    embed_size, max_len, layout : as in `relpos.nn.SinusoidalEncoding`
        Width of the input, longest sequence, and order of the columns.
    device, dtype : optional
        Accepted as those of any module; there is nothing that has them.

    Examples
    --------
    >>> import torch
    >>> from relpos.torch import nn
    >>> nn.SinusoidalEncoding(2)(torch.zeros(1, 2, 2)).numpy().round(2)
    array([[[0.  , 1.  ],
            [0.84, 0.54]]], dtype=float32)
    """

    def __init__(
        self,
        embed_size: int,
        max_len: int | None = None,
        layout: str = "interleaved",
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.embed_size = as_int("embed_size", embed_size, 1, MAX_DIM)
        self.max_len = None if max_len is None else as_size("max_len", max_len)
        self.layout = as_choice("layout", layout, ("interleaved", "concat"))

    @twin(relpos.nn.SinusoidalEncoding.__call__, titles=("Raises",))
    def forward(self, x: Tensor) -> Tensor:
        """Add the encoding of the positions.

        Parameters
        ----------
        x : Tensor, (batch, seq, embed_size)
            The tokens.

        Returns
        -------
        Tensor, shape and dtype of `x`
            The sum.
        """
        check_shape("x", x, ("batch", "seq", self.embed_size))
        check_float_dtype("x", x.dtype, "a tensor of dtype ")
        length = x.shape[1]
        check_length(length, self.max_len)
        positions = torch.arange(length, device=x.device)
        return x + relpos.torch.sinusoidal(
            positions, self.embed_size, layout=self.layout, dtype=x.dtype
        )


@twin(relpos.nn.DynamicPositionBias)
class DynamicPositionBias(Layer):
    """Attention bias per head and relative position, from a small network.

    Parameters
    ----------
    dim, heads, depth, log_distance : as in `relpos.nn.DynamicPositionBias`
        Width, outputs and number of the layers, and what goes in.
    device, dtype : optional
        As those of any module.

    Attributes
    ----------
    mlp : torch.nn.ModuleList
        In `state_dict`: ``mlp.{i}.0`` for i < depth, then ``mlp.{depth}``.

    Examples
    --------
    >>> from relpos.torch import nn
    >>> nn.DynamicPositionBias(dim=8, heads=2, depth=2)(5).shape
    torch.Size([2, 9])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        depth: int,
        log_distance: bool = False,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings, options = self._set_up(
            device,
            dtype,
            dim=dim,
            heads=heads,
            depth=depth,
            log_distance=log_distance,
        )
        self.log_distance: bool = settings.log_distance
        self.mlp = nn.ModuleList()
        width = 1  # of a distance
        for _ in range(depth):
            layer = nn.Linear(width, dim, **options)
            self.mlp.append(nn.Sequential(layer, nn.SiLU()))
            width = dim
        self.mlp.append(nn.Linear(width, heads, **options))

    def forward(self, length: int) -> Tensor:
        """Return the bias of every relative position.

        Parameters
        ----------
        length : int
            Serves every call with length >= max(Lq + query_offset, Lk - query_offset).

        Returns
        -------
        Tensor, (heads, 2 length - 1)
            A `rel_bias` of attention, the past first.
        """
        if not isinstance(length, torch.SymInt):
            length = as_int("length", length, 1)
        weight = next(self.parameters())
        wide = torch.promote_types(weight.dtype, torch.float32)
        x = torch.arange(length - 1, -length, -1).to(weight.device, wide)
        if self.log_distance:
            # The logarithm is of the size of a distance, whose sign stays.
            x = x.sign() * (x.abs() + 1).log()
        x = x[:, None]  # Linear takes one number, the distance, of each row
        with torch.autocast("cpu", enabled=False):  # 16 bits cannot tell the distances
            for layer in self.mlp:
                if weight.dtype == wide:
                    x = layer(x)
                else:  # the module's own parameters stay as they are
                    parameters = {n: p.to(wide) for n, p in layer.named_parameters()}
                    x = torch.func.functional_call(layer, parameters, (x,))
        return x.T.to(under_autocast(weight.dtype))


# ---- a convolution of the tokens ----------------------------------------------------


class _Convolution(nn.Module):
    """Parameters by the names of PyTorch's first weight normalisation."""

    def __init__(self, shape: tuple[int, ...], device: Any, dtype: Any) -> None:
        super().__init__()
        options = {"device": device, "dtype": dtype}
        # as in `relpos.nn`: of variance 4 / (k embed_dim)
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
    embed_dim, kernel_size, groups : as in `relpos.nn.ConvPositionEmbedding`
        Channels, taps of the kernel, and groups of channels.
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
        settings, options = self._set_up(
            device, dtype, embed_dim=embed_dim, kernel_size=kernel_size, groups=groups
        )
        self.groups: int = settings.groups
        width = settings.embed_dim // self.groups  # channels that a kernel reads
        shape = settings.embed_dim, width, settings.kernel_size
        self.conv = _Convolution(shape, **options)

    @twin(relpos.nn.ConvPositionEmbedding.__call__, titles=("Raises",))
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
        """
        conv = self.conv
        check_shape("x", x, ("batch", "seq", conv.bias.shape[0]))
        if mask is not None:
            check_shape("mask", mask, tuple(x.shape[:2]))
            # Padding becomes 0 before the convolution, which would mix it into the
            # tokens near it.
            x = x.masked_fill(~as_zero_one("mask", mask)[..., None], 0)
        # weight_g has the norm of each tap, weight_v its direction
        weight = conv.weight_v * (conv.weight_g / _lengths(conv.weight_v))
        taps = weight.shape[-1]
        length = x.shape[1]
        # A kernel of an even number of taps has one more before the token than after
        # it.
        before = taps // 2
        after = taps - 1 - before
        if length == 0:
            after += 1  # conv1d refuses an input without a result
        with_padding = nn.functional.pad(x.mT, (before, after))
        y = nn.functional.conv1d(with_padding, weight, conv.bias, groups=self.groups)
        return nn.functional.gelu(y.mT[:, :length])

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        # a state that has both names is left to torch, which reports the other one
        for other, name in OTHER_NAMES.items():
            if prefix + other in state_dict and prefix + name not in state_dict:
                state_dict[prefix + name] = state_dict.pop(prefix + other)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _lengths(v: Tensor) -> Tensor:
    """Norm of each tap, (1, 1, k)."""
    return torch.linalg.vector_norm(v, dim=(0, 1), keepdim=True)
