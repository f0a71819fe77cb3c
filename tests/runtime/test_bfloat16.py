"""Arrays of ml_dtypes.bfloat16: computed in float32, returned in bfloat16."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from layer_calls import LAYERS, run
from public_calls import PUBLIC
from recipe_calls import RECIPES
from tolerances import assert_bitwise

import relpos
from relpos import nn, recipes

bfloat16 = pytest.importorskip("ml_dtypes").bfloat16

#: What takes positions, which bfloat16 rounds from 256 on: they are refused.
OF_POSITIONS = {
    "apply_rotary",
    "axial_angles",
    "mrope_angles",
    "sinusoidal",
    "xpos_magnitude",
    "sinusoidal_shift_matrix",
    "rope_vit",
    "llama4_temperature",
    "inkling_temperature",
    "zipformer_positions",
}
#: Those whose answers speak of dtypes.
AUDITS = {"audit_encoding", "plan"}


def rounded_numbers(dtype):
    """Arrays of `dtype` whose numbers bfloat16 holds."""
    rng = np.random.default_rng(0)
    return lambda *shape: np.asarray(
        rng.uniform(0.1, 1, shape).astype(bfloat16), np.float32
    ).astype(dtype)


def arrays_of(result):
    """All arrays of what a function returned, gradients of its context among them."""
    if isinstance(result, relpos.AttentionContext):
        return []  # a call takes its gradients
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, tuple):
        return [array for part in result for array in arrays_of(part)]
    return [result] if isinstance(result, np.ndarray) else []


def results(function, call, dtype):
    """The arrays that a function returns in a call with numbers of that dtype."""
    returned = []

    @functools.wraps(function)
    def recorded(*args, **keywords):
        result = function(*args, **keywords)
        returned.extend(arrays_of(result))
        context = getattr(result, "context", None)
        if context is not None:
            ones = np.ones(result.out.shape, np.float32)
            returned.extend(arrays_of(context.backward(ones)))
        if isinstance(result, recipes.Recipe):
            arrays = {n: x for n, x in result.items() if isinstance(x, np.ndarray)}
            ones = {n: np.ones_like(x) for n, x in arrays.items()}
            returned.extend(arrays_of(result.backward(ones)))
        return result

    call(recorded, rounded_numbers(dtype))
    return returned


def same_but_rounded(function, call):
    single = results(function, call, np.float32)
    brain = results(function, call, bfloat16)
    half = results(function, call, np.float16)
    assert len(single) == len(brain) == len(half)
    for got, want, narrow in zip(brain, single, half, strict=True):
        if narrow.dtype == np.float16:
            assert got.dtype == bfloat16
            assert_bitwise(got.view(np.uint16), want.astype(bfloat16).view(np.uint16))
        else:  # integers, logarithms of sums, what is always float64
            assert got.dtype == narrow.dtype
            assert_bitwise(got, want)


@pytest.mark.parametrize("name", sorted({*PUBLIC} - OF_POSITIONS - AUDITS))
def test_functions(name):
    same_but_rounded(getattr(relpos, name), PUBLIC[name])


@pytest.mark.parametrize("name", sorted({*PUBLIC, *RECIPES} & OF_POSITIONS))
def test_positions_are_refused(name):
    module, calls = (relpos, PUBLIC) if name in PUBLIC else (recipes, RECIPES)
    with pytest.raises(
        TypeError, match=r"^(positions|coordinates|offset): got .*bfloat"
    ):
        calls[name](getattr(module, name), rounded_numbers(bfloat16))


@pytest.mark.parametrize("name", sorted({*RECIPES} - OF_POSITIONS))
def test_recipes_take_it(name):
    """Some of them go on in float32: a unit of bfloat16's last place at most apart."""
    single = results(getattr(recipes, name), RECIPES[name], np.float32)
    brain = results(getattr(recipes, name), RECIPES[name], bfloat16)
    for got, want in zip(brain, single, strict=True):
        assert got.dtype in (want.dtype, bfloat16, np.float32)
        finite = np.isfinite(want)
        assert np.array_equal(finite, np.isfinite(got))
        difference = np.abs(got[finite].astype(np.float64) - want[finite])
        size = np.abs(want[finite]).max(initial=0)
        assert difference.max(initial=0) <= 2**-8 * size


@pytest.mark.parametrize("name", LAYERS)
def test_layers_take_it(name):
    make, shapes = LAYERS[name]
    x = rounded_numbers(np.float32)
    inputs = [x(*shape) for shape in shapes]
    want = run(make(dtype=np.float32), inputs)[0]
    got = run(make(dtype=np.float32), [x.astype(bfloat16) for x in inputs])[0]
    assert_bitwise(got, want)


def test_parameters_are_loaded():
    layer = nn.Linear(3, 2, rng=0)
    weight = rounded_numbers(bfloat16)(2, 3)
    layer.load_state_dict({"weight": weight, "bias": np.zeros(2, bfloat16)})
    assert_bitwise(layer.weight.data, weight.astype(np.float32))


def test_rotary():
    x = rounded_numbers(bfloat16)(2, 5, 4)
    got = relpos.apply_rotary(x, offset=3)
    want = relpos.apply_rotary(x.astype(np.float32), offset=3).astype(bfloat16)
    assert got.dtype == bfloat16
    assert_bitwise(got.view(np.uint16), want.view(np.uint16))


def test_out():
    x = rounded_numbers(bfloat16)(2, 5, 4)
    out = np.zeros_like(x)
    assert relpos.attention(x, x, x, out=out) is out
    assert_bitwise(out.view(np.uint16), relpos.attention(x, x, x).view(np.uint16))
    with pytest.raises(TypeError, match=r"^out: got dtype float32; expected bfloat16"):
        relpos.attention(x, x, x, out=np.zeros((2, 5, 4), np.float32))


def test_a_mask_of_it_does_not_promote():
    q = np.ones((2, 3, 4), np.float16)
    mask = np.array([[0, -np.inf, 1]] * 3, bfloat16)
    result = relpos.attention(q, q, q, mask, return_context=True)
    assert result.out.dtype == np.float16
    found = result.context.backward(np.ones((2, 3, 4)), wrt=["attn_mask"])
    assert found.attn_mask.dtype == bfloat16
    same = relpos.attention(q, q, q, mask.astype(np.float32))
    assert_bitwise(result.out, same)


@pytest.mark.parametrize(
    ("other", "common"),
    [("float16", "float32"), ("float32", "float32"), ("float64", "float64")],
)
def test_with_other_dtypes(other, common):
    """float16 has the wider numbers of the two, bfloat16 the wider range."""
    brain, wide = np.ones((2, 3, 4), bfloat16), np.ones((2, 3, 4), other)
    assert relpos.attention(brain, wide, wide).dtype == common
    assert relpos.conv_encoding(brain, wide[0, :, :1].repeat(2, 0)[:4]).dtype == common


def test_a_cache_keeps_it():
    cache = relpos.KVCache()
    cache.append(np.ones((1, 1, 4), bfloat16), np.ones((1, 1, 4), bfloat16))
    assert cache.key.dtype == bfloat16
    query = np.ones((1, 1, 4), bfloat16)
    assert relpos.attention(query, **cache.arguments(query)).dtype == bfloat16


def test_other_dtypes_of_ml_dtypes_are_refused():
    small = np.ones((1, 1, 4)).astype(pytest.importorskip("ml_dtypes").float8_e4m3fn)
    with pytest.raises(TypeError, match=r"^query: got dtype float8_e4m3fn; expected"):
        relpos.attention(small, small, small)
