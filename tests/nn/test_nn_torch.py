"""Every layer beside its PyTorch twin: same weights, same numbers, both ways."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import assert_close, largest

import relpos
from relpos import nn

torch = pytest.importorskip("torch")
import torch_reference  # noqa: E402  (only where torch is)

pytestmark = pytest.mark.torch
DTYPES = ["float32", "float64"]


def twins(name, *args, dtype, seed=0, **keywords):
    """(layer, module) of the same weights in `dtype`, both without dropout."""
    torch.manual_seed(seed)
    module = getattr(torch_reference, name)(*args, **keywords)
    module = module.to(getattr(torch, dtype)).eval()
    layer = getattr(nn, name)(*args, **keywords, dtype=dtype, rng=1).eval()
    layer.load_state_dict(module.state_dict())
    return layer, module


def draw(dtype, *shapes, seed=2):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def assert_same(layer, module, *inputs, differentiate=None, **keywords):
    """Outputs, gradients of the inputs and of every parameter.

    differentiate: how many of the inputs have a gradient; all by default.
    """
    count = len(inputs) if differentiate is None else differentiate
    tensors = [None if x is None else torch.tensor(x) for x in inputs]
    for tensor in tensors[:count]:
        if tensor is not None:
            tensor.requires_grad_()
    options = {
        name: torch.tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in keywords.items()
    }
    out, want = layer(*inputs, **keywords), module(*tensors, **options)
    assert out.dtype == layer.dtype
    assert_close(out, want.detach(), "layer", largest)
    (grad_out,) = draw(layer.dtype, out.shape, seed=3)
    want.backward(torch.tensor(grad_out))
    grads = layer.backward(grad_out)
    if not isinstance(grads, tuple):
        grads = (grads,)
    for got, tensor in zip(grads, tensors, strict=False):
        if tensor is None or not tensor.requires_grad:
            assert got is None
        else:
            assert_close(got, tensor.grad, "layer gradient", largest)
    assert_parameters(layer, module)


def assert_parameters(layer, module):
    """Same names, and gradients of every parameter.

    A bias is judged with its weight, and a table of one row with the queries': softmax
    takes away what is the same for all keys, so that nothing but rounding is left in
    the gradients of the keys' bias and of a^K for k = 0.
    """
    ours, theirs = dict(layer.named_parameters()), dict(module.named_parameters())
    assert set(ours) == set(theirs)
    for name, parameter in theirs.items():
        got, want = ours[name].grad, parameter.grad
        beside = name.removesuffix("bias") + "weight" if name.endswith(".bias") else ""
        if name == "rel_key.weight" and len(want) == 1:
            beside = "q_proj.weight"
        if beside:
            got = np.append(got, ours[beside].grad)
            want = np.append(want, theirs[beside].grad)
        assert_close(got, want, "layer gradient", largest)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("max_len, length", [(1, 1), (16, 16), (40, 17)])
def test_relative_global_attention(dtype, max_len, length):
    layer, module = twins(
        "RelativeGlobalAttention", 24, 3, max_len=max_len, dtype=dtype
    )
    assert_same(layer, module, *draw(dtype, (2, length, 24)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_article_s_shape_check(dtype):
    """(8, 100, 768) with 12 heads, in numbers and not only in shape."""
    layer, module = twins("RelativeGlobalAttention", 768, 12, dtype=dtype)
    assert_same(layer, module, *draw(dtype, (8, 100, 768)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "reach, options",
    [
        (0, {}),
        (4, {}),
        (40, {"per_head": True}),
        (3, {"use_values": False}),
        (3, {"use_keys": False, "per_head": True}),
        (3, {"use_keys": False, "use_values": False}),
    ],
)
def test_shaw_attention(dtype, reach, options):
    layer, module = twins("ShawAttention", 24, 3, reach, dtype=dtype, **options)
    assert_same(layer, module, *draw(dtype, (2, 11, 24)))


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_shaw_attention_of_other_keys(kind):
    layer, module = twins("ShawAttention", 24, 3, 4, dtype="float64")
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


def encodings(positions, dim, dtype):
    return relpos.sinusoidal(positions, dim, layout="concat", dtype=dtype)[:, None]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("memory", [0, 7])
@pytest.mark.parametrize("pre_lnorm", [False, True])
@pytest.mark.parametrize("owned", [False, True], ids=["model's biases", "own biases"])
def test_transformer_xl(dtype, memory, pre_lnorm, owned):
    shared = {} if owned else {"r_r_bias": 0, "r_w_bias": 0}
    layer, module = twins(
        "RelPartialLearnableMultiHeadAttn",
        *(3, 20, 8, 0.1),
        dropatt=0.2,
        pre_lnorm=pre_lnorm,
        dtype=dtype,
        **shared,
    )
    length, total = 6, 6 + memory
    w, u, v, mems = draw(dtype, (length, 2, 20), (3, 8), (3, 8), (memory, 2, 20))
    r = encodings(np.arange(total)[::-1], 20, dtype)
    future = np.triu(np.ones((length, total), bool), memory + 1)[:, :, None]
    biases = () if owned else (u, v)
    inputs = [w, r, *biases]
    run_xl(layer, module, inputs, future, mems if memory else None)


def run_xl(layer, module, inputs, mask, mems):
    """assert_same for the keywords of this layer; the memory has a gradient too."""
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    theirs = None if mems is None else torch.tensor(mems, requires_grad=True)
    out = layer(*inputs, attn_mask=mask, mems=mems)
    hidden = None if mask is None else torch.tensor(mask)
    want = module(*tensors, attn_mask=hidden, mems=theirs)
    assert_close(out, want.detach(), "layer", largest)
    (grad_out,) = draw(layer.dtype, out.shape, seed=3)
    want.backward(torch.tensor(grad_out))
    *grads, grad_mems = layer.backward(grad_out)
    for got, tensor in zip(grads, tensors, strict=True):
        assert_close(got, tensor.grad, "layer gradient", largest)
    assert (grad_mems is None) == (mems is None)
    if mems is not None:
        assert_close(grad_mems, theirs.grad, "layer gradient", largest)
    assert_parameters(layer, module)


@pytest.mark.parametrize("mask", ["none", "padding", "pairs", "causal for one item"])
def test_transformer_xl_both_directions(mask):
    """With rows for the future the layer needs no causal mask."""
    arguments = "RelPartialLearnableMultiHeadAttn", 3, 20, 8, 0.0
    layer, module = twins(*arguments, dtype="float64")
    w, mems = draw("float64", (5, 2, 20), (4, 2, 20))
    r = encodings(np.arange(8, -5, -1), 20, "float64")
    rng = np.random.default_rng(5)
    masks = {"none": None, "padding": np.zeros((9, 2), np.uint8)}
    masks["padding"][:3, 1] = 1
    masks["pairs"] = rng.random((5, 9, 2)) < 0.4
    masks["pairs"][:, 2] = False
    masks["causal for one item"] = np.zeros((5, 9, 2))
    masks["causal for one item"][..., 0] = np.triu(np.ones((5, 9)), 5)
    run_xl(layer, module, [w, r], masks[mask], mems)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("mask", ["none", "keys", "pairs"])
def test_conformer(dtype, cached, mask):
    layer, module = twins("ConformerRelPositionAttention", 24, 3, dtype=dtype)
    total = 12 if cached else 7
    x, key, value, cache = draw(dtype, *[(2, 7, 24)] * 3, (2, 5, 24))
    pos_emb = relpos.sinusoidal(np.arange(total - 1, -total, -1), 24, dtype=dtype)[None]
    rng = np.random.default_rng(6)
    allowed = None
    if mask != "none":
        allowed = rng.random((2, 1 if mask == "keys" else 7, total)) < 0.7
    if mask == "pairs":
        allowed[1, 3] = False  # a query that sees nothing
    inputs = [x, key, value, pos_emb]
    tensors = [torch.tensor(y, requires_grad=True) for y in inputs]
    theirs = torch.tensor(cache, requires_grad=True) if cached else None
    out = layer(*inputs, mask=allowed, cache=cache if cached else None)
    hidden = None if allowed is None else torch.tensor(allowed)
    want = module(*tensors, mask=hidden, cache=theirs)
    assert_close(out, want.detach(), "layer", largest)
    (grad_out,) = draw(dtype, out.shape, seed=3)
    want.backward(torch.tensor(grad_out))
    grads = layer.backward(grad_out)
    if cached:
        tensors.append(theirs)
    for got, tensor in zip(grads, tensors, strict=False):
        assert_close(got, tensor.grad, "layer gradient", largest)
    assert_parameters(layer, module)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("log_distance", [False, True])
def test_dynamic_position_bias(dtype, log_distance):
    layer, module = twins(
        "DynamicPositionBias", 6, 3, 2, log_distance=log_distance, dtype=dtype
    )
    out, want = layer(9), module(9)
    assert_close(out, want.detach(), "layer", largest)
    (grad_out,) = draw(dtype, out.shape, seed=3)
    want.backward(torch.tensor(grad_out))
    assert layer.backward(grad_out) is None
    assert_parameters(layer, module)


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts(dtype):
    """Linear, LayerNorm and Embedding, with several leading axes."""
    for name, arguments, shape in (
        ("Linear", (5, 7), (2, 3, 4, 5)),
        ("LayerNorm", (6,), (2, 3, 6)),
        ("LayerNorm", (6,), (6,)),
    ):
        module = getattr(torch.nn, name)(*arguments).to(getattr(torch, dtype))
        layer = getattr(nn, name)(*arguments, dtype=dtype)
        layer.load_state_dict(module.state_dict())
        assert_same(layer, module, *draw(dtype, shape))
    module = torch.nn.Embedding(9, 4).to(getattr(torch, dtype))
    layer = nn.Embedding(9, 4, dtype=dtype)
    layer.load_state_dict(module.state_dict())
    indices = np.random.default_rng(7).integers(9, size=(2, 3, 5))
    out, want = layer(indices), module(torch.tensor(indices))
    assert np.array_equal(out, want.detach())
    (grad_out,) = draw(dtype, out.shape, seed=3)
    want.backward(torch.tensor(grad_out))
    layer.backward(grad_out)
    assert_parameters(layer, module)


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
    "make, options",
    [
        ("SGD", {"lr": 0.1}),
        ("SGD", {"lr": 0.1, "momentum": 0.9}),
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


def test_the_mask_of_a_checkpoint_is_checked():
    layer, module = twins("RelativeGlobalAttention", 8, 2, max_len=4, dtype="float32")
    state = module.state_dict()
    assert set(state) == set(layer.state_dict())
    assert torch.equal(state["mask"], torch.tensor(layer.state_dict()["mask"]))
    state["mask"] = torch.ones(1, 1, 4, 4)
    with pytest.raises(ValueError, match="mask: the values differ"):
        layer.load_state_dict(state)


def test_half_precision_weights_are_cast():
    module = torch.nn.Linear(3, 2).to(torch.bfloat16)
    layer = nn.Linear(3, 2)
    layer.load_state_dict(module.state_dict())
    assert np.array_equal(layer.weight.data, module.weight.detach().float())


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
