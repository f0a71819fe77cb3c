"""Documents packed in one sequence: their ends, checked, and what each query sees."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from relpos._checks import Array, as_array, as_integers, check_shape, wrong_dtype
from relpos._text import amount

#: Arguments that say themselves where keys begin and end, or where queries are.
_PLACING = ("key_ranges", "key_lengths", "query_offset")
_SHAPE = "(n + 1,), where each of n documents begins, and the length of all at the end"


def as_cu_seqlens(value: object) -> Array:
    """Return the ends of documents as int64, checked but for the length of all."""
    array = as_array("cu_seqlens", value)
    # an empty list is an array of float64, which says nothing of the numbers in it
    fits = array.ndim == 1 and array.size > 0
    if array.size == 0:
        check_shape("cu_seqlens", array, fits, _SHAPE)
    if array.dtype.kind == "u" or (array.dtype.kind == "i" and array.itemsize < 4):
        raise wrong_dtype("cu_seqlens", array, ("int32", "int64"))
    ends = as_integers("cu_seqlens", value)
    check_shape("cu_seqlens", ends, fits, _SHAPE)
    if ends[0] != 0:
        raise ValueError(f"cu_seqlens: cu_seqlens[0] is {ends[0]}; expected 0")
    falls = np.flatnonzero(ends[1:] < ends[:-1])
    if len(falls):
        at = int(falls[0])
        raise ValueError(
            f"cu_seqlens: {ends[at + 1]} comes after {ends[at]} at "
            f"cu_seqlens[{at + 1}]; expected numbers that do not fall"
        )
    return ends


def longest_of(cu_seqlens: object) -> int:
    """Return the length of the longest document."""
    return int(np.diff(as_cu_seqlens(cu_seqlens)).max(initial=0))


def documents_of(call: Mapping[str, Any], lq: int, lk: int) -> Array:
    """Return the begin and the end of the document of each token, (L, 2)."""
    for name in _PLACING:
        if call.get(name) is not None:
            raise ValueError(
                f"cu_seqlens: given together with {name}; a query sees the keys of its "
                "own document, expected one of the two"
            )
    if call.get("key_blocks") is not None:
        raise ValueError(
            "key_blocks: given together with cu_seqlens; blocks are counted from the "
            "first query and the first key of the call, not of each document; expected "
            "one of the two, or key_ranges in the place of cu_seqlens"
        )
    ends = as_cu_seqlens(call["cu_seqlens"])
    if lq != lk:
        raise ValueError(
            f"cu_seqlens: given with {amount(lq, 'query')} and {amount(lk, 'key')}; "
            "expected as many queries as keys, those of the same documents"
        )
    if ends[-1] != lq:
        raise ValueError(
            f"cu_seqlens: cu_seqlens[{len(ends) - 1}] is {ends[-1]}; expected {lq}, "
            "the length of the query"
        )
    documents = np.stack([ends[:-1], ends[1:]], axis=-1)
    return np.repeat(documents, np.diff(ends), axis=0)
