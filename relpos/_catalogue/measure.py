"""Time and extra memory of one form of one scheme, in a process of its own.

A process of its own, because the peak of the memory in use is a property of the process
and memory freed by earlier work would hide later needs.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Measurement", "forget_peak", "measure", "resident"]


@dataclass(frozen=True)
class Measurement:
    """Seconds of the fastest run; bytes beyond input and output, None if unknown."""

    seconds: float
    memory: int | None

    def memory_text(self) -> str:
        """In MB."""
        return "unknown" if self.memory is None else f"{self.memory / 1e6:.1f} MB"


def measure(name: str, form: str) -> Measurement:
    """Run `form` ("relpos", "numpy" or "gradients") of a scheme in a child process."""
    done = subprocess.run(
        [sys.executable, "-m", "relpos._catalogue.child", name, form],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Measurement(**json.loads(done.stdout))


def resident(field: str) -> int | None:
    """VmRSS (now) or VmHWM (peak) of this process in bytes; None where unknown."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith(field + ":")]
    return int(found[0][1]) * 1024 if found else None


def forget_peak() -> bool:
    """Set the peak back to what is in use now (Linux).

    Memory that was freed but kept by the allocator is given back first: it would be
    used again without being seen.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        return False
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True
