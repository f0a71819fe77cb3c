"""Numbers of 16 bits: results are those of float32, rounded, to the last bit.

Whatever is stored in 16 bits is float32 behind its first reading, in the same order of
sums; so no tolerance is needed on any instruction set, layout or number of threads.
"""

from __future__ import annotations

import contextlib

import gradient_problems
import numpy as np
import pytest
from hypothesis import strategies as st
from layouts import LAYOUTS
from random_problems import check_examples, runs
from tolerances import assert_bitwise

import relpos
from relpos._settings import use_isa

bfloat16 = pytest.importorskip("ml_dtypes").bfloat16

HALVES = [np.dtype(np.float16), np.dtype(bfloat16)]
SINGLE = np.dtype(np.float32)


def assert_rounded(got, single, dtype):
    """`got` is `single` rounded to `dtype`; nan is nan."""
    assert got.dtype == dtype
    with np.errstate(all="ignore"):
        want = single.astype(dtype)
    assert_bitwise(np.isnan(got), np.isnan(want))
    bits = f"u{dtype.itemsize}"
    numbers = ~np.isnan(want)
    assert_bitwise(got[numbers].view(bits), want[numbers].view(bits))


def stored(problem, dtypes, change=np.asarray):
    """Each array in a dtype of its own, and the same numbers in float32."""

    def both(name, x):
        with np.errstate(all="ignore"):
            short = x.astype(np.float32).astype(dtypes.get(name, SINGLE))
        return change(short), short.astype(np.float32)

    inputs = {name: both(name, x) for name, x in problem.inputs.items()}
    grads = [both(name, getattr(problem, name)) for name in ("grad_out", "grad_lse")]
    return tuple(
        problem._replace(
            inputs={name: pair[n] for name, pair in inputs.items()},
            grad_out=grads[0][n],
            grad_lse=grads[1][n],
        )
        for n in range(2)
    )


def results(problem, wrt, threads):
    asked = {"return_lse": True, "return_weights": True, "return_context": True}
    got = problem.forward(**asked, num_threads=threads)
    found = got.context.backward(
        problem.grad_out, grad_lse=problem.grad_lse, wrt=wrt, num_threads=threads
    )
    return got, {name: getattr(found, name) for name in wrt}


def result_dtype(inputs):
    """The dtype of query, key and value, or float32 where they have several."""
    several = {
        inputs[name].dtype.newbyteorder("=") for name in ("query", "key", "value")
    }
    return several.pop() if len(several) == 1 else SINGLE


def check(problem, dtypes, wrt, threads=1, change=np.asarray):
    short, single = stored(problem, dtypes, change)
    got, found = results(short, wrt, threads)
    want, expected = results(single, wrt, threads)
    assert_rounded(got.out, want.out, result_dtype(short.inputs))
    assert_rounded(got.lse, want.lse, SINGLE)
    assert_rounded(got.weights, want.weights, SINGLE)
    for name, gradient in found.items():
        assert_rounded(
            gradient, expected[name], short.inputs[name].dtype.newbyteorder("=")
        )


@st.composite
def stored_runs(draw):
    run = draw(runs())
    names = [*run.problem.inputs, "grad_out", "grad_lse"]
    most = draw(st.sampled_from(HALVES))
    others = st.sampled_from([most, most, *HALVES, SINGLE])
    return run, {name: draw(others) for name in names}


def check_run(pair):
    run, dtypes = pair
    with use_isa(run.isa):
        check(
            run.problem,
            dtypes,
            run.wrt,
            run.num_threads,
            LAYOUTS.get(run.layout, np.asarray),
        )


def test_random_problems(examples):
    check_examples(stored_runs(), check_run, examples)


# Lq, Lk, D, Dv: few queries, one tile, ragged tiles, several tiles and chunks of keys
SHAPES = [(1, 700, 64, 64), (3, 700, 20, 9), (7, 130, 32, 64), (37, 70, 16, 24)]
SHAPES += [(130, 300, 64, 64), (300, 1100, 33, 16), (100, 20, 65, 7)]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_scheme(isa, shape, dtype):
    for scheme in gradient_problems.SCHEMES:
        problem = gradient_problems.make(scheme, "both", (*shape, 2, (2,)))
        names = [*problem.inputs, "grad_out", "grad_lse"]
        check(problem, dict.fromkeys(names, dtype), [*problem.inputs], threads=2)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("width", [32, 64, 96, 128])
def test_few_rows_and_keys_of_no_weight(isa, dtype, width):
    """Lines that all rows weigh are widened as they are read, the others beforehand."""
    rng = np.random.default_rng(width)
    key, value = rng.standard_normal((2, 2, 700, width)).astype(dtype)
    seen = np.ones(700, bool)
    seen[300:310] = False
    for rows in range(1, 18):
        query = rng.standard_normal((2, rows, width)).astype(dtype)
        for mask in (None, seen):
            given = [query, key, value]
            if mask is not None:
                given[2] = np.where(seen[:, None], value, dtype.type(np.nan))
            wide = [x.astype(np.float32) for x in given]
            got = relpos.attention(*given, mask)
            assert_rounded(got, relpos.attention(*wide, mask), dtype)
            assert np.isfinite(got).all()


#: Dtype of the result by those of query, key and value, and of what stands beside them.
RESULTS = {
    "float16 float16 float16 | float16": "float16",
    "float16 float16 float16 | float32": "float16",
    "float16 float16 float16 | bfloat16": "float16",
    "bfloat16 bfloat16 bfloat16 | float32": "bfloat16",
    "bfloat16 bfloat16 bfloat16 | float16": "bfloat16",
    "float16 float16 float32 | float16": "float32",
    "float16 float64 float16 | float16": "float64",
    "float32 float32 float32 | float32": "float32",
    "float32 float32 float64 | float32": "float64",
    "float32 float32 float32 | bfloat16": "float32",
    "float32 float32 float32 | float16": "float32",
    "float16 bfloat16 bfloat16 | bfloat16": "float32",
    "bfloat16 float16 bfloat16 | bfloat16": "float32",
    "bfloat16 bfloat16 float16 | bfloat16": "float32",
    "bfloat16 float32 float32 | bfloat16": "float32",
    "float32 float16 float16 | float16": "float32",
    "float16 float16 float16 | float64": "float64",
    "bfloat16 bfloat16 bfloat16 | float64": "float64",
    "float32 float32 float32 | float64": "float64",
    "float64 float16 bfloat16 | float16": "float64",
    "bfloat16 bfloat16 float64 | float32": "float64",
}
#: What counts beside query, key and value only where it is of float64.
BESIDE = {
    "rel_key": (3, 4),
    "rel_query": (3, 4),
    "rel_value": (3, 4),
    "rel_bias": (3,),
    "pos_bias_u": (4,),
    "sinks": (2,),
    "log_decay": (2, 3),
}


def result_cases():
    for row, want in RESULTS.items():
        tokens, _, beside = row.partition(" | ")
        yield pytest.param(tokens.split(), beside, want, id=row)


@pytest.mark.parametrize(("tokens", "beside", "want"), [*result_cases()])
def test_the_dtype_of_the_result(tokens, beside, want):
    dtypes = [np.dtype(bfloat16) if x == "bfloat16" else np.dtype(x) for x in tokens]
    other = np.dtype(bfloat16) if beside == "bfloat16" else np.dtype(beside)
    query, key, value = (np.ones((2, 3, 4), dtype) for dtype in dtypes)
    for name, shape in BESIDE.items():
        result = relpos.attention(
            query,
            key,
            value,
            is_causal=True,
            return_lse=True,
            return_weights=True,
            **{name: np.zeros(shape, other)},
        )
        assert result.out.dtype.name == want
        computed = "float64" if want == "float64" else "float32"
        assert result.lse.dtype.name == result.weights.dtype.name == computed


@pytest.mark.parametrize(("tokens", "beside", "want"), [*result_cases()])
def test_the_dtype_of_the_result_of_tensors(tokens, beside, want):
    torch = pytest.importorskip("torch")
    attention = pytest.importorskip("relpos.torch").attention
    from torch._subclasses.fake_tensor import FakeTensorMode

    for mode in (contextlib.nullcontext(), FakeTensorMode()):
        with mode:
            dtypes = [getattr(torch, name) for name in tokens]
            query, key, value = (torch.ones(2, 3, 4, dtype=dtype) for dtype in dtypes)
            for name, shape in BESIDE.items():
                keywords = {name: torch.zeros(shape, dtype=getattr(torch, beside))}
                out = attention(query, key, value, is_causal=True, **keywords)
                assert out.dtype == getattr(torch, want)


@pytest.mark.parametrize("dtype", [*HALVES, SINGLE, np.dtype(np.float64)], ids=str)
@pytest.mark.parametrize("mask_dtype", ["bool", "float16", "float32", "float64"])
def test_the_mask_does_not_count(dtype, mask_dtype):
    query, mask = np.ones((2, 3, 4), dtype), np.ones((3, 3), mask_dtype)
    got = relpos.attention(query, query, query, mask, return_lse=True)
    assert (got.out.dtype, got.lse.dtype) == (dtype, np.result_type(dtype, SINGLE))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_out_is_written_in_place(isa, dtype):
    rng = np.random.default_rng(0)
    query, key, value = (
        rng.standard_normal((2, n, 33)).astype(dtype) for n in (5, 9, 9)
    )
    want = relpos.attention(query, key, value, query_offset=0)
    for out in (np.zeros_like(want), np.zeros((2, 5, 66), dtype)[..., ::2]):
        assert relpos.attention(query, key, value, query_offset=0, out=out) is out
        assert_bitwise(out.view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_number_is_read_and_rounded(isa, dtype):
    """Means of neighbours lie in the middle; sums with the largest are too large."""
    with np.errstate(all="ignore"):
        numbers = np.arange(2**16, dtype=np.uint16).view(dtype).astype(np.float32)
    numbers = np.sort(numbers[np.isfinite(numbers)]).astype(dtype)
    pairs = np.stack([numbers[:-1], numbers[1:]], -1)[..., None]
    none = np.zeros_like(pairs)
    problem = {"query": none[:, :1], "key": none, "rel_value": numbers[-1:, None]}
    for value, keywords in (
        (np.repeat(pairs[:, :1], 2, 1), {"rel_value": none[0, :1]}),
        (pairs, {"rel_value": none[0, :1]}),
        (pairs, {}),
    ):
        given = {**problem, **keywords, "value": value}
        wide = {name: x.astype(np.float32) for name, x in given.items()}
        got = relpos.attention(**given, query_offset=0)
        assert_rounded(got, relpos.attention(**wide, query_offset=0), dtype)
        if not keywords and dtype == np.float16:
            assert np.isinf(got).any()
