"""Known changes of the positions by which rotary rotates queries and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt, Change, variant

#: The most keys of which each is tried as the first of another sequence.
EACH = 64

#: Rules of positions, in words to follow "rotated".
RULES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "at_0": ("at position 0, not at their own positions", np.zeros_like),
    "from_0": (
        "at positions that begin at 0: add the offset",
        lambda t: t - t[..., :1],
    ),
    "doubled": (
        "twice, at doubled positions: rotate them once, not again",
        lambda t: 2 * t,
    ),
    "one_later": ("one position later than the others", lambda t: t + 1),
    "one_earlier": ("one position earlier than the others", lambda t: t - 1),
    "from_1": (
        "at positions that begin at 1: add the offset, less 1",
        lambda t: t - t[..., :1] + 1,
    ),
    "at_first": (
        "at one position, that of the first",
        lambda t: np.broadcast_to(t[..., :1], t.shape),
    ),
    "at_last": (
        "at one position, that of the last",
        lambda t: np.broadcast_to(t[..., -1:], t.shape),
    ),
    "backwards": ("at positions in the reverse order", lambda t: t[..., ::-1]),
}
#: Queries or keys that a rule may hold for, in words: queries, cached and new keys.
WHOSE = {
    "cached_keys": ("the cached keys", (False, True, False)),
    "new": ("new queries and keys", (True, False, True)),
    "new_keys": ("the new keys", (False, False, True)),
    "queries": ("the queries", (True, False, False)),
    "keys": ("the keys", (False, True, True)),
    "all": ("queries and keys", (True, True, True)),
}


def moved(attempt: Attempt, query: Array, key: Array) -> Attempt | None:
    """Use other positions, where they change any distance."""
    if (rotary := attempt.rotary) is None or rotary.of_angles:
        return None
    own = rotary.key_positions[..., None, :] - rotary.query_positions[..., :, None]
    new = key[..., None, :] - query[..., :, None]
    if own.shape == new.shape and (own == new).all():
        return None
    return replace(
        attempt, rotary=rotary._replace(query_positions=query, key_positions=key)
    )


Rule = Callable[[Array], Array]


@variant
def placed(
    attempt: Attempt, of_query: Rule, of_cached: Rule, of_new: Rule
) -> Attempt | None:
    """Move the queries, the cached keys and the new keys, by a rule for each."""
    split, rotary = attempt.cached, attempt.rotary
    if rotary is None or rotary.of_angles or (of_cached is not of_new and not split):
        return None
    key = rotary.key_positions
    if of_cached is of_new:
        key = of_new(key)
    else:
        parts = of_cached(key[..., :split]), of_new(key[..., split:])
        key = np.concatenate(parts, axis=-1)
    return moved(attempt, of_query(rotary.query_positions), key)


def by_rule(whose: str, rule: Rule) -> Change:
    """Make a change of the positions of some by a rule."""
    return placed(*(rule if own else np.asarray for own in WHOSE[whose][1]))


#: Words, or "" for those of the row, and positions of queries and keys.
Both = tuple[str, Array, Array]


@variant
def changes(
    attempt: Attempt, rule: Callable[[Array, Array], Iterator[Both]]
) -> Iterator[Attempt | None]:
    """Use the positions of queries and keys that a rule yields."""
    rotary = attempt.rotary
    if rotary is not None and not rotary.of_angles:
        for words, query, key in rule(rotary.query_positions, rotary.key_positions):
            found = moved(attempt, query, key)
            yield found and replace(found, detail=words)


@changes
def keys_from_query_0(query: Array, key: Array) -> Iterator[Both]:
    yield "", query, query[..., :1] + np.arange(key.shape[-1])


def some(count: int) -> list[int]:
    """List the numbers from 1 to count - 1, or `EACH` of them."""
    chosen = np.linspace(1, count - 1, min(EACH, max(count - 1, 0)))
    return [*map(int, dict.fromkeys(np.rint(chosen)))]


def restarted(query: Array, key: Array) -> Iterator[Both]:
    begin = key[..., :1]
    for first in some(key.shape[-1]):
        for again in (0, 1):
            late = key >= begin + first
            own = np.where(late, key - first - begin + again, key)
            yield "", query, own
            late = query >= begin + first
            yield "", np.where(late, query - first - begin + again, query), own


def joined(query: Array, key: Array) -> Iterator[Both]:
    for first in some(key.shape[-1]):
        again = key - np.where(key >= key[..., :1] + first, first, 0)
        yield "", query, np.where(key < query[..., :1], again, key)


#: Rules of positions from some length on, in words to follow "positions".
_ENDS: dict[str, tuple[Callable[[Array, int], Array], int]] = {
    "that begin again at 0 from {} on": (np.mod, 0),
    "that stay at {} from there on": (np.minimum, 1),
    "divided by {} and rounded down": (np.floor_divide, 0),
}


def ended(query: Array, key: Array) -> Iterator[Both]:
    for length in some(int(max(query.max(initial=0), key.max(initial=0))) + 1):
        for words, (rule, less) in _ENDS.items():
            detail = f"positions {words.format(length - less)}"
            of_query, of_key = (rule(x, length - less) for x in (query, key))
            yield f"{detail}, of the keys alone", query, of_key
            yield detail, of_query, of_key


def stretched(query: Array, key: Array) -> Iterator[Both]:
    keys, turn = key.shape[-1], 2.0 * np.pi
    lengths = [1 / keys, 1 / max(keys - 1, 1), turn / keys]
    angles = (turn, turn / 2, turn / 360, 360 / turn)
    for factor in (2, 0.5, 4, 0.25, 8, 0.125, 16, 0.0625, *lengths, *angles):
        words = f"positions multiplied by {factor:.4g}"
        yield words, query * factor, key * factor
    for factor in (2, 0.5, 4, 0.25, 8, 0.125):
        words = f"positions of the {{}} alone multiplied by {factor:.4g}"
        yield words.format("queries"), query * factor, key
        yield words.format("keys"), query, key * factor


def padding_counted(query: Array, key: Array) -> Iterator[Both]:
    """Count positions along the axis, as if no key were padding."""
    queries, keys = query.shape[-1], key.shape[-1]
    along = np.arange(keys) + key[..., -1:] * 0.0
    new, old = along[..., keys - queries :], keys - queries
    words = "rotated by their index, which counts the padding before them"
    advice = "continue the positions of the cached keys"
    yield f"new queries {words}: {advice}", new, key
    detail = f"new queries and keys {words}: {advice}"
    yield detail, new, np.concatenate([key[..., :old], new], axis=-1)


@variant
def moved_by(attempt: Attempt, whose: str) -> Iterator[Attempt | None]:
    """Add each number to the positions of some."""
    steps = some(attempt.lengths[1] + 2) if attempt.rotary else ()
    for step, sign in product(steps, (1, -1)):
        found = by_rule(whose, partial(np.add, sign * step))(attempt)
        side = "later" if sign > 0 else "earlier"
        words = f"{WHOSE[whose][0]} rotated {step} positions {side} than the others"
        yield found and replace(found, detail=f"{words}, as by another offset")


def of_heads(attempt: Attempt) -> Attempt | None:
    head = np.arange(attempt.get("query").shape[-3])[:, None]
    lq, lk = attempt.lengths
    of_key = head // attempt.group
    return moved(attempt, *(np.repeat(x, n, 1) for x, n in ((head, lq), (of_key, lk))))


def mixed(attempt: Attempt) -> Iterator[Attempt | None]:
    """Try rules for the queries, the cached keys and the new keys, one for each."""
    names = (
        ("at_0", "from_0", "one_later", "one_earlier", "doubled"),
        ("from_1", "one_earlier", "doubled"),
        ("at_0", "from_0", "from_1", "one_earlier", "doubled"),
    )
    whole: Rule = np.asarray
    rules = [[whole, *(RULES[name][1] for name in row)] for row in names]
    for own in product(*rules) if attempt.cached else ():
        yield placed(*own)(attempt)


#: Differences in words, and the changes that make them.
ROWS = {
    **{
        f"rotary_{whose}_{name}": (f"{who} rotated {how}", by_rule(whose, rule))
        for whose, (who, _) in WHOSE.items()
        for name, (how, rule) in RULES.items()
    },
    "rotary_keys_restarted": (
        "the positions of the keys counted from 0 again at some key, as of a second "
        "cache or chunk: add the number of keys before it",
        changes(restarted),
    ),
    "rotary_positions_end": (
        "positions that begin again, or stay the same, from some length on",
        changes(ended),
    ),
    "rotary_positions_scaled": (
        "positions of queries, keys or both multiplied by a factor, as by "
        "interpolation, degrees or turns, or divided by the length",
        changes(stretched),
    ),
    **{
        f"rotary_{whose}_moved": (
            f"{WHOSE[whose][0]} rotated some positions later or earlier than the "
            "others, as by another offset",
            moved_by(whose),
        )
        for whose in ("queries", "new", "new_keys")
    },
    "rotary_padding_counted": (
        "new queries, or new queries and keys, rotated by their index, which counts "
        "the padding before them: continue the positions of the cached keys",
        changes(padding_counted),
    ),
    "rotary_of_heads": (
        "queries and keys rotated by the number of their head, along the axis of heads",
        of_heads,
    ),
    "rotary_positions_mixed": (
        "queries, cached keys and new keys rotated by positions of different rules: "
        "count all of them from the first key",
        mixed,
    ),
}
