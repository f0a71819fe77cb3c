"""Known changes of the pairs that are visible: masks, windows, padding and offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import (
    Attempt,
    Change,
    of_arguments,
    relative_to,
    variant,
)
from relpos._opinion.tables import tables_of

#: Arguments that hide, and words for them.
HIDING = {
    "is_causal": "causality",
    "window": "the window",
    "key_lengths": "the lengths of the keys",
    "key_ranges": "the ranges of the keys",
    "attn_mask": "the mask",
}


def hides(attempt: Attempt) -> bool:
    """Return True if an argument may hide something."""
    mask = attempt.get("attn_mask")
    masks = mask is not None and (mask.dtype == bool or np.isneginf(mask).any())
    others = (attempt.get(n) for n in ("window", "key_lengths", "key_ranges"))
    return bool(masks or attempt.get("is_causal")) or any(x is not None for x in others)


def kept_bias(attempt: Attempt) -> Any:
    """Return the finite part of a floating mask, or None."""
    mask = attempt.get("attn_mask")
    if mask is None or mask.dtype == bool:
        return None
    return np.where(np.isneginf(mask), 0.0, mask)


def all_seen(attempt: Attempt) -> Attempt | None:
    if not hides(attempt):
        return None
    changed = {**dict.fromkeys(HIDING), "attn_mask": kept_bias(attempt)}
    return attempt.with_keywords(**changed)


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


@of_arguments
def mask_inverted(attn_mask: Array) -> dict[str, Any] | None:
    return {"attn_mask": ~attn_mask} if attn_mask.dtype == bool else None


@of_arguments
def mask_transposed(attn_mask: Array) -> dict[str, Any] | None:
    if attn_mask.ndim < 2 or attn_mask.shape[-1] != attn_mask.shape[-2]:
        return None
    return {"attn_mask": np.swapaxes(attn_mask, -1, -2)}


@variant
def causal_where(
    attempt: Attempt, see: Callable[[Array], Array], offset: Any = None
) -> Attempt | None:
    """Change which relative positions causality shows; tables keep their rows."""
    if not attempt.get("is_causal") or "log_decay" in attempt.keywords:
        return None
    mask, shown = attempt.get("attn_mask"), see(relative_to(attempt, offset))
    shown = shown[..., None, :, :] if shown.ndim > 2 else shown
    if mask is None or mask.dtype == bool:
        shown = shown if mask is None else shown & mask
    else:
        shown = np.where(shown, mask, -np.inf)
    return attempt.with_keywords(is_causal=None, attn_mask=shown)


def other_corner(attempt: Attempt, end: bool) -> int | None:
    """Return the offset with query 0 at key 0, or the last two together, if new."""
    lq, lk = attempt.lengths
    wanted = lk - lq if end else 0
    return None if (attempt.offset == wanted).all() else wanted


@variant
def causal_at(attempt: Attempt, end: bool) -> Attempt | None:
    """Hide by the triangle from the other corner, where that is another one."""
    if (offset := other_corner(attempt, end)) is None:
        return None
    return causal_where(lambda r: r <= 0, np.asarray(offset))(attempt)


def causal_untold(attempt: Attempt) -> Attempt | None:
    """Add causality that the call does not have."""
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
        positions = np.arange(attempt.lengths[0]) + offset
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


def wider_window(step: int) -> Change:
    """Change a window by one key on each side that is bounded."""

    def rule(window: Any) -> dict[str, Any] | None:
        sides = tuple(side if not side else side + step for side in window)
        return None if sides == tuple(window) else {"window": sides}

    return of_arguments(rule)
