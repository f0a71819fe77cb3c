"""Jagged tensors: each item has the results and gradients of a call of its own."""

from __future__ import annotations

import pytest
import torch

import relpos.torch

H, D, LENGTHS = 3, 4, [5, 0, 7, 1]
LONGEST = max(LENGTHS)
SCHEMES = ["attention", "shaw", "relative_global", "transformer_xl", "fire"]


def random(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype)


def jagged(heads=H, columns=D, dtype=torch.float64):
    """A jagged tensor (B, H, j, D), of which PyTorch records gradients."""
    items = [random(length, heads, columns, dtype=dtype) for length in LENGTHS]
    x = torch.nested.nested_tensor(items, layout=torch.jagged, requires_grad=True)
    return x, x.transpose(1, 2)


def call_of(scheme):
    """A function of query, key and value, the tensors that it has, and a copy of it.

    The copy takes an item alone, whose length does not say where tables begin.
    """
    placed = {}
    if scheme == "attention":
        tensors = {"rel_bias": random(H, 5), "sinks": random(H)}
        function = relpos.torch.attention
    elif scheme == "shaw":
        tensors = {"rel_key": random(5, D), "rel_value": random(3, D)}
        function = relpos.torch.shaw_attention
    elif scheme == "relative_global":
        tensors = {"rel_key": random(H, LONGEST, D)}
        function = relpos.torch.relative_global_attention
    elif scheme == "transformer_xl":
        tensors = {"rel_key": random(2 * LONGEST - 1, D)}
        tensors |= {"pos_bias_u": random(H, D), "pos_bias_v": random(D)}
        placed = {"min_relative_position": 1 - LONGEST}
        function = relpos.torch.transformer_xl_attention
    else:
        tensors = {"w1": random(4), "b1": random(4), "w2": random(H, 4)}
        tensors |= {"b2": random(H), "c": torch.tensor(0.5)}
        tensors |= {"threshold": torch.tensor(2.5)}
        function = relpos.torch.fire_attention
    for x in tensors.values():
        x.requires_grad_()
    return function, tensors, placed


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_item_has_what_it_has_alone(scheme):
    torch.manual_seed(0)
    leaves, tokens = zip(*(jagged() for _ in "qkv"), strict=True)
    function, tensors, placed = call_of(scheme)
    result = function(*tokens, **tensors, return_lse=True)
    assert result.out.is_nested and result.out.shape == tokens[0].shape
    assert result.out.layout is torch.jagged
    weights = random(H, sum(LENGTHS), D)
    (result.out.values() * weights).sum().backward()
    found = [x.grad.values() for x in leaves] + [x.grad for x in tensors.values()]
    for x in tensors.values():
        x.grad = None

    begin, grads = 0, []
    for query, key, value in zip(*(x.detach().unbind() for x in leaves), strict=True):
        items = [x.transpose(0, 1).requires_grad_() for x in (query, key, value)]
        end = begin + query.shape[0]
        want = function(*items, **tensors, **placed, return_lse=True)
        torch.testing.assert_close(result.out.values()[:, begin:end], want.out)
        torch.testing.assert_close(result.lse.values()[:, begin:end], want.lse)
        (want.out * weights[:, begin:end]).sum().backward()
        grads.append([x.grad.transpose(0, 1) for x in items])
        begin = end
    expected = [torch.cat(x) for x in zip(*grads, strict=True)]
    expected += [x.grad for x in tensors.values()]
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted)


def test_what_belongs_to_tokens_is_jagged_too():
    torch.manual_seed(1)
    (_, query), (_, key), (_, value) = jagged(), jagged(1), jagged(1)
    _, e = jagged(columns=2)
    steps = torch.nested.nested_tensor(
        [-torch.rand(n, H, dtype=torch.float64) for n in LENGTHS], layout=torch.jagged
    )
    rel_key = random(5, 2)
    given = {"is_causal": True, "enable_gqa": True, "rel_key": rel_key}
    out = relpos.torch.attention(
        query,
        key,
        value,
        position_query=e,
        log_decay=steps.transpose(1, 2),
        sinks=steps.transpose(1, 2),
        **given,
    )
    parts = [x.unbind() for x in (query, key, value, e, steps, out)]
    for q, k, v, own, step, got in zip(*parts, strict=True):
        logs = step.transpose(0, 1)
        want = relpos.torch.attention(
            q, k, v, position_query=own, log_decay=logs, sinks=logs, **given
        )
        torch.testing.assert_close(got, want)


def test_a_large_step_of_decay_rounds_no_other_item():
    torch.manual_seed(6)
    query, key, value = (jagged()[1] for _ in "qkv")
    items = [-torch.rand(length, H, dtype=torch.float64) for length in LENGTHS]
    items[0][2] = -1e12
    nested = torch.nested.nested_tensor(items, layout=torch.jagged, requires_grad=True)
    steps = nested.transpose(1, 2)
    out = relpos.torch.attention(query, key, value, is_causal=True, log_decay=steps)
    (gradient,) = torch.autograd.grad(out.values().sin().sum(), nested)
    parts = [x.unbind() for x in (query, key, value, out, gradient)]
    for q, k, v, got, its_gradient, own in zip(*parts, items, strict=True):
        logs = own.clone().requires_grad_()
        want = relpos.torch.attention(q, k, v, is_causal=True, log_decay=logs.T)
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-13)
        (expected,) = torch.autograd.grad(want.sin().sum(), logs)
        torch.testing.assert_close(its_gradient, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_jagged_tensor_of_other_numbers(dtype):
    torch.manual_seed(2)
    tokens = [jagged(dtype=dtype)[1] for _ in "qkv"]
    out = relpos.torch.attention(*tokens, is_causal=True)
    assert out.dtype is dtype
    offsets = tokens[0].offsets()
    values = [x.values() for x in tokens]
    want = relpos.torch.attention(*values, is_causal=True, cu_seqlens=offsets)
    torch.testing.assert_close(out.values(), want, rtol=0, atol=0)


def test_scheme_by_position_and_dropout_by_name():
    torch.manual_seed(3)
    tokens = [jagged()[1] for _ in "qkv"]
    table = random(5, D)
    out = relpos.torch.shaw_attention(*tokens, table, dropout_p=0.5, rng=1)
    values = [x.values() for x in tokens]
    want = relpos.torch.shaw_attention(
        *values, table, dropout_p=0.5, rng=1, cu_seqlens=tokens[0].offsets()
    )
    torch.testing.assert_close(out.values(), want, rtol=0, atol=0)


def refused(error, match, *more, **changes):
    torch.manual_seed(4)
    tokens = {name: jagged()[1] for name in ("query", "key", "value")}
    with pytest.raises(error, match=match):
        relpos.torch.attention(**tokens | changes)


def test_what_has_no_meaning_for_items_of_several_lengths_is_refused():
    refused(ValueError, "attn_mask: given together", attn_mask=torch.ones(7, 7).bool())
    refused(ValueError, "key_lengths: given together", key_lengths=5)
    blocks = {"key_blocks": torch.ones(1, 1, 1).bool(), "block_size": 13}
    refused(ValueError, "key_blocks: given together with nested", **blocks)
    refused(ValueError, "query_offset: given together", query_offset=0)
    refused(ValueError, "cu_seqlens: given together", cu_seqlens=torch.tensor([0, 13]))
    refused(ValueError, "return_weights: got True", return_weights=True)
    refused(ValueError, "rel_bias: got shape", rel_bias=random(4, H, 5))
    refused(TypeError, "sinks: got a Tensor", sinks=random(H, 13))
    refused(TypeError, "log_decay: got a Tensor", log_decay=random(H, 13))
    other = torch.nested.nested_tensor(
        [random(n, H, D) for n in (5, 1, 7, 0)], layout=torch.jagged
    )
    refused(ValueError, r"key: got items of lengths \[5, 1", key=other.transpose(1, 2))
    refused(TypeError, "value: got a nested tensor; expected one of", value=other)
    refused(TypeError, "query: got a nested tensor; expected a jagged", key=random(9))
    padded = random(4, 9, H, D)
    narrow = torch.nested.narrow(
        padded, 1, torch.tensor([0, 1, 0, 2]), torch.tensor(LENGTHS), torch.jagged
    )
    refused(TypeError, "value: got a nested tensor with", value=narrow.transpose(1, 2))
    _, x = jagged()
    with pytest.raises(TypeError, match="attn_mask"):
        relpos.torch.attention(x, x, x, None, attn_mask=None)
