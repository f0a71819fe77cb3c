"""One layer of each family that `replace_attention` serves, at its published base size.

They are models whose attention asks no registry of transformers. Where a module around
attention makes the bias of all pairs, the row is that module, an encoder of one layer
with a feed-forward network of 8 columns.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import torch
import transformers

from benchmarks.layers import LAYERS, Layer, decoder, encoder, speech

REPLACED = "eager", "replaced"
LENGTHS = 64, 512, 2048

# ---- calls ---------------------------------------------------------------------------


def _vits(model: Any, x: Any) -> None:
    ones = torch.ones(x.shape[:2])
    model.text_encoder.encoder(x, ones[..., None], attention_mask=ones.long())


def _fastspeech2(model: Any, x: Any) -> None:
    model.encoder.embed = None  # x is embedded
    model.encoder(1 * x, attention_mask=torch.ones(x.shape[0], 1, x.shape[1]).bool())


def _with_a_global_token(model: Any, x: Any) -> None:
    mask = torch.ones(x.shape[:2], dtype=torch.long)
    mask[:, 0] = 2
    model(inputs_embeds=x, attention_mask=mask)


def _of_map(model: Any, x: Any) -> None:
    """A square map of cells, as the encoder of SAM has it."""
    side = isqrt(x.shape[1])
    model.vision_encoder.layers[0](x.unflatten(1, (side, side)))


def _of_picture(model: Any, x: Any) -> None:
    model(torch.randn(1, 3, 256, 256))


# ---- settings ------------------------------------------------------------------------

BERT = {
    "vocab_size": 8,
    "hidden_size": 768,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 12,
    "max_position_embeddings": 2050,
    "pad_token_id": 0,
}
DEBERTA = {
    **BERT,
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
}
SEW_D = {
    **BERT,
    "squeeze_factor": 1,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}
LONGFORMER = {**BERT, "attention_window": 512, "max_position_embeddings": 4098}
XLNET = {"vocab_size": 8, "d_model": 768, "n_layer": 1, "n_head": 12, "d_inner": 8}
BLOOM = {"vocab_size": 8, "hidden_size": 1024, "n_layer": 1, "n_head": 16}
MPT = {"vocab_size": 8, "d_model": 2048, "n_heads": 16, "n_layers": 1}
SPEECHT5 = {
    "hidden_size": 768,
    "encoder_layers": 1,
    "encoder_attention_heads": 12,
    "encoder_ffn_dim": 8,
    "decoder_layers": 1,
    "decoder_ffn_dim": 8,
}
VITS = {"hidden_size": 192, "num_attention_heads": 2, "num_hidden_layers": 1}
FASTSPEECH2 = {"encoder_layers": 1, "decoder_layers": 1}
SAM = {
    "hidden_size": 768,
    "num_hidden_layers": 1,
    "num_attention_heads": 12,
    "global_attn_indexes": [0],
}
SWIN_V2 = {
    "image_size": 256,
    "window_size": 8,
    "embed_dim": 96,
    "depths": [1],
    "num_heads": [3],
}

FAMILIES = {
    "MPNet base, encoder": Layer(
        transformers.MPNetModel, BERT, encoder, "MPNetEncoder", REPLACED, 768, LENGTHS
    ),
    "XLNet base": Layer(
        transformers.XLNetModel,
        XLNET,
        encoder,
        "XLNetRelativeAttention",
        REPLACED,
        768,
        LENGTHS,
    ),
    "Longformer base": Layer(
        transformers.LongformerModel,
        LONGFORMER,
        encoder,
        "LongformerSelfAttention",
        REPLACED,
        768,
        (4096,),
    ),
    "Longformer base, one global token": Layer(
        transformers.LongformerModel,
        LONGFORMER,
        _with_a_global_token,
        "LongformerSelfAttention",
        REPLACED,
        768,
        (4096,),
    ),
    "BLOOM 560M": Layer(
        transformers.BloomModel,
        BLOOM,
        decoder,
        "BloomAttention",
        REPLACED,
        1024,
        LENGTHS,
    ),
    "MPT 1B": Layer(
        transformers.MptModel, MPT, decoder, "MptAttention", REPLACED, 2048, LENGTHS
    ),
    "DeBERTa V1 base": Layer(
        transformers.DebertaModel,
        DEBERTA,
        encoder,
        "DisentangledSelfAttention",
        REPLACED,
        768,
        LENGTHS,
    ),
    "SEW-D base": Layer(
        transformers.SEWDModel,
        SEW_D,
        speech,
        "DisentangledSelfAttention",
        REPLACED,
        768,
        LENGTHS,
    ),
    "SpeechT5, encoder": Layer(
        transformers.SpeechT5Model,
        SPEECHT5,
        speech,
        "SpeechT5Encoder",
        REPLACED,
        768,
        LENGTHS,
    ),
    "VITS, text encoder": Layer(
        transformers.VitsModel, VITS, _vits, "VitsAttention", REPLACED, 192, LENGTHS
    ),
    "FastSpeech2-Conformer": Layer(
        transformers.FastSpeech2ConformerModel,
        FASTSPEECH2,
        _fastspeech2,
        "FastSpeech2ConformerAttention",
        REPLACED,
        384,
        LENGTHS,
    ),
    "SAM ViT-B, 64 x 64 cells": Layer(
        transformers.SamVisionModel,
        SAM,
        _of_map,
        "SamVisionAttention",
        ("eager", "sdpa", "replaced"),
        768,
        (4096,),
    ),
    "Swin V2 tiny, 64 windows": Layer(
        transformers.Swinv2Model,
        SWIN_V2,
        _of_picture,
        "Swinv2SelfAttention",
        REPLACED,
        96,
        (64,),
    ),
}

#: All layers of the page: those of one size, then families at theirs.
ALL_LAYERS = LAYERS | FAMILIES
