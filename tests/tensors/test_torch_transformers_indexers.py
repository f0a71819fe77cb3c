"""Indexers of sparse attention: the picks of the original, and its logits."""

from __future__ import annotations

import copy
import pickle

import hugging_families as families
import hugging_models as models
import pytest
import torch
import transformers
from hugging_indexers import CASES, MODEL_OF, generating

import relpos.torch as rt

every_model = pytest.mark.parametrize("name", CASES)
#: Masks are numbers to add by the one, and of bool by the other.
each_mask = pytest.mark.parametrize(
    ("name", "implementation"),
    [(name, "eager") for name in CASES]
    + [(name, "sdpa") for name, case in CASES.items() if case.model._supports_sdpa],
)
LENGTH = 12


def indexers_of(model):
    return [x for x in model.modules() if type(x).__qualname__ in MODEL_OF]


def pair(name, implementation="eager", **settings):
    """The model as it is, and with its indexers replaced."""
    original = models.build(CASES[name], implementation, **settings)
    model = copy.deepcopy(original)
    paths = rt.replace_attention(model)
    assert len(paths) == len(indexers_of(model)) > 0
    assert all(path.endswith(".indexer") for path in paths)
    assert model.config._attn_implementation == implementation
    return original, model


def picks_in(model, **call):
    """Run a model; return its result, and what each indexer returns."""
    picks = []
    hooks = [
        indexer.register_forward_hook(lambda module, args, out: picks.append(out))
        for indexer in indexers_of(model)
    ]
    with torch.no_grad():
        out = model(**call).last_hidden_state
    for hook in hooks:
        hook.remove()
    return out, picks


@pytest.fixture
def kept_scores(monkeypatch):
    """The scores of which an original indexer takes the largest, of each call."""
    kept, topk = [], torch.Tensor.topk

    def keeping(self, *args, **keywords):
        kept.append(self)
        return topk(self, *args, **keywords)

    monkeypatch.setattr(torch.Tensor, "topk", keeping)
    return kept


# ---- the same as the original's -----------------------------------------------------


@each_mask
@pytest.mark.parametrize("side", ["right", "left"])
def test_picks_are_the_originals(name, implementation, side, kept_scores):
    original, model = pair(name, implementation)
    mask = models.padded(LENGTH, side == "left")
    call = {"inputs_embeds": families.embeds(LENGTH), "use_cache": False}
    call["attention_mask"] = mask.long()
    wanted, their_picks = picks_in(original, **call)
    scores = [x for x in kept_scores if x.shape == (*mask.shape, LENGTH)]
    got, picks = picks_in(model, **call)
    assert len(scores) == len(their_picks) == len(picks)
    for of_pairs, theirs, mine in zip(scores, their_picks, picks, strict=True):
        assert mine.dtype == theirs.dtype == torch.int32
        assert mine.shape == theirs.shape == (*mask.shape, 3)
        assert (mine.sort().values.diff() > 0).all()
        # equal scores, of hidden keys among them, may be taken in any order
        torch.testing.assert_close(
            of_pairs.gather(-1, mine.long()), of_pairs.gather(-1, theirs.long())
        )
        seen = of_pairs.topk(3).values > -1e30
        assert seen.any() and not seen.all()
        assert torch.equal(mine[seen], theirs[seen])
    torch.testing.assert_close(got[mask], wanted[mask], rtol=1e-5, atol=1e-5)


@every_model
@pytest.mark.parametrize("side", ["right", "left"])
def test_equals_eager(name, side):
    families.check_as_eager(families.on_side(CASES[name], side))


@every_model
@pytest.mark.parametrize("registers_first", [True, False])
def test_both_ways_in_either_order(name, registers_first):
    """Without padding, for which other models have no mask."""
    rt.register()
    original = models.build(CASES[name], "eager")
    model = copy.deepcopy(original)
    if registers_first:
        model.set_attn_implementation("relpos")
    rt.replace_attention(model)
    model.set_attn_implementation("relpos")
    call = {"inputs_embeds": families.embeds(LENGTH), "use_cache": False}
    with torch.no_grad():
        wanted, got = (one(**call).last_hidden_state for one in (original, model))
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "relpos"])
def test_shared_keys_of_mistral(implementation):
    """The second layer has keys of the first one, and an indexer of its own."""
    rt.register()
    case = CASES["mistral large 4"]
    more = {"num_hidden_layers": 3, "kv_source_layers": [0, 0, 2]}
    original = models.build(case, "eager", **more)
    model = copy.deepcopy(original)
    assert len(rt.replace_attention(model)) == 3
    model.set_attn_implementation(implementation)
    x = families.embeds(LENGTH)
    found = []
    for one in (original, model):
        kept = transformers.DynamicCache(config=one.config)
        with torch.no_grad():
            parts = [
                one(inputs_embeds=part, use_cache=True, **{models.CACHE: kept})
                for part in x.split([5, 3, 1, 1, 1, 1], dim=1)
            ]
        found.append(torch.cat([part.last_hidden_state for part in parts], dim=1))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)


@each_mask
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_cache(name, cache, implementation):
    """A prompt in parts, then token by token: the indexer has a cache of its own."""
    x = families.embeds(LENGTH)
    found = []
    for one in pair(name, implementation):
        kept = transformers.DynamicCache(config=one.config)
        if cache == "static":
            kept = transformers.StaticCache(config=one.config, max_cache_len=LENGTH)
        with torch.no_grad():
            parts = [
                one(inputs_embeds=part, use_cache=True, **{models.CACHE: kept})
                for part in x.split([5, 3, 1, 1, 1, 1], dim=1)
            ]
        found.append(torch.cat([part.last_hidden_state for part in parts], dim=1))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)


@every_model
@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize("side", ["right", "left"])
def test_generates_the_same_tokens(name, side, registers):
    """By the model's own attention, and by relpos."""
    families.check_generates(*generating(name), side, registers)


@every_model
def test_sixteen_bits(name):
    """The picks are the original's, so that the same is rounded."""
    families.check_sixteen_bits(CASES[name], torch.bfloat16, factor=1.0)


@every_model
def test_a_pickle_has_the_same_class(name):
    original, model = pair(name)
    again = pickle.loads(pickle.dumps(model))
    assert [*map(type, indexers_of(again))] == [*map(type, indexers_of(model))]
    assert type(indexers_of(model)[0]) is not type(indexers_of(original)[0])
    assert again.state_dict().keys() == original.state_dict().keys()


# ---- what is stored, and refused -----------------------------------------------------


def arguments_of(indexer, length, mask):
    """The arguments of an indexer, by name."""
    config = indexer.config
    angles = torch.arange(length)[:, None] * torch.ones(config.qk_rope_head_dim)
    call = {
        "hidden_states": families.embeds(length)[:1],
        "position_embeddings": (angles.cos()[None], angles.sin()[None]),
        "attention_mask": mask,
        "position_ids": torch.arange(length)[None],
    }
    if "MistralLarge4" not in type(indexer).__qualname__:
        draw = torch.Generator().manual_seed(3)
        shape = (1, length, config.q_lora_rank)
        call["q_resid"] = torch.randn(shape, generator=draw)
    return call


@every_model
def test_no_array_of_all_heads_and_pairs_is_made(name):
    length, heads = 300, 24
    mask = torch.ones(1, length, length, dtype=torch.bool).tril()
    sizes, picks = [], []
    for one in pair(name):
        indexer = indexers_of(one)[0]
        call = arguments_of(indexer, length, mask)
        with families.Largest() as largest:
            picks.append(indexer(**call))
        sizes.append(largest.numbers)
    assert sizes[0] == heads * length * length and sizes[1] == length * length
    assert torch.equal(picks[0][:, 3:].sort().values, picks[1][:, 3:].sort().values)


@every_model
def test_an_indexer_without_a_mask_is_refused(name):
    indexer = indexers_of(pair(name)[1])[0]
    with pytest.raises(TypeError, match="attention_mask: got NoneType; expected a"):
        indexer(**arguments_of(indexer, 5, None))


@every_model
def test_two_caches_are_refused(name):
    indexer = indexers_of(pair(name)[1])[0]
    mask = torch.ones(1, 5, 5, dtype=torch.bool).tril()
    caches = [transformers.DynamicCache(config=indexer.config) for _ in range(2)]
    call = arguments_of(indexer, 5, mask)
    with pytest.raises(ValueError, match=r"past_key_values: got a DynamicCache and"):
        indexer.forward(**call, cache=caches[0], past_key_values=caches[1])
    assert indexer.forward(**call, past_key_values=caches[0]).shape == (1, 5, 3)
