"""Adapters for published models by their recipes: what is stored, as it is stored."""

from __future__ import annotations

import numpy as np
from recorded import WITH_ALL, attend, compare, families, join_heads, linear, module
from recorded_xl import layer_norm

from relpos import recipes


def mpnet(lib, case):
    keywords = recipes.mpnet(case["w_relative_attention_bias.weight"])
    result = attend(lib, case, **keywords)
    yield from compare(case, result)
    _, y, want = module(case, result.out, "attn.o")
    x = case.constant(case.true("in_hidden_states"))
    norm = [case.true(f"w_LayerNorm.{name}") for name in ("weight", "bias")]
    yield "module", case.cast(layer_norm(x + y, *norm, case.flags["ln_eps"])), want


def umt5(lib, case):
    keywords = recipes.umt5(
        case["w_relative_attention_bias.weight"],
        bidirectional=not case.flags["decoder"],
        max_distance=case.flags["max_distance"],
    )
    yield from compare(case, attend(lib, case, **keywords))


def beit(lib, case):
    table, flags = case["w_relative_position_bias_table"], case.flags
    keywords = lib.recipes.beit(table, flags["grid"], table_window=flags["table_grid"])
    yield "index", keywords["labels"], case.true("out_index")
    bias = keywords["rel_bias"][:, keywords["labels"]]
    yield "bias", bias, case.true("out_bias")
    yield from compare(
        case, lib.attention(*case.core("q", "k", "v"), **keywords, **WITH_ALL)
    )


def swinv2(lib, case):
    """Cosines, times a factor for each head; the mask counts twice."""
    flags, (q, k, v) = case.flags, case.core("q", "k", "v")
    q, k = (x / np.sqrt((x**2).mean(-1, keepdims=True) * x.shape[-1]) for x in (q, k))
    q = q * np.exp(np.minimum(case["w_logit_scale"], np.log(100.0)))
    network = (case[f"w_continuous_position_bias_mlp.{n}"]
               for n in ("0.weight", "0.bias", "2.weight"))  # fmt: skip
    keywords = lib.recipes.swin_v2(
        *network, flags["window"], pretrained_window=flags["pretrained"]
    )
    index = case.true("out_index")
    yield "index", keywords["labels"], index
    mask = case.constant(case.get("in_mask"))
    if mask is not None:
        mask = np.concatenate([2 * mask] * (len(q) // len(mask)))[:, None]
    inputs = (case.cast(x) for x in (q, k, v))
    result = lib.attention(*inputs, mask, scale=1.0, **keywords, **WITH_ALL)
    yield from compare(case, result, v)
    yield "module", join_heads(result.out), case.true("out_out")


def vits(lib, case):
    keywords = recipes.vits(case["w_emb_rel_k"], case["w_emb_rel_v"])
    result = attend(lib, case, case["core_q_unscaled"], **keywords)
    yield "weights", result.weights, case.true("core_probs")
    yield module(case, result.out, "out_proj")


def w2vbert(lib, case):
    keywords = recipes.wav2vec2_bert(
        case["w_distance_embedding.weight"],
        left_max_position_embeddings=case.flags["left"],
        right_max_position_embeddings=case.flags["right"],
    )
    result = attend(lib, case, **keywords)
    yield from compare(case, result)
    yield module(case, result.out, "linear_out")


def parakeet(lib, case):
    """The query comes before u and v join it."""
    x = case.constant(case.true("in_hidden_states"))
    q = case.cast(linear(case, x, "q_proj", case.flags["n_head"]))
    names = ("w_bias_u", "w_bias_v", "w_relative_k_proj.weight")
    keywords = lib.recipes.parakeet(*(case[name] for name in names), q.shape[-2])
    yield from compare(case, attend(lib, case, q, **keywords))


def enformer(lib, case):
    q, (k, v) = case["core_q_unscaled"], case.core("k", "v")
    want = case.true("out_positions")
    port = {"gamma_maximum": "features"}  # that of the port without use_tf_gamma
    features = recipes.enformer_positions(
        q.shape[-2], want.shape[1], dtype=case.dtype, **port
    )
    yield "positions", features, want
    names = ("w_rel_content_bias", "w_rel_pos_bias", "w_to_rel_k.weight")
    keywords = lib.recipes.enformer(
        *(case[name] for name in names), q.shape[-2], **port
    )
    result = lib.attention(q, k, v, **keywords, **WITH_ALL)
    yield from compare(case, result, v)
    yield module(case, result.out, "to_out")


def recgemma(lib, case):
    keywords = recipes.recurrent_gemma(case.flags["window"])
    yield from compare(
        case, lib.attention(*case.core("q", "k", "v"), **keywords, **WITH_ALL)
    )


FAMILIES = families(vars(), "lib", "case")
