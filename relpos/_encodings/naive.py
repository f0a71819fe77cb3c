"""The naive encodings: the index, the index over the length, and chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_float_dtype,
    as_generator,
    as_int,
    check_bytes,
)
from relpos._settings import kernels
from relpos._undo import keep, whole

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


def _checked_shape(length: object, dim: object) -> tuple[int, int]:
    rows = as_int("length", length, 0, POSITION_LIMIT)
    return rows, as_int("dim", dim, 1, POSITION_LIMIT)


def _index_rows(rows: int, columns: int, dtype: DTypeLike, divisor: int) -> Array:
    wanted = as_float_dtype(dtype)
    check_bytes("length", (rows, columns), wanted)
    return kernels().index_rows(rows, columns, wanted.char, divisor)


def index_encoding(length: int, dim: int, *, dtype: DTypeLike = np.float32) -> Array:
    r"""Naive encoding by the index itself: :math:`P_{n,c} = n`.

    Its values grow without bound, which is what makes it naive.

    Parameters
    ----------
    length, dim : int
        Rows and columns.
    dtype : {float32, float64}
        Of the result.

    Returns
    -------
    ndarray, (length, dim)
        Every column is 0, 1, ..., length - 1.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `length` is negative or `dim` less than 1.

    See Also
    --------
    normalized_index_encoding, random_encoding : The other naive ones.
    audit_encoding : Tells what is wrong with it.

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
    rows, columns = _checked_shape(length, dim)
    return _index_rows(rows, columns, dtype, 1)


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

    Raises
    ------
    TypeError, ValueError
        As `index_encoding`.

    See Also
    --------
    index_encoding, random_encoding : The other naive ones.
    audit_encoding : Tells what is wrong with it.

    References
    ----------
    .. [1] "Positional Encodings: Overview", a notebook of the SELENE collection.

    Examples
    --------
    >>> import relpos
    >>> relpos.normalized_index_encoding(3, 1)
    array([[0. ],
           [0.5],
           [1. ]], dtype=float32)
    """
    rows, columns = _checked_shape(length, dim)
    return _index_rows(rows, columns, dtype, max(rows - 1, 1))


@whole
def random_encoding(
    length: int,
    dim: int,
    *,
    rng: int | np.random.Generator | None,
    dtype: DTypeLike = np.float32,
) -> Array:
    r"""Naive encoding by chance: every :math:`P_{n,c}` uniform in [-1, 1).

    Positions are told apart, but nothing says which is near which.

    Parameters
    ----------
    length, dim : as in `index_encoding`
        Rows and columns.
    rng : int, numpy.random.Generator or None
        Seed or source of the numbers.
    dtype : {float32, float64}
        Of the result, and of the numbers drawn.

    Returns
    -------
    ndarray, (length, dim)
        The numbers drawn.

    Raises
    ------
    TypeError, ValueError
        As `index_encoding`; also if `rng` is of another kind, or negative.

    See Also
    --------
    index_encoding, normalized_index_encoding : The other naive ones.
    audit_encoding : Tells what is wrong with it.

    References
    ----------
    .. [1] "Positional Encodings: Overview", a notebook of the SELENE collection.

    Examples
    --------
    >>> import relpos
    >>> P = relpos.random_encoding(4, 8, rng=0)
    >>> P.shape, bool((abs(P) <= 1).all())
    ((4, 8), True)
    """
    shape = _checked_shape(length, dim)
    wanted: Any = as_float_dtype(dtype)
    generator = as_generator(rng)
    keep(generator)
    values: Array = generator.random(shape, dtype=wanted)
    values *= 2
    values -= 1
    return values
