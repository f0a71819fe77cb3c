"""Known changes of Transformer-XL's shift, and of the order of keys in a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

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


SHIFT = "the shift (skew)"
#: Mistakes of a shift, in words, and what is right: names of flags of `skewed`.
FLAGS = {
    "flipped": ("the rows of the table in reverse order", "keep their order"),
    "behind": (
        "its column of padding behind the last column",
        "pad in front of the first column",
    ),
    "last": ("the last row dropped", "drop the first row"),
    "end": ("the last columns kept", "keep the first columns"),
}


def _said(what: str, flags: Mapping[str, bool]) -> str:
    """Say which mistakes a shift has, and what is right in their place."""
    told = [words for name, words in FLAGS.items() if flags.get(name)]
    wrong, right = (" and ".join(x) for x in zip(*told, strict=True))
    return f"{what} with {wrong}: {right}"


@variant
def other_skews(
    attempt: Attempt, flipped: bool = False, behind: bool = False, last: bool = False
) -> Iterator[Attempt]:
    """Use a shift with these mistakes, of the past or of all rows; then with `end`."""
    by_shift, is_causal = shifted(attempt), bool(attempt.get("is_causal"))
    for past, end in ((True, False), (False, False), (False, True)):
        flags = {"flipped": flipped, "behind": behind, "last": last, "end": end}
        # Rows in reverse order alone are no mistake of the shift. In a causal call
        # they are the same with the last columns.
        is_order = flipped and not (behind or last)
        is_order = is_order and (is_causal or not (past or end))
        if by_shift is not None and any(flags.values()) and not is_order:
            given: dict[str, Any] = {"past": past, **flags}
            skew = partial(skewed, **given)
            yield replace(by_shift, skew=skew, detail=_said(SHIFT, flags))


def _across(x: Array, keys: int, **flags: bool) -> Array:
    turned = np.swapaxes(x[..., :keys], -1, -2)
    found = skewed(turned, keys, past=True, end=False, **flags)
    return np.swapaxes(found, -1, -2)


def _words_across(flags: Mapping[str, bool]) -> str:
    words = f"{SHIFT} along the queries, not along the keys"
    return _said(f"{words}, and", flags) if any(flags.values()) else words


def _by_row(x: Array, keys: int, behind: bool, last: bool, flipped: bool) -> Array:
    """Pad products by a row of zeros, and drop a column."""
    x = x[..., :keys]
    x = x[..., ::-1] if flipped else x
    parts = [np.zeros((*x.shape[:-2], 1, keys)), x]
    padded = np.concatenate(parts[::-1] if behind else parts, axis=-2)
    padded = padded.reshape(*x.shape[:-1], keys + 1)
    return padded[..., :-1] if last else padded[..., 1:]


def _words_by_row(flags: Mapping[str, bool]) -> str:
    where = "behind the last row" if flags["behind"] else "in front of the first row"
    column = "last" if flags["last"] else "first"
    order = ", of the rows of the table in reverse order" if flags["flipped"] else ""
    return (
        f"{SHIFT} with a row of padding {where}, and the {column} column dropped"
        f"{order}: pad in front of the first column and drop the first row"
    )


@variant
def of_squares(
    attempt: Attempt,
    skew: Callable[..., Array],
    words: Callable[[Mapping[str, bool]], str],
) -> Iterator[Attempt]:
    """Use a shift of as many queries as keys, with all of its flags."""
    by_shift = shifted(attempt)
    if by_shift is None or len({*attempt.lengths}) != 1:
        return
    for flipped, behind, last in product((False, True), repeat=3):
        flags = {"flipped": flipped, "behind": behind, "last": last}
        yield replace(by_shift, skew=partial(skew, **flags), detail=words(flags))


#: Differences of the shift in words, and the changes that make them.
SHIFTS = {
    "shift_padding": (
        f"{SHIFT} with its column of padding behind the last column: pad in front of "
        "the first column",
        other_skews(behind=True),
    ),
    "shift_row": (
        f"{SHIFT} with the last row dropped: drop the first row",
        other_skews(last=True),
    ),
    "shift_padding_and_row": (
        f"{SHIFT} with its column of padding behind the last column and the last row "
        "dropped: pad in front of the first column and drop the first row",
        other_skews(behind=True, last=True),
    ),
    "shift_columns": (
        f"{SHIFT} with the last columns kept: keep the first columns",
        other_skews(),
    ),
    "shift_rows_reversed": (
        f"{SHIFT} with the rows of the table in reverse order, and another mistake of "
        "the shift",
        *(
            other_skews(flipped=True, behind=behind, last=last)
            for behind, last in product((False, True), repeat=2)
        ),
    ),
    "shift_of_queries": (
        f"{SHIFT} along the queries, not along the keys",
        of_squares(_across, _words_across),
    ),
}

padded_by_row = of_squares(_by_row, _words_by_row)


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
            found = reordered(attempt, partial(np.roll, shift=step))
            detail = (
                "keys and values in another order than their positions: rolled by "
                f"{step}, as in a ring buffer (cache) that is not put in order"
            )
            yield found and replace(found, detail=detail)


def one_reordered(attempt: Attempt) -> Iterator[Attempt | None]:
    keys = np.arange(attempt.lengths[1])
    orders = {"reversed": keys[::-1]}
    orders |= {f"rolled by {step}": np.roll(keys, step) for step in some(len(keys))}
    names = attempt.given(("key", "value"))
    for name, words in product(names, orders if len(keys) > 1 else ()):
        detail = f"keys in another order than the values: the {name}s alone {words}"
        yield replace(ordered(attempt, orders[words], name), detail=detail)


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
