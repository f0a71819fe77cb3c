"""The edges of a graph: copied here once, and looked at once, by the kernel."""

from relpos._attention.operands import TABLES, Sizes
from relpos._checks import Array, as_integers, integers_of

#: indptr, indices and labels of `graph_attention`, as given.
Edges = tuple[object, object, object]


def as_edges(given: Edges, tables: dict[str, Array], sizes: Sizes) -> dict[str, Array]:
    """Check the graph's shapes; the kernel looks at every edge of these copies."""
    indptr, indices, labels = given
    starts, keys = integers_of("indptr", indptr), integers_of("indices", indices)
    if starts.shape != (sizes.Lq + 1,):
        raise ValueError(
            f"indptr: got shape {starts.shape}; expected ({sizes.Lq + 1},), one entry "
            f"more than there are queries"
        )
    if keys.ndim != 1:
        raise ValueError(f"indices: got shape {keys.shape}; expected (edges,)")
    starts = as_integers("indptr", starts)
    if starts[0] != 0 or starts[-1] != keys.size:
        raise ValueError(
            f"indptr: runs from {starts[0]} to {starts[-1]}; expected from 0 to "
            f"{keys.size}, the number of indices"
        )
    edges = {"indptr": starts, "indices": as_integers("indices", keys)}
    if labels is not None:
        rows = integers_of("labels", labels)
        if rows.shape != keys.shape:
            raise ValueError(
                f"labels: got shape {rows.shape}; expected {keys.shape}, one label per "
                "edge"
            )
        edges["edge_labels"] = as_integers("labels", rows)
    for name, table in tables.items():
        _check_labels(name, table, edges.get("edge_labels"))
    return edges


def _check_labels(name: str, table: Array, labels: Array | None) -> None:
    if labels is None:
        raise ValueError(
            f"{name}: given without labels, which say the row of each edge; pass "
            f"labels or leave {name} out"
        )
    rows = TABLES[name].rows(table)
    if labels.size and labels.max() >= rows:
        at = int(labels.argmax())
        raise IndexError(
            f"labels: labels[{at}] is {labels[at]}, outside {name} of {rows} rows; "
            f"expected at most {rows - 1} (negative: no position term)"
        )
