"""Changes of state that a call takes back where it raises.

A call that raises leaves caches, memories, generators and gradients as they were. Each
of them is changed by `put`, or named to `keep` before it changes, and the functions
that change them are `whole`: where one raises, all that was put since it began has its
old value again. Calls nest, and the outermost one decides for all.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

if TYPE_CHECKING:
    from numpy.random import Generator

P = ParamSpec("P")
R = TypeVar("R")


#: An owner, its attribute, and the old value.
Change: TypeAlias = tuple[Any, str, Any]


class _Thread(threading.local):
    """The call that is going on in a thread."""

    changes: list[Change] | None = None
    number = 0


_here = _Thread()
_numbers = itertools.count(1)


def note(owner: Any, name: str, value: object) -> None:
    """Record a value that an attribute gets again if the call around raises."""
    if _here.changes is not None:
        _here.changes.append((owner, name, value))


def put(owner: Any, name: str, value: object) -> None:
    """Set an attribute, which gets its old value again if the call around raises."""
    note(owner, name, getattr(owner, name))
    setattr(owner, name, value)


def keep(generator: Generator) -> None:
    """Record the state of a generator, which it gets again if the call raises."""
    if _here.changes is not None:
        source = generator.bit_generator
        note(source, "state", source.state)


def call_number() -> int:
    """Return the number of the outermost call that is going on, or 0."""
    return 0 if _here.changes is None else _here.number


def whole(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function that raises take back what it and its callees put.

    An interrupt may come between any two lines: no line after the last change of a call
    that returns lies outside of the try, and stores come before the calls that undo.
    """

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        changes = _here.changes
        if changes is not None:  # a part of a larger call
            before = len(changes)
            try:
                return function(*args, **keywords)
            except BaseException:
                _undo(changes, before)
                raise
        changes = []
        try:
            _here.number, _here.changes = next(_numbers), changes
            result = function(*args, **keywords)
            _here.changes = None
            return result
        except BaseException:
            _here.changes = None
            _undo(changes, 0)
            raise

    return call


def _undo(changes: list[Change], before: int) -> None:
    """Take back all but the first so many changes, the last one first."""
    while len(changes) > before:
        owner, name, value = changes.pop()
        setattr(owner, name, value)
