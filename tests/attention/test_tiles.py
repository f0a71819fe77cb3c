"""Tiles of the forward: their ragged ends, sums of half the terms, running maxima.

A tile is 512 keys by 16 to 48 queries.
"""

from __future__ import annotations

import functools

import dense_oracle
import numpy as np
import pytest
from problems import DTYPES, TERMS, cast, check_all, known, normal, qkv, run, terms
from tolerances import (
    assert_bitwise,
    assert_close,
    assert_lse_close,
    assert_results_close,
)

pytestmark = pytest.mark.usefixtures("strict_floats")
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


# ---- ragged ends ---------------------------------------------------------------------

LENGTHS = (511, 512, 513, 1023, 1025)
VISIBLE = {
    "causal": {"is_causal": True},
    "window": {"window": (100, 7)},
    "dropout": {"dropout_p": 0.3, "rng": 5},
}


def ragged(kind, lk, seen):
    """Queries at the last keys; no length is one of whole vectors or tiles."""
    lq, d, dv = 2 * 48 + 5, 13, 11
    settings = {"offset": lk - lq, "size": 0.5} | VISIBLE[seen]
    return known((lk, TERMS.index(kind)), kind, (), 2, lq, lk, d, dv, **settings)


@pytest.mark.sanitized
@pytest.mark.parametrize("lk", LENGTHS)
@pytest.mark.parametrize("kind", ["plain", "xl", "everything"])
def test_keys_around_a_tile(isa, kind, lk):
    seen = list(VISIBLE)[LENGTHS.index(lk) % 3]
    check_all(*ragged(kind, lk, seen))


@both_dtypes
@pytest.mark.parametrize("lq", [17, 33, 49, 64])
@pytest.mark.parametrize("kind", ["plain", "shaw", "everything"])
@pytest.mark.parametrize("further", [{}, {"softcap": 3.0}, VISIBLE["dropout"]])
def test_numbers_of_an_earlier_call_reach_no_result(isa, dtype, lq, kind, further):
    """Cells of hidden pairs that are not computed hold what an earlier call left."""
    rng = np.random.default_rng(3)
    inputs = [x.astype(dtype) for x in qkv(rng, (), 2, lq, lq, 16)]
    keywords = terms(rng, kind, 2, lq, lq, 16) | {"window": (9, 2)} | further
    large = [x.astype(dtype) for x in qkv(rng, (), 2, 200, 200, 16)]
    tables = cast(terms(rng, kind, 2, 200, 200, 16), dtype)
    found = []
    for left in (0.5, np.nan):
        with np.errstate(all="ignore"):
            before = run(*(x * left for x in large), **tables, return_context=True)
            before.context.backward(np.ones_like(before.out))
        result = run(*inputs, **cast(keywords, dtype), return_context=True)
        gradients = result.context.backward(np.ones_like(result.out))
        found.append([result.out, *(x for x in gradients if x is not None)])
    assert all(np.isfinite(x).all() for x in found[1])
    for first, second in zip(*found, strict=True):
        assert_bitwise(first, second)


@pytest.mark.parametrize("seen", VISIBLE)
@pytest.mark.parametrize("kind", ["music", "shaw", "both_tables", "bias"])
def test_keys_past_a_tile(isa, kind, seen):
    check_all(*ragged(kind, 513, seen))
    check_all(*ragged(kind, 1025, seen))


@functools.cache
def band_of_values(lk):
    """Use rel_value by the band, whose last columns do not fit into a ragged tile."""
    lq, d, dv = 40, 8, 9
    rng = np.random.default_rng(lk)
    inputs = qkv(rng, (), 2, lq, lk, d, dv)
    keywords = {
        "rel_value": normal(rng, 2, lq + lk - 1, dv),
        "query_offset": 3,
        "min_relative_position": 1 - lq,
    }
    return inputs, keywords, dense_oracle.attention(*inputs, **keywords)


@pytest.mark.parametrize("lk", [31, 513, 1030])
def test_bands_of_values(isa, lk):
    check_all(*band_of_values(lk))


def test_query_tiles_that_pass_keys_over(isa):
    """Tiles behind them share no products of rel_query with the tile before."""
    rng = np.random.default_rng(8)
    inputs = qkv(rng, (), 2, 250, 300, 13, 11)
    keywords = terms(rng, "both_tables", 2, 250, 300, 13, 11, offset=40)
    mask = np.zeros((250, 300))
    mask[96:192, :100] = -np.inf
    check_all(
        (*inputs, mask), keywords, dense_oracle.attention(*inputs, mask, **keywords)
    )


# ---- sums of half the terms ----------------------------------------------------------

# Products of queries and keys take 64 terms at a time, as two sums of half as many.
DIMENSIONS = (0, 1, 2, 3, 15, 63, 64, 65, 66, 127, 128, 129, 191, 193)


@pytest.mark.sanitized
@pytest.mark.parametrize("d", DIMENSIONS)
def test_any_number_of_columns(isa, d):
    settings = {"offset": 16, "scale": max(d, 1) ** -0.5}
    for kind in ("plain", "shaw_keys", "xl" if d else "music"):
        seed = d, TERMS.index(kind)
        check_all(*known(seed, kind, (), 2, 21, 37, d, 5, **settings))


# ---- running maxima ------------------------------------------------------------------


def three_tiles(rng, dtype, heads=2, lq=37, lk=1100):
    return [x.astype(dtype) for x in qkv(rng, (), heads, lq, lk, 16, 8)]


def hidden_tiles(rng, lq, lk):
    """Return the visible keys of rows: any choice of three tiles of keys, also none."""
    tiles = np.arange(lk) // 512
    seen = (np.arange(lq)[:, None] >> tiles) & 1 == 1
    return seen & (rng.random((lq, lk)) < 0.9)


@both_dtypes
@pytest.mark.parametrize("kind", ["plain", "shaw", "xl"])
@pytest.mark.parametrize("as_float", [False, True])
def test_rows_whose_first_tiles_are_hidden(isa, dtype, kind, as_float):
    rng = np.random.default_rng(1)
    q, k, v = three_tiles(rng, dtype)
    seen = hidden_tiles(rng, 37, 1100)
    mask = np.where(seen, 0.25, -np.inf).astype(dtype) if as_float else seen
    keywords = cast(terms(rng, kind, 2, 37, 1100, 16, 8, offset=500), dtype)
    want = dense_oracle.attention(q, k, v, mask, **keywords)
    got = run(q, k, v, mask, **keywords)
    assert_results_close(got, want)
    empty = ~seen.any(1)
    assert empty.sum() >= 4
    assert not got.out[:, empty].any() and np.isneginf(got.lse[:, empty]).all()


@both_dtypes
@pytest.mark.parametrize("kind", ["plain", "shaw_values"])
def test_maxima_that_rise_in_some_rows_only(isa, dtype, kind):
    """Every second row meets its largest logit in the last tile, others in the first.

    Shaw's sums by table row are scaled with the row.
    """
    rng = np.random.default_rng(2)
    q, k, v = three_tiles(rng, dtype)
    q[:, ::2, 0], q[:, 1::2, 0] = 4, -4
    k[..., 0] = np.linspace(-5, 5, 1100)
    keywords = cast(terms(rng, kind, 2, 37, 1100, 16, 8, offset=500), dtype)
    want = dense_oracle.attention(q, k, v, **keywords)
    got = run(q, k, v, **keywords)
    assert_close(got.out, want.out, "forward_large_logits")
    assert_lse_close(got.lse, want.lse)


@both_dtypes
@pytest.mark.parametrize(("lq", "lk"), [(37, 1100), (3, 1100)])
@pytest.mark.parametrize("at", [0, 511, 512, 1099])
def test_a_logit_of_nan_makes_its_row_nan(isa, dtype, lq, lk, at):
    """At any position among the keys; a larger logit after it changes nothing."""
    rng = np.random.default_rng(3)
    q, k, v = three_tiles(rng, dtype, lq=lq, lk=lk)
    k[..., -1, :] *= 8  # the largest logits come last
    mask = np.zeros((lq, lk), dtype)
    mask[1, :600] = -np.inf
    want = run(q, k, v, mask)
    mask[1:3, at] = np.nan
    with np.errstate(all="ignore"):
        got = run(q, k, v, mask)
    rows = np.arange(lq)
    clean = (rows != 1) & (rows != 2)
    assert np.isnan(got.out[:, 1:3]).all() and np.isnan(got.lse[:, 1:3]).all()
    assert_bitwise(got.out[:, clean], want.out[:, clean])
    assert_bitwise(got.lse[:, clean], want.lse[:, clean])


@both_dtypes
def test_the_largest_logit_may_stand_in_any_column(isa, dtype):
    """A maximum that misses one column overflows there."""
    rng = np.random.default_rng(4)
    lq, lk = 48, 530
    q, k, v = three_tiles(rng, dtype, 1, lq, lk)
    mask = np.zeros((lk, lk), dtype)
    np.fill_diagonal(mask, 3e4)
    for first in range(0, lk, lq):
        rows = mask[first : first + lq]
        size = len(rows)
        got = run(q[:, :size], k, v, rows)
        assert_bitwise(got.out, v[:, first : first + size])


@both_dtypes
def test_the_largest_product_may_stand_in_any_column(isa, dtype):
    """The same where maxima come from the product itself."""
    lq, lk = 48, 530
    v = normal(np.random.default_rng(5), 1, lk, 8).astype(dtype)
    k = np.eye(lk, dtype=dtype)[None]
    for first in range(0, lk, lq):
        q = 3e4 * k[:, first : first + lq]
        got = run(q, k, v, scale=1.0)
        assert_bitwise(got.out, v[:, first : first + q.shape[1]])
