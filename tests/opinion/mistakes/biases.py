"""Biases and tables: slopes, signs, buckets, and terms added in another place."""

from __future__ import annotations

import numpy as np

import relpos
from mistakes.row import DISTANCE, RNG, D, H, L, family, softmax

ROWS, mistake = family()
BIAS = RNG.standard_normal((H, 2 * L - 1))
KEYS, VALUES = RNG.standard_normal((2, 2 * L - 1, D))
WEIGHT = RNG.standard_normal((H, 12))
REACH = np.arange(1 - L, L)
BUCKETS = relpos.t5_bucket(REACH, num_buckets=12, max_distance=9)
SPAN = 7 + relpos.deberta_bucket(REACH, bucket_size=8, max_position=32)
FEW = RNG.standard_normal((15, D))


@mistake(
    "sign|negat",
    "bias|distance|slope",
    source="https://github.com/meta-pytorch/attention-gym/pull/86",
    rel_bias=relpos.alibi_bias(H, L),
    is_causal=True,
)
def alibi_of_query_minus_key(query, key, value):
    q_idx, kv_idx = np.arange(L)[:, None], np.arange(L)
    slopes = np.exp2(-(np.arange(H) + 1) * 8.0 / H)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    scores = scores + slopes[:, None, None] * (q_idx - kv_idx)
    return softmax(np.where(q_idx >= kv_idx, scores, -np.inf)) @ value


@mistake(
    "slope",
    source="https://github.com/paiml/aprender/pull/2143",
    rel_bias=relpos.alibi_bias(H, L),
)
def slopes_from_one(query, key, value):
    slopes = 2.0 ** (-8.0 * np.arange(H) / H)
    bias = -slopes[:, None, None] * np.abs(DISTANCE)
    return softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D) + bias) @ value


@mistake(
    "slope",
    "number of heads|other heads|more heads|fewer heads|rank",
    source="https://github.com/flashinfer-ai/flashinfer/issues/1606",
    rel_bias=relpos.alibi_bias(relpos.alibi_slopes(2 * H)[H:], L),
)
def slopes_of_the_local_heads(query, key, value):
    # This rank has the last 4 of 8 heads.
    slopes = 2.0 ** (-8.0 * np.arange(1, H + 1) / H)
    bias = -slopes[:, None, None] * np.abs(DISTANCE)
    return softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D) + bias) @ value


@mistake(
    "sign|absolute|symmetric|later|future|own position",
    "distance|bias|slope|row",
    source="https://github.com/ofirpress/attention_with_linear_biases/issues/5",
    rel_bias=relpos.alibi_bias(H, L),
)
def causal_alibi_in_an_encoder(query, key, value):
    slopes = relpos.alibi_slopes(H)[:, None, None]
    alibi = slopes * np.arange(L)  # a row's constant is nothing to the softmax
    return softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D) + alibi) @ value


@mistake(
    "bucket",
    "128|max_distance|distance|default",
    source="https://github.com/lucidrains/x-transformers/pull/11",
    rel_bias=WEIGHT,
    buckets=BUCKETS,
    scale=1.0,
)
def max_distance_of_128(query, key, value):
    n = np.abs(DISTANCE)
    far = 3 + (np.log(np.maximum(n, 1) / 3) / np.log(128 / 3) * 3).astype(int)
    bucket = np.where(n < 3, n, np.minimum(far, 5)) + 6 * (DISTANCE > 0)
    return softmax(query @ key.swapaxes(-1, -2) + WEIGHT[:, bucket]) @ value


@mistake(
    "bucket",
    "max_position|distance|max|length",
    source="https://github.com/NVIDIA/TensorRT/issues/3370",
    rel_key=FEW,
    buckets=SPAN,
)
def buckets_up_to_the_sequence_length(query, key, value):
    n, mid = np.abs(DISTANCE), 4
    log = np.log(np.maximum(n, mid) / mid) / np.log((L - 1) / mid)
    far = np.ceil(log * (mid - 1)) + mid
    bucket = np.where(n <= mid, DISTANCE, np.sign(DISTANCE) * far).astype(int)
    rows = FEW[bucket + 7]
    scores = query @ key.swapaxes(-1, -2) + np.einsum("bhid,ijd->bhij", query, rows)
    return softmax(scores / np.sqrt(D)) @ value


@mistake(
    "values",
    "keys|table",
    source="https://github.com/leaderj1001/Stand-Alone-Self-Attention/issues/7",
    rel_key=KEYS,
)
def table_added_to_the_values(query, key, value):
    rel = KEYS[DISTANCE + L - 1]
    weights = softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D))
    return weights @ value + np.einsum("bhij,ijd->bhid", weights, rel)


@mistake(
    "bias|position",
    "after the softmax",
    source="near: https://github.com/qhfan/RMT/issues/21",
    rel_bias=BIAS,
)
def bias_added_after_the_softmax(query, key, value):
    weights = softmax(query @ key.swapaxes(-1, -2) / np.sqrt(D))
    return (weights + BIAS[:, DISTANCE + L - 1]) @ value


@mistake(
    "values",
    "weight",
    source="near: https://github.com/leaderj1001/Stand-Alone-Self-Attention/issues/7",
    rel_key=KEYS,
    rel_value=VALUES,
)
def relative_values_unweighted(query, key, value):
    rows = DISTANCE + L - 1
    scores = query @ key.swapaxes(-1, -2)
    scores = scores + np.einsum("bhid,ijd->bhij", query, KEYS[rows])
    out = softmax(scores / np.sqrt(D)) @ value
    return out + VALUES[rows].sum(axis=1)
