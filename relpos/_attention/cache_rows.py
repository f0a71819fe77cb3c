"""What a cache keeps: rows of arrays, or of tensors without loading torch to ask."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from relpos._checks import Array, as_floating, as_integers, at_least_ndim, native
from relpos._foreign import module_of


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor of PyTorch."""
    return type(value) is not np.ndarray and module_of(value, "torch") is not None


def as_rows(name: str, value: object) -> Any:
    """An array, or a tensor as it is, of at least heads, tokens and columns."""
    rows: Any = value
    if not is_tensor(value):
        array = as_floating(name, value)
        rows = native(array, array.dtype.newbyteorder("="))
    elif rows.requires_grad:
        raise TypeError(
            f"{name}: got a tensor that requires a gradient, which a cache does not "
            "keep; pass tensor.detach(), or decode under torch.no_grad()"
        )
    at_least_ndim(name, rows, 3, "(..., Hk, n, columns)")
    return rows


def check_like(name: str, new: Any, old: Any) -> None:
    """Raise unless a later append is of the kind and the shape of the first."""
    if is_tensor(new) != is_tensor(old) or new.dtype != old.dtype:
        raise TypeError(
            f"{name}: got {type(new).__name__} of {new.dtype}; expected "
            f"{type(old).__name__} of {old.dtype}, as before"
        )
    got, had = tuple(new.shape), tuple(old.shape)
    if (*got[:-2], got[-1]) != (*had[:-2], had[-1]):
        raise ValueError(
            f"{name}: got shape {got}; expected {(*had[:-2], 'n', had[-1])}, as before"
        )


def as_lengths(name: str, value: object, batch: tuple[int, ...], most: Array) -> Array:
    """An integer of all batch items or of each, from 0 to `most`."""
    lengths = as_integers(name, value)
    if lengths.shape not in ((), batch):
        raise ValueError(
            f"{name}: got shape {lengths.shape}; expected an integer or integers of "
            f"the batch shape {batch}"
        )
    if (lengths < 0).any() or (lengths > most).any():
        raise ValueError(
            f"{name}: got {lengths.tolist()}; expected 0 to {most.tolist()}"
        )
    return np.broadcast_to(lengths, most.shape) if most.ndim else lengths


def write_items(buffer: Any, new: Any, before: Array, added: Array) -> None:
    """Copy to each batch item its own number of tokens behind its own."""
    batch = tuple(new.shape[:-3])
    starts, counts = (np.broadcast_to(x, batch) for x in (before, added))
    for at in np.ndindex(batch):
        start, count = int(starts[at]), int(counts[at])
        buffer[at][:, start : start + count] = new[at][:, :count]


def alike(integers: Array, rows: object) -> Any:
    """Integers as a tensor beside tensors, else as the array that they are."""
    if not is_tensor(rows):
        return integers
    kind: Any = rows
    tensor = sys.modules["torch"].from_numpy(np.array(integers))
    return tensor.to(kind.device)


def copy_rows(rows: Any, room: int) -> Any:
    """A buffer with room for that many tokens that begins with `rows`."""
    shape = (*rows.shape[:-2], room, rows.shape[-1])
    tensor = is_tensor(rows)
    buffer = rows.new_zeros(shape) if tensor else np.zeros(shape, rows.dtype)
    buffer[..., : rows.shape[-2], :] = rows
    return buffer
