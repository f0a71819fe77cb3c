"""Rows of the table of bad calls: recipes of models with queries, labels and ranges."""

from __future__ import annotations

from bad_kinds import H, L, ones

GOOD = {
    "llama4": {"query_length": L, "key_length": 6, "attention_chunk_size": 2},
    "llama4_temperature": {"positions": [0, 5], "floor_scale": 2.0},
    "longt5_local": {"weight": ones(32, H), "local_radius": 3},
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

RECIPES = [*RANGED]
