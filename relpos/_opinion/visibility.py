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
from relpos._opinion.attempt import (
    HIDING,
    Attempt,
    Changes,
    common,
    distances,
    variant,
)
from relpos._opinion.positions import EACH, some
from relpos._opinion.tables import tables_of
from relpos.reference.formula import allowed

#: Weights of queries that see nothing: as they are computed, or with a finite mask.
EMPTY = ("zero", "nan", "mean", "all")


def hides(attempt: Attempt) -> bool:
    """Return True if an argument may hide something."""
    mask = attempt.get("attn_mask")
    masks = mask is not None and (mask.dtype == bool or np.isneginf(mask).any())
    others = attempt.given(("window", "key_lengths", "key_ranges"))
    return bool(masks or others or attempt.get("is_causal"))


def kept_bias(attempt: Attempt) -> Any:
    """Return the finite part of a floating mask, or None."""
    mask = attempt.get("attn_mask")
    if mask is None or mask.dtype == bool:
        return None
    return np.where(np.isneginf(mask), 0.0, mask)


def hidden_by(attempt: Attempt, mask: Any) -> Attempt:
    """Hide by a mask, or None, and by no other argument."""
    return attempt.with_keywords(**{**dict.fromkeys(HIDING), "attn_mask": mask})


def all_seen(attempt: Attempt) -> Attempt | None:
    return hidden_by(attempt, kept_bias(attempt)) if hides(attempt) else None


def showing(
    attempt: Attempt, sets: Iterable[Array], detail: str, *empties: str
) -> Iterator[Attempt]:
    """Show the pairs of all these sets; queries that see nothing have these weights."""
    if "log_decay" in attempt.keywords:
        return
    pairs, finite = common(sets), kept_bias(attempt)
    sees = pairs.any(axis=-1)
    mask = pairs if finite is None else np.where(pairs, finite, -np.inf)
    made = replace(hidden_by(attempt, mask), detail=detail)
    for empty in empties or EMPTY[:1]:
        if empty == "zero" or (sees.any() and not sees.all()):
            yield replace(made, empty=empty)


def shifted(attempt: Attempt) -> Attempt | None:
    """Use the causal shift for rows looked up: for later keys it has no row."""
    own = {"position_query", "labels", "buckets", "rel_query"} & attempt.keywords.keys()
    if "rel_key" not in attempt.keywords or own:
        return None
    lq, lk = attempt.lengths
    return replace(attempt, shifted=True) if (attempt.offset == lk - lq).all() else None


@variant
def ignored(attempt: Attempt, name: str) -> Attempt | None:
    if attempt.get(name) is None or attempt.get(name) is False:
        return None
    kept = kept_bias(attempt) if name == "attn_mask" else None
    return attempt.with_keywords(**{name: kept})


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


@variant
def causal_where(
    attempt: Attempt, see: Callable[[Array], Array], offset: Any = None
) -> Attempt | None:
    """Change which relative positions causality shows; tables keep their rows."""
    if not attempt.get("is_causal") or "log_decay" in attempt.keywords:
        return None
    shown = see(distances(attempt, offset))
    mask = attempt.keywords.get("attn_mask", np.True_)
    both = shown & mask if mask.dtype == bool else np.where(shown, mask, -np.inf)
    return attempt.with_keywords(is_causal=None, attn_mask=both)


def other_diagonal(attempt: Attempt) -> Iterator[Attempt | None]:
    reach = max(attempt.lengths)
    for step in range(2, min(reach, 64)) if attempt.get("is_causal") else ():
        for last, side in ((step, "after"), (-step, "before")):
            made = causal_where(partial(np.greater_equal, last))(attempt)
            words = f"the last visible key {step} keys {side} each query's own"
            yield made and replace(made, detail=words)


def other_corner(attempt: Attempt, end: bool) -> int | None:
    """Return the offset with query 0 at key 0, or the last two together, if new."""
    lq, lk = attempt.lengths
    wanted = lk - lq if end else 0
    return None if (attempt.offset == wanted).all() else wanted


@variant
def causal_at(attempt: Attempt, end: bool) -> Attempt | None:
    if (offset := other_corner(attempt, end)) is None:
        return None
    return causal_where(lambda r: r <= 0, np.asarray(offset))(attempt)


def keys_left_out(attempt: Attempt) -> Iterator[Attempt]:
    count = attempt.lengths[1]
    at, sets = np.arange(count), attempt.sets.values()
    for number in some(count):
        for side, shown in (("last", at < count - number), ("first", at >= number)):
            rows = np.broadcast_to(shown, attempt.lengths)
            words = f"the {side} key" if number == 1 else f"the {side} {number} keys"
            yield from showing(attempt, [*sets, rows], f"{words} left out")


def visible_prefix(attempt: Attempt) -> Iterator[Attempt]:
    sets, count = attempt.sets.values(), attempt.lengths[1]
    past = distances(attempt) <= 0
    for number in some(count) if sets else ():
        first = np.arange(count) < number
        for whom, shown in (
            ("all queries", first),
            ("all later queries", first & past),
        ):
            words = f"the first {number} keys visible to {whom}"
            yield from showing(attempt, [common(sets) | shown], words)


def window_untold(attempt: Attempt) -> Iterator[Attempt]:
    if attempt.get("window") is not None:
        return
    lq, lk = attempt.lengths
    offset = attempt.keywords.get("query_offset", lk - lq)
    for side in range(min(lk, EACH)):
        both = ((side, side), (None, side)) if not attempt.get("is_causal") else ()
        for sides in ((side, None), *both):
            words = f"a window of {sides}, which no argument says"
            yield attempt.told(words, window=sides, query_offset=offset)


def padding_of_zeros(attempt: Attempt) -> Iterator[Attempt]:
    """Set keys and values to 0 where an argument hides a key, and hide nothing."""
    for name, own in attempt.sets.items():
        if (own != own[..., :1, :]).any() or (own.ndim > 3 and own.shape[-3] > 1):
            continue
        shown = np.swapaxes(own[..., :1, :], -1, -2)
        zeros = {n: shown * attempt.get(n) for n in ("key", "value")}
        detail = (
            f"keys and values set to 0 where {HIDING[name]} should hide them: they "
            "have a score of 0, and a weight"
        )
        others = [x for n, x in attempt.sets.items() if n != name]
        sets = others or [np.ones(attempt.lengths, bool)]
        yield from showing(attempt.with_keywords(**zeros), sets, detail)


def causal_untold(attempt: Attempt) -> Attempt | None:
    if attempt.get("is_causal"):
        return None
    lq, lk = attempt.lengths
    offset = attempt.keywords.get("query_offset", lk - lq)
    return attempt.with_keywords(is_causal=True, query_offset=offset)


@variant
def offset_at(attempt: Attempt, end: bool) -> Attempt | None:
    """Move the queries to key 0, or to the last of the keys."""
    offset, rotary = other_corner(attempt, end), attempt.rotary
    if offset is None:
        return None
    if rotary is not None:  # causality stays as it is
        queries = attempt.lengths[0]
        positions = np.arange(queries) + offset
        if rotary.of_angles:
            positions = rotary.key_positions[..., offset : offset + queries, :]
        return replace(attempt, rotary=rotary._replace(query_positions=positions))
    if tables_of(attempt) or attempt.get("is_causal") or attempt.get("window"):
        return attempt.with_keywords(query_offset=offset)
    return None


@variant
def tables_at(attempt: Attempt, end: bool) -> Attempt | None:
    """Move the queries for the tables alone, where `offset_at` moves causality too."""
    if not tables_of(attempt) or attempt.get("window"):
        return None
    moved = offset_at(end)(attempt)
    own = causal_where(lambda r: r <= 0)(attempt)
    if moved is None or own is None:
        return None
    return own.with_keywords(query_offset=moved.get("query_offset"))


def other_offset(attempt: Attempt) -> Iterator[Attempt | None]:
    placed = tables_of(attempt) or attempt.get("is_causal") or attempt.get("window")
    own = attempt.offset
    if not placed or own.size != 1 or "log_decay" in attempt.keywords:
        return
    lq, lk = attempt.lengths
    for offset in range(-min(lk, EACH), min(lk, EACH) + lq + 1):
        if offset == own:
            continue
        detail = f"a query_offset of {offset}, not {own.item()}"
        yield attempt.told(detail, query_offset=offset)


@variant
def wider_window(attempt: Attempt, step: int) -> Attempt | None:
    """Change a window by one key on each side that is bounded."""
    own = attempt.keywords.get("window", ())
    sides = tuple(side and side + step for side in own)
    return attempt.with_keywords(window=sides) if sides != tuple(own) else None


# ---- the set of an argument ---------------------------------------------------------

#: A change of one set of an attempt; None where it does not apply.
Reset = Callable[[Attempt, Array], Array | None]
#: Words for changes of a set, with {} for its argument, and the new sets.
Worded = Iterable[tuple[str, Array | None]]


@variant
def changed(
    attempt: Attempt, name: str, rule: Callable[[Attempt, Array], Worded]
) -> Iterator[Attempt]:
    """Change the set of one argument, or of "all" together, where there are several."""
    sets = dict(attempt.sets)
    if name == "all" and len(sets) > 1:
        sets = {"all": common(sets.values())}
    own = sets.pop(name, None)
    if own is None or attempt.empty != "zero":
        return
    for words, found in rule(attempt, own):
        if found is not None:
            pairs = common([*sets.values(), found])
            same = bool((pairs == common(attempt.sets.values())).all())
            detail = words.format(HIDING.get(name, "all that hides"))
            yield from showing(attempt, [pairs], detail, *EMPTY[same:])


def of_each(reset: Reset, words: str, *names: str) -> list[Changes]:
    """List the change of each argument's set, or of those of some arguments."""

    def rule(attempt: Attempt, own: Array) -> Worded:
        return [(words, reset(attempt, own))]

    return [changed(name, rule) for name in names or (*HIDING, "all")]


def crossed(
    attempt: Attempt, x: Array, combine: Callable[[Array, Array], Array], of_keys: bool
) -> Array | None:
    """Combine a set with its transpose, if all queries see the same keys, or if not."""
    is_square = x.shape[-1] == x.shape[-2] > 1
    fits = is_square and bool((x == x[..., :1, :]).all()) == of_keys
    return combine(x, np.swapaxes(x, -1, -2)) if fits else None


def with_axis(
    attempt: Attempt, x: Array, axis: int, change: Callable[..., Any]
) -> Array | None:
    """Change a set along an axis, to another order or to one entry for all."""
    if x.ndim < -axis or x.shape[axis] < 2:
        return None
    return np.broadcast_to(change(x, axis=axis), x.shape)


def moved(axis: int, step: int) -> Reset:
    """Shift a set, whose first or last entries are repeated."""

    def change(x: Array, axis: int) -> Array:
        at = np.arange(x.shape[axis])
        return np.take(x, np.clip(at - step, 0, at[-1]), axis=axis)

    return partial(with_axis, axis=axis, change=change)


def rolled() -> Iterator[Changes]:
    """Yield each roll of a set along its keys, and along its queries."""
    sides = {-1: "keys, as where a memory is on the other side", -2: "queries"}
    for (axis, side), step in product(sides.items(), range(1, 17)):
        words = f"{{}} rolled by {step} {side}"
        reset = partial(with_axis, axis=axis, change=partial(np.roll, shift=step))
        yield from of_each(reset, words, "key_lengths", "key_ranges", "attn_mask")


def joined(
    attempt: Attempt, x: Array, combine: Callable[[Array, Array], Array], step: int
) -> Array | None:
    """Combine a set with itself, shifted along the keys."""
    other = moved(-1, step)(attempt, x)
    return None if other is None else combine(x, other)


def reaching(attempt: Attempt, x: Array, towards: int) -> Array:
    """Show all keys on one side of the visible ones too, to the first or the last."""
    return np.logical_or.accumulate(x[..., ::towards], axis=-1)[..., ::towards]


def of_heads(attempt: Attempt, x: Array) -> Array | None:
    """Use the set of an item of the batch for the head of its number."""
    if x.ndim < 4 or len(x) != attempt.get("query").shape[-3] or x.shape[-3] > 1:
        return None
    return np.swapaxes(x, -4, -3)


def tiled(attempt: Attempt, x: Array) -> Array | None:
    """Give (item, head), as one axis, the sets of the items in turn."""
    if x.ndim != 4 or len(x) < 2 or x.shape[1] > 1:
        return None
    order = np.arange(len(x) * attempt.get("query").shape[-3]) % len(x)
    return np.take(x[:, 0], order.reshape(len(x), -1), axis=0)


def with_end(side: str, step: int) -> tuple[Reset, str]:
    """Begin or end a set some keys earlier or later, in words."""
    more = (side == "end") == (step > 0)
    combine = np.logical_or if more else np.logical_and
    keys = "one key" if abs(step) == 1 else f"{abs(step)} keys"
    words = f"{keys} {'more' if more else 'fewer'} at the {side} of what is visible"
    return partial(joined, combine=combine, step=step), f"{{}} with {words}"


def ends_moved() -> Iterator[Changes]:
    ways = ("end", 1), ("end", -1), ("start", -1), ("start", 1)
    for (side, sign), n in product(ways, range(2, 9)):
        names = ("key_lengths", "key_ranges", "attn_mask")
        yield from of_each(*with_end(side, sign * n), *names)


#: Changes of each set, in words with {} for its argument.
RESETS: dict[str, tuple[Reset, str]] = {
    "visible_inverted": (
        lambda attempt, x: ~x,
        "{} inverted: keys that it hides are visible, and the others hidden",
    ),
    "visible_transposed": (
        partial(crossed, combine=lambda keys, queries: queries, of_keys=False),
        "{} transposed",
    ),
    "visible_of_queries": (
        partial(crossed, combine=lambda keys, queries: queries, of_keys=True),
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
        lambda attempt, x: x & (distances(attempt) != 0),
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
        lambda attempt, x: x & np.pad(x[..., 1:], [*[(0, 0)] * (x.ndim - 1), (0, 1)]),
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
        lambda attempt, x: x | (np.arange(x.shape[-1]) == 0),
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


#: Other sides of a window that people mean, in words.
_MEANT: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "its sides exchanged": lambda a, b: (b, a),
    "half of its length": lambda a, b: (a // 2, b // 2),
    "half of its past on both sides": lambda a, b: (a // 2, a // 2),
    "half of its past and own key on both sides": lambda a, b: ((a + 1) // 2,) * 2,
    "the length of its past on both sides": lambda a, b: (a, a),
    "the length of its future on both sides": lambda a, b: (b, b),
    "both sides together in the past": lambda a, b: (a + b, 0),
    "both sides and the own key in the past": lambda a, b: (a + b + 1, 0),
    "twice its length": lambda a, b: (2 * a, 2 * b),
}


def _sides(own: tuple[Any, Any]) -> dict[tuple[Any, Any], str]:
    """Return other sides of a window, and words for those that people mean."""
    near = [
        (0, None) if side is None else (max(side - 1, 0), side, side + 1, 0, None)
        for side in own
    ]
    found = dict.fromkeys(product(*near), "")
    if None not in own:
        found |= {rule(*own): f", {words}" for words, rule in _MEANT.items()}
    found.pop(own, None)
    return found


def _words_of_side(own: Any, side: Any, name: str) -> str:
    """Say how one side of a window differs."""
    if side is None or own is None:
        return f"{f'{side} keys' if own is None else 'no bound'} in the {name}"
    step = side - own
    keys = {1: "one key", 2: "two keys"}.get(abs(step), f"{abs(step)} keys")
    return f"{keys} {'more' if step > 0 else 'fewer'} in the {name}"


def other_sides(attempt: Attempt, x: Array) -> Worded:
    own = tuple(attempt.get("window"))
    for sides, meant in _sides(own).items():
        names = zip(own, sides, ("past", "future"), strict=True)
        parts = [_words_of_side(a, b, name) for a, b, name in names if a != b]
        words = f"{{}} with {' and '.join(parts)}{meant}: {sides}, not {own}"
        yield words, _window(attempt, sides)


def other_ends(attempt: Attempt, x: Array) -> Worded:
    """Show a side alone, or count sides from key 0 or from the last key."""
    own, (left, right) = distances(attempt), attempt.get("window")
    lq, lk = attempt.lengths
    for side, seen in (("future", own > 0), ("past", own < 0)):
        yield f"{{}} with its {side} side alone, without the query's own key", x & seen
    for offset, where in (
        (0, "from key 0, by its row, not by its offset"),
        (lk - lq, "so that the last query is at the last key"),
    ):
        r = distances(attempt, np.asarray(offset))
        for side, past, future in (
            ("", r, r),
            (" in the past", r, own),
            (" in the future", own, r),
        ):
            seen = allowed(past, window=(left, None))
            seen = seen & allowed(future, window=(None, right))
            yield f"{{}}{side} counted {where}", seen


def _blocks(attempt: Attempt) -> Iterator[tuple[str, Array]]:
    """Yield words for blocks of keys, and how many blocks before a query's each is."""
    lq, lk = attempt.lengths
    past, future = (side or 0 for side in attempt.get("window"))
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
            sides = (past and past * factor, future and future * factor)
            seen = (r % step == 0) & _window(attempt, sides)
            words = f"{{}} with every key of distance {step} alone (dilated), {more}"
            yield words, seen


def windows() -> list[Changes]:
    return [changed("window", rule) for rule in (other_sides, other_ends, in_blocks)]


def windows_with_holes() -> list[Changes]:
    return [changed("window", with_holes)]


def window_of_diagonals(attempt: Attempt) -> Iterator[Attempt]:
    if (own := attempt.get("window")) is None:
        return
    kept = [x for n, x in attempt.sets.items() if n not in ("is_causal", "window")]
    near = {sign * (side or 0) + step for side in own for sign in (1, -1)
            for step in (-1, 0, 1)}  # fmt: skip
    r, diagonals = distances(attempt), sorted(near)
    ways = (("and", np.logical_and), ("or", np.logical_or))
    for (word, combine), last, first in product(ways, diagonals, diagonals):
        seen = combine(r <= last, r > first)
        detail = (
            f"the keys up to distance {last} {word} from distance {first + 1} on "
            "visible, not those of the window"
        )
        if not seen.all():
            yield from showing(attempt, [*kept, seen], detail)


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
    names = attempt.sets if "log_decay" not in attempt.keywords else ()
    for name, (visible, shows) in product(names, ((True, "shows"), (False, "hides"))):
        sets, finite = dict(attempt.sets), kept_bias(attempt)
        number = (sets.pop(name) == visible).astype(np.float64)
        number = number if finite is None else number + finite
        if sets:
            number = np.where(common(sets.values()), number, -np.inf)
        words = f"added to the scores, as 1 where it {shows} a key, else 0"
        yield replace(hidden_by(attempt, number), detail=f"{HIDING[name]} {words}")
