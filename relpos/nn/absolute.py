"""Encodings of absolute positions, as layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import Array, as_array, as_choice, as_int, kind_of, quiet
from relpos._encodings.absolute import MAX_DIM, sinusoidal
from relpos.nn._inputs import as_input, as_size
from relpos.nn.basic import Embedding
from relpos.nn.decoding import KVCaches
from relpos.nn.module import Module

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed


def _positions(length: int, cache: object) -> Array:
    """Return the positions of tokens after a cache, (length,) or (batch, length)."""
    if cache is not None and not isinstance(cache, KVCaches):
        raise TypeError(f"cache: got {kind_of(cache)}; expected a nn.KVCaches, or None")
    before = 0 if cache is None else cache._so_far()
    positions: Array = np.asarray(before)[..., None] + np.arange(length)
    return positions


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
        Source of the initial values, standard normal.
    dtype : {float32, float64}

    Attributes
    ----------
    embedding : Embedding
        Its `weight` is (max_seq_len, embed_size).

    References
    ----------
    .. [1] Gehring et al., "Convolutional Sequence to Sequence Learning", 2017,
       arXiv:1705.03122, section 3.1.

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
        rows = as_size("max_seq_len", max_seq_len)
        width = as_size("embed_size", embed_size)
        self._set_up(rng, dtype, max_seq_len=rows, embed_size=width)
        self.embedding = Embedding(rows, width, rng=self._rng, dtype=dtype)

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
        rows, positions = len(self.embedding.weight.data), _positions(shape[1], cache)
        if positions.max(initial=-1) >= rows:
            raise IndexError(
                f"x: got a sequence of {positions.max() + 1}; expected at most "
                f"max_seq_len = {rows}"
            )
        return self._remember(self.embedding(positions))

    def _backward(self, grad: Array) -> None:
        self.embedding.backward(grad)


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
        Sines and cosines by turns, as above, or all sines before all cosines; as in
        `relpos.sinusoidal`.
    rng : optional
        Not used; every layer takes it.
    dtype : {float32, float64}

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762,
       section 3.5.

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
        settings = {"embed_size": self.embed_size, "max_len": self.max_len}
        self._set_up(rng, dtype, **settings, layout=self.layout)

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
        array = as_input("x", x, self.dtype, ("batch", "seq", self.embed_size))
        positions = _positions(array.shape[1], cache)
        length = positions.max(initial=-1) + 1
        if self.max_len is not None and length > self.max_len:
            raise ValueError(
                f"x: got a sequence of {length}; expected at most max_len = "
                f"{self.max_len}"
            )
        table = sinusoidal(
            positions, self.embed_size, layout=self.layout, dtype=self.dtype
        )
        return self._remember(array + table)

    def _backward(self, grad: Array) -> Array:
        return grad
