"""Sequences of which each query sees a window of neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._checks import Array, ArrayLike, as_integers, at_least_ndim, check_memory
from relpos._text import amount
from relpos.recipes._recipe import Keywords, as_length, as_table
from relpos.recipes._tensors import as_plain, on_tensors

__all__ = ["longformer", "natten1d"]


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


@on_tensors
def longformer(
    attention_mask: ArrayLike, attention_window: int
) -> tuple[Keywords, Keywords, Array]:
    r"""Longformer's attention: a window, and global tokens that all see.

    .. math::

        out_i = \frac{e^{a_i} near_i + e^{b_i} far_i}{e^{a_i} + e^{b_i}}, \quad
        near_i: |i - j| \le w, \; mask_j = 1, \quad far_i: mask_j = 2

    with a and b the lse of the two calls, and w half of the window.
    `relpos.merge_attention` computes it of their results.

    Parameters
    ----------
    attention_mask : array_like of int, (..., L)
        0 for padding, 1 for a token that sees its window, 2 for a global token: the
        model's `attention_mask` times `global_attention_mask` plus 1.
    attention_window : int
        Keys of a window but for the query's own, an even number.

    Returns
    -------
    (dict, dict, ndarray of int64)
        Keywords of the two calls, `window` and `attn_mask`, and `key_lengths`; then the
        global tokens of each item, (..., G), with others behind those of items that
        have fewer. The second call has the keys and values of these tokens alone.

    Notes
    -----
    The model stores no parameter of it. The rows of global tokens are another call: of
    projections of their own, with all keys but padding. The model sets the
    rows of padding to 0; here they are those of queries like others.

    References
    ----------
    .. [1] Beltagy, Peters, Cohan, "Longformer: The Long-Document Transformer", 2020,
       arXiv:2004.05150.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import recipes
    >>> near, far, tokens = recipes.longformer([2, 1, 1, 1, 0], 2)
    >>> near["window"], tokens
    ((1, 1), array([0]))
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 4, 5, 8))
    >>> a = relpos.attention(q, k, v, **near, return_lse=True)
    >>> k, v = k[:, tokens], v[:, tokens]
    >>> b = relpos.attention(q, k, v, **far, return_lse=True)
    >>> out, lse = relpos.merge_attention(a.out, a.lse, b.out, b.lse)
    >>> out.shape
    (4, 5, 8)
    """
    mask = as_integers("attention_mask", as_plain("attention_mask", attention_mask))
    at_least_ndim("attention_mask", mask, 1, "(..., L)")
    if mask.size and not 0 <= mask.min() <= mask.max() <= 2:
        raise ValueError(
            f"attention_mask: got numbers from {mask.min()} to {mask.max()}; expected "
            "0 (padding), 1 (a window) and 2 (global)"
        )
    side, is_odd = divmod(as_length("attention_window", attention_window, 2), 2)
    if is_odd:
        raise ValueError(
            f"attention_window: got {attention_window}; expected an even number"
        )
    counts = (mask == 2).sum(axis=-1)
    # a stable sort puts the global tokens first, in their order
    order = np.argsort(mask != 2, axis=-1, kind="stable")
    tokens = order[..., : int(counts.max(initial=0))]
    near = {"window": (side, side), "attn_mask": (mask == 1)[..., None, None, :]}
    lengths = int(counts) if counts.ndim == 0 else counts
    return near, {"key_lengths": lengths}, tokens
