"""Inkling 2 and Inkling 2 Loop, whose tokens have sinks of their own."""

from __future__ import annotations

import copy
from importlib import import_module

import hugging_families as families
import hugging_models as models
import pytest
import torch
import transformers

import relpos.torch as rt

if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24):
    pytest.skip("their attention asks no registry yet", allow_module_level=True)

SETTINGS = {
    **models.TEXT,
    "vocab_size": 12,
    "unpadded_vocab_size": 12,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 6,
    "sliding_window_size": 4,
    "layer_types": ["hybrid_sliding", "hybrid"],
    "d_rel": 3,
    "rel_extent": 7,
    "log_scaling_n_floor": 4,
    "moe_intermediate_size": 16,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
}
FAMILIES = ("inkling2.Inkling2", "inkling2_loop.Inkling2Loop")
every_family = pytest.mark.parametrize("family", FAMILIES)


def kind_of(family, what):
    folder, prefix = family.split(".")
    home = f"transformers.models.{folder}.modeling_{folder}"
    return getattr(import_module(home), f"{prefix}{what}")


def case_of(family):
    model = kind_of(family, "TextModel")
    return models.Case(model, SETTINGS, families.text, in_float64=False)


@every_family
@pytest.mark.parametrize("side", ["right", "left"])
def test_equals_eager(family, side):
    families.check_as_eager(families.on_side(case_of(family), side))


@every_family
@pytest.mark.parametrize("side", ["right", "left"])
def test_generates_the_same_tokens(family, side):
    families.check_generates(kind_of(family, "ForCausalLM"), SETTINGS, side)


@every_family
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_cache(family, cache):
    """Prompts of several lengths, then token by token, past the window."""
    original, model = families.pair(case_of(family))
    x = families.embeds(12)
    found = []
    for one in (original, model):
        kept = transformers.DynamicCache(config=one.config)
        if cache == "static":
            kept = transformers.StaticCache(config=one.config, max_cache_len=12)
        parts = []
        with torch.no_grad():
            for part in x.split([3, 4, 1, 1, 1, 1, 1], dim=1):
                out = one(inputs_embeds=part, cache=kept, use_cache=True)
                parts.append(out.last_hidden_state)
        found.append(torch.cat(parts, dim=1))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)


@every_family
def test_sixteen_bits(family):
    families.check_sixteen_bits(case_of(family), torch.bfloat16)


@every_family
def test_both_ways_have_the_same_numbers(family):
    """By `register` the model makes the bias of all pairs itself."""
    case = case_of(family)
    rt.register()
    registered = models.build(case, "relpos")
    replaced = copy.deepcopy(registered)
    assert len(rt.replace_attention(replaced)) == 2
    families.check_results(
        models.run(case, registered), models.run(case, replaced), torch.float32
    )
