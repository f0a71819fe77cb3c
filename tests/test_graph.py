"""Labelled graphs: `attention(labels=)` and `graph_attention` against loops."""

from __future__ import annotations

import copy
import sys

import numpy as np
import oracle_graph
import pytest
from layouts import LAYOUTS
from oracle_graph import Edge, compressed, random_edges
from problems import DTYPES, cast, normal, qkv
from tolerances import assert_bitwise, assert_close, assert_lse_close

import relpos
from relpos import _core
from relpos._config import use_isa

ROWS = 5  # labels
ABSENT = -7  # an edge's label that no table has
TABLES = {
    "none": {},
    "keys": {"rel_key": ()},
    "values per head": {"rel_value": (2,)},
    "both": {"rel_key": (2,), "rel_value": ()},
    "both per item": {"rel_key": (3, 1), "rel_value": (3, 2)},
}
every_table = pytest.mark.parametrize("tables", TABLES)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def problem(tables, lq=9, lk=11, d=7, dv=5, batch=(3,), seed=1):
    """(inputs by name, edges), in float64."""
    rng = np.random.default_rng([seed, lq, lk])
    arrays = qkv(rng, batch, 2, lq, lk, d, dv)
    inputs = dict(zip(("query", "key", "value"), arrays, strict=True))
    for name, lead in TABLES[tables].items():
        inputs[name] = normal(rng, *lead, ROWS, d if name == "rel_key" else dv)
    return inputs, random_edges(rng, lq, lk, ROWS)


def run(inputs, edges, **options):
    graph = compressed(edges, inputs["query"].shape[-2])
    names = ("indptr", "indices", "labels")
    return relpos.graph_attention(
        **inputs, **dict(zip(names, graph, strict=True)), **options
    )


def dense(inputs, edges):
    """The keywords attn_mask and labels of `attention` that say the same."""
    shape = inputs["query"].shape[-2], inputs["key"].shape[-2]
    mask, labels = np.zeros(shape, bool), np.full(shape, ABSENT)
    for i, j, label in edges:
        mask[i, j], labels[i, j] = True, label
    return {"attn_mask": mask, "labels": labels}


def with_gradients(result, seed=2):
    """Gradients by name, and the incoming ones."""
    rng = np.random.default_rng(seed)
    grads = normal(rng, *result.out.shape), normal(rng, *result.lse.shape)
    given = [g.astype(result.out.dtype) for g in grads]
    found = result.context.backward(given[0], grad_lse=given[1])._asdict()
    return {name: x for name, x in found.items() if x is not None}, grads


BOTH = {"return_lse": True, "return_context": True}


# ---- against the loops --------------------------------------------------------------


@every_table
@both_dtypes
def test_attention_with_labels_is_the_graph(isa, tables, dtype):
    """Section 3.1: keys and values on an arbitrary directed graph, dense form."""
    inputs, edges = problem(tables)
    want, lse = oracle_graph.attention(edges=edges, **inputs)
    keywords = cast(inputs, dtype) | dense(inputs, edges)
    got = relpos.attention(**keywords, **BOTH)
    assert_close(got.out, want, "forward")
    assert_lse_close(got.lse, lse)
    gradients, (grad_out, grad_lse) = with_gradients(got)
    truth = oracle_graph.gradients(grad_out, grad_lse, edges, **inputs)
    assert set(gradients) == set(truth)
    for name, gradient in gradients.items():
        assert_close(gradient, truth[name], "gradient")


@every_table
def test_the_definition_is_the_loops(tables):
    inputs, edges = problem(tables)
    edges = [*edges, edges[0], edges[4]._replace(label=2)]
    want, lse = oracle_graph.attention(edges=edges, scale=0.7, **inputs)
    names = ("indptr", "indices", "labels")
    graph = dict(zip(names, compressed(edges, 9), strict=True))
    got = relpos.reference.graph_attention(
        **inputs, **graph, scale=0.7, return_lse=True
    )
    assert_close(got.out, want, "forward")
    assert_lse_close(got.lse, lse)


@every_table
@both_dtypes
@pytest.mark.sanitized
@pytest.mark.parametrize("d, dv", [(7, 5), (64, 33), (1, 1)])
def test_graph_attention(isa, tables, dtype, d, dv):
    inputs, edges = problem(tables, d=d, dv=dv)
    want, lse = oracle_graph.attention(edges=edges, **inputs)
    got = run(cast(inputs, dtype), edges, **BOTH)
    assert got.out.dtype == got.lse.dtype == dtype and got.weights is None
    assert_close(got.out, want, "forward")
    assert_lse_close(got.lse, lse)
    gradients, (grad_out, grad_lse) = with_gradients(got)
    truth = oracle_graph.gradients(grad_out, grad_lse, edges, **inputs)
    assert set(gradients) == set(truth)
    for name, gradient in gradients.items():
        assert gradient.dtype == dtype and gradient.shape == inputs[name].shape
        assert_close(gradient, truth[name], "gradient")


@both_dtypes
def test_many_edges_are_the_dense_form(isa, dtype):
    """Rows of several chunks of edges, and more slices than one wave holds."""
    rng = np.random.default_rng(3)
    arrays = qkv(rng, (6,), 4, 300, 260, 16, 24)
    inputs = dict(zip(("query", "key", "value"), arrays, strict=True))
    inputs |= {"rel_key": normal(rng, 4, 9, 16), "rel_value": normal(rng, 30, 24)}
    mask = rng.random((300, 260)) < np.linspace(0, 1, 300)[:, None]
    labels = rng.integers(-1, 9, mask.shape)
    edges = [Edge(i, j, labels[i, j]) for i, j in np.argwhere(mask)]
    inputs = cast(inputs, dtype)
    got = run(inputs, edges, **BOTH)
    want = relpos.attention(**inputs, attn_mask=mask, labels=labels, **BOTH)
    assert_close(got.out, want.out, "same_formula")
    assert_lse_close(got.lse, want.lse)
    found, expected = with_gradients(got)[0], with_gradients(want)[0]
    assert set(found) == set(expected)
    for name, gradient in found.items():
        assert_close(gradient, expected[name], "same_formula")


def test_gradients_equal_differences_of_the_forward():
    """Along random directions of every input, at five points."""
    inputs, edges = problem("both", batch=(2,))
    edges += edges[:7]  # some twice
    rng = np.random.default_rng(4)
    for isa in _core.by_isa:
        with use_isa(isa):
            gradients, grads = with_gradients(run(inputs, edges, **BOTH))

            def loss(moved, grads=grads):
                result = run(moved, edges, return_lse=True)
                seen = np.isfinite(result.lse)
                pairs = (grads[0], result.out), (grads[1][seen], result.lse[seen])
                return sum(float(np.vdot(a, b)) for a, b in pairs)

            for name, start in inputs.items():
                for _ in range(5):
                    d = rng.standard_normal(start.shape)
                    d /= np.abs(d).max()
                    at = {
                        n: loss(inputs | {name: start + n * 1e-3 * d})
                        for n in (-2, -1, 1, 2)
                    }
                    want = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / 12e-3
                    gradient = gradients[name]
                    size = np.linalg.norm(gradient) * np.sqrt(np.mean(d**2))
                    assert abs(np.vdot(gradient, d) - want) <= 1e-10 * size, name


# ---- what an edge list may look like ------------------------------------------------


def test_an_edge_that_stands_twice_counts_twice(isa):
    """As if its key were there twice; with a label of its own each time."""
    inputs, edges = problem("both", batch=())
    more = [*edges, edges[0], edges[4]._replace(label=2), edges[4]._replace(label=-1)]
    want, lse = oracle_graph.attention(edges=more, **inputs)
    got = run(inputs, more, **BOTH)
    assert_close(got.out, want, "forward")
    assert_lse_close(got.lse, lse)
    gradients, (grad_out, grad_lse) = with_gradients(got)
    truth = oracle_graph.gradients(grad_out, grad_lse, more, **inputs)
    for name, gradient in gradients.items():
        assert_close(gradient, truth[name], "gradient")
    doubled = run(inputs, [e for e in edges for _ in range(2)], return_lse=True)
    once = run(inputs, edges, return_lse=True)
    assert_close(doubled.out, once.out, "same_formula")
    assert_lse_close(doubled.lse, once.lse + np.log(2))


def test_the_order_of_a_query_s_edges_does_not_matter(isa):
    inputs, edges = problem("both")
    shuffled = [edges[n] for n in np.random.default_rng(5).permutation(len(edges))]
    assert shuffled != edges
    got, want = run(inputs, shuffled, **BOTH), run(inputs, edges, **BOTH)
    assert_close(got.out, want.out, "same_formula")
    for name, gradient in with_gradients(got)[0].items():
        assert_close(gradient, with_gradients(want)[0][name], "same_formula")


def test_a_query_without_edges(isa):
    inputs, edges = problem("both")
    got = run(inputs, edges, **BOTH)
    assert not got.out[..., 3, :].any() and np.isneginf(got.lse[..., 3]).all()
    gradients, _ = with_gradients(got)
    assert not gradients["query"][..., 3, :].any()
    assert all(np.isfinite(x).all() for x in gradients.values())


def test_no_edge_at_all(isa):
    inputs, _ = problem("both")
    got = run(inputs, [], **BOTH)
    assert not got.out.any() and np.isneginf(got.lse).all()
    assert not any(x.any() for x in with_gradients(got)[0].values())


def test_labels_beyond_are_never_negative_rows(isa):
    """Any negative label is no term at all."""
    inputs, edges = problem("both")
    far = [e._replace(label=-(2**63) if e.label < 0 else e.label) for e in edges]
    assert_bitwise(run(inputs, far), run(inputs, edges))


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_keys_without_an_edge_are_not_read(isa, poison):
    inputs, edges = problem("both")
    edges = [e for e in edges if e.key != 2 and e.label != 1]
    want = run(inputs, edges, **BOTH)
    poisoned = copy.deepcopy(inputs)
    poisoned["key"][..., 2, :] = poisoned["value"][..., 2, :] = poison
    poisoned["query"][..., 3, :] = poison  # has no edge
    poisoned["rel_key"][..., 1, :] = poisoned["rel_value"][..., 1, :] = poison
    got = run(poisoned, edges, **BOTH)
    assert_bitwise(got.out, want.out)
    for name, gradient in with_gradients(got)[0].items():
        assert_bitwise(gradient, with_gradients(want)[0][name])


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
    turned = [x.tolist() if kind is list else x.astype(kind) for x in graph]
    assert_bitwise(
        relpos.graph_attention(**inputs, indptr=turned[0], indices=turned[1]),
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
from relpos._demo.measure import forget_peak, resident

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
