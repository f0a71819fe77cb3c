"""Encodings of absolute positions, and by a convolution of neighbouring tokens."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from relpos._checks import as_generator
from relpos.reference._xp import ArrayLike, Floats, Rng, as_float64, as_plain, namespace

__all__ = [
    "conv_encoding",
    "conv_encoding_backward",
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
    # An odd number of columns has one more sine than cosines if interleaved; otherwise
    # the column left over is 0.
    count = (dim + 1) // 2 if layout == "interleaved" else dim // 2
    return np.float64(base) ** (-2.0 * np.arange(count) / dim)


def counted(positions: Any) -> Any:
    """Positions as an array; the int n stands for 0..n-1."""
    positions = namespace(positions).asarray(positions)
    try:
        return positions if positions.ndim else np.arange(operator.index(positions))
    except TypeError:  # one number that is no integer
        return positions


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
    a sine. "concat": P[n, c] = sin(n·ω_c), P[n, dim//2 + c] = cos(n·ω_c), as in Dai et
    al. (2019), arXiv:1901.02860; an odd dim ends in a column of zeros. `positions` is a
    count (0..n-1) or an array of any shape S, negative and fractional positions
    allowed. Returns S + (dim,).
    """
    omega = frequencies(dim, base, layout) if inv_freq is None else inv_freq
    xp, n, omega = as_float64(counted(positions), omega)
    phase = n[..., None] * omega
    waves = xp.sin(phase), xp.cos(phase)
    if layout == "interleaved":
        columns = xp.stack(waves, axis=-1)
        return columns.reshape(*n.shape, 2 * omega.shape[-1])[..., :dim]
    # The column of zeros of an odd `dim`; without one it has width 0.
    nothing = xp.zeros((*n.shape, dim - 2 * len(omega)))
    return xp.concatenate([*waves, nothing], axis=-1)


def sinusoidal_shift_matrix(
    offset: float, dim: int, *, base: float = 10000.0, layout: str = "interleaved"
) -> Floats:
    """M with M @ P[n] = P[n + offset] for every n: one 2 x 2 rotation per frequency.

    sin(ω(n + a)) = cos(ωa)·sin(ωn) + sin(ωa)·cos(ωn) and
    cos(ω(n + a)) = cos(ωa)·cos(ωn) - sin(ωa)·sin(ωn). Returns (dim, dim). A last sine
    without its cosine (odd dim, interleaved) has no such matrix: ValueError.
    """
    if layout == "interleaved" and dim % 2:
        raise ValueError(f"dim: {dim} is odd; the last sine has no cosine")
    angle = offset * frequencies(dim, base, layout)
    half = dim // 2
    c = np.arange(half)
    sine, cosine = (2 * c, 2 * c + 1) if layout == "interleaved" else (c, half + c)
    matrix = np.zeros((dim, dim))
    # The four entries of each 2 x 2 rotation. They are set by index arrays of the same
    # length, so that each frequency gets its own four.
    matrix[sine, sine] = matrix[cosine, cosine] = np.cos(angle)
    matrix[sine, cosine] = np.sin(angle)
    matrix[cosine, sine] = -np.sin(angle)
    return matrix


def index_encoding(length: int, dim: int) -> Floats:
    """p[n, c] = n. Returns (length, dim)."""
    return np.repeat(np.arange(length, dtype=np.float64)[:, None], dim, axis=1)


def normalized_index_encoding(length: int, dim: int) -> Floats:
    """p[n, c] = n / (length - 1), and 0 where length is 1. Returns (length, dim)."""
    return index_encoding(length, dim) / max(length - 1, 1)


def random_encoding(length: int, dim: int, *, rng: Rng) -> Floats:
    """p[n, c] = a random number, uniform on [-1, 1). Returns (length, dim)."""
    return as_generator(rng).uniform(-1.0, 1.0, (length, dim))


def learned(table: ArrayLike, positions: ArrayLike) -> Floats:
    """y[..., n, :] = table[..., positions[n], :], table (..., R, E).

    A position outside [0, R) is an IndexError that names it and R.
    """
    xp, table = as_float64(table)
    index = xp.asarray(counted(positions))
    rows = table.shape[-2]
    # NumPy would read a negative position from the end, so both sides are checked.
    outside = index[(index < 0) | (index >= rows)]
    if len(outside):
        problem = f"positions: {int(outside[0])} is outside the table of R={rows}"
        raise IndexError(problem)
    return table[..., index, :]


def learned_backward(
    grad_out: ArrayLike, positions: ArrayLike, num_positions: int
) -> Floats:
    """The adjoint of `learned`: row t = Σ grad_out[..., n, :] over positions[n] = t.

    grad_out (..., *positions.shape, E) -> (..., num_positions, E).
    """
    index = counted(positions)
    # One row for each entry of the table: 1 where a position names it. A product with
    # it sums the rows of repeated positions.
    is_row = index.reshape(-1) == np.arange(num_positions)[:, None]
    grad_out = as_plain(grad_out, dtype=np.float64)
    # Axes before those of the positions are batch axes.
    batch = grad_out.shape[: grad_out.ndim - 1 - index.ndim]
    flat = grad_out.reshape(*batch, index.size, grad_out.shape[-1])
    return is_row.astype(np.float64) @ flat


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
    """
    xp, x, w, b = as_float64(x, weight, 0.0 if bias is None else bias)
    m = visible(x, mask)
    total = m * b
    # The taps go first, so that w_t[t] is a row of E channels.
    w_t = xp.moveaxis(w, 0, -1)
    # Padding is masked before the shift, so that no token reads it, and after it, so
    # that it reads none.
    for t, neighbour in neighbours(m * x, w.shape[1:], grid, is_causal):
        total = total + m * w_t[t] * neighbour
    return x + total


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
    """Gradients (x, weight, bias), with g = m·grad_out that of the convolution.

    dw_t = Σ_n g_n ⊙ m·x at n + t - before,  db = Σ_n g_n, and dx_n = grad_out_n +
    m_n·Σ_t w_t ⊙ g at n - t + before: each tap adds to the token that it read.
    """
    _, grad, tokens, taps = as_float64(grad_out, x, weight)
    seen = visible(tokens, mask)
    g = seen * grad
    every = tuple(range(tokens.ndim - 1))
    by_tap = np.moveaxis(taps, 0, -1)
    # The identity of the residual connection: x + convolution.
    dx, dw = np.array(grad), np.zeros_like(by_tap)
    sizes = taps.shape[1:]
    for tap, neighbour in neighbours(seen * tokens, sizes, grid, is_causal):
        dw[tap] = (g * neighbour).sum(every)
    # The transpose of a shift is the shift back.
    for tap, neighbour in neighbours(g, sizes, grid, is_causal, back=True):
        dx += seen * by_tap[tap] * neighbour
    db = None if bias is None else g.sum(every)
    return dx, np.moveaxis(dw, -1, 0), db


def visible(tokens: Floats, mask: ArrayLike | None) -> Floats:
    """m as 0 and 1, (..., L, 1)."""
    xp = namespace(tokens)
    if mask is None:
        return xp.ones((tokens.shape[-2], 1))
    numbers = xp.asarray(mask, dtype=xp.float64)
    return xp.broadcast_to(numbers, tokens.shape[:-1])[..., None]


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
    by_tap = []
    for tap in np.ndindex(*sizes):
        moved = cells
        for axis, (t, size) in enumerate(zip(tap, sizes, strict=True)):
            # The tap that reads the token itself is the middle one, or the last one if
            # causal.
            step = t - (size - 1 if is_causal else size // 2)
            # Axes are counted from the end, since batch axes come first and the
            # channels last.
            axis_of_cells = axis - len(sizes) - 1
            moved = shifted(moved, -step if back else step, axis_of_cells)
        by_tap.append((tap, moved.reshape(x.shape)))
    return by_tap


def shifted(x: Floats, step: int, axis: int) -> Floats:
    """y[n] = x[n + step] along an axis, 0 outside."""
    count = x.shape[axis]
    at = np.arange(count) + step
    inside = (at >= 0) & (at < count)
    xp = namespace(x)
    # A position outside reads cell 0, and the last line replaces it. An empty axis has
    # no cell 0 to read.
    rows = xp.take(x, np.where(inside, at, 0), axis=axis) if count else x
    # An axis of the length of `inside`, and 1 for each axis after it.
    shape = (count,) + (1,) * (-axis - 1)
    return xp.where(inside.reshape(shape), rows, 0.0)
