"""Inkling 2 and Inkling 2 Loop, whose tokens have sinks of their own."""

from __future__ import annotations

import copy

import hugging_families as families
import hugging_models as models
import pytest
import torch
import transformers
from hugging_inkling2 import CASES, SETTINGS, kind_of

import relpos.torch as rt

every_family = pytest.mark.parametrize("name", CASES)


@every_family
@pytest.mark.parametrize("side", ["right", "left"])
def test_equals_eager(name, side):
    families.check_as_eager(families.on_side(CASES[name], side))


@every_family
@pytest.mark.parametrize("side", ["right", "left"])
def test_generates_the_same_tokens(name, side):
    families.check_generates(kind_of(name, "ForCausalLM"), SETTINGS, side)


@every_family
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_cache(name, cache):
    """Prompts of several lengths, then token by token, past the window."""
    original, model = families.pair(CASES[name])
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
def test_sixteen_bits(name):
    """All experts are picked, as a router that rounds would pick others."""
    case = CASES[name]
    case = case._replace(settings={**case.settings, "num_experts_per_tok": 2})
    families.check_sixteen_bits(case, torch.bfloat16, families.MANY, 1.0)


@every_family
def test_both_ways_have_the_same_numbers(name):
    """By `register` the model makes the bias of all pairs itself."""
    case = CASES[name]
    rt.register()
    registered = models.build(case, "relpos")
    replaced = copy.deepcopy(registered)
    assert len(rt.replace_attention(replaced)) == 2
    families.check_results(
        models.run(case, registered), models.run(case, replaced), torch.float32
    )
