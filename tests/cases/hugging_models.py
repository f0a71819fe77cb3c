"""Small models of transformers with random weights, and one call of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nAudioEncoder
from transformers.models.gemma4.modeling_gemma4 import Gemma4AudioModel
from transformers.models.inkling.modeling_inkling import InklingTextModel

BATCH, LENGTH, WIDTH = 2, 11, 24
#: The name of a model's argument for a cache, which transformers 5.24 renamed.
CACHE = "cache"
if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24):
    CACHE = "past_key_values"


class Case(NamedTuple):
    """A model's class, its settings, and how it is called."""

    model: Any
    settings: dict[str, Any]
    call: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((BATCH, LENGTH, WIDTH),)
    in_float64: bool = True  # whether its own code runs in it, without nan


def build(case: Case, attn_implementation: str, **more: Any) -> Any:
    """The model in evaluation mode, with random weights: logits are of order 1."""
    config = case.model.config_class(**case.settings | more)
    config._attn_implementation = attn_implementation
    model = case.model(config).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            fresh = torch.randn(parameter.shape, generator=draw)
            flat = parameter.ndim < 2
            parameter.copy_(
                1 + fresh / 4 if flat else fresh * parameter.shape[-1] ** -0.5
            )
    return model


def run(case: Case, model: Any) -> tuple[Any, dict[str, Any]]:
    """The output where nothing is padded, and all gradients of one sum over it."""
    draw = torch.Generator().manual_seed(1)
    dtype = next(model.parameters()).dtype
    inputs = [torch.randn(shape, generator=draw).to(dtype) for shape in case.shapes]
    for tensor in inputs:
        tensor.requires_grad_()
    out, visible = case.call(model, *inputs)
    out = out * visible[..., None]
    (out * torch.randn(out.shape, generator=draw).to(dtype)).sum().backward()
    given = {f"input {index}": tensor for index, tensor in enumerate(inputs)}
    named = {**given, **dict(model.named_parameters())}
    return out.detach(), {name: tensor.grad for name, tensor in named.items()}


def padded(length: int = LENGTH, left: bool = False, batch: int = BATCH) -> Any:
    """A mask of texts, of which every second one is shorter by three."""
    mask = torch.ones(batch, length, dtype=torch.bool)
    mask[1::2, slice(0, 3) if left else slice(length - 3, None)] = False
    return mask


def decoder(model: Any, embeds: Any) -> Any:
    mask = padded(left=True)
    out = model(inputs_embeds=embeds, attention_mask=mask.long(), use_cache=False)
    return out.last_hidden_state, mask


def both(model: Any, embeds: Any, decoder_embeds: Any) -> Any:
    mask, own = padded(), padded(decoder_embeds.shape[1])
    out = model(
        inputs_embeds=embeds,
        attention_mask=mask.long(),
        decoder_inputs_embeds=decoder_embeds,
        decoder_attention_mask=own.long(),
        use_cache=False,
    )
    return out.last_hidden_state, own


def text_encoder(model: Any, embeds: Any) -> Any:
    mask = padded()
    return model(inputs_embeds=embeds, attention_mask=mask.long())[0], mask


def speech_encoder(model: Any, hidden: Any) -> Any:
    mask = padded()
    return model.encoder(1 * hidden, attention_mask=mask)[0], mask


def gemma3n_audio(model: Any, mel: Any) -> Any:
    out = model(mel, ~padded(mel.shape[1]))
    return out.last_hidden_state, ~out.audio_mel_mask


def gemma4_audio(model: Any, mel: Any) -> Any:
    out = model(mel, padded(mel.shape[1]))
    return out.last_hidden_state, out.attention_mask


TEXT = {
    "vocab_size": 10,
    "hidden_size": WIDTH,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "pad_token_id": 0,
    "eos_token_id": None,
    "bos_token_id": None,
}
GEMMA = {
    **TEXT,
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention"],
}
T5 = {
    "vocab_size": 10,
    "d_model": WIDTH,
    "d_kv": 8,
    "d_ff": 16,
    "num_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 6,
    "dropout_rate": 0.0,
    "pad_token_id": 0,
}
SPEECH = {
    "vocab_size": 10,
    "hidden_size": WIDTH,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "conv_dim": (8,),
    "conv_stride": (2,),
    "conv_kernel": (3,),
    "num_feat_extract_layers": 1,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}
MEL = ((BATCH, 60, 16),)
TEXTS = ((BATCH, LENGTH, WIDTH), (BATCH, 7, WIDTH))

CASES = {
    "t5": Case(transformers.T5Model, T5, both, TEXTS),
    "mt5": Case(transformers.MT5Model, T5, both, TEXTS),
    "llama": Case(transformers.LlamaModel, TEXT, decoder, in_float64=False),
    "gpt-oss": Case(
        transformers.GptOssModel,
        {**GEMMA, "num_local_experts": 2, "num_experts_per_tok": 1},
        decoder,
        in_float64=False,
    ),
    "gemma2": Case(
        transformers.Gemma2Model,
        {**GEMMA, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 4},
        decoder,
        in_float64=False,
    ),
    "gemma3": Case(
        transformers.Gemma3TextModel,
        {**GEMMA, "query_pre_attn_scalar": 4},
        decoder,
        in_float64=False,
    ),
    "gemma4": Case(
        transformers.Gemma4TextModel,
        {**GEMMA, "global_head_dim": 6, "hidden_size_per_layer_input": 0},
        decoder,
        in_float64=False,
    ),
    "inkling": Case(
        InklingTextModel,
        {
            **TEXT,
            "swa_num_attention_heads": 4,
            "swa_num_key_value_heads": 2,
            "swa_head_dim": 6,
            "sliding_window_size": 4,
            "layer_types": ["hybrid_sliding", "hybrid"],
            "mlp_layer_types": ["dense", "dense"],
            "d_rel": 3,
            "rel_extent": 7,
            "log_scaling_n_floor": 4,
        },
        decoder,
        in_float64=False,
    ),
    "deberta": Case(
        transformers.DebertaV2Model,
        {
            **{name: TEXT[name] for name in TEXT if "head_dim" not in name},
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 4,
            "max_relative_positions": 8,
            "max_position_embeddings": 16,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "conv_kernel_size": 3,
        },
        text_encoder,
    ),
    "wavlm": Case(
        transformers.WavLMModel,
        {**SPEECH, "num_buckets": 8, "max_bucket_distance": 6},
        speech_encoder,
    ),
    "wav2vec2-conformer": Case(
        transformers.Wav2Vec2ConformerModel,
        {**SPEECH, "position_embeddings_type": "relative"},
        speech_encoder,
    ),
    "gemma3n audio": Case(
        Gemma3nAudioEncoder,
        {
            "input_feat_size": 16,
            "hidden_size": WIDTH,
            "conf_num_attention_heads": 3,
            "conf_num_hidden_layers": 2,
            "conf_attention_chunk_size": 4,
            "conf_attention_context_left": 5,
            "conf_attention_context_right": 1,
            "conf_attention_logit_cap": 3.0,
            "conf_reduction_factor": 1,
            "sscp_conv_channel_size": (4, 4),
        },
        gemma3n_audio,
        MEL,
    ),
    "gemma4 audio": Case(
        Gemma4AudioModel,
        {
            "hidden_size": WIDTH,
            "num_attention_heads": 3,
            "num_hidden_layers": 2,
            "subsampling_conv_channels": [16, 4],
            "attention_chunk_size": 4,
            "attention_context_left": 5,
            "attention_context_right": 2,
            "attention_logit_cap": 3.0,
            "output_proj_dims": 8,
        },
        gemma4_audio,
        MEL,
        in_float64=False,
    ),
}
