"""The attention function that transformers calls by the name "relpos"."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from relpos.torch._transformers import causal
from relpos.torch._transformers.call import attend
from relpos.torch._transformers.eager import look_at_models
from relpos.torch._transformers.masks import beside_bias

#: The name in both registries.
NAME = "relpos"

#: What models hand down that says nothing new: positions are in queries, keys and mask.
_WITHOUT_EFFECT = {
    "cache_position",
    "cu_seq_lens_k",
    "cu_seq_lens_q",
    "deterministic",
    "is_training",
    "labels",
    "logits_to_keep",
    "max_length_k",
    "max_length_q",
    "num_items_in_batch",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "past_key_values",
    "position_ids",
    "return_dict",
    "seq_idx",
    "token_type_ids",
    "use_cache",
}

#: What changes the result and is none of `attention_function`'s arguments.
_REFUSED = {
    "alibi",
    "attention_bias",
    "bias",
    "block_indices",
    "block_mask",
    "cache",
    "head_mask",
    "indices",
    "score_mod",
    "sinks",
}


def register() -> None:
    """Add the attention and the mask function, and look at models from now on."""
    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, causal.visible_pairs)
    look_at_models(NAME)


def attention_function(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    sliding_window: int | None = None,
    query_offset: int | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attention of (B, H, L, D) for a module of a model; the result is (B, L, H, Dv).

    A module that `replace_attention` swapped has a method `position_terms`, which makes
    tables of what takes the place of the dense `position_bias`.
    """
    _check(keywords, attention_mask)
    queries, keys = query.shape[2], key.shape[2]
    hides = attention_mask is None and queries > 1
    if hides and is_causal is None:
        is_causal = causal.is_causal(module, queries, keys)
    hides = hides and bool(is_causal)
    if hides and query_offset is None:
        query_offset = 0  # the mask that is not there counts from the first key
    settings: dict[str, Any] = {"attn_mask": attention_mask}
    terms: Any = getattr(module, "position_terms", None)
    if terms is not None:
        settings.update(terms(position_bias))
    elif position_bias is not None:
        settings.update(beside_bias(position_bias, attention_mask))
    if sliding_window is not None and attention_mask is None and sliding_window < keys:
        settings["window"] = _window(sliding_window, hides)
    out, weights = attend(
        query,
        key,
        value,
        dropout_p=dropout,
        is_causal=hides,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
        query_offset=query_offset,
        softcap=softcap,
        sinks=s_aux,
        weighed=wants_weights(keywords),
        **settings,
    )
    return out.transpose(1, 2).contiguous(), weights


def wants_weights(keywords: dict[str, Any]) -> bool:
    """Whether the call asks for attention weights; a configuration cannot."""
    return bool(keywords.get("output_attentions"))


def _window(sliding_window: int, causal: bool) -> tuple[int, int]:
    """The window of a layer that is called without the mask that would have it."""
    if not causal:
        raise ValueError(
            f"sliding_window: got {sliding_window} for attention that is not causal, "
            "and no attention_mask; expected the mask that the model makes of it"
        )
    return sliding_window - 1, 0


def _check(keywords: dict[str, Any], mask: torch.Tensor | None) -> None:
    """Raise for what would change the result, warn of what is not known."""
    given = {name for name, value in keywords.items() if value is not None}
    for name in sorted(given & _REFUSED):
        raise ValueError(
            f"{name}: got a {type(keywords[name]).__name__}; expected None (the "
            'attn_implementation "relpos" has no such term; "eager" does)'
        )
    packed = keywords.get("cu_seq_lens_q")
    if packed is not None and mask is None and len(packed) > 2:
        raise ValueError(
            f"cu_seq_lens_q: got {len(packed) - 1} sequences and no mask that keeps "
            "them apart; expected position_ids that start again with each, of which "
            "the model makes the mask"
        )
    for name in sorted(given - _REFUSED - _WITHOUT_EFFECT):
        warnings.warn(
            f"{name}: attention by relpos does not know this argument, and leaves it "
            "out",
            UserWarning,
            stacklevel=3,
        )
