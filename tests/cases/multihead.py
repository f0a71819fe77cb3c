"""RelativeMultiheadAttention in all its forms, for its tests."""

from __future__ import annotations

import torch
from torch import nn

from relpos.torch.nn import RelativeMultiheadAttention

E, H, N, L = 12, 3, 2, 5
DTYPE = torch.float64
SIZES = {
    "shaw": {"max_relative_position": 2},
    "music": {"max_len": 7, "is_causal": False},
    "transformer_xl": {},
    "t5": {"num_buckets": 8, "max_distance": 6},
    "alibi": {},
    "kerple": {},
    "rope": {},
    "fire": {"width": 4, "max_distance": 3},
    "deberta": {"max_relative_position": 4, "num_buckets": 4},
}


def seeded(*args, **keywords):
    torch.manual_seed(0)
    module = RelativeMultiheadAttention(*args, **keywords, dtype=DTYPE)
    for parameter in module.parameters():  # biases too
        if parameter.dim() == 1 and len(parameter) == parameter.numel() > 4:
            nn.init.normal_(parameter, std=0.1)
    return module


def of_position(position, heads=H, **options):
    """A seeded module of a position, of its sizes."""
    sizes = SIZES.get(position, {}) | options
    return seeded(E, heads, position=position, **sizes)


def draw(*shape, seed=1):
    return torch.randn(
        *shape, dtype=DTYPE, generator=torch.Generator().manual_seed(seed)
    )


def near(got, want):
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
