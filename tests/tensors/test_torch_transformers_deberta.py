"""DeBERTa's first version and SEW-D: two tables of projected embeddings."""

from __future__ import annotations

import hugging_families as families
import hugging_models as models
import pytest
import torch

import relpos.torch as rt

NAMES = ("deberta v1", "sew-d")
ONE = families.CASES["deberta v1"]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_equals_eager(name, side):
    families.check_as_eager(families.on_side(families.CASES[name], side))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_sixteen_bits(name, dtype):
    families.check_sixteen_bits(families.CASES[name], dtype)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_relative_positions": 4},  # shorter than the text
        {"pos_att_type": ["c2p"]},
        {"pos_att_type": ["p2c"]},
        {"pos_att_type": None},
        {"relative_attention": False},
    ],
    ids=str,
)
def test_settings_of_deberta(settings):
    families.check_as_eager(ONE, **settings)


@pytest.mark.parametrize("reach", [4, 32])
def test_positions_of_a_caller(reach):
    """Clipped by the length of the text, where that is shorter than the table."""
    original, model = families.pair(
        families.CASES["deberta v1"], max_relative_positions=reach
    )
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(-12, 12, (1, 9, 9), generator=draw)
    rows = rows - rows.transpose(1, 2)
    call = {"attention_mask": torch.ones(2, 9), "relative_pos": rows}
    wanted, got = (
        one.encoder(families.embeds(), **call)[0] for one in (original, model)
    )
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


def test_what_deberta_does_not_take():
    model = models.build(ONE, "eager", talking_head=True)
    before = [type(module) for module in model.modules()]
    with pytest.raises(ValueError, match=r"^model: got DeBERTa with talking_head=True"):
        rt.replace_attention(model)
    assert [type(module) for module in model.modules()] == before
    _, model = families.pair(families.CASES["deberta v1"])
    with pytest.raises(ValueError, match=r"^query_states: got a Tensor; expected None"):
        model.encoder(
            families.embeds(), torch.ones(2, 9), query_states=families.embeds()
        )


@pytest.mark.parametrize("name", NAMES)
def test_weights_if_asked_for(name):
    found = []
    for one in families.pair(families.CASES[name]):
        call = {"inputs_embeds": families.embeds()}
        if name == "sew-d":
            call = {"input_values": torch.linspace(-9, 9, 50).sin().repeat(2, 1)}
        with torch.no_grad():
            found.append(one(**call, output_attentions=True).attentions)
        assert one(**call).attentions is None
    assert len(found[0]) == 2
    for wanted, got in zip(*found, strict=True):
        assert got.shape == wanted.shape and families.largest(got - wanted) <= 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_projections_are_kept_in_inference(name):
    original, model = families.pair(families.CASES[name])
    for length in (9, 3, 9):
        mask = torch.ones(2, length, dtype=torch.long)
        with torch.no_grad():
            wanted, got = (
                one.encoder(families.embeds(length), attention_mask=mask)[0]
                for one in (original, model)
            )
        assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)
    first = model.encoder.layer[0] if name == "deberta v1" else None
    first = first or model.encoder.encoder.layer[0]
    assert first.attention.self in rt._kept._KEPT
    model.train()
    assert first.attention.self not in rt._kept._KEPT
