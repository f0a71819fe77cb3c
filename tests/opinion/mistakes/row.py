"""A mistake: a function, a call of `relpos.diagnose`, and words of its verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

B, H, L, D = 2, 4, 9, 8
RNG = np.random.default_rng(20)
Q, K, V = RNG.standard_normal((3, B, H, L, D))
#: Key minus query position of each pair, (L, L).
DISTANCE = np.arange(L) - np.arange(L)[:, None]


@dataclass(frozen=True)
class Mistake:
    """A mistake of a family.

    `says` are regular expressions. The verdict contains all of them, in any order and
    case, and names at most `causes` differences besides the layout. `source` is the
    address of the report; "near:" before it means that the report is about a similar
    mistake, not about this one.
    """

    name: str
    function: Callable[..., Any]
    call: dict[str, Any]
    says: tuple[str, ...]
    source: str
    causes: int = 1


def family() -> tuple[list[Mistake], Callable[..., Any]]:
    """Return an empty list of mistakes, and a decorator that adds a function to it."""
    rows: list[Mistake] = []

    def mistake(*says: str, source: str, causes: int = 1, **call: Any) -> Any:
        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            arguments = {"query": Q, "key": K, "value": V, **call}
            name = function.__name__
            rows.append(Mistake(name, function, arguments, says, source, causes))
            return function

        return add

    return rows, mistake


def softmax(scores, axis=-1):
    with np.errstate(invalid="ignore"):  # a row that sees nothing is nan
        e = np.exp(scores - scores.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)


def attend(query, key, value, see=True, number=-np.inf):
    """Return results of queries that see some keys, the scores of others a number."""
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(D)
    return softmax(np.where(see, scores, number)) @ value


def joined(x):
    """(B, H, L, D) as a layer has it before the heads are split: (B, L, H * D)."""
    return x.swapaxes(1, 2).reshape(len(x), x.shape[2], -1)
