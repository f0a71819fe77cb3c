"""Rows of the table of bad calls: recipes of models with sinks, caps and decay."""

from __future__ import annotations

from bad_kinds import H, L, Tensor, ones

FORGETTING = {
    "f_proj_weight": ones(H, 6),
    "f_proj_bias": ones(H),
    "hidden_states": ones(3, L, 6),
}
GOOD = {
    "forgetting_transformer": FORGETTING,
    "forgetting_transformer_backward": {"grad_log_decay": ones(3, H, L), **FORGETTING},
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

RECIPES = [*DECAYING]
