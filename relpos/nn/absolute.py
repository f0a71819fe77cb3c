"""Encodings of absolute positions, as layers: added vectors, and a convolution."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from relpos._checks import (
    Array,
    ArrayLike,
    DTypeLike,
    as_array,
    as_choice,
    as_int,
    check_bytes,
    quiet,
)
from relpos._encodings.absolute import MAX_DIM, learned, sinusoidal
from relpos._settings import kernels
from relpos._twins import twin
from relpos.nn._inputs import (
    RANDOM,
    as_input,
    as_mask,
    as_size,
    as_zero_one,
    check_length,
    check_shape,
    product,
)
from relpos.nn.basic import Embedding, sum_rows
from relpos.nn.decoding import KVCaches, as_state, check_state_batch
from relpos.nn.module import LoadResult, Module, Parameter, Seed

__all__ = ["ConvPositionEmbedding", "LearnedAPE", "SinusoidalEncoding"]


def _positions(shape: tuple[int, ...], cache: KVCaches | None) -> Array:
    """Return the positions of tokens after a cache, (length,) or (batch, length)."""
    as_state(None, cache)  # refuses what is no cache
    before = 0 if cache is None else cache._so_far()
    check_state_batch("x", shape[0], "cache", np.shape(before))
    return np.asarray(before)[..., None] + np.arange(shape[1])


@twin(learned, titles=("References",))
class LearnedAPE(Module):
    r"""Learned vector for each absolute position.

    .. math:: y_n = W_n, \quad n = 0, \dots, seq - 1

    Parameters
    ----------
    max_seq_len : int
        Number of positions.
    embed_size : int
        Width of the vectors.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
        Initial values are standard normal.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    embedding : Embedding
        Its `weight` is (max_seq_len, embed_size).

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.LearnedAPE(10, 4, rng=0)
    >>> layer(np.zeros((2, 7))).shape
    (7, 4)
    >>> layer.backward(np.ones((7, 4)))
    >>> layer.embedding.weight.grad[:, 0]
    array([1., 1., 1., 1., 1., 1., 1., 0., 0., 0.], dtype=float32)
    """

    takes = ("cache",)

    def __init__(
        self,
        max_seq_len: int,
        embed_size: int,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self._set_up(rng, dtype, max_seq_len=max_seq_len, embed_size=embed_size)
        self.embedding = Embedding(max_seq_len, embed_size, rng=self._rng, dtype=dtype)

    @quiet
    def __call__(self, x: ArrayLike, *, cache: KVCaches | None = None) -> Array:
        """Return the vectors of the positions in x, to be added to it.

        `backward` returns None, as x has no gradient.

        Parameters
        ----------
        x : array_like, (batch, seq[, ...])
            Only its length is read.
        cache : KVCaches, optional
            The tokens come after those that it has.

        Returns
        -------
        ndarray, (seq, embed_size)
            Rows 0 to seq - 1 of the weight, or those after the tokens of the cache:
            (batch, seq, embed_size) where items have lengths of their own.

        Raises
        ------
        IndexError
            The sequence is longer than `max_seq_len`.
        """
        shape = as_array("x", x).shape
        if len(shape) < 2:
            raise ValueError(f"x: got shape {shape}; expected (batch, seq[, ...])")
        positions = _positions(shape, cache)
        length = positions.max(initial=-1) + 1
        rows = len(self.embedding.weight.data)
        check_length(length, rows, "max_seq_len", IndexError)
        return self._remember(self.embedding(positions))

    def _backward(self, grad: Array) -> None:
        self.embedding.backward(grad)


@twin(sinusoidal, titles=("References",))
class SinusoidalEncoding(Module):
    r"""Sum of the input and the sinusoidal encoding of positions 0, 1, ...

    .. math::

        y_n = x_n + P_n, \quad
        P_{n, 2c} = \sin\left(n / 10000^{2c / E}\right), \quad
        P_{n, 2c + 1} = \cos\left(n / 10000^{2c / E}\right)

    with angles in radians and E = embed_size.

    Parameters
    ----------
    embed_size : int
        From 1 to 2**20.
    max_len : int, optional
        Longest sequence to accept; by default any.
    layout : {"interleaved", "concat"}
        Sines and cosines alternate, as above, or all sines come first; as in
        `relpos.sinusoidal`.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> nn.SinusoidalEncoding(2)(np.zeros((1, 3, 2), np.float32)).round(2)
    array([[[ 0.  ,  1.  ],
            [ 0.84,  0.54],
            [ 0.91, -0.42]]], dtype=float32)
    """

    takes = ("cache",)

    def __init__(
        self,
        embed_size: int,
        max_len: int | None = None,
        layout: str = "interleaved",
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.embed_size = as_int("embed_size", embed_size, 1, MAX_DIM)
        self.max_len = None if max_len is None else as_size("max_len", max_len)
        self.layout = as_choice("layout", layout, ("interleaved", "concat"))
        self._set_up(
            rng,
            dtype,
            others={
                "embed_size": self.embed_size,
                "max_len": self.max_len,
                "layout": self.layout,
            },
        )

    @quiet
    def __call__(self, x: ArrayLike, *, cache: KVCaches | None = None) -> Array:
        """Add the encoding.

        Parameters
        ----------
        x : array_like, (batch, seq, embed_size)
            The tokens.
        cache : KVCaches, optional
            They come after those that it has.

        Returns
        -------
        ndarray, shape of `x`
            Tokens plus encoding, in the layer's dtype.

        Raises
        ------
        ValueError
            The sequence is longer than `max_len`.
        """
        array = as_input("x", x, self.dtype, "batch", "seq", self.embed_size)
        # Not the length alone: the tokens may come after those of a cache.
        positions = _positions(array.shape, cache)
        check_length(positions.max(initial=-1) + 1, self.max_len)
        table = sinusoidal(
            positions, self.embed_size, layout=self.layout, dtype=self.dtype
        )
        return self._remember(array + table)

    def _backward(self, grad: Array) -> Array:
        return grad


# ---- a convolution of the tokens ----------------------------------------------------

#: Taps in one product. The windows of the taps are copied, because a BLAS reads no rows
#: that overlap; with this many taps the copy stays small.
_BLOCK = 8

#: Names of the same parameters in fairseq's sequence of modules, and those that
#: PyTorch's newer weight normalisation gives.
OTHER_NAMES = {
    "0.weight_g": "conv.weight_g",
    "0.weight_v": "conv.weight_v",
    "0.bias": "conv.bias",
    "0.parametrizations.weight.original0": "conv.weight_g",
    "0.parametrizations.weight.original1": "conv.weight_v",
    "conv.parametrizations.weight.original0": "conv.weight_g",
    "conv.parametrizations.weight.original1": "conv.weight_v",
}


class _Convolution(Module):
    """Parameters of the convolution, in PyTorch's order."""

    def __init__(self, start: Array, dtype: np.dtype[Any]) -> None:
        self.bias = Parameter(np.zeros(len(start), dtype))
        self.weight_g = Parameter(_lengths(start).astype(dtype))
        self.weight_v = Parameter(start.astype(dtype))


class ConvPositionEmbedding(Module):
    r"""Embedding of positions by a grouped convolution, as in wav2vec 2.0.

    .. math::

        e_n = GELU\left(b + \sum_{t=0}^{k-1} W_t \,
              x_{n + t - \lfloor k/2 \rfloor}\right), \quad
        W_t = g_t \, V_t / \lVert V_t \rVert

    with zeros around the sequence. The channels fall into `groups` that do not see each
    other, and each tap has a length g_t of its own. The result is to be added to x.

    Parameters
    ----------
    embed_dim : int
        Channels.
    kernel_size : int, default 128
        Taps k. Where it is even, a token sees one more before it than behind it.
    groups : int, default 16
        Divides embed_dim.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
        Initial values are normal of variance 4 / (k embed_dim).
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    conv : Module
        In `state_dict`: ``conv.bias`` (embed_dim,), ``conv.weight_g`` (1, 1, k) and
        ``conv.weight_v`` (embed_dim, embed_dim / groups, k), as in published weights.
        `load_state_dict` takes fairseq's names (``0.weight_g``) and those of PyTorch's
        parametrizations (``conv.parametrizations.weight.original0``) as well.

    Raises
    ------
    ValueError
        `groups` does not divide `embed_dim`.

    References
    ----------
    .. [1] Baevski, Zhou, Mohamed, Auli, "wav2vec 2.0: A Framework for Self-Supervised
       Learning of Speech Representations", 2020, arXiv:2006.11477.
    .. [2] Salimans, Kingma, "Weight Normalization: A Simple Reparameterization to
       Accelerate Training of Deep Neural Networks", 2016, arXiv:1602.07868.
    .. [3] Hendrycks, Gimpel, "Gaussian Error Linear Units (GELUs)", 2016,
       arXiv:1606.08415.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.ConvPositionEmbedding(8, kernel_size=4, groups=2, rng=0)
    >>> x = np.ones((1, 6, 8), np.float32)
    >>> layer(x).shape
    (1, 6, 8)
    >>> [name for name, _ in layer.named_parameters()]
    ['conv.bias', 'conv.weight_g', 'conv.weight_v']
    """

    _mixes_tokens = True

    def __init__(
        self,
        embed_dim: int,
        kernel_size: int = 128,
        groups: int = 16,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        settings = self._set_up(
            rng, dtype, embed_dim=embed_dim, kernel_size=kernel_size, groups=groups
        )
        self.groups: int = settings.groups
        width, taps = settings.embed_dim, settings.kernel_size
        shape = width, width // self.groups, taps
        check_bytes("kernel_size", shape, RANDOM)
        start = math.sqrt(4 / (taps * width)) * self._rng.standard_normal(shape)
        self.conv = _Convolution(start, self.dtype)

    @quiet
    def __call__(self, x: ArrayLike, mask: ArrayLike | None = None) -> Array:
        """Compute the embedding, to be added to x.

        Parameters
        ----------
        x : array_like, (batch, seq, embed_dim)
            The tokens.
        mask : array_like of bool, or 0 and 1, (batch, seq), optional
            True = a token, False = padding, which the convolution does not see.

        Returns
        -------
        ndarray, shape of `x`
            The embedding, to be added to x.

        Raises
        ------
        ValueError
            `mask` holds something else than 0 and 1.
        """
        bias, weight = self.conv.bias.data, self._weight()
        array = as_input("x", x, self.dtype, "batch", "seq", bias.size)
        tokens = None
        if mask is not None:
            # The shape first: a view of a wrong shape may be too large to convert.
            flags = as_mask("mask", mask)
            check_shape("mask", flags, array.shape[:2])
            tokens = as_zero_one("mask", flags)
            array = np.where(tokens[..., None], array, self.dtype.type(0))
        padded = _padded(array, self.groups, weight.shape[-1], weight.shape[-1] // 2)
        taps = self._grouped(weight).transpose(0, 3, 2, 1)
        y, slope = kernels().gelu(_correlate(padded, taps, array.shape[1]) + bias)
        return self._remember(y, padded, slope, tokens)

    def _backward(self, grad: Array, padded: Any, slope: Any, tokens: Any) -> Array:
        weight = self._weight()
        size = weight.shape[-1]
        grad = grad * slope
        self.conv.bias.add_grad(sum_rows(grad))
        # W_t = g_t V_t / |V_t|: the part of W's gradient along V changes the length g,
        # and the part across V turns V.
        v, g = self.conv.weight_v.data, self.conv.weight_g.data
        length = _lengths(v)
        grad_w = _tap_gradients(padded, grad, size).transpose(0, 3, 2, 1)
        grad_w = grad_w.reshape(v.shape).astype(np.float64)
        along = (grad_w * v).sum((0, 1), keepdims=True) / length
        self.conv.weight_g.add_grad(along.astype(v.dtype))
        across = (grad_w - along * v / length) * (g / length)
        self.conv.weight_v.add_grad(across.astype(v.dtype))
        # The gradient of x is a convolution with reversed taps and exchanged channels.
        taps = self._grouped(weight)[..., ::-1].transpose(0, 3, 1, 2)
        around = _padded(grad, self.groups, size, size - 1 - size // 2)
        dx = _correlate(around, taps, grad.shape[1])
        return dx if tokens is None else np.where(tokens[..., None], dx, 0)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> LoadResult:
        if isinstance(state_dict, Mapping):
            named = {OTHER_NAMES.get(key, key): x for key, x in state_dict.items()}
            # Two names of one parameter would be one entry here. The base, which is
            # given the names as they are, reports the one too many.
            if len(named) == len(state_dict):
                state_dict = named
        return super().load_state_dict(state_dict, strict)

    def _weight(self) -> Array:
        """W (embed_dim, embed_dim / groups, k)."""
        v = self.conv.weight_v.data
        weight: Array = v * (self.conv.weight_g.data / _lengths(v).astype(v.dtype))
        return weight

    def _grouped(self, weight: Array) -> Array:
        """View W as (groups, outputs, inputs, taps)."""
        return weight.reshape(self.groups, -1, *weight.shape[1:])


def _lengths(v: Array) -> Array:
    """Norm of each tap, (1, 1, k), in float64."""
    # in float64, as the squares of embed_dim^2 / groups numbers are summed
    total: Array = np.square(v, dtype=np.float64).sum((0, 1), keepdims=True)
    return np.sqrt(total)


def _padded(x: Array, groups: int, taps: int, before: int) -> Array:
    """(B, L, E) -> (B, groups, L + taps - 1 and more, E / groups), zeros around."""
    batch, length, width = x.shape
    # `_blocks` reads windows of _BLOCK taps from each start, also where the last block
    # has fewer taps: hence _BLOCK - 1 rows more than the convolution needs.
    shape = (batch, groups, length + taps + _BLOCK - 2, width // groups)
    padded = np.zeros(shape, x.dtype)
    parts = x.reshape(batch, length, groups, width // groups).swapaxes(1, 2)
    padded[:, :, before : before + length] = parts
    return padded


def _blocks(
    padded: Array, taps: int, length: int
) -> Iterator[tuple[int, int, slice, Array]]:
    """Yield (b, g, columns, windows of these taps), with (t, in) flattened."""
    batch, groups, count, inputs = padded.shape
    shape = count - _BLOCK + 1, _BLOCK * inputs
    for b, g in np.ndindex(batch, groups):
        rows = padded[b, g]
        # Row n of the windows is rows n to n + _BLOCK - 1, one behind the other: with
        # the strides of `rows` it overlaps the next one in memory.
        windows = np.ascontiguousarray(as_strided(rows, shape, rows.strides))
        for first in range(0, taps, _BLOCK):
            end = min(first + _BLOCK, taps)
            seen = windows[first : first + length, : (end - first) * inputs]
            yield b, g, slice(first * inputs, end * inputs), seen


def _correlate(padded: Array, taps: Array, length: int) -> Array:
    """y[b, n] = sum_t padded[b, :, n + t] taps[:, t]; taps (groups, t, in, out)."""
    # A block of taps is one product: windows (n, taps x in) by taps (taps x in, out).
    groups, size, inputs, outputs = taps.shape
    matrices = np.ascontiguousarray(taps).reshape(groups, size * inputs, outputs)
    y = np.zeros((len(padded), groups, length, outputs), padded.dtype)
    for b, g, columns, seen in _blocks(padded, size, length):
        y[b, g] += product(seen, matrices[g, columns])
    return y.swapaxes(1, 2).reshape(len(padded), length, groups * outputs)


def _tap_gradients(padded: Array, grad: Array, size: int) -> Array:
    """Adjoint of `_correlate` for the taps: (groups, t, in, out)."""
    batch, groups, _, inputs = padded.shape
    length, outputs = grad.shape[1], grad.shape[-1] // groups
    parts = grad.reshape(batch, length, groups, outputs).swapaxes(1, 2)
    parts = np.ascontiguousarray(parts)
    total = np.zeros((groups, size * inputs, outputs))
    for b, g, columns, seen in _blocks(padded, size, length):
        total[g, columns] += product(seen.T, parts[b, g])
    return total.reshape(groups, size, inputs, outputs)
