"""Longformer and LED: a window, and global tokens that all see; LED's decoder."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from transformers import EncoderDecoderCache

from relpos import recipes
from relpos.torch import attention, merge_attention
from relpos.torch._kept import is_plain_linear
from relpos.torch._transformers.adapters.base import (
    Caching,
    Masked,
    Swapped,
    attend_heads,
)
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch.nn._layer import join_heads, split_heads


class Masks(NamedTuple):
    """Masks of tokens (B, L), as a model makes them."""

    #: True for a token that is a key of windows.
    near: torch.Tensor
    #: True for padding; None where there is none.
    padding: torch.Tensor | None
    #: True for a global token; None where there is none.
    far: torch.Tensor | None


@replaces("longformer.LongformerSelfAttention", "led.LEDEncoderSelfAttention")
class _LongformerSelfAttention(Swapped):
    """Attention within a window, joined with that to the global tokens.

    Global tokens are queries of projections of their own, and see all tokens.
    """

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        is_index_masked: torch.Tensor | None = None,
        is_index_global_attn: torch.Tensor | None = None,
        is_global_attn: bool | None = None,
        output_attentions: bool = False,
    ) -> Any:
        found = {
            "attention_mask": attention_mask,
            "is_index_masked": is_index_masked,
            "is_index_global_attn": is_index_global_attn,
        }
        mask, is_masked, is_global = _checked(found, hidden_states)
        if mask.dtype == torch.bool:
            raise ValueError(
                "attention_mask: got a Tensor of torch.bool; expected one of numbers, "
                'as the model makes it with the attn_implementation "eager"'
            )
        if output_attentions:
            # The weights are a band (B, L, H, globals + window + 1), which relpos does
            # not make.
            original: Any = super()
            return original.forward(
                hidden_states,
                attention_mask=mask,
                is_index_masked=is_masked,
                is_index_global_attn=is_global,
                is_global_attn=is_global_attn,
                output_attentions=True,
            )
        # a text without padding needs no mask
        has_padding = torch.compiler.is_compiling() or bool(is_masked.any())
        masks = Masks(
            near=mask == 0,
            padding=is_masked if has_padding else None,
            far=is_global if is_global_attn else None,
        )
        rows = self._rows(hidden_states, masks)
        return (rows,)

    def _rows(self, x: torch.Tensor, masks: Masks) -> torch.Tensor:
        """Return the result (B, L, H * D), in which rows of padding are 0."""
        query = split_heads(self.query(x), self.num_heads)
        key, value = self.key(x), self.value(x)
        side = self.one_sided_attn_window_size
        if masks.far is None:
            near = {"window": (side, side)}
            if masks.padding is not None:
                near["attn_mask"] = masks.near[:, None, None]
            out = self._attend(query, key, value, **near)
            return _without(masks.padding, join_heads(out))
        # 1 for a key of windows, 2 for a global token
        numbers = masks.near.int() + 2 * masks.far.int()
        near, far, tokens = recipes.longformer(numbers, 2 * side)
        part = self._attend(query, key, value, **near, return_lse=True)
        key, value = (_taken(states, tokens) for states in (key, value))
        other = self._attend(query, key, value, **far, return_lse=True)
        out, _ = merge_attention(part.out, part.lse, other.out, other.lse)
        rows = _without(masks.padding, join_heads(out))
        # an item with fewer global tokens than another has others behind them
        is_own = torch.arange(tokens.shape[1]) < far["key_lengths"][:, None]
        global_rows = self._global_rows(x, tokens, masks.padding)
        return rows.index_put((masks.far,), global_rows[is_own])

    def _global_rows(
        self, x: torch.Tensor, tokens: torch.Tensor, padding: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the rows (B, G, H * D) of the global tokens (B, G)."""
        query = split_heads(self.query_global(_taken(x, tokens)), self.num_heads)
        mask = None if padding is None else ~padding[:, None, None]
        if self._are_few(tokens.shape[1]):
            return self._rows_of_few(query, x, mask)
        key, value = self.key_global(x), self.value_global(x)
        return join_heads(self._attend(query, key, value, attn_mask=mask))

    def _are_few(self, count: int) -> bool:
        """Return True where projecting global queries is faster than projecting x.

        Dropout is left to projected values, whose bias it scales, and autocast to the
        layers, which round.
        """
        if 2 * count > self.head_dim or (self.training and self.dropout):
            return False
        layers = self.key_global, self.value_global
        return not torch.is_autocast_enabled("cpu") and all(
            map(is_plain_linear, layers)
        )

    def _rows_of_few(
        self, query: torch.Tensor, x: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Return the rows (B, G, H * D) of global queries (B, H, G, D).

        A score q · (W x) is (q W) · x, and a sum of projected values is the projection
        of a sum. The tokens x are then keys and values as they are.
        """
        keys, values = self.key_global, self.value_global
        heads = self.num_heads, -1
        tokens = x[:, None]
        out = attention(
            query @ keys.weight.unflatten(0, heads),
            tokens,
            tokens,
            mask,
            scale=self.head_dim**-0.5,
            enable_gqa=True,
        )
        rows = join_heads(out @ values.weight.unflatten(0, heads).mT) + values.bias
        # The bias of keys adds one number to all scores of a query, which changes no
        # weight. Autograd gets its gradient of 0.
        return rows + 0 * keys.bias[:1]

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        **settings: Any,
    ) -> Any:
        """Compute attention of heads of queries, and rows of keys and values."""
        return attention(
            query,
            split_heads(key, self.num_heads),
            split_heads(value, self.num_heads),
            dropout_p=self.dropout if self.training else 0.0,
            **settings,
        )


@replaces("led.LEDDecoderAttention")
class _LEDDecoderAttention(Caching, Masked):
    """Attention to tokens before or to those of the encoder, without positions."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        key_value_states: torch.Tensor | None = None,
        cache: Any = None,
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool = False,
        *,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        cache = self.check_call(cache, past_key_values, attention_mask, keywords)
        query = split_heads(self.q_proj(hidden_states), self.num_heads)
        if key_value_states is None:
            key, value = self._own_states(hidden_states, cache)
        else:
            key, value = self._encoder_states(key_value_states, cache)
        out, weights = attend_heads(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.dropout,
            weighed=output_attentions,
            scale=self.scaling,
        )
        return self.out_proj(out), weights, cache

    def _projected(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        layers = self.k_proj, self.v_proj
        key, value = (split_heads(layer(x), self.num_heads) for layer in layers)
        return key, value

    def _own_states(self, x: torch.Tensor, cache: Any) -> Any:
        """Return keys and values of the decoder, with those of its cache."""
        if cache is None:
            return self._projected(x)
        if isinstance(cache, EncoderDecoderCache):
            cache = cache.self_attention_cache
        return cache.update(*self._projected(x), self.layer_idx)

    def _encoder_states(self, x: torch.Tensor, cache: Any) -> Any:
        """Return keys and values of the encoder, which are projected once."""
        if cache is None:
            return self._projected(x)
        if not isinstance(cache, EncoderDecoderCache):
            return cache.update(*self._projected(x), self.layer_idx)
        kept = cache.cross_attention_cache
        if cache.is_updated.get(self.layer_idx):
            layer = kept.layers[self.layer_idx]
            return layer.keys, layer.values
        cache.is_updated[self.layer_idx] = True
        return kept.update(*self._projected(x), self.layer_idx)


def _checked(masks: dict[str, torch.Tensor | None], x: torch.Tensor) -> Any:
    """Return masks, or raise unless each has a number for each token of x."""
    shape = tuple(x.shape[:2])
    for name, mask in masks.items():
        if mask is None or tuple(mask.shape) != shape:
            got = "None" if mask is None else f"shape {tuple(mask.shape)}"
            raise ValueError(
                f"{name}: got {got}; expected a Tensor of shape {shape}, as the model "
                "makes it"
            )
    return masks.values()


def _taken(x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the rows (B, G, columns) of tokens (B, G)."""
    items = torch.arange(len(tokens), device=tokens.device)
    return x[items[:, None], tokens]


def _without(padding: torch.Tensor | None, rows: torch.Tensor) -> torch.Tensor:
    """Return rows (B, L, columns) with 0 for padding."""
    return rows if padding is None else rows.masked_fill(padding[..., None], 0.0)
