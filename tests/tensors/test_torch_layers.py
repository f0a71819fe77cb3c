"""Modules compared with the layers of relpos.nn: weights, numbers and training."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from inductor import NEEDS_WHOLE_GRAPH
from module_cases import CASES, real
from torch_attention import tensors_of

import relpos.torch
from relpos import nn

#: Largest relative difference, by dtype.
NEAR = {"float32": 3e-6, "float64": 1e-12}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def pair(case, dtype, **options):
    """The layer and the module, of the same weights."""
    layer = case.make(nn, **options, dtype=dtype, rng=1)
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    return layer, case.make(relpos.torch.nn, **options, dtype=kind)


def near(got, want, dtype):
    got = got.detach().numpy() if isinstance(got, torch.Tensor) else np.asarray(got)
    want = np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype
    largest = max(float(np.abs(want).max(initial=0)), 1e-3)
    np.testing.assert_allclose(got, want, rtol=0, atol=NEAR[dtype] * largest)


@pytest.mark.parametrize("dtype", NEAR)
def test_numbers_and_gradients(case, dtype):
    layer, module = pair(case, dtype)
    module.load_state_dict(layer.state_dict(), strict=True)
    layer.eval(), module.eval()
    inputs, others = case.of(2, 5)
    arrays = [x.astype(dtype) for x in inputs]
    rest = {
        name: x.astype(dtype)
        if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        else x
        for name, x in others.items()
    }
    tensors = [torch.tensor(x, requires_grad=True) for x in arrays]
    want, out = layer(*arrays, **rest), module(*tensors, **tensors_of(rest))
    near(out, want, dtype)
    weight = np.linspace(-1, 1, want.size, dtype=dtype).reshape(want.shape)
    out.backward(torch.tensor(weight))
    grads = layer.backward(weight)
    grads = grads if isinstance(grads, tuple) else (grads,)
    for grad, tensor in zip(grads, tensors, strict=False):
        near(tensor.grad, grad, dtype)
    ours = dict(module.named_parameters())
    for name, parameter in layer.named_parameters():
        # of a key's bias the gradient is 0 but for rounding
        if name not in ("k_proj.bias", "key.bias", "linear_k.bias"):
            near(ours[name].grad, parameter.grad, dtype)


def test_a_state_goes_both_ways(case):
    layer, module = pair(case, "float32")
    assert list(layer.state_dict()) == list(module.state_dict())
    initial = {name: x.clone() for name, x in module.state_dict().items()}
    assert layer.load_state_dict(initial) == ([], [])
    for name, array in layer.state_dict().items():
        np.testing.assert_array_equal(array, initial[name].numpy())
    layer, module = pair(case, "float32")
    result = module.load_state_dict(layer.state_dict(), strict=True)
    assert (result.missing_keys, result.unexpected_keys) == ([], [])
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), layer.state_dict()[name])
    whole = torch.nn.Sequential(module)  # as a part of something larger
    state = {f"0.{name}": x for name, x in layer.state_dict().items()}
    whole.load_state_dict({n: torch.tensor(x) for n, x in state.items()}, strict=True)


@pytest.mark.parametrize("name", sorted({case.name for case in CASES.values()}))
def test_initial_values_have_the_same_distribution(name):
    sizes = {
        "LearnedAPE": (100, 100),
        "SinusoidalEncoding": (6,),
        "DynamicPositionBias": (100, 90, 2),
        "ConvPositionEmbedding": (64, 32, 2),
        "RelativeGlobalAttention": (128, 2, 100),
        "ShawAttention": (128, 2, 50),
        "ConformerRelPositionAttention": (128, 2),
        "RelPartialLearnableMultiHeadAttn": (2, 128, 100, 0.0),
    }
    torch.manual_seed(3)
    module = getattr(relpos.torch.nn, name)(*sizes[name])
    state = getattr(nn, name)(*sizes[name], rng=2).state_dict()
    for key, tensor in module.named_parameters():
        want = state[key]
        assert tensor.shape == want.shape and tensor.dtype == torch.float32
        close = 6 * want.std() / want.size**0.5 + 1e-7
        assert abs(tensor.detach().numpy().mean() - want.mean()) <= 2 * close
        assert abs(tensor.detach().numpy().std() - want.std()) <= 2 * close


def test_training_is_that_of_relpos_nn():
    case = CASES["shaw"]
    layer, module = pair(case, "float64")
    module.load_state_dict(layer.state_dict())
    ours = torch.optim.Adam(module.parameters(), lr=0.01)
    theirs = nn.Adam(layer.parameters(), lr=0.01)
    x, target = real(2, 2, 7, 12)
    losses = []
    for _ in range(5):
        out = module(torch.tensor(x))
        ours.zero_grad()
        loss = (out - torch.tensor(target)).square().mean()
        loss.backward()
        ours.step()
        layer.zero_grad()
        wrong = layer(x) - target
        layer.backward(2 * wrong / wrong.size)
        theirs.step()
        losses.append((float(loss.detach()), float(np.square(wrong).mean())))
    assert losses[-1][0] < losses[0][0]
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=1e-9)


def test_dropout_is_for_training_alone():
    _, module = pair(CASES["shaw"], "float32", dropout=0.5)
    x = torch.ones(2, 7, 12)
    torch.manual_seed(1)
    one, other = module(x), module(x)
    assert not torch.equal(one, other)
    torch.manual_seed(1)
    assert torch.equal(module(x), one)
    module.eval()
    assert torch.equal(module(x), module(x))


def test_names_of_other_weights_of_a_convolution():
    layer, _ = pair(CASES["conv"], "float32")
    state = layer.state_dict()
    other = {
        "0.bias": state["conv.bias"],
        "0.parametrizations.weight.original0": state["conv.weight_g"],
        "conv.parametrizations.weight.original1": state["conv.weight_v"],
    }
    _, module = pair(CASES["conv"], "float32")
    module.load_state_dict(other, strict=True)
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), state[name])


def test_a_mask_of_the_music_transformer_has_to_be_the_lower_triangle():
    _, module = pair(CASES["music"], "float32")
    state = module.state_dict()
    assert module.load_state_dict(state, strict=True).missing_keys == []
    state["mask"][0, 0, 1, 2] = 1
    with pytest.raises(ValueError, match="mask: the values differ"):
        module.load_state_dict(state)
    longer = relpos.torch.nn.RelativeGlobalAttention(12, 3, max_len=10).state_dict()
    sizes = r"size mismatch for mask: got shape \(1, 1, 10, 10\); .*\(1, 1, 9, 9\)"
    with pytest.raises(RuntimeError, match=rf"(?s){sizes}.*size mismatch for Er: "):
        module.load_state_dict(longer)


@pytest.mark.parametrize("log_distance", [False, True])
def test_distances_are_not_rounded_to_16_bits(log_distance):
    """Nor under autocast: the result alone is."""
    sizes = 8, 2, 2, log_distance
    short = relpos.torch.nn.DynamicPositionBias(*sizes, dtype=torch.bfloat16)
    module = relpos.torch.nn.DynamicPositionBias(*sizes)
    module.load_state_dict(short.state_dict())
    want = module(1000)
    assert torch.equal(short(1000), want.bfloat16())
    with torch.autocast("cpu"):
        assert torch.equal(module(1000), want.bfloat16())
    for one in (short, module):
        one(1000).float().sum().backward()
    for one, other in zip(short.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad.bfloat16())


def test_memory():
    hidden = torch.arange(24.0).reshape(6, 2, 2).requires_grad_()
    memory = relpos.torch.nn.update_memory(None, hidden[:2], 5)
    memory = relpos.torch.nn.update_memory(memory, hidden[2:], 5)
    assert torch.equal(memory, hidden[1:]) and not memory.requires_grad
    assert relpos.torch.nn.update_memory(memory, hidden, 0).shape == (0, 2, 2)


@pytest.mark.parametrize(
    ("label", "change", "words"),
    [
        ("shaw", {"query": torch.ones(2, 7, 11)}, r"query: got shape \(2, 7, 11\); ex"),
        ("shaw", {"query": np.ones((2, 7, 12))}, "query: got an array .* a tensor"),
        ("shaw", {"value": torch.ones(2, 7, 12)}, "key: got None with a value"),
        ("music", {"x": torch.ones(2, 10, 12)}, "sequence of 10; .*max_len = 9"),
        ("conformer", {"mask": torch.full((2, 1, 5), 2)}, "mask: has values other tha"),
        ("conformer", {"mask": torch.ones(2, 4, 5)}, r"mask: got shape \(2, 4, 5\)"),
        ("xl", {"attn_mask": torch.zeros(7, 3)}, r"attn_mask: got shape \(7, 3\)"),
        ("xl", {"attn_mask": torch.zeros(5, 7)}, r"needs a last axis: attn_mask\[:, :"),
        ("xl", {"attn_mask": [0]}, "attn_mask: got list; expected a tensor"),
        ("xl", {"r": None}, "r: got NoneType; expected a tensor"),
        ("xl", {"r_w_bias": 0}, "after w and r.*, r_w_bias=; expected"),
        ("conformer", {"pos_emb": None}, "pos_emb: got NoneType; expected a tensor"),
        ("conformer", {"mask": [1]}, "mask: got list; expected a tensor"),
        ("conformer", {"query": torch.ones(2, 6, 12)}, "query: got 6 rows; .* Lk = 5"),
        ("xl", {"attn_mask": None}, "r: got 7 rows .* expected at least 11 .the mask"),
        ("learned", {"x": torch.zeros(1, 10)}, "sequence of 10; .*max_seq_len = 9"),
        ("learned", {"x": np.zeros((2, 7))}, "^x: got an array .* expected a tensor"),
        ("bias", {"length": 0}, "^length: got 0; expected an integer of at least 1"),
        ("bias", {"length": 2.5}, "^length: got float; expected an integer"),
        ("bias", {"length": True}, "^length: got True; expected an integer"),
        ("bias", {"length": torch.tensor(5)}, "^length: got a tensor; expected none"),
    ],
)
def test_wrong_calls_are_named(label, change, words):
    _, module = pair(CASES[label], "float32")
    inputs, others = CASES[label].of(2, 5)
    names = {
        "conformer": ("query", "key", "value", "pos_emb"),
        "xl": ("w", "r"),
        "shaw": ("query",),
        "music": ("x",),
    }.get(label, ())
    call = dict(zip(names, inputs, strict=True)) | others
    call = tensors_of(call, torch.float32) | change
    with pytest.raises((ValueError, TypeError, IndexError), match=words):
        module(**call)


@pytest.mark.parametrize("name", ["r_w_bias", "r_r_bias"])
@pytest.mark.parametrize("wrong", [None, torch.ones(4), torch.ones(1, 4)])
def test_shared_biases_have_a_row_for_each_head(name, wrong):
    options = {"r_r_bias": 0, "r_w_bias": 0}
    module = relpos.torch.nn.RelPartialLearnableMultiHeadAttn(2, 8, 4, 0.0, **options)
    biases = {"r_w_bias": torch.ones(2, 4), "r_r_bias": torch.ones(2, 4)}
    with pytest.raises((ValueError, TypeError), match=f"^{name}: got "):
        module(torch.ones(3, 1, 8), torch.ones(5, 8), **biases | {name: wrong})


def test_a_pickle_gives_the_same_results(case):
    """Compare each module with its parameters, which is one of the layers' cases."""
    _, module = pair(case, "float64")
    again = pickle.loads(pickle.dumps(module.eval()))
    inputs, others = case.of(2, 5)
    arguments = [torch.tensor(x) for x in inputs], tensors_of(others)
    want = module(*arguments[0], **arguments[1])
    assert torch.equal(again(*arguments[0], **arguments[1]), want)


@pytest.mark.parametrize(
    "fullgraph", [False, pytest.param(True, marks=NEEDS_WHOLE_GRAPH)]
)
def test_no_mask_is_not_causal_when_compiled(fullgraph):
    torch.compiler.reset()
    module = relpos.torch.nn.RelPartialLearnableMultiHeadAttn(2, 8, 4, 0.0).eval()
    w, r = torch.randn(4, 1, 8), torch.randn(7, 8)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=fullgraph)
    near(compiled(w, r), module(w, r).detach(), "float32")
    with pytest.raises(Exception, match=r"r: got 4 rows for Lq = 4 .* at least 7"):
        compiled(w, r[:4])
    torch.compiler.reset()


@pytest.mark.parametrize(
    "label", ["learned", "conv_of_tokens", "conformer_cache", "xl"]
)
def test_compiled_whole(label):
    torch.compiler.reset()
    _, module = pair(CASES[label], "float64")
    inputs, others = CASES[label].of(2, 5)
    others = tensors_of(others, torch.float64)
    module.eval()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    tensors = [torch.tensor(x) for x in inputs]
    near(compiled(*tensors, **others), module(*tensors, **others).detach(), "float64")
    torch.compiler.reset()
