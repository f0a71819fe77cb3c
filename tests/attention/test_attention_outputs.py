"""Results of `relpos.attention`: `out`, and what is returned."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from problems import normal, qkv
from tolerances import assert_bitwise

import relpos
from relpos._settings import kernels

H, LQ, D, DV = 4, 5, 6, 3
HALF, SINGLE, DOUBLE = np.float16, np.float32, np.float64


def square(rng):
    return qkv(rng, (2,), H, LQ, LQ, D, DV)


# ---- out, results -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [HALF, SINGLE, DOUBLE])
def test_c_reads_out_where_nothing_is_wrong_with_it(rng, dtype):
    """All else is left to Python, untouched: it has the words of errors."""
    data = tuple(x.astype(dtype) for x in square(rng))
    want = relpos.attention(*data)

    def read(out, **operands):
        return kernels().attend(data, {"out": out, **operands}, 0, False, False, False)

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
        locked,
        once,
        want.tolist(),
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
