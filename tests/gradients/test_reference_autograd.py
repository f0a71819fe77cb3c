"""The definitions on tensors: results, first and second derivatives by autograd."""

from __future__ import annotations

import numpy as np
import pytest
from gradient_problems import (
    SCHEMES,
    VARIANTS,
    Problem,
    Shape,
    assert_gradients_close,
    make,
)
from problems import normal
from tolerances import TOLERANCES, normwise

from relpos import reference

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

SHAPE = Shape(4, 5, 3, 2, 2, (2,))
STEP = 1e-3  # of five-point differences, whose error is its fourth power


def tensors(inputs):
    """Each array as a tensor that requires a gradient."""
    return {name: torch.tensor(x, requires_grad=True) for name, x in inputs.items()}


def numbers(gradients):
    return {name: x.detach().numpy() for name, x in gradients.items()}


def autograd(total, inputs, **options):
    found = torch.autograd.grad(total, [*inputs.values()], **options)
    return dict(zip(inputs, found, strict=True))


# ---- attention: every operand, scheme and setting ----------------------------------


def problem_of(scheme, variant):
    """A problem in which some biases and the sink of a head are -inf."""
    problem = make(scheme, variant, SHAPE)
    if "rel_bias" in problem.inputs:
        problem.inputs["rel_bias"].flat[::5] = -np.inf
    if "sinks" in problem.inputs:
        problem.inputs["sinks"][0] = -np.inf
    return problem


def weighted_sum(problem, inputs):
    """Σ grad_out·out + Σ grad_lse·lse of tensors, rows without a key left out."""
    result = reference.attention(**inputs, **problem.settings, return_lse=True)
    lse = result.lse.masked_fill(torch.isinf(result.lse), 0.0)
    out_and_lse = torch.tensor(problem.grad_out), torch.tensor(problem.grad_lse)
    return sum(
        (g * x).sum() for g, x in zip(out_and_lse, (result.out, lse), strict=True)
    )


def written(problem, inputs):
    """The gradients of `reference.attention_backward`, by name."""
    given = {"grad_out": problem.grad_out, "grad_lse": problem.grad_lse}
    found = reference.attention_backward(**inputs, **problem.settings, **given)
    return {name: x for name, x in found._asdict().items() if x is not None}


each_problem = pytest.mark.parametrize(
    ("scheme", "variant"), [(s, v) for s in SCHEMES for v in VARIANTS]
)


@each_problem
def test_outputs_are_those_of_arrays(scheme, variant):
    problem = problem_of(scheme, variant)
    options = {**problem.settings, "return_lse": True, "return_weights": True}
    got = reference.attention(**tensors(problem.inputs), **options)
    want = reference.attention(**problem.inputs, **options)
    for tensor, array in zip(got, want, strict=True):
        seen = np.isfinite(array)
        assert np.array_equal(tensor.detach().numpy()[~seen], array[~seen])
        error = normwise(tensor.detach().numpy()[seen], array[seen])
        assert error <= TOLERANCES["forward"].float64


@each_problem
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # -inf less -inf
def test_first_derivatives_are_the_written_ones_and_the_kernels(scheme, variant):
    problem = problem_of(scheme, variant)
    inputs = tensors(problem.inputs)
    got = numbers(autograd(weighted_sum(problem, inputs), inputs))
    for want in (written(problem, problem.inputs), problem.gradients()):
        assert_gradients_close(got, want, lambda: problem.truth(magnitude=True))


@each_problem
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_second_derivatives_are_differences_of_the_written_first(scheme, variant):
    problem, rng = problem_of(scheme, variant), np.random.default_rng(3)
    to, along = (
        {name: rng.uniform(-1, 1, x.shape) for name, x in problem.inputs.items()}
        for _ in range(2)
    )

    def slope(steps):
        moved = {n: x + steps * STEP * along[n] for n, x in problem.inputs.items()}
        found = written(problem, moved)
        return sum(np.vdot(to[name], x) for name, x in found.items())

    want = (8 * (slope(1) - slope(-1)) - (slope(2) - slope(-2))) / (12 * STEP)
    inputs = tensors(problem.inputs)
    first = autograd(weighted_sum(problem, inputs), inputs, create_graph=True)
    total = sum((torch.tensor(to[name]) * x).sum() for name, x in first.items())
    second = numbers(autograd(total, inputs, materialize_grads=True))
    assert all(np.isfinite(x).all() for x in second.values())
    got = sum(np.vdot(along[name], x) for name, x in second.items())
    assert abs(got - want) <= 1e-7 * max(abs(want), 1.0)


def test_hidden_keys_queries_and_rows_of_tables_may_be_nan():
    """Hidden by a mask, by a bias and by both sides of a causal call."""
    rng = np.random.default_rng(4)
    mask = np.ones((5, 5), bool)
    mask[:, 2] = mask[3] = False
    inputs = {**QKV, "rel_key": normal(rng, 9, 4), "rel_query": normal(rng, 9, 4)}
    inputs |= {"position_query": normal(rng, 2, 5, 4), "rel_value": normal(rng, 9, 4)}
    problem = Problem(inputs, {"attn_mask": mask, "is_causal": True}, V, Q[..., 0])
    want = written(problem, inputs)
    spoiled = {name: x.copy() for name, x in inputs.items()}
    for name in ("key", "value"):
        spoiled[name][:, 2] = np.nan
    for name in ("query", "position_query"):
        spoiled[name][:, 3] = np.nan
    for name in ("rel_key", "rel_query", "rel_value"):
        spoiled[name][5:] = np.nan
    given = tensors(spoiled)
    first = autograd(weighted_sum(problem, given), given, create_graph=True)
    assert_gradients_close(numbers(first), want)
    total = sum(x.sin().sum() for x in first.values())
    second = autograd(total, given, materialize_grads=True)
    assert all(torch.isfinite(x).all() for x in second.values())


# ---- the other definitions ---------------------------------------------------------

RNG = np.random.default_rng(7)
Q, K, V = normal(RNG, 3, 2, 5, 4)
MASK = np.where(RNG.random((5, 5)) < 0.3, -np.inf, normal(RNG, 5, 5))
MASK[3] = -np.inf  # a row that is hidden
QKV = {"query": Q, "key": K, "value": V}
VECTORS = {"pos_bias_u": normal(RNG, 4), "pos_bias_v": normal(RNG, 2, 4)}
NETWORK = {
    "w1": normal(RNG, 3),
    "b1": np.array([0.1, 0.4, -0.2]),
    "w2": normal(RNG, 2, 3),
    "b2": normal(RNG, 2),
    "c": np.array(0.3),
    "threshold": np.array(1.5),
}
GRAPH = {
    "indptr": [0, 3, 3, 5, 6, 8],
    "indices": [0, 1, 2, 1, 4, 3, 0, 2],
    "labels": [0, -1, 2, 1, 0, -1, 2, 1],
}
OF_DAPE = {
    "bias": normal(RNG, 2, 5, 5),
    "w1": normal(RNG, 3, 4),
    "b1": normal(RNG, 3),
    "w2": normal(RNG, 2, 3),
    "b2": normal(RNG, 2),
}
LSE = np.array([0.3, -np.inf, -np.inf, 1.2])


def table(rows, columns=4):
    return normal(RNG, rows, columns)


def call(name, **keywords):
    """A function, its inputs that have a gradient, and the other arguments."""
    has_gradient = {
        n for n, x in keywords.items() if getattr(x, "dtype", None) == np.float64
    }
    inputs = {n: x for n, x in keywords.items() if n in has_gradient}
    return name, inputs, {n: x for n, x in keywords.items() if n not in has_gradient}


QK = {"query": Q, "key": K}
SHAW, XL = "shaw_attention", "transformer_xl_attention"
CALLS = [
    call("scores", **QK, rel_key=table(5), softcap=0.7),
    call("shaw_scores", **QK, rel_key=table(3)),
    call(SHAW, **QKV, rel_key=table(3), rel_value=table(5), attn_mask=MASK),
    call(SHAW, **QKV, rel_value=table(5), is_causal=True),
    call(f"{SHAW}_split", **QKV, rel_key=table(3), rel_value=table(5), is_causal=True),
    call("skewed_scores", **QK, rel_key=table(3), is_causal=True),
    call("relative_global_attention", **QKV, rel_key=table(5), attn_mask=MASK),
    call("transformer_xl_scores", **QK, rel_key=table(9), **VECTORS),
    call(XL, **QKV, rel_key=table(9), **VECTORS, attn_mask=MASK),
    call(XL, **QKV, rel_key=table(5), **VECTORS, is_causal=True),
    call("graph_attention", **QKV, rel_key=table(3), rel_value=table(3), **GRAPH),
    call(
        "graph_attention",
        **QKV,
        sinks=np.array([0.2, -np.inf]),
        position_query=normal(RNG, 2, 5, 2),
        rel_key=table(3, 2),
        **GRAPH,
        softcap=0.8,
    ),
    call("brute_force_attention", x=table(3), encodings=table(5)),
    call(
        "merge_attention",
        out_a=table(4),
        lse_a=LSE,
        out_b=table(4),
        lse_b=LSE[::-1].copy(),
    ),
    call("fire_bias", **NETWORK, query_length=4, key_length=5),
    call("fire_bias", **NETWORK, query_length=4, query_offset=1, signed=True),
    call("fire_attention", **QKV, **NETWORK, is_causal=True),
    call("alibi_bias", num_heads_or_slopes=normal(RNG, 3), length=4),
    call("t5_bias", weight=table(8, 2), length=6, max_distance=5),
    *(
        call("kerple_bias", r1=RNG.random(2), r2=RNG.random(2) + 0.1, length=4, kind=x)
        for x in ("log", "power")
    ),
    *(
        call("sinusoidal", positions=table(3, 2), inv_freq=RNG.random(3), **settings)
        for settings in ({"dim": 6}, {"dim": 5}, {"dim": 7, "layout": "concat"})
    ),
    call("learned", table=table(6), positions=[[0, 5], [2, 2]]),
    call(
        "conv_encoding",
        x=normal(RNG, 2, 6, 3),
        weight=normal(RNG, 3, 3, 2),
        bias=table(3, 1)[:, 0],
        grid=(2, 3),
        mask=RNG.random((2, 6)) < 0.7,
    ),
    call("conv_encoding", x=table(6), weight=normal(RNG, 4, 3), is_causal=True),
    call("apply_rotary", x=Q, rotary_dim=2, positions=[3, 1, 0, 2, 9]),
    call("apply_rotary", x=Q, inv_freq=RNG.random(2), interleaved=True),
    call(
        "apply_rotary",
        x=Q,
        angles=table(5, 2),
        magnitude=RNG.random((5, 2)),
        inverse=True,
    ),
    call("xpos_magnitude", positions=table(3), dim=6),
    call(
        "mrope_angles",
        positions=normal(RNG, 3, 4),
        inv_freq=RNG.random(3),
        sections=(1, 1, 1),
        interleaved=True,
    ),
    call("axial_angles", coordinates=table(4, 2), inv_freq=RNG.random(3)),
    call("rel_shift", x=table(4, 5)),
    *(
        call(name, x=normal(RNG, 2, 3, 5), is_causal=is_causal)
        for name in ("skew", "unskew")
        for is_causal in (False, True)
    ),
    call("cope_attention", **QKV, rel_key=table(3)),
    call("stick_breaking_attention", **QKV),
    call("path_attention", **QKV, direction=table(5), beta=RNG.random(5)),
    call("dape_attention", **QKV, **OF_DAPE),
    call("selective_rotary", x=Q, increments=table(5, 2), inv_freq=RNG.random(2)),
    call(
        "lie_rotary", x=Q, positions=np.eye(5)[:, :2], generators=normal(RNG, 2, 4, 4)
    ),
]
#: Definitions whose results are integers, or do not depend on a floating argument.
WITHOUT_GRADIENTS = {
    "alibi_slopes",
    "deberta_bucket",
    "dropout_keep",
    "grid_labels",
    "philox4x32",
    "index_encoding",
    "indexer_top_k",
    "normalized_index_encoding",
    "random_encoding",
    "t5_bucket",
    "relative_positions",
    "rotary_frequencies",
    "rotary_from_config",
    "rotary_magnitude",
    "segment_ranges",
    "sinusoidal_shift_matrix",
}
each_call = pytest.mark.parametrize(
    ("name", "inputs", "settings"), CALLS, ids=[each[0] for each in CALLS]
)


def test_every_definition_is_called():
    functions = {
        name
        for name in reference.__all__
        if not name.endswith("_backward")
        and not isinstance(getattr(reference, name), type)
    }
    called = {"attention", *(name for name, _, _ in CALLS)}
    assert functions == called | WITHOUT_GRADIENTS and not called & WITHOUT_GRADIENTS


def results(name, inputs, settings):
    """All results of a definition that are floating arrays."""
    found = getattr(reference, name)(**inputs, **settings)
    return [*found] if isinstance(found, tuple) else [found]


@each_call
def test_other_definitions_have_two_derivatives(name, inputs, settings):
    """Autograd against differences, of random sums of derivatives."""
    given = tensors(inputs)
    arrays = results(name, inputs, settings)
    for tensor, array in zip(results(name, given, settings), arrays, strict=True):
        assert np.allclose(tensor.detach().numpy(), array, 1e-13, 1e-13)

    def run(*arrays):
        found = results(name, dict(zip(inputs, arrays, strict=True)), settings)
        return tuple(torch.where(torch.isinf(x), 0.0, x) for x in found)

    assert torch.autograd.gradcheck(run, [*given.values()], fast_mode=True)
    assert torch.autograd.gradgradcheck(run, [*given.values()], fast_mode=True)


#: The written gradients of definitions, of an incoming gradient and a call of CALLS.
WRITTEN = {
    "alibi_bias": lambda g, *_: [reference.alibi_bias_backward(g)],
    "apply_rotary": lambda g, inputs, settings: [
        getattr(reference.apply_rotary_backward(g, **inputs, **settings), name)
        for name in inputs
        if name != "magnitude"
    ],
    "conv_encoding": lambda g, inputs, settings: reference.conv_encoding_backward(
        g, **inputs, **settings
    )[: len(inputs)],
    "fire_bias": lambda g, inputs, settings: [
        reference.fire_bias_backward(g, **inputs, **of_fire(settings))[name]
        for name in inputs
    ],
    "kerple_bias": lambda g, inputs, settings: reference.kerple_bias_backward(
        g, **inputs, kind=settings["kind"]
    ),
    "learned": lambda g, inputs, settings: [
        reference.learned_backward(g, settings["positions"], len(inputs["table"]))
    ],
    "skew": lambda g, inputs, settings: [reference.unskew(g, **settings)],
    "t5_bias": lambda g, inputs, settings: [
        reference.t5_bias_backward(g, len(inputs["weight"]), max_distance=5)
    ],
}
#: At distance 0 the units of FIRE are where they switch: relu's derivative is 0 there.
SWITCHING = call("fire_bias", **NETWORK | {"b1": np.zeros(3)}, query_length=4)


def of_fire(settings):
    return {n: x for n, x in settings.items() if not n.endswith("length")}


@pytest.mark.parametrize(
    ("name", "inputs", "settings"),
    [each for each in [*CALLS, SWITCHING] if each[0] in WRITTEN],
)
def test_first_derivatives_are_the_written_ones(name, inputs, settings):
    given = tensors(inputs)
    out = getattr(reference, name)(**given, **settings)
    grad_out = normal(np.random.default_rng(5), *out.shape)
    found = numbers(autograd(out, given, grad_outputs=torch.tensor(grad_out)))
    found.pop("magnitude", None)
    wanted = WRITTEN[name](grad_out, inputs, settings)
    for got, want in zip(found.values(), wanted, strict=True):  # sums may cancel
        assert normwise(got, want, 1.0) <= TOLERANCES["gradient"].float64


# ---- tensors and arrays ------------------------------------------------------------


def test_one_tensor_is_enough():
    """The other arguments may be arrays."""
    rel_bias = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    out = reference.attention(Q, K, V, MASK, rel_bias=rel_bias)
    grad_out = np.ones_like(V)
    want = reference.attention_backward(grad_out, Q, K, V, MASK, rel_bias=[0, 0, 0])
    (got,) = torch.autograd.grad(out.sum(), [rel_bias])
    assert normwise(got.numpy(), want.rel_bias, 1.0) <= TOLERANCES["gradient"].float64


def test_float32_is_taken_to_float64():
    tokens = {name: torch.tensor(x, dtype=torch.float32) for name, x in QKV.items()}
    out = reference.attention(**tokens)
    assert out.dtype == torch.float64
    error = normwise(out.numpy(), reference.attention(**QKV))
    assert error <= TOLERANCES["forward"].float64


def test_there_may_be_no_keys():
    tokens = tensors({**QKV, "key": K[:, :0], "value": V[:, :0]})
    options = {"query_offset": 0, "sinks": torch.zeros(2), "return_lse": True}
    result = reference.attention(**tokens, **options)
    assert not result.out.any() and not result.lse.any()
    del options["sinks"]
    assert torch.isneginf(reference.attention(**tokens, **options).lse).all()


def test_arrays_do_not_import_torch(child):
    child(
        "import sys\n"
        "from relpos import reference\n"
        "reference.attention([[[1.0]]], [[[1.0]]], [[[1.0]]], rel_bias=[0.5])\n"
        "assert 'torch' not in sys.modules"
    )
