"""Contexts: what `backward` is asked for, used again, of size 0, merged; bad calls."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import oracle
import pytest
from backward_checks import (
    BATCH,
    DV,
    LQ,
    H,
    check,
    every_input,
    given,
    square,
)
from bad_attention import BACKWARD, GRADIENTS as GOOD, INPUTS
from gradient_problems import assert_gradients_close, assert_same_bits
from problems import EMPTY, normal, run, tokens
from tolerances import assert_bitwise, assert_results_close

import relpos
from relpos import AttentionGradients, reference
from relpos._settings import kernels

NAMES = AttentionGradients._fields


@pytest.fixture
def calls(monkeypatch):
    """The operands of every backward call of the kernel."""
    seen = []
    table = kernels()
    run = table.attention_backward

    def record(operands):
        seen.append(dict(operands))
        run(operands)

    monkeypatch.setattr(table, "attention_backward", record)
    return seen


# ---- wrt ---------------------------------------------------------------------------


def test_default_is_every_floating_input_but_the_mask(rng, calls):
    inputs = every_input(rng)
    result = relpos.attention(**inputs, is_causal=True, return_context=True)
    got = result.context.backward(np.ones_like(result.out))
    assert isinstance(got, AttentionGradients)
    assert set(given(got)) == set(inputs) - {"attn_mask"}
    assert "grad_attn_mask" not in calls[0]
    few = relpos.attention(*list(inputs.values())[:3], return_context=True)
    got = few.context.backward(np.ones_like(few.out))
    assert set(given(got)) == {"query", "key", "value"}


@pytest.mark.parametrize("kind", [list, tuple, set, iter, np.array])
def test_what_wrt_leaves_out_is_not_computed(rng, calls, kind):
    inputs = every_input(rng)
    result = relpos.attention(**inputs, is_causal=True, return_context=True)
    grad_out = normal(rng, *result.out.shape)
    everything = result.context.backward(grad_out, wrt=NAMES)
    for names in (["rel_bias"], ["attn_mask", "key"], ["key", "key"], NAMES[-2:]):
        got = result.context.backward(grad_out, wrt=kind(list(names)))
        assert set(given(got)) == set(names)
        asked = {n for n in calls[-1] if n.startswith("grad_")} - {"grad_out"}
        assert asked == {f"grad_{name}" for name in names}
        want = given(everything)
        assert_gradients_close(given(got), {name: want[name] for name in names})


def test_nothing_asked_for(rng, calls):
    result = relpos.attention(**every_input(rng), is_causal=True, return_context=True)
    got = result.context.backward(np.ones_like(result.out), wrt=[])
    assert got == AttentionGradients() == (None,) * len(NAMES)
    assert not calls


def test_names_are_looked_at_one_by_one(rng):
    """An array that repeats one number has no list of a billion of them."""
    result = relpos.attention(**every_input(rng), is_causal=True, return_context=True)
    numbers = np.broadcast_to(1.0, (2**30, 1))
    with pytest.raises(TypeError, match=r"^wrt: got an array .* among the names"):
        result.context.backward(np.ones_like(result.out), wrt=numbers)


# ---- contexts ----------------------------------------------------------------------


def test_a_context_can_be_used_again(rng):
    inputs = every_input(rng)
    result = relpos.attention(
        **inputs, is_causal=True, dropout_p=0.4, rng=3, return_context=True
    )
    grad_out = normal(rng, *result.out.shape)
    first = result.context.backward(grad_out, wrt=NAMES)
    result.context.backward(-grad_out, num_threads=2)
    again = result.context.backward(grad_out, wrt=NAMES, num_threads=3)
    for name in NAMES:
        assert_bitwise(getattr(again, name), getattr(first, name))
        assert not np.shares_memory(getattr(again, name), getattr(first, name))


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_copied_context_gives_the_same(rng, copied):
    inputs = every_input(rng)
    result = relpos.attention(
        **inputs, is_causal=True, dropout_p=0.4, rng=3, return_context=True
    )
    grad_out = normal(rng, *result.out.shape)
    want = result.context.backward(grad_out, wrt=NAMES)
    twin = copied(result.context)
    for array in (*inputs.values(), result.out):
        array[...] = np.nan
    for name, gradient in given(twin.backward(grad_out, wrt=NAMES)).items():
        assert_bitwise(gradient, getattr(want, name))


def test_dropout_drops_what_the_forward_dropped(rng):
    inputs = square(rng, BATCH) | {"rel_value": normal(rng, 5, DV)}
    check(inputs, dropout_p=0.3, rng=4)
    source = np.random.default_rng(4)
    result = relpos.attention(**inputs, dropout_p=0.3, rng=source, return_context=True)
    grad_out = normal(rng, *result.out.shape)
    got = result.context.backward(grad_out)
    want = reference.attention_backward(grad_out, **inputs, dropout_p=0.3, rng=4)
    assert_gradients_close(given(got), given(want))


def test_inputs_and_incoming_gradients_stay_as_they_are(rng):
    inputs = every_input(rng)
    copies = {name: array.copy() for name, array in inputs.items()}
    for array in inputs.values():
        array.flags.writeable = False
    out = np.empty((2, H, LQ, DV))
    result = relpos.attention(
        **inputs, is_causal=True, return_lse=True, return_context=True, out=out
    )
    assert result.out is out
    kept, lse = out.copy(), result.lse.copy()
    grad_out = normal(rng, *out.shape)
    grad = grad_out.copy()
    grad.flags.writeable = out.flags.writeable = result.lse.flags.writeable = False
    result.context.backward(grad, grad_lse=lse, wrt=NAMES)
    assert_bitwise(out, kept)
    assert_bitwise(result.lse, lse)
    assert_bitwise(grad, grad_out)
    assert_same_bits(inputs, copies)


def test_out_of_another_layout(rng):
    inputs = every_input(rng)
    grad_out = normal(rng, 2, H, LQ, DV)
    plain = relpos.attention(**inputs, is_causal=True, return_context=True)
    want = plain.context.backward(grad_out)
    out = np.empty((2, LQ, H, 2 * DV)).swapaxes(1, 2)[..., ::-2]
    got = relpos.attention(**inputs, is_causal=True, return_context=True, out=out)
    assert_bitwise(got.context.backward(grad_out).key, want.key)


def test_the_context_keeps_what_it_needs(rng):
    def made():
        return relpos.attention(
            **every_input(rng), is_causal=True, return_context=True
        ).context

    context = made()
    got = context.backward(np.ones((2, H, LQ, DV)))
    assert all(np.isfinite(gradient).all() for gradient in given(got).values())


# ---- nothing to differentiate ------------------------------------------------------


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("with_tables", [False, True])
def test_problems_of_size_0(rng, isa, strict_floats, name, with_tables):
    """Results and gradients; without keys, out is 0 and lse -inf."""
    _, heads, lq, lk, d, dv = EMPTY[name]
    inputs, options = tokens(rng, *EMPTY[name]), {"scale": 0.5}
    if with_tables:
        inputs |= {"rel_key": normal(rng, 3, d), "rel_query": normal(rng, 1, 3, d)}
        inputs |= {"rel_value": normal(rng, 3, dv), "rel_bias": normal(rng, 5)}
        inputs |= {"pos_bias_u": normal(rng, d), "pos_bias_v": normal(rng, d)}
        inputs |= {"attn_mask": normal(rng, lq, lk)}
        inputs |= {"log_decay": normal(rng, heads, lk)}
        options |= {"query_offset": 1, "key_lengths": lk, "is_causal": True}
    got = run(**inputs, **options)
    assert_results_close(got, oracle.attention(**inputs, **options))
    _, gradients = check(inputs, **options)
    if name not in ("no columns", "no value columns"):
        assert not got.out.any()
        assert not any(gradient.any() for gradient in given(gradients).values())


def test_queries_that_see_nothing(rng, isa):
    inputs = every_input(rng)
    del inputs["sinks"]  # what a query sees that sees no key
    inputs["attn_mask"][2] = -np.inf
    inputs["query"][..., 2, :] = np.nan
    result = relpos.attention(**inputs, is_causal=True, return_context=True)
    grad_out, grad_lse = np.ones_like(result.out), np.ones(result.out.shape[:-1])
    grad_out[..., 2, :], grad_lse[..., 2] = np.inf, np.nan
    got = result.context.backward(grad_out, grad_lse=grad_lse, wrt=list(inputs))
    want = reference.attention_backward(
        grad_out, **inputs, is_causal=True, grad_lse=grad_lse
    )
    assert not got.query[..., 2, :].any() and not got.attn_mask[2].any()
    assert_gradients_close(given(got), given(want))


# ---- bad calls ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def context():
    return relpos.attention(**INPUTS, return_context=True).context


@pytest.mark.parametrize(("changes", "error", "pattern"), BACKWARD)
def test_bad_calls(context, changes, error, pattern):
    with pytest.raises(error, match=pattern):
        context.backward(**GOOD | changes)
    context.backward(**GOOD)


def test_grad_out_has_to_be_said(context):
    with pytest.raises(TypeError, match="grad_out"):
        context.backward()
    with pytest.raises(TypeError, match="positional"):
        context.backward(GOOD["grad_out"], GOOD["grad_lse"])


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("size", [1, 10**6])
def test_inputs_resized_in_between(name, size):
    """The memory that the context looked at may be gone."""
    inputs = {n: array.copy() for n, array in INPUTS.items()}
    context = relpos.attention(**inputs, return_context=True).context
    inputs[name].resize(size, refcheck=False)
    with pytest.raises(ValueError, match=rf"^{name}: resized .*\(shape .* now\); exp"):
        context.backward(**GOOD)


def test_results_resized_in_between():
    result = relpos.attention(**INPUTS, return_lse=True, return_context=True)
    result.out.resize((0,), refcheck=False)
    with pytest.raises(ValueError, match=r"^out: resized or reshaped since the call"):
        result.context.backward(**GOOD)


def test_what_an_input_is_a_view_of_resized_in_between():
    owner = np.ones(3 * 2 * 8 * 8)
    view = owner.reshape((3, 2, 8, 8))[:, :, ::2]
    context = relpos.attention(**INPUTS | {"query": view}, return_context=True)[3]
    context.backward(**GOOD)
    owner.resize(7, refcheck=False)
    with pytest.raises(ValueError, match=r"^query: resized or reshaped since"):
        context.backward(**GOOD)


@pytest.mark.parametrize("shape", [(2, 3, 4, 8), (3, 2, 8, 4), (1, 3, 2, 4, 8), (192,)])
def test_inputs_reshaped_in_between(shape):
    query = INPUTS["query"].copy()
    context = relpos.attention(**INPUTS | {"query": query}, return_context=True)[3]
    query.resize(shape, refcheck=False)
    with pytest.raises(ValueError, match=r"^query: resized or reshaped since the call"):
        context.backward(**GOOD)
    query.resize((3, 2, 4, 8), refcheck=False)
    context.backward(**GOOD)


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_inputs_of_another_dtype_in_between():
    key = INPUTS["key"].copy()
    context = relpos.attention(**INPUTS | {"key": key}, return_context=True)[3]
    key.dtype = np.int64
    with pytest.raises(ValueError, match=r"^key: resized or reshaped since the call"):
        context.backward(**GOOD)
