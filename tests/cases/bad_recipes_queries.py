"""Rows of the table of bad calls: recipes of models with queries, labels and ranges."""

from __future__ import annotations

import numpy as np
from bad_kinds import D, H, L, Tensor, ones

SAM = {"rel_pos_h": ones(3, D), "rel_pos_w": ones(7, D), "grid": (2, 3)}
LAYOUTLM = {
    "rel_pos_bias": ones(H, 8),
    "rel_pos_x_bias": ones(H, 12),
    "rel_pos_y_bias": ones(H, 12),
    "position_ids": np.arange(L),
    "bbox": np.arange(4 * L).reshape(L, 4),
    "head_dim": D,
}
GOOD = {
    "llama4": {"query_length": L, "key_length": 6, "attention_chunk_size": 2},
    "llama4_temperature": {"positions": [0, 5], "floor_scale": 2.0},
    "longt5_local": {"weight": ones(32, H), "local_radius": 3},
    "sam": SAM,
    "sam_backward": {"grad_rel_key": ones(8, D), **SAM},
    "layoutlmv3": LAYOUTLM,
    "layoutlmv3_backward": {"grad_rel_bias": ones(H, 32), **LAYOUTLM},
}

RANGED = [
    (
        "llama4_temperature",
        ValueError,
        {"floor_scale": -1.0},
        r"-1\.0; expected a posi",
    ),
    (
        "llama4_temperature",
        TypeError,
        {"positions": None},
        r"NoneType; expected real nu",
    ),
    (
        "llama4_temperature",
        TypeError,
        {"attn_scale": "a"},
        r"str; expected a real numbe",
    ),
    ("llama4", ValueError, {"query_length": 0}, r"got 0; expected an integer from 1"),
    ("llama4", TypeError, {"query_length": 4.0}, r"got float; expected an integer"),
    (
        "llama4",
        ValueError,
        {"query_length": 2**59, "key_length": None},
        r"more bytes than",
    ),
    (
        "llama4",
        ValueError,
        {"key_length": 3},
        r"got 3 for 4 queries; expected at least",
    ),
    (
        "llama4",
        ValueError,
        {"attention_chunk_size": 0},
        r"got 0; expected an integer fr",
    ),
    ("llama4", ValueError, {"start": -1}, r"expected tokens from 0"),
    ("llama4", TypeError, {"start": [0.5]}, r"float64; expected integers"),
    (
        "longt5_local",
        ValueError,
        {"local_radius": 0},
        r"got 0; expected an integer from",
    ),
    (
        "longt5_local",
        TypeError,
        {"local_radius": None},
        r"NoneType; expected an integer",
    ),
    ("longt5_local", ValueError, {"length": 0}, r"got 0; expected an integer from 1"),
    (
        "longt5_local",
        ValueError,
        {"length": 2**59},
        r"more bytes than memory can addre",
    ),
    ("longt5_local", ValueError, {"weight": ones(32)}, r"expected \(num_buckets, H\)"),
    ("longt5_local", ValueError, {"max_distance": 8}, r"got 8; expected an integer fr"),
]

LABELLED = [
    ("sam", ValueError, {"rel_pos_h": ones(D)}, r"\(8,\); expected \(R, D\)"),
    ("sam", ValueError, {"rel_pos_w": ones(7, 3)}, r"\(7, 3\); expected \(S, 8\)"),
    ("sam", ValueError, {"rel_pos_w": ones(0, D)}, r"\(0, 8\); expected a row or more"),
    (
        "sam",
        TypeError,
        {"rel_pos_h": ones(3, D, dtype=int)},
        r"int64; expected float16",
    ),
    ("sam", ValueError, {"grid": 4}, r"got 4; expected \(rows, columns\)"),
    ("sam", ValueError, {"grid": (0, 3)}, r"got 0; expected an integer from 1"),
    ("sam", ValueError, {"grid": (2**59, 2)}, r"more bytes than memory can address"),
    (
        "sam_backward",
        ValueError,
        {"grad_rel_key": ones(9, D)},
        r"\(9, 8\); expected \(8, 8\)",
    ),
    (
        "layoutlmv3",
        ValueError,
        {"rel_pos_bias": ones(8)},
        r"\(8,\); expected \(H, bins",
    ),
    (
        "layoutlmv3",
        ValueError,
        {"rel_pos_x_bias": ones(3, 12)},
        r"expected \(2, bins\)",
    ),
    ("layoutlmv3", TypeError, {"rel_pos_y_bias": Tensor()}, r"\.detach\(\)"),
    ("layoutlmv3", ValueError, {"position_ids": 3}, r"\(\); expected \(\.\.\., L\)"),
    (
        "layoutlmv3",
        ValueError,
        {"position_ids": [2**61] * L},
        r"at most 2\*\*60 in size",
    ),
    ("layoutlmv3", TypeError, {"bbox": ones(L, 4)}, r"float64; expected integers"),
    (
        "layoutlmv3",
        ValueError,
        {"bbox": [[1, 2, 3, 4]]},
        r"\(1, 4\); expected \(4, 4\)",
    ),
    ("layoutlmv3", ValueError, {"head_dim": 0}, r"got 0; expected an integer from 1"),
    (
        "layoutlmv3",
        ValueError,
        {"max_rel_pos": 0},
        r"got 0; expected an integer from 1",
    ),
    (
        "layoutlmv3",
        TypeError,
        {"max_rel_2d_pos": 2.0},
        r"got float; expected an integer",
    ),
    (
        "layoutlmv3_backward",
        ValueError,
        {"grad_rel_bias": ones(H, 8)},
        r"\(2, 8\); expected \(2, 32\)",
    ),
]

RECIPES = [*RANGED, *LABELLED]
