"""State of objects as values that compare, and calls that fail at a given step."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import relpos

HOME = str(Path(relpos.__file__).parent)


def state_of(thing, seen=None):
    """All that an object holds, as nested tuples; of a cache what is visible."""
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return "again", seen[id(thing)][0]
    if isinstance(thing, np.ndarray) and thing.dtype != object:
        return thing.shape, thing.dtype.str, thing.tobytes()
    if thing is None or isinstance(thing, int | float | str | bytes):
        return thing
    seen[id(thing)] = len(seen), thing  # no other object gets its id meanwhile
    if isinstance(thing, np.random.Generator):
        return repr(thing.bit_generator.state)
    if isinstance(thing, relpos.KVCache):
        return state_of(visible(thing), seen)
    if isinstance(thing, dict):
        return tuple((state_of(k, seen), state_of(v, seen)) for k, v in thing.items())
    if isinstance(thing, list | tuple | frozenset):
        return tuple(state_of(item, seen) for item in thing)
    fields = [name for kind in type(thing).__mro__ for name in slots(kind)]
    found = {name: getattr(thing, name) for name in fields if hasattr(thing, name)}
    return type(thing).__name__, state_of(found | getattr(thing, "__dict__", {}), seen)


def slots(kind):
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)


def visible(cache):
    """Lengths of a cache, and the keys and values that they leave visible."""
    kept = {name: getattr(cache, name) for name in ("_lengths", "_start", "_count")}
    if cache._buffers is None:
        return kept, None
    lengths = np.broadcast_to(cache.lengths, cache.key.shape[:-3])
    rows = [
        x[at][:, : lengths[at]].copy()
        for x in (np.asarray(cache.key), np.asarray(cache.value))
        for at in np.ndindex(lengths.shape)
    ]
    return kept, rows


class Fault:
    """Raise where relpos's Python code begins a call, or has made one into C."""

    def __init__(self, step, error):
        self.left, self.error = step, error

    def __call__(self, frame, event, arg):
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(
            HOME
        ):
            return
        self.left -= 1
        if not self.left:
            raise self.error  # which ends the profile


def fails_at(step, error, action):
    """Return (whether there is such a step, the error that it led to, the result)."""
    before = sys.getprofile()
    fault = Fault(step, error)
    sys.setprofile(fault)
    try:
        result = action()
        return fault.left <= 0, None, result
    except type(error) as raised:
        if fault.left > 0:
            raise
        return True, raised, None
    finally:
        sys.setprofile(before)
