"""Nothing public raises or warns through NumPy's floating-point state.

Results follow IEEE 754 and say themselves what became of them: whatever np.errstate a
caller has set is for the caller's own arithmetic.
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

LARGE = {"e": 6e4, "f": 3e38, "d": 1.7e308}
SMALL = {"e": 6e-8, "f": 1e-44, "d": 5e-323}


def draw(pool, shape, dtype):
    """Numbers of a kind, in an order of no pattern that rows could share."""
    rng, kind = np.random.default_rng(len(shape)), np.dtype(dtype).char
    values = {
        "ordinary": rng.uniform(0.1, 1.0, 7),
        "large": [LARGE[kind], -LARGE[kind], 1.0],
        "small": [SMALL[kind], -SMALL[kind], 1e-3],
        "infinite": [np.inf, -np.inf, 1.0, 0.0],
        "nan": [np.nan, 1.0, -2.0],
    }[pool]
    return rng.choice(np.array(values, dtype), shape)


@contextmanager
def strict(pool):
    """Flags and warnings are errors; a refusal is fine but of ordinary numbers."""
    refusal = () if pool == "ordinary" else ValueError
    with (
        suppress(*np.atleast_1d(refusal)),
        np.errstate(all="raise"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        yield


pools = pytest.mark.parametrize(
    "pool", ["ordinary", "large", "small", "infinite", "nan"]
)
dtypes = pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])


#: Functions, recipes, losses and optimisers.
CALLS = {
    f"{module.__name__}.{name}": (getattr(module, name), call)
    for module, calls in ((relpos, PUBLIC), (recipes, RECIPES), (nn, NN))
    for name, call in calls.items()
}


@pools
@dtypes
@pytest.mark.parametrize("name", CALLS)
def test_functions(name, dtype, pool):
    function, call = CALLS[name]
    with strict(pool):
        call(function, lambda *shape: draw(pool, shape, dtype))


def run_quietly(layer, inputs, pool):
    """Draw the parameters, and call the layer forward and backward."""
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
    for own in ("float32", "float64"):
        if np.dtype(own) >= dtype:  # others are refused
            run_quietly(make(dtype=own), inputs, pool)


@pools
@pytest.mark.parametrize("name", UNFED)
def test_layers_without_an_input_of_numbers(name, pool):
    make, given = UNFED[name]
    run_quietly(make(dtype="float32"), [given], pool)


@pools
@pytest.mark.parametrize("loop", [0, 1])
@pytest.mark.parametrize("name", ufuncs.__all__)
def test_ufuncs(name, loop, pool):
    with strict(pool):
        call_ufunc(
            getattr(ufuncs, name),
            loop,
            lambda *shape, dtype: draw(pool, shape, dtype),
        )


def test_every_public_function_is_called_here():
    """The functions that are left out have no arithmetic."""
    settings = {"get_num_threads", "set_num_threads", "show_config", "threads"}
    layers = {name.partition(",")[0] for name in (*LAYERS, *UNFED)}
    for module, called in (
        (relpos, {*PUBLIC} | settings),
        (recipes, {*RECIPES}),
        (nn, {*NN, *layers, "load_file", "Position", "Memory", "KVCaches"}),
    ):
        public = {name: getattr(module, name) for name in module.__all__}
        functions = {
            name
            for name, value in public.items()
            if inspect.isfunction(value)
            or (module is nn and not issubclass(value, tuple))
        }
        assert functions == called
