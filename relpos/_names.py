"""The public names of a package: what its ``__init__`` imports, listed nowhere else."""

from __future__ import annotations

from typing import Any

from relpos._hints import hint_all


def publish(namespace: dict[str, Any]) -> list[str]:
    """Return the public functions and classes among a package's globals, sorted.

    Each is named after the package from now on, not after the module that defines it:
    that is what its repr and its pickles say, so that modules may move. Each function
    is wrapped, so that errors of calls that do not fit suggest an argument.
    """
    public = {
        name: value
        for name, value in sorted(namespace.items())
        if not name.startswith("_") and callable(value)
    }
    for value in public.values():
        value.__module__ = namespace["__name__"]
    hint_all(namespace, public)
    return [*public]
