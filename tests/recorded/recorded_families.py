"""Adapters for all other families: tables of vectors, biases, helpers, encodings."""

from __future__ import annotations

import numpy as np
from recorded import (
    WITH_ALL,
    attend,
    compare,
    families,
    join_heads,
    linear,
    logits_alone,
    module,
    split_heads,
    visible_scores,
)

from relpos import recipes


def hidden_as(case, fill):
    """A float mask with a finite fill, as upstreams that never write -inf have it."""
    return case.cast(np.where(case.true("core_allowed"), 0.0, fill))


def with_cache(case, name):
    """Keys or values: what a cache holds, then those of this step."""
    if f"core_{name}" in case:
        return case[f"core_{name}"]
    return np.concatenate([case[f"in_past_{name}"], case[f"core_{name}_new"]], axis=-2)


# ---- clipped and unclipped tables of vectors ----------------------------------------


def onmt(lib, case):
    """OpenNMT: Shaw with one table for keys and values, T5 bias, ALiBi.

    Its finite fill replaces scores, so a query without keys has no score of its own.
    """
    q, k, v = case["core_q_unscaled"], with_cache(case, "k"), with_cache(case, "v")
    q = q * case.cast(case.true("core_allowed").any(-1)[..., None] * 1.0)
    lq, lk, limit = q.shape[-2], k.shape[-2], case.flags["max_relative_positions"]
    keywords = {"attn_mask": hidden_as(case, -1e18), "query_offset": lk - lq} | WITH_ALL
    if limit == -2:
        bias = lib.alibi_bias(case.flags["n_head"], lk, dtype=case.dtype)
        result = lib.attention(q, k, v, rel_bias=bias, **keywords)
    elif case.flags["relative_positions_buckets"]:
        table = case["w_relative_attention_bias.weight"]
        keywords |= recipes.t5(table, max_distance=limit) | {"scale": None}
        result = lib.attention(q, k, v, **keywords)
    else:
        table = case["w_relative_positions_embeddings.weight"]
        if case.flags["past_len"] and lq > 1:  # every query takes the last position
            row = np.clip(np.arange(lk) - (lk - 1), -limit, limit) + limit
            keywords |= {"labels": row[None]}
        result = lib.shaw_attention(q, k, v, table, table, **keywords)
        if not case.flags["past_len"]:
            yield from visible_scores(case, lib.shaw_scores(q, k, table))
    yield from compare(case, result)


def t2t_shaw(lib, case):
    q, k, v = case["in_q"], case["in_k"], case["in_v"]
    mask = case.get("in_bias")
    tables = (case[f"w_relative_positions_{name}"] for name in ("keys", "values"))
    result = lib.shaw_attention(q, k, v, *tables, attn_mask=mask, scale=1.0, **WITH_ALL)
    yield "weights", result.weights, case.true("core_probs")
    yield "out", result.out, case.true("out_out")


def luci_conformer(lib, case):
    """Counts query minus key: the table upside down."""
    q, k, v = case.core("q", "k", "v")
    table = case["w_rel_pos_emb.weight"][::-1]
    yield from visible_scores(case, lib.shaw_scores(q, k, table))
    yield from compare(case, lib.shaw_attention(q, k, v, table, **WITH_ALL))


def bert_rel(lib, case):
    """Counts query minus key; with a cache every query takes the last position."""
    q, k, v = case["core_q"], with_cache(case, "k"), with_cache(case, "v")
    table, lk = case["w_distance_embedding.weight"], k.shape[-2]
    both = case.flags["position_embedding_type"] == "relative_key_query"
    keywords = recipes.bert(table, key_query=both)
    mask = case.get("in_attention_mask")
    if case.flags["past_len"]:
        del keywords["buckets"]
        row = np.arange(lk)[::-1] + case.flags["max_position_embeddings"] - 1
        keywords["labels"] = row[None]
    yield from compare(case, lib.attention(q, k, v, mask, **keywords, **WITH_ALL))


def deb2(lib, case):
    flags, kinds = case.flags, case.flags["pos_att_type"]
    farthest, count = flags["max_relative_positions"], flags["position_buckets"]
    keywords = recipes.deberta(
        case["core_pos_key"] if "c2p" in kinds else None,
        case["core_pos_query"] if "p2c" in kinds else None,
        max_position=farthest if count > 0 else None,
    )
    yield from compare(case, attend(lib, case, **keywords))
    distance = -lib.relative_positions(case.true("core_q").shape[-2])
    if count > 0:
        sizes = {"bucket_size": count, "max_position": farthest}
        distance = lib.deberta_bucket(distance, **sizes)
    yield "bucket", distance, case.true("out_relative_pos")


def deb1_projected(case):
    """q, k, v, pos_key, pos_query of DeBERTa v1 in float64."""
    heads, x = case.flags["n_head"], case.true("in_hidden_states")
    packed = split_heads(x @ case.true("w_in_proj.weight").T, heads)
    q, k, v = np.split(packed, 3, axis=-1)
    q = q + split_heads(case.true("w_q_bias")[None], heads)
    v = v + split_heads(case.true("w_v_bias")[None], heads)
    limit = case.flags["max_relative_positions"]
    span = min(x.shape[1], limit)
    rows = case.true("in_rel_embeddings")[limit - span : limit + span]
    tables = (linear(case, rows, n, heads) for n in ("pos_proj", "pos_q_proj"))
    return q, k, v, *tables


def deb1(lib, case):
    q, k, v, pos_key, pos_query = deb1_projected(case)
    keywords = WITH_ALL | {"attn_mask": case.true("core_allowed")}
    keywords |= recipes.deberta(case.cast(pos_key), case.cast(pos_query))
    if case.flags["talking_head"]:
        yield from talking_heads(lib, case, q, k, v, pos_key, pos_query, keywords)
        return
    result = lib.attention(*(case.cast(x) for x in (q, k, v)), **keywords)
    yield from compare(case, result, v)
    yield "context", case.cast(join_heads(result.out)), case.true("out_context")


def talking_heads(lib, case, q, k, v, pos_key, pos_query, keywords):
    """Logits mixed over heads are one wide head each; weights mixed after, linearly."""
    before = case.true("w_head_logits_proj.weight")
    after = case.true("w_head_weights_proj.weight")
    batch, heads = q.shape[:2]

    def wide(x, *mix):
        """All heads of x side by side, for every mixed head: (B, H, L, H * D)."""
        x = np.broadcast_to(
            x[..., None, :, :, :], (*x.shape[:-3], heads, *x.shape[-3:])
        )
        for factors in mix:
            x = x * factors[:, :, None, None]
        return case.cast(join_heads(x))

    keywords |= {"rel_key": wide(pos_key), "rel_query": wide(pos_query, before)}
    result = lib.attention(wide(q, before), wide(k), wide(v), **keywords)
    yield "weights", result.weights, case.true("core_probs")
    parts = result.out.reshape(batch, heads, result.out.shape[-2], heads, -1)
    mixed = np.einsum("gh,bhigd->bgid", after, parts)
    yield "context", case.cast(join_heads(mixed)), case.true("out_context")


# ---- Music Transformer --------------------------------------------------------------


def t2t_music(lib, case):
    q, k, v = case["in_q"], case["in_k"], case["in_v"]
    table, rows = case["w_key_relative_embeddings"], case.flags["max_relative_position"]
    keywords = {"scale": 1.0, "beyond": "zero"} | WITH_ALL
    if "in_bias" not in case and case.flags["masked"]:
        yield from t2t_music_wrapped(lib, case, q, k, v, table)
        return
    if case.flags["masked"]:
        keywords |= {"attn_mask": case["in_bias"], "min_relative_position": 1 - rows}
    if "w_value_relative_embeddings" in case:
        keywords["rel_value"] = case["w_value_relative_embeddings"]
    result = lib.attention(q, k, v, rel_key=table, **keywords)
    yield "weights", result.weights, case.true("core_probs")
    yield "out", result.out, case.true("out_out")


def t2t_music_wrapped(lib, case, q, k, v, table):
    """No mask: wrapped scores count, and weights above the diagonal wrap back."""
    length = q.shape[-2]
    mask = lib.rel_shift(np.einsum("bhid,rd->bhir", q, table[-length:]))
    result = lib.attention(q, k, v, mask, scale=1.0, **WITH_ALL)
    yield "weights", result.weights, case.true("core_probs")
    by_row = lib.unskew(result.weights, is_causal=True)
    moved = by_row @ case["w_value_relative_embeddings"][-length:]
    yield "out", result.out + moved, case.true("out_out")


def seed_rga(lib, case):
    q, k, v = case.core("q", "k", "v")
    table = case["w_Er"]
    shifted = lib.skew(case["core_rel_raw"], is_causal=True)
    yield "skewed", shifted, case.true("core_rel_shifted")
    yield from compare(case, lib.relative_global_attention(q, k, v, table, **WITH_ALL))
    yield from visible_scores(case, lib.skewed_scores(q, k, table, is_causal=True))


def gwinn(lib, case):
    """Without a causal mask, keys in the future have no position term."""
    q, (k, v) = case["core_q_unscaled"], case.core("k", "v")
    table = case["w_Er"]
    keywords = {"attn_mask": case.true("core_allowed")} | WITH_ALL
    if case.flags["mask"] == "none":
        origin = {"min_relative_position": 1 - len(table), "beyond": "zero"}
        result = lib.attention(q, k, v, rel_key=table, **origin, **keywords)
    else:
        result = lib.relative_global_attention(q, k, v, table, **keywords)
    yield "average", result.weights.mean(1), case.true("out_avg_weights")
    yield from visible_scores(case, lib.skewed_scores(q, k, table, is_causal=True))
    yield from compare(case, result)


def pno(lib, case):
    """Content over sqrt(d_model), position not scaled at all."""
    q, k, v = case.core("q", "k", "v")
    scale = case.flags["d_model"] ** -0.5
    table = case.cast(case.true("in_Er") / scale)
    yield from compare(
        case, lib.relative_global_attention(q, k, v, table, scale=scale, **WITH_ALL)
    )


# ---- biases and labels --------------------------------------------------------------


def bloom(lib, case):
    """BLOOM adds slope * key position, which only a mask says with the same lse."""
    heads, x = case.flags["n_head"], case.true("in_hidden_states")
    packed = linear(case, x, "query_key_value", heads)
    q, k, v = np.split(packed, 3, axis=-1)
    if "in_past_k" in case:
        past = [case.true("in_past_k").swapaxes(-1, -2), case.true("in_past_v")]
        past = (y.reshape(len(x), heads, *y.shape[-2:]) for y in past)
        k, v = (np.concatenate(z, axis=-2) for z in zip(past, (k, v), strict=True))
    alibi = case["out_alibi"].reshape(len(x), heads, 1, -1)
    q, k, v = (case.cast(y) for y in (q, k, v))
    offset = k.shape[-2] - q.shape[-2]
    keywords = {"is_causal": True, "query_offset": offset} | WITH_ALL
    yield from compare(case, lib.attention(q, k, v, alibi, **keywords))
    bias = lib.alibi_bias(heads, k.shape[-2], dtype=case.dtype)
    result = lib.attention(q, k, v, rel_bias=bias, **keywords)
    yield "out by offset", result.out, case.true("core_ctx")


def labml_alibi(lib, case):
    """+slope * (key + 1) below the diagonal: -slope * distance, but for lse."""
    heads, x = case.flags["n_head"], case.true("in_x").swapaxes(0, 1)
    names = ("query.linear", "key.linear", "value.linear")
    q, k, v = (linear(case, x, name, heads) for name in names)
    bias = lib.alibi_bias(heads, q.shape[-2], dtype=case.dtype)
    result = lib.attention(
        *(case.cast(y) for y in (q, k, v)), rel_bias=bias, is_causal=True, **WITH_ALL
    )
    yield "weights", result.weights, case.true("core_probs")
    _, y, want = module(case, result.out, "output")
    yield "module", y.swapaxes(0, 1), want


def swin(lib, case):
    """Counts query minus key: the table upside down."""
    heads, window = case.flags["n_head"], case.flags["window"]
    table = case["w_relative_position_bias_table"]
    keywords = recipes.swin(table, window) | WITH_ALL
    index = case.true("out_relative_position_index")
    yield "index", keywords["labels"], index
    yield "labels", len(table) - 1 - np.asarray(lib.grid_labels(window)), index
    packed = linear(case, case.true("in_x"), "qkv", 3 * heads)
    q, k, v = np.split(packed, 3, axis=-3)
    inputs = (case.cast(y) for y in (q, k, v))
    result = lib.attention(*inputs, **keywords)
    yield from compare(case, result, v)
    yield module(case, result.out, "proj")


def botnet(lib, case):
    """Position scores alone: zero keys leave q.(height + width) as the logits."""
    tables, grid = (case["w_rel_height"], case["w_rel_width"]), case.flags["grid"]
    keywords = recipes.botnet(*tables, grid)
    yield "labels", keywords["labels"], lib.grid_labels(grid)
    logits = case.true("out_logits")
    yield from logits_alone(lib, case, case["in_q"], logits, **keywords)


FAMILIES = families(vars(), "lib", "case")
