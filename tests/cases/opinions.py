"""Attention as others write it: published mistakes, and other conventions.

Each case is written anew after the report that it names, with nothing of relpos except
what a call needs: a function of a Generator to (mine, arguments of diagnose).
"""

from __future__ import annotations

import math

import numpy as np

import relpos

B, H, L, D = 2, 5, 9, 8


#: Cases by name and source: the names of the differences, and the function.
CONVENTIONS, MISTAKES = {}, {}


def case(kind, *names, of):
    """Add a case to the mistakes or the conventions, by its names and source."""

    def add(function):
        kind[f"{'+'.join(names)}: {of}"] = (names, function)
        return function

    return add


def qkv(rng, lq=L, lk=L, heads=H):
    shapes = ((B, H, lq, D), (B, heads, lk, D), (B, heads, lk, D))
    return [rng.standard_normal(shape) for shape in shapes]


def distance(lq=L, lk=L, before=0):
    return np.arange(lk) - (np.arange(lq)[:, None] + before)


def transposed(x):
    return np.swapaxes(x, -1, -2)


def softmax(s, axis=-1):
    e = np.exp(s - s.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def position(q, rows_of_pairs):
    """q_i . T[pair], of T[rows] (Lq, Lk, D)."""
    return np.einsum("...id,ijd->...ij", q, rows_of_pairs)


def hide(s, see):
    return np.where(see, s, -1e9)


def shift(x):
    """Transformer-XL's: a column of zeros in front, and the rows read anew."""
    *batch, lq, lk = x.shape
    padded = np.concatenate([np.zeros((*batch, lq, 1)), x], axis=-1)
    return padded.reshape(*batch, lk + 1, lq)[..., 1:, :].reshape(*batch, lq, lk)


def xl(rng, rows=2 * L - 1, lq=L, lk=L, **settings):
    """Inputs of Transformer-XL: q, k, v, table, u, v and the arguments of diagnose."""
    q, k, v = qkv(rng, lq, lk)
    table = rng.standard_normal((rows, D))
    u, w = rng.standard_normal((2, H, D))
    arguments = {"query": q, "key": k, "value": v, "rel_key": table}
    arguments |= {"pos_bias_u": u, "pos_bias_v": w}
    arguments |= {"scheme": "transformer_xl_attention", **settings}
    return q, k, v, table, u[:, None], w[:, None], arguments


def shaw(rng, k=3, lq=L, lk=L, **settings):
    q, key, v = qkv(rng, lq, lk)
    table = rng.standard_normal((2 * k + 1, D))
    arguments = {"query": q, "key": key, "value": v, "rel_key": table}
    return q, key, v, table, arguments | {"scheme": "shaw_attention", **settings}


def biased(rng, bias, lq=L, lk=L, **settings):
    q, k, v = qkv(rng, lq, lk)
    return q, k, v, {"query": q, "key": k, "value": v, "rel_bias": bias, **settings}


def turn(x, at, *, base=1e4, width=D, pairs=False, frequencies=None):
    """Rotary, a pair at a time."""
    out = x.copy()
    if frequencies is None:
        frequencies = [base ** (-2 * c / width) for c in range(width // 2)]
    for c, frequency in enumerate(frequencies):
        a, b = (2 * c, 2 * c + 1) if pairs else (c, len(frequencies) + c)
        cos, sin = np.cos(at * frequency), np.sin(at * frequency)
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., b] * cos + x[..., a] * sin
    return out


def rotary(rng, lq=L, lk=L, **settings):
    q, k, v = qkv(rng, lq, lk)
    arguments = {"query": q, "key": k, "value": v, "scheme": "rotary", **settings}
    return q, k, v, arguments


def plain(q, k, v, scale=None):
    scale = 1 / math.sqrt(D) if scale is None else scale
    return softmax(q @ transposed(k) * scale) @ v


def t5(rng, lq=L, lk=L, reach=9, sides=True, **settings):
    """T5 with 12 buckets up to a distance of 9; its weight and the arguments."""
    weight = rng.standard_normal((H, 12))
    r = np.arange(1 - lk, lk)
    options = {"num_buckets": 12, "max_distance": reach, "bidirectional": sides}
    buckets = relpos.t5_bucket(r, **options)
    arguments = biased(rng, weight, lq, lk, buckets=buckets, scale=1.0, **settings)
    return weight, *arguments


# ---- conventions ---------------------------------------------------------------------


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


# ---- mistakes ------------------------------------------------------------------------


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
