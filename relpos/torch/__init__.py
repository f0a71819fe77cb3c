"""relpos for PyTorch: the functions of `relpos` on tensors, with autograd.

``import relpos`` does not import it. Tensors are on the CPU, and are not copied unless
NumPy lacks their dtype.
"""

# ruff: noqa: F403  (`__all__` of each file is the list of its public names)

try:
    import torch as _torch
except ImportError as exc:
    if exc.name != "torch":
        raise
    raise ImportError(
        "relpos.torch needs PyTorch, which is not installed; run `pip install torch`, "
        "or in a checkout `pip install '.[torch]'`",
        name="torch",
    ) from exc

from typing import TYPE_CHECKING

from relpos._suggestions import absent as _absent, publish as _publish
from relpos.torch._attention import *
from relpos.torch._biases import *
from relpos.torch._encodings import *
from relpos.torch._flex import *
from relpos.torch._indexer import *
from relpos.torch._schemes import *
from relpos.torch._schemes import SCHEMES as _SCHEMES
from relpos.torch._scores import *
from relpos.torch._transformers.models import *

from relpos.torch import nn as nn  # isort: skip  (its modules call these functions)

# Importing them defines the formulas of operators, and lends the threads of PyTorch.
from relpos.torch import _onnx_attention as _onnx_attention, _team as _team

del _torch

globals().update(_SCHEMES)  # those that need no function of their own
__all__ = _publish(globals())

# These take tensors or nothing but numbers, and are those of relpos, also by name.
from relpos import (  # noqa: E402
    KVCache as KVCache,
    Plan as Plan,
    plan as plan,
    rotary_magnitude as rotary_magnitude,
)

__all__ += ["KVCache", "Plan", "plan", "rotary_magnitude"]

if not TYPE_CHECKING:
    __getattr__ = _absent(__name__)


def __dir__() -> list[str]:
    return [*__all__, "nn"]
