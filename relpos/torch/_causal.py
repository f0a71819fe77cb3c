"""PyTorch's causal masks as arguments of attention.

A `CausalBias` of ``torch.nn.attention.bias`` is a tensor whose memory was never
written. It says which keys each query sees, by the numbers of both: key j is visible to
query i where ``j <= i + shift``. The shift of `causal_upper_left` is 0, that of
`causal_lower_right` is Lk - Lq.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from relpos._attention.operands import OPERANDS
from relpos._checks import as_flag, as_integers, at_least_ndim
from relpos._text import amount
from relpos.torch._functions import check_tensors
from relpos.torch._tracing import PLAIN, is_batched, is_causal_bias, unwrapped

#: Types of an offset of all items.
INTEGERS = (int, np.integer, torch.SymInt)
_UNSIGNED = torch.uint16, torch.uint32, torch.uint64
_MAX_INT64 = 2**63 - 1


class Causal(NamedTuple):
    """A CausalBias, by the sizes that it was made with and its shift."""

    # int, or SymInt in a program that is traced
    queries: Any
    keys: Any
    shift: Any


class CausalTerms(TypedDict, total=False):
    """Keywords of `attention` by which a CausalBias is expressed."""

    is_causal: bool
    query_offset: Any  # int, SymInt or tensor
    key_ranges: Any  # tensor or array of integers


def as_causal_bias(mask: object) -> Causal | None:
    """Return what a CausalBias says; None of any other mask.

    One over which `torch.vmap` maps is another mask, which is refused.
    """
    if not isinstance(mask, Tensor):
        return None
    bias: Any = unwrapped(mask)
    if type(bias) in PLAIN or not is_causal_bias(type(bias)):
        return None
    if bias is not mask and is_batched(mask):
        return None
    # PyTorch sets the variant in __init__ alone, which slices and copies do not call
    variant = getattr(bias, "variant", None)
    name = None if variant is None else variant.name
    if name not in ("UPPER_LEFT", "LOWER_RIGHT"):
        raise TypeError(
            "attn_mask: got a CausalBias without its variant, as a part or a copy of "
            "one; expected what causal_upper_left or causal_lower_right returns"
        )
    queries, keys = bias.seq_len_q, bias.seq_len_kv
    return Causal(queries, keys, 0 if name == "UPPER_LEFT" else keys - queries)


def check_size(causal: Causal, queries: Any, keys: Any) -> None:
    """Raise for a mask of other lengths: PyTorch takes it for one of any length."""
    if (causal.queries, causal.keys) != (queries, keys):
        raise ValueError(
            f"attn_mask: got a CausalBias of {amount(causal.queries, 'query')} and "
            f"{amount(causal.keys, 'key')}; expected one of {queries} and {keys}"
        )


def visible_pairs(
    mask: object, queries: Any, keys: Any, device: torch.device
) -> Tensor | None:
    """Return a CausalBias as flags, True = may attend; None of another mask."""
    causal = as_causal_bias(mask)
    if causal is None:
        return None
    check_size(causal, queries, keys)
    pairs = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return pairs.tril(causal.shift)


def causal_terms(
    causal: Causal, device: torch.device, offset: Any = None, ranges: Any = None
) -> CausalTerms:
    """Return keywords of `attention` that hide what the mask hides.

    `is_causal` counts positions, and the mask counts queries and keys. They agree where
    `query_offset` is the shift, which it is if the call does not give it. An offset
    that is given is that of the tables, too, and stays: then `key_ranges` has the mask.
    """
    if offset is None:
        return {"is_causal": True, "query_offset": causal.shift, "key_ranges": ranges}
    if isinstance(offset, INTEGERS) and offset == causal.shift:
        return {"is_causal": True, "query_offset": offset, "key_ranges": ranges}
    numbers = torch.arange(causal.queries, device=device)
    # Query i sees keys 0 to i + shift, so that its range ends one behind that.
    ends = (numbers + (causal.shift + 1)).clamp(0, causal.keys)
    if ranges is None:
        ranges = torch.stack([torch.zeros_like(ends), ends], -1)
    else:
        ranges = _ending(ranges, ends)
    # without `is_causal`, which would hide by position what the mask shows by number
    return {"query_offset": offset, "key_ranges": ranges}


def _ending(ranges: Any, ends: Tensor) -> Any:
    """Return ranges (..., Lq or 1, 2) without the keys from `ends` on.

    What are no such ranges stay as they are, for attention to refuse.
    """
    if type(ranges) is np.ndarray:  # the one kind of array that attention takes
        ranges = torch.from_numpy(as_integers("key_ranges", ranges))
    is_integral = isinstance(ranges, Tensor) and not (
        ranges.is_floating_point() or ranges.is_complex() or ranges.dtype is torch.bool
    )
    if not is_integral or ranges.shape[-2:] not in ((ends.shape[0], 2), (1, 2)):
        return ranges
    if ranges.dtype in _UNSIGNED:  # torch promotes them to no other dtype
        numbers = ranges.long()
        # what is negative now was a number of uint64 beyond int64
        ranges = numbers.masked_fill(numbers < 0, _MAX_INT64)
    # The start is moved too: a range that begins behind its new end has no keys left.
    return torch.minimum(ranges, ends[:, None])


def without_causal_bias(
    query: Any, key: Any, keywords: dict[str, Any]
) -> dict[str, Any]:
    """Return keywords of `attention` that hide what a CausalBias among them hides."""
    causal = as_causal_bias(keywords.get("attn_mask"))
    if causal is None:
        return keywords
    if as_flag("is_causal", keywords.get("is_causal", False)):
        raise ValueError(
            "is_causal: got True next to a CausalBias as attn_mask, which says itself "
            "what is hidden; expected one of the two"
        )
    tokens = {"query": query, "key": key}
    # These are the checks of `attention`, which come too late for the sizes here.
    check_tensors(tokens)
    for name, tensor in tokens.items():
        at_least_ndim(name, tensor, 3, OPERANDS[name].shown)
    check_size(causal, query.shape[-2], key.shape[-2])
    offset, ranges = keywords.get("query_offset"), keywords.get("key_ranges")
    terms = causal_terms(causal, query.device, offset, ranges)
    return {**keywords, "attn_mask": None, **terms}
