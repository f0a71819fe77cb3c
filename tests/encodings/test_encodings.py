"""Sinusoids against mpmath, naive encodings, and calls that are refused."""

from __future__ import annotations

import mpmath
import numpy as np
import oracle_positions as oracle
import pytest
from layouts import LAYOUTS
from problems import assert_same_on_threads
from refusals import check, rows
from tolerances import assert_bitwise

import relpos

DTYPES = [np.float32, np.float64]


def ulps(got, true):
    """Errors of float `got` against mpmath numbers, in units of the last place."""
    errors = []
    for value, exact in zip(got, true, strict=True):
        unit = np.spacing(np.abs(got.dtype.type(float(exact))))
        errors.append(float(abs(mpmath.mpf(float(value)) - exact) / float(unit)))
    return np.array(errors)


def true_entries(positions, columns, dim, base=10000):
    """Entries of the interleaved encoding as mpmath numbers of 130 bits."""
    with mpmath.workprec(130):
        half = (dim + 1) // 2
        step = mpmath.mpf(-2) / dim
        frequencies = [mpmath.power(base, c * step) for c in range(half)]
        wave = (mpmath.sin, mpmath.cos)
        return [
            wave[c % 2](mpmath.mpf(float(n)) * frequencies[c // 2])
            for n, c in zip(positions, columns, strict=True)
        ]


def entries(positions, columns, dim, **options):
    """Single entries of `sinusoidal`, without building the rest of a huge table."""
    rows = relpos.sinusoidal(positions, dim, **options)
    return rows[np.arange(len(columns)), columns]


@pytest.fixture(scope="module")
def hundred_thousand(sized):
    """Positions to 2^24 of both signs, whole and fractional, for dim 512.

    The quick run has a fifth of them.
    """
    count = sized(20_000, 100_000)
    rng = np.random.default_rng(24)
    positions = rng.integers(-(2**24), 2**24 + 1, count).astype(np.float64)
    positions[::4] += rng.random(count // 4)
    columns = rng.integers(0, 512, count)
    return positions, columns, true_entries(positions, columns, 512)


def test_float32_is_within_one_ulp_to_2_to_the_24(hundred_thousand, isa):
    positions, columns, true = hundred_thousand
    got = np.concatenate(
        [
            entries(positions[at], columns[at], 512)
            for at in np.array_split(np.arange(len(columns)), 20)
        ]
    )
    nearest = np.array([np.float32(float(x)) for x in true])
    distance = np.abs(got - nearest) / np.spacing(np.abs(nearest))
    # ulps of the nearest float32 are exact here; what differs is measured in full
    differing = np.flatnonzero(distance)
    assert len(differing) < 100
    assert (ulps(got[differing], [true[i] for i in differing]) <= 1).all()


def test_float64_is_within_two_ulp(hundred_thousand, isa):
    positions, columns, true = (part[:4000] for part in hundred_thousand)
    got = entries(positions, columns, 512, dtype=np.float64)
    assert ulps(got, true).max() <= 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("exponent", [26, 30, 40, 50, 60, 70])
def test_huge_positions(exponent, dtype, isa):
    """Beyond the vector reduction: the frequency's 2^-106 decides."""
    rng = np.random.default_rng(exponent)
    positions = np.ldexp(rng.uniform(-1, 1, 60), exponent)
    columns = rng.integers(0, 32, 60)
    got = entries(positions, columns, 32, dtype=dtype)
    true = true_entries(positions, columns, 32)
    error = [abs(mpmath.mpf(float(x)) - y) for x, y in zip(got, true, strict=True)]
    assert max(error) <= 2 * np.finfo(dtype).eps + 2.0 ** (exponent - 106)


def test_the_end_of_float64(isa):
    """Angles are exact for given frequencies, whatever the position."""
    positions = [1e300, -1e300, np.finfo(float).max]
    got = relpos.sinusoidal(positions, 2, inv_freq=[1.0], dtype=np.float64)
    with mpmath.workprec(1200):
        true = [[f(mpmath.mpf(x)) for f in (mpmath.sin, mpmath.cos)] for x in positions]
    np.testing.assert_allclose(got, np.array(true, float), rtol=0, atol=1e-15)
    lost = relpos.sinusoidal([np.inf, -np.inf, np.nan, 0.0], 130)
    assert np.isnan(lost[:3]).all() and np.isfinite(lost[3]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["interleaved", "concat"])
@pytest.mark.parametrize("dim", [1, 2, 3, 7, 16, 33, 129, 260])
def test_against_the_loops(dim, layout, dtype, isa):
    """Both layouts, odd dims, partial vectors and blocks."""
    positions = np.array([[0.0, 1.0, 5.0], [-3.0, 2.25, 1e4]])
    for options in ({}, {"base": 7.5}):
        got = relpos.sinusoidal(positions, dim, layout=layout, dtype=dtype, **options)
        want = oracle.sinusoidal(positions, dim, layout=layout, **options)
        assert got.dtype == dtype and got.flags.c_contiguous
        np.testing.assert_allclose(got, want, rtol=0, atol=np.finfo(dtype).eps)


@pytest.mark.parametrize("layout", ["interleaved", "concat"])
def test_own_frequencies(layout):
    inv_freq = np.array([1.0, 0.3, 0.01, 2.0], np.float64)
    got = relpos.sinusoidal(50, 8, inv_freq=inv_freq, layout=layout, dtype=float)
    want = oracle.sinusoidal(50, 8, inv_freq=inv_freq, layout=layout)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-16)


def test_kinds_of_positions():
    table = relpos.sinusoidal(12, 6)
    for positions in (np.int8(12), np.arange(12), np.arange(12, dtype=np.uint8)):
        assert_bitwise(relpos.sinusoidal(positions, 6), table)
    assert_bitwise(relpos.sinusoidal(np.arange(12, dtype=np.float16), 6), table)
    assert_bitwise(relpos.sinusoidal(list(range(12)), 6), table)
    assert_bitwise(relpos.sinusoidal(np.array(5), 6), table[5])
    assert_bitwise(relpos.sinusoidal(np.arange(12).reshape(3, 4).T, 6)[1, 2], table[9])
    assert relpos.sinusoidal(0, 6).shape == (0, 6)


@pytest.mark.parametrize("dim", [8, 9])
@pytest.mark.parametrize("layout", ["interleaved", "concat"])
def test_out_of_every_layout(layout, dim):
    want = relpos.sinusoidal(10, dim, layout=layout)
    for name, arrange in LAYOUTS.items():
        if name == "swapped":
            continue
        out = arrange(np.full((10, dim), np.nan, np.float32))
        assert relpos.sinusoidal(10, dim, layout=layout, out=out) is out
        assert_bitwise(out, want)


def test_sinusoids_for_any_number_of_threads():
    assert_same_on_threads(lambda: relpos.sinusoidal(700, 300))
    last = relpos.sinusoidal(700, 300)[699]
    assert_bitwise(relpos.sinusoidal([699], 300)[0], last)


def test_floating_point_errors_stay_inside():
    with np.errstate(all="raise"):
        relpos.sinusoidal([np.inf, 1e300, 1e-310], 64)


@pytest.mark.parametrize("layout", ["interleaved", "concat"])
@pytest.mark.parametrize("offset", [1, -7, 2.5, 4096])
@pytest.mark.parametrize("dim", [2, 16])
def test_shift_matrix(dim, offset, layout):
    M = relpos.sinusoidal_shift_matrix(offset, dim, layout=layout)
    n = np.array([0.0, 3.0, 100.0, -20.0])
    P, moved = (
        relpos.sinusoidal(at, dim, layout=layout, dtype=float) for at in (n, n + offset)
    )
    np.testing.assert_allclose(P @ M.T, moved, rtol=0, atol=5e-16)
    np.testing.assert_allclose(M @ M.T, np.eye(dim), rtol=0, atol=5e-16)


def test_shift_matrix_of_an_odd_dim():
    M = relpos.sinusoidal_shift_matrix(2, 5, layout="concat")
    P = relpos.sinusoidal(9, 5, layout="concat", dtype=float)
    np.testing.assert_allclose(M @ P[4], P[6], rtol=0, atol=5e-16)


@pytest.mark.parametrize("dtype", DTYPES)
def test_naive_encodings(dtype, isa):
    index = relpos.index_encoding(5, 3, dtype=dtype)
    assert index.dtype == dtype
    assert index.tolist() == [[n] * 3 for n in range(5)]
    unit = relpos.normalized_index_encoding(5, 3, dtype=dtype)
    assert unit.dtype == dtype
    assert unit.tolist() == [[n / 4] * 3 for n in range(5)]
    assert relpos.normalized_index_encoding(1, 2, dtype=dtype).tolist() == [[0, 0]]
    assert relpos.normalized_index_encoding(0, 2, dtype=dtype).shape == (0, 2)
    want = np.repeat(np.arange(2000)[:, None], 37, axis=1)
    assert_bitwise(relpos.index_encoding(2000, 37, dtype=dtype), want.astype(dtype))
    unit = relpos.normalized_index_encoding(2000, 37, dtype=dtype)
    assert_bitwise(unit, (want / 1999).astype(dtype))
    noise = relpos.random_encoding(4000, 3, rng=7, dtype=dtype)
    assert noise.dtype == dtype and -1 <= noise.min() < -0.99 < 0.99 < noise.max() < 1
    assert abs(noise.mean()) < 0.03
    assert_bitwise(noise, relpos.random_encoding(4000, 3, rng=7, dtype=dtype))


TABLE = np.zeros((5, 2))


def test_positions_as_far_as_float64_has_every_integer():
    """The default offset is 0: 1 more or less would refuse one of both ends."""
    ends = np.array([1 - 2**53, 2**53 - 1])
    assert relpos.sinusoidal(ends, 2).shape == (2, 2)
    assert relpos.axial_angles(ends[:, np.newaxis], [1.0])[:, 0].tolist() == [*ends]


@pytest.mark.parametrize(
    "row",
    rows(
        """
sinusoidal(-3, 4) -> ValueError: positions…-3
sinusoidal(True, 4) -> TypeError: positions…bool
sinusoidal([1j], 4) -> TypeError: positions…complex128
sinusoidal(3, 4, layout="halves") -> ValueError: layout…halves…interleaved…concat
sinusoidal(3, 4, inv_freq=[1.0]) -> ValueError: inv_freq…(1,)…(2,)
sinusoidal(3, 4, inv_freq=[1, 2]) -> TypeError: inv_freq
sinusoidal(3, 4, dtype=np.float16) -> TypeError: dtype…float16…float32
sinusoidal(3, 4, out=np.zeros((3, 4))) -> TypeError: out…float64…float32
sinusoidal(3, 4, out=np.zeros((4, 3), np.float32)) -> ValueError: out…(4, 3)…(3, 4)
sinusoidal_shift_matrix(1, 5) -> ValueError: dim…5…even
sinusoidal(np.array([0, 2**53]), 4) -> ValueError:
    positions…9007199254740992…2**53…float64 rounds
sinusoidal([-(2**53) - 1], 4) -> ValueError: positions…-9007199254740993
sinusoidal(np.array([2**64 - 1], np.uint64), 4) -> ValueError:
    positions…18446744073709551615
xpos_magnitude([2**53 + 1], 4) -> ValueError: positions…9007199254740993
sinusoidal_shift_matrix(2**53 + 1, 4) -> ValueError: offset…float64 rounds
sinusoidal_shift_matrix(np.array(-(2**53) - 1), 4) -> ValueError: offset…float64 rounds
index_encoding(-1, 2) -> ValueError: length…-1
index_encoding(1, 2, dtype="x") -> TypeError: dtype…'x'
index_encoding(1, 2, dtype=[1]) -> TypeError: dtype…list
normalized_index_encoding(1, 2, dtype="x") -> TypeError: dtype…'x'…float32 or float64
random_encoding(2**59, 2**10, rng=0) -> ValueError: length…more bytes than memory
random_encoding(2, 2, rng=0, dtype="f4 ") -> TypeError: dtype…'f4 '
sinusoidal(2, 2, dtype=None) -> TypeError: dtype…None
sinusoidal(2, 2, dtype="x") -> TypeError: dtype…'x'
sinusoidal(2, 2, dtype="(2") -> TypeError: dtype…'(2'
sinusoidal(2, 2, dtype=0.5) -> TypeError: dtype…float;
sinusoidal(2, 2, dtype=(1, 2)) -> TypeError: dtype…tuple
random_encoding(2, 2, rng=0, dtype=int) -> TypeError: dtype
learned(TABLE, [0, 5]) -> IndexError: positions: position 5…R = 5
learned(TABLE, [-1]) -> IndexError: positions: position -1…R = 5
learned(TABLE, 6) -> IndexError: positions: position 5…R = 5
learned(TABLE[0], [0]) -> ValueError: table…(2,)
learned_backward(TABLE, [0, 1], 5) -> ValueError: grad_out…(5, 2)…(2,)
learned_backward(TABLE, [0, 1, 2, 3, 9], 5) -> IndexError: positions: position 9…R = 5
"""
    ),
)
def test_bad_calls(row):
    check(row, vars(relpos) | {"TABLE": TABLE})
