"""How far roundings of the scores to 16 bits reach: what only `diagnose` can know."""

from __future__ import annotations

from functools import reduce

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.attempt import (
    HIDDEN,
    Attempt,
    largest,
    logits,
    rotated,
    summed,
    values_of,
    weights_of,
)

__all__ = ["reach", "stored"]

#: A sum of independent errors, |e| <= c each, is beyond 3 sqrt(sum c²) in one case of
#: 45 at most (Hoeffding's inequality), and where each is uniform in one of 5 million.
SURE = 3.0
#: Beyond, exp is inf; a score so uncertain says nothing anyway.
_LARGEST_EXPONENT = 700.0


def stored(array: Array, unit: float) -> Array:
    """An array rounded to numbers of this unit roundoff, a power of two."""
    fraction, exponent = np.frexp(array)
    found: Array = np.ldexp(np.rint(fraction / unit) * unit, exponent)
    return found


@quiet
def reach(attempt: Attempt, unit: float) -> float:
    r"""The error that eager code of 16 bits may have, relative to the largest entry.

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
    seen = ~hidden & (total > HIDDEN)
    moved = np.where(seen, _moved_scores(attempt, parts, unit), 0.0)
    if attempt.view == "scores":
        return float(moved.max(initial=0.0)) / largest(total, seen)
    weights = weights_of(attempt, total, hidden)
    change = np.expm1(np.minimum(moved, _LARGEST_EXPONENT))
    change = np.minimum(weights * change, 1.0)
    if attempt.view == "weights":
        others = change.sum(axis=-1, keepdims=True) - change
        error, exact = change * (1.0 - weights) + weights * others, weights
    else:
        error, exact = _moved_outputs(weights, change, values_of(attempt), unit)
    counts = ~np.isnan(error)  # not the rows of a query that sees no key
    return float(error.max(initial=0.0, where=counts)) / largest(exact, np.True_) + unit


def _moved_scores(attempt: Attempt, parts: list[Array], unit: float) -> Array:
    """By how much each score may move."""
    roundings = 2.0 if len(parts) == 1 else 3.0
    moved: Array = roundings * unit * reduce(np.add, map(np.abs, parts))
    query, key = attempt.get("query"), attempt.get("key")
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
    """By how much each output may move, and the outputs."""
    out = summed(weights, values)

    def spread(by: Array) -> Array:
        """The sum of by (v - o)², without an array of all pairs and columns."""
        squares = summed(by, values**2) - 2.0 * out * summed(by, values)
        found: Array = squares + out**2 * by.sum(axis=-1, keepdims=True)
        return np.maximum(found, 0.0)

    rounded = unit * weights
    often = spread(change**2) + summed(rounded**2, values**2)
    worst = np.sqrt(change.sum(axis=-1, keepdims=True) * spread(change))
    worst += summed(rounded, np.abs(values))
    return np.minimum(worst, SURE * np.sqrt(often)), out
