"""Labelled graphs: `attention(labels=)` and `graph_attention` against loops."""

from __future__ import annotations

import copy

import numpy as np
import oracle_graph
import pytest
from backward_checks import difference_of
from graph_problems import (
    BOTH,
    agree,
    both_dtypes,
    by_query,
    check,
    dense,
    every_table,
    problem,
    run,
    same_bits,
    with_gradients,
)
from oracle_graph import Edge
from problems import cast, normal, tokens
from tolerances import assert_bitwise, assert_close, assert_lse_close

import relpos
from relpos import _core
from relpos._settings import use_isa

# ---- against the loops --------------------------------------------------------------


@every_table
@both_dtypes
def test_attention_with_labels_is_the_graph(isa, tables, dtype):
    """Section 3.1: keys and values on an arbitrary directed graph, dense form."""
    inputs, edges = problem(tables)
    keywords = cast(inputs, dtype) | dense(inputs, edges)
    check(relpos.attention(**keywords, **BOTH), inputs, edges)


@every_table
def test_the_definition_is_the_loops(tables):
    inputs, edges = problem(tables)
    edges = [*edges, edges[0], edges[4]._replace(label=2)]
    want, lse = oracle_graph.attention(edges=edges, scale=0.7, **inputs)
    got = relpos.reference.graph_attention(
        **inputs, **by_query(edges), scale=0.7, return_lse=True
    )
    assert_close(got.out, want, "forward")
    assert_lse_close(got.lse, lse)


@every_table
@both_dtypes
@pytest.mark.sanitized
@pytest.mark.parametrize(("d", "dv"), [(7, 5), (64, 33), (1, 1)])
def test_graph_attention(isa, tables, dtype, d, dv):
    inputs, edges = problem(tables, d=d, dv=dv)
    got = run(cast(inputs, dtype), edges, **BOTH)
    assert got.out.dtype == got.lse.dtype == dtype and got.weights is None
    check(got, inputs, edges)


@both_dtypes
def test_many_edges_are_the_dense_form(isa, dtype):
    """Rows of several chunks of edges, and more slices than one wave holds."""
    rng = np.random.default_rng(3)
    inputs = tokens(rng, (6,), 4, 300, 260, 16, 24)
    inputs |= {"rel_key": normal(rng, 4, 9, 16), "rel_value": normal(rng, 30, 24)}
    mask = rng.random((300, 260)) < np.linspace(0, 1, 300)[:, None]
    labels = rng.integers(-1, 9, mask.shape)
    edges = [Edge(i, j, labels[i, j]) for i, j in np.argwhere(mask)]
    inputs = cast(inputs, dtype)
    want = relpos.attention(**inputs, attn_mask=mask, labels=labels, **BOTH)
    agree(run(inputs, edges, **BOTH), want)


def test_gradients_equal_differences_of_the_forward():
    """Along random directions of every input, at five points."""
    inputs, edges = problem("both", batch=(2,))
    edges += edges[:7]  # some twice
    rng = np.random.default_rng(4)
    for isa in _core.by_isa:
        with use_isa(isa):
            gradients, grads = with_gradients(run(inputs, edges, **BOTH))

            def loss(moved, grads=grads):
                result = run(inputs | moved, edges, return_lse=True)
                seen = np.isfinite(result.lse)
                pairs = (grads[0], result.out), (grads[1][seen], result.lse[seen])
                return sum(float(np.vdot(a, b)) for a, b in pairs)

            for name, start in inputs.items():
                for _ in range(5):
                    d = rng.standard_normal(start.shape)
                    d /= np.abs(d).max()
                    want = difference_of(
                        lambda x, name=name: loss({name: x[0]}), [start], [d], h=1e-3
                    )
                    gradient = gradients[name]
                    size = np.linalg.norm(gradient) * np.sqrt(np.mean(d**2))
                    assert abs(np.vdot(gradient, d) - want) <= 1e-10 * size, name


# ---- what an edge list may look like ------------------------------------------------


def test_an_edge_that_stands_twice_counts_twice(isa):
    """As if its key were there twice; with a label of its own each time."""
    inputs, edges = problem("both", batch=())
    more = [*edges, edges[0], edges[4]._replace(label=2), edges[4]._replace(label=-1)]
    check(run(inputs, more, **BOTH), inputs, more)
    doubled = run(inputs, [e for e in edges for _ in range(2)], return_lse=True)
    once = run(inputs, edges, return_lse=True)
    assert_close(doubled.out, once.out, "same_formula")
    assert_lse_close(doubled.lse, once.lse + np.log(2))


def test_the_order_of_a_query_s_edges_does_not_matter(isa):
    inputs, edges = problem("both")
    shuffled = [edges[n] for n in np.random.default_rng(5).permutation(len(edges))]
    assert shuffled != edges
    agree(run(inputs, shuffled, **BOTH), run(inputs, edges, **BOTH))


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
    same_bits(run(poisoned, edges, **BOTH), want)


# ---- sinks --------------------------------------------------------------------------


@every_table
@both_dtypes
def test_sinks_are_those_of_attention(isa, tables, dtype):
    """Rows without edges included: there the sink is all that there is."""
    inputs, edges = problem(tables)
    inputs["sinks"] = np.array([0.5, -1.0])
    want = relpos.attention(**inputs, **dense(inputs, edges), **BOTH)
    got = run(cast(inputs, dtype), edges, **BOTH)
    agree(got, want, "forward", "gradient")
    assert_close(got.lse[:, :, 3], [[0.5, -1.0]] * 3, "lse")
    assert set(with_gradients(got)[0]) == set(inputs)


def test_sinks_of_a_graph_without_edges_or_keys():
    x, none, sinks = np.ones((2, 3, 4)), np.ones((2, 0, 4)), np.array([1.0, -np.inf])
    for keys in (x, none):
        got = relpos.graph_attention(
            x, keys, keys, [0] * 4, np.zeros(0, int), sinks=sinks, **BOTH
        )
        assert (got.out == 0).all()
        assert_close(got.lse, [[1.0] * 3, [-np.inf] * 3], "lse")
        found = got.context.backward(None, grad_lse=np.ones((2, 3)))
        assert found.sinks.tolist() == [3.0, 0.0] and (found.query == 0).all()


def test_the_definition_has_sinks():
    inputs, edges = problem("both")
    inputs["sinks"] = np.array([0.5, -1.0])
    got = run(inputs, edges, return_lse=True)
    want = relpos.reference.graph_attention(
        **inputs, **by_query(edges), return_lse=True
    )
    assert_close(got.out, want.out, "forward")
    assert_lse_close(got.lse, want.lse)
