"""Use of what a model keeps from call to call: once by each attention in a call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from typing import Any, ClassVar, NamedTuple, ParamSpec, TypeVar

import numpy as np

from relpos._undo import put

P = ParamSpec("P")
R = TypeVar("R")


class Span(NamedTuple):
    """How much a layer was given: before its last call and after it, in each item."""

    batch: tuple[int, ...]
    start: Any
    end: Any

    def equals(self, other: Span) -> bool:
        """Tell whether another layer was given as much, and in one call."""
        return (
            self.batch == other.batch
            and not _any(other.start)
            and not _any(self.end != other.end)
        )


class Kept:
    """Base of `Memory` and `KVCaches`: the layers of a model, in step."""

    _name: ClassVar[str]
    _unit: ClassVar[str]  # of what is counted

    def __init__(self) -> None:
        #: Layers that the call which is going on has used; None between calls.
        self._used: frozenset[Any] | None = None
        #: How much each item was given before that call.
        self._before: Any = 0

    def _layers(self) -> Iterable[Any]:
        """Return the layers that it knows."""
        raise NotImplementedError

    def _span(self, layer: Any) -> Span:
        """Return how much one of them was given."""
        raise NotImplementedError

    def _back(self, least: Any) -> str:
        """Say how all layers come to have that much again."""
        raise NotImplementedError

    def _enter(self, layer: Any) -> None:
        """Let a layer use what is kept, once in a call and in step with the others."""
        used = self._used or frozenset()
        if layer in used:
            raise ValueError(
                f"{self._name}: got it in a call that uses one {type(layer).__name__} "
                "twice, and the tokens of both uses would mix; expected a layer for "
                "each use (they may share Parameters), and a call for each step"
            )
        if not used:
            ends = [self._span(other).end for other in self._layers()]
            put(self, "_before", _least(ends) if ends else 0)
        end = self._span(layer).end if layer in self._layers() else 0
        if _any(end > self._before):
            raise ValueError(
                f"{self._name}: got one in which a {type(layer).__name__} has "
                f"{_plain(end)} {self._unit} and another layer {_plain(self._before)}: "
                "an interrupted call left them out of step; expected "
                f"{self._back(_plain(self._before))}"
            )
        put(self, "_used", used | {layer})

    def _check_start(self, layer: Any) -> None:
        """Raise where a layer has begun and others have more or less than it."""
        mine = self._span(layer)
        if _any(mine.start):
            return
        for other in self._layers():
            span = self._span(other)
            if _any(span.end) and not mine.equals(span):
                raise ValueError(
                    f"{self._name}: got one in which a {type(other).__name__} has "
                    f"{_plain(span.end)} {self._unit}, for a {type(layer).__name__} "
                    "that has none in it; expected that of this very model (a copy of "
                    f"a model is another one), or a new nn.{type(self).__name__}"
                )


def _any(flags: Any) -> bool:
    """Tell whether one is true of an array, or of what all items share."""
    return bool(flags.any() if isinstance(flags, np.ndarray) else flags)


def _least(counts: list[Any]) -> Any:
    if any(isinstance(count, np.ndarray) for count in counts):
        return functools.reduce(np.minimum, counts)
    return min(counts)


def _plain(tokens: Any) -> Any:
    return np.asarray(tokens).tolist()


def opened(function: Callable[P, R]) -> Callable[P, R]:
    """Make a call of a model one use of each `Kept` that it is given.

    The models and layers in it take part in the outermost call that is given it.
    """

    inputs = [*signature(function).parameters.values()][1:]
    if len(inputs) == 1 and inputs[0].kind is Parameter.POSITIONAL_OR_KEYWORD:
        return function  # most layers: they take tokens and nothing else

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        for value in args:
            if isinstance(value, Kept) and value._used is None:
                return _use(value, call, *args, **keywords)
        for value in keywords.values():
            if isinstance(value, Kept) and value._used is None:
                return _use(value, call, *args, **keywords)
        return function(*args, **keywords)

    return call


def _use(kept: Kept, call: Callable[P, R], /, *args: P.args, **keywords: P.kwargs) -> R:
    put(kept, "_used", frozenset())
    result = call(*args, **keywords)
    put(kept, "_used", None)
    return result
