"""BLOOM."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch.nn.functional import dropout, linear

from relpos.torch._transformers.adapters.base import (
    Attributes,
    Decoding,
    Swapped,
    linear_bias,
)
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import attention_function


@replaces("bloom.BloomModel")
class _BloomModel(Swapped):
    """Makes positions of keys, and these only where no table by distance has them."""

    attends = False
    overrides = ("build_alibi_tensor",)

    def build_alibi_tensor(
        self, attention_mask: torch.Tensor, num_heads: int, dtype: torch.dtype
    ) -> torch.Tensor:
        # BLOOM counts the tokens that are no padding. Padding on either side changes no
        # distance of two tokens, but padding between tokens does.
        visible = attention_mask.bool()
        if not torch.compiler.is_compiling():
            begins = visible[:, 1:] & ~visible[:, :-1]
            runs = begins.sum(-1) + visible[:, 0]
            if bool((runs <= 1).all()):
                return attention_mask.new_empty(0)
        return (visible.cumsum(-1) - 1) * visible


@replaces("bloom.BloomAttention")
class _BloomAttention(Decoding):
    """Attention by `rel_bias`: the model's slopes times the distance."""

    def prepare(self) -> Attributes:
        build: Any = import_module(type(self).__module__)
        positions = torch.ones(1, 2)  # the second token is at position 1
        biases = build.build_alibi_tensor(positions, self.num_heads, torch.float32)
        return {"slopes": biases[:, 0, 1]}

    def forward(
        self,
        hidden_states: torch.Tensor,
        residual: torch.Tensor,
        alibi: torch.Tensor,
        attention_mask: torch.Tensor,
        layer_past: Any = None,
        use_cache: bool = False,
        output_attentions: bool = False,
        **keywords: Any,
    ) -> Any:
        cache = self.check_call(layer_past, None, attention_mask, keywords)
        rows = self.query_key_value(hidden_states)
        # one gradient of all, where the slices of the model's own have three
        heads = rows.unflatten(-1, (self.num_heads, 3, self.head_dim)).unbind(-2)
        query, key, value = (x.transpose(1, 2) for x in heads)
        key, value, offset = self.extended(cache, key, value)
        slopes = self.slopes.to(query.device)
        bias = slopes.new_empty(0)
        if alibi.dim() == 2:
            query, key = self._widened(query, key, alibi, slopes)
        else:
            bias = linear_bias(slopes, key.shape[-2], query.dtype)
        out, weights = attention_function(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attention_dropout.p if self.training else 0.0,
            scaling=self.inv_norm_factor,
            position_bias=bias,
            query_offset=offset,
            output_attentions=output_attentions,
        )
        out = self._projected(out.flatten(-2).to(value.dtype))
        out = dropout(out, self.hidden_dropout, self.training)
        return residual + out, weights

    def _projected(self, out: torch.Tensor) -> torch.Tensor:
        if self.pretraining_tp > 1 and self.slow_but_exact:
            # the model adds products of slices, and leaves out the bias
            return linear(out, self.dense.weight)
        projected: torch.Tensor = self.dense(out)
        return projected

    def _widened(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        positions: torch.Tensor,
        slopes: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return query and key with a column whose product is slope times position."""
        # Products are scaled, and biases are not. Numbers of 16 bits become float32.
        factors = (slopes / self.inv_norm_factor)[:, None, None]
        columns = positions[:, None, :, None].to(slopes.dtype)
        return (
            torch.cat([query, factors.expand(*query.shape[:-1], 1)], dim=-1),
            torch.cat([key, columns.expand(*key.shape[:-1], 1)], dim=-1),
        )
