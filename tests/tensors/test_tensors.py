"""Tensors as arrays and back, and errors for tensors that a function does not take."""

from __future__ import annotations

from inspect import signature

import numpy as np
import pytest
import torch
from torch_attention import CALLS, tensors_of
from torch_calls import calls

import relpos
import relpos.torch
from relpos.torch._tensors import array_of, result_dtype, tensor_of, under_autocast

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
F16, B16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "int8", "int16", "int32", "int64", "bool"],
)
def test_an_array_is_a_view(dtype):
    tensor = torch.arange(12).to(getattr(torch, dtype)).reshape(3, 4)
    for view in (tensor, tensor.T, tensor[:, ::2], tensor[1:1], tensor[0].expand(5, 4)):
        array = array_of("x", view)
        assert array.dtype == dtype and array.shape == view.shape
        assert array.ctypes.data == view.data_ptr() or not array.size
        assert array.tolist() == view.tolist()


def test_what_needs_a_copy_is_copied():
    numbers = [1.0, -2.5, 3.25]
    for dtype in (torch.bfloat16, torch.float16):
        half = array_of("x", torch.tensor(numbers, dtype=dtype))
        assert half.dtype == np.float32 and half.tolist() == numbers
        views = (
            torch.tensor([numbers, numbers], dtype=dtype).T,
            torch.zeros(1, dtype=dtype).expand(4, 3),
            torch._neg_view(torch.tensor(numbers, dtype=dtype)),
        )
        for view in views:
            assert array_of("x", view).tolist() == view.tolist()
    complex_one = torch.complex(torch.zeros(3), torch.tensor(numbers))
    negated = complex_one.conj().imag
    assert negated.is_neg()
    assert array_of("x", negated).tolist() == [-x for x in numbers]
    assert array_of("x", complex_one.conj()).tolist() == [-1j * x for x in numbers]


def test_every_float16_is_what_numpy_makes_of_it():
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.float16)
    got, want = array_of("x", every), every.numpy().astype(np.float32)
    np.testing.assert_array_equal(got, want)  # nan is nan
    assert np.array_equal(np.signbit(got), np.signbit(want))


def test_one_that_requires_grad_and_what_is_no_tensor():
    assert array_of("x", torch.ones(2, requires_grad=True)).tolist() == [1.0, 1.0]
    for value in (None, 3, 2.5, np.ones(2), [1.0]):
        assert array_of("x", value) is value


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.ones(2, device="meta"), "device 'meta'.*the CPU"),
        (lambda: torch.ones(2).to_sparse(), "sparse_coo.*to_dense"),
        (lambda: torch.ones(2, dtype=F16, device="meta"), "device 'meta'.*the CPU"),
        (lambda: torch.ones(2, dtype=B16).to_sparse(), "sparse_coo.*to_dense"),
        (lambda: torch.ones(2, dtype=torch.float8_e5m2), "float8_e5m2.*float32"),
    ],
)
def test_no_array_can_be_had(make, words):
    with pytest.raises(TypeError, match=f"query: got .*{words}"):
        array_of("query", make())


def test_a_tensor_is_a_view():
    array = np.arange(6.0).reshape(2, 3)
    tensor = tensor_of(array, torch.float64)
    assert tensor.data_ptr() == array.ctypes.data and tensor.dtype == torch.float64
    assert tensor_of(array, torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("dtypes", "plain", "autocast"),
    [
        ([], F32, B16),
        ([torch.int64], F32, B16),
        ([F32], F32, B16),
        ([F16], F16, B16),
        ([B16, B16], B16, B16),
        ([B16, F16], F32, B16),
        ([B16, F32, torch.bool], F32, B16),
        ([F32, F64], F64, F64),
    ],
)
def test_the_dtype_of_a_result(dtypes, plain, autocast):
    tensors = [None, 2.0, *(torch.ones(2, dtype=dtype) for dtype in dtypes)]
    assert under_autocast(result_dtype(tensors)) == plain
    with torch.autocast("cpu", torch.bfloat16):
        assert result_dtype(tensors) == plain
        assert under_autocast(plain) == autocast


def test_relpos_never_imports_torch(child):
    code = "import sys, relpos; assert 'torch' not in sys.modules; relpos.torch"
    child(code)
    assert "torch" in dir(relpos)


def test_the_compiler_is_loaded_by_those_who_compile(child):
    code = "import sys, relpos.torch; assert 'torch._dynamo' not in sys.modules"
    child(code)


# ---- errors --------------------------------------------------------------------------

#: Words of arrays, for which nobody asks who gives tensors.
OF_ARRAYS = "np.", "NumPy", "array", "astype", "Internal error"


def calls_by_name():
    """A call of each function, as its name, its tensors and its other arguments."""
    for call in calls().values():
        yield call.name, call.tensors(torch.float32, grad=False), call.settings
    for call in CALLS.values():
        tensors = tensors_of(call.inputs, torch.float32)
        others = tensors_of(call.others)
        tensors |= {n: x for n, x in others.items() if isinstance(x, torch.Tensor)}
        yield call.function, tensors, others | tensors
    yield "alibi_slopes", {}, {"num_heads": 4}


def error_of(name, arguments):
    """The error of a call, or None."""
    try:
        getattr(relpos.torch, name)(**arguments)
    except (TypeError, ValueError) as error:
        return error
    return None


def whole_numbers(x):
    return x.detach().long()


def nested(layout):
    def nest(x):
        rows = x.detach().reshape(-1, 1)
        return torch.nested.nested_tensor([rows, rows[:1]], layout=layout)

    return nest


@pytest.mark.parametrize(
    "other", [whole_numbers, torch.Tensor.bool, lambda x: x.to(torch.complex64)]
)
def test_another_dtype(other):
    asked = 0
    for name, tensors, given in calls_by_name():
        for argument, x in tensors.items():
            error = error_of(name, {**given, **tensors, argument: other(x.detach())})
            if error is None:
                continue
            words = str(error)
            assert argument in words and not any(word in words for word in OF_ARRAYS)
            asked += "(convert it with .to(torch.float32))" in words
    assert asked > 50 or other(torch.ones(1)).is_complex()


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor(layout):
    nest = nested(layout)
    for name, tensors, given in calls_by_name():
        for argument, x in tensors.items():
            error = error_of(name, {**given, **tensors, argument: nest(x)})
            assert isinstance(error, TypeError)
            called, _, words = str(error).partition(": got a nested tensor; expected ")
            assert called == argument
            assert "tensor.to_padded_tensor(0.0)" in words


def test_a_tensor_for_what_is_none():
    for name, tensors, given in calls_by_name():
        for argument in signature(getattr(relpos.torch, name)).parameters:
            if argument not in given:
                continue
            for wrong in (torch.tensor(1.5), torch.ones(2, dtype=torch.int64)):
                error = error_of(name, {**given, **tensors, argument: wrong})
                words = str(error)
                assert not any(word in words for word in OF_ARRAYS), words


def test_a_mask_of_integers_is_told_of_bool():
    x, mask = torch.ones(1, 2, 4), torch.ones(2, 2, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"attn_mask: .* \.to\(torch\.bool\)"):
        relpos.torch.attention(x, x, x, attn_mask=mask)


def test_a_compiled_call_says_the_same():
    x, whole = torch.ones(1, 2, 4), torch.ones(1, 2, 4, dtype=torch.int64)
    call = torch.compile(relpos.torch.attention, backend="aot_eager")
    with pytest.raises(TypeError, match=r"key: .*\.to\(torch\.float32\)"):
        call(x, whole, x)
    torch.compiler.reset()
