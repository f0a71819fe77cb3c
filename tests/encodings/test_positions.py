"""Relative positions, grid labels and the skewing maps against loops."""

from __future__ import annotations

import numpy as np
import oracle_positions as oracle
import pytest
from layouts import LAYOUTS, repeated
from problems import assert_same_on_threads
from refusals import check, rows
from tolerances import assert_bitwise

import relpos

pytestmark = pytest.mark.devmode
DTYPES = [np.float32, np.float64]
MAPS = {
    "skew": ("skew", {"is_causal": False}),
    "skew causal": ("skew", {"is_causal": True}),
    "unskew": ("unskew", {"is_causal": False}),
    "unskew causal": ("unskew", {"is_causal": True}),
    "rel_shift": ("rel_shift", {}),
}


def mapped(name, x, library=relpos):
    function, keywords = MAPS[name]
    return getattr(library, function)(x, **keywords)


def numbered(*shape, dtype=np.float64):
    """Every entry differs and none is 0, so a misplaced one shows."""
    return np.arange(1, 1 + np.prod(shape), dtype=dtype).reshape(shape)


@pytest.mark.parametrize("lq", [0, 1, 2, 5])
@pytest.mark.parametrize("lk", [0, 1, 3, 7])
@pytest.mark.parametrize("limit", [None, 0, 2])
@pytest.mark.parametrize("offset", [0, 3, -2])
def test_relative_positions(lq, lk, limit, offset):
    arguments = {"max_relative_position": limit, "query_offset": offset}
    got = relpos.relative_positions(lq, lk, **arguments)
    assert_bitwise(got, oracle.relative_positions(lq, lk, **arguments))


def test_relative_positions_far_away():
    got = relpos.relative_positions(2, query_offset=2**60)
    assert got.tolist() == [[-(2**60), 1 - 2**60], [-(2**60) - 1, -(2**60)]]
    clipped = relpos.relative_positions(2, max_relative_position=2**70)
    assert clipped.tolist() == [[0, 1], [-1, 0]]


@pytest.mark.parametrize("shape", [(1,), (4,), (2, 3), (3, 1, 2), (0, 2), ()])
def test_grid_labels(shape):
    assert_bitwise(relpos.grid_labels(shape), oracle.grid_labels(shape))


def test_grid_labels_of_a_line_are_shifted_relative_positions():
    assert_bitwise(relpos.grid_labels(5), relpos.relative_positions(5) + 4)


@pytest.mark.parametrize("name", MAPS)
def test_maps_of_every_size(name, isa):
    for lq in range(7):
        for columns in range(max(lq - 1, 0) if name == "skew" else 0, 9):
            if name == "unskew" and lq + columns == 0:
                continue  # -1 columns by the loop's formula
            x = numbered(2, lq, columns)
            assert_bitwise(mapped(name, x), mapped(name, x, oracle))


def test_unskew_of_nothing_is_empty():
    assert relpos.unskew(np.zeros((3, 0, 0)), is_causal=False).shape == (3, 0, 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MAPS)
def test_maps_of_every_layout(name, layout, dtype):
    x = numbered(2, 4, 6, dtype=dtype)
    assert_bitwise(mapped(name, LAYOUTS[layout](x)), mapped(name, x, oracle))
    same = repeated(x)
    assert_bitwise(mapped(name, same), mapped(name, same, oracle))


@pytest.mark.parametrize("name", ["skew", "skew causal", "rel_shift"])
def test_maps_move_bits(name):
    """NaN payloads, infinities and signed zeros arrive as they left."""
    bits = np.random.default_rng(1).integers(0, 2**32, (3, 4, 6), dtype=np.uint32)
    x = bits.view(np.float32)
    assert_bitwise(mapped(name, x), mapped(name, x, oracle))


@pytest.mark.parametrize("name", MAPS)
def test_maps_for_any_number_of_threads(name):
    x = np.random.default_rng(2).standard_normal((3, 150, 260))
    assert_same_on_threads(lambda: mapped(name, x))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("lq", "columns"), [(1, 1), (4, 4), (3, 8), (6, 5)])
def test_unskew_is_the_adjoint(lq, columns, is_causal):
    rng = np.random.default_rng(3)
    a = rng.integers(-9, 9, (2, lq, columns)).astype(float)
    skewed = relpos.skew(a, is_causal=is_causal)
    b = rng.integers(-9, 9, skewed.shape).astype(float)
    assert (skewed * b).sum() == (a * relpos.unskew(b, is_causal=is_causal)).sum()


def test_skew_is_the_music_transformer_s_pad_reshape_slice():
    x = numbered(2, 5, 5)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 0)]).reshape(2, 6, 5)
    assert_bitwise(relpos.skew(x, is_causal=True), padded[:, 1:])


def test_half_precision_stays_half_precision():
    x = numbered(3, 5, dtype=np.float16)
    got = relpos.rel_shift(x)
    assert_bitwise(got, oracle.rel_shift(x))


@pytest.mark.parametrize(
    "row",
    rows(
        """
relative_positions(-1) -> ValueError: query_length…-1
relative_positions(2.0) -> TypeError: query_length…float
relative_positions(2, True) -> TypeError: key_length
relative_positions(2, max_relative_position=-3) -> ValueError: max_relative_position…-3
relative_positions(2, query_offset=2**61) -> ValueError:
    query_offset…2305843009213693952
relative_positions(2**40, 2**40) -> ValueError: query_length…1099511627776
grid_labels((2, -1)) -> ValueError: shape…-1
grid_labels("22") -> TypeError: shape…str
grid_labels(b"ab") -> TypeError: shape…bytes…sequence
grid_labels(bytearray(b"ab")) -> TypeError: shape…bytearr
grid_labels(memoryview(b"ab")) -> TypeError: shape…memoryview
grid_labels((2**20, 2**20)) -> ValueError: shape
skew(np.zeros((5, 3)), is_causal=False) -> ValueError: x…(5, 3)…R…-4
skew(np.zeros(3), is_causal=True) -> ValueError: x…(3,)
"""
    ),
)
def test_bad_calls(row):
    check(row, vars(relpos))
