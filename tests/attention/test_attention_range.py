"""Logits and scales at the end of the range of their dtype."""

from __future__ import annotations

import numpy as np
import pytest
from problems import DTYPES, PATHS, run
from tolerances import assert_bitwise, assert_close

import relpos

both_paths = pytest.mark.parametrize(("lq", "lk"), PATHS)
both_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def logits(dtype, lq, lk, far, others):
    """Inputs with a logit `far` times the largest at key 1; others are 0, or as far."""
    largest = float(np.finfo(dtype).max) / np.log2(np.e)
    root = np.sqrt(largest) * np.sqrt(abs(far))
    key = np.full((1, lk, 1), np.copysign(root, far) if others else 0, dtype)
    key[0, 1] = np.copysign(root, far)
    value = np.arange(lk, dtype=dtype)[None, :, None]
    return np.full((1, lq, 1), root, dtype), key, value


@both_dtypes
@both_paths
@pytest.mark.parametrize("far", [0.999, -0.999])
def test_logits_within_the_range(isa, dtype, lq, lk, far):
    query, key, value = logits(dtype, lq, lk, far, others=False)
    want = value[:, 1] if far > 0 else np.delete(value, 1, axis=1).mean(axis=1)
    got = run(query, key, value, scale=1.0)
    assert_close(got.out, np.broadcast_to(want[:, None], got.out.shape), "forward")
    query, key, value = logits(dtype, lq, lk, far, others=True)
    got = run(query, key, value, scale=1.0)
    assert_close(got.weights, np.full((1, lq, lk), 1 / lk), "forward")
    logit = float(query[0, 0, 0]) * float(key[0, 0, 0])  # its norm would overflow
    assert_close(got.lse / logit, np.ones((1, lq)), "lse")


@both_dtypes
@both_paths
@pytest.mark.parametrize("far", [-1.001, -1.5])
def test_too_negative_a_logit_weighs_nothing(isa, dtype, lq, lk, far):
    """Finite by itself, it is not once log2(e) is in it: as any underflow, 0."""
    query, key, value = logits(dtype, lq, lk, far, others=False)
    if far > -1.4:
        assert np.isfinite(query[0, 0] * key[0, 1]).all()
    got = run(query, key, value, scale=1.0)
    hidden = run(query, key, value, np.arange(lk) != 1, scale=1.0)
    for name in ("out", "lse", "weights"):
        assert_bitwise(getattr(got, name), getattr(hidden, name))
    query, key, value = logits(dtype, lq, lk, far, others=True)
    got = run(query, key, value, scale=1.0)
    assert not got.out.any() and not got.weights.any() and (got.lse == -np.inf).all()


@both_dtypes
@both_paths
@pytest.mark.parametrize("far", [1.001, 1.5])
def test_too_large_a_logit_is_nan(isa, dtype, lq, lk, far):
    query, key, value = logits(dtype, lq, lk, far, others=False)
    query[0, 0] = 0  # the other rows are what they are
    got = run(query, key, value, scale=1.0)
    for name in ("out", "lse", "weights"):
        assert np.isnan(getattr(got, name)[:, 1:]).all(), name
    assert_close(got.weights[:, :1], np.full((1, 1, lk), 1 / lk), "forward")


@both_dtypes
@both_paths
@pytest.mark.parametrize("name", ["attn_mask", "rel_bias"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_bias_counts_as_the_largest_that_there_is(isa, dtype, lq, lk, name, sign):
    """A quarter of what logits can be in units of log 2, as the docstring says."""
    limit = float(np.finfo(dtype).max / (4 * np.log2(np.e)))
    zeros = np.zeros((1, lq, 4), dtype), np.zeros((1, lk, 4), dtype)
    shape = (lq, lk) if name == "attn_mask" else (1, 1)
    for part, want in ((0.5, 0.5), (0.99, 0.99), (1.01, 1.0), (4.0, 1.0)):
        bias = {name: np.full(shape, sign * part * limit).astype(dtype)}
        got = run(zeros[0], zeros[1], zeros[1], **bias, query_offset=0)
        assert_close(got.weights, np.full((1, lq, lk), 1 / lk), "forward")
        assert_close(got.lse / limit, np.full((1, lq), sign * want), "lse")


# ---- the scale ----------------------------------------------------------------------

X = np.ones((2, 4, 8), np.float32)
CALLS = {
    "attention": relpos.attention,
    "shaw_attention": relpos.shaw_attention,
    "shaw_scores": lambda q, k, v, **scale: relpos.shaw_scores(q, k, X[0, :3], **scale),
    "graph_attention": lambda q, k, v, **scale: relpos.graph_attention(
        q, k, v, np.arange(5), np.arange(4), **scale
    ),
}


@pytest.mark.parametrize("function", CALLS)
def test_a_scale_has_to_be_in_the_range_of_the_dtype(function):
    """The smallest number is 1.4e-45, the largest 3.4e38, log2(e) in it."""
    call, single, double = CALLS[function], (X, X, X), (X, X, X.astype(np.float64))
    for scale in (1e-60, -1e-60, 6e-46, 5e-324):
        with pytest.raises(
            ValueError, match=rf"^scale: got {scale}, too small for flo"
        ):
            call(*single, scale=scale)
    for scale in (2.5e38, -2.5e38, 1e200):
        words = (
            rf"^scale: got {scale:.3g}, too large for float32; expected .* 2\.36e\+38"
        )
        with pytest.raises(ValueError, match=words.replace("e+", r"e\+", 1)):
            call(*single, scale=scale)
    for scale in (0.0, -0.0, 1e-44, -1e-30, 1e-4):
        assert np.isfinite(call(*single, scale=scale)).all()
    call(*single, scale=2.3e38)
    if function != "shaw_scores":  # which has no value to be double
        for scale in (1e-60, 1e200, 5e-324):
            call(*double, scale=scale)
        with pytest.raises(
            ValueError, match=r"^scale: got 1\.3e\+308, too large for f"
        ):
            call(*double, scale=1.3e308)
