"""Errors for tensors that a function does not take."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]

from inspect import signature  # noqa: E402

from torch_attention import CALLS, tensors_of  # noqa: E402
from torch_calls import calls  # noqa: E402

import relpos.torch  # noqa: E402

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


def said(name, given):
    """The error of a call, or None."""
    try:
        getattr(relpos.torch, name)(**given)
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
            error = said(name, {**given, **tensors, argument: other(x.detach())})
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
            error = said(name, {**given, **tensors, argument: nest(x)})
            assert isinstance(error, TypeError)
            called, _, words = str(error).partition(": got a nested tensor; expected ")
            assert argument.endswith(called)  # slopes of num_heads_or_slopes
            assert "tensor.to_padded_tensor(0.0)" in words


def test_a_tensor_for_what_is_none():
    for name, tensors, given in calls_by_name():
        for argument in signature(getattr(relpos.torch, name)).parameters:
            if argument not in given:
                continue
            for wrong in (torch.tensor(1.5), torch.ones(2, dtype=torch.int64)):
                error = said(name, {**given, **tensors, argument: wrong})
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
