"""A call of attention as someone may have written it, and what it gives, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from relpos._attention.logits import scores
from relpos._checks import Array, quiet
from relpos._encodings.rotary import apply_rotary
from relpos.reference.formula import moved_values, terms
from relpos.reference.pairs import softmax
from relpos.reference.positions import rel_shift

__all__ = [
    "HIDDEN",
    "PLACING",
    "Attempt",
    "Given",
    "Rotary",
    "evaluate",
    "largest",
    "logits",
    "relative_to",
    "rotated",
    "summed",
    "values_of",
    "weights_of",
]

#: A score from here down is one that a mask of finite numbers hides.
HIDDEN = -5e3
#: Terms that the cap is on.
PRODUCTS = (
    *("content", "pos_bias_u", "rel_key", "pos_bias_v", "position_query", "rel_query"),
)
#: Arguments that say which row of a table a pair has.
PLACING = ("query_offset", "min_relative_position", "buckets", "beyond", "labels")


class Rotary(NamedTuple):
    """How queries and keys are turned; the options are those of `apply_rotary`."""

    options: Mapping[str, Any]
    query_positions: Array
    key_positions: Array
    turned: tuple[str, ...] = ("query", "key")


@dataclass(frozen=True)
class Attempt:
    """Arguments of `attention`, and how they are put together.

    `keywords` are those of `relpos.scores` with query and key, in float64; the scale is
    a number there, and keys have the heads of queries, of which every `group` were one.
    `view` says which result is meant: "scores", "weights" or "outputs". The defaults of
    all else are relpos's formula.
    """

    keywords: Mapping[str, Any]
    view: str
    group: int = 1
    negated: tuple[str, ...] = ()  # terms of the other sign
    powers: Mapping[str, int] = field(default_factory=dict)  # of the scale, on terms
    transposed: tuple[str, ...] = ()  # terms whose queries and keys are exchanged
    shifted: bool = False  # the position term by Transformer-XL's shift, not looked up
    cap_last: bool = False  # on the biases too
    logit_factor: float = 1.0  # of the finished scores
    hiding: str = "before"  # the softmax; "after" it, as "zero" scores, "visible" only
    empty: str = "zero"  # what a query gets that sees no key; or "nan", or "mean"
    axis: int = -1  # of the softmax: keys
    centred: bool = False  # compared without what is constant in a row
    rotary: Rotary | None = None

    def with_keywords(self, **keywords: Any) -> Attempt:
        """Some arguments changed; None takes one away."""
        changed = {**self.keywords, **keywords}
        kept = {name: x for name, x in changed.items() if x is not None}
        return replace(self, keywords=kept)

    def get(self, name: str) -> Any:
        """An argument, or None."""
        return self.keywords.get(name)

    @property
    def lengths(self) -> tuple[int, int]:
        """Lq and Lk."""
        return self.keywords["query"].shape[-2], self.keywords["key"].shape[-2]

    @property
    def offset(self) -> Array:
        """Position of query 0 beside the keys."""
        return np.asarray(self.keywords.get("query_offset", 0))


class Given(NamedTuple):
    """The result of an attempt, and which entries its rule hides or makes nan.

    noise: its rounding error, beside the largest entry, in units of the rounding.
    """

    result: Array
    hidden: Array
    noise: float


def relative_to(attempt: Attempt) -> Array:
    """Position of each key minus that of each query, (..., Lq, Lk)."""
    lq, lk = attempt.lengths
    at = np.arange(lq)[:, None] + attempt.offset[..., None, None]
    found: Array = np.arange(lk) - at
    return found


@quiet
def evaluate(attempt: Attempt) -> Given:
    """The scores, weights or outputs that these arguments give."""
    attempt = rotated(attempt)
    total, hidden, parts = logits(attempt)
    size = _size(total, hidden, parts)
    if attempt.view == "scores":
        hidden = hidden | (total <= HIDDEN)
        if attempt.centred:
            total = without_constants(total, hidden)
        return Given(total, hidden, 4.0 * size / largest(total, ~hidden))
    weights = weights_of(attempt, total, hidden)
    noise = 16.0 + 4.0 * size
    nothing = hidden.all(axis=-1, keepdims=True) & (attempt.empty == "nan")
    if attempt.view == "weights":
        return Given(weights, np.broadcast_to(nothing, weights.shape), noise)
    values = values_of(attempt)
    out = summed(weights, values)
    noise *= largest(values, np.True_) / largest(out, np.True_)
    return Given(out, np.broadcast_to(nothing, out.shape), noise)


def largest(array: Array, where: Any) -> float:
    """Of the sizes of finite entries, 1 if there are none."""
    found = np.abs(array[np.isfinite(array) & where])
    return float(found.max()) if found.size and found.max() else 1.0


def without_constants(total: Array, hidden: Array) -> Array:
    """Rows from which the mean of what is seen is taken."""
    count = np.maximum((~hidden).sum(axis=-1, keepdims=True), 1)
    mean = np.where(hidden, 0.0, total).sum(axis=-1, keepdims=True) / count
    found: Array = total - mean
    return found


def rotated(attempt: Attempt) -> Attempt:
    """Queries and keys, and whatever else is to be, turned by their positions."""
    x, rotary = dict(attempt.keywords), attempt.rotary
    if rotary is None:
        return attempt
    for name in rotary.turned:
        if x.get(name) is None:
            continue
        rows = rotary.query_positions if name == "query" else rotary.key_positions
        x[name] = apply_rotary(x[name], rows, **rotary.options)
    return replace(attempt, keywords=x, rotary=None)


def logits(attempt: Attempt) -> tuple[Array, Array, list[Array]]:
    """Scores, what is hidden of them, and the terms that they are the sum of."""
    keywords = {n: x for n, x in attempt.keywords.items() if n != "value"}
    parts = scores(**keywords, terms=True)
    parts.pop("softcap", None)
    mask = parts.pop("mask", np.zeros(1))
    if attempt.shifted and "rel_key" in parts:
        parts |= _by_shift(attempt)
    for name in attempt.transposed:
        if name in parts:
            parts[name] = np.swapaxes(parts[name], -1, -2)
    hidden = np.isneginf(mask)
    if mask.ndim > 1:
        parts["attn_mask"] = np.where(hidden, 0.0, mask)
    for name, power in attempt.powers.items():
        if name in parts:
            parts[name] = attempt.get("scale") ** power * parts[name]
    for name in attempt.negated:
        if name in parts:
            parts[name] = -parts[name]
    added = [x for name, x in parts.items() if name not in PRODUCTS]
    products = [x for name, x in parts.items() if name in PRODUCTS]
    total = _sum(attempt, products, added)
    return total, np.broadcast_to(hidden, total.shape), [*products, *added]


def _size(total: Array, hidden: Array, parts: list[Array]) -> float:
    """The size of what the visible scores are the sum of."""
    counting = ~hidden & (total > HIDDEN)
    size = max(float(np.abs(x).max(initial=0.0, where=counting)) for x in parts)
    return len(parts) * size


def _sum(attempt: Attempt, products: list[Array], added: list[Array]) -> Array:
    """The products, their cap and what is added to them."""
    total = reduce(np.add, products)
    cap = attempt.get("softcap")
    if cap is not None and not attempt.cap_last:
        total = cap * np.tanh(total / cap)
    total = reduce(np.add, added, total)
    if cap is not None and attempt.cap_last:
        total = cap * np.tanh(total / cap)
    return attempt.logit_factor * total


def _by_shift(attempt: Attempt) -> dict[str, Array]:
    """The position terms as a table of the past leaves them when it is shifted."""
    x, (lq, lk) = attempt.keywords, attempt.lengths
    table = x["rel_key"]
    first = x.get("min_relative_position")
    first = -(table.shape[-2] // 2) if first is None else first
    rows = np.clip(np.arange(1 - lk, 1) - first, 0, table.shape[-2] - 1)
    past = np.swapaxes(np.take(table, rows, axis=-2), -1, -2)
    found = {"rel_key": x["scale"] * rel_shift(x["query"] @ past)}
    if "pos_bias_v" in x:
        rows_of_v = x["pos_bias_v"][..., None, :] @ past
        wide = np.broadcast_to(rows_of_v, (*found["rel_key"].shape[:-2], lq, lk))
        found["pos_bias_v"] = x["scale"] * rel_shift(wide)
    return found


def weights_of(attempt: Attempt, total: Array, hidden: Array) -> Array:
    """The softmax, with what is hidden left out before or after it."""
    sinks = attempt.get("sinks")
    if attempt.hiding == "zero":
        return softmax(np.where(hidden, 0.0, total), sinks)[0]
    if attempt.axis == -2:
        total, hidden = (np.swapaxes(x, -1, -2) for x in (total, hidden))
    seen = total if attempt.hiding == "after" else np.where(hidden, -np.inf, total)
    weights = np.where(hidden, 0.0, softmax(seen, sinks)[0])
    nothing = hidden.all(axis=-1, keepdims=True)
    if attempt.empty == "nan":
        weights = np.where(nothing, np.nan, weights)
    if attempt.empty == "mean":
        weights = np.where(nothing, 1.0 / max(hidden.shape[-1], 1), weights)
    return np.swapaxes(weights, -1, -2) if attempt.axis == -2 else weights


def values_of(attempt: Attempt) -> Array:
    """Values of the keys, (..., Lq or 1, Lk, Dv): 1 where no table is added."""
    x = attempt.keywords
    if "rel_value" not in x:
        return np.asarray(x["value"])[..., None, :, :]
    placing = {name: x[name] for name in PLACING if name in x}
    return moved_values(
        terms(x["query"], x["key"], x["value"], rel_value=x["rel_value"], **placing)
    )


def summed(weights: Array, values: Array) -> Array:
    """Weights times values, by key."""
    if values.shape[-3] == 1:
        return weights @ values[..., 0, :, :]
    out: Array = np.einsum("...ij,...ijd->...id", weights, values)
    return out
