"""A right implementation: a function, and a call of `relpos.diagnose`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mistakes.row import K, Q, V


@dataclass(frozen=True)
class Right:
    """A right implementation; `kind` is "convention" where the layout is another."""

    name: str
    function: Callable[..., Any]
    call: dict[str, Any]
    kind: str


def family() -> tuple[list[Right], Callable[..., Any]]:
    """Return an empty list, and a decorator that adds a right function to it."""
    rows: list[Right] = []

    def right(kind: str = "same", **call: Any) -> Callable[..., Any]:
        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            arguments = {"query": Q, "key": K, "value": V, **call}
            arguments = {n: x for n, x in arguments.items() if x is not None}
            rows.append(Right(function.__name__, function, arguments, kind))
            return function

        return add

    return rows, right
