"""Gradients of a layer compared with differences of its values."""

from __future__ import annotations

import numpy as np
import pytest


def slope(value, h=1e-4):
    """Derivative of value(step) at 0 from five points."""
    return (8 * (value(h) - value(-h)) - value(2 * h) + value(-2 * h)) / (12 * h)


def check_gradients(layer, inputs, keywords, names=(), directions=3):
    """Inputs and parameters together, along random directions, at five points.

    names: the last inputs are given by these keywords.
    """
    inputs = [x.copy() for x in inputs]
    layer.eval()
    layer.zero_grad()

    def call():
        first = len(inputs) - len(names)
        named = dict(zip(names, inputs[first:], strict=True))
        return layer(*inputs[:first], **named, **keywords)

    out = call()
    rng = np.random.default_rng(1)
    grad_out = rng.standard_normal(out.shape)
    grads = layer.backward(grad_out)
    grads = [*grads] if isinstance(grads, tuple) else [grads]
    grads = [g for g in grads if g is not None]
    arrays = [*inputs, *(p.data for p in layer.parameters())]
    grads += [p.grad for p in layer.parameters()]
    assert [g.shape for g in grads] == [x.shape for x in arrays]
    starts = [x.copy() for x in arrays]
    for _ in range(directions):
        along = [rng.standard_normal(x.shape) for x in arrays]

        def value(step, along=along):
            for x, start, direction in zip(arrays, starts, along, strict=True):
                x[...] = start + step * direction
            return float((call() * grad_out).sum())

        found = slope(value)
        value(0.0)
        want = sum(float((g * d).sum()) for g, d in zip(grads, along, strict=True))
        assert found == pytest.approx(want, rel=1e-8, abs=1e-8)
