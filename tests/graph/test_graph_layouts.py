"""Graph attention in any layout, dtype and number of threads."""

from __future__ import annotations

import numpy as np
import oracle_graph
import pytest
from graph_problems import (
    BOTH,
    both_dtypes,
    by_query,
    check,
    problem,
    run,
    same_bits,
    with_gradients,
)
from layouts import LAYOUTS
from oracle_graph import Edge, compressed
from problems import EMPTY, cast, normal, tokens
from tolerances import assert_bitwise, assert_close

import relpos


@both_dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_gives_the_same_bits(isa, dtype, layout):
    inputs, edges = problem("both per item", d=18, dv=20)
    inputs = cast(inputs, dtype)
    want = run(inputs, edges, **BOTH)
    laid = {name: LAYOUTS[layout](x) for name, x in inputs.items()}
    same_bits(run(laid, edges, **BOTH), want)
    graph = {name: LAYOUTS[layout](x) for name, x in by_query(edges).items()}
    assert_bitwise(relpos.graph_attention(**inputs, **graph), want.out)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, ">i8", list])
def test_any_integers(kind):
    inputs, edges = problem("none")
    graph = compressed(edges, 9)[:2]
    made = [x.tolist() if kind is list else x.astype(kind) for x in graph]
    assert_bitwise(
        relpos.graph_attention(**inputs, indptr=made[0], indices=made[1]),
        run(inputs, edges),
    )


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
    check(run(inputs, edges, **BOTH), inputs, edges)


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
    got = run(inputs, edges, scale=-0.3, **BOTH)
    check(got, inputs, edges, scale=-0.3)
    ones = np.ones(got.out.shape)
    whole = got.context.backward(ones)
    for names in (["rel_key"], ["value"], ["query", "rel_value"], []):
        some = got.context.backward(ones, wrt=names)
        assert {n for n, x in some._asdict().items() if x is not None} == set(names)
        for name in names:
            assert_bitwise(getattr(some, name), getattr(whole, name))


def test_one_incoming_gradient_alone(isa):
    inputs, edges = problem("both")
    got = run(inputs, edges, **BOTH)
    zeros = np.zeros(got.out.shape), np.zeros(got.lse.shape)
    given = normal(np.random.default_rng(6), *got.lse.shape)
    found = got.context.backward(None, grad_lse=given)._asdict()
    truth = oracle_graph.gradients(zeros[0], given, edges, **inputs)
    for name, want in truth.items():
        assert_close(found[name], want, "gradient")


@pytest.mark.parametrize("name", EMPTY)
def test_problems_of_size_0(isa, name):
    batch, heads, lq, lk, d, dv = EMPTY[name]
    rng = np.random.default_rng(7)
    inputs = tokens(rng, *EMPTY[name])
    inputs |= {"rel_key": normal(rng, 3, d), "rel_value": normal(rng, 3, dv)}
    edges = [Edge(i, j, (i + j) % 3) for i in range(lq) for j in range(lk)]
    result = run(inputs, edges, scale=0.5, **BOTH)
    assert result.out.shape == (*batch, heads, lq, dv)
    gradients, _ = with_gradients(result)
    assert {n: x.shape for n, x in gradients.items()} == {
        n: x.shape for n, x in inputs.items()
    }
    assert all(np.isfinite(x).all() for x in gradients.values())
