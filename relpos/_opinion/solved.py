"""Known changes by numbers that follow from the results to explain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.attempt import Attempt, evaluate

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
    if aim is None or not aim.size or attempt.view == "scores":
        return None
    shape = [1] * aim.ndim
    shape[-2] = aim.shape[-2] if of_queries else 1
    axes = tuple(
        axis for axis in range(aim.ndim) if axis != aim.ndim - 2 or shape[axis] == 1
    )

    def results(x: Array) -> Array:
        return evaluate(made(np.exp(x))).result

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


def other_number(attempt: Attempt, name: str) -> Iterator[Attempt]:
    """Use the positive number that explains the results, if it is another one."""
    own = attempt.get(name)
    if not own or own < 0:
        return
    found = solve(
        attempt,
        lambda x: attempt.with_keywords(**{name: x.item()}),
        math.log(own) + _AROUND,
    )
    if found is not None and not math.isclose(found.item(), own, rel_tol=1e-3):
        made = attempt.with_keywords(**{name: found.item()})
        yield replace(made, detail=f"a {name} of {found.item():.6g}, not {own:.6g}")


def term_factors(attempt: Attempt) -> Iterator[Attempt]:
    """Multiply one of several terms by a number; leave it out."""
    names = [name for name in TERMS if attempt.get(name) is not None]
    for name in ["content", *names] if names else ():
        yield replace(attempt, factors={name: 0.0}, detail=f"{TERMS[name]} left out")
        found = solve(attempt, lambda x: replace(attempt, factors={name: x}), _AROUND)  # noqa: B023
        if found is not None and abs(found.item() - 1.0) > 1e-3:
            made = replace(attempt, factors={name: found.item()})
            yield replace(made, detail=f"{TERMS[name]} times {found.item():.6g}")


def query_factors(attempt: Attempt) -> Iterator[Attempt]:
    """Multiply the scores of each query by a number of its own."""
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
