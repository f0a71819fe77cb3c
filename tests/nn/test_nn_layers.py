"""Layers: gradients by differences, forms of the call, masks, memory."""

from __future__ import annotations

import tracemalloc
from functools import partial

import numpy as np
import pytest
from layer_slopes import check_gradients, slope

import relpos
from relpos import nn

RNG_SEED = 7


def draw(*shapes, dtype="float64"):
    rng = np.random.default_rng(RNG_SEED)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def concat(positions, width, dtype="float64"):
    return relpos.sinusoidal(positions, width, layout="concat", dtype=dtype)


def xl(**options):
    return nn.RelPartialLearnableMultiHeadAttn(
        2, 6, 4, 0.1, dropatt=0.2, **{"rng": 0, "dtype": "float64"} | options
    )


FUTURE = np.triu(np.ones((4, 7), bool), 4)[:, :, None]  # True = hidden, memory of 3

F64 = {"rng": 0, "dtype": "float64"}
#: name -> (layer, inputs with a gradient, other keywords); inputs that are keywords are
#: in NAMES.
CASES = {
    "Linear": (nn.Linear(5, 3, **F64), draw((2, 4, 5)), {}),
    "LayerNorm": (nn.LayerNorm(5, **F64), draw((2, 4, 5)), {}),
    "SinusoidalEncoding": (nn.SinusoidalEncoding(6, **F64), draw((2, 4, 6)), {}),
    "RelativeGlobalAttention": (
        nn.RelativeGlobalAttention(6, 2, 9, **F64),
        draw((2, 7, 6)),
        {},
    ),
    "ShawAttention": (
        nn.ShawAttention(6, 2, 2, per_head=True, **F64),
        draw((2, 7, 6)),
        {"is_causal": True},
    ),
    "ShawAttention of other keys": (
        nn.ShawAttention(6, 2, 2, **F64),
        draw((2, 4, 6), (2, 7, 6), (2, 7, 6)),
        {"query_offset": 3},
    ),
    "Transformer-XL": (
        xl(),
        [*draw((4, 2, 6)), concat(np.arange(7)[::-1], 6)[:, None], *draw((3, 2, 6))],
        {"attn_mask": FUTURE},
    ),
    "Transformer-XL, pre_lnorm": (
        xl(pre_lnorm=True),
        [*draw((4, 2, 6)), concat(np.arange(6, -4, -1), 6), *draw((3, 2, 6))],
        {},
    ),
    "Conformer": (
        nn.ConformerRelPositionAttention(6, 2, **F64),
        [*draw(*[(2, 4, 6)] * 3), concat(np.arange(6, -7, -1), 6), *draw((2, 3, 6))],
        {"mask": np.arange(2 * 4 * 7).reshape(2, 4, 7) % 3 > 0},
    ),
    # without an input to differentiate
    "LearnedAPE": (nn.LearnedAPE(9, 3, **F64), [], {"x": np.zeros((2, 5))}),
    "Embedding": (nn.Embedding(9, 3, **F64), [], {"indices": [[1, 8], [1, 0]]}),
    "DynamicPositionBias": (
        nn.DynamicPositionBias(5, 2, 2, log_distance=True, **F64),
        [],
        {"length": 6},
    ),
    "ALiBi": (nn.ALiBi(3, learned=True, **F64), [], {"length": 6}),
    "KERPLE": (nn.KERPLE(3, **F64), [], {"length": 6}),
    "T5Bias": (nn.T5Bias(3, 8, 20, **F64), [], {"length": 40}),
    "LearnedBias": (nn.LearnedBias(3, 4, **F64), [], {"length": 9}),
    "FIRE": (nn.FIRE(3, 4, max_distance=40, **F64), [], {"query_length": 9}),
}
NAMES = {
    "Transformer-XL": ["mems"],
    "Transformer-XL, pre_lnorm": ["mems"],
    "Conformer": ["cache"],
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_by_differences(name):
    check_gradients(*CASES[name], names=NAMES.get(name, []), directions=5)


def call(name, layer, inputs, keywords):
    first = len(inputs) - len(NAMES.get(name, []))
    named = dict(zip(NAMES.get(name, []), inputs[first:], strict=True))
    return layer(*inputs[:first], **named, **keywords)


# ---- Transformer-XL -----------------------------------------------------------------


def test_both_owners_of_the_biases_agree():
    unshared, shared = xl().eval(), xl(r_r_bias=0, r_w_bias=0).eval()
    state = unshared.state_dict()
    u, v = state.pop("r_w_bias"), state.pop("r_r_bias")
    shared.load_state_dict(state)
    w, mems = draw((4, 2, 6), (3, 2, 6))
    r = concat(np.arange(7)[::-1], 6)
    first = unshared(w, r, FUTURE, mems)
    assert np.array_equal(first, shared(w, r, u, v, FUTURE, mems))
    parameters = nn.Parameter(u), nn.Parameter(v)
    assert np.array_equal(first, shared(w, r, *parameters, attn_mask=FUTURE, mems=mems))
    grads, others = unshared.backward(np.ones_like(w)), shared.backward(np.ones_like(w))
    assert grads._fields == ("w", "r", "mems")
    assert others._fields == ("w", "r", "r_w_bias", "r_r_bias", "mems")
    assert np.array_equal(unshared.r_w_bias.grad, others.r_w_bias)
    assert np.array_equal(unshared.r_r_bias.grad, others.r_r_bias)
    for name in grads._fields:
        assert np.array_equal(getattr(grads, name), getattr(others, name))


def test_masks_of_every_kind_that_say_the_same():
    layer = xl().eval()
    w, mems = draw((4, 2, 6), (3, 2, 6))
    r = concat(np.arange(7)[::-1], 6)
    want = layer(w, r, FUTURE, mems)
    for mask in (
        FUTURE.astype(np.uint8),
        FUTURE.astype(float),
        np.broadcast_to(FUTURE, (4, 7, 2)),
        FUTURE.tolist(),
    ):
        assert np.array_equal(layer(w, r, mask, mems), want)
    both = concat(np.arange(6, -4, -1), 6)
    assert np.allclose(layer(w, both, FUTURE, mems), want, rtol=1e-13)
    assert not np.allclose(layer(w, both, None, mems), want)
    hidden = np.zeros((7, 2), bool)
    hidden[:2, 0] = True
    pairs = np.broadcast_to(hidden, (4, 7, 2))
    one, other = layer(w, both, hidden, mems), layer(w, both, pairs, mems)
    assert np.array_equal(one, other)
    assert np.array_equal(one[:, 1], layer(w, both, None, mems)[:, 1])


def test_a_query_that_sees_nothing_keeps_its_residual():
    layer = xl(pre_lnorm=True).eval()
    (w,) = draw((4, 2, 6))
    mask = np.triu(np.ones((4, 4), bool), 1)[:, :, None]
    mask[2] = True
    out = layer(w, concat(np.arange(4)[::-1], 6), mask)
    assert np.array_equal(out[2], w[2]) and not np.allclose(out[1], w[1])
    grads = layer.backward(np.where(np.arange(4)[:, None, None] == 2, 1.0, 0) + 0 * w)
    assert np.array_equal(
        grads.w, np.where(np.arange(4)[:, None, None] == 2, 1.0, 0) + 0 * w
    )
    assert not grads.r.any() and grads.mems is None


def test_r_has_to_reach_as_far_as_the_mask_lets():
    layer = xl().eval()
    w, mems = draw((4, 2, 6), (3, 2, 6))
    for rows, mask, need in ((6, FUTURE, 7), (7, None, 10), (9, None, 10)):
        with pytest.raises(ValueError, match=rf"r: got {rows} rows .* at least {need}"):
            layer(w, concat(rows, 6), mask, mems)
    assert layer(w[:1], concat(4, 6), None, mems).shape == (1, 2, 6)  # no future there
    farther = concat(np.arange(6, -9, -1), 6)  # r may go on: its first row is known
    for mask, need in ((FUTURE, 7), (None, 10)):
        want = layer(w, farther[:need], mask, mems)
        assert np.allclose(layer(w, farther[: need + 1], mask, mems), want, rtol=1e-13)
        assert np.allclose(layer(w, farther, mask, mems), want, rtol=1e-13)


def test_memory_is_what_came_before():
    """Segments with memory are the end of one long call; the gradients too."""
    layer = xl().eval()
    (x,) = draw((9, 2, 6))
    future = np.triu(np.ones((9, 9), bool), 1)[:, :, None]
    r = concat(np.arange(9)[::-1], 6)
    whole = layer(x, r, future)
    grad_out = np.zeros_like(x)
    grad_out[5:] = draw((4, 2, 6))[0]
    expected = layer.backward(grad_out)
    mems = nn.update_memory(nn.update_memory(None, x[:2], 9), x[2:5], 9)
    assert np.array_equal(mems, x[:5])
    out = layer(x[5:], r, future[5:], mems)
    assert np.allclose(out, whole[5:], rtol=1e-12, atol=1e-13)
    grads = layer.backward(grad_out[5:])
    both = np.concatenate([grads.mems, grads.w])
    assert np.allclose(both, expected.w, rtol=1e-10, atol=1e-12)
    assert np.allclose(grads.r, expected.r, rtol=1e-10, atol=1e-12)


def test_update_memory():
    old, new = draw((3, 2, 4), (5, 2, 4))
    for keep in (0, 2, 5, 6, 8, 20):
        want = np.concatenate([old, new])[max(8 - keep, 0) :]
        got = nn.update_memory(old, new, keep)
        assert np.array_equal(got, want)
        assert not np.shares_memory(got, new) and not np.shares_memory(got, old)
    assert np.array_equal(nn.update_memory(None, new, 3), new[2:])


# ---- the others ---------------------------------------------------------------------


def test_writing_into_an_output_does_not_change_the_gradients():
    layer = nn.RelativeGlobalAttention(6, 1, 9, rng=0, dtype="float64").eval()
    (x,) = draw((2, 5, 6))
    out = layer(x)
    want = layer.backward(np.ones_like(x))
    out += x  # a residual, in place
    assert np.array_equal(layer.backward(np.ones_like(x)), want)


def test_shaw_takes_what_is_not_given_from_what_is():
    layer = nn.ShawAttention(6, 2, 2, rng=0, dtype="float64")
    x, y = draw((2, 5, 6), (2, 5, 6))
    alone = layer(x)
    grad = layer.backward(np.ones_like(x))
    assert np.array_equal(alone, layer(x, x, x))
    parts = layer.backward(np.ones_like(x))
    assert np.allclose(grad, parts.query + parts.key + parts.value, rtol=1e-13)
    assert np.array_equal(layer(x, y), layer(x, y, y))
    separate = layer.backward(np.ones_like(x))
    layer(x, y)
    joined = layer.backward(np.ones_like(x))
    assert joined.value is None
    assert np.allclose(joined.key, separate.key + separate.value, rtol=1e-13)


def test_conformer_cache_is_what_came_before():
    layer = nn.ConformerRelPositionAttention(6, 2, rng=0, dtype="float64")
    (x,) = draw((2, 9, 6))
    rows = concat(np.arange(8, -9, -1), 6)
    whole = layer(x, x, x, rows)
    part = layer(x[:, 5:], x[:, 5:], x[:, 5:], rows, cache=x[:, :5])
    assert np.allclose(part, whole[:, 5:], rtol=1e-12, atol=1e-13)


def test_conformer_query_that_sees_nothing_gets_the_bias():
    layer = nn.ConformerRelPositionAttention(6, 2, rng=0, dtype="float64")
    (x,) = draw((1, 3, 6))
    mask = np.ones((1, 3, 3))
    mask[0, 1] = 0
    out = layer(x, x, x, concat(np.arange(2, -3, -1), 6), mask)
    assert np.array_equal(out[0, 1], layer.linear_out.bias.data)


DROPPING = {
    "RelativeGlobalAttention": partial(nn.RelativeGlobalAttention, 6, 2, 9, 0.3, rng=0),
    "ShawAttention": partial(nn.ShawAttention, 6, 2, 2, dropout=0.3, rng=0),
    "Transformer-XL": xl,
    "Conformer": partial(nn.ConformerRelPositionAttention, 6, 2, 0.3, rng=0),
}


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_only_while_training(name):
    _, inputs, keywords = CASES[name]
    inputs = [x.astype("float32") for x in inputs]
    first, again = (DROPPING[name](dtype="float32") for _ in range(2))
    out = call(name, first, inputs, keywords)
    assert np.array_equal(out, call(name, again, inputs, keywords))
    assert not np.array_equal(out, call(name, first, inputs, keywords))
    still = call(name, first.eval(), inputs, keywords)
    assert np.array_equal(still, call(name, first, inputs, keywords))
    assert not np.array_equal(out, still)


@pytest.mark.parametrize("name", DROPPING)
def test_gradients_with_dropout(name):
    """The same zeros in both directions: a new layer of the same seed repeats them."""
    _, inputs, keywords = CASES[name]
    layer = DROPPING[name](dtype="float64")
    out = call(name, layer, inputs, keywords)
    rng = np.random.default_rng(3)
    grad_out, direction = (rng.standard_normal(x.shape) for x in (out, inputs[0]))
    grads = layer.backward(grad_out)
    grad = grads[0] if isinstance(grads, tuple) else grads

    def value(step):
        moved = [inputs[0] + step * direction, *inputs[1:]]
        again = DROPPING[name](dtype="float64")
        return (call(name, again, moved, keywords) * grad_out).sum()

    assert slope(value) == pytest.approx((grad * direction).sum(), rel=1e-8, abs=1e-8)


def test_dynamic_bias_counts_query_minus_key():
    layer = nn.DynamicPositionBias(4, 1, 1, rng=0, dtype="float64")
    short, long = layer(3), layer(6)
    assert np.allclose(long[:, 3:-3], short, rtol=1e-13)
    weights = layer.state_dict()
    x = 2 * weights["mlp.0.0.weight"][:, 0] + weights["mlp.0.0.bias"]  # distance 2
    past = weights["mlp.1.weight"] @ (x / (1 + np.exp(-x))) + weights["mlp.1.bias"]
    assert short[0, 0] == pytest.approx(past[0])  # relative position -2


def test_float32_layers_widen_float16_and_refuse_float64():
    layer = nn.ShawAttention(6, 2, 2, rng=0)
    (x,) = draw((1, 3, 6), dtype="float16")
    assert layer(x).dtype == np.float32
    with pytest.raises(TypeError, match=r"query: got dtype float64; .*float32"):
        layer(x.astype("float64"))


def test_without_a_mask_no_matrix_of_pairs_is_built():
    layer = nn.RelPartialLearnableMultiHeadAttn(1, 2, 2, 0.1, rng=0).eval()
    length = 2048
    (w,) = draw((length, 1, 2), dtype="float32")
    r = concat(np.arange(length - 1, -length, -1), 2, "float32")
    tracemalloc.start()
    layer(w, r)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < length**2 / 4
