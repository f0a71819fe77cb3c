"""The error model: the errors that rounding explains, by the dtype of the results.

All errors are relative to the largest entry of the exact result, and u is the unit
roundoff of a dtype: storing a number in it moves the number by at most u of its size.

A right implementation computes with float32 arithmetic or better and stores inputs,
attention weights and results in a 16-bit dtype. Both sides round their results, which
moves them apart by 2 u at most. The roundings of weights and other intermediate
results, which are many and independent, move them by a fraction of u: in 16,000 random
problems of 8 to 64 keys outputs and gradients are at most 2.46 u apart. `ROUNDINGS`
allows 2.5 u, and `ARITHMETIC` the roundings of sums in float32.

An error of `serious` size must not pass. With the 2.5 u of a right implementation
against it, half of it or more remains, and 2.5 u is less than that half.

Eager code stores the scores in 16 bits too, which moves a score s by up to 2 u |s|
(the product, and its scale) and the outputs by an amount that follows from all scores:
`reach` computes it. Where the scores are not known, `doubtful` estimates it, which is
more than twice the error that scores of standard deviation 4 make.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.arrays import largest
from relpos._opinion.attempt import HIDDEN, Attempt
from relpos._opinion.evaluate import logits, rotated, summed, values_of, weights_of

#: The verdict where a dtype is too coarse for an answer.
CANNOT_TELL = "cannot tell in this dtype: compare in float32"
#: Roundings of the arithmetic, in unit roundoffs: sums of some hundred numbers.
ARITHMETIC = 512.0
#: Roundings to a 16-bit dtype, in unit roundoffs, by which right results are apart.
ROUNDINGS = 2.5


class Rounding(NamedTuple):
    """Meaning of errors in results of one dtype."""

    unit: float  # the unit roundoff
    roundings: float  # of stored numbers, by which a right implementation may be off
    arithmetic: float  # the unit roundoff of the arithmetic
    serious: float = math.inf  # an error that is never called "same"
    doubtful: float = 0.0  # the most that roundings of unknown scores may add up to

    @property
    def is_half(self) -> bool:
        """Return True if numbers are stored in fewer bits than they are computed in."""
        return self.roundings > 0

    def limit(self, arithmetic: float = ARITHMETIC) -> float:
        """Return the largest error of a right implementation."""
        return self.roundings * self.unit + arithmetic * self.arithmetic

    def verdict(self, error: float, limit: float, reach: float) -> str:
        """Return 'same', `CANNOT_TELL` or 'differs'.

        `reach` is the error of an implementation that rounds scores as well. It is
        allowed where it stays below a serious error, up to half of one: beyond that a
        serious error and rounding against it could look the same.
        """
        # An error up to `limit` is rounding. A larger one, up to `reach`, is so only if
        # `reach` stays below what is serious.
        reach = max(reach, limit)
        allowed = limit if reach >= self.serious else reach
        if error <= min(allowed, self.serious / 2):
            return "same"
        return CANNOT_TELL if error <= reach else "differs"


_FLOAT32 = 2.0**-24

#: The table from which `compare` and `diagnose` take their limits.
DTYPES = {
    "bfloat16": Rounding(2.0**-8, ROUNDINGS, _FLOAT32, serious=0.02, doubtful=0.1),
    "float16": Rounding(2.0**-11, ROUNDINGS, _FLOAT32, serious=0.005, doubtful=0.02),
    "float32": Rounding(_FLOAT32, 0.0, _FLOAT32),
    "float64": Rounding(2.0**-53, 0.0, 2.0**-53),
}


def rounding_of(value: Any) -> Rounding:
    """Return the row of an array's or tensor's dtype; float64's for other dtypes."""
    dtype = getattr(value, "dtype", None)
    # A dtype of NumPy has a name, and one of torch is shown as torch.float32.
    name = getattr(dtype, "name", str(dtype).removeprefix("torch."))
    return DTYPES.get(name, DTYPES["float64"])


def coarsest(*values: Any, stored: Iterable[Any] = ()) -> Rounding:
    """Return the coarsest row of values, or of 16 bits if anything stored has them."""
    halves = [x for x in map(rounding_of, stored) if x.is_half]
    return max((*map(rounding_of, values), *halves), default=DTYPES["float64"])


# ---- roundings of scores -------------------------------------------------------------

#: A sum of independent errors, |e| <= c each, is beyond 3 sqrt(sum c²) in one case of
#: 45 at most (Hoeffding's inequality), and where each is uniform in one of 5 million.
SURE = 3.0
#: Beyond, exp is inf; a score so uncertain says nothing anyway.
_LARGEST_EXPONENT = 700.0


def stored(array: Array, unit: float) -> Array:
    """Round an array to numbers of this unit roundoff, a power of two."""
    # The fraction is in [1/2, 1), where numbers of this roundoff are as far apart as
    # the roundoff itself.
    fraction, exponent = np.frexp(array)
    return np.asarray(np.ldexp(np.rint(fraction / unit) * unit, exponent))


@quiet
def reach(attempt: Attempt, unit: float) -> float:
    r"""Return the error that eager code of 16 bits may have, relative to the largest.

    A score that is the sum of terms t is stored after each product, scaling and sum. It
    moves by at most :math:`e_{ij} = 2 u \sum |t|`, and by half as much again where
    there are several terms. Where queries or keys are no numbers of 16 bits, their
    roundings are added. This changes weights w by :math:`w_j (e_j - \sum w e)`, with
    :math:`a_{ij} = w_{ij} (\exp e_{ij} - 1)` for the first product, and they are stored
    as well. For outputs o

    .. math:: |\partial o_{id}| \le \sum_j a_{ij} |v_{jd} - o_{id}| + u w_{ij} |v_{jd}|
              + u |o_{id}|

    and where many errors are added, `SURE` times the root of the sum of their squares.
    """
    attempt = rotated(attempt)
    total, hidden, parts = logits(attempt)
    # A mask of finite numbers hides scores too, which then move no weight.
    seen = ~hidden & (total > HIDDEN)
    moved = np.where(seen, _moved_scores(attempt, parts, unit), 0.0)
    if attempt.view == "scores":
        return float(moved.max(initial=0.0)) / (largest(total, seen) or 1.0)
    weights = weights_of(attempt, total, hidden)
    change = np.expm1(np.minimum(moved, _LARGEST_EXPONENT))
    change = np.minimum(weights * change, 1.0)
    if attempt.view == "weights":
        # A weight moves by its own score, and by those of all others in the sum.
        others = change.sum(axis=-1, keepdims=True) - change
        error, exact = change * (1.0 - weights) + weights * others, weights
    else:
        error, exact = _moved_outputs(weights, change, values_of(attempt), unit)
    counts = ~np.isnan(error)  # not the rows of a query that sees no key
    error_of = float(error.max(initial=0.0, where=counts))
    return error_of / (largest(exact) or 1.0) + unit


def _moved_scores(attempt: Attempt, parts: list[Array], unit: float) -> Array:
    """Return the most that each score may move by."""
    # Two roundings are those of the product and of its scale, and the third is that of
    # a sum of terms.
    roundings = 2.0 if len(parts) == 1 else 3.0
    moved: Array = roundings * unit * reduce(np.add, map(np.abs, parts))
    query, key = attempt.get("query"), attempt.get("key")
    # Numbers that 16 bits hold were not rounded to them.
    finer = [x for x in (query, key) if not np.array_equal(stored(x, unit), x)]
    if finer:
        squares = query**2 @ np.swapaxes(key**2, -1, -2)
        moved = moved + SURE * unit * attempt.get("scale") * np.sqrt(
            len(finer) * squares
        )
    return moved


def _moved_outputs(
    weights: Array, change: Array, values: Array, unit: float
) -> tuple[Array, Array]:
    """Return the most that each output may move by, and the outputs."""
    out = summed(weights, values)

    def spread(by: Array) -> Array:
        """Sum by (v - o)², without an array of all pairs and columns."""
        squares = summed(by, values**2) - 2.0 * out * summed(by, values)
        sums: Array = squares + out**2 * by.sum(axis=-1, keepdims=True)
        return np.maximum(sums, 0.0)

    rounded = unit * weights
    # Independent errors add up by their squares. At worst they add up by their sizes,
    # of which the Cauchy-Schwarz inequality has a bound by `spread` as well.
    often = spread(change**2) + summed(rounded**2, values**2)
    worst = np.sqrt(change.sum(axis=-1, keepdims=True) * spread(change))
    worst += summed(rounded, np.abs(values))
    return np.minimum(worst, SURE * np.sqrt(often)), out
