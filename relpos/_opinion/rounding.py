"""The error model: which errors rounding explains, by the dtype of the results.

All errors are relative to the largest entry of the exact result, and u is the unit
roundoff of a dtype: storing a number in it moves the number by at most u of its size.

A right implementation computes with float32 arithmetic or better and stores inputs,
attention weights and results in a 16-bit dtype. Both sides round their results, which
moves them apart by 2 u at most, and the roundings of weights and other intermediate
results, which are many and independent, by a fraction of u: in 16,000 random problems
of 8 to 64 keys outputs and gradients are at most 2.46 u apart. `ROUNDINGS` allows
2.5 u. Behind it are `ARITHMETIC` roundings of float32: sums of some hundred numbers.

An error of `serious` size must not pass. With the 2.5 u of a right implementation
against it, half of it or more remains, and 2.5 u is less than that half.

Eager code stores the scores in 16 bits too, which moves a score s by up to 2 u |s|
(the product, and its scale) and the outputs by an amount that follows from all scores;
`relpos/_opinion/reach.py` has the formula. Where they are not known, `doubtful` is
taken for it, which is more than twice the error that scores of standard deviation 4
make.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

__all__ = ["ARITHMETIC", "CANNOT_TELL", "DTYPES", "Rounding", "coarsest", "rounding_of"]

#: What a dtype that is too coarse for an answer has for a verdict.
CANNOT_TELL = "cannot tell in this dtype: compare in float32"
#: Roundings of the arithmetic, in unit roundoffs: sums of some hundred numbers.
ARITHMETIC = 512.0
#: Roundings to a 16-bit dtype, in unit roundoffs, by which right results are apart.
ROUNDINGS = 2.5


class Rounding(NamedTuple):
    """The meaning of errors in results of one dtype.

    Attributes
    ----------
    unit : float
        The unit roundoff.
    roundings : float
        How many roundings of stored numbers a right implementation may be off by.
    arithmetic : float
        The unit roundoff of the arithmetic behind it.
    serious : float
        An error that is never called "same"; inf where the limit is far below it.
    doubtful : float
        What roundings of unknown scores may add up to; 0 where they are in the limit.
    """

    unit: float
    roundings: float
    arithmetic: float
    serious: float = math.inf
    doubtful: float = 0.0

    @property
    def is_half(self) -> bool:
        """Say if numbers are stored in fewer bits than they are computed with."""
        return self.roundings > 0

    def limit(self, arithmetic: float = ARITHMETIC) -> float:
        """The error of a right implementation, with so many roundings behind it."""
        return self.roundings * self.unit + arithmetic * self.arithmetic

    def verdict(self, error: float, limit: float, reach: float) -> str:
        """'same', `CANNOT_TELL` or 'differs'.

        `reach` is the error of an implementation that rounds scores as well. It is
        allowed where it stays below a serious error, up to half of one: beyond that a
        serious error and rounding against it could look the same.
        """
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
    """The row of an array's or tensor's dtype; that of float64 for all other dtypes."""
    dtype = getattr(value, "dtype", None)
    name = getattr(dtype, "name", str(dtype).removeprefix("torch."))
    return DTYPES.get(name, DTYPES["float64"])


def coarsest(*values: Any) -> Rounding:
    """The coarsest row of several."""
    return max((rounding_of(x) for x in values), default=DTYPES["float64"])
