"""Parts of transformers around attention that relpos does not serve."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers
from hugging_indexers import CASES
from hugging_inkling2 import IS_KNOWN, SETTINGS, kind_of
from hugging_models import CACHE, TEXT, Case, build

import relpos.torch as rt
from relpos.torch._transformers.interface import registry


@pytest.fixture
def llama():
    rt.register()
    return build(Case(transformers.LlamaForCausalLM, TEXT, None), "relpos")


def test_generate_batch_is_refused(llama):
    settings = transformers.GenerationConfig(max_new_tokens=2, eos_token_id=9)
    with pytest.raises(ValueError, match="Implementation relpos is not supported"):
        llama.generate_batch([[3, 1, 4], [1, 5]], generation_config=settings)


def test_a_quantized_cache_hands_over_converted_numbers(llama, monkeypatch):
    """Keys are floating-point numbers at each call, and tokens those of eager."""
    dtypes = []

    def noting(query, key, value, *args, **keywords):
        dtypes.append((key.dtype, value.dtype))
        return rt.attention(query, key, value, *args, **keywords)

    monkeypatch.setattr(registry, "attention", noting)
    eager = copy.deepcopy(llama)
    eager.set_attn_implementation("eager")
    draw = torch.Generator().manual_seed(2)
    prompt = torch.randint(3, 10, (2, 6), generator=draw)
    tokens = []
    for model in (eager, llama):
        cache = transformers.QuantizedCache("fp8", model.config)
        settings = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None}
        tokens.append(model.generate(prompt, **settings, **{CACHE: cache}))
        kept = cache.layers[0]._quantized_keys[0]
        assert kept.dtype == torch.float8_e4m3fn and kept.shape[2] == 9
    assert torch.equal(*tokens)
    assert len(dtypes) == 8 and {*dtypes} == {(torch.float32, torch.float32)}


@pytest.mark.parametrize("name", CASES)
def test_a_quantized_cache_has_no_place_for_an_indexer(name):
    """transformers refuses it for models whose keys an indexer picks."""
    config = CASES[name].model.config_class(**CASES[name].settings)
    with pytest.raises(ValueError, match="invalid layer types"):
        transformers.QuantizedCache("fp8", config)


@pytest.mark.skipif(IS_KNOWN, reason="this transformers has the attention")
def test_an_older_inkling2_is_refused_and_stays_eager():
    """Its attention is another one before transformers 5.24."""
    rt.register()
    case = Case(kind_of("inkling2", "TextModel"), SETTINGS, None)
    with pytest.warns(UserWarning, match=r"^Inkling2TextModel: .* stays eager"):
        model = build(case, "relpos")
    assert model.config._attn_implementation == "eager"
    with pytest.raises(ValueError, match=r"^model: got a Inkling2TextModel without"):
        rt.replace_attention(model)
