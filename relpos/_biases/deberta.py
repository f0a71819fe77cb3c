"""DeBERTa's signed buckets of relative positions. How they stay exact: buckets.py."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from relpos._biases.buckets import MAX_BUCKETS, distance_of, floor_root
from relpos._checks import POSITION_LIMIT, Array, as_int, as_integers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@lru_cache(maxsize=64)
def _edges(middle: int, last: int, farthest: int) -> Array:
    """Return the largest distance of each step, from step 0 to that of `farthest`.

    Step s ends where n ** width <= last ** s * middle ** (width - s); s goes on beyond
    width, and the power of middle is divided by there.
    """
    width = middle - 1
    wanted = math.log(farthest / middle) / math.log(last / middle) * width
    if wanted > MAX_BUCKETS:
        raise ValueError(
            f"relative_position: distance {farthest} lies {wanted:.0f} buckets past "
            f"{middle}, half of bucket_size; expected at most {MAX_BUCKETS} (clip "
            f"distances to max_position = {last + 1}, or make that larger)"
        )
    edges = [middle]
    power, above, below = middle**width, 1, 1
    while edges[-1] < farthest:
        above, below = above * last, below * middle
        edges.append(floor_root(power * above // below, width))
    result = np.array(edges, dtype=np.int64)
    result.flags.writeable = False  # every later call gets the same array
    return result


def deberta_bucket(
    relative_position: ArrayLike, *, bucket_size: int, max_position: int
) -> Array:
    r"""Signed bucket of each relative position, as DeBERTa counts them.

    With n the distance and m = bucket_size // 2:

    .. math::

        bucket = \pm n \;\text{ if } n \le m, \quad
        \pm \left( m + \left\lceil (m - 1)
        \frac{\log(n / m)}{\log((max\_position - 1) / m)} \right\rceil \right)
        \;\text{ otherwise}

    The sign is that of the relative position, so query minus key is served as well.

    Parameters
    ----------
    relative_position : array_like of int, any shape
        In DeBERTa query minus key; the sign is kept.
    bucket_size : int
        At least 4, at most 4096. Distances to bucket_size // 2 have their own buckets.
    max_position : int
        More than bucket_size // 2 + 1. Distance max_position - 1 is the last one within
        bucket m + m - 1.

    Returns
    -------
    ndarray of int64, shape of `relative_position`
        Buckets go on growing beyond `max_position`, as in the `transformers` package.
        Microsoft's code clips relative positions to +-(max_position - 1) before.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `bucket_size` and `max_position` leave no logarithmic range, or a distance
        would need thousands of buckets.

    See Also
    --------
    relpos.recipes.deberta : Rows of DeBERTa's tables from these buckets.
    t5_bucket : Buckets of a bias per head.

    Notes
    -----
    Exact for every parameter set: edges are found by comparing integers.

    References
    ----------
    .. [1] He et al., "DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
       2020, arXiv:2006.03654; the buckets came with its version 2.

    Examples
    --------
    >>> import relpos
    >>> relative = [-15, -7, -4, 0, 4, 5, 7, 15]
    >>> relpos.deberta_bucket(relative, bucket_size=8, max_position=16)
    array([-7, -6, -4,  0,  4,  5,  6,  7])
    """
    relative = as_integers("relative_position", relative_position)
    middle = as_int("bucket_size", bucket_size, 4, MAX_BUCKETS) // 2
    last = as_int("max_position", max_position, middle + 2, POSITION_LIMIT) - 1
    distance = distance_of(relative)
    farthest = max(int(distance.max(initial=0)), middle)
    steps = np.searchsorted(_edges(middle, last, farthest), distance)
    bucket = np.where(distance <= middle, distance, middle + steps)
    return np.asarray(np.sign(relative) * bucket)
