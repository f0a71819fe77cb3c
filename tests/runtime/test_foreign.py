"""Arrays of other libraries: read through DLPack on the CPU, or told the right call."""

from __future__ import annotations

import numpy as np
import pytest
from good_calls import GOOD
from tolerances import assert_bitwise

import relpos
from relpos import recipes


def array_class(name, module):
    """A class of another library, by its name, whose arrays NumPy could convert."""

    class Array:
        def __init__(self, array):
            self.array = array

        def __array__(self, dtype=None, copy=None):
            return self.array

        def __float__(self):
            return float(self.array)

        def __index__(self):
            return int(self.array)

    Array.__name__, Array.__module__ = name, module
    return Array


FOREIGN = {
    "an xarray DataArray": ("xarray.core.dataarray", r"array\.values, .*apply_ufunc"),
    "a dask Array": (
        "dask.array.core",
        r"array\.compute\(\), .*sharded\.att.*ufuncs",
    ),
    "a jax Tracer": ("jax._src.core", r"jax\.pure_callback: docs/jax\.md"),
    "a pandas Series": ("pandas", r"x\.to_numpy\(\)"),
    "a polars Series": ("polars.series.series", r"x\.to_numpy\(\)"),
    "a cupy ndarray": ("cupy", r"array\.get\(\)"),
    "a scipy csr_array": ("scipy.sparse._csr", r"toarray\(\); graph_attention takes"),
    "a sparse COO": ("sparse.numba_backend._coo.core", r"array\.todense\(\)"),
    "a pint Quantity": ("pint", r"quantity\.magnitude"),
    "an astropy Quantity": ("astropy.units.quantity", r"quantity\.value"),
    "a unyt unyt_array": ("unyt.array", r"quantity\.value"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_the_right_call_is_named(what):
    module, call = FOREIGN[what]
    x = np.ones((1, 2, 3))
    foreign = array_class(what.split()[-1], module)(x)
    with pytest.raises(TypeError, match=rf"^key: got {what}; expected .*{call}"):
        relpos.attention(x, foreign, x)


def arrays_in_good_calls():
    for name, good in GOOD.items():
        function = getattr(recipes, name[8:], None) or getattr(relpos, name, None)
        for argument, value in good.items():
            if function and isinstance(value, np.ndarray):
                yield pytest.param(function, good, argument, id=f"{name}-{argument}")


@pytest.mark.parametrize(("function", "good", "argument"), [*arrays_in_good_calls()])
def test_no_function_converts_them_silently(function, good, argument):
    foreign = array_class("DataArray", "xarray.core.dataarray")(good[argument])
    with pytest.raises(TypeError, match=rf"^{argument}: got an xarray DataArray"):
        function(**good | {argument: foreign})


def test_subclasses_of_ndarray_with_units():
    """Subclasses of ndarray are asked where they were defined, too."""

    class Quantity(np.ndarray): ...

    Quantity.__module__ = "astropy.units.quantity"
    x = np.ones((1, 2, 3))
    with pytest.raises(TypeError, match=r"^query: got an astropy Quantity"):
        relpos.attention(x.view(Quantity), x, x)


def test_gradients_and_caches_refuse_them():
    foreign = array_class("DataArray", "xarray.core.dataarray")(np.ones((1, 2, 3)))
    x = foreign.array
    context = relpos.attention(x, x, x, return_context=True).context
    with pytest.raises(TypeError, match=r"^grad_out: got an xarray DataArray"):
        context.backward(foreign)
    with pytest.raises(TypeError, match=r"^value: got an xarray DataArray"):
        relpos.KVCache().append(x, foreign)
    with pytest.raises(TypeError, match=r"^out: got an xarray DataArray"):
        relpos.attention(x, x, x, out=foreign)


def test_their_modules_stay_unloaded(child):
    code = """
import sys
import numpy as np
import relpos
class Array: ...
Array.__module__ = "xarray.core.dataarray"
try:
    relpos.attention(Array(), Array(), Array())
except TypeError as error:
    print(error)
print({"xarray", "dask", "pandas", "jax", "scipy", "ml_dtypes"} & {*sys.modules})
"""
    assert child(code).stdout.splitlines()[1:] == ["set()"]


# ---- DLPack --------------------------------------------------------------------------


class Producer:
    """An array of no known library that speaks DLPack."""

    device = (1, 0)

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.device


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_array_of_dlpack_is_read(dtype):
    x = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(dtype)
    table = {"rel_key": np.ones((3, 4), dtype)}
    got = relpos.attention(Producer(x), x, Producer(x), **table, return_context=True)
    want = relpos.attention(x, x, x, **table, return_context=True)
    assert type(got.out) is np.ndarray and got.out.dtype == dtype
    assert_bitwise(got.out, want.out)
    found = got.context.backward(Producer(np.ones_like(x)))
    assert_bitwise(found.rel_key, want.context.backward(np.ones_like(x)).rel_key)
    assert_bitwise(relpos.apply_rotary(Producer(x)), relpos.apply_rotary(x))


def test_an_array_of_dlpack_is_not_copied():
    """It shares its memory with an out that is the same array."""
    x = np.ones((1, 2, 3))
    with pytest.raises(ValueError, match=r"^out: overlaps value in memory"):
        relpos.attention(x.copy(), x.copy(), Producer(x), out=x)


def test_integers_of_dlpack_are_read():
    table = np.arange(6.0).reshape(3, 2)
    got = relpos.learned(table, Producer(np.array([2, 0])))
    assert_bitwise(got, table[[2, 0]])


def test_an_array_on_another_device_is_refused():
    x = np.ones((1, 2, 3))
    far = Producer(x)
    far.device = (2, 1)
    with pytest.raises(
        TypeError, match=r"^key: got a Producer on device 2; expected o"
    ):
        relpos.attention(x, far, x)


def test_an_array_that_dlpack_cannot_export_is_converted():
    """As of bfloat16, which NumPy has from ml_dtypes, or of several devices."""

    class Converted(Producer):
        def __dlpack__(self, **keywords):
            raise BufferError

        def __array__(self, dtype=None, copy=None):
            return self.array

    class Spread(Converted):
        def __dlpack_device__(self):
            raise BufferError

    x = np.ones((1, 2, 3))
    for kind in (Converted, Spread):
        assert_bitwise(relpos.attention(kind(x), x, x), relpos.attention(x, x, x))


def test_an_array_that_was_given_away():
    class Deleted(Producer):
        def __dlpack__(self, **keywords):
            raise RuntimeError

        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("Array has been deleted.")

    x = np.ones((1, 2, 3))
    with pytest.raises(
        ValueError, match=r"^key: got Deleted that cannot be read \(Arra"
    ):
        relpos.attention(x, Deleted(x), x)


@pytest.mark.parametrize("kind", [np.matrix, np.recarray, np.memmap])
def test_subclasses_of_ndarray_stay_plain_arrays(kind):
    table = np.ones((3, 4)).view(kind)
    x = np.ones((1, 2, 4))
    got = relpos.attention(x, x, x, rel_key=table)
    assert_bitwise(got, relpos.attention(x, x, x, rel_key=np.ones((3, 4))))


# ---- where the libraries are installed -----------------------------------------------


@pytest.fixture
def qkv():
    return np.random.default_rng(1).standard_normal((3, 4, 2, 6, 8))


def test_xarray_by_the_call_that_the_message_names(qkv):
    xarray = pytest.importorskip("xarray")
    dims = ("batch", "head", "place", "column")
    q, k, v = (xarray.DataArray(x, dims=dims) for x in qkv)
    with pytest.raises(TypeError, match=r"^query: got an xarray DataArray"):
        relpos.attention(q, k, v)
    got = xarray.apply_ufunc(
        relpos.attention, q, k, v,
        input_core_dims=[dims[1:]] * 3, output_core_dims=[dims[1:]],
    )  # fmt: skip
    assert got.dims == dims
    assert_bitwise(got.values, relpos.attention(*qkv))


def test_dask_by_the_call_that_the_message_names(qkv):
    dask = pytest.importorskip("dask.array")
    q, k, v = (dask.from_array(x, chunks=(1, -1, -1, -1)) for x in qkv)
    with pytest.raises(TypeError, match=r"^query: got a dask Array"):
        relpos.attention(q, k, v)
    got = relpos.sharded.attention(q, k, v)
    assert_bitwise(got.compute(), relpos.attention(*qkv))


def test_pandas_lengths_have_to_be_converted(qkv):
    pandas = pytest.importorskip("pandas")
    lengths = pandas.Series([6, 3, 2, 1])
    with pytest.raises(TypeError, match=r"^key_lengths: got a pandas Series"):
        relpos.attention(*qkv, key_lengths=lengths)
    relpos.attention(*qkv, key_lengths=lengths.to_numpy())


def test_jax_arrays_are_read_and_tracers_refused(qkv):
    jax = pytest.importorskip("jax")
    single = qkv.astype(np.float32)
    q, k, v = map(jax.numpy.asarray, single)
    got = relpos.attention(q, k, v, is_causal=True)
    assert_bitwise(got, relpos.attention(*single, is_causal=True))
    assert jax.numpy.from_dlpack(got).shape == q.shape
    for inside in (jax.jit, jax.vmap, jax.grad):
        with pytest.raises(TypeError, match=r"jax .*Tracer.*jax\.pure_callback"):
            inside(lambda x: relpos.attention(x, k, v).sum())(q)


def test_jax_arrays_of_bfloat16(qkv):
    jax = pytest.importorskip("jax")
    q, k, v = (jax.numpy.asarray(x, jax.numpy.bfloat16) for x in qkv)
    got = relpos.attention(q, k, v)
    assert got.dtype.name == "bfloat16"
    want = relpos.attention(*(np.asarray(x, np.float32) for x in (q, k, v)))
    assert np.array_equal(got, want.astype(got.dtype))
