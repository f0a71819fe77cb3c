"""log_decay where the keys are blocks: what lies between a block and each query.

A pair decays by the sum of log_decay[t] over t = j + 1 .. p, p the query's position. A
block of keys j < e sums up to t = e - 1; the rest, t = e .. p, is one number for each
query, which shifts the logarithms of its sums and no weight within the block:

    between_i = sum of log_decay[t], t = e .. p_i
    d between_i = sum_j dS_ij = w_i (o_i dout_i - out_i dout_i + dlse_i)

with o and lse' the results of the block, w_i = exp(lse'_i - lse_i). No kernel hands out
sums of dS, so the block is computed once more for them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from relpos._checks import Array
from relpos.sharded._tasks import Place, Recipe

_LOG2E = float(np.log2(np.e))


class Between(NamedTuple):
    """The numbers of the keys after a block, and how many each query passes."""

    after: Array  # (..., H, keys after)
    passed: Array  # (..., H, Lq)

    def sums(self) -> Array:
        """Their sums up to each query, (..., H, Lq) in float64."""
        found = np.zeros((*self.after.shape[:-1], self.after.shape[-1] + 1))
        np.cumsum(self.after, axis=-1, dtype=np.float64, out=found[..., 1:])
        found = np.broadcast_to(found, (*self.passed.shape[:-1], found.shape[-1]))
        return np.take_along_axis(found, self.passed, axis=-1)


def between(
    recipe: Recipe, place: Place, arrays: list[Array], given: dict[str, Any]
) -> Between | None:
    """What lies between the block that `given` is and its queries, if anything."""
    if "log_decay" not in given:
        return None
    keys, (heads, queries) = given["key"].shape[-2], given["query"].shape[-3:-1]
    whole = arrays[recipe.names.index("log_decay")]
    after = whole[..., place.key + keys :]
    passed = np.arange(queries) + given["query_offset"][..., None] - keys + 1
    passed = np.clip(passed, 0, after.shape[-1])
    if not passed.any():
        return None
    rows = (*place.items.shape, heads, queries)
    return Between(after, np.broadcast_to(passed[..., None, :], rows))


def shift(row_max: Array, by: Array) -> Array:
    """Maxima, which are in units of log 2, of scores that many larger."""
    shifted: Array = (row_max + by * _LOG2E).astype(row_max.dtype)
    return shifted


def row_sums(
    own: dict[str, Array],
    gradients: tuple[Array | None, Array | None],
    rows: list[Array],
) -> Array:
    """Sums of dS over the block's keys.

    `rows` are out, row_max less what lies between, and row_sum of the whole's rows.
    """
    out, row_max, row_sum = rows
    seen = own["row_sum"] > 0
    down = np.where(seen, own["row_max"], -np.inf) - np.where(seen, row_max, 0)
    share = own["row_sum"] * np.exp2(down) / np.where(seen, row_sum, 1)
    change = np.zeros(row_sum.shape)
    if gradients[0] is not None:
        moved = own["out"].astype(np.float64) - out
        change += np.einsum("...d,...d->...", moved, gradients[0])
    if gradients[1] is not None:
        change += gradients[1]
    return np.where(seen, share * change, 0)


def whole_gradient(
    part: Array, shape: tuple[int, ...], first: int, far: Between | None, sums: Array
) -> Array:
    """Gradient of all numbers from that of the block's, at `first`, and row sums."""
    found = np.zeros(shape)
    last = first + part.shape[-1]
    found[..., first:last] = part
    if far is None:
        return found
    steps = np.zeros((*sums.shape[:-1], far.after.shape[-1] + 1))
    for row in np.ndindex(*sums.shape[:-1]):
        np.add.at(steps[row], far.passed[row], sums[row])
    later = np.cumsum(steps[..., :0:-1], axis=-1)[..., ::-1]
    later = later.sum(axis=tuple(range(later.ndim - len(shape))))
    shared = tuple(n for n, size in enumerate(shape[:-1]) if size == 1)
    found[..., last:] = later.sum(axis=shared, keepdims=True)
    return found
