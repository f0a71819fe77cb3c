"""The edges of a graph: copied once, and looked at once, by the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._attention.operands import PICKS, Call, Sizes, check_labels
from relpos._checks import Array, as_integers, check_shape, integers_of
from relpos._foreign import module_of

if TYPE_CHECKING:
    from typing import Protocol

    class SparseRows(Protocol):
        """A CSR matrix of `scipy.sparse`."""

        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def nnz(self) -> int: ...
        @property
        def indptr(self) -> Any: ...
        @property
        def indices(self) -> Any: ...


#: Arguments of `graph_attention` that are one graph for all: the first two, or `edges`.
GRAPH = ("indptr", "indices", "edge_labels", "edges")
#: All of them that are a graph.
EDGES = (*GRAPH, *PICKS)


def check_picks(call: Call, inputs: dict[str, Array], tables: dict[str, Array]) -> None:
    """Check `key_indices`, which takes the place of a graph, and its labels."""
    for name in ("indptr", "indices", "edges"):
        if call[name] is not None:
            raise ValueError(
                f"key_indices: given together with {name}; expected key_indices, or a "
                "graph (indptr and indices, or edges)"
            )
    labels = inputs.get("key_labels")
    _check_company(labels is not None, tables)
    if labels is not None:
        shape = inputs["key_indices"].shape
        expected = f"{shape}, one label for each number of key_indices"
        check_shape("labels", labels, labels.shape == shape, expected)
        check_labels("labels", labels, tables)


def _check_company(has_labels: bool, tables: dict[str, Array]) -> None:
    """Raise where labels or tables came without the other."""
    if has_labels and not tables:
        raise ValueError(
            "labels: given without a table, whose rows it says; pass rel_key or "
            "rel_value, or leave labels out"
        )
    if tables and not has_labels:
        name = next(iter(tables))
        raise ValueError(
            f"{name}: given without labels, which say the row of each edge; pass "
            f"labels or leave {name} out"
        )


def as_edges(call: Call, tables: dict[str, Array], sizes: Sizes) -> dict[str, Array]:
    """Check the graph's shapes; the kernel looks at every edge of these copies."""
    indptr, indices, edges = call["indptr"], call["indices"], call["edges"]
    labels = call["edge_labels"]
    order = None  # of edges that are sorted here: their labels are in the caller's
    if edges is None:
        graph = _compressed(indptr, indices, sizes)
    elif indptr is not None or indices is not None:
        name = "indices" if indptr is None else "indptr"
        raise ValueError(
            f"edges: given together with {name}; expected edges, or indptr and indices"
        )
    elif module_of(edges, "scipy.sparse"):
        graph = _of_sparse_rows(edges, sizes)
    else:
        graph, order = _of_pairs(edges, sizes)
    _check_company(labels is not None, tables)
    if labels is not None:
        shape = graph["indices"].shape
        # The shape is checked on a view: a wrong array may be too large to be copied.
        view = integers_of("labels", labels)
        check_shape("labels", view, view.shape == shape, f"{shape}, one label per edge")
        labels = as_integers("labels", view)
        check_labels("labels", labels, tables)
        graph["edge_labels"] = labels if order is None else labels[order]
    return graph


def _compressed(indptr: object, indices: object, sizes: Sizes) -> dict[str, Array]:
    """The graph by the edges of each query."""
    for name, value in (("indptr", indptr), ("indices", indices)):
        if value is None:
            raise TypeError(
                f"{name}: got NoneType; expected integers (or edges= or key_indices= "
                "in place of indptr and indices)"
            )
    starts, keys = integers_of("indptr", indptr), integers_of("indices", indices)
    expected = f"({sizes.Lq + 1},), one entry more than there are queries"
    check_shape("indptr", starts, starts.shape == (sizes.Lq + 1,), expected)
    check_shape("indices", keys, keys.ndim == 1, "(edges,)")
    starts = as_integers("indptr", starts)
    if starts[0] != 0 or starts[-1] != keys.size:
        raise ValueError(
            f"indptr: runs from {starts[0]} to {starts[-1]}; expected from 0 to "
            f"{keys.size}, the number of indices"
        )
    return {"indptr": starts, "indices": as_integers("indices", keys)}


def _of_sparse_rows(matrix: Any, sizes: Sizes) -> dict[str, Array]:
    """The graph of a CSR matrix: an edge for each entry that is stored."""
    kind = type(matrix).__name__
    if getattr(matrix, "format", None) != "csr":
        raise TypeError(
            f"edges: got a scipy.sparse {kind}; expected one in CSR form, its rows the "
            "queries (pass matrix.tocsr())"
        )
    if matrix.shape != (sizes.Lq, sizes.Lk):
        raise ValueError(
            f"edges: got a {kind} of shape {matrix.shape}; expected "
            f"({sizes.Lq}, {sizes.Lk}), a row for each query and a column for each key"
        )
    stored = matrix.indices[: matrix.nnz]  # it may have room for more
    return _compressed(matrix.indptr, stored, sizes)


def _of_pairs(edges: object, sizes: Sizes) -> tuple[dict[str, Array], Array]:
    """The graph of a list of edges, and the order that sorts it by query."""
    pairs = integers_of("edges", edges)
    expected = "(2, edges), keys in row 0 and queries in row 1"
    if pairs.ndim == 2 and pairs.shape[1] == 2:
        expected += " (pass edges.T)"
    check_shape("edges", pairs, pairs.ndim == 2 and pairs.shape[0] == 2, expected)
    pairs = as_integers("edges", pairs)
    for row, what, count in ((0, "keys", sizes.Lk), (1, "queries", sizes.Lq)):
        outside = (pairs[row] < 0) | (pairs[row] >= count)
        if outside.any():
            at = int(outside.argmax())
            raise IndexError(
                f"edges: edges[{row}, {at}] is {pairs[row, at]}, outside the {count} "
                f"{what}; expected 0 to {count - 1}"
            )
    # Stable, so that the result does not depend on anything but the order of the edges
    # of each query.
    keys, queries = pairs
    order = _stable_order(queries, sizes.Lq)
    indptr = np.zeros(sizes.Lq + 1, np.int64)
    np.cumsum(np.bincount(queries, minlength=sizes.Lq), out=indptr[1:])
    return {"indptr": indptr, "indices": keys[order]}, order


def _stable_order(queries: Array, count: int) -> Array:
    """The order that sorts edges by query and keeps that of each query's edges.

    NumPy sorts 16 bits by counting, three to six times as fast as 64 by comparing: the
    lower digit first, then by the higher ones what is in order by the lower.
    """
    order = np.argsort(queries.astype(np.uint16), kind="stable")
    for shift in range(16, count.bit_length(), 16):
        digit = (queries >> shift).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order
