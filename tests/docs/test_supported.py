"""The record of what is supported: its page, and its cells for arrays.

tests/tensors/test_torch_supported.py has the cells for tensors.
"""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import reference_calls
from documents import page_as_written
from layouts import LAYOUTS

import relpos
from relpos import reference
from relpos._catalogue.supported import SUPPORTED, YES, gradients_of

#: The first call of each definition that is listed.
CALLS = {name: given for _, name, given in reversed(reference_calls.calls(2))}
CALLS["segment_ranges"] = {"query_segments": np.array([[0, 0, 2], [1, 2, 2]])}
FLOATS = [name for name, support in SUPPORTED.items() if support.wide == YES]
OPERANDS = [name for name, support in SUPPORTED.items() if support.layouts == YES]
GRADIENTS = {name: gradients_of(name) for name in SUPPORTED if gradients_of(name)}
#: Tolerances, relative to the largest number of a result.
TOLERANCES = {
    np.dtype(np.float64): 1e-12,
    np.dtype(np.float32): 2e-6,
    np.dtype(np.float16): 2e-3,
}
SHORT = [np.dtype(np.float16)]
if find_spec("ml_dtypes"):
    from ml_dtypes import bfloat16

    SHORT.append(np.dtype(bfloat16))
    TOLERANCES[SHORT[1]] = 1.6e-2


def tolerance_of(dtype):
    """Return the tolerance of a dtype: integers are equal."""
    return TOLERANCES.get(dtype, 0.0)


def parts(result):
    """The arrays of a result, those of a named tuple too."""
    if isinstance(result, dict):  # gradients by name
        result = tuple(map(np.asarray, result.values()))
    if isinstance(result, tuple):
        return [np.asarray(x) for x in result if isinstance(x, np.ndarray)]
    return [np.asarray(result)]


def assert_close(got, want, dtype):
    assert len(got) == len(want) > 0
    for one, other in zip(got, want, strict=True):
        one = one.astype(np.float64)
        assert one.shape == other.shape
        finite = np.isfinite(other)
        np.testing.assert_array_equal(one[~finite], other[~finite])
        largest = np.abs(other[finite]).max(initial=1e-3)
        errors = np.abs(one[finite] - other[finite])
        assert errors.max(initial=0.0) <= tolerance_of(dtype) * largest


def floats_to(arguments, dtype):
    return {
        name: x.astype(dtype) if getattr(x, "dtype", np.dtype(int)).kind in "fV" else x
        for name, x in arguments.items()
    }


@np.errstate(all="ignore")  # a sink of minus infinity
def definition(name, arguments):
    return parts(getattr(reference, name)(**arguments))


def compare(name, dtype, function=None):
    """A call of a dtype with the definition, of the same rounded numbers in float64."""
    function = function or name
    arguments = floats_to(CALLS[function], dtype)
    got = parts(getattr(relpos, function)(**arguments))
    want = definition(function, floats_to(arguments, np.float64))
    assert_close(got, want, max((x.dtype for x in got), key=tolerance_of))


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", FLOATS)
def test_dtypes(name, dtype):
    if dtype in SHORT:
        assert SUPPORTED[name].short == YES
    compare(name, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPERANDS)
def test_layouts(name, layout):
    arguments = {
        key: LAYOUTS[layout](x) if isinstance(x, np.ndarray) and x.ndim else x
        for key, x in CALLS[name].items()
    }
    got = parts(getattr(relpos, name)(**arguments))
    want = definition(name, CALLS[name])
    assert_close(
        got, want, got[0].dtype if got[0].dtype.kind == "f" else np.dtype(float)
    )


def slope(name, direction):
    """Derivative of the sum of a result of a definition, along a direction of query."""
    arguments = CALLS[name]

    def total(step):
        query = arguments["query"] + step * direction
        return definition(name, {**arguments, "query": query})[0].sum()

    step = 1e-3  # five points: an error of the fourth power of it
    near, far = total(step) - total(-step), total(2 * step) - total(-2 * step)
    return (8 * near - far) / (12 * step)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    if GRADIENTS[name] != "return_context":
        for dtype in (np.dtype(np.float64), np.dtype(np.float32)):
            compare(name, dtype, GRADIENTS[name])
        return
    result = getattr(relpos, name)(**CALLS[name], return_context=True)
    gradients = result.context.backward(np.ones_like(result.out))
    direction = np.cos(np.arange(gradients.query.size)).reshape(gradients.query.shape)
    found = (gradients.query * direction).sum()
    assert abs(found - slope(name, direction)) < 1e-9


def test_the_page_is_the_record_s(monkeypatch):
    """`python docs/_extensions/supported.py` writes its table."""
    text = page_as_written(monkeypatch, "supported")
    assert all(f"| `{name}` |" in text for name in SUPPORTED)
