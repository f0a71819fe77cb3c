"""Attention, its masks, windows, heads, caps and sinks."""

from __future__ import annotations

import math

import numpy as np
from mistakes.row import DISTANCE, RNG, B, D, H, L, Q, joined, softmax

from right.row import family

ROWS, right = family()
LENGTHS = np.array([7, 4])
MASK = (RNG.random((B, 1, L, L)) < 0.6) | (DISTANCE == 0)
BIAS = RNG.standard_normal((H, L, L))
SINKS = np.array([0.7, -0.4, 1.5, 0.2])
FEW_K, FEW_V = RNG.standard_normal((2, B, 2, L, D))


@right()
def by_einsum(query, key, value):
    scores = np.einsum("bhqd,bhkd->bhqk", query, key) / math.sqrt(D)
    return np.einsum("bhqk,bhkd->bhqd", softmax(scores), value)


@right()
def by_loops(query, key, value):
    out = np.zeros_like(query)
    for b, h, i in np.ndindex(B, H, L):
        exps = [math.exp(query[b, h, i] @ k / math.sqrt(D)) for k in key[b, h]]
        for e, v in zip(exps, value[b, h], strict=True):
            out[b, h, i] += e / sum(exps) * v
    return out


@right(is_causal=True)
def by_blocks_of_an_online_softmax(query, key, value):
    out = np.zeros_like(query)
    largest, total = np.full((B, H, L, 1), -np.inf), np.zeros((B, H, L, 1))
    for start in range(0, L, 4):
        k, v = key[:, :, start : start + 4], value[:, :, start : start + 4]
        scores = query @ k.swapaxes(-1, -2) * D**-0.5
        scores = np.where(DISTANCE[:, start : start + 4] <= 0, scores, -np.inf)
        new = np.maximum(largest, scores.max(axis=-1, keepdims=True))
        p, correction = np.exp(scores - new), np.exp(largest - new)
        total = total * correction + p.sum(axis=-1, keepdims=True)
        out, largest = out * correction + p @ v, new
    return out / total


@right()
def by_logsumexp_of_scaled_queries(query, key, value):
    scores = (query / math.sqrt(D)) @ np.moveaxis(key, -1, -2)
    lse = np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    return np.exp(scores - lse) @ value


@right(is_causal=True)
def by_powers_of_two_and_two_roots_of_the_scale(query, key, value):
    root = D**-0.25
    scores = (query * root) @ (key * root).swapaxes(-1, -2) * math.log2(math.e)
    p = np.where(np.tri(L), np.exp2(scores), 0.0)
    return p @ value / p.sum(axis=-1, keepdims=True)


@right("convention")
def with_heads_behind_the_length(query, key, value):
    q, k, v = (joined(x).reshape(B, L, H, D) for x in (query, key, value))
    weights = softmax(np.einsum("blhd,bmhd->bhlm", q, k) / np.sqrt(D))
    return np.einsum("bhlm,bmhd->blhd", weights, v)


@right("convention")
def with_heads_joined(query, key, value):
    heads = [
        softmax(query[:, h] @ key[:, h].swapaxes(-1, -2) / np.sqrt(D)) @ value[:, h]
        for h in range(H)
    ]
    return np.concatenate(heads, axis=-1)


@right(attn_mask=np.where(MASK, 0.0, -np.inf) + BIAS)
def masked_by_an_added_bias(query, key, value):
    mask = np.where(MASK, 0.0, -np.inf) + BIAS
    return softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D) + mask) @ value


@right(attn_mask=MASK)
def masked_by_a_large_number(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    return softmax(scores + (1.0 - MASK) * -1e9) @ value


@right(attn_mask=MASK)
def masked_after_the_exponential_and_divided_again(query, key, value):
    weights = softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D)) * MASK
    return weights / weights.sum(axis=-1, keepdims=True) @ value


@right(is_causal=True)
def causal_by_triu_of_what_is_hidden(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    hidden = np.triu(np.ones((L, L), bool), k=1)
    scores[..., hidden] = np.finfo(scores.dtype).min
    return softmax(scores) @ value


@right(is_causal=True, query=Q[..., 5:, :], query_offset=5)
def causal_one_query_at_a_time_with_a_cache(query, key, value):
    steps = []
    for step in range(4):
        k, v = key[..., : 6 + step, :], value[..., : 6 + step, :]
        q = query[..., step : step + 1, :]
        steps.append(softmax(q @ k.swapaxes(-1, -2) / np.sqrt(D)) @ v)
    return np.concatenate(steps, axis=-2)


@right(key_lengths=LENGTHS)
def padded_items_one_by_one(query, key, value):
    out = np.empty_like(query)
    for b, n in enumerate(LENGTHS):
        weights = softmax(query[b] @ key[b, :, :n].swapaxes(-1, -2) / np.sqrt(D))
        out[b] = weights @ value[b, :, :n]
    return out


@right(attn_mask=np.repeat([0, 1, 2], 3) == np.repeat([0, 1, 2], 3)[:, None])
def documents_one_by_one(query, key, value):
    q, k, v = (np.split(x, 3, axis=-2) for x in (query, key, value))
    outs = [
        softmax(a @ b.swapaxes(-1, -2) / np.sqrt(D)) @ c
        for a, b, c in zip(q, k, v, strict=True)
    ]
    return np.concatenate(outs, axis=-2)


@right(window=(2, 1))
def windows_one_by_one(query, key, value):
    out = np.empty_like(query)
    for i in range(L):
        near = slice(max(i - 2, 0), i + 2)
        k, v = key[:, :, near], value[:, :, near]
        scores = np.einsum("bhd,bhkd->bhk", query[:, :, i], k) / np.sqrt(D)
        out[:, :, i] = np.einsum("bhk,bhkd->bhd", softmax(scores), v)
    return out


@right(window=(3, 0))
def sliding_window_of_four_with_the_own_key(query, key, value):
    sliding_window = 4
    mask = np.tril(np.ones((L, L), bool))
    mask &= ~np.tril(np.ones((L, L), bool), k=-sliding_window)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    return softmax(np.where(mask, scores, -np.inf)) @ value


@right(key=FEW_K, value=FEW_V, enable_gqa=True)
def groups_of_heads_by_einsum(query, key, value):
    q = query.reshape(B, 2, 2, L, D)
    weights = softmax(np.einsum("bkgid,bkjd->bkgij", q, key) / np.sqrt(D))
    return np.einsum("bkgij,bkjd->bkgid", weights, value).reshape(B, H, L, D)


@right(key=FEW_K, value=FEW_V, enable_gqa=True, is_causal=True)
def shared_heads_repeated(query, key, value):
    k, v = (np.repeat(x, 2, axis=1) for x in (key, value))
    scores = query @ k.swapaxes(-1, -2) / np.sqrt(D)
    return softmax(np.where(DISTANCE > 0, -np.inf, scores)) @ v


@right(sinks=SINKS)
def sinks_as_a_column_that_is_dropped(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    column = np.broadcast_to(SINKS[:, None, None], (B, H, L, 1))
    weights = softmax(np.concatenate([scores, column], axis=-1))
    return weights[..., :-1] @ value


@right(sinks=SINKS, is_causal=True)
def sinks_as_a_sigmoid_of_the_lse(query, key, value):
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    e = np.where(DISTANCE <= 0, np.exp(scores), 0.0)
    total = e.sum(axis=-1, keepdims=True)
    gate = 1 / (1 + np.exp(SINKS[:, None, None] - np.log(total)))
    return e / total @ value * gate


@right(softcap=1.5, is_causal=True)
def capped_before_the_mask(query, key, value):
    scores = query @ key.swapaxes(-1, -2) * D**-0.5 / 1.5
    scores = (2 / (1 + np.exp(-2 * scores)) - 1) * 1.5  # tanh
    return softmax(np.where(DISTANCE > 0, -1e9, scores)) @ value


@right(value=None, attn_mask=MASK)
def weights_by_a_matrix_of_exponentials(query, key):
    kernel = np.exp(query @ key.swapaxes(-1, -2) / np.sqrt(D)) * MASK
    return kernel / kernel.sum(axis=-1, keepdims=True)
