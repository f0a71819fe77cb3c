"""The call that relpos itself would make, as the attempt that all others vary."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from relpos._attention.attention import attention
from relpos._attention.fire import fire_bias
from relpos._attention.logits import scores
from relpos._attention.placement import transformer_xl_origin
from relpos._attention.schemes import KEYWORDS, relative_global_attention
from relpos._catalogue.schemes import scheme_called
from relpos._checks import Array, as_floating, kind_of
from relpos._encodings.rotary import apply_rotary
from relpos._opinion.arrays import as_numpy, is_tensor
from relpos._opinion.attempt import Attempt, Rotary

__all__ = ["begin"]

_FIRE = ("w1", "b1", "w2", "b2", "c", "threshold")
_ROTARY = [*inspect.signature(apply_rotary).parameters][1:-1]  # without x and out
#: What may come as arrays of any library.
_OTHERS = ("dropout_p", "return_lse", "return_weights", "return_context", "out", "rng")


def begin(
    scheme: str | None,
    query: object,
    key: object,
    value: object | None,
    view: str,
    keywords: Mapping[str, Any],
) -> Attempt:
    """The attempt that is relpos's own formula; raises what relpos raises."""
    given = {name: _plain(name, x) for name, x in keywords.items()}
    for name in _OTHERS:
        if given.pop(name, None):
            raise TypeError(f"diagnose() got an unexpected keyword argument {name!r}")
    x: dict[str, Any] = {
        "query": as_floating("query", _plain("query", query)),
        "key": as_floating("key", _plain("key", key)),
        **given,
    }
    function = _function(scheme)
    rotary = _take_rotary(x) if function == "apply_rotary" else None
    if function == "fire_attention":
        _add_fire(x)
    if function == "relative_global_attention":
        _place_music(x)
    if function == "transformer_xl_attention":
        _place_transformer_xl(x)
    if value is not None:
        x["value"] = as_floating("value", _plain("value", value))
    if value is None:  # either refuses what relpos refuses
        scores(**x)
    else:
        attention(**x)
    return _exact(x, view, rotary)


def _plain(name: str, value: Any) -> Any:
    """Tensors as arrays; a tuple of labels one by one."""
    if isinstance(value, tuple) and any(is_tensor(item) for item in value):
        return tuple(as_numpy(name, item) for item in value)
    known = is_tensor(value) or hasattr(value, "__array__") or isinstance(value, list)
    return as_numpy(name, value) if known else value


def _function(scheme: object) -> str:
    """The function of a scheme, by any of its names."""
    if scheme is None:
        return "attention"
    if not isinstance(scheme, str):
        raise TypeError(f"scheme: got {kind_of(scheme)}; expected a scheme's name")
    name = scheme.removeprefix("relpos.")
    try:
        known = scheme_called(name)
    except KeyError:
        raise ValueError(
            f"scheme: got {scheme!r}; expected a name such as 'attention', "
            "'shaw_attention', 'transformer_xl_attention', 'fire_attention' or 'rotary'"
        ) from None
    if known.name == "rotary":
        return "apply_rotary"
    if known.name in ("graph_attention", "conv_encoding") or known.family == "absolute":
        raise ValueError(
            f"scheme: got {scheme!r}, which has no dense scores; expected a scheme of "
            "attention (of a graph: 'attention' with labels and attn_mask)"
        )
    return known.call


def _take_rotary(x: dict[str, Any]) -> Rotary:
    """The arguments of `apply_rotary` among those of a call."""
    options = {name: x.pop(name) for name in _ROTARY if name in x}
    start = options.pop("offset", 0)
    for name in ("positions", "angles", "inverse"):
        if name in options:
            raise TypeError(f"diagnose() got an unexpected keyword argument {name!r}")
    lq, lk = _lengths(x)
    offset = 0 if x.get("query_offset") is None else x["query_offset"]
    offset = np.asarray(offset)[..., None, None]
    return Rotary(options, start + np.arange(lq) + offset, start + np.arange(lk))


def _lengths(x: Mapping[str, Any]) -> tuple[int, int]:
    """Lq and Lk of a scheme for which it matters where query 0 is."""
    lq, lk = x["query"].shape[-2], x["key"].shape[-2]
    if x.get("query_offset") is None and lq != lk:
        raise ValueError(
            f"query_offset: None with {lq} queries and {lk} keys is ambiguous; pass 0 "
            f"(query 0 at key 0) or Lk - Lq = {lk - lq} (last query at the last key)"
        )
    return lq, lk


def _add_fire(x: dict[str, Any]) -> None:
    """FIRE's bias as a floating mask, with the mask that is given."""
    missing = [name for name in _FIRE if name not in x]
    if missing:
        raise TypeError(f"diagnose() misses the argument {missing[0]!r} of FIRE")
    parameters = {name: x.pop(name) for name in (*_FIRE, "signed", "eps") if name in x}
    parameters["query_length"], parameters["key_length"] = _lengths(x)
    parameters["query_offset"] = (
        0 if x.get("query_offset") is None else x["query_offset"]
    )
    bias = fire_bias(**parameters)
    mask = x.get("attn_mask")
    if mask is None:
        x["attn_mask"] = bias
    elif np.asarray(mask).dtype == bool:
        x["attn_mask"] = np.where(mask, bias, -np.inf)
    else:
        x["attn_mask"] = bias + mask


def _place_music(x: dict[str, Any]) -> None:
    """What `relative_global_attention` sets."""
    shown = inspect.signature(relative_global_attention).parameters
    x.setdefault("is_causal", shown["is_causal"].default)
    x.setdefault("beyond", shown["beyond"].default)
    if x["is_causal"] and _origin_open(x):
        x["min_relative_position"] = 1 - _count(x)


def _place_transformer_xl(x: dict[str, Any]) -> None:
    """What `transformer_xl_attention` sets."""
    lq, lk = x["query"].shape[-2], x["key"].shape[-2]
    x.setdefault("beyond", "raise")
    if lq != lk and x.get("query_offset") is None:
        x["query_offset"] = lk - lq
    if _origin_open(x):
        first = transformer_xl_origin("rel_key", _count(x), lq, lk)
        x["min_relative_position"] = first


def _origin_open(x: Mapping[str, Any]) -> bool:
    """Whether the scheme places its table."""
    if x.get("rel_key") is None:
        raise TypeError("diagnose() misses the argument 'rel_key' of this scheme")
    return x.get("labels") is None and x.get("min_relative_position") is None


def _count(x: Mapping[str, Any]) -> int:
    """Relative positions that the table serves."""
    buckets = x.get("buckets")
    return int(np.asarray(x["rel_key"]).shape[-2] if buckets is None else len(buckets))


def _exact(x: dict[str, Any], view: str, rotary: Rotary | None) -> Attempt:
    """In float64, with the scale as a number and a key head for each query head."""
    x = {name: array for name, array in x.items() if array is not None}
    for name in x.keys() & {*KEYWORDS, "value"}:
        x[name] = _float64(x[name])
    if "scale" not in x:
        x["scale"] = 1.0 / np.sqrt(x["query"].shape[-1])
    if x.get("beyond") == "raise":
        x["beyond"] = "clip"  # nothing that is seen lies beyond
    group = 1
    if x.pop("enable_gqa", False):
        group = x["query"].shape[-3] // x["key"].shape[-3]
        for name in x.keys() & {"key", "value"}:
            x[name] = np.repeat(x[name], group, axis=-3)
    x.pop("num_threads", None)
    return Attempt(x, view, group=group, rotary=rotary)


def _float64(value: Any) -> Any:
    """Floating arrays, and lists, in float64; all else as it is."""
    if isinstance(value, list):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        array: Array = value.astype(np.float64)
        return array
    return value
