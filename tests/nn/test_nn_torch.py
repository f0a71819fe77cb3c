"""Every layer compared with its PyTorch twin: same weights, same numbers, both ways."""

from __future__ import annotations

import numpy as np
import pytest
from layer_calls import POSITIONS
from tolerances import assert_close, largest

import relpos
from relpos import nn

torch = pytest.importorskip("torch")
import torch_reference  # noqa: E402  (only where torch is)
from torch_reference import assert_same  # noqa: E402

from relpos.torch.nn import RelativeMultiheadAttention  # noqa: E402

pytestmark = pytest.mark.torch
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])


def twins(name, *args, dtype="float64", source=torch_reference, **keywords):
    """(layer, module) of the same weights, both without dropout."""
    torch.manual_seed(0)
    module = getattr(source, name)(*args, **keywords).to(getattr(torch, dtype)).eval()
    layer = getattr(nn, name)(*args, **keywords, dtype=dtype).eval()
    layer.load_state_dict(module.state_dict())
    return layer, module


def draw(dtype, *shapes):
    rng = np.random.default_rng(2)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


#: Layers of one input: name, arguments, keywords, shape of the input.
LAYERS = [
    ("RelativeGlobalAttention", (24, 3), {"max_len": 1}, (2, 1, 24)),
    ("RelativeGlobalAttention", (24, 3), {"max_len": 16}, (2, 16, 24)),
    ("RelativeGlobalAttention", (24, 3), {"max_len": 40}, (2, 17, 24)),
    # the article's shape check
    ("RelativeGlobalAttention", (768, 12), {}, (8, 100, 768)),
    ("ShawAttention", (24, 3, 0), {}, (2, 11, 24)),
    ("ShawAttention", (24, 3, 4), {}, (2, 11, 24)),
    ("ShawAttention", (24, 3, 40), {"per_head": True}, (2, 11, 24)),
    ("ShawAttention", (24, 3, 3), {"use_values": False}, (2, 11, 24)),
    ("ShawAttention", (24, 3, 3), {"use_keys": False, "per_head": True}, (2, 11, 24)),
    (
        "ShawAttention",
        (24, 3, 3),
        {"use_keys": False, "use_values": False},
        (2, 11, 24),
    ),
    ("Linear", (5, 7), {}, (2, 3, 4, 5)),
    ("LayerNorm", (6,), {}, (2, 3, 6)),
    ("LayerNorm", (6,), {}, (6,)),
]


@both_dtypes
@pytest.mark.parametrize(("name", "args", "keywords", "shape"), LAYERS)
def test_layers_of_one_input(dtype, name, args, keywords, shape):
    source = torch_reference if hasattr(torch_reference, name) else torch.nn
    layer, module = twins(name, *args, **keywords, dtype=dtype, source=source)
    assert_same(layer, module, *draw(dtype, shape))


@both_dtypes
def test_layers_without_an_input_of_real_numbers(dtype):
    for log_distance in (False, True):
        options = {"log_distance": log_distance, "dtype": dtype}
        assert_same(*twins("DynamicPositionBias", 6, 3, 2, **options), 9)
    layer, module = twins("Embedding", 9, 4, dtype=dtype, source=torch.nn)
    indices = np.random.default_rng(7).integers(9, size=(2, 3, 5))
    assert_same(layer, module, indices)
    assert np.array_equal(layer(indices), module(torch.tensor(indices)).detach())


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_shaw_attention_of_other_keys(kind):
    layer, module = twins("ShawAttention", 24, 3, 4)
    inputs = draw("float64", (2, 5, 24), (2, 9, 24), (2, 9, 24))
    rng = np.random.default_rng(4)
    if kind == "bool":
        mask = rng.random((2, 1, 5, 9)) < 0.7
        mask[..., 0] = True
    else:
        mask = rng.standard_normal((2, 3, 5, 9))
    options = {"attn_mask": mask, "query_offset": 4}
    assert_same(layer, module, *inputs, **options)
    layer.zero_grad()
    module.zero_grad()
    assert_same(layer, module, *inputs[:2], **options)


XL = "RelPartialLearnableMultiHeadAttn", 3, 20, 8


def encodings(positions, dim, dtype):
    return relpos.sinusoidal(positions, dim, layout="concat", dtype=dtype)[:, None]


@both_dtypes
@pytest.mark.parametrize("memory", [0, 7])
@pytest.mark.parametrize("pre_lnorm", [False, True])
@pytest.mark.parametrize("owned", [False, True], ids=["model's biases", "own biases"])
def test_transformer_xl(dtype, memory, pre_lnorm, owned):
    shared = {} if owned else {"r_r_bias": 0, "r_w_bias": 0}
    options = {"dropatt": 0.2, "pre_lnorm": pre_lnorm, "dtype": dtype, **shared}
    layer, module = twins(*XL, 0.1, **options)
    length, total = 6, 6 + memory
    w, u, v, mems = draw(dtype, (length, 2, 20), (3, 8), (3, 8), (memory, 2, 20))
    r = encodings(np.arange(total)[::-1], 20, dtype)
    future = np.triu(np.ones((length, total), bool), memory + 1)[:, :, None]
    inputs = (w, r) if owned else (w, r, u, v)
    named = {"mems": mems if memory else None}
    assert_same(layer, module, *inputs, named=named, attn_mask=future)


@pytest.mark.parametrize("mask", ["none", "padding", "pairs", "causal for one item"])
def test_transformer_xl_both_directions(mask):
    """With rows for the future the layer needs no causal mask."""
    layer, module = twins(*XL, 0.0)
    w, mems = draw("float64", (5, 2, 20), (4, 2, 20))
    r = encodings(np.arange(8, -5, -1), 20, "float64")
    masks = {"none": None, "padding": np.zeros((9, 2), np.uint8)}
    masks["padding"][:3, 1] = 1
    masks["pairs"] = np.random.default_rng(5).random((5, 9, 2)) < 0.4
    masks["pairs"][:, 2] = False
    masks["causal for one item"] = np.zeros((5, 9, 2))
    masks["causal for one item"][..., 0] = np.triu(np.ones((5, 9)), 5)
    assert_same(layer, module, w, r, named={"mems": mems}, attn_mask=masks[mask])


@both_dtypes
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("mask", ["none", "keys", "pairs"])
def test_conformer(dtype, cached, mask):
    total = 12 if cached else 7
    *inputs, cache = draw(dtype, *[(2, 7, 24)] * 3, (2, 5, 24))
    pos_emb = relpos.sinusoidal(np.arange(total - 1, -total, -1), 24, dtype=dtype)[None]
    rng, allowed = np.random.default_rng(6), None
    if mask != "none":
        allowed = rng.random((2, 1 if mask == "keys" else 7, total)) < 0.7
    if mask == "pairs":
        allowed[1, 3] = False  # a query that sees nothing
    layer, module = twins("ConformerRelPositionAttention", 24, 3, dtype=dtype)
    named = {"cache": cache if cached else None}
    assert_same(layer, module, *inputs, pos_emb, named=named, mask=allowed)


# ---- layers that compose models ------------------------------------------------------

E, H = 12, 3
X, Y = np.random.default_rng(3).standard_normal((2, 2, 7, E))


def near(got, want, kind):
    np.testing.assert_allclose(got, want.detach(), rtol=1e-12, atol=1e-12)


def attentions(position, is_causal):
    """(layer, module of relpos.torch) of the same weights."""
    torch.manual_seed(0)
    options = {"is_causal": is_causal, "position": position, **POSITIONS[position]}
    module = RelativeMultiheadAttention(
        E, H, batch_first=True, dtype=torch.float64, **options
    )
    for bias in (module.in_proj_bias, module.out_proj.bias):
        torch.nn.init.normal_(bias)
    layer = nn.MultiheadAttention(E, H, dtype="float64", **options)
    layer.load_state_dict(module.state_dict())
    return layer, module


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("causal", [False, True])
def test_every_position_by_the_weights_of_the_module(position, causal):
    def call(module, x):
        return module(x, x, x, need_weights=False)[0]

    assert_same(*attentions(position, causal), X, call=call, near=near)


@pytest.mark.parametrize("position", POSITIONS)
def test_other_keys_with_padding(position):
    hidden = torch.arange(7) >= torch.tensor([[7], [4]])

    def call(module, q, k, v):
        return module(q, k, v, hidden, need_weights=False, query_offset=2)[0]

    options = {"key_lengths": [7, 4], "query_offset": 2, "call": call, "near": near}
    assert_same(*attentions(position, False), X[:, :5], Y, X + Y, **options)


@pytest.mark.parametrize("position", [name for name in POSITIONS if name is not None])
def test_two_attentions_train_the_position_that_they_share(position):
    (layer, module), (other, twin) = (attentions(position, True) for _ in "12")
    second = nn.MultiheadAttention(
        E, H, is_causal=True, position=layer.position, dtype="float64"
    )
    second.load_state_dict(other.state_dict() | layer.position.state_dict())
    shared = {name.split(".")[0] for name, _ in layer.position.named_parameters()}
    for name in shared:
        setattr(twin, name, getattr(module, name))

    def call(modules, x):
        for each in modules:
            x = each(x, x, x, need_weights=False)[0]
        return x

    model = nn.Sequential(layer, second)
    modules = torch.nn.ModuleList([module, twin])
    assert_same(model, modules, X, call=call, near=near)


def test_without_a_position_it_is_that_of_pytorch():
    module = torch.nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    layer = nn.MultiheadAttention(E, H, dtype="float64")
    layer.load_state_dict(module.state_dict())

    def call(module, q, k, v):
        return module(q, k, v, need_weights=False)[0]

    assert_same(layer, module, X[:, :5], Y, X + Y, call=call, near=near)


THEIRS = {
    "attention.norm": "norm1",
    "attention.layer": "self_attn",
    "feed_forward.norm": "norm2",
    "feed_forward.layer.": "",
}


def their_name(name):
    for own, theirs in THEIRS.items():
        name = name.replace(own, theirs)
    return name


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_block_is_that_of_pytorch(pre_norm, activation):
    torch.manual_seed(0)
    bend = "relu" if activation == "relu" else torch.nn.GELU(approximate="tanh")
    module = torch.nn.TransformerEncoderLayer(
        E,
        H,
        20,
        0.0,
        bend,
        batch_first=True,
        norm_first=pre_norm,
        dtype=torch.float64,
    )
    layer = nn.TransformerLayer(
        E, H, 20, activation=activation, pre_norm=pre_norm, dtype="float64"
    )
    state = module.state_dict()
    layer.load_state_dict({n: state[their_name(n)] for n in layer.state_dict()})
    assert_same(layer, module, X, names=their_name, near=near)


# ---- losses, optimisers, weights -----------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy(smoothing):
    (logits,) = draw("float64", (3, 4, 7))
    targets = np.random.default_rng(8).integers(7, size=(3, 4))
    tensor = torch.tensor(logits.reshape(12, 7), requires_grad=True)
    want = torch.nn.functional.cross_entropy(
        tensor, torch.tensor(targets.ravel()), label_smoothing=smoothing
    )
    want.backward()
    loss, grad = nn.cross_entropy(logits, targets, label_smoothing=smoothing)
    assert loss == pytest.approx(want.item(), rel=1e-14)
    assert_close(grad.reshape(12, 7), tensor.grad, "layer gradient", largest)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        ("SGD", {"lr": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9}),
        ("Adam", {"lr": 0.1}),
        ("Adam", {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-9}),
    ],
)
def test_optimisers(make, options):
    """Ten steps down a bowl; one parameter has no gradient in every other step."""
    start, slopes = draw("float64", (4, 3), (4, 3))
    ours = [nn.Parameter(start.copy()), nn.Parameter(slopes.copy())]
    theirs = [torch.tensor(x, requires_grad=True) for x in (start, slopes)]
    optimizer = getattr(nn, make)(ours, **options)
    twin = getattr(torch.optim, make)(theirs, **options)
    for step in range(10):
        optimizer.zero_grad()
        twin.zero_grad()
        for own, tensor in list(zip(ours, theirs, strict=True))[step % 2 :]:
            own.add_grad(2 * slopes**2 * own.data)
            tensor.grad = 2 * torch.tensor(slopes) ** 2 * tensor.detach()
        optimizer.step()
        twin.step()
        for own, tensor in zip(ours, theirs, strict=True):
            assert_close(own.data, tensor.detach(), "layer", largest)


def test_half_precision_weights_are_cast():
    module = torch.nn.Linear(3, 2).to(torch.bfloat16)
    layer = nn.Linear(3, 2)
    layer.load_state_dict(module.state_dict())
    assert np.array_equal(layer.weight.data, module.weight.detach().float())


def test_weights_without_values_are_refused():
    module = torch.nn.Linear(3, 2, device="meta")
    with pytest.raises(ValueError, match=r"^weight: got a meta tensor"):
        nn.Linear(3, 2).load_state_dict(module.state_dict())


def test_safetensors_file_of_torch(tmp_path):
    """One layer of a model, saved in bfloat16."""
    save = pytest.importorskip("safetensors.torch").save_file
    module = torch_reference.ShawAttention(8, 2, 3).to(torch.bfloat16)
    path = tmp_path / "model.safetensors"
    save({f"layers.0.{name}": x for name, x in module.state_dict().items()}, path)
    layer = nn.ShawAttention(8, 2, 3)
    layer.load_state_dict(nn.load_file(path, prefix="layers.0."))
    for name, value in module.state_dict().items():
        assert np.array_equal(layer.state_dict()[name], value.float())
