"""The result of an attempt: its scores, weights or outputs, in NumPy and float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from relpos._attention.scores import scores
from relpos._checks import Array, quiet
from relpos._encodings.rotary import apply_rotary
from relpos._opinion.arrays import largest, spread
from relpos._opinion.attempt import HIDDEN, HIDING, PLACING, Attempt, meaningful
from relpos._opinion.rules import CAPS, EQUAL, NORMAL, SINK_COLUMNS, SINKS
from relpos.reference.formula import moved_values, softmax, terms

#: Terms that are capped.
PRODUCTS = (
    "content",
    "pos_bias_u",
    "rel_key",
    "pos_bias_v",
    "position_query",
    "rel_query",
)
#: Arguments that change no term of the scores before it is scaled, capped and masked.
_AFTER = {*HIDING, "value", "rel_value", "scale", "softcap", "sinks"}
#: Functions in the place of the softmax, by their names.
_IN_PLACE_OF_SOFTMAX = {**NORMAL, **EQUAL}


class Evaluated(NamedTuple):
    """Result of an attempt, and the entries that its rule hides or makes nan.

    `noise` computes its rounding error, over the largest entry, in unit roundoffs.
    """

    result: Array
    hidden: Array
    noise: Callable[[], float]


@quiet
def evaluate(attempt: Attempt) -> Evaluated:
    """Compute the scores, weights or outputs of these arguments."""
    total, hidden, parts = logits(attempt)

    def size() -> float:
        """Return the largest sum of the terms of a visible score."""
        visible = ~hidden & (total > HIDDEN)
        sizes = (float(np.abs(x).max(initial=0.0, where=visible)) for x in parts)
        return len(parts) * max(sizes)

    if attempt.view == "scores":
        unseen = hidden | (total <= HIDDEN)
        shown = without_constants(total, unseen) if attempt.centred else total

        def noise_of_scores() -> float:
            return 4.0 * size() / (largest(shown, ~unseen) or 1.0)

        return Evaluated(shown, unseen, noise_of_scores)
    result = weights = weights_of(attempt, total, hidden)
    # Where a query sees no key, nan on both sides is no difference.
    nothing = np.all(hidden, axis=-1, keepdims=True) & (attempt.empty == "nan")
    values = None
    if attempt.view == "outputs":
        values = values_of(attempt)
        result = outputs_of(attempt, weights, values)
        if attempt.residual:
            result = result + attempt.get(attempt.residual)
    nothing = spread(nothing, result.shape)
    if attempt.arrangement is not None:
        result = attempt.arrangement(result)
        # An arrangement may sum heads: what is left of truth values are their counts.
        nothing = attempt.arrangement(nothing) > 0

    def noise() -> float:
        grown = 1.0  # by values that are larger than their weighted sums
        if values is not None:
            grown = (largest(values) or 1.0) / (largest(result) or 1.0)
        return (16.0 + 4.0 * size()) * grown

    return Evaluated(result, nothing, noise)


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
        # Many attempts rotate the same operands by the same positions.
        x[name] = attempt.kept.by_contents(
            (x[name], options), partial(apply_rotary, x[name], **options)
        )
    return replace(attempt, keywords=x, rotary=None)


def logits(attempt: Attempt) -> tuple[Array, Array, list[Array]]:
    """Return scores, the hidden ones among them, and the terms of their sum."""
    parts, hidden = parts_of(attempt)
    # Terms that are added to the weights, or multiply the scores, are no summands.
    for name in attempt.late:
        parts.pop(name, None)
    factors = [parts.pop(name) for name in attempt.multiplied if name in parts]
    added = [x for name, x in parts.items() if name not in PRODUCTS]
    products = [x for name, x in parts.items() if name in PRODUCTS]
    total, cap = reduce(np.add, products), attempt.get("softcap")
    # The cap is on products alone, or on all terms.
    if attempt.cap_last:
        total = reduce(np.add, added, total)
    if cap is not None:
        total = CAPS[attempt.cap](total, cap, attempt.get("scale"))
    if not attempt.cap_last:
        total = reduce(np.add, added, total)
    total = reduce(np.multiply, factors, attempt.logit_factor * total)
    return total, spread(hidden, total.shape), [*products, *added]


def parts_of(attempt: Attempt) -> tuple[dict[str, Array], Array]:
    """Return the terms of the scores by name, and the mask of what is hidden."""
    parts, mask = _terms_of(attempt)
    # A shifted term replaces the one that was looked up, before anything else is done
    # to terms.
    if attempt.shifted and "rel_key" in parts:
        parts |= _by_shift(rotated(attempt))
    for name in parts.keys() & {*attempt.transposed}:
        parts[name] = np.swapaxes(parts[name], -1, -2)
    hidden = np.isneginf(mask)
    if mask.ndim > 1:
        # The numbers of a mask are a term like the others, and what it hides is apart
        # from them.
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
        # A decay, and a bias that hides, are left to `scores`, which knows their rules.
        keywords = dict(rotated(attempt).keywords)
        keywords.pop("value", None)
        keywords.pop("softcap", None)
        parts = scores(**keywords, terms=True)
        return parts, parts.pop("mask", np.zeros(1))
    # relpos refuses such a call. The search leaves out an attempt that raises
    # ValueError.
    unplaced = attempt.lengths[0] != attempt.lengths[1] and "query_offset" not in x
    if unplaced and (x.get("is_causal") or x.get("window") is not None):
        raise ValueError("query_offset: ambiguous")
    operands = meaningful({name: y for name, y in x.items() if name not in _AFTER})
    if operands.keys() == {"query", "key"}:  # a product takes less time than a look
        parts, finite = _unscaled(attempt, [*operands])
    else:
        parts, finite = attempt.kept.by_contents(
            (operands, attempt.rotary), lambda: _unscaled(attempt, [*operands])
        )
    scaled = {*PRODUCTS} - {"position_query"}
    if "position_query" in x:  # which comes scaled, and v is added to it
        scaled.remove("pos_bias_v")
    mask = attempt.mask
    parts = {n: x["scale"] * y if n in scaled else y for n, y in parts.items()}
    if mask.ndim > 1:
        # A mask may have axes that the terms lack, and the other way round: all get
        # both.
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
    # The shift expects products of relative positions from 1 - Lk to Lq - 1, in this
    # order.
    rows = np.clip(np.arange(1 - lk, lq) - first, 0, table.shape[-2] - 1)
    vectors = {"rel_key": x["query"]}
    if "pos_bias_v" in x:
        vectors["pos_bias_v"] = x["pos_bias_v"][..., None, :]

    def products() -> dict[str, Array]:
        reach = np.swapaxes(np.take(table, rows, axis=-2), -1, -2)
        return {name: y @ reach for name, y in vectors.items()}

    by_row = attempt.kept.by_contents((table, first, vectors), products)
    # v has one row for all queries, and the shift needs as many as there are.
    shape = *by_row["rel_key"].shape[:-1], lq + lk - 1
    shifted = {}
    for name, y in by_row.items():
        shifted[name] = x["scale"] * attempt.skew(np.broadcast_to(y, shape), lk)
    return shifted


def weights_of(attempt: Attempt, total: Array, hidden: Array) -> Array:
    """Compute the weights: the softmax, and what happens to scores before and after."""
    weights = normalized(attempt, _seen_scores(attempt, total, hidden))
    if attempt.again:
        left_out = hidden & (attempt.again == "visible")
        weights = softmax(np.where(left_out, -np.inf, weights))[0]
    # What is hidden keeps a weight where its score is finite, where a second softmax is
    # over all keys, and where the column of a sink takes the place of a key.
    finite = attempt.filled is not None or attempt.lowered is not None
    if not (finite or attempt.again == "all" or attempt.sink in SINK_COLUMNS):
        weights = np.where(hidden, attempt.hidden_weight, weights)
    # Rows of queries that see no key are 0 so far, as relpos has them.
    nothing = hidden.all(axis=-1, keepdims=True)
    if attempt.empty != "zero":
        weights = np.where(nothing, _empty_weights(attempt, total), weights)
    weights = attempt.factor * weights
    if attempt.late:
        parts, _ = parts_of(attempt)
        for name in attempt.late:
            weights = weights + parts[name]
        weights = np.where(hidden & attempt.late_hidden, 0.0, weights)
    return np.swapaxes(weights, -1, -2) if attempt.crossed else weights


def _seen_scores(attempt: Attempt, total: Array, hidden: Array) -> Array:
    """Return the scores of the softmax, by which what is hidden has no weight."""
    if attempt.filled is not None:
        return np.where(hidden, attempt.filled, total)
    if attempt.lowered is not None:
        return np.where(hidden, total + attempt.lowered, total)
    if attempt.hiding == "after":
        return total
    return np.where(hidden, -np.inf, total)


def _empty_weights(attempt: Attempt, total: Array) -> Any:
    """Return the weights of queries that see nothing."""
    if attempt.empty == "all":
        return softmax(total)[0]
    return np.nan if attempt.empty == "nan" else 1.0 / max(total.shape[-1], 1)


def normalized(attempt: Attempt, scores: Array) -> Array:
    """Return the softmax of scores over its axes, or what is in its place."""
    if attempt.normal != "softmax":
        return _IN_PLACE_OF_SOFTMAX[attempt.normal](scores)
    if attempt.sink:
        return _with_other_sinks(attempt, scores)
    if attempt.by_parts is not None:
        return attempt.by_parts(scores)
    # No other rule is left: this is relpos's softmax, over other axes perhaps.
    sinks = attempt.get("sinks")
    if attempt.axes == (-1,):
        return softmax(scores, sinks)[0]
    last = tuple(range(-len(attempt.axes), 0))
    # The axes of the softmax are moved behind all others and joined to one.
    moved = np.moveaxis(scores, attempt.axes, last)
    flat = moved.reshape(*moved.shape[: -len(last)], -1)
    if len(last) > 1 and sinks is not None:
        raise ValueError("sinks: of one axis")
    weights = softmax(flat, sinks)[0].reshape(moved.shape)
    return np.asarray(np.moveaxis(weights, last, attempt.axes))


def _with_other_sinks(attempt: Attempt, scores: Array) -> Array:
    """Return the softmax with other sinks, of numbers for each head or each row."""
    top = scores.max(axis=-1, keepdims=True)
    # A row without a visible key has the maximum -inf, which would make its weights
    # nan.
    top = np.where(np.isfinite(top), top, 0.0)
    sinks = np.asarray(attempt.keywords.get("sinks", 0.0))[..., None, None]
    total = top + np.log(np.exp(scores - top).sum(axis=-1, keepdims=True))
    if attempt.sink in SINKS:
        sinks = SINKS[attempt.sink](attempt, sinks, top, total)
    # Neither of the two exponentials may overflow.
    shared = np.maximum(top, sinks)
    p, sink = np.exp(scores - shared), np.exp(sinks - shared)
    total = p.sum(axis=-1, keepdims=True) + sink
    weights: Array = p / total
    if attempt.sink in SINK_COLUMNS:
        weights = SINK_COLUMNS[attempt.sink](weights, sink / total)
    return weights


def values_of(attempt: Attempt) -> Array:
    """Return values of the keys, (..., Lq or 1, Lk, Dv): 1 where no table is added."""
    x = attempt.keywords
    if attempt.rotary is not None and "value" in attempt.rotary.rotated:
        x = rotated(attempt).keywords
    if "rel_value" not in x:
        return np.asarray(x["value"])[..., None, :, :]
    table = {name: x[name] for name in ("rel_value", *PLACING) if name in x}
    query, key, value = x["query"], x["key"], x["value"]
    return attempt.kept.by_contents(
        (table, query.shape, key.shape, value),
        lambda: moved_values(terms(query, key, value, **table)),
    )


def outputs_of(attempt: Attempt, weights: Array, values: Array) -> Array:
    """Sum values by weights; relative values may be summed by another rule."""
    name, order = attempt.term_order or ("", np.asarray)
    if name != "rel_value" and attempt.of_values is None:
        return summed(weights, values)
    plain = np.asarray(attempt.get("value"))
    # What a table of values adds is told apart from the values that the call has.
    relative = values - plain[..., None, :, :]
    if attempt.of_values is not None:
        relative_sum = attempt.of_values(weights, relative)
    else:
        relative_sum = order(summed(weights, relative))
    return np.asarray(weights @ plain + relative_sum)


def summed(weights: Array, values: Array) -> Array:
    """Sum values by the weights of their keys."""
    # The values are the same for all queries: a product of matrices suffices.
    if values.shape[-3] == 1:
        return weights @ values[..., 0, :, :]
    out: Array = np.einsum("...ij,...ijd->...id", weights, values)
    return out
