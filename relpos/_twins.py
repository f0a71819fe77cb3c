"""Docstrings of functions that repeat one of relpos on tensors or dask arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import Parameter, cleandoc, signature
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

#: In numpydoc's order; "" is what comes before all titles.
_TITLES = (
    *("", "Parameters", "Attributes", "Returns", "Raises", "See Also"),
    *("Notes", "References", "Examples"),
)
#: Words of NumPy's functions, and those of functions on tensors.
TENSORS = {"array_like": "Tensor", "ndarray": "Tensor"}


def twin(
    original: Callable[..., Any],
    words: Mapping[str, str] | None = None,
    titles: tuple[str, ...] = _TITLES,
) -> Callable[[Function], Function]:
    """Complete the docstring of a function by that of the one it repeats.

    The function itself has its summary and its examples. The formula after the summary
    and the sections that it lacks, of `titles` if given, are those of `original`, and
    its own errors follow those of `original`. Parameters that are "as in" `original`,
    and with `words`, which replace words of `original`, those that it leaves out, are
    described as there.
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
        errors = _entries(whole.get("Raises", "")) | _entries(own.get("Raises", ""))
        own["Raises"] = "\n".join(errors.values())
        if "Parameters" in own and whole.get("Parameters"):
            taken = signature(function).parameters
            theirs = whole["Parameters"], original.__name__
            described = _described(own["Parameters"], theirs, taken, words)
            own["Parameters"] = "\n".join(described)
        for title in _TITLES[1:]:
            if body := own.get(title) or whole.get(title):
                parts.append(f"{title}\n{'-' * len(title)}\n{body}")
        function.__doc__ = "\n\n".join(parts) + "\n"
        return function

    return complete


def _described(
    own: str, other: tuple[str, str], taken: Mapping[str, Parameter], words: object
) -> list[str]:
    """Return the entries of both sections, the own unless they refer to the other."""
    whole, called = other
    theirs = {name: x for key, x in _entries(whole).items() for name in _names(key)}
    refers = re.compile(rf"[^\n]* : as in `([\w.]+\.)?{called}`")
    passes_on = any(x.kind is Parameter.VAR_KEYWORD for x in taken.values())
    asked = {*(theirs if passes_on else taken)} if words else set[str]()
    found: dict[str, str] = {}
    for key, entry in _entries(own).items():
        names = _names(key)
        if refers.match(entry) and theirs.keys() >= {*names}:
            asked |= {*names}
        else:
            found |= dict.fromkeys(names, entry)
    found = {name: x for name, x in theirs.items() if name in asked} | found
    ordered = [name for name in taken if name in found] + [*found]
    return [*dict.fromkeys(found[name] for name in ordered)]


def _names(key: str) -> list[str]:
    """Return the names that one entry describes."""
    return [name.strip("* ") for name in key.partition("\n")[0].split(",")]


def _entries(section: str) -> dict[str, str]:
    """Return the entries of a section by their names, where these have a type."""
    entries = re.split(r"^(?=\S)", section, flags=re.M)
    return {entry.partition(" : ")[0]: entry.rstrip() for entry in entries if entry}


def sections(docstring: str) -> dict[str, str]:
    """Split a numpydoc docstring by its titles; what comes before them is under ""."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", cleandoc(docstring), flags=re.M)
    bodies = [part.strip("\n") for part in parts]
    return {"": bodies[0]} | dict(zip(bodies[1::2], bodies[2::2], strict=True))
