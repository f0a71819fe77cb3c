"""relpos: attention with relative positions, exact C kernels for NumPy.

{names}

`relpos.nn` has layers with gradients, `relpos.recipes` the parameters of published
models as arguments of `attention`, `relpos.reference` every function as plain NumPy to
be read, `relpos.torch` the functions on tensors, with autograd, `relpos.sharded`
attention on dask arrays, in chunks, `relpos.ufuncs` the kernels as ufuncs,
`relpos.plot` pictures, and `relpos.data` tables that compare encodings.

Layout is (..., heads, length, dim); a relative position is key minus query, so that the
past is negative; in a mask, True may attend.

Examples
--------
>>> import numpy as np
>>> import relpos
>>> q, k, v = np.random.default_rng(0).standard_normal((3, 8, 200, 64))
>>> relpos.attention(q, k, v, rel_bias=relpos.alibi_bias(8, 200)).shape
(8, 200, 64)
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING

__version__ = "0.3.0"

# The public names, listed here only ("x as x" is how type checkers know one). All come
# with the import: a process forked while another thread loads a module waits in that
# import for ever, so no call may load one. Settings come first: they warn of what the
# environment says at the line that imports relpos.
try:
    from relpos._settings import (
        get_num_threads as get_num_threads,
        set_num_threads as set_num_threads,
        show_config as show_config,
        threads as threads,
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

from relpos import _moved as _moved
from relpos._attention.attention import (
    AttentionOutput as AttentionOutput,
    attention as attention,
)
from relpos._attention.cache import KVCache as KVCache
from relpos._attention.fire import (
    FireGradients as FireGradients,
    fire_attention as fire_attention,
    fire_bias as fire_bias,
    fire_bias_backward as fire_bias_backward,
)
from relpos._attention.functional import (
    AttentionForward as AttentionForward,
    attention_backward as attention_backward,
    attention_forward as attention_forward,
    merge_attention as merge_attention,
)
from relpos._attention.gradients import (
    AttentionContext as AttentionContext,
    AttentionGradients as AttentionGradients,
    FireAttentionGradients as FireAttentionGradients,
)
from relpos._attention.plan import Plan as Plan, plan as plan
from relpos._attention.positions import (
    grid_labels as grid_labels,
    rel_shift as rel_shift,
    relative_positions as relative_positions,
    segment_ranges as segment_ranges,
    skew as skew,
    unskew as unskew,
)
from relpos._attention.schemes import (
    graph_attention as graph_attention,
    relative_global_attention as relative_global_attention,
    shaw_attention as shaw_attention,
    transformer_xl_attention as transformer_xl_attention,
)
from relpos._attention.scores import (
    scores as scores,
    shaw_scores as shaw_scores,
    skewed_scores as skewed_scores,
    transformer_xl_scores as transformer_xl_scores,
)
from relpos._biases.buckets import (
    deberta_bucket as deberta_bucket,
    t5_bias as t5_bias,
    t5_bias_backward as t5_bias_backward,
    t5_bucket as t5_bucket,
)
from relpos._biases.by_offset import (
    KerpleGradients as KerpleGradients,
    alibi_bias as alibi_bias,
    alibi_bias_backward as alibi_bias_backward,
    alibi_slopes as alibi_slopes,
    kerple_bias as kerple_bias,
    kerple_bias_backward as kerple_bias_backward,
)
from relpos._encodings.absolute import (
    index_encoding as index_encoding,
    learned as learned,
    learned_backward as learned_backward,
    normalized_index_encoding as normalized_index_encoding,
    random_encoding as random_encoding,
    sinusoidal as sinusoidal,
    sinusoidal_shift_matrix as sinusoidal_shift_matrix,
)
from relpos._encodings.audit import (
    EncodingAudit as EncodingAudit,
    audit_encoding as audit_encoding,
)
from relpos._encodings.conv import (
    ConvGradients as ConvGradients,
    conv_encoding as conv_encoding,
    conv_encoding_backward as conv_encoding_backward,
)
from relpos._encodings.rotary import (
    RotaryGradients as RotaryGradients,
    apply_rotary as apply_rotary,
    apply_rotary_backward as apply_rotary_backward,
    axial_angles as axial_angles,
    mrope_angles as mrope_angles,
    xpos_magnitude as xpos_magnitude,
)
from relpos._encodings.rotary_config import (
    RotaryParameters as RotaryParameters,
    rotary_from_config as rotary_from_config,
)
from relpos._encodings.rotary_scaling import (
    rotary_frequencies as rotary_frequencies,
    rotary_magnitude as rotary_magnitude,
)
from relpos._names import publish as _publish
from relpos._suggestions import absent as _absent, table as _table

__all__ = ["__version__", *_publish(globals())]
__doc__ = __doc__ and __doc__.replace("{names}", _table(__all__))  # None under -OO

# What few programs need is loaded when it is first named: modules, two of which need a
# package that may be absent, and functions by the modules that have them.
_LATER = ("data", "nn", "plot", "recipes", "reference", "sharded", "torch", "ufuncs")
_NEEDS = {"sharded": "dask", "torch": "torch"}
_FUNCTIONS = {
    "compare": "relpos._opinion.compare",
    "demo": "relpos._demo.programme",
    "diagnose": "relpos._opinion.diagnose",
}

if TYPE_CHECKING:
    from relpos import (
        data as data,
        nn as nn,
        plot as plot,
        recipes as recipes,
        reference as reference,
        sharded as sharded,
        torch as torch,
        ufuncs as ufuncs,
    )
    from relpos._demo.programme import demo as demo
    from relpos._opinion.compare import compare as compare
    from relpos._opinion.diagnose import diagnose as diagnose
else:

    def __getattr__(name):
        if name in _FUNCTIONS:
            return getattr(_import_module(_FUNCTIONS[name]), name)
        if name in _LATER:
            try:
                return _import_module(f"relpos.{name}")
            except ImportError as exc:  # hasattr and inspect ask for an AttributeError
                raise AttributeError(str(exc), obj=None) from exc
        return _absent("relpos")(name)


def _is_installed(package: str) -> bool:
    try:
        return _find_spec(package) is not None
    except (ImportError, ValueError):  # refused by a finder; a module without a spec
        return False


def __dir__() -> list[str]:
    absent = {name for name, needed in _NEEDS.items() if not _is_installed(needed)}
    return sorted({*__all__, *_LATER, *_FUNCTIONS} - absent)
