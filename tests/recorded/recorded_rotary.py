"""Adapters for files that hold rotary encodings, alone or inside an attention."""

from __future__ import annotations

import numpy as np
from recorded import (
    WITH_ALL,
    compare,
    families,
    join_heads,
    linear,
    module,
    split_heads,
)

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


def attend_rotated(lib, case, query, key, value, **keywords):
    """Attention after both are rotated; the recorded logits are those of the scores."""
    query, key = (lib.apply_rotary(case.cast(x), **keywords) for x in (query, key))
    mask = np.broadcast_to(case.true("core_allowed"), case.true("core_logits").shape)
    return lib.attention(query, key, case.cast(value), mask, **WITH_ALL)


def neox_att(lib, case):
    heads, x = case.flags["n_head"], case.true("in_hidden_states")
    q, k, v = np.split(linear(case, x, "query_key_value", heads), 3, axis=-1)
    result = attend_rotated(lib, case, q, k, v, rotary_dim=case.flags["rotary_dim"])
    yield from compare(case, result)
    yield module(case, result.out, "dense")


def gptj_att(lib, case):
    heads, x = case.flags["n_head"], case.true("in_hidden_states")
    q, k, v = (linear(case, x, name, heads) for name in ("q_proj", "k_proj", "v_proj"))
    keywords = {"rotary_dim": case.flags["rotary_dim"], "interleaved": True}
    result = attend_rotated(lib, case, q, k, v, **keywords)
    yield from compare(case, result)
    yield module(case, result.out, "out_proj")


def roformer_att(lib, case):
    heads, x = case.flags["n_head"], case.true("in_hidden_states")
    q, k, v = (linear(case, x, name, heads) for name in ("query", "key", "value"))
    result = attend_rotated(lib, case, q, k, v, interleaved=True)
    yield "weights", result.weights, case.true("core_probs")
    yield "module", join_heads(result.out), case.true("out_context")


def rot_before_proj(lib, case):
    """The layer's input is rotated, head by head, before it is projected: not RoPE."""
    heads, x = case.flags["n_head"], case.true("in_x")
    rotated = join_heads(lib.apply_rotary(case.cast(split_heads(x, heads))))
    q, k = (linear(case, rotated, name, heads) for name in ("linear_q", "linear_k"))
    v = linear(case, x, "linear_v", heads)
    result = lib.attention(*(case.cast(y) for y in (q, k, v)), **WITH_ALL)
    yield "weights", result.weights, case.true("core_probs")
    yield module(case, result.out, "linear_out")


def onmt_rotary(lib, case):
    """Queries and keys are recorded before they are rotated."""
    q, k, v = case.core("q_unscaled", "k", "v")
    keywords = {"rotary_dim": case.flags["rotary_dim"]}
    keywords["interleaved"] = case.flags["rotary_interleave"]
    yield from compare(case, attend_rotated(lib, case, q, k, v, **keywords))


# ---- several axes, and frequencies of a configuration -------------------------------


def frequencies(lib, dim, base):
    """Return the unscaled frequencies of a head of `dim` columns."""
    rope = {"rope_type": "default", "rope_theta": base}
    return lib.rotary_from_config({"head_dim": dim, "rope_parameters": rope}).inv_freq


def rope_gemma4_text(lib, case):
    """Wider heads where attention is full, with a quarter of the pairs rotated."""
    config = {name: case.flags[name] for name in ("global_head_dim",)}
    config |= {"head_dim": case.flags["d_head"], "rope_parameters": case.flags["rope"]}
    positions = case.true("in_position_ids")[:, None] + case.flags["offset"]
    for kind in case.flags["rope"]:
        found = lib.rotary_from_config(config, layer_type=kind)
        recorded = case.true(f"out_inv_freq_{kind}")
        yield f"inv_freq {kind}", case.cast(found.inv_freq), recorded
        y = lib.apply_rotary(
            case[f"in_{kind}"],
            positions,
            inv_freq=found.inv_freq,
            magnitude=found.magnitude,
            rotary_dim=found.rotary_dim,
        )
        yield kind, y, case.true(f"out_{kind}")


def multimodal(lib, case, **options):
    """Queries and keys rotated by time, height and width."""
    inv_freq = frequencies(lib, case.flags["d_head"], case.flags["theta"])
    yield "inv_freq", case.cast(inv_freq), case.true("out_inv_freq")
    positions, sections = case.true("in_position_ids"), case.flags["sections"]
    angles = lib.mrope_angles(positions, inv_freq, sections, **options)
    yield from _turned(lib, case, angles, angles[:, None])


def _turned(lib, case, angles, of_tokens):
    """Sines and cosines of angles, and queries and keys turned by those of tokens."""
    both = np.concatenate([angles, angles], axis=-1)
    yield "cos", case.cast(np.cos(both)), case.true("out_cos")
    yield "sin", case.cast(np.sin(both)), case.true("out_sin")
    for name in ("q", "k"):
        y = lib.apply_rotary(case["in_" + name], angles=of_tokens)
        yield name, y, case.true("out_" + name)


def rope_qwen2_vl(lib, case):
    yield from multimodal(lib, case)


def rope_qwen3_vl(lib, case):
    yield from multimodal(lib, case, interleaved=True)


def cells(sides):
    """Row, column, .. of the cells of a grid."""
    return np.argwhere(np.ones(sides))


def rope_dinov3(lib, case):
    """Centres of patches in [-1, 1]; tokens before the patches are not rotated."""
    sides, prefix = case.flags["grid"], case.flags["prefix"]
    inv_freq = frequencies(lib, case.flags["d_head"] // 2, case.flags["theta"])
    yield "inv_freq", case.cast(inv_freq), case.true("out_inv_freq")
    centres = 2 * (cells(sides) + 0.5) / sides - 1
    angles = lib.axial_angles(2 * np.pi * centres, inv_freq)
    still = np.concatenate([np.zeros((prefix, angles.shape[-1])), angles])
    yield from _turned(lib, case, angles, still)


def rope_vjepa2(lib, case):
    """Frame, row and column; the columns of a pair have angles of their own."""
    frames, side = case.flags["grid"]
    width = 2 * (case.flags["d_head"] // 6)
    inv_freq = frequencies(lib, width, 10000.0)
    where = cells((frames, side, side))
    y = 0.0
    for first in (0, 1):
        columns = np.arange(first, width, 2)
        angles = lib.axial_angles(where, inv_freq[columns % (width // 2)])
        options = {"rotary_dim": 3 * width, "interleaved": True}
        rotated = lib.apply_rotary(case["in_x"], angles=angles, **options)
        own = np.arange(case.flags["d_head"]) % 2 == first
        y = y + rotated * case.cast(own.astype(float))
    yield "x", y, case.true("out_x")


def rope_gemma4_vision(lib, case):
    """Half of the columns by the first coordinate, half by the other."""
    x, where = case["in_x"], case.true("in_position_ids")
    *rows, heads, columns = x.shape
    inv_freq = frequencies(lib, columns // 2, 100.0)
    yield "inv_freq", case.cast(inv_freq), case.true("out_inv_freq")
    angles = lib.axial_angles(where, inv_freq).reshape(*rows, 1, 2, columns // 4)
    halves = x.reshape(*rows, heads, 2, columns // 2)
    y = lib.apply_rotary(halves, angles=angles)
    yield "x", y.reshape(*x.shape), case.true("out_x")


def rope_config(lib, case):
    for n, (config, seq_len) in enumerate(case.flags["configs"]):
        found = lib.rotary_from_config(config, seq_len=seq_len)
        yield f"{n}", case.cast(found.inv_freq), case.true(f"out_inv_freq_{n}")
        magnitude = case.cast(np.asarray(found.magnitude))
        yield f"magnitude {n}", magnitude, case.true(f"out_magnitude_{n}")


FAMILIES = families(vars(), "lib", "case")
