"""apply_rotary in every layout and in place; its gufunc; what the kernel rejects."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from layouts import LAYOUTS
from problems import seeded
from tolerances import assert_bitwise

import relpos
from relpos import ufuncs
from relpos._settings import kernels

DTYPES = [np.float32, np.float64]
PAIRINGS = [False, True]


@pytest.mark.sanitized
@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_bits(layout, interleaved, isa):
    arrange = LAYOUTS[layout]
    for dtype in DTYPES:
        x = seeded(2, 7, 22, dtype=dtype)
        positions, magnitude = seeded(2, 7, seed=1), seeded(7, 9, seed=2)
        options = {"rotary_dim": 18, "interleaved": interleaved}
        want = relpos.apply_rotary(x, positions, magnitude=magnitude, **options)
        options["magnitude"] = arrange(magnitude)
        got = relpos.apply_rotary(arrange(x), arrange(positions), **options)
        assert_bitwise(got, want)
        angles = seeded(2, 7, 9, seed=3)
        assert_bitwise(
            relpos.apply_rotary(x, angles=arrange(angles), **options),
            relpos.apply_rotary(x, angles=angles, **options),
        )
        if layout == "swapped":
            continue
        out = arrange(np.full(x.shape, np.nan, dtype))
        assert relpos.apply_rotary(x, positions, **options, out=out) is out
        assert_bitwise(out, want)
        here = arrange(x.copy())
        assert relpos.apply_rotary(here, positions, **options, out=here) is here
        assert_bitwise(here, want)


@pytest.mark.sanitized
@pytest.mark.parametrize("interleaved", PAIRINGS)
@pytest.mark.parametrize("dtype", [np.float16, *DTYPES])
def test_in_place(dtype, interleaved, isa):
    x = seeded(2, 3, 90, 34, dtype=dtype)
    options = {"rotary_dim": 30, "offset": 5, "interleaved": interleaved}
    want = relpos.apply_rotary(x, **options)
    assert_bitwise(want, relpos.apply_rotary(x, **options))
    view = x[:]
    assert relpos.apply_rotary(x, **options, out=view) is view
    assert_bitwise(x, want)


def test_in_place_takes_no_memory():
    x = seeded(8, 2048, 64, dtype=np.float32)
    relpos.apply_rotary(x, out=x)
    tracemalloc.start()
    relpos.apply_rotary(x, out=x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < x.nbytes / 50


def test_float16_is_float32_rounded():
    x = seeded(5, 8, dtype=np.float16)
    want = relpos.apply_rotary(x.astype(np.float32)).astype(np.float16)
    assert_bitwise(relpos.apply_rotary(x), want)
    out = np.empty_like(x)
    relpos.apply_rotary(x, out=out)
    assert_bitwise(out, want)


def test_tables_never_promote():
    """float64 frequencies, angles and magnitudes leave float32 queries float32."""
    x = seeded(3, 4, dtype=np.float32)
    for options in ({"inv_freq": np.ones(2)}, {"angles": np.ones(2), "magnitude": 2.0}):
        assert relpos.apply_rotary(x, **options).dtype == np.float32


def test_inputs_are_left_alone():
    x, positions, inv_freq = seeded(4, 6), np.arange(4.0), np.array([1.0, 0.1, 0.01])
    for array in (x, positions, inv_freq):
        array.flags.writeable = False
    relpos.apply_rotary(x, positions, inv_freq=inv_freq, offset=3, inverse=True)
    relpos.apply_rotary_backward(x, x, positions, inv_freq=inv_freq)


# ---- the gufunc, and what it and the kernel reject ----------------------------------


@pytest.mark.sanitized
@pytest.mark.parametrize("dtype", DTYPES)
def test_gufunc(dtype, isa):
    rotary = kernels().rotary
    x, where = seeded(2, 3, 5, 8, dtype=dtype), np.arange(5) + 2.0
    high = np.broadcast_to(relpos.rotary_frequencies(6), (5, 3))
    low, magnitude = np.zeros((5, 3)), seeded(3, 5, 3, seed=1)
    flags = np.array([[0, 1, 1], [1, 0, 0]])
    got = rotary(x, where, high, low, magnitude, flags)
    for index in np.ndindex(2, 3):
        want = relpos.apply_rotary(
            x[index],
            where,
            inv_freq=high[0],
            magnitude=magnitude[index[1]],
            interleaved=bool(flags[index]),
            rotary_dim=6,
        )
        assert_bitwise(got[index], want)
    # in place, and along other axes, by NumPy's own means
    np.testing.assert_array_equal(rotary(x, where, high, low, 0 * low + 1, 0, out=x), x)
    by_length = x.swapaxes(-1, -2).copy()
    axes = [(-1, -2), (0,), (0, 1), (0, 1), (0, 1), (), (-1, -2)]
    rotated = rotary(by_length, where, high, low, low + 1, 0, axes=axes)
    plain = rotary(x, where, high, low, low + 1, 0)
    assert_bitwise(rotated.swapaxes(-1, -2), plain)


@pytest.mark.sanitized
def test_gufunc_of_nothing_and_of_too_much():
    where, table = np.arange(5.0), np.ones((5, 3))
    many = np.broadcast_to(where[:0], (2**40, 0))
    assert ufuncs.rotary(np.ones((2**40, 0, 6)), many, *[table[:0]] * 3, 0).size == 0
    empty = np.ones((0, 5, 6))
    assert ufuncs.rotary(empty, where, table, table, table, 0).shape == (0, 5, 6)
    with pytest.raises(ValueError, match="2h columns"):
        ufuncs.rotary(np.ones((5, 5)), where, table, table, table, 0)


X, TABLE = np.ones((2, 5, 6)), np.ones((2, 5, 3))
GOOD = {
    "x": X,
    "out": X.copy(),
    "positions": TABLE[..., :1],
    "high": TABLE,
    "low": TABLE,
    "magnitude": TABLE,
    "interleaved": False,
    "threads": 1,
}


@pytest.mark.sanitized
@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("x", np.float64(1), TypeError),
        ("x", np.ones(()), ValueError),
        ("x", np.ones(6), ValueError),
        ("x", np.ones((2, 5, 5)), ValueError),
        ("x", X.astype(np.float16), TypeError),
        ("x", X.astype(">f8"), ValueError),
        ("out", X.astype(np.float32), TypeError),
        ("out", np.ones((2, 5, 7)), ValueError),
        ("out", np.broadcast_to(1.0, (2, 5, 6)), ValueError),
        ("positions", TABLE, ValueError),
        ("positions", np.ones((2, 5, 1), np.float32), TypeError),
        ("high", np.ones((5, 3)), ValueError),
        ("high", np.ones((2, 5, 4)), ValueError),
        ("low", np.ones((2, 4, 3)), ValueError),
        ("magnitude", np.ones((3, 5, 3)), ValueError),
        ("threads", 0, ValueError),
        ("threads", 10**6, ValueError),
    ],
)
def test_the_kernel_checks_for_itself(name, value, error):
    kernels().apply_rotary(*GOOD.values())
    with pytest.raises(error):
        kernels().apply_rotary(*(GOOD | {name: value}).values())
