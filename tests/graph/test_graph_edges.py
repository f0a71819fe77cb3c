"""`graph_attention(edges=)`: lists of edges, and CSR matrices of scipy.sparse."""

from __future__ import annotations

import numpy as np
import oracle_graph
import pytest
from bad_kinds import ones
from graph_problems import (
    BOTH,
    both_dtypes,
    by_query,
    check,
    every_table,
    has_tables,
    problem,
    run,
    same_bits,
    with_gradients,
)
from problems import cast, normal, qkv
from refusals import changes
from tolerances import assert_bitwise

import relpos


def listed(edges):
    """Keywords `edges` and `labels` of edges, in their order."""
    columns = [[e.key for e in edges], [e.query for e in edges]]
    return {"edges": np.array(columns), "labels": np.array([e.label for e in edges])}


@every_table
@both_dtypes
def test_edges_in_any_order_are_the_sorted_ones(tables, dtype):
    """Edges of one query stay in their order, so that even the bits are the same."""
    inputs, edges = problem(tables)
    edges += edges[:5]  # some twice
    rng = np.random.default_rng(8)
    edges = [edges[n] for n in rng.permutation(len(edges))]
    inputs = cast(inputs, dtype)
    given = listed(edges)
    if not has_tables(inputs):
        del given["labels"]
    got = relpos.graph_attention(**inputs, **given, **BOTH)
    same_bits(got, run(inputs, edges, **BOTH))
    check(got, cast(inputs, "float64"), edges)


def test_row_0_is_the_key():
    """One edge from token 0 to token 2: token 2 gets the value of token 0."""
    x, value = ones(1, 3, 2), np.array([[[5.0], [6.0], [7.0]]])
    out = relpos.graph_attention(x, x, value, edges=[[0], [2]])
    assert out.ravel().tolist() == [0.0, 0.0, 5.0]


def test_edges_of_any_integers_as_lists_or_pairs():
    inputs, edges = problem("both")
    given = listed(edges)
    want = relpos.graph_attention(**inputs, **given)
    key, query = given["edges"]
    for other in ([[*key], [*query]], (key, query), np.uint8([key, query])):
        assert_bitwise(relpos.graph_attention(**inputs, **given | {"edges": other}),
                       want)  # fmt: skip


def test_more_queries_than_16_bits_count():
    """Sorted digit by digit, the order of equal queries kept."""
    rng = np.random.default_rng(9)
    queries = 70_000
    q, k, v = qkv(rng, (), 1, queries, 5, 2, 1)
    edges = np.stack([rng.integers(0, 5, 90_000), rng.integers(0, queries, 90_000)])
    labels, table = rng.integers(0, 3, 90_000), normal(rng, 3, 2)
    order = np.lexsort([np.arange(90_000), edges[1]])
    indptr = np.searchsorted(edges[1][order], np.arange(queries + 1))
    want = relpos.graph_attention(
        q, k, v, indptr, edges[0][order], labels[order], table, **BOTH
    )
    got = relpos.graph_attention(
        q, k, v, edges=edges, labels=labels, rel_key=table, **BOTH
    )
    same_bits(got, want)


@pytest.mark.parametrize("form", [listed, by_query])
def test_the_graph_is_copied(isa, form):
    inputs, edges = problem("both")
    given = form(edges)
    result = relpos.graph_attention(**inputs, **given, **BOTH)
    want = with_gradients(result)[0]
    for array in given.values():
        array[...] = 2**62
    for name, gradient in with_gradients(result)[0].items():
        assert_bitwise(gradient, want[name])


def test_no_edges():
    x = ones(1, 3, 2)
    assert not relpos.graph_attention(x, x, x, edges=np.zeros((2, 0), int)).any()
    none = ones(1, 0, 2)
    got = relpos.graph_attention(none, none, none, edges=np.zeros((2, 0), int))
    assert got.shape == (1, 0, 2)


# ---- matrices of scipy.sparse --------------------------------------------------------


@pytest.fixture
def sparse():
    return pytest.importorskip("scipy.sparse")


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix"])
def test_rows_of_a_sparse_matrix_are_queries(sparse, kind):
    inputs, edges = problem("both")
    indptr, indices, labels = oracle_graph.compressed(edges, 9)
    assert (labels == 0).any()  # explicit zeros
    matrix = getattr(sparse, kind)((labels, indices, indptr), shape=(9, 11))
    got = relpos.graph_attention(**inputs, edges=matrix, labels=matrix.data, **BOTH)
    same_bits(got, run(inputs, edges, **BOTH))


def test_an_entry_of_zero_is_an_edge(sparse):
    matrix = sparse.csr_array(([0.0, 1.0], ([0, 1], [1, 1])), shape=(2, 2))
    x, value = ones(1, 2, 2), np.array([[[5.0], [6.0]]])
    out = relpos.graph_attention(x, x, value, edges=matrix)
    assert out.ravel().tolist() == [6.0, 6.0]


def test_a_sparse_matrix_with_room_for_more(sparse):
    matrix = sparse.csr_array(([1.0], ([0], [1])), shape=(2, 2))
    matrix.indices = np.append(matrix.indices, np.int32(77))
    x, value = ones(1, 2, 2), np.array([[[5.0], [6.0]]])
    out = relpos.graph_attention(x, x, value, edges=matrix)
    assert out.ravel().tolist() == [6.0, 0.0]


@pytest.mark.parametrize("form", ["coo", "csc", "dok", "lil", "dia", "bsr"])
def test_other_forms_are_told_the_way(sparse, form):
    matrix = sparse.csr_array(np.eye(3)).asformat(form)
    x = ones(1, 3, 2)
    with pytest.raises(TypeError, match=rf"^edges: got a .*{form}_array.*\.tocsr\(\)"):
        relpos.graph_attention(x, x, x, edges=matrix)


def test_a_sparse_matrix_of_another_shape(sparse):
    x, keys = ones(1, 3, 2), ones(1, 4, 2)
    pattern = r"^edges: got a csr_array of shape \(4, 3\); expected \(3, 4\)"
    with pytest.raises(ValueError, match=pattern):
        relpos.graph_attention(x, keys, keys, edges=sparse.csr_array((4, 3)))


def test_scipy_is_not_imported(child):
    code = """
import sys, numpy as np, relpos
x = np.ones((1, 3, 2))
relpos.graph_attention(x, x, x, edges=[[0], [2]])
print("scipy" in sys.modules)
"""
    assert child(code).stdout.strip() == "False"


# ---- bad calls -----------------------------------------------------------------------

ROWS = changes(
    """
indptr=[0, 1, 1, 1] -> ValueError: edges: given together with indptr; expect
indices=[0] -> ValueError: edges: given together with indices; expected
edges=[0, 1] -> ValueError: edges: got shape (2,); expected (2, edges)
edges=ones(5, 2, dtype=int) -> ValueError: edges: got …(pass edges.T)
edges=ones(3, 5, dtype=int) -> ValueError: edges: got shape (3, 5); expec
edges=[[0, 1], [2]] -> ValueError: edges: … not a rectangular array
edges=ones(2, 5) -> TypeError: edges: got dtype float64; expected integers
edges=Tensor() -> TypeError: edges: got a torch Tensor
edges=MASKED -> TypeError: edges: got a MaskedArray
edges=[[0, 4], [0, 0]] -> IndexError: edges: edges[0, 1] is 4, outside the 4 keys;
    expected 0 to 3
edges=[[-1, 0], [0, 0]] -> IndexError: edges: edges[0, 0] is -1, outside
edges=[[0, 3], [3, 0]] -> IndexError: edges: edges[1, 0] is 3, outside the 3 queries;
    expected 0 to 2
edges=[[0, 3], [0, -9]] -> IndexError: edges: edges[1, 1] is -9, outside
labels=[0] -> ValueError: labels: got shape (1,); expected (2,)
labels=[0, 3] -> IndexError: labels: labels[1] is 3, outside rel_key of 3
labels=None -> ValueError: rel_key: given without labels
edges=None -> TypeError: indptr: got NoneType; expected …or edges=
edges=None, indptr=[0, 1, 2, 2] -> TypeError: indices: got NoneType; expected integers
    (or edges= or key_indices= in place of
""",
    globals(),
)


@pytest.mark.parametrize(("changes", "error", "pattern"), ROWS)
def test_bad_calls(changes, error, pattern):
    good = {
        "query": ones(2, 3, 8),
        "key": ones(2, 4, 8),
        "value": ones(2, 4, 5),
        "edges": [[3, 0], [2, 1]],
        "labels": [2, 0],
        "rel_key": ones(3, 8),
    }
    relpos.graph_attention(**good)
    with pytest.raises(error, match=pattern):
        relpos.graph_attention(**good | changes)
