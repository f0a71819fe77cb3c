"""Windows: off by one, on one side only, and taken for the wrong query."""

from __future__ import annotations

import numpy as np

from mistakes.row import DISTANCE, L, Q, attend, family

ROWS, mistake = family()


@mistake(
    "window|each side|key more",
    "more|wider",
    source="https://github.com/huggingface/transformers/issues/39408",
    window=(3, 0),
)
def one_key_too_many(query, key, value):
    sliding_window = 4
    seen = (DISTANCE <= 0) & (-sliding_window <= DISTANCE)
    return attend(query, key, value, seen)


@mistake(
    "window",
    r"past|later|one side|future|\bown\b",
    source="https://github.com/vllm-project/vllm/pull/31406",
    causes=2,
    window=(3, 3),
)
def future_side_alone(query, key, value):
    at_query, at_key = np.arange(L)[:, None], np.arange(L)
    hidden = (at_query >= at_key) | (at_query < at_key - 3)
    return attend(query, key, value, ~hidden, -1e9)


@mistake(
    "window",
    "offset|row|cache|before",
    source="https://github.com/trymirai/lalamo/pull/200",
    query=Q[..., 4:, :],
    is_causal=True,
    window=(2, 0),
    query_offset=4,
)
def window_from_the_row_not_the_position(query, key, value):
    length, total = query.shape[-2], key.shape[-2]
    seen = np.tril(np.ones((length, total), bool), k=total - length)
    seen &= np.triu(np.ones((length, total), bool), k=-2)
    return attend(query, key, value, seen)


@mistake(
    "window",
    "last|first quer|cut|all queries",
    source="https://github.com/rasbt/LLMs-from-scratch/issues/1008",
    query=Q[..., 6:, :],
    is_causal=True,
    window=(3, 0),
    query_offset=6,
)
def cache_cut_for_the_last_query(query, key, value):
    sliding_window = 4
    key, value = key[..., -sliding_window:, :], value[..., -sliding_window:, :]
    seen = np.tril(np.ones((3, sliding_window), bool), k=sliding_window - 3)
    return attend(query, key, value, seen)


@mistake(
    "window",
    "ignored|left out|either|both",
    source="https://github.com/lucidrains/local-attention/issues/5",
    causes=2,
    is_causal=True,
    window=(3, 3),
)
def hidden_only_where_both_masks_hide(query, key, value):
    causal_mask = DISTANCE > 0
    window_mask = DISTANCE < -3
    return attend(query, key, value, ~(causal_mask & window_mask), -1e9)
