"""What people do to masks, offsets and the softmax: who sees what, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt, relative_to
from relpos._opinion.tables import Change, tables_of

#: Arguments that hide.
HIDING = ("is_causal", "window", "key_lengths", "key_ranges", "attn_mask")


def hides(attempt: Attempt) -> bool:
    """Whether an argument may hide something."""
    mask = attempt.get("attn_mask")
    masks = mask is not None and (mask.dtype == bool or np.isneginf(mask).any())
    others = (attempt.get(name) for name in HIDING[1:4])
    return bool(masks or attempt.get("is_causal")) or any(x is not None for x in others)


def kept_bias(attempt: Attempt) -> Any:
    """Of the mask what is no number of hiding."""
    mask = attempt.get("attn_mask")
    if mask is None or mask.dtype == bool:
        return None
    return np.where(np.isneginf(mask), 0.0, mask)


def all_seen(attempt: Attempt) -> Attempt | None:
    """Nothing hides."""
    if not hides(attempt):
        return None
    changed = {**dict.fromkeys(HIDING), "attn_mask": kept_bias(attempt)}
    return attempt.with_keywords(**changed)


def all_seen_by_shift(attempt: Attempt) -> Attempt | None:
    """Nothing hides, and the position term is that of the causal shift."""
    found = shifted(attempt)
    return None if found is None else all_seen(found)


def shifted(attempt: Attempt) -> Attempt | None:
    """The causal shift in place of rows looked up: for later keys it has no row."""
    own = {"position_query", "labels", "buckets", "rel_query"} & attempt.keywords.keys()
    if "rel_key" not in attempt.keywords or own:
        return None
    offset = attempt.offset
    lq, lk = attempt.lengths
    return replace(attempt, shifted=True) if (offset == lk - lq).all() else None


def shift_in_encoder(attempt: Attempt) -> Attempt | None:
    """The same where later keys are seen."""
    return None if attempt.get("is_causal") else shifted(attempt)


def visible_only(attempt: Attempt) -> Attempt | None:
    """Compared where the mask hides nothing."""
    return replace(attempt, hiding="visible") if hides(attempt) else None


def without_hiding(name: str) -> Change:
    """One argument that hides is ignored."""

    def change(attempt: Attempt) -> Attempt | None:
        if attempt.get(name) is None or attempt.get(name) is False:
            return None
        kept = kept_bias(attempt) if name == "attn_mask" else None
        return attempt.with_keywords(**{name: kept})

    return change


def mask_inverted(attempt: Attempt) -> Attempt | None:
    mask = attempt.get("attn_mask")
    if mask is None or mask.dtype != bool:
        return None
    return attempt.with_keywords(attn_mask=~mask)


def mask_transposed(attempt: Attempt) -> Attempt | None:
    mask = attempt.get("attn_mask")
    if mask is None or mask.ndim < 2 or mask.shape[-1] != mask.shape[-2]:
        return None
    return attempt.with_keywords(attn_mask=np.swapaxes(mask, -1, -2))


def causal_by(rule: Callable[[Array, Attempt], Array]) -> Change:
    """Causality by another rule, of the relative position; tables keep their rows."""

    def change(attempt: Attempt) -> Attempt | None:
        if not attempt.get("is_causal") or "log_decay" in attempt.keywords:
            return None
        mask, see = attempt.get("attn_mask"), rule(relative_to(attempt), attempt)
        see = see[..., None, :, :] if see.ndim > 2 else see
        if mask is None or mask.dtype == bool:
            see = see if mask is None else see & mask
        else:
            see = np.where(see, mask, -np.inf)
        return attempt.with_keywords(is_causal=None, attn_mask=see)

    return change


def from_corner(end: bool) -> Callable[[Array, Attempt], Array]:
    """Query 0 at key 0, or the last query at the last key."""

    def rule(r: Array, attempt: Attempt) -> Array:
        lq, lk = attempt.lengths
        offset = lk - lq if end else 0
        return np.arange(lk) <= np.arange(lq)[:, None] + offset

    return rule


def causal_at(end: bool) -> Change:
    """A triangle from the other corner, where it is another one."""

    def change(attempt: Attempt) -> Attempt | None:
        lq, lk = attempt.lengths
        offset = attempt.offset
        if (offset == (lk - lq if end else 0)).all():
            return None
        return causal_by(from_corner(end))(attempt)

    return change


def causal_untold(attempt: Attempt) -> Attempt | None:
    """Causality that the call does not have."""
    if attempt.get("is_causal"):
        return None
    if "query_offset" in attempt.keywords:
        return attempt.with_keywords(is_causal=True)
    lq, lk = attempt.lengths
    return attempt.with_keywords(is_causal=True, query_offset=lk - lq)


causal_strictly = causal_by(lambda r, attempt: r < 0)
causal_and_next = causal_by(lambda r, attempt: r <= 1)
anticausal = causal_by(lambda r, attempt: r >= 0)


def offset_at(end: bool) -> Change:
    """Queries elsewhere: at key 0, or as the last of the keys."""

    def change(attempt: Attempt) -> Attempt | None:
        lq, lk = attempt.lengths
        wanted = lk - lq if end else 0
        offset = attempt.offset
        if (offset == wanted).all():
            return None
        if attempt.rotary is not None:
            return with_query_positions(attempt, np.arange(lq) + wanted)
        if tables_of(attempt) or attempt.get("is_causal") or attempt.get("window"):
            return attempt.with_keywords(query_offset=wanted)
        return None

    return change


def with_query_positions(attempt: Attempt, positions: Array) -> Attempt:
    """Rotary's positions of the queries changed, causality left as it is."""
    assert attempt.rotary is not None
    return replace(attempt, rotary=attempt.rotary._replace(query_positions=positions))


def tables_at(end: bool) -> Change:
    """Queries elsewhere for the tables alone; what is seen stays."""

    def change(attempt: Attempt) -> Attempt | None:
        if not tables_of(attempt) or attempt.get("window"):
            return None
        moved = offset_at(end)(attempt)
        if moved is None:
            return None
        if not attempt.get("is_causal"):
            return None  # offset_at has it
        own = causal_by(lambda r, _: r <= 0)(attempt)
        if own is None:
            return None
        return own.with_keywords(query_offset=moved.get("query_offset"))

    return change


def wider_window(step: int) -> Change:
    """A window of one key more, or one fewer, on each side that is bounded."""

    def change(attempt: Attempt) -> Attempt | None:
        window = attempt.get("window")
        if window is None:
            return None
        sides = tuple(side if not side else side + step for side in window)
        if sides == tuple(window):
            return None
        return attempt.with_keywords(window=sides)

    return change


# ---- the softmax ---------------------------------------------------------------------


def over_queries(attempt: Attempt) -> Attempt | None:
    return replace(attempt, axis=-2)


def hidden_after(attempt: Attempt) -> Attempt | None:
    """The softmax of all keys; weights of hidden ones are 0 then, the rest as it is."""
    return replace(attempt, hiding="after") if hides(attempt) else None


def hidden_as_zero(attempt: Attempt) -> Attempt | None:
    """A score of 0 where a key is to be hidden."""
    return replace(attempt, hiding="zero") if hides(attempt) else None


def nothing_is_nan(attempt: Attempt) -> Attempt | None:
    return replace(attempt, empty="nan") if hides(attempt) else None


def nothing_is_mean(attempt: Attempt) -> Attempt | None:
    return replace(attempt, empty="mean") if hides(attempt) else None
