"""Known differences: a row each, in the order in which they are tried and preferred.

To add one, write a function of an `Attempt` (None: the attempt cannot have it) here, or
in tables.py if it changes tables, and a row below. Conventions come before mistakes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import Array
from relpos._opinion import tables
from relpos._opinion.attempt import (
    Attempt,
    Change,
    of_arguments,
    relative_to,
    variant,
)
from relpos._opinion.tables import tables_of

Options = Mapping[str, Any]

# ---- scales, caps and terms ----------------------------------------------------------


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
    return replace(attempt, negated=names) if here else None


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


# ---- masks, offsets and the softmax --------------------------------------------------

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


# ---- rotary --------------------------------------------------------------------------


@variant
def with_options(
    attempt: Attempt,
    change: Callable[[Options, int], Options | None],
    of_base: bool = False,
) -> Attempt | None:
    """Change options of `apply_rotary`; `of_base`: if frequencies follow from it."""
    rotary, dim = attempt.rotary, attempt.get("query").shape[-1]
    if rotary is None or (of_base and rotary.options.get("inv_freq") is not None):
        return None
    found = change(rotary.options, dim)
    if found is None:
        return None
    return replace(attempt, rotary=rotary._replace(options=found))


def less(options: Options, dim: int = 0, *, name: str) -> Options | None:
    if options.get(name) is None:
        return None
    return {other: x for other, x in options.items() if other != name}


def frequencies(options: Options, dim: int) -> Array:
    """Return the radians per position of these options."""
    given = options.get("inv_freq")
    if given is not None:
        return np.asarray(given, np.float64)
    width = options.get("rotary_dim") or dim
    found: Array = options.get("base", 10000.0) ** (-np.arange(0, width, 2) / width)
    return found


def replaced(options: Options, inv_freq: Array) -> Options:
    kept = {name: x for name, x in options.items() if name != "base"}
    return {**kept, "inv_freq": inv_freq}


def other_pairs(options: Options, dim: int) -> Options:
    return {**options, "interleaved": not options.get("interleaved", False)}


def partial_ignored(options: Options, dim: int) -> Options | None:
    return (
        None if options.get("rotary_dim") == dim else less(options, name="rotary_dim")
    )


def of_whole_head(options: Options, dim: int) -> Options | None:
    """Rotate a part of the columns by exponents that count over the whole head."""
    width = options.get("rotary_dim") or dim
    base = options.get("base", 10000.0)
    wanted = base ** (-np.arange(0, width, 2) / dim)
    return None if width == dim else replaced(options, wanted)


def half_exponents(options: Options, dim: int) -> Options:
    """Use base^(-c / width) where the exponent is twice that."""
    return replaced(options, np.sqrt(frequencies(options, dim)))


def other_base(options: Options, dim: int, *, base: float) -> Options | None:
    return None if options.get("base", 1e4) == base else {**options, "base": base}


def in_bfloat16(options: Options, dim: int) -> Options:
    exact = frequencies(options, dim).astype(np.float32)
    bits = exact.view(np.uint32)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return replaced(options, bits.astype(np.uint32).view(np.float32).astype(np.float64))


@variant
def rotating(attempt: Attempt, *names: str) -> Attempt | None:
    """Rotate these and no others."""
    if attempt.rotary is None or not {*names} <= attempt.keywords.keys():
        return None
    return replace(attempt, rotary=attempt.rotary._replace(rotated=names))


def backwards(options: Options, dim: int) -> Options:
    return {**options, "inverse": True}


def keys_from_query_0(attempt: Attempt) -> Attempt | None:
    """Begin the keys' positions where the queries' begin."""
    if (rotary := attempt.rotary) is None:
        return None
    start = rotary.query_positions[..., :1]
    if (start == rotary.key_positions[:1]).all():
        return None
    positions = start + np.arange(attempt.lengths[1])
    return replace(attempt, rotary=rotary._replace(key_positions=positions))


# ---- the table -----------------------------------------------------------------------


class Difference(NamedTuple):
    """A known difference between implementations of attention."""

    name: str
    kind: str  # "convention" or "mistake"
    words: str  # to follow "relpos with"
    forms: tuple[Change, ...]  # ways to write it
    views: tuple[str, ...]  # the results in which it is of this kind


Row = tuple[str, tuple[Change, ...], tuple[str, ...]]


def _rows_of(*views: str) -> Callable[..., Row]:
    """Return a function that makes a row of words and forms, for these results."""
    return lambda words, *forms: (words, forms, views)


in_scores, in_outputs = _rows_of("scores"), _rows_of("outputs")
in_weights = _rows_of("weights", "outputs")
everywhere = _rows_of("scores", "weights", "outputs")


#: Ways to move every row of a table.
_WAYS = ("later", "clip", "zero", "wrap")
#: Other arguments that may be left out, and words for them.
_WITHOUT = {
    "rel_key": "the position term of the keys",
    "rel_query": "the position term of the queries",
    "rel_value": "the table of the values",
    "rel_bias": "the bias",
    "pos_bias_u": "u",
    "pos_bias_v": "v",
    "softcap": "the cap",
    "sinks": "the sinks",
    "log_decay": "the decay",
}


CONVENTIONS: dict[str, Row] = {
    # results
    "unmasked": in_scores(
        "what the mask hides left in the scores",
        all_seen,
        lambda x: (y := all_seen(x)) and y.with_keywords(beyond="zero"),
    ),
    "unmasked_wrapped": in_scores(
        "the wrapped entries of the shift left where the mask hides; beside the "
        "diagonal they are those of the next query, so hide them before the softmax",
        lambda x: (y := shifted(x)) and all_seen(y),
    ),
    "hidden_differs": in_scores(
        "other numbers where the mask hides, which are nothing if it is applied later",
        where(hides, hiding="visible"),
    ),
    "constant_in_rows": in_scores(
        "a constant added to each row, which the softmax takes away",
        where(lambda x: "sinks" not in x.keywords, centred=True),
    ),
    "base_two": in_scores(
        "scores in base 2, times log2(e), for a softmax by powers of 2",
        lambda x: replace(x, logit_factor=x.logit_factor * math.log2(math.e)),
    ),
    "nothing_is_nan": in_weights(
        "nan where a query sees no key; relpos gives 0", where(hides, empty="nan")
    ),
    "nothing_is_mean": in_weights(
        "the mean of all keys where a query sees none, as of a finite mask; relpos "
        "gives 0",
        where(hides, empty="mean"),
    ),
    # tables
    "table_reversed": everywhere(
        "the table reversed", tables.all_reversed(buckets=False)
    ),
    "bucket_direction": everywhere(
        "the buckets reversed: of query minus key", tables.all_reversed(buckets=True)
    ),
    "query_minus_key": everywhere(
        "the table read at query minus key, from the same row for 0", tables.negated
    ),
    "two_sided_table": everywhere(
        "the table read as two-sided: give relpos rel_key[..., :R // 2 + 1, :] instead",
        tables.read_as("two-sided"),
    ),
    "rows_2n": everywhere(
        "the table of 2N rows beginning one relative position beside",
        *(tables.other_origin(way) for way in _WAYS),
    ),
    "beyond_table": everywhere(
        "the other rule beyond the table, zeros or its end rows",
        tables.beyond_the_table,
    ),
    "columns_exchanged": everywhere(
        "the table's columns in the other layout of sinusoids, interleaved or "
        "concatenated",
        tables.other_columns(to_pairs=True),
        tables.other_columns(to_pairs=False),
    ),
    "values_share_table": in_outputs(
        "the table of the keys for the values too", tables.shared_by_values
    ),
    "queries_share_table": everywhere(
        "one table for the terms of keys and queries", tables.shared_by_queries
    ),
    # sizes
    "no_scale": everywhere("no scale, as T5", scaled(lambda heads, dim: 1.0)),
    "scale_head_dim": everywhere(
        "a scale of 1 / sqrt(D)", scaled(lambda heads, dim: 1 / math.sqrt(dim))
    ),
    "scale_by_dim": everywhere(
        "a scale of 1 / D, as muP", scaled(lambda heads, dim: 1 / dim)
    ),
    "scale_three": everywhere(
        "a scale of 1 / sqrt(3 D), as DeBERTa",
        scaled(lambda heads, dim: 1 / math.sqrt(3 * dim)),
    ),
    "position_unscaled": everywhere(
        "the position terms outside the scale",
        rescaled(("rel_key", "pos_bias_v", "rel_query"), -1),
    ),
    "position_scaled": everywhere(
        "the position query inside the scale", rescaled(("position_query",), 1)
    ),
    "bias_scaled": everywhere(
        "the bias inside the scale, as Falcon", rescaled(("rel_bias", "attn_mask"), 1)
    ),
    "cap_after_bias": everywhere(
        "the cap after the bias, not before",
        where(
            lambda x: "softcap" in x.keywords
            and has_numbers(x, "rel_bias", "attn_mask", "log_decay"),
            cap_last=True,
        ),
    ),
    "heads_tiled": everywhere(
        "query head h at key head h modulo their number, not h divided by the group",
        heads_tiled,
    ),
    # what is seen
    "mask_inverted": everywhere("the mask inverted: True hides", mask_inverted),
    "causal_top_left": everywhere(
        "the causal triangle from the first query and key", causal_at(end=False)
    ),
    "causal_bottom_right": everywhere(
        "the causal triangle from the last query and key", causal_at(end=True)
    ),
    "window_counts_itself": everywhere(
        "a window of one key fewer on each side, as where it counts the query's own",
        wider_window(-1),
    ),
    # rotary
    "rotary_pairs": everywhere(
        "the other pairs of columns: neighbours (interleaved), not halves, or the "
        "other way round",
        with_options(other_pairs),
    ),
    "rotary_inverse": everywhere("angles of the other sign", with_options(backwards)),
}

MISTAKES: dict[str, Row] = {
    # rows
    "off_by_one": everywhere(
        "each pair at the row beside its own",
        *(tables.mistaken_off_by(step, way) for step in (1, -1) for way in _WAYS),
    ),
    "shift_in_encoder": everywhere(
        "the causal shift where later keys are seen: their position scores are those "
        "of the next query",
        lambda x: None if x.get("is_causal") else shifted(x),
    ),
    "wrapped_attended": in_weights(
        "no mask over the wrapped entries of the causal shift",
        lambda x: (y := shifted(x)) and all_seen(y),
    ),
    "future_is_past": everywhere(
        "the distance without its sign: a later key has the row of an earlier one",
        tables.by_position(lambda r: -np.abs(r)),
        tables.by_position(np.abs),
    ),
    "two_sided_misread": everywhere(
        "a two-sided table read as one of the past: give rel_key[..., :R // 2 + 1, :]",
        tables.read_as("past"),
    ),
    "clip_one_early": everywhere("distances clipped at k - 1", tables.clipped_early),
    "index_wraps": everywhere(
        "rows before the first taken from the end, as a negative index does",
        tables.index_wraps,
    ),
    "absolute_rows": everywhere(
        "the row of the key's own position, whatever the query's",
        tables.at_key(middle=True),
        tables.at_key(middle=False),
    ),
    "query_table_reversed": everywhere(
        "the table of the queries reversed", tables.one_reversed("rel_query")
    ),
    "value_table_reversed": in_outputs(
        "the table of the values reversed", tables.one_reversed("rel_value")
    ),
    "not_transposed": everywhere(
        "the key's position scores not transposed",
        where(
            lambda x: "rel_query" in x.keywords and len({*x.lengths}) == 1,
            transposed=("rel_query",),
        ),
    ),
    "bucket_rounding": everywhere(
        "T5's buckets rounded otherwise than downwards",
        tables.rounded_buckets(np.round),
        tables.rounded_buckets(np.ceil),
    ),
    "bucket_sides": everywhere(
        "T5's buckets of one direction for both, or of both for one", tables.other_sides
    ),
    "alibi_slopes": everywhere(
        "ALiBi's slopes by the rule for 2^n heads", tables.plain_slopes
    ),
    # sizes
    "scale_d_model": everywhere(
        "a scale of 1 / sqrt(d_model)",
        scaled(lambda heads, dim: 1 / math.sqrt(heads * dim)),
    ),
    "scaled_twice": everywhere(
        "the scale twice",
        of_arguments(lambda scale: None if scale == 1 else {"scale": scale**2}),
    ),
    "scale_inverted": everywhere(
        "sqrt(D) for 1 / sqrt(D)",
        of_arguments(lambda scale: None if scale in (0, 1) else {"scale": 1 / scale}),
    ),
    "u_v_exchanged": everywhere("u and v exchanged", query_biases(lambda u, v: (v, u))),
    "u_is_v": everywhere(
        "one of u and v in both places",
        query_biases(lambda u, v: (u, u)),
        query_biases(lambda u, v: (v, v)),
    ),
    "u_v_unscaled": everywhere(
        "u and v outside the scale", rescaled(("pos_bias_u", "pos_bias_v"), -1)
    ),
    "bias_negated": everywhere("the bias negated", negated("rel_bias")),
    "position_negated": everywhere(
        "the position term negated", negated("rel_key", "pos_bias_v")
    ),
    **{
        f"no_{name}": everywhere(f"{words} left out", without(name))
        for name, words in _WITHOUT.items()
    },
    # what is seen
    **{
        f"no_{name}": in_weights(f"{words} ignored", ignored(name))
        for name, words in HIDING.items()
    },
    "mask_transposed": everywhere("the mask transposed", mask_transposed),
    "offset_0": everywhere(
        "query 0 beside key 0, as if no keys came before",
        offset_at(end=False),
        tables_at(end=False),
    ),
    "offset_end": everywhere(
        "the last query beside the last key", offset_at(end=True), tables_at(end=True)
    ),
    "causal_untold": everywhere(
        "the future hidden, which no argument says (is_causal=True)", causal_untold
    ),
    "causal_strict": everywhere(
        "each query's own key hidden too", causal_where(lambda r: r < 0)
    ),
    "causal_sees_next": everywhere(
        "the key after each query seen", causal_where(lambda r: r <= 1)
    ),
    "causal_backwards": everywhere(
        "the past hidden, not the future", causal_where(lambda r: r >= 0)
    ),
    "window_wider": everywhere("one key more on each side", wider_window(1)),
    "softmax_over_queries": in_weights(
        "the softmax over queries, not over keys", lambda x: replace(x, axis=-2)
    ),
    "masked_after_softmax": in_weights(
        "the mask after the softmax: the rest does not sum to 1",
        where(hides, hiding="after"),
    ),
    "hidden_score_0": in_weights(
        "a score of 0 where the mask hides, which a softmax sees",
        where(hides, hiding="zero"),
    ),
    # rotary
    "rotary_one_side": everywhere(
        "queries or keys turned, not both", rotating("query"), rotating("key")
    ),
    "rotary_values": in_outputs("values turned too", rotating("query", "key", "value")),
    "no_rotary": everywhere(
        "nothing turned, or by the number of the head, which cancels", rotating()
    ),
    "rotary_partial": everywhere(
        "all columns turned where a part is to be",
        with_options(partial_ignored, of_base=True),
    ),
    "rotary_exponent": everywhere(
        "frequencies whose exponents count over another width",
        with_options(half_exponents, of_base=True),
        with_options(of_whole_head, of_base=True),
    ),
    "rotary_base": everywhere(
        "the base of another model: 10,000, 500,000 or 1,000,000",
        *(
            with_options(partial(other_base, base=base), of_base=True)
            for base in (1e4, 5e5, 1e6)
        ),
    ),
    "rotary_unscaled": everywhere(
        "the frequencies of the base, not those that are given",
        with_options(partial(less, name="inv_freq")),
    ),
    "no_magnitude": everywhere(
        "the magnitude left out", with_options(partial(less, name="magnitude"))
    ),
    "rotary_bfloat16": everywhere(
        "frequencies rounded to bfloat16", with_options(in_bfloat16)
    ),
    "rotary_keys_moved": everywhere(
        "keys counted from the first query's position", keys_from_query_0
    ),
}

DIFFERENCES = tuple(
    Difference(name, kind, *row)
    for kind, rows in (("convention", CONVENTIONS), ("mistake", MISTAKES))
    for name, row in rows.items()
)
