"""attention_forward and attention_backward: the bits of attention and its context."""

from __future__ import annotations

import numpy as np
import pytest
from backward_checks import every_input, square
from problems import cast, normal
from tolerances import assert_bitwise

import relpos
from relpos import reference

SETTINGS = {
    "causal": {"is_causal": True},
    "dropout": {"is_causal": True, "dropout_p": 0.4, "rng": 7},
    "padded": {"is_causal": True, "key_lengths": [3, 5], "softcap": 2.0},
}


def problem(dtype):
    rng = np.random.default_rng(3)
    inputs = cast(every_input(rng), dtype)
    return inputs, normal(rng, 2, 4, 5, 3).astype(dtype), normal(rng, 2, 4, 5)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_bits_of_attention_and_of_its_context(isa, dtype, settings):
    inputs, grad_out, grad_lse = problem(dtype)
    settings, wrt = SETTINGS[settings], list(inputs)
    want = relpos.attention(**inputs, **settings, return_lse=True, return_context=True)
    got = relpos.attention_forward(**inputs, **settings)
    assert got.out.dtype == got.lse.dtype == np.result_type(dtype, np.float32)
    assert_bitwise(got.out.astype(dtype), want.out)
    assert_bitwise(got.lse, want.lse)
    grads = want.context.backward(grad_out, grad_lse=grad_lse, wrt=wrt)
    again = relpos.attention_backward(
        grad_out, grad_lse, tuple(got), **inputs, wrt=wrt, **settings
    )
    for name in wrt:
        assert_bitwise(getattr(again, name), getattr(grads, name))


def test_without_a_gradient_of_out_or_of_lse():
    inputs, grad_out, grad_lse = problem("float64")
    result = relpos.attention_forward(**inputs, is_causal=True)
    given = (grad_out, None), (None, grad_lse)
    halves = [
        relpos.attention_backward(*pair, result, **inputs, is_causal=True)
        for pair in given
    ]
    want = reference.attention_backward(
        grad_out, **inputs, grad_lse=grad_lse, is_causal=True
    )
    assert halves[0].attn_mask is None  # an entry per pair: only by name
    total = halves[0].query + halves[1].query
    np.testing.assert_allclose(total, want.query, rtol=1e-12, atol=1e-13)
    with pytest.raises(ValueError, match="grad_out: None, and so is grad_lse"):
        relpos.attention_backward(None, None, result, **inputs, is_causal=True)


def test_lse_itself_is_not_read():
    inputs = square(np.random.default_rng(0))
    out, _, *parts = relpos.attention_forward(**inputs)
    grad = np.ones_like(out)
    gradients = relpos.attention_backward(grad, None, (out, None, *parts), **inputs)
    assert gradients.query.shape == inputs["query"].shape


@pytest.mark.parametrize("name", ["return_lse", "return_context", "out"])
def test_what_they_return_is_no_keyword(name):
    inputs = square(np.random.default_rng(0))
    with pytest.raises(TypeError, match=f"^{name}: (not taken here|got an unexpected)"):
        relpos.attention_forward(**inputs, **{name: True})
    result = relpos.attention_forward(**inputs)
    with pytest.raises(TypeError, match=f"^{name}: (not taken here|got an unexpected)"):
        relpos.attention_backward(result[0], None, result, **inputs, **{name: True})


def test_a_seed_is_checked_without_dropout_too():
    x = np.ones((1, 2, 2))
    with pytest.raises(TypeError, match="rng: got str; expected an int"):
        relpos.attention_forward(x, x, x, rng="a")


@pytest.mark.parametrize("rng", [None, np.random.default_rng(0), 1.5])
def test_dropout_needs_an_integer(rng):
    inputs = square(np.random.default_rng(0))
    with pytest.raises(TypeError, match=r"rng: got .*; expected an integer"):
        relpos.attention_forward(**inputs, dropout_p=0.5, rng=rng)


@pytest.mark.parametrize(("at", "name"), [(0, "out"), (2, "row_max"), (3, "row_sum")])
def test_results_of_another_call_are_refused(at, name):
    inputs = square(np.random.default_rng(0))
    result = list(relpos.attention_forward(**inputs))
    result[at] = result[at][:, 1:]
    message = rf"^result\.{name}: got shape .*; expected \(4, 5"
    with pytest.raises(ValueError, match=message):
        relpos.attention_backward(np.ones((4, 5, 3)), None, tuple(result), **inputs)
    with pytest.raises(TypeError, match="result: got list; expected what"):
        relpos.attention_backward(np.ones((4, 5, 3)), None, result, **inputs)
