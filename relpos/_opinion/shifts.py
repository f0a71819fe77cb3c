"""Known changes of Transformer-XL's shift, and of the order of keys in a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt
from relpos._opinion.difference import Difference
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
    if past:
        x = x[..., :keys]
    if flipped:
        x = x[..., ::-1]
    queries, columns = x.shape[-2:]
    padding = np.zeros((*x.shape[:-1], 1))
    # Padded rows have one entry more. The right shift reads them as rows of `columns`
    # again, without the first Lq entries: row i begins Lq - i entries into its own
    # padded row, so that each row is moved by one entry more than the row behind it.
    flat = np.concatenate([x, padding] if behind else [padding, x], axis=-1)
    flat = flat.reshape(*x.shape[:-2], columns + 1, queries)
    rows = flat[..., :-1, :] if last else flat[..., 1:, :]
    rows = rows.reshape(*x.shape[:-2], queries, columns)
    return rows[..., -keys:] if end else rows[..., :keys]


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
    mistakes = [words for name, words in FLAGS.items() if flags.get(name)]
    wrong = " and ".join(words for words, _ in mistakes)
    right = " and ".join(advice for _, advice in mistakes)
    return f"{what} with {wrong}: {right}"


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
            skew = partial(
                skewed, past=past, flipped=flipped, behind=behind, last=last, end=end
            )
            yield replace(by_shift, skew=skew, detail=_said(SHIFT, flags))


def _across(x: Array, keys: int, flipped: bool, behind: bool, last: bool) -> Array:
    """Shift products along the queries."""
    # With its axes exchanged, the shift of the columns is one of the queries.
    transposed = np.swapaxes(x[..., :keys], -1, -2)
    moved = skewed(
        transposed,
        keys,
        past=True,
        flipped=flipped,
        behind=behind,
        last=last,
        end=False,
    )
    return np.swapaxes(moved, -1, -2)


def _words_across(flags: Mapping[str, bool]) -> str:
    words = f"{SHIFT} along the queries, not along the keys"
    return _said(f"{words}, and", flags) if any(flags.values()) else words


def _by_row(x: Array, keys: int, behind: bool, last: bool, flipped: bool) -> Array:
    """Pad products by a row of zeros, and drop a column."""
    x = x[..., :keys]
    if flipped:
        x = x[..., ::-1]
    padding = np.zeros((*x.shape[:-2], 1, keys))
    # With as many queries as keys, a row of padding has the entries that a column of
    # padding needs.
    padded = np.concatenate([x, padding] if behind else [padding, x], axis=-2)
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


#: Rows of the table: mistakes of the shift.
SHIFTS: tuple[Difference, ...] = (
    Difference(
        name="shift_padding",
        words=(
            f"{SHIFT} with its column of padding behind the last column: pad in front "
            "of the first column"
        ),
        forms=[partial(other_skews, behind=True)],
        tried="alone",
    ),
    Difference(
        name="shift_row",
        words=f"{SHIFT} with the last row dropped: drop the first row",
        forms=[partial(other_skews, last=True)],
        tried="alone",
    ),
    Difference(
        name="shift_padding_and_row",
        words=(
            f"{SHIFT} with its column of padding behind the last column and the last "
            "row dropped: pad in front of the first column and drop the first row"
        ),
        forms=[partial(other_skews, behind=True, last=True)],
        tried="alone",
    ),
    Difference(
        name="shift_columns",
        words=f"{SHIFT} with the last columns kept: keep the first columns",
        # Without flags the first two shifts are right ones, and are left out: the third
        # keeps the last columns.
        forms=[other_skews],
        tried="alone",
    ),
    Difference(
        name="shift_rows_reversed",
        words=(
            f"{SHIFT} with the rows of the table in reverse order, and another "
            "mistake of the shift"
        ),
        forms=[
            partial(other_skews, flipped=True),
            partial(other_skews, flipped=True, last=True),
            partial(other_skews, flipped=True, behind=True),
            partial(other_skews, flipped=True, behind=True, last=True),
        ],
        tried="alone",
    ),
    Difference(
        name="shift_of_queries",
        words=f"{SHIFT} along the queries, not along the keys",
        forms=[partial(of_squares, skew=_across, words=_words_across)],
        tried="alone",
    ),
)

padded_by_row = partial(of_squares, skew=_by_row, words=_words_by_row)


# ---- the order of the keys -----------------------------------------------------------


def ordered(attempt: Attempt, order: Array, *names: str) -> Attempt:
    """Take keys, values or both in another order; positions and masks stay."""
    operands = attempt.arguments(names)
    moved = {name: np.take(x, order, axis=-2) for name, x in operands.items()}
    return attempt.with_keywords(**moved)


def memory_behind(attempt: Attempt) -> Attempt | None:
    """Put the cached keys and values behind the new ones."""
    if not attempt.cached:
        return None
    return reordered(attempt, partial(np.roll, shift=-attempt.cached))


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
        if step == keys - attempt.cached:
            continue  # which is "memory_behind"
        moved = reordered(attempt, partial(np.roll, shift=step))
        detail = (
            "keys and values in another order than their positions: rolled by "
            f"{step}, as in a ring buffer (cache) that is not put in order"
        )
        if moved is not None:
            yield replace(moved, detail=detail)


def one_reordered(attempt: Attempt) -> Iterator[Attempt | None]:
    """Take keys or values alone in another order."""
    keys = np.arange(attempt.lengths[1])
    if len(keys) < 2:
        return
    orders = {"reversed": keys[::-1]}
    orders |= {f"rolled by {step}": np.roll(keys, step) for step in some(len(keys))}
    names = attempt.arguments(("key", "value"))
    for name, (words, order) in product(names, orders.items()):
        detail = f"keys in another order than the values: the {name}s alone {words}"
        yield replace(ordered(attempt, order, name), detail=detail)


#: Rows of the table of differences.
ROWS: tuple[Difference, ...] = (
    Difference(
        name="memory_behind",
        words=(
            "the memory (cached keys and values) behind the new keys, not before "
            "them: its order is not that of the positions"
        ),
        forms=[memory_behind],
        tried="single",
    ),
    Difference(
        name="keys_rolled",
        words=(
            "keys and values in another order than their positions: rolled, as in a "
            "ring buffer (cache) that is not put in order"
        ),
        forms=[rolled],
        tried="single",
    ),
    Difference(
        name="keys_reversed",
        words="keys and values in the reverse order of their positions",
        forms=[partial(reordered, rule=np.flip)],
        tried="single",
    ),
    Difference(
        name="keys_unlike_values",
        words=(
            "keys in another order than the values: only one of the two is rolled or "
            "reversed"
        ),
        forms=[one_reordered],
        tried="single",
    ),
)
