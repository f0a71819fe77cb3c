"""Python's part of `context.backward`: broadcasting, gathered rows, dtypes.

The kernels have their own tests in test_gradients.py; sizes here are small, and the
truth is relpos.reference, which is checked here against differences and the oracle.
"""

from __future__ import annotations

from itertools import cycle

import dense_oracle
import numpy as np
import pytest
from backward_checks import (
    BATCH,
    DV,
    LK,
    LQ,
    D,
    H,
    check,
    every_input,
    given,
    square,
    tables,
)
from gradient_problems import (
    SCHEMES,
    VARIANTS,
    Problem,
    Shape,
    assert_gradients_close,
    assert_same_bits,
    make,
)
from problems import normal, qkv, tokens
from tolerances import TOLERANCES, assert_bitwise, assert_results_close

import relpos
from relpos import reference

# ---- the definitions ---------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_reference_is_the_oracle(scheme, variant):
    problem = make(scheme, variant, Shape(4, 5, 3, 2, 2, (2,)))
    call = problem.inputs | problem.settings
    got = reference.attention(**call, return_lse=True, return_weights=True)
    assert_results_close(got, dense_oracle.attention(**call))
    gradients = reference.attention_backward(
        **call, grad_out=problem.grad_out, grad_lse=problem.grad_lse
    )
    assert_gradients_close(given(gradients), problem.truth())


def test_reference_ignores_what_is_hidden(rng):
    inputs = square(rng)
    mask = np.ones((LQ, LQ), bool)
    mask[:, 2] = mask[3] = False
    grad = normal(rng, H, LQ, DV)
    clean = reference.attention_backward(grad, **inputs, attn_mask=mask)
    inputs["key"][:, 2], inputs["value"][:, 2] = np.nan, np.inf
    inputs["query"][:, 3], grad[:, 3] = np.nan, np.inf
    got = reference.attention_backward(grad, **inputs, attn_mask=mask)
    for name, gradient in given(got).items():
        assert_bitwise(gradient, getattr(clean, name))
    assert not got.query[:, 3].any() and not got.key[:, 2].any()


# ---- broadcasting ------------------------------------------------------------------


LEADING = [
    (),
    (1,),
    (H,),
    (1, H),
    (1, 1, 1),
    (3, H),
    (3, 1),
    (2, 1, H),
    (2, 1, 1),
    (1, 3, H),
    (2, 3, H),
    (2, 3, 1),
]


@pytest.mark.parametrize("leading", LEADING)
@pytest.mark.parametrize("name", ["rel_key", "rel_query", "rel_value", "rel_bias"])
def test_tables_shared_by_heads_and_batch_items(rng, name, leading):
    columns = {"rel_value": (DV,), "rel_bias": ()}.get(name, (D,))
    table = normal(rng, *leading, 5, *columns)
    check({**square(rng, BATCH), name: table}, key_lengths=[[5], [3]])


@pytest.mark.parametrize("leading", LEADING)
def test_all_tables_shared_alike(rng, leading):
    shapes = {"rel_key": (9, D), "rel_query": (9, D), "rel_value": (9, DV)}
    tables = {name: normal(rng, *leading, *shape) for name, shape in shapes.items()}
    tables["rel_bias"] = normal(rng, *leading[-1:], 7)
    vectors = {"pos_bias_u": normal(rng, D), "pos_bias_v": normal(rng, H, D)}
    check({**square(rng, BATCH), **tables, **vectors}, is_causal=True)


@pytest.mark.parametrize("leading", LEADING)
@pytest.mark.parametrize("name", ["pos_bias_u", "pos_bias_v"])
def test_vectors_shared_by_heads_and_batch_items(rng, name, leading):
    inputs = square(rng, BATCH) | {"rel_key": normal(rng, 5, D)}
    check(inputs | {name: normal(rng, *leading, D)}, is_causal=True)


@pytest.mark.parametrize("name", ["query", "key", "value"])
@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 1), (1, 1)])
def test_queries_keys_and_values_shared_by_the_batch(rng, name, batch):
    inputs = square(rng, BATCH)
    inputs[name] = inputs[name][tuple(slice(0, n) for n in (2, 3))]
    inputs[name] = normal(rng, *batch, *inputs[name].shape[-3:])
    check(inputs)


def test_batch_axes_of_other_arguments(rng):
    """Axes that only the mask, the offsets or the lengths have."""
    inputs = square(rng) | {"rel_key": normal(rng, 3, D)}
    check(inputs, query_offset=[0, 2, -1], key_lengths=[[5], [4]])
    check(inputs | {"attn_mask": normal(rng, 2, 1, LQ, LQ)})
    check(inputs, labels=rng.integers(-1, 3, (2, 1, LQ)))


@pytest.mark.parametrize(
    "shape",
    [(), (1,), (LK,), (LQ, 1), (LQ, LK), (H, 1, LK), (2, 1, 1, LK), (2, H, LQ, LK)],
)
def test_masks(rng, shape):
    inputs = tokens(rng, (2,), H, LQ, LK, D, DV)
    mask = normal(rng, *shape)
    if mask.size > 2:
        mask = np.where(rng.random(shape) < 0.2, -np.inf, mask)
    check({**inputs, "attn_mask": mask})


# ---- rows of tables ----------------------------------------------------------------


def test_buckets_add_up_per_row(rng):
    inputs = square(rng, (2,)) | tables(rng, 4)
    buckets = np.array([3, 0, 0, 2, 2, 2, 0, 0, 3])
    context, got = check(inputs, buckets=buckets)
    assert not got.rel_key[1].any() and not got.rel_bias[:, 1].any()  # a row unused
    check(inputs, buckets=buckets[:6], min_relative_position=-1, beyond="zero")
    check(inputs, buckets=[1])
    repr(context)


@pytest.mark.parametrize("beyond", ["clip", "zero"])
def test_tables_of_different_lengths(rng, beyond):
    inputs = square(rng, (2,))
    inputs |= {"rel_key": normal(rng, 1, 3, D), "rel_query": normal(rng, H, 7, D)}
    inputs |= {"rel_value": normal(rng, 2, H, 1, DV), "rel_bias": normal(rng, 9)}
    check(inputs, beyond=beyond)


@pytest.mark.parametrize("bias_rows", [4, 7])
def test_origin(rng, bias_rows):
    inputs = square(rng, (2,)) | tables(rng, 4, bias_rows)
    check(inputs, min_relative_position=-2, beyond="zero")


def test_labels_of_tables_of_any_length(rng):
    inputs = square(rng, (2,)) | tables(rng, 4, 6)
    check(inputs, labels=rng.integers(-1, 4, (2, LQ, LQ)).astype(np.int8))


def test_many_positions_in_few_rows(rng):
    """A sum of hundreds of positions is as exact as its terms."""
    inputs = square(rng, length=300) | {"rel_bias": normal(rng, H, 2)}
    inputs = {name: x.astype(np.float32) for name, x in inputs.items()}
    check(inputs, buckets=np.arange(601) % 2)


# ---- schemes -----------------------------------------------------------------------


def scheme_calls(rng):
    arrays = square(rng, (2,))
    shaw = {"rel_key": normal(rng, 5, D), "rel_value": normal(rng, H, 3, DV)}
    yield "shaw_attention", {**arrays, **shaw}, {}, {}
    music = {"rel_key": normal(rng, H, LQ, D)}
    placed = {"min_relative_position": 1 - LQ, "is_causal": True}
    yield "relative_global_attention", {**arrays, **music}, {}, placed
    both = {"rel_key": normal(rng, 2 * LQ + 1, D)}
    yield "relative_global_attention", {**arrays, **both}, {"is_causal": False}, {}
    query, key, value = qkv(rng, (2,), H, LQ, LK, D, DV)
    segment = {"query": query, "key": key, "value": value}
    segment |= {"rel_key": normal(rng, H, LK, D)}
    segment |= {name: normal(rng, H, D) for name in ("pos_bias_u", "pos_bias_v")}
    placed = {"min_relative_position": 1 - LK, "query_offset": LK - LQ}
    yield "transformer_xl_attention", segment, {"is_causal": True}, placed


@pytest.mark.parametrize("index", range(4))
def test_contexts_of_schemes(rng, index):
    name, inputs, settings, placed = list(scheme_calls(rng))[index]
    scheme = getattr(relpos, name)
    result = scheme(**inputs, **settings, return_context=True)
    grad_out = normal(rng, *result.out.shape)
    got = result.context.backward(grad_out)
    want = reference.attention_backward(grad_out, **inputs, **settings, **placed)
    assert_gradients_close(given(got), given(want))


# ---- dtypes ------------------------------------------------------------------------


@pytest.mark.parametrize("mask_dtype", [np.float16, np.float64, ">f4"])
def test_each_gradient_has_its_inputs_dtype(rng, mask_dtype):
    """Computed in float64, as one input is; each then rounded to its own."""
    inputs = every_input(rng)
    kinds = ["<f8", "<f4", "<f2", mask_dtype, ">f4", ">f8", "<f4", ">f2", "<f2", "<f8"]
    kinds += [">f4", "<f8"]
    inputs = {
        name: array.astype(np.float16).astype(kind)
        for (name, array), kind in zip(inputs.items(), cycle(kinds), strict=False)
    }
    result = relpos.attention(**inputs, is_causal=True, return_context=True)
    grad_out = normal(rng, *result.out.shape).astype(np.float16)
    got = result.context.backward(grad_out, wrt=list(inputs))
    wide = {name: array.astype(np.float64) for name, array in inputs.items()}
    want = reference.attention_backward(grad_out, **wide, is_causal=True)
    for name, truth in given(want).items():
        gradient = getattr(got, name)
        assert gradient.dtype == inputs[name].dtype.newbyteorder("="), name
        limit = TOLERANCES["gradient"].float64 + np.finfo(gradient.dtype).eps
        error = np.abs(gradient.astype(np.float64) - truth).max()
        assert error <= limit * np.abs(truth).max(), name


def test_float16_gradients_too_large_are_infinite(strict_floats):
    x = np.ones((1, 1, 1), np.float16)
    context = relpos.attention(x, x, x, return_context=True).context
    assert context.backward(np.full((1, 1, 1), 1e5)).value == np.inf


def test_gradients_of_any_floating_dtype(rng):
    inputs = {n: x.astype(np.float32) for n, x in every_input(rng).items()}
    result = relpos.attention(**inputs, is_causal=True, return_context=True)
    grad = normal(rng, *result.out.shape).astype(np.float16)
    want = result.context.backward(grad)
    for kind in ("<f4", ">f4", "<f8", ">f2"):
        got = result.context.backward(grad.astype(kind))
        for name, gradient in given(want).items():
            assert_bitwise(getattr(got, name), gradient)
    listed = result.context.backward(grad.tolist())
    assert_bitwise(listed.rel_value, want.rel_value)


# ---- labels that tiles do not take -------------------------------------------------


@pytest.mark.sanitized
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_of_rel_query_for_any_number_of_threads(isa, dtype):
    """More query rows than a wave has, keys of several stretches, columns of units."""
    rng = np.random.default_rng(12)
    lq, lk, rows = 70, 1100, 9
    inputs = tokens(rng, (2,), 4, lq, lk, 40, 19, key_heads=2) | {
        "attn_mask": normal(rng, lq, lk),
        "rel_key": normal(rng, rows, 40),
        "rel_query": normal(rng, 4, rows, 40),
        "rel_value": normal(rng, rows, 19),
        "rel_bias": normal(rng, 4, rows),
        "pos_bias_u": normal(rng, 40),
        "pos_bias_v": normal(rng, 4, 40),
    }
    settings = {
        "labels": rng.integers(-1, rows, (2, lq, lk)),
        "dropout_p": 0.2,
        "rng": 3,
        "is_causal": True,
        "enable_gqa": True,
        "query_offset": lk - lq,
    }
    problem = Problem.drawn(rng, inputs, settings).cast(dtype)
    want = problem.gradients(num_threads=1)
    for threads in (2, 3, 7):
        assert_same_bits(problem.gradients(num_threads=threads), want)
