"""Attention of jagged tensors: one call on their items, packed in one sequence.

A jagged tensor (B, H, j, D) has items of several lengths. Its values are one tensor
(H, L, D), item after item, and its offsets (B + 1,) say where each begins: they are
`cu_seqlens`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

import torch
from torch import Tensor

from relpos._checks import kind_of
from relpos.torch._functions import AXES
from relpos.torch._tracing import PLAIN, expected_instead

Function = TypeVar("Function", bound=Callable[..., Any])

#: Operands with something for each token, and how many axes the values of these have.
_OF_TOKENS = {"query": 3, "key": 3, "value": 3, "position_query": 3}
_OF_TOKENS |= {"log_decay": 2, "sinks": 2}
#: Arguments that say again where items lie, and those of pairs of one length.
_REFUSED = {"attn_mask", "labels", "key_ranges", "key_lengths", "query_offset"}
_REFUSED |= {"cu_seqlens", "key_blocks", "score_mod", "block_mask"}
#: The axis of tokens of a jagged tensor.
_TOKENS = 2
_PADDED = "a padded one (pass tensor.to_padded_tensor(0.0))"


def takes_jagged(function: Function) -> Function:
    """Let a function of query, key and value on tensors take jagged ones too."""

    @wraps(function)
    def call(query: Any, key: Any, value: Any, *args: Any, **keywords: Any) -> Any:
        if not any(map(_is_jagged, (query, key, value))):
            return function(query, key, value, *args, **keywords)
        names = [*signature(function).parameters][: 3 + len(args)]
        given = dict(zip(names, (query, key, value, *args), strict=True))
        if given.keys() & keywords.keys():  # Python refuses an argument given twice
            return function(query, key, value, *args, **keywords)
        return _packed(function, given | keywords)

    return call  # type: ignore[return-value]


def _is_jagged(value: object) -> bool:
    """Return True for a nested tensor of the layout `torch.jagged`."""
    # They are of a subclass. Some others refuse to be asked for anything.
    if not isinstance(value, Tensor) or type(value) in PLAIN:
        return False
    if expected_instead(type(value)) is not None:
        return False
    return value.is_nested and value.layout is torch.jagged


def _packed(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Return the results of a call on jagged tensors, which are jagged as well."""
    nested = {name: x for name, x in arguments.items() if _is_jagged(x)}
    first = next(iter(nested))
    for name in ("query", "key", "value"):
        if name not in nested:
            raise TypeError(
                f"{first}: got a nested tensor; expected a jagged tensor as {name}, "
                f"too, which is {kind_of(arguments[name])}, or {_PADDED}"
            )
    offsets = _checked_offsets(nested)
    packed = dict(arguments)
    for name, value in arguments.items():
        if name in nested:
            packed[name] = value.values()
        else:
            _check_plain(name, value)
    result = function(**packed, cu_seqlens=offsets)
    if isinstance(result, Tensor):
        return _jagged(result, offsets)
    lse = None if result.lse is None else _jagged(result.lse, offsets)
    return result._replace(out=_jagged(result.out, offsets), lse=lse)


def _jagged(values: Tensor, offsets: Tensor) -> Tensor:
    nested: Tensor = torch.nested.nested_tensor_from_jagged(
        values, offsets, jagged_dim=_TOKENS
    )
    return nested


def _checked_offsets(nested: Mapping[str, Any]) -> Tensor:
    """Return the offsets that all jagged tensors of a call have."""
    offsets: Tensor = nested["query"].offsets()
    for name, x in nested.items():
        axes = 1 + _OF_TOKENS.get(name, 0)
        # the length of the jagged axis is no number
        is_of_tokens = x.dim() == axes and not isinstance(x.shape[_TOKENS], int)
        if not is_of_tokens:
            shapes = {4: "(B, H, j, D)", 3: "(B, H, j)"}
            expected = f"one of shape {shapes[axes]}, or " if axes in shapes else ""
            raise TypeError(
                f"{name}: got a nested tensor; expected {expected}{_PADDED}"
            )
        if x.lengths() is not None:
            raise TypeError(
                f"{name}: got a nested tensor with gaps between its items; expected "
                "one without (pass tensor.contiguous())"
            )
        own = x.offsets()
        if own is not offsets and not torch.equal(own, offsets):
            raise ValueError(
                f"{name}: got items of lengths {own.diff().tolist()}; expected those "
                f"of the query, {offsets.diff().tolist()}"
            )
    return offsets


def _check_plain(name: str, value: Any) -> None:
    """Refuse what has another meaning for items that are packed in a sequence."""
    if name == "return_weights" and value is True:
        raise ValueError(
            "return_weights: got True together with nested tensors; expected False, "
            "as weights of items of several lengths are no tensor"
        )
    if name in _REFUSED and value is not None:
        raise ValueError(
            f"{name}: given together with nested tensors, each item of which is alone "
            "in its call; expected None"
        )
    if not isinstance(value, Tensor):
        return
    # sinks of each head alone are no operand of tokens
    if name in _OF_TOKENS and not (name == "sinks" and value.dim() == 1):
        raise TypeError(
            f"{name}: got a {type(value).__name__} together with nested tensors; "
            "expected a jagged tensor"
        )
    if value.dim() > AXES.get(name, value.dim()):
        raise ValueError(
            f"{name}: got shape {tuple(value.shape)} together with nested tensors; "
            f"expected at most {AXES[name]} axes, as items have no axis of their own"
        )
