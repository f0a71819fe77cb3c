"""Every tolerance of the tests, in one table, each with its reason."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Tolerance(NamedTuple):
    float32: float
    float64: float
    why: str

    def of(self, dtype):
        return getattr(self, np.dtype(dtype).name)


TOLERANCES = {
    # Frobenius norm of the error over that of the truth.
    "forward": Tolerance(
        1e-6,
        1e-14,
        "logits of order 1. PyTorch float32 is at 5e-7 for L = 2048, d = 64, and NumPy"
        " float64 at up to 6e-15 for L = 256; the ceilings are twice that",
    ),
    "forward_large_logits": Tolerance(
        1e-5,
        5e-14,
        "queries and keys four times as large: the absolute error of a logit grows with"
        " it and turns into a relative error of the probability (PyTorch: 2.2e-6)",
    ),
    "gradient": Tolerance(
        2e-6,
        1e-14,
        "logits of order 1. PyTorch float32 is at 5.4e-7 for L = 2048, d = 64; sums"
        " over few pairs lose another factor of two or three where terms cancel",
    ),
    "gradient_large_logits": Tolerance(
        1e-5,
        5e-14,
        "as the forward's: PyTorch is at 3.9e-6 for L = 2048 and 5.2e-6 for d = 128",
    ),
    "conservation": Tolerance(
        1e-6,
        3e-15,
        "a sum that is zero, over the sum of absolute values. NumPy's own are 4e-8 to"
        " 9e-8 and 1e-16 where dS has zero row sums by construction; here lse and out"
        " come rounded from the forward, and with four tables dS is small beside dP",
    ),
    # Largest absolute error over the largest entry of the truth.
    "recorded": Tolerance(
        3e-6,
        1e-12,
        "recorded float64 values carry their makers' own rounding, up to 2e-13 at"
        " sinusoid position 4999; native float32 runs of the same code differ by 6e-7",
    ),
    "layer": Tolerance(
        3e-6,
        1e-12,
        "a whole layer beside PyTorch's: projections, attention and normalisation, each"
        " rounded in another order",
    ),
    "layer gradient": Tolerance(
        6e-6, 1e-10, "the same, with the sums over all positions in the parameters"
    ),
    "recorded_gradient": Tolerance(
        6e-6,
        1e-10,
        "recorded gradients agree with complex steps to 7.5e-14; native float32 runs of"
        " the same code differ from them by up to 3e-6",
    ),
    "same_formula": Tolerance(
        5e-6,
        5e-14,
        "two runs of the engine that must agree without being bitwise equal (other key"
        " splits, other order of sums): each may be off by the forward ceiling, on"
        " entries and not only in norm, and inputs may have been rounded once more",
    ),
    "lse": Tolerance(
        2e-6,
        2e-14,
        "absolute error over max(1, |lse|): a few ulp of the largest logit",
    ),
}

# float32 against PyTorch's own float32 error, both against float64, over 20 seeds
TORCH_RATIO_MEDIAN, TORCH_RATIO_WORST = 1.1, 1.5


@np.errstate(all="ignore")
def normwise(got, want, floor=0.0):
    """Frobenius norm of the error relative to the truth's, or to a floor under it."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    size = max(np.linalg.norm(want), floor)
    return (
        float(np.linalg.norm(got - want) / size) if size else float(np.abs(got).sum())
    )


@np.errstate(all="ignore")
def largest(got, want):
    """Largest error relative to the largest entry of the truth."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    if want.size == 0:
        return 0.0
    return float(np.abs(got - want).max() / (np.abs(want).max() or 1.0))


@np.errstate(all="ignore")
def assert_close(got, want, name, metric=normwise):
    """Compare in the dtype of `got`; NaN fails, infinities have to be in place."""
    got, want = np.asarray(got), np.asarray(want, np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    limit = TOLERANCES[name].of(got.dtype)
    infinite = np.isinf(want)
    assert np.array_equal(got[infinite], want[infinite].astype(got.dtype))
    assert np.isfinite(got[~infinite]).all()
    error = metric(np.where(infinite, 0, got), np.where(infinite, 0, want))
    assert error <= limit, f"{name}: error {error:.3g} > {limit:.3g}"


@np.errstate(all="ignore")
def assert_lse_close(got, want, name="lse"):
    got, want = np.asarray(got), np.asarray(want, np.float64)
    assert got.shape == want.shape, (got.shape, want.shape)
    hidden = np.isneginf(want)
    assert np.array_equal(np.isneginf(got), hidden)
    limit = TOLERANCES[name].of(got.dtype)
    got, want = got[~hidden], want[~hidden]
    error = np.abs(got - want) / np.maximum(1.0, np.abs(want))
    assert (error <= limit).all(), f"{name}: error {error.max():.3g} > {limit:.3g}"


def assert_results_close(got, want, name="forward", floor=0.0):
    """An AttentionOutput with lse and weights against an oracle's Result.

    floor: root mean square under the output's. A handful of rows can average values of
    order 1 to almost nothing, and is then judged by the size of the values.
    """
    least = floor * np.sqrt(want.out.size)
    assert_close(got.out, want.out, name, lambda g, w: normwise(g, w, least))
    assert_close(got.weights, want.weights, name)
    assert_lse_close(got.lse, want.lse)


def assert_bitwise(got, want):
    """Same shape, dtype and bits; -0.0 and 0.0 differ."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    integer = f"u{got.dtype.itemsize}"
    same = np.ascontiguousarray(got).view(integer) == (
        np.ascontiguousarray(want).view(integer)
    )
    assert same.all(), f"{np.count_nonzero(~same)} of {same.size} entries differ"


def assert_results_bitwise(got, want):
    assert_bitwise(got.out, want.out)
    assert_bitwise(got.lse, want.lse)
    assert_bitwise(got.weights, want.weights)
