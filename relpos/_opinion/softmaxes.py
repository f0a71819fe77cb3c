"""Known changes of the softmax, and of what is done to scores before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from relpos._checks import Array, quiet
from relpos._opinion.arrays import zeros_and_ones
from relpos._opinion.attempt import Attempt
from relpos._opinion.evaluate import evaluate, logits, rotated, summed, values_of
from relpos._opinion.positions import some
from relpos._opinion.rules import SCORES
from relpos._opinion.solved import TERMS
from relpos._opinion.visibility import EMPTY, hides
from relpos._text import amount
from relpos.reference.formula import softmax

#: Axes of the weights, in words, from the first.
AXES = ("items of the batch", "heads", "queries", "keys")
#: Terms that may be added to the weights, or multiply the scores.
LATE = (
    ("rel_key",),
    ("position_query",),
    ("rel_query",),
    ("rel_bias",),
    ("attn_mask",),
    ("rel_key", "pos_bias_v"),
    ("rel_key", "rel_query"),
    ("rel_key", "rel_query", "pos_bias_v"),
)


def _words_of(names: tuple[str, ...]) -> str:
    return TERMS[names[0]] if len(names) == 1 else "the position terms"


def other_axes(attempt: Attempt) -> Iterator[Attempt]:
    """Sum the softmax over each set of axes, but over keys and over queries."""
    sizes = (*attempt.get("query").shape[:-2], *attempt.lengths)
    sets: list[tuple[int, ...]] = []
    for count in range(1, 5):
        sets += combinations(range(-4, 0), count)
    for axes in sets:
        # Keys alone are right, and queries alone have a row of their own. Axes of
        # length 1 change no sum: a set counts if it differs from the keys in another
        # axis.
        excepted = axes in ((-1,), (-2,)) or len(sizes) < -min(axes)
        if excepted or all(sizes[axis] == 1 for axis in {*axes} ^ {-1}):
            continue
        words = " and ".join(AXES[axis] for axis in axes)
        detail = f"the softmax over {words}, not over keys alone"
        yield replace(attempt, axes=axes, detail=detail)


def other_cap(attempt: Attempt, rule: str) -> Attempt | None:
    """Use another rule of the cap, of `CAPS`."""
    if "softcap" not in attempt.keywords:
        return None
    return replace(attempt, cap=rule, detail=f"the cap {rule}")


def other_function(attempt: Attempt, rule: str) -> Attempt:
    """Use another function in the place of the softmax, of `NORMAL` or `EQUAL`."""
    return replace(attempt, normal=rule, detail=f"the softmax {rule}")


def other_sink(attempt: Attempt, rule: str) -> Attempt | None:
    """Use another rule of the sinks or of their columns."""
    if "sinks" not in attempt.keywords:
        return None
    return replace(attempt, sink=rule, detail=f"the sinks {rule}")


def scaled_late(attempt: Attempt) -> Iterator[Attempt]:
    """Multiply the weights by the scale, and the scores too or not."""
    scale = attempt.get("scale")
    if scale == 1:
        return
    unscaled = attempt.told("the scale after the softmax, not before it", scale=1.0)
    yield replace(unscaled, factor=scale)
    yield replace(attempt, factor=scale, detail="the scale again after the softmax")


def _has(attempt: Attempt, names: tuple[str, ...]) -> bool:
    """Return True if these terms are given, as numbers."""
    mask = attempt.get("attn_mask")
    truth = "attn_mask" in names and mask is not None and mask.dtype == bool
    return {*names} <= attempt.keywords.keys() and not truth


def added_late(attempt: Attempt, names: tuple[str, ...]) -> Iterator[Attempt]:
    """Add terms to the weights, not to the scores."""
    words = (
        f"{_words_of(names)} added after the softmax, to the weights, not to the scores"
    )
    if "rel_key" in names and "position_query" in attempt.keywords:
        return  # the term has the name of that query
    if not _has(attempt, names):
        return
    yield replace(attempt, late=names, detail=words)
    if not hides(attempt):
        return
    for hiding in ("before", "after"):
        yield replace(
            attempt,
            late=names,
            late_hidden=True,
            hiding=hiding,
            detail=f"{words}, and what is hidden set to 0 then",
        )


def multiplied(attempt: Attempt, names: tuple[str, ...]) -> Attempt | None:
    """Multiply the scores by terms."""
    if not _has(attempt, names):
        return None
    words = f"{_words_of(names)} multiplied with the scores, not added to them"
    return replace(attempt, multiplied=names, detail=words)


def capped_after_mask(attempt: Attempt) -> Attempt | None:
    """Apply the cap to -inf as well, of which it makes minus the cap."""
    cap = attempt.get("softcap")
    if not cap or not hides(attempt):
        return None
    return replace(attempt, filled=-cap)


def softmax_over_queries(attempt: Attempt) -> Attempt:
    """Sum the softmax over queries."""
    return replace(attempt, axes=(-2,))


def softmax_twice(attempt: Attempt) -> Attempt:
    """Compute a second softmax of all weights."""
    return replace(attempt, again="all")


def untold_sink(attempt: Attempt, count: int) -> Attempt | None:
    if attempt.get("sinks") is not None:
        return None
    words = f"{count} more keys of score 0 in the sum, as of padding: hide them"
    # Several keys of score 0 are one of the logarithm of their number.
    sinks = np.full(attempt.get("query").shape[-3], np.log(count))
    return attempt.told(words if count > 1 else "", sinks=sinks)


# ---- parts of the keys ---------------------------------------------------------------


def _halves(lse: Array) -> Array:
    """Return 1/2 for both."""
    return np.full_like(lse, 0.5)


def _powers_of_two(lse: Array) -> Array:
    """Return shares of 2^lse."""
    return softmax(lse * np.log(2.0))[0]


def _powers_in_base_two(lse: Array) -> Array:
    """Return shares of e^lse, where lse is converted to base 2."""
    return softmax(lse / np.log(2.0))[0]


def _over_their_sum(lse: Array) -> Array:
    """Return shares of the logarithms themselves."""
    return np.asarray(lse / lse.sum(axis=-1, keepdims=True))


#: Factors of the two softmaxes of the first keys and of the others, in words: of the
#: logarithms of their sums of exponentials.
_MERGED: dict[str, Callable[[Array], Array]] = {
    "added": np.ones_like,
    "averaged": _halves,
    "weighed by 2^lse, not by e^lse": _powers_of_two,
    "weighed by e^lse with lse in base 2": _powers_in_base_two,
    "weighed by lse, not by e^lse": _over_their_sum,
}


def _merged(scores: Array, first: int, rule: Callable[[Array], Array]) -> Array:
    """Return the softmax of the first keys and of the others, times factors."""
    weights, lse = softmax(scores[..., :first])
    other_weights, other_lse = softmax(scores[..., first:])
    # Right factors are shares of e^lse, the softmax of the two logarithms.
    factors = rule(np.stack([lse, other_lse], axis=-1))
    parts = [weights * factors[..., :1], other_weights * factors[..., 1:]]
    return np.concatenate(parts, axis=-1)


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
    if rule != _UNSCALED[2]:
        # The largest score of all blocks so far. In a right softmax of blocks the
        # earlier sums are scaled down where it rises.
        tops = np.maximum.accumulate(tops, axis=-1)
    tops = np.where(np.isfinite(tops), tops, 0.0)
    # The last block may have fewer keys.
    top_of_keys = np.repeat(tops, size, axis=-1)[..., : scores.shape[-1]]
    weights = np.exp(scores - top_of_keys)
    summed_weights = weights
    if rule == _UNSCALED[0]:  # the sum of exponentials is right
        summed_weights = np.exp(scores - tops[..., -1:])
    return np.asarray(weights / summed_weights.sum(axis=-1, keepdims=True))


def in_parts(attempt: Attempt) -> Iterator[Attempt]:
    if attempt.get("sinks") is not None:
        return
    for count in some(attempt.lengths[1]):
        for words, rule in _MERGED.items():
            detail = (
                f"a softmax of the first {amount(count, 'key')} and one of the others, "
                f"{words}: "
                "weigh each by its sum of exponentials, as `merge_attention` does"
            )
            by_parts = partial(_merged, first=count, rule=rule)
            yield replace(attempt, by_parts=by_parts, detail=detail)
        for words in _UNSCALED:
            by_parts = partial(_in_blocks, size=count, rule=words)
            detail = f"a softmax in blocks of {amount(count, 'key')}, {words}"
            yield replace(attempt, by_parts=by_parts, detail=detail)


# ---- finite scores of what is hidden -------------------------------------------------

#: Logarithms of weights so small that they are nothing.
_NOTHING = -25.0


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
    # A hidden score is the number itself, or is the score plus this number.
    other = np.exp(total - top if lowered else -top) * hidden
    # Sinks are in the sum alone, and are visible in any case.
    sums = seen.sum(axis=-1, keepdims=True)
    sinks = at.get("sinks")
    if sinks is not None:
        sums = sums + np.exp(sinks[..., None, None] - top)
    products = seen, other
    if attempt.view == "outputs":
        values = values_of(at)
        products = summed(seen, values), summed(other, values)
    # Times its denominator, the formula above is linear in w = exp(c): y = w z, of
    # which w is the least-squares solution.
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
    "of scores without a softmax": {"normal": SCORES},
}


@quiet
def filled_late(attempt: Attempt, words: str) -> Attempt | None:
    """Give what is hidden the weight that explains the results, which is linear."""
    if attempt.aim is None or attempt.view == "scores" or not hides(attempt):
        return None
    masked = replace(attempt, **FILLED[words])  # type: ignore[arg-type]
    with_zeros = evaluate(masked).result
    if attempt.aim.shape != with_zeros.shape:
        return None
    # The results grow by `slope` with each unit of that weight: least squares.
    slope = evaluate(replace(masked, hidden_weight=1.0)).result - with_zeros
    gap = attempt.aim - with_zeros
    number = _rounded(float((gap * slope).sum() / (slope**2).sum()))
    if not np.isfinite(number) or abs(number) < 1e-9:
        return None
    detail = (
        f"a weight of {number:.3g} where the mask hides, {words}: hide the scores, by "
        "-inf, before the softmax"
    )
    return replace(masked, hidden_weight=number, detail=detail)


def _rounded(score: float) -> float:
    """Return the short number that someone may have written, if it is as near."""
    short = float(f"{score:.4g}")
    return short if abs(score - short) <= 1e-9 * max(1.0, abs(score)) else score


def as_truth(attempt: Attempt, inverted: bool) -> Iterator[Attempt]:
    mask = attempt.get("attn_mask")
    if mask is None or not zeros_and_ones(mask):
        return
    # A finite mask gives rows without a visible key other weights than relpos does.
    masked = attempt.with_keywords(attn_mask=mask == (0 if inverted else 1))
    if masked.sets and not masked.sets["attn_mask"].any(axis=-1).all():
        for empty in EMPTY:  # some query sees nothing
            yield replace(masked, empty=empty)
    else:
        yield replace(masked, empty=EMPTY[0])
