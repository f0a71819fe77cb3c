"""Known changes by numbers that follow from the results to explain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.attempt import HIDDEN, Attempt, evaluate, variant

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
    made: Callable[[Array], Attempt],
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
    shape = [1] * aim.ndim
    shape[-2] = aim.shape[-2] if of_queries else 1
    axes = tuple(axis for axis, count in enumerate(shape) if count == 1)

    def results(x: Array) -> Array:
        found = evaluate(made(np.exp(x))).result
        return np.where(np.isfinite(found), found, np.nan)

    def error(x: Array) -> Array:
        return np.asarray(np.nansum((results(x) - aim) ** 2, axis=axes, keepdims=True))

    if results(np.zeros(shape)).shape != aim.shape:
        return None
    errors = np.stack([error(np.full(shape, x)) for x in around])
    best, step = around[np.argmin(errors, axis=0)], 1e-6
    for _ in range(9):
        y = results(best)
        slope = (results(best + step) - y) / step
        sums = (
            np.nansum(slope * x, axis=axes, keepdims=True) for x in (aim - y, slope)
        )
        best = best + np.clip(np.nan_to_num(np.divide(*sums)), -1.0, 1.0)
    explains = error(best).sum() <= 1e-10 * np.nansum(aim**2)
    return np.exp(best) if explains else None


_AROUND = np.linspace(-4.0, 4.0, 9)


def one_number(
    attempt: Attempt,
    made: Callable[[float], Attempt],
    around: Array,
    words: str,
    own: float = 0.0,
) -> Iterator[Attempt]:
    """Use the positive number that explains the results, if it is not its own."""
    found = solve(attempt, lambda x: made(x.item()), around)
    if found is not None and not math.isclose(found.item(), own, rel_tol=1e-3):
        yield replace(made(found.item()), detail=words.format(found.item(), own))


def other_number(attempt: Attempt, name: str) -> Iterator[Attempt]:
    def made(x: float) -> Attempt:
        return attempt.with_keywords(**{name: x})

    own = attempt.get(name)
    if own and own > 0:
        words = f"a {name} of {{:.6g}}, not {{:.6g}}"
        yield from one_number(attempt, made, math.log(own) + _AROUND, words, own)


@variant
def other_factor(attempt: Attempt, field: str, words: str) -> Iterator[Attempt]:
    """Multiply a field by the number that explains the results."""

    def made(x: float) -> Attempt:
        return replace(attempt, **{field: x * getattr(attempt, field)})

    yield from one_number(attempt, made, _AROUND, f"{words} times {{:.6g}}", 1.0)


weights_factor = other_factor("factor", "the weights, or the results,")


def scores_factor(attempt: Attempt) -> Iterator[Attempt]:
    late = ("rel_bias", "attn_mask", "log_decay", "position_query", "softcap")
    words = "all scores, after what is added to them,"
    if attempt.given(late):  # else that is another scale
        yield from other_factor("logit_factor", words)(attempt)


#: Terms that a factor may be of together, in words.
TOGETHER: dict[tuple[str, ...], str] = {
    ("content", "pos_bias_u"): "the terms of the keys",
    ("rel_key", "pos_bias_v"): "the position terms",
}


def term_factors(attempt: Attempt) -> Iterator[Attempt]:
    """Multiply some of several terms by a number, or leave them out."""
    names = attempt.given(TERMS)
    every: dict[tuple[str, ...], str] = {}
    every |= {(name,): TERMS[name] for name in ("content", *names) if names}
    every |= {pair: words for pair, words in TOGETHER.items() if pair[1] in names}
    for some, words in every.items():

        def made(x: float, some: tuple[str, ...] = some) -> Attempt:
            return attempt.times(x, *some)

        yield replace(
            made(0.0), detail=f"{words} left out", left_out=(*attempt.left_out, some[0])
        )
        yield from one_number(attempt, made, _AROUND, f"{words} times {{:.6g}}", 1.0)


def query_factors(attempt: Attempt) -> Iterator[Attempt]:
    if attempt.lengths[0] < 2:
        return
    found = solve(
        attempt,
        lambda x: replace(attempt, logit_factor=attempt.logit_factor * x),
        _AROUND,
        of_queries=True,
    )
    if found is not None and np.ptp(found) > 1e-3:
        words = ", ".join(f"{x:.3g}" for x in found.ravel()[:6])
        detail = f"the scores of each query times a number of its own: {words}"
        if found.size > 6:
            detail += ", .."
        yield replace(attempt, logit_factor=attempt.logit_factor * found, detail=detail)
