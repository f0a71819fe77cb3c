"""Python's part of `relpos.attention`: kinds of options, what `beyond` checks, axes.

Tables, masks and memory layouts are tested with the kernels, in
test_attention_tables.py and test_attention_layouts.py. Sizes here are small, and the
truth is the loops of oracle.py.
"""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from problems import normal, qkv, run
from tolerances import assert_bitwise, assert_close, assert_results_close

import relpos

H, LQ, D, DV = 4, 5, 6, 3


def check(*inputs, **options):
    """out, lse and weights against the loops."""
    got, want = run(*inputs, **options), oracle.attention(*inputs, **options)
    assert_results_close(got, want)


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
    "masks of float16": {"attn_mask": 2 * np.tri(LQ, dtype=np.float16)},
    "a mask of one number": {"attn_mask": np.array(True)},
    "lists": {"rel_key": [[0.5] * D] * 3, "rel_bias": [0.1, 0.2, 0.3]},
    "buckets of uint8": {
        "rel_bias": np.arange(4.0),
        "buckets": np.array([2, 2, 0, 1, 3, 3, 1], np.uint8),
    },
    "big-endian labels": {
        "rel_bias": np.arange(4.0),
        "labels": (np.arange(LQ) % 4).astype(">i4")[None].repeat(LQ, 0),
    },
    "a table of even length": {
        "rel_bias": np.arange(4.0),
        "min_relative_position": -3,
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(rng, name):
    check(*square(rng), **OPTIONS[name])


def test_dropout_seed(rng):
    query, key, value = square(rng)
    check(query, key, value, dropout_p=0.4, rng=3)
    generator = np.random.default_rng(3)
    first = relpos.attention(query, key, value, dropout_p=0.4, rng=generator)
    assert_bitwise(first, relpos.attention(query, key, value, dropout_p=0.4, rng=3))
    advanced = np.random.default_rng(3)
    advanced.integers(2**64, dtype=np.uint64)
    assert generator.bit_generator.state == advanced.bit_generator.state
    relpos.attention(query, key, value, rng=generator)  # without dropout, no seed
    assert generator.bit_generator.state == advanced.bit_generator.state


# ---- beyond="raise" ---------------------------------------------------------------

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


@pytest.mark.parametrize(("options", "low", "high"), REACH)
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


def test_tokens_may_be_lists_and_read_only(rng):
    data = square(rng)
    want = relpos.attention(*data)
    for array in data:
        array.flags.writeable = False
    assert_bitwise(relpos.attention(*data), want)
    assert_bitwise(relpos.attention(*(x.tolist() for x in data)), want)


def test_stretched_float16_is_converted_once(rng):
    halves = [
        np.broadcast_to(x[:1, :1].astype(np.float16), x.shape) for x in square(rng)
    ]
    bias = np.broadcast_to(normal(rng, 5).astype(np.float16), (2, H, 5))
    want = relpos.attention(*(x.copy() for x in halves), rel_bias=bias.copy())
    assert_bitwise(relpos.attention(*halves, rel_bias=bias), want)


@pytest.mark.parametrize("name", ["key_lengths", "query_offset"])
def test_the_axes_of_integers_of_items_are_batch_axes(name):
    """A list of one number makes a batch of one, as the axes of any other argument."""
    x = np.random.default_rng(0).standard_normal((2, 5, 3))
    want = relpos.attention(x, x, x, **{name: 3}, is_causal=True)
    assert want.shape == (2, 5, 3)
    got = relpos.attention(x, x, x, **{name: [3]}, is_causal=True)
    np.testing.assert_array_equal(got, want[None])
