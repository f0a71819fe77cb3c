"""What `scaling` may say: a name and its values, with the keys of ``rope_scaling``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from relpos._checks import as_array, as_choice, as_flag, as_int, as_real, kind_of
from relpos._encodings.sinusoidal import MAX_DIM

Settings = dict[str, Any]

LENGTH = "original_max_position_embeddings"
#: Keys that a dict must and may have; what only says which scaling it is stands below.
REQUIRED = {
    "dynamic": ("factor", LENGTH),
    "yarn": (LENGTH,),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", LENGTH),
    "longrope": ("short_factor", "long_factor", LENGTH),
    "proportional": (),
}
OPTIONAL = {
    "dynamic": ("seq_len",),
    "yarn": (
        "factor",
        "max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    ),
    "llama3": (),
    "longrope": ("factor", "max_position_embeddings", "attention_factor", "seq_len"),
    "proportional": ("factor", "partial_rotary_factor"),
}
LABELS = ("rope_type", "type")
_NUMBERS = ("linear", "ntk")  # scalings that are a factor alone


def even_dim(dim: object, low: int = 2) -> int:
    """`dim` as an even number of at least `low`."""
    columns = as_int("dim", dim, low, MAX_DIM)
    if columns % 2:
        raise ValueError(f"dim: got {columns}; expected an even number, of pairs")
    return columns


def positive(name: str, value: object) -> float:
    number = as_real(name, value)
    if number <= 0:
        raise ValueError(f"{name}: got {number}; expected a positive number")
    return number


def share(name: str, value: object) -> float:
    number = as_real(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name}: got {number}; expected a number from 0 to 1")
    return number


def as_settings(scaling: object) -> tuple[str, Settings]:
    """Name and values of `scaling`, all keys known and none missing."""
    if not isinstance(scaling, (tuple, list)) or len(scaling) != 2:
        raise TypeError(
            f"scaling: got {kind_of(scaling)}; expected None or a pair of a name and "
            'its values, as in ("linear", 2.0)'
        )
    name = as_choice("scaling", scaling[0], (*_NUMBERS, *REQUIRED))
    if name in _NUMBERS:
        return name, {"factor": positive(f"scaling: factor of {name}", scaling[1])}
    if not isinstance(scaling[1], Mapping):
        raise TypeError(
            f"scaling: got {kind_of(scaling[1])} with {name!r}; expected a dict with "
            f"{', '.join(map(repr, REQUIRED[name] or OPTIONAL[name]))}"
        )
    values = {key: value for key, value in scaling[1].items() if value is not None}
    for label in LABELS:
        if values.pop(label, name) != name:
            raise ValueError(
                f"scaling: its {label} is {scaling[1][label]!r}; expected {name!r}"
            )
    known = REQUIRED[name] + OPTIONAL[name]
    for key in values:
        if key not in known:
            raise ValueError(
                f"scaling: {name!r} has no key {key!r}; expected some of "
                f"{', '.join(map(repr, known))}"
            )
    for key in REQUIRED[name]:
        if key not in values:
            raise ValueError(f"scaling: got no {key!r}; {name!r} needs it")
    return name, {key: _value(key, value) for key, value in values.items()}


def _value(key: str, value: object) -> Any:
    """One entry of the dict, checked."""
    name = f"scaling: {key}"
    if key == "truncate":
        return as_flag(name, value)
    if key in ("mscale", "mscale_all_dim"):
        return as_real(name, value)
    if key == "partial_rotary_factor":
        return share(name, value)
    if key not in ("short_factor", "long_factor"):
        return positive(name, value)
    factors = as_array(name, value)
    if factors.dtype.kind not in "iuf" or not (factors > 0).all():
        raise ValueError(f"{name}: expected positive numbers")
    return factors.astype(np.float64)


def stretch(name: str, settings: Settings) -> float:
    """How many times longer than the original sequences are to be."""
    if "factor" in settings:
        return float(settings["factor"])
    if "max_position_embeddings" not in settings:
        raise ValueError(
            f"scaling: got neither 'factor' nor 'max_position_embeddings'; {name!r} "
            "needs one of them here"
        )
    return float(settings["max_position_embeddings"] / settings[LENGTH])
