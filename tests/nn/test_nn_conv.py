"""ConvPositionEmbedding against loops, differences and names of other packages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from layer_slopes import check_gradients
from problems import normal
from tolerances import assert_bitwise, assert_close, largest

from relpos import nn

# channels, taps, groups, length: even and odd, longer than the sequence, one group
SIZES = [(6, 4, 3, 7), (8, 5, 2, 9), (6, 9, 1, 4), (4, 1, 4, 3), (6, 128, 2, 5)]
sizes = pytest.mark.parametrize(("width", "taps", "groups", "length"), SIZES)


def made(width, taps, groups, dtype="float64"):
    layer = nn.ConvPositionEmbedding(width, taps, groups, rng=0, dtype=dtype)
    rng = np.random.default_rng(1)
    for _, parameter in layer.named_parameters():  # no bias of zeros, no g = |v|
        parameter.data[...] += normal(rng, *parameter.data.shape)
    return layer


def loops(layer, x, mask=None):
    """The formula of the docstring, one multiplication at a time."""
    state = {name: a.astype(np.float64) for name, a in layer.state_dict().items()}
    g, v = state["conv.weight_g"][0, 0], state["conv.weight_v"]
    width, inputs, taps = v.shape
    outputs = width // layer.groups
    y = np.zeros(x.shape) + state["conv.bias"]
    for b, n, c, t in np.ndindex(*x.shape, taps):
        m = n + t - taps // 2
        if not 0 <= m < x.shape[1] or (mask is not None and not mask[b, m]):
            continue
        first = c // outputs * inputs
        w = g[t] * v[c, :, t] / math.sqrt((v[..., t] ** 2).sum())
        y[b, n, c] += sum(w[i] * x[b, m, first + i] for i in range(inputs))
    return y * 0.5 * np.vectorize(math.erfc)(-y / math.sqrt(2))


@sizes
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("masked", [False, True])
def test_the_loops(isa, width, taps, groups, length, dtype, masked):
    layer = made(width, taps, groups, dtype)
    x = normal(np.random.default_rng(2), 2, length, width)
    mask = np.arange(2 * length).reshape(2, -1) % 3 > 0 if masked else None
    got = layer(x.astype(dtype), mask)
    assert got.dtype == dtype
    assert_close(got, loops(layer, x, mask), "layer", largest)


@sizes
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_equal_differences(width, taps, groups, length, masked):
    x = np.random.default_rng(3).standard_normal((2, length, width))
    mask = np.arange(2 * length).reshape(2, -1) % 3 > 0 if masked else None
    check_gradients(made(width, taps, groups), [x], {"mask": mask})


def test_padding_is_not_seen():
    layer = made(6, 5, 3)
    x = normal(np.random.default_rng(4), 1, 7, 6)
    want, grad_out = layer(x), normal(np.random.default_rng(5), 1, 7, 6)
    dx = layer.backward(grad_out)
    padded = np.concatenate([x, np.full((1, 3, 6), np.nan)], axis=1)
    mask = [[1] * 7 + [0] * 3]
    assert_close(layer(padded, mask)[:, :7], want, "layer")
    wide = np.concatenate([grad_out, np.zeros((1, 3, 6))], axis=1)
    got = layer.backward(wide)
    assert_close(got[:, :7], dx, "layer gradient")
    assert not got[:, 7:].any()


def test_a_token_with_an_even_kernel_sees_one_more_before_it():
    """The convolution has one output too many, of which the last is dropped."""
    layer = made(4, 4, 1)
    x = normal(np.random.default_rng(6), 1, 9, 4)
    changed = x.copy()
    changed[0, 4] += 1
    moved = np.abs(layer(changed) - layer(x)).max((0, 2)) > 0
    assert moved.tolist() == [False, False, False, True, True, True, True, False, False]


@pytest.mark.parametrize(
    "names",
    [
        ("0.bias", "0.weight_g", "0.weight_v"),
        (
            "conv.bias",
            "conv.parametrizations.weight.original0",
            "conv.parametrizations.weight.original1",
        ),
    ],
)
def test_names_of_fairseq_and_of_parametrizations(names):
    source, layer = made(6, 4, 2), nn.ConvPositionEmbedding(6, 4, 2, dtype="float64")
    state = dict(zip(names, source.state_dict().values(), strict=True))
    assert layer.load_state_dict(state) == ([], [])
    x = normal(np.random.default_rng(7), 1, 5, 6)
    assert_bitwise(layer(x), source(x))
    with pytest.raises(ValueError, match=r'Missing key\(s\): "conv\.weight_v"'):
        layer.load_state_dict({name: state[name] for name in names[:2]})
    with pytest.raises(ValueError, match=r"Unexpected key\(s\)"):
        layer.load_state_dict(state | {"conv.weight_g": state[names[1]]})


@pytest.mark.parametrize("shape", [(0, 5, 6), (2, 0, 6)])
def test_nothing_at_all(shape):
    layer = made(6, 4, 2)
    assert layer(np.ones(shape)).shape == shape
    assert layer.backward(np.ones(shape)).shape == shape
    assert not any(p.grad.any() for p in layer.parameters())
