"""The known differences: a row each, in the order in which they are believed.

To add one, write a function of an `Attempt` into the file of its family (None: it
cannot be what happened here), and a row here. Conventions come before mistakes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relpos._opinion import seen, sizes, tables, turned
from relpos._opinion.tables import Change

__all__ = ["DIFFERENCES", "Difference"]

SCORES = ("scores",)
WEIGHED = ("weights", "outputs")
OUTPUTS = ("outputs",)
EVERY = SCORES + WEIGHED


class Difference(NamedTuple):
    """One thing that people write otherwise.

    forms: ways to write it, any of which it may be. words follow "relpos with". kind is
    "convention" or "mistake"; views are the results in which it is that.
    """

    name: str
    kind: str
    words: str
    forms: tuple[Change, ...]
    views: tuple[str, ...] = EVERY


def _convention(
    name: str, words: str, *forms: Change, views: tuple[str, ...] = EVERY
) -> Difference:
    return Difference(name, "convention", words, forms, views)


def _mistake(
    name: str, words: str, *forms: Change, views: tuple[str, ...] = EVERY
) -> Difference:
    return Difference(name, "mistake", words, forms, views)


def _off_by(step: int) -> tuple[Change, ...]:
    ways = ("later", "clip", "zero", "wrap")
    return tuple(tables.mistaken_off_by(step, way) for way in ways)


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
_UNSEEN = {
    "is_causal": "causality",
    "window": "the window",
    "key_lengths": "the lengths of the keys",
    "key_ranges": "the ranges of the keys",
    "attn_mask": "the mask",
}

DIFFERENCES: tuple[Difference, ...] = (
    # ---- conventions: results
    _convention(
        "unmasked",
        "what the mask hides left in the scores",
        seen.all_seen,
        lambda x: (y := seen.all_seen(x)) and y.with_keywords(beyond="zero"),
        views=SCORES,
    ),
    _convention(
        "unmasked_wrapped",
        "the wrapped entries of the shift left where the mask hides; beside the "
        "diagonal they are those of the next query, so hide them before the softmax",
        seen.all_seen_by_shift,
        views=SCORES,
    ),
    _convention(
        "hidden_differs",
        "other numbers where the mask hides, which are nothing if it is applied later",
        seen.visible_only,
        views=SCORES,
    ),
    _convention(
        "constant_in_rows",
        "a constant added to each row, which the softmax takes away",
        sizes.constant_in_rows,
        views=SCORES,
    ),
    _convention(
        "base_two",
        "scores in base 2, times log2(e), for a softmax by powers of 2",
        sizes.base_two,
        views=SCORES,
    ),
    _convention(
        "nothing_is_nan",
        "nan where a query sees no key; relpos gives 0",
        seen.nothing_is_nan,
        views=WEIGHED,
    ),
    _convention(
        "nothing_is_mean",
        "the mean of all keys where a query sees none, as of a finite mask; relpos "
        "gives 0",
        seen.nothing_is_mean,
        views=WEIGHED,
    ),
    # ---- conventions: tables
    _convention("table_reversed", "the table reversed", tables.whole_table_reversed),
    _convention(
        "bucket_direction",
        "the buckets reversed: of query minus key",
        tables.buckets_reversed,
    ),
    _convention(
        "query_minus_key",
        "the table read at query minus key, from the same row for 0",
        tables.negated,
    ),
    _convention(
        "two_sided_table",
        "the table read as two-sided: give relpos rel_key[..., :R // 2 + 1, :] instead",
        tables.two_sided,
    ),
    _convention(
        "rows_2n",
        "the table of 2N rows beginning one relative position beside",
        *(tables.other_origin(way) for way in ("later", "clip", "zero", "wrap")),
    ),
    _convention(
        "beyond_table",
        "the other rule beyond the table, zeros or its end rows",
        tables.beyond_the_table,
    ),
    _convention(
        "columns_exchanged",
        "the table's columns in the other layout of sinusoids, interleaved or "
        "concatenated",
        tables.other_columns(to_pairs=True),
        tables.other_columns(to_pairs=False),
    ),
    _convention(
        "values_share_table",
        "the table of the keys for the values too",
        tables.shared_by_values,
        views=OUTPUTS,
    ),
    _convention(
        "queries_share_table",
        "one table for the terms of keys and queries",
        tables.shared_by_queries,
    ),
    # ---- conventions: sizes
    _convention("no_scale", "no scale, as T5", sizes.no_scale),
    _convention("scale_head_dim", "a scale of 1 / sqrt(D)", sizes.by_head),
    _convention("scale_by_dim", "a scale of 1 / D, as muP", sizes.by_width),
    _convention("scale_three", "a scale of 1 / sqrt(3 D), as DeBERTa", sizes.by_three),
    _convention(
        "position_unscaled",
        "the position terms outside the scale",
        sizes.position_unscaled,
    ),
    _convention(
        "position_scaled", "the position query inside the scale", sizes.own_query_scaled
    ),
    _convention(
        "bias_scaled", "the bias inside the scale, as Falcon", sizes.bias_scaled
    ),
    _convention(
        "cap_after_bias", "the cap after the bias, not before", sizes.cap_after_bias
    ),
    _convention(
        "heads_tiled",
        "query head h at key head h modulo their number, not h divided by the group",
        sizes.tiled_heads,
    ),
    # ---- conventions: what is seen
    _convention("mask_inverted", "the mask inverted: True hides", seen.mask_inverted),
    _convention(
        "causal_top_left",
        "the causal triangle from the first query and key",
        seen.causal_at(end=False),
    ),
    _convention(
        "causal_bottom_right",
        "the causal triangle from the last query and key",
        seen.causal_at(end=True),
    ),
    _convention(
        "window_counts_itself",
        "a window of one key fewer on each side, as where it counts the query's own",
        seen.wider_window(-1),
    ),
    # ---- conventions: rotary
    _convention(
        "rotary_pairs",
        "the other pairs of columns: neighbours (interleaved), not halves, or the "
        "other way round",
        turned.with_options(turned.other_pairs),
    ),
    _convention(
        "rotary_inverse", "angles of the other sign", turned.turned_by(turned.backwards)
    ),
    # ---- mistakes: rows
    _mistake(
        "off_by_one",
        "each pair at the row beside its own",
        *_off_by(1),
        *_off_by(-1),
    ),
    _mistake(
        "shift_in_encoder",
        "the causal shift where later keys are seen: their position scores are those "
        "of the next query",
        seen.shift_in_encoder,
    ),
    _mistake(
        "wrapped_attended",
        "no mask over the wrapped entries of the causal shift",
        seen.all_seen_by_shift,
        views=WEIGHED,
    ),
    _mistake(
        "future_is_past",
        "the distance without its sign: a later key has the row of an earlier one",
        tables.by_position(lambda r: -np.abs(r), "clip"),
        tables.by_position(np.abs, "clip"),
    ),
    _mistake(
        "two_sided_misread",
        "a two-sided table read as one of the past: give rel_key[..., :R // 2 + 1, :]",
        tables.one_sided,
    ),
    _mistake("clip_one_early", "distances clipped at k - 1", tables.clipped_early),
    _mistake(
        "index_wraps",
        "rows before the first taken from the end, as a negative index does",
        tables.index_wraps,
    ),
    _mistake(
        "absolute_rows",
        "the row of the key's own position, whatever the query's",
        tables.labelled(tables.of_the_key(0)),
        tables.labelled(tables.of_the_key(1)),
    ),
    _mistake(
        "query_table_reversed",
        "the table of the queries reversed",
        tables.query_table_reversed,
    ),
    _mistake(
        "value_table_reversed",
        "the table of the values reversed",
        tables.value_table_reversed,
        views=OUTPUTS,
    ),
    _mistake(
        "not_transposed",
        "the key's position scores not transposed",
        sizes.not_transposed,
    ),
    _mistake(
        "bucket_rounding",
        "T5's buckets rounded otherwise than downwards",
        tables.rebucketed(tables.rounded_buckets(np.round)),
        tables.rebucketed(tables.rounded_buckets(np.ceil)),
    ),
    _mistake(
        "bucket_sides",
        "T5's buckets of one direction for both, or of both for one",
        tables.rebucketed(tables.other_sides),
    ),
    _mistake(
        "alibi_slopes", "ALiBi's slopes by the rule for 2^n heads", tables.plain_slopes
    ),
    # ---- mistakes: sizes
    _mistake("scale_d_model", "a scale of 1 / sqrt(d_model)", sizes.by_model),
    _mistake("scaled_twice", "the scale twice", sizes.scaled_twice),
    _mistake("scale_inverted", "sqrt(D) for 1 / sqrt(D)", sizes.inverted_scale),
    _mistake("u_v_exchanged", "u and v exchanged", sizes.exchanged),
    _mistake(
        "u_is_v",
        "one of u and v in both places",
        sizes.one_for_both("pos_bias_u"),
        sizes.one_for_both("pos_bias_v"),
    ),
    _mistake("u_v_unscaled", "u and v outside the scale", sizes.query_bias_unscaled),
    _mistake("bias_negated", "the bias negated", sizes.bias_negated),
    _mistake("position_negated", "the position term negated", sizes.position_negated),
    *(
        _mistake(f"no_{name}", f"{words} left out", sizes.without(name))
        for name, words in _WITHOUT.items()
    ),
    # ---- mistakes: what is seen
    *(
        _mistake(
            f"no_{name}", f"{words} ignored", seen.without_hiding(name), views=WEIGHED
        )
        for name, words in _UNSEEN.items()
    ),
    _mistake("mask_transposed", "the mask transposed", seen.mask_transposed),
    _mistake(
        "offset_0",
        "query 0 beside key 0, as if no keys came before",
        seen.offset_at(end=False),
        seen.tables_at(end=False),
    ),
    _mistake(
        "offset_end",
        "the last query beside the last key",
        seen.offset_at(end=True),
        seen.tables_at(end=True),
    ),
    _mistake(
        "causal_untold",
        "the future hidden, which no argument says (is_causal=True)",
        seen.causal_untold,
    ),
    _mistake("causal_strict", "each query's own key hidden too", seen.causal_strictly),
    _mistake("causal_sees_next", "the key after each query seen", seen.causal_and_next),
    _mistake("causal_backwards", "the past hidden, not the future", seen.anticausal),
    _mistake("window_wider", "one key more on each side", seen.wider_window(1)),
    _mistake(
        "softmax_over_queries",
        "the softmax over queries, not over keys",
        seen.over_queries,
        views=WEIGHED,
    ),
    _mistake(
        "masked_after_softmax",
        "the mask after the softmax: the rest does not sum to 1",
        seen.hidden_after,
        views=WEIGHED,
    ),
    _mistake(
        "hidden_score_0",
        "a score of 0 where the mask hides, which a softmax sees",
        seen.hidden_as_zero,
        views=WEIGHED,
    ),
    # ---- mistakes: rotary
    _mistake(
        "rotary_one_side",
        "queries or keys turned, not both",
        turned.only("query"),
        turned.only("key"),
    ),
    _mistake("rotary_values", "values turned too", turned.values_too, views=OUTPUTS),
    _mistake(
        "no_rotary",
        "nothing turned, or by the number of the head, which cancels",
        turned.only(),
    ),
    _mistake(
        "rotary_partial",
        "all columns turned where a part is to be",
        turned.with_options(turned.partial_ignored),
    ),
    _mistake(
        "rotary_exponent",
        "frequencies whose exponents count over another width",
        turned.with_options(turned.half_exponents),
        turned.with_options(turned.of_whole_head),
    ),
    _mistake(
        "rotary_base",
        "the base of another model: 10,000, 500,000 or 1,000,000",
        *(turned.other_base(base) for base in (1e4, 5e5, 1e6)),
    ),
    _mistake(
        "rotary_unscaled",
        "the frequencies of the base, not those that are given",
        turned.with_options(turned.plain_frequencies),
    ),
    _mistake("no_magnitude", "the magnitude left out", turned.no_magnitude),
    _mistake(
        "rotary_bfloat16",
        "frequencies rounded to bfloat16",
        turned.with_options(turned.in_bfloat16),
    ),
    _mistake(
        "rotary_keys_moved",
        "keys counted from the first query's position",
        turned.turned_by(turned.keys_from_query_0),
    ),
)
