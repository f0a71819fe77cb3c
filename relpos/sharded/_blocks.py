"""One block on a worker, forward and backward: a call of the kernels, as a part."""

from __future__ import annotations

import numpy as np

from relpos._attention.functional import backward, forward
from relpos._attention.operands import ROWS
from relpos._checks import Array
from relpos.sharded._tasks import (
    Place,
    Recipe,
    arguments,
    call_of,
    check_chunks,
    fire_of,
    part_of,
)

#: Operands that have an entry for each query or key: their gradient is written, so
#: that of a batch axis they lack is summed afterwards, in one order.
WRITTEN = tuple(name for name, row in ROWS.items() if row.is_written)


def solve(recipe: Recipe, place: Place, arrays: list[Array]) -> dict[str, Array]:
    """The results of one block, by name."""
    check_chunks(recipe, place, arrays)
    call = call_of(arguments(recipe, place, arrays))
    fire, part = fire_of(recipe, place, arrays[0]), part_of(recipe, place)
    return forward(call, fire, recipe.edges, part)


def differentiate(
    recipe: Recipe,
    place: Place,
    arrays: list[Array],
    wrt: list[str],
    grad_out: Array | None,
    grad_lse: Array | None,
    kept: list[Array],
) -> dict[str, Array]:
    """The block's part of the gradients, from the whole rows' `kept`."""
    check_chunks(recipe, place, arrays)
    arrays = [
        np.broadcast_to(array, (*place.items.shape, *array.shape[-3:]))
        if name in WRITTEN
        else array
        for name, array in zip(recipe.names, arrays, strict=True)
    ]
    names = [name for name in wrt if name != "sinks" or place.with_sinks]
    call = call_of(arguments(recipe, place, arrays))
    fire, part = fire_of(recipe, place, arrays[0]), part_of(recipe, place)
    out, _, row_max, row_sum = kept
    rows = (out, row_max, row_sum)
    found = backward(call, grad_out, grad_lse, rows, names, fire, recipe.edges, part)
    parts: dict[str, Array] = {name: getattr(found, name) for name in names}
    if "log_decay" in parts:  # that of the numbers before its first key is 0
        before = [(0, 0)] * (parts["log_decay"].ndim - 1) + [(place.key, 0)]
        parts["log_decay"] = np.pad(parts["log_decay"], before)
    return parts
