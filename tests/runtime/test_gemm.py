"""Matrix products, by OpenBLAS and by the kernels' own tiles."""

from __future__ import annotations

import numpy as np
import pytest
from many_threads import at_once

from relpos import _core


def views(x):
    """The same matrix as C-ordered, Fortran-ordered, spaced and reversed memory."""
    spaced = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)[::2, ::3]
    spaced[...] = x
    return x, np.asfortranarray(x), spaced, x[::-1, ::-1].copy()[::-1, ::-1]


SHAPES = [(1, 1, 1), (0, 3, 2), (3, 0, 2), (3, 2, 0), (5, 7, 3), (97, 257, 300)]
SHAPES += [(1, 600, 70), (600, 1, 70), (130, 513, 65), (389, 270, 9)]
SHAPES += [(1, 600, 64), (3, 261, 128), (4, 261, 128)]  # few rows, of whole vectors


@pytest.mark.devmode
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_gemm(shape, dtype, capfd):
    m, n, k = shape
    rng = np.random.default_rng(1)
    a = rng.standard_normal((m, k)).astype(dtype)
    b = rng.standard_normal((k, n)).astype(dtype)
    want = a.astype(np.longdouble) @ b.astype(np.longdouble)
    # each sum of k products is off by at most k roundings of its absolute terms
    bound = (k + 1) * np.finfo(dtype).eps * (np.abs(a) @ np.abs(b))
    tiles = [table.gemm_tiles for table in _core.by_isa.values()]
    for multiply in [_core.gemm, *tiles]:
        for left in views(a):
            for right in views(b):
                results = [multiply(left, right, n) for n in (1, 2, 5)]
                assert results[0].shape == (m, n)
                assert results[0].dtype == dtype
                assert np.all(np.abs(results[0] - want) <= bound)
                assert all(np.array_equal(results[0], other) for other in results)
    assert capfd.readouterr() == ("", "")


def test_tiles_give_the_same_bits_for_any_strides():
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((70, 90)), rng.standard_normal((90, 110))
    for table in _core.by_isa.values():
        want = table.gemm_tiles(a, b, 1)
        for left in views(a):
            for right in views(b):
                assert np.array_equal(table.gemm_tiles(left, right, 1), want)


def test_gemm_of_a_broadcast_row():
    row = np.random.default_rng(3).standard_normal((1, 40))
    many = np.broadcast_to(row, (9, 40))
    np.testing.assert_allclose(_core.gemm(many, many.T, 2), many @ many.T, rtol=1e-13)


@pytest.mark.devmode
@pytest.mark.sanitized
def test_gemm_by_many_threads_at_once():
    a = np.random.default_rng(4).standard_normal((120, 120)).astype(np.float32)
    want = _core.gemm(a, a, 1)

    def work(place, barrier):
        for _ in range(10):
            assert np.array_equal(_core.gemm(a, a, 2), want)

    at_once(work, 64)
