"""Tensors that C reads where they lie, and those that take another way."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:.*[Qq]uantiz"),
]

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

import relpos  # noqa: E402
import relpos.torch  # noqa: E402
from relpos import _core  # noqa: E402
from relpos._attention.direct import operands_of  # noqa: E402
from relpos._settings import kernels  # noqa: E402
from relpos.torch import _engine  # noqa: E402

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

CALLS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.25},
    "shaw": {"rel_key": (7, 8), "rel_value": (7, 5)},
    "music": {"rel_key": (2, 4, 8), "min_relative_position": -3, "is_causal": True},
    "xl": {"rel_key": (2, 7, 8), "pos_bias_u": (2, 8), "pos_bias_v": (2, 8)},
    "bias": {"rel_bias": (2, 9), "rel_query": (7, 8)},
}


@pytest.fixture(params=CALLS)
def settings(request):
    torch.manual_seed(0)
    return {
        name: torch.randn(value, dtype=torch.float64) if type(value) is tuple else value
        for name, value in CALLS[request.param].items()
    }


def tokens(dtype=torch.float64):
    torch.manual_seed(1)
    shapes = {"query": (3, 2, 4, 8), "key": (3, 2, 4, 8), "value": (3, 2, 4, 5)}
    return {n: torch.randn(shape, dtype=dtype) for n, shape in shapes.items()}


@needs_table
def test_they_are_the_same_bits(settings, monkeypatch):
    def run():
        given = {
            name: x.clone().requires_grad_() if isinstance(x, torch.Tensor) else x
            for name, x in {**tokens(), **settings}.items()
        }
        result = relpos.torch.attention(**given, return_lse=True)
        (result.out.square().sum() + result.lse.sum()).backward()
        grads = {n: x.grad for n, x in given.items() if isinstance(x, torch.Tensor)}
        with torch.no_grad():
            alone = relpos.torch.attention(**given)
        assert torch.equal(alone, result.out)
        return {"out": result.out, "lse": result.lse, **grads}

    reached, entry = [], _engine.operands_of

    def noted(*args):
        reached.append(entry(*args))
        return reached[-1]

    monkeypatch.setattr(_engine, "operands_of", noted)
    mine = run()
    assert reached and None not in reached
    monkeypatch.setattr(_engine, "operands_of", lambda *args: None)
    for name, want in run().items():
        assert torch.equal(mine[name], want), name
    arrays = {
        name: x.numpy() if isinstance(x, torch.Tensor) else x
        for name, x in {**tokens(), **settings}.items()
    }
    assert np.array_equal(mine["out"].detach(), relpos.attention(**arrays))


def test_calls_with_more_to_know_are_not_among_them():
    arrays, dtype = tokens(), np.dtype(np.float64)
    key = arrays["key"]
    assert operands_of(arrays, {}, dtype) is not None
    for other in (
        {"key": key[:, :, :3]},
        {"key": key[:, :1]},
        {"key": key[:1]},
        {"query": key[..., :0]},
        {"query": key[0, 0]},
        {"attn_mask": torch.ones(4, 4)},
        {"pos_bias_v": torch.ones(8)},
        {"rel_key": torch.ones(7, 8), "rel_value": torch.ones(9, 5)},
    ):
        assert operands_of({**arrays, **other}, {}, dtype) is None
    for values in ({"softcap": 2.0}, {"is_causal": 1}, {"beyond": "zero"}):
        assert operands_of(arrays, values, dtype) is None
    for name in ("scale", "min_relative_position", "num_threads", "enable_gqa"):
        with pytest.raises(TypeError, match=f"{name}: got str"):
            relpos.torch.attention(**arrays, **{name: "two"})


def test_without_pairs_gradients_are_zeros():
    for shape in ((2, 0, 4), (0, 3, 4), (1, 2, 0, 4)):
        x = torch.ones(shape, requires_grad=True)
        relpos.torch.attention(x, x, x).sum().backward()
        assert torch.equal(x.grad, torch.zeros(shape))


def test_results_that_c_makes():
    arrays = {name: x.numpy() for name, x in tokens().items()}
    operands = operands_of(arrays, {"num_threads": 1}, np.dtype(np.float64))
    assert (
        kernels().attention_forward({**operands, "out": np.empty((3, 2, 4, 5))}) == []
    )
    names = ("out", "lse", "row_max", "row_sum")
    made = kernels().attention_forward({**operands, **dict.fromkeys(names, True)})
    wanted = relpos.attention_forward(**arrays)
    for one, other in zip(made, wanted, strict=True):
        assert np.array_equal(one, other) and one.flags.owndata
    given = dict(zip(names, made, strict=True)) | {"grad_out": made[0]}
    del given["lse"]
    with pytest.raises(TypeError, match="grad_rel_key must be an ndarray"):
        kernels().attention_backward({**operands, **given, "grad_rel_key": True})
    with pytest.raises(ValueError, match="grad_position_query has no operand"):
        kernels().attention_backward({**operands, **given, "grad_position_query": True})
    with pytest.raises(TypeError, match="query must be an ndarray"):
        kernels().attention_forward({**operands, "query": True, "out": True})
