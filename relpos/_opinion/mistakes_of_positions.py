"""Mistakes of rotary, of tables of positions, and of numbers: rows of the table.

The last ones have numbers that follow from the results.
"""

from __future__ import annotations

from functools import partial
from itertools import permutations

from relpos._opinion import (
    operands,
    positions,
    rotations,
    shifts,
    solved,
    tables,
    visibility,
)
from relpos._opinion.attempt import Attempt, worded
from relpos._opinion.difference import OUTPUTS, WEIGHTS, Difference
from relpos._opinion.mistakes_of_rotary import MISTAKES_OF_ROTARY


def _has_scaled_tables(attempt: Attempt) -> bool:
    """Return True if there are tables, and a scale that changes something."""
    return bool(tables.tables_of(attempt)) and attempt.get("scale") not in (0, 1)


MISTAKES_OF_POSITIONS: tuple[Difference, ...] = (
    # rotary
    Difference(
        name="rotary_one_side",
        words="queries or keys rotated, not both",
        forms=[
            worded(
                "the queries alone rotated: rotate both",
                partial(rotations.rotating, names=("query",)),
            ),
            worded(
                "the keys alone rotated: rotate both",
                partial(rotations.rotating, names=("key",)),
            ),
        ],
    ),
    Difference(
        name="rotary_values",
        words="values rotated too",
        forms=[partial(rotations.rotating, names=("query", "key", "value"))],
        views=OUTPUTS,
    ),
    Difference(
        name="no_rotary",
        words="the rotation left out, or made by the number of the head, which cancels",
        forms=[partial(rotations.rotating, names=())],
    ),
    Difference(
        name="rotary_partial",
        words="all columns rotated where a part is to be",
        forms=[rotations.by_plan(rotations.all_columns)],
    ),
    Difference(
        name="rotary_exponent",
        words="frequencies whose exponents count over another width",
        forms=[
            worded(
                "frequencies of base^(-c / width), not of base^(-2 c / width)",
                rotations.exponents(rotations.from_pairs, rotations.width_of_columns),
            ),
            worded(
                "frequencies whose exponents count over the width of the head, not "
                "over the columns that are rotated",
                rotations.exponents(rotations.from_columns, rotations.width_of_head),
            ),
        ],
    ),
    Difference(
        name="rotary_base",
        words="the base of another model: 10,000, 500,000 or 1,000,000",
        forms=[rotations.by_plan(rotations.other_base)],
    ),
    Difference(
        name="rotary_unscaled",
        words="the frequencies of the base, not those that are given",
        forms=[
            rotations.by_plan(rotations.of_base),
            rotations.on_a_line,
        ],
    ),
    Difference(
        name="no_magnitude",
        words="the magnitude left out",
        forms=[rotations.by_plan(rotations.magnitudes(0.0))],
    ),
    Difference(
        name="rotary_bfloat16",
        words="frequencies rounded to bfloat16",
        forms=[rotations.by_plan(rotations.in_bfloat16)],
    ),
    Difference(
        name="rotary_keys_moved",
        words="keys counted from the first query's position",
        forms=[partial(positions.changes, rule=positions.from_query_0)],
    ),
    *MISTAKES_OF_ROTARY,
    *positions.ROWS,
    *shifts.ROWS,
    Difference(
        name="rows_reversed",
        words=(
            "the rows that this length needs in reverse order, within a table that has "
            "more: the row of a distance then depends on the length"
        ),
        forms=[tables.reversed_within],
        tried="alone",
    ),
    *shifts.SHIFTS,
    Difference(
        name="shift_padded_by_row",
        words=(
            "the shift (skew) with a row of padding, and a column dropped: pad in "
            "front of the first column and drop the first row"
        ),
        forms=[shifts.padded_by_row],
        tried="single",
    ),
    *[
        Difference(
            name=f"{source}_table_for_{target}",
            words=(
                f"the table of the {operands.PLURALS[source]} added to the "
                f"{operands.PLURALS[target]}"
            ),
            forms=[
                partial(tables.used_for, source=f"rel_{source}", target=f"rel_{target}")
            ],
            tried="alone",
        )
        # Each operand's table is used for each other operand.
        for source, target in permutations(operands.OPERANDS, 2)
    ],
    Difference(
        name="one_side_is_0",
        words="the row of distance 0 for all later or for all earlier keys",
        forms=[
            worded(
                "the row of distance 0 for all later keys",
                partial(tables.by_position, change=tables.not_later),
            ),
            worded(
                "the row of distance 0 for all earlier keys",
                partial(tables.by_position, change=tables.not_earlier),
            ),
        ],
        tried="single",
    ),
    Difference(
        name="clip_one_side_early",
        words="distances of earlier or of later keys alone clipped at k - 1",
        forms=[
            worded(
                "distances of earlier keys alone clipped at k - 1",
                partial(tables.clipped_early, sides=("earlier",)),
            ),
            worded(
                "distances of later keys alone clipped at k - 1",
                partial(tables.clipped_early, sides=("later",)),
            ),
        ],
        tried="single",
    ),
    Difference(
        name="rows_by_other_rule",
        words="the rows of a table by another rule than key minus query",
        forms=[tables.other_rows],
        tried="single",
    ),
    Difference(
        name="rows_moved",
        words="rows further from the right ones",
        forms=[tables.moved_rows],
        tried="single",
    ),
    Difference(
        name="offset_other",
        words="another query_offset",
        forms=[visibility.other_offset],
        tried="single",
    ),
    Difference(
        name="one_table_moved",
        words="one table read by another rule than the others",
        forms=[tables.one_table],
        tried="alone",
    ),
    Difference(
        name="clip_elsewhere",
        words="distances clipped at another number than the largest of the table",
        forms=[tables.clipped_elsewhere],
        tried="alone",
    ),
    Difference(
        name="scale_other",
        words=(
            "a scale of another number, such as the length or the number of heads: "
            "multiply by 1 / sqrt(D)"
        ),
        forms=[operands.other_scales],
        tried="single",
    ),
    Difference(
        name="scales_differ",
        words=(
            "the scale on the content alone twice, or on the position terms alone: "
            "scale both once"
        ),
        forms=[
            partial(
                operands.where,
                holds=_has_scaled_tables,
                # u is multiplied with the keys, as the queries are, and is scaled with
                # them.
                powers={"content": -1, "pos_bias_u": -1},
                detail=(
                    "the content outside the scale: scale it once, as the other terms"
                ),
            ),
            worded(
                "the position terms scaled twice: scale them once, as the content",
                partial(
                    operands.rescaled,
                    names=("rel_key", "pos_bias_v", "rel_query"),
                    power=1,
                ),
            ),
        ],
        tried="alone",
    ),
    Difference(
        name="table_twice",
        words="a position term, a bias or the numbers of a mask twice, or their half",
        forms=[
            worded(
                "the position terms, biases and numbers of a mask twice",
                partial(tables.multiplied, factor=2.0),
            ),
            worded(
                "the position terms, biases and numbers of a mask times 1/2",
                partial(tables.multiplied, factor=0.5),
            ),
        ],
        tried="alone",
    ),
    Difference(
        name="table_heads",
        words=(
            "the heads of a table mixed up: in another order, one for all, or its "
            "heads and rows reshaped where they are to be transposed"
        ),
        forms=[
            tables.heads_of_table,
            tables.u_v_reshaped,
        ],
        tried="alone",
    ),
    Difference(
        name="tables_exchanged",
        words=(
            "the table of the queries exchanged with that of the keys or of the values"
        ),
        forms=[
            worded(
                "the table of the queries exchanged with that of the keys",
                partial(tables.taken, rel_query="rel_key", rel_key="rel_query"),
            ),
            worded(
                "the table of the queries exchanged with that of the values",
                partial(tables.taken, rel_query="rel_value", rel_value="rel_query"),
            ),
        ],
        tried="alone",
    ),
    # Numbers that follow from the results: a row above that names such a number comes
    # first, and is preferred.
    Difference(
        name="weights_multiplied",
        words="the weights, or the results, times a number",
        forms=[solved.weights_factor],
        views=WEIGHTS,
        tried="single",
    ),
    Difference(
        name="scores_multiplied",
        words="all scores times a number, after what is added to them",
        forms=[solved.scores_factor],
        tried="single",
    ),
    Difference(
        name="term_factor",
        words="a term times a number, or left out",
        forms=[solved.term_factors],
        tried="single",
    ),
    Difference(
        name="query_factors",
        words="the scores of each query times a number of its own",
        forms=[solved.query_factors],
        views=WEIGHTS,
        tried="single",
    ),
    Difference(
        name="rotary_fragments",
        words=(
            "cached keys of several fragments, each rotated at positions from 0: "
            "count all of them from the first key"
        ),
        forms=[partial(positions.changes, rule=positions.joined)],
        tried="single",
    ),
    Difference(
        name="rotary_table",
        words=(
            "a table of sines and cosines read as if they were joined in another way: "
            "they alternate, or one follows the other, or the two are exchanged"
        ),
        forms=[rotations.by_plan(rotations.mixed_table)],
        tried="single",
    ),
    Difference(
        name="rotary_base_other",
        words="frequencies of another base",
        forms=[rotations.any_base],
        tried="single",
    ),
    Difference(
        name="rotary_factor",
        words="frequencies times a number",
        forms=[rotations.any_factor],
        tried="single",
    ),
    Difference(
        name="rotary_some",
        words="other frequencies of some pairs",
        forms=[rotations.any_frequencies],
        tried="single",
    ),
)
