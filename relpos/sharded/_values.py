"""Small arguments that come as dask arrays: computed once, and checked as the whole's.

Blocks need all of FIRE's parameters, of the buckets and of the edges, and no block can
tell whether offsets, lengths and ranges are right for the whole. One task has them all:
it raises what a call on arrays in memory would, and hands out what the blocks share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from relpos._attention.call import Call
from relpos._attention.edges import Edges
from relpos._attention.fire_network import NAMES, Fire, as_fire
from relpos._attention.operands import LABELS, OPERANDS, ROWS
from relpos._attention.problem import Problem, prepare
from relpos._checks import Array
from relpos.sharded._grid import refuse_unknown
from relpos.sharded._tasks import PLACED, Recipe


@dataclass(frozen=True, slots=True)
class Form:
    """Shape and dtype of an array whose numbers nothing looks at."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Values(NamedTuple):
    """The small arguments that are lazy, and what else their check takes."""

    arrays: dict[str, Any]  # of dask, in one chunk
    call: Call  # others are numbers, arrays in memory, or forms

    def complete(self, recipe: Recipe, token: str) -> Delayed:
        """The recipe with all that it lacks, a task; `token` tells calls apart."""
        name = f"relpos-recipe-{tokenize(recipe, token)}"
        keys = [(x.name, *(0 for _ in x.shape)) for x in self.arrays.values()]
        layer = {name: (_completed, recipe, self.call, [*self.arrays], keys)}
        arrays = [*self.arrays.values()]
        graph = HighLevelGraph.from_collections(name, layer, dependencies=arrays)
        return Delayed(name, graph)


def _completed(
    recipe: Recipe, call: Call, names: list[str], arrays: list[Any]
) -> Recipe:
    if not names:
        return recipe
    values = {name: np.asarray(x) for name, x in zip(names, arrays, strict=True)}
    fire = {name: values.get(name, x) for name, x in recipe.fire.items()}
    buckets = {"buckets": values.get("buckets", recipe.options["buckets"])}
    edges = recipe.edges
    if edges is not None:
        own = {name: x for name, x in values.items() if name in Edges._fields}
        edges = edges._replace(**own)
    given = {name: values.get(name, x) for name, x in arrays_of(call).items()}
    prepare(with_arrays(call, _opened(given))._replace(**buckets), network(fire), edges)
    options = recipe.options | buckets
    return recipe._replace(fire=fire, edges=edges, options=options)


def values_of(
    call: Call, given: dict[str, Any], fire: dict[str, Any], edges: Edges | None
) -> Values:
    """What is lazy of a checked call; `given` are its arrays."""
    own = {name: given[name] for name in PLACED if name in given}
    if call.beyond != "raise" and "log_decay" not in given:
        own.pop("key_ranges", None)  # any will do
    lazy = lazy_of({**own, "buckets": call.buckets, **fire})
    lazy |= {} if edges is None else lazy_of(edges._asdict())
    forms = {
        name: x
        if name in own and not isinstance(x, da.Array)
        else Form(x.shape, x.dtype)
        for name, x in given.items()
    }
    call = with_arrays(call, forms)._replace(rng=None)
    if "buckets" in lazy:
        call = call._replace(buckets=None)
    return Values({name: x.rechunk(-1) for name, x in lazy.items()}, call)


def check_whole(
    call: Call, given: dict[str, Any], fire: dict[str, Any], edges: Edges | None
) -> Problem:
    """The call as far as it can be checked before anything is computed."""
    _refuse(call, given, fire, edges)
    arrays = _opened(given)
    if lazy_of({name: given.get(name) for name in PLACED}):
        # What is visible is not known yet: of no key nothing is said.
        lengths = OPERANDS["key_lengths"].read(arrays.get("key_lengths", 0))
        arrays["key_lengths"] = np.zeros_like(lengths)
    call = with_arrays(call, arrays)
    if isinstance(call.buckets, da.Array):
        call = call._replace(buckets=stand_in("buckets", call.buckets))
    return prepare(call, network(_opened(fire)), _open_edges(edges))


def _refuse(
    call: Call, given: dict[str, Any], fire: dict[str, Any], edges: Edges | None
) -> None:
    """Raise for what cannot be lazy."""
    arrays = {"buckets": call.buckets, **given, **fire}
    arrays |= {} if edges is None else edges._asdict()
    for name in lazy_of({**call._asdict(), **arrays}):
        if name not in arrays or name in ("signed", "eps"):
            raise TypeError(
                f"{name}: got a dask array; expected a plain value (call compute() on "
                "it), as the tasks are made by it"
            )


def network(fire: dict[str, Any]) -> Fire | None:
    """FIRE's network of all heads, checked."""
    if not fire:
        return None
    parameters = {name: fire[name] for name in NAMES}
    return as_fire(parameters, fire["signed"], fire["eps"])


def stand_in(name: str, array: Any) -> Array:
    """An array of the shape and dtype of another, of a single number: 0."""
    refuse_unknown(name, array)
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def _opened(arrays: dict[str, Any]) -> dict[str, Any]:
    """Arrays in memory in the place of those that are not."""
    return {
        name: stand_in(name, x) if isinstance(x, da.Array | Form) else x
        for name, x in arrays.items()
    }


def _open_edges(edges: Edges | None) -> Edges | None:
    """Edges in memory, of the same shapes and without a fault."""
    if edges is None:
        return None
    fields = _opened(edges._asdict())
    if isinstance(edges.indptr, da.Array) and edges.indptr.dtype.kind in "iu":
        starts = np.zeros(edges.indptr.shape, np.int64)
        starts[..., -1:] = np.size(fields["indices"])
        fields["indptr"] = starts
    return Edges(**fields)


def lazy_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Those that are dask arrays."""
    return {name: x for name, x in arguments.items() if isinstance(x, da.Array)}


def without_lazy(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same, None in the place of dask arrays."""
    return arguments | dict.fromkeys(lazy_of(arguments))


def arrays_of(call: Call) -> dict[str, Any]:
    """The array arguments that were given, by name; several labels one by one."""
    given: dict[str, Any] = {}
    for name in OPERANDS:
        value = getattr(call, name)
        if name == "labels" and isinstance(value, tuple):
            given |= dict(zip(LABELS, value, strict=False))
        elif value is not None or OPERANDS[name].is_required:
            given[name] = value
    return given


def with_arrays(call: Call, arrays: dict[str, Any]) -> Call:
    """The call with others in their place."""
    several = tuple(value for name, value in arrays.items() if name in LABELS)
    call = call._replace(**{k: v for k, v in arrays.items() if k not in LABELS})
    if isinstance(call.labels, tuple) and len(call.labels) == len(several):
        return call._replace(labels=several)
    return call


def read(given: dict[str, Any]) -> dict[str, Any]:
    """Arrays as such, whether lazy or in memory."""
    return {
        name: x if isinstance(x, da.Array) else ROWS[name].read(x)
        for name, x in given.items()
    }
