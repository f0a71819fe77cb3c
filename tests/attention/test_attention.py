"""relpos.attention against the oracle: every term, size and option."""

from __future__ import annotations

import functools
import itertools

import dense_oracle
import numpy as np
import oracle
import pytest
from problems import (
    DTYPES,
    PATHS,
    TERMS,
    cast,
    check,
    check_all,
    known,
    normal,
    qkv,
    run,
    terms,
)
from tolerances import (
    TOLERANCES,
    assert_bitwise,
    assert_close,
    assert_lse_close,
    assert_results_bitwise,
    assert_results_close,
)

pytestmark = pytest.mark.usefixtures("strict_floats")


# ---- every small size ---------------------------------------------------------------

SMALL = range(1, 13)


@functools.cache
def small_problem(lq, lk, k, offset, causal, beyond):
    """All terms at once, and what the loops say."""
    rng = np.random.default_rng([lq, lk, k])
    inputs = qkv(rng, (), 1, lq, lk, 3, 2)
    keywords = terms(rng, "everything", 1, lq, lk, 3, 2, offset=offset, k=k, scale=0.5)
    keywords |= {"is_causal": causal, "beyond": beyond}
    return inputs, keywords, oracle.attention(*inputs, **keywords)


@pytest.mark.devmode
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("k", [0, 1, 3, 12])
@pytest.mark.parametrize("memory", [True, False])
def test_every_small_size_equals_the_loops(isa, k, causal, memory):
    """Every Lq, Lk <= 12, with and without memory, clipped at k or zero beyond it."""
    for lq, lk in itertools.product(SMALL, SMALL):
        beyond = "clip" if (lq + lk) % 2 else "zero"
        offset = lk - lq if memory else 0
        inputs, keywords, want = small_problem(lq, lk, k, offset, causal, beyond)
        for dtype in DTYPES:
            got = run(*(x.astype(dtype) for x in inputs), **cast(keywords, dtype))
            assert_results_close(got, want, floor=1.0)


# ---- sizes around the tiles ---------------------------------------------------------

# (Lq, Lk, D, Dv, query_offset, is_causal): up to Lq = 8 decodes, beyond it tiles of 16
# to 48 queries by 256 keys; D in blocks of the vector width
SIZES = [
    (1, 300, 64, 64, 299, True),
    (8, 257, 40, 96, 249, True),
    (9, 9, 16, 16, 0, True),
    (31, 33, 64, 3, 2, False),
    (33, 31, 1, 64, -2, True),
    (47, 255, 80, 80, 208, True),
    (49, 65, 130, 16, 0, False),
    (63, 63, 64, 64, 0, True),
    (65, 257, 96, 40, 100, False),
    (300, 300, 64, 64, 0, True),
    (255, 257, 3, 130, 2, False),
    (257, 9, 16, 1, -248, True),
    (17, 40, 512, 512, 23, True),
    (2, 33, 512, 130, 31, False),
]


@pytest.mark.parametrize("kind", TERMS)
def test_sizes_around_tiles(isa, kind):
    for *sizes, offset, causal in SIZES:
        settings = {"offset": offset, "k": 20, "size": 0.5, "is_causal": causal}
        check_all(*known(tuple(sizes[:3]), kind, (2,), 2, *sizes, **settings))


# Sizes at which the engine changes its algorithm: keys that outgrow the second-level
# cache (blocks of query tiles), slices packed in waves (16 MB), and keys of a decode
# step in chunks of 512, several of which are a span if there are more than 64.
LARGE = [
    # batch, heads, Lq, Lk, D, query_offset
    (1, 2, 150, 4200, 16, 4050),
    (5, 2, 20, 4200, 64, 0),
    (2, 1, 3, 1100, 16, 1097),
    (1, 1, 1, 40000, 8, 39999),
]


@pytest.mark.sanitized
@pytest.mark.parametrize("kind", ["plain", "shaw", "xl", "both_tables"])
@pytest.mark.parametrize("size", LARGE)
def test_large_sizes(isa, kind, size):
    batch, heads, lq, lk, d, offset = size
    if kind == "both_tables" and lk > 5000:
        pytest.skip("the oracle would store every key times every table row")
    sizes = (batch,), heads, lq, lk, d
    check_all(*known(size, kind, *sizes, offset=offset, k=70, size=0.5))


@functools.cache
def long_problem(kind, size):
    rng = np.random.default_rng(1024)
    q, k, v = qkv(rng, (), 1, 1024, 1024, 64)
    inputs = (size * q, size * k, v)
    keywords = terms(rng, kind, 1, 1024, 1024, 64, k=16)
    return inputs, keywords, dense_oracle.attention(*inputs, **keywords)


@pytest.mark.parametrize("kind", ["plain", "shaw", "music", "xl", "bias"])
@pytest.mark.parametrize("size", [1.0, 4.0])
def test_error_of_long_sequences(isa, kind, size):
    """L = 1024, d = 64, inputs of order 1 and four times as large."""
    inputs, keywords, want = long_problem(kind, size)
    name = "forward" if size == 1 else "forward_large_logits"
    for dtype in DTYPES:
        got = run(*(x.astype(dtype) for x in inputs), **cast(keywords, dtype))
        assert_close(got.out, want.out, name)
        assert_lse_close(got.lse, want.lse)


# ---- what hides pairs ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lq", "lk"), PATHS)
@pytest.mark.parametrize("mask_dtype", [bool, "float32", "float64"])
@pytest.mark.parametrize(
    "shape",
    [("b", "h", "q", "k"), (1, "h", "q", "k"), ("q", "k"), (1, "k"), ("b", 1, 1, "k")],
)
def test_masks(isa, dtype, lq, lk, mask_dtype, shape):
    """Every broadcast form of a mask; a float one hides with -inf and adds the rest."""
    rng = np.random.default_rng(3)
    inputs = qkv(rng, (2,), 2, lq, lk, 16)
    mask = normal(rng, *({"b": 2, "h": 2, "q": lq, "k": lk}.get(n, n) for n in shape))
    hidden = mask < -0.5
    mask = ~hidden if mask_dtype is bool else np.where(hidden, -np.inf, mask)
    inputs = [x.astype(dtype) for x in inputs]
    keywords = cast(terms(rng, "xl", 2, lq, lk, 16), dtype)
    mask = mask.astype(mask_dtype)
    want = dense_oracle.attention(*inputs, mask, **keywords)
    assert_results_close(run(*inputs, mask, **keywords), want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lq", "lk"), PATHS)
@pytest.mark.parametrize(
    "window", [(3, 2), (0, 0), (None, 4), (17, None), (0, None), (1000, 1000)]
)
@pytest.mark.parametrize("kind", ["everything", "xl", "both_tables"])
def test_windows_and_lengths(isa, dtype, lq, lk, window, kind):
    rng = np.random.default_rng(4)
    inputs = qkv(rng, (3,), 2, lq, lk, 16)
    keywords = terms(rng, kind, 2, lq, lk, 16)
    keywords |= {"window": window, "key_lengths": np.array([lk, lk // 2, 0])}
    keywords["query_offset"] = np.array([lk - lq, 0, 3])
    for causal in (False, True):
        check(inputs, keywords | {"is_causal": causal}, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lq", "lk"), PATHS)
def test_rows_that_see_nothing(isa, dtype, lq, lk):
    rng = np.random.default_rng(5)
    inputs = qkv(rng, (2,), 2, lq, lk, 16)
    mask = rng.random((2, 2, lq, lk)) < 0.8
    mask[:, :, 1::3] = False
    for given in (mask, np.where(mask, 0.0, -np.inf)):
        keywords = terms(rng, "shaw", 2, lq, lk, 16) | {"attn_mask": given}
        got = check(inputs, keywords, dtype)
        assert_bitwise(got.out[:, :, 1::3], np.zeros_like(got.out[:, :, 1::3]))
        assert np.isneginf(got.lse[:, :, 1::3]).all()


@pytest.mark.parametrize(("lq", "lk"), PATHS)
@pytest.mark.parametrize("name", ["attn_mask", "rel_bias", "both"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_of_the_most_negative_numbers_is_uniform(isa, dtype, lq, lk, name):
    """finfo.min is a number, not -inf, and two of them do not overflow to it."""
    rng = np.random.default_rng(6)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (), 2, lq, lk, 16))
    lowest = np.finfo(dtype).min
    keywords = {"query_offset": 0}
    if name in ("attn_mask", "both"):
        keywords["attn_mask"] = np.full((lq, lk), lowest)
    if name in ("rel_bias", "both"):
        keywords["rel_bias"] = np.full((2, 2 * lk + 1), lowest)
    got = run(q, k, v, **keywords)
    assert np.isfinite(got.lse).all()
    assert_close(got.weights, np.full((2, lq, lk), 1 / lk), "forward")
    mean = np.broadcast_to(v.mean(-2, dtype=np.float64)[:, None], got.out.shape)
    assert_close(got.out, mean, "forward_large_logits")


@pytest.mark.parametrize("fill", [-1e9, -1e30, "min"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_fills_hide_as_well_as_minus_infinity(isa, dtype, fill):
    rng = np.random.default_rng(7)
    inputs = [x.astype(dtype) for x in qkv(rng, (), 2, 40, 300, 16)]
    fill = np.finfo(dtype).min if fill == "min" else fill
    mask = rng.random((40, 300)) < 0.5
    mask[:, :280] &= np.arange(40)[:, None] % 2 == 0  # a first tile all hidden
    finite, hidden = (
        run(*inputs, np.where(mask, 0.0, number).astype(dtype))
        for number in (fill, -np.inf)
    )
    assert_results_bitwise(finite, hidden)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lq", "lk"), PATHS)
def test_minus_infinity_in_a_bias_hides(isa, dtype, lq, lk):
    rng = np.random.default_rng(8)
    keywords = terms(rng, "everything", 2, lq, lk, 16)
    keywords["rel_bias"][:, ::3] = -np.inf
    check(qkv(rng, (2,), 2, lq, lk, 16), keywords, dtype)


# ---- sizes of numbers ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lq", "lk"), PATHS)
def test_large_logits(isa, dtype, lq, lk):
    """Queries and keys four times as large."""
    rng = np.random.default_rng(9)
    q, k, v = qkv(rng, (2,), 2, lq, lk, 64)
    keywords = terms(rng, "xl", 2, lq, lk, 64)
    inputs = [x.astype(dtype) for x in (4 * q, 4 * k, v)]
    want = dense_oracle.attention(*inputs, **cast(keywords, dtype))
    got = run(*inputs, **cast(keywords, dtype))
    assert_close(got.out, want.out, "forward_large_logits")
    assert_lse_close(got.lse, want.lse)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lq", "lk"), PATHS)
def test_huge_logits_pick_one_key(isa, dtype, lq, lk):
    """Logits of +-1e30 neither overflow nor lose the winner."""
    rng = np.random.default_rng(10)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (), 1, lq, lk, 1))
    q, k = np.full_like(q, 1e15), np.sign(k) * 1e14
    k[0, lk - 2] = 1e15
    got = run(q, k, v)
    assert_bitwise(got.out, np.broadcast_to(v[:, lk - 2 : lk - 1], got.out.shape))
    assert_close(got.lse, np.full((1, lq), 1e30), "forward")


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_gradient_of_a_logit_is_subnormal(isa, dtype):
    """Or products wait for every key that is just far enough down a steep bias."""
    rng = np.random.default_rng(13)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (), 1, 40, 400, 16))
    tiny = np.finfo(dtype).tiny
    bias = np.linspace(0, 1.3 * np.log(tiny), 400).astype(dtype)
    result = run(q, k, v, attn_mask=bias, return_context=True)
    gradients = result.context.backward(np.ones_like(result.out), wrt=["attn_mask"])
    assert np.count_nonzero(result.weights) > 200 * 40
    for array in (result.weights, gradients.attn_mask):
        size = np.abs(array[array != 0])
        assert size.size and size.min() >= tiny


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lq", "lk"), PATHS)
@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_tiny_and_huge_values(isa, dtype, lq, lk, size):
    rng = np.random.default_rng(11)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (), 2, lq, lk, 16))
    check((q, k, v * np.dtype(dtype).type(size)), {}, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lq", "lk"), PATHS)
def test_columns_of_very_different_sizes(isa, dtype, lq, lk):
    """Value columns from 1e-30 to 1e30 do not touch each other."""
    rng = np.random.default_rng(20)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (), 2, lq, lk, 16))
    sizes = (10.0 ** rng.uniform(-30, 30, 16)).astype(dtype)
    got, want = run(q, k, v * sizes), dense_oracle.attention(q, k, v * sizes)
    for n in range(16):
        assert_close(got.out[..., n], want.out[..., n], "forward")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lq", "lk"), PATHS)
def test_sums_that_cancel(isa, dtype, lq, lk):
    """Values +x and -x under equal logits: the error is relative to x."""
    rng = np.random.default_rng(21)
    q, k, v = (x.astype(dtype) for x in qkv(rng, (), 2, lq, lk, 16))
    q, v = np.zeros_like(q), v.copy()
    v[..., 1::2, :] = -v[..., ::2, :]
    got = run(q, k, v)
    assert_close(got.weights, np.full((2, lq, lk), 1 / lk), "forward")
    error = np.abs(got.out).max() / np.abs(v).max()
    assert error <= TOLERANCES["forward"].of(dtype)


@pytest.mark.parametrize("scale", [0.0, -0.5, 3.0])
def test_scale_leaves_bias_and_mask_alone(isa, scale):
    rng = np.random.default_rng(12)
    keywords = terms(rng, "everything", 2, 12, 20, 16)
    keywords |= {"scale": scale, "attn_mask": normal(rng, 12, 20)}
    check(qkv(rng, (2,), 2, 12, 20, 16), keywords, "float64", "forward_large_logits")


# ---- dropout ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lq", "lk"), PATHS)
@pytest.mark.parametrize("dropout_p", [0.1, 0.5, 0.999])
def test_dropout_is_the_documented_function_of_the_seed(isa, dtype, lq, lk, dropout_p):
    """lse and weights ignore it; out keeps what philox keeps."""
    rng = np.random.default_rng(13)
    inputs = qkv(rng, (2, 2), 3, lq, lk, 16)
    keywords = terms(rng, "shaw", 3, lq, lk, 16)
    keywords |= {"dropout_p": dropout_p, "rng": 2024}
    inputs, keywords = [x.astype(dtype) for x in inputs], cast(keywords, dtype)
    want = dense_oracle.attention(*inputs, **keywords)
    got = run(*inputs, **keywords)
    assert_close(got.out, want.out, "forward")
    assert_close(got.weights, want.weights, "forward")
