"""Sequences of which each query sees a window of neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._checks import ArrayLike, check_memory
from relpos._text import amount
from relpos.recipes._recipe import Keywords, as_length, as_table
from relpos.recipes._tensors import on_tensors

__all__ = ["natten1d"]


@on_tensors
def natten1d(rpb: ArrayLike, length: int) -> Keywords:
    r"""Neighborhood attention of a sequence: k keys for each query, also at the ends.

    .. math::

        s_{ij} = \frac{q_i k_j}{\sqrt D} + rpb_{h, j - i + k - 1}, \quad
        b_i \le j < b_i + k, \quad
        b_i = \min(\max(i - \tfrac{k - 1}{2}, 0), L - k)

    The window of a query in the middle is centred on it. At an end the window is moved
    inward, so that it has k keys as well.

    Parameters
    ----------
    rpb : array_like, (H, 2k-1)
        The bias of each relative position, key minus query, from -(k-1) on, for an odd
        k; its gradient is that of rel_bias.
    length : int
        L, at least k.

    Returns
    -------
    dict
        `rel_bias` and `key_ranges`.

    Notes
    -----
    A dilation d makes d sequences of every d-th token. If d divides the length, they
    are items of a batch: ``x.reshape(H, L // d, d, D).transpose(2, 0, 1, 3)``, with
    ``length=L // d``.

    References
    ----------
    .. [1] Hassani, Walton, Li, Li, Shi, "Neighborhood Attention Transformer", 2023,
       arXiv:2204.07143.
    .. [2] Hassani, Shi, "Dilated Neighborhood Attention Transformer", 2022,
       arXiv:2209.15001.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.natten1d(np.zeros((4, 5)), 5)["key_ranges"].tolist()
    [[0, 3], [0, 3], [1, 4], [2, 5], [2, 5]]
    """
    biases: Any = as_table("rpb", rpb, "(H, 2k-1)")
    keys, is_even = divmod(biases.shape[-1] + 1, 2)
    if is_even or keys % 2 == 0 or biases.ndim != 2:
        raise ValueError(
            f"rpb: got shape {(*biases.shape,)}; expected (H, 2k-1) for an odd k"
        )
    count = as_length("length", length)
    if count < keys:
        raise ValueError(
            f"length: got {count} for a window of {amount(keys, 'key')}; expected at "
            "least as many"
        )
    check_memory("length", (count, 2), np.dtype(np.int64))
    begin = np.clip(np.arange(count) - keys // 2, 0, count - keys)
    ranges = np.stack([begin, begin + keys], axis=-1)
    return {"rel_bias": biases, "key_ranges": ranges}
