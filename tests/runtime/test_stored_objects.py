"""State files and pickles of relpos 0.3.0 are read, and compute the same bits."""

from __future__ import annotations

import inspect
import io
import pickle
import platform

import numpy as np
import pytest
import stored_objects as stored
from docstrings import public
from tolerances import TOLERANCES

from relpos import nn
from relpos._moved import MOVED

if np.lib.NumpyVersion(np.__version__) < "2.0.0":
    pytest.skip("NumPy 1 cannot read pickles of NumPy 2", allow_module_level=True)

ARRAYS, TENSORS = (
    stored.read(stored.STORE / f"{x}.tar.xz") for x in ("arrays", "tensors")
)
NAMES = {name.rsplit("/", 1)[0]: None for name in [*ARRAYS, *TENSORS]}
ARRAY_CASES = stored.array_cases()


def why_other_bits(name, case, found):
    """The reason why this machine may compute other bits, or None."""
    if case.ask is stored.fields:
        return None
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"kernels for every CPU have other bits on {platform.machine()}"
    if (
        found is TENSORS
        and stored.tensor_fingerprint().encode() != found["fingerprint"]
    ):
        return "products of this PyTorch, or on this CPU, have other bits"
    is_plain = found is TENSORS or not any(word in name for word in stored.OF_NUMPY)
    if is_plain or stored.array_fingerprint().encode() == found["fingerprint"]:
        return None
    return "exponentials of this NumPy, or on this CPU, have other bits"


def check_numbers(name, case, thing, found):
    """An object gives the numbers that were stored, to the bit where that can be."""
    with stored.portable():
        got = stored.flat(case.ask(thing))
    want = pickle.loads(found[f"{name}/numbers"])
    assert [(x.dtype, x.shape) for x in got] == [(x.dtype, x.shape) for x in want]
    other = why_other_bits(name, case, found)
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


def check_pickle(name, case, thing, found):
    """It is of the class of that name, or has such a part, and is what it was."""
    kind = public()[name.split("(")[0]]
    parts = thing if isinstance(thing, list) or type(thing) is tuple else [thing]
    assert not inspect.isclass(kind) or kind in map(type, parts)
    check_numbers(name, case, thing, found)


@pytest.mark.parametrize("name", ARRAY_CASES)
def test_a_pickle(name):
    thing = pickle.loads(ARRAYS[f"{name}/pickle"])
    check_pickle(name, ARRAY_CASES[name], thing, ARRAYS)


@pytest.mark.parametrize("name", [x for x, y in ARRAY_CASES.items() if y.has_state])
def test_a_state_file(name, tmp_path):
    case, path = ARRAY_CASES[name], tmp_path / "state.npz"
    path.write_bytes(ARRAYS[f"{name}/state"])
    state, layer = nn.load_file(path), case.make()
    check_state(pickle.loads(ARRAYS[f"{name}/pickle"]).state_dict(), state)
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
@pytest.mark.parametrize("name", [x for x in NAMES if f"{x}/pickle" in TENSORS])
def test_a_pickle_of_tensors(name, tensor_cases):
    import torch

    if torch.torch_version.TorchVersion(torch.__version__) < "2.13":
        pytest.skip("pickled by PyTorch 2.13")
    thing = torch.load(io.BytesIO(TENSORS[f"{name}/pickle"]), weights_only=False)
    check_pickle(name, tensor_cases[name], thing, TENSORS)


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


def test_a_pickle_of_a_moved_class_is_the_first_to_import_relpos(child):
    """One pickle for each former module, in a process that has not loaded relpos.

    Those of relpos.torch are in test_a_pickle_of_tensors, and those of models of
    transformers in tests/tensors/test_torch_transformers.py.
    """
    pickles = [x for name, x in ARRAYS.items() if name.endswith("/pickle")]
    for old in (name for name in MOVED if ".torch." not in name):
        said = [x for x in pickles if old.encode() + b"\x94" in x]
        for content in said[:1]:
            child(f"import pickle; pickle.loads({content!r})")
        assert said or any(name.startswith(f"{old}.") for name in MOVED), old


def test_every_case_is_stored():
    """Otherwise ``python tests/tools/stored_objects.py`` stores it."""
    assert {f"{name}/pickle" for name in ARRAY_CASES} <= ARRAYS.keys()


@pytest.mark.torch
def test_every_case_of_tensors_is_stored(tensor_cases):
    assert {f"{name}/pickle" for name in tensor_cases} <= TENSORS.keys()


def test_every_public_class_is_stored_or_listed():
    names = {name.split("(")[0] for name in NAMES}
    classes = {name for name, thing in public().items() if inspect.isclass(thing)}
    assert classes - names == classes & stored.NOT_STORED.keys()
    assert not names & stored.NOT_STORED.keys()
