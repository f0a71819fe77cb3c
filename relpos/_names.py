"""The public names of a package: what its ``__init__`` imports, listed nowhere else."""

from __future__ import annotations

from typing import Any

from relpos._checks import hinted


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
    for name, value in public.items():
        value.__module__ = namespace["__name__"]
        if not isinstance(value, type):
            namespace[name] = hinted(value)
        elif not issubclass(value, tuple):
            _hint_methods(value)
    return [*public]


def _hint_methods(owner: type[Any]) -> None:
    for name in ("__init__", "__call__", "forward"):
        method: Any = getattr(owner, name, None)
        if getattr(method, "__module__", "").startswith("relpos."):
            setattr(owner, name, hinted(method, owner))
