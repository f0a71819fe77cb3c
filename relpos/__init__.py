"""relpos: attention with relative positions, exact C kernels for NumPy."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

try:
    from relpos._attention.attention import AttentionOutput, attention
    from relpos._attention.context import AttentionContext, AttentionGradients
    from relpos._attention.fire import (
        FireGradients,
        fire_attention,
        fire_bias,
        fire_bias_backward,
    )
    from relpos._attention.fire_network import FireAttentionGradients
    from relpos._attention.graph import graph_attention
    from relpos._attention.merge import merge_attention
    from relpos._attention.plan import Plan, plan
    from relpos._attention.schemes import (
        relative_global_attention,
        shaw_attention,
        transformer_xl_attention,
    )
    from relpos._attention.scores import (
        shaw_scores,
        skewed_scores,
        transformer_xl_scores,
    )
    from relpos._attention.skew import (
        grid_labels,
        rel_shift,
        relative_positions,
        skew,
        unskew,
    )
    from relpos._biases.alibi import alibi_bias, alibi_bias_backward, alibi_slopes
    from relpos._biases.kerple import KerpleGradients, kerple_bias, kerple_bias_backward
    from relpos._biases.t5 import deberta_bucket, t5_bias, t5_bias_backward, t5_bucket
    from relpos._encodings.audit import EncodingAudit, audit_encoding
    from relpos._encodings.conv import (
        ConvGradients,
        conv_encoding,
        conv_encoding_backward,
    )
    from relpos._encodings.learned import learned, learned_backward
    from relpos._encodings.rotary import (
        RotaryGradients,
        apply_rotary,
        apply_rotary_backward,
        xpos_magnitude,
    )
    from relpos._encodings.rotary_scaling import rotary_frequencies, rotary_magnitude
    from relpos._encodings.sinusoidal import (
        index_encoding,
        normalized_index_encoding,
        random_encoding,
        sinusoidal,
        sinusoidal_shift_matrix,
    )
    from relpos._settings import (
        get_num_threads,
        set_num_threads,
        show_config,
        threads,
    )
except ImportError as exc:
    if exc.name != "relpos._core":
        raise
    raise ImportError(
        "relpos is imported from a source tree whose C extension is not built; "
        "run `python -m pip install -e .` in it, or leave its folder to use an "
        "installed relpos",
        name="relpos._core",
    ) from exc

__all__ = [
    "AttentionContext",
    "AttentionGradients",
    "AttentionOutput",
    "ConvGradients",
    "EncodingAudit",
    "FireAttentionGradients",
    "FireGradients",
    "KerpleGradients",
    "Plan",
    "RotaryGradients",
    "__version__",
    "alibi_bias",
    "alibi_bias_backward",
    "alibi_slopes",
    "apply_rotary",
    "apply_rotary_backward",
    "attention",
    "audit_encoding",
    "conv_encoding",
    "conv_encoding_backward",
    "deberta_bucket",
    "fire_attention",
    "fire_bias",
    "fire_bias_backward",
    "get_num_threads",
    "graph_attention",
    "grid_labels",
    "index_encoding",
    "kerple_bias",
    "kerple_bias_backward",
    "learned",
    "learned_backward",
    "merge_attention",
    "normalized_index_encoding",
    "plan",
    "random_encoding",
    "rel_shift",
    "relative_global_attention",
    "relative_positions",
    "rotary_frequencies",
    "rotary_magnitude",
    "set_num_threads",
    "shaw_attention",
    "shaw_scores",
    "show_config",
    "sinusoidal",
    "sinusoidal_shift_matrix",
    "skew",
    "skewed_scores",
    "t5_bias",
    "t5_bias_backward",
    "t5_bucket",
    "threads",
    "transformer_xl_attention",
    "transformer_xl_scores",
    "unskew",
    "xpos_magnitude",
]


# Submodules that few programs need are loaded when they are first named. Functions all
# come with the import: a process forked while another thread loads a module waits in
# that import for ever, so no call may load one.
_SUBMODULES = ("data", "nn", "plot", "recipes", "reference", "ufuncs")

if TYPE_CHECKING:
    from relpos import data as data
    from relpos import nn as nn
    from relpos import plot as plot
    from relpos import recipes as recipes
    from relpos import reference as reference
    from relpos import ufuncs as ufuncs
else:

    def __getattr__(name):
        if name in _SUBMODULES:
            return _import_module(f"relpos.{name}")
        raise AttributeError(f"module 'relpos' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES})
