"""A row of the table of known differences.

The rows are in `conventions.py` and in the files `mistakes_of_*.py`. Those of buckets
and slopes, of rotary positions and of Transformer-XL's shift are next to their changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from relpos._opinion.attempt import Attempt, Change, Changes, attempts_with

#: Results of a function for which a difference is tried.
SCORES = ("scores",)
OUTPUTS = ("outputs",)
WEIGHTS = ("weights", "outputs")
ALL_RESULTS = ("scores", "weights", "outputs")

#: With which others a difference is tried. "alone" is without another mistake, but with
#: a convention; "single" is without a convention, too.
Beside = Literal["with others", "alone", "single"]


class Difference(NamedTuple):
    """A known difference between implementations of attention."""

    name: str
    words: str  # to follow "relpos with"
    forms: Sequence[Change | Changes]  # ways to write it
    views: tuple[str, ...] = ALL_RESULTS  # the results for which it is tried
    kind: Literal["convention", "mistake"] = "mistake"
    tried: Beside = "with others"
    further: Sequence[Changes] = ()  # forms tried last, with no other difference

    @property
    def alone(self) -> bool:
        """True if no other mistake is tried together with it."""
        return self.tried != "with others"

    @property
    def single(self) -> bool:
        """True if no convention is tried together with it, either."""
        return self.tried == "single"

    def attempts(self, attempt: Attempt) -> Iterator[Attempt]:
        """Yield the attempt with each form of the difference that it can have."""
        if attempt.view not in self.views:
            return
        for form in self.forms:
            yield from attempts_with(form, attempt)
