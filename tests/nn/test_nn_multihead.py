"""MultiheadAttention by every position, alone and in blocks: gradients, sharing."""

from __future__ import annotations

import numpy as np
import pytest
from layer_calls import POSITIONS
from layer_slopes import check_gradients

import relpos
from relpos import nn

F64 = {"rng": 0, "dtype": "float64"}
SIZES = POSITIONS | {"alibi": {"learned": True}}
SIZES["music"] = POSITIONS["music"] | {"is_causal": False}
OBJECTS = {
    "LearnedBias": lambda: nn.LearnedBias(2, 2, **F64),
    "DynamicPositionBias": lambda: nn.DynamicPositionBias(3, 2, 1, **F64),
    "Rotary, interleaved": lambda: nn.Rotary(4, interleaved=True, **F64),
}
X = np.random.default_rng(5).standard_normal((2, 7, 8))


def named(position):
    layer = nn.MultiheadAttention(8, 2, position=position, **SIZES[position], **F64)
    if position == "fire":
        layer.position.threshold.data[...] = 2.5  # at no query, where it has an edge
    return layer


def made(name):
    if name in OBJECTS:
        return nn.MultiheadAttention(8, 2, position=OBJECTS[name](), **F64)
    return named(name)


@pytest.mark.parametrize("name", [*SIZES, *OBJECTS])
def test_gradients_of_self_attention(name):
    check_gradients(made(name), [X], {"key_lengths": [7, 4]})


@pytest.mark.parametrize("name", [*SIZES, *OBJECTS])
@pytest.mark.parametrize("offset", [3, np.array([3, 1])], ids=["one", "each"])
def test_gradients_of_attention_to_other_tokens(name, offset):
    """Queries at positions of their own, with a mask; values apart or not."""
    layer, mask = made(name), np.tri(4, 7, 3, dtype=bool)
    keywords = {"attn_mask": mask, "query_offset": offset}
    check_gradients(layer, [X[:, 2:6], X], keywords)
    check_gradients(layer, [X[:, 2:6], X, X[::-1]], keywords)


BLOCKS = {
    "pre-norm": lambda: nn.TransformerLayer(
        8, 2, 12, 0.1, "gelu", position="shaw", **F64
    ),
    "post-norm": lambda: nn.TransformerLayer(
        8, 2, 12, 0.1, "gelu", False, is_causal=True, position="alibi", **F64
    ),
    "windowed": lambda: nn.TransformerLayer(
        8, 2, activation="gelu", window=(2, 0), **F64
    ),
    "a row of blocks": lambda: nn.Sequential(
        nn.MultiheadAttention(8, 2, position="t5", **F64),
        nn.GELU(dtype="float64"),
        nn.Residual(nn.FeedForward(8, 12, activation="gelu", **F64)),
        nn.MultiheadAttention(8, 2, is_causal=True, position="rope", **F64),
        nn.LayerNorm(8, dtype="float64"),
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_gradients_of_blocks(name):
    check_gradients(BLOCKS[name](), [X], {"key_lengths": [7, 4]})


@pytest.mark.parametrize("pre_norm", [True, False])
def test_a_block_that_attends_to_other_tokens_has_their_gradient(pre_norm):
    layer = nn.Residual(named(None), nn.LayerNorm(8, dtype="float64"), pre_norm)
    check_gradients(layer, [X[:, :5], X[::-1]], {}, names=["key"])


def test_vectors_that_are_added_to_every_item():
    layer = nn.Residual(nn.LearnedAPE(9, 8, **F64))
    check_gradients(layer, [X], {})
    table = layer.layer.embedding.weight.data
    assert np.array_equal(layer(X), X + table[:7])


@pytest.mark.parametrize("layer", [nn.ReLU(), nn.GELU()], ids=["relu", "gelu"])
def test_activations_of_any_shape(layer):
    for x in (np.float32(1.5), np.zeros((0, 3), np.float32)):
        out = layer(x)
        grad = layer.backward(out)
        for result in (out, grad):
            assert isinstance(result, np.ndarray) and result.shape == np.shape(x)


@pytest.mark.parametrize("name", [*SIZES, *OBJECTS])
@pytest.mark.parametrize("shape", [(0, 4, 8), (2, 0, 8)])
def test_nothing_at_all(name, shape):
    layer, nothing = made(name), np.zeros(shape)
    assert layer.backward(layer(nothing)).shape == shape
    assert not any(parameter.grad.any() for parameter in layer.parameters())


@pytest.mark.parametrize("name", [*SIZES, *OBJECTS])
def test_no_items_with_an_argument_for_each(name):
    layer, nothing = made(name), np.zeros((0, 4, 8))
    for each in ("query_offset", "key_lengths"):
        out = layer(nothing, **{each: np.zeros(0, int)})
        assert layer.backward(out).shape == nothing.shape


@pytest.mark.parametrize("offset", [2**62, -(2**62), 2**54, -(2**54)])
@pytest.mark.parametrize("name", [*SIZES, *OBJECTS])
def test_an_offset_beyond_all_positions_is_refused_by_its_name(name, offset):
    layer = made(name)
    for each in (offset, [0, offset]):
        try:
            layer(X[:, :2], X, query_offset=each)
        except ValueError as error:
            assert str(error).startswith(f"query_offset: got {offset};")
        except IndexError as error:
            assert name == "music" and str(error).startswith("query: got tokens")
        else:
            assert abs(offset) < 2**60 and name in ("shaw", "fire", None)


def test_relu_by_its_definition():
    layer = nn.ReLU(dtype="float64")
    assert layer([-2.0, 0.0, 3.0]).tolist() == [0.0, 0.0, 3.0]
    assert layer.backward([5.0, 6.0, 7.0]).tolist() == [0.0, 0.0, 7.0]


# ---- what a position is -----------------------------------------------------------


class Projected(nn.Position):
    """Rows of sinusoids through layers, which it calls again before their gradient."""

    again = True

    def __init__(self):
        self.layers = nn.Sequential(nn.Linear(6, 4, **F64), nn.GELU(dtype="float64"))

    def arguments(self, query_length, key_length, query_offset=0):
        reach = query_length + key_length
        rows = relpos.sinusoidal(np.arange(-reach, reach + 1), 6)
        return {"rel_key": self.layers(rows)}

    def add_gradients(self, gradients, *place):
        if self.again:
            self.arguments(*place)
        self.layers.backward(gradients.rel_key)


OBJECTS["a projection of your own"] = Projected
SHARED = [name for name in [*SIZES, *OBJECTS] if name is not None]


@pytest.mark.parametrize("name", SHARED)
def test_a_position_may_be_shared(name):
    """Attentions of unlike lengths share one; each adds to its gradient."""
    apart = [made(name) for _ in range(2)]
    apart[1].load_state_dict(apart[0].state_dict())
    shared = apart[0].position
    second = nn.MultiheadAttention(8, 2, position=shared, **F64)
    second.load_state_dict(apart[0].state_dict())
    inputs = X, X[:, :5]
    for layer, x in zip(apart, inputs, strict=True):
        layer.backward(np.ones_like(layer(x)))
    grads = zip(
        *[[p.grad for p in layer.position.parameters()] for layer in apart], strict=True
    )
    want = [sum(pair) for pair in grads]
    apart[0].zero_grad()
    both = apart[0], second
    outs = [layer(x) for layer, x in zip(both, inputs, strict=True)]
    for layer, out in zip(both, outs, strict=True):
        layer.backward(np.ones_like(out))
    for parameter, total in zip(shared.parameters(), want, strict=True):
        np.testing.assert_allclose(parameter.grad, total, rtol=1e-12, atol=1e-14)
    model = nn.Sequential(*both)
    names = [name for name, _ in model.named_parameters()]
    assert len(names) == 8 + len(want) and len({*names}) == len(names)
    check_gradients(model, [X], {})


def test_parts_that_an_attention_uses_as_functions_may_be_called_in_between():
    layer = named("transformer_xl")
    layer.position.pos_proj.bias = nn.Parameter(np.arange(8.0))
    want = layer.backward(layer(X))
    wanted = [parameter.grad for parameter in layer.parameters()]
    layer.zero_grad()
    out = layer(X)
    projected = layer.position.pos_proj(X)
    assert np.array_equal(layer.backward(out), want)
    for parameter, grad in zip(layer.parameters(), wanted, strict=True):
        assert np.array_equal(parameter.grad, grad)
    assert layer.position.pos_proj.backward(projected).shape == X.shape
    check_gradients(layer, [X], {})


def test_a_position_that_does_not_call_its_layers_again_may_not_be_shared():
    alone = made("a projection of your own")
    alone.position.again = False
    check_gradients(alone, [X], {})
    alone.zero_grad()
    second = nn.MultiheadAttention(8, 2, position=alone.position, **F64)
    model = nn.Sequential(alone, second)
    out = model(X)
    pattern = "^MultiheadAttention.backward: its Sequential has been called again since"
    with pytest.raises(RuntimeError, match=pattern):
        model.backward(out)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_scheme_inside_is_that_of_relpos():
    """Projections by hand around the function of the scheme."""
    layer = named("shaw")
    state = layer.state_dict()
    packed = X @ state["in_proj_weight"].T + state["in_proj_bias"]
    heads = [x.reshape(2, 7, 2, 4).swapaxes(1, 2) for x in np.split(packed, 3, -1)]
    out = relpos.shaw_attention(*heads, state["rel_key"], state["rel_value"])
    joined = out.swapaxes(1, 2).reshape(2, 7, 8)
    want = joined @ state["out_proj.weight"].T + state["out_proj.bias"]
    np.testing.assert_allclose(layer(X), want, rtol=1e-12, atol=1e-14)


def test_a_position_of_your_own():
    """Keywords are the parameters' names; gradients come back by them."""

    class Sinks(nn.Position):
        def __init__(self):
            self.sinks = nn.Parameter(np.array([0.3, -0.2]))

    layer = nn.MultiheadAttention(8, 2, position=Sinks(), **F64)
    check_gradients(layer, [X], {})
    assert "sinks" in layer.state_dict()


@pytest.mark.parametrize("name", [n for n in SIZES if n is not None])
def test_attention_depends_on_the_order_of_tokens(name):
    layer, order = made(name), [3, 1, 4, 0, 6, 2, 5]
    assert not np.allclose(layer(X[:, order]), layer(X)[:, order], rtol=1e-3)
    plain = named(None)
    np.testing.assert_allclose(plain(X[:, order]), plain(X)[:, order], rtol=1e-10)


def test_shaw_by_its_settings():
    layer = nn.MultiheadAttention(
        8, 2, position="shaw", max_relative_position=1, per_head=True, use_values=False
    )
    assert layer.state_dict()["rel_key"].shape == (2, 3, 4)
    assert "rel_value" not in layer.state_dict()


def test_alibi_is_fixed_unless_learned():
    assert nn.ALiBi(3).state_dict() == {}
    assert np.array_equal(nn.ALiBi(3, learned=True).slopes.data, relpos.alibi_slopes(3))


def test_kerple_raises_small_numbers_for_its_bias_and_not_their_gradients():
    """As the authors' code, which writes the raised numbers before each call."""
    small, raised = nn.KERPLE(3, **F64), nn.KERPLE(3, **F64)
    small.r1.data[...] = [-1.0, 0.005, 0.4]
    small.r2.data[...] = [0.3, -2.0, 0.0]
    raised.r1.data[...] = [0.01, 0.01, 0.4]
    raised.r2.data[...] = [0.3, 0.01, 0.01]
    bias, grad = small(5), np.random.default_rng(2).standard_normal((3, 9))
    assert np.array_equal(bias, raised(5)) and bias[:, 0].max() < 0
    for layer in (small, raised):
        layer.backward(grad)
    assert np.array_equal(small.r1.grad, raised.r1.grad) and small.r1.grad.all()
    assert np.array_equal(small.r2.grad, raised.r2.grad) and small.r2.grad.all()
    assert small.r1.data[0] == -1.0


def test_kerple_starts_with_positive_numbers():
    layer = nn.KERPLE(4096, rng=0)
    for parameter, high in ((layer.r1, 2.0), (layer.r2, 1.0)):
        assert parameter.data.min() >= 0.0 and 0.99 * high < parameter.data.max() < high
        assert abs(parameter.data.mean() - high / 2) < 0.02 * high


def test_a_query_that_sees_no_key_gets_the_bias_of_the_output():
    layer = named("alibi")
    layer.out_proj.bias.data[...] = 7.0
    assert np.array_equal(layer(X, key_lengths=[7, 0])[1], np.full((7, 8), 7.0))


def test_dropout_is_off_after_eval():
    layer = nn.TransformerLayer(8, 2, dropout=0.5, position="alibi", **F64)
    assert not np.array_equal(layer(X), layer(X))
    assert np.array_equal(layer.eval()(X), layer(X))


# ---- repr ---------------------------------------------------------------------------


def test_repr_shows_settings_and_parts():
    assert repr(named("t5")) == (
        "MultiheadAttention(embed_dim=8, num_heads=2, dropout=0.0, bias=True, "
        "is_causal=False, window=None, position='t5', num_buckets=8, max_distance=6, "
        "dtype=float64)"
    )
    assert repr(nn.Sequential(nn.Residual(nn.ReLU()), nn.Rotary(2))) == (
        "Sequential(\n"
        "  0: Residual(\n"
        "    layer: ReLU(dtype=float32)\n"
        "    dropout: Dropout(p=0.0, dtype=float32)\n"
        "    pre_norm=True\n"
        "  )\n"
        "  1: Rotary(head_dim=2, base=10000.0, interleaved=False, dtype=float32)\n"
        ")"
    )
