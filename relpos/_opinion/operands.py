"""Known changes of scales, caps and terms, and of the heads of queries and keys."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt, Change, of_arguments, variant


def scaled(wanted: Callable[[int, int], float]) -> Change:
    """Make the scale of the number of heads and of their width."""

    def rule(query: Array, scale: float) -> dict[str, Any] | None:
        heads, _, dim = query.shape[-3:]
        if not heads * dim or math.isclose(wanted(heads, dim), scale):
            return None
        return {"scale": wanted(heads, dim)}

    return of_arguments(rule)


def has_numbers(attempt: Attempt, *names: str) -> bool:
    """Return True if one of these arguments has numbers, not only truth values."""
    arrays = (attempt.get(name) for name in names)
    return any(x is not None and x.dtype.kind == "f" for x in arrays)


@variant
def where(
    attempt: Attempt, holds: Callable[[Attempt], Any], /, **fields: Any
) -> Attempt | None:
    """Change fields of an attempt for which a condition holds."""
    return replace(attempt, **fields) if holds(attempt) else None


@variant
def rescaled(attempt: Attempt, names: tuple[str, ...], power: int) -> Attempt | None:
    """Multiply some terms by a power of the scale."""
    if not has_numbers(attempt, *names) or attempt.get("scale") in (0, 1):
        return None
    powers = {**attempt.powers, **dict.fromkeys(names, power)}
    return replace(attempt, powers=powers)


@variant
def negated(attempt: Attempt, *names: str) -> Attempt | None:
    here = attempt.keywords.keys() & {*names}
    return replace(attempt, negated=(*attempt.negated, *here)) if here else None


@variant
def without(attempt: Attempt, name: str) -> Attempt | None:
    """Leave a term out, with those that cannot be without it."""
    if name not in attempt.keywords:
        return None
    others = ("pos_bias_v", "position_query") if name == "rel_key" else ()
    return attempt.with_keywords(**dict.fromkeys((name, *others)))


def query_biases(change: Callable[[Array, Array], tuple[Array, Array]]) -> Change:
    def rule(pos_bias_u: Array, pos_bias_v: Array) -> dict[str, Any]:
        u, v = change(pos_bias_u, pos_bias_v)
        return {"pos_bias_u": u, "pos_bias_v": v}

    return of_arguments(rule)


def heads_tiled(attempt: Attempt) -> Attempt | None:
    """Repeat key heads as a whole: query head h takes h modulo their number."""
    group, heads = attempt.group, attempt.get("query").shape[-3]
    if group in (1, heads):
        return None
    order = np.arange(heads) % (heads // group) * group
    names = [name for name in ("key", "value") if name in attempt.keywords]
    return attempt.with_keywords(
        **{name: np.take(attempt.get(name), order, axis=-3) for name in names}
    )
