"""Rules that hold for every operand of `attention`, in both engines: a test for each.

A new operand is in `OPERANDS` by its letters; what it computes has a file of its own.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from gradient_problems import Problem, assert_gradients_close
from layouts import LAYOUTS
from operand_arrays import FLOATING, has_items, shape_of
from problems import DTYPES, normal
from tolerances import assert_bitwise, assert_results_close

import relpos
from relpos._attention import operands

pytestmark = pytest.mark.usefixtures("strict_floats")

B, H, D, DV, DP = 2, 2, 6, 5, 3
#: Lq and Lk: few queries go by rows, the others by tiles.
ENGINES = {"rows": (3, 700), "tiles": (70, 90)}
HIDDEN = 5  # keys at the end
TOKENS = ("query", "key", "value")


def with_run(labels):
    """Give equal labels to neighbours, as a grid has them: to two whole vectors."""
    labels[..., 10:50] = labels[..., 10:11]
    return labels


def drawn(name):
    """Return what draws an operand of any finite numbers by its letters."""

    def draw(rng, lq, lk):
        lengths = {"H": H, "q": lq, "k": lk, "t": lk, "D": D, "V": DV, "P": D}
        return {name: normal(rng, *shape_of(name, lengths, 2 * lk - 1, (B,)))}

    return draw


#: Operand -> (rng, lq, lk) to its keywords, in float64. Those whose numbers have to be
#: such, or that go with others, are drawn here.
OPERANDS = {name: drawn(name) for name in FLOATING if name not in TOKENS} | {
    "pos_bias_v": lambda rng, lq, lk: {
        "pos_bias_v": normal(rng, H, D),
        "rel_key": normal(rng, 9, D),
    },
    "position_query": lambda rng, lq, lk: {
        "position_query": normal(rng, B, H, lq, DP),
        "rel_key": normal(rng, H, 2 * lk - 1, DP),
    },
    "log_decay": lambda rng, lq, lk: {"log_decay": -np.abs(normal(rng, B, H, lk))},
    "labels": lambda rng, lq, lk: {
        "labels": with_run(rng.integers(-1, 4, (B, lq, lk))),
        "rel_key": normal(rng, 4, D),
        "rel_value": normal(rng, 4, DV),
    },
    "key_ranges": lambda rng, lq, lk: {
        "key_ranges": np.sort(rng.integers(0, lk, (B, lq, 2)))
    },
    "key_blocks": lambda rng, lq, lk: {
        "key_blocks": rng.random((B, H, -(-lq // 4), -(-lk // 16))) < 0.6,
        "block_size": (4, 16),
    },
    "query_offset": lambda rng, lq, lk: {
        "query_offset": np.array([lk - lq, 7]),
        "rel_key": normal(rng, 9, D),
    },
    "key_lengths": lambda rng, lq, lk: {
        "key_lengths": np.array([lk - HIDDEN, lk // 2])
    },
    "softcap": lambda rng, lq, lk: {"softcap": 0.7},
    "dropout_p": lambda rng, lq, lk: {"dropout_p": 0.3, "rng": 5},
}
every_case = pytest.mark.parametrize("engine", ENGINES)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_operand = pytest.mark.parametrize("name", OPERANDS)
PER_ITEM = [name for name in operands.OPERANDS if has_items(name)]


@functools.cache
def problem(name, engine):
    """A causal call with the operand, its last keys hidden from all."""
    lq, lk = ENGINES[engine]
    rng = np.random.default_rng([lq, lk])
    inputs = {
        "query": normal(rng, B, H, lq, D),
        "key": normal(rng, B, H, lk, D),
        "value": normal(rng, B, H, lk, DV),
    }
    settings = {"is_causal": True, "key_lengths": lk - HIDDEN, "query_offset": lk - lq}
    for key, value in OPERANDS[name](rng, lq, lk).items():
        if getattr(value, "dtype", np.dtype(int)).kind == "f":
            inputs[key] = value
        else:
            settings[key] = value
    return Problem.drawn(rng, inputs, settings)


def results(call, threads=None, wrt=None):
    """Everything that a call returns, by name."""
    result = call.forward(return_lse=True, return_weights=True, num_threads=threads)
    named = {"out": result.out, "lse": result.lse, "weights": result.weights}
    return named | call.gradients(num_threads=threads, wrt=wrt)


def assert_same(got, want, names=None):
    for name in names or want:
        assert_bitwise(got[name], want[name])


def test_every_operand_is_here():
    assert {*operands.OPERANDS} - {*TOKENS} == {*OPERANDS} - {"softcap", "dropout_p"}


@every_operand
@every_case
@every_dtype
def test_threads_change_no_bit(isa, name, engine, dtype):
    call = problem(name, engine).cast(dtype)
    want = results(call, threads=1)
    for threads in (2, 5):
        assert_same(results(call, threads), want)


@every_operand
@every_case
@every_dtype
def test_an_item_alone_has_the_same_bits(isa, name, engine, dtype):
    call = problem(name, engine).cast(dtype)
    if "dropout_p" in call.settings:
        pytest.skip("which pairs are dropped depends on the item's place")
    names = [n for n in call.inputs if n in PER_ITEM]
    want = results(call, wrt=names)

    def part(arrays, item):
        own = {n: x for n, x in arrays.items() if n in PER_ITEM and np.ndim(x)}
        return arrays | {n: x[item] for n, x in own.items()}

    for item in range(B):
        alone = Problem(
            part(call.inputs, item),
            part(call.settings, item),
            call.grad_out[item],
            call.grad_lse[item],
        )
        assert_same(results(alone, wrt=names), {n: x[item] for n, x in want.items()})


@every_operand
@every_case
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(isa, name, engine, layout):
    call = problem(name, engine)
    given = call.inputs | call.settings
    if np.ndim(given[name]) == 0:
        pytest.skip("a number has no layout")
    laid = {name: LAYOUTS[layout](given[name])}
    kind = "inputs" if name in call.inputs else "settings"
    changed = call._replace(**{kind: getattr(call, kind) | laid})
    assert_same(results(changed), results(call))


@every_operand
@every_case
def test_float16_is_computed_in_float32(isa, name, engine):
    with np.errstate(under="ignore"):
        half = problem(name, engine).cast("float16")
    got, wide = results(half), results(half.cast("float32"))
    with np.errstate(under="ignore"):
        for key, x in wide.items():
            kind = np.float32 if key in ("lse", "weights") else np.float16
            assert_bitwise(got[key], x.astype(kind))


@every_operand
@every_case
@every_dtype
def test_hidden_keys_may_be_nan(isa, name, engine, dtype):
    call = problem(name, engine).cast(dtype)
    want = results(call)
    poisoned = {n: call.inputs[n].copy() for n in ("key", "value")}
    for array in poisoned.values():
        array[..., -HIDDEN:, :] = np.nan
    assert_same(results(call._replace(inputs=call.inputs | poisoned)), want)


@every_operand
@every_case
@every_dtype
def test_each_gradient_alone_has_the_same_bits(isa, name, engine, dtype):
    call = problem(name, engine).cast(dtype)
    context = call.forward(return_context=True).context
    grads = {"grad_out": call.grad_out, "grad_lse": call.grad_lse}
    together = context.backward(**grads, wrt=list(call.inputs))
    for wanted in call.inputs:
        alone = context.backward(**grads, wrt=[wanted])._asdict()
        assert_bitwise(alone.pop(wanted), getattr(together, wanted))
        assert not any(x is not None for x in alone.values())


# ---- schemes pass every operand on ---------------------------------------------------

NETWORK = {
    "w1": normal(np.random.default_rng(6), 4),
    "b1": normal(np.random.default_rng(7), 4),
    "w2": normal(np.random.default_rng(8), H, 4),
    "b2": normal(np.random.default_rng(9), H),
    "c": 0.5,
    "threshold": 9.0,
}
WITH_ALL = {"return_lse": True, "return_weights": True, "return_context": True}


@every_operand
@every_case
def test_shaw_passes_it_on(name, engine):
    call = problem(name, engine)
    got = relpos.shaw_attention(**call.inputs, **call.settings, return_lse=True)
    want = call.forward(return_lse=True)
    assert_bitwise(got.out, want.out)
    assert_bitwise(got.lse, want.lse)


@pytest.mark.parametrize("name", [n for n in OPERANDS if n != "attn_mask"])
@every_case
def test_fire_is_a_mask_of_its_bias(name, engine):
    call = problem(name, engine)
    lq, lk = ENGINES[engine]
    bias = relpos.fire_bias(**NETWORK, query_length=lk)
    offsets = np.broadcast_to(call.settings["query_offset"], B)
    mask = np.stack([bias[:, at : at + lq] for at in offsets])
    masked = call._replace(inputs=call.inputs | {"attn_mask": mask})
    got = relpos.fire_attention(**call.inputs, **NETWORK, **call.settings, **WITH_ALL)
    assert_results_close(got, masked.forward(**WITH_ALL), "same_formula")
    found = got.context.backward(call.grad_out, grad_lse=call.grad_lse)._asdict()
    truth = masked.gradients()
    of_bias = np.zeros_like(bias)
    for at, gradient in zip(offsets, truth.pop("attn_mask"), strict=True):
        of_bias[:, at : at + lq] += gradient
    truth["w2"] = relpos.fire_bias_backward(of_bias, **NETWORK).w2
    assert_gradients_close({name: found[name] for name in truth}, truth)


# ---- the same on tensors and on dask arrays ------------------------------------------


@pytest.mark.torch
@every_operand
@every_case
@pytest.mark.parametrize("dtype", ["float16", *DTYPES])
def test_tensors_have_the_same_bits(name, engine, dtype):
    """All gradients together, and each alone, which no other tensor then gets."""
    torch = pytest.importorskip("torch")
    rt = pytest.importorskip("relpos.torch")
    with np.errstate(under="ignore"):
        call = problem(name, engine).cast(dtype)
    want = results(call)
    others = {
        n: torch.from_numpy(x) if isinstance(x, np.ndarray) else x
        for n, x in call.settings.items()
    }
    seeds = [torch.from_numpy(x) for x in (call.grad_out, call.grad_lse)]
    for wanted in ([*call.inputs], *([one] for one in call.inputs)):
        leaves = {n: torch.from_numpy(np.array(x)) for n, x in call.inputs.items()}
        for leaf in wanted:
            leaves[leaf].requires_grad_()
        found = rt.attention(**leaves, **others, return_lse=True, return_weights=True)
        torch.autograd.backward([found.out, found.lse], [seeds[0], seeds[1].float()])
        got = {n: x.detach().numpy() for n, x in found._asdict().items()}
        got |= {n: x.grad.numpy() for n, x in leaves.items() if x.grad is not None}
        assert got.keys() == {"out", "lse", "weights", *wanted}
        assert_same(got, want, got)


@pytest.mark.few(8)
@every_operand
@every_case
@pytest.mark.parametrize("lazy", [False, True])
def test_dask_arrays_have_the_same_bits(name, engine, lazy):
    """In chunks of batch and heads; in blocks of queries and keys to rounding."""
    da = pytest.importorskip("dask.array")
    dask = pytest.importorskip("dask")
    sharded = pytest.importorskip("relpos.sharded")
    call = problem(name, engine)
    want = results(call)
    for blocks in (1, 2):
        given = call.inputs | call.settings
        for token in TOKENS:
            rows = -(-given[token].shape[2] // blocks)
            given[token] = da.from_array(given[token], (1, 1, rows, -1))
        if lazy and np.ndim(given[name]):
            halves = tuple(-(-size // 2) for size in given[name].shape)
            given[name] = da.from_array(given[name], halves)
        found = sharded.attention(
            **given, return_lse=True, return_weights=True, return_context=True
        )
        gradients = found.context.backward(
            call.grad_out, grad_lse=call.grad_lse, wrt=[*call.inputs]
        )
        parts = {"out": found.out, "lse": found.lse, "weights": found.weights}
        parts |= {n: getattr(gradients, n) for n in call.inputs}
        exact = ("out", "lse", *TOKENS) if blocks == 1 else ()
        (computed,) = dask.compute(parts, scheduler="sync")
        for key, got in computed.items():
            np.testing.assert_allclose(got, want[key], rtol=1e-12, atol=1e-12)
            if key in exact:
                assert_bitwise(got, want[key])
