"""Mistakes of the softmax, and of masks, windows and padding: rows of the table."""

from __future__ import annotations

from functools import partial

from relpos._opinion import (
    fire,
    operands,
    softmaxes,
    solved,
    visibility,
)
from relpos._opinion.difference import OUTPUTS, WEIGHTS, Difference
from relpos._opinion.rules import CAPS, EQUAL, NORMAL, SINK_COLUMNS, SINKS

# Rows with many forms, or with a number that follows from the results, are tried
# without another mistake.
MISTAKES_OF_WEIGHTS: tuple[Difference, ...] = (
    # the softmax, and what happens before and after it
    Difference(
        name="softmax_axes",
        words="the softmax over other axes, not over keys alone",
        forms=[softmaxes.other_axes],
        views=WEIGHTS,
        tried="alone",
    ),
    Difference(
        name="softmax_twice",
        words="the softmax twice: the weights have a second one",
        forms=[
            softmaxes.softmax_twice,
            partial(
                operands.where,
                holds=visibility.hides,
                again="visible",
                detail="the softmax twice: a second one of the visible weights",
            ),
        ],
        views=WEIGHTS,
        tried="alone",
    ),
    Difference(
        name="no_softmax",
        words="the softmax left out, or replaced by another function",
        forms=[partial(softmaxes.other_function, rule=rule) for rule in NORMAL],
        views=WEIGHTS,
        tried="alone",
    ),
    Difference(
        name="equal_weights",
        words="the softmax left out: equal weights for all visible keys",
        forms=[partial(softmaxes.other_function, rule=rule) for rule in EQUAL],
        views=WEIGHTS,
        tried="single",
    ),
    Difference(
        name="scaled_after_softmax",
        words="the scale after the softmax",
        forms=[softmaxes.scaled_late],
        views=WEIGHTS,
        tried="alone",
    ),
    Difference(
        name="softmax_in_chunks",
        words="the softmax of parts of the keys merged by another rule",
        forms=[softmaxes.in_parts],
        views=WEIGHTS,
        tried="single",
    ),
    Difference(
        name="added_after_softmax",
        words="a bias or position term added after the softmax",
        forms=[partial(softmaxes.added_late, names=names) for names in softmaxes.LATE],
        views=WEIGHTS,
        tried="alone",
    ),
    Difference(
        name="fire_rule",
        words="another rule of FIRE",
        forms=[fire.other_rules],
        views=WEIGHTS,
        tried="alone",
    ),
    Difference(
        name="u_v_added",
        words="u and v added to the same queries",
        forms=[operands.u_v_added],
    ),
    Difference(
        name="term_multiplied",
        words="a bias or position term multiplied with the scores, not added",
        forms=[partial(softmaxes.multiplied, names=names) for names in softmaxes.LATE],
        tried="alone",
    ),
    Difference(
        name="cap_after_mask",
        words=(
            "the cap after the mask: what is hidden has a score of minus the cap, and "
            "a weight"
        ),
        forms=[softmaxes.capped_after_mask],
        views=WEIGHTS,
        tried="alone",
    ),
    Difference(
        name="cap_rule",
        words="another rule of the cap",
        forms=[partial(softmaxes.other_cap, rule=rule) for rule in CAPS if rule],
        tried="alone",
    ),
    Difference(
        name="cap_other",
        words="a cap of another number",
        forms=[partial(solved.other_number, name="softcap")],
        tried="single",
    ),
    Difference(
        name="sink_rule",
        words="another rule of the sinks",
        forms=[
            partial(softmaxes.other_sink, rule=rule) for rule in (*SINKS, *SINK_COLUMNS)
        ],
        views=WEIGHTS,
        tried="alone",
    ),
    Difference(
        name="sink_untold",
        words="a sink of score 0, one more in the sum, which no argument says",
        forms=[partial(softmaxes.untold_sink, count=1)],
        views=WEIGHTS,
        tried="alone",
    ),
    Difference(
        name="sinks_untold",
        words="more keys of score 0 than one, which no argument says",
        forms=[partial(softmaxes.untold_sink, count=n) for n in range(2, 17)],
        views=WEIGHTS,
        tried="single",
    ),
    # visible pairs
    Difference(
        name="mask_as_truth",
        words=(
            "the mask of zeros and ones as truth values (1 shows a key); relpos adds "
            "its numbers to the scores: give it attn_mask.astype(bool)"
        ),
        forms=[partial(softmaxes.as_truth, inverted=False)],
        tried="alone",
    ),
    Difference(
        name="mask_as_truth_inverted",
        words=(
            "the mask of zeros and ones as truth values, inverted (1 hides a key); "
            "relpos adds its numbers to the scores: give it attn_mask == 0"
        ),
        forms=[partial(softmaxes.as_truth, inverted=True)],
        tried="alone",
    ),
    Difference(
        name="mask_added",
        words="truth values of a mask added to the scores, as 1 and 0",
        forms=[visibility.numbers_added],
        tried="alone",
    ),
    Difference(
        name="window_bounds",
        words="a window with other bounds, or for another query",
        forms=visibility.windows(),
        tried="alone",
    ),
    Difference(
        name="window_untold",
        words="a window, which no argument says",
        forms=[visibility.window_untold],
        tried="single",
    ),
    Difference(
        name="window_of_diagonals",
        words="the two sides of a window combined in another way",
        forms=[visibility.window_of_diagonals],
        tried="single",
    ),
    Difference(
        name="padding_of_zeros",
        words="keys and values of what hides set to 0",
        forms=[visibility.padding_of_zeros],
        views=OUTPUTS,
        tried="alone",
    ),
    Difference(
        name="window_with_holes",
        words="a window that hides some of its keys",
        forms=visibility.windows_with_holes(),
        tried="single",
    ),
    *[
        Difference(
            name=name,
            words=words.format("what hides"),
            forms=visibility.of_each(reset, words),
            tried="alone",
        )
        for name, (reset, words) in visibility.RESETS.items()
    ],
    Difference(
        name="visible_prefix",
        words="the first keys visible to all queries",
        forms=[visibility.visible_prefix],
        tried="single",
    ),
    Difference(
        name="visible_ends_moved",
        words="what hides beginning or ending some keys elsewhere",
        forms=visibility.ends_moved(),
        tried="single",
    ),
    Difference(
        name="visible_rolled",
        words="what hides rolled along the keys or the queries",
        forms=visibility.rolled(),
        tried="single",
    ),
    Difference(
        name="causal_diagonal",
        words="the last visible key further from each query's own",
        forms=[visibility.other_diagonal],
        tried="single",
    ),
    Difference(
        name="keys_left_out",
        words="the first or the last keys left out",
        forms=[visibility.keys_left_out],
        tried="single",
    ),
    Difference(
        name="hidden_by_both",
        words="two arguments that hide combined in another way",
        forms=[visibility.combined],
        tried="alone",
    ),
    Difference(
        name="hidden_is_finite",
        words="a finite score where the mask hides, which a softmax sees",
        forms=[
            partial(softmaxes.finite, rule="filled"),
            partial(softmaxes.finite, rule="lowered"),
        ],
        views=WEIGHTS,
        tried="alone",
    ),
    Difference(
        name="hidden_weight",
        words="a number as the weight of what the mask hides",
        forms=[
            partial(softmaxes.filled_late, words=words) for words in softmaxes.FILLED
        ],
        views=WEIGHTS,
        tried="single",
    ),
)
