"""Known changes of the order of heads, items and columns, of operands and of results.

Arrays have axes B, H, L and D: items of the batch, heads, positions and columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from typing import NamedTuple

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt, Change
from relpos._opinion.evaluate import evaluate
from relpos._opinion.operands import PLURALS
from relpos._opinion.positions import some
from relpos._opinion.rules import mean_of_heads, sum_of_heads
from relpos._opinion.solved import TERMS

#: Sets of operands that are in another order together.
TOGETHER = (
    ("query", "key", "value"),
    ("key", "value"),
    ("query", "key"),
    ("query",),
    ("key",),
    ("value",),
)
NAMES = {0: "B", 1: "H", 2: "L", 3: "D"}
Axes = tuple[int, ...]
#: Layouts as which joined columns or heads are usual, the first being relpos's own.
HEADS_FIRST, HEADS_JOINED = (0, 1, 2, 3), (0, 2, 1, 3)


def taken_for(x: Array, stored: Axes, read: Axes) -> Array:
    """Put the last axes in order `stored`, and read them as if they were in `read`."""
    first = x.ndim - len(read)
    lead, last = [*range(first)], x.shape[first:]
    # The reshape is the mistake: the memory has the axes of `stored`, and the shape is
    # that of `read`. The last transpose puts the axes back by the inverse of `read`.
    moved = x.transpose(*lead, *(first + axis for axis in stored))
    split = moved.reshape(*x.shape[:first], *(last[axis] for axis in read))
    return split.transpose(*lead, *(first + np.argsort(read)))


class Order(NamedTuple):
    """An array of axes (B, H, L, D), put in order `stored` and read as if in `read`."""

    stored: Axes
    read: Axes = HEADS_FIRST

    def of(self, x: Array) -> Array:
        """Return an array in this order, by a reshape."""
        # An array of three axes is one item of a batch.
        x4 = x.reshape((1,) * (4 - x.ndim) + x.shape)
        return taken_for(x4, self.stored, self.read).reshape(x.shape)

    def __str__(self) -> str:
        return f"{_axes(self.stored)} taken for {_axes(self.read)}"


def _axes(order: Axes) -> str:
    return f"({', '.join(NAMES[axis] for axis in order)})"


#: Heads split by a view, without a transpose.
_VIEWED = Order(HEADS_JOINED)


def _orders() -> list[Order]:
    """List orders by reshaping, simple ones first."""
    every = [HEADS_JOINED, *permutations(range(4))]
    orders = [Order(x, y) for y in (HEADS_FIRST, HEADS_JOINED) for x in every if x != y]
    simple = (HEADS_FIRST, HEADS_JOINED)
    # The sort is stable, so that the orders of each kind stay as they are listed.
    orders.sort(key=lambda order: order.stored not in simple)
    return [*dict.fromkeys(orders)]


def _repeats(order: Order, shape: tuple[int, ...]) -> bool:
    """Return True if an order moves axes of length 1, as another one does not."""
    # An axis of length 1 may be anywhere without a change of the memory: of such orders
    # the one that begins with these axes is tried.
    sizes = (1,) * (4 - len(shape)) + shape
    single = tuple(axis for axis in range(4) if sizes[axis] == 1)
    return order.stored[: len(single)] != single


def _plurals(names: tuple[str, ...]) -> str:
    *first, last = (PLURALS[name] for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def inputs(
    attempt: Attempt, names: tuple[str, ...], order: Order, back: bool
) -> Attempt | None:
    """Read operands in another order; `back`: results are put back in the same way."""
    operands = attempt.arguments(names)
    if len(operands) < len(names):
        return None
    for operand in operands.values():
        if operand.ndim not in (3, 4) or _repeats(order, operand.shape):
            return None
    arrays = {name: order.of(x) for name, x in operands.items()}
    if all(np.array_equal(x, operands[name]) for name, x in arrays.items()):
        return None
    detail = (
        f"heads of {_plurals(names)} split without a transpose, by a reshape: axes "
        f"{order}"
    )
    split = attempt.told(detail, **arrays)
    # With `back` the results are joined by a view too, as the operands were split.
    if not back:
        return split
    return replace(split, arrangement=Order(order.read, order.stored).of)


def untransposed(attempt: Attempt, stored: Axes) -> Attempt | None:
    """Take axes of all operands for others, and put the results back."""
    operands, order = attempt.arguments(TOGETHER[0]), Order(stored)
    shapes = {x.shape for x in operands.values()}
    if len(operands) < 3 or len(shapes) > 1 or attempt.rotary:
        return None
    (shape,) = shapes
    if len(shape) != 4 or _repeats(order, shape):
        return None
    arrays = {name: x.transpose(stored) for name, x in operands.items()}
    if all(np.array_equal(x, operands[name]) for name, x in arrays.items()):
        return None
    # The third axis is that of positions for attention.
    over = {0: "items of the batch", 1: "heads", 2: "positions"}[stored[2]]
    detail = f"the layout {order}, so that attention is over the {over}"
    arrangement = partial(np.transpose, axes=np.argsort(stored))
    return replace(attempt.told(detail, **arrays), arrangement=arrangement)


def outputs(attempt: Attempt, order: Order) -> Attempt | None:
    """Put results in another order, where they have the entries of the right ones."""
    shape = attempt.get("query").shape
    if len(shape) not in (3, 4):
        return None
    detail = f"heads merged without a transpose, by a reshape: axes {order}"
    return replace(attempt, arrangement=order.of, detail=detail)


def splits() -> list[Change]:
    """List the orders of heads that are split by a view, or not transposed."""
    viewed = partial(inputs, names=TOGETHER[0], order=_VIEWED)
    return [
        partial(viewed, back=True),
        partial(viewed, back=False),
        partial(untransposed, stored=HEADS_JOINED),
    ]


def reduced(attempt: Attempt, rule: str) -> Attempt | None:
    """Give every head the mean or the sum of the results of all heads."""
    if attempt.get("query").shape[-3] == 1:
        return None
    arrangements = {"sum": sum_of_heads, "mean": mean_of_heads}
    detail = f"the {rule} of the results of all heads, which are to be joined"
    return replace(attempt, arrangement=arrangements[rule], detail=detail)


def moved_results(attempt: Attempt) -> Iterator[Attempt]:
    count = attempt.lengths[0]
    orders: dict[str, Callable[..., Array]] = {}
    for step in some(count):
        orders[f"rolled by {step}"] = partial(np.roll, shift=step)
    if count > 1:
        orders["in the reverse order"] = np.flip
    for words, order in orders.items():
        detail = f"the results of the queries {words}"
        yield replace(attempt, arrangement=partial(order, axis=-2), detail=detail)


def _head_0(x: Array) -> Array:
    """Give all heads the entries of head 0."""
    return np.broadcast_to(x[:, :1], x.shape)


def _item_0(x: Array) -> Array:
    """Give all items of the batch the entries of item 0."""
    return np.broadcast_to(x[:1], x.shape)


def _heads_reversed(x: Array) -> Array:
    """Reverse the heads."""
    return x[:, ::-1]


def _items_reversed(x: Array) -> Array:
    """Reverse the items of the batch."""
    return x[::-1]


#: Ways to mix up items (B) and heads (H) of a term (B, H, .., ..), in words.
MIXED: dict[str, Callable[[Array], Array]] = {
    "reshaped from (H, B) to (B, H)": Order(HEADS_FIRST, (1, 0, 2, 3)).of,
    "transposed to (H, B) and reshaped to (B, H)": Order((1, 0, 2, 3)).of,
    "of head 0 for all heads": _head_0,
    "of item 0 for all items of the batch": _item_0,
    "of the heads in reverse order": _heads_reversed,
    "of the items in reverse order": _items_reversed,
    "as the mean of all heads": mean_of_heads,
    "as the sum of all heads": sum_of_heads,
}


def mixed_terms(attempt: Attempt) -> Iterator[Attempt]:
    names = attempt.arguments(("rel_key", "rel_query", "rel_value"))
    if attempt.get("query").ndim != 4 or "labels" in attempt.keywords:
        return
    for name, (words, order) in product(names, MIXED.items()):
        detail = f"the term of {name} {words}"
        yield replace(attempt, term_order=(name, order), detail=detail)


def mixed_results(attempt: Attempt) -> Iterator[Attempt]:
    if attempt.get("query").ndim != 4:
        return
    for words, order in MIXED.items():
        yield replace(attempt, arrangement=order, detail=f"the results {words}")


#: Axes of a term whose order may be mixed up.
_OF_TERM = ("H", "Lq", "Lk")


def reshaped_terms(attempt: Attempt) -> Iterator[Attempt]:
    names = attempt.arguments(("rel_bias", "attn_mask"))
    orders = [order for order in permutations(range(3)) if order != (0, 1, 2)]
    for name, order in product(names, orders):
        stored = ", ".join(_OF_TERM[axis] for axis in order)
        detail = f"{TERMS[name]} reshaped from ({stored}) to (H, Lq, Lk): transpose it"
        reshaped = partial(_reshaped_term, order=order)
        yield replace(attempt, term_order=(name, reshaped), detail=detail)


def _reshaped_term(x: Array, order: Axes) -> Array:
    """Read a term in an order of its axes as if it were in the right one."""
    if x.ndim < 3:  # it has no heads
        return x
    return taken_for(x, order, (0, 1, 2))


def merges() -> list[Change]:
    """List the orders of heads that are merged by a view, added up or averaged."""
    return [
        partial(outputs, order=Order(HEADS_FIRST, HEADS_JOINED)),
        partial(reduced, rule="sum"),
        partial(reduced, rule="mean"),
    ]


def other_orders() -> list[Change]:
    """List the orders of axes that `splits` and `merges` do not have."""
    orders = _orders()
    changes: list[Change] = [partial(outputs, order=order) for order in orders]
    for layout in permutations(range(4)):
        # Columns stay last. `splits` has the heads that are not transposed.
        if layout[3] == 3 and layout not in (HEADS_FIRST, HEADS_JOINED):
            changes.append(partial(untransposed, stored=layout))
    all_operands, *some_operands = TOGETHER
    for order in orders:
        if order != _VIEWED:  # which `splits` has, too
            of_all = partial(inputs, names=all_operands, order=order)
            changes += [partial(of_all, back=True), partial(of_all, back=False)]
    for names, order in product(some_operands, orders):
        changes.append(partial(inputs, names=names, order=order, back=False))
    return changes


# ---- fused projections ---------------------------------------------------------------

#: Axes of the columns of a fused projection, and orders of them.
_LETTERS = ("operands", "heads", "columns of a head")
_FUSED = ((0, 1, 2), (1, 0, 2), (1, 2, 0), (0, 2, 1))


def fused(attempt: Attempt) -> Iterator[Attempt]:
    for names, (stored, read) in product(TOGETHER[:3], permutations(_FUSED, 2)):
        arrays = [*attempt.arguments(names).values()]
        if len(arrays) < len(names) or len({x.shape for x in arrays}) > 1:
            continue
        x = np.moveaxis(np.stack(arrays), (0, -3), (-3, -2))  # (.., L, operands, H, D)
        split = np.moveaxis(taken_for(x, stored, read), (-3, -2), (0, -3))
        if np.array_equal(split, arrays):
            continue
        words = [", ".join(_LETTERS[axis] for axis in x) for x in (stored, read)]
        detail = (
            f"the columns of a fused projection of {_plurals(names)}, in order of "
            f"{words[0]}, split in order of {words[1]}"
        )
        yield attempt.told(detail, **dict(zip(names, split, strict=True)))


# ---- items and heads of others -------------------------------------------------------

#: More items and heads than these are not looked at.
_MOST = 64
#: What is looked up for each item and head, in words.
MAPPED = {
    ("key", "value"): "keys and values",
    ("key",): "keys",
    ("value",): "values",
    ("query",): "queries",
    ("attn_mask",): "the mask",
    ("rel_bias",): "the bias",
    ("rel_bias", "attn_mask"): "the bias and the mask",
    ("sinks",): "the sinks",
    ("log_decay",): "the decay",
    ("position_query",): "the position queries",
    ("pos_bias_u", "pos_bias_v"): "u and v",
    ("pos_bias_u",): "u",
    ("pos_bias_v",): "v",
    ("key_lengths",): "the lengths of the keys",
    ("key_ranges",): "the ranges of the keys",
    ("query_offset",): "the offsets",
    (): "the results",
}
#: Axes of items and heads in arrays of fewer axes, counted from the last.
_HEAD_AXIS = {"rel_bias": -2, "sinks": -1, "pos_bias_u": -2, "pos_bias_v": -2}
_ITEM_AXIS = {"key_lengths": -1, "key_ranges": -3, "query_offset": -1}


def mapped(attempt: Attempt, names: tuple[str, ...]) -> Attempt | None:
    """Give each item and head the arguments of another, which the results show.

    The arguments are rolled by each number of items and heads, and of each result the
    number that fits best is taken.
    """
    leading = (attempt.get(name).shape[:-2] for name in ("query", "key"))
    aim, shape = attempt.aim, np.broadcast_shapes(*leading)
    count, heads = int(np.prod(shape)), shape[-1] if shape else 1
    if aim is None or aim.shape[:-2] != shape or not 1 < count <= _MOST:
        return None
    if len(attempt.arguments(names)) < len(names):
        return None
    numbers = np.arange(count)
    errors = []
    for step in range(count):
        rolled = _taken(attempt, names, (numbers + step) % count, shape)
        if rolled is None:
            return None
        # The largest error of each item and head: a mapping is found one by one.
        gap = np.abs(evaluate(rolled).result - aim).reshape(count, -1)
        errors.append(np.where(np.isnan(gap), np.inf, gap).max(axis=-1, initial=0.0))
    # What is as good with its own arguments keeps them.
    least = np.min(errors, axis=0)
    best = np.where(errors[0] <= 2.0 * least + 1e-9, 0, np.argmin(errors, axis=0))
    index = (numbers + best) % count
    # One item or head that nothing fits says that the arguments are not those of
    # others.
    if not best.any() or (least > 0.1 * np.abs(aim).max()).any():
        return None
    mapped_attempt = _taken(attempt, names, index, shape)
    if mapped_attempt is None:
        return None
    # If items, or heads, have equal arguments, words for the others alone suffice.
    of_heads_alone = numbers // heads * heads + index % heads
    of_items_alone = index // heads * heads + numbers % heads
    for simpler in (of_heads_alone, of_items_alone):
        if _same(mapped_attempt, _taken(attempt, names, simpler, shape), names):
            index = simpler
    words = ""
    if attempt.group > 1 and {*names} <= {"key", "value"}:
        words = _words_of_group(index, attempt.group, heads)
    words = words or _words_of(index.reshape(shape))
    return replace(mapped_attempt, detail=f"{MAPPED[names]} {words}")


def _same(one: Attempt, other: Attempt | None, names: tuple[str, ...]) -> bool:
    """Return True if two attempts have equal arguments of these names."""
    if other is None or not names:
        return False
    return all(np.array_equal(one.get(name), other.get(name)) for name in names)


def _taken(
    attempt: Attempt, names: tuple[str, ...], index: Array, shape: tuple[int, ...]
) -> Attempt | None:
    """Take arguments, or results if none is named, by index of item and head."""
    if not names:
        return replace(attempt, arrangement=partial(_results_of, index=index))
    heads, new = shape[-1], {}
    for name in names:
        array = np.asarray(attempt.get(name))
        if name in _HEAD_AXIS or name in _ITEM_AXIS:
            if name in _HEAD_AXIS:
                # An array without an axis of items has one map of heads for all: that
                # of the first item. One without an axis of heads has that of the first
                # head.
                axis, sources = _HEAD_AXIS[name], index[:heads] % heads
            else:
                axis, sources = _ITEM_AXIS[name], index[::heads] // heads
            if array.ndim < -axis or array.shape[axis] != len(sources):
                return None
            new[name] = np.take(array, sources, axis=axis)
            continue
        rows = array.shape[-1:] if name == "log_decay" else array.shape[-2:]
        wide = np.broadcast_to(array, (*shape, *rows)).reshape(math.prod(shape), *rows)
        new[name] = wide[index].reshape(*shape, *rows)
    return attempt.with_keywords(**new)


def _results_of(x: Array, index: Array) -> Array:
    """Give each item and head the results of another."""
    items = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
    return items[index].reshape(x.shape)


def _words_of_group(index: Array, group: int, heads: int) -> str:
    """Say which key heads query heads have; nothing if items of the batch differ."""
    # Keys were repeated for the query heads, of which each `group` have one key head.
    head = index.reshape(-1, heads) % heads // group
    item = index.reshape(-1, heads) // heads
    if (item != item[:, :1]).any() or (head != head[0]).any():
        return ""
    count, numbers = heads // group, np.arange(heads)
    for words, rule in (("modulo", numbers % count), ("//", numbers // count)):
        if (head[0] == rule).all():
            return f"of key head h {words} {count} for query head h"
    return f"of other key heads: of key heads {[*map(int, head[0])]}"


def _words_of(index: Array) -> str:
    """Say which items and heads others have, from their numbers (..., H)."""
    heads = index.shape[-1]
    item, head = index.reshape(-1, heads) // heads, index.reshape(-1, heads) % heads
    own_item, own_head = np.indices(item.shape)
    if (item == own_item).all() and (head == head[0]).all():
        return _line_of("head", head[0], "heads")
    if (head == own_head).all() and (item == item[:, :1]).all():
        return _line_of("item", item[:, 0], "items of the batch")
    if (item.ravel() == np.arange(index.size) % len(item)).all():
        return (
            "of other items of the batch: repeated for the heads as a whole (tile), "
            "not one by one (repeat)"
        )
    return (
        f"of other items of the batch and heads: of numbers {[*map(int, index.flat)]}"
    )


def _line_of(one: str, index: Array, many: str) -> str:
    """Say which one of several each has."""
    count, numbers = len(index), np.arange(len(index))
    if (index == index[0]).all():
        return f"of {one} {index[0]} for all {many}"
    if (index == numbers[::-1]).all():
        return f"of the {many} in reverse order"
    for step in range(1, count):
        if (index == (numbers + step) % count).all():
            return f"of the {many} rolled by {step}"
    # A roll was tried before, as simpler words go first.
    for size in range(2, count):
        if (index == numbers % size).all():
            return f"of {one} h modulo {size} for {one} h"
        if (index == numbers // size).all():
            return f"of {one} h // {size} for {one} h"
    return f"of other {many}: of {one}s {[*map(int, index)]}"
