"""Calls of `attention` that mix its terms, small enough to be cut.

tests/attention/test_every_operand.py cuts calls with each of its operands alone.
"""

from __future__ import annotations

import numpy as np

B, H, LQ, LK, D = 3, 4, 11, 13, 8


def tables(draw, rng):
    return {
        "rel_key": draw(H, 5, D),
        "rel_query": draw(3, D),
        "rel_value": draw(B, 1, 7, 5),
        "rel_bias": draw(H, 9),
        "is_causal": True,
    }


def visible(draw, rng):
    return {
        "key_ranges": np.sort(rng.integers(0, LK + 1, (B, LQ, 2)), axis=-1),
        "key_lengths": [0, 4, LK],
        "query_offset": [2, 0, -3],
        "window": (4, 2),
        "rel_bias": draw(5),
    }


def masked(draw, rng):
    return {
        "attn_mask": np.where(rng.random((H, LQ, LK)) < 0.3, -np.inf, draw(1)),
        "sinks": draw(B, H, LQ),
        "softcap": 2.0,
    }


def labels(draw, rng):
    pairs, keys = rng.integers(-1, 4, (B, LQ, LK)), rng.integers(0, 4, (1, LK))
    return {
        "labels": (pairs, keys),
        "rel_key": draw(4, D),
        "attn_mask": rng.random((B, 1, 1, LK)) < 0.8,
    }


def position_query(draw, rng):
    return {
        "position_query": draw(H, LQ, 3),
        "rel_key": draw(6, 3),
        "pos_bias_u": draw(H, D),
        "pos_bias_v": draw(3),
        "min_relative_position": -5,
        "beyond": "zero",
    }


def two_key_heads(draw):
    return {"key": draw(2, LK, D), "value": draw(B, 2, LK, 5), "enable_gqa": True}


def grouped(draw, rng):
    return two_key_heads(draw) | {"buckets": [0, 1, 1, 2, 0], "rel_key": draw(3, D)}


def decay_and_more(draw, rng):
    return {
        "log_decay": draw(H, LK) / 4,
        "rel_key": draw(H, 5, D),
        "rel_value": draw(9, 5),
        "sinks": draw(H),
        "query_offset": [-4, 40, 5],  # before the first key, after the last
        "is_causal": True,
        "key_lengths": [LK, 8, 6],
    }


def decay_in_a_window(draw, rng):
    numbers = -np.abs(draw(B, 1, 1)) * np.ones((H, LK))
    given = two_key_heads(draw) | {"log_decay": numbers, "sinks": draw(H)}
    return given | {"softcap": 2.0, "window": (6, 0)}


def dropout_and_decay(draw, rng):
    numbers = -np.abs(draw(B, H, LK)) / 4
    return {"log_decay": numbers, "dropout_p": 0.4, "rng": 2024, "is_causal": True}


#: By name: the terms of a call other than query, key and value.
CASES = {
    terms.__name__: terms
    for terms in (
        tables,
        visible,
        masked,
        labels,
        position_query,
        grouped,
        decay_and_more,
        decay_in_a_window,
        dropout_and_decay,
    )
}


def case(name, rng, dtype=np.float64):
    """Arguments of `attention`."""
    draw = lambda *shape: rng.standard_normal(shape).astype(dtype)  # noqa: E731
    rows = {"query": draw(B, H, LQ, D), "key": draw(B, H, LK, D)}
    rows |= {"value": draw(B, H, LK, 5), "query_offset": LK - LQ}
    return rows | CASES[name](draw, rng)
