"""Lend the threads of PyTorch to calls.

For milliseconds after each operation the threads of PyTorch look for the next one, and
keep other threads from the CPUs. A call of relpos that comes in between would wait for
a part of them.
"""

from __future__ import annotations

import torch

from relpos import _core


def _lent() -> str | None:
    """Lend them; return None, or why that cannot be done."""
    try:
        # a module that needs, by others, the OpenMP library of PyTorch
        _core.use_team(torch._C.__file__)
    except (AttributeError, OSError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


#: Why calls do not run on the threads of PyTorch; None where they do.
REASON = _lent()
