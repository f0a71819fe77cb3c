"""Settings that recipes share, most of them of decoders."""

from __future__ import annotations

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_array,
    as_int,
    as_real,
    kind_of,
)
from relpos.recipes._tables import Keywords


def as_positions(value: object) -> Array:
    """Return absolute positions as float64."""
    array = as_array("positions", value)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"positions: got {kind_of(value)}; expected real numbers")
    return array.astype(np.float64)


def as_positive(name: str, value: object) -> float:
    number = as_real(name, value)
    if number <= 0:
        raise ValueError(f"{name}: got {number}; expected a positive number")
    return number


def causal(name: str, window: object) -> Keywords:
    """Every decoder's: the past, up to a window, and key heads that queries share."""
    keywords: Keywords = {"is_causal": True, "enable_gqa": True}
    if window is not None:
        keywords["window"] = (as_int(name, window, 1, POSITION_LIMIT) - 1, 0)
    return keywords
