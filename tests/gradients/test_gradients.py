"""Gradients: differences of the forward, and the oracle on every kernel table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from backward_checks import difference_of
from gradient_problems import (
    SCHEMES,
    VARIANTS,
    Shape,
    assert_same_bits,
    check_everywhere,
    make,
)
from layouts import LAYOUTS, heads_inside

from relpos import _core
from relpos._settings import use_isa

# With this step the truncation and the rounding of a difference are 4e-11 of the
# gradient at most; a longer step truncates more, a shorter one rounds more.
STEP, DIRECTIONS = 7e-4, 20

# Around the sizes of the tiles, few queries and few keys, odd columns, Dv != D. Two
# heads throughout, so that shared and own tables differ.
SHAPES = [
    Shape(1, 33, 16, 16, 2, (2,)),
    Shape(5, 257, 64, 64),
    Shape(9, 9, 80, 3, 2, (3,)),
    Shape(33, 65, 3, 16, 2, (2,)),
    Shape(65, 33, 16, 64),
    Shape(257, 5, 64, 80),
    Shape(300, 520, 16, 16),
    Shape(257, 300, 80, 64),
    Shape(65, 257, 64, 64, 2, (1, 2)),
    Shape(520, 520, 64, 16),
    Shape(33, 1, 16, 3, 2, (2,)),
]
# Several key tiles to a chunk of work, many query tiles, wide columns.
LONG = [
    Shape(40, 1300, 16, 8),
    Shape(9, 4400, 8, 8),
    Shape(1300, 70, 8, 24),
    Shape(33, 40, 300, 520),
]


def loss(problem, inputs):
    result = problem._replace(inputs=inputs).forward(return_lse=True, num_threads=1)
    seen = np.isfinite(result.lse)
    total = np.vdot(problem.grad_out, result.out)
    return total + np.vdot(problem.grad_lse[seen], result.lse[seen])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradients_equal_differences_of_the_forward(scheme, variant):
    """Derivative along d against <gradient, d>, relative to |gradient| rms(d)."""
    problem = make(scheme, variant, Shape(5, 7, 4, 3, 2, (2,)))
    rng = np.random.default_rng(2)
    by_isa = {}
    for isa in _core.by_isa:
        with use_isa(isa):
            by_isa[isa] = problem.gradients()
        assert set(by_isa[isa]) == set(problem.inputs)
    for name, array in problem.inputs.items():

        def of(moved, name=name):
            return loss(problem, problem.inputs | {name: moved[0]})

        for _ in range(DIRECTIONS):
            d = rng.standard_normal(array.shape)
            d /= np.abs(d).max()
            with np.errstate(invalid="ignore"):  # a mask of -inf moves nowhere
                want = difference_of(of, [array], [d], STEP)
            for isa, gradients in by_isa.items():
                gradient = gradients[name]
                size = np.linalg.norm(gradient) * np.sqrt(np.mean(d**2))
                error = abs(np.vdot(gradient, d) - want)
                assert error <= 1e-10 * size, f"{name} {isa}: {error / size:.2g}"


def cases():
    """Every scheme with every variant, at the shapes in turn; and at every shape."""
    pairs = itertools.product(SCHEMES, VARIANTS)
    turns = [(*pair, SHAPES[n % len(SHAPES)]) for n, pair in enumerate(pairs)]
    everywhere = itertools.product(SCHEMES, SHAPES)
    for n, (scheme, shape) in enumerate(everywhere):
        turns.append((scheme, ("both", "causal")[n % 2], shape))
    for scheme, variant, shape in dict.fromkeys(turns):
        if variant != "masked_row" or shape.lq > 1:  # else there is no gradient at all
            name = "-".join(map(str, (scheme, variant, *shape[:4])))
            yield pytest.param(scheme, variant, shape, id=name)


@pytest.mark.product
@pytest.mark.parametrize(("scheme", "variant", "shape"), list(cases()))
def test_every_table_and_dtype_equals_the_oracle(scheme, variant, shape):
    # queries that see one key within their table, or at all, learn nothing of it
    zero = {
        ("music", "zero_beyond", 5): ["rel_key"],
        ("music", "zero_beyond", 1): ["rel_key"],
        ("bias", "decay", 1): ["log_decay"],
    }
    problem = make(scheme, variant, shape)
    check_everywhere(problem, zero=zero.get((scheme, variant, shape.lk), []))


@pytest.mark.sanitized
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("shape", LONG, ids=str)
def test_long_sequences_and_wide_columns(scheme, shape):
    variant = ("causal", "both", "window", "labels")[LONG.index(shape)]
    check_everywhere(make(scheme, variant, shape))


def large_logits(rng, inputs):
    inputs["query"] *= 4
    inputs["key"] *= 4


def one_dominant_key(rng, inputs):
    inputs["key"][..., 7, :] = 6 * inputs["query"][..., 3, :]


def equal_logits(rng, inputs):
    inputs["key"][...] = inputs["key"][..., :1, :]
    inputs["rel_bias"][...] = 0.25
    for name in ("rel_key", "rel_query"):
        inputs[name][...] = 0.0


def tiny_and_huge_values(rng, inputs):
    sizes = 10.0 ** rng.integers(-20, 15, inputs["value"].shape[-2])
    inputs["value"] *= np.float32(sizes)[:, None]


def signed_zeros(rng, inputs):
    for name in ("query", "value", "rel_key"):
        inputs[name][..., ::2] = -0.0


def finite_fill(rng, inputs):
    """Rows of one huge finite number are uniform: no pair is hidden."""
    mask = np.zeros((40, 60))
    mask[3:9] = np.finfo(np.float32).min
    mask[20, 5:] = -1e9
    inputs["attn_mask"] = mask


FAMILIES = (
    large_logits,
    one_dominant_key,
    equal_logits,
    tiny_and_huge_values,
    signed_zeros,
    finite_fill,
)


@pytest.mark.parametrize("family", FAMILIES)
def test_input_families(family):
    problem = make("everything", "both", Shape(40, 60, 16, 12, 2, (2,)))
    family(np.random.default_rng(4), problem.inputs)
    name = "gradient_large_logits" if family is large_logits else "gradient"
    # v meets a table of zeros
    zero = ["pos_bias_v"] if family is equal_logits else []
    check_everywhere(problem, name, zero)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_layout_of_inputs_and_incoming_gradients(isa, layout, dtype):
    """Same bits as from contiguous arrays."""
    problem = make("everything", "float_mask", Shape(20, 40, 8, 6, 2, (2,))).cast(dtype)
    want = problem.gradients()
    change = LAYOUTS[layout]
    laid = problem._replace(
        inputs={name: change(x) for name, x in problem.inputs.items()},
        grad_out=change(problem.grad_out),
        grad_lse=change(problem.grad_lse),
    )
    assert_same_bits(laid.gradients(), want)


def test_incoming_gradients_with_stride_zero(isa):
    problem = make("shaw", "causal", Shape(20, 20, 8, 6, 2, (2,)))
    row = problem.grad_out[..., :1, :]
    spread = np.broadcast_to(row, problem.grad_out.shape)
    want = problem._replace(grad_out=spread.copy()).gradients()
    assert_same_bits(problem._replace(grad_out=spread).gradients(), want)


def test_heads_last_views(isa):
    """(B, L, H, D) storage, as most models have it."""
    problem = make("music", "causal", Shape(33, 33, 16, 16, 2, (2,)))
    want = problem.gradients()
    inputs = problem.inputs | {
        name: heads_inside(problem.inputs[name]) for name in ("query", "key", "value")
    }
    laid = problem._replace(inputs=inputs, grad_out=heads_inside(problem.grad_out))
    assert_same_bits(laid.gradients(), want)


@pytest.mark.parametrize("which", ["grad_out", "grad_lse"])
def test_one_incoming_gradient_alone(isa, which):
    problem = make("everything", "both", Shape(9, 9, 4, 3, 2, (2,)))
    other = "grad_lse" if which == "grad_out" else "grad_out"
    alone = problem._replace(**{other: np.zeros_like(getattr(problem, other))})
    context = problem.forward(return_context=True).context
    got = context.backward(**{"grad_out": None} | {which: getattr(problem, which)})
    for name, truth in alone.truth().items():
        gradient = getattr(got, name)
        size = np.linalg.norm(truth)
        if size:
            assert np.linalg.norm(gradient - truth) <= 1e-13 * size, name
        else:
            assert not gradient.any(), name
