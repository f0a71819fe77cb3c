"""More adapters for published models by their recipes: what has queries of its own."""

from __future__ import annotations

import numpy as np
from recorded import (
    WITH_ALL,
    attend,
    compare,
    families,
    join_heads,
    linear,
    module,
    split_heads,
)

from relpos import recipes, segment_ranges


def inkling(lib, case):
    """Positions meet a projection of the input that has heads of its own width."""
    flags, (q, k) = case.flags, case.core("q", "k")
    x = case.constant(case.true("in_hidden_states"))
    position_query = split_heads(x @ case.true("w_r_proj.weight").T, flags["n_head"])
    keywords = recipes.inkling(
        case["w_rel_logits_proj.proj"], flags["d_head"], window=flags.get("window")
    )
    if flags.get("log_floor"):  # full layers
        places = np.arange(k.shape[-2] - q.shape[-2], k.shape[-2])
        tau = recipes.inkling_temperature(
            places, flags["log_floor"], log_scaling_alpha=flags["log_alpha"]
        )[:, None]
        q, position_query = q * tau, position_query * tau
    query = {"position_query": case.cast(position_query)}
    yield from compare(case, attend(lib, case, case.cast(q), **keywords, **query))


def gemma3n_audio(lib, case):
    flags = case.flags
    names = ("w_per_dim_scale", "w_relative_position_embedding.pos_proj.weight")
    keywords = lib.recipes.gemma3n_audio(
        *(case[name] for name in (*names, "core_q_unscaled")),
        context_left=flags["left"],
        context_right=flags["right"],
        logit_cap=flags["cap"],
    )
    result = attend(lib, case, **keywords)
    yield "weights", result.weights, case.true("core_probs")
    yield "module", result.out.swapaxes(1, 2), case.true("out_out")


def gemma4_audio(lib, case):
    q, k, v = case["core_q_unscaled"], case["core_k_unscaled"], case["core_v"]
    flags, names = case.flags, ("w_per_dim_scale", "w_relative_k_proj.weight")
    keywords = lib.recipes.gemma4_audio(
        *(case[name] for name in names),
        q,
        chunk_size=flags["chunk"],
        context_left=flags["left"],
        context_right=flags["right"],
        logit_cap=flags["cap"],
    )
    mask = case.true("core_allowed")
    query = keywords.pop("query")
    result = lib.attention(query, k, v, mask, **keywords, **WITH_ALL)
    yield "weights", result.weights, case.true("core_probs")
    yield module(case, result.out, "post.linear")


def wavlm(lib, case):
    """The gate sees the input itself, queries and keys a projection."""
    flags, heads = case.flags, case.flags["n_head"]
    x = case.true("in_hidden_states")
    q, k, v = (
        case.cast(linear(case, x, f"{name}_proj", heads)) for name in ("q", "k", "v")
    )
    names = ("gru_rel_pos_const", "gru_rel_pos_linear.weight",
             "gru_rel_pos_linear.bias", "rel_attn_embed.weight")  # fmt: skip
    keywords = lib.recipes.wavlm(
        *(case[f"w_{name}"] for name in names),
        case.cast(x),
        max_distance=flags["max_distance"],
    )
    mask = case.true("core_allowed")
    result = lib.attention(q, k, v, mask, **keywords, **WITH_ALL)
    yield "average", result.weights.mean(1), case.true("out_mean_weights")
    yield module(case, result.out, "out_proj")


def fox(lib, case):
    """The logarithm of a gate is recorded; an identity makes a layer of it."""
    q, k, v, decay = (case[f"in_{name}"] for name in "qkvg")
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    logits = decay - np.log(1 - np.exp(decay))  # log f to what had gone to the sigmoid
    heads = logits.shape[-1]
    keywords = lib.recipes.forgetting_transformer(
        np.eye(heads, dtype=case.dtype),
        np.zeros(heads, case.dtype),
        case.cast(logits),
        window_size=case.flags.get("window"),
    )
    scale = case.flags.get("scale")
    result = lib.attention(q, k, v, scale=scale, **keywords, **WITH_ALL)
    yield "weights", result.weights, case.true("core_probs")
    yield "out", result.out.swapaxes(1, 2), case.true("out_out")


def zipformer(lib, case):
    """Time first; the input goes to queries, keys and positions, and to values."""
    flags, heads = case.flags, case.flags["n_head"]
    x = case.true("in_x").swapaxes(0, 1)
    packed = x @ case.true("w_in_proj.weight").T + case.true("w_in_proj.bias")
    content = heads * flags["d_head"]
    q, k, p = (
        case.cast(split_heads(packed[..., a:b], heads))
        for a, b in ((0, content), (content, 2 * content), (2 * content, None))
    )
    v = case.cast(linear(case, x, "value.in_proj", heads))
    for name, cached in (("k", "in_cached_key"), ("v", "in_cached_val")):
        if cached in case:
            past = split_heads(case[cached].swapaxes(0, 1), heads)
            k = np.concatenate([past, k], axis=-2) if name == "k" else k
            v = np.concatenate([past, v], axis=-2) if name == "v" else v
    keywords = lib.recipes.zipformer(
        case["w_linear_pos.weight"], heads, q.shape[-2], k.shape[-2],
        length_factor=flags["length_factor"],
    )  # fmt: skip
    mask = case.true("core_allowed")
    result = lib.attention(q, k, v, mask, position_query=p, **keywords, **WITH_ALL)
    yield "weights", result.weights, case.true("core_probs")
    _, y, want = module(case, result.out, "value.out_proj")
    yield "module", y.swapaxes(0, 1), want


def zip_table(lib, case):
    for name in case.arrays:
        dim, length, factor = (part.lstrip("dnlf") for part in name.split("_")[1:])
        got = recipes.zipformer_positions(
            int(length), int(dim), length_factor=float(factor), dtype=case.dtype
        )
        yield name, got, case.true(name)


def sam(lib, case):
    flags, heads = case.flags, case.flags["n_head"]
    x = case.true("in_hidden_states")
    x = x.reshape(len(x), -1, x.shape[-1])
    packed = linear(case, x, "qkv", 3 * heads)
    q, k, v = (case.cast(part) for part in np.split(packed, 3, axis=-3))
    keywords = lib.recipes.sam(case["w_rel_pos_h"], case["w_rel_pos_w"], flags["grid"])
    result = lib.attention(q, k, v, **keywords, **WITH_ALL)
    yield from compare(case, result, v)
    _, y, want = module(case, result.out, "proj")
    yield "module", y.reshape(want.shape), want


def layoutlmv3(lib, case):
    """Upstream gives the biases no gradient."""
    flags = case.flags
    names = ("rel_pos_bias", "rel_pos_x_bias", "rel_pos_y_bias")
    biases = (case.constant(case.get(f"w_{name}.weight")) for name in names)
    keywords = lib.recipes.layoutlmv3(
        *biases,
        case.true("in_position_ids"),
        case.true("in_bbox"),
        flags["d_head"],
        max_rel_pos=flags["bins"][1],
        max_rel_2d_pos=flags["bins2d"][1],
    )
    result = attend(lib, case, **keywords)
    yield "weights", result.weights, case.true("core_probs")
    yield "module", join_heads(result.out), case.true("out_out")


def llama4(lib, case):
    """Chunks on layers with rotary encoding, a temperature on those without."""
    flags, (q, k) = case.flags, case.core("q", "k")
    if flags["mask"] == "chunked":
        keywords = recipes.llama4(
            q.shape[-2], k.shape[-2], attention_chunk_size=flags["chunk"]
        )
        yield "offset", keywords["query_offset"], k.shape[-2] - q.shape[-2]
    else:
        keywords = {"enable_gqa": True}
        x = case.constant(case.true("in_hidden_states"))
        config, places = flags["config"], np.arange(q.shape[-2])
        tau = recipes.llama4_temperature(
            places, floor_scale=config["floor_scale"], attn_scale=config["attn_scale"]
        )
        query = linear(case, x, "q_proj", flags["n_head"]) * tau[:, None]
        yield "query", case.cast(case.constant(query)), case.true("core_q")
    yield from compare(case, attend(lib, case, **keywords))


def longt5_local(lib, case):
    """Without a mask whole blocks are seen, and keys of zeros beyond the ends."""
    flags, (q, k, v) = case.flags, case.core("q", "k", "v")
    radius, length = flags["radius"], q.shape[-2]
    keywords = recipes.longt5_local(
        case["w_relative_attention_bias.weight"],
        radius,
        length=None if flags["masked"] else length,
        max_distance=flags["max_distance"],
    )
    if flags["masked"]:
        result = attend(lib, case, **keywords)
        yield from compare(case, result)
    else:
        block = radius + 1
        behind = (-length) % block + block
        before, after = (np.zeros((*k.shape[:-2], n, k.shape[-1]), case.dtype)
                         for n in (block, behind))  # fmt: skip
        k, v = (np.concatenate([before, x, after], axis=-2) for x in (k, v))
        result = lib.attention(q, k, v, **keywords, **WITH_ALL)
    yield module(case, result.out, "o")


def packed(lib, case):
    """Documents whose positions start again, or blocks that see all of themselves."""
    q, k, v = case.core("q", "k", "v")
    if "in_position_ids" in case:
        documents = np.cumsum(case.true("in_position_ids") == 0, axis=-1)
        rules = {"key_ranges": segment_ranges(documents), "is_causal": True}
    else:
        blocks = case.true("in_block_ids")
        same = (blocks[:, :, None] == blocks[:, None, :]) & (blocks[:, None, :] >= 0)
        last = np.where(same, np.arange(blocks.shape[-1]) + 1, 0).max(-1)
        end = np.maximum(last, np.arange(blocks.shape[-1]) + 1)
        rules = {"key_ranges": np.stack([0 * end, end], axis=-1)}
    yield from compare(
        case, lib.attention(q, k, v, enable_gqa=True, **rules, **WITH_ALL)
    )


FAMILIES = families(vars(), "lib", "case")
