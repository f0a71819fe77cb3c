"""Encodings that are added to tokens: sinusoids, learned tables, and the naive ones.

Positions are a count n, which means 0, 1, ..., n - 1, or numbers exact in float64.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    ArrayLike,
    DTypeLike,
    as_array,
    as_choice,
    as_float_dtype,
    as_floating,
    as_generator,
    as_int,
    as_positive,
    as_real,
    at_least_ndim,
    check_bytes,
    check_memory,
    check_out,
    check_shape,
    coarse_positions,
    integers_of,
    is_floating,
    like,
    native,
    short,
    stored,
    widened,
    wrong_dtype,
)
from relpos._settings import kernels
from relpos._text import amount
from relpos._twins import twin
from relpos._undo import keep, whole

__all__ = ["index_encoding", "learned", "learned_backward", "normalized_index_encoding"]
__all__ += ["random_encoding", "sinusoidal", "sinusoidal_shift_matrix"]

#: Largest `dim`: more frequencies, one by one in 60 digits, would take too long.
MAX_DIM = 2**20
#: float64 holds every integer below this one. It rounds larger integers, but none of
#: them to one below, so that a rounded integer is found by its size.
EXACT = 2**53
_INT64 = np.dtype(np.int64)
_LAYOUTS = ("interleaved", "concat")


def count_of(positions: object, name: str = "positions") -> int | None:
    """Return n if `positions` is an int n, which means 0..n-1; None for an array."""
    if isinstance(positions, int | np.integer) and not isinstance(positions, bool):
        return as_int(name, positions, 0, POSITION_LIMIT)
    return None


def check_exact(name: str, lowest: float, highest: float) -> None:
    """Raise unless float64 holds all integers from `lowest` to `highest` exactly.

    Either may be the float that an integer was rounded to already.
    """
    for number in (lowest, highest):
        if abs(number) >= EXACT:
            raise ValueError(
                f"{name}: leads to position {short(int(number))}; expected integers of "
                "less than 2**53 in size, past which float64 rounds them (or an array "
                "of floats, if that is meant)"
            )


def as_positions(
    positions: ArrayLike, offset: float = 0, name: str = "positions"
) -> Array:
    """Return positions, or a single one, as an array of float64.

    The `offset` is not added; integers and their sums with it have to be exact.
    """
    array = as_array(name, positions)
    if array.dtype.kind not in "iuf" and is_floating(array.dtype):
        raise coarse_positions(name)
    # A long double, of more than 8 bytes, would be rounded to float64.
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise wrong_dtype(name, array, "integers or floats")
    if array.dtype.kind in "iu" and array.size:
        numbers = stored(array)  # a broadcast view has the same numbers many times
        lowest, highest = int(numbers.min()), int(numbers.max())
        check_exact(name, lowest, highest)
        check_exact("offset", lowest + offset, highest + offset)
    return native(array, np.dtype(np.float64))


def as_offset(offset: object) -> float:
    """Return an offset as a float: an integer only if it is exact, any finite float."""
    number = as_real("offset", offset)
    if np.asarray(offset).dtype.kind != "f":
        check_exact("offset", number, number)
    return number


def real_positions(positions: ArrayLike, columns: int, dtype: np.dtype[Any]) -> Array:
    """Return positions of shape S as float64; an int n means 0..n-1.

    A result of shape S + (columns,) and of `dtype` has to fit memory.
    """
    count = count_of(positions)
    if count is not None:
        # Before the arange, which may be too large itself.
        check_memory("positions", (count, columns), dtype)
        return np.arange(count, dtype=np.float64)
    array = as_positions(positions)
    check_memory("positions", (*array.shape, columns), dtype)
    return array


@lru_cache(maxsize=64)
def _frequencies(dim: int, base: float, count: int) -> tuple[Array, Array]:
    """Return base ** (-2 c / dim) for c < count, as the sum of two arrays of float64.

    The first array has the frequencies rounded to float64, the second what is missing.
    Together they have the 106 bits that the kernel computes angles with.
    """
    high, low = [], []
    # Each frequency is the one before times `ratio`. In 60 digits the rounding errors
    # of up to MAX_DIM products stay far below the last of 106 bits, or of 32 digits.
    with localcontext() as context:
        context.prec = 60
        ratio = (Decimal(base).ln() * -2 / dim).exp()
        frequency = Decimal(1)
        for _ in range(count):
            rounded = float(frequency)
            high.append(rounded)
            low.append(float(frequency - Decimal(rounded)))
            frequency *= ratio
    parts = np.array(high), np.array(low)
    for part in parts:
        part.flags.writeable = False  # every later call gets the same arrays
    return parts


def frequency_parts(
    dim: int, base: object, inv_freq: ArrayLike | None, count: int
) -> tuple[Array, Array]:
    """Return `count` frequencies as in `_frequencies`: of a base, or `inv_freq` itself.

    The base is checked in both cases.
    """
    number = as_positive("base", base)
    if inv_freq is None:
        return _frequencies(dim, number, count)
    frequencies = as_floating("inv_freq", inv_freq)
    expected = f"({count},), one frequency per sine of dim {dim}"
    check_shape("inv_freq", frequencies, frequencies.shape == (count,), expected)
    return frequencies.astype(np.float64), np.zeros(count)


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
        An int n means 0, 1, ..., n - 1. Negative and fractional positions are
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
        The dtype of the result.
    out : ndarray, S + (dim,), optional
        Where to put the result, of that `dtype`.

    Returns
    -------
    ndarray, S + (dim,)
        One encoding for each position.

    Raises
    ------
    ValueError
        If `dim`, `base` or `layout` is wrong, or an integer too large to be exact in
        float64.

    Notes
    -----
    Frequencies and angles have 106 bits. To position 2**24 float32 results are within
    1 ulp of the true value and float64 results within 2, or 2**-78 if that is more;
    beyond, the absolute error stays below 1 ulp of 1.0 plus 1e-32 times the position.
    Infinite and NaN positions give NaN.

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
    result_dtype = as_float_dtype(dtype)
    float_positions = real_positions(positions, columns, result_dtype)
    # A frequency has two columns, sine and cosine. The last column of an odd number is
    # a sine of one more frequency if they are interleaved, else zeros.
    pairs, odd = divmod(columns, 2)
    has_last_sine = bool(odd and interleaved)
    count = pairs + 1 if has_last_sine else pairs
    high, low = frequency_parts(columns, base, inv_freq, count)
    shape = (*float_positions.shape, columns)
    if out is None:
        result = np.empty(shape, result_dtype)
    else:
        # The frequencies are a copy of `inv_freq`, which may share memory with `out`.
        inputs = {"positions": float_positions}
        result = check_out(out, shape, result_dtype, inputs)
    # Views of the result, into which the kernel, a ufunc of two outputs, writes.
    if interleaved:
        sines = result[..., 0 : 2 * pairs : 2]
        cosines = result[..., 1::2]
    else:
        sines = result[..., :pairs]
        cosines = result[..., pairs : 2 * pairs]
    kernel = kernels().sinusoidal
    kernel(
        float_positions,
        high[:pairs],
        low[:pairs],
        out=(sines, cosines),
        dtype=result_dtype,
    )
    if has_last_sine:
        kernel(
            float_positions,
            high[pairs:],
            low[pairs:],
            out=(result[..., -1:], None),  # there is no column for the cosine
            dtype=result_dtype,
        )
    elif odd:
        result[..., -1] = 0
    return result


@twin(sinusoidal)
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
        The base and the layout of the encoding.

    Returns
    -------
    ndarray of float64, (dim, dim)
        The matrix M.

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
    # Rows and columns of the matrix that belong to the sines and to the cosines.
    if interleaved:
        sines = 2 * np.arange(pairs)
        cosines = sines + 1
    else:
        sines = np.arange(pairs)
        cosines = sines + pairs
    # Each pair is rotated by the angle of the offset. The last row of an odd `dim`
    # stays zero, as the last column of the encoding is.
    matrix[sines, sines] = matrix[cosines, cosines] = cosine
    matrix[sines, cosines] = sine
    matrix[cosines, sines] = -sine
    return matrix


def int64_positions(positions: ArrayLike, rows: int, name: str = "positions") -> Array:
    """Return positions as int64; an int n means 0..n-1, and has to fit `rows`.

    Positions of an array may lie outside of the table: the kernels refuse them.
    """
    # Most arrays are int64 already. They are not copied, even if another thread may
    # write to them: the kernels check each position as they read it.
    if type(positions) is np.ndarray and positions.dtype == _INT64:
        return positions
    count = count_of(positions, name)
    if count is not None:
        if count > rows:
            raise IndexError(
                f"{name}: position {count - 1} of 0..{count - 1} is outside the "
                f"table of R = {amount(rows, 'row')}; expected at most {rows}"
            )
        return np.arange(count, dtype=np.int64)
    return integers_of(name, positions).astype(np.int64)


def gather(rows: Array, index: Array, name: str) -> Array:
    """Return rows of a floating table (..., R, E); errors call the positions `name`."""
    if rows.itemsize == 2:
        # The kernel has float32 and float64: it checks the positions alone, so that no
        # row is converted that nobody asked for.
        no_columns = np.empty((*rows.shape[:-1], 0), np.float32)
        kernels().learned_rows(no_columns, index, name)
        return like(np.take(rows, index, axis=-2), rows)
    gathered = kernels().learned_rows(widened(rows), index, name)
    if gathered.dtype == rows.dtype:  # most are, and need no further call
        return gathered
    return like(gathered, rows)


def learned(table: ArrayLike, positions: ArrayLike) -> Array:
    r"""Look up rows of a learned table of encodings.

    .. math:: y_{..., n, :} = table_{..., positions_n, :}

    Parameters
    ----------
    table : array_like of float, (..., R, E)
        One encoding per position.
    positions : int or array_like of int, any shape S
        An int n means 0, 1, ..., n - 1.

    Returns
    -------
    ndarray, (..., *S, E)
        A copy of the row of each position.

    Raises
    ------
    IndexError
        If a position is negative, or R or more.

    References
    ----------
    .. [1] Gehring et al., "Convolutional Sequence to Sequence Learning", 2017,
       arXiv:1705.03122, section 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> table = np.array([[0.0, 0.1], [1.0, 1.1], [2.0, 2.1]])
    >>> relpos.learned(table, 2)
    array([[0. , 0.1],
           [1. , 1.1]])
    >>> relpos.learned(table, [2, 0, 2])
    array([[2. , 2.1],
           [0. , 0.1],
           [2. , 2.1]])
    """
    rows = as_floating("table", table)
    at_least_ndim("table", rows, 2, "(..., R, E)")
    return gather(rows, int64_positions(positions, rows.shape[-2]), "positions")


@twin(learned)
def learned_backward(
    grad_out: ArrayLike, positions: ArrayLike, num_positions: int
) -> Array:
    r"""Gradient of the table of `learned`: each row is the sum over its positions.

    .. math:: g_{..., t, :} = \sum_{n:\; positions_n = t} grad\_out_{..., n, :}

    Parameters
    ----------
    grad_out : array_like of float, (..., *S, E)
        Gradient of what `learned` returned.
    positions : int or array_like of int, shape S
        As in `learned`.
    num_positions : int
        Rows R of the table.

    Returns
    -------
    ndarray, (..., R, E)
        Summed in the order of the positions, whatever the number of threads.

    Raises
    ------
    ValueError
        If the axes of `grad_out` before the last are not those of `positions`.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> relpos.learned_backward(np.array([[1.0], [10.0], [100.0]]), [2, 0, 2], 3)
    array([[ 10.],
           [  0.],
           [101.]])
    """
    grad = as_floating("grad_out", grad_out)
    rows = as_int("num_positions", num_positions, 0, POSITION_LIMIT)
    index = int64_positions(positions, rows)
    # The axes of `grad` are those of the batch, of the positions, and E.
    batch_ndim = grad.ndim - 1 - index.ndim
    if batch_ndim < 0 or grad.shape[batch_ndim:-1] != index.shape:
        lengths = [str(length) for length in index.shape]
        expected = ", ".join(["...", *lengths, "E"])
        raise ValueError(
            f"grad_out: shape {grad.shape} does not match positions of shape "
            f"{index.shape}; expected ({expected})"
        )
    if index.ndim != 1:  # the kernel takes one axis of positions
        grad = grad.reshape(*grad.shape[:batch_ndim], index.size, grad.shape[-1])
    check_bytes("num_positions", (*grad.shape[:-2], rows, grad.shape[-1]), grad.dtype)
    sums = kernels().learned_sums(widened(grad), index, rows)
    if sums.dtype == grad.dtype:  # as in `gather`
        return sums
    return like(sums, grad)


def _naive_shape_and_dtype(
    length: object, dim: object, dtype: Any
) -> tuple[tuple[int, int], np.dtype[Any]]:
    """Check the arguments of a naive encoding; return its shape and its dtype."""
    rows = as_int("length", length, 0, POSITION_LIMIT)
    columns = as_int("dim", dim, 1, POSITION_LIMIT)
    shape = (rows, columns)
    result_dtype = as_float_dtype(dtype)
    check_bytes("length", shape, result_dtype)
    return shape, result_dtype


def _index_rows(length: int, dim: int, dtype: DTypeLike, normalized: bool) -> Array:
    """Return rows of the index n, or of n / (length - 1) if `normalized`."""
    (rows, columns), result_dtype = _naive_shape_and_dtype(length, dim, dtype)
    divisor = 1
    if normalized:
        divisor = max(rows - 1, 1)  # of one row, whose index is 0, too
    return kernels().index_rows(rows, columns, result_dtype.char, divisor)


def index_encoding(length: int, dim: int, *, dtype: DTypeLike = np.float32) -> Array:
    r"""Naive encoding by the index itself: :math:`P_{n,c} = n`.

    Parameters
    ----------
    length, dim : int
        Rows and columns.
    dtype : {float32, float64}
        The dtype of the result.

    Returns
    -------
    ndarray, (length, dim)
        Every column is 0, 1, ..., length - 1.

    Raises
    ------
    ValueError
        If `length` is negative or `dim` less than 1.

    References
    ----------
    .. [1] "Positional Encodings: Overview", a notebook of the SELENE collection.

    Examples
    --------
    >>> import relpos
    >>> relpos.index_encoding(3, 2)
    array([[0., 0.],
           [1., 1.],
           [2., 2.]], dtype=float32)
    """
    return _index_rows(length, dim, dtype, normalized=False)


@twin(index_encoding)
def normalized_index_encoding(
    length: int, dim: int, *, dtype: DTypeLike = np.float32
) -> Array:
    r"""Naive encoding by the index over the length: :math:`P_{n,c} = n / (length - 1)`.

    Values stay in [0, 1], but the step between neighbours depends on the length. A
    length of 1 gives 0.

    Parameters
    ----------
    length, dim, dtype : as in `index_encoding`
        Rows and columns, and the number type of the result.

    Returns
    -------
    ndarray, (length, dim)
        Every column runs from 0 to 1.

    Examples
    --------
    >>> import relpos
    >>> relpos.normalized_index_encoding(3, 1)
    array([[0. ],
           [0.5],
           [1. ]], dtype=float32)
    """
    return _index_rows(length, dim, dtype, normalized=True)


@twin(index_encoding)
@whole
def random_encoding(
    length: int,
    dim: int,
    *,
    rng: int | np.random.Generator | None,
    dtype: DTypeLike = np.float32,
) -> Array:
    r"""Naive encoding at random: every :math:`P_{n,c}` uniform in [-1, 1).

    Positions have different vectors, which do not depend on their distance.

    Parameters
    ----------
    length, dim : as in `index_encoding`
        Rows and columns.
    rng : int, numpy.random.Generator or None
        Seed or source of the numbers.
    dtype : {float32, float64}
        The dtype of the result, and of the random numbers.

    Returns
    -------
    ndarray, (length, dim)
        The random numbers.

    Examples
    --------
    >>> import relpos
    >>> P = relpos.random_encoding(4, 8, rng=0)
    >>> P.shape, bool((abs(P) <= 1).all())
    ((4, 8), True)
    """
    shape, result_dtype = _naive_shape_and_dtype(length, dim, dtype)
    generator = as_generator(rng)
    keep(generator)  # an error takes the draw back
    values: Array = generator.random(shape, dtype=result_dtype)
    # In place, so that there is no second array.
    values *= 2
    values -= 1
    return values
