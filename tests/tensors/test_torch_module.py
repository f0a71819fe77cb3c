"""RelativeMultiheadAttention as a subclass of torch.nn.MultiheadAttention."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

import relpos.torch
from relpos.torch.nn import RelativeMultiheadAttention


def made(**options):
    torch.manual_seed(0)
    return RelativeMultiheadAttention(8, 2, batch_first=True, position="t5", **options)


def saved(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "itself": lambda layer: layer,
    "copy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
    "torch.save": saved,
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("layer_norm_first", [False, True])
def test_pytorch_s_layer_never_takes_its_fused_path(way, layer_norm_first):
    """The fused path runs in evaluation without gradients, and knows no positions."""
    torch.manual_seed(1)
    encoder = torch.nn.TransformerEncoderLayer(
        8, 2, 16, batch_first=True, norm_first=layer_norm_first
    )
    encoder.self_attn = made()
    encoder = COPIES[way](encoder).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        found = encoder(x)
        encoder.self_attn.rel_bias += 100 * torch.randn(32, 2)
        changed = encoder(x)
    wanted = encoder(x)
    assert not torch.allclose(found, changed, atol=1e-2)
    torch.testing.assert_close(changed, wanted.detach())
    assert not encoder.self_attn._qkv_same_embed_dim


def test_it_is_a_module_of_pytorch_s_with_its_attributes():
    layer, theirs = made(), torch.nn.MultiheadAttention(8, 2, batch_first=True)
    assert isinstance(layer, torch.nn.MultiheadAttention)
    assert {*dir(theirs)} <= {*dir(layer)}
    assert layer.bias_k is layer.bias_v is None
    assert layer.add_zero_attn is False
    assert {*theirs.state_dict()} == {*layer.state_dict()} - {"rel_bias"}
    assert type(layer.out_proj) is torch.nn.Linear


@pytest.mark.parametrize("options", [{}, {"kdim": 4}, {"bias": False}])
def test_projections_are_drawn_again_as_in_pytorch_s_module(options):
    """transformers calls it for each torch.nn.MultiheadAttention of a model."""
    layer = made(**options)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True, **options)
    table = layer.rel_bias.detach().clone()
    for module in (layer, theirs):
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter is not getattr(layer, "rel_bias", None):
                    parameter.fill_(9.0)
        torch.manual_seed(3)
        module._reset_parameters()
    drawn = layer.state_dict()
    for name, expected in theirs.state_dict().items():
        torch.testing.assert_close(drawn[name], expected, rtol=0, atol=0)
    assert torch.equal(layer.rel_bias, table)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("name", relpos.torch.nn.__all__)
def test_scripts_are_refused(name, within):
    kind = getattr(relpos.torch.nn, name)
    if not isinstance(kind, type):
        return
    module = kind.__new__(kind)
    torch.nn.Module.__init__(module)
    model = torch.nn.Sequential(module) if within else module
    with pytest.raises(NotImplementedError, match=rf"^{name}: got torch.jit.script"):
        torch.jit.script(model)
