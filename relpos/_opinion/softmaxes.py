"""Known changes of the softmax, and of what is done to scores before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations, product

import numpy as np

from relpos._checks import quiet
from relpos._opinion.arrays import zeros_and_ones
from relpos._opinion.attempt import (
    Attempt,
    Change,
    Changes,
    logits,
    rotated,
    summed,
    values_of,
    variant,
)
from relpos._opinion.operands import where
from relpos._opinion.positions import some
from relpos._opinion.solved import TERMS
from relpos._opinion.visibility import EMPTY, hides

#: Axes of the weights, in words, from the first.
AXES = ("items of the batch", "heads", "queries", "keys")
#: Terms that may be added to the weights, or multiply the scores.
LATE = (
    *((name,) for name in TERMS if name not in ("content", "pos_bias_u", "pos_bias_v")),
    *(("rel_key", "pos_bias_v"), ("rel_key", "rel_query")),
    ("rel_key", "rel_query", "pos_bias_v"),
)


def _words_of(names: tuple[str, ...]) -> str:
    return TERMS[names[0]] if len(names) == 1 else "the position terms"


@variant
def of_axes(attempt: Attempt, axes: tuple[int, ...]) -> Attempt | None:
    """Sum the softmax over other axes, counted from the last."""
    shape = attempt.get("query").shape[:-2]
    if len(shape) + 2 < -min(axes):
        return None
    sizes = (*shape, *attempt.lengths)
    if all(sizes[axis] == 1 for axis in {*axes} ^ {-1}):
        return None
    words = " and ".join(AXES[axis] for axis in axes)
    return replace(
        attempt, axes=axes, detail=f"the softmax over {words}, not over keys alone"
    )


def all_axes() -> list[Change]:
    """List the softmax over each set of axes, but over keys and over queries."""
    sets = [x for n in range(1, 5) for x in combinations(range(-4, 0), n)]
    return [of_axes(axes) for axes in sets if axes not in ((-1,), (-2,))]


def others(
    of: str, what: str, rules: Iterable[str], needed: str = "query"
) -> list[Change]:
    """List rules of `CAPS`, `NORMAL` or `SINKS` by the field that names them."""
    return [
        where(lambda x: needed in x.keywords, **{of: rule}, detail=f"{what} {rule}")
        for rule in rules
        if rule
    ]


@variant
def scaled_late(attempt: Attempt, before: bool) -> Attempt | None:
    """Scale the weights, as well as the scores or in place of them."""
    scale = attempt.get("scale")
    if scale == 1:
        return None
    words = "the scale again after the softmax"
    if not before:
        attempt = attempt.with_keywords(scale=1.0)
        words = "the scale after the softmax, not before it"
    return replace(attempt, factor=scale, detail=words)


def _has(attempt: Attempt, names: tuple[str, ...]) -> bool:
    """Return True if these terms are given, as numbers."""
    mask = attempt.get("attn_mask")
    truth = "attn_mask" in names and mask is not None and mask.dtype == bool
    return {*names} <= attempt.keywords.keys() and not truth


def added_late(names: tuple[str, ...]) -> Changes:
    """Add terms to the weights, not to the scores."""
    words = (
        f"{_words_of(names)} added after the softmax, to the weights, not to the scores"
    )

    def tried(attempt: Attempt) -> Iterator[Attempt]:
        own = "rel_key" in names and "position_query" in attempt.keywords
        if own or not _has(attempt, names):  # the term has the name of that query
            return
        yield replace(attempt, late=names, detail=words)
        for hiding in ("before", "after") if hides(attempt) else ():
            made = replace(attempt, late=names, late_hidden=True, hiding=hiding)
            yield replace(made, detail=f"{words}, and what is hidden set to 0 then")

    return tried


@variant
def multiplied(attempt: Attempt, names: tuple[str, ...]) -> Attempt | None:
    if not _has(attempt, names):
        return None
    words = f"{_words_of(names)} multiplied with the scores, not added to them"
    return replace(attempt, multiplied=names, detail=words)


def capped_after_mask(attempt: Attempt) -> Attempt | None:
    """Give what is hidden a score of minus the cap, as the cap of -inf is."""
    cap = attempt.get("softcap")
    return replace(attempt, filled=-cap) if cap and hides(attempt) else None


def untold_sink(attempt: Attempt) -> Attempt | None:
    """Add a sink of score 0 to a call without sinks."""
    heads = attempt.get("query").shape[-3]
    if attempt.get("sinks") is not None:
        return None
    return attempt.with_keywords(sinks=np.zeros(heads))


def in_chunks(attempt: Attempt) -> Iterator[Attempt]:
    """Give the first keys and the others a softmax each, and add or average the two."""
    if attempt.get("sinks") is not None:
        return
    for count, factor in product(some(attempt.lengths[1]), (1.0, 0.5)):
        yield replace(attempt, chunks=count, factor=factor)


# ---- finite scores of what is hidden -------------------------------------------------

#: Logarithms of weights so small that they are nothing.
_NOTHING = -25.0


@variant
@quiet
def finite(attempt: Attempt, lowered: bool) -> Attempt | None:
    """Give what is hidden a finite score, which follows from the results.

    With weight exp(c) of hidden pairs, out = (A + exp(c) B) / (a + exp(c) b), where A
    and a are sums over visible pairs. `lowered`: c is added to the hidden scores.
    """
    aim = attempt.aim
    if aim is None or attempt.view == "scores" or not hides(attempt):
        return None
    at = rotated(attempt)
    total, hidden, _ = logits(at)
    if not hidden.any() or aim.shape[:-1] != total.shape[:-1]:
        return None
    top = total.max(axis=-1, keepdims=True)
    seen = np.exp(total - top) * ~hidden
    other = np.exp(total - top if lowered else -top) * hidden
    sums = seen.sum(axis=-1, keepdims=True)
    if (sinks := at.get("sinks")) is not None:
        sums = sums + np.exp(sinks[..., None, None] - top)
    products = seen, other
    if attempt.view == "outputs":
        values = values_of(at)
        products = summed(seen, values), summed(other, values)
    y = aim * sums - products[0]
    z = products[1] - aim * other.sum(axis=-1, keepdims=True)
    score = _rounded(float(np.log((y * z).sum() / (z * z).sum())))
    if not np.isfinite(score) or score < _NOTHING or (lowered and score == 0):
        return None
    words = "added to the scores" if lowered else "as the score"
    detail = (
        f"a finite number, {score:.3g}, {words} where the mask hides: the softmax "
        "leaves out -inf alone"
    )
    fields = {"lowered": score} if lowered else {"filled": score}
    return replace(attempt, detail=detail, **fields)  # type: ignore[arg-type]


def _rounded(score: float) -> float:
    """Return the short number that someone may have written, if it is as near."""
    short = float(f"{score:.4g}")
    return short if abs(score - short) <= 1e-9 * max(1.0, abs(score)) else score


def as_truth(inverted: bool) -> Changes:
    """Take a mask of zeros and ones for truth values."""

    def tried(attempt: Attempt) -> Iterator[Attempt]:
        mask = attempt.get("attn_mask")
        if mask is None or not zeros_and_ones(mask):
            return
        mask = mask == 1
        made = attempt.with_keywords(attn_mask=~mask if inverted else mask)
        nothing = made.sets and not made.sets["attn_mask"].any(axis=-1).all()
        for empty in EMPTY if nothing else EMPTY[:1]:
            yield replace(made, empty=empty)

    return tried
