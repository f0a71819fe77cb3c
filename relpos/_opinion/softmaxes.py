"""Known changes of the softmax, and of what is done to scores before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.arrays import zeros_and_ones
from relpos._opinion.attempt import (
    NORMAL,
    Attempt,
    Change,
    evaluate,
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
from relpos.reference.formula import softmax

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


def other_axes(attempt: Attempt) -> Iterator[Attempt]:
    """Sum the softmax over each set of axes, but over keys and over queries."""
    sizes = (*attempt.get("query").shape[:-2], *attempt.lengths)
    for axes in (x for n in range(1, 5) for x in combinations(range(-4, 0), n)):
        excepted = axes in ((-1,), (-2,)) or len(sizes) < -min(axes)
        if excepted or all(sizes[axis] == 1 for axis in {*axes} ^ {-1}):
            continue
        words = " and ".join(AXES[axis] for axis in axes)
        detail = f"the softmax over {words}, not over keys alone"
        yield replace(attempt, axes=axes, detail=detail)


def others(
    of: str, what: str, rules: Iterable[str], needed: str = "query"
) -> list[Change]:
    """List rules of `CAPS`, `NORMAL` or `SINKS` by the field that names them."""
    return [
        where(lambda x: needed in x.keywords, **{of: rule}, detail=f"{what} {rule}")
        for rule in rules
        if rule
    ]


def scaled_late(attempt: Attempt) -> Iterator[Attempt]:
    if (scale := attempt.get("scale")) != 1:
        made = attempt.told("the scale after the softmax, not before it", scale=1.0)
        yield replace(made, factor=scale)
        yield replace(attempt, factor=scale, detail="the scale again after the softmax")


def _has(attempt: Attempt, names: tuple[str, ...]) -> bool:
    """Return True if these terms are given, as numbers."""
    mask = attempt.get("attn_mask")
    truth = "attn_mask" in names and mask is not None and mask.dtype == bool
    return {*names} <= attempt.keywords.keys() and not truth


@variant
def added_late(attempt: Attempt, names: tuple[str, ...]) -> Iterator[Attempt]:
    """Add terms to the weights, not to the scores."""
    words = (
        f"{_words_of(names)} added after the softmax, to the weights, not to the scores"
    )
    own = "rel_key" in names and "position_query" in attempt.keywords
    if own or not _has(attempt, names):  # the term has the name of that query
        return
    yield replace(attempt, late=names, detail=words)
    for hiding in ("before", "after") if hides(attempt) else ():
        made = replace(attempt, late=names, late_hidden=True, hiding=hiding)
        yield replace(made, detail=f"{words}, and what is hidden set to 0 then")


@variant
def multiplied(attempt: Attempt, names: tuple[str, ...]) -> Attempt | None:
    words = f"{_words_of(names)} multiplied with the scores, not added to them"
    fits = _has(attempt, names)
    return replace(attempt, multiplied=names, detail=words) if fits else None


def capped_after_mask(attempt: Attempt) -> Attempt | None:
    cap = attempt.get("softcap")
    return replace(attempt, filled=-cap) if cap and hides(attempt) else None


@variant
def untold_sink(attempt: Attempt, count: int) -> Attempt | None:
    if attempt.get("sinks") is not None:
        return None
    words = f"{count} more keys of score 0 in the sum, as of padding: hide them"
    sinks = np.full(attempt.get("query").shape[-3], np.log(count))
    return attempt.told(words if count > 1 else "", sinks=sinks)


# ---- parts of the keys ---------------------------------------------------------------

#: Factors of the two softmaxes of the first keys and of the others, in words: of the
#: logarithms of their sums of exponentials.
_MERGED: dict[str, Callable[[Array], Array]] = {
    "added": np.ones_like,
    "averaged": lambda lse: 0.5 * np.ones_like(lse),
    "weighed by 2^lse, not by e^lse": lambda lse: softmax(lse * np.log(2.0))[0],
    "weighed by e^lse with lse in base 2": lambda lse: softmax(lse / np.log(2.0))[0],
    "weighed by lse, not by e^lse": lambda lse: lse / lse.sum(axis=-1, keepdims=True),
}


def _merged(scores: Array, first: int, rule: Callable[[Array], Array]) -> Array:
    """Return the softmax of the first keys and of the others, times factors."""
    weights, sums = zip(*map(softmax, np.split(scores, [first], axis=-1)), strict=True)
    factors = np.split(rule(np.stack(sums, axis=-1)), 2, axis=-1)
    return np.concatenate([*map(np.multiply, weights, factors)], axis=-1)


#: Ways to leave the rescaling of blocks out, in words.
_UNSCALED = (
    "the sum of values not scaled down where the maximum of the scores rises",
    "the sums of values and of exponentials not scaled down where the maximum rises",
    "each less its own maximum, not the largest of all",
)


def _in_blocks(scores: Array, size: int, rule: str) -> Array:
    """Return the weights of blocks of keys whose sums are not rescaled."""
    starts = np.arange(0, scores.shape[-1], size)
    tops = np.maximum.reduceat(scores, starts, axis=-1)
    own = tops if rule == _UNSCALED[2] else np.maximum.accumulate(tops, axis=-1)
    own = np.where(np.isfinite(own), own, 0.0)
    e = np.exp(scores - np.repeat(own, size, axis=-1)[..., : scores.shape[-1]])
    last = np.exp(scores - own[..., -1:]) if rule == _UNSCALED[0] else e
    return np.asarray(e / last.sum(axis=-1, keepdims=True))


def in_parts(attempt: Attempt) -> Iterator[Attempt]:
    if attempt.get("sinks") is not None:
        return
    for count in some(attempt.lengths[1]):
        for words, rule in _MERGED.items():
            detail = (
                f"a softmax of the first {count} keys and one of the others, {words}: "
                "weigh each by its sum of exponentials, as `merge_attention` does"
            )
            by_parts = partial(_merged, first=count, rule=rule)
            yield replace(attempt, by_parts=by_parts, detail=detail)
        for words in _UNSCALED:
            by_parts = partial(_in_blocks, size=count, rule=words)
            detail = f"a softmax in blocks of {count} keys, {words}"
            yield replace(attempt, by_parts=by_parts, detail=detail)


# ---- finite scores of what is hidden -------------------------------------------------

#: Logarithms of weights so small that they are nothing.
_NOTHING = -25.0


@variant
@quiet
def finite(attempt: Attempt, rule: str) -> Attempt | None:
    """Give what is hidden a finite score, which follows from the results.

    With weight exp(c) of hidden pairs, out = (A + exp(c) B) / (a + exp(c) b), where A
    and a are sums over visible pairs. The rule "lowered" adds c to the hidden scores.
    """
    aim, lowered = attempt.aim, rule == "lowered"
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
    return replace(attempt, detail=detail, **{rule: score})  # type: ignore[arg-type]


#: Weights to which the mask gives a number where it hides, in words.
FILLED: dict[str, dict[str, str]] = {
    "after the softmax of what is visible": {},
    "after the softmax of all keys": {"hiding": "after"},
    "of scores without a softmax": {"normal": next(iter(NORMAL))},
}


@variant
@quiet
def filled_late(attempt: Attempt, words: str) -> Attempt | None:
    """Give what is hidden the weight that explains the results, which is linear."""
    if attempt.aim is None or attempt.view == "scores" or not hides(attempt):
        return None
    made = replace(attempt, **FILLED[words])  # type: ignore[arg-type]
    own = evaluate(made).result
    if attempt.aim.shape != own.shape:
        return None
    one = evaluate(replace(made, hidden_weight=1.0)).result - own
    number = _rounded(float(((attempt.aim - own) * one).sum() / (one**2).sum()))
    if not np.isfinite(number) or abs(number) < 1e-9:
        return None
    detail = (
        f"a weight of {number:.3g} where the mask hides, {words}: hide the scores, by "
        "-inf, before the softmax"
    )
    return replace(made, hidden_weight=number, detail=detail)


def _rounded(score: float) -> float:
    """Return the short number that someone may have written, if it is as near."""
    short = float(f"{score:.4g}")
    return short if abs(score - short) <= 1e-9 * max(1.0, abs(score)) else score


@variant
def as_truth(attempt: Attempt, inverted: bool) -> Iterator[Attempt]:
    mask = attempt.get("attn_mask")
    if mask is None or not zeros_and_ones(mask):
        return
    made = attempt.with_keywords(attn_mask=mask == (0 if inverted else 1))
    nothing = made.sets and not made.sets["attn_mask"].any(axis=-1).all()
    for empty in EMPTY if nothing else EMPTY[:1]:
        yield replace(made, empty=empty)
