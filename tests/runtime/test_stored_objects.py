"""State files of relpos 0.3.0 are read, and their layers compute the same bits."""

from __future__ import annotations

import inspect
import io
import platform

import numpy as np
import pytest
import stored_objects as stored
from tolerances import TOLERANCES

from relpos import nn

ARRAYS, TENSORS = (
    stored.read(stored.STORE / f"{x}.tar.xz") for x in ("arrays", "tensors")
)
NAMES = {name.rsplit("/", 1)[0]: None for name in [*ARRAYS, *TENSORS]}
ARRAY_CASES = stored.array_cases()


def why_other_bits(name, case, entries):
    """The reason why this machine may compute other bits, or None."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"kernels for every CPU have other bits on {platform.machine()}"
    if (
        entries is TENSORS
        and stored.tensor_fingerprint().encode() != entries["fingerprint"]
    ):
        return "products of this PyTorch, or on this CPU, have other bits"
    is_plain = entries is TENSORS or not any(word in name for word in stored.OF_NUMPY)
    if is_plain or stored.array_fingerprint().encode() == entries["fingerprint"]:
        return None
    return "exponentials of this NumPy, or on this CPU, have other bits"


def check_numbers(name, case, thing, entries):
    """An object gives the numbers that were stored, to the bit where that can be."""
    with stored.portable():
        got = stored.flat(case.ask(thing))
    want = stored.numbers_of(entries[f"{name}/numbers"])
    assert [(x.dtype, x.shape) for x in got] == [(x.dtype, x.shape) for x in want]
    other = why_other_bits(name, case, entries)
    if other is None:
        assert [x.tobytes() for x in got] == [x.tobytes() for x in want]
        return
    largest = max(np.abs(x).max(initial=0) for x in want)
    near = TOLERANCES["layer"].float32 * largest
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=near)
    pytest.skip(f"compared to rounding alone: {other}")


def check_state(got, want):
    """Names, their order, shapes, dtypes and numbers are the same."""
    assert [*got] == [*want]
    for x, y in zip(map(np.asarray, got.values()), want.values(), strict=True):
        y = np.asarray(y)
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())


@pytest.mark.parametrize("name", ARRAY_CASES)
def test_a_state_file(name, tmp_path):
    case, path = ARRAY_CASES[name], tmp_path / "state.npz"
    path.write_bytes(ARRAYS[f"{name}/state"])
    state, layer = nn.load_file(path), case.make()
    for parameter in layer.parameters():
        parameter.data[...] = 0
    assert layer.load_state_dict(state) == ([], [])
    check_state(layer.state_dict(), state)
    check_numbers(name, case, layer, ARRAYS)


@pytest.fixture(scope="module")
def tensor_cases():
    pytest.importorskip("torch")
    return stored.tensor_cases()


@pytest.mark.torch
@pytest.mark.parametrize("name", [x for x in NAMES if f"{x}/state" in TENSORS])
def test_a_state_file_of_tensors(name, tensor_cases):
    import torch

    case = tensor_cases[name]
    state = torch.load(io.BytesIO(TENSORS[f"{name}/state"]), weights_only=True)
    module = case.make()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    module.load_state_dict(state, strict=True)
    check_state(module.state_dict(), state)
    check_numbers(name, case, module, TENSORS)


def test_every_case_is_stored():
    """Otherwise ``python tests/tools/stored_objects.py`` stores it."""
    assert {f"{name}/state" for name in ARRAY_CASES} <= ARRAYS.keys()


@pytest.mark.torch
def test_every_case_of_tensors_is_stored(tensor_cases):
    assert {f"{name}/state" for name in tensor_cases} <= TENSORS.keys()


def test_every_layer_is_stored():
    """But the two bases: a position without parameters, and the class of all layers."""
    kinds = {name: getattr(nn, name) for name in nn.__all__}
    layers = {
        n for n, x in kinds.items() if inspect.isclass(x) and issubclass(x, nn.Module)
    }
    stored_layers = {name.split("(")[0].rpartition(".")[2] for name in ARRAY_CASES}
    assert layers - stored_layers == {"Module", "Position"}


@pytest.mark.torch
def test_every_layer_of_tensors_is_stored(tensor_cases):
    from relpos.torch import nn

    stored_layers = {name.split("(")[0].rpartition(".")[2] for name in tensor_cases}
    names = {*nn.__all__}
    assert stored_layers == {n for n in names if inspect.isclass(getattr(nn, n))}
