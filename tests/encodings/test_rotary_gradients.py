"""apply_rotary_backward: loops, differences, and the adjoint; xPos magnitudes."""

from __future__ import annotations

import functools

import numpy as np
import oracle_rotary as oracle
import pytest
from backward_checks import assert_equals_differences
from layouts import LAYOUTS
from oracle_gradients import sum_to
from problems import seeded
from tolerances import assert_bitwise

import relpos
from relpos import reference

DTYPES = [np.float32, np.float64]


PROBLEMS = {
    "plain": {},
    "offset": {"offset": 7.5, "base": 50.0},
    "positions of items": {"positions": np.arange(10.0).reshape(2, 1, 5)},
    "partial": {"rotary_dim": 4},
    "inverse": {"inverse": True, "positions": np.array([3.0, -1.5, 0.0, 2.0, 9.0])},
    "magnitude": {"magnitude": 1.5 + np.abs(seeded(5, 3, seed=9))},
}
ANGLES = {"alone": (3,), "rows": (5, 3), "items": (2, 1, 5, 3), "all": (2, 3, 5, 3)}


def problem(name, interleaved, dtype):
    options = PROBLEMS[name] | {"interleaved": interleaved}
    x, grad = seeded(2, 3, 5, 6, dtype=dtype), seeded(2, 3, 5, 6, dtype=dtype, seed=1)
    return x, grad, options


def learned(name):
    """Frequencies for a problem."""
    count = PROBLEMS[name].get("rotary_dim", 6) // 2
    return np.array([0.9, -0.3, 0.05])[:count]


def closest(got, want, dtype, scale=1.0):
    limit = {np.float32: 2e-6, np.float64: 1e-14}[dtype] * scale
    assert got.shape == np.shape(want)
    assert np.linalg.norm(got - want) <= limit * max(np.linalg.norm(want), 1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_frequencies_against_the_loops(name, interleaved, dtype, isa):
    x, grad, options = problem(name, interleaved, dtype)
    options["inv_freq"] = learned(name)
    got = relpos.apply_rotary_backward(grad, x, **options)
    grad_x, _, grad_frequencies = oracle.apply_rotary_backward(grad, x, **options)
    closest(got.x, grad_x, dtype)
    closest(got.inv_freq, grad_frequencies, dtype, 10)  # positions cancel in the sums
    assert got.x.dtype == dtype and got.inv_freq.dtype == np.float64
    assert got.angles is None
    exact = reference.apply_rotary_backward(grad, x, **options)
    closest(exact.x, grad_x, np.float64)
    closest(exact.inv_freq, grad_frequencies, np.float64, 10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("shared", ANGLES)
def test_angles_against_the_loops(shared, interleaved, dtype, isa):
    x, grad, options = problem("plain", interleaved, dtype)
    options |= {"angles": seeded(*ANGLES[shared], seed=3), "inverse": shared == "rows"}
    got = relpos.apply_rotary_backward(grad, x, **options)
    grad_x, grad_angles, _ = oracle.apply_rotary_backward(grad, x, **options)
    closest(got.x, grad_x, dtype)
    closest(got.angles, sum_to(grad_angles, ANGLES[shared]), dtype, 10)
    assert got.inv_freq is None
    exact = reference.apply_rotary_backward(grad, x, **options)
    closest(exact.angles, sum_to(grad_angles, ANGLES[shared]), np.float64, 10)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_gradients_equal_differences_of_the_forward(name, interleaved, isa):
    x, grad, options = problem(name, interleaved, np.float64)
    groups = [{"x": x, "inv_freq": learned(name)}]
    if name in ("plain", "magnitude"):
        groups += [{"x": x, "angles": seeded(*s, seed=3)} for s in ANGLES.values()]
    function = functools.partial(relpos.apply_rotary, **options)
    for inputs in groups:
        found = relpos.apply_rotary_backward(grad, **inputs, **options)._asdict()
        for wrt in inputs:  # steps of frequencies are multiplied by positions
            scale = 0.1 if wrt == "inv_freq" else 1.0
            gradient = {wrt: found[wrt]}
            assert_equals_differences(function, inputs, gradient, grad, scale)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_gradient_of_x_is_the_inverse_applied_to_it(name):
    x, grad, options = problem(name, False, np.float32)
    inverse = not options.pop("inverse", False)
    got = relpos.apply_rotary_backward(grad, x, **options, inverse=not inverse)
    assert_bitwise(got.x, relpos.apply_rotary(grad, **options, inverse=inverse))
    assert got.inv_freq is got.angles is None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_and_number_of_threads(layout):
    arrange = LAYOUTS[layout]
    x, grad, inv_freq = seeded(2, 90, 16), seeded(2, 90, 16, seed=1), np.ones(8) / 9
    want = relpos.apply_rotary_backward(grad, x, inv_freq=inv_freq)
    for threads in (1, 3):
        with relpos.threads(threads):
            got = relpos.apply_rotary_backward(
                arrange(grad), arrange(x), inv_freq=arrange(inv_freq)
            )
        assert_bitwise(got.x, want.x)
        assert_bitwise(got.inv_freq, want.inv_freq)


def test_dtypes_are_those_of_the_arguments():
    x, grad = seeded(4, 6, dtype=np.float16), seeded(4, 6)
    got = relpos.apply_rotary_backward(grad, x, inv_freq=np.ones(3, np.float32))
    assert (got.x.dtype, got.inv_freq.dtype) == (np.float16, np.float32)
    want = relpos.apply_rotary_backward(grad, x.astype(float), inv_freq=np.ones(3))
    np.testing.assert_allclose(got.x, want.x, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(got.inv_freq, want.inv_freq, rtol=1e-6, atol=1e-6)


# ---- xPos ---------------------------------------------------------------------------


@pytest.mark.parametrize("inverse", [False, True])
def test_xpos_magnitude_against_the_loops(inverse):
    for positions, dim in ((7, 8), (seeded(2, 3) * 900, 2), ([[-512, 3]], 64)):
        got = relpos.xpos_magnitude(positions, dim, scale_base=300, inverse=inverse)
        options = {"scale_base": 300, "inverse": inverse}
        want = oracle.xpos_magnitude(positions, dim, **options)
        np.testing.assert_allclose(got, want, rtol=1e-14)
        exact = reference.xpos_magnitude(positions, dim, **options)
        np.testing.assert_allclose(exact, want, rtol=1e-14)
        assert got.dtype == np.float64


def test_xpos_scores_fall_with_the_distance():
    """q.k has the factor zeta^((i - j) / scale_base): relative, and below 1."""
    ones = np.ones((40, 2))
    at = np.arange(40)
    query, key = (
        relpos.apply_rotary(
            ones,
            inv_freq=[0.0],
            magnitude=relpos.xpos_magnitude(at - 20, 2, scale_base=8, inverse=inverse),
        )
        for inverse in (False, True)
    )
    scores = query @ key.T
    zeta = 0.4 / 1.4
    want = 2 * zeta ** ((at[:, None] - at) / 8)
    np.testing.assert_allclose(scores, want, rtol=1e-13)


def test_rotated_attention_equals_relative_angles():
    """softmax of q.R(j - i)k, with the rotation written out pair by pair."""
    q, k, v = seeded(3, 2, 9, 8)
    got = relpos.attention(*(relpos.apply_rotary(x) for x in (q, k)), v)
    scores = np.zeros((2, 9, 9))
    for i in range(9):
        rotated = oracle.apply_rotary(k, positions=np.arange(9) - i)
        scores[:, i] = np.einsum("hd,hjd->hj", q[:, i], rotated) / np.sqrt(8)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(got, weights @ v, rtol=0, atol=1e-14)
