r"""What T5's and DeBERTa's buckets share: widths that grow with the distance.

Both count exactly up to e and in w logarithmic steps from there to a last distance d.
The step that a distance n reaches is one of floor or ceil of

.. math:: w \, \frac{\log(n / e)}{\log(d / e)}

and a comparison with a whole number s of steps is one of integers:
:math:`n^w \gtrless d^s e^{w - s}`. That is what decides here; floating logarithms only
tell where to begin to look, so that no rounding moves a distance across an edge.
"""

from __future__ import annotations

import math

import numpy as np

from relpos._checks import POSITION_LIMIT, Array

#: Buckets at most: the powers that are compared have as many digits as buckets.
MAX_BUCKETS = 2**12


def floor_root(x: int, k: int) -> int:
    """Return the largest n with n ** k <= x, for x and k of at least 1."""
    n: int = int(math.exp(math.log(x) / k))
    # one step of Newton's squares the relative error: few are left for the loops
    n = ((k - 1) * n + x // n ** (k - 1)) // k
    while n**k > x:
        n -= 1
    while (n + 1) ** k <= x:
        n += 1
    return n


def distance_of(relative_position: Array) -> Array:
    """Return |r|; what exceeds every table ends at POSITION_LIMIT."""
    distance = np.abs(np.maximum(relative_position, -POSITION_LIMIT))
    within: Array = np.minimum(distance, POSITION_LIMIT)
    return within
