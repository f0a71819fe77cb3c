"""Small calls of every attention function, for tensors: arrays by name, by what it is.

`inputs` have gradients; `others` are integers, as arrays, and settings.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from problems import normal

H, LQ, LK, D, DV, DP = 2, 3, 4, 3, 2, 2


class Call(NamedTuple):
    function: str
    inputs: dict[str, np.ndarray]
    others: dict[str, Any]


def _call(function, seed, shapes, **others):
    rng = np.random.default_rng(seed)
    shapes = {
        "query": (2, H, LQ, D),
        "key": (H, LK, D),
        "value": (2, 1, H, LK, DV),
        **shapes,
    }
    inputs = {name: normal(rng, *shape) for name, shape in shapes.items()}
    return Call(function, inputs, others)


def _square(seed, shapes, function="attention", **others):
    same = {"query": (2, H, LQ, D), "key": (2, H, LQ, D), "value": (H, LQ, DV)}
    return _call(function, seed, {**same, **shapes}, **others)


def _fire(seed):
    network = {"w1": (4,), "b1": (4,), "w2": (H, 4), "b2": (H,)}
    call = _square(seed, network, "fire_attention", is_causal=True, signed=True)
    call.inputs.update(c=np.float64(0.75), threshold=np.float64(1.5))
    return call


def _masked(seed):
    call = _call("attention", seed, {"attn_mask": (2, 1, LQ, LK)}, softcap=1.5)
    call.inputs["attn_mask"][0, 0, 1, :2] = -np.inf
    return call


def tensors_of(values, dtype=None, grad=False):
    """Arrays as tensors, of `dtype` where they are floating; the rest as it is."""
    import torch  # the calls are listed without it, too

    def tensor_of(x):
        if isinstance(x, tuple):
            return tuple(map(tensor_of, x))
        if not isinstance(x, np.ndarray | np.generic):
            return x
        tensor = torch.tensor(x)
        if not tensor.is_floating_point():
            return tensor
        return tensor.to(dtype or tensor.dtype).requires_grad_(grad)

    return {name: tensor_of(x) for name, x in values.items()}


def run(label, tensors, **options):
    """Make a call with tensors in place of its arrays, with options as well."""
    import relpos.torch

    call = CALLS[label]
    given = {**tensors_of(call.others), **tensors, **options}
    return getattr(relpos.torch, call.function)(**given)


EDGES = np.array([[3, 0, 1, 1, 2, 0], [0, 0, 2, 2, 0, 2]])

CALLS = {
    "plain": _call("attention", 0, {}),
    "one item": _call("attention", 1, {"query": (H, LQ, D), "value": (H, LK, DV)}),
    "float mask": _masked(2),
    "bool mask": _call(
        "attention", 3, {}, attn_mask=np.arange(12).reshape(LQ, LK) % 5 != 1
    ),
    "tables": _call(
        "attention",
        4,
        {"rel_key": (5, D), "rel_query": (H, 3, D), "rel_value": (2, 1, 1, 7, DV)},
        query_offset=1,
        beyond="zero",
    ),
    "biases": _call(
        "attention",
        5,
        {
            "rel_bias": (H, 5),
            "rel_key": (3, DP),
            "pos_bias_u": (D,),
            "pos_bias_v": (H, DP),
            "position_query": (H, LQ, DP),
            "sinks": (H,),
        },
        query_offset=np.array([[0], [1]]),
        key_lengths=np.array([3, 4]),
        softcap=2.0,
    ),
    "decay": _square(6, {"log_decay": (2, H, LQ)}, is_causal=True, window=(1, None)),
    "shared bias": _call("attention", 7, {"rel_bias": (5,)}, query_offset=1),
    "buckets": _square(
        8,
        {"rel_bias": (3,), "rel_key": (3, D)},
        buckets=np.array([2, 1, 0, 0, 2]),
        min_relative_position=-2,
    ),
    "labels": _call(
        "attention",
        9,
        {"rel_key": (4, D), "rel_bias": (H, 4)},
        labels=np.arange(12).reshape(LQ, LK) % 5 - 1,
    ),
    "two labels": _call(
        "attention",
        10,
        {"rel_bias": (6,), "rel_value": (6, DV)},
        labels=(np.arange(12).reshape(LQ, LK) % 3, np.full((2, 1, 1, 1), 4)),
    ),
    "groups": _call(
        "attention",
        11,
        {"key": (1, LK, D), "value": (2, 1, LK, DV)},
        enable_gqa=True,
        key_ranges=np.array([[0, 2], [1, 4], [2, 2]]),
        scale=0.7,
    ),
    "blocks": _call(
        "attention",
        14,
        {"rel_key": (5, D)},
        key_blocks=np.array([[[True, False], [True, True]]]),
        block_size=(2, 2),
        query_offset=0,
    ),
    "documents": _square(
        19, {"rel_key": (H, 5, D)}, cu_seqlens=np.array([0, 1, 1, LQ], np.int32)
    ),
    "dropout": _call(
        "attention", 12, {"rel_key": (5, D)}, query_offset=0, dropout_p=0.4, rng=5
    ),
    "shaw": _square(13, {"rel_key": (3, D), "rel_value": (5, DV)}, "shaw_attention"),
    "music": _square(14, {"rel_key": (H, LQ, D)}, "relative_global_attention"),
    "transformer_xl": _call(
        "transformer_xl_attention",
        15,
        {"rel_key": (LK + LQ - 1, D), "pos_bias_u": (H, D), "pos_bias_v": (D,)},
    ),
    "fire": _fire(16),
    "graph": _call(
        "graph_attention",
        17,
        {"rel_key": (3, DP), "position_query": (H, LQ, DP), "sinks": (H, LQ)},
        edges=EDGES,
        labels=np.array([0, 1, 2, -1, 1, 0]),
    ),
    "sparse graph": _call(
        "graph_attention",
        18,
        {"rel_value": (3, DV)},
        indptr=np.array([0, 2, 2, 5]),
        indices=np.array([1, 3, 0, 0, 2]),
        labels=np.array([0, 1, 2, 2, 1]),
    ),
}
