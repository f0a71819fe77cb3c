"""Learned tables of encodings: rows out, and their gradient back in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_floating,
    as_int,
    at_least_ndim,
    integers_of,
    rounded,
    widened,
)
from relpos._encodings.positions import count_of
from relpos._settings import kernels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_INT64 = np.dtype(np.int64)


def int64_positions(positions: ArrayLike, rows: int, name: str = "positions") -> Array:
    """Return the positions as int64; the kernels look whether one is outside the table.

    The int n stands for 0..n-1, and has to fit `rows`.
    """
    if type(positions) is np.ndarray and positions.dtype == _INT64:  # most are
        return positions
    count = count_of(positions, name)
    if count is not None:
        if count > rows:
            raise IndexError(
                f"{name}: position {count - 1} of 0..{count - 1} is outside the "
                f"table of R = {rows} rows; expected at most {rows}"
            )
        return np.arange(count, dtype=np.int64)
    return integers_of(name, positions).astype(np.int64)


def gather(rows: Array, index: Array, name: str) -> Array:
    """Rows of a floating table (..., R, E); errors call the positions `name`."""
    found = kernels().learned_rows(widened(rows), index, name)
    if found.dtype == rows.dtype:  # not of float16
        return found
    return rounded(found, rows.dtype.newbyteorder("="))


def learned(table: ArrayLike, positions: ArrayLike) -> Array:
    r"""Look up rows of a learned table of encodings.

    .. math:: y_{..., n, :} = table_{..., positions_n, :}

    Parameters
    ----------
    table : array_like of float, (..., R, E)
        One encoding per position.
    positions : int or array_like of int, any shape S
        The int n stands for 0, 1, ..., n - 1.

    Returns
    -------
    ndarray, (..., *S, E)
        A copy of the row of each position.

    Raises
    ------
    TypeError
        If `table` is not floating or `positions` are not integers.
    ValueError
        If `table` has fewer than two axes.
    IndexError
        If a position is negative, or R or more.

    See Also
    --------
    learned_backward : Gradient of the table.
    sinusoidal : Nothing to learn, and no last position.
    relpos.nn.LearnedAPE : The same as a layer.

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


def learned_backward(
    grad_out: ArrayLike, positions: ArrayLike, num_positions: int
) -> Array:
    r"""Gradient of the table of `learned`: rows that were read collect what came back.

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
    TypeError
        If `grad_out` is not floating or `positions` are not integers.
    ValueError
        If the axes of `grad_out` before the last are not those of `positions`.
    IndexError
        If a position is negative, or R or more.

    See Also
    --------
    learned : The forward.

    References
    ----------
    .. [1] Gehring et al., "Convolutional Sequence to Sequence Learning", 2017,
       arXiv:1705.03122, section 3.1.

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
    batch = grad.ndim - 1 - index.ndim
    if batch < 0 or grad.shape[batch:-1] != index.shape:
        wanted = ", ".join(["...", *map(str, index.shape), "E"])
        raise ValueError(
            f"grad_out: shape {grad.shape} does not match positions of shape "
            f"{index.shape}; expected ({wanted})"
        )
    if index.ndim != 1:
        grad = grad.reshape(*grad.shape[:batch], index.size, grad.shape[-1])
    sums = kernels().learned_sums(widened(grad), index, rows)
    if sums.dtype == grad.dtype:  # not of float16
        return sums
    return rounded(sums, grad.dtype.newbyteorder("="))
