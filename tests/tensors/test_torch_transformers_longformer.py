"""Longformer and LED: windows, global tokens, and LED's decoder with its caches."""

from __future__ import annotations

import inspect
import pickle

import hugging_families as families
import hugging_models as models
import pytest
import torch
import transformers

NAMES = ("longformer", "longformer, window alone", "led")
LED = families.CASES["led"]
#: The argument of the cache in this version of transformers.
CACHE = {"cache", "past_key_values"}
CACHE &= inspect.signature(transformers.LEDModel.forward).parameters.keys()


def in_softmax_of_its_dtype(monkeypatch):
    """Let the model's own code keep float64, which its softmax rounds to float32."""
    own = torch.nn.functional.softmax

    def softmax(scores, dim, dtype=None):
        return own(scores, dim=dim)

    monkeypatch.setattr(torch.nn.functional, "softmax", softmax)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_eager(name, side, monkeypatch):
    case = families.on_side(families.CASES[name], side)
    families.check_as_eager(case)
    in_softmax_of_its_dtype(monkeypatch)
    families.check_as_eager(case._replace(in_float64=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_sixteen_bits(name, dtype):
    families.check_sixteen_bits(families.CASES[name], dtype)


@pytest.mark.parametrize("window", [6, 24])
@pytest.mark.parametrize("name", NAMES)
def test_windows(name, window):
    families.check_as_eager(families.CASES[name], attention_window=[window] * 2)


# ---- global tokens -------------------------------------------------------------------


def called(model, mask):
    """The result for a mask of 0, 1 and 2, which stand for padding, windows, global."""
    more = {"attention_mask": (mask > 0).long()}
    more["global_attention_mask"] = (mask == 2).long()
    length = mask.shape[1]
    with torch.no_grad():
        return model(inputs_embeds=families.embeds(length, len(mask)), **more)


MASKS = {
    "none in one item": [[1] * 9, [1, 2, 2, 1, 1, 1, 1, 1, 2]],
    "all": [[2] * 9, [2] * 7 + [0] * 2],
    "the last alone": [[1] * 8 + [2], [1] * 6 + [2, 0, 0]],
    "padding between": [[2, 1, 0, 0, 1, 1, 0, 2, 1], [0, 0, 2, 1, 0, 1, 1, 1, 0]],
    "padding alone in one item": [[2, 1, 1, 1, 1, 1, 1, 1, 1], [0] * 9],
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
def test_masks(masks):
    mask = torch.tensor(masks)
    wanted, got = (
        called(one, mask).last_hidden_state
        for one in families.pair(families.CASES["longformer"])
    )
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


@pytest.mark.parametrize("ways", ["many", "hooks"])
def test_projections_of_all_tokens(ways, monkeypatch):
    """All tokens are projected if globals are many, or if a hook sees projections."""
    seen = []

    def call(model, embeds):
        mask = torch.ones(embeds.shape[:2])
        mask[:, : 9 if ways == "many" else 2] = 2
        layer = model.encoder.layer[0].attention.self.key_global
        if ways == "hooks":
            layer.register_forward_hook(lambda *_: seen.append(1))
        return model(inputs_embeds=embeds, attention_mask=mask)[0], mask > 0

    in_softmax_of_its_dtype(monkeypatch)
    case = families.CASES["longformer"]._replace(call=call, in_float64=True)
    families.check_as_eager(case)
    assert len(seen) == (3 if ways == "hooks" else 0)


@pytest.mark.parametrize("name", NAMES)
def test_under_autocast(name):
    """No further from the float32 model than the model's own code, but for a tenth."""
    case = families.CASES[name]
    original, model = families.pair(case)
    draw = torch.Generator().manual_seed(1)
    inputs = [torch.randn(shape, generator=draw) for shape in case.shapes]
    with torch.no_grad():
        exact, visible = case.call(original, *inputs)
        with torch.autocast("cpu", torch.bfloat16):
            found = [case.call(one, *inputs)[0] for one in (original, model)]
    assert found[0].dtype == found[1].dtype
    errors = [(one - exact)[visible].square().sum() for one in found]
    assert errors[1].sqrt() <= 1.1 * errors[0].sqrt()


def test_each_item_is_as_alone():
    """An item does not depend on the other items of its batch."""
    _, model = families.pair(families.CASES["longformer"])
    mask = torch.tensor([[1] * 9, [2] * 3 + [1] * 6, [2] + [1] * 6 + [0] * 2])
    whole = called(model, mask).last_hidden_state
    x = families.embeds(9, 3)
    for item in range(3):
        one = mask[[item]]
        with torch.no_grad():
            alone = model(
                inputs_embeds=x[[item]],
                attention_mask=(one > 0).long(),
                global_attention_mask=(one == 2).long(),
            ).last_hidden_state
        torch.testing.assert_close(whole[[item]], alone, rtol=1e-5, atol=1e-5)


def test_rows_of_padding_are_0_and_globals_have_projections_of_their_own():
    _, model = families.pair(families.CASES["longformer"])
    layer = model.encoder.layer[0].attention.self
    x, mask = families.embeds(8, 1), torch.zeros(1, 8)
    mask[0, 6:], mask[0, 1] = -1.0, 1.0

    def rows():
        with torch.no_grad():
            return layer(x, *masks_of(mask))[0]

    before = rows()
    assert not before[0, 6:].any() and before[0, :6].any(-1).all()
    for name, changes in (("query", False), ("query_global", True)):
        with torch.no_grad():
            getattr(layer, name).weight.neg_()
        after = rows()
        assert bool((after != before)[0, 1].any()) == changes
        assert bool((after != before)[0, 2].any()) != changes
        before = after


def masks_of(mask):
    """The arguments of a layer after the hidden states."""
    return mask, mask < 0, mask > 0, bool((mask > 0).any())


def test_dropout_acts_on_each_pair():
    """The mean of many draws is the result without dropout, and none is that result."""
    _, model = families.pair(
        families.CASES["longformer"], attention_probs_dropout_prob=0.5
    )
    layer = model.encoder.layer[0].attention.self
    x, mask = families.embeds(8, 1), torch.zeros(1, 8)
    mask[0, 3] = 1.0
    with torch.no_grad():
        wanted = layer(x, *masks_of(mask))[0]
        layer.train()
        torch.manual_seed(0)
        draws = torch.stack([layer(x, *masks_of(mask))[0] for _ in range(400)])
    off = (draws[0] - wanted).abs().amax(-1)
    assert bool((off > 0.05 * families.largest(wanted)).all())
    assert families.largest(draws.mean(0) - wanted) <= 0.2 * off.max()


# ---- weights -------------------------------------------------------------------------


@pytest.mark.parametrize("masks", [[[1] * 9] * 2, *MASKS.values()][:3])
def test_weights_of_longformer_if_asked_for(masks):
    mask = torch.tensor(masks)
    found = []
    for one in families.pair(families.CASES["longformer"]):
        assert called(one, mask).attentions is None
        one.config.output_attentions = True
        found.append(called(one, mask))
    globals_ = (mask == 2).sum(-1).max()
    for name in ("attentions", "global_attentions"):
        wanted, got = (getattr(one, name) for one in found)
        if name == "global_attentions" and not globals_:
            assert wanted is None and got is None
            continue
        for x, y in zip(wanted, got, strict=True):
            assert x.shape == y.shape and families.largest(x - y) <= 1e-5
    assert found[1].attentions[0].shape == (2, 3, 9, globals_ + 4 + 1)


def test_weights_of_led_if_asked_for():
    found = []
    call = {"inputs_embeds": families.embeds(), "output_attentions": True}
    for one in families.pair(LED):
        with torch.no_grad():
            found.append(one(**call, decoder_inputs_embeds=families.embeds(5, seed=1)))
    for name in ("encoder_attentions", "decoder_attentions", "cross_attentions"):
        wanted, got = (getattr(one, name) for one in found)
        for x, y in zip(wanted, got, strict=True):
            assert x.shape == y.shape and families.largest(x - y) <= 1e-5


# ---- LED: caches and generation ------------------------------------------------------


def test_led_with_a_cache():
    """Steps have the rows of one call, and those of the model's own code."""
    found = []
    answers, mask = families.embeds(7, seed=4), models.padded(9).long()
    for one in families.pair(LED):
        states = one.encoder(inputs_embeds=families.embeds(), attention_mask=mask)
        call = {"encoder_outputs": states, "attention_mask": mask}
        caches = [transformers.DynamicCache(config=one.config) for _ in range(2)]
        cache = transformers.EncoderDecoderCache(*caches)
        rows = []
        with torch.no_grad():
            whole = one(**call, decoder_inputs_embeds=answers, use_cache=False)
            for part in answers.split([3, 1, 2, 1], dim=1):
                named = dict.fromkeys(CACHE, cache)
                out = one(**call, decoder_inputs_embeds=part, use_cache=True, **named)
                rows.append(out.last_hidden_state)
        assert [x.get_seq_length() for x in caches] == [7, 9]
        rows = torch.cat(rows, 1)
        torch.testing.assert_close(rows, whole.last_hidden_state, rtol=0, atol=1e-5)
        found.append(rows)
    torch.testing.assert_close(*found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("across", [False, True])
def test_a_layer_of_led_with_a_plain_cache(across):
    found = []
    for one in families.pair(LED):
        layer = one.decoder.layers[0].self_attn
        cache = transformers.DynamicCache(config=one.config)
        states = families.embeds(4, seed=1) if across else None
        with torch.no_grad():
            for part in families.embeds(5).split([1, 1, 3], dim=1):
                rows, _, kept = layer(part, states, cache)
        assert kept is cache and cache.get_seq_length() == (12 if across else 5)
        found.append(rows)
    torch.testing.assert_close(*found, rtol=0, atol=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("side", ["left", "right"])
def test_led_generates_the_same_tokens(side, beams):
    case = LED._replace(model=transformers.LEDForConditionalGeneration)
    both = families.pair(case, vocab_size=90, tie_word_embeddings=False)
    draw = torch.Generator().manual_seed(2)
    prompt = torch.randint(3, 90, (2, 9), generator=draw)
    mask = models.padded(9, side == "left").long()
    far = torch.stack([torch.arange(9) == 1, torch.arange(9) % 2 == 0]) * mask
    found = []
    for visible, more in ((mask, {"global_attention_mask": far}), (mask, {})):
        tokens = []
        for one in both:
            for name, parameter in one.named_parameters():
                if name.endswith("bias"):  # else they say which token comes next
                    parameter.data.zero_()
            out = one.generate(
                prompt * visible,
                attention_mask=visible,
                max_new_tokens=8,
                do_sample=False,
                num_beams=beams,
                pad_token_id=0,
                eos_token_id=None,
                **more,
            )
            tokens.append(out)
        assert torch.equal(*tokens)
        found.append(tokens[0])
    assert len(found[0][0].unique()) > 3
    assert not torch.equal(*found)  # global tokens matter


# ---- what is refused, what stays -----------------------------------------------------


def test_what_a_layer_does_not_take():
    _, model = families.pair(families.CASES["longformer"])
    layer = model.encoder.layer[0].attention.self
    x, mask = families.embeds(8, 1), torch.zeros(1, 8)
    with pytest.raises(ValueError, match=r"^attention_mask: got None; expected a Ten"):
        layer(x)
    with pytest.raises(ValueError, match=r"^is_index_masked: got None; expected a Te"):
        layer(x, mask)
    with pytest.raises(ValueError, match=r"^is_index_global_attn: got shape \(1, 7\)"):
        layer(x, mask, mask < 0, mask[:, 1:] > 0, False)
    with pytest.raises(ValueError, match=r"^attention_mask: got numbers from"):
        layer(x, mask, mask < 0, mask == 0, True)


def test_masks_of_another_implementation_are_refused():
    """The model would take its mask of bool, made for relpos, for one of numbers."""
    _, model = families.pair(families.CASES["longformer"])
    assert model.config._attn_implementation == "eager"
    model.config._attn_implementation = "relpos"
    with pytest.raises(ValueError, match=r"^attention_mask: got a Tensor of torch\.b"):
        model(inputs_embeds=families.embeds())
    model.config._attn_implementation = "eager"
    model(inputs_embeds=families.embeds())


@pytest.mark.parametrize("name", NAMES)
def test_it_is_pickled_and_returns_to_training(name):
    _, model = families.pair(families.CASES[name])
    again = pickle.loads(pickle.dumps(model))
    wanted, got = (models.run(families.CASES[name], x)[0] for x in (model, again))
    assert torch.equal(wanted, got)
