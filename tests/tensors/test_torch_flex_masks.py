"""BlockMask, and masks of attention beside score_mod."""

from __future__ import annotations

import functools
import math
from inspect import signature

import pytest
import torch
import torch.nn.attention.flex_attention as flex
from oracles.tolerances import TOLERANCES
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

import relpos.torch
from relpos.torch import attention, flex_attention
from relpos.torch._pair_masks import Part, flags_of

B, H, LQ, LK, D = 2, 4, 37, 41, 8
AT = torch.arange(LQ)[:, None], torch.arange(LK)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Let PyTorch's function run as it is: it would compile its own call."""
    monkeypatch.setattr(
        flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False
    )


def tensors(key_heads=H, lengths=(LQ, LK), dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = [(B, H, lengths[0], D), *[(B, key_heads, lengths[1], D)] * 2]
    return [torch.randn(s, generator=generator, dtype=dtype) for s in shapes]


def error(found, wanted):
    found, wanted = found.double(), wanted.double()
    return ((found - wanted).norm() / wanted.norm()).item()


BIAS = torch.randn(H, LQ + LK, generator=torch.Generator().manual_seed(1))
DOCUMENTS = torch.tensor([0] * 13 + [1] * 11 + [2] * 17)


def by_distance(score, b, h, i, j):
    return score + BIAS[h, j - i + LQ]


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i - j).abs() < 4 + 3 * h


def documents(b, h, i, j):
    return DOCUMENTS[i] == DOCUMENTS[j]


def by_item(b, h, i, j):
    return (i + j) % 7 < 3 + b


def some_rows(b, h, i, j):
    return (i % 5 != 2) & (i >= j)


def block_mask(function, lengths=(LQ, LK), block=8):
    axes = {window: (None, H), by_item: (B, None)}.get(function, (None, None))
    return flex.create_block_mask(
        function, *axes, *lengths, device="cpu", BLOCK_SIZE=block
    )


MASKS = [causal, window, documents, by_item, some_rows]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("function", [None, by_distance])
@pytest.mark.parametrize("block", [8, 16, 128])
def test_masks_of_create_block_mask(mask, function, block):
    query, key, value = tensors()
    given = block_mask(mask, block=block)
    out, lse = flex_attention(query, key, value, function, given, return_lse=True)
    wanted = flex.flex_attention(query, key, value, function, given, return_lse=True)
    assert error(out, wanted[0]) < TOLERANCES["forward"].float32
    empty = wanted[1] == -math.inf
    assert torch.equal(lse == -math.inf, empty)
    assert not out[empty].any()
    assert error(lse[~empty], wanted[1][~empty]) < TOLERANCES["forward"].float32


def seen_by(mask):
    """Return flags of all pairs that a mask_mod shows."""
    axes = torch.arange(B)[:, None, None, None], torch.arange(H)[:, None, None]
    return mask(*axes, *AT).expand(B, H, LQ, LK)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("key_heads", [4, 2])
def test_gradients(mask, key_heads):
    given = block_mask(mask)
    seen = seen_by(mask)

    def ours(query, key, value, bias):
        def function(score, b, h, i, j):
            return score * 1.5 + bias[h, j - i + LQ]

        return flex_attention(query, key, value, function, given, enable_gqa=True)

    def dense(query, key, value, bias):
        bias = bias[:, AT[1] - AT[0] + LQ].masked_fill(~seen, -math.inf)
        key, value = (x.repeat_interleave(H // key_heads, 1) for x in (key, value))
        out = scaled_dot_product_attention(query * 1.5, key, value, attn_mask=bias)
        return out.nan_to_num()  # of rows that see no key

    found, wanted = [], []
    for call, dtype, results in (
        (ours, torch.float32, found),
        (dense, torch.float64, wanted),
    ):
        leaves = [*tensors(key_heads), BIAS]
        leaves = [x.to(dtype).clone().requires_grad_() for x in leaves]
        out = call(*leaves)
        weights = torch.linspace(-1, 1, out.numel(), dtype=dtype).view(out.shape)
        results += torch.autograd.grad((out * weights).sum(), leaves)
    for own, other in zip(found, wanted, strict=True):
        assert error(own, other) < TOLERANCES["gradient"].float32


def listed_blocks(heads=1):
    """Return a BlockMask of lists that no mask_mod says, and its pairs."""
    generator = torch.Generator().manual_seed(3)
    grid = -(-LQ // 8), -(-LK // 4)
    kinds = torch.randint(0, 3, (1, heads, *grid), generator=generator)
    kinds[:, :, 1] = 0  # queries that see nothing
    lists = []
    for kind in (1, 2):
        at = (kinds == kind).int()
        order = at.argsort(dim=-1, descending=True, stable=True).int()
        lists += [at.sum(-1).int(), order]
    given = flex.BlockMask.from_kv_blocks(
        *lists, BLOCK_SIZE=(8, 4), mask_mod=by_item, seq_lengths=(LQ, LK)
    )
    kinds = kinds.repeat_interleave(8, 2).repeat_interleave(4, 3)[:, :, :LQ, :LK]
    return given, (kinds == 2) | ((kinds == 1) & seen_by(by_item))


@pytest.mark.parametrize("heads", [1, H])
def test_lists_of_blocks_mean_what_they_say(heads):
    """Blocks that are not listed are hidden; in full ones mask_mod is not asked."""
    given, seen = listed_blocks(heads)
    query, key, value = tensors()
    out, lse = flex_attention(query, key, value, by_distance, given, return_lse=True)
    bias = BIAS[:, AT[1] - AT[0] + LQ].masked_fill(~seen, -math.inf)
    wanted = scaled_dot_product_attention(query, key, value, attn_mask=bias)
    assert error(out, wanted.nan_to_num()) < TOLERANCES["forward"].float32
    assert torch.equal(lse == -math.inf, ~seen.any(-1))


def test_full_blocks_alone_are_left_to_the_kernels(monkeypatch):
    query, key, value = tensors(lengths=(32, 32))

    def by_block(b, h, i, j):
        return i // 8 >= j // 8

    given = block_mask(by_block, (32, 32))
    called = []
    inner = relpos.torch._pair_call.attend
    monkeypatch.setattr(
        relpos.torch._pair_call, "attend", lambda *x: called.append(x) or inner(*x)
    )
    leaves = [x.requires_grad_() for x in (query, key, value)]
    out = flex_attention(*leaves, block_mask=given)
    assert called
    at = torch.arange(32)
    seen = at[:, None] // 8 >= at // 8
    wanted = scaled_dot_product_attention(*leaves, attn_mask=seen)
    assert error(out, wanted) < TOLERANCES["forward"].float32
    pairs = zip(
        torch.autograd.grad(out.square().sum(), leaves),
        torch.autograd.grad(wanted.square().sum(), leaves),
        strict=True,
    )
    for own, other in pairs:
        assert error(own, other) < TOLERANCES["gradient"].float32


def test_hidden_blocks_are_not_computed():
    """Each function is called for the keys of listed blocks, and of partial ones."""
    seen = {"score": 0, "mask": 0}

    class Pairs(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.sinh.default:
                seen["score"] += args[0].numel()
            if func is torch.ops.aten.ge.Tensor:
                shape = torch.broadcast_shapes(*[x.shape for x in args])
                seen["mask"] += math.prod(shape)
            return func(*args, **(kwargs or {}))

    length = 1024
    query, key, value = (x[:1, :1] for x in tensors(lengths=(length, length)))
    given = block_mask(causal, (length, length), 128)
    with Pairs():
        flex_attention(query, key, value, lambda s, *at: torch.sinh(s), given)
    # 36 of 64 blocks are listed, and mask_mod decides in 8. Tracing is seen twice, and
    # traces pieces of 1 to 4 blocks
    assert 36 <= seen["score"] / 128**2 <= 36 + 2 * (1 + 2 + 3 + 4)
    assert 8 <= seen["mask"] / 128**2 <= 8 + 2


def test_lengths_have_to_fit():
    query, key, value = tensors()
    for lengths in ((LQ, LK - 1), (LQ + 8, LK), (LQ, LK + 8)):
        given = block_mask(causal, lengths)
        with pytest.raises(ValueError, match="block_mask: got one for"):
            flex_attention(query, key, value, block_mask=given)
    axes = flex.create_block_mask(causal, 3, None, LQ, LK, device="cpu")
    with pytest.raises(ValueError, match="block_mask: got one for 3 batch items"):
        flex_attention(query, key, value, block_mask=axes)
    with pytest.raises(TypeError, match="block_mask: got function"):
        flex_attention(query, key, value, block_mask=causal)


@pytest.mark.skipif(
    "compute_q_blocks" not in signature(flex.BlockMask.from_kv_blocks).parameters,
    reason="this PyTorch reads the lists itself",
)
def test_lists_are_checked():
    query, key, value = tensors(lengths=(16, 16))
    counts, indices = torch.ones(1, 1, 2).int(), torch.zeros(1, 1, 2, 2).int()
    wrong = {
        "beyond": (counts, indices + 2),
        "before": (counts, indices - 1),
        "many": (counts * 3, indices),
    }
    for numbers in wrong.values():
        given = flex.BlockMask.from_kv_blocks(
            *numbers, BLOCK_SIZE=8, compute_q_blocks=False
        )
        with pytest.raises(IndexError, match="block_mask: got kv_indices"):
            flex_attention(query, key, value, block_mask=given)


# ---- beside the other arguments of attention -----------------------------------------

OTHERS = {
    "is_causal": {"is_causal": True, "query_offset": 4},
    "window": {"window": (9, 5), "query_offset": torch.tensor([4, -2])},
    "left": {"window": (9, None), "query_offset": 3},
    "key_ranges": {"key_ranges": torch.stack([AT[0][:, 0] // 3, AT[0][:, 0] + 2], -1)},
    "key_lengths": {"key_lengths": torch.tensor([LK, 11])},
    "attn_mask": {"attn_mask": (AT[0] * AT[1]) % 3 != 1},
    "mask_of_heads": {
        "attn_mask": torch.rand(H, LQ, 1, generator=torch.Generator().manual_seed(1))
        > 0.3
    },
    "key_blocks": {
        "key_blocks": torch.rand(B, H, 5, 6, generator=torch.Generator().manual_seed(2))
        > 0.4,
        "block_size": (8, 7),
    },
    "blocks_of_groups": {
        "key_blocks": torch.rand(2, LQ, 6, generator=torch.Generator().manual_seed(2))
        > 0.4,
        "block_size": (1, 7),
    },
    "sinks": {"sinks": torch.tensor([0.5, -math.inf, 2.0, -1.0])},
    "sinks_of_queries": {"sinks": torch.linspace(-2, 2, H * LQ).view(H, LQ)},
    "softcap": {"softcap": 1.5, "scale": 0.6},
    "num_threads": {"num_threads": 2},
    "all": {
        "is_causal": True,
        "query_offset": 4,
        "key_lengths": torch.tensor([LK, 11]),
        "softcap": 2.0,
        "sinks": torch.zeros(H),
        "attn_mask": (AT[0] * AT[1]) % 3 != 1,
    },
}


def doubled(score, b, h, i, j):
    return score * 2


@pytest.mark.parametrize("name", OTHERS)
def test_beside_other_arguments(name):
    """A function that doubles scores is a scale: the kernels know both."""
    given = dict(OTHERS[name])
    leaves = [x.requires_grad_() for x in tensors(2)]
    if "sinks" in given:
        given["sinks"] = given["sinks"].clone().requires_grad_()
        leaves.append(given["sinks"])
    scale = given.pop("scale", 0.3)
    call = functools.partial(
        attention, *leaves[:3], enable_gqa=True, return_lse=True, **given
    )
    found = call(scale=scale, score_mod=doubled)
    wanted = call(scale=2 * scale)
    assert error(found.out, wanted.out) < TOLERANCES["forward"].float32
    empty = wanted.lse == -math.inf
    assert torch.equal(found.lse == -math.inf, empty)
    weights = torch.linspace(-1, 1, found.out.numel()).view(found.out.shape)
    grads = [
        torch.autograd.grad((x.out * weights).sum() + x.lse[~empty].sum(), leaves)
        for x in (found, wanted)
    ]
    for own, other in zip(*grads, strict=True):
        assert error(own, other) < 2 * TOLERANCES["gradient"].float32


def test_block_mask_beside_blocks_and_causality():
    query, key, value = tensors(lengths=(LQ, LQ))
    blocks = torch.rand(5, 5, generator=torch.Generator().manual_seed(4)) > 0.3
    given = block_mask(documents, (LQ, LQ))
    out = attention(
        query,
        key,
        value,
        is_causal=True,
        block_mask=given,
        key_blocks=blocks[None],
        block_size=8,
    )
    at = torch.arange(LQ)
    seen = blocks.repeat_interleave(8, 0).repeat_interleave(8, 1)[:LQ, :LQ]
    seen = seen & (DOCUMENTS[at][:, None] == DOCUMENTS[at]) & (at[:, None] >= at)
    wanted = scaled_dot_product_attention(query, key, value, attn_mask=seen)
    assert error(out, wanted.nan_to_num()) < TOLERANCES["forward"].float32


def test_flags_of_a_part():
    given, _ = listed_blocks(H)
    flags = flags_of(given, (B, H, LQ, LK))
    part = Part(slice(0, 1), slice(1, 2), slice(8, 24))
    assert torch.equal(flags.of(flags.seen, part), flags.seen[:, 1:2, 1:3])


def test_networks_of_scores_in_pieces():
    """A product of matrices needs memory in order, which a piece of a block is not."""
    layers = torch.nn.Sequential(
        torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    )

    def function(score, b, h, i, j):
        return layers(score[None])[0]

    lengths = 20, 1100
    query, key, value = [x.requires_grad_() for x in tensors(lengths=lengths)]
    ends = torch.full((B,), 1090)
    found = attention(query, key, value, score_mod=function, key_lengths=ends)
    scores = layers((query @ key.mT / math.sqrt(D))[..., None])[..., 0]
    wanted = torch.softmax(scores[..., :1090], -1) @ value[:, :, :1090]
    assert error(found, wanted) < TOLERANCES["forward"].float32
    leaves = [query, key, value, *layers.parameters()][:-1]  # the last one has 0
    pairs = zip(
        torch.autograd.grad(found.square().sum(), leaves),
        torch.autograd.grad(wanted.square().sum(), leaves),
        strict=True,
    )
    for own, other in pairs:
        assert error(own, other) < 10 * TOLERANCES["gradient"].float32
