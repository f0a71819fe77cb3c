"""`_core.broadcast_to` against NumPy's."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

from relpos._core import broadcast_to

ARRAYS = {
    "0-d": np.array(3.0),
    "scalar": np.float64(3.0),
    "row": np.arange(4.0),
    "column": np.arange(3.0)[:, None],
    "backward": np.arange(12.0).reshape(3, 4)[::-1, ::-1],
    "every other": np.arange(24, dtype=np.float32).reshape(3, 8)[:, ::2],
    "swapped bytes": np.arange(4.0).astype(">f8"),
    "empty": np.zeros((0, 4)),
    "repeated": np.broadcast_to(np.arange(4.0), (3, 4)),
}
SHAPES = [(), (4,), (1,), (3, 4), (3, 1), (2, 3, 4), (2, 0, 3, 4), (0, 4), (1, 1, 3, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ARRAYS)
def test_same_as_numpy(name, shape):
    array = ARRAYS[name]
    try:
        wanted = np.broadcast_to(array, shape)
    except ValueError:
        with pytest.raises(ValueError, match="does not fit"):
            broadcast_to(array, shape)
        return
    got = broadcast_to(array, shape)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(got, wanted)
    longer = [i for i, length in enumerate(shape) if length > 1]
    assert [got.strides[i] for i in longer] == [wanted.strides[i] for i in longer]
    assert got.flags.aligned == wanted.flags.aligned
    if isinstance(array, np.ndarray):
        assert np.shares_memory(got, array) == (got.size > 0)
        assert got.flags.writeable == array.flags.writeable


@pytest.mark.parametrize(
    ("array", "shape", "kind"),
    [
        (np.ones(1), [3], TypeError),
        (np.ones(1), ("3",), TypeError),
        (np.ones(1), (-1,), ValueError),
        (np.ones(1), (1,) * 70, ValueError),
        (np.ones(1), (2**70,), OverflowError),
        (np.ones(1), (2**62, 2**62), ValueError),
    ],
)
def test_what_is_no_shape_is_refused(array, shape, kind):
    with pytest.raises(kind):
        broadcast_to(array, shape)


def test_the_array_lives_as_long_as_the_view():
    array = np.arange(1000.0)
    before = sys.getrefcount(array)
    view = broadcast_to(array, (2, 1000))
    assert sys.getrefcount(array) == before + 1
    del array
    gc.collect()
    np.testing.assert_array_equal(view, np.broadcast_to(np.arange(1000.0), (2, 1000)))
