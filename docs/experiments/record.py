"""Records of results: their origin, and numbers of few digits."""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import relpos
from relpos import data
from relpos._bench import cpu_name

FOLDER = Path(data.__file__).with_name("experiments")
_DIGITS = 4


def source(seconds: float) -> dict[str, Any]:
    """Versions, processor, threads and time of a run that ends now."""
    versions = {"relpos": relpos.__version__, "numpy": np.__version__}
    versions["python"] = platform.python_version()
    if "torch" in sys.modules:
        versions["torch"] = version("torch")
    return {
        "versions": versions,
        "cpu": cpu_name(),
        "threads": relpos.get_num_threads(),
        "seconds": round(seconds, 1),
    }


def plain(value: Any) -> Any:
    """Arrays as lists, floats of so many digits as errors of a few percent need."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def said(record: dict[str, Any]) -> str:
    """As JSON, a list of numbers on one line."""
    text = json.dumps(plain(record), indent=1, allow_nan=False)
    flat = re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m[0].split()), text)
    return flat.replace("[ ", "[").replace(" ]", "]") + "\n"
