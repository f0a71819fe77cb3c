"""relpos for PyTorch: the functions of `relpos` on tensors, with autograd.

``import relpos`` does not import it. Tensors are on the CPU, and are not copied unless
NumPy lacks their dtype.
"""

try:
    import torch as _torch
except ImportError as exc:
    if exc.name != "torch":
        raise
    raise ImportError(
        "relpos.torch needs PyTorch, which is not installed; run `pip install torch`, "
        "or `pip install 'relpos[torch]'`",
        name="torch",
    ) from exc

from typing import TYPE_CHECKING

from relpos._names import publish as _publish
from relpos._suggestions import absent as _absent
from relpos.torch._attention import (
    AttentionOutput as AttentionOutput,
    attention as attention,
)
from relpos.torch._biases import (
    alibi_bias as alibi_bias,
    alibi_slopes as alibi_slopes,
    deberta_bucket as deberta_bucket,
    fire_bias as fire_bias,
    grid_labels as grid_labels,
    kerple_bias as kerple_bias,
    segment_ranges as segment_ranges,
    t5_bias as t5_bias,
    t5_bucket as t5_bucket,
)
from relpos.torch._encodings import (
    apply_rotary as apply_rotary,
    axial_angles as axial_angles,
    conv_encoding as conv_encoding,
    learned as learned,
    mrope_angles as mrope_angles,
    rotary_frequencies as rotary_frequencies,
    sinusoidal as sinusoidal,
    xpos_magnitude as xpos_magnitude,
)
from relpos.torch._schemes import (
    SCHEMES as _SCHEMES,
    fire_attention as fire_attention,
    graph_attention as graph_attention,
    merge_attention as merge_attention,
    relative_global_attention as relative_global_attention,
    shaw_attention as shaw_attention,
    transformer_xl_attention as transformer_xl_attention,
)
from relpos.torch._transformers.models import (
    register as register,
    replace_attention as replace_attention,
)

from relpos.torch import nn as nn  # isort: skip  (its modules call these functions)

del _torch

globals().update(_SCHEMES)  # those that need no function of their own
__all__ = _publish(globals())

if not TYPE_CHECKING:
    __getattr__ = _absent(__name__)
