"""Results that attempts share, kept by the arguments that they follow from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

#: Bytes of arrays, and results, that are kept at most.
MOST_BYTES, MOST = 2**26, 2**12

T = TypeVar("T")


class Kept:
    """Results that were computed from arguments, of which the last used are kept."""

    def __init__(self) -> None:
        self._results: OrderedDict[object, tuple[Any, int, object]] = OrderedDict()
        self._bytes = 0

    def by_contents(self, arguments: object, compute: Callable[[], T]) -> T:
        """Return what arguments of these contents give, which nobody may change."""
        key = _contents(arguments)
        return self._of(key, key, compute)

    def by_identity(self, arguments: tuple[object, ...], compute: Callable[[], T]) -> T:
        """Return what these objects give, which nobody may change."""
        return self._of(tuple(map(id, arguments)), arguments, compute)

    def _of(self, key: object, held: object, compute: Callable[[], T]) -> T:
        kept = self._results.get(key)
        if kept is not None:
            self._results.move_to_end(key)
            result: T = kept[0]
            return result
        # The computation may itself keep other results here, which come before this
        # one.
        result = compute()
        size = _bytes_of((result, held))
        # While the arguments are held, no other object can have the id of one of them.
        self._results[key] = result, size, held
        self._bytes += size
        # The first result is the one that was used the longest time ago.
        while self._bytes > MOST_BYTES or len(self._results) > MOST:
            _, (_, size, _) = self._results.popitem(last=False)
            self._bytes -= size
        return result


def _bytes_of(x: Any) -> int:
    """Return the bytes of all arrays in mappings, tuples and lists."""
    if isinstance(x, np.ndarray):
        return x.nbytes
    if isinstance(x, bytes):
        return len(x)
    x = x.values() if isinstance(x, Mapping) else x
    if isinstance(x, str) or not hasattr(x, "__iter__"):
        return 0
    return sum(map(_bytes_of, x))


def _contents(x: Any) -> object:
    """Return arrays, numbers and texts, and groups of them, as a key."""
    if type(x) is np.ndarray:
        return x.dtype, x.shape, x.tobytes()
    if isinstance(x, Mapping):
        # The order of keywords has no meaning.
        return ("{}", *((name, _contents(x[name])) for name in sorted(x)))
    return tuple(map(_contents, x)) if isinstance(x, tuple | list) else repr(x)
