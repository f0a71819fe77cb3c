"""Results of `relpos.attention`: dtypes, `out`, results of size zero."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from numpy.lib.stride_tricks import as_strided
from problems import normal, qkv
from tolerances import assert_bitwise, assert_close, assert_lse_close

import relpos
from relpos._settings import kernels

H, LQ, LK, D, DV = 4, 5, 7, 6, 3
HALF, SINGLE, DOUBLE = np.float16, np.float32, np.float64


@pytest.fixture
def rng():
    return np.random.default_rng(8)


def square(rng):
    return qkv(rng, (2,), H, LQ, LQ, D, DV)


# ---- dtypes -----------------------------------------------------------------------

PROMOTION = [
    ((HALF, HALF, HALF), {}, HALF),
    ((HALF, HALF, SINGLE), {}, SINGLE),
    ((HALF, DOUBLE, HALF), {}, DOUBLE),
    ((SINGLE, SINGLE, SINGLE), {}, SINGLE),
    ((SINGLE, SINGLE, DOUBLE), {}, DOUBLE),
    ((SINGLE, SINGLE, SINGLE), {"rel_key": DOUBLE}, DOUBLE),
    ((HALF, HALF, HALF), {"rel_value": SINGLE}, HALF),
    ((SINGLE, SINGLE, SINGLE), {"rel_bias": HALF}, SINGLE),
    ((SINGLE, SINGLE, SINGLE), {"pos_bias_u": DOUBLE}, DOUBLE),
    ((HALF, HALF, HALF), {"attn_mask": DOUBLE}, HALF),
    ((SINGLE, SINGLE, SINGLE), {"attn_mask": DOUBLE}, SINGLE),
    ((DOUBLE, DOUBLE, DOUBLE), {"attn_mask": HALF}, DOUBLE),
    ((SINGLE, SINGLE, SINGLE), {"attn_mask": bool}, SINGLE),
]


@pytest.mark.parametrize("kinds, extra, wanted", PROMOTION)
def test_promotion(rng, kinds, extra, wanted):
    shapes = {
        "rel_key": (5, D),
        "rel_value": (5, DV),
        "rel_bias": (5,),
        "pos_bias_u": (D,),
        "attn_mask": (LQ, LQ),
    }
    data = [x.astype(kind) for x, kind in zip(square(rng), kinds, strict=True)]
    options = {name: np.ones(shapes[name], kind) for name, kind in extra.items()}
    got = relpos.attention(*data, **options, return_lse=True, return_weights=True)
    computed = np.promote_types(wanted, SINGLE)
    assert (got.out.dtype, got.lse.dtype) == (wanted, computed)
    assert got.weights.dtype == computed


def test_zero_dimensional_tables_do_not_promote_by_value(rng):
    data = [x.astype(np.float32) for x in square(rng)]
    assert relpos.attention(*data, rel_bias=np.zeros(1, DOUBLE)).dtype == DOUBLE


# ---- out, results -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [HALF, SINGLE, DOUBLE])
def test_out_in_every_layout(rng, dtype):
    data = [x.astype(dtype) for x in square(rng)]
    want = relpos.attention(*data)
    shape = want.shape
    raw = np.zeros(want.nbytes + 1, np.uint8)
    targets = {
        "new": np.empty(shape, dtype),
        "fortran": np.empty(shape, dtype, order="F"),
        "length first": np.empty((2, LQ, H, DV), dtype).swapaxes(1, 2),
        "negative": np.empty(shape, dtype)[::-1, ::-1, ::-1, ::-1],
        "sparse": np.empty((*shape[:-1], 2 * DV), dtype)[..., ::2],
        "unaligned": raw[1:].view(dtype).reshape(shape),
    }
    for target in targets.values():
        result = relpos.attention(*data, out=target)
        assert result is target
        assert_bitwise(result, want)


@pytest.mark.parametrize("dtype", [HALF, SINGLE, DOUBLE])
def test_c_reads_out_where_nothing_is_wrong_with_it(rng, dtype):
    """All else is left to Python, untouched: it has the words of errors."""
    data = tuple(x.astype(dtype) for x in square(rng))
    want = relpos.attention(*data)

    def read(out, **given):
        return kernels().attend(data, {"out": out, **given}, 0, None, False, False)

    apart = np.empty((2, LQ, H, DV), dtype).swapaxes(1, 2)
    for out in (np.empty_like(want), apart, apart[:, ::-1, ::-1, ::-1]):
        (found,) = read(out)
        assert found is out
        assert_bitwise(out, want)
    once = as_strided(np.zeros(1, dtype), want.shape, (0, 0, 0, 0))
    locked = np.zeros(want.shape, dtype)
    locked.flags.writeable = False
    for out in (
        *(np.zeros(want.shape, other) for other in (">f4", np.int32, np.complex64)),
        np.zeros(want.shape, SINGLE if dtype != SINGLE else DOUBLE),
        np.zeros(want.shape[1:], dtype),
        np.zeros((1, *want.shape), dtype),
        np.ma.masked_array(np.zeros(want.shape, dtype)),
        *(locked, once, want.tolist()),
    ):
        assert read(out) is None
    assert not locked.any()
    memory = np.full(3 * want.size, 0.25, dtype)
    out = memory[want.size : 2 * want.size].reshape(want.shape)
    for first in range(want.size - LQ * LQ - 1, 2 * want.size + 2):
        mask = memory[first : first + LQ * LQ].reshape(LQ, LQ)
        for turned in (mask, mask[::-1], mask[:, ::-1], mask.T):
            left = read(out, attn_mask=turned) is None
            assert left == np.shares_memory(out, mask)


def test_out_between_inputs_of_one_buffer(rng):
    packed = np.zeros((LQ, 4, H, D))
    packed[:, :3] = normal(rng, LQ, 3, H, D)
    query, key, value, out = (packed[:, n].swapaxes(0, 1) for n in range(4))
    want = relpos.attention(query.copy(), key.copy(), value.copy())
    assert relpos.attention(query, key, value, out=out) is out
    assert_bitwise(out.copy(), want)


def test_results_are_new_writable_and_c_ordered(rng):
    query, key, value = (
        x.swapaxes(-1, -2).copy().swapaxes(-1, -2) for x in square(rng)
    )
    got = relpos.attention(
        query, key, value, return_lse=True, return_weights=True, return_context=True
    )
    for array in got[:3]:
        assert (
            array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
        )
    assert isinstance(got, relpos.AttentionOutput)
    assert "query, key, value" in repr(got.context)


def test_only_what_was_asked_for(rng):
    data = square(rng)
    plain = relpos.attention(*data)
    assert type(plain) is np.ndarray
    for name in ("lse", "weights", "context"):
        got = relpos.attention(*data, **{f"return_{name}": True})
        assert_bitwise(got.out, plain)
        others = {"lse", "weights", "context"} - {name}
        assert getattr(got, name) is not None
        assert all(getattr(got, other) is None for other in others)


ZERO_SIZES = [
    ((2,), H, 0, LK, D, DV),
    ((2,), H, LQ, 0, D, DV),
    ((0,), H, LQ, LK, D, DV),
    ((2,), 0, LQ, LK, D, DV),
    ((2,), H, LQ, LK, 0, DV),
    ((2,), H, LQ, LK, D, 0),
    ((), 0, 0, 0, 0, 0),
    ((2, 0), H, 0, 0, D, DV),
]


@pytest.mark.parametrize("sizes", ZERO_SIZES)
@pytest.mark.parametrize("with_tables", [False, True])
def test_zero_sizes(rng, sizes, with_tables):
    batch, heads, lq, lk, dim, value_dim = sizes
    options = {"scale": 1.0}
    if with_tables:
        options |= {
            "rel_key": normal(rng, 3, dim),
            "rel_value": normal(rng, heads, 3, value_dim),
            "rel_bias": normal(rng, 3),
            "query_offset": 1,
            "key_lengths": lk,
        }
    data = qkv(rng, batch, heads, lq, lk, dim, value_dim)
    got = relpos.attention(*data, return_lse=True, return_weights=True, **options)
    want = oracle.attention(*data, **options)
    assert_close(got.out, want.out, "forward")
    assert_lse_close(got.lse, want.lse)
    assert_close(got.weights, want.weights, "forward")
    if lk == 0:
        assert (got.out == 0).all() and (got.lse == -np.inf).all()
