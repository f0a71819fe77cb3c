"""Python's part of `relpos.attention`: options, tables, broadcasting, layouts.

The kernels have their own tests; sizes here are small, and the truth is the loops of
oracle.py.
"""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from problems import normal, qkv
from tolerances import assert_bitwise, assert_close, assert_lse_close

import relpos

H, LQ, LK, D, DV = 4, 5, 7, 6, 3


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def check(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **options):
    """out, lse and weights against the loops."""
    positional = (query, key, value, attn_mask, dropout_p, is_causal)
    got = relpos.attention(*positional, return_lse=True, return_weights=True, **options)
    want = oracle.attention(*positional, **options)
    assert_close(got.out, want.out, "forward")
    assert_lse_close(got.lse, want.lse)
    assert_close(got.weights, want.weights, "forward")
    return got


# ---- options ----------------------------------------------------------------------


def square(rng, batch=(2,), length=LQ):
    return qkv(rng, batch, H, length, length, D, DV)


OPTIONS = {
    "plain": {},
    "scale": {"scale": 0.3},
    "scale zero": {"scale": 0},
    "causal": {"is_causal": True},
    "window": {"window": (2, 1)},
    "window, one side": {"window": [None, 0]},
    "window, both open": {"window": (None, None)},
    "window, huge": {"window": (10**30, 1)},
    "causal in a window": {"window": (2, 3), "is_causal": True},
    "window hides all": {"window": (0, 0), "query_offset": 100},
    "offset": {"query_offset": -2, "is_causal": True},
    "offset per item": {"query_offset": [3, -1], "is_causal": True},
    "offset, unsigned": {"query_offset": np.uint8(3), "window": (4, 4)},
    "lengths": {"key_lengths": [0, 3]},
    "lengths, one": {"key_lengths": 2},
    "0-d lengths": {"key_lengths": np.array(2)},
    "true scale type": {"scale": np.float32(0.25)},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(rng, name):
    check(*square(rng), **OPTIONS[name])


@pytest.mark.parametrize("kind", [bool, np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(), (LK,), (LQ, 1), (H, LQ, LK), (2, 1, 1, LK), (2, H, LQ, LK)]
)
def test_masks(rng, kind, shape):
    mask = rng.random(shape) < 0.7
    if kind is not bool:
        mask = np.where(mask, rng.standard_normal(shape), -np.inf).astype(kind)
    check(*qkv(rng, (2,), H, LQ, LK, D, DV), attn_mask=mask)


def test_grouped_heads(rng):
    query, key, value = qkv(rng, (2,), 6, LQ, LK, D, DV, key_heads=2)
    got = check(query, key, value, enable_gqa=True)
    repeated = relpos.attention(query, key.repeat(3, axis=1), value.repeat(3, axis=1))
    assert_close(got.out, repeated, "same_formula")


def test_dropout_seed(rng):
    query, key, value = square(rng)
    check(query, key, value, dropout_p=0.4, rng=3)
    generator = np.random.default_rng(3)
    first = relpos.attention(query, key, value, dropout_p=0.4, rng=generator)
    assert_bitwise(first, relpos.attention(query, key, value, dropout_p=0.4, rng=3))
    drawn = np.random.default_rng(3)
    drawn.integers(2**64, dtype=np.uint64)
    assert generator.bit_generator.state == drawn.bit_generator.state
    relpos.attention(query, key, value, rng=generator)  # drops nothing: draws nothing
    assert generator.bit_generator.state == drawn.bit_generator.state


# ---- tables -----------------------------------------------------------------------


def all_tables(rng, rows, *lead, bias_rows=None):
    return {
        "rel_key": normal(rng, *lead, rows, D),
        "rel_query": normal(rng, *lead, rows, D),
        "rel_value": normal(rng, *lead, rows, DV),
        "rel_bias": normal(rng, *lead, rows if bias_rows is None else bias_rows),
    }


@pytest.mark.parametrize("lead", [(), (H,), (1,), (2, H), (2, 1), (1, H)])
def test_tables_shared_per_head_per_item(rng, lead):
    vectors = {"pos_bias_u": normal(rng, D), "pos_bias_v": normal(rng, H, D)}
    check(*square(rng), **all_tables(rng, 5, *lead), **vectors)
    vectors = {name: normal(rng, *lead, D) for name in vectors}
    check(*square(rng), **all_tables(rng, 5), **vectors)


@pytest.mark.parametrize("beyond", ["clip", "zero"])
@pytest.mark.parametrize("origin", [None, -1, -40, 30])
def test_origin(rng, beyond, origin):
    options = {"beyond": beyond, "min_relative_position": origin}
    check(*square(rng), **options, **all_tables(rng, 5))
    check(*square(rng), **options, **all_tables(rng, 5, bias_rows=3))


def test_origin_of_even_tables(rng):
    check(*square(rng), **all_tables(rng, 4), min_relative_position=-3)
    check(*square(rng), rel_bias=normal(rng, 4), min_relative_position=-3)


@pytest.mark.parametrize("beyond", ["clip", "zero"])
def test_tables_of_different_lengths_are_each_centred(rng, beyond):
    tables = {
        "rel_key": normal(rng, 3, D),
        "rel_query": normal(rng, H, 1, D),
        "rel_value": normal(rng, 2, H, 7, DV),
        "rel_bias": normal(rng, 5),
    }
    check(*square(rng), beyond=beyond, **tables)


@pytest.mark.parametrize("beyond", ["clip", "zero"])
@pytest.mark.parametrize("origin", [None, -6])
@pytest.mark.parametrize("lead", [(), (2, H)])
def test_buckets(rng, beyond, origin, lead):
    buckets = np.array([2, 2, 0, 1, 3, 3, 1], np.uint8)
    options = {"beyond": beyond, "min_relative_position": origin, "buckets": buckets}
    check(*square(rng), **options, **all_tables(rng, 4, *lead))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, ">i4"])
@pytest.mark.parametrize("shape", [(LQ, LK), (1, LK), (LQ, 1), (2, LQ, LK)])
def test_labels(rng, dtype, shape):
    labels = rng.integers(-2, 4, shape).astype(dtype)
    tables = all_tables(rng, 4, H, bias_rows=6)
    check(*qkv(rng, (2,), H, LQ, LK, D, DV), labels=labels, **tables)


def test_labels_with_causal_mask_and_offset(rng):
    labels = rng.integers(-1, 3, (LQ, LK))
    options = {"labels": labels, "query_offset": 2, "is_causal": True}
    check(*qkv(rng, (), H, LQ, LK, D, DV), **options, **all_tables(rng, 3))


REACH = [  # visible relative positions run from low to high
    ({}, -4, 4),
    ({"is_causal": True}, -4, 0),
    ({"window": (2, 1)}, -2, 1),
    ({"window": (2, 1), "is_causal": True}, -2, 0),
    ({"query_offset": 3}, -7, 1),
    ({"query_offset": [3, -1]}, -7, 5),
    ({"key_lengths": 2}, -4, 1),
    ({"key_lengths": [0, 3], "query_offset": [90, 0]}, -4, 2),
    ({"key_lengths": [1, 5], "query_offset": [0, 4]}, -8, 0),
]


@pytest.mark.parametrize("options, low, high", REACH)
def test_beyond_raise_knows_the_visible_pairs(rng, options, low, high):
    data = square(rng)
    table = normal(rng, high - low + 1, D)
    fits = {"rel_key": table, "min_relative_position": low}
    check(*data, **options, **fits, beyond="raise")
    for origin, rows in ((low + 1, table[1:]), (low, table[:-1])):
        short = {"rel_key": rows, "min_relative_position": origin}
        if len(rows):
            with pytest.raises(IndexError, match=f"rel_key: .* from {low} to {high}"):
                relpos.attention(*data, **options, **short, beyond="raise")


def test_beyond_raise_does_not_read_the_mask(rng):
    mask = np.eye(LQ, dtype=bool)  # only relative position 0 is left
    with pytest.raises(IndexError, match="rel_bias"):
        relpos.attention(*square(rng), mask, rel_bias=[0.0], beyond="raise")


def test_beyond_raise_where_nothing_is_visible(rng):
    query, key, value = square(rng)
    options = {"rel_bias": [0.0], "beyond": "raise"}
    check(query, key, value, key_lengths=0, **options)
    check(query, key, value, window=(0, 0), query_offset=50, **options)
    check(query[:0], key[:0], value[:0], **options)


# ---- broadcasting -----------------------------------------------------------------


def test_batch_axes_broadcast(rng):
    query, key, _ = qkv(rng, (3, 1), H, LQ, LK, D)
    value = normal(rng, 2, H, LK, DV)
    got = check(query, key, value, query_offset=[[2], [0], [1]], is_causal=True)
    assert got.out.shape == (3, 2, H, LQ, DV)
    assert got.lse.shape == (3, 2, H, LQ)
    assert got.weights.shape == (3, 2, H, LQ, LK)


EXPANDING = {
    "attn_mask": lambda rng: normal(rng, 3, 1, LQ, LQ),
    "rel_key": lambda rng: normal(rng, 3, H, 5, D),
    "rel_bias": lambda rng: normal(rng, 3, 1, 5),
    "labels": lambda rng: rng.integers(0, 5, (3, LQ, LQ)),
    "query_offset": lambda rng: np.arange(3),
    "key_lengths": lambda rng: np.arange(3),
}


@pytest.mark.parametrize("name", EXPANDING)
def test_every_argument_brings_batch_axes(rng, name):
    query, key, value = square(rng, ())
    options = {name: EXPANDING[name](rng)}
    if name in ("labels", "query_offset"):
        options["rel_value"] = normal(rng, 5, DV)
    got = relpos.attention(query, key, value, **options)
    assert got.shape == (3, H, LQ, DV)
    stacked = (np.broadcast_to(x, (3, *x.shape)) for x in (query, key, value))
    assert_close(got, oracle.attention(*stacked, **options).out, "forward")


def views(array):
    """The same numbers in every memory layout."""
    unaligned = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype)
    unaligned = unaligned.reshape(array.shape)
    unaligned[...] = array
    swapped = array.astype(array.dtype.newbyteorder())
    read_only = array.copy()
    read_only.flags.writeable = False
    return {
        "fortran": np.asfortranarray(array),
        "transposed": array.swapaxes(0, -1).copy().swapaxes(0, -1),
        "negative": np.flip(np.ascontiguousarray(np.flip(array))),
        "sparse": np.repeat(array, 3, axis=-1)[..., ::3],
        "unaligned": unaligned,
        "byte swapped": swapped,
        "read only": read_only,
        "list": array.tolist(),
    }


@pytest.mark.parametrize("layout", views(np.zeros(1)))
def test_memory_layouts(rng, layout):
    query, key, value = square(rng)
    mask = normal(rng, H, LQ, LQ)
    tables = all_tables(rng, 5, H)
    labels = rng.integers(-1, 5, (2, LQ, LQ))
    want = relpos.attention(query, key, value, mask, labels=labels, **tables)
    data = [views(x)[layout] for x in (query, key, value, mask)]
    tables = {name: views(table)[layout] for name, table in tables.items()}
    got = relpos.attention(*data, labels=views(labels)[layout], **tables)
    assert_bitwise(got, want)


def test_zero_strides(rng):
    stretched = [np.broadcast_to(x[:1, :1], x.shape) for x in square(rng)]
    bias = np.broadcast_to(normal(rng, 5), (2, H, 5))
    check(*stretched, rel_bias=bias)
    halves = [np.broadcast_to(x[:1, :1].astype(np.float16), x.shape) for x in stretched]
    want = relpos.attention(
        *(x.copy() for x in halves), rel_bias=bias.astype(np.float16)
    )
    assert_bitwise(relpos.attention(*halves, rel_bias=bias.astype(np.float16)), want)
