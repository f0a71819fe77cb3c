"""Speech: encoders of SpeechT5, VITS, FastSpeech2-Conformer and Granite Speech."""

from __future__ import annotations

import copy

import hugging_families as families
import hugging_models as models
import pytest
import torch

import relpos.torch as rt

GRANITE = ("granite speech", "granite speech plus", "granite speech 5")
NAMES = ("speecht5", "vits", "fastspeech2")


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", [*NAMES, *GRANITE])
def test_equals_eager(name, side):
    families.check_as_eager(families.on_side(families.CASES[name], side))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", [*NAMES, *GRANITE])
def test_sixteen_bits(name, dtype):
    families.check_sixteen_bits(families.CASES[name], dtype)


@pytest.mark.parametrize("window", [1, 12])
def test_windows_of_vits(window):
    families.check_as_eager(families.CASES["vits"], window_size=window)


def test_dropout_of_vits_acts_on_values_of_positions_too():
    """The mean of many draws is the result without dropout, and none is that result."""
    _, model = families.pair(families.CASES["vits"], attention_dropout=0.5)
    attention = model.text_encoder.encoder.layers[0].attention
    x = families.embeds()[:1]
    with torch.no_grad():
        attention.v_proj.weight.zero_()
        attention.v_proj.bias.zero_()  # what is left are values of positions
        wanted = attention(x)[0]
        attention.train()
        torch.manual_seed(0)
        draws = torch.stack([attention(x)[0] for _ in range(400)])
    off = families.largest(draws[0] - wanted)
    assert off > 0.1 * families.largest(wanted)
    assert families.largest(draws.mean(0) - wanted) <= 0.2 * off


def test_the_decoder_of_speecht5_stays():
    original, model = families.pair(families.CASES["speecht5"])
    kinds = [
        (name, type(module).__module__.partition(".")[0])
        for name, module in model.named_modules()
        if type(module).__name__ == "SpeechT5Attention"
    ]
    assert len(kinds) == 4
    for name, package in kinds:
        assert package == ("relpos" if "encoder.layers" in name else "transformers")
        assert "decoder" not in name or package == "transformers"
    assert model.config._attn_implementation == original.config._attn_implementation


def test_what_the_encoder_of_speecht5_does_not_take():
    _, model = families.pair(families.CASES["speecht5"])
    attention = model.encoder.wrapped_encoder.layers[0].attention
    with pytest.raises(ValueError, match=r"^cache, key_value_states: got"):
        attention(families.embeds(), key_value_states=families.embeds())
    biases = torch.ones(9, 9, 8)
    with pytest.raises(ValueError, match=r"^position_bias: got shape \(9, 9, 8\)"):
        attention(families.embeds(), position_bias=biases)
    whole = attention(families.embeds())[0]  # as in a decoder, without positions
    again = attention(families.embeds(), position_bias=torch.zeros(8, 8))[0]
    torch.testing.assert_close(again, whole)


@pytest.mark.parametrize("name", NAMES)
def test_weights_if_asked_for(name):
    found = []
    for one in families.pair(families.CASES[name]):
        parts = {"vits": "text_encoder.encoder", "fastspeech2": "decoder"}
        part = one.get_submodule(parts.get(name, "encoder"))
        more = {"return_dict": True}
        if name == "vits":
            more["padding_mask"] = torch.ones(2, 9, 1)
        with torch.no_grad():
            found.append(
                part(families.embeds(), **more, output_attentions=True).attentions
            )
        assert part(families.embeds(), **more).attentions is None
    assert len(found[0]) == 2
    for wanted, got in zip(*found, strict=True):
        assert got.shape == wanted.shape and families.largest(got - wanted) <= 1e-5


def test_fastspeech2_needs_its_positions():
    _, model = families.pair(families.CASES["fastspeech2"])
    attention = model.decoder.conformer_layers[0].self_attn
    with pytest.raises(ValueError, match=r"^pos_emb: got None; expected the embedding"):
        attention(families.embeds())
    rows = torch.randn(2, 17, models.WIDTH, generator=torch.Generator().manual_seed(1))
    both = attention(families.embeds(), pos_emb=rows)[0]
    for item in range(2):
        alone = attention(families.embeds()[[item]], pos_emb=rows[[item]])[0]
        torch.testing.assert_close(both[[item]], alone, rtol=1e-5, atol=1e-5)


# ---- Granite Speech, whose frames attend in blocks of four ---------------------------


def test_many_frames_of_granite5_in_bfloat16():
    """No further from the float32 model than eager's, where errors vary less."""
    case = families.CASES["granite speech 5"]
    families.check_sixteen_bits(case, torch.bfloat16, families.MANY, 1.0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_granite5_in_float64(side):
    """Its eager code rounds weights to float32, and that of PyTorch does not."""
    case = families.on_side(families.CASES["granite speech 5"], side)
    original = models.build(case, "sdpa").double()
    model = copy.deepcopy(original)
    rt.replace_attention(model)
    results = (models.run(case, one) for one in (original, model))
    families.check_results(*results, torch.float64)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("name", GRANITE)
def test_blocks_of_granite(name, length):
    """A part of a block, whole blocks, and both, without padding of the texts."""
    found = []
    for one in families.pair(families.CASES[name]):
        draw = torch.Generator().manual_seed(2)
        frames = torch.randn(2, length, 12, generator=draw, requires_grad=True)
        layer = one.layers[-1]
        attention = layer.self_attn if name.endswith("5") else layer.attn
        x = one.input_linear(frames)
        out = attention(x, one.attention_dists)
        out = out[0] if name.endswith("5") else out
        (out * torch.randn(out.shape, generator=draw)).sum().backward()
        found.append((out.detach(), frames.grad))
    for wanted, got in zip(*found, strict=True):
        assert got.shape == wanted.shape
        assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


@pytest.mark.parametrize("name", GRANITE)
def test_no_array_of_a_block_for_each_head(name):
    """The original has a score of each pair in blocks, which have 64 frames here."""
    sizes = []
    heads, frames, block = 3, 256, 64
    names = ("max_position_embeddings", "max_pos_emb")
    more = {n: block for n in names if n in families.CASES[name].settings}
    for one in families.pair(families.CASES[name], context_size=block, **more):
        x = torch.ones(1, frames, 12)
        with torch.no_grad(), families.Largest() as largest:
            one(x)
        sizes.append(largest.numbers)
    assert sizes[0] >= heads * frames * block > sizes[1]


@pytest.mark.parametrize("name", GRANITE)
def test_what_granite_does_not_take(name):
    _, model = families.pair(families.CASES[name])
    layer, argument = model.layers[0], "attention_dists"
    attend = getattr(layer, "attn", None)
    if name.endswith("5"):
        attend, argument = layer.self_attn, "position_embeddings"
    x, at = families.embeds(), model.attention_dists
    with pytest.raises(ValueError, match=rf"^{argument}: got shape \(3, 3\); expected"):
        attend(x, at[:3, :3])
    with pytest.raises(ValueError, match=rf"^{argument}: got rows that do not follow"):
        attend(x, at.flip(0))
    if name.endswith("5"):
        for mask in (torch.ones(2, 9), torch.ones(2, 1, 1, 9).bool()):
            with pytest.raises(ValueError, match=r"^attention_mask: got shape"):
                attend(x, at, mask)


def test_dropout_of_granite5_acts_on_weights():
    """The mean of many draws is the result without dropout, and none is that result."""
    case = families.CASES["granite speech 5"]
    _, model = families.pair(case, attention_dropout=0.5)
    attention, x = model.layers[0].self_attn, families.embeds()
    with torch.no_grad():
        wanted = attention(x, model.attention_dists)[0]
        attention.train()
        torch.manual_seed(0)
        draws = [attention(x, model.attention_dists)[0] for _ in range(400)]
    draws = torch.stack(draws)
    off = families.largest(draws[0] - wanted)
    assert off > 0.1 * families.largest(wanted)
    assert families.largest(draws.mean(0) - wanted) <= 0.2 * off
