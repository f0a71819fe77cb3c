"""The keys that an indexer picks for each query."""

from __future__ import annotations

import numpy as np

from relpos.reference._xp import ArrayLike, Ints, as_plain
from relpos.reference.formula import allowed, masked, offset_of, relative, visible

__all__ = ["indexer_top_k"]


def indexer_top_k(
    query: ArrayLike,
    key: ArrayLike,
    weights: ArrayLike,
    k: int,
    *,
    is_causal: bool = False,
    query_offset: ArrayLike | None = None,
    key_ranges: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    attn_mask: ArrayLike | None = None,
) -> Ints:
    """Pick the keys of the k largest s_ij = Σ_h w_hi·max(0, q_hi·k_j) + mask_ij: DSA.

    query (..., Hi, Lq, D), key (..., Lk, D), weights (..., Hi, Lq); attn_mask
    broadcasts to (..., Lq, Lk) -> (..., Lq, min(k, Lk)) int64, by falling score: the
    smaller key first among equals, NaN after all numbers, and -1 where a query sees
    fewer keys.
    """
    query, key, weights = (as_plain(x, np.float64) for x in (query, key, weights))
    products = np.einsum("...hid,...jd->...hij", query, key)
    s = np.einsum("...hi,...hij->...ij", weights, np.maximum(0.0, products))
    offset = offset_of(query_offset, query, key) if is_causal else 0
    r = relative(query, key, offset)
    see = allowed(r, is_causal, None, key_ranges, key_lengths)[..., 0, :, :]
    if attn_mask is not None:
        attn_mask = as_plain(attn_mask)
    see, s = np.broadcast_arrays(visible(see, attn_mask), masked(s, attn_mask))
    # hidden keys last, before them NaN, and equal scores in the order of the keys
    order = np.lexsort((-s, ~see), axis=-1)[..., :k]
    keys: Ints = np.where(np.take_along_axis(see, order, axis=-1), order, -1)
    return keys
