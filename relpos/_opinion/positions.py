"""Known changes of the positions by which rotary rotates queries and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt
from relpos._opinion.difference import Difference
from relpos._text import amount

#: The most keys of which each is tried as the first of another sequence.
EACH = 64

#: A function of positions (..., L).
Rule = Callable[[Array], Array]


def _from_0(positions: Array) -> Array:
    """Begin at 0."""
    return np.asarray(positions - positions[..., :1])


def _from_1(positions: Array) -> Array:
    """Begin at 1."""
    return np.asarray(positions - positions[..., :1] + 1)


def _doubled(positions: Array) -> Array:
    """Double the positions, as by a second rotation."""
    return 2 * positions


def _one_later(positions: Array) -> Array:
    """Add 1."""
    return positions + 1


def _one_earlier(positions: Array) -> Array:
    """Subtract 1."""
    return positions - 1


def _at_first(positions: Array) -> Array:
    """Use the first position for all."""
    return np.broadcast_to(positions[..., :1], positions.shape)


def _at_last(positions: Array) -> Array:
    """Use the last position for all."""
    return np.broadcast_to(positions[..., -1:], positions.shape)


def _backwards(positions: Array) -> Array:
    """Reverse the positions."""
    return positions[..., ::-1]


#: Rules of positions, in words to follow "rotated".
RULES: dict[str, tuple[str, Rule]] = {
    "at_0": ("at position 0, not at their own positions", np.zeros_like),
    "from_0": ("at positions that begin at 0: add the offset", _from_0),
    "doubled": ("twice, at doubled positions: rotate them once, not again", _doubled),
    "one_later": ("one position later than the others", _one_later),
    "one_earlier": ("one position earlier than the others", _one_earlier),
    "from_1": ("at positions that begin at 1: add the offset, less 1", _from_1),
    "at_first": ("at one position, that of the first", _at_first),
    "at_last": ("at one position, that of the last", _at_last),
    "backwards": ("at positions in the reverse order", _backwards),
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
    rotary = attempt.rotary
    if rotary is None or rotary.of_angles:
        return None
    # Scores follow from distances: positions that keep all of them change nothing.
    right = rotary.key_positions[..., None, :] - rotary.query_positions[..., :, None]
    changed = key[..., None, :] - query[..., :, None]
    if right.shape == changed.shape and (right == changed).all():
        return None
    return replace(
        attempt, rotary=rotary._replace(query_positions=query, key_positions=key)
    )


def placed(
    attempt: Attempt, of_query: Rule, of_cached: Rule, of_new: Rule
) -> Attempt | None:
    """Move the queries, the cached keys and the new keys, by a rule for each."""
    split, rotary = attempt.cached, attempt.rotary
    if rotary is None or rotary.of_angles:
        return None
    # Without cached keys one rule is for all keys.
    if of_cached is not of_new and not split:
        return None
    # One rule for all keys may use the first of them. A rule for a part has its own
    # first.
    key = rotary.key_positions
    if of_cached is of_new:
        key = of_new(key)
    else:
        parts = of_cached(key[..., :split]), of_new(key[..., split:])
        key = np.concatenate(parts, axis=-1)
    return moved(attempt, of_query(rotary.query_positions), key)


def by_rule(attempt: Attempt, whose: str, rule: Rule) -> Attempt | None:
    """Change the positions of some by a rule; the others keep theirs."""
    _, changed = WHOSE[whose]
    of_query, of_cached, of_new = (rule if moves else np.asarray for moves in changed)
    return placed(attempt, of_query, of_cached, of_new)


#: Words, or "" for those of the row, and positions of queries and keys.
Both = tuple[str, Array, Array]


def changes(
    attempt: Attempt, rule: Callable[[Array, Array], Iterator[Both]]
) -> Iterator[Attempt]:
    """Use the positions of queries and keys that a rule yields."""
    rotary = attempt.rotary
    if rotary is not None and not rotary.of_angles:
        for words, query, key in rule(rotary.query_positions, rotary.key_positions):
            changed = moved(attempt, query, key)
            if changed is not None:
                yield replace(changed, detail=words)


def from_query_0(query: Array, key: Array) -> Iterator[Both]:
    """Count the keys from the position of the first query on."""
    yield "", query, query[..., :1] + np.arange(key.shape[-1])


def some(count: int) -> list[int]:
    """List the numbers from 1 to count - 1, or `EACH` of them."""
    # Of more numbers than `EACH` those are taken that are spread evenly.
    chosen = np.linspace(1, count - 1, min(EACH, max(count - 1, 0)))
    return [*map(int, dict.fromkeys(np.rint(chosen)))]


def restarted(query: Array, key: Array) -> Iterator[Both]:
    begin = key[..., :1]
    for first in some(key.shape[-1]):
        for again in (0, 1):
            late = key >= begin + first
            of_key = np.where(late, key - first - begin + again, key)
            yield "", query, of_key
            late = query >= begin + first
            yield "", np.where(late, query - first - begin + again, query), of_key


def joined(query: Array, key: Array) -> Iterator[Both]:
    """Count the cached keys from 0 again at some key."""
    for first in some(key.shape[-1]):
        # Keys before the first query are the cached ones.
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
        # Positions that stay have the last one of this length, which is one less.
        for words, (rule, less) in _ENDS.items():
            end = length - less
            detail = f"positions {words.format(end)}"
            of_query, of_key = rule(query, end), rule(key, end)
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
    # The product with 0 gives the index the batch axes of the positions.
    along = np.arange(keys) + key[..., -1:] * 0.0
    # The queries are the last positions, with the new keys.
    new, old = along[..., keys - queries :], keys - queries
    words = "rotated by their index, which counts the padding before them"
    advice = "continue the positions of the cached keys"
    yield f"new queries {words}: {advice}", new, key
    detail = f"new queries and keys {words}: {advice}"
    yield detail, new, np.concatenate([key[..., :old], new], axis=-1)


def moved_by(attempt: Attempt, whose: str) -> Iterator[Attempt]:
    """Add each number to the positions of some."""
    if attempt.rotary is None:
        return
    for step, sign in product(some(attempt.lengths[1] + 2), (1, -1)):
        changed = by_rule(attempt, whose, partial(np.add, sign * step))
        side = "later" if sign > 0 else "earlier"
        places = amount(step, "position")
        words = f"{WHOSE[whose][0]} rotated {places} {side} than the others"
        if changed is not None:
            yield replace(changed, detail=f"{words}, as by another offset")


def of_heads(attempt: Attempt) -> Attempt | None:
    """Rotate by the number of the head."""
    head = np.arange(attempt.get("query").shape[-3])[:, None]
    queries, keys = attempt.lengths
    of_query = np.repeat(head, queries, axis=1)
    # Keys were repeated for the query heads: a key has the number of its own head.
    of_key = np.repeat(head // attempt.group, keys, axis=1)
    return moved(attempt, of_query, of_key)


def mixed(attempt: Attempt) -> Iterator[Attempt | None]:
    """Try rules for the queries, the cached keys and the new keys, one for each."""
    if not attempt.cached:
        return
    # Each set has the right rule too, so that one, two or all three may be wrong.
    right: Rule = np.asarray
    of_query = [right, np.zeros_like, _from_0, _one_later, _one_earlier, _doubled]
    of_cached = [right, _from_1, _one_earlier, _doubled]
    of_new = [right, np.zeros_like, _from_0, _from_1, _one_earlier, _doubled]
    for query_rule, cached_rule, new_rule in product(of_query, of_cached, of_new):
        yield placed(attempt, query_rule, cached_rule, new_rule)


#: Rows of the table of differences.
ROWS: tuple[Difference, ...] = (
    *[
        Difference(
            name=f"rotary_{whose}_{name}",
            words=f"{who} rotated {how}",
            forms=[partial(by_rule, whose=whose, rule=rule)],
            tried="alone",
        )
        for whose, (who, _) in WHOSE.items()
        for name, (how, rule) in RULES.items()
    ],
    Difference(
        name="rotary_keys_restarted",
        words=(
            "the positions of the keys counted from 0 again at some key, as of a "
            "second cache or chunk: add the number of keys before it"
        ),
        forms=[partial(changes, rule=restarted)],
        tried="alone",
    ),
    Difference(
        name="rotary_positions_end",
        words="positions that begin again, or stay the same, from some length on",
        forms=[partial(changes, rule=ended)],
        tried="alone",
    ),
    Difference(
        name="rotary_positions_scaled",
        words=(
            "positions of queries, keys or both multiplied by a factor, as by "
            "interpolation, degrees or turns, or divided by the length"
        ),
        forms=[partial(changes, rule=stretched)],
        tried="alone",
    ),
    *[
        Difference(
            name=f"rotary_{whose}_moved",
            words=(
                f"{WHOSE[whose][0]} rotated some positions later or earlier than the "
                "others, as by another offset"
            ),
            forms=[partial(moved_by, whose=whose)],
            tried="alone",
        )
        for whose in ("queries", "new", "new_keys")
    ],
    Difference(
        name="rotary_padding_counted",
        words=(
            "new queries, or new queries and keys, rotated by their index, which "
            "counts the padding before them: continue the positions of the cached keys"
        ),
        forms=[partial(changes, rule=padding_counted)],
        tried="alone",
    ),
    Difference(
        name="rotary_of_heads",
        words=(
            "queries and keys rotated by the number of their head, along the axis of "
            "heads"
        ),
        forms=[of_heads],
        tried="alone",
    ),
    Difference(
        name="rotary_positions_mixed",
        words=(
            "queries, cached keys and new keys rotated by positions of different "
            "rules: count all of them from the first key"
        ),
        forms=[mixed],
        tried="alone",
    ),
)
