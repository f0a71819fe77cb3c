"""The arguments of one call of `attention`, which its parts hand on whole."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Call(NamedTuple):
    """The arguments as given: the arrays first, in the order of `OPERANDS`."""

    query: object
    key: object
    value: object
    attn_mask: object = None
    rel_key: object = None
    rel_query: object = None
    rel_value: object = None
    rel_bias: object = None
    pos_bias_u: object = None
    pos_bias_v: object = None
    position_query: object = None
    sinks: object = None
    log_decay: object = None
    labels: object = None
    key_ranges: object = None
    query_offset: object = None
    key_lengths: object = None
    dropout_p: object = 0.0
    is_causal: object = False
    scale: object = None
    softcap: object = None
    enable_gqa: object = False
    min_relative_position: object = None
    buckets: object = None
    beyond: object = "clip"
    window: object = None
    return_lse: object = False
    return_weights: object = False
    return_context: object = False
    num_threads: object = None
    rng: object = None
    out: object = None


def as_call(
    query: object, key: object, value: object, keywords: Mapping[str, Any]
) -> Call:
    """Take the arguments as given, those after value by name."""
    for name in keywords:
        if name not in Call._fields:
            raise TypeError(
                f"{name}: got an unexpected keyword argument {name!r}; expected "
                "keywords of attention"
            )
    return Call(query, key, value, **keywords)
