"""log_decay: sums from a key to its query, at any length and position."""

from __future__ import annotations

import functools

import dense_oracle
import numpy as np
import oracle
import pytest
from gradient_problems import Problem, assert_gradients_close, assert_same_bits
from problems import DTYPES, check, check_all, normal, qkv, run, terms, tokens
from tolerances import (
    assert_bitwise,
    assert_close,
    assert_results_close,
)

import relpos
from relpos import reference

pytestmark = pytest.mark.usefixtures("strict_floats")
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)
# few queries, one tile, ragged tiles and panels, several tiles and chunks
LENGTHS = [(1, 1), (1, 700), (8, 40), (40, 40), (97, 131), (300, 1100)]


def gates(rng, *shape, scale=1.0):
    """Logarithms of forget gates."""
    return -np.abs(normal(rng, *shape, scale=scale))


@functools.cache
def problem(kind, lq, lk):
    rng = np.random.default_rng([lq, lk])
    inputs = qkv(rng, (2,), 2, lq, lk, 16, 24)
    keywords = terms(rng, kind, 2, lq, lk, 16, 24, offset=lk - lq, k=9)
    keywords |= {"log_decay": gates(rng, 2, 2, lk), "is_causal": True}
    return inputs, keywords, dense_oracle.attention(*inputs, **keywords)


@pytest.mark.sanitized
@pytest.mark.parametrize(("lq", "lk"), LENGTHS)
@pytest.mark.parametrize("kind", ["plain", "shaw", "music", "bias", "everything"])
def test_on_top_of_every_term(isa, kind, lq, lk):
    check_all(*problem(kind, lq, lk))


@pytest.mark.parametrize("offset", [-3, 0, 2, 5, 40, 2**59])
def test_any_position_of_the_queries(isa, offset):
    """Before the first key they see none; past the last one sums end with the keys."""
    rng = np.random.default_rng(3)
    q, k, v = qkv(rng, (), 2, 5, 7, 4)
    keywords = {"log_decay": gates(rng, 2, 7), "query_offset": offset}
    keywords["is_causal"] = True
    check_all((q, k, v), keywords, oracle.attention(q, k, v, **keywords))


def test_each_item_has_its_own_offset(isa):
    rng = np.random.default_rng(4)
    q, k, v = qkv(rng, (3,), 2, 20, 30, 8)
    keywords = {"log_decay": gates(rng, 3, 2, 30), "query_offset": [-4, 10, 33]}
    keywords |= {"is_causal": True, "key_lengths": [30, 11, 0], "window": (12, None)}
    check_all((q, k, v), keywords, oracle.attention(q, k, v, **keywords))


@pytest.mark.parametrize(
    "hidden",
    [
        {"window": (None, 0)},
        {"window": (9, 0)},
        {"query_offset": 19, "key_lengths": 20},
        {"query_offset": [19, 25], "key_lengths": [20, 26]},
        {"query_offset": 39},
        {"key_ranges": "packed"},
    ],
)
@pytest.mark.parametrize("lq", [3, 20])
def test_later_keys_are_hidden_by_any_rule(hidden, lq):
    rng = np.random.default_rng(5)
    q, k, v = qkv(rng, (2,), 2, lq, 40, 8)
    keywords = {"query_offset": 5, "log_decay": gates(rng, 2, 40), **hidden}
    if "key_ranges" in hidden:
        ends = np.arange(6, 6 + lq)
        keywords["key_ranges"] = np.stack([ends // 7 * 7, ends], axis=-1)
    check((q, k, v), keywords, "float64")


def test_labels_that_tiles_do_not_take(isa):
    """A term of keys by label: one row after the other, forward and back."""
    rng = np.random.default_rng(6)
    inputs = tokens(rng, (2,), 2, 37, 37, 8, 6)
    inputs |= {"rel_query": normal(rng, 5, 8), "log_decay": gates(rng, 2, 37)}
    settings = {"labels": rng.integers(-1, 5, (37, 37)), "is_causal": True}
    call = Problem.drawn(rng, inputs, settings)
    want = dense_oracle.attention(**inputs, **settings)
    sizes = functools.cache(lambda: call.truth(magnitude=True))
    for dtype in DTYPES:
        given = call.cast(dtype)
        assert_results_close(run(**given.inputs, **settings), want)
        one = given.gradients(num_threads=1)
        assert_gradients_close(one, call.truth(), sizes)
        assert_same_bits(given.gradients(num_threads=3), one)


# ---- digits --------------------------------------------------------------------------


@functools.cache
@np.errstate(all="ignore")  # weights underflow
def long_problem(strength, length):
    """Sums reach -strength at the end; (problem, forward, gradients, their sizes)."""
    rng = np.random.default_rng(7)
    inputs = tokens(rng, (), 1, length, length, 16)
    inputs["log_decay"] = gates(rng, 1, length, scale=1.25 * strength / length)
    call = Problem.drawn(rng, inputs, {"is_causal": True})
    want = dense_oracle.attention(**inputs, is_causal=True)
    return call, want, call.truth(), call.truth(magnitude=True)


@both_dtypes
@pytest.mark.parametrize("strength", [4.0, 400.0, 4000.0])
def test_digits_at_length_4096(isa, strength, dtype, sized):
    """Sums of C would lose 4e-5 in float32, as a column of query and key does."""
    call, want, truth, sizes = long_problem(strength, sized(1024, 4096))
    given = call.cast(dtype)
    assert_close(given.forward(), want.out, "forward")
    if dtype == "float32" or strength < 4000:  # where sums in float64 end in 2e-13
        assert_gradients_close(given.gradients(), truth, lambda: sizes)


@pytest.mark.parametrize("lq", [1, 64])
def test_a_logit_is_as_exact_as_its_own_decay(isa, lq):
    """Weights where all products are zero: a logit of 60 is 4e-6 off."""
    rng, lk = np.random.default_rng(8), 3000
    steps = gates(rng, 1, lk, scale=2.0).astype(np.float32)
    zeros = np.zeros((1, lq, 4), np.float32), np.zeros((1, lk, 4), np.float32)
    keywords = {"query_offset": lk - lq, "is_causal": True, "return_weights": True}
    weights = relpos.attention(
        zeros[0], zeros[1], zeros[1], log_decay=steps, **keywords
    ).weights
    after = np.append(np.cumsum(steps[0, :0:-1].astype(np.float64))[::-1], 0.0)
    with np.errstate(under="ignore"):
        want = np.exp(after) / np.exp(after).sum()
    near = slice(-40, None)
    error = np.abs(weights[0, -1, near] / want[near] - 1)
    assert (error <= 2e-7 * (1 - after[near])).all()


# ---- bits ----------------------------------------------------------------------------


def forgetting(dtype, batch=(2,), lq=130, lk=700):
    rng = np.random.default_rng(9)
    inputs = tokens(rng, batch, 4, lq, lk, 16, key_heads=2)
    inputs["log_decay"] = gates(rng, *batch, 4, lk)
    settings = {"is_causal": True, "enable_gqa": True, "query_offset": lk - lq}
    with np.errstate(under="ignore"):
        return Problem.drawn(rng, inputs, settings).cast(dtype)


@both_dtypes
def test_shared_by_items_it_is_as_repeated(isa, dtype):
    call = forgetting(dtype)
    shared = call.inputs["log_decay"][:1]
    repeated = call._replace(
        inputs=call.inputs | {"log_decay": np.repeat(shared, 2, axis=0)}
    )
    for steps in (shared, shared[0]):
        one = call._replace(inputs=call.inputs | {"log_decay": steps})
        assert_bitwise(one.forward(), repeated.forward())
        got, each = one.gradients(), repeated.gradients()
        total = each["log_decay"].astype(float).sum(0).reshape(steps.shape)
        assert got["log_decay"].shape == steps.shape
        assert_close(got["log_decay"], total, "same_formula")


# ---- what is hidden, and what is extreme ---------------------------------------------


def test_steps_between_no_visible_pair_have_no_gradient(isa):
    call = forgetting("float64", batch=(), lq=6, lk=40)
    gradients = call._replace(settings=call.settings | {"query_offset": 10})
    got = gradients.gradients()["log_decay"]
    assert not got[:, 0].any()
    assert got[:, 1:16].all()
    assert not got[:, 16:].any()


@both_dtypes
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("lq", [2, 40])
def test_the_largest_numbers_are_no_nan(isa, dtype, sign, lq):
    """Sums stay finite: only -inf hides."""
    steps = np.full((1, 40), sign * np.finfo(dtype).max, dtype)
    zeros = np.zeros((1, lq, 4), dtype), np.zeros((1, 40, 4), dtype)
    result = relpos.attention(
        zeros[0],
        zeros[1],
        zeros[1],
        np.full((lq, 40), sign * np.finfo(dtype).max, dtype),
        is_causal=True,
        log_decay=steps,
        rel_bias=np.full(1, sign * np.finfo(dtype).max, dtype),
        query_offset=40 - lq,
        return_weights=True,
        return_context=True,
    )
    assert np.isfinite(result.weights).all()
    assert_close(result.weights.sum(-1), np.ones((1, lq)), "forward")
    gradients = result.context.backward(np.ones((1, lq, 4), dtype))
    assert all(np.isfinite(g).all() for g in gradients if g is not None)


def test_ones_step_is_a_slope():
    """Steps of one size are ALiBi."""
    rng = np.random.default_rng(11)
    q, k, v = qkv(rng, (), 4, 50, 50, 8)
    slopes = relpos.alibi_slopes(4, dtype=np.float64)
    steps = np.repeat(-slopes[:, None], 50, axis=1)
    got = relpos.attention(q, k, v, is_causal=True, log_decay=steps)
    bias = relpos.alibi_bias(slopes, 50)
    want = relpos.attention(q, k, v, is_causal=True, rel_bias=bias)
    assert_close(got, want, "same_formula")


def test_the_definition_refuses_a_later_key():
    x = np.ones((1, 3, 2))
    with pytest.raises(ValueError, match="log_decay: a later key is visible"):
        reference.attention(x, x, x, log_decay=np.zeros((1, 3)))


@both_dtypes
@pytest.mark.parametrize("lq", [3, 40])
def test_the_first_step_is_in_no_sum(isa, dtype, lq):
    rng = np.random.default_rng(9)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (), 2, lq, lq, 4))
    steps = gates(rng, 2, lq).astype(dtype)
    want = run(q, k, v, log_decay=steps, is_causal=True).out
    steps[:, 0] = np.finfo(dtype).min
    assert_bitwise(run(q, k, v, log_decay=steps, is_causal=True).out, want)


@both_dtypes
@pytest.mark.parametrize("lq", [5, 60])
def test_gradients_of_a_document_know_no_other_one(isa, dtype, lq):
    """Neither large numbers nor NaN of the second come to the steps of the first.

    Sums are of float64, so numbers that are large there leave something.
    """
    rng = np.random.default_rng(10)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (), 1, 2 * lq, 2 * lq, 4))
    ranges = np.array([[0, 0]] * lq + [[lq, 0]] * lq)
    ranges[:, 1] = np.arange(2 * lq) + 1
    keywords = {"log_decay": gates(rng, 1, 2 * lq).astype(dtype), "key_ranges": ranges}
    grad_out = normal(rng, *q.shape).astype(dtype)
    context, found = run(q, k, v, return_context=True, **keywords).context, []
    for factor in (0, 1e8 if dtype == np.float32 else 1, np.nan):
        grads = np.where(np.arange(2 * lq)[:, None] < lq, grad_out, factor * grad_out)
        with np.errstate(all="ignore"):
            got = context.backward(grads.astype(dtype), wrt=["log_decay"])
        found.append(got.log_decay[0])
    want, large, strange = found
    assert large[lq + 1 :].all() and np.isfinite(large).all()
    assert_close(large[:lq], want[:lq], "same_formula")
    assert_bitwise(strange[:lq], want[:lq])
    assert np.isnan(strange[lq + 1 :]).all()
