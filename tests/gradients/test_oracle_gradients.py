"""The gradient oracle: complex steps through the loops, along random directions."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from gradient_problems import SCHEMES, VARIANTS, Shape, make

STEP = 1e-30


def loss_along(problem, name, direction):
    """Derivative of <G, out> + <g, lse> by one complex step of one input."""
    inputs = dict(problem.inputs)
    inputs[name] = inputs[name] + 1j * STEP * direction
    result = oracle.attention(**inputs, **problem.settings)
    seen = np.isfinite(result.lse.real)
    total = (problem.grad_out * result.out.imag).sum()
    return (total + (problem.grad_lse * result.lse.imag)[seen].sum()) / STEP


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradients_equal_complex_steps(scheme, variant):
    shape = Shape(4, 5, 3, 2, 2, (2,))
    problem = make(scheme, variant, shape)
    rng = np.random.default_rng(1)
    gradients = problem.truth()
    assert set(gradients) == set(problem.inputs)
    for name, gradient in gradients.items():
        assert gradient.shape == problem.inputs[name].shape
        direction = rng.standard_normal(gradient.shape)
        with np.errstate(invalid="ignore"):  # a mask of -inf moves nowhere
            exact = loss_along(problem, name, direction)
        error = abs(exact - np.vdot(gradient, direction))
        assert error <= 1e-13 * np.linalg.norm(gradient), name
