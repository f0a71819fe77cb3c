"""Rotary parameters from a configuration in today's spelling, pair by pair; oracle.py.

Each frequency by itself, from the wavelength in positions: what the papers speak of.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np

LENGTH = "original_max_position_embeddings"


def wavelengths(dim, base):
    """Positions for a full turn of every pair."""
    return [2 * math.pi * base ** (2 * c / dim) for c in range(dim // 2)]


def stretched_ntk(dim, base, rope, longest, seq_len):
    """A base that gives the slowest pair s times its wavelength."""
    length = max(seq_len or longest, longest)
    s = rope["factor"] * length / longest - (rope["factor"] - 1)
    return wavelengths(dim, base * s ** (dim / (dim - 2)))


def stretched_yarn(dim, base, rope, longest, seq_len):
    """Whole pairs between those that turn 32 times and once in the original length."""
    original = rope.get(LENGTH, longest)
    pairs = range(dim // 2)
    turns = [original / length for length in wavelengths(dim, base)]
    first = max((c for c in pairs if turns[c] >= 32), default=0)
    last = min((c for c in pairs if turns[c] <= 1), default=dim - 1)
    result = []
    for c, length in enumerate(wavelengths(dim, base)):
        ramp = min(max((c - first) / (last - first), 0), 1)
        result.append(1 / ((1 - ramp) / length + ramp / (rope["factor"] * length)))
    return result


def stretched_llama3(dim, base, rope, longest, seq_len):
    original = rope.get(LENGTH, longest)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    result = []
    for length in wavelengths(dim, base):
        turns = original / length
        if turns < low:
            length *= rope["factor"]
        elif turns < high:
            share = (turns - low) / (high - low)
            length = 1 / (share / length + (1 - share) / (rope["factor"] * length))
        result.append(length)
    return result


def stretched_linear(dim, base, rope, longest, seq_len):
    return [rope["factor"] * length for length in wavelengths(dim, base)]


def stretched_proportional(dim, base, rope, longest, seq_len):
    turning = math.floor(rope.get("partial_rotary_factor", 1) * dim / 2)
    return [
        rope.get("factor", 1) * length if c < turning else math.inf
        for c, length in enumerate(wavelengths(dim, base))
    ]


def plain(dim, base, rope, longest, seq_len):
    return wavelengths(dim, base)


STRETCHED = {
    "default": plain,
    "linear": stretched_linear,
    "dynamic": stretched_ntk,
    "yarn": stretched_yarn,
    "llama3": stretched_llama3,
    "proportional": stretched_proportional,
}


def rotary_from_config(config, *, layer_type=None, seq_len=None):
    rope = config["rope_parameters"]
    rope = rope if layer_type is None else rope[layer_type]
    kind = rope["rope_type"]
    dim = config.get("head_dim")
    if layer_type == "full_attention":
        dim = config.get("global_head_dim", dim)
    dim = dim or config["hidden_size"] // config["num_attention_heads"]
    longest = config.get("max_position_embeddings")
    lengths = STRETCHED[kind](dim, rope["rope_theta"], rope, longest, seq_len)
    magnitude = 0.1 * math.log(rope["factor"]) + 1 if kind == "yarn" else 1.0
    magnitude = rope.get("attention_factor", magnitude)
    return SimpleNamespace(
        inv_freq=2 * math.pi / np.array(lengths), magnitude=magnitude, rotary_dim=dim
    )
