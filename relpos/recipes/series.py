"""Time series: tokens of several variates in one sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._attention.operands import broadcast_shapes
from relpos._checks import Array, ArrayLike, as_integers, at_least_ndim, check_memory
from relpos.recipes._recipe import Keywords, as_table
from relpos.recipes._tensors import as_plain, on_tensors, transposed

__all__ = ["moirai"]


@on_tensors
def moirai(
    weight: ArrayLike, query_id: ArrayLike, key_id: ArrayLike | None = None
) -> Keywords:
    r"""Moirai's bias between tokens of one variate, and between those of two.

    .. math:: s_{ij} = \frac{q_i k_j}{\sqrt D} +
        \begin{cases} weight_{1h} & id_i = id_j \\ weight_{0h} & \text{else}
        \end{cases}

    Queries and keys are normalised and rotated before, by their time, in the first half
    of their columns: ``apply_rotary(x, positions=time_id, rotary_dim=D // 2,
    interleaved=True)``.

    Parameters
    ----------
    weight : array_like, (2, H)
        ``var_attn_bias.emb.weight``; its gradient is that of rel_bias, transposed.
    query_id : array_like of int, (..., Lq)
        The number of the variate of each query.
    key_id : array_like of int, (..., Lk), optional
        The same of the keys. None: those of the queries.

    Returns
    -------
    dict
        `rel_bias` (H, 2), and `labels` (..., Lq, Lk) of int8.

    References
    ----------
    .. [1] Woo et al., "Unified Training of Universal Time Series Forecasting
       Transformers", 2024, arXiv:2402.02592.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.moirai(np.zeros((2, 4)), [0, 0, 1])["labels"]
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]], dtype=int8)
    """
    biases: Any = as_table("weight", weight, "(2, H)")
    if biases.ndim != 2 or biases.shape[0] != 2:
        raise ValueError(
            f"weight: got shape {(*biases.shape,)}; expected (2, H), a row for two "
            "variates and one for the same"
        )
    queries = _numbers("query_id", query_id)
    keys = queries if key_id is None else _numbers("key_id", key_id)
    batch = broadcast_shapes(queries.shape[:-1], keys.shape[:-1])
    if batch is None:
        raise ValueError(
            f"key_id: got shape {keys.shape}; expected (..., Lk), whose axes before "
            f"the last broadcast with those of query_id, {queries.shape}"
        )
    shape = (*batch, queries.shape[-1], keys.shape[-1])
    check_memory("query_id", shape, np.dtype(np.int8))
    is_same = queries[..., :, None] == keys[..., None, :]
    return {"rel_bias": transposed(biases), "labels": is_same.astype(np.int8)}


def _numbers(name: str, value: ArrayLike) -> Array:
    numbers = as_integers(name, as_plain(name, value))
    at_least_ndim(name, numbers, 1, "(..., L)")
    return numbers
