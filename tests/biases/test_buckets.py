"""Logarithmic buckets of T5 and DeBERTa against whole numbers."""

from __future__ import annotations

import numpy as np
import oracle_biases as oracle
import pytest

import relpos

pytestmark = pytest.mark.usefixtures("strict_floats")
FAR = np.arange(-4096, 4097)

T5_GRID = [
    (both, count, last)
    for both in (True, False)
    for count in (4, 5, 8, 9, 12, 16, 32, 33, 48, 64, 128)
    for last in (6, 24, 50, 64, 72, 81, 128, 129, 256, 1000, 4096, 10_000)
    if last > (count // 2 if both else count) // 2
]


@pytest.mark.parametrize("both, count, last", T5_GRID)
def test_8_t5_buckets_equal_whole_numbers(both, count, last):
    settings = {"bidirectional": both, "num_buckets": count, "max_distance": last}
    got = relpos.t5_bucket(FAR, **settings)
    assert got.dtype == np.int64
    assert np.array_equal(got, oracle.t5_bucket(FAR, **settings))
    assert got.min() == 0 and got.max() < count


DEBERTA_GRID = [
    (size, last)
    for size in (4, 5, 8, 16, 32, 64, 128, 256)
    for last in (4, 9, 16, 20, 33, 64, 128, 129, 512, 513, 1025, 5000)
    if last > size // 2 + 1 and last >= size  # as in every model
]


@pytest.mark.parametrize("size, last", DEBERTA_GRID)
def test_deberta_buckets_equal_whole_numbers(size, last):
    settings = {"bucket_size": size, "max_position": last}
    near = FAR[np.abs(FAR) <= min(2 * last, 1100)]
    got = relpos.deberta_bucket(near, **settings)
    assert got.dtype == np.int64
    assert np.array_equal(got, oracle.deberta_bucket(near, **settings))
    assert np.array_equal(got, -relpos.deberta_bucket(-near, **settings))


def test_buckets_widen_and_end_at_the_last_distance():
    for count, last in ((32, 128), (4096, 2**40), (4, 2**59)):
        edges = relpos.t5_bucket(
            np.array([1 - last, -last, -(2**63)]), num_buckets=count, max_distance=last
        )
        assert (edges == count // 2 - 1).all()
    at_end = relpos.deberta_bucket([511, 512], bucket_size=256, max_position=512)
    assert at_end.tolist() == [255, 256]
    far = relpos.deberta_bucket([2**63 - 1], bucket_size=256, max_position=512)
    assert far == relpos.deberta_bucket([2**60], bucket_size=256, max_position=512)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint64", ">i4"])
def test_relative_positions_of_any_integer_kind(dtype):
    relative = np.array([[0, 5], [100, 17]]).astype(dtype)
    settings = {"bucket_size": 8, "max_position": 33}
    for x in (relative, relative.T[::-1], relative[..., 0, 1], relative[:0]):
        x.flags.writeable = False
        same = np.asarray(x, np.int64)
        for function, options in (
            (relpos.t5_bucket, {}),
            (relpos.deberta_bucket, settings),
        ):
            got = function(x, **options)
            assert isinstance(got, np.ndarray) and got.dtype == np.int64
            assert np.array_equal(got, function(same, **options))
            assert got.shape == x.shape and not np.shares_memory(got, x)
