"""Objects of other packages, known by name: no call of relpos loads their modules."""

from __future__ import annotations


def module_of(value: object, *modules: str) -> str | None:
    """The first of `modules` that a class of `value` is defined in, or below."""
    homes = [f"{base.__module__}." for base in type(value).__mro__]
    for module in modules:
        if any(home.startswith(f"{module}.") for home in homes):
            return module
    return None
