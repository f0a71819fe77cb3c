"""Calls that C reads from the arguments themselves: a few arrays and numbers.

A short sequence takes less time to compute than to prepare. Where shapes tell all that
the kernel needs, C also makes the results. Every other call, and every one that C
refuses, is one for `prepare`, which has the words of errors.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from relpos._attention.problem import as_scale, place_tables
from relpos._settings import choose_num_threads

_TOKENS = ("query", "key", "value")
_ARRAYS = {
    *_TOKENS,
    *("rel_key", "rel_query", "rel_value", "rel_bias", "pos_bias_u", "pos_bias_v"),
}
_VALUES = {"is_causal", "scale", "min_relative_position", "num_threads"}


def operands_of(
    arrays: Mapping[str, Any], values: Mapping[str, Any], dtype: np.dtype[Any]
) -> dict[str, Any] | None:
    """Return the operands of a call without its results, None for a call with more.

    `arrays` may be tensors, and have to be of `dtype`, which C looks at; `values` are
    the other arguments that are no default. Raises some of the errors of `prepare`.
    """
    if not (arrays.keys() <= _ARRAYS and values.keys() <= _VALUES):
        return None
    query, key, value = (arrays[name].shape for name in _TOKENS)
    causal = values.get("is_causal", False)
    if not (
        len(query) > 2
        and query[-1]
        and query[:-1] == key[:-1] == value[:-1]
        and (causal is True or causal is False)
    ):
        return None  # heads that are shared, an offset that has to be known, an error
    operands: dict[str, Any] = {
        **arrays,
        "scale": as_scale(values.get("scale"), query[-1], dtype),
        "num_threads": choose_num_threads(values.get("num_threads")),
    }
    if causal:
        operands["window_right"] = 0
    first = values.get("min_relative_position")
    if len(arrays) > len(_TOKENS) or first is not None:
        placement = place_tables(arrays, first, None, "clip")
        if placement.rows or ("pos_bias_v" in arrays and "rel_key" not in arrays):
            return None
        operands["min_relative_position"] = placement.vectors.start
        operands["min_bias_position"] = placement.bias.start
    return operands
