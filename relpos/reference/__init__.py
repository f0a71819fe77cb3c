"""The definitions: every function of relpos as plain NumPy in float64.

Nothing here is fast. Each function writes one formula down and builds every array
that the formula names, L x L x d ones included, so that it can be read beside the C
kernels and compared with them. Inputs of any real dtype are taken to float64 first;
results are float64, and of overflow NumPy warns as ``np.errstate`` says. Shapes are
those of the functions of the same name in `relpos` (``...`` are leading batch axes, H
heads, Lq and Lk lengths, D head_dim, R table rows), and a relative position is always
key minus query. CoPE, stick-breaking, PaTH, DAPE, selective RoPE and LieRE are here
alone, to be studied beside the rest: what says "Reference only" has no kernel.

Notation of the formulas: q, k, v are rows of query, key and value; i counts queries,
j counts keys, o is `query_offset` and r(i, j) = j - (i + o).

See Also
--------
relpos : The same functions, by the kernels.
relpos.demo : Holds the two against each other.
"""

from relpos.reference.biases import (
    alibi_bias,
    alibi_bias_backward,
    alibi_slopes,
    deberta_bucket,
    kerple_bias,
    kerple_bias_backward,
    t5_bias,
    t5_bias_backward,
    t5_bucket,
)
from relpos.reference.brute import brute_force_attention
from relpos.reference.conv import conv_encoding, conv_encoding_backward
from relpos.reference.dropout import dropout_keep, philox4x32
from relpos.reference.encodings import (
    index_encoding,
    learned,
    learned_backward,
    normalized_index_encoding,
    random_encoding,
    sinusoidal,
    sinusoidal_shift_matrix,
)
from relpos.reference.fire import fire_attention, fire_bias, fire_bias_backward
from relpos.reference.formula import attention, merge_attention
from relpos.reference.gradients import AttentionGradients, attention_backward
from relpos.reference.graph import graph_attention
from relpos.reference.later import (
    cope_attention,
    dape_attention,
    lie_rotary,
    path_attention,
    selective_rotary,
    stick_breaking_attention,
)
from relpos.reference.logits import scores
from relpos.reference.pairs import AttentionOutput
from relpos.reference.positions import (
    grid_labels,
    rel_shift,
    relative_positions,
    segment_ranges,
    skew,
    unskew,
)
from relpos.reference.rotary import (
    RotaryGradients,
    apply_rotary,
    apply_rotary_backward,
    rotary_frequencies,
    rotary_magnitude,
    xpos_magnitude,
)
from relpos.reference.rotary_axes import axial_angles, mrope_angles
from relpos.reference.rotary_config import RotaryParameters, rotary_from_config
from relpos.reference.schemes import (
    relative_global_attention,
    shaw_attention,
    shaw_attention_split,
    shaw_scores,
    skewed_scores,
    transformer_xl_attention,
    transformer_xl_scores,
)

__all__ = [
    "AttentionGradients",
    "AttentionOutput",
    "RotaryGradients",
    "RotaryParameters",
    "alibi_bias",
    "alibi_bias_backward",
    "alibi_slopes",
    "apply_rotary",
    "apply_rotary_backward",
    "attention",
    "attention_backward",
    "axial_angles",
    "brute_force_attention",
    "conv_encoding",
    "conv_encoding_backward",
    "cope_attention",
    "dape_attention",
    "deberta_bucket",
    "dropout_keep",
    "fire_attention",
    "fire_bias",
    "fire_bias_backward",
    "graph_attention",
    "grid_labels",
    "index_encoding",
    "kerple_bias",
    "kerple_bias_backward",
    "learned",
    "learned_backward",
    "lie_rotary",
    "merge_attention",
    "mrope_angles",
    "normalized_index_encoding",
    "path_attention",
    "philox4x32",
    "random_encoding",
    "rel_shift",
    "relative_global_attention",
    "relative_positions",
    "rotary_frequencies",
    "rotary_from_config",
    "rotary_magnitude",
    "scores",
    "segment_ranges",
    "selective_rotary",
    "shaw_attention",
    "shaw_attention_split",
    "shaw_scores",
    "sinusoidal",
    "sinusoidal_shift_matrix",
    "skew",
    "skewed_scores",
    "stick_breaking_attention",
    "t5_bias",
    "t5_bias_backward",
    "t5_bucket",
    "transformer_xl_attention",
    "transformer_xl_scores",
    "unskew",
    "xpos_magnitude",
]
