"""relpos for PyTorch: the functions of `relpos` on tensors, with autograd.

Never imported by ``import relpos``. Tensors are on the CPU; nothing of them is copied
but what NumPy has no dtype for.
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

from relpos._names import publish as _publish

del _torch

__all__ = _publish(globals())
