"""XLNet: streams of content and of queries, types of tokens, and a memory."""

from __future__ import annotations

import hugging_families as families
import hugging_models as models
import pytest
import torch
import transformers

CASE = families.CASES["xlnet"]
NAMES = ("xlnet", "xlnet, two streams", "xlnet, one direction")


def check_calls(pair, **call):
    """The same result of a call, of which the result by relpos is returned."""
    with torch.no_grad():
        wanted, got = (one(**call) for one in pair)
    off = families.largest(got.last_hidden_state - wanted.last_hidden_state)
    assert off <= 1e-5 * families.largest(wanted.last_hidden_state)
    return got


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_eager(name, side):
    families.check_as_eager(families.on_side(families.CASES[name], side))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(dtype):
    families.check_sixteen_bits(CASE, dtype)


@pytest.mark.parametrize(
    "settings",
    [
        {"bi_data": True},
        {"clamp_len": 3},
        {"attn_type": "uni", "same_length": True},
    ],
    ids=str,
)
def test_settings(settings):
    check_calls(families.pair(CASE, **settings), inputs_embeds=families.embeds(batch=4))


@pytest.mark.parametrize("types", [None, [0] * 9, [0, 0, 1, 1, 2, 4, 4, 7, 0]])
def test_types_of_tokens(types):
    call = {} if types is None else {"token_type_ids": torch.tensor([types, types])}
    both = families.pair(CASE)
    check_calls(both, inputs_embeds=families.embeds(), **call)
    memory = [
        x.transpose(0, 1)
        for x in (families.embeds(5, seed=1), families.embeds(5, seed=2))
    ]
    check_calls(both, inputs_embeds=families.embeds(), mems=memory, **call)


def test_segments_make_a_difference():
    """Pairs of one type differ from pairs of two."""
    _, model = families.pair(CASE)
    types = torch.tensor([[0] * 5 + [1] * 4] * 2)
    plain = model(inputs_embeds=families.embeds()).last_hidden_state
    typed = model(
        inputs_embeds=families.embeds(), token_type_ids=types
    ).last_hidden_state
    assert families.largest(plain - typed) > 1e-2


@pytest.mark.parametrize("kind", ["bi", "uni"])
def test_a_memory(kind):
    both = families.pair(CASE, attn_type=kind, mem_len=6)
    memories = [None, None]
    for seed in range(3):
        found = []
        for index, one in enumerate(both):
            with torch.no_grad():
                call = {
                    "inputs_embeds": families.embeds(5, seed=seed),
                    "use_mems": True,
                }
                found.append(one(**call, mems=memories[index]))
            memories[index] = found[-1].mems
        wanted, got = (x.last_hidden_state for x in found)
        assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


def test_queries_that_see_no_key():
    """The model gives them the mean of all values."""
    order = torch.ones(2, 9, 9).triu()
    places = torch.eye(9).expand(2, 9, 9)
    call = {"perm_mask": order, "target_mapping": places}
    check_calls(families.pair(CASE), inputs_embeds=families.embeds(), **call)


def test_positions_of_each_item():
    """In training dropout makes positions of items differ."""
    original, model = (one.layer[0].rel_attn for one in families.pair(CASE))
    h = families.embeds().transpose(0, 1)
    draw = torch.Generator().manual_seed(5)
    rows = torch.randn(18, 2, models.WIDTH, generator=draw)
    wanted, got = (one(h, None, None, None, rows, None)[0] for one in (original, model))
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


def test_it_trains_with_dropout():
    _, model = families.pair(CASE, dropout=0.2)
    model.train()
    model(
        inputs_embeds=families.embeds(),
        token_type_ids=torch.zeros(2, 9, dtype=torch.long),
    )
    out = model(inputs_embeds=families.embeds()).last_hidden_state
    out.square().sum().backward()
    assert torch.isfinite(model.layer[0].rel_attn.r.grad).all()


@pytest.mark.parametrize("name", NAMES[:2])
def test_weights_if_asked_for(name):
    found = []
    for one in families.pair(CASE):
        one.config.output_attentions = True
        with torch.no_grad():
            call = families.CASES[name].call
            seen = []
            one.register_forward_hook(lambda *call, seen=seen: seen.append(call[-1]))
            call(one, families.embeds())
        found.append(seen[0].attentions)
        assert (
            one(inputs_embeds=families.embeds(), output_attentions=False).attentions
            is None
        )
    for wanted, got in zip(*found, strict=True):
        streams = zip(wanted, got, strict=True)
        for x, y in streams if isinstance(wanted, tuple) else [(wanted, got)]:
            assert x.shape == y.shape and families.largest(x - y) <= 1e-5


def test_segments_of_pairs_are_refused():
    _, model = families.pair(CASE)
    attention = model.layer[0].rel_attn
    h, rows = families.embeds().transpose(0, 1), torch.ones(18, 2, models.WIDTH)
    with pytest.raises(ValueError, match=r"^seg_mat: got a Tensor; expected None"):
        attention(h, None, None, None, rows, torch.ones(9, 9, 2, 2))


@pytest.mark.parametrize("beams", [1, 3])
def test_generates_the_same_tokens(beams):
    case = CASE._replace(model=transformers.XLNetLMHeadModel)
    prompt = torch.randint(3, 12, (2, 6), generator=torch.Generator().manual_seed(2))
    more = {"do_sample": False, "num_beams": beams, "eos_token_id": None}
    tokens = [
        one.generate(prompt, max_new_tokens=6, pad_token_id=0, **more)
        for one in families.pair(case)
    ]
    assert torch.equal(*tokens)
    assert len(tokens[0][0].unique()) > 2
