"""What runs on a worker: a block as a call of its own, joins and sums of blocks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from relpos._attention.call import Call
from relpos._attention.edges import Edges
from relpos._attention.fire_network import Fire, as_fire, part_of_fire
from relpos._attention.merge import merge_attention
from relpos._attention.operands import LABELS, ROWS, Sizes
from relpos._attention.problem import Part
from relpos._checks import Array, is_floating, native, quiet, rounded

#: What a block of the forward has, and the backward starts from, by row.
KEPT = ("out", "lse", "row_max", "row_sum")
#: Integers that count positions of the whole.
PLACED = ("query_offset", "key_lengths", "key_ranges")


class Recipe(NamedTuple):
    """What all blocks of a call share."""

    names: tuple[str, ...]  # of the arrays that a block gets
    options: dict[str, Any]  # the other arguments of `Call`
    dtype: np.dtype[Any]  # of the computation
    sizes: Sizes  # of the whole
    cuts_keys: bool  # whether keys come in several blocks
    fire: dict[str, Any]  # arguments of FIRE's network; empty: none
    edges: Edges | None
    seed: int  # of dropout


class Place(NamedTuple):
    """Where a block lies."""

    head: int  # its first query head
    query: int  # its first query
    key: int  # its first key
    with_sinks: bool  # the sinks belong to one block of keys
    items: Array  # of its batch shape: their numbers in the whole batch
    shapes: tuple[tuple[int, ...], ...]  # of its chunks, as dask knows them


def check_chunks(recipe: Recipe, place: Place, arrays: list[Array]) -> None:
    """Raise where a chunk is not what dask takes it for."""
    for name, array, shape in zip(recipe.names, arrays, place.shapes, strict=True):
        if array.shape != shape:
            raise ValueError(
                f"{name}: a chunk has shape {array.shape}, where its dask array says "
                f"{shape}; expected what it says (map_blocks takes chunks=)"
            )


def arguments(recipe: Recipe, place: Place, arrays: list[Array]) -> dict[str, Any]:
    """Arguments of the block as a call of its own, whose positions are the whole's."""
    given = {
        name: _computed(name, array, recipe.dtype)
        for name, array in zip(recipe.names, arrays, strict=True)
    }
    if not place.with_sinks:
        given.pop("sinks", None)
    if recipe.edges is not None:
        return {**recipe.options, **given}
    given |= {name: ROWS[name].read(given[name]) for name in PLACED if name in given}
    offset = given.get("query_offset", np.array(0))
    given["query_offset"] = offset + (place.query - place.key)
    count = given["key"].shape[-2]
    if "log_decay" in given:
        given["log_decay"] = given["log_decay"][..., place.key :]
    if "key_lengths" in given:
        given["key_lengths"] = np.clip(given["key_lengths"] - place.key, 0, count)
    if "key_ranges" in given:
        ranges = np.clip(given["key_ranges"], place.key, place.key + count)
        given["key_ranges"] = ranges - place.key
    return {**recipe.options, **given}


def call_of(given: dict[str, Any]) -> Call:
    """The call; several labels are one argument."""
    several = tuple(given[name] for name in LABELS if name in given)
    call = Call(**{name: x for name, x in given.items() if name not in LABELS})
    return call._replace(labels=several) if several else call


def _computed(name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """An array in the dtype of the whole's computation, which a block could not tell.

    Gradients then come in it, too, and are rounded once, when they are summed.
    """
    if not is_floating(array.dtype):
        return array
    wider = np.result_type(array.dtype, dtype)  # a mask does not count for `dtype`
    return native(array, wider if name == "attn_mask" else dtype)


def part_of(recipe: Recipe, place: Place) -> Part | None:
    """Where a block lies in the whole."""
    if recipe.edges is not None:
        return None
    return Part(
        seed=recipe.seed,
        query=place.query,
        key=place.key,
        head=place.head,
        items=np.array(place.items).ravel(),  # what was sent may not be aligned
        key_heads=recipe.sizes.Hk,
        has_more_keys=recipe.cuts_keys,
    )


def fire_of(recipe: Recipe, place: Place, query: Array) -> Fire | None:
    """FIRE's network for a block's heads, in the dtype of the computation."""
    if not recipe.fire:
        return None
    own = {
        name: _computed(name, value, recipe.dtype)
        if isinstance(value, np.ndarray)
        else value
        for name, value in recipe.fire.items()
    }
    signed, eps = own.pop("signed"), own.pop("eps")
    heads = slice(place.head, place.head + query.shape[-3])
    return part_of_fire(as_fire(own, signed, eps), heads, place.key)


@quiet
def join(a: dict[str, Array], b: dict[str, Array]) -> dict[str, Array]:
    """Results over two disjoint sets of keys, as of both."""
    out, lse = merge_attention(a["out"], a["lse"], b["out"], b["lse"])
    # the maximum of a row without a key is 0, which says nothing
    found = [np.where(x["row_sum"] == 0, -np.inf, x["row_max"]) for x in (a, b)]
    row_max = np.maximum(*found).astype(lse.dtype)
    row_max[np.isneginf(row_max)] = 0
    row_sum = _at(a, row_max) + _at(b, row_max)
    joined = {"out": out, "lse": lse, "row_max": row_max, "row_sum": row_sum}
    if "weights" in a:
        parts = [_scaled(part, lse) for part in (a, b)]
        joined["weights"] = np.concatenate(parts, axis=-1)
    return joined


def _at(part: dict[str, Array], row_max: Array) -> Array:
    """Sums of exponentials beside a larger maximum; rows without a key have none."""
    absent = part["row_sum"] == 0
    down = np.where(absent, 0, part["row_max"] - row_max)
    return np.where(absent, 0, part["row_sum"] * np.exp2(down))


def _scaled(part: dict[str, Array], lse: Array) -> Array:
    """Weights of a part among all keys."""
    absent = np.isneginf(part["lse"])
    share = np.exp(np.where(absent, -np.inf, part["lse"] - np.where(absent, 0, lse)))
    weights = part["weights"]
    return np.where(weights == 0, 0, weights * share[..., None])  # a share may be nan


@quiet
def add(a: Array, b: Array) -> Array:
    """Add two parts of a gradient, in float64."""
    return np.add(a, b, dtype=np.float64)


def pick(found: dict[str, Array], name: str) -> Array:
    """One of the results of a block."""
    return found[name]


def deliver(array: Array, dtype: np.dtype[Any]) -> Array:
    """Round to the dtype that the caller sees."""
    return rounded(array, dtype)


@quiet
def sum_repeated(array: Array, axes: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Sum a gradient over the batch axes on which its input was repeated."""
    return rounded(array.sum(axis=axes, dtype=np.float64, keepdims=True), dtype)
