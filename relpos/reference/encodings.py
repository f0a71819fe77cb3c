"""Encodings of absolute positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from relpos._checks import as_generator
from relpos.reference._typing import ArrayLike, Floats, Rng

__all__ = [
    "index_encoding",
    "learned",
    "learned_backward",
    "normalized_index_encoding",
    "random_encoding",
    "sinusoidal",
    "sinusoidal_shift_matrix",
]


def frequencies(dim: int, base: float, layout: str) -> Floats:
    """ω_c = base^(-2c/dim): one for each sine of the layout."""
    count = (dim + 1) // 2 if layout == "interleaved" else dim // 2
    return np.float64(base) ** (-2.0 * np.arange(count) / dim)


def counted(positions: ArrayLike) -> npt.NDArray[Any]:
    """Positions as an array; the int n stands for 0..n-1."""
    positions = np.asarray(positions)
    whole = positions.ndim == 0 and positions.dtype.kind in "iu"
    return np.arange(int(positions)) if whole else positions


def sinusoidal(
    positions: ArrayLike,
    dim: int,
    *,
    base: float = 10000.0,
    inv_freq: ArrayLike | None = None,
    layout: str = "interleaved",
) -> Floats:
    """Sines and cosines of n·ω_c, ω_c = base^(-2c/dim).

    "interleaved": P[n, 2c] = sin(n·ω_c), P[n, 2c+1] = cos(n·ω_c); an odd dim ends in
    a sine. "concat": P[n, c] = sin(n·ω_c), P[n, dim//2 + c] = cos(n·ω_c); an odd dim
    ends in a column of zeros. `positions` is a count (0..n-1) or an array of any
    shape S, negative and fractional positions allowed. Returns S + (dim,).

    See Also
    --------
    relpos.sinusoidal : By the kernels; describes the arguments.
    sinusoidal_shift_matrix : Moves it by an offset.

    References
    ----------
    Vaswani et al. (2017), section 3.5, arXiv:1706.03762 (interleaved);
    Dai et al. (2019), arXiv:1901.02860 (concat).

    Examples
    --------
    >>> np.round(sinusoidal([0, 1, -1], 2), 4)
    array([[ 0.    ,  1.    ],
           [ 0.8415,  0.5403],
           [-0.8415,  0.5403]])
    """
    n = counted(positions).astype(np.float64)
    omega = frequencies(dim, base, layout) if inv_freq is None else inv_freq
    phase = n[..., None] * np.asarray(omega, dtype=np.float64)
    encoding = np.zeros((*n.shape, dim))
    if layout == "interleaved":
        encoding[..., 0::2] = np.sin(phase)
        encoding[..., 1::2] = np.cos(phase[..., : dim // 2])
    else:
        half = dim // 2
        encoding[..., :half] = np.sin(phase)
        encoding[..., half : 2 * half] = np.cos(phase)
    return encoding


def sinusoidal_shift_matrix(
    offset: float, dim: int, *, base: float = 10000.0, layout: str = "interleaved"
) -> Floats:
    """M with M @ P[n] = P[n + offset] for every n: one 2 x 2 rotation per frequency.

    sin(ω(n + a)) = cos(ωa)·sin(ωn) + sin(ωa)·cos(ωn) and
    cos(ω(n + a)) = cos(ωa)·cos(ωn) - sin(ωa)·sin(ωn). Returns (dim, dim). A last sine
    without its cosine (odd dim, interleaved) has no such matrix: ValueError.

    See Also
    --------
    relpos.sinusoidal_shift_matrix : Describes the arguments.
    sinusoidal : The encoding P.

    References
    ----------
    Vaswani et al. (2017), section 3.5, arXiv:1706.03762.

    Examples
    --------
    >>> M = sinusoidal_shift_matrix(3, 4)
    >>> bool(np.allclose(M @ sinusoidal([5], 4)[0], sinusoidal([8], 4)[0]))
    True
    """
    if layout == "interleaved" and dim % 2:
        raise ValueError(f"dim: {dim} is odd; the last sine has no cosine to turn with")
    angle = offset * frequencies(dim, base, layout)
    half = dim // 2
    c = np.arange(half)
    sine, cosine = (2 * c, 2 * c + 1) if layout == "interleaved" else (c, half + c)
    matrix = np.zeros((dim, dim))
    matrix[sine, sine] = matrix[cosine, cosine] = np.cos(angle)
    matrix[sine, cosine] = np.sin(angle)
    matrix[cosine, sine] = -np.sin(angle)
    return matrix


def index_encoding(length: int, dim: int) -> Floats:
    """p[n, c] = n. Returns (length, dim).

    See Also
    --------
    relpos.index_encoding : Describes the arguments.
    normalized_index_encoding, random_encoding : The other naive ones.

    Examples
    --------
    >>> index_encoding(3, 2)
    array([[0., 0.],
           [1., 1.],
           [2., 2.]])
    """
    return np.repeat(np.arange(length, dtype=np.float64)[:, None], dim, axis=1)


def normalized_index_encoding(length: int, dim: int) -> Floats:
    """p[n, c] = n / (length - 1), and 0 where length is 1. Returns (length, dim).

    See Also
    --------
    relpos.normalized_index_encoding : Describes the arguments.
    index_encoding, random_encoding : The other naive ones.

    Examples
    --------
    >>> normalized_index_encoding(3, 1)
    array([[0. ],
           [0.5],
           [1. ]])
    """
    return index_encoding(length, dim) / max(length - 1, 1)


def random_encoding(length: int, dim: int, *, rng: Rng) -> Floats:
    """p[n, c] = a draw from the uniform distribution on [-1, 1). (length, dim).

    See Also
    --------
    relpos.random_encoding : Describes the arguments.
    index_encoding, normalized_index_encoding : The other naive ones.

    Examples
    --------
    >>> random_encoding(3, 2, rng=0).shape
    (3, 2)
    """
    return as_generator(rng).uniform(-1.0, 1.0, (length, dim))


def learned(table: ArrayLike, positions: ArrayLike) -> Floats:
    """y[..., n, :] = table[..., positions[n], :], table (..., R, E).

    A position outside [0, R) is an IndexError that names it and R.

    See Also
    --------
    relpos.learned : By the kernels; describes the arguments.
    learned_backward : Its gradient.

    Examples
    --------
    >>> learned(np.array([[1.0, 2.0], [3.0, 4.0]]), [1, 1])
    array([[3., 4.],
           [3., 4.]])
    """
    table = np.asarray(table, dtype=np.float64)
    index = counted(positions)
    rows = table.shape[-2]
    outside = index[(index < 0) | (index >= rows)]
    if outside.size:
        raise IndexError(f"positions: {outside[0]} is outside the table of R={rows}")
    return np.take(table, index, axis=-2)


def learned_backward(
    grad_out: ArrayLike, positions: ArrayLike, num_positions: int
) -> Floats:
    """The adjoint of `learned`: row t collects grad_out[..., n, :] of positions[n] = t.

    grad_out (..., *positions.shape, E) -> (..., num_positions, E).

    See Also
    --------
    relpos.learned_backward : By the kernels; describes the arguments.
    learned : The forward.

    Examples
    --------
    >>> learned_backward(np.ones((3, 1)), [0, 2, 2], 4)
    array([[1.],
           [0.],
           [2.],
           [0.]])
    """
    index = counted(positions)
    is_row = index.reshape(-1) == np.arange(num_positions)[:, None]
    grad_out = np.asarray(grad_out, dtype=np.float64)
    batch = grad_out.shape[: grad_out.ndim - 1 - index.ndim]
    flat = grad_out.reshape(*batch, index.size, grad_out.shape[-1])
    total: Floats = is_row.astype(np.float64) @ flat
    return total
