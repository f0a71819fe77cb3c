"""Other conventions, as right as relpos's: name and source to what they give."""

from __future__ import annotations

import math

import numpy as np
from opinions import (
    B,
    D,
    H,
    L,
    biased,
    case,
    distance,
    hide,
    plain,
    position,
    qkv,
    rotary,
    shaw,
    shift,
    softmax,
    t5,
    transposed,
    turn,
    xl,
)

import relpos

CONVENTIONS = {}


@case(CONVENTIONS, "table_reversed", of="rows from the farthest future")
def from_the_future(rng):
    q, k, v, table, arguments = shaw(rng)
    rows = position(q, table[3 - np.clip(distance(), -3, 3)])
    return softmax((q @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(CONVENTIONS, "bucket_direction", of="buckets of query minus key")
def query_minus_key(rng):
    weight, q, k, v, arguments = t5(rng)
    options = {"num_buckets": 12, "max_distance": 9}
    bias = weight[:, relpos.t5_bucket(-distance(), **options)]
    return softmax(q @ transposed(k) + bias) @ v, arguments


@case(CONVENTIONS, "rows_2n", of="the article's P_-N to P_N-1")
def article(rng):
    q, k, v, table, u, w, arguments = xl(rng, 2 * L, min_relative_position=1 - L)
    rows = position(q + w, table[distance() + L])
    return softmax(((q + u) @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(CONVENTIONS, "beyond_table", of="tensorflow/tensor2tensor#1599")
def zeros_beyond(rng):
    q, k, v, table, arguments = shaw(rng)
    rows = position(q, table[np.clip(distance(), -3, 3) + 3])
    rows = np.where(np.abs(distance()) > 3, 0.0, rows)
    return softmax((q @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(CONVENTIONS, "columns_exchanged", of="tensorflow/tensor2tensor#391")
def concatenated(rng):
    q, k, v, _, u, w, arguments = xl(rng)
    angles = np.arange(1 - L, L)[:, None] * 1e4 ** (-np.arange(0, D, 2) / D)
    arguments["rel_key"] = relpos.sinusoidal(np.arange(1 - L, L), D, dtype=float)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    rows = position(q + w, table[distance() + L - 1])
    return softmax(((q + u) @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(CONVENTIONS, "values_share_table", of="OpenNMT/OpenNMT-py")
def one_table(rng):
    q, k, v, table, arguments = shaw(rng, rel_value=rng.standard_normal((7, D)))
    pairs = table[np.clip(distance(), -3, 3) + 3]
    weights = softmax((q @ transposed(k) + position(q, pairs)) / math.sqrt(D))
    return weights @ v + np.einsum("...ij,ijd->...id", weights, pairs), arguments


@case(CONVENTIONS, "no_scale", of="google-research/text-to-text-transfer-transformer")
def unscaled(rng):
    bias = rng.standard_normal((H, 2 * L - 1))
    q, k, v, arguments = biased(rng, bias)
    return softmax(q @ transposed(k) + bias[:, distance() + L - 1]) @ v, arguments


@case(CONVENTIONS, "scale_by_dim", of="microsoft/mup")
def mup(rng):
    q, k, v = qkv(rng)
    return plain(q, k, v, 1 / D), {"query": q, "key": k, "value": v}


@case(CONVENTIONS, "position_unscaled", of="tml/inkling")
def position_outside(rng):
    q, k, v, table, arguments = shaw(rng)
    rows = position(q, table[np.clip(distance(), -3, 3) + 3])
    return softmax(q @ transposed(k) / math.sqrt(D) + rows) @ v, arguments


@case(CONVENTIONS, "bias_scaled", of="tiiuae/falcon")
def falcon(rng):
    q, k, v, arguments = biased(rng, relpos.alibi_bias(H, L))
    bias = -relpos.alibi_slopes(H)[:, None, None] * np.abs(distance())
    return softmax((q @ transposed(k) + bias) / math.sqrt(D)) @ v, arguments


@case(CONVENTIONS, "cap_after_bias", of="microsoft/onnxruntime#28370")
def capped_last(rng):
    bias = rng.standard_normal((H, 2 * L - 1))
    q, k, v, arguments = biased(rng, bias, softcap=1.5)
    s = q @ transposed(k) / math.sqrt(D) + bias[:, distance() + L - 1]
    return softmax(1.5 * np.tanh(s / 1.5)) @ v, arguments


@case(CONVENTIONS, "heads_tiled", of="repeat in place of repeat_interleave")
def tiled(rng):
    q = rng.standard_normal((B, 4, L, D))
    k, v = rng.standard_normal((2, B, 2, L, D))
    out = plain(q, np.concatenate([k, k], axis=1), np.concatenate([v, v], axis=1))
    return out, {"query": q, "key": k, "value": v, "enable_gqa": True}


@case(CONVENTIONS, "mask_inverted", of="lucidrains/x-transformers#164")
def true_hides(rng):
    q, k, v = qkv(rng)
    mask = rng.random((L, L)) < 0.5
    s = np.where(mask, -1e9, q @ transposed(k) / math.sqrt(D))
    return softmax(s) @ v, {"query": q, "key": k, "value": v, "attn_mask": mask}


def triangle(rng, offset, mine, **settings):
    q, k, v = qkv(rng, 4, L)
    s = hide(q @ transposed(k) / math.sqrt(D), distance(4, L, mine) <= 0)
    arguments = {"query": q, "key": k, "value": v, "is_causal": True}
    return softmax(s) @ v, arguments | {"query_offset": offset}


@case(CONVENTIONS, "causal_top_left", of="pytorch/pytorch#144858")
def top_left(rng):
    return triangle(rng, L - 4, 0)


@case(CONVENTIONS, "causal_bottom_right", of="flash-attention 2.1")
def bottom_right(rng):
    return triangle(rng, 0, L - 4)


@case(CONVENTIONS, "window_counts_itself", of="sliding_window of Mistral")
def window(rng):
    q, k, v = qkv(rng)
    see = (distance() <= 0) & (distance() > -3)
    out = softmax(hide(q @ transposed(k) / math.sqrt(D), see)) @ v
    return out, {"query": q, "key": k, "value": v, "window": (3, 0)}


@case(CONVENTIONS, "rotary_pairs", of="huggingface/transformers#25199")
def neighbours(rng):
    q, k, v, arguments = rotary(rng)
    q, k = (turn(x, np.arange(L), pairs=True) for x in (q, k))
    return plain(q, k, v), arguments


@case(CONVENTIONS, "heads_joined", of="torch.nn.MultiheadAttention")
def joined(rng):
    q, k, v = qkv(rng)
    out = np.swapaxes(plain(q, k, v), 1, 2).reshape(B, L, H * D)
    return out, {"query": q, "key": k, "value": v}


def causal_scores(rng):
    q, k, _, _, arguments = shaw(rng, value=None)
    arguments |= {"scheme": "relative_global_attention"}
    arguments["rel_key"] = rng.standard_normal((L, D))
    return q, k, arguments


@case(CONVENTIONS, "two_sided_table", of="a decoder with the table of an encoder")
def decoder_with_a_two_sided_table(rng):
    q, k, v, table, arguments = shaw(rng, scheme="relative_global_attention")
    table = arguments["rel_key"] = rng.standard_normal((2 * L - 1, D))
    s = q @ transposed(k) + position(q, table[distance() + L - 1])
    return softmax(hide(s / math.sqrt(D), distance() <= 0)) @ v, arguments


@case(CONVENTIONS, "unmasked", of="scores before the mask")
def before_the_mask(rng):
    q, k, arguments = causal_scores(rng)
    rows = arguments["rel_key"][np.minimum(distance(), 0) + L - 1]
    return (q @ transposed(k) + position(q, rows)) / math.sqrt(D), arguments


@case(CONVENTIONS, "unmasked_wrapped", of="scores of the skew before the mask")
def skewed(rng):
    q, k, arguments = causal_scores(rng)
    rows = shift(q @ arguments["rel_key"].T)
    return (q @ transposed(k) + rows) / math.sqrt(D), arguments


@case(CONVENTIONS, "hidden_differs", of="scores with anything above the diagonal")
def anything_above(rng):
    q, k, arguments = causal_scores(rng)
    rows = arguments["rel_key"][np.minimum(distance(), 0) + L - 1]
    s = (q @ transposed(k) + position(q, rows)) / math.sqrt(D)
    return np.where(distance() <= 0, s, rng.standard_normal(s.shape)), arguments


@case(CONVENTIONS, "constant_in_rows", of="bigscience/bloom, mosaicml/llm-foundry#186")
def bloom(rng):
    q, k, _, arguments = biased(rng, relpos.alibi_bias(H, L), is_causal=True)
    arguments["value"] = None
    by_key = relpos.alibi_slopes(H)[:, None, None] * np.arange(L)
    s = q @ transposed(k) / math.sqrt(D) + by_key
    return np.where(distance() <= 0, s, -np.inf), arguments


@case(CONVENTIONS, "base_two", of="scores of flash kernels")
def powers_of_two(rng):
    q, k, _ = qkv(rng)
    return q @ transposed(k) / math.sqrt(D) * math.log2(math.e), {"query": q, "key": k}


def empty_rows(rng, number):
    q, k, v = qkv(rng)
    mask = rng.random((L, L)) < 0.5
    mask[3] = False
    out = softmax(hide(q @ transposed(k) / math.sqrt(D), mask)) @ v
    out[..., 3, :] = v.mean(axis=-2) if number is None else number
    return out, {"query": q, "key": k, "value": v, "attn_mask": mask}


@case(CONVENTIONS, "nothing_is_nan", of="pytorch/pytorch#41508")
def nan_where_nothing_is_seen(rng):
    return empty_rows(rng, np.nan)


@case(CONVENTIONS, "nothing_is_mean", of="a mask of -1e9")
def mean_where_nothing_is_seen(rng):
    return empty_rows(rng, None)
