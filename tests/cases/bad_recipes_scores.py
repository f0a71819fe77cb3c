"""Rows of the table of bad calls: recipes of models with sinks, caps and decay."""

from __future__ import annotations

import numpy as np
from bad_kinds import D, H, L, Tensor, ones

FORGETTING = {
    "f_proj_weight": ones(H, 6),
    "f_proj_bias": ones(H),
    "hidden_states": ones(3, L, 6),
}
GEMMA_AUDIO = {"per_dim_scale": ones(D), "pos_proj": ones(H * D, 6)}
GEMMA_AUDIO["query"] = ones(3, H, L, D)
GEMMA4_AUDIO = {
    "per_dim_scale": ones(D),
    "relative_k_proj": ones(H * D, 6),
    "query": ones(3, H, L, D),
}
GOOD = {
    "forgetting_transformer": FORGETTING,
    "gpt_oss": {"sinks": ones(H)},
    "gemma2": {"query_pre_attn_scalar": 4.0},
    "gemma3n_audio": GEMMA_AUDIO,
    "gemma4_audio": GEMMA4_AUDIO,
}

DECAYING = [
    (
        "forgetting_transformer",
        ValueError,
        {"f_proj_weight": ones(6)},
        r"\(6,\); expected \(H, E\)",
    ),
    (
        "forgetting_transformer",
        ValueError,
        {"f_proj_bias": ones(3)},
        r"\(3,\); expected \(2,\)",
    ),
    (
        "forgetting_transformer",
        ValueError,
        {"hidden_states": ones(L, 5)},
        r"\(4, 5\); expected \(\.\.\., L, 6\)",
    ),
    (
        "forgetting_transformer",
        TypeError,
        {"hidden_states": ones(L, 6, dtype=int)},
        r"int64; expected float16",
    ),
    (
        "forgetting_transformer",
        ValueError,
        {"window_size": 0},
        r"got 0; expected an int",
    ),
    ("forgetting_transformer", TypeError, {"f_proj_weight": Tensor()}, r"\.detach\(\)"),
]

SINKS = [
    ("gpt_oss", ValueError, {"sinks": ones(H, 1)}, r"\(2, 1\); expected \(H,\)"),
    ("gpt_oss", ValueError, {"sinks": np.float64(1)}, r"\(\); expected \(H,\)"),
    ("gpt_oss", TypeError, {"sinks": ones(H, dtype=int)}, r"int64; expected float16"),
    ("gpt_oss", TypeError, {"sinks": Tensor()}, r"\.detach\(\)"),
    (
        "gpt_oss",
        ValueError,
        {"sliding_window": 0},
        r"got 0; expected an integer from 1",
    ),
    ("gpt_oss", TypeError, {"sliding_window": 4.0}, r"got float; expected an integer"),
]

CAPPED = [
    ("gemma2", ValueError, {"query_pre_attn_scalar": 0}, r"0\.0; expected a positive"),
    (
        "gemma2",
        TypeError,
        {"query_pre_attn_scalar": "4"},
        r"str; expected a real number",
    ),
    ("gemma2", ValueError, {"attn_logit_softcapping": -1.0}, r"-1\.0; expected a posi"),
    ("gemma2", ValueError, {"attn_logit_softcapping": np.inf}, r"inf; expected a fini"),
    ("gemma2", ValueError, {"sliding_window": 0}, r"got 0; expected an integer from 1"),
    (
        "gemma3n_audio",
        ValueError,
        {"query": ones(L, D)},
        r"\(4, 8\); expected \(\.\.\., H",
    ),
    (
        "gemma3n_audio",
        TypeError,
        {"query": ones(H, L, D, dtype=int)},
        r"int64; expected",
    ),
    (
        "gemma3n_audio",
        ValueError,
        {"per_dim_scale": ones(3)},
        r"\(3,\); expected \(8,\)",
    ),
    (
        "gemma3n_audio",
        ValueError,
        {"pos_proj": ones(D, 6)},
        r"\(8, 6\); expected \(16, E",
    ),
    ("gemma3n_audio", ValueError, {"pos_proj": ones(H * D, 5)}, r"expected an even E"),
    (
        "gemma3n_audio",
        ValueError,
        {"context_left": 0},
        r"got 0; expected an integer from",
    ),
    (
        "gemma3n_audio",
        ValueError,
        {"context_left": 2**59},
        r"more bytes than memory can",
    ),
    (
        "gemma3n_audio",
        ValueError,
        {"context_right": -1},
        r"got -1; expected an integer",
    ),
    (
        "gemma3n_audio",
        TypeError,
        {"logit_cap": None},
        r"NoneType; expected a real numb",
    ),
    ("gemma3n_audio", ValueError, {"logit_cap": 0.0}, r"0\.0; expected a positive"),
    (
        "gemma4_audio",
        ValueError,
        {"relative_k_proj": ones(H * D, 0)},
        r"expected an even E",
    ),
    (
        "gemma4_audio",
        ValueError,
        {"context_left": 1},
        r"got 1; expected an integer from",
    ),
    (
        "gemma4_audio",
        ValueError,
        {"chunk_size": 0},
        r"got 0; expected an integer from 1",
    ),
    ("gemma4_audio", TypeError, {"per_dim_scale": Tensor()}, r"\.detach\(\)"),
]

RECIPES = [*DECAYING, *SINKS, *CAPPED]
