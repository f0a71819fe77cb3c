"""Rows of the table of bad calls: the recipes of models, as those of bad_biases.py."""

from __future__ import annotations

import bad_recipes_queries
import bad_recipes_scores
import numpy as np
from bad_kinds import D, H, L, Tensor, ones

BUCKETS = {"weight": ones(32, H)}
BEIT = {"relative_position_bias_table": ones(18, H), "window": (2, 3)}
NETWORK = {"w1": ones(5, 2), "b1": ones(5), "w2": ones(H, 5), "window": (2, 3)}
PARAKEET = {
    "bias_u": ones(H, D),
    "bias_v": ones(H, D),
    "relative_k_proj": ones(H * D, 6),
    "length": L,
}
ENFORMER = {
    "rel_content_bias": ones(1, H, 1, D),
    "rel_pos_bias": ones(1, H, 1, D),
    "to_rel_k": ones(H * D, 12),
    "length": L,
}
GOOD = {
    "mpnet": BUCKETS,
    "umt5": BUCKETS,
    "beit": BEIT,
    "swin_v2": NETWORK,
    "vits": {"emb_rel_k": ones(1, 5, D), "emb_rel_v": ones(1, 5, D)},
    "wav2vec2_bert": {"distance_embedding": ones(73, D)},
    "parakeet": PARAKEET,
    "enformer": ENFORMER,
    "enformer_positions": {"length": L, "dim": 12},
    "recurrent_gemma": {"attention_window_size": 4},
}
GOOD |= bad_recipes_scores.GOOD
GOOD |= bad_recipes_queries.GOOD
TABLE = "relative_position_bias_table"
LEFT, RIGHT = "left_max_position_embeddings", "right_max_position_embeddings"

SEQUENCES = [
    ("mpnet", ValueError, {"weight": ones(32)}, r"1 axes; expected \(num_buckets, H\)"),
    (
        "mpnet",
        ValueError,
        {"weight": ones(12, 32)},
        r"weight\.T .*num_buckets=12 if it",
    ),
    ("mpnet", ValueError, {"max_distance": 8}, r"got 8; expected an integer from 9"),
    ("mpnet", TypeError, {"weight": Tensor()}, r"\.detach\(\)"),
    ("umt5", TypeError, {"weight": ones(32, H, dtype=int)}, r"int64; expected float16"),
    ("umt5", ValueError, {"weight": ones(32, H), "num_buckets": 8}, r"num_buckets=8;"),
    ("umt5", TypeError, {"bidirectional": 1}, r"int; expected True or False"),
    ("vits", ValueError, {"emb_rel_k": ones(5, D)}, r"\(5, 8\); expected \(1, 2 win"),
    ("vits", ValueError, {"emb_rel_v": ones(D)}, r"1 axes; expected \(1, 2 window"),
    ("vits", TypeError, {"emb_rel_v": Tensor()}, r"\.detach\(\)"),
    (
        "wav2vec2_bert",
        ValueError,
        {"distance_embedding": ones(72, D)},
        r"\(72, 8\); expected \(left \+ right \+ 1, D\), 64 \+ 8 \+ 1 rows",
    ),
    (
        "wav2vec2_bert",
        ValueError,
        {"distance_embedding": ones(73)},
        r"1 axes; expected",
    ),
    ("wav2vec2_bert", ValueError, {LEFT: -1}, r"got -1; expected an integer from 0"),
    ("wav2vec2_bert", TypeError, {RIGHT: 8.0}, r"got float; expected an integer"),
    (
        "recurrent_gemma",
        ValueError,
        {"attention_window_size": 0},
        r"got 0; expected an",
    ),
    (
        "recurrent_gemma",
        TypeError,
        {"attention_window_size": None},
        r"NoneType; expect",
    ),
]

GRIDS = [
    ("beit", ValueError, {TABLE: ones(15, H)}, r"15 rows for \(2, 3\) .*3 = 18"),
    ("beit", ValueError, {TABLE: ones(18)}, r"\(18,\); expected \(rows, H\)"),
    ("beit", TypeError, {TABLE: ones(18, H, dtype=int)}, r"int64; expected float16"),
    ("beit", ValueError, {"window": (2, 3, 1)}, r"expected \(rows, columns\)"),
    ("beit", ValueError, {"window": 6}, r"got 6; expected \(rows, columns\)"),
    (
        "beit",
        TypeError,
        {"window": "23"},
        r"got str; expected an integer or a sequence",
    ),
    (
        "beit",
        ValueError,
        {"table_window": (0, 3)},
        r"got 0; expected an integer from 1",
    ),
    ("beit", ValueError, {TABLE: ones(18, H), "table_window": (3, 3)}, r"28"),
    (
        "beit",
        ValueError,
        {"window": (2**29, 2**29), "table_window": (2, 3)},
        r"more bytes than memory can address",
    ),
    ("swin_v2", ValueError, {"w1": ones(5, 3)}, r"\(5, 3\); expected \(F, 2\)"),
    ("swin_v2", ValueError, {"b1": ones(4)}, r"\(4,\); expected \(5,\)"),
    ("swin_v2", ValueError, {"w2": ones(H, 4)}, r"\(2, 4\); expected \(H, 5\)"),
    ("swin_v2", TypeError, {"w2": Tensor()}, r"\.detach\(\)"),
    ("swin_v2", ValueError, {"window": (3, 1)}, r"\(3, 1\); expected .* at least 2"),
    ("swin_v2", ValueError, {"window": (1, 2, 3)}, r"an integer or \(rows, columns\)"),
    ("swin_v2", ValueError, {"window": 2**29}, r"more bytes than memory can address"),
    (
        "swin_v2",
        ValueError,
        {"pretrained_window": (2, 1)},
        r"\(2, 1\); expected sides of at least 2",
    ),
    (
        "swin_v2",
        TypeError,
        {"pretrained_window": 2.5},
        r"got float; expected an integer",
    ),
]

PROJECTED = [
    ("parakeet", ValueError, {"bias_u": ones(D)}, r"\(8,\); expected \(H, D\)"),
    ("parakeet", ValueError, {"bias_v": ones(H, 3)}, r"\(2, 3\); expected \(2, 8\)"),
    (
        "parakeet",
        ValueError,
        {"relative_k_proj": ones(D, 6)},
        r"\(8, 6\); expected \(16, E\)",
    ),
    (
        "parakeet",
        ValueError,
        {"relative_k_proj": ones(H * D, 5)},
        r"expected an even E",
    ),
    (
        "parakeet",
        ValueError,
        {"relative_k_proj": ones(H * D, 0)},
        r"expected an even E",
    ),
    ("parakeet", ValueError, {"length": 0}, r"got 0; expected an integer from 1"),
    ("parakeet", ValueError, {"length": 2**59}, r"more bytes than memory can address"),
    ("parakeet", TypeError, {"length": 4.0}, r"got float; expected an integer"),
    (
        "enformer",
        ValueError,
        {"rel_content_bias": ones(H, D)},
        r"\(2, 8\); expected \(1, H, 1, D\)",
    ),
    (
        "enformer",
        ValueError,
        {"rel_pos_bias": ones(1, H, 1, 3)},
        r"\(1, 2, 1, 3\); expected \(1, 2, 1, 8\)",
    ),
    ("enformer", ValueError, {"to_rel_k": ones(D, 12)}, r"expected \(16, F\)"),
    ("enformer", ValueError, {"to_rel_k": ones(H * D, 8)}, r"F a multiple of 6"),
    ("enformer", TypeError, {"to_rel_k": np.full((H * D, 12), "a")}, r"<U1; expected"),
    ("enformer", ValueError, {"length": -1}, r"got -1; expected an integer from 1"),
    ("enformer_positions", ValueError, {"dim": 8}, r"got 8; expected a multiple of 6"),
    (
        "enformer_positions",
        ValueError,
        {"dim": 0},
        r"got 0; expected an integer from 6",
    ),
    (
        "enformer_positions",
        ValueError,
        {"length": 0},
        r"got 0; expected an integer from",
    ),
    (
        "enformer_positions",
        ValueError,
        {"length": 2**58},
        r"more bytes than memory can",
    ),
    (
        "enformer_positions",
        TypeError,
        {"dtype": np.float16},
        r"float16; expected float",
    ),
]

RECIPES = [
    *SEQUENCES,
    *GRIDS,
    *PROJECTED,
    *bad_recipes_scores.RECIPES,
    *bad_recipes_queries.RECIPES,
]
