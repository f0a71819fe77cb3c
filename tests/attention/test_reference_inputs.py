"""Inputs of the definitions: an empty batch, arrays of every kind and layout."""

from __future__ import annotations

import numpy as np
import pytest
from reference_calls import WITHOUT_ARRAYS, calls

import relpos
from relpos import reference

#: No length of the calls is this.
BATCH = 7
EMPTY, FULL = calls(0), calls(BATCH)
NAMES = [f"{name}, {what}".rstrip(", ") for what, name, _ in FULL]
each_call = pytest.mark.parametrize("index", range(len(FULL)), ids=NAMES)
no_key = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")


def results(name, arguments):
    """The results of a definition as arrays, None where there is none."""
    found = getattr(reference, name)(**arguments)
    if isinstance(found, dict):
        found = tuple(found.values())
    found = found if isinstance(found, tuple) else (found,)
    return [x if x is None else np.asarray(x) for x in found]


def shapes(name, arguments):
    return [None if x is None else x.shape for x in results(name, arguments)]


def emptied(shapes):
    """Shapes with nothing where there was the batch."""
    return [x and tuple(0 if n == BATCH else n for n in x) for x in shapes]


def test_every_definition_that_takes_arrays_is_called():
    names = {
        n for n in reference.__all__ if not isinstance(getattr(reference, n), type)
    }
    called = {name for _, name, _ in FULL}
    assert names == called | WITHOUT_ARRAYS and not called & WITHOUT_ARRAYS


@each_call
@no_key
def test_an_empty_batch(index):
    _, name, given = FULL[index]
    want = emptied(shapes(name, given))
    assert shapes(name, EMPTY[index][2]) == want


def has_batch(value):
    return isinstance(value, np.ndarray) and BATCH in value.shape


def without_batch(value):
    """The first item of an array that has the batch as an axis."""
    if isinstance(value, tuple):
        return tuple(map(without_batch, value))
    if not has_batch(value):
        return value
    return value.take(0, value.shape.index(BATCH))


@each_call
@no_key
def test_an_empty_batch_of_one_argument_alone(index):
    """Others have no batch: each takes part in the shape of the result."""
    _, name, given = FULL[index]
    if name.endswith("_backward") or name == "dropout_keep":
        return  # the incoming gradient has the batch as well
    shared = {n: without_batch(x) for n, x in given.items()}
    for argument in filter(lambda n: has_batch(given[n]), given):
        try:
            want = shapes(name, {**shared, argument: given[argument]})
        except (ValueError, IndexError):
            continue  # the definition does not broadcast this argument
        nothing = {**shared, argument: EMPTY[index][2][argument]}
        assert shapes(name, nothing) == emptied(want), argument


def test_an_empty_batch_is_that_of_the_kernels():
    x, table = np.zeros((0, 2, 3, 4)), np.zeros((5, 4))
    for own in (
        {"rel_key": table, "beyond": "zero", "query_offset": np.zeros(0, int)},
        {"rel_bias": table[:, :2].T, "query_offset": np.zeros(0, int)},
        {"rel_value": table, "labels": np.zeros((0, 3, 3), int)},
        {"key_lengths": np.zeros(0, int)},
    ):
        assert reference.attention(x, x, x, **own).shape == x.shape
        assert relpos.attention(x, x, x, **own).shape == x.shape


# ---- arrays of every kind and layout -------------------------------------------------


def forms(array):
    """Yield (name, array of the same numbers) that other code may refuse to read."""
    if array.dtype.itemsize > 1:
        yield "byte-swapped", array.astype(array.dtype.newbyteorder())
    if array.ndim:
        yield "reversed", np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    yield "transposed", np.array(array, order="F")
    fixed = array.copy()
    fixed.flags.writeable = False
    yield "read-only", fixed
    if array.dtype.kind == "f":
        yield "long double", array.astype(np.longdouble)
        return
    least = array.min(initial=0)
    for kind in ("i1", ">i2", "i4", "u1", ">u2", "u2", "u4", ">u8", "u8"):
        if array.dtype.kind == "i" and (least >= 0 or "i" in kind):
            yield kind, array.astype(kind)


def arrays_of(arguments):
    return {n: np.asarray(x) for n, x in arguments.items() if is_array(x)}


def is_array(value):
    return isinstance(value, np.ndarray) or (isinstance(value, list) and value)


def assert_equal(got, want):
    for mine, right in zip(got, want, strict=True):
        assert (mine is None) == (right is None)
        if right is not None:
            np.testing.assert_allclose(mine, right, rtol=1e-12, atol=1e-13)


@each_call
@no_key
def test_arrays_of_every_kind(index):
    _, name, given = FULL[index]
    want = results(name, given)
    for argument, array in arrays_of(given).items():
        for _, form in forms(array):
            assert_equal(results(name, {**given, argument: form}), want)


torch_alone = [i for i, (_, name, _) in enumerate(FULL) if "backward" not in name]


@pytest.mark.torch
@pytest.mark.parametrize("index", torch_alone, ids=[NAMES[i] for i in torch_alone])
@pytest.mark.parametrize("cases", [FULL, EMPTY], ids=["full", "empty"])
def test_arrays_of_every_kind_beside_tensors(index, cases):
    torch = pytest.importorskip("torch")
    _, name, given = cases[index]
    want, own = results(name, given), arrays_of(given)
    tensors = {**given, **{n: torch.tensor(x) for n, x in own.items()}}
    assert_equal(results(name, tensors), want)
    for argument, array in own.items():
        for kind, form in forms(array):
            got = results(name, {**tensors, argument: form})
            assert_equal(got, want)
            if form.dtype.isnative and hasattr(torch, form.dtype.name):
                same = torch.tensor(form.copy()) if kind != "reversed" else array
                assert_equal(results(name, {**tensors, argument: same}), want)


@pytest.mark.torch
def test_numbers_beyond_int64_stay_large():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    want = reference.attention(x, x, x)
    most = np.array(2**64 - 1, np.uint64)
    tensor = torch.tensor(x)
    for lengths in (most, torch.tensor(most)):
        got = reference.attention(tensor, tensor, tensor, key_lengths=lengths)
        assert_equal([got], [want])
