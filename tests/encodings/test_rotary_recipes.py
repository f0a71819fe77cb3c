"""PoPE and RoPE-ViT: loops over rows and columns, differences, and scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from backward_checks import assert_equals_differences
from layouts import LAYOUTS
from problems import seeded
from tolerances import assert_bitwise

import relpos
from relpos import recipes

DTYPES = [np.float32, np.float64]
LIMIT = {np.float32: 2e-6, np.float64: 1e-14}


def close(got, want, limit):
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= limit * max(np.linalg.norm(want), 1e-3)


# ---- PoPE ---------------------------------------------------------------------------

POPE = {
    "queries": {},
    "keys": {"bias": -np.abs(seeded(2, 4, seed=5))},
    "a bias for all heads": {"bias": seeded(4, seed=6), "offset": 3.5},
    "positions of items": {"positions": np.arange(10.0).reshape(2, 1, 5) - 4},
    "frequencies": {"inv_freq": np.array([0.9, -0.3, 0.05, 0.0]), "bias": seeded(2, 4)},
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
    x = seeded(2, 2, 5, 4, dtype=dtype)
    got = recipes.pope(x, **POPE[name])
    assert got.dtype == dtype
    close(got, pope_in_loops(x.astype(float), **POPE[name]), LIMIT[dtype])


def test_pope_scores_are_sizes_times_cosines_of_the_distance():
    """sum_c of softplus(q) softplus(k) cos((j - i) omega + b)."""
    q, k, bias = seeded(2, 6, 4), seeded(2, 6, 4, seed=1), seeded(2, 4, seed=2)
    rotated = recipes.pope(q, offset=11), recipes.pope(k, bias=bias, offset=11)
    scores = np.einsum("hid,hjd->hij", *rotated)
    omega = 10000.0 ** (-np.arange(4) / 4)
    distance = np.arange(6) - np.arange(6)[:, None]
    angles = distance[..., None] * omega + bias[:, None, None]
    sizes = np.log1p(np.exp(q))[:, :, None] * np.log1p(np.exp(k))[:, None]
    np.testing.assert_allclose(scores, (sizes * np.cos(angles)).sum(-1), atol=1e-13)


def test_pope_through_attention_and_back():
    """Gradients of x and the bias through the scores, by differences."""
    q, k, v, grad = seeded(4, 2, 5, 4)
    bias = seeded(2, 4, seed=7)

    def run(q, k, bias):
        rotated = recipes.pope(q), recipes.pope(k, bias=bias)
        return relpos.attention(*rotated, v, scale=4**-0.5)

    query = recipes.pope(q, argument="query")
    key = recipes.pope(k, bias=bias, argument="key")
    both = {**query, **key, "value": v, "scale": 4**-0.5}
    found = relpos.attention(**both, return_context=True).context.backward(grad)
    of_keys = key.backward(found)
    gradients = {"q": query.backward(found)["x"], "k": of_keys["x"]}
    gradients["bias"] = of_keys["bias"]
    assert_equals_differences(run, {"q": q, "k": k, "bias": bias}, gradients, grad, 0.1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pope_any_layout_and_number_of_threads(layout):
    arrange = LAYOUTS[layout]
    x, grad, bias = seeded(2, 90, 8), seeded(2, 90, 16, seed=1), seeded(2, 8, seed=2)
    want = recipes.pope(x, bias=bias, argument="key")
    back = want.backward({"key": grad})
    for threads in (1, 3):
        with relpos.threads(threads):
            got = recipes.pope(arrange(x), bias=arrange(bias), argument="key")
            found = got.backward({"key": arrange(grad)})
        assert_bitwise(got["key"], want["key"])
        assert_bitwise(found["x"], back["x"])
        assert_bitwise(found["bias"], back["bias"])


def test_pope_of_large_numbers():
    x = np.array([[-800.0, 800.0]])
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(recipes.pope(x), [[0.0, 800.0, 0.0, 0.0]])
        recipe = recipes.pope(x, argument="query")
        found = recipe.backward({"query": [[1.0, 1.0, 1.0, 1.0]]})
    np.testing.assert_array_equal(found["x"], [[0.0, 1.0]])


# ---- RoPE-ViT -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 2), (3, 6, 2), (4, 3)])
def test_rope_vit_against_the_loops(shape):
    where, freqs = seeded(*shape) * 9, seeded(shape[-1], 5, 4, seed=1)
    found = recipes.rope_vit(freqs, where)
    assert found["interleaved"] is True
    want = np.zeros((*shape[:-2], 5, shape[-2], 4))
    for *batch, h, n, c in np.ndindex(*want.shape):
        for a in range(shape[-1]):
            want[(*batch, h, n, c)] += where[(*batch, n, a)] * freqs[a, h, c]
    np.testing.assert_allclose(found["angles"], want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("batch", [(), (3,)])
def test_rope_vit_gradients_equal_differences(batch):
    """From a rotated x to the frequencies, over items and tokens."""
    x, grad = seeded(3, 2, 6, 8), seeded(3, 2, 6, 8, seed=1)
    where, freqs = seeded(*batch, 6, 2, seed=2), seeded(2, 2, 4, seed=3)

    def run(freqs):
        return relpos.apply_rotary(x, **recipes.rope_vit(freqs, where))

    recipe = recipes.rope_vit(freqs, where)
    found = recipe.backward(relpos.apply_rotary_backward(grad, x, **recipe))
    assert_equals_differences(run, {"freqs": freqs}, found, grad, 0.1)


def test_angles_of_rope_vit_are_of_float64():
    where, freqs = np.argwhere(np.ones((2, 3))), seeded(2, 2, 4, dtype=np.float32)
    assert recipes.rope_vit(freqs, where)["angles"].dtype == np.float64
