"""Shaw et al. section 3.1 in loops: attention along labelled directed edges.

    e_ij = q_i.(k_j + a^K_l) * scale,   z_i = sum_j softmax_j(e_i)_j (v_j + a^V_l)

over a list of edges (i, j, l), one at a time; l < 0 stands for no a. With a position
query p, q_i.k_j * scale + p_i.a^K_l takes the place of e_ij. Nothing is shared with
relpos. Gradients are written edge by edge as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from oracle_gradients import sum_to


class Edge(NamedTuple):
    query: int
    key: int
    label: int


def compressed(edges, queries):
    """(indptr, indices, labels) of edges: by query, else in the order given."""
    ordered = sorted(edges, key=lambda edge: edge.query)
    counts = np.bincount([e.query for e in edges], minlength=queries)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns = [[e.key for e in ordered], [e.label for e in ordered]]
    return (indptr, *(np.array(column, dtype=np.int64) for column in columns))


def random_edges(rng, queries, keys, labels, share=0.4):
    """Every pair with that chance; labels from -1; the fourth query has no edge."""
    return [
        Edge(i, j, int(rng.integers(-1, labels)))
        for i in range(queries)
        for j in rng.permutation(keys)
        if i != 3 and rng.random() < share
    ]


class _Head(NamedTuple):
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    a: np.ndarray | None
    w: np.ndarray | None
    position: np.ndarray | None
    scale: float

    def rows(self, edge):
        """k_j, a^K"""
        key = self.k[edge.key]
        columns = key.shape if self.a is None else self.a.shape[-1:]
        labelled = edge.label >= 0 and self.a is not None
        return key, self.a[edge.label] if labelled else np.zeros(columns)

    def logit(self, edge):
        """e_ij"""
        (key, row), query = self.rows(edge), self.q[edge.query]
        if self.position is None:
            return self.scale * np.dot(query, key + row)
        return self.scale * np.dot(query, key) + np.dot(self.position[edge.query], row)

    def moved(self, edge):
        """v_j + a^V"""
        value = self.v[edge.key]
        if edge.label >= 0 and self.w is not None:
            value = value + self.w[edge.label]
        return value

    def row(self, edges):
        """lse, p of each edge and z of one query's edges."""
        logits = [self.logit(e) for e in edges]
        top = max(logits)
        total = sum(np.exp(s - top) for s in logits)
        p = [np.exp(s - top) / total for s in logits]
        z = sum(x * self.moved(e) for x, e in zip(p, edges, strict=True))
        return top + np.log(total), p, z


def heads_of(query, key, value, rel_key, rel_value, position_query, scale):
    """Every (batch, head) with its own tables, in float64."""
    arrays = [np.asarray(x, np.float64) for x in (query, key, value)]
    batch = np.broadcast_shapes(
        *(x.shape[:-3] for x in arrays),
        *(np.shape(x)[:-3] for x in (rel_key, rel_value, position_query)),
    )
    lead = (*batch, arrays[0].shape[-3])
    full = [np.broadcast_to(x, (*batch, *x.shape[-3:])) for x in arrays]
    tables = [
        None
        if x is None
        else np.broadcast_to(np.asarray(x, np.float64), (*lead, *np.shape(x)[-2:]))
        for x in (rel_key, rel_value, position_query)
    ]
    scale = arrays[0].shape[-1] ** -0.5 if scale is None else scale
    for at in np.ndindex(lead):
        tables_of_head = (None if x is None else x[at] for x in tables)
        yield at, _Head(*(x[at] for x in full), *tables_of_head, scale)


def attention(
    query,
    key,
    value,
    edges,
    rel_key=None,
    rel_value=None,
    position_query=None,
    scale=None,
):
    """(out, lse)"""
    rows, columns = np.shape(query)[-2], np.shape(value)[-1]
    operands = query, key, value, rel_key, rel_value, position_query
    heads = list(heads_of(*operands, scale))
    lead = tuple(n + 1 for n in heads[-1][0])
    out, lse = np.zeros((*lead, rows, columns)), np.full((*lead, rows), -np.inf)
    for at, head in heads:
        for i in range(rows):
            edges_of_query = [e for e in edges if e.query == i]
            if edges_of_query:
                lse[at][i], _, out[at][i] = head.row(edges_of_query)
    return out, lse


def gradients(grad_out, grad_lse, edges, scale=None, **inputs):
    """Return the gradients of sum(grad_out * out) + sum(grad_lse * lse) by name."""
    named = dict.fromkeys(("rel_key", "rel_value", "position_query")) | inputs
    heads = list(heads_of(**named, scale=scale))
    lead = tuple(n + 1 for n in heads[-1][0])
    total = {
        name: np.zeros((*lead, *np.shape(x)[-2:]))
        for name, x in named.items()
        if x is not None
    }
    for at, head in heads:
        g = {name: x[at] for name, x in total.items()}
        for i in sorted({e.query for e in edges}):
            edges_of_query = [e for e in edges if e.query == i]
            _, p, z = head.row(edges_of_query)
            for e, weight in zip(edges_of_query, p, strict=True):
                key, row = head.rows(e)
                G = grad_out[at][i]
                ds = weight * (np.dot(G, head.moved(e) - z) + grad_lse[at][i])
                # A row of rel_key multiplies the query, or the query of positions.
                factor = "query" if head.position is None else "position_query"
                left = head.q[i] * head.scale
                g["query"][i] += ds * head.scale * key
                if "rel_key" in g:
                    share = ds * row
                    g[factor][i] += share * head.scale if factor == "query" else share
                g["key"][e.key] += ds * left
                g["value"][e.key] += weight * G
                if e.label >= 0 and "rel_key" in g:
                    left = left if head.position is None else head.position[i]
                    g["rel_key"][e.label] += ds * left
                if e.label >= 0 and "rel_value" in g:
                    g["rel_value"][e.label] += weight * G
    return {name: sum_to(x, np.shape(named[name])) for name, x in total.items()}
