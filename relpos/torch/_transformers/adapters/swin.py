"""Swin Transformers of both versions that have attention of their own."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.functional import normalize

from relpos.torch._transformers.adapters.base import Swapped, attend_heads
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch.nn._layer import split_heads


@replaces(
    "donut.donut_swin.DonutSwinSelfAttention",
    "maskformer.maskformer_swin.MaskFormerSwinSelfAttention",
)
class _SwinSelfAttention(Swapped):
    """Attention with the biases of a window as a mask of numbers, one for all windows.

    Windows are short: rows of a table by label take longer, with gradients.
    """

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool | None = False,
    ) -> Any:
        query, key, value = projected(self, hidden_states)
        bias = in_window(self.relative_position_bias_table, self)
        return attend_windows(
            self, query, key, value, bias, attention_mask, output_attentions
        )


@replaces("swinv2.Swinv2SelfAttention", "swin2sr.Swin2SRSelfAttention")
class _Swinv2SelfAttention(Swapped):
    """Attention of normalised queries and keys, with biases of a network."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool | None = False,
    ) -> Any:
        query, key, value = projected(self, hidden_states)
        factors = torch.clamp(self.logit_scale, max=math.log(1.0 / 0.01)).exp()
        table = self.continuous_position_bias_mlp(self.relative_coords_table)
        bias = 16 * torch.sigmoid(
            in_window(table.view(-1, self.num_attention_heads), self)
        )
        if attention_mask is not None:
            attention_mask = 2 * attention_mask  # the model adds it twice
        return attend_windows(
            self,
            normalize(query, dim=-1) * factors,
            normalize(key, dim=-1),
            value,
            bias,
            attention_mask,
            output_attentions,
            scale=1.0,
        )


def projected(module: Any, tokens: torch.Tensor) -> list[torch.Tensor]:
    """Return query, key and value of tokens, by heads."""
    layers = module.query, module.key, module.value
    return [split_heads(layer(tokens), module.num_attention_heads) for layer in layers]


def in_window(table: torch.Tensor, module: Any) -> torch.Tensor:
    """Return the biases (H, N, N) of all pairs in a window."""
    size = math.prod(module.window_size)
    biases = table[module.relative_position_index.view(-1)]
    return biases.view(size, size, -1).permute(2, 0, 1)


def attend_windows(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor,
    mask: torch.Tensor | None,
    weighed: bool | None,
    **settings: Any,
) -> Any:
    """Return attention in windows (B, H, N, D), and weights if asked for.

    A mask (windows of a picture, N, N) is one of numbers.
    """
    if mask is not None:
        # windows of one picture follow each other
        count = len(mask)
        query, key, value = (x.unflatten(0, (-1, count)) for x in (query, key, value))
        bias = bias + mask[:, None]
    out, weights = attend_heads(
        module,
        query,
        key,
        value,
        bias,
        dropout=module.dropout.p,
        weighed=bool(weighed),
        **settings,
    )
    if mask is not None:
        out = out.flatten(0, 1)
    if weights is None:
        return (out,)
    return out, weights.flatten(0, 1) if mask is not None else weights
