"""Learned tables of encodings: rows out, and their gradient back in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_floating,
    as_int,
    as_integers,
    at_least_ndim,
    quiet,
)
from relpos._encodings.positions import count_of
from relpos._settings import kernels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def table_positions(positions: ArrayLike, rows: int, name: str = "positions") -> Array:
    """Private int64 copy of the positions, every one inside the table."""
    count = count_of(positions, name)
    if count is not None:
        if count > rows:
            raise IndexError(
                f"{name}: position {count - 1} of 0..{count - 1} is outside the "
                f"table of R = {rows} rows; expected at most {rows}"
            )
        return np.arange(count, dtype=np.int64)
    index = as_integers(name, positions)
    outside = (index < 0) | (index >= rows)
    if outside.any():
        wrong = index[outside][0]
        raise IndexError(
            f"{name}: position {wrong} is outside the table of R = {rows} rows; "
            f"expected 0 to {rows - 1}"
        )
    return index


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
    index = table_positions(positions, rows.shape[-2])
    dtype = np.result_type(rows.dtype, np.float32)
    found: Array = kernels().learned(rows, index.reshape(-1), dtype=dtype)
    shape = (*rows.shape[:-2], *index.shape, rows.shape[-1])
    return found.reshape(shape).astype(rows.dtype.newbyteorder("="), copy=False)


@quiet
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
    index = table_positions(positions, rows)
    batch = grad.shape[: max(grad.ndim - 1 - index.ndim, 0)]
    if grad.ndim < 1 or grad.shape[len(batch) : -1] != index.shape:
        wanted = ", ".join(["...", *map(str, index.shape), "E"])
        raise ValueError(
            f"grad_out: shape {grad.shape} does not match positions of shape "
            f"{index.shape}; expected ({wanted})"
        )
    dtype = np.result_type(grad.dtype, np.float32)
    out = np.empty((*batch, rows, grad.shape[-1]), dtype)
    flat = grad.reshape(*batch, index.size, grad.shape[-1])
    kernels().learned_backward(flat, index.reshape(-1), out=out, dtype=dtype)
    return out.astype(grad.dtype.newbyteorder("="), copy=False)
