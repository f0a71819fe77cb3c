"""Docstrings of functions that repeat one of relpos on tensors or dask arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import Parameter, cleandoc, signature
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

#: In numpydoc's order; "" is what comes before all titles.
_TITLES = (
    "",
    "Parameters",
    "Attributes",
    "Returns",
    "Raises",
    "See Also",
    "Notes",
    "References",
    "Examples",
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
        for word, replacement in (words or {}).items():
            text = re.sub(rf"\b{word}\b", replacement, text)
        of_function, of_original = sections(function.__doc__), sections(text)
        of_original = {title: of_original.get(title, "") for title in titles}
        # They would be of the original's call.
        of_original["See Also"] = of_original["Examples"] = ""
        summary, _, formula = of_function[""].partition("\n\n")
        if not formula:
            formula = of_original.get("", "").partition("\n\n")[2]
        parts = [summary]
        if formula:
            parts.append(formula)
        errors = _entries(of_original.get("Raises", ""))
        errors |= _entries(of_function.get("Raises", ""))
        of_function["Raises"] = "\n".join(errors.values())
        if "Parameters" in of_function and of_original.get("Parameters"):
            entries = _parameters(
                of_function["Parameters"],
                of_original["Parameters"],
                original.__name__,
                signature(function).parameters,
                with_all=bool(words),
            )
            of_function["Parameters"] = "\n".join(entries)
        for title in _TITLES[1:]:
            body = of_function.get(title) or of_original.get(title)
            if body:
                parts.append(f"{title}\n{'-' * len(title)}\n{body}")
        function.__doc__ = "\n\n".join(parts) + "\n"
        return function

    return complete


def _parameters(
    section: str,
    of_original: str,
    original: str,
    parameters: Mapping[str, Parameter],
    *,
    with_all: bool,
) -> list[str]:
    """Return the entries of parameters, those of the original where a section refers.

    Parameters
    ----------
    section, of_original : str
        The sections of the function and of the original.
    original : str
        The name of the original, to which "as in `original`" refers.
    parameters : mapping
        Those of the function, in the order of the entries.
    with_all : bool
        Also describe parameters of which `section` says nothing.
    """
    original_entries = {}
    for key, entry in _entries(of_original).items():
        for name in _names(key):
            original_entries[name] = entry
    copied: set[str] = set()  # parameters that are described as in the original
    if with_all:
        # Of a function that passes keywords on, those are parameters, too.
        passes_on = any(x.kind is Parameter.VAR_KEYWORD for x in parameters.values())
        copied = {*(original_entries if passes_on else parameters)}
    refers = re.compile(rf"[^\n]* : as in `([\w.]+\.)?{original}`")
    own_entries: dict[str, str] = {}
    for key, entry in _entries(section).items():
        names = _names(key)
        if refers.match(entry) and original_entries.keys() >= {*names}:
            copied |= {*names}
        else:
            own_entries |= dict.fromkeys(names, entry)
    described = {n: entry for n, entry in original_entries.items() if n in copied}
    described |= own_entries
    ordered = [name for name in parameters if name in described] + [*described]
    # An entry that describes several parameters comes once, with the first of them.
    return [*dict.fromkeys(described[name] for name in ordered)]


def _names(key: str) -> list[str]:
    """Return the names that one entry describes."""
    return [name.strip("* ") for name in key.partition("\n")[0].split(",")]


def _entries(section: str) -> dict[str, str]:
    """Return the entries of a section by their names, where these have a type."""
    # An entry begins at the margin; its description is indented.
    entries = re.split(r"^(?=\S)", section, flags=re.MULTILINE)
    return {entry.partition(" : ")[0]: entry.rstrip() for entry in entries if entry}


def sections(docstring: str) -> dict[str, str]:
    """Split a numpydoc docstring by its titles; what comes before them is under ""."""
    # The split gives what is before the titles, and then titles and bodies in turn.
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", cleandoc(docstring), flags=re.MULTILINE)
    bodies = [part.strip("\n") for part in parts]
    return {"": bodies[0]} | dict(zip(bodies[1::2], bodies[2::2], strict=True))
