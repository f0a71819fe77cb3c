"""Layers of relpos.nn and the modules that repeat them, with inputs of any size."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import relpos

RNG = np.random.default_rng(0)
FIRST_STATE = RNG.bit_generator.state


class Case(NamedTuple):
    """A class of relpos.nn, its arguments, and inputs of a batch and a length."""

    name: str
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    draw: Any  # (batch, length) to inputs that have gradients, and the others

    def of(self, batch, length):
        """Return the inputs of a call: the same ones, whatever was drawn before."""
        RNG.bit_generator.state = FIRST_STATE
        return self.draw(batch, length)

    def make(self, module, **options):
        return getattr(module, self.name)(*self.args, **self.keywords, **options)


def real(*shape):
    return RNG.standard_normal(shape)


def seen(*shape):
    return RNG.random(shape) < 0.7


def encodings(first, last):
    positions = np.arange(first, last - 1, -1)
    return relpos.sinusoidal(positions, 12, layout="concat", dtype=np.float64)


def future(length, total):
    return np.triu(np.ones((length, total), bool), total - length + 1)[:, :, None]


SHAW, XL = "ShawAttention", "RelPartialLearnableMultiHeadAttn"
CONFORMER = "ConformerRelPositionAttention"
PRE = {"pre_lnorm": True, "r_r_bias": 0, "r_w_bias": 0, "dropatt": 0.2}
CASES = {
    "learned": Case("LearnedAPE", (9, 4), {},
        lambda b, n: ((), {"x": np.zeros((b, n))})),
    "sinusoidal": Case("SinusoidalEncoding", (6,), {"layout": "concat"},
        lambda b, n: ((real(b, n, 6),), {})),
    "bias": Case("DynamicPositionBias", (5, 3, 2), {},
        lambda b, n: ((), {"length": n + 1})),
    "log_bias": Case("DynamicPositionBias", (5, 3, 1, True), {},
        lambda b, n: ((), {"length": 1})),
    "conv": Case("ConvPositionEmbedding", (8, 4, 2), {},
        lambda b, n: ((real(b, n, 8),), {})),
    "conv_of_tokens": Case("ConvPositionEmbedding", (6, 5, 3), {},
        lambda b, n: ((real(b, n, 6),), {"mask": seen(b, n).astype(int)})),
    "music": Case("RelativeGlobalAttention", (12, 3), {"max_len": 9},
        lambda b, n: ((real(b, n, 12),), {})),
    "shaw": Case(SHAW, (12, 3, 2), {},
        lambda b, n: ((real(b, n, 12),), {"is_causal": True})),
    "shaw_of_keys": Case(SHAW, (12, 3, 2), {"per_head": True},
        lambda b, n: ((real(b, n, 12), real(b, n + 2, 12)),
                      {"query_offset": 2, "attn_mask": seen(b, 1, n, n + 2)})),
    "shaw_of_no_keys": Case(SHAW, (12, 3, 2), {},
        lambda b, n: ((real(b, 4, 12), real(b, n, 12)), {"query_offset": 2})),
    "shaw_of_values": Case(SHAW, (12, 3, 2), {"use_values": False},
        lambda b, n: (tuple(real(3, b, n, 12)), {})),
    "shaw_plain": Case(SHAW, (12, 3, 0), {"use_keys": False},
        lambda b, n: ((real(b, n, 12),), {})),
    "conformer": Case(CONFORMER, (12, 3), {},
        lambda b, n: ((*real(3, b, n, 12), encodings(n - 1, 1 - n)), {})),
    "conformer_cache": Case(CONFORMER, (12, 3), {},
        lambda b, n: ((*real(3, b, n, 12), real(1, 2 * n + 3, 12)),
                      {"cache": real(b, 2, 12), "mask": seen(b, n, n + 2)})),
    "xl": Case(XL, (3, 12, 4, 0.1), {},
        lambda b, n: ((real(n, b, 12), encodings(n + 1, 0)[:, None]),
                      {"attn_mask": future(n, n + 2), "mems": real(2, b, 12)})),
    "xl_pre": Case(XL, (3, 12, 5, 0.1), PRE,
        lambda b, n: ((real(n, b, 12), encodings(n - 1, 1 - n), *real(2, 3, 5)),
                      {"attn_mask": np.arange(n)[:, None].repeat(b, 1) == 1})),
}  # fmt: skip
