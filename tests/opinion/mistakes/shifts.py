"""Shifts: what the skew keeps, tables of another side, memory in another order."""

from __future__ import annotations

import numpy as np

from mistakes.row import DISTANCE, RNG, B, D, H, L, Q, family, softmax

ROWS, mistake = family()
PAST = RNG.standard_normal((L, D))
TABLE = RNG.standard_normal((2 * L - 1, D))
BIAS = RNG.standard_normal((H, 2 * L - 1))


@mistake(
    "shift|skew",
    "pad|column|behind|last|first",
    source="https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/185",
    scheme="relative_global_attention",
    rel_key=PAST,
)
def last_row_dropped_not_the_first(query, key, value):
    x = query @ PAST.T
    zero_pad = np.zeros((B, H, L, 1))
    x_padded = np.concatenate([x, zero_pad], axis=-1).reshape(B, H, L + 1, L)
    shifted = x_padded[:, :, :-1]
    scores = (query @ key.swapaxes(-1, -2) + shifted) / np.sqrt(D)
    return softmax(np.where(DISTANCE <= 0, scores, -1e9)) @ value


@mistake(
    "key",
    "order|roll|ring|rotat|moved",
    source="https://github.com/kyutai-labs/moshi/issues/241",
    query=Q[..., 7:, :],
    query_offset=7,
    rel_bias=BIAS,
)
def ring_buffer_not_put_in_order(query, key, value):
    capacity = key.shape[-2]
    slots = np.arange(3, 3 + capacity) % capacity  # the newest were written over
    cache_k, cache_v = np.empty_like(key), np.empty_like(value)
    cache_k[..., slots, :], cache_v[..., slots, :] = key, value
    bias = BIAS[:, np.arange(capacity) - np.arange(7, 9)[:, None] + L - 1]
    scores = query @ cache_k.swapaxes(-1, -2) / np.sqrt(D) + bias
    return softmax(scores) @ cache_v


@mistake(
    "two-sided",
    source="near: https://github.com/TensorSpeech/TensorFlowASR/issues/161",
    rel_key=TABLE,
)
def two_sided_table_read_from_its_end(query, key, value):
    rows = np.minimum(DISTANCE, 0) + len(TABLE) - 1
    position = np.einsum("bhid,ijd->bhij", query, TABLE[rows])
    scores = (query @ key.swapaxes(-1, -2) + position) / np.sqrt(D)
    return softmax(scores) @ value


@mistake(
    "memory|key|cache",
    "behind|after|before|order",
    source="https://github.com/huggingface/transformers/issues/35684",
    query=Q[..., 4:, :],
    query_offset=4,
    is_causal=True,
    rel_bias=BIAS,
)
def memory_behind_the_new_keys(query, key, value):
    (mem_k, new_k), (mem_v, new_v) = (np.split(x, [4], axis=-2) for x in (key, value))
    k = np.concatenate([new_k, mem_k], axis=-2)
    v = np.concatenate([new_v, mem_v], axis=-2)
    r = np.arange(L) - np.arange(4, L)[:, None]
    scores = query @ k.swapaxes(-1, -2) / np.sqrt(D) + BIAS[:, r + L - 1]
    return softmax(np.where(r <= 0, scores, -np.inf)) @ v
