"""Encodings by a convolution of the tokens with their neighbours."""

from __future__ import annotations

import numpy as np

from relpos.reference._typing import ArrayLike, Floats
from relpos.reference.pairs import float64

__all__ = ["conv_encoding", "conv_encoding_backward"]


def conv_encoding(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    mask: ArrayLike | None = None,
    grid: tuple[int, ...] | None = None,
    is_causal: bool = False,
) -> Floats:
    """y_n = x_n + m_n·(b + Σ_t w_t ⊙ m·x at n + t - before), zeros around the grid.

    x (..., L, E) are the cells n of `grid` in row-major order (a sequence by default),
    weight (E, k) or (E, i, j), t its taps; before = size // 2 on each axis, size - 1 if
    causal. m is `mask`, (..., L): 1 for a token, 0 for padding.

    See Also
    --------
    relpos.conv_encoding : By the kernels; describes the arguments.
    conv_encoding_backward : Its gradients.

    References
    ----------
    Chu et al. (2021), arXiv:2102.10882.

    Examples
    --------
    >>> conv_encoding(np.ones((3, 1)), [[1.0, 10.0, 100.0]])[:, 0]
    array([111., 112.,  12.])
    """
    tokens, taps = float64(x, weight)
    shift = np.zeros(len(taps)) if bias is None else np.asarray(bias, dtype=np.float64)
    seen = visible(tokens, mask)
    total: Floats = seen * shift
    by_tap = np.moveaxis(taps, 0, -1)
    for tap, neighbour in neighbours(seen * tokens, taps.shape[1:], grid, is_causal):
        total = total + seen * by_tap[tap] * neighbour
    return tokens + total


def conv_encoding_backward(
    grad_out: ArrayLike,
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    mask: ArrayLike | None = None,
    grid: tuple[int, ...] | None = None,
    is_causal: bool = False,
) -> tuple[Floats, Floats, Floats | None]:
    """Gradients (x, weight, bias), with g = m·grad_out of what the convolution gave.

    dw_t = Σ_n g_n ⊙ m·x at n + t - before,  db = Σ_n g_n, and dx_n = grad_out_n +
    m_n·Σ_t w_t ⊙ g at n - t + before: each tap sends back to where it read.

    See Also
    --------
    relpos.conv_encoding_backward : By the kernels; describes the arguments.
    conv_encoding : The forward.

    Examples
    --------
    >>> x, weight = [[5.0], [7.0]], [[2.0, 3.0]]
    >>> dx, dw, db = conv_encoding_backward([[0.0], [1.0]], x, weight)
    >>> dx[:, 0], dw, db
    (array([2., 4.]), array([[5., 7.]]), None)
    """
    grad, tokens, taps = float64(grad_out, x, weight)
    seen = visible(tokens, mask)
    g = seen * grad
    every = tuple(range(tokens.ndim - 1))
    by_tap = np.moveaxis(taps, 0, -1)
    dx, dw = np.array(grad), np.zeros_like(by_tap)
    sizes = taps.shape[1:]
    for tap, neighbour in neighbours(seen * tokens, sizes, grid, is_causal):
        dw[tap] = (g * neighbour).sum(every)
    for tap, neighbour in neighbours(g, sizes, grid, is_causal, back=True):
        dx += seen * by_tap[tap] * neighbour
    db = None if bias is None else g.sum(every)
    return dx, np.moveaxis(dw, -1, 0), db


def visible(tokens: Floats, mask: ArrayLike | None) -> Floats:
    """m as 0 and 1, (..., L, 1)."""
    if mask is None:
        return np.ones((tokens.shape[-2], 1))
    return np.broadcast_to(mask, tokens.shape[:-1])[..., None].astype(np.float64)


def neighbours(
    x: Floats,
    sizes: tuple[int, ...],
    grid: tuple[int, ...] | None,
    is_causal: bool,
    back: bool = False,
) -> list[tuple[tuple[int, ...], Floats]]:
    """(t, x at n + t - before), or x at n - t + before, for every tap t."""
    shape = (x.shape[-2],) if grid is None else grid
    cells = x.reshape(*x.shape[:-2], *shape, x.shape[-1])
    found = []
    for tap in np.ndindex(*sizes):
        moved = cells
        for axis, (t, size) in enumerate(zip(tap, sizes, strict=True)):
            step = t - (size - 1 if is_causal else size // 2)
            axis_of_cells = axis - len(sizes) - 1
            moved = shifted(moved, -step if back else step, axis_of_cells)
        found.append((tap, moved.reshape(x.shape)))
    return found


def shifted(x: Floats, step: int, axis: int) -> Floats:
    """y[n] = x[n + step] along an axis, 0 outside."""
    count = x.shape[axis]
    at = np.arange(count) + step
    inside = (at >= 0) & (at < count)
    rows = np.take(x, np.where(inside, at, 0), axis=axis) if count else x
    keep = inside.reshape(-1, *[1] * (-axis - 1))
    return np.where(keep, rows, 0.0)
