"""Recipes on tensors, compared with the code of the models and of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from torch.nn import functional

import relpos
import relpos.torch as rt
from relpos import recipes

VERSION = tuple(map(int, transformers.__version__.split(".")[:2]))
H, L, D = 3, 9, 8


def close(got, want, tolerance=1e-5):
    assert got.shape == want.shape
    got, want = got.detach(), want.detach()
    assert float((got - want).abs().max()) <= tolerance * float(want.abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("window", [(3, 3), (4, 2), (9, 9)])
def test_a_table_of_swin_is_resized_as_by_interpolate(window, dtype):
    """PyTorch computes in float64, as relpos does, which rounds once at the end."""
    torch.manual_seed(0)
    tolerance = 1e-6 if dtype is torch.float32 else 1e-12
    old = (5, 3) if window == (4, 2) else (7, 7)
    sides = [2 * n - 1 for n in old]
    table = torch.randn(sides[0] * sides[1], H, dtype=dtype, requires_grad=True)
    image = table.double().T.reshape(1, H, *sides)
    size = [2 * n - 1 for n in window]
    want = functional.interpolate(
        image, size=size, mode="bicubic", align_corners=False
    ).reshape(H, -1)
    found = recipes.swin(table, window, table_window=old)["rel_bias"]
    assert found.dtype is dtype
    close(found.double(), want, tolerance)
    weights = torch.randn(want.shape, dtype=dtype)
    (gradient,) = torch.autograd.grad((found * weights).sum(), table)
    (expected,) = torch.autograd.grad((want * weights).sum(), table)
    close(gradient, expected, tolerance)
    array = table.detach().numpy()
    same = recipes.swin(array, window, table_window=old)
    np.testing.assert_allclose(same["rel_bias"], found.detach(), rtol=1e-6, atol=1e-6)
    back = same.backward({"rel_bias": weights.numpy()})["table"]
    np.testing.assert_allclose(back, gradient, rtol=1e-5, atol=1e-6)


def test_deepseek_v4_is_the_attention_of_its_sliding_layers():
    from transformers.models.deepseek_v4 import modeling_deepseek_v4 as model

    torch.manual_seed(1)
    x = torch.randn(2, H, L, D)
    key = torch.randn(2, 1, L, D)
    sinks = torch.randn(H, requires_grad=True)
    frequencies = torch.tensor(relpos.rotary_frequencies(4), dtype=torch.float32)
    angles = torch.arange(L)[:, None] * frequencies
    cosine, sine = angles.cos()[None], angles.sin()[None]

    class Module(torch.nn.Module):
        num_key_value_groups = H
        training = False

    module = Module()
    module.sinks = sinks
    query = model.apply_rotary_pos_emb(x, cosine, sine)
    value = model.apply_rotary_pos_emb(key, cosine, sine)
    apart = torch.arange(L)[:, None] - torch.arange(L)
    mask = torch.zeros(L, L).masked_fill((apart < 0) | (apart >= 4), -torch.inf)
    want, _ = model.eager_attention_forward(
        module, query, value, value, mask[None, None], scaling=D**-0.5
    )
    want = model.apply_rotary_pos_emb(want, cosine, -sine, unsqueeze_dim=2)

    def rotate(x, **more):
        rotary = {"inv_freq": frequencies, "interleaved": True}
        last = rt.apply_rotary(x[..., -4:], **rotary, **more)
        return torch.cat([x[..., :-4], last], -1)

    terms = recipes.deepseek_v4(sinks, sliding_window=4)
    own = rotate(key)
    found = rotate(rt.attention(rotate(x), own, own, **terms), inverse=True)
    close(found.transpose(1, 2), want)
    weights = torch.randn(want.shape)
    (expected,) = torch.autograd.grad((want * weights).sum(), sinks)
    loss = (found.transpose(1, 2) * weights).sum()
    close(torch.autograd.grad(loss, sinks)[0], expected, 1e-4)


@pytest.mark.skipif(VERSION < (5, 24), reason="the model is newer")
def test_mistral_large4_has_the_rotation_and_the_factors_of_the_model():
    from transformers.models.mistral_large4 import modeling_mistral_large4 as model

    torch.manual_seed(2)
    config = transformers.MistralLarge4TextConfig(
        qk_rope_head_dim=D, rope_parameters={"rope_type": "default", "rope_theta": 1e4}
    )
    rotation = model.MistralLarge4TextRotaryEmbedding(config)
    assert rotation.alpha.shape == (D // 2,)
    torch.nn.init.normal_(rotation.alpha)
    query, key = torch.randn(2, 1, H, L, D)
    positions = torch.arange(L)[None]
    cosine, sine = rotation(query, positions)
    pairs = model.apply_rotary_pos_emb_interleave(query, key, cosine, sine)
    scaling = model.MistralLarge4TextSoftmaxScaling(H)
    torch.nn.init.normal_(scaling.scale)
    torch.nn.init.normal_(scaling.bias)
    want = scaling(pairs[0], positions, True) @ pairs[1].mT

    learned = recipes.mistral_large4(rotation.alpha, rotation.inv_freq)
    rotated = [rt.apply_rotary(x, interleaved=True, **learned) for x in (query, key)]
    factors = recipes.mistral_large4_temperature(
        scaling.scale, scaling.bias, torch.arange(L)
    )
    found = rotated[0] * factors[..., None] @ rotated[1].mT
    close(found, want)
    parameters = rotation.alpha, scaling.scale, scaling.bias
    weights = torch.randn(want.shape)
    expected = torch.autograd.grad((want * weights).sum(), parameters)
    gradients = torch.autograd.grad((found * weights).sum(), parameters)
    for got, wanted in zip(gradients, expected, strict=True):
        close(got, wanted, 1e-4)


def test_longformer_is_the_attention_of_the_model():
    from transformers.models.longformer import modeling_longformer as model

    torch.manual_seed(4)
    width, length, window = H * D, 16, 4
    config = transformers.LongformerConfig(
        hidden_size=width,
        num_attention_heads=H,
        attention_window=[window],
        attention_probs_dropout_prob=0.0,
    )
    attend = model.LongformerSelfAttention(config, 0).eval()
    x = torch.randn(1, length, width)
    mask = torch.ones(length, dtype=torch.int64)
    mask[[0, 7]], mask[13:] = 2, 0
    # the numbers that LongformerModel makes of the mask
    numbers = torch.tensor([-10000.0, 0.0, 10000.0])[mask][None]
    want = attend(
        x,
        attention_mask=numbers,
        is_index_masked=numbers < 0,
        is_index_global_attn=numbers > 0,
        is_global_attn=True,
    )[0][0]

    def heads(layer):
        return layer(x[0]).unflatten(-1, (H, D)).transpose(0, 1)

    q, k, v = (heads(layer) for layer in (attend.query, attend.key, attend.value))
    near, far, tokens = recipes.longformer(mask, window)
    a = rt.attention(q, k, v, **near, return_lse=True)
    b = rt.attention(q, k[:, tokens], v[:, tokens], **far, return_lse=True)
    out, _ = rt.merge_attention(a.out, a.lse, b.out, b.lse)
    layers = attend.query_global, attend.key_global, attend.value_global
    q, k, v = map(heads, layers)
    seen = (mask > 0)[None, None]
    of_tokens = rt.attention(q[:, tokens], k, v, attn_mask=seen)
    out = out.index_copy(1, tokens, of_tokens) * (mask > 0)[:, None]
    close(out.transpose(0, 1).flatten(1), want)


def test_moirai_and_natten1d_of_tensors_have_gradients():
    torch.manual_seed(3)
    query, key, value = torch.randn(3, H, L, D, dtype=torch.float64)
    weight = torch.randn(2, H, dtype=torch.float64, requires_grad=True)
    rpb = torch.randn(H, 5, dtype=torch.float64, requires_grad=True)
    variates = torch.arange(L) // 4
    for parameter, terms, arrays in (
        (
            weight,
            recipes.moirai(weight, variates),
            recipes.moirai(weight.detach().numpy(), variates.numpy()),
        ),
        (rpb, recipes.natten1d(rpb, L), recipes.natten1d(rpb.detach().numpy(), L)),
    ):
        out = rt.attention(query, key, value, **terms)
        tokens = [x.numpy() for x in (query, key, value)]
        result = relpos.attention(*tokens, **arrays, return_context=True)
        np.testing.assert_allclose(out.detach(), result.out, rtol=1e-12)
        out.square().sum().backward()
        want = result.context.backward(2 * result.out).rel_bias
        got = parameter.grad if parameter is rpb else parameter.grad.T
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
