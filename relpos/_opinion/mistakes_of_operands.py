"""Mistakes of queries, keys, values, heads and results: rows of the table."""

from __future__ import annotations

from functools import partial

from relpos._opinion import grids, layouts, operands
from relpos._opinion.difference import OUTPUTS, WEIGHTS, Difference

# None of these rows is tried with another mistake: most have many forms.
MISTAKES_OF_OPERANDS: tuple[Difference, ...] = (
    # operands
    Difference(
        name="operands_exchanged",
        words="queries, keys or values exchanged, or used for one another",
        # An exchange of two operands, or one copy, is tried with a convention as well.
        # The other uses are in the next row, and are tried without.
        forms=operands.all_roles(contrived=False),
        tried="alone",
    ),
    Difference(
        name="operands_mixed",
        words="queries, keys and values used for one another in several places",
        forms=operands.all_roles(contrived=True),
        tried="single",
    ),
    Difference(
        name="weights_transposed",
        words="the weights transposed before they multiply the values",
        forms=[operands.crossed],
        views=OUTPUTS,
        tried="alone",
    ),
    Difference(
        name="operands_normalised",
        words="queries or keys normalised",
        forms=[operands.normalised],
        tried="alone",
    ),
    Difference(
        name="residual_added",
        words="queries, keys or values added to the results",
        forms=[
            partial(operands.with_residual, name=name) for name in operands.OPERANDS
        ],
        views=OUTPUTS,
        tried="single",
    ),
    Difference(
        name="other_decay",
        words="another decay",
        forms=[operands.other_decays],
        tried="alone",
    ),
    Difference(
        name="values_unweighted",
        words="relative values without weights, or with transposed ones",
        forms=[operands.other_sums],
        views=OUTPUTS,
        tried="alone",
    ),
    Difference(
        name="heads_split",
        words="heads split without a transpose, or another layout",
        forms=layouts.splits(),
        tried="alone",
    ),
    Difference(
        name="heads_merged",
        words="heads merged without a transpose, or added up",
        forms=layouts.merges(),
        views=OUTPUTS,
        tried="alone",
    ),
    Difference(
        name="results_moved",
        words="the results of the queries in another order",
        forms=[layouts.moved_results],
        views=WEIGHTS,
        tried="single",
    ),
    Difference(
        name="memory_unplaced",
        words=(
            "no position term for the cached keys (memory), as of a table or of R for "
            "the new ones alone"
        ),
        forms=[operands.memory_unplaced],
        tried="single",
    ),
    Difference(
        name="term_mixed",
        words="the items or heads of a position term mixed up",
        forms=[layouts.mixed_terms],
        tried="single",
    ),
    Difference(
        name="results_mixed",
        words="the items or heads of the results mixed up",
        forms=[layouts.mixed_results],
        views=WEIGHTS,
        tried="single",
    ),
    Difference(
        name="term_transposed",
        words="some terms of the scores transposed",
        forms=[operands.transposed],
        tried="single",
    ),
    Difference(
        name="term_reshaped",
        words="a bias reshaped where its axes are to be transposed",
        forms=[layouts.reshaped_terms],
        tried="single",
    ),
    Difference(
        name="grid_labels",
        words="labels of an image by another rule",
        forms=[grids.other_labels],
        tried="single",
    ),
    Difference(
        name="axes_reordered",
        words="heads split or merged in another order of axes",
        forms=layouts.other_orders(),
        tried="single",
    ),
    Difference(
        name="fused_split",
        words="the columns of a fused projection split in another order",
        forms=[layouts.fused],
        tried="single",
    ),
    Difference(
        name="heads_mapped",
        words="the arguments of other heads or items of the batch",
        forms=[partial(layouts.mapped, names=names) for names in layouts.MAPPED],
        tried="single",
    ),
)
