"""Models of transformers of two layers at base size, for inputs that are short.

They are whole: embeddings, attention, feed-forward and norms, with random weights. A
small vocabulary keeps the gradient of its table from taking most of a step. Models of
speech begin behind the convolutions that make frames of sound, which take longer than
two layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers

from benchmarks.layers import WAYS, Caught, made

LENGTHS, BATCHES = (16, 64, 256, 512, 2048), (1, 8)
#: Longer inputs are measured alone, not in a batch.
LONGEST_IN_A_BATCH = 256
VOCABULARY = 1000


class Size(NamedTuple):
    """Width of a token, heads, and pixels of an image along each axis."""

    width: int
    heads: int
    image: int


BASE = Size(width=768, heads=12, image=224)


class Model(NamedTuple):
    """A model's class, its settings for a size, its inputs and the ways that it has."""

    model: Any
    settings: Callable[[Size], dict[str, Any]]
    call: Callable[[Any, int, int, Size], Caught]
    ways: tuple[str, ...]
    #: The tokens that attend to one another, of a model of images.
    length: int | None = None


def works(name: str, size: Size = BASE) -> dict[str, Any]:
    """The model of a name in each of its ways, which share their weights.

    A short input takes about as long as reading the weights. With weights of its own, a
    way is faster or slower by up to 8 %, depending on where they lie in memory (AMD
    EPYC, family 25, model 17).
    """
    model = MODELS[name]
    models = {way: made(model.model, model.settings(size), way) for way in model.ways}
    first, *others = models.values()
    for other in others:
        other.load_state_dict(first.state_dict(keep_vars=True), assign=True)
    return models


def rows(name: str) -> list[tuple[int, int]]:
    """Length and batch of each row of a model."""
    length = MODELS[name].length
    if length is not None:
        return [(length, batch) for batch in BATCHES]
    return [
        (length, batch)
        for length in LENGTHS
        for batch in BATCHES
        if batch == 1 or length <= LONGEST_IN_A_BATCH
    ]


def few_rows(name: str) -> list[tuple[int, int]]:
    """Length and batch of each row of a model that other settings have as well."""
    return [
        (length, batch)
        for length, batch in rows(name)
        if batch == 1 and length in (16, 64, 512, MODELS[name].length)
    ]


# ---- calls ---------------------------------------------------------------------------


def _of_tokens(model: Any, batch: int, length: int, size: Size) -> Caught:
    tokens = torch.randint(VOCABULARY, (batch, length))
    return Caught(model, (tokens,), {"attention_mask": torch.ones_like(tokens)})


def _without_cache(model: Any, batch: int, length: int, size: Size) -> Caught:
    call = _of_tokens(model, batch, length, size)
    return call._replace(keywords={**call.keywords, "use_cache": False})


def _of_frames(model: Any, batch: int, length: int, size: Size) -> Caught:
    # without a mask, for which encoders write zeros into their input
    frames = torch.randn(batch, length, size.width).requires_grad_()
    return Caught(model.encoder, (frames,), {})


def _of_pixels(model: Any, batch: int, length: int, size: Size) -> Caught:
    return Caught(model, (torch.randn(batch, 3, size.image, size.image),), {})


# ---- settings ------------------------------------------------------------------------


def _bert(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": size.width,
        "intermediate_size": 4 * size.width,
        "num_hidden_layers": 2,
        "num_attention_heads": size.heads,
        "max_position_embeddings": 2048,
    }


def _deberta(size: Size) -> dict[str, Any]:
    """DeBERTa V3, whose positions are relative alone."""
    return {
        **_bert(size),
        "type_vocab_size": 0,
        "position_biased_input": False,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 256,
        "max_relative_positions": 512,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
    }


def _t5(size: Size) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "d_model": size.width,
        "d_kv": size.width // size.heads,
        "d_ff": 4 * size.width,
        "num_layers": 2,
        "num_heads": size.heads,
        # ReLU's gradient jumps where rounding changes the sign of its input.
        "feed_forward_proj": "gelu",
    }


def _llama(size: Size) -> dict[str, Any]:
    return {
        **_bert(size),
        "intermediate_size": 8 * size.width // 3,
        "num_key_value_heads": size.heads,
        "pad_token_id": 0,
    }


def _speech(size: Size) -> dict[str, Any]:
    return {
        "hidden_size": size.width,
        "intermediate_size": 4 * size.width,
        "num_hidden_layers": 2,
        "num_attention_heads": size.heads,
    }


def _conformer(size: Size) -> dict[str, Any]:
    return {**_speech(size), "position_embeddings_type": "relative"}


def _swin(size: Size) -> dict[str, Any]:
    """The first stage of Swin, of which each layer is narrower than its name says."""
    return {
        "image_size": size.image,
        "embed_dim": size.width // 6,
        "depths": [2],
        "num_heads": [size.heads // 3],
    }


def _beit(size: Size) -> dict[str, Any]:
    return {
        "image_size": size.image,
        "hidden_size": size.width,
        "intermediate_size": 4 * size.width,
        "num_hidden_layers": 2,
        "num_attention_heads": size.heads,
        "use_relative_position_bias": True,
    }


REGISTERED = ("eager", "sdpa", "registered")
REPLACED = ("eager", "replaced")
MODELS = {
    "BERT": Model(transformers.BertModel, _bert, _of_tokens, REGISTERED),
    "T5, encoder": Model(transformers.T5EncoderModel, _t5, _of_tokens, WAYS),
    "Llama": Model(transformers.LlamaModel, _llama, _without_cache, REGISTERED),
    "DeBERTa V3": Model(transformers.DebertaV2Model, _deberta, _of_tokens, REPLACED),
    "WavLM": Model(transformers.WavLMModel, _speech, _of_frames, REPLACED),
    "Wav2Vec2-Conformer": Model(
        transformers.Wav2Vec2ConformerModel, _conformer, _of_frames, WAYS
    ),
    "Swin": Model(transformers.SwinModel, _swin, _of_pixels, REGISTERED, 49),
    "BEiT": Model(transformers.BeitModel, _beit, _of_pixels, REGISTERED, 197),
}
