"""Convolutional encodings compared with PyTorch and transformers."""

from __future__ import annotations

import numpy as np
import pytest
from problems import DTYPES, normal
from tolerances import assert_close, largest

import relpos
from relpos import nn

torch = pytest.importorskip("torch")
import torch_reference  # noqa: E402  (only where torch is)

pytestmark = pytest.mark.torch
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


@both_dtypes
@pytest.mark.parametrize(("grid", "kernel"), [((14, 14), 3), ((7, 20), 5), ((50,), 3)])
def test_conv_encoding_is_the_peg(dtype, grid, kernel):
    """The generator of CPVT: proj(x) + x with a depthwise convolution."""
    rng = np.random.default_rng(0)
    channels, axes = 48, len(grid)
    x = normal(rng, 2, int(np.prod(grid)), channels).astype(dtype)
    Conv = torch.nn.Conv2d if axes == 2 else torch.nn.Conv1d
    proj = Conv(channels, channels, kernel, 1, kernel // 2, groups=channels)
    proj = proj.to(getattr(torch, dtype))
    tokens = torch.tensor(x, requires_grad=True)
    image = tokens.transpose(1, 2).unflatten(2, grid)
    want = (proj(image) + image).flatten(2).transpose(1, 2)
    arrays = x, proj.weight.detach().numpy(), proj.bias.detach().numpy()
    got = relpos.conv_encoding(*arrays, grid=grid)
    assert_close(got, want.detach(), "layer", largest)
    grad = normal(rng, *x.shape).astype(dtype)
    want.backward(torch.tensor(grad))
    found = relpos.conv_encoding_backward(grad, *arrays, grid=grid)
    truth = tokens.grad, proj.weight.grad, proj.bias.grad
    for ours, theirs in zip(found, truth, strict=True):
        assert_close(ours, theirs, "layer gradient", largest)


@both_dtypes
def test_causal_is_padding_on_the_left(dtype):
    rng = np.random.default_rng(1)
    x, weight = normal(rng, 40, 8).astype(dtype), normal(rng, 8, 5).astype(dtype)
    padded = torch.nn.functional.pad(torch.tensor(x).T[None], (4, 0))
    y = torch.nn.functional.conv1d(padded, torch.tensor(weight)[:, None], groups=8)
    got = relpos.conv_encoding(x, weight, is_causal=True)
    assert_close(got, y[0].T.numpy() + x, "layer", largest)


def assert_same_in_order(layer, module, x):
    """Compare outputs and all gradients; parameters are in the module's order."""
    own, theirs = ([n for n, _ in each.named_parameters()] for each in (layer, module))
    names = dict(zip(own, theirs, strict=True))
    torch_reference.assert_same(layer, module, x, names=names.get)


@both_dtypes
@pytest.mark.parametrize(("width", "taps", "groups"), [(64, 128, 16), (24, 7, 3)])
def test_conv_position_embedding(dtype, width, taps, groups):
    """fairseq's sequence: a normalised convolution, the last output cut, GELU."""

    class Cut(torch.nn.Module):
        def forward(self, x):
            return x[..., :-1] if taps % 2 == 0 else x

    class Turned(torch.nn.Sequential):
        def forward(self, x):
            return super().forward(x.transpose(1, 2)).transpose(1, 2)

    torch.manual_seed(0)
    conv = torch.nn.Conv1d(width, width, taps, padding=taps // 2, groups=groups)
    conv = torch.nn.utils.parametrizations.weight_norm(conv, dim=2)
    module = Turned(conv, Cut(), torch.nn.GELU()).to(getattr(torch, dtype))
    layer = nn.ConvPositionEmbedding(width, taps, groups, dtype=dtype)
    layer.load_state_dict(module.state_dict())
    x = normal(np.random.default_rng(3), 2, 30, width).astype(dtype)
    assert_same_in_order(layer, module, x)


@both_dtypes
def test_transformers(dtype):
    wav2vec2 = pytest.importorskip("transformers.models.wav2vec2.modeling_wav2vec2")
    config = wav2vec2.Wav2Vec2Config(
        hidden_size=32,
        num_conv_pos_embeddings=128,
        num_conv_pos_embedding_groups=16,
    )
    module = wav2vec2.Wav2Vec2PositionalConvEmbedding(config).to(getattr(torch, dtype))
    layer = nn.ConvPositionEmbedding(32, dtype=dtype)
    layer.load_state_dict(module.state_dict())
    x = normal(np.random.default_rng(4), 2, 50, 32).astype(dtype)
    assert_same_in_order(layer, module, x)
