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
WAVLM = {
    "gru_rel_pos_const": ones(1, H, 1, 1),
    "gru_rel_pos_linear_weight": ones(8, D),
    "gru_rel_pos_linear_bias": ones(8),
    "rel_attn_embed": ones(32, H),
    "hidden_states": ones(3, L, H * D),
}
ZIPFORMER = {
    "linear_pos": ones(H * 3, 6),
    "num_heads": H,
    "query_length": L,
    "key_length": L + 2,
}
GOOD = {
    "llama4": {"query_length": L, "key_length": 6, "attention_chunk_size": 2},
    "llama4_temperature": {"positions": [0, 5], "floor_scale": 2.0},
    "longt5_local": {"weight": ones(32, H), "local_radius": 3},
    "sam": SAM,
    "layoutlmv3": LAYOUTLM,
    "inkling": {"proj": ones(3, 5), "head_dim": D},
    "inkling_temperature": {"positions": [0, 5], "log_scaling_n_floor": 2.0},
    "wavlm": WAVLM,
    "zipformer": ZIPFORMER,
    "zipformer_positions": {"positions": L, "dim": 6},
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
]

QUERIED = [
    ("inkling", ValueError, {"proj": ones(5)}, r"1 axes; expected \(d_rel, extent\)"),
    ("inkling", ValueError, {"proj": ones(3, 0)}, r"\(3, 0\); expected \(d_rel, exten"),
    ("inkling", ValueError, {"proj": ones(H, 3, 5)}, r"\(2, 3, 5\); expected \(d_rel"),
    ("inkling", TypeError, {"proj": ones(3, 5, dtype=int)}, r"int64; expected float16"),
    ("inkling", ValueError, {"head_dim": 0}, r"got 0; expected an integer from 1"),
    ("inkling", TypeError, {"window": 2.0}, r"got float; expected an integer"),
    (
        "inkling_temperature",
        ValueError,
        {"log_scaling_n_floor": 0},
        r"0\.0; expected a positive number",
    ),
    (
        "inkling_temperature",
        TypeError,
        {"positions": "a"},
        r"str; expected real numbers",
    ),
    (
        "inkling_temperature",
        ValueError,
        {"log_scaling_alpha": np.nan},
        r"nan; expected",
    ),
    ("wavlm", ValueError, {"gru_rel_pos_const": ones(H)}, r"expected \(1, H, 1, 1\)"),
    ("wavlm", ValueError, {"gru_rel_pos_linear_weight": ones(4, D)}, r"\(8, D\)"),
    ("wavlm", ValueError, {"gru_rel_pos_linear_bias": ones(4)}, r"expected \(8,\)"),
    ("wavlm", ValueError, {"rel_attn_embed": ones(32, 3)}, r"\(num_buckets, 2\)"),
    ("wavlm", ValueError, {"hidden_states": ones(L, D)}, r"\(\.\.\., L, 16\), 2 heads"),
    ("wavlm", ValueError, {"max_distance": 8}, r"got 8; expected an integer from 9"),
    ("zipformer", ValueError, {"linear_pos": ones(H * 3)}, r"expected \(H \* P, E\)"),
    (
        "zipformer",
        ValueError,
        {"linear_pos": ones(5, 6)},
        r"\(5, 6\) for 2 heads; expe",
    ),
    ("zipformer", ValueError, {"linear_pos": ones(H * 3, 5)}, r"expected an even E"),
    ("zipformer", ValueError, {"num_heads": 0}, r"got 0; expected an integer from 1"),
    (
        "zipformer",
        ValueError,
        {"key_length": 2},
        r"got 2 for 4 queries; expected at le",
    ),
    (
        "zipformer",
        ValueError,
        {"key_length": 2**59},
        r"more bytes than memory can addr",
    ),
    (
        "zipformer",
        ValueError,
        {"length_factor": 0.0},
        r"0\.0; expected a positive numb",
    ),
    ("zipformer_positions", ValueError, {"dim": 5}, r"got 5; expected an even number"),
    (
        "zipformer_positions",
        ValueError,
        {"positions": 0},
        r"got 0; expected an integer",
    ),
    (
        "zipformer_positions",
        TypeError,
        {"positions": True},
        r"bool; expected real numb",
    ),
    (
        "zipformer_positions",
        ValueError,
        {"positions": 2**59},
        r"more bytes than memory",
    ),
]

RECIPES = [*RANGED, *LABELLED, *QUERIED]
