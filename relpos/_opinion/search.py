"""Search: relpos's formula, then each known difference, then two of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.attempt import HIDDEN, Attempt
from relpos._opinion.difference import Difference
from relpos._opinion.differences import DIFFERENCES
from relpos._opinion.evaluate import Evaluated, evaluate, without_constants
from relpos._opinion.rounding import CANNOT_TELL, DTYPES, Rounding, reach, stored

#: An error above this is never the same, however coarse the dtype.
LARGEST = 0.05
#: An attempt fits no more where another has an error so many times smaller.
WORSE = 8.0
# Further forms have the name and the words of their row. They come after all rows that
# are tried alone, and are tried with no other difference.
FURTHER = [
    row._replace(forms=row.further, tried="single")
    for row in DIFFERENCES
    if row.further
]
ALONE = [row for row in DIFFERENCES if row.alone] + FURTHER
PAIRED = [row for row in DIFFERENCES if not row.alone]
_ORDER = {row.name: i for i, row in enumerate(DIFFERENCES)}
# All attempts are computed in float64, in which equal results differ by rounding alone.
_equal = partial(np.allclose, rtol=1e-12, atol=1e-12, equal_nan=True)
#: The nearest attempt says nothing above this part of the formula's own error.
NEAR = 0.1
#: Differences that allow more: an attempt that fits does so with them too.
ALLOWING = {
    "hidden_differs",
    "constant_in_rows",
    "nothing_is_nan",
    "nothing_is_mean",
}


class Tried(NamedTuple):
    """An attempt, the differences in it, and the error of the results from it."""

    differences: tuple[Difference, ...]
    attempt: Attempt
    error: float
    noise: float
    at: tuple[int, ...]  # the index of the error
    rows: Array  # the largest error of each query, (..., H, Lq)

    def verdict(self, rounding: Rounding) -> str:
        """Return 'same' if rounding explains the error, 'differs' or `CANNOT_TELL`."""
        # The noise is that of one side, and both sides have as much.
        limit = min(rounding.limit(2.0 * self.noise), LARGEST)
        # `reach` takes time, and has a meaning only in 16 bits, beyond the limit.
        within = self.error <= limit or not rounding.is_half
        reached = limit if within else reach(self.attempt, rounding.unit)
        return rounding.verdict(self.error, limit, reached)

    def fits(self, rounding: Rounding) -> bool:
        """Return True if it is the same; avoid `reach`, which is slow."""
        small = self.error <= rounding.serious / 2
        return small and self.verdict(rounding) == "same"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.differences)

    @property
    def mistakes(self) -> int:
        """The number of differences that are mistakes."""
        return sum(row.kind == "mistake" for row in self.differences)

    @property
    def preference(self) -> tuple[int, bool]:
        """The order of attempts that fit equally well.

        Where a term is not there, others may fit because they make it constant in each
        row. What is left out therefore counts as no mistake here, and comes first.
        """
        left_out = len(self.attempt.left_out)
        return self.mistakes - left_out, not left_out

    @property
    def words(self) -> str:
        """The differences, in words to follow the scheme's name."""
        parts = [f"with {row.words}" for row in self.differences]
        return f" {' and '.join(parts)}" if parts else ""


class Finding(NamedTuple):
    """Result of a search: the closest attempt, and if rounding explains its error."""

    closest: Tried
    own: Tried  # the formula itself
    rounding: Rounding  # of the dtype in which it fits
    verdict: str = "same"  # `CANNOT_TELL` or "differs" where nothing fits
    others: tuple[str, ...] = ()  # differences that give these results too

    @property
    def kind(self) -> str:
        """'same', 'convention', 'mistake', 'cannot tell' or 'unknown'."""
        if self.verdict != "same":
            return "cannot tell" if self.verdict == CANNOT_TELL else "unknown"
        if not self.closest.differences:
            return "same"
        return "mistake" if self.closest.mistakes else "convention"

    def is_near(self, formula_error: float) -> bool:
        """Return True if the closest attempt says more than the formula itself.

        `formula_error` is the smallest error of the formula in any layout.
        """
        if self.verdict == "same" or self.may_be_same:
            return True
        return self.closest.error <= NEAR * (
            formula_error if math.isfinite(formula_error) else 1.0
        )

    @property
    def may_be_same(self) -> bool:
        """Return True if the formula itself may explain the results."""
        return self.verdict == CANNOT_TELL and not self.closest.differences

    def sentence(self, called: str, coarse: bool, is_near: bool) -> str:
        """Say what was found, what the inputs do not show, and the rounding."""
        near = self.closest if is_near else self.own
        error = f"{near.error:.2g} times the largest entry, at {list(near.at)}"
        closest = f"the closest is {called}{near.words}, with an error of {error}"
        if not is_near:
            closest = f"the error of {called} itself is {error}"
        if self.verdict == CANNOT_TELL:
            may = ", which rounded scores may explain"
            return f"{CANNOT_TELL}; {closest}{may if is_near else ''}"
        if self.verdict == "differs":
            return (
                f"fits none of {len(DIFFERENCES)} known differences from {called}, nor "
                f"two of them at once; {closest}"
            )
        text = f"equals {called}{near.words} ({near.error:.1g})"
        if coarse and self.rounding == DTYPES["float32"]:
            text += ", to the rounding of float32: something in yours is computed in it"
        if not self.others:
            return text
        shown = "cannot tell it from" if near.differences else "would not show"
        return f"{text}; these inputs {shown}: {', '.join(self.others)}"


def search(mine: Array, start: Attempt, roundings: list[Rounding]) -> Finding:
    """Find an explanation of `mine`, in the finest of the roundings that have one."""
    coarse = max(roundings)
    start = replace(start, aim=mine)
    plain = list(_plain(start, coarse))
    # Without entries every attempt would fit.
    singles = list(_vary(start, PAIRED)) if mine.size else []
    explained = any(t.fits(min(roundings)) for t in singles)
    unknown = not any(t.fits(coarse) for t in plain) and not explained
    with_further: list[Tried] = []
    if unknown and mine.size:
        # These rows take most of the time, and are tried where nothing simpler fits.
        further = list(_vary(start, ALONE))
        if any(t.fits(coarse) for t in further):
            with_further = list(_without_more(singles))
        singles += further
    pairs: list[Tried] = []
    # The formula itself is in doubt where rounded scores could explain the results.
    doubt = [t for t in plain if t.verdict(coarse) == CANNOT_TELL]
    # The finest comes first, as its unit roundoff is the first field: what fits in it
    # is the best explanation.
    for rounding in sorted({*roundings}):
        fitting = _fitting([*plain, *singles, *with_further], rounding)
        same = [t for t in fitting if not t.differences]
        if same:
            others = _unseen(singles, fitting)
            return Finding(same[0], plain[0], rounding, others=others)
        if not fitting:
            # Simpler explanations come before others: one difference, then one in a
            # part of the results, then two.
            fitting = _fitting(list(_in_parts(plain[0], singles, rounding)), rounding)
        if not fitting:
            # Pairs are many, and are evaluated once for all roundings.
            pairs = pairs or list(_pairs(start, singles, unknown))
            fitting = _fitting(pairs, rounding)
        # With -1 nothing below is as good, and the loop goes on.
        least = min((t.error for t in fitting), default=-1.0)
        if any(t.error <= WORSE * least for t in doubt):
            break  # the formula itself is almost as good
        if fitting:
            best = min(fitting, key=lambda t: t.preference)  # the first of these
            return Finding(best, plain[0], rounding, others=_others(best, fitting))
    closest = min(doubt or [*plain, *singles, *pairs], key=lambda t: t.error)
    return Finding(closest, plain[0], coarse, closest.verdict(coarse))


def _plain(start: Attempt, coarse: Rounding) -> Iterator[Tried]:
    """Try the formula itself, and with the arguments rounded to 16 bits."""
    attempts = [start]
    if coarse.is_half:
        rounded = {
            name: stored(x, coarse.unit)
            for name, x in start.keywords.items()
            if isinstance(x, np.ndarray) and x.dtype.kind == "f"
        }
        if any(not np.array_equal(x, start.get(n)) for n, x in rounded.items()):
            attempts.append(start.with_keywords(**rounded))
    for attempt in attempts:
        tried = _try((), attempt)
        if tried is not None:
            yield tried


def _fitting(tried: list[Tried], rounding: Rounding) -> list[Tried]:
    """List attempts that fit, and are not much worse than the best of them."""
    fitting = [t for t in tried if t.fits(rounding)]
    least = min((t.error for t in fitting), default=0.0)
    return [t for t in fitting if t.error <= WORSE * max(least, 2.0 * rounding.unit)]


def _others(best: Tried, fitting: list[Tried]) -> tuple[str, ...]:
    """Name the differences, or pairs of them, that fit as well.

    Rows that are tried alone contain many others in other words. Where another row
    explains the results, they say nothing more.
    """
    if not any(row.alone for row in best.differences):
        fitting = [t for t in fitting if not any(row.alone for row in t.differences)]
    # The same pair may fit in several forms, and is named once.
    names = (" and ".join(t.names) for t in fitting if t.names != best.names)
    # A number for each query contains one for all of them.
    wide = ALLOWING | {"query_factors"}
    allowed = [n for n in dict.fromkeys(names) if not wide & {*n.split(" and ")}]
    return tuple(allowed)


def _unseen(singles: list[Tried], fitting: list[Tried]) -> tuple[str, ...]:
    """Name the differences that these inputs do not show in any of their forms."""
    fits = {id(t) for t in fitting}
    # A difference is shown if any of its forms does not fit.
    shown = {t.names[0] for t in singles if id(t) not in fits}
    names = dict.fromkeys(t.names[0] for t in singles)
    return tuple(n for n in names if n not in shown | ALLOWING)


def _vary(
    start: Attempt, rows: Sequence[Difference], before: tuple[Difference, ...] = ()
) -> Iterator[Tried]:
    """Try each of these differences that the attempt can have."""
    start = replace(start, detail="") if start.detail else start
    for row in rows:
        for changed in row.attempts(start):
            # An attempt has words of its own where a row has several forms.
            known = row._replace(words=changed.detail or row.words)
            tried = _try((*before, known), changed)
            if tried is not None:
                yield tried


def _pairs(start: Attempt, singles: list[Tried], with_alone: bool) -> Iterator[Tried]:
    """Try two differences at once; one that is sought alone only with a convention."""
    plain = evaluate(start).result
    for first in singles:
        (row,) = first.differences
        if row.alone:
            continue
        # Two differences are one pair in either order: the second is behind the first
        # in the table.
        later_rows = DIFFERENCES[_ORDER[row.name] + 1 :]
        rows = [other for other in later_rows if not other.alone]
        widely = with_alone and row.kind == "convention"
        # A convention that changes no results would pair with every mistake.
        if widely and not _equal(evaluate(first.attempt).result, plain):
            rows = [other for other in later_rows if not other.single]
        yield from _vary(first.attempt, rows, first.differences)


def _without_more(singles: list[Tried]) -> Iterator[Tried]:
    """Try what is left out with one more difference, as rows that are alone may hide.

    Such a row, as of another offset, can make the term constant and show other keys.
    """
    for first in singles:
        if not first.attempt.left_out:
            continue
        (left_out,) = first.differences
        rows = [row for row in PAIRED if row.name != left_out.name]
        for tried in _vary(first.attempt, rows, (left_out,)):
            # Differences have the order of the table, whichever was tried first.
            both = sorted(tried.differences, key=lambda row: _ORDER[row.name])
            yield tried._replace(differences=tuple(both))


#: Axes of errors whose parts may differ, and words for one and for several of them.
PARTS = {
    -2: ("head {}", "heads {} and {}"),
    -3: ("item {} of the batch", "items {} and {} of the batch"),
    -1: ("query {}", "queries {} and {}"),
}


def _in_parts(
    plain: Tried, singles: list[Tried], rounding: Rounding
) -> Iterator[Tried]:
    """Combine the formula with a difference in some heads, items or queries alone."""
    if rounding.is_half:  # it would explain roundings
        return
    for tried in singles:
        (row,) = tried.differences
        for axis, words in PARTS.items():
            if plain.rows.ndim < -axis:
                continue
            others = tuple({*range(-plain.rows.ndim, 0)} - {axis})
            # Each part may be right by the formula or by the difference, and the
            # smaller error counts.
            right, wrong = (x.max(axis=others) for x in (plain.rows, tried.rows))
            error = float(np.minimum(right, wrong).max())
            if error > LARGEST:
                continue
            noise = max(plain.noise, evaluate(tried.attempt).noise())
            part = tried._replace(error=error, noise=noise)
            # The difference is where the formula does not fit, which may be neither
            # nowhere nor everywhere.
            here = right > min(rounding.limit(2.0 * noise), LARGEST)
            if here.any() and not here.all() and part.fits(rounding):
                where = f"{row.words}, in {_listed(here, *words)} alone"
                in_part = row._replace(words=where, kind="mistake")
                yield part._replace(differences=(in_part,))
                break


def _listed(chosen: Array, one: str, several: str) -> str:
    numbers = [*map(str, np.flatnonzero(chosen))]
    if len(numbers) == 1:
        return one.format(*numbers)
    return several.format(", ".join(numbers[:-1]), numbers[-1])


def _try(differences: tuple[Difference, ...], attempt: Attempt) -> Tried | None:
    """Evaluate an attempt; None where relpos refuses such arguments."""
    try:
        evaluated = evaluate(attempt)
    except (ValueError, IndexError):
        return None
    # Some changes, as of the widths of values, give results of another shape.
    if evaluated.result.shape != np.asarray(attempt.aim).shape:
        return None
    errors = _errors(attempt, evaluated)
    worst = np.unravel_index(errors.argmax(), errors.shape) if errors.size else ()
    at = tuple(map(int, worst)) or (0,) * errors.ndim
    error = float(errors[at]) if errors.size else 0.0
    # No larger error is rounding, and the noise takes time to compute.
    noise = evaluated.noise() if error <= LARGEST else 0.0
    rows = errors.max(axis=-1, initial=0.0)
    return Tried(differences, attempt, error, noise, at, rows)


@quiet
def _errors(attempt: Attempt, evaluated: Evaluated) -> Array:
    """Return the error of each entry, relative to the largest entry."""
    expected, hidden = evaluated.result, evaluated.hidden
    mine = np.asarray(attempt.aim)
    if attempt.view != "scores":  # nan that the attempt itself has explains no other
        both_nan = hidden & np.isnan(expected) & np.isnan(mine)
        return _gaps(expected, mine, ~both_nan)
    hides = mine <= HIDDEN
    # Both sides have to hide the same scores. If other numbers are allowed where the
    # mask hides, only what is visible may not be hidden.
    wrong = hides if attempt.hiding == "visible" else hidden & ~hides
    if attempt.centred:
        mine = without_constants(mine, hidden)
    gaps = _gaps(expected, mine, ~hidden)
    gaps[wrong] = math.inf  # what is before a mask hides nothing
    return gaps


def _gaps(expected: Array, mine: Array, where: Array) -> Array:
    """Return the errors of two arrays, those of nan infinite."""
    size = float(np.abs(expected).max(initial=0.0, where=where))
    gaps: Array = np.abs(mine - expected)
    gaps[~where] = 0.0
    gaps[np.isnan(gaps)] = math.inf
    gaps /= size or 1.0
    return gaps
