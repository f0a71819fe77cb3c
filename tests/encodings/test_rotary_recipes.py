"""PoPE and RoPE-ViT: loops over rows and columns, differences, and scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bad_kinds import Tensor, ones
from layouts import LAYOUTS
from tolerances import assert_bitwise

import relpos
from relpos import recipes

DTYPES = [np.float32, np.float64]
LIMIT = {np.float32: 2e-6, np.float64: 1e-14}
STEP = 1e-3


def normal(*shape, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(got, want, limit):
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= limit * max(np.linalg.norm(want), 1e-3)


def difference(function, inputs, name, direction, grad):
    """Derivative of <grad, function> along a direction, by five points."""

    def at(steps):
        moved = inputs | {name: inputs[name] + steps * STEP * direction}
        return (function(**moved) * grad).sum()

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * STEP)


def assert_equals_differences(function, inputs, found, grad):
    for name, gradient in found.items():
        for seed in range(5):
            direction = normal(*inputs[name].shape, seed=20 + seed) / 10
            want = difference(function, inputs, name, direction, grad)
            size = np.linalg.norm(gradient) * np.linalg.norm(direction)
            assert abs((gradient * direction).sum() - want) <= 1e-10 * size


# ---- PoPE ---------------------------------------------------------------------------

POPE = {
    "queries": {},
    "keys": {"bias": -np.abs(normal(2, 4, seed=5))},
    "a bias for all heads": {"bias": normal(4, seed=6), "offset": 3.5},
    "positions of items": {"positions": np.arange(10.0).reshape(2, 1, 5) - 4},
    "frequencies": {"inv_freq": np.array([0.9, -0.3, 0.05, 0.0]), "bias": normal(2, 4)},
    "base": {"base": 50.0, "offset": 7},
}


def pope_in_loops(
    x, positions=None, bias=None, inv_freq=None, base=10000.0, offset=0.0
):
    columns = x.shape[-1]
    positions = np.arange(x.shape[-2]) if positions is None else positions
    where = np.broadcast_to(positions, x.shape[:-1]) + offset
    y = np.zeros((*x.shape[:-1], 2 * columns))
    for *row, c in np.ndindex(*x.shape):
        frequency = base ** (-c / columns) if inv_freq is None else inv_freq[c]
        angle = where[tuple(row)] * frequency
        if bias is not None:
            angle += bias[c] if bias.ndim == 1 else bias[row[-2], c]
        size = math.log1p(math.exp(x[(*row, c)]))
        y[(*row, c)] = size * math.cos(angle)
        y[(*row, columns + c)] = size * math.sin(angle)
    return y


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", POPE)
def test_pope_against_the_loops(name, dtype, isa):
    x = normal(2, 2, 5, 4, dtype=dtype)
    got = recipes.pope(x, **POPE[name])
    assert got.dtype == dtype
    close(got, pope_in_loops(x.astype(float), **POPE[name]), LIMIT[dtype])


def test_pope_scores_are_sizes_times_cosines_of_the_distance():
    """sum_c of softplus(q) softplus(k) cos((j - i) omega + b)."""
    q, k, bias = normal(2, 6, 4), normal(2, 6, 4, seed=1), normal(2, 4, seed=2)
    turned = recipes.pope(q, offset=11), recipes.pope(k, bias=bias, offset=11)
    scores = np.einsum("hid,hjd->hij", *turned)
    omega = 10000.0 ** (-np.arange(4) / 4)
    distance = np.arange(6) - np.arange(6)[:, None]
    angles = distance[..., None] * omega + bias[:, None, None]
    sizes = np.log1p(np.exp(q))[:, :, None] * np.log1p(np.exp(k))[:, None]
    np.testing.assert_allclose(scores, (sizes * np.cos(angles)).sum(-1), atol=1e-13)


@pytest.mark.parametrize("name", POPE)
def test_pope_gradients_equal_differences(name, isa):
    x, grad = normal(2, 2, 5, 4), normal(2, 2, 5, 8, seed=1)
    inputs = {"x": x} | POPE[name]
    result = recipes.pope_backward(grad, **inputs)
    found = {n: g for n, g in result._asdict().items() if g is not None}
    assert {*found} == {"x", "bias", "inv_freq"} & {*inputs}
    assert all(found[n].shape == inputs[n].shape for n in found)
    assert_equals_differences(recipes.pope, inputs, found, grad)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_pope_gradients_are_of_the_dtype_of_their_argument(dtype):
    x, grad = normal(2, 5, 4, dtype=dtype), normal(2, 5, 8, dtype=dtype, seed=1)
    options = {"bias": normal(2, 4, seed=2), "inv_freq": normal(4, seed=3)}
    got = recipes.pope_backward(grad, x, **options)
    want = recipes.pope_backward(grad.astype(float), x.astype(float), **options)
    assert (got.x.dtype, got.bias.dtype) == (dtype, np.float64)
    limit = 1e-3 if dtype is np.float16 else 2e-6
    for one, other in zip(got, want, strict=True):
        close(one.astype(float), other, limit)


def test_pope_through_attention_and_back():
    """The chain from the scores to x and the bias, by differences."""
    q, k, v, grad = normal(4, 2, 5, 4)
    bias = normal(2, 4, seed=7)

    def run(q, k, bias, **options):
        turned = recipes.pope(q), recipes.pope(k, bias=bias)
        return relpos.attention(*turned, v, scale=4**-0.5, **options)

    inputs = {"q": q, "k": k, "bias": bias}
    found = run(**inputs, return_context=True).context.backward(grad)
    of_keys = recipes.pope_backward(found.key, k, bias=bias)
    gradients = {
        "q": recipes.pope_backward(found.query, q).x,
        "k": of_keys.x,
        "bias": of_keys.bias,
    }
    assert_equals_differences(run, inputs, gradients, grad)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pope_any_layout_and_number_of_threads(layout):
    arrange = LAYOUTS[layout]
    x, grad, bias = normal(2, 90, 8), normal(2, 90, 16, seed=1), normal(2, 8, seed=2)
    want, back = recipes.pope(x, bias=bias), recipes.pope_backward(grad, x, bias=bias)
    for threads in (1, 3):
        with relpos.threads(threads):
            given = {"x": arrange(x), "bias": arrange(bias)}
            assert_bitwise(recipes.pope(**given), want)
            got = recipes.pope_backward(arrange(grad), **given)
        assert_bitwise(got.x, back.x)
        assert_bitwise(got.bias, back.bias)


def test_pope_of_large_numbers():
    x = np.array([[-800.0, 800.0]])
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(recipes.pope(x), [[0.0, 800.0, 0.0, 0.0]])
        got = recipes.pope_backward([[1.0, 1.0, 1.0, 1.0]], x)
    np.testing.assert_array_equal(got.x, [[0.0, 1.0]])


# ---- RoPE-ViT -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 2), (3, 6, 2), (4, 3)])
def test_rope_vit_against_the_loops(shape):
    where, freqs = normal(*shape) * 9, normal(shape[-1], 5, 4, seed=1)
    found = recipes.rope_vit(freqs, where)
    assert found["interleaved"] is True
    want = np.zeros((*shape[:-2], 5, shape[-2], 4))
    for *batch, h, n, c in np.ndindex(*want.shape):
        for a in range(shape[-1]):
            want[(*batch, h, n, c)] += where[(*batch, n, a)] * freqs[a, h, c]
    np.testing.assert_allclose(found["angles"], want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_rope_vit_gradients_equal_differences(batch):
    """From a turned x to the frequencies, over items and tokens."""
    x, grad = normal(3, 2, 6, 8), normal(3, 2, 6, 8, seed=1)
    where, freqs = normal(*batch, 6, 2, seed=2), normal(2, 2, 4, seed=3)

    def run(freqs):
        return relpos.apply_rotary(x, **recipes.rope_vit(freqs, where))

    keywords = recipes.rope_vit(freqs, where)
    of_angles = relpos.apply_rotary_backward(grad, x, **keywords).angles
    found = recipes.rope_vit_backward(of_angles, where)
    assert found.shape == freqs.shape
    assert_equals_differences(run, {"freqs": freqs}, {"freqs": found}, grad)


def test_rope_vit_dtypes():
    where, freqs = np.argwhere(np.ones((2, 3))), normal(2, 2, 4, dtype=np.float32)
    assert recipes.rope_vit(freqs, where)["angles"].dtype == np.float64
    grad = normal(2, 6, 4, dtype=np.float32)
    assert recipes.rope_vit_backward(grad, where).dtype == np.float32


# ---- bad input -----------------------------------------------------------------------

BAD_POPE = [
    (
        {"x": ones(4)},
        ValueError,
        r"^x: shape \(4,\) has 1 axes; expected \(\.\.\., L, D",
    ),
    ({"x": ones(5, 4, dtype=int)}, TypeError, r"^x: got dtype int64; expected float16"),
    ({"x": Tensor()}, TypeError, r"^x: got a torch Tensor"),
    ({"bias": ones(3)}, ValueError, r"^bias: got shape \(3,\); .*\(4,\) or \(2, 4\)"),
    (
        {"bias": ones(3, 4)},
        ValueError,
        r"^bias: got shape \(3, 4\); expected \(D,\) or",
    ),
    ({"bias": ones(2, 1, 4)}, ValueError, r"^bias: got shape \(2, 1, 4\); expected"),
    ({"bias": [1] * 4}, TypeError, r"^bias: got dtype int64; expected float16"),
    ({"bias": Tensor()}, TypeError, r"^bias: got a torch Tensor"),
    (
        {"positions": ones(4)},
        ValueError,
        r"^positions: shape \(4,\) does not broadcast",
    ),
    (
        {"inv_freq": ones(2)},
        ValueError,
        r"^inv_freq: got shape \(2,\); expected \(4,\)",
    ),
    ({"base": 0}, ValueError, r"^base: got 0.0; expected a positive number"),
    ({"offset": "1"}, TypeError, r"^offset: got str; expected a real number"),
]
BAD_VIT = [
    ({"freqs": ones(2, 3)}, ValueError, r"^freqs: got shape \(2, 3\); expected \(A, H"),
    ({"freqs": ones(3, 2, 4)}, ValueError, r"^freqs: .* with the A = 2 of coordinates"),
    (
        {"freqs": ones(2, 2, 4, dtype=int)},
        TypeError,
        r"^freqs: got dtype int64; expect",
    ),
    ({"freqs": Tensor()}, TypeError, r"^freqs: got a torch Tensor"),
    (
        {"coordinates": ones(2)},
        ValueError,
        r"^coordinates: shape \(2,\) has 1 axes; exp",
    ),
    ({"coordinates": [["a"]]}, TypeError, r"^coordinates: got dtype <U1; expected int"),
]


@pytest.mark.parametrize("changes, error, pattern", BAD_POPE)
def test_bad_pope(changes, error, pattern):
    arguments = {"x": ones(2, 5, 4)} | changes
    with pytest.raises(error, match=pattern):
        recipes.pope(**arguments)
    with pytest.raises(error, match=pattern):
        recipes.pope_backward(ones(2, 5, 8), **arguments)


@pytest.mark.parametrize("grad_out", [ones(2, 5, 4), ones(5, 8), ones(8)])
def test_bad_gradient_of_pope(grad_out):
    with pytest.raises(ValueError, match=r"^grad_out: shape .* expected \(2, 5, 8\)"):
        recipes.pope_backward(grad_out, ones(2, 5, 4))


@pytest.mark.parametrize("changes, error, pattern", BAD_VIT)
def test_bad_rope_vit(changes, error, pattern):
    good = {"freqs": ones(2, 2, 4), "coordinates": ones(6, 2)}
    with pytest.raises(error, match=pattern):
        recipes.rope_vit(**(good | changes))


@pytest.mark.parametrize(
    "grad_angles, error, pattern",
    [
        (ones(2, 5, 4), ValueError, r"^grad_angles: got shape \(2, 5, 4\) with coordi"),
        (ones(6, 4), ValueError, r"^grad_angles: .*expected \(\.\.\., H, L, D/2\)"),
        (ones(3, 2, 6, 4), ValueError, r"^grad_angles: got shape \(3, 2, 6, 4\) with"),
        (ones(2, 6, 4, dtype=int), TypeError, r"^grad_angles: got dtype int64; expect"),
        (Tensor(), TypeError, r"^grad_angles: got a torch Tensor"),
    ],
)
def test_bad_gradient_of_rope_vit(grad_angles, error, pattern):
    with pytest.raises(error, match=pattern):
        recipes.rope_vit_backward(grad_angles, ones(6, 2))
