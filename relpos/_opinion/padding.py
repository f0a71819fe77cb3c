"""Rows of results that are padding, as far as arguments of the call say it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import Array
from relpos._opinion.arrays import as_numpy
from relpos._opinion.attempt import HIDDEN
from relpos._text import amount

#: The verdict of results that are the same in all other rows.
PADDING = "differs only in rows that are padding"
#: Arguments that hide keys of an item, and those that hide pairs.
_OF_KEYS = (
    "key_lengths",
    "key_padding_mask",
    "src_key_padding_mask",
    "attention_mask",
)
_OF_PAIRS = ("attn_mask",)


class Padding(NamedTuple):
    """Rows that arguments hide, of the shape of the first input without its columns."""

    sure: Array  # the hidden keys are rows of the first input
    empty: Array  # padding where a side has nothing but 0 or nan
    names: tuple[str, ...]  # of the arguments

    def rows(self, reference: Array, mine: Array) -> Array | None:
        """Return which rows of two results are padding; None if none is."""
        if reference.shape[:-1] != self.sure.shape:
            return None
        nothing = [((x == 0) | np.isnan(x)).all(axis=-1) for x in (reference, mine)]
        padded: Array = self.sure | (self.empty & (nothing[0] | nothing[1]))
        return padded if padded.any() else None

    def note(self, padded: Array) -> str:
        """Say which arguments make these rows padding, and what that takes for sure."""
        assumed = (padded & ~self.sure).any() and {*self.names} & {*_OF_KEYS}
        condition = " if queries and keys are one sequence" if assumed else ""
        rows = f"{padded.sum()} of {amount(padded.size, 'row')}"
        return (
            f"{rows} {'is' if padded.sum() == 1 else 'are'} padding by "
            f"{' and '.join(self.names)}{condition}"
        )


def padding_of(
    inputs: Mapping[str, Any], true_hides: bool, batch_first: bool
) -> Padding | None:
    """Return the rows that arguments hide; None where no argument hides any.

    `true_hides` is the meaning of a bool attn_mask; `batch_first` means an input of
    (B, L, ..), not (L, B, ..).
    """
    if not inputs.keys() & {*_OF_KEYS, *_OF_PAIRS}:
        return None
    arrays = _arrays(inputs)
    masks = {n: arrays.pop(n) for n in (*_OF_KEYS, *_OF_PAIRS) if n in arrays}
    name = next(iter(inputs))
    if not masks or name not in arrays:
        return None
    first = arrays.pop(name)
    rows = _rows(first)
    # Masks have the items of the batch first, and so have `rows` here.
    order = [1, 0] if len(rows) == 2 and not batch_first else [*range(len(rows))]
    rows = tuple(rows[at] for at in order)
    # The next input that has columns like the first is taken for the keys.
    keys = next((x for x in arrays.values() if _could_be_keys(x, first)), first)
    shape_of_keys = _rows(keys)
    count = shape_of_keys[order[-1]] if order else 0
    sure, empty = np.zeros(rows, bool), np.zeros(rows, bool)
    for name, mask in masks.items():
        if name in _OF_PAIRS:
            empty |= _fitted(_blind(mask, true_hides, len(rows)), rows)
            continue
        hidden = _for_heads(_hidden_keys(name, mask, count), len(rows))
        # If all keys of an item are hidden, its queries see nothing, whatever their
        # number.
        empty |= _fitted(np.logical_and.reduce(hidden, axis=-1, keepdims=True), rows)
        if rows[-1:] != (count,):
            continue
        # In self-attention a hidden key is a row of the first input. In cross-attention
        # it may be one only if there are as many queries, and if its row is empty.
        if keys is first or np.array_equal(keys, first):
            sure |= _fitted(hidden, rows)
        else:
            empty |= _fitted(hidden, rows)
    if not (sure.any() or empty.any()):
        return None
    return Padding(sure.transpose(order), empty.transpose(order), tuple(masks))


def _arrays(inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return the inputs that are numbers."""
    arrays = {}
    for name, x in inputs.items():
        with suppress(TypeError, ValueError):
            arrays[name] = as_numpy(name, x)
    return arrays


def _rows(array: Array) -> tuple[int, ...]:
    """Return the shape without columns, which integers, as of tokens, do not have."""
    return array.shape if array.dtype.kind in "iu" else array.shape[:-1]


def _could_be_keys(array: Array, first: Array) -> bool:
    columns = [x.shape[len(_rows(x)) :] for x in (array, first)]
    return array.ndim == first.ndim and columns[0] == columns[1]


def _hidden_keys(name: str, mask: Array, count: int) -> Array:
    """Return which keys an argument hides, (..., count); none of another length."""
    if name == "key_lengths":
        hidden: Array = np.arange(count) >= mask[..., None]
    elif name == "attention_mask":  # of transformers
        hidden = mask == 0 if mask.ndim == 2 else np.zeros(count, bool)
    else:  # of PyTorch
        hidden = mask if mask.dtype == bool else mask <= HIDDEN
    return hidden if hidden.shape[-1:] == (count,) else np.zeros(count, bool)


def _blind(mask: Array, true_hides: bool, axes: int) -> Array:
    """Return which queries see no key in any head, (..., Lq)."""
    if mask.ndim < 2:
        return np.zeros(1, bool)
    hidden: Array = mask <= HIDDEN if mask.dtype != bool else mask == true_hides
    # A mask of more axes than rows and keys has heads, and a query is blind if it sees
    # no key in any of them.
    every: tuple[int, ...] = (-1,) if mask.ndim <= axes + 1 else (-1, -3)
    return np.asarray(np.logical_and.reduce(hidden, axis=every))


def _for_heads(array: Array, axes: int) -> Array:
    """Add axes of length 1 before the last, for heads."""
    # A mask of keys is (B, Lk), and rows may be (B, H, L).
    ones = (1,) * (axes - array.ndim)
    return array.reshape(*array.shape[:-1], *ones, *array.shape[-1:])


def _fitted(array: Array, rows: tuple[int, ...]) -> Array | bool:
    """Broadcast to the shape of the rows; return False where that cannot be."""
    try:
        return np.broadcast_to(array, rows)
    except ValueError:
        return False
