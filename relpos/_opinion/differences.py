"""Known differences: a row each, in the order in which they are tried and preferred.

To add one, write a function of an `Attempt` that returns another (None: the attempt
cannot have it), or yields several, in the file of its subject, and a row here.
Conventions come before mistakes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np

from relpos._opinion import (
    biases,
    fire,
    grids,
    layouts,
    operands,
    positions,
    rotations,
    shifts,
    softmaxes,
    solved,
    tables,
    unseen,
    visibility,
)
from relpos._opinion.attempt import (
    CAPS,
    EQUAL,
    HIDING,
    NORMAL,
    SINK_COLUMNS,
    SINKS,
    Attempt,
    Change,
    Changes,
    made,
    worded,
)

# ---- the table -----------------------------------------------------------------------


class Difference(NamedTuple):
    """A known difference between implementations of attention."""

    name: str
    kind: str  # "convention" or "mistake"
    words: str  # to follow "relpos with"
    forms: tuple[Change | Changes, ...]  # ways to write it
    views: tuple[str, ...]  # the results in which it is of this kind
    alone: bool = False  # or with a convention, and with no other mistake
    single: bool = False  # with no convention either
    further: tuple[Changes, ...] = ()  # forms that are tried alone

    def attempts(self, attempt: Attempt) -> Iterator[Attempt]:
        """Yield the attempt with each form of the difference that it can have."""
        for form in self.forms if attempt.view in self.views else ():
            yield from made(form, attempt)


Row = tuple[str, tuple[Change | Changes, ...], tuple[str, ...], bool, bool]


def _rows_of(
    *views: str, alone: bool = False, single: bool = False
) -> Callable[..., Row]:
    """Return a function that makes a row of words and forms, for these results."""
    return lambda words, *forms: (words, forms, views, alone or single, single)


in_scores, in_outputs = _rows_of("scores"), _rows_of("outputs")
in_weights = _rows_of("weights", "outputs")
everywhere = _rows_of("scores", "weights", "outputs")
alone_in_outputs = _rows_of("outputs", alone=True)
alone_in_weights = _rows_of("weights", "outputs", alone=True)
alone = _rows_of("scores", "weights", "outputs", alone=True)
single_in_weights = _rows_of("weights", "outputs", single=True)
single = _rows_of("scores", "weights", "outputs", single=True)


#: Other arguments that may be left out, and words for them.
_WITHOUT = {
    "rel_key": "the position term of the keys",
    "rel_query": "the position term of the queries",
    "rel_value": "the table of the values",
    "rel_bias": "the bias",
    "pos_bias_u": "u",
    "pos_bias_v": "v",
    "position_query": "the position query",
    "softcap": "the cap",
    "sinks": "the sinks",
    "log_decay": "the decay",
}
#: Terms whose sign may be the other one, in words.
_NEGATED = {
    "position_negated": ("the position term", "rel_key", "pos_bias_v"),
    "u_v_negated": ("u and v", "pos_bias_u", "pos_bias_v"),
    "u_negated": ("u", "pos_bias_u"),
    "v_negated": ("v", "pos_bias_v"),
    "position_query_negated": ("the position query", "position_query"),
    "query_term_negated": ("the position term of the queries", "rel_query"),
}


CONVENTIONS: dict[str, Row] = {
    # results
    "unmasked": in_scores(
        "what the mask hides left in the scores",
        visibility.all_seen,
        lambda x: (y := visibility.all_seen(x)) and y.with_keywords(beyond="zero"),
    ),
    "unmasked_wrapped": in_scores(
        "the wrapped entries of the shift left where the mask hides; hide them before "
        "the softmax, because they are scores of the next query",
        lambda x: (y := visibility.shifted(x)) and visibility.all_seen(y),
    ),
    "hidden_differs": in_scores(
        "other numbers where the mask hides, which are nothing if it is applied later",
        operands.where(visibility.hides, hiding="visible"),
    ),
    "constant_in_rows": in_scores(
        "a constant added to each row, which the softmax takes away",
        operands.where(lambda x: "sinks" not in x.keywords, centred=True),
    ),
    "base_two": in_scores(
        "scores in base 2, times log2(e), for a softmax by powers of 2",
        lambda x: replace(x, logit_factor=x.logit_factor * math.log2(math.e)),
    ),
    "nothing_is_nan": in_weights(
        "nan where a query sees no key; relpos gives 0",
        operands.where(visibility.hides, empty="nan"),
    ),
    "nothing_is_mean": in_weights(
        "the mean of all keys where a query sees none, as of a finite mask; relpos "
        "gives 0",
        operands.where(visibility.hides, empty="mean"),
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
        "a table of 2N rows that begins at the other of -N and 1 - N",
        tables.other_origin,
    ),
    "beyond_table": everywhere(
        "the other rule beyond the table, zeros or its end rows",
        tables.beyond_the_table,
    ),
    "columns_exchanged": everywhere(
        "the table's columns in the other layout of sinusoids, interleaved or "
        "concatenated",
        *(
            worded(f"the table's columns taken for {words}", tables.other_columns(x))
            for words, x in (
                ("concatenated sinusoids, where they are interleaved", (2, -1)),
                ("interleaved sinusoids, where they are concatenated", (-1, 2)),
            )
        ),
    ),
    "values_share_table": in_outputs(
        "the table of the keys for the values too", tables.taken(rel_value="rel_key")
    ),
    "queries_share_table": everywhere(
        "one table for the terms of keys and queries", tables.taken(rel_query="rel_key")
    ),
    # sizes
    "no_scale": everywhere("no scale, as T5", operands.scaled(lambda h, d: 1.0)),
    "scale_head_dim": everywhere(
        "a scale of 1 / sqrt(D)", operands.scaled(lambda h, d: 1 / math.sqrt(d))
    ),
    "scale_by_dim": everywhere(
        "a scale of 1 / D, as muP", operands.scaled(lambda h, d: 1 / d)
    ),
    "scale_three": everywhere(
        "a scale of 1 / sqrt(3 D), as DeBERTa",
        operands.scaled(lambda h, d: 1 / math.sqrt(3 * d)),
    ),
    "position_unscaled": everywhere(
        "the position terms outside the scale",
        operands.rescaled(("rel_key", "pos_bias_v", "rel_query"), -1),
    ),
    "position_scaled": everywhere(
        "the position query inside the scale", operands.rescaled(("position_query",), 1)
    ),
    "bias_scaled": everywhere(
        "the bias inside the scale, as Falcon",
        operands.rescaled(("rel_bias", "attn_mask"), 1),
    ),
    "cap_after_bias": everywhere(
        "the cap after the bias, not before",
        operands.where(
            lambda x: "softcap" in x.keywords
            and operands.has_numbers(x, "rel_bias", "attn_mask", "log_decay"),
            cap_last=True,
        ),
    ),
    "heads_tiled": everywhere(
        "query head h at key head h modulo their number, not h divided by the group",
        operands.heads_tiled,
    ),
    # what is seen
    "mask_inverted": everywhere(
        "the mask inverted: True hides", visibility.mask_inverted
    ),
    "causal_top_left": everywhere(
        "the causal triangle from the first query and key",
        visibility.causal_at(end=False),
    ),
    "causal_bottom_right": everywhere(
        "the causal triangle from the last query and key",
        visibility.causal_at(end=True),
    ),
    "window_counts_itself": everywhere(
        "a window of one key fewer on each side, as where it counts the query's own",
        visibility.wider_window(-1),
    ),
    # rotary
    "rotary_pairs": everywhere(
        "the other pairs of columns: neighbours (interleaved), not halves, or the "
        "other way round",
        rotations.with_option("interleaved"),
    ),
    "rotary_inverse": everywhere(
        "angles of the other sign", rotations.with_option("inverse")
    ),
}

MISTAKES: dict[str, Row] = {
    **{
        f"no_{name}": everywhere(f"{words} left out", operands.without(name))
        for name, words in _WITHOUT.items()
    },
    "no_fire": everywhere("FIRE's bias left out", fire.left_out),
    "no_mask_numbers": everywhere(
        "the numbers of the mask left out", operands.without_mask_numbers
    ),
    "no_positions": everywhere(
        "all position terms left out", operands.without_positions
    ),
    # biases by a rule, whose sign could be taken for another row
    "bias_negated": everywhere(
        "the bias negated: the sign of the distance or of the slopes is the other one",
        operands.negated("rel_bias"),
        operands.negated("attn_mask"),
    ),
    "alibi_distance_signed": everywhere(
        "ALiBi's slopes times the distance with its sign, or on one side only: take "
        "the absolute value, -slope * |key - query|, for earlier and later keys",
        biases.by_slopes(biases.signed_distance),
    ),
    **{name: alone(*row) for name, row in biases.ROWS.items()},
    # rows
    "off_by_one": everywhere(
        "the row before or after the right one for each pair",
        tables.off_by_one,
    ),
    "shift_in_encoder": everywhere(
        "the causal shift where later keys are seen: their position scores are those "
        "of the next query",
        lambda x: None if x.get("is_causal") else visibility.shifted(x),
    ),
    "wrapped_attended": in_weights(
        "no mask over the wrapped entries of the causal shift",
        lambda x: (y := visibility.shifted(x)) and visibility.all_seen(y),
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
    "clip_one_early": everywhere(
        "distances clipped at k - 1", tables.clipped_early("earlier", "later")
    ),
    "index_wraps": everywhere(
        "rows before the first taken from the end, as a negative index does: add the "
        "largest distance to clipped ones",
        tables.index_wraps,
    ),
    "absolute_rows": everywhere(
        "the row of the key's own position, whatever the query's, as without a shift",
        tables.at_key,
    ),
    "query_table_reversed": everywhere(
        "the table of the queries reversed", tables.one_reversed("rel_query")
    ),
    "value_table_reversed": in_outputs(
        "the table of the values reversed", tables.one_reversed("rel_value")
    ),
    "not_transposed": everywhere(
        "the key's position scores not transposed",
        operands.query_term_transposed,
        lambda x: (
            (y := tables.one_reversed("rel_query")(x))
            and operands.query_term_transposed(y)
        ),
    ),
    # sizes
    "scale_d_model": everywhere(
        "a scale of 1 / sqrt(d_model)",
        operands.scaled(lambda h, d: 1 / math.sqrt(h * d)),
    ),
    "scaled_twice": everywhere(
        "the scale twice", operands.of_scale(lambda own: own**2, 1)
    ),
    "scale_inverted": everywhere(
        "sqrt(D) for 1 / sqrt(D)", operands.of_scale(lambda own: 1 / own, 0, 1)
    ),
    "u_v_exchanged": everywhere(
        "u and v exchanged",
        tables.taken(pos_bias_u="pos_bias_v", pos_bias_v="pos_bias_u"),
    ),
    "u_is_v": everywhere(
        "one of u and v in both places",
        worded("u in the place of v too", tables.taken(pos_bias_v="pos_bias_u")),
        worded("v in the place of u too", tables.taken(pos_bias_u="pos_bias_v")),
    ),
    "u_v_unscaled": everywhere(
        "u and v outside the scale", operands.rescaled(("pos_bias_u", "pos_bias_v"), -1)
    ),
    **{
        name: everywhere(f"{words} negated", operands.negated(*names))
        for name, (words, *names) in _NEGATED.items()
    },
    # what is seen
    **{
        f"no_{name}": in_weights(f"{words} ignored", visibility.ignored(name))
        for name, words in HIDING.items()
    },
    "mask_transposed": everywhere("the mask transposed", visibility.mask_transposed),
    "offset_0": everywhere(
        "query 0 at the position of key 0, as if no keys came before: add the offset",
        visibility.offset_at(end=False),
        visibility.tables_at(end=False),
    ),
    "offset_end": everywhere(
        "the last query at the position of the last key",
        visibility.offset_at(end=True),
        visibility.tables_at(end=True),
    ),
    "causal_untold": everywhere(
        "the future hidden, which no argument says (is_causal=True)",
        visibility.causal_untold,
    ),
    "causal_strict": everywhere(
        "each query's own key hidden too", visibility.causal_where(lambda r: r < 0)
    ),
    "causal_sees_next": everywhere(
        "the key after each query seen", visibility.causal_where(lambda r: r <= 1)
    ),
    "causal_backwards": everywhere(
        "the past hidden, not the future", visibility.causal_where(lambda r: r >= 0)
    ),
    "window_wider": everywhere(
        "one key more on each side that has an end", visibility.wider_window(1)
    ),
    "softmax_over_queries": in_weights(
        "the softmax over queries, not over keys", lambda x: replace(x, axes=(-2,))
    ),
    "masked_after_softmax": in_weights(
        "the mask after the softmax: the rest does not sum to 1",
        operands.where(visibility.hides, hiding="after"),
    ),
    "hidden_score_0": in_weights(
        "a score of 0 where the mask hides, which a softmax sees",
        operands.where(visibility.hides, filled=0.0),
    ),
    # the softmax, and what happens before and after it
    "softmax_axes": alone_in_weights(
        "the softmax over other axes, not over keys alone", softmaxes.other_axes
    ),
    "softmax_twice": alone_in_weights(
        "the softmax twice: the weights have a second one",
        lambda x: replace(x, again="all"),
        operands.where(
            visibility.hides,
            again="visible",
            detail="the softmax twice: a second one of the visible weights",
        ),
    ),
    "no_softmax": alone_in_weights(
        "the softmax left out, or replaced by another function",
        *softmaxes.others("normal", "the softmax", NORMAL),
    ),
    "equal_weights": single_in_weights(
        "the softmax left out: equal weights for all visible keys",
        *softmaxes.others("normal", "the softmax", EQUAL),
    ),
    "scaled_after_softmax": alone_in_weights(
        "the scale after the softmax", softmaxes.scaled_late
    ),
    "softmax_in_chunks": single_in_weights(
        "the softmax of parts of the keys merged by another rule", softmaxes.in_parts
    ),
    "added_after_softmax": alone_in_weights(
        "a bias or position term added after the softmax",
        *map(softmaxes.added_late, softmaxes.LATE),
    ),
    "fire_rule": alone_in_weights("another rule of FIRE", fire.other_rules),
    "u_v_added": everywhere("u and v added to the same queries", operands.u_v_added),
    "term_multiplied": alone(
        "a bias or position term multiplied with the scores, not added",
        *map(softmaxes.multiplied, softmaxes.LATE),
    ),
    "cap_after_mask": alone_in_weights(
        "the cap after the mask: what is hidden has a score of minus the cap, and a "
        "weight",
        softmaxes.capped_after_mask,
    ),
    "cap_rule": alone(
        "another rule of the cap", *softmaxes.others("cap", "the cap", CAPS, "softcap")
    ),
    "cap_other": single(
        "a cap of another number", partial(solved.other_number, name="softcap")
    ),
    "sink_rule": alone_in_weights(
        "another rule of the sinks",
        *softmaxes.others("sink", "the sinks", [*SINKS, *SINK_COLUMNS], "sinks"),
    ),
    "sink_untold": alone_in_weights(
        "a sink of score 0, one more in the sum, which no argument says",
        softmaxes.untold_sink(1),
    ),
    "sinks_untold": single_in_weights(
        "more keys of score 0 than one, which no argument says",
        *map(softmaxes.untold_sink, range(2, 17)),
    ),
    # visible pairs
    "mask_as_truth": alone(
        "the mask of zeros and ones as truth values (1 shows a key); relpos adds its "
        "numbers to the scores: give it attn_mask.astype(bool)",
        softmaxes.as_truth(inverted=False),
    ),
    "mask_as_truth_inverted": alone(
        "the mask of zeros and ones as truth values, inverted (1 hides a key); relpos "
        "adds its numbers to the scores: give it attn_mask == 0",
        softmaxes.as_truth(inverted=True),
    ),
    "mask_added": alone(
        "truth values of a mask added to the scores, as 1 and 0",
        visibility.numbers_added,
    ),
    "window_bounds": alone(
        "a window with other bounds, or for another query", *visibility.windows()
    ),
    "window_untold": single(
        "a window, which no argument says", visibility.window_untold
    ),
    "window_of_diagonals": single(
        "the two sides of a window combined in another way",
        visibility.window_of_diagonals,
    ),
    "padding_of_zeros": alone_in_outputs(
        "keys and values of what hides set to 0", visibility.padding_of_zeros
    ),
    "window_with_holes": single(
        "a window that hides some of its keys", *visibility.windows_with_holes()
    ),
    **{
        name: alone(words.format("what hides"), *visibility.of_each(reset, words))
        for name, (reset, words) in visibility.RESETS.items()
    },
    "visible_prefix": single(
        "the first keys visible to all queries", visibility.visible_prefix
    ),
    "visible_ends_moved": single(
        "what hides beginning or ending some keys elsewhere", *visibility.ends_moved()
    ),
    "visible_rolled": single(
        "what hides rolled along the keys or the queries", *visibility.rolled()
    ),
    "causal_diagonal": single(
        "the last visible key further from each query's own", visibility.other_diagonal
    ),
    "keys_left_out": single(
        "the first or the last keys left out", visibility.keys_left_out
    ),
    "hidden_by_both": alone(
        "two arguments that hide combined in another way", visibility.combined
    ),
    "hidden_is_finite": alone_in_weights(
        "a finite score where the mask hides, which a softmax sees",
        *map(softmaxes.finite, ("filled", "lowered")),
    ),
    "hidden_weight": single_in_weights(
        "a number as the weight of what the mask hides",
        *map(softmaxes.filled_late, softmaxes.FILLED),
    ),
    # operands
    "operands_exchanged": alone(
        "queries, keys or values exchanged, or used for one another",
        *operands.all_roles(contrived=False),
    ),
    "operands_mixed": single(
        "queries, keys and values used for one another in several places",
        *operands.all_roles(contrived=True),
    ),
    "weights_transposed": alone_in_outputs(
        "the weights transposed before they multiply the values", operands.crossed
    ),
    "operands_normalised": alone("queries or keys normalised", operands.normalised),
    "residual_added": _rows_of("outputs", single=True)(
        "queries, keys or values added to the results",
        *map(operands.with_residual, operands.OPERANDS),
    ),
    "other_decay": alone("another decay", operands.other_decays),
    "values_unweighted": alone_in_outputs(
        "relative values without weights, or with transposed ones", operands.other_sums
    ),
    "heads_split": alone(
        "heads split without a transpose, or another layout", *layouts.splits()
    ),
    "heads_merged": alone_in_outputs(
        "heads merged without a transpose, or added up", *layouts.merges()
    ),
    "results_moved": single_in_weights(
        "the results of the queries in another order", layouts.moved_results
    ),
    "memory_unplaced": single(
        "no position term for the cached keys (memory), as of a table or of R for the "
        "new ones alone",
        operands.memory_unplaced,
    ),
    "term_mixed": single(
        "the items or heads of a position term mixed up", layouts.mixed_terms
    ),
    "results_mixed": single_in_weights(
        "the items or heads of the results mixed up", layouts.mixed_results
    ),
    "term_transposed": single(
        "some terms of the scores transposed", operands.transposed
    ),
    "term_reshaped": single(
        "a bias reshaped where its axes are to be transposed", layouts.reshaped_terms
    ),
    "grid_labels": single("labels of an image by another rule", grids.other_labels),
    "axes_reordered": single(
        "heads split or merged in another order of axes", *layouts.other_orders()
    ),
    "fused_split": single(
        "the columns of a fused projection split in another order", layouts.fused
    ),
    "heads_mapped": single(
        "the arguments of other heads or items of the batch",
        *map(layouts.mapped, layouts.MAPPED),
    ),
    # rotary
    "rotary_one_side": everywhere(
        "queries or keys rotated, not both",
        worded("the queries alone rotated: rotate both", rotations.rotating("query")),
        worded("the keys alone rotated: rotate both", rotations.rotating("key")),
    ),
    "rotary_values": in_outputs(
        "values rotated too", rotations.rotating("query", "key", "value")
    ),
    "no_rotary": everywhere(
        "the rotation left out, or made by the number of the head, which cancels",
        rotations.rotating(),
    ),
    "rotary_partial": everywhere(
        "all columns rotated where a part is to be",
        rotations.by_plan(rotations.all_columns),
    ),
    "rotary_exponent": everywhere(
        "frequencies whose exponents count over another width",
        worded(
            "frequencies of base^(-c / width), not of base^(-2 c / width)",
            rotations.exponents(lambda c: (c,), lambda x: (x.width,)),
        ),
        worded(
            "frequencies whose exponents count over the width of the head, not over "
            "the columns that are rotated",
            rotations.exponents(lambda c: (2 * c,), lambda x: (x.dim,)),
        ),
    ),
    "rotary_base": everywhere(
        "the base of another model: 10,000, 500,000 or 1,000,000",
        rotations.by_plan(rotations.other_base),
    ),
    "rotary_unscaled": everywhere(
        "the frequencies of the base, not those that are given",
        rotations.by_plan(rotations.of_base),
        rotations.on_a_line,
    ),
    "no_magnitude": everywhere(
        "the magnitude left out", rotations.by_plan(rotations.magnitudes(0.0))
    ),
    "rotary_bfloat16": everywhere(
        "frequencies rounded to bfloat16", rotations.by_plan(rotations.in_bfloat16)
    ),
    "rotary_keys_moved": everywhere(
        "keys counted from the first query's position", positions.keys_from_query_0
    ),
    **{
        name: alone(*row)
        for rows in (rotations.ROWS, positions.ROWS)
        for name, row in rows.items()
    },
    **{name: single(*row) for name, row in shifts.ROWS.items()},
    "rows_reversed": alone(
        "the rows that this length needs in reverse order, within a table that has "
        "more: the row of a distance then depends on the length",
        tables.reversed_within,
    ),
    **{name: alone(*row) for name, row in shifts.SHIFTS.items()},
    "shift_padded_by_row": single(
        "the shift (skew) with a row of padding, and a column dropped: pad in front of "
        "the first column and drop the first row",
        shifts.padded_by_row,
    ),
    **{
        f"{source}_table_for_{target}": alone(
            f"the table of the {operands.PLURALS[source]} added to the "
            f"{operands.PLURALS[target]}",
            tables.used_for(f"rel_{source}", f"rel_{target}"),
        )
        for source, target in permutations(operands.OPERANDS, 2)
    },
    "one_side_is_0": single(
        "the row of distance 0 for all later or for all earlier keys",
        worded(
            "the row of distance 0 for all later keys",
            tables.by_position(lambda r: np.minimum(r, 0)),
        ),
        worded(
            "the row of distance 0 for all earlier keys",
            tables.by_position(lambda r: np.maximum(r, 0)),
        ),
    ),
    "clip_one_side_early": single(
        "distances of earlier or of later keys alone clipped at k - 1",
        *(
            worded(f"distances of {x} keys alone clipped at k - 1", form)
            for x in ("earlier", "later")
            for form in [tables.clipped_early(x)]
        ),
    ),
    "rows_by_other_rule": single(
        "the rows of a table by another rule than key minus query", tables.other_rows
    ),
    "rows_moved": single("rows further from the right ones", tables.moved_rows),
    "offset_other": single("another query_offset", visibility.other_offset),
    "one_table_moved": alone(
        "one table read by another rule than the others", tables.one_table
    ),
    "clip_elsewhere": alone(
        "distances clipped at another number than the largest of the table",
        tables.clipped_elsewhere,
    ),
    "scale_other": single(
        "a scale of another number, such as the length or the number of heads: "
        "multiply by 1 / sqrt(D)",
        operands.other_scales,
    ),
    "scales_differ": alone(
        "the scale on the content alone twice, or on the position terms alone: scale "
        "both once",
        operands.where(
            lambda x: tables.tables_of(x) and x.get("scale") not in (0, 1),
            powers={"content": -1, "pos_bias_u": -1},
            detail="the content outside the scale: scale it once, as the other terms",
        ),
        worded(
            "the position terms scaled twice: scale them once, as the content",
            operands.rescaled(("rel_key", "pos_bias_v", "rel_query"), 1),
        ),
    ),
    "table_twice": alone(
        "a position term, a bias or the numbers of a mask twice, or their half",
        *(
            worded(f"the position terms, biases and numbers of a mask {words}", form)
            for words, factor in (("twice", 2.0), ("times 1/2", 0.5))
            for form in [tables.multiplied(factor)]
        ),
    ),
    "table_heads": alone(
        "the heads of a table mixed up: in another order, one for all, or its heads "
        "and rows reshaped where they are to be transposed",
        tables.heads_of_table,
        tables.u_v_reshaped,
    ),
    "tables_exchanged": alone(
        "the table of the queries exchanged with that of the keys or of the values",
        *(
            worded(
                f"the table of the queries exchanged with that of the {words}",
                tables.taken(rel_query=other, **{other: "rel_query"}),
            )
            for words, other in (("keys", "rel_key"), ("values", "rel_value"))
        ),
    ),
    # numbers that follow from the results
    "weights_multiplied": single_in_weights(
        "the weights, or the results, times a number", solved.weights_factor
    ),
    "scores_multiplied": single(
        "all scores times a number, after what is added to them", solved.scores_factor
    ),
    "term_factor": single("a term times a number, or left out", solved.term_factors),
    "query_factors": single_in_weights(
        "the scores of each query times a number of its own", solved.query_factors
    ),
    "rotary_fragments": single(
        "cached keys of several fragments, each rotated at positions from 0: count all "
        "of them from the first key",
        positions.changes(positions.joined),
    ),
    "rotary_table": single(
        "a table of sines and cosines read as if they were joined in another way: they "
        "alternate, or one follows the other, or the two are exchanged",
        rotations.by_plan(rotations.mixed_table),
    ),
    "rotary_base_other": single("frequencies of another base", rotations.any_base),
    "rotary_factor": single("frequencies times a number", rotations.any_factor),
    "rotary_some": single("other frequencies of some pairs", rotations.any_frequencies),
}

#: Mistakes of masks by which the terms of later keys count, and sets of pairs of which
#: that is so.
_SHOWING_LATER = (
    *("masked_after_softmax", "mask_added", "mask_transposed", "causal_sees_next"),
    *("causal_backwards", *(f"no_{name}" for name in HIDING)),
)
_SETS_SHOWING_LATER = {
    "visible_inverted": ("is_causal", "attn_mask"),
    "visible_end_later": ("attn_mask",),
}
#: Forms of mistakes that are tried after all others, alone.
FURTHER: dict[str, tuple[Changes, ...]] = {
    **{
        name: tuple(unseen.with_later(form, words) for form in forms)
        for name in _SHOWING_LATER
        for words, forms, *_ in [MISTAKES[name]]
    },
    **{
        name: tuple(
            unseen.with_later(form)
            for form in visibility.of_each(*visibility.RESETS[name], *names)
        )
        for name, names in _SETS_SHOWING_LATER.items()
    },
    "hidden_is_finite": (unseen.with_later(softmaxes.finite("lowered")),),
    "hidden_weight": (
        unseen.with_later(softmaxes.filled_late("after the softmax of all keys")),
    ),
}

DIFFERENCES = tuple(
    Difference(name, kind, *row, further=FURTHER.get(name, ()))
    for kind, rows in (("convention", CONVENTIONS), ("mistake", MISTAKES))
    for name, row in rows.items()
)
