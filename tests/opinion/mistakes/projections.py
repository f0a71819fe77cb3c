"""Queries, keys and values in each other's place."""

from __future__ import annotations

import numpy as np

from mistakes.row import B, D, H, L, family, softmax

ROWS, mistake = family()


@mistake(
    "queries and keys|keys and queries|query and key",
    source="https://github.com/karpathy/llm.c/pull/531",
    is_causal=True,
)
def key_times_query(query, key, value):
    preatt = key @ query.swapaxes(-1, -2) / np.sqrt(D)
    att = softmax(np.where(np.tri(L, dtype=bool), preatt, -np.inf))
    return att @ value


@mistake(
    "weights",
    "transpos",
    source="https://github.com/heykeetae/Self-Attention-GAN/issues/11",
)
def weights_not_transposed(query, key, value):
    attention = softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D))
    proj_value = value.swapaxes(-1, -2)
    out = proj_value @ attention  # it is attention.swapaxes(-1, -2)
    return out.swapaxes(-1, -2)


@mistake(
    "keys and values|values and keys|key and value",
    source="https://github.com/jsbaan/transformer-from-scratch/issues/1",
)
def keys_and_values_exchanged(query, key, value):
    q, v, k = query, key, value  # returned as q, k, v
    return softmax(np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(D)) @ v


@mistake(
    "keys",
    "values",
    source="https://github.com/ruvnet/agentic-flow/issues/191",
)
def keys_returned(query, key, value):
    weights = softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D))
    return weights @ key


@mistake(
    "head|fused|projection|interleav",
    "split|order|layout|quer.*key.*value",
    source="https://github.com/tenstorrent/tt-metal/pull/41731",
)
def fused_heads_split_as_thirds(query, key, value):
    # The columns of a row are those of q, k and v of head 0, then of head 1 ...
    fused = np.stack([query, key, value], axis=2).transpose(0, 3, 1, 2, 4)
    thirds = np.split(fused.reshape(B, L, 3 * H * D), 3, axis=-1)
    q, k, v = (x.reshape(B, L, H, D).swapaxes(1, 2) for x in thirds)
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(D)) @ v
