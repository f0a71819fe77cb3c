"""Docstrings of functions that repeat one of relpos on tensors or dask arrays."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import cleandoc
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

#: Sections that a function has from the one it repeats, and all in numpydoc's order.
_DERIVED = ("Raises", "Notes", "References")
_ORDER = (
    *("Parameters", "Returns", "Raises", "See Also"),
    *("Notes", "References", "Examples"),
)


def twin(original: Callable[..., Any]) -> Callable[[Function], Function]:
    """Complete the docstring of a function by that of the one it repeats.

    The function itself has its summary, its parameters, its results and its examples,
    since editors read the source. It has from `original` what it does not say: the
    formula after the summary, the errors, the notes and the papers.
    """

    def complete(function: Function) -> Function:
        if original.__doc__ is None or function.__doc__ is None:  # python -OO
            return function
        own, whole = sections(function.__doc__), sections(original.__doc__)
        summary, _, formula = own[""].partition("\n\n")
        parts = [summary, formula or whole[""].partition("\n\n")[2]]
        also = f"{original.__module__}.{original.__name__} : The same on NumPy arrays."
        own["See Also"] = "\n".join([*filter(None, [own.get("See Also")]), also])
        made = {title: whole[title] for title in _DERIVED if title in whole} | own
        for title in _ORDER:
            if title in made:
                parts.append(f"{title}\n{'-' * len(title)}\n{made[title]}")
        function.__doc__ = "\n\n".join(parts) + "\n"
        return function

    return complete


def sections(docstring: str) -> dict[str, str]:
    """Split a numpydoc docstring by its titles; what comes before them is under ""."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", cleandoc(docstring), flags=re.M)
    bodies = [part.strip("\n") for part in parts]
    return {"": bodies[0]} | dict(zip(bodies[1::2], bodies[2::2], strict=True))
