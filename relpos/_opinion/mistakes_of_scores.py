"""Mistakes of terms, rows of tables, scales and causality: rows of the table."""

from __future__ import annotations

from functools import partial

import numpy as np

from relpos._attention.operands import OPERANDS
from relpos._opinion import (
    biases,
    fire,
    operands,
    softmaxes,
    tables,
    visibility,
)
from relpos._opinion.attempt import HIDING, worded
from relpos._opinion.difference import OUTPUTS, WEIGHTS, Difference

#: Arguments that may be left out, in words; others by their names.
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
_WITHOUT |= {
    name: name
    for name, row in OPERANDS.items()
    if row.has_gradient
    and name not in (*_WITHOUT, "query", "key", "value", "attn_mask")
}
#: Terms whose sign may be the other one, in words.
#: The term of v has the rows of `rel_key`, and so its sign.
_NEGATED: dict[str, tuple[str, tuple[str, ...]]] = {
    "position_negated": ("the position term", ("rel_key", "pos_bias_v")),
    "u_v_negated": ("u and v", ("pos_bias_u", "pos_bias_v")),
    "u_negated": ("u", ("pos_bias_u",)),
    "v_negated": ("v", ("pos_bias_v",)),
    "position_query_negated": ("the position query", ("position_query",)),
    "query_term_negated": ("the position term of the queries", ("rel_query",)),
}

MISTAKES_OF_SCORES: tuple[Difference, ...] = (
    *[
        Difference(
            name=f"no_{name}",
            words=f"{words} left out",
            forms=[partial(operands.without, name=name)],
        )
        for name, words in _WITHOUT.items()
    ],
    Difference(
        name="no_fire",
        words="FIRE's bias left out",
        forms=[fire.left_out],
    ),
    Difference(
        name="no_mask_numbers",
        words="the numbers of the mask left out",
        forms=[operands.without_mask_numbers],
    ),
    Difference(
        name="no_positions",
        words="all position terms left out",
        forms=[operands.without_positions],
    ),
    # biases by a rule, whose sign could be taken for another row
    Difference(
        name="bias_negated",
        words=(
            "the bias negated: the sign of the distance or of the slopes is the other "
            "one"
        ),
        forms=[
            # A bias is given by relative position or, as FIRE's, in the mask.
            partial(operands.negated, names=("rel_bias",)),
            partial(operands.negated, names=("attn_mask",)),
        ],
    ),
    Difference(
        name="alibi_distance_signed",
        words=(
            "ALiBi's slopes times the distance with its sign, or on one side only: "
            "take the absolute value, -slope * |key - query|, for earlier and later "
            "keys"
        ),
        forms=[partial(biases.by_slopes, rule=biases.signed_distance)],
    ),
    *biases.ROWS,
    # rows
    Difference(
        name="off_by_one",
        words="the row before or after the right one for each pair",
        forms=[tables.off_by_one],
    ),
    Difference(
        name="shift_in_encoder",
        words=(
            "the causal shift where later keys are seen: their position scores are "
            "those of the next query"
        ),
        forms=[visibility.shifted_in_encoder],
    ),
    Difference(
        name="wrapped_attended",
        words="no mask over the wrapped entries of the causal shift",
        forms=[visibility.wrapped_seen],
        views=WEIGHTS,
    ),
    Difference(
        name="future_is_past",
        words=(
            "the distance without its sign: a later key has the row of an earlier one"
        ),
        forms=[
            # A later key has the row of an earlier one, or an earlier key that of a
            # later one.
            partial(tables.by_position, change=tables.signless_past),
            partial(tables.by_position, change=np.abs),
        ],
    ),
    Difference(
        name="two_sided_misread",
        words=(
            "a two-sided table read as one of the past: give rel_key[..., :R // 2 + "
            "1, :]"
        ),
        forms=[partial(tables.read_as, kind="past")],
    ),
    Difference(
        name="clip_one_early",
        words="distances clipped at k - 1",
        forms=[partial(tables.clipped_early, sides=("earlier", "later"))],
    ),
    Difference(
        name="index_wraps",
        words=(
            "rows before the first taken from the end, as a negative index does: add "
            "the largest distance to clipped ones"
        ),
        forms=[tables.index_wraps],
    ),
    Difference(
        name="absolute_rows",
        words=(
            "the row of the key's own position, whatever the query's, as without a "
            "shift"
        ),
        forms=[tables.at_key],
    ),
    Difference(
        name="query_table_reversed",
        words="the table of the queries reversed",
        forms=[partial(tables.one_reversed, name="rel_query")],
    ),
    Difference(
        name="value_table_reversed",
        words="the table of the values reversed",
        forms=[partial(tables.one_reversed, name="rel_value")],
        views=OUTPUTS,
    ),
    Difference(
        name="not_transposed",
        words="the key's position scores not transposed",
        forms=[
            operands.query_term_transposed,
            operands.reversed_and_transposed,
        ],
    ),
    # sizes
    Difference(
        name="scale_d_model",
        words="a scale of 1 / sqrt(d_model)",
        forms=[partial(operands.scaled, scale_of=operands.scale_of_model)],
    ),
    Difference(
        name="scaled_twice",
        words="the scale twice",
        forms=[operands.scale_squared],
    ),
    Difference(
        name="scale_inverted",
        words="sqrt(D) for 1 / sqrt(D)",
        forms=[operands.scale_inverted],
    ),
    Difference(
        name="u_v_exchanged",
        words="u and v exchanged",
        forms=[partial(tables.taken, pos_bias_u="pos_bias_v", pos_bias_v="pos_bias_u")],
    ),
    Difference(
        name="u_is_v",
        words="one of u and v in both places",
        forms=[
            worded(
                "u in the place of v too",
                partial(tables.taken, pos_bias_v="pos_bias_u"),
            ),
            worded(
                "v in the place of u too",
                partial(tables.taken, pos_bias_u="pos_bias_v"),
            ),
        ],
    ),
    Difference(
        name="u_v_unscaled",
        words="u and v outside the scale",
        forms=[
            partial(operands.rescaled, names=("pos_bias_u", "pos_bias_v"), power=-1)
        ],
    ),
    *[
        Difference(
            name=name,
            words=f"{words} negated",
            forms=[partial(operands.negated, names=terms)],
        )
        for name, (words, terms) in _NEGATED.items()
    ],
    # what is seen
    *[
        Difference(
            name=f"no_{name}",
            words=f"{words} ignored",
            forms=[partial(visibility.ignored, name=name)],
            views=WEIGHTS,
        )
        for name, words in HIDING.items()
    ],
    Difference(
        name="mask_transposed",
        words="the mask transposed",
        forms=[visibility.mask_transposed],
    ),
    # In both rows the offset moves tables and causality, or the tables alone.
    Difference(
        name="offset_0",
        words=(
            "query 0 at the position of key 0, as if no keys came before: add the "
            "offset"
        ),
        forms=[
            partial(visibility.offset_at, end=False),
            partial(visibility.tables_at, end=False),
        ],
    ),
    Difference(
        name="offset_end",
        words="the last query at the position of the last key",
        forms=[
            partial(visibility.offset_at, end=True),
            partial(visibility.tables_at, end=True),
        ],
    ),
    Difference(
        name="causal_untold",
        words="the future hidden, which no argument says (is_causal=True)",
        forms=[visibility.causal_untold],
    ),
    Difference(
        name="causal_strict",
        words="each query's own key hidden too",
        forms=[partial(visibility.causal_where, see=visibility.is_past)],
    ),
    Difference(
        name="causal_sees_next",
        words="the key after each query seen",
        forms=[partial(visibility.causal_where, see=visibility.is_past_own_or_next)],
    ),
    Difference(
        name="causal_backwards",
        words="the past hidden, not the future",
        forms=[partial(visibility.causal_where, see=visibility.is_future_or_own)],
    ),
    Difference(
        name="window_wider",
        words="one key more on each side that has an end",
        forms=[partial(visibility.wider_window, step=1)],
    ),
    Difference(
        name="softmax_over_queries",
        words="the softmax over queries, not over keys",
        forms=[softmaxes.softmax_over_queries],
        views=WEIGHTS,
    ),
    Difference(
        name="masked_after_softmax",
        words="the mask after the softmax: the rest does not sum to 1",
        forms=[partial(operands.where, holds=visibility.hides, hiding="after")],
        views=WEIGHTS,
    ),
    Difference(
        name="hidden_score_0",
        words="a score of 0 where the mask hides, which a softmax sees",
        forms=[partial(operands.where, holds=visibility.hides, filled=0.0)],
        views=WEIGHTS,
    ),
)
