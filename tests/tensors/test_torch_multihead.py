"""RelativeMultiheadAttention compared with PyTorch's module and with definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from multihead import DTYPE, SIZES, E, H, L, N, draw, near, of_position, seeded
from torch import nn

import relpos.torch
from relpos import recipes, reference
from relpos.torch.nn import RelativeMultiheadAttention

# ---- without a position: PyTorch's module -------------------------------------------


def masks(kind, length, total, heads=H):
    """key_padding_mask, attn_mask and is_causal of a kind; a key is left to each."""
    padding = torch.tensor([[False] * total, [False] * (total - 2) + [True] * 2])
    pairs = torch.rand(length, total, generator=torch.Generator().manual_seed(2)) < 0.4
    pairs[:, 0] = False
    items = torch.stack([pairs, pairs.flip(0)] * heads)
    future = torch.ones(length, total, dtype=torch.bool).triu(1)
    added = draw(length, total, seed=3)
    return {
        "none": (None, None, False),
        "padding": (padding, None, False),
        "pairs": (None, pairs, False),
        "items": (None, items, False),
        "padding and items": (padding, items, False),
        "added": (None, added, False),
        "added to keys": (padding.to(DTYPE) * -2.5, None, False),
        "padding and added": (padding, added, False),
        "causal": (None, future, True),
        "causal, padding": (padding, future, True),
    }[kind]


KINDS = ["none", "padding", "pairs", "items", "padding and items", "added",
         "added to keys", "padding and added", "causal", "causal, padding"]  # fmt: skip


def compare(mine, theirs, inputs, **call):
    """Compare outputs, weights and all gradients of two modules."""
    results = []
    for module in (mine, theirs):
        tensors = [x.clone().requires_grad_() for x in inputs]
        if len(tensors) == 1:
            tensors *= 3
        module.zero_grad()
        out, weights = module(*tensors, **call)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        grads = [x.grad for x in tensors]
        named = {name: x.grad for name, x in module.named_parameters()}
        results.append((out, weights, grads, named))
    (out, weights, grads, named), (want, want_weights, want_grads, want_named) = results
    near(out, want)
    assert (weights is None) == (want_weights is None)
    if weights is not None:
        near(weights, want_weights)
    near(grads, want_grads)
    near({n: named[n] for n in want_named}, want_named)


def pair(**keywords):
    mine = seeded(E, H, **keywords)
    theirs = nn.MultiheadAttention(E, H, **keywords, dtype=DTYPE)
    theirs.load_state_dict(mine.state_dict(), strict=True)
    return mine, theirs


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_position_it_is_pytorch_s(kind, need_weights):
    padding, pairs, causal = masks(kind, L, 7)
    call = {"key_padding_mask": padding, "attn_mask": pairs, "is_causal": causal}
    if padding is not None and pairs is not None and padding.dtype != pairs.dtype:
        padding = torch.zeros(padding.shape, dtype=DTYPE).masked_fill(
            padding, -torch.inf
        )
        theirs_call = call | {"key_padding_mask": padding}
    else:
        theirs_call = call
    mine, theirs = pair(batch_first=True)
    inputs = draw(N, L, E), draw(N, 7, E, seed=4), draw(N, 7, E, seed=5)
    compare(mine, _With(theirs, theirs_call), inputs, **call, need_weights=need_weights)


class _With:
    """A module called with some keywords in the place of others."""

    def __init__(self, module, keywords):
        self.module, self.keywords = module, keywords

    def __call__(self, *inputs, **call):
        return self.module(*inputs, **(call | self.keywords))

    def __getattr__(self, name):
        return getattr(self.module, name)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize(
    ("keywords", "shapes"),
    [
        ({}, [(L, N, E)]),
        ({"bias": False}, [(L, N, E), (7, N, E), (7, N, E)]),
        ({"kdim": 7, "vdim": 5}, [(L, N, E), (6, N, 7), (6, N, 5)]),
        ({"kdim": 7, "batch_first": True}, [(N, L, E), (N, 6, 7), (N, 6, E)]),
        ({}, [(L, E), (7, E), (7, E)]),
        ({"batch_first": True}, [(L, E)]),
    ],
)
def test_layouts_and_widths(keywords, shapes, average):
    mine, theirs = pair(**keywords)
    inputs = [draw(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    compare(mine, theirs, inputs, average_attn_weights=average)


def test_unbatched_masks():
    mine, theirs = pair()
    inputs = draw(L, E), draw(7, E, seed=2), draw(7, E, seed=3)
    padding = torch.tensor([False] * 5 + [True] * 2)
    items = masks("items", L, 7)[1][:H]
    compare(mine, theirs, inputs, key_padding_mask=padding, attn_mask=items)


def test_initial_values_are_pytorch_s():
    torch.manual_seed(5)
    mine = RelativeMultiheadAttention(64, 4, kdim=32).state_dict()
    theirs = nn.MultiheadAttention(64, 4, kdim=32).state_dict()
    assert list(mine) == list(theirs)
    for name, tensor in theirs.items():
        assert mine[name].shape == tensor.shape
        assert abs(mine[name].std() - tensor.std()) <= 0.05 * tensor.std()


def test_a_query_that_sees_no_key_gets_the_bias():
    module = seeded(E, H)
    nn.init.normal_(module.out_proj.bias)
    hidden = torch.zeros(L, L, dtype=torch.bool)
    hidden[1] = True
    x = draw(L, E)
    out, weights = module(x, x, x, attn_mask=hidden)
    near(out[1], module.out_proj.bias)
    assert torch.equal(weights[1], torch.zeros(L, dtype=DTYPE))


# ---- schemes ------------------------------------------------------------------------


def expected(module, x, causal=False):
    """The output by relpos.reference, of what the module has to learn."""
    state = {name: p.detach().numpy() for name, p in module.named_parameters()}
    packed = x.numpy() @ state["in_proj_weight"].T + state["in_proj_bias"]
    q, k, v = (_heads(part) for part in np.split(packed, 3, axis=-1))
    keywords = {"is_causal": causal} | _terms(module, state, q, k)
    q, k = keywords.pop("rotated", (q, k))
    out = reference.attention(q, k, v, **keywords)
    joined = np.swapaxes(out, -2, -3).reshape(x.shape)
    return joined @ state["out_proj.weight"].T + state["out_proj.bias"]


def _heads(x):
    return np.swapaxes(x.reshape(*x.shape[:-1], H, -1), -2, -3)


def _terms(module, state, q, k):
    """Terms of each scheme, written from the arguments of its own paper."""
    length = q.shape[-2]
    relative = np.arange(1 - length, length)
    match module.position:
        case "shaw":
            return {"rel_key": state["rel_key"], "rel_value": state["rel_value"]}
        case "music":
            beyond = len(state["rel_key"]) // 2 + 1 - length  # row 6 is distance 0
            return {"rel_key": state["rel_key"][beyond : beyond + 2 * length - 1]}
        case "transformer_xl":
            wave = relpos.sinusoidal(-relative, E, layout="concat", dtype=np.float64)
            return {"rel_key": _heads(wave @ state["pos_proj.weight"].T),
                    "pos_bias_u": state["pos_bias_u"],
                    "pos_bias_v": state["pos_bias_v"]}  # fmt: skip
        case "t5":
            sizes = {"num_buckets": 8, "max_distance": 6}
            return {"rel_bias": relpos.t5_bias(state["rel_bias"], length, **sizes)}
        case "alibi":
            return {"rel_bias": relpos.alibi_bias(H, length, dtype=np.float64)}
        case "kerple":
            numbers = state["r1"], state["r2"]
            return {"rel_bias": relpos.kerple_bias(*numbers, length)}
        case "rope":
            return {"rotated": (relpos.apply_rotary(q), relpos.apply_rotary(k))}
        case "fire":
            names = ("w1", "b1", "w2", "b2", "c", "threshold")
            network = [state[name] for name in names]
            return {"attn_mask": relpos.fire_bias(*network, length)}
    weights, biases = (state[f"in_proj_{n}"] for n in ("weight", "bias"))
    pos_query, pos_key = (
        _heads(state["rel_embeddings"] @ weights[part].T + biases[part])
        for part in (slice(0, E), slice(E, 2 * E))
    )
    return recipes.deberta(pos_key, pos_query, max_position=4)


@pytest.mark.parametrize("position", SIZES)
def test_schemes(position):
    module = of_position(position, batch_first=True)
    x = draw(N, L, E)
    near(module(x, x, x)[0].detach().numpy(), expected(module, x))
    future = torch.ones(L, L, dtype=torch.bool).triu(1)
    out, weights = module(x, x, x, attn_mask=future)
    near(out.detach().numpy(), expected(module, x, True))
    assert torch.equal(weights.triu(1), torch.zeros_like(weights))
    near(module(x, x, x, attn_mask=future, is_causal=True, need_weights=False)[0], out)


@pytest.mark.parametrize("position", SIZES)
def test_all_that_is_to_be_learned_has_its_gradient(position):
    module = of_position(position)
    x = draw(L, E).requires_grad_()
    names = [name for name, _ in module.named_parameters()]
    hidden = torch.tensor([False, False, True, False, False])

    def function(x, *parameters):
        state = dict(zip(names, parameters, strict=True))
        call = (x, x, x), {"key_padding_mask": hidden, "need_weights": False}
        return torch.func.functional_call(module, state, *call)[0]

    inputs = x, *module.parameters()
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("position", [None, *SIZES])
def test_gradients_by_item(position):
    module = of_position(position)
    x = draw(3, L, E)

    def loss(parameters, x):
        call = (x, x, x), {"need_weights": False}
        return torch.func.functional_call(module, parameters, *call)[0].square().sum()

    parameters = {name: p.detach() for name, p in module.named_parameters()}
    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    for i in range(3):
        want = torch.func.grad(loss)(parameters, x[i])
        near({name: grad[i] for name, grad in found.items()}, want)


def test_sizes():
    """Every size has its effect on what is learned, or on the buckets."""
    for position, sizes, shapes in [
        ("shaw", {}, {"rel_key": (33, 4), "rel_value": (33, 4)}),
        (
            "shaw",
            {"max_relative_position": 0},
            {"rel_key": (1, 4), "rel_value": (1, 4)},
        ),
        ("music", {"is_causal": True}, {"rel_key": (1024, 4)}),
        ("music", {"is_causal": False}, {"rel_key": (2047, 4)}),
        ("t5", {}, {"rel_bias": (32, 3)}),
        ("fire", {"width": 5}, {"w1": (5,), "w2": (3, 5), "b1": (5,), "b2": (3,)}),
        ("deberta", {}, {"rel_embeddings": (512, 12)}),
        ("alibi", {}, {}),
        ("kerple", {}, {"r1": (3,), "r2": (3,)}),
    ]:
        module = RelativeMultiheadAttention(E, H, position=position, **sizes)
        tensors = dict(module.named_parameters())
        assert not [*module.buffers()]  # what is computed survives to_empty
        assert {name: tuple(tensors[name].shape) for name in shapes} == shapes
    causal = {"num_buckets": 6, "max_distance": 6, "bidirectional": False}
    module = RelativeMultiheadAttention(E, H, position="t5", **causal)
    nn.init.normal_(module.rel_bias)
    bias = relpos.torch.t5_bias(module.rel_bias, L, **causal)
    rows = torch.arange(L) - torch.arange(L)[:, None] + L - 1
    plain = RelativeMultiheadAttention(E, H)
    plain.load_state_dict(module.state_dict(), strict=False)
    x = draw(L, E).float()
    torch.testing.assert_close(
        module(x, x, x)[0], plain(x, x, x, attn_mask=bias[:, rows])[0]
    )
    fire = RelativeMultiheadAttention(E, H, position="fire", max_distance=7)
    assert fire.threshold.item() == 7
    slow = RelativeMultiheadAttention(E, H, position="rope", base=100.0)
    fast = RelativeMultiheadAttention(E, H, position="rope")
    fast.load_state_dict(slow.state_dict())
    assert not torch.allclose(slow(x, x, x)[0], fast(x, x, x)[0])
