"""Known changes by numbers that follow from the results to explain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.attempt import HIDDEN, Attempt
from relpos._opinion.evaluate import evaluate

#: Terms of the scores, in words.
TERMS = {
    "content": "the content term",
    "pos_bias_u": "the term of u",
    "rel_key": "the position term",
    "pos_bias_v": "the term of v",
    "position_query": "the position term",
    "rel_query": "the position term of the queries",
    "rel_bias": "the bias",
    "attn_mask": "the numbers of the mask",
}


@quiet
def solve(
    attempt: Attempt,
    with_numbers: Callable[[Array], Attempt],
    around: Array,
    of_queries: bool = False,
) -> Array | None:
    """Find positive numbers, one or one for each query, by Newton's method."""
    # `around` are logarithms to begin at. Noise in 16 bits is explained by none.
    aim = attempt.aim
    if aim is None or not aim.size:
        return None
    if attempt.view == "scores":
        aim = np.where(aim > HIDDEN, aim, np.nan)
    # The numbers have one axis at most, that of the queries: all others are summed
    # over.
    shape = [1] * aim.ndim
    shape[-2] = aim.shape[-2] if of_queries else 1
    axes = tuple(axis for axis, count in enumerate(shape) if count == 1)

    def results(x: Array) -> Array:
        numbers = evaluate(with_numbers(np.exp(x))).result
        return np.where(np.isfinite(numbers), numbers, np.nan)

    def error(x: Array) -> Array:
        return np.asarray(np.nansum((results(x) - aim) ** 2, axis=axes, keepdims=True))

    # Numbers of 1 show the shape of the results before more is computed.
    if results(np.zeros(shape)).shape != aim.shape:
        return None
    # The numbers are exponentials, so that they are positive and steps are relative. Of
    # all beginnings the best is taken, for each query alone.
    errors = np.stack([error(np.full(shape, x)) for x in around])
    best, step = around[np.argmin(errors, axis=0)], 1e-6
    for _ in range(9):
        y = results(best)
        slope = (results(best + step) - y) / step
        along = np.nansum(slope * (aim - y), axis=axes, keepdims=True)
        squares = np.nansum(slope * slope, axis=axes, keepdims=True)
        # Far from the solution a step may be too long.
        best = best + np.clip(np.nan_to_num(along / squares), -1.0, 1.0)
    explains = error(best).sum() <= 1e-10 * np.nansum(aim**2)
    return np.exp(best) if explains else None


_AROUND = np.linspace(-4.0, 4.0, 9)


def one_number(
    attempt: Attempt,
    with_number: Callable[[float], Attempt],
    around: Array,
    words: str,
    right: float = 0.0,
) -> Iterator[Attempt]:
    """Use the positive number that explains the results, if it is not the right one."""

    def with_numbers(x: Array) -> Attempt:
        return with_number(x.item())

    solution = solve(attempt, with_numbers, around)
    if solution is None:
        return
    number = solution.item()
    if not math.isclose(number, right, rel_tol=1e-3):
        yield replace(with_number(number), detail=words.format(number, right))


def other_number(attempt: Attempt, name: str) -> Iterator[Attempt]:
    """Give an argument the number that explains the results."""

    def with_number(x: float) -> Attempt:
        return attempt.with_keywords(**{name: x})

    right = attempt.get(name)
    if right and right > 0:
        words = f"a {name} of {{:.6g}}, not {{:.6g}}"
        around = math.log(right) + _AROUND
        yield from one_number(attempt, with_number, around, words, right)


def other_factor(attempt: Attempt, field: str, words: str) -> Iterator[Attempt]:
    """Multiply a field by the number that explains the results."""

    def with_factor(x: float) -> Attempt:
        return replace(attempt, **{field: x * getattr(attempt, field)})

    yield from one_number(attempt, with_factor, _AROUND, f"{words} times {{:.6g}}", 1.0)


def weights_factor(attempt: Attempt) -> Iterator[Attempt]:
    """Multiply the weights by a number."""
    yield from other_factor(attempt, "factor", "the weights, or the results,")


def scores_factor(attempt: Attempt) -> Iterator[Attempt]:
    late = ("rel_bias", "attn_mask", "log_decay", "position_query", "softcap")
    words = "all scores, after what is added to them,"
    if attempt.arguments(late):  # else that is another scale
        yield from other_factor(attempt, "logit_factor", words)


#: Terms that a factor may be of together, in words.
TOGETHER: dict[tuple[str, ...], str] = {
    ("content", "pos_bias_u"): "the terms of the keys",
    ("rel_key", "pos_bias_v"): "the position terms",
}


def term_factors(attempt: Attempt) -> Iterator[Attempt]:
    """Multiply some of several terms by a number, or leave them out."""
    names = attempt.arguments(TERMS)
    if not names:
        return
    # Every call has a content term. The terms that u or v is part of may have one
    # factor together.
    groups: dict[tuple[str, ...], str] = {("content",): TERMS["content"]}
    groups |= {(name,): TERMS[name] for name in names}
    groups |= {pair: words for pair, words in TOGETHER.items() if pair[1] in names}
    for group, words in groups.items():
        yield replace(
            attempt.times(0.0, *group),
            detail=f"{words} left out",
            left_out=(*attempt.left_out, group[0]),
        )
        multiplied = partial(_with_terms_times, attempt, group)
        yield from one_number(
            attempt, multiplied, _AROUND, f"{words} times {{:.6g}}", 1.0
        )


def _with_terms_times(
    attempt: Attempt, terms: tuple[str, ...], factor: float
) -> Attempt:
    """Multiply some terms by a factor."""
    return attempt.times(factor, *terms)


def query_factors(attempt: Attempt) -> Iterator[Attempt]:
    if attempt.lengths[0] < 2:
        return

    def with_factors(x: Array) -> Attempt:
        return replace(attempt, logit_factor=attempt.logit_factor * x)

    factors = solve(attempt, with_factors, _AROUND, of_queries=True)
    if factors is not None and np.ptp(factors) > 1e-3:
        # The sentence has six numbers at most.
        words = ", ".join(f"{x:.3g}" for x in factors.ravel()[:6])
        detail = f"the scores of each query times a number of its own: {words}"
        if factors.size > 6:
            detail += ", .."
        yield replace(with_factors(factors), detail=detail)
