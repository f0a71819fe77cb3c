"""Docstrings of functions that repeat one of relpos on tensors or dask arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import cleandoc, signature
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

#: What arrays are called on tensors and on dask arrays.
TENSORS = {"array_like": "Tensor", "ndarray": "Tensor"}
DASK = {"array_like": "dask array or array_like", "ndarray": "dask array"}

_TITLES = ("Parameters", "Returns", "Raises", "See Also", "Notes", "References")
_ORDER = (*_TITLES, "Examples")


def twin(
    original: Callable[..., Any], kinds: Mapping[str, str]
) -> Callable[[Function], Function]:
    """Complete the docstring of a function by that of the one it repeats.

    What the function says itself stands: its summary, its examples, and any text,
    section or parameter that differs. The rest comes from `original`, where `kinds` has
    the words that take the place of those for arrays.
    """

    def complete(function: Function) -> Function:
        text = original.__doc__
        if text is None or function.__doc__ is None:  # python -OO
            return function
        for old, new in kinds.items():
            text = text.replace(old, new)
        own, whole = sections(function.__doc__), sections(text)
        formula = whole[""].partition("\n\n")[2]
        also = f"{original.__module__}.{original.__name__} : The same on NumPy arrays."
        made = {
            **{title: whole[title] for title in _TITLES if title in whole},
            **{title: body for title, body in own.items() if title},
            "Parameters": _parameters(function, own, whole),
            "See Also": "\n".join([*filter(None, [own.get("See Also")]), also]),
        }
        parts = [own[""]] if "\n\n" in own[""] else [own[""], formula]
        for title in _ORDER:
            if made.get(title):
                parts.append(f"{title}\n{'-' * len(title)}\n{made[title]}")
        function.__doc__ = "\n\n".join(parts) + "\n"
        return function

    return complete


def sections(docstring: str) -> dict[str, str]:
    """Split a numpydoc docstring by its titles; what comes before them is under ""."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", cleandoc(docstring), flags=re.M)
    bodies = [part.strip("\n") for part in parts]
    return {"": bodies[0]} | dict(zip(bodies[1::2], bodies[2::2], strict=True))


def _entries(body: str) -> list[tuple[list[str], str]]:
    """Split a section of parameters: names, and what is said of them."""
    found = re.findall(r"^(\S.*?)((?: :.*)?$(?:\n(?: .*)?)*)", body, flags=re.M)
    return [(names.split(", "), rest.rstrip()) for names, rest in found]


def _parameters(
    function: Callable[..., Any], own: dict[str, str], whole: dict[str, str]
) -> str:
    """Describe the parameters that the function has, in their order."""
    said: dict[str, str] = {}
    for part in (whole, own):  # the later wins
        for names, rest in _entries(part.get("Parameters", "")):
            said |= dict.fromkeys(names, rest)
    of_text: dict[str, list[str]] = {}
    for parameter in signature(function).parameters.values():
        name = str(parameter).partition(":")[0].partition("=")[0].strip()
        if name in said:
            of_text.setdefault(said[name], []).append(name)
    return "\n".join(", ".join(names) + rest for rest, names in of_text.items())
