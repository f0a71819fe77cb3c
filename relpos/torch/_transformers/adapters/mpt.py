"""MPT."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import torch
from transformers.masking_utils import create_causal_mask

from relpos.torch._transformers.adapters.base import (
    Caching,
    Decoding,
    linear_bias,
    one_cache,
)
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.names import check_terms
from relpos.torch._transformers.interface.registry import (
    attention_function,
    wants_weights,
)
from relpos.torch.nn._layer import split_heads

#: True in a call of a model that returns weights, of which its layers do not tell.
_WEIGHED = ContextVar("_WEIGHED", default=False)


@replaces("mpt.MptModel")
class _MptModel(Caching):
    """Makes the mask of its layers, which is True for hidden pairs, or empty."""

    attends = False

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        cache: Any = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        *,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        # what else the model does not read, it takes
        check_terms(keywords, attention_mask)
        cache = one_cache(cache, past_key_values)
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        token = _WEIGHED.set(bool(output_attentions))
        try:
            if inputs_embeds is None and input_ids is not None:
                inputs_embeds, input_ids = self.wte(input_ids), None
            original: Any = super()
            return original.forward(
                input_ids=input_ids,
                attention_mask=self._hidden(inputs_embeds, attention_mask, cache),
                inputs_embeds=inputs_embeds,
                use_cache=use_cache,
                output_attentions=output_attentions,
                output_hidden_states=output_hidden_states,
                return_dict=return_dict,
                **{self.cache_name: cache},
                **keywords,
            )
        finally:
            _WEIGHED.reset(token)

    def _hidden(self, embeds: Any, mask: torch.Tensor | None, cache: Any) -> Any:
        """Return a mask of four axes, which the model hands on as it is."""
        if embeds is None or (mask is not None and mask.dim() == 4):
            return mask
        visible = create_causal_mask(
            config=self.config,
            inputs_embeds=embeds,
            attention_mask=mask,
            **{self.cache_name: cache},
        )
        if visible is None:
            return torch.empty((0, 0, 0, 0), dtype=torch.bool, device=embeds.device)
        # numbers, of a configuration that is not set to relpos, hide by the lowest one
        return ~visible if visible.dtype == torch.bool else visible


@replaces("mpt.MptAttention")
class _MptAttention(Decoding):
    """Attention by `rel_bias`: slopes, read from the biases of the model."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_bias: torch.Tensor,
        cache: Any = None,
        attention_mask: torch.Tensor | None = None,
        *,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        cache = self.check_call(cache, past_key_values, attention_mask, keywords)
        rows = self.Wqkv(hidden_states)
        if self.clip_qkv:
            rows = rows.clamp(min=-self.clip_qkv, max=self.clip_qkv)
        query, key, value = (split_heads(x, self.n_heads) for x in rows.chunk(3, -1))
        key, value, offset = self.extended(cache, key, value)
        visible = None
        if attention_mask is not None and attention_mask.numel():
            visible = ~attention_mask.bool()
        out, weights = attention_function(
            self,
            query,
            key,
            value,
            visible,
            dropout=self.attn_dropout_p if self.training else 0.0,
            scaling=self.softmax_scale,
            position_bias=self._bias(position_bias, key),
            query_offset=offset,
            output_attentions=_WEIGHED.get() or wants_weights(self, keywords),
        )
        return self.out_proj(out.flatten(-2)), weights

    def _bias(self, biases: torch.Tensor | None, key: torch.Tensor) -> torch.Tensor:
        """Return the model's biases (H, 1, longest) by relative position, or nothing.

        They are slopes times positions up to 0. The order of the slopes is the model's.
        """
        if biases is None:
            return key.new_empty(0)
        if biases.dim() != 3 or biases.shape[1] != 1:
            raise ValueError(
                f"position_bias: got shape {tuple(biases.shape)}; expected "
                f"({self.n_heads}, 1, max_seq_len)"
            )
        if biases.shape[-1] == 1:  # the only token is at position 0
            return key.new_empty(0)
        return linear_bias(-biases[:, 0, -2], key.shape[-2], key.dtype)
