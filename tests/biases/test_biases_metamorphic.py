"""Biases by offset said in several ways, and what no bias may change."""

from __future__ import annotations

import dense_oracle
import numpy as np
import pytest
from problems import normal, qkv
from tolerances import assert_close

import relpos

pytestmark = pytest.mark.usefixtures("strict_floats")
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])
FAR = np.arange(-4096, 4097)


@both_dtypes
@pytest.mark.parametrize("lq, lk, offset", [(5, 40, 35), (40, 40, 0), (40, 300, -7)])
def test_8_each_bias_equals_the_generic_forms(isa, dtype, lq, lk, offset):
    """As a table by offset, by labels of pairs, by buckets, and as a dense mask."""
    rng = np.random.default_rng(8)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16)]
    length = max(lq + offset, lk - offset)
    weight = normal(rng, 32, 2).astype(dtype)
    r1, r2 = np.abs(normal(rng, 2, 2)).astype(dtype)
    relative = relpos.relative_positions(lq, lk, query_offset=offset)
    row = relative + length - 1
    options = {"query_offset": offset, "is_causal": True}
    for bias in (
        relpos.alibi_bias(2, length, dtype=dtype),
        relpos.t5_bias(weight, length),
        relpos.kerple_bias(r1, r2, length),
        normal(rng, 2, 2 * length - 1).astype(dtype),
    ):
        want = dense_oracle.attention(
            *(x.astype(np.float64) for x in inputs),
            bias[:, row].astype(np.float64),
            **options,
        ).out
        for keywords in (
            {"rel_bias": bias, "beyond": "raise"},
            {"rel_bias": bias, "labels": row},
            {"rel_bias": bias, "buckets": np.arange(2 * length - 1)},
            {"attn_mask": bias[:, row]},
        ):
            got = relpos.attention(*inputs, **keywords, **options)
            assert_close(got, want, "forward")
    settings = {"rel_bias": weight.T, "buckets": relpos.t5_bucket(FAR)}
    by_bucket = relpos.attention(*inputs, **settings, **options)
    whole = relpos.attention(
        *inputs, rel_bias=relpos.t5_bias(weight, length), **options
    )
    assert_close(by_bucket, whole, "same_formula")


@both_dtypes
@pytest.mark.parametrize("lq, lk, offset", [(5, 40, 35), (40, 300, -7)])
def test_8_shaw_keys_equal_the_generic_forms(isa, dtype, lq, lk, offset):
    """As clipped rows, by labels of pairs, by buckets, and as a row per offset."""
    rng = np.random.default_rng(8)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16)]
    k, reach = 4, max(lq + offset, lk - offset) - 1
    table = normal(rng, 2 * k + 1, 16).astype(dtype)
    row = np.clip(np.arange(-reach, reach + 1), -k, k) + k
    relative = relpos.relative_positions(
        lq, lk, max_relative_position=k, query_offset=offset
    )
    shaw = relpos.shaw_attention(*inputs, table, query_offset=offset)
    for keywords in (
        {"rel_key": table, "labels": relative + k},
        {"rel_key": table, "buckets": row, "beyond": "raise"},
        {"rel_key": table[row], "beyond": "raise"},
    ):
        got = relpos.attention(*inputs, **keywords, query_offset=offset)
        assert_close(got, shaw, "same_formula")


@both_dtypes
def test_12_a_constant_added_to_a_bias_changes_nothing(isa, dtype):
    rng = np.random.default_rng(12)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 3, 40, 40, 16)]
    bias = relpos.alibi_bias(3, 40, dtype=dtype)
    moved = bias + np.dtype(dtype).type(3)
    got, want = (
        relpos.attention(*inputs, rel_bias=b, return_lse=True) for b in (moved, bias)
    )
    assert_close(got.out, want.out, "same_formula")
    assert_close(got.lse, want.lse + np.dtype(dtype).type(3), "same_formula")


def test_13_the_gradient_of_a_bias_sums_to_zero():
    """So that of T5's weights does, and that of a bias of one slope is what is left."""
    rng = np.random.default_rng(13)
    inputs = qkv(rng, (2,), 3, 20, 30, 4)
    bias = relpos.t5_bias(normal(rng, 32, 3), 30)
    result = relpos.attention(
        *inputs, rel_bias=bias, query_offset=10, return_context=True
    )
    grad = result.context.backward(normal(rng, 2, 3, 20, 4)).rel_bias
    weight = relpos.t5_bias_backward(grad, 32)
    assert np.abs(weight.sum(0)).max() <= 1e-14 * np.abs(grad).sum()
