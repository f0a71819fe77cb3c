"""What people do to scales, caps and terms: factors, exchanges, what is forgotten."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from relpos._opinion.attempt import Attempt
from relpos._opinion.tables import Change

POSITION = ("rel_key", "pos_bias_v", "rel_query", "position_query")


def scaled(wanted: Callable[[int, int], float]) -> Change:
    """The scale as made of the heads and their width."""

    def change(attempt: Attempt) -> Attempt | None:
        heads, _, dim = attempt.get("query").shape[-3:]
        if not heads * dim:
            return None
        scale = wanted(heads, dim)
        if math.isclose(scale, attempt.get("scale")):
            return None
        return attempt.with_keywords(scale=scale)

    return change


no_scale = scaled(lambda heads, dim: 1.0)
by_model = scaled(lambda heads, dim: 1 / math.sqrt(heads * dim))
by_head = scaled(lambda heads, dim: 1 / math.sqrt(dim))
by_width = scaled(lambda heads, dim: 1 / dim)
by_three = scaled(lambda heads, dim: 1 / math.sqrt(3 * dim))


def scaled_twice(attempt: Attempt) -> Attempt | None:
    scale = attempt.get("scale")
    return None if scale == 1 else attempt.with_keywords(scale=scale**2)


def inverted_scale(attempt: Attempt) -> Attempt | None:
    scale = attempt.get("scale")
    return None if scale in (0, 1) else attempt.with_keywords(scale=1 / scale)


def has_numbers(attempt: Attempt, name: str) -> bool:
    """Whether there is such a term; of truth values there is none."""
    array = attempt.get(name)
    return array is not None and array.dtype.kind == "f"


def rescaled(names: tuple[str, ...], power: int) -> Change:
    """Some terms times the scale, or divided by it."""

    def change(attempt: Attempt) -> Attempt | None:
        here = [name for name in names if has_numbers(attempt, name)]
        if not here or attempt.get("scale") in (0, 1):
            return None
        return replace(
            attempt, powers={**attempt.powers, **dict.fromkeys(names, power)}
        )

    return change


def negated(names: tuple[str, ...]) -> Change:
    """Some terms of the other sign."""

    def change(attempt: Attempt) -> Attempt | None:
        if not any(name in attempt.keywords for name in names):
            return None
        return replace(attempt, negated=names)

    return change


position_unscaled = rescaled(("rel_key", "pos_bias_v", "rel_query"), -1)
own_query_scaled = rescaled(("position_query",), 1)
bias_scaled = rescaled(("rel_bias", "attn_mask"), 1)
bias_negated = negated(("rel_bias",))
position_negated = negated(("rel_key", "pos_bias_v"))
query_bias_unscaled = rescaled(("pos_bias_u", "pos_bias_v"), -1)


def without(name: str) -> Change:
    """A term that is not there."""

    def change(attempt: Attempt) -> Attempt | None:
        if name not in attempt.keywords:
            return None
        if name == "rel_key":
            own = dict.fromkeys(("rel_key", "pos_bias_v", "position_query"))
            return attempt.with_keywords(**own)
        return attempt.with_keywords(**{name: None})

    return change


def exchanged(attempt: Attempt) -> Attempt | None:
    """u where v belongs, and v where u belongs."""
    u, v = attempt.get("pos_bias_u"), attempt.get("pos_bias_v")
    if u is None or v is None:
        return None
    return attempt.with_keywords(pos_bias_u=v, pos_bias_v=u)


def one_for_both(name: str) -> Change:
    """u, or v, in both places."""

    def change(attempt: Attempt) -> Attempt | None:
        if exchanged(attempt) is None:
            return None
        only = attempt.get(name)
        return attempt.with_keywords(pos_bias_u=only, pos_bias_v=only)

    return change


def not_transposed(attempt: Attempt) -> Attempt | None:
    """The products of keys with their table, left as (key, query)."""
    lq, lk = attempt.lengths
    if "rel_query" not in attempt.keywords or lq != lk:
        return None
    return replace(attempt, transposed=("rel_query",))


def cap_after_bias(attempt: Attempt) -> Attempt | None:
    added = ("rel_bias", "attn_mask", "log_decay")
    if attempt.get("softcap") is None:
        return None
    if not any(has_numbers(attempt, name) for name in added):
        return None
    return replace(attempt, cap_last=True)


def base_two(attempt: Attempt) -> Attempt | None:
    """Scores for a softmax by powers of 2."""
    return replace(attempt, logit_factor=attempt.logit_factor * math.log2(math.e))


def constant_in_rows(attempt: Attempt) -> Attempt | None:
    """Not where sinks take part in the softmax, to which a constant is something."""
    return None if "sinks" in attempt.keywords else replace(attempt, centred=True)


def tiled_heads(attempt: Attempt) -> Attempt | None:
    """Key heads repeated as a whole: query head h takes h modulo their number."""
    group, heads = attempt.group, attempt.get("query").shape[-3]
    if group in (1, heads):
        return None
    order = np.arange(heads) % (heads // group) * group
    names = [name for name in ("key", "value") if name in attempt.keywords]
    return attempt.with_keywords(
        **{name: np.take(attempt.get(name), order, axis=-3) for name in names}
    )
