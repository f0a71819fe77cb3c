"""The sinusoidal encoding, and the matrix that moves it."""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import (
    Array,
    as_choice,
    as_float_dtype,
    as_floating,
    as_int,
    as_real,
    check_out,
)
from relpos._encodings.positions import as_offset, real_positions
from relpos._settings import kernels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

#: Columns at most: the frequencies are computed one by one, in 60 digits.
MAX_DIM = 2**20
_LAYOUTS = ("interleaved", "concat")


@lru_cache(maxsize=64)
def _frequencies(dim: int, base: float, count: int) -> tuple[Array, Array]:
    """Return base ** (-2 c / dim) for c < count, as high + low parts of float64.

    60 digits, so that neither the powers nor their product with a position of any size
    a float64 can count exactly loses a bit that the two parts could hold.
    """
    with localcontext() as context:
        context.prec = 60
        ratio = (Decimal(base).ln() * -2 / dim).exp()
        exact = [Decimal(1)]
        while len(exact) < count:
            exact.append(exact[-1] * ratio)
        high = [float(value) for value in exact[:count]]
        low = [float(x - Decimal(h)) for x, h in zip(exact[:count], high, strict=True)]
    parts = np.array(high), np.array(low)
    for part in parts:
        part.flags.writeable = False  # every later call gets the same arrays
    return parts


def frequency_parts(
    dim: int, base: object, inv_freq: ArrayLike | None, count: int
) -> tuple[Array, Array]:
    number = as_real("base", base)
    if number <= 0:
        raise ValueError(f"base: got {number}; expected a positive number")
    if inv_freq is None:
        return _frequencies(dim, number, count)
    given = as_floating("inv_freq", inv_freq)
    if given.shape != (count,):
        raise ValueError(
            f"inv_freq: got shape {given.shape}; expected ({count},), one frequency "
            f"per sine of dim {dim}"
        )
    return given.astype(np.float64), np.zeros(count)


def sinusoidal(
    positions: ArrayLike,
    dim: int,
    *,
    base: float = 10000.0,
    inv_freq: ArrayLike | None = None,
    layout: str = "interleaved",
    dtype: DTypeLike = np.float32,
    out: Array | None = None,
) -> Array:
    r"""Sinusoidal encoding of positions.

    .. math::

        P_{n,2c} = \sin(n \, \omega_c), \quad P_{n,2c+1} = \cos(n \, \omega_c), \quad
        \omega_c = base^{-2c/dim}

    Parameters
    ----------
    positions : int or array_like of any shape S
        The int n stands for 0, 1, ..., n - 1. Negative and fractional positions are
        legal; integers of less than 2**53 in size, which float64 holds exactly.
    dim : int
        Columns, from 1 to 2**20.
    base : float, default 10000
        Wavelengths run from 2 pi to about 2 pi base positions.
    inv_freq : array_like of float, optional
        The frequencies themselves in radians per position, instead of those of `base`:
        dim // 2 of them, one more where an odd `dim` ends in a sine.
    layout : {"interleaved", "concat"}
        "interleaved" (the paper): sine and cosine take turns; an odd `dim` ends in a
        sine. "concat" (Transformer-XL): all sines, then all cosines; an odd `dim` ends
        in a column of zeros.
    dtype : {float32, float64}
        Of the result.
    out : ndarray, S + (dim,), optional
        Where to put the result, of that `dtype`.

    Returns
    -------
    ndarray, S + (dim,)
        One encoding for each position.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `dim`, `base`, `layout`, or the shape of `inv_freq` or `out` is wrong, or an
        integer too large to be exact in float64.

    See Also
    --------
    sinusoidal_shift_matrix : Moves it by an offset.
    learned : A table that is learned.
    apply_rotary : Turns queries and keys by the same angles.
    relpos.nn.SinusoidalEncoding : The same as a layer.

    Notes
    -----
    Frequencies and angles have 106 bits. To position 2**24 float32 results are within
    1 ulp of the true value and float64 results within 2; beyond, the absolute error
    stays below 1 ulp of 1.0 plus 1e-32 times the position. Infinite and NaN positions
    give NaN.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762,
       section 3.5.

    Examples
    --------
    >>> import relpos
    >>> relpos.sinusoidal(3, 4).round(2)
    array([[ 0.  ,  1.  ,  0.  ,  1.  ],
           [ 0.84,  0.54,  0.01,  1.  ],
           [ 0.91, -0.42,  0.02,  1.  ]], dtype=float32)
    >>> relpos.sinusoidal([-1.5], 2, layout="concat").round(4)
    array([[-0.9975,  0.0707]], dtype=float32)
    """
    columns = as_int("dim", dim, 1, MAX_DIM)
    interleaved = as_choice("layout", layout, _LAYOUTS) == "interleaved"
    wanted = as_float_dtype(dtype)
    where = real_positions(positions, columns, wanted)
    pairs, odd = divmod(columns, 2)
    parts = frequency_parts(columns, base, inv_freq, pairs + odd * interleaved)
    shape = (*where.shape, columns)
    if out is None:
        result = np.empty(shape, wanted)
    else:
        inputs = {"positions": where, "inv_freq": parts[0]}
        result = check_out(out, shape, wanted, inputs)
    high, low = (part[:pairs] for part in parts)
    if interleaved:
        places = result[..., 0 : 2 * pairs : 2], result[..., 1::2]
    else:
        places = result[..., :pairs], result[..., pairs : 2 * pairs]
    kernel = kernels().sinusoidal
    kernel(where, high, low, out=places, dtype=wanted)
    if odd and interleaved:
        last = result[..., -1:], None  # its cosine has no column
        kernel(where, parts[0][pairs:], parts[1][pairs:], out=last, dtype=wanted)
    elif odd:
        result[..., -1] = 0
    return result


def sinusoidal_shift_matrix(
    offset: float, dim: int, *, base: float = 10000.0, layout: str = "interleaved"
) -> Array:
    r"""Matrix that moves every sinusoidal encoding by the same offset.

    .. math:: M P_n = P_{n + offset} \quad \text{for every } n

    M is made of one 2x2 rotation per frequency, by the addition theorems:
    :math:`\sin(\omega (n + a)) = \cos(\omega a) \sin(\omega n) + \sin(\omega a)
    \cos(\omega n)`.

    Parameters
    ----------
    offset : float
        Positions to move by; negative and fractional ones are legal.
    dim : int
        Columns of the encoding; even where `layout` is "interleaved", because a last
        sine without its cosine cannot be moved.
    base, layout : as in `sinusoidal`
        Those of the encoding.

    Returns
    -------
    ndarray of float64, (dim, dim)
        The matrix M.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `offset` is not finite, or `dim`, `base` or `layout` is wrong.

    See Also
    --------
    sinusoidal : The encoding that it moves.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762,
       section 3.5.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> P = relpos.sinusoidal(9, 4, dtype=np.float64)
    >>> M = relpos.sinusoidal_shift_matrix(3, 4)
    >>> bool(np.allclose(M @ P[5], P[8], rtol=0, atol=1e-15))
    True
    """
    shift = np.float64(as_offset(offset))
    columns = as_int("dim", dim, 1, MAX_DIM)
    interleaved = as_choice("layout", layout, _LAYOUTS) == "interleaved"
    if interleaved and columns % 2:
        raise ValueError(
            f"dim: got {columns}; expected an even number, the last sine has no cosine "
            'to be moved with (layout="concat" ends an odd dim in zeros)'
        )
    pairs = columns // 2
    matrix = np.zeros((columns, columns))
    high, low = frequency_parts(columns, base, None, pairs)
    sine, cosine = kernels().sinusoidal(shift, high, low, dtype=np.float64)
    c = np.arange(pairs)
    sines, cosines = (2 * c, 2 * c + 1) if interleaved else (c, pairs + c)
    matrix[sines, sines] = matrix[cosines, cosines] = cosine
    matrix[sines, cosines] = sine
    matrix[cosines, sines] = -sine
    return matrix
