"""Models of transformers by relpos against the same models by their own eager code."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import hugging_models as models  # noqa: E402
from transformers.models.deberta_v2.modeling_deberta_v2 import (  # noqa: E402
    DisentangledSelfAttention,
)

import relpos.torch as rt  # noqa: E402
from relpos._moved import MOVED  # noqa: E402

pytestmark = pytest.mark.torch

BY_REGISTRY = (
    "t5",
    "mt5",
    "llama",
    "gpt-oss",
    "gemma2",
    "gemma3",
    "gemma4",
    "inkling",
    "wav2vec2-conformer",
)
REPLACED = (
    "t5",
    "mt5",
    "inkling",
    "wav2vec2-conformer",
    "deberta",
    "wavlm",
    "gemma3n audio",
    "gemma4 audio",
)
DECODERS = ("gemma2", "gpt-oss", "inkling")


@pytest.fixture(scope="module")
def eager():
    """What a model's own eager code gives, in float64 where that runs, once a case."""
    results = {}

    def of(name):
        if name not in results:
            case = models.CASES[name]
            model = models.build(case, "eager")
            model = model.double() if case.in_float64 else model
            results[name] = models.run(case, model)
        return results[name]

    return of


@pytest.fixture(autouse=True)
def registered():
    rt.register()


def replaced(name, **more):
    model = models.build(models.CASES[name], "eager", **more)
    return model, rt.replace_attention(model)


def check(wanted, got):
    """Outputs and gradients within 1e-5 of the largest entry of each.

    The true gradient of some parameters is 0 (a bias of keys), and that of others
    much less than what cancels in it: no entry is held to less than four float32
    roundings of the largest gradient of all.
    """
    (out, gradients), (mine, my_gradients) = wanted, got
    assert largest(mine - out) <= 1e-5 * largest(out)
    assert gradients.keys() == my_gradients.keys()
    given = {name: entry for name, entry in gradients.items() if entry is not None}
    noise = 4 * torch.finfo(torch.float32).eps * max(map(largest, given.values()))
    for name, entry in given.items():
        error = largest(my_gradients[name] - entry)
        assert error <= max(1e-5 * largest(entry), noise), name


def largest(x):
    return x.abs().max().item()


@pytest.mark.parametrize("name", BY_REGISTRY)
def test_registered_equals_eager(name, eager):
    model = models.build(models.CASES[name], "relpos")
    check(eager(name), models.run(models.CASES[name], model))


@pytest.mark.parametrize("name", REPLACED)
def test_replaced_equals_eager(name, eager):
    case = models.CASES[name]
    original = models.build(case, "eager")
    model = copy.deepcopy(original)
    names = rt.replace_attention(model)
    parameters = dict(model.named_parameters())
    assert all("ttention" in type(model.get_submodule(n)).__name__ for n in names)
    assert parameters.keys() == dict(original.named_parameters()).keys()
    assert model.state_dict().keys() == original.state_dict().keys()
    check(eager(name), models.run(case, model))


@pytest.mark.parametrize("name", REPLACED)
def test_positions_matter(name, eager):
    """The gradients that `check` sees of position tables are no noise."""
    words = ("relative", "rel_", "pos_bias", "pos_proj", "gru_rel")
    _, gradients = eager(name)
    tables = [g for n, g in gradients.items() if any(word in n for word in words)]
    top = max(largest(g) for g in gradients.values() if g is not None)
    assert tables
    assert all(largest(table) > 1e-4 * top for table in tables)


@pytest.mark.parametrize(
    ("name", "way"),
    [*((name, "registry") for name in DECODERS), ("inkling", "replaced")],
)
def test_cache_equals_no_cache(name, way):
    case = models.CASES[name]
    embeds = torch.randn(models.BATCH, 9, models.WIDTH)
    with torch.no_grad():
        wanted = models.build(case, "eager")(inputs_embeds=embeds).last_hidden_state
        if way == "registry":
            model = models.build(case, "relpos")
        else:
            model, _ = replaced(name)
        cache = transformers.DynamicCache(config=model.config)
        parts = [
            model(inputs_embeds=part, past_key_values=cache).last_hidden_state
            for part in embeds.split([5, 1, 1, 2], dim=1)
        ]
    got = torch.cat(parts, dim=1)
    assert largest(got - wanted) <= 1e-5 * largest(wanted)


@pytest.mark.parametrize("way", ("registry", "replaced"))
def test_t5_generates_as_eager(way):
    case = models.CASES["t5"]._replace(model=transformers.T5ForConditionalGeneration)
    eager = models.build(case, "eager")
    if way == "registry":
        model = models.build(case, "relpos")
    else:
        model = copy.deepcopy(eager)
        rt.replace_attention(model)
    settings = {
        "input_ids": torch.arange(1, 9).reshape(2, 4),
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
        "max_new_tokens": 6,
        "do_sample": False,
        "decoder_start_token_id": 0,
        "eos_token_id": None,
        "pad_token_id": 0,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    for more in ({}, {"cache_implementation": "static"}, {"use_cache": False}):
        wanted = eager.generate(**settings, **more).logits
        got = model.generate(**settings, **more).logits
        for a, b in zip(wanted, got, strict=True):
            assert largest(a - b) <= 1e-5 * largest(a)


def test_causal_without_mask():
    """No padding: no mask is made, and attention is causal by itself."""
    for name in DECODERS:
        case = models.CASES[name]
        embeds = torch.randn(models.BATCH, 9, models.WIDTH)
        seen = []
        with torch.no_grad():
            for way in ("eager", "relpos"):
                model = models.build(case, way)
                seen.append(model(inputs_embeds=embeds).last_hidden_state)
        assert largest(seen[0] - seen[1]) <= 1e-5 * largest(seen[0])


@pytest.mark.parametrize("name", ("t5", "gemma2", "deberta", "wavlm", "gpt-oss"))
def test_attention_weights(name):
    case = models.CASES[name]
    model = models.build(case, "relpos" if name in BY_REGISTRY else "eager")
    original = models.build(case, "eager")
    if name in REPLACED:
        rt.replace_attention(model)
    seen = []
    for one in (original, model):
        inner = one.encoder if name == "t5" else one
        call = {"inputs_embeds": torch.ones(1, 5, models.WIDTH)}
        if name == "wavlm":
            call = {"input_values": torch.arange(40.0)[None].sin()}
        seen.append(inner(**call, output_attentions=True).attentions)
    assert len(seen[0]) == len(seen[1]) == 2
    for wanted, got in zip(*seen, strict=True):
        assert got.shape == wanted.shape
        assert largest(wanted - got) <= 1e-5


@pytest.mark.parametrize("name", ("t5", "deberta", "wavlm", "wav2vec2-conformer"))
def test_dropout_while_training(name):
    case = models.CASES[name]
    rates = {
        "t5": {"dropout_rate": 0.5},
        "deberta": {"attention_probs_dropout_prob": 0.5, "hidden_dropout_prob": 0.0},
    }.get(name, {"attention_dropout": 0.5, "hidden_dropout": 0.0, "layerdrop": 0.0})
    model, _ = replaced(name, **rates)
    still = models.run(case, model)[0]
    model.train()
    torch.manual_seed(0)
    first, second = models.run(case, model)[0], models.run(case, model)[0]
    torch.manual_seed(0)
    again = models.run(case, model)[0]
    assert torch.equal(first, again)
    assert largest(first - second) > 1e-2 * largest(still)


def test_replaced_models_are_saved_and_copied():
    model, names = replaced("deberta")
    place = io.BytesIO()
    torch.save(model, place)
    place.seek(0)
    loaded = torch.load(place, weights_only=False)
    twin = copy.deepcopy(model)
    kinds = [type(one.get_submodule(names[0])) for one in (model, loaded, twin)]
    assert kinds[0] is kinds[1] is kinds[2]
    assert issubclass(kinds[0], DisentangledSelfAttention)


#: A class of each former file of classes, by the file's name.
FORMER = {
    "deberta": "DisentangledSelfAttention",
    "gemma3n": "Gemma3nAudioAttention",
    "gemma4": "Gemma4AudioAttention",
    "inkling": "InklingAttention",
    "t5": "MT5Attention",
    "wav2vec2_conformer": "Wav2Vec2ConformerSelfAttention",
    "wavlm": "WavLMAttention",
}


def test_pickles_of_0_3_name_the_files_of_that_release():
    names = {f"relpos.torch._transformers.{file}": FORMER[file] for file in FORMER}
    assert names.keys() == {old for old in MOVED if "_transformers" in old}
    for file, name in names.items():
        kind = pickle.loads(f"c{file}\n{name}\n.".encode())
        assert kind.__name__ == name and issubclass(kind, torch.nn.Module)


@pytest.mark.parametrize("name", ("deberta", "gemma2"))
def test_compiled_whole(name, eager):
    """One graph, forward and backward."""
    case = models.CASES[name]
    way = "eager" if name in REPLACED else "relpos"
    model = models.build(case, way)
    if name in REPLACED:
        rt.replace_attention(model)
    torch._dynamo.reset()
    compiled = torch.compile(case.call, backend="aot_eager", fullgraph=True)
    check(eager(name), models.run(case._replace(call=compiled), model))
