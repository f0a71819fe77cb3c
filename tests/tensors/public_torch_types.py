"""Types of relpos.torch: mypy and pyright check every line, in their strict modes.

test_torch_types.py runs both, and runs this file.
"""

from typing import Any, assert_type

import torch
from torch import Tensor

import relpos.torch
from relpos import recipes
from relpos.torch import AttentionOutput, nn

x = torch.ones(2, 4, 3)
table, row = torch.ones(7, 3), torch.ones(3)

# ---- without a flag, a tensor ------------------------------------------------------

out = relpos.torch.attention(x, x, x)
assert_type(out, Tensor)
assert_type(relpos.torch.attention(x, x, x, None, 0.5, True, scale=1.0, rng=1), Tensor)
assert_type(relpos.torch.attention(query=x, key=x, value=x, rel_key=table), Tensor)
assert_type(relpos.torch.attention(x, x, x, return_lse=False), Tensor)
assert_type(out.sum(), Tensor)

# ---- with any, all results: what was not asked for is None -------------------------

with_lse = relpos.torch.attention(x, x, x, return_lse=True)
assert_type(with_lse, AttentionOutput)
assert_type(with_lse.out, Tensor)
assert_type(with_lse.lse, Tensor | Any)
assert_type(with_lse.weights, Tensor | Any)
unpacked_out, unpacked_lse, _ = with_lse
assert_type(unpacked_out, Tensor)
assert_type(unpacked_lse, Tensor | Any)
assert_type(relpos.torch.attention(x, x, x, return_weights=True), AttentionOutput)

# ---- every scheme ------------------------------------------------------------------

assert_type(relpos.torch.shaw_attention(x, x, x, table, table), Tensor)
assert_type(
    relpos.torch.shaw_attention(x, x, x, table, return_lse=True), AttentionOutput
)
assert_type(
    relpos.torch.relative_global_attention(x, x, x, table, is_causal=True), Tensor
)
assert_type(
    relpos.torch.relative_global_attention(x, x, x, table, return_weights=True),
    AttentionOutput,
)
assert_type(relpos.torch.transformer_xl_attention(x, x, x, table, row, row), Tensor)
assert_type(
    relpos.torch.transformer_xl_attention(x, x, x, table, row, None, return_lse=True),
    AttentionOutput,
)
network = row, row, torch.ones(2, 3), torch.ones(2), 1.0, 1.0
assert_type(relpos.torch.fire_attention(x, x, x, *network, eps=1e-3), Tensor)
assert_type(
    relpos.torch.fire_attention(x, x, x, *network, signed=True, return_lse=True),
    AttentionOutput,
)
graph = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([0, 1, 2, 3])
assert_type(relpos.torch.graph_attention(x, x, x, *graph), Tensor)
assert_type(
    relpos.torch.graph_attention(x, x, x, *graph, return_lse=True), AttentionOutput
)

# ---- scores, settings and a cache --------------------------------------------------

assert_type(relpos.torch.scores(x, x, is_causal=True), Tensor)
assert_type(relpos.torch.scores(x, x, terms=True), dict[str, Tensor])
assert_type(relpos.torch.rel_shift(relpos.torch.skew(x, is_causal=True)), Tensor)
assert_type(relpos.torch.relative_positions(3), Tensor)
assert_type(relpos.torch.sinusoidal_shift_matrix(2.0, 4), Tensor)
rotary = relpos.torch.rotary_from_config({"head_dim": 4, "rope_theta": 1e4})
assert_type(rotary, relpos.torch.RotaryParameters)
assert_type(rotary.inv_freq, Tensor)
assert_type(relpos.torch.rotary_magnitude(None), float)
cache = relpos.torch.KVCache()
cache.append(x, x)
assert_type(cache.arguments(x), dict[str, Any])
assert_type(relpos.torch.alibi_bias(2, 4, dtype=torch.float64), Tensor)

# ---- recipes -----------------------------------------------------------------------

assert_type(recipes.bert(table), dict[str, Any])
recipe = recipes.sam(table, table, (2, 2))
assert_type(recipe, recipes.Recipe)
assert_type(relpos.torch.attention(x, x, x, **recipe), Tensor)
assert_type(recipes.pope(x, bias=row), Tensor)
assert_type(recipes.pope(x, argument="key"), recipes.Recipe)
assert_type(recipes.llama4_temperature(torch.arange(3)), Tensor)
assert_type(recipes.inkling_temperature(torch.arange(3), 2.0), Tensor)
assert_type(recipes.zipformer_positions(torch.arange(3), 4), Tensor)
segments = torch.ones(2, 2, 3), torch.ones(2, 3), torch.ones(4, 4) > 0
assert_type(recipes.xlnet_segments(x, *segments), Tensor)
ranges = recipes.llama4(4)["key_ranges"]
assert_type(relpos.torch.attention(x, x, x, key_ranges=ranges), Tensor)

# ---- layers in those of PyTorch ----------------------------------------------------

layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
layer.self_attn = nn.RelativeMultiheadAttention(
    8, 2, batch_first=True, position="rotary"
)
decoder = torch.nn.TransformerDecoderLayer(8, 2, batch_first=True)
decoder.self_attn = nn.RelativeMultiheadAttention(8, 2, batch_first=True)


def mistakes() -> None:
    """Make calls that checkers refuse: a comment that hides no error is one."""
    relpos.torch.attention(x, x, x, is_casual=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    nn.RelativeMultiheadAttention(8, 2, position="rotray")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
