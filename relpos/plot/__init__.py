"""Pictures of encodings, positions, attention weights and losses (matplotlib).

Each function draws into the axes given as `ax`, or into new ones, and returns them.
None of them shows a window or writes a file: that is the caller's business. Maps of one
kind in one figure have one colour scale: a colour is the same number in all of them.
matplotlib comes with ``pip install "relpos[plot]"``.
"""

from relpos._names import publish as _publish
from relpos.plot.arcs import (
    edges as edges,
)
from relpos.plot.biases import (
    bias_by_distance as bias_by_distance,
    buckets as buckets,
    grid_bias as grid_bias,
)
from relpos.plot.costs import (
    costs_over_length as costs_over_length,
    plan_bars as plan_bars,
)
from relpos.plot.encodings import (
    encoding_map as encoding_map,
    encoding_maps as encoding_maps,
)
from relpos.plot.findings import (
    audit as audit,
    compare as compare,
)
from relpos.plot.fingerprints import (
    fingerprint as fingerprint,
    fingerprints as fingerprints,
)
from relpos.plot.graphs import (
    attention_graph as attention_graph,
)
from relpos.plot.maps import (
    attention_heads as attention_heads,
    attention_map as attention_map,
    score_map as score_map,
)
from relpos.plot.offsets import (
    relative_position_map as relative_position_map,
)
from relpos.plot.rolls import (
    piano_roll as piano_roll,
)
from relpos.plot.skewing import (
    skew_steps as skew_steps,
)
from relpos.plot.terms import (
    score_terms as score_terms,
)
from relpos.plot.training import (
    length_generalisation as length_generalisation,
    loss_curves as loss_curves,
)
from relpos.plot.turning import (
    decay as decay,
    rotary_wheel as rotary_wheel,
    wavelengths as wavelengths,
)

__all__ = _publish(globals())
