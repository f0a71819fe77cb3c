"""The keys that an indexer picks for each query."""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._attention.operands import (
    OPERANDS,
    Arguments,
    Call,
    broadcast_shapes,
    read,
)
from relpos._attention.problem import offsets_of, warn_of_flags
from relpos._attention.rules import BEYOND, UNBOUNDED, Numbers, facts_of
from relpos._checks import (
    Array,
    ArrayLike,
    as_flag,
    as_floating,
    as_int,
    at_least_ndim,
    check_bytes,
    common_dtype,
    native,
    quiet,
)
from relpos._core import broadcast_to
from relpos._settings import choose_num_threads, kernels
from relpos._text import amount

__all__ = ["indexer_top_k"]

#: The most keys that the result, of int32, has numbers for.
_MOST_KEYS = 2**31 - 1
_SINGLE = np.dtype(np.float32)
#: The most axes of an array here: one less than NumPy 1 allows, for that of heads.
_MAX_AXES = 31


@quiet
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
    num_threads: int | None = None,
) -> Array:
    r"""Pick the keys of the k largest scores of an indexer, for each query.

    .. math::

        s_{ij} = \sum_h w_{hi} \max(0, q_{hi} k_j) + mask_{ij}

    with the heads h of the indexer, which share the keys. It is the indexer of DeepSeek
    Sparse Attention [1]_, whose factors of the scores belong to the weights. Queries
    are taken in blocks, so that no array of Lq x Lk is made.

    Parameters
    ----------
    query : array_like of float, (..., Hi, Lq, D)
        A row for each head of the indexer and each query.
    key : array_like of float, (..., Lk, D)
        A row for each key.
    weights : array_like of float, (..., Hi, Lq)
        Factors w of the heads, for each query.
    k : int
        How many keys each query gets, at least 1.
    is_causal : bool, default False
        Hide the keys after the query.
    query_offset : int or array_like of int, (...), optional
        Position of query 0 minus that of key 0; None is 0 where Lq == Lk. Only
        `is_causal` depends on it.
    key_ranges : array_like of int, (..., Lq, 2), optional
        Begin and end of the keys that each query sees.
    key_lengths : int or array_like of int, (...), optional
        How many keys there are of each batch item; later ones are hidden.
    attn_mask : array_like of bool or float, optional
        Broadcasts to (..., Lq, Lk). True where the query sees the key; or numbers that
        are added to the scores, of which -inf hides the key.
    num_threads : int, optional
        Threads of this call, instead of `get_num_threads`.

    Returns
    -------
    ndarray of int32, (..., Lq, min(k, Lk))
        The keys of each query by falling score, and among equal scores by their number.
        Keys whose score is NaN come after all others. Where a query sees fewer keys,
        -1 follows.

    Raises
    ------
    TypeError
        `k` is no integer, or an array has another dtype.
    ValueError
        `k` is less than 1, shapes do not fit, Lk is 2**31 or more, or `is_causal` and
        Lq != Lk come without `query_offset`.

    See Also
    --------
    attention : Takes the same rules for which pairs are seen.

    Notes
    -----
    Scores are computed in float64 where one of the three arrays has it, else in
    float32. A key that a mask of large finite numbers is meant to hide is still seen,
    and is picked after all others. The result has no gradient.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3.2: Pushing the Frontier of Open Large Language
       Models", 2025, arXiv:2512.02556.

    Examples
    --------
    Two heads look for keys on the right and on the left of zero:

    >>> import relpos
    >>> query = [[[1.0], [1.0]], [[-1.0], [-1.0]]]
    >>> key = [[-3.0], [1.0], [2.0]]
    >>> relpos.indexer_top_k(query, key, [[1.0, 1.0], [1.0, 0.0]], 2)
    array([[0, 2],
           [2, 1]], dtype=int32)
    """
    count = as_int("k", k, 1)
    arrays = {
        "query": as_floating("query", query),
        "key": as_floating("key", key),
        "weights": as_floating("weights", weights),
    }
    batch = check_shapes(arrays)
    mask = None
    if attn_mask is not None:
        mask = OPERANDS["attn_mask"].read(attn_mask)
        lengths = (arrays["query"].shape[-2], arrays["key"].shape[-2])
        batch = _check_mask(mask, batch, lengths)
    rules = {
        "query_offset": query_offset,
        "key_ranges": key_ranges,
        "key_lengths": key_lengths,
    }
    ranges = _ranges(arrays, batch, rules, as_flag("is_causal", is_causal))
    threads = choose_num_threads(num_threads)
    return _pick(arrays, ranges, mask, count, threads)


def check_shapes(arrays: dict[str, Any]) -> tuple[int, ...]:
    """Check the three arrays, or tensors, and return the batch axes of the result."""
    query, key, weights = (arrays[name] for name in ("query", "key", "weights"))
    shown = {"query": "Hi, Lq, D", "key": "Lk, D", "weights": "Hi, Lq"}
    for name, axes in shown.items():
        at_least_ndim(name, arrays[name], axes.count(",") + 1, f"(..., {axes})")
        if arrays[name].ndim > _MAX_AXES:
            raise ValueError(
                f"{name}: got {arrays[name].ndim} axes; expected at most {_MAX_AXES}"
            )
    heads, queries, columns = query.shape[-3:]
    if key.shape[-1] != columns:
        raise ValueError(
            f"key: shape {(*key.shape,)} does not match query's head_dim {columns}; "
            f"expected (..., Lk, {columns})"
        )
    if (*weights.shape[-2:],) != (heads, queries):
        raise ValueError(
            f"weights: shape {(*weights.shape,)} does not match query's "
            f"{amount(heads, 'head')} and length {queries}; expected (..., {heads}, "
            f"{queries})"
        )
    if key.shape[-2] > _MOST_KEYS:
        raise ValueError(
            f"key: got {key.shape[-2]} keys; expected at most {_MOST_KEYS}, the "
            "largest number of int32"
        )
    batch = (*query.shape[:-3],)
    for name in ("key", "weights"):
        batch = _joined(name, arrays[name], batch, f"(..., {shown[name]})")
    return batch


def _joined(
    name: str, array: Any, batch: tuple[int, ...], expected: str
) -> tuple[int, ...]:
    """Broadcast batch axes with those of an array, which has two more axes."""
    shape = (*array.shape,)
    joined = broadcast_shapes(batch, shape[:-2])
    if joined is None:
        raise ValueError(
            f"{name}: batch axes {shape[:-2]} of shape {shape} do not broadcast with "
            f"{batch} of the arguments before it; expected {expected}"
        )
    return joined


def _check_mask(
    mask: Array, batch: tuple[int, ...], lengths: tuple[int, int]
) -> tuple[int, ...]:
    """Check the shape of a mask, and return the batch axes with its own."""
    shown = f"(..., {lengths[0]}, {lengths[1]})"
    core = mask.shape[-2:]
    if mask.ndim > _MAX_AXES or broadcast_shapes(core, lengths) != lengths:
        raise ValueError(
            f"attn_mask: shape {mask.shape} does not broadcast to {shown}; expected "
            "that, or 1 on an axis"
        )
    return _joined("attn_mask", mask, batch, shown) if mask.ndim > 2 else batch


def _ranges(
    arrays: dict[str, Array],
    batch: tuple[int, ...],
    rules: dict[str, Any],
    is_causal: bool,
) -> Array:
    """Return the keys that each query sees, but for the mask, (..., Lq, 2).

    The rules are those of `attention`, of which the heads of an indexer are query heads
    that share a key head.
    """
    query = broadcast_to(arrays["query"], (*batch, *arrays["query"].shape[-3:]))
    key = arrays["key"][..., None, :, :]
    call: Call = {"query": query, "key": key, "value": key, "enable_gqa": True, **rules}
    inputs, sizes, batch = Arguments(*read(call))
    # the scale is not used, but its default has no value without columns
    numbers = Numbers(BEYOND["zero"], is_causal=is_causal, scale=1.0)
    right = facts_of(inputs, sizes, numbers).numbers["window_right"]
    queries = np.arange(sizes.Lq)
    begin, end = np.zeros(1, np.int64), np.full(1, sizes.Lk)
    if right != UNBOUNDED:
        end = np.minimum(end, queries + offsets_of(inputs)[..., None] + right + 1)
    if "key_lengths" in inputs:
        end = np.minimum(end, inputs["key_lengths"][..., None])
    if "key_ranges" in inputs:
        begin = inputs["key_ranges"][..., 0]
        end = np.minimum(end, inputs["key_ranges"][..., 1])
    shape = (*batch, sizes.Lq)
    return np.stack([broadcast_to(begin, shape), broadcast_to(end, shape)], axis=-1)


def _pick(
    arrays: dict[str, Array], ranges: Array, mask: Array | None, k: int, threads: int
) -> Array:
    """Call the kernel with arrays that all have the batch axes of the ranges."""
    batch, lk = ranges.shape[:-2], arrays["key"].shape[-2]
    dtype = common_dtype(*arrays.values(), _SINGLE)
    query, key, weights = (
        broadcast_to(_stored(x, dtype), (*batch, *x.shape[-axes:]))
        for x, axes in zip(arrays.values(), (3, 2, 2), strict=True)
    )
    if mask is not None:
        whole = (*batch, ranges.shape[-2], lk)
        if mask.dtype.kind == "b":
            mask = broadcast_to(native(mask, mask.dtype), whole)
        else:
            is_wide = mask.dtype.itemsize > 4
            kept = np.dtype(np.float64) if is_wide else _SINGLE
            mask = broadcast_to(_stored(mask, dtype, kept), whole)
            warn_of_flags(mask)
    shape = (*ranges.shape[:-1], min(k, lk))
    check_bytes("k", shape, np.dtype(np.int32))
    keys = np.empty(shape, np.int32)
    kernels().indexer_top_k(query, key, weights, ranges, mask, keys, threads)
    return keys


def _stored(
    array: Array, computed: np.dtype[Any], other: np.dtype[Any] | None = None
) -> Array:
    """Return numbers as the kernel reads them: 16 bits stay where it has float32."""
    if array.dtype.itemsize == 2 and computed == _SINGLE:
        return native(array, array.dtype.newbyteorder("="))
    return native(array, computed if other is None else other)
