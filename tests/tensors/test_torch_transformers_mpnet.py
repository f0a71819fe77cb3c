"""MPNet: one table of biases, which the encoder hands to all layers."""

from __future__ import annotations

import hugging_families as families
import hugging_models as models
import pytest
import torch

CASE = families.CASES["mpnet"]


@pytest.mark.parametrize("side", ["left", "right"])
def test_equals_eager(side):
    families.check_as_eager(families.on_side(CASE, side))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(dtype):
    families.check_sixteen_bits(CASE, dtype)


def test_distances_that_share_a_bucket():
    original, model = families.pair(CASE, max_position_embeddings=160)
    x = torch.randn(1, 150, models.WIDTH, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted, got = (one(inputs_embeds=x)[0] for one in (original, model))
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


def test_a_table_with_more_rows_than_buckets():
    original, model = families.pair(CASE, relative_attention_num_buckets=40)
    x = torch.randn(1, 9, models.WIDTH, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted, got = (one(inputs_embeds=x)[0] for one in (original, model))
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


@pytest.mark.parametrize("masked", [False, True])
def test_weights_if_asked_for(masked):
    x = torch.randn(2, 9, models.WIDTH, generator=torch.Generator().manual_seed(0))
    call = {"inputs_embeds": x, "output_attentions": True}
    if masked:
        call["attention_mask"] = models.padded(9).long()
    found = []
    for one in families.pair(CASE):
        with torch.no_grad():
            found.append(one(**call).attentions)
        assert one(inputs_embeds=x).attentions is None
    for wanted, got in zip(*found, strict=True):
        assert got.shape == wanted.shape and families.largest(got - wanted) <= 1e-5


def test_positions_of_a_caller_are_refused():
    _, model = families.pair(CASE)
    with pytest.raises(ValueError, match=r"^position_ids, num_buckets: got others"):
        model.encoder.compute_position_bias(torch.ones(1, 2, 3), torch.ones(1, 2))
    attention = model.encoder.layer[0].attention.attn
    biases = torch.ones(1, 3, 2, 2)
    with pytest.raises(ValueError, match=r"^position_bias: got shape \(1, 3, 2, 2\)"):
        attention(torch.ones(1, 2, models.WIDTH), position_bias=biases)
