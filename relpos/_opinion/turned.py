"""What people do to rotary encodings: pairs, frequencies, positions, who is turned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from relpos._checks import Array
from relpos._opinion.attempt import Attempt, Rotary
from relpos._opinion.tables import Change

Options = Mapping[str, Any]


def turned_by(change: Callable[[Rotary, Attempt], Rotary | None]) -> Change:
    """Another rotation, where there is one."""

    def changed(attempt: Attempt) -> Attempt | None:
        if attempt.rotary is None:
            return None
        found = change(attempt.rotary, attempt)
        return None if found is None else replace(attempt, rotary=found)

    return changed


def with_options(change: Callable[[Options, int], Options | None]) -> Change:
    """Other options of `apply_rotary`, of these and the width of a head."""

    def changed(rotary: Rotary, attempt: Attempt) -> Rotary | None:
        dim = attempt.get("query").shape[-1]
        found = change(rotary.options, dim)
        return None if found is None else rotary._replace(options=found)

    return turned_by(changed)


def frequencies(options: Options, dim: int) -> Array:
    """Radians per position that these options mean."""
    given = options.get("inv_freq")
    if given is not None:
        return np.asarray(given, np.float64)
    width = options.get("rotary_dim") or dim
    base = options.get("base", 10000.0)
    found: Array = base ** (-np.arange(0, width, 2) / width)
    return found


def replaced(options: Options, inv_freq: Array) -> Options:
    """These options with other frequencies."""
    kept = {name: x for name, x in options.items() if name != "base"}
    return {**kept, "inv_freq": inv_freq}


def other_pairs(options: Options, dim: int) -> Options:
    return {**options, "interleaved": not options.get("interleaved", False)}


def partial_ignored(options: Options, dim: int) -> Options | None:
    """All columns turned where a part is to be."""
    if options.get("rotary_dim") in (None, dim) or options.get("inv_freq") is not None:
        return None
    return {name: x for name, x in options.items() if name != "rotary_dim"}


def of_whole_head(options: Options, dim: int) -> Options | None:
    """A part of the columns, with exponents that count over the whole head."""
    width = options.get("rotary_dim") or dim
    if width == dim or options.get("inv_freq") is not None:
        return None
    base = options.get("base", 10000.0)
    return replaced(options, base ** (-np.arange(0, width, 2) / dim))


def half_exponents(options: Options, dim: int) -> Options | None:
    """base^(-c / width) where the exponent is twice that."""
    if options.get("inv_freq") is not None:
        return None
    return replaced(options, np.sqrt(frequencies(options, dim)))


def other_base(base: float) -> Change:
    """The base of another model."""

    def change(options: Options, dim: int) -> Options | None:
        if options.get("inv_freq") is not None or options.get("base", 1e4) == base:
            return None
        return {**options, "base": base}

    return with_options(change)


def plain_frequencies(options: Options, dim: int) -> Options | None:
    """The frequencies of the base alone, where scaled ones are given."""
    if options.get("inv_freq") is None:
        return None
    return {name: x for name, x in options.items() if name != "inv_freq"}


def in_bfloat16(options: Options, dim: int) -> Options:
    """Frequencies of eight bits."""
    exact = frequencies(options, dim).astype(np.float32)
    bits = exact.view(np.uint32)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return replaced(options, bits.astype(np.uint32).view(np.float32).astype(np.float64))


def without_magnitude(options: Options, dim: int) -> Options | None:
    if options.get("magnitude") is None:
        return None
    return {name: x for name, x in options.items() if name != "magnitude"}


no_magnitude = with_options(without_magnitude)


def only(*names: str) -> Change:
    """These are turned, and no others."""
    return turned_by(lambda rotary, attempt: rotary._replace(turned=names))


def values_too(attempt: Attempt) -> Attempt | None:
    return (
        only("query", "key", "value")(attempt) if "value" in attempt.keywords else None
    )


def backwards(rotary: Rotary, attempt: Attempt) -> Rotary:
    """Turned the other way."""
    return rotary._replace(options={**rotary.options, "inverse": True})


def keys_from_query_0(rotary: Rotary, attempt: Attempt) -> Rotary | None:
    """Keys that begin where the queries do."""
    lk = attempt.lengths[1]
    start = rotary.query_positions[..., :1]
    if (start == rotary.key_positions[:1]).all():
        return None
    return rotary._replace(key_positions=start + np.arange(lk))
