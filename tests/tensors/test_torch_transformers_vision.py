"""Vision: positions of rows and columns as in SAM, and windows of Swin."""

from __future__ import annotations

import copy
import inspect
from importlib import import_module

import hugging_families as families
import hugging_models as models
import pytest
import torch
import transformers

import relpos.torch as rt
from relpos.torch._transformers.adapters import sam, table

MAPS = families.MAPS
WINDOWS = families.WINDOWS
#: Those whose code is not a copy of SAM's.
OTHERS = ("SegGptAttention", "VitDetAttention")
layer_of = families.vision_layer


def called(layer, *inputs):
    """The result, its weights if it has any, and all gradients of a sum over it."""
    draw = torch.Generator().manual_seed(1)
    inputs = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    out, *rest = layer(*inputs)
    (out * torch.randn(out.shape, generator=draw).to(out.dtype)).sum().backward()
    gradients = {"input": inputs[0].grad}
    gradients |= {name: p.grad for name, p in layer.named_parameters()}
    return (out.detach(), gradients), rest


def check_as_eager(layer, *inputs):
    """Outputs and gradients in float32 and float64, and the same state."""
    both = torch.nn.ModuleList([copy.deepcopy(layer), layer])
    rt.replace_attention(both[1:])
    assert both[0].state_dict().keys() == both[1].state_dict().keys()
    for dtype in (torch.float32, torch.float64):
        wanted, got = (
            called(copy.deepcopy(one).to(dtype), *(x.to(dtype) for x in inputs))[0]
            for one in both
        )
        families.check_results(wanted, got, dtype)


def picture(*shape, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---- rows and columns of a map -------------------------------------------------------


@pytest.fixture(params=["columns", "labels", "parts"])
def by(request, monkeypatch):
    """Small maps by columns, as they are, by labels, or by labels of each row."""
    if request.param != "columns":
        monkeypatch.setattr(sam, "FEW_CELLS", 0)
    if request.param == "parts":
        monkeypatch.setattr(sam, "PART_CELLS", 1)


@pytest.mark.parametrize("name", MAPS)
def test_maps_equal_eager(name, by, monkeypatch):
    if name != "VitDetAttention":  # softmax of the others is in float32
        softmax = torch.nn.functional.softmax
        exact = lambda x, dtype=None, dim=None: softmax(x, dim=dim)  # noqa: E731
        monkeypatch.setattr(torch.nn.functional, "softmax", exact)
    check_as_eager(layer_of(name), picture(2, 5, 5, 24))


@pytest.mark.parametrize("size", [(4, 6), (7, 5), (1, 1)])
@pytest.mark.parametrize("name", ["SamVisionAttention", "VitDetAttention"])
def test_tables_of_another_size(name, size, by):
    layer = layer_of(name)
    mine = torch.nn.ModuleList([copy.deepcopy(layer)])
    rt.replace_attention(mine)
    x = picture(2, *size, 24)
    wanted, got = (one(x)[0] for one in (layer, mine[0]))
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


def test_weights_of_maps(by):
    layer = layer_of("SamVisionAttention")
    mine = torch.nn.ModuleList([copy.deepcopy(layer)])
    rt.replace_attention(mine)
    x = picture(2, 4, 6, 24)
    wanted, got = (one(x, output_attentions=True)[1] for one in (layer, mine[0]))
    assert got.shape == wanted.shape
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


@pytest.mark.parametrize(
    ("height", "width", "parts"), [(64, 64, 16), (33, 32, 3), (40, 30, 4), (37, 28, 1)]
)
def test_parts_of_large_maps(height, width, parts):
    assert sam._parts_of(height, width) == parts


@pytest.mark.parametrize("size", [(33, 32), (32, 34)])
def test_a_map_of_so_many_cells(size):
    layer = layer_of("SamVisionAttention")
    mine = torch.nn.ModuleList([copy.deepcopy(layer)])
    rt.replace_attention(mine)
    x = picture(1, *size, 24)
    assert size[0] * size[1] > sam.FEW_CELLS
    with torch.no_grad():
        wanted, got = (one(x)[0] for one in (layer, mine[0]))
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


@pytest.mark.parametrize("name", MAPS)
def test_maps_without_positions(name):
    off = {"use_rel_pos": False, "use_relative_position_embeddings": False}
    layer = layer_of(name, **off)
    mine = torch.nn.ModuleList([copy.deepcopy(layer)])
    rt.replace_attention(mine)
    x = picture(2, 5, 5, 24)
    wanted, got = (one(x)[0] for one in (layer, mine[0]))
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)


def test_all_classes_of_sam_have_one_code():
    """All that are not built as a model here are copies of SAM's."""

    def source(name, method):
        home, kind, _ = table.ADAPTERS[name]
        return inspect.getsource(getattr(getattr(import_module(home), kind), method))

    copies = [name for name in MAPS if "Sdpa" not in name]
    copies = [name for name in copies if name not in OTHERS]
    assert len(copies) == 7
    for method in ("forward", "get_rel_pos", "get_decomposed_rel_pos"):
        assert len({source(name, method) for name in copies}) == 1


SAM = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": 40,
    "patch_size": 8,
    "window_size": 3,
    "global_attn_indexes": [1],
    "mlp_dim": 16,
    "output_channels": 8,
    "num_pos_feats": 4,
}


@pytest.mark.parametrize("way", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["SamVision", "SamHQVision"])
def test_a_model_of_sam(kind, way):
    """With windows, one of which is filled up, and weights if asked for."""
    case = models.Case(getattr(transformers, f"{kind}Model"), SAM, None)
    eager, model = models.build(case, "eager"), models.build(case, way)
    names = rt.replace_attention(model)
    assert len(names) == 2
    x = picture(2, 3, 40, 40)
    with torch.no_grad():
        wanted, got = (one(x, output_attentions=True) for one in (eager, model))
        assert model(x).attentions is None
    off = families.largest(got.last_hidden_state - wanted.last_hidden_state)
    assert off <= 1e-5 * families.largest(wanted.last_hidden_state)
    if way == "eager":  # sdpa has no weights, and records none
        for x, y in zip(wanted.attentions, got.attentions, strict=True):
            assert x.shape == y.shape and families.largest(x - y) <= 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["SamVisionAttention", "Swinv2SelfAttention"])
def test_sixteen_bits(name, dtype):
    exact = layer_of(name)
    original = copy.deepcopy(exact).to(dtype)
    mine = torch.nn.ModuleList([copy.deepcopy(original)])
    rt.replace_attention(mine)
    errors = torch.zeros(2)
    with torch.no_grad():
        for seed in range(8):
            shape = (6, 6, 24) if name in WINDOWS else (2, 5, 5, 24)
            x = picture(*shape, seed=seed).to(dtype)
            wanted = exact(x.float())[0]
            for index, one in enumerate((original, mine[0])):
                out = one(x)[0]
                assert out.dtype == dtype
                errors[index] += (out.float() - wanted).square().sum()
    assert errors[1].sqrt() <= 1.05 * errors[0].sqrt()


# ---- windows -------------------------------------------------------------------------


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_equal_eager(name, shifted):
    """Two pictures of three windows, of which a shift hides parts."""
    inputs = [picture(6, 6, 24)]
    if shifted:
        parts = torch.tensor(
            [[0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 0, 0], [0, 1, 2, 0, 1, 2]]
        )
        hides = parts[:, None] != parts[:, :, None]
        inputs.append(torch.where(hides, -100.0, 0.0))
    check_as_eager(layer_of(name), *inputs)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_weights_of_windows(name, shifted):
    layer = layer_of(name)
    mine = torch.nn.ModuleList([copy.deepcopy(layer)])
    rt.replace_attention(mine)
    mask = torch.where(picture(3, 6, 6) > 0, 0.0, -1.0) if shifted else None
    with torch.no_grad():
        wanted, got = (
            one(picture(6, 6, 24), mask, True)[1] for one in (layer, mine[0])
        )
        assert len(mine[0](picture(6, 6, 24), mask)) == 1
    assert got.shape == wanted.shape and families.largest(got - wanted) <= 1e-5


SWIN = {
    "image_size": 24,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 3,
}


@pytest.mark.parametrize("kind", ["Swinv2Model", "DonutSwinModel", "Swin2SRModel"])
def test_a_model_of_swin(kind):
    settings = dict(SWIN)
    if kind == "Swin2SRModel":
        settings["patch_size"] = 1
    case = models.Case(getattr(transformers, kind), settings, None)
    original = models.build(case, "eager")
    model = copy.deepcopy(original)
    assert len(rt.replace_attention(model)) == 4
    x = picture(2, 3, 24, 24)
    with torch.no_grad():
        wanted, got = (one(x).last_hidden_state for one in (original, model))
    assert families.largest(got - wanted) <= 1e-5 * families.largest(wanted)
