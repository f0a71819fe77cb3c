"""The same numbers, bit for bit: any memory layout, thread count, slice or order."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import LAYOUTS, heads_inside
from problems import DTYPES, PATHS, cast, normal, qkv, run, terms, tokens
from tolerances import assert_bitwise, assert_results_bitwise, assert_results_close

import relpos

pytestmark = pytest.mark.usefixtures("strict_floats")
both_paths = pytest.mark.parametrize(("lq", "lk"), PATHS)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


EVERY_LAYOUT = LAYOUTS | {"heads_inside": heads_inside}


def problem(lq, lk, dtype, *, labels=None, mask_dtype=None, batch=(2,)):
    """All operands of attention by name, each with every axis it can have."""
    rng = np.random.default_rng([lq, lk])
    operands = tokens(rng, batch, 2, lq, lk, 16, 32)
    operands |= terms(rng, "everything", 2, lq, lk, 16, 32, offset=3)
    for name in ("rel_key", "rel_query", "rel_value"):
        operands[name] = normal(rng, *batch, 2, *operands[name].shape[-2:])
    operands["rel_bias"] = normal(rng, *batch, *operands["rel_bias"].shape)
    operands["attn_mask"] = np.where(
        rng.random((*batch, 2, lq, lk)) < 0.8, 0.5, -np.inf
    )
    operands = cast(operands, dtype)
    mask_dtype = dtype if mask_dtype is None else mask_dtype
    operands["attn_mask"] = operands["attn_mask"].astype(mask_dtype)
    if mask_dtype == "bool":
        operands["attn_mask"] = rng.random((*batch, 2, lq, lk)) < 0.8
    operands["key_lengths"] = np.broadcast_to([lk, lk - 3], batch).copy()
    if labels:
        rows = operands["rel_key"].shape[-2]
        operands["labels"] = rng.integers(-1, rows, (*batch, lq, lk)).astype(labels)
    return operands


def relaid(arguments, layout):
    return {
        name: layout(x) if isinstance(x, np.ndarray) and x.ndim else x
        for name, x in arguments.items()
    }


@both_dtypes
@both_paths
@pytest.mark.parametrize("layout", EVERY_LAYOUT)
def test_layouts_of_all_operands(isa, dtype, lq, lk, layout):
    given = problem(lq, lk, dtype)
    got = run(**relaid(given, EVERY_LAYOUT[layout]))
    assert_results_bitwise(got, run(**given))


@both_paths
@pytest.mark.parametrize("layout", EVERY_LAYOUT)
@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
def test_layouts_of_labels_and_other_masks(isa, lq, lk, layout, kind):
    for mask_dtype in ("bool", "float32", "float64"):
        given = problem(lq, lk, "float32", labels=kind, mask_dtype=mask_dtype)
        got = run(**relaid(given, EVERY_LAYOUT[layout]))
        assert_results_bitwise(got, run(**given))


@both_dtypes
@both_paths
@pytest.mark.parametrize("axis", [-1, -2, -3, -4])
def test_zero_strides(isa, dtype, lq, lk, axis):
    """Each operand broadcast along one of its axes, against the same written out."""
    given = problem(lq, lk, dtype)
    for name, x in given.items():
        if not isinstance(x, np.ndarray) or x.ndim < -axis:
            continue
        view = np.broadcast_to(x.take([0], axis), x.shape)
        assert view.strides[axis] == 0
        want = run(**given | {name: view.copy()})
        assert_results_bitwise(run(**given | {name: view}), want)


# Two batch axes: each shared by its items, backwards, or exchanged in memory.
BATCHES = {
    "plain": lambda x: x,
    "first shared": lambda x: np.broadcast_to(x[:1], x.shape),
    "second shared": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "both shared": lambda x: np.broadcast_to(x[:1, :1], x.shape),
    "first backwards": lambda x: x[::-1],
    "second backwards": lambda x: x[:, ::-1],
    "exchanged": lambda x: np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1),
}


@pytest.mark.parametrize("length", [3, 20])
@pytest.mark.parametrize("of_key", BATCHES)
def test_items_as_far_apart_as_those_of_another_operand(isa, length, of_key):
    """All of one shape: items of some lie equally far apart along some of the axes."""
    rng = np.random.default_rng(length)
    q, k, v = (x.astype("float32") for x in qkv(rng, (2, 3), 2, length, length, 16))

    def all_results(*arrays):
        result = run(*arrays, return_context=True)
        grads = result.context.backward(arrays[0])
        return *result[:3], grads.query, grads.key, grads.value

    for of_value in BATCHES.values():
        laid = BATCHES[of_key](k), of_value(v)
        copies = all_results(q, *(x.copy() for x in laid))
        for got, want in zip(all_results(q, *laid), copies, strict=True):
            assert_bitwise(got, want)


@both_paths
@pytest.mark.parametrize("dtype", ["float16", *DTYPES])
@pytest.mark.parametrize("layout", EVERY_LAYOUT)
def test_layouts_of_out(isa, dtype, lq, lk, layout):
    if layout == "swapped":
        pytest.skip("out has to be of the native byte order")
    with np.errstate(under="ignore"):
        given = problem(lq, lk, dtype)
    want = run(**given)
    out = EVERY_LAYOUT[layout](np.full_like(want.out, np.nan))
    got = run(**given, out=out)
    assert got.out is out
    assert_results_bitwise(got, want)


@both_dtypes
@pytest.mark.parametrize(("lq", "lk"), [*PATHS, (130, 700), (1, 3000)])
@pytest.mark.parametrize("labels", [None, "int16"])
def test_threads(isa, dtype, lq, lk, labels):
    given = problem(lq, lk, dtype, labels=labels, batch=(3, 2))
    want = run(**given, num_threads=1, dropout_p=0.2, rng=1)
    for threads in (2, 5):
        got = run(**given, num_threads=threads, dropout_p=0.2, rng=1)
        assert_results_bitwise(got, want)


@both_dtypes
@both_paths
def test_items_and_heads_alone_and_permuted(isa, dtype, lq, lk):
    """No item or head depends on the others, or on its index."""
    given = problem(lq, lk, dtype, batch=(2, 2))
    given |= {"query_offset": np.array([[3, 0], [7, -2]])}
    want = run(**given)
    for vector in ("pos_bias_u", "pos_bias_v"):
        given[vector] = np.broadcast_to(given[vector], (2, 16))

    def pick(batch, heads):
        index = {"query_offset": batch, "key_lengths": batch}
        index |= {"pos_bias_u": heads, "pos_bias_v": heads}
        both = (*batch, heads)
        return run(**{n: np.asarray(x)[index.get(n, both)] for n, x in given.items()})

    everything = slice(None)
    got = pick((everything, everything), slice(None, None, -1))
    assert_results_bitwise(got, type(want)(*(x[:, :, ::-1] for x in want[:3]), None))
    got = pick((slice(None, None, -1), slice(None, None, -1)), everything)
    assert_results_bitwise(got, type(want)(*(x[::-1, ::-1] for x in want[:3]), None))
    for b in np.ndindex(2, 2):
        for h in range(2):
            got = pick(b, slice(h, h + 1))
            alone = (x[b][h : h + 1] for x in want[:3])
            assert_results_bitwise(got, type(want)(*alone, None))


@both_dtypes
@pytest.mark.parametrize("extra", [1, 31, 300])
def test_hidden_keys_at_the_end(isa, dtype, extra):
    """Bitwise in tiles; a decode step cuts its keys by their number."""
    for lq, lk in PATHS:
        rng = np.random.default_rng(4)
        q, k, v = (x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk + extra, 16))
        keywords = cast(terms(rng, "shaw", 2, lq, lk, 16), dtype)
        want = run(q, k[..., :lk, :], v[..., :lk, :], **keywords)
        longer = run(q, k, v, key_lengths=lk, **keywords)
        assert not longer.weights[..., lk:].any()
        got = type(longer)(longer.out, longer.lse, longer.weights[..., :lk], None)
        if lq > 8:
            assert_results_bitwise(got, want)
        else:
            assert_results_close(got, want, "same_formula")


@both_dtypes
@both_paths
def test_what_is_returned_changes_nothing(isa, dtype, lq, lk):
    """Asking for weights or lse takes no other path through the numbers."""
    given = problem(lq, lk, dtype)
    want = run(**given)
    assert_bitwise(relpos.attention(**given), want.out)
    got = relpos.attention(**given, return_lse=True)
    assert_bitwise(got.out, want.out)
    assert_bitwise(got.lse, want.lse)
