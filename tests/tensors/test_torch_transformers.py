"""Models of transformers by relpos: as by eager code, and argument by argument."""

from __future__ import annotations

import copy
import io
import re
import subprocess
import sys
import warnings
from functools import partial
from types import SimpleNamespace

import hugging_models as models
import pytest
import torch
import transformers
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.models.deberta_v2.modeling_deberta_v2 import (
    DisentangledSelfAttention,
)
from transformers.models.t5.modeling_t5 import eager_attention_forward

import relpos.torch as rt

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
    """Return the result of a model's own eager code, in float64 if that runs."""
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


def by_relpos(name, **more):
    """A model of which all attention runs by relpos."""
    model = models.build(
        models.CASES[name], "relpos" if name in BY_REGISTRY else "eager", **more
    )
    if name in REPLACED:
        rt.replace_attention(model)
    return model


def check(expected, got):
    """Outputs and gradients within 1e-5 of the largest entry of each.

    The true gradient of some parameters is 0 (a bias of keys), and that of others
    much less than what cancels in it: no entry has to be closer than four float32
    roundings of the largest gradient of all.
    """
    (out, gradients), (mine, my_gradients) = expected, got
    assert largest(mine - out) <= 1e-5 * largest(out)
    assert gradients.keys() == my_gradients.keys()
    present = {name: entry for name, entry in gradients.items() if entry is not None}
    noise = 4 * torch.finfo(torch.float32).eps * max(map(largest, present.values()))
    for name, entry in present.items():
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


WITH_CACHE = [(name, "registry") for name in DECODERS]
WITH_CACHE.append(("inkling", "replaced"))


@pytest.mark.parametrize(("name", "way"), WITH_CACHE)
def test_with_and_without_cache(name, way):
    """No padding: no mask is made, and attention is causal by itself."""
    case = models.CASES[name]
    embeds = torch.randn(models.BATCH, 9, models.WIDTH)
    with torch.no_grad():
        wanted = models.build(case, "eager")(inputs_embeds=embeds).last_hidden_state
        model = models.build(case, "relpos") if way == "registry" else replaced(name)[0]
        whole = model(inputs_embeds=embeds).last_hidden_state
        cache = transformers.DynamicCache(config=model.config)
        parts = [
            model(inputs_embeds=part, past_key_values=cache).last_hidden_state
            for part in embeds.split([5, 1, 1, 2], dim=1)
        ]
    for got in (whole, torch.cat(parts, dim=1)):
        assert largest(got - wanted) <= 1e-5 * largest(wanted)


@pytest.mark.parametrize("floor", [4, None])
def test_a_static_cache_of_inkling(floor):
    """Its count is one tensor, which the model reads after it has changed."""
    case = models.CASES["inkling"]
    more = {"layer_types": ["hybrid", "hybrid"], "log_scaling_n_floor": floor}
    embeds = torch.randn(models.BATCH, 9, models.WIDTH)
    with torch.no_grad():
        wanted = models.build(case, "eager", **more)(inputs_embeds=embeds)[0]
        model, _ = replaced("inkling", **more)
        cache = transformers.StaticCache(config=model.config, max_cache_len=12)
        parts = [
            model(inputs_embeds=part, past_key_values=cache)[0]
            for part in embeds.split([5, 1, 1, 2], dim=1)
        ]
    assert largest(torch.cat(parts, dim=1) - wanted) <= 1e-5 * largest(wanted)


@pytest.mark.parametrize("way", ["registry", "replaced"])
def test_t5_generates_as_eager(way):
    case = models.CASES["t5"]._replace(model=transformers.T5ForConditionalGeneration)
    eager = models.build(case, "eager")
    model = models.build(case, "relpos" if way == "registry" else "eager")
    if way == "replaced":
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


def test_layers_that_share_keys():
    """Gemma 4 computes only the last queries in them, by what is left of a mask."""
    case = models.CASES["gemma4"]._replace(model=transformers.Gemma4ForCausalLM)
    more = {"num_hidden_layers": 4, "layer_types": models.GEMMA["layer_types"] * 2}
    more |= {"num_kv_shared_layers": 2, "hidden_size_per_layer_input": 4}
    more |= {"vocab_size_per_layer_input": 10}
    eager, mine = (models.build(case, way, **more) for way in ("eager", "relpos"))
    ids, found = torch.tensor([[5, 2, 3, 4, 5, 2, 3, 4]]), []
    settings = {"max_new_tokens": 1, "do_sample": False, "disable_compile": True}
    settings |= {"output_logits": True, "return_dict_in_generate": True}
    with torch.no_grad():
        for model in (eager, mine):
            some = [model(ids, logits_to_keep=count).logits for count in (1, 2, 3)]
            out = model.generate(ids, cache_implementation="static", **settings)
            found.append([*some, out.logits[0]])
    for wanted, got in zip(*found, strict=True):
        assert largest(wanted - got) <= 1e-5 * largest(wanted)


@pytest.mark.parametrize("name", ["t5", "gemma2", "deberta", "wavlm", "gpt-oss"])
def test_attention_weights(name):
    seen = []
    for one in (models.build(models.CASES[name], "eager"), by_relpos(name)):
        inner = one.encoder if name == "t5" else one
        call = {"inputs_embeds": torch.ones(1, 5, models.WIDTH)}
        if name == "wavlm":
            call = {"input_values": torch.arange(40.0)[None].sin()}
        seen.append(inner(**call, output_attentions=True).attentions)
    assert len(seen[0]) == len(seen[1]) == 2
    for wanted, got in zip(*seen, strict=True):
        assert got.shape == wanted.shape
        assert largest(wanted - got) <= 1e-5


@pytest.mark.parametrize("name", ["gemma2", "inkling", "wav2vec2-conformer"])
def test_attention_weights_by_the_configuration(name):
    case = models.CASES[name]
    model = models.build(case, "eager", output_attentions=True)
    call = {"inputs_embeds": torch.ones(1, 5, models.WIDTH)}
    if name == "wav2vec2-conformer":
        call = {"input_values": torch.arange(40.0)[None].sin()}
    seen = [model(**call).attentions]
    model.set_attn_implementation("relpos")
    seen.append(model(**call).attentions)
    if name in REPLACED:
        rt.replace_attention(model)
        seen.append(model(**call).attentions)
    for weights in seen:
        for wanted, got in zip(seen[0], weights, strict=True):
            assert largest(wanted - got) <= 1e-5
    assert not model(**call, output_attentions=False).attentions


@pytest.mark.parametrize("name", ["t5", "deberta", "wavlm", "wav2vec2-conformer"])
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


@pytest.mark.parametrize("name", ["t5", "mt5"])
def test_reentrant_checkpoints(name, eager):
    case, (model, _) = models.CASES[name], replaced(name)
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    inputs = [torch.randn(shape, requires_grad=True) for shape in case.shapes]
    case.call(model, *inputs)
    assert all(x.is_leaf for x in model.parameters())  # else the backward never ends
    check(eager(name), models.run(case, model))


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


def test_a_saved_model_runs_in_a_process_that_only_loads_it(tmp_path):
    model, _ = replaced("t5")
    inputs = torch.tensor([[3, 1, 4, 2]])
    call = {"input_ids": inputs, "decoder_input_ids": inputs}
    with torch.no_grad():
        want = model.eval()(**call).last_hidden_state
    torch.save((model, call, want), tmp_path / "model.pt")
    code = (
        "import sys, torch\n"
        "model, call, want = torch.load(sys.argv[1], weights_only=False)\n"
        "with torch.no_grad():\n"
        "    assert torch.equal(model(**call).last_hidden_state, want)\n"
    )
    command = [sys.executable, "-c", code, tmp_path / "model.pt"]
    subprocess.run(command, check=True, cwd=tmp_path)  # no source tree


@pytest.mark.parametrize("name", ["deberta", "gemma2"])
def test_compiled_whole(name, eager):
    """One graph, forward and backward."""
    case = models.CASES[name]
    model = by_relpos(name)
    torch._dynamo.reset()
    compiled = torch.compile(case.call, backend="aot_eager", fullgraph=True)
    check(eager(name), models.run(case._replace(call=compiled), model))


# ---- what transformers hands to attention --------------------------------------------

HIDDEN = torch.finfo(torch.float32).min


@pytest.fixture
def attend():
    return transformers.AttentionInterface()["relpos"]


@pytest.fixture
def operands():
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(2, heads, 7, 4, generator=draw) for heads in (6, 2, 2)]


class Module(torch.nn.Module):
    """The attributes of a model's attention that its attention function reads."""

    num_key_value_groups = 3
    is_causal = True


def mask_of(*lengths):
    """A mask of keys, (B, 1, Lq, Lk), expanded as transformers expands it."""
    rows = torch.arange(7) < torch.tensor(lengths)[:, None]
    return rows[:, None, None, :].expand(-1, -1, 7, -1)


def by_sdpa(operands, **keywords):
    return sdpa_attention_forward(Module().eval(), *operands, **keywords)[0]


def close(a, b):
    return (a - b).abs().max() <= 1e-6


def test_no_mask_is_causal(attend, operands):
    got = attend(Module(), *operands, None)[0]
    assert close(got, by_sdpa(operands, attention_mask=None))
    got = attend(Module(), *operands, None, is_causal=False)[0]
    assert close(got, by_sdpa(operands, attention_mask=None, is_causal=False))


def test_modules_without_is_causal(attend, operands):
    """Their configuration says it, or nothing is hidden, as in eager code."""
    module = torch.nn.Module()
    whole = by_sdpa(operands, attention_mask=None, is_causal=False)
    assert close(attend(module, *operands, None)[0], whole)
    module.config = SimpleNamespace(is_decoder=False)
    assert close(attend(module, *operands, None)[0], whole)
    module.config.is_decoder = True
    causal = by_sdpa(operands, attention_mask=None, is_causal=True)
    assert close(attend(module, *operands, None)[0], causal)
    operands[0] = operands[0][:, :, :3]  # of itself, or of an encoder
    with pytest.raises(ValueError, match=r"attention_mask: got None with 3 queries"):
        attend(module, *operands, None)


def test_causal_masks_are_left_out_where_all_modules_know():
    mask_by = transformers.AttentionMaskInterface()["relpos"]
    call = {"batch_size": 1, "q_length": 3, "kv_length": 3}
    mask = mask_by(**call, config=SimpleNamespace())
    assert torch.equal(mask[0, 0], torch.ones(3, 3, dtype=torch.bool).tril())
    known = models.build(models.CASES["llama"], "relpos").config
    assert mask_by(**call, config=known) is None
    assert mask_by(**call, config=known, allow_is_causal_skip=False) is not None


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt-oss", "inkling"])
def test_a_configuration_that_is_not_causal(name):
    """A decoder by its class, without a mask: each query sees all keys."""
    x = torch.randn(2, 6, models.WIDTH, generator=torch.Generator().manual_seed(3))
    found = []
    for model in (models.build(models.CASES[name], "eager"), by_relpos(name)):
        for causal in (True, False):
            model.config.is_causal = causal
            with torch.no_grad():
                out = model(inputs_embeds=x, use_cache=False)
            found.append(out.last_hidden_state)
    causal, wanted, _, got = found
    assert largest(got - wanted) <= 1e-5 * largest(wanted)
    assert largest(causal - wanted) > 0.01 * largest(wanted)


def test_more_keys_than_queries_without_mask(attend, operands):
    """A static cache at its first step: what is not filled yet comes after."""
    operands[0] = operands[0][:, :, :3]
    got = attend(Module(), *operands, None)[0]
    assert close(got, by_sdpa(operands, attention_mask=None))
    operands[0] = operands[0][:, :, :1]  # one query sees whatever is there
    got = attend(Module(), *operands, None)[0]
    assert close(got, by_sdpa(operands, attention_mask=None))


@pytest.mark.parametrize("kind", ["runs", "gaps", "heads", "float"])
def test_a_bias_and_a_mask(attend, operands, kind):
    """A dense bias shared by the batch, and masks that are runs of keys or not."""
    draw = torch.Generator().manual_seed(1)
    bias = torch.randn(1, 6, 7, 7, generator=draw, requires_grad=True)
    mask = mask_of(7, 4)
    if kind == "gaps":
        mask = mask & (torch.arange(7) != 2)
    if kind == "heads":
        mask = (torch.rand(2, 6, 7, 7, generator=draw) < 0.7) | torch.eye(7).bool()
    given = torch.where(mask, 0.0, HIDDEN)
    key, value = (x.repeat_interleave(3, dim=1) for x in operands[1:])
    out = eager_attention_forward(
        Module().eval(), operands[0], key, value, given, position_bias=bias
    )[0]
    cotangent = torch.randn(out.shape, generator=draw)
    wanted = torch.autograd.grad((out * cotangent).sum(), bias)[0]
    mask = given if kind == "float" else mask
    mine = attend(Module(), *operands, mask, position_bias=bias)[0]
    got = torch.autograd.grad((mine * cotangent).sum(), bias)[0]
    assert close(mine, out)
    assert (got - wanted).abs().max() <= 1e-6 * wanted.abs().max().clamp(min=1)


@pytest.mark.parametrize("shape", [(7,), (6, 1, 7), (2, 1, 1, 7), (2, 1, 7, 1)])
def test_a_bias_and_a_mask_that_broadcasts(attend, operands, shape):
    draw = torch.Generator().manual_seed(1)
    bias = torch.randn(1, 6, 7, 7, generator=draw)
    mask = torch.rand(shape, generator=draw) < 0.7
    whole = mask.expand(2, 6, 7, 7)
    wanted = attend(Module(), *operands, torch.where(whole, bias, -torch.inf))[0]
    assert close(attend(Module(), *operands, mask, position_bias=bias)[0], wanted)


def test_a_bias_and_a_mask_of_two_heads(attend):
    draw = torch.Generator().manual_seed(1)
    bias, *tokens = (torch.randn(1, 2, 7, n, generator=draw) for n in (7, 16, 16, 16))
    mask = torch.arange(7) <= torch.tensor([2, 4]).view(1, 2, 1, 1)
    mask = mask.expand(1, 2, 7, 7)
    wanted = attend(Module(), *tokens, torch.where(mask, bias, -torch.inf))[0]
    assert close(attend(Module(), *tokens, mask, position_bias=bias)[0], wanted)


@pytest.mark.parametrize("shape", [(1, 1, 7, 5), (2, 1, 7, 9), (1, 1, 3, 7)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_bias_and_a_mask_of_other_lengths(attend, operands, shape, dtype):
    bias, mask = torch.zeros(1, 6, 7, 7), torch.ones(shape, dtype=dtype)
    message = (
        rf"attention_mask: got shape {re.escape(str(shape))}; expected \(\.\., 7, 7"
    )
    with pytest.raises(ValueError, match=message):
        attend(Module(), *operands, mask, position_bias=bias)


def test_a_bias_and_a_mask_of_integers(attend, operands):
    bias, mask = torch.zeros(1, 6, 7, 7), torch.ones(1, 1, 7, 7, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"attn_mask: got a tensor of dtype torch"):
        attend(Module(), *operands, mask, position_bias=bias)


def test_window_without_mask(attend, operands):
    positions = torch.arange(7)
    distance = positions[:, None] - positions
    mask = ((distance >= 0) & (distance < 3)).expand(2, 1, 7, 7)
    wanted = by_sdpa(operands, attention_mask=mask)
    assert close(attend(Module(), *operands, None, sliding_window=3)[0], wanted)
    assert close(attend(Module(), *operands, mask, sliding_window=3)[0], wanted)
    with pytest.raises(ValueError, match=r"sliding_window: got 3"):
        attend(Module(), *operands, None, sliding_window=3, is_causal=False)
    module = Module()  # of a model whose masks have its window, if it makes such masks
    module.config = models.build(models.CASES["llama"], "relpos").config
    wanted = by_sdpa(operands, attention_mask=None)
    assert close(attend(module, *operands, None, sliding_window=3)[0], wanted)


@pytest.mark.parametrize("name", ["cache", "alibi"])
def test_what_changes_the_result_is_refused(attend, operands, name):
    with pytest.raises(ValueError, match=rf"{name}: got a Tensor; expected None"):
        attend(Module(), *operands, None, **{name: torch.zeros(2)})


def test_sinks_of_heads_and_of_queries(attend, operands):
    """A logit of each query, (B, H, Lq, 1), as a further key whose value is 0."""
    query, key, value = operands
    shape = (*query.shape[:3], 1)
    sinks = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    groups = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    scores = query @ keys.mT / query.shape[-1] ** 0.5
    weights = torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]
    call = partial(attend, Module(), *operands, None, is_causal=False)
    wanted = (weights @ values).transpose(1, 2)
    torch.testing.assert_close(call(sinks=sinks)[0], wanted)
    one = sinks[0, :, 0, 0]  # of each head
    rows = one[:, None, None].expand(shape)
    torch.testing.assert_close(call(s_aux=one)[0], call(sinks=rows)[0])
    with pytest.raises(ValueError, match="sinks: got a Tensor, and so is s_aux"):
        call(s_aux=one, sinks=sinks)
    with pytest.raises(ValueError, match=r"sinks: got shape .*expected \(B, H, Lq, 1"):
        call(sinks=sinks[..., 0])


def test_packed_sequences_are_apart(attend, operands):
    ends = torch.tensor([0, 3, 7], dtype=torch.int32)
    call = partial(attend, Module())
    packed = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends.clone()}
    parts = [[x[:, :, part] for x in operands] for part in (slice(3), slice(3, 7))]
    wanted = torch.cat([call(*part, None)[0] for part in parts], dim=1)
    assert close(call(*operands, None, **packed)[0], wanted)
    assert close(call(*operands, None, cu_seq_lens_q=ends)[0], wanted)
    assert close(call(*operands, None, **packed, query_offset=0)[0], wanted)
    # of a mask, too, with a bias and without
    causal = torch.ones(7, 7, dtype=torch.bool).tril()[None, None]
    assert close(call(*operands, causal, **packed)[0], wanted)
    zeros = torch.zeros(1, 6, 7, 7)
    assert close(call(*operands, causal, position_bias=zeros, **packed)[0], wanted)
    whole = call(*operands, None)[0]
    assert close(call(*operands, None, cu_seq_lens_q=ends[[0, 2]])[0], whole)
    with pytest.raises(ValueError, match="cu_seq_lens_q: got None"):
        call(*operands, None, cu_seq_lens_k=ends)
    with pytest.raises(ValueError, match=r"cu_seq_lens_k: got \[0, 4, 7\]; expected"):
        call(*operands, None, **packed | {"cu_seq_lens_k": torch.tensor([0, 4, 7])})
    with pytest.raises(ValueError, match=r"cu_seqlens: cu_seqlens\[2\] is 6"):
        call(*operands, None, cu_seq_lens_q=torch.tensor([0, 3, 6]))
    with pytest.raises(ValueError, match=r"cu_seq_lens_q: got \[0, 3\]; expected"):
        call(*operands, None, cu_seq_lens_q=torch.tensor([0, 3]))
    # of a cache: the mask has what each query sees, or it is an error
    cached = [operands[0][:, :, 5:], *operands[1:]]
    call(*cached, mask_of(7, 4)[:, :, 5:], **packed)
    with pytest.raises(ValueError, match="cu_seqlens: given with 2 queries and 7 keys"):
        call(*cached, None, **packed)


def test_unknown_arguments_are_warned_of(attend, operands):
    message = r"new_term: attention by relpos does not"
    with pytest.warns(UserWarning, match=message) as seen:
        attend(Module(), *operands, None, new_term=1)
    assert [warning.filename for warning in seen] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attend(Module(), *operands, None, use_cache=True, new_term=None)


@pytest.mark.parametrize("name", ["deberta", "wavlm", "gemma3n audio", "gemma4 audio"])
def test_eager_models_are_warned_of(name):
    rt.register()  # a second time changes nothing
    message = r"so that the model stays eager; relpos.torch.replace_attention\(model\)"
    with pytest.warns(UserWarning, match=message) as seen:
        model = models.build(models.CASES[name], "relpos")
    assert len(seen) == 1
    assert model.config._attn_implementation == "eager"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.build(models.CASES[name], "eager")
        rt.replace_attention(model)
        models.build(models.CASES["t5"], "relpos")


def test_a_pooling_head_of_torch_leaves_the_model_on_relpos():
    settings = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2}
    settings |= {"num_attention_heads": 4, "image_size": 16, "patch_size": 8}
    x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    case, out = models.Case(transformers.SiglipVisionModel, settings, None), []
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        for way in ("eager", "relpos"):
            model = models.build(case, way)
            assert model.config._attn_implementation == way
            out.append(model(x).pooler_output)
    assert largest(out[0] - out[1]) <= 1e-5 * largest(out[0])


def test_a_change_of_attention_is_looked_at():
    model = models.build(models.CASES["gemma3n audio"], "eager")
    message = r"Gemma3nAudioAttention never asks"
    with pytest.warns(UserWarning, match=message) as seen:
        model.set_attn_implementation("relpos")
    assert [warning.filename for warning in seen] == [__file__]


@pytest.mark.parametrize("name", ["deberta", "wavlm"])
def test_a_choice_that_transformers_does_not_take_is_warned_of(name):
    """transformers says so in its log alone, which may be off."""
    rt.register()
    model = models.build(models.CASES[name], "eager")
    with pytest.warns(
        UserWarning, match=r"never asks .* the model stays eager"
    ) as seen:
        model.set_attn_implementation("relpos")
    assert [warning.filename for warning in seen] == [__file__]
    assert model.config._attn_implementation == "eager"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_attn_implementation("eager")
        rt.replace_attention(model)
        model.set_attn_implementation("relpos")


def test_a_model_that_transformers_does_not_change_is_warned_of(monkeypatch):
    """Such as one of a notebook, whose source transformers cannot read."""
    rt.register()
    model = models.build(models.CASES["llama"], "eager")
    refuses = classmethod(lambda kind: False)
    monkeypatch.setattr(type(model), "_can_set_attn_implementation", refuses)
    message = "does not change its attn_implementation, so that the model stays eager"
    with pytest.warns(UserWarning, match=message) as seen:
        model.set_attn_implementation("relpos")
    assert [warning.filename for warning in seen] == [__file__]


def stays_eager():
    """A model that asks, with a pooling that does not: `register` does not serve it."""
    settings = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = transformers.Aimv2VisionConfig(
        **settings, intermediate_size=8, image_size=8, patch_size=4
    )
    return transformers.Aimv2VisionModel(config)


def test_models_that_need_no_replacement_are_told_how_they_run():
    rotary = {"position_embeddings_type": "rotary"}
    for model, asks in (
        (models.build(models.CASES["llama"], "eager"), True),
        (models.build(models.CASES["gemma2"], "eager"), True),
        (models.build(models.CASES["wav2vec2-conformer"], "eager", **rotary), True),
        (torch.nn.Sequential(models.build(models.CASES["llama"], "eager")), True),
        (stays_eager(), False),
        (torch.nn.Linear(2, 2), False),
    ):
        name = type(model).__name__
        match = (
            f"model: got a {name} without a module to replace; .*replace-attention.md"
        )
        with pytest.raises(ValueError, match=match) as caught:
            rt.replace_attention(model)
        assert "`python -m relpos models`" in str(caught.value)
        name = name.replace("Sequential", "LlamaModel")
        assert (
            f"({name} asks for its attention by name and needs no replacement: call "
            'relpos.torch.register() and model.set_attn_implementation("relpos"))'
            in str(caught.value)
        ) == asks
        assert asks or "asks for its attention" not in str(caught.value)


@pytest.mark.parametrize("kind", ["Bloom", "MPNet"])
def test_eager_models_get_masks_that_they_can_read(kind):
    """Causal and padded: a mask of bool, or none, would be taken for something else."""
    settings = {"vocab_size": 9, "hidden_size": 8, "n_layer": 1, "n_head": 2}
    config = getattr(transformers, f"{kind}Config")
    made, ids = [], torch.tensor([[1, 2, 3, 4, 5], [0, 0, 6, 7, 8]])
    for way in ("eager", "relpos"):
        torch.manual_seed(0)
        given = config(**settings, num_attention_heads=2, num_hidden_layers=1)
        given._attn_implementation = way
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.append(getattr(transformers, f"{kind}Model")(given).eval())
    call = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    with torch.no_grad():
        wanted, got = (model(**call).last_hidden_state for model in made)
    assert torch.equal(wanted, got)


@pytest.mark.parametrize("name", ["t5", "inkling", "wav2vec2-conformer"])
def test_replaced_modules_ask_for_relpos(name):
    case = models.CASES[name]
    model, _ = replaced(name)
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match=r"attn_implementation: got 'sdpa'; expected"):
        models.run(case, model)


def test_given_positions_of_deberta():
    """Rows of all pairs that a caller made, which need be no function of distance."""
    settings = {"conv_kernel_size": 0}
    eager = models.build(models.CASES["deberta"], "eager", **settings).encoder
    mine = replaced("deberta", **settings)[0].encoder
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(-6, 6, (1, 5, 5), generator=draw)
    # the model reads position-to-content rows at the transposed pair
    rows = rows - rows.transpose(1, 2)
    hidden = torch.randn(2, 5, models.WIDTH, generator=draw)
    call = {"attention_mask": torch.ones(2, 5), "relative_pos": rows}
    wanted, got = (one(hidden, **call)[0] for one in (eager, mine))
    assert (got - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    call["relative_pos"] = rows + 1
    with pytest.raises(ValueError, match=r"relative_pos: got \[i, j\] and \[j, i\]"):
        mine(hidden, **call)


def test_an_odd_number_of_deberta_buckets():
    """Past max_relative_positions too, where the number of buckets goes on growing."""
    case = models.CASES["deberta"]
    odd = {"position_buckets": 5, "max_relative_positions": 4}
    eager = models.build(case, "eager", **odd)
    model, _ = replaced("deberta", **odd)
    check(models.run(case, eager.double()), models.run(case, model))


def test_a_forward_of_a_module_itself_is_refused():
    model = models.build(models.CASES["wavlm"], "eager")
    module = model.encoder.layers[1].attention
    module.forward = module.forward  # as hooks and torch.compile(module.forward) do
    message = r"model: got encoder\.layers\.1\.attention with a forward of its own"
    with pytest.raises(ValueError, match=message):
        rt.replace_attention(model)
    assert not any(type(x).__module__.startswith("relpos") for x in model.modules())
    del module.forward
    assert len(rt.replace_attention(model)) == 2


def test_a_model_that_cannot_be_replaced_stays_what_it_was():
    case = models.CASES["deberta"]
    model = models.build(case, "eager")
    wanted = models.run(case, model)[0]
    model.encoder.layer[1].attention.self.pos_ebd_size = 256
    with pytest.raises(ValueError, match="max_position: got 8; expected an integer"):
        rt.replace_attention(model)
    assert not any(type(x).__module__.startswith("relpos") for x in model.modules())
    assert not any("buckets" in vars(module) for module in model.modules())
    model.encoder.layer[1].attention.self.pos_ebd_size = 4
    assert torch.equal(models.run(case, model)[0], wanted)


# ---- a replacement that raises changes nothing ---------------------------------------


def state_of(model):
    """The classes and attributes of all modules, and the attention of all models."""
    parts = [p for p in model.modules() if isinstance(p, transformers.PreTrainedModel)]
    return (
        [(type(module), list(vars(module))) for module in model.modules()],
        [part.config._attn_implementation for part in parts],
    )


def test_where_a_model_cannot_be_set_to_relpos_it_stays_as_it_was(monkeypatch):
    model = models.build(models.CASES["t5"], "eager")
    before = state_of(model)
    original = transformers.PreTrainedModel.set_attn_implementation

    def fails(self, *args, **keywords):
        if self is model.decoder:
            raise RuntimeError("not this one")
        return original(self, *args, **keywords)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="not this"):
        fails.relpos_looks = True
        patch.setattr(transformers.PreTrainedModel, "set_attn_implementation", fails)
        rt.replace_attention(model)
    assert state_of(model) == before
    assert len(rt.replace_attention(model)) == 6


def test_a_model_that_transformers_leaves_eager_is_refused(monkeypatch):
    model = models.build(models.CASES["t5"], "eager")
    before = state_of(model)
    monkeypatch.setattr(type(model.decoder), "_can_set_attn_implementation", bool)
    with pytest.raises(
        ValueError, match=r"^model: got a T5Stack that stays 'eager' in transformers"
    ):
        rt.replace_attention(model)
    assert state_of(model) == before


def test_the_registered_function_has_a_public_name():
    rt.register()
    registered = transformers.AttentionInterface()["relpos"]
    assert registered is rt.attention_interface
    assert registered.__module__ == "relpos.torch"
    x = torch.randn(2, 4, 5, 8, requires_grad=True)
    out, weights = rt.attention_interface(
        torch.nn.Module(), x, x, x, None, is_causal=True, softcap=3.0
    )
    wanted = rt.attention(x, x, x, is_causal=True, softcap=3.0)
    assert weights is None and torch.equal(out, wanted.transpose(1, 2))
    with pytest.raises(ValueError, match="sliding_window"):
        rt.attention_interface(torch.nn.Module(), x, x, x, None, sliding_window=2)
