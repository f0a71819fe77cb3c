"""Tables and biases of relative positions."""

from __future__ import annotations

import math

import numpy as np
from mistakes.row import DISTANCE, RNG, B, D, H, L, Q, softmax

import relpos
from right.row import family

ROWS, right = family()
TABLE, OTHER, VALUES = RNG.standard_normal((3, 2 * L - 1, D))
CLIPPED, CLIPPED_VALUES = RNG.standard_normal((2, 7, D))
PAST = RNG.standard_normal((L, D))
U, W = RNG.standard_normal((2, H, D))
WEIGHT = RNG.standard_normal((H, 12))
REACH = np.arange(1 - L, L)
ENCODER = relpos.t5_bucket(REACH, num_buckets=12, max_distance=9)
DECODER = relpos.t5_bucket(REACH, num_buckets=12, max_distance=16, bidirectional=False)
SLOPES = relpos.alibi_slopes(6)[:H]
R1, R2 = RNG.random((2, H)) + 0.3
FIRE = {
    "w1": RNG.standard_normal(5),
    "b1": RNG.standard_normal(5),
    "w2": RNG.standard_normal((H, 5)),
    "b2": RNG.standard_normal(H),
    "c": 0.8,
    "threshold": 3.5,
}
FREQUENCIES = 10000.0 ** (-np.arange(0, 12, 2) / 12)


@right(scheme="shaw_attention", rel_key=CLIPPED, rel_value=CLIPPED_VALUES)
def shaw_by_batched_matrices(query, key, value):
    rows = np.clip(DISTANCE, -3, 3) + 3
    q = query.transpose(2, 0, 1, 3).reshape(L, B * H, D)
    position = q @ CLIPPED[rows].swapaxes(-1, -2)
    position = position.transpose(1, 0, 2).reshape(B, H, L, L)
    weights = softmax((query @ key.swapaxes(-1, -2) + position) / np.sqrt(D))
    w = weights.transpose(2, 0, 1, 3).reshape(L, B * H, L)
    of_table = (w @ CLIPPED_VALUES[rows]).transpose(1, 0, 2).reshape(B, H, L, D)
    return weights @ value + of_table


@right(scheme="shaw_attention", rel_key=TABLE, rel_value=VALUES)
def shaw_by_tables_added_to_keys_and_values(query, key, value):
    out = np.empty_like(query)
    for i in range(L):
        at = slice(L - 1 - i, 2 * L - 1 - i)
        k, v = key + TABLE[at], value + VALUES[at]
        weights = softmax(np.einsum("bhd,bhjd->bhj", query[:, :, i], k) / np.sqrt(D))
        out[:, :, i] = np.einsum("bhj,bhjd->bhd", weights, v)
    return out


@right(scheme="relative_global_attention", rel_key=PAST)
def music_by_a_padded_reshape(query, key, value):
    qe = query @ PAST.T
    padded = np.pad(qe, [(0, 0)] * 3 + [(1, 0)])
    s_rel = padded.reshape(B, H, L + 1, L)[:, :, 1:]
    scores = (query @ key.swapaxes(-1, -2) + s_rel) / math.sqrt(D)
    return softmax(np.where(DISTANCE > 0, -np.inf, scores)) @ value


@right(scheme="relative_global_attention", rel_key=PAST)
def music_by_strides(query, key, value):
    qe = np.ascontiguousarray(np.pad(query @ PAST.T, [(0, 0)] * 3 + [(0, L)]))
    *outer, row, column = qe.strides
    s_rel = np.lib.stride_tricks.as_strided(
        qe[..., L - 1 :], (B, H, L, L), (*outer, row - column, column)
    )
    scores = np.tril(query @ key.swapaxes(-1, -2) + s_rel) / math.sqrt(D)
    return softmax(scores - 1e9 * np.triu(np.ones((L, L)), 1)) @ value


@right(rel_key=TABLE)
def both_directions_by_gather(query, key, value):
    all_rows = query @ TABLE.T
    index = np.broadcast_to(DISTANCE + L - 1, (B, H, L, L))
    position = np.take_along_axis(all_rows, index, axis=-1)
    return softmax((query @ key.swapaxes(-1, -2) + position) / np.sqrt(D)) @ value


@right(scheme="transformer_xl_attention", rel_key=TABLE, pos_bias_u=U, pos_bias_v=W)
def encoder_shift_that_is_cut(query, key, value):
    matrix_ac = (query + U[:, None]) @ key.swapaxes(-1, -2)
    x = (query + W[:, None]) @ TABLE.T
    padded = np.concatenate([np.zeros((B, H, L, 1)), x], axis=-1)
    shifted = padded.reshape(B, H, 2 * L, L)[:, :, 1:].reshape(x.shape)
    return softmax((matrix_ac + shifted[..., :L]) / math.sqrt(D)) @ value


@right(
    scheme="transformer_xl_attention",
    rel_key=PAST,
    pos_bias_u=U,
    pos_bias_v=W,
    query=Q[..., 5:, :],
    query_offset=5,
    is_causal=True,
)
def transformer_xl_with_memory(query, key, value):
    qlen, klen = 4, L
    ac = np.einsum("bhid,bhjd->bhij", query + U[:, None], key)
    bd = np.einsum("bhid,jd->bhij", query + W[:, None], PAST)
    zero_pad = np.zeros((B, H, qlen, 1))
    padded = np.concatenate([zero_pad, bd], axis=-1).reshape(B, H, klen + 1, qlen)
    bd = padded[:, :, 1:].reshape(B, H, qlen, klen)
    hidden = np.triu(np.ones((qlen, klen), bool), k=1 + klen - qlen)
    return softmax(np.where(hidden, -1e30, (ac + bd) / np.sqrt(D))) @ value


@right(rel_key=TABLE, rel_query=OTHER, scale=1 / math.sqrt(3 * D))
def disentangled_by_gather(query, key, value):
    scale = math.sqrt(D * 3)
    shape = (B, H, L, L)
    c2p = np.take_along_axis(
        query @ TABLE.T, np.broadcast_to(DISTANCE + L - 1, shape), -1
    )
    p2c = np.take_along_axis(
        key @ OTHER.T, np.broadcast_to(DISTANCE.T + L - 1, shape), -1
    )
    scores = query @ key.swapaxes(-1, -2) + c2p + p2c.swapaxes(-1, -2)
    return softmax(scores / scale) @ value


@right(rel_bias=WEIGHT, buckets=ENCODER, scale=1.0)
def t5_encoder_by_logarithms(query, key, value):
    ret = np.where(DISTANCE > 0, 6, 0)
    n = np.abs(DISTANCE)
    large = 3 + (np.log(np.maximum(n, 1) / 3) / math.log(9 / 3) * 3 + 1e-9).astype(int)
    ret = ret + np.where(n < 3, n, np.minimum(large, 5))
    bias = WEIGHT.T[ret].transpose(2, 0, 1)
    return softmax(query @ key.swapaxes(-1, -2) + bias) @ value


@right(
    rel_bias=WEIGHT,
    buckets=DECODER,
    scale=1.0,
    is_causal=True,
    query=Q[..., 6:, :],
    query_offset=6,
)
def t5_decoder_by_a_list_of_buckets(query, key, value):
    bias = np.full((H, 3, L), -np.inf)
    for i in range(3):
        for j in range(i + 7):
            n = i + 6 - j
            far = 6 + int(math.log(max(n, 6) / 6) / math.log(16 / 6) * 6)
            bias[:, i, j] = WEIGHT[:, n if n < 6 else min(far, 11)]
    return softmax(query @ key.swapaxes(-1, -2) + bias) @ value


@right(rel_bias=relpos.alibi_bias(SLOPES, L), is_causal=True)
def alibi_as_a_constant_of_the_key(query, key, value):
    alibi = SLOPES[:, None, None] * np.arange(1 - L, 1)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D) + alibi
    return softmax(np.where(DISTANCE > 0, -np.inf, scores)) @ value


@right(rel_bias=relpos.kerple_bias(R1, R2, L))
def kerple_by_its_formula(query, key, value):
    distance = np.abs(DISTANCE)[None]
    bias = R1[:, None, None] * np.log(1 + R2[:, None, None] * distance)
    return softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D) - bias) @ value


@right(scheme="fire_attention", is_causal=True, **FIRE)
def fire_by_its_network(query, key, value):
    i, j = np.arange(L)[:, None], np.arange(L)
    far = np.log1p(FIRE["c"] * np.maximum(np.maximum(i, FIRE["threshold"]), 1e-6))
    x = np.log1p(FIRE["c"] * np.maximum(i - j, 0)) / far
    hidden = np.maximum(x[..., None] * FIRE["w1"] + FIRE["b1"], 0)
    bias = np.moveaxis(hidden @ FIRE["w2"].T + FIRE["b2"], -1, 0)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D) + bias
    return softmax(np.where(j <= i, scores, -np.inf)) @ value


@right(rel_bias=np.cos(REACH[:, None] * FREQUENCIES).sum(axis=-1) * np.ones((H, 1)) / 4)
def sandwich_by_products_of_sinusoids(query, key, value):
    angles = np.arange(L)[:, None] * FREQUENCIES
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D) + waves @ waves.T / 4
    return softmax(scores) @ value
