"""The public names of a package: what its ``__init__`` imports, listed nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def publish(namespace: Mapping[str, Any]) -> list[str]:
    """Return the public functions and classes among a package's globals, sorted.

    Each is named after the package from now on, not after the module that defines it:
    that is what its repr and its pickles say, so that modules may move.
    """
    public = {
        name: value
        for name, value in sorted(namespace.items())
        if not name.startswith("_") and callable(value)
    }
    for value in public.values():
        value.__module__ = namespace["__name__"]
    return [*public]
