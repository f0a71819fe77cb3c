"""Mistakes of rotary, apart from those of its positions: rows of the table."""

from __future__ import annotations

from relpos._opinion.difference import Difference
from relpos._opinion.rotations import (
    any_magnitude,
    by_plan,
    dropped,
    exchanged_pairs,
    exponents,
    from_other_columns,
    from_other_pairs,
    from_other_steps,
    from_pairs_or_columns,
    in_few_bits,
    inverse,
    joined_heads,
    magnitude_of_all,
    magnitude_of_one,
    magnitudes,
    mixed_pairs,
    of_base,
    on_cached,
    other_base,
    other_columns,
    other_signs,
    other_widths,
    overwritten,
    own_angles,
    reordered,
    scaled_base,
    width_and_half,
    widths_of_columns_and_head,
    widths_of_model,
)

# With `one_side`, a rule changes queries alone and then keys alone. A rule that changes
# both alike may cancel in their products.
MISTAKES_OF_ROTARY: tuple[Difference, ...] = (
    Difference(
        name="rotary_mixed_pairs",
        words=(
            "the angles laid out for other pairs than those that are rotated: repeat "
            "each for neighbours, or the whole for halves"
        ),
        forms=[by_plan(mixed_pairs)],
        tried="alone",
    ),
    Difference(
        name="rotary_own_angles",
        words="another frequency for each column of a pair: both columns have one",
        forms=[by_plan(own_angles)],
        tried="alone",
    ),
    Difference(
        name="rotary_sides_differ",
        words="queries and keys rotated by other pairs or signs than each other",
        forms=[
            # On both sides these two are conventions, "rotary_pairs" and
            # "rotary_inverse".
            by_plan(exchanged_pairs, one_side=True),
            by_plan(inverse, one_side=True),
        ],
        tried="alone",
    ),
    Difference(
        name="rotary_sign",
        words=(
            "the sign or the sine missing in the rotation of a pair (a, b), which is "
            "a cos - b sin and b cos + a sin"
        ),
        forms=[
            by_plan(other_signs),
            by_plan(other_signs, one_side=True),
        ],
        tried="alone",
    ),
    Difference(
        name="rotary_overwritten",
        words=(
            "the first column of a pair overwritten before the second is computed of it"
        ),
        forms=[
            by_plan(overwritten),
            by_plan(overwritten, one_side=True),
        ],
        tried="alone",
    ),
    Difference(
        name="rotary_joined_heads",
        words=(
            "rotation before the heads are split: frequencies and pairs of all columns "
            "joined, not of each head's"
        ),
        forms=[joined_heads],
        tried="alone",
    ),
    Difference(
        name="rotary_d_model",
        words=(
            "frequencies whose exponents count over d_model, the width of all heads, "
            "not over the width of a head"
        ),
        forms=[exponents(from_pairs_or_columns, widths_of_model)],
        tried="alone",
    ),
    Difference(
        name="rotary_exponent_start",
        words=(
            "frequencies whose exponents begin elsewhere than at 0: 2 c / width, c "
            "from 0"
        ),
        forms=[
            exponents(from_other_columns, widths_of_columns_and_head),
            exponents(from_other_pairs, width_and_half),
        ],
        tried="alone",
    ),
    Difference(
        name="rotary_exponent_width",
        words=(
            "frequencies whose exponents are divided by another number than the width "
            "of the rotated columns"
        ),
        # The right numerators are among these: with them the width alone is another
        # one.
        forms=[exponents(from_other_steps, other_widths)],
        tried="alone",
    ),
    Difference(
        name="rotary_frequencies",
        words=(
            "the frequencies in the reverse order, inverted (the minus of the "
            "exponent is missing), or one for all pairs"
        ),
        forms=[by_plan(reordered)],
        tried="alone",
    ),
    Difference(
        name="rotary_cached_differ",
        words=(
            "cached keys rotated by other pairs, signs or frequencies than new ones, "
            "as where the base changes with the length: rotate all keys alike"
        ),
        forms=[
            on_cached(scaled_base),
            on_cached(other_base),
            on_cached(exchanged_pairs),
            on_cached(inverse),
            on_cached(of_base),
        ],
        tried="alone",
    ),
    Difference(
        name="rotary_base_scaled",
        words="frequencies of a base that is multiplied, as for a longer context",
        forms=[by_plan(scaled_base)],
        tried="alone",
    ),
    Difference(
        name="rotary_columns",
        words=(
            "other columns rotated than the first rotary_dim: pairs across the width "
            "of the head, the last columns, or another number of them"
        ),
        forms=[by_plan(other_columns)],
        tried="alone",
    ),
    Difference(
        name="rotary_columns_dropped",
        words=(
            "the columns that are not rotated left out, not joined to the rotated ones"
        ),
        forms=[dropped],
        tried="alone",
    ),
    Difference(
        name="rotary_magnitude_again",
        words="the magnitude twice (squared), or to a higher power: multiply once",
        # Power 0 leaves the magnitude out, which is "no_magnitude".
        forms=[by_plan(magnitudes(2.0, 4.0, 3.0))],
        tried="alone",
    ),
    Difference(
        name="rotary_magnitude_part",
        words=(
            "the magnitude on queries or keys alone, on cosines or sines alone, "
            "inverted, or its root"
        ),
        forms=[
            by_plan(magnitudes(0.5, -1.0)),
            by_plan(magnitude_of_one),
            by_plan(magnitudes(0.0, 2.0, -1.0), one_side=True),
        ],
        tried="alone",
    ),
    Difference(
        name="rotary_magnitude_other",
        words="another magnitude",
        forms=[any_magnitude],
        tried="alone",
    ),
    Difference(
        name="rotary_magnitude_of_all",
        words="the magnitude on the columns that are not rotated too",
        forms=[magnitude_of_all],
        tried="alone",
    ),
    Difference(
        name="rotary_16_bits",
        words=(
            "positions, frequencies, angles or their cosines in 16 bits (bfloat16 or "
            "float16): compute the angles in float32"
        ),
        forms=[by_plan(in_few_bits)],
        tried="alone",
    ),
)
