"""Small models of transformers with attention of their own, and what is asked of them.

Each is called with texts padded on either side. Outputs and gradients by relpos have to
be those of its own eager code.
"""

from __future__ import annotations

import copy
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from hugging_models import BATCH, LENGTH, TEXT, TEXTS, WIDTH, Case, build, padded, run
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.granite_speech.modeling_granite_speech import (
    GraniteSpeechCTCEncoder,
)
from transformers.models.granite_speech_plus.modeling_granite_speech_plus import (
    GraniteSpeechPlusCTCEncoder,
)

import relpos.torch as rt
from relpos.torch._transformers.adapters import sam, swin, table

ENCODER = {
    "vocab_size": 12,
    "hidden_size": WIDTH,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
}


def text(model: Any, embeds: Any, left: bool = False) -> Any:
    mask = padded(embeds.shape[1], left, len(embeds))
    more = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    out = model(inputs_embeds=embeds, attention_mask=mask.long(), **more)
    return out.last_hidden_state, mask


def speech(model: Any, hidden: Any, left: bool = False) -> Any:
    mask = padded(hidden.shape[1], left, len(hidden))
    return model.encoder(1 * hidden, attention_mask=mask.long())[0], mask


def vits(model: Any, hidden: Any, left: bool = False) -> Any:
    mask = padded(hidden.shape[1], left, len(hidden))
    numbers = mask[..., None].to(hidden.dtype)
    encoder = model.text_encoder.encoder
    out = encoder(hidden, numbers, attention_mask=mask.long(), return_dict=True)
    return out.last_hidden_state, mask


def fastspeech(model: Any, hidden: Any, left: bool = False) -> Any:
    mask = padded(hidden.shape[1], left, len(hidden))
    out = model.decoder(hidden, attention_mask=mask[:, None], return_dict=True)
    return out.last_hidden_state, mask


def speecht5(model: Any, hidden: Any, answers: Any, left: bool = False) -> Any:
    mask = padded(hidden.shape[1], left, len(hidden))
    out = model(
        input_values=hidden,
        attention_mask=mask.long(),
        decoder_input_values=answers,
        use_cache=False,
    )
    return out.last_hidden_state, torch.ones(answers.shape[:2], dtype=torch.bool)


def xlnet(model: Any, embeds: Any, left: bool = False, **more: Any) -> Any:
    mask = padded(embeds.shape[1], left, len(embeds))
    types = torch.arange(embeds.shape[1]) // 4 % 2
    types = torch.stack([types, types.flip(0)]).repeat(len(embeds) // 2, 1)
    more = {"token_type_ids": types, **more}
    out = model(inputs_embeds=embeds, attention_mask=mask.to(embeds.dtype), **more)
    return out.last_hidden_state, mask


def one_direction(model: Any, embeds: Any, left: bool = False) -> Any:
    """Without a mask, as the model itself takes none for several texts."""
    types = torch.ones(embeds.shape[:2]).long()
    out = model(inputs_embeds=embeds, token_type_ids=types)
    return out.last_hidden_state, padded(LENGTH, left, len(embeds))


def two_streams(model: Any, embeds: Any, left: bool = False) -> Any:
    """Two tokens are predicted, which no query of the text sees but their own."""
    texts, length = embeds.shape[:2]
    places = torch.zeros(texts, 2, length)
    places[:, 0, 4] = places[:, 1, 6] = 1.0
    order = torch.zeros(texts, length, length)
    order[:, :, [4, 6]] = 1.0
    order[:, 6, 4] = 0.0
    streams = {"perm_mask": order, "target_mapping": places}
    out, _ = xlnet(model, embeds, left, **streams)
    return out, torch.ones(texts, 2, dtype=torch.bool)


def granite(model: Any, features: Any, left: bool = False) -> Any:
    """Without a mask, which the model does not take."""
    out = model(1 * features).last_hidden_state
    return out, torch.ones(out.shape[:2], dtype=torch.bool)


def granite5(model: Any, features: Any, left: bool = False) -> Any:
    """With a mask, of which a layer that halves the frames makes another one."""
    mask = padded(features.shape[1], left, len(features))
    out = model(1 * features, attention_mask=mask)
    return out.last_hidden_state, out.attention_mask.bool()


def globals_of(mask: Any) -> Any:
    """Global tokens of texts: one in the first, three in the second, and so on."""
    found = torch.zeros_like(mask)
    found[::2, 0] = found[1::2, 4] = found[1::2, 5] = found[1::2, 7] = True
    return found & mask


def longformer(model: Any, embeds: Any, left: bool = False, far: bool = True) -> Any:
    mask = padded(embeds.shape[1], left, len(embeds))
    more = {"global_attention_mask": globals_of(mask).long()} if far else {}
    out = model(inputs_embeds=embeds, attention_mask=mask.long(), **more)
    return out.last_hidden_state, mask


def led(model: Any, embeds: Any, answers: Any, left: bool = False) -> Any:
    mask = padded(embeds.shape[1], left, len(embeds))
    own = padded(answers.shape[1], left, len(answers))
    out = model(
        inputs_embeds=embeds,
        attention_mask=mask.long(),
        global_attention_mask=globals_of(mask).long(),
        decoder_inputs_embeds=answers,
        decoder_attention_mask=own.long(),
        use_cache=False,
    )
    return out.last_hidden_state, own


XLNET = {
    "vocab_size": 12,
    "d_model": WIDTH,
    "n_layer": 2,
    "n_head": 3,
    "d_inner": 16,
    "pad_token_id": 0,
}
DEBERTA = {
    **ENCODER,
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
}
SOUND = {
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "conv_dim": (8,),
    "conv_stride": (2,),
    "conv_kernel": (3,),
}
VITS = {
    **{name: ENCODER[name] for name in ENCODER if "i" in name[:6]},
    "num_attention_heads": 3,
    "window_size": 3,
    "ffn_dim": 16,
    "flow_size": WIDTH,
    "spectrogram_bins": 9,
    "upsample_initial_channel": 8,
    "upsample_rates": [2],
    "upsample_kernel_sizes": [4],
    "resblock_kernel_sizes": [3],
    "resblock_dilation_sizes": [[1]],
    "duration_predictor_filter_channels": 8,
    "posterior_encoder_num_wavenet_layers": 1,
    "prior_encoder_num_wavenet_layers": 1,
}
FASTSPEECH = {
    "hidden_size": WIDTH,
    "vocab_size": 12,
    "num_mel_bins": 8,
    "encoder_num_attention_heads": 3,
    "encoder_layers": 1,
    "encoder_linear_units": 16,
    "decoder_layers": 2,
    "decoder_num_attention_heads": 3,
    "decoder_linear_units": 16,
    "speech_decoder_postnet_layers": 2,
    "speech_decoder_postnet_units": 8,
    "duration_predictor_channels": 8,
    "energy_predictor_channels": 8,
    "pitch_predictor_channels": 8,
    "decoder_kernel_size": 3,
}
SPEECHT5 = {
    **SOUND,
    "hidden_size": WIDTH,
    "encoder_layers": 2,
    "encoder_attention_heads": 3,
    "encoder_ffn_dim": 16,
    "decoder_layers": 1,
    "decoder_ffn_dim": 16,
    "decoder_attention_heads": 3,
    "encoder_max_relative_position": 4,
}
#: Blocks of four frames.
GRANITE = {
    "input_dim": 12,
    "num_layers": 2,
    "hidden_dim": WIDTH,
    "num_heads": 3,
    "output_dim": 12,
    "context_size": 4,
    "max_pos_emb": 6,
    "conv_kernel_size": 3,
}
GRANITE5 = {
    "vocab_size": 12,
    "hidden_size": WIDTH,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_mel_bins": 3,
    "max_position_embeddings": 6,
    "context_size": 4,
    "conv_kernel_size": 3,
    "subsample_layers": [0],
}
FRAMES = ((BATCH, LENGTH, 12),)

CASES = {
    "mpnet": Case(transformers.MPNetModel, ENCODER, text),
    "bloom": Case(
        transformers.BloomModel,
        {**TEXT, "n_layer": 2, "n_head": 3},
        text,
        in_float64=False,
    ),
    "mpt": Case(
        transformers.MptModel,
        {"vocab_size": 12, "d_model": WIDTH, "n_heads": 3, "n_layers": 2}
        | {"max_seq_len": 48, "pad_token_id": 0},
        text,
        in_float64=False,
    ),
    "deberta v1": Case(transformers.DebertaModel, DEBERTA, text),
    "sew-d": Case(
        transformers.SEWDModel,
        {**ENCODER, **SOUND, "position_buckets": 4, "squeeze_factor": 1},
        speech,
    ),
    "fastspeech2": Case(transformers.FastSpeech2ConformerModel, FASTSPEECH, fastspeech),
    "vits": Case(transformers.VitsModel, VITS, vits),
    "speecht5": Case(
        transformers.SpeechT5Model,
        SPEECHT5,
        speecht5,
        ((BATCH, LENGTH, WIDTH), (BATCH, 5, WIDTH)),
    ),
    "granite speech": Case(GraniteSpeechCTCEncoder, GRANITE, granite, FRAMES),
    "granite speech plus": Case(GraniteSpeechPlusCTCEncoder, GRANITE, granite, FRAMES),
    "granite speech 5": Case(
        transformers.GraniteSpeech5Encoder,
        GRANITE5,
        granite5,
        FRAMES,
        in_float64=False,
    ),
}

CASES |= {
    "xlnet": Case(transformers.XLNetModel, XLNET, xlnet),
    "xlnet, two streams": Case(
        transformers.XLNetModel, XLNET, two_streams, in_float64=False
    ),
    "xlnet, one direction": Case(
        transformers.XLNetModel, {**XLNET, "attn_type": "uni"}, one_direction
    ),
}

LONGFORMER = {**ENCODER, "attention_window": 4, "attention_probs_dropout_prob": 0.0}
LED = {
    "vocab_size": 12,
    "d_model": WIDTH,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_encoder_position_embeddings": 32,
    "max_decoder_position_embeddings": 32,
    "attention_window": [4, 8],
    "pad_token_id": 0,
    "eos_token_id": None,
}
CASES |= {
    "longformer": Case(
        transformers.LongformerModel, LONGFORMER, longformer, in_float64=False
    ),
    "longformer, window alone": Case(
        transformers.LongformerModel,
        LONGFORMER,
        partial(longformer, far=False),
        in_float64=False,
    ),
    "led": Case(transformers.LEDModel, LED, led, TEXTS, in_float64=False),
}


def on_side(case: Case, side: str) -> Case:
    """The case with padding on a side."""
    return case._replace(call=partial(case.call, left=side == "left"))


def check_as_eager(case: Case, **settings: Any) -> Any:
    """Outputs and gradients in float32 and float64; return the replaced model."""
    model = build(case, "eager", **settings)
    original = copy.deepcopy(model)
    keys = model.state_dict().keys()
    assert rt.replace_attention(model)
    assert model.state_dict().keys() == keys
    assert [n for n, _ in model.named_modules()] == [
        n for n, _ in original.named_modules()
    ]
    if not case.in_float64:  # its own code rounds to float32
        check_results(run(case, original), run(case, model), torch.float32)
        return model
    wanted = run(case, copy.deepcopy(original).double())
    check_results(wanted, run(case, copy.deepcopy(model).double()), torch.float64)
    check_results(wanted, run(case, model), torch.float32)
    return model


def check_results(wanted: Any, got: Any, dtype: torch.dtype) -> None:
    """1e-5 of the largest entry in float32, 1e-12 in float64, and cancelled sums.

    The true gradient of some parameters is 0 (a bias of keys): no entry has to be
    closer than sixteen roundings of the largest gradient of all.
    """
    near = 1e-5 if dtype == torch.float32 else 1e-12
    (out, gradients), (mine, my_gradients) = wanted, got
    assert largest(mine - out) <= near * largest(out)
    present = {name: entry for name, entry in gradients.items() if entry is not None}
    assert present.keys() == {n for n, g in my_gradients.items() if g is not None}
    noise = 16 * torch.finfo(dtype).eps * max(map(largest, present.values()))
    for name, entry in present.items():
        error = largest(my_gradients[name] - entry)
        assert error <= max(near * largest(entry), noise), name


def largest(x: torch.Tensor) -> float:
    return x.abs().max().item()


def check_sixteen_bits(
    case: Case, dtype: torch.dtype, texts: int = BATCH, factor: float = 1.05
) -> None:
    """Compare the errors of a model with those of its own code, as below."""
    exact = build(case, "eager")
    original = as_loaded(copy.deepcopy(exact), dtype)
    model = copy.deepcopy(original)
    rt.replace_attention(model)
    check_errors(case, exact, (original, model), texts, factor)


#: With so many texts in a call, the ratios of errors vary by half a hundredth.
MANY = 256


def check_errors(
    case: Case, exact: Any, both: tuple[Any, Any], texts: int, factor: float
) -> None:
    """No further from the float32 model than eager's, times a factor.

    Layers around attention round as much, and their errors are random: those of eight
    calls are added. The ratios vary by a twentieth where a call has two texts.
    """
    dtype = next(both[0].parameters()).dtype
    errors = torch.zeros(2, dtype=torch.float64)
    draw = torch.Generator().manual_seed(1)
    shapes = [(texts, *shape[1:]) for shape in case.shapes]
    with torch.no_grad():
        for _ in range(8):
            inputs = [torch.randn(x, generator=draw).to(dtype) for x in shapes]
            wanted, visible = case.call(exact, *(x.float() for x in inputs))
            found = [case.call(one, *inputs)[0] for one in both]
            assert found[0].dtype == found[1].dtype
            for index, out in enumerate(found):
                errors[index] += (out.float() - wanted)[visible].square().sum()
    assert errors[1].sqrt() <= factor * errors[0].sqrt()


def as_loaded(model: Any, dtype: torch.dtype) -> Any:
    """Return a model in a dtype, but for modules that stay in float32."""
    parts = getattr(model, "_keep_in_fp32_modules_strict", None) or ()
    model.to(dtype)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if any(part in name for part in parts) and tensor.is_floating_point():
            tensor.data = tensor.data.float()
    return model


def check_generates(
    kind: Any, settings: dict[str, Any], side: str, registers: bool = False
) -> None:
    """The same tokens from a prompt that is padded, by one beam and by three.

    With `registers`, attention that is not replaced is relpos's, too.
    """
    model = build(Case(kind, settings, None), "eager")
    original = copy.deepcopy(model)
    rt.replace_attention(model)
    if registers:
        model.set_attn_implementation("relpos")
        assert model.config.get_text_config()._attn_implementation == "relpos"
    prompt = torch.randint(
        3, 10, (BATCH, 6), generator=torch.Generator().manual_seed(2)
    )
    mask = padded(6, side == "left").long()
    for beams in (1, 3):
        tokens = [
            one.generate(
                prompt * mask,
                attention_mask=mask,
                max_new_tokens=6,
                do_sample=False,
                num_beams=beams,
                pad_token_id=0,
                eos_token_id=None,
            )
            for one in (original, model)
        ]
        assert torch.equal(*tokens)
        assert len(tokens[0][0].unique()) > 2


class Largest(TorchDispatchMode):
    """Notes the most numbers of a tensor that an operation returns."""

    numbers = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), keywords: Any = None
    ) -> Any:
        out = function(*args, **(keywords or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, torch.Tensor):
                self.numbers = max(self.numbers, x.numel())
        return out


# ---- attention in vision, built without its model ------------------------------------

CONFIG = SimpleNamespace(
    hidden_size=24,
    num_attention_heads=3,
    image_size=40,
    patch_size=8,
    attention_dropout=0.0,
    attention_probs_dropout_prob=0.0,
    qkv_bias=True,
    use_rel_pos=True,
    use_relative_position_embeddings=True,
)
MAPS = [
    name for name, x in table.ADAPTERS.items() if x.adapter.__module__ == sam.__name__
]
WINDOWS = [
    name for name, x in table.ADAPTERS.items() if x.adapter.__module__ == swin.__name__
]


def vision_layer(name: str, **settings: Any) -> Any:
    """Attention with random weights, for a map of 5 x 5 or a window of 3 x 2."""
    home, kind, _ = table.ADAPTERS[name]
    build = getattr(import_module(home), kind)
    config = SimpleNamespace(**vars(CONFIG) | settings)
    if name in WINDOWS:
        layer = build(config, 24, 3, (3, 2))
    elif name == "VitDetAttention":
        layer = build(config, (5, 5))
    elif name == "SegGptAttention":
        layer = build(config)
    else:
        layer = build(config, 0)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            fresh = torch.randn(parameter.shape, generator=draw)
            parameter.copy_(fresh * parameter.shape[-1] ** -0.5)
    return layer.eval()


def pair(case: Case, **settings: Any) -> tuple[Any, Any]:
    """Return a model by its own code, and the same by relpos."""
    original = build(case, "eager", **settings)
    model = copy.deepcopy(original)
    rt.replace_attention(model)
    return original, model


def embeds(length: int = 9, batch: int = 2, seed: int = 3) -> torch.Tensor:
    """Return random embeddings of tokens."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(batch, length, WIDTH, generator=draw)
