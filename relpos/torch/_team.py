"""Lend the threads of PyTorch to calls.

For milliseconds after each operation the threads of PyTorch look for the next one, and
keep other threads from the CPUs. The own threads of relpos would wait for them in a
call that comes in between.
"""

from __future__ import annotations

from pathlib import Path

import torch

from relpos import _core

#: Of Linux's flags of a process: forked, and since then no other program.
_FORKED = 0x40


def _is_forked() -> bool:
    """Return True in a forked process, where the threads of its parent are missing.

    OpenMP would wait for them. False where the system does not say so.
    """
    try:
        # the ninth field; the second one may have spaces, and ends in a parenthesis
        fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
        return bool(int(fields[6]) & _FORKED)
    except (OSError, ValueError, IndexError):
        return False


def _lent() -> str | None:
    """Lend them; return None, or why that cannot be done."""
    if _is_forked():
        return "relpos.torch was imported in a forked process"
    try:
        # a module that needs, by others, the OpenMP library of PyTorch
        _core.use_team(torch._C.__file__)
    except (AttributeError, OSError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None


#: Why calls do not run on the threads of PyTorch; None where they do.
REASON = _lent()
