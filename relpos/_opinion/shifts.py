"""Known changes of Transformer-XL's shift, and of the order of keys in a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt, variant
from relpos._opinion.positions import some
from relpos._opinion.tables import tables_of
from relpos._opinion.visibility import shifted


def skewed(
    x: Array,
    keys: int,
    *,
    past: bool,
    flipped: bool,
    behind: bool,
    last: bool,
    end: bool,
) -> Array:
    """Shift rows of products by a column of padding and a row that is dropped.

    `behind`: pad behind the last column, not in front of the first. `last`: drop the
    last row, not the first. `end`: keep the last columns, not the first.
    """
    x = x[..., :keys] if past else x
    x = x[..., ::-1] if flipped else x
    queries, columns = x.shape[-2:]
    parts = [np.zeros((*x.shape[:-1], 1)), x]
    flat = np.concatenate(parts[::-1] if behind else parts, axis=-1)
    flat = flat.reshape(*x.shape[:-2], columns + 1, queries)
    kept = flat[..., :-1, :] if last else flat[..., 1:, :]
    kept = kept.reshape(*x.shape[:-2], queries, columns)
    return kept[..., -keys:] if end else kept[..., :keys]


def other_skews(attempt: Attempt) -> Iterator[Attempt]:
    by_shift = shifted(attempt)
    for past, *flags in product((True, False), repeat=5):
        flipped, behind, last, end = flags
        if by_shift is None or not any(flags) or (past and end):
            continue
        skew = partial(
            skewed, past=past, flipped=flipped, behind=behind, last=last, end=end
        )
        yield replace(by_shift, skew=skew)


def _across(x: Array, keys: int, **flags: bool) -> Array:
    turned = np.swapaxes(x[..., :keys], -1, -2)
    found = skewed(turned, keys, past=True, end=False, **flags)
    return np.swapaxes(found, -1, -2)


def _by_row(x: Array, keys: int, behind: bool, last: bool, flipped: bool) -> Array:
    """Pad products by a row of zeros, and drop a column."""
    x = x[..., :keys]
    x = x[..., ::-1] if flipped else x
    parts = [np.zeros((*x.shape[:-2], 1, keys)), x]
    padded = np.concatenate(parts[::-1] if behind else parts, axis=-2)
    padded = padded.reshape(*x.shape[:-1], keys + 1)
    return padded[..., :-1] if last else padded[..., 1:]


@variant
def of_squares(attempt: Attempt, skew: Callable[..., Array]) -> Iterator[Attempt]:
    """Use a shift of as many queries as keys, with all of its flags."""
    by_shift = shifted(attempt)
    if by_shift is None or len({*attempt.lengths}) != 1:
        return
    for flipped, behind, last in product((False, True), repeat=3):
        flags = {"flipped": flipped, "behind": behind, "last": last}
        yield replace(by_shift, skew=partial(skew, **flags))


transposed_skews, padded_by_row = of_squares(_across), of_squares(_by_row)


# ---- the order of the keys -----------------------------------------------------------


def ordered(attempt: Attempt, order: Array, *names: str) -> Attempt:
    """Take keys, values or both in another order; positions and masks stay."""
    given = attempt.given(names)
    new = {name: np.take(x, order, axis=-2) for name, x in given.items()}
    return attempt.with_keywords(**new)


def memory_behind(attempt: Attempt) -> Attempt | None:
    split = attempt.cached
    return reordered(attempt, lambda x: np.roll(x, -split)) if split else None


def reordered(attempt: Attempt, rule: Callable[[Array], Array]) -> Attempt | None:
    """Take keys and values in another order, where they have positions."""
    # with a mask alone, another mask could be what differs
    known = attempt.get("is_causal") or attempt.get("window") is not None
    placed = known or attempt.rotary is not None or tables_of(attempt)
    if attempt.lengths[1] < 2 or not placed:
        return None
    return ordered(attempt, rule(np.arange(attempt.lengths[1])), "key", "value")


def rolled(attempt: Attempt) -> Iterator[Attempt | None]:
    keys = attempt.lengths[1]
    for step in some(keys):
        if step != keys - attempt.cached:
            yield reordered(attempt, partial(np.roll, shift=step))


def one_reordered(attempt: Attempt) -> Iterator[Attempt | None]:
    keys = np.arange(attempt.lengths[1])
    orders = [keys[::-1], *(np.roll(keys, step) for step in some(len(keys)))]
    names = attempt.given(("key", "value"))
    for name, order in product(names, orders if len(keys) > 1 else ()):
        yield ordered(attempt, order, name)


#: Differences in words, and the changes that make them.
ROWS = {
    "memory_behind": (
        "the memory (cached keys and values) behind the new keys, not before them: its "
        "order is not that of the positions",
        memory_behind,
    ),
    "keys_rolled": (
        "keys and values in another order than their positions: rolled, as in a ring "
        "buffer (cache) that is not put in order",
        rolled,
    ),
    "keys_reversed": (
        "keys and values in the reverse order of their positions",
        partial(reordered, rule=np.flip),
    ),
    "keys_unlike_values": (
        "keys in another order than the values: only one of the two is rolled or "
        "reversed",
        one_reordered,
    ),
}
