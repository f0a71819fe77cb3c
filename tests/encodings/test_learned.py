"""Learned tables and their gradient: rows by index, to the last bit."""

from __future__ import annotations

import tracemalloc

import numpy as np
import oracle_positions as oracle
import pytest
from layouts import LAYOUTS, repeated
from problems import assert_same_on_threads
from tolerances import assert_bitwise

import relpos

DTYPES = [np.float32, np.float64]


@pytest.mark.parametrize("dtype", [np.float16, *DTYPES])
def test_learned(dtype, isa):
    rng = np.random.default_rng(5)
    for batch, rows, columns in (((), 7, 3), ((2, 3), 9, 65), ((1,), 1, 0)):
        table = rng.standard_normal((*batch, rows, columns)).astype(dtype)
        for shape in ((4,), (2, 5), (), (0,)):
            positions = rng.integers(0, rows, shape)
            want = oracle.learned(table, positions)
            assert_bitwise(relpos.learned(table, positions), want)
        assert_bitwise(relpos.learned(table, 1), table[..., :1, :])


def test_of_a_table_of_16_bits_the_rows_that_are_used_take_memory():
    table = np.ones((4, 1 << 14, 64), np.float16)
    relpos.learned(table, [1, 5])
    tracemalloc.start()
    relpos.learned(table, [1, 5])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < table.nbytes / 100


def test_a_position_outside_of_a_table_of_16_bits():
    for positions in ([0, 3], [-1], np.array([], np.int64)):
        table = np.ones((2, 3, 4), np.float16)
        if len(positions) == 0:
            assert relpos.learned(table, positions).shape == (2, 0, 4)
            continue
        with pytest.raises(IndexError, match=r"^positions: position .* is outside"):
            relpos.learned(table, positions)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_learned_of_every_layout(layout):
    table = np.random.default_rng(6).standard_normal((2, 8, 5))
    positions = np.array([[3, 0, 7], [7, 7, 1]])
    arrange = LAYOUTS[layout]
    want = oracle.learned(table, positions)
    assert_bitwise(relpos.learned(arrange(table), arrange(positions)), want)
    small = positions.astype(np.int16)
    same = repeated(table)
    assert_bitwise(relpos.learned(same, small), oracle.learned(same, small))


def test_learned_of_neighbours(isa):
    """Rows that follow each other, in runs that end anywhere, also with the table."""
    rng = np.random.default_rng(7)
    table = rng.standard_normal((2, 3, 900, 70)).astype(np.float32)
    starts = rng.integers(0, 850, 60)
    runs = np.concatenate([np.arange(n, n + rng.integers(1, 50)) for n in starts])
    for positions in (np.arange(900), runs, runs[::-1].copy(), np.arange(899, 900)):
        assert_bitwise(relpos.learned(table, positions), table[..., positions, :])
        every_other = table[..., ::2]
        got = relpos.learned(every_other, positions)
        assert_bitwise(got, every_other[..., positions, :])


@pytest.mark.parametrize("position", [900, -1, -(2**63), 2**63 - 1])
def test_learned_looks_at_every_position(position):
    table, grad = np.zeros((900, 2)), np.zeros((900, 2))
    positions = np.arange(900)
    for at in (0, 450, 899):
        wrong = positions.copy()
        wrong[at] = position
        with pytest.raises(IndexError, match=f"positions: position {position} is out"):
            relpos.learned(table, wrong)
        with pytest.raises(IndexError, match=f"positions: position {position} is out"):
            relpos.learned_backward(grad, wrong, 900)


def loop_backward(grad, positions, rows):
    batch = grad.shape[: grad.ndim - 1 - positions.ndim]
    result = np.zeros((*batch, rows, grad.shape[-1]))
    for index in np.ndindex(*positions.shape):
        result[..., positions[index], :] += grad[(..., *index, slice(None))]
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 16, 37])
@pytest.mark.parametrize("shape", [(6,), (2, 3), (), (0,)])
def test_learned_backward(shape, columns, dtype, isa):
    rng = np.random.default_rng(8)
    positions = rng.integers(0, 5, shape)
    grad = rng.integers(-99, 99, (2, *shape, columns)).astype(dtype)
    got = relpos.learned_backward(grad, positions, 5)
    assert_bitwise(got, loop_backward(grad, positions, 5).astype(dtype))
    for arrange in LAYOUTS.values():
        laid_out = arrange(grad)
        assert_bitwise(relpos.learned_backward(laid_out, positions, 5), got)


def test_learned_backward_is_the_gradient():
    """<learned(T), G> = <T, learned_backward(G)> for whole numbers, exactly."""
    rng = np.random.default_rng(9)
    table = rng.integers(-9, 9, (3, 11, 4)).astype(float)
    positions = rng.integers(0, 11, 50)
    grad = rng.integers(-9, 9, (3, 50, 4)).astype(float)
    forward = (relpos.learned(table, positions) * grad).sum()
    assert forward == (table * relpos.learned_backward(grad, positions, 11)).sum()
    assert relpos.learned_backward(grad[:, :5], 5, 11)[0, 5:].any() == np.False_


def test_learned_for_any_number_of_threads():
    rng = np.random.default_rng(10)
    positions = rng.integers(0, 50, 3000)
    grad = rng.standard_normal((2, 3000, 100)).astype(np.float32)

    def compute():
        back = relpos.learned_backward(grad, positions, 50)
        return back, relpos.learned(back, positions)

    assert_same_on_threads(compute)


def test_more_rows_than_memory_can_address():
    with pytest.raises(ValueError, match="num_positions: shape"):
        relpos.learned_backward(np.ones((1, 3)), [0], 2**59)
