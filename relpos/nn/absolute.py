"""Encodings of absolute positions as layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import Array, as_array, as_choice
from relpos.encodings import sinusoidal
from relpos.nn._inputs import as_input, as_size
from relpos.nn.embedding import Embedding
from relpos.nn.module import Module

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed

__all__ = ["LearnedAPE", "SinusoidalEncoding"]


class LearnedAPE(Module):
    """A learned vector for each absolute position.

    Parameters
    ----------
    max_seq_len : int
        Number of positions.
    embed_size : int
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values, standard normal.
    dtype : {float32, float64}

    Attributes
    ----------
    embedding : Embedding
        Its `weight` is (max_seq_len, embed_size).

    Raises
    ------
    IndexError
        A sequence is longer than `max_seq_len`.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.LearnedAPE(10, 4, rng=0)
    >>> layer(np.zeros((2, 7))).shape
    (7, 4)
    """

    def __init__(
        self,
        max_seq_len: int,
        embed_size: int,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        rows, width = (
            as_size("max_seq_len", max_seq_len),
            as_size("embed_size", embed_size),
        )
        self._set_up(rng, dtype, max_seq_len=rows, embed_size=width)
        self.embedding = Embedding(rows, width, rng=self._rng, dtype=dtype)

    def __call__(self, x: ArrayLike) -> Array:
        """Return the vectors (seq, embed_size) for x (batch, seq[, ...]).

        Only the length of x is read; the result has no batch axis and is to be added.
        """
        shape = as_array("x", x).shape
        if len(shape) < 2:
            raise ValueError(f"x: got shape {shape}; expected (batch, seq[, ...])")
        rows = len(self.embedding.weight.data)
        if shape[1] > rows:
            raise IndexError(
                f"x: got a sequence of {shape[1]}; expected at most max_seq_len = "
                f"{rows}"
            )
        return self.embedding(shape[1])

    def backward(self, grad_out: ArrayLike) -> None:
        """Add the gradient of the weight from grad_out (seq, embed_size)."""
        self.embedding.backward(grad_out)


class SinusoidalEncoding(Module):
    """Adds the sinusoidal encoding of positions 0, 1, ... to its input.

    Parameters
    ----------
    embed_size : int
    max_len : int, optional
        Longest sequence to accept; by default any.
    layout : {"interleaved", "concat"}
        As in `relpos.sinusoidal`.
    rng : optional
        Not used; every layer takes it.
    dtype : {float32, float64}

    See Also
    --------
    relpos.sinusoidal : the encoding itself, at any positions.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> nn.SinusoidalEncoding(2)(np.zeros((1, 3, 2), np.float32)).round(2)
    array([[[ 0.  ,  1.  ],
            [ 0.84,  0.54],
            [ 0.91, -0.42]]], dtype=float32)
    """

    def __init__(
        self,
        embed_size: int,
        max_len: int | None = None,
        layout: str = "interleaved",
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.embed_size = as_size("embed_size", embed_size)
        self.max_len = None if max_len is None else as_size("max_len", max_len)
        self.layout = as_choice("layout", layout, ("interleaved", "concat"))
        settings = {"embed_size": self.embed_size, "max_len": self.max_len}
        self._set_up(rng, dtype, **settings, layout=self.layout)

    def __call__(self, x: ArrayLike) -> Array:
        """Return x (batch, seq, embed_size) plus the encoding."""
        array = as_input("x", x, self.dtype, ("batch", "seq", self.embed_size))
        length = array.shape[1]
        if self.max_len is not None and length > self.max_len:
            raise ValueError(
                f"x: got a sequence of {length}; expected at most max_len = "
                f"{self.max_len}"
            )
        table = sinusoidal(
            length, self.embed_size, layout=self.layout, dtype=self.dtype
        )
        return self._remember(array + table)

    def backward(self, grad_out: ArrayLike) -> Array:
        """Return the gradient of x, which is `grad_out`."""
        (grad,) = self._recall(grad_out)
        result: Array = grad
        return result
