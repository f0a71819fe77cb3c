"""Known changes of the pairs that are visible: masks, windows, padding and offsets.

The visible pairs of an argument are a set: an array of truth values (..., Lq, Lk). A
pair is visible if it is in all sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import HIDING, Attempt, Changes, common, distances
from relpos._opinion.positions import EACH, some
from relpos._opinion.tables import tables_of
from relpos._text import amount
from relpos.reference.formula import allowed

#: Weights of queries that see nothing: as they are computed, or with a finite mask.
EMPTY = ("zero", "nan", "mean", "all")


def hides(attempt: Attempt) -> bool:
    """Return True if an argument may hide something."""
    mask = attempt.get("attn_mask")
    masks = mask is not None and (mask.dtype == bool or np.isneginf(mask).any())
    others = attempt.arguments(("window", "key_lengths", "key_ranges"))
    return bool(masks or others or attempt.get("is_causal"))


def kept_bias(attempt: Attempt) -> Any:
    """Return the finite part of a floating mask, or None."""
    mask = attempt.get("attn_mask")
    if mask is None or mask.dtype == bool:
        return None
    return np.where(np.isneginf(mask), 0.0, mask)


def hidden_by(attempt: Attempt, mask: Any) -> Attempt:
    """Hide by a mask, or None, and by no other argument."""
    arguments = dict.fromkeys(HIDING)
    arguments["attn_mask"] = mask
    return attempt.with_keywords(**arguments)


def all_seen(attempt: Attempt) -> Attempt | None:
    """Hide nothing."""
    if not hides(attempt):
        return None
    return hidden_by(attempt, kept_bias(attempt))


def all_seen_zero_beyond(attempt: Attempt) -> Attempt | None:
    """Hide nothing, and use zeros for keys that have no row of a table."""
    seen = all_seen(attempt)
    return None if seen is None else seen.with_keywords(beyond="zero")


def wrapped_seen(attempt: Attempt) -> Attempt | None:
    """Use the causal shift, and hide nothing of what it wraps."""
    by_shift = shifted(attempt)
    return None if by_shift is None else all_seen(by_shift)


def shifted_in_encoder(attempt: Attempt) -> Attempt | None:
    """Use the causal shift where later keys are seen."""
    if attempt.get("is_causal"):
        return None
    return shifted(attempt)


def showing(
    attempt: Attempt, sets: Iterable[Array], detail: str, *empties: str
) -> Iterator[Attempt]:
    """Show the pairs of all these sets; queries that see nothing have these weights."""
    if "log_decay" in attempt.keywords:
        return
    # The numbers of a floating mask stay where pairs are visible.
    pairs, finite = common(sets), kept_bias(attempt)
    sees = pairs.any(axis=-1)
    mask = pairs if finite is None else np.where(pairs, finite, -np.inf)
    masked = replace(hidden_by(attempt, mask), detail=detail)
    for empty in empties or EMPTY[:1]:
        # Other weights of empty rows can be told from zeros where there are such rows.
        if empty == "zero" or (sees.any() and not sees.all()):
            yield replace(masked, empty=empty)


def shifted(attempt: Attempt) -> Attempt | None:
    """Use the causal shift for rows looked up: for later keys it has no row."""
    # Transformer-XL's shift moves products of queries with a table, and has none of
    # these.
    unshifted = {"position_query", "labels", "buckets", "rel_query"}
    if "rel_key" not in attempt.keywords or unshifted & attempt.keywords.keys():
        return None
    lq, lk = attempt.lengths
    # The shift puts the last query at the last key.
    if (attempt.offset != lk - lq).any():
        return None
    return replace(attempt, shifted=True)


def ignored(attempt: Attempt, name: str) -> Attempt | None:
    """Ignore an argument that hides; the numbers of a mask stay."""
    if attempt.get(name) is None or attempt.get(name) is False:
        return None
    numbers = kept_bias(attempt) if name == "attn_mask" else None
    return attempt.with_keywords(**{name: numbers})


def mask_inverted(attempt: Attempt) -> Attempt | None:
    mask = attempt.get("attn_mask")
    if mask is None or mask.dtype != bool:
        return None
    return attempt.with_keywords(attn_mask=~mask)


def mask_transposed(attempt: Attempt) -> Attempt | None:
    mask = attempt.get("attn_mask")
    sides = {*np.shape(mask)[-2:]}
    if np.ndim(mask) < 2 or len(sides) > 1 or attempt.fire:  # whose bias is in it
        return None
    return attempt.with_keywords(attn_mask=np.swapaxes(mask, -1, -2))


def causal_where(
    attempt: Attempt, see: Callable[[Array], Array], offset: Any = None
) -> Attempt | None:
    """Change which relative positions causality shows; tables keep their rows."""
    if not attempt.get("is_causal") or "log_decay" in attempt.keywords:
        return None
    # Causality becomes a mask of pairs: `is_causal` with another offset would move the
    # rows of the tables too.
    shown = see(distances(attempt, offset))
    mask = attempt.keywords.get("attn_mask", np.True_)
    both = shown & mask if mask.dtype == bool else np.where(shown, mask, -np.inf)
    return attempt.with_keywords(is_causal=None, attn_mask=both)


def is_past_or_own(r: Array) -> Array:
    """Return True for earlier keys and the query's own."""
    return r <= 0


def is_past(r: Array) -> Array:
    """Return True for earlier keys."""
    return r < 0


def is_past_own_or_next(r: Array) -> Array:
    """Return True for earlier keys, the query's own and the one after it."""
    return r <= 1


def is_future_or_own(r: Array) -> Array:
    """Return True for later keys and the query's own."""
    return r >= 0


def other_diagonal(attempt: Attempt) -> Iterator[Attempt]:
    """Show keys up to another distance than 0."""
    if not attempt.get("is_causal"):
        return
    for step in range(2, min(max(attempt.lengths), 64)):
        for last, side in ((step, "after"), (-step, "before")):
            changed = causal_where(attempt, see=partial(np.greater_equal, last))
            words = f"the last visible key {step} keys {side} each query's own"
            if changed is not None:
                yield replace(changed, detail=words)


def other_corner(attempt: Attempt, end: bool) -> int | None:
    """Return the offset with query 0 at key 0, or the last two together, if new."""
    lq, lk = attempt.lengths
    # An offset that all items have already is no change.
    offset = lk - lq if end else 0
    return None if (attempt.offset == offset).all() else offset


def causal_at(attempt: Attempt, end: bool) -> Attempt | None:
    """Count causality from the first query and key, or from the last two."""
    offset = other_corner(attempt, end)
    if offset is None:
        return None
    return causal_where(attempt, see=is_past_or_own, offset=np.asarray(offset))


def keys_left_out(attempt: Attempt) -> Iterator[Attempt]:
    count = attempt.lengths[1]
    at, sets = np.arange(count), attempt.sets.values()
    for number in some(count):
        for side, shown in (("last", at < count - number), ("first", at >= number)):
            # A set has an axis of queries, also where they all see the same keys.
            rows = np.broadcast_to(shown, attempt.lengths)
            words = f"the {side} key" if number == 1 else f"the {side} {number} keys"
            yield from showing(attempt, [*sets, rows], f"{words} left out")


def visible_prefix(attempt: Attempt) -> Iterator[Attempt]:
    """Show the first keys too, as of a prefix."""
    sets, count = attempt.sets.values(), attempt.lengths[1]
    if not sets:
        return
    past, visible = distances(attempt) <= 0, common(sets)
    for number in some(count):
        first = np.arange(count) < number
        keys = "the first key" if number == 1 else f"the first {number} keys"
        words = f"{keys} visible to all"
        yield from showing(attempt, [visible | first], f"{words} queries")
        yield from showing(
            attempt, [visible | (first & past)], f"{words} later queries"
        )


def window_untold(attempt: Attempt) -> Iterator[Attempt]:
    if attempt.get("window") is not None:
        return
    lq, lk = attempt.lengths
    offset = attempt.keywords.get("query_offset", lk - lq)
    for side in range(min(lk, EACH)):
        windows: list[tuple[int | None, int | None]] = [(side, None)]
        if not attempt.get("is_causal"):
            windows += [(side, side), (None, side)]
        for sides in windows:
            words = f"a window of {sides}, which no argument says"
            yield attempt.told(words, window=sides, query_offset=offset)


def padding_of_zeros(attempt: Attempt) -> Iterator[Attempt]:
    """Set keys and values to 0 where an argument hides a key, and hide nothing."""
    for name, pairs in attempt.sets.items():
        of_keys = pairs[..., :1, :]
        if (pairs != of_keys).any() or (pairs.ndim > 3 and pairs.shape[-3] > 1):
            continue  # it hides pairs, or differs in heads
        # (.., 1, Lk) becomes (.., Lk, 1), which multiplies rows of keys and values.
        shown = np.swapaxes(of_keys, -1, -2)
        zeros = {n: shown * attempt.get(n) for n in ("key", "value")}
        detail = (
            f"keys and values set to 0 where {HIDING[name]} should hide them: they "
            "have a score of 0, and a weight"
        )
        others = [x for n, x in attempt.sets.items() if n != name]
        # `common` needs one set at least, which may hide nothing.
        sets = others or [np.ones(attempt.lengths, bool)]
        yield from showing(attempt.with_keywords(**zeros), sets, detail)


def causal_untold(attempt: Attempt) -> Attempt | None:
    if attempt.get("is_causal"):
        return None
    lq, lk = attempt.lengths
    offset = attempt.keywords.get("query_offset", lk - lq)
    return attempt.with_keywords(is_causal=True, query_offset=offset)


def offset_at(attempt: Attempt, end: bool) -> Attempt | None:
    """Move the queries to key 0, or to the last of the keys."""
    offset, rotary = other_corner(attempt, end), attempt.rotary
    if offset is None:
        return None
    if rotary is not None:  # causality stays as it is
        queries = attempt.lengths[0]
        positions = np.arange(queries) + offset
        if rotary.of_angles:
            # The angles of the queries are those of the keys at their positions.
            positions = rotary.key_positions[..., offset : offset + queries, :]
        return replace(attempt, rotary=rotary._replace(query_positions=positions))
    if tables_of(attempt) or attempt.get("is_causal") or attempt.get("window"):
        return attempt.with_keywords(query_offset=offset)
    return None


def tables_at(attempt: Attempt, end: bool) -> Attempt | None:
    """Move the queries for the tables alone, where `offset_at` moves causality too."""
    if not tables_of(attempt) or attempt.get("window"):
        return None
    moved = offset_at(attempt, end=end)
    # Causality becomes a mask of pairs, which the offset does not move.
    masked = causal_where(attempt, see=is_past_or_own)
    if moved is None or masked is None:
        return None
    return masked.with_keywords(query_offset=moved.get("query_offset"))


def other_offset(attempt: Attempt) -> Iterator[Attempt | None]:
    placed = tables_of(attempt) or attempt.get("is_causal") or attempt.get("window")
    right = attempt.offset
    if not placed or right.size != 1 or "log_decay" in attempt.keywords:
        return
    lq, lk = attempt.lengths
    for offset in range(-min(lk, EACH), min(lk, EACH) + lq + 1):
        if offset == right:
            continue
        detail = f"a query_offset of {offset}, not {right.item()}"
        yield attempt.told(detail, query_offset=offset)


def wider_window(attempt: Attempt, step: int) -> Attempt | None:
    """Change a window by one key on each side that is bounded."""
    right = tuple(attempt.keywords.get("window", ()))
    # A side of 0 keys, or without an end, stays.
    sides = tuple(side + step if side else side for side in right)
    return attempt.with_keywords(window=sides) if sides != right else None


# ---- the set of an argument ---------------------------------------------------------

#: A change of one set of an attempt; None where it does not apply.
Reset = Callable[[Attempt, Array], Array | None]
#: Words for changes of a set, with {} for its argument, and the new sets.
Worded = Iterable[tuple[str, Array | None]]


def changed(
    attempt: Attempt, name: str, rule: Callable[[Attempt, Array], Worded]
) -> Iterator[Attempt]:
    """Change the set of one argument, or of "all" together, where there are several."""
    sets = dict(attempt.sets)
    # The set of all arguments together takes the place of the sets of each.
    if name == "all" and len(sets) > 1:
        sets = {"all": common(sets.values())}
    right = sets.pop(name, None)
    # An attempt with other weights of empty rows has such a change already: these
    # weights are tried below.
    if right is None or attempt.empty != "zero":
        return
    for words, other in rule(attempt, right):
        if other is None:
            continue
        pairs = common([*sets.values(), other])
        empties: tuple[str, ...] = EMPTY
        if (pairs == common(attempt.sets.values())).all():
            empties = EMPTY[1:]  # with zeros it is the formula itself
        detail = words.format(HIDING.get(name, "all that hides"))
        yield from showing(attempt, [pairs], detail, *empties)


def of_each(reset: Reset, words: str, *names: str) -> list[Changes]:
    """List the change of each argument's set, or of those of some arguments."""

    def rule(attempt: Attempt, pairs: Array) -> Worded:
        return [(words, reset(attempt, pairs))]

    names = names or (*HIDING, "all")
    return [partial(changed, name=name, rule=rule) for name in names]


def crossed(
    attempt: Attempt, x: Array, combine: Callable[[Array, Array], Array], of_keys: bool
) -> Array | None:
    """Combine a set with its transpose, if all queries see the same keys, or if not."""
    # A set of keys is the same for all queries, and a set of pairs is not. Words and
    # changes differ between the two.
    is_square = x.shape[-1] == x.shape[-2] > 1
    fits = is_square and bool((x == x[..., :1, :]).all()) == of_keys
    return combine(x, np.swapaxes(x, -1, -2)) if fits else None


def with_axis(
    attempt: Attempt, x: Array, axis: int, change: Callable[..., Any]
) -> Array | None:
    """Change a set along an axis, to another order or to one entry for all."""
    # An axis that is missing or of length 1 has no other order.
    if x.ndim < -axis or x.shape[axis] < 2:
        return None
    return np.broadcast_to(change(x, axis=axis), x.shape)


def moved(axis: int, step: int) -> Reset:
    """Shift a set, whose first or last entries are repeated."""

    def change(x: Array, axis: int) -> Array:
        at = np.arange(x.shape[axis])
        # Entries at the end are repeated, and do not come back at the other end.
        return np.take(x, np.clip(at - step, 0, at[-1]), axis=axis)

    return partial(with_axis, axis=axis, change=change)


def rolled() -> list[Changes]:
    """List each roll of a set along its keys, and along its queries."""
    rolls = []
    sides = {-1: "keys, as where a memory is on the other side", -2: "queries"}
    for (axis, side), step in product(sides.items(), range(1, 17)):
        words = f"{{}} rolled by {step} {side}"
        reset = partial(with_axis, axis=axis, change=partial(np.roll, shift=step))
        rolls += of_each(reset, words, "key_lengths", "key_ranges", "attn_mask")
    return rolls


def joined(
    attempt: Attempt, x: Array, combine: Callable[[Array, Array], Array], step: int
) -> Array | None:
    """Combine a set with itself, shifted along the keys."""
    other = moved(-1, step)(attempt, x)
    return None if other is None else combine(x, other)


def reaching(attempt: Attempt, x: Array, towards: int) -> Array:
    """Show all keys on one side of the visible ones too, to the first or the last."""
    # The accumulation runs in the direction of the keys that are shown too.
    return np.logical_or.accumulate(x[..., ::towards], axis=-1)[..., ::towards]


def of_heads(attempt: Attempt, x: Array) -> Array | None:
    """Use the set of an item of the batch for the head of its number."""
    # A set (B, 1, Lq, Lk) can be read as (H, ..) only if B and H are equal.
    if x.ndim < 4 or len(x) != attempt.get("query").shape[-3] or x.shape[-3] > 1:
        return None
    return np.swapaxes(x, -4, -3)


def tiled(attempt: Attempt, x: Array) -> Array | None:
    """Give (item, head), as one axis, the sets of the items in turn."""
    if x.ndim != 4 or len(x) < 2 or x.shape[1] > 1:
        return None
    # Row n of (item, head) as one axis has item n // H; tiled sets give it item n % B.
    order = np.arange(len(x) * attempt.get("query").shape[-3]) % len(x)
    return np.take(x[:, 0], order.reshape(len(x), -1), axis=0)


def with_end(side: str, step: int) -> tuple[Reset, str]:
    """Begin or end a set some keys earlier or later, in words."""
    # A step towards the last key is one key more at the end, or one fewer at the start.
    more = (side == "end") == (step > 0)
    combine = np.logical_or if more else np.logical_and
    keys = "one key" if abs(step) == 1 else f"{abs(step)} keys"
    words = f"{keys} {'more' if more else 'fewer'} at the {side} of what is visible"
    return partial(joined, combine=combine, step=step), f"{{}} with {words}"


def ends_moved() -> list[Changes]:
    """List sets that begin or end 2 to 8 keys elsewhere; `RESETS` has one key."""
    changes = []
    ways = ("end", 1), ("end", -1), ("start", -1), ("start", 1)
    for (side, sign), keys in product(ways, range(2, 9)):
        reset, words = with_end(side, sign * keys)
        changes += of_each(reset, words, "key_lengths", "key_ranges", "attn_mask")
    return changes


def of_queries(keys: Array, queries: Array) -> Array:
    """Return the transposed set, which is that of the queries."""
    return queries


def inverted(attempt: Attempt, x: Array) -> Array:
    """Show what a set hides."""
    return ~x


def without_own(attempt: Attempt, x: Array) -> Array:
    """Hide the query's own key too."""
    return np.asarray(x & (distances(attempt) != 0))


def with_first(attempt: Attempt, x: Array) -> Array:
    """Show the first key to all queries."""
    return np.asarray(x | (np.arange(x.shape[-1]) == 0))


def end_fewer(attempt: Attempt, x: Array) -> Array:
    """Show one key fewer at each end of what is visible, and never the last key."""
    # The key behind the last one counts as hidden.
    next_key = np.zeros_like(x)
    next_key[..., :-1] = x[..., 1:]
    return x & next_key


#: Changes of each set, in words with {} for its argument.
RESETS: dict[str, tuple[Reset, str]] = {
    "visible_inverted": (
        inverted,
        "{} inverted: keys that it hides are visible, and the others hidden",
    ),
    "visible_transposed": (
        partial(crossed, combine=of_queries, of_keys=False),
        "{} transposed",
    ),
    "visible_of_queries": (
        partial(crossed, combine=of_queries, of_keys=True),
        "{} applied to the queries, not to the keys",
    ),
    "visible_of_both": (
        partial(crossed, combine=np.logical_and, of_keys=True),
        "{} applied to the queries too, not to the keys alone",
    ),
    "visible_of_either": (
        partial(crossed, combine=np.logical_or, of_keys=True),
        "{} of keys or queries: a pair is hidden only where it hides both",
    ),
    "visible_as_equal": (
        partial(crossed, combine=np.equal, of_keys=True),
        "{} of keys equal to that of queries: padding sees padding, and not the rest",
    ),
    "visible_without_own": (
        without_own,
        "{} with the query's own key hidden too",
    ),
    "visible_reversed": (
        partial(with_axis, axis=-1, change=np.flip),
        "{} on the other side: reversed along the keys",
    ),
    "visible_rows_reversed": (
        partial(with_axis, axis=-2, change=np.flip),
        "{} reversed along the queries",
    ),
    "visible_one_later": (moved(-1, 1), "{} moved by one key towards the last"),
    "visible_one_earlier": (moved(-1, -1), "{} moved by one key towards the first"),
    "visible_rows_later": (moved(-2, 1), "{} of the query before"),
    "visible_rows_earlier": (moved(-2, -1), "{} of the query after"),
    "visible_end_later": (
        partial(joined, combine=np.logical_or, step=1),
        "{} with one key more at the end of what is visible, as if it were counted in",
    ),
    "visible_end_earlier": with_end("end", -1),
    "visible_end_fewer": (
        end_fewer,
        "{} with one key fewer at the end of what is visible, the last key too",
    ),
    "visible_start_earlier": with_end("start", -1),
    "visible_start_later": with_end("start", 1),
    "visible_to_first": (
        partial(reaching, towards=-1),
        "{} without its start: all keys before the visible ones are visible too",
    ),
    "visible_to_last": (
        partial(reaching, towards=1),
        "{} without its end: all keys after the visible ones are visible too",
    ),
    "visible_with_first": (
        with_first,
        "{} with the first key visible to all queries",
    ),
    "visible_of_heads": (
        of_heads,
        "{} of each item of the batch used for a head: its axis of items is that of "
        "the heads",
    ),
    "visible_tiled": (
        tiled,
        "{} of other items of the batch: repeated for the heads as a whole (tile), not "
        "one by one (repeat)",
    ),
    "visible_of_last_query": (
        partial(with_axis, axis=-2, change=partial(np.take, indices=[-1])),
        "{} of the last query for all queries",
    ),
    "visible_of_first_query": (
        partial(with_axis, axis=-2, change=partial(np.take, indices=[0])),
        "{} of the first query for all queries",
    ),
    "visible_of_longest": (
        partial(with_axis, axis=-4, change=partial(np.any, keepdims=True)),
        "{} of all items of the batch together: a key that any item shows is visible",
    ),
    "visible_of_shortest": (
        partial(with_axis, axis=-4, change=partial(np.all, keepdims=True)),
        "{} of all items of the batch together: a key that any item hides is hidden",
    ),
}


# ---- windows -------------------------------------------------------------------------


def _window(attempt: Attempt, sides: tuple[Any, Any]) -> Array:
    return np.asarray(allowed(distances(attempt), window=sides))


def _meant_sides(past: int, future: int) -> dict[str, tuple[int, int]]:
    """Return other sides of a window that people mean, in words."""
    half_with_own = (past + 1) // 2
    return {
        "its sides exchanged": (future, past),
        "half of its length": (past // 2, future // 2),
        "half of its past on both sides": (past // 2, past // 2),
        "half of its past and own key on both sides": (half_with_own, half_with_own),
        "the length of its past on both sides": (past, past),
        "the length of its future on both sides": (future, future),
        "both sides together in the past": (past + future, 0),
        "both sides and the own key in the past": (past + future + 1, 0),
        "twice its length": (2 * past, 2 * future),
    }


#: Keys on the two sides of a window; None is a side without an end.
Sides = tuple[int | None, int | None]


def _near(side: int | None) -> list[int | None]:
    """List numbers of keys near that of a side, and none, and no end."""
    if side is None:
        return [0, None]
    return [max(side - 1, 0), side, side + 1, 0, None]


def _sides(right: Sides) -> dict[Sides, str]:
    """Return other sides of a window, and words for those that people mean."""
    past, future = right
    others: dict[Sides, str] = {}
    for sides in product(_near(past), _near(future)):
        others[sides] = ""
    if past is not None and future is not None:
        for words, sides in _meant_sides(past, future).items():
            others[sides] = f", {words}"
    others.pop(right, None)
    return others


def _words_of_side(right: int | None, side: int | None, name: str) -> str:
    """Say how one side of a window differs."""
    if right is None:
        return f"{amount(side, 'key')} in the {name}"
    if side is None:
        return f"no bound in the {name}"
    step = side - right
    keys = {1: "one key", 2: "two keys"}.get(abs(step), f"{abs(step)} keys")
    return f"{keys} {'more' if step > 0 else 'fewer'} in the {name}"


def other_sides(attempt: Attempt, x: Array) -> Worded:
    """Give a window other sides."""
    right = tuple(attempt.get("window"))
    past, future = right
    for sides, meant in _sides((past, future)).items():
        parts = []
        if sides[0] != past:
            parts.append(_words_of_side(past, sides[0], "past"))
        if sides[1] != future:
            parts.append(_words_of_side(future, sides[1], "future"))
        words = f"{{}} with {' and '.join(parts)}{meant}: {sides}, not {right}"
        yield words, _window(attempt, sides)


def other_ends(attempt: Attempt, x: Array) -> Worded:
    """Show a side alone, or count sides from key 0 or from the last key."""
    relative, (left, right) = distances(attempt), attempt.get("window")
    lq, lk = attempt.lengths
    for side, seen in (("future", relative > 0), ("past", relative < 0)):
        yield f"{{}} with its {side} side alone, without the query's own key", x & seen
    for offset, where in (
        (0, "from key 0, by its row, not by its offset"),
        (lk - lq, "so that the last query is at the last key"),
    ):
        r = distances(attempt, np.asarray(offset))
        for side, past, future in (
            ("", r, r),
            (" in the past", r, relative),
            (" in the future", relative, r),
        ):
            seen = allowed(past, window=(left, None))
            seen = seen & allowed(future, window=(None, right))
            yield f"{{}}{side} counted {where}", seen


def _blocks(attempt: Attempt) -> Iterator[tuple[str, Array]]:
    """Yield words for blocks of keys, and how many blocks before a query's each is."""
    lq, lk = attempt.lengths
    past, future = (side or 0 for side in attempt.get("window"))
    # The offset of an item gets axes for heads, queries and keys.
    at = np.arange(lq)[:, None] + attempt.offset[..., None, None, None]
    for words, length in (
        ("of as many keys as it has", past + future + 1),
        ("of the length of its past", past),
        ("of its past and the own key", past + 1),
    ):
        if length > 0:
            before = at // length - np.arange(lk) // length
            yield f"{{}} as blocks {words}: each query sees its block", before


def in_blocks(attempt: Attempt, x: Array) -> Worded:
    for words, before in _blocks(attempt):
        yield words, before == 0
        yield f"{words} and the block before", (before >= 0) & (before <= 1)


def with_holes(attempt: Attempt, x: Array) -> Worded:
    """Show blocks up to each query's own key, or every key of a step (dilated)."""
    r, (past, future) = distances(attempt), attempt.get("window")
    for words, before in _blocks(attempt):
        yield f"{words}, up to its own key", (before == 0) & (r <= 0)
    for step in (2, 3, 4):
        for factor, more in ((step, f"{step} times as long"), (1, "as long")):
            # A side of 0 keys, or without an end, stays.
            sides = (past and past * factor, future and future * factor)
            seen = (r % step == 0) & _window(attempt, sides)
            words = f"{{}} with every key of distance {step} alone (dilated), {more}"
            yield words, seen


def windows() -> list[Changes]:
    """List the changes of a window that leave it one piece."""
    rules = (other_sides, other_ends, in_blocks)
    return [partial(changed, name="window", rule=rule) for rule in rules]


def windows_with_holes() -> list[Changes]:
    return [partial(changed, name="window", rule=with_holes)]


def window_of_diagonals(attempt: Attempt) -> Iterator[Attempt]:
    """Show the keys between, or beyond, two diagonals near the sides of a window."""
    window = attempt.get("window")
    if window is None:
        return
    # The two diagonals replace causality and the window together.
    others = [x for n, x in attempt.sets.items() if n not in ("is_causal", "window")]
    near = set()
    for side, sign, step in product(window, (1, -1), (-1, 0, 1)):
        near.add(sign * (side or 0) + step)
    r, diagonals = distances(attempt), sorted(near)
    ways = (("and", np.logical_and), ("or", np.logical_or))
    for (word, combine), last, first in product(ways, diagonals, diagonals):
        seen = combine(r <= last, r > first)
        detail = (
            f"the keys up to distance {last} {word} from distance {first + 1} on "
            "visible, not those of the window"
        )
        if not seen.all():
            yield from showing(attempt, [*others, seen], detail)


# ---- combinations --------------------------------------------------------------------


#: Ways to combine two sets, in words.
_COMBINED = {
    "{} or {}: a pair that either of both shows is visible": np.logical_or,
    "{} or {}, not both: a pair that one alone shows is visible": np.logical_xor,
    "{} and {} as equal: pairs that both show, or both hide, are visible": np.equal,
}


def combined(attempt: Attempt) -> Iterator[Attempt]:
    """Combine the sets of two arguments in another way; the others stay."""
    pairs = combinations(attempt.sets, 2)
    for (first, second), (words, combine) in product(pairs, _COMBINED.items()):
        sets = dict(attempt.sets)
        pair = combine(sets.pop(first), sets.pop(second))
        detail = words.format(HIDING[first], HIDING[second])
        yield from showing(attempt, [*sets.values(), pair], detail, *EMPTY)


# ---- truth values added --------------------------------------------------------------


def numbers_added(attempt: Attempt) -> Iterator[Attempt]:
    """Add the truth values of a set to the scores, as 1 where it shows or hides."""
    if "log_decay" in attempt.keywords:
        return
    finite, kinds = kept_bias(attempt), ((True, "shows"), (False, "hides"))
    for name, (visible, shows) in product(attempt.sets, kinds):
        sets = dict(attempt.sets)
        # This argument hides nothing any more. The others still hide what they did.
        number = (sets.pop(name) == visible).astype(np.float64)
        if finite is not None:
            number = number + finite
        if sets:
            number = np.where(common(sets.values()), number, -np.inf)
        words = f"added to the scores, as 1 where it {shows} a key, else 0"
        yield replace(hidden_by(attempt, number), detail=f"{HIDING[name]} {words}")
