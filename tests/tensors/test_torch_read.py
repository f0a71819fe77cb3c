"""Tensors that C reads where they lie, and those that take another way."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

import relpos
import relpos.torch
from relpos import _core
from relpos._attention import attention, functional
from relpos._settings import kernels
from relpos.torch import _attention, _engine, _recorded
from relpos.torch._tensors import array_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:.*[Qq]uantiz"),
]
needs_table = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="this torch has no table of DLPack",
)


def by_c(value):
    """The array that C makes of a value, None where it asks Python."""
    asked = []

    def other(name, value):
        asked.append(name)
        return np.empty(0)

    found = _core.read_tensors(("x",), [value], other)["x"]
    return None if asked else found


@needs_table
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "bool", "int8", "int16", "int32", "int64"]
)
def test_a_plain_tensor_is_read_where_it_lies(dtype):
    tensor = torch.arange(24).to(getattr(torch, dtype)).reshape(2, 3, 4)
    for view in (tensor, tensor.mT, tensor[1:, ::2], tensor[0, 0].expand(5, 4)):
        array = by_c(view)
        assert array.dtype == dtype and array.shape == view.shape
        assert array.ctypes.data == view.data_ptr() and array.base is view
        assert array.strides == tuple(n * array.itemsize for n in view.stride())
        assert array.tolist() == view.tolist() and array.flags.aligned
    for empty in (tensor[:, 3:], tensor.new_empty(0, 2)):
        assert by_c(empty).shape == empty.shape and by_c(empty).dtype == dtype
    assert by_c(tensor[1, 2, 3]).tolist() == tensor[1, 2, 3].item()


@needs_table
def test_a_parameter_is_read_and_so_is_what_requires_grad():
    leaf = torch.randn(3, requires_grad=True)
    for tensor in (leaf, leaf * 2, torch.nn.Parameter(torch.randn(2, 2))):
        assert by_c(tensor).tolist() == tensor.tolist()


class Named(torch.Tensor):
    pass


def resized(offset=0, dtype=torch.float32):
    tensor = torch.ones(32, dtype=dtype)[offset : offset + 8].view(1, 2, 4)
    tensor.untyped_storage().resize_(0)
    return tensor


OTHERS = {
    "subclass": lambda: torch.ones(2).as_subclass(Named),
    "negative": lambda: torch._neg_view(torch.ones(2)),
    "conjugated": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "imaginary part": lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
    "zero": lambda: torch._efficientzerotensor((2,)),
    "meta": lambda: torch.ones(2, device="meta"),
    "sparse": lambda: torch.ones(2).to_sparse(),
    "csr": lambda: torch.ones(2, 2).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
    "float16": lambda: torch.ones(2, dtype=torch.float16),
    "bfloat16": lambda: torch.ones(2, dtype=torch.bfloat16),
    "float8": lambda: torch.ones(2).to(torch.float8_e5m2),
    "uint8": lambda: torch.ones(2, dtype=torch.uint8),
    "resized": resized,
    "resized, a view": lambda: resized(3),
    "too many axes": lambda: torch.ones([1] * 40),
    "no tensor": lambda: 3.5,
    "no tensor, but an array": lambda: np.ones(2),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_plain_is_left_to_python(name):
    assert by_c(OTHERS[name]()) is None


def test_a_fake_tensor_is_left_to_python():
    with FakeTensorMode() as mode:
        assert by_c(mode.from_tensor(torch.ones(2))) is None


def test_a_tensor_of_torch_func_is_left_to_python():
    seen = []

    def look(x):
        seen.append(by_c(x))
        return x.sum()

    torch.func.vmap(look)(torch.ones(2, 3))
    torch.func.grad(look)(torch.ones(3))
    torch.func.jvp(look, (torch.ones(3),), (torch.ones(3),))
    assert seen == [None] * 3


def test_a_dual_tensor_does_not_lose_its_tangent():
    x = torch.randn(1, 4, 8)
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        relpos.torch.attention(dual, x, x)


def test_an_error_of_python_comes_through():
    def refuse(name, value):
        raise LookupError(name)

    with pytest.raises(LookupError, match="x"):
        _core.read_tensors(("x",), [3], refuse)
    for args in ((), (["x"], [3], refuse), (("x",), [], refuse), (("x",), 3, refuse)):
        with pytest.raises(TypeError, match="read_tensors"):
            _core.read_tensors(*args)
    with pytest.raises(TypeError, match="two types"):
        _core.know_tensors(torch.Tensor)
    assert _core.read_tensors(("x", "y"), [None, None], refuse) == {}


# ---- tensors without memory ----------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_a_storage_of_nothing_is_refused(name, dtype):
    x = torch.ones(1, 2, 4, dtype=dtype)
    for offset in (0, 2):
        gone = resized(offset, dtype)
        tensors = {"query": x, "key": x, "value": x} | {name: gone}
        with pytest.raises(ValueError, match=rf"{name}: .* resized to 0 bytes"):
            relpos.torch.attention(**tensors)
        with pytest.raises(ValueError, match=r"x: .* resized to 0 bytes"):
            relpos.torch.apply_rotary(gone)


# ---- calls that C reads whole --------------------------------------------------------

#: Arguments of both functions that are None by default.
MAY_BE_NONE = [
    name
    for name, parameter in inspect.signature(relpos.attention).parameters.items()
    if parameter.default is None and name != "out"
]
#: Shapes of tensors besides query, key and value, and other arguments.
CALLS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.25, "softcap": 2.0, "beyond": "clip"},
    "a scale of nothing": {"scale": 0.0},
    "shaw": {"rel_key": (7, 8), "rel_value": (7, 5)},
    "music": {"rel_key": (2, 4, 8), "min_relative_position": -3, "is_causal": True},
    "xl": {"rel_key": (2, 7, 8), "pos_bias_u": (2, 8), "pos_bias_v": (2, 8)},
    "bias": {"rel_bias": (2, 9), "rel_query": (7, 8)},
    "tables of each item": {"rel_key": (3, 2, 7, 8), "rel_bias": (3, 1, 7)},
    "a bias on one side": {"rel_bias": (2, 4), "min_relative_position": -3},
    "a mask": {"attn_mask": (4, 4)},
    "a mask of each pair": {"attn_mask": (3, 2, 4, 4)},
    "keys of some": {"key_lengths": 3, "window": (2, None), "query_offset": 1},
    "all in reach": {"rel_key": (7, 8), "beyond": "raise"},
    "zeros beyond a table": {"rel_key": (3, 8), "rel_value": (3, 5), "beyond": "zero"},
    "zeros beyond narrow vectors": {
        "position_query": (3, 2, 4, 6),
        "rel_key": (2, 6),
        "min_relative_position": -2,
        "beyond": "zero",
        "is_causal": True,
    },
    "zeros beyond a bias": {
        "rel_query": (2, 3, 8),
        "rel_bias": (2, 5),
        "beyond": "zero",
        "window": (2, 1),
    },
    "zeros beyond buckets": {
        "rel_key": (3, 8),
        "buckets": [0, 1, 2],
        "beyond": "zero",
    },
    "None for what may be None": dict.fromkeys(MAY_BE_NONE),
    "sinks": {"sinks": (2,), "position_query": (3, 2, 4, 6), "rel_key": (7, 6)},
    "three threads": {"num_threads": 3},
    "groups": {"key": (3, 1, 4, 8), "value": (3, 1, 4, 5), "enable_gqa": True},
    "decoding": {
        "query": (3, 2, 1, 8),
        "query_offset": 3,
        "is_causal": True,
        "rel_key": (7, 8),
        "rel_bias": (2, 7),
    },
    "other keys": {"query": (3, 2, 6, 8)},
    "buckets": {"rel_bias": (2, 3), "buckets": [0, 1, 2, 2, 1, 1, 0, 0, 2]},
    "buckets of some distances": {
        "rel_key": (2, 4, 8),
        "rel_query": (4, 8),
        "rel_value": (3, 1, 4, 5),
        "rel_bias": (4,),
        "buckets": [3, 1, 0, 3, 2],
    },
    "buckets from a first": {
        "rel_key": (3, 8),
        "buckets": [2, 1, 2, 0],
        "min_relative_position": -1,
        "is_causal": True,
    },
    "buckets before a window": {
        "rel_bias": (2, 3),
        "buckets": [0, 1, 2, 2, 1, 1, 0],
        "min_relative_position": 40,
        "window": (1, 2),
    },
    "buckets of a token": {
        "query": (3, 2, 1, 8),
        "query_offset": 3,
        "rel_bias": (2, 3),
        "buckets": [0, 1, 2, 2, 1, 0, 1],
    },
    "buckets with fewer keys": {
        "query": (3, 2, 6, 8),
        "query_offset": -2,
        "key_lengths": 1,
        "rel_value": (3, 5),
        "buckets": [0, 1, 2, 2, 1, 0, 1, 2, 0, 0, 1],
    },
    "buckets of no queries": {
        "query": (3, 2, 0, 8),
        "query_offset": 5,
        "rel_bias": (2, 3),
        "buckets": [0, 1, 2],
    },
    "buckets of keys not yet there": {
        "query_offset": -9,
        "rel_bias": (2, 3),
        "buckets": [0, 1, 2, 2, 1, 0, 1],
        "is_causal": True,
    },
}
#: Of these a gradient is a sum over axes, which Python makes.
SUMMED = {"a mask"}
#: Calls that C leaves to Python, most of which are errors there.
OTHER_CALLS = {
    "labels": {"labels": (torch.zeros(4, 4, dtype=torch.int8), None)},
    "tables of unequal length": {"rel_key": (7, 8), "rel_value": (9, 5)},
    "an even table": {"rel_key": (6, 8)},
    "no rel_key": {"pos_bias_v": (8,)},
    "no groups": {"key": (3, 1, 4, 8)},
    "keys without an offset": {"query": (3, 2, 1, 8), "is_causal": True},
    "too short a table": {"rel_key": (5, 8), "beyond": "raise"},
    "a table of zeros": {"rel_key": (5, 8), "rel_value": (7, 5), "beyond": "zero"},
    "columns": {"key": (3, 2, 4, 7)},
    "no columns": {"query": (3, 2, 4, 0), "key": (3, 2, 4, 0)},
    "two axes": {"query": (4, 8)},
    "more keys than there are": {"key_lengths": 5},
    "an integer for a flag": {"is_causal": 1},
    "a small scale": {"scale": 1e-60},  # 0 in float32
    "a scale in words": {"scale": "two"},
    "a cap below 0": {"softcap": -1.0},
    "no number of threads": {"num_threads": 0},
    "half a window": {"window": (2,)},
    "a window ahead": {"window": (-1, 2)},
    "a far origin": {"rel_key": (7, 8), "min_relative_position": 2**80},
    "dropout": {"dropout_p": 0.5},
    "weights": {"return_weights": True},
    "an unknown word": {"beyond": "wrap"},
    "a bucket too far": {"rel_bias": (2, 3), "buckets": [0, 1, 3]},
    "a bucket below 0": {"rel_bias": (2, 3), "buckets": [0, -1, 2]},
    "an even number of buckets": {"rel_bias": (2, 3), "buckets": [0, 1]},
    "no buckets": {"rel_bias": (2, 3), "buckets": []},
    "buckets and rows": {"rel_bias": (2, 3), "rel_key": (4, 8), "buckets": [0]},
    "buckets that do not serve all": {
        "rel_bias": (2, 3),
        "buckets": [0, 1, 2],
        "beyond": "raise",
    },
    "a scalar for a table with buckets": {"rel_key": (8,), "buckets": [0]},
    "None for a flag": {"enable_gqa": None},
}


def drawn(settings, dtype=torch.float64):
    torch.manual_seed(0)
    shapes = {"query": (3, 2, 4, 8), "key": (3, 2, 4, 8), "value": (3, 2, 4, 5)}
    settings = {
        name: torch.tensor(x, dtype=torch.int64)
        if name == "buckets" and x is not None
        else x
        for name, x in settings.items()
    }
    return {
        name: torch.randn(x, dtype=dtype)
        if type(x) is tuple and name != "window" and type(x[0]) is int
        else x
        for name, x in {**shapes, **settings}.items()
    }


#: Functions of the kernels that read a call.
READING = {"attend", "attend_backward", "attend_tensors", "attend_gradients"}
MODULES = _attention, _engine, _recorded, attention


def by_position(arguments):
    """Split arguments into those of query, key and value, and the others."""
    rest = {n: x for n, x in arguments.items() if n not in {"query", "key", "value"}}
    return tuple(arguments[n] for n in ("query", "key", "value")), rest


def run(arguments):
    """Return results and gradients of a call, by name."""
    leaves = {
        name: x.clone().requires_grad_()
        for name, x in arguments.items()
        if isinstance(x, torch.Tensor) and x.is_floating_point()
    }
    arguments = arguments | leaves
    args, keywords = by_position(arguments)
    result = relpos.torch.attention(*args, **keywords, return_lse=True)
    (result.out.square().sum() + result.lse.sum()).backward()
    grads = {name: x.grad for name, x in leaves.items()}
    with torch.no_grad():
        alone = relpos.torch.attention(**arguments)
    assert torch.equal(alone, result.out)
    return {"out": result.out, "lse": result.lse, **grads}


class Without:
    """The kernels, which read no call."""

    def __init__(self, core):
        self.core = core

    def __getattr__(self, name):
        return (lambda *args: None) if name in READING else getattr(self.core, name)


def prepared(monkeypatch):
    """Let Python prepare all calls."""
    for module in MODULES:
        monkeypatch.setattr(module, "kernels", lambda: Without(kernels()))


def arrays_of(arguments):
    """The tensors of a call as arrays, those of bfloat16 as ml_dtypes has it."""
    arrays = {}
    for name, x in arguments.items():
        if isinstance(x, torch.Tensor) and x.dtype is torch.bfloat16:
            bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
            arrays[name] = x.view(torch.int16).numpy().view(bfloat16)
        else:
            arrays[name] = x.numpy() if isinstance(x, torch.Tensor) else x
    return arrays


@needs_table
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16]
)
@pytest.mark.parametrize("name", CALLS)
def test_they_are_the_same_bits(name, dtype, monkeypatch):
    given = drawn(CALLS[name], dtype)
    arrays = arrays_of(given)
    monkeypatch.setattr(functional, "forward", None)  # which prepares a call
    if name not in SUMMED:
        monkeypatch.setattr(functional, "gradients", None)
    mine = run(given)
    args, keywords = by_position(arrays)
    alone = relpos.attention(*args, **keywords, return_lse=True)
    monkeypatch.undo()
    prepared(monkeypatch)
    for part, want in run(given).items():
        assert mine[part].dtype is want.dtype
        assert torch.equal(mine[part], want), part
    want = relpos.attention(**arrays, return_lse=True)
    assert alone.out.dtype == want.out.dtype == args[0].dtype
    assert np.array_equal(alone.out, want.out) and np.array_equal(alone.lse, want.lse)
    wide = mine["out"].detach().to(torch.float64)
    assert np.array_equal(alone.out.astype(np.float64), wide)


@needs_table
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wide", ["key", "value", "rel_key", "rel_bias", "attn_mask"])
def test_a_tensor_of_float32_among_those_of_16_bits(wide, dtype, monkeypatch):
    """The result is of float32 where it is the key or the value."""
    given = drawn({"rel_key": (7, 8), "rel_bias": (2, 7), "attn_mask": (3, 2, 4, 4)})
    given = {n: x.float() if n == wide else x.to(dtype) for n, x in given.items()}
    monkeypatch.setattr(functional, "forward", None)
    monkeypatch.setattr(functional, "gradients", None)
    mine = run(given)
    monkeypatch.undo()
    prepared(monkeypatch)
    assert mine["out"].dtype is (torch.float32 if wide in {"key", "value"} else dtype)
    for name, want in run(given).items():
        assert mine[name].dtype is want.dtype and torch.equal(mine[name], want), name


@needs_table
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_lie_in_memory_as_what_they_are_of(dtype):
    """As torch's own: heads that were cut out of columns are joined without a copy."""

    def strides(attend, joined, compiled=False):
        parts = joined.unflatten(-1, (2, 8)).transpose(1, 2), joined.unsqueeze(1)
        query, other = (x.clone(memory_format=torch.preserve_format) for x in parts)
        leaves = query.requires_grad_(), other.requires_grad_()
        call = torch.compile(attend, backend="aot_eager") if compiled else attend
        found = []
        for x in leaves:
            out = call(x, x.detach(), x.detach())
            out.sum().backward()
            found += [out.stride(), x.grad.stride()]
        return found

    joined = torch.randn(3, 5, 16, dtype=dtype)
    rows = [(80, 8, 16, 1)] * 2 + [(80, 80, 16, 1)] * 2
    assert strides(relpos.torch.attention, joined) == rows
    assert strides(relpos.torch.attention, joined, compiled=True)[0] == (80, 40, 8, 1)
    query = joined.unflatten(-1, (2, 8)).transpose(1, 2)
    assert (
        relpos.torch.attention(query, query, query, key_lengths=3).stride() == rows[0]
    )


@needs_table
def test_a_repeated_bias_of_16_bits_is_not_copied_whole():
    """Its copy in float32 would be larger than all other arrays of the call."""
    query = torch.randn(50, 50, 1, 8).bfloat16()
    bias = torch.randn(3).bfloat16().expand(50, 50, 3)
    args, given = (query, query, query), {"rel_bias": bias}
    assert kernels().attend(args, given, 1, True, False, True) is None
    whole = relpos.torch.attention(*args, rel_bias=bias.contiguous())
    assert torch.equal(relpos.torch.attention(*args, **given), whole)


def test_numbers_of_another_byte_order_are_left_to_python():
    bfloat16 = np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 8)).astype(np.float32)
    for dtype in (np.dtype(np.float16), bfloat16):
        short, bias = x.astype(dtype), x[0, :, 0, :3].astype(dtype)
        want = relpos.attention(short, short, short, rel_bias=bias)
        swapped = bias.astype(dtype.newbyteorder())
        given = {"rel_bias": swapped}
        if swapped.dtype.isnative:
            continue  # this dtype has one order
        assert kernels().attend((short,) * 3, given, 1, False, False, False) is None
        assert np.array_equal(relpos.attention(short, short, short, **given), want)


def test_a_table_without_columns_is_refused_at_once():
    x = np.zeros((1, 4, 8), np.float32)
    table = np.zeros((2**58, 3, 0), np.float32)
    with pytest.raises(ValueError, match="rel_key"):
        relpos.attention(x, x, x, rel_key=table, buckets=np.array([0, 1, 2]))
    value = np.zeros((1, 4, 0), np.float32)
    table = np.zeros((2**40, 1, 3, 0), np.float32)
    call = {"rel_value": table, "buckets": np.array([0, 1, 2])}
    assert relpos.attention(x, x, value, **call).shape == (2**40, 1, 4, 0)


@pytest.mark.parametrize("offset", [0, 16, -90, 1000])
def test_the_rows_that_are_gathered_do_not_depend_on_numbers(offset):
    """Their number decides how a table is read, and so the bits."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 32, 8)).astype(np.float32)
    query, table = x[:, :16], rng.standard_normal((5, 8)).astype(np.float32)
    buckets = rng.integers(0, 5, 401)
    given = {"rel_key": table, "rel_value": table, "buckets": buckets}
    alone = relpos.attention(query, x, x, query_offset=offset, **given)
    as_list = given | {"buckets": [*buckets], "query_offset": offset}
    assert np.array_equal(relpos.attention(query, x, x, **as_list), alone)
    fewer = given | {"query_offset": offset, "key_lengths": 32}
    assert np.array_equal(relpos.attention(query, x, x, **fewer), alone)
    offsets = np.array([offset, 7])
    items = relpos.attention(query, x, x, query_offset=offsets, **given)
    one = relpos.attention(query, x, x, query_offset=offsets[:1], **given)
    assert np.array_equal(items[0], one[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_compiled_call_runs_the_kernel_once(dtype, monkeypatch):
    ran = []

    class Counting:
        def __getattr__(self, name):
            found = getattr(core, name)
            if name not in {"attend", "attend_tensors", "attention_forward"}:
                return found

            def counted(*args):
                result = found(*args)
                if name == "attention_forward" or result is not None:
                    ran.append(name)
                return result

            return counted

    core, x = kernels(), torch.randn(1, 2, 4, 8, dtype=dtype)
    want = relpos.torch.attention(x, x, x)
    for module in MODULES:
        monkeypatch.setattr(module, "kernels", Counting)
    call = torch.compile(relpos.torch.attention, backend="aot_eager")
    assert torch.equal(call(x, x, x), want) and len(ran) == 1
    leaf = x.clone().requires_grad_()
    out = call(leaf, x, x)
    assert torch.equal(out, want) and len(ran) == 2
    assert out.dtype is dtype


@needs_table
def test_autocast_rounds_a_result_once():
    x = torch.randn(1, 2, 4, 8).bfloat16()
    wide = x.float()
    want = relpos.torch.attention(wide, wide, wide)
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype):
            for given in (x, x.clone().requires_grad_()):
                out = relpos.torch.attention(given, given, given)
                assert torch.equal(out, want.to(dtype))


def outcome(arguments):
    """Return the result of a call, or its error and the words."""
    args, keywords = by_position(arguments)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = relpos.torch.attention(*args, **keywords)
        except Exception as error:
            return type(error), str(error)
    return result, [str(each.message) for each in warned]


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_calls_that_python_prepares(name, monkeypatch):
    dtype = torch.float32 if name == "a small scale" else torch.float64
    given = drawn(OTHER_CALLS[name], dtype)
    if name == "dropout":
        given["rng"] = 3
    if name == "labels":
        given |= {"rel_key": torch.randn(7, 8, dtype=torch.float64)}
        given["labels"] = given["labels"][0]
    args, keywords = by_position(given)
    assert kernels().attend(args, keywords, 1, True, False, True) is None
    assert kernels().attend_tensors(args, keywords, 1, None) is None
    found = outcome(given)
    prepared(monkeypatch)
    want = outcome(given)
    if isinstance(want[0], type):
        assert found == want
    else:
        out, other = (
            x[0] if isinstance(x[0], torch.Tensor) else x[0].out for x in (found, want)
        )
        assert torch.equal(out, other) and found[1] == want[1]


@needs_table
def test_arguments_that_are_no_call_of_c():
    x = torch.randn(1, 2, 4, dtype=torch.float64)
    array, attend = x.numpy(), kernels().attend
    assert len(attend((x, x, x), {}, 1, True, False, True)) == 1
    assert len(attend((array, array, array), {}, 0, False, False, False)) == 1
    assert len(attend((x, x, x), {}, 1, True, True, False)) == 3
    for args, keywords in (
        ((x, x), {}),
        ((x, x, None), {}),
        ((x, x, x.float()), {}),
        ((x, x, x.int()), {}),
        ((x, x, array), {}),
        ((x, x, x, None, 0.0, False, 1.0), {}),
        ((x, x, x), {"query": x}),
        ((x, x, x, None, 0.0), {"dropout_p": 0.0}),
        ((x, x, x), {"other": 1}),
        ((x, x, x), {"other": None}),
        ((x, x, x), {"row_max": True}),
        ((x, x, x), {"row_max": None}),
        ((x, x, x), {"fire_lines": None}),
        ((x, x, x), {"return_context": False}),
        ((x, x, x), {"out": True}),
        ((x, x, x), {"rel_key": array}),
    ):
        assert attend(args, keywords, 1, True, False, True) is None, (args, keywords)
        assert kernels().attend_tensors(args, keywords, 1, None) is None
    for bad in (
        (x, array, array),
        (array.astype(">f8"), array, array),
        (np.ma.masked_array(array), array, array),
    ):
        assert attend(bad, {}, 1, False, False, False) is None
    for first in ((), ([], {}, 1), ((), (), 1), ((), {}, -1)):
        with pytest.raises(TypeError, match="attend: expected"):
            attend(*first, False, False, False)
        with pytest.raises(TypeError, match="attend_tensors: expected"):
            kernels().attend_tensors(*first, None)
    for bad in (
        ((), (), (), (), {}, 1, True),
        ((), (), (), (None, None), {}, 1, True),
        ((), (1, 2, 3), (True,), (None, None), {}, 1, True),
        (["query"], (1, 2, 3, x), (True,), (None, None), {}, 1, True),
        (("query",), (1, 2, 3, x), (True,), (None, None), None, 1, True),
    ):
        with pytest.raises(TypeError, match="attend_backward: expected four tuples"):
            kernels().attend_backward(*bad)
    mask = torch.ones(3, 3, dtype=torch.bool)
    for args, twice in (
        ((x, x, x), {"query": x}),
        ((x, x, x), {"query": None}),
        ((x, x, x), {"value": None}),
        ((x, x, x, None), {"attn_mask": mask}),
        ((x, x, x, mask), {"attn_mask": None}),
    ):
        with pytest.raises(TypeError, match="by position, one by name"):
            relpos.torch.attention(*args, **twice)


def test_a_mask_of_zeros_and_ones_is_warned_of():
    x = torch.randn(1, 2, 4)
    with pytest.warns(UserWarning, match="zeros and ones"):
        relpos.torch.attention(x, x, x, torch.eye(2))
    with pytest.warns(UserWarning, match="zeros and ones"):
        array = x.numpy()
        relpos.attention(array, array, array, np.eye(2, dtype=np.float32))
    mask = torch.tensor([[True, False], [True, True]])
    want = relpos.torch.attention(x, x, x, is_causal=True)
    assert torch.equal(relpos.torch.attention(x, x, x, mask), want)


def test_a_backward_that_c_does_not_take():
    """Hooks hand back other tensors, and rows of nan have no gradient."""
    x = torch.randn(1, 2, 4, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    relpos.torch.attention(leaf, leaf, leaf).sum().backward()
    hooks = torch.autograd.graph.saved_tensors_hooks
    for unpack in (
        lambda tensor: tensor.as_subclass(Named),
        lambda tensor: tensor.expand(*tensor.shape).mT.contiguous().mT,
    ):
        other = x.clone().requires_grad_()
        with hooks(lambda tensor: tensor, unpack):
            relpos.torch.attention(other, other, other).sum().backward()
        assert torch.equal(other.grad, leaf.grad)
    padded = torch.cat([x, torch.full_like(x, torch.nan)], 1).requires_grad_()
    out = relpos.torch.attention(padded, x, x)
    out[:, :2].sum().backward()
    assert padded.grad[:, :2].isfinite().all()
    assert torch.equal(padded.grad[:, 2:], torch.zeros_like(x))


def test_little_work_starts_no_thread(child):
    code = """
import os, numpy as np, relpos
rng = np.random.default_rng(0)
small, large = (rng.standard_normal((1, 8, n, 64), np.float32) for n in (16, 256))
def count(x):
    relpos.attention(x, x, x, num_threads=3)
    return len(os.listdir("/proc/self/task"))
before = len(os.listdir("/proc/self/task"))
assert count(small) == before, "a small call started threads"
assert count(large) == before + 2, "a large call started none"
"""
    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads are counted where the system lists them")
    child(code)


def test_without_pairs_gradients_are_zeros():
    for shape in ((2, 0, 4), (0, 3, 4), (1, 2, 0, 4)):
        x = torch.ones(shape, requires_grad=True)
        relpos.torch.attention(x, x, x).sum().backward()
        assert torch.equal(x.grad, torch.zeros(shape))


# ---- tensors that change each other as they are read ---------------------------------


class Watching(TorchFunctionMode):
    """Runs a function when `is_neg` of a tensor is called for the n-th time."""

    def __init__(self, tensor, asked, run):
        super().__init__()
        self.tensor, self.asked, self.run = tensor, asked, run

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ == "is_neg" and args[0] is self.tensor:
            self.asked -= 1
            if self.asked == 0:
                self.run()
        return func(*args, **(kwargs or {}))


def renew(tensor):
    """Let a tensor have other memory, and write over that which it had."""
    tensor.set_(torch.randn(9, 9, dtype=tensor.dtype))
    return [torch.randn(4096) for _ in range(8)]


def test_an_array_keeps_the_memory_of_its_tensor():
    """Also where the tensor is given other memory, and others write over the first."""
    tensor = torch.arange(4096.0)
    array = array_of("query", tensor)
    filled = [renew(tensor) for _ in range(4)]
    assert len(filled) == 4
    assert np.array_equal(array, np.arange(4096.0))


@pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="NumPy views keep the memory of a tensor that they show",
)
@pytest.mark.parametrize("change", [renew, lambda x: x.untyped_storage().resize_(0)])
@pytest.mark.parametrize("asked", [1, 2])
def test_memory_that_is_replaced_while_others_are_read(change, asked):
    """By the first function that reads the call, and by the second."""
    query, key, value = (torch.randn(2, 3, 8192, 4) for _ in range(3))
    first, rest = query[:, :, :50], (key[:, :, :50], value[:, :, :50])
    relpos.torch.attention(first, *rest)
    with Watching(rest[1], asked, lambda: change(first)):
        if asked == 2:  # what C does not read at once
            first, rest = first.double(), (rest[0].double(), rest[1])
        with pytest.raises(ValueError, match=r"^query: "):
            relpos.torch.attention(first, *rest)
