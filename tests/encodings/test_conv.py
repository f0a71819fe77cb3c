"""`conv_encoding` and its gradients against loops, differences and PyTorch."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from backward_checks import assert_equals_differences
from bad_kinds import ones
from layouts import LAYOUTS
from problems import DTYPES, assert_same_on_threads, normal
from refusals import changes
from tolerances import assert_bitwise, assert_close

import relpos
from relpos import _core
from relpos._settings import kernels, use_isa

# grid of tokens, kernel; channels around the sizes of vectors and strips of them
SIZES = [
    ((7,), (3,), 5),
    ((6,), (4,), 16),
    ((3,), (9,), 7),
    ((1,), (1,), 1),
    ((4, 5), (3, 3), 37),
    ((5, 3), (2, 5), 64),
    ((2, 9), (7, 1), 71),
    ((1, 6), (3, 4), 8),
]
sizes = pytest.mark.parametrize(("grid", "kernel", "channels"), SIZES)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)
causal_too = pytest.mark.parametrize("is_causal", [False, True])


def neighbours(grid, kernel, is_causal):
    """(token, tap, token under that tap) of every tap that falls inside the grid."""
    for n, cell in enumerate(np.ndindex(*grid)):
        for tap in np.ndindex(*kernel):
            before = [k - 1 if is_causal else k // 2 for k in kernel]
            other = [c + t - b for c, t, b in zip(cell, tap, before, strict=True)]
            if all(0 <= o < size for o, size in zip(other, grid, strict=True)):
                yield n, tap, int(np.ravel_multi_index(other, grid))


def loops(x, weight, bias, mask, grid, is_causal):
    """The definition, in float64: x (L, E), weight (E, *kernel), mask (L,)."""
    y = x.astype(np.float64) + bias * mask[:, None]
    for n, tap, m in neighbours(grid, weight.shape[1:], is_causal):
        if mask[n] and mask[m]:
            y[n] += weight[(slice(None), *tap)] * x[m]
    return y


def gradient_loops(grad, x, weight, mask, grid, is_causal):
    dx, dw = grad.astype(np.float64), np.zeros(weight.shape)
    for n, tap, m in neighbours(grid, weight.shape[1:], is_causal):
        if mask[n] and mask[m]:
            column = (slice(None), *tap)
            dx[m] += weight[column] * grad[n]
            dw[column] += grad[n] * x[m]
    return dx, dw, (grad * mask[:, None]).sum(0)


def problem(grid, kernel, channels, batch=(), seed=0):
    rng = np.random.default_rng([seed, channels, *grid])
    x = normal(rng, *batch, math.prod(grid), channels)
    weight, bias = normal(rng, channels, *kernel), normal(rng, channels)
    mask = rng.random(x.shape[:-1]) < 0.7
    return x, weight, bias, mask


@sizes
@both_dtypes
@causal_too
@pytest.mark.sanitized
@pytest.mark.parametrize("masked", [False, True])
def test_the_loops(isa, grid, kernel, channels, dtype, is_causal, masked):
    x, weight, bias, mask = problem(grid, kernel, channels, (2,))
    mask = mask if masked else np.ones(mask.shape, bool)
    keywords = {"grid": grid, "is_causal": is_causal}
    want = [loops(x[b], weight, bias, mask[b], **keywords) for b in range(2)]
    grad = normal(np.random.default_rng(1), *x.shape)
    truth = [
        gradient_loops(grad[b], x[b], weight, mask[b], **keywords) for b in range(2)
    ]
    arrays = [array.astype(dtype) for array in (x, weight, bias)]
    keywords["mask"] = mask if masked else None
    assert relpos.conv_encoding(*arrays, **keywords).dtype == dtype
    dx, dw, db = zip(*truth, strict=True)
    for source in (relpos, relpos.reference):
        assert_close(source.conv_encoding(*arrays, **keywords), want, "forward")
        found = source.conv_encoding_backward(grad.astype(dtype), *arrays, **keywords)
        for got, exact in zip(found, (dx, sum(dw), sum(db)), strict=True):
            assert_close(got, exact, "gradient")


@causal_too
@pytest.mark.parametrize(("grid", "kernel"), [((5,), (3,)), ((3, 4), (3, 2))])
def test_gradients_equal_differences(grid, kernel, is_causal):
    *arrays, mask = problem(grid, kernel, 6, (2,))
    rng = np.random.default_rng(2)
    grad = rng.standard_normal(arrays[0].shape)
    keywords = {"grid": grid, "is_causal": is_causal, "mask": mask}
    inputs = dict(zip(("x", "weight", "bias"), arrays, strict=True))
    function = functools.partial(relpos.conv_encoding, **keywords)
    for isa in _core.by_isa:
        with use_isa(isa):
            found = relpos.conv_encoding_backward(grad, *arrays, **keywords)
            assert_equals_differences(function, inputs, found._asdict(), grad)


def test_long_sequences(isa):
    """Units of several cells, sums of many blocks of terms."""
    x, weight, bias, mask = problem((3000,), (5,), 70)
    arrays = [array.astype(np.float32) for array in (x, weight, bias)]
    grad = normal(np.random.default_rng(3), *x.shape)
    dx, dw, db = gradient_loops(grad, x, weight, mask, (3000,), False)
    found = relpos.conv_encoding_backward(grad.astype(np.float32), *arrays, mask=mask)
    for got, want in zip(found, (dx, dw, db), strict=True):
        assert_close(got, want, "gradient")
    want = loops(x, weight, bias, mask, (3000,), False)
    assert_close(relpos.conv_encoding(*arrays, mask=mask), want, "forward")


# ---- what has to hold ---------------------------------------------------------------


@pytest.mark.parametrize(("grid", "kernel"), [((8,), (4,)), ((3, 4), (3, 3))])
def test_causal_means_no_later_token(isa, grid, kernel):
    x, weight, bias, _ = problem(grid, kernel, 9)
    want = relpos.conv_encoding(x, weight, bias, grid=grid, is_causal=True)
    for n in range(len(x)):
        later = x.copy()
        later[n:] = np.nan
        got = relpos.conv_encoding(later, weight, bias, grid=grid, is_causal=True)
        assert_bitwise(got[:n], want[:n])
        assert np.isnan(got[n:]).all()
    both = relpos.conv_encoding(x, weight, bias, grid=grid)
    assert not np.allclose(both[:1], want[:1])


def test_padding_is_not_seen(isa):
    """Whatever padding holds, tokens come out as without it."""
    x, weight, bias, _ = problem((6,), (5,), 11)
    want = relpos.conv_encoding(x, weight, bias)
    padded = np.concatenate([x, np.full((4, 11), np.nan)])
    mask = np.arange(10) < 6
    got = relpos.conv_encoding(padded, weight, bias, mask=mask)
    assert_bitwise(got[:6], want)
    assert np.isnan(got[6:]).all()
    grad = normal(np.random.default_rng(4), 6, 11)
    wide = np.concatenate([grad, np.full((4, 11), np.nan)])
    found = relpos.conv_encoding_backward(wide, padded, weight, bias, mask=mask)
    truth = relpos.conv_encoding_backward(grad, x, weight, bias)
    assert_bitwise(found.x[:6], truth.x)
    assert_bitwise(found.weight, truth.weight)
    assert_bitwise(found.bias, truth.bias)


def test_masks_broadcast():
    x, weight, bias, mask = problem((2, 3), (3, 3), 4, (2, 5))
    for shape in [(6,), (1,), (5, 1), (2, 1, 6), (1, 1, 1), ()]:
        part = np.broadcast_to(mask, (2, 5, 6))[tuple(slice(0, n) for n in (2, 5, 6))]
        part = part.reshape(-1)[: math.prod(shape)].reshape(shape)
        full = np.broadcast_to(part, (2, 5, 6))
        got = relpos.conv_encoding(x, weight, bias, grid=(2, 3), mask=part)
        assert_bitwise(
            got, relpos.conv_encoding(x, weight, bias, grid=(2, 3), mask=full)
        )


@both_dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("grid", "kernel"), [((6,), (3,)), ((3, 2), (3, 3))])
def test_any_layout_gives_the_same_bits(isa, dtype, layout, grid, kernel):
    x, weight, bias, mask = problem(grid, kernel, 21, (2,))
    arrays = [array.astype(dtype) for array in (x, weight, bias)]
    grad = normal(np.random.default_rng(5), *x.shape).astype(dtype)
    keywords = {"grid": grid, "mask": mask}
    want = relpos.conv_encoding(*arrays, **keywords)
    truth = relpos.conv_encoding_backward(grad, *arrays, **keywords)
    change = LAYOUTS[layout]
    laid = [change(array) for array in arrays]
    keywords["mask"] = change(mask)
    assert_bitwise(relpos.conv_encoding(*laid, **keywords), want)
    found = relpos.conv_encoding_backward(change(grad), *laid, **keywords)
    for got, expected in zip(found, truth, strict=True):
        assert_bitwise(got, expected)


def test_strides_of_the_kernels_own_operands(isa):
    """The ufunc takes operands of different layouts, which only its callers pass."""
    rng = np.random.default_rng(6)
    x, weight = normal(rng, 4, 5, 19), normal(rng, 3, 3, 19)
    bias, mask, grad = normal(rng, 19), np.ones((4, 5)), normal(rng, 4, 5, 19)
    mask[1, 2] = 0
    want = kernels().conv_encoding(x, weight, bias, mask, 1, 1)
    outs = np.empty((3, 3, 19)), np.empty(19)
    truth = kernels().conv_encoding_backward(grad, x, mask, 1, 1, out=outs)
    for name in ("transposed", "negative", "spaced", "unaligned"):
        change = LAYOUTS[name]
        got = kernels().conv_encoding(x, change(weight), bias, mask, 1, 1)
        assert_bitwise(got, want)
        out = change(np.zeros((4, 5, 19)))
        kernels().conv_encoding(x, weight, bias, change(mask), 1, 1, out=out)
        assert_bitwise(out, want)
        outs = change(np.zeros((3, 3, 19))), change(np.zeros(19))
        kernels().conv_encoding_backward(change(grad), x, mask, 1, 1, out=outs)
        for part, expected in zip(outs, truth, strict=True):
            assert_bitwise(part, expected)


@pytest.mark.sanitized
@pytest.mark.parametrize("pad", [-(2**63), -9, 7, 9, 2**63 - 1])
def test_taps_that_never_meet_the_grid(isa, pad):
    rng = np.random.default_rng(7)
    x, weight = normal(rng, 4, 5, 9), normal(rng, 3, 3, 9)
    bias, mask = normal(rng, 9), np.ones((4, 5))
    for pads in ((pad, 1), (1, pad), (pad, pad)):
        got = kernels().conv_encoding(x, weight, bias, mask, *pads)
        assert_bitwise(got, x + (0 + bias))
        outs = np.ones((3, 3, 9)), np.ones(9)
        kernels().conv_encoding_backward(x, x, mask, *pads, out=outs)
        assert not outs[0].any() and outs[1].any()


@pytest.mark.sanitized
def test_any_number_of_threads_gives_the_same_bits(isa):
    x, weight, bias, mask = problem((40, 30), (3, 3), 70, (3,))
    grad = normal(np.random.default_rng(8), *x.shape)
    keywords = {"grid": (40, 30), "mask": mask}
    assert_same_on_threads(
        lambda: (
            relpos.conv_encoding(x, weight, bias, **keywords),
            *relpos.conv_encoding_backward(grad, x, weight, bias, **keywords),
        )
    )


def test_shapes_of_pytorch_and_no_bias():
    x, weight, _, _ = problem((3, 4), (3, 3), 5)
    got = relpos.conv_encoding(x, weight[:, None], grid=(3, 4))
    assert_bitwise(got, relpos.conv_encoding(x, weight, np.zeros(5), grid=(3, 4)))
    found = relpos.conv_encoding_backward(x, x, weight[:, None], grid=(3, 4))
    assert found.weight.shape == (5, 1, 3, 3) and found.bias is None


def test_dtypes():
    x, weight, bias, _ = problem((6,), (3,), 5)
    half = [array.astype("float16") for array in (x, weight, bias)]
    single = [array.astype("float32") for array in half]
    got = relpos.conv_encoding(*half)
    assert got.dtype == np.float16
    assert_bitwise(got, relpos.conv_encoding(*single).astype("float16"))
    mixed = single[0], weight, half[2]
    assert relpos.conv_encoding(*mixed).dtype == np.float64
    found = relpos.conv_encoding_backward(x, *mixed)
    assert [g.dtype for g in found] == ["float32", "float64", "float16"]


@pytest.mark.parametrize(
    ("shape", "grid"),
    [
        ((0, 6, 5), None),
        ((2, 0, 5), None),
        ((2, 6, 0), None),
        ((0, 5), (0, 3)),
        ((0, 5), (2**50, 0)),
    ],
)
def test_nothing_at_all(isa, shape, grid):
    x, channels = np.ones(shape), shape[-1]
    weight = np.ones((channels, 3) if grid is None else (channels, 3, 3))
    got = relpos.conv_encoding(x, weight, np.ones(channels), grid=grid)
    assert got.shape == shape
    found = relpos.conv_encoding_backward(x, x, weight, np.ones(channels), grid=grid)
    assert [g.shape for g in found] == [shape, weight.shape, (channels,)]
    assert not found.weight.any() and not found.bias.any()


# ---- the activation -----------------------------------------------------------------


@both_dtypes
def test_gelu(isa, dtype):
    x = np.linspace(-40, 40, 1601).astype(dtype)
    y, slope = kernels().gelu(x)
    exact = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.astype(float)]
    density = np.exp(-0.5 * x.astype(float) ** 2) / math.sqrt(2 * math.pi)
    derivative = [0.5 * math.erfc(-v / math.sqrt(2)) for v in x.astype(float)]
    eps = np.finfo(dtype).eps
    # far to the left a rounded argument moves both tails by up to x^2 roundings
    limit = eps * (4 + 2 * x.astype(float) ** 2) * np.abs(exact) + np.finfo(dtype).tiny
    assert (np.abs(y - exact) <= limit).all()
    np.testing.assert_allclose(slope, derivative + x * density, rtol=0, atol=2 * eps)
    with np.errstate(all="raise"):
        far = kernels().gelu(np.array([-np.inf, np.inf, np.nan, 0.0], dtype))
    np.testing.assert_array_equal(far[0], [0, np.inf, np.nan, 0])
    np.testing.assert_array_equal(far[1], [0, 1, np.nan, 0.5])


# ---- bad calls ----------------------------------------------------------------------

GOOD = {
    "x": ones(2, 6, 5),
    "weight": ones(5, 3, 3),
    "bias": ones(5),
    "grid": (2, 3),
    "mask": np.ones((2, 6), bool),
}
ROWS = changes(
    """
grid=(3, 3) -> ValueError: grid: got (3, 3), which multiplies to 9; … 6
grid=(6, 0) -> ValueError: grid: …multiplies to 0; expected x's length 6
grid=(-2, -3) -> ValueError: grid: got -2; expected an integer from 0
grid=(2, 3, 1) -> ValueError: grid: got 3 sizes; expected (rows, columns)
grid=() -> ValueError: grid: got 0 sizes
grid=(10**30, 3) -> ValueError: grid: got 1000…; expected an integer
x=ones(0, 5), grid=(0, 2**60) -> ValueError: grid: …more bytes than memory
grid=6 -> TypeError: grid: got int; expected
grid=(2.0, 3) -> TypeError: grid: got float; expected an integer
grid=(True, 6) -> TypeError: grid: got True; expected an integer
grid=None -> ValueError: weight: got shape (5, 3, 3); expected (5, k)
weight=ones(5, 3) -> ValueError: weight: got …expected (5, i, j)
weight=ones(4, 3, 3) -> ValueError: weight: got shape (4, 3, 3); expected
weight=ones(5, 2, 3, 3) -> ValueError: weight: got shape (5, 2, 3, 3)
weight=ones(5, 0, 3) -> ValueError: weight: …expected at least 1 tap
weight=ones(5, 3, 3, dtype=int) -> TypeError: weight: …expected float16
weight=Tensor() -> TypeError: weight: ….detach()
bias=ones(4) -> ValueError: bias: got shape (4,); expected (5,)
bias=ones(2, 5) -> ValueError: bias: got shape (2, 5)
x=ones(5) -> ValueError: x: shape (5,) has 1 axis; expected (..., L, E
x=MASKED -> TypeError: x: got a MaskedArray
mask=ones(2, 6) -> TypeError: mask: got dtype float64; expected bool
mask=ones(3, 6, dtype=bool) -> ValueError: mask: shape (3, 6) does not br
mask=ones(1, 2, 6, dtype=bool) -> ValueError: mask: shape … does not br
""",
    globals(),
)


@pytest.mark.parametrize(("changes", "error", "pattern"), ROWS)
@pytest.mark.parametrize("backward", [False, True])
def test_bad_calls(changes, error, pattern, backward):
    arguments = GOOD | changes
    with pytest.raises(error, match=pattern):
        if backward:
            relpos.conv_encoding_backward(ones(2, 6, 5), **arguments)
        else:
            relpos.conv_encoding(**arguments)


def test_bad_incoming_gradients():
    with pytest.raises(ValueError, match=r"^grad_out: shape \(6, 5\) does not match"):
        relpos.conv_encoding_backward(ones(6, 5), **GOOD)
    with pytest.raises(TypeError, match=r"^grad_out: got NoneType"):
        relpos.conv_encoding_backward(None, **GOOD)
