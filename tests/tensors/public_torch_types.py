"""Types of relpos.torch: mypy and pyright check every line, in their strict modes.

test_torch_types.py runs both, and runs this file.
"""

from typing import Any, assert_type

import torch
from torch import Tensor

import relpos.torch
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
