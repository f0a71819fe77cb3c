"""Arguments whose code changes other arguments while a call is read.

An array's shape and memory are looked at when nothing is left to be read. The error, or
the result, is then that of the arrays as they are.
"""

from __future__ import annotations

import numpy as np
import pytest
from hostile_objects import Array, DLPack, Interface, shrink
from operand_arrays import FLOATING, shape_of

import relpos
from relpos import _core
from relpos._settings import kernels

SHAPE = (2, 3, 4, 8)
#: Arguments of a good call that are arrays, and those that NumPy has to convert.
ARRAYS = {
    "query": np.ones(SHAPE, np.float32),
    "key": np.ones(SHAPE, np.float32),
    "value": np.ones(SHAPE, np.float32),
    "attn_mask": np.ones((2, 3, 4, 4), bool),
    "rel_key": np.ones((9, 8), np.float32),
    "rel_query": np.ones((9, 8), np.float32),
    "rel_value": np.ones((9, 8), np.float32),
    "rel_bias": np.ones(9, np.float32),
    "pos_bias_u": np.ones((3, 8), np.float32),
    "pos_bias_v": np.ones((3, 8), np.float32),
    "position_query": np.ones(SHAPE, np.float32),
    "sinks": np.ones(3, np.float32),
    "log_decay": -np.ones((3, 4), np.float32),
    "key_ranges": np.tile([0, 4], (4, 1)),
    "query_offset": np.zeros(2, int)[:, None][:, 0].copy(),
    "key_lengths": np.full(2, 4),
}
LENGTHS = {"H": 3, "q": 4, "k": 4, "t": 4, "D": 8, "V": 8, "P": 8}
ARRAYS |= {
    name: np.ones(shape_of(name, LENGTHS, 9), np.float32)
    for name in FLOATING
    if name not in ARRAYS
}


def good():
    given = {name: array.copy() for name, array in ARRAYS.items()}
    return given | {"is_causal": True}


def outcome(**keywords):
    try:
        return relpos.attention(**keywords)
    except (TypeError, ValueError) as error:
        return str(error)


@pytest.mark.sanitized
@pytest.mark.parametrize("kind", [Array, Interface, DLPack])
@pytest.mark.parametrize("changed", [n for n in ARRAYS if ARRAYS[n].dtype == "f4"])
def test_an_array_that_is_resized_is_read_as_it_is(changed, kind):
    relpos.attention(**good())
    names = [*ARRAYS]
    for other in names[names.index(changed) + 1 :]:
        if kind is DLPack and ARRAYS[other].dtype == bool:
            continue  # NumPy 1 has none of it in DLPack
        given = good()
        array = given[changed]
        given[other] = kind(given[other], shrink(array))
        found = outcome(**given)
        assert array.shape == (1,)
        want = outcome(**good() | {changed: array})
        assert isinstance(want, str) == (changed != "rel_bias")  # one row will do
        np.testing.assert_array_equal(found, want, other)


@pytest.mark.sanitized
@pytest.mark.parametrize("dtype", ["i4", "u4", "S4"])
@pytest.mark.parametrize("changed", [n for n in FLOATING if n != "log_decay"])
def test_an_array_that_gets_another_dtype_is_refused(changed, dtype):
    """A call with numbers of such a dtype is refused, too."""
    given = good()
    array = given[changed] = given[changed].astype(np.float32)
    if changed == "query":  # all of one dtype, which that of the result follows
        given |= {"key": array, "value": array}
    ranges = given["key_ranges"]
    given["key_ranges"] = Array(ranges, lambda: setattr(array, "dtype", dtype))
    with pytest.raises(TypeError, match=f"^{changed}: its dtype was replaced while "):
        relpos.attention(**given)


def test_an_array_that_is_resized_by_a_later_number():
    """Its shape is read again after the number."""

    class Number(float):
        def __float__(self):
            run()
            return 0.5

    class Index:
        def __index__(self):
            run()
            return 1

    for name, value in (("scale", Number(0.5)), ("num_threads", Index())):
        given = {n: ARRAYS[n].copy() for n in ("query", "key", "value")}
        run = shrink(given["key"])
        with pytest.raises(ValueError, match="key"):
            relpos.attention(**given, **{name: value})


class Changing:
    """A number that resizes an array when it is read."""

    def __init__(self, number, run):
        self.number, self.run = number, run

    def __index__(self):
        self.run()
        return self.number

    def __float__(self):
        self.run()
        return float(self.number)


NUMBERS = {"scale": 1, "softcap": 1, "dropout_p": 0, "window_left": 3}
NUMBERS |= {"window_right": 0, "min_relative_position": -4, "num_threads": 2}
NUMBERS |= {"min_bias_position": -4, "beyond": 0, "weigh_all": 0, "part_key": 0}


@pytest.mark.sanitized
@pytest.mark.parametrize("number", NUMBERS)
def test_the_kernels_read_numbers_before_arrays(number):
    names = ("query", "key", "value", "rel_key", "rel_bias", "key_ranges")
    for changed in set(names) - {"rel_bias"}:  # of which one row will do
        given = {n: ARRAYS[n].copy() for n in names}
        given |= {"out": np.empty(SHAPE, np.float32), "scale": 1.0, "num_threads": 1}
        given[number] = Changing(NUMBERS[number], shrink(given[changed]))
        with pytest.raises(
            ValueError, match=f"^attention_forward: ({changed}|key|value)"
        ):
            kernels().attention_forward(given)


def test_the_rows_of_a_table_that_changes_as_it_is_read():
    class Table(np.ndarray):
        """It runs a function where NumPy makes a copy of it."""

        run = staticmethod(lambda: None)

        def __array_finalize__(self, other):
            type(self).run()

    table = np.ones((5, 4), np.float32)
    at = np.arange(4, dtype=np.int64)[::2].view(Table)
    Table.run = lambda: table.resize((1,), refcheck=False)
    try:
        with pytest.raises(ValueError, match="the table has no rows"):
            kernels().learned_rows(table, at, "positions")
        grad = table
        grad.resize((2, 4), refcheck=False)
        with pytest.raises(ValueError, match="shapes do not fit"):
            kernels().learned_sums(grad, at, 3)
    finally:
        Table.run = staticmethod(lambda: None)


def test_a_dtype_is_known_without_running_its_code():
    """A dtype of another package is known by its name: bfloat16 alone."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.ones((1, 3, 4)).astype(ml_dtypes.bfloat16)
    assert relpos.attention(x, x, x).dtype == ml_dtypes.bfloat16
    for other in (ml_dtypes.float8_e4m3, ml_dtypes.int4):
        with pytest.raises(TypeError, match="query: got"):
            relpos.attention(x.astype(other), x, x)


def test_memory_is_let_go_after_an_error():
    before = _core.live_blocks()
    for _ in range(3):
        with pytest.raises(ValueError, match="key"):
            query, key = (np.ones((1, n, 4)) for n in (3, 5))
            relpos.attention(query, key, Array(np.ones((1, 5, 4)), shrink(key)))
    assert _core.live_blocks() == before
