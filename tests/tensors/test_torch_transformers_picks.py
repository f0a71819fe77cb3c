"""Models of transformers whose queries attend to keys that an indexer picks."""

from __future__ import annotations

from functools import partial

import hugging_families as families
import hugging_models as models
import pytest
import torch
import transformers
from hugging_picks import NAMES, NAMES_OF_BLOCKS, PICKS, case_of

import relpos.torch as rt
from relpos.torch._transformers.interface import picks, registry
from relpos.torch._transformers.interface.registry import attention_function

pytestmark = pytest.mark.skipif(
    not NAMES, reason="transformers has none of these models"
)
every_model = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def registered():
    rt.register()


@pytest.fixture
def counted(monkeypatch):
    """The calls of graph_attention, of which models make one in each layer."""
    calls = []

    def counting(*args, **keywords):
        calls.append(keywords["key_indices"])
        return rt.graph_attention(*args, **keywords)

    monkeypatch.setattr(registry, "graph_attention", counting)
    return calls


def distance(got, wanted):
    return ((got - wanted).norm() / wanted.norm()).item()


@every_model
@pytest.mark.parametrize("side", ["right", "left"])
def test_equals_eager(counted, name, side):
    """Logits to 1e-6 and gradients of all parameters to 1e-5 of their norm."""
    case = case_of(name, side)
    wanted, gradients = models.run(case, models.build(case, "eager"))
    assert not counted
    got, found = models.run(case, models.build(case, "relpos"))
    assert len(counted) == 2 and (counted[0] < 0).any()
    assert distance(got, wanted) <= 1e-6
    assert_gradients_are(found, gradients)


def assert_gradients_are(found, gradients):
    """Compare the gradients of all parameters, to 1e-5 of their norm."""
    assert found.keys() == gradients.keys()
    largest = max(x.norm().item() for x in gradients.values() if x is not None)
    for parameter, gradient in gradients.items():
        assert (gradient is None) == (found[parameter] is None)
        if gradient is not None:  # a sum that cancels has the error of its terms
            error = (found[parameter] - gradient).norm().item()
            noise = 16 * torch.finfo(torch.float32).eps * largest
            assert error <= max(1e-5 * gradient.norm().item(), noise), parameter


@every_model
def test_a_cache(name):
    """A prompt in two parts, then token by token."""
    case = case_of(name)
    x = families.embeds(10)
    found = []
    for how in ("eager", "relpos"):
        model, parts = models.build(case, how), []
        kept = transformers.DynamicCache(config=model.config)
        known = "cache" if "cache" in model.forward.__code__.co_varnames else None
        with torch.no_grad():
            for part in x.split([4, 3, 1, 1, 1], dim=1):
                caches = {known or "past_key_values": kept, "use_cache": True}
                parts.append(model(inputs_embeds=part, **caches)[0])
        found.append(torch.cat(parts, dim=1))
    assert distance(found[1], found[0]) <= 1e-6


@pytest.mark.parametrize(
    "name", [n for n in NAMES if hasattr(case_of(n).model, "generate")]
)
@pytest.mark.parametrize("side", ["right", "left"])
def test_generates_the_same_tokens(name, side):
    case = case_of(name)
    draw = torch.Generator().manual_seed(2)
    prompt = torch.randint(3, 10, (2, 6), generator=draw)
    mask = models.padded(6, side == "left").long()
    tokens = [
        models.build(case, how).generate(
            prompt * mask,
            attention_mask=mask,
            max_new_tokens=6,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )
        for how in ("eager", "relpos")
    ]
    assert torch.equal(*tokens)
    assert len(tokens[0][0].unique()) > 2


def check_with_equal_picks(case):
    """Compare the errors of eager's and relpos's logits in bfloat16, of many texts.

    An indexer that rounds picks other keys, and a router other experts, which changes
    more than any rounding. All experts are picked here, and the indexers of both models
    in bfloat16 return what those of the model in float32 pick.
    """
    exact = models.build(case, "eager")
    both = tuple(
        families.as_loaded(models.build(case, how), torch.bfloat16)
        for how in ("eager", "relpos")
    )
    picks, found = {}, [0, 0]

    def note(name, module, args, out):
        picks[name] = out

    def replace(name, module, args, out):
        assert out.shape == picks[name].shape
        found[0] += 1
        found[1] += int(not torch.equal(out, picks[name]))
        return picks[name]

    for model, hook in zip((exact, *both), (note, replace, replace), strict=True):
        for name, part in model.named_modules():
            if name.endswith(".indexer"):
                part.register_forward_hook(partial(hook, name))
    families.check_errors(case, exact, both, families.MANY, 1.0)
    assert found[0] >= found[1] > 0  # there is something to replace


@every_model
def test_sixteen_bits(name):
    check_with_equal_picks(case_of(name, num_experts_per_tok=4))


# ---- the attention function -------------------------------------------------------


def draw(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


B, H, LQ, LK, D, DV = 2, 4, 5, 5, 6, 3


@pytest.fixture
def operands():
    return draw(B, H, LQ, D), draw(B, 2, LK, D, seed=2), draw(B, 2, LK, DV, seed=3)


INDICES = torch.tensor([[0, 3, 4], [4, 1, 0], [2, 4, 0], [1, 3, -1], [4, 0, 3]]).expand(
    B, -1, -1
)


class Module(torch.nn.Module):
    num_key_value_groups = 2
    is_causal = True


def by_mask(operands, mask, sinks=None):
    """The same by `attention`, whose picks and mask are one mask."""
    picked = torch.zeros(B, 1, LQ, LK, dtype=torch.bool)
    for b, i, n in torch.cartesian_prod(*map(torch.arange, (B, LQ, PICKS))).tolist():
        if INDICES[b, i, n] >= 0:
            picked[b, 0, i, INDICES[b, i, n]] = True
    out = rt.attention(*operands, picked & mask, enable_gqa=True, sinks=sinks)
    return out.transpose(1, 2)


CAUSAL = torch.ones(LQ, LK, dtype=torch.bool).tril()
PADDED = CAUSAL & (torch.arange(LK) > 0)
call = partial(attention_function, Module())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_what_the_mask_hides_is_no_key(counted, operands, dtype):
    given = {"indices": INDICES.to(dtype)}
    close = torch.testing.assert_close
    close(call(*operands, None, **given)[0], by_mask(operands, CAUSAL))
    mask = PADDED.expand(B, 1, LQ, LK)
    close(call(*operands, mask, **given)[0], by_mask(operands, PADDED))
    last = torch.ones(B, 1, 1, LK, dtype=torch.bool)
    close(call(*operands, last, **given)[0], by_mask(operands, last))
    whole = call(*operands, None, is_causal=False, **given)[0]
    close(whole, by_mask(operands, torch.tensor(True)))
    sinks = draw(H)
    close(
        call(*operands, None, s_aux=sinks, **given)[0], by_mask(operands, CAUSAL, sinks)
    )
    assert len(counted) == 5
    assert counted[0][0, 0].tolist()[:2] == [[0, -1, -1], [-1, 1, 0]]


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_key_that_is_named_twice_counts_once(counted, operands, is_compiled):
    """As by the mask that eager code makes of picks, whatever else a query picks."""
    twice = torch.cat([INDICES[..., :2], INDICES, INDICES[..., 1:]], dim=-1)
    function = call
    if is_compiled:
        function = torch.compile(call, backend="eager", fullgraph=True)
    for mask in (None, PADDED.expand(B, 1, LQ, LK)):
        for dtype in (torch.int32, torch.int64):
            got, _ = function(*operands, mask, indices=twice.to(dtype))
            wanted = by_mask(operands, CAUSAL if mask is None else PADDED)
            torch.testing.assert_close(got, wanted)
    assert len(counted) == 4


def test_keys_that_are_named_twice_by_blocks_of_queries(monkeypatch):
    monkeypatch.setattr(picks, "_SCRATCH", 40)  # three queries at a time
    drawn = torch.Generator().manual_seed(5)
    indices = torch.randint(-2, 11, (2, 17, 9), generator=drawn)
    found = picks.without_repeats(indices, 11)
    for given, kept in zip(indices.flatten(0, 1), found.flatten(0, 1), strict=True):
        keys = [key for key in kept.tolist() if key >= 0]
        assert sorted(keys) == sorted({key for key in given.tolist() if key >= 0})
    for shape in ((0, 3, 2), (2, 0, 2), (2, 3, 0)):
        none = torch.zeros(shape, dtype=torch.int32)
        assert picks.without_repeats(none, 11).shape == shape


def test_what_graphs_lack_is_a_mask(counted, operands):
    """Weights, dropout, and masks of numbers, or of several heads."""
    close = torch.testing.assert_close
    wanted = by_mask(operands, CAUSAL)
    out, weights = call(*operands, None, indices=INDICES, output_attentions=True)
    close(out, wanted)
    close((weights != 0).sum(-1)[0, 0], torch.tensor([1, 2, 2, 2, 3]))
    numbers = torch.where(CAUSAL, 0.0, -torch.inf).expand(B, 1, LQ, LK)
    close(call(*operands, numbers, indices=INDICES)[0], wanted)
    heads = CAUSAL.expand(B, H, LQ, LK)
    close(call(*operands, heads, indices=INDICES)[0], wanted)
    torch.manual_seed(3)
    dropped, _ = call(*operands, None, dropout=0.5, indices=INDICES)
    assert (dropped != wanted).any() and torch.isfinite(dropped).all()
    assert not counted


def test_a_bias_an_offset_and_a_mask_of_integers_are_no_graph(counted, operands):
    """Each is what the call without picks makes of it."""
    close = torch.testing.assert_close
    bias = draw(1, H, LQ, LK, seed=4)
    picked = torch.zeros(B, 1, LQ, LK + 1, dtype=torch.bool)
    picked = picked.scatter(-1, INDICES[:, None] % (LK + 1), True)[..., :LK]
    numbers = torch.where(picked & CAUSAL, bias, -torch.inf)
    wanted = rt.attention(*operands, numbers, enable_gqa=True).transpose(1, 2)
    close(call(*operands, None, indices=INDICES, position_bias=bias)[0], wanted)
    last = operands[0][:, :, 3:], *operands[1:]
    wanted = by_mask(operands, CAUSAL)[:, 3:]
    close(call(*last, None, indices=INDICES[:, 3:], query_offset=3)[0], wanted)
    with pytest.raises(TypeError, match=r"^attn_mask: "):
        call(*operands, torch.ones(B, 1, LQ, LK).long(), indices=INDICES)
    assert not counted


@pytest.mark.parametrize(
    ("indices", "error", "text"),
    [
        (INDICES + 1, IndexError, "indices: got 5, outside the 5 keys"),
        (INDICES * 1.0, TypeError, "indices: got a tensor of torch.float32"),
        (INDICES > 0, TypeError, "indices: got a tensor of torch.bool"),
        (INDICES[0], ValueError, r"indices: got shape \(5, 3\); expected \(B, Lq, k\)"),
        (INDICES[:, :2], ValueError, r"indices: got shape \(2, 2, 3\)"),
    ],
)
def test_other_indices_are_refused(operands, indices, error, text):
    with pytest.raises(error, match=text):
        call(*operands, None, indices=indices)


# ---- blocks of keys ------------------------------------------------------------------

every_model_of_blocks = pytest.mark.parametrize("name", NAMES_OF_BLOCKS)


@pytest.fixture
def blocks(monkeypatch):
    """The blocks of keys that calls of attention get."""
    calls = []

    def counting(*args, **keywords):
        calls.append(keywords.get("key_blocks"))
        return rt.attention(*args, **keywords)

    monkeypatch.setattr(registry, "attention", counting)
    return calls


@every_model_of_blocks
def test_blocks_equal_eager(blocks, name):
    """Padding is on the right alone: on the left it moves the blocks."""
    case = case_of(name)
    wanted, gradients = models.run(case, models.build(case, "eager"))
    got, found = models.run(case, models.build(case, "relpos"))
    assert [x is None for x in blocks] == [True, False]
    assert blocks[1].shape[1] == 2 and not blocks[1].all()
    assert distance(got, wanted) <= 1e-6
    assert_gradients_are(found, gradients)


@every_model_of_blocks
def test_blocks_and_a_cache(blocks, name):
    case = case_of(name)
    x = families.embeds(10)
    found = []
    for how in ("eager", "relpos"):
        model, parts = models.build(case, how), []
        kept = transformers.DynamicCache(config=model.config)
        with torch.no_grad():
            for part in x.split([4, 3, 1, 1, 1], dim=1):
                out = model(inputs_embeds=part, past_key_values=kept, use_cache=True)
                parts.append(out[0])
        found.append(torch.cat(parts, dim=1))
    assert distance(found[1], found[0]) <= 1e-6
    assert len(blocks) == 10


@every_model_of_blocks
def test_blocks_generate_the_same_tokens(name):
    case = case_of(name)
    draw = torch.Generator().manual_seed(2)
    prompt = torch.randint(3, 10, (2, 6), generator=draw)
    tokens = [
        models.build(case, how).generate(
            prompt, max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=None
        )
        for how in ("eager", "relpos")
    ]
    assert torch.equal(*tokens)


@every_model_of_blocks
def test_blocks_in_sixteen_bits(name):
    check_with_equal_picks(case_of(name, num_experts_per_tok=4))


class OfBlocks(Module):
    indexer = type("Indexer", (), {"block_size": 2})()


PICKED = torch.tensor([[[[0, -1]], [[2, 1]]]]).expand(B, 2, LQ, 2)


def test_blocks_are_a_mask_of_their_keys(operands):
    shown = torch.zeros(1, 2, 1, 3, dtype=torch.bool)
    shown[0, 0, 0, 0] = shown[0, 1, 0, 1:] = True
    mask = shown.repeat_interleave(2, -1)[..., :LK].repeat_interleave(2, 1)
    wanted = rt.attention(*operands, mask & CAUSAL, enable_gqa=True)
    got, _ = attention_function(OfBlocks(), *operands, None, block_indices=PICKED)
    torch.testing.assert_close(got, wanted.transpose(1, 2))


def test_blocks_of_packed_documents_are_those_of_the_sequence(operands):
    """The second document begins within a block."""
    documents = torch.tensor([0, 3, LQ], dtype=torch.int32)
    every = torch.arange(3).expand(B, 2, LQ, 3)
    given = {"cu_seq_lens_q": documents, "cu_seq_lens_k": documents}
    got, _ = attention_function(
        OfBlocks(), *operands, None, block_indices=every, **given
    )
    number = torch.tensor([0, 0, 0, 1, 1])
    mask = (number[:, None] == number) & CAUSAL
    wanted = rt.attention(*operands, mask, enable_gqa=True)
    torch.testing.assert_close(got, wanted.transpose(1, 2))
    last = attention_function(OfBlocks(), *operands, mask, block_indices=PICKED)[0]
    got = attention_function(
        OfBlocks(), *operands, None, block_indices=PICKED, **given
    )[0]
    torch.testing.assert_close(got, last)


@pytest.mark.parametrize(
    ("module", "picked", "error", "text"),
    [
        (OfBlocks(), PICKED + 1, IndexError, "block_indices: got 3, outside the 3"),
        (OfBlocks(), PICKED * 1.0, TypeError, "block_indices: got a tensor of torch.f"),
        (OfBlocks(), PICKED[0], ValueError, r"block_indices: got shape \(2, 5, 2\)"),
        (OfBlocks(), PICKED[:, :, :2], ValueError, r"block_indices: got shape"),
        (Module(), PICKED, ValueError, "indexer.block_size is None"),
    ],
)
def test_other_blocks_are_refused(operands, module, picked, error, text):
    with pytest.raises(error, match=text):
        attention_function(module, *operands, None, block_indices=picked)
