"""Pictures of encodings, positions, attention weights and losses (matplotlib).

Each function draws into the axes given as `ax`, or into new ones, and returns them.
None of them shows a window or writes a file. Maps of one kind in one figure have one
colour scale: a colour is the same number in all of them.
matplotlib comes with ``pip install "relpos[plot]"``.
"""

from typing import TYPE_CHECKING

from relpos._suggestions import absent as _absent, publish as _publish
from relpos.plot.lines import (
    bias_by_distance as bias_by_distance,
    buckets as buckets,
    compare as compare,
    costs_over_length as costs_over_length,
    decay as decay,
    length_generalisation as length_generalisation,
    loss_curves as loss_curves,
    plan_bars as plan_bars,
    wavelengths as wavelengths,
)
from relpos.plot.pairs import (
    attention_graph as attention_graph,
    attention_heads as attention_heads,
    attention_map as attention_map,
    edges as edges,
    relative_position_map as relative_position_map,
    score_map as score_map,
    score_terms as score_terms,
    skew_steps as skew_steps,
)
from relpos.plot.schemes import (
    audit as audit,
    encoding_map as encoding_map,
    encoding_maps as encoding_maps,
    fingerprint as fingerprint,
    fingerprints as fingerprints,
    grid_bias as grid_bias,
    rotary_wheel as rotary_wheel,
)

__all__ = _publish(globals())

if not TYPE_CHECKING:
    __getattr__ = _absent(__name__)
