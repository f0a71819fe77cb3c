"""Attention on tensors: the bits of relpos on arrays, and torch's own autograd."""

from __future__ import annotations

from inspect import signature

import numpy as np
import pytest
import torch
from tolerances import assert_bitwise
from torch_attention import CALLS, run, tensors_of

import relpos
import relpos.reference
import relpos.torch

DTYPES = ["float16", "float32", "float64"]


def run_arrays(label, dtype, **options):
    """The same by NumPy: the result with its context."""
    function, inputs, others = CALLS[label]
    inputs = {name: x.astype(dtype) for name, x in inputs.items()}
    keywords = {**inputs, **others, **options}
    return getattr(relpos, function)(**keywords, return_context=True)


def seeds(like, seed=3):
    """Gradients that come in."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(like.shape))


@pytest.mark.parametrize("name", sorted({call.function for call in CALLS.values()}))
def test_arguments_are_those_of_the_same_name(name):
    ours, theirs = (
        signature(getattr(module, name)).parameters for module in (relpos.torch, relpos)
    )
    wanted = [n for n in theirs if n not in ("out", "return_context")]
    functions = ["block_mask", "score_mod"] if name == "attention" else []
    assert sorted(ours) == sorted([*wanted, *functions])
    for argument in wanted:
        assert ours[argument].default == theirs[argument].default
        assert ours[argument].kind == theirs[argument].kind
    positions = [n for n, p in ours.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positions == [*theirs][: len(positions)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("label", CALLS)
def test_the_bits_of_arrays(label, dtype):
    inputs = tensors_of(CALLS[label].inputs, getattr(torch, dtype), grad=True)
    got = run(label, inputs, return_lse=True)
    want = run_arrays(label, dtype, return_lse=True)
    assert got.out.dtype == getattr(torch, dtype) and got.weights is None
    assert_bitwise(got.out.detach().numpy(), want.out)
    assert_bitwise(got.lse.detach().numpy(), want.lse)
    grads = seeds(got.out).to(got.out.dtype), seeds(got.lse).to(got.lse.dtype)
    torch.autograd.backward([got.out, got.lse], grads)
    found = want.context.backward(
        grads[0].numpy(), grad_lse=grads[1].numpy(), wrt=[*inputs]
    )
    for name, tensor in inputs.items():
        assert tensor.grad.dtype == tensor.dtype
        assert_bitwise(tensor.grad.numpy(), getattr(found, name))


def test_gradcheck_of_strided_and_broadcast_tensors():
    def call(x, table):
        query, key = x.transpose(-1, -2)[:, ::2], x.mT.flip(-2)
        value = x[:1].mT.expand(3, -1, -1)
        bias = table[:, None].expand(5, 2).T[:1]
        tables = {"rel_key": table[:, None].expand(5, 4), "rel_bias": bias}
        return relpos.torch.attention(query, key, value, **tables, query_offset=0)

    x = torch.randn(3, 4, 6, dtype=torch.float64, requires_grad=True)
    table = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(call, (x, table))


def test_bfloat16_is_computed_in_float32():
    inputs = tensors_of(CALLS["tables"].inputs, torch.bfloat16, grad=True)
    got = run("tables", inputs, return_lse=True)
    assert got.out.dtype == torch.bfloat16 and got.lse.dtype == torch.float32
    wide = {name: x.detach().float().requires_grad_() for name, x in inputs.items()}
    want = run("tables", wide)
    assert torch.equal(got.out, want.bfloat16())
    grad = seeds(want).bfloat16()
    got.out.backward(grad)
    want.backward(grad.float())
    for name, tensor in inputs.items():
        assert torch.equal(tensor.grad, wide[name].grad.bfloat16())


def test_tables_do_not_promote_and_the_mask_does_not_count():
    query = torch.ones(1, 2, 4, dtype=torch.float16)
    wide, mask = torch.ones(3, 4), torch.zeros(2, 2, dtype=torch.float64)
    for table, dtype in (
        (wide.half(), torch.float16),
        (wide.bfloat16(), torch.float16),
        (wide, torch.float16),
        (wide.double(), torch.float64),
    ):
        out = relpos.torch.attention(query, query, query, mask, rel_key=table)
        assert out.dtype == dtype


def test_autocast_rounds_the_result_alone():
    inputs = tensors_of(CALLS["tables"].inputs, torch.float32, grad=True)
    plain = run("tables", inputs)
    with torch.autocast("cpu", torch.bfloat16):
        out = run("tables", inputs)
        wide = run("tables", {name: x.double() for name, x in inputs.items()})
    assert out.dtype == torch.bfloat16 and wide.dtype == torch.float64
    assert torch.equal(out, plain.bfloat16())
    out.backward(torch.ones_like(out))
    assert inputs["rel_key"].grad.dtype == torch.float32


def test_negated_views_and_results_of_no_grad():
    z = torch.randn(1, 4, 4, dtype=torch.complex128)
    negated = z.conj().imag
    assert negated.is_neg()
    want = relpos.torch.attention(-z.imag, z.real, z.real)
    assert torch.equal(relpos.torch.attention(negated, z.real, z.real), want)
    with torch.no_grad():
        assert not relpos.torch.attention(
            z.real.requires_grad_(), *2 * [z.real]
        ).grad_fn
    with torch.inference_mode():
        assert torch.equal(relpos.torch.attention(-z.imag, z.real, z.real), want)


def test_tensors_changed_after_the_call_are_noticed():
    query, key = torch.randn(2, 1, 4, 4, requires_grad=True).unbind()
    table = torch.zeros(3, 4)
    out = relpos.torch.attention(query, key, key, rel_key=table)
    assert out.grad_fn.name() == "AttendBackward"
    table.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_ranges_of_any_numbers_are_cut_to_the_keys():
    torch.manual_seed(2)
    tokens = [torch.randn(1, 40, 8, requires_grad=True) for _ in range(3)]
    ends = torch.tensor([2**63 - 1, 2**63 - 31, -(2**63), -(2**62), 0, 7, 40, 41])
    ranges = ends[torch.randint(len(ends), (40, 2))]
    kept, found = ranges.clone(), []
    for given in (ranges, ranges.clamp(0, 40)):
        out = relpos.torch.attention(*tokens, key_ranges=given)
        found.append([out, *torch.autograd.grad(out.square().sum(), tokens)])
    assert all(map(torch.equal, *found))
    assert torch.equal(ranges, kept)


def test_masks_of_results_merged():
    torch.manual_seed(1)
    query, key, value = torch.randn(3, 2, 6, 4, dtype=torch.float64)
    for x in (query, key, value):
        x.requires_grad_()
    parts = [
        relpos.torch.attention(
            query,
            key[:, keys],
            value[:, keys],
            key_ranges=ranges,
            return_lse=True,
        )[:2]
        for keys, ranges in (
            (slice(0, 2), torch.tensor([[0, 2]])),
            (slice(2, 6), torch.tensor([[0, 4], [0, 0], [0, 1]] + 3 * [[4, 4]])),
        )
    ]
    out, lse = relpos.torch.merge_attention(*parts[0], *parts[1])
    ranges = torch.tensor([[0, 6], [0, 2], [0, 3]] + 3 * [[0, 2]])
    whole = relpos.torch.attention(
        query, key, value, key_ranges=ranges, return_lse=True
    )
    torch.testing.assert_close(out, whole.out, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(lse, whole.lse, rtol=1e-13, atol=1e-13)
    inputs = (query, key, value)
    got = torch.autograd.grad(out.square().sum() + lse.sum(), inputs)
    want = torch.autograd.grad(whole.out.square().sum() + whole.lse.sum(), inputs)
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_merged_as_arrays_are(dtype):
    rng = np.random.default_rng(0)
    outs = rng.standard_normal((2, 3, 4, 5)).astype(dtype)
    lses = rng.standard_normal((2, 3, 4)).astype(dtype)
    lses[0, 0], lses[:, 1, 1] = -np.inf, -np.inf
    lses[0, 2, 0], lses[1, 2, 1] = np.inf, np.inf
    outs[0, 0], outs[:, 1, 1] = np.nan, np.inf
    want = relpos.merge_attention(outs[0], lses[0], outs[1], lses[1])
    parts = [torch.tensor(x) for x in (outs[0], lses[0], outs[1], lses[1])]
    for part in parts:
        part.requires_grad_()
    got = relpos.torch.merge_attention(*parts)
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x.detach(), torch.from_numpy(y))
    (got[0].sum() + got[1][torch.isfinite(got[1])].sum()).backward()
    assert all(part.grad.isfinite().all() for part in parts)


def test_key_heads_that_no_query_reads_have_gradients_of_0():
    key, value = torch.ones(2, 1, 2, 30, 4).unbind()
    given = key.requires_grad_(), value.clone().requires_grad_()
    for _ in range(5):  # memory that is not written would show what was in it
        freed = [torch.ones(1, 2, 30, 4) for _ in range(20)]
        del freed
        query = torch.zeros(1, 0, 30, 4, requires_grad=True)
        out = relpos.torch.attention(query, *given, enable_gqa=True)
        found = torch.autograd.grad(out.sum(), given)
        assert not any(x.any() for x in found)


@pytest.mark.parametrize("name", ["key_lengths", "query_offset"])
@pytest.mark.parametrize("items", [3, [3], [3, 2]], ids=str)
def test_integers_of_items_add_their_axes_to_the_batch(items, name):
    """A query without a batch axis gets one from them, everywhere the same."""
    x = torch.randn(2, 4, 8, dtype=torch.float64)
    shape = (*np.shape(items), 2, 4, 8)
    keywords = {name: items if isinstance(items, int) else torch.tensor(items)}
    leaf = x.clone().requires_grad_()
    out = relpos.torch.attention(leaf, x, x, **keywords)
    array, plain = x.numpy(), {name: items}
    want = relpos.attention(array, array, array, **plain)
    assert out.shape == want.shape == shape
    assert relpos.torch.attention(x, x, x, **plain).shape == shape
    assert relpos.reference.attention(x, x, x, **keywords).shape == shape
    assert np.array_equal(out.detach().numpy(), want)
    out.sum().backward()
    assert leaf.grad.shape == x.shape
    if not isinstance(items, int):
        keywords = {name: torch.tensor(items, device="meta")}
    meta = x.to("meta")
    assert relpos.torch.attention(meta, meta, meta, **keywords).shape == shape
