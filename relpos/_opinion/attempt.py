"""A call of attention as someone may have written it, and its result, in NumPy.

`relpos._opinion.begin` makes the attempt that is relpos's own formula, which all others
vary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np

from relpos._attention.fire_network import Fire
from relpos._attention.operands import TABLES
from relpos._attention.scores import scores
from relpos._checks import Array, quiet
from relpos._encodings.rotary import apply_rotary
from relpos._opinion.arrays import largest, spread
from relpos._opinion.kept import Kept
from relpos.reference.biases import rel_shift
from relpos.reference.formula import allowed, moved_values, softmax, terms

P = ParamSpec("P")
Result = TypeVar("Result")

#: A score from here down is one that a mask of finite numbers hides.
HIDDEN = -5e3
#: Terms that are capped.
PRODUCTS = (
    *("content", "pos_bias_u", "rel_key", "pos_bias_v", "position_query", "rel_query"),
)
#: Arguments that hide, and words for them.
HIDING = {
    "is_causal": "causality",
    "window": "the window",
    "key_lengths": "the lengths of the keys",
    "key_ranges": "the ranges of the keys",
    "attn_mask": "the mask",
}
#: Arguments that change no term of the scores before it is scaled, capped and masked.
_AFTER = {*HIDING, "value", "rel_value", "scale", "softcap", "sinks"}
#: Arguments that say which row of a table a pair has.
PLACING = ("query_offset", "min_relative_position", "buckets", "beyond", "labels")
#: Arguments that have a meaning only where the call has one of these operands.
NEEDED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("pos_bias_v", "position_query"), ("rel_key",)),
    **dict.fromkeys((x for x in PLACING if x != "query_offset"), (*TABLES,)),
}


def past_shifted(products: Array, keys: int) -> Array:
    """Shift products with rows 1 - Lk to Lq - 1, of which those of the past count."""
    return np.asarray(rel_shift(products[..., :keys]))


class Rotary(NamedTuple):
    """Rotation of queries and keys; the options are those of `apply_rotary`."""

    options: Mapping[str, Any]
    query_positions: Array  # (..., Lq), or their angles (..., Lq, rotary_dim / 2)
    key_positions: Array
    rotated: tuple[str, ...] = ("query", "key")
    of_angles: bool = False  # angles are given in the place of positions


@dataclass(frozen=True)
class Attempt:
    """Arguments of `attention`, and the way in which they are put together.

    `keywords` are those of `relpos.scores` with query and key, in float64. The scale is
    a number there, and keys have the heads of queries, of which every `group` were one.
    `view` is the result that is meant: "scores", "weights" or "outputs". The defaults
    of all other fields are relpos's formula.
    """

    keywords: Mapping[str, Any]
    view: str
    group: int = 1
    powers: Mapping[str, int] = field(default_factory=dict)  # of the scale, on terms
    factors: Mapping[str, Any] = field(default_factory=dict)  # of terms
    term_order: tuple[str, Callable[[Array], Array]] | None = None  # of items and heads
    transposed: tuple[str, ...] = ()  # terms whose queries and keys are exchanged
    shifted: bool = False  # the position term by Transformer-XL's shift, not looked up
    skew: Callable[[Array, int], Array] = past_shifted  # that shift
    cap_last: bool = False  # on the biases too
    cap: str = ""  # a rule of `CAPS`
    logit_factor: Any = 1.0  # of the finished scores
    hiding: str = "before"  # the softmax; "after" it, or compared where "visible" only
    filled: float | None = None  # the score of what is hidden, where it has one
    lowered: float | None = None  # added to the scores of what is hidden
    hidden_weight: float = 0.0  # of what is hidden
    empty: str = "zero"  # weights where nothing is visible; "nan", "mean" or "all"
    late: tuple[str, ...] = ()  # terms that are added to the weights
    late_hidden: bool = False  # the mask hides those terms too
    multiplied: tuple[str, ...] = ()  # terms that multiply the scores
    normal: str = "softmax"  # or another of `NORMAL`
    axes: tuple[int, ...] = (-1,)  # of the softmax: keys
    again: str = ""  # a second softmax, over "all" weights, or over "visible" ones
    sink: str = ""  # a rule of `SINKS` for the sinks
    factor: float = 1.0  # of the weights
    by_parts: Callable[[Array], Array] | None = None  # the softmax of parts of the keys
    residual: str = ""  # an operand that is added to the results
    crossed: bool = False  # the weights multiply values with their axes exchanged
    of_values: Callable[[Array, Array], Array] | None = None  # weights and rel_value
    arrangement: Callable[[Array], Array] | None = None  # of the finished results
    centred: bool = False  # compared without what is constant in a row
    rotary: Rotary | None = None
    fire: tuple[Fire, Array] | None = None  # the network of FIRE, and its bias
    aim: Array | None = None  # the results to explain, for changes that are solved
    detail: str = ""  # words for the last change, in place of those of its row
    left_out: tuple[str, ...] = ()  # operands that are not there
    kept: Kept = field(default_factory=Kept, repr=False, compare=False)

    def with_keywords(self, **keywords: Any) -> Attempt:
        """Return an attempt with some arguments changed; None removes one."""
        return self.told(self.detail, **keywords)

    def told(self, detail: str, **keywords: Any) -> Attempt:
        """Return an attempt with some arguments changed, and words for that.

        With an operand go the arguments that have no meaning without it.
        """
        changed = {**self.keywords, **keywords}
        kept = {name: x for name, x in changed.items() if x is not None}
        return replace(self, keywords=_meaningful(kept), detail=detail)

    def times(self, factor: Any, *terms: str) -> Attempt:
        """Return an attempt with some terms times a factor."""
        new = {name: factor * self.factors.get(name, 1.0) for name in terms}
        return replace(self, factors={**self.factors, **new})

    def get(self, name: str) -> Any:
        return self.keywords.get(name)

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """Return those of these arguments that the call has."""
        return {name: self.keywords[name] for name in names if name in self.keywords}

    @property
    def lengths(self) -> tuple[int, int]:
        return self.keywords["query"].shape[-2], self.keywords["key"].shape[-2]

    @property
    def offset(self) -> Array:
        """The position of query 0 among the keys."""
        return np.asarray(self.keywords.get("query_offset", 0))

    @property
    def sets(self) -> dict[str, Array]:
        """The visible pairs (..., Lq, Lk) of each argument that hides any."""
        return self._hiding[0]

    @property
    def mask(self) -> Array:
        """The numbers of the mask, and -inf where anything hides."""
        return self._hiding[1]

    @property
    def numbers(self) -> Array:
        """The finite numbers of a floating mask, also where anything else hides."""
        return self._hiding[2]

    @property
    def _hiding(self) -> tuple[dict[str, Array], Array, Array]:
        arguments = *self.lengths, *map(self.get, ("query_offset", *HIDING))
        return self.kept.by_identity(arguments, lambda: _hiding_of(self))

    @property
    def cached(self) -> int:
        """The number of keys before the first query, or 0."""
        offset = self.offset
        same = offset.size and (offset == offset.flat[0]).all()
        count = int(offset.flat[0]) if same else 0
        return count if 0 < count < self.lengths[1] else 0


def _meaningful(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without those that have no meaning without another."""
    return {
        name: x
        for name, x in keywords.items()
        if name not in NEEDED or keywords.keys() & {*NEEDED[name]}
    }


def _hiding_of(attempt: Attempt) -> tuple[dict[str, Array], Array, Array]:
    """Return the set of each argument that hides, their mask, and its numbers."""
    r = distances(attempt)
    numbers = finite = np.zeros(1)
    given = attempt.given(HIDING)
    mask = given.pop("attn_mask", None)
    every = {name: allowed(r, **{name: value}) for name, value in given.items()}
    if mask is not None:
        own = mask if mask.dtype == bool else ~np.isneginf(mask)
        if own.ndim > 3:  # the results have its items, whatever it hides
            numbers = np.zeros((*own.shape[:-2], 1, 1))
        every["attn_mask"] = np.broadcast_to(own, (*own.shape[:-2], *r.shape[-2:]))
        if mask.dtype != bool:
            most = float(np.finfo(np.float64).max) / 4  # as `attention` has it
            numbers = np.clip(mask, -most, most)
            finite = np.where(own, numbers, 0.0)
    sets = {name: x for name, x in every.items() if not x.all()}
    whole = np.where(common(sets.values()), numbers, -np.inf) if sets else numbers
    return sets, whole, finite


def common(sets: Iterable[Array]) -> Array:
    """Return the pairs that are in all sets."""
    return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*sets)))


#: A known difference as a function; None where the attempt cannot have it.
Change = Callable[[Attempt], Attempt | None]
#: Several changes of a kind, one after the other.
Changes = Callable[[Attempt], Iterable[Attempt | None]]


def made(form: Change | Changes, attempt: Attempt) -> Iterator[Attempt]:
    """Yield the attempt with each form of a difference that it can have."""
    found = form(attempt)
    several = [found] if isinstance(found, Attempt) else found or ()
    yield from filter(None, several)


def worded(words: str, form: Change | Changes) -> Changes:
    """Give the attempts of a form words of their own, in place of those of the row."""
    return lambda attempt: (replace(x, detail=words) for x in made(form, attempt))


def variant(
    function: Callable[Concatenate[Attempt, P], Result],
) -> Callable[P, Callable[[Attempt], Result]]:
    """Let a function of an attempt and more take the rest first, to make a change."""
    return lambda *rest, **keywords: lambda x: function(x, *rest, **keywords)


class Given(NamedTuple):
    """Result of an attempt, and the entries that its rule hides or makes nan.

    `noise` computes its rounding error, over the largest entry, in unit roundoffs.
    """

    result: Array
    hidden: Array
    noise: Callable[[], float]


def relative_to(attempt: Attempt, offset: Array | None = None) -> Array:
    """Return key minus query positions, (..., Lq, Lk), by its offset or another."""
    lq, lk = attempt.lengths
    start = attempt.offset if offset is None else offset
    at = np.arange(lq)[:, None] + start[..., None, None]
    return np.asarray(np.arange(lk) - at)


def distances(attempt: Attempt, offset: Array | None = None) -> Array:
    """Return `relative_to`, with an axis of heads where items have their own."""
    r = relative_to(attempt, offset)
    return r[..., None, :, :] if r.ndim > 2 else r


@quiet
def evaluate(attempt: Attempt) -> Given:
    """Compute the scores, weights or outputs of these arguments."""
    total, hidden, parts = logits(attempt)

    def size() -> float:
        """Return the largest sum of the terms of a visible score."""
        shown = ~hidden & (total > HIDDEN)
        sizes = (float(np.abs(x).max(initial=0.0, where=shown)) for x in parts)
        return len(parts) * max(sizes)

    if attempt.view == "scores":
        unseen = hidden | (total <= HIDDEN)
        scores = without_constants(total, unseen) if attempt.centred else total
        return Given(
            scores, unseen, lambda: 4.0 * size() / (largest(scores, ~unseen) or 1.0)
        )
    result = weights = weights_of(attempt, total, hidden)
    nothing = np.all(hidden, axis=-1, keepdims=True) & (attempt.empty == "nan")
    values = None
    if attempt.view == "outputs":
        values = values_of(attempt)
        result = outputs_of(attempt, weights, values)
        if attempt.residual:
            result = result + attempt.get(attempt.residual)
    nothing = spread(nothing, result.shape)
    if attempt.arrangement is not None:
        result, nothing = map(attempt.arrangement, (result, nothing))
        nothing = nothing > 0

    def noise() -> float:
        grown = 1.0
        if values is not None:
            grown = (largest(values) or 1.0) / (largest(result) or 1.0)
        return (16.0 + 4.0 * size()) * grown

    return Given(result, nothing, noise)


def without_constants(total: Array, hidden: Array) -> Array:
    """Subtract from each row the mean of its visible scores."""
    count = np.maximum((~hidden).sum(axis=-1, keepdims=True), 1)
    mean = np.where(hidden, 0.0, total).sum(axis=-1, keepdims=True) / count
    return np.asarray(total - mean)


def rotated(attempt: Attempt) -> Attempt:
    """Rotate queries and keys, and values where they are to be, by their positions."""
    x, rotary = dict(attempt.keywords), attempt.rotary
    if rotary is None:
        return attempt
    for name in x.keys() & {*rotary.rotated}:
        rows = rotary.query_positions if name == "query" else rotary.key_positions
        options = dict(rotary.options)
        options["angles" if rotary.of_angles else "positions"] = rows
        x[name] = attempt.kept.by_contents(
            (x[name], options), partial(apply_rotary, x[name], **options)
        )
    return replace(attempt, keywords=x, rotary=None)


def logits(attempt: Attempt) -> tuple[Array, Array, list[Array]]:
    """Return scores, the hidden ones among them, and the terms of their sum."""
    parts, hidden = parts_of(attempt)
    for name in attempt.late:
        parts.pop(name, None)
    factors = [parts.pop(name) for name in attempt.multiplied if name in parts]
    added = [x for name, x in parts.items() if name not in PRODUCTS]
    products = [x for name, x in parts.items() if name in PRODUCTS]
    total, cap = reduce(np.add, products), attempt.get("softcap")
    total = reduce(np.add, added, total) if attempt.cap_last else total
    if cap is not None:
        total = CAPS[attempt.cap](total, cap, attempt.get("scale"))
    total = total if attempt.cap_last else reduce(np.add, added, total)
    total = reduce(np.multiply, factors, attempt.logit_factor * total)
    return total, spread(hidden, total.shape), [*products, *added]


#: Rules of the cap: scores, the cap and the scale.
CAPS: dict[str, Callable[[Array, Any, float], Array]] = {
    "": lambda x, cap, scale: cap * np.tanh(x / cap),
    "by clipping, without a tangent": lambda x, cap, scale: np.clip(x, -cap, cap),
    "before the scale": lambda x, cap, scale: scale * cap * np.tanh(x / scale / cap),
    "without the factor behind the tangent": lambda x, cap, scale: np.tanh(x / cap),
    "without the division before the tangent": lambda x, cap, scale: cap * np.tanh(x),
    "with multiplication and division exchanged": lambda x, cap, scale: (
        np.tanh(x * cap) / cap
    ),
    "twice": lambda x, cap, scale: cap * np.tanh(np.tanh(x / cap)),
    "with the scores as the factor of the tangent": (
        lambda x, cap, scale: x * np.tanh(x / cap)
    ),
}


def parts_of(attempt: Attempt) -> tuple[dict[str, Array], Array]:
    """Return the terms of the scores by name, and the mask of what is hidden."""
    parts, mask = _terms_of(attempt)
    if attempt.shifted and "rel_key" in parts:
        parts |= _by_shift(rotated(attempt))
    for name in parts.keys() & {*attempt.transposed}:
        parts[name] = np.swapaxes(parts[name], -1, -2)
    hidden = np.isneginf(mask)
    if mask.ndim > 1:
        parts["attn_mask"] = spread(attempt.numbers, mask.shape)
    for name in parts.keys() & attempt.powers.keys():
        parts[name] = attempt.get("scale") ** attempt.powers[name] * parts[name]
    for name in parts.keys() & attempt.factors.keys():
        parts[name] = attempt.factors[name] * parts[name]
    name, order = attempt.term_order or ("", np.asarray)
    if name in parts:
        parts[name] = order(parts[name])
    return parts, hidden


def _terms_of(attempt: Attempt) -> tuple[dict[str, Array], Array]:
    """Return scaled terms by name, and the mask, of numbers and -inf."""
    x = attempt.keywords
    bias = x.get("rel_bias")
    if "log_decay" in x or (bias is not None and np.isneginf(bias).any()):
        given = rotated(attempt).keywords
        keywords = {n: y for n, y in given.items() if n not in ("value", "softcap")}
        parts = scores(**keywords, terms=True)
        return parts, parts.pop("mask", np.zeros(1))
    unplaced = attempt.lengths[0] != attempt.lengths[1] and "query_offset" not in x
    if unplaced and (x.get("is_causal") or x.get("window") is not None):
        raise ValueError("query_offset: ambiguous")
    given = _meaningful({name: y for name, y in x.items() if name not in _AFTER})
    if given.keys() == {"query", "key"}:  # a product takes less time than a look
        parts, finite = _unscaled(attempt, [*given])
    else:
        parts, finite = attempt.kept.by_contents(
            (given, attempt.rotary), lambda: _unscaled(attempt, [*given])
        )
    own = {"rel_bias", *(("pos_bias_v",) if "position_query" in x else ())}
    scaled = {*PRODUCTS} - {"position_query"} - own
    mask = attempt.mask
    parts = {n: x["scale"] * y if n in scaled else y for n, y in parts.items()}
    if mask.ndim > 1:
        shape = np.broadcast_shapes(mask.shape, parts["content"].shape)
        mask = spread(mask, shape)
        parts = {name: spread(y, shape) for name, y in parts.items()}
    if not finite:  # as `scores` has them
        hidden = np.isneginf(mask)
        parts = {
            name: np.where(hidden & ~np.isfinite(y), 0.0, y)
            for name, y in parts.items()
        }
    return parts, mask


def _unscaled(attempt: Attempt, names: list[str]) -> tuple[dict[str, Array], bool]:
    """Compute the terms that follow from these arguments, and if all are finite."""
    x = rotated(attempt).keywords
    if len(names) > 2:
        parts = scores(**{name: x[name] for name in names}, scale=1.0, terms=True)
    else:
        parts = {"content": x["query"] @ np.swapaxes(x["key"], -1, -2)}
    return parts, all(bool(np.isfinite(y).all()) for y in parts.values())


def _by_shift(attempt: Attempt) -> dict[str, Array]:
    """Compute the position terms by the shift of products with a table."""
    x, (lq, lk) = attempt.keywords, attempt.lengths
    table, first = x["rel_key"], x.get("min_relative_position")
    first = -(table.shape[-2] // 2) if first is None else first
    rows = np.clip(np.arange(1 - lk, lq) - first, 0, table.shape[-2] - 1)
    vectors = {"rel_key": x["query"]}
    if "pos_bias_v" in x:
        vectors["pos_bias_v"] = x["pos_bias_v"][..., None, :]

    def products() -> dict[str, Array]:
        reach = np.swapaxes(np.take(table, rows, axis=-2), -1, -2)
        return {name: y @ reach for name, y in vectors.items()}

    found = attempt.kept.by_contents((table, first, vectors), products)
    shape = *found["rel_key"].shape[:-1], lq + lk - 1
    return {
        name: x["scale"] * attempt.skew(np.broadcast_to(y, shape), lk)
        for name, y in found.items()
    }


def weights_of(attempt: Attempt, total: Array, hidden: Array) -> Array:
    """Compute the weights: the softmax, and what happens to scores before and after."""
    weights = normalized(attempt, _seen_scores(attempt, total, hidden))
    if attempt.again:
        left_out = hidden & (attempt.again == "visible")
        weights = softmax(np.where(left_out, -np.inf, weights))[0]
    finite = attempt.filled is not None or attempt.lowered is not None
    if not (finite or attempt.again == "all" or attempt.sink in SINK_COLUMNS):
        weights = np.where(hidden, attempt.hidden_weight, weights)
    nothing = hidden.all(axis=-1, keepdims=True)
    if attempt.empty != "zero":
        weights = np.where(nothing, _empty_weights(attempt, total), weights)
    weights = attempt.factor * weights
    if attempt.late:
        parts, _ = parts_of(attempt)
        weights = reduce(np.add, (parts[n] for n in attempt.late), weights)
        weights = np.where(hidden & attempt.late_hidden, 0.0, weights)
    return np.swapaxes(weights, -1, -2) if attempt.crossed else weights


def _seen_scores(attempt: Attempt, total: Array, hidden: Array) -> Array:
    """Return the scores of the softmax, by which what is hidden has no weight."""
    if attempt.filled is not None:
        return np.where(hidden, attempt.filled, total)
    if attempt.lowered is not None:
        return np.where(hidden, total + attempt.lowered, total)
    return total if attempt.hiding == "after" else np.where(hidden, -np.inf, total)


def _empty_weights(attempt: Attempt, total: Array) -> Any:
    """Return the weights of queries that see nothing."""
    if attempt.empty == "all":
        return softmax(total)[0]
    return np.nan if attempt.empty == "nan" else 1.0 / max(total.shape[-1], 1)


def _exponentials(x: Array) -> Array:
    return np.asarray(np.exp(np.minimum(x, 700.0)))


def _shown(x: Array) -> Array:
    """Return scores, 0 where they are hidden."""
    return np.where(np.isneginf(x), 0.0, x)


def _visible(x: Array) -> Array:
    """Return 1 for each score that is not hidden."""
    return 1.0 - np.isneginf(x)


def of_heads(reduced: Callable[..., Array]) -> Callable[[Array], Array]:
    """Return a function that gives every head the mean or the sum of all."""
    return lambda x: np.broadcast_to(reduced(x, axis=-3, keepdims=True), x.shape)


def _softmax_of(change: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return the softmax of other scores, which hides the same pairs."""
    return lambda x: softmax(np.where(np.isneginf(x), x, change(_shown(x))))[0]


#: Functions that may replace the softmax, in words to follow it; a score of -inf is
#: hidden.
NORMAL: dict[str, Callable[[Array], Array]] = {
    "left out: the values are multiplied by the scores": _shown,
    "without its division: the exponentials are the weights": _exponentials,
    "without its division: the exponentials, less the largest score, are the weights": (
        lambda x: _exponentials(x - x.max(axis=-1, keepdims=True))
    ),
    "left out: the scores are divided by the number of keys": (
        lambda x: _shown(x) / x.shape[-1]
    ),
    "without exponentials: the scores are divided by their sum": (
        lambda x: _shown(x) / _shown(x).sum(axis=-1, keepdims=True)
    ),
    "of the scores with the other sign": _softmax_of(np.negative),
    "of max(score, 0), not of the scores": _softmax_of(lambda x: np.maximum(x, 0.0)),
    "of the absolute scores": _softmax_of(np.abs),
    "of the mean of the scores of all heads, not for each head": (
        _softmax_of(of_heads(np.mean))
    ),
    "of the sum of the scores of all heads, not for each head": (
        _softmax_of(of_heads(np.sum))
    ),
    "averaged: the weights are the mean of those of all heads": (
        lambda x: of_heads(np.mean)(softmax(x)[0])
    ),
    "left out: the scores are divided by their norm": (
        lambda x: _shown(x) / np.sqrt((_shown(x) ** 2).sum(axis=-1, keepdims=True))
    ),
    "replaced by max(score, 0)": lambda x: np.maximum(x, 0.0),
    "replaced by a sigmoid": lambda x: 1.0 / (1.0 + _exponentials(-x)),
    "replaced by its logarithm": lambda x: np.log(softmax(x)[0]),
}


#: Others, which do not depend on the scores.
EQUAL: dict[str, Callable[[Array], Array]] = {
    "left out: all visible keys have equal weights": (
        lambda x: _visible(x) / _visible(x).sum(axis=-1, keepdims=True)
    ),
    "left out: the values of all visible keys are added": lambda x: _visible(x),
}


def normalized(attempt: Attempt, scores: Array) -> Array:
    """Return the softmax of scores over its axes, or what is in its place."""
    if attempt.normal != "softmax":
        return {**NORMAL, **EQUAL}[attempt.normal](scores)
    if attempt.sink:
        return _with_other_sinks(attempt, scores)
    if attempt.by_parts is not None:
        return attempt.by_parts(scores)
    sinks = attempt.get("sinks")
    if attempt.axes == (-1,):
        return softmax(scores, sinks)[0]
    last = tuple(range(-len(attempt.axes), 0))
    moved = np.moveaxis(scores, attempt.axes, last)
    flat = moved.reshape(*moved.shape[: -len(last)], -1)
    if len(last) > 1 and sinks is not None:
        raise ValueError("sinks: of one axis")
    weights = softmax(flat, sinks)[0].reshape(moved.shape)
    return np.asarray(np.moveaxis(weights, last, attempt.axes))


def _with_other_sinks(attempt: Attempt, scores: Array) -> Array:
    """Return the softmax with other sinks, of numbers for each head or each row."""
    top = scores.max(axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    sinks = np.asarray(attempt.keywords.get("sinks", 0.0))[..., None, None]
    total = top + np.log(np.exp(scores - top).sum(axis=-1, keepdims=True))
    if (rule := SINKS.get(attempt.sink)) is not None:
        sinks = rule(attempt, sinks, top, total)
    shared = np.maximum(top, sinks)
    p, sink = np.exp(scores - shared), np.exp(sinks - shared)
    total = p.sum(axis=-1, keepdims=True) + sink
    found: Array = p / total
    if (placed := SINK_COLUMNS.get(attempt.sink)) is not None:
        found = placed(found, sink / total)
    return found


_PARTS = "{}, as where each part of the keys has it again"
#: Rules of sinks: an attempt, the sinks, and of each row the largest score and the
#: logarithm of the sum of all exponentials.
SINKS: dict[str, Callable[[Attempt, Array, Array, Array], Array]] = {
    "without the maximum of the scores subtracted": lambda a, x, top, lse: x + top,
    "without the scores' maximum, which is subtracted twice": (
        lambda a, x, top, lse: x - top
    ),
    _PARTS.format("twice"): lambda a, x, top, lse: x + np.log(2.0),
    _PARTS.format("three times"): lambda a, x, top, lse: x + np.log(3.0),
    _PARTS.format("four times"): lambda a, x, top, lse: x + np.log(4.0),
    "once for each key": lambda a, x, top, lse: x + np.log(a.lengths[1]),
    "with the other sign": lambda a, x, top, lse: -x,
    "as a gate of the other sign, sigmoid(sink - lse)": (
        lambda a, x, top, lse: 2.0 * lse - x
    ),
    "as weights, not as scores": lambda a, x, top, lse: np.log(x),
    "inside the scale": lambda a, x, top, lse: a.get("scale") * x,
    "inside the cap": (
        lambda a, x, top, lse: CAPS[""](x, a.keywords.get("softcap", np.nan), 1.0)
    ),
    "as scores of 0": lambda a, x, top, lse: np.zeros_like(x),
    "in base 2": lambda a, x, top, lse: x * np.log(2.0),
    "times log2(e)": lambda a, x, top, lse: x / np.log(2.0),
    "of the maximum of the scores": lambda a, x, top, lse: top,
    "exponentiated twice": lambda a, x, top, lse: np.exp(x),
}


def _joined(first: Array, last: Array) -> Array:
    return np.concatenate([first, last], axis=-1)


#: Rules of the column of a sink that stays: the weights and that of the sink, (.., 1).
SINK_COLUMNS: dict[str, Callable[[Array, Array], Array]] = {
    "behind the keys, and the first column dropped: each key has the weight of the "
    "next one": lambda p, sink: _joined(p[..., 1:], sink),
    "in front of the keys, and the last column dropped: each key has the weight of the "
    "one before": lambda p, sink: _joined(sink, p[..., :-1]),
    "with their weight on the first key: drop it": (
        lambda p, sink: _joined(p[..., :1] + sink, p[..., 1:])
    ),
    "with their weight on the last key: drop it": (
        lambda p, sink: _joined(p[..., :-1], p[..., -1:] + sink)
    ),
}


def values_of(attempt: Attempt) -> Array:
    """Return values of the keys, (..., Lq or 1, Lk, Dv): 1 where no table is added."""
    x = attempt.keywords
    if attempt.rotary is not None and "value" in attempt.rotary.rotated:
        x = rotated(attempt).keywords
    if "rel_value" not in x:
        return np.asarray(x["value"])[..., None, :, :]
    given = {name: x[name] for name in ("rel_value", *PLACING) if name in x}
    rows = x["query"], x["key"], x["value"]
    return attempt.kept.by_contents(
        (given, x["query"].shape, x["key"].shape, x["value"]),
        lambda: moved_values(terms(*rows, **given)),
    )


def outputs_of(attempt: Attempt, weights: Array, values: Array) -> Array:
    """Sum values by weights; relative values may be summed by another rule."""
    name, order = attempt.term_order or ("", np.asarray)
    if name != "rel_value" and attempt.of_values is None:
        return summed(weights, values)
    own = np.asarray(attempt.get("value"))
    rule = attempt.of_values or (lambda p, x: order(summed(p, x)))
    return np.asarray(weights @ own + rule(weights, values - own[..., None, :, :]))


def summed(weights: Array, values: Array) -> Array:
    """Sum values by the weights of their keys."""
    if values.shape[-3] == 1:
        return weights @ values[..., 0, :, :]
    out: Array = np.einsum("...ij,...ijd->...id", weights, values)
    return out
