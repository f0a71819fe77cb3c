"""Loops in float64, written from the formulas, to check the kernels against.

Nothing here is shared with ``relpos.reference`` or with the kernels, and nothing is
vectorised over queries or keys: one pair at a time, in the order of the formula

    s_ij  = scale * [(q_i + u).k_j + (q_i + v).A[l] + k_j.C[l]] + b[l] + mask_ij
            + sum of log_decay[t] over t = j + 1 .. i + query_offset, t < Lk
    out_i = sum_j softmax_j(s_i)_j * z_ij * (v_j + W[l])

where (e_i + v).A[l] takes the place of scale * (q_i + v).A[l] with a position query e.
Arguments mean what they mean in ``relpos``. Complex inputs stay complex, so that a
derivative can be taken by a complex step through every float argument.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LARGEST_BIAS = np.finfo(np.float64).max / 4  # sums of two stay finite


class Result(NamedTuple):
    out: np.ndarray
    lse: np.ndarray
    weights: np.ndarray


# ---- dropout: philox4x32-10 (Salmon et al. 2011) --------------------------------


def philox(counter, seed):
    """The four 32-bit words of philox4x32-10 for a counter of four 32-bit words."""
    c0, c1, c2, c3 = (word & 0xFFFFFFFF for word in counter)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (second >> 32) ^ c1 ^ k0,
            second & 0xFFFFFFFF,
            (first >> 32) ^ c3 ^ k1,
            first & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def dropout_seed(rng):
    return int(np.random.default_rng(rng).integers(2**64, dtype=np.uint64))


def dropout_factor(seed, dropout_p, batch_index, head, i, j):
    """z_ij: 0 for a dropped pair, 1 / (1 - dropout_p) for a kept one."""
    word = philox((i, j >> 2, head, batch_index), seed)[j & 3]
    return 1.0 / (1.0 - dropout_p) if word >= int(dropout_p * 2**32) else 0.0


# ---- attention -------------------------------------------------------------------

DEFAULTS = {
    "scale": None,
    "enable_gqa": False,
    "query_offset": None,
    "rel_key": None,
    "rel_query": None,
    "rel_value": None,
    "rel_bias": None,
    "pos_bias_u": None,
    "pos_bias_v": None,
    "min_relative_position": None,
    "buckets": None,
    "beyond": "clip",
    "labels": None,
    "position_query": None,
    "softcap": None,
    "sinks": None,
    "log_decay": None,
    "key_ranges": None,
    "key_lengths": None,
    "key_blocks": None,
    "block_size": None,
    "window": None,
    "rng": None,
}
#: Tables of a number for each row, which are added to the logits; they come last.
BIASES = ("rel_bias",)
TABLES = ("rel_key", "rel_query", "rel_value", *BIASES)
VECTORS = ("pos_bias_u", "pos_bias_v")


def with_defaults(options):
    unknown = set(options) - set(DEFAULTS)
    if unknown:
        raise TypeError(f"unknown keywords: {sorted(unknown)}")
    return DEFAULTS | options


def table_row(relative, first, rows, beyond):
    """The row for a relative position, or None where the pair has no position term."""
    index = relative - first
    if 0 <= index < rows:
        return index
    if beyond == "raise":
        raise IndexError(f"relative position {relative} is outside the table")
    if beyond == "zero":
        return None
    return 0 if index < 0 else rows - 1


def first_position(length, min_relative_position, other_length):
    """Relative position of entry 0 of a table (or of its buckets) of that length.

    other_length: length of the other tables, for a rel_bias; it stays centred on itself
    when its own length is another, odd one.
    """
    foreign = other_length is not None and length % 2 and length != other_length
    if min_relative_position is None or foreign:
        return -((length - 1) // 2)
    return int(min_relative_position)


def _clamped(number):
    """A finite mask or bias entry, kept small enough that sums of them stay finite."""
    if np.isfinite(number.real) and abs(number.real) > LARGEST_BIAS:
        return type(number)(np.sign(number.real) * LARGEST_BIAS)
    return number


def _float_kind(arrays):
    """float64, or complex128 as soon as one array is complex."""
    present = [np.asarray(x) for x in arrays if x is not None]
    return np.result_type(np.float64, *(x for x in present if x.dtype != np.bool_))


def several(labels):
    """The arrays of labels of a call."""
    if labels is None:
        return ()
    return labels if isinstance(labels, tuple) else (labels,)


def of_queries(sinks):
    """Sinks of each head, or of each head and query, with an axis for the queries."""
    sinks = np.asarray(sinks)
    return sinks[:, None] if sinks.ndim == 1 else sinks


def sides_of(block_size):
    """Queries and keys of a block."""
    return block_size if isinstance(block_size, tuple) else (block_size, block_size)


def batch_shape(arrays, mask, options):
    """Common batch axes of all operands; each counts its axes left of the heads."""
    shapes = [x.shape[:-3] for x in arrays]
    shapes += [np.shape(options[name])[:-3] for name in TABLES[:3]]
    shapes += [np.shape(mask)[:-3], *(np.shape(options[name])[:-2] for name in BIASES)]
    shapes += [np.shape(labels)[:-2] for labels in several(options["labels"])]
    names = ("log_decay", "key_ranges", "sinks", *VECTORS)
    shapes += [np.shape(options[name])[:-2] for name in names]
    names = ("position_query", "key_blocks")
    shapes += [np.shape(options[name])[:-3] for name in names]
    shapes += [np.shape(options[name]) for name in ("query_offset", "key_lengths")]
    return np.broadcast_shapes(*shapes)


class _Problem:
    """One call, every operand broadcast to the batch, and its pair by pair terms."""

    def __init__(self, query, key, value, attn_mask, is_causal, options):
        arrays = [np.asarray(x) for x in (query, key, value)]
        names = (*TABLES, *VECTORS, "position_query", "sinks", "log_decay")
        kind = _float_kind([*arrays, attn_mask, *(options[name] for name in names)])
        self.kind, self.is_causal, self.options = kind, is_causal, options
        self.batch = batch = batch_shape(arrays, attn_mask, options)
        heads, lq, dim = arrays[0].shape[-3:]
        lk = arrays[2].shape[-2]
        self.shape = (*batch, heads, lq, lk)
        self.query, self.key, self.value = (
            np.broadcast_to(x, batch + x.shape[-3:]).astype(kind) for x in arrays
        )
        self.group = heads // arrays[1].shape[-3] if options["enable_gqa"] else 1
        scale = options["scale"]
        self.scale = 1.0 / np.sqrt(dim) if scale is None else scale
        self.offsets = self._per_batch("query_offset", 0)
        self.lengths = self._per_batch("key_lengths", lk)
        ranges = [[0, lk]] if options["key_ranges"] is None else options["key_ranges"]
        self.ranges = np.broadcast_to(ranges, (*batch, lq, 2))
        self.mask = attn_mask
        self.blocks = options["key_blocks"]
        if self.blocks is not None:
            tail = np.shape(self.blocks)[-3:]
            self.blocks = np.broadcast_to(self.blocks, (*batch, *tail))
        self.labels = [
            np.broadcast_to(x, (*batch, lq, lk)) for x in several(options["labels"])
        ]
        if attn_mask is not None:
            self.mask = np.broadcast_to(attn_mask, self.shape)
        given = options["position_query"]
        self.position = None
        if given is not None:
            tail = np.shape(given)[-3:]
            self.position = np.broadcast_to(given, (*batch, *tail)).astype(kind)
        vectors = [np.zeros(1) if x is None else x for x in map(options.get, VECTORS)]
        self.u, self.v = (
            np.broadcast_to(x, (*batch, heads, np.shape(x)[-1])).astype(kind)
            for x in vectors
        )
        sinks = -np.inf if options["sinks"] is None else of_queries(options["sinks"])
        self.sinks = np.broadcast_to(sinks, (*batch, heads, lq)).astype(kind)
        decay = np.zeros(()) if options["log_decay"] is None else options["log_decay"]
        self.decay = np.broadcast_to(decay, (*batch, heads, lk)).astype(kind)
        self._place_tables()

    def _per_batch(self, name, default):
        value = self.options[name]
        return np.broadcast_to(default if value is None else value, self.batch)

    def _place_tables(self):
        """Every table as (*batch, H, R, columns), and the position of its entry 0."""
        self.tables, self.first, self.length = {}, {}, {}
        buckets, other = self.options["buckets"], None
        for name in TABLES:  # a bias looks at the length of the others
            if self.options[name] is None:
                continue
            table = np.asarray(self.options[name])
            table = table[..., None] if name in BIASES else table
            full = (*self.batch, self.shape[-3], *table.shape[-2:])
            self.tables[name] = np.broadcast_to(table, full).astype(self.kind)
            length = table.shape[-2] if buckets is None else len(buckets)
            foreign = other if name in BIASES else None
            origin = self.options["min_relative_position"]
            self.first[name] = first_position(length, origin, foreign)
            self.length[name] = other = length

    def entry(self, name, b, h, i, j):
        """Row of table `name` for a pair; None where there is no position term."""
        if name not in self.tables:
            return None
        rows = self.tables[name][b][h]
        if self.labels:
            named = [int(labels[b][i, j]) for labels in self.labels]
            return sum([rows[row] for row in named if row >= 0], np.zeros_like(rows[0]))
        relative = j - (i + int(self.offsets[b]))
        beyond, buckets = self.options["beyond"], self.options["buckets"]
        row = table_row(relative, self.first[name], self.length[name], beyond)
        if row is None:
            return None
        return rows[row if buckets is None else int(buckets[row])]

    def visible(self, b, h, i, j):
        relative = j - (i + int(self.offsets[b]))
        boolean = self.mask is not None and self.mask.dtype == np.bool_
        if boolean and not self.mask[b][h, i, j]:
            return False
        left, right = self.options["window"] or (None, None)
        if left is not None and relative < -left:
            return False
        if right is not None and relative > right:
            return False
        if self.is_causal and relative > 0:
            return False
        if self.blocks is not None:
            bq, bk = sides_of(self.options["block_size"])
            row = h * self.blocks.shape[-3] // self.shape[-3]
            if not self.blocks[b][row, i // bq, j // bk]:
                return False
        begin, end = self.ranges[b][i]
        return begin <= j < end and j < self.lengths[b]

    def logit(self, b, h, i, j):
        """s_ij, -inf where the pair is hidden."""
        if not self.visible(b, h, i, j):
            return self.kind.type(-np.inf)
        q, k = self.query[b][h, i], self.key[b][h // self.group, j]
        total = np.dot(q + self.u[b][h], k)
        a, c = (self.entry(n, b, h, i, j) for n in ("rel_key", "rel_query"))
        if a is not None and self.position is None:
            total = total + np.dot(q + self.v[b][h], a)
        if c is not None:
            total = total + np.dot(k, c)
        total = total * self.scale
        if a is not None and self.position is not None:
            total = total + np.dot(self.position[b][h, i] + self.v[b][h], a)
        if self.options["softcap"] is not None:
            total = self.options["softcap"] * np.tanh(total / self.options["softcap"])
        for bias in (self.entry(n, b, h, i, j) for n in BIASES):
            if bias is not None:
                total = total + _clamped(bias[0])
        for t in range(j + 1, min(i + int(self.offsets[b]) + 1, self.shape[-1])):
            total = total + self.decay[b][h, t]
        if self.mask is not None and self.mask.dtype != np.bool_:
            total = total + _clamped(self.kind.type(self.mask[b][h, i, j]))
        return total

    def moved_value(self, b, h, i, j):
        """v_j + W[l]"""
        w = self.entry("rel_value", b, h, i, j)
        v = self.value[b][h // self.group, j]
        return v if w is None else v + w


def _softmax(logits, kind):
    """lse and the probabilities {j: p} of the logits {j: s} that are not -inf."""
    logits = {j: s for j, s in logits.items() if s.real != -np.inf}
    if not logits:
        return kind(-np.inf), {}
    largest = max(s.real for s in logits.values())
    exps = {j: np.exp(s - largest) for j, s in logits.items()}
    total = sum(exps.values())
    return largest + np.log(total), {j: e / total for j, e in exps.items()}


@np.errstate(all="ignore")
def attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **options
):
    """The definition, pair by pair; returns (out, lse, weights)."""
    options = with_defaults(options)
    attn_mask = None if attn_mask is None else np.asarray(attn_mask)
    problem = _Problem(query, key, value, attn_mask, is_causal, options)
    *_, heads, lq, lk = problem.shape
    seed = dropout_seed(options["rng"]) if dropout_p > 0 else None
    out = np.zeros((*problem.shape[:-1], problem.value.shape[-1]), problem.kind)
    lse = np.zeros(problem.shape[:-1], problem.kind)
    weights = np.zeros(problem.shape, problem.kind)
    for flat, b in enumerate(np.ndindex(problem.batch)):
        for h in range(heads):
            for i in range(lq):
                logits = {j: problem.logit(b, h, i, j) for j in range(lk)}
                logits["sink"] = problem.sinks[b][h, i]
                lse[b][h, i], probabilities = _softmax(logits, problem.kind.type)
                probabilities.pop("sink", None)
                for j, p in probabilities.items():
                    weights[b][h, i, j] = p
                    if seed is not None:
                        p = p * dropout_factor(seed, dropout_p, flat, h, i, j)
                    out[b][h, i] += p * problem.moved_value(b, h, i, j)
    return Result(out, lse, weights)


@np.errstate(all="ignore")
def merge(out_a, lse_a, out_b, lse_b):
    """Join two results over disjoint sets of keys, row by row."""
    outs = [np.asarray(out_a), np.asarray(out_b)]
    lses = [np.asarray(lse_a), np.asarray(lse_b)]
    kind = _float_kind([*outs, *lses])
    out, lse = np.zeros(outs[0].shape, kind), np.zeros(lses[0].shape, kind)
    for row in np.ndindex(lse.shape):
        logits = {n: kind.type(part[row]) for n, part in enumerate(lses)}
        lse[row], shares = _softmax(logits, kind.type)
        for n, share in shares.items():
            out[row] += share * outs[n][row]
    return out, lse
