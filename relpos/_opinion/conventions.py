"""Conventions: other ways to compute attention that are as right as relpos's."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from relpos._opinion import (
    operands,
    rotations,
    tables,
    visibility,
)
from relpos._opinion.attempt import Attempt, worded
from relpos._opinion.difference import OUTPUTS, SCORES, WEIGHTS, Difference


def _has_no_sinks(attempt: Attempt) -> bool:
    """Return True without sinks, whose scores no constant of a row moves."""
    return "sinks" not in attempt.keywords


def _has_cap_and_bias(attempt: Attempt) -> bool:
    """Return True if there is a cap, and something that is added after it."""
    added = ("rel_bias", "attn_mask", "log_decay")
    return "softcap" in attempt.keywords and operands.has_numbers(attempt, *added)


def _scores_in_base_two(attempt: Attempt) -> Attempt:
    """Multiply all scores by log2(e)."""
    return replace(attempt, logit_factor=attempt.logit_factor * math.log2(math.e))


# Of differences that explain results equally well, the first row is reported. That is
# why the order of rows is part of the table.
CONVENTIONS: tuple[Difference, ...] = (
    # results
    Difference(
        name="unmasked",
        words="what the mask hides left in the scores",
        forms=[
            visibility.all_seen,
            visibility.all_seen_zero_beyond,
        ],
        views=SCORES,
        kind="convention",
    ),
    Difference(
        name="unmasked_wrapped",
        words=(
            "the wrapped entries of the shift left where the mask hides; hide them "
            "before the softmax, because they are scores of the next query"
        ),
        forms=[visibility.wrapped_seen],
        views=SCORES,
        kind="convention",
    ),
    Difference(
        name="hidden_differs",
        words=(
            "other numbers where the mask hides, which are nothing if it is applied "
            "later"
        ),
        forms=[partial(operands.where, holds=visibility.hides, hiding="visible")],
        views=SCORES,
        kind="convention",
    ),
    Difference(
        name="constant_in_rows",
        words="a constant added to each row, which the softmax takes away",
        # Both sides are compared without the mean of each row.
        forms=[partial(operands.where, holds=_has_no_sinks, centred=True)],
        views=SCORES,
        kind="convention",
    ),
    Difference(
        name="base_two",
        words="scores in base 2, times log2(e), for a softmax by powers of 2",
        forms=[_scores_in_base_two],
        views=SCORES,
        kind="convention",
    ),
    Difference(
        name="nothing_is_nan",
        words="nan where a query sees no key; relpos gives 0",
        forms=[partial(operands.where, holds=visibility.hides, empty="nan")],
        views=WEIGHTS,
        kind="convention",
    ),
    Difference(
        name="nothing_is_mean",
        words=(
            "the mean of all keys where a query sees none, as of a finite mask; relpos "
            "gives 0"
        ),
        forms=[partial(operands.where, holds=visibility.hides, empty="mean")],
        views=WEIGHTS,
        kind="convention",
    ),
    # tables
    Difference(
        name="table_reversed",
        words="the table reversed",
        forms=[partial(tables.all_reversed, buckets=False)],
        kind="convention",
    ),
    Difference(
        name="bucket_direction",
        words="the buckets reversed: of query minus key",
        forms=[partial(tables.all_reversed, buckets=True)],
        kind="convention",
    ),
    Difference(
        name="query_minus_key",
        words="the table read at query minus key, from the same row for 0",
        forms=[tables.negated],
        kind="convention",
    ),
    Difference(
        name="two_sided_table",
        words=(
            "the table read as two-sided: give relpos rel_key[..., :R // 2 + 1, :] "
            "instead"
        ),
        # It is a convention if the table has rows for the past alone in relpos.
        forms=[partial(tables.read_as, kind="two-sided")],
        kind="convention",
    ),
    Difference(
        name="rows_2n",
        words="a table of 2N rows that begins at the other of -N and 1 - N",
        forms=[tables.other_origin],
        kind="convention",
    ),
    Difference(
        name="beyond_table",
        words="the other rule beyond the table, zeros or its end rows",
        forms=[tables.beyond_the_table],
        kind="convention",
    ),
    Difference(
        name="columns_exchanged",
        words=(
            "the table's columns in the other layout of sinusoids, interleaved or "
            "concatenated"
        ),
        forms=[
            worded(
                "the table's columns taken for concatenated sinusoids, where they are "
                "interleaved",
                partial(tables.other_columns, shape=(2, -1)),
            ),
            worded(
                "the table's columns taken for interleaved sinusoids, where they are "
                "concatenated",
                partial(tables.other_columns, shape=(-1, 2)),
            ),
        ],
        kind="convention",
    ),
    Difference(
        name="values_share_table",
        words="the table of the keys for the values too",
        forms=[partial(tables.taken, rel_value="rel_key")],
        views=OUTPUTS,
        kind="convention",
    ),
    Difference(
        name="queries_share_table",
        words="one table for the terms of keys and queries",
        forms=[partial(tables.taken, rel_query="rel_key")],
        kind="convention",
    ),
    # sizes
    Difference(
        name="no_scale",
        words="no scale, as T5",
        forms=[partial(operands.scaled, scale_of=operands.no_scale)],
        kind="convention",
    ),
    Difference(
        name="scale_head_dim",
        words="a scale of 1 / sqrt(D)",
        forms=[partial(operands.scaled, scale_of=operands.scale_of_dim)],
        kind="convention",
    ),
    Difference(
        name="scale_by_dim",
        words="a scale of 1 / D, as muP",
        forms=[partial(operands.scaled, scale_of=operands.scale_by_dim)],
        kind="convention",
    ),
    Difference(
        name="scale_three",
        words="a scale of 1 / sqrt(3 D), as DeBERTa",
        forms=[partial(operands.scaled, scale_of=operands.scale_of_three_terms)],
        kind="convention",
    ),
    Difference(
        name="position_unscaled",
        words="the position terms outside the scale",
        forms=[
            partial(
                operands.rescaled,
                names=("rel_key", "pos_bias_v", "rel_query"),
                # The scale is already on these terms, and is taken away.
                power=-1,
            ),
        ],
        kind="convention",
    ),
    Difference(
        name="position_scaled",
        words="the position query inside the scale",
        # relpos has this term outside of the scale.
        forms=[partial(operands.rescaled, names=("position_query",), power=1)],
        kind="convention",
    ),
    Difference(
        name="bias_scaled",
        words="the bias inside the scale, as Falcon",
        forms=[partial(operands.rescaled, names=("rel_bias", "attn_mask"), power=1)],
        kind="convention",
    ),
    Difference(
        name="cap_after_bias",
        words="the cap after the bias, not before",
        forms=[partial(operands.where, holds=_has_cap_and_bias, cap_last=True)],
        kind="convention",
    ),
    Difference(
        name="heads_tiled",
        words=(
            "query head h at key head h modulo their number, not h divided by the group"
        ),
        forms=[operands.heads_tiled],
        kind="convention",
    ),
    # what is seen
    Difference(
        name="mask_inverted",
        words="the mask inverted: True hides",
        forms=[visibility.mask_inverted],
        kind="convention",
    ),
    Difference(
        name="causal_top_left",
        words="the causal triangle from the first query and key",
        forms=[partial(visibility.causal_at, end=False)],
        kind="convention",
    ),
    Difference(
        name="causal_bottom_right",
        words="the causal triangle from the last query and key",
        forms=[partial(visibility.causal_at, end=True)],
        kind="convention",
    ),
    Difference(
        name="window_counts_itself",
        words=(
            "a window of one key fewer on each side, as where it counts the query's own"
        ),
        forms=[partial(visibility.wider_window, step=-1)],
        kind="convention",
    ),
    # rotary
    Difference(
        name="rotary_pairs",
        words=(
            "the other pairs of columns: neighbours (interleaved), not halves, or the "
            "other way round"
        ),
        forms=[partial(rotations.with_option, name="interleaved")],
        kind="convention",
    ),
    Difference(
        name="rotary_inverse",
        words="angles of the other sign",
        forms=[partial(rotations.with_option, name="inverse")],
        kind="convention",
    ),
)
