"""What transformers hands to attention by relpos, argument by argument."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import hugging_models as models  # noqa: E402
from transformers.integrations.sdpa_attention import (  # noqa: E402
    sdpa_attention_forward,
)
from transformers.models.t5.modeling_t5 import (  # noqa: E402
    eager_attention_forward,
)

import relpos.torch as rt  # noqa: E402

pytestmark = pytest.mark.torch

HIDDEN = torch.finfo(torch.float32).min


@pytest.fixture(scope="module")
def attend():
    rt.register()
    return transformers.AttentionInterface()["relpos"]


@pytest.fixture
def operands():
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(2, heads, 7, 4, generator=draw) for heads in (6, 2, 2)]


class Module(torch.nn.Module):
    """What a model's attention is to its attention function."""

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
    rt.register()
    mask_by = transformers.AttentionMaskInterface()["relpos"]
    call = {"batch_size": 1, "q_length": 3, "kv_length": 3}
    mask = mask_by(**call, config=SimpleNamespace())
    assert torch.equal(mask[0, 0], torch.ones(3, 3, dtype=torch.bool).tril())
    known = models.build(models.CASES["llama"], "relpos").config
    assert mask_by(**call, config=known) is None
    assert mask_by(**call, config=known, allow_is_causal_skip=False) is not None


def test_more_keys_than_queries_without_mask(attend, operands):
    """A static cache at its first step: what is not filled yet comes after."""
    operands[0] = operands[0][:, :, :3]
    got = attend(Module(), *operands, None)[0]
    assert close(got, by_sdpa(operands, attention_mask=None))
    operands[0] = operands[0][:, :, :1]  # one query sees whatever is there
    got = attend(Module(), *operands, None)[0]
    assert close(got, by_sdpa(operands, attention_mask=None))


@pytest.mark.parametrize("kind", ("runs", "gaps", "heads", "float"))
def test_bias_beside_mask(attend, operands, kind):
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


def test_window_without_mask(attend, operands):
    positions = torch.arange(7)
    distance = positions[:, None] - positions
    mask = ((distance >= 0) & (distance < 3)).expand(2, 1, 7, 7)
    wanted = by_sdpa(operands, attention_mask=mask)
    assert close(attend(Module(), *operands, None, sliding_window=3)[0], wanted)
    assert close(attend(Module(), *operands, mask, sliding_window=3)[0], wanted)
    with pytest.raises(ValueError, match=r"sliding_window: got 3"):
        attend(Module(), *operands, None, sliding_window=3, is_causal=False)


@pytest.mark.parametrize("name", ("cache", "indices", "sinks", "alibi"))
def test_what_changes_the_result_is_refused(attend, operands, name):
    with pytest.raises(ValueError, match=rf"{name}: got a Tensor; expected None"):
        attend(Module(), *operands, None, **{name: torch.zeros(2)})


def test_packed_sequences_need_their_mask(attend, operands):
    ends = torch.tensor([0, 3, 7])
    with pytest.raises(ValueError, match=r"cu_seq_lens_q: got 2 sequences"):
        attend(Module(), *operands, None, cu_seq_lens_q=ends)
    attend(Module(), *operands, mask_of(7, 4), cu_seq_lens_q=ends)
    attend(Module(), *operands, None, cu_seq_lens_q=ends[[0, 2]])


def test_unknown_arguments_are_warned_of(attend, operands):
    with pytest.warns(UserWarning, match=r"new_term: attention by relpos does not"):
        attend(Module(), *operands, None, new_term=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attend(Module(), *operands, None, use_cache=True, new_term=None)


@pytest.mark.parametrize("name", ("deberta", "wavlm", "gemma3n audio", "gemma4 audio"))
def test_eager_models_are_warned_of(name):
    rt.register()
    rt.register()  # twice is once
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


def test_a_change_of_attention_is_looked_at():
    rt.register()
    model = models.build(models.CASES["gemma3n audio"], "eager")
    with pytest.warns(UserWarning, match=r"Gemma3nAudioAttention never asks"):
        model.set_attn_implementation("relpos")


@pytest.mark.parametrize("kind", ("Bloom", "MPNet"))
def test_eager_models_get_masks_that_they_can_read(kind):
    """Causal and padded: a mask of bool, or none, would be taken for something else."""
    rt.register()
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


def test_nothing_to_replace():
    for model in (torch.nn.Linear(2, 2), models.build(models.CASES["gemma2"], "eager")):
        with pytest.raises(ValueError, match=r"model: got a \w+ without a module to"):
            rt.replace_attention(model)
    settings = {"position_embeddings_type": "rotary"}
    rotary = models.build(models.CASES["wav2vec2-conformer"], "eager", **settings)
    with pytest.raises(ValueError, match=r"Wav2Vec2ConformerSelfAttention"):
        rt.replace_attention(rotary)
    model = models.build(models.CASES["t5"], "eager")
    rt.replace_attention(model)
    with pytest.raises(ValueError, match=r"model: got a T5Model without"):
        rt.replace_attention(model)  # a second time


@pytest.mark.parametrize("name", ("t5", "inkling"))
def test_replaced_modules_ask_for_relpos(name):
    case = models.CASES[name]
    model = models.build(case, "eager")
    rt.replace_attention(model)
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match=r"attn_implementation: got 'sdpa'; expected"):
        models.run(case, model)


def test_given_positions_of_deberta():
    """Rows of all pairs that a caller made, which need be no function of distance."""
    settings = {"conv_kernel_size": 0}
    eager = models.build(models.CASES["deberta"], "eager", **settings).encoder
    mine = models.build(models.CASES["deberta"], "eager", **settings).encoder
    rt.replace_attention(mine)
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(-6, 6, (1, 5, 5), generator=draw)
    # the model reads position-to-content rows at the transposed pair
    rows = rows - rows.transpose(1, 2)
    hidden = torch.randn(2, 5, models.WIDTH, generator=draw)
    call = {"attention_mask": torch.ones(2, 5), "relative_pos": rows}
    wanted, got = (one(hidden, **call)[0] for one in (eager, mine))
    assert (got - wanted).abs().max() <= 1e-5 * wanted.abs().max()
