"""Known changes of causal masks that bring position terms of later keys into view.

The mask hides these terms, and so an implementation may have any there. Where the mask
is applied otherwise, they count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from relpos._checks import Array
from relpos._opinion import fire
from relpos._opinion.attempt import (
    Attempt,
    Change,
    Changes,
    attempts_with,
    common,
    distances,
)
from relpos._opinion.biases import Slopes, by_slopes
from relpos._opinion.operands import has_numbers
from relpos._opinion.tables import (
    Rows,
    by_labels,
    by_position,
    not_later,
    reaches_beyond,
    signless_past,
    spans_of,
)
from relpos._opinion.visibility import shifted

#: Terms that follow from the positions of a pair.
PLACED = ("rel_key", "pos_bias_v", "position_query", "rel_query", "rel_bias")


def hides_later(attempt: Attempt) -> bool:
    """Return True if some pairs are hidden, and among them all with a later key."""
    sets = attempt.sets.values()
    return bool(sets) and not (common(sets) & (distances(attempt) > 0)).any()


@by_labels
def _wrapped(attempt: Attempt, r: Array, first: int, count: int) -> Rows:
    yield "", (r - first) % count


def _by_rule(rule: Callable[[Array], Array]) -> Changes:
    """Give r the rows of rule(r), which may lie where the table has none for r."""

    @by_labels
    def labelled(attempt: Attempt, r: Array, first: int, count: int) -> Rows:
        yield "", rule(r) - first

    def changed(attempt: Attempt) -> Iterator[Attempt | None]:
        # Labels take the nearest row, and cannot stand for zeros beyond a table.
        zeros = attempt.get("beyond") == "zero" and reaches_beyond(attempt)
        if len(spans_of(attempt)) == 1 and not zeros:
            yield from labelled(attempt)
        else:
            yield by_position(attempt, change=rule)

    return changed


def _signed(alibi: Slopes) -> Iterator[Array]:
    yield alibi.slopes * alibi.r


def _nothing(attempt: Attempt) -> Attempt | None:
    """Give what is hidden no position term."""
    names = [*attempt.arguments(PLACED)]
    if has_numbers(attempt, "attn_mask"):
        names.append("attn_mask")
    # The terms are multiplied by 0 where the pair is hidden.
    seen = common(attempt.sets.values()).astype(np.float64)
    return attempt.times(seen, *names) if names else None


#: Position terms that later keys may have, in words.
TERMS_OF_LATER: dict[str, Change | Changes] = {
    "wrapped entries of the shift": shifted,
    "no position terms": _nothing,
    "rows of the distance without its sign": _by_rule(signless_past),
    "the row of distance 0": _by_rule(not_later),
    "rows from the end of the table, as of a negative index": _wrapped,
    "ALiBi's bias of the other sign": partial(by_slopes, rule=_signed),
    "FIRE's bias of distance 0": fire.of_past,
}


def with_later(change: Change | Changes, words: str = "") -> Changes:
    """Make a change of a mask with each of the other terms of later keys.

    The words are for changes that have none of their own.
    """

    def changes(attempt: Attempt) -> Iterator[Attempt]:
        if not hides_later(attempt):
            return
        for terms, other in TERMS_OF_LATER.items():
            for later in attempts_with(other, attempt):
                # The words of the terms are put behind those of the mask.
                for changed in attempts_with(change, replace(later, detail="")):
                    detail = f"{changed.detail or words}, with {terms} for later keys"
                    yield replace(changed, detail=detail)

    return changes
