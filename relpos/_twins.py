"""Docstrings of functions that repeat one of relpos on tensors or dask arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import cleandoc
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

#: In numpydoc's order; "" is what comes before all titles.
_TITLES = (
    *("", "Parameters", "Attributes", "Returns", "Raises", "See Also"),
    *("Notes", "References", "Examples"),
)


def twin(
    original: Callable[..., Any],
    words: Mapping[str, str] | None = None,
    titles: tuple[str, ...] = _TITLES,
) -> Callable[[Function], Function]:
    """Complete the docstring of a function by that of the one it repeats.

    The function itself has its summary and its examples. The formula after the summary
    and the sections that it lacks, of `titles` if given, are those of `original`, and
    its own errors follow those of `original`. With `words`, which replace words of
    `original`, a section Parameters of its own may describe some parameters alone.
    """

    def complete(function: Function) -> Function:
        text = original.__doc__
        if text is None or function.__doc__ is None:  # python -OO
            return function
        for word, other in (words or {}).items():
            text = re.sub(rf"\b{word}\b", other, text)
        own, whole = sections(function.__doc__), sections(text)
        whole = {title: whole.get(title, "") for title in titles}
        whole |= {"See Also": "", "Examples": ""}
        summary, _, formula = own[""].partition("\n\n")
        formula = formula or whole.get("", "").partition("\n\n")[2]
        parts = [summary, *([formula] if formula else [])]
        for title in ("Raises", "Parameters") if words else ("Raises",):
            entries = _entries(whole.get(title, "")) | _entries(own.get(title, ""))
            own[title] = "\n".join(entries.values())
        for title in _TITLES[1:]:
            if body := own.get(title) or whole.get(title):
                parts.append(f"{title}\n{'-' * len(title)}\n{body}")
        function.__doc__ = "\n\n".join(parts) + "\n"
        return function

    return complete


def _entries(section: str) -> dict[str, str]:
    """Return the entries of a section by their names, where these have a type."""
    entries = re.split(r"^(?=\S)", section, flags=re.M)
    return {entry.partition(" : ")[0]: entry.rstrip() for entry in entries if entry}


def sections(docstring: str) -> dict[str, str]:
    """Split a numpydoc docstring by its titles; what comes before them is under ""."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", cleandoc(docstring), flags=re.M)
    bodies = [part.strip("\n") for part in parts]
    return {"": bodies[0]} | dict(zip(bodies[1::2], bodies[2::2], strict=True))
