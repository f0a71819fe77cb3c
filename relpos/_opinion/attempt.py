"""A call of attention as someone may have written it.

`relpos._opinion.begin` makes the attempt that is relpos's own formula, which all others
vary. `relpos._opinion.evaluate` computes its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from relpos._attention.fire_network import Fire
from relpos._attention.operands import TABLES
from relpos._checks import Array
from relpos._opinion.kept import Kept
from relpos.reference.biases import rel_shift
from relpos.reference.formula import allowed

#: A score from here down is one that a mask of finite numbers hides.
HIDDEN = -5e3
#: Arguments that hide, and words for them.
HIDING = {
    "is_causal": "causality",
    "window": "the window",
    "key_lengths": "the lengths of the keys",
    "key_ranges": "the ranges of the keys",
    "attn_mask": "the mask",
}
#: Arguments that say which row of a table a pair has.
PLACING = ("query_offset", "min_relative_position", "buckets", "beyond", "labels")
#: Arguments that have a meaning only where the call has one of these operands.
NEEDED: dict[str, tuple[str, ...]] = {
    "pos_bias_v": ("rel_key",),
    "position_query": ("rel_key",),
    # Not "query_offset": causality and windows depend on it too.
    "min_relative_position": (*TABLES,),
    "buckets": (*TABLES,),
    "beyond": (*TABLES,),
    "labels": (*TABLES,),
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


class Hiding(NamedTuple):
    """Pairs that the arguments of an attempt hide."""

    sets: dict[str, Array]  # the visible pairs of each argument that hides any
    mask: Array  # the numbers of the mask, and -inf where anything hides
    numbers: Array  # the finite numbers of a floating mask


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
        remaining = {name: x for name, x in changed.items() if x is not None}
        return replace(self, keywords=meaningful(remaining), detail=detail)

    def times(self, factor: Any, *terms: str) -> Attempt:
        """Return an attempt with some terms times a factor."""
        new = {name: factor * self.factors.get(name, 1.0) for name in terms}
        return replace(self, factors={**self.factors, **new})

    def get(self, name: str) -> Any:
        return self.keywords.get(name)

    def arguments(self, names: Iterable[str]) -> dict[str, Any]:
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
        return self._hiding.sets

    @property
    def mask(self) -> Array:
        """The numbers of the mask, and -inf where anything hides."""
        return self._hiding.mask

    @property
    def numbers(self) -> Array:
        """The finite numbers of a floating mask, also where anything else hides."""
        return self._hiding.numbers

    @property
    def _hiding(self) -> Hiding:
        # Thousands of attempts have the same arguments that hide, as the same objects.
        arguments = [*self.lengths, self.get("query_offset")]
        arguments += [self.get(name) for name in HIDING]
        return self.kept.by_identity(tuple(arguments), lambda: _hiding_of(self))

    @property
    def cached(self) -> int:
        """The number of keys before the first query, or 0."""
        offset = self.offset
        if not offset.size or (offset != offset.flat[0]).any():
            return 0  # items of the batch have different numbers, or there are none
        count = int(offset.flat[0])
        return count if 0 < count < self.lengths[1] else 0


def meaningful(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments without those that have no meaning without another."""
    return {
        name: x
        for name, x in keywords.items()
        if name not in NEEDED or keywords.keys() & {*NEEDED[name]}
    }


def _hiding_of(attempt: Attempt) -> Hiding:
    """Return the set of each argument that hides, their mask, and its numbers."""
    r = distances(attempt)
    # An array of one axis says that there is no mask: `evaluate` asks for `ndim`.
    numbers = finite = np.zeros(1)
    arguments = attempt.arguments(HIDING)
    mask = arguments.pop("attn_mask", None)
    pairs = {name: allowed(r, **{name: value}) for name, value in arguments.items()}
    if mask is not None:
        visible = mask if mask.dtype == bool else ~np.isneginf(mask)
        if visible.ndim > 3:  # the results have its items, whatever it hides
            numbers = np.zeros((*visible.shape[:-2], 1, 1))
        shape = (*visible.shape[:-2], *r.shape[-2:])
        # The mask may have axes of length 1 for queries and keys, but a set has all
        # pairs.
        pairs["attn_mask"] = np.broadcast_to(visible, shape)
        if mask.dtype != bool:
            most = float(np.finfo(np.float64).max) / 4  # as `attention` has it
            numbers = np.clip(mask, -most, most)
            finite = np.where(visible, numbers, 0.0)
    sets = {name: x for name, x in pairs.items() if not x.all()}
    if not sets:
        return Hiding(sets, numbers, finite)
    masked = np.where(common(sets.values()), numbers, -np.inf)
    return Hiding(sets, masked, finite)


def common(sets: Iterable[Array]) -> Array:
    """Return the pairs that are in all sets."""
    return np.asarray(np.logical_and.reduce(np.broadcast_arrays(*sets)))


#: A known difference as a function; None where the attempt cannot have it.
Change = Callable[[Attempt], Attempt | None]
#: Several changes of a kind, one after the other.
Changes = Callable[[Attempt], Iterable[Attempt | None]]


def attempts_with(form: Change | Changes, attempt: Attempt) -> Iterator[Attempt]:
    """Yield the attempt with each form of a difference that it can have."""
    changed = form(attempt)
    if changed is None:
        return
    if isinstance(changed, Attempt):
        yield changed
        return
    for each in changed:
        if each is not None:
            yield each


def worded(words: str, form: Change | Changes) -> Changes:
    """Give the attempts of a form words of their own, in place of those of the row."""

    def changes(attempt: Attempt) -> Iterator[Attempt]:
        for changed in attempts_with(form, attempt):
            yield replace(changed, detail=words)

    return changes


def relative_to(attempt: Attempt, offset: Array | None = None) -> Array:
    """Return key minus query positions, (..., Lq, Lk), by its offset or another."""
    lq, lk = attempt.lengths
    start = attempt.offset if offset is None else offset
    # Items of the batch may have offsets of their own, which get axes for queries and
    # keys.
    at = np.arange(lq)[:, None] + start[..., None, None]
    return np.asarray(np.arange(lk) - at)


def distances(attempt: Attempt, offset: Array | None = None) -> Array:
    """Return `relative_to`, with an axis of heads where items have their own."""
    r = relative_to(attempt, offset)
    return r[..., None, :, :] if r.ndim > 2 else r
