"""Rotary encoding as a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._checks import POSITION_LIMIT, Array, as_flag, as_int, as_real, quiet
from relpos._encodings.rotary import apply_rotary
from relpos.nn._inputs import as_input, as_size
from relpos.nn.position import Position

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed

__all__ = ["Rotary"]


class Rotary(Position):
    r"""Turn pairs of columns of queries and keys by angles that grow with the position.

    .. math::

        y_a = a \cos\theta - b \sin\theta, \quad y_b = b \cos\theta + a \sin\theta,
        \quad \theta_{n,c} = n \, base^{-2c/D}

    `backward` returns the gradient of x: that of the result, rotated back.

    .. math:: \bar a = \bar y_a \cos\theta + \bar y_b \sin\theta, \quad
              \bar b = \bar y_b \cos\theta - \bar y_a \sin\theta

    Parameters
    ----------
    head_dim : int
        D, the columns of a head; even.
    base : float, default 10000
        Wavelengths run from 2 pi to about 2 pi base positions.
    interleaved : bool, default False
        Which columns are a pair, as in `relpos.apply_rotary`.
    rng : optional
        Not used; every layer takes it.
    dtype : {float32, float64}

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        `head_dim` is below 2 or odd, or `base` is no positive number.

    See Also
    --------
    MultiheadAttention : Takes it as `position`.
    relpos.apply_rotary : The same as a function.
    SinusoidalEncoding : An encoding that is added instead.

    References
    ----------
    .. [1] Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
       2021, arXiv:2104.09864.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.Rotary(2)
    >>> layer(np.array([[1.0, 0.0], [1.0, 0.0]], np.float32)).round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]], dtype=float32)
    """

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.head_dim = as_size("head_dim", head_dim)
        if self.head_dim % 2:
            raise ValueError(
                f"head_dim: got {head_dim}; expected an even number, as columns are "
                "turned in pairs"
            )
        base = as_real("base", base)
        if not 0.0 < base < np.inf:
            raise ValueError(f"base: got {base}; expected a positive number")
        self._pairs: dict[str, Any] = {
            "base": base,
            "interleaved": as_flag("interleaved", interleaved),
        }
        self._set_up(rng, dtype, head_dim=self.head_dim, **self._pairs)

    @quiet
    def __call__(self, x: ArrayLike, offset: int = 0) -> Array:
        """Turn queries or keys.

        Parameters
        ----------
        x : array_like, (..., L, head_dim)
            Rows at positions offset, offset + 1, ...
        offset : int, default 0
            Position of row 0.

        Returns
        -------
        ndarray, shape of `x`
            The rows turned.

        Raises
        ------
        TypeError
            `x` is not floating or of a wider dtype than the layer, or `offset` is no
            integer.
        ValueError
            `x` has another number of columns, or `offset` is out of range.

        See Also
        --------
        relpos.apply_rotary : The same as a function.
        """
        array = as_input("x", x, self.dtype, ("...", "L", self.head_dim))
        first = as_int("offset", offset, -POSITION_LIMIT, POSITION_LIMIT)
        return self._remember(self.rotate(array, first), first)

    def _backward(self, grad: Array, first: Any) -> Array:
        return self.rotate(grad, first, inverse=True)

    def rotate(self, x: Array, offset: Any = 0, inverse: bool = False) -> Array:
        """Turn rows of heads, of which items may have offsets of their own.

        Parameters
        ----------
        x : ndarray, (..., H, L, head_dim)
            Rows at positions offset, offset + 1, ...
        offset : int or ndarray of int, default 0
            Position of row 0, of all items or of each.
        inverse : bool, default False
            Turn back.

        Returns
        -------
        ndarray, shape of `x`
            The rows turned.

        Raises
        ------
        TypeError, ValueError
            As `relpos.apply_rotary`; ValueError for another number of columns.

        See Also
        --------
        relpos.apply_rotary : The same as a function.
        """
        if x.shape[-1] != self.head_dim:
            raise ValueError(
                f"head_dim: got {self.head_dim} for heads of {x.shape[-1]} columns; "
                "expected as many"
            )
        positions = np.asarray(offset)[..., None, None] + np.arange(x.shape[-2])
        if positions.size == x.shape[-2]:
            positions = positions.ravel()
        return apply_rotary(x, positions, inverse=inverse, **self._pairs)
