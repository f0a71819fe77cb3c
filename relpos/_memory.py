"""Memory of large results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from relpos._checks import Array

_HUGE_PAGE = 2**21
_ADVISED = 2**22  # from here on NumPy asks the system for huge pages


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array that, if it is large, begins at a huge page.

    The system maps new memory page by page at the first access, which takes a tenth of
    the gradients of a long sequence. Huge pages are 512 times fewer.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < _ADVISED:
        return np.empty(shape, dtype)
    # A page more, so that the array can begin at the boundary of a page.
    block = np.empty(size + _HUGE_PAGE, np.uint8)
    first = -block.ctypes.data % _HUGE_PAGE
    return block[first : first + size].view(dtype).reshape(shape)


def zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return zeros in such an array: `numpy.zeros` does not ask for huge pages."""
    if math.prod(shape) * dtype.itemsize < _ADVISED:
        return np.zeros(shape, dtype)
    array = empty(shape, dtype)
    array.fill(0)
    return array
