"""Adapters for files that hold rotary encodings, alone or inside an attention."""

from __future__ import annotations

import numpy as np
from recorded import WITH_ALL, compare, join_heads, linear, split_heads

#: From a file's layout to (B, H, L, D), and back.
LAYOUTS = {
    "BHLD": ((0, 1, 2, 3), (0, 1, 2, 3)),
    "BLHD": ((0, 2, 1, 3), (0, 2, 1, 3)),
    "LBHD": ((1, 2, 0, 3), (2, 0, 1, 3)),
}


def rope(lib, case):
    """Queries and keys; xPos is centred on the middle of each of them."""
    flags = case.flags
    there, back = LAYOUTS[flags["layout"]]
    for name, offset, inverse in (
        ("q", flags["offset"], False),
        ("k", flags.get("k_offset", flags["offset"]), True),
    ):
        x = case["in_" + name].transpose(*there)
        positions = np.arange(x.shape[-2]) + offset
        keywords = {"base": flags["base"], "rotary_dim": flags["rotary_dim"]}
        if flags.get("xpos_scale_base"):
            keywords["magnitude"] = lib.xpos_magnitude(
                positions - x.shape[-2] // 2,
                flags["rotary_dim"],
                scale_base=flags["xpos_scale_base"],
                inverse=inverse,
            )
        y = lib.apply_rotary(
            x,
            positions / flags.get("interpolation", 1),
            interleaved=flags["style"] == "interleaved",
            **keywords,
        )
        yield name, y.transpose(*back), case.true("out_" + name)


def rope_learned(lib, case):
    y = lib.apply_rotary(
        case["in_q"],
        inv_freq=case["w_freqs"],
        offset=case.flags["offset"],
        interleaved=True,
    )
    yield "q", y, case.true("out_q")


def tscale_xpos(lib, case):
    """The middle of an odd length is half a step further than x-transformers' one."""
    x, offset = case["in_x"], case.flags["offset"]
    positions = np.arange(x.shape[-2]) + offset
    magnitude = lib.xpos_magnitude(
        positions + (-(x.shape[-2] + offset) // 2),
        x.shape[-1],
        scale_base=case.flags["scale_base"],
        inverse=case.flags["downscale"],
    )
    y = lib.apply_rotary(x, positions, magnitude=magnitude, interleaved=True)
    yield "x", y, case.true("out_x")


def attend(lib, case, query, key, value, **keywords):
    """Attention after both are turned; the recorded logits are those of the scores."""
    query, key = (lib.apply_rotary(case.cast(x), **keywords) for x in (query, key))
    mask = np.broadcast_to(case.true("core_allowed"), case.true("core_logits").shape)
    return lib.attention(query, key, case.cast(value), mask, **WITH_ALL)


def neox_att(lib, case):
    heads, x = case.flags["n_head"], case.true("in_hidden_states")
    q, k, v = np.split(linear(case, x, "query_key_value", heads), 3, axis=-1)
    result = attend(lib, case, q, k, v, rotary_dim=case.flags["rotary_dim"])
    yield from compare(case, result)
    y = join_heads(result.out) @ case.true("w_dense.weight").T
    yield "module", case.cast(y + case.true("w_dense.bias")), case.true("out_out")


def gptj_att(lib, case):
    heads, x = case.flags["n_head"], case.true("in_hidden_states")
    q, k, v = (linear(case, x, name, heads) for name in ("q_proj", "k_proj", "v_proj"))
    keywords = {"rotary_dim": case.flags["rotary_dim"], "interleaved": True}
    result = attend(lib, case, q, k, v, **keywords)
    yield from compare(case, result)
    y = join_heads(result.out) @ case.true("w_out_proj.weight").T
    yield "module", case.cast(y), case.true("out_out")


def roformer_att(lib, case):
    heads, x = case.flags["n_head"], case.true("in_hidden_states")
    q, k, v = (linear(case, x, name, heads) for name in ("query", "key", "value"))
    result = attend(lib, case, q, k, v, interleaved=True)
    yield "weights", result.weights, case.true("core_probs")
    yield "module", join_heads(result.out), case.true("out_context")


def rot_before_proj(lib, case):
    """The layer's input is turned, head by head, before it is projected: not RoPE."""
    heads, x = case.flags["n_head"], case.true("in_x")
    turned = join_heads(lib.apply_rotary(case.cast(split_heads(x, heads))))
    q, k = (linear(case, turned, name, heads) for name in ("linear_q", "linear_k"))
    v = linear(case, x, "linear_v", heads)
    result = lib.attention(*(case.cast(y) for y in (q, k, v)), **WITH_ALL)
    yield "weights", result.weights, case.true("core_probs")
    y = join_heads(result.out) @ case.true("w_linear_out.weight").T
    yield "module", case.cast(y + case.true("w_linear_out.bias")), case.true("out_out")


def onmt_rotary(lib, case):
    """Queries and keys are recorded before they are turned."""
    q, k, v = case.core("q_unscaled", "k", "v")
    keywords = {"rotary_dim": case.flags["rotary_dim"]}
    keywords["interleaved"] = case.flags["rotary_interleave"]
    yield from compare(case, attend(lib, case, q, k, v, **keywords))


FAMILIES = {
    function.__name__: function
    for function in (
        rope,
        rope_learned,
        tscale_xpos,
        neox_att,
        gptj_att,
        roformer_att,
        rot_before_proj,
        onmt_rotary,
    )
}
