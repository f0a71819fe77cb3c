"""Begin: the attempt that is relpos's own formula, from the arguments of a call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from relpos._attention.attention import DEFAULTS, attention
from relpos._attention.documents import documents_of
from relpos._attention.fire import fire_bias
from relpos._attention.fire_network import NAMES, Fire, fire_of_call
from relpos._attention.operands import Call
from relpos._attention.schemes import relative_global_settings, transformer_xl_settings
from relpos._attention.scores import scores
from relpos._checks import Array, as_floating, as_integers
from relpos._encodings.rotary import apply_rotary
from relpos._hints import meant
from relpos._opinion.arrays import as_numpy
from relpos._opinion.attempt import Attempt, Rotary
from relpos._schemes import scheme_called
from relpos._suggestions import scheme_of
from relpos._tensors import is_tensor
from relpos._text import amount

#: Functions with arguments that `attention` does not have, or does not need.
_WANTED = {
    known.call: known.operands
    for known in map(scheme_called, ("fire", "transformer_xl", "relative_global"))
}
_ROTARY = [
    name
    for name in inspect.signature(apply_rotary).parameters
    if name not in ("x", "inverse", "out")
]
#: Further arguments of these functions.
_FURTHER = {"fire_attention": ("signed", "eps"), "apply_rotary": _ROTARY}
#: Arguments of `attention` that do not change its scores, or change them at random.
_OTHERS = ("dropout_p", "return_lse", "return_weights", "return_context", "out", "rng")


def begin(
    scheme: str | None,
    query: object,
    key: object,
    value: object | None,
    view: str,
    keywords: Mapping[str, Any],
) -> Attempt:
    """Return the attempt that is relpos's own formula; raise what relpos raises."""
    arguments = {}
    for name, argument in keywords.items():
        # An argument of `_OTHERS` is left out at its default; others are checked later.
        is_array = isinstance(argument, np.ndarray)
        if name not in _OTHERS or is_array or argument != DEFAULTS[name]:
            arguments[name] = _plain(name, argument)
    call: Call = {
        "query": as_floating("query", _plain("query", query)),
        "key": as_floating("key", _plain("key", key)),
    }
    call |= arguments
    function = function_of(scheme)
    _check_names(function, call)
    # Both take their own arguments out, so that those of `attention` remain.
    rotary = _take_rotary(call) if function == "apply_rotary" else None
    fire = _add_fire(call) if function == "fire_attention" else None
    if function == "transformer_xl_attention":
        table = as_floating("rel_key", call["rel_key"])
        call |= transformer_xl_settings(call["query"], call["key"], table, call)
    elif function == "relative_global_attention":
        call |= relative_global_settings(as_floating("rel_key", call["rel_key"]), call)
    if value is None:  # either refuses what relpos refuses
        scores(**call)
    else:
        call["value"] = as_floating("value", _plain("value", value))
        attention(**call)
    if call.get("cu_seqlens") is not None:
        # All changes know ranges of keys, and need not know documents.
        call["key_ranges"] = documents_of(call, *_lengths_of(call))
        del call["cu_seqlens"]
    return replace(_exact(call, view), rotary=rotary, fire=fire)


def _lengths_of(call: Mapping[str, Any]) -> tuple[int, int]:
    return call["query"].shape[-2], call["key"].shape[-2]


def _check_names(function: str, call: Mapping[str, Any]) -> None:
    """Refuse what a scheme does not take or misses, and list all that it wants."""
    wants = _WANTED.get(function, ())
    others = [n for n in DEFAULTS if n not in ("value", *_OTHERS)]
    takes = dict.fromkeys([*wants, *_FURTHER.get(function, ()), *others])
    listed = f" ({function} wants {', '.join(wants)})" if wants else ""
    for name in call:
        if name not in takes:
            hint = meant(name, [*takes], "diagnose")
            raise TypeError(
                f"{name}: got an unexpected keyword argument {name!r}; {hint}{listed}"
            )
    # FIRE needs all its parameters; of the others the first is always needed.
    needed = wants if function == "fire_attention" else wants[:1]
    for name in needed:
        if call.get(name) is None:
            raise TypeError(f"diagnose() needs an argument {name!r}{listed}")


def _plain(name: str, value: Any) -> Any:
    """Return tensors as arrays; convert a tuple of labels one by one."""
    if isinstance(value, tuple) and any(map(is_tensor, value)):
        return tuple(as_numpy(name, item) for item in value)
    is_list = isinstance(value, list) and name != "window"  # which may hold None
    known = is_tensor(value) or hasattr(value, "__array__") or is_list
    return as_numpy(name, value) if known else value


def function_of(scheme: object) -> str:
    """Return the name of a scheme's function, by any name of the scheme."""
    if scheme is None:
        return "attention"
    named = scheme.removeprefix("relpos.") if isinstance(scheme, str) else scheme
    known = scheme_of("scheme", named)
    if known.name == "rotary":
        return "apply_rotary"
    if known.name in ("graph_attention", "conv_encoding") or known.family == "absolute":
        raise ValueError(
            f"scheme: got {scheme!r}, which has no dense scores; expected a scheme of "
            "attention (of a graph: 'attention' with labels and attn_mask)"
        )
    return known.call


def _take_rotary(call: Call) -> Rotary:
    """Take the arguments of `apply_rotary` from those of a call."""
    options = {name: call.pop(name) for name in _ROTARY if name in call}
    lq, lk, offset = _placed(call)
    options = {name: value for name, value in options.items() if value is not None}
    names = options.keys() & {"positions", "angles"}
    if names:
        arrays = {name: as_numpy(name, options[name]) for name in names}
        _check_positions(arrays.get("positions"), call["key"].shape[:-1])
        # It refuses angles that do not fit, and positions next to angles.
        apply_rotary(call["key"], **options)
        (name,) = names
        del options[name]
        rows = arrays[name].astype(np.float64) + options.pop("offset", 0)
        return _placed_among_keys(name, rows, call, offset)._replace(options=options)
    # The offset of an item gets axes for heads and positions.
    start, offset = options.pop("offset", 0), np.asarray(offset)[..., None, None]
    return Rotary(options, start + np.arange(lq) + offset, start + np.arange(lk))


def _check_positions(positions: Array | None, expected: tuple[int, ...]) -> None:
    """Refuse positions that are not those of the keys."""
    if positions is None:
        return
    with suppress(ValueError):
        if np.broadcast_shapes(positions.shape, expected) == expected:
            return
    raise ValueError(
        f"positions: got shape {positions.shape}; expected one that broadcasts to "
        f"{expected}, a position for each key, with the queries among them (those of "
        "each batch item: positions[:, None])"
    )


def _placed_among_keys(
    name: str, rows: Array, call: Mapping[str, Any], offset: Any
) -> Rotary:
    """Return the positions or angles of queries and keys, from those of the keys."""
    (heads, lq), lk = call["query"].shape[-3:-1], call["key"].shape[-2]
    of_angles = name == "angles"
    # Positions get a column, so that positions and angles are (..., Lk, columns) until
    # the end.
    rows = np.atleast_2d(rows if of_angles else rows[..., None])
    rows = np.broadcast_to(rows, (*rows.shape[:-2], lk, rows.shape[-1]))
    first = as_integers("query_offset", offset)
    inside = (first >= 0).all() and (first <= lk - lq).all()
    if not inside:
        raise ValueError(
            f"query_offset: got {offset} for {amount(lq, 'query')} and "
            f"{amount(lk, 'key')}, together with {name}; expected 0 to {lk - lq}, as "
            f"{name} are those of the keys, with the queries among them"
        )
    if rows.shape[-3:-2] not in ((), (1,)):  # of each key head
        rows = np.repeat(rows, heads // rows.shape[-3], axis=-3)
    if first.ndim:
        # Each item has queries at other keys, which one slice of all items cannot take.
        at = (first[..., None] + np.arange(lq))[..., None, :, None]
        lead = np.broadcast_shapes(at.shape[:-2], rows.shape[:-2])
        every = np.broadcast_to(rows, (*lead, *rows.shape[-2:]))
        of_queries = np.take_along_axis(
            every, np.broadcast_to(at, (*lead, lq, 1)), axis=-2
        )
    else:
        of_queries = rows[..., int(first) :, :][..., :lq, :]
    of_queries, rows = (
        (of_queries, rows) if of_angles else (of_queries[..., 0], rows[..., 0])
    )
    return Rotary({}, of_queries, rows, of_angles=of_angles)


def _placed(call: Mapping[str, Any]) -> tuple[int, int, Any]:
    """Return Lq, Lk and the offset of a scheme for which it matters."""
    if call.get("cu_seqlens") is not None:
        raise ValueError(
            "cu_seqlens: given to a scheme whose positions begin again with each "
            "document; expected None, and one document"
        )
    lq, lk = _lengths_of(call)
    offset = call.get("query_offset")
    if offset is None and lq != lk:
        raise ValueError(
            f"query_offset: None with {amount(lq, 'query')} and {amount(lk, 'key')} is "
            f"ambiguous; pass 0 (query 0 at key 0) or Lk - Lq = {lk - lq} (last query "
            "at the last key)"
        )
    return lq, lk, 0 if offset is None else offset


def _add_fire(call: Call) -> tuple[Fire, Array]:
    """Replace FIRE's parameters by a floating mask, and return them and the bias."""
    arguments = {
        name: call.pop(name) for name in (*NAMES, "signed", "eps") if name in call
    }
    lq, lk, offset = _placed(call)
    bias_at = partial(fire_bias, **arguments, query_length=lq, key_length=lk)
    # `fire_bias` takes one offset: the biases of several items are stacked.
    offsets = as_integers("query_offset", offset)
    biases = [bias_at(query_offset=int(n)) for n in offsets.flat]
    bias = np.reshape(biases, (*offsets.shape, *np.shape(biases)[1:]))
    # `scores` has no operand for FIRE, whose bias becomes numbers of the mask.
    mask = 0.0 if call.get("attn_mask") is None else call["attn_mask"]
    is_bool = np.asarray(mask).dtype == bool
    call["attn_mask"] = np.where(mask, bias, -np.inf) if is_bool else bias + mask
    known = inspect.signature(fire_bias).parameters
    options = {name: known[name].default for name in ("signed", "eps")}
    return fire_of_call(options | arguments), np.asarray(bias, np.float64)


def _exact(call: Call, view: str) -> Attempt:
    """Use float64, the scale as a number, and a key head for each query head."""
    call = {name: _float64(value) for name, value in call.items() if value is not None}
    if "scale" not in call:
        call["scale"] = 1.0 / np.sqrt(call["query"].shape[-1])
    if call.get("beyond") == "raise":
        call["beyond"] = "clip"  # no visible pair lies beyond
    # From here on all changes may assume as many key heads as query heads.
    group = 1
    if call.pop("enable_gqa", False):
        group = call["query"].shape[-3] // call["key"].shape[-3]
        for name in call.keys() & {"key", "value"}:
            call[name] = np.repeat(call[name], group, axis=-3)
    call.pop("num_threads", None)
    return Attempt(call, view, group=group)


def _float64(value: Any) -> Any:
    """Return floating arrays in float64; hand all other values on."""
    is_floating = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.astype(np.float64) if is_floating else value
