"""Gradients in float64 from their formulas, to check the backward kernels against.

Whole matrices, like dense_oracle.py whose probabilities it starts from; nothing is
shared with ``relpos.reference`` or with the kernels, and test_oracle_gradients.py
certifies it by complex steps through the loops of oracle.py. With G and g the gradients
of out and lse, and sums over all pairs that use row l of a table,

    dP_ij = z_ij G_i.(v_j + W[l])          dS_ij = p_ij (dP_ij - sum_j p_ij dP_ij + g_i)
    dq = scale (dS k + dS A)               dA_l = scale sum dS_ij (q_i + v)
    dk = scale (dS' (q + u) + dS' C)       dC_l = scale sum dS_ij k_j
    du = scale sum dS_ij k_j               dv = scale sum dS_ij A[l]
    dV = (z p)' G                          dW_l = sum z_ij p_ij G_i
    dmask = dS                             db_l = sum dS_ij
    dsink = sum_i p_sink_i (g_i - sum_j p_ij dP_ij)
    dlog_decay_t = sum of dS_ij over j < t <= i + query_offset

A position query e takes q's place beside A, without the scale, and has dS A of its own.
"""

from __future__ import annotations

import dense_oracle
import numpy as np
from dense_oracle import (
    Operands,
    dropout_factors,
    gather,
    joined,
    parted,
    table_rows,
)
from operand_arrays import FLOATING
from oracle import BIASES, TABLES, VECTORS, with_defaults


def sum_to(full, shape):
    """Undo NumPy broadcasting: the sum over the axes along which `shape` was spread."""
    full = full.sum(axis=tuple(range(full.ndim - len(shape))))
    axes = tuple(n for n, size in enumerate(shape) if size == 1)
    return full.sum(axis=axes, keepdims=True)


def _per_row(pairs, rows, inside, count):
    """sums[h, i, r]: the sum of pairs[h, i, j] over the j with rows[i, j] == r."""
    heads, length = pairs.shape[:2]
    first = count * np.arange(heads * length).reshape(heads, length, 1)
    kept = np.where(inside, pairs, 0.0)
    sums = np.bincount((first + rows).ravel(), kept.ravel(), heads * length * count)
    return sums.reshape(heads, length, count)


class _Item:
    """One batch item: its operands, and which row of each table a pair uses."""

    def __init__(self, operands, b, options, magnitude):
        size = np.abs if magnitude else np.asarray
        self.magnitude = magnitude
        rows = operands.q, operands.k, operands.v, operands.e, operands.u, operands.w
        self.q, self.k, self.v, self.e, self.u, self.w = (size(x[b]) for x in rows)
        self.scales = [abs(s) if magnitude else s for s in operands.scales]
        self.has_position = options["position_query"] is not None
        self.decayed = operands.decay is not None
        self.tables = {name: size(table[b]) for name, table in operands.tables.items()}
        lq, lk = operands.shape[1:]
        self.relative = np.arange(lk) - (np.arange(lq)[:, None] + operands.offsets[b])
        here = options | {
            "labels": None if operands.labels is None else operands.labels[b]
        }
        self.where = {
            name: table_rows(name, operands.tables, here, self.relative)
            for name in operands.tables
        }

    def moved(self, grad_out):
        """G_i.(v_j + W[l])"""
        pairs = np.einsum("hid,hjd->hij", grad_out, self.v)
        if "rel_value" in self.tables:
            products = np.einsum("hid,hrd->hir", grad_out, self.tables["rel_value"])
            rows, inside = self.where["rel_value"]
            pairs += gather(products, np.broadcast_to(rows, pairs.shape), inside)
        return pairs

    def by_query(self, name, pairs):
        """Sums over j of each query's pairs, per table row: (H, Lq, R)."""
        return _per_row(pairs, *self.where[name], self.tables[name].shape[1])

    def by_key(self, name, pairs):
        """Sums over i of each key's pairs, per table row: (H, Lk, R)."""
        rows, inside = self.where[name]
        turned = pairs.swapaxes(-1, -2)
        return _per_row(turned, rows.T, inside.T, self.tables[name].shape[1])

    def of_scores(self, ds, slope):
        """Everything that follows from dS; slope: of the cap, or 1."""
        grads = {"attn_mask": ds}
        capped = np.where(ds == 0, 0.0, ds * slope)
        scaled, positional = (s * capped for s in self.scales)
        dq = np.einsum("hij,hjd->hid", scaled, self.k)
        grads["pos_bias_u"] = dq.sum(1, keepdims=True)
        dk = np.einsum("hij,hid->hjd", scaled, self.q + self.u)
        if "rel_key" in self.tables:
            sums = self.by_query("rel_key", positional)
            grads["rel_key"] = np.einsum("hir,hid->hrd", sums, self.e + self.w)
            through = np.einsum("hir,hrd->hid", sums, self.tables["rel_key"])
            grads["pos_bias_v"] = through.sum(1, keepdims=True)
            grads["position_query"] = through
            dq = dq if self.has_position else dq + through
        if "rel_query" in self.tables:
            sums = self.by_key("rel_query", scaled)
            grads["rel_query"] = np.einsum("hjr,hjd->hrd", sums, self.k)
            dk = dk + np.einsum("hjr,hrd->hjd", sums, self.tables["rel_query"])
        for name in [n for n in BIASES if n in self.tables]:
            grads[name] = self.by_query(name, ds).sum(1)
        if self.decayed:
            before = np.zeros_like(ds)  # by t: the keys before it
            before[..., 1:] = np.cumsum(ds, -1)[..., :-1]
            grads["log_decay"] = np.where(self.relative <= 0, before, 0.0).sum(1)
            if self.magnitude:  # found as the difference of two sums over all from t on
                rows = np.where(self.relative <= 0, ds.sum(-1, keepdims=True), 0.0)
                keys = np.cumsum(ds.sum(1)[..., ::-1], -1)[..., ::-1]
                grads["log_decay"] = rows.sum(1) + keys
        return grads | {"query": dq, "key": dk}

    def of_weights(self, weights, grad_out):
        """Everything that follows from z p."""
        grads = {"value": np.einsum("hij,hid->hjd", weights, grad_out)}
        if "rel_value" in self.tables:
            sums = self.by_query("rel_value", weights)
            grads["rel_value"] = np.einsum("hir,hid->hrd", sums, grad_out)
        return grads


def _given(grad, shape, flat):
    """An incoming gradient with one flat batch axis; zeros where there is none."""
    full = np.zeros(()) if grad is None else np.asarray(grad, np.float64)
    return np.broadcast_to(full, shape).reshape(flat)


def _products(arguments, b, options, magnitude):
    """The sum of products below the cap, or that of their absolute values."""
    item = _Item(arguments, b, options, magnitude)
    rows = item.q, item.k, item.e
    return dense_oracle.products(
        *rows, item.tables, item.where, item.u, item.w, item.scales
    )


@np.errstate(all="ignore")
def _slope(arguments, b, options, magnitude):
    """1 - tanh^2 of the products below the cap.

    Far above the cap a rounding error of the products moves the slope by many of its
    own: by twice the error over the cap.
    """
    softcap = options["softcap"]
    if softcap is None:
        return 1.0
    slope = np.cosh(_products(arguments, b, options, magnitude=False) / softcap) ** -2
    if not magnitude:
        return slope
    return slope * (1 + _products(arguments, b, options, magnitude=True) / softcap)


@np.errstate(all="ignore")
def _sink_shares(sinks, lse):
    """Return the weight of each row's sink; 0 in a row without a visible key."""
    return np.where(lse == -np.inf, 0.0, np.exp(sinks - lse))


def _fold(name, full, batch, shape):
    """A gradient (B, H, ..) summed to the shape of its input."""
    if name in ("key", "value"):  # query heads that share a key head
        group = full.shape[1] // shape[-3]
        full = full.reshape(len(full), shape[-3], group, *full.shape[2:]).sum(2)
    if name == "sinks" and len(shape) == 1:
        return full.sum((0, 2))
    if name in VECTORS:
        full = full[:, :, 0]
    return sum_to(full.reshape(*batch, *full.shape[1:]), shape)


def gradients(
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    *,
    grad_out=None,
    grad_lse=None,
    magnitude=False,
    **options,
):
    """The gradient of every floating argument given, by name, in its shape.

    magnitude: instead of differences and signed products, sums of absolute values. A
    rounding error is a small multiple of these, also where the terms cancel.
    """
    arguments = (query, key, value, attn_mask, dropout_p, is_causal)
    forward = dense_oracle.attention(*arguments, **options)
    whole = with_defaults(options)
    options, named = joined(whole)
    operands = Operands(query, key, value, attn_mask, options)
    size = np.abs if magnitude else np.asarray
    heads, lq, _ = operands.shape
    rows = (len(operands.q), heads, lq)
    grad_out = size(_given(grad_out, forward.out.shape, (*rows, operands.v.shape[-1])))
    grad_lse = size(_given(grad_lse, forward.lse.shape, (*rows, 1)))
    probabilities = forward.weights.reshape(len(operands.q), *operands.shape)
    z = np.ones(probabilities.shape)
    if dropout_p > 0:
        z = dropout_factors(z.shape, dropout_p, options["rng"])
    items = []
    shares = _sink_shares(operands.sinks, forward.lse.reshape(rows))
    for b, p in enumerate(probabilities):
        item = _Item(operands, b, options, magnitude)
        dp = z[b] * item.moved(grad_out[b])
        mean = (p * dp).sum(-1, keepdims=True)
        row = grad_lse[b] + (mean if magnitude else -mean)
        ds = p * (dp + row)
        items.append(
            {"sinks": shares[b] * row[..., 0]}
            | item.of_scores(ds, _slope(operands, b, options, magnitude))
            | item.of_weights(z[b] * p, grad_out[b])
        )
    inputs = {"query": query, "key": key, "value": value, "attn_mask": attn_mask}
    shapes = {
        name: np.shape(x)
        for name, x in (inputs | options).items()
        if name in FLOATING and x is not None and np.asarray(x).dtype != np.bool_
    }
    folded = {
        name: _fold(name, np.array([x[name] for x in items]), operands.batch, shape)
        for name, shape in shapes.items()
    }
    if named is not None:
        for name in folded.keys() & {*TABLES}:
            shape = np.shape(whole[name])
            folded[name] = parted(name, folded[name], named, shape)
    return folded
