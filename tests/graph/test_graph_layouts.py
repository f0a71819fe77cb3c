"""Graph attention in any layout, dtype and number of threads, and its memory."""

from __future__ import annotations

import sys

import numpy as np
import oracle_graph
import pytest
from graph_problems import (
    BOTH,
    both_dtypes,
    problem,
    run,
    with_gradients,
)
from layouts import LAYOUTS
from oracle_graph import Edge, compressed
from problems import cast, normal, qkv
from tolerances import assert_bitwise, assert_close

import relpos

# ---- layouts, threads, dtypes, memory -----------------------------------------------


@both_dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_gives_the_same_bits(isa, dtype, layout):
    inputs, edges = problem("both per item", d=18, dv=20)
    inputs = cast(inputs, dtype)
    want = run(inputs, edges, **BOTH)
    laid = {name: LAYOUTS[layout](x) for name, x in inputs.items()}
    got = run(laid, edges, **BOTH)
    assert_bitwise(got.out, want.out)
    gradients, truth = with_gradients(got)[0], with_gradients(want)[0]
    for name, gradient in truth.items():
        assert_bitwise(gradients[name], gradient)
    graph = [LAYOUTS[layout](x) for x in compressed(edges, 9)]
    arrays = [inputs.pop(name) for name in ("query", "key", "value")]
    assert_bitwise(relpos.graph_attention(*arrays, *graph, **inputs), want.out)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, ">i8", list])
def test_any_integers(kind):
    inputs, edges = problem("none")
    graph = compressed(edges, 9)[:2]
    made = [x.tolist() if kind is list else x.astype(kind) for x in graph]
    assert_bitwise(
        relpos.graph_attention(**inputs, indptr=made[0], indices=made[1]),
        run(inputs, edges),
    )


def test_the_graph_is_copied(isa):
    inputs, edges = problem("both")
    graph = compressed(edges, 9)
    arrays = [inputs.pop(name) for name in ("query", "key", "value")]
    result = relpos.graph_attention(*arrays, *graph, **inputs, **BOTH)
    want = with_gradients(result)[0]
    for array in graph:
        array[...] = 2**62
    for name, gradient in with_gradients(result)[0].items():
        assert_bitwise(gradient, want[name])


@both_dtypes
@pytest.mark.sanitized
def test_any_number_of_threads_gives_the_same_bits(isa, dtype):
    inputs, edges = problem("both", lq=120, lk=90, d=24, dv=16)
    edges += [Edge(i, 5, 0) for i in range(120) for _ in range(30)]  # a hub
    inputs = cast(inputs, dtype)
    results = [run(inputs, edges, num_threads=n, **BOTH) for n in (1, 2, 3, 5)]
    grad_out, grad_lse = np.ones_like(results[0].out), np.ones_like(results[0].lse)
    gradients = [
        r.context.backward(grad_out, grad_lse=grad_lse, num_threads=n)
        for n, r in enumerate(results, 1)
    ]
    for got, found in zip(results[1:], gradients[1:], strict=True):
        assert_bitwise(got.out, results[0].out)
        assert_bitwise(got.lse, results[0].lse)
        for a, b in zip(found, gradients[0], strict=True):
            assert (a is None and b is None) or (assert_bitwise(a, b) is None)


def test_batch_axes_broadcast(isa):
    inputs, edges = problem("both per item")
    inputs["query"] = inputs["query"][:1]
    inputs["value"] = inputs["value"][0]
    want, _ = oracle_graph.attention(edges=edges, **inputs)
    got = run(inputs, edges, **BOTH)
    assert_close(got.out, want, "forward")
    gradients, (grad_out, grad_lse) = with_gradients(got)
    truth = oracle_graph.gradients(grad_out, grad_lse, edges, **inputs)
    for name, gradient in gradients.items():
        assert gradient.shape == inputs[name].shape
        assert_close(gradient, truth[name], "gradient")


def test_float16_is_computed_in_float32():
    inputs, edges = problem("both")
    half = cast(inputs, "float16")
    got = run(half, edges, **BOTH)
    want = run(cast(half, "float32"), edges, **BOTH)
    assert got.out.dtype == np.float16 and got.lse.dtype == np.float32
    assert_bitwise(got.out, want.out.astype(np.float16))
    grad_out = np.ones(want.out.shape, np.float32)
    for a, b in zip(
        got.context.backward(grad_out), want.context.backward(grad_out), strict=True
    ):
        assert a is b is None or np.array_equal(a, b.astype(np.float16))


def test_scale_and_wrt():
    inputs, edges = problem("both")
    want, _ = oracle_graph.attention(edges=edges, scale=-0.3, **inputs)
    got = run(inputs, edges, scale=-0.3, **BOTH)
    assert_close(got.out, want, "forward")
    every = with_gradients(got)[0]
    ones = np.ones(got.out.shape)
    whole = got.context.backward(ones)
    for names in (["rel_key"], ["value"], ["query", "rel_value"], []):
        some = got.context.backward(ones, wrt=names)
        assert {n for n, x in some._asdict().items() if x is not None} == set(names)
        for name in names:
            assert_bitwise(getattr(some, name), getattr(whole, name))
    assert set(every) == set(inputs)


def test_one_incoming_gradient_alone(isa):
    inputs, edges = problem("both")
    got = run(inputs, edges, **BOTH)
    zeros = np.zeros(got.out.shape), np.zeros(got.lse.shape)
    given = normal(np.random.default_rng(6), *got.lse.shape)
    found = got.context.backward(None, grad_lse=given)._asdict()
    truth = oracle_graph.gradients(zeros[0], given, edges, **inputs)
    for name, want in truth.items():
        assert_close(found[name], want, "gradient")


EMPTY = {
    "no batch items": ((0,), 2, 3, 4, 5, 6),
    "no heads": ((2,), 0, 3, 4, 5, 6),
    "no queries": ((2,), 2, 0, 4, 5, 6),
    "no keys": ((2,), 2, 3, 0, 5, 6),
    "no columns": ((2,), 2, 3, 4, 0, 6),
    "no value columns": ((2,), 2, 3, 4, 5, 0),
}


@pytest.mark.parametrize("name", EMPTY)
def test_problems_of_size_0(isa, name):
    batch, heads, lq, lk, d, dv = EMPTY[name]
    rng = np.random.default_rng(7)
    arrays = qkv(rng, batch, heads, lq, lk, d, dv)
    edges = [Edge(i, j, (i + j) % 3) for i in range(lq) for j in range(lk)]
    tables = {"rel_key": normal(rng, 3, d), "rel_value": normal(rng, 3, dv)}
    result = relpos.graph_attention(
        *arrays, *compressed(edges, lq), **tables, scale=0.5, **BOTH
    )
    assert result.out.shape == (*batch, heads, lq, dv)
    gradients, _ = with_gradients(result)
    inputs = dict(zip(("query", "key", "value"), arrays, strict=True)) | tables
    assert {n: x.shape for n, x in gradients.items()} == {
        n: x.shape for n, x in inputs.items()
    }
    assert all(np.isfinite(x).all() for x in gradients.values())


MEASURE = """
import numpy as np
import relpos
from relpos._catalogue.measure import forget_peak, resident

rng = np.random.default_rng(0)
L, degree = 40_000, 8

def call(length):
    q, k, v, grad = (rng.standard_normal((2, length, 32), np.float32) for _ in range(4))
    table = rng.standard_normal((5, 32), np.float32)
    indptr = np.arange(length + 1) * degree
    indices = rng.integers(0, length, length * degree)
    labels = rng.integers(0, 5, indices.size)
    forget_peak()
    before = resident("VmRSS")
    result = relpos.graph_attention(
        q, k, v, indptr, indices, labels, table, table, return_context=True)
    kept = [x for x in result.context.backward(grad) if x is not None]
    return resident("VmHWM") - before, sum(x.nbytes for x in [result.out, *kept])

call(64)
extra, kept = call(L)
print(extra - kept)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_memory_is_that_of_the_edges(child):
    """320,000 edges of 40,000 queries; the dense form has 6.4 GB of scores per head."""
    extra = int(child(MEASURE).stdout)
    assert extra < 320_000 * 200, f"{extra / 320_000:.0f} bytes per edge"
