"""A call of each function of relpos.torch that is made of relpos's and its backward."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch_attention import tensors_of

_RNG = np.random.default_rng(0)


class TorchCall(NamedTuple):
    """Arguments of a function that is in relpos and in relpos.torch."""

    name: str
    arrays: dict[str, Any]
    settings: dict[str, Any]
    wanted: tuple[str, ...]  # what has a gradient

    def tensors(self, dtype=torch.float64, grad=True):
        """The arrays as tensors, floats of a dtype."""
        tensors = tensors_of(self.arrays, dtype)
        for name in self.wanted:
            tensors[name].requires_grad_(grad)
        return tensors


def _real(*shape):
    return _RNG.standard_normal(shape)


def _fire():
    names = ("w1", "b1", "w2", "b2", "c", "threshold")
    shapes = ((3,), (3,), (2, 3), (2,), (), ())
    parts = {n: np.asarray(_real(*s)) for n, s in zip(names, shapes, strict=True)}
    return parts | {"threshold": np.array(2.7)}


def calls():
    """The calls by what they show."""
    positions, x = np.array([[3, 0, 5]]), _real(2, 3, 6)
    mask = np.array([[True, True, False], [True, False, True]])
    conv = {"x": _real(2, 6, 3), "weight": _real(3, 3), "bias": _real(3)}
    grid = {"x": _real(2, 6, 3), "weight": _real(3, 1, 2, 3)}
    kerple = {"r1": _real(2, 3), "r2": 0.5 + np.abs(_real(2, 3))}
    relative = {"relative_position": np.arange(-40, 40, 7).reshape(2, -1)}
    frequencies = np.array([1.0, 0.3, 0.1])
    on_axes = {"positions": np.arange(12).reshape(3, 4), "inv_freq": frequencies}
    coordinates = {"coordinates": _real(2, 4, 2), "inv_freq": frequencies}
    rotary = {"x": x, "positions": positions, "magnitude": 1 + _real(3) ** 2}
    angles = {"x": x, "angles": _real(3, 2)}
    indexer = {"query": _real(2, 3, 2, 4), "key": _real(2, 5, 4)}
    indexer |= {"weights": _real(2, 3, 2)}
    rows = [
        ("rotary", "apply_rotary", rotary, {"base": 50.0}, "x"),
        ("inv_freq", "apply_rotary", {**rotary, "inv_freq": _real(3)},
         {"offset": 2.5, "inverse": True}, "x inv_freq"),
        ("angles", "apply_rotary", angles,
         {"interleaved": True, "rotary_dim": 4}, "x angles"),
        ("conv", "conv_encoding", conv | {"mask": mask.repeat(2, 1)},
         {"is_causal": True}, "x weight bias"),
        ("grid", "conv_encoding", grid, {"grid": (2, 3)}, "x weight"),
        ("learned", "learned",
         {"table": _real(2, 5, 3), "positions": np.array([[4, 0, 4], [1, 2, 0]])}, {},
         "table"),
        ("alibi", "alibi_bias", {"num_heads_or_slopes": _real(2, 3)}, {"length": 4},
         "num_heads_or_slopes"),
        ("t5", "t5_bias", {"weight": _real(8, 2)}, {"length": 7, "max_distance": 6},
         "weight"),
        ("t5_causal", "t5_bias", {"weight": _real(6, 2)},
         {"length": 7, "num_buckets": 6, "bidirectional": False, "max_distance": 6},
         "weight"),
        ("log", "kerple_bias", kerple, {"length": 4}, "r1 r2"),
        ("power", "kerple_bias", kerple, {"length": 4, "kind": "power"}, "r1 r2"),
        ("fire", "fire_bias", _fire(), {"query_length": 4}, "w1 b1 w2 b2 c threshold"),
        ("fire_all", "fire_bias", _fire(),
         {"query_length": 2, "key_length": 5, "query_offset": 3, "signed": True},
         "w1 b1 w2 b2 c threshold"),
        ("sinusoidal", "sinusoidal", {"positions": positions},
         {"dim": 5, "layout": "concat"}, ""),
        ("sinusoidal_of", "sinusoidal",
         {"positions": _real(2, 3), "inv_freq": frequencies}, {"dim": 6}, ""),
        ("t5_bucket", "t5_bucket", relative, {"max_distance": 30}, ""),
        ("deberta", "deberta_bucket", relative, {"bucket_size": 8, "max_position": 20},
         ""),
        ("xpos", "xpos_magnitude", {"positions": positions}, {"dim": 6}, ""),
        ("mrope", "mrope_angles", on_axes, {"sections": (1, 1, 1)}, ""),
        ("axial", "axial_angles", coordinates, {}, ""),
        ("segments", "segment_ranges",
         {"query_segments": np.array([[0, 0, 2], [1, 2, 2]])}, {}, ""),
        ("key_segments", "segment_ranges",
         {"query_segments": np.array([0, 2]), "key_segments": np.array([[0, 0, 2, 2]])},
         {}, ""),
        ("picks", "indexer_top_k", indexer, {"k": 3}, ""),
        ("picks_of_rules", "indexer_top_k", indexer | {
            "query_offset": np.array([3, 1]), "key_lengths": np.array([5, 4]),
            "attn_mask": _real(2, 1, 5)}, {"k": 9, "is_causal": True}, ""),
        ("skew", "skew", {"x": _real(2, 3, 7)}, {"is_causal": False}, "x"),
        ("skew_causal", "skew", {"x": _real(2, 3, 4)}, {"is_causal": True}, "x"),
        ("rel_shift", "rel_shift", {"x": _real(2, 3, 4)}, {}, "x"),
    ]  # fmt: skip
    return {
        label: TorchCall(name, arrays, settings, tuple(wanted.split()))
        for label, name, arrays, settings, wanted in rows
    }
