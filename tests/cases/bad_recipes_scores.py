"""Rows of the table of bad calls: recipes of models with sinks, caps and decay."""

from __future__ import annotations

import numpy as np
from bad_kinds import H, L, Tensor, ones

FORGETTING = {
    "f_proj_weight": ones(H, 6),
    "f_proj_bias": ones(H),
    "hidden_states": ones(3, L, 6),
}
GOOD = {
    "forgetting_transformer": FORGETTING,
    "forgetting_transformer_backward": {"grad_log_decay": ones(3, H, L), **FORGETTING},
    "gpt_oss": {"sinks": ones(H)},
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
    (
        "forgetting_transformer_backward",
        ValueError,
        {"grad_log_decay": ones(H, L)},
        r"\(2, 4\); expected \(3, 2, 4\)",
    ),
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

RECIPES = [*DECAYING, *SINKS]
