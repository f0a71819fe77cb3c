"""BLOOM and MPT: linear biases with the slopes of each model, padding and caches."""

from __future__ import annotations

import hugging_families as families
import pytest
import torch
import transformers

NAMES = ("bloom", "mpt")
HEADS = {"bloom": transformers.BloomForCausalLM, "mpt": transformers.MptForCausalLM}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_eager(name, side):
    families.check_as_eager(families.on_side(families.CASES[name], side))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_sixteen_bits(name, dtype):
    families.check_sixteen_bits(families.CASES[name], dtype)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_generates_the_same_tokens(name, side):
    families.check_generates(HEADS[name], families.CASES[name].settings, side)


@pytest.mark.parametrize("name", NAMES)
def test_with_a_cache_and_without_a_mask(name):
    """Attention is causal by itself: the model makes no mask."""
    original, model = families.pair(families.CASES[name])
    x = families.embeds()
    with torch.no_grad():
        wanted = original(inputs_embeds=x, use_cache=False).last_hidden_state
        whole = model(inputs_embeds=x, use_cache=False).last_hidden_state
        cache, parts = transformers.DynamicCache(config=model.config), []
        for part in x.split([4, 1, 3, 1], dim=1):
            out = model(inputs_embeds=part, past_key_values=cache, use_cache=True)
            parts.append(out.last_hidden_state)
    for got in (whole, torch.cat(parts, 1)):
        assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_that_is_not_causal(name, masked):
    """A decoder by its class: where nothing is padded, its model may make no mask."""
    original, model = families.pair(families.CASES[name])
    x, mask = families.embeds(), torch.ones(2, 9, dtype=torch.long) if masked else None
    for one in (original, model):
        one.config.is_causal = False
    # MPT's own code fails without a mask: none of all pairs is hidden
    given = torch.zeros(2, 1, 9, 9, dtype=torch.bool) if name == "mpt" else mask
    with torch.no_grad():
        wanted = original(inputs_embeds=x, attention_mask=given).last_hidden_state
        got = model(inputs_embeds=x, attention_mask=mask).last_hidden_state
        model.config.is_causal = True
        causal = model(inputs_embeds=x, attention_mask=mask).last_hidden_state
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)
    assert families.largest(causal - wanted) > 0.01 * families.largest(wanted)


@pytest.mark.parametrize("name", NAMES)
def test_masks_with_gaps(name):
    """BLOOM counts real tokens, and MPT all."""
    original, model = families.pair(families.CASES[name])
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, 3:5] = 0
    mask[1, [0, 4, 8]] = 0
    with torch.no_grad():
        wanted, got = (
            one(inputs_embeds=families.embeds(), attention_mask=mask).last_hidden_state
            for one in (original, model)
        )
    seen = mask.bool()
    assert families.largest((got - wanted)[seen]) <= 1e-5 * families.largest(wanted)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", ["call", "configuration"])
def test_weights_if_asked_for(name, way):
    original, model = families.pair(
        families.CASES[name], output_attentions=way == "configuration"
    )
    asked = {"output_attentions": True} if way == "call" else {}
    found = []
    for one in (original, model):
        with torch.no_grad():
            found.append(one(inputs_embeds=families.embeds(), **asked).attentions)
            more = {"output_attentions": False}
            assert one(inputs_embeds=families.embeds(), **more).attentions is None
    for wanted, got in zip(*found, strict=True):
        assert got.shape == wanted.shape and families.largest(got - wanted) <= 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_none_if_not_asked_for(name):
    _, model = families.pair(families.CASES[name])
    seen = []
    for module in model.modules():
        if type(module).__name__.endswith("Attention"):
            module.register_forward_hook(lambda *call: seen.append(call[-1][1]))
    model(inputs_embeds=families.embeds())
    assert seen == [None, None]


@pytest.mark.parametrize("heads", [1, 2, 5, 6, 8])
@pytest.mark.parametrize("name", NAMES)
def test_slopes_of_any_number_of_heads(name, heads):
    settings = {"hidden_size": 8 * heads, "n_heads": heads, "n_head": heads}
    settings["d_model"] = 8 * heads
    original, model = families.pair(families.CASES[name], **settings)
    x = families.embeds().repeat(1, 1, heads)[..., : 8 * heads]
    with torch.no_grad():
        wanted, got = (one(inputs_embeds=x)[0] for one in (original, model))
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


@pytest.mark.parametrize(
    "settings",
    [
        {"clip_qkv": 0.4, "softmax_scale": 0.9},
        {"alibi_bias_max": 3},
        {"alibi": False},
    ],
    ids=str,
)
def test_settings_of_mpt(settings):
    original, model = families.pair(families.CASES["mpt"], attn_config=settings)
    with torch.no_grad():
        wanted, got = (
            one(inputs_embeds=families.embeds())[0] for one in (original, model)
        )
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


def test_mpt_without_a_bias():
    """As a model would call attention that makes no biases."""
    original, model = families.pair(families.CASES["mpt"])
    mask = torch.ones(1, 1, 9, 9, dtype=torch.bool).triu(1)  # True hides
    wanted, got = (
        one.blocks[0].attn(families.embeds(), position_bias=None, attention_mask=mask)[
            0
        ]
        for one in (original, model)
    )
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)
    with pytest.raises(ValueError, match=r"position_bias: got shape \(3, 9, 9\)"):
        model.blocks[0].attn(families.embeds(), position_bias=torch.zeros(3, 9, 9))


def test_a_mask_of_pairs_that_a_caller_made():
    """MPT hides what is True in a mask of four axes."""
    original, model = families.pair(families.CASES["mpt"])
    mask = torch.ones(2, 1, 9, 9, dtype=torch.bool).triu(1)
    mask[1, 0, 5:, 2] = True
    with torch.no_grad():
        wanted, got = (
            one(inputs_embeds=families.embeds(), attention_mask=mask)[0]
            for one in (original, model)
        )
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


def test_products_of_slices_of_bloom():
    original, model = families.pair(
        families.CASES["bloom"], pretraining_tp=2, slow_but_exact=True
    )
    with torch.no_grad():
        wanted, got = (
            one(inputs_embeds=families.embeds())[0] for one in (original, model)
        )
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)
