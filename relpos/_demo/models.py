"""Recorded cores of published models, by their recipes, and rotary encodings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import relpos
from relpos import recipes
from relpos._catalogue.rows import Array, Named
from relpos._demo.cores import Call, Case, Core, inputs

__all__ = ["CORES"]


def umt5(case: Case) -> Call:
    """Buckets up to a distance of 12, where the recorded model's end."""
    return relpos.attention, {
        **inputs(case),
        **recipes.umt5(case["weight"], max_distance=12),
    }


def umt5_gradients(found: Named, case: Case) -> Named:
    """Back to (bucket, head)."""
    return {**found, "weight": found["rel_bias"].T}


def beit(case: Case) -> Call:
    """3 x 3 patches after a class token."""
    keywords = recipes.beit(case["relative_position_bias_table"], (3, 3))
    return relpos.attention, {**inputs(case), **keywords}


def beit_gradients(found: Named, case: Case) -> Named:
    """Through the labels to the table."""
    recipe = recipes.beit(case["relative_position_bias_table"], (3, 3))
    return {**found, **recipe.backward(found)}


def parakeet_parameters(case: Case) -> tuple[Any, ...]:
    """Return the stored parameters, and the length."""
    stored = (case[name] for name in ("bias_u", "bias_v", "relative_k_proj"))
    return *stored, case["query"].shape[-2]


def parakeet(case: Case) -> Call:
    """Positions projected by the model's weight."""
    return relpos.attention, {
        **inputs(case),
        **recipes.parakeet(*parakeet_parameters(case)),
    }


def parakeet_gradients(found: Named, case: Case) -> Named:
    """Through the projection to its weight."""
    return {**found, **recipes.parakeet(*parakeet_parameters(case)).backward(found)}


def recurrent_gemma(case: Case) -> Call:
    """One key head and a window; queries and keys are recorded after rotation."""
    window = int(case["attention_window_size"])
    return relpos.attention, {**inputs(case), **recipes.recurrent_gemma(window)}


def gpt_oss(case: Case) -> Call:
    """A sink in each head; queries and keys are recorded after rotation."""
    return relpos.attention, {**inputs(case), **recipes.gpt_oss(case["sinks"])}


def forgetting(case: Case) -> Call:
    """Two query heads for each key head, and the decay of each."""
    settings = {"is_causal": True, "enable_gqa": True}
    return relpos.attention, {
        **inputs(case),
        "log_decay": case["log_decay"],
        **settings,
    }


def llama4(case: Case) -> Call:
    """Chunks of keys; queries and keys are recorded after rotation."""
    chunk = int(case["attention_chunk_size"])
    length = case["query"].shape[-2]
    keywords = recipes.llama4(length, attention_chunk_size=chunk)
    return relpos.attention, {**inputs(case), **keywords}


def packed(case: Case) -> Call:
    """Documents one after the other in a sequence: positions start again with each."""
    documents = np.cumsum(case["position_ids"] == 0, axis=-1)
    ranges = relpos.segment_ranges(documents)
    settings = {"key_ranges": ranges, "is_causal": True, "enable_gqa": True}
    return relpos.attention, {**inputs(case), **settings}


# ---- rotary --------------------------------------------------------------------------


def turn(x: Array, return_context: bool, **keywords: Any) -> Any:
    """`apply_rotary` in the manner of `attention`: a result with `backward`."""

    def backward(grad_out: Array) -> relpos.RotaryGradients:
        return relpos.apply_rotary_backward(grad_out, x, **keywords)

    context = SimpleNamespace(backward=backward)
    return SimpleNamespace(out=relpos.apply_rotary(x, **keywords), context=context)


def gemma4(case: Case) -> Call:
    """Full attention: a quarter of the pairs turns, over the whole width."""
    rope = {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1e6,
    }
    config = {"head_dim": case["x"].shape[-1], "rope_parameters": rope}
    return turn, {"x": case["x"], **relpos.rotary_from_config(config)._asdict()}


def qwen3_vl(case: Case) -> Call:
    """Pairs that take turns in time, height and width."""
    inv_freq = relpos.rotary_frequencies(case["x"].shape[-1])
    sections = 4, 2, 2
    angles = relpos.mrope_angles(
        case["positions"], inv_freq, sections, interleaved=True
    )
    return turn, {"x": case["x"], "angles": angles[:, None]}


def dinov3(case: Case) -> Call:
    """Centres of patches in [-1, 1], and five tokens before them that stay."""
    sides, x = case["grid"], case["x"]
    centres = 2 * (np.argwhere(np.ones(sides)) + 0.5) / sides - 1
    inv_freq = relpos.rotary_frequencies(x.shape[-1] // 2, base=100.0)
    angles = relpos.axial_angles(2 * np.pi * centres, inv_freq)
    before = np.zeros((x.shape[-2] - len(angles), angles.shape[-1]))
    return turn, {"x": x, "angles": np.concatenate([before, angles])}


def qwen2_vl(case: Case) -> Call:
    """Columns of time first, then of height and of width."""
    inv_freq = relpos.rotary_frequencies(case["x"].shape[-1])
    angles = relpos.mrope_angles(case["positions"], inv_freq, (2, 3, 3))
    return turn, {"x": case["x"], "angles": angles[:, None]}


def gemma4_vision(case: Case) -> Call:
    """Columns in two halves: one turns by a patch's row, one by its column."""
    inv_freq = relpos.rotary_frequencies(case["x"].shape[-1], base=100.0)
    angles = relpos.axial_angles(case["positions"], inv_freq)
    shape = (*case["x"].shape[:2], 1, 2, len(inv_freq))
    return turn, {"x": case["x"], "angles": angles.reshape(shape)}


def turn_columns(x: Array, return_context: bool, angles: list[Array]) -> Any:
    """Pairs whose columns have angles of their own: a half of either rotation."""
    rest: dict[str, Any] = {"rotary_dim": 2 * angles[0].shape[-1], "interleaved": True}
    rotated = [turn(x, return_context, angles=each, **rest) for each in angles]
    own = [np.arange(x.shape[-1]) % 2 == n for n in (0, 1)]

    def backward(grad_out: Array) -> Any:
        even, odd = (
            each.context.backward(np.where(mask, grad_out, 0.0))
            for each, mask in zip(rotated, own, strict=True)
        )
        return even._replace(x=even.x + odd.x)

    out = np.where(own[0], rotated[0].out, rotated[1].out)
    return SimpleNamespace(out=out, context=SimpleNamespace(backward=backward))


def vjepa2(case: Case) -> Call:
    """Frame, row and column: 6 columns for each, whose 3 frequencies come twice."""
    inv_freq = np.tile(relpos.rotary_frequencies(6), 2)
    angles = [relpos.axial_angles(case["positions"], inv_freq[n::2]) for n in (0, 1)]
    return turn_columns, {"x": case["x"], "angles": angles}


CORES = {
    "umt5": Core("UMT5 encoder, 8 buckets", umt5, umt5_gradients),
    "beit": Core("BEiT, class token", beit, beit_gradients),
    "parakeet": Core("Parakeet", parakeet, parakeet_gradients),
    "recurrent_gemma": Core("RecurrentGemma, window", recurrent_gemma),
    "gpt_oss": Core("gpt-oss, sinks", gpt_oss),
    "forgetting": Core("Forgetting Transformer", forgetting),
    "llama4": Core("Llama 4, chunks", llama4),
    "packed": Core("packed documents", packed),
    "gemma4_rotary": Core("Gemma 4, rotary", gemma4),
    "qwen3_vl_rotary": Core("Qwen3-VL, rotary", qwen3_vl),
    "dinov3_rotary": Core("DINOv3, rotary", dinov3),
    "qwen2_vl_rotary": Core("Qwen2-VL, rotary", qwen2_vl),
    "gemma4_vision_rotary": Core("Gemma 4 vision, rotary", gemma4_vision),
    "vjepa2_rotary": Core("V-JEPA 2, rotary", vjepa2),
}
