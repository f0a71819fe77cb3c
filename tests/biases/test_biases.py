"""ALiBi, T5, DeBERTa's buckets and KERPLE: values, gradients, dtypes, layouts."""

from __future__ import annotations

import dense_oracle
import numpy as np
import oracle_biases as oracle
import pytest
from backward_checks import difference_of
from layouts import LAYOUTS
from oracle_gradients import gradients
from problems import normal, qkv
from tolerances import assert_bitwise, assert_close

import relpos
from relpos import reference

pytestmark = pytest.mark.usefixtures("strict_floats")
both_dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])
FAR = np.arange(-4096, 4097)
#: The distances of the quick run: all small ones, and every 29th of the others.
SOME = FAR[(np.abs(FAR) <= 72) | (FAR % 29 == 0)]


@pytest.fixture
def rng():
    return np.random.default_rng(51)


# ---- logarithmic buckets, compared with whole numbers --------------------------------

T5_GRID = [
    (both, count, last)
    for both in (True, False)
    for count in (4, 5, 8, 9, 12, 16, 32, 33, 48, 64, 128)
    for last in (6, 24, 50, 64, 72, 81, 128, 129, 256, 1000, 4096, 10_000)
    if last > (count // 2 if both else count) // 2
]


@pytest.mark.parametrize(("both", "count", "last"), T5_GRID)
def test_8_t5_buckets_equal_whole_numbers(both, count, last, sized):
    settings = {"bidirectional": both, "num_buckets": count, "max_distance": last}
    far = sized(SOME, FAR)
    got = relpos.t5_bucket(far, **settings)
    assert got.dtype == np.int64
    assert np.array_equal(got, oracle.t5_bucket(far, **settings))
    assert got.min() == 0 and got.max() < count


DEBERTA_GRID = [
    (size, last)
    for size in (4, 5, 8, 16, 32, 64, 128, 256)
    for last in (4, 9, 16, 20, 33, 64, 128, 129, 512, 513, 1025, 5000)
    if last > size // 2 + 1 and last >= size  # as in every model
]


@pytest.mark.parametrize(("size", "last"), DEBERTA_GRID)
def test_deberta_buckets_equal_whole_numbers(size, last, sized):
    settings = {"bucket_size": size, "max_position": last}
    far = sized(SOME, FAR)
    near = far[np.abs(far) <= min(2 * last, 1100)]
    got = relpos.deberta_bucket(near, **settings)
    assert got.dtype == np.int64
    assert np.array_equal(got, oracle.deberta_bucket(near, **settings))
    assert np.array_equal(got, -relpos.deberta_bucket(-near, **settings))


def test_buckets_widen_and_end_at_the_last_distance():
    for count, last in ((32, 128), (4096, 2**40), (4, 2**59)):
        edges = relpos.t5_bucket(
            np.array([1 - last, -last, -(2**63)]), num_buckets=count, max_distance=last
        )
        assert (edges == count // 2 - 1).all()
    at_end = relpos.deberta_bucket([511, 512], bucket_size=256, max_position=512)
    assert at_end.tolist() == [255, 256]


@pytest.mark.parametrize(("size", "last"), [(4, 6), (256, 512), (8, 2**59)])
def test_deberta_buckets_go_on_to_the_last_distance(size, last):
    settings = {"bucket_size": size, "max_position": last}
    far = [2**59, 2**60, 2**60 + 1, 2**61, 2**62, 2**63 - 1, 1 - 2**63, -(2**63)]
    want = oracle.deberta_bucket(np.array(far, object), **settings)
    assert np.array_equal(relpos.deberta_bucket(far, **settings), want)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint64", ">i4"])
def test_relative_positions_of_any_integer_kind(dtype):
    relative = np.array([[0, 5], [100, 17]]).astype(dtype)
    settings = {"bucket_size": 8, "max_position": 33}
    for x in (relative, relative.T[::-1], relative[..., 0, 1], relative[:0]):
        x.flags.writeable = False
        same = np.asarray(x, np.int64)
        for function, options in (
            (relpos.t5_bucket, {}),
            (relpos.deberta_bucket, settings),
        ):
            got = function(x, **options)
            assert isinstance(got, np.ndarray) and got.dtype == np.int64
            assert np.array_equal(got, function(same, **options))
            assert got.shape == x.shape and not np.shares_memory(got, x)


# ---- values -------------------------------------------------------------------------


@both_dtypes
def test_alibi_slopes_of_any_number_of_heads(dtype):
    for heads in [*range(1, 130), 1000]:
        for exponent in (8.0, 4, 0.5):
            options = {"max_exponent": exponent, "dtype": dtype}
            got = relpos.alibi_slopes(heads, **options)
            assert got.dtype == dtype and got.shape == (heads,)
            want = oracle.alibi_slopes(heads, max_exponent=exponent)
            assert_close(got, want, "forward")
    assert relpos.alibi_slopes(np.int8(4)).dtype == np.float32


def test_alibi_slopes_too_small_for_the_dtype_are_zero():
    assert not relpos.alibi_slopes(1, max_exponent=2000).any()
    assert relpos.alibi_slopes(1, max_exponent=200, dtype="float64")[0] == 2.0**-200


@both_dtypes
@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_alibi_bias(rng, dtype, length):
    got = relpos.alibi_bias(6, length, dtype=dtype)
    assert got.dtype == dtype and got.shape == (6, 2 * length - 1)
    assert_close(got, oracle.alibi_bias(6, length), "forward")
    slopes = normal(rng, 2, 3).astype(dtype)  # negative ones among them
    got = relpos.alibi_bias(slopes, length)
    assert got.dtype == dtype
    for b in range(2):
        assert_close(got[b], oracle.alibi_bias(slopes[b], length), "forward")


def test_slopes_may_be_a_list_or_of_half_precision():
    assert relpos.alibi_bias([0.5, 0.25], 2).dtype == np.float64
    half = relpos.alibi_bias(np.array([0.5, 0.3], np.float16), 3000)
    assert half.dtype == np.float16
    assert_bitwise(
        half, relpos.alibi_bias(np.float64(half[:, 3000] * -1), 3000).astype(np.float16)
    )
    assert relpos.alibi_bias(np.zeros(0), 3).shape == (0, 5)


def test_a_bias_too_large_for_the_dtype_hides():
    """As any sum that overflows would; finite mask values are another matter."""
    bias = relpos.alibi_bias(np.array([1e38], np.float32), 9)
    assert bias[0, 0] == -np.inf and np.isfinite(bias[0, 6:11]).all()
    assert relpos.kerple_bias([1.0], [2000.0], 3, kind="power")[0, 0] == -np.inf
    for r1, grad in ((1.0, [0.0, 1.0, 0.0]), (0.0, np.ones(3))):  # it has no gradient
        grads = relpos.kerple_bias_backward(
            [[0.0, *grad, 0.0]], [r1], [2e3], kind="power"
        )
        assert np.isfinite(grads.r1) and grads.r2 == 0


@both_dtypes
@pytest.mark.parametrize("both", [True, False])
def test_t5_bias(rng, dtype, both):
    weight = normal(rng, 8, 3).astype(dtype)
    settings = {"bidirectional": both, "max_distance": 20}
    for length in (1, 2, 50):
        got = relpos.t5_bias(weight, length, **settings)
        assert got.dtype == dtype and got.flags.c_contiguous and got.flags.writeable
        assert_bitwise(got, oracle.t5_bias(weight, length, **settings))


@pytest.mark.parametrize(
    ("buckets", "heads"), [(32, 32), (32, 128), (16, 32), (64, 32)]
)
def test_t5_weights_that_do_not_lie_transposed(rng, buckets, heads):
    """As many heads as T5 has buckets: said to be so, or T5's own (3B has 32 x 32)."""
    weight = normal(rng, buckets, heads)
    told = {} if buckets == 32 else {"num_buckets": buckets}
    got = relpos.t5_bias(weight, 5, **told)
    assert_bitwise(got, oracle.t5_bias(weight, 5))
    keywords = relpos.recipes.t5(weight, **told)
    assert_bitwise(keywords["rel_bias"][:, keywords["buckets"][124:133]], got)


@both_dtypes
@pytest.mark.parametrize("kind", ["log", "power"])
def test_kerple_bias(rng, dtype, kind):
    least = np.dtype(dtype).type(0.1)
    r1, r2 = (np.abs(normal(rng, 4)).astype(dtype) + least for _ in range(2))
    for length in (1, 2, 50):
        got = relpos.kerple_bias(r1, r2, length, kind=kind)
        want = oracle.kerple_bias(
            r1.astype(np.float64), r2.astype(np.float64), length, kind=kind
        )
        assert got.dtype == dtype
        assert_close(got, want, "forward")
        assert not np.signbit(got[:, length - 1]).any()
    two = np.stack([r1, r2]), np.stack([r2, r1])
    assert_bitwise(
        relpos.kerple_bias(*two, 5, kind=kind)[0],
        relpos.kerple_bias(r1, r2, 5, kind=kind),
    )


def test_kerple_of_power_one_is_alibi():
    slopes = relpos.alibi_slopes(5, dtype="float64")
    got = relpos.kerple_bias(slopes, np.ones(5), 9, kind="power")
    assert np.array_equal(got, relpos.alibi_bias(slopes, 9))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_any_layout(rng, layout):
    weight, r1 = normal(rng, 8, 3), np.abs(normal(rng, 3))
    grad = normal(rng, 3, 9)
    for function, array, *more in (
        (relpos.alibi_bias, r1, 5),
        (relpos.alibi_bias_backward, grad),
        (relpos.t5_bias, weight, 5),
        (relpos.t5_bias_backward, grad, 8),
        (lambda x: relpos.kerple_bias(x, x, 5), r1),
        (lambda x: relpos.kerple_bias_backward(x, r1, r1).r2, grad),
        (lambda x: relpos.kerple_bias_backward(grad, x, x).r1, r1),
    ):
        assert_bitwise(function(layout(array), *more), function(array, *more))


# ---- gradients ----------------------------------------------------------------------

PARAMETERS = {
    "alibi": (
        lambda m: relpos.alibi_bias(m, 9),
        lambda g, m: (relpos.alibi_bias_backward(g),),
        lambda rng: (normal(rng, 3),),
    ),
    "t5": (
        lambda w: relpos.t5_bias(w, 9, max_distance=6),
        lambda g, w: (relpos.t5_bias_backward(g, 8, max_distance=6),),
        lambda rng: (normal(rng, 8, 3),),
    ),
    "t5, causal": (
        lambda w: relpos.t5_bias(w, 9, max_distance=6, bidirectional=False),
        lambda g, w: (
            relpos.t5_bias_backward(g, 8, max_distance=6, bidirectional=False),
        ),
        lambda rng: (normal(rng, 8, 3),),
    ),
    "kerple, log": (
        lambda a, b: relpos.kerple_bias(a, b, 9),
        lambda g, a, b: relpos.kerple_bias_backward(g, a, b),
        lambda rng: (normal(rng, 3), 0.2 + np.abs(normal(rng, 3))),
    ),
    "kerple, power": (
        lambda a, b: relpos.kerple_bias(a, b, 9, kind="power"),
        lambda g, a, b: relpos.kerple_bias_backward(g, a, b, kind="power"),
        lambda rng: (normal(rng, 3), 0.2 + np.abs(normal(rng, 3))),
    ),
}


@pytest.mark.parametrize(
    ("bias", "backward", "make"), PARAMETERS.values(), ids=PARAMETERS
)
def test_gradients_through_attention_equal_differences(rng, bias, backward, make):
    """Parameters -> bias -> attention, 5 points along 20 directions."""
    q, k, v = qkv(rng, (2,), 3, 6, 8, 4)
    parameters = make(rng)
    grad_out = normal(rng, 2, 3, 6, 4)
    settings = {"query_offset": 1, "is_causal": False}

    def loss(parameters):
        out = relpos.attention(q, k, v, rel_bias=bias(*parameters), **settings)
        return float((out * grad_out).sum())

    result = relpos.attention(
        q, k, v, rel_bias=bias(*parameters), **settings, return_context=True
    )
    grad_bias = result.context.backward(grad_out, wrt=["rel_bias"]).rel_bias
    found = backward(grad_bias, *parameters)
    for _ in range(20):
        steps = [normal(rng, *x.shape) for x in parameters]
        want = difference_of(loss, parameters, steps)
        got = sum(float((g * s).sum()) for g, s in zip(found, steps, strict=True))
        size = sum(
            float(np.abs(g * s).sum()) for g, s in zip(found, steps, strict=True)
        )
        assert abs(got - want) <= 1e-10 * size


@both_dtypes
@pytest.mark.parametrize("name", PARAMETERS)
def test_gradients_in_both_dtypes_equal_the_oracle(rng, isa, dtype, name):
    """In float32 the incoming gradient alone is what the kernels made of it."""
    bias, backward, make = PARAMETERS[name]
    parameters = [x.astype(dtype) for x in make(rng)]
    inputs = dict(zip(("query", "key", "value"), qkv(rng, (), 3, 6, 8, 4), strict=True))
    inputs["rel_bias"] = bias(*parameters).astype(np.float64)
    grad_out = normal(rng, 3, 6, 4)
    exact = gradients(**inputs, query_offset=1, grad_out=grad_out)["rel_bias"]
    result = relpos.attention(
        **{n: x.astype(dtype) for n, x in inputs.items()},
        query_offset=1,
        return_context=True,
    )
    grad_bias = result.context.backward(grad_out.astype(dtype)).rel_bias
    want = backward(exact, *(x.astype(np.float64) for x in parameters))
    for got, true, parameter in zip(
        backward(grad_bias, *parameters), want, parameters, strict=True
    ):
        assert got.dtype == dtype and got.shape == parameter.shape
        assert_close(got, true, "gradient", cancelling(exact, true))


def cancelling(exact, true):
    """Largest error over the size of the terms: sums over offsets cancel to little."""
    size = np.abs(exact).sum() + np.abs(true).max()

    def metric(got, want):
        return float(np.abs(np.float64(got) - want).max() / size)

    return metric


def test_backward_is_the_adjoint(rng):
    """<bias(x), g> = <x, backward(g)> where the bias is linear, batch axes included."""
    for length in (1, 2, 50):
        grad = normal(rng, 2, 3, 2 * length - 1)
        slopes, weight = normal(rng, 2, 3), normal(rng, 8, 3)
        got = (slopes * relpos.alibi_bias_backward(grad)).sum()
        want = (relpos.alibi_bias(slopes, length) * grad).sum()
        assert abs(got - want) <= 1e-13 * np.abs(slopes).sum() * np.abs(grad).sum() * (
            length
        )
        folded = relpos.t5_bias_backward(grad, 8, max_distance=20)
        assert folded.shape == (2, 8, 3)
        want = (relpos.t5_bias(weight, length, max_distance=20) * grad).sum()
        got = (weight * folded).sum()
        assert abs(got - want) <= 1e-14 * np.abs(weight).sum() * np.abs(grad).sum()


def test_sums_over_offsets_are_made_in_float64(rng):
    """100,000 equal terms: float32 sums would lose four digits."""
    grad = np.full((1, 199_999), 0.1, np.float32)
    exact = np.float64(np.float32(0.1))
    far = relpos.t5_bias_backward(grad, 32)
    count = np.sum(relpos.t5_bucket(np.arange(-99_999, 0)) == 15)
    assert far[15, 0] == np.float32(exact * count)
    slope = relpos.alibi_bias_backward(grad)[0]
    assert slope == np.float32(-exact * (99_999 * 100_000))


# ---- the definitions ----------------------------------------------------------------


def test_definitions_are_the_loops(rng):
    few = np.arange(-300, 301)
    for both, count, last in T5_GRID[::17]:
        settings = {"bidirectional": both, "num_buckets": count, "max_distance": last}
        want = oracle.t5_bucket(few, **settings)
        assert np.array_equal(reference.t5_bucket(few, **settings), want)
    for size, last in DEBERTA_GRID[::9]:
        settings = {"bucket_size": size, "max_position": last}
        want = oracle.deberta_bucket(few, **settings)
        assert np.array_equal(reference.deberta_bucket(few, **settings), want)
    for heads in (1, 2, 3, 6, 12, 71):
        want = oracle.alibi_slopes(heads, max_exponent=4.0)
        assert_close(reference.alibi_slopes(heads, max_exponent=4.0), want, "forward")
        want = oracle.alibi_bias(heads, 5)
        assert_close(reference.alibi_bias(heads, 5), want, "forward")
    weight, grad = normal(rng, 8, 3), normal(rng, 3, 99)
    r1, r2 = np.abs(normal(rng, 2, 3))
    want = oracle.t5_bias(weight, 50, max_distance=20)
    assert_close(reference.t5_bias(weight, 50, max_distance=20), want, "forward")
    for kind in ("log", "power"):
        got = reference.kerple_bias(r1, r2, 50, kind=kind)
        assert_close(got, oracle.kerple_bias(r1, r2, 50, kind=kind), "forward")
        both = [
            module.kerple_bias_backward(grad, r1, r2, kind=kind)
            for module in (relpos, reference)
        ]
        for got, want in zip(*both, strict=True):
            assert_close(got, want, "gradient")
    settings = {"max_distance": 20}
    want = reference.t5_bias_backward(grad, 8, **settings)
    assert_close(relpos.t5_bias_backward(grad, 8, **settings), want, "gradient")
    want = reference.alibi_bias_backward(grad)
    assert_close(relpos.alibi_bias_backward(grad), want, "gradient")


# ---- the same bias in several ways ---------------------------------------------------


@both_dtypes
@pytest.mark.parametrize(
    ("lq", "lk", "offset"), [(5, 40, 35), (40, 40, 0), (40, 300, -7)]
)
def test_8_each_bias_equals_the_generic_forms(isa, dtype, lq, lk, offset):
    """As a table by offset, by labels of pairs, by buckets, and as a dense mask."""
    rng = np.random.default_rng(8)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16)]
    length = max(lq + offset, lk - offset)
    weight = normal(rng, 32, 2).astype(dtype)
    r1, r2 = np.abs(normal(rng, 2, 2)).astype(dtype)
    relative = relpos.relative_positions(lq, lk, query_offset=offset)
    row = relative + length - 1
    options = {"query_offset": offset, "is_causal": True}
    for bias in (
        relpos.alibi_bias(2, length, dtype=dtype),
        relpos.t5_bias(weight, length),
        relpos.kerple_bias(r1, r2, length),
        normal(rng, 2, 2 * length - 1).astype(dtype),
    ):
        want = dense_oracle.attention(
            *(x.astype(np.float64) for x in inputs),
            bias[:, row].astype(np.float64),
            **options,
        ).out
        for keywords in (
            {"rel_bias": bias, "beyond": "raise"},
            {"rel_bias": bias, "labels": row},
            {"rel_bias": bias, "buckets": np.arange(2 * length - 1)},
            {"attn_mask": bias[:, row]},
        ):
            got = relpos.attention(*inputs, **keywords, **options)
            assert_close(got, want, "forward")
    settings = {"rel_bias": weight.T, "buckets": relpos.t5_bucket(FAR)}
    by_bucket = relpos.attention(*inputs, **settings, **options)
    whole = relpos.attention(
        *inputs, rel_bias=relpos.t5_bias(weight, length), **options
    )
    assert_close(by_bucket, whole, "same_formula")


@both_dtypes
@pytest.mark.parametrize(("lq", "lk", "offset"), [(5, 40, 35), (40, 300, -7)])
def test_8_shaw_keys_equal_the_generic_forms(isa, dtype, lq, lk, offset):
    """As clipped rows, by labels of pairs, by buckets, and as a row per offset."""
    rng = np.random.default_rng(8)
    inputs = [x.astype(dtype) for x in qkv(rng, (2,), 2, lq, lk, 16)]
    k, reach = 4, max(lq + offset, lk - offset) - 1
    table = normal(rng, 2 * k + 1, 16).astype(dtype)
    row = np.clip(np.arange(-reach, reach + 1), -k, k) + k
    relative = relpos.relative_positions(
        lq, lk, max_relative_position=k, query_offset=offset
    )
    shaw = relpos.shaw_attention(*inputs, table, query_offset=offset)
    for keywords in (
        {"rel_key": table, "labels": relative + k},
        {"rel_key": table, "buckets": row, "beyond": "raise"},
        {"rel_key": table[row], "beyond": "raise"},
    ):
        got = relpos.attention(*inputs, **keywords, query_offset=offset)
        assert_close(got, shaw, "same_formula")
