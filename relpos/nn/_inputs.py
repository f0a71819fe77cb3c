"""Helpers of all layers: checks of inputs, settings and masks; products; heads."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from relpos import _core
from relpos._checks import (
    Array,
    ArrayLike,
    as_array,
    as_flag,
    as_floating,
    as_int,
    as_real,
    kind_of,
    native,
)
from relpos._settings import get_num_threads

#: Dtype of random initial values, which are then cast to the layer's.
RANDOM = np.dtype(np.float64)


def as_input(
    name: str, value: ArrayLike, dtype: np.dtype[Any], *shape: int | str
) -> Array:
    """Return `value` in `dtype`, the layer's, after a check of its `shape`.

    An int of `shape` is the length of its axis. A word stands for any length, and "..."
    in front for any axes. A narrower dtype is widened; a wider one is an error, as it
    would lose digits.
    """
    array = as_floating(name, value)
    if array.dtype.itemsize > dtype.itemsize:
        raise TypeError(
            f"{name}: got dtype {array.dtype}; this layer computes in {dtype} (pass "
            f"{name}.astype(np.{dtype}), or make the layer with dtype=np.{array.dtype})"
        )
    check_shape(name, array, shape)
    return array.astype(dtype, copy=False)


def check_shape(name: str, array: Any, shape: tuple[int | str, ...]) -> None:
    """Raise unless an array or a tensor has the `shape`, written as for `as_input`."""
    got = tuple(array.shape)
    if not _fits(got, shape):
        expected = ", ".join(map(str, shape))
        if len(shape) == 1:
            expected += ","
        raise ValueError(f"{name}: got shape {got}; expected ({expected})")


def _fits(got: tuple[int, ...], shape: tuple[int | str, ...]) -> bool:
    """Return True if a shape is as `shape` says."""
    if shape and shape[0] == "...":
        shape = shape[1:]
        free_axes = len(got) - len(shape)
        if free_axes < 0:
            return False
        got = got[free_axes:]
    if len(got) != len(shape):
        return False
    return all(
        isinstance(expected, str) or size == expected
        for size, expected in zip(got, shape, strict=True)
    )


def check_length(
    length: int,
    most: int | None,
    name: str = "max_len",
    kind: type[Exception] = ValueError,
) -> None:
    """Raise for a sequence of more positions than a layer has."""
    if most is not None and length > most:
        raise kind(f"x: got a sequence of {length}; expected at most {name} = {most}")


def check_offset(offset: Any, query_length: int, key_length: int, limit: int) -> None:
    """Raise where a token may be `limit` positions from another one, or from 0.

    `offset` is an integer, or an array of one for each batch item.
    """
    if not np.size(offset):  # the batch is empty
        return
    # Query i is at i + offset, and key j at j: the last query is the farthest from
    # key 0, and the last key the farthest from query 0.
    least, most = key_length - limit + 1, limit - 1 - query_length
    # The two extremes stand for all offsets. As a set, one offset is checked once.
    for value in {np.min(offset), np.max(offset)}:
        as_int("query_offset", value, least, most)


#: Start of the error of attention for a table that has too few rows. Only this text has
#: the two positions.
_TOO_FEW_ROWS = re.compile(
    r"rel_key: visible relative positions run from (\S+) to (\S+),"
)


def about_max_len(error: IndexError, max_len: int, hint: str = "") -> IndexError:
    """Turn an error about the rows of a table into one about a layer's `max_len`.

    The caller of a layer gives `max_len` and does not know the table. Other errors are
    returned as they are. `hint` adds another remedy.
    """
    positions = _TOO_FEW_ROWS.match(str(error))
    if positions is None:
        return error
    lowest, highest = int(positions[1]), int(positions[2])
    farthest = max(-lowest, highest)
    return IndexError(
        f"query: got tokens that see keys at a distance of {farthest}; expected at "
        f"most max_len - 1 = {max_len - 1} (make the layer with max_len={farthest + 1}"
        f"{hint})"
    )


def as_size(name: str, value: object, low: int = 1) -> int:
    """Return an integer from `low` to 2^31 - 1."""
    return as_int(name, value, low, 2**31 - 1)


def as_probability(name: str, value: object) -> float:
    number = as_real(name, value)
    if not 0.0 <= number < 1.0:
        raise ValueError(f"{name}: got {number}; expected 0 <= {name} < 1")
    return number


def as_not_negative(name: str, value: object) -> float:
    number = as_real(name, value)
    if number < 0:
        raise ValueError(f"{name}: got {number}; expected 0 or more")
    return number


#: Checks of the arguments of constructors by name. A name that is not here is that of a
#: size, which `as_size` checks.
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "base": as_real,
    "batch_first": as_flag,
    "bias": as_flag,
    "bidirectional": as_flag,
    "dropatt": as_probability,
    "dropout": as_probability,
    "eps": as_not_negative,
    "interleaved": as_flag,
    "is_causal": as_flag,
    "layer_norm_epsilon": as_not_negative,
    "learned": as_flag,
    "log_distance": as_flag,
    "max_relative_position": partial(as_size, low=0),
    "owns_biases": as_flag,
    "p": as_probability,
    "per_head": as_flag,
    "pre_lnorm": as_flag,
    "pre_norm": as_flag,
    "use_keys": as_flag,
    "use_values": as_flag,
}


def as_settings(arguments: Mapping[str, Any]) -> SimpleNamespace:
    """Return the settings of a layer: arguments of its constructor, checked by name.

    They keep their order, which is that of the layer's repr.
    """
    settings: dict[str, Any] = {}
    for name, value in arguments.items():
        check = _CHECKS.get(name, as_size)
        settings[name] = check(name, value)
    _check_parts(settings)
    return SimpleNamespace(**settings)


def _check_parts(settings: Mapping[str, Any]) -> None:
    """Raise unless heads or groups divide the width of a layer that has both."""
    for width in ("embed_dim", "d_model"):
        for parts in ("num_heads", "groups"):
            if width not in settings or parts not in settings:
                continue
            if settings[width] % settings[parts]:
                raise ValueError(
                    f"{parts}: got {settings[parts]}, which does not divide {width} = "
                    f"{settings[width]}"
                )


def as_mask(name: str, value: ArrayLike) -> Array:
    """Return a mask of booleans or numbers as an array, without a copy.

    The caller checks its shape before `as_zero_one` copies it, as a broadcast view of a
    wrong shape may be huge.
    """
    array = as_array(name, value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: got {kind_of(array)}; expected booleans, or 0 and 1")
    return array


def as_zero_one(name: str, mask: Array) -> Array:
    """Return a mask of True/False or 1/0 as booleans."""
    # Scores to add are refused: as booleans they would be True wherever they are not 0,
    # so that -inf, which hides a pair, would show it.
    flags = mask.astype(bool)
    if mask.dtype.kind != "b" and not np.array_equal(flags, mask):
        raise ValueError(
            f"{name}: has values other than 0 and 1; expected a mask, not scores to add"
        )
    return flags


def product(a: Array, b: Array) -> Array:
    """Return a @ b for matrices of one dtype, in memory of any layout."""
    return _core.gemm(native(a, a.dtype), native(b, b.dtype), get_num_threads())


def some_rows(table: Array) -> Array:
    """Return a table itself, or one row of zeros for a table without rows.

    There are no rows where there are no keys, and attention takes no empty table.
    """
    if len(table):
        return table
    return np.zeros((1, *table.shape[1:]), table.dtype)


def split_heads(x: Array, num_heads: int) -> Array:
    """View (..., L, H * D) as (..., H, L, D)."""
    parts = x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads)
    return parts.swapaxes(-2, -3)


def join_heads(x: Array) -> Array:
    """Copy (..., H, L, D) as (..., L, H * D); a layer's caller may write into it."""
    swapped = np.array(x.swapaxes(-2, -3), order="C")  # a copy even for one head
    return swapped.reshape(*swapped.shape[:-2], x.shape[-3] * x.shape[-1])


def xavier_uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return random values from the uniform distribution of Glorot and Bengio."""
    bound = math.sqrt(6.0 / (shape[-1] + shape[-2]))
    return rng.uniform(-bound, bound, shape)
