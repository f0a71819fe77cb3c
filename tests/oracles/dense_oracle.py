"""The oracle of oracle.py for sizes at which loops take too long: whole matrices.

Plain float64 NumPy that stores every Lq x Lk matrix; test_oracle.py checks it against
the loops. Arguments mean what they mean in ``relpos.attention``.
"""

from __future__ import annotations

import math

import numpy as np
from oracle import (
    BIASES,
    LARGEST_BIAS,
    TABLES,
    VECTORS,
    Result,
    batch_shape,
    dropout_seed,
    of_queries,
    sides_of,
    with_defaults,
)


def philox(counter, seed):
    """oracle.philox for arrays of counters (uint64 arrays holding 32-bit words)."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in counter)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1 = (second >> shift) ^ c1 ^ np.uint64(k0), second & low
        c2, c3 = (first >> shift) ^ c3 ^ np.uint64(k1), first & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1)


def dropout_factors(shape, dropout_p, rng):
    """z of shape (B, H, Lq, Lk), B flattened."""
    batch, heads, lq, lk = shape
    quarter = np.arange(-(-lk // 4))
    words = philox(
        np.meshgrid(np.arange(lq), quarter, np.arange(heads), np.arange(batch)),
        dropout_seed(rng),
    )  # axes: quarter, query, head, batch, word
    words = words.transpose(3, 2, 1, 0, 4)
    words = words.reshape(batch, heads, lq, 4 * len(quarter))[..., :lk]
    return (words >= int(dropout_p * 2**32)) / (1.0 - dropout_p)


def joined(options):
    """The options of a call with a tuple of labels as those of one array, and how.

    A table gets a row for whatever rows the arrays name together somewhere; row n of
    the second result lists these, -1 where one names none.
    """
    labels = options["labels"]
    if not isinstance(labels, tuple):
        return options, None
    base = 2 + max(int(np.max(x, initial=-1)) for x in labels)
    codes = sum(
        (np.maximum(x, -1).astype(int) + 1) * base**n for n, x in enumerate(labels)
    )
    used, index = np.unique(codes, return_inverse=True)
    named = used[:, None] // base ** np.arange(len(labels)) % base - 1
    found = options | {"labels": index.reshape(codes.shape)}
    for name in TABLES:
        if options[name] is not None:
            table = np.moveaxis(options[name], row_axis(name), 0)
            rows = [table[n[n >= 0]].sum(0) for n in named]
            rows = np.array(rows).reshape(len(named), *table.shape[1:])
            found[name] = np.moveaxis(rows, 0, row_axis(name))
    return found, named


def parted(name, gradient, named, shape):
    """The gradient of a table from that of its joined rows."""
    table = np.moveaxis(np.zeros(shape), row_axis(name), 0)
    pairs = zip(np.moveaxis(gradient, row_axis(name), 0), named, strict=True)
    for row, places in pairs:
        for place in places[places >= 0]:
            table[place] += row
    return np.moveaxis(table, 0, row_axis(name))


def row_axis(name):
    return -1 if name in BIASES else -2


def _rows(relative, length, first, beyond):
    """Table rows and where they count, for a matrix of relative positions."""
    index = relative - first
    inside = (index >= 0) & (index < length)
    if beyond != "zero":  # "raise": whatever is outside is hidden
        inside = np.ones_like(inside)
    return np.clip(index, 0, length - 1), inside


def gather(products, rows, inside):
    """products[..., i, rows[i, j]], zero where the pair has no position term."""
    taken = np.take_along_axis(products, np.broadcast_to(rows, rows.shape), axis=-1)
    return np.where(inside, taken, 0.0)


def table_rows(name, tables, options, relative):
    """Rows and inside of one table, by labels, buckets or relative positions."""
    if options["labels"] is not None:
        labels = options["labels"]
        return np.maximum(labels, 0), labels >= 0
    sizes = {name: table.shape[2] for name, table in tables.items()}
    first_length = next(iter(sizes.values()))
    buckets, first = options["buckets"], options["min_relative_position"]
    length = sizes[name] if buckets is None else len(buckets)
    foreign = name in BIASES and buckets is None and first_length != length
    if first is None or (foreign and length % 2):
        first = -((length - 1) // 2)
    rows, inside = _rows(relative, length, first, options["beyond"])
    return (rows if buckets is None else np.asarray(buckets)[rows]), inside


def products(q, k, e, tables, where, u, v, scales):
    """One batch item: what a cap would be on, (H, Lq, Lk).

    e and scales[1]: what rel_key is dotted with, and its factor.
    """
    scores = np.einsum("hid,hjd->hij", q + u, k)
    if "rel_query" in tables:
        products = np.einsum("hjd,hrd->hjr", k, tables["rel_query"])
        rows, inside = where["rel_query"]
        turned = np.broadcast_to(rows, scores.shape).swapaxes(-1, -2)
        scores += gather(products, turned, inside.swapaxes(-1, -2)).swapaxes(-1, -2)
    scores = scores * scales[0]
    if "rel_key" in tables:
        products = np.einsum("hid,hrd->hir", e + v, tables["rel_key"]) * scales[1]
        rows, inside = where["rel_key"]
        scores += gather(products, np.broadcast_to(rows, scores.shape), inside)
    return scores


def _logits(q, k, e, tables, where, u, v, scales, softcap):
    """One batch item: the sum of the formula, before the mask, (H, Lq, Lk)."""
    scores = products(q, k, e, tables, where, u, v, scales)
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    for name in [n for n in BIASES if n in tables]:
        rows, inside = where[name]
        bias = np.clip(tables[name], -LARGEST_BIAS, LARGEST_BIAS)
        bias = np.where(tables[name] == -np.inf, -np.inf, bias)
        scores += np.where(inside, bias[:, rows], 0.0)
    return scores


def _decay(log_decay, relative):
    """C(i + query_offset) - C(j), C the sums from the start, with more digits."""
    sums = np.zeros((len(log_decay), log_decay.shape[1] + 1), np.longdouble)
    np.cumsum(log_decay, axis=1, dtype=np.longdouble, out=sums[:, 1:])
    positions = np.clip(1 - relative[:, 0], 0, log_decay.shape[1])
    return (sums[:, positions][..., None] - sums[:, None, 1:]).astype(float)


def _output(factors, v, tables, where):
    out = np.einsum("hij,hjd->hid", factors, v)
    if "rel_value" in tables:
        rows, inside = where["rel_value"]
        sums = np.zeros((*factors.shape[:2], tables["rel_value"].shape[-2]))
        heads, queries, _ = np.indices(factors.shape, sparse=True)
        rows = np.broadcast_to(rows, factors.shape)
        np.add.at(sums, (heads, queries, rows), np.where(inside, factors, 0.0))
        out += np.einsum("hir,hrd->hid", sums, tables["rel_value"])
    return out


def _hidden(relative, is_causal, window, key_length, lk):
    hidden = np.arange(lk) >= key_length + np.zeros_like(relative)
    if is_causal:
        hidden |= relative > 0
    left, right = window if window is not None else (None, None)
    if left is not None:
        hidden |= relative < -left
    if right is not None:
        hidden |= relative > right
    return hidden


def _full(array, batch, shape):
    full = np.broadcast_to(np.asarray(array, np.float64), (*batch, *shape))
    return full.reshape(math.prod(batch), *shape)


class Operands:
    """Every operand in float64 with one flat batch axis."""

    def __init__(self, query, key, value, attn_mask, options):
        arrays = [np.asarray(x) for x in (query, key, value)]
        batch = batch_shape(arrays, attn_mask, options)
        heads, lq, dim = arrays[0].shape[-3:]
        key_heads, lk = arrays[2].shape[-3:-1]
        self.batch, self.shape = batch, (heads, lq, lk)
        self.q, k, v = (_full(x, batch, x.shape[-3:]) for x in arrays)
        self.k, self.v = (x.repeat(heads // key_heads, 1) for x in (k, v))
        self.tables = {}
        for name in TABLES:
            if options[name] is not None:
                axes = 1 if name in BIASES else 2
                tail = np.shape(options[name])[-axes:]
                self.tables[name] = _full(options[name], batch, (heads, *tail))
        offset, lengths = options["query_offset"], options["key_lengths"]
        self.offsets = _full(0 if offset is None else offset, batch, ()).astype(int)
        self.lengths = _full(lk if lengths is None else lengths, batch, ()).astype(int)
        decay = options["log_decay"]
        self.decay = None if decay is None else _full(decay, batch, (heads, lk))
        self.labels = options["labels"]
        if self.labels is not None:
            self.labels = _full(self.labels, batch, (lq, lk)).astype(int)
        vectors = [np.zeros(1) if x is None else x for x in map(options.get, VECTORS)]
        self.u, self.w = (
            _full(x, batch, (heads, np.shape(x)[-1]))[..., None, :] for x in vectors
        )
        scale = dim**-0.5 if options["scale"] is None else options["scale"]
        e = options["position_query"]
        self.e = self.q if e is None else _full(e, batch, np.shape(e)[-3:])
        self.scales = scale, scale if e is None else 1.0
        sinks = -np.inf if options["sinks"] is None else of_queries(options["sinks"])
        self.sinks = _full(sinks, batch, (heads, lq))
        self.mask = _full(_additive(attn_mask), batch, self.shape)
        if options["key_ranges"] is not None:
            begin, end = np.moveaxis(
                _full(options["key_ranges"], batch, (lq, 2)), -1, 0
            )
            inside = (np.arange(lk) >= begin[..., None]) & (
                np.arange(lk) < end[..., None]
            )
            self.mask = np.where(inside[:, None], self.mask, -np.inf)
        if options["key_blocks"] is not None:
            bq, bk = sides_of(options["block_size"])
            blocks = np.asarray(options["key_blocks"])
            blocks = blocks.repeat(heads // blocks.shape[-3], -3)
            blocks = blocks.repeat(min(bq, lq), -2)[..., :lq, :]
            blocks = blocks.repeat(min(bk, lk), -1)[..., :lk]
            shown = _full(blocks, batch, (heads, lq, lk))
            self.mask = np.where(shown, self.mask, -np.inf)


def _additive(mask):
    """A mask as numbers to add."""
    if mask is None:
        return np.zeros(())
    mask = np.asarray(mask)
    if mask.dtype == np.bool_:
        return np.where(mask, 0.0, -np.inf)
    return np.where(mask == -np.inf, mask, np.clip(mask, -LARGEST_BIAS, LARGEST_BIAS))


def _softmax(scores, sinks):
    """lse and probabilities (H, Lq, Lk) of rows with their sinks (H, Lq).

    All -inf: -inf and zeros.
    """
    scores = np.concatenate([scores, sinks[..., None]], axis=-1)
    top = np.max(scores, axis=-1, keepdims=True)
    top = np.where(top == -np.inf, 0.0, top)
    exps = np.exp(scores - top)
    total = exps.sum(-1, keepdims=True)
    weights = exps / np.where(total == 0, 1.0, total)
    return (top + np.log(total))[..., 0], weights[..., :-1]


@np.errstate(all="ignore")
def attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **options
):
    """(out, lse, weights) of relpos.attention."""
    options, _ = joined(with_defaults(options))
    operands = Operands(query, key, value, attn_mask, options)
    heads, lq, lk = operands.shape
    z = np.ones(())
    if dropout_p > 0:
        z = dropout_factors(
            (len(operands.q), *operands.shape), dropout_p, options["rng"]
        )
    z = np.broadcast_to(z, (len(operands.q), *operands.shape))
    results = []
    for b, offset in enumerate(operands.offsets):
        relative = np.arange(lk) - (np.arange(lq)[:, None] + offset)
        here = options | {
            "labels": None if operands.labels is None else operands.labels[b]
        }
        where = {
            name: table_rows(name, operands.tables, here, relative)
            for name in operands.tables
        }
        tables = {name: table[b] for name, table in operands.tables.items()}
        rows = operands.q[b], operands.k[b], operands.e[b]
        of = (*rows, tables, where, operands.u[b], operands.w[b], operands.scales)
        scores = _logits(*of, options["softcap"])
        if operands.decay is not None and lk:
            scores = scores + _decay(operands.decay[b], relative)
        hidden = _hidden(
            relative, is_causal, options["window"], operands.lengths[b], lk
        )
        scores = np.where(hidden, -np.inf, scores + operands.mask[b])
        lse, weights = _softmax(scores, operands.sinks[b])
        results.append(
            (_output(weights * z[b], operands.v[b], tables, where), lse, weights)
        )
    shapes = (operands.v.shape[-1:], (), (lk,))
    return Result(
        *(
            np.array([result[n] for result in results]).reshape(
                *operands.batch, heads, lq, *tail
            )
            for n, tail in enumerate(shapes)
        )
    )
