"""Adapters for Transformer-XL and its relatives: u, v and a projected table."""

from __future__ import annotations

import numpy as np
from recorded import (
    WITH_ALL,
    compare,
    families,
    join_heads,
    linear,
    split_heads,
    visible_scores,
)

from relpos import recipes


def attends_future(case):
    """Return True if a pair above the diagonal of the last Lq queries is visible."""
    lq, lk = case.true("core_q").shape[-2], case.true("core_k").shape[-2]
    future = np.triu(np.ones((lq, lk), bool), lk - lq + 1)
    return bool((case.true("core_allowed") & future).any())


def through_rel_shift(lib, case, scale):
    """Wrapped entries above the diagonal are data here: skew the scores, add them."""
    q, k, v, r, u, w = case.core("q", "k", "v", "r", "u", "vb")
    raw = np.einsum("...hid,...hrd->...hir", q + w[:, None], r)
    yield "raw", raw, case.true("core_rel_raw")
    yield "shifted", lib.rel_shift(case["core_rel_raw"]), case.true("core_rel_shifted")
    mask = np.where(case.true("core_allowed"), scale * lib.rel_shift(raw), -np.inf)
    yield from compare(
        case, lib.attention(q, k, v, case.cast(mask), pos_bias_u=u, **WITH_ALL)
    )


def _causal_or_wrapped(lib, case):
    q, k, v, r, u, w = case.core("q", "k", "v", "r", "u", "vb")
    if attends_future(case):
        yield from through_rel_shift(lib, case, q.shape[-1] ** -0.5)
        return
    mask = case.true("core_allowed")
    yield from compare(
        case,
        lib.transformer_xl_attention(
            q, k, v, r, u, w, attn_mask=mask, is_causal=True, **WITH_ALL
        ),
    )
    yield from visible_scores(case, lib.transformer_xl_scores(q, k, r, u, w))


def xl_partial(lib, case):
    if "core_q" in case:
        yield from _causal_or_wrapped(lib, case)
    else:
        yield from _xl_fully_masked(lib, case)


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return scaled * weight + bias


def _xl_fully_masked(lib, case):
    """Upstream gives NaN where relpos gives 0 and lse -inf; other rows agree."""
    heads, x = case.flags["n_head"], case.true("in_w").swapaxes(0, 1)
    q, k, v = np.split(x @ case.true("w_qkv_net.weight").T, 3, axis=-1)
    r = linear(case, case.true("in_r").swapaxes(0, 1), "r_net", heads)
    q, k, v, r = (
        case.cast(y) for y in (*(split_heads(y, heads) for y in (q, k, v)), r)
    )
    u, w = case["in_r_w_bias"], case["in_r_r_bias"]
    mask = case.true("core_allowed")
    result = lib.transformer_xl_attention(
        q, k, v, r, u, w, attn_mask=mask, is_causal=True, **WITH_ALL
    )
    y = x + join_heads(result.out) @ case.true("w_o_net.weight").T
    norm = [case.true(f"w_layer_norm.{name}") for name in ("weight", "bias")]
    y = layer_norm(y, *norm, case.flags["ln_eps"]).swapaxes(0, 1)
    want = case.true("out_out")
    blank = np.isnan(want).any((1, 2))
    yield "module", y[~blank].astype(case.dtype), want[~blank]
    yield "blank rows", result.out[:, :, blank], np.zeros_like(q[:, :, blank])
    yield "their lse", np.isneginf(result.lse).all((0, 1)), blank


def xl_learnable(lib, case):
    q, k, v = case.core("q", "k", "v")
    table, scale = case["in_r_emb"].swapaxes(0, 1), q.shape[-1] ** -0.5
    yield from compare(
        case,
        lib.attention(
            q, k, v, is_causal=True, query_offset=k.shape[-2] - q.shape[-2],
            rel_key=table, min_relative_position=1 - table.shape[-2],
            rel_bias=case["in_r_bias"].T * case.dtype.type(scale),
            pos_bias_u=case["in_r_w_bias"], **WITH_ALL,
        ),
    )  # fmt: skip


def xlnet(lib, case):
    """Row p is relative position p - Lk; `uni` wraps without Transformer-XL's zero."""
    q, k, v, r, u, w = case.core("q", "k", "v", "r", "u", "vb")
    lq, lk, scale = q.shape[-2], k.shape[-2], q.shape[-1] ** -0.5
    if attends_future(case) and case.flags["attn_type"] == "uni":
        raw = np.einsum("bhid,bhrd->bhir", q + w[:, None], r)
        first = np.eye(lq, k=1) @ raw[..., :1]  # of the next row, where zeros were
        shifted = lib.rel_shift(raw[..., 1:]) + first * np.eye(lq, lk, lk - lq + 1)
        mask = case.cast(scale * shifted)
        yield from compare(case, lib.attention(q, k, v, mask, pos_bias_u=u, **WITH_ALL))
        return
    keywords = recipes.xlnet(lq, lk, r, u, w)
    yield from compare(case, lib.attention(q, k, v, **keywords, **WITH_ALL))


def labml_rel(lib, case):
    q, k, v = case.core("q", "k", "v")
    scale = case.dtype.type(q.shape[-1] ** -0.5)
    yield from compare(
        case,
        lib.attention(
            q, k, v, case.true("core_allowed"),
            query_offset=k.shape[-2] - q.shape[-2],
            rel_key=case["w_key_pos_embeddings"].swapaxes(0, 1),
            rel_bias=case["w_key_pos_bias"].T * scale,
            pos_bias_u=case["w_query_pos_bias"],
            min_relative_position=-case.flags["P"], **WITH_ALL,
        ),
    )  # fmt: skip


def conf(lib, case):
    """Conformer: both directions, Transformer-XL's table, or no shift at all."""
    q, k, v, r, u, w = case.core("q", "k", "v", "r", "u", "vb")
    if "in_cache_k" in case:
        k, v = (
            np.concatenate([case[f"in_cache_{n}"], x], -2)
            for n, x in zip("kv", (k, v), strict=True)
        )
    variant, mask, lk = case.flags["variant"], case.true("core_allowed"), k.shape[-2]
    if variant == "legacy":
        yield from _causal_or_wrapped(lib, case)
        return
    keywords = {"attn_mask": mask, "pos_bias_u": u, "pos_bias_v": w} | WITH_ALL
    if variant == "noshift":
        labels = np.arange(lk, dtype=np.int32)[None]
        result = lib.attention(q, k, v, rel_key=r, labels=labels, **keywords)
    elif variant.endswith("zerotriu"):
        origin = {"min_relative_position": 1 - lk, "beyond": "zero"}
        result = lib.attention(q, k, v, rel_key=r[:, :lk], **origin, **keywords)
    else:
        result = lib.transformer_xl_attention(q, k, v, r, **keywords)
        scores = lib.transformer_xl_scores(q, k, r, u, w)
        yield from visible_scores(case, scores)
    if variant == "new":
        yield (
            "skewed",
            lib.skew(case["core_rel_raw"], is_causal=False),
            case.true("core_rel_shifted"),
        )
    yield from compare(case, result)


def sbrain(lib, case):
    """Scaled by the embedding; projections packed by whether q, k and v are equal."""
    heads, weight = case.flags["n_head"], case.true("w_in_proj_weight")
    x = case.true("in_x")
    if case.flags["qkv_same_tensor"]:
        q, k, v = np.split(split_heads(x @ weight.T, heads), 3, axis=-1)
    else:
        y = case.true("in_y")
        parts = zip((x, y, y), np.split(weight, 3), strict=True)
        q, k, v = (split_heads(z @ part.T, heads) for z, part in parts)
    r = case.cast(linear(case, case.true("in_pos_embs")[0], "linear_pos", heads))
    q, k, v = (case.cast(z) for z in (q, k, v))
    u, w = (case[f"w_pos_bias_{name}"].reshape(heads, -1) for name in "uv")
    scale = case.flags["d_model"] ** -0.5
    result = lib.transformer_xl_attention(q, k, v, r, u, w, scale=scale, **WITH_ALL)
    yield from compare(case, result, v)


def xl_lm(lib, case):
    """Segment recurrence of a whole model: the memory is the input of each layer."""
    flags, heads = case.flags, case.flags["n_head"]
    x_all = case.true("w_word_emb.emb_layers.0.weight")[case.true("in_tokens")]
    x_all = x_all * np.sqrt(flags["d_model"])
    memories = [x_all[:0]] * flags["n_layer"]
    for segment in range(flags["n_segments"]):
        begin = segment * flags["tgt_len"]
        x = x_all[begin : begin + flags["tgt_len"]]
        for layer in range(flags["n_layer"]):
            both = np.concatenate([memories[layer], x])
            memories[layer] = case.constant(both[-flags["mem_len"] :])
            stored = case.true(f"out_seg{segment}_mem{layer}")
            yield f"memory {segment} {layer}", case.cast(memories[layer]), stored
            x = xl_layer(lib, case, layer, heads, x, both)
        yield f"hidden {segment}", case.cast(x), case.true(f"out_seg{segment}_hidden")


def xl_layer(lib, case, layer, heads, x, both):
    """One time-major decoder layer: attention in the dtype under test, the rest not."""
    name, eps = f"w_layers.{layer}.", case.flags["ln_eps"]
    qkv = np.split(both @ case.true(name + "dec_attn.qkv_net.weight").T, 3, axis=-1)
    q, k, v = (case.cast(split_heads(y.swapaxes(0, 1), heads)) for y in qkv)
    q, lk = q[..., -len(x) :, :], len(both)
    keywords = {"is_causal": True, "query_offset": lk - len(x)}
    if case.flags["attn_type"] == 0:
        table = lib.sinusoidal(
            np.arange(lk - 1, -1, -1),
            case.flags["d_model"],
            layout="concat",
            dtype=np.float64,
        )
        r = table @ case.true(name + "dec_attn.r_net.weight").T
        keywords |= {"rel_key": case.cast(split_heads(r, heads))}
        keywords |= {"pos_bias_u": case["w_r_w_bias"], "pos_bias_v": case["w_r_r_bias"]}
    else:
        keywords |= {"rel_key": case["w_r_emb"][layer].swapaxes(0, 1)}
        scale = case.dtype.type(q.shape[-1] ** -0.5)
        keywords |= {"rel_bias": case["w_r_bias"][layer].T * scale}
        keywords |= {"pos_bias_u": case["w_r_w_bias"][layer]}
    origin = 1 - keywords["rel_key"].shape[-2]
    out = lib.attention(
        q, k, v, min_relative_position=origin, **WITH_ALL, **keywords
    ).out
    y = join_heads(out).swapaxes(0, 1) @ case.true(name + "dec_attn.o_net.weight").T

    def norm(z, part):
        names = (f"{name}{part}.layer_norm.{kind}" for kind in ("weight", "bias"))
        return layer_norm(z, *(case.true(n) for n in names), eps)

    x = norm(x + y, "dec_attn")
    first, second = (name + f"pos_ff.CoreNet.{n}" for n in (0, 3))
    hidden = x @ case.true(first + ".weight").T + case.true(first + ".bias")
    y = np.maximum(hidden, 0) @ case.true(second + ".weight").T
    return norm(x + y + case.true(second + ".bias"), "pos_ff")


def t5_att(lib, case):
    """Cached queries are the last of the keys."""
    q, k, v = case.core("q", "k", "v")
    offset, flags = k.shape[-2] - q.shape[-2], case.flags
    keywords = recipes.t5(
        case["w_relative_attention_bias.weight"],
        bidirectional=not flags["is_decoder"],
        max_distance=flags["max_distance"],
    )
    keywords |= {"query_offset": offset} | WITH_ALL
    yield from compare(case, lib.attention(q, k, v, case.get("in_mask"), **keywords))
    relative = lib.relative_positions(*q.shape[-2:-1], k.shape[-2], query_offset=offset)
    buckets = lib.t5_bucket(
        relative,
        bidirectional=not flags["is_decoder"],
        num_buckets=flags["num_buckets"],
        max_distance=flags["max_distance"],
    )
    yield "bucket", buckets, case.true("out_bucket")


FAMILIES = families(vars(), "lib", "case")
