"""Modules where there is nothing to compute: no tokens, no items, the meta device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from module_cases import CASES
from multihead import DTYPE, SIZES, E, H, draw, near, seeded

import relpos.torch
from relpos import nn
from relpos.torch.nn import RelativeMultiheadAttention

POSITIONS = [None, *SIZES]
NOTHING = [(0, 5), (2, 0), (0, 0)]  # batch and length


def made(position, **options):
    sizes = SIZES.get(position, {}) | options
    return RelativeMultiheadAttention(
        E, H, batch_first=True, position=position, **sizes
    )


def differentiated(module, inputs, **call):
    """The results, after a backward: every gradient there is, of its tensor's kind."""
    results = module(*inputs, **call)
    results = results if isinstance(results, tuple) else (results,)
    if results[0].requires_grad:
        results[0].sum().backward()
    for tensor in (*inputs, *module.parameters()):
        if tensor.requires_grad:
            assert tensor.grad.shape == tensor.shape
            assert tensor.grad.device == tensor.device
    return results


def kind(results):
    return [None if x is None else (x.shape, x.dtype) for x in results]


# ---- every position -----------------------------------------------------------------


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("shape", [(2, 5), *NOTHING])
def test_every_position_on_the_meta_device(shape, position, is_causal):
    found = []
    for device in ("meta", "cpu"):
        module = made(position, is_causal=is_causal, device=device)
        x = torch.zeros(*shape, E, device=device, requires_grad=True)
        padding = torch.zeros(shape, dtype=torch.bool, device=device)
        call = {"key_padding_mask": padding, "need_weights": is_causal}
        results = differentiated(module, [x] * 3, **call)
        assert all(each is None or each.device == x.device for each in results)
        found.append(kind(results))
    assert found[0] == found[1]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("shape", NOTHING)
def test_every_position_without_tokens_or_items(shape, position, is_causal):
    module = made(position, is_causal=is_causal)
    x = torch.zeros(*shape, E, requires_grad=True)
    out, weights = differentiated(module, [x] * 3)
    assert out.shape == x.shape and weights.shape == (*shape, shape[1])
    assert not any(p.grad.any() for p in module.parameters())


@pytest.mark.parametrize("position", POSITIONS)
def test_queries_without_keys_and_keys_without_queries(position):
    """A query that sees no key gets the bias of the output."""
    module = made(position, is_causal=False)
    torch.nn.init.normal_(module.out_proj.bias)
    x, nothing = torch.ones(2, 4, E), torch.ones(2, 0, E)
    x.requires_grad_(), nothing.requires_grad_()
    out, _ = differentiated(module, [x, nothing, nothing], query_offset=1)
    assert torch.equal(out, module.out_proj.bias.expand(2, 4, E))
    out, _ = differentiated(module, [nothing, x, x], query_offset=1)
    assert out.shape == (2, 0, E)


@pytest.mark.parametrize("position", POSITIONS)
def test_a_layer_of_inference_mode_leaves_the_next_as_it_is(position):
    """Nothing that layers share keeps the mode that it was first needed in."""
    sizes = {"t5": {"num_buckets": 6}, "deberta": {"max_relative_position": 5}}
    sizes = sizes.get(position, {})  # of no other test
    with torch.inference_mode():
        first = made(position, is_causal=False, **sizes)
        x = torch.zeros(2, 5, E)
        first(x, x, x)
    module = made(position, is_causal=False, **sizes)
    differentiated(module, [torch.zeros(2, 5, E, requires_grad=True)] * 3)


def test_functions_take_a_number_of_positions_where_their_tensor_is():
    table = torch.zeros(4, 2, device="meta", requires_grad=True)
    relpos.torch.learned(table, 3).sum().backward()
    assert table.grad.is_meta and table.grad.shape == (4, 2)
    found = relpos.torch.sinusoidal(3, 4, inv_freq=torch.ones(2, device="meta"))
    assert found.is_meta and found.shape == (3, 4)
    assert relpos.torch.sinusoidal(3, 4).device.type == "cpu"


# ---- the other modules --------------------------------------------------------------


def tensors(case, shape, device):
    """A module, its inputs that have gradients, and the others."""
    arrays, others = case.of(*shape)
    given = [torch.tensor(x, device=device).requires_grad_() for x in arrays]
    rest = {
        name: torch.tensor(x, device=device) if isinstance(x, np.ndarray) else x
        for name, x in others.items()
    }
    module = case.make(relpos.torch.nn, device=device, dtype=DTYPE)
    return module.eval(), given, rest


@pytest.mark.parametrize("shape", [(2, 5), *NOTHING])
@pytest.mark.parametrize("case", CASES)
def test_every_module_on_the_meta_device(case, shape):
    found = []
    for device in ("meta", "cpu"):
        module, given, rest = tensors(CASES[case], shape, device)
        results = differentiated(module, given, **rest)
        assert results[0].device.type == device
        found.append(kind(results))
        module.load_state_dict(module.state_dict())
    assert found[0] == found[1]


@pytest.mark.parametrize("shape", NOTHING)
@pytest.mark.parametrize("case", CASES)
def test_every_module_and_its_layer_without_tokens_or_items(case, shape):
    """Outputs and gradients are those of the layer of relpos.nn."""
    module, given, rest = tensors(CASES[case], shape, "cpu")
    (out,) = differentiated(module, given, **rest)
    layer = CASES[case].make(nn, rng=0, dtype="float64").eval()
    layer.load_state_dict(module.state_dict())
    arrays = [x.detach().numpy() for x in given]
    others = {n: np.asarray(x) if torch.is_tensor(x) else x for n, x in rest.items()}
    want = layer(*arrays, **others)
    near(out.detach(), torch.tensor(want))
    grads = layer.backward(np.ones_like(want))
    grads = grads if isinstance(grads, tuple) else (grads,)
    for tensor, grad in zip(given, grads, strict=False):
        near(tensor.grad, torch.tensor(grad))
    own = dict(module.named_parameters())
    for name, parameter in layer.named_parameters():
        near(own[name].grad, torch.tensor(parameter.grad))


def test_what_the_meta_device_can_know_is_still_refused():
    module, (w, r), rest = tensors(CASES["xl"], (2, 5), "meta")
    with pytest.raises(ValueError, match=r"r: got 6 rows .* expected at least 7"):
        module(w, r[1:], **rest)
    with pytest.raises(ValueError, match=r"attn_mask: got shape \(5, 6, 1\)"):
        module(w, r, **rest | {"attn_mask": rest["attn_mask"][:, 1:]})


def test_an_empty_item_changes_no_gradient():
    """A batch cut to nothing changes no parameter's gradient of another call."""
    module, x = seeded(E, H, position="transformer_xl"), draw(5, 2, E)
    module(x, x, x)[0].sum().backward()
    want = {n: p.grad.clone() for n, p in module.named_parameters()}
    for empty in (x[:0], x[:, :0]):
        module(empty, empty, empty)[0].sum().backward()
    assert all(torch.equal(p.grad, want[n]) for n, p in module.named_parameters())
