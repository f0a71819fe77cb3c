"""Random graphs with their inputs, for the tests of labelled graphs."""

from __future__ import annotations

import numpy as np
import oracle_graph
import pytest
from oracle_graph import compressed, random_edges
from problems import DTYPES, normal, tokens
from tolerances import assert_bitwise, assert_close, assert_lse_close

import relpos

ROWS = 5  # labels
ABSENT = -7  # an edge's label that no table has
TABLES = {
    "none": {},
    "keys": {"rel_key": ()},
    "values per head": {"rel_value": (2,)},
    "both": {"rel_key": (2,), "rel_value": ()},
    "both per item": {"rel_key": (3, 1), "rel_value": (3, 2)},
    "keys with a query": {"rel_key": (), "position_query": (2,)},
    "both with a query": {"rel_key": (2,), "rel_value": (), "position_query": (3, 2)},
}
every_table = pytest.mark.parametrize("tables", TABLES)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def problem(tables, lq=9, lk=11, d=7, dv=5, batch=(3,), seed=1):
    """(inputs by name, edges), in float64."""
    rng = np.random.default_rng([seed, lq, lk])
    inputs = tokens(rng, batch, 2, lq, lk, d, dv)
    columns = {"rel_key": 3 if "position_query" in TABLES[tables] else d}
    for name, lead in TABLES[tables].items():
        rows = (lq, 3) if name == "position_query" else (ROWS, columns.get(name, dv))
        inputs[name] = normal(rng, *lead, *rows)
    return inputs, random_edges(rng, lq, lk, ROWS)


def by_query(edges, queries=9):
    """The keywords indptr, indices and labels of edges."""
    names = ("indptr", "indices", "labels")
    return dict(zip(names, compressed(edges, queries), strict=True))


def run(inputs, edges, **options):
    graph = by_query(edges, inputs["query"].shape[-2])
    if not has_tables(inputs):
        del graph["labels"]
    return relpos.graph_attention(**inputs, **graph, **options)


def has_tables(inputs):
    return "rel_key" in inputs or "rel_value" in inputs


def dense(inputs, edges):
    """The keywords attn_mask and labels of `attention` that say the same."""
    shape = inputs["query"].shape[-2], inputs["key"].shape[-2]
    mask, labels = np.zeros(shape, bool), np.full(shape, ABSENT)
    for i, j, label in edges:
        mask[i, j], labels[i, j] = True, label
    return {"attn_mask": mask, **({"labels": labels} if has_tables(inputs) else {})}


def with_gradients(result, seed=2):
    """Gradients by name, and the incoming ones."""
    rng = np.random.default_rng(seed)
    grads = normal(rng, *result.out.shape), normal(rng, *result.lse.shape)
    given = [g.astype(result.out.dtype) for g in grads]
    found = result.context.backward(given[0], grad_lse=given[1])._asdict()
    return {name: x for name, x in found.items() if x is not None}, grads


BOTH = {"return_lse": True, "return_context": True}


def check(got, inputs, edges, **options):
    """Compare results and gradients with the loops."""
    want, lse = oracle_graph.attention(edges=edges, **inputs, **options)
    assert_close(got.out, want, "forward")
    assert_lse_close(got.lse, lse)
    found, grads = with_gradients(got)
    truth = oracle_graph.gradients(*grads, edges, **inputs, **options)
    assert set(found) == set(truth)
    for name, gradient in found.items():
        assert gradient.dtype == got.out.dtype
        assert gradient.shape == inputs[name].shape
        assert_close(gradient, truth[name], "gradient")


def same_bits(got, want):
    """Compare results and gradients of two calls to the last bit."""
    assert_bitwise(got.out, want.out)
    assert_bitwise(got.lse, want.lse)
    found, expected = with_gradients(got)[0], with_gradients(want)[0]
    assert set(found) == set(expected)
    for name, gradient in found.items():
        assert_bitwise(gradient, expected[name])


def agree(got, want, forward="same_formula", gradient="same_formula"):
    """Compare results and gradients of two calls, within these tolerances."""
    assert_close(got.out, want.out, forward)
    assert_lse_close(got.lse, want.lse)
    found, expected = with_gradients(got)[0], with_gradients(want)[0]
    assert set(found) == set(expected)
    for name, each in found.items():
        assert_close(each, expected[name], gradient)
