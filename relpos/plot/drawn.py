"""Examples of schemes, with tables drawn at random, as `fingerprint` takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import relpos

__all__ = ["EXAMPLES"]

_WIDTH = 16  # columns of tables


def _draw(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape)


def _kerple(length: int) -> dict[str, Any]:
    return {"rel_bias": relpos.kerple_bias([1.0], [1.0], length)}


def _fire(length: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    w1, b1, w2 = 4 * rng.standard_normal(32), rng.standard_normal(32), _draw(1, 32)
    bias = relpos.fire_bias(w1, b1, w2, np.zeros(1), 1.0, 1.0, length)
    return {"attn_mask": bias - bias.mean(), "is_causal": True}


def _music(length: int) -> dict[str, Any]:
    settings = {"min_relative_position": 1 - length, "is_causal": True}
    return {"rel_key": _draw(length, _WIDTH), **settings}


def _transformer_xl(length: int) -> dict[str, Any]:
    encoding = relpos.sinusoidal(np.arange(1.0 - length, length), _WIDTH)
    return {"rel_key": encoding, "pos_bias_v": _draw(_WIDTH)}


def _deberta(length: int) -> dict[str, Any]:
    places = np.arange(1 - length, length)
    size = 16
    signed = relpos.deberta_bucket(places, bucket_size=size, max_position=4 * size)
    key, query = _draw(2, 2 * size, _WIDTH)
    settings = {"buckets": signed + size, "min_relative_position": 1 - length}
    return {"rel_key": key, "rel_query": query, **settings}


class _Example(NamedTuple):
    """What stands above it, and what makes it for a length."""

    title: str
    make: Callable[[int], Any]


EXAMPLES = {
    "alibi": _Example("ALiBi", lambda n: {"rel_bias": relpos.alibi_bias([0.25], n)}),
    "t5": _Example("T5", lambda n: {"rel_bias": relpos.t5_bias(_draw(32, 1), n)}),
    "kerple": _Example(
        "KERPLE, logarithmic",
        _kerple,
    ),
    "fire": _Example("FIRE, causal", _fire),
    "shaw": _Example("Shaw, k = 8", lambda n: {"rel_key": _draw(17, _WIDTH)}),
    "music": _Example("Music Transformer", _music),
    "transformer_xl": _Example("Transformer-XL", _transformer_xl),
    "deberta": _Example("DeBERTa", _deberta),
    "rotary": _Example("RoPE", lambda n: relpos.apply_rotary),
    "sinusoidal": _Example("sinusoids", lambda n: relpos.sinusoidal(n, 64)),
}
