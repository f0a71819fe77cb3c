"""Llama 4: chunks where queries and keys are rotated, a temperature where not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_int,
    as_integers,
    as_real,
    check_memory,
    quiet,
)
from relpos.recipes._settings import as_positions, as_positive, causal
from relpos.recipes._tables import Keywords

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["llama4", "llama4_temperature"]


def llama4(
    query_length: int,
    key_length: int | None = None,
    *,
    attention_chunk_size: int = 8192,
    start: ArrayLike = 0,
) -> Keywords:
    r"""Llama 4's layers with rotary encoding: causal, and each chunk by itself.

    .. math::

        s_{ij} = \frac{q_i k_j}{\sqrt D}, \quad
        \left\lfloor \frac{j - start}{chunk} \right\rfloor =
        \left\lfloor \frac{p_i - start}{chunk} \right\rfloor, \quad
        start \le j \le p_i = i + L_k - L_q

    Parameters
    ----------
    query_length : int
        Lq.
    key_length : int, optional
        Lk; with cached keys more than Lq. None: Lq.
    attention_chunk_size : int, default 8192
        Tokens of a chunk.
    start : int or array_like of int, (...), default 0
        First token that is no padding on the left, of each batch item: the model counts
        its chunks from there, whatever its position ids say.

    Returns
    -------
    dict
        `key_ranges`, `query_offset`, `is_causal` and `enable_gqa`.

    Raises
    ------
    TypeError, ValueError
        If a length or the chunk is less than 1, there are fewer keys than queries, or
        `start` is negative.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    llama4_temperature : The factor of the queries of all other layers.
    relpos.apply_rotary : What queries and keys go through before, ``interleaved=True``.

    Notes
    -----
    Nothing of it is stored. Padding sees no key here, and gives 0; in the model it sees
    all keys alike. Layers without rotary encoding are causal alone.

    References
    ----------
    .. [1] Yang et al., "Rope to Nope and Back Again: A New Hybrid Attention Strategy",
       2025, arXiv:2501.18795.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.llama4(5, attention_chunk_size=2)["key_ranges"].tolist()
    [[0, 2], [0, 2], [2, 4], [2, 4], [4, 6]]
    """
    queries = as_int("query_length", query_length, 1, POSITION_LIMIT)
    keys = queries
    if key_length is not None:
        keys = as_int("key_length", key_length, 1, POSITION_LIMIT)
    if keys < queries:
        raise ValueError(
            f"key_length: got {keys} for {queries} queries; expected at least as many"
        )
    chunk = as_int("attention_chunk_size", attention_chunk_size, 1, POSITION_LIMIT)
    first = as_integers("start", start)
    if first.size and not 0 <= first.min() <= first.max() <= POSITION_LIMIT:
        raise ValueError("start: expected tokens from 0 to 2**60")
    check_memory("query_length", (*first.shape, queries, 2), np.dtype(np.int64))
    place = np.arange(keys - queries, keys) - first[..., None]
    begin = first[..., None] + place // chunk * chunk
    ranges = np.stack([np.maximum(begin, first[..., None]), begin + chunk], axis=-1)
    places = {"key_ranges": ranges, "query_offset": keys - queries}
    return places | causal("window", None)


@quiet
def llama4_temperature(
    positions: ArrayLike, *, floor_scale: float = 8192.0, attn_scale: float = 0.1
) -> Array:
    r"""Factor of Llama 4's queries on layers without rotary encoding.

    .. math:: \tau_n = 1 + a \log\left(1 + \left\lfloor \frac{n + 1}{floor}
        \right\rfloor\right)

    Parameters
    ----------
    positions : array_like, any shape
        The absolute position of each query, n, from 0.
    floor_scale : float, default 8192.0
        The length of a step.
    attn_scale : float, default 0.1
        Its strength, a.

    Returns
    -------
    ndarray of float64, shape of `positions`
        To multiply the queries by, as ``[:, None]``.

    Raises
    ------
    TypeError, ValueError
        If an argument is of another kind, or the length not positive.

    See Also
    --------
    llama4 : The layers with rotary encoding.
    relpos.attention : Takes the queries.

    References
    ----------
    .. [1] Nakanishi, "Scalable-Softmax Is Superior for Attention", 2025,
       arXiv:2501.19399.

    Examples
    --------
    >>> from relpos import recipes
    >>> recipes.llama4_temperature([0, 8191, 16383]).round(3)
    array([1.   , 1.069, 1.11 ])
    """
    n = as_positions(positions)
    floor = as_positive("floor_scale", floor_scale)
    scale = as_real("attn_scale", attn_scale)
    return np.asarray(1 + scale * np.log1p(np.floor((n + 1) / floor)))
