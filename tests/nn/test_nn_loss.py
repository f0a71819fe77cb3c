"""cross_entropy: impossible classes, label smoothing, logits that fit no memory."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from relpos import nn

INF = math.inf


def by_hand(logits, targets, smoothing):
    """(loss, gradient) of logits (n, C) in plain loops, from the definition."""
    count, classes = len(logits), len(logits[0])
    loss, grad = 0.0, np.zeros((count, classes))
    for i, (row, target) in enumerate(zip(logits, targets, strict=True)):
        total = sum(math.exp(x - max(row)) for x in row)
        for c, x in enumerate(row):
            share = (1 - smoothing) * (c == target) + smoothing / classes
            if share:
                loss -= share * (x - max(row) - math.log(total)) / count
            grad[i, c] = (math.exp(x - max(row)) / total - share) / count
    return loss, grad


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_impossible_class_without_a_share_is_not_in_the_loss(dtype, strict_floats):
    loss, grad = nn.cross_entropy(np.array([[0.0, -INF]], dtype), [0])
    assert (loss, math.copysign(1, loss)) == (0, 1) and not grad.any()
    logits = np.array([[1.0, -INF, 0.5], [-INF, -INF, 3.0], [2.0, 1.0, -1.0]], dtype)
    loss, grad = nn.cross_entropy(logits, [0, 2, 1])
    want, want_grad = by_hand(logits.astype(float).tolist(), [0, 2, 1], 0)
    eps = np.finfo(dtype).eps
    assert loss == pytest.approx(want, rel=4 * float(np.finfo("float32").eps))
    assert grad.dtype == dtype and np.abs(grad - want_grad).max() < eps


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_an_impossible_class_with_a_share_is_an_infinite_loss(smoothing):
    target = 0 if smoothing else 1  # smoothing gives every class a share
    logits = [[1.0, -INF, 0.5], [2.0, 1.0, -1.0]]
    loss, grad = nn.cross_entropy(
        np.array(logits), [target, 1], label_smoothing=smoothing
    )
    want, want_grad = by_hand(logits, [target, 1], smoothing)
    assert loss == want == INF
    np.testing.assert_allclose(grad, want_grad, rtol=0, atol=1e-15)


def test_a_row_without_a_softmax_is_nan_and_the_others_keep_their_gradients():
    for row in ([-INF, -INF], [INF, 0.0], [math.nan, 0.0]):
        with np.errstate(invalid="ignore"):
            loss, grad = nn.cross_entropy(np.array([row, [0.0, 0.0]]), [0, 1])
        assert math.isnan(loss) and np.isnan(grad[0]).any()
        assert grad[1].tolist() == [0.25, -0.25]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7, 1.0])
def test_label_smoothing_by_hand(smoothing):
    rng = np.random.default_rng(0)
    logits, targets = 3 * rng.standard_normal((6, 5)), rng.integers(0, 5, 6)
    loss, grad = nn.cross_entropy(
        logits.reshape(2, 3, 5), targets.reshape(2, 3), label_smoothing=smoothing
    )
    want, want_grad = by_hand(logits.tolist(), targets, smoothing)
    assert loss == pytest.approx(want, rel=1e-14)
    np.testing.assert_allclose(grad.reshape(6, 5), want_grad, rtol=0, atol=1e-15)


@pytest.mark.parametrize("shape", [(3, 2**46), (2**46, 3)])
def test_logits_that_fit_no_memory_are_refused_before_any_work(shape):
    """Views of one number; an address space ends at 2**47 bytes, whatever is free."""
    logits = np.broadcast_to(np.float32(0), shape)
    targets = np.broadcast_to(np.int64(0), shape[:1])
    begin = time.process_time()
    with pytest.raises(MemoryError):
        nn.cross_entropy(logits, targets)
    logits = np.broadcast_to(np.float16(0), (3, 2**60))  # too many as float32
    with pytest.raises(ValueError, match=r"logits: .* more bytes than memory"):
        nn.cross_entropy(logits, np.zeros(3, int))
    assert time.process_time() - begin < 1
