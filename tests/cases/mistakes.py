"""Published mistakes, each written anew: name and source to what it gives."""

from __future__ import annotations

import math

import numpy as np
from opinions import (
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

MISTAKES = {}


def conformer(rng, width, shifted=True):
    q, k, v, table, u, w, arguments = xl(rng)
    rows = position(q + w, table[distance() + L - 1])
    rows = shift((q + w) @ table[:L].T) if shifted else rows
    return softmax(((q + u) @ transposed(k) + rows) / math.sqrt(width)) @ v, arguments


@case(MISTAKES, "shift_in_encoder", of="espnet/espnet#2684")
def espnet(rng):
    return conformer(rng, D)


@case(MISTAKES, "scale_d_model", of="ZhengkunTian/OpenTransformer#25")
def open_transformer(rng):
    return conformer(rng, H * D, shifted=False)


@case(
    MISTAKES, "shift_in_encoder", "scale_d_model", of="openspeech-team/openspeech#176"
)
def openspeech(rng):
    return conformer(rng, H * D)


@case(MISTAKES, "future_is_past", of="speechbrain/speechbrain#3070")
def speechbrain(rng):
    q, k, v, table, u, w, arguments = xl(rng)
    rows = position(q + w, table[np.abs(distance()) + L - 1])
    return softmax(((q + u) @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(MISTAKES, "absolute_rows", of="wenet-e2e/wenet#1611")
def wenet(rng):
    q, k, v, table, u, w, arguments = xl(rng)
    rows = (q + w) @ table[L - 1 :].T
    return softmax(((q + u) @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(MISTAKES, "wrapped_attended", of="kimiyoung/transformer-xl#132")
def off_the_triangle(rng):
    q, k, v, table, u, w, arguments = xl(rng, rows=L, is_causal=True)
    rows = shift((q + w) @ table.T)
    return softmax(((q + u) @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(MISTAKES, "wrapped_attended", of="magenta/magenta#1486")
def magenta(rng):
    q, k, v, table, arguments = shaw(rng, scheme="relative_global_attention")
    table = arguments["rel_key"] = rng.standard_normal((L, D))
    return softmax(
        (q @ transposed(k) + shift(q @ table.T)) / math.sqrt(D)
    ) @ v, arguments


@case(MISTAKES, "two_sided_misread", of="a two-sided table given to a causal function")
def two_sided_table_of_the_past(rng):
    q, k, v, table, arguments = shaw(rng, is_causal=True)
    table = arguments["rel_key"] = rng.standard_normal((2 * L - 1, D))
    return relpos.relative_global_attention(q, k, v, table), arguments


@case(MISTAKES, "offset_0", of="huggingface/transformers#19045")
def relative_key_with_a_cache(rng):
    q, k, v, table, arguments = shaw(rng, lq=2, query_offset=L - 2)
    rows = position(q, table[np.clip(distance(2), -3, 3) + 3])
    return softmax((q @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(MISTAKES, "offset_0", of="lucidrains/rotary-embedding-torch#11")
def cached_angles(rng):
    q, k, v, arguments = rotary(rng, lq=2, query_offset=L - 2)
    return plain(turn(q, np.arange(2)), turn(k, np.arange(L)), v), arguments


@case(MISTAKES, "offset_0", of="kimiyoung/transformer-xl#59")
def memory_forgotten(rng):
    q, k, v, table, u, w, arguments = xl(rng, lq=6)
    table = arguments["rel_key"] = rng.standard_normal((2 * L - 1, D))
    rows = position(q + w, table[distance(6) + L - 1])
    return softmax(((q + u) @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(MISTAKES, "off_by_one", of="labmlai/annotated_deep_learning_paper#185")
def cut_at_the_other_end(rng):
    q, k, v, table, u, w, arguments = xl(rng)
    table = np.concatenate([table, np.zeros((1, D))])
    rows = position(q + w, table[distance() + L])
    return softmax(((q + u) @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(MISTAKES, "off_by_one", of="labmlai/annotated_deep_learning_paper#218")
def one_row_early(rng):
    q, k, _, table, arguments = shaw(rng, value=None)
    rows = position(q, table[np.clip(distance() - 1, -3, 3) + 3])
    return (q @ transposed(k) + rows) / math.sqrt(D), arguments


@case(MISTAKES, "index_wraps", of="huggingface/transformers#17026")
def past_the_configured_length(rng):
    q, k, v, table, arguments = shaw(rng, is_causal=True)
    rows = position(q, table[(distance() + 3) % 7])
    s = (q @ transposed(k) + rows) / math.sqrt(D)
    return softmax(hide(s, distance() <= 0)) @ v, arguments


@case(MISTAKES, "clip_one_early", of="gwinndr/MusicTransformer-Pytorch#20")
def a_row_too_few(rng):
    q, k, v, table, arguments = shaw(rng)
    rows = position(q, table[np.clip(distance(), -2, 2) + 3])
    return softmax((q @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(MISTAKES, "rotary_partial", of="AI-Hypercomputer/maxtext#4616")
def maxtext(rng):
    q, k, v, arguments = rotary(rng, rotary_dim=4)
    return plain(turn(q, np.arange(L)), turn(k, np.arange(L)), v), arguments


@case(MISTAKES, "rotary_exponent", of="apple/coreai-models#66")
def proportional(rng):
    q, k, v, arguments = rotary(rng, rotary_dim=4)
    own = [1e4 ** (-2 * c / D) for c in range(2)]
    q, k = (turn(x, np.arange(L), frequencies=own) for x in (q, k))
    return plain(q, k, v), arguments


@case(MISTAKES, "rotary_bfloat16", of="EleutherAI/gpt-neox#1003")
def half_precision(rng):
    q, k, v, arguments = rotary(rng)
    bits = np.float32([1e4 ** (-2 * c / D) for c in range(D // 2)]).view(np.uint32)
    own = ((bits + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    q, k = (turn(x, np.arange(L), frequencies=own.astype(float)) for x in (q, k))
    return plain(q, k, v), arguments


@case(MISTAKES, "rotary_unscaled", of="zml/zml#660")
def scaling_ignored(rng):
    own = relpos.rotary_frequencies(D, scaling=("linear", 4.0))
    q, k, v, arguments = rotary(rng, inv_freq=own)
    return plain(turn(q, np.arange(L)), turn(k, np.arange(L)), v), arguments


@case(MISTAKES, "no_rotary", of="Dao-AILab/flash-attention#288")
def length_and_heads_exchanged(rng):
    q, k, v, arguments = rotary(rng)
    heads = np.arange(H)[:, None]
    return plain(turn(q, heads), turn(k, heads), v), arguments


@case(MISTAKES, "alibi_slopes", of="ml-explore/mlx#343")
def mlx(rng):
    q, k, v, arguments = biased(rng, relpos.alibi_bias(H, L))
    slopes = np.array([2 ** (-8 * (h + 1) / H) for h in range(H)])
    bias = -slopes[:, None, None] * np.abs(distance())
    return softmax(q @ transposed(k) / math.sqrt(D) + bias) @ v, arguments


@case(MISTAKES, "no_rel_bias", of="vllm-project/vllm#48858")
def bias_thrown_away(rng):
    q, k, v, arguments = biased(rng, rng.standard_normal((H, 2 * L - 1)))
    return plain(q, k, v), arguments


@case(MISTAKES, "no_softcap", of="vllm-project/vllm#8660")
def without_a_cap(rng):
    q, k, v = qkv(rng)
    return plain(q, k, v), {"query": q, "key": k, "value": v, "softcap": 1.5}


@case(MISTAKES, "no_sinks", of="Dao-AILab/flash-attention#1895")
def without_sinks(rng):
    q, k, v = qkv(rng)
    sinks = rng.standard_normal(H)
    return plain(q, k, v), {"query": q, "key": k, "value": v, "sinks": sinks}


@case(MISTAKES, "bucket_rounding", of="ml-explore/mlx-examples#113")
def rounded_up(rng):
    weight, q, k, v, arguments = t5(rng, L, L, 16)
    bias = np.zeros((H, L, L))
    for i, j in np.ndindex(L, L):
        n, side = abs(j - i), 6 * (j > i)
        far = 3 + math.ceil(math.log(max(n, 1) / 3) / math.log(16 / 3) * 3 - 1e-12)
        bias[:, i, j] = weight[:, side + (n if n < 3 else min(far, 5))]
    return softmax(q @ transposed(k) + bias) @ v, arguments


@case(MISTAKES, "bucket_sides", of="huggingface/candle#899")
def decoder_as_encoder(rng):
    weight, q, k, v, arguments = t5(rng, L, L, 32, sides=False, is_causal=True)
    options = {"num_buckets": 12, "max_distance": 32, "bidirectional": True}
    bias = weight[:, relpos.t5_bucket(distance(), **options)]
    s = hide(q @ transposed(k) + bias, distance() <= 0)
    return softmax(s) @ v, arguments


@case(MISTAKES, "offset_0", of="lucidrains/x-transformers#10")
def bias_without_the_cache(rng):
    settings = {"sides": False, "is_causal": True, "query_offset": L - 4}
    weight, q, k, v, arguments = t5(rng, 4, L, 16, **settings)
    options = {"num_buckets": 12, "max_distance": 16, "bidirectional": False}
    bias = weight[:, relpos.t5_bucket(distance(4), **options)]
    s = hide(q @ transposed(k) + bias, distance(4, L, L - 4) <= 0)
    return softmax(s) @ v, arguments


def deberta(rng):
    q, k, v = qkv(rng)
    tables = rng.standard_normal((2, 2 * L - 1, D))
    arguments = {"query": q, "key": k, "value": v, "scale": 1 / math.sqrt(3 * D)}
    arguments |= {"rel_key": tables[0], "rel_query": tables[1]}
    return q, k, v, *tables, arguments


@case(MISTAKES, "not_transposed", of="keras-team/keras-hub DeBERTa")
def left_as_key_and_query(rng):
    q, k, v, of_key, of_query, arguments = deberta(rng)
    s = q @ transposed(k) + position(q, of_key[distance() + L - 1])
    s = s + position(k, of_query[transposed(distance()) + L - 1])
    return softmax(s / math.sqrt(3 * D)) @ v, arguments


@case(MISTAKES, "query_table_reversed", of="microsoft/DeBERTa, paper and code")
def the_other_direction(rng):
    q, k, v, of_key, of_query, arguments = deberta(rng)
    s = q @ transposed(k) + position(q, of_key[distance() + L - 1])
    s = s + transposed(position(k, of_query[distance() + L - 1]))
    return softmax(s / math.sqrt(3 * D)) @ v, arguments


@case(MISTAKES, "position_unscaled", "scale_d_model", of="chathasphere/pno-ai")
def pno_ai(rng):
    q, k, v, table, arguments = shaw(rng, is_causal=True)
    rows = position(q, table[np.clip(distance(), -3, 3) + 3])
    s = hide(q @ transposed(k) / math.sqrt(H * D) + rows, distance() <= 0)
    return softmax(s) @ v, arguments


@case(MISTAKES, "u_v_exchanged", of="Transformer-XL, by its readers")
def exchanged(rng):
    q, k, v, table, u, w, arguments = xl(rng)
    rows = position(q + u, table[distance() + L - 1])
    return softmax(((q + w) @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments


@case(MISTAKES, "softmax_over_queries", of="a wrong dim of softmax")
def over_queries(rng):
    q, k, v, table, arguments = shaw(rng)
    rows = position(q, table[np.clip(distance(), -3, 3) + 3])
    s = (q @ transposed(k) + rows) / math.sqrt(D)
    return softmax(s, axis=-2) @ v, arguments


@case(MISTAKES, "masked_after_softmax", of="a mask that multiplies weights")
def masked_late(rng):
    q, k, v, table, arguments = shaw(rng, is_causal=True)
    rows = position(q, table[np.clip(distance(), -3, 3) + 3])
    weights = softmax((q @ transposed(k) + rows) / math.sqrt(D))
    return (weights * (distance() <= 0)) @ v, arguments


@case(MISTAKES, "hidden_score_0", of="a mask that multiplies scores")
def masked_by_zeros(rng):
    q, k, v, table, arguments = shaw(rng, is_causal=True)
    rows = position(q, table[np.clip(distance(), -3, 3) + 3])
    s = (q @ transposed(k) + rows) / math.sqrt(D) * (distance() <= 0)
    return softmax(s) @ v, arguments


@case(MISTAKES, "no_rel_value", of="relative_key, which has no values")
def keys_alone(rng):
    q, k, v, table, arguments = shaw(rng, rel_value=rng.standard_normal((7, D)))
    rows = position(q, table[np.clip(distance(), -3, 3) + 3])
    return softmax((q @ transposed(k) + rows) / math.sqrt(D)) @ v, arguments
