"""The search: relpos's own formula, then each known difference, then two of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.attempt import HIDDEN, Attempt, evaluate, without_constants
from relpos._opinion.known import DIFFERENCES, Difference
from relpos._opinion.reach import reach, stored
from relpos._opinion.rounding import CANNOT_TELL, Rounding

__all__ = ["Finding", "search"]

#: However coarse the dtype: what differs by more is not the same.
LARGEST = 0.05
#: Of two that fit, one with an error so many times larger does not.
WORSE = 8.0
#: These allow more, so whatever fits does so with them as well.
ALLOWING = {
    *("hidden_differs", "constant_in_rows", "nothing_is_nan", "nothing_is_mean"),
}


class Tried(NamedTuple):
    """An attempt, what is different in it, and how far from it the results are."""

    differences: tuple[Difference, ...]
    attempt: Attempt
    error: float
    noise: float
    at: tuple[int, ...]  # where it is

    def verdict(self, rounding: Rounding) -> str:
        """Say if rounding explains the error: 'same', 'differs' or `CANNOT_TELL`."""
        limit = min(rounding.limit(2.0 * self.noise), LARGEST)
        within = self.error <= limit or not rounding.is_half
        reached = limit if within else reach(self.attempt, rounding.unit)
        return rounding.verdict(self.error, limit, reached)

    def fits(self, rounding: Rounding) -> bool:
        """Say if it is the same; compute the costly `reach` where it matters alone."""
        small = self.error <= rounding.serious / 2
        return small and self.verdict(rounding) == "same"

    @property
    def names(self) -> tuple[str, ...]:
        """Of the differences."""
        return tuple(row.name for row in self.differences)

    @property
    def mistakes(self) -> int:
        """How many of the differences are mistakes."""
        return sum(row.kind == "mistake" for row in self.differences)


class Finding(NamedTuple):
    """What was found: `found` is None where nothing fits.

    `closest` has the smallest error, `others` are differences that give these results
    too, and the rounding is that of the dtype in which it fits. Where nothing fits but
    the dtype is too coarse to say so, it is `doubtful`.
    """

    found: Tried | None
    closest: Tried
    others: tuple[str, ...]
    rounding: Rounding
    doubtful: bool = False


def search(mine: Array, start: Attempt, roundings: list[Rounding]) -> Finding:
    """What explains `mine`, in the finest of the roundings in which something does."""
    coarse = max(roundings)
    plain = [*_plain(start, mine, coarse)]
    singles = [*_vary(None, start, mine)] if mine.size else []
    pairs: list[Tried] = []
    doubt = [t for t in plain if t.verdict(coarse) == CANNOT_TELL]
    for rounding in sorted({*roundings}):
        fitting = _fitting([*plain, *singles], rounding)
        if same := [t for t in fitting if not t.differences]:
            return Finding(same[0], same[0], _unseen(singles, fitting), rounding)
        if not fitting:
            pairs = pairs or [*_pairs(singles, mine)]
            fitting = _fitting(pairs, rounding)
        least = min((t.error for t in fitting), default=-1.0)
        if any(t.error <= WORSE * least for t in doubt):
            break  # what fits is not so much better than the formula itself
        if fitting:
            best = min(fitting, key=lambda t: t.mistakes)  # the first of these
            return Finding(best, best, _others(best, fitting), rounding)
    closest = min(doubt or [*plain, *singles, *pairs], key=lambda t: t.error)
    doubtful = closest.verdict(coarse) == CANNOT_TELL
    return Finding(None, closest, (), coarse, doubtful)


def _plain(start: Attempt, mine: Array, coarse: Rounding) -> Iterator[Tried]:
    """The formula itself, and of what 16 bits hold of the arguments."""
    attempts = [start]
    if coarse.is_half:
        kept = {
            name: stored(x, coarse.unit)
            for name, x in start.keywords.items()
            if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        }
        if any(not np.array_equal(x, start.get(n)) for n, x in kept.items()):
            attempts.append(start.with_keywords(**kept))
    for attempt in attempts:
        if (tried := _try((), attempt, mine)) is not None:
            yield tried


def _fitting(tried: list[Tried], rounding: Rounding) -> list[Tried]:
    """What fits, and not much worse than the best of it."""
    fitting = [t for t in tried if t.fits(rounding)]
    least = min((t.error for t in fitting), default=0.0)
    return [t for t in fitting if t.error <= WORSE * max(least, 2.0 * rounding.unit)]


def _others(best: Tried, fitting: list[Tried]) -> tuple[str, ...]:
    """Names of what fits as well, of one difference each or of two."""
    names = (" and ".join(t.names) for t in fitting if t.names != best.names)
    allowed = [n for n in dict.fromkeys(names) if not ALLOWING & {*n.split(" and ")}]
    return tuple(allowed)


def _unseen(singles: list[Tried], fitting: list[Tried]) -> tuple[str, ...]:
    """Differences that these inputs do not show, however they are written."""
    fits = {id(t) for t in fitting}
    shown = {t.names[0] for t in singles if id(t) not in fits}
    names = dict.fromkeys(t.names[0] for t in singles)
    return tuple(n for n in names if n not in shown | ALLOWING)


def _vary(
    first: Tried | None, start: Attempt, mine: Array, after: int = -1
) -> Iterator[Tried]:
    """Each known difference that can be in this attempt, in each of its forms."""
    for row in DIFFERENCES[after + 1 :]:
        if start.view not in row.views:
            continue
        for form in row.forms:
            changed = form(start)
            if changed is None:
                continue
            rows = (row,) if first is None else (*first.differences, row)
            tried = _try(rows, changed, mine)
            if tried is not None:
                yield tried


def _pairs(singles: list[Tried], mine: Array) -> Iterator[Tried]:
    """Two differences at once."""
    numbers = {row.name: number for number, row in enumerate(DIFFERENCES)}
    for first in singles:
        yield from _vary(first, first.attempt, mine, numbers[first.names[0]])


def _try(
    differences: tuple[Difference, ...], attempt: Attempt, mine: Array
) -> Tried | None:
    """An attempt and its error; None where relpos refuses such arguments."""
    try:
        given = evaluate(attempt)
    except (ValueError, IndexError):
        return None
    if given.result.shape != mine.shape:
        return None
    error, at = _error(attempt, given.result, given.hidden, mine)
    return Tried(differences, attempt, error, given.noise, at)


@quiet
def _error(
    attempt: Attempt, wanted: Array, hidden: Array, mine: Array
) -> tuple[float, tuple[int, ...]]:
    """The largest difference relative to the largest entry, and where it is."""
    if attempt.view != "scores":  # nan that the attempt itself has explains no other
        return _largest_gap(wanted, mine, ~(hidden & np.isnan(wanted) & np.isnan(mine)))
    hides = mine <= HIDDEN
    wrong = hides if attempt.hiding == "visible" else hidden & ~hides
    if wrong.any():  # what is before a mask hides nothing
        return math.inf, _index(wrong)
    if attempt.centred:
        mine = without_constants(mine, hidden)
    return _largest_gap(wanted, mine, ~hidden)


def _largest_gap(
    wanted: Array, mine: Array, where: Array
) -> tuple[float, tuple[int, ...]]:
    """Of two arrays, nan being as far away as can be."""
    if not where.any():
        return 0.0, (0,) * wanted.ndim
    gap = np.where(where, np.abs(mine - wanted), 0.0)
    gap = np.where(np.isnan(gap), np.inf, gap)
    size = float(np.abs(wanted).max(initial=0.0, where=where))
    return float(gap.max()) / (size or 1.0), _index(gap)


def _index(array: Array) -> tuple[int, ...]:
    """Where the largest entry is."""
    return tuple(map(int, np.unravel_index(array.argmax(), array.shape)))
