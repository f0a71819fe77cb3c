"""Nothing public raises or warns through NumPy's floating-point state.

Results follow IEEE 754, so that an overflow shows in the result as an infinity or NaN.
What a caller has set by np.errstate is for the caller's own arithmetic.
"""

from __future__ import annotations

import inspect
import warnings
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from layer_calls import LAYERS, UNFED, run
from public_calls import NN, PUBLIC, call_ufunc
from recipe_calls import RECIPES

import relpos
from relpos import nn, recipes, ufuncs

#: Nearly the largest number of a dtype: a sum or a product of two overflows.
LARGE = {"float16": 6e4, "float32": 3e38, "float64": 1.7e308}
#: Subnormal numbers of a dtype: products underflow.
SMALL = {"float16": 6e-8, "float32": 1e-44, "float64": 5e-323}


def draw(pool, shape, dtype):
    """Return numbers of a pool in random order, so that rows differ from each other."""
    rng = np.random.default_rng(len(shape))
    large, small = LARGE[np.dtype(dtype).name], SMALL[np.dtype(dtype).name]
    values = {
        "ordinary": rng.uniform(0.1, 1.0, 7),
        "large": [large, -large, 1.0],
        "small": [small, -small, 1e-3],
        "infinite": [np.inf, -np.inf, 1.0, 0.0],
        "nan": [np.nan, 1.0, -2.0],
    }[pool]
    return rng.choice(np.array(values, dtype), shape)


@contextmanager
def strict(pool):
    """Turn floating-point flags and warnings into errors.

    relpos may refuse all pools but that of ordinary numbers: there a ValueError passes.
    """
    refusals = [] if pool == "ordinary" else [ValueError]
    with (
        suppress(*refusals),
        np.errstate(all="raise"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        yield


pools = pytest.mark.parametrize(
    "pool", ["ordinary", "large", "small", "infinite", "nan"]
)
dtypes = pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])


#: Each public function, recipe, loss and optimiser, with a function that calls it.
CALLS = {}
for module, calls in ((relpos, PUBLIC), (recipes, RECIPES), (nn, NN)):
    for name, call in calls.items():
        CALLS[f"{module.__name__}.{name}"] = (getattr(module, name), call)


@pools
@dtypes
@pytest.mark.parametrize("name", CALLS)
def test_functions(name, dtype, pool):
    function, call = CALLS[name]

    def make_array(*shape):
        return draw(pool, shape, dtype)

    with strict(pool):
        call(function, make_array)


def run_quietly(layer, inputs, pool):
    """Draw the parameters, and call the layer forward and backward.

    Gradients of 1e300 are float64; where a layer casts them to float32, they overflow.
    """
    for parameter in layer.parameters():
        shape, dtype = parameter.data.shape, parameter.data.dtype
        parameter.data[...] = draw(pool, shape, dtype)
    with strict(pool):
        run(layer, inputs)
        run(layer, inputs, np.full(layer(*inputs).shape, 1e300))


@pools
@dtypes
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, dtype, pool):
    make, shapes = LAYERS[name]
    inputs = [draw(pool, shape, dtype) for shape in shapes]
    for layer_dtype in ("float32", "float64"):
        if np.can_cast(dtype, layer_dtype):  # a layer refuses wider inputs
            run_quietly(make(dtype=layer_dtype), inputs, pool)


@pools
@pytest.mark.parametrize("name", UNFED)
def test_layers_without_an_input_of_numbers(name, pool):
    make, layer_input = UNFED[name]
    run_quietly(make(dtype="float32"), [layer_input], pool)


@pools
@pytest.mark.parametrize("loop", [0, 1])
@pytest.mark.parametrize("name", ufuncs.__all__)
def test_ufuncs(name, loop, pool):
    def make_array(*shape, dtype):
        return draw(pool, shape, dtype)

    with strict(pool):
        call_ufunc(getattr(ufuncs, name), loop, make_array)


def test_every_public_function_is_called_here():
    """The functions that are listed here have no arithmetic, and are not called."""
    settings = {"get_num_threads", "set_num_threads", "show_config", "threads"}
    assert public_functions(relpos) == PUBLIC.keys() | settings
    assert public_functions(recipes) == set(RECIPES)
    # Some layers have several calls, with names such as "MultiheadAttention, rotary".
    layers = {name.partition(",")[0] for name in LAYERS.keys() | UNFED.keys()}
    without_arithmetic = {"load_file", "Position", "Memory", "KVCaches"}
    public = set(nn.__all__) - named_tuples(nn)  # functions and classes
    assert public == NN.keys() | layers | without_arithmetic


def public_functions(module):
    """Return the names of the functions that a module makes public."""
    return {
        name for name in module.__all__ if inspect.isfunction(getattr(module, name))
    }


def named_tuples(module):
    """Return the names of the public classes of results."""
    classes = {
        name for name in module.__all__ if inspect.isclass(getattr(module, name))
    }
    return {name for name in classes if issubclass(getattr(module, name), tuple)}
