"""The same values in every memory layout that NumPy has."""

from __future__ import annotations

import numpy as np


def transposed(x):
    """The last two axes swapped in memory; a vector has no other order."""
    if x.ndim < 2:
        return x.copy()
    return np.ascontiguousarray(np.swapaxes(x, -1, -2)).swapaxes(-1, -2)


def negative(x):
    """Every axis stored backwards."""
    backwards = (slice(None, None, -1),) * x.ndim
    return np.ascontiguousarray(x[backwards])[backwards]


def spaced(x):
    """Two elements from one column to the next."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def unaligned(x):
    """One byte off the alignment of its dtype."""
    raw = np.empty(x.nbytes + 1, np.uint8)[1:].view()
    result = raw.view(x.dtype).reshape(x.shape)
    result[...] = x
    assert x.size == 0 or x.itemsize == 1 or not result.flags.aligned
    return result


def swapped(x):
    """The other byte order."""
    return x.astype(x.dtype.newbyteorder())


LAYOUTS = {f.__name__: f for f in (transposed, negative, spaced, unaligned, swapped)}


def repeated(x):
    """The first row in every row, with stride 0."""
    return np.broadcast_to(x[..., :1, :], x.shape)


def heads_inside(x):
    """Heads between length and columns in memory, as a (B, L, H, D) array has them."""
    if x.ndim < 3:
        return x.copy()
    return np.ascontiguousarray(x.swapaxes(-2, -3)).swapaxes(-2, -3)
