"""One attention layer of each model of transformers, with what the model calls it with.

Heads are those that models have in common, 8 of 64 (`benchmarks.families` has others),
and a batch of one text without padding; weights are random. A layer is caught inside a
model of one layer: with its own mask and positions, which are made once for all layers
and not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers
from torch.utils._pytree import tree_leaves, tree_map
from transformers.modeling_outputs import ModelOutput
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nAudioEncoder
from transformers.models.gemma4.modeling_gemma4 import Gemma4AudioModel
from transformers.models.inkling.modeling_inkling import InklingTextModel

import relpos.torch

WIDTH, HEADS, DIM = 512, 8, 64
LENGTHS = (512, 2048)

#: Ways of a layer: the model's own code, or relpos by the registry or in its place.
WAYS = ("eager", "sdpa", "registered", "replaced")


class Layer(NamedTuple):
    """A model of one layer, how it is called, and the class of its attention."""

    model: Any
    settings: dict[str, Any]
    call: Callable[[Any, Any], Any]
    attention: str
    ways: tuple[str, ...]
    width: int = WIDTH
    lengths: tuple[int, ...] = LENGTHS
    batches: tuple[int, ...] = (1,)


class Caught(NamedTuple):
    """An attention module and the arguments of its call."""

    module: torch.nn.Module
    inputs: tuple[Any, ...]
    keywords: dict[str, Any]

    def forward(self) -> Any:
        with torch.no_grad():
            return first(self.module(*self.inputs, **self.keywords))

    def step(self) -> list[Any]:
        """The output, and gradients of what comes in and of all parameters."""
        inputs, keywords = tree_map(_leaf, (self.inputs, self.keywords))
        out = first(self.module(*inputs, **keywords))
        arguments = tree_leaves((inputs, keywords))
        leaves = [
            x for x in arguments if isinstance(x, torch.Tensor) and x.requires_grad
        ]
        leaves += self.module.parameters()
        grads = torch.autograd.grad(
            out, leaves, torch.ones_like(out), allow_unused=True
        )
        return [out.detach(), *grads]


def first(out: Any) -> Any:
    """The output itself, without what goes to the next layer or beside it."""
    return out[0] if isinstance(out, tuple | ModelOutput) else out


def _leaf(x: Any) -> Any:
    if isinstance(x, torch.Tensor) and x.dtype.is_floating_point and x.requires_grad:
        return x.detach().requires_grad_()
    return x


def made(kind: Any, settings: dict[str, Any], way: str) -> Any:
    """A model in one of the ways, in eval mode, with the same random weights in all."""
    config = kind.config_class(**settings)
    config._attn_implementation = {"registered": "relpos", "sdpa": "sdpa"}.get(
        way, "eager"
    )
    relpos.torch.register()
    torch.manual_seed(0)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            fresh = torch.randn_like(parameter)
            # Biases and scales around 1; matrices so that products keep the size.
            if parameter.ndim < 2:
                parameter.copy_(1 + fresh / 4)
            else:
                parameter.copy_(fresh * parameter.shape[-1] ** -0.5)
    if way == "replaced":
        relpos.torch.replace_attention(model)
    return model


def caught(layer: Layer, way: str, length: int, batch: int = 1) -> Caught:
    """The attention of a model, made and called in one of the ways."""
    model = made(layer.model, layer.settings, way)
    names = layer.attention, layer.attention.replace("Attention", "SdpaAttention")
    module = next(m for m in model.modules() if type(m).__name__ in names)
    calls: list[Caught] = []

    def catch(module: Any, inputs: Any, keywords: Any) -> None:
        calls.append(Caught(module, inputs, keywords))

    hook = module.register_forward_pre_hook(catch, with_kwargs=True)
    layer.call(model, torch.randn(batch, length, layer.width).requires_grad_())
    hook.remove()
    return calls[0]


def encoder(model: Any, x: Any) -> None:
    model(inputs_embeds=x, attention_mask=torch.ones(x.shape[:2], dtype=torch.long))


def decoder(model: Any, x: Any) -> None:
    mask = torch.ones(x.shape[:2], dtype=torch.long)
    model(inputs_embeds=x, attention_mask=mask, use_cache=False)


def speech(model: Any, x: Any) -> None:
    model.encoder(1 * x, attention_mask=torch.ones(x.shape[:2], dtype=torch.bool))


def _gemma3n(model: Any, x: Any) -> None:
    model.conformer[0](x, torch.zeros(x.shape[:2], dtype=torch.bool))


def _gemma4(model: Any, x: Any) -> None:
    model.subsample_conv_projection = _Given(x)
    model(x)


class _Given(torch.nn.Module):
    """Stands in for what shortens sound, so that a length is the layer's own."""

    def __init__(self, hidden: Any) -> None:
        super().__init__()
        self.hidden = hidden

    def forward(self, *_: Any) -> Any:
        return 1 * self.hidden, torch.ones(self.hidden.shape[:2], dtype=torch.bool)


TEXT = {
    "vocab_size": 8,
    "hidden_size": WIDTH,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": DIM,
    "pad_token_id": 0,
    "layer_types": ["full_attention"],
}
SPEECH = {
    "hidden_size": WIDTH,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
}
T5 = {
    "vocab_size": 8,
    "d_model": WIDTH,
    "d_kv": DIM,
    "d_ff": 8,
    "num_layers": 1,
    "num_heads": HEADS,
}

LAYERS = {
    "T5, encoder": Layer(transformers.T5EncoderModel, T5, encoder, "T5Attention", WAYS),
    "Inkling, full layer": Layer(
        InklingTextModel,
        {
            **TEXT,
            "layer_types": ["hybrid"],
            "mlp_layer_types": ["dense"],
        },
        decoder,
        "InklingAttention",
        WAYS,
    ),
    "Wav2Vec2-Conformer": Layer(
        transformers.Wav2Vec2ConformerModel,
        {**SPEECH, "position_embeddings_type": "relative"},
        speech,
        "Wav2Vec2ConformerSelfAttention",
        WAYS,
    ),
    "gpt-oss, full layer": Layer(
        transformers.GptOssModel,
        {**TEXT, "num_local_experts": 1, "num_experts_per_tok": 1},
        decoder,
        "GptOssAttention",
        ("eager", "registered"),
    ),
    "Gemma 2, full layer": Layer(
        transformers.Gemma2Model,
        TEXT,
        decoder,
        "Gemma2Attention",
        ("eager", "registered"),
    ),
    "Gemma 3, sliding layer": Layer(
        transformers.Gemma3TextModel,
        {**TEXT, "layer_types": ["sliding_attention"], "sliding_window": 512},
        decoder,
        "Gemma3Attention",
        ("eager", "sdpa", "registered"),
    ),
    "DeBERTa V3": Layer(
        transformers.DebertaV2Model,
        {
            **{name: TEXT[name] for name in TEXT if "head_dim" not in name},
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 256,
            "max_relative_positions": 512,
            "max_position_embeddings": 2048,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
        },
        encoder,
        "DisentangledSelfAttention",
        ("eager", "replaced"),
        lengths=(32, 128, 512, 2048),
        batches=(1, 8),
    ),
    "WavLM": Layer(
        transformers.WavLMModel,
        SPEECH,
        speech,
        "WavLMAttention",
        ("eager", "replaced"),
    ),
    "Gemma 3n, audio": Layer(
        Gemma3nAudioEncoder,
        {
            "hidden_size": WIDTH,
            "conf_num_attention_heads": HEADS,
            "conf_num_hidden_layers": 1,
        },
        _gemma3n,
        "Gemma3nAudioAttention",
        ("eager", "replaced"),
    ),
    "Gemma 4, audio": Layer(
        Gemma4AudioModel,
        {
            "hidden_size": WIDTH,
            "num_attention_heads": HEADS,
            "num_hidden_layers": 1,
            "output_proj_dims": 8,
        },
        _gemma4,
        "Gemma4AudioAttention",
        ("eager", "replaced"),
    ),
}
