"""Layers: inputs, gradients and parameters in every layout of memory."""

from __future__ import annotations

import numpy as np
import pytest
from layer_calls import LAYERS, run
from layouts import LAYOUTS


def same(one, other):
    """Return True if results differ only by the order of sums of another layout."""
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            bound = 64 * np.finfo(a.dtype).eps * np.abs(a).max()
            assert a.shape == b.shape and a.dtype == b.dtype
            assert np.abs(a - b).max() <= bound


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", LAYERS)
def test_inputs_and_gradients(name, layout, dtype):
    make, shapes = LAYERS[name]
    rng, arrange = np.random.default_rng(1), LAYOUTS[layout]
    inputs = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    layer = make(dtype=dtype).eval()
    grad_out = rng.standard_normal(layer(*inputs).shape).astype(dtype)
    want = run(layer, inputs, grad_out)
    got = run(layer, [arrange(x) for x in inputs], arrange(grad_out))
    same(want, got)


@pytest.mark.parametrize("layout", ["transposed", "negative", "spaced", "unaligned"])
@pytest.mark.parametrize("name", LAYERS)
def test_parameters(name, layout):
    make, shapes = LAYERS[name]
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal(shape) for shape in shapes]
    layer = make(dtype="float64").eval()
    want = run(layer, inputs)
    for parameter in layer.parameters():
        parameter.data = LAYOUTS[layout](parameter.data)
    same(want, run(layer, inputs))
