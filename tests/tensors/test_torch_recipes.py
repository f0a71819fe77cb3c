"""Recipes on tensors: the numbers of arrays, and gradients by autograd."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
import torch
from recipe_calls import RECIPES, numbers, recorded
from torch.autograd import gradcheck
from torch.nn.attention.bias import causal_upper_left

import relpos
import relpos.torch
from relpos import recipes

#: Recipes without an array among their arguments: they return arrays, if any.
WITHOUT = {"enformer_positions", "gemma2", "llama4", "longformer", "recurrent_gemma"}


CALLS = [
    pytest.param(name, n, id=f"{name}-{n}")
    for name in sorted(RECIPES)
    for n in range(len(recorded(name)))
]
every_call = pytest.mark.parametrize(("name", "n"), CALLS)


def tensor_of(array):
    return torch.from_numpy(np.array(array, order="C"))


def in_tensors(value, make=tensor_of):
    """Return what was given to a recipe or to attention, with tensors for arrays."""
    if isinstance(value, np.ndarray):
        return make(value)
    if isinstance(value, dict):
        return {name: in_tensors(x, make) for name, x in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(in_tensors(x, make) for x in value)
    return value


def flat(value):
    """Return a result as its parts by name."""
    if isinstance(value, dict):
        return {
            f"{n}{m}": x for n, part in value.items() for m, x in flat(part).items()
        }
    if isinstance(value, tuple) and not all(isinstance(x, int | None) for x in value):
        return flat(dict(enumerate(value)))
    return {"": value}


def on_tensors(call, make=tensor_of):
    return call.recipe(*in_tensors(call.args, make), **in_tensors(call.keywords, make))


def parameters(call):
    """Return the floating arrays of a call that have gradients, as tensors."""
    found = []

    def keep(array):
        if array.dtype.kind == "f":
            found.append(tensor_of(array).requires_grad_())

    in_tensors([*call.args, *call.keywords.values()], keep)
    return found


def with_parameters(call, tensors):
    """Return the result of a call of these parameters, in the order of its arrays."""
    rest = iter(tensors)

    def make(array):
        return next(rest) if array.dtype.kind == "f" else tensor_of(array)

    return on_tensors(call, make)


def assert_same(got, want, dtype):
    """Compare parts of a result: of one kind, integers and settings exactly."""
    got, want = flat(got), flat(want)
    assert got.keys() == want.keys()
    for name, array in want.items():
        if not isinstance(array, np.ndarray):
            assert got[name] == array
            continue
        assert type(got[name]) is torch.Tensor, name
        assert str(got[name].dtype) == f"torch.{array.dtype}"
        found = got[name].detach().numpy()
        if array.dtype.kind != "f":
            np.testing.assert_array_equal(found, array)
        else:
            eps = float(np.finfo(dtype).eps)
            rows = np.nan_to_num(np.abs(array), posinf=0.0).max(initial=1.0)
            np.testing.assert_allclose(found, array, rtol=4 * eps, atol=4 * eps * rows)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@every_call
def test_results_are_tensors_with_the_numbers_of_arrays(name, n, dtype):
    if dtype == np.float16 and name == "inkling_temperature":
        pytest.skip("its strength, 1e300, is no number of 16 bits")
    call = recorded(name, dtype)[n]
    got = on_tensors(call)
    if name in WITHOUT:
        assert all(map(np.array_equal, flat(got).values(), flat(call.result).values()))
        return
    assert_same(got, call.result, dtype)
    assert type(got) is type(in_tensors(call.result)) or isinstance(got, recipes.Recipe)


def test_every_recipe_is_called():
    public = {name for name in recipes.__all__ if name != "Recipe"}
    assert {param.values[0] for param in CALLS} == public


# ---- gradients -----------------------------------------------------------------------

#: Arguments that are positions or coordinates, which have no gradient, by recipe.
POSITIONS = {
    "inkling_temperature": "positions",
    "llama4_temperature": "positions",
    "rope_vit": "coordinates",
    "zipformer_positions": "positions",
}
SMOOTH = [
    param
    for param in CALLS
    if param.values[0] not in WITHOUT | POSITIONS.keys() or param.id == "rope_vit-0"
]
every_smooth_call = pytest.mark.parametrize(("name", "n"), SMOOTH)


def prepared(name, n):
    """Return a call and its parameters; coordinates are integers, no parameters."""
    call = recorded(name)[n]
    if name == "rope_vit":
        call = call._replace(args=(call.args[0], np.arange(10).reshape(5, 2)))
    return call, parameters(call)


def differentiable(result):
    parts = flat(result)
    return {n: x for n, x in parts.items() if getattr(x, "requires_grad", False)}


@every_smooth_call
def test_gradients_of_a_recipe(name, n):
    """Autograd's, compared with differences."""
    call, tensors = prepared(name, n)
    assert tensors
    found = differentiable(with_parameters(call, tensors))
    assert found

    def function(*tensors):
        return tuple(differentiable(with_parameters(call, tensors)).values())

    assert gradcheck(function, tensors)


@every_smooth_call
def test_gradients_are_those_of_recipes_of_arrays(name, n):
    call, tensors = prepared(name, n)
    result = call.recipe(*call.args, **call.keywords)
    if not isinstance(result, recipes.Recipe):
        pytest.skip("it has no backward")
    x = numbers()
    parts = differentiable(with_parameters(call, tensors))
    grads = {name: x(*part.shape) for name, part in parts.items()}
    want = result.backward(grads)
    taken = inspect.signature(call.recipe).bind(*call.args, **call.keywords).arguments
    order = [n for n in taken if n in want]
    given = [tensor_of(grads[name]) for name in parts]
    got = torch.autograd.grad([*parts.values()], tensors, given)
    assert len(order) == len(want) == len(got)
    for key, grad in zip(order, got, strict=True):
        np.testing.assert_allclose(grad, want[key], rtol=1e-11, atol=1e-12)


def attention_of(call, tensors):
    """Return the recorded attention on tensors, with the recipe's result in it."""
    given, result = call.attention[0], with_parameters(call, tensors)
    keywords = {n: x for n, x in in_tensors(given).items() if n != "return_context"}
    if isinstance(result, dict):
        return relpos.torch.attention(**keywords | result)
    (name,) = (n for n, x in given.items() if x is call.result)
    return relpos.torch.attention(**keywords | {name: result})


def is_attended(name, n):
    return bool(recorded(name)[n].attention)


ATTENDED = [param for param in CALLS if is_attended(*param.values)]


@pytest.mark.parametrize(("name", "n"), ATTENDED)
def test_attention_and_the_gradients_through_it(name, n):
    call = recorded(name)[n]
    tensors = [] if name in WITHOUT else parameters(call)
    arrays = {n: x for n, x in call.attention[0].items() if n != "return_context"}
    want = relpos.attention(**arrays)
    got = attention_of(call, tensors)
    np.testing.assert_allclose(got.detach(), want, rtol=1e-12, atol=1e-13)
    if tensors:
        assert gradcheck(lambda *x: attention_of(call, x), tensors, fast_mode=True)


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_have_no_gradient(name):
    call = recorded(name)[0]
    words = f"^{POSITIONS[name]}: requires a gradient, which a recipe does not have"
    with pytest.raises(ValueError, match=words):
        with_parameters(call, parameters(call))


# ---- what is refused, and other ways of calling --------------------------------------

GIVEN = {"rel_height": torch.ones(3, 4), "rel_width": torch.ones(5, 4)}
MEANT = "expected a tensor, as rel_height is"
FLOATS = "expected bfloat16, float16, float32 or float64"
REFUSED = {
    "array": (torch.Tensor.numpy, f"got an array of dtype float32; {MEANT}"),
    "list": (torch.Tensor.tolist, f"got list; {MEANT}"),
    "int64": (torch.Tensor.long, f"got a tensor of dtype torch.int64; {FLOATS}"),
    "complex": (
        torch.Tensor.cfloat,
        f"got a tensor of dtype torch.complex64; {FLOATS}",
    ),
    "float8": (
        lambda x: x.to(torch.float8_e5m2),
        f"got a tensor of torch.float8_e5m2; {FLOATS}",
    ),
    "sparse": (
        torch.Tensor.to_sparse,
        "got a tensor of layout torch.sparse_coo; expected a dense one",
    ),
    "meta": (
        lambda x: x.to("meta"),
        "got a tensor on device 'meta'; expected one on 'cpu', as rel_height",
    ),
    "shape": (lambda x: x[:3], "got shape (3, 4) for 3 cells; expected (5, 4)"),
    "resized": (
        lambda x: emptied(x),
        "got a tensor whose storage was resized to 0 bytes; expected one that",
    ),
}


def emptied(x):
    x = x.clone()
    x.untyped_storage().resize_(0)
    return x


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_named(case):
    make, words = REFUSED[case]
    given = GIVEN | {"rel_width": make(GIVEN["rel_width"])}
    with pytest.raises((TypeError, ValueError)) as caught:
        recipes.botnet(**given, grid=(2, 3))
    assert str(caught.value).startswith(f"rel_width: {words}")


def spoilt(tensor):
    """Yield tensors of other shapes and of another dtype."""
    yield tensor[None]
    yield tensor[..., :-1]
    yield tensor[:0]
    yield tensor.flatten()[0]
    yield tensor.cfloat()
    yield tensor[0] if tensor.ndim > 1 else tensor[:, None]


def error_of(call, at, case):
    """Return the error of a call whose array number `at` is spoilt, None without."""
    seen = []

    def make(array):
        seen.append(array)
        found = tensor_of(array)
        return [*spoilt(found)][case] if len(seen) == at + 1 else found

    try:
        on_tensors(call, make)
    except Exception as error:
        return error
    return None


@every_call
def test_errors_speak_of_tensors(name, n):
    """And are errors of relpos, whatever is wrong with a tensor."""
    call, arrays = recorded(name)[n], []
    in_tensors([*call.args, *call.keywords.values()], arrays.append)
    found = [error_of(call, at, case) for at in range(len(arrays)) for case in range(6)]
    assert name in WITHOUT or any(found)
    for error in filter(None, found):
        assert type(error) in (TypeError, ValueError), repr(error)
        assert re.match(r"[\w.]+: ", str(error)), error
        for words in ("torch.Size", "NumPy", "numpy", "astype", "an array of"):
            assert words not in str(error)


def test_arrays_of_one_call_are_of_one_kind_in_every_recipe():
    tried = set()
    for name, n in (param.values for param in CALLS):
        call, tensors = recorded(name)[n], iter(range(9))
        given = [*call.args, *call.keywords.values()]
        if sum(isinstance(x, np.ndarray) for x in given) < 2:
            continue

        def make(array, tensors=tensors):
            return array if next(tensors) == 1 else tensor_of(array)

        with pytest.raises(TypeError, match=r"^\w+: got an array .*; expected a ten"):
            on_tensors(call, make)
        tried.add(name)
    assert len(tried) > 12


def test_settings_are_no_tensors():
    words = "^max_distance: got a tensor; expected none"
    with pytest.raises(TypeError, match=words):
        recipes.t5(torch.ones(32, 2), max_distance=torch.tensor(128))
    with pytest.raises(TypeError, match=r"^query_length: got a tensor; expected none"):
        recipes.llama4(torch.tensor(5))
    with pytest.raises(TypeError, match=r"inkling\(\) needs an argument 'head_dim'"):
        recipes.inkling(torch.ones(2, 3))


@pytest.mark.parametrize("name", sorted({*recipes.__all__} - {"Recipe"}))
def test_no_recipe_takes_a_tensor_for_a_setting(name):
    """The error is about that argument, whatever the others are."""
    function = getattr(recipes, name)
    parameters = inspect.signature(function).parameters.values()
    settings = [x.name for x in parameters if "Array" not in x.annotation]
    needed = [x.name for x in parameters if x.default is x.empty]
    given = {x: 3 if x in settings else torch.ones(2, 2) for x in needed}
    for setting in settings:
        words = rf"^{setting}: got a tensor; expected none \(pass tensor\.item"
        with pytest.raises(TypeError, match=words):
            function(**given | {setting: torch.tensor(3)})


def test_integers_are_tensors_too():
    got = recipes.llama4(4, attention_chunk_size=2, start=torch.tensor([0, 1]))
    want = recipes.llama4(4, attention_chunk_size=2, start=[0, 1])
    assert torch.equal(got["key_ranges"], torch.from_numpy(want["key_ranges"]))
    words = r"^start: got a tensor of dtype torch\.float32; expected integers"
    with pytest.raises(TypeError, match=words):
        recipes.llama4(4, start=torch.tensor([0.0]))
    with pytest.raises(TypeError, match=r"^positions: got a tensor of torch.bfloat16"):
        recipes.llama4_temperature(torch.ones(3, dtype=torch.bfloat16))


def test_a_recipe_of_tensors_leaves_gradients_to_autograd():
    recipe = recipes.sam(torch.ones(3, 4), torch.ones(3, 4), (2, 2))
    with pytest.raises(TypeError, match=r"^backward: got a recipe of tensors"):
        recipe.backward({"rel_key": np.ones((6, 4))})


def test_a_dtype_of_torch_asks_for_a_tensor():
    for dtype in (torch.float32, torch.float64):
        got = recipes.enformer_positions(3, 6, dtype=dtype)
        assert got.dtype == dtype
        name = str(dtype).removeprefix("torch.")
        want = recipes.enformer_positions(3, 6, dtype=name)
        np.testing.assert_array_equal(got, want)
        got = recipes.zipformer_positions(torch.arange(3), 4, dtype=dtype)
        assert got.dtype == dtype


def test_what_a_recipe_without_arrays_returns_is_taken():
    q, k, v = torch.randn(3, 2, 4, 8, generator=torch.Generator().manual_seed(0))
    terms = recipes.llama4(4, attention_chunk_size=2)
    got = relpos.torch.attention(q, k, v, **terms)
    want = relpos.attention(q.numpy(), k.numpy(), v.numpy(), **terms)
    np.testing.assert_array_equal(got, want)
    terms["key_ranges"][...] = 0
    with pytest.raises(TypeError, match=r"^key_ranges: got .*float64; expected int"):
        relpos.torch.attention(q, k, v, key_ranges=np.zeros((4, 2)))


def test_integers_of_attention_may_be_arrays():
    """They are copied: a change afterwards does not reach the backward."""
    q, k, v = torch.randn(3, 2, 6, 8, generator=torch.Generator().manual_seed(0))
    given = recipes.swin(np.random.default_rng(0).standard_normal((15, 2)), (2, 3))
    bias = torch.from_numpy(np.array(given["rel_bias"])).float().requires_grad_()
    labels = given["labels"]
    outs = []
    for of_call in (torch.from_numpy(labels.copy()), labels, (labels,)):
        out = relpos.torch.attention(q, k, v, rel_bias=bias, labels=of_call)
        outs.append(out)
    labels[...] = 0
    grads = [torch.autograd.grad(out.square().sum(), bias)[0] for out in outs]
    for out, grad in zip(outs[1:], grads[1:], strict=True):
        assert torch.equal(out, outs[0]) and torch.equal(grad, grads[0])
    buckets = np.array([0, 1, 1], np.int32)
    got = relpos.torch.attention(q, k, v, rel_bias=bias[:, :2], buckets=buckets)
    own = torch.from_numpy(buckets)
    assert torch.equal(
        got, relpos.torch.attention(q, k, v, rel_bias=bias[:, :2], buckets=own)
    )


def test_half_precision():
    """Computed in float32, and rounded once."""
    for dtype in (torch.bfloat16, torch.float16):
        biases = torch.randn(2, 2, 4, generator=torch.Generator().manual_seed(0))
        weight = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
        given = [x.to(dtype) for x in (*biases, weight)]
        got = recipes.parakeet(*given, 5)["rel_key"]
        want = recipes.parakeet(*(x.float() for x in given), 5)["rel_key"]
        assert got.dtype == dtype and torch.equal(got, want.to(dtype))


def test_compiled_and_mapped_calls():
    q, k, v = torch.randn(3, 2, 6, 8, generator=torch.Generator().manual_seed(0))
    w1, w2 = torch.rand(5, 2), torch.randn(2, 5)

    def function(w1, w2):
        terms = recipes.swin_v2(w1, w1[:, 0], w2, (2, 3))
        return relpos.torch.attention(q, k, v, **terms).square().sum()

    want = torch.func.grad(function)(w1, w2)
    many = torch.stack([w1, 2 * w1])
    each = torch.stack([function(x, w2) for x in many])
    torch.testing.assert_close(torch.vmap(function, (0, None))(many, w2), each)
    w1.requires_grad_()
    compiled = torch.compile(function, backend="aot_eager")
    (got,) = torch.autograd.grad(compiled(w1, w2), w1)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kind", [torch.nn.Parameter, torch.Tensor])
def test_a_configuration_and_the_state_of_a_module(kind):
    """bert, and deberta's projections of normalised embeddings."""
    state = {"x.1.distance_embedding.weight": kind(torch.randn(9, 4))}
    config = {"model_type": "bert", "position_embedding_type": "relative_key"}
    got = recipes.from_config(config, state, 1)
    assert got["rel_key"] is state["x.1.distance_embedding.weight"]
    assert type(got["buckets"]) is torch.Tensor
    config = {
        "model_type": "deberta-v2", "relative_attention": True, "pos_att_type": ["c2p"],
        "hidden_size": 8, "num_attention_heads": 2, "max_position_embeddings": 4,
        "share_att_key": True, "norm_rel_ebd": "layer_norm", "layer_norm_eps": 1e-7,
    }  # fmt: skip
    shapes = {
        "encoder.rel_embeddings.weight": (8, 8),
        "encoder.LayerNorm.weight": (8,),
        "encoder.LayerNorm.bias": (8,),
        "encoder.layer.0.attention.self.key_proj.weight": (8, 8),
        "encoder.layer.0.attention.self.key_proj.bias": (8,),
    }
    state = {n: kind(torch.randn(s).double()) for n, s in shapes.items()}
    arrays = {name: x.detach().numpy() for name, x in state.items()}
    want = recipes.from_config(config, arrays)
    got = recipes.from_config(config, state)
    assert_same(got, want, np.float64)
    if kind is torch.nn.Parameter:
        found = torch.autograd.grad(got["rel_key"].square().sum(), [*state.values()])
        assert all(grad.abs().max() > 0 for grad in found)
    last = [*shapes][-1]
    with pytest.raises(TypeError, match=r"^key_proj\.bias: got an array"):
        recipes.from_config(config, state | {last: arrays[last]})


class Named(torch.Tensor):
    """A user's subclass, whose numbers are those in its memory."""


def test_a_subclass_of_a_user_is_a_tensor():
    weight = torch.randn(32, 2, generator=torch.Generator().manual_seed(0))
    got = recipes.t5(weight.as_subclass(Named))
    assert torch.equal(got["rel_bias"].as_subclass(torch.Tensor), weight.T)
    network = torch.ones(5, 2), torch.ones(5), torch.ones(2, 5)
    got = recipes.swin_v2(*(x.as_subclass(Named) for x in network), 2)["rel_bias"]
    want = recipes.swin_v2(*network, 2)["rel_bias"]
    assert torch.equal(got.as_subclass(torch.Tensor), want)


def test_a_mask_of_torch_is_no_table():
    """Its memory was never written."""
    for recipe in (recipes.bert, recipes.mpnet, recipes.gpt_oss):
        with pytest.raises(TypeError, match=r"^\w+: got a CausalBias; expected a"):
            recipe(causal_upper_left(9, 4))
