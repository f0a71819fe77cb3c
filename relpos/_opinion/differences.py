"""Known differences, in the order in which they are tried and preferred.

To add one, write a function of an `Attempt` that returns another (None: the attempt
cannot have it), or yields several, in the file of its subject. Add a `Difference` with
it to `CONVENTIONS`, or to a table of mistakes. Of several that explain the same numbers
the first is preferred: conventions come first, then the tables below in their order.
"""

from __future__ import annotations

from functools import partial

from relpos._opinion import softmaxes, unseen, visibility
from relpos._opinion.attempt import HIDING, Changes
from relpos._opinion.conventions import CONVENTIONS
from relpos._opinion.difference import Difference
from relpos._opinion.mistakes_of_operands import MISTAKES_OF_OPERANDS
from relpos._opinion.mistakes_of_positions import MISTAKES_OF_POSITIONS
from relpos._opinion.mistakes_of_scores import MISTAKES_OF_SCORES
from relpos._opinion.mistakes_of_weights import MISTAKES_OF_WEIGHTS

#: Mistakes of masks by which the terms of later keys count.
_SHOWING_LATER = {
    "masked_after_softmax",
    "mask_added",
    "mask_transposed",
    "causal_sees_next",
    "causal_backwards",
}
_SHOWING_LATER |= {f"no_{name}" for name in HIDING}
#: Mistakes of sets of pairs by which they count, and the arguments of these sets.
_SETS_SHOWING_LATER = {
    "visible_inverted": ("is_causal", "attn_mask"),
    "visible_end_later": ("attn_mask",),
}


def _further_forms(row: Difference) -> list[Changes]:
    """List the forms of a mistake that are tried last, with no other difference."""
    if row.name in _SHOWING_LATER:
        return [unseen.with_later(form, row.words) for form in row.forms]
    # These rows have a form for each argument that hides, of which the listed ones can
    # show later keys.
    if row.name in _SETS_SHOWING_LATER:
        reset, words = visibility.RESETS[row.name]
        names = _SETS_SHOWING_LATER[row.name]
        forms = visibility.of_each(reset, words, *names)
        return [unseen.with_later(form) for form in forms]
    if row.name == "hidden_is_finite":
        return [unseen.with_later(partial(softmaxes.finite, rule="lowered"))]
    if row.name == "hidden_weight":
        # Only in this form do the scores of later keys count.
        words = "after the softmax of all keys"
        return [unseen.with_later(partial(softmaxes.filled_late, words=words))]
    return []


_ROWS = (
    *CONVENTIONS,
    *MISTAKES_OF_SCORES,
    *MISTAKES_OF_WEIGHTS,
    *MISTAKES_OF_OPERANDS,
    *MISTAKES_OF_POSITIONS,
)
DIFFERENCES = tuple(row._replace(further=_further_forms(row)) for row in _ROWS)
