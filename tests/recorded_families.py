"""Adapters for all other families: tables of vectors, biases, helpers, encodings."""

from __future__ import annotations

import numpy as np
from recorded import (
    WITH_ALL,
    compare,
    diagonals,
    join_heads,
    linear,
    logits_alone,
    split_heads,
    visible_scores,
)
from recorded_xl import t5_bucket


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
        slopes = 2.0 ** -np.array([2, 4, 6, 8, 1, 3])  # 6 heads: those of 4, 2 of 8
        bias = case.cast(-slopes[:, None] * np.abs(np.arange(1 - lk, lk)))
        result = lib.attention(q, k, v, rel_bias=bias, **keywords)
    elif case.flags["relative_positions_buckets"]:
        relative = np.arange(1 - lq, lk)
        count = case.flags["relative_positions_buckets"]
        keywords |= {"buckets": t5_bucket(relative, count, limit)}
        table = case["w_relative_attention_bias.weight"].T
        result = lib.attention(
            q, k, v, rel_bias=table, min_relative_position=1 - lq, **keywords
        )
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
    keywords = {"rel_key": table[::-1]}
    if case.flags["position_embedding_type"] == "relative_key_query":
        keywords["rel_query"] = table[::-1]
    mask = case.get("in_attention_mask")
    if case.flags["past_len"]:
        keywords["labels"] = (
            np.arange(lk)[None] + case.flags["max_position_embeddings"] - lk
        )
    yield from compare(case, lib.attention(q, k, v, mask, **keywords, **WITH_ALL))


def deberta_rows(relative, span):
    """Both directions use the row of query minus key; buckets count key minus query."""
    first, distance = diagonals(relative)
    return {
        "buckets": np.clip(distance + span, 0, 2 * span - 1),
        "min_relative_position": first,
    }


def deb2(lib, case):
    q, k, v = case.core("q", "k", "v")
    span = case.flags["position_buckets"]
    span = span if span > 0 else case.flags["max_relative_positions"]
    kinds = case.flags["pos_att_type"]
    keywords = deberta_rows(case.true("out_relative_pos"), span)
    keywords |= {"scale": (q.shape[-1] * (1 + len(kinds))) ** -0.5}
    if "c2p" in kinds:
        keywords["rel_key"] = case["core_pos_key"]
    if "p2c" in kinds:
        keywords["rel_query"] = case["core_pos_query"]
    mask = case.true("core_allowed")
    yield from compare(case, lib.attention(q, k, v, mask, **keywords, **WITH_ALL))


def deb1_projected(case):
    """q, k, v, pos_key, pos_query of DeBERTa v1 in float64, and its span."""
    heads, x = case.flags["n_head"], case.true("in_hidden_states")
    packed = split_heads(x @ case.true("w_in_proj.weight").T, heads)
    q, k, v = np.split(packed, 3, axis=-1)
    q = q + split_heads(case.true("w_q_bias")[None], heads)
    v = v + split_heads(case.true("w_v_bias")[None], heads)
    limit = case.flags["max_relative_positions"]
    span = min(x.shape[1], limit)
    rows = case.true("in_rel_embeddings")[limit - span : limit + span]
    return (
        q,
        k,
        v,
        *(linear(case, rows, n, heads) for n in ("pos_proj", "pos_q_proj")),
        span,
    )


def deb1(lib, case):
    q, k, v, pos_key, pos_query, span = deb1_projected(case)
    lq = q.shape[-2]
    relative = np.arange(lq)[:, None] - np.arange(lq)
    keywords = deberta_rows(relative, span) | WITH_ALL
    keywords |= {
        "scale": (3 * q.shape[-1]) ** -0.5,
        "attn_mask": case.true("core_allowed"),
    }
    if case.flags["talking_head"]:
        yield from talking_heads(lib, case, q, k, v, pos_key, pos_query, keywords)
        return
    tables = {"rel_key": case.cast(pos_key), "rel_query": case.cast(pos_query)}
    result = lib.attention(*(case.cast(x) for x in (q, k, v)), **tables, **keywords)
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

    tables = {"rel_key": wide(pos_key), "rel_query": wide(pos_query, before)}
    result = lib.attention(wide(q, before), wide(k), wide(v), **tables, **keywords)
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
    slopes = alibi[0, :, 0, 1] - alibi[0, :, 0, 0]
    bias = slopes[:, None] * np.arange(1 - k.shape[-2], k.shape[-2]).astype(case.dtype)
    result = lib.attention(q, k, v, rel_bias=bias, **keywords)
    yield "out by offset", result.out, case.true("core_ctx")


def labml_alibi(lib, case):
    """+slope * (key + 1) below the diagonal: -slope * distance, but for lse."""
    heads, x = case.flags["n_head"], case.true("in_x").swapaxes(0, 1)
    names = ("query.linear", "key.linear", "value.linear")
    q, k, v = (linear(case, x, name, heads) for name in names)
    biases = case.true("out_biases")
    slopes, length = biases[1, 1] - biases[1, 0], q.shape[-2]
    bias = case.cast(slopes[:, None] * np.arange(1 - length, length))
    result = lib.attention(
        *(case.cast(y) for y in (q, k, v)), rel_bias=bias, is_causal=True, **WITH_ALL
    )
    yield "weights", result.weights, case.true("core_probs")
    y = join_heads(result.out) @ case.true("w_output.weight").T
    y = (y + case.true("w_output.bias")).swapaxes(0, 1)
    yield "module", case.cast(y), case.true("out_out")


def swin(lib, case):
    """Counts query minus key: the table upside down."""
    heads, labels = case.flags["n_head"], lib.grid_labels(case.flags["window"])
    table = case["w_relative_position_bias_table"][::-1].T
    index = table.shape[-1] - 1 - np.asarray(labels)
    yield "index", index, case.true("out_relative_position_index")
    packed = np.split(linear_packed(case), 3, axis=-1)
    q, k, v = (split_heads(y, heads) for y in packed)
    inputs = (case.cast(y) for y in (q, k, v))
    result = lib.attention(*inputs, rel_bias=table, labels=labels, **WITH_ALL)
    yield from compare(case, result, v)
    y = join_heads(result.out) @ case.true("w_proj.weight").T + case.true("w_proj.bias")
    yield "module", case.cast(y), case.true("out_out")


def linear_packed(case):
    return case.true("in_x") @ case.true("w_qkv.weight").T + case.true("w_qkv.bias")


def botnet(lib, case):
    """Position scores alone: zero keys leave q.(height + width) as the logits."""
    q, tables = case["in_q"], (case.true("w_rel_height"), case.true("w_rel_width"))
    table = (tables[0][:, None] + tables[1][None]).reshape(-1, q.shape[-1])
    labels = lib.grid_labels(case.flags["grid"])
    keywords = {"rel_key": case.cast(table), "labels": labels}
    yield from logits_alone(lib, case, q, case.true("out_logits"), **keywords)


FAMILIES = {
    function.__name__: function
    for function in (
        onmt,
        t2t_shaw,
        luci_conformer,
        bert_rel,
        deb2,
        deb1,
        t2t_music,
        seed_rga,
        gwinn,
        pno,
        bloom,
        labml_alibi,
        swin,
        botnet,
    )
}
