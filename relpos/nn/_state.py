"""Comparison of a given state_dict with the entries of a layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from relpos._checks import Array, as_array, is_floating, kind_of
from relpos._foreign import of_tensor
from relpos.nn.parameter import Parameter


def compare_states(
    layer: str,
    wanted: dict[str, Parameter | Array],
    given: Mapping[str, Any],
    strict: bool,
) -> tuple[list[tuple[Parameter, Array]], list[str], list[str]]:
    """Return (parameters and what to copy into them, missing names, unexpected names).

    An entry of `wanted` that is no parameter may be absent, and has to have the values
    that the layer computes.
    """
    missing = [
        name
        for name, entry in wanted.items()
        if isinstance(entry, Parameter) and name not in given
    ]
    unexpected = [str(name) for name in given if name not in wanted]
    found: list[tuple[Parameter, Array]] = []
    wrong = []
    for name, entry in wanted.items():
        if name not in given:
            continue
        array = _as_numbers(name, given[name])
        own: Array = entry.data if isinstance(entry, Parameter) else entry
        if array.shape != own.shape:
            hint = entry._hint if isinstance(entry, Parameter) else ""
            wrong.append(
                f"size mismatch for {name}: got shape {array.shape}; the layer has "
                f"{own.shape}. {hint}".rstrip()
            )
        elif isinstance(entry, Parameter):
            found.append((entry, array))
        elif not np.array_equal(array, own):
            wrong.append(f"{name}: the values differ from those the layer computes.")
    lines = []
    if strict and missing:
        lines.append(f"Missing key(s): {_quoted(missing)}.")
    if strict and unexpected:
        lines.append(f"Unexpected key(s): {_quoted(unexpected)}.")
    lines += wrong
    if lines:
        head = f"state_dict: does not fit {layer}:"
        raise ValueError("\n    ".join([head, *lines]))
    return found, missing, unexpected


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _as_numbers(name: str, value: object) -> Array:
    """Return an array of real numbers from an array, or a tensor of PyTorch.

    It is not cast before its shape is known to fit.
    """
    array = as_array(name, of_tensor(value))
    if array.dtype.kind not in "fbiu" and not is_floating(array.dtype):
        raise TypeError(
            f"{name}: got {kind_of(value)}; expected an array or tensor of floats"
        )
    return array
