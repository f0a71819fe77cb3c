"""Small calls for the tests of what Python does for `context.backward`."""

from __future__ import annotations

import numpy as np
from operand_arrays import others
from problems import normal, tokens
from tolerances import TOLERANCES, normwise

import relpos
from relpos import reference

H, LQ, LK, D, DV, DP = 4, 5, 7, 6, 3, 2
BATCH = (2, 3)


def given(gradients):
    return {n: grad for n, grad in gradients._asdict().items() if grad is not None}


def check(inputs, **settings):
    """Every gradient, float masks included, against the definitions."""
    rng = np.random.default_rng(9)
    result = relpos.attention(
        **inputs, **settings, return_lse=True, return_context=True
    )
    grad_out, grad_lse = normal(rng, *result.out.shape), normal(rng, *result.lse.shape)
    wrt = [name for name in inputs if inputs[name].dtype.kind == "f"]
    got = result.context.backward(grad_out, grad_lse=grad_lse, wrt=wrt)
    want = reference.attention_backward(
        grad_out, **inputs, **settings, grad_lse=grad_lse
    )
    assert set(given(got)) == set(wrt)
    for name in wrt:
        gradient = getattr(got, name)
        assert gradient.shape == inputs[name].shape, name
        assert gradient.dtype == inputs[name].dtype.newbyteorder("="), name
        assert gradient.flags.c_contiguous and gradient.flags.writeable, name
    for name in wrt:  # sums of calls as small as these may cancel to nothing
        error = normwise(getattr(got, name), getattr(want, name), 1e-3)
        assert error <= TOLERANCES["gradient"].of(inputs[name].dtype), name
    return result.context, got


def square(rng, batch=(), heads=H, length=LQ):
    return tokens(rng, batch, heads, length, length, D, DV)


def tables(rng, rows, bias_rows=None):
    bias_rows = rows if bias_rows is None else bias_rows
    return {
        "rel_key": normal(rng, rows, D),
        "rel_query": normal(rng, H, rows, D),
        "rel_value": normal(rng, 2, 1, rows, DV),
        "rel_bias": normal(rng, H, bias_rows),
    }


def every_input(rng):
    """Arrays of a causal call, with every operand that has a gradient."""
    inputs = {
        **square(rng, (2,)),
        "attn_mask": normal(rng, LQ, LQ),
        **tables(rng, 5),
        "rel_key": normal(rng, 5, DP),
        "pos_bias_u": normal(rng, D),
        "pos_bias_v": normal(rng, H, DP),
        "position_query": normal(rng, 2, H, LQ, DP),
        "sinks": normal(rng, H),
        "log_decay": normal(rng, 2, H, LQ),
    }
    lengths = {"H": H, "q": LQ, "k": LQ, "t": LQ, "D": D, "V": DV, "P": DP}
    return inputs | others(inputs, rng, lengths, 5, (2,))


def difference_of(loss, parameters, steps, h=2.5e-4):
    """Five-point difference of loss(parameters) along steps, an error of h^4."""

    def at(times):
        return loss([x + times * h * s for x, s in zip(parameters, steps, strict=True)])

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * h)


def assert_equals_differences(function, inputs, gradients, grad, scale=1.0):
    """Compare gradients with differences along five directions of each input."""
    for name, gradient in gradients.items():

        def loss(moved, name=name):
            return np.vdot(grad, function(**inputs | {name: moved[0]}))

        for seed in range(5):
            rng = np.random.default_rng(20 + seed)
            direction = scale * rng.standard_normal(gradient.shape)
            want = difference_of(loss, [inputs[name]], [direction], h=1e-3)
            size = np.linalg.norm(gradient) * np.linalg.norm(direction)
            assert abs(np.vdot(gradient, direction) - want) <= 1e-10 * size, name
