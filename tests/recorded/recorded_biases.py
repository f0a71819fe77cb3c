"""Adapters for tables of biases and buckets: no attention in the file."""

from __future__ import annotations

import numpy as np
from recorded import families


def outputs(case):
    """(name split at its underscores, array) of every output of the file."""
    for name in case.arrays:
        if name.startswith("out_"):
            yield name.split("_")[1:], case.true(name)


def alibi_slopes(lib, case):
    """Seven upstreams; names end in h<heads>, some in max<exponent> after it."""
    for (upstream, heads, *most), want in outputs(case):
        exponent = float(most[0].removeprefix("max")) if most else 8.0
        got = lib.alibi_slopes(int(heads[1:]), max_exponent=exponent, dtype=case.dtype)
        yield f"{upstream} {heads}", got, want


def per_pair(lib, case, heads, lq, lk, offset):
    """(relative positions, biases (1, H, Lq, Lk)) of ALiBi."""
    bias = lib.alibi_bias(heads, lq + lk, dtype=case.dtype)
    relative = lib.relative_positions(lq, lk, query_offset=offset)
    return relative, bias[None, :, relative + lq + lk - 1]


def sizes(parts):
    return (int(part[1:]) for part in parts)


def alibi_neox(lib, case):
    """0 above the diagonal; queries are the last of the keys."""
    for parts, want in outputs(case):
        heads, lq, lk = sizes(parts)
        relative, got = per_pair(lib, case, heads, lq, lk, lk - lq)
        yield str(parts), np.where(relative <= 0, got, got.dtype.type(0)), want


def alibi_onmt(lib, case):
    """Once cached, it counts queries from 0, whatever their true position."""
    for (state, *parts), want in outputs(case):
        heads, lq, lk = sizes(parts)
        offset = lk - lq if state == "fresh" else 0
        yield state, per_pair(lib, case, heads, lq, lk, offset)[1], want


def alibi_bloom(lib, case):
    """+slope * position of the key, as seen from position 0; padding is at 0."""
    mask = case.true("in_token_mask")
    position = (np.cumsum(mask, axis=-1) - 1) * mask
    for (heads,), want in outputs(case):
        bias = lib.alibi_bias(int(heads[1:]), mask.shape[-1], dtype=case.dtype)
        got = -bias[:, position + mask.shape[-1] - 1].swapaxes(0, 1)
        yield heads, got.reshape(want.shape), want


def alibi_ft5(lib, case):
    """asym: half of the heads see the past, half the future, with the same slopes."""
    for (kind, name), want in outputs(case):
        heads, length = int(name[1:]), want.shape[-1]
        if kind == "sym":
            yield name, per_pair(lib, case, heads, length, length, 0)[1], want
            continue
        relative, half = per_pair(lib, case, heads // 2, length, length, 0)
        hidden = half.dtype.type(-np.inf)
        past = np.where(relative <= 0, half, hidden)
        future = np.where(relative >= 0, half, hidden)
        yield name, np.concatenate([past, future], axis=1), want


def t5_bucket(lib, case):
    """Names: upstream, precision of its logarithm, direction, buckets, distance."""
    relative = case.true("in_relative_position")
    for (*name, direction, count, distance), want in outputs(case):
        got = lib.t5_bucket(
            relative,
            bidirectional=direction == "bi",
            num_buckets=int(count),
            max_distance=int(distance),
        )
        yield f"{name} {count} {distance}", got, want


def deb_bucket(lib, case):
    """Microsoft's code (ms) clips to the last position before it counts."""
    for (upstream, *_, size, last), want in outputs(case):
        relative, farthest = case.true("in_relative_position"), int(last) - 1
        if upstream == "ms":
            relative = np.clip(relative, -farthest, farthest)
        sizes = {"bucket_size": int(size), "max_position": int(last)}
        yield f"{upstream} {sizes}", lib.deberta_bucket(relative, **sizes), want


FAMILIES = families(vars(), "lib", "case")
